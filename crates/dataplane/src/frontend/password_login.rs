//! A login by user and password as they are: that of protocols that have no other.
//!
//! The accounts are those of mode `split`, by the same function
//! ([`Accounts::applicant`](crate::frontend::accounts::Accounts::applicant)). Only where the configuration
//! names no accounts at all do the servers decide on everybody, as they do for MySQL clients of mode
//! `session`. An empty password is always refused: it proves nothing.

use std::sync::Arc;

use config::Secret;
use tokio::time::timeout;
use upstream::{Credential, CredentialSecret};

use crate::frontend::accounts::{Proof, is_an_alias};
use crate::frontend::extension::ProtocolSession;
use crate::frontend::guesses::Asking;
use crate::frontend::registry::SessionPlace;
use crate::frontend::users::UserSession;

/// A user who is logged in. The session counts against the limit of the account until this is dropped.
#[derive(Debug)]
pub struct Identity {
    user: Box<str>,
    credential: Credential,
    session: Option<UserSession>,
}

impl Identity {
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The credential by which servers know the user.
    #[must_use]
    pub fn credential(&self) -> &Credential {
        &self.credential
    }
}

/// Why a login came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum NotAdmitted {
    /// No such user, or not that password.
    #[error("invalid username-password pair or user is disabled")]
    Denied,
    /// The account has as many sessions as it may have.
    #[error("user has exceeded the limit of {0} sessions")]
    TooMany(u32),
    /// Too many logins have failed.
    #[error(
        "too many logins of this user from this address have failed, and others wait already; try again later"
    )]
    TooManyFailures,
    /// No server could be asked; the reason in words for a person.
    #[error("the login could not be checked: {0}")]
    Unchecked(String),
}

impl ProtocolSession {
    /// Checks a login, within `login_timeout`. A failure is counted, and the session goes on. A success gives
    /// the session a name among the sessions, and a place where `KILL` finds it. `now` is the session's
    /// identity until then, which a success replaces.
    pub async fn authenticate(
        &self,
        user: &str,
        password: &str,
        now: Option<&mut Identity>,
    ) -> Result<Identity, NotAdmitted> {
        let limit = self.listener().login_timeout;
        let password = Secret::new(password);
        let judged = timeout(limit, self.judge_in_turn(user, &password, now)).await;
        let judged =
            judged.unwrap_or_else(|_| Err(NotAdmitted::Unchecked(format!("no answer within {limit:?}"))));
        match &judged {
            Ok(identity) => {
                self.control.name_user(identity.user());
                let place = SessionPlace {
                    worker: self.home.worker,
                    cluster: self.listener.cluster_serial,
                    server_connection: None,
                    user: user.as_bytes().into(),
                    is_hidden: false,
                };
                self.home.shared.registry.insert(self.id(), place);
            }
            Err(error) => {
                if matches!(error, NotAdmitted::Denied | NotAdmitted::TooManyFailures) {
                    self.control.login_failed();
                }
                self.metrics.login_failures.inc();
            }
        }
        judged
    }

    /// Judges a login when its turn has come, and holds the answer back where many have failed.
    async fn judge_in_turn(
        &self,
        user: &str,
        password: &Secret,
        now: Option<&mut Identity>,
    ) -> Result<Identity, NotAdmitted> {
        let asking = Asking::new(&self.peer, user.as_bytes(), self.listener());
        let guesses = &self.home.shared.accounts.guesses;
        let attempt = guesses.begin(asking).await;
        let attempt = attempt.map_err(|_| NotAdmitted::TooManyFailures)?;
        let judged = self.judge(user, password, now).await;
        match &judged {
            Ok(_) => attempt.succeeded(),
            Err(NotAdmitted::Denied) => tokio::time::sleep(attempt.failed()).await,
            Err(_) => {}
        }
        judged
    }

    async fn judge(
        &self,
        user: &str,
        password: &Secret,
        now: Option<&mut Identity>,
    ) -> Result<Identity, NotAdmitted> {
        if password.reveal().is_empty() {
            return Err(NotAdmitted::Denied);
        }
        let (accounts, cluster) = (&self.home.shared.accounts, self.cluster());
        if accounts.names_none(cluster) {
            return self.try_on_server(user, password).await;
        }
        let reads_accounts = cluster.accounts().is_some();
        if reads_accounts && !cluster.has_read_accounts() {
            cluster.renew_accounts().await;
        }
        let proof = Proof::Password(password.clone());
        // A login that fails is judged once more by the servers' accounts as they are then: see
        // `authenticate`.
        for is_last in [!reads_accounts, true] {
            let applicant = accounts.applicant(user.as_bytes(), cluster);
            if applicant.passes() {
                let passed = accounts.pass(&applicant, &proof, cluster).await;
                let passed = passed.map_err(|error| NotAdmitted::Unchecked(error.to_string()))?;
                return Ok(Identity {
                    user: user.into(),
                    credential: passed.ok_or(NotAdmitted::Denied)?,
                    session: None,
                });
            }
            if let Some(credential) = accounts.judge(&applicant, &proof, cluster).await {
                // A session that logs in once more does not count as a second one.
                let counted =
                    now.and_then(|now| now.session.take_if(|session| session.is_of(&applicant.user)));
                let session = match counted {
                    Some(session) => session,
                    None => applicant.user.begin_session().map_err(NotAdmitted::TooMany)?,
                };
                return Ok(Identity {
                    user: user.into(),
                    credential,
                    session: Some(session),
                });
            }
            if is_last {
                break;
            }
            cluster.renew_accounts().await;
        }
        Err(NotAdmitted::Denied)
    }

    /// Logs in on a server, and leaves again.
    async fn try_on_server(&self, user: &str, password: &Secret) -> Result<Identity, NotAdmitted> {
        let cluster = self.cluster();
        if is_an_alias(user.as_bytes(), cluster) {
            return Err(NotAdmitted::Denied);
        }
        let admitted = cluster.admits(user, password).await;
        if !admitted.map_err(|error| NotAdmitted::Unchecked(error.to_string()))? {
            return Err(NotAdmitted::Denied);
        }
        Ok(Identity {
            user: user.into(),
            credential: Credential {
                user: Arc::from(user),
                account: 0,
                secret: CredentialSecret::Password(password.clone()),
            },
            session: None,
        })
    }
}
