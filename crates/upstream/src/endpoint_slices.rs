//! Servers that Kubernetes names: the endpoints of a service, from its EndpointSlices
//! (`discovery.k8s.io/v1`).
//!
//! They are listed once and then watched. However a watch ends (its time, a token that is no longer good,
//! changes that the API server has forgotten), the account's files are read again and all is listed again.
//! Where the API server cannot be asked, or knows no endpoint at all, the last servers stay.
//!
//! Whether an endpoint is of use is for the checks and the monitor, whatever its readiness. One that
//! terminates stays a server until it is gone, and drains as one that says so itself: it may be the primary,
//! and members may name it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use config::{ClusterTls, EndpointSlices, ServerAddress, TlsMode, Verify};
use net::{Stream, TlsConnector};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::cluster::{Cluster, is_zone};
use crate::http::{Host, HttpAnswer, Lines, Request};

/// Who names the servers, for the log.
const NAMED_BY: &str = "Kubernetes";

/// Servers that are taken; further ones are left out.
const SERVERS_MAX: usize = 256;

/// Slices of a service. Each has up to 1000 endpoints.
const SLICES_MAX: usize = 256;

/// Longest list, and longest line of a watch, in bytes.
const LIST_MAX: usize = 8 << 20;
const LINE_MAX: usize = 2 << 20;

/// Between one attempt and the next, once the API server has not answered or a watch has ended.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));

/// For an answer to begin, and for a list as a whole.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Events that come so soon behind one count with it: an endpoint that goes from one slice to another is gone
/// from the first by one event and in the second by the next.
const TOGETHER: Duration = Duration::from_millis(100);

/// How long a watch is to last, in seconds, and when it is given up where it has not ended by then.
const WATCH_SECONDS: u64 = 300;
const WATCH_LIMIT: Duration = Duration::from_secs(WATCH_SECONDS + 30);

/// The slices of the service by their names.
type Known = BTreeMap<String, Value>;

/// Follows the API server until the future is dropped.
pub(crate) async fn follow(cluster: Arc<Cluster>) {
    let mut told = LastLogged::default();
    loop {
        let config = cluster.config();
        let Some(slices) = &config.endpoint_slices else {
            cluster.slices_changed.notified().await;
            continue;
        };
        tokio::select! {
            // No list is taken over behind a reload that has named others.
            biased;
            () = cluster.slices_changed.notified() => {}
            () = follow_one(&cluster, slices, &mut told) => {}
        }
    }
}

async fn follow_one(cluster: &Arc<Cluster>, slices: &EndpointSlices, told: &mut LastLogged) {
    let mut pauses = PAUSES;
    loop {
        match list_and_watch(cluster, slices, told).await {
            // It has begun, so that the next attempt is the first one.
            Ok(ended) => {
                pauses = PAUSES;
                let reason = ended.to_string();
                tracing::debug!(cluster = cluster.name(), reason, "Kubernetes is asked anew");
            }
            Err(error) => told.tell(cluster, Some(error.to_string())),
        }
        sleep(pauses.pause()).await;
    }
}

/// Returns why a watch has ended that had begun.
async fn list_and_watch(
    cluster: &Arc<Cluster>,
    slices: &EndpointSlices,
    told: &mut LastLogged,
) -> io::Result<io::Error> {
    let api = Api::new(slices)?;
    let (mut known, version) = timeout(ANSWER_LIMIT, api.list()).await??;
    // Until the next list: of a service that goes, the slices of one family go before those of the other.
    let family = family(slices, &known);
    let left_out = take(cluster, slices, &known, family)?;
    told.tell_left_out(cluster, left_out);
    let mut watch = api.watch(&version).await?;
    told.tell(cluster, None);
    let to_its_end = async {
        loop {
            let ended = changes(&mut watch, &mut known).await;
            // Also what came right before its end.
            match take(cluster, slices, &known, family) {
                Ok(left_out) => {
                    told.tell(cluster, None);
                    told.tell_left_out(cluster, left_out);
                }
                Err(error) => told.tell(cluster, Some(error.to_string())),
            }
            if let Err(error) = ended {
                break error;
            }
        }
    };
    let ended = timeout(WATCH_LIMIT, to_its_end).await;
    Ok(ended.unwrap_or_else(io::Error::from))
}

/// Waits for an event that changes something, and for those that come soon behind it.
async fn changes(watch: &mut Lines<Stream>, known: &mut Known) -> io::Result<()> {
    while !next(watch, known).await? {}
    let more = async {
        loop {
            next(watch, known).await?;
        }
    };
    timeout(TOGETHER, more).await.unwrap_or(Ok(()))
}

/// Waits for an event and takes it over; false where it changes nothing.
async fn next(watch: &mut Lines<Stream>, known: &mut Known) -> io::Result<bool> {
    match watch.next(LINE_MAX).await? {
        Some(line) => apply(known, &line),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The API server, as one attempt asks it.
struct Api {
    host: Host,
    tls: TlsConnector,
    token: String,
    path: String,
}

impl Api {
    /// Reads the files of the account: short ones, on the control thread.
    fn new(slices: &EndpointSlices) -> io::Result<Self> {
        let account = &slices.account_dir;
        let host = match &slices.api_server {
            Some(ServerAddress::Host { host, port }) => Host::new(host, *port),
            _ => {
                let variable = |name: &str| {
                    let value = std::env::var(name);
                    value.map_err(|error| io::Error::other(format!("{name}: {error}")))
                };
                let port = variable("KUBERNETES_SERVICE_PORT")?;
                let port = port.parse().map_err(io::Error::other)?;
                Host::new(&variable("KUBERNETES_SERVICE_HOST")?, port)
            }
        };
        let tls = ClusterTls {
            mode: TlsMode::Required,
            verify: Verify::Identity,
            ca: Some(account.join("ca.crt")),
            ..ClusterTls::default()
        };
        let namespace = match &slices.namespace {
            Some(namespace) => namespace.clone(),
            None => read(&account.join("namespace"))?,
        };
        let service = &slices.service;
        Ok(Self {
            host,
            tls: TlsConnector::new(&tls).map_err(io::Error::other)?,
            token: format!("Bearer {}", read(&account.join("token"))?),
            path: format!(
                "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io/service-name%3D{service}"
            ),
        })
    }

    async fn ask(&self, path: &str) -> io::Result<HttpAnswer<Stream>> {
        let request = Request::get(path, Some(&self.token));
        let answer = timeout(ANSWER_LIMIT, self.host.ask(Some(&self.tls), &request)).await??;
        match answer.status {
            200 => Ok(answer),
            status @ (401 | 403) => Err(io::Error::other(format!(
                "status {status}: the service account may not list and watch endpointslices"
            ))),
            status => Err(io::Error::other(format!("status {status}"))),
        }
    }

    /// All slices, and the version from which they are to be watched.
    async fn list(&self) -> io::Result<(Known, String)> {
        let body = self.ask(&self.path).await?.whole(LIST_MAX).await?;
        let mut list: Value = serde_json::from_slice(&body)?;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let version = version.to_owned();
        // It goes into a URL.
        if version.is_empty() || !version.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(io::Error::other("its list has no version"));
        }
        let Some(Value::Array(slices)) = list.get_mut("items").map(Value::take) else {
            return Err(io::Error::other("its list has no items"));
        };
        if slices.len() > SLICES_MAX {
            return Err(io::Error::other("there are more slices than can be meant"));
        }
        let known = slices.into_iter().map(|slice| (name(&slice), slice)).collect();
        Ok((known, version))
    }

    async fn watch(&self, version: &str) -> io::Result<Lines<Stream>> {
        let path = format!(
            "{}&watch=true&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}",
            self.path
        );
        Ok(Lines::of(self.ask(&path).await?))
    }
}

/// A file of one line, such as can be part of a request.
fn read(path: &Path) -> io::Result<String> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let line = text.trim();
    match !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(line.to_owned()),
        false => Err(io::Error::other(format!("{}: no line of text", path.display()))),
    }
}

fn name(slice: &Value) -> String {
    slice["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Takes over an event of the watch; false where it changes nothing.
fn apply(known: &mut Known, line: &[u8]) -> io::Result<bool> {
    let mut event: Value = serde_json::from_slice(line)?;
    let slice = event.get_mut("object").map(Value::take).unwrap_or_default();
    match event["type"].as_str() {
        Some("ADDED" | "MODIFIED") => known.insert(name(&slice), slice),
        Some("DELETED") => known.remove(&name(&slice)),
        Some("BOOKMARK") => return Ok(false),
        // `410 Gone` above all: it does not know any more what has changed since.
        Some("ERROR") => return Err(io::Error::other(format!("error {}", slice["code"]))),
        _ => return Err(io::Error::other("an event is of no known type")),
    };
    match known.len() > SLICES_MAX {
        true => Err(io::Error::other("there are more slices than can be meant")),
        false => Ok(true),
    }
}

/// Takes over the endpoints, unless there are none. Returns how many were left out.
fn take(cluster: &Arc<Cluster>, slices: &EndpointSlices, known: &Known, family: &str) -> io::Result<usize> {
    let Endpoints {
        servers,
        terminating,
        left_out,
    } = endpoints(slices, known, family);
    if servers.is_empty() {
        let service = &slices.service;
        let of_port = match &slices.port {
            Some(port) => format!("with a port {port}"),
            None => "with one port only: of several, `port` names the one that is meant".to_owned(),
        };
        return Err(io::Error::other(format!(
            "service {service} has no endpoints {of_port}"
        )));
    }
    cluster.take_named(&servers, NAMED_BY);
    let mut is_news = false;
    for server in cluster.servers().iter() {
        is_news |= server.set_terminating(terminating.contains(&server.address().to_string()));
    }
    if is_news {
        // The signals are heeded where all that is new is.
        cluster.follow.news.notify_one();
    }
    Ok(left_out)
}

/// What the log has heard last.
#[derive(Default)]
struct LastLogged {
    failing: Option<String>,
    left_out: usize,
}

impl LastLogged {
    /// Says whether Kubernetes can be asked where that is news: why not, or `None`.
    fn tell(&mut self, cluster: &Cluster, reason: Option<String>) {
        cluster.slices_answer.store(reason.is_none(), Ordering::Relaxed);
        let name = cluster.name();
        match &reason {
            Some(reason) if self.failing.as_ref() != Some(reason) => {
                tracing::warn!(
                    cluster = name,
                    reason,
                    "Kubernetes cannot be asked: the last servers stay"
                );
            }
            None if self.failing.is_some() => tracing::info!(cluster = name, "Kubernetes can be asked"),
            _ => {}
        }
        self.failing = reason;
    }

    /// Says that there are more endpoints than servers that are taken, where that is news.
    fn tell_left_out(&mut self, cluster: &Cluster, left_out: usize) {
        if left_out > 0 && self.left_out == 0 {
            tracing::warn!(
                cluster = cluster.name(),
                left_out,
                "Kubernetes names more than {SERVERS_MAX} servers: the others are left out"
            );
        }
        self.left_out = left_out;
    }
}

#[derive(Default)]
struct Endpoints {
    /// What the configuration would say of them.
    servers: Vec<config::Server>,
    /// Addresses of those that terminate.
    terminating: BTreeSet<String>,
    /// So many are more than are taken.
    left_out: usize,
}

/// Of a service with addresses of two families IPv4's count, since each pod is in both.
fn family(slices: &EndpointSlices, known: &Known) -> &'static str {
    let has_servers = |family: &&str| !endpoints(slices, known, family).servers.is_empty();
    let mut families = ["IPv4", "IPv6", "FQDN"].into_iter();
    families.find(has_servers).unwrap_or("IPv4")
}

fn endpoints(slices: &EndpointSlices, known: &Known, family: &str) -> Endpoints {
    let mut found = Endpoints::default();
    let is_meant = |slice: &&Value| slice["addressType"] == family;
    for slice in known.values().filter(is_meant) {
        let Some(port) = port(slices, slice) else { continue };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            found.add(slices, endpoint, port);
        }
    }
    found
}

/// The port that is meant; `None` where the slice does not have it. Kubernetes puts several in any order.
fn port(slices: &EndpointSlices, slice: &Value) -> Option<u16> {
    let ports = slice["ports"].as_array()?;
    let port = match (&slices.port, &ports[..]) {
        (Some(name), _) => ports.iter().find(|port| port["name"] == name.as_str())?,
        (None, [only]) => only,
        (None, _) => return None,
    };
    let number = port["port"].as_u64().filter(|number| *number > 0)?;
    u16::try_from(number).ok()
}

impl Endpoints {
    fn add(&mut self, slices: &EndpointSlices, endpoint: &Value, port: u16) {
        // All addresses lead to the same one.
        let Some(host) = endpoint["addresses"][0].as_str() else {
            return;
        };
        let address = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let address = ServerAddress::parse(&address);
        let Some(address @ ServerAddress::Host { .. }) = address else {
            return;
        };
        let is_known = self.servers.iter().any(|server| server.address == address);
        if is_known {
            return;
        }
        if self.servers.len() >= SERVERS_MAX {
            self.left_out += 1;
            return;
        }
        let zone = endpoint["zone"].as_str();
        let server = config::Server {
            max_connections: slices.max_connections,
            zone: zone.filter(|zone| is_zone(zone)).map(str::to_owned),
            ..config::Server::new(address)
        };
        if endpoint["conditions"]["terminating"] == true {
            self.terminating.insert(server.name.clone());
        }
        self.servers.push(server);
    }
}

#[cfg(test)]
mod tests;
