//! One `frontend`, `backend` or `listen` section, with what `defaults` say for it.

use std::collections::BTreeMap;

use super::address;
use super::keywords;
use super::lines::{Line, Section};
use super::parameters::{Bind, Parameters, Taken, milliseconds, read, say};
use super::remarks::Remarks;
use super::samples::is_same_for_all;

/// What HAProxy finds out about its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// `option mysql-check`, with its user.
    Mysql(Option<String>),
    /// A connection.
    Tcp,
    /// Something of its own, that is not taken over.
    Other,
}

/// A `server` line.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) line: usize,
    pub(super) parameters: Parameters,
}

/// What a section comes to.
#[derive(Debug, Default)]
pub(super) struct Proxy {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) binds: Vec<Bind>,
    /// `use_backend` without a condition, and `default_backend`.
    always: Option<Taken<String>>,
    default: Option<Taken<String>>,
    /// Further `use_backend` lines.
    pub(super) choices: Vec<Taken<String>>,
    pub(super) maxconn: Option<Taken<u64>>,
    pub(super) backlog: Option<Taken<u64>>,
    /// By what follows `timeout`, in milliseconds.
    pub(super) timeouts: BTreeMap<String, Taken<u64>>,
    /// The method, with what it is told.
    pub(super) balance: Option<Taken<String>>,
    /// A line that has all clients stick to the same server.
    pub(super) sticks: Option<Taken<String>>,
    pub(super) asks: Option<Taken<Asks>>,
    pub(super) proxy_from: Option<Taken<Vec<String>>>,
    pub(super) servers: Vec<Server>,
    pub(super) all_backups: bool,
    default_server: Parameters,
}

impl Proxy {
    /// Takes what `defaults` and the section itself say, in this order.
    pub(super) fn read<'l>(
        section: &'l Section,
        defaults: impl Iterator<Item = &'l Line>,
        remarks: &mut Remarks,
    ) -> Self {
        let header = &section.header;
        let mut proxy = Self {
            kind: section.kind().to_owned(),
            name: section.name().to_owned(),
            line: header.number,
            ..Self::default()
        };
        // As versions before 1.7 had it.
        if header.words.len() > 2 && header.word(2) != "from" {
            proxy.bind(header, 2, remarks);
        }
        for line in defaults.chain(&section.lines) {
            proxy.line(line, remarks);
        }
        proxy
    }

    /// The section as one would quote it.
    pub(super) fn shown(&self) -> String {
        format!("`{} {}`", self.kind, self.name)
    }

    /// Where its clients go, as far as that is said here.
    pub(super) fn backend(&self) -> Option<&Taken<String>> {
        self.always.as_ref().or(self.default.as_ref())
    }

    pub(super) fn has_clients(&self) -> bool {
        self.kind != "backend"
    }

    pub(super) fn has_servers(&self) -> bool {
        self.kind != "frontend"
    }

    fn line(&mut self, line: &Line, remarks: &mut Remarks) {
        if line.has_variable {
            let why = "`$`: a variable of the environment, of which only HAProxy knows the value; it stands as it is written";
            remarks.lacks(line.number, why);
        }
        let taken = |value: &str| Taken::of(line, value.to_owned());
        match (line.word(0), line.word(1)) {
            ("mode", _) => {
                remarks.needs_nothing(line.number, "sections that are taken over are of `mode tcp`")
            }
            ("bind", _) => self.bind(line, 1, remarks),
            ("server", _) if self.has_servers() => self.server(line, remarks),
            ("default-server", _) => self.default_server.read(line, 1, remarks),
            ("default_backend", name) => self.default = Some(taken(name)),
            ("use_backend", name) if self.has_clients() => self.use_backend(name, line),
            ("maxconn", _) => self.maxconn = limit(line, remarks),
            ("backlog", _) => self.backlog = number(line, remarks),
            ("balance", _) => self.balance = Some(taken(line.words[1..].join(" ").trim())),
            ("stick", _) if self.has_servers() && sticks_all(line) => {
                self.sticks = Some(taken(&line.shown()))
            }
            ("timeout", what) => self.timeout(what, line.word(2), line, remarks),
            // As versions before 2.1 had them.
            ("contimeout", text) => self.timeout("connect", text, line, remarks),
            ("clitimeout", text) => self.timeout("client", text, line, remarks),
            ("srvtimeout", text) => self.timeout("server", text, line, remarks),
            ("option", _) => self.option(line, remarks),
            ("tcp-request", _) if expects_proxy(line) => self.expect_proxy(line),
            ("tcp-request", "connection") if line.word(2) == "expect-proxy" => {
                let why = "needs a hand: who sends a PROXY header cannot log in without its network in `accept_proxy_from`";
                remarks.lacks(line.number, format!("{}: {why}", line.shown()));
            }
            ("no", _) => {
                remarks.needs_nothing(line.number, "what is switched off there is not done here either")
            }
            (first, second) => say(line, keywords::of_section(first, second), remarks),
        }
    }

    fn bind(&mut self, line: &Line, at: usize, remarks: &mut Remarks) {
        for address in line.word(at).split(',') {
            match address::binds(address) {
                Ok(binds) => {
                    let binds = binds
                        .iter()
                        .map(|address| Bind::new(address, line, at + 1, remarks));
                    let binds: Vec<Bind> = binds.collect();
                    self.binds.extend(binds);
                }
                Err(why) => remarks.lacks(line.number, format!("`bind {address}`: {why}; left out")),
            }
        }
    }

    fn server(&mut self, line: &Line, remarks: &mut Remarks) {
        let (name, address) = (line.word(1), line.word(2));
        let mut parameters = self.default_server.clone();
        parameters.read(line, 3, remarks);
        self.servers.push(Server {
            name: name.to_owned(),
            address: address.to_owned(),
            line: line.number,
            parameters,
        });
    }

    /// Without a condition it is for all who come that far; with one for those whom it is true of.
    fn use_backend(&mut self, name: &str, line: &Line) {
        let is_always = line.words.len() == 2 && !name.contains(['%', '[']);
        if is_always && self.always.is_none() {
            self.always = Some(Taken::of(line, name.to_owned()));
        } else {
            self.choices.push(Taken::of(line, line.shown()));
        }
    }

    fn timeout(&mut self, what: &str, text: &str, line: &Line, remarks: &mut Remarks) {
        if !["connect", "client", "server", "queue", "check", "tunnel"].contains(&what) {
            return say(line, keywords::of_section("timeout", what), remarks);
        }
        let time = read(milliseconds(text), line.number, &line.shown(), "time", remarks);
        self.timeouts.extend(time.map(|time| (what.to_owned(), time)));
    }

    fn option(&mut self, line: &Line, remarks: &mut Remarks) {
        let asks = match line.word(1) {
            "mysql-check" => {
                if line.word(4) == "pre-41" {
                    remarks.lacks(line.number, "`pre-41`: logins of MySQL 4.0 are not known here");
                }
                let user = (line.word(2) == "user").then(|| line.word(3).to_owned());
                Asks::Mysql(user.filter(|user| !user.is_empty()))
            }
            "tcp-check" => Asks::Tcp,
            "httpchk" | "external-check" => {
                let why = "no equal: what another program says of a server (clustercheck) is a `query` of \
                           [cluster.NAME.check]; until there is one, a server that greets is up: docs/guide/from-haproxy.md";
                remarks.lacks(line.number, format!("{}: {why}", line.shown()));
                Asks::Other
            }
            option => {
                self.all_backups |= option == "allbackups";
                return say(line, keywords::of_section("option", option), remarks);
            }
        };
        self.asks = Some(Taken::of(line, asks));
    }

    fn expect_proxy(&mut self, line: &Line) {
        let networks = line.words[7..line.words.len() - 1].to_vec();
        self.proxy_from = Some(Taken::of(line, networks));
    }
}

/// A line that has every client stick to the same server.
fn sticks_all(line: &Line) -> bool {
    line.word(0) == "stick"
        && ["on", "match", "store-request"].contains(&line.word(1))
        && is_same_for_all(line.word(2))
}

/// `tcp-request connection expect-proxy layer4 if { src NETWORK... }`
fn expects_proxy(line: &Line) -> bool {
    let begins = [
        "tcp-request",
        "connection",
        "expect-proxy",
        "layer4",
        "if",
        "{",
        "src",
    ];
    let is_network =
        |word: &String| word.parse::<config::IpNet>().is_ok() || word.parse::<std::net::IpAddr>().is_ok();
    line.words.len() > begins.len() + 1
        && line.words.iter().zip(begins).all(|(word, begin)| word == begin)
        && line.words.last().is_some_and(|word| word == "}")
        && line.words[begins.len()..line.words.len() - 1]
            .iter()
            .all(is_network)
}

/// The figure of a `maxconn` line, of which 0 sets no limit.
pub(super) fn limit(line: &Line, remarks: &mut Remarks) -> Option<Taken<u64>> {
    let limit = number(line, remarks)?;
    if limit.value == 0 {
        remarks.needs_nothing(line.number, "0 sets no limit of its own");
    }
    Some(limit)
}

/// The figure behind a word.
pub(super) fn number(line: &Line, remarks: &mut Remarks) -> Option<Taken<u64>> {
    let number = line.word(1).parse().ok();
    read(number, line.number, &line.shown(), "whole number", remarks)
}
