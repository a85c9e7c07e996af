//! `forebay`: the command line. Each command is one call into the crate that does the work.

// `println!` panics where whoever reads has read enough: `say!` and `print` do not.
#![deny(clippy::print_stdout)]

/// Writes a line to standard output.
macro_rules! say {
    ($($words:tt)*) => {
        crate::print(&format!("{}\n", format_args!($($words)*)))
    };
}

mod admin_sockets;
mod certificates;
mod completion;
mod connect;
mod ctl;
mod features;
mod fleet_host;
mod import;
mod memory;
mod notify;
mod operate;
mod others;
mod serve;
mod switchover;
mod system_user;
mod token;
mod traffic;
mod upgrade;

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// With the commit, where the build was told: `0.1.0 (0123456789ab)`, as by `script/release`.
const VERSION: &str = match option_env!("FOREBAY_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// A gateway in front of MySQL-compatible clusters.
#[derive(Parser)]
#[command(version = VERSION, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway in the foreground.
    Serve {
        /// The configuration file.
        #[arg(short, long, default_value = "/etc/forebay/forebay.toml")]
        config: PathBuf,
    },
    /// Check a configuration file, with the certificates and keys it names, and exit; 0 means it is right.
    /// What depends on the moment (addresses in use, the limit of file descriptors) is found at start.
    Check {
        /// The configuration file.
        #[arg(short, long, default_value = "/etc/forebay/forebay.toml")]
        config: PathBuf,
        /// Ask the servers as well, as `serve` would (logins of all accounts that are given with a password,
        /// grants, GTIDs, `read_only`, roles), and the store, where there is one. 0 means that everything
        /// would work. A login that a server refuses counts there as any other.
        #[arg(long)]
        connect: bool,
    },
    /// Act on a running gateway, over the socket of `[admin]` or its address.
    Ctl(ctl::Ctl),
    /// Capture traffic, replay it on another server, and compare what came of it.
    Traffic(Box<traffic::Traffic>),
    /// Make a file with a token for `[admin] token_file` and `forebay ctl --token-file`.
    Token(token::NewToken),
    /// Turn the configuration of another gateway into one of this.
    Import {
        #[command(subcommand)]
        from: import::Import,
    },
    /// Print the script by which a shell completes commands and options: `eval "$(forebay completion bash)"`.
    Completion {
        /// bash, zsh or fish.
        shell: completion::Shell,
    },
    /// Print reference documentation.
    Docs {
        #[command(subcommand)]
        what: Docs,
    },
    /// Start and stop real servers on loopback, to try things out.
    Sandbox {
        #[command(subcommand)]
        command: Sandbox,
    },
    /// Three MariaDB servers, the gateway and a load, with live figures, until Ctrl-C.
    Demo {
        /// Run for about 15 seconds; exit 0 only if queries flowed and none failed.
        #[arg(long)]
        once: bool,
    },
    /// Measure what a gateway costs.
    Bench(lab::cli::Bench),
}

#[derive(Subcommand)]
enum Docs {
    /// Every option with type, default, unit and reload class.
    Options,
    /// Every metric with type, unit and labels.
    Metrics,
    /// The SQL statements that make the tables of `mapping_tables = true`.
    MappingTables,
    /// The pages of the manual for the command line, a file each.
    Man {
        /// The folder to write them into.
        folder: PathBuf,
    },
}

#[derive(Subcommand)]
enum Sandbox {
    /// Start servers and leave them running.
    Up {
        /// mariadb, mysql, galera or group-replication.
        #[arg(long, default_value = "mariadb")]
        kind: sandbox::Kind,
        /// How many, 1 to 9. The first is the primary of the others, or the first member of the cluster.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
        nodes: u8,
    },
    /// Stop them and leave nothing behind: all that this user has started, or those of one sandbox.
    Down {
        /// 127.0.0.1:PORT of one of its servers; without it all sandboxes go.
        address: Option<String>,
    },
    /// What runs, and where.
    Status,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_understood(&error),
    };
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("forebay: {}", words(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let done = match command {
        Command::Ctl(ctl) => return ctl::run(ctl),
        Command::Traffic(traffic) => return traffic::run(*traffic),
        Command::Import { from } => return import::run(&from),
        Command::Serve { config } => serve::run(&config),
        Command::Check { config, connect } => check(&config, connect),
        Command::Token(new) => token::make(&new),
        Command::Completion { shell } => print(&completion::script(shell, &mut Cli::command())),
        Command::Docs { what } => docs(&what),
        Command::Sandbox { command } => sandbox(command),
        Command::Demo { once } => lab::demo::run(once),
        Command::Bench(bench) => bench.run(),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Help, the version, or a mistake. Of `ctl` and `traffic` a mistake is no 2, by which they tell that
/// sessions are left, that nothing has changed, or what differs.
fn not_understood(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    let command = std::env::args_os().nth(1);
    let tells_by_2 = command.is_some_and(|command| command == "ctl" || command == "traffic");
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if tells_by_2 => ExitCode::FAILURE,
        _ => ExitCode::from(2),
    }
}

/// An error with its causes, of which some are in its own words already.
fn words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

/// The configuration; where there is none, with what to do about it.
fn load(path: &Path) -> anyhow::Result<config::Config> {
    // What is no file might wait for somebody to write into it.
    let open = || match path.metadata()?.is_file() {
        true => File::open(path).map(drop),
        false => Ok(()),
    };
    config::Config::load(path).map_err(|errors| match open().map_err(|error: io::Error| error.kind()) {
        Err(ErrorKind::NotFound) => {
            anyhow::anyhow!("{errors}; name the file with --config (how to begin one: forebay docs options)")
        }
        Err(ErrorKind::PermissionDenied) => {
            anyhow::anyhow!(
                "{errors}; the user that runs this must be able to read it and to enter its folders"
            )
        }
        Ok(()) | Err(_) => errors.into(),
    })
}

fn check(path: &Path, connect: bool) -> anyhow::Result<()> {
    let config = load(path)?;
    check_files(&config)?;
    // The file of a gateway that runs as another system user is right as it is.
    let token_file = config
        .admin
        .as_ref()
        .and_then(|admin| admin.token_file.as_deref());
    if let Some(file) = token_file {
        token::read(file).context("admin.token_file")?;
    }
    for words in certificates::worries(&config)
        .into_iter()
        .chain(config::log_worries(&config.log.level))
        .chain(config::congestion_worries(&config))
        .chain(worries(&config))
        // The gateway may run as another user.
        .chain(rights_of_vip(&config).err().map(|error| error.to_string()))
    {
        eprintln!("forebay: {words}");
    }
    for name in config.clusters.keys().filter(|name| !is_used(name, &config)) {
        eprintln!("forebay: cluster {name}: no listener, no [cache] and no `mirror` of a rule names it");
    }
    let servers: usize = config
        .clusters
        .values()
        .map(|cluster| cluster.servers.len())
        .sum();
    print(&format!(
        "{}: ok ({}, {}, {})\n",
        path.display(),
        counted(config.listeners.len(), "listener"),
        counted(config.clusters.len(), "cluster"),
        counted(servers, "server")
    ))?;
    if connect {
        connect::run(&config)?;
    }
    Ok(())
}

/// Options that are right and perhaps not meant, whenever a configuration is taken up.
fn worries(config: &config::Config) -> Vec<String> {
    let trust = config::trust_worries(config, &system_user::name());
    [config::idle_worries(config), trust, config::setup_worries(config)].concat()
}

/// Takes up certificates and keys, as a start would.
fn check_files(config: &config::Config) -> anyhow::Result<()> {
    for listener in config
        .listeners
        .iter()
        .filter(|listener| listener.tls.mode != config::TlsMode::Off)
    {
        net::TlsAcceptor::new(&listener.tls).with_context(|| format!("listener {}", listener.name))?;
    }
    for (to, tls) in encrypted_links(config) {
        net::TlsConnector::new(tls).with_context(|| to)?;
    }
    for (listener, path) in config
        .listeners
        .iter()
        .filter_map(|listener| Some((listener, listener.rsa_key.as_ref()?)))
    {
        let key = std::fs::read_to_string(path).map_err(anyhow::Error::from);
        key.and_then(|text| Ok(dataplane::rsa_key::PrivateKey::from_pem(&text)?))
            .with_context(|| format!("listener {}: rsa_key {}", listener.name, path.display()))?;
    }
    Ok(())
}

/// The encryption of the gateway's own links, where there is one, and to whom they lead.
fn encrypted_links(config: &config::Config) -> impl Iterator<Item = (String, &config::ClusterTls)> {
    let clusters = config.clusters.values();
    let to_servers = clusters
        .clone()
        .map(|cluster| (format!("cluster {}", cluster.name), &cluster.tls));
    let to_pd = clusters
        .filter_map(|cluster| Some((format!("cluster {}: pd", cluster.name), &cluster.pd.as_ref()?.tls)));
    let to_store = config
        .store
        .iter()
        .map(|store| ("[store]".to_owned(), &store.tls));
    let all = to_servers.chain(to_pd).chain(to_store);
    all.filter(|(_, tls)| tls.mode != config::TlsMode::Off)
}

/// What this process may not do that `[vip]` takes.
fn rights_of_vip(config: &config::Config) -> anyhow::Result<()> {
    let missing = match &config.vip {
        Some(_) => net::interface::missing_rights(),
        None => Vec::new(),
    };
    anyhow::ensure!(
        missing.is_empty(),
        "[vip] takes rights that this process has not: {} (systemd: the drop-in examples/vip.conf)",
        missing.join(", ")
    );
    Ok(())
}

/// A cluster that is not is right, and mostly a slip all the same.
fn is_used(cluster: &str, config: &config::Config) -> bool {
    let of_cache = config.cache.iter().map(|cache| cache.cluster.as_str());
    let of_rules = config.rules.iter().filter_map(|rule| rule.mirror.as_deref());
    let of_listeners = config.listeners.iter().map(|listener| listener.cluster.as_str());
    of_listeners
        .chain(of_cache)
        .chain(of_rules)
        .any(|name| name == cluster)
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn docs(what: &Docs) -> anyhow::Result<()> {
    match what {
        Docs::Options => print(&config::docs::text()),
        Docs::Metrics => print(&telemetry::docs::text()),
        Docs::MappingTables => print(cache::feed::MAPPING_TABLES),
        Docs::Man { folder } => clap_mangen::generate_to(Cli::command(), folder)
            .with_context(|| format!("cannot write into {}", folder.display())),
    }
}

/// A task that has panicked leaves no value behind that others could not go on with.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes to standard output. Whoever reads it may have read enough (`forebay docs options | head`).
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

fn sandbox(command: Sandbox) -> anyhow::Result<()> {
    let command = match command {
        Sandbox::Up { kind, nodes } => sandbox::cli::Command::Up {
            kind,
            nodes: nodes.into(),
        },
        Sandbox::Down { address } => sandbox::cli::Command::Down { address },
        Sandbox::Status => sandbox::cli::Command::Status,
    };
    Ok(sandbox::cli::run(command)?)
}
