//! Accounts that nobody has listed: whether a password is right is asked by a login on a server, and its word is taken for a
//! while.
//!
//! What is kept is the password of accounts that a server has let in, and nothing of those that it has refused. It is tried
//! again when it is used after `interval`, and goes when a server refuses it, when nobody has used it for `forget_after`, and when
//! there are too many others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use config::{AccountsFrom, Secret, TlsMode};
use mysql_wire::{Command, ErrPacket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{next_id, watch};
use crate::cluster::Cluster;
use crate::connect::{self, For};
use crate::error::{ConnectFailure, LeaseError, Seconds};
use crate::greeting::{GreetingError, read_greeting};
use crate::login::{self, Account, LoginError, Tls};
use crate::packets::Packets;
use crate::server::{Server, now};

/// Logins that are tried on servers at the same time; further ones wait, no longer than a login may take.
const TRIALS_MAX: usize = 8;

/// "Access denied", with a password and without: about this password, and no more.
const DENIALS: [u16; 2] = [1045, 1698];

/// An account that a server has let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedAccount {
    id: u64,
    password: Secret,
}

/// What a cluster keeps of such accounts.
pub(crate) struct Passed {
    known: Mutex<HashMap<Box<[u8]>, Known>>,
    trials: Semaphore,
}

struct Known {
    account: PassedAccount,
    /// When a server has let it in last.
    tried: Instant,
    /// When somebody has come with it last.
    used: Instant,
}

impl PassedAccount {
    /// Its number, never 0 and never another's: the same for as long as the password stays the same and is known.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The password that it was let in with.
    #[must_use]
    pub fn password(&self) -> &Secret {
        &self.password
    }

    fn has(&self, password: &Secret) -> bool {
        verify_slices_are_equal(self.password.reveal().as_bytes(), password.reveal().as_bytes()).is_ok()
    }
}

impl Default for Passed {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            trials: Semaphore::new(TRIALS_MAX),
        }
    }
}

impl Cluster {
    /// Whether a login of an account that is not listed is decided by a login on a server.
    #[must_use]
    pub fn passes_accounts(&self) -> bool {
        self.config().accounts.from == AccountsFrom::PassThrough
    }

    /// What is known of the account of that name. Its password was right at some time, and need not be any more: ask
    /// [`pass`](Self::pass).
    #[must_use]
    pub fn passed(&self, name: &[u8]) -> Option<PassedAccount> {
        self.accounts
            .passed
            .known()
            .get(name)
            .map(|known| known.account.clone())
    }

    /// Whether a server lets an account in with this password: by what was found out within `interval`, or by a login on the
    /// primary (or, where there is none, on a replica). `None`: it does not.
    ///
    /// # Errors
    /// No server could be asked, or it refuses the account for another reason than its password.
    pub async fn pass(
        self: &Arc<Self>,
        name: &str,
        password: &Secret,
    ) -> Result<Option<PassedAccount>, LeaseError> {
        let passed = &self.accounts.passed;
        if let Some(account) = passed.fresh(name, password, &self.config().accounts) {
            return Ok(Some(account));
        }
        // It is never closed.
        let _permit = passed.trials.acquire().await;
        let config = self.config();
        // Of many who come at the same time one tries.
        if let Some(account) = passed.fresh(name, password, &config.accounts) {
            return Ok(Some(account));
        }
        let server = watch::server(self).await;
        let tried = try_login(self, &config, &server, name, password).await;
        match tried {
            Ok(()) => Ok(Some(passed.note(name, password, &config.accounts))),
            Err(LeaseError::Refused { packet, server }) => {
                if packet.code == ER_CON_COUNT_ERROR {
                    return Err(LeaseError::Refused { packet, server });
                }
                passed.forget(name.as_bytes(), |account| account.has(password));
                match DENIALS.contains(&packet.code) {
                    true => Ok(None),
                    false => Err(LeaseError::Refused { packet, server }),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// A server has refused an account that was let in before.
    pub fn forget_passed(&self, name: &str, id: u64) {
        self.accounts
            .passed
            .forget(name.as_bytes(), |account| account.id == id);
    }
}

/// "Too many connections": nothing about the account.
const ER_CON_COUNT_ERROR: u16 = 1040;

impl Passed {
    fn known(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The account, where the password is the one that a server has let in a short while ago.
    fn fresh(&self, name: &str, password: &Secret, options: &config::Accounts) -> Option<PassedAccount> {
        let mut all = self.known();
        let known = all.get_mut(name.as_bytes())?;
        let now = now();
        let is_fresh = now.saturating_duration_since(known.tried) < options.interval;
        (is_fresh && known.account.has(password)).then(|| {
            known.used = now;
            known.account.clone()
        })
    }

    /// A server has let this account in just now.
    fn note(&self, name: &str, password: &Secret, options: &config::Accounts) -> PassedAccount {
        let now = now();
        let mut all = self.known();
        forget_old(&mut all, options.forget_after, now);
        let before = all.get(name.as_bytes()).map(|known| &known.account);
        let account = match before.filter(|account| account.has(password)) {
            Some(account) => account.clone(),
            None => PassedAccount {
                id: next_id(),
                password: password.clone(),
            },
        };
        if options.keep_passwords {
            let known = Known {
                account: account.clone(),
                tried: now,
                used: now,
            };
            all.insert(name.as_bytes().into(), known);
            while all.len() > options.passwords_max as usize && forget_oldest(&mut all) {}
        } else {
            all.clear();
        }
        account
    }

    fn forget(&self, name: &[u8], is_meant: impl Fn(&PassedAccount) -> bool) {
        let mut all = self.known();
        if all.get(name).is_some_and(|known| is_meant(&known.account)) {
            all.remove(name);
        }
    }

    /// Drops what nobody has used for too long, or what is not to be kept any more.
    pub(super) fn clean(&self, options: &config::Accounts) {
        let mut all = self.known();
        match options.from {
            AccountsFrom::PassThrough if options.keep_passwords => {
                forget_old(&mut all, options.forget_after, now());
            }
            _ => all.clear(),
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

/// Logs in on a server, and leaves again.
async fn try_login(
    cluster: &Cluster,
    config: &config::Cluster,
    server: &Server,
    name: &str,
    password: &Secret,
) -> Result<(), LeaseError> {
    let limit = config.login_timeout;
    let failed = |reason: String| LeaseError::ConnectFailed {
        cluster: cluster.name().to_owned(),
        failures: vec![ConnectFailure {
            id: server.id(),
            server: server.name().to_owned(),
            reason,
        }],
    };
    let refused = |packet: ErrPacket| LeaseError::Refused {
        server: server.name().to_owned(),
        packet,
    };
    let connected = connect::connect(server, config, For::Gateway, config.connect_timeout).await;
    let mut stream = connected.map_err(|error| failed(error.reason))?;
    let greeting = match read_greeting(&mut stream, limit).await {
        Ok((greeting, _)) => greeting,
        Err(GreetingError::Refused(packet)) => return Err(refused(packet)),
        Err(error) => return Err(failed(error.to_string())),
    };
    cluster.note_greeting(server, &greeting);
    let connector = cluster.tls();
    let tls = connector.as_deref().map(|connector| Tls {
        connector,
        server_name: server.tls_name(),
        required: config.tls.mode == TlsMode::Required,
    });
    let account = Account {
        user: name.as_bytes(),
        password: password.reveal().as_bytes(),
    };
    match timeout(limit, login::login(stream, &greeting, account, tls)).await {
        Ok(Ok(mut logged_in)) => {
            // The verdict is there; how the connection ends is the server's affair.
            let mut quit = Packets::new(&mut logged_in.stream, 0);
            let _ = timeout(limit, quit.send_command(&[Command::QUIT.0])).await;
            Ok(())
        }
        Ok(Err(LoginError::Refused(packet))) => Err(refused(packet)),
        Ok(Err(LoginError::Io(error))) => Err(failed(error.to_string())),
        Ok(Err(error)) => Err(LeaseError::Unusable {
            server: server.name().to_owned(),
            reason: format!("login of user {name}: {error}"),
        }),
        Err(_) => Err(failed(format!("login not finished within {}", Seconds(limit)))),
    }
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
        let (passed, options) = (Passed::default(), options());
        assert_eq!(passed.fresh("app", &secret("hunter2"), &options), None);
        let account = passed.note("app", &secret("hunter2"), &options);
        assert_eq!(
            passed.fresh("app", &secret("hunter2"), &options),
            Some(account.clone())
        );
        assert_eq!(passed.fresh("app", &secret("hunter3"), &options), None);
        assert_eq!(passed.fresh("other", &secret("hunter2"), &options), None);
        // The same account as long as its password is the same.
        assert_eq!(
            passed.note("app", &secret("hunter2"), &options).id(),
            account.id()
        );
        let changed = passed.note("app", &secret("hunter3"), &options);
        assert_ne!(changed.id(), account.id());
        assert_eq!(passed.fresh("app", &secret("hunter2"), &options), None);
        // Late news about the one before.
        passed.forget(b"app", |known| known.id == account.id());
        assert!(passed.fresh("app", &secret("hunter3"), &options).is_some());
        passed.forget(b"app", |known| known.id == changed.id());
        assert_eq!(passed.fresh("app", &secret("hunter3"), &options), None);
        assert!(!format!("{changed:?}").contains("hunter"));
    }

    #[test]
    fn what_is_old_is_tried_again_and_what_is_unused_goes() {
        let passed = Passed::default();
        let always_old = config::Accounts {
            interval: Duration::ZERO,
            ..options()
        };
        let account = passed.note("app", &secret("hunter2"), &always_old);
        assert_eq!(passed.fresh("app", &secret("hunter2"), &always_old), None);
        assert_eq!(
            passed.note("app", &secret("hunter2"), &always_old).id(),
            account.id()
        );
        passed.clean(&options());
        assert_eq!(passed.known().len(), 1);
        passed.clean(&config::Accounts {
            forget_after: Duration::ZERO,
            ..options()
        });
        assert_eq!(passed.known().len(), 0);
    }

    #[test]
    fn they_are_no_more_than_they_may_be() {
        let (passed, options) = (Passed::default(), options());
        for name in ["a", "b", "c"] {
            passed.note(name, &secret("hunter2"), &options);
        }
        assert_eq!(passed.known().len(), 2);
        assert!(passed.fresh("c", &secret("hunter2"), &options).is_some());
        let none_kept = config::Accounts {
            keep_passwords: false,
            ..options
        };
        passed.note("d", &secret("hunter2"), &none_kept);
        assert_eq!(passed.known().len(), 0);
    }
}
