//! The files that name metrics, held against the table: a dashboard or an alert for a metric that does not exist shows
//! nothing and never fires.
#![allow(clippy::expect_used)] // helpers of tests

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use telemetry::{EndReason, Kind, metrics};

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

fn dashboard_expressions() -> Vec<String> {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("deploy/grafana/forebay.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    targets
        .map(|target| target["expr"].as_str().expect("an expression").to_owned())
        .collect()
}

#[test]
fn the_dashboard_shows_only_and_all_metrics_there_are() {
    let shown = named(&dashboard_expressions().join("\n"));
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
        ["forebay_probe", "forebay_explain"].contains(&word)
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
