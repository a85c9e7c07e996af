//! The way to the process that takes over: offers, answers, and the threads that carry them.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use net::handover::Channel;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tracing::warn;
use zeroize::Zeroizing;

use super::frame::{self, Kind};
use super::{ANSWER_LIMIT, FORMAT, IN_FLIGHT_MAX, REST, Stays};

/// The way to the process that takes over.
pub(crate) struct Giving {
    /// Messages on their way to the thread that writes them: those of at most [`IN_FLIGHT_MAX`] sessions.
    to_write: Sender<Outgoing>,
    answers: Mutex<HashMap<u32, oneshot::Sender<Result<(), Stays>>>>,
    next: AtomicU32,
    in_flight: Semaphore,
    /// The new process takes sessions of this one.
    is_open: AtomicBool,
    /// Time before which no client waits for the new process again, which has not answered in time.
    rests_until: Mutex<Option<Instant>>,
    went: AtomicU64,
}

enum Outgoing {
    Offer(u32, Zeroizing<Vec<u8>>, Vec<OwnedFd>),
    Yours(u32, oneshot::Sender<bool>),
    Withdrawn(u32),
    Staying(String),
    Kill(u32),
}

impl Giving {
    pub(super) fn start(channel: Channel, (last_id, sizes): (u32, &[u8])) -> io::Result<Arc<Self>> {
        channel.send(FORMAT, &[])?;
        frame::send(&channel, (Kind::Last, last_id), sizes, &[])?;
        let (channel, (to_write, outgoing)) = (Arc::new(channel), std::sync::mpsc::channel());
        let giving = Arc::new(Self {
            to_write,
            answers: Mutex::default(),
            next: AtomicU32::new(1),
            in_flight: Semaphore::new(IN_FLIGHT_MAX),
            // Nothing is offered to a process that has not said that it takes sessions.
            is_open: AtomicBool::new(false),
            rests_until: Mutex::default(),
            went: AtomicU64::new(0),
        });
        let writes = Arc::clone(&channel);
        std::thread::Builder::new()
            .name("hand-over".into())
            .spawn(move || write(&writes, &outgoing))?;
        let reads = Arc::clone(&giving);
        std::thread::Builder::new()
            .name("hand-over-ack".into())
            .spawn(move || reads.read(&channel))?;
        Ok(giving)
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<u32, oneshot::Sender<Result<(), Stays>>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, channel: &Channel) {
        match channel.receive() {
            Ok(Some((format, _))) if format == FORMAT => {
                self.is_open.store(true, Ordering::Relaxed);
                while let Ok(Some((bytes, _))) = channel.receive() {
                    let (number, answer) = match frame::read(&bytes) {
                        Some((Kind::Accepted, number, _)) => (number, Ok(())),
                        Some((Kind::Refused, number, why)) => (number, Err(Stays::by_label(why))),
                        _ => break,
                    };
                    if let Some(waiting) = self.answers().remove(&number) {
                        // The session that waited may have given up.
                        let _ = waiting.send(answer);
                    }
                }
            }
            _ => warn!("upgrade: the new process takes no sessions of this one: they stay until they end"),
        }
        self.is_open.store(false, Ordering::Relaxed);
        self.answers().clear();
    }

    fn tell(&self, message: Outgoing) {
        // The thread lives as long as this does.
        let _ = self.to_write.send(message);
    }

    /// How many sessions have gone.
    pub(super) fn went(&self) -> u64 {
        self.went.load(Ordering::Relaxed)
    }

    /// Says to the new process why other sessions have not gone.
    pub(super) fn say(&self, staying: String) {
        self.tell(Outgoing::Staying(staying));
    }

    /// Has the new process end a session that has gone there.
    pub(crate) fn kill(&self, id: u32) {
        self.tell(Outgoing::Kill(id));
    }

    /// A place on the way, if a session may go now. Only checks that cost nothing are made for it.
    pub(super) fn turn(&self) -> Result<Turn<'_>, Stays> {
        if !self.is_open.load(Ordering::Relaxed) {
            return Err(Stays::Version);
        }
        if self.rests() {
            return Err(Stays::Refused);
        }
        let in_flight = self.in_flight.try_acquire().map_err(|_| Stays::Line)?;
        Ok(Turn {
            giving: self,
            in_flight,
        })
    }

    fn rests(&self) -> bool {
        let until = self.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }
}

/// A place on the way to the other process, for one session.
pub(super) struct Turn<'g> {
    giving: &'g Giving,
    in_flight: SemaphorePermit<'g>,
}

impl<'g> Turn<'g> {
    /// Offers a session. Nothing may be read from the session's client as long as the answer is there.
    pub(super) async fn offer(
        self,
        bytes: Zeroizing<Vec<u8>>,
        sockets: Vec<OwnedFd>,
    ) -> Result<Offered<'g>, Stays> {
        let giving = self.giving;
        let number = giving.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        giving.answers().insert(number, answer);
        let offered = Offered {
            giving,
            number,
            is_theirs: false,
            _in_flight: self.in_flight,
        };
        giving.tell(Outgoing::Offer(number, bytes, sockets));
        match tokio::time::timeout(ANSWER_LIMIT, answered).await {
            Ok(Ok(Ok(()))) => Ok(offered),
            Ok(Ok(Err(why))) => Err(why),
            Ok(Err(_)) => Err(Stays::Version),
            Err(_) => {
                *giving.rests_until.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(Instant::now() + REST);
                Err(Stays::Refused)
            }
        }
    }
}

/// A session that the new process would go on with. The session stays where this is dropped.
pub(super) struct Offered<'g> {
    giving: &'g Giving,
    number: u32,
    is_theirs: bool,
    _in_flight: SemaphorePermit<'g>,
}

impl Offered<'_> {
    /// Gives the session away. False where the new process has ended meanwhile: then it has not begun with
    /// the session.
    pub(super) async fn give(mut self) -> bool {
        let (written, is_written) = oneshot::channel();
        self.giving.tell(Outgoing::Yours(self.number, written));
        self.is_theirs = is_written.await.unwrap_or(false);
        self.is_theirs
    }
}

impl Drop for Offered<'_> {
    fn drop(&mut self) {
        self.giving.answers().remove(&self.number);
        match self.is_theirs {
            true => _ = self.giving.went.fetch_add(1, Ordering::Relaxed),
            false => self.giving.tell(Outgoing::Withdrawn(self.number)),
        }
    }
}

fn write(channel: &Channel, outgoing: &Receiver<Outgoing>) {
    while let Ok(message) = outgoing.recv() {
        let sent = match message {
            Outgoing::Offer(number, bytes, sockets) => frame::send_offer(channel, number, &bytes, &sockets),
            Outgoing::Yours(number, written) => {
                let sent = frame::send(channel, (Kind::Yours, number), &[], &[]);
                let _ = written.send(sent.is_ok());
                sent
            }
            Outgoing::Withdrawn(number) => frame::send(channel, (Kind::Withdrawn, number), &[], &[]),
            Outgoing::Staying(words) => frame::send(channel, (Kind::Staying, 0), words.as_bytes(), &[]),
            Outgoing::Kill(id) => frame::send(channel, (Kind::Kill, id), &[], &[]),
        };
        // A process that does not read would keep sockets of sessions that are withdrawn, and offers would
        // pile up. After any other error the process is gone, or the wait for its answer ends without one.
        if sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            warn!(
                "upgrade: the new process does not read: the sessions that have not gone stay until they end"
            );
            channel.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use net::handover::MESSAGE_MAX;

    use super::*;

    /// The test takes ten seconds: for so long a process that does not read is waited for.
    #[test]
    fn whoever_reads_nothing_is_offered_nothing_more() {
        let (old, new) = Channel::pair().unwrap();
        new.send(FORMAT, &[]).unwrap();
        let giving = Giving::start(old, (0, &[])).unwrap();
        let began = Instant::now();
        let until = |is_open: bool| {
            while giving.turn().is_ok() != is_open {
                assert!(began.elapsed() < Duration::from_secs(60), "{is_open}");
                // No event tells that the channel has opened or closed.
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        until(true);
        // These are more bytes than the kernel takes.
        for _ in 0..300 {
            giving.say("x".repeat(MESSAGE_MAX / 2));
        }
        until(false);
        assert!(matches!(giving.turn(), Err(Stays::Version)));
        while let Some((said, _)) = new.receive().unwrap() {
            assert!(!said.is_empty());
        }
    }
}
