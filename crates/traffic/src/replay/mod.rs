//! Sends the statements of a folder to another server, and writes down what came of them.
//!
//! Sessions run side by side, each in its own order and time. Nothing is known of the order between sessions
//! but their times: statements of two sessions that did not wait for one another when they were captured may
//! meet in another order, and then differ for a good reason.

mod client;
mod plan;
mod selection;
mod session;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinSet, LocalSet};

use crate::capture::unix_us;
use crate::file::{FileError, Folder, FolderWriter};
use crate::record::{CommandRecord, End, Flags, Head, Record, ReplayOf, ServerAtStart, SessionRecord};

pub use self::client::ClientError;
pub(crate) use self::plan::Judge;
pub use self::plan::{LeftOut, Permitted};
pub use self::selection::Selection;

/// Commands that are read ahead of those that are executed.
const AHEAD_MAX: usize = 50_000;
/// Commands are read so long before they are due, and as much earlier as the longest one took: it is written
/// where it has ended, behind all that began after it.
const AHEAD: Duration = Duration::from_secs(2);
const FILE_MAX: u64 = 256 << 20;

/// How fast.
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
    /// Its name.
    pub user: String,
    /// Its password; empty for none.
    pub password: String,
}

/// Who logs in for a captured user.
#[derive(Debug, Clone, Default)]
pub struct Logins {
    /// By the captured user.
    pub by_user: HashMap<String, Login>,
    /// Everybody else.
    pub others: Option<Login>,
}

impl Logins {
    fn of(&self, user: &str) -> Option<&Login> {
        self.by_user.get(user).or(self.others.as_ref())
    }
}

/// When prepared statements are closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Closing {
    /// When they were.
    #[default]
    AsCaptured,
    /// Behind each execution; they are prepared again in front of the next one.
    Always,
    /// When their session ends.
    Never,
}

/// What is to be replayed, and how.
#[derive(Debug, Clone)]
pub struct Order {
    /// What was captured.
    pub from: PathBuf,
    /// The server.
    pub target: SocketAddr,
    /// A new folder for what comes of it.
    pub result: PathBuf,
    /// Who logs in.
    pub logins: Logins,
    /// How fast.
    pub speed: Speed,
    /// What else may be sent.
    pub permitted: Permitted,
    /// Which part of it.
    pub selection: Selection,
    /// Schemas of the target by those that were captured.
    pub schemas: HashMap<String, String>,
    /// What becomes of prepared statements.
    pub closing: Closing,
    /// Also to the source, or to a replica.
    pub even_source: bool,
}

/// How far it is.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Commands that were executed or left out.
    pub done: u64,
    /// Commands that there are.
    pub total: u64,
    /// Answers that were errors where the captured ones were none, or the other way round.
    pub errors_differ: u64,
    /// How late the last command was.
    pub late: Duration,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Commands that were sent.
    pub sent: u64,
    /// Commands that were not, by why.
    pub left_out: BTreeMap<LeftOut, u64>,
    /// Sessions.
    pub sessions: u64,
    /// Sessions that could not log in, and the first reason.
    pub no_login: Option<(u64, String)>,
    /// Sessions whose beginning is not in the capture.
    pub was_open: u64,
    /// How late commands were, in microseconds: the median, the 99th percentile, the most.
    pub late_us: Option<[u64; 3]>,
    /// How long it took.
    pub took: Duration,
    /// Files of the capture that could not be read to their end.
    pub stops: Vec<String>,
}

/// Why it does not begin, or breaks off.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Of the capture, or of the result.
    #[error(transparent)]
    File(#[from] FileError),
    /// The target cannot be asked who it is.
    #[error("{target}: {error}")]
    Target {
        /// Which one.
        target: SocketAddr,
        /// What it says.
        error: ClientError,
    },
    /// It is where the traffic comes from, or may be.
    #[error("{0}; --even-source replays all the same")]
    Source(String),
    /// Nobody to log in as.
    #[error("no account for the captured user {0:?}: name one with --user, or in the file of --users")]
    NoLogin(String),
}

/// What a folder has: what a replay would do.
#[derive(Debug, Default)]
pub struct Survey {
    /// Commands in all.
    pub commands: u64,
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
    /// Files that could not be read to their end.
    pub stops: Vec<String>,
}

/// Reads a folder as a replay would.
///
/// # Errors
/// It cannot be read.
pub fn survey(folder: &Path, permitted: Permitted, selection: &Selection) -> Result<Survey, ReplayError> {
    let mut survey = Survey::default();
    let mut chosen: HashMap<u32, bool> = HashMap::new();
    let mut folder = Folder::open(folder)?;
    let mut judge = plan::Judge::new(permitted);
    while let Some(record) = folder.next_record()? {
        match record {
            Record::Session(session) => {
                let is_chosen = selection.takes_user(&session.user);
                chosen.insert(session.id, is_chosen);
                if !is_chosen || !selection.has(session.id) {
                    continue;
                }
                *survey.users.entry(session.user).or_default() += 1;
                survey.was_open += u64::from(session.was_open);
            }
            Record::Command(command) => {
                if !selection.has(command.session) {
                    continue;
                }
                survey.commands += 1;
                *survey.by_session.entry(command.session).or_default() += 1;
                let end = Duration::from_micros(command.start_us.saturating_add(command.took_us));
                survey.length = survey.length.max(end);
                survey.longest = survey.longest.max(Duration::from_micros(command.took_us));
                let is_chosen = selection.takes(&command) && chosen.get(&command.session) == Some(&true);
                let verdict = judge.may_be_sent(&command);
                if let Err(why) = if is_chosen {
                    verdict
                } else {
                    Err(LeftOut::NotChosen)
                } {
                    *survey.left_out.entry(why).or_default() += 1;
                }
            }
            Record::Head(_) | Record::Thinned { .. } | Record::End(_) => {}
        }
    }
    survey.stops = crate::offline::stops_in_words(&folder);
    Ok(survey)
}

/// What all sessions of a replay share. It lives on one thread.
struct Shared {
    order: Order,
    writer: RefCell<FolderWriter>,
    /// The first thing that could not be written.
    failed: RefCell<Option<FileError>>,
    began: Instant,
    progress: RefCell<Progress>,
    outcome: RefCell<Outcome>,
    late: RefCell<Option<Histogram<u64>>>,
}

impl Shared {
    fn put(&self, record: &Record) {
        if let Err(error) = self.writer.borrow_mut().put(record) {
            self.failed.borrow_mut().get_or_insert(error);
        }
    }

    /// Notes a command of a session that is not replayed, where this replayer has it.
    fn leave_out(&self, captured: &CommandRecord) {
        if !self.order.selection.has(captured.session) {
            return;
        }
        let mut record = CommandRecord {
            start_us: self.began.elapsed().as_micros() as u64,
            ..captured.clone()
        };
        record.flags.set(Flags::LEFT_OUT);
        self.put(&Record::Command(Box::new(record)));
        *self
            .outcome
            .borrow_mut()
            .left_out
            .entry(LeftOut::NotChosen)
            .or_default() += 1;
        self.progress.borrow_mut().done += 1;
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

/// Replays. `tell` hears of the progress a few times a second.
///
/// # Errors
/// See [`ReplayError`]. What was written until then can be read.
pub async fn replay(
    order: Order,
    survey: &Survey,
    forebay: &str,
    tell: impl Fn(&Progress) + 'static,
) -> Result<Outcome, ReplayError> {
    if let Some(user) = survey.users.keys().find(|user| order.logins.of(user).is_none()) {
        return Err(ReplayError::NoLogin(user.clone()));
    }
    let mut folder = Folder::open(&order.from)?;
    let target = target(&order).await?;
    if !order.even_source {
        refuse_source(folder.head(), &target)?;
    }
    let head = Head {
        kind: "replay".to_owned(),
        imported: None,
        forebay: forebay.to_owned(),
        began_unix_us: unix_us(),
        file: 1,
        filters: folder.head().filters.clone(),
        servers: vec![target.0],
        replay: Some(ReplayOf {
            capture_began_unix_us: folder.head().began_unix_us,
            speed: match order.speed {
                Speed::Max => "max".to_owned(),
                Speed::Times(times) => times.to_string(),
            },
        }),
    };
    let shared = Rc::new(Shared {
        writer: RefCell::new(FolderWriter::create(&order.result, head, FILE_MAX)?),
        order,
        failed: RefCell::default(),
        began: Instant::now(),
        progress: RefCell::new(Progress {
            total: survey.commands,
            ..Progress::default()
        }),
        outcome: RefCell::default(),
        late: RefCell::new(Histogram::new(2).ok()),
    });
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            let told = Rc::clone(&shared);
            let teller = tokio::task::spawn_local(async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    tell(&told.progress.borrow());
                }
            });
            let read = dispatch(&shared, &mut folder, survey).await;
            teller.abort();
            read
        })
        .await?;
    drop(tasks);
    conclude(shared, &folder, survey)
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
    while let Some(record) = folder.next_record()? {
        if shared.failed.borrow().is_some() {
            break;
        }
        let selection = &shared.order.selection;
        match record {
            Record::Session(record) if !selection.has(record.id) => {}
            Record::Session(record) if !selection.takes_user(&record.user) => {
                sessions.remove(&record.id);
                shared.put(&Record::Session(record));
            }
            Record::Session(record) => {
                shared.put(&Record::Session(record.clone()));
                let left = survey.by_session.get(&record.id).copied().unwrap_or(0);
                let (sender, _) = sessions.entry(record.id).or_insert_with(|| {
                    let (sender, given) = mpsc::unbounded_channel();
                    running.spawn_local(session::run(Rc::clone(shared), given));
                    (sender, left)
                });
                let _ = sender.send(session::Given::Session(record));
            }
            Record::Command(command) => {
                if !sessions.contains_key(&command.session) {
                    shared.leave_out(&command);
                    continue;
                }
                let due = shared.due(command.start_us);
                let ahead = due.saturating_duration_since(Instant::now());
                if ahead > read_ahead && !selection.is_over(&command) {
                    tokio::time::sleep(ahead - read_ahead).await;
                }
                let Ok(permit) = std::sync::Arc::clone(&room).acquire_owned().await else {
                    break;
                };
                let id = command.session;
                let Some((sender, left)) = sessions.get_mut(&id) else {
                    continue;
                };
                let _ = sender.send(session::Given::Command(command, permit));
                *left = left.saturating_sub(1);
                if *left == 0 {
                    // Its connection is closed behind the last.
                    sessions.remove(&id);
                }
                while running.try_join_next().is_some() {}
            }
            Record::Head(_) | Record::Thinned { .. } | Record::End(_) => {}
        }
    }
    drop(sessions);
    while running.join_next().await.is_some() {}
    Ok(())
}

fn conclude(shared: Rc<Shared>, folder: &Folder, survey: &Survey) -> Result<Outcome, ReplayError> {
    let mut outcome = shared.outcome.take();
    outcome.took = shared.began.elapsed();
    outcome.sessions = survey.by_session.len() as u64;
    outcome.was_open = survey.was_open;
    outcome.stops = crate::offline::stops_in_words(folder);
    if let (Some(late), Speed::Times(_)) = (&*shared.late.borrow(), shared.order.speed) {
        outcome.late_us = Some([
            late.value_at_quantile(0.5),
            late.value_at_quantile(0.99),
            late.max(),
        ]);
    }
    if let Some(error) = shared.failed.take() {
        return Err(error.into());
    }
    shared.put(&Record::End(Box::new(End {
        reason: "done".to_owned(),
        words: String::new(),
        commands: outcome.sent,
        sessions: outcome.sessions,
        thinned_sessions: 0,
        withheld: outcome.left_out.values().sum(),
        unchecked: 0,
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

/// Who the target is, and whether it is a replica of somebody.
async fn target(order: &Order) -> Result<(ServerAtStart, bool), ReplayError> {
    let failed = |error| ReplayError::Target {
        target: order.target,
        error,
    };
    let login = order
        .logins
        .others
        .as_ref()
        .or(order.logins.by_user.values().next());
    let login = login.ok_or_else(|| ReplayError::NoLogin(String::new()))?;
    let mut client = client::Client::connect(order.target, login, &SessionRecord::default())
        .await
        .map_err(failed)?;
    let mut server = client.who_are_you().await.map_err(failed)?;
    server.name = order.target.to_string();
    let is_replica = client.is_replica().await.map_err(failed)?;
    client.close().await;
    Ok((server, is_replica))
}

fn refuse_source(head: &Head, (target, is_replica): &(ServerAtStart, bool)) -> Result<(), ReplayError> {
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
    if *is_replica {
        return refuse("the target is a replica: of the source, maybe".to_owned());
    }
    Ok(())
}
