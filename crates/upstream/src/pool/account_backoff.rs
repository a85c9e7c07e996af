//! Accounts that a server does not let in, and that are tried again after a while, and then after longer and
//! longer ones: [`AccountBackoff`].
//!
//! One kind are those that it has in a form for which the gateway's secret is of no use: another plugin than
//! the hash is for, or one that is not known here. Nothing but an answer that is wrong ends such a login in
//! order, and servers count those, to lock the account or this host out.
//!
//! Replicas that refuse an account are left alone in the same way by those whose reads others take
//! ([`Pool::is_denied`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::connection::Credential;
use super::{Pool, Travel};
use crate::backoff::Backoff;
use crate::lock::lock;
use crate::server::{Server, now};

/// Until the second attempt.
const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// Until those after it. Somebody may have mended the account.
const BACKOFF: Backoff = Backoff::new(FIRST_PAUSE, Duration::from_secs(600));

/// Accounts that are remembered.
const MOST: usize = 256;

/// Those of one server that are not let in for one reason.
#[derive(Debug, Default)]
pub(crate) struct AccountBackoff {
    /// There are any: usually not, and nothing has to be locked to know it.
    any: AtomicBool,
    all: Mutex<Vec<Account>>,
}

#[derive(Debug)]
struct Account {
    credential: Credential,
    /// Under another one it may be of use: over TLS, say.
    config: Arc<config::Cluster>,
    reason: String,
    backoff: Backoff,
    /// When it may be tried again.
    due: Instant,
}

impl Account {
    fn is_of(&self, credential: &Credential, config: &Arc<config::Cluster>) -> bool {
        self.credential == *credential && Arc::ptr_eq(&self.config, config)
    }
}

impl AccountBackoff {
    /// Why this is not tried now, and for how long it is not. Where nothing is said against it, the caller
    /// tries, and nobody else does.
    pub(super) fn refusal(
        &self,
        credential: &Credential,
        config: &Arc<config::Cluster>,
        now: Instant,
    ) -> Option<(String, Duration)> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut all = lock(&self.all);
        let account = all.iter_mut().find(|account| account.is_of(credential, config))?;
        let left = account.due.saturating_duration_since(now);
        if left.is_zero() {
            // An attempt may end before the server has looked at the account.
            account.due = now + FIRST_PAUSE;
            return None;
        }
        Some((account.reason.clone(), left))
    }

    /// Whether this is not to be tried now.
    fn holds(&self, credential: &Credential, config: &Arc<config::Cluster>, now: Instant) -> bool {
        let all = lock(&self.all);
        let account = all.iter().find(|account| account.is_of(credential, config));
        account.is_some_and(|account| account.due > now)
    }

    /// The server does not let it in. For how long it is not tried again.
    pub(super) fn note(
        &self,
        credential: &Credential,
        config: &Arc<config::Cluster>,
        reason: &str,
        now: Instant,
    ) -> Duration {
        let mut all = lock(&self.all);
        let before = all.iter().position(|account| account.is_of(credential, config));
        let mut backoff = before.map_or(BACKOFF, |at| all.remove(at).backoff);
        let pause = backoff.pause();
        if all.len() >= MOST {
            all.remove(0);
        }
        all.push(Account {
            credential: credential.clone(),
            config: Arc::clone(config),
            reason: reason.to_owned(),
            backoff,
            due: now + pause,
        });
        self.any.store(true, Ordering::Relaxed);
        pause
    }

    /// The server has let it in.
    pub(super) fn forget(&self, credential: &Credential) {
        if self.any.load(Ordering::Relaxed) {
            let mut all = lock(&self.all);
            all.retain(|account| account.credential != *credential);
            self.any.store(!all.is_empty(), Ordering::Relaxed);
        }
    }

    /// The same, where many may have tried at once: `None` for those who come too late to say it.
    pub(super) fn note_once(
        &self,
        credential: &Credential,
        config: &Arc<config::Cluster>,
        reason: &str,
        now: Instant,
    ) -> Option<Duration> {
        let is_known = self.holds(credential, config, now);
        (!is_known).then(|| self.note(credential, config, reason, now))
    }
}

impl<S: Travel> Pool<S> {
    /// Whether the server has refused this account so lately that it is not asked again. Where there is no
    /// such account that is seen from one load.
    #[inline]
    #[must_use]
    pub fn is_denied(&self, server: &Server, credential: &Credential) -> bool {
        let denied = &server.wait_queue.denied_accounts;
        denied.any.load(Ordering::Relaxed) && denied.holds(credential, &self.terms().config, now())
    }

    /// The server has refused this account, which others let in. For how long it is not to be asked again;
    /// `None` where that has been noted.
    pub fn note_denied(&self, server: &Server, credential: &Credential, reason: &str) -> Option<Duration> {
        let denied = &server.wait_queue.denied_accounts;
        denied.note_once(credential, &self.terms().config, reason, now())
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::CredentialSecret;
    use super::*;

    fn credential(user: &str, byte: u8) -> Credential {
        Credential {
            user: user.into(),
            account: 0,
            secret: CredentialSecret::NativeStage1([byte; 20]),
        }
    }

    #[test]
    fn of_many_who_are_refused_at_once_the_first_says_so() {
        let (denied, start) = (AccountBackoff::default(), Instant::now());
        let config = Arc::new(config::Cluster::new("main", Vec::new()));
        let app = credential("app", 1);
        let note = |at| denied.note_once(&app, &config, "Access denied", at);
        let pause = note(start).unwrap();
        assert_eq!(note(start), None);
        assert!(denied.holds(&app, &config, start));
        let later = start + pause;
        assert!(!denied.holds(&app, &config, later));
        assert_eq!(note(later), Some(2 * pause));
        denied.forget(&app);
        assert!(!denied.holds(&app, &config, later));
    }

    #[test]
    fn what_does_not_fit_is_tried_less_and_less() {
        let (unfit, start) = (AccountBackoff::default(), Instant::now());
        let config = Arc::new(config::Cluster::new("main", Vec::new()));
        let app = credential("app", 1);
        let is_refused = |credential: &Credential, ms| {
            let at = start + Duration::from_millis(ms);
            unfit.refusal(credential, &config, at).is_some()
        };
        assert!(!is_refused(&app, 0));
        let mut at = 0;
        for seconds in [10, 20, 40, 80, 160, 320, 600, 600] {
            let now = start + Duration::from_millis(at);
            let pause = unfit.note(&app, &config, "another plugin", now);
            assert_eq!(pause, Duration::from_secs(seconds));
            at += 1000 * seconds;
            assert!(is_refused(&app, at - 1));
            assert!(!is_refused(&app, at), "one may try");
            assert!(is_refused(&app, at), "and no more");
        }
        assert!(!is_refused(&credential("app", 2), 0), "another password");
        assert!(!is_refused(&credential("other", 1), 0));
        let reloaded = Arc::new((*config).clone());
        assert!(unfit.refusal(&app, &reloaded, start).is_none());
        unfit.forget(&app);
        assert!(!is_refused(&app, 0));
    }

    #[test]
    fn so_many_are_remembered() {
        let (unfit, now) = (AccountBackoff::default(), Instant::now());
        let config = Arc::new(config::Cluster::new("main", Vec::new()));
        for number in 0..=MOST {
            unfit.note(&credential(&number.to_string(), 1), &config, "no", now);
        }
        assert!(unfit.refusal(&credential("0", 1), &config, now).is_none());
        let last = credential(&MOST.to_string(), 1);
        assert!(unfit.refusal(&last, &config, now).is_some());
    }
}
