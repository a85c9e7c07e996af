//! The HTTP side of Forebay, for operators: metrics, health, status, and the few things that are changed at
//! run time.
//!
//! | request | answer |
//! |---|---|
//! | `GET /metrics` | every metric, in the Prometheus or the OpenMetrics text format, as `Accept` asks |
//! | `GET /healthz` | 200 while the process answers |
//! | `GET /readyz` | 200 when new sessions are served, and behind `ok` what is wrong all the same; otherwise 503 and the reasons. One a line |
//! | `OPTIONS /` | the same, for HAProxy |
//! | `GET /status` | [`Status`] as JSON |
//! | `GET /log` | what is logged |
//! | `GET /drains` | [`DrainStatus`] of servers that drain, as JSON |
//! | `GET /switchovers` | [`SwitchoverStatus`] of the last of each cluster, as JSON |
//! | `PUT` or `POST /reload`, `/log?level=debug`, `/cache/flush`, `/readyz`, `/drain`, `/undrain` | acts, on the socket or with the token |
//! | `PUT` or `POST /pause`, `/resume`, `/switchover`, `/upgrade`, `/kill` | the same |
//! | `GET /fleet/members`, `/fleet/order` | the gateways with one configuration, and a change of it |
//! | `GET /fleet/history`, `/fleet/diff` | its changes; on the socket or with the token, since they show configurations |
//! | `PUT` or `POST /fleet/apply`, `/fleet/rollback`, `/fleet/text` | acts; the text of a revision is one, since it has hashes of passwords |
//! | `PUT` or `POST /traffic/capture`, `/traffic/capture/stop` | the same |
//! | `GET /traffic/capture` | [`CaptureStatus`] of the present capture or the last one, as JSON |
//! | `GET /mirrors` | [`MirrorStatus`] of each cluster with compared copies, as JSON, to whoever may act |
//! | `GET /balance` | [`BalanceStatus`] of each cluster, as JSON |
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
