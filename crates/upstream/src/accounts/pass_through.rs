//! Accounts that nobody has listed: whether a password is right is asked by a login on a server, and its word
//! is taken for a while.
//!
//! What is kept is the password of accounts that a server has let in, and nothing of those that it has
//! refused. It is tried again when it is used after `interval`, and goes when a server refuses it, when
//! nobody has used it for `forget_after`, and when there are too many others. A server that is away or busy
//! says nothing of a password: then one that is known stands for ten times `interval`.
//!
//! Each password of a name has a number, by which connections that were opened with it are kept apart from
//! others. It is found again by a keyed hash, so that it stays the same where passwords are not kept, and
//! where two are used in turn.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use config::{AccountsFrom, Secret};
use mysql_wire::ErrPacket;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::eviction_budget::EvictionBudget;
use super::trial_login::{Trying, try_login};
use super::{NO_VERDICTS, next_id, watch};
use crate::cluster::Cluster;
use crate::error::LeaseError;
use crate::lock::lock;
use crate::server::{Server, now};

/// Logins that are tried on servers at the same time; further ones wait, no longer than a login may take.
const TRIALS_MAX: usize = 8;

/// How many times `interval` a password stands that no server says anything of.
const PATIENCE: u32 = 10;

/// Least time between two attempts to have it said.
const RETRY: Duration = Duration::from_secs(1);

/// How long a password that is known waits for room on a full server, to be tried again: it stands all the
/// same, and others want to be tried.
const WAIT_OF_KNOWN: Duration = Duration::from_millis(100);

/// "Access denied", with a password and without: about this password, and no more.
pub const DENIALS: [u16; 2] = [1045, 1698];

/// What a cluster keeps of such accounts.
pub(crate) struct PassThrough {
    known: Mutex<HashMap<Box<[u8]>, Known>>,
    trials: Semaphore,
    /// What they may cost the pools.
    eviction_budget: EvictionBudget,
    /// What came of them.
    results: [AtomicU64; Trial::ALL.len()],
    /// Of the hashes of passwords.
    key: Option<hmac::Key>,
}

/// What came of a login that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    LetIn,
    /// There is no such account, or it has another password.
    Denied,
    /// For another reason.
    Refused,
    /// The server could not be asked, or was too busy to say.
    NoVerdict,
}

impl Trial {
    pub(crate) const ALL: [Self; 4] = [Self::LetIn, Self::Denied, Self::Refused, Self::NoVerdict];

    /// The word in metrics.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::LetIn => "let_in",
            Self::Denied => "denied",
            Self::Refused => "refused",
            Self::NoVerdict => "no_verdict",
        }
    }

    fn of(tried: &Result<(), LeaseError>) -> Self {
        match tried {
            Ok(()) => Self::LetIn,
            Err(error) if is_no_verdict(error) => Self::NoVerdict,
            Err(LeaseError::Refused { packet, .. }) if DENIALS.contains(&packet.code) => Self::Denied,
            Err(_) => Self::Refused,
        }
    }
}

struct Known {
    /// Of the password that was let in last.
    number: Number,
    /// Of the one before.
    former: Option<Number>,
    /// `None` where passwords are not kept.
    password: Option<Secret>,
    /// When a server has let it in last.
    tried: Instant,
    /// When it is tried again.
    stands_until: Instant,
    /// When somebody has come with it last.
    used: Instant,
}

#[derive(Clone)]
struct Number {
    id: u64,
    /// `None`: there was no key for it, and the number is not found again.
    password: Option<hmac::Tag>,
}

impl Default for PassThrough {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            trials: Semaphore::new(TRIALS_MAX),
            eviction_budget: EvictionBudget::default(),
            results: Default::default(),
            key: hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok(),
        }
    }
}

impl Cluster {
    /// Whether a login of an account that is not listed is decided by a login on a server.
    #[must_use]
    pub fn passes_accounts(&self) -> bool {
        self.config().accounts.from == AccountsFrom::PassThrough
    }

    /// The password that an account of that name was let in with last. It need not be right any more: ask
    /// [`pass`](Self::pass).
    #[must_use]
    pub fn passed(&self, name: &[u8]) -> Option<Secret> {
        let known = lock(&self.accounts.pass_through.known);
        known.get(name).and_then(|known| known.password.clone())
    }

    /// Whether a server lets an account in with this password: by what was found out within `interval`, or by
    /// a login on the primary (or, where there is none, on a replica). `None`: it does not. Else the number
    /// of this account and password: never 0, and never another's.
    ///
    /// # Errors
    /// No server could be asked, and none for long; or it refuses the account for another reason than its
    /// password.
    pub async fn pass(self: &Arc<Self>, name: &str, password: &Secret) -> Result<Option<u64>, LeaseError> {
        let passed = &self.accounts.pass_through;
        if let Some(id) = passed.fresh(name, password, &self.config().accounts) {
            return Ok(Some(id));
        }
        let config = self.config();
        let options = &config.accounts;
        let is_known = passed.knows(name, password);
        // A password that is known does not wait for those of strangers.
        let turn = match is_known {
            true => timeout(WAIT_OF_KNOWN, passed.trials.acquire()).await,
            false => Ok(passed.trials.acquire().await),
        };
        if turn.is_err()
            && let Some(id) = passed.without_verdict(name, password, options)
        {
            return Ok(Some(id));
        }
        // Of many who come at the same time one tries.
        if let Some(id) = passed.fresh(name, password, options) {
            return Ok(Some(id));
        }
        let server = match timeout(WAIT_OF_KNOWN, watch::server(self)).await {
            Ok(server) => server,
            Err(_) => match passed.without_verdict(name, password, options) {
                Some(id) => return Ok(Some(id)),
                None => watch::server(self).await,
            },
        };
        let (tried, trial) = self.try_password(&server, name, password, is_known).await;
        if matches!(trial, Trial::Denied | Trial::Refused) {
            passed.forget(name.as_bytes(), |known| passed.is_of(&known.number, password));
        }
        match tried {
            Ok(()) => Ok(Some(passed.note(name, password, options))),
            Err(_) if trial == Trial::Denied => Ok(None),
            Err(error) if trial == Trial::NoVerdict => {
                let known = passed.without_verdict(name, password, options);
                known.map(Some).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a server lets an account in with this password, by a login of which nothing is remembered. As
    /// many are made at the same time as by [`pass`](Self::pass), and cost as little.
    ///
    /// # Errors
    /// No server could be asked, or it was too busy to say, or the account is of no use here.
    pub async fn admits(self: &Arc<Self>, name: &str, password: &Secret) -> Result<bool, LeaseError> {
        let _turn = self.accounts.pass_through.trials.acquire().await;
        let server = watch::server(self).await;
        match self.try_password(&server, name, password, false).await {
            (Ok(()), _) => Ok(true),
            (Err(LeaseError::Refused { .. }), Trial::Denied | Trial::Refused) => Ok(false),
            (Err(error), _) => Err(error),
        }
    }

    async fn try_password(
        self: &Arc<Self>,
        server: &Arc<Server>,
        name: &str,
        password: &Secret,
        is_known: bool,
    ) -> (Result<(), LeaseError>, Trial) {
        let passed = &self.accounts.pass_through;
        let queue_timeout = self.config().queue_timeout;
        // Nobody waits long for room while others wait to be tried at all.
        let patience = match is_known || passed.trials.available_permits() == 0 {
            true => queue_timeout.min(WAIT_OF_KNOWN),
            false => queue_timeout,
        };
        let trying = Trying {
            cluster: self,
            server,
            // Who is known is no stranger, and brings nothing to try out.
            eviction_budget: (!is_known).then_some(&passed.eviction_budget),
        };
        let mut tried = try_login(&trying, name, password, patience).await;
        if tried.is_ok() {
            tried = self.prove(server, name).await;
        }
        let trial = Trial::of(&tried);
        passed.results[trial as usize].fetch_add(1, Ordering::Relaxed);
        (tried, trial)
    }

    /// The server has let the account in: whether it would have done so with any password.
    async fn prove(&self, server: &Server, name: &str) -> Result<(), LeaseError> {
        match self.looks_at_password(server, name.as_bytes()).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(LeaseError::Refused {
                server: server.name().to_owned(),
                packet: ErrPacket {
                    code: DENIALS[0],
                    sql_state: *b"28000",
                    message: format!("Access denied for user '{name}': the server lets in any password")
                        .into(),
                },
            }),
            Err(reason) => Err(self.connect_failed(
                server,
                format!("it is not known whether the server looks at the password: {reason}"),
            )),
        }
    }

    /// A server has refused an account that was let in before.
    pub fn forget_passed(&self, name: &str, id: u64) {
        self.accounts
            .pass_through
            .forget(name.as_bytes(), |known| known.number.id == id);
    }
}

/// Whether the server could not be asked, or was too busy to say.
fn is_no_verdict(error: &LeaseError) -> bool {
    match error {
        LeaseError::Refused { packet, .. } => NO_VERDICTS.contains(&packet.code),
        LeaseError::Unusable { .. } => false,
        _ => true,
    }
}

impl PassThrough {
    /// Accounts of which a password is known.
    pub(crate) fn count(&self) -> usize {
        lock(&self.known).len()
    }

    /// How many trials have come to this end.
    pub(crate) fn results(&self, trial: Trial) -> u64 {
        self.results[trial as usize].load(Ordering::Relaxed)
    }

    fn is_of(&self, number: &Number, password: &Secret) -> bool {
        let (Some(key), Some(tag)) = (&self.key, &number.password) else {
            return false;
        };
        hmac::verify(key, password.reveal().as_bytes(), tag.as_ref()).is_ok()
    }

    fn number(&self, password: &Secret) -> Number {
        let sign = |key| hmac::sign(key, password.reveal().as_bytes());
        Number {
            id: next_id(),
            password: self.key.as_ref().map(sign),
        }
    }

    /// The account's number, where the password is the one that a server has let in a short while ago.
    fn fresh(&self, name: &str, password: &Secret, options: &config::Accounts) -> Option<u64> {
        let mut all = lock(&self.known);
        let known = all.get_mut(name.as_bytes())?;
        let now = now();
        let is_fresh = options.keep_passwords && now < known.stands_until;
        (is_fresh && self.is_of(&known.number, password)).then(|| {
            known.used = now;
            known.number.id
        })
    }

    /// Whether the password is the one that a server has let in last.
    fn knows(&self, name: &str, password: &Secret) -> bool {
        let all = lock(&self.known);
        let known = all.get(name.as_bytes());
        known.is_some_and(|known| self.is_of(&known.number, password))
    }

    /// The account's number, where the password is the one that a server has let in last, and that was not
    /// too long ago.
    fn without_verdict(&self, name: &str, password: &Secret, options: &config::Accounts) -> Option<u64> {
        let mut all = lock(&self.known);
        let known = all.get_mut(name.as_bytes())?;
        let (now, last) = (now(), known.tried + PATIENCE * options.interval);
        (now < last && self.is_of(&known.number, password)).then(|| {
            known.used = now;
            known.stands_until = last.min(now + RETRY);
            known.number.id
        })
    }

    /// A server has let this account in just now.
    fn note(&self, name: &str, password: &Secret, options: &config::Accounts) -> u64 {
        let now = now();
        let mut all = lock(&self.known);
        forget_old(&mut all, options.forget_after, now);
        let (number, former) = match all.remove(name.as_bytes()) {
            None => (self.number(password), None),
            Some(known) if self.is_of(&known.number, password) => (known.number, known.former),
            Some(Known { number, former, .. }) => {
                let back = former.filter(|former| self.is_of(former, password));
                (back.unwrap_or_else(|| self.number(password)), Some(number))
            }
        };
        let id = number.id;
        let known = Known {
            number,
            former,
            password: options.keep_passwords.then(|| password.clone()),
            tried: now,
            stands_until: now + options.interval,
            used: now,
        };
        all.insert(name.as_bytes().into(), known);
        while all.len() > options.passwords_max as usize && forget_oldest(&mut all) {}
        id
    }

    fn forget(&self, name: &[u8], is_meant: impl Fn(&Known) -> bool) {
        let mut all = lock(&self.known);
        if all.get(name).is_some_and(is_meant) {
            all.remove(name);
        }
    }

    /// Drops what nobody has used for too long, or what is not to be kept any more.
    pub(super) fn clean(&self, options: &config::Accounts) {
        let mut all = lock(&self.known);
        if options.from != AccountsFrom::PassThrough {
            all.clear();
        }
        forget_old(&mut all, options.forget_after, now());
        if !options.keep_passwords {
            all.values_mut().for_each(|known| known.password = None);
        }
    }
}

fn forget_old(all: &mut HashMap<Box<[u8]>, Known>, after: Duration, now: Instant) {
    all.retain(|_, known| now.saturating_duration_since(known.used) < after);
}

fn forget_oldest(all: &mut HashMap<Box<[u8]>, Known>) -> bool {
    let oldest = all.iter().min_by_key(|(_, known)| known.used);
    let name = oldest.map(|(name, _)| name.clone());
    name.is_some_and(|name| all.remove(&name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> config::Accounts {
        config::Accounts {
            from: AccountsFrom::PassThrough,
            passwords_max: 2,
            ..config::Accounts::default()
        }
    }

    fn secret(text: &str) -> Secret {
        Secret::new(text)
    }

    #[test]
    fn a_password_that_was_let_in_is_known_and_no_other() {
        let (passed, options) = (PassThrough::default(), options());
        assert_eq!(passed.fresh("app", &secret("hunter2"), &options), None);
        let id = passed.note("app", &secret("hunter2"), &options);
        assert_eq!(passed.fresh("app", &secret("hunter2"), &options), Some(id));
        assert_eq!(passed.fresh("app", &secret("hunter3"), &options), None);
        assert_eq!(passed.fresh("other", &secret("hunter2"), &options), None);
        // The same account as long as its password is the same.
        assert_eq!(passed.note("app", &secret("hunter2"), &options), id);
        let changed = passed.note("app", &secret("hunter3"), &options);
        assert_ne!(changed, id);
        assert_eq!(passed.fresh("app", &secret("hunter2"), &options), None);
        // Late news about the one before.
        passed.forget(b"app", |known| known.number.id == id);
        assert!(passed.fresh("app", &secret("hunter3"), &options).is_some());
        passed.forget(b"app", |known| known.number.id == changed);
        assert_eq!(passed.fresh("app", &secret("hunter3"), &options), None);
    }

    #[test]
    fn two_passwords_in_turn_have_two_numbers() {
        let (passed, options) = (PassThrough::default(), options());
        let ids: Vec<u64> = ["one", "two", "one", "two"]
            .iter()
            .map(|password| passed.note("app", &secret(password), &options))
            .collect();
        assert_eq!(ids[..2], ids[2..]);
        assert_ne!(ids[0], ids[1]);
    }

    #[test]
    fn what_is_old_is_tried_again_and_what_is_unused_goes() {
        let passed = PassThrough::default();
        let always_old = config::Accounts {
            interval: Duration::ZERO,
            ..options()
        };
        let id = passed.note("app", &secret("hunter2"), &always_old);
        assert_eq!(passed.fresh("app", &secret("hunter2"), &always_old), None);
        assert_eq!(passed.note("app", &secret("hunter2"), &always_old), id);
        passed.clean(&options());
        assert_eq!(lock(&passed.known).len(), 1);
        passed.clean(&config::Accounts {
            forget_after: Duration::ZERO,
            ..options()
        });
        assert_eq!(lock(&passed.known).len(), 0);
    }

    #[test]
    fn a_password_stands_for_a_while_where_no_server_says_anything() {
        let (passed, options) = (PassThrough::default(), options());
        let id = passed.note("app", &secret("hunter2"), &options);
        let stands = |password| passed.without_verdict("app", &secret(password), &options);
        assert_eq!((stands("hunter2"), stands("hunter3")), (Some(id), None));
        let none = config::Accounts {
            interval: Duration::ZERO,
            ..options.clone()
        };
        assert_eq!(passed.without_verdict("app", &secret("hunter2"), &none), None);
        let refused = |code| {
            is_no_verdict(&LeaseError::Refused {
                server: "db1".into(),
                packet: ErrPacket {
                    code,
                    sql_state: *b"HY000",
                    message: b"no".to_vec(),
                },
            })
        };
        for (code, is_none) in [
            (1040, true),
            (1226, true),
            (1045, false),
            (3118, false),
            (1130, false),
        ] {
            assert_eq!(refused(code), is_none, "{code}");
        }
    }

    #[test]
    fn they_are_no_more_than_they_may_be() {
        let (passed, options) = (PassThrough::default(), options());
        for name in ["a", "b", "c"] {
            passed.note(name, &secret("hunter2"), &options);
        }
        assert_eq!(lock(&passed.known).len(), 2);
        assert!(passed.fresh("c", &secret("hunter2"), &options).is_some());
    }

    #[test]
    fn where_passwords_are_not_kept_numbers_are() {
        let passed = PassThrough::default();
        let none_kept = config::Accounts {
            keep_passwords: false,
            ..options()
        };
        let id = passed.note("app", &secret("hunter2"), &none_kept);
        assert!(lock(&passed.known).values().all(|known| known.password.is_none()));
        assert_eq!(passed.fresh("app", &secret("hunter2"), &none_kept), None);
        assert_eq!(passed.note("app", &secret("hunter2"), &none_kept), id);
        passed.note("app", &secret("hunter2"), &options());
        passed.clean(&none_kept);
        assert!(lock(&passed.known).values().all(|known| known.password.is_none()));
    }
}
