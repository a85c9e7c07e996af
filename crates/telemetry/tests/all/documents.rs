//! The files that name metrics, held against the table: a dashboard or an alert for a metric that does not
//! exist shows nothing and never fires.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use telemetry::{EndReason, Kind, MetricDoc, metrics};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The series names of the table: a histogram has three.
fn series_names() -> BTreeSet<String> {
    let of = |suffixes: &'static [&'static str], name: &'static str| {
        suffixes.iter().map(move |s| format!("{name}{s}"))
    };
    metrics()
        .iter()
        .flat_map(|metric| match metric.kind {
            Kind::Histogram => of(&["_bucket", "_sum", "_count"], metric.name),
            Kind::Counter | Kind::Gauge => of(&[""], metric.name),
        })
        .collect()
}

/// The words of `text` that look like series.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let prefixed = words.filter(|word| {
        ["forebay_", "process_"]
            .iter()
            .any(|prefix| word.starts_with(prefix))
    });
    prefixed.map(str::to_owned).collect()
}

/// Each query of the dashboard with its legend.
fn dashboard_queries() -> Vec<String> {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("deploy/grafana/forebay.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    targets
        .map(|target| {
            let expression = target["expr"].as_str().expect("an expression");
            format!(
                "{expression} {}",
                target["legendFormat"].as_str().unwrap_or_default()
            )
        })
        .collect()
}

#[test]
fn the_dashboard_shows_only_and_all_metrics_there_are() {
    let shown = named(&dashboard_queries().join("\n"));
    let unknown: Vec<_> = shown.difference(&series_names()).cloned().collect();
    assert_eq!(unknown, Vec::<String>::new());

    // Not worth a panel: what is constant, or says the same as another.
    let left_out = [
        "forebay_build_info",
        "forebay_shutting_down",
        "forebay_series_overflow_total",
    ];
    let left_out = [&left_out[..], &["process_virtual_memory_bytes"]].concat();
    let missing = metrics().iter().map(|metric| metric.name).filter(|name| {
        !left_out.contains(name)
            && !shown
                .iter()
                .any(|shown| shown == name || shown.starts_with(&format!("{name}_")))
    });
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
}

/// What the scraper adds, and what buckets of a histogram have.
const ADDED_LABELS: [&str; 3] = ["job", "instance", "le"];

/// The labels that a series has; `None` for one that is not ours.
fn labels_of(series: &str) -> Option<BTreeSet<&str>> {
    let is_of = |metric: &MetricDoc| {
        let rest = series.strip_prefix(metric.name);
        rest.is_some_and(|rest| ["", "_bucket", "_sum", "_count"].contains(&rest))
    };
    let metric = metrics().iter().find(|metric| is_of(metric))?;
    Some(metric.labels.iter().copied().chain(ADDED_LABELS).collect())
}

/// Every `(series, label)` between braces, and every label that an expression groups or matches by or a
/// legend shows.
fn labels_named(text: &str) -> (Vec<(String, String)>, BTreeSet<String>) {
    // Values stand in quotes, and may hold whatever a label may not.
    let values = regex::Regex::new(r#"(=|=~|!=|!~)\s*"[^"]*""#).expect("a pattern");
    let text = values.replace_all(text, "$1");
    let selectors = regex::Regex::new(r"(\w+)\{([^{}]*)\}").expect("a pattern");
    let lists = regex::Regex::new(r"\b(?:by|without|on|ignoring|group_left|group_right) ?\(([^()]*)\)");
    let shown = regex::Regex::new(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}").expect("a pattern");
    let words = |list: &str| -> Vec<String> {
        let words = list
            .split(',')
            .map(|word| word.trim_end_matches(['=', '~', '!']).trim());
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let of_series = selectors.captures_iter(&text).flat_map(|found| {
        let series = found[1].to_owned();
        words(&found[2])
            .into_iter()
            .map(move |label| (series.clone(), label))
    });
    let lists = lists.expect("a pattern");
    let of_lists = lists.captures_iter(&text).flat_map(|found| words(&found[1]));
    let of_legends = shown.captures_iter(&text).map(|found| found[1].to_owned());
    (of_series.collect(), of_lists.chain(of_legends).collect())
}

/// What `text`, one rule or one query with its words, says of labels that its metrics do not have.
fn labels_nobody_has(text: &str) -> Vec<String> {
    let (of_series, others) = labels_named(text);
    let of_series = of_series
        .into_iter()
        .filter(|(series, label)| labels_of(series).is_some_and(|labels| !labels.contains(label.as_str())));
    let series = named(text);
    let mut known: BTreeSet<&str> = series
        .iter()
        .filter_map(|series| labels_of(series))
        .flatten()
        .collect();
    known.extend(ADDED_LABELS);
    let others = others.into_iter().filter(|label| !known.contains(label.as_str()));
    of_series
        .map(|(series, label)| format!("{series} has no {label}"))
        .chain(others.map(|label| format!("nothing has {label}")))
        .collect()
}

#[test]
fn alerts_and_panels_use_labels_there_are() {
    let rule = "sum by (listner) (rate(forebay_sessions_ended_total{job=\"a\",reson=~\"x{,}y\"}[5m])) \
                listener {{ $labels.listener }} {{ $labels.nobody }} {{ $value | humanize }}";
    assert_eq!(
        labels_nobody_has(rule),
        [
            "forebay_sessions_ended_total has no reson",
            "nothing has listner",
            "nothing has nobody"
        ]
    );
    let alerts = read("deploy/prometheus/alerts.yml");
    for rule in alerts.split("- alert: ").skip(1) {
        assert_eq!(labels_nobody_has(rule), Vec::<String>::new(), "{rule}");
    }
    for query in dashboard_queries() {
        assert_eq!(labels_nobody_has(&query), Vec::<String>::new(), "{query}");
    }
}

#[test]
fn panels_have_their_own_place() {
    let dashboard: serde_json::Value = serde_json::from_str(&read("deploy/grafana/forebay.json")).unwrap();
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        for x in place("x")..place("x") + place("w") {
            assert!(x < 24, "{}", panel["title"]);
            for y in place("y")..place("y") + place("h") {
                assert!(cells.insert((x, y)), "{} covers another panel", panel["title"]);
            }
        }
    }
}

#[test]
fn alerts_name_metrics_and_reasons_there_are_and_each_is_explained() {
    let alerts = read("deploy/prometheus/alerts.yml");
    let unknown: Vec<_> = named(&alerts).difference(&series_names()).cloned().collect();
    assert_eq!(unknown, Vec::<String>::new());

    let reasons = alerts
        .split("reason=~\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    for reason in reasons.flat_map(|list| list.split('|')) {
        assert!(
            EndReason::ALL.iter().any(|known| known.label() == reason),
            "{reason}"
        );
    }

    let guide = read("docs/guide/monitoring.md");
    let names: Vec<_> = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(names.len() > 10);
    for name in names {
        assert!(
            guide.lines().any(|line| line == format!("### {name}")),
            "{name} has a heading in the guide"
        );
    }
}

#[test]
fn the_guide_names_metrics_there_are() {
    let families: BTreeSet<String> = metrics()
        .iter()
        .map(|metric| metric.name.to_owned())
        .chain(series_names())
        .collect();
    // An account and a query attribute; and beginnings, as `grep` takes them.
    let is_known = |word: &str| {
        ["forebay_probe", "forebay_explain", "forebay_bench"].contains(&word)
            || word.ends_with('_') && families.iter().any(|family: &String| family.starts_with(word))
    };
    for entry in std::fs::read_dir(root().join("docs/guide")).unwrap() {
        let page = entry.unwrap().path();
        let text = std::fs::read_to_string(&page).unwrap();
        let unknown = named(&text)
            .into_iter()
            .filter(|word| !families.contains(word) && !is_known(word));
        assert_eq!(
            unknown.collect::<Vec<_>>(),
            Vec::<String>::new(),
            "{}",
            page.display()
        );
    }
}

#[test]
fn the_reference_page_is_the_table() {
    expect_test::expect_file![root().join("docs/guide/metrics.md")].assert_eq(&telemetry::docs::text());
}

#[test]
fn the_configurations_shipped_are_valid() {
    let parse =
        |text: &str, file| config::Config::parse(text, file).unwrap_or_else(|errors| panic!("{errors}"));
    parse(&read("deploy/debian/forebay.toml"), "deploy/debian/forebay.toml");

    let manifest = read("deploy/kubernetes/forebay.yaml");
    let (_, block) = manifest.split_once("forebay.toml: |\n").unwrap();
    let lines = block
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with("    "));
    let text: String = lines.map(|line| line.trim_start().to_owned() + "\n").collect();
    let config = parse(&text, "deploy/kubernetes/forebay.yaml");
    assert_eq!(config.clusters["main"].servers.len(), 3);
    assert!(manifest.contains(&format!("containerPort: {}", config.admin.unwrap().bind.port())));
}
