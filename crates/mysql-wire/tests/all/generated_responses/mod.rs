//! Random valid responses over all capability combinations: the tracker agrees with a decoder that reads
//! every field of every packet, however the bytes are cut.
//!
//! `FOREBAY_SEED=n` runs one seed again, `FOREBAY_SEEDS=n` runs as many.

mod decoder;
mod server;

use decoder::Decoder;
use mysql_wire::{Capabilities, Command, Event, OkPacket, Outcome, ResponseTracker, StatusFlags};
use server::Server;

const COMMANDS: [Command; 12] = [
    Command::QUERY,
    Command::STMT_EXECUTE,
    Command::STMT_BULK_EXECUTE,
    Command::STMT_PREPARE,
    Command::STMT_FETCH,
    Command::FIELD_LIST,
    Command::STATISTICS,
    Command::PROCESS_INFO,
    Command::PING,
    Command::SET_OPTION,
    Command::CHANGE_USER,
    Command(0x77),
];

/// Flags that mean nothing where no cursor was opened for the client: servers show those of stored programs.
const OF_CURSORS: StatusFlags = StatusFlags(StatusFlags::CURSOR_EXISTS.0 | StatusFlags::LAST_ROW_SENT.0);

fn note_ok(outcome: &mut Outcome, payload: &[u8], capabilities: Capabilities) {
    let ok = OkPacket::decode(payload, capabilities).unwrap();
    (outcome.status, outcome.has_status) = (ok.status, true);
    (outcome.affected_rows, outcome.warnings) = (ok.affected_rows, ok.warnings);
    if ok.last_insert_id > 0 {
        outcome.last_insert_id = ok.last_insert_id;
    }
}

fn note_error(outcome: &mut Outcome, code: u16) {
    (outcome.error, outcome.affected_rows, outcome.warnings) = (Some(code), 0, 0);
}

fn begin_result_set(outcome: &mut Outcome) {
    (outcome.is_result_set, outcome.rows, outcome.affected_rows) = (true, 0, 0);
}

fn capability_sets() -> Vec<Capabilities> {
    let base = Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION;
    let mut sets = vec![base];
    for flag in [
        Capabilities::DEPRECATE_EOF,
        Capabilities::SESSION_TRACK,
        Capabilities::OPTIONAL_RESULTSET_METADATA,
        Capabilities::MARIADB_CACHE_METADATA,
        Capabilities::MARIADB_PROGRESS,
    ] {
        sets.extend(sets.clone().into_iter().map(|set| set | flag));
    }
    let both = Capabilities::OPTIONAL_RESULTSET_METADATA | Capabilities::MARIADB_CACHE_METADATA;
    sets.retain(|set| !set.contains(both));
    sets
}

/// Feeds `bytes` cut at `cuts` to a tracker that awaits them; the end and the outcome.
fn track(mut tracker: ResponseTracker, bytes: &[u8], cuts: &[usize]) -> (usize, Event) {
    let mut at = 0;
    for &end in cuts.iter().chain(&[bytes.len()]) {
        let progress = tracker.advance(&bytes[at..end.max(at)]).unwrap();
        at += progress.consumed;
        if progress.event != Event::More {
            return (at, progress.event);
        }
    }
    (at, Event::More)
}

fn check(seed: u64) {
    for (index, &capabilities) in capability_sets().iter().enumerate() {
        for command in COMMANDS {
            let seed = seed.wrapping_mul(1000).wrapping_add(index as u64);
            let mut server = Server::new(seed ^ u64::from(command.0) << 32, capabilities);
            server.respond(command);
            let (bytes, mut outcome) = (server.out, server.outcome);
            let mut decoder = Decoder {
                bytes: &bytes,
                at: 0,
                capabilities,
                asks_for_cursor: server.asks_for_cursor,
                outcome: Outcome::default(),
            };
            let context = format!("{} with {capabilities:?}", command.name());
            assert_eq!(decoder.response(command), Some(()), "{context}");
            assert_eq!((decoder.at, decoder.outcome), (bytes.len(), outcome), "{context}");

            let mut tracker = ResponseTracker::new(capabilities);
            tracker.begin(command);
            if server.asks_for_cursor {
                tracker.allow_cursor();
            }
            if !server.opens_cursor && command != Command::STMT_FETCH {
                outcome.status = outcome.status.without(OF_CURSORS);
            }
            let track = |bytes: &[u8], cuts: &[usize]| track(tracker.clone(), bytes, cuts);
            let whole = (bytes.len(), Event::Done(outcome));
            assert_eq!(track(&bytes, &[]), whole, "{context}");
            let every_byte: Vec<usize> = (0..bytes.len()).collect();
            let step = bytes.len() / 300 + 1;
            for &cut in every_byte.iter().step_by(step) {
                assert_eq!(track(&bytes, &[cut]), whole, "{context}, cut at {cut}");
                let event = track(&bytes[..cut], &[]).1;
                assert_eq!(event, Event::More, "{context}, ends at {cut}");
            }
            if bytes.len() < 5000 {
                assert_eq!(track(&bytes, &every_byte), whole, "{context}, byte by byte");
            }
        }
    }
}

#[test]
fn random_responses_end_where_a_full_decoder_says() {
    inputs::seeds(12).for_each(check);
}
