//! Replays the corpus of the fuzz target, so that an input that once failed is a test on every machine.

#[test]
fn facts() {
    inputs::replay("facts", sql_class::fuzzing::fuzz_facts);
}
