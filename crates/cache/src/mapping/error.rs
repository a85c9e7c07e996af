//! Why a table cannot be mapped.

use std::fmt;

use mysql_wire::binlog::BinlogError;

/// Why a table cannot be mapped: says which mapping, table and column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingError {
    pub mapping: Box<str>,
    /// `schema.table`.
    pub table: Box<str>,
    /// Where it is one column that is in the way.
    pub column: Option<Box<str>>,
    pub reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("there is no such table, or its account may not read it")]
    NoTable,
    #[error("it is a {0}: only plain tables have all their changes in the binary log")]
    NotPlain(String),
    #[error("its engine is {0}: only of InnoDB it is known that the binary log shows all that readers see")]
    Engine(String),
    #[error("it is one of the server itself, which changes it without a trace in the binary log")]
    OfTheServer,
    #[error(
        "its rows change with those of another table (constraint {0} with CASCADE or SET NULL), and this server does not \
         write such changes to the binary log"
    )]
    Cascade(String),
    #[error("the table has no such column, or its account may not read it")]
    NoColumn,
    #[error("its columns are not all visible to its account: grant SELECT on the table")]
    HiddenColumns,
    #[error("is a generated column, whose values this server does not write to the binary log")]
    Unlogged,
    #[error("columns of type {0} cannot be a key: their values are not compared exactly")]
    KeyType(String),
    #[error(
        "its collation {0} cannot be a key's: which texts it takes for the same is not known here. Take one that ends in \
         _bin, _general_ci, _unicode_ci or _0900_ai_ci"
    )]
    Collation(String),
    #[error("may be NULL: the columns of a key must be NOT NULL")]
    Nullable,
    #[error("there is no unique index over exactly these columns: {0}")]
    NoUniqueIndex(String),
    #[error("there is no unique index {0} over exactly these columns: {1}")]
    OtherIndex(String, String),
    #[error("columns of type {0} are not kept")]
    ValueType(String),
    #[error(transparent)]
    Type(#[from] BinlogError),
}

impl fmt::Display for MappingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mapping {}: table {}", self.mapping, self.table)?;
        if let Some(column) = &self.column {
            write!(f, ", column {column}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for MappingError {}

/// The text of a Redis key is not one of its mapping's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error(
        "the key has {found} parts, and the mapping has {expected} key columns, whose values are joined with ':'"
    )]
    Parts { expected: usize, found: usize },
    #[error("a '\\' in a key stands before ':' or '\\'")]
    Escape,
}
