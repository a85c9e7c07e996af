//! What a table's definition says of a column: the binary log does not tell signs, character sets and the
//! names of members.

use std::sync::Arc;

use super::{BinlogError, Charset, decimal};

/// The types that columns are declared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnKind {
    TinyInt,
    SmallInt,
    MediumInt,
    Int,
    BigInt,
    Float,
    Double,
    Decimal,
    Bit,
    Year,
    Date,
    Time,
    DateTime,
    Timestamp,
    Char,
    VarChar,
    Binary,
    VarBinary,
    Text,
    Blob,
    Enum,
    Set,
    /// MySQL's. MariaDB's is LONGTEXT.
    Json,
    Geometry,
    Vector,
    /// MariaDB.
    Uuid,
    /// MariaDB.
    Inet4,
    /// MariaDB.
    Inet6,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnType {
    pub kind: ColumnKind,
    pub unsigned: bool,
    /// Characters to fill with zeros from the left; 0 for no ZEROFILL.
    pub zerofill: u8,
    /// Digits of a DECIMAL, bits of a BIT, bytes of a BINARY, UUID, INET4 and INET6; else 0.
    pub length: u32,
    /// Digits after the point: of a DECIMAL, of the seconds of a time, of a FLOAT(M,D) and DOUBLE(M,D), where
    /// [`ColumnType::NOT_FIXED`] is for those without.
    pub decimals: u8,
    pub charset: Charset,
    /// Of ENUM and SET, in UTF-8.
    pub members: Arc<[Box<[u8]>]>,
    /// Of FLOAT and DOUBLE on MariaDB: the server shows that a zero is negative. Some do, others show 0 of
    /// it, which is in their binary log alone: `SELECT -0e0` tells.
    pub signs_zeros: bool,
}

impl ColumnType {
    /// [`decimals`](Self::decimals) of a FLOAT or DOUBLE without a fixed number of them.
    pub const NOT_FIXED: u8 = 31;

    /// A type of this kind, with nothing else.
    #[must_use]
    pub fn new(kind: ColumnKind) -> ColumnType {
        let decimals = match kind {
            ColumnKind::Float | ColumnKind::Double => Self::NOT_FIXED,
            _ => 0,
        };
        let length = match kind {
            ColumnKind::Uuid | ColumnKind::Inet6 => 16,
            ColumnKind::Inet4 => 4,
            _ => 0,
        };
        ColumnType {
            kind,
            unsigned: false,
            zerofill: 0,
            length,
            decimals,
            charset: Charset::Binary,
            members: Arc::default(),
            signs_zeros: false,
        }
    }

    /// From `COLUMN_TYPE` and `CHARACTER_SET_NAME` of `information_schema.COLUMNS`.
    ///
    /// # Errors
    /// [`BinlogError::Unsupported`] names the type or the character set.
    pub fn parse(column_type: &str, character_set: Option<&str>) -> Result<ColumnType, BinlogError> {
        let unsupported = |what: &str| BinlogError::Unsupported(format!("column type {what}"));
        let lower = column_type.trim().to_ascii_lowercase();
        let name_len = lower.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let kind = kind_of(&lower[..name_len]).ok_or_else(|| unsupported(column_type))?;
        let mut parsed = ColumnType::new(kind);
        if let ColumnKind::Enum | ColumnKind::Set = kind {
            let members = members(&column_type.trim()[name_len..]);
            parsed.members = members.ok_or_else(|| unsupported(column_type))?.into();
        } else {
            let (arguments, attributes) =
                arguments(&lower[name_len..]).ok_or_else(|| unsupported(column_type))?;
            parsed.unsigned = attributes.contains("unsigned") || attributes.contains("zerofill");
            parsed.set_arguments(&arguments);
            if attributes.contains("zerofill") {
                parsed.zerofill = parsed.zerofill_width(&arguments);
            }
        }
        if let ColumnKind::Char
        | ColumnKind::VarChar
        | ColumnKind::Text
        | ColumnKind::Enum
        | ColumnKind::Set = kind
        {
            let name = character_set.unwrap_or("binary");
            let charset = Charset::by_name(name);
            parsed.charset =
                charset.ok_or_else(|| BinlogError::Unsupported(format!("character set {name}")))?;
        }
        parsed.check()?;
        Ok(parsed)
    }

    fn set_arguments(&mut self, arguments: &[u32]) {
        let first = arguments.first().copied();
        let byte = |index: usize| arguments.get(index).map(|&value| value.min(255) as u8);
        match self.kind {
            ColumnKind::Decimal => {
                self.length = first.unwrap_or(10);
                self.decimals = byte(1).unwrap_or(0);
            }
            ColumnKind::Float | ColumnKind::Double => self.decimals = byte(1).unwrap_or(Self::NOT_FIXED),
            ColumnKind::Time | ColumnKind::DateTime | ColumnKind::Timestamp => {
                self.decimals = byte(0).unwrap_or(0);
            }
            ColumnKind::Bit | ColumnKind::Binary => self.length = first.unwrap_or(1),
            _ => {}
        }
    }

    /// The display width, which is in the type's text or the longest number's.
    fn zerofill_width(&self, arguments: &[u32]) -> u8 {
        if self.kind == ColumnKind::Decimal {
            // A point, and no sign.
            return self.length.min(100) as u8 + u8::from(self.decimals > 0);
        }
        let default = match self.kind {
            ColumnKind::TinyInt => 3,
            ColumnKind::SmallInt => 5,
            ColumnKind::MediumInt => 8,
            ColumnKind::Int => 10,
            ColumnKind::BigInt => 20,
            ColumnKind::Float => 12,
            ColumnKind::Double => 22,
            _ => 0,
        };
        arguments.first().map_or(default, |&width| width.min(255) as u8)
    }

    /// What other code relies on.
    fn check(&self) -> Result<(), BinlogError> {
        let unsupported = |what: &str| Err(BinlogError::Unsupported(what.to_owned()));
        match self.kind {
            ColumnKind::Decimal => {
                let digits = u8::try_from(self.length).ok();
                match digits.and_then(|digits| decimal::packed_len(digits, self.decimals)) {
                    Some(_) => Ok(()),
                    None => unsupported("a DECIMAL of these digits"),
                }
            }
            ColumnKind::Time | ColumnKind::DateTime | ColumnKind::Timestamp if self.decimals > 6 => {
                unsupported("a time with more than 6 decimals")
            }
            ColumnKind::Bit if !(1..=64).contains(&self.length) => unsupported("a BIT of this length"),
            ColumnKind::Set if self.members.iter().any(|member| member.is_empty()) => {
                unsupported("a SET with an empty member, whose values are not told apart by their text,")
            }
            ColumnKind::Enum | ColumnKind::Set if self.charset == Charset::Binary => Ok(()),
            // information_schema is utf8mb3 and shows longer characters as question marks.
            ColumnKind::Enum | ColumnKind::Set
                if matches!(
                    self.charset,
                    Charset::Utf8 | Charset::Utf16 | Charset::Utf16Le | Charset::Utf32
                ) && self.members.iter().any(|member| member.contains(&b'?')) =>
            {
                unsupported(
                    "an ENUM or SET with a member that has a question mark or a character beyond U+FFFF",
                )
            }
            _ => Ok(()),
        }
    }

    /// The words of error messages.
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            ColumnKind::TinyInt => "TINYINT",
            ColumnKind::SmallInt => "SMALLINT",
            ColumnKind::MediumInt => "MEDIUMINT",
            ColumnKind::Int => "INT",
            ColumnKind::BigInt => "BIGINT",
            ColumnKind::Float => "FLOAT",
            ColumnKind::Double => "DOUBLE",
            ColumnKind::Decimal => "DECIMAL",
            ColumnKind::Bit => "BIT",
            ColumnKind::Year => "YEAR",
            ColumnKind::Date => "DATE",
            ColumnKind::Time => "TIME",
            ColumnKind::DateTime => "DATETIME",
            ColumnKind::Timestamp => "TIMESTAMP",
            ColumnKind::Char => "CHAR",
            ColumnKind::VarChar => "VARCHAR",
            ColumnKind::Binary => "BINARY",
            ColumnKind::VarBinary => "VARBINARY",
            ColumnKind::Text => "TEXT",
            ColumnKind::Blob => "BLOB",
            ColumnKind::Enum => "ENUM",
            ColumnKind::Set => "SET",
            ColumnKind::Json => "JSON",
            ColumnKind::Geometry => "GEOMETRY",
            ColumnKind::Vector => "VECTOR",
            ColumnKind::Uuid => "UUID",
            ColumnKind::Inet4 => "INET4",
            ColumnKind::Inet6 => "INET6",
        }
    }
}

fn kind_of(name: &str) -> Option<ColumnKind> {
    Some(match name {
        "tinyint" => ColumnKind::TinyInt,
        "smallint" => ColumnKind::SmallInt,
        "mediumint" => ColumnKind::MediumInt,
        "int" => ColumnKind::Int,
        "bigint" => ColumnKind::BigInt,
        "float" => ColumnKind::Float,
        "double" => ColumnKind::Double,
        "decimal" => ColumnKind::Decimal,
        "bit" => ColumnKind::Bit,
        "year" => ColumnKind::Year,
        "date" => ColumnKind::Date,
        "time" => ColumnKind::Time,
        "datetime" => ColumnKind::DateTime,
        "timestamp" => ColumnKind::Timestamp,
        "char" => ColumnKind::Char,
        "varchar" => ColumnKind::VarChar,
        "binary" => ColumnKind::Binary,
        "varbinary" => ColumnKind::VarBinary,
        "tinytext" | "text" | "mediumtext" | "longtext" => ColumnKind::Text,
        "tinyblob" | "blob" | "mediumblob" | "longblob" => ColumnKind::Blob,
        "enum" => ColumnKind::Enum,
        "set" => ColumnKind::Set,
        "json" => ColumnKind::Json,
        "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring"
        | "multipolygon" | "geometrycollection" | "geomcollection" => ColumnKind::Geometry,
        "vector" => ColumnKind::Vector,
        "uuid" => ColumnKind::Uuid,
        "inet4" => ColumnKind::Inet4,
        "inet6" => ColumnKind::Inet6,
        _ => return None,
    })
}

/// `(10,2) unsigned` as numbers and what follows.
fn arguments(text: &str) -> Option<(Vec<u32>, &str)> {
    let Some(inner) = text.strip_prefix('(') else {
        return Some((Vec::new(), text));
    };
    let (inner, attributes) = inner.split_once(')')?;
    let numbers: Option<Vec<u32>> = inner
        .split(',')
        .map(|number| number.trim().parse().ok())
        .collect();
    Some((numbers?, attributes))
}

/// `('a','it''s','back\\slash')`.
fn members(text: &str) -> Option<Vec<Box<[u8]>>> {
    let mut rest = text.strip_prefix('(')?.bytes().peekable();
    let mut members = Vec::new();
    loop {
        (rest.next()? == b'\'').then_some(())?;
        let mut member = Vec::new();
        loop {
            match rest.next()? {
                b'\'' if rest.peek() == Some(&b'\'') => member.extend(rest.next()),
                b'\'' => break,
                b'\\' => member.push(match rest.next()? {
                    b'0' => 0,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    other => other,
                }),
                byte => member.push(byte),
            }
        }
        members.push(member.into_boxed_slice());
        match rest.next()? {
            b',' => {}
            b')' => return Some(members),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ColumnType {
        ColumnType::parse(text, Some("utf8mb4")).unwrap()
    }

    #[test]
    fn definitions_are_read() {
        let int = parse("int(10) unsigned zerofill");
        assert_eq!(
            (int.kind, int.unsigned, int.zerofill),
            (ColumnKind::Int, true, 10)
        );
        let int = parse("bigint");
        assert_eq!(
            (int.kind, int.unsigned, int.zerofill),
            (ColumnKind::BigInt, false, 0)
        );
        let decimal = parse("decimal(12,3) unsigned zerofill");
        assert_eq!((decimal.length, decimal.decimals, decimal.zerofill), (12, 3, 13));
        assert_eq!(parse("timestamp(6)").decimals, 6);
        assert_eq!(parse("float").decimals, ColumnType::NOT_FIXED);
        assert_eq!(parse("float(7,2)").decimals, 2);
        assert_eq!(
            parse("varchar(20) /*M!100301 COMPRESSED*/").kind,
            ColumnKind::VarChar
        );
        assert_eq!(parse("bit(64)").length, 64);
        let members: Vec<Vec<u8>> = parse(r"enum('a','it''s','back\\slash','x)')")
            .members
            .iter()
            .map(|member| member.to_vec())
            .collect();
        assert_eq!(members, [&b"a"[..], b"it's", b"back\\slash", b"x)"]);
    }

    #[test]
    fn what_would_be_wrong_is_refused() {
        for (text, charset, error) in [
            ("xmltype", "utf8mb4", "column type xmltype"),
            ("varchar(3)", "sjis", "character set sjis"),
            ("set('','a')", "utf8mb4", "empty member"),
            ("enum('?')", "utf8mb4", "question mark"),
            ("enum('a'", "utf8mb4", "column type enum"),
            ("decimal(82,2)", "utf8mb4", "DECIMAL"),
        ] {
            let found = ColumnType::parse(text, Some(charset)).unwrap_err().to_string();
            assert!(found.contains(error), "{found}");
        }
    }
}
