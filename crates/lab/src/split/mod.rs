//! Scenario `split`: what it costs to send reads to replicas, over server connections that many sessions
//! share.
//!
//! It is the measurement of [`crate::overhead`] with more servers: a primary and replicas behind every
//! contender that tells them apart (Forebay in mode `split`, ProxySQL), and one server behind the others,
//! which spend nothing on it. Every query is a read. After each round it is checked that the replicas have
//! answered all of them and that there were no more server connections than allowed.
//!
//! With `--servers` it is another measurement, in front of real servers: see [`servers`].

pub(crate) mod gateway;
mod servers;

use std::path::PathBuf;

pub use self::servers::split_on_servers;
use crate::{
    cache::rig,
    overhead::{self, Kind, OverheadArgs, Report, Scenario, Servers},
};

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct SplitArgs {
    /// The matrix, as in `overhead`.
    #[command(flatten)]
    pub load: OverheadArgs,
    /// Replicas beside the primary; with `--servers` there are none.
    #[arg(long, default_value_t = 2)]
    pub replicas: usize,
    /// Server connections that all sessions of a contender share: an eighth to the primary, the others to the
    /// replicas. With `--servers` several, one after the other; `auto` sets no limit, so that the pool finds
    /// its size [default there: 8,32,auto].
    #[arg(long, value_delimiter = ',')]
    pub server_connections: Vec<Connections>,
    /// Real servers, each kind by itself, with sysbench as the load: queries a second beside the server
    /// itself and HAProxy. `--clients` (up to 1000), `--workers`, `--rounds` and `--seconds` count here too
    /// [defaults: 64,200,500 clients; 1,2 workers; 3 rounds of 5 s].
    #[arg(long, value_delimiter = ',')]
    pub servers: Vec<ServerKind>,
    /// What sysbench does, with `--servers`.
    #[arg(long, value_delimiter = ',', default_value = "point-select")]
    pub sysbench: Vec<Script>,
    /// Rows of sysbench's table, with `--servers`.
    #[arg(long, default_value_t = 100_000)]
    pub table_size: u64,
    /// Fail when a figure is not as wanted, with `--servers`.
    #[arg(long)]
    pub strict: bool,
    /// The ProxySQL to compare with [default: `proxysql`, where it is on the PATH].
    #[arg(long)]
    pub proxysql: Option<PathBuf>,
    /// Another configuration for it than the built-in `bench/proxysql.cnf`, with the same names to be filled
    /// in.
    #[arg(long)]
    pub proxysql_config: Option<PathBuf>,
}

/// A real server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ServerKind {
    /// The distribution's MariaDB.
    Mariadb,
    /// MySQL 9.
    Mysql,
}

/// A script of sysbench's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Script {
    /// One row by its key.
    PointSelect,
    /// Transactions of 14 reads.
    ReadOnly,
    /// Transactions of 14 reads and 4 writes.
    ReadWrite,
}

/// How many connections to a server there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// So many at most.
    Most(usize),
    /// As many as the pool finds useful.
    Auto,
}

impl std::str::FromStr for Connections {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.parse()) {
            ("auto", _) => Ok(Self::Auto),
            (_, Ok(count)) if count > 0 => Ok(Self::Most(count)),
            _ => Err(format!("{text:?} is neither a number above 0 nor \"auto\"")),
        }
    }
}

/// Runs the scenario in front of servers that cost nothing and returns all figures. Checks are not looked at;
/// see [`Report::failed_checks`].
pub fn split(args: &SplitArgs) -> anyhow::Result<Report> {
    overhead::run(&args.load, &scenario(args)?)
}

fn scenario(args: &SplitArgs) -> anyhow::Result<Scenario> {
    let connections = match args.server_connections[..] {
        [] => 8,
        [Connections::Most(count)] => count,
        _ => anyhow::bail!(
            "--server-connections takes one number here; several, and `auto`, go with --servers"
        ),
    };
    let mut contenders = vec![Kind::Haproxy, Kind::Tcp, Kind::Session, Kind::Split];
    if args.proxysql.is_some() || rig::find_program(&["proxysql"]).is_some() {
        contenders.insert(1, Kind::Proxysql);
    }
    Ok(Scenario {
        name: "split",
        contenders,
        rows: vec![1],
        clients: vec![100],
        idle_sessions: 5000,
        servers: Servers {
            replicas: args.replicas,
            connections,
        },
        proxysql: args.proxysql.clone().unwrap_or_else(|| "proxysql".into()),
        proxysql_config: args.proxysql_config.clone(),
    })
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
        let named = scenario(&args(&["--proxysql", "/opt/proxysql"])).unwrap();
        assert!(named.contenders.contains(&Kind::Proxysql));
        assert_eq!(named.proxysql, PathBuf::from("/opt/proxysql"));
        let plain = scenario(&args(&[])).unwrap();
        assert_eq!((plain.servers.replicas, plain.servers.connections), (2, 8));
        assert_eq!(
            plain.contenders.contains(&Kind::Proxysql),
            rig::find_program(&["proxysql"]).is_some()
        );
    }

    #[test]
    fn connections_are_a_number_or_left_to_the_pool() {
        let args = |words: &[&str]| Cli::try_parse_from([&["bench"], words].concat()).map(|cli| cli.args);
        let given = args(&["--server-connections", "8,auto"]).unwrap();
        assert_eq!(
            given.server_connections,
            [Connections::Most(8), Connections::Auto]
        );
        assert!(scenario(&given).is_err(), "several are for real servers");
        for wrong in ["0", "many", ""] {
            assert!(args(&["--server-connections", wrong]).is_err(), "{wrong:?}");
        }
    }
}
