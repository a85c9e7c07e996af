//! What the rest of the gateway has of the fleet: what is going on, and a way to ask for a change.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::{IpNet, ServerAddress};
use net::TlsConnector;
use serde::Serialize;
use telemetry::{Samples, Source, catalog};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tracing::{info, warn};
use upstream::etcd::{Entry, Etcd, Range, Snapshot};

use crate::deed::{self, Wish};
use crate::disk::Disk;
use crate::folder::Folder;
use crate::keys::{About, Deed, Keys, View};
use crate::kill::{self, Kill, Killer, NotKilled};
use crate::member::{Me, Member};
use crate::number;
use crate::order::{Fate, Order, Refusal};
use crate::random;
use crate::share::{NONE, Share};
use crate::store::Store as _;

/// Longest text that all have in common, in bytes: the store takes 1.5 MiB in a change, which has it twice.
pub const TEXT_MAX: usize = 512 << 10;

/// Longest words about a change, in bytes.
const WHY_MAX: usize = 500;

/// Orders whose end is remembered.
const REMEMBERED: usize = 64;

/// For so long the store may take to be told that this gateway leaves.
pub(crate) const LEAVE_LIMIT: Duration = Duration::from_secs(1);

/// How often it is looked whether it has.
const LEFT_LOOK: Duration = Duration::from_millis(5);

/// Wishes that wait for their turn.
const WISHES_MAX: usize = 16;

/// Sessions that other gateways are asked to end at the same time, by clients. Operators may ask for as many,
/// whatever clients ask for.
const KILLS_MAX: usize = 64;

/// The account of a client may ask for so many of those.
const KILLS_OF_ACCOUNT: usize = 16;

/// How often it is looked whether a wish is fulfilled.
const WISH_LOOK: Duration = Duration::from_millis(20);

/// For so long the store is asked at the start of a gateway.
const FIRST_LIMIT: Duration = Duration::from_secs(5);

/// For so long somebody waits for what is read for him.
const READ_LIMIT: Duration = Duration::from_secs(8);

/// For so long somebody waits for a wish: for all to fulfil it, and for the last word of the store. The admin
/// server answers within ten seconds.
const WISH_LIMIT: Duration = Duration::from_millis(9_500);

/// Why a value of the store is not run.
pub(crate) const NO_TEXT: &str = "what the store has is no text (UTF-8)";

/// Takes what came of a `KILL`.
pub type OnKilled = Box<dyn FnOnce(Result<(), NotKilled>) + Send>;

/// What the fleet asks of its gateway. Called on the control thread.
pub trait Host: Send + Sync {
    /// Whether the gateway could run this text, with its own files.
    ///
    /// # Errors
    /// Why not, in words.
    fn check(&self, text: &str) -> Result<(), String>;

    /// Runs it from now on.
    ///
    /// # Errors
    /// Why not, in words; what was run before stays in force.
    fn apply(&self, revision: u64, text: &Arc<str>) -> Result<(), String>;

    /// Takes one of so many equal parts of the limits that all have together, and never less than one.
    ///
    /// # Errors
    /// Why not, in words; the part that it had stays.
    fn share(&self, parts: u32) -> Result<(), String>;

    /// Whether clients may come (`/readyz`).
    ///
    /// # Errors
    /// Why not, in words.
    fn is_ready(&self) -> Result<(), String>;

    /// Whether no server has more connections than that.
    fn is_within_share(&self) -> bool;

    /// Gives connection ids with this number from now on; 0: with that of nobody.
    fn number(&self, number: u32);

    /// Ends a session, or its statement, and tells what came of it.
    fn kill(&self, kill: Kill, told: OnKilled);

    /// Does what all do.
    ///
    /// # Errors
    /// Why not, in words.
    fn act(&self, deed: &Deed) -> Result<(), String>;

    /// Does it no more.
    ///
    /// # Errors
    /// Why not, in words.
    fn undo(&self, deed: &Deed) -> Result<(), String>;
}

/// The gateways that this one belongs to.
pub struct Fleet {
    settings: config::Store,
    vip: Option<config::Vip>,
    tls: Option<Arc<TlsConnector>>,
    disk: Disk,
    me: Me,
    state: Mutex<State>,
    wake: Notify,
    /// With which all read who ask this gateway: one login to the store, and one question at a time.
    reader: tokio::sync::Mutex<Option<Etcd>>,
    is_leaving: AtomicBool,
    has_left: AtomicBool,
    has_left_vip: AtomicBool,
    is_replaced: AtomicBool,
    must_try_again: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Since when the store answers, or does not.
    connected: Option<bool>,
    since: Option<Instant>,
    why: String,
    /// Why the store takes no changes.
    refused: Option<String>,
    /// Why another part of the limits could not be taken.
    no_part: Option<String>,
    /// Why what it runs is not on its disk.
    not_kept: Option<String>,
    waiting: Option<Order>,
    /// Wishes that wait for their turn, each with its end.
    wishes: VecDeque<(Wish, Instant)>,
    fulfilled: VecDeque<(String, Fate)>,
    /// Sessions that other gateways are to end: new ones with their time, and who waits for which.
    kills: Vec<(String, Kill, Instant)>,
    killing: Vec<Killing>,
    /// What came of those that other gateways have asked for.
    killed: Vec<(String, Result<(), NotKilled>)>,
    /// What somebody has asked this gateway for, by the keys that it would have for all.
    done_here: BTreeSet<String>,
    /// Pauses of all that were found at the start, and those that have begun here since.
    found: Vec<Asked>,
    begun: Vec<Asked>,
    orders: VecDeque<(String, Option<Fate>)>,
    now: Now,
    vip: Option<VipStatus>,
}

/// A deed of all: its key, and when it was asked.
type Asked = (String, Deed, i64);

/// Somebody waits for a session to be ended by another gateway.
struct Killing {
    id: String,
    by: Option<Killer>,
    told: oneshot::Sender<Result<(), NotKilled>>,
}

impl Killing {
    /// The same account has asked for it.
    fn is_by(&self, killer: &Killer) -> bool {
        let is_same = |by: &Killer| (&by.user, &by.cluster) == (&killer.user, &killer.cluster);
        self.by.as_ref().is_some_and(is_same)
    }
}

impl State {
    fn waits_for_kill(&self, id: &str) -> bool {
        self.killing.iter().any(|of| of.id == id)
    }

    fn has_room_for_kill(&self, by: Option<&Killer>) -> bool {
        let alike = self.killing.iter().filter(|of| of.by.is_some() == by.is_some());
        let of_account = by.map_or(0, |by| self.killing.iter().filter(|of| of.is_by(by)).count());
        alike.count() < KILLS_MAX && of_account < KILLS_OF_ACCOUNT
    }

    /// Those whose clients have gone are not asked for.
    fn forget_kills(&mut self) {
        self.killing.retain(|of| !of.told.is_closed());
        let kills = std::mem::take(&mut self.kills).into_iter();
        self.kills = kills.filter(|(id, ..)| self.waits_for_kill(id)).collect();
    }
}

/// What was seen last.
#[derive(Clone, Default)]
struct Now {
    running: u64,
    parts: Option<u32>,
    number: Option<u32>,
    is_member: bool,
    committed: u64,
    stranger: Option<String>,
    problem: Option<(u64, String)>,
    undone: Vec<String>,
    members: Vec<MemberStatus>,
}

/// A gateway of the fleet. Field names are a contract with scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Of the program.
    pub version: String,
    /// Its zone, where it has one.
    pub zone: Option<String>,
    /// Where its admin server is.
    pub addresses: Vec<String>,
    /// The revision that it runs; 0 is none.
    pub revision: u64,
    /// Whether that is the one that is committed.
    pub is_current: bool,
    /// Why it is not: what it says, or that it has said nothing yet. Or what all do and it could not do.
    pub problem: Option<String>,
    /// Of the limits that all have together it takes no more than one of so many parts; `None`: it has none
    /// yet, or has the limits for itself.
    pub parts: Option<u32>,
    /// The virtual address, where it has it, as far as the gateway knows that was asked.
    pub vip: Option<String>,
}

/// How a gateway stands to the virtual address. Field names are a contract with scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VipStatus {
    /// The address.
    pub address: String,
    /// Where it is when it is here.
    pub interface: String,
    /// `holds`, `takes` (it is about to have it), `waits` (another one has it) or `out` (it is no candidate).
    pub state: String,
    /// The gateway that has it, as the store says; `None`: no gateway, or the store has not said.
    pub holder: Option<String>,
    /// What is in the way, or went wrong last.
    pub problem: Option<String>,
}

/// How this gateway stands to the fleet and the store. Field names are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Which one it is.
    pub fleet: String,
    /// This gateway in it.
    pub name: String,
    /// Whether the store answers.
    pub connected: bool,
    /// For how long that is so.
    pub since_seconds: u64,
    /// The revision that this gateway runs; 0 is none.
    pub revision: u64,
    /// The revision that was committed last, as far as this gateway knows.
    pub committed: u64,
    /// Gateways that live, as far as this gateway knows.
    pub members: usize,
    /// Of the limits that all have together this gateway has one of so many parts; `None`: it has one of each
    /// limit until the others have made room, or has the limits for itself.
    pub parts: Option<u32>,
    /// The number that the connection ids of this gateway begin with; `None`: it has none, and `KILL` on
    /// other gateways does not find its sessions.
    pub number: Option<u32>,
    /// The virtual address, where there is one.
    pub vip: Option<VipStatus>,
    /// What is wrong, in words.
    pub problems: Vec<String>,
}

/// A change that was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct OrderStatus {
    /// Its id.
    pub order: String,
    /// What became of it; `None`: it is under way.
    pub result: Option<Fate>,
}

/// Who wants which change.
pub struct Wanted {
    /// The text.
    pub text: String,
    /// The revision that it is to follow; the one that there is where nobody says it.
    pub expect: Option<u64>,
    /// Who.
    pub who: String,
    /// Why; may be empty.
    pub why: String,
}

impl Fleet {
    /// Begins a run of this gateway. Nothing is asked of the store yet.
    ///
    /// # Errors
    /// Its folder cannot be used, or the files for TLS.
    pub fn open(
        settings: &config::Store,
        vip: Option<&config::Vip>,
        version: &str,
        zone: Option<String>,
        addresses: Vec<String>,
    ) -> io::Result<Arc<Self>> {
        let disk = Disk::of(settings);
        let in_folder = |error: io::Error| {
            let folder = disk.folder().display();
            io::Error::other(format!("[store] state_dir: {folder}: {error}"))
        };
        let (id, run) = disk.begin().map_err(in_folder)?;
        let place = disk.place().map_err(in_folder)?;
        let name = match &settings.name {
            Some(name) => name.clone(),
            None => machine()?,
        };
        let tls = connector(settings)?;
        let version = version.to_owned();
        Ok(Arc::new(Self {
            me: Me {
                id,
                place,
                run,
                name,
                version,
                zone,
                addresses,
            },
            vip: vip.cloned(),
            tls,
            disk,
            settings: settings.clone(),
            state: Mutex::default(),
            wake: Notify::new(),
            reader: tokio::sync::Mutex::default(),
            is_leaving: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            has_left_vip: AtomicBool::new(vip.is_none()),
            is_replaced: AtomicBool::new(false),
            must_try_again: AtomicBool::new(false),
        }))
    }

    /// Reads certificates and keys of the link to the etcd again where their files have changed; returns what
    /// was read, or what is wrong with it. Then the old ones stay in use.
    pub fn reload_tls_if_changed(&self) -> Option<Result<String, String>> {
        let name = "[store] tls";
        match self.tls.as_ref()?.reload_if_changed() {
            Ok(changed) => changed.then(|| Ok(name.to_owned())),
            Err(error) => Some(Err(format!("{name}: {error}"))),
        }
    }

    /// The revision and the text that were applied last, as they are on the disk.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn kept(&self) -> io::Result<Option<(u64, Arc<str>)>> {
        let path = self.disk.path();
        let kept = self.disk.read();
        kept.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
    }

    /// The text that the store has, asked once and not for long. Pauses of all are kept for
    /// [`begin`](Self::begin).
    ///
    /// # Errors
    /// It does not answer.
    pub async fn look(&self) -> io::Result<Option<(u64, Arc<str>)>> {
        let keys = self.keys();
        let view = View::from(in_time(FIRST_LIMIT, self.read(&keys.live())).await?);
        let acts = view.acts(&keys).into_iter();
        let pauses = acts.filter(|(_, deed)| matches!(deed, Deed::Pause { .. }));
        let pauses = pauses.map(|(entry, deed)| (entry.key.clone(), deed, entry.created));
        self.state().found = pauses.collect();
        text_in(&view, &keys)
    }

    /// Has statements wait where those of all do, before this gateway has clients. A pause that fails here is
    /// tried again by [`run`](Self::run).
    pub fn begin(&self, host: &dyn Host) {
        let mut pauses = std::mem::take(&mut self.state().found);
        pauses.retain(|(_, deed, _)| {
            let is_done = host.act(deed).is_ok();
            if is_done {
                info!(what = deed.to_string(), "done since all gateways do it");
            }
            is_done
        });
        self.state().begun = pauses;
    }

    async fn committed(&self) -> io::Result<Option<(u64, Arc<str>)>> {
        let keys = self.keys();
        let view = View::from(self.read(&Range::of(&keys.config())).await?);
        text_in(&view, &keys)
    }

    /// Keeps a text that is run, for the next start.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, revision: u64, text: &str) -> io::Result<()> {
        let kept = self.disk.keep(revision, text);
        let why = kept.as_ref().err().map(ToString::to_string);
        self.state().not_kept = why;
        kept
    }

    /// The part of the limits that it has: kept for a start without the store.
    pub(crate) fn keep_parts(&self, parts: u32) -> io::Result<()> {
        let mut state = self.state();
        state.now.parts = Some(parts);
        state.no_part = None;
        drop(state);
        self.disk.keep_parts(parts)
    }

    /// Why it has not the part that it should have.
    pub(crate) fn note_no_part(&self, why: String) {
        self.state().no_part = Some(why);
    }

    /// Whether it is one of those who share limits, and has no part yet.
    pub fn waits_for_part(&self) -> bool {
        let state = self.state();
        self.settings.share_limits && state.connected == Some(true) && state.now.parts.is_none()
    }

    /// Is none of the fleet any more: changes do not wait for this gateway.
    pub fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// The same, and another process of this gateway has come: it has the virtual address next.
    pub fn leave_to_successor(&self) {
        self.is_replaced.store(true, Ordering::Relaxed);
        self.leave();
    }

    /// Waits until it is none, or the store has not taken that in time: its lease ends by itself.
    pub async fn left(&self) {
        let left = async {
            let has_left = [&self.has_left, &self.has_left_vip];
            while !has_left.iter().all(|has| has.load(Ordering::Relaxed)) {
                tokio::time::sleep(LEFT_LOOK).await;
            }
        };
        let _ = timeout(LEAVE_LIMIT, left).await;
    }

    pub(crate) fn note_left(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }

    /// What this gateway could not apply may be possible now.
    pub fn try_again(&self) {
        self.must_try_again.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Begins a change of what all have in common; [`order`](Self::order) tells how it goes.
    ///
    /// # Errors
    /// Why it has not begun, in words.
    pub fn apply(&self, wanted: Wanted) -> Result<String, String> {
        if wanted.text.len() > TEXT_MAX {
            return Err(format!("the text has more than {TEXT_MAX} bytes"));
        }
        let id = random().map_err(|error| error.to_string())?;
        let mut state = self.state();
        if state.connected != Some(true) {
            return Err(format!("the store does not answer: {}", state.why));
        }
        if state.orders.iter().any(|(_, result)| result.is_none()) {
            return Err("another change that this gateway was asked for is under way".to_owned());
        }
        let about = About {
            who: wanted.who,
            when: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs(),
            why: short(&wanted.why),
            ..About::default()
        };
        // When it begins is when it is taken.
        let order = Order::new(id.clone(), wanted.text, wanted.expect, about, Duration::ZERO);
        state.waiting = Some(order);
        state.orders.push_back((id.clone(), None));
        if state.orders.len() > REMEMBERED {
            state.orders.pop_front();
        }
        drop(state);
        self.wake.notify_one();
        Ok(id)
    }

    /// The same with the text of a former revision. `accounts`: also where that changes who may log in, or
    /// with which password.
    ///
    /// # Errors
    /// Why it has not begun, in words.
    pub async fn roll_back(&self, to: u64, accounts: bool, wanted: Wanted) -> Result<String, String> {
        let (present, now) = self.text(None).await?;
        let (_, then) = self.text(Some(to)).await?;
        if !accounts && !has_same_accounts(&now, &then) {
            return Err(format!(
                "the accounts ([[user]]) of revision {to} are others than those of the present one, {present}: a password that was \
                 revoked would be valid again. --accounts if that is meant"
            ));
        }
        let wanted = Wanted {
            text: then,
            expect: wanted.expect.or(Some(present)),
            ..wanted
        };
        self.apply(wanted)
    }

    /// The options that differ between two revisions, a line each; no secrets.
    ///
    /// # Errors
    /// The store does not answer, or does not have them.
    pub async fn diff(&self, from: u64, to: u64) -> Result<String, String> {
        let (_, old) = self.text(Some(from)).await?;
        let (_, new) = self.text(Some(to)).await?;
        if old == new {
            return Ok("the texts are the same".to_owned());
        }
        let parse = |revision: u64, text: &str| {
            let parsed = config::Config::parse(text, &format!("revision {revision}"));
            parsed.map_err(|errors| format!("it is not understood by this version:\n{errors}"))
        };
        let diff = parse(from, &old)?.diff(&parse(to, &new)?);
        Ok(match diff.is_empty() {
            true => "no option differs: comments, or how they are written".to_owned(),
            false => diff.to_string(),
        })
    }

    /// Has all gateways do something, or do it no more, and waits until that is so.
    ///
    /// # Errors
    /// Why it is not, in words.
    pub async fn wish(&self, deed: Deed, is_wanted: bool) -> Result<(), String> {
        let id = random().map_err(|error| error.to_string())?;
        {
            let mut state = self.state();
            if state.connected != Some(true) {
                return Err(format!(
                    "the store does not answer: {}; `--here` is for this gateway alone",
                    state.why
                ));
            }
            if state.wishes.len() >= WISHES_MAX {
                return Err("too much is asked of all gateways at once".to_owned());
            }
            let ends = Instant::now() + deed::PATIENCE;
            let wish = Wish::new(id.clone(), deed, is_wanted);
            state.wishes.push_back((wish, ends));
        }
        self.wake.notify_one();
        let waiting = async {
            loop {
                if let Some(fate) = self.take_fulfilled(&id) {
                    return fate;
                }
                tokio::time::sleep(WISH_LOOK).await;
            }
        };
        match timeout(WISH_LIMIT, waiting).await {
            Ok(Fate::Done) => Ok(()),
            Ok(Fate::Refused { by }) => {
                let by: Vec<_> = by
                    .into_iter()
                    .map(|by| format!("{}: {}", by.gateway, by.why))
                    .collect();
                Err(format!(
                    "not done, since not all gateways have: {}",
                    by.join("; ")
                ))
            }
            Ok(Fate::Unknown { why, .. }) => Err(format!("it is not known whether it was done: {why}")),
            Ok(Fate::Failed { why } | Fate::Conflict { why, .. }) => Err(why),
            Ok(Fate::Committed { .. } | Fate::Unchanged { .. }) | Err(_) => {
                Err("the store has not answered in time: it is not known whether it was done".to_owned())
            }
        }
    }

    /// Has the gateway that gave a connection id end that session, or its statement.
    ///
    /// # Errors
    /// Why that is not so.
    pub async fn kill(&self, kill: Kill) -> Result<(), NotKilled> {
        let failed = |why: String| Err(NotKilled::Failed(why));
        let (told, answer) = oneshot::channel();
        {
            let mut state = self.state();
            if state.connected != Some(true) {
                let why = &state.why;
                return failed(format!(
                    "the store, by which the other gateway is asked, does not answer: {why}"
                ));
            }
            state.forget_kills();
            let by = kill.by.clone();
            if !state.has_room_for_kill(by.as_ref()) {
                return failed("other gateways are asked to end too many sessions at once".to_owned());
            }
            let id = match random() {
                Ok(id) => id,
                Err(error) => return failed(error.to_string()),
            };
            state
                .kills
                .push((id.clone(), kill, Instant::now() + kill::PATIENCE));
            state.killing.push(Killing { id, by, told });
        }
        self.wake.notify_one();
        // Who asks the store may itself be waiting for it.
        match timeout(kill::PATIENCE + kill::PATIENCE / 4, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => {
                let why =
                    "the store has not answered in time: it is not known whether the other gateway does it";
                failed(why.to_owned())
            }
        }
    }

    /// Somebody has had this gateway do it: where all are to do it no more and that has failed here so far,
    /// it is not tried again.
    pub fn note_done_here(&self, deed: &Deed) {
        let key = deed.key(&self.keys());
        self.state().done_here.insert(key);
        self.wake.notify_one();
    }

    pub(crate) fn note_killed(&self, key: String, answer: Result<(), NotKilled>) {
        self.state().killed.push((key, answer));
        self.wake.notify_one();
    }

    fn take_fulfilled(&self, id: &str) -> Option<Fate> {
        let mut state = self.state();
        let place = state.fulfilled.iter().position(|(of, _)| of == id)?;
        state.fulfilled.remove(place).map(|(_, fate)| fate)
    }

    /// What became of a change; `None` where nobody knows it any more.
    pub fn order(&self, id: &str) -> Option<OrderStatus> {
        let state = self.state();
        let (order, result) = state.orders.iter().find(|(order, _)| order == id)?;
        Some(OrderStatus {
            order: order.clone(),
            result: result.clone(),
        })
    }

    /// Who made which revision, the newest first.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn history(&self) -> Result<Vec<About>, String> {
        let found = in_time(READ_LIMIT, self.read(&self.keys().abouts())).await;
        let found = found.map_err(|error| error.to_string())?;
        let about = |entry: &Entry| serde_json::from_slice(&entry.value).ok();
        Ok(found.entries.iter().rev().filter_map(about).collect())
    }

    /// The text of a revision, or of the present one.
    ///
    /// # Errors
    /// The store does not answer, or does not have it.
    pub async fn text(&self, revision: Option<u64>) -> Result<(u64, String), String> {
        let reading = async {
            match revision {
                None => self.committed().await,
                Some(revision) => {
                    let found = self.read(&Range::of(&self.keys().text(revision))).await?;
                    let entry = found.entries.first();
                    entry.map(|entry| Ok((revision, text_of(entry)?))).transpose()
                }
            }
        };
        let found: io::Result<Option<(u64, Arc<str>)>> = in_time(READ_LIMIT, reading).await;
        match (found.map_err(|error| error.to_string())?, revision) {
            (Some((revision, text)), _) => Ok((revision, text.to_string())),
            (None, Some(revision)) => Err(format!(
                "there is no revision {revision} (`forebay ctl history` lists them)"
            )),
            (None, None) => Err("the store has no configuration yet: `forebay ctl apply FILE`".to_owned()),
        }
    }

    /// The gateways that live, as this one has seen them last.
    pub fn members(&self) -> Vec<MemberStatus> {
        let state = self.state();
        let mut members = state.now.members.clone();
        if let Some(vip) = &state.vip {
            let holder = |member: &&mut MemberStatus| vip.holder.as_ref() == Some(&member.name);
            if let Some(member) = members.iter_mut().find(holder) {
                member.vip = Some(vip.address.clone());
            }
        }
        members
    }

    /// How this gateway stands.
    pub fn status(&self) -> Status {
        let state = self.state();
        let now = &state.now;
        let is_connected = state.connected == Some(true);
        let mut problems = Vec::new();
        if !is_connected {
            problems.push(match state.why.as_str() {
                "" => "the store was not reached yet".to_owned(),
                why => format!("the store does not answer: {why}"),
            });
        }
        problems.extend(
            state
                .refused
                .as_ref()
                .map(|why| format!("the store takes no changes: {why}")),
        );
        problems.extend(now.stranger.clone());
        problems.extend(
            state
                .no_part
                .as_ref()
                .map(|why| format!("no other part of the limits is taken: {why}")),
        );
        if now.running == 0 {
            problems.push("there is no configuration of the fleet: `forebay ctl apply FILE`".to_owned());
        }
        if let Some((revision, why)) = &now.problem {
            problems.push(format!("revision {revision} cannot be run: {why}"));
        }
        problems.extend(now.undone.iter().cloned());
        if is_connected && now.is_member && now.number.is_none() {
            problems.push(format!(
                "all {} numbers of gateways are taken: KILL on other gateways does not find sessions of this one",
                number::LAST
            ));
        }
        if let Some(why) = &state.not_kept {
            problems.push(format!("the configuration is not kept in `state_dir`: {why}"));
        }
        Status {
            fleet: self.settings.fleet.clone(),
            name: self.me.name.clone(),
            connected: is_connected,
            since_seconds: state.since.map_or(0, |since| since.elapsed().as_secs()),
            revision: now.running,
            committed: now.committed,
            members: now.members.len(),
            parts: now.parts,
            number: now.number,
            vip: state.vip.clone(),
            problems,
        }
    }

    fn keys(&self) -> Keys {
        Keys::of(&self.settings.fleet)
    }

    pub(crate) fn member(&self, running: Option<(u64, Arc<str>)>) -> Member {
        self.state().now.running = running.as_ref().map_or(0, |(revision, _)| *revision);
        let share = self.settings.share_limits.then(|| Share::new(self.disk.parts()));
        let mut member = Member::new(self.keys(), self.me.clone(), running, share);
        let begun = std::mem::take(&mut self.state().begun);
        for (key, deed, asked) in begun {
            member.did(key, deed, asked, None, Duration::ZERO);
        }
        member
    }

    /// The folder that is the store, where it is one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.settings.folder.as_deref()
    }

    pub(crate) fn etcd(&self) -> Etcd {
        etcd(&self.settings, self.tls.clone())
    }

    /// Reads for somebody, without waiting for what else is going on.
    async fn read(&self, range: &Range) -> io::Result<Snapshot> {
        match &self.settings.folder {
            Some(folder) => Folder::new(folder).read(range).await,
            None => {
                let mut reader = self.reader.lock().await;
                reader.get_or_insert_with(|| self.etcd()).read(range).await
            }
        }
    }

    // For the virtual address.

    /// Settings, address, and the length of its network.
    pub(crate) fn vip(&self) -> Option<(&config::Vip, Ipv4Addr, u8)> {
        match self.vip.as_ref().map(|vip| (vip, vip.address)) {
            Some((vip, IpNet::V4(net))) => Some((vip, net.addr(), net.prefix_len())),
            // Refused with the configuration.
            Some((_, IpNet::V6(_))) | None => None,
        }
    }

    pub(crate) fn vip_key(&self, address: Ipv4Addr) -> String {
        self.keys().vip(address)
    }

    pub(crate) fn name(&self) -> &str {
        &self.me.name
    }

    /// Which gateway is to have the address when this one leaves it.
    pub(crate) fn leaves_vip_to(&self) -> Option<&str> {
        self.is_replaced.load(Ordering::Relaxed).then_some(&self.me.name)
    }

    pub(crate) fn note_vip(&self, status: VipStatus) {
        self.state().vip = Some(status);
    }

    pub(crate) fn note_vip_left(&self) {
        self.has_left_vip.store(true, Ordering::Relaxed);
    }

    // For the driver.

    pub(crate) fn lease(&self) -> Duration {
        self.settings.lease
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    pub(crate) fn note_connected(&self) {
        let mut state = self.state();
        if state.connected != Some(true) {
            info!(
                fleet = self.settings.fleet,
                name = self.me.name,
                "the store answers"
            );
            state.since = Some(Instant::now());
        }
        state.connected = Some(true);
    }

    pub(crate) fn note_lost(&self, why: &str) {
        let mut state = self.state();
        if state.connected != Some(false) {
            warn!(
                why,
                "the store does not answer: this gateway goes on as it is, and changes wait"
            );
            state.since = Some(Instant::now());
        }
        state.connected = Some(false);
        why.clone_into(&mut state.why);
    }

    pub(crate) fn note_refused(&self, why: &str) {
        let mut state = self.state();
        if state.refused.is_none() {
            warn!(why, "the store takes no changes: this gateway goes on as it is");
        }
        state.refused = Some(why.to_owned());
    }

    pub(crate) fn note_taken(&self) {
        if self.state().refused.take().is_some() {
            info!("the store takes changes again");
        }
    }

    pub(crate) fn give_orders(&self, member: &mut Member, host: &dyn Host, now: Duration) {
        if self.must_try_again.swap(false, Ordering::Relaxed) {
            member.try_again();
        }
        if member.is_idle() {
            let waiting = self.state().waiting.take();
            if let Some(mut order) = waiting.and_then(|order| self.looked_at(order, host)) {
                order.begin(now);
                member.take_order(order);
            }
        }
        if member.is_content()
            && let Some((mut wish, ends)) = self.state().wishes.pop_front()
        {
            wish.begin(now + ends.saturating_duration_since(Instant::now()));
            member.take_wish(wish);
        }
        let mut state = self.state();
        state.forget_kills();
        for (id, kill, ends) in state.kills.drain(..) {
            let left = ends.saturating_duration_since(Instant::now());
            member.kills.ask(id, kill, now + left);
        }
        member.kills.keep(|id| state.waits_for_kill(id));
        for key in std::mem::take(&mut state.done_here) {
            member.done_here(&key);
        }
        for (key, answer) in state.killed.drain(..) {
            member.kills.answered(&key, answer);
        }
    }

    /// The order, where this gateway can run its text. What the store has had once it keeps: a text with a
    /// password in clear must not even be proposed.
    fn looked_at(&self, order: Order, host: &dyn Host) -> Option<Order> {
        let Err(why) = host.check(order.text()) else {
            return Some(order);
        };
        let refusal = Refusal {
            gateway: self.me.name.clone(),
            why,
        };
        self.note_result(&order.id, Fate::Refused { by: vec![refusal] });
        None
    }

    pub(crate) fn note_finished(&self, member: &mut Member) {
        if let Some(fulfilled) = member.fulfilled() {
            let mut state = self.state();
            state.fulfilled.push_back(fulfilled);
            // Whoever waits for one that old has gone.
            if state.fulfilled.len() > REMEMBERED {
                state.fulfilled.pop_front();
            }
        }
        while let Some((id, answer)) = member.kills.finished() {
            let mut state = self.state();
            let place = state.killing.iter().position(|of| of.id == id);
            if let Some(Killing { told, .. }) = place.map(|place| state.killing.swap_remove(place)) {
                // Whoever asked may have gone.
                let _ = told.send(answer);
            }
        }
        if let Some((id, result)) = member.finished() {
            self.note_result(&id, result);
        }
    }

    fn note_result(&self, id: &str, result: Fate) {
        info!(
            order = id,
            ?result,
            "a change of the configuration of all has ended"
        );
        let mut state = self.state();
        if let Some(order) = state.orders.iter_mut().find(|(order, _)| order == id) {
            order.1 = Some(result);
        }
    }

    pub(crate) fn publish(&self, member: &Member, view: &View) {
        let keys = self.keys();
        let (committed, _) = view.config(&keys);
        let status = |(name, _, told): (&str, _, Option<crate::keys::GatewayEntry>)| match told {
            Some(told) => MemberStatus {
                name: name.to_owned(),
                is_current: told.revision == committed && told.refused.is_none(),
                problem: match told.refused {
                    Some((revision, why)) => Some(format!("revision {revision}: {why}")),
                    None if told.revision != committed => Some("has not applied it yet".to_owned()),
                    None => (!told.undone.is_empty()).then(|| told.undone.join("; ")),
                },
                version: told.version,
                zone: told.zone,
                addresses: told.addresses,
                revision: told.revision,
                parts: Some(told.parts).filter(|parts| ![0, NONE].contains(parts)),
                vip: None,
            },
            None => MemberStatus {
                name: name.to_owned(),
                version: String::new(),
                zone: None,
                addresses: Vec::new(),
                revision: 0,
                is_current: false,
                problem: Some("what it says of itself is not understood: another version?".to_owned()),
                parts: None,
                vip: None,
            },
        };
        let now = Now {
            running: member.running().map_or(0, |(revision, _)| *revision),
            parts: member.parts(),
            number: member.number(),
            is_member: member.is_member(view),
            committed,
            stranger: member.stranger(view),
            problem: member.problem().map(|(revision, why)| (revision, why.to_owned())),
            undone: member.undone(),
            members: view.gateways(&keys).into_iter().map(status).collect(),
        };
        let mut state = self.state();
        if now.stranger.is_some() && state.now.stranger != now.stranger {
            warn!(why = now.stranger, "this gateway is none of the fleet");
        }
        state.now = now;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Fleet {
    fn collect(&self, out: &mut Samples) {
        let state = self.state();
        let now = &state.now;
        let behind = now.members.iter().filter(|member| !member.is_current).count();
        out.gauge(&catalog::STORE_CONNECTED, &[], state.connected == Some(true));
        out.gauge(&catalog::FLEET_REVISION, &[], now.running);
        out.gauge(&catalog::FLEET_COMMITTED, &[], now.committed);
        out.gauge(&catalog::FLEET_MEMBERS, &[], now.members.len());
        out.gauge(&catalog::FLEET_BEHIND, &[], behind);
        out.gauge(&catalog::FLEET_NUMBER, &[], now.number.unwrap_or_default());
        if self.settings.share_limits {
            out.gauge(&catalog::FLEET_PARTS, &[], now.parts.unwrap_or_default());
        }
        if let Some(vip) = &state.vip {
            out.gauge(&catalog::VIP_HELD, &[&vip.address], vip.state == "holds");
        }
    }
}

/// The state of the store, for who only looks. Nothing is changed there, nor in the folder of this gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The revision of the common text; 0: there is none yet.
    pub revision: u64,
    /// Gateways that live.
    pub gateways: usize,
}

impl Reached {
    /// Asks the store as a gateway does at its start, but each member of an etcd for as long as that may
    /// take: members that a firewall keeps silent are named.
    ///
    /// # Errors
    /// The store does not answer, or not so that it is of use. The error says which member and why.
    pub async fn look(settings: &config::Store) -> io::Result<Self> {
        let keys = Keys::of(&settings.fleet);
        let live = keys.live();
        let read = match &settings.folder {
            Some(folder) => Folder::new(folder).peek(&live)?,
            None => {
                let mut etcd = etcd(settings, connector(settings)?);
                etcd.read(&live).await?
            }
        };
        let view = View::from(read);
        Ok(Self {
            revision: view.config(&keys).0,
            gateways: view.gateways(&keys).len(),
        })
    }
}

/// Waits for an answer of the store, no longer than `limit`.
pub(crate) async fn in_time<T>(limit: Duration, read: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let read = timeout(limit, read).await;
    read.unwrap_or_else(|_| Err(io::Error::other("the store has not answered in time")))
}

fn connector(settings: &config::Store) -> io::Result<Option<Arc<TlsConnector>>> {
    if settings.tls.mode == config::TlsMode::Off {
        return Ok(None);
    }
    let connector = TlsConnector::new(&settings.tls);
    let connector = connector.map_err(|error| io::Error::other(format!("[store] tls: {error}")))?;
    Ok(Some(Arc::new(connector)))
}

fn etcd(settings: &config::Store, tls: Option<Arc<TlsConnector>>) -> Etcd {
    let members = settings.endpoints.iter().filter_map(|address| match address {
        ServerAddress::Host { host, port } => Some((host.as_str(), *port)),
        ServerAddress::Unix(_) => None,
    });
    let login = settings.user.clone().zip(settings.password.clone());
    Etcd::new(members, tls, login)
}

fn text_in(view: &View, keys: &Keys) -> io::Result<Option<(u64, Arc<str>)>> {
    let (revision, entry) = view.config(keys);
    entry.map(|entry| Ok((revision, text_of(entry)?))).transpose()
}

fn text_of(entry: &Entry) -> io::Result<Arc<str>> {
    let text = std::str::from_utf8(&entry.value).map_err(|_| io::Error::other(NO_TEXT))?;
    Ok(text.into())
}

/// Where one of them is not understood it is not known.
fn has_same_accounts(one: &str, other: &str) -> bool {
    let users = |text: &str| {
        let config = config::Config::parse(text, "revision").ok()?;
        Some((config.users, config.users_file))
    };
    matches!((users(one), users(other)), (Some(one), Some(other)) if one == other)
}

fn machine() -> io::Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let name: String = name
        .trim()
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || ".-_".contains(letter) {
                letter
            } else {
                '-'
            }
        })
        .collect();
    match name.is_empty() {
        true => Err(io::Error::other(
            "this machine has no name: set `name` in [store]",
        )),
        false => Ok(name),
    }
}

/// One line, not longer than is read.
fn short(text: &str) -> String {
    let mut short = String::new();
    for letter in text.chars().filter(|letter| !letter.is_control()) {
        if short.len() + letter.len_utf8() > WHY_MAX {
            break;
        }
        short.push(letter);
    }
    short
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn who_waits_for_a_store_in_vain_is_told_so() {
        let late = in_time(Duration::from_millis(1), pending::<io::Result<()>>()).await;
        let words = "the store has not answered in time";
        assert_eq!(late.unwrap_err().to_string(), words);
    }
}
