//! Configurations of HAProxy, turned into ours.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| import::fuzzing::import_haproxy(data));
