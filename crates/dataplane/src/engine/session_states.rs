//! A session of mode `session` on TiDB goes to another server: TiDB reports nothing of what a session does,
//! but tells on request what a session holds, and gives a token for a login in its name elsewhere.
//!
//! The statements and the plugin: `2022-07-20-session-manager.md` in
//! <https://github.com/pingcap/tidb/tree/master/docs/design>.
//! TiDB refuses to tell what it cannot take along (locks, temporary tables, rows of a cursor that are still
//! to be fetched), and the session stays. The session also stays where the token would go over a plain link.

use std::rc::Rc;
use std::sync::Arc;

use mysql_wire::StatusFlags;
use net::Peer;
use session::PinReason;
use upstream::{Connection, Credential, CredentialSecret, ForSession, LeaseError};

use crate::control::Waiting;
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::connection_state::ConnectionState;
use crate::engine::move_target::{self, Cause, Stays};
use crate::engine::{ask, lease, rebuild};

const ASK: &str = "SHOW SESSION_STATES";

/// Longest answer, as long as a packet may be on TiDB by default. With a longer answer the connection would
/// be lost.
const ANSWER_MAX: usize = 64 << 20;
/// A session with more stays: it would have to be sent in several packets.
const STATES_MAX: usize = 8 << 20;

/// Reasons to hold a connection that a session's states say nothing of, or may say nothing of.
const NOT_SAID: [PinReason; 2] = [PinReason::Role, PinReason::Incomplete];

/// The answer of a server about a session that is to leave it.
struct States {
    /// The states of the session, in JSON.
    states: Vec<u8>,
    /// The token, good for a login within a minute.
    token: Vec<u8>,
}

/// Has the session go to another server, which is told what the session holds.
pub(super) async fn leave(session: &mut ClientSession, cause: Cause) -> Result<(), Stays> {
    let states = ask_states(session).await?;
    let mut connection = open(session, cause, &states.token).await?;
    if let Err(stays) = set(session, &mut connection, &states.states).await {
        connection.quit();
        return Err(stays);
    }
    if let Some(mut old) = lease::detach(session) {
        // The other server gives the session's statements the ids that they had here.
        std::mem::swap(&mut connection.state.statements, &mut old.state.statements);
        move_target::go_on(session, connection, None);
        old.quit();
    }
    Ok(())
}

async fn ask_states(session: &mut ClientSession) -> Result<States, Stays> {
    if let Some(pin) = session
        .state
        .pins()
        .iter()
        .find(|pin| NOT_SAID.contains(&pin.reason))
    {
        return Err(Stays::new(pin.reason, pin.reason.label()));
    }
    session.control.mark(Waiting::Server);
    let capabilities = session.client.key.capabilities;
    let question = [ask::query(capabilities, ASK)];
    let asked = lease::ask_on_lease_within(session, &question, ANSWER_MAX).await;
    let replies = asked.map_err(Stays::of_own_connection)?;
    if let Some(packet) = replies.first().and_then(|reply| reply.error(capabilities)) {
        let said = String::from_utf8_lossy(&packet.message);
        return Err(Stays::incompatible(said));
    }
    match replies.first().and_then(ask::Reply::row) {
        Some([Some(states), _]) if states.len() > STATES_MAX => {
            let cause = format!("its state has more than {STATES_MAX} bytes");
            Err(Stays::incompatible(cause))
        }
        Some([Some(states), Some(token)]) => Ok(States {
            states: states.to_vec(),
            token: token.to_vec(),
        }),
        _ => Err(Stays::incompatible(ask::unexpected(ASK))),
    }
}

/// A connection for the session alone, to one of the other servers.
async fn open(
    session: &ClientSession,
    cause: Cause,
    token: &[u8],
) -> Result<Connection<ConnectionState>, Stays> {
    let Some(permit) = move_target::permit(session, cause) else {
        return Err(Stays::new(PinReason::NoServer, "no other server has room"));
    };
    let credential = Credential {
        user: Arc::clone(&session.client.account.user.name),
        // No account of the configuration has this number.
        account: 1,
        secret: CredentialSecret::Password(config::Secret::new("")),
    };
    let local = session.streams.client.local().unwrap_or(Peer::Unix);
    let client = ForSession {
        client: &session.client.host,
        local: &local,
        attributes: session.client.login.attributes.as_deref(),
        token: Some(token),
    };
    let pool = Rc::clone(session.pool());
    let opening = pool.open_for(permit, (&session.client.key, &credential), client);
    let opened = tokio::select! {
        biased;
        signal = session.control.signalled(false) => {
            return Err(Refused(session.signalled(signal)).into());
        }
        opened = opening => opened,
    };
    match opened {
        Ok(connection) => move_target::fits(session, connection),
        Err(error @ (LeaseError::Refused { .. } | LeaseError::Unusable { .. })) => {
            Err(Stays::of_login(&error))
        }
        Err(error) => Err(Stays::new(PinReason::NoServer, error)),
    }
}

async fn set(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
    states: &[u8],
) -> Result<(), Stays> {
    let Ok(states) = str::from_utf8(states) else {
        return Err(Stays::incompatible(
            "its state comes in another charset than UTF-8",
        ));
    };
    let statement = statement(states, connection.status);
    let command = ask::query(connection.capabilities, &statement);
    let replies = rebuild::asked_in_time(session, connection, &[command]).await?;
    move_target::is_done(connection, &replies)
}

fn statement(states: &str, status: StatusFlags) -> String {
    let states = states.replace('\'', "''");
    let states = match status.contains(StatusFlags::NO_BACKSLASH_ESCAPES) {
        true => states,
        false => states.replace('\\', "\\\\"),
    };
    format!("SET SESSION_STATES '{states}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_one_literal_whatever_is_in_them() {
        let said = |status| statement(r#"{"a":"it's \"b\" \\"}"#, status);
        assert_eq!(
            said(StatusFlags(0)),
            r#"SET SESSION_STATES '{"a":"it''s \\"b\\" \\\\"}'"#
        );
        assert_eq!(
            said(StatusFlags::NO_BACKSLASH_ESCAPES),
            r#"SET SESSION_STATES '{"a":"it''s \"b\" \\"}'"#
        );
    }
}
