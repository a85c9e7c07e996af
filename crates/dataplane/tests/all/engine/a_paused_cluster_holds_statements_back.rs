//! While a cluster is paused, statements wait that would begin something; what has begun comes to its end.

use std::sync::Arc;

use dataplane::finished::End;
use mysql_wire::Command;
use upstream::Cluster;

use super::stage::{Setup, Stage, USUAL};

const WRITE: &str = "INSERT INTO t VALUES ('OK')";

async fn start(cluster: &str) -> (Stage, Arc<Cluster>) {
    let stage = Stage::set(Setup { cluster, ..USUAL }).await;
    let cluster = stage.gateway().clusters().swap_remove(0);
    (stage, cluster)
}

/// Nothing was executed of a statement that has waited for too long, and its session goes on.
#[tokio::test]
async fn for_no_longer_than_they_should() {
    let (mut stage, cluster) = start("pause_timeout = \"100ms\"").await;
    let mut session = stage.connect().await;
    assert!(cluster.pause());
    let (code, words) = session.refused(WRITE).await;
    assert!(code == 1158 || code == 1290, "{code}: {words}");
    assert!(
        words.contains("pause_timeout") && words.contains("not executed"),
        "{words}"
    );
    let ended = stage.next_end().await;
    assert_eq!((ended.end, ended.server), (End::Refused, None));
    cluster.resume();
    assert_eq!(session.query(WRITE).await, Ok(0));
    assert_eq!(stage.sent(WRITE).len(), 1);
}

/// A client that goes may have sent its statement anew.
#[tokio::test]
async fn for_as_long_as_their_client_is_there() {
    let (mut stage, cluster) = start("pause_timeout = \"1m\"").await;
    let mut session = stage.connect().await;
    assert!(cluster.pause());
    session.send(Command::QUERY, WRITE.as_bytes()).await;
    stage.waits(1, "pause").await;
    drop(session);
    assert_eq!(stage.next_end().await.server, None);
    cluster.resume();
    assert!(stage.sent(WRITE).is_empty());
}
