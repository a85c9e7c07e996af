//! What fuzzing has found once stays found.

#[test]
fn the_corpus_of_traffic_files_is_read() {
    inputs::replay("traffic_file", traffic::fuzzing::traffic_file);
}

#[test]
fn the_corpus_of_imports_is_read() {
    inputs::replay("import_slow_log", traffic::fuzzing::import_slow_log);
    inputs::replay("import_general_log", traffic::fuzzing::import_general_log);
    inputs::replay("import_tiproxy", traffic::fuzzing::import_tiproxy);
    inputs::replay("import_pcap", traffic::fuzzing::import_pcap);
}
