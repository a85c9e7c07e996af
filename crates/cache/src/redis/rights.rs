//! Which tables a user may read, and whether it may flush. The servers decide: they are asked as that user,
//! by a statement that does nothing.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dataplane::extension::ProtocolSession;
use dataplane::password_login::Identity;
use tokio::sync::Mutex;
use tokio::time::timeout;
use upstream::conversation::{self, QueryError};
use upstream::login::{Account, LoginError};
use upstream::{CredentialSecret, Direct, DirectError, NO_VERDICTS};

use crate::mapping::{Mapping, name};

/// How long a verdict stands that no statement in the binary log has called into question.
const STANDS: Duration = Duration::from_secs(60);

/// Verdicts that a worker keeps: of hundreds of users on tens of mappings.
const KEPT_MAX: usize = 16 * 1024;

/// How long the old verdict stands each time that nobody could be asked, until it has stood for twice
/// [`STANDS`].
const PATIENCE: Duration = Duration::from_secs(5);

/// "Access denied", "command denied to user for table", and "for column"; a privilege on everything is
/// lacking.
const DENIED: [u16; 5] = [1044, 1045, 1142, 1143, 1227];

/// A statement that needs the privilege of those who flush, and does nothing: there is no such table. It is
/// not put into the binary log.
const FLUSH: &str = "FLUSH LOCAL TABLES `forebay`.`no such table`";

/// What a session knows of its user's rights. Empty at first.
#[derive(Debug, Default)]
pub(crate) struct Known {
    verdicts: Vec<(Arc<Mapping>, bool)>,
    /// When the first of them has to be asked for again.
    until: Option<Instant>,
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

    /// What is known for long is forgotten, and everything when `definitions`, which counts the statements
    /// that may change tables and grants, is another than it was. True: something was forgotten.
    #[inline]
    pub(crate) fn age(&mut self, now: Instant, definitions: u64) -> bool {
        let is_old = |until| now >= until || self.definitions != definitions;
        let forgets = self.until.is_some_and(is_old);
        if forgets {
            *self = Self::default();
        }
        forgets
    }

    #[cfg(test)]
    pub(crate) fn grant(&mut self, mapping: &Arc<Mapping>) {
        self.note(Verdict::new(mapping, true, Instant::now(), 0));
    }

    fn note(&mut self, verdict: Verdict) {
        let until = self.until.map_or(verdict.until, |until| until.min(verdict.until));
        self.until = Some(until);
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
    verdicts: RefCell<HashMap<Key, Verdict>>,
    hasher: RandomState,
    /// One question at a time.
    asking: Mutex<()>,
    /// The same for those who want to flush: nobody else waits behind them.
    asking_to_flush: Mutex<()>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    user: Arc<str>,
    account: u64,
    /// The password, by a hash that only this process can make.
    secret: u64,
    mapping: u32,
}

#[derive(Debug, Clone)]
struct Verdict {
    mapping: Arc<Mapping>,
    may_read: bool,
    /// When the server said so.
    at: Instant,
    /// When it is asked again.
    until: Instant,
    definitions: u64,
}

/// Why there is no answer.
#[derive(Debug)]
enum Unasked {
    /// The server is away or busy: it takes nobody's rights.
    Away(String),
    /// This session's account is not let in any more, and may read nothing. Others of that name may have
    /// another password.
    LockedOut,
    /// It was asked, or could have been.
    Failed(String),
}

impl Rights {
    /// Finds out whether the user of a session may read a mapping's table.
    ///
    /// # Errors
    /// Nobody could be asked, and nothing is known from before; in words for a person.
    pub(crate) async fn find_out(
        &self,
        control: &ProtocolSession,
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
        let verdict = match ask(control, identity, &question(mapping)).await {
            Ok(may_read) => Verdict::new(mapping, may_read, at, definitions),
            Err(Unasked::Away(reason)) => {
                let latest = self.latest(identity, mapping);
                let prolonged = latest.and_then(|latest| latest.prolonged(Instant::now(), definitions));
                prolonged.ok_or(reason)?
            }
            Err(Unasked::LockedOut) => {
                known.note(Verdict::new(mapping, false, at, definitions));
                return Ok(());
            }
            Err(Unasked::Failed(reason)) => return Err(reason),
        };
        self.keep(self.key(identity, mapping), verdict.clone());
        known.note(verdict);
        Ok(())
    }

    /// Finds out whether the user of a session may flush. That is seldom wanted: nothing is kept of it.
    ///
    /// # Errors
    /// Nobody could be asked; in words for a person.
    pub(crate) async fn may_flush(
        &self,
        control: &ProtocolSession,
        identity: &Identity,
    ) -> Result<bool, String> {
        let _one_at_a_time = self.asking_to_flush.lock().await;
        match ask(control, identity, FLUSH).await {
            Ok(may_flush) => Ok(may_flush),
            Err(Unasked::LockedOut) => Ok(false),
            Err(Unasked::Away(reason) | Unasked::Failed(reason)) => Err(reason),
        }
    }

    /// Those that nobody would go by any more make room.
    fn keep(&self, key: Key, verdict: Verdict) {
        let mut verdicts = self.verdicts.borrow_mut();
        if verdicts.len() >= KEPT_MAX {
            verdicts.retain(|_, kept| kept.stands(verdict.definitions));
        }
        if verdicts.len() >= KEPT_MAX {
            verdicts.clear();
        }
        verdicts.insert(key, verdict);
    }

    /// Accounts of one name, each for clients of other hosts, may have other rights: what tells them apart is
    /// what was proved.
    fn key(&self, identity: &Identity, mapping: &Mapping) -> Key {
        let credential = identity.credential();
        let secret = match &credential.secret {
            CredentialSecret::Password(password) => self.hasher.hash_one(password.reveal()),
            CredentialSecret::NativeStage1(hash) => self.hasher.hash_one(hash),
        };
        Key {
            user: Arc::clone(&credential.user),
            account: credential.account,
            secret,
            mapping: mapping.id.0,
        }
    }

    fn latest(&self, identity: &Identity, mapping: &Arc<Mapping>) -> Option<Verdict> {
        let verdicts = self.verdicts.borrow();
        let found = verdicts.get(&self.key(identity, mapping));
        found
            .filter(|verdict| Arc::ptr_eq(&verdict.mapping, mapping))
            .cloned()
    }
}

impl Verdict {
    fn new(mapping: &Arc<Mapping>, may_read: bool, at: Instant, definitions: u64) -> Self {
        Self {
            mapping: Arc::clone(mapping),
            may_read,
            at,
            until: at + STANDS,
            definitions,
        }
    }

    fn stands(&self, definitions: u64) -> bool {
        self.definitions == definitions && Instant::now() < self.until
    }

    /// The same for a while longer, because nobody could be asked. `None` where that has lasted too long, or
    /// it is in question.
    fn prolonged(self, now: Instant, definitions: u64) -> Option<Self> {
        let last = self.at + 2 * STANDS;
        (self.definitions == definitions && now < last).then(|| Self {
            until: last.min(now + PATIENCE),
            ..self
        })
    }
}

/// Asks the primary whether it lets the user execute a statement, which has one packet for an answer.
async fn ask(control: &ProtocolSession, identity: &Identity, sql: &str) -> Result<bool, Unasked> {
    let cluster = control.cluster();
    let topology = cluster.topology();
    let primary = topology.primary();
    let primary = primary.ok_or_else(|| Unasked::Away("there is no primary".into()))?;
    let credential = identity.credential();
    let CredentialSecret::Password(password) = &credential.secret else {
        return Err(Unasked::Failed("the account's password is not known".into()));
    };
    let account = Account::of(&credential.user, Some(password));
    let mut direct = match Direct::open(cluster, &primary.server, account).await {
        Ok(direct) => direct,
        Err(error) => return Err(without_login(&error)),
    };
    let limit = cluster.config().login_timeout;
    let question = [conversation::query(direct.capabilities, sql)];
    let asking = conversation::ask(&mut direct.stream, direct.capabilities, &question);
    let asked = timeout(limit, asking).await;
    let asked = asked.map_err(|_| Unasked::Away(format!("no answer within {limit:?}")))?;
    let replies = asked.map_err(|broken| Unasked::Away(broken.to_string()))?;
    let done = replies
        .iter()
        .try_for_each(|reply| reply.done(direct.capabilities));
    let verdict = match done {
        Ok(()) => Ok(true),
        Err(QueryError::Refused(error)) if DENIED.contains(&error.code) => Ok(false),
        Err(error) => Err(Unasked::Failed(error.to_string())),
    };
    direct.close().await;
    verdict
}

/// What follows from a login that failed.
fn without_login(error: &DirectError) -> Unasked {
    let reason = error.to_string();
    match error {
        DirectError::Refused(packet) if !NO_VERDICTS.contains(&packet.code) => Unasked::LockedOut,
        DirectError::Refused(_) | DirectError::Connect(_) => Unasked::Away(reason),
        DirectError::Login { error, .. } => match error {
            LoginError::Io(_) | LoginError::Closed => Unasked::Away(reason),
            _ => Unasked::Failed(reason),
        },
    }
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

#[cfg(test)]
mod tests {
    use mysql_wire::ErrPacket;

    use super::*;
    use crate::redis::tests::mapping;

    #[test]
    fn an_old_verdict_is_prolonged_once_and_not_where_grants_have_changed() {
        let at = Instant::now();
        let verdict = || Verdict::new(&mapping(), true, at, 7);
        let until = |now, definitions| Some(verdict().prolonged(now, definitions)?.until);
        assert_eq!(until(at + STANDS, 7), Some(at + STANDS + PATIENCE));
        assert_eq!(until(at + STANDS, 8), None);
        let last = at + 2 * STANDS;
        assert_eq!(until(last - PATIENCE / 2, 7), Some(last));
        assert_eq!(until(last, 7), None);
    }

    #[test]
    fn verdicts_that_are_kept_are_bounded() {
        let (rights, mapping) = (Rights::default(), mapping());
        let keep = |user: usize, definitions| {
            let verdict = Verdict::new(&mapping, true, Instant::now(), definitions);
            let key = Key {
                user: user.to_string().into(),
                account: 0,
                secret: 0,
                mapping: 0,
            };
            rights.keep(key, verdict);
            rights.verdicts.borrow().len()
        };
        for user in 0..KEPT_MAX {
            assert_eq!(keep(user, (user % 2) as u64), user + 1);
        }
        assert_eq!(
            keep(KEPT_MAX, 1),
            KEPT_MAX / 2 + 1,
            "those before the last grant are gone"
        );
        for user in 0..2 * KEPT_MAX {
            assert!(keep(user, 1) <= KEPT_MAX);
        }
    }

    #[test]
    fn a_server_that_is_busy_does_not_say_no() {
        let refused = |code| {
            without_login(&DirectError::Refused(ErrPacket {
                code,
                sql_state: *b"HY000",
                message: b"no".to_vec(),
            }))
        };
        assert!(matches!(refused(1045), Unasked::LockedOut));
        assert!(matches!(refused(3118), Unasked::LockedOut));
        assert!(matches!(refused(1040), Unasked::Away(_)));
        assert!(matches!(
            without_login(&DirectError::Connect("gone".into())),
            Unasked::Away(_)
        ));
    }
}
