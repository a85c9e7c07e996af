//! The facts that a session of mode `split` knows of itself before its first command.

use std::rc::Rc;

use mysql_wire::{Capabilities, Login};
use session::{Baseline, ClientTrackers, Start};
use sql_class::Dialect;
use upstream::ServerProfile;

use crate::engine::client_session::ClientSession;
use crate::frontend::authenticate::Authenticated;
use crate::frontend::listener_state::ListenerState;

/// The facts that a session knows of itself before its first command.
pub(super) fn start(
    account: &Authenticated,
    login: &Login,
    profile: &ServerProfile,
    listener: &ListenerState,
    baseline: Rc<Baseline>,
) -> Start {
    let tracks = login.capabilities.contains(Capabilities::SESSION_TRACK);
    Start {
        schema: login.database.clone().filter(|name| !name.is_empty()),
        dialect: dialect(&profile.server_version),
        multi_statements: login.capabilities.contains(Capabilities::MULTI_STATEMENTS),
        wants: if tracks {
            ClientTrackers::server_defaults()
        } else {
            ClientTrackers::none()
        },
        baseline,
        session_pooling: account.user.config.pooling == config::Pooling::Session,
        trusts_functions: listener.cluster.config().trust_functions,
        statements_max: STATEMENTS_MAX,
    }
}

/// The start of a session that is there already.
pub(super) fn start_of(session: &ClientSession, baseline: Rc<Baseline>) -> Start {
    let (account, login) = (&session.client.account, &session.client.login);
    start(
        account,
        login,
        &session.client.profile,
        &session.context.listener,
        baseline,
    )
}

/// Prepared statements of one session: as many as MySQL allows to all sessions together by default
/// (`max_prepared_stmt_count`).
const STATEMENTS_MAX: usize = 16_382;

/// MariaDB's versions contain its name, with or without `5.5.5-` in front.
pub(crate) fn dialect(version: &[u8]) -> Dialect {
    let text = String::from_utf8_lossy(version);
    let is_mariadb = text.contains("MariaDB");
    let text = text.strip_prefix("5.5.5-").unwrap_or(&text);
    let mut numbers = text
        .split(['.', '-'])
        .map(|part| part.parse::<u32>().unwrap_or(0).min(999));
    let mut next = || numbers.next().unwrap_or(0);
    let version = next() * 10_000 + next().min(99) * 100 + next().min(99);
    if is_mariadb {
        Dialect::MariaDb { version }
    } else {
        Dialect::MySql { version }
    }
}
