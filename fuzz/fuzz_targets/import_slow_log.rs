//! Slow query logs.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| traffic::fuzzing::import_slow_log(data));
