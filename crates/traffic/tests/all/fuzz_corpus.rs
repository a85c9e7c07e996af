//! What fuzzing has found once stays found.

#[test]
fn the_corpus_of_traffic_files_is_read() {
    inputs::replay("traffic_file", traffic::fuzzing::traffic_file);
}
