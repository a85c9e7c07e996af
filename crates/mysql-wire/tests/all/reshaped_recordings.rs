//! What the same server said to two clients, one with DEPRECATE_EOF and one without, is the truth about both:
//! reshaped, the first is the second.

use mysql_wire::{Capabilities, EofPacket, Event, PacketHeader, Reshaper, StatusFlags};

use crate::recorded::{Recorded, TRACES, recorded};

const TRACK: Capabilities = Capabilities::SESSION_TRACK;
const DEPRECATE: Capabilities = Capabilities::DEPRECATE_EOF;

/// What an EOF packet before the rows cannot know yet: what is found while the rows are made, and that more
/// follows.
const LATER: StatusFlags = StatusFlags(
    StatusFlags::MORE_RESULTS.0 | StatusFlags::NO_INDEX_USED.0 | StatusFlags::NO_GOOD_INDEX_USED.0,
);

fn session(trace: &str, capabilities: Capabilities) -> Vec<Recorded> {
    recorded(trace)
        .filter(|recorded| recorded.capabilities == capabilities)
        .collect()
}

fn packets(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut packets = Vec::new();
    while let Some(header) = PacketHeader::parse(bytes) {
        let (packet, rest) = bytes.split_at(PacketHeader::LEN + header.payload_len);
        packets.push((header.sequence, packet[PacketHeader::LEN..].to_vec()));
        bytes = rest;
    }
    packets
}

/// Reshapes a whole session, each response cut in two.
fn reshape(session: &[Recorded], client: Capabilities, cut_percent: usize) -> Vec<Vec<u8>> {
    let mut reshaper = Reshaper::new(session[0].capabilities, client);
    reshaper.note_status(StatusFlags::AUTOCOMMIT);
    let one = |recorded: &Recorded| {
        if recorded.what.ends_with(" result") {
            reshaper.resume_after_local_infile();
        } else {
            reshaper.begin(recorded.command);
            if recorded.what.starts_with("infile") {
                reshaper.allow_infile();
            }
            if recorded.asks_for_cursor() {
                reshaper.allow_cursor();
            }
        }
        let bytes = &recorded.bytes;
        let (mut at, mut out) = (0, Vec::new());
        let mut event = Event::More;
        for end in [bytes.len() * cut_percent / 100, bytes.len()] {
            if event == Event::More {
                let progress = reshaper
                    .advance(&bytes[at..end], &mut out, &mut |ok| ok.session_state.clone())
                    .unwrap();
                at += progress.consumed;
                event = progress.event;
            }
        }
        assert_eq!(at, bytes.len(), "{}", recorded.what);
        assert!(
            matches!(event, Event::Done(_) | Event::LocalInfile),
            "{}: {event:?}",
            recorded.what
        );
        out
    };
    session.iter().map(one).collect()
}

/// Equal but for what is different each time, and for what [`LATER`] excuses in EOF packets that are not the
/// last.
fn check(what: &str, reshaped: &[u8], truth: &[u8], is_mysql: bool) {
    let (reshaped, truth) = (packets(reshaped), packets(truth));
    assert_eq!(reshaped.len(), truth.len(), "{what}\n{reshaped:?}\n{truth:?}");
    for (index, ((number, ours), (true_number, theirs))) in reshaped.iter().zip(&truth).enumerate() {
        let context = format!("{what}, packet {number}: {ours:x?}, {theirs:x?}");
        assert_eq!(number, true_number, "{context}");
        let is_last = index + 1 == truth.len();
        match (EofPacket::decode(ours), EofPacket::decode(theirs)) {
            (Ok(ours), Ok(theirs)) if !is_last => {
                assert_eq!(ours.warnings, theirs.warnings, "{context}");
                let mut excused = LATER;
                // MySQL's clients know that these stay true behind the row, and its servers do not repeat
                // them.
                if is_mysql && what.starts_with("execute_out") {
                    excused.insert(StatusFlags::PS_OUT_PARAMS);
                    let before_row = index == 6 || index == 2;
                    assert!(!before_row || ours.status.contains(theirs.status), "{context}");
                }
                // Of a cursor that is not theirs, clients need not know.
                if what.starts_with("execute_call_open") {
                    excused.insert(StatusFlags::CURSOR_EXISTS);
                }
                assert_eq!(
                    ours.status.without(excused),
                    theirs.status.without(excused),
                    "{context}"
                );
            }
            _ if what == "statistics" || what == "process_info" && ours.len() > 40 => {}
            _ if what.starts_with("prepare") && index == 0 && ours[0] == 0 => {
                assert_eq!(ours[5..], theirs[5..], "{context}");
            }
            _ if what == "fetch_closed" => assert_eq!(ours[..9], theirs[..9], "{context}"),
            _ => assert_eq!(ours, theirs, "{context}"),
        }
    }
}

#[test]
fn reshaped_responses_are_what_the_server_says_to_an_older_client() {
    let mut compared = 0;
    for trace in TRACES {
        let mut sets: Vec<Capabilities> = recorded(trace).map(|recorded| recorded.capabilities).collect();
        sets.sort_unstable_by_key(|set| set.0);
        sets.dedup();
        let is_mysql = std::ptr::eq(trace, TRACES[0]);
        for &server in sets.iter().filter(|set| set.contains(DEPRECATE)) {
            for taken in [DEPRECATE, TRACK, DEPRECATE | TRACK] {
                let client = server.without(taken);
                if client == server || !sets.contains(&client) {
                    continue;
                }
                let (new, old) = (session(trace, server), session(trace, client));
                for cut in [0, 1, 30, 50, 77, 99, 100] {
                    for ((new, old), out) in new.iter().zip(&old).zip(reshape(&new, client, cut)) {
                        assert_eq!(new.what, old.what);
                        // Reports of progress come by the clock.
                        if new.what == "progress" {
                            continue;
                        }
                        check(&new.what, &out, &old.bytes, is_mysql);
                        compared += 1;
                    }
                }
            }
        }
    }
    assert!(compared > 1000, "{compared}");
}
