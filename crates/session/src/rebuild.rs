//! The commands that make one connection's state another's.
//!
//! Values are written so that they mean the same under any `sql_mode` and any client charset: numbers and
//! plain words bare, ASCII without quote or backslash in single quotes, everything else in hexadecimal.

use std::borrow::Cow;

use mysql_wire::Command;
use sql_class::Dialect;

use crate::variables::{
    CHARACTER_SET_CLIENT, CHARACTER_SET_CONNECTION, CHARACTER_SET_RESULTS, CHARSETS, COLLATION_CONNECTION,
    DEFAULT, SQL_MODE, belongs, is_word,
};
use crate::{Baseline, PortableState};

/// The cost of what cannot be done: a connection that has a schema cannot be made to have none.
pub const CANNOT: u32 = u32::MAX;

/// What one more command weighs in [`cost`], against one more variable in a `SET`.
const COMMAND_COST: u32 = 16;

/// Ends the warnings of the statement before. It has to use a table: MariaDB keeps them otherwise (tested on
/// both).
const CLEAR_DIAGNOSTICS: &str = "DO (SELECT 1 FROM (SELECT 1) AS t)";

/// Payloads of the commands that make a connection which has `have` one that has `want`; each is answered by
/// one OK. None where the two are equal. `baseline` is the connection's. COM_QUERY comes without query
/// attributes.
///
/// The connection must not be in a transaction: `autocommit=1` would commit it.
#[must_use]
pub fn rebuild(want: &PortableState, have: &PortableState, baseline: &Baseline) -> Vec<Vec<u8>> {
    let mut commands = Vec::new();
    if have.has_diagnostics() {
        commands.push(query(CLEAR_DIAGNOSTICS));
    }
    let mut have = Cow::Borrowed(have);
    let mut charset_is_ours = false;
    if want.schema() != have.schema() {
        let schema = want.schema().unwrap_or_default();
        if !schema.is_ascii() {
            // The server reads the name in the connection's charset, whatever that is.
            commands.push(query("SET character_set_client=utf8mb4"));
            charset_is_ours = true;
        }
        let mut init_db = vec![Command::INIT_DB.0];
        init_db.extend_from_slice(schema); // of no name where none is wanted: refused by every server
        commands.push(init_db);
        have.to_mut().set_schema(Some(schema));
    }
    if want.multi_statements() != have.multi_statements() {
        commands.push(vec![Command::SET_OPTION.0, u8::from(!want.multi_statements()), 0]);
    }
    let set = assignments(want, &have, baseline, charset_is_ours);
    if !set.text.is_empty() {
        commands.push(query(&format!("SET {}", set.text)));
    }
    commands
}

/// The command that sets these variables, in this order; none of them in `sql_mode`'s own words but the last.
pub(crate) fn set_variables<'v>(variables: impl Iterator<Item = (&'v [u8], &'v [u8])>) -> Vec<u8> {
    let mut set = Assignments::default();
    variables.for_each(|(name, value)| set.variable(name, value));
    query(&format!("SET {}", set.text))
}

/// There and back: the payloads of the commands after which every text means on a connection what it means
/// under some other state, and of those that make it again what it was, whatever has become of the first.
/// They do nothing else, so they may be sent in a transaction.
pub type Excursion = (Vec<Vec<u8>>, Vec<Vec<u8>>);

/// From `here` to where a text means what it means under `context`. None where there is no way back: to no
/// schema.
pub(crate) fn excursion(
    context: &PortableState,
    here: &PortableState,
    baseline: &Baseline,
) -> Option<Excursion> {
    let there = here.meaning_as(context)?;
    let from = |have, want| rebuild(want, have, baseline);
    Some((from(here, &there), from(&there, here)))
}

fn assignments(
    want: &PortableState,
    have: &PortableState,
    baseline: &Baseline,
    charset_too: bool,
) -> Assignments {
    let mut set = Assignments::default();
    let target = Charsets::of(want, baseline);
    if charset_too || target != Charsets::of(have, baseline) {
        set.charsets(&target);
    }
    let mut sql_mode = None;
    for name in names(want, have).filter(|name| !CHARSETS.contains(name)) {
        let wanted = want.variable(name).or_else(|| baseline.variable(name));
        let had = have.variable(name).or_else(|| baseline.variable(name));
        match (name, wanted.unwrap_or(DEFAULT)) {
            _ if wanted == had => {}
            (SQL_MODE, value) => sql_mode = Some(value),
            (name, value) => set.variable(name, value),
        }
    }
    if let Some(sql_mode) = sql_mode {
        set.variable(SQL_MODE, sql_mode); // last: nothing else is checked by its rules
    }
    set
}

/// The four variables of the charset; `None` is the charset's own collation, or not known.
#[derive(PartialEq, Eq)]
struct Charsets<'a> {
    client: Option<&'a [u8]>,
    results: Option<&'a [u8]>,
    connection: Option<&'a [u8]>,
    collation: Option<&'a [u8]>,
}

impl<'a> Charsets<'a> {
    fn of(carried: &'a PortableState, baseline: &'a Baseline) -> Self {
        let value = |name| carried.variable(name).or_else(|| baseline.variable(name));
        let set = carried.variable(CHARACTER_SET_CONNECTION);
        Self {
            client: value(CHARACTER_SET_CLIENT),
            results: value(CHARACTER_SET_RESULTS),
            connection: value(CHARACTER_SET_CONNECTION),
            // A charset that was set without a collation has its own, and not the login's.
            collation: match set {
                Some(_) => carried.variable(COLLATION_CONNECTION),
                None => value(COLLATION_CONNECTION),
            },
        }
    }
}

/// How far a connection is from what is wanted: the least is the best, 0 needs nothing, [`CANNOT`] will not
/// do. A guess that does not look at the baseline.
#[must_use]
pub fn cost(want: &PortableState, have: &PortableState) -> u32 {
    if want.schema().is_none() && have.schema().is_some() {
        return CANNOT;
    }
    let variables = names(want, have)
        .filter(|name| want.variable(name) != have.variable(name))
        .count() as u32;
    let mut cost = variables + COMMAND_COST * u32::from(variables > 0);
    if want.schema() != have.schema() {
        cost += COMMAND_COST;
    }
    if want.multi_statements() != have.multi_statements() {
        cost += COMMAND_COST;
    }
    if have.has_diagnostics() {
        cost += COMMAND_COST;
    }
    cost
}

/// The command to send in front of a statement that reads LAST_INSERT_ID() where its connection is not the
/// one that made it, or was not only this session's since. Also for 0: another session's id is none of its
/// business.
#[must_use]
pub fn prime_last_insert_id(id: u64) -> Vec<u8> {
    query(&format!("SET last_insert_id={id}"))
}

/// The command that has a connection tell its LAST_INSERT_ID(): by its OK, which is all that it changes; or
/// on MariaDB, where that may name another variable, by a row.
pub(crate) fn ask_last_insert_id(dialect: Dialect) -> Vec<u8> {
    query(match dialect.is_mariadb() {
        // No SELECT, which would count a row for FOUND_ROWS(). The LIMIT is for sessions that have set
        // `sql_select_limit`.
        true => "VALUES (LAST_INSERT_ID()) LIMIT 1",
        false => "SET last_insert_id=LAST_INSERT_ID()",
    })
}

/// The command that has a connection of MariaDB say in one row what a variable of its session is, and counts
/// no row.
#[must_use]
pub fn ask_value(name: &[u8]) -> Vec<u8> {
    query(&format!(
        "VALUES (@@session.{}) LIMIT 1",
        String::from_utf8_lossy(name)
    ))
}

/// The command that has a connection report what these variables are, and changes nothing. No SELECT, which
/// would count rows.
pub(crate) fn ask_values<'n>(names: impl Iterator<Item = &'n str>) -> Vec<u8> {
    let items: Vec<_> = names.map(|name| format!("{name}=@@{name}")).collect();
    query(&format!("SET {}", items.join(", ")))
}

/// The command to send after a [`rebuild`] of which an answer had warnings: they are not for the session to
/// see.
#[must_use]
pub fn clear_diagnostics() -> Vec<u8> {
    query(CLEAR_DIAGNOSTICS)
}

pub(crate) fn query(text: &str) -> Vec<u8> {
    let mut payload = vec![Command::QUERY.0];
    payload.extend_from_slice(text.as_bytes());
    payload
}

/// The names of both, each once.
fn names<'a>(want: &'a PortableState, have: &'a PortableState) -> impl Iterator<Item = &'a [u8]> {
    let wanted = want.variables().map(|(name, _)| name);
    let had = have.variables().map(|(name, _)| name);
    wanted.chain(had.filter(|name| want.variable(name).is_none()))
}

/// What follows `SET`.
#[derive(Default)]
struct Assignments {
    text: String,
}

impl Assignments {
    fn item(&mut self, item: &str) {
        if !self.text.is_empty() {
            self.text.push_str(", ");
        }
        self.text.push_str(item);
    }

    fn variable(&mut self, name: &[u8], value: &[u8]) {
        // Names come from the server. One that is no name would be a way to make us send any statement.
        if !is_word(name) {
            return;
        }
        let literal = match (name, value) {
            (CHARACTER_SET_RESULTS, b"") => "NULL".to_owned(),
            _ => literal(value),
        };
        self.item(&format!("{}={literal}", String::from_utf8_lossy(name)));
    }

    fn charsets(&mut self, charsets: &Charsets<'_>) {
        let collation = charsets.collation.filter(|collation| *collation != DEFAULT);
        if let Some(charset) = charsets.client
            && charsets.results == Some(charset)
            && charsets.connection == Some(charset)
            && !matches!(charset, b"" | DEFAULT)
            && collation.is_none_or(|collation| belongs(collation, charset))
        {
            let names = literal(charset);
            let collation = collation.map(|name| format!(" COLLATE {}", literal(name)));
            self.item(&format!("NAMES {names}{}", collation.unwrap_or_default()));
            return;
        }
        self.variable(CHARACTER_SET_CLIENT, charsets.client.unwrap_or(DEFAULT));
        self.variable(CHARACTER_SET_RESULTS, charsets.results.unwrap_or(DEFAULT));
        match collation {
            Some(collation) => self.variable(COLLATION_CONNECTION, collation),
            None => self.variable(CHARACTER_SET_CONNECTION, charsets.connection.unwrap_or(DEFAULT)),
        }
    }
}

/// A value as it is written behind `=`.
fn literal(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    if is_number(value) || matches!(value, b"ON" | b"OFF" | b"DEFAULT") {
        return text.into_owned();
    }
    if value
        .iter()
        .all(|b| matches!(b, b' '..=b'~') && !matches!(b, b'\'' | b'\\'))
    {
        return format!("'{text}'");
    }
    let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("_utf8mb4 0x{digits}")
}

fn is_number(value: &[u8]) -> bool {
    let unsigned = value.strip_prefix(b"-").unwrap_or(value);
    let mut parts = unsigned.splitn(2, |&byte| byte == b'.');
    let digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    parts.next().is_some_and(digits) && parts.next().is_none_or(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline() -> Baseline {
        let login = [
            ("autocommit", "ON"),
            ("character_set_client", "utf8mb4"),
            ("character_set_connection", "utf8mb4"),
            ("character_set_results", "utf8mb4"),
            ("collation_connection", "utf8mb4_unicode_ci"),
        ];
        let bytes = |text: &str| text.as_bytes().to_vec();
        login
            .iter()
            .map(|(name, value)| (bytes(name), bytes(value)))
            .collect()
    }

    fn carried(schema: Option<&str>, variables: &[(&str, &str)]) -> PortableState {
        let mut carried = PortableState::fresh(schema.map(str::as_bytes), false);
        for (name, value) in variables {
            carried.set(name.as_bytes(), value.as_bytes());
        }
        carried
    }

    /// The commands as text, with a `:` behind the command's byte where it is no query.
    fn commands(want: &PortableState, have: &PortableState) -> Vec<String> {
        let rebuilt = rebuild(want, have, &baseline());
        let text = |payload: &Vec<u8>| match Command(payload[0]) {
            Command::QUERY => String::from_utf8_lossy(&payload[1..]).into_owned(),
            command => format!("{}: {}", command.name(), payload[1..].escape_ascii()),
        };
        rebuilt.iter().map(text).collect()
    }

    #[test]
    fn nothing_is_sent_for_what_is_as_the_login_gave_it() {
        let want = carried(None, &[("autocommit", "ON")]);
        assert!(commands(&want, &carried(None, &[])).is_empty());
    }

    #[test]
    fn one_set_for_everything_and_the_mode_last() {
        let want = carried(
            Some("shop"),
            &[
                ("sql_mode", "ANSI_QUOTES"),
                ("sql_select_limit", "7"),
                ("time_zone", "+01:00"),
                ("autocommit", "OFF"),
            ],
        );
        assert_eq!(
            commands(&want, &carried(None, &[])),
            [
                "init_db: shop",
                "SET autocommit=OFF, sql_select_limit=7, time_zone='+01:00', sql_mode='ANSI_QUOTES'"
            ]
        );
    }

    #[test]
    fn what_is_set_no_more_goes_back_to_the_login_or_to_its_default() {
        let have = carried(None, &[("autocommit", "OFF"), ("time_zone", "UTC")]);
        assert_eq!(
            commands(&carried(None, &[]), &have),
            ["SET autocommit=ON, time_zone=DEFAULT"]
        );
    }

    #[test]
    fn values_mean_the_same_under_any_mode() {
        let want = carried(
            None,
            &[
                ("a", "O'Neill"),
                ("b", "c:\\x"),
                ("c", "é"),
                ("d", "-1.5"),
                ("e", "1.2.3"),
                ("f", ""),
            ],
        );
        assert_eq!(
            commands(&want, &carried(None, &[])),
            [
                "SET a=_utf8mb4 0x4f274e65696c6c, b=_utf8mb4 0x633a5c78, c=_utf8mb4 0xc3a9, d=-1.5, e='1.2.3', f=''"
            ]
        );
        let bad_name = carried(None, &[("a=1, b", "2")]);
        assert!(commands(&bad_name, &carried(None, &[])).is_empty());
    }

    #[test]
    fn charsets_are_set_at_once_where_they_agree() {
        let latin1 = [
            ("character_set_client", "latin1"),
            ("character_set_connection", "latin1"),
            ("character_set_results", "latin1"),
        ];
        let plain = carried(None, &latin1);
        assert_eq!(commands(&plain, &carried(None, &[])), ["SET NAMES 'latin1'"]);
        let mut collated = plain.clone();
        collated.set(b"collation_connection", b"latin1_bin");
        assert_eq!(
            commands(&collated, &plain),
            ["SET NAMES 'latin1' COLLATE 'latin1_bin'"]
        );
        let login = "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_unicode_ci'";
        assert_eq!(commands(&carried(None, &[]), &collated), [login]);
        let as_they_come = carried(None, &[("character_set_results", "")]);
        assert_eq!(
            commands(&as_they_come, &carried(None, &[])),
            [
                "SET character_set_client='utf8mb4', character_set_results=NULL, collation_connection='utf8mb4_unicode_ci'"
            ]
        );
    }

    #[test]
    fn a_schema_beyond_ascii_is_named_in_a_charset_that_is_known() {
        let have = carried(None, &[("character_set_client", "gbk")]);
        let all = commands(&carried(Some("é"), &[]), &have);
        assert_eq!(all[0], "SET character_set_client=utf8mb4");
        assert_eq!(all[1], "init_db: \\xc3\\xa9");
        assert!(all[2].contains("NAMES 'utf8mb4'"));
    }

    #[test]
    fn an_excursion_changes_what_gives_meaning_and_nothing_else() {
        let context = carried(
            Some("old"),
            &[
                ("autocommit", "OFF"),
                ("sql_mode", "ANSI_QUOTES"),
                ("tx_read_only", "ON"),
            ],
        );
        let here = carried(Some("new"), &[("character_set_results", "latin1")]);
        let text = |commands: Vec<Vec<u8>>| {
            let of = |payload: &Vec<u8>| String::from_utf8_lossy(&payload[1..]).into_owned();
            commands.iter().map(of).collect::<Vec<_>>()
        };
        let (there, back) = excursion(&context, &here, &baseline()).unwrap();
        assert_eq!(text(there), ["old", "SET sql_mode='ANSI_QUOTES'"]);
        assert_eq!(text(back), ["new", "SET sql_mode=DEFAULT"]);
        // What was prepared without a schema names everything in full.
        let (context, here) = (carried(None, &[]), carried(Some("new"), &[("autocommit", "OFF")]));
        let nothing = Some((Vec::new(), Vec::new()));
        assert_eq!(excursion(&context, &here, &baseline()), nothing);
        assert_eq!(excursion(&here, &context, &baseline()), None);
        let context = carried(None, &[("character_set_client", "latin1")]);
        assert!(excursion(&context, &here, &baseline()).is_some());
    }

    #[test]
    fn a_schema_cannot_be_taken_away() {
        let (want, have) = (carried(None, &[]), carried(Some("shop"), &[]));
        assert_eq!(cost(&want, &have), CANNOT);
        assert_eq!(commands(&want, &have), ["init_db: "]);
        assert_eq!(cost(&have, &have), 0);
        assert!(cost(&have, &want) > 0);
    }

    #[test]
    fn somebody_elses_warnings_go_first() {
        let have = carried(None, &[]).with_diagnostics();
        assert_eq!(commands(&carried(None, &[]), &have), [CLEAR_DIAGNOSTICS]);
    }
}
