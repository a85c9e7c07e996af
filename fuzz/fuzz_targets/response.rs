//! Framing, and where responses and requests end.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| mysql_wire::fuzzing::response(data));
