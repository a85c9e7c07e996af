//! The mappings that there are now.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::Mapping;

/// Mappings, found by name and by table. Made anew whenever one of them changes.
#[derive(Debug, Default)]
pub struct MappingSet {
    all: Vec<Arc<Mapping>>,
    by_name: HashMap<Box<[u8]>, usize, RandomState>,
    by_table: HashMap<Box<[u8]>, Vec<usize>, RandomState>,
    /// Names of mappings that are not ready, and why.
    unready: HashMap<Box<[u8]>, Box<str>, RandomState>,
    /// Why there may be mappings whose names are not known.
    unread: Option<Box<str>>,
}

impl MappingSet {
    /// `unready`: further names, each with the reason why it cannot be read yet.
    pub fn new(
        mappings: impl IntoIterator<Item = Arc<Mapping>>,
        unready: impl IntoIterator<Item = (Box<str>, Box<str>)>,
    ) -> MappingSet {
        let mut set = MappingSet::default();
        for (at, mapping) in mappings.into_iter().enumerate() {
            set.by_name.insert(mapping.name.as_bytes().into(), at);
            let table = table_key(mapping.schema.as_bytes(), mapping.table.as_bytes());
            set.by_table.entry(table).or_default().push(at);
            set.all.push(mapping);
        }
        let unready = unready.into_iter();
        set.unready = unready
            .map(|(name, reason)| (name.as_bytes().into(), reason))
            .collect();
        set
    }

    /// The same where there may be further mappings, and why they are not known yet.
    #[must_use]
    pub fn with_unread(self, unread: Option<Box<str>>) -> MappingSet {
        MappingSet { unread, ..self }
    }

    /// In no particular order.
    #[must_use]
    pub fn all(&self) -> &[Arc<Mapping>] {
        &self.all
    }

    /// The same mappings are served, from the same copies.
    pub(crate) fn serves_what(&self, other: &MappingSet) -> bool {
        let same = |(own, other): (&Arc<Mapping>, &Arc<Mapping>)| Arc::ptr_eq(own, other);
        self.all.len() == other.all.len() && self.all.iter().zip(&other.all).all(same)
    }

    #[must_use]
    pub fn by_name(&self, name: &[u8]) -> Option<&Arc<Mapping>> {
        self.by_name.get(name).map(|&at| &self.all[at])
    }

    /// Those of one table, with the names as the server writes them.
    pub fn by_table(&self, schema: &[u8], table: &[u8]) -> impl Iterator<Item = &Arc<Mapping>> {
        let places = self.by_table.get(&table_key(schema, table));
        places.into_iter().flatten().map(|&at| &self.all[at])
    }

    /// The names of those that are configured and not among them, and why, in no particular order.
    pub fn all_unready(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = self.unready.iter();
        names.map(|(name, reason)| (str::from_utf8(name).unwrap_or_default(), &**reason))
    }

    /// Why a mapping that is configured, or may be, is not among them.
    #[must_use]
    pub fn unready(&self, name: &[u8]) -> Option<&str> {
        self.unready.get(name).map(|reason| &**reason).or(self.unread())
    }

    /// Why there may be mappings whose names are not known.
    #[must_use]
    pub fn unread(&self) -> Option<&str> {
        self.unread.as_deref()
    }
}

/// Neither name has a NUL in it.
fn table_key(schema: &[u8], table: &[u8]) -> Box<[u8]> {
    [schema, b"\0", table].concat().into()
}
