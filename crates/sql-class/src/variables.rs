//! System variables, and tables of the server about itself, of which routing must know.

use crate::facts::Effects;
use crate::words::is_one_of;

/// `@@global.x`, `SET GLOBAL x`, or nothing of the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Session,
    Global,
}

impl Scope {
    pub(crate) fn of(word: &[u8]) -> Option<Self> {
        if is_one_of(word, &["SESSION", "LOCAL"]) {
            Some(Self::Session)
        } else if is_one_of(word, &["GLOBAL", "PERSIST", "PERSIST_ONLY"]) {
            Some(Self::Global)
        } else {
            None
        }
    }
}

/// Of `@@name`.
pub(crate) fn effects_of_reading(name: &[u8]) -> Effects {
    if is_one_of(name, &["last_insert_id", "identity"]) {
        Effects::READS_LAST_INSERT_ID
    } else if is_one_of(name, &["warning_count", "error_count"]) {
        Effects::READS_DIAGNOSTICS
    } else if is_one_of(name, &["pseudo_thread_id"]) {
        Effects::READS_CONNECTION_ID
    } else if is_one_of(name, &["last_gtid"]) {
        Effects::READS_LAST_GTID
    } else if is_one_of(name, OF_ONE_SERVER) || begins_with_one_of(name, OF_ONE_SERVER_PREFIXES) {
        Effects::READS_SERVER
    } else {
        Effects::NONE
    }
}

/// Of `SET name = …` in the session.
pub(crate) fn effects_of_setting(name: &[u8]) -> Effects {
    if is_one_of(name, &["autocommit"]) {
        Effects::SETS_AUTOCOMMIT
    } else if is_one_of(name, UNCARRIED) || begins_with_one_of(name, UNCARRIED_PREFIXES) {
        Effects::SETS_UNCARRIED
    } else {
        Effects::NONE
    }
}

/// Whether nothing else tells what it is set to.
pub(crate) fn is_carried(name: &[u8]) -> bool {
    effects_of_setting(name) == Effects::NONE
}

/// `SET TRANSACTION` as variables.
pub(crate) fn is_transaction_characteristic(name: &[u8]) -> bool {
    const ALL: &[&str] = &[
        "transaction_isolation",
        "transaction_read_only",
        "tx_isolation",
        "tx_read_only",
    ];
    is_one_of(name, ALL)
}

/// Whether tables of this schema may be about the server that is asked, or the connection.
#[must_use]
pub fn is_about_server(schema: &[u8]) -> bool {
    match schema.len() {
        18 => is_one_of(schema, &["performance_schema", "information_schema"]),
        5 => is_one_of(schema, &["mysql"]),
        3 => is_one_of(schema, &["sys"]),
        _ => false,
    }
}

/// Whether this table of `information_schema` says the same on every server, but for the delay of
/// replication.
pub(crate) fn is_alike_everywhere(table: &[u8]) -> bool {
    is_one_of(table, ALIKE_EVERYWHERE)
}

fn begins_with_one_of(name: &[u8], prefixes: &[&str]) -> bool {
    let begins = |prefix: &&str| {
        name.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    prefixes.iter().any(begins)
}

const OF_ONE_SERVER: &[&str] = &[
    "hostname",
    "server_id",
    "server_uuid",
    "server_uid",
    "read_only",
    "super_read_only",
    "port",
    "socket",
    "datadir",
    "basedir",
    "tmpdir",
    "pid_file",
    "log_error",
    "general_log_file",
    "slow_query_log_file",
    "log_bin",
    "innodb_read_only",
    "offline_mode",
    "event_scheduler",
    "bind_address",
    "admin_address",
    "persisted_globals_load",
    "have_replication",
    "slave_running",
    "version_compile_machine",
    "system_uuid",
    "uptime",
    "rand_seed1",
    "rand_seed2",
];

const OF_ONE_SERVER_PREFIXES: &[&str] = &[
    "gtid_",
    "wsrep_",
    "group_replication_",
    "rpl_",
    "relay_log",
    "log_bin_",
    "report_",
    "slave_",
    "replica_",
];

const UNCARRIED: &[&str] = &[
    "sql_log_bin",
    "gtid_next",
    "gtid_next_list",
    "wsrep_on",
    "gtid_domain_id",
    "gtid_seq_no",
    "server_id",
    "insert_id",
    "rand_seed1",
    "rand_seed2",
    "timestamp",
    "last_insert_id",
    "identity",
    "skip_replication",
    "skip_parallel_replication",
    "profiling",
    "original_commit_timestamp",
    "original_server_version",
    "immediate_server_version",
    "rbr_exec_mode",
    "require_row_format",
    "debug",
    "debug_sync",
    "default_master_connection",
];

const UNCARRIED_PREFIXES: &[&str] = &["pseudo_"];

const ALIKE_EVERYWHERE: &[&str] = &[
    "schemata",
    "schemata_extensions",
    "tables",
    "tables_extensions",
    "columns",
    "columns_extensions",
    "column_statistics",
    "statistics",
    "key_column_usage",
    "table_constraints",
    "table_constraints_extensions",
    "referential_constraints",
    "check_constraints",
    "routines",
    "parameters",
    "views",
    "view_table_usage",
    "view_routine_usage",
    "triggers",
    "events",
    "partitions",
    "character_sets",
    "collations",
    "collation_character_set_applicability",
    "column_privileges",
    "schema_privileges",
    "table_privileges",
    "user_privileges",
    "applicable_roles",
    "enabled_roles",
    "administrable_role_authorizations",
    "role_column_grants",
    "role_routine_grants",
    "role_table_grants",
    "keywords",
    "sql_functions",
    "st_geometry_columns",
    "st_spatial_reference_systems",
    "st_units_of_measure",
    "geometry_columns",
    "spatial_ref_sys",
    "sequences",
    "periods",
    "libraries",
];
