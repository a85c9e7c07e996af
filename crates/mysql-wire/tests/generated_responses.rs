//! Random valid responses over all capability combinations: the tracker agrees with a decoder that reads every
//! field of every packet, however the bytes are cut.
//!
//! `FOREBAY_SEED=n` runs one seed again.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use mysql_wire::{
    Capabilities, Command, EofPacket, ErrPacket, Event, OkPacket, Outcome, PacketHeader, ResponseTracker,
    StatusFlags, write_packet,
};

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

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A server that writes one response.
struct Server {
    random: Random,
    capabilities: Capabilities,
    out: Vec<u8>,
    sequence: u8,
    outcome: Outcome,
}

impl Server {
    fn new(seed: u64, capabilities: Capabilities) -> Server {
        Server {
            random: Random(seed),
            capabilities,
            out: Vec::new(),
            sequence: 1,
            outcome: Outcome::default(),
        }
    }

    fn has(&self, flag: Capabilities) -> bool {
        self.capabilities.contains(flag)
    }

    fn packet(&mut self, payload: &[u8]) {
        write_packet(&mut self.out, &mut self.sequence, payload);
    }

    fn status(&mut self, flags: StatusFlags) -> StatusFlags {
        let mut status = StatusFlags(self.random.below(1 << 16) as u16);
        status.remove(StatusFlags::MORE_RESULTS | StatusFlags::CURSOR_EXISTS | StatusFlags::PS_OUT_PARAMS);
        let status = status | flags;
        self.outcome.status = status;
        self.outcome.has_status = true;
        status
    }

    fn ok_packet(&mut self, flags: StatusFlags) -> OkPacket {
        let shift = self.random.below(64);
        OkPacket {
            affected_rows: u64::MAX >> shift,
            last_insert_id: self.random.below(1 << 32),
            status: self.status(flags),
            warnings: self.random.below(1 << 16) as u16,
            info: self.bytes(30),
            session_state: self.bytes(300),
        }
    }

    fn ok(&mut self, flags: StatusFlags) {
        let mut payload = Vec::new();
        let ok = self.ok_packet(flags);
        ok.encode(&mut payload, self.capabilities);
        self.note_sent(&payload);
    }

    /// The encoder may clear the flag for session state.
    fn note_sent(&mut self, payload: &[u8]) {
        self.outcome.status = OkPacket::decode(payload, self.capabilities).unwrap().status;
        self.packet(payload);
    }

    fn terminator(&mut self, flags: StatusFlags) {
        let mut payload = Vec::new();
        if self.has(Capabilities::DEPRECATE_EOF) {
            let ok = self.ok_packet(flags);
            ok.encode_as_eof(&mut payload, self.capabilities);
            self.note_sent(&payload);
        } else {
            let status = self.status(flags);
            EofPacket { warnings: 3, status }.encode(&mut payload);
            self.packet(&payload);
        }
    }

    fn error(&mut self) {
        let code = 1000 + self.random.below(4000) as u16;
        let mut payload = Vec::new();
        ErrPacket {
            code,
            sql_state: *b"42000",
            message: self.bytes(80),
        }
        .encode(&mut payload, self.capabilities);
        self.packet(&payload);
        self.outcome.error = Some(code);
    }

    fn maybe_progress(&mut self) {
        if self.has(Capabilities::MARIADB_PROGRESS) && self.random.chance(20) {
            self.packet(b"\xff\xff\xff\x01\x01\x02\x10\x00\x00\x05stage");
        }
    }

    fn bytes(&mut self, limit: u64) -> Vec<u8> {
        let len = if self.random.chance(40) {
            0
        } else {
            self.random.below(limit)
        };
        (0..len).map(|_| self.random.below(256) as u8).collect()
    }

    fn lenenc_text(&mut self, out: &mut Vec<u8>) {
        let limit = if self.random.chance(3) { 70_000 } else { 300 };
        let text = self.bytes(limit);
        put_lenenc(out, text.len() as u64);
        out.extend_from_slice(&text);
    }

    fn definition(&mut self) {
        let mut payload = b"\x03def".to_vec();
        for _ in 0..5 {
            self.lenenc_text(&mut payload);
        }
        payload.extend_from_slice(b"\x0c\x21\0\0\x01\0\0\xfd\0\0\0\0\0");
        self.packet(&payload);
    }

    fn definitions(&mut self, count: u64, follow: bool, flags: StatusFlags) {
        for _ in 0..if follow { count } else { 0 } {
            self.definition();
        }
        if !self.has(Capabilities::DEPRECATE_EOF) {
            self.terminator(flags);
        }
    }

    fn text_row(&mut self, columns: u64) {
        let mut payload = Vec::new();
        for _ in 0..columns {
            if self.random.chance(20) {
                payload.push(0xfb)
            } else {
                self.lenenc_text(&mut payload)
            }
        }
        self.packet(&payload);
    }

    fn binary_row(&mut self) {
        let mut payload = vec![0, 0];
        self.lenenc_text(&mut payload);
        self.packet(&payload);
    }

    fn rows(&mut self, command: Command, columns: u64) {
        for _ in 0..self.random.below(6) {
            self.maybe_progress();
            match command {
                Command::QUERY | Command::PROCESS_INFO => self.text_row(columns),
                _ => self.binary_row(),
            }
        }
    }

    /// One result; true where the response ends with it.
    fn result(&mut self, command: Command, more: StatusFlags) -> bool {
        self.maybe_progress();
        match self.random.below(10) {
            0 => {
                self.error();
                return true;
            }
            1..=3 if command != Command::PROCESS_INFO => self.ok(more),
            _ => return self.result_set(command, more),
        }
        more == StatusFlags::default()
    }

    fn result_set(&mut self, command: Command, more: StatusFlags) -> bool {
        let many = self.random.chance(1);
        let columns = 1 + self.random.below(if many { 600 } else { 4 });
        let mut payload = Vec::new();
        put_lenenc(&mut payload, columns);
        let optional = Capabilities::OPTIONAL_RESULTSET_METADATA | Capabilities::MARIADB_CACHE_METADATA;
        let follow = !self.capabilities.intersects(optional) || self.random.chance(70);
        if self.capabilities.intersects(optional) {
            payload.push(u8::from(follow));
        }
        self.packet(&payload);
        let cursor = command == Command::STMT_EXECUTE && self.random.chance(20);
        if cursor {
            let flags = StatusFlags::CURSOR_EXISTS | more;
            self.definitions(columns, follow, flags);
            if self.has(Capabilities::DEPRECATE_EOF) {
                self.terminator(flags);
            }
            return more == StatusFlags::default();
        }
        let has_more = more != StatusFlags::default();
        let out_parameters = command == Command::STMT_EXECUTE && has_more && self.random.chance(20);
        let out = StatusFlags::PS_OUT_PARAMS | StatusFlags::MORE_RESULTS;
        self.definitions(columns, follow, if out_parameters { out } else { more });
        self.rows(command, columns);
        if self.random.chance(10) {
            self.error();
            return true;
        }
        // As MySQL does: the flags of OUT parameters are in the first EOF only.
        let forgets = out_parameters && !self.has(Capabilities::DEPRECATE_EOF);
        self.terminator(if forgets { StatusFlags::default() } else { more });
        !has_more
    }

    fn prepared(&mut self) {
        if self.random.chance(10) {
            return self.error();
        }
        let (columns, parameters) = (self.random.below(3), self.random.below(3));
        let mut payload = vec![0, 1, 0, 0, 0, columns as u8, 0, parameters as u8, 0, 0, 0, 0];
        let mut follow = true;
        if self.has(Capabilities::OPTIONAL_RESULTSET_METADATA) {
            follow = self.random.chance(60);
            payload.push(u8::from(follow));
        }
        self.packet(&payload);
        for count in [parameters, columns] {
            if count > 0 {
                self.definitions(count, follow, StatusFlags::default());
            }
        }
    }

    fn respond(&mut self, command: Command) {
        match command {
            Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => {
                for left in (0..self.random.below(4)).rev() {
                    let more = if left > 0 {
                        StatusFlags::MORE_RESULTS
                    } else {
                        StatusFlags::default()
                    };
                    if self.result(command, more) {
                        return;
                    }
                }
                self.result(command, StatusFlags::default());
            }
            Command::PROCESS_INFO => drop(self.result(command, StatusFlags::default())),
            Command::STMT_PREPARE => self.prepared(),
            _ if self.random.chance(15) => self.error(),
            Command::STMT_FETCH => {
                self.rows(command, 1);
                self.terminator(StatusFlags::CURSOR_EXISTS);
            }
            Command::FIELD_LIST => {
                for _ in 0..self.random.below(5) {
                    self.definition();
                }
                self.terminator(StatusFlags::MORE_RESULTS);
            }
            Command::STATISTICS => self.packet(b"Uptime: 1"),
            Command::SET_OPTION => self.terminator(StatusFlags::default()),
            Command::CHANGE_USER => {
                for packet in [
                    &b"\xfemysql_native_password\0aaaaaaaaaaaaaaaaaaaa\0"[..],
                    b"\x01\x03",
                ] {
                    if self.random.chance(50) {
                        self.packet(packet);
                    }
                }
                self.ok(StatusFlags::default());
            }
            _ => self.ok(StatusFlags::MORE_RESULTS),
        }
    }
}

fn put_lenenc(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=250 => out.push(value as u8),
        251..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&(value as u16).to_le_bytes());
        }
        _ => {
            out.push(0xfd);
            out.extend_from_slice(&(value as u32).to_le_bytes()[..3]);
        }
    }
}

/// The naive decoder: reads whole packets, and rows by their columns.
struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    capabilities: Capabilities,
    outcome: Outcome,
}

enum Reply {
    Ok(StatusFlags),
    Err,
    Other(Vec<u8>),
}

impl Decoder<'_> {
    /// The next packet that is not a progress report; `None` where the bytes end.
    fn packet(&mut self) -> Option<Vec<u8>> {
        loop {
            let header = PacketHeader::parse(&self.bytes[self.at..])?;
            let start = self.at + PacketHeader::LEN;
            let payload = self.bytes.get(start..start + header.payload_len)?.to_vec();
            self.at = start + header.payload_len;
            let progress = self.capabilities.contains(Capabilities::MARIADB_PROGRESS);
            if !(progress && payload.starts_with(b"\xff\xff\xff")) {
                return Some(payload);
            }
        }
    }

    fn reply(&mut self) -> Option<Reply> {
        let payload = self.packet()?;
        let deprecated = self.capabilities.contains(Capabilities::DEPRECATE_EOF);
        let status = match payload[0] {
            0xff => {
                self.outcome.error = Some(ErrPacket::decode(&payload, self.capabilities).unwrap().code);
                return Some(Reply::Err);
            }
            0xfe if !deprecated && payload.len() == EofPacket::LEN => {
                EofPacket::decode(&payload).unwrap().status
            }
            0xfe if deprecated => OkPacket::decode(&payload, self.capabilities).unwrap().status,
            _ => return Some(Reply::Other(payload)),
        };
        (self.outcome.status, self.outcome.has_status) = (status, true);
        Some(Reply::Ok(status))
    }

    fn ok(&mut self, payload: &[u8]) -> StatusFlags {
        let status = OkPacket::decode(payload, self.capabilities).unwrap().status;
        (self.outcome.status, self.outcome.has_status) = (status, true);
        status
    }

    /// Definitions and their EOF, whose status it returns.
    fn definitions(&mut self, count: u64) -> Option<StatusFlags> {
        for _ in 0..count {
            let Some(Reply::Other(definition)) = self.reply() else {
                return None;
            };
            assert!(definition.starts_with(b"\x03def"));
        }
        match self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            true => Some(StatusFlags::default()),
            false => match self.reply()? {
                Reply::Ok(status) => Some(status),
                _ => panic!("EOF expected"),
            },
        }
    }

    fn results(&mut self, command: Command) -> Option<()> {
        loop {
            let mut status = match self.reply()? {
                Reply::Err => return Some(()),
                Reply::Ok(_) => panic!("EOF as a result"),
                Reply::Other(payload) if payload[0] == 0 => self.ok(&payload),
                Reply::Other(payload) => match self.result_set(&payload, command)? {
                    Some(status) => status,
                    None => return Some(()),
                },
            };
            if command == Command::PROCESS_INFO {
                status = StatusFlags::default();
            }
            if !status.contains(StatusFlags::MORE_RESULTS) {
                return Some(());
            }
        }
    }

    /// The status that ends it, or `None` for an error.
    fn result_set(&mut self, head: &[u8], command: Command) -> Option<Option<StatusFlags>> {
        let (columns, rest) = lenenc(head);
        let count = if rest.first() == Some(&0) { 0 } else { columns };
        let first = self.definitions(count)?;
        if command == Command::STMT_EXECUTE && first.contains(StatusFlags::CURSOR_EXISTS) {
            return Some(Some(first));
        }
        let mut status = self.rows(command, columns)?;
        if let Some(status) = &mut status
            && first.contains(StatusFlags::PS_OUT_PARAMS)
        {
            *status = *status | first.intersection(StatusFlags::MORE_RESULTS);
        }
        Some(status)
    }

    fn rows(&mut self, command: Command, columns: u64) -> Option<Option<StatusFlags>> {
        loop {
            match self.reply()? {
                Reply::Err => return Some(None),
                Reply::Ok(status) => return Some(Some(status)),
                Reply::Other(row) if matches!(command, Command::QUERY | Command::PROCESS_INFO) => {
                    let mut rest = &row[..];
                    for _ in 0..columns {
                        rest = match rest[0] {
                            0xfb => &rest[1..],
                            _ => lenenc(rest).1.split_at(lenenc(rest).0 as usize).1,
                        };
                    }
                    assert!(rest.is_empty());
                }
                Reply::Other(row) => assert_eq!(row[0], 0),
            }
        }
    }

    fn response(&mut self, command: Command) -> Option<()> {
        match command {
            Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE | Command::PROCESS_INFO => {
                self.results(command)
            }
            Command::STMT_PREPARE => {
                let Reply::Other(ok) = self.reply()? else {
                    return Some(());
                };
                let follow = ok.get(12) != Some(&0);
                for count in [ok[7], ok[5]] {
                    if count > 0 {
                        self.definitions(if follow { u64::from(count) } else { 0 })?;
                    }
                }
                Some(())
            }
            Command::STMT_FETCH => self.rows(command, 1).map(drop),
            Command::CHANGE_USER => loop {
                match self.packet()? {
                    ok if ok[0] == 0 => {
                        self.ok(&ok);
                        return Some(());
                    }
                    err if err[0] == 0xff => {
                        self.outcome.error = Some(ErrPacket::decode(&err, self.capabilities).unwrap().code);
                        return Some(());
                    }
                    _ => {}
                }
            },
            Command::FIELD_LIST => loop {
                if !matches!(self.reply()?, Reply::Other(_)) {
                    return Some(());
                }
            },
            _ => {
                if let Reply::Other(payload) = self.reply()?
                    && command != Command::STATISTICS
                {
                    self.ok(&payload);
                }
                Some(())
            }
        }
    }
}

fn lenenc(bytes: &[u8]) -> (u64, &[u8]) {
    match bytes[0] {
        0xfc => (u64::from(u16::from_le_bytes([bytes[1], bytes[2]])), &bytes[3..]),
        0xfd => (
            u64::from(u32::from_le_bytes([bytes[1], bytes[2], bytes[3], 0])),
            &bytes[4..],
        ),
        small => (u64::from(small), &bytes[1..]),
    }
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

/// Feeds `bytes` cut at `cuts`; the end and the outcome.
fn track(capabilities: Capabilities, command: Command, bytes: &[u8], cuts: &[usize]) -> (usize, Event) {
    let mut tracker = ResponseTracker::new(capabilities);
    tracker.begin(command);
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
            let (bytes, outcome) = (server.out, server.outcome);
            let mut decoder = Decoder {
                bytes: &bytes,
                at: 0,
                capabilities,
                outcome: Outcome::default(),
            };
            let context = format!("{} with {capabilities:?}", command.name());
            assert_eq!(decoder.response(command), Some(()), "{context}");
            assert_eq!((decoder.at, decoder.outcome), (bytes.len(), outcome), "{context}");

            let whole = (bytes.len(), Event::Done(outcome));
            assert_eq!(track(capabilities, command, &bytes, &[]), whole, "{context}");
            let every_byte: Vec<usize> = (0..bytes.len()).collect();
            let step = bytes.len() / 300 + 1;
            for &cut in every_byte.iter().step_by(step) {
                assert_eq!(
                    track(capabilities, command, &bytes, &[cut]),
                    whole,
                    "{context}, cut at {cut}"
                );
                let event = track(capabilities, command, &bytes[..cut], &[]).1;
                assert_eq!(event, Event::More, "{context}, ends at {cut}");
            }
            if bytes.len() < 5000 {
                assert_eq!(
                    track(capabilities, command, &bytes, &every_byte),
                    whole,
                    "{context}, byte by byte"
                );
            }
        }
    }
}

#[test]
fn random_responses_end_where_a_full_decoder_says() {
    if let Ok(seed) = std::env::var("FOREBAY_SEED") {
        return check(seed.parse().expect("FOREBAY_SEED is a number"));
    }
    for seed in 0..12 {
        println!("FOREBAY_SEED={seed}");
        check(seed);
    }
}
