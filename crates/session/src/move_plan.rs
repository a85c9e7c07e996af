//! How a session goes to another server for good.
//!
//! What it has set itself goes there by [`rebuild`](crate::rebuild()), as from one shared connection to
//! another. But a session that moves also keeps what it *had* without setting it: the values of its own
//! server's configuration, which may be others than those of the next one. Both servers are asked for the
//! same list, and what differs is set on the next one.

use sql_class::Dialect;

use crate::rebuild::{query, set_variables};
use crate::variables::{self, CHARSETS, Meaning, SQL_MODE};
use crate::{Baseline, Pin, Session, UserVariables, user_variables};

/// Variables that change what a client is told or what a statement does, on every server. Their order is one
/// in which they can be set: a character set sets a collation.
const OF_ALL: [&str; 33] = [
    "character_set_client",
    "character_set_connection",
    "character_set_results",
    "collation_connection",
    "collation_server",
    "character_set_filesystem",
    "autocommit",
    "time_zone",
    "foreign_key_checks",
    "unique_checks",
    "wait_timeout",
    "interactive_timeout",
    "net_read_timeout",
    "net_write_timeout",
    "default_week_format",
    "div_precision_increment",
    "lc_time_names",
    "lc_messages",
    "group_concat_max_len",
    "sql_select_limit",
    "sql_safe_updates",
    "sql_big_selects",
    "max_join_size",
    "sql_notes",
    "sql_warnings",
    "sql_quote_show_create",
    "innodb_lock_wait_timeout",
    "lock_wait_timeout",
    "max_sort_length",
    "max_error_count",
    "updatable_views_with_limit",
    "completion_type",
    "default_storage_engine",
];

/// The same on MySQL alone.
const OF_MYSQL: [&str; 5] = [
    "transaction_isolation",
    "transaction_read_only",
    "explicit_defaults_for_timestamp",
    "max_execution_time",
    "block_encryption_mode",
];

/// And since which version.
const OF_NEWER_MYSQL: [(u32, &str); 4] = [
    (80_002, "windowing_use_high_precision"),
    (80_003, "cte_max_recursion_depth"),
    (80_011, "default_collation_for_utf8mb4"),
    (80_013, "sql_require_primary_key"),
];

/// The same on MariaDB alone, which knows the first two by these names in all its versions.
const OF_MARIADB: [&str; 6] = [
    "tx_isolation",
    "tx_read_only",
    "explicit_defaults_for_timestamp",
    "max_statement_time",
    "old_mode",
    "max_recursive_iterations",
];

/// What cannot be set, and has to be the same there.
const FIXED: [&str; 3] = [CURRENT_USER, LOWER_CASE, ZONE];

const CURRENT_USER: &str = "CURRENT_USER()";
const LOWER_CASE: &str = "@@global.lower_case_table_names";
/// Of the machine: matters where the session's zone is `SYSTEM`.
const ZONE: &str = "@@global.system_time_zone";
/// A server that takes writes is not to be left for one that does not.
const READ_ONLY: &str = "@@global.read_only";

/// Of the answer, those that are no variables of the session.
const BEFORE_VARIABLES: usize = FIXED.len() + 1;

/// Values as a server has said them; `None` is NULL.
type Values = [Option<Vec<u8>>];

/// What is asked of the session's server and of the next one.
#[derive(Debug, Clone)]
pub struct MovePlan {
    /// Behind those of [`FIXED`] and [`READ_ONLY`].
    variables: Vec<String>,
    user_variables: Vec<Box<[u8]>>,
}

/// What the next server has, or is, that cannot be made the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The expression.
    pub what: String,
    pub had: String,
    pub has: String,
}

impl Difference {
    /// The next server takes the account for another one.
    #[must_use]
    pub fn is_of_account(&self) -> bool {
        self.what == CURRENT_USER
    }
}

impl Session {
    /// How it goes to another server.
    ///
    /// # Errors
    /// What holds it where it is.
    pub fn move_plan(&self) -> Result<MovePlan, &[Pin]> {
        let names = self.user_variables_alone().ok_or(self.pins())?;
        Ok(MovePlan {
            user_variables: names.to_vec(),
            ..MovePlan::new(self.dialect(), self.baseline())
        })
    }

    /// Whether nothing holds it where it is.
    #[must_use]
    pub fn may_move(&self) -> bool {
        self.user_variables_alone().is_some()
    }
}

impl MovePlan {
    /// `baseline`: what the session had at its login. What was another value than the server's own then, it
    /// had as well.
    fn new(dialect: Dialect, baseline: &Baseline) -> Self {
        let of_dialect: &[&str] = match dialect {
            Dialect::MariaDb { .. } => &OF_MARIADB,
            Dialect::MySql { .. } => &OF_MYSQL,
        };
        let mut names: Vec<String> = OF_ALL
            .iter()
            .chain(of_dialect)
            .map(|name| (*name).to_owned())
            .collect();
        match dialect {
            Dialect::MariaDb { version: 110_201.. } => names.push("character_set_collations".to_owned()),
            Dialect::MariaDb { .. } => {}
            Dialect::MySql { version } => {
                let known = OF_NEWER_MYSQL.iter().filter(|(since, _)| version >= *since);
                names.extend(known.map(|(_, name)| (*name).to_owned()));
            }
        }
        for (name, _) in &baseline.variables {
            let Ok(name) = str::from_utf8(name) else { continue };
            let is_new = !names.iter().any(|known| known == name) && name.as_bytes() != SQL_MODE;
            let is_same = is_alias(name, dialect);
            if is_new && !is_same && variables::is_word(name.as_bytes()) && is_settable(name) {
                names.push(name.to_owned());
            }
        }
        // Last: nothing else is checked by its rules.
        names.push("sql_mode".to_owned());
        Self {
            variables: names,
            user_variables: Vec::new(),
        }
    }

    /// The command whose one row is what [`difference`](Self::difference) wants.
    #[must_use]
    pub fn question(&self) -> Vec<u8> {
        let fixed = FIXED.iter().chain([&READ_ONLY]).map(|name| (*name).to_owned());
        let variables = self.variables.iter().map(|name| format!("@@session.{name}"));
        let items: Vec<_> = fixed.chain(variables).collect();
        // The LIMIT is for sessions that have set `sql_select_limit`.
        query(&format!("SELECT {} LIMIT 1", items.join(", ")))
    }

    /// How many values the answer has.
    #[must_use]
    pub fn columns(&self) -> usize {
        BEFORE_VARIABLES + self.variables.len()
    }

    /// The command whose one row and its columns are [`UserVariables`]; `None` where the session has none.
    #[must_use]
    pub fn user_variables(&self) -> Option<Vec<u8>> {
        (!self.user_variables.is_empty()).then(|| user_variables::question(&self.user_variables))
    }

    /// The command whose one value is how many bytes they have.
    #[must_use]
    pub fn user_variables_length(&self) -> Option<Vec<u8>> {
        (!self.user_variables.is_empty()).then(|| user_variables::length(&self.user_variables))
    }

    /// How many columns that has.
    #[must_use]
    pub fn user_variables_columns(&self) -> usize {
        self.user_variables.len() * user_variables::COLUMNS
    }

    /// The command that makes the user variables of the next connection, which has these, what the session
    /// had; `None` where they are that already. What comes of it has to be asked for.
    #[must_use]
    pub fn set_user_variables(&self, had: &UserVariables, has: &UserVariables) -> Option<Vec<u8>> {
        had.set(&self.user_variables, has)
    }

    /// The command that makes the next server, which has these values, what the session's has been; `None`
    /// where it is that already.
    ///
    /// # Errors
    /// It cannot be made so.
    pub fn difference(&self, had: &Values, has: &Values) -> Result<Option<Vec<u8>>, Difference> {
        self.is_of_the_same_kind(had, has)?;
        let pairs = had.iter().zip(has).skip(BEFORE_VARIABLES);
        let names = self.variables.iter().map(String::as_bytes);
        let all: Vec<_> = names
            .zip(pairs)
            .map(|(name, (had, has))| (name, had, had != has))
            .collect();
        // A character set has a collation that its name does not tell: that of the login, or its own. What
        // the session has set itself is there already.
        let is_charset = |name: &[u8]| CHARSETS.contains(&name);
        let sets_charsets = all.iter().any(|(name, _, differs)| *differs && is_charset(name));
        let differing = all
            .into_iter()
            .filter(|(name, _, differs)| *differs || sets_charsets && is_charset(name));
        let mut set = differing
            .map(|(name, had, _)| (name, had.as_deref().unwrap_or_default()))
            .peekable();
        let is_any = set.peek().is_some();
        Ok(is_any.then(|| set_variables(set)))
    }

    /// Whether the values are the same.
    #[must_use]
    pub fn is_same(&self, had: &Values, has: &Values) -> bool {
        let variables = |of: &Values| of.get(BEFORE_VARIABLES..).map(<[_]>::to_vec);
        variables(had) == variables(has)
    }

    /// What cannot be set is the same, as far as that matters.
    fn is_of_the_same_kind(&self, had: &Values, has: &Values) -> Result<(), Difference> {
        let zone = self.variables.iter().position(|name| name == "time_zone");
        let zone = zone.and_then(|at| had.get(BEFORE_VARIABLES + at)?.as_deref());
        for (at, what) in FIXED.iter().enumerate() {
            let matters = *what != ZONE || zone == Some(b"SYSTEM");
            if matters && had.get(at) != has.get(at) {
                return Err(told(what, had.get(at), has.get(at)));
            }
        }
        let [before, after] = [had, has].map(|values| values.get(FIXED.len()));
        match takes_writes(before) && !takes_writes(after) {
            true => Err(told(READ_ONLY, before, after)),
            false => Ok(()),
        }
    }
}

fn takes_writes(read_only: Option<&Option<Vec<u8>>>) -> bool {
    matches!(read_only, Some(Some(value)) if matches!(value.as_slice(), b"0" | b"OFF"))
}

fn told(what: &str, had: Option<&Option<Vec<u8>>>, has: Option<&Option<Vec<u8>>>) -> Difference {
    let text = |value: Option<&Option<Vec<u8>>>| match value {
        Some(Some(value)) => String::from_utf8_lossy(value).into_owned(),
        _ => "NULL".to_owned(),
    };
    Difference {
        what: what.to_owned(),
        had: text(had),
        has: text(has),
    }
}

/// The other name of one that is among the list of MariaDB.
fn is_alias(name: &str, dialect: Dialect) -> bool {
    dialect.is_mariadb() && matches!(name, "transaction_isolation" | "transaction_read_only")
}

fn is_settable(name: &str) -> bool {
    variables::meaning(name.as_bytes()) == Meaning::Carry
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARIADB: Dialect = Dialect::MariaDb { version: 101_119 };

    fn plan() -> MovePlan {
        let named = [
            ("sql_mode", ""),
            ("lock_wait_timeout", "7"),
            ("sort_buffer_size", "1"),
            ("timestamp", "1"),
        ];
        let baseline = named.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        MovePlan::new(MARIADB, &Baseline::from_iter(baseline))
    }

    /// As of a server on which all is as it is on the other.
    fn values(plan: &MovePlan) -> Vec<Option<Vec<u8>>> {
        let mut values = vec![Some(b"0".to_vec()); plan.columns()];
        values[0] = Some(b"app@%".to_vec());
        values
    }

    fn place(plan: &MovePlan, name: &str) -> usize {
        BEFORE_VARIABLES + plan.variables.iter().position(|known| known == name).unwrap()
    }

    #[test]
    fn each_is_asked_for_once_and_the_mode_last() {
        let plan = plan();
        let asked = String::from_utf8(plan.question()).unwrap();
        assert_eq!(asked.matches("@@session.lock_wait_timeout").count(), 1);
        assert!(
            asked.contains("@@session.sort_buffer_size"),
            "it had that at its login"
        );
        assert!(!asked.contains("@@session.timestamp"), "what is no setting");
        assert!(asked.ends_with("@@session.sql_mode LIMIT 1"), "{asked}");
    }

    #[test]
    fn nothing_is_set_where_all_is_the_same() {
        let plan = plan();
        let same = values(&plan);
        assert_eq!(plan.difference(&same, &same), Ok(None));
    }

    #[test]
    fn what_differs_is_set_to_what_the_session_had() {
        let plan = plan();
        let (mut had, has) = (values(&plan), values(&plan));
        had[place(&plan, "group_concat_max_len")] = Some(b"1024".to_vec());
        had[place(&plan, "character_set_results")] = None;
        had[place(&plan, "sql_mode")] = Some(b"ANSI_QUOTES".to_vec());
        let set = plan.difference(&had, &has).unwrap().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&set[1..]),
            "SET character_set_client=0, character_set_connection=0, character_set_results=NULL, \
             collation_connection=0, group_concat_max_len=1024, sql_mode='ANSI_QUOTES'"
        );
    }

    #[test]
    fn another_account_or_another_machines_time_cannot_be_set() {
        let plan = plan();
        let had = values(&plan);
        let differs = |at: usize, had: &Values| {
            let mut has = had.to_vec();
            has[at] = Some(b"1".to_vec());
            plan.difference(had, &has).err().map(|difference| difference.what)
        };
        assert_eq!(differs(0, &had).as_deref(), Some(CURRENT_USER));
        assert_eq!(differs(1, &had).as_deref(), Some(LOWER_CASE));
        assert_eq!(differs(2, &had), None, "the session has a zone of its own");
        let mut in_system_zone = had.clone();
        in_system_zone[place(&plan, "time_zone")] = Some(b"SYSTEM".to_vec());
        assert_eq!(differs(2, &in_system_zone).as_deref(), Some(ZONE));
        assert_eq!(differs(3, &had).as_deref(), Some(READ_ONLY));
        let mut after_a_switchover = had.clone();
        after_a_switchover[3] = Some(b"1".to_vec());
        assert_eq!(
            plan.difference(&after_a_switchover, &had),
            Ok(None),
            "it takes writes now"
        );
    }
}
