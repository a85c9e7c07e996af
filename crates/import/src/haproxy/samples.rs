//! Expressions by which HAProxy tells clients apart: its manual calls what they are made of samples.

/// What is the same for all clients of an address, so that all of them have one entry of a table, or one
/// hash.
const SAME_FOR_ALL: [&str; 14] = [
    "always_false",
    "always_true",
    "be_id",
    "be_name",
    "bool",
    "dst",
    "dst_port",
    "env",
    "fe_id",
    "fe_name",
    "int",
    "so_id",
    "so_name",
    "str",
];

/// Whether an expression such as `dst` or `int(1),add(1)` says the same of every client.
pub(super) fn is_same_for_all(expression: &str) -> bool {
    let fetch = expression.split(['(', ',']).next().unwrap_or_default();
    SAME_FOR_ALL.contains(&fetch)
}
