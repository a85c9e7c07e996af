//! The little that a statement's text says and its [`Facts`](crate::Facts) do not, asked for where it
//! matters.
//!
//! These look at words, not at tokens: they are asked about texts of which little is known, and each says
//! what it takes an unclear text for.

mod collation;
mod numbers;
mod processes;
mod row_count;
pub mod savepoint;

use serde::{Deserialize, Serialize};

pub use self::collation::Collation;
pub use self::numbers::{elsewhere, in_text, is_near};
pub use self::processes::{Kill, kill, shows_processes};
pub use self::row_count::{RowCount, may_count_rows};
pub use crate::words::is_one_of;
use crate::words::plain_words;
use crate::{Effects, Syntax, TableName};

/// A longer text is not looked into.
const LOOK_MAX: usize = 4096;

/// Whether the text may set one of the variables that arm trackers.
#[must_use]
pub fn may_set_trackers(text: &[u8]) -> bool {
    text.len() > LOOK_MAX || contains(&text.to_ascii_lowercase(), b"session_track")
}

/// Whether a statement that names LAST_INSERT_ID() says by `LAST_INSERT_ID(expr)` what it is to be, and
/// nothing else: then it does not read what it was.
#[must_use]
pub fn only_sets_insert_id(text: &[u8], syntax: Syntax) -> bool {
    if text.is_empty() || text.len() > LOOK_MAX {
        return false;
    }
    let lower = text.to_ascii_lowercase();
    let others: [&[u8]; 2] = [b"@@", b"variables"];
    find_all(&lower, b"last_insert_id").count() == 1
        && !others.iter().any(|other| contains(&lower, other))
        && crate::calls(text, syntax, "LAST_INSERT_ID").is_empty()
}

/// Whether reads that have no table have no other source of rows either, as SHOW has.
#[must_use]
pub fn is_computed(text: &[u8]) -> bool {
    let has = |known: &[&str]| {
        let mut words = text.split(|byte| !byte.is_ascii_alphanumeric());
        words.any(|word| is_one_of(word, known))
    };
    let first = text.trim_ascii_start().first().map(u8::to_ascii_lowercase);
    let computes = matches!(first, Some(b's' | b'd' | b'v')) && has(&["select", "do", "values"]);
    computes && !has(&["show", "desc", "describe", "explain"])
}

/// Whether there may be a query within, wherever the word is.
#[must_use]
pub fn has_select(text: &[u8]) -> bool {
    has(text, b"select")
}

/// Whether a statement certainly uses a table, as MariaDB means it: it ends the warnings of those before.
#[must_use]
pub fn uses_tables(text: &[u8], syntax: Syntax) -> bool {
    let is_dual = |table: &TableName| table.schema.is_none() && table.name.eq_ignore_ascii_case("dual");
    !crate::tables(text, syntax).iter().all(is_dual)
}

/// The variables that the text sets and that nothing reports. `None` where they are not to be told, or belong
/// together with others.
#[must_use]
pub fn unreported_variables(text: &[u8], syntax: Syntax) -> Option<Vec<String>> {
    const MOST: usize = 16;
    let found = crate::set_targets_unseen(text, syntax)?;
    let is_plain = |name: &String| {
        let is_of_charset = name.starts_with("character_set") || name.starts_with("collation");
        let is_word = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_word && !is_of_charset && !name.is_empty()
    };
    let names: Vec<String> = found
        .iter()
        .filter_map(|name| Some(str::from_utf8(name).ok()?.to_owned()))
        .collect();
    let are_known = !names.is_empty() && names.len() == found.len() && names.len() <= MOST;
    (are_known && names.iter().all(is_plain)).then_some(names)
}

/// What a `HANDLER` statement does to the tables that are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandlerStep {
    /// None, or reads.
    Other,
    Opens,
    Closes,
    /// Not to be told from its text.
    Unclear,
}

/// `HANDLER name OPEN …`, `HANDLER name CLOSE`, `HANDLER name READ …`, in plain words.
#[must_use]
pub fn handler_step(effects: Effects, statements: u32, text: &[u8]) -> HandlerStep {
    if !effects.contains(Effects::HANDLER) {
        return HandlerStep::Other;
    }
    let mut words = text
        .split(|byte| byte.is_ascii_whitespace() || *byte == b';')
        .filter(|word| !word.is_empty());
    let is = |word: Option<&[u8]>, wanted: &[u8]| word.is_some_and(|word| word.eq_ignore_ascii_case(wanted));
    let is_plain = statements == 1 && is(words.next(), b"HANDLER");
    let (_, verb) = (words.next(), words.next());
    match is_plain {
        true if is(verb, b"OPEN") => HandlerStep::Opens,
        true if is(verb, b"CLOSE") => HandlerStep::Closes,
        true if is(verb, b"READ") => HandlerStep::Other,
        _ => HandlerStep::Unclear,
    }
}

/// Whether the text is one SELECT that calls nothing, however the rest of it is to be read: a server may see
/// neither a second statement nor a call where these two bytes are not, which are no part of a longer
/// character in any charset of clients.
#[must_use]
pub fn is_one_select(text: &[u8]) -> bool {
    text.len() <= LOOK_MAX
        && keyword(&text.to_ascii_lowercase(), b"select").is_some()
        && !text.iter().any(|byte| matches!(byte, b';' | b'('))
}

/// Whether there is one `SET` in the text and no more.
#[must_use]
pub fn sets_once(text: &[u8]) -> bool {
    text.len() <= LOOK_MAX && find_all(&text.to_ascii_lowercase(), b"set").count() == 1
}

/// Whether the text begins with this word, or a longer one, with nothing but blanks before it.
#[must_use]
pub fn begins_with(text: &[u8], word: &str) -> bool {
    let start = text.trim_ascii_start().get(..word.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether the text is `SHOW WARNINGS` as such, without a limit or a count.
#[must_use]
pub fn shows_warnings(text: &[u8]) -> bool {
    is_plainly(text, "SHOW WARNINGS")
}

/// Whether the text is these words as such, with nothing but blanks between them, and at most a semicolon
/// behind them. `known`: with one blank between two words.
#[must_use]
pub fn is_plainly(text: &[u8], known: &str) -> bool {
    let text = text.trim_ascii();
    let mut words = plain_words(text.strip_suffix(b";").unwrap_or(text));
    let mut expected = known.split(' ');
    expected.all(|known| words.next().is_some_and(|word| is_one_of(word, &[known]))) && words.next().is_none()
}

/// Whether the text begins as `CREATE DATABASE` or `DROP DATABASE` does, with nothing but blanks between the
/// words. False where that is not clear.
#[must_use]
pub fn makes_or_drops_database(text: &[u8]) -> bool {
    let mut words = plain_words(text);
    let mut is = |known: &[&str]| words.next().is_some_and(|word| is_one_of(word, known));
    is(&["CREATE", "DROP"]) && is(&["DATABASE", "SCHEMA"])
}

/// Whether the text is `SELECT RELEASE_ALL_LOCKS()` or `DO RELEASE_ALL_LOCKS()` as such. Within anything
/// else the function need not be called: `SELECT IF(0, RELEASE_ALL_LOCKS(), 1)`.
#[must_use]
pub fn releases_all_locks(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let mut words = plain_words(text.strip_suffix(b";").unwrap_or(text));
    let mut is = |known: &[&str]| words.next().is_some_and(|word| is_one_of(word, known));
    is(&["SELECT", "DO"]) && is(&["RELEASE_ALL_LOCKS()"]) && words.next().is_none()
}

/// Whether the text has this part, in whatever case.
#[must_use]
pub fn has(text: &[u8], part: &[u8]) -> bool {
    let mut windows = text.windows(part.len());
    windows.any(|window| window[0].eq_ignore_ascii_case(&part[0]) && window.eq_ignore_ascii_case(part))
}

/// What follows `word` and at least one space or quote.
fn keyword<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let rest = text.trim_ascii_start().strip_prefix(word)?;
    matches!(rest.first(), Some(b' ' | b'\t' | b'\r' | b'\n' | b'\'' | b'"')).then_some(rest)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    find_all(text, word).next().is_some()
}

fn find_all<'a>(text: &'a [u8], word: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    text.windows(word.len())
        .enumerate()
        .filter(move |(_, window)| *window == word)
        .map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_in_any_case() {
        for text in [
            "START TRANSACTION",
            " start\n Transaction ; ",
            "START TRANSACTION;",
        ] {
            assert!(is_plainly(text.as_bytes(), "START TRANSACTION"), "{text}");
        }
        for text in [
            "",
            "START",
            "START TRANSACTION READ ONLY",
            "START TRANSACTION; SELECT 1",
            "START /* a */ TRANSACTION",
        ] {
            assert!(!is_plainly(text.as_bytes(), "START TRANSACTION"), "{text}");
        }
    }

    #[test]
    fn databases_that_are_made_or_dropped() {
        for text in ["CREATE DATABASE d", "  drop\tschema IF EXISTS d"] {
            assert!(makes_or_drops_database(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "CREATE",
            "CREATE TABLE database (a INT)",
            "ALTER DATABASE d",
            "DROP/**/DATABASE d",
        ] {
            assert!(!makes_or_drops_database(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn tables_that_are_certainly_used() {
        let uses = |text: &str| uses_tables(text.as_bytes(), Syntax::default());
        for text in [
            "SELECT 1 FROM t",
            "DO (SELECT MAX(a) FROM b.t)",
            "SELECT 1 FROM a.dual",
            "CHECKSUM TABLE t",
        ] {
            assert!(uses(text), "{text}");
        }
        for text in [
            "SELECT 1",
            "SELECT 1 FROM DUAL",
            "SELECT EXTRACT(YEAR FROM '2020-01-01'), TRIM('a' FROM UPPER('ab'))",
            "SELECT (SELECT 1) -- FROM t",
            "DO 1",
            "",
        ] {
            assert!(!uses(text), "{text}");
        }
    }

    #[test]
    fn trackers_are_seen_in_any_case() {
        assert!(may_set_trackers(b"SET @@Session_Track_Schema=0"));
        assert!(!may_set_trackers(b"SET sql_mode=''"));
    }
}
