//! `FOREBAY SET lookup_consistency = …`: how fresh a session's lookups are from here on. Servers do not know
//! the statement.

use config::ReadConsistency;
use mysql_wire::{OkPacket, write_packet};

use super::{OfSession, Other, forward_statement, say, settings, take_off};
use crate::error::SessionError;
use crate::finished::End;
use crate::lookups;
use crate::relay::Exchanged;
use crate::session::{CommandHead, Session};
use crate::settle;

impl OfSession {
    /// How fresh the next lookup must be. Of what a session has written its server tells only those clients
    /// that ask for it: so the first lookup behind what may have written waits for all that anybody has. So
    /// does one that makes the session's rights certain, without which it shares nothing with others after
    /// the next grant.
    pub(super) fn level(&self, definitions: u64, now: u32) -> ReadConsistency {
        let has_waited =
            self.waited == Some(definitions) && !self.rights.may_become_certain(definitions, now);
        match self.consistency {
            ReadConsistency::Session if !has_waited => ReadConsistency::Strong,
            other => other,
        }
    }

    /// A lookup was answered that has waited for that, and memory had these definitions when it began to.
    pub(super) fn note_waited_for(&mut self, level: ReadConsistency, definitions: u64, began: u32) {
        if level == ReadConsistency::Strong {
            self.waited = Some(definitions);
            self.gating.note_lookup();
            if !self.rights.is_certain() {
                self.rights.note_fresh(self.lookups.definitions(), began);
            }
        }
    }
}

/// A statement for the gateway. One that is not understood is for the server to refuse.
pub(super) async fn statement(
    session: &mut Session,
    of: &mut OfSession,
    head: CommandHead,
    other: &Other,
) -> Result<(), SessionError> {
    let payload = lookups::whole_payload(session.streams.up.unseen(), head.payload_len).unwrap_or_default();
    let text = lookups::text(payload, session.capabilities);
    let Some(wanted) = text.and_then(lookups::wanted_level) else {
        return forward_statement(session, of, head, other).await;
    };
    of.consistency = wanted.unwrap_or(session.listener.config.lookup_consistency);
    let ok = OkPacket {
        status: settings::lasting(session.status),
        ..OkPacket::default()
    };
    let mut payload = Vec::with_capacity(16);
    ok.encode(&mut payload, session.capabilities);
    of.out.clear();
    write_packet(&mut of.out, &mut 1, &payload);
    take_off(session, of, head);
    session.control.record.note_end(End::Gateway);
    let said = say(session, &of.out).await;
    settle::command(session, head, said.map(|()| Exchanged::Sent))
}
