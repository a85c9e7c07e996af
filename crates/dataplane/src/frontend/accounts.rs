//! The accounts that may log in at listeners of mode `split`: the configured ones, and behind them those of
//! the cluster's servers, as far as they are read or tried.
//!
//! All workers share one [`Accounts`], which stays through reloads: a session that changes its user is
//! checked against the accounts of that moment.

use std::sync::Arc;

use arc_swap::ArcSwap;
use config::{AccountsFrom, Secret};
use upstream::{Cluster, Credential, CredentialSecret, LeaseError, ServerAccount};

use crate::frontend::guesses::Guesses;
use crate::frontend::password_checks::PasswordChecks;
use crate::frontend::user_name::as_servers_read;
use crate::frontend::users::{Applicant, Plugin, User, Users};

pub(crate) struct Accounts {
    users: ArcSwap<Users>,
    checks: PasswordChecks,
    pub(crate) guesses: Guesses,
}

/// The evidence that a client has given of who it is.
pub(crate) enum Proof {
    /// An answer made of the password, a nonce and the rules of a plugin.
    Answer {
        plugin: Plugin,
        nonce: Vec<u8>,
        bytes: Vec<u8>,
    },
    Password(Secret),
    /// Nothing that could be right.
    Nothing,
}

impl Accounts {
    pub(crate) fn new(users: Users) -> Self {
        Self {
            users: ArcSwap::from_pointee(users),
            checks: PasswordChecks::default(),
            guesses: Guesses::default(),
        }
    }

    /// Replaces the configured accounts. `keeps`: whether the passwords known for accounts with a hash stay
    /// known.
    pub(crate) fn replace(&self, users: &[config::User], keeps: bool) {
        let users = Users::keeping(users, Some(&self.users.load()), keeps);
        self.users.store(Arc::new(users));
    }

    /// Whether any account of this cluster, listed or not, may have to send the password itself. If so, every
    /// client whose fast answer is not known to be right is asked for its password.
    pub(crate) fn want_passwords(&self, cluster: &Cluster) -> bool {
        cluster.accounts().is_some() || cluster.passes_accounts() || self.users.load().wants_passwords()
    }

    /// The configured account of that name.
    pub(crate) fn configured(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users.load().configured(name)
    }

    /// The applicant for a login under that name. If there is no such account, a stand-in for which no answer
    /// is right.
    pub(crate) fn applicant(&self, name: &[u8], cluster: &Cluster) -> Applicant {
        let of_servers = cluster.accounts();
        let applicant = self.users.load().applicant(name, of_servers.as_deref());
        if !applicant.exists()
            && let Some(ServerAccount::Unusable(reason)) =
                of_servers.as_ref().and_then(|known| known.get(name))
        {
            let (cluster, user) = (cluster.name(), String::from_utf8_lossy(name));
            tracing::warn!(
                cluster,
                user = &*user,
                reason,
                "account of the servers cannot log in here: list it in [[user]]"
            );
        }
        if !applicant.exists()
            && cluster.passes_accounts()
            && let Ok(text) = std::str::from_utf8(name)
            && !is_an_alias(name, cluster)
        {
            return Applicant::passing(text, cluster.passed(name).as_ref());
        }
        match cluster.config().accounts.keep_passwords {
            true => applicant,
            false => applicant.without_passwords(),
        }
    }

    /// The credentials for other servers, for a client whom a server has let in by itself under that name.
    /// The passwords in them come from the configuration or an earlier login.
    pub(crate) fn known(&self, name: &[u8], cluster: &Cluster) -> Vec<Credential> {
        let of_servers = cluster.accounts();
        let applicant = self.users.load().applicant(name, of_servers.as_deref());
        let keeps = cluster.config().accounts.keep_passwords;
        match (applicant.exists(), std::str::from_utf8(name)) {
            (true, _) if keeps => applicant.credentials(),
            (true, _) => applicant.without_passwords().credentials(),
            (false, Ok(text)) => Applicant::passing(text, cluster.passed(name).as_ref()).credentials(),
            (false, Err(_)) => Vec::new(),
        }
    }

    /// The credential for other servers, for a client whom a server has let in by `proof`.
    pub(crate) fn shown(&self, name: &[u8], proof: &Proof, cluster: &Cluster) -> Option<Credential> {
        if !cluster.config().accounts.keep_passwords {
            return None;
        }
        let of_servers = cluster.accounts();
        match proof {
            // Together with the hash that the server stores, the answer yields a secret that is as good as
            // the password.
            Proof::Answer { plugin, nonce, bytes } => {
                let applicant = self.users.load().applicant(name, of_servers.as_deref());
                applicant.check(*plugin, nonce, bytes)
            }
            Proof::Password(password) => Some(Credential {
                user: std::str::from_utf8(name).ok()?.into(),
                account: 0,
                secret: CredentialSecret::Password(password.clone()),
            }),
            Proof::Nothing => None,
        }
    }

    /// Whether no account is configured and accounts come from the configuration only. Listeners of mode
    /// `split` then let nobody in; clients that speak no MySQL are left to the servers, as those of mode
    /// `session` are.
    pub(crate) fn names_none(&self, cluster: &Cluster) -> bool {
        self.users.load().is_empty() && cluster.config().accounts.from == AccountsFrom::Configured
    }

    /// The credential for servers, if a server decides on the account ([`Applicant::passes`]) and has let the
    /// applicant in. An empty password is never let in: it proves nothing.
    ///
    /// # Errors
    /// No server could be asked, or a server refuses the account for another reason than its password.
    pub(crate) async fn pass(
        &self,
        applicant: &Applicant,
        proof: &Proof,
        cluster: &Arc<Cluster>,
    ) -> Result<Option<Credential>, LeaseError> {
        let password = match proof {
            Proof::Answer { plugin, nonce, bytes } => {
                applicant.check(*plugin, nonce, bytes).and_then(password_of)
            }
            Proof::Password(password) => Some(password.clone()),
            Proof::Nothing => None,
        };
        let Some(password) = password.filter(|password| !password.reveal().is_empty()) else {
            return Ok(None);
        };
        let account = cluster.pass(&applicant.user.name, &password).await?;
        Ok(account.map(|account| Credential {
            user: Arc::clone(&applicant.user.name),
            account,
            secret: CredentialSecret::Password(password),
        }))
    }

    /// The credential for servers, if the proof is right.
    pub(crate) async fn judge(
        &self,
        applicant: &Applicant,
        proof: &Proof,
        cluster: &Cluster,
    ) -> Option<Credential> {
        let password = match proof {
            Proof::Answer { plugin, nonce, bytes } => return applicant.check(*plugin, nonce, bytes),
            Proof::Password(password) => password,
            Proof::Nothing => return None,
        };
        if let Some(credential) = applicant.check_password(password) {
            return Some(credential);
        }
        for secret in applicant.in_full() {
            if self.checks.verify(secret, password).await {
                if cluster.config().accounts.keep_passwords {
                    secret.keep(password);
                }
                return applicant.proved_by(secret, password);
            }
        }
        None
    }
}

/// Whether servers read this name as another one. Such a name would be one account for the servers, and a
/// different one for all that goes by names here.
pub(crate) fn is_an_alias(name: &[u8], cluster: &Cluster) -> bool {
    as_servers_read(name, cluster.is_mariadb()) != name
}

fn password_of(credential: Credential) -> Option<Secret> {
    match credential.secret {
        CredentialSecret::Password(password) => Some(password),
        CredentialSecret::NativeStage1(_) => None,
    }
}
