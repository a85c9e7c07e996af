use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::coop;
use tokio::time::timeout;

use super::super::tests::{Worker, at};
use super::*;

/// A connection with a gate, and its client.
struct Guarded {
    gate: Gate,
    stream: TcpStream,
    client: TcpStream,
}

impl Guarded {
    async fn new(worker: &Worker) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let gate = worker.index.gate(Waker::noop());
        Self { gate, stream, client }
    }

    /// What is read, as text, and whether memory is fresh enough for it.
    fn read(&mut self, task: &Waker) -> Poll<(String, bool)> {
        let (mut bytes, stream) = (vec![0; 100], &mut self.stream);
        let mut context = Context::from_waker(task);
        let read = self.gate.poll_read(&mut context, |cx| {
            let mut room = tokio::io::ReadBuf::new(&mut bytes);
            let read = tokio::io::AsyncRead::poll_read(std::pin::Pin::new(stream), cx, &mut room);
            read.map_ok(|()| room.filled().len())
        });
        read.map(|read| {
            let (n, is_fresh) = read.unwrap();
            (String::from_utf8(bytes[..n].to_vec()).unwrap(), is_fresh)
        })
    }

    fn look(&mut self) -> Poll<(String, bool)> {
        self.read(Waker::noop())
    }

    /// The client sends this, which rings.
    async fn say(&mut self, worker: &Worker, text: &str) {
        // What has rung before has been passed.
        assert_eq!(worker.index.state.borrow_mut().gates.admit(), 0);
        self.client.write_all(text.as_bytes()).await.unwrap();
        while worker.index.inbox.rings().all.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// The same, where nobody is at the gate. Looks until it is there, without reading it.
    async fn say_past(&mut self, text: &str) {
        self.client.write_all(text.as_bytes()).await.unwrap();
        self.stream.readable().await.unwrap();
    }
}

fn ask(worker: &Worker) {
    worker.index.admit();
    let probe = worker.send().unwrap();
    worker.answer(probe, Ok(at(1, 0)));
}

fn came(text: &str, is_fresh: bool) -> Poll<(String, bool)> {
    Poll::Ready((text.to_owned(), is_fresh))
}

/// Runs a test on a thread that reads sockets.
fn with_sockets(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        timeout(Duration::from_secs(30), test).await.unwrap();
    });
}

#[test]
fn what_rang_is_fresh_when_its_probe_is_answered() {
    with_sockets(async {
        let worker = Worker::new();
        let mut guarded = Guarded::new(&worker).await;
        assert_eq!(guarded.look(), Poll::Pending);
        guarded.say(&worker, "one").await;
        ask(&worker);
        assert_eq!(guarded.look(), came("one", true));
        assert_eq!(guarded.look(), Poll::Pending);
        guarded.say(&worker, "two").await;
        assert_eq!(guarded.look(), came("two", false), "nobody has asked");
    });
}

#[test]
fn a_probe_that_was_sent_before_the_bell_rang_is_not_enough() {
    with_sockets(async {
        let worker = Worker::new();
        let mut guarded = Guarded::new(&worker).await;
        let _early = worker.arrive();
        let early = worker.send().unwrap();
        assert_eq!(guarded.look(), Poll::Pending);
        guarded.say(&worker, "late").await;
        worker.index.admit();
        worker.answer(early, Ok(at(1, 0)));
        let next = worker.send().unwrap();
        worker.answer(next, Ok(at(1, 5)));
        assert_eq!(guarded.look(), came("late", false), "not applied yet");
        assert_eq!(guarded.look(), Poll::Pending);
        guarded.say(&worker, "again").await;
        worker.index.admit();
        let last = worker.send().unwrap();
        worker.answer(last, Ok(at(1, 5)));
        worker.apply(at(1, 5));
        assert_eq!(guarded.look(), came("again", true));
    });
}

/// The task runs for another reason, and finds bytes.
#[test]
fn who_passes_before_has_rung_for_nothing() {
    with_sockets(async {
        let worker = Worker::new();
        let mut guarded = Guarded::new(&worker).await;
        // Before it was taken up, and after.
        for is_admitted in [false, true] {
            assert_eq!(guarded.look(), Poll::Pending);
            guarded.say(&worker, "one").await;
            if is_admitted {
                worker.index.admit();
            }
            assert_eq!(guarded.look(), came("one", false));
            assert_eq!(guarded.look(), Poll::Pending);
            worker.index.admit();
            let probe = worker.send().unwrap();
            guarded.say_past("two").await;
            worker.answer(probe, Ok(at(1, 0)));
            assert_eq!(
                guarded.look(),
                came("two", false),
                "it came after the probe was sent"
            );
        }
    });
}

#[test]
fn what_is_said_of_one_wait_is_not_said_of_the_next() {
    with_sockets(async {
        let worker = Worker::new();
        let mut guarded = Guarded::new(&worker).await;
        assert_eq!(guarded.look(), Poll::Pending);
        guarded.say(&worker, "one").await;
        ask(&worker);
        // Somebody else has read it.
        let mut bytes = [0; 10];
        assert_eq!(guarded.stream.read(&mut bytes).await.unwrap(), 3);
        assert_eq!(guarded.look(), Poll::Pending);
        guarded.say_past("two").await;
        assert_eq!(guarded.look(), came("two", false));
    });
}

/// The next gate has its number.
#[test]
fn a_gate_that_is_gone_rings_for_nobody() {
    with_sockets(async {
        let worker = Worker::new();
        let mut gone = Guarded::new(&worker).await;
        for is_admitted in [false, true] {
            assert_eq!(gone.look(), Poll::Pending);
            gone.say(&worker, "one").await;
            if is_admitted {
                worker.index.admit();
            }
            let number = gone.gate.number;
            drop(gone);
            let mut next = Guarded::new(&worker).await;
            assert_eq!(next.gate.number, number);
            assert_eq!(next.look(), Poll::Pending);
            ask(&worker);
            next.say_past("two").await;
            assert_eq!(next.look(), came("two", false));
            gone = next;
        }
    });
}

#[test]
fn nobody_waits_for_long() {
    with_sockets(async {
        let worker = Worker::new();
        let mut guarded = Guarded::new(&worker).await;
        assert_eq!(guarded.look(), Poll::Pending);
        guarded.say(&worker, "one").await;
        worker.index.admit();
        assert_eq!(worker.settle(Duration::ZERO), (true, false));
        assert_eq!(
            worker.settle(2 * WAIT_MAX + Duration::from_secs(30)),
            (false, false)
        );
        assert_eq!(guarded.look(), came("one", false));
    });
}

/// tokio wakes those again that have done much in one turn: that is no ring.
#[test]
fn a_task_that_has_done_much_does_not_ring() {
    with_sockets(async {
        let worker = Worker::new();
        let mut guarded = Guarded::new(&worker).await;
        poll_fn(|cx| {
            while coop::has_budget_remaining() {
                let Poll::Ready(progress) = coop::poll_proceed(cx) else {
                    break;
                };
                progress.made_progress();
            }
            assert_eq!(guarded.look(), Poll::Pending);
            Poll::Ready(())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(worker.index.state.borrow_mut().gates.admit(), 0);
        guarded.say(&worker, "one").await;
        assert_eq!(worker.index.state.borrow_mut().gates.admit(), 1);
    });
}
