//! Another login within the session, and the session made new.

use mysql_wire::Command;
use sandbox::{PASSWORD, USER};

use super::Maker;
use crate::schema::{OPEN, READER, READER_PASSWORD};
use crate::script::{Mask, Patch, Request, Step};

/// Accounts with databases; the last ones are refused, which ends the session.
const LOGINS: &[(&str, &str, &str)] = &[
    (USER, PASSWORD, "diff"),
    (USER, PASSWORD, ""),
    (READER, READER_PASSWORD, "diff"),
    (OPEN, "", "diff"),
    (OPEN, "", ""),
    (USER, "wrong", "diff"),
    (USER, "", "diff"),
    ("nobody_at_all", "x", "diff"),
    (USER, PASSWORD, "nowhere"),
    (READER, READER_PASSWORD, "held"),
    (OPEN, "not empty", ""),
];
const GOOD: usize = 5;

pub fn add(make: &mut Maker) {
    if make.dice.one_in(3) {
        make.add_query("SET @kept = 1, sql_mode = 'ANSI_QUOTES'");
        make.add_command(Command::RESET_CONNECTION, b"");
        return make.add_query("SELECT @kept, @@sql_mode, DATABASE()");
    }
    let end = if make.dice.one_in(6) { LOGINS.len() } else { GOOD };
    let (user, password, database) = LOGINS[make.dice.below(end)];
    let mut request = Request::new(
        format!("change user to {user:?} with {password:?}, database {database:?}"),
        [Command::CHANGE_USER.0],
    );
    request.patch = Patch::ChangeUser {
        user,
        password,
        database,
    };
    request.mask = Mask::Sequence;
    make.add(request);
    make.add_query("SELECT CURRENT_USER(), DATABASE(), @@character_set_client, @@collation_connection");
    make.add_query("INSERT INTO bare VALUES (77, 'whose')");
    make.add_query("SHOW GRANTS");
}

pub fn is_refused_change(step: &Step) -> bool {
    let refused = |request: &Request| match request.patch {
        Patch::ChangeUser {
            user,
            password,
            database,
        } => !LOGINS[..GOOD].contains(&(user, password, database)),
        _ => false,
    };
    step.requests.iter().any(refused)
}
