//! The naive decoder.

use mysql_wire::{Capabilities, Command, EofPacket, ErrPacket, Outcome, PacketHeader, StatusFlags};

use super::{begin_result_set, note_error, note_ok};

/// The naive decoder: reads whole packets, and rows by their columns.
pub(crate) struct Decoder<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
    pub(crate) capabilities: Capabilities,
    pub(crate) asks_for_cursor: bool,
    pub(crate) outcome: Outcome,
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
                let code = ErrPacket::decode(&payload, self.capabilities).unwrap().code;
                note_error(&mut self.outcome, code);
                return Some(Reply::Err);
            }
            0xfe if !deprecated && payload.len() == EofPacket::LEN => {
                let eof = EofPacket::decode(&payload).unwrap();
                (self.outcome.status, self.outcome.has_status) = (eof.status, true);
                self.outcome.warnings = eof.warnings;
                eof.status
            }
            0xfe if deprecated => self.ok(&payload),
            _ => return Some(Reply::Other(payload)),
        };
        Some(Reply::Ok(status))
    }

    fn ok(&mut self, payload: &[u8]) -> StatusFlags {
        note_ok(&mut self.outcome, payload, self.capabilities);
        self.outcome.status
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
                Reply::Other(payload) if payload[0] == 0 => {
                    (self.outcome.is_result_set, self.outcome.rows) = (false, 0);
                    self.ok(&payload)
                }
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
        begin_result_set(&mut self.outcome);
        let (columns, rest) = lenenc(head);
        let count = if rest.first() == Some(&0) { 0 } else { columns };
        let first = self.definitions(count)?;
        let has_more = first.contains(StatusFlags::MORE_RESULTS);
        if self.asks_for_cursor && first.contains(StatusFlags::CURSOR_EXISTS) && !has_more {
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
            let reply = self.reply()?;
            self.outcome.rows += u64::from(matches!(reply, Reply::Other(_)));
            match reply {
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

    pub(crate) fn response(&mut self, command: Command) -> Option<()> {
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
            Command::STMT_FETCH => {
                self.outcome.is_result_set = true;
                self.rows(command, 1).map(drop)
            }
            Command::CHANGE_USER => loop {
                match self.packet()? {
                    ok if ok[0] == 0 => {
                        self.ok(&ok);
                        return Some(());
                    }
                    err if err[0] == 0xff => {
                        let code = ErrPacket::decode(&err, self.capabilities).unwrap().code;
                        note_error(&mut self.outcome, code);
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
