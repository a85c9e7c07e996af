//! Prepared statements: all types, long data, cursors, statements that changed or never were.

use mysql_wire::{Capabilities, Command};

use super::parameters::{Parameter, encode};
use super::{Maker, Prepared};
use crate::script::{Patch, Request};

/// Statements with the number of their parameters. No EXPLAIN: MySQL 9.7 crashes where it is executed with a
/// cursor.
const STATEMENTS: &[(&str, usize)] = &[
    ("SELECT 1", 0),
    ("SELECT ?", 1),
    ("SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?", 9),
    ("SELECT * FROM types ORDER BY id", 0),
    ("SELECT * FROM types WHERE id = ?", 1),
    (
        "SELECT id, name FROM small WHERE name = ? OR id > ? ORDER BY id",
        2,
    ),
    ("INSERT INTO small (name, amount, note) VALUES (?, ?, ?)", 3),
    ("UPDATE small SET note = ? WHERE id = ?", 2),
    ("DELETE FROM small WHERE id = ?", 1),
    ("INSERT INTO blobs VALUES (?, ?)", 2),
    ("SELECT * FROM blobs", 0),
    ("CALL two()", 0),
    ("CALL outs(?, ?, ?)", 3),
    ("CALL only_out(?)", 1),
    ("CALL fails(?)", 1),
    ("CALL nothing()", 0),
    ("SET @p = ?", 1),
    ("DO ?", 1),
    ("SELECT FROM", 0),
    ("SELECT * FROM missing WHERE id = ?", 1),
    ("SHOW TABLES", 0),
    ("SELECT id FROM small ORDER BY id LIMIT ?", 1),
    ("SELECT * FROM changing", 0),
    ("SELECT 1; SELECT 2", 0),
    ("", 0),
    ("BEGIN", 0),
    ("COMMIT", 0),
    ("CREATE TABLE IF NOT EXISTS changing (id INT)", 0),
    ("SELECT id FROM types UNION SELECT ?", 1),
    (
        "INSERT INTO types (id, f, d, n, da, ti, dt, bi) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        8,
    ),
    ("REPLACE INTO bare VALUES (?, ?)", 2),
    ("SELECT REPEAT('p', ?)", 1),
    (
        "SELECT a.id, b.id FROM small a, small b, small c ORDER BY 1, 2",
        0,
    ),
    ("SHOW WARNINGS", 0),
    ("ANALYZE TABLE small", 0),
    ("USE diff", 0),
    ("DROP TABLE missing", 0),
];

/// DDL after which a statement is prepared anew within the server.
const CHANGES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS changing (id INT)",
    "ALTER TABLE changing ADD COLUMN c% INT",
    "INSERT INTO changing (id) VALUES (%)",
    "DROP TABLE IF EXISTS changing",
    "ALTER TABLE small ADD COLUMN p% VARCHAR(5) DEFAULT 'p'",
    "ALTER TABLE types MODIFY v VARCHAR(301)",
    "CREATE OR REPLACE VIEW shown AS SELECT id, name, amount FROM small",
    "TRUNCATE blobs",
];

pub const CURSOR: u8 = 1;
const PARAMETER_COUNT_AVAILABLE: u8 = 8;

pub fn add(make: &mut Maker) {
    match make.dice.below(12) {
        0..3 => {
            let (slot, count) = prepare(make);
            for _ in 0..make.dice.between(1, 3) {
                execute(make, slot, count, 0);
            }
        }
        3 => cursor(make),
        4 => long_data(make),
        5..8 => {
            let (slot, count) = known(make);
            execute(make, slot, count, 0);
        }
        8 => {
            let (slot, _) = known(make);
            let command = make.dice.pick(&[
                Command::STMT_RESET,
                Command::STMT_RESET,
                Command::STMT_CLOSE,
                Command::STMT_FETCH,
            ]);
            let body: &[u8] = if command == Command::STMT_FETCH {
                &[3, 0, 0, 0]
            } else {
                &[]
            };
            let request = of(command, slot, body);
            make.add(request);
        }
        9 => {
            let text = make.statement(CHANGES);
            make.add_query(&text);
        }
        10 => text_protocol(make),
        _ => wrong(make),
    }
}

/// Adds a COM_STMT_PREPARE. Returns the statement's place and how many parameters it has.
fn prepare(make: &mut Maker) -> (usize, usize) {
    let (text, count) = make.dice.pick(STATEMENTS);
    (prepare_text(make, text, count), count)
}

pub fn prepare_text(make: &mut Maker, text: &str, count: usize) -> usize {
    let slot = make.statements.len();
    make.statements.push(Prepared {
        parameters: count,
        had_cursor: false,
    });
    let mut request = Request::new(
        format!("prepare {slot}: {text}"),
        [&[Command::STMT_PREPARE.0], text.as_bytes()].concat(),
    );
    request.prepares = Some(slot);
    make.add(request);
    slot
}

/// A statement that was prepared before, if there is one.
fn known(make: &mut Maker) -> (usize, usize) {
    if make.statements.is_empty() {
        return prepare(make);
    }
    let slot = make.dice.below(make.statements.len());
    (slot, make.statements[slot].parameters)
}

pub fn of(command: Command, slot: usize, body: &[u8]) -> Request {
    let label = format!(
        "{} of {slot}: {:02x?}",
        command.name(),
        &body[..body.len().min(32)]
    );
    let mut request = Request::new(label, [&[command.0, 0, 0, 0, 0], body].concat());
    request.patch = Patch::Statement(slot);
    request
}

/// MySQL 9.7 answers the execute without a cursor of a statement that was executed with one by column
/// definitions and an OK packet, after which clients wait for ever: it gets a cursor again.
pub fn execute(make: &mut Maker, slot: usize, count: usize, mut flags: u8) {
    make.statements[slot].had_cursor |= flags & CURSOR != 0;
    if make.statements[slot].had_cursor && !make.is_mariadb() {
        flags |= CURSOR;
    }
    let parameters: Vec<_> = (0..count).map(|_| Parameter::random(&mut make.dice)).collect();
    let with_types = !make.dice.one_in(5);
    let request = execute_with(make, slot, &parameters, flags, with_types, &[]);
    make.add(request);
}

fn execute_with(
    make: &Maker,
    slot: usize,
    parameters: &[Parameter],
    mut flags: u8,
    with_types: bool,
    long: &[usize],
) -> Request {
    let named = make.has(Capabilities::QUERY_ATTRIBUTES);
    if named {
        flags |= PARAMETER_COUNT_AVAILABLE;
    }
    let mut body = vec![flags, 1, 0, 0, 0];
    body.extend(encode(parameters, named, with_types, long));
    of(Command::STMT_EXECUTE, slot, &body)
}

fn cursor(make: &mut Maker) {
    let (slot, count) = if make.dice.one_in(2) {
        known(make)
    } else {
        prepare(make)
    };
    execute(make, slot, count, CURSOR);
    for _ in 0..make.dice.between(1, 3) {
        let rows = make.dice.pick(&[0, 1, 2, 50, 200]);
        let request = of(Command::STMT_FETCH, slot, &[rows, 0, 0, 0]);
        make.add(request);
        if make.dice.one_in(4) {
            make.add_query("SELECT 'between two fetches'");
        }
    }
    let request = of(Command::STMT_RESET, slot, &[]);
    make.add(request);
}

fn long_data(make: &mut Maker) {
    let slot = prepare_text(make, "REPLACE INTO blobs VALUES (?, ?)", 2);
    for _ in 0..make.dice.between(0, 3) {
        let size = make.dice.pick(&[0, 1, 1000, 70_000]);
        let parameter = make.dice.pick(&[1, 1, 1, 1, 9]);
        let request = of(
            Command::STMT_SEND_LONG_DATA,
            slot,
            &[&[parameter, 0][..], &vec![b'L'; size]].concat(),
        );
        make.add(request);
    }
    let id = make.dice.below(9) as u32;
    let parameters = [
        Parameter::small_int(id),
        Parameter {
            kind: [0xfc, 0],
            value: None,
        },
    ];
    let request = execute_with(make, slot, &parameters, 0, true, &[1]);
    make.add(request);
    make.add_query("SELECT id, LENGTH(b), MD5(b) FROM blobs ORDER BY id");
}

fn text_protocol(make: &mut Maker) {
    let text = make.statement(&[
        "PREPARE p FROM 'SELECT * FROM small WHERE id > ? ORDER BY id'",
        "EXECUTE p USING @a",
        "EXECUTE p",
        "DEALLOCATE PREPARE p",
        "PREPARE p FROM 'CALL two()'",
        "PREPARE p FROM 'SELECT FROM'",
        "SET @a = %",
        "EXECUTE IMMEDIATE 'SELECT %'",
    ]);
    make.add_query(&text);
}

/// Ids that no statement has, and packets that are too short, where the server looks at their length: MariaDB
/// reads on behind their end. MySQL refuses them also where a command has no answer, which makes that error
/// the next one's.
fn wrong(make: &mut Maker) {
    let answered = [Command::STMT_EXECUTE, Command::STMT_RESET, Command::STMT_FETCH];
    let command = make.dice.pick(&answered);
    if !make.is_mariadb() && make.dice.one_in(2) {
        let body = make.dice.pick(&[&b""[..], b"\x01\0"]);
        return make.add_command(command, body);
    }
    let unanswered = [Command::STMT_CLOSE, Command::STMT_SEND_LONG_DATA];
    let command = if make.dice.one_in(3) {
        make.dice.pick(&unanswered)
    } else {
        command
    };
    // MariaDB takes the second for the statement prepared last.
    let body = make
        .dice
        .pick(&[b"\x77\x66\x55\x04\0\x01\0\0\0", b"\xff\xff\xff\xff\0\x01\0\0\0"]);
    make.add_command(command, body);
}
