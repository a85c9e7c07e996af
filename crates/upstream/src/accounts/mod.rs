//! The accounts that the servers themselves have, for a gateway that checks passwords.
//!
//! One task a cluster reads them from the primary (`watch`) and publishes them as a whole. Of an account is
//! kept what its server keeps, its hash (`entry` says of which plugins that is of use); the password, too,
//! where a client has sent it in full and it was right, if the configuration wants that.
//!
//! A name may have several accounts, one for each pattern of hosts, with passwords of their own. Which of
//! them a server takes the gateway for is the server's affair: here are the secrets, at most [`SECRETS_MAX`]
//! a name, and each has a number ([`AccountSecret::id`]) by which connections of one account are kept apart
//! from those of another.
//!
//! Or nothing is read, and whoever nobody knows is tried (`pass_through`).

mod entry;
mod eviction_budget;
mod pass_through;
mod proofs;
mod trial_login;
mod watch;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use config::{AccountsFrom, Secret};
use mysql_wire::auth::{self, PublicKey, SlowHash};
use tokio::sync::{Notify, watch as latest};

use crate::cluster::Cluster;
use crate::lock::lock;
use crate::server::now;
use entry::{Entry, Method};
use pass_through::PassThrough;
use proofs::Proofs;

pub use pass_through::DENIALS;
pub(crate) use pass_through::Trial;
pub(crate) use watch::{try_read, watch};

/// Secrets of one name; the accounts of further ones cannot log in.
pub const SECRETS_MAX: usize = 2;

/// Refusals of a login that say nothing of the account: too many connections, of all or of this user; or the
/// server is going down, or takes none from here.
pub const NO_VERDICTS: [u16; 6] = [1040, 1053, 1129, 1203, 1226, 3032];

/// Longest wait of a login for accounts to be read.
const RENEWAL_LIMIT: Duration = Duration::from_secs(5);

/// All accounts that were read at one moment.
#[derive(Debug, Default)]
pub struct ServerAccounts {
    by_name: HashMap<Box<[u8]>, ServerAccount>,
    /// Those of which every secret is of `mysql_native_password`.
    natives: usize,
    /// Of most slow hashes.
    usual_rounds: u32,
}

/// What is known of the accounts of one name.
#[derive(Debug)]
pub enum ServerAccount {
    /// One secret, or two.
    Secrets(Vec<Arc<AccountSecret>>),
    /// It is of no use here. Why not, for people.
    Unusable(String),
}

/// What a server has stored of a password.
pub struct AccountSecret {
    id: u64,
    stored: StoredSecret,
    kept: OnceLock<Secret>,
}

/// The hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoredSecret {
    /// `SHA1(SHA1(password))`, of `mysql_native_password`.
    Native([u8; 20]),
    /// Of `caching_sha2_password` and `sha256_password`.
    Slow(SlowHash),
    /// Of MariaDB's `ed25519`.
    PublicKey(PublicKey),
}

impl StoredSecret {
    /// Whether this is the password. To be asked where nobody waits: see [`SlowHash::rounds`].
    #[must_use]
    pub fn verify(&self, password: &[u8]) -> bool {
        match self {
            Self::Native(stage2) => auth::native_stage2(password) == *stage2,
            Self::Slow(hash) => hash.verify(password),
            Self::PublicKey(key) => key.verify(password),
        }
    }
}

impl ServerAccounts {
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&ServerAccount> {
        self.by_name.get(name)
    }

    /// Names there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Names all of whose secrets are of `mysql_native_password`.
    #[must_use]
    pub fn natives(&self) -> usize {
        self.natives
    }

    /// What the check of a password costs with most accounts that have a slow hash: [`SlowHash::rounds`].
    #[must_use]
    pub fn usual_rounds(&self) -> u32 {
        self.usual_rounds
    }

    /// A table of entries in the order in which they are preferred. Secrets that were there before stay what
    /// they are; those that are closed have a new number each time, so that it is the servers who refuse
    /// them, and no connection that was opened before lets anybody in.
    fn new(mut entries: Vec<Entry>, earlier: Option<&Self>) -> Self {
        // One hash may be that of an account that is closed and of one that is not.
        entries.sort_by_key(|entry| entry.is_closed);
        let mut by_name: HashMap<Box<[u8]>, ServerAccount> = HashMap::new();
        let mut rounds: HashMap<u32, usize> = HashMap::new();
        for Entry {
            name,
            method,
            is_closed,
        } in entries
        {
            let known = by_name.entry(name);
            let before = earlier
                .filter(|_| !is_closed)
                .and_then(|table| table.get(known.key()));
            let account = known.or_insert_with(|| ServerAccount::Secrets(Vec::new()));
            match (method, account) {
                (Method::Secret(stored), ServerAccount::Secrets(secrets)) => {
                    let is_new = secrets.iter().all(|secret| secret.stored != stored);
                    if is_new && secrets.len() < SECRETS_MAX {
                        if let StoredSecret::Slow(hash) = &stored {
                            *rounds.entry(hash.rounds()).or_default() += 1;
                        }
                        secrets.push(
                            before
                                .and_then(|before| before.find(&stored))
                                .unwrap_or_else(|| AccountSecret::new(stored)),
                        );
                    }
                }
                (Method::Secret(stored), account @ ServerAccount::Unusable(_)) => {
                    *account = ServerAccount::Secrets(vec![AccountSecret::new(stored)]);
                }
                (Method::Unusable(reason), account) => {
                    if account.secrets().is_empty() {
                        *account = ServerAccount::Unusable(reason);
                    }
                }
            }
        }
        let usual = rounds.into_iter().max_by_key(|(_, count)| *count);
        Self {
            natives: by_name.values().filter(|account| account.is_native()).count(),
            by_name,
            usual_rounds: usual.map_or(0, |(rounds, _)| rounds),
        }
    }
}

/// Names and what is stored of their passwords, the preferred ones first.
impl<N: Into<Box<[u8]>>> FromIterator<(N, StoredSecret)> for ServerAccounts {
    fn from_iter<I: IntoIterator<Item = (N, StoredSecret)>>(accounts: I) -> Self {
        let entry = |(name, stored): (N, StoredSecret)| Entry {
            name: name.into(),
            method: Method::Secret(stored),
            is_closed: false,
        };
        Self::new(accounts.into_iter().map(entry).collect(), None)
    }
}

impl ServerAccount {
    /// Its secrets; none where it is of no use.
    #[must_use]
    pub fn secrets(&self) -> &[Arc<AccountSecret>] {
        match self {
            Self::Secrets(secrets) => secrets,
            Self::Unusable(_) => &[],
        }
    }

    fn find(&self, stored: &StoredSecret) -> Option<Arc<AccountSecret>> {
        let same = self.secrets().iter().find(|secret| secret.stored == *stored);
        same.cloned()
    }

    fn is_native(&self) -> bool {
        let native = |secret: &Arc<AccountSecret>| matches!(secret.stored, StoredSecret::Native(_));
        !self.secrets().is_empty() && self.secrets().iter().all(native)
    }
}

impl AccountSecret {
    /// One that was not seen before.
    #[must_use]
    pub fn new(stored: StoredSecret) -> Arc<Self> {
        Self::numbered(next_id(), stored)
    }

    /// One of the gateway's own configuration, where all secrets of a name are those of one account.
    #[must_use]
    pub fn configured(stored: StoredSecret) -> Arc<Self> {
        Self::numbered(0, stored)
    }

    fn numbered(id: u64, stored: StoredSecret) -> Arc<Self> {
        Arc::new(Self {
            id,
            stored,
            kept: OnceLock::new(),
        })
    }

    /// Its number, never another's: the same for as long as name and hash stay the same. 0 is one of the
    /// [configuration](Self::configured).
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether it is one of the gateway's own configuration.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.id == 0
    }

    /// The hash.
    #[must_use]
    pub fn stored(&self) -> &StoredSecret {
        &self.stored
    }

    /// The password, where it is known.
    #[must_use]
    pub fn kept(&self) -> Option<&Secret> {
        self.kept.get()
    }

    /// The same one, of which no password is known.
    #[must_use]
    pub fn without_password(&self) -> Arc<Self> {
        Self::numbered(self.id, self.stored.clone())
    }

    /// Keeps the password, which must be the right one, until the account is changed or dropped.
    pub fn keep(&self, password: &Secret) {
        // Whoever was first has kept the same.
        let _ = self.kept.set(password.clone());
    }
}

/// A number that no account has had, also in the process before this one: sessions that follow an upgrade
/// bring the numbers of theirs.
fn next_id() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(0)));
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl fmt::Debug for AccountSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountSecret")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// What a cluster keeps of its servers' accounts.
#[derive(Default)]
pub(crate) struct Accounts {
    /// `None` until they have been read for the first time.
    known: ArcSwapOption<ServerAccounts>,
    /// They should be read at once.
    wanted: Notify,
    /// Reads that have begun.
    begun: AtomicU64,
    /// Of those, how many have ended; 0 is none. They are one behind the other.
    ended: latest::Sender<u64>,
    /// Accounts that are not read but tried.
    pass_through: PassThrough,
    /// Whose logins prove a password.
    proofs: Proofs,
    /// When a change of them was seen last.
    changed: Mutex<Option<Instant>>,
}

impl Accounts {
    pub(crate) fn pass_through(&self) -> &PassThrough {
        &self.pass_through
    }
}

impl Cluster {
    /// The accounts that its servers have, as they were read last. `None` where the configuration does not
    /// want them.
    #[must_use]
    pub fn accounts(&self) -> Option<Arc<ServerAccounts>> {
        let wanted = self.config().accounts.from == AccountsFrom::Servers;
        wanted.then(|| self.accounts.known.load_full().unwrap_or_default())
    }

    /// Whether they have been read yet.
    #[must_use]
    pub fn has_read_accounts(&self) -> bool {
        self.accounts.known.load().is_some()
    }

    /// Has the accounts read, by a read that begins after this call: something did not fit. Waits for its
    /// end, and not for ever. However many ask, there is one read at a time and one a second.
    pub async fn renew_accounts(&self) {
        let Accounts { begun, ended, .. } = &self.accounts;
        let wanted = begun.load(Ordering::SeqCst) + 1;
        self.want_accounts();
        let mut ended = ended.subscribe();
        let renewed = ended.wait_for(|ended| *ended >= wanted);
        // Whether it was in time or not, what is known is what is known.
        let _ = tokio::time::timeout(RENEWAL_LIMIT, renewed).await;
    }

    /// The same without waiting for it.
    pub fn want_accounts(&self) {
        self.accounts.wanted.notify_one();
    }

    /// Somebody has seen that accounts or their rights have changed: sessions that begin from now on use no
    /// connection that was logged in before, and what is known of the accounts is read anew.
    pub fn accounts_changed(&self) {
        self.note_changed_accounts();
        self.want_accounts();
    }

    pub(crate) fn note_changed_accounts(&self) {
        *lock(&self.accounts.changed) = Some(now());
        self.forget_proofs();
    }

    /// The moment from which on a server must have judged an account, for its word to count for a session
    /// that begins now: [`accounts.interval`](config::Accounts::interval) ago, or the last change of
    /// accounts.
    #[must_use]
    pub fn oldest_login(&self) -> Instant {
        let now = now();
        let by_age = now.checked_sub(self.config().accounts.interval).unwrap_or(now);
        lock(&self.accounts.changed).map_or(by_age, |changed| changed.max(by_age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(name: &str, byte: u8) -> Entry {
        Entry {
            name: name.as_bytes().into(),
            method: Method::Secret(StoredSecret::Native([byte; 20])),
            is_closed: false,
        }
    }

    fn slow(name: &str, rounds: u32) -> Entry {
        Entry {
            name: name.as_bytes().into(),
            method: Method::Secret(StoredSecret::Slow(SlowHash::of_nobody(rounds))),
            is_closed: false,
        }
    }

    fn unusable(name: &str) -> Entry {
        Entry {
            name: name.as_bytes().into(),
            method: Method::Unusable("a reason".to_owned()),
            is_closed: false,
        }
    }

    fn count(table: &ServerAccounts, name: &str) -> usize {
        table.get(name.as_bytes()).unwrap().secrets().len()
    }

    #[test]
    fn a_name_has_its_first_two_secrets() {
        let entries = vec![
            native("app", 1),
            native("app", 1),
            native("app", 2),
            native("app", 3),
            slow("other", 10_000),
            slow("another", 10_000),
            slow("third", 5000),
        ];
        let table = ServerAccounts::new(entries, None);
        let stored: Vec<_> = table
            .get(b"app")
            .unwrap()
            .secrets()
            .iter()
            .map(|secret| secret.stored())
            .collect();
        assert_eq!(
            stored,
            [&StoredSecret::Native([1; 20]), &StoredSecret::Native([2; 20])]
        );
        assert_eq!(
            (table.len(), table.natives(), table.usual_rounds()),
            (4, 1, 10_000)
        );
        assert!(table.get(b"nobody").is_none());
    }

    #[test]
    fn one_account_that_can_log_in_is_enough() {
        let entries = vec![
            unusable("before"),
            native("before", 1),
            slow("behind", 5000),
            unusable("behind"),
            unusable("never"),
        ];
        let table = ServerAccounts::new(entries, None);
        assert_eq!(
            ["before", "behind", "never"].map(|name| count(&table, name)),
            [1, 1, 0]
        );
        assert!(matches!(table.get(b"never"), Some(ServerAccount::Unusable(reason)) if reason == "a reason"));
        assert_eq!(table.natives(), 1);
    }

    #[test]
    fn a_kept_password_goes_with_its_hash() {
        let only = |table: &ServerAccounts| Arc::clone(&table.get(b"app").unwrap().secrets()[0]);
        let first = ServerAccounts::new(vec![slow("app", 5000)], None);
        only(&first).keep(&Secret::new("hunter2"));
        let same = ServerAccounts::new(vec![native("new", 1), slow("app", 5000)], Some(&first));
        assert_eq!(only(&same).kept(), Some(&Secret::new("hunter2")));
        assert_eq!(only(&same).id(), only(&first).id());
        let changed = ServerAccounts::new(vec![slow("app", 6000)], Some(&same));
        assert_eq!(only(&changed).kept(), None);
        assert_ne!(only(&changed).id(), only(&same).id());
        // Another account with the same hash is another account.
        let renamed = ServerAccounts::new(vec![slow("app2", 5000)], Some(&same));
        assert_eq!(renamed.get(b"app2").unwrap().secrets()[0].kept(), None);
        assert!(!format!("{same:?}").contains("hunter2"));
    }
}
