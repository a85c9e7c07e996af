//! What recordings and random responses do not show: rows over 16 MiB, streams, files, and servers that do
//! not follow the protocol.

use mysql_wire::{
    Capabilities, Command, ErrPacket, Event, PacketHeader, Progress, ResponseTracker, StatusFlags, WireError,
    write_packet,
};

const OLD: Capabilities = Capabilities::PROTOCOL_41;
const NEW: Capabilities = Capabilities(Capabilities::PROTOCOL_41.0 | Capabilities::DEPRECATE_EOF.0);
const OK: &[u8] = b"\0\0\0\x02\0\0\0";

fn tracker(capabilities: Capabilities, command: Command) -> ResponseTracker {
    let mut tracker = ResponseTracker::new(capabilities);
    tracker.begin(command);
    tracker
}

fn packets<P: AsRef<[u8]>>(payloads: &[P]) -> Vec<u8> {
    let (mut out, mut sequence) = (Vec::new(), 1);
    for payload in payloads {
        write_packet(&mut out, &mut sequence, payload.as_ref());
    }
    out
}

fn error_of(capabilities: Capabilities, command: Command, payloads: &[&[u8]]) -> WireError {
    tracker(capabilities, command)
        .advance(&packets(payloads))
        .unwrap_err()
}

#[test]
fn a_row_over_16_mib_is_one_row_whatever_its_parts_start_with() {
    let full = PacketHeader::MAX_PAYLOAD;
    for (capabilities, end) in [(NEW, &b"\xfe\0\0\x02\0\0\0"[..]), (OLD, b"\xfe\0\0\x02\0")] {
        for (len, second) in [(full, 0), (full + 7, 0xfe), (full + 7, 0xff), (2 * full, 0xff)] {
            // The first column is as long as the row: its length starts with 0xFE.
            let mut row = vec![0xfe; len];
            if len > full {
                row[full] = second;
            }
            let mut payloads = vec![vec![1], b"\x03def".to_vec()];
            if capabilities == OLD {
                payloads.push(end.to_vec());
            }
            payloads.extend([row, end.to_vec()]);
            let bytes = packets(&payloads);
            for read in [64 * 1024, 1 << 20, bytes.len()] {
                let (mut tracker, mut at) = (tracker(capabilities, Command::QUERY), 0);
                let event = loop {
                    let progress = tracker.advance(&bytes[at..(at + read).min(bytes.len())]).unwrap();
                    at += progress.consumed;
                    if progress.event != Event::More {
                        break progress.event;
                    }
                };
                assert!(
                    matches!(event, Event::Done(outcome) if outcome.error.is_none()),
                    "{event:?}"
                );
                assert_eq!(at, bytes.len());
            }
        }
    }
}

/// Rows of one length are passed many at a time, and what ends them may be as long as they are, and so may
/// what comes then.
#[test]
fn rows_of_one_length_end_where_others_do() {
    let ends: [&[u8]; 2] = [b"\xfe\0\0\x02\0\0\0", b"\xff\x10\x04full"];
    for (count, end) in [0_usize, 1, 6, 7, 8, 9, 30, 300]
        .into_iter()
        .flat_map(|count| ends.map(|end| (count, end)))
    {
        for odd in [count, 0, count / 2, count.saturating_sub(1)] {
            let mut payloads: Vec<&[u8]> = vec![b"\x01", b"\x03def"];
            payloads.extend((0..count).map(|row| if row == odd { &b"\x02ab"[..] } else { b"\x06abcdef" }));
            payloads.push(end);
            let bytes = packets(&payloads);
            let with_more = [&bytes[..], &packets(&[b"\x06abcdef"; 3])].concat();
            for cut in 0..bytes.len() {
                let mut tracker = tracker(NEW, Command::QUERY);
                let start = tracker.advance(&bytes[..cut]).unwrap();
                assert_eq!(start.event, Event::More, "{count} rows, cut at {cut}");
                if let Some(sequence) = tracker.error_sequence() {
                    assert_eq!(sequence, bytes[start.consumed + 3], "{count} rows, cut at {cut}");
                }
                let rest = tracker.advance(&with_more[start.consumed..]).unwrap();
                assert_eq!(start.consumed + rest.consumed, bytes.len(), "{count} rows");
                assert!(
                    matches!(rest.event, Event::Done(outcome) if outcome.rows == count as u64),
                    "{count} rows, cut at {cut}: {:?}",
                    rest.event
                );
                assert_eq!(tracker.sequence(), (count + 3) as u8);
            }
        }
    }
}

#[test]
fn a_dump_is_a_stream_unless_it_is_refused() {
    for command in [
        Command::BINLOG_DUMP,
        Command::BINLOG_DUMP_GTID,
        Command::CLONE,
        Command::TABLE_DUMP,
    ] {
        let event = packets(&[b"\0event"]);
        let mut dump = tracker(OLD, command);
        assert_eq!(
            dump.advance(&event[..4]),
            Ok(Progress {
                consumed: 0,
                event: Event::More
            })
        );
        let whole = Progress {
            consumed: event.len(),
            event: Event::Stream,
        };
        assert_eq!(dump.advance(&event), Ok(whole));
        assert_eq!(
            dump.advance(b"what"),
            Ok(Progress {
                consumed: 4,
                event: Event::Stream
            })
        );

        let mut refusal = Vec::new();
        ErrPacket {
            code: 1227,
            sql_state: *b"42000",
            message: b"no".to_vec(),
        }
        .encode(&mut refusal, OLD);
        let progress = tracker(OLD, command).advance(&packets(&[refusal])).unwrap();
        assert!(matches!(progress.event, Event::Done(outcome) if outcome.error == Some(1227)));
    }
}

#[test]
fn a_server_may_only_fail_while_the_client_sends_its_file() {
    let request = packets(&[b"\xfbfile"]);
    let mut tracker = tracker(OLD, Command::QUERY);
    let unasked = tracker.clone().advance(&request);
    assert_eq!(
        unasked,
        Err(WireError::FileNotOffered),
        "unless it was allowed to ask"
    );
    tracker.allow_infile();
    let asked = Progress {
        consumed: request.len(),
        event: Event::LocalInfile,
    };
    assert_eq!(tracker.advance(&request), Ok(asked));
    assert!(tracker.in_progress());
    assert!(tracker.clone().advance(&packets(&[OK])).is_err());
    let failed = tracker.clone().advance(&packets(&[b"\xff\x10\x04no"])).unwrap();
    assert!(matches!(failed.event, Event::Done(outcome) if outcome.error == Some(1040)));
    tracker.resume_after_local_infile();
    assert!(matches!(
        tracker.advance(&packets(&[OK])).unwrap().event,
        Event::Done(_)
    ));
}

#[test]
fn commands_without_a_response_leave_nothing_under_way() {
    for command in [Command::QUIT, Command::STMT_CLOSE, Command::STMT_SEND_LONG_DATA] {
        let mut tracker = tracker(OLD, command);
        assert!(!tracker.in_progress());
        assert_eq!(
            tracker.advance(&[]),
            Ok(Progress {
                consumed: 0,
                event: Event::More
            })
        );
        assert_eq!(tracker.advance(b"\0"), Err(WireError::NotAsked));
    }
}

#[test]
fn the_status_of_an_earlier_response_stays_where_a_response_has_none() {
    let mut tracker = tracker(OLD, Command::PING);
    tracker.advance(&packets(&[b"\0\0\0\x03\0\0\0"])).unwrap();
    tracker.begin(Command::STATISTICS);
    let Event::Done(outcome) = tracker.advance(&packets(&[b"Uptime: 1"])).unwrap().event else {
        panic!()
    };
    assert_eq!(outcome.status, StatusFlags::IN_TRANS | StatusFlags::AUTOCOMMIT);
    assert!(!outcome.has_status);
}

#[test]
fn what_is_no_response_is_an_error() {
    let unexpected = |expected, found| WireError::Unexpected { expected, found };
    let result = "the start of a result";
    assert_eq!(
        error_of(OLD, Command::QUERY, &[b"\xfe\0\0\x02\0"]),
        unexpected(result, 0xfe)
    );
    assert_eq!(
        error_of(OLD, Command::QUERY, &[b""]),
        WireError::Empty { expected: result }
    );
    assert_eq!(
        error_of(OLD, Command::PING, &[b"\x05"]),
        unexpected("OK or ERR", 5)
    );
    let definition = "a column definition";
    assert_eq!(
        error_of(OLD, Command::QUERY, &[b"\x02", b"\xfe\0\0\x02\0"]),
        unexpected(definition, 0xfe)
    );
    let end = "EOF after column definitions";
    assert_eq!(
        error_of(OLD, Command::QUERY, &[b"\x01", b"\x03def", b"\x01a"]),
        unexpected(end, 1)
    );
    let truncated = |field| WireError::Truncated { field };
    assert_eq!(
        error_of(OLD, Command::QUERY, &[b"\0\0"]),
        truncated("last insert id")
    );
    assert_eq!(
        error_of(OLD, Command::PING, &[b"\0\0\0\x02"]),
        truncated("status")
    );
    assert_eq!(
        error_of(OLD, Command::PING, &[b"\xff\x10"]),
        truncated("error code")
    );
    assert_eq!(
        error_of(OLD, Command::STMT_PREPARE, &[b"\0\x01\0\0\0\x01"]),
        truncated("warnings")
    );
    // MySQL says a plain OK where it has prepared nothing.
    let mut prepares = tracker(OLD, Command::STMT_PREPARE);
    let progress = prepares.advance(&packets(&[OK])).unwrap();
    assert!(matches!(progress.event, Event::Done(outcome) if outcome.error.is_none()));
    let huge = [b"\xfe".as_slice(), &[0xff; 8]].concat();
    let unknown = error_of(OLD, Command::PROCESS_INFO, &[&huge]);
    assert_eq!(unknown, unexpected(result, 0xfe));
    assert_eq!(
        error_of(OLD, Command::QUERY, &[b"\xfc\x01"]),
        truncated("column count")
    );
}
