//! From `mysql_query_rules` to `[[rule]]`.
//!
//! A condition that cannot be written down makes the rule disabled: without it the rule would match more than
//! it did. An action that cannot is left out, and said.

use std::time::Duration;

use config::show_duration;

use crate::clusters::{Cluster, Uses, cluster_of};
use crate::dump::{Dump, ImportError, Row};
use crate::routes::Listener;
use crate::write::{Notes, Toml, list, quote};
use crate::{accounts, patterns};

/// Longest text that a client is told.
const ANSWER_MAX: usize = 512;

/// Longest delay of ours.
const DELAY_MAX_MS: u64 = 600_000;

/// Longest time limit of ours.
const TIMEOUT_MAX_MS: u64 = 30 * 86_400_000;

/// What rules need to know of the rest.
pub(crate) struct Around<'a> {
    pub(crate) dump: &'a Dump,
    pub(crate) clusters: &'a [Cluster],
    pub(crate) listeners: &'a [Listener],
}

/// A rule while it is put together.
#[derive(Default)]
struct Draft {
    options: Vec<(&'static str, String)>,
    /// Why it is disabled.
    disabled: Vec<String>,
    left_out: Vec<String>,
    /// Names of the listeners it is for; empty: all.
    listeners: Vec<String>,
}

impl Draft {
    fn set(&mut self, option: &'static str, value: impl Into<String>) {
        self.options.push((option, value.into()));
    }

    fn text(&mut self, option: &'static str, value: &str) {
        self.set(option, quote(value));
    }

    fn disable(&mut self, why: impl Into<String>) {
        self.disabled.push(why.into());
    }

    fn leave_out(&mut self, what: impl Into<String>) {
        self.left_out.push(what.into());
    }

    fn write(self, name: &str, comment: &str, toml: &mut Toml, notes: &mut Notes) {
        toml.section("[[rule]]");
        toml.comment(comment);
        for why in &self.disabled {
            toml.comment(&format!("disabled: {why}"));
            notes.add(format!("rule {name}: disabled: {why}"));
        }
        for what in &self.left_out {
            toml.comment(&format!("left out: {what}"));
            notes.add(format!("rule {name}: left out: {what}"));
        }
        toml.text("name", name);
        if !self.disabled.is_empty() {
            toml.option("enabled", "false");
        }
        if !self.listeners.is_empty() {
            toml.option("listener", &list(self.listeners.iter().map(String::as_str)));
        }
        for (option, value) in &self.options {
            toml.option(option, value);
        }
    }
}

/// Notes which hostgroups rules send to.
pub(crate) fn count(dump: &Dump, uses: &mut Uses) -> Result<(), ImportError> {
    for row in active(dump)? {
        uses.destinations.extend(row.number("destination_hostgroup")?);
        uses.mirrors.extend(row.number("mirror_hostgroup")?);
    }
    for row in dump.rows("mysql_query_rules_fast_routing") {
        uses.destinations.extend(row.number("destination_hostgroup")?);
    }
    Ok(())
}

fn active(dump: &Dump) -> Result<Vec<&Row>, ImportError> {
    let mut rows = Vec::new();
    for row in dump.rows("mysql_query_rules") {
        // Without `active` a rule sleeps.
        if row.flag("active", false)? {
            rows.push((row.number("rule_id")?.unwrap_or(u64::MAX), row));
        }
    }
    rows.sort_by_key(|(id, _)| *id);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// Writes all rules: what holds for statements that no rule of ProxySQL matches comes first, since a later
/// rule has the last word.
pub(crate) fn write(
    around: &Around<'_>,
    users: &[accounts::User<'_>],
    toml: &mut Toml,
    notes: &mut Notes,
) -> Result<(), ImportError> {
    for_every_statement(around.dump, toml, notes);
    default_hostgroups(around, users, toml, notes);
    let active = active(around.dump)?;
    let left = around.dump.rows("mysql_query_rules").len() - active.len();
    if left > 0 {
        notes.add(format!(
            "mysql_query_rules: {left} rules are not active; left out"
        ));
    }
    for (index, row) in active.into_iter().enumerate() {
        let name = match row.number("rule_id")? {
            Some(id) => format!("proxysql-{id}"),
            None => format!("proxysql-nr-{}", index + 1),
        };
        let draft = draft(row, around)?;
        draft.write(&name, row.filled("comment").unwrap_or_default(), toml, notes);
    }
    fast_routing(around, toml, notes)
}

/// Variables that are rules here.
fn for_every_statement(dump: &Dump, toml: &mut Toml, notes: &mut Notes) {
    let mut draft = Draft::default();
    // The values that ProxySQL starts with say nothing.
    let said = |name: &str, usual: u64| dump.number(name).filter(|number| *number != usual && *number > 0);
    if let Some(timeout) = said("mysql-default_query_timeout", 36_000_000) {
        draft.text("timeout", &milliseconds(timeout.min(TIMEOUT_MAX_MS)));
    }
    if let Some(delay) = said("mysql-default_query_delay", 0) {
        draft.text("delay", &milliseconds(delay.min(DELAY_MAX_MS)));
    }
    if let Some(retries) = dump
        .number("mysql-query_retries_on_failure")
        .filter(|retries| *retries != 1)
    {
        draft.set("retries", retries.min(1000).to_string());
    }
    if !draft.options.is_empty() {
        draft.set("continue", "true");
        draft.write("every-statement", "Global variables of ProxySQL.", toml, notes);
    }
}

/// ProxySQL sends to the user's default hostgroup what no rule sends elsewhere.
fn default_hostgroups(around: &Around<'_>, users: &[accounts::User<'_>], toml: &mut Toml, notes: &mut Notes) {
    let mut hostgroups: Vec<u64> = users.iter().map(|user| user.hostgroup).collect();
    hostgroups.sort_unstable();
    hostgroups.dedup();
    for hostgroup in hostgroups {
        let names = users
            .iter()
            .filter(|user| user.hostgroup == hostgroup)
            .map(|user| user.name);
        let mut draft = Draft::default();
        draft.set("user", list(names.clone()));
        send(hostgroup, around, &mut draft);
        draft.set("continue", "true");
        if names.clone().any(|name| name.contains(['*', '?'])) {
            draft.disable("`*` and `?` in the name of a user stand for other characters here");
        }
        let comment = "ProxySQL sends to the default hostgroup of the user what no rule sends elsewhere. Without this rule and \
                       those that send plain reads to replicas, Forebay does the same by itself, from what each statement is.";
        draft.write(&format!("default-hostgroup-{hostgroup}"), comment, toml, notes);
    }
}

/// `mysql_query_rules_fast_routing`: looked at after all rules. A row of the user goes before one of every
/// user there, in whichever order they stand.
fn fast_routing(around: &Around<'_>, toml: &mut Toml, notes: &mut Notes) -> Result<(), ImportError> {
    let mut rows: Vec<&Row> = around
        .dump
        .rows("mysql_query_rules_fast_routing")
        .iter()
        .collect();
    rows.sort_by_key(|row| row.filled("username").is_none());
    for (index, row) in rows.into_iter().enumerate() {
        let mut draft = Draft::default();
        if row.filled("schemaname").is_none() {
            draft.disable("schemaname is empty: sessions without a schema cannot be told from others");
        }
        names(row, "username", "user", &mut draft);
        schema(row, around.dump, &mut draft);
        flag_in(row, &mut draft)?;
        send(row.required("destination_hostgroup")?, around, &mut draft);
        let comment = row.filled("comment").unwrap_or_default();
        draft.write(&format!("proxysql-fast-{}", index + 1), comment, toml, notes);
    }
    Ok(())
}

fn draft(row: &Row, around: &Around<'_>) -> Result<Draft, ImportError> {
    let mut draft = Draft::default();
    names(row, "username", "user", &mut draft);
    schema(row, around.dump, &mut draft);
    flag_in(row, &mut draft)?;
    addresses(row, around, &mut draft)?;
    expressions(row, &mut draft)?;
    if let Some(hostgroup) = row.number("destination_hostgroup")? {
        send(hostgroup, around, &mut draft);
    }
    answers(row, &mut draft);
    figures(row, around.dump, &mut draft)?;
    connection(row, &mut draft)?;
    mirror(row, around, &mut draft)?;
    others(row, &mut draft)?;
    if !row.flag("apply", false)? {
        draft.set("continue", "true");
    }
    Ok(draft)
}

fn names(row: &Row, column: &str, option: &'static str, draft: &mut Draft) {
    let Some(name) = row.filled(column) else { return };
    if name.contains(['*', '?']) {
        draft.disable(format!(
            "{column} {name:?}: `*` and `?` stand for other characters here"
        ));
    }
    draft.set(option, list([name]));
}

/// ProxySQL has clients that name no schema use its default one.
fn schema(row: &Row, dump: &Dump, draft: &mut Draft) {
    names(row, "schemaname", "schema", draft);
    let default = dump
        .variable("mysql-default_schema")
        .unwrap_or("information_schema");
    if row.filled("schemaname") == Some(default) {
        draft.leave_out(format!(
            "clients that name no schema: ProxySQL has them use `mysql-default_schema`, {default}"
        ));
    }
}

/// Chains of rules are what `flagIN` and `flagOUT` are for.
fn flag_in(row: &Row, draft: &mut Draft) -> Result<(), ImportError> {
    if let Some(flag) = row.number("flagIN")?.filter(|flag| *flag != 0) {
        draft.disable(format!("flagIN = {flag}: there are no chains of rules"));
    }
    if let Some(flag) = row.number("flagOUT")? {
        draft.disable(format!("flagOUT = {flag}: there are no chains of rules"));
    }
    if row
        .text("attributes")
        .is_some_and(|text| text.contains("flagOUTs"))
    {
        draft.disable("flagOUTs of attributes: there are no chains of rules");
    }
    Ok(())
}

fn addresses(row: &Row, around: &Around<'_>, draft: &mut Draft) -> Result<(), ImportError> {
    if let Some(address) = row.filled("client_addr") {
        match patterns::network(address) {
            Some(Some(network)) => draft.set("client", list([network.as_str()])),
            Some(None) => {}
            None => draft.disable(format!("client_addr {address:?}: not a network")),
        }
    }
    let (address, port) = (row.filled("proxy_addr"), row.number("proxy_port")?);
    if address.is_none() && port.is_none() {
        return Ok(());
    }
    let meant = around
        .listeners
        .iter()
        .filter(|listener| listener.is_at(address, port));
    draft.listeners = meant.map(Listener::name).collect();
    if draft.listeners.is_empty() {
        let place = format!(
            "{}:{}",
            address.unwrap_or("*"),
            port.map_or("*".to_owned(), |port| port.to_string())
        );
        draft.disable(format!(
            "proxy_addr and proxy_port {place}: no listener is at just this address"
        ));
    }
    Ok(())
}

fn expressions(row: &Row, draft: &mut Draft) -> Result<(), ImportError> {
    if row.filled("digest").is_some() {
        draft.disable(
            "digest: ours are other figures; take the text in stats_mysql_query_digest for `digest_text`",
        );
    }
    let modifiers = row
        .text("re_modifiers")
        .unwrap_or(if row.is_null("re_modifiers") {
            ""
        } else {
            "CASELESS"
        });
    let has = |word: &str| modifiers.to_ascii_uppercase().contains(word);
    let columns = [("match_digest", "digest_text"), ("match_pattern", "text")];
    let mut is_any = false;
    for (column, option) in columns {
        let Some(pattern) = row.filled(column) else {
            continue;
        };
        match patterns::expression(pattern, has("CASELESS"), option == "digest_text") {
            Ok(pattern) => {
                draft.text(option, &pattern);
                is_any = true;
            }
            Err(why) => draft.disable(format!("{column} {pattern:?}: {why}")),
        }
    }
    let negates = row.flag("negate_match_pattern", false)? && is_any;
    if negates {
        draft.set("negate", "true");
    }
    let Some(replacement) = row.text("replace_pattern") else {
        return Ok(());
    };
    if negates
        || row.filled("match_pattern").is_none()
        || !draft.options.iter().any(|(option, _)| *option == "text")
    {
        draft.leave_out("replace_pattern: there is no match_pattern to replace");
        return Ok(());
    }
    draft.text("rewrite", &patterns::replacement(replacement));
    if has("GLOBAL") {
        draft.set("rewrite_all", "true");
    }
    Ok(())
}

/// The route to a hostgroup, and the listeners whose clients can be sent there.
fn send(hostgroup: u64, around: &Around<'_>, draft: &mut Draft) {
    let Some(cluster) = cluster_of(around.clusters, hostgroup) else {
        draft.disable(format!("hostgroup {hostgroup}: it leads to no server"));
        return;
    };
    let Some(route) = cluster.routes.get(&hostgroup) else {
        return;
    };
    draft.text("route", route);
    let leads_there = |listener: &&Listener| listener.cluster == cluster.name;
    if around.listeners.iter().all(|listener| leads_there(&listener)) {
        return;
    }
    let there: Vec<String> = around
        .listeners
        .iter()
        .filter(leads_there)
        .map(Listener::name)
        .collect();
    if draft.listeners.is_empty() {
        draft.listeners = there;
        if !draft.options.iter().any(|(option, _)| *option == "user") {
            let listeners = draft.listeners.join(", ");
            draft.leave_out(format!(
                "clients of other listeners: only those of {listeners} reach hostgroup {hostgroup}"
            ));
        }
    } else {
        draft.listeners.retain(|listener| there.contains(listener));
    }
    if draft.listeners.is_empty() {
        draft.disable(format!(
            "hostgroup {hostgroup} is in cluster {}, which these clients do not reach",
            cluster.name
        ));
    }
}

fn answers(row: &Row, draft: &mut Draft) {
    for (column, option) in [("error_msg", "refuse"), ("OK_msg", "answer_ok")] {
        let Some(text) = row.text(column) else { continue };
        // Both in one rule: the refusal is the safer one.
        if draft.options.iter().any(|(option, _)| *option == "refuse") {
            draft.leave_out(format!("{column} beside error_msg"));
            continue;
        }
        let mut end = text.len().min(ANSWER_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        if end < text.len() {
            draft.leave_out(format!("{column}: what is beyond {ANSWER_MAX} bytes of it"));
        }
        draft.text(option, &text[..end]);
    }
}

fn figures(row: &Row, dump: &Dump, draft: &mut Draft) -> Result<(), ImportError> {
    let above_0 = |column| {
        let number = row.number(column);
        number.map(|number| number.filter(|number| *number > 0))
    };
    if let Some(timeout) = above_0("timeout")? {
        draft.text("timeout", &milliseconds(timeout.min(TIMEOUT_MAX_MS)));
    }
    if let Some(delay) = above_0("delay")? {
        // A rule's delay comes on top of the one for every statement in ProxySQL, and here in its place.
        let sum = delay.saturating_add(dump.number("mysql-default_query_delay").unwrap_or(0));
        draft.text("delay", &milliseconds(sum.min(DELAY_MAX_MS)));
    }
    if let Some(retries) = row.number("retries")? {
        draft.set("retries", retries.min(1000).to_string());
    }
    if row.flag("log", false)? {
        draft.set("log", "true");
    }
    Ok(())
}

fn connection(row: &Row, draft: &mut Draft) -> Result<(), ImportError> {
    if row.flag("sticky_conn", false)? {
        draft.leave_out("sticky_conn: ProxySQL keeps it and does nothing about it; `pin` is multiplex = 0");
    }
    match row.number("multiplex")? {
        Some(0) => draft.text("pin", "always"),
        Some(1) => draft.leave_out("multiplex = 1: connections are shared whenever nothing holds them"),
        Some(2) => draft.text("pin", "never"),
        _ => {}
    }
    if row.number("gtid_from_hostgroup")?.is_some() {
        draft.text("read_consistency", "session");
    }
    Ok(())
}

fn mirror(row: &Row, around: &Around<'_>, draft: &mut Draft) -> Result<(), ImportError> {
    let Some(hostgroup) = row.number("mirror_hostgroup")? else {
        return Ok(());
    };
    match cluster_of(around.clusters, hostgroup) {
        Some(cluster) => {
            draft.text("mirror", &cluster.name);
            if around
                .listeners
                .iter()
                .any(|listener| listener.cluster == cluster.name)
            {
                draft.leave_out(format!(
                    "mirror_hostgroup {hostgroup}: the copy goes to cluster {}, where its class sends it, not to the hostgroup",
                    cluster.name
                ));
            }
        }
        None => draft.leave_out(format!("mirror_hostgroup {hostgroup}: it leads to no server")),
    }
    Ok(())
}

/// Columns without an equal.
fn others(row: &Row, draft: &mut Draft) -> Result<(), ImportError> {
    if let Some(ttl) = row.number("cache_ttl")? {
        draft.leave_out(format!(
            "cache_ttl = {ttl}: there is no cache of results that may be out of date"
        ));
    }
    for column in [
        "cache_empty_result",
        "cache_timeout",
        "mirror_flagOUT",
        "next_query_flagIN",
    ] {
        if let Some(number) = row.number(column)? {
            draft.leave_out(format!("{column} = {number}"));
        }
    }
    if row.flag("reconnect", false)? {
        draft.leave_out("reconnect: lost connections are replaced in any case");
    }
    if let Some(attributes) = row.filled("attributes").filter(|attributes| *attributes != "{}") {
        draft.leave_out(format!("attributes {attributes}"));
    }
    Ok(())
}

fn milliseconds(number: u64) -> String {
    show_duration(Duration::from_millis(number))
}
