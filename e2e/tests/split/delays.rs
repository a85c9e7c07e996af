//! Replicas that are behind on purpose: one always by a second, the other for moments, again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use e2e::kind;
use sandbox::{Kind, Lent, Node};

/// How long the second replica stands still, and how long it runs in between.
const STOPPED: Duration = Duration::from_millis(60);
const RUNNING: Duration = Duration::from_millis(240);

/// Dropping it lets the replicas catch up.
pub(crate) struct Delays {
    over: Arc<AtomicBool>,
    moments: Option<JoinHandle<()>>,
}

fn stop(replica: &Node) {
    let statement = match kind() {
        Kind::Mysql => "STOP REPLICA SQL_THREAD",
        _ => "STOP SLAVE SQL_THREAD",
    };
    replica.sql(statement).unwrap();
}

fn start(replica: &Node) {
    let statement = match kind() {
        Kind::Mysql => "START REPLICA SQL_THREAD",
        _ => "START SLAVE SQL_THREAD",
    };
    replica.sql(statement).unwrap();
}

impl Delays {
    pub(crate) fn begin(sandbox: &Arc<Lent>) -> Self {
        let late = sandbox.node(1);
        stop(late);
        late.sql(match kind() {
            Kind::Mysql => "CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 1",
            _ => "STOP SLAVE; CHANGE MASTER TO MASTER_DELAY = 1; START SLAVE IO_THREAD",
        })
        .unwrap();
        start(late);
        let over = Arc::<AtomicBool>::default();
        let moments = {
            let (over, sandbox) = (Arc::clone(&over), Arc::clone(sandbox));
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    stop(sandbox.node(2));
                    sleep(STOPPED);
                    start(sandbox.node(2));
                    sleep(RUNNING);
                }
            })
        };
        Self {
            over,
            moments: Some(moments),
        }
    }
}

impl Drop for Delays {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(moments) = self.moments.take() {
            let _ = moments.join();
        }
    }
}
