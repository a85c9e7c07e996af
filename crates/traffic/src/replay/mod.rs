//! Sends the statements of a folder to another server, and writes down what came of them.
//!
//! Sessions run side by side, each in its own order and time. Nothing is known of the order between sessions
//! but their times: statements of two sessions that did not wait for one another when they were captured may
//! meet in another order, and then differ for a good reason.

mod checkpoint;
mod client;
mod ids;
mod plan;
mod selection;
mod session;
#[cfg(test)]
mod tests;
mod timeline;
mod transactions;

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use mysql_wire::Command;
use mysql_wire::gtid::{Flavor, GtidSet};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinSet, LocalSet};

use crate::capture::unix_us;
use crate::file::{FileError, Folder, FolderWriter, io_at};
use crate::record::{
    CommandRecord, End, Flags, Head, Lateness, Record, ReplayOf, ServerAtStart, SessionRecord,
};
use crate::seal::Key;

pub use self::checkpoint::Before;
use self::checkpoint::{Fate, Journal};
pub use self::client::ClientError;
pub(crate) use self::client::{Client, ReplayAnswer};
pub use self::ids::IdsMapped;
use self::ids::{Ids, Keys};
pub(crate) use self::plan::Judge;
pub use self::plan::{LeftOut, Permitted};
pub use self::selection::Selection;
pub(crate) use self::selection::sets_session;
use self::timeline::Timeline;
use self::transactions::{Commits, Transactions};

/// Commands that are read ahead of those that are executed, and the bytes of each: a longer one counts for
/// several.
const AHEAD_MAX: usize = 50_000;
const AHEAD_BYTES: usize = 4096;
/// Commands are read so long before they are due, and as much earlier as the longest one took: it is written
/// where it has ended, behind all that began after it.
const AHEAD: Duration = Duration::from_secs(2);
const FILE_MAX: u64 = 256 << 20;
/// For all that the target is asked before it begins.
const TARGET_LIMIT: Duration = Duration::from_secs(60);
/// So many times the progress is told, what is known so far is written: for who is killed.
const FLUSH_EVERY: u64 = 5;
/// A capture that goes on is followed so long behind: commands are written when they have ended, and each
/// second.
const FOLLOW_LAG: Duration = Duration::from_secs(2);
/// How often it is looked for more of it, and how long for its beginning.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const BEGIN_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// Each session as fast as the server answers.
    Max,
    /// So many times as fast as it was.
    Times(f64),
}

/// An account of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    /// Its password; empty for none.
    pub password: String,
}

/// Who logs in for a captured user.
#[derive(Debug, Clone, Default)]
pub struct Logins {
    pub by_user: HashMap<String, Login>,
    pub others: Option<Login>,
}

impl Logins {
    fn of(&self, user: &str) -> Option<&Login> {
        self.by_user.get(user).or(self.others.as_ref())
    }

    fn any(&self) -> Result<&Login, ReplayError> {
        let any = self.others.as_ref().or(self.by_user.values().next());
        any.ok_or_else(|| ReplayError::NoLogin(String::new()))
    }
}

/// When prepared statements are closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Closing {
    #[default]
    AsCaptured,
    /// Behind each execution; they are prepared again in front of the next one.
    Always,
    /// When their session ends.
    Never,
}

#[derive(Debug, Clone)]
pub struct Order {
    pub from: PathBuf,
    /// With which it is sealed, and the result will be.
    pub key: Option<Key>,
    pub target: SocketAddr,
    /// A new folder for what comes of it.
    pub result: PathBuf,
    pub logins: Logins,
    pub speed: Speed,
    pub permitted: Permitted,
    pub selection: Selection,
    /// Schemas of the target by those that were captured.
    pub schemas: HashMap<String, String>,
    pub closing: Closing,
    /// Also to the source, or to a replica.
    pub even_source: bool,
    /// The target may be at another GTID position than the captured primary had.
    pub any_position: bool,
    /// A transaction begins once those have ended that had ended before it in the capture.
    pub orders_commits: bool,
    /// Statements that write or ask for the time have the time that it was.
    pub freezes_time: bool,
    /// The capture goes on: wait for more until its last record has come.
    pub follow: bool,
    /// Ids that the server has made then are sent as those of now.
    pub maps_ids: bool,
    /// Where the 99th percentile of lateness is above this, times are worth nothing.
    pub max_lateness: Option<Duration>,
    /// The first rows of each result are written, too.
    pub keeps_results: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Commands that were executed or left out.
    pub done: u64,
    pub total: u64,
    /// Answers that were errors where the captured ones were none, or the other way round.
    pub errors_differ: u64,
    /// How late the last command was.
    pub late: Duration,
}

#[derive(Debug, Default)]
pub struct Outcome {
    pub sent: u64,
    /// Commands that were not, by why.
    pub left_out: BTreeMap<LeftOut, u64>,
    pub sessions: u64,
    /// Sessions that could not log in, and the first reason.
    pub no_login: Option<(u64, String)>,
    /// Sessions that have failed by a fault of this program, by their numbers, and what it says of it.
    pub failed: BTreeMap<u32, String>,
    /// Sessions whose beginning is not in the capture.
    pub was_open: u64,
    /// How late commands were, in microseconds: the median, the 99th percentile, the most.
    pub late_us: Option<[u64; 3]>,
    /// Lateness, as the result says it.
    pub lateness: Option<Lateness>,
    /// Transactions that have begun before all had ended that were to end before.
    pub out_of_order: u64,
    /// Statements for which the target would not have another time.
    pub not_frozen: u64,
    pub ids: IdsMapped,
    pub took: Duration,
    /// Files of the capture that could not be read to their end.
    pub stops: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{target}: {error}")]
    Target { target: SocketAddr, error: ClientError },
    #[error("{target}: no columns with AUTO_INCREMENT to be had: {error}; --map-ids no asks for none")]
    Keys { target: SocketAddr, error: ClientError },
    #[error("{0}; --even-source replays all the same")]
    Source(String),
    #[error(
        "the target is not where {server} was when the capture began: it is at the GTID position {now}, \
         that one was at {then}; --any-position replays all the same"
    )]
    Position {
        /// The primary of the capture.
        server: String,
        /// The position of that primary.
        then: String,
        /// The position of the target.
        now: String,
    },
    #[error("no server of the cluster answers and takes writes: {0}")]
    NoServer(String),
    #[error("no account for the captured user {0:?}: name one with --user, or in the file of --users")]
    NoLogin(String),
    #[error("{0}")]
    Resume(String),
}

/// What a folder has: what a replay would do.
#[derive(Debug, Default)]
pub struct Survey {
    /// Commands in all, but for those that were done before.
    pub commands: u64,
    /// Commands that were done before.
    pub done_before: u64,
    /// Commands that would be left out, by why.
    pub left_out: BTreeMap<LeftOut, u64>,
    /// The captured users, and how many sessions each had.
    pub users: BTreeMap<String, u64>,
    /// Sessions that were there before.
    pub was_open: u64,
    /// From the first command to the end of the last.
    pub length: Duration,
    /// How long the longest command took.
    pub(crate) longest: Duration,
    /// Commands of each session, so that its connection can be closed behind the last.
    pub(crate) by_session: HashMap<u32, u64>,
    /// Sessions in which something is chosen: the others need no connection.
    pub(crate) chosen: HashSet<u32>,
    /// Files that could not be read to their end.
    pub stops: Vec<String>,
}

/// Reads a folder as a replay would. `key`: with which it is sealed. `before`: what was done already.
pub fn survey(
    folder: &Path,
    key: Option<&Key>,
    permitted: Permitted,
    selection: &Selection,
    before: Option<&Before>,
) -> Result<Survey, ReplayError> {
    let mut survey = Survey::default();
    let mut users: HashMap<u32, String> = HashMap::new();
    let mut sent: HashMap<u32, u64> = HashMap::new();
    let mut folder = Folder::open(folder, key)?;
    let mut judge = plan::Judge::new(permitted);
    while let Some(record) = folder.next_record()? {
        match record {
            Record::Session(session) => {
                let user = users.insert(session.id, session.user.clone());
                // A session that begins anew as the same user is not counted again.
                let is_counted = user.is_some_and(|user| user == session.user);
                if is_counted || !selection.takes_user(&session.user) || !selection.has(session.id) {
                    continue;
                }
                *survey.users.entry(session.user).or_default() += 1;
                survey.was_open += u64::from(session.was_open);
            }
            Record::Command(command) => {
                if !selection.has(command.session) {
                    continue;
                }
                let is_done = |before: &Before| before.is_done(command.session, command.number);
                if before.is_some_and(is_done) {
                    survey.done_before += 1;
                    // Which texts are prepared is still to be known.
                    let _ = judge.may_be_sent(&command);
                    judge.is_not_sent(&command);
                    continue;
                }
                survey.commands += 1;
                *survey.by_session.entry(command.session).or_default() += 1;
                let end = Duration::from_micros(command.start_us.saturating_add(command.took_us));
                survey.length = survey.length.max(end);
                survey.longest = survey.longest.max(Duration::from_micros(command.took_us));
                let user = users.get(&command.session);
                let is_of_user = user.is_some_and(|user| selection.takes_user(user));
                if is_of_user && selection.wants(&command) {
                    survey.chosen.insert(command.session);
                }
                let verdict = judge.may_be_sent(&command);
                match verdict {
                    _ if !(is_of_user && selection.takes(&command)) => {
                        *survey.left_out.entry(LeftOut::NotChosen).or_default() += 1;
                    }
                    Ok(()) => *sent.entry(command.session).or_default() += 1,
                    Err(why) => *survey.left_out.entry(why).or_default() += 1,
                }
            }
            Record::Head(_) | Record::Thinned { .. } | Record::End(_) | Record::Result(_) => {}
        }
    }
    sent.retain(|session, _| !survey.chosen.contains(session));
    if !sent.is_empty() {
        *survey.left_out.entry(LeftOut::NotChosen).or_default() += sent.values().sum::<u64>();
    }
    survey.stops = crate::offline::stops_in_words(&folder);
    Ok(survey)
}

/// Waits until a capture has begun, as far as it can be followed.
///
/// # Errors
/// It cannot be read, or has not begun within half a minute.
pub fn wait_for_capture(folder: &Path, key: Option<&Key>) -> Result<(), ReplayError> {
    let began = Instant::now();
    loop {
        match Folder::open(folder, key) {
            Ok(folder) if !folder.head().kind.is_empty() => return Ok(()),
            Err(error) if began.elapsed() > BEGIN_LIMIT => return Err(error.into()),
            Err(error @ (FileError::NoKey(_) | FileError::OtherKey(_) | FileError::NotSealed(_))) => {
                return Err(error.into());
            }
            _ if began.elapsed() > BEGIN_LIMIT => return Err(FileError::Empty(folder.to_owned()).into()),
            _ => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// What all sessions of a replay share. It lives on one thread.
struct Shared {
    order: Order,
    writer: RefCell<FolderWriter>,
    journal: RefCell<Journal>,
    before: Option<Before>,
    commits: Rc<Commits>,
    ids: Rc<Ids>,
    /// When the capture has begun, in microseconds since 1970.
    captured_unix_us: u64,
    /// The first thing that could not be written.
    failed: RefCell<Option<FileError>>,
    began: Instant,
    progress: RefCell<Progress>,
    outcome: RefCell<Outcome>,
    timeline: RefCell<Timeline>,
}

impl Shared {
    /// A command is sent so late.
    fn note_late(&self, late: Duration) {
        self.timeline.borrow_mut().note(self.began.elapsed(), late);
        self.progress.borrow_mut().late = late;
    }

    fn flush(&self) {
        self.write(FolderWriter::flush);
    }

    fn put(&self, record: &Record) {
        self.write(|writer| writer.put(record));
    }

    /// Writes to the result, unless a write has failed: a replay that goes on with the result takes all
    /// before the last record of a session for done.
    fn write(&self, write: impl FnOnce(&mut FolderWriter) -> Result<(), FileError>) {
        let mut failed = self.failed.borrow_mut();
        if failed.is_none() {
            *failed = write(&mut self.writer.borrow_mut()).err();
        }
    }

    /// Notes that a session has failed, with what it has panicked.
    fn note_failed(&self, session: u32, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or(panic.downcast_ref::<String>().map(String::as_str));
        let words = text.unwrap_or("it does not say why").to_owned();
        self.outcome.borrow_mut().failed.insert(session, words);
    }

    /// Notes a command of a session that is not replayed, or not any more, where this replayer has it.
    fn leave_out(&self, captured: &CommandRecord, why: LeftOut) {
        let is_done = matches!(self.fate(captured), Fate::Done { .. });
        if !self.order.selection.has(captured.session) || is_done {
            return;
        }
        let mut record = CommandRecord {
            start_us: self.began.elapsed().as_micros() as u64,
            files: Vec::new(),
            ..captured.clone()
        };
        record.flags.set(Flags::LEFT_OUT);
        if why == LeftOut::SessionFailed {
            // A replay that goes on with the result sends no rest of a transaction that it does not have.
            record.flags.set(Flags::IN_TRANSACTION);
        }
        self.put(&Record::Command(Box::new(record)));
        *self.outcome.borrow_mut().left_out.entry(why).or_default() += 1;
        self.progress.borrow_mut().done += 1;
    }

    /// What became of a command before this replayer began.
    fn fate(&self, command: &CommandRecord) -> Fate {
        let before = self.before.as_ref();
        before.map_or(Fate::Open, |before| before.fate(command.session, command.number))
    }

    /// Notes that a command is about to be sent, and how late it is. False: it must not be.
    fn note_sent(&self, command: &CommandRecord, late: Duration) -> bool {
        // Behind an entry that is half written no other can be read.
        if self.failed.borrow().is_some() {
            return false;
        }
        let at = self.began.elapsed();
        let noted = self.journal.borrow_mut().note(command, at, late);
        if let Err(error) = noted {
            let error = io_at(&self.order.result)(error);
            self.failed.borrow_mut().get_or_insert(error);
            return false;
        }
        true
    }

    /// When a command that began so long after the capture did is to be sent.
    fn due(&self, start_us: u64) -> Instant {
        match self.order.speed {
            Speed::Max => self.began,
            Speed::Times(times) => {
                let start_us = start_us.saturating_sub(self.order.selection.from_us);
                self.began + Duration::from_secs_f64(start_us as f64 / 1e6 / times)
            }
        }
    }
}

/// Replays. `before`: goes on where it was killed. `tell` hears of the progress a few times a second.
///
/// # Errors
/// See [`ReplayError`]. What was written until then can be read.
pub async fn replay(
    order: Order,
    survey: &Survey,
    before: Option<Before>,
    forebay: &str,
    tell: impl Fn(&Progress) + 'static,
) -> Result<Outcome, ReplayError> {
    if let Some(user) = survey.users.keys().find(|user| order.logins.of(user).is_none()) {
        return Err(ReplayError::NoLogin(user.clone()));
    }
    let mut folder = Folder::open(&order.from, order.key.as_ref())?;
    let target = target(&order).await?;
    if !order.even_source {
        refuse_source(folder.head(), &target.server, target.is_replica)?;
    }
    // A replay that goes on has moved its target itself.
    if !order.any_position && before.is_none() {
        refuse_position(folder.head(), &target.server)?;
    }
    if let Some(before) = &before {
        refuse_another(&before.head, folder.head(), &target.server)?;
    }
    let head = Head {
        kind: "replay".to_owned(),
        is_anonymised: folder.head().is_anonymised,
        forebay: forebay.to_owned(),
        began_unix_us: unix_us(),
        filters: folder.head().filters.clone(),
        servers: vec![target.server],
        replay: Some(ReplayOf {
            capture_began_unix_us: folder.head().began_unix_us,
            speed: match order.speed {
                Speed::Max => "max".to_owned(),
                Speed::Times(times) => times.to_string(),
            },
        }),
        ..Head::default()
    };
    let (mut before, key) = (before, order.key.as_ref());
    let timeline = before.as_mut().map(|before| std::mem::take(&mut before.timeline));
    let timeline = timeline.unwrap_or_default();
    let (mut writer, journal) = match before.as_mut().and_then(|before| before.journal.take()) {
        Some(journal) => (FolderWriter::resume(&order.result, FILE_MAX, key)?, journal),
        None => {
            let writer = FolderWriter::create(&order.result, head, FILE_MAX, key)?;
            (writer, Journal::open(&order.result, true)?)
        }
    };
    // Who goes on with it wants to know what it is.
    writer.flush()?;
    let now = Instant::now();
    let gone = Duration::from_micros(before.as_ref().map_or(0, |before| before.until_us));
    let mut began = now.checked_sub(gone).unwrap_or(now);
    if order.follow {
        folder.follow();
        began += FOLLOW_LAG;
    }
    let shared = Rc::new(Shared {
        writer: RefCell::new(writer),
        order,
        failed: RefCell::default(),
        journal: RefCell::new(journal),
        before,
        commits: Rc::default(),
        ids: Rc::new(Ids::new(target.keys)),
        captured_unix_us: folder.head().began_unix_us,
        began,
        progress: RefCell::new(Progress {
            total: survey.commands,
            ..Progress::default()
        }),
        outcome: RefCell::default(),
        timeline: RefCell::new(timeline),
    });
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            let told = Rc::clone(&shared);
            let teller = tokio::task::spawn_local(async move {
                for tick in 1_u64.. {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    tell(&told.progress.borrow());
                    if tick.is_multiple_of(FLUSH_EVERY) {
                        told.flush();
                    }
                }
            });
            let read = dispatch(&shared, &mut folder, survey).await;
            teller.abort();
            read
        })
        .await?;
    drop(tasks);
    conclude(shared, &folder)
}

/// Reads the capture and hands each command to its session, in time.
async fn dispatch(shared: &Rc<Shared>, folder: &mut Folder, survey: &Survey) -> Result<(), FileError> {
    let room = std::sync::Arc::new(Semaphore::new(AHEAD_MAX));
    let read_ahead = AHEAD
        + match shared.order.speed {
            Speed::Max => Duration::ZERO,
            Speed::Times(times) => survey.longest.div_f64(times),
        };
    let mut sessions: HashMap<u32, (mpsc::UnboundedSender<session::Given>, u64)> = HashMap::new();
    let mut running = JoinSet::new();
    let is_followed = shared.order.follow;
    let (mut has_ended, mut read) = (false, 0);
    let mut transactions = Transactions::default();
    while shared.failed.borrow().is_none() {
        let Some(record) = folder.next_record()? else {
            if !is_followed || has_ended {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
            folder.look_again()?;
            continue;
        };
        let selection = &shared.order.selection;
        match record {
            Record::Session(record) if !selection.has(record.id) => {}
            // No command of the session is chosen, or an earlier run has done all that are.
            Record::Session(record) if !is_followed && !survey.chosen.contains(&record.id) => {
                if shared.before.is_none() || survey.by_session.contains_key(&record.id) {
                    shared.put(&Record::Session(record));
                }
            }
            Record::Session(record) if !selection.takes_user(&record.user) => {
                shared.put(&Record::Session(record.clone()));
                // A replay that goes on with the result takes all before the last record of a session for
                // done. So the session itself writes what is left out, behind what came before that.
                if let Some((sender, _)) = sessions.get(&record.id) {
                    let _ = sender.send(session::Given::Session(record));
                }
            }
            Record::Session(record) => {
                shared.put(&Record::Session(record.clone()));
                let left = survey.by_session.get(&record.id).copied().unwrap_or(0);
                let (sender, _) = sessions.entry(record.id).or_insert_with(|| {
                    let mut outcome = shared.outcome.borrow_mut();
                    outcome.sessions += 1;
                    outcome.was_open += u64::from(record.was_open);
                    let (sender, given) = mpsc::unbounded_channel();
                    running.spawn_local(session::run(Rc::clone(shared), record.id, given));
                    (sender, left)
                });
                let _ = sender.send(session::Given::Session(record));
            }
            Record::Command(command) => {
                if is_followed && selection.has(command.session) {
                    read += 1;
                    let mut progress = shared.progress.borrow_mut();
                    progress.total = progress.total.max(read);
                }
                if !sessions.contains_key(&command.session) {
                    shared.leave_out(&command, LeftOut::NotChosen);
                    continue;
                }
                let due = shared.due(command.start_us);
                let ahead = due.saturating_duration_since(Instant::now());
                if ahead > read_ahead && !selection.is_over(&command) {
                    tokio::time::sleep(ahead - read_ahead).await;
                }
                let room = std::sync::Arc::clone(&room);
                let Ok(permit) = room.acquire_many_owned(places(&command)).await else {
                    break;
                };
                let id = command.session;
                let Some((sender, left)) = sessions.get_mut(&id) else {
                    continue;
                };
                let is_done = matches!(shared.fate(&command), Fate::Done { .. });
                let is_last = Command(command.command) == Command::QUIT || command.flags.has(Flags::CLOSED);
                let (mut begins, mut expected) = (false, None);
                if shared.order.orders_commits {
                    let turn = transactions.turn(&command);
                    begins = turn.begins;
                    expected = turn.commits.then(|| shared.commits.expect(&command));
                }
                let _ = sender.send(session::Given::Command(command, begins, (expected, permit)));
                *left = left.saturating_sub(u64::from(!is_done));
                // How many there are is not known while the capture goes on.
                if if is_followed { is_last } else { *left == 0 } {
                    // Its connection is closed behind the last.
                    sessions.remove(&id);
                    transactions.end(id);
                }
                while running.try_join_next().is_some() {}
            }
            Record::End(_) => has_ended = true,
            Record::Head(_) | Record::Thinned { .. } | Record::Result(_) => {}
        }
    }
    drop(sessions);
    while running.join_next().await.is_some() {}
    Ok(())
}

/// The number of places that a command takes among those that are read ahead.
fn places(command: &CommandRecord) -> u32 {
    // More than there are would never be had.
    let bytes = command.body.len() + command.files_len();
    (1 + bytes / AHEAD_BYTES).min(AHEAD_MAX) as u32
}

fn conclude(shared: Rc<Shared>, folder: &Folder) -> Result<Outcome, ReplayError> {
    let mut outcome = shared.outcome.take();
    outcome.took = shared.began.elapsed();
    outcome.ids = shared.ids.outcome();
    outcome.stops = crate::offline::stops_in_words(folder);
    let timeline = shared.timeline.take();
    if let (Some(late), Speed::Times(_)) = (&timeline.all, shared.order.speed) {
        outcome.late_us = Some([
            late.value_at_quantile(0.5),
            late.value_at_quantile(0.99),
            late.max(),
        ]);
        let micros = |limit: Duration| limit.as_micros() as u64;
        outcome.lateness = Some(Lateness {
            p99_us: late.value_at_quantile(0.99),
            limit_us: shared.order.max_lateness.map(micros),
            part_us: timeline.part_us,
            timeline: timeline.greatest,
        });
    }
    if let Some(error) = shared.failed.take() {
        // Answers of before are kept where that can be.
        let _ = shared.writer.borrow_mut().flush();
        return Err(error.into());
    }
    let failed: Vec<_> = outcome.failed.keys().map(u32::to_string).collect();
    let (reason, words) = match &failed[..] {
        [] => ("done", String::new()),
        _ => (
            "error",
            format!("sessions that have failed: {}", failed.join(", ")),
        ),
    };
    shared.put(&Record::End(Box::new(End {
        reason: reason.to_owned(),
        words,
        commands: outcome.sent,
        sessions: outcome.sessions,
        withheld: outcome.left_out.values().sum(),
        lateness: outcome.lateness.clone(),
        ..End::default()
    })));
    // All sessions have ended, so that nobody else has it.
    match Rc::try_unwrap(shared) {
        Ok(shared) => {
            shared.writer.into_inner().finish()?;
        }
        Err(shared) => shared.writer.borrow_mut().flush()?,
    }
    Ok(outcome)
}

struct Target {
    server: ServerAtStart,
    is_replica: bool,
    keys: Keys,
}

async fn target(order: &Order) -> Result<Target, ReplayError> {
    let (target, login) = (order.target, order.logins.any()?);
    let known = ask(target, login, async |client: &mut Client| {
        let server = client.who_are_you().await?;
        Ok((server, client.is_replica().await?))
    });
    let (mut server, is_replica) = known
        .await
        .map_err(|error| ReplayError::Target { target, error })?;
    server.name = target.to_string();
    let mut keys = Keys::default();
    if order.maps_ids {
        let asked = ask(target, login, async |client: &mut Client| client.keys().await);
        keys = asked.await.map_err(|error| ReplayError::Keys { target, error })?;
    }
    Ok(Target {
        server,
        is_replica,
        keys,
    })
}

/// Asks a server something on a connection of its own.
async fn ask<T>(
    server: SocketAddr,
    login: &Login,
    question: impl AsyncFnOnce(&mut Client) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let asked = async {
        let mut client = Client::connect(server, login, &SessionRecord::default()).await?;
        let answer = question(&mut client).await?;
        client.close().await;
        Ok::<_, ClientError>(answer)
    };
    let words = || format!("no answer within {} s", TARGET_LIMIT.as_secs());
    tokio::time::timeout(TARGET_LIMIT, asked)
        .await
        .unwrap_or_else(|_| Err(ClientError::Lost(words())))
}

/// The first of a cluster's servers that answers and takes writes.
///
/// # Errors
/// None does, or there is nobody to log in as.
pub async fn primary_of(servers: &[SocketAddr], logins: &Logins) -> Result<SocketAddr, ReplayError> {
    let login = logins.any()?;
    let mut others = Vec::new();
    for server in servers {
        let asked = ask(*server, login, async |client: &mut Client| {
            client.may_write().await
        });
        match asked.await {
            Ok(true) => return Ok(*server),
            Ok(false) => others.push(format!("{server} is read_only")),
            Err(error) => others.push(format!("{server}: {error}")),
        }
    }
    Err(ReplayError::NoServer(others.join("; ")))
}

/// Nobody goes on with a replay of another capture, or on another server.
fn refuse_another(result: &Head, capture: &Head, target: &ServerAtStart) -> Result<(), ReplayError> {
    let refuse = |words: &str| Err(ReplayError::Resume(words.to_owned()));
    let of = result.replay.as_ref().map(|replay| replay.capture_began_unix_us);
    if of != Some(capture.began_unix_us) {
        return refuse("the result is that of another capture");
    }
    let is_other = |one: &Option<String>, other: &Option<String>| one.is_some() && one != other;
    let is_other = |server: &ServerAtStart| {
        is_other(&server.server_uuid, &target.server_uuid) || is_other(&server.server_id, &target.server_id)
    };
    match result.servers.iter().any(is_other) {
        true => refuse("the replay was begun on another server than this target"),
        false => Ok(()),
    }
}

fn refuse_source(head: &Head, target: &ServerAtStart, is_replica: bool) -> Result<(), ReplayError> {
    let refuse = |words: String| Err(ReplayError::Source(words));
    let is_same = |one: &Option<String>, other: &Option<String>| one.is_some() && one == other;
    for server in &head.servers {
        if is_same(&server.server_uuid, &target.server_uuid) {
            return refuse(format!(
                "the target is the server {} of the capture: the same server_uuid",
                server.name
            ));
        }
        // Of MySQL, where each server has a uuid, two clusters may have the same numbers.
        if server.server_uuid.is_none() && is_same(&server.server_id, &target.server_id) {
            return refuse(format!(
                "the target may be the server {} of the capture: it has the same server_id, {}",
                server.name,
                target.server_id.as_deref().unwrap_or_default()
            ));
        }
    }
    let is_known = |server: &ServerAtStart| server.server_uuid.is_some() || server.server_id.is_some();
    if let Some(from) = &head.imported {
        return refuse(format!(
            "a {from} does not say by which name its server is known: the target may be it"
        ));
    }
    if head.servers.is_empty() || !head.servers.iter().all(is_known) {
        return refuse(
            "the capture does not say which servers it comes from (the gateway has no account to ask them): the \
             target may be one of them"
                .to_owned(),
        );
    }
    if is_replica {
        return refuse("the target is a replica: of the source, maybe".to_owned());
    }
    Ok(())
}

/// Positions of different kinds say nothing of one another.
fn refuse_position(head: &Head, target: &ServerAtStart) -> Result<(), ReplayError> {
    let Some(now) = position(target) else {
        return Ok(());
    };
    let primaries = head.servers.iter().filter(|server| server.role == "primary");
    let known = primaries.filter_map(|server| Some((server, position(server)?)));
    let known: Vec<_> = known.filter(|(_, then)| then.flavor() == now.flavor()).collect();
    // A target is a copy of one cluster, where several were captured.
    let is_copy = known.iter().any(|(_, then)| *then == now);
    match known.first() {
        Some((server, then)) if !is_copy => Err(ReplayError::Position {
            server: server.name.clone(),
            then: then.to_string(),
            now: now.to_string(),
        }),
        _ => Ok(()),
    }
}

/// The GTID position of a server, where that is known and not empty. MySQL alone has a `server_uuid`.
fn position(server: &ServerAtStart) -> Option<GtidSet> {
    let flavor = match server.server_uuid {
        Some(_) => Flavor::MySql,
        None => Flavor::MariaDb,
    };
    let text = server.gtid_position.as_ref()?;
    let position = GtidSet::parse(flavor, text.as_bytes()).ok()?;
    (!position.is_empty()).then_some(position)
}
