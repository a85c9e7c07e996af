//! Reports of servers after the client has changed what its server reports of the session, or where nobody
//! knows what is reported: the gateway needs them as they were.

use session::PinReason;

use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::{ask, last_statement, lease};
use crate::error::SessionError;

/// Has the server report again. A connection that is held for nothing else is given back, as one that was
/// just opened.
pub(crate) async fn again(session: &mut ClientSession) -> Result<(), SessionError> {
    if is_bound_by_this_alone(session) {
        learn_what_a_reset_ends(session).await;
        if lease::give_back_as_new(session).await.is_err() {
            lease::abandon(session);
        }
    } else {
        // Settings of the next statements must not go unseen until the session is free.
        arm(session)
            .await
            .map_err(|Refused(error)| lease::lost_behind(session, error))?;
    }
    session.state.rearmed();
    Ok(())
}

/// Has the connection tell what it alone knows of the last statements, before it forgets that. MySQL tells an
/// id by a report, which the client may have switched off.
async fn learn_what_a_reset_ends(session: &mut ClientSession) {
    if session.state.knows_last_insert_id() && !session.state.has_unclear_count() {
        return;
    }
    match arm(session).await {
        Ok(()) => last_statement::learn_insert_id(session).await,
        Err(Refused(_)) => lease::abandon(session),
    }
}

/// Has the server report what the last statement has set, where it did not by itself. Asks for the values
/// that the server does not report then.
pub(crate) async fn learn_unseen(session: &mut ClientSession) -> Result<(), SessionError> {
    if let Some(question) = session.state.ask_unseen() {
        learn_by_ok(session, question).await?;
    }
    let names = session.state.take_unnamed();
    if names.is_empty() {
        return Ok(());
    }
    let commands = names.iter().map(|name| session::ask_value(name)).collect();
    let commands = ask::framed(session.client.key.capabilities, commands);
    let replies = lease::ask_on_lease(session, &commands)
        .await
        .map_err(|Refused(error)| lease::lost_behind(session, error))?;
    for (name, reply) in names.iter().zip(&replies) {
        // The server may report what the statement has done before it failed.
        let ok = ask::end_ok(reply, session.client.key.capabilities);
        if let Some(ok) = ok.filter(|_| reply.outcome.error.is_none()) {
            drop(session.state.observe_ok(&ok));
        }
        let value = ask::plain(reply.value());
        session.state.learn_value(name, value.as_deref());
    }
    Ok(())
}

async fn learn_by_ok(session: &mut ClientSession, question: Vec<u8>) -> Result<(), SessionError> {
    let capabilities = session.client.key.capabilities;
    let question = ask::framed(capabilities, vec![question]);
    // The client has been told that it is set.
    let replies = lease::ask_on_lease(session, &question)
        .await
        .map_err(|Refused(error)| lease::lost_behind(session, error))?;
    let reply = replies.first().filter(|reply| reply.outcome.error.is_none());
    match reply.and_then(|reply| ask::ok(reply, capabilities)) {
        Some(ok) => drop(session.state.observe_ok(&ok)),
        None => session.state.remains_unseen(),
    }
    Ok(())
}

fn is_bound_by_this_alone(session: &ClientSession) -> bool {
    let pins = session.state.pins();
    !session.binding.is_for_good() && pins.iter().all(|pin| pin.reason == PinReason::Trackers)
}

async fn arm(session: &mut ClientSession) -> Result<(), Refused> {
    let Some(leased) = &session.lease else {
        return Ok(());
    };
    let capabilities = session.client.key.capabilities;
    let mut trackers = leased.connection.trackers();
    // MySQL lets nobody change this tracker in a transaction.
    if session.state.in_transaction()
        && let Some((others, _)) = trackers.split_once(", session_track_gtids")
    {
        trackers = others;
    }
    let command = ask::query(capabilities, trackers);
    let replies = lease::ask_on_lease(session, &[command]).await?;
    let reply = replies.first();
    if let Some(packet) = reply.and_then(|reply| reply.error(capabilities)) {
        return Err(session.state_refused(packet));
    }
    if let Some(ok) = reply.and_then(|reply| ask::ok(reply, capabilities)) {
        session.state.observe_excursion(&ok);
    }
    Ok(())
}
