//! Which system variables are carried to another connection, and why the others are not.

use sql_class::Dialect;

use crate::PinReason;

/// In the place of a value: what a variable has by the word `DEFAULT`, which is its global value.
pub(crate) const DEFAULT: &[u8] = b"DEFAULT";

pub(crate) const AUTOCOMMIT: &[u8] = b"autocommit";
pub(crate) const SQL_MODE: &[u8] = b"sql_mode";
pub(crate) const CHARACTER_SET_CLIENT: &[u8] = b"character_set_client";
pub(crate) const CHARACTER_SET_RESULTS: &[u8] = b"character_set_results";
pub(crate) const CHARACTER_SET_CONNECTION: &[u8] = b"character_set_connection";
pub(crate) const COLLATION_CONNECTION: &[u8] = b"collation_connection";

/// What `SET NAMES` without COLLATE means.
pub(crate) const OWN_COLLATIONS: [&[u8]; 2] = [b"default_collation_for_utf8mb4", b"character_set_collations"];

/// Charset and collation belong together: `SET NAMES` sets all of them, and the last two are one to the
/// server.
pub(crate) const CHARSETS: [&[u8]; 4] = [
    CHARACTER_SET_CLIENT,
    CHARACTER_SET_RESULTS,
    CHARACTER_SET_CONNECTION,
    COLLATION_CONNECTION,
];

/// Beside the schema, what a text's meaning hangs on when it is prepared. To set one of these has no other
/// effect: not even a transaction takes notice.
const OF_MEANING: &[&[u8]] = &[
    CHARACTER_SET_CLIENT,
    CHARACTER_SET_CONNECTION,
    COLLATION_CONNECTION,
    SQL_MODE,
    b"old_mode", // MariaDB: what `utf8` is
    // MySQL looks at these when it prepares a statement, MariaDB when it executes it. Tested on MySQL 8.0.33
    // and 9.7 and MariaDB 10.11, as were the other variables of sessions, with some 150 expressions each.
    b"time_zone",
    b"default_week_format",
    b"div_precision_increment",
    b"lc_time_names",                // MONTHNAME(), DAYNAME()
    b"windowing_use_high_precision", // there is none on MariaDB
    // No expression was found that shows it.
    b"optimizer_switch",
    b"group_concat_max_len",
    b"explicit_defaults_for_timestamp",
];

/// Of these, and what belongs to them, those whose value is to be had from a server by setting it to what it
/// is.
pub(crate) fn to_be_asked(dialect: Dialect) -> impl Iterator<Item = &'static str> {
    let is_there = move |name: &&&[u8]| match **name {
        CHARACTER_SET_CONNECTION => false,           // with its collation
        b"explicit_defaults_for_timestamp" => false, // not everybody may set it
        b"old_mode" => dialect.is_mariadb(),
        b"windowing_use_high_precision" => matches!(dialect, Dialect::MySql { version } if version >= 80_002),
        _ => true,
    };
    let names = OF_MEANING.iter().filter(is_there).chain([&CHARACTER_SET_RESULTS]);
    names.filter_map(|name| str::from_utf8(name).ok())
}

/// Whether a text may mean something else under another value.
pub(crate) fn gives_meaning(name: &[u8]) -> bool {
    OF_MEANING.contains(&name)
}

/// What a report of a variable means for the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It is set to this value on the next connection.
    Carry,
    /// Says nothing about the session: it cannot be set, or changes by itself.
    Nothing,
    /// MariaDB: the GTID of the session's last write.
    Gtid,
    /// The value of LAST_INSERT_ID().
    LastInsertId,
    /// For the gateway, not for the client: where to connect instead.
    Redirect,
    /// How trackers are armed: the client's wish, and ours is overwritten on the server.
    Arming,
    /// Pinned while the value is not this one.
    PinUnless(PinReason, &'static [&'static str]),
    /// Pinned from here on.
    Pin,
}

/// In the order of the names.
const SPECIAL: &[(&str, Meaning)] = &[
    // Statement by statement, or of the login: nothing that a client sets.
    ("statement_id", Meaning::Nothing), // MySQL 9: another one with each statement
    ("warning_count", Meaning::Nothing),
    ("error_count", Meaning::Nothing),
    ("in_transaction", Meaning::Nothing),
    ("external_user", Meaning::Nothing),
    ("proxy_user", Meaning::Nothing),
    ("gtid_owned", Meaning::Nothing),
    ("gtid_executed", Meaning::Nothing),
    ("gtid_purged", Meaning::Nothing),
    ("last_gtid", Meaning::Gtid),
    ("last_insert_id", Meaning::LastInsertId),
    ("identity", Meaning::LastInsertId),
    // Clients that believe it would go round the gateway.
    ("redirect_url", Meaning::Redirect),
    // What is written under these must not depend on which connection is at hand.
    (
        "sql_log_bin",
        Meaning::PinUnless(PinReason::BinlogOff, &["ON", "1"]),
    ),
    (
        "gtid_next",
        Meaning::PinUnless(PinReason::GtidNext, &["AUTOMATIC"]),
    ),
    ("wsrep_on", Meaning::PinUnless(PinReason::WsrepOff, &["ON", "1"])),
    // Reads LAST_INSERT_ID() without saying so: `WHERE id IS NULL`.
    (
        "sql_auto_is_null",
        Meaning::PinUnless(PinReason::Uncarried, &["OFF", "0"]),
    ),
    // `SET timestamp=DEFAULT` is reported with the old value, on both servers: whether it is set cannot be
    // known.
    ("timestamp", Meaning::Pin),
    // Once only, for the next statement, or they change with use.
    ("insert_id", Meaning::Pin),
    ("rand_seed1", Meaning::Pin),
    ("rand_seed2", Meaning::Pin),
    // For appliers of a binlog, which have their connection for themselves.
    ("gtid_next_list", Meaning::Pin),
    ("gtid_domain_id", Meaning::Pin),
    ("gtid_seq_no", Meaning::Pin),
    ("server_id", Meaning::Pin),
    ("skip_replication", Meaning::Pin),
    ("original_commit_timestamp", Meaning::Pin),
    ("immediate_server_version", Meaning::Pin),
    ("original_server_version", Meaning::Pin),
    ("require_row_format", Meaning::Pin),
    // See `OWN_COLLATIONS`.
    ("default_collation_for_utf8mb4", Meaning::Pin),
    ("character_set_collations", Meaning::Pin),
    // A time without its zone, and servers say it in the session's.
    ("system_versioning_asof", Meaning::Pin),
    // What they gather stays on the connection.
    ("profiling", Meaning::Pin),
    ("optimizer_trace", Meaning::Pin),
    ("debug", Meaning::Pin),
    ("debug_dbug", Meaning::Pin),
    ("debug_sync", Meaning::Pin),
];

/// What a report of `name` means.
pub(crate) fn meaning(name: &[u8]) -> Meaning {
    if let Some(&(_, meaning)) = SPECIAL.iter().find(|(special, _)| special.as_bytes() == name) {
        return meaning;
    }
    if name.starts_with(b"session_track_") {
        return Meaning::Arming;
    }
    if name.starts_with(b"pseudo_") || name.starts_with(b"gtid_") {
        return Meaning::Pin;
    }
    Meaning::Carry
}

/// Variables of MariaDB with two names: the one that is carried, and the other. A connection reports either.
const TWO_NAMES: &[(&str, &str)] = &[
    ("default_storage_engine", "storage_engine"),
    ("long_query_time", "log_slow_query_time"),
    ("max_insert_delayed_threads", "max_delayed_threads"),
    ("min_examined_row_limit", "log_slow_min_examined_row_limit"),
    ("slow_query_log", "log_slow_query"),
    ("tmp_table_size", "tmp_memory_table_size"),
];

/// The same, since 11.1: before, there are the others alone.
const NEW_NAMES: &[(&str, &str)] = &[
    ("transaction_isolation", "tx_isolation"),
    ("transaction_read_only", "tx_read_only"),
];

/// Of a collation and a charset that belong together, on a server that reports one of them for both.
const TOGETHER: &[(&str, &str)] = &[
    ("collation_connection", "character_set_connection"),
    ("collation_database", "character_set_database"),
    ("collation_server", "character_set_server"),
];

/// The name that a variable is carried under.
pub(crate) fn carried_name(name: &[u8], dialect: Dialect) -> &[u8] {
    let Dialect::MariaDb { version } = dialect else {
        return name;
    };
    let new = if version >= 110_101 { NEW_NAMES } else { &[] };
    let mut pairs = TWO_NAMES.iter().chain(new);
    let found = pairs.find(|(_, other)| other.as_bytes() == name);
    found.map_or(name, |(carried, _)| carried.as_bytes())
}

/// The one that tells of both: where a charset was set, its collation.
pub(crate) fn that_tells_of_both(name: &[u8]) -> &[u8] {
    let found = TOGETHER.iter().find(|(_, charset)| charset.as_bytes() == name);
    found.map_or(name, |(collation, _)| collation.as_bytes())
}

/// Variables, and what else sets them: the pairs of charset and collation that are of no connection.
pub(crate) fn others_of_pairs() -> impl Iterator<Item = (&'static [u8], &'static [u8])> {
    let both =
        |&(a, b): &(&'static str, &'static str)| [(a.as_bytes(), b.as_bytes()), (b.as_bytes(), a.as_bytes())];
    TOGETHER[1..].iter().flat_map(both)
}

/// Whether a report of `name` says what `set` is: by its own name or its other one, or by the collation for
/// the charset.
pub(crate) fn is_told_by(set: &[u8], name: &[u8]) -> bool {
    let mut others = TWO_NAMES
        .iter()
        .chain(NEW_NAMES)
        .flat_map(|&(a, b)| [(a, b), (b, a)]);
    let mut together = TOGETHER.iter();
    set.eq_ignore_ascii_case(name)
        || others.any(|(one, other)| one.as_bytes() == set && other.as_bytes() == name)
        || together.any(|(collation, charset)| charset.as_bytes() == set && collation.as_bytes() == name)
}

/// A name that means nothing else in a statement.
pub(crate) fn is_word(name: &[u8]) -> bool {
    !name.is_empty()
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Whether a `sql_mode` has a mode.
pub(crate) fn has_mode(sql_mode: &[u8], mode: &[u8]) -> bool {
    let mut modes = sql_mode.split(|&byte| byte == b',');
    modes.any(|word| word.eq_ignore_ascii_case(mode))
}

/// A collation's name begins with its charset's.
pub(crate) fn belongs(collation: &[u8], charset: &[u8]) -> bool {
    matches!(collation.strip_prefix(charset), Some([] | [b'_', ..]))
}

/// The charset that a collation's name begins with.
pub(crate) fn charset_of(collation: &[u8]) -> &[u8] {
    collation.split(|&byte| byte == b'_').next().unwrap_or_default()
}

/// Set by `USE`, unseen.
pub(crate) fn follows_schema(name: &[u8]) -> bool {
    name == b"character_set_database" || name == b"collation_database"
}
