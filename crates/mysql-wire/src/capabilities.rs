//! Capability flags (greeting and login) and server status flags (OK and EOF packets).
//!
//! Sources: MySQL `include/mysql_com.h` documentation pages "Capability Flags" and "Server Status Flags";
//! MariaDB knowledge base "Connection", section capabilities.

use std::fmt;
use std::ops::{BitAnd, BitOr};

use serde::{Deserialize, Serialize};

/// What a client or a server can do: the low 32 bits are MySQL's flags, the high 32 bits MariaDB's extended
/// ones. A MariaDB peer shows that it sends the high half by leaving [`Capabilities::LONG_PASSWORD`] unset.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Capabilities(pub u64);

/// Flags of the server's state, sent in OK and EOF packets and in the greeting.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct StatusFlags(pub u16);

macro_rules! flags {
    ($type:ident, $int:ty, $($(#[$doc:meta])* $name:ident = $value:expr;)+) => {
        impl $type {
            $($(#[$doc])* pub const $name: $type = $type($value);)+

            const NAMES: &'static [($type, &'static str)] = &[$(($type::$name, stringify!($name)),)+];

            /// All of `flags` are set.
            pub const fn contains(self, flags: $type) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// At least one of `flags` is set.
            pub const fn intersects(self, flags: $type) -> bool {
                self.0 & flags.0 != 0
            }

            pub const fn insert(&mut self, flags: $type) {
                self.0 |= flags.0;
            }

            pub const fn remove(&mut self, flags: $type) {
                self.0 &= !flags.0;
            }

            /// This set and `flags`.
            #[must_use]
            pub const fn with(self, flags: $type) -> $type {
                $type(self.0 | flags.0)
            }

            /// This set less `flags`.
            #[must_use]
            pub const fn without(self, flags: $type) -> $type {
                $type(self.0 & !flags.0)
            }

            /// What is in both sets.
            #[must_use]
            pub const fn intersection(self, flags: $type) -> $type {
                $type(self.0 & flags.0)
            }
        }

        impl BitOr for $type {
            type Output = $type;
            fn bitor(self, other: $type) -> $type {
                self.with(other)
            }
        }

        impl BitAnd for $type {
            type Output = $type;
            fn bitand(self, other: $type) -> $type {
                self.intersection(other)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut rest = *self;
                f.write_str(stringify!($type))?;
                f.write_str("(")?;
                let mut separator = "";
                for (flag, name) in Self::NAMES {
                    if rest.contains(*flag) {
                        write!(f, "{separator}{name}")?;
                        separator = " | ";
                        rest.remove(*flag);
                    }
                }
                if rest.0 != 0 {
                    write!(f, "{separator}{:#x}", rest.0)?;
                }
                f.write_str(")")
            }
        }
    };
}

flags! { Capabilities, u64,
    /// MySQL: always set. MariaDB calls it CLIENT_MYSQL and leaves it unset to announce extended flags.
    LONG_PASSWORD = 1;
    /// Affected rows count the rows found, not the rows changed.
    FOUND_ROWS = 1 << 1;
    LONG_FLAG = 1 << 2;
    /// The login packet names a database.
    CONNECT_WITH_DB = 1 << 3;
    NO_SCHEMA = 1 << 4;
    /// The compressed protocol with zlib.
    COMPRESS = 1 << 5;
    ODBC = 1 << 6;
    /// The client answers LOCAL INFILE requests.
    LOCAL_FILES = 1 << 7;
    IGNORE_SPACE = 1 << 8;
    /// The protocol of MySQL 4.1 and later; required here.
    PROTOCOL_41 = 1 << 9;
    /// Use `interactive_timeout` in place of `wait_timeout`.
    INTERACTIVE = 1 << 10;
    /// TLS after the SSL request packet.
    SSL = 1 << 11;
    IGNORE_SIGPIPE = 1 << 12;
    /// Status flags in OK packets (always so with PROTOCOL_41).
    TRANSACTIONS = 1 << 13;
    RESERVED = 1 << 14;
    /// Login responses have a length (always so with PROTOCOL_41).
    SECURE_CONNECTION = 1 << 15;
    MULTI_STATEMENTS = 1 << 16;
    MULTI_RESULTS = 1 << 17;
    PS_MULTI_RESULTS = 1 << 18;
    /// The login packet names its authentication plugin and the server may ask for another.
    PLUGIN_AUTH = 1 << 19;
    CONNECT_ATTRS = 1 << 20;
    /// The login response's length is a length-encoded integer and not one byte.
    PLUGIN_AUTH_LENENC = 1 << 21;
    CAN_HANDLE_EXPIRED_PASSWORDS = 1 << 22;
    /// OK packets may carry session state changes.
    SESSION_TRACK = 1 << 23;
    /// No EOF after column definitions; an OK packet with header 0xFE after rows.
    DEPRECATE_EOF = 1 << 24;
    /// The packet with the column count says whether column definitions follow (MySQL).
    OPTIONAL_RESULTSET_METADATA = 1 << 25;
    /// The compressed protocol with zstd (MySQL).
    ZSTD_COMPRESSION = 1 << 26;
    /// COM_QUERY and COM_STMT_EXECUTE carry query attributes (MySQL).
    QUERY_ATTRIBUTES = 1 << 27;
    /// Up to three authentication plugins in a row (MySQL).
    MULTI_FACTOR = 1 << 28;
    CAPABILITY_EXTENSION = 1 << 29;
    SSL_VERIFY_SERVER_CERT = 1 << 30;
    REMEMBER_OPTIONS = 1 << 31;
    /// Progress reports: ERR packets with code 0xFFFF that do not end the response.
    MARIADB_PROGRESS = 1 << 32;
    /// COM_MULTI, withdrawn by MariaDB. Its responses cannot be tracked: never negotiate it.
    MARIADB_COM_MULTI = 1 << 33;
    MARIADB_STMT_BULK = 1 << 34;
    /// Column definitions carry type names and formats.
    MARIADB_EXTENDED_METADATA = 1 << 35;
    /// The packet with the column count says whether column definitions follow (MariaDB).
    MARIADB_CACHE_METADATA = 1 << 36;
    /// Bulk execution may answer with a result set of one row a unit.
    MARIADB_BULK_UNIT_RESULTS = 1 << 37;
}

impl Capabilities {
    /// Bits that only MariaDB's extended field can carry.
    pub const MARIADB_ALL: Capabilities = Capabilities(0xffff_ffff_0000_0000);

    /// These flags change the layout of packets: who passes packets on needs the same of them on both sides.
    pub const LAYOUT: Capabilities = Capabilities::PROTOCOL_41
        .with(Capabilities::SESSION_TRACK)
        .with(Capabilities::DEPRECATE_EOF)
        .with(Capabilities::OPTIONAL_RESULTSET_METADATA)
        .with(Capabilities::QUERY_ATTRIBUTES)
        .with(Capabilities::MARIADB_PROGRESS)
        .with(Capabilities::MARIADB_EXTENDED_METADATA)
        .with(Capabilities::MARIADB_CACHE_METADATA);

    /// MySQL's 32 bits, as the login packet carries them.
    pub const fn mysql(self) -> u32 {
        self.0 as u32
    }

    /// MariaDB's 32 bits, as the extended field of greeting and login carries them: none with LONG_PASSWORD.
    pub const fn mariadb(self) -> u32 {
        match self.contains(Self::LONG_PASSWORD) {
            true => 0,
            false => (self.0 >> 32) as u32,
        }
    }

    /// Joins the two halves. With LONG_PASSWORD the second is not looked at.
    pub const fn from_halves(mysql: u32, mariadb: u32) -> Capabilities {
        let mysql = Capabilities(mysql as u64);
        match mysql.contains(Self::LONG_PASSWORD) {
            true => mysql,
            false => Capabilities(mysql.0 | (mariadb as u64) << 32),
        }
    }
}

flags! { StatusFlags, u16,
    IN_TRANS = 1;
    AUTOCOMMIT = 2;
    /// Another result of the same response follows.
    MORE_RESULTS = 0x8;
    NO_GOOD_INDEX_USED = 0x10;
    NO_INDEX_USED = 0x20;
    /// The execute opened a cursor: rows come with COM_STMT_FETCH.
    CURSOR_EXISTS = 0x40;
    /// The cursor has no more rows.
    LAST_ROW_SENT = 0x80;
    DB_DROPPED = 0x100;
    NO_BACKSLASH_ESCAPES = 0x200;
    METADATA_CHANGED = 0x400;
    QUERY_WAS_SLOW = 0x800;
    PS_OUT_PARAMS = 0x1000;
    IN_TRANS_READONLY = 0x2000;
    /// The OK packet carries session state changes.
    SESSION_STATE_CHANGED = 0x4000;
    /// MariaDB only: `sql_mode` has ANSI_QUOTES.
    ANSI_QUOTES = 0x8000;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_combine_and_print_their_names() {
        let mut flags = Capabilities::SSL | Capabilities::PROTOCOL_41;
        assert!(flags.contains(Capabilities::SSL));
        assert!(!flags.contains(Capabilities::SSL | Capabilities::COMPRESS));
        assert!(flags.intersects(Capabilities::SSL | Capabilities::COMPRESS));
        flags.insert(Capabilities::MARIADB_PROGRESS);
        assert_eq!(flags.mariadb(), 1);
        assert_eq!(Capabilities::from_halves(flags.mysql(), flags.mariadb()), flags);
        flags.remove(Capabilities::SSL);
        assert_eq!(
            format!("{flags:?}"),
            "Capabilities(PROTOCOL_41 | MARIADB_PROGRESS)"
        );
        assert_eq!(
            flags.without(Capabilities::MARIADB_ALL),
            Capabilities::PROTOCOL_41
        );
        assert_eq!(flags & Capabilities::PROTOCOL_41, Capabilities::PROTOCOL_41);
        assert_eq!(format!("{:?}", StatusFlags(0x4)), "StatusFlags(0x4)");
    }
}
