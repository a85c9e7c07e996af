//! A live connection on its way from one worker to another: its socket goes over from runtime to runtime, and
//! what else it has is packed into what is not of one thread.
//!
//! Only one between two exchanges goes: nothing is due from the server, and nothing of it is unread.

use std::any::Any;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_wire::{Capabilities, StatusFlags};
use net::Stream;

use super::Pool;
use super::connection::{Baseline, Idle, Key, Life, Opened, Parts};
use super::metrics::Closed;
use super::setup::Setup;
use super::wait_queue::{Free, Grant, How, Turn};
use crate::permit::Permit;
use crate::server::Server;

/// What the owner of a pool keeps with a connection, where that goes to another worker.
pub trait Travel: Sized {
    /// As much of it as can go to another thread.
    type Luggage: Send + 'static;

    /// Leaves its worker.
    fn pack(self) -> Self::Luggage;

    /// Arrives on another one. `self` is what it would have had if it had been opened there.
    #[must_use]
    fn unpack(self, luggage: Self::Luggage) -> Self;
}

impl Travel for () {
    type Luggage = ();

    fn pack(self) {}

    fn unpack(self, (): ()) {}
}

/// A number goes as it is.
impl Travel for u32 {
    type Luggage = Self;

    fn pack(self) -> Self {
        self
    }

    fn unpack(self, luggage: Self) -> Self {
        luggage
    }
}

/// A connection that no worker has. Dropping it closes it and frees its permit.
pub(crate) struct Parcel {
    stream: Stream,
    luggage: Box<dyn Any + Send>,
    opened: Packed,
    life: Life,
    /// The cluster's number of the configuration by which it was found fit.
    of_config: u64,
}

/// [`Opened`], not of one thread.
struct Packed {
    server: Arc<Server>,
    key: Key,
    capabilities: Capabilities,
    thread_id: u32,
    login_began: Instant,
    version: Vec<u8>,
    status: StatusFlags,
    baseline: Baseline,
    setup: Setup,
}

impl Packed {
    fn of(opened: &Opened) -> Self {
        Self {
            server: Arc::clone(&opened.server),
            key: Key::clone(&opened.key),
            capabilities: opened.capabilities,
            thread_id: opened.thread_id,
            login_began: opened.login_began,
            version: opened.version.clone(),
            status: opened.status,
            baseline: Baseline::clone(&opened.baseline),
            setup: opened.setup.clone(),
        }
    }

    /// `known` are the values of others here, to share when they are equal.
    fn unpack(self, known: Option<Rc<Baseline>>) -> Opened {
        let known = known.filter(|known| **known == self.baseline);
        Opened {
            server: self.server,
            key: Rc::new(self.key),
            capabilities: self.capabilities,
            thread_id: self.thread_id,
            login_began: self.login_began,
            version: self.version,
            status: self.status,
            baseline: known.unwrap_or_else(|| Rc::new(self.baseline)),
            setup: self.setup,
        }
    }
}

impl<S: Travel> Pool<S> {
    /// Who in line is next for a connection with `key` that nobody has used for so long. `may_end`: be it for
    /// its permit.
    pub(super) fn next_for(
        &self,
        server: &Arc<Server>,
        key: &Key,
        unused: Duration,
        may_end: bool,
        now: Instant,
    ) -> Option<Turn> {
        let at_once = self.with_idle(server, |idle_connections| idle_connections.count_taken());
        let free = Free {
            pool: self.member.id,
            key,
            unused,
            at_once,
            may_end,
        };
        server.wait_queue.next_for(free, now)
    }

    /// Gives a connection, or its permit, to one who has waited. It comes back from one who has left at this
    /// moment.
    pub(super) fn deliver(&self, turn: Turn, idle: Idle<S>, now: Instant) -> Option<Idle<S>> {
        match turn.how {
            How::Stays => {
                let at = (idle.opened.server.id(), turn.number);
                self.handed.borrow_mut().insert(at, idle);
                match turn.serve(Grant::Connection) {
                    Ok(()) => None,
                    Err(_) => self.handed.borrow_mut().remove(&at),
                }
            }
            How::Moves => self.send(turn, idle, now),
            How::Ends => {
                // Where there may be one more it is idle beside it.
                if let Some(permit) = self.permit_beside(&idle) {
                    let _ = turn.serve(Grant::Permit(permit));
                    return Some(idle);
                }
                let permit = idle.close(Closed::Handover)?;
                // A permit that cannot be delivered is dropped, which serves the line.
                let _ = turn.serve(Grant::Permit(permit));
                None
            }
        }
    }

    /// A permit without the end of this connection, where the server takes one more.
    fn permit_beside(&self, idle: &Idle<S>) -> Option<Permit> {
        let server = &idle.opened.server;
        if server.is_at_its_limit() || server.wait_queue.full_users.is_any() {
            return None;
        }
        Permit::take(&self.cluster, server)
    }

    /// Gives a connection to one who has waited on another worker. It comes back from one who has left at
    /// this moment.
    fn send(&self, turn: Turn, mut idle: Idle<S>, now: Instant) -> Option<Idle<S>> {
        // It counts there already.
        idle.life.share_of = turn.pool;
        if let Some(reason) = self.unfit(&mut idle, now) {
            let permit = idle.close(reason)?;
            // A permit that cannot be delivered is dropped, which serves the line.
            let _ = turn.serve(Grant::Permit(permit));
            return None;
        }
        let of_config = self.terms().of_config;
        let Parts {
            stream,
            state,
            opened,
            mut life,
        } = *idle.0;
        life.depart();
        let parcel = Parcel {
            stream,
            luggage: Box::new(state.pack()),
            opened: Packed::of(&opened),
            life,
            of_config,
        };
        let (from, to) = (self.member.id, turn.pool);
        match turn.serve(Grant::Live(Box::new(parcel))) {
            Err(Grant::Live(mut back)) => {
                opened.server.wait_queue.goes(to, from, now);
                back.life.share_of = from;
                self.receive(*back).ok()
            }
            _ => None,
        }
    }

    /// A connection that comes from another worker, or the permit that it had.
    pub(super) fn receive(&self, parcel: Parcel) -> Result<Idle<S>, Option<Permit>> {
        let Parcel {
            mut stream,
            luggage,
            opened,
            mut life,
            of_config,
        } = parcel;
        let (metrics, known) = self.with_idle(&opened.server, |idle_connections| {
            (
                Arc::clone(idle_connections.metrics()),
                idle_connections.baseline(&opened.key),
            )
        });
        life.arrive(metrics);
        let terms = {
            let terms = self.terms();
            (terms.of_config == of_config).then_some(terms.number)
        };
        let (Some(terms), Ok(luggage)) = (terms, luggage.downcast::<S::Luggage>()) else {
            return Err(life.end(Closed::Config));
        };
        if stream.adopt().is_err() {
            return Err(life.end(Closed::Broken));
        }
        life.origin.terms = terms;
        let opened = Rc::new(opened.unpack(known));
        Ok(Idle(Box::new(Parts {
            stream,
            state: (self.fresh)(&opened).unpack(*luggage),
            opened,
            life,
        })))
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel")
            .field("server", &self.opened.server.name())
            .field("thread_id", &self.opened.thread_id)
            .finish_non_exhaustive()
    }
}
