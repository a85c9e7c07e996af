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

/// A place to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ExporterPlace {
    url: HttpUrl,
    /// A port with the encryption of PD; what is configured by itself has none.
    is_status_port: bool,
}

/// Asks the exporter of `server` again and again, until the server is removed or the future is dropped.
pub(crate) async fn watch(cluster: Arc<Cluster>, server: Arc<Server>) {
    let mut source: Option<(ExporterPlace, Host)> = None;
    let mut failing = false;
    while !server.is_removed() {
        let begun = Instant::now();
        let wanted = place(&cluster, &server);
        if source.as_ref().map(|(place, _)| place) != wanted.as_ref() {
            server.usage.forget();
            source = wanted.map(|place| {
                let host = Host::new(&place.url.host, place.url.port);
                (place, host)
            });
        }
        if let Some((place, host)) = &source {
            let asked = timeout(ANSWER_LIMIT, ask(&cluster, place, host)).await;
            let asked = asked.unwrap_or_else(|late| Err(late.into()));
            log(&cluster, &server, &place.url, &mut failing, asked.as_ref().err());
            if let Ok(reading) = asked {
                server.usage.note(reading, now());
            }
        }
        sleep_until(begun + INTERVAL).await;
    }
}

/// The place to ask; none where that is of no use.
fn place(cluster: &Cluster, server: &Server) -> Option<ExporterPlace> {
    let config = cluster.config();
    if config.rebalance.policy != RebalancePolicy::Resource {
        return None;
    }
    let place = server.place();
    if let Some(url) = &place.exporter {
        return Some(ExporterPlace {
            url: url.clone(),
            is_status_port: false,
        });
    }
    let port = place.status_port.filter(|_| config.topology == Topology::Tidb)?;
    let ServerAddress::Host { host, .. } = server.address() else {
        return None;
    };
    let url = HttpUrl {
        host: host.clone(),
        port,
        path: "/metrics".to_owned(),
    };
    Some(ExporterPlace {
        url,
        is_status_port: true,
    })
}

async fn ask(cluster: &Cluster, place: &ExporterPlace, host: &Host) -> io::Result<Reading> {
    let tls = cluster.pd_tls().filter(|_| place.is_status_port);
    let request = Request::get(&place.url.path, None);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// PD may have TLS where the exporter of a machine has none.
    #[tokio::test]
    async fn only_a_status_port_is_encrypted_as_pd_is() {
        let address = ServerAddress::Host {
            host: "db1".to_owned(),
            port: 4000,
        };
        let exporter = HttpUrl {
            host: "db1".to_owned(),
            port: 9100,
            path: "/metrics".to_owned(),
        };
        for (exporter, port, is_status_port) in [(None, 10_080, true), (Some(exporter), 9100, false)] {
            let server = config::Server {
                status_port: Some(10_080),
                exporter,
                ..config::Server::new(address.clone())
            };
            let mut config = config::Cluster::new("main", vec![server]);
            config.topology = Topology::Tidb;
            config.rebalance.policy = RebalancePolicy::Resource;
            let cluster = Cluster::new(config).unwrap();
            let place = place(&cluster, &cluster.servers()[0]).unwrap();
            assert_eq!((place.url.port, place.is_status_port), (port, is_status_port));
        }
    }
}
