//! The HTTP side of Forebay, for operators: metrics, health, status, and the few things that are changed at
//! run time.
//!
//! | request | answer |
//! |---|---|
//! | `GET /metrics` | every metric, in the Prometheus or the OpenMetrics text format, as `Accept` asks |
//! | `GET /healthz` | 200 while the process answers |
//! | `GET /readyz` | 200 when new sessions are served, and behind `ok` what is wrong all the same; otherwise 503 and the reasons. One a line |
//! | `GET /status` | [`Status`] as JSON |
//! | `GET /log` | what is logged |
//! | `PUT` or `POST /log?level=debug` | changes what is logged |
//! | `PUT` or `POST /reload` | reads the configuration again |
//! | `GET /drains` | [`DrainStatus`] of servers that drain, as JSON |
//! | `GET /switchovers` | [`SwitchoverStatus`] of the last of each cluster, as JSON |
//! | `PUT` or `POST /drain`, `/undrain`, `/pause`, `/resume`, `/switchover`, `/upgrade`, `/kill` | acts on servers and sessions, taken on the socket alone |
//! | `GET /balance` | [`BalanceStatus`] of each cluster, as JSON |
//!
//! **There is no authentication.** Bind it to loopback or to a private address. Browsers are a way in from
//! outside all the same: a page that an operator opens could have the browser send requests to that address.
//! So requests that change something are refused if they carry `Origin` (see `refuse_browsers`).
//!
//! It runs on the control thread and never touches the data plane: what it needs it asks from a [`Gateway`],
//! which the binary implements, so that this crate knows nothing of sessions and workers.

mod gateway;
mod routes;
mod server;

pub use gateway::{
    BalanceStatus, CacheStatus, ClusterStatus, DrainStatus, Gateway, LastMovedStatus, ListenerStatus,
    MappingStatus, PinStatus, RefusedReload, ServerBalanceStatus, ServerStatus, SessionStatus, Status,
    SwitchoverOrder, SwitchoverStatus, SwitchoverStep, WorkerStatus,
};
pub use server::{AdminError, bind, bind_socket, serve, serve_socket};
