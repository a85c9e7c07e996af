//! Servers of TiDB: PD has their list, and their status ports tell when one is about to end.

mod pd;
mod status;

pub(crate) use pd::follow as follow_pd;
pub(crate) use status::watch as watch_status;
