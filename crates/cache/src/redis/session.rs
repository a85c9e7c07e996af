//! What a Redis connection is: its user, its protocol, its level, its transaction.

use std::sync::Arc;

use config::ReadConsistency;
use dataplane::extension::ProtocolSession;
use dataplane::password_login::Identity;
use mysql_wire::gtid::GtidSet;
use resp_wire::{Limits, Version};

use super::clients::Listed;
use super::tracking::Tracked;
use super::transaction::Queue;
use crate::tracking::Mailbox;

/// The state of a connection between two commands.
pub(crate) struct Session {
    /// Which replies it reads.
    pub(crate) version: Version,
    /// Who it is, once it has logged in.
    pub(crate) identity: Option<Identity>,
    /// How fresh its reads are.
    pub(crate) level: ReadConsistency,
    /// It was set by the request under way.
    pub(crate) level_is_new: bool,
    /// In `session` level: the transactions that its reads must see.
    pub(crate) seen: Option<Box<GtidSet>>,
    /// The commands between MULTI and EXEC.
    pub(crate) queue: Option<Box<Queue>>,
    pub(crate) replies: Replies,
    pub(crate) listed: Listed,
    /// The mappings whose tables the user is known to be allowed to read.
    pub(crate) rights: super::rights::Known,
    /// It is told when rows change.
    pub(crate) tracking: Option<Box<Tracked>>,
    /// It has subscribed to being told on behalf of others.
    pub(crate) letters: Option<Arc<Mailbox>>,
}

/// Which replies a client wants (`CLIENT REPLY`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replies {
    On,
    Off,
    /// All but that of the next command.
    SkipNext,
}

impl Session {
    /// That of a client that has just come.
    pub(crate) fn new(control: &ProtocolSession, listed: Listed) -> Self {
        Self {
            version: Version::V2,
            identity: None,
            level: control.listener().lookup_consistency,
            level_is_new: false,
            seen: None,
            queue: None,
            replies: Replies::On,
            listed,
            rights: super::rights::Known::default(),
            tracking: None,
            letters: None,
        }
    }

    /// What it may send.
    #[inline]
    pub(crate) fn limits(&self) -> &'static Limits {
        match self.identity {
            Some(_) => &Limits::LOGGED_IN,
            None => &Limits::STRANGER,
        }
    }

    /// What it reads is as new as all that was acknowledged before.
    #[inline]
    pub(crate) fn reads_strongly(&self) -> bool {
        self.level == ReadConsistency::Strong
    }

    /// Its reads are this fresh from here on. `seen`: see the field.
    pub(crate) fn set_level(&mut self, level: ReadConsistency, seen: Option<Box<GtidSet>>) {
        (self.level, self.seen, self.level_is_new) = (level, seen, true);
    }

    /// Somebody logged in.
    pub(crate) fn admit(&mut self, identity: Identity) {
        self.listed.tell(|told| told.user = identity.user().into());
        self.identity = Some(identity);
        self.rights = super::rights::Known::default();
    }

    /// It tracks like this from here on.
    pub(crate) fn track(&mut self, tracking: Option<Box<Tracked>>) {
        self.listed
            .tracks(tracking.as_deref().map(|tracked| tracked.redirection));
        self.tracking = tracking;
    }

    /// As at first (`RESET`).
    pub(crate) fn reset(&mut self, control: &ProtocolSession) {
        self.listed
            .tell(|told| *told = super::clients::ClientNames::default());
        self.speak(Version::V2);
        self.track(None);
        self.unsubscribe();
        self.identity = None;
        self.set_level(control.listener().lookup_consistency, None);
        self.queue = None;
        self.replies = Replies::On;
        self.rights = super::rights::Known::default();
    }

    /// It is told on behalf of others from here on.
    pub(crate) fn subscribe(&mut self) {
        self.letters = Some(self.listed.subscribe());
    }

    pub(crate) fn unsubscribe(&mut self) {
        if self.letters.take().is_some() {
            self.listed.unsubscribe();
        }
    }

    /// In RESP2 a connection that has subscribed says nothing else until it has done with that.
    #[inline]
    pub(crate) fn only_listens(&self) -> bool {
        self.letters.is_some() && self.version == Version::V2
    }

    /// Another protocol from here on. In RESP2 a connection cannot be told by itself what it has not asked
    /// for.
    pub(crate) fn speak(&mut self, version: Version) {
        let tracked = self.tracking.as_deref();
        if version == Version::V2 && tracked.is_some_and(|tracked| tracked.redirection == 0) {
            self.track(None);
        }
        self.version = version;
        self.listed.speaks(version);
    }
}
