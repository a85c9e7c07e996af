use std::sync::Arc;

use super::*;
use crate::cluster::Cluster;

const HERE: u64 = 1;
const ELSEWHERE: u64 = 2;

fn key(user: &str) -> Key {
    Key {
        user: user.into(),
        account: 0,
        capabilities: mysql_wire::Capabilities(0),
        collation: 45,
    }
}

/// Joins after `ms` milliseconds.
struct Play {
    wait_queue: WaitQueue,
    begun: Instant,
    /// Those who leave are not told.
    present: Vec<oneshot::Receiver<Grant>>,
}

impl Play {
    /// Two connections here, and one elsewhere.
    fn new() -> Self {
        let wait_queue = WaitQueue::default();
        for pool in [HERE, HERE, ELSEWHERE] {
            wait_queue.note_opened(pool);
        }
        Self {
            wait_queue,
            begun: Instant::now(),
            present: Vec::new(),
        }
    }

    fn at(&self, ms: u64) -> Instant {
        self.begun + Duration::from_millis(ms)
    }

    fn joins(&mut self, ms: u64, pool: u64, user: &str) -> u64 {
        self.joins_as(ms, pool, &key(user), false)
    }

    fn joins_as(&mut self, ms: u64, pool: u64, key: &Key, confined: bool) -> u64 {
        let wish = Wish {
            pool,
            key,
            since: self.at(ms),
            until: self.at(ms + 1000),
            called: false,
            confined,
        };
        let (number, answer) = self.wait_queue.join(wish, 9).unwrap();
        self.present.push(answer);
        number
    }

    /// Who gets a connection of user `u` that comes free here: its number, and whether as it is.
    fn next(&self, ms: u64) -> Option<(u64, How)> {
        let free = Free {
            pool: HERE,
            key: &key("u"),
            unused: Duration::ZERO,
            at_once: 0,
            may_end: true,
        };
        let turn = self.wait_queue.next_for(free, self.at(ms))?;
        Some((turn.number, turn.how))
    }
}

#[test]
fn those_who_can_use_a_connection_as_it_is_get_it_in_order() {
    let mut play = Play::new();
    let first = play.joins(0, HERE, "u");
    let second = play.joins(1, HERE, "u");
    assert_eq!(play.next(2), Some((first, How::Stays)));
    assert_eq!(play.next(2), Some((second, How::Stays)));
    assert_eq!(play.next(2), None);
    assert!(play.wait_queue.is_empty());
}

#[test]
fn one_who_cannot_gets_the_permit_where_nobody_else_can_use_the_connection() {
    let mut play = Play::new();
    let far = play.joins(0, ELSEWHERE, "v");
    assert_eq!(
        play.next(100),
        None,
        "it has not called, and may be served over there"
    );
    assert!(play.wait_queue.look_after(ELSEWHERE, play.at(5)).has_called);
    assert!(
        !play.wait_queue.look_after(ELSEWHERE, play.at(5)).has_called,
        "it has called already"
    );
    let other = play.joins(1, HERE, "v");
    assert_eq!(play.next(100), Some((far, How::Ends)));
    assert_eq!(play.next(100), Some((other, How::Ends)));
}

#[test]
fn nobody_waits_much_longer_than_those_who_are_easily_served() {
    let mut play = Play::new();
    let far = play.joins(0, ELSEWHERE, "u");
    let other = play.joins(0, HERE, "v");
    let near = play.joins(20, HERE, "u");
    // They have waited for 35 and 15 ms.
    let turn = play.next(35);
    assert_eq!(turn, Some((near, How::Stays)));
    let near = play.joins(33, HERE, "u");
    // 36 ms, which is more than 20 and three times 3.
    assert_eq!(play.next(36), Some((far, How::Moves)));
    // Likewise, more than 5 and twice 3.
    assert_eq!(play.next(36), Some((other, How::Ends)));
    assert_eq!(play.next(36), Some((near, How::Stays)));
}

#[test]
fn who_leaves_and_who_is_too_many_is_not_in_line() {
    let mut play = Play::new();
    let first = play.joins(0, HERE, "u");
    let second = play.joins(0, HERE, "u");
    play.wait_queue.leave(first);
    assert_eq!(play.wait_queue.len(), 1);
    let one_too_many = Wish {
        pool: HERE,
        key: &key("u"),
        since: play.at(0),
        until: play.at(9),
        called: false,
        confined: false,
    };
    assert!(play.wait_queue.join(one_too_many, 1).is_none());
    assert_eq!(play.wait_queue.rejected.load(Ordering::Relaxed), 1);
    assert_eq!(play.next(0), Some((second, How::Stays)));
}

#[test]
fn all_are_told_when_the_server_goes() {
    let mut play = Play::new();
    play.joins(0, HERE, "u");
    play.joins(0, ELSEWHERE, "v");
    play.wait_queue.dismiss();
    assert!(play.wait_queue.is_empty());
    for mut answer in play.present {
        assert!(matches!(answer.try_recv(), Ok(Grant::Gone)));
    }
}

#[test]
fn who_has_waited_for_too_long_is_told_and_leaves_the_line() {
    let mut play = Play::new();
    play.joins(0, HERE, "u");
    let far = play.joins(0, ELSEWHERE, "u");
    let second = play.joins(1, HERE, "v");
    play.wait_queue.look_after(HERE, play.at(1000));
    assert_eq!(play.wait_queue.len(), 2, "everybody is told by the own worker");
    let answers: Vec<_> = play.present.iter_mut().map(|answer| answer.try_recv()).collect();
    assert!(
        matches!(answers.as_slice(), [Ok(Grant::Late), Err(_), Err(_)]),
        "{answers:?}"
    );
    assert_eq!(play.next(1000), Some((far, How::Moves)));
    assert_eq!(play.next(1000), Some((second, How::Ends)));
}

#[test]
fn who_is_confined_gets_what_was_of_its_user_and_holds_up_nobody() {
    let mut play = Play::new();
    let other = Key {
        collation: 8,
        ..key("u")
    };
    let confined = play.joins_as(0, HERE, &key("v"), true);
    let of_same_user = play.joins_as(0, HERE, &other, true);
    assert!(!play.wait_queue.wants_permits() && play.wait_queue.len() == 2);
    let seeker = play.joins(90, HERE, "w");
    assert!(play.wait_queue.wants_permits());
    assert_eq!(
        play.next(100),
        Some((of_same_user, How::Ends)),
        "of another key, and its own user"
    );
    assert_eq!(play.next(100), Some((seeker, How::Ends)));
    assert_eq!(play.next(100), None);
    // Others need not be there for long to be served first.
    let near = play.joins(100, HERE, "u");
    assert_eq!(play.next(101), Some((near, How::Stays)));
    play.wait_queue.leave(confined);
    assert!(play.wait_queue.is_empty() && !play.wait_queue.wants_permits());
}

#[test]
fn who_is_confined_may_try_now_and_then_and_more_where_that_helps() {
    let mut play = Play::new();
    for ms in 0..4 {
        play.joins_as(ms, HERE, &key("u"), true);
    }
    play.wait_queue.full_users.note(&"u".into(), play.at(0));
    assert!(!play.wait_queue.look_after(HERE, play.at(99)).may_try);
    assert!(
        !play.wait_queue.look_after(ELSEWHERE, play.at(100)).may_try,
        "everybody by the own worker"
    );
    assert!(play.wait_queue.look_after(HERE, play.at(100)).may_try);
    assert_eq!(lock(&play.wait_queue.waiters).confined, 3, "one");
    assert!(!play.wait_queue.let_try("v") && play.wait_queue.let_try("u"));
    assert_eq!(lock(&play.wait_queue.waiters).confined, 1, "and two");
    play.wait_queue.dismiss();
    assert!(!play.wait_queue.wants_permits() && !play.wait_queue.let_try("u"));
}

/// Two who each take the only permit, or wait for it, and let it go: without anything else that could wake
/// them.
#[test]
fn no_wakeup_is_lost() {
    let mut server = config::Server::new(config::ServerAddress::Unix("/nowhere".into()));
    server.max_connections = 1;
    let cluster = Cluster::new(config::Cluster::new("main", vec![server])).unwrap();
    let (done, finished) = std::sync::mpsc::channel();
    for pool in 0..2 {
        let (cluster, done) = (Arc::clone(&cluster), done.clone());
        std::thread::spawn(move || {
            let server = Arc::clone(&cluster.servers()[0]);
            for _ in 0..50_000 {
                let free = server
                    .wait_queue
                    .is_empty()
                    .then(|| Permit::take(&cluster, &server));
                let permit = free.flatten().unwrap_or_else(|| {
                    let now = Instant::now();
                    let wish = Wish {
                        pool,
                        key: &key("u"),
                        since: now,
                        until: now,
                        called: false,
                        confined: false,
                    };
                    let (_, answer) = server.wait_queue.join(wish, 9).unwrap();
                    cluster.serve_wait_queue(&server);
                    match answer.blocking_recv() {
                        Ok(Grant::Permit(permit)) => permit,
                        other => panic!("{other:?}"),
                    }
                });
                assert_eq!(server.sessions(), 1);
                drop(permit);
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..2 {
        finished.recv_timeout(Duration::from_secs(60)).unwrap();
    }
    assert_eq!(cluster.servers()[0].sessions(), 0);
}
