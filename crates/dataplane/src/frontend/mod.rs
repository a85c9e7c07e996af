//! From the socket to a session: connections are taken, greeted and logged in, each on its worker; and what
//! all sessions of a process share.

pub(crate) mod accept;
pub(crate) mod accounts;
pub(crate) mod auth_relay;
pub(crate) mod authenticate;
pub(crate) mod connection;
pub(crate) mod counted;
pub(crate) mod data_plane;
pub mod extension;
pub(crate) mod gateway;
pub(crate) mod gateway_error;
pub(crate) mod guesses;
pub(crate) mod handshake;
pub(crate) mod kill_right;
pub(crate) mod listener_state;
pub(crate) mod message;
pub(crate) mod moves;
pub(crate) mod packet_io;
pub(crate) mod password_checks;
pub mod password_login;
pub(crate) mod protocol;
pub(crate) mod proxy_header;
pub(crate) mod registry;
pub mod rsa_key;
pub(crate) mod server_events;
pub(crate) mod session_summary;
pub(crate) mod thread;
pub(crate) mod user_name;
pub(crate) mod users;
pub(crate) mod worker;
pub(crate) mod worker_loop;
