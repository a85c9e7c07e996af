//! What clients of the Redis protocol send.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| resp_wire::fuzzing::request(data));
