//! Transactions that read on a replica before they write: `transaction_reads = "replica"`.
//!
//! ```text
//! BEGIN ─ on a replica ┬ plain reads ─ there
//!                      ├ COMMIT, ROLLBACK ─ there, and that was it
//!                      └ anything else: START TRANSACTION on the primary, ROLLBACK on the replica ─ there
//! ```
//!
//! The rows that are read are from another snapshot than those that are written, on another server: that is
//! the price, and why this is an option. All else is as on one server. A transaction of which it is not
//! certain that it can move begins on the primary, and a statement that is not certainly a plain read moves
//! it. The transaction leaves the replica only once it has begun on the primary: if that fails, the statement
//! is refused and the transaction is as it was. Rows that were read are never read again.

use config::{Pooling, ReadConsistency, TransactionReads};
use mysql_wire::{Command, OkPacket, StatusFlags};
use session::PinReason;
use sql_class::text::{has, is_plainly};
use sql_class::{Class, Effects, Facts, Hint, Syntax};
use upstream::Connection;

use crate::command_head::CommandHead;
use crate::engine::ask;
use crate::engine::begin::begin;
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::command::text_of;
use crate::engine::connection_state::ConnectionState;
use crate::engine::lease::{self, LeaseAttempt};
use crate::engine::leased::says_nothing;
use crate::engine::metrics::OnReplica;
use crate::engine::next::Next;
use crate::engine::replay::why::Why;
use crate::engine::target::{PRIMARY_ONLY, Target};
use crate::engine::{consistency, keep, rebuild, rules};
use crate::error::{During, SessionError};

const BEGINNINGS: [&str; 3] = ["BEGIN", "BEGIN WORK", "START TRANSACTION"];
const ENDS: [&str; 4] = ["COMMIT", "COMMIT WORK", "ROLLBACK", "ROLLBACK WORK"];

/// Questions about the statement before on this connection, which keep a statement here.
const OF_THE_LAST: Effects = Effects::READS_DIAGNOSTICS
    .with(Effects::READS_FOUND_ROWS)
    .with(Effects::READS_ROW_COUNT);

const TO_PRIMARY: Target = Target::Primary { for_writing: true };

/// Whether the session is in a transaction on a replica that goes on to the primary when it writes.
pub(crate) fn is_on_replica(session: &ClientSession) -> bool {
    session.lease.as_ref().is_some_and(|leased| leased.moves_on) && session.state.in_transaction()
}

/// The target of a statement of such a transaction.
pub(crate) fn target(session: &ClientSession, facts: &Facts) -> Target {
    match stays(session, facts) {
        true => Target::Held,
        false => Target::Primary {
            for_writing: !matches!(facts.class, Class::Read | Class::Session),
        },
    }
}

fn stays(session: &ClientSession, facts: &Facts) -> bool {
    let leaves = Effects(PRIMARY_ONLY.0 & !OF_THE_LAST.0);
    let is_read = facts.class == Class::Read
        && !facts.effects.intersects(leaves)
        && matches!(facts.hint, None | Some(Hint::Replica));
    // A rule may want the statement fresher than what the transaction has begun with.
    let is_as_fresh = !matches!(
        session.rules.read_consistency(),
        Some(ReadConsistency::Session | ReadConsistency::Strong)
    );
    // `GET DIAGNOSTICS` asks for what is there.
    let asks =
        facts.effects.contains(Effects::READS_DIAGNOSTICS) && session.state.has_pin(PinReason::Diagnostics);
    let asks = asks && facts.class == Class::Session;
    (is_read || asks) && is_as_fresh && !session.binding.is_for_good() && !rules::wants_primary(session)
}

/// The target of a COM_QUERY that ends such a transaction: the connection that has it.
pub(crate) fn end(session: &ClientSession, head: CommandHead, facts: &Facts) -> Option<Target> {
    let is_end = facts.class == Class::Transaction
        && is_on_replica(session)
        && !session.binding.is_for_good()
        && !rules::wants_primary(session)
        && is_one_of(&ENDS, text_of(session, head), facts);
    is_end.then_some(Target::Held)
}

/// Whether the text is one of these words and nothing else.
fn is_one_of(known: &[&str], text: &[u8], facts: &Facts) -> bool {
    let is = |known: &&str| is_plainly(text, known);
    facts.effects == Effects::NONE && facts.statements == 1 && facts.hint.is_none() && known.iter().any(is)
}

/// Whether a COM_QUERY begins a transaction that may read on a replica.
pub(crate) fn begins(session: &ClientSession, head: CommandHead, facts: &Facts) -> bool {
    facts.class == Class::Begin && may_begin(session, text_of(session, head), facts)
}

/// Whether this text begins a transaction that may read on a replica.
pub(crate) fn may_begin(session: &ClientSession, text: &[u8], facts: &Facts) -> bool {
    let config = &session.client.account.user.config;
    let wanted = config
        .transaction_reads
        .unwrap_or(session.context.listener.config.transaction_reads);
    wanted == TransactionReads::Replica
        && facts.class == Class::Begin
        && is_one_of(&BEGINNINGS, text, facts)
        && config.pooling == Pooling::Transaction
        && session.lease.is_none()
        && !session.binding.is_for_good()
        && !session.state.in_transaction()
        && session.state.autocommit()
        && !session.state.shows_transactions()
        && !rules::routes(session)
        && consistency::wanted(session) != ReadConsistency::Strong
        && reads_lock_nothing(session)
}

/// Whether plain reads lock nothing: not under SERIALIZABLE, nor where the level is not known.
fn reads_lock_nothing(session: &ClientSession) -> bool {
    let level = |name| session.state.variable(name);
    let level = level(b"transaction_isolation").or_else(|| level(b"tx_isolation"));
    level.is_some_and(|level| {
        let known: [&[u8]; 3] = [b"REPEATABLE-READ", b"READ-COMMITTED", b"READ-UNCOMMITTED"];
        known.iter().any(|known| level.eq_ignore_ascii_case(known))
    })
}

/// Does what it takes until the client's `BEGIN` can be sent.
pub(crate) async fn begin_on_replica(
    session: &mut ClientSession,
    head: CommandHead,
    facts: Facts,
) -> Result<Next, SessionError> {
    if let Err(refused) = lease::lease(session, &Target::Replica).await {
        return Ok(refused.into());
    }
    if let Some(leased) = session.lease.as_mut().filter(|leased| !leased.is_primary) {
        leased.moves_on = true;
        session.metrics().on_replica(OnReplica::Begun);
    }
    begin(session, head, Some(&facts));
    Ok(Next::Exchange)
}

/// The outcome of a lease for a statement of such a transaction that does not stay: the transaction moves,
/// unless something binds the session to the connection. Traces of reads there can be left behind.
pub(crate) fn leaves(session: &ClientSession, target: &Target) -> LeaseAttempt {
    let is_bound = !session
        .state
        .pins()
        .iter()
        .all(|pin| lease::ends_with_transaction(pin.reason));
    match target {
        Target::Primary { for_writing: false } if is_bound => LeaseAttempt::Leased,
        _ if is_bound => LeaseAttempt::Refused,
        _ => LeaseAttempt::Moves,
    }
}

/// Whether the session is in a transaction that only reads, on a replica, and the statement ends that in
/// silence: it is not for a replica, or begins another transaction.
pub(crate) fn is_ended_by(session: &ClientSession, facts: &Facts) -> bool {
    ends_in_silence(facts, session.dialect().is_mariadb()) && may_be_left(session)
}

/// Whether a COM_QUERY ends such a transaction. If several statements are in its text, the first one has to
/// end the transaction, by a word or in silence: the replica is asked to commit, and the whole text can go
/// elsewhere, as an end where nothing is open does nothing.
pub(crate) fn is_ended_by_query(session: &ClientSession, head: CommandHead, facts: &Facts) -> bool {
    if facts.statements < 2 {
        // MySQL goes on with reading only unless the text says `READ WRITE`.
        let may_write = facts.class == Class::Begin && has(text_of(session, head), b"WRITE");
        return is_ended_by(session, facts) || may_write && may_be_left(session);
    }
    if !session.state.carried().multi_statements() || !may_be_left(session) {
        return false;
    }
    let first = text_of(session, head).split(|byte| *byte == b';').next();
    let first = first.unwrap_or_default();
    let of_first = sql_class::facts(first, session.state.syntax());
    // An end that is repeated would begin another transaction.
    let chain = session.state.variable(b"completion_type");
    let may_chain = chain.is_some_and(|chain| !chain.eq_ignore_ascii_case(b"NO_CHAIN"));
    is_one_of(&ENDS, first, &of_first) && !may_chain
        || ends_in_silence(&of_first, session.dialect().is_mariadb())
}

fn ends_in_silence(facts: &Facts, is_mariadb: bool) -> bool {
    let begins = match facts.class {
        Class::BeginReadOnly => true,
        // A `BEGIN` goes on with reading only, on MySQL.
        Class::Begin => is_mariadb && !facts.effects.contains(Effects::XA),
        _ => false,
    };
    // There are no tables to unlock.
    let commits =
        facts.effects.contains(Effects::COMMITS) && !facts.effects.contains(Effects::UNLOCKS_TABLES);
    begins || commits
}

/// Whether the session is in a transaction that only reads, on a replica, and leaves nothing there once that
/// has ended.
fn may_be_left(session: &ClientSession) -> bool {
    let of_transaction = |reason| matches!(reason, PinReason::Transaction | PinReason::Diagnostics);
    let mut pins = session.state.pins().iter();
    pins.all(|pin| of_transaction(pin.reason))
        && session.lease.as_ref().is_some_and(|leased| !leased.is_primary)
        && session.state.transaction_is_read_only()
        && !session.binding.is_for_good()
}

/// The error for a COM_QUERY that is not executed on the replica on which a transaction only reads: one of
/// its statements may end the transaction, and those behind that one would be executed there as well, writes
/// among them.
pub(crate) fn refuse_several(
    session: &ClientSession,
    head: CommandHead,
    facts: &Facts,
) -> Option<SessionError> {
    let may_be_several = facts.statements > 1 || facts.effects.contains(Effects::INCOMPLETE);
    let is_there = session
        .lease
        .as_ref()
        .is_some_and(|leased| !leased.is_primary && !leased.moves_on);
    let is_refused = may_be_several
        && is_there
        && session.state.transaction_is_read_only()
        && session.state.carried().multi_statements()
        && !session.binding.is_own()
        && !nothing_comes_behind_its_end(text_of(session, head), facts, session.state.syntax());
    is_refused.then(|| SessionError::SeveralOnReplica(session.server_name().to_owned()))
}

/// Whether no statement of a text ends a transaction that only reads, or the last one alone.
fn nothing_comes_behind_its_end(text: &[u8], facts: &Facts, syntax: Syntax) -> bool {
    let ends_none = |facts: &Facts| {
        facts.class <= Class::LockingRead
            && !facts
                .effects
                .intersects(Effects::SETS_AUTOCOMMIT.with(Effects::COMMITS))
    };
    let text = text.trim_ascii_end();
    let text = text.strip_suffix(b";").unwrap_or(text);
    let last = text.iter().rposition(|byte| *byte == b';');
    // A semicolon in quotes or in a comment cuts no statement off: then the class of the whole text is that
    // of what comes before it.
    let ends_last = || {
        last.is_some_and(|at| {
            let (before, last) = (&text[..at], &text[at + 1..]);
            facts.class == Class::Transaction
                && ends_none(&sql_class::facts(before, syntax))
                && is_one_of(&ENDS, last, &sql_class::facts(last, syntax))
        })
    };
    ends_none(facts) || ends_last()
}

/// Ends the transaction on the connection that is held, whatever `completion_type` says. If the server
/// refuses that, the connection is closed: there is nothing else of the session on it.
///
/// # Errors
/// The error for the client: the server's words where it refuses, else that nobody knows whether the
/// transaction has committed.
pub(crate) async fn commit(session: &mut ClientSession) -> Result<OkPacket, Refused> {
    if let Some(replay) = &mut session.replay {
        // If the answer is lost, nobody knows what the transaction has committed.
        replay.leave(Why::Commits);
    }
    let capabilities = session.client.key.capabilities;
    let commit = ask::query(capabilities, "COMMIT AND NO CHAIN NO RELEASE");
    let asked = lease::ask_on_lease(session, &[commit]).await;
    // No other server may be tried.
    let replies = asked.map_err(|Refused(error)| Refused(lease::gone(error, During::Command)))?;
    let reply = replies.first();
    let server = session.server_name().to_owned();
    if let Some(packet) = reply.and_then(|reply| reply.error(capabilities)) {
        lease::abandon(session);
        return Err(Refused(SessionError::StateRefused { server, packet }));
    }
    let ok = reply.and_then(|reply| ask::ok(reply, capabilities));
    ok.filter(|ok| !ok.status.contains(StatusFlags::IN_TRANS))
        .ok_or_else(|| Refused(lease::lost_with_its_server(&server)))
}

/// Takes the session's transaction from its replica to the primary.
pub(crate) async fn go_to_primary(session: &mut ClientSession) -> Result<(), Refused> {
    if stands_on_primary(session)
        && let Some(leased) = &mut session.lease
    {
        (leased.is_primary, leased.moves_on) = (true, false);
        return Ok(());
    }
    if session.state.has_pin(PinReason::Unsettled) && !is_open(session).await? {
        // The server has rolled the transaction back.
        lease::abandon(session);
        session.answer.status.remove(StatusFlags::IN_TRANS);
        return lease_primary(session).await;
    }
    // Packets that came unasked from the replica are no answer of the primary's.
    let in_step = session.streams.down.is_empty();
    session.streams.down.clear();
    let Some(mut replica) = lease::detach(session) else {
        return lease_primary(session).await;
    };
    match begin_on_primary(session).await {
        Ok(begun) => {
            session.metrics().on_replica(OnReplica::Moved);
            consistency::leave(&mut replica.state, session.state.move_transaction(&begun));
            leave(session, replica, in_step).await;
            Ok(())
        }
        Err(refused) => {
            drop(lease::detach(session));
            lease::attach(session, replica, false);
            if let Some(leased) = &mut session.lease {
                leased.moves_on = true;
            }
            keep::keep(session);
            Err(refused)
        }
    }
}

/// Takes the transaction to the primary between two statements: the next one must read there.
pub(crate) async fn go_now(session: &mut ClientSession) -> Result<(), Refused> {
    let now = leaves(session, &TO_PRIMARY);
    lease::resume(session, &TO_PRIMARY, now, false).await?;
    match session.state.is_pinned() {
        true => keep::keep(session),
        // The server had rolled the transaction back.
        false => lease::give_back(session),
    }
    Ok(())
}

/// Whether the replica has become the primary: the transaction is where it belongs.
fn stands_on_primary(session: &ClientSession) -> bool {
    let topology = session.context.listener.cluster.topology();
    let leased = session.lease.as_ref();
    leased.is_some_and(|leased| session.is_writer(&topology, &leased.connection.server))
}

/// Asks the server whether the transaction has survived the last statement's error. If the server does not
/// answer, the session goes on only to be told that its server is gone.
pub(crate) async fn is_open(session: &mut ClientSession) -> Result<bool, Refused> {
    let asked = lease::ask_on_lease(session, &[vec![Command::PING.0]]).await;
    let replies = asked.map_err(|Refused(error)| match error.ends_session() {
        true => Refused(error),
        false => Refused(session.server_gone(During::Transaction)),
    })?;
    let status = replies.first().map(|reply| reply.outcome.status);
    Ok(status.is_some_and(|status| status.contains(StatusFlags::IN_TRANS)))
}

async fn lease_primary(session: &mut ClientSession) -> Result<(), Refused> {
    match lease::try_lease(session, &TO_PRIMARY) {
        LeaseAttempt::Wait(chosen) => lease::lease_or_wait(session, &TO_PRIMARY, chosen, false).await,
        LeaseAttempt::Leased | LeaseAttempt::Refused | LeaseAttempt::Moves => Ok(()),
    }
}

/// Leases a connection to the primary and begins the transaction there.
async fn begin_on_primary(session: &mut ClientSession) -> Result<OkPacket, Refused> {
    lease_primary(session).await?;
    let capabilities = session.client.key.capabilities;
    let begin = ask::query(capabilities, "START TRANSACTION");
    let replies = lease::ask_on_lease(session, &[begin]).await?;
    // The session's last statement was not on this connection, nor is it the last on it.
    says_nothing(&mut session.lease);
    if let Some(packet) = replies.first().and_then(|reply| reply.error(capabilities)) {
        return Err(session.state_refused(packet));
    }
    let ok = replies.first().and_then(|reply| ask::ok(reply, capabilities));
    ok.filter(|ok| ok.status.contains(StatusFlags::IN_TRANS))
        .ok_or_else(|| session.not_answered(ask::unexpected("START TRANSACTION")))
}

/// Ends the transaction on the replica, and gives that connection back. If this fails, the connection is
/// closed, and nothing is lost.
async fn leave(session: &ClientSession, mut replica: Connection<ConnectionState>, in_step: bool) {
    replica.state.known = session::KnownConnection::UNKNOWN;
    replica.state.statements.let_go();
    if !in_step || session.control.is_aimed_at() {
        return;
    }
    // The end is said in full, whatever `completion_type` says.
    let rollback = ask::query(replica.capabilities, "ROLLBACK AND NO CHAIN NO RELEASE");
    // An open transaction on the primary waits behind this question.
    let asked = rebuild::asked_in_time(session, &mut replica, &[rollback]).await;
    let is_over = asked.is_ok_and(|replies| {
        replies.first().is_some_and(|reply| {
            let outcome = &reply.outcome;
            outcome.error.is_none() && !outcome.status.contains(StatusFlags::IN_TRANS)
        })
    });
    if is_over {
        session.pool().give_back(replica);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(known: &[&str], text: &str) -> bool {
        let facts = sql_class::facts(text.as_bytes(), Syntax::default());
        is_one_of(known, text.as_bytes(), &facts)
    }

    #[test]
    fn only_the_plain_beginnings_may_be_on_a_replica() {
        for text in ["BEGIN", "begin work", " Start\n TRANSACTION ; ", "BEGIN;"] {
            assert!(is(&BEGINNINGS, text), "{text}");
        }
        for text in [
            "START TRANSACTION WITH CONSISTENT SNAPSHOT",
            "START TRANSACTION READ WRITE",
            "START TRANSACTION READ ONLY",
            "BEGIN; SELECT 1",
            "BEGIN NOT ATOMIC",
            "/* forebay: primary */ BEGIN",
            "XA START 'a'",
            "BEGIN -- ",
            "",
        ] {
            assert!(!is(&BEGINNINGS, text), "{text}");
        }
    }

    #[test]
    fn a_commit_that_is_not_answered_is_not_tried_elsewhere() {
        let lost = SessionError::ServerLogin {
            server: "db1".to_owned(),
            cause: "it has closed the connection".to_owned(),
        };
        assert!(lease::may_try_another(&lost));
        let told = lease::gone(lost, During::Command);
        assert!(!lease::may_try_another(&told));
        assert!(told.to_string().contains("it is not known whether"), "{told}");
    }

    #[test]
    fn texts_with_something_behind_the_end_of_a_transaction_are_told() {
        let is_harmless = |text: &str| {
            let facts = sql_class::facts(text.as_bytes(), Syntax::default());
            nothing_comes_behind_its_end(text.as_bytes(), &facts, Syntax::default())
        };
        for text in [
            "SELECT 1; SELECT 2",
            "SELECT 1; SET NAMES latin1;",
            "SELECT ';'; SELECT id FROM t FOR UPDATE; COMMIT ; ",
            "SELECT 1; rollback work",
        ] {
            assert!(is_harmless(text), "{text}");
        }
        for text in [
            "COMMIT; INSERT INTO t VALUES (1)",
            "COMMIT; SELECT 1",
            "COMMIT; SELECT 1 -- ; COMMIT",
            "COMMIT; SELECT id FROM t FOR UPDATE; COMMIT",
            "COMMIT; BEGIN",
            "COMMIT AND CHAIN; INSERT INTO t VALUES (1)",
            "SELECT 1; COMMIT AND CHAIN",
            "SET autocommit = 1; SELECT 1",
            "SELECT 1; UNLOCK TABLES; INSERT INTO t VALUES (1)",
            "SELECT 1; LOCK TABLES t WRITE",
            "CALL p(); SELECT 1",
            "SELECT '; COMMIT",
        ] {
            assert!(!is_harmless(text), "{text}");
        }
    }

    #[test]
    fn and_only_the_plain_ends_end_there() {
        assert!(is(&ENDS, "commit") && is(&ENDS, "ROLLBACK WORK;"));
        for text in [
            "COMMIT AND CHAIN",
            "ROLLBACK TO a",
            "ROLLBACK RELEASE",
            "COMMIT; BEGIN",
            "SAVEPOINT a",
            "COMMIT /* */",
        ] {
            assert!(!is(&ENDS, text), "{text}");
        }
    }
}
