//! When a row may be shown: positions, and the rules of probes, fills, failovers and sessions. Pure: no
//! clock, no sockets, no tasks.

mod applied;
mod fill;
mod position;
mod read_index;

pub use applied::{Applied, Takeover, takeover};
pub use fill::{Fill, Verdict as FillVerdict, Visible};
pub use position::{Place, Position, SourceId};
pub use read_index::{Arrival, Probe, ReadIndex, Verdict};

#[cfg(test)]
mod simulator;
