//! From `server` lines to clusters.

use std::collections::BTreeSet;

use super::address;
use super::one;
use super::parameters::{Parameters, Taken, Tls};
use super::proxy::{Asks, Proxy, Server};
use super::remarks::Remarks;
use super::{Global, congestion, figure, time};
use crate::write::{Toml, quote};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const YEAR_MS: u64 = 365 * 24 * HOUR_MS;

const NO_PORT: &str = "no port; it is 3306 here, and the one that the client came to there";

/// A cluster to be.
#[derive(Debug)]
pub(super) struct Cluster<'p> {
    pub(super) name: String,
    pub(super) proxy: &'p Proxy,
    /// Addresses in our form, with what their lines say.
    servers: Vec<(String, &'p Server)>,
    /// The line of the server that has all sessions as long as it is up, where the section is about one at a
    /// time.
    only: Option<usize>,
}

/// All sections with servers that can be reached.
pub(super) fn plan<'p>(proxies: &'p [Proxy], remarks: &mut Remarks) -> Vec<Cluster<'p>> {
    let mut clusters: Vec<Cluster<'p>> = Vec::new();
    for proxy in proxies.iter().filter(|proxy| proxy.has_servers()) {
        let shown = proxy.shown();
        let servers = servers(proxy, port_of_clients(proxy, proxies), remarks);
        if servers.is_empty() {
            // A `listen` may be a frontend alone.
            if proxy.kind == "backend" {
                remarks.lacks(proxy.line, format!("{shown}: no server; left out"));
            }
            continue;
        }
        let mut name = proxy
            .name
            .replace(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_', "-");
        if clusters.iter().any(|other| other.name == name) {
            name = format!("{name}-{}", proxy.line);
        }
        if name != proxy.name {
            remarks.lacks(proxy.line, format!("{shown}: the cluster is called {name}"));
        }
        let asks = proxy.asks.as_ref().map(|asks| &asks.value);
        let is_mysql = |address: &str| address.ends_with(":3306") || address.starts_with('/');
        if !matches!(asks, Some(Asks::Mysql(_))) && !servers.iter().any(|(address, _)| is_mysql(address)) {
            remarks.lacks(proxy.line, format!(
                "{shown}: neither a port 3306 nor `option mysql-check`; if it is not MySQL, its listener needs mode = \"tcp\" or is not for Forebay"
            ));
        }
        let only = only(proxy, &servers, remarks);
        clusters.push(Cluster {
            name,
            proxy,
            servers,
            only,
        });
    }
    clusters
}

/// The port that clients connect to, if there is only one.
fn port_of_clients(proxy: &Proxy, proxies: &[Proxy]) -> Option<u16> {
    let leads_here = |other: &&Proxy| {
        other.name == proxy.name && other.has_clients()
            || other.backend().is_some_and(|backend| backend.value == proxy.name)
    };
    let binds = proxies.iter().filter(leads_here).flat_map(|other| &other.binds);
    let ports: BTreeSet<&str> = binds
        .filter_map(|bind| Some(bind.address.rsplit_once(':')?.1))
        .collect();
    match ports.len() {
        1 => ports.first()?.parse().ok(),
        _ => None,
    }
}

fn servers<'p>(proxy: &'p Proxy, port: Option<u16>, remarks: &mut Remarks) -> Vec<(String, &'p Server)> {
    let mut servers: Vec<(String, &Server)> = Vec::new();
    for server in &proxy.servers {
        let shown = format!("`server {} {}`", server.name, server.address);
        match address::server(&server.address, port) {
            Err(why) => remarks.lacks(server.line, format!("{shown}: {why}; left out")),
            Ok(address) => {
                if port.is_none() && !address::has_port(&server.address) {
                    remarks.lacks(server.line, format!("{shown}: {NO_PORT}"));
                }
                match servers.iter().find(|(other, _)| *other == address) {
                    Some((_, first)) => {
                        remarks.lacks(
                            server.line,
                            format!("{shown}: the same server as in line {}; left out", first.line),
                        );
                    }
                    None => servers.push((address, server)),
                }
            }
        }
    }
    servers
}

/// The line of the server that is to have all sessions, where HAProxy would not use several at the same time
/// either.
fn only(proxy: &Proxy, servers: &[(String, &Server)], remarks: &mut Remarks) -> Option<usize> {
    let (words, why) = one::words(proxy)?;
    let first = one::first(servers).map(|(_, server)| server);
    let shown = words.value;
    match first {
        _ if servers.len() == 1 => remarks.needs_nothing(words.line, "there is one server, which gets all sessions"),
        Some(first) => remarks.lacks(
            words.line,
            format!(
                "{shown}: no equal; all servers but {} are written as `backup`: {why}. Sessions that it has no room for wait here",
                first.name
            ),
        ),
        None => remarks.lacks(words.line, format!("{shown}: no equal: {why}")),
    }
    first.map(|first| first.line)
}

/// Two clusters of the same servers are mostly one, with writes and reads told apart.
pub(super) fn worth_joining(clusters: &[&Cluster<'_>]) -> Option<String> {
    let addresses = |cluster: &Cluster<'_>| -> BTreeSet<String> {
        cluster
            .servers
            .iter()
            .map(|(address, _)| address.clone())
            .collect()
    };
    let pairs = clusters.iter().enumerate();
    let mut pairs =
        pairs.flat_map(|(index, one)| clusters[index + 1..].iter().map(move |other| (one, other)));
    let (one, other) = pairs.find(|(one, other)| !addresses(one).is_disjoint(&addresses(other)))?;
    Some(format!(
        "{} and {} have servers in common: for writes and reads, one listener of mode \"split\" and one cluster do without both. \
         See docs/guide/split.md.",
        one.name, other.name
    ))
}

/// What is to be said of a method of which `other` is the word.
fn spread(other: &str) -> &'static str {
    match other {
        "source" | "hash" | "rdp-cookie" => {
            ", and the sessions of one client may go to different servers, where HAProxy gives them the same"
        }
        _ => "",
    }
}

impl Cluster<'_> {
    pub(super) fn write(&self, global: &Global, toml: &mut Toml, remarks: &mut Remarks) {
        let timeouts = &self.proxy.timeouts;
        toml.section(&format!("[cluster.{}]", self.name));
        self.write_servers(toml, remarks);
        self.balance(toml, remarks);
        time(
            toml,
            "connect_timeout",
            timeouts.get("connect"),
            (1, 10 * MINUTE_MS),
            remarks,
        );
        let server = timeouts.get("tunnel").or(timeouts.get("server"));
        time(toml, "server_idle_timeout", server, (0, YEAR_MS), remarks);
        // Where nothing is said of the queue, the time to connect counts for it, too.
        let has_limit = self.servers.iter().any(|(_, server)| {
            let limit = server.parameters.maxconn.as_ref();
            limit.is_some_and(|limit| limit.value > 0)
        });
        let connect = timeouts.get("connect").filter(|_| has_limit);
        let queue = timeouts.get("queue").or(connect);
        time(toml, "queue_timeout", queue, (0, HOUR_MS), remarks);
        self.queue(toml, remarks);
        let slow_start = self.one_of(("slowstart", None), |server| server.slowstart.as_ref(), remarks);
        time(
            toml,
            "slow_start",
            slow_start.as_ref(),
            (0, 24 * HOUR_MS),
            remarks,
        );
        self.on_down(toml, remarks);
        if let Some(line) = self.any("send-proxy", |server| server.send_proxy, remarks) {
            toml.taken("send_proxy", "true", line);
        }
        let algorithm = self
            .servers
            .iter()
            .find_map(|(_, server)| server.parameters.congestion.as_ref());
        congestion(algorithm, toml, remarks);
        self.check(toml, remarks);
        self.tls(global, toml, remarks);
    }

    fn write_servers(&self, toml: &mut Toml, remarks: &mut Remarks) {
        toml.open("servers");
        for (address, server) in &self.servers {
            let parameters = &server.parameters;
            let mut options = vec![
                format!("name = {}", quote(&server.name)),
                format!("address = {}", quote(address)),
            ];
            let weight = parameters
                .weight
                .as_ref()
                .map_or(1, |weight| weight.value.min(1_000_000));
            if let Some(line) = parameters.disabled {
                remarks.lacks(
                    line,
                    format!(
                        "`disabled`: server {} has weight 0: it is checked, and gets no sessions",
                        server.name
                    ),
                );
                options.push("weight = 0".to_owned());
            } else if weight != 1 {
                options.push(format!("weight = {weight}"));
            }
            if let Some(limit) = parameters.maxconn.as_ref().filter(|limit| limit.value > 0) {
                options.push(format!("max_connections = {}", limit.value.min(10_000_000)));
            }
            if self.is_backup(server) {
                options.push("backup = true".to_owned());
            }
            toml.element(&format!("{{ {} }}", options.join(", ")), server.line);
        }
        toml.close();
        self.tell_backups(remarks);
    }

    fn is_backup(&self, server: &Server) -> bool {
        server.parameters.is_backup.is_some() || self.only.is_some_and(|only| only != server.line)
    }

    /// All of them are used at once here, and there the first that is up.
    fn tell_backups(&self, remarks: &mut Remarks) {
        if self.proxy.all_backups && self.only.is_none() {
            return;
        }
        let backups = self.servers.iter().filter(|(_, server)| self.is_backup(server));
        let lines: Vec<usize> = backups
            .map(|(_, server)| server.parameters.is_backup.unwrap_or(server.line))
            .collect();
        if let [_, second, ..] = lines.as_slice() {
            remarks.lacks(*second, format!(
                "`backup`: while no other server is up, {} take sessions at the same time here, and only the first there: for writes, \
                 leave one of them in, or use mode `split` with a `topology`",
                lines.len()
            ));
        }
    }

    fn balance(&self, toml: &mut Toml, remarks: &mut Remarks) {
        let Some(Taken { value, line }) = &self.proxy.balance else {
            toml.comment("HAProxy's, where nothing is said.");
            return toml.text("balance", "weighted");
        };
        let word = value.split(' ').next().unwrap_or_default();
        let method = match word {
            "leastconn" => "least-connections",
            "roundrobin" | "static-rr" => "weighted",
            "random" | "random(2)" => "random-two",
            other => {
                let method = if other.starts_with("random(") {
                    "random-two"
                } else {
                    "least-connections"
                };
                // Of those that give everybody the same server it has been told.
                if self.only.is_none() || self.proxy.sticks.is_some() {
                    remarks.lacks(
                        *line,
                        format!(
                            "`balance {value}`: no equal; `{method}` is written{}",
                            spread(other)
                        ),
                    );
                }
                method
            }
        };
        toml.taken("balance", &quote(method), *line);
    }

    /// Each server has a queue there; here it is one for all.
    fn queue(&self, toml: &mut Toml, remarks: &mut Remarks) {
        let lengths = self
            .servers
            .iter()
            .filter_map(|(_, server)| server.parameters.maxqueue.as_ref());
        let lengths: Vec<&Taken<u64>> = lengths.filter(|length| length.value > 0).collect();
        let Some(first) = lengths.first() else { return };
        let value = lengths
            .iter()
            .fold(0, |sum: u64, length| sum.saturating_add(length.value));
        let sum = Taken {
            value,
            line: first.line,
        };
        figure(toml, "queue_max", Some(&sum), (0, 1_000_000), remarks);
        remarks.lacks(
            first.line,
            "`maxqueue`: there is one queue for all servers; `queue_max` is the sum",
        );
    }

    fn on_down(&self, toml: &mut Toml, remarks: &mut Remarks) {
        match self.any("on-marked-down", |server| server.closes, remarks) {
            Some(line) => toml.taken("on_down", &quote("close"), line),
            None => {
                toml.comment("As HAProxy does without `on-marked-down shutdown-sessions`. \"close\" ends sessions on a server that is down.");
                toml.text("on_down", "keep");
            }
        }
    }

    fn check(&self, toml: &mut Toml, remarks: &mut Remarks) {
        let checked = self
            .servers
            .iter()
            .filter(|(_, server)| server.parameters.check.is_some())
            .count();
        if checked < self.servers.len() {
            let which = if checked == 0 {
                "no server has"
            } else {
                "not every server has"
            };
            remarks.lacks(
                self.proxy.line,
                format!("{}: {which} `check`; here all are checked", self.proxy.shown()),
            );
        }
        toml.section(&format!("[cluster.{}.check]", self.name));
        match self.proxy.asks.as_ref().map(|asks| (&asks.value, asks.line)) {
            Some((Asks::Mysql(Some(user)), line)) => {
                toml.taken("user", &quote(user), line);
                toml.comment(
                    "HAProxy's account has no password. With one: password_file, password_env or password.",
                );
            }
            Some((Asks::Mysql(None), line)) => toml.taken("kind", &quote("greeting"), line),
            Some((Asks::Tcp, line)) => toml.taken("kind", &quote("tcp"), line),
            None if checked > 0 => {
                toml.comment("A connection is enough, as there. Better: `user`, an account without rights; see docs/guide/servers.md.");
                toml.text("kind", "tcp");
            }
            Some((Asks::Other, _)) | None => toml.text("kind", "greeting"),
        }
        let interval = self.one_of(("inter", Some(2000)), |server| server.inter.as_ref(), remarks);
        time(toml, "interval", interval.as_ref(), (50, HOUR_MS), remarks);
        // Without one of its own a check may take as long as it is to the next.
        let timeout = self.proxy.timeouts.get("check").or(interval.as_ref());
        time(toml, "timeout", timeout, (10, 10 * MINUTE_MS), remarks);
        let rise = self.one_of(("rise", Some(2)), |server| server.rise.as_ref(), remarks);
        figure(toml, "rise", rise.as_ref(), (1, 1000), remarks);
        let fall = self.one_of(("fall", Some(3)), |server| server.fall.as_ref(), remarks);
        figure(toml, "fall", fall.as_ref(), (1, 1000), remarks);
    }

    fn tls(&self, global: &Global, toml: &mut Toml, remarks: &mut Remarks) {
        let Some(line) = self.any("ssl", |server| server.tls.line, remarks) else {
            return;
        };
        let of_servers = || self.servers.iter().map(|(_, server)| &server.parameters.tls);
        remarks.lacks(
            line,
            "`ssl`: TLS begins within MySQL's login here; a server behind a TLS tunnel cannot be reached",
        );
        toml.section(&format!("[cluster.{}.tls]", self.name));
        toml.comment("MySQL's own TLS, which begins within the login.");
        toml.taken("mode", &quote("required"), line);
        let is_trusted = |tls: &Tls| match &tls.verify {
            Some(verify) => verify.value == "none",
            None => global.trusts_servers,
        };
        let trusts_all = of_servers().filter(|tls| tls.line.is_some()).all(is_trusted);
        let checks_name = of_servers().any(|tls| tls.checks_name);
        let ca = of_servers().find_map(|tls| tls.ca.as_ref());
        match ca.map(|ca| (ca, Global::file(global.ca_base.as_ref(), &ca.value))) {
            _ if trusts_all => toml.text("verify", "off"),
            Some((ca, Ok(file))) => {
                toml.taken("ca", &quote(&file), ca.line);
                toml.text("verify", if checks_name { "identity" } else { "ca" });
            }
            // Without a file `check` refuses this: nobody is trusted who was not.
            Some((ca, Err(why))) => {
                remarks.lacks(ca.line, format!("`ca-file {}`: {why}: `ca`", ca.value));
                toml.text("verify", "ca");
            }
            None => {
                remarks.lacks(line, "`ssl` without `ca-file`: name the authorities in `ca`");
                toml.text("verify", "ca");
            }
        }
        if let Some(cert) = of_servers().find_map(|tls| tls.cert.as_ref()) {
            match Global::file(global.crt_base.as_ref(), &cert.value) {
                Ok(file) => {
                    toml.taken("cert", &quote(&file), cert.line);
                    toml.taken("key", &quote(&file), cert.line);
                }
                Err(why) => remarks.lacks(
                    cert.line,
                    format!("`crt {}`: {why}; no certificate is shown to servers", cert.value),
                ),
            }
        }
    }

    /// The one value of a parameter for all servers: the smallest, where they differ. `usual`: the value of
    /// servers that do not state one, if there is any.
    fn one_of(
        &self,
        (word, usual): (&str, Option<u64>),
        of: impl Fn(&Parameters) -> Option<&Taken<u64>>,
        remarks: &mut Remarks,
    ) -> Option<Taken<u64>> {
        let said = || {
            let servers = self.servers.iter();
            servers.map(|(_, server)| of(&server.parameters))
        };
        let values = || said().filter_map(|taken| taken.map(|taken| taken.value).or(usual));
        let least = values().min()?;
        let mut lines = said().flatten().filter(|taken| taken.value == least);
        let line = lines.next().or_else(|| said().flatten().next())?.line;
        if values().count() < self.servers.len() || values().any(|value| value != least) {
            remarks.lacks(
                line,
                format!(
                    "`{word}`: not the same for all servers of `{}`; the smallest is taken for all",
                    self.proxy.name
                ),
            );
        }
        Some(Taken { value: least, line })
    }

    /// A line that has it, where any server has: then it is for all.
    fn any(
        &self,
        word: &str,
        of: impl Fn(&Parameters) -> Option<usize>,
        remarks: &mut Remarks,
    ) -> Option<usize> {
        let mut having = self
            .servers
            .iter()
            .filter_map(|(_, server)| of(&server.parameters));
        let line = having.next()?;
        if having.count() + 1 < self.servers.len() {
            remarks.lacks(
                line,
                format!(
                    "`{word}`: of some servers of `{}` only; it is taken for all of them",
                    self.proxy.name
                ),
            );
        }
        Some(line)
    }
}
