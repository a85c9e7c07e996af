//! Which bytes answer which command.

use std::collections::HashMap;

use mysql_wire::{Capabilities, Command, ErrPacket};

use crate::result_set::{self, Shape};

/// A statement asking for more rows gets this many.
const MAX_ROWS: u32 = 100_000;
const MAX_PARAMETERS: usize = 1000;
const ER_UNKNOWN_COM_ERROR: u16 = 1047;
const ER_UNKNOWN_STMT_HANDLER: u16 = 1243;

/// What a login gives, and what changes the meaning of statements.
const VARIABLES: [[&str; 2]; 10] = [
    ["autocommit", "ON"],
    ["character_set_client", "utf8mb4"],
    ["character_set_connection", "utf8mb4"],
    ["character_set_results", "utf8mb4"],
    ["collation_connection", "utf8mb4_general_ci"],
    [
        "sql_mode",
        "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO",
    ],
    ["time_zone", "SYSTEM"],
    ["transaction_isolation", "REPEATABLE-READ"],
    ["transaction_read_only", "OFF"],
    ["wait_timeout", "28800"],
];

/// What to do about a command.
pub(super) enum FakeAnswer<'a> {
    Bytes(&'a [u8]),
    /// The protocol has no answer to this command.
    Silence,
    Close,
}

/// Every response that was ever given, ready to be sent again.
pub(super) struct Answers {
    result_sets: HashMap<Shape, Vec<u8>>,
    prepared: Vec<u8>,
    variables: HashMap<bool, Vec<u8>>,
    ok: Vec<u8>,
    unknown_command: Vec<u8>,
    unknown_statement: Vec<u8>,
    results: u64,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            result_sets: HashMap::new(),
            prepared: Vec::new(),
            variables: HashMap::new(),
            ok: result_set::encode_ok(1),
            unknown_command: error(
                ER_UNKNOWN_COM_ERROR,
                *b"08S01",
                b"Unknown command of the fake server",
            ),
            unknown_statement: error(
                ER_UNKNOWN_STMT_HANDLER,
                *b"HY000",
                b"Unknown prepared statement handler",
            ),
            results: 0,
        }
    }
}

impl Answers {
    /// The answer to one command packet's payload. `rows_of`: of each statement that was prepared on the
    /// connection, by its id, which is its number as on real servers.
    pub(super) fn answer(
        &mut self,
        command: &[u8],
        negotiated: Capabilities,
        rows_of: &mut Vec<u32>,
    ) -> FakeAnswer<'_> {
        let Some((&code, body)) = command.split_first() else {
            return FakeAnswer::Bytes(&self.unknown_command);
        };
        let deprecate_eof = negotiated.contains(Capabilities::DEPRECATE_EOF);
        match Command(code) {
            Command::QUERY if asks_for_variables(body) => self.variables(deprecate_eof),
            Command::QUERY if is_select(body) => self.result_set(Shape {
                rows: rows_wanted(body),
                binary: false,
                deprecate_eof,
            }),
            Command::STMT_PREPARE => {
                rows_of.push(rows_wanted(body));
                let id = u32::try_from(rows_of.len()).unwrap_or(u32::MAX);
                self.prepared = result_set::encode_prepare_ok(id, parameters(body), deprecate_eof);
                FakeAnswer::Bytes(&self.prepared)
            }
            Command::STMT_EXECUTE => match rows_prepared(body, rows_of) {
                Some(rows) => self.result_set(Shape {
                    rows,
                    binary: true,
                    deprecate_eof,
                }),
                None => FakeAnswer::Bytes(&self.unknown_statement),
            },
            Command::STMT_CLOSE | Command::STMT_SEND_LONG_DATA => FakeAnswer::Silence,
            Command::QUIT => FakeAnswer::Close,
            Command::QUERY
            | Command::PING
            | Command::INIT_DB
            | Command::STMT_RESET
            | Command::RESET_CONNECTION
            | Command::SET_OPTION => FakeAnswer::Bytes(&self.ok),
            _ => FakeAnswer::Bytes(&self.unknown_command),
        }
    }

    /// How many result sets were sent.
    pub(super) fn results(&self) -> u64 {
        self.results
    }

    fn variables(&mut self, deprecate_eof: bool) -> FakeAnswer<'_> {
        let encode =
            || result_set::encode_text(&["VARIABLE_NAME", "VARIABLE_VALUE"], &VARIABLES, deprecate_eof);
        FakeAnswer::Bytes(self.variables.entry(deprecate_eof).or_insert_with(encode))
    }

    fn result_set(&mut self, shape: Shape) -> FakeAnswer<'_> {
        self.results += 1;
        FakeAnswer::Bytes(self.result_sets.entry(shape).or_insert_with(|| shape.encode()))
    }
}

/// The rows of the statement that an execution names.
fn rows_prepared(body: &[u8], rows_of: &[u32]) -> Option<u32> {
    let id = u32::from_le_bytes(*body.first_chunk()?);
    rows_of.get(id.checked_sub(1)? as usize).copied()
}

/// Whether the first columns of the answer are to be names and values of variables. Told by the hint that
/// whoever asks for them puts in front, so that other statements cost one comparison.
fn asks_for_variables(statement: &[u8]) -> bool {
    const TABLE: &[u8] = b"performance_schema.";
    is_select(statement)
        && statement.get(6..10) == Some(b" /*+")
        && statement.windows(TABLE.len()).any(|window| window == TABLE)
}

fn is_select(statement: &[u8]) -> bool {
    statement
        .get(..6)
        .is_some_and(|word| word.eq_ignore_ascii_case(b"select"))
}

/// The number after the last space of `… LIMIT n`, and 1 for any other statement.
fn rows_wanted(statement: &[u8]) -> u32 {
    let mut words = statement.rsplit(|&byte| byte == b' ');
    let number = words
        .next()
        .and_then(|word| std::str::from_utf8(word).ok()?.parse::<u32>().ok());
    match (number, words.next()) {
        (Some(rows), Some(word)) if word.eq_ignore_ascii_case(b"limit") => rows.min(MAX_ROWS),
        _ => 1,
    }
}

fn parameters(statement: &[u8]) -> u16 {
    statement
        .iter()
        .filter(|&&byte| byte == b'?')
        .count()
        .min(MAX_PARAMETERS) as u16
}

fn error(code: u16, sql_state: [u8; 5], message: &[u8]) -> Vec<u8> {
    let error = ErrPacket {
        code,
        sql_state,
        message: message.to_vec(),
    };
    let mut payload = Vec::new();
    error.encode(&mut payload, Capabilities::PROTOCOL_41);
    let mut out = Vec::new();
    mysql_wire::write_packet(&mut out, &mut 1, &payload);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_after_limit_decides_the_rows() {
        assert_eq!(rows_wanted(b"SELECT c FROM t LIMIT 100"), 100);
        assert_eq!(rows_wanted(b"select c from t limit 0"), 0);
        assert_eq!(rows_wanted(b"SELECT c FROM t WHERE id = 17"), 1);
        assert_eq!(rows_wanted(b"SELECT c FROM t LIMIT 4000000000"), MAX_ROWS);
        assert_eq!(rows_wanted(b""), 1);
    }
}
