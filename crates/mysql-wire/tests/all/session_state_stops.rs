//! The tracker stops before each OK packet with session state, and the caller may put another one in its
//! place.

use mysql_wire::session_state::{Change, changes};
use mysql_wire::{
    Capabilities, Command, Event, OkPacket, PacketHeader, ResponseTracker, StatusFlags, write_packet,
};

const CAPABILITIES: Capabilities =
    Capabilities(Capabilities::PROTOCOL_41.0 | Capabilities::SESSION_TRACK.0 | Capabilities::DEPRECATE_EOF.0);

fn ok(status: StatusFlags, state: &[Change<'_>]) -> OkPacket {
    let mut session_state = Vec::new();
    state.iter().for_each(|change| change.encode(&mut session_state));
    let changed = match state {
        [] => StatusFlags(0),
        _ => StatusFlags::SESSION_STATE_CHANGED,
    };
    OkPacket {
        status: status | changed | StatusFlags::AUTOCOMMIT,
        session_state,
        ..OkPacket::default()
    }
}

/// An OK packet, a result set and an OK packet again; all but the middle one of their ends with state.
fn response() -> Vec<u8> {
    let (mut out, mut sequence) = (Vec::new(), 1);
    let more = StatusFlags::MORE_RESULTS;
    let end = |ok: OkPacket, as_eof: bool| {
        let mut payload = Vec::new();
        match as_eof {
            true => ok.encode_as_eof(&mut payload, CAPABILITIES),
            false => ok.encode(&mut payload, CAPABILITIES),
        }
        payload
    };
    let long = [b'x'; 300];
    for payload in [
        end(ok(more, &[Change::Schema(b"a")]), false),
        b"\x01".to_vec(),
        b"\x03def".to_vec(),
        b"\x01a".to_vec(),
        b"\x01b".to_vec(),
        end(ok(more, &[Change::StateChanged(true)]), true),
        end(ok(more, &[]), false),
        end(ok(StatusFlags(0), &[Change::Schema(&long)]), false),
    ] {
        write_packet(&mut out, &mut sequence, &payload);
    }
    out
}

/// Reads the response from a buffer that grows by `step`, and takes the state out of every packet that has
/// some. What is left of the response, and the changes.
fn strip(step: usize) -> (Vec<u8>, Vec<String>) {
    let sent = response();
    let mut tracker = ResponseTracker::new(CAPABILITIES);
    tracker.inspect_state(true);
    tracker.begin(Command::QUERY);
    let (mut buffer, mut forwarded, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = &sent[..];
    loop {
        let progress = tracker.advance(&buffer).unwrap();
        forwarded.extend(buffer.drain(..progress.consumed));
        match progress.event {
            Event::Done(outcome) => {
                assert_eq!((outcome.rows, outcome.is_result_set), (0, false));
                assert_eq!(outcome.status, StatusFlags::AUTOCOMMIT, "of the packets put in");
                return (forwarded, seen);
            }
            Event::State => {
                let len = PacketHeader::LEN + PacketHeader::parse(&buffer).unwrap().payload_len;
                while buffer.len() < len {
                    buffer.push(rest[0]);
                    rest = &rest[1..];
                }
                let packet: Vec<u8> = buffer.drain(..len).collect();
                let mut ok = OkPacket::decode(&packet[4..], CAPABILITIES).unwrap();
                let all = changes(&ok.session_state).map(|change| format!("{:?}", change.unwrap()));
                seen.extend(all);
                ok.status.remove(StatusFlags::SESSION_STATE_CHANGED);
                let (mut payload, mut other) = (Vec::new(), Vec::new());
                match packet[4] {
                    0 => ok.encode(&mut payload, CAPABILITIES),
                    _ => ok.encode_as_eof(&mut payload, CAPABILITIES),
                }
                write_packet(&mut other, &mut { packet[3] }, &payload);
                buffer.splice(..0, other);
                tracker.pass_state();
            }
            event => {
                assert_eq!(event, Event::More);
                let (part, after) = rest.split_at(step.min(rest.len()));
                buffer.extend_from_slice(part);
                rest = after;
            }
        }
    }
}

#[test]
fn session_state_can_be_taken_out() {
    let (whole, seen) = strip(usize::MAX);
    assert_eq!(seen.len(), 3);
    assert!(seen[1].contains("StateChanged"), "{seen:?}");
    for step in 1..50 {
        assert_eq!(strip(step), (whole.clone(), seen.clone()), "by {step}");
    }
}

#[test]
fn a_packet_may_pass_as_it_is() {
    let bytes = response();
    let mut tracker = ResponseTracker::new(CAPABILITIES);
    tracker.inspect_state(true);
    tracker.begin(Command::QUERY);
    let (mut at, mut stops) = (0, 0);
    loop {
        let progress = tracker.advance(&bytes[at..]).unwrap();
        at += progress.consumed;
        match progress.event {
            Event::State => tracker.pass_state(),
            event => {
                assert!(matches!(event, Event::Done(_)));
                break;
            }
        }
        stops += 1;
    }
    assert_eq!((at, stops), (bytes.len(), 3));
}

#[test]
fn nobody_is_stopped_who_did_not_ask() {
    let bytes = response();
    let mut tracker = ResponseTracker::new(CAPABILITIES);
    tracker.begin(Command::QUERY);
    let progress = tracker.advance(&bytes).unwrap();
    assert!(matches!(progress.event, Event::Done(_)));

    // Without SESSION_TRACK the flag means nothing.
    let mut tracker = ResponseTracker::new(CAPABILITIES.without(Capabilities::SESSION_TRACK));
    tracker.inspect_state(true);
    tracker.begin(Command::PING);
    let progress = tracker.advance(b"\x07\0\0\x01\0\0\0\x02\x40\0\0").unwrap();
    assert!(matches!(progress.event, Event::Done(_)));
}
