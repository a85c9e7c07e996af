//! Charsets, modes and variables of a session.

use mysql_wire::Command;

use super::Maker;
use crate::script::Request;

const SETTINGS: &[&str] = &[
    "SET NAMES utf8mb4",
    "SET NAMES latin1",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    "SET NAMES binary",
    "SET NAMES cp1251",
    "SET NAMES ucs2",
    "SET NAMES gbk",
    "SET NAMES nothing",
    "SET CHARACTER SET latin1",
    "SET character_set_results = NULL",
    "SET character_set_results = utf16",
    "SET NAMES DEFAULT",
    "SET sql_mode = 'ANSI_QUOTES'",
    "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
    "SET sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO'",
    "SET sql_mode = ''",
    "SET sql_mode = DEFAULT",
    "SET time_zone = '+05:30'",
    "SET time_zone = 'SYSTEM'",
    "SET time_zone = 'nowhere'",
    "SET foreign_key_checks = 0",
    "SET unique_checks = %",
    "SET sql_select_limit = %",
    "SET sql_select_limit = DEFAULT",
    "SET sql_safe_updates = 1",
    "SET sql_safe_updates = 0",
    "SET max_error_count = %",
    "SET group_concat_max_len = 10%",
    "SET sql_warnings = 1",
    "SET sql_notes = 0",
    "SET sql_big_selects = 1",
    "SET @a = %, @b = 'text', @c = NULL, @d = 1.5",
    "SELECT @a, @b, @c, @d",
    "SELECT @a := @a + 1",
    "SELECT id, name INTO @i, @n FROM small WHERE id = 1",
    "SELECT id INTO @i FROM small",
    "SELECT id INTO @i FROM bare",
    "SET @s = REPEAT('x', 5000)",
    "SELECT @s",
    "SET session_track_schema = 1",
    "SET session_track_system_variables = '*'",
    "SET session_track_state_change = 1",
    "SET session_track_transaction_info = 'CHARACTERISTICS'",
    "SET session_track_system_variables = 'autocommit,sql_mode'",
    "SET session_track_state_change = 0",
    "SET session_track_transaction_info = 'STATE'",
    "SET lc_time_names = 'de_DE'",
    "SELECT DATE_FORMAT('2024-03-05', '%W %M')",
    "SELECT @@sql_mode, @@time_zone, @@character_set_results",
    "SELECT 'ä', \"x\", 'a\\'b'",
    "SELECT * FROM types WHERE id = 1",
    "USE diff",
    "SELECT DATABASE(), SCHEMA()",
    "SET autocommit = 0, sql_mode = ''",
    "SET net_write_timeout = 60",
    "SET max_statement_time = 0",
    "SET wait_timeout = 1000",
];

const MYSQL: &[&str] = &[
    "SET session_track_gtids = OWN_GTID",
    "SET session_track_gtids = OFF",
    "SET resultset_metadata = NONE",
    "SET resultset_metadata = FULL",
    "SET ROLE NONE",
    "SET SESSION binlog_rows_query_log_events = 1",
    "SET max_execution_time = 5000",
    "SET sql_require_primary_key = 0",
    "SET print_identified_with_as_hex = 1",
];

const MARIADB: &[&str] = &[
    "SET STATEMENT max_statement_time = 10 FOR SELECT 1",
    "SET last_insert_id = %",
    "SET sql_mode = ORACLE",
    "SET session_track_system_variables = 'last_gtid'",
    "SET ROLE NONE",
    "SET SESSION binlog_format = ROW",
    "SET column_compression_threshold = 10%",
];

pub fn add(make: &mut Maker) {
    let choices = match (make.dice.below(5), make.is_mariadb()) {
        (0, true) => MARIADB,
        (0, false) => MYSQL,
        _ => SETTINGS,
    };
    let text = make.statement_or_plain(choices);
    // What a server says of its trackers when they are set is said of trackers that the gateway has set
    // before.
    if make.shared && text.contains("session_track") {
        return;
    }
    // MariaDB forgets the schema's charset with COM_RESET_CONNECTION, and keeps the schema.
    let is_reset = |request: &Request| request.command() == Command::RESET_CONNECTION;
    let was_reset = make.steps.iter().any(|step| step.requests.iter().any(is_reset));
    if make.shared && was_reset && text.contains("CHARACTER SET") {
        return;
    }
    make.add_query(&text);
}

impl Maker {
    /// Like [`Maker::statement`], but leaves formats such as `'%W'` alone.
    fn statement_or_plain(&mut self, choices: &[&str]) -> String {
        let text = self.dice.pick(choices);
        if text.contains("'%") {
            text.to_owned()
        } else {
            self.statement(&[text])
        }
    }
}
