//! A comparison for people: a table for the terminal, and a page that stands alone.

use std::fmt::Write as _;

use crate::compare::{Comparison, Difference, LatenessOf, Side, Statement};

/// Statements in the terminal.
const SHOWN: usize = 20;
/// Lines of a result in the terminal.
const LINES: usize = 3;
/// Statements on the page.
const ON_PAGE: usize = 500;
/// Hashes of results do not say which rows are equal by their order.
const TIES: &str =
    "Ties may explain it: rows that are equal by its ORDER BY come in any order, LIMIT takes any of them.";
/// Parts of a timeline; a replay writes no more.
const PARTS: usize = 200;

/// The table for the terminal.
#[must_use]
pub fn text(comparison: &Comparison) -> String {
    let mut out = String::new();
    let total = &comparison.total;
    // Writing to a String cannot fail, here and below.
    for (name, side) in [("a", &comparison.a), ("b", &comparison.b)] {
        let versions = side.versions.join(", ");
        let _ = writeln!(out, "{name}: {} ({}; {versions})", side.folder, side.kind);
        for stop in &side.stops {
            let _ = writeln!(out, "   {stop}");
        }
        if let Some(thinned) = thinned(side) {
            let _ = writeln!(out, "   {thinned}");
        }
        for worthless in side.worthless_times() {
            let _ = writeln!(out, "   {worthless}");
        }
    }
    let _ = writeln!(
        out,
        "\n{} commands compared, {} left out, {} only in a, {} only in b; the values of {} results not compared",
        total.commands, comparison.left_out, comparison.missing, comparison.added, total.unchecked
    );
    if let Some(no_room) = no_room(comparison) {
        let _ = writeln!(out, "{no_room}");
    }
    let _ = writeln!(
        out,
        "errors: {} new, {} gone, {} other   results: {} rows, {} affected, {} values   warnings: {}",
        total.new_errors,
        total.gone_errors,
        total.other_errors,
        total.rows,
        total.affected_rows,
        total.values,
        total.warnings
    );
    if total.not_known > 0 {
        let _ = writeln!(
            out,
            "of {} commands one of the two does not know whether they have failed",
            total.not_known
        );
    }
    let _ = writeln!(
        out,
        "ms     p50 {} → {}   p95 {} → {}   p99 {} → {}",
        time(total, total.a.p50),
        time(total, total.b.p50),
        time(total, total.a.p95),
        time(total, total.b.p95),
        time(total, total.a.p99),
        time(total, total.b.p99)
    );
    if !comparison.masked.is_empty() {
        let masked: Vec<_> = comparison
            .masked
            .iter()
            .map(|(name, count)| format!("{name} ({count})"))
            .collect();
        let _ = writeln!(out, "masked, since they differ each time: {}", masked.join(", "));
    }
    let _ = writeln!(
        out,
        "\n{:>9} {:>7} {:>7} {:>7} {:>9} {:>9}  STATEMENT",
        "COMMANDS", "ERRORS", "RESULTS", "WARN", "P99 A", "P99 B"
    );
    for statement in comparison.statements.iter().take(SHOWN) {
        let difference = &statement.difference;
        let _ = writeln!(
            out,
            "{:>9} {:>7} {:>7} {:>7} {:>9} {:>9}  {}",
            difference.commands,
            difference.errors(),
            difference.results(),
            difference.warnings,
            time(difference, difference.a.p99),
            time(difference, difference.b.p99),
            name(statement, 80),
        );
        for (index, example) in statement.examples.iter().enumerate() {
            let short: String = example.chars().take(160).collect();
            let _ = writeln!(out, "          {short}");
            for (name, result) in results(statement, index) {
                for line in result.lines().take(LINES) {
                    let short: String = line.chars().take(150).collect();
                    let _ = writeln!(out, "            {name}: {short}");
                }
            }
        }
        if may_be_ties(statement) {
            let _ = writeln!(out, "          {TIES}");
        }
        out += &plans_as_text(statement);
    }
    if comparison.statements.len() > SHOWN {
        let _ = writeln!(out, "… and {} more", comparison.statements.len() - SHOWN);
    }
    crate::record::harmless(&out)
}

fn thinned(side: &Side) -> Option<String> {
    let words = || {
        format!(
            "{} sessions only in part: the buffer was full",
            side.thinned_sessions
        )
    };
    (side.thinned_sessions > 0).then(words)
}

fn no_room(comparison: &Comparison) -> Option<String> {
    let words = || {
        format!(
            "{} commands found no room in which to wait for their counterpart, and were not compared: both \
             folders have them in very different order; counterparts may count as being in one of them alone",
            comparison.no_room
        )
    };
    (comparison.no_room > 0).then(words)
}

/// Whether values differ for which there may be a good reason.
fn may_be_ties(statement: &Statement) -> bool {
    statement.may_tie && statement.difference.values > 0
}

/// Both results of an example; nothing where they were not kept.
fn results(statement: &Statement, example: usize) -> impl Iterator<Item = (&'static str, &str)> {
    let of = statement
        .results
        .iter()
        .filter(move |both| both.example == example);
    of.flat_map(|both| [("a", shown(&both.a)), ("b", shown(&both.b))])
}

fn shown(result: &str) -> &str {
    match result.is_empty() {
        true => "(no rows)",
        false => result,
    }
}

/// Milliseconds, where both folders know times.
fn time(difference: &Difference, ms: f64) -> String {
    match difference.timed {
        0 => "?".to_owned(),
        _ => format!("{ms:.3}"),
    }
}

fn name(statement: &Statement, letters: usize) -> String {
    match statement.text.is_empty() {
        true => statement.command.clone(),
        false => crate::record::plain(statement.text.as_bytes(), letters),
    }
}

/// A page that needs nothing but itself.
#[must_use]
pub fn html(comparison: &Comparison, failures: &[String]) -> String {
    let mut out = String::from(HEAD);
    let verdict = match failures.is_empty() {
        true => "<p class=good>No difference that was to fail the comparison.</p>".to_owned(),
        false => format!("<p class=bad>{}</p>", escaped(&failures.join("; "))),
    };
    out += &verdict;
    out += "<table><tr><th></th><th>folder</th><th>what</th><th>servers</th><th>ended</th></tr>";
    for (name, side) in [("a", &comparison.a), ("b", &comparison.b)] {
        let _ = write!(
            out,
            "<tr><td>{name}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&side.folder),
            escaped(&side.kind),
            escaped(&side.versions.join(", ")),
            escaped(&side.end)
        );
    }
    out += "</table>";
    for side in [&comparison.a, &comparison.b] {
        for stop in &side.stops {
            let _ = write!(out, "<p class=bad>{}</p>", escaped(stop));
        }
        if let Some(thinned) = thinned(side) {
            let _ = write!(out, "<p>{}: {thinned}</p>", escaped(&side.folder));
        }
        for worthless in side.worthless_times() {
            let _ = write!(out, "<p class=bad>{}</p>", escaped(&worthless));
        }
        for one in &side.lateness {
            timeline(&mut out, one);
        }
    }
    let total = &comparison.total;
    let _ = write!(
        out,
        "<p>{} commands compared, {} left out, {} only in a, {} only in b; the values of {} results not \
         compared.</p>",
        total.commands, comparison.left_out, comparison.missing, comparison.added, total.unchecked
    );
    if let Some(no_room) = no_room(comparison) {
        let _ = write!(out, "<p class=bad>{no_room}</p>");
    }
    if total.not_known > 0 {
        let _ = write!(
            out,
            "<p>Of {} commands one of the two does not know whether they have failed.</p>",
            total.not_known
        );
    }
    if !comparison.masked.is_empty() {
        out += "<p>Masked, since they differ each time:";
        for (name, count) in &comparison.masked {
            let _ = write!(out, " <code>{}</code> ({count})", escaped(name));
        }
        out += "</p>";
    }
    out += "<table><tr><th>commands<th>new errors<th>gone<th>other<th>rows<th>affected<th>values<th>warnings<th>p50 \
            a<th>p50 b<th>p95 a<th>p95 b<th>p99 a<th>p99 b<th>statement</tr>";
    row(&mut out, total, "all");
    for statement in comparison.statements.iter().take(ON_PAGE) {
        let mut text = escaped(&name(statement, 1000));
        if let Some(masked) = &statement.masked {
            let _ = write!(text, " <i>masked: {}</i>", escaped(masked));
        }
        if may_be_ties(statement) {
            let _ = write!(text, " <i>{TIES}</i>");
        }
        if !statement.examples.is_empty() {
            text += "<details><summary>examples</summary><ul>";
            for (index, example) in statement.examples.iter().enumerate() {
                let _ = write!(text, "<li>{}", escaped(example));
                for (name, result) in results(statement, index) {
                    let _ = write!(text, "<br>{name}:<pre>{}</pre>", escaped(result));
                }
                text += "</li>";
            }
            text += "</ul></details>";
        }
        text += &plans_on_page(statement);
        row(&mut out, &statement.difference, &text);
    }
    out += "</table></body></html>\n";
    out
}

/// Draws how late a replay was in each part of its run.
fn timeline(out: &mut String, of: &LatenessOf) {
    // Where the line is: from left to right, from top to bottom.
    const X: [f64; 2] = [80.0, 720.0];
    const Y: [f64; 2] = [20.0, 140.0];
    let parts = &of.lateness.timeline[..of.lateness.timeline.len().min(PARTS)];
    let (Some(greatest), part_us) = (parts.iter().max(), of.lateness.part_us as f64) else {
        return;
    };
    let ([left, right], [top, bottom]) = (X, Y);
    let wide = (right - left) / parts.len() as f64;
    let high = (bottom - top) / (*greatest).max(1) as f64;
    let _ = write!(
        out,
        "<h2>How late {} was</h2><svg width=760 height=180 viewBox=\"0 0 760 180\"><path fill=none stroke=#888 \
         d=\"M{left} {top}V{bottom}H{right}\"/><polyline fill=none stroke=#06c points=\"",
        escaped(&of.folder)
    );
    for (index, late_us) in parts.iter().enumerate() {
        let (x, y) = (
            left + (index as f64 + 0.5) * wide,
            bottom - *late_us as f64 * high,
        );
        let _ = write!(out, "{x:.1},{y:.1} ");
    }
    let _ = write!(
        out,
        "\"/><g font-size=12><text x=4 y={top}>{:.3} ms</text><text x=4 y={bottom}>0 ms</text>\
         <text x={left} y=160>0 s</text><text x={right} y=160 text-anchor=end>{:.1} s</text></g></svg>",
        *greatest as f64 / 1e3,
        parts.len() as f64 * part_us / 1e6
    );
}

fn row(out: &mut String, difference: &Difference, statement: &str) {
    out.push_str("<tr>");
    for (count, is_bad) in [
        (difference.commands, false),
        (difference.new_errors, true),
        (difference.gone_errors, true),
        (difference.other_errors, true),
        (difference.rows, true),
        (difference.affected_rows, true),
        (difference.values, true),
        (difference.warnings, true),
    ] {
        let class = if is_bad && count > 0 { " class=bad" } else { "" };
        let _ = write!(out, "<td{class}>{count}</td>");
    }
    for (a, b) in [
        (difference.a.p50, difference.b.p50),
        (difference.a.p95, difference.b.p95),
        (difference.a.p99, difference.b.p99),
    ] {
        let class = if b > a * 1.5 { " class=slow" } else { "" };
        let (a, b) = (time(difference, a), time(difference, b));
        let _ = write!(out, "<td>{a}</td><td{class}>{b}</td>");
    }
    let _ = write!(out, "<td class=text>{statement}</td></tr>");
}

fn plans_as_text(statement: &Statement) -> String {
    let Some(plans) = &statement.plans else {
        return String::new();
    };
    let of = |name: &str, plan: &str| {
        let lines: String = plan
            .lines()
            .map(|line| format!("              {line}\n"))
            .collect();
        format!("            plan of {name}:\n{lines}")
    };
    let text = crate::record::plain(plans.text.as_bytes(), 160);
    format!(
        "          EXPLAIN {text}\n{}{}",
        of("a", &plans.a),
        of("b", &plans.b)
    )
}

fn plans_on_page(statement: &Statement) -> String {
    let Some(plans) = &statement.plans else {
        return String::new();
    };
    format!(
        "<details><summary>plans</summary>EXPLAIN {}<br>a<pre>{}</pre>b<pre>{}</pre></details>",
        escaped(&plans.text),
        escaped(&plans.a),
        escaped(&plans.b)
    )
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            letter => out.push(letter),
        }
    }
    out
}

const HEAD: &str = "<!DOCTYPE html>
<html lang=en><head><meta charset=utf-8><title>Forebay: traffic compared</title><style>
body { font: 14px sans-serif; margin: 2em; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { border: 1px solid #ccc; padding: 0.2em 0.5em; text-align: right; vertical-align: top; }
td.text { text-align: left; font-family: monospace; max-width: 60em; overflow-wrap: anywhere; }
.bad { background: #fdd; } .slow { background: #ffd; } .good { background: #dfd; }
p.bad, p.good { padding: 0.5em; }
pre { margin: 0.2em 0; max-width: 60em; overflow-x: auto; }
</style></head><body><h1>Traffic compared</h1>
<p>This page has statements with their values: treat it as personal data. Times are milliseconds.</p>
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::BothResults;
    use crate::record::Lateness;

    #[test]
    fn a_terminal_obeys_nothing_of_a_folder() {
        let comparison = Comparison {
            b: Side {
                versions: vec!["9.7\x1b[2J".to_owned()],
                ..Side::default()
            },
            ..Comparison::default()
        };
        let text = text(&comparison);
        assert!(
            text.contains("9.7 [2J") && text.contains('\n') && !text.contains('\x1b'),
            "{text}"
        );
    }

    #[test]
    fn a_page_shows_texts_and_obeys_none() {
        let comparison = Comparison {
            statements: vec![Statement {
                text: "SELECT '<script>alert(1)</script>'".to_owned(),
                examples: vec!["<b>".to_owned()],
                ..Statement::default()
            }],
            ..Comparison::default()
        };
        let page = html(&comparison, &["<x>".to_owned()]);
        assert!(
            !page.contains("<script") && !page.contains("<b>") && !page.contains("<x>"),
            "{page}"
        );
        assert!(page.contains("&lt;script&gt;"));
        assert!(
            !page.contains("src=") && !page.contains("href="),
            "it needs nothing else"
        );
    }

    #[test]
    fn both_results_stand_with_their_example() {
        let both = BothResults {
            example: 1,
            a: "<i>\t1\n2\n3\n4\n".to_owned(),
            b: String::new(),
        };
        let comparison = Comparison {
            statements: vec![Statement {
                examples: vec!["first".to_owned(), "second".to_owned()],
                results: vec![both],
                ..Statement::default()
            }],
            ..Comparison::default()
        };
        let said = text(&comparison);
        let at = |part: &str| said.find(part).unwrap_or_else(|| panic!("{part} in {said}"));
        assert!(at("second") < at("a: <i> 1") && at("first") < at("second"));
        assert!(said.contains("a: 3") && !said.contains("a: 4") && said.contains("b: (no rows)"));
        let page = html(&comparison, &[]);
        assert!(
            page.contains("<li>first</li><li>second<br>a:<pre>&lt;i&gt;\t1\n2\n3\n4\n</pre>"),
            "{page}"
        );
        assert!(page.contains("b:<pre>(no rows)</pre></li>"), "{page}");
    }

    #[test]
    fn a_page_draws_how_late_each_folder_was() {
        let of = |timeline| LatenessOf {
            folder: "<monday>".to_owned(),
            lateness: Lateness {
                part_us: 200_000,
                timeline,
                ..Lateness::default()
            },
        };
        let page = |timeline| {
            let comparison = Comparison {
                b: Side {
                    lateness: vec![of(timeline)],
                    ..Side::default()
                },
                ..Comparison::default()
            };
            html(&comparison, &[])
        };
        let drawn = page(vec![0, 1_500, 3_000, 0]);
        let points = "points=\"160.0,140.0 320.0,80.0 480.0,20.0 640.0,140.0 \"";
        assert!(drawn.contains(points), "{drawn}");
        assert!(drawn.contains("3.000 ms") && drawn.contains("0.8 s"), "{drawn}");
        assert!(drawn.contains("&lt;monday&gt;") && !drawn.contains("<monday>"));
        assert!(!drawn.contains("src=") && !drawn.contains("href=") && !drawn.contains("<script"));
        assert!(!page(Vec::new()).contains("<svg"), "there is nothing to draw");
        assert!(page(vec![0]).contains("400.0,140.0"), "never late");
    }
}
