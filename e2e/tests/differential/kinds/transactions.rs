//! Transactions, savepoints, XA.

use super::Maker;
use crate::schema::XA_NAMES;

const STATEMENTS: &[&str] = &[
    "BEGIN",
    "START TRANSACTION READ ONLY",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    "COMMIT",
    "ROLLBACK",
    "COMMIT AND CHAIN",
    "ROLLBACK AND CHAIN NO RELEASE",
    "SET autocommit = 0",
    "SET autocommit = 1",
    "SAVEPOINT s%",
    "ROLLBACK TO SAVEPOINT s%",
    "RELEASE SAVEPOINT s%",
    "INSERT INTO small (name) VALUES ('t%')",
    "UPDATE small SET amount = % WHERE id = %",
    "DELETE FROM small WHERE name LIKE 't%'",
    "SELECT * FROM small WHERE id = % FOR UPDATE",
    "SELECT COUNT(*) FROM small",
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET SESSION TRANSACTION READ ONLY",
    "SET SESSION TRANSACTION READ WRITE",
    "SELECT @@in_transaction",
    "INSERT INTO memory VALUES (%, 'tx')",
    "CREATE TABLE IF NOT EXISTS implicit (id INT)",
    "SELECT 1",
    "SET completion_type = 1",
    "SET completion_type = 0",
    "SELECT FROM",
    "INSERT INTO small VALUES (1, 'dup', 0, '')",
];

const XA: &[&str] = &[
    "XA START @",
    "XA END @",
    "XA PREPARE @",
    "XA COMMIT @",
    "XA ROLLBACK @",
    "XA COMMIT @ ONE PHASE",
    "XA START @",
    "XA END @",
    "XA RECOVER",
    "XA START @ RESUME",
    "XA END @ SUSPEND",
];

pub fn add(make: &mut Maker) {
    let text = match make.dice.below(4) {
        0 => make.dice.pick(XA).replace('@', make.dice.pick(&XA_NAMES)),
        _ => make.statement(STATEMENTS),
    };
    make.add_query(&text);
}
