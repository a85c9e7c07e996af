//! `[cache]` and `[[cache.mapping]]`: which rows are kept in memory, and how much of it.

use std::path::PathBuf;
use std::time::Duration;

use crate::byte_size::ByteSize;
use crate::duration::{minutes, ms, secs};
use crate::secret::Secret;
use crate::section::{choice, section};
use crate::value::Value;
use crate::zone_offset::ZoneOffset;

section! {
    /// Rows of chosen tables in memory, kept as they are on the primary by its binary log. They are read over
    /// the Redis protocol (`protocol`) and by point lookups (`point_lookups`).
    pub struct Cache {
        /// Name of the `[cluster.NAME]` whose rows they are.
        pub cluster: String = required, Restart;

        /// Most memory for rows and their index, of all mappings together.
        pub memory_max: ByteSize = default(ByteSize::gibibytes(1)) in ByteSize::mebibytes(1)..=ByteSize::gibibytes(65_536), Restart;

        /// `whole`: every row of the mapped tables; a table that does not fit is not served. `bounded`: rows
        /// that were asked for, those that were not used lately make room for others.
        pub mode: CacheMode = default(CacheMode::Whole), Restart;

        /// Time that a read waits until the memory is as new as its consistency demands. Then it fails.
        pub strong_wait: Duration = default(secs(1)) in ms(1)..=minutes(10), Restart;

        /// The account that reads the binary log and the mapped tables.
        pub account: Option<CacheAccount> = default(None, "the account of the cluster's `monitor`"), Restart;

        /// The time zone in which values of TIMESTAMP columns are shown over the Redis protocol.
        pub time_zone: ZoneOffset = default(ZoneOffset::UTC), Restart;

        /// Keys of which is remembered that Redis clients keep them themselves (`CLIENT TRACKING`), those of
        /// two clients counted twice, and long ones several times. Where there are more, some are forgotten,
        /// and their clients are told that they have changed.
        pub tracking_keys_max: u32 = default(1_000_000) unit "keys" in 1..=1_000_000_000, Restart;

        /// Rows that the first copy of a table reads with one statement.
        pub copy_chunk: u32 = default(5000) unit "rows" in 1..=1_000_000, Restart;

        /// The number under which the gateway shows among the replicas of a server; no server and no other
        /// gateway may have it.
        pub server_id: Option<u32> = default(None, "drawn at random at start") in Some(1)..=Some(u32::MAX), Restart;

        /// Mappings are also read from the tables `forebay.string_containers` and `forebay.hash_containers`
        /// of the primary, and followed there. Whoever may write to these tables says what is kept; who may
        /// read it is asked of the server in any case.
        pub mapping_tables: bool = default(false), Live;

        /// The tables, and what of them is kept. A reload copies those that are new or changed; the others
        /// are served meanwhile.
        pub mappings as "mapping": Vec<CacheMapping> = default(Vec::new()), Live;
    }

    /// The account that reads the binary log and the mapped tables.
    pub struct CacheAccount {
        /// User name. It needs REPLICATION SLAVE, REPLICATION CLIENT (MariaDB: BINLOG MONITOR; also SLAVE
        /// MONITOR where log_slave_updates is OFF) and SELECT on the mapped tables.
        pub user: String = required, Restart;

        /// Password of `user`; at most one of the three ways to give it.
        pub password: Option<Secret> = default(None), Restart;

        /// File that holds the password; a newline at its end is not part of it.
        pub password_file: Option<PathBuf> = default(None), Restart;

        /// Environment variable that holds the password.
        pub password_env: Option<String> = default(None), Restart;
    }

    /// One kind of rows of one table: what finds a row, and what is kept of it.
    pub struct CacheMapping [label name] {
        /// The first part of its Redis keys, before the `@`.
        pub name: String = required, Live;

        /// `string`: one column, for GET. `hash`: columns by their names, for HGET.
        pub kind: MappingKind = required, Live;

        /// The table as `schema.table`.
        pub table: String = required, Live;

        /// The columns that find a row: those of a unique index without NULL. In Redis keys their values
        /// stand in this order, joined with `:`; a `:` or `\` inside one has a `\` before it.
        pub key: Vec<String> = required, Live;

        /// The columns that are kept. `["*"]` is all of them, for `hash`.
        pub value: Vec<String> = required, Live;

        /// The unique index over the columns of `key`, where it is named.
        pub index: Option<String> = internal(None), Live;

        /// The table of mappings that it is a row of.
        pub row_of: Option<String> = internal(None), Live;
    }
}

choice! {
    /// Which rows are kept.
    pub enum CacheMode {
        /// All: what is not there does not exist.
        Whole = "whole",
        /// Those that were asked for.
        Bounded = "bounded",
    }

    /// What a row is to Redis clients.
    pub enum MappingKind {
        /// A string: one column.
        String = "string",
        /// A hash: columns by their names.
        Hash = "hash",
    }
}

impl Cache {
    /// A cache of a cluster, with every other option at its default.
    pub fn new(cluster: impl Into<String>) -> Self {
        Self {
            cluster: cluster.into(),
            ..Self::stand_in()
        }
    }
}

impl CacheAccount {
    /// An account.
    pub fn new(user: impl Into<String>, password: Option<Secret>) -> Self {
        Self {
            user: user.into(),
            password,
            ..Self::stand_in()
        }
    }
}

impl CacheMapping {
    /// A mapping with every option given.
    pub fn new(name: &str, kind: MappingKind, table: &str, key: &[&str], value: &[&str]) -> Self {
        let owned = |columns: &[&str]| columns.iter().map(|&column| column.to_owned()).collect();
        Self {
            name: name.to_owned(),
            kind,
            table: table.to_owned(),
            key: owned(key),
            value: owned(value),
            ..Self::stand_in()
        }
    }

    /// The schema and the table of `table`.
    pub fn schema_and_table(&self) -> (&str, &str) {
        self.table.split_once('.').unwrap_or(("", &self.table))
    }
}
