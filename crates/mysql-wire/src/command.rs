//! The command byte: the first byte of a client's packet in the command phase.
//!
//! Sources: MySQL 9 `my_command.h`; MariaDB 11 `mysql_com.h` (`enum_server_command`).

use serde::{Deserialize, Serialize};

/// A command byte; the default is COM_SLEEP. Values without a name are passed on too: servers answer them
/// with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Command(pub u8);

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)+) => {
        impl Command {
            $($(#[$doc])* pub const $name: Command = Command($value);)+

            /// Lower-case words for logs and metric labels; `"unknown"` for bytes that are no command.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($value => $text,)+
                    _ => "unknown",
                }
            }

            /// All commands that have a name, in the order of their bytes.
            pub const ALL: &'static [Command] = &[$(Command::$name,)+];
        }
    };
}

commands! {
    SLEEP = 0x00, "sleep";
    QUIT = 0x01, "quit";
    INIT_DB = 0x02, "init_db";
    QUERY = 0x03, "query";
    FIELD_LIST = 0x04, "field_list";
    CREATE_DB = 0x05, "create_db";
    DROP_DB = 0x06, "drop_db";
    REFRESH = 0x07, "refresh";
    SHUTDOWN = 0x08, "shutdown";
    STATISTICS = 0x09, "statistics";
    PROCESS_INFO = 0x0a, "process_info";
    CONNECT = 0x0b, "connect";
    PROCESS_KILL = 0x0c, "process_kill";
    DEBUG = 0x0d, "debug";
    PING = 0x0e, "ping";
    TIME = 0x0f, "time";
    DELAYED_INSERT = 0x10, "delayed_insert";
    CHANGE_USER = 0x11, "change_user";
    BINLOG_DUMP = 0x12, "binlog_dump";
    TABLE_DUMP = 0x13, "table_dump";
    CONNECT_OUT = 0x14, "connect_out";
    REGISTER_SLAVE = 0x15, "register_slave";
    STMT_PREPARE = 0x16, "stmt_prepare";
    STMT_EXECUTE = 0x17, "stmt_execute";
    STMT_SEND_LONG_DATA = 0x18, "stmt_send_long_data";
    STMT_CLOSE = 0x19, "stmt_close";
    STMT_RESET = 0x1a, "stmt_reset";
    SET_OPTION = 0x1b, "set_option";
    STMT_FETCH = 0x1c, "stmt_fetch";
    DAEMON = 0x1d, "daemon";
    BINLOG_DUMP_GTID = 0x1e, "binlog_dump_gtid";
    RESET_CONNECTION = 0x1f, "reset_connection";
    CLONE = 0x20, "clone";
    SUBSCRIBE_GROUP_REPLICATION_STREAM = 0x21, "subscribe_group_replication_stream";
    /// MariaDB.
    STMT_BULK_EXECUTE = 0xfa, "stmt_bulk_execute";
    /// MariaDB, between its own processes.
    SLAVE_WORKER = 0xfb, "slave_worker";
    /// MariaDB, between its own processes.
    SLAVE_IO = 0xfc, "slave_io";
    /// MariaDB, between its own processes.
    SLAVE_SQL = 0xfd, "slave_sql";
    /// MariaDB, withdrawn.
    MULTI = 0xfe, "multi";
}

impl Command {
    /// The server answers this command at all.
    pub const fn has_response(self) -> bool {
        !matches!(
            self,
            Command::QUIT | Command::STMT_CLOSE | Command::STMT_SEND_LONG_DATA
        )
    }

    /// The connection turns into a stream that the protocol's commands do not describe any more, unless the
    /// server answers with an error: binlog dumps, clone, Group Replication.
    pub const fn starts_stream(self) -> bool {
        matches!(
            self,
            Command::BINLOG_DUMP
                | Command::BINLOG_DUMP_GTID
                | Command::TABLE_DUMP
                | Command::CLONE
                | Command::SUBSCRIBE_GROUP_REPLICATION_STREAM
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_lower_case_words() {
        let mut names: Vec<_> = Command::ALL.iter().map(|command| command.name()).collect();
        assert!(
            names
                .iter()
                .all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        );
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Command::ALL.len());
        assert_eq!(Command(0x99).name(), "unknown");
    }
}
