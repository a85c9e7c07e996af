//! Responses changed for clients that speak less of the protocol.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| mysql_wire::fuzzing::reshape(data));
