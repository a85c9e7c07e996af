//! From HAProxy: what its `haproxy.cfg` says of MySQL behind `mode tcp`.
//!
//! A section with `bind` becomes a listener for each address, one with `server` a cluster. Every line of the
//! file ends up in one of three places: an option that names the line, the list of what has no equal, or the
//! comment about lines that need nothing.

mod address;
mod cluster;
mod keywords;
mod lines;
mod listener;
mod one;
mod parameters;
mod proxy;
mod remarks;
mod samples;

use std::collections::{BTreeMap, BTreeSet};

use config::{Congestion, show_duration};

use self::lines::{Line, Section};
use self::parameters::{Taken, milliseconds, read, say};
use self::proxy::{Proxy, limit, number};
use self::remarks::Remarks;
use crate::Imported;
use crate::dump::{ImportError, text_of};
use crate::write::{ADMIN, Toml, mistakes, quote};

/// The authorities that the system trusts, where Debian and its kin keep them.
const SYSTEM_CA: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Words that leave TLS 1.3 alone.
const WITHOUT_12: [&str; 3] = ["TLSv1.3", "no-tlsv12", "force-tlsv13"];

/// Checks of what is no MySQL.
const OTHER_CHECKS: [&str; 6] = [
    "ldap-check",
    "pgsql-check",
    "redis-check",
    "smtpchk",
    "spop-check",
    "ssl-hello-chk",
];

/// Turns an `haproxy.cfg` into one of ours.
///
/// # Errors
/// The text is something else, cannot be read, or has nothing in it that could be in front of MySQL.
pub fn haproxy(text: &str) -> Result<Imported, ImportError> {
    let text = text_of(text)?;
    if text.contains('\0') || text.starts_with("\u{1f}\u{fffd}") {
        return Err(ImportError::new(1, "this is no text: unpack it first"));
    }
    let sections = lines::sections(text)?;
    let is_haproxy = |section: &Section| ["listen", "frontend", "backend"].contains(&section.kind());
    if !sections.iter().any(is_haproxy) {
        let what =
            "nothing here is HAProxy's: expected an haproxy.cfg with `listen`, or `frontend` and `backend`";
        return Err(ImportError::new(1, what));
    }
    let mut remarks = Remarks::default();
    let mut global = Global::default();
    for section in sections.iter().filter(|section| section.kind() == "global") {
        section
            .lines
            .iter()
            .for_each(|line| global.line(line, &mut remarks));
    }
    let proxies = proxies(&sections, &mut remarks);
    let clusters = cluster::plan(&proxies, &mut remarks);
    let listeners = listener::plan(&proxies, &clusters, &global, &mut remarks);
    if listeners.is_empty() {
        let why = remarks.finish().join("; ");
        return Err(ImportError::new(
            1,
            format!("nothing here leads to servers of MySQL; {why}"),
        ));
    }
    let mut toml = Toml::default();
    toml.comment("Made from an HAProxy configuration by `forebay import haproxy`. `# line N` is where an option comes from.");
    toml.comment("Look at it with `forebay check`; docs/guide/from-haproxy.md says what is different.");
    let reached = clusters
        .iter()
        .filter(|cluster| listener::leads_to(&listeners, &cluster.name));
    let reached: Vec<&cluster::Cluster<'_>> = reached.collect();
    if let Some(words) = cluster::worth_joining(&reached) {
        toml.comment(&words);
    }
    toml.blank();
    global.write(&mut toml, &mut remarks);
    listener::write(&listeners, &global, &mut toml, &mut remarks);
    toml.section("[admin]");
    toml.comment("/metrics, /status and /sessions, in the place of `stats`: to read needs no login.");
    toml.text("bind", ADMIN);
    for cluster in reached {
        cluster.write(&global, &mut toml, &mut remarks);
    }
    remarks.write_needless(&mut toml);
    let toml = toml.finish();
    let mut without_equal = remarks.finish();
    without_equal.extend(mistakes(&toml));
    Ok(Imported { toml, without_equal })
}

/// What `global` says.
#[derive(Debug, Default)]
struct Global {
    maxconn: Option<Taken<u64>>,
    threads: Option<Taken<u64>>,
    stop_after: Option<Taken<u64>>,
    grace: Option<Taken<u64>>,
    ca_base: Option<String>,
    crt_base: Option<String>,
    /// `ssl-server-verify none`
    trusts_servers: bool,
}

impl Global {
    fn line(&mut self, line: &Line, remarks: &mut Remarks) {
        let mut time = || {
            read(
                milliseconds(line.word(1)),
                line.number,
                &line.shown(),
                "time",
                remarks,
            )
        };
        match line.word(0) {
            "maxconn" => self.maxconn = limit(line, remarks).filter(|limit| limit.value > 0),
            "nbthread" => self.threads = number(line, remarks),
            "hard-stop-after" => self.stop_after = time(),
            "grace" => self.grace = time(),
            "ssl-server-verify" => {
                self.trusts_servers = line.word(1) == "none";
                remarks.needs_nothing(line.number, "it is in `verify` of [cluster.NAME.tls]");
            }
            // What most files have there is so anyway.
            "ssl-default-bind-options"
                if !line.words.iter().any(|word| WITHOUT_12.contains(&word.as_str())) =>
            {
                remarks.needs_nothing(line.number, keywords::SAFE_TLS);
            }
            word => {
                match word {
                    "ca-base" => self.ca_base = Some(line.word(1).to_owned()),
                    "crt-base" => self.crt_base = Some(line.word(1).to_owned()),
                    _ => {}
                }
                say(line, keywords::of_section(word, line.word(1)), remarks);
            }
        }
    }

    fn write(&self, toml: &mut Toml, remarks: &mut Remarks) {
        figure(toml, "workers", self.threads.as_ref(), (1, 1024), remarks);
        figure(
            toml,
            "max_connections",
            self.maxconn.as_ref(),
            (1, 10_000_000),
            remarks,
        );
        const DAY: u64 = 86_400_000;
        time(
            toml,
            "shutdown_timeout",
            self.stop_after.as_ref(),
            (0, DAY),
            remarks,
        );
        time(
            toml,
            "shutdown_delay",
            self.grace.as_ref(),
            (0, DAY / 24),
            remarks,
        );
    }

    /// Where a file is, or why that is not known.
    fn file(base: Option<&String>, name: &str) -> Result<String, &'static str> {
        if name == "@system-ca" {
            return Ok(SYSTEM_CA.to_owned());
        }
        if name.starts_with('@') || name.ends_with('/') {
            return Err("one file is wanted, by its path");
        }
        Ok(match base {
            Some(base) if !name.starts_with('/') => format!("{}/{name}", base.trim_end_matches('/')),
            _ => name.to_owned(),
        })
    }
}

/// Writes a figure within the bounds of its option.
fn figure(
    toml: &mut Toml,
    option: &str,
    taken: Option<&Taken<u64>>,
    bounds: (u64, u64),
    remarks: &mut Remarks,
) {
    if let Some(taken) = taken {
        let value = within(taken, option, bounds, |value| value.to_string(), remarks);
        toml.taken(option, &value, taken.line);
    }
}

/// Writes milliseconds within the bounds of their option.
fn time(
    toml: &mut Toml,
    option: &str,
    taken: Option<&Taken<u64>>,
    bounds: (u64, u64),
    remarks: &mut Remarks,
) {
    if let Some(taken) = taken {
        let shown = |ms| show_duration(std::time::Duration::from_millis(ms));
        let value = within(taken, option, bounds, shown, remarks);
        toml.taken(option, &quote(&value), taken.line);
    }
}

/// The value as it is shown, or the bound of its option that is nearest.
fn within(
    taken: &Taken<u64>,
    option: &str,
    (least, most): (u64, u64),
    shown: impl Fn(u64) -> String,
    remarks: &mut Remarks,
) -> String {
    let within = shown(taken.value.clamp(least, most));
    if !(least..=most).contains(&taken.value) {
        let value = shown(taken.value);
        remarks.lacks(
            taken.line,
            format!("{value} is beyond what `{option}` takes: {within}"),
        );
    }
    within
}

/// Writes a congestion control of a listener or cluster.
fn congestion(taken: Option<&Taken<String>>, toml: &mut Toml, remarks: &mut Remarks) {
    let Some(Taken { value, line }) = taken else {
        return;
    };
    match Congestion::parse(value) {
        Some(Congestion::Named(name)) => toml.taken("congestion", &quote(&name), *line),
        _ => remarks.lacks(
            *line,
            format!("`cc {value}`: no name of a congestion control; left out"),
        ),
    }
}

/// All sections that may be in front of MySQL; of the others it is told that they are left out.
fn proxies(sections: &[Section], remarks: &mut Remarks) -> Vec<Proxy> {
    // `defaults` by their index, each with those it goes back to.
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    let mut latest = None;
    let mut bases: Vec<Option<usize>> = vec![None; sections.len()];
    for (index, section) in sections.iter().enumerate() {
        let header = &section.header;
        let from = header.words.iter().skip(1).position(|word| word == "from");
        let from = from.map(|at| header.word(at + 2));
        bases[index] = match from {
            Some(name) => named.get(name).copied(),
            None if section.kind() == "defaults" => None,
            None => latest,
        };
        if let Some(name) = from.filter(|name| !named.contains_key(name)) {
            remarks.lacks(
                header.number,
                format!("there is no `defaults {name}` in front of it"),
            );
        }
        if section.kind() == "defaults" {
            latest = Some(index);
            named.insert(section.name(), index);
        }
    }
    let mut used = BTreeSet::new();
    let mut proxies = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        match section.kind() {
            "listen" | "frontend" | "backend" => {}
            "global" | "defaults" => continue,
            _ => {
                remarks.lacks(section.header.number, other_section(section));
                continue;
            }
        }
        let mut chain: Vec<usize> = std::iter::successors(bases[index], |base| bases[*base]).collect();
        chain.reverse();
        let defaults = || chain.iter().flat_map(|base| &sections[*base].lines);
        if let Some(why) = no_mysql(section, defaults().chain(&section.lines)) {
            remarks.lacks(
                section.header.number,
                format!(
                    "{}: {why}; left out, with its {}",
                    section.header.shown(),
                    section.length()
                ),
            );
            continue;
        }
        proxies.push(Proxy::read(section, defaults(), remarks));
        used.extend(chain);
    }
    for (index, section) in sections.iter().enumerate() {
        if section.kind() == "defaults" && !used.contains(&index) {
            let shown = section.header.shown();
            remarks.lacks(
                section.header.number,
                format!("{shown}: nothing that is taken over goes by it; left out"),
            );
        }
    }
    proxies
}

fn other_section(section: &Section) -> String {
    let why = match section.kind() {
        "resolvers" => "names are looked up by the system's resolver, every `dns_interval`",
        "mailers" => "the alert rules of deploy/prometheus do that",
        "peers" => "there are no tables to share",
        "userlist" => "accounts are those of MySQL",
        "" => return "no section begins in front of it; left out".to_owned(),
        _ => "no equal",
    };
    format!(
        "{}: {why}; left out, with its {}",
        section.header.shown(),
        section.length()
    )
}

/// Why a section is not in front of MySQL, if that can be told.
fn no_mysql<'l>(section: &Section, lines: impl Iterator<Item = &'l Line>) -> Option<String> {
    let (mut mode, mut check, mut is_off, mut has_stats) = ("tcp", "", false, false);
    for line in lines {
        match (line.word(0), line.word(1)) {
            ("mode", word) => mode = word,
            ("option", word) if word.ends_with("-check") || word.ends_with("chk") => check = word,
            ("disabled", _) => is_off = true,
            ("enabled", _) => is_off = false,
            ("stats", _) => has_stats = true,
            _ => {}
        }
    }
    let has_stats = has_stats && !section.lines.iter().any(|line| line.word(0) == "server");
    match (mode, is_off) {
        (_, true) => Some("it is `disabled`".to_owned()),
        ("tcp", false) if OTHER_CHECKS.contains(&check) => Some(format!("`option {check}` is not of MySQL")),
        ("tcp", false) => None,
        ("http", false) if has_stats => {
            Some("statistics are in /status and /metrics of [admin], which has no login".to_owned())
        }
        (mode, false) => Some(format!("`mode {mode}` is not of MySQL")),
    }
}
