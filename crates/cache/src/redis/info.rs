//! `INFO`. Of mappings it tells what the user may read.

use std::fmt::Display;
use std::sync::Arc;

use dataplane::extension::ProtocolSession;
use resp_wire::Args;

use super::Service;
use super::login::REDIS_VERSION;
use super::rights::Known;
use super::session::Session;
use crate::mapping::Mapping;

const SECTIONS: &[&str] = &[
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "cluster",
    "keyspace",
    "mappings",
];

/// Whether a section was asked for; without any, all of them are.
fn wants(asked: Args<'_>, section: &str) -> bool {
    let is_it = |name: &[u8]| {
        ["all", "everything", "default", section]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    };
    asked.is_empty() || asked.iter().any(is_it)
}

/// Finds out which mappings the user may read, where the sections tell of mappings. Those of which nobody can
/// be asked now are left out.
pub(crate) async fn learn_rights(
    service: &Service,
    session: &mut Session,
    control: &ProtocolSession,
    asked: Args<'_>,
) {
    let Some(identity) = &session.identity else {
        return;
    };
    if !wants(asked, "keyspace") && !wants(asked, "mappings") {
        return;
    }
    let definitions = service.reader.feed_status().definitions();
    let mappings = service.mappings();
    for mapping in mappings.0.all() {
        let known = &mut session.rights;
        if known.of(mapping).is_none()
            && (service
                .rights
                .find_out(control, identity, mapping, definitions, known)
                .await)
                .is_err()
        {
            return;
        }
    }
}

/// The sections that were asked for.
pub(crate) fn info(service: &Service, rights: &Known, asked: Args<'_>) -> String {
    let mut text = String::new();
    for section in SECTIONS.iter().filter(|section| wants(asked, section)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let mut title = section.to_string();
        title[..1].make_ascii_uppercase();
        text.push_str(&format!("# {title}\r\n"));
        match *section {
            "server" => server(service, &mut text),
            "clients" => clients(service, &mut text),
            "memory" => memory(service, &mut text),
            "persistence" => persistence(service, &mut text),
            "stats" => stats(service, &mut text),
            "replication" => text.push_str("role:master\r\nconnected_slaves:0\r\n"),
            "cluster" => text.push_str("cluster_enabled:0\r\n"),
            "keyspace" => keyspace(service, rights, &mut text),
            "mappings" => mappings(service, rights, &mut text),
            _ => {}
        }
    }
    text
}

fn field(text: &mut String, name: &str, value: impl Display) {
    text.push_str(&format!("{name}:{value}\r\n"));
}

fn server(service: &Service, text: &mut String) {
    field(text, "redis_version", REDIS_VERSION);
    field(text, "redis_mode", "standalone");
    field(text, "forebay_version", env!("CARGO_PKG_VERSION"));
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    field(text, "os", format_args!("{os} {arch}"));
    field(text, "arch_bits", usize::BITS);
    field(text, "process_id", std::process::id());
    let up = service.shared.started.elapsed().as_secs();
    field(text, "uptime_in_seconds", up);
    field(text, "uptime_in_days", up / 86_400);
}

fn clients(service: &Service, text: &mut String) {
    field(text, "connected_clients", service.shared.clients.count());
    field(text, "tracking_clients", service.tracking().clients_count());
}

fn memory(service: &Service, text: &mut String) {
    let memory = service.store().memory();
    field(text, "used_memory", memory.held);
    field(text, "used_memory_dataset", memory.rows);
    field(text, "used_memory_rounding", memory.rounding);
    field(text, "maxmemory", memory.memory_max);
}

/// ioredis begins when `loading` is 0: as soon as one mapping is served.
fn persistence(service: &Service, text: &mut String) {
    let mappings = &service.mappings().0;
    let are_to_come = mappings.unread().is_some() || mappings.all_unready().next().is_some();
    let is_loading = mappings.all().is_empty() && are_to_come;
    field(text, "loading", u8::from(is_loading));
    field(text, "rdb_changes_since_last_save", 0);
    field(text, "aof_enabled", 0);
}

fn stats(service: &Service, text: &mut String) {
    let shared = &service.shared;
    let connections = shared.total(|worker| &worker.connections);
    field(text, "total_connections_received", connections);
    let commands = shared.total(|worker| &worker.commands);
    field(text, "total_commands_processed", commands);
    field(text, "total_error_replies", shared.total(|worker| &worker.errors));
    field(text, "asked_server", shared.total(|worker| &worker.asked_server));
    field(text, "tracking_total_keys", service.tracking().keys_count());
}

/// The mappings whose tables the user may read.
fn readable<'a>(all: &'a [Arc<Mapping>], rights: &'a Known) -> impl Iterator<Item = &'a Arc<Mapping>> {
    all.iter().filter(|mapping| rights.of(mapping) == Some(true))
}

fn keyspace(service: &Service, rights: &Known, text: &mut String) {
    let mappings = &service.mappings().0;
    let sizes = readable(mappings.all(), rights).filter_map(|mapping| service.store().len(mapping.id));
    let keys: u64 = sizes.sum();
    field(text, "db0", format_args!("keys={keys},expires=0,avg_ttl=0"));
}

/// One line a mapping, by name.
fn mappings(service: &Service, rights: &Known, text: &mut String) {
    let mappings = &service.mappings().0;
    let mut lines: Vec<String> = Vec::new();
    for mapping in readable(mappings.all(), rights) {
        let key: Vec<&str> = mapping.key_columns().map(|column| &*column.name).collect();
        let values: Vec<&str> = mapping.values().map(|column| &*column.name).collect();
        let state = match service.store().len(mapping.id) {
            Some(rows) => format!("rows={rows},state=serving"),
            None => "rows=0,state=not served".to_owned(),
        };
        lines.push(format!(
            "{}:kind={},table={}.{},key={},value={},{state}",
            mapping.name,
            mapping.kind.word(),
            mapping.schema,
            mapping.table,
            key.join("|"),
            values.join("|"),
        ));
    }
    for (name, state) in mappings.all_unready() {
        lines.push(format!("{name}:state={}", state.replace(['\r', '\n'], " ")));
    }
    lines.sort_unstable();
    lines
        .iter()
        .for_each(|line| text.push_str(&format!("{line}\r\n")));
}
