//! The text formats that scrapers read.
//!
//! Written here rather than by a library: both formats together are a page of code, and what would have to be
//! adapted (values summed over workers, buckets of our own) is most of what a library does.
//! Sources of fact: the Prometheus text format 0.0.4 and OpenMetrics 1.0.0.

use std::fmt::Write as _;

use crate::Snapshot;
use crate::metric::{Kind, MetricDoc, metrics};
use crate::samples::{Samples, Value};

/// A text format for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4; what every tool reads.
    Prometheus,
    /// OpenMetrics 1.0.0; what Prometheus asks for by preference.
    OpenMetrics,
}

impl Format {
    /// The better format of those an HTTP `Accept` header names. Weights are ignored: whoever names
    /// OpenMetrics 1 reads it.
    #[must_use]
    pub fn negotiate(accept: &str) -> Self {
        let accepted = accept.split(',').map(|range| range.split(';').map(str::trim));
        for mut range in accepted {
            let media_type = range.next().unwrap_or_default();
            let version = range.find_map(|parameter| parameter.strip_prefix("version="));
            if media_type.eq_ignore_ascii_case("application/openmetrics-text")
                && version.is_none_or(|version| version == "1.0.0")
            {
                return Format::OpenMetrics;
            }
        }
        Format::Prometheus
    }

    /// Value of the HTTP header `Content-Type`.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The samples as text, metrics in the order of their table.
pub(crate) fn write(samples: &Samples, format: Format) -> String {
    let mut out = String::with_capacity(64 * 1024);
    for metric in metrics() {
        let Some(family) = samples.family(metric.name) else {
            continue;
        };
        write_header(&mut out, metric, format);
        for (labels, value) in family {
            write_series(&mut out, metric, labels, value);
        }
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn write_header(out: &mut String, metric: &MetricDoc, format: Format) {
    // In OpenMetrics a counter's family is called as its series without `_total`, and units are declared.
    let family = match (format, metric.kind) {
        (Format::OpenMetrics, Kind::Counter) => metric.name.trim_end_matches("_total"),
        _ => metric.name,
    };
    push(out, format_args!("# HELP {family} "));
    escape(out, metric.help, format == Format::OpenMetrics);
    push(out, format_args!("\n# TYPE {family} {}\n", metric.kind.label()));
    if format == Format::OpenMetrics && matches!(metric.unit, "seconds" | "bytes") {
        push(out, format_args!("# UNIT {family} {}\n", metric.unit));
    }
}

fn write_series(out: &mut String, metric: &MetricDoc, labels: &[String], value: &Value) {
    match value {
        Value::Histogram(snapshot) => write_histogram(out, metric, labels, snapshot),
        Value::Unsigned(value) => write_name(out, metric, "", labels, None, format_args!("{value}")),
        Value::Signed(value) => write_name(out, metric, "", labels, None, format_args!("{value}")),
        Value::Float(value) => write_name(out, metric, "", labels, None, format_args!("{value:?}")),
    }
}

fn write_histogram(out: &mut String, metric: &MetricDoc, labels: &[String], snapshot: &Snapshot) {
    let mut write = |suffix, le: Option<&str>, value: std::fmt::Arguments<'_>| {
        write_name(out, metric, suffix, labels, le, value);
    };
    for (bound, count) in snapshot.cumulative() {
        write("_bucket", Some(&bound.to_string()), format_args!("{count}"));
    }
    let count = snapshot.count();
    write("_bucket", Some("+Inf"), format_args!("{count}"));
    write("_sum", None, format_args!("{:?}", snapshot.sum_seconds()));
    write("_count", None, format_args!("{count}"));
}

fn write_name(
    out: &mut String,
    metric: &MetricDoc,
    suffix: &str,
    labels: &[String],
    le: Option<&str>,
    value: std::fmt::Arguments<'_>,
) {
    out.push_str(metric.name);
    out.push_str(suffix);
    let names = metric.labels.iter().copied().chain(le.is_some().then_some("le"));
    let values = labels.iter().map(String::as_str).chain(le);
    let mut before = '{';
    for (name, value) in names.zip(values) {
        push(out, format_args!("{before}{name}=\""));
        escape(out, value, true);
        out.push('"');
        before = ',';
    }
    if before == ',' {
        out.push('}');
    }
    push(out, format_args!(" {value}\n"));
}

/// Backslashes and line ends are escaped everywhere, quotes in label values and, in OpenMetrics, in help
/// texts.
fn escape(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
}
