//! Events of the binary log, and the values in them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| mysql_wire::fuzzing::binlog(data));
