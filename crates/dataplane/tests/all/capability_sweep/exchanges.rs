//! What every session of the sweep says. The answers are compared by the client as they come.

use mysql_wire::{Capabilities, Command};
use testkit::scripted::{Client, ClientError};

/// Statements of the scripted server's language.
const STATEMENTS: &[&str] = &[
    "OK",
    "TRACK",
    "ERROR",
    "ROWS 0",
    "ROWS 1",
    "ROWS 250",
    "WIDE 0",
    "WIDE 250",
    "WIDE 70000",
    "BROKEN 3",
    "OK; ROWS 2; TRACK; ERROR; OK",
    "ROWS 2; ROWS 0; ROWS 3; OK",
    "INFILE LOAD /tmp/data",
    "PROGRESS 3",
];

/// Commands other than COM_QUERY, in an order that makes sense to the server: the statement with a cursor is
/// number 2.
const COMMANDS: &[(Command, &[u8])] = &[
    (Command::PING, b""),
    (Command::INIT_DB, b"test"),
    (Command::STATISTICS, b""),
    (Command::FIELD_LIST, b"t\0"),
    (Command::PROCESS_INFO, b""),
    (Command::SET_OPTION, b"\0\0"),
    (Command::STMT_PREPARE, b"ROWS 10 ?"),
    (Command::STMT_PREPARE, b"ROWS 10"),
    (Command::STMT_PREPARE, b"OK ? ?"),
    (Command::STMT_PREPARE, b"ERROR"),
    (Command::STMT_PREPARE, b"ROWS 3; OK"),
    (Command::STMT_EXECUTE, b"\x02\0\0\0\x00\x01\0\0\0"),
    (Command::STMT_EXECUTE, b"\x03\0\0\0\x00\x01\0\0\0"),
    (Command::STMT_EXECUTE, b"\x04\0\0\0\x00\x01\0\0\0"),
    (Command::STMT_EXECUTE, b"\x09\0\0\0\x00\x01\0\0\0"),
    (Command::STMT_EXECUTE, b"\x02\0\0\0\x01\x01\0\0\0"),
    (Command::STMT_FETCH, b"\x02\0\0\0\x07\0\0\0"),
    (Command::STMT_FETCH, b"\x02\0\0\0\x07\0\0\0"),
    (Command::STMT_FETCH, b"\x02\0\0\0\x07\0\0\0"),
    (Command::STMT_SEND_LONG_DATA, b"\x01\0\0\0\0\0abc"),
    (Command::STMT_SEND_LONG_DATA, b"\x01\0\0\0\0\0def"),
    (Command::STMT_RESET, b"\x01\0\0\0"),
    (Command::STMT_BULK_EXECUTE, b"\x02\0\0\0\x80\0\x03\0"),
    (Command::STMT_CLOSE, b"\x01\0\0\0"),
    (Command::STMT_CLOSE, b"\x02\0\0\0"),
    (Command::DEBUG, b""),
    (
        Command::REGISTER_SLAVE,
        b"\x01\0\0\0\x00\x00\x00\x00\x00\0\0\0\0\0\0\0\0",
    ),
    (Command(0x77), b"?"),
    (Command::RESET_CONNECTION, b""),
];

/// Everything, and COM_QUIT.
pub(crate) async fn run(mut client: Client, password: &[u8]) -> Result<(), String> {
    for statement in STATEMENTS {
        told(statement, client.query(statement).await)?;
    }
    for (command, body) in COMMANDS {
        told(command.name(), client.exchange(&request(*command, body)).await)?;
    }
    told(
        "pipelined commands",
        client.pipeline(&pipelined(client.negotiated())).await,
    )?;
    told("change user", client.change_user(b"other", password).await)?;
    told("after the change of user", client.query("OK; ROWS 1").await)?;
    told("quit", client.exchange(&request(Command::QUIT, b"")).await)?;
    Ok(())
}

pub(crate) fn told<T>(what: &str, done: Result<T, ClientError>) -> Result<T, String> {
    done.map_err(|error| format!("{what}: {error}"))
}

pub(crate) fn request(command: Command, body: &[u8]) -> Vec<u8> {
    [&[command.0], body].concat()
}

/// COM_QUERY without query attributes.
pub(crate) fn statement(text: &str, negotiated: Capabilities) -> Vec<u8> {
    let attributes: &[u8] = if negotiated.contains(Capabilities::QUERY_ATTRIBUTES) {
        &[0, 1]
    } else {
        &[]
    };
    request(Command::QUERY, &[attributes, text.as_bytes()].concat())
}

/// With and without an answer, long and short ones.
fn pipelined(negotiated: Capabilities) -> Vec<Vec<u8>> {
    vec![
        statement("ROWS 300", negotiated),
        request(Command::PING, b""),
        request(Command::STMT_CLOSE, b"\x07\0\0\0"),
        request(Command::STMT_CLOSE, b"\x08\0\0\0"),
        statement("ERROR", negotiated),
        statement("TRACK; ROWS 2", negotiated),
        request(Command::STATISTICS, b""),
        request(Command::STMT_PREPARE, b"ROWS 10 ?"),
        statement("OK", negotiated),
    ]
}
