//! The choice of the server that a statement goes to, by what the statement needs.

use std::sync::Arc;

use mysql_wire::Command;
use mysql_wire::statement::asks_for_cursor;
use routing::rules::Groups;
use routing::{Draw, Explanation, ReadCandidate, ReadPolicy, Role as ReadRole};
use smallvec::SmallVec;
use sql_class::{Class, Effects, Facts, Hint};
use upstream::{Member, Role, Server, ServerId, Topology};

use crate::command_head::CommandHead;
use crate::engine::account_backoff;
use crate::engine::client_session::ClientSession;
use crate::engine::target::{PRIMARY_ONLY, Target};
use crate::engine::{command, lookup, rules, transaction};

/// Whether something of a read keeps it from a replica.
pub(crate) fn keeps_from_replicas(session: &ClientSession, effects: Effects) -> bool {
    let trusted = match session.state.trusts_functions() {
        true => Effects::UNKNOWN_FUNCTION,
        false => Effects::NONE,
    };
    effects.intersects(Effects(PRIMARY_ONLY.0 & !trusted.0))
}

/// The target of a statement that is not bound to the connection the session holds.
pub(crate) fn target(session: &ClientSession, facts: &Facts) -> Target {
    if session.binding.is_own() {
        return Target::Held;
    }
    if transaction::is_on_replica(session) {
        return transaction::target(session, facts);
    }
    if lookup::learns(session) {
        return Target::Primary { for_writing: false };
    }
    if let Some(target) = rules::route(session, facts) {
        return target;
    }
    let primary = Target::Primary {
        for_writing: !matches!(facts.class, Class::Read | Class::Session | Class::Transaction),
    };
    let may_leave = !keeps_from_replicas(session, facts.effects)
        && session.client.account.user.config.pooling == config::Pooling::Transaction;
    match (&facts.hint, facts.class) {
        (Some(Hint::Server(name)), _) => return Target::Named(name.clone()),
        (Some(Hint::Primary), _) => return primary,
        // The word of whoever wrote the statement stands for what cannot be known of a function, not for a
        // write.
        (Some(Hint::Replica), Class::Read) if !rules::binds_read(session, facts) => return Target::Replica,
        _ => {}
    }
    match facts.class {
        Class::Read if may_leave && reads_stand_alone(session) => Target::Replica,
        Class::BeginReadOnly if may_leave => Target::Replica,
        _ => primary,
    }
}

/// Whether reads are outside a transaction, and begin none.
fn reads_stand_alone(session: &ClientSession) -> bool {
    !session.state.in_transaction() && session.state.autocommit()
}

impl Target {
    /// The group of servers that are meant, where not all are.
    pub(crate) fn group(&self) -> Option<&str> {
        match self {
            Self::Group { name, .. } => Some(name),
            Self::Primary { .. } | Self::Replica | Self::Anywhere | Self::Named(_) | Self::Held => None,
        }
    }
}

/// The best server for a read; `None` where none can take it. `covers`: whether a server has what the read
/// must see.
pub(crate) fn replica(
    session: &ClientSession,
    topology: &Topology,
    tried: &[ServerId],
    group: Option<&str>,
    covers: impl Fn(&Server) -> bool,
    last_resort: bool,
) -> Option<Arc<Server>> {
    let policy = policy(session, group, last_resort);
    let with_primary = policy.primary_reads || policy.last_resort;
    let candidates = candidates(session, topology, tried, group, covers, with_primary);
    let place = routing::choose_replica(&candidates, &policy, draw(session))?;
    topology
        .members
        .get(place)
        .map(|member| Arc::clone(&member.server))
}

/// The replica on which to wait for what the read must see.
pub(crate) fn replica_to_wait_for(
    session: &ClientSession,
    topology: &Topology,
    tried: &[ServerId],
    group: Option<&str>,
) -> Option<Arc<Server>> {
    let candidates = candidates(session, topology, tried, group, |_| false, false);
    let place = routing::choose_to_wait_for(&candidates, &policy(session, group, false), draw(session))?;
    topology
        .members
        .get(place)
        .map(|member| Arc::clone(&member.server))
}

/// The outcome for each member in a choice like that of [`replica`].
pub(crate) fn explain(
    session: &ClientSession,
    topology: &Topology,
    group: Option<&str>,
    covers: impl Fn(&Server) -> bool,
) -> Vec<Explanation> {
    let candidates = candidates(session, topology, &[], group, covers, true);
    let policy = policy(session, group, true);
    routing::explain_replica(&candidates, &policy, draw(session))
}

fn draw(session: &ClientSession) -> Draw {
    session.context.worker.draw(session.control.id)
}

fn policy(session: &ClientSession, group: Option<&str>, last_resort: bool) -> ReadPolicy {
    let config = session.pool().config();
    ReadPolicy {
        balance: config.read_balance,
        max_lag: config.max_lag,
        max_transactions_behind: match config.max_transactions_behind {
            0 => u32::MAX,
            limit => limit,
        },
        // Servers of a group are equals.
        primary_reads: config.primary_reads || group.is_some(),
        last_resort,
    }
}

/// The members as `routing` sees them. `with_primary`: the primary may be chosen. More than a few members
/// take an allocation.
fn candidates(
    session: &ClientSession,
    topology: &Topology,
    tried: &[ServerId],
    group: Option<&str>,
    covers: impl Fn(&Server) -> bool,
    with_primary: bool,
) -> SmallVec<[ReadCandidate; 6]> {
    let config = session.pool().config();
    let groups = Groups::new(&config.groups);
    let has_zones = topology.members.iter().any(|member| member.zone.is_some());
    let zone = has_zones.then(|| session.context.worker.zone()).flatten();
    let zone = zone.as_ref().map(|zone| zone.as_str());
    let by_latency = config.read_balance == config::ReadBalance::Latency;
    session.context.cluster.by_latency.set(by_latency);
    let own = session.writer(topology).map(|writer| writer.server.id());
    let has_all =
        |server: &Server| own == Some(server.id()) && session.has_own_writes(server) || covers(server);
    let of = |(at, member): (usize, &Member)| {
        let is_writer = topology.writers.contains(&at);
        if is_writer && !with_primary {
            return ReadCandidate {
                available: false,
                ..ReadCandidate::new(ReadRole::Primary)
            };
        }
        let server = &member.server;
        let (idle, busy) = session.pool().idle_and_busy(server.id());
        let role = match member.role {
            Role::Primary => ReadRole::Primary,
            Role::Replica if is_writer => ReadRole::Primary,
            Role::Replica => ReadRole::Replica,
            Role::Unusable => ReadRole::Unusable,
        };
        ReadCandidate {
            admitted: group.is_none() && groups.is_empty() || groups.admits(server.name(), group),
            // Another server that takes writes has not everything, as the only one would have.
            available: server.takes_statements()
                && !server.is_silent()
                && (group.is_some() || !server.has_no_room() && !account_backoff::is_denied(session, server))
                && !tried.contains(&server.id())
                && (!is_writer || has_all(server)),
            full: idle == 0 && server.is_full(),
            backup: server.is_backup(),
            other_zone: is_elsewhere(zone, member.zone.as_deref()),
            applied: has_all(server),
            lag: member.lag,
            transactions_behind: member.transactions_behind.unwrap_or(0),
            weight: server.weight(),
            warmth_permille: server.warmth_permille(config.slow_start),
            // The shortest line counts where all are full.
            outstanding: busy.saturating_add(server.waiting()),
            latency_us: if by_latency {
                session.context.cluster.expected_us(server.id())
            } else {
                0
            },
            ..ReadCandidate::new(role)
        }
    };
    topology.members.iter().enumerate().map(of).collect()
}

fn is_elsewhere(own: Option<&str>, other: Option<&str>) -> bool {
    matches!((own, other), (Some(own), Some(other)) if own != other)
}

/// The target of the execution of a prepared statement. A cursor, and data in pieces or for a bulk, stay
/// where they are: a transaction that moves would leave them behind, and a session that they bind to a
/// replica could not write.
pub(crate) fn target_of_execution(session: &ClientSession, head: CommandHead, facts: &Facts) -> Target {
    let target = target(session, facts);
    if !matches!(target, Target::Held | Target::Replica) {
        return target;
    }
    let leaves_nothing =
        head.command == Command::STMT_EXECUTE && !asks_for_cursor(command::payload(session, head));
    let is_asked_for = facts.hint == Some(Hint::Replica) || rules::routes(session);
    match target {
        Target::Held if !leaves_nothing => Target::Primary { for_writing: true },
        Target::Replica if !leaves_nothing && !is_asked_for => Target::Primary { for_writing: false },
        target => target,
    }
}
