//! `forebay check --connect`: what `serve` would find at the servers, as a table, and in the store, and what
//! of it would not work.

use std::sync::Arc;

use anyhow::Context;
use config::{Config, Protocol, ReadConsistency, Secret, Topology};
use fleet::Reached;
use tokio::runtime::{Builder, LocalOptions};
use upstream::{Cluster, Inspection, LoginTrial, Member, Role};

/// The longest part of a set of GTIDs that the table shows, in characters.
const POSITION_MAX: usize = 40;

const COLUMNS: [&str; 9] = [
    "server",
    "role",
    "read_only",
    "lag",
    "check",
    "monitor",
    "logins",
    "GTIDs",
    "version",
];

/// Asks the store, and the servers of all clusters; prints what they say, and what is wrong with it.
///
/// # Errors
/// Something would not work; what it is has been printed.
pub(crate) fn run(config: &Config) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    let mut wrong = 0;
    if let Some(store) = &config.store {
        match runtime.block_on(Reached::look(store)) {
            Ok(reached) => crate::print(&store_line(store, reached))?,
            Err(error) => {
                eprintln!("forebay: wrong: [store]: {error}");
                wrong += 1;
            }
        }
    }
    for cluster in config.clusters.values() {
        let seen = Seen::look(config, cluster);
        let seen = runtime.block_on(seen)?;
        crate::print(&seen.table())?;
        let judged = seen.judge();
        for worry in &judged.worries {
            eprintln!("forebay: {worry}");
        }
        for mistake in &judged.mistakes {
            eprintln!("forebay: wrong: {mistake}");
        }
        wrong += judged.mistakes.len();
    }
    let things = crate::counted(wrong, "thing");
    anyhow::ensure!(wrong == 0, "{things} would not work");
    Ok(())
}

fn store_line(store: &config::Store, reached: Reached) -> String {
    let gateways = crate::counted(reached.gateways, "gateway");
    let revision = match reached.revision {
        0 => "no configuration yet".to_owned(),
        revision => format!("revision {revision}"),
    };
    format!("\nstore of fleet {}: {revision}, {gateways}\n", store.fleet)
}

/// What a cluster's servers have said.
struct Seen<'c> {
    config: &'c config::Cluster,
    cluster: Arc<Cluster>,
    trials: Vec<Trial>,
    inspections: Vec<Inspection>,
    /// Sessions share connections to its servers.
    splits: bool,
    /// Reads on replicas wait for what they must see.
    needs_gtids: bool,
}

/// An account that logs in for clients, or for the cache.
struct Trial {
    /// Whose it is, as the operator knows it.
    words: String,
    user: String,
    password: Secret,
    is_former: bool,
}

/// What would not work, and what is worth a word.
#[derive(Default)]
struct Judged {
    mistakes: Vec<String>,
    worries: Vec<String>,
}

impl<'c> Seen<'c> {
    async fn look(config: &Config, of: &'c config::Cluster) -> anyhow::Result<Seen<'c>> {
        let cluster = Cluster::new(of.clone()).with_context(|| format!("cluster {}", of.name))?;
        let listeners = || {
            let splits = |listener: &&config::Listener| {
                listener.cluster == of.name && listener.shares() && listener.protocol == Protocol::Mysql
            };
            config.listeners.iter().filter(splits)
        };
        let splits = listeners().next().is_some();
        let trials = trials(config, of, splits);
        let wanted = trials.iter().map(|trial| LoginTrial {
            user: trial.user.clone(),
            password: trial.password.clone(),
        });
        let inspections = cluster.inspect(wanted.collect()).await;
        Ok(Self {
            config: of,
            cluster,
            trials,
            inspections,
            splits,
            needs_gtids: listeners().any(|listener| listener.read_consistency != ReadConsistency::Eventual),
        })
    }

    fn rows(&self) -> impl Iterator<Item = (Member, &Inspection)> {
        let topology = self.cluster.topology();
        self.inspections
            .iter()
            .filter_map(move |found| Some((topology.member(found.server)?.clone(), found)))
    }

    /// For people: a line for each server.
    fn table(&self) -> String {
        let rows = self.rows();
        let rows = rows.map(|(member, found)| cells(&member, found, self.config));
        let table = crate::ctl::table(COLUMNS, rows.collect());
        let indented: String = table.lines().map(|line| format!("  {line}\n")).collect();
        format!("\ncluster {}\n{indented}", self.config.name)
    }

    fn judge(&self) -> Judged {
        let mut judged = Judged::default();
        for (member, found) in self.rows() {
            let told = judged.mistakes.len();
            self.judge_server(&member, found, &mut judged);
            let is_explained = judged.mistakes.len() > told;
            if self.config.uses_roles && member.role == Role::Unusable && !is_explained {
                let words = format!("is of no use: {}", member.reason);
                judged.mistakes.push(self.of_server(&member, &words));
            }
        }
        self.judge_cluster(&mut judged);
        judged
    }

    fn of_server(&self, member: &Member, words: &str) -> String {
        format!(
            "cluster {}: server {} {words}",
            self.config.name,
            member.server.name()
        )
    }

    fn judge_server(&self, member: &Member, found: &Inspection, judged: &mut Judged) {
        let mut wrong = |words: String| judged.mistakes.push(self.of_server(member, &words));
        if let Err(reason) = &found.check {
            wrong(format!("fails its check: {reason}"));
        }
        if let Some(Err(reason)) = &found.monitor
            && found.check.as_ref().err() != Some(reason)
        {
            wrong(format!("cannot be asked by the monitor: {reason}"));
        }
        if let Some(Err(reason)) = &found.accounts {
            wrong(format!(
                "does not let the monitor read its accounts (`accounts`): {reason}"
            ));
        }
        if let Some(reason) = found.unshared.as_ref().filter(|_| self.splits) {
            wrong(format!("is of no use to listeners in mode split: {reason}"));
        }
        for (words, reason) in self.refused(found) {
            wrong(format!("refuses {words}: {reason}"));
        }
        let is_primary = member.role == Role::Primary && self.config.uses_roles;
        let variables = found.variables.as_ref();
        let is_read_only = variables.is_some_and(|variables| variables.read_only);
        if is_primary && is_read_only {
            wrong("is the primary of the configuration, and read_only".to_owned());
        }
        let mut worry = |words: &str| judged.worries.push(self.of_server(member, words));
        if self.config.topology == Topology::Static
            && member.role == Role::Replica
            && variables.is_some_and(|variables| !variables.read_only)
        {
            worry("is a replica of the configuration, and takes writes (read_only is off)");
        }
        if let Some(Err(reason)) = &found.discovery {
            worry(&format!(
                "does not tell its replicas ({reason}): those that are not in `servers` are not found"
            ));
        }
        if is_primary && self.needs_gtids && variables.is_some_and(|variables| !variables.gives_gtids) {
            worry(
                "has no GTIDs (MySQL: `gtid_mode`, MariaDB: the binary log): reads of sessions that have written go to the primary",
            );
        }
        if found.ends_others == Some(false) {
            worry(
                "does not let the account of the checks end statements of others (CONNECTION_ADMIN; MariaDB: CONNECTION ADMIN): \
                 `timeout` of rules and KILL cannot",
            );
        }
        let limit = u64::from(member.server.max_connections());
        if let Some(own) = variables.and_then(|variables| variables.max_connections)
            && limit > own
        {
            worry(&format!(
                "takes {own} connections (its own max_connections), and {limit} are configured"
            ));
        }
    }

    /// Accounts that a server does not let in: whose, and why. One whose former password works is being
    /// changed.
    fn refused<'a>(&'a self, found: &'a Inspection) -> impl Iterator<Item = (String, &'a str)> {
        let works = |user: &str| {
            let mut tried = self.trials.iter().zip(&found.logins);
            tried.any(|(trial, result)| trial.user == user && result.is_ok())
        };
        let tried = self.trials.iter().zip(&found.logins);
        tried.filter_map(move |(trial, result)| {
            let reason = result.as_ref().err()?;
            let is_changing = works(&trial.user);
            (!is_changing && !trial.is_former).then(|| (trial.words.clone(), reason.as_str()))
        })
    }

    fn judge_cluster(&self, judged: &mut Judged) {
        let (name, topology) = (&self.config.name, self.cluster.topology());
        let problem = if topology.members.is_empty() {
            format!("no server is known{}", why_none(self.config))
        } else if let Some(reason) = &topology.refuse_writes {
            format!("writes would be refused: {reason}")
        } else if self.config.uses_roles && topology.primary.is_none() {
            "no server is the primary: writes would wait".to_owned()
        } else {
            return;
        };
        judged.mistakes.push(format!("cluster {name}: {problem}"));
    }
}

/// The reason why a cluster has no servers, for the end of a message.
fn why_none(config: &config::Cluster) -> &'static str {
    if config.pd.is_some() {
        ": `servers` has none, and PD does not answer or knows none that lives"
    } else if config.srv.is_some() {
        ": `servers` has none, and DNS does not answer or has no such SRV records"
    } else if config.endpoint_slices.is_some() {
        ": `servers` has none, and Kubernetes does not answer, does not let it list `endpointslices`, or knows none of the service"
    } else {
        ""
    }
}

/// Accounts with a password that is known here. Those that are known by a hash cannot be tried.
fn trials(config: &Config, cluster: &config::Cluster, splits: bool) -> Vec<Trial> {
    let mut trials = Vec::new();
    for user in config.users.iter().filter(|_| splits) {
        let both = [(&user.password, false), (&user.previous_password, true)];
        for (password, is_former) in both {
            trials.extend(password.clone().map(|password| Trial {
                words: format!("the password of [[user]] {:?}", user.name),
                user: user.name.clone(),
                password,
                is_former,
            }));
        }
    }
    let of_cache = config.cache.iter().filter(|cache| cache.cluster == cluster.name);
    for account in of_cache.filter_map(|cache| cache.account.as_ref()) {
        trials.extend(account.password.clone().map(|password| Trial {
            words: format!("the account of [cache], {:?}", account.user),
            user: account.user.clone(),
            password,
            is_former: false,
        }));
    }
    trials
}

fn cells(member: &Member, found: &Inspection, config: &config::Cluster) -> [String; COLUMNS.len()] {
    let unknown = || "?".to_owned();
    let variables = found.variables.as_ref();
    let passed = |result: Option<bool>| match result {
        None => "-".to_owned(),
        Some(true) => "ok".to_owned(),
        Some(false) => "FAILED".to_owned(),
    };
    let role = match config.uses_roles {
        true => member.role.label().to_owned(),
        false => "-".to_owned(),
    };
    let let_in = found.logins.iter().filter(|login| login.is_ok()).count();
    let position = |variables: &upstream::Variables| match variables.gives_gtids {
        true => shortened(&variables.position),
        false => "off".to_owned(),
    };
    [
        member.server.name().to_owned(),
        role,
        variables.map_or_else(unknown, |variables| {
            if variables.read_only { "on" } else { "off" }.to_owned()
        }),
        member
            .lag
            .map_or_else(|| "-".to_owned(), |lag| format!("{:.1}s", lag.as_secs_f64())),
        passed(Some(found.check.is_ok())),
        passed(found.monitor.as_ref().map(Result::is_ok)),
        format!("{let_in}/{}", found.logins.len()),
        variables.map_or_else(unknown, position),
        found.version.clone().unwrap_or_else(unknown),
    ]
}

fn shortened(position: &str) -> String {
    let position = position.replace(['\n', '\r'], "");
    match position.chars().count() {
        0 => "none yet".to_owned(),
        count if count > POSITION_MAX => {
            let begin: String = position.chars().take(POSITION_MAX).collect();
            format!("{begin}…")
        }
        _ => position,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_names_no_server_is_told() {
        for (option, named) in [
            ("topology = \"tidb\"\npd = [\"pd1:2379\"]", "PD"),
            ("srv = \"_mysql._tcp.db\"", "DNS"),
            ("endpoint_slices = \"mysql\"", "Kubernetes"),
        ] {
            let text = format!(
                "[[listener]]\nbind = \"127.0.0.1:6033\"\ncluster = \"main\"\n[cluster.main]\nservers = []\n{option}\n"
            );
            let config = Config::parse(&text, "f.toml").unwrap();
            let why = why_none(&config.clusters["main"]);
            assert!(why.contains(named), "{option}: {why}");
        }
    }
}
