//! Kind `replication`: asynchronous replication of MySQL and MariaDB.
//!
//! The primary is the server that takes writes and follows no other member. Where several do, it is the one
//! that members follow, unless the last primary is another one of them: that one has writes which the
//! followers have not. Everything else is a conflict.
//!
//! A replica takes reads when it follows the primary, directly or through others, and applies what it gets.
//! The lag of a replica is what the replica says itself. Where that is the lag behind its source, and no
//! heartbeat of the primary, the lags of those in between are added. A replica that cannot reach its source
//! says nothing; then its lag grows with the time, from the last one known, as long as there is a primary
//! that may be writing, and stands still while there is none: reads go on when the primary is lost.

use std::time::Duration;

use super::{Claim, Judged, Past, Verdict, facts, names};
use crate::topology::observation::{Facts, Observation, Receiving, ReplicationFacts, Source};

pub(super) fn decide(servers: &[Observation], past: Past) -> Verdict {
    let view = View::new(servers);
    let candidates: Vec<usize> = (0..servers.len()).filter(|&at| view.is_candidate(at)).collect();
    let claim = view.settle(&candidates, past);
    let primary = match claim {
        Claim::Settled(at) => Some(at),
        Claim::None | Claim::Conflict => None,
    };
    let conflict = (claim == Claim::Conflict).then(|| {
        format!(
            "{} take writes, and nothing tells which is the primary",
            names(servers, &candidates)
        )
    });
    let judge = |at: usize| {
        if let Some(reason) = servers[at].visibility.blindness() {
            return Judged::unusable(reason);
        }
        if primary == Some(at) {
            return Judged::primary(view.why_primary(at));
        }
        if candidates.contains(&at) {
            return Judged::unusable(match primary {
                Some(primary) => {
                    format!(
                        "takes writes, but {} is the primary that others follow",
                        servers[primary].name
                    )
                }
                None if candidates.len() > 1 => {
                    format!("takes writes, as do all of {}", names(servers, &candidates))
                }
                None => "takes writes, but other servers have not been looked at yet".to_owned(),
            });
        }
        view.judge_replica(at, primary)
    };
    let mut verdict = Verdict::of((0..servers.len()).map(judge).collect(), conflict);
    if verdict.primary.is_some() {
        verdict.rogue_writers = candidates;
        verdict.rogue_writers.retain(|&at| Some(at) != primary);
    }
    verdict
}

/// The member that a source is: the one that says so of itself. Where several do (a `server_id` that was
/// given twice) or none (it is gone, and cannot tell), the address decides.
fn who_is(source: &Source, servers: &[Observation], facts: &[Option<&ReplicationFacts>]) -> Option<usize> {
    let says_so = |at: &usize| {
        let identity = facts[*at].and_then(|facts| facts.identity.as_ref());
        identity.is_some() && identity == source.identity.as_ref()
    };
    // What followers once called another server may be this one's address by now.
    let is_its_own = |at: &usize| servers[*at].address.as_ref() == Some(&source.address);
    let owner = (0..servers.len()).find(is_its_own);
    let is_there =
        |at: &usize| owner.map_or_else(|| servers[*at].is_at(&source.address), |owner| owner == *at);
    let all: Vec<usize> = (0..servers.len()).filter(says_so).collect();
    match all.as_slice() {
        [only] => Some(*only),
        [] => (0..servers.len()).find(is_there),
        [first, ..] => Some(all.iter().copied().find(is_there).unwrap_or(*first)),
    }
}

/// Who follows whom.
struct View<'a> {
    servers: &'a [Observation],
    facts: Vec<Option<&'a ReplicationFacts>>,
    /// For each server, its sources that are on, with the member that each is.
    following: Vec<Vec<(&'a Source, Option<usize>)>>,
}

impl<'a> View<'a> {
    fn new(servers: &'a [Observation]) -> Self {
        let facts = facts(servers, |facts| match facts {
            Facts::Replication(facts) => Some(facts),
            Facts::Group(_) | Facts::Galera(_) => None,
        });
        let member = |source: &Source| who_is(source, servers, &facts);
        let following = facts.iter().enumerate().map(|(at, facts)| {
            let sources = facts
                .iter()
                .flat_map(|facts| &facts.sources)
                .filter(|source| source.is_on());
            sources
                .map(|source| (source, member(source).filter(|&member| member != at)))
                .collect()
        });
        let following = following.collect();
        Self {
            servers,
            facts,
            following,
        }
    }

    fn follows(&self, follower: usize, source: usize) -> bool {
        self.following[follower]
            .iter()
            .any(|(_, member)| *member == Some(source))
    }

    fn is_writable(&self, at: usize) -> bool {
        self.facts[at].is_some_and(|facts| facts.writable)
    }

    /// Takes writes and follows no member; or only such as follow it in turn (two in a circle).
    fn is_candidate(&self, at: usize) -> bool {
        let partner = |member: usize| self.follows(member, at);
        let free = self.following[at]
            .iter()
            .all(|(_, member)| member.is_none_or(partner));
        self.is_writable(at) && free
    }

    fn settle(&self, candidates: &[usize], past: Past) -> Claim {
        let incumbent = past.incumbent.filter(|at| candidates.contains(at));
        let is_seen = |at: usize| self.servers[at].visibility.is_seen();
        match *candidates {
            [] => Claim::None,
            // Whoever has not been looked at may be the right one; at the beginning nobody knows better.
            [only]
                if incumbent == Some(only)
                    || !self.servers.iter().any(|server| server.visibility.is_unseen()) =>
            {
                Claim::Settled(only)
            }
            [_] => Claim::None,
            _ => {
                let clear = candidates.iter().filter(|&&at| is_seen(at)).count();
                let followed: Vec<usize> = candidates
                    .iter()
                    .copied()
                    .filter(|&at| self.followers(at) > 0)
                    .collect();
                match (followed.as_slice(), incumbent) {
                    ([one], None) => Claim::Settled(*one),
                    ([one], Some(incumbent)) if *one == incumbent => Claim::Settled(*one),
                    _ if past.disputed => Claim::Conflict,
                    // Nobody has been heard since the incumbent was the only one.
                    (_, Some(incumbent)) if clear == 0 => Claim::Settled(incumbent),
                    _ if clear < 2 => Claim::None,
                    _ => Claim::Conflict,
                }
            }
        }
    }

    /// Members that receive from it.
    fn followers(&self, at: usize) -> usize {
        let receives = |follower: &usize| {
            self.following[*follower]
                .iter()
                .any(|(source, member)| *member == Some(at) && source.receiving == Receiving::Yes)
        };
        (0..self.servers.len()).filter(receives).count()
    }

    fn why_primary(&self, at: usize) -> String {
        match self.followers(at) {
            0 => "takes writes and follows no other server".to_owned(),
            1 => "takes writes, and 1 server follows it".to_owned(),
            count => format!("takes writes, and {count} servers follow it"),
        }
    }

    fn judge_replica(&self, at: usize, primary: Option<usize>) -> Judged {
        let Some(facts) = self.facts[at] else {
            return Judged::unusable("has said nothing of replication");
        };
        if self.following[at].is_empty() {
            return match (facts.sources.first(), primary) {
                // The last primary, in the middle of a switchover or closed by its operator: it lacks
                // nothing.
                (None, None) => Judged::replica("takes no writes, and there is no primary", None),
                (None, Some(_)) => Judged::unusable("follows nobody"),
                (Some(source), _) => Judged::unusable(stopped(source)),
            };
        }
        match self.lag(at, primary, 0) {
            Ok((reason, lag)) => Judged::replica(reason, lag),
            Err(reason) => Judged::unusable(reason),
        }
    }

    /// How far `at` is behind the primary, with a reason; `Err` where it is of no use. `depth` servers are
    /// below it.
    fn lag(
        &self,
        at: usize,
        primary: Option<usize>,
        depth: usize,
    ) -> Result<(String, Option<Duration>), String> {
        let sources = &self.following[at];
        // Further sources that are no members bring other data.
        let chosen = sources
            .iter()
            .find(|(_, member)| member.is_some())
            .or(sources.first());
        let Some((source, member)) = chosen else {
            return Err("follows nobody".to_owned());
        };
        if !source.applying {
            return Err(stopped(source));
        }
        let own = self.servers[at].lag.map(|lag| match primary {
            Some(_) => lag.was + lag.age,
            None => lag.was,
        });
        if own.is_none() && primary.is_some() {
            return Err(match source.receiving {
                Receiving::Yes => format!("follows {}, and its lag is not known", source.address),
                _ => format!("cannot reach {}, and its lag is not known", source.address),
            });
        }
        let name = member.map_or_else(|| source.address.to_string(), |at| self.servers[at].name.clone());
        let reason = match source.receiving {
            Receiving::Yes => format!("follows {name}"),
            Receiving::Connecting => format!("follows {name}, which it cannot reach"),
            Receiving::No => format!("has everything it got from {name}, and gets no more"),
        };
        match *member {
            Some(member) if Some(member) != primary && primary.is_some() => {
                let above = self.above(member, primary, depth)?;
                let lag = match self.servers[at].lag {
                    Some(lag) if lag.to_primary => own,
                    _ => own.zip(above).map(|(own, above)| own.saturating_add(above)),
                };
                Ok((reason, lag))
            }
            _ => Ok((reason, own)),
        }
    }

    /// How far a server is behind that others follow although it is not the primary.
    fn above(&self, at: usize, primary: Option<usize>, depth: usize) -> Result<Option<Duration>, String> {
        let name = &self.servers[at].name;
        if self.facts[at].is_none() {
            // It gives nothing, and whoever follows it knows how long it has got nothing.
            return Ok(Some(Duration::ZERO));
        }
        if depth > self.servers.len() || self.following[at].is_empty() {
            return Err(format!("follows {name}, which does not follow the primary"));
        }
        match self.lag(at, primary, depth + 1) {
            Ok((_, lag)) => Ok(lag),
            Err(reason) => Err(format!("follows {name}, which {reason}")),
        }
    }
}

fn stopped(source: &Source) -> String {
    match &source.error {
        Some(error) => format!("applies nothing from {}: {error}", source.address),
        None => format!("its replication from {} is stopped", source.address),
    }
}
