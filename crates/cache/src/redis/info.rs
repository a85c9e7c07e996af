//! `INFO`.

use std::fmt::Display;

use resp_wire::Args;

use super::Service;
use super::login::REDIS_VERSION;

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

/// The sections that were asked for; without any, all of them.
pub(crate) fn info(service: &Service, asked: Args<'_>) -> String {
    let wants = |section: &str| {
        let is_it = |name: &[u8]| {
            ["all", "everything", "default", section]
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
        };
        asked.is_empty() || asked.iter().any(is_it)
    };
    let mut text = String::new();
    for section in SECTIONS.iter().filter(|section| wants(section)) {
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
            "keyspace" => keyspace(service, &mut text),
            "mappings" => mappings(service, &mut text),
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

fn keyspace(service: &Service, text: &mut String) {
    let mappings = &service.mappings().0;
    let sizes = mappings
        .all()
        .iter()
        .filter_map(|mapping| service.store().len(mapping.id));
    let keys: u64 = sizes.sum();
    field(text, "db0", format_args!("keys={keys},expires=0,avg_ttl=0"));
}

/// One line a mapping, by name.
fn mappings(service: &Service, text: &mut String) {
    let mappings = &service.mappings().0;
    let mut lines: Vec<String> = Vec::new();
    for mapping in mappings.all() {
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
