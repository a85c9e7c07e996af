//! Reads metrics in Prometheus' text format.

/// The sum over the series of this metric that have these labels, each written as `name="value"`.
pub fn sum(text: &str, name: &str, labels: &[&str]) -> f64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let matches = rest.starts_with([' ', '{']) && labels.iter().all(|label| rest.contains(label));
        matches
            .then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())
            .flatten()
    };
    text.lines().filter_map(value).sum()
}
