//! The HTTP side of Forebay, for operators: metrics, health, status, and the few things that are changed at
//! run time.
//!
//! `answer::INDEX` lists the requests with what they answer; `GET /` shows it.
//!
//! **To read needs no authentication.** Bind it to loopback or to a private address. Browsers are a way in
//! from outside all the same: a page that an operator opens could have the browser send requests to that
//! address. So requests that change something are refused if they carry `Origin`, and all requests that have
//! another name than this gateway's in `Host` (see `access`).
//!
//! It runs on the control thread and never touches the data plane: what it needs it asks from a [`Gateway`],
//! which the binary implements, so that this crate knows nothing of sessions and workers.

mod access;
mod answer;
mod fleet_routes;
mod gateway;
mod routes;
mod server;

pub use gateway::{
    BalanceStatus, CacheStatus, CaptureOrder, CaptureStatus, ClusterStatus, DrainStatus, Gateway,
    LastMovedStatus, ListenerStatus, MappingStatus, MirrorStatus, MirrorTimes, MirroredStatement, PinStatus,
    RefusedReload, ServerBalanceStatus, ServerStatus, SessionStatus, Status, SwitchoverOrder,
    SwitchoverStatus, SwitchoverStep, UploadStatus, WorkerStatus,
};
pub use server::{AdminError, bind, bind_socket, serve, serve_socket};
