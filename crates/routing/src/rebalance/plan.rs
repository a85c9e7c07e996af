//! What one look is about: the servers as they will be once what has been asked for so far is done, and who
//! may give and take sessions at all.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use config::Balance;

use super::{Factor, Figures, Move};
use crate::load::Load;
use crate::{Choice, Draw, WARM, choose_server, mix};

pub(super) struct Plan {
    servers: Vec<Figures>,
    /// Only servers of the gateway's own zone take part from here on.
    near_only: bool,
    /// These are the business of a factor that has looked before.
    left_alone: BTreeSet<u32>,
    /// How much servers compute, in steps, where that counts.
    steps: BTreeMap<u32, u32>,
    balance: Balance,
    draw: Draw,
    moves: Vec<Move>,
}

impl Plan {
    pub(super) fn new(servers: &[Figures], balance: Balance, draw: Draw) -> Self {
        Self {
            servers: servers.to_vec(),
            near_only: false,
            left_alone: BTreeSet::new(),
            steps: BTreeMap::new(),
            balance,
            draw,
            moves: Vec::new(),
        }
    }

    pub(super) fn into_moves(self) -> Vec<Move> {
        self.moves
    }

    /// Sessions of other zones are on their way to this one where any server of it takes some: nothing else
    /// is to move them meanwhile.
    pub(super) fn keep_to_the_own_zone(&mut self) {
        let takes_some = |server: &Figures| takes_part(server) && !server.candidate.backup;
        self.near_only = self
            .servers
            .iter()
            .any(|server| server.is_near && takes_some(server));
    }

    /// All of them, those that take no part for now among them.
    pub(super) fn all(&self) -> &[Figures] {
        &self.servers
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = (usize, &Figures)> {
        let all = self.servers.iter().enumerate();
        all.filter(|(_, server)| self.takes_part(server))
    }

    fn takes_part(&self, server: &Figures) -> bool {
        takes_part(server) && (server.is_near || !self.near_only) && !self.left_alone.contains(&server.id)
    }

    /// The place of a server that takes part, and its sessions.
    pub(super) fn find(&self, id: u32) -> Option<(usize, u32)> {
        let mut servers = self.servers();
        let (at, server) = servers.find(|(_, server)| server.id == id)?;
        Some((at, server.candidate.sessions))
    }

    /// No factor after this one gives to this server, or takes from it.
    pub(super) fn leave_alone(&mut self, id: u32) {
        self.left_alone.insert(id);
    }

    /// How much servers compute, in steps: no factor after this one moves sessions to a server that computes
    /// more than theirs.
    pub(super) fn note_steps(&mut self, steps: BTreeMap<u32, u32>) {
        self.steps = steps;
    }

    pub(super) fn computes_more(&self, at: usize, than: usize) -> bool {
        let steps = |at: usize| self.steps.get(&self.servers[at].id);
        steps(at)
            .zip(steps(than))
            .is_some_and(|(this, other)| this > other)
    }

    pub(super) fn server(&self, at: usize) -> &Figures {
        &self.servers[at]
    }

    /// Backups are there for failures: they take nothing while any other server does.
    pub(super) fn has_normal(&self) -> bool {
        self.servers().any(|(_, server)| !server.candidate.backup)
    }

    /// One more session is to go from one to the best of those that `may` take it. False where there is none,
    /// or where others of that server go somewhere else until the next look.
    pub(super) fn one(&mut self, from: usize, factor: Factor, may: impl Fn(&Figures) -> bool) -> bool {
        let giver = self.servers[from];
        let begun = self.moves.iter().position(|of| of.from == giver.id);
        if begun.is_some_and(|at| self.moves[at].factor != factor) {
            return false;
        }
        let mut candidates: Vec<_> = self.servers.iter().map(|server| server.candidate).collect();
        for (at, candidate) in candidates.iter_mut().enumerate() {
            let server = &self.servers[at];
            let is_its_way = begun.is_none_or(|begun| self.moves[begun].to == server.id);
            let is_free = !candidate.is_full() && !self.computes_more(at, from);
            let takes = self.takes_part(server) && is_free && at != from;
            candidate.available = takes && is_its_way && may(server);
        }
        self.draw = Draw {
            turn: self.draw.turn.wrapping_add(1),
            seed: mix(self.draw.seed),
        };
        let Choice::Server(to) = choose_server(self.balance, &candidates, self.draw) else {
            return false;
        };
        match begun {
            Some(begun) => self.moves[begun].sessions += 1,
            None => self.moves.push(Move {
                from: giver.id,
                to: self.servers[to].id,
                sessions: 1,
                factor,
            }),
        }
        let left = &mut self.servers[from].candidate.sessions;
        *left = left.saturating_sub(1);
        self.servers[to].candidate.sessions += 1;
        true
    }
}

/// May give and take sessions. One with weight 0 keeps what it has.
fn takes_part(server: &Figures) -> bool {
    server.candidate.available && server.candidate.weight > 0
}

/// Sessions for each weight, once `more` have come.
pub(super) fn load(server: &Figures, more: u32) -> Load {
    Load {
        amount: u64::from(server.candidate.sessions) + u64::from(more),
        weight: u64::from(server.candidate.weight),
    }
}

/// The place with the most sessions for its weight.
pub(super) fn fullest<'s>(servers: impl Iterator<Item = (usize, &'s Figures)>) -> Option<usize> {
    let more = |a: &(usize, &Figures), b: &(usize, &Figures)| load(a.1, 0).compare(load(b.1, 0));
    let fullest = servers.max_by(|a, b| more(a, b).then(Ordering::Less));
    fullest.map(|(at, _)| at)
}

/// Weight as far as the server has come in its slow start, in thousandths.
pub(super) fn warm_weight(server: &Figures) -> u64 {
    u64::from(server.candidate.weight) * u64::from(server.candidate.warmth_permille.min(WARM))
}
