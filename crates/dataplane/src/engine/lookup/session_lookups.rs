//! The point lookups of a session of mode `split`.

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

/// The state that a session has where `point_lookups` is on.
pub(crate) struct SessionLookups {
    pub(crate) lookups: Rc<dyn Lookups>,
    pub(super) consistency: ReadConsistency,
    pub(super) seen: Option<Seen>,
    /// The next step of the statement under way.
    pub(super) step: Option<LookupStep>,
    /// The lesson to be learned from the answer to the statement under way, and the record of that answer.
    pub(super) recorder: Option<(Lesson, Recorder)>,
    /// The verdict of rules on the lookup under way.
    pub(super) verdict: Option<Rc<Verdict>>,
    /// The rows of the last lookup that was answered from memory, as long as that is what FOUND_ROWS() says.
    pub(super) rows: Option<u64>,
    /// The key of the lookup under way.
    pub(super) key: Vec<u8>,
    pub(super) out: Vec<u8>,
    /// The plans of prepared statements that have only parameters, by their ids.
    pub(super) plans: HashMap<u32, Planned, RandomState>,
    pub(crate) gating: Gating,
    /// Set where the session has a server connection for itself.
    pub(super) on_own: Option<OnOwnConnection>,
}

/// The facts that lookups have to know of a connection on which the session has logged in by itself.
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

/// An environment, and what it was made of.
pub(super) struct Seen {
    pub(super) carried: Rc<PortableState>,
    pub(super) baseline: Rc<Baseline>,
    pub(super) key: Rc<Key>,
    pub(super) status: StatusFlags,
    pub(super) rights: Rights,
    pub(super) environment: Environment,
}

/// The next step of a lookup.
pub(super) enum LookupStep {
    Learn(Lesson),
    Answer(Plan),
}

impl SessionLookups {
    /// The lookups of a session; `None` where those of the listener have none.
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

    /// The lookups of a session that has a server connection for itself. `as_of`: what
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

    /// The facts by which another process goes on with the lookups: how fresh they are, what FOUND_ROWS()
    /// says, and whether the server may show older warnings.
    pub(crate) fn pack(&self) -> (ReadConsistency, Option<u64>, bool) {
        let shows_older = self.on_own.as_ref().is_some_and(|own| own.shows_older);
        (self.consistency, self.rows, shows_older)
    }

    /// Takes these facts in, in the other process, which does not know the rights that the session's own
    /// server goes by: there are no lookups on such a connection until it is reset.
    pub(crate) fn unpack(&mut self, packed: (ReadConsistency, Option<u64>, bool)) {
        let (consistency, rows, shows_older) = packed;
        (self.consistency, self.rows) = (consistency, rows);
        if let Some(own) = &mut self.on_own {
            (own.is_doubtful, own.shows_older) = (true, shows_older);
        }
    }

    /// The point in time whose rights the session's lookups are answered by.
    pub(super) fn rights(&self) -> Rights {
        self.on_own
            .as_ref()
            .map_or(Rights::Pooled, |own| own.rights.said())
    }
}
