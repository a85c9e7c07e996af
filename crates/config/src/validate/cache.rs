//! `[cache]` and the listeners that read from it.

use std::collections::BTreeMap;

use super::accounts::{named, qualified};
use super::{NAME_MAX, at_most_one, names_differ, needs, passwords};
use crate::report::Report;
use crate::schema::{Cache, CacheMapping, Config, Listener, MappingKind, Mode, Protocol};
use crate::suggest;

/// Mappings that there may be. Every row event is held against them.
pub const MAPPINGS_MAX: usize = 1000;

/// Columns of a key: the most that an index has.
const KEY_COLUMNS_MAX: usize = 16;

/// Columns of a table: the most that servers allow.
const COLUMNS_MAX: usize = 4096;

/// Longest name of a column, in characters.
const IDENTIFIER_MAX: usize = 64;

/// Options of listeners that say something about MySQL alone.
const OF_MYSQL: [&str; 6] = [
    "mode",
    "read_consistency",
    "transaction_reads",
    "point_lookups",
    "compression",
    "rsa_key",
];

/// Checks `[cache]` and what is inside it.
pub(super) fn cache(config: &Config, report: &mut Report<'_>) {
    let Some(cache) = &config.cache else { return };
    cluster_of_cache(cache, config, report);
    account(cache, config, report);
    if cache.mappings.len() > MAPPINGS_MAX {
        let found = cache.mappings.len().to_string();
        let expected = format!("at most {MAPPINGS_MAX} mappings");
        report.wrong("cache.mapping", expected, found);
        return;
    }
    let names = cache.mappings.iter().map(|mapping| mapping.name.as_str());
    names_differ(names, |index| format!("cache.mapping[{index}]"), report);
    for (index, mapping) in cache.mappings.iter().enumerate() {
        of_mapping(mapping, &format!("cache.mapping[{index}]"), report);
    }
}

impl CacheMapping {
    /// Whether it could be one of a configuration.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=NAME_MAX).contains(&self.name.len()) {
            let len = self.name.len();
            return Err(format!(
                "name: expected 1 to {NAME_MAX} bytes of text, found {len}"
            ));
        }
        let mut report = Report::new("", "");
        of_mapping(self, "", &mut report);
        let Err(errors) = report.finish() else {
            return Ok(());
        };
        let first = errors.0.first().map(|error| {
            let key = error.key.trim_start_matches('.');
            format!("{key}: expected {}, found {}", error.expected, error.found)
        });
        Err(first.unwrap_or_default())
    }
}

fn of_mapping(mapping: &CacheMapping, path: &str, report: &mut Report<'_>) {
    name(mapping, path, report);
    qualified(&mapping.table, &format!("{path}.table"), report);
    columns("key", &mapping.key, KEY_COLUMNS_MAX, path, report);
    columns("value", &mapping.value, COLUMNS_MAX, path, report);
    value_fits_kind(mapping, path, report);
}

/// Checks what a listener says about the cache.
pub(super) fn listener(listener: &Listener, config: &Config, path: &str, report: &mut Report<'_>) {
    match listener.protocol {
        Protocol::Redis => {
            some_cache("protocol", "\"redis\"", config, path, report);
            cluster_of_redis(listener, config, path, report);
            only_mysql(path, report);
        }
        Protocol::Mysql => {
            needs(
                "cluster",
                report.is_written(&format!("{path}.cluster")),
                "a text",
                path,
                report,
            );
            point_lookups(listener, config, path, report);
        }
    }
}

/// What is read from memory was read from the primary of one cluster.
fn cluster_of_cache(cache: &Cache, config: &Config, report: &mut Report<'_>) {
    let path = "cache.cluster";
    if report.is_wrong(path) || report.is_wrong("cluster") || config.clusters.contains_key(&cache.cluster) {
        return;
    }
    let hint = suggest::hint(&cache.cluster, config.clusters.keys().map(String::as_str));
    report
        .wrong(
            path,
            "the name of a [cluster.NAME]",
            format!("{:?}", cache.cluster),
        )
        .hint(hint);
}

/// Somebody must be allowed to read the binary log.
fn account(cache: &Cache, config: &Config, report: &mut Report<'_>) {
    let Some(account) = &cache.account else {
        let cluster = config.clusters.get(&cache.cluster);
        let monitored = cluster.is_none_or(|cluster| cluster.monitor.is_some());
        let need = format!(
            "an account, since [cluster.{}] has no `monitor` whose account could be used",
            cache.cluster
        );
        return needs("account", monitored, &need, "cache", report);
    };
    let path = "cache.account";
    at_most_one("the password", &passwords!(account), path, report);
    named(&account.user, path, report);
}

/// The name ends at the `@` of a Redis key.
fn name(mapping: &CacheMapping, path: &str, report: &mut Report<'_>) {
    let path = format!("{path}.name");
    let breaks = |c: char| c == '@' || c.is_whitespace() || c.is_control();
    if mapping.name.contains(breaks) && !report.is_wrong(&path) {
        let found = format!("{:?}", mapping.name);
        report.wrong(&path, "a name without `@` and blanks", found);
    }
}

/// Names of columns, each once. Servers do not tell upper and lower case apart in them.
fn columns(option: &str, names: &[String], most: usize, path: &str, report: &mut Report<'_>) {
    let path = format!("{path}.{option}");
    if report.is_wrong(&path) {
        return;
    }
    if names.is_empty() || names.len() > most {
        let found = format!("{}", names.len());
        report.wrong(&path, format!("1 to {most} columns"), found);
        return;
    }
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for (index, name) in names.iter().enumerate() {
        let element = format!("{path}[{index}]");
        if report.is_wrong(&element) {
            continue;
        }
        let length = name.chars().count();
        if !(1..=IDENTIFIER_MAX).contains(&length) || name.chars().any(char::is_control) {
            let expected = format!("the name of a column, 1 to {IDENTIFIER_MAX} characters");
            report.wrong(&element, expected, format!("{length} characters"));
        } else if let Some(first) = seen.insert(name.to_lowercase(), name) {
            let found = format!("{name:?} after {first:?}");
            report.wrong(&element, "each column once", found);
        }
    }
}

/// A string is one value; `*` stands alone.
fn value_fits_kind(mapping: &CacheMapping, path: &str, report: &mut Report<'_>) {
    let value = format!("{path}.value");
    if report.is_wrong(&value) || report.is_wrong(&format!("{path}.kind")) {
        return;
    }
    let stars = mapping.value.iter().filter(|name| *name == "*").count();
    let hint = || Some("`kind = \"hash\"` has any number of columns".to_owned());
    if mapping.kind == MappingKind::String && mapping.value.len() > 1 {
        let found = format!("{} columns", mapping.value.len());
        report
            .wrong(&value, "one column, since `kind` is \"string\"", found)
            .hint(hint());
    } else if mapping.kind == MappingKind::String && stars > 0 {
        let expected = "the name of a column, since `kind` is \"string\"";
        report
            .wrong(&value, expected, "\"*\", which is all of them")
            .hint(hint());
    } else if stars > 0 && mapping.value.len() > 1 {
        let found = "other columns beside it";
        report.wrong(&value, "\"*\" alone", found);
    }
    if mapping.key.iter().any(|name| name == "*") && !report.is_wrong(&format!("{path}.key")) {
        let expected = "the columns of a unique index by their names";
        report.wrong(&format!("{path}.key"), expected, "\"*\"");
    }
}

/// An option that reads from memory needs one.
fn some_cache(option: &str, written: &str, config: &Config, path: &str, report: &mut Report<'_>) {
    let path = format!("{path}.{option}");
    if config.cache.is_none() && !report.is_wrong("cache") && !report.is_wrong(&path) {
        let hint = "add [cache] with `cluster`, and [[cache.mapping]]".to_owned();
        let found = format!("{written} without any [cache]");
        report
            .wrong(&path, "a [cache] whose rows are read", found)
            .hint(hint);
    }
}

/// The cache, where nothing is wrong with what it says of its cluster.
fn with_cluster<'c>(config: &'c Config, report: &Report<'_>) -> Option<&'c Cache> {
    let cache = config.cache.as_ref();
    cache.filter(|_| !report.is_wrong("cache.cluster"))
}

/// A Redis listener has the cluster of the cache. Whoever writes it may only say the same.
fn cluster_of_redis(listener: &Listener, config: &Config, path: &str, report: &mut Report<'_>) {
    let Some(cache) = with_cluster(config, report) else {
        return;
    };
    let path = format!("{path}.cluster");
    if listener.cluster != cache.cluster && !report.is_wrong(&path) {
        let expected = format!("{:?}, the cluster of [cache]", cache.cluster);
        report
            .wrong(&path, expected, format!("{:?}", listener.cluster))
            .hint("leave it out".to_owned());
    }
}

/// Options that would be believed to do something.
fn only_mysql(path: &str, report: &mut Report<'_>) {
    for option in OF_MYSQL {
        let path = format!("{path}.{option}");
        if report.is_written(&path) && !report.is_wrong(&path) {
            let hint = (option == "read_consistency").then(|| "here it is `lookup_consistency`".to_owned());
            report
                .wrong_key(
                    &path,
                    "options for Redis clients, since `protocol` is \"redis\"",
                    format!("`{option}`, which is about MySQL clients"),
                )
                .hint(hint);
        }
    }
}

fn point_lookups(listener: &Listener, config: &Config, path: &str, report: &mut Report<'_>) {
    let option = format!("{path}.point_lookups");
    let consistency = format!("{path}.lookup_consistency");
    if !listener.point_lookups {
        if report.is_written(&consistency) && !report.is_wrong(&consistency) && !report.is_wrong(&option) {
            let found = "it where nothing is read from memory";
            let expected = "this option with `protocol = \"redis\"` or `point_lookups = true`";
            let hint = "for reads on replicas it is `read_consistency`".to_owned();
            report.wrong_key(&consistency, expected, found).hint(hint);
        }
        return;
    }
    if listener.mode == Mode::Tcp && !report.is_wrong(&format!("{path}.mode")) {
        let found = "true in mode \"tcp\", which looks at no statement";
        let expected = "false, or another `mode`";
        report.wrong(&option, expected, found);
        return;
    }
    some_cache("point_lookups", "true", config, path, report);
    let Some(cache) = with_cluster(config, report) else {
        return;
    };
    if cache.cluster != listener.cluster && !report.is_wrong(&format!("{path}.cluster")) {
        let expected = format!(
            "false, since the rows in memory are those of cluster {:?}",
            cache.cluster
        );
        let found = format!("true in a listener of cluster {:?}", listener.cluster);
        report.wrong(&option, expected, found);
    }
}
