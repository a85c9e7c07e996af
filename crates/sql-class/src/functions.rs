//! Functions of the servers that do more than compute a value.

use crate::facts::{Class, Effects};
use crate::syntax::Dialect;

pub(crate) struct Function {
    name: &'static str,
    servers: Servers,
    pub(crate) effects: Effects,
    /// What a statement that calls it is at least.
    pub(crate) class: Class,
}

#[derive(PartialEq)]
enum Servers {
    Both,
    MariaDb,
}

/// The function of this name, in any case, if there is anything to say of it.
pub(crate) fn find(name: &[u8], dialect: Dialect) -> Option<&'static Function> {
    let same = |function: &&Function| function.name.as_bytes().eq_ignore_ascii_case(name);
    let found = FUNCTIONS.iter().find(same)?;
    (found.servers == Servers::Both || dialect.is_mariadb()).then_some(found)
}

const fn reads(name: &'static str, effects: Effects) -> Function {
    Function {
        name,
        servers: Servers::Both,
        effects,
        class: Class::Read,
    }
}

const fn sequence(name: &'static str, class: Class) -> Function {
    Function {
        name,
        servers: Servers::MariaDb,
        effects: Effects::SEQUENCE,
        class,
    }
}

const FUNCTIONS: &[Function] = &[
    reads("GET_LOCK", Effects::TAKES_USER_LOCK),
    reads("RELEASE_LOCK", Effects::NEEDS_USER_LOCKS),
    reads("IS_USED_LOCK", Effects::NEEDS_USER_LOCKS),
    reads("IS_FREE_LOCK", Effects::NEEDS_USER_LOCKS),
    reads("RELEASE_ALL_LOCKS", Effects::RELEASES_ALL_LOCKS),
    reads("LAST_INSERT_ID", Effects::READS_LAST_INSERT_ID),
    reads("ROW_COUNT", Effects::READS_ROW_COUNT),
    reads("FOUND_ROWS", Effects::READS_FOUND_ROWS),
    reads("CONNECTION_ID", Effects::READS_CONNECTION_ID),
    reads("PS_CURRENT_THREAD_ID", Effects::READS_CONNECTION_ID),
    reads("PS_THREAD_ID", Effects::READS_SERVER),
    reads("LOAD_FILE", Effects::SERVER_FILE),
    reads("MASTER_POS_WAIT", Effects::READS_SERVER),
    reads("SOURCE_POS_WAIT", Effects::READS_SERVER),
    reads("MASTER_GTID_WAIT", Effects::READS_SERVER),
    reads("WAIT_FOR_EXECUTED_GTID_SET", Effects::READS_SERVER),
    reads("WAIT_UNTIL_SQL_THREAD_AFTER_GTIDS", Effects::READS_SERVER),
    reads("BINLOG_GTID_POS", Effects::READS_SERVER),
    reads("WSREP_LAST_SEEN_GTID", Effects::READS_SERVER),
    reads("WSREP_LAST_WRITTEN_GTID", Effects::READS_SERVER),
    reads("WSREP_SYNC_WAIT_UPTO_GTID", Effects::READS_SERVER),
    sequence("NEXTVAL", Class::Write),
    sequence("SETVAL", Class::Write),
    sequence("LASTVAL", Class::Read),
];
