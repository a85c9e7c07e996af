//! The new process's side: sessions of its predecessor are taken over.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};

use net::handover::Channel;
use tokio::sync::oneshot;
use tracing::{info, warn};
use zeroize::{Zeroize, Zeroizing};

use super::arriving::{Arriving, OfferAnswer, Verdict};
use super::frame::{self, Kind};
use super::stays::Staying;
use super::{FORMAT, OFFER_MAX, Stays, offer, sizes};
use crate::frontend::gateway::Gateway;
use crate::frontend::message::Message;

/// Offers that are not decided yet: their parts, and the sessions that wait for the last word.
#[derive(Default)]
struct Offers {
    parts: HashMap<u32, Zeroizing<Vec<u8>>>,
    waiting: HashMap<u32, oneshot::Sender<()>>,
}

impl Gateway {
    /// Takes over the sessions that the process before this one gives away, on threads of its own, until that
    /// ends.
    pub fn take_sessions(self: &Arc<Self>, channel: Channel) -> std::io::Result<()> {
        let gateway = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("take-over".into());
        thread.spawn(move || take(&gateway, channel)).map(drop)
    }
}

fn take(gateway: &Weak<Gateway>, channel: Channel) {
    // The form is sent before anything is compared: the other process has to learn, too, that the two do not
    // fit.
    let none = || warn!("the process before this one has ended, or gives no sessions: none has come");
    if channel.send(FORMAT, &[]).is_err() {
        return none();
    }
    match channel.receive() {
        Ok(Some((format, _))) if format == FORMAT => {}
        Ok(Some((format, _))) => {
            let format = String::from_utf8_lossy(&format).into_owned();
            return warn!(
                format,
                "sessions of the process before this one are in another form: they stay there"
            );
        }
        Ok(None) | Err(_) => return none(),
    }
    let channel = Arc::new(channel);
    let Ok(answers) = answering(&channel) else { return };
    let mut offers = Offers::default();
    while let Ok(Some((bytes, sockets))) = channel.receive() {
        let Some(gateway) = gateway.upgrade() else { return };
        let is_understood = offers.take(&gateway, &answers, &bytes, sockets);
        { bytes }.zeroize();
        if is_understood.is_none() {
            break;
        }
    }
    if let Some(gateway) = gateway.upgrade() {
        let taken = gateway.shared().taken.count();
        // Sessions that stayed in a process that was killed have ended with it.
        let stayed = gateway.shared().taken.say(Staying::default()).in_words();
        info!(
            taken,
            stayed, "the process before this one gives no more sessions, or has ended"
        );
    }
}

/// Writes answers on a thread of its own: the thread that reads must not wait for the other process to read.
fn answering(channel: &Arc<Channel>) -> std::io::Result<Sender<OfferAnswer>> {
    let (answers, to_write) = std::sync::mpsc::channel::<OfferAnswer>();
    let channel = Arc::clone(channel);
    let thread = std::thread::Builder::new().name("take-over-ack".into());
    thread.spawn(move || {
        while let Ok((number, answer)) = to_write.recv() {
            let (kind, why) = match answer {
                Ok(()) => (Kind::Accepted, ""),
                Err(why) => (Kind::Refused, why.label()),
            };
            // The old process may have ended, and waits for nothing then.
            let _ = frame::send(&channel, (kind, number), why.as_bytes(), &[]);
        }
    })?;
    Ok(answers)
}

impl Offers {
    /// Takes in a message. `None` for one that no old process sends.
    fn take(
        &mut self,
        gateway: &Gateway,
        answers: &Sender<OfferAnswer>,
        bytes: &[u8],
        sockets: Vec<OwnedFd>,
    ) -> Option<()> {
        let (kind, number, rest) = frame::read(bytes)?;
        match kind {
            Kind::Last => {
                gateway.shared().registry.keep_off(number);
                sizes::begin_with(&gateway.clusters(), rest);
            }
            Kind::Part => {
                let whole = self.parts.entry(number).or_default();
                if whole.len() > OFFER_MAX {
                    return None;
                }
                offer::append(whole, rest);
            }
            Kind::Offer => {
                let mut whole = self.parts.remove(&number).unwrap_or_default();
                offer::append(&mut whole, rest);
                let (ours, is_ours) = oneshot::channel();
                self.waiting.insert(number, ours);
                let verdict = Verdict {
                    answers: answers.clone(),
                    number,
                    why: Some(Stays::Refused),
                    ours: Some(is_ours),
                };
                gateway.arrives(whole, sockets, verdict);
            }
            Kind::Yours => {
                if let Some(ours) = self.waiting.remove(&number) {
                    // The session's worker waits for this, unless the worker has stopped.
                    let _ = ours.send(());
                }
            }
            Kind::Withdrawn => {
                self.parts.remove(&number);
                self.waiting.remove(&number);
            }
            Kind::Staying => {
                let staying = Staying::from_words(&String::from_utf8_lossy(rest));
                gateway.shared().taken.say(staying);
            }
            Kind::Kill => {
                let shared = gateway.shared();
                // A session without a worker has ended meanwhile.
                if let Some(worker) = shared.registry.worker_of(number) {
                    shared.kill(worker, number);
                }
            }
            Kind::Accepted | Kind::Refused => return None,
        }
        Some(())
    }
}

impl Gateway {
    /// Gives an offered session to a worker, or refuses it.
    fn arrives(&self, bytes: Zeroizing<Vec<u8>>, sockets: Vec<OwnedFd>, verdict: Verdict) {
        let Some((head, _)) = offer::split(&bytes) else {
            return verdict.refuse(Stays::Refused);
        };
        let Some(listener) = self.listener_for(|listener| head.is_of(listener)) else {
            return verdict.refuse(Stays::Listener);
        };
        let shared = self.shared();
        let worker = shared.idlest_worker();
        shared.sessions_on[worker].fetch_add(1, Ordering::Relaxed);
        listener.active.fetch_add(1, Ordering::Relaxed);
        let arriving = Arriving {
            head,
            bytes,
            sockets,
            listener,
            verdict,
        };
        shared.tell(worker, Message::TakeOver(Box::new(arriving)));
    }
}
