//! The thread of the feed: from one stream to the next.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use mysql_wire::binlog::Zone;
use mysql_wire::gtid::{Flavor, GtidSet};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};
use upstream::{Backoff, Cluster, Server};

use super::account::Replica;
use super::apply::Applier;
use super::dump::{self, ER_FATAL_ERROR_READING_BINLOG};
use super::mapping_tables::{MappingTables, Wanted};
use super::status::{FeedStatus, Fills};
use super::stream::{Ended, Stream, Surroundings};
use super::tables::{LoggedReason, Tables};
use crate::coherence::Applied;
use crate::store::{Version, Writer};
use crate::tracking::Tracking;

/// Pauses between attempts.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

/// Time within which a stream has brought nobody further whose address leads to another machine already.
const SHORT: Duration = Duration::from_secs(10);

/// Why the feed cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    #[error("no account for the binary log: give [cache.account], or a monitor to the cluster")]
    NoAccount,
    #[error("time zone {0} cannot be used")]
    Zone(String),
    #[error("its thread cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// A running feed. It stops when this is dropped.
pub struct Feed {
    feed_status: Arc<FeedStatus>,
    wanted: watch::Sender<Wanted>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    pub fn start(config: &config::Cache, cluster: Arc<Cluster>, writer: Writer) -> Result<Self, FeedError> {
        let drawn = RandomState::new().hash_one(std::process::id());
        let replica = Replica::new(config, drawn).ok_or(FeedError::NoAccount)?;
        let zone = config.time_zone.to_string();
        let zone = Zone::parse(&zone).ok_or(FeedError::Zone(zone))?;
        let nothing = Applied {
            version: Version::default(),
            position: None,
            gtids: GtidSet::empty(Flavor::MySql),
            is_numbered: true,
            numbered_alone: false,
        };
        let (feed_status, fills) = FeedStatus::new(nothing, Tracking::new(config.tracking_keys_max));
        let (stop, stopped) = watch::channel(false);
        let (wanted, is_wanted) = watch::channel(Wanted::of(config));
        let around = Surroundings {
            cluster,
            replica,
            feed_status: Arc::clone(&feed_status),
            zone,
            copy_chunk: config.copy_chunk,
            wanted: is_wanted,
            mapping_tables: MappingTables::new(Wanted::of(config)),
            stop: stopped,
        };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let config = config.clone();
        let run = move || {
            let tables = Tables::new(&config, writer, Arc::clone(&around.feed_status));
            let applier = Applier::new(tables, Arc::clone(&around.feed_status));
            let follower = Follower {
                around,
                applier,
                fills,
            };
            LocalSet::new().block_on(&runtime, follower.run());
        };
        let thread = std::thread::Builder::new().name("feed".to_owned()).spawn(run)?;
        Ok(Self {
            feed_status,
            wanted,
            stop,
            thread: Some(thread),
        })
    }

    /// Takes over the mappings of a configuration. Those that are new or changed are copied, those that are
    /// gone are dropped with their rows, the others go on as they are. It happens soon, not at once.
    pub fn reload(&self, config: &config::Cache) {
        let new = Wanted::of(config);
        self.wanted.send_if_modified(|wanted| {
            let differs = *wanted != new;
            *wanted = new;
            differs
        });
    }

    #[must_use]
    pub fn status(&self) -> &Arc<FeedStatus> {
        &self.feed_status
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // It has said why, if it panicked.
            let _ = thread.join();
        }
    }
}

/// Goes from one stream to the next.
struct Follower {
    around: Surroundings,
    applier: Applier,
    fills: Fills,
}

impl Follower {
    async fn run(mut self) {
        let mut backoff = BACKOFF;
        let mut told = LoggedReason::default();
        while let Some(server) = self.primary().await {
            let (reason, heard) = self.follow(&server).await;
            if *self.around.stop.borrow() {
                return;
            }
            // Nobody knows for how long nothing will be heard of changes.
            self.around.feed_status.tracking().invalidate_all();
            let name = server.name();
            if told.is_news(&reason) || heard {
                tracing::warn!(server = name, reason, "binary log is not followed");
            }
            self.around
                .feed_status
                .set_stream(format!("not following {name}: {reason}"));
            self.applier.tables.publish();
            if heard {
                backoff = BACKOFF;
            }
            let pausing = sleep(backoff.pause());
            tokio::pin!(pausing);
            loop {
                tokio::select! {
                    () = &mut pausing => break,
                    _ = self.around.stop.changed() => return,
                    Ok(()) = self.around.wanted.changed() => self.arrange(),
                }
            }
        }
    }

    /// Takes over which mappings are wanted.
    fn arrange(&mut self) {
        let (wanted, refused, unread) = self.around.arrangement();
        self.applier.tables.arrange(wanted, refused, unread);
    }

    /// The primary, as soon as there is one. `None` when the gateway stops.
    async fn primary(&mut self) -> Option<Arc<Server>> {
        loop {
            if *self.around.stop.borrow() {
                return None;
            }
            let topology = self.around.cluster.topology();
            if let Some(primary) = topology.primary() {
                return Some(Arc::clone(&primary.server));
            }
            self.around
                .feed_status
                .set_stream("there is no primary".to_owned());
            self.applier.tables.publish();
            tokio::select! {
                _ = self.around.cluster.wait_for_topology_change(topology.generation) => {}
                _ = self.around.stop.changed() => return None,
                Ok(()) = self.around.wanted.changed() => self.arrange(),
            }
        }
    }

    /// Follows a server until that ends: why, and whether anything was heard of it.
    async fn follow(&mut self, server: &Arc<Server>) -> (String, bool) {
        let around = &mut self.around;
        let opened = {
            let mut progress = self.applier.progress.borrow().clone();
            let limit = around.cluster.config().connect_timeout + around.cluster.config().login_timeout * 2;
            let open = dump::open(&around.replica, &around.cluster, server, &mut progress);
            let mut stop = around.stop.clone();
            let opened = tokio::select! {
                opened = timeout(limit, open) => opened,
                _ = stop.changed() => return ("the gateway stops".to_owned(), false),
            };
            match opened {
                Ok(Ok(dump)) => Ok((dump, progress)),
                Ok(Err(error)) => Err((error.to_string(), error.is_without_log())),
                Err(_) => Err(("no answer".to_owned(), false)),
            }
        };
        let (dump, progress) = match opened {
            Ok(opened) => opened,
            Err((reason, is_without_log)) => {
                if is_without_log {
                    self.applier.forget(&reason);
                }
                return (reason, false);
            }
        };
        around.feed_status.counts.connects.inc();
        tracing::info!(server = server.name(), anew = dump.anew, "binary log is followed");
        around
            .feed_status
            .set_stream(format!("following {}", server.name()));
        self.applier.tables.publish();
        *self.applier.progress.borrow_mut() = progress;
        let mut stream = Stream::new(
            around,
            &mut self.applier,
            &mut self.fills,
            Arc::clone(server),
            dump,
        );
        let begun = Instant::now();
        let ended = stream.follow().await;
        // Where each connection leads to another machine nobody is hammered.
        let is_short = begun.elapsed() < SHORT && matches!(ended, Ended::Elsewhere);
        let heard = stream.was_heard() && !is_short;
        // What comes next is not there any more, or it is not what would have come.
        let is_in_doubt = stream.was_in_doubt();
        let is_lost = match &ended {
            Ended::Refused(error) => error.code == ER_FATAL_ERROR_READING_BINLOG,
            ended => matches!(ended, Ended::Reset | Ended::OutOfOrder | Ended::Unlogged),
        };
        if is_lost || is_in_doubt {
            self.applier.forget(&ended.to_string());
        }
        (ended.to_string(), heard)
    }
}
