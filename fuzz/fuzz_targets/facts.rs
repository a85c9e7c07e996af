//! What the gateway makes of a statement: class, effects, digest, tables and calls.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| sql_class::fuzzing::fuzz_facts(data));
