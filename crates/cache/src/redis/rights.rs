//! Which tables a user may read. The servers decide: they are asked as that user, by a statement that reads nothing.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dataplane::extension::{Guest, Identity};
use mysql_wire::{Command, ErrPacket, PacketHeader, write_packet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio::time::timeout;
use upstream::login::Account;
use upstream::{CredentialSecret, Direct};

use crate::mapping::{Mapping, name};

/// How long a verdict stands that no statement in the binary log has called into question.
const STANDS: Duration = Duration::from_secs(60);

/// "Access denied", "command denied to user for table", and "for column".
const DENIED: [u16; 4] = [1044, 1045, 1142, 1143];

/// What a session knows of its user's rights. Empty at first.
#[derive(Debug, Default)]
pub(crate) struct Known {
    verdicts: Vec<(Arc<Mapping>, bool)>,
    since: Option<Instant>,
    /// The number of definitions and grants that were seen when the first of them was asked for.
    definitions: u64,
}

impl Known {
    /// Whether the user may read a mapping's table. `None` where that has to be found out.
    #[inline]
    pub(crate) fn of(&self, mapping: &Arc<Mapping>) -> Option<bool> {
        let mut verdicts = self.verdicts.iter();
        let found = verdicts.find(|(known, _)| Arc::ptr_eq(known, mapping));
        found.map(|(_, verdict)| *verdict)
    }

    /// What is known for long is forgotten, and everything when `definitions`, which counts the statements that may change tables
    /// and grants, is another than it was.
    #[inline]
    pub(crate) fn age(&mut self, now: Instant, definitions: u64) {
        let is_old = |since| now.duration_since(since) > STANDS || self.definitions != definitions;
        if self.since.is_some_and(is_old) {
            *self = Self::default();
        }
    }

    #[cfg(test)]
    pub(crate) fn grant(&mut self, mapping: &Arc<Mapping>) {
        let verdict = Verdict {
            mapping: Arc::clone(mapping),
            may_read: true,
            at: Instant::now(),
            definitions: 0,
        };
        self.note(verdict);
    }

    fn note(&mut self, verdict: Verdict) {
        // The eldest verdict says when all are asked for again.
        self.since = Some(self.since.map_or(verdict.at, |since| since.min(verdict.at)));
        self.definitions = if self.verdicts.is_empty() {
            verdict.definitions
        } else {
            self.definitions.min(verdict.definitions)
        };
        self.verdicts.push((verdict.mapping, verdict.may_read));
    }
}

/// The verdicts of a worker, so that many sessions of one user ask once.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    verdicts: RefCell<HashMap<(Box<str>, u32), Verdict>>,
    /// One question at a time.
    asking: Mutex<()>,
}

#[derive(Debug, Clone)]
struct Verdict {
    mapping: Arc<Mapping>,
    may_read: bool,
    at: Instant,
    definitions: u64,
}

impl Rights {
    /// Finds out whether the user of a session may read a mapping's table.
    ///
    /// # Errors
    /// Nobody could be asked, and nothing is known from before; in words for a person.
    pub(crate) async fn find_out(
        &self,
        guest: &Guest,
        identity: &Identity,
        mapping: &Arc<Mapping>,
        definitions: u64,
        known: &mut Known,
    ) -> Result<(), String> {
        let recent = || {
            self.latest(identity, mapping)
                .filter(|verdict| verdict.stands(definitions))
        };
        if let Some(verdict) = recent() {
            known.note(verdict);
            return Ok(());
        }
        let _one_at_a_time = self.asking.lock().await;
        if let Some(verdict) = recent() {
            known.note(verdict);
            return Ok(());
        }
        let at = Instant::now();
        let may_read = match ask(guest, identity, mapping).await {
            Ok(may_read) => may_read,
            // A server that is away takes nobody's rights.
            Err(reason) => self
                .latest(identity, mapping)
                .map(|verdict| verdict.may_read)
                .ok_or(reason)?,
        };
        let verdict = Verdict {
            mapping: Arc::clone(mapping),
            may_read,
            at,
            definitions,
        };
        self.verdicts
            .borrow_mut()
            .insert(key(identity, mapping), verdict.clone());
        known.note(verdict);
        Ok(())
    }

    fn latest(&self, identity: &Identity, mapping: &Arc<Mapping>) -> Option<Verdict> {
        let verdicts = self.verdicts.borrow();
        let found = verdicts.get(&key(identity, mapping));
        found
            .filter(|verdict| Arc::ptr_eq(&verdict.mapping, mapping))
            .cloned()
    }
}

impl Verdict {
    fn stands(&self, definitions: u64) -> bool {
        self.definitions == definitions && self.at.elapsed() < STANDS
    }
}

fn key(identity: &Identity, mapping: &Mapping) -> (Box<str>, u32) {
    (identity.user().into(), mapping.id.0)
}

/// Asks the primary.
async fn ask(guest: &Guest, identity: &Identity, mapping: &Mapping) -> Result<bool, String> {
    let cluster = guest.cluster();
    let topology = cluster.topology();
    let primary = topology.primary().ok_or("there is no primary")?;
    let credential = identity.credential();
    let CredentialSecret::Password(password) = &credential.secret else {
        return Err("the account's password is not known".into());
    };
    let account = Account {
        user: credential.user.as_bytes(),
        password: password.reveal().as_bytes(),
    };
    let direct = Direct::open(cluster, &primary.server, account).await;
    let mut direct = direct.map_err(|error| error.to_string())?;
    let limit = cluster.config().login_timeout;
    let answer = timeout(limit, exchange(&mut direct, &question(mapping))).await;
    let answer = answer.map_err(|_| format!("no answer within {limit:?}"))?;
    let answer = answer.map_err(|error| error.to_string())?;
    let verdict = match ErrPacket::decode(&answer, direct.capabilities) {
        Ok(error) if DENIED.contains(&error.code) => Ok(false),
        Ok(error) => Err(format!(
            "{} (error {})",
            String::from_utf8_lossy(&error.message),
            error.code
        )),
        Err(_) => Ok(true),
    };
    direct.close().await;
    verdict
}

/// A statement that needs the right to read the mapping's columns, and reads nothing.
fn question(mapping: &Mapping) -> String {
    let columns: Vec<String> = mapping.columns.iter().map(|column| name(&column.name)).collect();
    format!(
        "DO EXISTS (SELECT {} FROM {}.{} WHERE FALSE)",
        columns.join(", "),
        name(&mapping.schema),
        name(&mapping.table)
    )
}

/// The answer of a statement that has one packet.
async fn exchange(direct: &mut Direct, sql: &str) -> io::Result<Vec<u8>> {
    let payload = [&[Command::QUERY.0], sql.as_bytes()].concat();
    let mut packet = Vec::new();
    write_packet(&mut packet, &mut 0, &payload);
    direct.stream.write_all(&packet).await?;
    direct.stream.flush().await?;
    let mut header = [0; PacketHeader::LEN];
    direct.stream.read_exact(&mut header).await?;
    let length = PacketHeader::parse(&header).map_or(0, |header| header.payload_len);
    let mut answer = vec![0; length.min(64 * 1024)];
    direct.stream.read_exact(&mut answer).await?;
    Ok(answer)
}
