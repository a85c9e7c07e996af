//! Events: the header that all have, and what the gateway has to know of each kind.
//!
//! Sources: MySQL "Binlog Event", `libs/mysql/binlog/event`; MariaDB "Replication Protocol",
//! `sql/log_event.h`.

use std::borrow::Cow;

use super::rows::{self, Rows};
use super::table_map::TableMap;
use super::unpack::{self, Payload};
use super::{BinlogError, Change};
use crate::WireError;
use crate::codec::{Reader, little_endian};
use crate::gtid::GtidSet;

pub(super) const HEADER_LEN: usize = 19;

/// One event of the stream.
#[derive(Debug)]
pub struct Event<'a> {
    pub header: Header,
    pub kind: Kind<'a>,
}

/// What every event begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Seconds since 1970 when the statement began, on the server where it ran. 0 for events that are not in
    /// a file.
    pub timestamp: u32,
    /// The type as a number.
    pub code: u8,
    pub server_id: u32,
    /// Bytes of the event, with its header and checksum.
    pub size: u32,
    /// Where the next event begins in the file; 0 for events that are not in a file, and inside a
    /// transaction's payload.
    pub next_position: u32,
    pub flags: u16,
}

#[derive(Debug)]
pub enum Kind<'a> {
    /// The events that follow are in this file, from this offset.
    Rotate { file: &'a [u8], offset: u64 },
    /// The beginning of a file.
    FormatDescription { server_version: &'a [u8] },
    /// A transaction begins.
    Gtid(Gtid),
    /// MariaDB, at the beginning of a file: the last GTIDs before it.
    GtidList,
    /// A statement: `BEGIN`, `COMMIT` of an engine without transactions, DDL, or one that is logged as such,
    /// `LOAD DATA` among them.
    Query(Query<'a>),
    /// What the number of a table means in the row events that follow.
    TableMap(TableMap),
    /// Changed rows.
    Rows(Rows<'a>),
    /// The transaction is committed.
    Xid(u64),
    /// The transaction of `XA PREPARE`: rows that are not committed yet, unless in one phase.
    XaPrepare { one_phase: bool },
    /// A compressed transaction: events that [`Payload::next_event`] gives one by one.
    TransactionPayload(Payload<'a>),
    /// Nothing happened until here. With the file's name from a server that says it.
    Heartbeat { file: &'a [u8], offset: u64 },
    /// The text of the statement whose row events follow.
    RowsQuery(&'a [u8]),
    /// Parts of JSON documents: cannot be applied without the rows before. The server has
    /// `binlog_row_value_options = PARTIAL_JSON`.
    PartialUpdateRows,
    /// The server was shut down.
    Stop,
    /// Events may be missing from the log.
    Incident { message: &'a [u8] },
    /// Of no interest here.
    Other,
}

/// A transaction's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gtid {
    MySql {
        uuid: [u8; 16],
        /// Empty for none.
        tag: Box<str>,
        number: u64,
    },
    MariaDb {
        domain: u32,
        server: u32,
        sequence: u64,
        flags: u8,
    },
    /// The server does not number its transactions.
    Anonymous,
}

impl Gtid {
    /// MariaDB's flag of a transaction that is one event, without `COMMIT`.
    pub const STANDALONE: u8 = 1;
    /// MariaDB's flag of DDL.
    pub const DDL: u8 = 0x20;
    /// MariaDB's flag of a transaction that `XA PREPARE` ends.
    pub const PREPARED_XA: u8 = 0x40;
    /// MariaDB's flag of `XA COMMIT` and `XA ROLLBACK`.
    pub const COMPLETED_XA: u8 = 0x80;

    /// This transaction is among those that are known. Never said of MariaDB's, where only the last ones are.
    #[must_use]
    pub fn is_in(&self, set: &GtidSet) -> bool {
        match (self, set) {
            (Gtid::MySql { uuid, tag, number }, GtidSet::MySql(set)) => set.contains(*uuid, tag, *number),
            _ => false,
        }
    }

    /// Adds this transaction to those that are known.
    ///
    /// # Errors
    /// The set is of the other flavor, or it would be too large.
    pub fn add_to(&self, set: &mut GtidSet) -> Result<(), WireError> {
        match (self, set) {
            (Gtid::MySql { uuid, tag, number }, GtidSet::MySql(set)) => set.add(*uuid, tag, *number),
            (
                Gtid::MariaDb {
                    domain,
                    server,
                    sequence,
                    ..
                },
                GtidSet::MariaDb(position),
            ) => position.add(*domain, *server, *sequence),
            (Gtid::Anonymous, _) => Ok(()),
            _ => Err(WireError::Invalid {
                field: "flavor of a GTID",
            }),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query<'a> {
    /// The default database.
    pub schema: &'a [u8],
    pub sql: Cow<'a, [u8]>,
    /// Of the statement on the server where it ran: a part of it may have happened.
    pub error: u16,
}

impl Header {
    /// Flag of events that the server makes up for a stream.
    pub const ARTIFICIAL: u16 = 0x20;

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Header, WireError> {
        const FIELD: &str = "event header";
        Ok(Header {
            timestamp: reader.u32(FIELD)?,
            code: reader.u8(FIELD)?,
            server_id: reader.u32(FIELD)?,
            size: reader.u32(FIELD)?,
            next_position: reader.u32(FIELD)?,
            flags: reader.u16(FIELD)?,
        })
    }
}

pub(super) const QUERY: u8 = 2;
pub(super) const STOP: u8 = 3;
pub(super) const ROTATE: u8 = 4;
pub(super) const FORMAT_DESCRIPTION: u8 = 15;
const XID: u8 = 16;
pub(super) const TABLE_MAP: u8 = 19;
pub(super) const WRITE_ROWS_V1: u8 = 23;
const DELETE_ROWS_V1: u8 = 25;
const EXECUTE_LOAD_QUERY: u8 = 18;
const INCIDENT: u8 = 26;
pub(super) const HEARTBEAT: u8 = 27;
const ROWS_QUERY: u8 = 29;
const WRITE_ROWS: u8 = 30;
const DELETE_ROWS: u8 = 32;
pub(super) const GTID: u8 = 33;
const ANONYMOUS_GTID: u8 = 34;
const XA_PREPARE: u8 = 38;
const PARTIAL_UPDATE_ROWS: u8 = 39;
pub(super) const TRANSACTION_PAYLOAD: u8 = 40;
const HEARTBEAT_V2: u8 = 41;
const GTID_TAGGED: u8 = 42;
const MARIADB_ANNOTATE: u8 = 160;
const MARIADB_GTID: u8 = 162;
const MARIADB_GTID_LIST: u8 = 163;
const MARIADB_QUERY_COMPRESSED: u8 = 165;
const MARIADB_WRITE_ROWS_COMPRESSED_V1: u8 = 166;
const MARIADB_DELETE_ROWS_COMPRESSED_V1: u8 = 168;
const MARIADB_WRITE_ROWS_COMPRESSED: u8 = 169;
const MARIADB_DELETE_ROWS_COMPRESSED: u8 = 171;

/// Header flag of events that a replica may skip when it does not know them.
const IGNORABLE: u16 = 0x80;

/// An event of MySQL's (9.7) or of MariaDB's (11.8).
fn is_known(code: u8) -> bool {
    matches!(code, 0..=GTID_TAGGED | MARIADB_ANNOTATE..=MARIADB_DELETE_ROWS_COMPRESSED)
}

/// Reads what is between an event's header and its checksum.
pub(super) fn read_body<'a>(
    header: Header,
    body: &'a [u8],
    is_mariadb: bool,
) -> Result<Event<'a>, BinlogError> {
    let mut reader = Reader::new(body);
    let kind = match header.code {
        ROTATE => {
            let offset = u64::from_le_bytes(reader.array("rotate event")?);
            let file = reader.remaining();
            Kind::Rotate { file, offset }
        }
        STOP => Kind::Stop,
        QUERY | MARIADB_QUERY_COMPRESSED | EXECUTE_LOAD_QUERY => read_query(&mut reader, header.code)?,
        XID => Kind::Xid(u64::from_le_bytes(reader.array("xid event")?)),
        TABLE_MAP => Kind::TableMap(TableMap::read(&mut reader, is_mariadb)?),
        code @ WRITE_ROWS_V1..=DELETE_ROWS_V1 => {
            read_rows(&mut reader, code - WRITE_ROWS_V1, rows::Version::V1, false)?
        }
        code @ WRITE_ROWS..=DELETE_ROWS => {
            read_rows(&mut reader, code - WRITE_ROWS, rows::Version::V2, false)?
        }
        code @ MARIADB_WRITE_ROWS_COMPRESSED_V1..=MARIADB_DELETE_ROWS_COMPRESSED_V1 => {
            let change = code - MARIADB_WRITE_ROWS_COMPRESSED_V1;
            read_rows(&mut reader, change, rows::Version::V1, true)?
        }
        code @ MARIADB_WRITE_ROWS_COMPRESSED..=MARIADB_DELETE_ROWS_COMPRESSED => {
            let change = code - MARIADB_WRITE_ROWS_COMPRESSED;
            read_rows(&mut reader, change, rows::Version::V2, true)?
        }
        INCIDENT => {
            reader.u16("incident")?;
            let len = reader.u8("incident message")?;
            let message = reader.bytes(usize::from(len), "incident message")?;
            Kind::Incident { message }
        }
        HEARTBEAT => Kind::Heartbeat {
            file: reader.remaining(),
            offset: u64::from(header.next_position),
        },
        HEARTBEAT_V2 => read_heartbeat_v2(&mut reader)?,
        ROWS_QUERY => {
            // A length of one byte, which is too short for most statements and not used.
            reader.u8("rows query event")?;
            Kind::RowsQuery(reader.remaining())
        }
        MARIADB_ANNOTATE => Kind::RowsQuery(reader.remaining()),
        GTID => Kind::Gtid(read_mysql_gtid(&mut reader)?),
        GTID_TAGGED => Kind::Gtid(read_tagged_gtid(&mut reader)?),
        ANONYMOUS_GTID => Kind::Gtid(Gtid::Anonymous),
        MARIADB_GTID => Kind::Gtid(read_mariadb_gtid(&mut reader, header.server_id)?),
        MARIADB_GTID_LIST => Kind::GtidList,
        XA_PREPARE => Kind::XaPrepare {
            one_phase: reader.u8("XA prepare event")? != 0,
        },
        PARTIAL_UPDATE_ROWS => Kind::PartialUpdateRows,
        TRANSACTION_PAYLOAD => Kind::TransactionPayload(Payload::read(&mut reader)?),
        // It may change rows.
        code if !is_known(code) && header.flags & IGNORABLE == 0 => {
            return Err(BinlogError::Unsupported(format!("an event of type {code}")));
        }
        _ => Kind::Other,
    };
    Ok(Event { header, kind })
}

/// `change`: 0 for new rows, 1 for changed ones, 2 for deleted ones.
fn read_rows<'a>(
    reader: &mut Reader<'a>,
    change: u8,
    version: rows::Version,
    is_compressed: bool,
) -> Result<Kind<'a>, BinlogError> {
    let change = match change {
        0 => Change::Write,
        1 => Change::Update,
        _ => Change::Delete,
    };
    Rows::read(reader, change, version, is_compressed).map(Kind::Rows)
}

fn read_query<'a>(reader: &mut Reader<'a>, code: u8) -> Result<Kind<'a>, BinlogError> {
    const FIELD: &str = "query event";
    reader.bytes(8, FIELD)?;
    let schema_len = reader.u8(FIELD)?;
    let error = reader.u16(FIELD)?;
    let status_len = reader.u16(FIELD)?;
    if code == EXECUTE_LOAD_QUERY {
        // The file, and where its name is in the statement.
        reader.bytes(13, FIELD)?;
    }
    reader.bytes(usize::from(status_len), FIELD)?;
    let schema = reader.bytes(usize::from(schema_len), FIELD)?;
    reader.u8(FIELD)?;
    let sql = reader.remaining();
    let sql = if code == MARIADB_QUERY_COMPRESSED {
        unpack::mariadb(sql)?.into()
    } else {
        sql.into()
    };
    Ok(Kind::Query(Query { schema, sql, error }))
}

/// Types, lengths and values until type 0.
fn read_heartbeat_v2<'a>(reader: &mut Reader<'a>) -> Result<Kind<'a>, WireError> {
    const FIELD: &str = "heartbeat";
    let (mut file, mut offset) = (&b""[..], 0);
    while !reader.is_empty() {
        match reader.u8(FIELD)? {
            0 => break,
            1 => file = reader.lenenc_bytes(FIELD)?,
            2 => offset = Reader::new(reader.lenenc_bytes(FIELD)?).lenenc(FIELD)?,
            _ => drop(reader.lenenc_bytes(FIELD)?),
        }
    }
    Ok(Kind::Heartbeat { file, offset })
}

fn read_mysql_gtid(reader: &mut Reader<'_>) -> Result<Gtid, WireError> {
    const FIELD: &str = "GTID event";
    reader.u8(FIELD)?;
    Ok(Gtid::MySql {
        uuid: reader.array(FIELD)?,
        tag: Box::default(),
        number: reader.array(FIELD).map(u64::from_le_bytes)?,
    })
}

fn read_mariadb_gtid(reader: &mut Reader<'_>, server: u32) -> Result<Gtid, WireError> {
    const FIELD: &str = "GTID event";
    Ok(Gtid::MariaDb {
        sequence: reader.array(FIELD).map(u64::from_le_bytes)?,
        domain: reader.u32(FIELD)?,
        flags: reader.u8(FIELD)?,
        server,
    })
}

/// A message of numbered fields: 0 flags, 1 the UUID, 2 the number, 3 the tag, then others.
fn read_tagged_gtid(reader: &mut Reader<'_>) -> Result<Gtid, WireError> {
    const FIELD: &str = "tagged GTID event";
    const INVALID: WireError = WireError::Invalid { field: FIELD };
    let version = serialized(reader)?;
    let (_size, _last) = (serialized(reader)?, serialized(reader)?);
    if version != 1 {
        return Err(INVALID);
    }
    let mut field = serialized(reader)?;
    if field == 0 {
        serialized(reader)?;
        field = serialized(reader)?;
    }
    let mut uuid = [0; 16];
    if field != 1 {
        return Err(INVALID);
    }
    for byte in &mut uuid {
        *byte = u8::try_from(serialized(reader)?).map_err(|_| INVALID)?;
    }
    if serialized(reader)? != 2 {
        return Err(INVALID);
    }
    // Signed: the lowest bit is the sign.
    let number = serialized(reader)?;
    if number & 1 == 1 {
        return Err(INVALID);
    }
    let mut tag = Box::default();
    if !reader.is_empty() && serialized(reader)? == 3 {
        let len = usize::try_from(serialized(reader)?).map_err(|_| INVALID)?;
        tag = str::from_utf8(reader.bytes(len, FIELD)?)
            .map_err(|_| INVALID)?
            .into();
    }
    let number = number >> 1;
    Ok(Gtid::MySql { uuid, tag, number })
}

/// An integer of `libs/mysql/serialization`: as many one bits as bytes follow, a zero bit, then the number's
/// bits from the lowest.
fn serialized(reader: &mut Reader<'_>) -> Result<u64, WireError> {
    const FIELD: &str = "serialized integer";
    let first = reader.u8(FIELD)?;
    let more = first.trailing_ones() as usize;
    let rest = little_endian(reader.bytes(more, FIELD)?);
    Ok(match more {
        0..7 => rest << (7 - more) | u64::from(first >> (more + 1)),
        _ => rest,
    })
}
