//! Global variables that have an equal among our options.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use config::{Topology, show_duration};

use crate::dump::Dump;
use crate::write::{Notes, Toml};

/// Where an option stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Top,
    Listener,
    Cluster,
    Monitor(Topology),
    Check,
    Pool,
}

/// What a variable's figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    Milliseconds,
}

const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u64 = 3_600_000;

/// A variable, its option, and the bounds of the option.
struct Equal {
    variable: &'static str,
    section: Section,
    option: &'static str,
    kind: Kind,
    bounds: RangeInclusive<u64>,
}

macro_rules! equals {
    ($($variable:literal => $section:ident $(($topology:ident))? $option:literal $kind:ident $bounds:expr;)+) => {
        &[$(Equal {
            variable: $variable,
            section: Section::$section $((Topology::$topology))?,
            option: $option,
            kind: Kind::$kind,
            bounds: $bounds,
        }),+]
    };
}

const EQUALS: &[Equal] = equals! {
    "mysql-threads" => Top "workers" Number 1..=1024;
    "mysql-max_connections" => Top "max_connections" Number 1..=10_000_000;
    "mysql-wait_timeout" => Listener "client_idle_timeout" Milliseconds 0..=365 * DAY_MS;
    "mysql-connect_timeout_client" => Listener "login_timeout" Milliseconds 10..=HOUR_MS;
    "mysql-connect_timeout_server" => Cluster "connect_timeout" Milliseconds 1..=600_000;
    "mysql-connect_timeout_server_max" => Cluster "queue_timeout" Milliseconds 0..=HOUR_MS;
    "mysql-monitor_read_only_interval" => Monitor(Replication) "interval" Milliseconds 20..=HOUR_MS;
    "mysql-monitor_read_only_timeout" => Monitor(Replication) "timeout" Milliseconds 10..=600_000;
    "mysql-monitor_groupreplication_healthcheck_interval" =>
        Monitor(GroupReplication) "interval" Milliseconds 20..=HOUR_MS;
    "mysql-monitor_groupreplication_healthcheck_timeout" =>
        Monitor(GroupReplication) "timeout" Milliseconds 10..=600_000;
    "mysql-monitor_galera_healthcheck_interval" => Monitor(Galera) "interval" Milliseconds 20..=HOUR_MS;
    "mysql-monitor_galera_healthcheck_timeout" => Monitor(Galera) "timeout" Milliseconds 10..=600_000;
    "mysql-monitor_ping_interval" => Check "interval" Milliseconds 50..=HOUR_MS;
    "mysql-monitor_ping_timeout" => Check "timeout" Milliseconds 10..=600_000;
    "mysql-monitor_ping_max_failures" => Check "fall" Number 1..=1000;
    "mysql-connection_max_age_ms" => Pool "max_age" Milliseconds 0..=365 * DAY_MS;
    "mysql-ping_interval_server_msec" => Pool "ping_after" Milliseconds 0..=7 * DAY_MS;
    "mysql-max_stmts_per_connection" => Pool "prepared_max" Number 1..=100_000;
};

/// Variables that other parts of the import look at.
const ELSEWHERE: &[&str] = &[
    "mysql-interfaces",
    "mysql-monitor_username",
    "mysql-monitor_password",
    "mysql-monitor_writer_is_also_reader",
    "mysql-init_connect",
    "mysql-multiplexing",
    "mysql-default_query_timeout",
    "mysql-default_query_delay",
    "mysql-query_retries_on_failure",
    "mysql-have_compress",
    "mysql-ssl_p2s_ca",
    "mysql-ssl_p2s_cert",
    "mysql-ssl_p2s_key",
];

/// Variables whose matter takes care of itself here: nothing is lost without them.
const NOT_NEEDED: &[&str] = &[
    "mysql-monitor_replication_lag_interval",
    "mysql-monitor_replication_lag_timeout",
    "mysql-monitor_connect_interval",
    "mysql-monitor_connect_timeout",
    "mysql-monitor_history",
    "mysql-poll_timeout",
    "mysql-poll_timeout_on_failure",
    "mysql-stacksize",
    "mysql-sessions_sort",
    "mysql-query_digests",
    "mysql-commands_stats",
];

/// Writes the options of a section that variables have a value for.
pub(crate) fn write(dump: &Dump, section: Section, toml: &mut Toml, notes: &mut Notes) {
    for equal in EQUALS.iter().filter(|equal| equal.section == section) {
        let (variable, option) = (equal.variable, equal.option);
        let Some(text) = dump.variable(variable) else {
            continue;
        };
        let Ok(number) = text.parse::<u64>() else {
            notes.add(format!("{variable} = {text:?}: not a whole number; left out"));
            continue;
        };
        let (least, most) = (*equal.bounds.start(), *equal.bounds.end());
        let bounded = number.clamp(least, most);
        if bounded != number {
            notes.add(format!(
                "{variable} = {number}: `{option}` goes from {least} to {most}; {bounded} is taken"
            ));
        }
        match equal.kind {
            Kind::Number => toml.option(option, &bounded.to_string()),
            Kind::Milliseconds => toml.text(option, &show_duration(Duration::from_millis(bounded))),
        }
    }
}

/// Whether any variable has a value for the section.
pub(crate) fn any(dump: &Dump, section: Section) -> bool {
    EQUALS
        .iter()
        .any(|equal| equal.section == section && dump.variable(equal.variable).is_some())
}

/// Names every variable without an equal, in one line.
pub(crate) fn without_equal(dump: &Dump, notes: &mut Notes) {
    let known: BTreeSet<&str> = EQUALS
        .iter()
        .map(|equal| equal.variable)
        .chain(ELSEWHERE.iter().copied())
        .chain(NOT_NEEDED.iter().copied())
        .collect();
    if let Some(version) = dump.variable("mysql-server_version") {
        notes.add(format!(
            "mysql-server_version = {version:?}: clients are told the servers' own version; `server_version` of the cluster \
             changes that"
        ));
    }
    if dump.flag("mysql-have_ssl") == Some(true) {
        notes.add("mysql-have_ssl: TLS of clients takes `cert` and `key` in [listener.tls]");
    }
    if dump.flag("mysql-monitor_enabled") == Some(false) {
        notes.add(
            "mysql-monitor_enabled = false: servers are checked and asked for their roles here all the same",
        );
    }
    if let Some(networks) = dump.variable("mysql-proxy_protocol_networks") {
        notes.add(format!(
            "mysql-proxy_protocol_networks = {networks:?}: left out. Clients in these networks may send a PROXY header there; \
             `accept_proxy_from` of a listener requires one of each"
        ));
    }
    let said = [
        "mysql-server_version",
        "mysql-have_ssl",
        "mysql-monitor_enabled",
        "mysql-proxy_protocol_networks",
    ];
    let rest: Vec<&str> = dump
        .variables
        .keys()
        .map(String::as_str)
        .filter(|name| !known.contains(name) && !said.contains(name))
        .collect();
    if !rest.is_empty() {
        notes.add(format!("global variables without an equal: {}", rest.join(", ")));
    }
}
