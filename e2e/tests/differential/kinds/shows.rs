//! SHOW, as far as it tells of the session and its tables and not of the time.
//!
//! Not SHOW PROCEDURE STATUS: MySQL reads its dictionary now with an index and now without, which the status
//! flags tell.

use mysql_wire::Command;

use super::Maker;
use crate::script::Mask;

const SHOWS: &[&str] = &[
    "SHOW DATABASES",
    "SHOW TABLES",
    "SHOW FULL TABLES FROM diff LIKE 's%'",
    "SHOW COLUMNS FROM types",
    "SHOW FULL COLUMNS FROM small",
    "SHOW INDEX FROM small",
    "SHOW CREATE TABLE types",
    "SHOW CREATE TABLE child",
    "SHOW CREATE VIEW shown",
    "SHOW CREATE DATABASE diff",
    "SHOW CREATE PROCEDURE outs",
    "SHOW CREATE FUNCTION twice",
    "SHOW GRANTS",
    "SHOW GRANTS FOR diff_reader",
    "SHOW PRIVILEGES",
    "SHOW ENGINES",
    "SHOW CHARACTER SET",
    "SHOW COLLATION LIKE 'utf8mb4_g%'",
    "SHOW WARNINGS",
    "SHOW ERRORS",
    "SHOW COUNT(*) WARNINGS",
    "SHOW VARIABLES LIKE 'character%'",
    "SHOW SESSION VARIABLES LIKE 'sql_mode'",
    "SHOW GLOBAL VARIABLES LIKE 'max_allowed_packet'",
    "SHOW VARIABLES WHERE Variable_name IN ('autocommit', 'tx_isolation', 'time_zone')",
    "SHOW PLUGINS",
    "SHOW STATUS LIKE 'missing'",
    "SHOW SESSION STATUS LIKE 'Com_savepoint'",
    "SHOW OPEN TABLES FROM nowhere",
    "SHOW TRIGGERS LIKE 'missing'",
    "SHOW EVENTS",
    "SHOW CREATE TABLE shown",
    "SHOW CREATE USER diff_open",
    "DESCRIBE types v",
    "EXPLAIN small",
    "SHOW CREATE EVENT missing",
    "SHOW TABLE STATUS LIKE 'missing'",
    "SHOW VARIABLES LIKE 'wsrep%'",
    "SHOW CREATE TRIGGER stops_not",
    "SHOW INDEXES FROM missing",
    "SHOW",
    "SHOW NOTHING",
];

/// Lists with connections of others, times or positions.
const CHANGING: &[&str] = &[
    "SHOW PROCESSLIST",
    "SHOW FULL PROCESSLIST",
    "SHOW TABLE STATUS",
    "SHOW STATUS",
    "SHOW BINARY LOGS",
    "SHOW TRIGGERS",
    "SHOW VARIABLES",
];

pub fn add(make: &mut Maker) {
    match make.dice.below(8) {
        0 => {
            let text = make.dice.pick(CHANGING);
            let mut request = make.query(text);
            request.mask = Mask::Rows;
            make.add(request);
        }
        1 => {
            let table = make.dice.pick(&["small", "types", "missing", "shown", ""]);
            let pattern = make.dice.pick(&["", "n%", "%"]);
            make.add_command(
                Command::FIELD_LIST,
                &[table.as_bytes(), b"\0", pattern.as_bytes()].concat(),
            );
        }
        _ => {
            let text = make.dice.pick(SHOWS);
            // Counts what was executed on a connection, by whomever.
            if !(make.shared && text.contains("SESSION STATUS")) {
                make.add_query(text);
            }
        }
    }
}
