//! A good client that works all the time and must never fail.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use e2e::{Gateway, client, eventually};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use tokio::task::JoinHandle;

/// Between two questions, so that the witness is no load of its own.
const PAUSE: Duration = Duration::from_millis(5);
/// After so many questions it opens a new session, so that logins are witnessed, too.
const QUESTIONS: usize = 10;
/// Calm enough for figures to be compared.
const ENOUGH: usize = 60;

/// A task that asks questions on a session of many and on short ones. It fails the test when an answer is an
/// error, wrong, or does not come.
pub(crate) struct Witness {
    task: JoinHandle<()>,
    answers: Arc<Mutex<Vec<Duration>>>,
}

impl Witness {
    pub(crate) async fn start(gateway: &Gateway) -> Self {
        let options: Opts = client::options(gateway).into();
        let answers = Arc::<Mutex<Vec<Duration>>>::default();
        let noted = Arc::clone(&answers);
        let task = tokio::spawn(async move {
            let mut lasting = Conn::new(options.clone()).await.expect("a good client gets in");
            loop {
                let mut short = Conn::new(options.clone()).await.expect("a good client gets in");
                for number in 0..QUESTIONS {
                    let session = if number % 2 == 0 { &mut lasting } else { &mut short };
                    let begin = Instant::now();
                    let answer = session.query_first(format!("SELECT {number}"));
                    assert_eq!(answer.await.expect("a good client is served"), Some(number));
                    noted.lock().unwrap().push(begin.elapsed());
                    tokio::time::sleep(PAUSE).await;
                }
                short.disconnect().await.expect("a good client leaves in order");
            }
        });
        Self { task, answers }
    }

    /// Waits for enough new answers and returns the time in which nineteen of twenty of them came.
    pub(crate) async fn p95(&mut self) -> Duration {
        self.answers.lock().unwrap().clear();
        self.more(ENOUGH).await;
        let mut answers = self.answers.lock().unwrap().clone();
        answers.sort_unstable();
        answers[answers.len() * 19 / 20]
    }

    /// Waits for `count` more answers.
    ///
    /// # Panics
    /// When there was anything but right answers.
    pub(crate) async fn more(&mut self, count: usize) {
        let seen = self.answers.lock().unwrap().len();
        eventually("the good client gets answers", async || {
            self.task.is_finished() || self.answers.lock().unwrap().len() >= seen + count
        })
        .await;
        self.check().await;
    }

    /// Ends it.
    ///
    /// # Panics
    /// When there was anything but right answers.
    pub(crate) async fn stop(mut self) {
        self.more(QUESTIONS).await;
        self.task.abort();
        // What the abort says; a failure was seen above.
        let _ = (&mut self.task).await;
    }

    async fn check(&mut self) {
        if self.task.is_finished() {
            (&mut self.task).await.unwrap();
        }
    }
}

/// "Not slowed" on a busy machine: a wait of a second would be seen, the noise of other programs not.
#[track_caller]
pub(crate) fn assert_not_slowed(before: Duration, now: Duration) {
    let bound = before * 10 + Duration::from_millis(500);
    assert!(
        now < bound,
        "a good client waits for {now:?}, and waited for {before:?} before"
    );
}
