//! PROXY protocol headers.
//!
//! The two files and not the crate `net`, which would bring TLS and an async runtime: minutes of building for
//! code that is not fuzzed here.
#![no_main]
#![allow(dead_code, unused_imports)]

#[path = "../../crates/net/src/peer.rs"]
mod peer;
#[path = "../../crates/net/src/proxy_header/mod.rs"]
mod proxy_header;

use libfuzzer_sys::fuzz_target;
use peer::Peer;

fuzz_target!(|data: &[u8]| proxy_header::fuzz(data));
