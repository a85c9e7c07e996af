//! Whether the primary's binary log still is the one that is followed: RESET MASTER begins it anew, and the stream of the
//! old one goes on in silence.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mysql_wire::gtid::{Flavor, GtidSet};
use tokio::time::{sleep, timeout};
use upstream::{Cluster, Server};

use super::account::Replica;
use super::dump::DumpError;
use super::link::Link;
use super::preflight::Primary;
use super::progress::Progress;
use crate::coherence::{Place, Position, SourceId};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time after which a look is given up, with its connection.
const ANSWER: Duration = Duration::from_secs(10);

/// A primary, and how it is reached.
pub(super) struct Watch {
    pub(super) replica: Replica,
    pub(super) cluster: Arc<Cluster>,
    pub(super) server: Arc<Server>,
    pub(super) primary: Primary,
    pub(super) source: SourceId,
    pub(super) progress: Rc<RefCell<Progress>>,
}

impl Watch {
    /// Ends when the binary log is shorter than what was read of it.
    pub(super) async fn run(mut self) {
        let mut link = None;
        loop {
            sleep(INTERVAL).await;
            match timeout(ANSWER, self.look(&mut link)).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return,
                // The stream finds out what is wrong.
                Ok(Err(_)) | Err(_) => link = None,
            }
        }
    }

    async fn look(&mut self, link: &mut Option<Link>) -> Result<bool, DumpError> {
        let link = match link {
            Some(link) => link,
            None => link.insert(self.replica.connect(&self.cluster, &self.server).await?.0),
        };
        let read = self.progress.borrow().position();
        let end = end(link, &mut self.primary, self.source).await?;
        Ok(read.is_none_or(|read| end.covers(&read)))
    }
}

/// Where the binary log of a primary ends now.
pub(super) async fn end(
    link: &mut Link,
    primary: &mut Primary,
    source: SourceId,
) -> Result<Position, DumpError> {
    let place = if primary.flavor == Flavor::MariaDb && primary.strict {
        // Of another kind than what was read where GTIDs stand for places no more.
        let sql = "SELECT @@GLOBAL.gtid_binlog_pos FROM DUAL WHERE @@GLOBAL.gtid_strict_mode";
        let Some(text) = link.value(sql).await? else {
            let place = primary.status(link).await?.end.place();
            return Ok(Position { source, place });
        };
        match GtidSet::parse(Flavor::MariaDb, text.as_bytes())? {
            GtidSet::MariaDb(position) => Some(Place::MariaDb(position)),
            GtidSet::MySql(_) => None,
        }
    } else {
        None
    };
    let place = match place {
        Some(place) => place,
        None => primary.status(link).await?.end.place(),
    };
    Ok(Position { source, place })
}
