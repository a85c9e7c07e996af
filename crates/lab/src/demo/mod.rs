//! `forebay demo`: three real MariaDB servers, the gateway in front of them, a light load, live figures.
//!
//! One port for everything: the gateway sends writes to the primary and spreads reads over the replicas. It
//! is a child process of the same program, as a user would run it; nothing is mocked and nothing is left
//! behind.

pub(crate) mod gateway;
mod load;
pub(crate) mod screen;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use sandbox::{DATABASE, Kind, PASSWORD, Sandbox, Spec, USER};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::{
    gateway::{Gateway, server_name},
    load::{ACCOUNTS, Load, READERS, Tally, WRITERS},
    screen::{Figures, Screen, Uses},
};
use crate::client::{ACCOUNT, Server};

const ONCE: Duration = Duration::from_secs(15);
const EVERY: Duration = Duration::from_secs(1);
const NODES: usize = 3;

/// Runs the demo until Ctrl-C, or for about 15 seconds with `once`: then it is an error when no query got
/// through or one failed.
pub fn run(once: bool) -> anyhow::Result<()> {
    say!(
        "starting {NODES} MariaDB servers (one primary, {} replicas) …",
        NODES - 1
    );
    let servers = Sandbox::start(Spec::new(Kind::Mariadb).nodes(NODES))?;
    fill(&servers)?;
    let mut gateway = Gateway::start(&servers)?;
    introduce(&servers, &gateway);

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let target = Server {
        address: gateway.clients,
        account: ACCOUNT,
    };
    let mut load = Load::start(target)?;
    let ran = runtime.block_on(show(&mut gateway, &load, once.then_some(ONCE)));
    load.stop();
    let statements = gateway.metrics().map(|metrics| Uses::of(&metrics).statements);
    let mut total = ran.with_context(|| format!("the gateway said:\n{}", Gateway::log(servers.folder())))?;
    total.add(load.take()?);
    say!(
        "\n{} queries, {} failed, p95 {:.2} ms",
        total.queries,
        total.failures,
        total.p95_ms()
    );
    if let Some(failure) = &total.last_failure {
        say!("the last failure: {failure}");
    }
    if once {
        ensure!(total.queries > 0, "no query got through");
        ensure!(total.failures == 0, "{} queries failed", total.failures);
        let statements = statements?;
        let by_server: Vec<String> = statements
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        say!("statements by server: {}", by_server.join(", "));
        let idle = (0..NODES)
            .map(server_name)
            .find(|name| statements.get(name).is_none_or(|count| *count == 0.0));
        ensure!(idle.is_none(), "no statement ran on {idle:?}");
    }
    Ok(())
}

fn fill(servers: &Sandbox) -> anyhow::Result<()> {
    let statements = format!(
        "CREATE TABLE account (id INT PRIMARY KEY, owner VARCHAR(40) NOT NULL, balance BIGINT NOT NULL);
         INSERT INTO account SELECT seq, CONCAT('owner ', seq), 100 FROM seq_1_to_{ACCOUNTS};"
    );
    servers
        .primary()
        .sql(&statements)
        .context("filling the demo's table")?;
    servers.sync().context("replicating the demo's table")
}

fn introduce(servers: &Sandbox, gateway: &Gateway) {
    say!("MariaDB {} is running:", servers.version());
    for node in servers.nodes() {
        say!("  {:<12} {}", server_name(node.index()), node.address());
    }
    say!(
        "\nForebay is in front of them, with one port for all: writes go to the primary, reads to the replicas. Connect with\n\
         `mariadb` or `mysql`, and ask why: FOREBAY EXPLAIN SELECT * FROM account WHERE id = 1"
    );
    say!("  {}", connect_command(gateway.clients));
    say!(
        "  curl http://{}/metrics\n\n{READERS} sessions read and {WRITERS} write through it, until Ctrl-C:\n",
        gateway.admin
    );
}

fn connect_command(address: SocketAddr) -> String {
    format!(
        "mariadb --skip-ssl -h {} -P {} -u {USER} -p{PASSWORD} {DATABASE}",
        address.ip(),
        address.port()
    )
}

/// Draws the figures once a second until a signal or the end of `limit`. Returns everything that was counted.
async fn show(gateway: &mut Gateway, load: &Load, limit: Option<Duration>) -> anyhow::Result<Tally> {
    let mut signals = [
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
        signal(SignalKind::hangup())?,
    ];
    let start = Instant::now();
    let mut screen = Screen::default();
    let mut total = load.take()?;
    let mut last = start;
    let mut before = Uses::default();
    loop {
        tokio::select! {
            () = any(&mut signals) => return Ok(total),
            () = tokio::time::sleep(EVERY) => {}
        }
        ensure!(!gateway.has_ended(), "the gateway has ended");
        let tally = load.take()?;
        let (queries, p95_ms) = (tally.queries as f64, tally.p95_ms());
        total.add(tally);
        // Empty when it does not answer, which the next second may show better.
        let metrics = gateway.metrics().unwrap_or_default();
        let seconds = last.elapsed().as_secs_f64();
        let uses = Uses::of(&metrics);
        let figures = Figures {
            seconds: start.elapsed().as_secs(),
            qps: queries / seconds,
            p95_ms,
            failures: total.failures,
            sessions: screen::sessions(&metrics),
            servers: screen::servers(&metrics, &uses, &before, seconds),
        };
        last = Instant::now();
        before = uses;
        screen.draw(&figures)?;
        if limit.is_some_and(|limit| start.elapsed() >= limit) {
            return Ok(total);
        }
    }
}

async fn any([interrupt, terminate, hangup]: &mut [Signal; 3]) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}
