//! `INFO`.

use std::fmt::Write as _;

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
        line(&mut text, format_args!("# {title}"));
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

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // A `String` takes everything.
    let _ = write!(text, "{line}\r\n");
}

fn server(service: &Service, text: &mut String) {
    line(text, format_args!("redis_version:{REDIS_VERSION}"));
    line(text, format_args!("redis_mode:standalone"));
    line(
        text,
        format_args!("forebay_version:{}", env!("CARGO_PKG_VERSION")),
    );
    line(
        text,
        format_args!("os:{} {}", std::env::consts::OS, std::env::consts::ARCH),
    );
    line(text, format_args!("arch_bits:{}", usize::BITS));
    line(text, format_args!("process_id:{}", std::process::id()));
    let up = service.shared.started.elapsed().as_secs();
    line(text, format_args!("uptime_in_seconds:{up}"));
    line(text, format_args!("uptime_in_days:{}", up / 86_400));
}

fn clients(service: &Service, text: &mut String) {
    let connected = service.shared.clients.count();
    line(text, format_args!("connected_clients:{connected}"));
    let tracking = service.tracking().clients_count();
    line(text, format_args!("tracking_clients:{tracking}"));
}

fn memory(service: &Service, text: &mut String) {
    let memory = service.store().memory();
    line(text, format_args!("used_memory:{}", memory.held));
    line(text, format_args!("used_memory_dataset:{}", memory.rows));
    line(text, format_args!("used_memory_rounding:{}", memory.rounding));
    line(text, format_args!("maxmemory:{}", memory.memory_max));
}

/// ioredis begins when `loading` is 0: as soon as one mapping is served.
fn persistence(service: &Service, text: &mut String) {
    let mappings = &service.mappings().0;
    let are_to_come = mappings.unread().is_some() || mappings.all_unready().next().is_some();
    let is_loading = mappings.all().is_empty() && are_to_come;
    line(text, format_args!("loading:{}", u8::from(is_loading)));
    line(text, format_args!("rdb_changes_since_last_save:0"));
    line(text, format_args!("aof_enabled:0"));
}

fn stats(service: &Service, text: &mut String) {
    let shared = &service.shared;
    let connections = shared.total(|worker| &worker.connections);
    line(text, format_args!("total_connections_received:{connections}"));
    let commands = shared.total(|worker| &worker.commands);
    line(text, format_args!("total_commands_processed:{commands}"));
    let errors = shared.total(|worker| &worker.errors);
    line(text, format_args!("total_error_replies:{errors}"));
    let asked = shared.total(|worker| &worker.asked_server);
    line(text, format_args!("asked_server:{asked}"));
    let keys = service.tracking().keys_count();
    line(text, format_args!("tracking_total_keys:{keys}"));
}

fn rows_in_memory(service: &Service) -> u64 {
    let mappings = &service.mappings().0;
    let sizes = mappings
        .all()
        .iter()
        .filter_map(|mapping| service.store().len(mapping.id));
    sizes.sum()
}

fn keyspace(service: &Service, text: &mut String) {
    let keys = rows_in_memory(service);
    line(text, format_args!("db0:keys={keys},expires=0,avg_ttl=0"));
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
    lines.iter().for_each(|entry| line(text, format_args!("{entry}")));
}
