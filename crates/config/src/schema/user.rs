//! `[[user]]` and `[cluster.NAME.accounts]`: accounts of mode `split`.

use std::path::PathBuf;
use std::time::Duration;

use super::listener::{ReadConsistency, TransactionReads};
use crate::duration::{days, hours, secs};
use crate::secret::Secret;
use crate::section::{choice, section};
use crate::value::Value;

section! {
    /// A file with accounts and nothing else.
    pub(crate) struct UsersFile {
        /// The accounts.
        pub(crate) users as "user": Vec<User> = default(Vec::new()), Live;
    }

    /// An account: what a client logs in with, and what the gateway logs in with on the servers for it.
    pub struct User [label name] {
        /// User name, as on the servers.
        pub name: String = required, Live;

        /// Password; exactly one of the six ways to give it. `""` is an account without one.
        pub password: Option<Secret> = default(None), Live;

        /// File that holds the password; a newline at its end is not part of it. Read at every reload. A
        /// relative path starts at the folder of the file it stands in.
        pub password_file: Option<PathBuf> = default(None), Live;

        /// Environment variable that holds the password.
        pub password_env: Option<String> = default(None), Live;

        /// Instead of the password, its hash as `mysql.user` has it for `mysql_native_password`: `*` and 40
        /// hexadecimal digits. Clients and servers must use that plugin then.
        pub native_hash: Option<Secret> = default(None), Live;

        /// Instead of the password, its hash as MySQL has it for `caching_sha2_password` (`$A$005$` and 63
        /// characters) or `sha256_password`: as text, or in hexadecimal with `0x` in front as
        /// `SHOW CREATE USER` prints it. Clients must use `caching_sha2_password`, and send the password
        /// itself when they first log in.
        pub sha2_hash: Option<Secret> = default(None), Live;

        /// Instead of the password, its public key as MariaDB has it for `ed25519`: 43 characters. Clients
        /// log in as with `sha2_hash`.
        pub ed25519_key: Option<Secret> = default(None), Live;

        /// The password before the present one, which clients may go on using while it is being changed, and
        /// servers that do not have the present one yet.
        pub previous_password formerly "other_password": Option<Secret> = default(None), Live;

        /// The same, as a hash in the form of `native_hash`.
        pub previous_native_hash formerly "other_native_hash": Option<Secret> = default(None), Live;

        /// The same, as a hash in the form of `sha2_hash`.
        pub previous_sha2_hash formerly "other_sha2_hash": Option<Secret> = default(None), Live;

        /// The same, as a key in the form of `ed25519_key`.
        pub previous_ed25519_key formerly "other_ed25519_key": Option<Secret> = default(None), Live;

        /// When a server connection goes back to the pool: after each transaction, or with the session's end.
        pub pooling: Pooling = default(Pooling::Transaction), NewSessions;

        /// How fresh reads on replicas are.
        pub read_consistency: Option<ReadConsistency> = default(None, "the listener's"), NewSessions;

        /// Where transactions read before they write.
        pub transaction_reads: Option<TransactionReads> = default(None, "the listener's"), NewSessions;

        /// Sessions of this account at the same time; further ones are refused with error 1226.
        pub max_connections: Option<u32> = default(None) unit "sessions" in Some(1)..=Some(10_000_000), Live;
    }

    /// Who may log in at listeners of mode `split`, besides `[[user]]`.
    pub struct Accounts [short "from"] [impl Default] {
        /// `servers`: the accounts in the primary's `mysql.user`, too, which the account of `monitor` must be
        /// able to read (MariaDB: `mysql.global_priv`). `pass-through`: whoever a server lets in; the client
        /// has to send its password, in a way that its link allows. An account of the same name in `[[user]]`
        /// goes first.
        pub from: AccountsFrom = default(AccountsFrom::Configured), Live;

        /// Time between two reads. A login that fails, and one that a server refuses, make for another one
        /// within a second. With `pass-through`, time for which a server's word on a password is taken; the
        /// next login after it asks again.
        pub interval: Duration = default(secs(30)) in secs(1)..=days(1), Live;

        /// Whether a password that was sent in full and is right stays in memory for later logins of the same
        /// account, as in the cache of a server. Without it every login of an account with a hash of
        /// `caching_sha2_password`, of the servers or in `[[user]]`, has to send it, and every login with
        /// `pass-through` is tried on a server.
        pub keep_passwords: bool = default(true), Live;

        /// Passwords that are kept with `pass-through`; further ones take the place of that which was not
        /// used for longest.
        pub passwords_max: u32 = default(10_000) unit "accounts" in 1..=1_000_000, Live;

        /// With `pass-through`, time after which a password that nobody has logged in with is forgotten.
        pub forget_after: Duration = default(hours(1)) in secs(1)..=days(365), Live;
    }
}

choice! {
    /// Where accounts come from.
    pub enum AccountsFrom {
        /// `[[user]]` and the users file.
        Configured = "configured",
        /// Those, and what the servers have.
        Servers = "servers",
        /// The first, and whoever a server lets in.
        PassThrough = "pass-through",
    }

    /// When a server connection goes back to the pool.
    pub enum Pooling {
        /// After each transaction, or statement outside one.
        Transaction = "transaction",
        /// When the session ends.
        Session = "session",
    }
}

impl User {
    /// An account with every option at its default.
    pub fn new(name: impl Into<String>, password: Option<Secret>) -> Self {
        Self {
            name: name.into(),
            password,
            ..Self::stand_in()
        }
    }
}
