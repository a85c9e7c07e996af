//! How the columns of a table are stored in the row events that follow.

use std::sync::Arc;

use super::BinlogError;
use crate::WireError;
use crate::codec::Reader;

const COLUMNS_MAX: u64 = 4096;
const FIELD: &str = "table map";

/// A table's number in the row events that follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMap {
    pub table_id: u64,
    pub schema: Box<[u8]>,
    pub table: Box<[u8]>,
    pub columns: Arc<[WireColumn]>,
    /// The server is MariaDB.
    pub is_mariadb: bool,
}

/// A stored column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WireColumn {
    /// `enum_field_types`; of what is stored as a string, what it really is.
    pub code: u8,
    /// What that type needs to be read: a length, digits, …
    pub meta: u16,
}

pub(super) mod code {
    pub(in super::super) const TINY: u8 = 1;
    pub(in super::super) const SHORT: u8 = 2;
    pub(in super::super) const LONG: u8 = 3;
    pub(in super::super) const FLOAT: u8 = 4;
    pub(in super::super) const DOUBLE: u8 = 5;
    pub(in super::super) const TIMESTAMP: u8 = 7;
    pub(in super::super) const LONGLONG: u8 = 8;
    pub(in super::super) const INT24: u8 = 9;
    pub(in super::super) const DATE: u8 = 10;
    pub(in super::super) const TIME: u8 = 11;
    pub(in super::super) const DATETIME: u8 = 12;
    pub(in super::super) const YEAR: u8 = 13;
    pub(in super::super) const NEWDATE: u8 = 14;
    pub(in super::super) const VARCHAR: u8 = 15;
    pub(in super::super) const BIT: u8 = 16;
    pub(in super::super) const TIMESTAMP2: u8 = 17;
    pub(in super::super) const DATETIME2: u8 = 18;
    pub(in super::super) const TIME2: u8 = 19;
    /// MariaDB: a column with the attribute COMPRESSED.
    pub(in super::super) const BLOB_COMPRESSED: u8 = 140;
    /// MariaDB: a column with the attribute COMPRESSED.
    pub(in super::super) const VARCHAR_COMPRESSED: u8 = 141;
    pub(in super::super) const VECTOR: u8 = 242;
    pub(in super::super) const JSON: u8 = 245;
    pub(in super::super) const NEWDECIMAL: u8 = 246;
    pub(in super::super) const ENUM: u8 = 247;
    pub(in super::super) const SET: u8 = 248;
    pub(in super::super) const TINY_BLOB: u8 = 249;
    pub(in super::super) const BLOB: u8 = 252;
    pub(in super::super) const VAR_STRING: u8 = 253;
    pub(in super::super) const STRING: u8 = 254;
    pub(in super::super) const GEOMETRY: u8 = 255;
}

impl TableMap {
    pub(super) fn read(reader: &mut Reader<'_>, is_mariadb: bool) -> Result<TableMap, BinlogError> {
        let table_id = read_table_id(reader)?;
        let _flags = reader.u16(FIELD)?;
        let schema = read_name(reader)?;
        let table = read_name(reader)?;
        let count = reader.lenenc(FIELD)?;
        if count > COLUMNS_MAX {
            return Err(WireError::Invalid {
                field: "number of columns",
            }
            .into());
        }
        let codes = reader.bytes(count as usize, FIELD)?;
        let mut meta = Reader::new(reader.lenenc_bytes(FIELD)?);
        let mut columns = Vec::with_capacity(codes.len());
        for &code in codes {
            columns.push(WireColumn::read(code, &mut meta)?);
        }
        // What may be null is in the rows; what is behind that, the table's definition tells as well.
        Ok(TableMap {
            table_id,
            schema,
            table,
            columns: columns.into(),
            is_mariadb,
        })
    }
}

pub(super) fn read_table_id(reader: &mut Reader<'_>) -> Result<u64, WireError> {
    let [a, b, c, d, e, f] = reader.array("table id")?;
    Ok(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
}

fn read_name(reader: &mut Reader<'_>) -> Result<Box<[u8]>, WireError> {
    let len = reader.u8(FIELD)?;
    let name = reader.bytes(usize::from(len), FIELD)?.into();
    reader.u8(FIELD)?;
    Ok(name)
}

impl WireColumn {
    fn read(code: u8, meta: &mut Reader<'_>) -> Result<WireColumn, WireError> {
        let (code, meta) = match code {
            code::STRING => return Ok(Self::string(meta.array(FIELD)?)),
            code::FLOAT | code::DOUBLE | code::TIMESTAMP2 | code::DATETIME2 | code::TIME2 => {
                (code, u16::from(meta.u8(FIELD)?))
            }
            code::BLOB_COMPRESSED
            | code::VECTOR
            | code::JSON
            | code::TINY_BLOB..=code::BLOB
            | code::GEOMETRY => match meta.u8(FIELD)? {
                len @ 1..=4 => (code, u16::from(len)),
                _ => return Err(WireError::Invalid { field: FIELD }),
            },
            code::VARCHAR | code::VARCHAR_COMPRESSED | code::VAR_STRING | code::BIT => {
                (code, meta.u16(FIELD)?)
            }
            // Big-endian, so that the first byte is the high one.
            code::NEWDECIMAL => (code, u16::from_be_bytes(meta.array(FIELD)?)),
            code::ENUM | code::SET => {
                let [_, len] = meta.array(FIELD)?;
                (code, u16::from(len))
            }
            // Also a type that is not known, after which nothing is read right. Such a table has no layout,
            // and whoever does not need one goes on.
            _ => (code, 0),
        };
        Ok(WireColumn { code, meta })
    }

    /// What is declared as a string of up to 1023 bytes: the length's two high bits are hidden, inverted, in
    /// the type.
    fn string([kind, len]: [u8; 2]) -> WireColumn {
        match kind {
            code::ENUM | code::SET => WireColumn {
                code: kind,
                meta: u16::from(len),
            },
            _ => WireColumn {
                code: code::STRING,
                meta: u16::from(kind & 0x30 ^ 0x30) << 4 | u16::from(len),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_is_not_known_is_no_error_of_the_stream() {
        let body = b"\x07\0\0\0\0\0\0\0\x01d\0\x01t\0\x02\x03\x14\x02\x01\x02\0";
        let map = TableMap::read(&mut Reader::new(body), false).unwrap();
        assert_eq!(
            (map.table_id, &*map.schema, &*map.table),
            (7, &b"d"[..], &b"t"[..])
        );
        let int = super::super::ColumnType::parse("int", None).unwrap();
        let error = super::super::Layout::new(&map, &[int.clone(), int]).unwrap_err();
        assert!(matches!(error, BinlogError::Shape { column: 1, .. }), "{error}");
    }
}
