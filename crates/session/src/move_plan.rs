//! How a session goes to another server for good.
//!
//! What it has set itself goes there by [`rebuild`](crate::rebuild()), as from one shared connection to
//! another. But a session that moves also keeps what it *had* without setting it: the values of its own
//! server's configuration, which may be others than those of the next one. Both servers are asked for the
//! same list, and what differs is set on the next one.

use mysql_wire::OkPacket;
use mysql_wire::session_state::{Change, changes};
use sql_class::Dialect;

use crate::next_transaction::NextTransaction;
use crate::rebuild::{query, set_variables};
use crate::roles;
use crate::variables::{
    self, CHARACTER_SET_CONNECTION, CHARSETS, COLLATION_CONNECTION, DEFAULT, Meaning, OWN_COLLATIONS,
    SQL_MODE,
};
use crate::{Baseline, Pin, PinReason, PortableState, Session, UserVariables, user_variables};

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

/// Where the answer has the roles.
const ROLES: usize = FIXED.len() + 1;

/// Of the answer, those that are no variables of the session.
const BEFORE_VARIABLES: usize = ROLES + 1;

/// Values as a server has said them; `None` is NULL.
type Values = [Option<Vec<u8>>];

/// What is asked of the session's server and of the next one.
#[derive(Debug, Clone)]
pub struct MovePlan {
    /// Behind those of [`FIXED`], [`READ_ONLY`] and the roles.
    variables: Vec<String>,
    dialect: Dialect,
    user_variables: UserVariableNames,
    /// The session has taken on roles, or laid them down.
    sets_roles: bool,
}

#[derive(Debug, Clone)]
enum UserVariableNames {
    /// The session has named none.
    None,
    /// It has named these. There may be others that its texts do not name.
    Told(Vec<Box<[u8]>>),
    /// It has named some that are not known.
    Unknown,
    /// Its server has listed these.
    Listed(Vec<Box<[u8]>>),
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
        if !self.may_move() {
            return Err(self.pins());
        }
        let named = self.user_variables.as_ref();
        let told = named.and_then(|named| named.all()).map(<[_]>::to_vec);
        Ok(MovePlan {
            user_variables: match self.pins.has(PinReason::UserVariables) {
                false => UserVariableNames::None,
                true => told.map_or(UserVariableNames::Unknown, UserVariableNames::Told),
            },
            sets_roles: self.pins.has(PinReason::Role),
            ..MovePlan::new(self.dialect(), self.baseline())
        })
    }

    /// What its connection is asked at its beginning, so that the session can go on without it: the values
    /// that it had then.
    #[must_use]
    pub fn first_plan(&self) -> MovePlan {
        MovePlan::new(self.dialect(), self.baseline())
    }

    /// Whether nothing holds it where it is.
    #[must_use]
    pub fn may_move(&self) -> bool {
        let mut pins = self.pins().iter();
        pins.all(|pin| {
            let is_asked_for = matches!(pin.reason, PinReason::UserVariables | PinReason::Role);
            is_asked_for || self.is_known_here(pin.reason)
        })
    }

    /// Whether the gateway knows what is behind this pin, without asking its connection.
    #[must_use]
    pub fn is_known_here(&self, reason: PinReason) -> bool {
        let is_announced = matches!(self.next_transaction, NextTransaction::Announced { .. });
        reason == PinReason::NextTransaction && is_announced
    }

    /// The commands that say of the next transaction on another connection what the session has said; none
    /// where it is like the others. They have to be the last that the connection hears: whatever uses a table
    /// may be that transaction. The answer to the last of them goes to
    /// [`has_announced`](Self::has_announced).
    #[must_use]
    pub fn announce_next_transaction(&self) -> Vec<Vec<u8>> {
        self.next_transaction.commands()
    }

    /// Whether the other connection's next transaction is this session's.
    #[must_use]
    pub fn has_announced(&self, ok: &OkPacket) -> bool {
        let mut reported = changes(&ok.session_state).flatten();
        reported.any(|change| match change {
            Change::Characteristics(said) => NextTransaction::reported(said) == self.next_transaction,
            _ => false,
        })
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
            dialect,
            user_variables: UserVariableNames::None,
            sets_roles: false,
        }
    }

    /// The command that has its server list the session's user variables; `None` where it has none.
    #[must_use]
    pub fn list_user_variables(&self) -> Option<Vec<u8>> {
        let is_none = matches!(self.user_variables, UserVariableNames::None);
        (!is_none).then(|| user_variables::list(self.dialect))
    }

    /// `rows`: of the answer to that; `None` where it was refused, as MySQL does it for want of a right: then
    /// those count that the session's texts have named. False where it is not known which there are.
    #[must_use]
    pub fn learn_user_variables(&mut self, rows: Option<impl Iterator<Item = Vec<u8>>>) -> bool {
        let Some(rows) = rows else {
            return !matches!(self.user_variables, UserVariableNames::Unknown);
        };
        let listed = user_variables::listed(rows);
        let is_known = listed.is_some();
        if let Some((names, _)) = listed {
            self.user_variables = UserVariableNames::Listed(names);
        }
        is_known
    }

    fn names(&self) -> &[Box<[u8]>] {
        match &self.user_variables {
            UserVariableNames::None | UserVariableNames::Unknown => &[],
            UserVariableNames::Told(names) | UserVariableNames::Listed(names) => names,
        }
    }

    /// The command whose one row is what [`difference`](Self::difference) wants.
    #[must_use]
    pub fn question(&self) -> Vec<u8> {
        let fixed = FIXED.iter().chain([&READ_ONLY]).map(|name| (*name).to_owned());
        let roles = [roles::question(self.dialect).to_owned()];
        let variables = self.variables.iter().map(|name| format!("@@session.{name}"));
        let items: Vec<_> = fixed.chain(roles).chain(variables).collect();
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
        (!self.names().is_empty()).then(|| user_variables::question(self.names()))
    }

    /// The command whose one value is how many bytes they have.
    #[must_use]
    pub fn user_variables_length(&self) -> Option<Vec<u8>> {
        (!self.names().is_empty()).then(|| user_variables::length(self.names()))
    }

    /// How many columns that has.
    #[must_use]
    pub fn user_variables_columns(&self) -> usize {
        self.names().len() * user_variables::COLUMNS
    }

    /// The command that makes the user variables of the next connection, which has these, what the session
    /// had; `None` where they are that already. What comes of it has to be asked for.
    #[must_use]
    pub fn set_user_variables(&self, had: &UserVariables, has: &UserVariables) -> Option<Vec<u8>> {
        had.set(self.names(), has)
    }

    /// The command that asks for the roles that the session has taken on: the next server gives it those
    /// before anything else, which may need their rights. `None` where it has the roles of its login.
    #[must_use]
    pub fn ask_roles(&self) -> Option<Vec<u8>> {
        let question = || query(&format!("SELECT {} LIMIT 1", roles::question(self.dialect)));
        self.sets_roles.then(question)
    }

    /// The command by which the session has the roles of that answer.
    ///
    /// # Errors
    /// They cannot be named in every charset.
    pub fn set_roles(&self, had: Option<&[u8]>) -> Result<Vec<u8>, Difference> {
        let set = roles::set(had, self.dialect).map(|set| query(&set));
        set.ok_or_else(|| told("CURRENT_ROLE()", Some(&had.map(<[u8]>::to_vec)), None))
    }

    /// The commands that make the next server, which has these values, what the session's has been; none
    /// where it is that already.
    pub fn difference(&self, had: &Values, has: &Values) -> Result<Vec<Vec<u8>>, Difference> {
        self.is_of_the_same_kind(had, has)?;
        let role = |values: &Values| values.get(ROLES).cloned().flatten();
        let (role, roles_differ) = (role(had), role(had) != role(has));
        let roles = roles_differ
            .then(|| self.set_roles(role.as_deref()))
            .transpose()?;
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
        let variables = is_any.then(|| set_variables(set));
        Ok(roles.into_iter().chain(variables).collect())
    }

    /// Whether the values are the same.
    #[must_use]
    pub fn is_same(&self, had: &Values, has: &Values) -> bool {
        let of_session = |of: &Values| of.get(ROLES..).map(<[_]>::to_vec);
        of_session(had) == of_session(has)
    }

    /// What the session's values are where its own connection cannot be asked any more. `began`: what that
    /// has answered at the session's beginning. `has`: what the next server answers, on which everything was
    /// set that the session has set since. `must_write`: the next server has to take writes. `None` where
    /// they are not known for certain.
    #[must_use]
    pub fn had(
        &self,
        carried: &PortableState,
        began: &Values,
        has: &Values,
        must_write: bool,
    ) -> Option<Vec<Option<Vec<u8>>>> {
        let is_whole = began.len() == self.columns() && has.len() == self.columns();
        if !is_whole || carried.variables().any(|(_, value)| value == DEFAULT) {
            return None;
        }
        let is_carried = |name: &[u8]| {
            let is_it = |(set, _): (&[u8], _)| {
                variables::is_told_by(name, set)
                    || variables::is_told_by(set, name)
                    // The one is set with the other.
                    || is_of_connection(name) && is_of_connection(set)
            };
            carried.variables().any(is_it)
        };
        let names = self.variables.iter().map(String::as_bytes);
        // A charset without a collation has the one that is the server's for it.
        let has_own_collation = carried
            .variables()
            .any(|(name, _)| name.starts_with(b"character_set_"));
        let mut had = began.to_vec();
        if must_write && let Some(read_only) = had.get_mut(FIXED.len()) {
            *read_only = Some(b"0".to_vec());
        }
        for (name, (had, has)) in names.zip(had.iter_mut().zip(has).skip(BEFORE_VARIABLES)) {
            if is_carried(name) {
                had.clone_from(has);
            } else if has_own_collation && OWN_COLLATIONS.contains(&name) && had != has {
                return None;
            }
        }
        Some(had)
    }

    /// Whether a server with these values takes writes.
    #[must_use]
    pub fn takes_writes(values: &Values) -> bool {
        takes_writes(values.get(FIXED.len()))
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

fn is_of_connection(name: &[u8]) -> bool {
    [CHARACTER_SET_CONNECTION, COLLATION_CONNECTION].contains(&name)
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
        assert_eq!(plan.difference(&same, &same), Ok(Vec::new()));
    }

    #[test]
    fn what_differs_is_set_to_what_the_session_had() {
        let plan = plan();
        let (mut had, has) = (values(&plan), values(&plan));
        had[place(&plan, "group_concat_max_len")] = Some(b"1024".to_vec());
        had[place(&plan, "character_set_results")] = None;
        had[place(&plan, "sql_mode")] = Some(b"ANSI_QUOTES".to_vec());
        had[ROLES] = Some(b"reader".to_vec());
        let set = plan.difference(&had, &has).unwrap();
        let [roles, set] = set.as_slice() else {
            panic!("{set:?}");
        };
        assert_eq!(String::from_utf8_lossy(&roles[1..]), "SET ROLE `reader`");
        assert_eq!(
            String::from_utf8_lossy(&set[1..]),
            "SET character_set_client=0, character_set_connection=0, character_set_results=NULL, \
             collation_connection=0, group_concat_max_len=1024, sql_mode='ANSI_QUOTES'"
        );
    }

    #[test]
    fn without_its_connection_it_had_what_it_began_with_and_what_it_has_set() {
        let plan = plan();
        let (began, mut has) = (values(&plan), values(&plan));
        let at = |name: &str| place(&plan, name);
        for name in [
            "lock_wait_timeout",
            "collation_connection",
            "div_precision_increment",
        ] {
            has[at(name)] = Some(b"other".to_vec());
        }
        let mut carried = PortableState::fresh(None, false);
        carried.set(b"lock_wait_timeout", b"9");
        carried.set(b"character_set_connection", b"latin1");
        let had = plan.had(&carried, &began, &has, true).unwrap();
        assert_eq!(had[at("lock_wait_timeout")], has[at("lock_wait_timeout")]);
        assert_eq!(had[at("collation_connection")], has[at("collation_connection")]);
        assert_eq!(had[at("div_precision_increment")], Some(b"0".to_vec()));
        carried.set(b"sql_mode", b"DEFAULT");
        assert_eq!(plan.had(&carried, &began, &has, true), None);
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
            Ok(Vec::new()),
            "it takes writes now"
        );
    }
}
