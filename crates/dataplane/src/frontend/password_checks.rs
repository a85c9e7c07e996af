//! Passwords checked against slow hashes, on a thread of its own: a check takes milliseconds, and with hashes
//! of some servers seconds, in which no worker may stand still.
//! The thread starts with the first check and ends with the gateway. A login that comes while the thread is
//! busy waits in line, and no longer than a login may take.

use std::sync::{Arc, OnceLock};

use config::Secret;
use mysql_wire::auth;
use tokio::sync::{mpsc, oneshot};
use upstream::AccountSecret;

/// Checks that wait in the channel; further ones wait before it.
const QUEUE: usize = 64;

/// The thread, and the way to it.
#[derive(Default)]
pub(crate) struct PasswordChecks {
    /// `None` where the thread could not be started.
    jobs: OnceLock<Option<mpsc::Sender<Job>>>,
}

struct Job {
    secret: Arc<AccountSecret>,
    password: Secret,
    verdict: oneshot::Sender<bool>,
}

impl PasswordChecks {
    /// Whether this is the password of `secret`. A password that cannot be checked is not.
    pub(crate) async fn verify(&self, secret: &Arc<AccountSecret>, password: &Secret) -> bool {
        let Some(jobs) = self.jobs.get_or_init(start) else {
            return false;
        };
        let (verdict, reply) = oneshot::channel();
        let job = Job {
            secret: Arc::clone(secret),
            password: password.clone(),
            verdict,
        };
        jobs.send(job).await.is_ok() && reply.await.unwrap_or(false)
    }
}

fn start() -> Option<mpsc::Sender<Job>> {
    let (jobs, inbox) = mpsc::channel(QUEUE);
    let thread = std::thread::Builder::new()
        .name("password-checks".into())
        .spawn(move || run(inbox));
    match thread {
        Ok(_) => Some(jobs),
        Err(error) => {
            tracing::error!(%error, "no thread for password checks: accounts with a hash cannot log in");
            None
        }
    }
}

fn run(mut inbox: mpsc::Receiver<Job>) {
    while let Some(job) = inbox.blocking_recv() {
        // A login that was given up needs no verdict.
        if job.verdict.is_closed() {
            continue;
        }
        let _ = job
            .verdict
            .send(is_right(&job.secret, job.password.reveal().as_bytes()));
    }
}

/// Whether this is the password. Sessions of one account come many at a time, and the first of them may have
/// made the password known.
fn is_right(secret: &AccountSecret, password: &[u8]) -> bool {
    let is_kept =
        |kept: &Secret| auth::native_stage2(kept.reveal().as_bytes()) == auth::native_stage2(password);
    secret.kept().is_some_and(is_kept) || secret.stored().verify(password)
}

#[cfg(test)]
mod tests {
    use mysql_wire::auth::{PublicKey, SlowHash};
    use upstream::StoredSecret;

    use super::*;

    /// `secret`, as MySQL 9.7.4 has stored it with 10 000 rounds.
    const STORED: &[u8] =
        b"$A$00A$dn-BR|rrde\x02\x0c\x16s\x1bd(\x01HtJX3cKCn7frzabIe127YUHrbdx9uRuEOt183QgksBEs.";

    #[tokio::test]
    async fn many_passwords_are_checked_at_once() {
        let checks = PasswordChecks::default();
        let secret = AccountSecret::new(StoredSecret::Slow(SlowHash::parse(STORED).unwrap()));
        let (right, wrong) = (Secret::new("secret"), Secret::new("Secret"));
        let both = async {
            (
                checks.verify(&secret, &right).await,
                checks.verify(&secret, &wrong).await,
            )
        };
        // This check is given up in the middle.
        let mut given_up = std::pin::pin!(checks.verify(&secret, &right));
        tokio::select! {
            biased;
            _ = &mut given_up => panic!("at once?"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(both.await, (true, false));
        let native = AccountSecret::new(StoredSecret::Native([0; 20]));
        assert!(!checks.verify(&native, &right).await);
        let key = PublicKey::parse(b"ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY").unwrap();
        let key = AccountSecret::new(StoredSecret::PublicKey(key));
        assert!(checks.verify(&key, &right).await && !checks.verify(&key, &wrong).await);
    }

    #[tokio::test]
    async fn what_has_become_known_in_line_is_not_computed() {
        let checks = PasswordChecks::default();
        // The stored hash fits no password: only the kept one can be right.
        let secret = AccountSecret::new(StoredSecret::Slow(SlowHash::of_nobody(5000)));
        let (right, wrong) = (Secret::new("secret"), Secret::new("Secret"));
        assert!(!checks.verify(&secret, &right).await);
        secret.keep(&right);
        assert!(checks.verify(&secret, &right).await);
        assert!(!checks.verify(&secret, &wrong).await);
    }
}
