//! A server that writes random valid responses.

use inputs::Random;
use mysql_wire::{Capabilities, Command, EofPacket, ErrPacket, OkPacket, Outcome, StatusFlags, write_packet};

use super::{begin_result_set, note_error, note_ok};

/// A server that writes one response.
pub(crate) struct Server {
    random: Random,
    capabilities: Capabilities,
    pub(crate) out: Vec<u8>,
    sequence: u8,
    pub(crate) asks_for_cursor: bool,
    pub(crate) opens_cursor: bool,
    pub(crate) outcome: Outcome,
}

impl Server {
    pub(crate) fn new(seed: u64, capabilities: Capabilities) -> Server {
        Server {
            random: Random::new(seed),
            capabilities,
            out: Vec::new(),
            sequence: 1,
            asks_for_cursor: false,
            opens_cursor: false,
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
        status.remove(StatusFlags::MORE_RESULTS | StatusFlags::PS_OUT_PARAMS);
        if self.asks_for_cursor && !flags.contains(StatusFlags::MORE_RESULTS) {
            status.remove(StatusFlags::CURSOR_EXISTS);
        }
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
        note_ok(&mut self.outcome, payload, self.capabilities);
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
            self.outcome.warnings = 3;
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
        note_error(&mut self.outcome, code);
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
            self.outcome.rows += 1;
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
            1..=3 if command != Command::PROCESS_INFO => {
                (self.outcome.is_result_set, self.outcome.rows) = (false, 0);
                self.ok(more);
            }
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
        begin_result_set(&mut self.outcome);
        let has_more = more != StatusFlags::default();
        if self.asks_for_cursor && !has_more && self.random.chance(40) {
            self.opens_cursor = true;
            let flags = StatusFlags::CURSOR_EXISTS;
            self.definitions(columns, follow, flags);
            if self.has(Capabilities::DEPRECATE_EOF) {
                self.terminator(flags);
            }
            return true;
        }
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

    pub(crate) fn respond(&mut self, command: Command) {
        self.outcome.is_result_set = command == Command::STMT_FETCH;
        self.asks_for_cursor = command == Command::STMT_EXECUTE && self.random.chance(50);
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
