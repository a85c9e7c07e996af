//! Opening the stream of a primary's binary log: where to begin, and whether what is in memory may stay.

use std::time::Duration;

use mysql_wire::binlog::{Command, Start, settings};
use mysql_wire::gtid::{Flavor, GtidSet};
use tokio::time::{Instant, sleep};
use upstream::conversation::{Broken, QueryError};
use upstream::{Cluster, DirectError, Server};

use super::account::Replica;
use super::copy::COMMITTED;
use super::link::Link;
use super::preflight::{self, FilePosition, PreflightError, Primary};
use super::progress::Progress;
use crate::coherence::{SourceId, may_stay};
use crate::mapping::variable;
use crate::store::Version;

/// Time between heartbeats of a stream that has nothing else to say.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(250);

/// Time without a heartbeat after which a stream is taken for dead.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// The same at first where MySQL looks for the file to begin with.
const SILENCE_OF_MYSQL: Duration = Duration::from_secs(15);

/// The same at first where MariaDB looks for a GTID in a log, which may be long and on a slow disk.
const SILENCE_OF_MARIADB: Duration = Duration::from_secs(60);

/// Time until what a server does not have is taken for lost.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// "Could not find first log file name", "purged required binary logs", "impossible position", and the like.
pub(super) const ER_FATAL_ERROR_READING_BINLOG: u16 = 1236;

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub(super) enum DumpError {
    #[error(transparent)]
    Connect(#[from] DirectError),
    #[error(transparent)]
    Link(#[from] QueryError),
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    #[error("its GTIDs cannot be read: {0}")]
    Gtids(#[from] mysql_wire::WireError),
    #[error(
        "its binary log {0} is longer than 4 GiB, and without GTIDs (gtid_mode) nobody can begin there: FLUSH BINARY LOGS begins another file"
    )]
    TooFar(String),
}

impl DumpError {
    /// The server logs nothing, or not what it replicates: what is changed now nobody will ever see in its
    /// log.
    pub(super) fn is_without_log(&self) -> bool {
        const NAMES: [&str; 4] = [
            "log_bin",
            "log_slave_updates",
            "log_replica_updates",
            "slave_run_triggers_for_rbr",
        ];
        match self {
            Self::Preflight(PreflightError::Tidb) => true,
            Self::Preflight(PreflightError::Variable { name, .. }) => NAMES.contains(name),
            _ => false,
        }
    }
}

/// A stream that has been asked for.
pub(super) struct Dump {
    pub(super) link: Link,
    pub(super) primary: Primary,
    pub(super) source: SourceId,
    /// Rows that are in memory may show what this server never had: they have to go.
    pub(super) anew: bool,
    /// What the server had before its log came to this end, where the stream leaves out what is applied.
    pub(super) had: Option<(GtidSet, FilePosition)>,
    /// Time that it may take until something comes.
    pub(super) silence_at_first: Duration,
}

/// What names a server and its binary log. `uuid`: of MySQL; of MariaDB, what
/// [`words_of_mariadb`](super::words_of_mariadb) has.
pub(crate) fn source_id(flavor: Flavor, uuid: &str, server_id: u32, address: &str) -> SourceId {
    match flavor {
        Flavor::MySql => SourceId::of(uuid.to_ascii_lowercase().as_bytes()),
        Flavor::MariaDb => SourceId::of(format!("{server_id}@{address}\n{uuid}").as_bytes()),
    }
}

/// Opens a stream of `server` that goes on from `progress`, or begins at the present where that cannot be.
pub(super) async fn open(
    replica: &Replica,
    cluster: &Cluster,
    server: &Server,
    progress: &mut Progress,
) -> Result<Dump, DumpError> {
    let (mut link, flavor) = replica.connect(cluster, server).await?;
    let mut primary = preflight::examine(&mut link, flavor).await?;
    let source = source_id(
        flavor,
        &primary.uuid,
        primary.server_id,
        &server.address().to_string(),
    );
    let (has, kept) = verdict(&mut link, &primary, source, progress).await?;
    let here = progress.place_in(source).filter(|here| kept && here.fits());
    let here = here.cloned();
    // By GTID a server leaves out what has none.
    let kept = here.is_some() || kept && primary.gtids && progress.is_numbered();
    let mut had = None;
    let start = match here {
        Some(here) => {
            progress.cut();
            progress.set_strict(primary.strict);
            Begin::At(here)
        }
        None if kept => {
            let gtids = progress.gtids().clone();
            progress.begin(gtids.clone(), primary.strict);
            had = Some((has, primary.status(&mut link).await?.end));
            Begin::After(gtids)
        }
        None => present(&mut link, &mut primary, source, has, progress).await?,
    };
    if primary.numbers_alone {
        progress.note_numbered_alone();
    }
    progress.follow(source, primary.server_id);
    begin(&mut link, flavor, replica, &start).await?;
    Ok(Dump {
        link,
        primary,
        source,
        anew: !kept,
        had,
        silence_at_first: start.silence(),
    })
}

/// What the server has, and whether that is all that is applied.
async fn verdict(
    link: &mut Link,
    primary: &Primary,
    source: SourceId,
    progress: &Progress,
) -> Result<(GtidSet, bool), DumpError> {
    let flavor = primary.flavor;
    let is_namesake = flavor == Flavor::MariaDb && progress.is_namesake(source, primary.server_id);
    let applied = progress.applied(Version::default());
    // Of transactions without GTIDs only the server knows that they came from.
    let is_same = applied.source() == Some(source);
    let comparable = is_same || progress.is_numbered() && !is_namesake && !primary.numbers_alone;
    let given_up = Instant::now() + UNDER_WAY;
    loop {
        let has = executed(link, flavor).await?;
        let kept = comparable && may_stay(&applied, source, &has);
        // MySQL has sent transactions whose commit is under way.
        if kept || !is_same || Instant::now() >= given_up {
            return Ok((has, kept));
        }
        sleep(HEARTBEAT / 10).await;
    }
}

/// Where a stream begins.
enum Begin {
    At(FilePosition),
    After(GtidSet),
}

impl Begin {
    /// Time that a server may take to find it.
    fn silence(&self) -> Duration {
        match self {
            Self::At(_) => SILENCE,
            Self::After(GtidSet::MySql(_)) => SILENCE_OF_MYSQL,
            Self::After(GtidSet::MariaDb(_)) => SILENCE_OF_MARIADB,
        }
    }
}

async fn executed(link: &mut Link, flavor: Flavor) -> Result<GtidSet, DumpError> {
    let sql = match flavor {
        Flavor::MySql => "SELECT @@GLOBAL.gtid_executed",
        Flavor::MariaDb => "SELECT @@GLOBAL.gtid_binlog_pos",
    };
    let text = link.value(sql).await?.unwrap_or_default();
    Ok(GtidSet::parse(flavor, text.as_bytes())?)
}

/// A place that is as late as can be, and all before it visible to whoever reads tables from now on: a
/// transaction is in the binary log before that.
async fn present(
    link: &mut Link,
    primary: &mut Primary,
    source: SourceId,
    has: GtidSet,
    progress: &mut Progress,
) -> Result<Begin, DumpError> {
    match primary.flavor {
        // What is not visible yet the locking reads of the copier wait for.
        Flavor::MySql if !primary.gtids => {
            let here = primary.status(link).await?.end;
            if !here.fits() {
                return Err(DumpError::TooFar(here.file));
            }
            progress.begin_at(source, here.clone(), GtidSet::empty(Flavor::MySql), false);
            Ok(Begin::At(here))
        }
        // Updated when a transaction is visible.
        Flavor::MySql => {
            progress.begin(has.clone(), false);
            Ok(Begin::After(has))
        }
        Flavor::MariaDb => {
            let here = snapshot(link).await?;
            link.query("COMMIT").await?;
            let gtids = gtids_at(link, &here).await?;
            progress.begin_at(source, here.clone(), gtids.clone(), primary.strict);
            Ok(match here.fits() {
                true => Begin::At(here),
                false => Begin::After(gtids),
            })
        }
    }
}

/// MariaDB: begins a transaction and tells where in the binary log its snapshot is.
pub(super) async fn snapshot(link: &mut Link) -> Result<FilePosition, QueryError> {
    link.query(COMMITTED).await?;
    link.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        .await?;
    let rows = link.query("SHOW STATUS LIKE 'binlog_snapshot_%'").await?;
    let offset = variable(&rows, "Binlog_snapshot_position").parse();
    Ok(FilePosition {
        file: variable(&rows, "Binlog_snapshot_file").to_owned(),
        offset: offset.map_err(|_| Broken::Unexpected("no snapshot of the binary log"))?,
    })
}

/// MariaDB: the GTIDs at a place in the binary log.
pub(super) async fn gtids_at(link: &mut Link, place: &FilePosition) -> Result<GtidSet, DumpError> {
    let file = place.file.replace(['\\', '\''], "");
    let sql = format!("SELECT BINLOG_GTID_POS('{file}', {})", place.offset);
    let text = link.value(&sql).await?.unwrap_or_default();
    Ok(GtidSet::parse(Flavor::MariaDb, text.as_bytes())?)
}

async fn begin(link: &mut Link, flavor: Flavor, replica: &Replica, start: &Begin) -> Result<(), DumpError> {
    let server_id = replica.server_id;
    let command = match start {
        Begin::At(here) => Command::Dump {
            server_id,
            file: here.file.as_bytes(),
            offset: here.offset as u32,
        },
        Begin::After(GtidSet::MySql(have)) => Command::DumpGtid { server_id, have },
        Begin::After(GtidSet::MariaDb(_)) => Command::Dump {
            server_id,
            file: b"",
            offset: 4,
        },
    };
    let start = match start {
        Begin::After(GtidSet::MariaDb(position)) => Start::After(position),
        _ => Start::Command,
    };
    link.query(&settings(flavor, HEARTBEAT, &replica.uuid, start))
        .await?;
    if flavor == Flavor::MariaDb {
        // A server that does not have exactly our last transaction must say so.
        link.query("SET @slave_gtid_strict_mode = 1").await?;
    }
    let register = Command::Register {
        server_id,
        host: b"forebay",
        port: 0,
    };
    link.send(&register.encode()).await?;
    link.answered().await?;
    Ok(link.send(&command.encode()).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_where_changes_are_never_logged() {
        let is_without_log = |name| {
            let why = PreflightError::Variable {
                name,
                found: String::new(),
                wanted: "another",
                why: "reasons",
            };
            DumpError::from(why).is_without_log()
        };
        for name in ["log_bin", "log_slave_updates", "slave_run_triggers_for_rbr"] {
            assert!(is_without_log(name), "{name}");
        }
        assert!(
            !is_without_log("binlog_format"),
            "changes are logged all the same"
        );
    }
}
