//! What stands in the store, and a view of it.
//!
//! | key below `/forebay/FLEET/` | value |
//! |---|---|
//! | `config` | the text that all have in common, as it was written; its revision is how often it was changed |
//! | `apply/proposal` | a text that is to be the next one; ends with the lease of the gateway that proposes it |
//! | `apply/checks/NAME` | what a gateway says of the proposal; ends with its lease |
//! | `acts/drain/CLUSTER/SERVER`, `acts/pause/CLUSTER` | what all do until it is taken back |
//! | `acts/kill/ID` | a session that another gateway is to end, and its answer; ends with the lease of who asks |
//! | `connection-ids/N` | the gateway whose connection ids begin with this number; stays when it is gone |
//! | `gateways/NAME` | a gateway that lives: what it is and runs; ends with its lease |
//! | `history/about/N` | who made revision N, when and why |
//! | `history/text/N` | its text |
//! | `vip/ADDRESS` | who has a virtual address; ends with a lease of its own. Without one: it is free |
//!
//! Everything but the history and the addresses is looked at all the time.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use upstream::etcd::{Change, Entry, Guard, Op, Range, Snapshot, Transaction};

/// Former revisions that are kept.
pub(crate) const HISTORY: u64 = 100;

/// Names of keys of one fleet.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn of(fleet: &str) -> Self {
        Self {
            prefix: format!("/forebay/{fleet}/"),
        }
    }

    /// All that is looked at.
    pub(crate) fn live(&self) -> Range {
        Range {
            from: self.prefix.clone().into_bytes(),
            to: format!("{}history/", self.prefix).into_bytes(),
        }
    }

    pub(crate) fn config(&self) -> String {
        format!("{}config", self.prefix)
    }

    pub(crate) fn proposal(&self) -> String {
        format!("{}apply/proposal", self.prefix)
    }

    pub(crate) fn check(&self, name: &str) -> String {
        format!("{}apply/checks/{name}", self.prefix)
    }

    pub(crate) fn drain(&self, cluster: &str, server: &str) -> String {
        format!(
            "{}acts/drain/{}/{}",
            self.prefix,
            escaped(cluster),
            escaped(server)
        )
    }

    pub(crate) fn pause(&self, cluster: &str) -> String {
        format!("{}acts/pause/{}", self.prefix, escaped(cluster))
    }

    pub(crate) fn kill(&self, id: &str) -> String {
        format!("{}acts/kill/{id}", self.prefix)
    }

    pub(crate) fn number(&self, number: u32) -> String {
        format!("{}connection-ids/{number:02}", self.prefix)
    }

    pub(crate) fn acts(&self) -> Range {
        Range::below(&format!("{}acts/", self.prefix))
    }

    pub(crate) fn gateway(&self, name: &str) -> String {
        format!("{}gateways/{name}", self.prefix)
    }

    pub(crate) fn gateways(&self) -> Range {
        Range::below(&format!("{}gateways/", self.prefix))
    }

    /// Numbers with all their digits, so that keys are in order.
    pub(crate) fn about(&self, revision: u64) -> String {
        format!("{}history/about/{revision:010}", self.prefix)
    }

    pub(crate) fn abouts(&self) -> Range {
        Range::below(&format!("{}history/about/", self.prefix))
    }

    pub(crate) fn text(&self, revision: u64) -> String {
        format!("{}history/text/{revision:010}", self.prefix)
    }

    pub(crate) fn vip(&self, address: Ipv4Addr) -> String {
        format!("{}vip/{address}", self.prefix)
    }
}

/// What a gateway says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GatewayEntry {
    /// Of its folder: the same after a restart, another on another machine.
    pub(crate) id: String,
    /// Where that folder is, as long as its machine runs. A copy of it is elsewhere.
    #[serde(default)]
    pub(crate) place: String,
    /// Grows with each start.
    pub(crate) run: u64,
    pub(crate) version: String,
    pub(crate) zone: Option<String>,
    pub(crate) addresses: Vec<String>,
    /// The revision it runs; 0: none of the store.
    pub(crate) revision: u64,
    /// The one that it cannot run, and why.
    pub(crate) refused: Option<(u64, String)>,
    /// Clusters whose statements wait, each with the moment at which that was asked: not the one before.
    #[serde(default)]
    pub(crate) paused: Vec<(String, i64)>,
    /// What all do and it could not do, in words.
    #[serde(default)]
    pub(crate) undone: Vec<String>,
    /// It takes no more than one of so many parts of each limit; 0: it has them for itself.
    #[serde(default)]
    pub(crate) parts: u32,
}

/// A text that is to be the next one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proposal {
    pub(crate) id: String,
    /// The gateway that proposes it.
    pub(crate) by: String,
    /// The revision that it is to follow.
    pub(crate) base: u64,
    pub(crate) text: String,
}

/// What a gateway says of a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) proposal: String,
    pub(crate) problem: Option<String>,
}

/// Something that all do until it is taken back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Deed {
    /// All leave a server.
    Drain {
        /// Its cluster.
        cluster: String,
        /// Its name.
        server: String,
        /// Sessions that are still there end after so many seconds.
        end_after: Option<f64>,
    },
    /// Statements wait.
    Pause {
        /// The cluster.
        cluster: String,
    },
}

impl Deed {
    pub(crate) fn key(&self, keys: &Keys) -> String {
        match self {
            Self::Drain { cluster, server, .. } => keys.drain(cluster, server),
            Self::Pause { cluster } => keys.pause(cluster),
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drain { cluster, server, .. } => write!(out, "drain of {server} in {cluster}"),
            Self::Pause { cluster } => write!(out, "pause of {cluster}"),
        }
    }
}

/// Who made a revision, when and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Its number; counts from 1.
    pub revision: u64,
    /// The proposal that it was.
    pub id: String,
    /// Who has asked for it.
    pub who: String,
    /// The gateway that was asked.
    pub gateway: String,
    /// Seconds since 1970, by that gateway's clock.
    pub when: u64,
    /// What was said about it; may be empty.
    pub why: String,
}

/// The live keys at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) revision: i64,
    entries: BTreeMap<String, Entry>,
}

impl From<Snapshot> for View {
    fn from(snapshot: Snapshot) -> Self {
        let entries = snapshot.entries.into_iter();
        Self {
            revision: snapshot.revision,
            entries: entries.map(|entry| (entry.key.clone(), entry)).collect(),
        }
    }
}

impl View {
    /// Takes over changes; those that are in it already are left out.
    pub(crate) fn take(&mut self, changes: Vec<Change>) {
        let before = self.revision;
        for change in changes {
            let modified = match &change {
                Change::Put(entry) => entry.modified,
                Change::Deleted { modified, .. } => *modified,
            };
            if modified <= before {
                continue;
            }
            self.revision = self.revision.max(modified);
            match change {
                Change::Put(entry) => drop(self.entries.insert(entry.key.clone(), entry)),
                Change::Deleted { key, .. } => drop(self.entries.remove(&key)),
            }
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The revision of the common text, and when it was made; 0 where there is none.
    pub(crate) fn config(&self, keys: &Keys) -> (u64, Option<&Entry>) {
        let entry = self.get(&keys.config());
        let revision = entry.and_then(|entry| u64::try_from(entry.version).ok());
        (revision.unwrap_or_default(), entry)
    }

    pub(crate) fn proposal(&self, keys: &Keys) -> Option<(&Entry, Proposal)> {
        let entry = self.get(&keys.proposal())?;
        Some((entry, serde_json::from_slice(&entry.value).ok()?))
    }

    /// The gateways that live, by name. What one of another version says may not be understood: it lives all
    /// the same.
    pub(crate) fn gateways(&self, keys: &Keys) -> Vec<(&str, &Entry, Option<GatewayEntry>)> {
        let named = self.within(keys.gateways()).map(|entry| {
            let name = entry.key.rsplit('/').next().unwrap_or_default();
            (name, entry, serde_json::from_slice(&entry.value).ok())
        });
        named.collect()
    }

    /// What all do. What one of another version has written may not be understood, and is not done here.
    pub(crate) fn acts(&self, keys: &Keys) -> Vec<(&Entry, Deed)> {
        let acts = self.within(keys.acts());
        let understood = acts.filter_map(|entry| Some((entry, serde_json::from_slice(&entry.value).ok()?)));
        understood.collect()
    }

    /// Which gateway gives connection ids with this number.
    pub(crate) fn holder(&self, keys: &Keys, number: u32) -> Option<&str> {
        std::str::from_utf8(&self.get(&keys.number(number))?.value).ok()
    }

    /// Sessions that gateways ask others to end.
    pub(crate) fn kills(&self, keys: &Keys) -> impl Iterator<Item = &Entry> {
        self.within(Range::below(&keys.kill("")))
    }

    fn within(&self, range: Range) -> impl Iterator<Item = &Entry> {
        self.entries.values().filter(move |entry| range.holds(&entry.key))
    }

    /// That those who live are those who live in this view.
    pub(crate) fn those_that_live(&self, keys: &Keys) -> Vec<Guard> {
        let gateways = self.gateways(keys);
        let leases = gateways
            .iter()
            .map(|(_, entry, _)| Guard::Lease(entry.key.clone(), entry.lease));
        let mut guards: Vec<Guard> = leases.collect();
        guards.push(Guard::NoneCreatedAfter(keys.gateways(), self.revision));
        guards
    }

    /// What the gateway of this name and lease says of a proposal.
    pub(crate) fn verdict(&self, keys: &Keys, name: &str, lease: i64, proposal: &str) -> Option<Verdict> {
        let entry = self.get(&keys.check(name)).filter(|entry| entry.lease == lease)?;
        let verdict: Verdict = serde_json::from_slice(&entry.value).ok()?;
        (verdict.proposal == proposal).then_some(verdict)
    }
}

/// A part of a key, or of a query: everything but plain characters as `%` and two digits.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b':' => {
                escaped.push(char::from(byte))
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// What is said of a revision, of the key that was read.
pub(crate) fn first_about(snapshot: &Snapshot) -> Option<About> {
    let entry = snapshot.entries.first()?;
    serde_json::from_slice(&entry.value).ok()
}

/// Deletes a key that nobody has changed since it was seen.
pub(crate) fn deletion(seen: &Entry) -> Transaction {
    Transaction {
        guards: vec![Guard::Modified(seen.key.clone(), seen.modified)],
        ops: vec![Op::Delete(seen.key.clone())],
    }
}

/// A value as it stands in the store.
pub(crate) fn written(value: &impl Serialize) -> Vec<u8> {
    // Texts and numbers can always be written.
    serde_json::to_vec(value).unwrap_or_default()
}
