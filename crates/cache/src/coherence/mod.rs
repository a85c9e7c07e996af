//! When a row may be shown: positions, and the rules of probes, fills, failovers and sessions. Pure: no
//! clock, no sockets, no tasks.

mod applied;
mod fill;
mod position;

pub use applied::{Applied, may_stay};
pub use fill::{Fill, Verdict as FillVerdict, Visible};
pub(crate) use position::file_number;
pub use position::{Place, Position, SourceId};

#[cfg(test)]
mod simulator;
