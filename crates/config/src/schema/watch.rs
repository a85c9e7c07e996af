//! `[cluster.NAME.check]` and `[cluster.NAME.monitor]`: how it is found out what the servers are up to.

use std::path::PathBuf;
use std::time::Duration;

use crate::duration::{hours, minutes, ms, secs};
use crate::secret::Secret;
use crate::section::{choice, section};
use crate::value::Value;

section! {
    /// Health checks.
    pub struct Check [impl Default] {
        /// `tcp`: a connection is enough. `greeting`: the server must greet, too. `login`: it must also let
        /// `user` in and answer `query`.
        pub kind: CheckKind = default(CheckKind::Greeting, "`login` with an account, else `greeting`"), Live;

        /// Time between two checks of a server.
        pub interval: Duration = default(secs(2)) in ms(50)..=hours(1), Live;

        /// Time that one check may take.
        pub timeout: Duration = default(secs(2)) in ms(10)..=minutes(10), Live;

        /// Successes in a row that bring a server up.
        pub rise: u32 = default(2) unit "checks" in 1..=1000, Live;

        /// Failures in a row that take a server down.
        pub fall: u32 = default(3) unit "checks" in 1..=1000, Live;

        /// Account for `kind = "login"`.
        pub user: Option<String> = default(None, "the account of `monitor`"), Live;

        /// Password of `user`; at most one of the three ways to give it.
        pub password: Option<Secret> = default(None), Live;

        /// File that holds the password; a newline at its end is not part of it. Read at every reload.
        pub password_file: Option<PathBuf> = default(None), Live;

        /// Environment variable that holds the password.
        pub password_env: Option<String> = default(None), Live;

        /// Statement for `kind = "login"`; any result but an error is a success.
        pub query: String = default("SELECT 1".to_owned()), Live;
    }

    /// The account that watches the servers.
    pub struct Monitor {
        /// User name. It needs REPLICATION CLIENT (MariaDB: SLAVE MONITOR), and SELECT on performance_schema
        /// for Group Replication.
        pub user: String = required, Live;

        /// Password of `user`; at most one of the three ways to give it.
        pub password: Option<Secret> = default(None), Live;

        /// File that holds the password; a newline at its end is not part of it. Read at every reload.
        pub password_file: Option<PathBuf> = default(None), Live;

        /// Environment variable that holds the password.
        pub password_env: Option<String> = default(None), Live;

        /// Time between two looks at a server.
        pub interval: Duration = default(ms(500)) in ms(20)..=hours(1), Live;

        /// Time that one look may take.
        pub timeout: Duration = default(secs(2)) in ms(10)..=minutes(10), Live;

        /// A primary that is lost or replaced is followed at once; but a server that has become it twice
        /// within a minute is taken again only after it has been the only one for this long, and each further
        /// time for twice as long, up to eight times. `0s` is off.
        pub damping: Duration = default(secs(1)) in Duration::ZERO..=hours(1), Live;

        /// Table with a column `ts` that the primary renews, for lag that the servers do not show themselves:
        /// `schema.table`.
        pub heartbeat_table: Option<String> = default(None), Live;

        /// Whether members that the servers name are added to `servers`.
        pub discover: bool = default(true), Live;
    }

    /// The account that makes another server the primary (`forebay ctl switchover`).
    pub struct Switchover {
        /// User name. The guide has the privileges that it needs.
        pub user: String = required, Live;

        /// Password of `user`; at most one of the three ways to give it.
        pub password: Option<Secret> = default(None), Live;

        /// File that holds the password; a newline at its end is not part of it. Read at every reload.
        pub password_file: Option<PathBuf> = default(None), Live;

        /// Environment variable that holds the password.
        pub password_env: Option<String> = default(None), Live;

        /// Time for the transactions and statements that are under way on the primary to come to their end,
        /// while others wait. Some that take longer, and nothing is switched.
        pub transactions_wait: Duration = default(secs(5)) in Duration::ZERO..=hours(1), Live;

        /// Time that each step may take.
        pub step_timeout: Duration = default(secs(10)) in ms(100)..=hours(1), Live;

        /// The account by which the old primary replicates from the new one.
        pub replication: Option<ReplicationAccount> = default(None, "`user` of `switchover`"), Live;
    }

    /// An account that replicates.
    pub struct ReplicationAccount {
        /// User name. It needs REPLICATION SLAVE.
        pub user: String = required, Live;

        /// Password of `user`; at most one of the three ways to give it.
        pub password: Option<Secret> = default(None), Live;

        /// File that holds the password; a newline at its end is not part of it. Read at every reload.
        pub password_file: Option<PathBuf> = default(None), Live;

        /// Environment variable that holds the password.
        pub password_env: Option<String> = default(None), Live;
    }
}

choice! {
    /// What a health check asks of a server.
    pub enum CheckKind {
        /// That it accepts a connection.
        Tcp = "tcp",
        /// That it greets.
        Greeting = "greeting",
        /// That it lets an account in and answers a statement.
        Login = "login",
    }
}

impl Monitor {
    /// An account with every option at its default, and no password.
    pub fn new(user: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            ..Self::stand_in()
        }
    }
}
