//! `[[rule]]`: what happens to certain statements in mode `split`, and `[cluster.NAME.group.NAME]`, where
//! they may be sent.

use std::time::Duration;

use ipnet::IpNet;

use super::listener::ReadConsistency;
use crate::duration::{days, hours, minutes};
use crate::fraction::Fraction;
use crate::matcher::{DigestHash, Glob, Pattern};
use crate::section::{choice, section};
use crate::value::Value;

section! {
    /// What happens to the statements that it matches. Without any condition it matches every statement.
    pub struct Rule [label name] {
        /// The rule in logs, metrics and explanations.
        pub name: String = default(String::new(), "`rule-` and its place in the file"), Live;

        /// Whether the rule takes part.
        pub enabled: bool = default(true), Live;

        /// Matches sessions of one of these accounts. `*` in a name stands for any text, `?` for one
        /// character.
        pub user: Vec<Glob> = default(Vec::new(), "every user"), Live;

        /// Matches sessions whose default schema is one of these; `*` and `?` as in `user`.
        pub schema: Vec<Glob> = default(Vec::new(), "every schema, and none"), Live;

        /// Matches clients of these networks. Clients of a Unix socket are in none.
        pub client: Vec<IpNet> = default(Vec::new(), "every client"), Live;

        /// Matches sessions of the listeners with these names.
        pub listener: Vec<String> = default(Vec::new(), "every listener of mode `split`"), Live;

        /// Matches statements with one of these digests, as `FOREBAY EXPLAIN` and the logs have them.
        pub digest: Vec<DigestHash> = default(Vec::new(), "every digest"), Live;

        /// Matches statements in whose normalised text (literals are `?`, names without backticks, one space
        /// between tokens) this regular expression is found. Case counts only after `(?-i)`.
        pub digest_text: Option<Pattern> = default(None), Live;

        /// Matches statements in whose text, with its literals and comments, this regular expression is
        /// found. Case counts only after `(?-i)`. Slower than the other conditions.
        pub text: Option<Pattern> = default(None), Live;

        /// Turns `digest_text` and `text` round: the rule matches where they are not found.
        pub negate: bool = default(false), Live;

        /// Matches statements of one of these classes.
        pub class: Vec<StatementClass> = default(Vec::new(), "every class"), Live;

        /// Matches statements that name one of these tables: `table` in any schema, or `schema.table`; `*`
        /// and `?` as in `user`.
        pub table: Vec<Glob> = default(Vec::new(), "every statement"), Live;

        /// Matches statements that begin with the comment `/* forebay: tag=WORD */` and one of these words.
        pub tag: Vec<Glob> = default(Vec::new(), "every statement"), Live;

        /// Where the statement goes, whatever the gateway thinks of it: `primary`, `replicas`, or the name of
        /// a `[cluster.NAME.group.NAME]` of the listener's cluster. A transaction stays where it began.
        pub route: Option<String> = default(None, "what the statement's class says"), Live;

        /// `always`: the session keeps its server connection from here on. `never`: whatever the statement
        /// does to its session is no reason to keep the connection.
        pub pin: Option<PinRule> = default(None, "what the statement does decides"), Live;

        /// Refuse the statement with error 1148 and this text.
        pub refuse: Option<String> = default(None), Live;

        /// Answer the statement with OK and this text (which may be empty), without having a server execute
        /// it.
        pub answer_ok: Option<String> = default(None), Live;

        /// Put this in the place of what `text` matched, before anything else looks at the statement. `$1` or
        /// `${name}` is what a group of the expression matched, `$$` is a dollar sign.
        pub rewrite: Option<String> = default(None), Live;

        /// Rewrite every match in the statement instead of the first.
        pub rewrite_all: bool = default(false), Live;

        /// Statements of this rule under way at the same time, in the whole gateway.
        pub max_concurrency: Option<u32> = default(None) unit "statements" in Some(1)..=Some(1_000_000), Live;

        /// Statements of this rule in a second, in the whole gateway.
        pub rate: Option<u32> = default(None) unit "statements per second" in Some(1)..=Some(1_000_000), Live;

        /// Statements that may come at once before `rate` slows them down.
        pub burst: Option<u32> = default(None, "`rate`") unit "statements" in Some(1)..=Some(1_000_000), Live;

        /// Time that a statement over `max_concurrency` or `rate` waits for its turn, before it is refused.
        pub limit_wait: Duration = default(Duration::ZERO) in Duration::ZERO..=hours(1), Live;

        /// Time that the statement may take; then it is killed on its server, and the client is told.
        pub timeout: Option<Duration> = default(None) in Some(Duration::from_millis(1))..=Some(days(30)), Live;

        /// Hold the statement back for this time before it is sent.
        pub delay: Option<Duration> = default(None) in Some(Duration::from_millis(1))..=Some(minutes(10)), Live;

        /// Times that a plain read outside a transaction whose server was lost before it answered is sent to
        /// another one.
        pub retries: Option<u32> = default(None, "once") in Some(0)..=Some(1000), Live;

        /// Send a copy of the statement to this cluster, unless it is a prepared one. Nobody waits for its
        /// answer, and copies are dropped when too many are under way.
        pub mirror: Option<String> = default(None), Live;

        /// The share of these copies whose answer is compared with the one that the client got: `forebay ctl
        /// mirrors` lists statements that are answered differently. Only outside of transactions.
        pub mirror_compare: Option<Fraction> = default(None, "none is compared"), Live;

        /// Write a log line for each statement: who, where, digest, time.
        pub log: bool = default(false), Live;

        /// How fresh the read must be.
        pub read_consistency: Option<ReadConsistency> = default(None, "the user's or the listener's"), Live;

        /// Go on with the next rules after this one matched. What they say is added; where two say different
        /// things, the later one counts.
        pub go_on as "continue": bool = default(false), Live;

        /// For people.
        pub comment: Option<String> = default(None), Live;
    }

    /// Servers of a cluster that rules and hints can name together.
    pub struct Group {
        /// Names of the servers; a server that is found by itself has its address with the port for a name.
        pub servers: Vec<String> = required, Live;

        /// The servers get no reads but those that are sent to a group by name.
        pub exclusive: bool = default(false), Live;
    }
}

choice! {
    /// What a statement does.
    pub enum StatementClass {
        /// Reads and leaves nothing behind.
        Read = "read",
        /// Changes the session only: `SET`, `USE`.
        Session = "session",
        /// `SELECT … FOR UPDATE` and the like.
        LockingRead = "locking-read",
        /// `START TRANSACTION READ ONLY`.
        BeginReadOnly = "begin-read-only",
        /// `BEGIN`, `START TRANSACTION`, `XA START`.
        Begin = "begin",
        /// `COMMIT`, `ROLLBACK`, `SAVEPOINT`.
        Transaction = "transaction",
        /// Changes rows.
        Write = "write",
        /// Changes the schema.
        Ddl = "ddl",
        /// About the server.
        Administration = "administration",
        /// Not understood, or may do anything.
        Unknown = "unknown",
    }

    /// Whether a session keeps its server connection after a statement.
    pub enum PinRule {
        /// It does.
        Always = "always",
        /// It does not for the sake of this statement.
        Never = "never",
    }
}

impl Rule {
    /// A rule with every option at its default: matches everything, does nothing.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::stand_in()
        }
    }
}
