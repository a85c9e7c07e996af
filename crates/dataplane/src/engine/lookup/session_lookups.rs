//! What a session of mode `split` has of point lookups.

use std::collections::HashMap;
use std::rc::Rc;

use config::ReadConsistency;
use foldhash::fast::RandomState;
use mysql_wire::StatusFlags;
use routing::rules::Verdict;
use session::{Baseline, PortableState};
use upstream::Key;

use crate::engine::lookup::own_rights::SessionRights;
use crate::frontend::listener_state::ListenerState;
use crate::frontend::worker::Worker;
use crate::lookups::{Environment, Lesson, Lookups, Plan, Recorder, Rights};
use crate::read_gate::Gating;

/// What a session has where `point_lookups` is on.
pub(crate) struct SessionLookups {
    pub(crate) lookups: Rc<dyn Lookups>,
    pub(super) consistency: ReadConsistency,
    pub(super) seen: Option<Seen>,
    /// What is to be done about the statement under way.
    pub(super) step: Option<LookupStep>,
    /// Where the answer to the statement under way is recorded, to learn this from it.
    pub(super) recorder: Option<(Lesson, Recorder)>,
    /// What rules say of the lookup under way.
    pub(super) verdict: Option<Rc<Verdict>>,
    /// The rows of the last lookup that was answered from memory, as long as that is what FOUND_ROWS() says.
    pub(super) rows: Option<u64>,
    /// Of the lookup under way.
    pub(super) key: Vec<u8>,
    pub(super) out: Vec<u8>,
    /// How prepared statements were answered that have only parameters, by their ids.
    pub(super) plans: HashMap<u32, Planned, RandomState>,
    pub(crate) gating: Gating,
    /// Where the session has a server connection for itself.
    pub(super) on_own: Option<OnOwnConnection>,
}

/// What lookups have to know of a connection on which the session has logged in by itself.
pub(super) struct OnOwnConnection {
    pub(super) rights: SessionRights,
    /// A statement may have changed the current role. A reset need not bring the first one back.
    pub(super) has_other_role: bool,
    /// A statement may have done anything, until a reset.
    pub(super) is_doubtful: bool,
    /// When a command went to the server last, in ticks of the worker's clock.
    pub(super) sent: u32,
    /// The server may still show warnings or an error from before the lookup that was answered last.
    pub(super) shows_older: bool,
}

/// See [`SessionLookups::plans`].
pub(super) struct Planned {
    pub(super) text: Rc<[u8]>,
    pub(super) environment: Environment,
    pub(super) plan: Plan,
}

/// What the environment was made of.
pub(super) struct Seen {
    pub(super) carried: Rc<PortableState>,
    pub(super) baseline: Rc<Baseline>,
    pub(super) key: Rc<Key>,
    pub(super) status: StatusFlags,
    pub(super) rights: Rights,
    pub(super) environment: Environment,
}

/// What is to be done about a lookup.
pub(super) enum LookupStep {
    Learn(Lesson),
    Answer(Plan),
}

impl SessionLookups {
    /// `None` where the listener's sessions have no lookups.
    pub(crate) fn new(worker: &Worker, listener: &ListenerState) -> Option<Box<Self>> {
        let lookups = worker.lookups(&listener.config)?;
        Some(Box::new(Self {
            lookups,
            consistency: listener.config.lookup_consistency,
            seen: None,
            step: None,
            recorder: None,
            verdict: None,
            rows: None,
            key: Vec::new(),
            out: Vec::new(),
            plans: HashMap::default(),
            gating: Gating::default(),
            on_own: None,
        }))
    }

    /// The same for a session that has a server connection for itself. `as_of`: what
    /// [`rights_of_login`](crate::lookups::Lookups::rights_of_login) said before its login.
    pub(crate) fn on_own_connection(
        worker: &Worker,
        listener: &ListenerState,
        as_of: Option<u64>,
        session: u32,
    ) -> Option<Box<Self>> {
        let mut lookups = Self::new(worker, listener)?;
        let now = worker.clock.now();
        lookups.on_own = Some(OnOwnConnection {
            rights: SessionRights::new(session, as_of, now),
            has_other_role: false,
            is_doubtful: false,
            sent: now,
            shows_older: false,
        });
        Some(lookups)
    }

    /// What another process has to know to go on with them: how fresh they are, what FOUND_ROWS() says, and
    /// whether the server has yet to hear of one.
    pub(crate) fn pack(&self) -> (ReadConsistency, Option<u64>, bool) {
        let shows_older = self.on_own.as_ref().is_some_and(|own| own.shows_older);
        (self.consistency, self.rows, shows_older)
    }

    /// The same in the other process. It does not know which rights the session's own server has: there are
    /// no lookups on such a connection until it is reset.
    pub(crate) fn unpack(&mut self, packed: (ReadConsistency, Option<u64>, bool)) {
        let (consistency, rows, shows_older) = packed;
        (self.consistency, self.rows) = (consistency, rows);
        if let Some(own) = &mut self.on_own {
            (own.is_doubtful, own.shows_older) = (true, shows_older);
        }
    }

    /// As of when servers have the rights by which the session's lookups are answered.
    pub(super) fn rights(&self) -> Rights {
        self.on_own
            .as_ref()
            .map_or(Rights::Pooled, |own| own.rights.said())
    }
}
