//! Rules and groups: what they name exists, and what they want fits together.

use super::{names_differ, plain_name};
use crate::address::ServerAddress;
use crate::report::Report;
use crate::schema::{Cluster, Config, Group, Listener, Mode, Rule, Topology};
use crate::suggest;

/// Rules in a configuration. Those that may concern a session are looked at for each of its statements.
const RULES_MAX: usize = 1000;

/// Texts that a rule sends to clients or puts into statements, in bytes.
const TEXT_MAX: usize = 65_536;

/// Words of `route` that are no groups.
const ROUTES: [&str; 2] = ["primary", "replicas"];

/// Checks every `[[rule]]`.
pub(super) fn rules(config: &Config, report: &mut Report<'_>) {
    if config.rules.len() > RULES_MAX {
        let found = config.rules.len().to_string();
        report.wrong("rule", format!("at most {RULES_MAX} rules"), found);
        return;
    }
    let names = config.rules.iter().map(|rule| rule.name.as_str());
    names_differ(names, |index| format!("rule[{index}]"), report);
    for (index, rule) in config.rules.iter().enumerate() {
        let path = format!("rule[{index}]");
        listeners_exist(rule, config, &path, report);
        route_leads_somewhere(rule, config, &path, report);
        mirror_exists(rule, config, &path, report);
        one_answer(rule, &path, report);
        rewrite_has_its_groups(rule, &path, report);
        limits(rule, &path, report);
        texts(rule, &path, report);
        something_to_negate(rule, &path, report);
    }
}

/// Checks every `[cluster.NAME.group.NAME]` of a cluster, whose path is `path`.
pub(super) fn groups(cluster: &Cluster, path: &str, report: &mut Report<'_>) {
    for (name, group) in &cluster.groups {
        let path = format!("{path}.group.{name}");
        let expected = "a name of letters, digits, `-` and `_` other than \"primary\" and \"replicas\"";
        plain_name(name, &ROUTES, expected, &path, report);
        some_servers(group, cluster, &path, report);
    }
}

/// A group has servers, and one at least that does not drain.
fn some_servers(group: &Group, cluster: &Cluster, path: &str, report: &mut Report<'_>) {
    let servers = format!("{path}.servers");
    if group.servers.is_empty() && !report.is_wrong(&servers) {
        report.wrong(&servers, "at least one server", "none");
    }
    servers_exist(&group.servers, cluster, &servers, report);
    let is_drained = |name: &String| cluster.drains(name);
    if !group.servers.is_empty() && group.servers.iter().all(is_drained) && !report.is_wrong(&servers) {
        report
            .wrong(&servers, "a server that is not in `drain`", "none")
            .hint("statements for the group would be refused".to_owned());
    }
}

/// A server that is found by itself need not be in `servers`, but then only its address with the port can be
/// meant.
pub(super) fn servers_exist(names: &[String], cluster: &Cluster, path: &str, report: &mut Report<'_>) {
    let discovers = cluster.topology != Topology::Static || cluster.looks_up_servers();
    for (index, name) in names.iter().enumerate() {
        let element = format!("{path}[{index}]");
        let listed = || cluster.servers.iter().map(|server| server.name.as_str());
        let is_address = || ServerAddress::parse(name).is_some_and(|address| address.to_string() == *name);
        if report.is_wrong(&element) || listed().any(|known| known == name) || (discovers && is_address()) {
            continue;
        }
        let expected = if discovers {
            "the name of a server of the cluster, or HOST:PORT"
        } else {
            "the name of a server of the cluster"
        };
        report
            .wrong(&element, expected, format!("{name:?}"))
            .hint(suggest::hint(name, listed()));
    }
}

/// And one of them at least sees single statements, or the rule would never match.
fn listeners_exist(rule: &Rule, config: &Config, path: &str, report: &mut Report<'_>) {
    let matches = config.listeners.iter().enumerate().any(|(place, listener)| {
        let splits = listener.mode == Mode::Split || report.is_wrong(&format!("listener[{place}].mode"));
        splits && rule.listener.contains(&listener.name)
    });
    for (index, name) in rule.listener.iter().enumerate() {
        let path = format!("{path}.listener[{index}]");
        if report.is_wrong(&path) || report.is_wrong("listener") {
            continue;
        }
        let known = || config.listeners.iter().map(|listener| listener.name.as_str());
        let Some(place) = known().position(|listener| listener == name) else {
            report
                .wrong(&path, "the name of a listener", format!("{name:?}"))
                .hint(suggest::hint(name, known()));
            continue;
        };
        let mode = config.listeners[place].mode;
        if !matches {
            let found = format!("{name:?}, of mode \"{}\"", mode.word());
            report.wrong(&path, "the name of a listener of mode \"split\"", found);
        }
    }
}

/// A group must be there in every cluster whose statements the rule may meet, or else some of them go
/// nowhere.
fn route_leads_somewhere(rule: &Rule, config: &Config, path: &str, report: &mut Report<'_>) {
    let Some(group) = rule.route.as_deref().filter(|route| !ROUTES.contains(route)) else {
        return;
    };
    let meets = |listener: &&Listener| {
        listener.mode == Mode::Split && (rule.listener.is_empty() || rule.listener.contains(&listener.name))
    };
    let clusters = config
        .listeners
        .iter()
        .filter(meets)
        .filter_map(|listener| config.clusters.get(&listener.cluster));
    let without = clusters
        .clone()
        .find(|cluster| !cluster.groups.contains_key(group));
    let nowhere = || {
        clusters.clone().next().is_none()
            && !config
                .clusters
                .values()
                .any(|cluster| cluster.groups.contains_key(group))
    };
    let found = match without {
        Some(cluster) => format!("{group:?}, which [cluster.{}] does not have", cluster.name),
        None if nowhere() => format!("{group:?}"),
        None => return,
    };
    let known = config
        .clusters
        .values()
        .flat_map(|cluster| cluster.groups.keys().map(String::as_str));
    let hint = suggest::hint(group, known.chain(ROUTES));
    let path = format!("{path}.route");
    if !report.is_wrong(&path) {
        report
            .wrong(&path, "\"primary\", \"replicas\" or the name of a group", found)
            .hint(hint);
    }
}

fn mirror_exists(rule: &Rule, config: &Config, path: &str, report: &mut Report<'_>) {
    let Some(mirror) = &rule.mirror else {
        if rule.mirror_compare.is_some() && !report.is_wrong(&format!("{path}.mirror")) {
            wrong(path, "mirror_compare", "only with `mirror`", "it without", report);
        }
        return;
    };
    let path = format!("{path}.mirror");
    if !config.clusters.contains_key(mirror) && !report.is_wrong(&path) && !report.is_wrong("cluster") {
        let known = config.clusters.keys().map(String::as_str);
        report
            .wrong(&path, "the name of a [cluster.NAME]", format!("{mirror:?}"))
            .hint(suggest::hint(mirror, known));
    }
}

fn one_answer(rule: &Rule, path: &str, report: &mut Report<'_>) {
    if rule.refuse.is_some() && rule.answer_ok.is_some() {
        let found = "a second answer beside `refuse`";
        wrong(path, "answer_ok", "one answer", found, report);
    }
}

fn something_to_negate(rule: &Rule, path: &str, report: &mut Report<'_>) {
    let is_there = |option: &str| report.is_written(&format!("{path}.{option}"));
    if rule.negate && !is_there("text") && !is_there("digest_text") {
        let expected = "false, or `digest_text` or `text` as well";
        wrong(path, "negate", expected, "true, with neither of them", report);
    }
}

fn rewrite_has_its_groups(rule: &Rule, path: &str, report: &mut Report<'_>) {
    let Some(rewrite) = &rule.rewrite else {
        if rule.rewrite_all {
            wrong(path, "rewrite_all", "false, or `rewrite` as well", "true", report);
        }
        return;
    };
    if report.is_wrong(&format!("{path}.text")) {
        return;
    }
    let Some(text) = rule.text.as_ref().filter(|_| !rule.negate) else {
        let expected = "only with `text` (and without `negate`), which says what is replaced";
        wrong(path, "rewrite", expected, "it without", report);
        return;
    };
    if let Some(group) = text.missing_group(rewrite) {
        let found = format!("${{{group}}}, which `text` does not have");
        wrong(path, "rewrite", "groups of `text`", &found, report);
    }
}

fn limits(rule: &Rule, path: &str, report: &mut Report<'_>) {
    if rule.burst.is_some() && rule.rate.is_none() {
        wrong(path, "burst", "only with `rate`", "it without", report);
    }
    let has_limit = rule.rate.is_some() || rule.max_concurrency.is_some();
    if !rule.limit_wait.is_zero() && !has_limit {
        let expected = "only with `rate` or `max_concurrency`";
        wrong(path, "limit_wait", expected, "it without", report);
    }
}

fn texts(rule: &Rule, path: &str, report: &mut Report<'_>) {
    let texts = [
        ("refuse", &rule.refuse, 512),
        ("answer_ok", &rule.answer_ok, 512),
        ("rewrite", &rule.rewrite, TEXT_MAX),
        ("comment", &rule.comment, TEXT_MAX),
    ];
    for (option, text, max) in texts {
        let length = text.as_ref().map_or(0, String::len);
        if length > max {
            let expected = format!("at most {max} bytes");
            wrong(path, option, &expected, &format!("{length} bytes"), report);
        }
    }
}

fn wrong(path: &str, option: &str, expected: &str, found: &str, report: &mut Report<'_>) {
    let path = format!("{path}.{option}");
    if !report.is_wrong(&path) {
        report.wrong(&path, expected, found);
    }
}
