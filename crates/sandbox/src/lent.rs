//! Servers that are used again: to start one costs several times what it costs to put one back into its
//! first state.
//!
//! [`Sandbox::lend`] hands out servers that nobody else uses. Dropped servers wait for the next test that
//! asks for the same [`Spec`], and are then cleaned: connections, databases, accounts, global variables and
//! the binary log. Servers of a cluster are cleaned one by one while none follows another, and then replicate
//! anew. Servers that still differ after that are ended, and new ones are started. Servers of which one had
//! something done to its process are never used again, nor are those of a test that failed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::batch;
use crate::program::Flavour;
use crate::{DATABASE, Kind, Node, Sandbox, SandboxError, Spec};

/// Most servers that wait to be used again, all specs together. Each takes up to half a gigabyte.
const WAITING_MAX: usize = 6;

static WAITING: Mutex<Vec<WaitingSandbox>> = Mutex::new(Vec::new());

struct WaitingSandbox {
    sandbox: Sandbox,
    again: Again,
}

/// All that it takes to use a sandbox again.
#[derive(Debug)]
struct Again {
    spec: Spec,
    /// The statements that look at a server.
    look: String,
    /// The state of each server before it replicated.
    first: Vec<State>,
}

/// A sandbox for one who gives it back by dropping it.
#[derive(Debug)]
pub struct Lent {
    /// None only while it is dropped.
    sandbox: Option<Sandbox>,
    /// How the sandbox is used again; `None` where that cannot be.
    again: Option<Again>,
}

impl Sandbox {
    /// A sandbox as [`start`](Self::start) makes it, where possible one that was used before. Only servers of
    /// [`Kind::Mariadb`] and [`Kind::Mysql`] are used again.
    pub fn lend(spec: Spec) -> Result<Lent, SandboxError> {
        while let Some(waiting) = take(&spec) {
            if clean(&waiting).unwrap_or(false) {
                return Ok(Lent {
                    sandbox: Some(waiting.sandbox),
                    again: Some(waiting.again),
                });
            }
        }
        let sandbox = Self::start_apart(&spec)?;
        let can_wait = spec.nodes <= WAITING_MAX && matches!(spec.kind, Kind::Mariadb | Kind::Mysql);
        let again = if can_wait {
            let look = look(sandbox.primary(), sandbox.flavour())?;
            let first = |node| State::of(&sandbox, node, &look).map(State::without_others);
            let first = sandbox.nodes().iter().map(first).collect::<Result<Vec<_>, _>>()?;
            Some(Again { spec, look, first })
        } else {
            None
        };
        sandbox.replicate()?;
        Ok(Lent {
            sandbox: Some(sandbox),
            again,
        })
    }
}

#[allow(clippy::expect_used, reason = "it is there until it is dropped")]
impl Deref for Lent {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        self.sandbox.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let (Some(sandbox), Some(again)) = (self.sandbox.take(), self.again.take()) else {
            return;
        };
        if sandbox.nodes().iter().any(Node::was_harmed) || std::thread::panicking() {
            return;
        }
        let mut waiting = waiting();
        let mut longest = Vec::new();
        let mut servers = again.spec.nodes + waiting.iter().map(|one| one.again.spec.nodes).sum::<usize>();
        while servers > WAITING_MAX {
            let one = waiting.remove(0);
            servers -= one.again.spec.nodes;
            longest.push(one);
        }
        waiting.push(WaitingSandbox { sandbox, again });
        drop(waiting); // it takes a moment to end them
        drop(longest);
    }
}

fn waiting() -> MutexGuard<'static, Vec<WaitingSandbox>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(spec: &Spec) -> Option<WaitingSandbox> {
    let mut waiting = waiting();
    let at = waiting.iter().rposition(|one| one.again.spec == *spec)?;
    Some(waiting.remove(at))
}

/// What a test can change in a server that goes on running.
#[derive(Debug, Default, PartialEq, Eq)]
struct State {
    variables: BTreeMap<String, String>,
    databases: BTreeSet<String>,
    /// As `'name'@'host'`.
    accounts: BTreeSet<String>,
    /// Plugins, how many tables there are, a sum over each system table that does not change by itself, where
    /// it replicates from, and transactions that wait for somebody to commit them.
    system: Vec<String>,
    /// How many connections of others there are: a line of the look.
    others: String,
    /// Of the sandbox's folder.
    files: BTreeSet<OsString>,
}

/// Variables that differ from moment to moment, or with the log.
const MOVING_VARIABLES: &[&str] = &[
    "gtid_binlog_pos",
    "gtid_binlog_state",
    "gtid_current_pos",
    "gtid_executed",
    "gtid_owned",
    "gtid_purged",
    "gtid_slave_pos",
    "last_insert_id",
    "timestamp",
];
/// System tables that servers write by themselves.
const MOVING_TABLES: &str = "'innodb_table_stats', 'innodb_index_stats', 'gtid_slave_pos', 'gtid_executed',
    'general_log', 'slow_log', 'transaction_registry'";
/// Connections of others that are there to stay.
const OTHERS: &str = "FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command <> 'Killed'
    AND user NOT IN ('system user', 'event_scheduler')";
/// The look's line where nobody else is connected.
const NO_OTHERS: &str = "others\t0";
/// How long a server may take to see that a client has gone.
const OTHERS_PATIENCE: Duration = Duration::from_secs(3);
/// The line between the answers of one look.
const NEXT: &str = "-- next --";

/// The statements of a look at a server: all of them at once, as starting a client is what takes time.
fn look(node: &Node, flavour: Flavour) -> Result<String, SandboxError> {
    let tables = node.sql(&format!(
        "SET sql_big_selects = ON;
         SELECT CONCAT('mysql.', table_name) FROM information_schema.tables WHERE table_schema = 'mysql'
             AND table_type = 'BASE TABLE' AND table_name NOT IN ({MOVING_TABLES}) ORDER BY 1"
    ))?;
    let tables: Vec<&str> = tables.lines().collect();
    let replicates = match flavour {
        Flavour::Mariadb => "SHOW ALL SLAVES STATUS;",
        Flavour::Mysql => "", // one of the tables
    };
    Ok(format!(
        "SET sql_big_selects = ON; SHOW GLOBAL VARIABLES; SELECT '{NEXT}'; SHOW DATABASES; SELECT '{NEXT}';
         SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) FROM mysql.user; SELECT '{NEXT}';
         SHOW PLUGINS; CHECKSUM TABLE {};
         SELECT schema_name, default_collation_name FROM information_schema.schemata ORDER BY 1;
         SELECT 'tables', COUNT(*) FROM information_schema.tables; {replicates}
         XA RECOVER; SELECT 'others', COUNT(*) {OTHERS}",
        tables.join(", ")
    ))
}

impl State {
    fn of(sandbox: &Sandbox, node: &Node, look: &str) -> Result<Self, SandboxError> {
        let mut state = Self {
            files: files(sandbox)?,
            ..Self::default()
        };
        let mut part = 0;
        for line in node.sql(look)?.lines() {
            match part {
                _ if line == NEXT => part += 1,
                0 => {
                    let (name, value) = line.split_once('\t').unwrap_or((line, ""));
                    if !MOVING_VARIABLES.iter().any(|moving| name.starts_with(moving)) {
                        state.variables.insert(name.to_owned(), value.to_owned());
                    }
                }
                1 => drop(state.databases.insert(line.to_owned())),
                2 => drop(state.accounts.insert(line.to_owned())),
                _ if line.starts_with("others\t") => line.clone_into(&mut state.others),
                _ => state.system.push(line.to_owned()),
            }
        }
        Ok(state)
    }

    /// The state of the server once all clients that are connected have gone.
    fn without_others(mut self) -> Self {
        NO_OTHERS.clone_into(&mut self.others);
        self
    }
}

fn files(sandbox: &Sandbox) -> Result<BTreeSet<OsString>, SandboxError> {
    let folder = sandbox.folder();
    let failed = |source| SandboxError::io("read", folder, source);
    let entries = fs::read_dir(folder).map_err(failed)?;
    entries
        .map(|entry| Ok(entry.map_err(failed)?.file_name()))
        .collect()
}

/// Puts servers back into their first state. Returns whether they are in it.
fn clean(waiting: &WaitingSandbox) -> Result<bool, SandboxError> {
    let WaitingSandbox { sandbox, again } = waiting;
    if sandbox.nodes().len() > 1 {
        for node in sandbox.nodes() {
            // A replica that waits for a lock of somebody's stops once that one is gone.
            run_all(node, &kills(node)?)?;
            node.promote()?;
        }
    }
    for (node, first) in sandbox.nodes().iter().zip(&again.first) {
        if !clean_node(sandbox, node, &again.look, first)? {
            return Ok(false);
        }
    }
    sandbox.replicate()?;
    Ok(true)
}

/// Puts a server that follows no other back into its first state. Returns whether it is in it.
fn clean_node(sandbox: &Sandbox, node: &Node, look: &str, first: &State) -> Result<bool, SandboxError> {
    for file in files(sandbox)?.difference(&first.files) {
        let path = sandbox.folder().join(file);
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.map_err(|source| SandboxError::io("remove", &path, source))?;
    }
    node.empty_log()?;
    let connections = kills(node)?;
    let used = State::of(sandbox, node, look)?;
    run_all(
        node,
        &(connections + &statements(&used, first, sandbox.flavour())),
    )?;
    let begin = Instant::now();
    loop {
        let state = State::of(sandbox, node, look)?;
        if state == *first {
            return Ok(true);
        }
        // A client that has ended is listed until the server has turned to its connection.
        let has_others = state.others != NO_OTHERS;
        if !has_others || state.without_others() != *first || begin.elapsed() > OTHERS_PATIENCE {
            return Ok(false);
        }
    }
}

/// The statements that end the connections of others.
fn kills(node: &Node) -> Result<String, SandboxError> {
    node.sql(&format!(
        "SET sql_big_selects = ON; SELECT CONCAT('KILL ', id, ';') {OTHERS}"
    ))
}

/// Runs all statements, also those behind one that is refused: a connection that ends by itself meanwhile is
/// no failure, and what else was refused shows in the state.
fn run_all(node: &Node, statements: &str) -> Result<(), SandboxError> {
    let mut client = node.client();
    client.arg("--force");
    batch::run(client, statements, node.index()).map(drop)
}

fn statements(used: &State, first: &State, flavour: Flavour) -> String {
    // A connection that was killed a moment ago lets go of its tables when it is its turn on the machine.
    let mut sql = "SET lock_wait_timeout = 5, innodb_lock_wait_timeout = 1;\n".to_owned();
    for (name, value) in &first.variables {
        if used.variables.get(name) != Some(value) {
            let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let quote = if is_number { "" } else { "'" };
            sql += &format!("SET GLOBAL {name} = {quote}{value}{quote};\n");
        }
    }
    for account in used.accounts.difference(&first.accounts) {
        sql += &match (flavour, account.strip_suffix("@''")) {
            (Flavour::Mariadb, Some(role)) => format!("DROP ROLE {role};\n"),
            _ => format!("DROP USER {account};\n"),
        };
    }
    let own = DATABASE.to_owned();
    for database in used.databases.difference(&first.databases).chain([&own]) {
        sql += &format!("DROP DATABASE IF EXISTS `{}`;\n", database.replace('`', "``"));
    }
    sql += &format!(
        "SET collation_server = @@GLOBAL.collation_server;\nCREATE DATABASE {DATABASE};
         TRUNCATE mysql.general_log;\nTRUNCATE mysql.slow_log;\nFLUSH PRIVILEGES;\nFLUSH STATUS;
         SET GLOBAL host_cache_size = @@GLOBAL.host_cache_size;\n" // forgets hosts that failed to log in
    );
    sql += match flavour {
        Flavour::Mariadb => "RESET MASTER;\nSET GLOBAL gtid_slave_pos = '';\n",
        Flavour::Mysql => "RESET PERSIST;\nRESET MASTER;\nRESET BINARY LOGS AND GTIDS;\n", // one of two
    };
    sql
}
