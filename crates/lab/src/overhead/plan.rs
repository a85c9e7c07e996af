//! A scenario: who is compared in front of which servers, and the matrix with every default filled in.

use std::{path::PathBuf, time::Duration};

use anyhow::ensure;
use serde::Serialize;

use super::{Kind, OverheadArgs, Protocol};

/// What tells one scenario from another.
pub(crate) struct Scenario {
    /// Its name on the command line and in the results.
    pub name: &'static str,
    /// Who is compared where the command line does not say.
    pub contenders: Vec<Kind>,
    /// The values of the matrix where the command line does not say.
    pub rows: Vec<u32>,
    pub clients: Vec<usize>,
    pub idle_sessions: usize,
    pub servers: Servers,
    pub proxysql: PathBuf,
    /// In the place of the built-in one.
    pub proxysql_config: Option<PathBuf>,
}

/// What stands behind each contender.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Servers {
    /// Servers beside the primary.
    pub replicas: usize,
    /// Connections to all of them together, by contenders whose sessions share them.
    pub connections: usize,
}

impl Servers {
    /// How many of the connections each server takes, the primary first: it gets an eighth, since all it has
    /// to do here is to let sessions in.
    pub fn shares(&self) -> Vec<usize> {
        if self.replicas == 0 {
            return vec![self.connections];
        }
        let primary = (self.connections / 8).max(1);
        let rest = self.connections - primary;
        let replica = |at| rest / self.replicas + usize::from(at < rest % self.replicas);
        std::iter::once(primary)
            .chain((0..self.replicas).map(replica))
            .collect()
    }
}

/// The arguments with every default filled in.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Rows of a result.
    pub rows: Vec<u32>,
    pub clients: Vec<usize>,
    /// Workers of this program.
    pub workers: Vec<usize>,
    pub protocols: Vec<Protocol>,
    pub rounds: usize,
    /// Load of one round.
    pub seconds: f64,
    pub contenders: Vec<Kind>,
    /// Sessions in the memory measurement.
    pub idle_sessions: usize,
    /// Clients that know neither DEPRECATE_EOF nor SESSION_TRACK.
    pub older_clients: bool,
    /// The load generator and the servers never sleep.
    pub busy_poll: bool,
    /// Options of Forebay that are not as they are by default.
    pub forebay_options: Vec<String>,
    /// Behind each contender.
    pub servers: Servers,
}

impl Plan {
    pub(super) fn new(args: &OverheadArgs, scenario: &Scenario) -> anyhow::Result<Self> {
        let plan = Self {
            rows: given_or(&args.rows, &scenario.rows),
            clients: match args.quick && args.clients.is_empty() {
                true => vec![32],
                false => given_or(&args.clients, &scenario.clients),
            },
            workers: given_or(&args.workers, &[1]),
            protocols: given_or(&args.protocol, &[Protocol::Text, Protocol::Prepared]),
            rounds: args.rounds.unwrap_or(if args.quick { 3 } else { 5 }),
            seconds: args.seconds.unwrap_or(if args.quick { 0.6 } else { 2.0 }),
            contenders: given_or(&args.contenders, &scenario.contenders),
            idle_sessions: args.idle_sessions.unwrap_or(if args.quick {
                1000
            } else {
                scenario.idle_sessions
            }),
            older_clients: args.older_clients,
            busy_poll: args.busy_poll,
            forebay_options: args.forebay_option.clone(),
            servers: scenario.servers,
        };
        ensure!(
            plan.rounds > 0 && plan.clients.iter().chain(&plan.workers).all(|&count| count > 0),
            "nothing to measure"
        );
        ensure!(
            (0.01..=3600.0).contains(&plan.seconds),
            "--seconds must be between 0.01 and 3600"
        );
        ensure!(
            plan.servers.connections > plan.servers.replicas,
            "--server-connections must be more than the replicas: every server needs one"
        );
        Ok(plan)
    }

    pub(super) fn round(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

fn given_or<T: Clone>(given: &[T], default: &[T]) -> Vec<T> {
    if given.is_empty() { default } else { given }.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_shared_out_to_the_last() {
        let shares = |replicas, connections| {
            Servers {
                replicas,
                connections,
            }
            .shares()
        };
        assert_eq!(shares(2, 8), [1, 4, 3]);
        assert_eq!(shares(2, 20), [2, 9, 9]);
        assert_eq!(shares(2, 3), [1, 1, 1]);
        assert_eq!(shares(0, 8), [8]);
    }
}
