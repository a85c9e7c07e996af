//! All who have waited for a new primary are let through a few at a time.

use e2e::eventually;
use mysql_async::prelude::Queryable;

use crate::a_new_primary_is_followed::promote;
use crate::cluster;

const SESSIONS: usize = 10;
const AT_A_TIME: u64 = 2;

/// Writes down how many of these are under way.
const WRITE: &str = "INSERT INTO paced.t SELECT COUNT(*) + SLEEP(0.2) FROM information_schema.processlist \
                     WHERE info LIKE 'INSERT INTO paced.t SELECT%'";

#[tokio::test]
async fn until_all_have_come() {
    let sandbox = cluster::replicated();
    cluster::schema(&sandbox, "paced", "CREATE TABLE t (v INT)");
    let setup = cluster::split(&sandbox)
        .cluster("failover_wait = \"50s\"")
        .cluster(&format!("failover_release = {AT_A_TIME}"));
    let gateway = cluster::start(setup, 2).await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(cluster::connect(&gateway).await);
    }
    sandbox.primary().kill9().unwrap();
    eventually("the primary is down", async || gateway.servers_up() == 2).await;
    let write = |mut session: mysql_async::Conn| async move { session.query_drop(WRITE).await };
    let writes: Vec<_> = sessions
        .into_iter()
        .map(|session| tokio::spawn(write(session)))
        .collect();
    eventually("all wait", async || {
        let waiting = gateway.metric("forebay_sessions_waiting", &["waits_for=\"primary\""]);
        waiting as usize == SESSIONS
    })
    .await;
    let new = sandbox.node(1);
    promote(new);
    eventually("some wait for others", async || {
        gateway.metric("forebay_release_waiting", &[]) > 0.0
    })
    .await;
    for write in writes {
        write.await.unwrap().unwrap();
    }
    let most = new.sql("SELECT MAX(v), COUNT(*) FROM paced.t").unwrap();
    assert_eq!(most.trim(), format!("{AT_A_TIME}\t{SESSIONS}"));
    assert_eq!(gateway.metric("forebay_released_total", &[]) as usize, SESSIONS);
    assert_eq!(gateway.metric("forebay_release_waiting", &[]), 0.0);
}
