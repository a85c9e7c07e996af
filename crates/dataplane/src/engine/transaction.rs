//! Transactions that read on a replica before they write: `transaction_reads = "replica"`.
//!
//! ```text
//! BEGIN ─ on a replica ┬ plain reads ─ there
//!                      ├ COMMIT, ROLLBACK ─ there, and that was it
//!                      └ anything else: START TRANSACTION on the primary, ROLLBACK on the replica ─ there
//! ```
//!
//! What was read is from another snapshot than what is written, on another server: that is the price, and why
//! it is an option. All else is as on one server. A transaction of which it is not certain that it can move
//! begins on the primary, and a statement that is not certainly a plain read moves it. It leaves the replica
//! only once it has begun on the primary: where that fails, the statement is refused and the transaction is
//! as it was. What was read is never read again.

use config::{Pooling, ReadConsistency, TransactionReads};
use mysql_wire::{Command, ErrPacket, OkPacket, StatusFlags};
use session::PinReason;
use sql_class::{Class, Effects, Facts, Hint};
use upstream::Connection;

use crate::engine::ask;
use crate::engine::begin::begin;
use crate::engine::connection_state::Held;
use crate::engine::lease::{self, LeaseAttempt};
use crate::engine::leased::Left;
use crate::engine::next::Next;
use crate::engine::series::OnReplica;
use crate::engine::state::{Refused, Split};
use crate::engine::target::{PRIMARY_ONLY, Target};
use crate::engine::{command, consistency, finish, rebuild, rules};
use crate::error::{During, SessionError};
use crate::session::CommandHead;

const BEGINNINGS: [&str; 3] = ["BEGIN", "BEGIN WORK", "START TRANSACTION"];
const ENDS: [&str; 4] = ["COMMIT", "COMMIT WORK", "ROLLBACK", "ROLLBACK WORK"];

/// What a statement may ask of the one before it on this connection, which keeps it here.
const OF_THE_LAST: Effects = Effects::READS_DIAGNOSTICS
    .with(Effects::READS_FOUND_ROWS)
    .with(Effects::READS_ROW_COUNT);

const TO_PRIMARY: Target = Target::Primary { for_writing: true };

/// The session is in a transaction on a replica that goes on to the primary when it writes.
pub(crate) fn is_on_replica(split: &Split) -> bool {
    split.lease.as_ref().is_some_and(|leased| leased.moves_on) && split.session.in_transaction()
}

/// Where a statement of such a transaction goes.
pub(crate) fn target(split: &Split, facts: &Facts) -> Target {
    match stays(split, facts) {
        true => Target::Held,
        false => Target::Primary {
            for_writing: !matches!(facts.class, Class::Read | Class::Session),
        },
    }
}

fn stays(split: &Split, facts: &Facts) -> bool {
    let leaves = Effects(PRIMARY_ONLY.0 & !OF_THE_LAST.0);
    let is_read = facts.class == Class::Read
        && !facts.effects.intersects(leaves)
        && matches!(facts.hint, None | Some(Hint::Replica));
    // By a rule it may have to be fresher than what the transaction has begun with.
    let is_as_fresh = !matches!(
        split.rules.read_consistency(),
        Some(ReadConsistency::Session | ReadConsistency::Strong)
    );
    // `GET DIAGNOSTICS` of what is there to be asked for.
    let asks = facts.effects.contains(Effects::READS_DIAGNOSTICS) && has_pin(split, PinReason::Diagnostics);
    let asks = asks && facts.class == Class::Session;
    (is_read || asks) && is_as_fresh && !split.binding.is_for_good() && !rules::wants_primary(split)
}

pub(crate) fn has_pin(split: &Split, reason: PinReason) -> bool {
    split.session.pins().iter().any(|pin| pin.reason == reason)
}

/// The end of such a transaction, in a COM_QUERY: where it is.
pub(crate) fn end(split: &Split, head: CommandHead, facts: &Facts) -> Option<Target> {
    let is_end = facts.class == Class::Transaction
        && is_on_replica(split)
        && !split.binding.is_for_good()
        && !rules::wants_primary(split)
        && is_one_of(&ENDS, text(split, head), facts);
    is_end.then_some(Target::Held)
}

/// The text of a COM_QUERY.
fn text(split: &Split, head: CommandHead) -> &[u8] {
    command::text(command::payload(split, head), split.client.capabilities).unwrap_or_default()
}

/// Whether it is one of these words and nothing else.
fn is_one_of(known: &[&str], text: &[u8], facts: &Facts) -> bool {
    let text = text.trim_ascii();
    let text = text.strip_suffix(b";").unwrap_or(text);
    let words = || {
        text.split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty())
    };
    let is = |known: &&str| {
        let known = known.split(' ').map(str::as_bytes);
        words().count() == known.clone().count()
            && words()
                .zip(known)
                .all(|(word, known)| word.eq_ignore_ascii_case(known))
    };
    facts.effects == Effects::NONE && facts.statements == 1 && facts.hint.is_none() && known.iter().any(is)
}

/// Whether a COM_QUERY begins a transaction that may read on a replica.
pub(crate) fn begins(split: &Split, head: CommandHead, facts: &Facts) -> bool {
    facts.class == Class::Begin && may_begin(split, text(split, head), facts)
}

/// The same of a text.
pub(crate) fn may_begin(split: &Split, text: &[u8], facts: &Facts) -> bool {
    let config = &split.client.account.user.config;
    let wanted = config
        .transaction_reads
        .unwrap_or(split.context.listener.config.transaction_reads);
    wanted == TransactionReads::Replica
        && facts.class == Class::Begin
        && is_one_of(&BEGINNINGS, text, facts)
        && config.pooling == Pooling::Transaction
        && split.lease.is_none()
        && !split.binding.is_for_good()
        && !split.session.in_transaction()
        && split.session.autocommit()
        && !split.session.shows_transactions()
        && !rules::routes(split)
        && consistency::wanted(split) != ReadConsistency::Strong
        && reads_lock_nothing(split)
}

/// Not under SERIALIZABLE, nor where the level is not known.
fn reads_lock_nothing(split: &Split) -> bool {
    let level = |name| split.session.variable(name);
    let level = level(b"transaction_isolation").or_else(|| level(b"tx_isolation"));
    level.is_some_and(|level| {
        let known: [&[u8]; 3] = [b"REPEATABLE-READ", b"READ-COMMITTED", b"READ-UNCOMMITTED"];
        known.iter().any(|known| level.eq_ignore_ascii_case(known))
    })
}

/// What it takes until the client's `BEGIN` can be sent.
pub(crate) async fn begin_on_replica(
    split: &mut Split,
    head: CommandHead,
    facts: Facts,
) -> Result<Next, SessionError> {
    if let Err(refused) = lease::lease(split, &Target::Replica).await {
        return Ok(refused.into());
    }
    if let Some(leased) = split.lease.as_mut().filter(|leased| !leased.is_primary) {
        leased.moves_on = true;
        split.series().on_replica(OnReplica::Begun);
    }
    begin(split, head, Some(&facts));
    Ok(Next::Exchange)
}

/// A statement of such a transaction does not stay, unless something binds the session to the connection.
/// What reads leave on it can be left behind.
pub(crate) fn leaves(split: &Split, target: &Target) -> LeaseAttempt {
    let is_bound = !split
        .session
        .pins()
        .iter()
        .all(|pin| lease::ends_with_transaction(pin.reason));
    match target {
        Target::Primary { for_writing: false } if is_bound => LeaseAttempt::Leased,
        _ if is_bound => LeaseAttempt::Refused,
        _ => LeaseAttempt::Moves,
    }
}

/// The session is in a transaction that only reads, on a replica, and the statement ends that in silence: it
/// is not for a replica, or begins another transaction.
pub(crate) fn is_ended_by(split: &Split, facts: &Facts) -> bool {
    let is_mariadb = split.dialect().is_mariadb();
    let begins = match facts.class {
        Class::BeginReadOnly => true,
        // MySQL's goes on with reading only.
        Class::Begin => is_mariadb && !facts.effects.contains(Effects::XA),
        _ => false,
    };
    // There are no tables to unlock.
    let commits =
        facts.effects.contains(Effects::COMMITS) && !facts.effects.contains(Effects::UNLOCKS_TABLES);
    // What else binds it to the replica does not end with the transaction.
    let of_transaction = |reason| matches!(reason, PinReason::Transaction | PinReason::Diagnostics);
    let mut pins = split.session.pins().iter();
    (begins || commits)
        && pins.all(|pin| of_transaction(pin.reason))
        && split.lease.as_ref().is_some_and(|leased| !leased.is_primary)
        && split.session.transaction_is_read_only()
        && !split.binding.is_for_good()
}

/// Ends the transaction on the connection that is held, whatever `completion_type` says. `None` and `None`
/// where it goes on.
pub(crate) async fn commit(split: &mut Split) -> Result<(Option<OkPacket>, Option<ErrPacket>), Refused> {
    let capabilities = split.client.key.capabilities;
    let commit = ask::query(capabilities, "COMMIT AND NO CHAIN NO RELEASE");
    let replies = lease::ask_on_lease(split, &[commit]).await?;
    let reply = replies.first();
    let ok = reply.and_then(|reply| reply.packet(0));
    let ok = ok.and_then(|packet| OkPacket::decode(packet, capabilities).ok());
    let error = reply.and_then(|reply| reply.error(capabilities));
    Ok((ok.filter(|ok| !ok.status.contains(StatusFlags::IN_TRANS)), error))
}

pub(crate) fn no_commit(split: &Split) -> Refused {
    Refused(SessionError::ServerLogin {
        server: split.server_name().to_owned(),
        cause: ask::unexpected("COMMIT"),
    })
}

/// Takes the session's transaction from its replica to the primary.
pub(crate) async fn go_to_primary(split: &mut Split) -> Result<(), Refused> {
    if stands_on_primary(split) {
        return Ok(());
    }
    if has_pin(split, PinReason::Unsettled) && !is_open(split).await? {
        // The server has rolled it back.
        lease::abandon(split);
        split.answer.status.remove(StatusFlags::IN_TRANS);
        return lease_primary(split).await;
    }
    // What came unasked from the replica is no answer of the primary's.
    let in_step = split.streams.down.is_empty();
    split.streams.down.clear();
    let Some(replica) = lease::detach(split) else {
        return lease_primary(split).await;
    };
    match begin_on_primary(split).await {
        Ok(begun) => {
            split.series().on_replica(OnReplica::Moved);
            leave(split, replica, &begun, in_step).await;
            Ok(())
        }
        Err(refused) => {
            drop(lease::detach(split));
            lease::attach(split, replica, false);
            if let Some(leased) = &mut split.lease {
                leased.moves_on = true;
            }
            finish::keep(split);
            Err(refused)
        }
    }
}

/// The same between two statements: what comes next must be read on the primary.
pub(crate) async fn go_now(split: &mut Split) -> Result<(), Refused> {
    let now = leaves(split, &TO_PRIMARY);
    lease::resume(split, &TO_PRIMARY, now).await?;
    match split.session.is_pinned() {
        true => finish::keep(split),
        // The server had rolled it back.
        false => lease::give_back(split),
    }
    Ok(())
}

/// The replica has become the primary: the transaction is where it belongs.
fn stands_on_primary(split: &mut Split) -> bool {
    let topology = split.context.listener.cluster.topology();
    let is_primary = match &split.lease {
        Some(leased) => split.is_writer(&topology, &leased.connection.server),
        None => false,
    };
    if let Some(leased) = split.lease.as_mut().filter(|_| is_primary) {
        (leased.is_primary, leased.moves_on) = (true, false);
    }
    is_primary
}

/// Asks the server whether the transaction has survived the last statement's error. Where it does not answer,
/// the session goes on only to be told that its server is gone.
pub(crate) async fn is_open(split: &mut Split) -> Result<bool, Refused> {
    let asked = lease::ask_on_lease(split, &[vec![Command::PING.0]]).await;
    let gone = |_| {
        Refused(SessionError::ServerGone {
            server: split.server_name().to_owned(),
            during: During::Transaction,
        })
    };
    let replies = asked.map_err(|Refused(error)| match error.ends_session() {
        true => Refused(error),
        false => gone(error),
    })?;
    let status = replies.first().map(|reply| reply.outcome.status);
    Ok(status.is_some_and(|status| status.contains(StatusFlags::IN_TRANS)))
}

async fn lease_primary(split: &mut Split) -> Result<(), Refused> {
    match lease::try_lease(split, &TO_PRIMARY) {
        LeaseAttempt::Wait(chosen) => lease::lease_or_wait(split, &TO_PRIMARY, chosen).await,
        LeaseAttempt::Leased | LeaseAttempt::Refused | LeaseAttempt::Moves => Ok(()),
    }
}

/// Leases a connection to the primary and begins the transaction there.
async fn begin_on_primary(split: &mut Split) -> Result<OkPacket, Refused> {
    lease_primary(split).await?;
    let capabilities = split.client.key.capabilities;
    let begin = ask::query(capabilities, "START TRANSACTION");
    let replies = lease::ask_on_lease(split, &[begin]).await?;
    // The session's last statement was not on this connection, nor is it the last on it.
    split.statement.was_pinned = false;
    if let Some(leased) = &mut split.lease {
        leased.left = Left::default();
    }
    if let Some(packet) = replies.first().and_then(|reply| reply.error(capabilities)) {
        return Err(Refused(SessionError::StateRefused {
            server: split.server_name().to_owned(),
            packet,
        }));
    }
    let ok = replies.first().and_then(|reply| reply.packet(0));
    let ok = ok.and_then(|packet| OkPacket::decode(packet, capabilities).ok());
    ok.filter(|ok| ok.status.contains(StatusFlags::IN_TRANS))
        .ok_or_else(|| {
            Refused(SessionError::ServerLogin {
                server: split.server_name().to_owned(),
                cause: ask::unexpected("START TRANSACTION"),
            })
        })
}

/// Ends the transaction on the replica, and gives that connection back. Where this fails it is closed, and
/// nothing is lost.
async fn leave(split: &mut Split, mut replica: Connection<Held>, begun: &OkPacket, in_step: bool) {
    consistency::leave(&mut replica.state, split.session.move_transaction(begun));
    replica.state.known = session::OfConnection::UNKNOWN;
    replica.state.let_go();
    if !in_step || split.control.is_aimed_at() {
        return;
    }
    // In full, whatever `completion_type` says.
    let rollback = ask::query(replica.capabilities, "ROLLBACK AND NO CHAIN NO RELEASE");
    // Behind it an open transaction on the primary waits.
    let asked = rebuild::asked_in_time(split, &mut replica, &[rollback]).await;
    let is_over = asked.is_ok_and(|replies| {
        replies.first().is_some_and(|reply| {
            let outcome = &reply.outcome;
            outcome.error.is_none() && !outcome.status.contains(StatusFlags::IN_TRANS)
        })
    });
    if is_over {
        split.pool().give_back(replica);
    }
}

#[cfg(test)]
mod tests {
    use sql_class::Syntax;

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
