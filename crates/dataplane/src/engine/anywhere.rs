//! Statements that set nothing but what goes with the session to any connection: `SET NAMES`,
//! `SET autocommit`, `USE`. Drivers begin their sessions with them.
//!
//! Any server can execute them. The primary does as long as it can at once; else a replica does, which may
//! lack a schema or a variable that the primary has. If a replica refuses such a statement, the primary is
//! asked before the client hears of the refusal.

use std::sync::Arc;

use mysql_wire::Command;
use sql_class::{Class, Effects, Facts};
use upstream::{Server, ServerId, Topology};

use crate::command_head::CommandHead;
use crate::engine::choose;
use crate::engine::client_session::ClientSession;
use crate::engine::target::Target;
use crate::engine::{command, rules};

/// Effects that are carried to another connection by what the server reports.
const CARRIED: Effects = Effects::CHANGES_DATABASE.with(Effects::SETS_AUTOCOMMIT);

/// The target of such a COM_QUERY; `None` for any other.
pub(crate) fn target(session: &ClientSession, head: CommandHead, facts: &Facts) -> Option<Target> {
    let is_plain = facts.class == Class::Session
        && CARRIED.contains(facts.effects)
        && facts.statements == 1
        && facts.hint.is_none();
    // A value that is not given in the text is that of the server that is asked.
    let is_given = || {
        facts.effects.contains(Effects::CHANGES_DATABASE)
            || sql_class::assigns_given_values(command::text_of(session, head), session.state.syntax())
    };
    (is_plain && may_go(session) && is_given()).then_some(Target::Anywhere)
}

/// The target of such a command that is no statement.
pub(crate) fn target_of_command(session: &ClientSession, head: CommandHead) -> Option<Target> {
    (head.command == Command::INIT_DB && may_go(session)).then_some(Target::Anywhere)
}

/// Whether the command may go anywhere. Once a replica has refused it, the primary is asked.
fn may_go(session: &ClientSession) -> bool {
    session.lease.is_none()
        && session.statement.attempts.refusals == 0
        && !session.binding.is_for_good()
        && session.client.account.user.config.pooling == config::Pooling::Transaction
        && !rules::routes(session)
}

/// The server that can have such a command at once, and whether that is the primary; `None` where the primary
/// is to be waited for.
pub(crate) fn at_hand(
    session: &ClientSession,
    topology: &Topology,
    tried: &[ServerId],
) -> Option<(Arc<Server>, bool)> {
    let has_room = |server: &Server| session.pool().idle_and_busy(server.id()).0 > 0 || !server.is_full();
    let primary = session.writer(topology).map(|writer| &writer.server);
    let is_ready = |server: &&Arc<Server>| {
        topology.refuse_writes.is_none()
            && server.takes_statements()
            && !server.is_silent()
            && !tried.contains(&server.id())
            && has_room(server)
    };
    if let Some(primary) = primary.filter(is_ready) {
        return Some((Arc::clone(primary), true));
    }
    let replica = choose::replica(session, topology, tried, None, |_| true, false)?;
    let is_primary = session.is_writer(topology, &replica);
    has_room(&replica).then_some((replica, is_primary))
}

/// Whether the command under way, which is kept to be sent again, could be executed elsewhere if its server
/// stood still. `on_primary`: the command is under way there; a read has nowhere to go from there for
/// certain.
pub(crate) fn can_move(session: &ClientSession, on_primary: bool) -> bool {
    let has_place = || match (&session.lease, session.statement.asks_primary) {
        (Some(leased), true) => {
            let tried = [leased.connection.server.id()];
            at_hand(session, &session.pool().topology(), &tried).is_some()
        }
        _ => false,
    };
    session.statement.leaves_nothing
        && session.statement.attempts.lost_on.is_none()
        && rules::sends_again(session)
        && (!on_primary || has_place())
}
