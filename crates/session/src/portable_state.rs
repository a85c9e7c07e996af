//! What a connection has to have for a session to feel at home on it.

use std::rc::Rc;

use serde::{Deserialize, Serialize};
use sql_class::Dialect;

use crate::variables;

/// Variables of one connection, in the order of their names. A `Vec`: there are few.
pub(crate) type Variables = Vec<(Rc<[u8]>, Rc<[u8]>)>;

/// More bytes of names and values than this are not carried: no application comes near, and a server cannot
/// fill the gateway's memory.
const BYTES_MAX: usize = 64 * 1024;

/// State that is carried from one connection to the next: of a session what it wants, of a connection what it
/// has. Kept as `Rc<PortableState>` and copied on write, so that `Rc::ptr_eq` is the fast way to "equal".
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PortableState {
    schema: Option<Rc<[u8]>>,
    variables: Variables,
    multi_statements: bool,
    /// Of a connection only: `SHOW WARNINGS` would show what a session has left.
    has_diagnostics: bool,
}

/// Name and value.
type PackedVariable = (Box<[u8]>, Box<[u8]>);

/// A [`PortableState`] on its way to another thread.
#[derive(Debug)]
pub struct PackedState {
    schema: Option<Box<[u8]>>,
    variables: Vec<PackedVariable>,
    multi_statements: bool,
    has_diagnostics: bool,
}

impl PackedState {
    /// The same, for another thread.
    #[must_use]
    pub fn of(carried: &PortableState) -> Self {
        let variables = carried.variables.iter();
        Self {
            schema: carried.schema.as_deref().map(Box::from),
            variables: variables
                .map(|(name, value)| (name[..].into(), value[..].into()))
                .collect(),
            multi_statements: carried.multi_statements,
            has_diagnostics: carried.has_diagnostics,
        }
    }

    /// The same, on this thread.
    #[must_use]
    pub fn unpack(self) -> PortableState {
        let variables = self.variables.into_iter();
        PortableState {
            schema: self.schema.map(Rc::from),
            variables: variables
                .map(|(name, value)| (Rc::from(name), Rc::from(value)))
                .collect(),
            multi_statements: self.multi_statements,
            has_diagnostics: self.has_diagnostics,
        }
    }
}

impl PortableState {
    /// What a connection has that has just logged in: everything else is as its [`Baseline`] says.
    #[must_use]
    pub fn fresh(schema: Option<&[u8]>, multi_statements: bool) -> Self {
        Self {
            schema: schema.map(Rc::from),
            variables: Vec::new(),
            multi_statements,
            has_diagnostics: false,
        }
    }

    /// What is left after COM_RESET_CONNECTION: the schema and the options stay. MariaDB goes back to the
    /// charset of the login, but not to what the login's capabilities have added to `sql_mode`; with MySQL it
    /// is the other way round (tested on 10.11 and 9.7).
    #[must_use]
    pub fn after_reset(&self, dialect: Dialect, baseline: &Baseline) -> Self {
        let mut after = self.with_global_variables(baseline);
        match dialect {
            Dialect::MariaDb { .. } => variables::CHARSETS.iter().for_each(|name| after.unset(name)),
            Dialect::MySql { version } if version >= 90_000 => after.unset(variables::SQL_MODE),
            // 8.0.33 forgets those as well.
            Dialect::MySql { .. } => {}
        }
        after
    }

    /// The schema, the options, and variables as the server's are.
    pub(crate) fn with_global_variables(&self, baseline: &Baseline) -> Self {
        let mut after = Self::fresh(self.schema(), self.multi_statements);
        for name in variables::CHARSETS {
            after.set(name, variables::DEFAULT);
        }
        let sql_mode = baseline.variable(variables::SQL_MODE).unwrap_or_default();
        if variables::has_mode(sql_mode, b"IGNORE_SPACE") {
            after.set(variables::SQL_MODE, variables::DEFAULT);
        }
        after
    }

    #[must_use]
    pub fn schema(&self) -> Option<&[u8]> {
        self.schema.as_deref()
    }

    /// The value of a variable that was set; `None` for one that is as the baseline says.
    #[must_use]
    pub fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self.place(name).ok()?;
        Some(&self.variables[at].1)
    }

    /// All variables that were set, by name.
    pub fn variables(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.variables.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Whether a text may hold several statements (COM_SET_OPTION, or the login's capability).
    #[must_use]
    pub fn multi_statements(&self) -> bool {
        self.multi_statements
    }

    pub(crate) fn has_diagnostics(&self) -> bool {
        self.has_diagnostics
    }

    /// A connection that has this, and somebody's warnings.
    #[must_use]
    pub fn with_diagnostics(&self) -> Self {
        Self {
            has_diagnostics: true,
            ..self.clone()
        }
    }

    /// The same in no schema.
    #[must_use]
    pub fn without_schema(&self) -> Self {
        let mut carried = self.clone();
        carried.set_schema(None);
        carried
    }

    pub(crate) fn set_multi_statements(&mut self, on: bool) {
        self.multi_statements = on;
    }

    /// The variables that follow the schema are what the new schema says, from here on.
    pub(crate) fn set_schema(&mut self, schema: Option<&[u8]>) {
        self.schema = schema.map(Rc::from);
        self.variables
            .retain(|(name, _)| !variables::follows_schema(name));
    }

    /// Whether there is room for a value.
    pub(crate) fn has_room(&self, name: &[u8], value: &[u8]) -> bool {
        let used: usize = self
            .variables
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        used + name.len() + value.len() <= BYTES_MAX
    }

    pub(crate) fn set(&mut self, name: &[u8], value: &[u8]) {
        match self.place(name) {
            Ok(at) => self.variables[at].1 = Rc::from(value),
            Err(at) => self.variables.insert(at, (Rc::from(name), Rc::from(value))),
        }
    }

    pub(crate) fn unset(&mut self, name: &[u8]) {
        if let Ok(at) = self.place(name) {
            self.variables.remove(at);
        }
    }

    /// Whether every text means the same under both when it is prepared.
    #[must_use]
    pub fn means_the_same(&self, other: &Self) -> bool {
        self.schema == other.schema && self.meaning().eq(other.meaning())
    }

    fn meaning(&self) -> impl Iterator<Item = &(Rc<[u8]>, Rc<[u8]>)> {
        self.variables
            .iter()
            .filter(|(name, _)| variables::gives_meaning(name))
    }

    /// This, but a text means what it means under `context`; what was prepared without a schema names
    /// everything in full. None for a connection without one, which would not be without one again.
    pub(crate) fn meaning_as(&self, context: &Self) -> Option<Self> {
        let mut there = self.clone();
        match (self.schema(), context.schema()) {
            (None, Some(_)) => return None,
            (here, Some(schema)) if here != Some(schema) => there.set_schema(Some(schema)),
            _ => {}
        }
        self.meaning().for_each(|(name, _)| there.unset(name));
        context.meaning().for_each(|(name, value)| there.set(name, value));
        Some(there)
    }

    fn place(&self, name: &[u8]) -> Result<usize, usize> {
        self.variables.binary_search_by(|(other, _)| (**other).cmp(name))
    }
}

/// What a connection has right after its login, of the variables whose `DEFAULT` is not what a login gives
/// (charsets and collation come with the login), and of those whose value the gateway has to know
/// (autocommit, sql_mode, time_zone, isolation …). Read once a connection, or once a server and key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Baseline {
    /// Names in lower case, and their values as the server shows them; NULL is empty.
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
}

impl FromIterator<(Vec<u8>, Vec<u8>)> for Baseline {
    fn from_iter<T: IntoIterator<Item = (Vec<u8>, Vec<u8>)>>(variables: T) -> Self {
        Self {
            variables: variables.into_iter().collect(),
        }
    }
}

impl Baseline {
    #[must_use]
    pub fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_whatever_the_order_they_came_in() {
        let mut carried = PortableState::fresh(Some(b"shop"), true);
        carried.set(b"time_zone", b"UTC");
        carried.set(b"autocommit", b"OFF");
        carried.set(b"time_zone", b"SYSTEM");
        assert_eq!(carried.variable(b"time_zone"), Some(&b"SYSTEM"[..]));
        assert_eq!(carried.variable(b"sql_mode"), None);
        let names: Vec<_> = carried.variables().map(|(name, _)| name.to_vec()).collect();
        assert_eq!(names, [b"autocommit".to_vec(), b"time_zone".to_vec()]);
    }

    #[test]
    fn a_text_means_the_same_whatever_does_not_concern_it() {
        let mut one = PortableState::fresh(Some(b"a"), false);
        one.set(b"autocommit", b"OFF");
        one.set(b"sql_mode", b"ANSI_QUOTES");
        let mut other = PortableState::fresh(Some(b"a"), true);
        other.set(b"sql_mode", b"ANSI_QUOTES");
        other.set(b"transaction_isolation", b"SERIALIZABLE");
        assert!(one.means_the_same(&other));
        other.set(b"sql_mode", b"");
        assert!(!one.means_the_same(&other));
        one.unset(b"sql_mode");
        assert!(!one.means_the_same(&other));
        other.unset(b"sql_mode");
        assert!(!one.means_the_same(&PortableState::fresh(Some(b"b"), false)));
    }

    #[test]
    fn what_a_login_has_added_to_the_mode_stays_over_a_reset_since_mysql_9() {
        let baseline = Baseline::from_iter([(b"sql_mode".to_vec(), b"IGNORE_SPACE".to_vec())]);
        let after = |dialect| {
            let after = PortableState::fresh(None, false).after_reset(dialect, &baseline);
            after.variable(b"sql_mode").map(<[u8]>::to_vec)
        };
        let as_global = Some(variables::DEFAULT.to_vec());
        assert_eq!(after(Dialect::MySql { version: 80_033 }), as_global);
        assert_eq!(after(Dialect::MySql { version: 90_704 }), None);
        assert_eq!(after(Dialect::MariaDb { version: 101_119 }), as_global);
    }

    #[test]
    fn the_schemas_charset_leaves_with_the_schema() {
        let mut carried = PortableState::fresh(Some(b"a"), false);
        carried.set(b"character_set_database", b"latin1");
        carried.set_schema(Some(b"b"));
        assert_eq!(carried, PortableState::fresh(Some(b"b"), false));
    }
}
