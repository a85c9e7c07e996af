//! The accounts that the gateway checks itself, in mode `split`: the configured ones, and what is known of
//! those of servers.
//!
//! [`Users`] is an immutable table made of a configuration; a reload makes another one, in which an account
//! of the same name goes on counting its sessions where the earlier one was. Sessions keep the account they
//! logged in with.
//!
//! An account has one or two secrets, each a password or only its hash, and every check looks at two. The
//! time of an answer therefore does not tell whether an account has one or two, or whether there is an
//! account of that name at all ([`Users::applicant`]). This file does not check slow hashes. The stand-in for
//! an account that does not exist has a slow hash as often as accounts have one, and always where servers are
//! asked for their accounts.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use config::Secret;
use mysql_wire::auth::{self, PublicKey, SlowHash};
use upstream::{AccountSecret, Credential, CredentialSecret, ServerAccounts, StoredSecret};

/// The accounts of one configuration.
pub(crate) struct Users {
    by_name: HashMap<Box<[u8]>, Arc<User>>,
    /// Stand-in with a password for an account that does not exist.
    with_password: Arc<User>,
    /// Stand-in with a native hash for an account that does not exist.
    with_hash: Arc<User>,
    /// Number of accounts of which a secret is known only as a native hash.
    hashes: usize,
    /// Costs of a check ([`SlowHash::rounds`]), of each account that needs the password itself: one of its
    /// secrets is neither a password nor a native hash.
    rounds: Vec<u32>,
    /// Chooses the kind of an account that does not exist, always the same for the same name.
    kinds: RandomState,
}

pub(crate) struct User {
    pub(crate) config: config::User,
    /// The name in the form that the pool takes.
    pub(crate) name: Arc<str>,
    /// The present secret and the other one, or the present one twice.
    secrets: [Known; 2],
    /// Number of sessions, carried over from configuration to configuration.
    active: Arc<AtomicU32>,
}

/// The form in which a secret is known.
#[derive(Clone)]
enum Known {
    /// The password, and the hash that a server stores of it for `mysql_native_password`.
    Password(Secret, [u8; 20]),
    /// Only the hash that a server stores for `mysql_native_password`.
    Native([u8; 20]),
    /// The secret as a server stores it, from a server or from the configuration, and perhaps the password.
    Stored(Arc<AccountSecret>),
}

/// A client that wants to log in: its account, or a stand-in for one that does not exist.
pub(crate) struct Applicant {
    pub(crate) user: Arc<User>,
    exists: bool,
    /// Nobody has listed the account: a server decides.
    passes: bool,
}

/// Authentication plugins that the gateway can check answers of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plugin {
    Native,
    CachingSha2,
    Ed25519,
}

impl Plugin {
    pub(crate) const ALL: [Self; 3] = [Self::Native, Self::CachingSha2, Self::Ed25519];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Native => "mysql_native_password",
            Self::CachingSha2 => "caching_sha2_password",
            Self::Ed25519 => "client_ed25519",
        }
    }

    pub(crate) fn by_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|plugin| plugin.name().as_bytes() == name)
    }
}

impl Users {
    /// The accounts of a configuration; `earlier` is the table before it.
    pub(crate) fn new(users: &[config::User], earlier: Option<&Users>) -> Self {
        Self::keeping(users, earlier, true)
    }

    /// The accounts of a configuration, as [`Self::new`] makes them. `keeps`: whether the passwords that are
    /// known for accounts with a hash stay known.
    pub(crate) fn keeping(users: &[config::User], earlier: Option<&Users>, keeps: bool) -> Self {
        let mut by_name = HashMap::with_capacity(users.len());
        let mut rounds = Vec::new();
        for config in users {
            let before = earlier.and_then(|table| table.by_name.get(config.name.as_bytes()));
            let user = Arc::new(User::new(config.clone(), before.map(AsRef::as_ref), keeps));
            rounds.extend(user.rounds());
            by_name.insert(config.name.as_bytes().into(), user);
        }
        let decoy = |config| Arc::new(User::new(config, None, false));
        let mut hashed = config::User::new("", None);
        hashed.native_hash = Some(Secret::new(format!("*{}", "0".repeat(40))));
        Self {
            hashes: by_name.values().filter(|user| user.is_native()).count(),
            rounds,
            by_name,
            with_password: decoy(config::User::new(
                "",
                Some(Secret::new("an account that does not exist")),
            )),
            with_hash: decoy(hashed),
            kinds: earlier.map_or_else(RandomState::new, |table| table.kinds.clone()),
        }
    }

    /// The account of that name in the configuration.
    pub(crate) fn configured(&self, name: &[u8]) -> Option<Arc<User>> {
        self.by_name.get(name).cloned()
    }

    /// The account of that name, from the configuration before the servers, or a stand-in for which no answer
    /// is right. A stand-in has passwords or hashes as often as accounts have, so that the kind of account
    /// that a login shows does not tell whether it exists.
    pub(crate) fn applicant(&self, name: &[u8], servers: Option<&ServerAccounts>) -> Applicant {
        let configured = self.by_name.get(name).cloned();
        let of_servers = || {
            let secrets = servers?.get(name)?.secrets();
            let (first, last) = (secrets.first()?, secrets.last()?);
            let name = std::str::from_utf8(name).ok()?;
            let known = [first, last].map(|secret| Known::Stored(Arc::clone(secret)));
            Some(Arc::new(User::of_servers(name, known)))
        };
        match configured.or_else(of_servers) {
            Some(user) => Applicant {
                user,
                exists: true,
                passes: false,
            },
            None => Applicant {
                user: self.decoy(name, servers),
                exists: false,
                passes: false,
            },
        }
    }

    fn decoy(&self, name: &[u8], servers: Option<&ServerAccounts>) -> Arc<User> {
        let all = self.by_name.len() + servers.map_or(0, ServerAccounts::len);
        let natives = self.hashes + servers.map_or(0, ServerAccounts::natives);
        let kind = self.kinds.hash_one(name) as usize % all.max(1);
        let nobody = |rounds| StoredSecret::Slow(SlowHash::of_nobody(rounds));
        let secret = match servers {
            _ if kind < natives => return Arc::clone(&self.with_hash),
            None => match self.rounds.get(kind - natives) {
                Some(rounds) => AccountSecret::configured(nobody(*rounds)),
                None => return Arc::clone(&self.with_password),
            },
            Some(servers) => AccountSecret::new(nobody(servers.usual_rounds())),
        };
        let known = Known::Stored(secret);
        Arc::new(User::of_servers("", [known.clone(), known]))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Whether any account needs the password itself. If so, no failure may show which accounts do not.
    pub(crate) fn wants_passwords(&self) -> bool {
        !self.rounds.is_empty()
    }
}

impl User {
    /// `before` is the account of that name so far.
    fn new(config: config::User, before: Option<&Self>, keeps: bool) -> Self {
        let first = Given {
            password: config.password.as_ref(),
            native_hash: config.native_hash.as_ref(),
            sha2_hash: config.sha2_hash.as_ref(),
            ed25519_key: config.ed25519_key.as_ref(),
        };
        let other = Given {
            password: config.previous_password.as_ref(),
            native_hash: config.previous_native_hash.as_ref(),
            sha2_hash: config.previous_sha2_hash.as_ref(),
            ed25519_key: config.previous_ed25519_key.as_ref(),
        };
        let known = before.filter(|_| keeps).map_or(&[][..], |before| &before.secrets);
        let other = other.is_any().then(|| Known::of(&other, known));
        let first = Known::of(&first, known);
        Self {
            name: config.name.as_str().into(),
            secrets: [first.clone(), other.unwrap_or(first)],
            active: before
                .map(|before| Arc::clone(&before.active))
                .unwrap_or_default(),
            config,
        }
    }

    /// An account of servers. Nothing limits its sessions here: the servers may.
    fn of_servers(name: &str, secrets: [Known; 2]) -> Self {
        Self {
            name: name.into(),
            secrets,
            active: Arc::default(),
            config: config::User::new(name, None),
        }
    }

    /// An account that a server has let in, or has yet to.
    pub(crate) fn passing(name: &str, password: Option<&Secret>) -> Self {
        let secret = Known::password_itself(password);
        Self::of_servers(name, [secret.clone(), secret])
    }

    /// Whether nothing but an answer of `mysql_native_password` can be checked: a secret is only known as its
    /// hash.
    fn is_native(&self) -> bool {
        !self.can_use(Plugin::CachingSha2)
    }

    /// The cost of a check of a password ([`SlowHash::rounds`]), where the check takes the password itself.
    fn rounds(&self) -> Option<u32> {
        let in_full = self.secrets.iter().filter_map(Known::in_full);
        in_full
            .map(|secret| match secret.stored() {
                StoredSecret::Slow(hash) => hash.rounds(),
                StoredSecret::Native(_) | StoredSecret::PublicKey(_) => 0,
            })
            .max()
    }

    /// Whether an answer of this plugin can be checked, whichever of the secrets it was made with. A slow
    /// hash and a public key want the password itself, which `caching_sha2_password` has a way for.
    fn can_use(&self, plugin: Plugin) -> bool {
        let mut secrets = self.secrets.iter();
        match plugin {
            Plugin::Native => secrets.all(|secret| secret.stage2().is_some()),
            Plugin::CachingSha2 if secrets.any(|secret| secret.in_full().is_some()) => true,
            _ => self
                .secrets
                .iter()
                .all(|secret| matches!(secret, Known::Password(..))),
        }
    }

    /// This account without the passwords that are known for its hashes.
    fn without_passwords(&self) -> Self {
        let [first, other] = &self.secrets;
        let one = first.without_password();
        let other = match (first, other) {
            (Known::Stored(first), Known::Stored(other)) if Arc::ptr_eq(first, other) => one.clone(),
            (_, other) => other.without_password(),
        };
        Self {
            config: self.config.clone(),
            name: Arc::clone(&self.name),
            secrets: [one, other],
            active: Arc::clone(&self.active),
        }
    }

    /// Counts a session in, unless the account has as many as it may.
    ///
    /// # Errors
    /// The number of sessions that the account may have.
    pub(crate) fn begin_session(self: Arc<Self>) -> Result<UserSession, u32> {
        let limit = self.config.max_connections.unwrap_or(u32::MAX);
        let counted = self
            .active
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |active| {
                (active < limit).then(|| active + 1)
            });
        counted.map(|_| UserSession(self)).map_err(|_| limit)
    }

    fn credential(&self, known: &Known, secret: CredentialSecret) -> Credential {
        Credential {
            user: Arc::clone(&self.name),
            account: match known {
                Known::Stored(stored) => stored.id(),
                Known::Password(..) | Known::Native(_) => 0,
            },
            secret,
        }
    }

    /// The credential with the password, where the password is known.
    fn credential_by_password(&self, known: &Known) -> Option<Credential> {
        let password = CredentialSecret::Password(known.password()?.clone());
        Some(self.credential(known, password))
    }
}

/// Prints no secrets, even though they would not show.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Applicant {
    /// The applicant under a name that nobody has listed, where a server decides. `password` is the one that
    /// a server has let in before.
    pub(crate) fn passing(name: &str, password: Option<&Secret>) -> Self {
        Self {
            user: Arc::new(User::passing(name, password)),
            exists: password.is_some(),
            passes: true,
        }
    }

    /// This applicant where no passwords are kept: one that a login elsewhere has left is not known here.
    pub(crate) fn without_passwords(mut self) -> Self {
        let is_kept = |known: &Known| matches!(known, Known::Stored(stored) if stored.kept().is_some());
        if self.user.secrets.iter().any(is_kept) {
            self.user = Arc::new(self.user.without_passwords());
        }
        self
    }

    /// Whether a server says what the password is worth:
    /// [`Accounts::pass`](crate::frontend::accounts::Accounts::pass).
    pub(crate) fn passes(&self) -> bool {
        self.passes
    }

    /// Whether an answer of this plugin can be checked, whichever of the secrets it was made with. If a
    /// server decides, only the plugin that can send the password itself will do.
    pub(crate) fn can_use(&self, plugin: Plugin) -> bool {
        match self.passes {
            true => plugin == Plugin::CachingSha2,
            false => self.user.can_use(plugin),
        }
    }

    pub(crate) fn exists(&self) -> bool {
        self.exists
    }

    /// Whether a fast answer can be checked: a password is known.
    pub(crate) fn knows_password(&self) -> bool {
        self.exists && self.user.secrets.iter().any(|secret| secret.password().is_some())
    }

    /// Whether no password at all is a right one.
    pub(crate) fn needs_no_password(&self) -> bool {
        self.exists && self.user.secrets.iter().any(Known::is_empty)
    }

    /// Checks an answer of a plugin to its nonce. Returns the credential for servers if the answer is right.
    pub(crate) fn check(&self, plugin: Plugin, nonce: &[u8], answer: &[u8]) -> Option<Credential> {
        self.first_right(|secret| secret.check(plugin, nonce, answer))
    }

    /// Checks a password that came as it is, against all secrets but those that [`in_full`](Self::in_full)
    /// gives, and against the passwords that are kept for those.
    pub(crate) fn check_password(&self, password: &Secret) -> Option<Credential> {
        let given = auth::native_stage2(password.reveal().as_bytes());
        self.first_right(|secret| {
            let stage2 = match (secret.stage2(), secret.password()) {
                (Some(stage2), _) => *stage2,
                (None, Some(kept)) => auth::native_stage2(kept.reveal().as_bytes()),
                (None, None) => return None,
            };
            let right = verify_slices_are_equal(&given, &stage2).is_ok();
            right.then(|| CredentialSecret::Password(password.clone()))
        })
    }

    /// The further secrets that a password may be checked against: no more than two. A secret of servers is
    /// there once. An account of the configuration always has two, since nothing else hides how many it has.
    pub(crate) fn in_full(&self) -> impl Iterator<Item = &Arc<AccountSecret>> {
        let [first, other] = self.user.secrets.each_ref().map(Known::in_full);
        let is_wanted = |other: &&Arc<AccountSecret>| {
            other.is_configured() || first.is_none_or(|first| !Arc::ptr_eq(first, other))
        };
        let second = other
            .filter(is_wanted)
            .or(first.filter(|first| first.is_configured()));
        first.or(other).into_iter().chain(second)
    }

    /// The credential for a password that is right for `secret`, which is one of [`in_full`](Self::in_full).
    pub(crate) fn proved_by(&self, secret: &Arc<AccountSecret>, password: &Secret) -> Option<Credential> {
        let known = Known::Stored(Arc::clone(secret));
        let password = CredentialSecret::Password(password.clone());
        self.exists.then(|| self.user.credential(&known, password))
    }

    /// The credentials with the passwords that are known, the present one first.
    pub(crate) fn credentials(&self) -> Vec<Credential> {
        let known = self.user.secrets.iter().filter(|_| self.exists);
        let credentials = known.filter_map(|known| self.user.credential_by_password(known));
        let mut credentials: Vec<_> = credentials.collect();
        credentials.dedup_by(|a, b| a.secret == b.secret);
        credentials
    }

    /// The other secret, which servers may have when they do not have the one that the client used: a
    /// password is changed on servers and clients at different times. Secrets of servers may be those of
    /// different accounts, and a client that has shown one has not shown the other.
    pub(crate) fn other_than(&self, used: &Credential) -> Option<Credential> {
        if self.passes {
            return None;
        }
        let is_of_servers = |known: &Known| matches!(known, Known::Stored(stored) if !stored.is_configured());
        let mut secrets = self.user.secrets.iter().filter(|known| !is_of_servers(known));
        secrets.find_map(|known| {
            let other = self.user.credential_by_password(known)?;
            (other.secret != used.secret).then_some(other)
        })
    }

    /// Both secrets are looked at in any case: see the head of this file.
    fn first_right(&self, check: impl Fn(&Known) -> Option<CredentialSecret>) -> Option<Credential> {
        let both = self.user.secrets.each_ref().map(|known| (known, check(known)));
        let mut right = both
            .into_iter()
            .filter_map(|(known, secret)| Some((known, secret?)));
        let (known, secret) = right.next().filter(|_| self.exists)?;
        Some(self.user.credential(known, secret))
    }
}

/// A secret as a configuration gives it: one of these.
struct Given<'c> {
    password: Option<&'c Secret>,
    native_hash: Option<&'c Secret>,
    sha2_hash: Option<&'c Secret>,
    ed25519_key: Option<&'c Secret>,
}

impl Given<'_> {
    fn is_any(&self) -> bool {
        self.password.is_some() || self.is_hashed()
    }

    fn is_hashed(&self) -> bool {
        self.native_hash.is_some() || self.sha2_hash.is_some() || self.ed25519_key.is_some()
    }

    /// The secret as servers store it, if it is given in that form. The configuration has been checked.
    fn stored(&self) -> Option<StoredSecret> {
        let native = || auth::native_stage2_from_hash(self.native_hash?.reveal());
        let slow = || SlowHash::parse(&config::sha2_hash(self.sha2_hash?)?);
        let key = || PublicKey::parse(self.ed25519_key?.reveal().as_bytes());
        let native = native().map(StoredSecret::Native);
        let in_full = slow().map(StoredSecret::Slow);
        native.or(in_full).or_else(|| key().map(StoredSecret::PublicKey))
    }
}

impl Known {
    /// `earlier` may know the password of a hash.
    fn of(given: &Given<'_>, earlier: &[Known]) -> Self {
        let stored = match given.stored() {
            Some(StoredSecret::Native(stage2)) => return Self::Native(stage2),
            Some(stored) => stored,
            // No password is right for a hash that is not understood.
            None if given.is_hashed() => StoredSecret::Slow(SlowHash::of_nobody(1)),
            None => return Self::password_itself(given.password),
        };
        let same = earlier.iter().find_map(|known| {
            let secret = known.in_full()?;
            (secret.is_configured() && *secret.stored() == stored).then(|| Arc::clone(secret))
        });
        Self::Stored(same.unwrap_or_else(|| AccountSecret::configured(stored)))
    }

    /// The secret of an account with this password. Without a password only the answer of an empty one is
    /// right, which no server will believe.
    fn password_itself(password: Option<&Secret>) -> Self {
        let password = password.cloned().unwrap_or_default();
        let stage2 = auth::native_stage2(password.reveal().as_bytes());
        Self::Password(password, stage2)
    }

    fn password(&self) -> Option<&Secret> {
        match self {
            Self::Password(password, _) => Some(password),
            Self::Native(_) => None,
            Self::Stored(stored) => stored.kept(),
        }
    }

    /// This secret without the password that is known for a hash.
    fn without_password(&self) -> Self {
        match self {
            Self::Stored(stored) => Self::Stored(stored.without_password()),
            Self::Password(..) | Self::Native(_) => self.clone(),
        }
    }

    fn stage2(&self) -> Option<&[u8; 20]> {
        match self {
            Self::Password(_, stage2) | Self::Native(stage2) => Some(stage2),
            Self::Stored(stored) => match stored.stored() {
                StoredSecret::Native(stage2) => Some(stage2),
                StoredSecret::Slow(_) | StoredSecret::PublicKey(_) => None,
            },
        }
    }

    /// The stored secret, if only the password itself can be checked against it.
    fn in_full(&self) -> Option<&Arc<AccountSecret>> {
        match self {
            Self::Stored(stored) if self.stage2().is_none() => Some(stored),
            _ => None,
        }
    }

    fn is_empty(&self) -> bool {
        self.password()
            .is_some_and(|password| password.reveal().is_empty())
    }

    fn check(&self, plugin: Plugin, nonce: &[u8], answer: &[u8]) -> Option<CredentialSecret> {
        let password = self.password();
        let known = |right: bool| {
            right
                .then(|| password.cloned().map(CredentialSecret::Password))
                .flatten()
        };
        let bytes = password.map(|password| password.reveal().as_bytes());
        match plugin {
            Plugin::Native => {
                let stage1 = auth::verify_native(self.stage2()?, nonce.first_chunk()?, answer);
                match password {
                    Some(password) if password.reveal().is_empty() => known(answer.is_empty()),
                    Some(_) => known(stage1.is_some()),
                    None => stage1.map(CredentialSecret::NativeStage1),
                }
            }
            Plugin::CachingSha2 => known(auth::verify_caching_sha2(bytes?, nonce.first_chunk()?, answer)),
            Plugin::Ed25519 => known(auth::verify_ed25519(bytes?, nonce.first_chunk()?, answer)),
        }
    }
}

/// A session of an account, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct UserSession(Arc<User>);

impl UserSession {
    /// The session that takes the place of this one, as one of `user`, whatever the limit: if this one counts
    /// for that account already.
    pub(crate) fn counts_for(&self, user: &Arc<User>) -> Option<Self> {
        Arc::ptr_eq(&self.0.active, &user.active).then(|| {
            user.active.fetch_add(1, Ordering::Relaxed);
            Self(Arc::clone(user))
        })
    }

    /// Whether the session counts for this account.
    pub(crate) fn is_of(&self, user: &Arc<User>) -> bool {
        Arc::ptr_eq(&self.0.active, &user.active)
    }
}

impl Deref for UserSession {
    type Target = User;

    fn deref(&self) -> &User {
        &self.0
    }
}

impl Drop for UserSession {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
