//! Scenario `split`: what it costs to send reads to replicas, over server connections that many sessions share.
//!
//! It is the measurement of [`overhead`](crate::overhead) with more servers: a primary and replicas behind every
//! contender that tells them apart (Forebay in mode `split`, ProxySQL), and one server behind the others, which spend
//! nothing on it. Every query is a read. After each round it is checked that the replicas have answered all of them
//! and that there were no more server connections than allowed.

use std::{env, path::PathBuf};

use crate::overhead::{self, Kind, OverheadArgs, Report, Scenario, Servers};

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct SplitArgs {
    /// The matrix, as in `overhead`.
    #[command(flatten)]
    pub load: OverheadArgs,
    /// Replicas beside the primary.
    #[arg(long, default_value_t = 2)]
    pub replicas: usize,
    /// Server connections that all sessions of a contender share: an eighth to the primary, the others to the replicas.
    #[arg(long, default_value_t = 8)]
    pub server_connections: usize,
    /// The ProxySQL to compare with [default: `proxysql`, where it is on the PATH].
    #[arg(long)]
    pub proxysql: Option<PathBuf>,
    /// Another configuration for it than the built-in `bench/proxysql.cnf`, with the same names to be filled in.
    #[arg(long)]
    pub proxysql_config: Option<PathBuf>,
}

/// Runs the scenario and returns all figures. Checks are not looked at; see [`Report::failed_checks`].
pub fn split(args: &SplitArgs) -> anyhow::Result<Report> {
    overhead::run(&args.load, &scenario(args))
}

fn scenario(args: &SplitArgs) -> Scenario {
    let mut contenders = vec![Kind::Haproxy, Kind::Tcp, Kind::Session, Kind::Split];
    if args.proxysql.is_some() || is_on_path("proxysql") {
        contenders.insert(1, Kind::Proxysql);
    }
    Scenario {
        name: "split",
        contenders,
        rows: vec![1],
        clients: vec![100],
        idle_sessions: 5000,
        servers: Servers {
            replicas: args.replicas,
            connections: args.server_connections,
        },
        proxysql: args.proxysql.clone().unwrap_or_else(|| "proxysql".into()),
        proxysql_config: args.proxysql_config.clone(),
    }
}

fn is_on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: SplitArgs,
    }

    #[test]
    fn a_proxysql_that_is_named_is_compared() {
        let args = |words: &[&str]| Cli::try_parse_from([&["bench"], words].concat()).unwrap().args;
        let named = scenario(&args(&["--proxysql", "/opt/proxysql"]));
        assert!(named.contenders.contains(&Kind::Proxysql));
        assert_eq!(named.proxysql, PathBuf::from("/opt/proxysql"));
        let plain = scenario(&args(&[]));
        assert_eq!((plain.servers.replicas, plain.servers.connections), (2, 8));
        assert_eq!(plain.contenders.contains(&Kind::Proxysql), is_on_path("proxysql"));
    }
}
