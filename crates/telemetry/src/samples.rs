//! The values of one scrape, collected by metric and labels.

use std::collections::BTreeMap;

use crate::metric::{Kind, MetricDoc};
use crate::{Histogram, Snapshot};

/// Whoever owns values that are worth a metric and wants them read at scrape time.
///
/// `collect` runs on the thread that answers the scrape. It must not block: read atomics, take a lock only if
/// no one holds it for long, and never do I/O.
pub trait Source: Send + Sync {
    /// Adds the values as they are now.
    fn collect(&self, out: &mut Samples);
}

/// The values of one scrape. Values given twice for the same metric and labels are added up, so that every
/// worker adds its own, and no series can appear twice.
#[derive(Debug, Default)]
pub struct Samples {
    families: BTreeMap<&'static str, BTreeMap<Vec<String>, Value>>,
}

#[derive(Debug)]
pub(crate) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Histogram(Box<Snapshot>),
}

impl Samples {
    /// Adds a counter's value. `labels` are the values of the metric's labels, in the order of its
    /// declaration.
    pub fn counter(&mut self, metric: &'static MetricDoc, labels: &[&str], value: u64) {
        debug_assert_eq!(metric.kind, Kind::Counter, "{}", metric.name);
        self.add(metric, labels, Value::Unsigned(value));
    }

    /// Adds a gauge's value; one that is larger than the largest signed number is shown as that.
    pub fn gauge(&mut self, metric: &'static MetricDoc, labels: &[&str], value: impl TryInto<i64>) {
        debug_assert_eq!(metric.kind, Kind::Gauge, "{}", metric.name);
        self.add(
            metric,
            labels,
            Value::Signed(value.try_into().unwrap_or(i64::MAX)),
        );
    }

    /// Adds the value of a counter or gauge that is not a whole number, such as seconds.
    pub fn float(&mut self, metric: &'static MetricDoc, labels: &[&str], value: f64) {
        debug_assert_ne!(metric.kind, Kind::Histogram, "{}", metric.name);
        self.add(metric, labels, Value::Float(value));
    }

    /// Adds what a histogram has counted.
    pub fn histogram(&mut self, metric: &'static MetricDoc, labels: &[&str], histogram: &Histogram) {
        debug_assert_eq!(metric.kind, Kind::Histogram, "{}", metric.name);
        self.add(metric, labels, Value::Histogram(Box::new(histogram.snapshot())));
    }

    /// Adds one gauge per possible state: 1 for `current`, 0 for the others. The state is the metric's last
    /// label.
    pub fn state(&mut self, metric: &'static MetricDoc, labels: &[&str], states: &[&str], current: &str) {
        debug_assert!(
            states.contains(&current),
            "{}: {current} is none of {states:?}",
            metric.name
        );
        for state in states {
            self.gauge(metric, &[labels, &[*state]].concat(), *state == current);
        }
    }

    pub(crate) fn family(&self, name: &str) -> Option<&BTreeMap<Vec<String>, Value>> {
        self.families.get(name)
    }

    fn add(&mut self, metric: &'static MetricDoc, labels: &[&str], value: Value) {
        debug_assert_eq!(
            metric.labels.len(),
            labels.len(),
            "{} takes {:?}",
            metric.name,
            metric.labels
        );
        let family = self.families.entry(metric.name).or_default();
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        match family.get_mut(&labels) {
            Some(present) => present.merge(value),
            None => {
                family.insert(labels, value);
            }
        }
    }
}

impl Value {
    fn merge(&mut self, other: Value) {
        match (self, other) {
            (Value::Unsigned(mine), Value::Unsigned(theirs)) => *mine = mine.wrapping_add(theirs),
            (Value::Signed(mine), Value::Signed(theirs)) => *mine = mine.wrapping_add(theirs),
            (Value::Float(mine), Value::Float(theirs)) => *mine += theirs,
            (Value::Histogram(mine), Value::Histogram(theirs)) => mine.merge(&theirs),
            (mine, theirs) => debug_assert!(false, "values of two kinds: {mine:?}, {theirs:?}"),
        }
    }
}
