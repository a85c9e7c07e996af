//! What a replica says to get the stream.
//!
//! Sources: MySQL "COM_REGISTER_SLAVE", "COM_BINLOG_DUMP_GTID"; MariaDB "Replica Registration";
//! `sql/sql_repl.cc` of MariaDB.

use std::time::Duration;

use crate::codec::put_lenenc_bytes;
use crate::gtid::{Flavor, MariaDbPosition, MySqlSet};

/// Commands of a replica. Semi-synchronous replication is never asked for, so that no commit waits for this
/// stream.
#[derive(Debug, Clone, Copy)]
pub enum Command<'a> {
    /// Shown in `SHOW REPLICAS`. The server answers with OK.
    Register {
        server_id: u32,
        host: &'a [u8],
        port: u16,
    },
    /// From a place in a file, which for MariaDB may be empty: then the GTIDs of [`settings`] say where to
    /// begin.
    Dump {
        server_id: u32,
        file: &'a [u8],
        offset: u32,
    },
    /// MySQL: all transactions that are not in `have`.
    DumpGtid { server_id: u32, have: &'a MySqlSet },
}

/// Where the stream is to begin.
#[derive(Debug, Clone, Copy)]
pub enum Start<'a> {
    /// At a place in a file, or by [`Command::DumpGtid`].
    Command,
    /// MariaDB: after these GTIDs.
    After(&'a MariaDbPosition),
}

/// Every file begins with four bytes that are no event.
const FIRST_EVENT: u64 = 4;
const DUMP_THROUGH_GTID: u16 = 4;

impl Command<'_> {
    /// The packet's payload. Names are cut at 255 bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match *self {
            Command::Register {
                server_id,
                host,
                port,
            } => {
                out.push(crate::Command::REGISTER_SLAVE.0);
                out.extend_from_slice(&server_id.to_le_bytes());
                // Up to 250 bytes a length is one byte, as it has to be here.
                put_lenenc_bytes(&mut out, host.get(..60).unwrap_or(host));
                put_lenenc_bytes(&mut out, b"");
                put_lenenc_bytes(&mut out, b"");
                out.extend_from_slice(&port.to_le_bytes());
                out.extend_from_slice(&[0; 8]);
            }
            Command::Dump {
                server_id,
                file,
                offset,
            } => {
                out.push(crate::Command::BINLOG_DUMP.0);
                out.extend_from_slice(&offset.to_le_bytes());
                out.extend_from_slice(&[0; 2]);
                out.extend_from_slice(&server_id.to_le_bytes());
                out.extend_from_slice(file);
            }
            Command::DumpGtid { server_id, have } => {
                let mut set = Vec::new();
                have.encode(&mut set);
                out.push(crate::Command::BINLOG_DUMP_GTID.0);
                out.extend_from_slice(&DUMP_THROUGH_GTID.to_le_bytes());
                out.extend_from_slice(&server_id.to_le_bytes());
                out.extend_from_slice(&0_u32.to_le_bytes());
                out.extend_from_slice(&FIRST_EVENT.to_le_bytes());
                out.extend_from_slice(&(set.len() as u32).to_le_bytes());
                out.extend_from_slice(&set);
            }
        }
        out
    }
}

/// The statement before the command: checksums as they are in the files, a heartbeat when the stream is
/// quiet, and of MariaDB GTID events. `uuid` is the replica's own: a server ends an older stream of the same
/// one.
#[must_use]
pub fn settings(flavor: Flavor, heartbeat: Duration, uuid: &str, start: Start<'_>) -> String {
    let nanos = heartbeat.as_nanos();
    let uuid: String = uuid
        .chars()
        .filter(|c| c.is_ascii_hexdigit() || *c == '-')
        .collect();
    match flavor {
        Flavor::MySql => format!(
            "SET @source_binlog_checksum = @@global.binlog_checksum, \
             @master_binlog_checksum = @@global.binlog_checksum, @source_heartbeat_period = {nanos}, \
             @master_heartbeat_period = {nanos}, @replica_uuid = '{uuid}', @slave_uuid = '{uuid}'"
        ),
        Flavor::MariaDb => {
            let mut statement = format!(
                "SET @master_binlog_checksum = @@global.binlog_checksum, @master_heartbeat_period = {nanos}, \
                 @mariadb_slave_capability = 4"
            );
            if let Start::After(position) = start {
                statement.push_str(&format!(
                    ", @slave_connect_state = '{position}', @slave_gtid_strict_mode = 0, \
                     @slave_gtid_ignore_duplicates = 0"
                ));
            }
            statement
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_written() {
        let register = Command::Register {
            server_id: 7,
            host: b"gw",
            port: 3306,
        };
        let expected = b"\x15\x07\0\0\0\x02gw\0\0\xea\x0c\0\0\0\0\0\0\0\0";
        assert_eq!(register.encode(), expected);
        let dump = Command::Dump {
            server_id: 7,
            file: b"binlog.000001",
            offset: 4,
        };
        assert_eq!(dump.encode(), b"\x12\x04\0\0\0\0\0\x07\0\0\0binlog.000001");
        let have = MySqlSet::parse(b"00000000-0000-0000-0000-000000000001:1-5").unwrap();
        let dump = Command::DumpGtid {
            server_id: 7,
            have: &have,
        }
        .encode();
        let expected = b"\x1e\x04\0\x07\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x30\0\0\0\
            \x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0";
        assert_eq!(dump, expected);
    }

    #[test]
    fn mariadb_is_told_where_to_begin() {
        let position = MariaDbPosition::parse(b"0-1-5").unwrap();
        let text = settings(
            Flavor::MariaDb,
            Duration::from_secs(1),
            "",
            Start::After(&position),
        );
        assert!(text.contains("@slave_connect_state = '0-1-5'") && text.contains("period = 1000000000,"));
        let text = settings(Flavor::MySql, Duration::from_secs(1), "ab-'1", Start::Command);
        assert!(text.contains("@replica_uuid = 'ab-1'"));
    }
}
