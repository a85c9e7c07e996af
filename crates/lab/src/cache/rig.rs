//! The processes that are compared: a real server with the rows, Redis with the same rows, HAProxy in front
//! of the server, and this program.

use std::{
    fmt::Write as _,
    fs,
    io::{Read, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use sandbox::{Kind, Sandbox, Spec};

use super::{
    CacheArgs,
    load::{Target, ask, command},
};
use crate::child::{self, ListeningChild};

/// How long the copy of all rows may take.
const COPY_PATIENCE: Duration = Duration::from_secs(300);
/// Rows that one statement puts into the table, and one write into Redis.
const BATCH: u64 = 10_000;
/// Length of column `c`, as sysbench has it.
pub(crate) const VALUE: usize = 119;

/// The server with table `sbtest.sbtest1`, made as sysbench makes it.
pub(super) fn start_server(args: &CacheArgs) -> anyhow::Result<Sandbox> {
    let kind = if args.mysql { Kind::Mysql } else { Kind::Mariadb };
    let spec = Spec::new(kind).option("--innodb-buffer-pool-size=2G");
    let server = Sandbox::start(spec).context("starting the server")?;
    server.primary().sql("CREATE DATABASE sbtest")?;
    Ok(server)
}

/// Runs a statement whose answer nobody needs.
pub(crate) type Run<'a> = &'a mut dyn FnMut(&str) -> anyhow::Result<()>;

/// Runs it on the primary.
pub(crate) fn on(server: &Sandbox) -> impl FnMut(&str) -> anyhow::Result<()> {
    move |statement: &str| {
        server.primary().sql(statement)?;
        Ok(())
    }
}

/// Creates a table with rows 1 to `rows`, whose `c` has `length` bytes.
pub(crate) fn fill_table(run: Run<'_>, table: &str, rows: u64, length: usize) -> anyhow::Result<()> {
    // Longer than 255 it cannot be:
    // https://mariadb.com/docs/server/reference/data-types/string-data-types/char
    let kind = if length > 255 { "VARCHAR" } else { "CHAR" };
    run(&format!(
        "CREATE TABLE {table} (id INT NOT NULL PRIMARY KEY AUTO_INCREMENT, k INT NOT NULL DEFAULT 0, \
         c {kind}({length}) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '', KEY k_1 (k)) DEFAULT CHARSET latin1"
    ))?;
    let mut first = 1;
    while first <= rows {
        let mut statement = format!("INSERT INTO {table} (id, k, c, pad) VALUES ");
        let last = (first + BATCH - 1).min(rows);
        for id in first..=last {
            let comma = if id == first { "" } else { "," };
            write!(statement, "{comma}({id},{id},'{}','pad')", value(id, length))?;
        }
        run(&statement)?;
        first = last + 1;
    }
    Ok(())
}

/// Creates `sbtest.sbtest1` with so many rows.
pub(crate) fn fill_first_table(server: &Sandbox, rows: u64) -> anyhow::Result<()> {
    server.primary().sql("CREATE DATABASE sbtest")?;
    fill_table(&mut on(server), "sbtest.sbtest1", rows, VALUE)
}

/// The value of a row: digits, all of one length, no two alike.
pub(crate) fn value(id: u64, length: usize) -> String {
    let mut text = id.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_string();
    while text.len() < length {
        text.extend(text.clone().chars().take(length - text.len()));
    }
    format!(
        "{}{}",
        &text[..length - 9.min(length)],
        &format!("{id:09}")[..9.min(length)]
    )
}

pub(super) struct Redis {
    process: ListeningChild,
    pub target: Target,
}

impl Redis {
    pub(super) fn start(args: &CacheArgs, folder: &Path) -> anyhow::Result<Self> {
        let program = args.redis()?;
        let started = ListeningChild::start(&folder.join("redis.log"), |[address]| {
            let port = address.port().to_string();
            let mut command = child::pinned(args.contender_core, &program);
            command
                .args(["--port", &port, "--bind", "127.0.0.1"])
                .args(["--save", "", "--appendonly", "no"])
                .current_dir(folder);
            Ok(command)
        });
        let (process, [address]) = started.context("starting Redis")?;
        let target = Target {
            address,
            account: None,
        };
        Ok(Self { process, target })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Puts the rows of a table into it: strings `row@key`, and where `hashes` hashes `hash@key` with `c` and
    /// `pad`.
    pub(super) fn fill(&self, rows: u64, length: usize, hashes: bool) -> anyhow::Result<()> {
        let mut stream = self.target.connect()?;
        for first in (1..=rows).step_by(1000) {
            let last = (first + 999).min(rows);
            let (mut requests, mut replies) = (Vec::new(), 0);
            for id in first..=last {
                let value = value(id, length);
                command(&mut requests, &["SET", &format!("row@{id}"), &value])?;
                replies += b"+OK\r\n".len();
                if hashes {
                    let id = id.to_string();
                    command(
                        &mut requests,
                        &["HSET", &format!("hash@{id}"), "k", &id, "c", &value, "pad", "pad"],
                    )?;
                    replies += b":3\r\n".len();
                }
            }
            stream.write_all(&requests)?;
            let mut received = vec![0; replies];
            stream.read_exact(&mut received)?;
            ensure!(!received.contains(&b'-'), "Redis refused a row");
        }
        Ok(())
    }
}

/// This program, with one worker.
pub(super) struct Gateway {
    process: ListeningChild,
    pub strong: Target,
    pub eventual: Target,
    /// Where SQL clients connect, whose point lookups are answered from memory, as fresh as the primary.
    pub sql: SocketAddr,
    /// The same with `lookup_consistency = "session"`.
    pub sql_own: SocketAddr,
}

impl Gateway {
    /// Starts it over one table; returns once it accepts connections, before the rows are copied.
    pub(super) fn start(
        args: &CacheArgs,
        server: &Sandbox,
        table: &str,
        hashes: bool,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let file = folder.join("forebay.toml");
        let program = child::gateway(args.forebay.as_deref())?;
        let started = ListeningChild::start(&folder.join("forebay.log"), |addresses: [SocketAddr; 4]| {
            fs::write(&file, configuration(args, server, table, hashes, &addresses))?;
            let mut command = child::pinned(args.contender_core, &program);
            command.args(["serve", "--config"]).arg(&file);
            Ok(command)
        });
        let (process, [strong, eventual, sql, sql_own]) = started.context("starting the gateway")?;
        let account = Some((sandbox::USER, sandbox::PASSWORD));
        let target = |address| Target { address, account };
        Ok(Self {
            process,
            strong: target(strong),
            eventual: target(eventual),
            sql,
            sql_own,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Waits until a strong GET of the key has the answer.
    pub(super) fn wait_for(&self, key: &str, expected: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + COPY_PATIENCE;
        let mut last = String::new();
        while Instant::now() < deadline {
            let answer = self
                .strong
                .connect()
                .and_then(|mut stream| ask(&mut stream, &["GET", key]));
            last = answer.unwrap_or_else(|error| error.to_string());
            if last == expected {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        anyhow::bail!("GET {key} does not get the answer; the last one was: {last}")
    }
}

fn configuration(
    args: &CacheArgs,
    server: &Sandbox,
    table: &str,
    hashes: bool,
    [strong, eventual, sql, sql_own]: &[SocketAddr; 4],
) -> String {
    let (user, password) = (sandbox::USER, sandbox::PASSWORD);
    let address = server.primary().address();
    let mut text = format!(
        r#"workers = {workers}
[[listener]]
bind = "{strong}"
protocol = "redis"
[[listener]]
bind = "{eventual}"
protocol = "redis"
lookup_consistency = "eventual"
[[listener]]
bind = "{sql}"
cluster = "main"
mode = "session"
point_lookups = true
[[listener]]
bind = "{sql_own}"
cluster = "main"
mode = "session"
point_lookups = true
lookup_consistency = "session"
[cluster.main]
servers = ["{address}"]
topology = "replication"
monitor = {{ user = "{user}", password = "{password}" }}
[cache]
cluster = "main"
memory_max = "4GiB"
[[cache.mapping]]
name = "row"
kind = "string"
table = "sbtest.{table}"
key = ["id"]
value = ["c"]
"#,
        workers = args.workers,
    );
    if hashes {
        text += &format!(
            "[[cache.mapping]]\nname = \"hash\"\nkind = \"hash\"\ntable = \"sbtest.{table}\"\nkey = [\"id\"]\nvalue = [\"k\", \"c\", \"pad\"]\n"
        );
    }
    text
}

/// HAProxy in TCP mode in front of the server.
pub(crate) fn start_haproxy(
    program: &Path,
    core: Option<usize>,
    server: &str,
    folder: &Path,
) -> anyhow::Result<(ListeningChild, SocketAddr)> {
    let file = folder.join("haproxy.cfg");
    fs::write(&file, include_str!("../../../../bench/haproxy.cfg"))?;
    let started = ListeningChild::start(&folder.join("haproxy.log"), |[address]| {
        let mut command = child::pinned(core, program);
        command
            .args(["-db", "-f"])
            .arg(&file)
            .env("BENCH_BIND", address.to_string())
            .env("BENCH_SERVER", server);
        Ok(command)
    });
    let (process, [address]) = started.context("starting HAProxy")?;
    Ok((process, address))
}

/// The first of these programs that is on the PATH.
pub(crate) fn find_program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    names
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
}
