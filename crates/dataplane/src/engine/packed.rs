//! A session that is understood, on its way to the process that takes over: all that its next command may
//! depend on.
//!
//! Left behind is what can be found out again (plans of lookups, what rules select, limits of its client),
//! and what `FOREBAY SHOW LAST` says.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use config::ReadConsistency;
use mysql_wire::{Capabilities, ErrPacket, Login, StatusFlags};
use net::{Peer, Stream};
use serde::{Deserialize, Serialize};
use session::{Baseline, KnownConnection, Pin, PortableState, Session};
use upstream::{Key, PackedConnection, Server, ServerId, ServerProfile};

use crate::control::Control;
use crate::engine::binding::{Binding, PackedBinding};
use crate::engine::client_session::{ClientSession, ExplainWarning, LastStatement};
use crate::engine::identity::Identity;
use crate::engine::kept_variables::KeptVariables;
use crate::engine::last_error::LastError;
use crate::engine::leased::{LeasedConnection, Left};
use crate::engine::login::without_server;
use crate::engine::lookup::session_lookups::SessionLookups;
use crate::engine::own_writes::OwnWrites;
use crate::engine::packed_credential::PackedCredential;
use crate::engine::prepared::PackedStatements;
use crate::engine::{client_limits, keep};
use crate::frontend::authenticate::Authenticated;
use crate::frontend::counted::Counted;
use crate::frontend::listener_state::ListenerState;
use crate::frontend::users::User;
use crate::frontend::worker::Worker;
use crate::hand_over::Stays;
use crate::hand_over::offer::Counts;
use crate::lookups::consistency;
use crate::relay::{Streams, Traffic};

/// A [`ClientSession`] between two commands.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackedSession {
    identity: PackedIdentity,
    state: Session,
    /// The worker's milliseconds, by which its pins go.
    now_ms: u64,
    binding: PackedBinding,
    lease: Option<PackedLease>,
    writes: PackedWrites,
    kept_variables: Option<(Option<Box<[u8]>>, Pin)>,
    last_prepared: u32,
    originals: BTreeMap<u32, Rc<[u8]>>,
    lookups: Option<(String, Option<u64>, bool)>,
    last: PackedLast,
    status: StatusFlags,
    counts: Counts,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PackedIdentity {
    user: String,
    /// The configuration says something of the account.
    is_configured: bool,
    credential: PackedCredential,
    other_credential: Option<PackedCredential>,
    login: Login,
    capabilities: Capabilities,
    key_user: String,
    key_account: u64,
    key_capabilities: Capabilities,
    key_collation: u8,
    profile: ServerProfile,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PackedLease {
    connection: PackedConnection,
    carried: PortableState,
    baseline: Baseline,
    statements: PackedStatements,
    to_close: Vec<u32>,
    known: KnownConnection,
    syncs_reads: bool,
    lacks_schema: bool,
    is_primary: bool,
    is_demoted: bool,
    left: Left,
    lacks_state: bool,
}

/// Servers by their names.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PackedWrites {
    writer: Option<String>,
    on: Option<String>,
    said: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PackedLast {
    server: Option<String>,
    turn: u32,
    explain_warning: Option<Box<str>>,
    error: Option<(ErrPacket, Option<u64>)>,
}

/// The session, as another process needs it.
///
/// # Errors
/// The session has something that is not carried there.
pub(super) fn pack(session: &ClientSession) -> Result<PackedSession, Stays> {
    if session.prepared.long_texts.is_some() {
        return Err(Stays::Large);
    }
    if session.prepared.with_figures.is_some() {
        return Err(Stays::Figures);
    }
    let mut state = session.state.clone();
    let lease = match &session.lease {
        Some(leased) => Some(pack_lease(leased, &mut state)?),
        None => None,
    };
    let servers = session.context.listener.cluster.servers();
    let name = |id: ServerId| {
        let server = servers.iter().find(|server| server.id() == id);
        server.map(|server| server.whereabouts())
    };
    let last = &session.last;
    Ok(PackedSession {
        identity: pack_identity(session),
        state,
        now_ms: session.context.worker.now_ms(),
        binding: session.binding.pack(),
        lease,
        writes: PackedWrites {
            writer: session.own_writes.writer().and_then(name),
            on: session.own_writes.on().and_then(name),
            said: session
                .own_writes
                .said_consistency()
                .map(|said| said.word().to_owned()),
        },
        kept_variables: session
            .last
            .kept_variables
            .as_ref()
            .map(|kept| (kept.set.clone(), kept.pin)),
        last_prepared: session.prepared.last_prepared,
        originals: session.rules.originals().clone(),
        lookups: session.lookups.as_ref().map(|lookups| {
            let (consistency, rows, shows_older) = lookups.pack();
            (consistency.word().to_owned(), rows, shows_older)
        }),
        last: PackedLast {
            server: last.server.as_ref().map(|server| server.whereabouts()),
            turn: last.turn,
            explain_warning: last
                .explain_warning
                .as_ref()
                .filter(|warning| warning.turn == last.turn)
                .map(|warning| warning.words.clone()),
            error: last.error.as_ref().map(|last| (last.error.clone(), last.stashed)),
        },
        status: session.answer.status,
        counts: Counts::of(&session.streams.traffic),
    })
}

fn pack_identity(session: &ClientSession) -> PackedIdentity {
    let (client, accounts) = (&session.client, &session.context.worker.shared.accounts);
    let (account, key) = (&client.account, &client.key);
    let configured = accounts.configured(account.user.name.as_bytes());
    PackedIdentity {
        user: account.user.name.to_string(),
        is_configured: configured.is_some_and(|user| account.user.is_of(&user)),
        credential: PackedCredential::of(&account.credential),
        other_credential: account.other_credential.as_deref().map(PackedCredential::of),
        login: client.login.clone(),
        capabilities: client.capabilities,
        key_user: key.user.to_string(),
        key_account: key.account,
        key_capabilities: key.capabilities,
        key_collation: key.collation,
        profile: ServerProfile::clone(&client.profile),
    }
}

fn pack_lease(leased: &LeasedConnection, state: &mut Session) -> Result<PackedLease, Stays> {
    let of = &leased.connection.state;
    let (statements, to_close) = of.statements.packed(state.statements()).ok_or(Stays::Figures)?;
    Ok(PackedLease {
        connection: leased.connection.pack(),
        carried: PortableState::clone(&of.carried),
        baseline: Baseline::clone(&of.baseline),
        statements,
        to_close,
        known: of.known,
        syncs_reads: of.syncs_reads,
        lacks_schema: of.lacks_schema,
        is_primary: leased.is_primary,
        is_demoted: leased.is_demoted,
        left: leased.left,
        lacks_state: leased.lacks_state,
    })
}

/// The session in this process, with nothing read from its client yet. Others find it by its number.
pub(super) fn unpack(
    counted: &Counted,
    mut packed: PackedSession,
    (client, server_stream, peer): (Stream, Option<Stream>, Peer),
) -> Result<Box<ClientSession>, Stays> {
    let (worker, control, listener) = (&counted.worker, &counted.control, &counted.listener);
    let (there, here) = (packed.now_ms, worker.now_ms());
    packed.state.set_clock(there, here);
    packed.binding.set_clock(there, here);
    let servers = Named(listener.cluster.servers());
    let server = match &packed.lease {
        Some(lease) => Some(servers.find(lease.connection.server()).ok_or(Stays::Server)?),
        None => None,
    };
    let server_name = server.map_or(telemetry::OTHER, |server| server.name());
    let server_metrics = worker.metrics.server(listener.cluster.name(), server_name);
    let binding = Binding::unpack(packed.binding, &server_metrics);
    let mut traffic = Traffic::new(Arc::clone(&counted.metrics), server_metrics);
    packed.counts.go_on(&mut traffic);
    let streams = Streams::new(client, Stream::Detached, traffic);
    let identity = unpack_identity(worker, control, (listener, peer), packed.identity)?;
    let is_own = binding.is_own();
    let mut session = without_server(counted, streams, identity, binding);
    session.state = packed.state;
    session.context.cluster.share(&mut session.state);
    session.answer.status = packed.status;
    session.prepared.last_prepared = packed.last_prepared;
    session.rules.set_originals(packed.originals);
    unpack_writes(&mut session.own_writes, packed.writes, &servers)?;
    session.lookups = unpack_lookups(&session, is_own, packed.lookups)?;
    session.last = unpack_last(packed.last, &servers);
    session.last.kept_variables = packed.kept_variables.map(|(set, pin)| {
        let pin = pin.by_clock(there, here);
        Box::new(KeptVariables { set, pin })
    });
    let server_connection = match (packed.lease, server, server_stream) {
        (None, None, None) => None,
        (Some(lease), Some(server), Some(stream)) => {
            let server_connection = (listener.key(server), lease.connection.thread_id());
            unpack_lease(&mut session, server, lease, stream)?;
            keep::keep(&mut session);
            is_own.then_some(server_connection)
        }
        _ => return Err(Stays::Refused),
    };
    let user = Arc::clone(&session.client.account.user.name);
    counted.list(server_connection, user.into(), true);
    control.oldest_login.set(listener.cluster.oldest_login());
    control.set_limits(listener.idle_limits());
    client_limits::renew(&session);
    Ok(session)
}

/// The servers that this process knows.
struct Named(Arc<Vec<Arc<Server>>>);

impl Named {
    fn find(&self, whereabouts: &str) -> Option<&Arc<Server>> {
        self.0.iter().find(|server| server.whereabouts() == whereabouts)
    }
}

fn unpack_writes(writes: &mut OwnWrites, packed: PackedWrites, servers: &Named) -> Result<(), Stays> {
    let id_of = |name: String| servers.find(&name).map(|server| server.id());
    if let Some(writer) = packed.writer.and_then(id_of) {
        writes.go_to(writer);
    }
    if let Some(on) = packed.on {
        // Without that server nobody here knows who has the session's writes.
        writes.note_on(id_of(on).ok_or(Stays::Server)?);
    }
    writes.say_consistency(packed.said.as_deref().and_then(consistency));
    Ok(())
}

fn unpack_lookups(
    session: &ClientSession,
    is_own: bool,
    packed: Option<(String, Option<u64>, bool)>,
) -> Result<Option<Box<SessionLookups>>, Stays> {
    let Some((said, rows, shows_older)) = packed else {
        return Ok(None);
    };
    let (worker, listener) = (&session.context.worker, &session.context.listener);
    let lookups = match is_own {
        true => SessionLookups::on_own_connection(worker, listener, None, session.control.id),
        false => SessionLookups::new(worker, listener),
    };
    let mut lookups = lookups.ok_or(Stays::Listener)?;
    let said = consistency(&said).unwrap_or(ReadConsistency::Strong);
    lookups.unpack((said, rows, shows_older));
    Ok(Some(lookups))
}

fn unpack_last(packed: PackedLast, servers: &Named) -> LastStatement {
    let turn = packed.turn;
    LastStatement {
        server: packed.server.and_then(|name| servers.find(&name).cloned()),
        turn,
        explain_warning: packed
            .explain_warning
            .map(|words| Box::new(ExplainWarning { words, turn })),
        error: packed
            .error
            .map(|(error, stashed)| Box::new(LastError { error, stashed })),
        generated: None,
        kept_variables: None,
    }
}

fn unpack_identity(
    worker: &Worker,
    control: &Control,
    (listener, client): (&ListenerState, Peer),
    packed: PackedIdentity,
) -> Result<Box<Identity>, Stays> {
    let user = match packed.is_configured {
        true => worker
            .shared
            .accounts
            .configured(packed.user.as_bytes())
            .ok_or(Stays::Account)?,
        false => Arc::new(User::passing(&packed.user, None)),
    };
    let account = Authenticated {
        user: user.begin_session().map_err(|_| Stays::Account)?,
        credential: packed.credential.into_credential(),
        other_credential: packed
            .other_credential
            .map(|other| Box::new(other.into_credential())),
    };
    let key = Key {
        user: packed.key_user.into(),
        account: packed.key_account,
        capabilities: packed.key_capabilities,
        collation: packed.key_collation,
    };
    control.name_user(&account.user.name);
    Ok(Box::new(Identity {
        account,
        host: client,
        login: packed.login,
        capabilities: packed.capabilities,
        key: worker.pools.of(listener, &worker.metrics).share_key(key),
        profile: Arc::new(packed.profile),
        compression: None,
    }))
}

fn unpack_lease(
    session: &mut ClientSession,
    server: &Arc<Server>,
    packed: PackedLease,
    stream: Stream,
) -> Result<(), Stays> {
    let cluster = &session.context.listener.cluster;
    if !packed.connection.is_on_terms_of(&cluster.config()) {
        return Err(Stays::Terms);
    }
    let permit = cluster.permit_to(server).ok_or(Stays::Server)?;
    let (pool, key) = (Rc::clone(session.pool()), Rc::clone(&session.client.key));
    let mut connection = pool.unpack(stream, &key, packed.connection, permit);
    session.streams.server = std::mem::replace(&mut connection.stream, Stream::Detached);
    let state = &mut connection.state;
    state.carried = match packed.carried == **session.state.carried() {
        true => Rc::clone(session.state.carried()),
        false => Rc::new(packed.carried),
    };
    state.baseline = match packed.baseline == **session.state.baseline() {
        true => Rc::clone(session.state.baseline()),
        false => Rc::new(packed.baseline),
    };
    let statements = (packed.statements, packed.to_close);
    state.statements.unpacked(statements, session.state.statements());
    state.known = packed.known;
    (state.syncs_reads, state.lacks_schema) = (packed.syncs_reads, packed.lacks_schema);
    let key = session.context.listener.key(server);
    session.control.attach_connection(key, connection.thread_id);
    session.lease = Some(LeasedConnection {
        is_demoted: packed.is_demoted,
        lacks_state: packed.lacks_state,
        ..LeasedConnection::new(connection, packed.is_primary, packed.left)
    });
    Ok(())
}
