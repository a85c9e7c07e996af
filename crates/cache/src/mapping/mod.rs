//! What of which table is kept in memory, and how a row is found.
//!
//! A [`Mapping`] is made of what the configuration says and what the table is like ([`TableShape`]). It turns
//! rows, Redis keys and the values of statements into the keys of the store, so that two keys are equal
//! exactly where the server's unique index takes their values for the same. What it cannot be sure of it
//! leaves to the server ([`Decision::Server`]).
//!
//! It asks no server and keeps no rows.

mod collation;
mod error;
mod key;
mod set;
mod shape;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};

use config::{CacheMapping, MappingKind};
use mysql_wire::binlog::{BinlogError, ColumnKind, ColumnType, Value, Zone, text};

pub use collation::{Comparison, Texts, comparison};
pub use error::{KeyError, MappingError, Reason};
pub use key::Decision;
pub(crate) use key::stored_values;
pub use set::MappingSet;
pub use shape::{Cascade, ColumnShape, SESSION, TableShape, UniqueIndex, last_question, questions};
pub(crate) use shape::{NATIVE_FOREIGN_KEYS, logs_cascades, name, quoted, text_at, variable};

use crate::store::MappingId;
use key::Rule;

/// The name that stands for all columns.
const ALL: &str = "*";

/// Of others it is not known that their changes are in the binary log of the server that is asked (FEDERATED,
/// SPIDER, NDB), in the order in which they become visible.
const ENGINE: &str = "InnoDB";

/// The schema whose tables servers write to by themselves: GRANT, statistics, positions of replicas.
const OF_THE_SERVER: &str = "mysql";

/// Rows of one table, by one key.
#[derive(Debug)]
pub struct Mapping {
    pub id: MappingId,
    pub name: Box<str>,
    pub kind: MappingKind,
    /// As the server writes them.
    pub schema: Box<str>,
    pub table: Box<str>,
    /// The unique index over the key columns.
    pub index: UniqueIndex,
    /// All columns of the table, as a row event has them.
    pub column_types: Vec<ColumnType>,
    /// Rows change with those of another table, by a foreign key: not every server has that in its binary
    /// log.
    pub cascades: bool,
    /// The columns that are read: those of the key and the kept ones. A SELECT for this mapping has them in
    /// this order.
    pub columns: Vec<Column>,
    /// The zone of TIMESTAMP values in Redis keys.
    zone: Zone,
    key: Vec<KeyColumn>,
    /// Places in `columns` of what a row in memory has, in its order.
    kept: Vec<usize>,
    /// A row has come whose key only the server can compare.
    beyond: AtomicBool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: Box<str>,
    /// Place in the table, from 0.
    pub place: usize,
    pub column_type: ColumnType,
    /// The character set by the server's name, where the column has one.
    pub charset: Option<Box<str>>,
}

#[derive(Debug)]
struct KeyColumn {
    /// Place in [`Mapping::columns`].
    column: usize,
    rule: Rule,
}

impl Mapping {
    pub fn new(
        id: MappingId,
        config: &CacheMapping,
        shape: Option<&TableShape>,
        zone: Zone,
    ) -> Result<Mapping, MappingError> {
        Self::build(id, config, shape, zone).map_err(|Refused(column, reason)| MappingError {
            mapping: config.name.as_str().into(),
            table: config.table.as_str().into(),
            column,
            reason,
        })
    }

    fn build(
        id: MappingId,
        config: &CacheMapping,
        shape: Option<&TableShape>,
        zone: Zone,
    ) -> Result<Mapping, Refused> {
        let shape = shape.ok_or(Reason::NoTable)?;
        plain(shape)?;
        let column_types = shape.columns.iter().map(|column| {
            let parsed = ColumnType::parse(&column.column_type, column.charset.as_deref());
            let mut parsed = parsed.map_err(|error| Refused::column(&column.name, Reason::Type(error)))?;
            parsed.signs_zeros = column.signs_zeros;
            Ok(parsed)
        });
        let column_types: Vec<ColumnType> = column_types.collect::<Result<_, Refused>>()?;
        let mut columns = Columns {
            shape,
            types: &column_types,
            read: Vec::new(),
        };
        let mut key = Vec::with_capacity(config.key.len());
        for name in &config.key {
            let column = columns.key(name);
            key.push(column.map_err(|reason| Refused::column(name, reason))?);
        }
        let kept = columns.kept(&config.value)?;
        let columns = columns.read;
        Ok(Mapping {
            id,
            name: config.name.as_str().into(),
            kind: config.kind,
            schema: shape.schema.clone(),
            table: shape.table.clone(),
            index: unique_index(shape, &key, &columns, config.index.as_deref())?,
            column_types,
            cascades: shape.cascade.is_some(),
            columns,
            zone,
            key,
            kept,
            beyond: AtomicBool::new(false),
        })
    }

    /// The columns of the key, in its order.
    pub fn key_columns(&self) -> impl ExactSizeIterator<Item = &Column> {
        self.key.iter().map(|part| &self.columns[part.column])
    }

    /// The columns of a row in memory, in its order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Column> {
        self.kept.iter().map(|&column| &self.columns[column])
    }

    /// The place in a row in memory of the column with this name; case does not count, as in SQL.
    #[must_use]
    pub fn value_place(&self, name: &[u8]) -> Option<usize> {
        self.values()
            .position(|column| column.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Writes the key of a row. `value` says the value of one of [`columns`](Self::columns), by its place
    /// there.
    pub fn key_of<'v, E>(
        &self,
        mut value: impl FnMut(usize) -> Result<Value<'v>, E>,
        key: &mut Vec<u8>,
    ) -> Result<(), E> {
        key.clear();
        for part in &self.key {
            if !part.rule.stored(&value(part.column)?, key) && !self.beyond.load(Ordering::Relaxed) {
                self.beyond.store(true, Ordering::SeqCst);
            }
        }
        Ok(())
    }

    /// Writes a row as it is in memory. `value` as in [`key_of`](Self::key_of).
    pub fn row_of<'v, E>(
        &self,
        mut value: impl FnMut(usize) -> Result<Value<'v>, E>,
        row: &mut Vec<u8>,
    ) -> Result<(), E> {
        row.clear();
        for &column in &self.kept {
            value(column)?.encode(row);
        }
        Ok(())
    }

    /// Writes the key that the text behind the `@` of a Redis key names.
    ///
    /// # Errors
    /// It is no key of this mapping at all.
    pub fn parse_key(&self, text: &[u8], key: &mut Vec<u8>) -> Result<Decision, KeyError> {
        key.clear();
        if let [only] = self.key.as_slice() {
            return Ok(self.named(only, text, key));
        }
        let parts = key::parts(text, self.key.len())?;
        let decisions = self
            .key
            .iter()
            .zip(parts)
            .map(|(column, part)| self.named(column, &part, key));
        Ok(decisions.fold(Decision::Memory, worst))
    }

    /// Writes the key that `column = value AND …` finds, with the values in the order of the key columns.
    /// Texts are in UTF-8, compared by the column's collation.
    pub fn key_from_values(&self, values: &[Value<'_>], key: &mut Vec<u8>) -> Decision {
        key.clear();
        if values.len() != self.key.len() {
            return Decision::Server;
        }
        let decisions = self.key.iter().zip(values).map(|(part, value)| {
            let charset = self.columns[part.column].charset.as_deref();
            part.rule.compared(value, charset, key)
        });
        decisions.fold(Decision::Memory, worst)
    }

    /// Two keys whose bytes differ are never the same: the row that a key finds has that key's bytes.
    #[must_use]
    pub fn compares_exactly(&self) -> bool {
        self.key.iter().all(|part| part.rule.is_exact())
    }

    /// Every row has one Redis key that names it: no other text means the same.
    #[must_use]
    pub fn has_one_text(&self) -> bool {
        self.key
            .iter()
            .all(|part| part.rule.has_one_text(&self.columns[part.column].column_type))
    }

    /// Whether "not in memory" leaves it open that a row has this key: there are rows whose keys only the
    /// server can compare. To be asked after the memory was.
    #[must_use]
    pub fn may_be_beyond(&self) -> bool {
        self.beyond.load(Ordering::SeqCst)
    }

    /// Appends the text that stands behind the `@` of a Redis key.
    pub fn key_text(&self, key: &[u8], out: &mut Vec<u8>) -> Result<(), BinlogError> {
        let mut part = Vec::new();
        for (at, (column, value)) in self.key_columns().zip(stored_values(key)).enumerate() {
            if at > 0 {
                out.push(b':');
            }
            part.clear();
            text(&value?, &column.column_type, self.zone, &mut part)?;
            if self.key.len() == 1 {
                out.extend_from_slice(&part);
            } else {
                key::put_part(&part, out);
            }
        }
        Ok(())
    }

    /// The Redis key of a key of the store.
    pub(crate) fn redis_key(&self, key: &[u8]) -> Result<Vec<u8>, BinlogError> {
        let mut text = [self.name.as_bytes(), b"@"].concat();
        self.key_text(key, &mut text)?;
        Ok(text)
    }

    /// Whether one of its Redis keys may begin like this.
    pub(crate) fn keys_may_begin(&self, prefix: &[u8]) -> bool {
        let name = self.name.as_bytes().iter().chain(b"@");
        name.zip(prefix).all(|(one, other)| one == other)
    }

    fn named(&self, part: &KeyColumn, text: &[u8], key: &mut Vec<u8>) -> Decision {
        part.rule
            .named(text, &self.columns[part.column].column_type, self.zone, key)
    }
}

/// Why there is no mapping, and the column that is in the way.
struct Refused(Option<Box<str>>, Reason);

impl Refused {
    fn column(name: &str, reason: Reason) -> Self {
        Self(Some(name.into()), reason)
    }
}

impl From<Reason> for Refused {
    fn from(reason: Reason) -> Self {
        Self(None, reason)
    }
}

/// What is nowhere in one column is nowhere; then comes what only the server knows.
fn worst(one: Decision, other: Decision) -> Decision {
    match (one, other) {
        (Decision::Nowhere, _) | (_, Decision::Nowhere) => Decision::Nowhere,
        (Decision::Server, _) | (_, Decision::Server) => Decision::Server,
        (Decision::Memory, Decision::Memory) => Decision::Memory,
    }
}

/// All changes of its rows are in the binary log.
fn plain(shape: &TableShape) -> Result<(), Reason> {
    if &*shape.kind != "BASE TABLE" {
        return Err(Reason::NotPlain(shape.kind.to_string()));
    }
    if !shape.engine.eq_ignore_ascii_case(ENGINE) {
        return Err(Reason::Engine(shape.engine.to_string()));
    }
    if shape.schema.eq_ignore_ascii_case(OF_THE_SERVER) {
        return Err(Reason::OfTheServer);
    }
    if let Some(cascade) = shape.cascade.as_ref().filter(|cascade| !cascade.is_logged) {
        return Err(Reason::Cascade(cascade.constraint.to_string()));
    }
    let mut places = shape.columns.iter().enumerate();
    if shape.columns.is_empty() || places.any(|(place, column)| column.ordinal != place + 1) {
        return Err(Reason::HiddenColumns);
    }
    Ok(())
}

/// Collects the columns that are read.
struct Columns<'s> {
    shape: &'s TableShape,
    types: &'s [ColumnType],
    read: Vec<Column>,
}

impl Columns<'_> {
    fn find(&self, name: &str) -> Result<usize, Reason> {
        // Names are compared without case, also beyond ASCII.
        let name = name.to_lowercase();
        let found = self
            .shape
            .columns
            .iter()
            .position(|column| column.name.to_lowercase() == name);
        found.ok_or(Reason::NoColumn)
    }

    /// Place in `read`.
    fn add(&mut self, place: usize) -> Result<usize, Reason> {
        let column = &self.shape.columns[place];
        if column.unlogged {
            return Err(Reason::Unlogged);
        }
        if let Some(at) = self.read.iter().position(|read| read.place == place) {
            return Ok(at);
        }
        self.read.push(Column {
            name: column.name.clone(),
            place,
            column_type: self.types[place].clone(),
            charset: column.charset.clone(),
        });
        Ok(self.read.len() - 1)
    }

    fn key(&mut self, name: &str) -> Result<KeyColumn, Reason> {
        let place = self.find(name)?;
        let column = &self.shape.columns[place];
        if column.nullable {
            return Err(Reason::Nullable);
        }
        let rule = Rule::of(&self.types[place], column.collation.as_deref())?;
        Ok(KeyColumn {
            column: self.add(place)?,
            rule,
        })
    }

    fn kept(&mut self, names: &[String]) -> Result<Vec<usize>, Refused> {
        let mut places = Vec::new();
        if names.iter().any(|name| name == ALL) {
            let columns = self.shape.columns.iter().enumerate();
            places.extend(
                columns
                    .filter(|(_, column)| !column.invisible)
                    .map(|(place, _)| place),
            );
        } else {
            for name in names {
                places.push(self.find(name).map_err(|reason| Refused::column(name, reason))?);
            }
        }
        let kept = places.into_iter().map(|place| {
            let added = match self.types[place].kind {
                ColumnKind::Geometry => Err(Reason::ValueType("GEOMETRY".to_owned())),
                _ => self.add(place),
            };
            added.map_err(|reason| Refused::column(&self.shape.columns[place].name, reason))
        });
        kept.collect()
    }
}

/// The index that makes the key one row's: the one of this name, where one is named.
fn unique_index(
    shape: &TableShape,
    key: &[KeyColumn],
    columns: &[Column],
    named: Option<&str>,
) -> Result<UniqueIndex, Reason> {
    let is_named =
        |index: &UniqueIndex| named.is_none_or(|name| index.name.to_lowercase() == name.to_lowercase());
    let is_key = |name: &str| key.iter().any(|part| &*columns[part.column].name == name);
    let mut found = shape
        .unique
        .iter()
        .filter(|index| index.columns.len() == key.len() && index.columns.iter().all(|name| is_key(name)))
        .filter(|index| is_named(index));
    found.next().cloned().ok_or_else(|| {
        let names: Vec<&str> = key.iter().map(|part| &*columns[part.column].name).collect();
        match named {
            Some(index) => Reason::OtherIndex(index.to_owned(), names.join(", ")),
            None => Reason::NoUniqueIndex(names.join(", ")),
        }
    })
}
