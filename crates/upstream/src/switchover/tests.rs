//! Servers that lose connections, and such as do not answer.

use std::sync::atomic::{AtomicU32, Ordering};

use config::ServerAddress;
use testkit::scripted::{Reply, Server as Scripted, ServerScript};
use tokio::time::timeout;

use super::replication::take_writes;
use super::*;

/// Longest wait for anything that should happen at once; a busy machine is no failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// A result of a single row: texts with the names of their columns.
fn row(values: &[(&str, &str)]) -> Reply {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let column = |&(name, _): &(&str, &str)| {
        let names = ["def", "", "", "", name, name].map(text).concat();
        [names, vec![0x0c, 45, 0, 0, 4, 0, 0, 0xfd, 0, 0, 0, 0, 0]].concat()
    };
    let mut payloads = vec![vec![values.len() as u8]];
    payloads.extend(values.iter().map(column));
    payloads.push(values.iter().flat_map(|(_, value)| text(value)).collect());
    payloads.push(vec![0xfe, 0, 0, 2, 0, 0, 0]);
    Reply::Payloads(payloads)
}

/// A server that answers statements so, and all others with an OK.
async fn server(answer: impl Fn(&str) -> Option<Reply> + Send + Sync + 'static) -> Scripted {
    let script = ServerScript {
        accepts_anyone: true,
        special: Some(Arc::new(move |request| {
            answer(&String::from_utf8_lossy(request.get(1..)?))
        })),
        ..ServerScript::default()
    };
    Scripted::start(script).await.unwrap()
}

/// From a server to itself.
fn switchover(server: &Scripted, pause_timeout: Duration) -> Switchover {
    let address = ServerAddress::Host {
        host: server.address().ip().to_string(),
        port: server.address().port(),
    };
    let mut cluster = config::Cluster::new("main", vec![config::Server::new(address)]);
    cluster.pause_timeout = pause_timeout;
    let cluster = Cluster::new(cluster).unwrap();
    let server = Arc::clone(&cluster.servers()[0]);
    Switchover {
        cluster,
        config: config::Switchover {
            user: "switcher".to_owned(),
            password: None,
            password_file: None,
            password_env: None,
            transactions_wait: PATIENCE,
            step_timeout: 10 * PATIENCE,
            replication: None,
        },
        old: Arc::clone(&server),
        new: server,
        under_way: Box::new(|_| Box::pin(std::future::ready(0_usize))),
        report: Arc::new(Report::new("main", "old", "new")),
    }
}

/// Nobody would take writes, for one connection that was lost.
#[tokio::test]
async fn a_server_is_told_again_to_take_writes_when_a_connection_is_lost() {
    static CUTS: AtomicU32 = AtomicU32::new(2);
    let server = server(|statement| match statement {
        "SET GLOBAL super_read_only = OFF" => CUTS
            .try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok()
            .then(|| Reply::Cut(Vec::new())),
        "SELECT @@GLOBAL.read_only" => Some(row(&[("read_only", "0")])),
        _ => None,
    });
    let server = server.await;
    let switchover = switchover(&server, PATIENCE);
    let mut client = switchover.client(&switchover.new).await.unwrap();
    // The promotion is tried once where its time is over.
    take_writes(&mut client, Instant::now()).await.unwrap_err();
    take_writes(&mut client, Instant::now() + PATIENCE).await.unwrap();
    assert_eq!(CUTS.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_group_that_takes_longer_is_given_up_when_statements_wait_no_more() {
    let server = server(|statement| match statement {
        _ if statement.contains("group_replication_set_as_primary") => Some(Reply::Silence),
        _ if statement.contains("MEMBER_STATE") => Some(row(&[
            ("state", "ONLINE"),
            ("role", "SECONDARY"),
            ("uuid", "00000000-1111-2222-3333-444444444444"),
            ("single_primary", "1"),
        ])),
        _ => None,
    });
    let server = server.await;
    let switchover = switchover(&server, Duration::from_millis(300));
    let run = timeout(PATIENCE, group_replication::run(&switchover, false));
    let result = run.await.unwrap();
    assert!(matches!(result, Err(Failure::Failed(reason)) if reason.contains("not done within")));
    assert!(!switchover.cluster.is_paused());
}
