//! A server that has as many prepared statements as it takes (`max_prepared_stmt_count`): what the gateway
//! keeps there for whoever may execute it next makes room for what is executed now.

use std::sync::Arc;

use mysql_wire::Command;

use crate::engine::client_session::ClientSession;
use crate::engine::connection_state::ConnectionState;
use crate::engine::rebuild;

/// ER_MAX_PREPARED_STMT_COUNT_REACHED.
pub(crate) const NO_ROOM: u16 = 1461;

/// Makes room on the server of the leased connection. False where there is none to be made. Statements of
/// that connection are closed with the next command there; those of one that is idle are closed here.
pub(crate) async fn make(session: &mut ClientSession) -> bool {
    let Some(leased) = &mut session.lease else {
        return false;
    };
    let here = leased.connection.state.statements.give_up_half();
    if here > 0 {
        session.context.worker.metrics.evicted_statements.add(here as u64);
        return true;
    }
    let server = Arc::clone(&leased.connection.server);
    let most = |held: &ConnectionState| held.statements.len();
    let Some(mut other) = session.pool().take_idle(&server, most) else {
        return false;
    };
    let closed = other.state.statements.give_up_half();
    let mut commands = other.state.statements.take_closing();
    // The statements are closed once this is answered, or with their connection.
    commands.push(vec![Command::PING.0]);
    let asked = rebuild::asked_in_time(session, &mut other, &commands).await;
    if asked.is_ok() {
        session.pool().give_back(other);
    }
    let metrics = &session.context.worker.metrics;
    metrics.evicted_statements.add(closed as u64);
    closed > 0
}
