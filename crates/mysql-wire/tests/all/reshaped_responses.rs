//! Random responses, written at once as the server of a newer client and of an older client would: reshaped,
//! the one is the other, however the bytes are cut.
//!
//! `FOREBAY_SEED=n` runs one seed again, `FOREBAY_SEEDS=n` runs as many.

use inputs::Random;
use mysql_wire::{
    Capabilities, Command, EofPacket, ErrPacket, Event, OkPacket, Reshaper, StatusFlags, WireError,
    write_packet,
};

const BASE: Capabilities = Capabilities(
    Capabilities::PROTOCOL_41.0 | Capabilities::SECURE_CONNECTION.0 | Capabilities::MARIADB_PROGRESS.0,
);
const SERVER: Capabilities =
    Capabilities(BASE.0 | Capabilities::DEPRECATE_EOF.0 | Capabilities::SESSION_TRACK.0);
const LASTING: StatusFlags = StatusFlags(
    StatusFlags::IN_TRANS.0
        | StatusFlags::AUTOCOMMIT.0
        | StatusFlags::NO_BACKSLASH_ESCAPES.0
        | StatusFlags::IN_TRANS_READONLY.0
        | StatusFlags::ANSI_QUOTES.0,
);

/// MariaDB's report of progress, an error packet that is none.
const PROGRESS: &[u8] = b"\xff\xff\xff\x01\x01\x02\x10\x00\x00\x05stage";

/// What of the session state the client is to see: as good as any rule.
fn shown(state: &[u8]) -> Vec<u8> {
    match state.first() {
        Some(first) if first % 3 > 0 => state[1..].to_vec(),
        _ => Vec::new(),
    }
}

/// Two connections to one server that differ in capabilities: each gets the same responses.
struct Twins {
    random: Random,
    server: Capabilities,
    client: Capabilities,
    new: Vec<u8>,
    old: Vec<u8>,
    new_sequence: u8,
    old_sequence: u8,
    /// Of the session, before this response and in it.
    status: StatusFlags,
    /// Session state that the old client is owed.
    deferred: Vec<u8>,
    states_sent: usize,
    asks_for_cursor: bool,
}

impl Twins {
    fn new(seed: u64, server: Capabilities, client: Capabilities) -> Twins {
        Twins {
            random: Random::new(seed),
            server,
            client,
            new: Vec::new(),
            old: Vec::new(),
            new_sequence: 1,
            old_sequence: 1,
            status: StatusFlags::AUTOCOMMIT,
            deferred: Vec::new(),
            states_sent: 0,
            asks_for_cursor: false,
        }
    }

    fn client_has(&self, flag: Capabilities) -> bool {
        self.client.contains(flag)
    }

    /// Fewer than `limit`.
    fn bytes(&mut self, limit: usize) -> Vec<u8> {
        let len = self.random.below(limit);
        self.random.bytes(len)
    }

    fn both(&mut self, payload: &[u8]) {
        write_packet(&mut self.new, &mut self.new_sequence, payload);
        write_packet(&mut self.old, &mut self.old_sequence, payload);
    }

    fn maybe_progress(&mut self) {
        if self.random.chance(10) {
            self.both(PROGRESS);
        }
    }

    fn eof(&mut self, status: StatusFlags, warnings: u16) {
        let mut payload = Vec::new();
        let status = status.without(StatusFlags::SESSION_STATE_CHANGED);
        EofPacket { warnings, status }.encode(&mut payload);
        write_packet(&mut self.old, &mut self.old_sequence, &payload);
    }

    fn random_ok(&mut self, flags: StatusFlags) -> OkPacket {
        let mut status = StatusFlags(self.random.below(1 << 16) as u16);
        status.remove(StatusFlags::MORE_RESULTS | StatusFlags::CURSOR_EXISTS | StatusFlags::PS_OUT_PARAMS);
        status.remove(StatusFlags::SESSION_STATE_CHANGED | StatusFlags::LAST_ROW_SENT);
        let session_state = match self.random.below(4) {
            0 => self.bytes(300),
            _ => Vec::new(),
        };
        if !session_state.is_empty() {
            status.insert(StatusFlags::SESSION_STATE_CHANGED);
        }
        let shift = self.random.below(64);
        OkPacket {
            affected_rows: u64::MAX >> shift,
            last_insert_id: self.random.below(1 << 32),
            status: status | flags,
            warnings: self.random.below(1 << 16) as u16,
            info: self.bytes(40),
            session_state,
        }
    }

    fn ok(&mut self, ok: &OkPacket, as_eof: bool) {
        let write = |ok: &OkPacket, capabilities| {
            let mut payload = Vec::new();
            match as_eof {
                true => ok.encode_as_eof(&mut payload, capabilities),
                false => ok.encode(&mut payload, capabilities),
            }
            payload
        };
        write_packet(&mut self.new, &mut self.new_sequence, &write(ok, self.server));
        self.status = ok.status;
        self.states_sent += usize::from(!ok.session_state.is_empty());
        let mut seen = shown(&ok.session_state);
        if as_eof && !self.client_has(Capabilities::DEPRECATE_EOF) {
            if self.client_has(Capabilities::SESSION_TRACK) {
                self.deferred.append(&mut seen);
            }
            return self.eof(ok.status, ok.warnings);
        }
        seen.splice(..0, std::mem::take(&mut self.deferred));
        let mut status = ok.status.without(StatusFlags::SESSION_STATE_CHANGED);
        if !seen.is_empty() {
            status.insert(StatusFlags::SESSION_STATE_CHANGED);
        }
        let for_client = OkPacket {
            status,
            session_state: seen,
            ..ok.clone()
        };
        let payload = write(&for_client, self.client);
        write_packet(&mut self.old, &mut self.old_sequence, &payload);
    }

    fn error(&mut self) {
        let mut payload = Vec::new();
        ErrPacket {
            code: 1000 + self.random.below(4000) as u16,
            sql_state: *b"42000",
            message: self.bytes(80),
        }
        .encode(&mut payload, self.client);
        self.both(&payload);
    }

    fn definitions(&mut self, count: u64, status: Option<StatusFlags>) {
        for _ in 0..count {
            let mut payload = b"\x03def".to_vec();
            payload.extend(self.bytes(60));
            self.both(&payload);
        }
        if let Some(status) = status.filter(|_| !self.client_has(Capabilities::DEPRECATE_EOF)) {
            self.eof(status, 0);
        }
    }

    /// A row, and the report of progress that comes before it.
    fn row(&mut self, is_binary: bool) -> Vec<Vec<u8>> {
        let mut row = vec![if is_binary { 0 } else { 0xfb }];
        row.extend(match self.random.below(1000) {
            0 => vec![7; (1 << 20) + 9],
            _ => self.bytes(300),
        });
        match self.random.chance(10) {
            true => vec![PROGRESS.to_vec(), row],
            false => vec![row],
        }
    }

    /// True where the response ends with it.
    fn result(&mut self, command: Command, has_more: bool) -> bool {
        let mut more = StatusFlags(0);
        if has_more {
            more = StatusFlags::MORE_RESULTS;
        }
        self.maybe_progress();
        match self.random.below(10) {
            0 => {
                self.error();
                true
            }
            1..=3 => {
                let ok = self.random_ok(more);
                self.ok(&ok, false);
                !has_more
            }
            _ => self.result_set(command == Command::STMT_EXECUTE, has_more, more),
        }
    }

    fn result_set(&mut self, is_execute: bool, has_more: bool, more: StatusFlags) -> bool {
        let columns = 1 + self.random.below(5);
        let mut head = vec![columns as u8];
        let mut sent = columns;
        if self.server.contains(Capabilities::OPTIONAL_RESULTSET_METADATA) {
            sent *= self.random.below(2);
            head.push(u8::from(sent > 0));
        }
        self.both(&head);
        let known = self.status.intersection(LASTING);
        let fails = self.random.chance(10);
        if self.asks_for_cursor && !fails && !has_more && self.random.chance(40) {
            let mut end = self.random_ok(StatusFlags::CURSOR_EXISTS);
            end.status.insert(StatusFlags::CURSOR_EXISTS);
            self.definitions(sent, None);
            self.ok(&end, true);
            return true;
        }
        let many = if self.random.chance(3) { 400 } else { 4 };
        let count = self.random.below(many);
        let rows: Vec<Vec<u8>> = (0..count).flat_map(|_| self.row(is_execute)).collect();
        let mut end = self.random_ok(more);
        let of_program = StatusFlags::CURSOR_EXISTS | StatusFlags::LAST_ROW_SENT;
        if is_execute && (has_more || !self.asks_for_cursor) && self.random.chance(30) {
            end.status.insert(of_program);
        }
        if is_execute && count == 1 && has_more && self.random.chance(50) {
            end.status.insert(StatusFlags::PS_OUT_PARAMS);
        }
        // The end is seen in time behind one packet at most, which is a row and not too long.
        let waits = |packet: &Vec<u8>| packet[0] != 0xff && packet.len() <= 1 << 20;
        let in_time = is_execute && !fails && rows.len() <= 1 && rows.iter().all(waits);
        let early = end.status.without(of_program);
        self.definitions(sent, Some(if in_time { early } else { known }));
        rows.iter().for_each(|row| self.both(row));
        if fails {
            self.error();
            return true;
        }
        self.ok(&end, true);
        !has_more
    }

    fn prepared(&mut self) {
        if self.random.chance(10) {
            return self.error();
        }
        let (columns, parameters) = (self.random.below(3), self.random.below(3));
        let mut payload = vec![0, 1, 0, 0, 0, columns as u8, 0, parameters as u8, 0, 0, 0, 0];
        let mut follow = true;
        if self.server.contains(Capabilities::OPTIONAL_RESULTSET_METADATA) {
            follow = self.random.chance(60);
            payload.push(u8::from(follow));
        }
        self.both(&payload);
        let known = self.status.intersection(LASTING);
        for count in [parameters, columns] {
            if count > 0 {
                self.definitions(if follow { count } else { 0 }, Some(known));
            }
        }
    }

    fn respond(&mut self, command: Command) {
        (self.new_sequence, self.old_sequence) = (1, 1);
        self.new.clear();
        self.old.clear();
        self.asks_for_cursor = command == Command::STMT_EXECUTE && self.random.chance(50);
        match command {
            Command::QUERY | Command::STMT_EXECUTE => {
                let mut left = self.random.below(4);
                while !self.result(command, left > 0) {
                    left -= 1;
                }
            }
            Command::STMT_PREPARE => self.prepared(),
            _ if self.random.chance(15) => self.error(),
            Command::STMT_FETCH => {
                for _ in 0..self.random.below(5) {
                    self.row(true).iter().for_each(|packet| self.both(packet));
                }
                let end = self.random_ok(StatusFlags::CURSOR_EXISTS);
                self.ok(&end, true);
            }
            Command::FIELD_LIST => {
                let count = self.random.below(5);
                self.definitions(count, None);
                let end = self.random_ok(StatusFlags::default());
                self.ok(&end, true);
            }
            Command::STATISTICS => self.both(b"Uptime: 1"),
            Command::CHANGE_USER => {
                if self.random.chance(50) {
                    self.both(b"\xfemysql_native_password\0aaaaaaaaaaaaaaaaaaaa\0");
                }
                let ok = self.random_ok(StatusFlags::default());
                self.ok(&ok, false);
            }
            _ => {
                let as_eof = self.random.chance(30);
                let ok = self.random_ok(StatusFlags::default());
                self.ok(&ok, as_eof);
            }
        }
    }
}

/// Feeds `bytes` cut at `cuts`. What the client gets, and how many OK packets were shown.
fn reshape(reshaper: &mut Reshaper, bytes: &[u8], cuts: &[usize]) -> Result<(Vec<u8>, usize), WireError> {
    let (mut out, mut states, mut at) = (Vec::new(), 0, 0);
    let mut on_ok = |ok: &OkPacket| {
        states += 1;
        shown(&ok.session_state)
    };
    for &end in cuts.iter().chain(&[bytes.len()]) {
        let before = out.len();
        let progress = reshaper.advance(&bytes[at..end.max(at)], &mut out, &mut on_ok)?;
        assert!(out.len() - before <= progress.consumed + (1 << 20) + 100);
        at += progress.consumed;
        if at == bytes.len() {
            assert!(matches!(progress.event, Event::Done(_)), "{:?}", progress.event);
        } else {
            assert_eq!(progress.event, Event::More);
        }
    }
    assert_eq!(at, bytes.len());
    Ok((out, states))
}

const COMMANDS: [Command; 9] = [
    Command::QUERY,
    Command::STMT_EXECUTE,
    Command::STMT_PREPARE,
    Command::STMT_FETCH,
    Command::FIELD_LIST,
    Command::STATISTICS,
    Command::PING,
    Command::CHANGE_USER,
    Command::QUERY,
];

fn check(seed: u64) {
    for optional in [Capabilities(0), Capabilities::OPTIONAL_RESULTSET_METADATA] {
        for taken in [
            Capabilities(0),
            Capabilities::DEPRECATE_EOF,
            Capabilities::SESSION_TRACK,
            Capabilities::DEPRECATE_EOF | Capabilities::SESSION_TRACK,
        ] {
            let (server, client) = (SERVER | optional, (SERVER | optional).without(taken));
            let mut twins = Twins::new(seed, server, client);
            let mut reshapers = vec![Reshaper::new(server, client); 4];
            reshapers
                .iter_mut()
                .for_each(|reshaper| reshaper.note_status(StatusFlags::AUTOCOMMIT));
            for round in 0..40 {
                let command = twins.random.pick(&COMMANDS);
                twins.states_sent = 0;
                twins.respond(command);
                let context = format!("{} with {client:?}, round {round}", command.name());
                let bytes = &twins.new;
                let mut some: Vec<usize> = (0..3).map(|_| twins.random.below(bytes.len())).collect();
                some.sort_unstable();
                let step = if bytes.len() < 3000 { 1 } else { 997 };
                let all: Vec<usize> = (0..bytes.len()).step_by(step).collect();
                let half = [bytes.len() / 2];
                for (reshaper, cuts) in reshapers.iter_mut().zip([&[][..], &some, &all, &half]) {
                    reshaper.begin(command);
                    if twins.asks_for_cursor {
                        reshaper.allow_cursor();
                    }
                    let (out, states) = reshape(reshaper, bytes, cuts).expect(&context);
                    assert!(
                        out == twins.old,
                        "{context}, cut at {cuts:?}:\n{out:x?}\n{:x?}",
                        twins.old
                    );
                    assert_eq!(states, twins.states_sent, "{context}");
                }
            }
        }
    }
}

#[test]
fn reshaped_responses_are_those_of_an_older_server() {
    inputs::seeds(60).for_each(check);
}

fn packets(payloads: &[&[u8]]) -> Vec<u8> {
    let (mut out, mut sequence) = (Vec::new(), 1);
    for payload in payloads {
        write_packet(&mut out, &mut sequence, payload);
    }
    out
}

#[test]
fn rows_over_16_mib_pass_and_numbers_wrap() {
    let client = SERVER.without(Capabilities::DEPRECATE_EOF | Capabilities::SESSION_TRACK);
    let long = vec![0xfe; (1 << 24) + 7];
    let exact = vec![0xfe; (1 << 24) - 1];
    let mut rows: Vec<&[u8]> = vec![b"\x01a"; 251];
    rows.extend([&long[..], b"\x01b", &exact, b"\x01c"]);
    for command in [Command::QUERY, Command::STMT_EXECUTE] {
        for first in [&b"\x01a"[..], &long] {
            rows[0] = first;
            let around = |eof: &[&'static [u8]], end: &'static [u8]| {
                let head = [&[&b"\x01"[..], b"\x03def"][..], eof].concat();
                packets(&[&head[..], &rows, &[end]].concat())
            };
            let new = around(&[], b"\xfe\0\0\x22\0\x03\0");
            let old = around(&[b"\xfe\0\0\x02\0"], b"\xfe\x03\0\x22\0");
            for read in [64 * 1024, 1 << 20, new.len()] {
                let mut reshaper = Reshaper::new(SERVER, client);
                reshaper.note_status(StatusFlags::AUTOCOMMIT);
                reshaper.begin(command);
                let cuts: Vec<usize> = (0..new.len()).step_by(read).collect();
                let (out, _) = reshape(&mut reshaper, &new, &cuts).unwrap();
                assert!(out == old, "{} by {read}", command.name());
            }
        }
    }
}

#[test]
fn a_file_in_the_middle_is_numbered_for_either_side() {
    let client = SERVER.without(Capabilities::DEPRECATE_EOF);
    let mut reshaper = Reshaper::new(SERVER, client);
    reshaper.begin(Command::QUERY);
    reshaper.allow_infile();
    let mut on_ok = |_: &OkPacket| Vec::new();
    let mut out = Vec::new();
    let asks = packets(&[b"\x01", b"\x03def", b"\x01a", b"\xfe\0\0\x0a\0\0\0", b"\xfbfile"]);
    let progress = reshaper.advance(&asks, &mut out, &mut on_ok).unwrap();
    assert_eq!(
        (progress.consumed, progress.event),
        (asks.len(), Event::LocalInfile)
    );
    let seen = packets(&[
        b"\x01",
        b"\x03def",
        b"\xfe\0\0\0\0",
        b"\x01a",
        b"\xfe\0\0\x0a\0",
        b"\xfbfile",
    ]);
    assert_eq!(out, seen);
    assert_eq!((reshaper.server_sequence(), reshaper.client_sequence()), (5, 6));

    // The client sends packets 7 and 8, which the server gets as 6 and 7.
    reshaper.resume_after_local_infile();
    out.clear();
    let result = b"\x07\0\0\x08\0\x01\0\x02\0\0\0";
    let progress = reshaper.advance(result, &mut out, &mut on_ok).unwrap();
    assert!(matches!(progress.event, Event::Done(outcome) if outcome.affected_rows == 1));
    assert_eq!(out, b"\x07\0\0\x09\0\x01\0\x02\0\0\0");
}

#[test]
fn an_error_has_a_place_between_rows_that_the_client_has() {
    let client = SERVER.without(Capabilities::DEPRECATE_EOF);
    let mut on_ok = |_: &OkPacket| Vec::new();
    let row = |number| [2, 0, 0, number, 0, 0];
    for (command, after_definitions, after_row) in [
        (Command::QUERY, Some(4), Some(5)),
        (Command::STMT_EXECUTE, None, None),
    ] {
        let mut reshaper = Reshaper::new(SERVER, client);
        let mut advance = |reshaper: &mut Reshaper, bytes: &[u8]| {
            let progress = reshaper.advance(bytes, &mut Vec::new(), &mut on_ok).unwrap();
            assert_eq!(progress.consumed, bytes.len());
            reshaper.error_sequence()
        };
        reshaper.begin(command);
        assert_eq!(advance(&mut reshaper, &packets(&[b"\x01"])), None);
        assert_eq!(advance(&mut reshaper, b"\x02\0\0\x02\x03d"), after_definitions);
        assert_eq!(advance(&mut reshaper, &row(3)), after_row, "{}", command.name());
        assert_eq!(advance(&mut reshaper, &row(4)), Some(6), "{}", command.name());
    }
}

#[test]
fn what_is_no_response_is_an_error_here_as_well() {
    let mut reshaper = Reshaper::new(SERVER, BASE);
    reshaper.begin(Command::PING);
    let mut on_ok = |_: &OkPacket| Vec::new();
    let mut out = Vec::new();
    assert!(
        reshaper
            .advance(b"\x01\0\0\x01\x05", &mut out, &mut on_ok)
            .is_err()
    );
    reshaper = Reshaper::new(SERVER, BASE);
    assert_eq!(
        reshaper.advance(b"\x01", &mut out, &mut on_ok),
        Err(WireError::NotAsked)
    );
    // Session state that its packet is too short for.
    reshaper.begin(Command::PING);
    let damaged = b"\x09\0\0\x01\0\0\0\0\x40\0\0\0\x09";
    assert!(reshaper.advance(damaged, &mut out, &mut on_ok).is_err());
}

/// Some clients go by it where they read rows as they arrive.
#[test]
fn rows_of_a_call_are_said_to_be_followed_by_something() {
    let ok_as_eof = |status: StatusFlags| {
        let mut payload = Vec::new();
        let ok = OkPacket {
            status,
            ..OkPacket::default()
        };
        ok.encode_as_eof(&mut payload, SERVER);
        payload
    };
    let end = ok_as_eof(StatusFlags::AUTOCOMMIT | StatusFlags::MORE_RESULTS);
    let response = packets(&[&[1], b"definition", &[0, 0, 1], &[0, 0, 2], &end]);
    for is_call in [false, true] {
        let mut reshaper = Reshaper::new(SERVER, BASE);
        reshaper.note_status(StatusFlags::AUTOCOMMIT);
        reshaper.begin(Command::STMT_EXECUTE);
        if is_call {
            reshaper.expect_more();
        }
        let mut out = Vec::new();
        reshaper
            .advance(&response, &mut out, &mut |_| Vec::new())
            .unwrap();
        let head = packets(&[&[1], b"definition"]).len();
        let eof = EofPacket::decode(&out[head + 4..head + 9]).unwrap();
        assert_eq!(eof.status.contains(StatusFlags::MORE_RESULTS), is_call);
    }
}
