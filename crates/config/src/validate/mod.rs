//! What must hold between options: each rule in a function of its own, told at the option that breaks it.
//!
//! An option that is itself wrong takes no part, so that one mistake is told once.

mod accounts;
mod cache;
mod idle;
mod rules;
mod setup;
mod store;
mod topology;
mod trust;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use accounts::{users, users_differ};
pub use cache::MAPPINGS_MAX;
pub use idle::idle_worries;
pub use setup::setup_worries;
pub(crate) use store::OF_GATEWAY;
pub(crate) use topology::strong_users;
pub(crate) use topology::zone;
pub use trust::trust_worries;

use crate::address::BindAddress;
use crate::report::Report;
use crate::schema::{Check, CheckKind, ClientAuth, Cluster, ClusterTls, Config, Listener, ListenerTls, Mode};
use crate::schema::{Protocol, ReadConsistency, Server, TlsMode, TransactionReads, Verify};
use crate::suggest;

/// Servers in one cluster. Every one of them is checked all the time and scanned for every new session.
const SERVERS_MAX: usize = 1000;

/// Longest name of a listener, cluster or server, in bytes: they are labels of metrics and part of log lines.
const NAME_MAX: usize = 255;

/// Words that [`crate::Log::level`] takes as levels.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The crates that write to the log: what [`crate::Log::level`] takes before the `=`.
pub const LOG_PARTS: [&str; 9] = [
    "admin",
    "cache",
    "dataplane",
    "fleet",
    "forebay",
    "net",
    "telemetry",
    "traffic",
    "upstream",
];

/// Checks a configuration whose defaults are filled in.
pub(crate) fn validate(config: &Config, report: &mut Report<'_>) {
    log_level(&config.log.level, report);
    store::store(config, report);
    some_listener(config, report);
    binds_differ(config, report);
    let names = config.listeners.iter().map(|listener| listener.name.as_str());
    names_differ(names, |index| format!("listener[{index}]"), report);
    for (index, listener) in config.listeners.iter().enumerate() {
        let path = format!("listener[{index}]");
        cache::listener(listener, config, &path, report);
        cluster_exists(listener, config, &path, report);
        encryption_fits_mode(listener, &path, report);
        listener_tls(&listener.tls, &format!("{path}.tls"), report);
        accounts::some_user(listener, config, &path, report);
        options_of_split(listener, &path, report);
        permissions_of_a_file(listener, &path, report);
        strong_transactions(listener, &path, report);
        moves(listener, &path, report);
    }
    users(&config.users, report);
    strong_users(&config.users, config, report);
    rules::rules(config, report);
    cache::cache(config, report);
    topology::zone(config.zone.as_deref(), "zone", report);
    let zone_ways = [
        ("zone", config.zone.is_some()),
        ("zone_file", config.zone_file.is_some()),
        ("zone_env", config.zone_env.is_some()),
    ];
    at_most_one("the zone", &zone_ways, "", report);
    admin_hosts(config, report);
    for (name, cluster) in &config.clusters {
        let path = format!("cluster.{name}");
        let expected = "a name of letters, digits, `-` and `_`";
        plain_name(name, &[], expected, &path, report);
        servers(cluster, &path, report);
        rules::groups(cluster, &path, report);
        topology::srv(cluster, &path, report);
        topology::pd(cluster, &path, report);
        topology::endpoint_slices(cluster, &path, report);
        topology::roles(cluster, config, &path, report);
        topology::followed(cluster, &path, report);
        topology::ignored(cluster, &path, report);
        topology::drained(cluster, &path, report);
        topology::writers(cluster, config, &path, report);
        accounts::of_servers(cluster, &path, report);
        if let Some(monitor) = &cluster.monitor {
            accounts::monitor(monitor, &format!("{path}.monitor"), report);
        }
        if let Some(switchover) = &cluster.switchover {
            accounts::switchover(
                switchover,
                cluster.topology,
                &format!("{path}.switchover"),
                report,
            );
        }
        check(&cluster.check, &format!("{path}.check"), report);
        cluster_tls(&cluster.tls, &format!("{path}.tls"), report);
        if let Some(pd) = &cluster.pd {
            let path = format!("{path}.pd.tls");
            cluster_tls(&pd.tls, &path, report);
            if pd.tls.mode == TlsMode::Preferred {
                let found = "\"preferred\"";
                report.wrong(&format!("{path}.mode"), "\"off\" or \"required\"", found);
            }
        }
    }
}

/// Sessions of other modes have no server of their own, or nothing is known of them.
fn moves(listener: &Listener, path: &str, report: &mut Report<'_>) {
    let option = format!("{path}.moves");
    let is_judged = report.is_wrong(&option) || report.is_wrong(&format!("{path}.mode"));
    if !listener.moves || is_judged {
        return;
    }
    let found = match (listener.protocol, listener.mode) {
        (Protocol::Redis, _) => "true with `protocol = \"redis\"`, whose clients have no server",
        (_, Mode::Session) => return,
        (_, Mode::Tcp) => "true in mode \"tcp\", which looks at no statement",
        (_, Mode::Split) => "true in mode \"split\", whose statements go to another server without it",
    };
    report.wrong(&option, "false, or `mode = \"session\"`", found);
}

/// What is no name would never be met, without a word.
fn admin_hosts(config: &Config, report: &mut Report<'_>) {
    let hosts = config.admin.iter().flat_map(|admin| &admin.hosts);
    let is_no_name = |host: &&String| host.is_empty() || host.contains(['/', '*', ':']);
    if let Some(host) = hosts.filter(is_no_name).find(|_| !report.is_wrong("admin.hosts")) {
        let expected = "names without scheme, port and `*` (IP addresses need no entry)";
        report.wrong("admin.hosts", expected, format!("{host:?}"));
    }
}

/// The forms of `EnvFilter` that are documented. A single word that is no level would be taken for the name
/// of a part, and a slip such as `inof` would turn logging off without a word.
fn log_level(level: &str, report: &mut Report<'_>) {
    if report.is_wrong("log.level") || level.contains('[') {
        return;
    }
    for directive in level.split(',') {
        let word = directive
            .rsplit_once('=')
            .map_or(directive, |(_, level)| level)
            .trim()
            .to_ascii_lowercase();
        if !LEVELS.contains(&word.as_str()) {
            let hint =
                suggest::hint(&word, LEVELS).unwrap_or_else(|| format!("levels: {}", LEVELS.join(", ")));
            report
                .wrong(
                    "log.level",
                    "LEVEL or PART=LEVEL, separated by commas",
                    format!("{word:?}"),
                )
                .hint(hint);
        }
    }
}

/// What is said of each part that no line of the log comes from, which does nothing: a slip mostly, but no
/// harm, so that a file is good with it.
#[must_use]
pub fn log_worries(level: &str) -> Vec<String> {
    let worry = |part: &str| {
        let hint =
            suggest::hint(part, LOG_PARTS).unwrap_or_else(|| format!("parts: {}", LOG_PARTS.join(", ")));
        format!("log.level: {part:?} is no part of Forebay that writes to the log; {hint}")
    };
    unknown_log_parts(level).into_iter().map(worry).collect()
}

/// Each once.
fn unknown_log_parts(level: &str) -> BTreeSet<&str> {
    // Spans and fields are for those who know `tracing`.
    if level.contains(['[', '{']) {
        return BTreeSet::new();
    }
    let unknown = |directive| {
        let (part_of, _) = str::split_once(directive, '=')?;
        let crate_of = part_of.split("::").next().unwrap_or_default().trim();
        // `data` is `dataplane`, too: beginnings count.
        let is_known = |part: &&str| match part_of.contains("::") {
            true => *part == crate_of,
            false => !crate_of.is_empty() && part.starts_with(crate_of),
        };
        (!LOG_PARTS.iter().any(is_known)).then_some(crate_of)
    };
    level.split(',').filter_map(unknown).collect()
}

fn some_listener(config: &Config, report: &mut Report<'_>) {
    // Those of a gateway that has a store stand there.
    if config.listeners.is_empty() && config.store.is_none() && !report.is_wrong("listener") {
        let hint = "add [[listener]] with `bind` and `cluster`".to_owned();
        report
            .wrong("listener", "at least one listener", "none")
            .hint(hint);
    }
}

/// No two sockets of this process may want the same address.
fn binds_differ(config: &Config, report: &mut Report<'_>) {
    let mut binds: Vec<(String, BindAddress)> = Vec::new();
    let listeners = config.listeners.iter().enumerate();
    binds.extend(
        listeners.map(|(index, listener)| (format!("listener[{index}].bind"), listener.bind.clone())),
    );
    binds.extend(
        config
            .admin
            .as_ref()
            .map(|admin| ("admin.bind".to_owned(), BindAddress::Tcp(admin.bind))),
    );
    binds.retain(|(path, _)| report.is_written(path) && !report.is_wrong(path));
    for (index, (path, bind)) in binds.iter().enumerate() {
        if let Some((other, taken)) = binds[..index].iter().find(|(_, earlier)| earlier.collides(bind)) {
            let found = format!(
                "{bind}, which collides with {taken} of `{other}` in line {}",
                report.line(other)
            );
            report.wrong(path, "an address of its own", found);
        }
    }
}

/// Names tell listeners of one file, or servers of one cluster, apart.
fn names_differ<'n>(
    names: impl Iterator<Item = &'n str>,
    path: impl Fn(usize) -> String,
    report: &mut Report<'_>,
) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, name) in names.enumerate() {
        let key = format!("{}.name", path(index));
        if report.is_wrong(&key) || (!report.is_written(&key) && address_is_wrong(&path(index), report)) {
            continue;
        }
        if name.is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
            let expected = format!("1 to {NAME_MAX} bytes of printable text");
            report.wrong(&key, expected, format!("{} bytes", name.len()));
            continue;
        }
        match seen.get(name) {
            Some(first) => {
                let found = format!(
                    "{name:?} a second time, first in line {}",
                    report.line(&path(*first))
                );
                report
                    .wrong(&key, "a name of its own", found)
                    .hint("give it another `name`".to_owned());
            }
            None => {
                seen.insert(name, index);
            }
        }
    }
}

/// The name of a listener or server that has none is its address, and as wrong as that.
fn address_is_wrong(path: &str, report: &Report<'_>) -> bool {
    report.is_wrong(path)
        || ["bind", "address"]
            .iter()
            .any(|option| report.is_wrong(&format!("{path}.{option}")))
}

fn cluster_exists(listener: &Listener, config: &Config, path: &str, report: &mut Report<'_>) {
    let path = format!("{path}.cluster");
    let clusters = config.clusters.keys().map(String::as_str);
    let skipped = report.is_wrong(&path) || report.is_wrong("cluster") || !report.is_written(&path);
    if skipped || config.clusters.contains_key(&listener.cluster) {
        return;
    }
    let hint = suggest::hint(&listener.cluster, clusters.clone()).unwrap_or_else(|| {
        let known: Vec<_> = clusters.collect();
        if known.is_empty() {
            "there is no [cluster.NAME] yet".to_owned()
        } else {
            format!("there is {}", known.join(", "))
        }
    });
    report
        .wrong(
            &path,
            "the name of a [cluster.NAME]",
            format!("{:?}", listener.cluster),
        )
        .hint(hint);
}

/// TLS begins in the middle of the MySQL login, which a listener that passes bytes does not see.
fn encryption_fits_mode(listener: &Listener, path: &str, report: &mut Report<'_>) {
    let mode = format!("{path}.tls.mode");
    if listener.mode == Mode::Tcp && listener.tls.mode != TlsMode::Off && !report.is_wrong(&mode) {
        let hint = "in mode \"tcp\" TLS passes through from client to server".to_owned();
        report
            .wrong(
                &mode,
                "\"off\" in a listener of mode \"tcp\"",
                format!("\"{}\"", listener.tls.mode.word()),
            )
            .hint(hint);
    }
}

/// Whoever says how reads are to be spread and forgets to have them spread would not find out.
fn options_of_split(listener: &Listener, path: &str, report: &mut Report<'_>) {
    if listener.shares() || report.is_wrong(&format!("{path}.mode")) {
        return;
    }
    let sharing = format!("{path}.sharing");
    if listener.mode != Mode::Split && report.is_written(&sharing) && !report.is_wrong(&sharing) {
        let found = format!("it in mode \"{}\"", listener.mode.word());
        let expected = "this option only in mode \"split\"";
        report.wrong_key(&sharing, expected, found);
    }
    let (only, options) = match listener.shares_never() {
        true => (
            "only where connections are shared",
            &["read_consistency", "transaction_reads", "point_lookups"][..],
        ),
        false => (
            "only in mode \"split\"",
            &["read_consistency", "transaction_reads"][..],
        ),
    };
    for option in options {
        let option = format!("{path}.{option}");
        if report.is_written(&option) && !report.is_wrong(&option) {
            let found = match listener.shares_never() {
                true => "it with `sharing = \"never\"`".to_owned(),
                false => format!(
                    "it in mode \"{}\", where reads go where writes go",
                    listener.mode.word()
                ),
            };
            report.wrong_key(&option, format!("this option {only}"), found);
        }
    }
}

/// Whoever gives permissions to a port would think that somebody is kept out.
fn permissions_of_a_file(listener: &Listener, path: &str, report: &mut Report<'_>) {
    let option = format!("{path}.unix_mode");
    let is_port = matches!(listener.bind, BindAddress::Tcp(_)) && !report.is_wrong(&format!("{path}.bind"));
    if is_port && report.is_written(&option) && !report.is_wrong(&option) {
        let found = format!("it with {}", listener.bind);
        report.wrong_key(&option, "this option only where `bind` is a socket's path", found);
    }
}

/// What a transaction has read on a replica before it writes is not what was last acknowledged.
fn strong_transactions(listener: &Listener, path: &str, report: &mut Report<'_>) {
    let option = format!("{path}.transaction_reads");
    let is_strong = listener.read_consistency == ReadConsistency::Strong;
    if listener.transaction_reads == TransactionReads::Replica && is_strong && !report.is_wrong(&option) {
        let found = "\"replica\"";
        report.wrong(
            &option,
            "\"primary\", since `read_consistency` is \"strong\"",
            found,
        );
    }
}

fn listener_tls(tls: &ListenerTls, path: &str, report: &mut Report<'_>) {
    let files = [
        ("cert", tls.cert.is_some()),
        ("key", tls.key.is_some()),
        ("client_ca", tls.client_ca.is_some()),
    ];
    mode_is_said(&files, path, report);
    if tls.mode != TlsMode::Off {
        let need = format!("a file, since `mode` is \"{}\"", tls.mode.word());
        needs("cert", tls.cert.is_some(), &need, path, report);
        needs("key", tls.key.is_some(), &need, path, report);
    } else {
        pair("cert", tls.cert.is_some(), "key", tls.key.is_some(), path, report);
    }
    if tls.client_auth != ClientAuth::Off {
        let need = format!("a file, since `client_auth` is \"{}\"", tls.client_auth.word());
        needs("client_ca", tls.client_ca.is_some(), &need, path, report);
    }
    nobody_without_certificate(tls, path, report);
    if tls.client_ca.is_some() && !report.is_written(&format!("{path}.client_auth")) {
        let need = "\"optional\" or \"required\" (or \"off\"), since `client_ca` is given";
        needs("client_auth", false, need, path, report);
    }
}

/// A certificate is shown within TLS: whoever may come without has not shown any.
fn nobody_without_certificate(tls: &ListenerTls, path: &str, report: &mut Report<'_>) {
    let option = format!("{path}.mode");
    if tls.client_auth != ClientAuth::Required || tls.mode == TlsMode::Required || report.is_wrong(&option) {
        return;
    }
    let found = format!(
        "\"{}\", which lets clients in without TLS, and so without a certificate",
        tls.mode.word()
    );
    report.wrong(
        &option,
        "\"required\", since `client_auth` is \"required\"",
        found,
    );
}

fn cluster_tls(tls: &ClusterTls, path: &str, report: &mut Report<'_>) {
    let files = [
        ("ca", tls.ca.is_some()),
        ("cert", tls.cert.is_some()),
        ("key", tls.key.is_some()),
    ];
    mode_is_said(&files, path, report);
    pair("cert", tls.cert.is_some(), "key", tls.key.is_some(), path, report);
    if tls.verify != Verify::Off {
        let need = format!("a file, since `verify` is \"{}\"", tls.verify.word());
        needs("ca", tls.ca.is_some(), &need, path, report);
    }
}

/// Whoever names files for TLS and forgets to turn it on must not find out by listening to the wire.
fn mode_is_said(files: &[(&str, bool)], path: &str, report: &mut Report<'_>) {
    let given = files.iter().find(|(_, given)| *given);
    if let Some((file, _)) = given.filter(|_| !report.is_written(&format!("{path}.mode"))) {
        let need = format!("\"preferred\" or \"required\" (or \"off\"), since `{file}` is given");
        needs("mode", false, &need, path, report);
    }
}

/// Of two options, one makes no sense without the other.
fn pair(left: &str, has_left: bool, right: &str, has_right: bool, path: &str, report: &mut Report<'_>) {
    let need = |other: &str| format!("a file, since `{other}` is given");
    needs(left, has_left || !has_right, &need(right), path, report);
    needs(right, has_right || !has_left, &need(left), path, report);
}

/// The option must be given for a reason that `expected` says.
fn needs(option: &str, given: bool, expected: &str, path: &str, report: &mut Report<'_>) {
    let option = format!("{path}.{option}");
    if !given && !report.is_wrong(&option) {
        report.wrong(&option, expected, "nothing: the option is missing");
    }
}

/// Names appear unquoted in TOML keys, URLs and metric labels. Some are `taken`.
fn plain_name(name: &str, taken: &[&str], expected: &str, path: &str, report: &mut Report<'_>) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_plain = (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(plain);
    if !is_plain || taken.contains(&name) {
        let found = name.chars().take(40).collect::<String>();
        report.wrong_key(path, expected, format!("{found:?}"));
    }
}

fn servers(cluster: &Cluster, path: &str, report: &mut Report<'_>) {
    let path = format!("{path}.servers");
    if report.is_wrong(&path) {
        return;
    }
    match cluster.servers.len() {
        0 if cluster.looks_up_servers() => return,
        0 => return report.wrong(&path, "at least one server", "none").hint(None),
        count if count > SERVERS_MAX => {
            report.wrong(&path, format!("at most {SERVERS_MAX} servers"), count.to_string());
            return;
        }
        _ => {}
    }
    if cluster.servers.iter().all(|server| server.weight == 0) {
        report.wrong(
            &path,
            "a server with a weight above 0",
            "none: no server takes new sessions",
        );
    }
    addresses_differ(&cluster.servers, &path, report);
    let names = cluster.servers.iter().map(|server| server.name.as_str());
    names_differ(names, |index| format!("{path}[{index}]"), report);
}

/// The same server twice would get twice its share, and twice the checks.
fn addresses_differ(servers: &[Server], path: &str, report: &mut Report<'_>) {
    for (index, server) in servers.iter().enumerate() {
        let (element, address) = (format!("{path}[{index}]"), format!("{path}[{index}].address"));
        if report.is_wrong(&element) || report.is_wrong(&address) {
            continue;
        }
        if let Some(first) = servers[..index]
            .iter()
            .position(|earlier| earlier.address.is_same(&server.address))
        {
            let line = report.line(&format!("{path}[{first}]"));
            let found = format!("{} a second time, first in line {line}", server.address);
            report.wrong(&address, "a server of its own", found);
        }
    }
}

fn check(check: &Check, path: &str, report: &mut Report<'_>) {
    at_most_one("the password", &passwords!(check), path, report);
    let at = |option: &str| format!("{path}.{option}");
    let password = ["password", "password_file", "password_env"]
        .into_iter()
        .find(|option| report.is_written(&at(option)));
    let reason = match password {
        _ if check.kind == CheckKind::Login => Some("`kind` is \"login\"".to_owned()),
        password => password.map(|password| format!("`{password}` is given")),
    };
    if let Some(reason) = reason {
        let need = format!("an account, since {reason}");
        needs("user", check.user.is_some(), &need, path, report);
    }
    if check.user.is_some() && check.kind != CheckKind::Login && !report.is_wrong(&at("kind")) {
        let found = format!("\"{}\", which uses no account", check.kind.word());
        report.wrong(&at("kind"), "\"login\", since `user` is given", found);
    }
    if check.query.trim().is_empty() && !report.is_wrong(&at("query")) {
        report.wrong(&at("query"), "a statement", "none");
    }
    if check.kind != CheckKind::Login && report.is_written(&at("query")) && !report.is_wrong(&at("kind")) {
        let found = format!("one for `kind` \"{}\", which runs none", check.kind.word());
        report.wrong(&at("query"), "a statement only for `kind` \"login\"", found);
    }
}

/// The ways to give the password of an account, each with whether it is used.
macro_rules! passwords {
    ($account:expr) => {
        [
            ("password", $account.password.is_some()),
            ("password_file", $account.password_file.is_some()),
            ("password_env", $account.password_env.is_some()),
        ]
    };
}

pub(crate) use passwords;

/// The ways to give one thing exclude each other: none of them is stronger.
fn at_most_one(what: &str, ways: &[(&str, bool)], path: &str, report: &mut Report<'_>) {
    let mut given = ways.iter().filter(|(_, given)| *given).map(|(option, _)| option);
    let Some(first) = given.next() else { return };
    for second in given {
        let found = format!("a second one beside `{first}`");
        let key = match path {
            "" => (*second).to_owned(),
            path => format!("{path}.{second}"),
        };
        report.wrong_key(&key, format!("{what} once"), found);
    }
}
