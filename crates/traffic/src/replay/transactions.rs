//! What commands do to the transaction of their session, as far as their texts say so, and the order of
//! transactions at their commits.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use mysql_wire::Command;
use sql_class::{Class, Effects};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::plan::{class_of, executes, prepares, readings};
use crate::record::CommandRecord;
use crate::secrets::without_comments;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// It begins one, and ends the one before.
    Begins,
    /// It belongs to one where one is open; otherwise it is one of its own.
    Inside,
    /// The same, and nobody knows whether one is open behind it.
    Several,
    /// `COMMIT`, `ROLLBACK`, `XA COMMIT … ONE PHASE`.
    Ends,
    /// `XA PREPARE`: the transaction outlives its connection from there on.
    PreparesXa,
    /// `XA COMMIT`, `XA ROLLBACK`, also of a transaction that another connection has prepared.
    EndsXa,
    /// It ends one, and does something else.
    Breaks,
    /// It sets something for its session, whether a transaction is open or not.
    Apart,
}

impl Part {
    pub(super) fn of(command: &CommandRecord) -> Self {
        match Command(command.command) {
            Command::QUERY => Self::of_text(&command.body),
            Command::STMT_EXECUTE
            | Command::STMT_BULK_EXECUTE
            | Command::STMT_FETCH
            | Command::STMT_SEND_LONG_DATA => Self::Inside,
            _ if command.is_anew() => Self::Breaks,
            _ => Self::Apart,
        }
    }

    pub(super) fn of_text(text: &[u8]) -> Self {
        let facts = readings(text);
        let class = facts[0].class.max(facts[1].class);
        let is = |effect| facts.iter().all(|facts| facts.effects.contains(effect));
        if facts
            .iter()
            .any(|facts| facts.effects.contains(Effects::SET_STATEMENT))
        {
            return Self::Inside;
        }
        let prepares = prepares(text).is_some() && facts[0].statements == 1;
        if class == Class::Session || prepares {
            return Self::Apart;
        }
        if facts.iter().any(|facts| facts.statements > 1) {
            return Self::Several;
        }
        match class {
            Class::Begin | Class::BeginReadOnly => Self::Begins,
            Class::Transaction => Self::of_its_words(text),
            _ if is(Effects::COMMITS) => Self::Breaks,
            _ => Self::Inside,
        }
    }

    /// `COMMIT`, `ROLLBACK`, `SAVEPOINT`, `XA …`, `UNLOCK TABLES`, which ends none that was not of locks.
    fn of_its_words(text: &[u8]) -> Self {
        let plain = without_comments(text);
        let text = plain.as_deref().unwrap_or(text).to_ascii_uppercase();
        let words: Vec<&[u8]> = text
            .split(|byte| !byte.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty() && *word != b"WORK")
            .collect();
        match words[..] {
            [b"XA", b"PREPARE", ..] => Self::PreparesXa,
            [b"XA", b"COMMIT", .., b"ONE", b"PHASE"] => Self::Ends,
            [b"XA", b"COMMIT" | b"ROLLBACK", ..] => Self::EndsXa,
            [b"ROLLBACK", b"TO", ..] => Self::Inside,
            [b"COMMIT" | b"ROLLBACK", b"AND", b"CHAIN", ..] => Self::Begins,
            [b"COMMIT" | b"ROLLBACK", ..] => Self::Ends,
            _ => Self::Inside,
        }
    }
}

/// For the commits of others.
const COMMIT_LIMIT: Duration = Duration::from_secs(10);
/// The end of a command is noted once its client has the answer, and may have said something else already, to
/// another session as well.
const NOTED_LATE_US: u64 = 10_000;

/// What a command has to do with the order of commits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// A transaction begins with it.
    pub(super) begins: bool,
    /// Others may see what it has changed, or end what it has prepared.
    pub(super) commits: bool,
}

/// A statement once it is executed.
#[derive(Clone, Copy)]
struct Does {
    part: Part,
    only_reads: bool,
}

impl Does {
    fn of_text(text: &[u8]) -> Self {
        Self {
            part: Part::of_text(text),
            only_reads: class_of(text) == Class::Read,
        }
    }
}

/// The prepared statements of a session.
#[derive(Default)]
struct Prepared {
    /// Statements by their captured numbers.
    numbered: HashMap<u32, Does>,
    /// Statements that were prepared as text (`PREPARE`), by their names.
    named: HashMap<Vec<u8>, Does>,
}

impl Prepared {
    fn does(&mut self, command: &CommandRecord) -> Does {
        let known = self.numbered.get(&command.statement).copied();
        let of_command = Does {
            part: Part::of(command),
            only_reads: known.is_some_and(|known| known.only_reads),
        };
        match Command(command.command) {
            Command::STMT_PREPARE if command.error == 0 => {
                let does = Does::of_text(&command.body);
                self.numbered.insert(command.statement, does);
                of_command
            }
            Command::STMT_CLOSE => {
                self.numbered.remove(&command.statement);
                of_command
            }
            Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => known.unwrap_or(of_command),
            _ => of_command,
        }
    }

    /// Tells what a text does; of one that executes a statement by its name, what that statement does.
    fn text_does(&mut self, command: &CommandRecord) -> Does {
        let does = Does::of_text(&command.body);
        if let Some((name, text)) = prepares(&command.body) {
            // A PREPARE that fails takes the statement of before away as well.
            match text.filter(|_| command.error == 0) {
                Some(text) => drop(self.named.insert(name, Does::of_text(&text))),
                None => drop(self.named.remove(&name)),
            }
        } else if does.part == Part::Inside
            && let Some(name) = executes(&command.body)
        {
            return self.named.get(&name).copied().unwrap_or(does);
        }
        does
    }
}

/// The transactions that were open when commands were captured.
#[derive(Default)]
pub(super) struct Transactions {
    open: HashSet<u32>,
    /// Prepared statements, by session.
    prepared: HashMap<u32, Prepared>,
}

impl Transactions {
    /// The next command of the capture.
    pub(super) fn turn(&mut self, command: &CommandRecord) -> Turn {
        if command.is_anew() {
            self.prepared.remove(&command.session);
        }
        let prepared = self.prepared.entry(command.session).or_default();
        let Does { part, only_reads } = match Command(command.command) {
            Command::QUERY => prepared.text_does(command),
            _ => prepared.does(command),
        };
        let was_open = self.open.contains(&command.session);
        let mut turn = Turn::default();
        match part {
            Part::Begins => {
                self.open.insert(command.session);
                turn = Turn {
                    begins: true,
                    commits: was_open,
                };
            }
            Part::Inside | Part::Several if was_open => {}
            Part::Inside | Part::Several => {
                turn = Turn {
                    begins: true,
                    commits: !only_reads,
                }
            }
            Part::Ends | Part::EndsXa | Part::Breaks => {
                self.open.remove(&command.session);
                turn = Turn {
                    // Transactions that XA COMMIT ends were prepared before, by whichever session.
                    begins: matches!(part, Part::Breaks | Part::EndsXa) && !was_open,
                    commits: true,
                };
            }
            Part::PreparesXa => {
                self.open.remove(&command.session);
                turn.commits = true;
            }
            Part::Apart => {}
        }
        turn
    }

    /// No command of the session comes any more.
    pub(super) fn end(&mut self, session: u32) {
        self.open.remove(&session);
        self.prepared.remove(&session);
    }
}

/// A command's place in the capture: when it had begun, its session, its number there.
type CapturePlace = (u64, u32, u64);

/// Commits that are still to be executed, and when they had ended in the capture.
///
/// A command waits only for those that had begun before it, so that no two wait for one another.
#[derive(Default)]
pub(super) struct Commits {
    open: RefCell<BTreeMap<CapturePlace, u64>>,
    changed: Notify,
}

/// A commit for which others wait as long as this is there: no longer than its session is.
pub(super) struct Expected {
    commits: Rc<Commits>,
    place: CapturePlace,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.commits.open.borrow_mut().remove(&self.place);
        self.commits.changed.notify_waiters();
    }
}

impl Commits {
    pub(super) fn expect(self: &Rc<Self>, command: &CommandRecord) -> Expected {
        let place = (command.start_us, command.session, command.number);
        let end_us = command.start_us.saturating_add(command.took_us);
        self.open.borrow_mut().insert(place, end_us);
        Expected {
            commits: Rc::clone(self),
            place,
        }
    }

    fn is_next(&self, command: &CommandRecord) -> bool {
        let until_us = command.start_us.saturating_add(NOTED_LATE_US);
        let open = self.open.borrow();
        let mut before = open.range(..(command.start_us, 0, 0));
        before.all(|(_, end_us)| *end_us >= until_us)
    }

    /// Waits until all that had ended before this command began have ended. False: not within the limit.
    pub(super) async fn wait(&self, command: &CommandRecord) -> bool {
        let deadline = Instant::now() + COMMIT_LIMIT;
        loop {
            let changed = self.changed.notified();
            if self.is_next(command) {
                return true;
            }
            if timeout_at(deadline, changed).await.is_err() {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_say_what_they_do_to_a_transaction() {
        for (text, part) in [
            ("BEGIN", Part::Begins),
            ("START TRANSACTION READ ONLY", Part::Begins),
            ("COMMIT", Part::Ends),
            (" rollback;", Part::Ends),
            ("ROLLBACK TO SAVEPOINT a", Part::Inside),
            ("ROLLBACK WORK TO\na", Part::Inside),
            ("/* x */ COMMIT", Part::Ends),
            ("--\nCOMMIT", Part::Ends),
            ("COMMIT AND NO CHAIN", Part::Ends),
            ("COMMIT WORK AND CHAIN", Part::Begins),
            ("ROLLBACK AND CHAIN", Part::Begins),
            ("XA START 'a'", Part::Begins),
            ("XA END 'a'", Part::Inside),
            ("XA COMMIT 'a' ONE PHASE", Part::Ends),
            ("XA PREPARE 'a'", Part::PreparesXa),
            ("/* x */ xa commit X'61', 'b', 1", Part::EndsXa),
            ("XA ROLLBACK 'a'", Part::EndsXa),
            ("SAVEPOINT a", Part::Inside),
            ("UNLOCK TABLES", Part::Inside),
            ("CREATE TEMPORARY TABLE t (a INT)", Part::Inside),
            ("INSERT INTO t VALUES (1); COMMIT", Part::Several),
            (
                "SET STATEMENT max_statement_time=1 FOR INSERT INTO t VALUES (1)",
                Part::Inside,
            ),
            ("SET autocommit = 0", Part::Apart),
            ("LOCK TABLES t WRITE", Part::Breaks),
            ("INSERT INTO t VALUES (1)", Part::Inside),
            ("SET NAMES utf8mb4", Part::Apart),
            ("CREATE TABLE t (a INT)", Part::Breaks),
        ] {
            assert_eq!(Part::of_text(text.as_bytes()), part, "{text}");
        }
    }

    #[test]
    fn a_transaction_begins_once_and_is_seen_when_it_ends() {
        let mut transactions = Transactions::default();
        let mut turn = |text: &str| {
            let turn = transactions.turn(&CommandRecord {
                command: Command::QUERY.0,
                body: text.as_bytes().to_vec(),
                ..CommandRecord::default()
            });
            (turn.begins, turn.commits)
        };
        assert_eq!(turn("SELECT a FROM t"), (true, false));
        assert_eq!(turn("INSERT INTO t VALUES (1)"), (true, true));
        assert_eq!(turn("SET NAMES utf8mb4"), (false, false));
        assert_eq!(turn("BEGIN"), (true, false));
        assert_eq!(turn("INSERT INTO t VALUES (1)"), (false, false));
        assert_eq!(turn("COMMIT"), (false, true));
        assert_eq!(turn("DROP TABLE t"), (true, true));
    }

    fn statement(command: Command, statement: u32, text: &str) -> CommandRecord {
        CommandRecord {
            command: command.0,
            statement,
            body: text.as_bytes().to_vec(),
            ..CommandRecord::default()
        }
    }

    #[test]
    fn executions_are_what_their_texts_are() {
        let mut transactions = Transactions::default();
        let mut turn = |command: Command, number, text: &str| {
            let turn = transactions.turn(&statement(command, number, text));
            (turn.begins, turn.commits)
        };
        let texts = [
            "BEGIN",
            "COMMIT",
            "SELECT a FROM t",
            "INSERT INTO t VALUES (?)",
            "SET @a = ?",
            "XA COMMIT 'a'",
        ];
        for (number, text) in (1..).zip(texts) {
            assert_eq!(turn(Command::STMT_PREPARE, number, text), (false, false));
        }
        let mut execute = |number| turn(Command::STMT_EXECUTE, number, "");
        let [begin, commit, select, insert, set, commit_xa] = [1, 2, 3, 4, 5, 6];
        assert_eq!(execute(insert), (true, true));
        assert_eq!(execute(begin), (true, false));
        assert_eq!(execute(insert), (false, false));
        assert_eq!(execute(set), (false, false));
        assert_eq!(execute(commit), (false, true));
        assert_eq!(execute(select), (true, false));
        assert_eq!(execute(insert), (true, true), "none is open");
        assert_eq!(turn(Command::QUERY, 0, "XA START 'a'"), (true, false));
        assert_eq!(turn(Command::QUERY, 0, "XA PREPARE 'a'"), (false, true));
        assert_eq!(turn(Command::STMT_EXECUTE, commit_xa, ""), (true, true));
    }

    #[test]
    fn an_execution_by_name_is_what_the_text_of_its_prepare_is() {
        let mut transactions = Transactions::default();
        let mut said = |session, text: &str, error| {
            let turn = transactions.turn(&CommandRecord {
                session,
                error,
                ..statement(Command::QUERY, 0, text)
            });
            (turn.begins, turn.commits)
        };
        let mut turn = |text: &str| said(1, text, 0);
        for prepare in ["PREPARE c FROM 'COMMIT'", "PREPARE `S` FROM \"SELECT a FROM t\""] {
            assert_eq!(turn(prepare), (false, false), "{prepare}");
        }
        assert_eq!(turn("BEGIN"), (true, false));
        assert_eq!(turn("EXECUTE s USING @a"), (false, false));
        assert_eq!(turn("/* x */ execute `C`;"), (false, true));
        assert_eq!(turn("EXECUTE s"), (true, false), "none is open");
        assert_eq!(turn("EXECUTE other"), (true, true));
        assert_eq!(turn("BEGIN"), (true, false));
        assert_eq!(turn("PREPARE c FROM @text"), (false, false));
        assert_eq!(turn("EXECUTE c"), (false, false), "nobody knows its text");
        assert_eq!(turn("PREPARE c FROM 'COMMIT'"), (false, false));
        assert_eq!(said(2, "EXECUTE c", 0), (true, true), "another session's");
        assert_eq!(said(1, "PREPARE c FROM 'nonsense'", 1064), (false, false));
        assert_eq!(said(1, "EXECUTE c", 1243), (false, false), "it is gone");
    }

    #[test]
    fn nothing_is_kept_of_statements_that_are_closed() {
        let mut transactions = Transactions::default();
        let mut turn = |command: Command, number| {
            let turn = transactions.turn(&statement(command, number, "SELECT a FROM t"));
            let kept: usize = transactions
                .prepared
                .values()
                .map(|prepared| prepared.numbered.len())
                .sum();
            (turn.begins, turn.commits, kept)
        };
        assert_eq!(turn(Command::STMT_PREPARE, 1), (false, false, 1));
        assert_eq!(turn(Command::STMT_PREPARE, 2), (false, false, 2));
        assert_eq!(turn(Command::STMT_EXECUTE, 1), (true, false, 2));
        assert_eq!(turn(Command::STMT_CLOSE, 1), (false, false, 1));
        assert_eq!(turn(Command::STMT_EXECUTE, 2), (true, false, 1));
        assert_eq!(turn(Command::QUIT, 0), (true, true, 0));
        assert_eq!(turn(Command::STMT_PREPARE, 1), (false, false, 1));
        transactions.end(0);
        assert!(transactions.prepared.is_empty());
    }
}
