//! Servers that replicate by GTIDs, as those of MySQL do: what they tell the monitor, what is said of each
//! write, and the waits for what others have written.
//!
//! | statement | answer |
//! |---|---|
//! | a write with `'OK'` | OK with its GTID, or error 1290 of a server that takes none |
//! | a write with `'PACED'` | the same, after a moment: see [`Replication::most_at_once`] |
//! | `SELECT 'SEEN'` | as many rows as there are transactions on the server |
//! | `SELECT WAIT_FOR_EXECUTED_GTID_SET(…)` | 0 as soon as the server has it, 1 after the time that is given |
//! | what the monitor and strong reads ask | what is so |
//!
//! What a server writes is at once on those that follow it, unless they are held back.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use mysql_wire::gtid::{Flavor, GtidSet};
use mysql_wire::session_state::Change;
use mysql_wire::{Command, ErrPacket, OkPacket, StatusFlags};
use testkit::scripted::{Reply, Script};

use super::stage::{CAPABILITIES, as_here};

/// How strong reads ask the primary where it is.
pub(crate) const ASKS_PRIMARY: &str =
    "SELECT IF(@@GLOBAL.gtid_mode='ON', @@GLOBAL.gtid_executed, ''), @@GLOBAL.server_uuid";

/// How long a paced write is under way.
const PACE: Duration = Duration::from_millis(100);

/// The servers of a stage: a primary, and those that follow it.
#[derive(Clone)]
pub(crate) struct Replication(Arc<Mutex<Vec<Node>>>);

struct Node {
    port: u16,
    is_writable: bool,
    follows: Option<usize>,
    /// Applies nothing of what others write.
    is_held_back: bool,
    seconds_behind: u32,
    /// The last transaction that it has of those of each server.
    has: BTreeMap<usize, u64>,
    /// Those of them that have a GTID, since GTIDs were switched off.
    numbered: Option<BTreeMap<usize, u64>>,
    /// Statements that it has yet to answer, since when.
    waits: HashMap<String, Instant>,
    most_at_once: usize,
}

impl Replication {
    pub(crate) fn new(servers: usize) -> Self {
        let node = |at| Node {
            port: 0,
            is_writable: at == 0,
            follows: (at != 0).then_some(0),
            is_held_back: false,
            seconds_behind: 0,
            has: BTreeMap::new(),
            numbered: None,
            waits: HashMap::new(),
            most_at_once: 0,
        };
        Self(Arc::new(Mutex::new((0..servers).map(node).collect())))
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        self.0.lock().unwrap()
    }

    pub(crate) fn listens(&self, at: usize, port: u16) {
        self.nodes()[at].port = port;
    }

    /// It applies nothing until it is let through.
    pub(crate) fn hold_back(&self, at: usize) {
        self.nodes()[at].is_held_back = true;
    }

    pub(crate) fn let_through(&self, at: usize) {
        let mut nodes = self.nodes();
        nodes[at].is_held_back = false;
        spread(&mut nodes);
    }

    /// It applies all that another has, whomever it follows.
    pub(crate) fn catch_up(&self, at: usize, from: usize) {
        let mut nodes = self.nodes();
        merge(&mut nodes, at, from);
        spread(&mut nodes);
    }

    /// Transactions get no GTIDs from now on (`gtid_mode`).
    pub(crate) fn switch_gtids_off(&self) {
        for node in self.nodes().iter_mut() {
            node.numbered = Some(node.has.clone());
        }
    }

    /// So far behind it says that it is.
    pub(crate) fn lag(&self, at: usize, seconds: u32) {
        self.nodes()[at].seconds_behind = seconds;
    }

    /// Whether it takes writes.
    pub(crate) fn takes_writes(&self, at: usize, takes: bool) {
        self.nodes()[at].is_writable = takes;
    }

    /// It takes writes and follows nobody, and the others follow it. The one before stays as it is.
    pub(crate) fn promote(&self, at: usize) {
        let mut nodes = self.nodes();
        for (other, node) in nodes.iter_mut().enumerate() {
            if other == at {
                (node.is_writable, node.follows) = (true, None);
            } else if node.follows.is_some() {
                node.follows = Some(at);
            }
        }
        spread(&mut nodes);
    }

    /// In order: the one before takes no more writes, and follows.
    pub(crate) fn switch_over(&self, from: usize, to: usize) {
        {
            let mut nodes = self.nodes();
            (nodes[from].is_writable, nodes[from].follows) = (false, Some(to));
        }
        self.promote(to);
    }

    /// Transactions that it has.
    pub(crate) fn transactions(&self, at: usize) -> u64 {
        self.nodes()[at].has.values().sum()
    }

    /// How many paced writes it has had under way at the same time.
    pub(crate) fn most_at_once(&self, at: usize) -> usize {
        self.nodes()[at].most_at_once
    }

    /// Its answer to what is about replication.
    pub(crate) fn reply(&self, at: usize, request: &[u8]) -> Option<Reply> {
        let (&command, text) = request.split_first()?;
        let text = str::from_utf8(text)
            .ok()
            .filter(|_| command == Command::QUERY.0)?;
        let mut nodes = self.nodes();
        let node = &nodes[at];
        let (position, is_read_only) = (position(node), u8::from(!node.is_writable).to_string());
        let has_gtids = node.numbered.is_none();
        if text.starts_with("SELECT @@global.server_uuid AS identity") {
            let place = format!("scripted:{}:/", node.port);
            return Some(table(&[
                ("identity", &uuid(at)),
                ("read_only", &is_read_only),
                ("super_read_only", &is_read_only),
                ("offline_mode", "0"),
                ("applied", &position),
                ("gtid_mode", if has_gtids { "ON" } else { "OFF_PERMISSIVE" }),
                ("place", &place),
            ]));
        }
        if text == "SHOW REPLICA STATUS" {
            let Some(source) = node.follows else {
                return Some(table(&[]));
            };
            return Some(table(&[
                ("Source_Host", "127.0.0.1"),
                ("Source_Port", &nodes[source].port.to_string()),
                ("Source_UUID", &uuid(source)),
                ("Replica_IO_Running", "Yes"),
                ("Replica_SQL_Running", "Yes"),
                ("Last_SQL_Errno", "0"),
                ("Seconds_Behind_Source", &node.seconds_behind.to_string()),
            ]));
        }
        if text == "SHOW REPLICAS" {
            return Some(table(&[]));
        }
        if text.starts_with(ASKS_PRIMARY) {
            return Some(table(&[
                ("position", if has_gtids { position.as_str() } else { "" }),
                ("uuid", &uuid(at)),
                ("read_only", &is_read_only),
                ("super_read_only", &is_read_only),
            ]));
        }
        if text == "SELECT @@GLOBAL.gtid_executed LIMIT 1" {
            return Some(table(&[("position", &position)]));
        }
        if let Some(wait) = text.strip_prefix("SELECT WAIT_FOR_EXECUTED_GTID_SET('") {
            let (wanted, seconds) = wait.trim_end_matches(')').split_once("', ")?;
            let limit = Duration::from_secs_f64(seconds.parse().unwrap());
            let set = |text: &str| GtidSet::parse(Flavor::MySql, text.as_bytes()).unwrap();
            let is_there = set(&position).covers(&set(wanted));
            let node = &mut nodes[at];
            let since = *node.waits.entry(text.to_owned()).or_insert_with(Instant::now);
            if !is_there && since.elapsed() < limit {
                return Some(Reply::Later);
            }
            node.waits.remove(text);
            return Some(table(&[("waited", if is_there { "0" } else { "1" })]));
        }
        if text.contains("'SEEN'") {
            let rows = format!("ROWS {}", node.has.values().sum::<u64>());
            let mut reply = Script::new(CAPABILITIES).reply(&[&[command], rows.as_bytes()].concat());
            if let Reply::Payloads(payloads) = &mut reply {
                as_here(payloads.last_mut().unwrap(), false, CAPABILITIES);
            }
            return Some(reply);
        }
        let is_write = ["INSERT", "UPDATE", "DELETE"]
            .iter()
            .any(|verb| text.starts_with(verb));
        let is_paced = text.contains("'PACED'");
        (is_write && (is_paced || text.contains("'OK'")) && !text.contains("'TRX'"))
            .then(|| write(&mut nodes, at, text, is_paced))
    }
}

fn write(nodes: &mut [Node], at: usize, text: &str, is_paced: bool) -> Reply {
    let node = &mut nodes[at];
    let mut payload = Vec::new();
    if !node.is_writable {
        let message = "The MySQL server is running with the --read-only option";
        let error = ErrPacket {
            code: 1290,
            sql_state: *b"HY000",
            message: message.into(),
        };
        error.encode(&mut payload, CAPABILITIES);
        return Reply::Payloads(vec![payload]);
    }
    if is_paced {
        let since = *node.waits.entry(text.to_owned()).or_insert_with(Instant::now);
        node.most_at_once = node.most_at_once.max(node.waits.len());
        if since.elapsed() < PACE {
            return Reply::Later;
        }
        node.waits.remove(text);
    }
    let number = node.has.entry(at).or_default();
    *number += 1;
    let gtid = format!("{}:{number}", uuid(at));
    let mut session_state = Vec::new();
    let mut status = StatusFlags::AUTOCOMMIT;
    if node.numbered.is_none() {
        Change::Gtids(gtid.as_bytes()).encode(&mut session_state);
        status.insert(StatusFlags::SESSION_STATE_CHANGED);
    }
    let ok = OkPacket {
        affected_rows: 1,
        last_insert_id: 0,
        status,
        warnings: 0,
        info: Vec::new(),
        session_state,
    };
    ok.encode(&mut payload, CAPABILITIES);
    spread(nodes);
    Reply::Payloads(vec![payload])
}

/// What there is comes to all that follow, and to those that follow them.
fn spread(nodes: &mut [Node]) {
    for _ in 0..nodes.len() {
        for at in 0..nodes.len() {
            let Some(source) = nodes[at].follows.filter(|_| !nodes[at].is_held_back) else {
                continue;
            };
            merge(nodes, at, source);
        }
    }
}

fn merge(nodes: &mut [Node], at: usize, from: usize) {
    for (origin, number) in nodes[from].has.clone() {
        let has = nodes[at].has.entry(origin).or_default();
        *has = number.max(*has);
    }
}

fn position(node: &Node) -> String {
    let numbered = node.numbered.as_ref().unwrap_or(&node.has);
    let sets = numbered.iter().map(|(at, number)| match number {
        1 => format!("{}:1", uuid(*at)),
        number => format!("{}:1-{number}", uuid(*at)),
    });
    sets.collect::<Vec<_>>().join(",")
}

fn uuid(at: usize) -> String {
    format!("0000000{at}-1111-2222-3333-444444444444")
}

/// One row of texts with their names; none where there are none.
fn table(row: &[(&str, &str)]) -> Reply {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    assert!(row.iter().all(|(_, value)| value.len() < 251), "{row:?}");
    let column = |name: &str| {
        let names = ["def", "", "", "", name, name].map(text).concat();
        [names, vec![0x0c, 45, 0, 0, 4, 0, 0, 0xfd, 0, 0, 0, 0, 0]].concat()
    };
    let names = match row {
        [] => vec!["nothing"],
        row => row.iter().map(|(name, _)| *name).collect(),
    };
    let mut payloads = vec![vec![names.len() as u8]];
    payloads.extend(names.into_iter().map(column));
    if !row.is_empty() {
        payloads.push(
            row.iter()
                .map(|(_, value)| text(value))
                .collect::<Vec<_>>()
                .concat(),
        );
    }
    payloads.push(vec![0xfe, 0, 0, 2, 0, 0, 0]);
    Reply::Payloads(payloads)
}
