//! `SUBSCRIBE` and `UNSUBSCRIBE`: a connection that is told of changes on behalf of others, which have said
//! so with `CLIENT TRACKING ON REDIRECT`. There is one channel, and nobody can publish.

use resp_wire::{Args, Version, Writer};

use super::refusal::Refusal;
use super::session::Session;
use super::tracking::CHANNEL;

/// `SUBSCRIBE channel …`
///
/// # Errors
/// One of the channels is not served. Nothing has changed then.
pub(crate) fn subscribe(session: &mut Session, args: Args<'_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    if args.from(1).iter().any(|channel| channel != CHANNEL.as_bytes()) {
        return Err(Refusal::Other(format!("the only channel is {CHANNEL}")));
    }
    session.subscribe();
    for channel in args.from(1).iter() {
        say("subscribe", Some(channel), true, out);
    }
    Ok(())
}

/// `UNSUBSCRIBE [channel …]`
pub(crate) fn unsubscribe(session: &mut Session, args: Args<'_>, out: &mut Writer<'_>) {
    let was_subscribed = session.letters.is_some();
    if args.len() == 1 {
        session.unsubscribe();
        let channel = was_subscribed.then_some(CHANNEL.as_bytes());
        say("unsubscribe", channel, false, out);
    }
    for channel in args.from(1).iter() {
        if channel == CHANNEL.as_bytes() {
            session.unsubscribe();
        }
        say("unsubscribe", Some(channel), session.letters.is_some(), out);
    }
}

fn say(what: &str, channel: Option<&[u8]>, is_subscribed: bool, out: &mut Writer<'_>) {
    out.push(3);
    out.bulk(what.as_bytes());
    match channel {
        Some(channel) => out.bulk(channel),
        None => out.null(),
    }
    out.integer(i64::from(is_subscribed));
}

/// The answer to `PING` of a connection that says nothing else in RESP2.
pub(crate) fn pong(args: Args<'_>, out: &mut Writer<'_>) {
    debug_assert_eq!(out.version(), Version::V2);
    out.array(2);
    out.bulk(b"pong");
    out.bulk(args.get(1).unwrap_or_default());
}
