//! Which commands are sent, and why others are not.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::LazyLock;

use mysql_wire::Command;
use regex::bytes::Regex;
use sql_class::text::has;
use sql_class::{Class, Dialect, Effects, Facts, Literal, Syntax, literals};

use crate::record::{CommandRecord, Flags};
use crate::secrets::without_comments;
use crate::volatile::asks_for_time;
use crate::words::{begins_with, is_alone, without_backticks, without_comments_in_front, without_semicolon};

/// What may be sent beyond what harms nobody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Permitted {
    /// Only what surely reads, and what a session sets for itself.
    pub read_only: bool,
    /// Also what is left out for what it does to the server: `KILL`, `SET GLOBAL`, accounts, replication,
    /// `INTO OUTFILE`.
    pub all: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// Its text or its parameters were not written, since they may have a secret.
    Withheld,
    /// Its text or its parameters were not written, since they are too long.
    TooLong,
    /// Its statement was prepared before the capture, or its prepare was not sent.
    NotPrepared,
    /// Parameters of it that came before it in parts were not sent, or not all of them.
    PartsMissing,
    /// The gateway has refused it, or ended its session before a server had it, or it was for the gateway.
    Gateway,
    /// The statement loads a file of the client's that is not in the capture.
    LocalFile,
    /// It ends sessions or the server, or changes it for others: `KILL`, `SHUTDOWN`, `SET GLOBAL`, `FLUSH`.
    Server,
    Account,
    Replication,
    /// It writes or reads a file of the server's.
    ServerFile,
    /// The statement writes, or may, and only reads are asked for.
    Writes,
    /// It closes a statement, and none is to be closed.
    StaysPrepared,
    /// It is not among what was chosen.
    NotChosen,
    NoLogin,
    /// It was sent before the replayer was killed, and nobody knows what became of it.
    FateUnknown,
    /// Its transaction was open when the replayer was killed.
    Undone,
    /// Before it its session had set something that cannot be set again.
    SettingsLost,
    /// It asks about statements of before, which were executed on another connection.
    NotKnown,
    /// Commands behind the failure of their session, a fault of this program.
    SessionFailed,
}

impl LeftOut {
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Withheld => "kept as a digest alone: it may have a secret",
            Self::TooLong => "too long to be captured",
            Self::NotPrepared => "its statement was prepared before the capture, or not at all",
            Self::PartsMissing => "its parameters, or parts of them, were not sent",
            Self::Gateway => "refused by the gateway, or with its session ended there, or meant for it",
            Self::LocalFile => "loads a file of the client's that is not in the capture (--load-data)",
            Self::Server => "KILL, SHUTDOWN, SET GLOBAL and their like (--all sends them)",
            Self::Account => "about accounts (--all sends them)",
            Self::Replication => "about replication (--all sends them)",
            Self::ServerFile => "INTO OUTFILE and other files of the server (--all sends them)",
            Self::Writes => "writes, or calls a function that may, and --read-only",
            Self::StaysPrepared => "closes a prepared statement (--close never)",
            Self::NotChosen => "not chosen (--only-user, --only-schema, --only-digest, --after, --until)",
            Self::NoLogin => "no login",
            Self::FateUnknown => {
                "sent before the replayer was killed: nobody knows what became of it, so it is not sent again"
            }
            Self::Undone => "in a transaction that has gone with the replayer that was killed",
            Self::SettingsLost => {
                "behind a setting of its session's that cannot be made again (--resume, or its connection was lost)"
            }
            Self::NotKnown => {
                "asks by LAST_INSERT_ID() or its like about a connection that is gone (--resume, or lost)"
            }
            Self::SessionFailed => "behind the failure of its session, a fault of this program",
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
    sessions: HashMap<u32, Prepared>,
}

/// What a session has prepared.
#[derive(Default)]
struct Prepared {
    /// Whether executions of a prepared statement may be sent.
    statements: HashMap<u32, Result<(), LeftOut>>,
    /// The same of those that were prepared by text, by their name.
    named: HashMap<Vec<u8>, Result<(), LeftOut>>,
    /// Statements that miss parts of the parameters of their next execution.
    incomplete: HashSet<u32>,
}

impl Judge {
    pub(crate) fn new(permitted: Permitted) -> Self {
        Self {
            permitted,
            sessions: HashMap::new(),
        }
    }

    pub(crate) fn may_be_sent(&mut self, record: &CommandRecord) -> Result<(), LeftOut> {
        let mut verdict = self.verdict(record);
        let id = record.statement;
        let command = Command(record.command);
        if record.is_anew() && record.error == 0 {
            self.sessions.remove(&record.session);
            return verdict;
        }
        let of = self.sessions.entry(record.session).or_default();
        match command {
            Command::STMT_PREPARE if record.error == 0 => {
                of.statements.insert(id, verdict);
                of.incomplete.remove(&id);
            }
            Command::STMT_CLOSE => {
                of.statements.remove(&id);
                of.incomplete.remove(&id);
            }
            Command::STMT_RESET => drop(of.incomplete.remove(&id)),
            Command::STMT_SEND_LONG_DATA if verdict.is_err() => drop(of.incomplete.insert(id)),
            Command::STMT_SEND_LONG_DATA if of.incomplete.contains(&id) => {
                verdict = Err(LeftOut::PartsMissing);
            }
            Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE if of.incomplete.remove(&id) => {
                verdict = verdict.and(Err(LeftOut::PartsMissing));
            }
            Command::QUERY if record.error == 0 => {
                if let Some((name, _)) = prepares(&record.body) {
                    of.named.insert(name, verdict);
                }
            }
            _ => {}
        }
        verdict
    }

    /// The command was not sent, for another reason than the verdict.
    pub(crate) fn is_not_sent(&mut self, record: &CommandRecord) {
        if Command(record.command) == Command::STMT_SEND_LONG_DATA {
            let of = self.sessions.entry(record.session).or_default();
            of.incomplete.insert(record.statement);
        }
    }

    fn verdict(&self, record: &CommandRecord) -> Result<(), LeftOut> {
        let is_refused = record.flags.has(Flags::GATEWAY) && record.error != 0;
        // No server had a command with which its session was ended.
        if is_refused || record.flags.has(Flags::CLOSED) && Command(record.command) != Command::QUIT {
            return Err(LeftOut::Gateway);
        }
        let of = self.sessions.get(&record.session);
        if record.flags.has(Flags::CUT) {
            return Err(LeftOut::TooLong);
        }
        match Command(record.command) {
            Command::QUERY | Command::STMT_PREPARE => {
                if record.flags.has(Flags::WITHHELD) {
                    return Err(LeftOut::Withheld);
                }
                if let Some(name) = executes(&record.body)
                    && let Some(Err(why)) = of.and_then(|of| of.named.get(&name))
                {
                    return Err(*why);
                }
                self.text(&record.body, !record.files.is_empty())
            }
            Command::STMT_EXECUTE
            | Command::STMT_BULK_EXECUTE
            | Command::STMT_SEND_LONG_DATA
            | Command::STMT_FETCH
            | Command::STMT_RESET
            | Command::STMT_CLOSE => {
                let prepared = of.and_then(|of| of.statements.get(&record.statement));
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

    /// `has_files`: files of the client's are there, which it may load.
    fn text(&self, text: &[u8], has_files: bool) -> Result<(), LeftOut> {
        let facts = readings(text);
        let is = |effect| facts.iter().any(|facts| facts.effects.contains(effect));
        if is(Effects::GATEWAY) {
            return Err(LeftOut::Gateway);
        }
        if is(Effects::LOADS_DATA) && has(text, b"LOCAL") && !has_files {
            return Err(LeftOut::LocalFile);
        }
        // What a text has as its own text is judged as that would be.
        if let Some((_, Some(inner))) = prepares(text) {
            return self.text(&inner, has_files);
        }
        if let Some(given) = found(&IMMEDIATE, text) {
            let inner = literal(&given[0]).ok_or(LeftOut::Server)?;
            return self.text(&inner, has_files);
        }
        // A function that neither kind of server has of its own may write.
        let calls = facts
            .iter()
            .all(|facts| facts.effects.contains(Effects::UNKNOWN_FUNCTION));
        if self.permitted.read_only && (calls || !facts.iter().all(only_reads)) {
            return Err(LeftOut::Writes);
        }
        match self.permitted.all {
            true => Ok(()),
            false => facts
                .iter()
                .zip(syntaxes())
                .try_for_each(|(facts, syntax)| harms_nobody(facts, text, syntax)),
        }
    }
}

/// What a text is to MySQL, and what it is to MariaDB: nobody knows which of them the capture comes from.
pub(super) fn readings(text: &[u8]) -> [Facts; 2] {
    syntaxes().map(|syntax| sql_class::facts(text, syntax))
}

/// Those of MySQL and of MariaDB.
pub(super) fn syntaxes() -> [Syntax; 2] {
    const MARIADB: Dialect = Dialect::MariaDb { version: 120_000 };
    [Dialect::default(), MARIADB].map(|dialect| Syntax {
        dialect,
        ..Syntax::default()
    })
}

/// The greater class of both.
pub(super) fn class_of(text: &[u8]) -> Class {
    let [one, other] = readings(text);
    one.class.max(other.class)
}

/// Whether a text only sets something for its session, and the same on another connection at another time.
pub(super) fn sets_the_same_again(text: &[u8]) -> bool {
    const DIFFERS: [Effects; 13] = [
        Effects::SET_STATEMENT,
        Effects::NEXT_TRANSACTION,
        Effects::UNKNOWN_FUNCTION,
        Effects::SEQUENCE,
        Effects::TAKES_USER_LOCK,
        Effects::NEEDS_USER_LOCKS,
        Effects::READS_LAST_INSERT_ID,
        Effects::READS_ROW_COUNT,
        Effects::READS_FOUND_ROWS,
        Effects::READS_DIAGNOSTICS,
        Effects::READS_CONNECTION_ID,
        Effects::READS_SERVER,
        Effects::READS_LAST_GTID,
    ];
    static WORDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        const WORDS: &str = r"(?xi-u)\b(select|insert_id|gtid_next|rand_seed[12])\b
            | \b(sysdate|rand|random_bytes|uuid|uuid_short|uuid_v4|uuid_v7|sys_guid|release_all_locks)\s*\(";
        Regex::new(WORDS).ok()
    });
    let is_one = |facts: &Facts| facts.class == Class::Session && facts.statements == 1;
    let differs = |facts: &Facts| DIFFERS.iter().any(|effect| facts.effects.contains(*effect));
    let has_words = WORDS.as_ref().is_none_or(|words| words.is_match(text));
    let facts = readings(text);
    facts.iter().all(|facts| is_one(facts) && !differs(facts)) && !has_words && !asks_for_time(text)
}

/// Whether a text is `SET TRANSACTION`, which is over with the transaction that it was for.
pub(super) fn is_for_next_transaction(text: &[u8]) -> bool {
    static SET: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?i-u)^\W*set\s+transaction\b[^;]*;?\s*$").ok());
    found(&SET, text).is_some()
}

static PREPARE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?is-u)^\W*prepare\s+(\S+)\s+from\s*(.*)$").ok());
static IMMEDIATE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?is-u)^\W*execute\s+immediate\b\s*(.*)$").ok());
static EXECUTE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?is-u)^\W*execute\s+([^\s;]+)").ok());

/// What the groups of a pattern have found, in the text or in what is left of it without comments.
pub(super) fn found(pattern: &LazyLock<Option<Regex>>, text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let pattern = pattern.as_ref()?;
    let plain = without_comments(text);
    let captures = pattern.captures(text);
    let captures = captures.or_else(|| pattern.captures(plain.as_ref()?))?;
    let groups = captures.iter().skip(1).flatten();
    Some(groups.map(|group| group.as_bytes().to_vec()).collect())
}

/// The name that a text prepares a statement by, and the statement's own text where it is a literal.
pub(super) fn prepares(text: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let mut groups = found(&PREPARE, text)?.into_iter();
    Some((unquoted(&groups.next()?), literal(&groups.next()?)))
}

/// The name of the prepared statement that a text executes.
pub(super) fn executes(text: &[u8]) -> Option<Vec<u8>> {
    found(&EXECUTE, text)?.first().map(|name| unquoted(name))
}

/// A name, the same however it is written.
fn unquoted(name: &[u8]) -> Vec<u8> {
    without_backticks(name).to_ascii_lowercase()
}

/// What a text means that is one quoted literal and nothing else.
fn literal(text: &[u8]) -> Option<Vec<u8>> {
    let text = without_semicolon(text.trim_ascii()).trim_ascii_end();
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
    facts.class < Class::Write && !facts.effects.contains(Effects::SERVER_FILE)
}

/// A program and a compound statement harm somebody where a statement within them would, or the text of one
/// that they prepare.
fn harms_nobody(facts: &Facts, text: &[u8], syntax: Syntax) -> Result<(), LeftOut> {
    statement_harms_nobody(facts, text)?;
    if !matches!(facts.class, Class::Ddl | Class::Unknown) {
        return Ok(());
    }
    let Some(mut parts) = statements(text, syntax) else {
        return match !is_alone(text) && found(&SERVER, text).is_some() {
            true => Err(LeftOut::Server),
            false => Ok(()),
        };
    };
    parts.try_for_each(|part| {
        let given = prepares(part).and_then(|(_, given)| given);
        let given = given.or_else(|| literal(found(&IMMEDIATE, part)?.first()?));
        match given {
            Some(text) => harms_nobody(&sql_class::facts(&text, syntax), &text, syntax),
            None => statement_harms_nobody(&sql_class::facts(part, syntax), part),
        }
    })
}

/// From each place where a statement may begin to the next one: names stand elsewhere, whatever they are.
/// `None`: nobody can be sure of them.
fn statements(text: &[u8], syntax: Syntax) -> Option<impl Iterator<Item = &[u8]>> {
    const IN_FRONT: &[u8] = b"; ) BEGIN ATOMIC THEN ELSE DO LOOP REPEAT SQLEXCEPTION SQLWARNING FOUND \
        DETERMINISTIC SQL DATA DEFINER INVOKER";
    const IN_FRONT_OF_VALUE: &[u8] = b"COMMENT FOR SQLSTATE VALUE";
    let mut begins = Vec::new();
    let (mut is_first, mut may_have_value, mut may_have_row) = (true, false, false);
    for (literal, place) in literals(text, syntax)? {
        if is_first {
            begins.push(place.start);
        }
        let token = &text[place];
        let is = |words: &[u8]| {
            let mut words = words.split(|byte| *byte == b' ');
            words.any(|word| word.eq_ignore_ascii_case(token))
        };
        // Columns of tables that keep their versions are AS ROW START.
        is_first = is(IN_FRONT) || may_have_row && is(b"ROW") || may_have_value && literal != Literal::None;
        may_have_value = is(IN_FRONT_OF_VALUE);
        may_have_row = is(b"EACH");
    }
    let ends = begins.clone().into_iter().skip(1).chain([text.len()]);
    Some(
        begins
            .into_iter()
            .zip(ends)
            .map(move |(begin, end)| &text[begin..end]),
    )
}

/// Words of statements about the server and its replication.
static SERVER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    const WORDS: &str = r"(?xi-u)\b(?:shutdown|restart|clone|install|uninstall|flush|purge|reset|slave|replica
        |master|binlog|replication)\b";
    Regex::new(WORDS).ok()
});

fn statement_harms_nobody(facts: &Facts, text: &[u8]) -> Result<(), LeftOut> {
    if facts.effects.intersects(Effects::KILL.with(Effects::SETS_GLOBAL)) {
        return Err(LeftOut::Server);
    }
    if facts.effects.contains(Effects::CHANGES_ACCOUNT) {
        return Err(LeftOut::Account);
    }
    if facts.effects.contains(Effects::SERVER_FILE) {
        return Err(LeftOut::ServerFile);
    }
    if facts.class != Class::Administration {
        return Ok(());
    }
    let plain = without_comments_in_front(text);
    let begins = |word: &str| begins_with(plain, word);
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
    if of_replication.into_iter().any(|word| has(text, word)) {
        return Err(LeftOut::Replication);
    }
    match begins("GRANT") || begins("REVOKE") || has(text, b"USER") || has(text, b"ROLE") {
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
            ("/* x */ SHUTDOWN", LeftOut::Server),
            ("/*! FLUSH TABLES */", LeftOut::Server),
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
            ("CALL p(); SHUTDOWN", LeftOut::Server),
            ("CALL p(); FLUSH TABLES", LeftOut::Server),
            ("FLUSH TABLES; CALL p()", LeftOut::Server),
            ("CREATE PROCEDURE p() SELECT 1; SHUTDOWN", LeftOut::Server),
            ("BEGIN NOT ATOMIC SHUTDOWN; END", LeftOut::Server),
            (
                "PREPARE s FROM 'BEGIN NOT ATOMIC STOP SLAVE; END'",
                LeftOut::Replication,
            ),
            ("CREATE PROCEDURE p() SHUTDOWN", LeftOut::Server),
            ("CREATE PROCEDURE p() DETERMINISTIC SHUTDOWN", LeftOut::Server),
            (
                "CREATE PROCEDURE p() SQL SECURITY INVOKER FLUSH LOGS",
                LeftOut::Server,
            ),
            (
                "CREATE PROCEDURE p() MODIFIES SQL DATA RESET MASTER",
                LeftOut::Replication,
            ),
            (
                "CREATE TRIGGER t BEFORE INSERT ON u FOR EACH ROW SET GLOBAL read_only = 1",
                LeftOut::Server,
            ),
            ("PREPARE s FROM 'SHUTDOWN'; EXECUTE s", LeftOut::Server),
            (
                "CREATE PROCEDURE p() BEGIN PREPARE s FROM 'SHUTDOWN'; EXECUTE s; END",
                LeftOut::Server,
            ),
            (
                "CREATE PROCEDURE p() BEGIN EXECUTE IMMEDIATE 'DROP USER a'; END",
                LeftOut::Account,
            ),
            (
                "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO FLUSH LOGS",
                LeftOut::Server,
            ),
            (
                "CREATE PROCEDURE p() BEGIN /* x */ RESET MASTER; END",
                LeftOut::Replication,
            ),
            (
                "CREATE PROCEDURE p() BEGIN IF a THEN SET GLOBAL read_only = 1; END IF; END",
                LeftOut::Server,
            ),
            (
                "CREATE PROCEDURE p() COMMENT 'x' BEGIN SELECT 1; KILL 5; END",
                LeftOut::Server,
            ),
            (
                "CREATE PROCEDURE p() BEGIN DECLARE EXIT HANDLER FOR SQLSTATE '42S02' RESTART; CALL q(); END",
                LeftOut::Server,
            ),
            ("CREATE PROCEDURE p() BEGIN DROP USER a; END", LeftOut::Account),
            // The quote has no end, so that nobody knows where the text has statements.
            (
                "CREATE PROCEDURE p() BEGIN SELECT 'x; RESET MASTER; END",
                LeftOut::Server,
            ),
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
    fn files_that_are_there_are_loaded() {
        let verdict = |text: &str, files: &[&[u8]], read_only| {
            let permitted = Permitted {
                read_only,
                ..Permitted::default()
            };
            Judge::new(permitted).may_be_sent(&CommandRecord {
                command: Command::QUERY.0,
                body: text.as_bytes().to_vec(),
                files: files.iter().map(|file| file.to_vec()).collect(),
                ..CommandRecord::default()
            })
        };
        let local = "LOAD DATA LOCAL INFILE 'x' INTO TABLE t";
        assert_eq!(verdict(local, &[b"1\n"], false), Ok(()));
        assert_eq!(verdict(local, &[b""], false), Ok(()));
        assert_eq!(verdict(local, &[], false), Err(LeftOut::LocalFile));
        assert_eq!(verdict(local, &[b"1\n"], true), Err(LeftOut::Writes));
        let both = format!("{local}; LOAD DATA INFILE 'x' INTO TABLE t");
        assert_eq!(verdict(&both, &[b"1\n"], false), Err(LeftOut::ServerFile));
    }

    #[test]
    fn what_no_server_had_is_left_out() {
        let verdict = |command: Command, flags, error| {
            Judge::new(Permitted::default()).may_be_sent(&CommandRecord {
                command: command.0,
                flags,
                error,
                body: b"INSERT INTO t VALUES (1)".to_vec(),
                ..CommandRecord::default()
            })
        };
        for (flags, error) in [(Flags::GATEWAY, 1317), (Flags::CLOSED, 0), (Flags::CLOSED, 1053)] {
            assert_eq!(verdict(Command::QUERY, flags, error), Err(LeftOut::Gateway));
        }
        assert_eq!(verdict(Command::QUERY, Flags::GATEWAY, 0), Ok(()));
        assert_eq!(verdict(Command::QUIT, Flags::CLOSED, 0), Ok(()));
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
            "CALL p('restart')",
            "CALL p(); SELECT 1",
            "BEGIN NOT ATOMIC SELECT 1; END",
            "CREATE PROCEDURE p() BEGIN SELECT 1; END",
            "CREATE PROCEDURE reset(master INT) BEGIN UPDATE replica SET flush = 1; SELECT clone; END",
            "CREATE PROCEDURE p() BEGIN DECLARE a, reset INT; SELECT '; RESET MASTER;'; CALL flush(); END",
            "CREATE PROCEDURE p() BEGIN /* ; purge */ START TRANSACTION; SHOW MASTER STATUS; END",
            "CREATE TRIGGER t BEFORE INSERT ON master FOR EACH ROW BEGIN SET NEW.reset = 1; SET @a = 2; END",
            "CREATE TABLE master (reset INT CHECK (reset > 0)); SELECT 1",
            "CREATE TABLE t (a INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, \
             e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) \
             WITH SYSTEM VERSIONING",
            "CREATE SQL SECURITY INVOKER VIEW reset AS SELECT 1",
            "CREATE PROCEDURE p() BEGIN PREPARE s FROM 'SELECT 1'; EXECUTE s; END",
            "ALTER SEQUENCE s INCREMENT BY 2 RESTART 5; SELECT 1",
            "ALTER SEQUENCE s RESTART 5;",
            "SHOW PROCESSLIST",
            "/* DBeaver */ SHOW PROCESSLIST",
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
        for text in [
            "INSERT INTO t VALUES (1)",
            "CREATE TABLE t (a INT)",
            "CALL p()",
            "SELECT shop.charge(1)",
            "SELECT charge(id) FROM t",
            "SET @x = charge(1)",
        ] {
            assert_eq!(verdict(text, read_only), Err(LeftOut::Writes), "{text}");
        }
        for text in [
            "SELECT 1",
            "BEGIN",
            "COMMIT",
            "SET NAMES utf8mb4",
            "SELECT 1 FROM t FOR UPDATE",
            "SELECT COUNT(*), MAX(a) FROM t",
            "SELECT ANY_VALUE(a) FROM t",
        ] {
            assert_eq!(verdict(text, read_only), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_either_server_would_do_counts() {
        let read_only = Permitted {
            read_only: true,
            ..Permitted::default()
        };
        let insert = "SET STATEMENT max_statement_time=1 FOR INSERT INTO t VALUES (1)";
        assert_eq!(verdict(insert, read_only), Err(LeftOut::Writes));
        assert_eq!(verdict(insert, Permitted::default()), Ok(()));
        let kill = "SET STATEMENT max_statement_time=1 FOR KILL 5";
        assert_eq!(verdict(kill, Permitted::default()), Err(LeftOut::Server));
    }

    #[test]
    fn only_what_sets_the_same_is_set_again() {
        for text in [
            "SET NAMES utf8mb4",
            "SET @a = 1, @b = CONCAT('x', @a)",
            "SET @@SESSION.sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')",
            "SET autocommit = 0",
            "SET @OLD_SQL_NOTES=@@SQL_NOTES;",
            "/*!40101 SET NAMES utf8 */",
            "USE shop",
            "SET timestamp = 1700000000",
        ] {
            assert!(sets_the_same_again(text.as_bytes()), "{text}");
        }
        for text in [
            "SET STATEMENT max_statement_time=1 FOR INSERT INTO t VALUES (1)",
            "SET STATEMENT max_statement_time=1 FOR SELECT 1",
            "SET @x = f()",
            "SET @x = shop.f()",
            "SET @a=1; SELECT f()",
            "SET @a=1; SET @b=2",
            "SET @id = LAST_INSERT_ID()",
            "SET @id = @@identity",
            "SET @n = ROW_COUNT()",
            "SET @n = (SELECT COUNT(*) FROM t)",
            "SET @l = GET_LOCK('a', 1)",
            "SET @t = NOW()",
            "SET @u = UUID()",
            "SET @s = NEXTVAL(s)",
            "SET insert_id = 5",
            "SET TRANSACTION READ ONLY",
            "INSERT INTO t VALUES (1)",
            "",
        ] {
            assert!(!sets_the_same_again(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn an_execution_is_not_sent_without_all_of_its_parameters() {
        let mut judge = Judge::new(Permitted::default());
        let mut say = |command: Command, flags| {
            judge.may_be_sent(&CommandRecord {
                command: command.0,
                flags,
                body: b"INSERT INTO t VALUES (?)".to_vec(),
                statement: 7,
                ..CommandRecord::default()
            })
        };
        let (whole, cut) = (Flags::default(), Flags::CUT);
        let missing = Err(LeftOut::PartsMissing);
        assert_eq!(say(Command::STMT_PREPARE, whole), Ok(()));
        assert_eq!(say(Command::STMT_SEND_LONG_DATA, whole), Ok(()));
        assert_eq!(say(Command::STMT_EXECUTE, whole), Ok(()));
        assert_eq!(say(Command::STMT_SEND_LONG_DATA, cut), Err(LeftOut::TooLong));
        assert_eq!(say(Command::STMT_SEND_LONG_DATA, whole), missing);
        assert_eq!(say(Command::STMT_EXECUTE, whole), missing);
        assert_eq!(say(Command::STMT_EXECUTE, whole), Ok(()), "it had forgotten them");
        for forgets in [Command::STMT_RESET, Command::STMT_PREPARE] {
            assert_eq!(say(Command::STMT_SEND_LONG_DATA, cut), Err(LeftOut::TooLong));
            assert_eq!(say(forgets, whole), Ok(()));
            assert_eq!(say(Command::STMT_EXECUTE, whole), Ok(()));
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
        let reset = CommandRecord {
            command: Command::RESET_CONNECTION.0,
            ..CommandRecord::default()
        };
        assert_eq!(judge.may_be_sent(&reset), Ok(()));
        assert_eq!(judge.may_be_sent(&execution), Err(LeftOut::NotPrepared));
        assert!(
            judge.sessions.len() <= 1,
            "nothing is kept of sessions that are over"
        );
    }
}
