use std::task::{Context, Poll, Waker};

use mysql_wire::gtid::MariaDbPosition;
use telemetry::Telemetry;
use tokio::net::TcpListener;
use tokio::task::{LocalSet, spawn_local};

use super::*;
use crate::coherence::{self, SourceId};
use crate::store::Version;

const LIMIT: Duration = Duration::from_secs(1);

/// An index, and what is applied.
pub(super) struct Worker {
    pub(super) index: Rc<Index>,
    feed: watch::Sender<Arc<Applied>>,
    now: Instant,
}

pub(super) fn at(source: u64, offset: u64) -> Position {
    let place = coherence::Place::File { file: 1, offset };
    Position {
        source: SourceId(source),
        place,
    }
}

fn applied(position: Position) -> Arc<Applied> {
    Arc::new(Applied {
        version: Version(0),
        position: Some(position),
        gtids: mysql_wire::gtid::GtidSet::empty(mysql_wire::gtid::Flavor::MySql),
        is_numbered: true,
        numbered_alone: false,
    })
}

impl Worker {
    pub(super) fn new() -> Self {
        Self::beside(&Arc::default())
    }

    /// One that shares probes.
    fn beside(probes: &Arc<Probes>) -> Self {
        let metrics = Telemetry::new(1, |_| "").worker(0);
        Self {
            index: Index::new(Arc::clone(probes), LIMIT, metrics),
            feed: watch::Sender::new(applied(at(1, 0))),
            now: Instant::now(),
        }
    }

    pub(super) fn arrive(&self) -> Read<'_> {
        let arrival = self.index.probes.arrive();
        let place = self.index.state.borrow_mut().enter(arrival, self.now);
        Read {
            index: &self.index,
            place,
        }
    }

    pub(super) fn apply(&self, position: Position) -> (bool, bool) {
        self.feed.send_replace(applied(position));
        self.settle(Duration::ZERO)
    }

    pub(super) fn settle(&self, after: Duration) -> (bool, bool) {
        let known = Arc::clone(&self.feed.borrow());
        self.index.settle(&known, self.now + after)
    }

    pub(super) fn send(&self) -> Option<Probe> {
        self.index.probes.send(self.now).ok()
    }

    pub(super) fn answer(&self, probe: Probe, answer: Result<Position, Arc<str>>) {
        self.index.probes.end(probe, &answer);
        self.hear();
    }

    fn hear(&self) -> (bool, bool) {
        let known = Arc::clone(&self.feed.borrow());
        self.index.hear(&self.index.probes.ended().borrow(), &known);
        self.settle(Duration::ZERO)
    }
}

impl Read<'_> {
    fn poll(&self) -> Poll<Result<(), NotFresh>> {
        let context = Context::from_waker(Waker::noop());
        self.index.state.borrow_mut().wait_list.poll(self.place, &context)
    }
}

#[test]
fn a_read_that_comes_while_a_probe_is_under_way_waits_for_the_next() {
    let worker = Worker::new();
    let early = worker.arrive();
    assert_eq!(worker.settle(Duration::ZERO), (true, false));
    let probe = worker.send().unwrap();
    let late = worker.arrive();
    assert!(worker.send().is_none(), "one at a time");
    worker.answer(probe, Ok(at(1, 5)));
    assert_eq!(worker.apply(at(1, 9)), (true, false));
    assert_eq!((early.poll(), late.poll()), (Poll::Ready(Ok(())), Poll::Pending));
    let probe = worker.send().unwrap();
    worker.answer(probe, Ok(at(1, 9)));
    assert_eq!(late.poll(), Poll::Ready(Ok(())), "applied already");
}

#[test]
fn a_probe_gives_way_where_the_last_one_served_many() {
    let worker = Worker::new();
    let mut round = |reads: u64| {
        let reads: Vec<_> = (0..reads).map(|_| worker.arrive()).collect();
        let probe = worker.send().unwrap();
        worker.answer(probe, Ok(at(1, 0)));
        assert!(reads.iter().all(|read| read.poll().is_ready()));
        worker.index.gives_way(&mut GivenWay::default())
    };
    assert_eq!(
        [1, MANY - 1, MANY, 3 * MANY, 1].map(&mut round),
        [false, false, true, true, false]
    );
}

#[test]
fn a_probe_gives_way_again_when_more_came_and_not_for_ever() {
    let worker = Worker::new();
    let _served: Vec<_> = (0..MANY).map(|_| worker.arrive()).collect();
    let probe = worker.send().unwrap();
    worker.answer(probe, Ok(at(1, 0)));
    let _first = worker.arrive();
    let mut alone = GivenWay::default();
    assert!(worker.index.gives_way(&mut alone));
    assert!(!worker.index.gives_way(&mut alone), "nobody came");
    let mut joined = GivenWay::default();
    let mut reads = Vec::new();
    let turns = (0..10).take_while(|_| {
        reads.push(worker.arrive());
        worker.index.gives_way(&mut joined)
    });
    let turns = turns.count() as u32;
    assert_eq!(turns, TURNS_MAX);
}

#[test]
fn reads_do_not_wait_for_what_later_probes_say() {
    let worker = Worker::new();
    let first = worker.arrive();
    let probe = worker.send().unwrap();
    worker.answer(probe, Ok(at(1, 5)));
    let second = worker.arrive();
    assert_eq!(worker.settle(Duration::ZERO), (true, true));
    let probe = worker.send().unwrap();
    worker.answer(probe, Ok(at(1, 50)));
    assert_eq!(worker.apply(at(1, 4)), (false, true));
    assert_eq!(first.poll(), Poll::Pending);
    assert_eq!(worker.apply(at(1, 5)), (false, true));
    assert_eq!(
        (first.poll(), second.poll()),
        (Poll::Ready(Ok(())), Poll::Pending)
    );
    assert_eq!(worker.apply(at(1, 50)), (false, false));
    assert_eq!(second.poll(), Poll::Ready(Ok(())));
}

#[test]
fn an_answer_behind_what_was_applied_is_none() {
    let answer = |position| counted(Ok(position), &applied(at(1, 7)));
    assert_eq!(answer(at(1, 7)), Ok(at(1, 7)));
    assert_eq!(answer(at(1, 9)), Ok(at(1, 9)));
    assert_eq!(answer(at(2, 4)), Ok(at(2, 4)), "of another server");
    assert_eq!(
        answer(at(1, 6)).unwrap_err(),
        "the primary's binary log began anew".into()
    );
    let mut nowhere = (*applied(at(1, 7))).clone();
    nowhere.position = None;
    assert_eq!(counted(Ok(at(1, 6)), &nowhere), Ok(at(1, 6)));
    assert!(counted(Err("gone".into()), &nowhere).is_err());
}

/// The place that was heard of first is in a log that is no more.
#[test]
fn an_answer_of_a_log_that_began_anew_does_not_wait_for_those_before() {
    let worker = Worker::new();
    worker.apply(at(1, 7));
    let early = worker.arrive();
    let probe = worker.send().unwrap();
    worker.answer(probe, Ok(at(1, 900)));
    let late = worker.arrive();
    let probe = worker.send().unwrap();
    worker.answer(probe, Ok(at(1, 20)));
    assert_eq!(worker.settle(Duration::ZERO), (false, true));
    assert_eq!(worker.apply(at(1, 20)), (false, false));
    assert_eq!(
        (early.poll(), late.poll()),
        (Poll::Ready(Ok(())), Poll::Ready(Ok(())))
    );
}

#[test]
fn another_source_is_asked_anew() {
    let worker = Worker::new();
    let read = worker.arrive();
    let probe = worker.send().unwrap();
    worker.answer(probe, Ok(at(1, 5)));
    assert_eq!(worker.apply(at(2, 900)), (true, false));
    assert_eq!(read.poll(), Poll::Pending);
    let probe = worker.send().unwrap();
    worker.answer(probe, Ok(at(1, 950)));
    assert_eq!(worker.settle(Duration::ZERO), (true, false));
    let probe = worker.send().unwrap();
    worker.answer(probe, Ok(at(2, 900)));
    assert_eq!(read.poll(), Poll::Ready(Ok(())));
}

/// It was asked for while nobody knew which kind the stream has: MariaDB's in `gtid_strict_mode`, which goes
/// on by GTID.
#[test]
fn a_place_of_another_kind_is_asked_for_anew() {
    let gtid = |text: &str| {
        let place = MariaDbPosition::parse(text.as_bytes()).unwrap();
        let place = coherence::Place::MariaDb(place);
        let source = SourceId(1);
        Position { source, place }
    };
    let worker = Worker::new();
    let mut nowhere = (*applied(gtid("0-1-5"))).clone();
    nowhere.position = None;
    worker.feed.send_replace(Arc::new(nowhere));
    let read = worker.arrive();
    let probe = worker.send().unwrap();
    worker.answer(probe, Ok(at(1, 700)));
    assert_eq!(worker.apply(gtid("0-1-5")), (true, false));
    assert_eq!(read.poll(), Poll::Pending);
    let probe = worker.send().unwrap();
    worker.answer(probe, Ok(gtid("0-1-6")));
    let late = worker.arrive();
    assert_eq!(worker.apply(gtid("0-1-6")), (true, false));
    assert_eq!((read.poll(), late.poll()), (Poll::Ready(Ok(())), Poll::Pending));
    // The other way round.
    let probe = worker.send().unwrap();
    worker.answer(probe, Ok(gtid("0-1-7")));
    assert_eq!(worker.apply(at(1, 900)), (true, false));
    let probe = worker.send().unwrap();
    worker.answer(probe, Ok(at(1, 900)));
    assert_eq!(late.poll(), Poll::Ready(Ok(())));
    assert!(counted(Ok(gtid("0-1-1")), &applied(at(1, 900))).is_ok());
}

#[test]
fn who_waits_in_vain_is_told_why() {
    let reason = |answer: Option<Result<Position, Arc<str>>>| {
        let worker = Worker::new();
        let read = worker.arrive();
        if let Some(answer) = answer {
            let probe = worker.send().unwrap();
            worker.answer(probe, answer);
        }
        assert_eq!(read.poll(), Poll::Pending);
        worker.settle(Duration::from_secs(2));
        match read.poll() {
            Poll::Ready(Err(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let begin = "memory was not as new as the read demands within 1000 ms: ";
    assert_eq!(reason(Some(Err("gone".into()))), format!("{begin}gone"));
    assert_eq!(
        reason(Some(Ok(at(1, 7)))),
        format!("{begin}the binary log is applied up to 000001:0, and the primary is at 000001:7")
    );
    assert_eq!(reason(None), format!("{begin}no answer from the primary"));
}

#[test]
fn a_probe_of_one_worker_serves_the_reads_of_another() {
    let probes = Arc::default();
    let (one, other) = (Worker::beside(&probes), Worker::beside(&probes));
    let (own, early) = (one.arrive(), other.arrive());
    let probe = one.send().unwrap();
    let late = other.arrive();
    assert!(other.send().is_none(), "one asks for both");
    one.answer(probe, Ok(at(1, 5)));
    one.apply(at(1, 5));
    assert_eq!(own.poll(), Poll::Ready(Ok(())));
    assert_eq!(other.hear(), (true, true), "not applied, as far as it has seen");
    assert_eq!((early.poll(), late.poll()), (Poll::Pending, Poll::Pending));
    assert_eq!(other.apply(at(1, 9)), (true, false));
    assert_eq!((early.poll(), late.poll()), (Poll::Ready(Ok(())), Poll::Pending));
    let probe = other.send().unwrap();
    other.answer(probe, Ok(at(1, 9)));
    assert_eq!(late.poll(), Poll::Ready(Ok(())));
}

/// The first of these servers is the primary.
fn cluster(listeners: [&TcpListener; 2]) -> config::Cluster {
    let mut servers = listeners.map(|listener| {
        config::Server::new(config::ServerAddress::Host {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
        })
    });
    servers[0].role = Some(config::Role::Primary);
    let mut config = config::Cluster::new("main", servers.to_vec());
    (config.connect_timeout, config.login_timeout) = (10 * LIMIT, 10 * LIMIT);
    config
}

/// Its worker hears what others were told, and asks who is the primary now.
#[tokio::test]
async fn a_probe_that_hangs_keeps_nobody_waiting() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let next = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster_of = upstream::Cluster::new(cluster([&silent, &next])).unwrap();
    let probes: Arc<Probes> = Arc::default();
    let metrics = Telemetry::new(1, |_| "").worker(0);
    let index = Index::new(Arc::clone(&probes), 10 * LIMIT, metrics);
    let (feed_status, _fills) =
        crate::feed::FeedStatus::new((*applied(at(1, 0))).clone(), crate::Tracking::new(1000));
    let config = config::Cache::new("main");
    let primary = Rc::new(Primary::new(
        &config,
        Arc::clone(&cluster_of),
        Arc::clone(&feed_status),
    ));
    let local = LocalSet::new();
    let reads = local.run_until(async {
        spawn_local(Rc::clone(&index).drive(primary, feed_status.applied()));
        let other_asks = async {
            yield_now().await;
            // Overdue.
            let probe = probes.send(Instant::now() + LIMIT).unwrap();
            probes.end(probe, &Ok(at(1, 0)));
        };
        let first = async {
            let hangs = silent.accept().await.unwrap();
            other_asks.await;
            hangs
        };
        let (read, _hangs) = tokio::join!(index.fresh(), first);
        read.unwrap();
        // Nobody waits now, and its own probe has not ended.
        yield_now().await;
        let other_asks = async {
            yield_now().await;
            let probe = probes.send(Instant::now() + LIMIT).unwrap();
            probes.end(probe, &Ok(at(1, 0)));
        };
        tokio::join!(index.fresh(), other_asks).0.unwrap();
        let changes = async {
            yield_now().await;
            cluster_of.reload(cluster([&next, &silent])).unwrap();
            next.accept().await.unwrap()
        };
        tokio::select! {
            read = index.fresh() => panic!("{read:?}"),
            _ = changes => {}
        }
    });
    timeout(30 * LIMIT, reads).await.unwrap();
}
