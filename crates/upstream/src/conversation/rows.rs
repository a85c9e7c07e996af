//! A statement and its rows, as text.

use mysql_wire::{Capabilities, EofPacket, ErrPacket, OkPacket, text_values};
use net::Stream;

use super::{Broken, Reply, ask_within, query};

/// How long a result may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

impl Bounds {
    /// The most rows are lists of members; the set of executed GTIDs of an old server with many gaps can be
    /// long.
    pub(crate) const USUAL: Self = Self {
        rows: 4096,
        bytes: 4 << 20,
    };
}

/// "You have an error in your SQL syntax": the server has another word for it.
const ER_PARSE_ERROR: u16 = 1064;

/// A row of text; `None` is NULL.
pub type TextRow = Vec<Option<Vec<u8>>>;

/// A result set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rows {
    columns: Vec<String>,
    pub(crate) rows: Vec<TextRow>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    columns: &'a [String],
    values: &'a [Option<Vec<u8>>],
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The server's own words. The connection goes on.
    #[error("{} (error {})", String::from_utf8_lossy(&.0.message), .0.code)]
    Refused(ErrPacket),
    /// There was no answer.
    #[error(transparent)]
    Broken(#[from] Broken),
}

impl QueryError {
    /// What an error packet says.
    #[must_use]
    pub fn refusal(packet: &[u8], capabilities: Capabilities) -> Self {
        match ErrPacket::decode(packet, capabilities) {
            Ok(error) => Self::Refused(error),
            Err(error) => Self::Broken(error.into()),
        }
    }

    /// The code of the server's error.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(error) => Some(error.code),
            Self::Broken(_) => None,
        }
    }

    /// Whether another spelling of the statement may do.
    #[must_use]
    pub fn is_syntax(&self) -> bool {
        self.code() == Some(ER_PARSE_ERROR)
    }

    /// Whether the connection goes on.
    pub(crate) fn is_refusal(&self) -> bool {
        self.code().is_some()
    }
}

impl Rows {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|values| Row {
            columns: &self.columns,
            values,
        })
    }

    pub(crate) fn first(&self) -> Option<Row<'_>> {
        self.iter().next()
    }

    /// The first column, without NULL.
    pub(crate) fn texts(&self) -> impl Iterator<Item = String> {
        let first = |row: &TextRow| row.first()?.as_deref().map(text);
        self.rows.iter().filter_map(first)
    }

    /// Of a result with two columns, name and value: the value of the row with that name.
    pub(crate) fn value_of(&self, name: &str) -> Option<String> {
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

    pub(crate) fn number<T: std::str::FromStr>(&self, names: &[&str]) -> Option<T> {
        std::str::from_utf8(self.bytes(names)?).ok()?.parse().ok()
    }

    /// A variable that is not off. `None` where there is none.
    pub(crate) fn is_on(&self, names: &[&str]) -> Option<bool> {
        self.bytes(names).map(|value| !is_off(value))
    }
}

/// `0`, `OFF`, `NO` and nothing at all.
pub(crate) fn is_off(value: &[u8]) -> bool {
    [&b""[..], b"0", b"OFF", b"NO"]
        .iter()
        .any(|off| value.eq_ignore_ascii_case(off))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a statement of text. Has no time limit of its own.
///
/// # Errors
/// See [`QueryError`]. What exceeds a bound is no answer.
pub(crate) async fn rows(
    stream: &mut Stream,
    capabilities: Capabilities,
    statement: &str,
    bounds: Bounds,
) -> Result<Rows, QueryError> {
    let command = [query(capabilities, statement)];
    let replies = ask_within(stream, capabilities, &command, bounds.bytes).await?;
    match replies.first() {
        Some(reply) if reply.outcome.rows <= bounds.rows as u64 => reply.rows(capabilities),
        _ => Err(Broken::Unexpected("its result has too many rows").into()),
    }
}

impl Reply {
    /// Whether the server has done what it was told.
    ///
    /// # Errors
    /// Its refusal.
    pub fn done(&self, capabilities: Capabilities) -> Result<(), QueryError> {
        match self.outcome.error {
            None => Ok(()),
            Some(_) => {
                let packet = self.packets().last().unwrap_or_default();
                Err(QueryError::refusal(packet, capabilities))
            }
        }
    }

    /// The rows of its first result, as text.
    pub(crate) fn rows(&self, capabilities: Capabilities) -> Result<Rows, QueryError> {
        self.done(capabilities)?;
        let mut packets = self.packets();
        let head = packets.next().unwrap_or_default();
        let count = match *head {
            [OkPacket::HEADER, ..] => return Ok(Rows::default()),
            [count @ 1..=250, ..] => usize::from(count),
            [0xfc, low, high, ..] => usize::from(u16::from_le_bytes([low, high])),
            _ => return Err(Broken::Unexpected("it has no count of columns").into()),
        };
        // The flag behind the count says whether definitions follow.
        let optional = Capabilities::OPTIONAL_RESULTSET_METADATA | Capabilities::MARIADB_CACHE_METADATA;
        let is_defined = !capabilities.intersects(optional) || head.last() != Some(&0);
        let definitions = packets.by_ref().take(if is_defined { count } else { 0 });
        let columns = definitions.map(column_name).collect::<Result<_, _>>()?;
        let ends = !capabilities.contains(Capabilities::DEPRECATE_EOF);
        // A row cannot begin like its end: its first value would be longer than any result may be.
        let rows = packets
            .skip(usize::from(ends))
            .take_while(|packet| packet.first() != Some(&EofPacket::HEADER));
        let rows = rows.map(|packet| row(packet, count)).collect::<Result<_, _>>()?;
        Ok(Rows { columns, rows })
    }
}

/// The values of a row of text.
///
/// # Errors
/// It is none.
pub fn text_row(packet: &[u8]) -> Result<TextRow, Broken> {
    let values = text_values(packet).map(|value| Ok(value?.map(<[u8]>::to_vec)));
    values.collect()
}

/// The fifth of the texts that a definition begins with: catalog, schema, table, original table, name.
fn column_name(definition: &[u8]) -> Result<String, Broken> {
    let name = text_values(definition).nth(4).transpose()?.flatten();
    Ok(name.map(text).unwrap_or_default())
}

fn row(packet: &[u8], count: usize) -> Result<TextRow, Broken> {
    let row = text_row(packet)?;
    match row.len() == count {
        true => Ok(row),
        false => Err(Broken::Unexpected("a row of it has another number of values")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
