//! Tells two folders apart: what was captured and what was replayed, or two replays.
//!
//! Commands are paired by session and number. Both folders are read side by side, so that only those wait in
//! memory whose counterpart has not come yet.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use hdrhistogram::Histogram;
use mysql_wire::Command;
use serde::Serialize;

use crate::file::{FileError, Folder};
use crate::record::{CommandRecord, Flags, Lateness, Record, ResultRecord, plain};
use crate::seal::Key;
use crate::volatile::{Named, may_tie, named, orders, volatile, volatile_source};

/// Different statements that are told apart; the rest is counted together.
const DIGESTS_MAX: usize = 5000;
/// Bytes of texts of prepared statements. Executions of others are masked, since their text is not known.
const TEXTS_MAX: usize = 64 << 20;
/// Bytes of commands that wait for their counterpart, without those of kept results.
const WAITING_MAX: usize = 1 << 30;
/// Statements that sessions have prepared as text (`PREPARE`), of which it is known what masks their results.
const NAMED_MAX: usize = 50_000;
/// The end of a folder that lacks something.
const FAILED: &str = "error";
/// The reason why results of executions are masked that may be of any statement.
const TEXT_UNKNOWN: &str = "executions whose text is not known";
/// Letters of an example.
const EXAMPLE_MAX: usize = 1000;
/// Examples of a difference, for each statement.
const EXAMPLES: usize = 3;
/// Bytes of kept results whose commands wait for their counterpart, and of those of examples.
const RESULTS_MAX: usize = 64 << 20;

/// What two folders have in common, and what not.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Comparison {
    pub a: Side,
    pub b: Side,
    pub total: Difference,
    /// By statement, those with differences first, then those that have become slower.
    pub statements: Vec<Statement>,
    /// What the results have that differ each time, and how many commands: they are not compared.
    pub masked: BTreeMap<String, u64>,
    /// Commands that one side has not sent.
    pub left_out: u64,
    /// Commands of the first folder that the second does not have.
    pub missing: u64,
    /// Commands of the second folder that the first does not have.
    pub added: u64,
    /// Commands that were not compared, since too many waited for their counterpart already. Those
    /// counterparts may be among what only one folder has.
    pub no_room: u64,
}

/// A folder.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Side {
    pub folder: String,
    /// `capture` or `replay`.
    pub kind: String,
    /// The versions of its servers.
    pub versions: Vec<String>,
    /// Why it has ended; empty where it has no end.
    pub end: String,
    /// Sessions of which only the beginning was captured.
    pub thinned_sessions: u64,
    /// Files that could not be read to their end.
    pub stops: Vec<String>,
    /// Lateness of each of its folders that is a replay in time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lateness: Vec<LatenessOf>,
}

impl Side {
    /// Not all that was written of it is there, or an error has ended it.
    fn is_cut(&self) -> bool {
        self.end.is_empty() || self.end == FAILED || !self.stops.is_empty()
    }

    /// Which folders have times that are worth nothing, and why, in words.
    #[must_use]
    pub fn worthless_times(&self) -> Vec<String> {
        let all = self.lateness.iter();
        let words = |one: &LatenessOf| Some(format!("{}: {}", one.folder, one.lateness.verdict()?));
        all.filter_map(words).collect()
    }
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct LatenessOf {
    pub folder: String,
    #[serde(flatten)]
    pub lateness: Lateness,
}

/// How answers differ. Counts of commands.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Difference {
    /// Commands that both have.
    pub commands: u64,
    /// Errors that only the second has, or whose answer was lost there.
    pub new_errors: u64,
    /// Errors that only the first has.
    pub gone_errors: u64,
    /// Errors of both, with different codes.
    pub other_errors: u64,
    pub rows: u64,
    pub affected_rows: u64,
    /// The same count of rows with different values, or in another order where that counts.
    pub values: u64,
    pub warnings: u64,
    /// Results whose values were not compared: too long, masked, or not known.
    pub unchecked: u64,
    /// Commands of which one side, an import, does not know whether they have failed.
    pub not_known: u64,
    /// Commands of which both know the time. Where there is none the times below mean nothing.
    pub timed: u64,
    pub a: Latency,
    pub b: Latency,
    #[serde(skip)]
    times: Times,
}

impl Difference {
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.new_errors + self.gone_errors + self.other_errors
    }

    #[must_use]
    pub fn results(&self) -> u64 {
        self.rows + self.affected_rows + self.values
    }
}

/// Milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latency {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

/// Distributions of times, in microseconds.
#[derive(Debug, Clone, Default, PartialEq)]
struct Times(Option<Box<(Histogram<u32>, Histogram<u32>)>>);

/// A kind of statement.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Statement {
    /// In hexadecimal; empty for commands without a text.
    pub digest: String,
    pub command: String,
    /// One of its texts.
    pub text: String,
    /// What makes its result differ each time.
    pub masked: Option<String>,
    pub is_ordered: bool,
    /// `ORDER BY` or `LIMIT` is in it: ties may explain other values, or another order.
    pub may_tie: bool,
    #[serde(flatten)]
    pub difference: Difference,
    /// What has differed, the first few times.
    pub examples: Vec<String>,
    /// Where both servers were asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plans: Option<Plans>,
    /// Both results of examples whose rows or values differ, where both folders have kept them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<BothResults>,
}

/// The first rows of both results of an example: a line for each row, with tabs between its cells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BothResults {
    /// Which of the examples, from 0.
    pub example: usize,
    pub a: String,
    pub b: String,
}

/// How both servers execute a statement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Plans {
    /// The text that both servers were asked about, with its values.
    pub text: String,
    /// The plan of the first server: a line for each row, or why there is none.
    pub a: String,
    /// The plan of the second.
    pub b: String,
}

/// What is kept of a command until its counterpart has come.
pub(crate) struct WaitingCommand {
    digest: u64,
    command: u8,
    flags: Flags,
    error: u16,
    rows: u64,
    affected_rows: u64,
    warnings: u16,
    took_us: u64,
    start_us: u64,
    checks: crate::record::Checks,
    /// Of the first folder: a text.
    text: Vec<u8>,
    /// The reason why the result of an `EXECUTE` is masked, beside those in its own text.
    masked: Option<String>,
    /// The first rows, where they were kept.
    result: Option<String>,
}

impl From<CommandRecord> for WaitingCommand {
    fn from(record: CommandRecord) -> Self {
        let text = if record.is_text() { record.body } else { Vec::new() };
        Self {
            digest: record.digest,
            command: record.command,
            flags: record.flags,
            error: record.error,
            rows: record.rows,
            affected_rows: record.affected_rows,
            warnings: record.warnings,
            took_us: record.took_us,
            start_us: record.start_us,
            checks: record.checks,
            text,
            masked: None,
            result: None,
        }
    }
}

impl WaitingCommand {
    fn result_len(&self) -> usize {
        self.result.as_ref().map_or(0, String::len)
    }

    /// Bytes without those of the result.
    fn len(&self) -> usize {
        size_of::<Self>() + self.text.len() + size_of_val(self.checks.as_slice())
    }
}

/// Compares a folder with another one, or with those of several replayers that have each replayed a part of
/// it. `key`: with which those of them are sealed that are.
pub fn compare<P: AsRef<Path>>(a: &Path, b: &[P], key: Option<&Key>) -> Result<Comparison, FileError> {
    compare_within(WAITING_MAX, a, b, key)
}

fn compare_within<P: AsRef<Path>>(
    waiting_max: usize,
    a: &Path,
    b: &[P],
    key: Option<&Key>,
) -> Result<Comparison, FileError> {
    let parts = b
        .iter()
        .map(|part| Folder::open_one_of_several(part.as_ref(), key).map(|folder| (part.as_ref(), folder)));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let mut sides = [
        Reading::of(vec![(a, Folder::open_one_of_several(a, key)?)]),
        Reading::of(parts),
    ];
    let mut comparing = Comparing::default();
    let mut waits = Waits::new(waiting_max);
    while waits.is_over != [true; 2] {
        for side in [0, 1] {
            let Some((record, result)) = sides[side].next_command()? else {
                waits.end(side);
                continue;
            };
            let place = (record.session, record.number);
            let mut this = WaitingCommand::from(record);
            this.result = result;
            match side {
                0 => comparing.learn(place.0, &mut this),
                _ => this.text = Vec::new(),
            }
            if let Some([a, b]) = waits.meet(side, place, this) {
                comparing.pair(place, &a, &b);
            }
        }
    }
    let [a, b] = sides;
    Ok(comparing.conclude(a.side(), b.side(), &waits))
}

/// Commands of both sides whose counterpart has not come yet.
#[derive(Default)]
struct Waits {
    waiting: [HashMap<(u32, u64), WaitingCommand>; 2],
    is_over: [bool; 2],
    /// How many of each side have no counterpart.
    alone: [u64; 2],
    /// Commands that found no room in which to wait.
    no_room: u64,
    /// Bytes of those that wait, without their results, and how many there may be.
    bytes: usize,
    bytes_max: usize,
    /// Bytes of the results that wait with them.
    results: usize,
}

impl Waits {
    fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            ..Self::default()
        }
    }

    /// A command of a side with its counterpart, the one of the first side in front. Without one it waits, as
    /// long as the other side goes on: of a replay that was killed most of a capture may be missing.
    fn meet(&mut self, side: usize, place: (u32, u64), this: WaitingCommand) -> Option<[WaitingCommand; 2]> {
        if let Some(other) = self.waiting[1 - side].remove(&place) {
            self.forget(&other);
            return Some(if side == 0 { [this, other] } else { [other, this] });
        }
        match self.is_over[1 - side] {
            true => self.alone[side] += 1,
            false => self.keep(side, place, this),
        }
        None
    }

    /// Has a command wait. Where too many wait already the command is only counted, and where too many
    /// results wait it goes without its own.
    fn keep(&mut self, side: usize, place: (u32, u64), mut this: WaitingCommand) {
        if self.bytes + this.len() > self.bytes_max {
            self.no_room += 1;
            return;
        }
        if self.results + this.result_len() > RESULTS_MAX {
            this.result = None;
        }
        self.bytes += this.len();
        self.results += this.result_len();
        // Two replayers may have sent the same.
        if let Some(same) = self.waiting[side].insert(place, this) {
            self.forget(&same);
            self.alone[side] += 1;
        }
    }

    /// Takes the bytes of a command off that does not wait any further.
    fn forget(&mut self, waiting: &WaitingCommand) {
        self.bytes -= waiting.len();
        self.results -= waiting.result_len();
    }

    /// Nothing more comes of a side.
    fn end(&mut self, side: usize) {
        self.is_over[side] = true;
        let waiting = std::mem::take(&mut self.waiting[1 - side]);
        self.alone[1 - side] += waiting.len() as u64;
        for waiting in waiting.values() {
            self.forget(waiting);
        }
    }
}

/// A folder that is read, or several as if they were one: a command of each in turn.
struct Reading {
    folders: Vec<Folder>,
    names: Vec<String>,
    /// How each has ended, as far as it has.
    ends: Vec<Option<String>>,
    /// The result that was read last of each folder: its command comes behind.
    results: Vec<Option<ResultRecord>>,
    /// Whose turn it is.
    turn: usize,
    side: Side,
}

impl Reading {
    fn of(folders: Vec<(&Path, Folder)>) -> Self {
        let mut side = Side::default();
        let names: Vec<_> = folders
            .iter()
            .map(|(path, _)| path.display().to_string())
            .collect();
        side.folder = names.join(", ");
        for (_, folder) in &folders {
            let head = folder.head();
            side.kind.clone_from(&head.kind);
            let versions = head.servers.iter().filter_map(|server| server.version.clone());
            for version in versions {
                if folders.len() == 1 || !side.versions.contains(&version) {
                    side.versions.push(version);
                }
            }
        }
        Self {
            names,
            ends: vec![None; folders.len()],
            results: vec![None; folders.len()],
            folders: folders.into_iter().map(|(_, folder)| folder).collect(),
            turn: 0,
            side,
        }
    }

    /// A command, and what was kept of its result.
    fn next_command(&mut self) -> Result<Option<(CommandRecord, Option<String>)>, FileError> {
        for _ in 0..self.folders.len() {
            self.turn = (self.turn + 1) % self.folders.len();
            while let Some(record) = self.folders[self.turn].next_record()? {
                match record {
                    Record::Command(command) => {
                        let place = (command.session, command.number);
                        let result = self.results[self.turn].take();
                        let result = result.filter(|result| (result.session, result.number) == place);
                        return Ok(Some((*command, result.map(|result| result.text))));
                    }
                    Record::Result(result) => self.results[self.turn] = Some(result),
                    Record::Thinned { .. } => self.side.thinned_sessions += 1,
                    Record::End(end) => {
                        if let Some(lateness) = end.lateness {
                            let folder = self.names[self.turn].clone();
                            self.side.lateness.push(LatenessOf { folder, lateness });
                        }
                        self.ends[self.turn] = Some(end.reason);
                    }
                    Record::Head(_) | Record::Session(_) => {}
                }
            }
        }
        Ok(None)
    }

    fn side(self) -> Side {
        // Each of several has to have its end, and one that has failed counts.
        let ends: Option<Vec<String>> = self.ends.into_iter().collect();
        Side {
            end: ends
                .and_then(|ends| ends.into_iter().max_by_key(|end| end == FAILED))
                .unwrap_or_default(),
            stops: self
                .folders
                .iter()
                .flat_map(crate::offline::stops_in_words)
                .collect(),
            ..self.side
        }
    }
}

#[derive(Default)]
struct Comparing {
    comparison: Comparison,
    /// By digest and command.
    statements: HashMap<(u64, u8), Statement>,
    /// Texts of prepared statements, by digest: executions have none.
    texts: HashMap<u64, Vec<u8>>,
    /// Bytes of `texts`.
    text_bytes: usize,
    /// By session and name: what masks results of a statement that was prepared as text.
    named: HashMap<u32, HashMap<Vec<u8>, Option<String>>>,
    /// The number of names in `named`, of all sessions.
    names: usize,
    /// Bytes of the results of examples.
    results: usize,
}

impl Comparing {
    /// An execution is told by the text of its statement.
    fn learn(&mut self, session: u32, command: &mut WaitingCommand) {
        match Command(command.command) {
            Command::QUERY => self.learn_named(session, command),
            Command::QUIT | Command::RESET_CONNECTION | Command::CHANGE_USER => {
                self.names -= self.named.remove(&session).map_or(0, |names| names.len());
            }
            Command::STMT_PREPARE => {
                let bytes = self.text_bytes + command.text.len();
                let has_room = self.texts.len() < DIGESTS_MAX && bytes <= TEXTS_MAX;
                if has_room && !self.texts.contains_key(&command.digest) {
                    self.text_bytes = bytes;
                    self.texts.insert(command.digest, command.text.clone());
                }
            }
            Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => {
                if let Some(text) = self.texts.get(&command.digest) {
                    command.text.clone_from(text);
                }
            }
            _ => {}
        }
    }

    /// Learns the names of statements that are prepared as text: `EXECUTE` has only the name.
    fn learn_named(&mut self, session: u32, command: &mut WaitingCommand) {
        let unknown = || Some(TEXT_UNKNOWN.to_owned());
        let masks = |source| volatile_source(source).unwrap_or_else(|()| unknown());
        match named(&command.text) {
            Some(Named::Prepares(name, source)) => {
                let names = self.named.entry(session).or_default();
                if self.names < NAMED_MAX || names.contains_key(&name) {
                    self.names += usize::from(names.insert(name, masks(source)).is_none());
                }
            }
            Some(Named::Executes(name)) => {
                let known = self.named.get(&session).and_then(|names| names.get(&name));
                command.masked = known.cloned().unwrap_or_else(unknown);
            }
            Some(Named::ExecutesAtOnce(source)) => command.masked = masks(source),
            None => {}
        }
    }

    fn pair(&mut self, place: (u32, u64), a: &WaitingCommand, b: &WaitingCommand) {
        if a.flags.has(Flags::LEFT_OUT) || b.flags.has(Flags::LEFT_OUT) {
            self.comparison.left_out += 1;
            return;
        }
        let mut key = (a.digest, a.command);
        if self.statements.len() >= DIGESTS_MAX && !self.statements.contains_key(&key) {
            key = (0, 0);
        }
        let statement = self.statements.entry(key).or_insert_with(|| Statement {
            digest: match key.0 {
                0 => String::new(),
                digest => format!("{digest:016x}"),
            },
            command: match key {
                (0, 0) => "other".to_owned(),
                (_, command) => Command(command).name().to_owned(),
            },
            ..Statement::default()
        });
        // An execution before may have had no text.
        if statement.text.is_empty() {
            statement.text = plain(&a.text, EXAMPLE_MAX);
            statement.masked = masked(a).filter(|_| key != (0, 0));
            statement.is_ordered = orders(&a.text) && key != (0, 0);
            statement.may_tie = may_tie(&a.text) && key != (0, 0);
        }
        // Statements that are counted together have little in common.
        let (masking, is_ordered) = match key {
            (0, 0) => (masked(a), orders(&a.text)),
            _ => (statement.masked.clone(), statement.is_ordered),
        };
        let masking = a.masked.clone().or(masking);
        let found = differ(a, b, masking.is_some(), is_ordered);
        if let Some(name) = masking {
            *self.comparison.masked.entry(name).or_default() += 1;
        }
        for difference in [&mut statement.difference, &mut self.comparison.total] {
            found.note(difference);
            if !a.flags.has(Flags::TIME_UNKNOWN) && !b.flags.has(Flags::TIME_UNKNOWN) {
                difference.timed += 1;
                difference.times.note(a.took_us, b.took_us);
            }
        }
        if let Some(words) = found.words(a, b)
            && statement.examples.len() < EXAMPLES
        {
            let len = a.result_len() + b.result_len();
            if let (Some(a), Some(b)) = (&a.result, &b.result)
                && (found.rows || found.values)
                && self.results + len <= RESULTS_MAX
            {
                self.results += len;
                statement.results.push(BothResults {
                    example: statement.examples.len(),
                    a: a.clone(),
                    b: b.clone(),
                });
            }
            statement.examples.push(format!(
                "session {} command {} at {:.3} s: {words}: {}",
                place.0,
                place.1,
                a.start_us as f64 / 1e6,
                plain(&a.text, EXAMPLE_MAX)
            ));
        }
    }

    fn conclude(self, a: Side, b: Side, waits: &Waits) -> Comparison {
        let mut statements: Vec<_> = self.statements.into_values().collect();
        for statement in &mut statements {
            statement.difference.settle();
        }
        let worst = |statement: &Statement| {
            let difference = &statement.difference;
            let slower = difference.b.p99 - difference.a.p99;
            (difference.errors() + difference.results(), slower)
        };
        statements.sort_by(|one, other| {
            let ((one_count, one_slower), (other_count, other_slower)) = (worst(one), worst(other));
            other_count
                .cmp(&one_count)
                .then(other_slower.total_cmp(&one_slower))
                .then(one.digest.cmp(&other.digest))
        });
        let mut comparison = Comparison {
            a,
            b,
            statements,
            missing: waits.alone[0],
            added: waits.alone[1],
            no_room: waits.no_room,
            ..self.comparison
        };
        comparison.total.settle();
        comparison
    }
}

impl Times {
    fn note(&mut self, a: u64, b: u64) {
        if self.0.is_none() {
            let new = || Histogram::new(2).ok();
            self.0 = new().zip(new()).map(Box::new);
        }
        if let Some(times) = &mut self.0 {
            // They grow as they need.
            let _ = (times.0.record(a), times.1.record(b));
        }
    }
}

impl Latency {
    /// `at`: the time of a quantile, in milliseconds.
    pub(crate) fn of(at: impl Fn(f64) -> f64) -> Self {
        Self {
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
        }
    }
}

impl Difference {
    fn settle(&mut self) {
        let of =
            |times: &Histogram<u32>| Latency::of(|quantile| times.value_at_quantile(quantile) as f64 / 1e3);
        if let Some(times) = &self.times.0 {
            (self.a, self.b) = (of(&times.0), of(&times.1));
        }
    }
}

/// The name of what makes a result differ each time. An execution whose text is not known may have any.
fn masked(a: &WaitingCommand) -> Option<String> {
    let executions = [Command::STMT_EXECUTE, Command::STMT_BULK_EXECUTE];
    match a.text.is_empty() && executions.contains(&Command(a.command)) {
        true => Some(TEXT_UNKNOWN.to_owned()),
        false => volatile(&a.text),
    }
}

/// How one pair differs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    new_error: bool,
    gone_error: bool,
    other_error: bool,
    rows: bool,
    affected_rows: bool,
    values: bool,
    /// The values differ in nothing but their order.
    reordered: bool,
    warnings: bool,
    pub(crate) unchecked: bool,
    not_known: bool,
}

pub(crate) fn differ(a: &WaitingCommand, b: &WaitingCommand, is_masked: bool, is_ordered: bool) -> Found {
    let mut found = Found::default();
    if b.flags.has(Flags::LOST) && !a.flags.has(Flags::LOST) {
        found.new_error = true;
        return found;
    }
    // What became of it is not known.
    if a.flags.has(Flags::LOST) {
        found.unchecked = true;
        return found;
    }
    let is_unknown = |what: Flags| a.flags.has(what) || b.flags.has(what);
    found.not_known = is_unknown(Flags::ERROR_UNKNOWN);
    match (a.error, b.error) {
        (0, 0) => {}
        // What became of it on one side is not known.
        _ if found.not_known => return found,
        (0, _) => found.new_error = true,
        (_, 0) => found.gone_error = true,
        (one, other) => found.other_error = one != other,
    }
    if a.error != 0 || b.error != 0 {
        return found;
    }
    // It may have failed on the one side, so that there were no rows.
    let may_have_failed = |side: &WaitingCommand| {
        side.flags.has(Flags::ERROR_UNKNOWN) && (side.rows, side.affected_rows) == (0, 0)
    };
    let differs = (a.rows, a.affected_rows) != (b.rows, b.affected_rows);
    if differs && (may_have_failed(a) || may_have_failed(b)) {
        found.unchecked = true;
        return found;
    }
    found.affected_rows = a.affected_rows != b.affected_rows && !is_unknown(Flags::AFFECTED_UNKNOWN);
    found.warnings = a.warnings != b.warnings && !is_unknown(Flags::WARNINGS_UNKNOWN);
    if is_masked {
        found.unchecked = true;
        return found;
    }
    found.rows = a.rows != b.rows && !is_unknown(Flags::ROWS_UNKNOWN);
    if found.rows {
        return found;
    }
    if is_unknown(Flags::UNCHECKED) || is_unknown(Flags::ROWS_UNKNOWN) {
        found.unchecked = true;
        return found;
    }
    let same = |is_ordered: bool| {
        let mut both = a.checks.iter().zip(&b.checks);
        let same = both.all(|(a, b)| a.sum == b.sum && (a.chain == b.chain || !is_ordered));
        same && a.checks.len() == b.checks.len()
    };
    found.values = !same(is_ordered);
    found.reordered = found.values && same(false);
    found
}

impl Found {
    fn note(&self, difference: &mut Difference) {
        difference.commands += 1;
        difference.new_errors += u64::from(self.new_error);
        difference.gone_errors += u64::from(self.gone_error);
        difference.other_errors += u64::from(self.other_error);
        difference.rows += u64::from(self.rows);
        difference.affected_rows += u64::from(self.affected_rows);
        difference.values += u64::from(self.values);
        difference.warnings += u64::from(self.warnings);
        difference.unchecked += u64::from(self.unchecked);
        difference.not_known += u64::from(self.not_known);
    }

    /// In one word the first thing that differs, as [`words`](Self::words) has it; `None` where nothing does.
    pub(crate) fn first(&self) -> Option<&'static str> {
        let all = [
            (self.new_error || self.gone_error || self.other_error, "errors"),
            (self.rows, "rows"),
            (self.affected_rows, "affected_rows"),
            (self.values, "values"),
            (self.warnings, "warnings"),
        ];
        all.into_iter()
            .find_map(|(differs, word)| differs.then_some(word))
    }

    pub(crate) fn words(&self, a: &WaitingCommand, b: &WaitingCommand) -> Option<String> {
        let error = |waiting: &WaitingCommand| match (waiting.flags.has(Flags::LOST), waiting.error) {
            (true, _) => "lost".to_owned(),
            (false, 0) => "none".to_owned(),
            (false, code) => code.to_string(),
        };
        if self.new_error || self.gone_error || self.other_error {
            return Some(format!("error {} → {}", error(a), error(b)));
        }
        if self.rows {
            return Some(format!("{} → {} rows", a.rows, b.rows));
        }
        if self.affected_rows {
            return Some(format!("{} → {} affected rows", a.affected_rows, b.affected_rows));
        }
        if self.reordered {
            return Some(format!("another order of {} rows", a.rows));
        }
        if self.values {
            return Some(format!("other values in {} rows", a.rows));
        }
        let warnings = || format!("{} → {} warnings", a.warnings, b.warnings);
        self.warnings.then(warnings)
    }
}

/// When a comparison counts as failed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FailOn {
    errors: bool,
    rows: bool,
    warnings: bool,
    missing: bool,
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
}

impl FailOn {
    /// Whether other rows make it fail.
    #[must_use]
    pub fn looks_at_results(&self) -> bool {
        self.rows
    }

    /// Reads `errors,rows,warnings,missing,p50=1.2,p95=1.5,p99=2`. `rows` is rows, affected rows and values;
    /// the others are how many times as slow all commands together may be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut fail_on = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                None => match word {
                    "errors" => fail_on.errors = true,
                    "rows" => fail_on.rows = true,
                    "warnings" => fail_on.warnings = true,
                    "missing" => fail_on.missing = true,
                    "none" => {}
                    _ => {
                        return Err(format!(
                            "{word:?}: errors, rows, warnings, missing, p50=N, p95=N, p99=N or none"
                        ));
                    }
                },
                Some((name, ratio)) => {
                    let wrong = || format!("{word:?}: how many times as slow, like p99=1.5");
                    let ratio = ratio.parse().ok().filter(|ratio: &f64| *ratio > 0.0);
                    let ratio = Some(ratio.ok_or_else(wrong)?);
                    match name {
                        "p50" => fail_on.p50 = ratio,
                        "p95" => fail_on.p95 = ratio,
                        "p99" => fail_on.p99 = ratio,
                        _ => return Err(wrong()),
                    }
                }
            }
        }
        Ok(fail_on)
    }

    /// Why the comparison has failed, in words; empty where it has not. Nothing that both have is a failure,
    /// too.
    #[must_use]
    pub fn failures(&self, comparison: &Comparison) -> Vec<String> {
        let total = &comparison.total;
        let mut failures = Vec::new();
        if total.commands == 0 {
            failures.push("the folders have no command in common".to_owned());
        }
        if comparison.no_room > 0 {
            failures.push(format!(
                "{} commands found no room in which to wait for their counterpart, and were not compared",
                comparison.no_room
            ));
        }
        if self.errors && total.errors() > 0 {
            failures.push(format!("{} answers with other errors", total.errors()));
        }
        if self.rows && total.results() > 0 {
            failures.push(format!("{} results differ", total.results()));
        }
        if self.warnings && total.warnings > 0 {
            failures.push(format!(
                "{} answers with other counts of warnings",
                total.warnings
            ));
        }
        if self.missing && comparison.missing > 0 {
            failures.push(format!("{} commands are missing", comparison.missing));
        }
        // A folder that was killed, cut or damaged shows no differences in the commands that it lacks.
        for (name, side, lacks) in [
            ("a", &comparison.a, comparison.added),
            ("b", &comparison.b, comparison.missing),
        ] {
            if (self.errors || self.rows) && side.is_cut() && lacks > 0 {
                failures.push(format!(
                    "{name} is cut or has not come to its end, and lacks {lacks} commands"
                ));
            }
        }
        let is_timed = total.timed > 0;
        let judges_times = [self.p50, self.p95, self.p99].iter().any(Option::is_some);
        let sides = [&comparison.a, &comparison.b];
        let worthless: Vec<_> = sides.into_iter().flat_map(Side::worthless_times).collect();
        if judges_times && !worthless.is_empty() {
            failures.extend(worthless);
            return failures;
        }
        for (name, limit, a, b) in [
            ("p50", self.p50, total.a.p50, total.b.p50),
            ("p95", self.p95, total.a.p95, total.b.p95),
            ("p99", self.p99, total.a.p99, total.b.p99),
        ] {
            let Some(limit) = limit else { continue };
            if !is_timed {
                failures.push(format!("{name}: one of the folders knows no times"));
            } else if b > a * limit {
                failures.push(format!(
                    "{name}: {a:.3} → {b:.3} ms, more than {limit} times as slow"
                ));
            }
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::file::FolderWriter;
    use crate::record::{Check, Head};
    use crate::report;

    fn query(number: u64, text: &str, change: impl FnOnce(&mut CommandRecord)) -> CommandRecord {
        let mut record = CommandRecord {
            session: 1,
            number,
            took_us: 1000,
            command: Command::QUERY.0,
            digest: sql_class::digest(text.as_bytes(), sql_class::Syntax::default()).hash,
            body: text.as_bytes().to_vec(),
            rows: 2,
            checks: [Check { sum: 5, chain: 6 }; 2].into(),
            ..CommandRecord::default()
        };
        change(&mut record);
        record
    }

    fn write(folder: &Path, records: Vec<CommandRecord>) -> PathBuf {
        let mut writer = FolderWriter::create(folder, Head::default(), 1 << 20, None).unwrap();
        for record in records {
            writer.put(&Record::Command(Box::new(record))).unwrap();
        }
        writer.finish().unwrap();
        folder.to_owned()
    }

    fn of(a: Vec<CommandRecord>, b: Vec<CommandRecord>) -> Comparison {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| place.path().join(name);
        let (a, b) = (write(&folder("a"), a), write(&folder("b"), b));
        compare(&a, &[b], None).unwrap()
    }

    #[test]
    fn the_same_has_no_difference() {
        let records = || vec![query(0, "SELECT a FROM t", |_| {}), query(1, "SELECT 1", |_| {})];
        let comparison = of(records(), records().into_iter().rev().collect());
        assert_eq!(comparison.total.commands, 2);
        assert_eq!((comparison.total.errors(), comparison.total.results()), (0, 0));
        let fail_on = FailOn::parse("errors,rows,warnings,missing,p99=1.1").unwrap();
        assert_eq!(fail_on.failures(&comparison), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_difference_is_told() {
        let text = "SELECT a FROM t";
        type Change = fn(&mut CommandRecord);
        let changes: [(&str, Change); 6] = [
            ("new_errors", |record| record.error = 1146),
            ("new_errors", |record| record.flags.set(Flags::LOST)),
            ("rows", |record| record.rows = 3),
            ("values", |record| record.checks[1].sum = 9),
            ("affected_rows", |record| record.affected_rows = 1),
            ("warnings", |record| record.warnings = 1),
        ];
        for (what, change) in changes {
            let comparison = of(vec![query(0, text, |_| {})], vec![query(0, text, change)]);
            let json = serde_json::to_value(&comparison.total).unwrap();
            for name in ["new_errors", "rows", "values", "affected_rows", "warnings"] {
                assert_eq!(json[name], u64::from(name == what), "{what}: {name}");
            }
            assert_eq!(comparison.statements[0].examples.len(), 1, "{what}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_compared() {
        let text = "SELECT a FROM t";
        type Change = fn(&mut CommandRecord);
        let changes: [(Flags, Change); 5] = [
            (Flags::ERROR_UNKNOWN, |record| record.error = 1146),
            (Flags::ROWS_UNKNOWN, |record| record.rows = 0),
            (Flags::AFFECTED_UNKNOWN, |record| record.affected_rows = 1),
            (Flags::WARNINGS_UNKNOWN, |record| record.warnings = 1),
            (Flags::TIME_UNKNOWN, |record| record.took_us = 0),
        ];
        for (unknown, change) in changes {
            let a = query(0, text, |record| {
                change(record);
                record.flags.set(unknown);
            });
            let comparison = of(vec![a], vec![query(0, text, |_| {})]);
            let total = &comparison.total;
            assert_eq!(
                (total.errors(), total.results(), total.warnings),
                (0, 0, 0),
                "{unknown:?}"
            );
            assert_eq!(total.not_known, u64::from(unknown == Flags::ERROR_UNKNOWN));
            let fails = FailOn::parse("p50=1000").unwrap().failures(&comparison);
            assert_eq!(
                fails.len(),
                usize::from(unknown == Flags::TIME_UNKNOWN),
                "{fails:?}"
            );
        }
    }

    #[test]
    fn what_may_have_failed_had_no_rows_for_that() {
        let text = "SELECT a FROM t";
        for (rows, differs) in [(0, 0), (1, 1)] {
            let a = query(0, text, |record| {
                record.rows = rows;
                record.flags.set(Flags::ERROR_UNKNOWN);
            });
            let total = of(vec![a], vec![query(0, text, |_| {})]).total;
            assert_eq!((total.rows, total.not_known), (differs, 1), "{rows}");
        }
    }

    #[test]
    fn order_counts_where_the_statement_orders() {
        let change: fn(&mut CommandRecord) = |record| record.checks[0].chain = 9;
        for (text, differs) in [("SELECT a FROM t", 0), ("SELECT a FROM t ORDER BY a", 1)] {
            let comparison = of(vec![query(0, text, |_| {})], vec![query(0, text, change)]);
            assert_eq!(comparison.total.values, differs, "{text}");
        }
    }

    #[test]
    fn ties_may_explain_what_is_ordered_or_limited() {
        let order: fn(&mut CommandRecord) = |record| record.checks[0].chain = 9;
        let values: fn(&mut CommandRecord) = |record| record.checks[0].sum = 9;
        for (text, change, may_tie, words) in [
            (
                "SELECT a FROM t ORDER BY a",
                order,
                true,
                "another order of 2 rows",
            ),
            ("SELECT a FROM t LIMIT 2", values, true, "other values in 2 rows"),
            ("SELECT a FROM t", values, false, "other values in 2 rows"),
        ] {
            let comparison = of(vec![query(0, text, |_| {})], vec![query(0, text, change)]);
            assert!(comparison.statements[0].examples[0].contains(words), "{text}");
            let fails = FailOn::parse("rows").unwrap().failures(&comparison);
            assert_eq!(fails.len(), 1, "{text}: {fails:?}");
            for report in [report::text(&comparison), report::html(&comparison, &[])] {
                assert_eq!(report.contains("Ties may explain"), may_tie, "{report}");
            }
        }
    }

    #[test]
    fn what_differs_each_time_is_masked_and_listed() {
        let text = "SELECT NOW(), a FROM t";
        let comparison = of(
            vec![query(0, text, |_| {})],
            vec![query(0, text, |record| record.checks[0].sum = 9)],
        );
        assert_eq!(comparison.total.results(), 0);
        assert_eq!(comparison.masked.get("now"), Some(&1));
    }

    #[test]
    fn an_execution_is_masked_as_its_text_is() {
        let of_all = |texts: &[&str], sum| {
            let records = texts.iter().zip(0..).flat_map(|(text, number)| {
                let prepare = query(2 * number, text, |record| {
                    record.command = Command::STMT_PREPARE.0
                });
                let execution = query(2 * number + 1, text, |record| {
                    record.command = Command::STMT_EXECUTE.0;
                    record.body.clear();
                    record.checks[0].sum = sum;
                });
                [prepare, execution]
            });
            records.collect::<Vec<_>>()
        };
        let texts = ["SELECT a FROM t", "SELECT NOW()"];
        let comparison = of(of_all(&texts, 5), of_all(&texts, 9));
        assert_eq!(
            (comparison.total.values, comparison.masked.get("now")),
            (1, Some(&2))
        );
        // The statement of this execution was prepared before the capture began.
        let last = |sum| of_all(&texts[1..], sum).split_off(1);
        let comparison = of(last(5), last(9));
        assert_eq!(comparison.total.values, 0);
        assert_eq!(comparison.masked.values().sum::<u64>(), 1);
        // Another session prepares it later.
        let again = |sum| {
            let known = of_all(&texts[..1], sum);
            let mut all = vec![known[1].clone()];
            all[0].session += 1;
            all.extend(known);
            all
        };
        let comparison = of(again(5), again(9));
        assert_eq!(comparison.total.values, 1);
        assert_eq!(comparison.masked, BTreeMap::from([(TEXT_UNKNOWN.to_owned(), 1)]));
    }

    #[test]
    fn an_execution_as_text_is_masked_as_the_text_of_its_prepare_is() {
        let compared = |prepare: &str, execute: &str| {
            let all = |sum| {
                let execute = query(1, execute, |record| record.checks[0].sum = sum);
                vec![query(0, prepare, |_| {}), execute]
            };
            let comparison = of(all(5), all(9));
            (comparison.total.values, comparison.masked)
        };
        let masked = |name: &str| (0, BTreeMap::from([(name.to_owned(), 1)]));
        let prepare = "PREPARE s FROM 'SELECT a FROM t'";
        assert_eq!(compared(prepare, "EXECUTE S USING @x"), (1, BTreeMap::new()));
        assert_eq!(compared(prepare, "EXECUTE other"), masked(TEXT_UNKNOWN));
        assert_eq!(compared("PREPARE s FROM @x", "EXECUTE s"), masked(TEXT_UNKNOWN));
        let (values, masks) = compared("PREPARE s FROM 'SELECT NOW()'", "EXECUTE s");
        assert_eq!((values, masks.get("now")), (0, Some(&1)));
        assert_eq!(
            compared("SELECT 1", "EXECUTE IMMEDIATE 'SELECT UUID()'"),
            masked("uuid")
        );
        assert_eq!(compared("SELECT 1", "EXECUTE IMMEDIATE @x"), masked(TEXT_UNKNOWN));
    }

    #[test]
    fn what_was_prepared_as_text_goes_with_its_session() {
        let mut comparing = Comparing::default();
        let mut learn = |command: Command, text: &str| {
            let record = query(0, text, |record| record.command = command.0);
            let mut waiting = WaitingCommand::from(record);
            comparing.learn(1, &mut waiting);
            (waiting.masked, comparing.names)
        };
        for command in [Command::QUIT, Command::RESET_CONNECTION, Command::CHANGE_USER] {
            for _ in 0..2 {
                learn(Command::QUERY, "PREPARE s FROM 'SELECT a FROM t'");
            }
            assert_eq!(learn(Command::QUERY, "EXECUTE s"), (None, 1));
            learn(command, "");
            let unknown = Some(TEXT_UNKNOWN.to_owned());
            assert_eq!(learn(Command::QUERY, "EXECUTE s"), (unknown, 0));
        }
    }

    #[test]
    fn those_that_are_counted_together_are_masked_each_for_itself() {
        let keep: fn(&mut CommandRecord) = |_| {};
        let many = |change: fn(&mut CommandRecord)| {
            let texts = (0..DIGESTS_MAX).map(|number| format!("SELECT a FROM t{number}"));
            let texts = texts.chain(["SELECT NOW()".to_owned(), "SELECT b FROM t".to_owned()]);
            let queries = (0..).zip(texts).map(|(number, text)| {
                let is_beyond = number >= DIGESTS_MAX as u64;
                query(number, &text, if is_beyond { change } else { keep })
            });
            queries.collect::<Vec<_>>()
        };
        let comparison = of(many(keep), many(|record| record.checks[0].sum = 9));
        assert_eq!(comparison.statements.len(), DIGESTS_MAX + 1);
        assert_eq!(comparison.total.values, 1);
        assert_eq!(comparison.masked.get("now"), Some(&1));
        assert_eq!(comparison.statements[0].masked, None);
    }

    #[test]
    fn what_only_one_has_is_counted() {
        let both = || query(0, "SELECT 1", |_| {});
        let comparison = of(vec![both(), query(1, "SELECT 2", |_| {})], vec![both()]);
        assert_eq!((comparison.missing, comparison.added), (1, 0));
        let fail_on = FailOn::parse("missing").unwrap();
        assert_eq!(fail_on.failures(&comparison).len(), 1);
    }

    #[test]
    fn nothing_waits_for_a_side_that_is_over() {
        let mut waits = Waits::new(WAITING_MAX);
        let waiting = || WaitingCommand::from(query(0, "SELECT 1", |_| {}));
        let met = |waits: &mut Waits, side, number| waits.meet(side, (1, number), waiting()).is_some();
        assert!(!met(&mut waits, 0, 0) && !met(&mut waits, 0, 1) && !met(&mut waits, 1, 2));
        assert!(met(&mut waits, 1, 0));
        waits.end(1);
        assert!(met(&mut waits, 0, 2) && !met(&mut waits, 0, 3));
        waits.end(0);
        assert_eq!((waits.alone, waits.bytes), ([2, 0], 0));
        assert!(waits.waiting.iter().all(HashMap::is_empty));
    }

    #[test]
    fn what_finds_no_room_to_wait_is_no_success() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, numbers: [u64; 4]| {
            let records = numbers.map(|number| query(number, "SELECT 1", |_| {}));
            write(&place.path().join(name), records.into())
        };
        let (a, b) = (write("a", [0, 1, 2, 3]), write("b", [3, 2, 1, 0]));
        let compared = |waiting_max| compare_within(waiting_max, &a, &[&b], None).unwrap();
        assert_eq!(
            (
                compared(WAITING_MAX).total.commands,
                compared(WAITING_MAX).no_room
            ),
            (4, 0)
        );
        let room = WaitingCommand::from(query(0, "SELECT 1", |_| {})).len();
        let little = compared(room);
        assert!(little.total.commands < 4 && little.no_room > 0, "{little:?}");
        for fail_on in ["none", "errors"] {
            let failures = FailOn::parse(fail_on).unwrap().failures(&little);
            assert!(failures.concat().contains("found no room"), "{failures:?}");
        }
        for report in [report::text(&little), report::html(&little, &[])] {
            assert!(report.contains("found no room"), "{report}");
        }
    }

    #[test]
    fn executions_of_a_text_without_room_are_masked() {
        let mut comparing = Comparing::default();
        let mut learn = |digest: u64, command: Command, text: Vec<u8>| {
            let mut waiting = WaitingCommand::from(CommandRecord {
                digest,
                command: command.0,
                body: text,
                ..CommandRecord::default()
            });
            comparing.learn(1, &mut waiting);
            waiting
        };
        let mut executed = |digest: u64, len: usize| {
            let select = [b"SELECT ".to_vec(), vec![b'1'; len]].concat();
            learn(digest, Command::STMT_PREPARE, select);
            masked(&learn(digest, Command::STMT_EXECUTE, Vec::new()))
        };
        assert_eq!(executed(1, 10), None);
        assert_eq!(executed(2, TEXTS_MAX).as_deref(), Some(TEXT_UNKNOWN));
        assert_eq!((executed(3, 10), executed(1, 20)), (None, None));
    }

    #[test]
    fn what_two_replayers_have_sent_is_counted() {
        let mut waits = Waits::new(WAITING_MAX);
        for _ in 0..2 {
            let waiting = WaitingCommand::from(query(0, "SELECT 1", |_| {}));
            assert!(waits.meet(1, (1, 0), waiting).is_none());
        }
        let first = WaitingCommand::from(query(0, "SELECT 1", |_| {}));
        assert!(waits.meet(0, (1, 0), first).is_some());
        assert_eq!((waits.alone, waits.bytes), ([0, 1], 0));
    }

    #[test]
    fn a_folder_that_is_cut_is_no_success() {
        let one = || vec![query(0, "SELECT 1", |_| {})];
        let both = || vec![query(0, "SELECT 1", |_| {}), query(1, "SELECT 2", |_| {})];
        let whole = |side: &mut Side| {
            side.stops.clear();
            "done".clone_into(&mut side.end);
        };
        let fails = |comparison: &Comparison, text: &str| {
            let failures = FailOn::parse(text).unwrap().failures(comparison);
            failures.join("; ")
        };
        let words = |name: &str| format!("{name} is cut or has not come to its end, and lacks 1 commands");
        for (a, b, name) in [(both(), one(), "b"), (one(), both(), "a")] {
            let mut comparison = of(a, b);
            for text in ["errors", "rows"] {
                assert_eq!(fails(&comparison, text), words(name));
            }
            assert_eq!(fails(&comparison, "warnings"), "");
            whole(&mut comparison.a);
            whole(&mut comparison.b);
            assert_eq!(
                fails(&comparison, "errors,rows"),
                "",
                "of one of several replayers"
            );
            // In the middle.
            let side = if name == "a" {
                &mut comparison.a
            } else {
                &mut comparison.b
            };
            side.stops.push("traffic-000002.fbt: damaged".to_owned());
            assert_eq!(fails(&comparison, "rows"), words(name));
            for report in [report::text(&comparison), report::html(&comparison, &[])] {
                assert!(report.contains("traffic-000002.fbt: damaged"), "{report}");
            }
        }
        let comparison = of(one(), one());
        assert_eq!(fails(&comparison, "errors,rows"), "", "nothing is lacking");
        let mut comparison = of(both(), one());
        whole(&mut comparison.a);
        whole(&mut comparison.b);
        FAILED.clone_into(&mut comparison.b.end);
        assert_eq!(fails(&comparison, "rows"), words("b"), "its sessions have failed");
    }

    #[test]
    fn of_several_folders_one_that_has_failed_counts() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, number, reason: &str| {
            let folder = place.path().join(name);
            let mut writer = FolderWriter::create(&folder, Head::default(), 1 << 20, None).unwrap();
            let command = query(number, "SELECT 1", |_| {});
            writer.put(&Record::Command(Box::new(command))).unwrap();
            let end = crate::record::End {
                reason: reason.to_owned(),
                ..crate::record::End::default()
            };
            writer.put(&Record::End(Box::new(end))).unwrap();
            writer.finish().unwrap();
            folder
        };
        let a = write("a", 0, "done");
        let [failed, done] = [("failed", 1, FAILED), ("done", 2, "done")]
            .map(|(name, number, reason)| write(name, number, reason));
        for several in [[&failed, &done], [&done, &failed]] {
            assert_eq!(compare(&a, &several, None).unwrap().b.end, FAILED);
        }
        assert_eq!(compare(&a, &[&done, &a], None).unwrap().b.end, "done");
    }

    #[test]
    fn nothing_in_common_is_no_success() {
        let comparison = of(
            vec![query(0, "SELECT 1", |_| {})],
            vec![query(7, "SELECT 1", |_| {})],
        );
        assert!(!FailOn::parse("none").unwrap().failures(&comparison).is_empty());
    }

    #[test]
    fn both_results_are_told_of_examples_whose_rows_differ() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, sum, kept: &[(u64, &str)]| {
            let folder = place.path().join(name);
            let mut writer = FolderWriter::create(&folder, Head::default(), 1 << 20, None).unwrap();
            for number in 0..3 {
                for (_, text) in kept.iter().filter(|(of, _)| *of == number) {
                    let result = ResultRecord {
                        session: 1,
                        number,
                        text: (*text).to_owned(),
                    };
                    writer.put(&Record::Result(result)).unwrap();
                }
                // Only the last one has a difference.
                let command = query(number, "SELECT a FROM t", |record| {
                    record.checks[0].sum = if number == 2 { sum } else { 5 };
                });
                writer.put(&Record::Command(Box::new(command))).unwrap();
            }
            writer.finish().unwrap();
            folder
        };
        let a = write("a", 5, &[(0, "1\n"), (2, "2\n")]);
        let b = write("b", 9, &[(0, "1\n"), (2, "3\n")]);
        let results = |a: &Path, b: &Path| compare(a, &[b], None).unwrap().statements.remove(0).results;
        let both = BothResults {
            example: 0,
            a: "2\n".to_owned(),
            b: "3\n".to_owned(),
        };
        assert_eq!(results(&a, &b), [both]);
        let without = write("without", 9, &[(0, "1\n")]);
        assert!(results(&a, &without).is_empty());
    }

    #[test]
    fn results_that_wait_have_a_bound() {
        let mut waits = Waits::new(WAITING_MAX);
        let waiting = |len| {
            let mut waiting = WaitingCommand::from(query(0, "SELECT 1", |_| {}));
            waiting.result = Some("x".repeat(len));
            waiting
        };
        assert!(waits.meet(0, (1, 0), waiting(RESULTS_MAX - 1)).is_none());
        assert!(waits.meet(0, (1, 1), waiting(2)).is_none());
        let [without, _] = waits.meet(1, (1, 1), waiting(1)).unwrap();
        assert_eq!((without.result, waits.results), (None, RESULTS_MAX - 1));
        let [with, _] = waits.meet(1, (1, 0), waiting(1)).unwrap();
        assert_eq!((with.result_len(), waits.results), (RESULTS_MAX - 1, 0));
        assert!(waits.meet(0, (1, 2), waiting(2)).is_none());
        waits.end(1);
        assert_eq!(waits.results, 0);
    }

    #[test]
    fn times_of_a_replay_that_was_late_are_not_judged() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, took_us, lateness| {
            let folder = place.path().join(name);
            let mut writer = FolderWriter::create(&folder, Head::default(), 1 << 20, None).unwrap();
            let command = query(0, "SELECT 1", |record| record.took_us = took_us);
            writer.put(&Record::Command(Box::new(command))).unwrap();
            let end = crate::record::End {
                lateness,
                ..crate::record::End::default()
            };
            writer.put(&Record::End(Box::new(end))).unwrap();
            writer.finish().unwrap();
            folder
        };
        let late = |limit_us| {
            Some(Lateness {
                p99_us: 2_000,
                limit_us,
                ..Lateness::default()
            })
        };
        let a = write("a", 1_000, None);
        let fails = |b: &Path, text: &str| {
            let comparison = compare(&a, &[b], None).unwrap();
            FailOn::parse(text).unwrap().failures(&comparison)
        };
        let too_late = write("too-late", 5_000, late(Some(1_000)));
        let failures = fails(&too_late, "errors,p50=2,p99=2");
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(
            failures[0].contains("too-late: its times are worth nothing"),
            "{failures:?}"
        );
        assert_eq!(fails(&too_late, "errors,rows"), Vec::<String>::new());
        let in_time = write("in-time", 1_000, late(None));
        assert_eq!(fails(&in_time, "errors,p99=2"), Vec::<String>::new());
    }

    #[test]
    fn slower_fails_where_it_is_to() {
        let slow = query(0, "SELECT 1", |record| record.took_us = 2000);
        let comparison = of(vec![query(0, "SELECT 1", |_| {})], vec![slow]);
        let fails = |text: &str| !FailOn::parse(text).unwrap().failures(&comparison).is_empty();
        assert!(fails("p99=1.5") && !fails("p99=2.5"));
        assert!(FailOn::parse("p98=2").is_err() && FailOn::parse("rowz").is_err());
        assert!(FailOn::parse("p99=fast").is_err());
    }
}
