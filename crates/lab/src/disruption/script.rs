//! What a client says, and what it must be answered. Pure: the load sends what comes out, and tells what came
//! of it.
//!
//! A client reads rows that never change, and keeps a counter of its own. It knows how far that is: what was
//! written and acknowledged must be there, nothing twice, and no read may be older than the client's own
//! writes. What failed may have been done or not.

use std::collections::VecDeque;

use inputs::Random;

use super::seen::Doing;
use crate::{
    cache::rig,
    client::{ClientError, StatementAnswer},
};

/// Rows of `sbtest.sbtest1`.
pub(super) const ROWS: u64 = 10_000;
/// Rows of `sbtest.item` that each client has, and replaces.
pub(super) const ITEMS: u64 = 10;
/// Rows that a range has.
const RANGE: u64 = 10;
/// Of ten turns so many are single statements; the others are transactions.
const SINGLE_OF_TEN: u64 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Single statements, and transactions that read and write.
    ReadsAndWrites,
    /// Single reads, and transactions that read.
    Reads,
    /// Single reads, some of them long, so that a server hardly ever has none under way.
    SingleReads,
}

/// A statement with a place for each parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Template {
    Begin,
    BeginRead,
    Commit,
    Rollback,
    Row,
    Range,
    Scan,
    Counter,
    Increment,
    Delete,
    Insert,
    Variable,
}

impl Template {
    pub(super) const ALL: [Self; 12] = [
        Self::Begin,
        Self::BeginRead,
        Self::Commit,
        Self::Rollback,
        Self::Row,
        Self::Range,
        Self::Scan,
        Self::Counter,
        Self::Increment,
        Self::Delete,
        Self::Insert,
        Self::Variable,
    ];

    pub(super) fn sql(self) -> &'static str {
        match self {
            Self::Begin => "START TRANSACTION",
            Self::BeginRead => "START TRANSACTION READ ONLY",
            Self::Commit => "COMMIT",
            Self::Rollback => "ROLLBACK",
            Self::Row => "SELECT c FROM sbtest.sbtest1 WHERE id = ?",
            Self::Range => "SELECT c FROM sbtest.sbtest1 WHERE id BETWEEN ? AND ? ORDER BY id",
            Self::Scan => "SELECT COUNT(*) FROM sbtest.sbtest1 WHERE pad = 'pad'",
            Self::Counter => "SELECT n FROM sbtest.counter WHERE client = ?",
            Self::Increment => "UPDATE sbtest.counter SET n = n + 1 WHERE client = ?",
            Self::Delete => "DELETE FROM sbtest.item WHERE client = ? AND slot = ?",
            Self::Insert => "INSERT INTO sbtest.item (client, slot, v) VALUES (?, ?, ?)",
            Self::Variable => "SELECT @client",
        }
    }

    /// Those that begin and end transactions are sent as text, as drivers do.
    pub(super) fn is_prepared(self) -> bool {
        !matches!(
            self,
            Self::Begin | Self::BeginRead | Self::Commit | Self::Rollback
        )
    }
}

/// What the answer must be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expected {
    /// These rows of one column.
    Rows(Vec<String>),
    Affected(u64),
    Counter,
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub template: Template,
    pub parameters: Vec<u64>,
    pub doing: Doing,
    expected: Expected,
}

impl Statement {
    fn new<const N: usize>(
        template: Template,
        parameters: [u64; N],
        doing: Doing,
        expected: Expected,
    ) -> Self {
        Self {
            template,
            parameters: parameters.to_vec(),
            doing,
            expected,
        }
    }

    /// A statement without parameters, whose answer says nothing.
    fn bare(template: Template, doing: Doing) -> Self {
        Self::new(template, [], doing, Expected::Nothing)
    }

    pub(super) fn text(&self) -> String {
        let mut parts = self.template.sql().split('?');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (parameter, part) in self.parameters.iter().zip(parts) {
            text += &format!("{parameter}{part}");
        }
        text
    }
}

/// What is known of the client's own counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counter {
    /// Acknowledged.
    pub least: u64,
    /// With all whose outcome is not known.
    pub most: u64,
    /// A write was acknowledged after the last one whose outcome is not known: all servers that show this one
    /// show what became of that one.
    is_settled: bool,
    /// Increments of the transaction under way.
    pending: u64,
}

impl Counter {
    /// So many increments were acknowledged.
    fn done(&mut self, count: u64) {
        (self.least, self.most) = (self.least + count, self.most + count);
        self.is_settled = true;
    }

    /// So many were sent, and nobody knows.
    fn unknown(&mut self, count: u64) {
        self.most += count;
        self.is_settled &= count == 0;
    }

    /// Whether a read may have shown this.
    fn shows(&mut self, value: u64) -> bool {
        let Some(value) = value.checked_sub(self.pending) else {
            return false;
        };
        let fits = (self.least..=self.most).contains(&value);
        if fits {
            self.least = value;
            if self.is_settled {
                self.most = value;
            }
        }
        fits
    }
}

pub(super) struct Script {
    client: u64,
    random: Random,
    work: Work,
    /// It has a user variable, which has to go with it.
    has_variable: bool,
    queue: VecDeque<Statement>,
    pub counter: Counter,
}

impl Script {
    pub(super) fn new(client: u64, work: Work, has_variable: bool) -> Self {
        Self {
            client,
            random: Random::new(client + 1),
            work,
            has_variable,
            queue: VecDeque::new(),
            counter: Counter {
                is_settled: true,
                ..Counter::default()
            },
        }
    }

    /// What is to be said on a new connection before all else.
    pub(super) fn opening(&self) -> Option<String> {
        let client = self.client;
        self.has_variable.then(|| format!("SET @client = {client}"))
    }

    /// It is in no transaction, and has read back what it wrote.
    pub(super) fn is_between_turns(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn next(&mut self) -> Statement {
        if self.queue.is_empty() {
            self.take_turn();
        }
        self.queue.pop_front().unwrap_or_else(|| self.row(Doing::Read))
    }

    fn take_turn(&mut self) {
        let is_single = self.random.below(10u64) < SINGLE_OF_TEN;
        let turn = match (self.work, is_single) {
            (Work::ReadsAndWrites, true) => self.single(),
            (Work::ReadsAndWrites, false) => self.transaction(),
            (Work::Reads, false) => self.read_transaction(),
            (Work::Reads, true) => self.reads(),
            (Work::SingleReads, _) => vec![self.row(Doing::Read), self.scan(), self.range(Doing::Read)],
        };
        self.queue.extend(turn);
    }

    fn single(&mut self) -> Vec<Statement> {
        let (row, range) = (self.row(Doing::Read), self.range(Doing::Read));
        let (increment, counter) = (self.increment(Doing::Write), self.read_counter(Doing::Read));
        vec![row, increment, counter, range, self.row(Doing::Read)]
    }

    /// As sysbench's `oltp_read_write`, shorter.
    fn transaction(&mut self) -> Vec<Statement> {
        let slot = self.random.below(ITEMS);
        let doing = Doing::Transaction;
        let own = [self.client, slot];
        let item = [self.client, slot, self.random.below(1_000_000u64)];
        vec![
            Statement::bare(Template::Begin, doing),
            self.row(doing),
            self.row(doing),
            self.range(doing),
            self.increment(doing),
            self.read_counter(doing),
            Statement::new(Template::Delete, own, doing, Expected::Affected(1)),
            Statement::new(Template::Insert, item, doing, Expected::Affected(1)),
            Statement::bare(Template::Commit, doing),
            self.read_counter(Doing::Read),
        ]
    }

    fn reads(&mut self) -> Vec<Statement> {
        let mut turn = vec![
            self.row(Doing::Read),
            self.range(Doing::Read),
            self.row(Doing::Read),
        ];
        if self.has_variable {
            let expected = Expected::Rows(vec![self.client.to_string()]);
            turn.push(Statement::new(Template::Variable, [], Doing::Read, expected));
        }
        turn
    }

    fn read_transaction(&mut self) -> Vec<Statement> {
        let doing = Doing::Transaction;
        let [begin, commit] =
            [Template::BeginRead, Template::Commit].map(|template| Statement::bare(template, doing));
        vec![begin, self.row(doing), self.range(doing), self.row(doing), commit]
    }

    fn row(&mut self, doing: Doing) -> Statement {
        let id = 1 + self.random.below(ROWS);
        let expected = Expected::Rows(vec![rig::value(id, rig::VALUE)]);
        Statement::new(Template::Row, [id], doing, expected)
    }

    fn range(&mut self, doing: Doing) -> Statement {
        let first = 1 + self.random.below(ROWS - RANGE);
        let last = first + RANGE - 1;
        let rows = (first..=last).map(|id| rig::value(id, rig::VALUE));
        Statement::new(
            Template::Range,
            [first, last],
            doing,
            Expected::Rows(rows.collect()),
        )
    }

    fn scan(&self) -> Statement {
        let expected = Expected::Rows(vec![ROWS.to_string()]);
        Statement::new(Template::Scan, [], Doing::Read, expected)
    }

    fn increment(&self, doing: Doing) -> Statement {
        Statement::new(Template::Increment, [self.client], doing, Expected::Affected(1))
    }

    fn read_counter(&self, doing: Doing) -> Statement {
        Statement::new(Template::Counter, [self.client], doing, Expected::Counter)
    }

    /// Takes note of what came of a statement. In words: the answer cannot be right.
    pub(super) fn answered(
        &mut self,
        statement: &Statement,
        result: &Result<StatementAnswer, ClientError>,
    ) -> Option<String> {
        match result {
            Ok(answer) => {
                let wrong = self.is_wrong(statement, answer);
                self.note_success(statement);
                wrong.then(|| {
                    let (text, expected) = (statement.text(), self.expected_in_words(statement));
                    format!("{text}: {answer:?} in place of {expected}")
                })
            }
            Err(error) => {
                self.note_failure(statement, matches!(error, ClientError::Refused { .. }));
                None
            }
        }
    }

    fn is_wrong(&mut self, statement: &Statement, answer: &StatementAnswer) -> bool {
        let column = || {
            answer
                .rows
                .iter()
                .map(|row| row.first().and_then(Option::as_deref))
        };
        match &statement.expected {
            Expected::Rows(rows) => !column().eq(rows.iter().map(|row| Some(row.as_str()))),
            Expected::Affected(count) => answer.affected != *count,
            Expected::Counter => {
                let value = column().next().flatten().and_then(|value| value.parse().ok());
                !value.is_some_and(|value| self.counter.shows(value))
            }
            Expected::Nothing => false,
        }
    }

    fn expected_in_words(&self, statement: &Statement) -> String {
        let Counter {
            least, most, pending, ..
        } = self.counter;
        match &statement.expected {
            Expected::Counter => format!("{} to {}", least + pending, most + pending),
            expected => format!("{expected:?}"),
        }
    }

    fn note_success(&mut self, statement: &Statement) {
        match (statement.template, statement.doing) {
            (Template::Increment, Doing::Transaction) => self.counter.pending += 1,
            (Template::Increment, _) => self.counter.done(1),
            (Template::Commit, _) if self.counter.pending > 0 => {
                let pending = std::mem::take(&mut self.counter.pending);
                self.counter.done(pending);
            }
            _ => {}
        }
    }

    /// The rest of a transaction is left out. Where the connection goes on it is told that it has ended.
    fn note_failure(&mut self, statement: &Statement, goes_on: bool) {
        let pending = std::mem::take(&mut self.counter.pending);
        match (statement.template, statement.doing) {
            (Template::Commit, _) => self.counter.unknown(pending),
            (Template::Increment, Doing::Write) => self.counter.unknown(1),
            _ => {}
        }
        if statement.doing != Doing::Transaction {
            return;
        }
        self.queue.clear();
        if goes_on {
            self.queue
                .push_back(Statement::bare(Template::Rollback, Doing::Rollback));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: u64) -> Result<StatementAnswer, ClientError> {
        Ok(StatementAnswer {
            rows: vec![vec![Some(value.to_string())]],
            affected: 0,
        })
    }

    fn changed() -> Result<StatementAnswer, ClientError> {
        Ok(StatementAnswer {
            rows: Vec::new(),
            affected: 1,
        })
    }

    fn refused() -> Result<StatementAnswer, ClientError> {
        Err(ClientError::Refused {
            code: 1290,
            message: "read only".to_owned(),
        })
    }

    /// Says what comes until this statement, all of which is answered as it should be.
    fn until(script: &mut Script, template: Template, doing: Doing) -> Statement {
        loop {
            let statement = script.next();
            if (statement.template, statement.doing) == (template, doing) {
                return statement;
            }
            let answer = match &statement.expected {
                Expected::Rows(rows) => Ok(StatementAnswer {
                    rows: rows.iter().map(|row| vec![Some(row.clone())]).collect(),
                    affected: 0,
                }),
                Expected::Counter => shown(script.counter.least + script.counter.pending),
                Expected::Affected(_) | Expected::Nothing => changed(),
            };
            assert_eq!(script.answered(&statement, &answer), None);
        }
    }

    #[test]
    fn what_was_acknowledged_must_be_shown_once() {
        let mut script = Script::new(1, Work::ReadsAndWrites, false);
        let write = until(&mut script, Template::Increment, Doing::Write);
        let before = script.counter.least;
        assert_eq!(script.answered(&write, &changed()), None);
        let read = until(&mut script, Template::Counter, Doing::Read);
        for wrong in [before, before + 2] {
            assert!(script.answered(&read, &shown(wrong)).is_some());
        }
        assert_eq!(script.answered(&read, &shown(before + 1)), None);
    }

    #[test]
    fn what_failed_may_have_been_done() {
        let mut script = Script::new(1, Work::ReadsAndWrites, false);
        let write = until(&mut script, Template::Increment, Doing::Write);
        let before = script.counter.least;
        script.answered(&write, &refused());
        let read = until(&mut script, Template::Counter, Doing::Read);
        // A replica that is behind shows it later.
        for value in [before, before + 1, before + 1] {
            assert_eq!(script.answered(&read, &shown(value)), None);
        }
        assert!(
            script.answered(&read, &shown(before)).is_some(),
            "it was there already"
        );
    }

    #[test]
    fn a_transaction_that_fails_leaves_nothing() {
        let mut script = Script::new(1, Work::ReadsAndWrites, false);
        let delete = until(&mut script, Template::Delete, Doing::Transaction);
        let before = script.counter;
        assert_eq!(before.pending, 1);
        script.answered(&delete, &refused());
        assert_eq!(script.next().template, Template::Rollback);
        assert!(script.is_between_turns());
        assert_eq!(
            (script.counter.least, script.counter.most),
            (before.least, before.most)
        );
    }

    #[test]
    fn who_reads_only_never_writes() {
        let mut script = Script::new(1, Work::Reads, true);
        assert_eq!(script.opening().unwrap(), "SET @client = 1");
        for _ in 0..500 {
            let statement = script.next();
            let text = statement.text();
            let is_read = ["SELECT", "START TRANSACTION READ ONLY", "COMMIT"];
            assert!(is_read.iter().any(|begin| text.starts_with(begin)), "{text}");
            assert!(!text.contains('?'), "{text}");
        }
    }
}
