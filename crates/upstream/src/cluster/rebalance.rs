//! Sessions go to other servers of their cluster so that the load evens out: the figures come from the
//! servers, [`routing::rebalance`] decides, and each server has tickets for those of its sessions that may
//! leave.
//!
//! Nobody chooses which sessions these are. Whoever looks at its server between two commands, and is free to
//! leave, takes a ticket. Those that nobody has taken by the next look are withdrawn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use config::RebalancePolicy;
use routing::rebalance::{Factor, Figures, Move, Phase, Policy, Rebalancer};

use super::Cluster;
use crate::lock::lock;
use crate::permit::Permit;
use crate::server::{Availability, Server, ServerId, Ticket, now};

/// How often it is looked whether there is anything to do by now.
const OFF: Duration = Duration::from_secs(1);

/// What is kept of a cluster's balance between two looks.
#[derive(Debug)]
pub(crate) struct Rebalance(Mutex<State>);

#[derive(Debug)]
struct State {
    began: Instant,
    rebalancer: Rebalancer,
    /// What the last look has asked for.
    asked: Vec<Move>,
    /// Of servers, who has left them last.
    left: HashMap<ServerId, Left>,
}

/// Who has left a server, for the sake of balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// For which server the last one.
    pub to: String,
    pub factor: Factor,
    /// How many, without a longer pause between them.
    pub sessions: u32,
    /// When the last one.
    pub at: Instant,
}

/// How the sessions of a cluster are spread, for operators.
#[derive(Clone, Debug)]
pub struct Balance {
    /// What they move for.
    pub policy: RebalancePolicy,
    /// Whether anything is under way.
    pub phase: Phase,
    /// Each server, in the order of the configuration.
    pub servers: Vec<ServerBalance>,
}

/// How one server stands among the others.
#[derive(Clone, Debug)]
pub struct ServerBalance {
    pub name: String,
    /// Permits taken: what the choice for new sessions goes by.
    pub sessions: u32,
    /// As many would be its share of all, by its weight as far as it has come in its slow start; 0 where it
    /// takes none.
    pub share: f64,
    /// Why its share is smaller than its weight says, or there is none.
    pub why: Option<&'static str>,
    /// How much of its CPU is in use, in thousandths, and of its memory, where that is known.
    pub usage: [Option<u32>; 2],
    /// Who has left it last for the sake of balance.
    pub left: Option<Left>,
}

impl Default for Rebalance {
    fn default() -> Self {
        Self(Mutex::new(State {
            began: now(),
            rebalancer: Rebalancer::default(),
            asked: Vec::new(),
            left: HashMap::new(),
        }))
    }
}

impl Cluster {
    /// Looks at all servers, and gives them tickets for as many sessions as are to leave them. Returns which
    /// servers have some and how many, and how long to wait for the next look. `zone`: the gateway's own.
    pub fn even_out(&self, zone: Option<&str>) -> (Vec<(ServerId, u32)>, Duration) {
        self.give_label_turn();
        let config = self.config();
        let policy = Policy {
            policy: config.rebalance.policy,
            within: config.rebalance.within,
            balance: config.balance,
        };
        let servers = self.servers();
        let mut state = lock(&self.rebalance.0);
        let state = &mut *state;
        let mut untaken = std::mem::take(&mut state.asked);
        untaken.retain_mut(|of| {
            let server = servers.iter().find(|server| server.id().0 == of.from);
            of.sessions = server.map_or(0, |server| server.tickets.withdraw());
            of.sessions > 0
        });
        state
            .left
            .retain(|id, _| servers.iter().any(|server| server.id() == *id));
        servers.iter().for_each(|server| server.note_zone(zone));
        let figures: Vec<_> = servers
            .iter()
            .map(|server| figures(server, config.slow_start, state.began))
            .collect();
        let now = now().saturating_duration_since(state.began);
        let before = state.rebalancer.phase();
        state.asked = state
            .rebalancer
            .look(now, &policy, &figures, &untaken, self.draw().seed);
        self.log_phase(before, state.rebalancer.phase());
        for of in &state.asked {
            if let Some(server) = servers.iter().find(|server| server.id().0 == of.from) {
                server.tickets.give(of);
            }
        }
        let asked = state.asked.iter().map(|of| (ServerId(of.from), of.sessions));
        let pause = match policy.policy {
            RebalancePolicy::Off => OFF,
            _ => policy.pause(),
        };
        (asked.collect(), pause)
    }

    fn log_phase(&self, before: Phase, after: Phase) {
        let cluster = self.name();
        match (before, after) {
            (before, after) if before == after => {}
            (_, Phase::Moving) => tracing::info!(cluster, "sessions move so that the load evens out"),
            (_, Phase::Stuck) => tracing::info!(
                cluster,
                "the load does not even out: the sessions that are left are held where they are"
            ),
            (Phase::Moving, _) => tracing::info!(cluster, "the load is even"),
            _ => {}
        }
    }

    /// A permit for a session that leaves its server with a ticket for this one: `None` where that has no
    /// room any more, or takes no sessions. Nobody waits in line for one.
    #[must_use]
    pub fn permit_on(self: &Arc<Self>, to: ServerId) -> Option<Permit> {
        let server = self.server(to)?;
        // Those who wait for any server at all come first.
        let takes = takes_sessions(&server) && server.weight() > 0 && self.queue().is_empty();
        takes.then(|| Permit::take(self, &server)).flatten()
    }

    /// A session has left this server with that ticket.
    pub fn note_moved(&self, from: ServerId, ticket: Ticket) {
        let to = self.server(ticket.to);
        let within = self.config().rebalance.within;
        let mut state = lock(&self.rebalance.0);
        let before = state
            .left
            .get(&from)
            .filter(|left| left.factor == ticket.factor && now().saturating_duration_since(left.at) < within);
        let left = Left {
            to: to.map_or_else(String::new, |to| to.name().to_owned()),
            factor: ticket.factor,
            sessions: before.map_or(0, |left| left.sessions) + 1,
            at: now(),
        };
        state.left.insert(from, left);
    }

    /// How its sessions are spread.
    #[must_use]
    pub fn balance(&self) -> Balance {
        let config = self.config();
        let servers = self.servers();
        let candidate = |server: &Arc<Server>| server.candidate(takes_sessions(server), config.slow_start);
        let candidates: Vec<_> = servers.iter().map(candidate).collect();
        let shares = routing::rebalance::shares(&candidates);
        let state = lock(&self.rebalance.0);
        let of = |((server, candidate), share): ((&Arc<Server>, routing::Candidate), f64)| ServerBalance {
            name: server.name().to_owned(),
            sessions: candidate.sessions,
            share,
            why: why(server, &candidate, share),
            usage: server
                .usage
                .samples(state.began, now())
                .map(|known| Some(known?.permille)),
            left: state.left.get(&server.id()).cloned(),
        };
        Balance {
            policy: config.rebalance.policy,
            phase: state.rebalancer.phase(),
            servers: servers.iter().zip(candidates).zip(shares).map(of).collect(),
        }
    }
}

fn figures(server: &Server, slow_start: Duration, began: Instant) -> Figures {
    let mut candidate = server.candidate(takes_sessions(server), slow_start);
    if server.is_at_its_limit() {
        // The limit may be the server's own, which nobody has configured.
        candidate.max_connections = candidate.sessions.max(1);
        candidate.available &= candidate.sessions > 0;
    }
    let [cpu, memory] = server.usage.samples(began, now());
    Figures {
        id: server.id().0,
        candidate,
        is_near: server.is_near(),
        attempts: server.attempts(),
        cpu,
        memory,
    }
}

/// Whether it is known to be up, answers, and does not drain.
fn takes_sessions(server: &Server) -> bool {
    server.availability() == Availability::Yes && !server.is_silent() && !server.is_draining()
}

fn why(server: &Server, candidate: &routing::Candidate, share: f64) -> Option<&'static str> {
    if server.is_draining() {
        return Some("drains");
    }
    if !candidate.available {
        return Some("is not up");
    }
    if candidate.weight == 0 {
        return Some("weight 0");
    }
    if candidate.backup && share == 0.0 {
        return Some("backup");
    }
    (candidate.warmth_permille < routing::WARM).then_some("slow start")
}
