//! The reference of all metrics, made from their table.

use std::fmt::Write as _;

use crate::{EndReason, metrics};

const HEAD: &str = "\
# Metrics

<!-- Generated from crates/telemetry/src/metric.rs; `UPDATE_EXPECT=1 cargo test -p telemetry` writes it. -->

`GET /metrics` of the admin server gives all of them, in the Prometheus text format or in OpenMetrics. Which of them to
look at, and when to wake somebody: [monitoring](monitoring.md).

Counters start at 0 with the process. Histograms have two buckets to a power of two, from 8 µs to 137 s. Series of
removed listeners and servers stay until a restart; of more than 256 listeners or 1024 servers in the life of a process
the rest is counted together, with the label value `other`.

| metric | kind | labels | unit | meaning |
|---|---|---|---|---|
";

const REASONS: &str = "
## Why sessions end

The label `reason` of `forebay_sessions_ended_total`, and of the log line of a session.

| reason | meaning |
|---|---|
";

/// The page in Markdown: `docs/guide/metrics.md`, and what `forebay docs metrics` prints.
#[must_use]
pub fn text() -> String {
    let mut page = String::from(HEAD);
    for metric in metrics() {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, unit, help) = (metric.name, metric.kind.label(), metric.unit, metric.help);
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            page,
            "| `{name}` | {kind} | {} | {unit} | {help} |",
            labels.join(", ")
        );
    }
    page += REASONS;
    for reason in EndReason::ALL {
        let _ = writeln!(page, "| `{}` | {} |", reason.label(), reason.doc());
    }
    page
}
