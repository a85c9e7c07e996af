//! A TiDB server's status port: `GET /status` is 200 as long as the server is well, and 500 from when it has
//! been told to end until it does (`graceful-wait-before-shutdown`). Whether it is up is for the checks.

use std::io;
use std::sync::Arc;

use config::{ServerAddress, Topology};
use tokio::time::{Instant, sleep_until, timeout};

use crate::cluster::Cluster;
use crate::http::{Host, Request};
use crate::server::Server;

/// Asks the status port of `server` again and again, until the server is removed or the future is dropped.
pub(crate) async fn watch(cluster: Arc<Cluster>, server: Arc<Server>) {
    let mut port: Option<(u16, Host)> = None;
    while !server.is_removed() {
        let config = cluster.config();
        let begun = Instant::now();
        let wanted = (server.place().status_port).filter(|_| config.topology == Topology::Tidb);
        if port.as_ref().map(|(number, _)| *number) != wanted {
            port = wanted.and_then(|number| host(&server, number));
        }
        match &port {
            Some((_, host)) => {
                let asked = timeout(config.check.timeout, ask(&cluster, host)).await;
                // Whoever does not answer may be ending, or have ended, or show nothing there.
                if let Ok(Ok(status @ (200 | 500))) = asked {
                    note(&cluster, &server, status == 500);
                }
            }
            None => note(&cluster, &server, false),
        }
        sleep_until(begun + config.check.interval).await;
    }
}

fn host(server: &Server, port: u16) -> Option<(u16, Host)> {
    match server.address() {
        ServerAddress::Host { host, .. } => Some((port, Host::new(host, port))),
        ServerAddress::Unix(_) => None,
    }
}

async fn ask(cluster: &Cluster, host: &Host) -> io::Result<u16> {
    let tls = cluster.pd_tls();
    let answer = host.ask(tls.as_deref(), &Request::get("/status", None)).await?;
    Ok(answer.status)
}

fn note(cluster: &Cluster, server: &Server, leaving: bool) {
    if server.set_leaving(leaving) {
        // The signals are heeded where all that is new is.
        cluster.follow.news.notify_one();
    }
}
