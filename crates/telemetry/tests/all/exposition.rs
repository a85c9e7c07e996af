//! What a scraper gets, held against the rules of the formats by a strict reader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use telemetry::{EndReason, Fault, Format, Samples, Source, Telemetry, catalog, metrics};

/// Names and values, in order.
type Labels = Vec<(String, String)>;
/// One series: name, labels, value.
type Series = (String, Labels, f64);

#[derive(Default)]
struct Page {
    kinds: BTreeMap<String, String>,
    series: Vec<Series>,
}

impl Page {
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let same = |found: &[(String, String)]| {
            found.len() == labels.len()
                && found
                    .iter()
                    .zip(labels)
                    .all(|((name, value), wanted)| (name.as_str(), value.as_str()) == *wanted)
        };
        self.series
            .iter()
            .find(|(found, found_labels, _)| found == name && same(found_labels))
            .map(|found| found.2)
    }
}

/// Reads a page as `promtool check metrics` would, and stricter: HELP and TYPE before the series of their
/// family, all series of a family together, no series twice, names and escapes as the format says, whole
/// histograms.
fn read(text: &str, format: Format) -> Page {
    assert!(text.ends_with('\n'));
    let mut page = Page::default();
    let mut family = String::new();
    let mut helped = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut lines = text.lines().collect::<Vec<_>>();
    if format == Format::OpenMetrics {
        assert_eq!(lines.pop(), Some("# EOF"));
    }
    for line in lines {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(helped.insert(name.to_owned()), "second HELP: {line}");
            assert!(!help.is_empty());
            family = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(name, family, "TYPE follows its HELP");
            assert!(
                page.kinds.insert(name.to_owned(), kind.to_owned()).is_none(),
                "second TYPE: {line}"
            );
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            assert_eq!(format, Format::OpenMetrics);
            let (name, unit) = rest.split_once(' ').expect("a unit");
            assert_eq!(name, family);
            assert!(name.ends_with(&format!("_{unit}")), "{line}");
        } else {
            let series = read_series(line);
            let kind = page.kinds.get(&family).expect("TYPE comes first");
            check_name(&series, &family, kind, format);
            assert!(seen.insert((series.0.clone(), series.1.clone())), "twice: {line}");
            page.series.push(series);
        }
    }
    check_histograms(&page);
    page
}

fn read_series(line: &str) -> Series {
    let end = line.find(['{', ' ']).expect("a name");
    let (name, mut rest) = line.split_at(end);
    assert!(
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'),
        "{line}"
    );
    let mut labels = Vec::new();
    if let Some(list) = rest.strip_prefix('{') {
        rest = list;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label");
            assert!(
                label.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{line}"
            );
            let (value, after) = read_quoted(after);
            assert!(
                labels.iter().all(|(name, _)| name != label),
                "label twice: {line}"
            );
            labels.push((label.to_owned(), value));
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => break rest = after.strip_prefix('}').expect("a closing brace"),
            }
        }
    }
    let number = rest.strip_prefix(' ').expect("a space");
    assert!(!number.contains(' '), "{line}");
    (name.to_owned(), labels, number.parse().expect("a number"))
}

/// The text up to the closing quote, unescaped, and what follows.
fn read_quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match chars.next().map(|next| next.1) {
                Some('n') => '\n',
                Some(c @ ('\\' | '"')) => c,
                other => panic!("escape {other:?}"),
            }),
            c => value.push(c),
        }
    }
    panic!("no closing quote: {text}")
}

fn check_name((name, labels, value): &Series, family: &str, kind: &str, format: Format) {
    let suffix = name
        .strip_prefix(family)
        .unwrap_or_else(|| panic!("{name} among the series of {family}"));
    let has_le = labels.iter().any(|(name, _)| name == "le");
    match (kind, format) {
        ("counter", Format::OpenMetrics) => assert_eq!(suffix, "_total"),
        ("counter", Format::Prometheus) => assert!(suffix.is_empty() && name.ends_with("_total"), "{name}"),
        ("gauge", _) => assert!(suffix.is_empty() && !name.ends_with("_total"), "{name}"),
        ("histogram", _) => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{name}"),
        (other, _) => panic!("type {other}"),
    }
    assert_eq!(has_le, suffix == "_bucket", "{name}");
    assert!(kind == "gauge" || *value >= 0.0, "{name} {value}");
}

fn check_histograms(page: &Page) {
    let mut buckets: BTreeMap<(String, Labels), Vec<(f64, f64)>> = BTreeMap::new();
    for (name, labels, value) in &page.series {
        if let Some(name) = name.strip_suffix("_bucket") {
            let (le, others): (Vec<_>, Vec<_>) = labels.iter().cloned().partition(|(name, _)| name == "le");
            let bound = le[0].1.parse().expect("a bound; +Inf is one");
            buckets
                .entry((name.to_owned(), others))
                .or_default()
                .push((bound, *value));
        }
    }
    for ((name, labels), buckets) in buckets {
        assert!(
            buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
            "{name} {labels:?}: {buckets:?}"
        );
        let last = buckets.last().expect("a bucket");
        assert!(last.0.is_infinite(), "{name} has +Inf");
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(page.value(&format!("{name}_count"), &labels), Some(last.1));
        assert!(page.value(&format!("{name}_sum"), &labels).is_some());
    }
}

/// Two workers that have served, one source, a label value that needs every escape.
fn busy() -> Arc<Telemetry> {
    struct Servers;
    impl Source for Servers {
        fn collect(&self, out: &mut Samples) {
            let states = &["starting", "up", "down", "removed"];
            out.state(&catalog::SERVER_STATE, &["main", "db-1"], states, "up");
            out.counter(&catalog::CHECKS, &["main", "db-1"], 12);
            out.gauge(&catalog::QUEUE_WAITING, &["main"], 3);
        }
    }
    let telemetry = Telemetry::new(2, |command| if command == 3 { "query" } else { "unknown" });
    telemetry.register(Arc::new(Servers));
    telemetry.control.config_reloaded(true);
    for worker in [telemetry.worker(0), telemetry.worker(1)] {
        worker.commands[3].add(10);
        worker.commands[200].inc();
        worker.commands[201].inc();
        worker.error_sent(1158, Fault::Server);
        worker.error_passed_on(1062);
        let listener = worker.listener("a \"quoted\\\nname\" é");
        listener.accepted.inc();
        listener.session_seconds.record(Duration::from_secs(3));
        worker.session_ended("a \"quoted\\\nname\" é", EndReason::ClientQuit);
        worker
            .server("main", "db-1")
            .latency
            .record(Duration::from_micros(300));
        worker
            .server("main", "db-1")
            .latency
            .record(Duration::from_secs(1000));
    }
    telemetry
}

#[test]
fn both_formats_keep_their_rules_and_workers_are_added_up() {
    let telemetry = busy();
    for format in [Format::Prometheus, Format::OpenMetrics] {
        let page = read(&telemetry.encode_as(format), format);
        let listener = ("listener", "a \"quoted\\\nname\" é");
        let server = [("cluster", "main"), ("server", "db-1")];
        assert_eq!(
            page.value("forebay_sessions_accepted_total", &[listener]),
            Some(2.0)
        );
        let quit = [listener, ("reason", "client_quit")];
        assert_eq!(page.value("forebay_sessions_ended_total", &quit), Some(2.0));
        assert_eq!(
            page.value("forebay_commands_total", &[("command", "query")]),
            Some(20.0)
        );
        assert_eq!(
            page.value("forebay_commands_total", &[("command", "unknown")]),
            Some(4.0)
        );
        assert_eq!(
            page.value("forebay_errors_total", &[("code", "1158"), ("fault", "server")]),
            Some(2.0)
        );
        assert_eq!(
            page.value("forebay_server_errors_total", &[("code", "1062")]),
            Some(2.0)
        );
        assert_eq!(
            page.value("forebay_command_duration_seconds_count", &server),
            Some(4.0)
        );
        assert_eq!(page.value("forebay_checks_total", &server), Some(12.0));
        assert_eq!(
            page.value("forebay_queue_waiting", &[("cluster", "main")]),
            Some(3.0)
        );
        for (state, value) in [("up", 1.0), ("down", 0.0), ("starting", 0.0), ("removed", 0.0)] {
            let labels = [server[0], server[1], ("state", state)];
            assert_eq!(
                page.value("forebay_server_state", &labels),
                Some(value),
                "{state}"
            );
        }
        assert_eq!(
            page.value("forebay_config_reloads_total", &[("result", "ok")]),
            Some(1.0)
        );
        assert_eq!(
            page.value("forebay_build_info", &[("version", env!("CARGO_PKG_VERSION"))]),
            Some(1.0)
        );
    }
}

#[test]
fn the_process_is_measured() {
    let page = read(&Telemetry::new(1, |_| "unknown").encode(), Format::Prometheus);
    let value = |name| page.value(name, &[]).unwrap_or_else(|| panic!("{name}"));
    assert!(value("process_resident_memory_bytes") > 1e5);
    assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
    assert!(value("process_open_fds") >= 3.0);
    assert!(value("process_max_fds") >= value("process_open_fds"));
    let now_s = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs_f64();
    let age_s = now_s - value("process_start_time_seconds");
    assert!((-2.0..3600.0).contains(&age_s), "started {age_s} s ago");
    assert!(value("process_cpu_seconds_total") < 3600.0);
}

#[test]
fn the_format_is_what_the_scraper_asks_for() {
    for (accept, format) in [
        ("", Format::Prometheus),
        ("*/*", Format::Prometheus),
        ("text/plain;version=0.0.4;q=0.5", Format::Prometheus),
        ("application/openmetrics-text; version=0.0.1", Format::Prometheus),
        (
            "application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.5,text/plain;version=0.0.4;q=0.4",
            Format::OpenMetrics,
        ),
        (
            "application/openmetrics-text; version=0.0.1,application/openmetrics-text; version=1.0.0",
            Format::OpenMetrics,
        ),
    ] {
        assert_eq!(Format::negotiate(accept), format, "{accept}");
    }
}

#[test]
fn values_are_read_while_workers_write() {
    let telemetry = Telemetry::new(2, |_| "unknown");
    std::thread::scope(|scope| {
        for index in 0..2 {
            let worker = telemetry.worker(index);
            scope.spawn(move || {
                for i in 0..20_000_u32 {
                    worker.commands[(i % 256) as usize].inc();
                    worker
                        .server("main", "db-1")
                        .latency
                        .record(Duration::from_micros(i.into()));
                    worker.error_sent((i % 300) as u16, Fault::Server);
                }
            });
        }
        for _ in 0..5 {
            read(&telemetry.encode(), Format::Prometheus);
        }
    });
    let page = read(&telemetry.encode(), Format::Prometheus);
    assert_eq!(
        page.value("forebay_commands_total", &[("command", "unknown")]),
        Some(40_000.0)
    );
    let server = [("cluster", "main"), ("server", "db-1")];
    assert_eq!(
        page.value("forebay_command_duration_seconds_count", &server),
        Some(40_000.0)
    );
}

/// The names are a contract with dashboards and alert rules: a change here is seen by operators.
#[test]
fn the_table_of_metrics() {
    let mut table = String::new();
    for metric in metrics() {
        let labels = metric.labels.join(",");
        table += &format!(
            "{:9} {}{{{labels}}} {}\n",
            metric.kind.label(),
            metric.name,
            metric.unit
        );
    }
    expect_test::expect_file!["metrics.txt"].assert_eq(&table);
}
