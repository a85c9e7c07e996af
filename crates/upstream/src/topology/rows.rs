//! A statement and its rows, as text: what a look needs of the protocol, and no more.
//!
//! Everything is bounded before it is kept: packets, columns, rows, bytes in all. A server that exceeds a
//! bound has answered nothing.

use mysql_wire::{Capabilities, Command, EofPacket, ErrPacket, OkPacket};
use net::Stream;

use crate::packets::{PacketError, Packets};

/// Columns of a result; `SHOW ALL SLAVES STATUS` has about 60.
const COLUMNS_MAX: usize = 256;
/// How long a result may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

impl Bounds {
    /// The most rows are lists of members; the set of executed GTIDs of an old server with many gaps can be
    /// long.
    pub(super) const USUAL: Self = Self {
        rows: 4096,
        bytes: 4 << 20,
    };
}

/// "You have an error in your SQL syntax": the server has another word for it.
const ER_PARSE_ERROR: u16 = 1064;

/// A result set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rows {
    columns: Vec<String>,
    rows: Vec<Vec<Option<Vec<u8>>>>,
}

/// One row of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    columns: &'a [String],
    values: &'a [Option<Vec<u8>>],
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueryError {
    /// The server's own words. The connection goes on.
    #[error("{} (error {})", String::from_utf8_lossy(&.0.message), .0.code)]
    Refused(ErrPacket),
    /// The connection is of no use any more.
    #[error(transparent)]
    Broken(#[from] PacketError),
    /// The answer is not what such a statement is answered with, and so is the connection.
    #[error("server broke the protocol: {0}")]
    Malformed(&'static str),
}

impl QueryError {
    /// Whether another spelling of the statement may do.
    pub(super) fn is_syntax(&self) -> bool {
        matches!(self, Self::Refused(error) if error.code == ER_PARSE_ERROR)
    }

    /// Whether the connection goes on.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

impl Rows {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|values| Row {
            columns: &self.columns,
            values,
        })
    }

    pub(super) fn first(&self) -> Option<Row<'_>> {
        self.iter().next()
    }

    /// The first column, without NULL.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        let first = |row: &Vec<Option<Vec<u8>>>| row.first()?.as_deref().map(text);
        self.rows.iter().filter_map(first)
    }

    /// Of a result with two columns, name and value: the value of the row with that name.
    pub(super) fn value_of(&self, name: &str) -> Option<String> {
        let row = self.rows.iter().find(|row| {
            row.first()
                .and_then(Option::as_deref)
                .is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes()))
        })?;
        row.get(1)?.as_deref().map(text)
    }

    #[cfg(test)]
    pub(crate) fn of(columns: &[&str], rows: &[&[Option<&str>]]) -> Self {
        Self {
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            rows: rows
                .iter()
                .map(|row| {
                    row.iter()
                        .map(|value| value.map(|text| text.as_bytes().to_vec()))
                        .collect()
                })
                .collect(),
        }
    }
}

impl<'a> Row<'a> {
    /// The value of the first of `names` that there is, whatever the case. `None` for NULL, too.
    pub(crate) fn bytes(&self, names: &[&str]) -> Option<&'a [u8]> {
        let of = |name: &&str| {
            self.columns
                .iter()
                .position(|column| column.eq_ignore_ascii_case(name))
        };
        self.values.get(names.iter().find_map(of)?)?.as_deref()
    }

    /// As text; `None` where it is empty, too.
    pub(crate) fn text(&self, names: &[&str]) -> Option<String> {
        self.bytes(names).map(text).filter(|text| !text.is_empty())
    }

    pub(super) fn number<T: std::str::FromStr>(&self, names: &[&str]) -> Option<T> {
        std::str::from_utf8(self.bytes(names)?).ok()?.parse().ok()
    }

    /// A variable that is not off. `None` where there is none.
    pub(super) fn is_on(&self, names: &[&str]) -> Option<bool> {
        self.bytes(names).map(|value| !is_off(value))
    }
}

/// `0`, `OFF`, `NO` and nothing at all.
pub(super) fn is_off(value: &[u8]) -> bool {
    [&b""[..], b"0", b"OFF", b"NO"]
        .iter()
        .any(|off| value.eq_ignore_ascii_case(off))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `statement`. Has no time limit of its own. After any error but [`QueryError::Refused`] the connection
/// cannot be used again; nor when the future is dropped.
pub(super) async fn query(
    stream: &mut Stream,
    capabilities: Capabilities,
    statement: &str,
    bounds: Bounds,
) -> Result<Rows, QueryError> {
    let mut packets = Packets::new(stream, 0);
    let mut payload = vec![Command::QUERY.0];
    payload.extend_from_slice(statement.as_bytes());
    packets.send_command(&payload).await?;
    let head = packets.receive().await?;
    let count = match head.first() {
        Some(&ErrPacket::HEADER) => return Err(refused(&head, capabilities)),
        Some(&OkPacket::HEADER) => return Ok(Rows::default()),
        Some(&count) if (1..=250).contains(&count) && head.len() == 1 => usize::from(count),
        _ => return Err(QueryError::Malformed("no count of columns")),
    };
    debug_assert!(count <= COLUMNS_MAX);
    let mut columns = Vec::with_capacity(count);
    for _ in 0..count {
        columns.push(column_name(&packets.receive().await?)?);
    }
    if !capabilities.contains(Capabilities::DEPRECATE_EOF) {
        packets.receive().await?;
    }
    let (mut rows, mut total) = (Vec::new(), 0);
    loop {
        let packet = packets.receive_up_to(bounds.bytes).await?;
        match packet.first() {
            Some(&ErrPacket::HEADER) => return Err(refused(&packet, capabilities)),
            // A row cannot begin like that: its first value would be longer than any result may be.
            Some(&EofPacket::HEADER) => return Ok(Rows { columns, rows }),
            _ => {}
        }
        total += packet.len();
        if total > bounds.bytes || rows.len() == bounds.rows {
            return Err(QueryError::Malformed("its result is too long"));
        }
        rows.push(row(&packet, count)?);
    }
}

fn refused(packet: &[u8], capabilities: Capabilities) -> QueryError {
    match ErrPacket::decode(packet, capabilities) {
        Ok(error) => QueryError::Refused(error),
        Err(error) => QueryError::Broken(error.into()),
    }
}

/// The fifth of the texts that a definition begins with: catalog, schema, table, original table, name.
fn column_name(packet: &[u8]) -> Result<String, QueryError> {
    let mut rest = packet;
    for _ in 0..4 {
        value(&mut rest)?;
    }
    Ok(text(value(&mut rest)?.unwrap_or_default()))
}

fn row(packet: &[u8], count: usize) -> Result<Vec<Option<Vec<u8>>>, QueryError> {
    let mut rest = packet;
    let values = (0..count).map(|_| Ok(value(&mut rest)?.map(<[u8]>::to_vec)));
    let values: Vec<_> = values.collect::<Result<_, QueryError>>()?;
    if rest.is_empty() {
        Ok(values)
    } else {
        Err(QueryError::Malformed("bytes behind a row"))
    }
}

/// Takes one text off the front of `rest`; `None` is NULL.
fn value<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, QueryError> {
    const CUT: QueryError = QueryError::Malformed("a row that ends early");
    let (&first, tail) = rest.split_first().ok_or(CUT)?;
    let width = match first {
        0xfb => {
            *rest = tail;
            return Ok(None);
        }
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        0xff => return Err(QueryError::Malformed("a length that is none")),
        _ => 0,
    };
    let (length, tail) = tail.split_at_checked(width).ok_or(CUT)?;
    let length = if width == 0 {
        u64::from(first)
    } else {
        length
            .iter()
            .rev()
            .fold(0, |length, byte| length << 8 | u64::from(*byte))
    };
    let length = usize::try_from(length).map_err(|_| CUT)?;
    let (value, tail) = tail.split_at_checked(length).ok_or(CUT)?;
    *rest = tail;
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(values: &[Option<Vec<u8>>]) -> Vec<u8> {
        let mut packet = Vec::new();
        for value in values {
            match value {
                None => packet.push(0xfb),
                Some(value) if value.len() < 251 => packet.push(value.len() as u8),
                Some(value) => {
                    packet.push(0xfc);
                    packet.extend_from_slice(&(value.len() as u16).to_le_bytes());
                }
            }
            packet.extend_from_slice(value.as_deref().unwrap_or_default());
        }
        packet
    }

    proptest! {
        #[test]
        fn rows_are_read_as_they_were_written(
            values in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..400)), 0..6),
        ) {
            let packet = encode(&values);
            prop_assert_eq!(row(&packet, values.len()).unwrap(), values.clone());
            if !packet.is_empty() {
                prop_assert!(row(&packet[..packet.len() - 1], values.len()).is_err(), "cut short");
            }
            prop_assert!(row(&[&packet[..], &[0]].concat(), values.len()).is_err(), "one byte more");
        }

        #[test]
        fn no_bytes_panic(packet: Vec<u8>, count in 0..9_usize) {
            let _ = row(&packet, count);
            let _ = column_name(&packet);
        }
    }

    #[test]
    fn values_are_found_by_any_of_their_names() {
        let rows = Rows::of(
            &["Master_Host", "Read_Only"],
            &[&[Some("db1"), Some("ON")], &[None, Some("0")]],
        );
        let first = rows.first().unwrap();
        assert_eq!(
            first.text(&["Source_Host", "master_host"]).as_deref(),
            Some("db1")
        );
        assert_eq!(first.is_on(&["read_only"]), Some(true));
        let second = rows.iter().nth(1).unwrap();
        assert_eq!(second.text(&["Master_Host"]), None);
        assert_eq!(second.is_on(&["read_only"]), Some(false));
        assert_eq!(second.is_on(&["super_read_only"]), None);
        assert_eq!(rows.value_of("DB1").as_deref(), Some("ON"));
    }
}
