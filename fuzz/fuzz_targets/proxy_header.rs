//! PROXY protocol headers.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| net::proxy_header::fuzz(data));
