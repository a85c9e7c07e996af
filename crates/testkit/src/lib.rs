//! What the tests and the lab put on either side of the gateway: servers that answer from a script, clients
//! that show every byte they got, and links that misbehave on demand.
//!
//! Nothing here is part of the product. Everything runs over real loopback sockets on ports the kernel picks.

pub mod api_server;
pub mod certificates;
pub mod fake_server;
pub mod lossy_link;
pub mod metrics;
pub mod object_store;
pub mod redirected_link;
pub mod result_set;
pub mod scripted;
