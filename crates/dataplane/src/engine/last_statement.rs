//! Figures of the session that a statement reads: `LAST_INSERT_ID()`, `ROW_COUNT()` and `FOUND_ROWS()` of the
//! one before, and `CONNECTION_ID()`.
//!
//! On a connection that was somebody else's in between a server would answer with that session's figures. The
//! connection is therefore given this session's last insert id, and the figures that cannot be set are
//! written into the statement.

use std::num::NonZeroU64;

use mysql_wire::{Command, Outcome, PacketHeader};
use session::{PinReason, Prepared, Request, Session};
use sql_class::text::{self, has};
use sql_class::{Call, Class, Effects, Facts, StatementItem, Syntax};

use crate::command_head::CommandHead;
use crate::engine::answered::{Answered, Why};
use crate::engine::begin::{has_count_alone, with_statement};
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::leased::{Left, says_nothing};
use crate::engine::next::Next;
use crate::engine::{again, answer, ask, command, explicit_ids, generated_ids, lease, lookup, replay};
use crate::error::SessionError;

/// Notes a command that is about to be sent, or was: a statement is the session's last one from here on.
pub(crate) fn note_sent(session: &mut ClientSession, command: Command) {
    let runs_sql = matches!(
        command,
        Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE
    );
    if runs_sql {
        session.last.turn = session.last.turn.wrapping_add(1);
        session.prepared.with_figures = None;
        let why = match session.statement.at_primary.get() {
            Some(why) => Why::AtPrimary(why),
            None if session.statement.was_pinned => Why::Held,
            None => Why::Usual,
        };
        if let Some(leased) = &mut session.lease {
            let is_primary = leased.is_primary;
            let answered = Answered::Server { is_primary, why };
            session.control.of_split.answered.set(answered);
            let has_count = leased.left.has_count;
            leased.left = Left {
                has_count,
                ..Left::ALL
            };
        }
    }
}

/// The command that is to be sent with this session's figures in its text. `None` where it is right as it is.
pub(crate) fn with_figures(session: &ClientSession, head: CommandHead, facts: &Facts) -> Option<Vec<u8>> {
    let payload = command::payload(session, head);
    if payload.len() != head.payload_len {
        return None;
    }
    let text = command::text(payload, session.client.capabilities)?;
    let left = lease::left(session);
    let changed = as_assignments(session, text, facts, left);
    let changed = changed.or_else(|| with_values(session, text, facts, Some(left)))?;
    let attributes = payload.len() - text.len();
    Some([&payload[..attributes], &changed].concat())
}

/// Has the leased connection say of the session's last statement what it may be asked. `prepared`: the id and
/// the digest of the statement that is executed. After an error the connection has to be [given up](give_up).
pub(crate) async fn bring_about(
    session: &mut ClientSession,
    head: CommandHead,
    facts: &Facts,
    prepared: Option<(u32, u64)>,
) -> Result<(), Refused> {
    if !session.binding.needs_priming() {
        // Nobody else was there.
        return Ok(());
    }
    // A function that is trusted to set nothing may read figures all the same.
    let priming = |session: &mut Session, statement: &Request<'_>| {
        let facts = Some(facts);
        session.prime(&Request { facts, ..*statement })
    };
    while let Some(command) = with_statement(session, head, Some(facts), prepared, priming) {
        prime(session, command).await?;
        if session.state.has_lost_insert_id() {
            let server = session.server_name().to_owned();
            return Err(Refused(SessionError::InsertIdLost(server)));
        }
    }
    lookup::bring_about(session, facts).await
}

/// Tells the session if the id in an answer is certainly one that the server has made. `sent`: the statement.
pub(crate) fn note_made(session: &mut ClientSession, outcome: &Outcome, sent: Option<&[u8]>) {
    if session.state.statement().0 == Class::Ddl {
        // The statement may have been one about a trigger.
        session.context.cluster.generated_ids.clear();
    }
    let Some(id) = NonZeroU64::new(outcome.last_insert_id) else {
        return;
    };
    if session.state.knows_last_insert_id() {
        return;
    }
    session.last.generated = None;
    if sent.is_none_or(|sent| may_give(session, sent, id.get())) {
        return;
    }
    let schema = session.state.carried().schema();
    let key = generated_ids::Key::new(session.state.statement_digest(), schema);
    let now_ms = session.context.worker.now_ms();
    match session.context.cluster.generated_ids.contain(key, now_ms) {
        true => session.state.insert_id_was_made(),
        false => session.last.generated = Some((key, id)),
    }
}

/// Whether the session is about to give its connection back with a figure in doubt: rows of statements may
/// have ids that these have given themselves, which LAST_INSERT_ID() does not know; or the rows that the last
/// statement has counted are not clear.
pub(crate) fn is_in_doubt(session: &ClientSession) -> bool {
    let is_unknown = !session.state.knows_last_insert_id() || session.state.has_unclear_count();
    is_unknown && !session.binding.is_for_good() && !session.state.is_pinned()
}

/// Asks for the id, before the connection is given back; and for the rows that the statement has counted,
/// which no connection can tell then.
pub(crate) async fn learn_insert_id(session: &mut ClientSession) {
    learn_count(session).await;
    if session.lease.is_none() {
        return;
    }
    let Some(ask) = session.state.ask_last_insert_id() else {
        return;
    };
    let counts = session.state.may_ask_found_rows();
    if counts && learn_found_rows(session).await.is_err() || prime(session, ask).await.is_err() {
        lease::abandon(session);
        return;
    }
    if let Some((key, id)) = session.last.generated.take()
        && id.get() == session.state.last_insert_id()
    {
        let generated_ids = &session.context.cluster.generated_ids;
        generated_ids.add(key, session.context.worker.now_ms());
    }
}

/// Learns what only the connection at hand knows of the session's last statement, before the session goes to
/// another one. After an error the connection is still at hand.
pub(crate) async fn learn_before_moving(session: &mut ClientSession) -> Result<(), Refused> {
    // The answer to a `SELECT … INTO @x`, or to one with an OFFSET, does not say how many rows there were.
    let is_there = session.lease.as_ref().is_some_and(|leased| leased.left.has_count);
    if is_there
        || has_count_alone(session)
        || session.state.has_unclear_count()
        || session.state.may_ask_found_rows()
    {
        learn_found_rows(session).await?;
    }
    match session.state.ask_last_insert_id() {
        Some(ask) => prime(session, ask).await,
        None => Ok(()),
    }
}

/// Learns a count of rows that only the connection at hand can tell.
pub(crate) async fn learn_count(session: &mut ClientSession) {
    let asks = has_count_alone(session) || session.state.has_unclear_count();
    if asks && (learn_found_rows(session).await.is_err() || has_count_alone(session)) {
        lease::abandon(session);
    }
}

async fn learn_found_rows(session: &mut ClientSession) -> Result<(), Refused> {
    // The LIMIT is for sessions that have set `sql_select_limit`.
    let command = ask::query(session.client.key.capabilities, "SELECT FOUND_ROWS() LIMIT 1");
    let replies = lease::ask_on_lease(session, &[command]).await?;
    let rows = replies.first().and_then(|reply| ask::plain(reply.value()));
    let rows = rows.and_then(|rows| str::from_utf8(&rows).ok()?.parse().ok());
    if let Some(rows) = rows {
        session.state.learn_found_rows(rows);
        says_nothing(&mut session.lease);
    }
    Ok(())
}

/// Whether a statement may have given the id itself: it is there in some form, or comes from somewhere else.
fn may_give(session: &ClientSession, packet: &[u8], id: u64) -> bool {
    let payload = packet.get(PacketHeader::LEN..).unwrap_or_default();
    if payload.first() == Some(&Command::QUERY.0) {
        return text::elsewhere(payload) || text::in_text(payload, id);
    }
    let capabilities = session.client.capabilities;
    let statement = payload.get(1..5).and_then(|id| id.try_into().ok());
    let statement = statement.and_then(|id| session.state.prepared(u32::from_le_bytes(id)));
    statement.is_none_or(|prepared| {
        text::elsewhere(&prepared.text)
            || text::in_text(&prepared.text, id)
            || explicit_ids::in_values(payload, prepared, capabilities, id)
    })
}

/// Gives up the leased connection, which has failed before the client's command was sent. A transaction that
/// can be executed again goes on elsewhere, once for a command: what the command needs may be what its server
/// is lost by. The loop takes the command up as if the client had just sent it. Any other session that held
/// something there ends with it: its client must not go on as if that were still so.
pub(crate) async fn give_up(session: &mut ClientSession, refused: Refused) -> Result<Next, SessionError> {
    let mut error = refused.0;
    if is_lost(&error) && replay::without::may_go_on(session) && !session.statement.attempts.lost_before {
        match Box::pin(replay::go_on_or(session, error)).await {
            Ok(()) => {
                session.statement.attempts.lost_before = true;
                again::leave_in_place(session);
                return Ok(Next::Done);
            }
            Err(told) => error = told,
        }
    }
    if lease::holds_state(session) {
        session.answer.error_sequence = Some(answer::discard(session).await?);
        return Err(lease::lost_before(session, error));
    }
    lease::abandon(session);
    Ok(Next::refuse(error))
}

/// Whether the connection has failed, and not what was asked on it.
fn is_lost(error: &SessionError) -> bool {
    matches!(
        error,
        SessionError::ServerLogin { .. } | SessionError::ServerGone { .. }
    )
}

/// Gives a connection that was just leased the session's last insert id, by the command that the session has
/// made.
async fn prime(session: &mut ClientSession, command: Vec<u8>) -> Result<(), Refused> {
    let capabilities = session.client.key.capabilities;
    let by_a_row = session.state.asks_by_a_row();
    let replies = lease::ask_on_lease(session, &ask::framed(capabilities, vec![command])).await?;
    let reply = replies.first();
    if let Some(packet) = reply.and_then(|reply| reply.error(capabilities)) {
        return Err(session.state_refused(packet));
    }
    // MariaDB says with this OK what the statement before has restored.
    if let Some(ok) = reply.and_then(|reply| ask::end_ok(reply, capabilities)) {
        session.state.observe_primed(&ok);
    }
    if by_a_row {
        let id = reply.and_then(|reply| ask::plain(reply.value()));
        let id = id.and_then(|id| str::from_utf8(&id).ok()?.parse().ok());
        let id = id.ok_or_else(|| session.not_answered(ask::unexpected("LAST_INSERT_ID()")))?;
        session.state.learn_insert_id_asked(id);
    }
    Ok(())
}

/// `GET DIAGNOSTICS` as assignments of this session's figures, where the connection has another's: there is
/// nothing else to be told, or the session would be bound to its connection.
fn as_assignments(session: &ClientSession, text: &[u8], facts: &Facts, left: Left) -> Option<Vec<u8>> {
    let asks = Effects::READS_DIAGNOSTICS.with(Effects::READS_ROW_COUNT);
    if left.is_untouched || facts.class != Class::Session || !facts.effects.contains(asks) {
        return None;
    }
    let items = sql_class::statement_items(text, session.state.syntax())?;
    if items.iter().any(|(_, item)| *item == StatementItem::Number)
        && session.state.has_pin(PinReason::Diagnostics)
    {
        // The connection was asked for something else meanwhile, and still has the diagnostics.
        return None;
    }
    let assignments = items.into_iter().map(|(variable, item)| {
        let value = match item {
            StatementItem::Number => 0,
            StatementItem::RowCount => session.state.row_count(),
        };
        [&text[variable], format!("={value}").as_bytes()].concat()
    });
    let assignments: Vec<_> = assignments.collect();
    Some([&b"SET "[..], &assignments.join(&b", "[..])].concat())
}

/// The text with this session's figures in the place of the functions that a server would answer with
/// another's. `None` where it is right as it is. `left`: what the connection still tells, where the statement
/// is executed at once.
pub(crate) fn with_values(
    session: &ClientSession,
    text: &[u8],
    facts: &Facts,
    left: Option<Left>,
) -> Option<Vec<u8>> {
    if may_define(text, facts) {
        return None;
    }
    let mut values: Vec<(&str, String, ValidFor)> = Vec::new();
    let (is_now, left) = (left.is_some(), left.unwrap_or(Left::ALL));
    // The server's own id is right among its processes and threads, beside a function that says who has a
    // lock, and in a `KILL` of an expression.
    let of_server = Effects::READS_SERVER.with(Effects::KILL);
    let reads_server = facts.effects.intersects(of_server) || has(text, b"IS_USED_LOCK");
    if facts.effects.contains(Effects::READS_CONNECTION_ID) && !reads_server {
        let id = format!("CAST({} AS UNSIGNED)", session.control.id);
        if !session.state.has_pin(PinReason::Uncarried) {
            values.push(("@@pseudo_thread_id", id.clone(), ValidFor::Always));
        }
        values.push(("CONNECTION_ID", id, ValidFor::Always));
    }
    if facts.effects.contains(Effects::READS_LAST_GTID) && is_now {
        // The figure is right whoever had the connection last, and wherever the session wrote.
        let lasts = match facts.class {
            Class::Read => ValidFor::Always,
            _ => ValidFor::InFirst,
        };
        values.extend(last_gtid(session).map(|gtid| ("@@last_gtid", gtid, lasts)));
    }
    if !left.is_untouched && facts.effects.contains(Effects::READS_ROW_COUNT) {
        let count = session.state.row_count().to_string();
        values.push(("ROW_COUNT", count, ValidFor::InFirst));
    }
    // Commands of the gateway leave the count as it is. No rows are better than another session's.
    if !left.has_count && facts.effects.contains(Effects::READS_FOUND_ROWS) {
        let rows = lookup::found_rows(session)
            .or(session.state.found_rows())
            .unwrap_or(0);
        values.push(("FOUND_ROWS", rows.to_string(), ValidFor::UntilRowsAreCounted));
    }
    if values.is_empty() {
        return None;
    }
    with_calls(text, session.state.syntax(), &values)
}

/// The statements of a text in which a value is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValidFor {
    InFirst,
    UntilRowsAreCounted,
    Always,
}

impl ValidFor {
    fn until(self, call: &Call) -> bool {
        match self {
            Self::InFirst => call.is_in_first,
            Self::UntilRowsAreCounted => !call.rows_were_counted,
            Self::Always => true,
        }
    }
}

/// Whether there may be the definition of a view or a stored program, which is kept as it is written.
fn may_define(text: &[u8], facts: &Facts) -> bool {
    const KINDS: [&[u8]; 6] = [
        b"VIEW",
        b"TRIGGER",
        b"PROCEDURE",
        b"FUNCTION",
        b"EVENT",
        b"PACKAGE",
    ];
    facts.effects.contains(Effects::CHANGES_SCHEMA) && KINDS.iter().any(|kind| has(text, kind))
}

/// MariaDB's GTID of the session's last write, as a literal; `None` where it is not known. After a write
/// whose answer was lost the literal is empty, as for a client that comes anew, which it would have to
/// without a gateway: an older GTID would not be that of the last write.
fn last_gtid(session: &ClientSession) -> Option<String> {
    let is_lost = session.state.has_lost_writes() && session.state.has_untracked_writes();
    let gtid = match session.state.gtid() {
        Some(_) if !is_lost => session.state.last_gtid()?,
        _ => Vec::new(),
    };
    let is_one = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
    let text = String::from_utf8(gtid).ok()?;
    text.as_bytes().iter().all(is_one).then(|| format!("'{text}'"))
}

/// The text of a statement that was prepared without a schema, for a connection that has one: a question for
/// the schema is answered as on its own. `None` where it is right as it is.
pub(crate) fn without_schema(session: &ClientSession, prepared: &Prepared) -> Option<Vec<u8>> {
    let is_needed = prepared.context.schema().is_none() && session.state.carried().schema().is_some();
    let values = ["DATABASE", "SCHEMA"].map(|function| (function, "NULL".to_owned(), ValidFor::Always));
    is_needed.then(|| with_calls(&prepared.text, session.state.syntax(), &values))?
}

/// The text with values in the place of calls of functions without arguments, as far as they last. `None`
/// where there are no such calls.
fn with_calls(text: &[u8], syntax: Syntax, values: &[(&str, String, ValidFor)]) -> Option<Vec<u8>> {
    let mut changes = Vec::new();
    for (function, value, lasts) in values {
        let parentheses = if function.starts_with("@@") { "" } else { "()" };
        for call in sql_class::calls(text, syntax, function) {
            if !lasts.until(&call) {
                continue;
            }
            // A column without a name of its own bears the text of its expression.
            let names = call.items.into_iter().map(|item| {
                let name = String::from_utf8_lossy(&text[item.clone()]).replace('`', "``");
                (item.end..item.end, format!(" AS `{name}`"))
            });
            changes.extend(names);
            // A column has the type and the length of the function by an argument that is never looked at.
            changes.push((call.range, format!("IF(TRUE,{value},{function}{parentheses})")));
        }
    }
    changes.sort_by_key(|(range, _)| range.start);
    // An item that has several calls in it has one name.
    changes.dedup();
    let mut changed = Vec::with_capacity(text.len() + 32);
    let mut at = 0;
    for (range, new) in changes {
        changed.extend_from_slice(&text[at..range.start]);
        changed.extend_from_slice(new.as_bytes());
        at = range.end;
    }
    changed.extend_from_slice(&text[at..]);
    (at > 0).then_some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str) -> Option<String> {
        let values = [
            ("ROW_COUNT", "3".to_owned(), ValidFor::InFirst),
            ("@@last_gtid", "'0-1-5'".to_owned(), ValidFor::Always),
        ];
        let changed = with_calls(text.as_bytes(), Syntax::default(), &values)?;
        Some(String::from_utf8(changed).unwrap())
    }

    #[test]
    fn a_column_keeps_its_name() {
        const COUNT: &str = "IF(TRUE,3,ROW_COUNT())";
        const GTID: &str = "IF(TRUE,'0-1-5',@@last_gtid)";
        for (text, expected) in [
            (
                "SELECT ROW_COUNT ( )",
                format!("SELECT {COUNT} AS `ROW_COUNT ( )`"),
            ),
            (
                "SELECT @a - ROW_COUNT()",
                format!("SELECT @a - {COUNT} AS `@a - ROW_COUNT()`"),
            ),
            (
                "SELECT CONCAT(`a`,ROW_COUNT(), @@last_gtid, row_count()), 2",
                format!(
                    "SELECT CONCAT(`a`,{COUNT}, {GTID}, {COUNT}) AS \
                     `CONCAT(``a``,ROW_COUNT(), @@last_gtid, row_count())`, 2"
                ),
            ),
            (
                "SELECT (SELECT @@last_gtid) UNION SELECT ROW_COUNT() + 1 x",
                format!(
                    "SELECT (SELECT {GTID} AS `@@last_gtid`) AS `(SELECT @@last_gtid)` \
                     UNION SELECT {COUNT} + 1 x"
                ),
            ),
            ("SELECT ROW_COUNT() + 1 x", format!("SELECT {COUNT} + 1 x")),
            ("DO ROW_COUNT() + 1", format!("DO {COUNT} + 1")),
            (
                "SELECT -@@last_gtid; SELECT -ROW_COUNT()",
                "SELECT -IF(TRUE,'0-1-5',@@last_gtid) AS `-@@last_gtid`; SELECT -ROW_COUNT()".to_owned(),
            ),
        ] {
            assert_eq!(changed(text), Some(expected), "{text}");
        }
        assert_eq!(changed("SELECT 1; SELECT ROW_COUNT()"), None);
    }
}
