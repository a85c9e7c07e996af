//! Reads at a fixed rate, an open loop: each is due at its time, however long those before it take, and its
//! latency counts from then.
//!
//! The clients of [`load`](super::load) ask no faster than they are answered, a closed loop. Together they
//! always bring what they measure to its limit, and the reads that would have come while nothing was answered
//! are missing among their latencies.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use hdrhistogram::Histogram;
use inputs::Random;

use super::load::{Replies, Target, Traffic};

/// A load that does less of the rate than this part has not kept it.
const KEPT: f64 = 0.99;

/// Time in which the threads get ready: a read that is due before its thread is there would hold up those
/// behind it.
const HEAD_START: Duration = Duration::from_millis(100);

/// When reads are due that take turns on some connections: at equal distances, from the beginning on.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// A second.
    rate: f64,
    reads: u64,
    clients: usize,
}

impl Pace {
    fn new(rate: f64, duration: Duration, clients: usize) -> Self {
        let reads = (rate * duration.as_secs_f64()).round().max(1.0) as u64;
        Self { rate, reads, clients }
    }

    /// When those of one connection are due. None is reckoned from the one before: nothing adds up.
    fn due(self, client: usize) -> impl Iterator<Item = Duration> {
        let reads = (client as u64..self.reads).step_by(self.clients);
        reads.map(move |read| Duration::from_secs_f64(read as f64 / self.rate))
    }
}

pub(super) struct Paced {
    /// Reads a second that were due, and that were answered.
    pub wanted: f64,
    pub done: f64,
    /// Nanoseconds from when a read was due to the last byte of its reply.
    pub latency: Histogram<u64>,
    /// Nanoseconds of those in which its connection was free, and the read not sent yet: the load's own part.
    pub lateness: Histogram<u64>,
}

impl Paced {
    /// As many reads were answered as were due in the time.
    pub(super) fn kept_the_rate(&self) -> bool {
        self.done >= self.wanted * KEPT
    }
}

/// Open connections, a thread each: a thread that sleeps is on time to some ten microseconds, `epoll` to a
/// millisecond.
pub(super) struct Clients {
    connections: Vec<TcpStream>,
    traffic: Traffic,
}

impl Clients {
    /// Connects, and logs in where there is an account.
    pub(super) fn open(target: &Target, traffic: Traffic) -> anyhow::Result<Self> {
        let connections: anyhow::Result<_> = (0..traffic.clients).map(|_| target.connect()).collect();
        Ok(Self {
            connections: connections?,
            traffic,
        })
    }

    /// Reads `rate` times a second, and waits until every read is answered that was due within `duration`.
    pub(super) fn run(&mut self, rate: f64, duration: Duration) -> anyhow::Result<Paced> {
        ensure!(rate > 0.0, "a rate of {rate} reads a second");
        let pace = Pace::new(rate, duration, self.connections.len());
        let traffic = self.traffic;
        let began = Instant::now() + HEAD_START;
        let (mut latency, mut lateness) = (Histogram::new(3)?, Histogram::new(3)?);
        let mut ended = began + duration;
        thread::scope(|scope| {
            let connections = self.connections.iter_mut().enumerate();
            let clients: Vec<_> = connections
                .map(|(at, stream)| scope.spawn(move || read_when_due(stream, traffic, pace, at, began)))
                .collect();
            for client in clients {
                let client = crate::joined(client, "a client")?;
                latency.add(client.latency)?;
                lateness.add(client.lateness)?;
                ended = ended.max(client.ended);
            }
            anyhow::Ok(())
        })?;
        let elapsed = ended - began;
        Ok(Paced {
            wanted: pace.reads as f64 / duration.as_secs_f64(),
            done: pace.reads as f64 / elapsed.as_secs_f64(),
            latency,
            lateness,
        })
    }
}

/// What came of the reads of one connection, as in [`Paced`].
struct OfOne {
    latency: Histogram<u64>,
    lateness: Histogram<u64>,
    /// When the last was answered.
    ended: Instant,
}

fn read_when_due(
    stream: &mut TcpStream,
    traffic: Traffic,
    pace: Pace,
    client: usize,
    began: Instant,
) -> anyhow::Result<OfOne> {
    let (mut latency, mut lateness) = (Histogram::new(3)?, Histogram::new(3)?);
    let mut random = Random::new(client as u64 + 1);
    let (mut request, mut reply) = (Vec::new(), [0; 4096]);
    let mut free = began;
    for due in pace.due(client) {
        request.clear();
        traffic.request(&mut random, &mut request)?;
        let due = began + due;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        lateness.record(due.max(free).elapsed().as_nanos() as u64)?;
        stream.write_all(&request)?;
        let mut replies = Replies::default();
        loop {
            let read = stream.read(&mut reply)?;
            ensure!(read > 0, "the connection was closed");
            if replies.take(&reply[..read])? > 0 {
                break;
            }
        }
        free = Instant::now();
        latency.record((free - due).as_nanos() as u64)?;
    }
    Ok(OfOne {
        latency,
        lateness,
        ended: free,
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::load::Request;
    use super::*;

    #[test]
    fn reads_are_due_at_equal_distances_whoever_sends_them() {
        let pace = Pace::new(400.0, Duration::from_millis(25), 3);
        assert_eq!(pace.reads, 10);
        let due = |client| pace.due(client).map(|due| due.as_micros()).collect::<Vec<_>>();
        assert_eq!(due(0), [0, 7500, 15_000, 22_500]);
        assert_eq!(due(1), [2500, 10_000, 17_500]);
        assert_eq!(due(2), [5000, 12_500, 20_000]);
        let long = Pace::new(3.0, Duration::from_secs(30_000), 1);
        let last = long.due(0).last().unwrap();
        assert_eq!(last.as_millis(), 29_999_666, "nothing adds up");
        assert_eq!(Pace::new(0.1, Duration::from_secs(1), 3).reads, 1);
    }

    #[test]
    fn who_does_less_has_not_kept_the_rate() {
        let paced = |done| Paced {
            wanted: 1000.0,
            done,
            latency: Histogram::new(3).unwrap(),
            lateness: Histogram::new(3).unwrap(),
        };
        assert!(paced(1000.0).kept_the_rate() && paced(991.0).kept_the_rate());
        assert!(!paced(980.0).kept_the_rate());
    }

    /// One answer takes long. Those behind it are due all the while, and it is not the load that is late.
    #[test]
    fn the_reads_that_wait_behind_another_count_from_when_they_were_due() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target {
            address: listener.local_addr().unwrap(),
            account: None,
        };
        let slow = Duration::from_millis(200);
        let server = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut request = [0; 64];
            for answer in 0..10 {
                let _ = client.read(&mut request).unwrap();
                if answer == 0 {
                    thread::sleep(slow);
                }
                client.write_all(b"$3\r\nabc\r\n").unwrap();
            }
        });
        let traffic = Traffic {
            request: Request::Get,
            clients: 1,
            pipeline: 1,
            rows: 9,
            hits: 100,
        };
        let mut clients = Clients::open(&target, traffic).unwrap();
        let paced = clients.run(100.0, Duration::from_millis(100)).unwrap();
        server.join().unwrap();
        assert_eq!((paced.latency.len(), paced.lateness.len()), (10, 10));
        // The last was due after 90 ms.
        assert!(Duration::from_nanos(paced.latency.min()) >= slow - Duration::from_millis(91));
        assert!(Duration::from_nanos(paced.latency.max()) >= slow);
        assert!(!paced.kept_the_rate(), "{} of {}", paced.done, paced.wanted);
        let own = Duration::from_nanos(paced.lateness.value_at_quantile(0.5));
        assert!(own < slow / 4, "{own:?}");
    }
}
