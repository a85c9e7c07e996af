//! The settings that the answer to a lookup depends on, as the session's own server says them.

use mysql_wire::{Capabilities, StatusFlags};
use sql_class::Charset;

use super::{OfSession, QUIET_MAX, Standing, ask_server};
use crate::error::SessionError;
use crate::lookups::{Environment, Left, Surroundings, Variable};
use crate::session::Session;
use crate::split::ask;

/// What the answer to a lookup depends on, on both servers.
const SETTINGS: [&str; 8] = [
    "character_set_client",
    "character_set_results",
    "collation_connection",
    "sql_mode",
    "time_zone",
    "sql_select_limit",
    "session_track_system_variables",
    "wait_timeout",
];

/// What `collation_connection` says as well.
const OF_COLLATION: &str = "character_set_connection";

/// The value of `sql_select_limit` that is none.
const NO_LIMIT: &[u8] = b"18446744073709551615";

/// The least `wait_timeout` of a session with lookups, in seconds: the server's clock of a session's silence
/// does not begin anew with a lookup that it does not see, for up to [`QUIET_MAX`].
const WAIT_MIN: u32 = 60;

/// What of a status lasts from one statement to the next.
const LASTING: StatusFlags = StatusFlags(
    StatusFlags::AUTOCOMMIT.0
        | StatusFlags::NO_BACKSLASH_ESCAPES.0
        | StatusFlags::ANSI_QUOTES.0
        | StatusFlags::IN_TRANS.0
        | StatusFlags::IN_TRANS_READONLY.0,
);

pub(super) fn lasting(status: StatusFlags) -> StatusFlags {
    StatusFlags(status.0 & LASTING.0)
}

/// The session's environment, where a statement of its stands alone and the environment is known.
pub(super) fn ready_now(session: &Session, of: &OfSession) -> Option<Environment> {
    let status = lasting(session.status);
    let stands_alone = status.contains(StatusFlags::AUTOCOMMIT) && !status.contains(StatusFlags::IN_TRANS);
    let is_quiet = session.worker.clock.now().wrapping_sub(of.sent) > QUIET_MAX;
    match of.standing {
        Standing::Known(environment)
            if stands_alone && !is_quiet && !of.next_transaction && of.status == status =>
        {
            Some(environment)
        }
        _ => None,
    }
}

/// The session's environment, where a statement of its stands alone.
pub(super) async fn ready(
    session: &mut Session,
    of: &mut OfSession,
) -> Result<Result<Environment, Left>, SessionError> {
    let status = lasting(session.status);
    let stands_alone = status.contains(StatusFlags::AUTOCOMMIT) && !status.contains(StatusFlags::IN_TRANS);
    let is_quiet = session.worker.clock.now().wrapping_sub(of.sent) > QUIET_MAX;
    if !stands_alone || is_quiet || std::mem::take(&mut of.next_transaction) {
        return Ok(Err(Left::Session));
    }
    match of.standing {
        Standing::Known(environment) if of.status == status => Ok(Ok(environment)),
        Standing::Doubtful => Ok(Err(Left::Session)),
        Standing::Known(_) | Standing::Changed => {
            // What the server says of its last statement is of this question from here on, and then of the
            // lookup: one that was answered from memory in between is as if it had never been.
            of.unknown_to_server.clear();
            let reply = ask_server(session, question(session.capabilities)).await?;
            let Some(values) = values(&reply, session.capabilities) else {
                return Ok(Err(Left::Settings));
            };
            of.status = status;
            Ok(learn_settings(of, session.capabilities, &values))
        }
    }
}

fn question(capabilities: Capabilities) -> Vec<u8> {
    let names = SETTINGS.map(|name| format!("@@{name}")).join(",");
    ask::query(capabilities, &format!("SELECT {names},DATABASE()"))
}

/// The values of the only row of an answer; NULL is empty.
fn values(reply: &ask::Reply, capabilities: Capabilities) -> Option<Vec<Vec<u8>>> {
    let definitions = SETTINGS.len() + 1;
    let eof = usize::from(!capabilities.contains(Capabilities::DEPRECATE_EOF));
    let mut row = reply.packet(1 + definitions + eof)?;
    if reply.outcome.error.is_some() || reply.outcome.rows != 1 {
        return None;
    }
    let mut values = Vec::with_capacity(definitions);
    for _ in 0..definitions {
        let (len, behind) = match *row {
            [0xfb, ..] => (0, &row[1..]),
            [len @ 0..=250, ..] => (usize::from(len), &row[1..]),
            [252, a, b, ..] => (usize::from(u16::from_le_bytes([a, b])), &row[3..]),
            _ => return None,
        };
        let (value, behind) = behind.split_at_checked(len)?;
        values.push(value.to_vec());
        row = behind;
    }
    Some(values)
}

fn learn_settings(
    of: &mut OfSession,
    capabilities: Capabilities,
    values: &[Vec<u8>],
) -> Result<Environment, Left> {
    let value = |name: &str| {
        let place = SETTINGS.iter().position(|known| *known == name);
        place
            .and_then(|place| values.get(place))
            .map_or(&[][..], Vec::as_slice)
    };
    let has = |mode: &str| {
        let mut modes = value("sql_mode").split(|byte| *byte == b',');
        modes.any(|word| word.eq_ignore_ascii_case(mode.as_bytes()))
    };
    of.syntax.ansi_quotes = has("ANSI_QUOTES");
    of.syntax.no_backslash_escapes = has("NO_BACKSLASH_ESCAPES");
    of.syntax.charset = Charset::named(value("character_set_client"));
    let wait = std::str::from_utf8(value("wait_timeout")).ok();
    let wait = wait.and_then(|wait| wait.parse().ok()).unwrap_or(0_u32);
    if value("sql_select_limit") != NO_LIMIT || wait < WAIT_MIN {
        return Err(Left::Settings);
    }
    let variables = SETTINGS.iter().zip(values).map(|(name, value)| Variable {
        name: name.as_bytes(),
        value,
        is_set: false,
    });
    let is_asked = |name: &[u8]| {
        let mut asked = SETTINGS.iter().chain(&[OF_COLLATION]);
        asked.any(|asked| asked.as_bytes() == name)
    };
    let set = of.set.iter().filter(|name| !is_asked(name)).map(|name| Variable {
        name,
        value: b"",
        is_set: true,
    });
    let environment = of.lookups.environment(&Surroundings {
        user: &of.user,
        account: 0,
        rights: of.rights.said(),
        host: of.host,
        schema: values
            .last()
            .map(Vec::as_slice)
            .filter(|schema| !schema.is_empty()),
        capabilities,
        collation: of.collation,
        status: of.status,
        variables: variables.chain(set).collect(),
    });
    of.standing = Standing::Known(environment);
    Ok(environment)
}
