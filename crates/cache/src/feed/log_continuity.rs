//! Whether the primary's binary log still is the one that is followed: RESET MASTER begins it anew, and the
//! stream of the old one goes on in silence. Nor does a stream end when its address leads to another machine,
//! which is the primary now, or when the primary begins to replicate what it does not log.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mysql_wire::gtid::{Flavor, MariaDbPosition};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::copy::CopyError;
use super::dump::DumpError;
use super::link::Link;
use super::preflight;
use super::progress::Progress;
use super::source::{SourceError, SourceServer};
use super::stream::Ended;
use crate::coherence::{Place, Position};
use crate::probes::Probes;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time after which a look is given up, with its connection.
const ANSWER: Duration = Duration::from_secs(10);

/// Time after which another connection is made, to see who answers.
const RENEWAL: Duration = Duration::from_secs(10);

/// Time for that. Meanwhile nobody looks.
const RENEWED: Duration = Duration::from_secs(2);

/// Looks at the machine that is followed.
pub(super) struct LogContinuity {
    source_server: SourceServer,
    probes: Arc<Probes>,
    progress: Rc<RefCell<Progress>>,
    link: Option<Link>,
    /// When a connection was made last, or tried.
    tried: Option<Instant>,
    /// Somebody else's connection leads to another machine.
    is_told: bool,
    /// Before the next one to a machine that is read-only.
    pause: Duration,
}

impl LogContinuity {
    pub(super) fn new(
        source_server: SourceServer,
        probes: Arc<Probes>,
        progress: Rc<RefCell<Progress>>,
    ) -> Self {
        Self {
            source_server,
            probes,
            progress,
            link: None,
            tried: None,
            is_told: false,
            pause: INTERVAL,
        }
    }

    /// Ends when there is no use in following it: why.
    pub(super) async fn run(mut self) -> Ended {
        loop {
            tokio::select! {
                () = sleep(INTERVAL) => {}
                () = self.told() => self.is_told = true,
            }
            match timeout(ANSWER, self.look()).await {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(ended))) => return ended,
                Ok(Err(CopyError::Source(SourceError::Another))) => return Ended::Elsewhere,
                // The stream finds out what is wrong.
                Ok(Err(_)) | Err(_) => self.link = None,
            }
        }
    }

    /// Who asks the primary where it is got an answer of another machine. That is no reason for more than one
    /// connection in a while.
    async fn told(&self) {
        if let Some(tried) = self.tried {
            sleep_until(tried + INTERVAL).await;
        }
        self.probes.elsewhere().await;
    }

    /// Why it cannot be followed any more: the binary log is shorter than what was read of it, or it does not
    /// show, or rows change without it. A connection that there is goes where it always went. Whether others
    /// go there, too, is found out now and then, and more often while this one leads to what should not be
    /// the primary.
    async fn look(&mut self) -> Result<Option<Ended>, CopyError> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.connect().await?,
        };
        let read = self.progress.borrow().position();
        let end = end(&mut link, &mut self.source_server).await?;
        if let Some(read) = read.filter(|read| !end.covers(read)) {
            let ended = match end.is_like(&read) {
                true => Ended::Reset,
                false => Ended::OtherKind,
            };
            return Ok(Some(ended));
        }
        if preflight::replicates_in_silence(&mut link, &self.source_server.primary).await? {
            return Ok(Some(Ended::Unlogged));
        }
        let read_only = link.value("SELECT @@GLOBAL.read_only").await?;
        let is_read_only = read_only.is_some_and(|value| !matches!(&*value, "0" | "OFF"));
        self.link = Some(link);
        let due = if is_read_only { self.pause } else { RENEWAL };
        if self.is_told || self.tried.is_none_or(|tried| tried.elapsed() >= due) {
            self.is_told = false;
            self.pause = RENEWAL.min(due * 2);
            self.renew().await?;
        }
        if !is_read_only {
            self.pause = INTERVAL;
        }
        Ok(None)
    }

    /// Another connection takes the place of the one there is. Where none can be made, that one still shows
    /// whether the log is the same.
    async fn renew(&mut self) -> Result<(), SourceError> {
        match timeout(RENEWED, self.connect()).await {
            Ok(Ok(link)) => self.link = Some(link),
            Ok(Err(SourceError::Another)) => return Err(SourceError::Another),
            Ok(Err(_)) | Err(_) => {}
        }
        Ok(())
    }

    async fn connect(&mut self) -> Result<Link, SourceError> {
        self.tried = Some(Instant::now());
        self.source_server.connect().await
    }
}

/// Where the binary log of a machine ends now.
pub(super) async fn end(link: &mut Link, source_server: &mut SourceServer) -> Result<Position, DumpError> {
    let (primary, source) = (&mut source_server.primary, source_server.source);
    if primary.flavor == Flavor::MariaDb && primary.strict {
        let sql = "SELECT @@GLOBAL.gtid_binlog_pos FROM DUAL WHERE @@GLOBAL.gtid_strict_mode";
        // Without an answer GTIDs stand for places no more: the position is of another kind than what was
        // read.
        if let Some(text) = link.value(sql).await? {
            let place = Place::MariaDb(MariaDbPosition::parse(text.as_bytes())?);
            return Ok(Position { source, place });
        }
    }
    let place = primary.status(link).await?.end.place();
    Ok(Position { source, place })
}
