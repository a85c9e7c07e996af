//! Compares what clients were answered with what copies of their statements were answered on another cluster:
//! `mirror_compare` of a rule.
//!
//! Workers hand over both answers by a queue that is bounded, and never wait; a thread reads them. It begins
//! with the first pair. Results are told apart as those of two folders are: see [`compare`](crate::compare).
//! What is kept of a statement that differs is its text without values, how often and how. Nothing is sent
//! again: a read that differs may have been answered at another moment.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dataplane::mirrored::{Comparer, Pair, ServerAnswer};
use mysql_wire::Command;
use sql_class::Class;
use telemetry::{Histogram, Samples, Snapshot, Source, catalog};

use crate::checks;
use crate::compare::{Latency, WaitingCommand, differ};
use crate::record::{CommandRecord, Flags, plain};
use crate::secrets::may_be_written;
use crate::volatile::{orders, volatile};

/// Pairs that wait for the thread. Their bytes have a limit on each worker.
const QUEUE_MAX: usize = 1024;
/// How long the thread sleeps where nothing waits: workers need not wake it.
const PAUSE: Duration = Duration::from_millis(5);
/// After so long without a pair it sleeps until one comes.
const IDLE: Duration = Duration::from_secs(1);
/// The log has one line for all differences of such a time.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Different statements that are told apart, for each cluster; others are counted together.
const STATEMENTS_MAX: usize = 500;
/// Clusters that are told apart. A configuration has fewer; their names change with it.
const CLUSTERS_MAX: usize = 64;
/// Letters of a statement.
const TEXT_MAX: usize = 1000;

/// What one of a pair's answers may have that the other has not, the first of them; `equal` where nothing
/// differs.
pub const RESULTS: [&str; 6] = ["equal", "errors", "rows", "affected_rows", "values", "warnings"];

/// Why values were not compared, where nothing else differs.
const UNCHECKED: [&str; 4] = ["masked", "too_long", "no_room", "unread"];

/// Comparisons of all clusters that get copies.
#[derive(Default)]
pub struct Mirrors {
    /// `None`: there is no thread.
    queue: OnceLock<Option<SyncSender<Box<Pair>>>>,
    compared: Arc<Compared>,
}

/// What the thread has found, by cluster.
#[derive(Default)]
struct Compared(Mutex<BTreeMap<String, OfCluster>>);

/// What was found of the copies to one cluster.
#[derive(Default)]
struct OfCluster {
    /// As [`RESULTS`].
    results: [u64; RESULTS.len()],
    /// As [`UNCHECKED`].
    unchecked: [u64; UNCHECKED.len()],
    original: Histogram,
    copy: Histogram,
    /// By digest.
    statements: HashMap<u64, Differing>,
    /// Differences of statements for which there was no place.
    of_others: u64,
}

/// A kind of statement with answers that differ.
struct Differing {
    text: String,
    /// As [`RESULTS`]; `equal` is not counted.
    results: [u64; RESULTS.len()],
    example: String,
    last: Instant,
}

/// What was found of the copies to one cluster, for people.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClusterStatus {
    pub cluster: String,
    /// How many pairs of answers, by the words of [`RESULTS`].
    pub results: Vec<(&'static str, u64)>,
    /// Pairs of which only values were not compared, by the reason.
    pub unchecked: Vec<(&'static str, u64)>,
    /// Times of the clients' own statements, where both have succeeded.
    pub original: Latency,
    /// Times of the copies.
    pub copy: Latency,
    /// Those that differ, the most frequent first.
    pub statements: Vec<StatementStatus>,
    /// Differences of further ones.
    pub of_others: u64,
}

/// A kind of statement with answers that differ, for people.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatementStatus {
    /// In hexadecimal.
    pub digest: String,
    /// Without values; empty where it may have a secret.
    pub text: String,
    /// How often, by the words of [`RESULTS`].
    pub results: Vec<(&'static str, u64)>,
    /// What has differed the last time.
    pub example: String,
    pub seconds_ago: f64,
}

impl Mirrors {
    /// Without a thread yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What was found so far, by cluster.
    #[must_use]
    pub fn status(&self) -> Vec<ClusterStatus> {
        let compared = self.compared.lock();
        compared
            .iter()
            .map(|(name, cluster)| cluster.status(name))
            .collect()
    }

    fn queue(&self) -> Option<&SyncSender<Box<Pair>>> {
        let start = || {
            let (sender, pairs) = sync_channel(QUEUE_MAX);
            let compared = Arc::clone(&self.compared);
            let thread = std::thread::Builder::new().name("mirrors".to_owned());
            match thread.spawn(move || run(&pairs, &compared, compare)) {
                Ok(_) => Some(sender),
                Err(error) => {
                    tracing::error!(%error, "no thread that compares answers (mirror_compare)");
                    None
                }
            }
        };
        self.queue.get_or_init(start).as_ref()
    }
}

impl Comparer for Mirrors {
    fn compare(&self, pair: Box<Pair>) -> bool {
        self.queue().is_some_and(|queue| queue.try_send(pair).is_ok())
    }
}

impl Source for Mirrors {
    fn collect(&self, out: &mut Samples) {
        for (name, cluster) in self.compared.lock().iter() {
            for (result, count) in RESULTS.iter().zip(cluster.results) {
                out.counter(&catalog::MIRROR_COMPARED, &[name, result], count);
            }
            for (reason, count) in UNCHECKED.iter().zip(cluster.unchecked) {
                out.counter(&catalog::MIRROR_SKIPPED, &[name, reason], count);
            }
            for (side, times) in [("original", &cluster.original), ("copy", &cluster.copy)] {
                out.histogram(&catalog::MIRROR_DURATION, &[name, side], times);
            }
        }
    }
}

impl Compared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, OfCluster>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what has come of a pair.
    fn note(&self, pair: &Pair, verdict: &Verdict) {
        let mut clusters = self.lock();
        let mut name = &*pair.cluster;
        if clusters.len() >= CLUSTERS_MAX && !clusters.contains_key(name) {
            name = telemetry::OTHER;
        }
        clusters.entry(name.to_owned()).or_default().note(pair, verdict);
    }
}

impl OfCluster {
    fn note(&mut self, pair: &Pair, verdict: &Verdict) {
        if pair.original.error.is_none() && pair.copy.error.is_none() {
            self.original.record(pair.original.took);
            self.copy.record(pair.copy.took);
        }
        match verdict {
            Verdict::Equal => count(&RESULTS, &mut self.results, "equal"),
            Verdict::Unchecked(reason) => count(&UNCHECKED, &mut self.unchecked, reason),
            Verdict::Differs(difference) => {
                count(&RESULTS, &mut self.results, difference.result);
                self.note_difference(difference);
            }
        }
    }

    fn note_difference(&mut self, difference: &Difference) {
        let is_known = self.statements.contains_key(&difference.digest);
        if !is_known && self.statements.len() >= STATEMENTS_MAX {
            self.of_others += 1;
            return;
        }
        let statement = self
            .statements
            .entry(difference.digest)
            .or_insert_with(|| Differing {
                text: difference.text.clone(),
                results: Default::default(),
                example: String::new(),
                last: Instant::now(),
            });
        count(&RESULTS, &mut statement.results, difference.result);
        statement.example.clone_from(&difference.words);
        statement.last = Instant::now();
    }

    fn status(&self, name: &str) -> ClusterStatus {
        let mut statements: Vec<_> = self.statements.iter().collect();
        let times = |statement: &Differing| statement.results.iter().sum::<u64>();
        statements.sort_by_key(|(digest, statement)| (std::cmp::Reverse(times(statement)), **digest));
        let statements = statements.into_iter().map(|(digest, statement)| StatementStatus {
            digest: format!("{digest:016x}"),
            text: statement.text.clone(),
            results: counted(&RESULTS, &statement.results).collect(),
            example: statement.example.clone(),
            seconds_ago: statement.last.elapsed().as_secs_f64(),
        });
        ClusterStatus {
            cluster: name.to_owned(),
            results: RESULTS.into_iter().zip(self.results).collect(),
            unchecked: counted(&UNCHECKED, &self.unchecked).collect(),
            original: latency(&self.original.snapshot()),
            copy: latency(&self.copy.snapshot()),
            statements: statements.collect(),
            of_others: self.of_others,
        }
    }
}

fn count(words: &[&str], counts: &mut [u64], word: &str) {
    if let Some(place) = words.iter().position(|known| *known == word) {
        counts[place] += 1;
    }
}

/// Words with their counts, without those that have none.
fn counted(words: &[&'static str], counts: &[u64]) -> impl Iterator<Item = (&'static str, u64)> {
    let both = words.iter().copied().zip(counts.iter().copied());
    both.filter(|(_, count)| *count > 0)
}

fn latency(times: &Snapshot) -> Latency {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Latency::of(|quantile| times.quantile(quantile).map_or(0.0, ms))
}

/// The thread: until nobody is left who could hand over pairs. Where a comparison panics, that pair alone is
/// not compared; the log has the panic.
fn run(pairs: &Receiver<Box<Pair>>, compared: &Compared, compare: fn(&Pair) -> Verdict) {
    let mut log = Log::default();
    let mut last = Instant::now();
    loop {
        let next = match pairs.try_recv() {
            Err(TryRecvError::Empty) if last.elapsed() < IDLE => {
                std::thread::sleep(PAUSE);
                continue;
            }
            Err(TryRecvError::Empty) => pairs.recv_timeout(TELL_EVERY),
            Err(TryRecvError::Disconnected) => return,
            Ok(pair) => Ok(pair),
        };
        match next {
            Ok(pair) => {
                last = Instant::now();
                let verdict = catch_unwind(AssertUnwindSafe(|| compare(&pair)));
                let verdict = verdict.unwrap_or(Verdict::Unchecked("unread"));
                compared.note(&pair, &verdict);
                if let Verdict::Differs(difference) = verdict {
                    log.note(&pair.cluster, difference);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        log.tell();
    }
}

/// Differences that are not in the log yet.
#[derive(Default)]
struct Log {
    told: Option<Instant>,
    untold: u64,
    last: Option<(Arc<str>, Difference)>,
}

impl Log {
    fn note(&mut self, cluster: &Arc<str>, difference: Difference) {
        self.untold += 1;
        self.last = Some((Arc::clone(cluster), difference));
    }

    fn tell(&mut self) {
        let is_early = self.told.is_some_and(|told| told.elapsed() < TELL_EVERY);
        let Some((cluster, difference)) = self.last.take_if(|_| !is_early) else {
            return;
        };
        tracing::warn!(
            cluster = %cluster,
            digest = format!("{:016x}", difference.digest),
            difference = difference.words,
            times = self.untold,
            "copies of statements are answered differently: forebay ctl mirrors lists them; the last one"
        );
        (self.told, self.untold) = (Some(Instant::now()), 0);
    }
}

/// What comes of a pair.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Equal,
    /// As far as it was compared, which is all but values: see [`UNCHECKED`].
    Unchecked(&'static str),
    Differs(Difference),
}

#[derive(Debug, PartialEq, Eq)]
struct Difference {
    /// One of [`RESULTS`].
    result: &'static str,
    words: String,
    digest: u64,
    /// Without values.
    text: String,
}

fn compare(pair: &Pair) -> Verdict {
    let is_read = pair.class == Class::Read;
    let is_masked = is_read && volatile(&pair.text).is_some();
    let reads_values = is_read && !is_masked;
    let (a, b) = (
        waiting(&pair.original, reads_values),
        waiting(&pair.copy, reads_values),
    );
    let found = differ(&a, &b, !reads_values, orders(&pair.text));
    if let (Some(result), Some(words)) = (found.first(), found.words(&a, &b)) {
        let digest = sql_class::digest(&pair.text, pair.syntax);
        let text = match may_be_written(&pair.text) {
            true => plain(digest.text.as_bytes(), TEXT_MAX),
            false => String::new(),
        };
        return Verdict::Differs(Difference {
            result,
            words,
            digest: digest.hash,
            text,
        });
    }
    // What writes has no values.
    if !found.unchecked || !is_read {
        return Verdict::Equal;
    }
    let packets = [&pair.original.packets, &pair.copy.packets];
    Verdict::Unchecked(if is_masked {
        "masked"
    } else if packets.iter().any(|packets| packets.lacked_room()) {
        "no_room"
    } else if packets.iter().any(|packets| packets.is_answer_cut()) {
        "too_long"
    } else {
        "unread"
    })
}

/// An answer as folders have it.
fn waiting(answer: &ServerAnswer, reads_values: bool) -> WaitingCommand {
    let mut record = CommandRecord {
        error: answer.error.unwrap_or(0),
        rows: answer.rows,
        affected_rows: answer.affected_rows,
        warnings: answer.warnings,
        ..CommandRecord::default()
    };
    if reads_values && answer.error.is_none() {
        let packets = &answer.packets;
        let read = checks::read(Command::QUERY, answer.capabilities, packets.answer());
        match read.is_whole && !packets.is_answer_cut() {
            true => record.checks = read.checks,
            false => record.flags.set(Flags::UNCHECKED),
        }
    }
    record.into()
}

#[cfg(test)]
mod tests {
    use dataplane::finished::Copied;
    use mysql_wire::{Capabilities, write_packet};
    use sql_class::Syntax;

    use super::*;

    const CAPABILITIES: Capabilities =
        Capabilities(Capabilities::PROTOCOL_41.0 | Capabilities::DEPRECATE_EOF.0);
    const VARCHAR: u8 = 253;
    const DOUBLE: u8 = 5;

    /// An answer with rows of one column of this type.
    fn rows(kind: u8, values: &[&str]) -> ServerAnswer {
        let mut definition = vec![3, b'd', b'e', b'f', 0, 0, 0, 1, b'c', 0, 12, 45, 0, 0, 0, 0, 0];
        definition.extend_from_slice(&[kind, 0, 0, 0, 0, 0]);
        let (mut packets, mut sequence) = (Vec::new(), 1);
        write_packet(&mut packets, &mut sequence, &[1]);
        write_packet(&mut packets, &mut sequence, &definition);
        for value in values {
            let row = [&[value.len() as u8], value.as_bytes()].concat();
            write_packet(&mut packets, &mut sequence, &row);
        }
        write_packet(&mut packets, &mut sequence, &[0xfe, 0, 0, 2, 0, 0, 0]);
        ServerAnswer {
            rows: values.len() as u64,
            packets: Copied::whole(&[], &packets),
            ..written(0)
        }
    }

    /// An answer without rows.
    fn written(affected_rows: u64) -> ServerAnswer {
        ServerAnswer {
            error: None,
            rows: 0,
            affected_rows,
            warnings: 0,
            took: Duration::from_millis(1),
            capabilities: CAPABILITIES,
            packets: Copied::whole(&[], &[]),
        }
    }

    fn failed(code: u16) -> ServerAnswer {
        ServerAnswer {
            error: Some(code),
            ..written(0)
        }
    }

    fn pair(text: &str, class: Class, original: ServerAnswer, copy: ServerAnswer) -> Box<Pair> {
        Box::new(Pair {
            cluster: "next".into(),
            text: text.into(),
            syntax: Syntax::default(),
            class,
            original,
            copy,
        })
    }

    /// What differs, in words; `=` where nothing does.
    fn told(text: &str, class: Class, original: ServerAnswer, copy: ServerAnswer) -> String {
        match compare(&pair(text, class, original, copy)) {
            Verdict::Equal => "=".to_owned(),
            Verdict::Unchecked(reason) => reason.to_owned(),
            Verdict::Differs(difference) => format!("{}: {}", difference.result, difference.words),
        }
    }

    fn read(text: &str, original: ServerAnswer, copy: ServerAnswer) -> String {
        told(text, Class::Read, original, copy)
    }

    #[test]
    fn rows_count_as_a_set_unless_the_statement_orders_them() {
        let (one, other) = (["a", "b"], ["b", "a"]);
        let of = |text, one: &[&str], other: &[&str]| read(text, rows(VARCHAR, one), rows(VARCHAR, other));
        assert_eq!(of("SELECT c FROM t", &one, &other), "=");
        let ordered = "SELECT c FROM t ORDER BY c";
        assert_eq!(of(ordered, &one, &other), "values: another order of 2 rows");
        assert_eq!(of(ordered, &one, &one), "=");
        assert_eq!(
            of("SELECT c FROM t", &one, &["a", "c"]),
            "values: other values in 2 rows"
        );
        assert_eq!(of("SELECT c FROM t", &one, &["a"]), "rows: 2 → 1 rows");
        assert_eq!(of("SELECT c FROM t", &[], &[]), "=");
        assert_eq!(of("SELECT c FROM t", &[], &["a"]), "rows: 0 → 1 rows");
        let many: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
        let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
        let before = many.clone();
        assert_eq!(of("SELECT c FROM t", &before, &many), "=");
        many[4999] = "5000";
        assert_eq!(
            of("SELECT c FROM t", &before, &many),
            "values: other values in 5000 rows"
        );
    }

    #[test]
    fn floats_are_rounded_and_what_differs_each_time_is_masked() {
        let of = |text, kind, one, other| read(text, rows(kind, &[one]), rows(kind, &[other]));
        assert_eq!(of("SELECT d FROM t", DOUBLE, "0.30000001", "0.3"), "=");
        assert_ne!(of("SELECT d FROM t", VARCHAR, "0.30000001", "0.3"), "=");
        assert_eq!(of("SELECT UUID()", VARCHAR, "a", "b"), "masked");
        let fails = read("SELECT UUID()", failed(1305), rows(VARCHAR, &["b"]));
        assert_eq!(fails, "errors: error 1305 → none");
    }

    #[test]
    fn writes_are_compared_by_figures() {
        let of = |one, other| told("UPDATE t SET c = NOW()", Class::Write, one, other);
        assert_eq!(of(written(2), written(2)), "=");
        assert_eq!(of(written(2), written(1)), "affected_rows: 2 → 1 affected rows");
        assert_eq!(of(written(2), failed(1146)), "errors: error none → 1146");
        assert_eq!(of(failed(1062), failed(1062)), "=");
        assert_eq!(of(failed(1062), failed(1146)), "errors: error 1062 → 1146");
        let warned = ServerAnswer {
            warnings: 1,
            ..written(2)
        };
        assert_eq!(of(written(2), warned), "warnings: 0 → 1 warnings");
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_not_compared() {
        let cut = ServerAnswer {
            packets: Copied::whole(&[], &[1, 0, 0]),
            ..rows(VARCHAR, &["a"])
        };
        assert_eq!(read("SELECT c FROM t", rows(VARCHAR, &["a"]), cut), "unread");
    }

    #[test]
    fn what_differs_is_listed_without_values() {
        let compared = Compared::default();
        let note = |text: &str, copy: &[&str]| {
            let pair = pair(text, Class::Read, rows(VARCHAR, &["a"]), rows(VARCHAR, copy));
            compared.note(&pair, &compare(&pair));
        };
        note("SELECT c FROM t WHERE id = 1", &["a"]);
        for id in 0..3 {
            note(&format!("SELECT c FROM t WHERE id = {id}"), &[]);
        }
        note("SELECT c FROM t WHERE id = 4711", &["b"]);
        note("SELECT c FROM u", &[]);
        let clusters = compared.lock();
        let status = clusters["next"].status("next");
        let [often, once] = status.statements.as_slice() else {
            panic!("two statements: {status:?}");
        };
        assert_eq!(often.text, "SELECT `c` FROM `t` WHERE `id` = ?");
        assert_eq!(often.results, [("rows", 3), ("values", 1)]);
        assert_eq!(often.example, "other values in 1 rows");
        assert_eq!(
            (once.text.as_str(), once.results[0]),
            ("SELECT `c` FROM `u`", ("rows", 1))
        );
        assert_eq!(status.results[0], ("equal", 1));
        assert!(status.original.p50 >= 1.0 && status.copy.p99 >= 1.0, "{status:?}");
    }

    #[test]
    fn statements_that_are_listed_have_a_bound() {
        let mut cluster = OfCluster::default();
        for digest in 0..STATEMENTS_MAX as u64 + 5 {
            cluster.note_difference(&Difference {
                result: "rows",
                words: String::new(),
                digest,
                text: String::new(),
            });
        }
        assert_eq!((cluster.statements.len(), cluster.of_others), (STATEMENTS_MAX, 5));
    }

    #[test]
    fn the_log_has_one_line_for_many() {
        let mut log = Log::default();
        let note = |log: &mut Log| {
            let original = pair("SELECT 1", Class::Read, failed(1), failed(2));
            if let Verdict::Differs(difference) = compare(&original) {
                log.note(&original.cluster, difference);
            }
            log.tell();
            log.untold
        };
        assert_eq!(note(&mut log), 0, "told at once");
        assert_eq!((note(&mut log), note(&mut log)), (1, 2));
        log.told = log.told.and_then(|told| told.checked_sub(TELL_EVERY));
        assert_eq!(note(&mut log), 0, "told after a minute");
    }

    #[test]
    fn a_thread_takes_what_workers_hand_over() {
        let mirrors = Mirrors::new();
        for _ in 0..10 {
            let one = || rows(VARCHAR, &["a"]);
            assert!(mirrors.compare(pair("SELECT c FROM t", Class::Read, one(), one())));
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        let equal = || mirrors.status().first().map_or(0, |status| status.results[0].1);
        while equal() < 10 {
            assert!(Instant::now() < deadline, "{:?}", mirrors.status());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_comparison_that_panics_costs_one_pair() {
        let (sender, pairs) = sync_channel(2);
        for text in ["SELECT 1", "SELECT 2"] {
            let _ = sender.send(pair(text, Class::Read, failed(1), failed(1)));
        }
        drop(sender);
        let compared = Compared::default();
        run(&pairs, &compared, |pair| match &*pair.text {
            b"SELECT 1" => panic!("as the test wants it"),
            _ => compare(pair),
        });
        let status = compared.lock()["next"].status("next");
        assert_eq!((status.results[0].1, status.unchecked), (1, vec![("unread", 1)]));
    }

    #[test]
    fn a_queue_that_is_full_takes_no_more() {
        let (sender, pairs) = sync_channel(2);
        let mirrors = Mirrors::default();
        mirrors.queue.set(Some(sender)).expect("no thread yet");
        let take = || mirrors.compare(pair("SELECT 1", Class::Read, failed(1), failed(1)));
        assert_eq!([take(), take(), take()], [true, true, false]);
        drop(pairs);
        assert!(!take(), "the thread is gone");
    }
}
