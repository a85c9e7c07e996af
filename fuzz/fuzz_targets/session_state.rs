//! Session state in OK packets.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| mysql_wire::fuzzing::session_state(data));
