//! Replays the corpora of the fuzz targets, so that an input that once failed is a test on every machine.

#[test]
fn import_haproxy() {
    inputs::replay("import_haproxy", import::fuzzing::import_haproxy);
}

#[test]
fn import_proxysql() {
    inputs::replay("import_proxysql", import::fuzzing::import_proxysql);
}
