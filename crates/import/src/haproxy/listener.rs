//! From `bind` lines to listeners.

use super::cluster::Cluster;
use super::parameters::{Bind, Taken, Tls};
use super::proxy::Proxy;
use super::remarks::Remarks;
use super::{Global, congestion, figure, time};
use crate::write::{Toml, list, quote};

const YEAR_MS: u64 = 365 * 86_400_000;

/// A listener to be.
#[derive(Debug)]
pub(super) struct Listener<'p> {
    name: String,
    proxy: &'p Proxy,
    bind: &'p Bind,
    cluster: &'p Cluster<'p>,
    backend_line: usize,
}

/// Whether any of them has this cluster behind it.
pub(super) fn leads_to(listeners: &[Listener<'_>], cluster: &str) -> bool {
    listeners.iter().any(|listener| listener.cluster.name == cluster)
}

/// One for each address that clients connect to, and tells of those that lead nowhere.
pub(super) fn plan<'p>(
    proxies: &'p [Proxy],
    clusters: &'p [Cluster<'p>],
    global: &Global,
    remarks: &mut Remarks,
) -> Vec<Listener<'p>> {
    let mut listeners: Vec<Listener<'p>> = Vec::new();
    for proxy in proxies.iter().filter(|proxy| proxy.has_clients()) {
        let shown = proxy.shown();
        let named = proxy
            .backend()
            .map(|backend| (backend.value.as_str(), backend.line));
        let own =
            (proxy.has_servers() && !proxy.servers.is_empty()).then_some((proxy.name.as_str(), proxy.line));
        let goes_to = named.or(own);
        tell_choices(proxy, goes_to.map(|(backend, _)| backend), remarks);
        let Some((backend, backend_line)) = goes_to else {
            remarks.lacks(
                proxy.line,
                format!("{shown}: no server and no `default_backend`; left out"),
            );
            continue;
        };
        let Some(cluster) = clusters.iter().find(|cluster| cluster.proxy.name == backend) else {
            remarks.lacks(
                backend_line,
                format!("{shown}: there is no server behind `{backend}` that is taken over; left out"),
            );
            continue;
        };
        if proxy.binds.is_empty() {
            remarks.lacks(proxy.line, format!("{shown}: no address to listen on; left out"));
        }
        if proxy.binds.len() > 1
            && let Some(limit) = &proxy.maxconn
            && limit.value > 0
        {
            let why = "`maxconn`: of all addresses of the section together there, of each one here";
            remarks.lacks(limit.line, why);
        }
        for (index, bind) in proxy.binds.iter().enumerate() {
            if let Err((line, why)) = TlsFiles::of(&bind.tls, global) {
                let words = format!(
                    "{why}; `bind {}` is left out: it would be open without TLS",
                    bind.address
                );
                remarks.lacks(line, words);
                continue;
            }
            let mut name = match index {
                0 => proxy.name.clone(),
                index => format!("{}-{}", proxy.name, index + 1),
            };
            if listeners.iter().any(|other| other.name == name) {
                name = format!("{name}-{}", bind.line);
            }
            listeners.push(Listener {
                name,
                proxy,
                bind,
                cluster,
                backend_line,
            });
        }
    }
    tell_unused(&listeners, clusters, remarks);
    listeners
}

/// Whoever would have gone elsewhere, by a condition that is not looked at here.
fn tell_choices(proxy: &Proxy, backend: Option<&str>, remarks: &mut Remarks) {
    let goes = match backend {
        Some(backend) => format!("all clients of {} go to `{backend}` here", proxy.shown()),
        None => "nobody goes there".to_owned(),
    };
    for choice in &proxy.choices {
        remarks.lacks(choice.line, format!(
            "{}: needs a hand: {goes}; write a listener for each choice, or one of mode `split`, which knows writes from reads",
            choice.value
        ));
    }
}

/// Servers that no address leads to.
fn tell_unused(listeners: &[Listener<'_>], clusters: &[Cluster<'_>], remarks: &mut Remarks) {
    for cluster in clusters
        .iter()
        .filter(|cluster| !leads_to(listeners, &cluster.name))
    {
        let proxy = cluster.proxy;
        let why = "nothing that is taken over leads to it; left out";
        remarks.lacks(proxy.line, format!("{}: {why}", proxy.shown()));
    }
}

pub(super) fn write(listeners: &[Listener<'_>], global: &Global, toml: &mut Toml, remarks: &mut Remarks) {
    for (index, listener) in listeners.iter().enumerate() {
        toml.section("[[listener]]");
        toml.text("name", &listener.name);
        toml.taken("bind", &quote(&listener.bind.address), listener.bind.line);
        if index == 0 {
            toml.comment("\"tcp\" passes bytes, as HAProxy does. \"split\" sends writes to the primary and reads to replicas.");
        }
        toml.text("mode", "session");
        toml.taken("cluster", &quote(&listener.cluster.name), listener.backend_line);
        listener.options(toml, remarks);
        listener.tls(global, toml, remarks);
    }
}

impl Listener<'_> {
    fn options(&self, toml: &mut Toml, remarks: &mut Remarks) {
        let (proxy, bind) = (self.proxy, self.bind);
        let limits = [&proxy.maxconn, &bind.maxconn].into_iter().flatten();
        let limit = limits
            .filter(|limit| limit.value > 0)
            .min_by_key(|limit| limit.value);
        figure(toml, "max_connections", limit, (1, 10_000_000), remarks);
        let backlog = bind.backlog.as_ref().or(proxy.backlog.as_ref());
        figure(toml, "backlog", backlog, (1, 65_535), remarks);
        self.idle(toml, remarks);
        if let Some(line) = bind.accept_proxy {
            toml.taken("accept_proxy_from", &list(["0.0.0.0/0", "::/0"]), line);
            remarks.lacks(line, "`accept-proxy`: whoever connects is believed; name the balancers' networks in `accept_proxy_from`");
        } else if let Some(networks) = &proxy.proxy_from {
            let networks_list = list(networks.value.iter().map(String::as_str));
            toml.taken("accept_proxy_from", &networks_list, networks.line);
        }
        self.unix_mode(toml, remarks);
        congestion(bind.congestion.as_ref(), toml, remarks);
    }

    /// An idle session is ended there by the shorter of two times, or by the one for tunnels alone.
    fn idle(&self, toml: &mut Toml, remarks: &mut Remarks) {
        let backend = self.cluster.proxy;
        let time_of =
            |proxy: &Proxy, what: &str| proxy.timeouts.get(what).filter(|time| time.value > 0).cloned();
        let client = time_of(self.proxy, "client");
        let server = time_of(backend, "server");
        let tunnel = time_of(backend, "tunnel").or_else(|| time_of(self.proxy, "tunnel"));
        let idle = match (tunnel, client, server) {
            (Some(tunnel), _, _) => Some(tunnel),
            (None, Some(client), Some(server)) if server.value < client.value => {
                remarks.lacks(client.line, format!(
                    "`timeout client`: `timeout server` of line {} is shorter and ends idle sessions there: it is `client_idle_timeout` here",
                    server.line
                ));
                Some(server)
            }
            (None, client, server) => client.or(server),
        };
        // No time at all is no limit on both sides, where it is said.
        let idle = idle.or_else(|| self.proxy.timeouts.get("client").cloned());
        time(toml, "client_idle_timeout", idle.as_ref(), (0, YEAR_MS), remarks);
    }

    fn unix_mode(&self, toml: &mut Toml, remarks: &mut Remarks) {
        let Some(mode) = &self.bind.mode else { return };
        let digits = mode.value.trim_start_matches('0');
        let fits = u32::from_str_radix(digits, 8).is_ok_and(|mode| mode <= 0o777);
        if fits && self.bind.address.starts_with('/') {
            let bits = u32::from_str_radix(digits, 8).unwrap_or_default();
            toml.taken("unix_mode", &quote(&format!("{bits:04o}")), mode.line);
        } else {
            remarks.lacks(
                mode.line,
                format!("`mode {}`: no permissions of a socket; left out", mode.value),
            );
        }
    }

    fn tls(&self, global: &Global, toml: &mut Toml, remarks: &mut Remarks) {
        let tls = &self.bind.tls;
        let Some(line) = tls.line else { return };
        remarks.lacks(line, "`ssl`: TLS begins within MySQL's login here, as MySQL's clients have it; those of a TLS tunnel cannot connect");
        // Where they cannot be had, there is no listener.
        let Ok(files) = TlsFiles::of(&self.bind.tls, global) else {
            return;
        };
        toml.section("[listener.tls]");
        toml.taken("mode", &quote("required"), line);
        if let Some((cert, line)) = files.cert {
            toml.taken("cert", &quote(&cert), line);
            toml.taken("key", &quote(&cert), line);
        }
        if let Some((ca, line)) = files.client_ca {
            toml.taken("client_ca", &quote(&ca), line);
        }
        match &tls.verify {
            Some(verify) if verify.value == "optional" => {
                toml.taken("client_auth", &quote("optional"), verify.line);
            }
            Some(verify) if verify.value != "none" => {
                toml.taken("client_auth", &quote("required"), verify.line);
            }
            _ => {}
        }
        if let Some(line) = tls.min_is_13 {
            toml.taken("min_version", &quote("1.3"), line);
        }
    }
}

/// Files that a `bind` line names, each with its line.
#[derive(Default)]
struct TlsFiles {
    cert: Option<(String, usize)>,
    client_ca: Option<(String, usize)>,
}

impl TlsFiles {
    /// Without them a listener would be open to whom it was not: then it is not taken over, for a reason.
    fn of(tls: &Tls, global: &Global) -> Result<Self, (usize, String)> {
        let mut files = Self::default();
        let Some(line) = tls.line else {
            return Ok(files);
        };
        let found = |word: &str, base: &Option<String>, file: &Option<Taken<String>>| {
            let Some(file) = file else {
                return Err((line, format!("`ssl`: no `{word}`")));
            };
            let path = Global::file(base.as_ref(), &file.value);
            let path = path.map_err(|why| (file.line, format!("`{word} {}`: {why}", file.value)));
            Ok(Some((path?, file.line)))
        };
        files.cert = found("crt", &global.crt_base, &tls.cert)?;
        if tls.verify.as_ref().is_some_and(|verify| verify.value != "none") {
            files.client_ca = found("ca-file", &global.ca_base, &tls.ca)?;
        }
        Ok(files)
    }
}
