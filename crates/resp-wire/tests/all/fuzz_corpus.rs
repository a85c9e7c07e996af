//! Replays the corpus of the fuzz target, so that an input that once failed is a test on every machine.

#[test]
fn request() {
    inputs::replay("redis_request", resp_wire::fuzzing::request);
}
