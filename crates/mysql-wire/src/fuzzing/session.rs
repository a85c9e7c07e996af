//! What the gateway understands of a session: its state, its statements, its transactions, and responses
//! reshaped for it.

use super::response_capabilities;
use crate::gtid::{Flavor, GtidSet};
use crate::query::Query;
use crate::session_state::{Change, changes};
use crate::statement::{ExecuteHead, Fetch, LongDataHead, PrepareOk, replace_id, statement_id};
use crate::{
    Capabilities, Command, Event, OkPacket, Outcome, Reshaper, ResponseTracker, StatusFlags, WireError,
};

/// What a client gets, and how the response ended.
type Reshaped = Result<(Vec<u8>, Option<Outcome>), WireError>;

/// Byte 0: the command. Byte 1: whether it asks for a cursor, capabilities, and what the client lacks of
/// them. Bytes 2 and 3: where to cut. The rest: what the server sends. Panics where the cut makes a
/// difference, or where the client's side cannot be followed.
pub fn reshape(data: &[u8]) {
    let Some((&[command, flags, cut_low, cut_high], bytes)) = data.split_first_chunk() else {
        return;
    };
    let command = Command(command);
    let server = response_capabilities(flags) | Capabilities::DEPRECATE_EOF;
    let mut client = server;
    if flags & 0x20 == 0 {
        client.remove(Capabilities::DEPRECATE_EOF);
    }
    if flags & 0x40 == 0 {
        client.remove(Capabilities::SESSION_TRACK);
    }
    let cut = usize::from(u16::from_le_bytes([cut_low, cut_high])).min(bytes.len());
    let keeps_state = flags & 0x80 == 0;
    let asks_for_cursor = flags & 1 != 0;
    let pass = |views: &[&[u8]]| {
        let mut reshaper = Reshaper::new(server, client);
        reshaper.begin(command);
        reshaper.allow_infile();
        if asks_for_cursor {
            reshaper.allow_cursor();
        }
        pass(reshaper, views, keeps_state)
    };
    let whole = pass(&[bytes]);
    assert_eq!(whole, pass(&[&bytes[..cut], bytes]), "cut at {cut}");

    let Ok((out, Some(outcome))) = whole else { return };
    let mut tracker = ResponseTracker::new(client);
    tracker.begin(command);
    tracker.allow_infile();
    if asks_for_cursor {
        tracker.allow_cursor();
    }
    let mut at = 0;
    loop {
        let progress = match tracker.advance(&out[at..]) {
            Ok(progress) => progress,
            Err(error) => panic!("no response for the client: {error}"),
        };
        at += progress.consumed;
        match progress.event {
            Event::LocalInfile => tracker.resume_after_local_infile(),
            Event::Done(seen) => {
                assert_eq!(at, out.len());
                return assert_same(seen, outcome);
            }
            event => panic!("the client waits for more: {event:?}"),
        }
    }
}

/// The client and we mean the same, as far as it can know.
fn assert_same(mut seen: Outcome, mut outcome: Outcome) {
    for side in [&mut seen, &mut outcome] {
        side.status.remove(StatusFlags::SESSION_STATE_CHANGED);
        // EOF packets have none of these, and some come early.
        (side.affected_rows, side.last_insert_id) = (0, 0);
        if side.error.is_some() {
            (side.status, side.has_status) = (StatusFlags(0), false);
        }
    }
    // An EOF packet behind definitions has a status, even where the response has none of its own.
    if !outcome.has_status {
        (seen.status, seen.has_status, seen.warnings) = (outcome.status, false, outcome.warnings);
    }
    assert_eq!(seen, outcome);
}

fn pass(mut reshaper: Reshaper, views: &[&[u8]], keeps_state: bool) -> Reshaped {
    let mut on_ok = |ok: &OkPacket| match keeps_state {
        true => ok.session_state.clone(),
        false => Vec::new(),
    };
    let (mut out, mut at) = (Vec::new(), 0);
    for &view in views {
        loop {
            let progress = reshaper.advance(&view[at..], &mut out, &mut on_ok)?;
            at += progress.consumed;
            match progress.event {
                // Before its first byte is there nobody knows that it is a stream.
                Event::Stream => return Ok((Vec::new(), None)),
                Event::LocalInfile => reshaper.resume_after_local_infile(),
                Event::Done(outcome) => return Ok((out, Some(outcome))),
                Event::More => break,
                Event::State => panic!("nobody asked"),
            }
        }
    }
    Ok((out, None))
}

/// Session state as a server may send it. Panics where it does not survive being written again.
pub fn session_state(data: &[u8]) {
    let Ok(first) = changes(data).collect::<Result<Vec<Change<'_>>, WireError>>() else {
        return;
    };
    let mut written = Vec::new();
    first.iter().for_each(|change| change.encode(&mut written));
    let second: Result<Vec<_>, _> = changes(&written).collect();
    assert_eq!(second.as_ref(), Ok(&first));
}

/// Byte 0: the flavor. The rest: two GTID sets with `;` between them. Panics where sets are not sets.
pub fn gtid(data: &[u8]) {
    let Some((&choice, text)) = data.split_first() else {
        return;
    };
    let flavor = if choice & 1 == 0 {
        Flavor::MySql
    } else {
        Flavor::MariaDb
    };
    let mut texts = text.splitn(2, |&byte| byte == b';');
    let mut next = || GtidSet::parse(flavor, texts.next().unwrap_or_default());
    let (Ok(a), Ok(b)) = (next(), next()) else { return };
    for set in [&a, &b] {
        assert_eq!(
            GtidSet::parse(flavor, set.to_string().as_bytes()).as_ref(),
            Ok(set)
        );
        assert!(set.covers(set));
        assert!(set.covers(&GtidSet::empty(flavor)));
    }
    let mut both = a.clone();
    if both.merge(&b).is_ok() {
        assert!(both.covers(&a) && both.covers(&b));
        assert_eq!(both == a, a.covers(&b));
    }
}

/// Byte 0: parameters of the statement. Byte 1: capabilities. The rest: a command's payload. Panics where
/// types that were put in are not found again.
pub fn statement(data: &[u8]) {
    let Some((&[parameters, flags], payload)) = data.split_first_chunk() else {
        return;
    };
    let capabilities = match flags & 1 {
        0 => Capabilities::PROTOCOL_41,
        _ => Capabilities::PROTOCOL_41 | Capabilities::QUERY_ATTRIBUTES,
    };
    let parameters = u16::from(parameters);
    let _ = (
        Fetch::decode(payload),
        LongDataHead::decode(payload),
        PrepareOk::decode(payload),
    );
    if let Ok(query) = Query::decode(payload, capabilities) {
        assert!(payload.ends_with(query.text));
    }
    let mut changed = payload.to_vec();
    if let Ok(Some(id)) = statement_id(payload) {
        assert!(replace_id(&mut changed, !id));
        assert_eq!(statement_id(&changed), Ok(Some(!id)));
        assert!(replace_id(&mut changed, id));
    }
    let Ok(head) = ExecuteHead::decode(payload, parameters, capabilities) else {
        return;
    };
    let exact = ExecuteHead::decode(&payload[..head.len], parameters, capabilities);
    assert_eq!(exact.as_ref(), Ok(&head));
    let types: Vec<u8> = (0..2 * parameters).map(|byte| byte as u8).collect();
    assert_eq!(head.inject_types(&mut changed, &types), head.needs_types());
    if head.needs_types() {
        let Ok(with_types) = ExecuteHead::decode(&changed, parameters, capabilities) else {
            panic!("no head any more: {changed:?}");
        };
        assert_eq!(with_types.types(), Some(&types[..]));
        assert_eq!(with_types.statement_id, head.statement_id);
        assert_eq!(changed[with_types.len..], payload[head.len..]);
    } else {
        assert_eq!(changed, payload);
    }
}
