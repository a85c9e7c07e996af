//! Other sessions over the same few connections, which leave them in every state they can between two
//! commands of a script.
//!
//! Those of the script's own account, capabilities and charset get the very connections that the script gets;
//! one of another account takes their seats. They write to tables of their own, some of which have the names
//! of the script's, and end what would keep a connection for them alone: a connection that is held is one
//! that nobody shares.

use e2e::packets::{Client, Identity};
use mysql_wire::{Capabilities, Command};
use sandbox::{PASSWORD, USER};

use crate::answer;
use crate::kinds::parameters::{Parameter, encode};
use crate::schema::{NOISE, READER, READER_PASSWORD};
use crate::script::Request;
use inputs::Random;

/// Sessions of the script's kind.
const ALIKE: usize = 3;

/// What a session does in one go, commands that belong together.
const TURNS: &[&[&str]] = &[
    &["USE noise"],
    &["SET NAMES latin1"],
    &["SET NAMES gbk"],
    &["SET NAMES utf8mb4 COLLATE utf8mb4_bin"],
    &["SET character_set_results = NULL"],
    &["SET character_set_connection = cp1251"],
    &["SET NAMES DEFAULT"],
    &["SET sql_mode = 'ANSI_QUOTES'"],
    &["SET sql_mode = 'NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'"],
    &["SET sql_mode = ''"],
    &["SET time_zone = '-07:00'"],
    &["SET sql_select_limit = 1"],
    &["SET autocommit = 0"],
    &["SET autocommit = 1"],
    &["SET foreign_key_checks = 0", "SET unique_checks = 0"],
    &["SET max_error_count = 0"],
    &["SET sql_safe_updates = 1"],
    &["SET lc_time_names = 'fr_FR'"],
    &["SET group_concat_max_len = 4"],
    &["SET div_precision_increment = 9"],
    &["SET sql_notes = 0"],
    &["SET SESSION TRANSACTION READ ONLY"],
    &["SET SESSION TRANSACTION READ WRITE"],
    &["SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"],
    &["SET TRANSACTION READ ONLY", "START TRANSACTION", "COMMIT"],
    &["SET last_insert_id = 777"],
    &["INSERT INTO noise.numbers VALUES ()", "COMMIT"],
    &["INSERT INTO noise.numbers VALUES (), (), ()", "COMMIT"],
    &["UPDATE noise.numbers SET v = v + 1 LIMIT 5", "COMMIT"],
    &["BEGIN", "INSERT INTO noise.numbers VALUES ()", "ROLLBACK"],
    &["SELECT LAST_INSERT_ID(), ROW_COUNT()", "COMMIT"],
    &[
        "SELECT SQL_CALC_FOUND_ROWS id FROM noise.numbers LIMIT 1",
        "COMMIT",
    ],
    &["SELECT id FROM small; SELECT * FROM blobs", "COMMIT"],
    &["SELECT id FROM small", "COMMIT"],
    &["SELECT CAST('noise' AS SIGNED)"],
    &["SELECT noise FROM nowhere"],
    &["SELEC noise"],
    &["DO 1 / 0"],
    &[
        "SELECT GET_LOCK('noise', 0)",
        "SELECT RELEASE_ALL_LOCKS()",
        "COMMIT",
    ],
    &["SET @a = 'noise', @i = 'noise', @s = 'noise'", RESET],
    &["PREPARE p FROM 'SELECT \\'noise\\''", RESET],
    &["CREATE TEMPORARY TABLE noise.tmp (noise INT)", RESET],
    &["LOCK TABLES noise.small READ", "UNLOCK TABLES"],
    &["HANDLER noise.small OPEN AS h", "HANDLER h CLOSE", RESET],
    &[RESET],
];

/// COM_RESET_CONNECTION.
const RESET: &str = "reset";

/// Statements that scripts prepare, too: the same text in another schema is another statement.
const PREPARED: &[(&str, usize)] = &[
    ("SELECT 1", 0),
    ("SELECT ?", 1),
    ("SELECT * FROM blobs", 0),
    (
        "SELECT id, name FROM small WHERE name = ? OR id > ? ORDER BY id",
        2,
    ),
    ("REPLACE INTO blobs VALUES (?, ?)", 2),
    ("SHOW TABLES", 0),
    ("SHOW WARNINGS", 0),
    ("SELECT FROM", 0),
];

pub struct Noise {
    sessions: Vec<Client>,
    dice: Random,
}

impl Noise {
    /// Sessions beside one of this identity; none where that is not let in.
    pub fn beside(address: &str, identity: &Identity, dice: Random) -> Self {
        let other = match identity.user {
            USER => (READER, READER_PASSWORD),
            _ => (USER, PASSWORD),
        };
        let alike = Identity {
            database: Some(NOISE),
            ..identity.clone()
        };
        let mut stranger = alike.clone();
        (stranger.user, stranger.password) = other;
        let identities = vec![alike; ALIKE].into_iter().chain([stranger]);
        let connected = identities.map(|identity| Client::connect(address, &identity).unwrap());
        let let_in = connected.filter(|(_, verdict)| verdict.payload.first() == Some(&0));
        let mut noise = Self {
            sessions: let_in.map(|(client, _)| client).collect(),
            dice,
        };
        // As many connections as there are sessions, for a start.
        for statement in ["BEGIN", "COMMIT"] {
            for session in &mut noise.sessions {
                query(session, statement);
            }
        }
        noise
    }

    /// Each of the sessions does something.
    pub fn make(&mut self) {
        for session in &mut self.sessions {
            match self.dice.below(8) {
                0 => command(session, &[&[Command::INIT_DB.0], NOISE.as_bytes()].concat()),
                1 => command(session, &[Command::SET_OPTION.0, self.dice.below(2) as u8, 0]),
                2 | 3 => prepared(session, &mut self.dice),
                _ => {
                    for text in self.dice.pick(TURNS) {
                        query(session, text);
                    }
                }
            }
        }
    }
}

pub fn query(session: &mut Client, text: &str) {
    if text == RESET {
        return command(session, &[Command::RESET_CONNECTION.0]);
    }
    let attributes: &[u8] = match session.capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
        true => &[0, 1],
        false => &[],
    };
    command(
        session,
        &[&[Command::QUERY.0], attributes, text.as_bytes()].concat(),
    );
}

fn command(session: &mut Client, payload: &[u8]) {
    send(session, Request::new("noise", payload));
}

fn send(session: &mut Client, request: Request) -> Option<u32> {
    session.send_payload(0, &request.payload).unwrap();
    let answer = answer::read(session, &request);
    assert!(!answer.ends_session(), "a session of the noise has ended");
    answer.statement()
}

/// Prepares, executes, and mostly closes a statement. Some are left to be closed with the session.
fn prepared(session: &mut Client, dice: &mut Random) {
    const PARAMETER_COUNT_AVAILABLE: u8 = 8;
    let (text, count) = dice.pick(PREPARED);
    let prepare = [&[Command::STMT_PREPARE.0], text.as_bytes()].concat();
    let Some(id) = send(session, Request::new("noise", prepare)) else {
        return;
    };
    let named = session.capabilities.contains(Capabilities::QUERY_ATTRIBUTES);
    let parameters: Vec<_> = (0..count).map(|_| Parameter::random(dice)).collect();
    let flags = if named { PARAMETER_COUNT_AVAILABLE } else { 0 };
    let execute = [
        &[Command::STMT_EXECUTE.0][..],
        &id.to_le_bytes(),
        &[flags, 1, 0, 0, 0],
    ]
    .concat();
    let body = encode(&parameters, named, true, &[]);
    command(session, &[execute, body].concat());
    query(session, "COMMIT");
    if !dice.one_in(4) {
        command(
            session,
            &[&[Command::STMT_CLOSE.0][..], &id.to_le_bytes()].concat(),
        );
    }
}
