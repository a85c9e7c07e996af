//! Lookups of a session that has a server connection for itself.
//!
//! The server does not know of a lookup that was answered from memory. If the next statement could tell
//! (`FOUND_ROWS()`, `SHOW WARNINGS`), which is any but a plain SELECT, the server first executes one that
//! leaves the same behind. Answers about its last statement are therefore always about the client's last
//! statement.

use config::ReadConsistency;
use mysql_wire::Command;
use session::{PinReason, Session};
use sql_class::text::begins_with;
use sql_class::{Class, Effects, Facts};

use crate::engine::client_session::ClientSession;
use crate::engine::leased::LeasedConnection;
use crate::engine::lookup::behind;
use crate::engine::lookup::session_lookups::SessionLookups;
use crate::lookups::Left;

/// Silence after which the server gets a lookup, so that it does not end a connection that it takes for idle:
/// 10 seconds, in ticks of the worker's clock.
const QUIET_MAX: u32 = 40;

/// The least `wait_timeout` of a session with lookups, in seconds: the server's clock of a session's silence
/// does not begin anew with a lookup that it does not see, for up to [`QUIET_MAX`].
const WAIT_MIN: u32 = 60;

/// Effects of statements whose stored programs may change the answer to a lookup, and nothing reports it:
/// they may take on another role.
const DOUBTFUL: Effects = Effects::CALLS_PROCEDURE
    .with(Effects::UNKNOWN_FUNCTION)
    .with(Effects::INCOMPLETE);

/// Whether a lookup of the session may be answered from memory.
pub(super) fn check(session: &ClientSession) -> Result<(), Left> {
    let Some(own) = session.lookups.as_ref().and_then(|of| of.on_own.as_ref()) else {
        return Err(Left::Session);
    };
    let mut pins = session.state.pins().iter();
    let is_quiet = session.context.worker.clock.now().wrapping_sub(own.sent) > QUIET_MAX;
    let holds_nothing = !session.binding.is_bound() && pins.all(|pin| pin.reason.ends_with_next_statement());
    if !holds_nothing || is_quiet || own.has_other_role || own.is_doubtful {
        return Err(Left::Session);
    }
    let set = session.state.carried().variable(b"wait_timeout");
    let wait = set.or_else(|| session.state.baseline().variable(b"wait_timeout"));
    let wait = wait.and_then(|wait| std::str::from_utf8(wait).ok()?.parse::<u32>().ok());
    match wait {
        Some(WAIT_MIN..) => Ok(()),
        _ => Err(Left::Settings),
    }
}

/// Whether the server has to know of the lookup before, for the statement to come could tell. `text`: the
/// statement's, where it is known.
pub(crate) fn owes(session: &ClientSession, facts: &Facts, text: &[u8]) -> bool {
    let Some(own) = session.lookups.as_ref().and_then(|of| of.on_own.as_ref()) else {
        return false;
    };
    let is_plain = facts.class == Class::Read && facts.effects == Effects::NONE && facts.statements == 1;
    let takes_its_place = is_plain && begins_with(text, "SELECT") && !own.shows_older;
    behind::found_rows(session).is_some() && !takes_its_place
}

/// Whether the server has to know of the lookup before, for a command that is no statement.
pub(crate) fn command_owes(session: &ClientSession, command: Command) -> bool {
    let tells = !matches!(
        command,
        Command::PING
            | Command::STATISTICS
            | Command::STMT_FETCH
            | Command::STMT_SEND_LONG_DATA
            | Command::STMT_RESET
            | Command::STMT_CLOSE
            | Command::RESET_CONNECTION
            | Command::CHANGE_USER
            | Command::QUIT
    );
    let is_own = session.lookups.as_ref().is_some_and(|of| of.on_own.is_some());
    tells && is_own && behind::found_rows(session).is_some()
}

impl SessionLookups {
    /// Notes that a lookup is about to be answered from memory.
    pub(super) fn note_answered(&mut self, session: &Session, leased: Option<&mut LeasedConnection>) {
        let Some(own) = &mut self.on_own else { return };
        own.shows_older |= session.has_pin(PinReason::Diagnostics);
        if let Some(leased) = leased {
            // The server's count of found rows is that of an older statement.
            leased.left.has_count = false;
        }
    }

    /// Notes a command that is about to be sent, with the class and the effects of its statement, if it has
    /// one.
    pub(super) fn note_sent(&mut self, command: Command, (class, effects): (Class, Effects), now: u32) {
        let Some(own) = &mut self.on_own else { return };
        own.sent = now;
        let keeps_rights = match command {
            Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => {
                let changes = Effects::CHANGES_DATABASE
                    .with(Effects::SET_ROLE)
                    .with(Effects::INCOMPLETE);
                own.has_other_role |= effects.contains(Effects::SET_ROLE);
                own.is_doubtful |= class == Class::Unknown || effects.intersects(DOUBTFUL);
                own.shows_older = false;
                class != Class::Session && class <= Class::Write && !effects.intersects(changes)
            }
            Command::RESET_CONNECTION => {
                own.is_doubtful = false;
                false
            }
            Command::INIT_DB => false,
            _ => true,
        };
        if !keeps_rights {
            own.rights.renew(self.lookups.rights_of_login(), now);
        }
    }

    /// Whether a lookup that waits for all that anybody has written makes the session's rights certain:
    /// without that it shares nothing with others after the next grant.
    pub(super) fn makes_rights_certain(&self, now: u32) -> bool {
        let definitions = self.lookups.definitions();
        self.on_own
            .as_ref()
            .is_some_and(|own| own.rights.may_become_certain(definitions, now))
    }

    /// Notes that a lookup was answered which was as fresh as `level`, and began to wait at `began`.
    pub(super) fn note_waited_for(&mut self, level: ReadConsistency, began: u32) {
        if level == ReadConsistency::Strong
            && let Some(own) = &mut self.on_own
        {
            own.rights.note_fresh(self.lookups.definitions(), began);
        }
    }
}
