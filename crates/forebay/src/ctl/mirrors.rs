//! `forebay ctl mirrors`: how another cluster answers copies of statements, as a table.

use std::fmt::Write;

use anyhow::Result;
use serde_json::Value;

use super::{parsed, table as columns};

/// What `GET /mirrors` says, for people: figures and a table for each cluster.
pub(super) fn table(text: &str) -> Result<String> {
    let clusters: Vec<Value> = parsed(text)?;
    let mut out = String::new();
    // Writing to a String cannot fail, here and below.
    if clusters.is_empty() {
        let _ = writeln!(out, "no answers were compared (`mirror_compare` of a rule)");
    }
    for cluster in &clusters {
        let name = cluster["cluster"].as_str().unwrap_or_default();
        let _ = writeln!(out, "{name}: {}", counts(&cluster["compared"]));
        let unchecked = counts(&cluster["unchecked"]);
        if !unchecked.is_empty() {
            let _ = writeln!(out, "  values not compared: {unchecked}");
        }
        for (side, words) in [("original", "clients"), ("copy", "copies")] {
            let ms = |quantile: &str| cluster[side][quantile].as_f64().unwrap_or_default();
            let (p50, p95, p99) = (ms("p50_ms"), ms("p95_ms"), ms("p99_ms"));
            let _ = writeln!(
                out,
                "  {words}: p50 {p50:.3} ms, p95 {p95:.3} ms, p99 {p99:.3} ms"
            );
        }
        let statements = cluster["statements"].as_array().map_or(&[][..], Vec::as_slice);
        if !statements.is_empty() {
            let titles = ["DIGEST", "DIFFERS BY", "THE LAST ONE", "SECONDS AGO", "STATEMENT"];
            out += &columns(titles, statements.iter().map(row).collect());
        }
        if let Some(others) = cluster["of_others"].as_u64().filter(|others| *others > 0) {
            let _ = writeln!(out, "and {others} differences of further statements");
        }
    }
    Ok(out)
}

fn row(statement: &Value) -> [String; 5] {
    let word = |name: &str| statement[name].as_str().unwrap_or("-").to_owned();
    let seconds = statement["seconds_ago"].as_f64().unwrap_or_default();
    [
        word("digest"),
        counts(&statement["compared"]),
        word("example"),
        format!("{seconds:.0}"),
        word("text"),
    ]
}

/// Words with their counts, without those that have none.
fn counts(words: &Value) -> String {
    let words = words.as_object().into_iter().flatten();
    let words = words.filter(|(_, count)| count.as_u64() != Some(0));
    let words: Vec<_> = words.map(|(word, count)| format!("{word} {count}")).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_shown_as_a_table() {
        let times = serde_json::json!({"p50_ms": 0.5, "p95_ms": 1.0, "p99_ms": 2.25});
        let mirrors = serde_json::json!([{
            "cluster": "next", "compared": {"equal": 97, "errors": 0, "rows": 3}, "unchecked": {"masked": 2},
            "original": times, "copy": times, "of_others": 1,
            "statements": [{"digest": "00ff00ff00ff00ff", "text": "SELECT * FROM t", "compared": {"rows": 3},
                "example": "1 → 2 rows", "seconds_ago": 12.3}],
        }]);
        let expected = "\
next: equal 97, rows 3
  values not compared: masked 2
  clients: p50 0.500 ms, p95 1.000 ms, p99 2.250 ms
  copies: p50 0.500 ms, p95 1.000 ms, p99 2.250 ms
DIGEST            DIFFERS BY  THE LAST ONE  SECONDS AGO  STATEMENT
00ff00ff00ff00ff  rows 3      1 → 2 rows    12           SELECT * FROM t
and 1 differences of further statements
";
        assert_eq!(table(&mirrors.to_string()).unwrap(), expected);
        let none = table("[]").unwrap();
        assert!(none.contains("mirror_compare"), "{none}");
    }
}
