//! Files of captured traffic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| traffic::fuzzing::traffic_file(data));
