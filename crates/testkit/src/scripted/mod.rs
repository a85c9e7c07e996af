//! A server that answers from a script and a client that knows the script: what passes between them directly
//! must pass through a gateway byte for byte.
//!
//! [`Server`] listens on loopback with chosen capabilities, plugin, TLS and password, and remembers what each
//! session showed it. [`Client`] logs in with capabilities of its own. The answers come from [`Script`], a
//! pure function of the request and the negotiated capabilities that both sides evaluate, so every
//! [`Client::exchange`] compares the whole response with what the server must have sent.
//!
//! Framing, compression and the plugins' exchanges are written here a second time, on purpose: an error in
//! the gateway's own code must not hide itself.

mod client;
mod frames;
mod link;
mod pipeline;
mod plugin;
mod script;
mod server;
mod session;
mod state;
mod tape;

pub use self::{
    client::{Client, ClientError, INFILE_CONTENT, Identity},
    frames::Compression,
    link::Packet,
    plugin::Plugin,
    script::{Reply, Script},
    server::{Seen, Server, ServerScript, Special},
    state::{Variables, is_of_state},
    tape::{Cuts, Tape, Taped},
};

#[cfg(test)]
mod tests;
