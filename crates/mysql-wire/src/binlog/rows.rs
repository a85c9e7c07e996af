//! Row events: rows as they were before and after a change.

use std::borrow::Cow;

use super::layout::{Image, Layout};
use super::table_map::read_table_id;
use super::{BinlogError, unpack};
use crate::WireError;
use crate::codec::Reader;

/// What happened to the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    Write,
    Update,
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// Rows that one statement changed in one table. A statement with many rows has several of these.
#[derive(Debug, Clone)]
pub struct Rows<'a> {
    pub table_id: u64,
    pub change: Change,
    columns: usize,
    /// One bit for each column that the images have.
    before: &'a [u8],
    after: &'a [u8],
    data: Cow<'a, [u8]>,
}

/// One row's change. A written row has no `before`, a deleted one no `after`.
#[derive(Debug)]
pub struct RowChange<'a> {
    pub before: Option<Image<'a>>,
    pub after: Option<Image<'a>>,
}

const FIELD: &str = "row event";
const COLUMNS_MAX: u64 = 4096;

impl<'a> Rows<'a> {
    pub(super) fn read(
        reader: &mut Reader<'a>,
        change: Change,
        version: Version,
        compressed: bool,
    ) -> Result<Rows<'a>, BinlogError> {
        let table_id = read_table_id(reader)?;
        reader.u16("flags of a row event")?;
        if version == Version::V2 {
            // The length counts itself.
            let extra = usize::from(reader.u16(FIELD)?).checked_sub(2);
            reader.bytes(extra.ok_or(WireError::Invalid { field: FIELD })?, FIELD)?;
        }
        let columns = reader.lenenc(FIELD)?;
        if columns > COLUMNS_MAX {
            return Err(WireError::Invalid { field: FIELD }.into());
        }
        let columns = columns as usize;
        let first = reader.bytes(columns.div_ceil(8), FIELD)?;
        let (before, after) = match change {
            Change::Write => (&[][..], first),
            Change::Delete => (first, &[][..]),
            Change::Update => (first, reader.bytes(columns.div_ceil(8), FIELD)?),
        };
        let data = reader.remaining();
        let data = if compressed {
            unpack::mariadb(data)?.into()
        } else {
            data.into()
        };
        Ok(Rows {
            table_id,
            change,
            columns,
            before,
            after,
            data,
        })
    }

    /// The rows, which the layout of their table makes readable. After an error there are no more.
    pub fn iter<'r>(
        &'r self,
        layout: &'r Layout,
    ) -> impl Iterator<Item = Result<RowChange<'r>, BinlogError>> {
        let mut reader = Reader::new(&self.data);
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            let change = self.next_change(&mut reader, layout);
            if change.is_err() {
                reader.remaining();
            }
            Some(change)
        })
    }

    fn next_change<'r>(
        &'r self,
        reader: &mut Reader<'r>,
        layout: &Layout,
    ) -> Result<RowChange<'r>, BinlogError> {
        let start = reader.len();
        let mut image = |present: &'r [u8], exists: bool| {
            exists
                .then(|| layout.split(reader, self.columns, present))
                .transpose()
        };
        let before = image(self.before, self.change != Change::Write)?;
        let after = image(self.after, self.change != Change::Delete)?;
        // A table without columns in its images would have rows without end.
        if reader.len() == start {
            return Err(WireError::Invalid { field: FIELD }.into());
        }
        Ok(RowChange { before, after })
    }
}
