//! Under which settings an answer from memory is what the server would say.
//!
//! What is not listed here is not known not to matter: a session that has set it has no lookups.

use dataplane::extension::{Rights, Surroundings, Variable};
use mysql_wire::Capabilities;
use mysql_wire::binlog::Zone;

/// Variables that change nothing about the answer to a lookup, or whose values are looked at here.
const HARMLESS: &[&str] = &[
    "autocommit",
    "binlog_row_image",
    "character_set_client",
    "character_set_connection",
    "character_set_database",
    "character_set_results",
    "collation_connection",
    "collation_database",
    "default_storage_engine",
    "explicit_defaults_for_timestamp",
    "foreign_key_checks",
    "group_concat_max_len",
    "information_schema_stats_expiry",
    "innodb_lock_wait_timeout",
    "interactive_timeout",
    "join_buffer_size",
    "lc_messages",
    "lc_time_names",
    "lock_wait_timeout",
    "long_query_time",
    "max_execution_time",
    "max_heap_table_size",
    "max_statement_time",
    "net_read_timeout",
    "net_write_timeout",
    "optimizer_switch",
    "query_cache_type",
    "read_buffer_size",
    "session_track_schema",
    "session_track_state_change",
    "session_track_transaction_info",
    "sort_buffer_size",
    "sql_auto_is_null",
    "sql_mode",
    "sql_notes",
    "sql_quote_show_create",
    "sql_safe_updates",
    "sql_warnings",
    "time_zone",
    "tmp_table_size",
    "transaction_isolation",
    "transaction_read_only",
    "tx_isolation",
    "tx_read_only",
    "unique_checks",
    "wait_timeout",
];

/// Words of `sql_mode` that change nothing about the answer to a lookup: how its text is read is known
/// already.
const MODES: &[&str] = &[
    "ALLOW_INVALID_DATES",
    "ANSI",
    "ANSI_QUOTES",
    "ERROR_FOR_DIVISION_BY_ZERO",
    "HIGH_NOT_PRECEDENCE",
    "IGNORE_BAD_TABLE_OPTIONS",
    "IGNORE_SPACE",
    "NO_AUTO_CREATE_USER",
    "NO_AUTO_VALUE_ON_ZERO",
    "NO_BACKSLASH_ESCAPES",
    "NO_DIR_IN_CREATE",
    "NO_ENGINE_SUBSTITUTION",
    "NO_UNSIGNED_SUBTRACTION",
    "NO_ZERO_DATE",
    "NO_ZERO_IN_DATE",
    "ONLY_FULL_GROUP_BY",
    "PIPES_AS_CONCAT",
    "REAL_AS_FLOAT",
    "STRICT_ALL_TABLES",
    "STRICT_TRANS_TABLES",
    "TRADITIONAL",
];

/// Character sets in which ASCII is what it is in utf8mb4.
const LIKE_ASCII: &[&str] = &["ascii", "latin1", "utf8", "utf8mb3", "utf8mb4"];

/// Settings under which sessions get the same answers.
#[derive(Debug)]
pub(super) struct Settings {
    /// All that was said of the session, for comparison.
    identity: Box<[u8]>,
    pub(super) schema: Option<Box<[u8]>>,
    pub(super) capabilities: Capabilities,
    /// In which TIMESTAMP values are shown, where that does not change over the year.
    pub(super) zone: Option<Zone>,
    /// Lookups may be answered.
    pub(super) is_known: bool,
    /// As long as all their texts, and those of the answer, are ASCII: the character sets are not all
    /// utf8mb4.
    pub(super) is_ascii_only: bool,
}

impl Settings {
    fn new(surroundings: &Surroundings<'_>, identity: Box<[u8]>) -> Self {
        let variable = |name: &str| {
            let mut variables = surroundings.variables.iter();
            variables
                .find(|variable| variable.name == name.as_bytes())
                .map(|variable| variable.value)
        };
        // A statement that names one of the two changes both; where both are known the character set is the
        // newer one.
        let connection = match variable("character_set_connection") {
            Some(charset) => Some(charset),
            None => variable("collation_connection").and_then(|name| name.split(|byte| *byte == b'_').next()),
        };
        let charsets = [
            variable("character_set_client"),
            variable("character_set_results"),
            connection,
        ];
        let is_one_of = |charset: &Option<&[u8]>, known: &[&str]| {
            charset.is_some_and(|charset| {
                known
                    .iter()
                    .any(|known| charset.eq_ignore_ascii_case(known.as_bytes()))
            })
        };
        let is_ascii_only = !charsets.iter().all(|charset| is_one_of(charset, &["utf8mb4"]));
        let zone = variable("time_zone").and_then(|zone| std::str::from_utf8(zone).ok());
        Self {
            identity,
            schema: surroundings.schema.map(Box::from),
            capabilities: surroundings.capabilities,
            zone: zone.and_then(Zone::parse),
            is_ascii_only,
            is_known: charsets.iter().all(|charset| is_one_of(charset, LIKE_ASCII))
                && (!is_ascii_only || surroundings.schema.is_none_or(<[u8]>::is_ascii))
                && variable("sql_mode").is_some_and(is_harmless_mode)
                && variable("session_track_system_variables").is_none_or(is_harmless_tracking)
                && surroundings
                    .variables
                    .iter()
                    .all(|variable| !variable.is_set || is_harmless(variable)),
        }
    }
}

fn is_harmless(variable: &Variable<'_>) -> bool {
    HARMLESS.iter().any(|name| name.as_bytes() == variable.name)
}

fn is_harmless_mode(modes: &[u8]) -> bool {
    let mut words = modes.split(|byte| *byte == b',').filter(|word| !word.is_empty());
    words.all(|word| {
        MODES
            .iter()
            .any(|mode| word.eq_ignore_ascii_case(mode.as_bytes()))
    })
}

/// MySQL counts statements, and lookups are none; other variables do not change by themselves.
fn is_harmless_tracking(variables: &[u8]) -> bool {
    let mut names = variables.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    names.all(|name| name != b"*" && !name.eq_ignore_ascii_case(b"statement_id"))
}

/// Two are equal where everything is. `definitions` is the present number of definitions and grants.
fn identity(surroundings: &Surroundings<'_>, definitions: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |bytes: &[u8]| {
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    put(surroundings.user);
    put(&surroundings.account.to_le_bytes());
    // With the next grant everybody gets another number, and whoever may have logged in on the other side of
    // it one alone.
    let (kind, number) = match surroundings.rights {
        Rights::Pooled => (0, 0),
        Rights::OfLogin {
            as_of: Some(as_of),
            is_certain,
            ..
        } if is_certain || as_of == definitions => (1, as_of),
        Rights::OfLogin { session, .. } => (2, u64::from(session)),
    };
    put(&[kind]);
    put(&number.to_le_bytes());
    put(surroundings
        .host
        .map_or(String::new(), |host| host.to_string())
        .as_bytes());
    put(&[u8::from(surroundings.schema.is_some())]);
    put(surroundings.schema.unwrap_or_default());
    put(&surroundings.capabilities.0.to_le_bytes());
    put(&[surroundings.collation]);
    put(&surroundings.status.0.to_le_bytes());
    for variable in &surroundings.variables {
        put(variable.name);
        put(variable.value);
        put(&[u8::from(variable.is_set)]);
    }
    out
}

/// All settings that sessions of this worker have had.
#[derive(Debug, Default)]
pub(super) struct Environments {
    all: Vec<Settings>,
    /// As of which definitions and grants they all are.
    definitions: u64,
    /// How often they were all forgotten.
    pub(super) era: u64,
}

/// Settings that are kept; a client that makes up new ones has all of them forgotten.
const KEPT_MAX: usize = 4096;

/// How many bits of an environment's number are for its place.
const PLACE_BITS: u32 = 16;

impl Environments {
    pub(super) fn number(&mut self, surroundings: &Surroundings<'_>, definitions: u64) -> u64 {
        if self.definitions != definitions {
            self.definitions = definitions;
            self.forget();
        }
        let identity = identity(surroundings, definitions);
        let known = self
            .all
            .iter()
            .position(|settings| *settings.identity == *identity);
        let place = known.unwrap_or_else(|| {
            if self.all.len() >= KEPT_MAX {
                self.forget();
            }
            self.all.push(Settings::new(surroundings, identity.into()));
            self.all.len() - 1
        });
        self.era << PLACE_BITS | place as u64
    }

    fn forget(&mut self) {
        self.all.clear();
        self.era += 1;
    }

    /// Whether whoever asks for a number now gets one as of these definitions and grants, as all have that
    /// there are.
    pub(super) fn is_of(&self, definitions: u64) -> bool {
        self.definitions == definitions
    }

    /// Whether it was not forgotten.
    pub(super) fn has(&self, number: u64) -> bool {
        self.get(number).is_some()
    }

    /// `None` for those that were forgotten.
    pub(super) fn get(&self, number: u64) -> Option<&Settings> {
        let place = number & ((1 << PLACE_BITS) - 1);
        (number >> PLACE_BITS == self.era)
            .then(|| self.all.get(place as usize))
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use mysql_wire::StatusFlags;

    use super::*;

    fn surroundings<'a>(variables: &[(&'a str, &'a str, bool)]) -> Surroundings<'a> {
        let variables = variables.iter().map(|&(name, value, is_set)| Variable {
            name: name.as_bytes(),
            value: value.as_bytes(),
            is_set,
        });
        Surroundings {
            user: b"app",
            account: 0,
            rights: Rights::Pooled,
            host: None,
            schema: Some(b"shop"),
            capabilities: Capabilities::PROTOCOL_41,
            collation: 255,
            status: StatusFlags::AUTOCOMMIT,
            variables: variables.collect(),
        }
    }

    const USUAL: [(&str, &str, bool); 5] = [
        ("character_set_client", "utf8mb4", false),
        ("character_set_results", "utf8mb4", false),
        ("collation_connection", "utf8mb4_general_ci", false),
        ("sql_mode", "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES", false),
        ("time_zone", "+02:00", true),
    ];

    fn settings(surroundings: &Surroundings<'_>) -> Settings {
        Settings::new(surroundings, Box::default())
    }

    #[test]
    fn only_settings_that_are_known_have_lookups() {
        let known = |more: &[(&'static str, &'static str, bool)]| {
            settings(&surroundings(&[more, &USUAL].concat())).is_known
        };
        assert!(known(&[]));
        assert!(known(&[("foreign_key_checks", "OFF", true)]));
        assert!(known(&[("sql_select_limit", "1", false)]), "as everybody has it");
        assert!(!known(&[("sql_select_limit", "1", true)]));
        assert!(!known(&[("sql_mode", "PAD_CHAR_TO_FULL_LENGTH", true)]));
        assert!(!known(&[("character_set_results", "", true)]));
        assert!(!known(&[("character_set_results", "DEFAULT", true)]));
        assert!(!known(&[("character_set_client", "sjis", true)]));
        assert!(!known(&[("character_set_client", "binary", true)]));
        assert!(!known(&[("collation_connection", "ucs2_bin", true)]));
        assert!(!known(&[("character_set_connection", "gbk", true)]));
        let older_collation = ("collation_connection", "latin1_swedish_ci", false);
        assert!(known(&[
            ("character_set_connection", "utf8mb4", true),
            older_collation
        ]));
        assert!(!settings(&surroundings(&[&USUAL[..2], &USUAL[3..]].concat())).is_known);
        assert!(!settings(&surroundings(&[])).is_known);
        assert_eq!(settings(&surroundings(&USUAL)).zone, Zone::parse("+02:00"));
    }

    #[test]
    fn character_sets_like_ascii_are_known_as_far_as_they_are_alike() {
        let alike = |name: &'static str, value: &'static str| {
            let settings = settings(&surroundings(&[&[(name, value, true)][..], &USUAL].concat()));
            assert!(settings.is_known, "{name} {value}");
            settings.is_ascii_only
        };
        assert!(!alike("character_set_client", "utf8mb4"));
        assert!(!alike("collation_connection", "utf8mb4_bin"));
        for charset in ["latin1", "utf8mb3", "utf8", "ascii"] {
            assert!(alike("character_set_client", charset));
            assert!(alike("character_set_results", charset));
            assert!(alike("character_set_connection", charset));
        }
        assert!(alike("collation_connection", "latin1_swedish_ci"));
        let with_latin1 = [&[("character_set_results", "latin1", true)][..], &USUAL].concat();
        let mut of_other_schema = surroundings(&with_latin1);
        of_other_schema.schema = Some("é".as_bytes());
        assert!(!settings(&of_other_schema).is_known);
    }

    #[test]
    fn equal_settings_have_one_number() {
        let mut all = Environments::default();
        let usual = all.number(&surroundings(&USUAL), 7);
        let other = all.number(&surroundings(&[]), 7);
        assert_ne!(usual, other);
        assert_eq!(all.number(&surroundings(&USUAL), 7), usual);
        for count in 0..KEPT_MAX {
            let mut many = surroundings(&USUAL);
            many.account = count as u64 + 1;
            all.number(&many, 7);
        }
        assert!(all.get(usual).is_none(), "forgotten with all others");
        assert_ne!(all.number(&surroundings(&USUAL), 7), usual);
    }

    #[test]
    fn a_number_that_was_forgotten_is_nobody_elses() {
        let mut all = Environments::default();
        let usual = all.number(&surroundings(&USUAL), 0);
        (0..1 << 16).for_each(|_| all.forget());
        let mut other = surroundings(&USUAL);
        other.user = b"other";
        assert_ne!(all.number(&other, 0), usual);
        assert!(!all.has(usual));
    }

    #[test]
    fn logins_share_what_is_certain_to_be_of_the_same_grants() {
        let mut all = Environments::default();
        let mut number = |as_of, is_certain, session, definitions| {
            let mut surroundings = surroundings(&USUAL);
            surroundings.rights = Rights::OfLogin {
                as_of,
                is_certain,
                session,
            };
            all.number(&surroundings, definitions)
        };
        let before = number(Some(5), true, 1, 5);
        assert_eq!(number(Some(5), false, 2, 5), before, "no grant since");
        assert_ne!(number(None, false, 3, 5), before, "a grant just before");
        let after = number(Some(5), true, 1, 6);
        assert_ne!(after, before);
        assert_eq!(number(Some(5), true, 4, 6), after);
        let doubtful = number(Some(5), false, 2, 6);
        assert_ne!(doubtful, after);
        assert_eq!(number(Some(5), false, 2, 6), doubtful);
        assert_ne!(number(Some(5), false, 5, 6), doubtful);
        let later = number(Some(6), false, 6, 6);
        assert!(later != after && later != doubtful);
    }
}
