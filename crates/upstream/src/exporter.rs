//! How much of a server's CPU and memory is in use: an exporter of Prometheus says so, asked again and again
//! while the policy of `rebalance` goes by it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use config::{HttpUrl, RebalancePolicy, ServerAddress, Topology};
use tokio::time::{Instant, sleep_until, timeout};

use crate::cluster::Cluster;
use crate::http::{Host, Request};
use crate::server::{Server, now};
use crate::usage::Reading;

/// Between two questions.
const INTERVAL: Duration = Duration::from_secs(5);

/// Time for the whole answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// Longest answer, in bytes.
const ANSWER_MAX: usize = 8 << 20;

/// Asks the exporter of `server` again and again, until the server is removed or the future is dropped.
pub(crate) async fn watch(cluster: Arc<Cluster>, server: Arc<Server>) {
    let mut source: Option<(HttpUrl, Host)> = None;
    let mut failing = false;
    while !server.is_removed() {
        let begun = Instant::now();
        let wanted = url(&cluster, &server);
        if source.as_ref().map(|(url, _)| url) != wanted.as_ref() {
            server.usage.forget();
            source = wanted.map(|url| {
                let host = Host::new(&url.host, url.port);
                (url, host)
            });
        }
        if let Some((url, host)) = &source {
            let asked = timeout(ANSWER_LIMIT, ask(&cluster, url, host)).await;
            let asked = asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            log(&cluster, &server, url, &mut failing, asked.as_ref().err());
            if let Ok(reading) = asked {
                server.usage.note(reading, now());
            }
        }
        sleep_until(begun + INTERVAL).await;
    }
}

/// Where to ask, where that is of any use.
fn url(cluster: &Cluster, server: &Server) -> Option<HttpUrl> {
    let config = cluster.config();
    if config.rebalance.policy != RebalancePolicy::Resource {
        return None;
    }
    let place = server.place();
    if let Some(url) = &place.exporter {
        return Some(url.clone());
    }
    let port = place.status_port.filter(|_| config.topology == Topology::Tidb)?;
    let ServerAddress::Host { host, .. } = server.address() else {
        return None;
    };
    Some(HttpUrl {
        host: host.clone(),
        port,
        path: "/metrics".to_owned(),
    })
}

async fn ask(cluster: &Cluster, url: &HttpUrl, host: &Host) -> io::Result<Reading> {
    // A status port of TiDB has the encryption of PD; what is configured by itself has none.
    let tls = cluster
        .pd_tls()
        .filter(|_| cluster.config().topology == Topology::Tidb);
    let request = Request {
        method: "GET",
        path: &url.path,
        token: None,
        body: b"",
    };
    let mut answer = host.ask(tls.as_deref(), &request).await?;
    if answer.status != 200 {
        return Err(io::Error::other(format!(
            "it answers with status {}",
            answer.status
        )));
    }
    let text = answer.whole(ANSWER_MAX).await?;
    let reading = Reading::of(&text);
    match reading.is_empty() {
        true => Err(io::Error::other(
            "it has no figures of CPU and memory: it is neither a node exporter nor TiDB",
        )),
        false => Ok(reading),
    }
}

/// A line when it begins to fail, and one when that is over.
fn log(cluster: &Cluster, server: &Server, url: &HttpUrl, failing: &mut bool, error: Option<&io::Error>) {
    let (cluster, server) = (cluster.name(), server.name());
    match error {
        Some(error) if !*failing => tracing::warn!(
            cluster,
            server,
            %url,
            reason = %error,
            "exporter has no figures: CPU and memory of this server count as unknown"
        ),
        None if *failing => tracing::info!(cluster, server, %url, "exporter has figures again"),
        _ => {}
    }
    *failing = error.is_some();
}
