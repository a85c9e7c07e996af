//! Which commands are sent, and why others are not.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use mysql_wire::Command;
use regex::bytes::Regex;
use sql_class::{Class, Effects, Facts, Syntax};

use crate::record::{CommandRecord, Flags};
use crate::secrets::without_comments;

/// What may be sent beyond what harms nobody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Permitted {
    /// Only what reads, and what a session sets for itself.
    pub read_only: bool,
    /// Also what is left out for what it does to the server: `KILL`, `SET GLOBAL`, accounts, replication,
    /// `INTO OUTFILE`.
    pub all: bool,
}

/// Why a command is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// Its text or its parameters were not written, since they may have a secret.
    Withheld,
    /// Its text or its parameters were not written, since they are too long.
    TooLong,
    /// Its statement was prepared before the capture, or its prepare was not sent.
    NotPrepared,
    /// The gateway has refused it, or it was for the gateway.
    Gateway,
    /// It loads a file of the client's, which was not captured.
    LocalFile,
    /// It ends sessions or the server, or changes it for others: `KILL`, `SHUTDOWN`, `SET GLOBAL`, `FLUSH`.
    Server,
    /// It is about accounts.
    Account,
    /// It is about replication.
    Replication,
    /// It writes or reads a file of the server's.
    ServerFile,
    /// It writes, and only reads are asked for.
    Writes,
    /// It closes a statement, and none is to be closed.
    StaysPrepared,
    /// It is not among what was chosen.
    NotChosen,
    /// There was no login.
    NoLogin,
}

impl LeftOut {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Withheld => "kept as a digest alone: it may have a secret",
            Self::TooLong => "too long to be captured",
            Self::NotPrepared => "its statement was prepared before the capture, or not at all",
            Self::Gateway => "refused by the gateway, or meant for it",
            Self::LocalFile => "loads a file of the client's",
            Self::Server => "KILL, SHUTDOWN, SET GLOBAL and their like (--all sends them)",
            Self::Account => "about accounts (--all sends them)",
            Self::Replication => "about replication (--all sends them)",
            Self::ServerFile => "INTO OUTFILE and other files of the server (--all sends them)",
            Self::Writes => "writes, and --read-only",
            Self::StaysPrepared => "closes a prepared statement (--close never)",
            Self::NotChosen => "not chosen (--only-user, --only-schema, --only-digest, --after, --until)",
            Self::NoLogin => "no login",
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.words())
    }
}

/// Judges the commands of sessions, one after the other.
pub(crate) struct Judge {
    permitted: Permitted,
    /// Whether executions of a prepared statement may be sent.
    statements: HashMap<(u32, u32), Result<(), LeftOut>>,
    /// The same of those that were prepared by text, by their name.
    named: HashMap<(u32, Vec<u8>), Result<(), LeftOut>>,
}

impl Judge {
    pub(crate) fn new(permitted: Permitted) -> Self {
        Self {
            permitted,
            statements: HashMap::new(),
            named: HashMap::new(),
        }
    }

    /// Whether this command may be sent.
    pub(crate) fn may_be_sent(&mut self, record: &CommandRecord) -> Result<(), LeftOut> {
        let verdict = self.verdict(record);
        let place = (record.session, record.statement);
        match Command(record.command) {
            Command::STMT_PREPARE if record.error == 0 => {
                self.statements.insert(place, verdict);
            }
            Command::STMT_CLOSE => drop(self.statements.remove(&place)),
            Command::QUERY if record.error == 0 => {
                if let Some((name, _)) = prepares(&record.body) {
                    self.named.insert((record.session, name), verdict);
                }
            }
            _ => {}
        }
        verdict
    }

    fn verdict(&self, record: &CommandRecord) -> Result<(), LeftOut> {
        if record.flags.has(Flags::GATEWAY) && record.error != 0 {
            return Err(LeftOut::Gateway);
        }
        if record.flags.has(Flags::CUT) {
            return Err(LeftOut::TooLong);
        }
        match Command(record.command) {
            Command::QUERY | Command::STMT_PREPARE => {
                if record.flags.has(Flags::WITHHELD) {
                    return Err(LeftOut::Withheld);
                }
                if let Some(name) = executes(&record.body)
                    && let Some(Err(why)) = self.named.get(&(record.session, name))
                {
                    return Err(*why);
                }
                self.text(&record.body)
            }
            Command::STMT_EXECUTE
            | Command::STMT_BULK_EXECUTE
            | Command::STMT_SEND_LONG_DATA
            | Command::STMT_FETCH
            | Command::STMT_RESET
            | Command::STMT_CLOSE => {
                let prepared = self.statements.get(&(record.session, record.statement));
                prepared.copied().unwrap_or(Err(LeftOut::NotPrepared))?;
                match record.flags.has(Flags::WITHHELD) {
                    true => Err(LeftOut::Withheld),
                    false => Ok(()),
                }
            }
            // Its new user is known, and logs in anew.
            Command::CHANGE_USER
            | Command::QUIT
            | Command::PING
            | Command::INIT_DB
            | Command::RESET_CONNECTION
            | Command::STATISTICS
            | Command::SET_OPTION
            | Command::FIELD_LIST => Ok(()),
            _ => Err(LeftOut::Server),
        }
    }

    fn text(&self, text: &[u8]) -> Result<(), LeftOut> {
        let facts = sql_class::facts(text, Syntax::default());
        if facts.effects.contains(Effects::GATEWAY) {
            return Err(LeftOut::Gateway);
        }
        let has = |word: &[u8]| {
            text.windows(word.len())
                .any(|part| part.eq_ignore_ascii_case(word))
        };
        if facts.effects.contains(Effects::LOADS_DATA) && has(b"LOCAL") {
            return Err(LeftOut::LocalFile);
        }
        // What a text has as its own text is judged as that would be.
        if let Some((_, Some(inner))) = prepares(text) {
            return self.text(&inner);
        }
        if let Some(given) = found(&IMMEDIATE, text) {
            return literal(&given[0]).map_or(Err(LeftOut::Server), |inner| self.text(&inner));
        }
        if self.permitted.read_only && !only_reads(&facts) {
            return Err(LeftOut::Writes);
        }
        match self.permitted.all {
            true => Ok(()),
            false => harms_nobody(&facts, text),
        }
    }
}

static PREPARE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?is-u)^\W*prepare\s+(\S+)\s+from\s*(.*)$").ok());
static IMMEDIATE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?is-u)^\W*execute\s+immediate\b\s*(.*)$").ok());
static EXECUTE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?is-u)^\W*execute\s+([^\s;]+)").ok());

/// What the groups of a pattern have found, in the text or in what is left of it without comments.
fn found(pattern: &LazyLock<Option<Regex>>, text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let pattern = pattern.as_ref()?;
    let plain = without_comments(text);
    let captures = pattern.captures(text);
    let captures = captures.or_else(|| pattern.captures(plain.as_ref()?))?;
    let groups = captures.iter().skip(1).flatten();
    Some(groups.map(|group| group.as_bytes().to_vec()).collect())
}

/// The name that a text prepares a statement by, and the statement's own text where it is a literal.
fn prepares(text: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let mut groups = found(&PREPARE, text)?.into_iter();
    Some((unquoted(&groups.next()?), literal(&groups.next()?)))
}

fn executes(text: &[u8]) -> Option<Vec<u8>> {
    found(&EXECUTE, text)?.first().map(|name| unquoted(name))
}

/// A name, the same however it is written.
fn unquoted(name: &[u8]) -> Vec<u8> {
    let inner = name.strip_prefix(b"`").and_then(|name| name.strip_suffix(b"`"));
    inner.unwrap_or(name).to_ascii_lowercase()
}

/// What a text means that is one quoted literal and nothing else.
fn literal(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii();
    let text = text.strip_suffix(b";").unwrap_or(text).trim_ascii_end();
    let (quote, rest) = text.split_first().filter(|(quote, _)| b"'\"".contains(quote))?;
    let mut bytes = rest.iter();
    let mut meant = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => meant.push(*bytes.next()?),
            byte if byte == quote => match bytes.next() {
                None => return Some(meant),
                Some(again) if again == quote => meant.push(*quote),
                Some(_) => return None,
            },
            byte => meant.push(*byte),
        }
    }
    None
}

fn only_reads(facts: &Facts) -> bool {
    let reads = matches!(
        facts.class,
        Class::Read
            | Class::Session
            | Class::LockingRead
            | Class::Begin
            | Class::BeginReadOnly
            | Class::Transaction
    );
    reads && !facts.effects.contains(Effects::SERVER_FILE)
}

fn harms_nobody(facts: &Facts, text: &[u8]) -> Result<(), LeftOut> {
    if facts.effects.intersects(Effects::KILL.with(Effects::SETS_GLOBAL)) {
        return Err(LeftOut::Server);
    }
    if facts.effects.contains(Effects::CHANGES_ACCOUNT) {
        return Err(LeftOut::Account);
    }
    if facts.effects.contains(Effects::SERVER_FILE) {
        return Err(LeftOut::ServerFile);
    }
    let has = |word: &[u8]| {
        text.windows(word.len())
            .any(|part| part.eq_ignore_ascii_case(word))
    };
    let begins = |word: &str| {
        let text = text.trim_ascii_start();
        text.get(..word.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(word.as_bytes()))
    };
    let ends_or_changes = ["SHUTDOWN", "RESTART", "CLONE", "INSTALL", "UNINSTALL"];
    if ends_or_changes.into_iter().any(begins) {
        return Err(LeftOut::Server);
    }
    if facts.class != Class::Administration {
        return Ok(());
    }
    let asks = ["SHOW", "CHECKSUM", "EXPLAIN", "DESC", "HELP", "CHECK", "ANALYZE"];
    if asks.into_iter().any(begins) && facts.statements == 1 {
        return Ok(());
    }
    let of_replication = [
        &b"SLAVE"[..],
        b"REPLICA",
        b"MASTER",
        b"BINLOG",
        b"BINARY LOG",
        b"REPLICATION",
    ];
    if of_replication.into_iter().any(has) {
        return Err(LeftOut::Replication);
    }
    match begins("GRANT") || begins("REVOKE") || has(b"USER") || has(b"ROLE") {
        true => Err(LeftOut::Account),
        false => Err(LeftOut::Server),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str, permitted: Permitted) -> Result<(), LeftOut> {
        let record = CommandRecord {
            command: Command::QUERY.0,
            body: text.as_bytes().to_vec(),
            ..CommandRecord::default()
        };
        Judge::new(permitted).may_be_sent(&record)
    }

    #[test]
    fn what_would_harm_others_is_left_out() {
        for (text, why) in [
            ("KILL 5", LeftOut::Server),
            ("KILL QUERY 5", LeftOut::Server),
            ("SHUTDOWN", LeftOut::Server),
            ("RESTART", LeftOut::Server),
            ("SET GLOBAL max_connections = 1", LeftOut::Server),
            ("SET PERSIST max_connections = 1", LeftOut::Server),
            ("SET @@global.read_only = 1", LeftOut::Server),
            ("FLUSH TABLES", LeftOut::Server),
            ("DROP USER a", LeftOut::Account),
            ("GRANT ALL ON *.* TO a", LeftOut::Account),
            ("REVOKE ALL ON *.* FROM a", LeftOut::Account),
            ("STOP SLAVE", LeftOut::Replication),
            ("STOP REPLICA", LeftOut::Replication),
            ("RESET MASTER", LeftOut::Replication),
            ("PURGE BINARY LOGS TO 'x'", LeftOut::Replication),
            ("SELECT 1 INTO OUTFILE '/tmp/x'", LeftOut::ServerFile),
            ("LOAD DATA LOCAL INFILE 'x' INTO TABLE t", LeftOut::LocalFile),
            ("FOREBAY SHOW PINS", LeftOut::Gateway),
            ("PREPARE s FROM 'KILL 5'", LeftOut::Server),
            (
                "prepare s from \"SET GLOBAL max_connections = 1\";",
                LeftOut::Server,
            ),
            ("PREPARE s /* x */ FROM 'SHUT\\DOWN'", LeftOut::Server),
            ("/* x */ PREPARE `s` FROM 'DROP USER ''a'''", LeftOut::Account),
            ("EXECUTE IMMEDIATE 'KILL 5'", LeftOut::Server),
            (
                "EXECUTE /* x */ IMMEDIATE 'SELECT 1 INTO OUTFILE ''/x'''",
                LeftOut::ServerFile,
            ),
            ("EXECUTE IMMEDIATE CONCAT('KILL', ' 5')", LeftOut::Server),
            ("EXECUTE IMMEDIATE 'KI' 'LL 5'", LeftOut::Server),
        ] {
            assert_eq!(verdict(text, Permitted::default()), Err(why), "{text}");
        }
        let all = Permitted {
            all: true,
            ..Permitted::default()
        };
        assert_eq!(verdict("SET GLOBAL max_connections = 1", all), Ok(()));
    }

    #[test]
    fn what_applications_say_is_sent() {
        for text in [
            "SELECT 1",
            "INSERT INTO t VALUES (1)",
            "BEGIN",
            "COMMIT",
            "SET NAMES utf8mb4",
            "SHOW TABLES",
            "CREATE TABLE t (a INT)",
            "CALL p()",
            "SHOW PROCESSLIST",
            "LOCK TABLES t READ",
            "USE d",
            "PREPARE s FROM 'SELECT 1'",
            "PREPARE s FROM @a",
            "EXECUTE s USING @a",
            "EXECUTE IMMEDIATE 'SELECT 1'",
        ] {
            assert_eq!(verdict(text, Permitted::default()), Ok(()), "{text}");
        }
    }

    #[test]
    fn read_only_leaves_writes_out() {
        let read_only = Permitted {
            read_only: true,
            ..Permitted::default()
        };
        for text in ["INSERT INTO t VALUES (1)", "CREATE TABLE t (a INT)", "CALL p()"] {
            assert_eq!(verdict(text, read_only), Err(LeftOut::Writes), "{text}");
        }
        for text in [
            "SELECT 1",
            "BEGIN",
            "COMMIT",
            "SET NAMES utf8mb4",
            "SELECT 1 FROM t FOR UPDATE",
        ] {
            assert_eq!(verdict(text, read_only), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_statement_that_was_not_prepared_by_text_is_not_executed() {
        let mut judge = Judge::new(Permitted::default());
        let mut say = |session, text: &str| {
            judge.may_be_sent(&CommandRecord {
                session,
                command: Command::QUERY.0,
                body: text.as_bytes().to_vec(),
                ..CommandRecord::default()
            })
        };
        assert_eq!(say(1, "PREPARE s FROM 'INSERT INTO t VALUES (1)'"), Ok(()));
        assert_eq!(say(1, "PREPARE S FROM 'KILL 5'"), Err(LeftOut::Server));
        assert_eq!(say(1, "EXECUTE `s`"), Err(LeftOut::Server), "not the one before");
        assert_eq!(say(2, "EXECUTE s"), Ok(()), "another session's");
        assert_eq!(say(1, "PREPARE s FROM 'SELECT 1'"), Ok(()));
        assert_eq!(say(1, "EXECUTE s;"), Ok(()));
    }

    #[test]
    fn executions_follow_their_statement() {
        let mut judge = Judge::new(Permitted::default());
        let mut prepare = CommandRecord {
            command: Command::STMT_PREPARE.0,
            statement: 7,
            body: b"SELECT ?".to_vec(),
            ..CommandRecord::default()
        };
        let execution = CommandRecord {
            command: Command::STMT_EXECUTE.0,
            statement: 7,
            ..CommandRecord::default()
        };
        assert_eq!(judge.may_be_sent(&execution), Err(LeftOut::NotPrepared));
        assert_eq!(judge.may_be_sent(&prepare), Ok(()));
        assert_eq!(judge.may_be_sent(&execution), Ok(()));
        prepare.body = b"SET GLOBAL max_connections = ?".to_vec();
        assert_eq!(judge.may_be_sent(&prepare), Err(LeftOut::Server));
        assert_eq!(judge.may_be_sent(&execution), Err(LeftOut::Server));
    }
}
