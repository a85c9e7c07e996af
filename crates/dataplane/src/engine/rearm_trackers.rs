//! The client has changed what its server reports of the session, or nobody knows what is reported: the
//! gateway needs it as it was.

use mysql_wire::OkPacket;
use session::PinReason;

use crate::engine::state::{Refused, Split};
use crate::engine::{ask, lease};
use crate::error::SessionError;

/// Has the server report again. A connection that is held for nothing else is given back, as one that was
/// just opened.
pub(crate) async fn again(split: &mut Split) -> Result<(), SessionError> {
    if is_bound_by_this_alone(split) {
        if lease::give_back_as_new(split).await.is_err() {
            lease::abandon(split);
        }
    } else {
        // What the next statements set must not go unseen until the session is free.
        arm(split).await.map_err(|Refused(error)| error)?;
    }
    split.session.rearmed();
    Ok(())
}

/// Has the server report what the last statement has set, where it did not by itself; and say what it does
/// not report then.
pub(crate) async fn learn_unseen(split: &mut Split) -> Result<(), SessionError> {
    if let Some(question) = split.session.ask_unseen() {
        learn_by_ok(split, question).await?;
    }
    let names = split.session.take_unnamed();
    if names.is_empty() {
        return Ok(());
    }
    let commands = names.iter().map(|name| session::ask_value(name)).collect();
    let commands = ask::framed(split.client.key.capabilities, commands);
    let replies = lease::ask_on_lease(split, &commands)
        .await
        .map_err(|Refused(error)| error)?;
    for (name, reply) in names.iter().zip(&replies) {
        // It may report what the statement has done before it failed.
        let end = reply
            .packet(reply.end())
            .filter(|_| reply.outcome.error.is_none());
        if let Some(ok) = end.and_then(|end| OkPacket::decode(end, split.client.key.capabilities).ok()) {
            drop(split.session.observe_ok(&ok));
        }
        let value = ask::plain(reply.value());
        split.session.learn_value(name, value.as_deref());
    }
    Ok(())
}

async fn learn_by_ok(split: &mut Split, question: Vec<u8>) -> Result<(), SessionError> {
    let capabilities = split.client.key.capabilities;
    let question = ask::framed(capabilities, vec![question]);
    // The client has been told that it is set.
    let replies = lease::ask_on_lease(split, &question)
        .await
        .map_err(|Refused(error)| error)?;
    let reply = replies.first().filter(|reply| reply.outcome.error.is_none());
    match reply.and_then(|reply| OkPacket::decode(reply.packet(0)?, capabilities).ok()) {
        Some(ok) => drop(split.session.observe_ok(&ok)),
        None => split.session.remains_unseen(),
    }
    Ok(())
}

fn is_bound_by_this_alone(split: &Split) -> bool {
    let pins = split.session.pins();
    !split.binding.is_for_good() && pins.iter().all(|pin| pin.reason == PinReason::Trackers)
}

async fn arm(split: &mut Split) -> Result<(), Refused> {
    let Some(leased) = &split.lease else {
        return Ok(());
    };
    let capabilities = split.client.key.capabilities;
    let mut trackers = leased.connection.trackers();
    // MySQL lets nobody change this one in a transaction.
    if split.session.in_transaction()
        && let Some((others, _)) = trackers.split_once(", session_track_gtids")
    {
        trackers = others;
    }
    let command = ask::query(capabilities, trackers);
    let replies = lease::ask_on_lease(split, &[command]).await?;
    let reply = replies.first();
    if let Some(packet) = reply.and_then(|reply| reply.error(capabilities)) {
        let server = split.server_name().to_owned();
        return Err(Refused(SessionError::StateRefused { server, packet }));
    }
    let ok = reply.and_then(|reply| OkPacket::decode(reply.packet(0)?, capabilities).ok());
    if let Some(ok) = ok {
        split.session.observe_excursion(&ok);
    }
    Ok(())
}
