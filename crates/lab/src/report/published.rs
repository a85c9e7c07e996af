//! What the reports have published, as ratios formed inside one report: nothing else of theirs may stand
//! beside figures of another machine.

use serde::Serialize;

const RATIOS: &str = include_str!("ratios.csv");
/// Columns of the file.
const COLUMNS: usize = 6;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Published {
    #[serde(skip)]
    pub(super) scenario: &'static str,
    /// Of which run of the table.
    pub parameter: &'static str,
    pub system: &'static str,
    /// By whose it is divided.
    pub reference: &'static str,
    /// `qps`, `min_qps`, or `cpu`, which is for a query.
    pub metric: &'static str,
    /// The quotient.
    pub ratio: f64,
}

/// All of them, in the order of the file.
pub(super) fn all() -> Vec<Published> {
    rows().filter_map(read).collect()
}

/// Lines of the file without its comment and its head.
fn rows() -> impl Iterator<Item = &'static str> {
    let lines = RATIOS.lines().filter(|line| !line.starts_with('#'));
    lines.skip(1)
}

fn read(row: &'static str) -> Option<Published> {
    let columns: Vec<&str> = row.split(',').collect();
    let [scenario, parameter, system, reference, metric, ratio]: [&str; COLUMNS] = columns.try_into().ok()?;
    Some(Published {
        scenario,
        parameter,
        system,
        reference,
        metric,
        ratio: ratio.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_file_is_understood() {
        assert!(rows().count() > 40);
        for row in rows() {
            let published = read(row).unwrap_or_else(|| panic!("{row}"));
            assert!(published.ratio > 0.0, "{row}");
        }
        assert_eq!(all().len(), rows().count());
    }
}
