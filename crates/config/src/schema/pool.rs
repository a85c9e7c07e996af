//! `[cluster.NAME.pool]`: server connections that sessions share.

use std::time::Duration;

use crate::duration::{days, hours, minutes, ms, secs};
use crate::section::{choice, section};

section! {
    /// Server connections that sessions share. A server's `max_connections` is the limit of all workers
    /// together; sessions beyond it wait for `queue_timeout`.
    pub struct Pool [impl Default] {
        /// Connections to a server that each worker keeps although nobody uses them, of the account that was
        /// used last: from its first session on.
        pub min_idle: u32 = default(0) unit "connections" in 0..=100_000, Live;

        /// The pool finds out how many connections to a server are of use, and opens no more: statements wait
        /// for one in the meantime, and plain reads go together. Those that transactions and long statements
        /// hold come on top, up to `max_connections` of the server. `false`: one for each statement under
        /// way, up to `max_connections`.
        pub adaptive: bool = default(true), Live;

        /// A connection that nobody has used for this long is closed.
        pub idle_timeout: Duration = default(minutes(5)) in ms(100)..=days(7), Live;

        /// A connection that is older is closed when it comes back; up to a tenth sooner, so that those
        /// opened together do not end together. `0s` is never.
        pub max_age: Duration = default(hours(1)) in Duration::ZERO..=days(365), Live;

        /// A connection that nobody has used for this long is tried before it is used again. `0s` is never.
        pub ping_after: Duration = default(secs(30)) in Duration::ZERO..=days(7), Live;

        /// Which idle connection is used next.
        pub reuse: Reuse = default(Reuse::Newest), Live;

        /// Statements that every new connection begins with.
        pub init: Vec<String> = default(Vec::new()), Live;

        /// Prepared statements of clients that a connection keeps. One that it lacks is prepared together
        /// with its execution.
        pub prepared_max: u32 = default(500) unit "statements" in 1..=100_000, Live;

        /// Quick plain reads of several sessions that are sent down one connection without waiting for each
        /// other's answers, while all connections to their server are in use. They count as one in its line
        /// (`queue_max`). `1`: each waits there for a connection of its own.
        pub pipeline_max: u32 = default(16) unit "statements" in 1..=64, Live;
    }
}

choice! {
    /// Which idle connection is used next.
    pub enum Reuse {
        /// The one whose state costs least to change, of equals the one used last: those that are not needed
        /// grow idle, and are closed.
        Newest = "newest",
        /// The one that nobody has used for longest: all are used equally often, and state is set anew with
        /// most statements.
        Oldest = "oldest",
    }
}
