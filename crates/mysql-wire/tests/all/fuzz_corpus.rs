//! Replays the corpus of the fuzz targets, so that an input that once failed is a test on every machine.

use inputs::replay;

#[test]
fn response() {
    replay("response", mysql_wire::fuzzing::response);
}

#[test]
fn handshake() {
    replay("handshake", mysql_wire::fuzzing::handshake);
}

#[test]
fn compression() {
    replay("compression", mysql_wire::fuzzing::compression);
}

#[test]
fn reshape() {
    replay("reshape", mysql_wire::fuzzing::reshape);
}

#[test]
fn session_state() {
    replay("session_state", mysql_wire::fuzzing::session_state);
}

#[test]
fn gtid() {
    replay("gtid", mysql_wire::fuzzing::gtid);
}

#[test]
fn statement() {
    replay("statement", mysql_wire::fuzzing::statement);
}

#[test]
fn binlog() {
    replay("binlog", mysql_wire::fuzzing::binlog);
}
