//! Point lookups in mode `session`, where the gateway knows nothing of a session but what it sees here.
//!
//! While lookups are on, every statement is looked at. Most leave a session in which a lookup may be
//! answered; some change what its answer looks like, after which the server is asked for the settings before
//! the next lookup ([`settings`]); and after some nobody knows ([`Standing::Doubtful`]), until
//! COM_RESET_CONNECTION.
//!
//! The server does not know of a lookup that was answered from memory. Where the next statement could tell
//! (`FOUND_ROWS()`, `SHOW WARNINGS`), which is any but a plain SELECT, the lookup is executed on the server
//! first, for nobody. So what a server says of its last statement is always of the client's last statement.

mod classify;
mod level;
mod now;
mod prepared;
mod rights;
mod settings;

use std::collections::{BTreeSet, HashMap};
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use config::ReadConsistency;
use foldhash::fast::RandomState;
use mysql_wire::{Command, PacketHeader, StatusFlags};
use net::Peer;
use sql_class::{Class, Effects, Facts, Syntax, point_lookup};

use self::classify::{ANY_OTHER, NOTHING, Other, TRAILING_QUOTES, classify};
pub(crate) use self::now::{AtOnce, at_once, note_outcome};
use self::prepared::LastPrepared;
use self::rights::RightsOfSession;
pub(crate) use self::rights::rights_of_login;
use crate::control::Waiting;
use crate::error::SessionError;
use crate::finished::End;
use crate::forward;
use crate::lookups::{
    self, Asked, Environment, Finding, Left, LookupSeries, Lookups, Plan, Recorded, Recorder,
};
use crate::read_gate::{self, Gating};
use crate::relay::{Exchange, Exchanged, RelayError};
use crate::session::{CommandHead, Session};
use crate::settle;
use crate::split::{self, ask};

/// What a session has where `point_lookups` is on.
pub(crate) struct OfSession {
    lookups: Rc<dyn Lookups>,
    consistency: ReadConsistency,
    /// The definitions that memory had when a lookup waited for all that the session may have written before.
    /// Where memory begins anew, they are others.
    waited: Option<u64>,
    user: Box<[u8]>,
    host: Option<IpAddr>,
    collation: u8,
    /// As of when the settings were asked for.
    syntax: Syntax,
    standing: Standing,
    rights: RightsOfSession,
    /// A statement may have changed the current role.
    has_other_role: bool,
    /// How often settings have changed, or may have.
    changes: u32,
    /// A statement was about the next transaction only.
    next_transaction: bool,
    /// Warnings or an error of an earlier statement may still be shown by the server.
    has_diagnostics: bool,
    /// The status that the environment is of.
    status: StatusFlags,
    /// Variables that the session has set, beside those whose values are asked for.
    set: BTreeSet<Box<[u8]>>,
    statements: HashMap<u32, Prepared, RandomState>,
    last_prepared: LastPrepared,
    /// When a command went to the server last, in ticks of the worker's clock.
    sent: u32,
    gating: Gating,
    /// The command of a lookup that the server does not know of.
    unknown_to_server: Vec<u8>,
    /// What [`at_once`] has found of the command under way.
    found: Found,
    key: Vec<u8>,
    out: Vec<u8>,
}

/// What is known of the session's settings.
enum Standing {
    Known(Environment),
    /// To be asked for.
    Changed,
    /// There may be things that nobody can ask for: temporary tables, locks.
    Doubtful,
}

struct Prepared {
    text: Box<[u8]>,
    other: Other,
    /// The session's `changes` when it was prepared: names and quotes mean what they meant then.
    changes: u32,
    parameters: u16,
    /// The types that the server has.
    types: Option<Box<[u8]>>,
    has_long_data: bool,
    /// What the client was told of its columns, where it need not be told again.
    told: Option<ToldColumns>,
    /// Whether it is a lookup, where it is read like that.
    is_lookup: Option<(Syntax, bool)>,
    /// How it was answered, in which environment, if all its values are parameters.
    plan: Option<(Environment, Plan)>,
}

/// See [`lookups::Told`].
struct ToldColumns {
    definitions: u64,
    answer: Box<[u8]>,
}

/// So that the server does not end a connection that it takes for idle, it gets a lookup now and then: after
/// 10 seconds, in ticks of the worker's clock.
const QUIET_MAX: u32 = 40;

/// Prepared statements that are looked at; those beyond are the server's alone.
const STATEMENTS_MAX: usize = 4096;

/// Variables that are remembered to be set.
const SET_MAX: usize = 64;

/// What may leave something on the connection that changes what a lookup finds, and that nobody can ask for.
const DOUBTFUL: Effects = Effects::TEMPORARY_TABLE
    .with(Effects::LOCKS_TABLES)
    .with(Effects::GLOBAL_LOCK)
    .with(Effects::TEXT_PREPARE)
    .with(Effects::CALLS_PROCEDURE)
    .with(Effects::UNKNOWN_FUNCTION)
    .with(Effects::SET_ROLE)
    .with(Effects::XA)
    .with(Effects::INCOMPLETE);

/// What is to be done about a command.
enum Step {
    Forward,
    Learn(lookups::Lesson),
    Answer(Plan),
}

/// What was found of a command.
#[derive(Default)]
enum Found {
    /// Nothing: nobody has looked, or something has to be waited for first.
    #[default]
    Nothing,
    Other(Other),
    Lookup(Step),
}

impl OfSession {
    /// `None` where the listener's sessions have no lookups. `as_of`: what [`rights_of_login`] said before
    /// the login.
    pub(crate) fn new(
        session: &Session,
        user: &[u8],
        client: &Peer,
        collation: u8,
        as_of: Option<u64>,
    ) -> Option<Box<Self>> {
        let lookups = lookups::of_listener(&session.worker, &session.listener)?;
        let profile = session.listener.cluster.profile()?;
        Some(Box::new(Self {
            lookups,
            consistency: session.listener.config.lookup_consistency,
            waited: None,
            user: user.into(),
            host: client.socket_addr().map(|address| address.ip()),
            collation,
            syntax: Syntax {
                dialect: split::dialect(&profile.server_version),
                ..Syntax::default()
            },
            standing: match TRAILING_QUOTES.contains(&collation) {
                true => Standing::Doubtful,
                false => Standing::Changed,
            },
            rights: RightsOfSession::new(session, as_of),
            has_other_role: false,
            changes: 0,
            next_transaction: false,
            has_diagnostics: false,
            status: StatusFlags::default(),
            set: BTreeSet::new(),
            statements: HashMap::default(),
            last_prepared: LastPrepared::default(),
            sent: session.worker.clock.now(),
            gating: Gating::default(),
            unknown_to_server: Vec::new(),
            found: Found::default(),
            key: Vec::new(),
            out: Vec::new(),
        }))
    }

    fn is_primary(session: &Session) -> bool {
        let topology = session.listener.cluster.topology();
        topology
            .primary()
            .is_some_and(|primary| primary.server.id() == session.server.id())
    }

    fn settings_change(&mut self, now: u32) {
        self.rights.renew(self.lookups.rights_of_login(), now);
        self.changes = self.changes.wrapping_add(1);
        if !matches!(self.standing, Standing::Doubtful) {
            self.standing = Standing::Changed;
        }
    }

    /// Whether a statement leaves nothing behind of the one before: whether the server knows of that does not
    /// matter.
    fn is_replaced_by(&self, other: &Other) -> bool {
        !self.has_diagnostics && other.is_select && only_reads(&other.facts)
    }

    /// A statement that is no lookup goes to the server, which knows of what was before, or it does not
    /// matter.
    fn note_sent(&mut self, other: &Other, now: u32) {
        self.unknown_to_server.clear();
        self.set.extend(other.sets.iter().cloned());
        if self.set.len() > SET_MAX {
            self.standing = Standing::Doubtful;
        }
        self.note(&other.facts, now);
        self.sent = now;
    }

    fn note_outcome(&mut self, exchanged: &Result<Exchanged, RelayError>) {
        if let Ok(Exchanged::Done(outcome)) = exchanged {
            self.has_diagnostics |= outcome.error.is_some() || outcome.warnings > 0;
        }
    }

    /// What a statement that goes to the server may change.
    fn note(&mut self, facts: &Facts, now: u32) {
        self.has_other_role |= facts.effects.contains(Effects::SET_ROLE);
        if !only_reads(facts) {
            self.waited = None;
        }
        if facts.class == Class::Unknown || facts.effects.intersects(DOUBTFUL) {
            self.standing = Standing::Doubtful;
        }
        let keeps_settings = matches!(
            facts.class,
            Class::Read
                | Class::LockingRead
                | Class::Write
                | Class::Begin
                | Class::BeginReadOnly
                | Class::Transaction
        );
        if !(keeps_settings && facts.statements == 1) {
            self.settings_change(now);
        }
        self.next_transaction |= facts.effects.contains(Effects::NEXT_TRANSACTION);
    }
}

fn only_reads(facts: &Facts) -> bool {
    facts.class == Class::Read && facts.effects == Effects::NONE && facts.statements == 1
}

/// The session waits for its next command.
#[inline]
pub(crate) fn next_command(session: &mut Session) {
    if let Some(of) = &mut session.lookups {
        of.gating.next_command();
    }
}

/// Reads what the client sends.
#[inline]
pub(crate) fn poll_read(cx: &mut Context<'_>, session: &mut Session) -> Poll<io::Result<usize>> {
    let (streams, now) = (&mut session.streams, session.worker.clock.now());
    match &mut session.lookups {
        Some(of) => read_gate::poll_read(cx, &mut of.gating, &*of.lookups, streams, now),
        None => streams.up.poll_read(cx, &mut streams.client),
    }
}

/// Forwards a command, or answers it.
pub(crate) async fn command(session: &mut Session, head: CommandHead) -> Result<(), SessionError> {
    let Some(mut of) = session.lookups.take() else {
        let exchanged = forward::forward(session, head).await;
        return settle::command(session, head, exchanged);
    };
    let done = serve(session, &mut of, head).await;
    session.lookups = Some(of);
    done
}

async fn serve(session: &mut Session, of: &mut OfSession, head: CommandHead) -> Result<(), SessionError> {
    let found = std::mem::take(&mut of.found);
    let payload = session.payload(head);
    match head.command {
        Command::QUERY => match found {
            Found::Lookup(step) => go_on(session, of, head, step, &mut None).await,
            Found::Other(other) if is_for_gateway(&other) => {
                level::statement(session, of, head, &other).await
            }
            Found::Other(other) => forward_statement(session, of, head, &other).await,
            Found::Nothing => lookup(session, of, head).await,
        },
        Command::STMT_EXECUTE => prepared::execute(session, of, head, found).await,
        Command::STMT_BULK_EXECUTE => prepared::execute_unseen(session, of, head).await,
        Command::STMT_PREPARE => prepared::prepare(session, of, head).await,
        Command::STMT_SEND_LONG_DATA | Command::STMT_RESET | Command::STMT_CLOSE => {
            let is_to_come = prepared::is_about_the_same(&of.unknown_to_server, payload);
            prepared::note_statement(of, head.command, payload);
            if is_to_come {
                // Behind this the statement is another, or gone.
                catch_up(session, of).await?;
            }
            forward(session, of, head, None).await
        }
        Command::PING | Command::STATISTICS | Command::STMT_FETCH | Command::QUIT => {
            forward(session, of, head, None).await
        }
        Command::RESET_CONNECTION => {
            of.statements.clear();
            of.last_prepared = LastPrepared::default();
            of.set.clear();
            of.unknown_to_server.clear();
            of.standing = match of.has_other_role {
                true => Standing::Doubtful,
                false => Standing::Changed,
            };
            (of.next_transaction, of.has_diagnostics) = (false, false);
            of.consistency = session.listener.config.lookup_consistency;
            let now = session.worker.clock.now();
            of.rights.renew(of.lookups.rights_of_login(), now);
            forward(session, of, head, None).await
        }
        Command::FIELD_LIST | Command::SET_OPTION => {
            catch_up(session, of).await?;
            forward(session, of, head, None).await
        }
        Command::INIT_DB => {
            catch_up(session, of).await?;
            of.settings_change(session.worker.clock.now());
            forward(session, of, head, None).await
        }
        _ => forward_statement(session, of, head, &ANY_OTHER).await,
    }
}

fn is_for_gateway(other: &Other) -> bool {
    other.facts.effects.contains(Effects::GATEWAY)
}

async fn forward(
    session: &mut Session,
    of: &mut OfSession,
    head: CommandHead,
    recorder: Option<&mut Recorder>,
) -> Result<(), SessionError> {
    of.sent = session.worker.clock.now();
    let exchanged = match recorder {
        Some(recorder) => forward_recorded(session, head, recorder).await,
        None => forward::forward(session, head).await,
    };
    of.note_outcome(&exchanged);
    settle::command(session, head, exchanged)
}

async fn forward_recorded(
    session: &mut Session,
    head: CommandHead,
    recorder: &mut Recorder,
) -> Result<Exchanged, RelayError> {
    session.streams.begin_command()?;
    session.begin_response(head);
    let mut recorded = Recorded {
        tracker: &mut session.response,
        recorder,
    };
    let exchange = Exchange::new(&mut recorded, &session.control, false);
    let outcome = exchange.run(&mut session.streams).await;
    session.error_sequence = outcome.error_sequence;
    outcome.result
}

/// Forwards what runs SQL.
async fn forward_statement(
    session: &mut Session,
    of: &mut OfSession,
    head: CommandHead,
    other: &Other,
) -> Result<(), SessionError> {
    if !of.is_replaced_by(other) {
        catch_up(session, of).await?;
    }
    of.note_sent(other, session.worker.clock.now());
    forward(session, of, head, None).await
}

/// Has the server execute the lookup that it does not know of.
async fn catch_up(session: &mut Session, of: &mut OfSession) -> Result<(), SessionError> {
    if of.unknown_to_server.is_empty() {
        return Ok(());
    }
    let command = std::mem::take(&mut of.unknown_to_server);
    ask_server(session, command).await?;
    of.has_diagnostics = false;
    Ok(())
}

/// Asks the session's own server something, between two commands of the client.
async fn ask_server(session: &mut Session, command: Vec<u8>) -> Result<ask::Reply, SessionError> {
    session.control.mark(Waiting::Server);
    let asking = ask::ask(
        &mut session.streams.server,
        session.capabilities,
        std::slice::from_ref(&command),
    );
    let asked = tokio::select! {
        biased;
        signal = session.control.signalled(false) => return Err(session.signalled(signal)),
        asked = asking => asked,
    };
    let reply = asked.ok().and_then(|replies| replies.into_iter().next());
    reply.ok_or_else(|| session.broken(RelayError::Server))
}

/// COM_QUERY with a lookup, or the execution of one whose statement is `prepared`.
async fn lookup(session: &mut Session, of: &mut OfSession, head: CommandHead) -> Result<(), SessionError> {
    let step = match settings::ready(session, of).await? {
        Ok(environment) => find(session, of, head, environment),
        Err(reason) => left(session, reason),
    };
    go_on(session, of, head, step, &mut None).await
}

fn left(session: &Session, reason: Left) -> Step {
    series(session).left(reason);
    Step::Forward
}

fn series(session: &Session) -> &LookupSeries {
    &session.worker.shared.lookup_series[session.worker.index]
}

/// What to do about COM_QUERY with a lookup.
fn find(session: &Session, of: &mut OfSession, head: CommandHead, environment: Environment) -> Step {
    let payload = lookups::whole_payload(session.streams.up.unseen(), head.payload_len).unwrap_or_default();
    let Some(text) = lookups::text(payload, session.capabilities) else {
        return Step::Forward;
    };
    // The syntax may have been learned since.
    let Some(lookup) = point_lookup(text, of.syntax) else {
        return Step::Forward;
    };
    let asked = Asked {
        lookup: &lookup,
        text,
        parameters: None,
        told: None,
    };
    let finding = of.lookups.find(environment, &asked, &mut of.key);
    step(session, of, finding)
}

fn step(session: &Session, of: &mut OfSession, finding: Finding) -> Step {
    match finding {
        Finding::Outdated => {
            if let Standing::Known(_) = of.standing {
                of.standing = Standing::Changed;
            }
            left(session, Left::Learned)
        }
        Finding::Left(reason) => left(session, reason),
        // What another server says may be of other definitions than those of the binary log.
        Finding::Learn(_) if !OfSession::is_primary(session) => left(session, Left::Learned),
        Finding::Learn(lesson) => Step::Learn(lesson),
        Finding::Answer(plan) => Step::Answer(plan),
    }
}

async fn go_on(
    session: &mut Session,
    of: &mut OfSession,
    head: CommandHead,
    step: Step,
    recorder: &mut Option<Recorder>,
) -> Result<(), SessionError> {
    match step {
        Step::Forward => forward_lookup(session, of, head, recorder.as_mut()).await,
        Step::Learn(lesson) => {
            series(session).left(Left::Learned);
            let recorder = recorder.get_or_insert_default();
            forward_lookup(session, of, head, Some(recorder)).await?;
            if let Some(answer) = recorder.answer() {
                of.lookups.learn(lesson, answer);
            }
            Ok(())
        }
        Step::Answer(plan) => match from_memory(session, of, plan).await? {
            Ok(waited) => {
                of.note_waited_for(waited.level, waited.definitions, waited.began);
                reply(session, of, head).await
            }
            Err(reason) => {
                series(session).left(reason);
                forward_lookup(session, of, head, recorder.as_mut()).await
            }
        },
    }
}

/// A lookup goes to the server, which forgets what it had to say of earlier statements.
async fn forward_lookup(
    session: &mut Session,
    of: &mut OfSession,
    head: CommandHead,
    recorder: Option<&mut Recorder>,
) -> Result<(), SessionError> {
    of.unknown_to_server.clear();
    of.has_diagnostics = false;
    forward(session, of, head, recorder).await
}

/// What an answer has waited for, where memory had these definitions before.
struct Waited {
    level: ReadConsistency,
    definitions: u64,
    /// In ticks of the worker's clock.
    began: u32,
}

async fn from_memory(
    session: &Session,
    of: &mut OfSession,
    plan: Plan,
) -> Result<Result<Waited, Left>, SessionError> {
    session.control.mark(Waiting::Server);
    of.out.clear();
    let (definitions, now) = (of.lookups.definitions(), session.worker.clock.now());
    let level = of.level(definitions, now);
    let is_fresh = of.gating.is_fresh(definitions);
    let began = of.gating.began().filter(|_| is_fresh).unwrap_or(now);
    let answered = of
        .lookups
        .answer(plan, &of.key, level, None, is_fresh, &mut of.out);
    let answered = tokio::select! {
        biased;
        signal = session.control.signalled(false) => return Err(session.signalled(signal)),
        answered = answered => answered,
    };
    if answered.is_err() {
        of.out = lookups::kept(std::mem::take(&mut of.out));
    }
    Ok(answered.map(|_| Waited {
        level,
        definitions,
        began,
    }))
}

/// Sends the answer.
async fn reply(session: &mut Session, of: &mut OfSession, head: CommandHead) -> Result<(), SessionError> {
    note_answered(session, of, head);
    let said = say(session, &of.out).await;
    of.out = lookups::kept(std::mem::take(&mut of.out));
    settle::command(session, head, said.map(|()| Exchanged::Sent))
}

/// Remembers what the server does not know, and counts.
fn note_answered(session: &mut Session, of: &mut OfSession, head: CommandHead) {
    let payload = lookups::whole_payload(session.streams.up.unseen(), head.payload_len).unwrap_or_default();
    of.unknown_to_server.clear();
    of.unknown_to_server.extend_from_slice(payload);
    take_off(session, of, head);
    series(session).answered.inc();
    session.control.record.note_end(End::Memory);
}

/// Takes a command off what the client sent, whose answer is in `out`.
fn take_off(session: &mut Session, of: &OfSession, head: CommandHead) {
    let len = PacketHeader::LEN + head.payload_len;
    session.streams.up.discard(len);
    let traffic = &mut session.streams.traffic;
    traffic.from_client += len as u64;
    traffic.to_client += of.out.len() as u64;
    traffic.listener.bytes_from_clients.add(len as u64);
    traffic.listener.bytes_to_clients.add(of.out.len() as u64);
}

async fn say(session: &mut Session, packets: &[u8]) -> Result<(), RelayError> {
    session
        .streams
        .client
        .begin_command()
        .map_err(RelayError::Client)?;
    session.streams.down.say(packets);
    let streams = &mut session.streams;
    let written = poll_fn(|cx| streams.down.poll_write(cx, &mut streams.client));
    tokio::select! {
        biased;
        signal = session.control.signalled(false) => Err(RelayError::Signal(signal)),
        written = written => written.map_err(RelayError::Client),
    }
}
