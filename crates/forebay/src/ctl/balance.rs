//! `forebay ctl balance`: how the sessions of clusters are spread, as a table.

use std::fmt::Write;

use anyhow::Result;
use serde_json::Value;

use super::{parsed, table as columns};

const COLUMNS: [&str; 8] = [
    "SERVER",
    "SESSIONS",
    "SHARE",
    "SCORE",
    "CPU %",
    "MEMORY %",
    "NOTE",
    "LAST MOVED",
];

/// What `GET /balance` says, for people: a heading and a table for each cluster.
pub(super) fn table(text: &str) -> Result<String> {
    let clusters: Vec<Value> = parsed(text)?;
    let mut table = String::new();
    for cluster in &clusters {
        let word = |name: &str| cluster[name].as_str().unwrap_or_default();
        let (name, policy, state) = (word("cluster"), word("policy"), word("state"));
        let _ = match policy {
            "off" => writeln!(table, "{name}: sessions stay where they are (`rebalance` is off)"),
            _ => writeln!(table, "{name}: {state} (policy {policy})"),
        };
        let servers = cluster["servers"].as_array().into_iter().flatten();
        table += &columns(COLUMNS, servers.map(row).collect());
    }
    Ok(table)
}

fn row(server: &Value) -> [String; COLUMNS.len()] {
    let word = |name: &str| server[name].as_str().unwrap_or("-").to_owned();
    let number = |name: &str, digits: usize| match server[name].as_f64() {
        Some(number) => format!("{number:.digits$}"),
        None => "-".to_owned(),
    };
    let moved = &server["last_moved"];
    let last_moved = match moved.is_object() {
        true => format!(
            "{} to {} {} s ago ({})",
            moved["sessions"],
            moved["to"].as_str().unwrap_or_default(),
            moved["seconds_ago"].as_f64().unwrap_or(0.0).round(),
            moved["factor"].as_str().unwrap_or_default(),
        ),
        false => "-".to_owned(),
    };
    [
        word("server"),
        number("sessions", 0),
        number("share", 1),
        number("score", 2),
        number("cpu_percent", 0),
        number("memory_percent", 0),
        word("note"),
        last_moved,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_shown_as_a_table() {
        let of = |server: &str, sessions: u64, score: f64| {
            serde_json::json!({"server": server, "sessions": sessions, "share": 9.0, "score": score, "cpu_percent": 61.4,
                "memory_percent": null, "note": null,
                "last_moved": null})
        };
        let mut servers = vec![of("db1", 12, 1.333), of("db2", 6, 0.667)];
        servers[0]["last_moved"] =
            serde_json::json!({"factor": "connections", "sessions": 3, "to": "db2", "seconds_ago": 1.7});
        let balance = serde_json::json!([{"cluster": "main", "policy": "connections", "state": "moving", "servers": servers}]);
        let expected = "\
main: moving (policy connections)
SERVER  SESSIONS  SHARE  SCORE  CPU %  MEMORY %  NOTE  LAST MOVED
db1     12        9.0    1.33   61     -         -     3 to db2 2 s ago (connections)
db2     6         9.0    0.67   61     -         -     -
";
        assert_eq!(table(&balance.to_string()).unwrap(), expected);
    }
}
