//! Accounts that one replica refuses, and other servers let in: the replica may have yet to learn of the
//! account, or somebody has forgotten to tell it. Reads go elsewhere, and do not ask that replica each time.

use upstream::{Credential, LeaseError, Role, Server, Topology};

use crate::engine::client_session::ClientSession;
use crate::error::SessionError;

/// Errors about an account: access is denied, with and without a password; the account is locked, on MySQL,
/// for a while, on MariaDB.
const OF_THE_ACCOUNT: [u16; 5] = [1045, 1698, 3118, 3955, 4151];

/// Whether a server refuses the account, or is of no use to it.
pub(crate) fn is_refused(error: &SessionError) -> bool {
    matches!(
        error,
        SessionError::NoServer(LeaseError::Refused { .. } | LeaseError::Unusable { .. })
    )
}

/// A replica has refused the session's account.
pub(crate) fn note(session: &ClientSession, server: &Server, error: &SessionError) {
    if let SessionError::NoServer(error) = error {
        note_as(session, server, &session.client.account.credential, error);
    }
}

/// A server has refused this account.
pub(crate) fn note_as(session: &ClientSession, server: &Server, credential: &Credential, error: &LeaseError) {
    let LeaseError::Refused { packet, .. } = error else {
        return;
    };
    if !OF_THE_ACCOUNT.contains(&packet.code) {
        return;
    }
    let words = String::from_utf8_lossy(&packet.message);
    let Some(pause) = session.pool().note_denied(server, credential, &words) else {
        return;
    };
    tracing::warn!(
        cluster = session.context.listener.cluster.name(),
        server = server.name(),
        user = &*credential.user,
        reason = &*words,
        pause_seconds = pause.as_secs(),
        "account is refused by a server, and is not tried there for a while"
    );
}

/// Whether this server is not asked, since it has refused the account.
pub(crate) fn is_denied(session: &ClientSession, server: &Server) -> bool {
    session
        .pool()
        .is_denied(server, &session.client.account.credential)
}

/// Whether there are replicas that are not asked.
pub(crate) fn are_there(session: &ClientSession, topology: &Topology) -> bool {
    let mut replicas = topology
        .members
        .iter()
        .filter(|member| member.role == Role::Replica);
    replicas.any(|member| is_denied(session, &member.server))
}
