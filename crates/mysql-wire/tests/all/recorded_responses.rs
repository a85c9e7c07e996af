//! Replays responses that real servers sent (`traces/`, recorded by `traces/record.py`): the tracker finds
//! the end of each, whole and cut anywhere.

use mysql_wire::{Event, Outcome, ResponseTracker, StatusFlags};

use crate::recorded::{Recorded, TRACES, recorded};

fn all_recorded() -> impl Iterator<Item = Recorded> {
    TRACES.iter().flat_map(|trace| recorded(trace))
}

/// Presents `bytes` in two pieces, as a caller does that keeps what was not consumed.
fn advance(tracker: &mut ResponseTracker, bytes: &[u8], cut: usize) -> (usize, Event) {
    let first = tracker.advance(&bytes[..cut]).unwrap();
    if first.event != Event::More {
        return (first.consumed, first.event);
    }
    let second = tracker.advance(&bytes[first.consumed..]).unwrap();
    (first.consumed + second.consumed, second.event)
}

fn begin(recorded: &Recorded, infile: &Option<ResponseTracker>) -> ResponseTracker {
    if recorded.what.ends_with(" result") {
        let mut tracker = infile.clone().unwrap();
        tracker.resume_after_local_infile();
        return tracker;
    }
    let mut tracker = ResponseTracker::new(recorded.capabilities);
    tracker.begin(recorded.command);
    if recorded.what.starts_with("infile") {
        tracker.allow_infile();
    }
    if recorded.asks_for_cursor() {
        tracker.allow_cursor();
    }
    tracker
}

#[test]
fn every_recorded_response_ends_where_the_server_ended_it() {
    let mut infile = None;
    for recorded in all_recorded() {
        let Recorded {
            what,
            capabilities,
            bytes,
            ..
        } = &recorded;
        for cut in 0..=bytes.len() {
            let mut tracker = begin(&recorded, &infile);
            let (consumed, event) = advance(&mut tracker, bytes, cut);
            assert_eq!(
                consumed,
                bytes.len(),
                "{what} with {capabilities:?}, cut at {cut}: {event:?}"
            );
            match event {
                Event::Done(outcome) => check(what, outcome),
                Event::LocalInfile if what.ends_with(" request") => infile = Some(tracker),
                event => panic!("{what} with {capabilities:?}, cut at {cut}: {event:?}"),
            }
        }
    }
}

fn check(what: &str, outcome: Outcome) {
    // What a procedure has opened is no cursor of its caller.
    if what.starts_with("execute") && what != "execute_no_result" {
        let has_cursor = outcome.status.contains(StatusFlags::CURSOR_EXISTS);
        assert_eq!(
            has_cursor,
            what.starts_with("execute_cursor"),
            "{what}: {outcome:?}"
        );
    }
    let no_status = ["statistics", "prepare"]
        .iter()
        .any(|prefix| what.starts_with(prefix));
    if what.contains("error") || what == "unknown" {
        assert!(outcome.error.is_some(), "{what}: {outcome:?}");
    } else if !no_status && !what.starts_with("field_list") && !what.starts_with("fetch") {
        assert!(
            outcome.has_status || outcome.error.is_some(),
            "{what}: {outcome:?}"
        );
    }
}

#[test]
fn what_follows_a_response_is_left_for_the_next_one() {
    for recorded in all_recorded().filter(|recorded| !recorded.what.starts_with("infile")) {
        let mut bytes = recorded.bytes.clone();
        bytes.extend_from_slice(&recorded.bytes);
        let mut tracker = ResponseTracker::new(recorded.capabilities);
        for part in [&bytes[..], &recorded.bytes] {
            tracker.begin(recorded.command);
            if recorded.asks_for_cursor() {
                tracker.allow_cursor();
            }
            assert_eq!(
                tracker.advance(part).unwrap().consumed,
                recorded.bytes.len(),
                "{}",
                recorded.what
            );
        }
    }
}
