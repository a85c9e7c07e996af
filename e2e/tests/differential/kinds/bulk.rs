//! MariaDB's COM_STMT_BULK_EXECUTE. MySQL does not know it and says so.
//!
//! <https://mariadb.com/kb/en/com_stmt_bulk_execute/>

use mysql_wire::Command;

use super::Maker;
use super::parameters::Parameter;
use super::prepared::prepare_text;
use crate::script::{Patch, Request};

const STATEMENTS: &[&str] = &[
    "INSERT INTO loaded VALUES (?, ?, ?)",
    "REPLACE INTO loaded VALUES (?, ?, ?)",
    "INSERT IGNORE INTO loaded VALUES (?, ?, ?)",
    "UPDATE loaded SET n = ? WHERE name = ? OR id = ?",
    "INSERT INTO loaded VALUES (?, ?, ?) RETURNING id, n",
    "SELECT ?, ?, ?",
    "DELETE FROM loaded WHERE id = ? OR name = ? OR n = ?",
];

const UNIT_RESULTS: u16 = 64;
const TYPES: u16 = 128;
const NULL: u8 = 1;
const DEFAULT: u8 = 2;
const IGNORE: u8 = 3;

pub fn add(make: &mut Maker) {
    let text = make.dice.pick(STATEMENTS);
    let slot = prepare_text(make, text, 3);
    let rows = make.dice.pick(&[0, 1, 2, 20, 300]);
    let mut flags = TYPES;
    if make.dice.one_in(2) {
        flags |= UNIT_RESULTS;
    }
    if make.dice.one_in(12) {
        flags &= !TYPES;
    }
    let mut payload = vec![Command::STMT_BULK_EXECUTE.0, 0, 0, 0, 0];
    payload.extend(flags.to_le_bytes());
    if flags & TYPES != 0 {
        payload.extend([3, 0, 0xfe, 0, 3, 0]);
    }
    let distinct = make.dice.pick(&[1000, 1000, 9]);
    for row in 0..rows {
        let values = [
            Parameter::small_int(row % distinct),
            Parameter::text(format!("row {row}").as_bytes()),
            Parameter::small_int(row),
        ];
        for value in values {
            let indicator = if make.dice.one_in(9) {
                make.dice.pick(&[NULL, DEFAULT, IGNORE])
            } else {
                0
            };
            payload.push(indicator);
            if indicator == 0 {
                payload.extend(value.value.into_iter().flatten());
            }
        }
    }
    let mut request = Request::new(
        format!("bulk execute of {slot}: {rows} rows, flags {flags}"),
        payload,
    );
    request.patch = Patch::Statement(slot);
    make.add(request);
    make.add_query("SELECT COUNT(*), SUM(n), MAX(id) FROM loaded");
}
