//! Connections to the primary that ask it where it is, and for rows.
//!
//! Each exchange begins with a question that only the primary answers as the primary: it must not be
//! read-only, and a member of a group must first apply all that the group has agreed on
//! (`group_replication_consistency`, `wsrep_sync_wait`). What is asked behind that in the same exchange is at
//! least as new as everything that was acknowledged before.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use config::CacheAccount;
use mysql_wire::binlog::BinlogError;
use mysql_wire::gtid::{Flavor, MariaDbPosition};
use tokio::time::Instant;
use upstream::conversation::{Broken, QueryError, TextRow};
use upstream::{Backoff, Cluster, DirectError, ServerId, Topology};

use super::position_query::Asks;
use crate::coherence::{Place, Position, SourceId, file_number};
use crate::feed::link::Link;
use crate::feed::{FeedStatus, NEW_STATUS, OLD_STATUS, source_id, words_of_mariadb};
use crate::mapping::{SESSION, name, text_at};

/// No right to read a schema, a table or a column, and none of that name; and what is no SQL to the server.
const FINAL: [u16; 7] = [1044, 1142, 1143, 1049, 1146, 1054, 1064];

/// Pauses between connections that are given up because they lead to another machine than the feed's.
const STRAY_MAX: Duration = Duration::from_secs(2);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), STRAY_MAX);

/// The longest answers where no rows are asked for, in bytes.
pub(super) const POSITION_MAX: usize = 16 << 20;

/// Why the primary has not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("there is no primary")]
    NoPrimary,
    #[error("the primary has changed")]
    Superseded,
    #[error("the primary {server} cannot be reached: {error}")]
    Connect { server: String, error: DirectError },
    #[error("no answer from the primary within {} ms", .0.as_millis())]
    Timeout(Duration),
    #[error("{0} is read-only and so not the primary")]
    ReadOnly(String),
    #[error("gtid_strict_mode is off")]
    NotStrict,
    #[error("the primary: {0}")]
    Link(#[from] QueryError),
    #[error("the primary's answer makes no sense: {0}")]
    Malformed(&'static str),
    #[error("the primary's answer makes no sense: {0}")]
    Row(#[from] BinlogError),
    #[error("the primary's answer is longer than {0} bytes: ask for fewer keys at once")]
    TooLong(usize),
}

impl AskError {
    /// Asking again does not help: other refusals (a lock, a group that is not whole) pass.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Link(error) => error.code().is_some_and(|code| FINAL.contains(&code)),
            Self::Row(_) | Self::TooLong(_) => true,
            _ => false,
        }
    }
}

/// Where the primary is, and who asks.
pub(super) struct Primary {
    pub(super) cluster: Arc<Cluster>,
    account: CacheAccount,
    feed_status: Arc<FeedStatus>,
    strays: Cell<Strays>,
}

/// Connections that lead to another machine than the one that the feed follows, though the address is the
/// same: one of the two has not heard of the change. They are given up one after the other, with growing
/// pauses, or a place where each connection leads to another machine would see nothing but logins.
#[derive(Clone, Copy, Default)]
struct Strays {
    /// When the next is given up, and the pauses after that.
    next: Option<(Instant, Backoff)>,
}

impl Strays {
    /// Whether one is given up now.
    fn give_up(&mut self, now: Instant) -> bool {
        let mut backoff = match self.next {
            Some((next, _)) if now < next => return false,
            Some((next, backoff)) if now < next + STRAY_MAX => backoff,
            _ => BACKOFF,
        };
        self.next = Some((now + backoff.pause(), backoff));
        true
    }
}

/// A connection to the server that was the primary when it was opened.
pub(super) struct PrimaryConnection {
    pub(super) link: Link,
    pub(super) flavor: Flavor,
    server: ServerId,
    server_name: String,
    address: String,
    /// See [`source_id`].
    words: String,
    /// Who answered last.
    met: Cell<Option<SourceId>>,
    status: &'static str,
    identity: [String; 2],
    /// Where the primary is: without and with GTIDs.
    pub(super) asks: [Asks; 2],
    /// Which is read before all else.
    table: Option<String>,
    /// Every transaction has a GTID. Always so with MariaDB.
    pub(super) has_gtids: bool,
}

/// What the primary says of itself.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) source: SourceId,
    /// `gtid_executed`, or `gtid_binlog_pos` of MariaDB; empty where they were not asked for.
    pub(super) gtids: Vec<u8>,
    /// Which can stand for a place in the log.
    pub(super) is_strict: bool,
}

impl Primary {
    pub(super) fn new(config: &config::Cache, cluster: Arc<Cluster>, feed_status: Arc<FeedStatus>) -> Self {
        let nobody = || CacheAccount::new("", None);
        Self {
            cluster,
            // Without an account the feed does not start.
            account: config.account.clone().unwrap_or_else(nobody),
            feed_status,
            strays: Cell::default(),
        }
    }

    pub(super) async fn connect(&self) -> Result<PrimaryConnection, AskError> {
        let topology = self.cluster.topology();
        let server = Arc::clone(&topology.primary().ok_or(AskError::NoPrimary)?.server);
        let opened = Link::open(&self.cluster, &server, &self.account).await;
        let (link, flavor) = opened.map_err(|error| AskError::Connect {
            server: server.name().to_owned(),
            error,
        })?;
        let table = self.table();
        let mut connection = PrimaryConnection {
            link,
            flavor,
            server: server.id(),
            server_name: server.name().to_owned(),
            address: server.address().to_string(),
            words: String::new(),
            met: Cell::new(None),
            status: NEW_STATUS,
            identity: identity(flavor, table.as_deref()),
            asks: Default::default(),
            table,
            has_gtids: true,
        };
        let topology = self.cluster.config().topology;
        let in_group = matches!(
            topology,
            config::Topology::GroupReplication | config::Topology::Galera
        );
        connection.prepare(in_group).await?;
        Ok(connection)
    }

    /// The connection goes to the primary of this moment, where that is now.
    pub(super) fn is_current(&self, connection: &PrimaryConnection) -> bool {
        let topology = self.cluster.topology();
        let is_primary = topology.primary().is_some_and(|primary| {
            primary.server.id() == connection.server && !connection.link.is_elsewhere(&primary.server)
        });
        is_primary && connection.table == self.table() && !self.gives_up(connection)
    }

    /// The connection leads to another machine than the feed's, and it is time to see where its address leads
    /// now.
    fn gives_up(&self, connection: &PrimaryConnection) -> bool {
        let probes = self.feed_status.probes();
        if !connection.met.get().is_some_and(|met| probes.is_elsewhere(met)) {
            return false;
        }
        let mut strays = self.strays.get();
        let gives_up = strays.give_up(Instant::now());
        self.strays.set(strays);
        gives_up
    }

    /// A connection that was just made has its first answer. Where it leads to the feed's machine others
    /// will, too: each stray that is left is given up as soon as it is used.
    pub(super) fn note_first_answer(&self, connection: &PrimaryConnection) {
        let probes = self.feed_status.probes();
        if connection.met.get().is_some_and(|met| !probes.is_elsewhere(met)) {
            self.strays.set(Strays::default());
        }
    }

    /// Ends when the primary of `topology` is not the primary any more.
    pub(super) async fn superseded(&self, mut topology: Arc<Topology>) {
        let id = |topology: &Topology| topology.primary().map(|primary| primary.server.id());
        let asked = id(&topology);
        while id(&topology) == asked {
            topology = self.cluster.wait_for_topology_change(topology.generation).await;
        }
    }

    /// Some table, where servers wait for their group only before they read one.
    fn table(&self) -> Option<String> {
        if self.cluster.config().topology != config::Topology::GroupReplication {
            return None;
        }
        let mappings = self.feed_status.mappings();
        let mapping = mappings.all().first()?;
        Some(format!("{}.{}", name(&mapping.schema), name(&mapping.table)))
    }
}

impl PrimaryConnection {
    /// Makes the session one whose answers mean what is read here.
    async fn prepare(&mut self, in_group: bool) -> Result<(), AskError> {
        self.link.query(SESSION).await?;
        let waits = match self.flavor {
            Flavor::MySql => "SET SESSION group_replication_consistency = 'BEFORE'",
            Flavor::MariaDb => "SET SESSION wsrep_sync_wait = 1",
        };
        match self.link.query(waits).await {
            // A server without groups may not know it.
            Err(QueryError::Refused(_)) if !in_group => {}
            other => drop(other?),
        }
        self.link
            .query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            .await?;
        if self.flavor == Flavor::MySql {
            let mode = self.link.value("SELECT @@GLOBAL.gtid_mode").await?;
            self.has_gtids = mode.as_deref() == Some("ON");
            self.link
                .query("SET SESSION innodb_lock_wait_timeout = 1")
                .await?;
        }
        if self.flavor == Flavor::MariaDb {
            // For as long as this connection lives: no other server is at its other end.
            self.words = words_of_mariadb(&mut self.link).await?;
        }
        match self.link.query(self.status).await {
            Err(error) if error.is_syntax() => self.status = OLD_STATUS,
            other => drop(other?),
        }
        Ok(())
    }

    /// Sends statements behind the question who this is, and reads all answers, which together take no more
    /// than `bytes_max` of memory. The first error of the server ends it, when all that were sent are
    /// answered.
    pub(super) async fn ask(
        &mut self,
        with_gtids: bool,
        statements: &[&str],
        bytes_max: usize,
    ) -> Result<(Identity, Vec<Vec<TextRow>>), AskError> {
        let mut room = bytes_max;
        let mut all = Vec::with_capacity(statements.len() + 1);
        all.push(self.identity[usize::from(with_gtids)].as_str());
        all.extend_from_slice(statements);
        self.link.send_queries(&all).await?;
        let mut answers = Vec::with_capacity(all.len());
        let mut refused = None;
        for _ in 0..all.len() {
            match self.link.result_within(&mut room).await {
                Ok(rows) => answers.push(rows),
                Err(error @ QueryError::Refused(_)) => refused = refused.or(Some(error)),
                Err(QueryError::Broken(Broken::TooLong(_))) => return Err(AskError::TooLong(bytes_max)),
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(error) = refused {
            return Err(error.into());
        }
        let identity = self.identified(with_gtids, &answers.remove(0))?;
        Ok((identity, answers))
    }

    /// The statement that says where the binary log ends.
    pub(super) fn status(&self) -> &'static str {
        self.status
    }

    /// The question who this is.
    pub(super) fn identity(&self, with_gtids: bool) -> &str {
        &self.identity[usize::from(with_gtids)]
    }

    fn identified(&self, with_gtids: bool, rows: &[TextRow]) -> Result<Identity, AskError> {
        let row = rows.first().ok_or(AskError::Malformed("no identity"))?;
        let text = |at: usize| row.get(at).and_then(Option::as_deref).unwrap_or_default();
        let gtids = if with_gtids { text(1) } else { b"" };
        let source = self.source(text(0))?;
        Ok(Identity {
            source,
            gtids: gtids.to_vec(),
            is_strict: is_strict(text(0)),
        })
    }

    /// Who this is, if it is the primary: `server_uuid`, `server_id`, `read_only`, `super_read_only`; with
    /// GTIDs, whether they [grow without exception](is_strict), too.
    pub(super) fn source(&self, words: &[u8]) -> Result<SourceId, AskError> {
        const NOBODY: AskError = AskError::Malformed("no identity");
        let words = std::str::from_utf8(words).map_err(|_| NOBODY)?;
        let mut words = words.split(',');
        let [
            Some(uuid),
            Some(server_id),
            Some(read_only),
            Some(super_read_only),
        ] = [(); 4].map(|()| words.next())
        else {
            return Err(NOBODY);
        };
        if is_on(read_only) || is_on(super_read_only) {
            return Err(AskError::ReadOnly(self.server_name.clone()));
        }
        let server_id = server_id.parse().map_err(|_| NOBODY)?;
        let uuid = match self.flavor {
            Flavor::MySql => uuid,
            Flavor::MariaDb => &self.words,
        };
        let source = source_id(self.flavor, uuid, server_id, &self.address);
        self.met.set(Some(source));
        Ok(source)
    }
}

/// The question who this is, without and with its GTIDs, which cost a server that writes some waiting. One
/// value has all that seldom changes, so that it can be compared as a whole.
fn identity(flavor: Flavor, table: Option<&str>) -> [String; 2] {
    let (strict, gtids) = match flavor {
        Flavor::MySql => ("", ", @@GLOBAL.gtid_executed"),
        Flavor::MariaDb => (", @@GLOBAL.gtid_strict_mode", ", @@GLOBAL.gtid_binlog_pos"),
    };
    let (uuid, super_read_only) = match flavor {
        Flavor::MySql => ("@@GLOBAL.server_uuid", "@@GLOBAL.super_read_only"),
        Flavor::MariaDb => ("''", "0"),
    };
    let read = table.map_or(String::new(), |table| {
        format!(", (SELECT 1 FROM {table} LIMIT 1)")
    });
    [("", ""), (strict, gtids)].map(|(strict, gtids)| {
        format!(
            "SELECT CONCAT_WS(',', {uuid}, @@GLOBAL.server_id, @@GLOBAL.read_only, {super_read_only}{strict}){gtids}{read}"
        )
    })
}

/// MariaDB: GTIDs of a domain grow without exception, as words about a server say. Somebody may have switched
/// that off.
pub(super) fn is_strict(words: &[u8]) -> bool {
    let last = words.rsplit(|byte| *byte == b',').next();
    last.is_some_and(|word| str::from_utf8(word).is_ok_and(is_on))
}

/// A variable that is not off.
fn is_on(value: &str) -> bool {
    !value.eq_ignore_ascii_case("OFF") && value != "0"
}

/// The position in a row of `SHOW BINARY LOG STATUS`.
pub(super) fn end_of_log(source: SourceId, rows: &[TextRow]) -> Result<Position, AskError> {
    let row = rows.first().ok_or(AskError::Malformed("it has no binary log"))?;
    file_position(source, text_at(row, 0), text_at(row, 1))
}

/// The position of a file by its name, and an offset.
pub(super) fn file_position(source: SourceId, file: &str, offset: &str) -> Result<Position, AskError> {
    match (file_number(file), offset.parse()) {
        (Some(file), Ok(offset)) => Ok(Position {
            source,
            place: Place::File { file, offset },
        }),
        _ => Err(AskError::Malformed("no position in its binary log")),
    }
}

/// The position that GTIDs of MariaDB are.
pub(super) fn gtid_position(source: SourceId, gtids: &[u8]) -> Result<Position, AskError> {
    let position = MariaDbPosition::parse(gtids).map_err(|_| AskError::Malformed("no GTIDs"))?;
    Ok(Position {
        source,
        place: Place::MariaDb(position),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strays_are_given_up_with_growing_pauses() {
        let begun = Instant::now();
        let given_up = |strays: &mut Strays, from: u64, to: u64| {
            let moments = (from..to).map(|ms| begun + Duration::from_millis(ms));
            moments.filter(|&now| strays.give_up(now)).count()
        };
        let mut strays = Strays::default();
        assert_eq!(given_up(&mut strays, 0, 1), 1, "the first at once");
        assert_eq!(given_up(&mut strays, 1, 60_000), 34, "then one in two seconds");
        assert_eq!(given_up(&mut strays, 70_000, 70_060), 2, "at once again");
    }

    #[test]
    fn the_end_of_the_log_is_read() {
        let row = |file: &str, offset: &str| vec![vec![Some(file.into()), Some(offset.into()), None]];
        let source = SourceId(7);
        assert_eq!(
            end_of_log(source, &row("binlog.000012", "4711")).unwrap(),
            Position {
                source,
                place: Place::File {
                    file: 12,
                    offset: 4711
                }
            }
        );
        for rows in [vec![], vec![vec![]], row("binlog", "4"), row("binlog.000012", "")] {
            assert!(end_of_log(source, &rows).is_err());
        }
    }
}
