//! A connection on its way to another process, which goes on with the same socket: nothing is asked on it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mysql_wire::{Capabilities, StatusFlags};
use net::Stream;
use serde::{Deserialize, Serialize};

use super::connection::{Baseline, Connection, Idle, Key, Life, Opened, Origin, Parts};
use super::setup::{Setup, Tracked};
use super::{Pool, Travel, begin, now, peer_of, terms_in_words};
use crate::permit::Permit;

/// What a pool has to know of a [`Connection`] that another process has opened. Its socket goes beside it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackedConnection {
    server: String,
    capabilities: Capabilities,
    thread_id: u32,
    login_age_ms: u64,
    /// On which it was opened: see [`terms_in_words`].
    terms: String,
    version: Vec<u8>,
    status: StatusFlags,
    baseline: Baseline,
    tracked: Tracked,
}

impl PackedConnection {
    pub(super) fn of(opened: &Opened) -> Self {
        let age = now().saturating_duration_since(opened.login_began);
        Self {
            server: opened.server.whereabouts(),
            capabilities: opened.capabilities,
            thread_id: opened.thread_id,
            login_age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            terms: terms_in_words(&opened.setup.config),
            version: opened.version.clone(),
            status: opened.status,
            baseline: Baseline::clone(&opened.baseline),
            tracked: Tracked::clone(&opened.setup.tracked),
        }
    }

    /// The name of its server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Whether one that is opened by this configuration would be as good.
    #[must_use]
    pub fn is_on_terms_of(&self, config: &config::Cluster) -> bool {
        self.terms == terms_in_words(config)
    }

    /// The server's number for it.
    #[must_use]
    pub fn thread_id(&self) -> u32 {
        self.thread_id
    }
}

impl<S> Connection<S> {
    /// What another process has to know of it.
    #[must_use]
    pub fn pack(&self) -> PackedConnection {
        PackedConnection::of(&self.opened)
    }
}

impl<S: Travel> Pool<S> {
    /// A connection that another process has opened, in the hands of the session that comes with it.
    pub fn unpack(
        &self,
        stream: Stream,
        key: &Rc<Key>,
        packed: PackedConnection,
        permit: Permit,
    ) -> Connection<S> {
        let server = Arc::clone(permit.server());
        let (config, origin) = self.origin(&server);
        // Whether its server is still there has been seen by the other process, if by any.
        let (peer, moves) = (peer_of(&stream), origin.moves.wrapping_sub(1));
        let age = Duration::from_millis(packed.login_age_ms);
        let opened = Rc::new(Opened {
            server: Arc::clone(&server),
            key: Rc::clone(key),
            capabilities: packed.capabilities,
            thread_id: packed.thread_id,
            login_began: now().checked_sub(age).unwrap_or_else(now),
            version: packed.version,
            status: packed.status,
            baseline: Rc::new(packed.baseline),
            setup: Setup {
                tracked: Arc::new(packed.tracked),
                config,
            },
        });
        let metrics = self.with_idle(&server, |idle_connections| Arc::clone(idle_connections.metrics()));
        let origin = Origin {
            peer,
            moves,
            ..origin
        };
        let mut life = Life::new(metrics, permit, now(), origin);
        life.born = opened.login_began;
        let idle = Idle(Box::new(Parts {
            stream,
            state: (self.fresh)(&opened),
            opened,
            life,
        }));
        begin(idle, now())
    }
}
