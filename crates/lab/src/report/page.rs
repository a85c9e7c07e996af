//! The page: one file that needs nothing but itself.

use std::fmt::{self, Write as _};

use super::{
    chart,
    results::{Figure, Ratio, Results, Section},
    text::{distinct, escaped, number, written},
};

/// Of these figures there are charts.
const CHARTS: [&str; 7] = [
    "qps",
    "cpu",
    "min_qps",
    "session",
    "cpu of a connection",
    "queries a CPU second",
    "tpmC",
];

/// How to read them.
const RATIOS: &str = "A ratio stands with the band in which the median of another run on this machine is to be expected, in nine \
    of ten. Where the band is wider than 30 % of the median nothing was measured, and nothing is concluded.";

/// What a report has found, for people.
pub(super) fn page(results: &Results) -> String {
    written(|out| {
        begin(out, &results.title)?;
        write_head(out, results)?;
        end(out, &results.sections)
    })
}

fn begin(out: &mut String, title: &str) -> fmt::Result {
    let title = escaped(title);
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width, \
         initial-scale=1\"><title>{title}</title>\n<style>\n{}</style></head><body>\n<h1>{title}</h1>\n",
        include_str!("page.css")
    )
}

fn end(out: &mut String, sections: &[Section]) -> fmt::Result {
    for section in sections {
        write_section(out, section)?;
    }
    out.write_str("</body></html>\n")
}

/// What another bench has found, for people.
pub(super) fn of_bench(results: &Results) -> String {
    written(|out| {
        begin(out, &results.title)?;
        writeln!(out, "<p>{RATIOS}</p>")?;
        write_busy(out, results)?;
        write_run(out, results)?;
        write_links(out, &results.sections)?;
        end(out, &results.sections)
    })
}

/// Two runs side by side, for people.
pub(super) fn comparison(runs: [&Results; 2], words: &[String], sections: &[Section]) -> String {
    written(|out| {
        begin(out, "Two runs compared")?;
        for words in words {
            writeln!(out, "<p>{}</p>", escaped(words))?;
        }
        for (name, run) in ["A", "B"].iter().zip(runs) {
            writeln!(out, "<h2>{name}: {}</h2>", escaped(&run.title))?;
            write_run(out, run)?;
        }
        write_links(out, sections)?;
        end(out, sections)
    })
}

fn write_head(out: &mut String, results: &Results) -> fmt::Result {
    out.push_str("<p>");
    match &results.left_out[..] {
        [] => out.push_str("Every table of the report has its place here: "),
        left_out => write!(
            out,
            "These are the tables of the report that were asked for; {} were not. Each has its place: ",
            escaped(&left_out.join(", "))
        )?,
    }
    out.push_str(
        "with what was measured on this machine, or with the reason why it was not. \
         Contenders took turns round by round, and ratios are formed within a round. Beside them stand only ratios that the report \
         forms of its own figures: figures of different machines do not compare.</p>\n",
    );
    writeln!(out, "<p>{RATIOS}</p>")?;
    write_busy(out, results)?;
    if !results.is_done {
        out.push_str(
            "<p class=busy>This run was broken off, or is still under way: tables are missing.</p>\n",
        );
    }
    write_run(out, results)?;
    write_links(out, &results.sections)
}

fn write_busy(out: &mut String, results: &Results) -> fmt::Result {
    let machine = &results.machine;
    if machine.is_busy() {
        writeln!(
            out,
            "<p class=busy>The machine was busy with something else when this began (load average {}): take the figures for an \
             impression.</p>",
            machine.load_average
        )?;
    }
    Ok(())
}

/// When, where and by what it was made.
fn write_run(out: &mut String, results: &Results) -> fmt::Result {
    let machine = &results.machine;
    let memory = machine.memory as f64 / f64::from(1 << 30);
    let options = match &results.options[..] {
        [] => "none".to_owned(),
        options => escaped(&options.join("; ")),
    };
    writeln!(
        out,
        "<dl><dt>date</dt><dd>{}</dd><dt>machine</dt><dd>{}, {} cores, {memory:.0} GiB, {}; load average before {}</dd>\
         <dt>programs</dt><dd>{}</dd><dt>options</dt><dd>{options}</dd></dl>",
        escaped(&results.date),
        escaped(&machine.cpu),
        machine.cpus,
        escaped(&machine.kernel),
        machine.load_average,
        escaped(&results.programs.join("; ")),
    )
}

fn write_links(out: &mut String, sections: &[Section]) -> fmt::Result {
    out.push_str("<nav>");
    for section in sections {
        let is_bad = section.failed.is_some() || !section.broken.is_empty();
        let class = match (section.is_here, is_bad) {
            (false, _) => " class=not",
            (true, true) => " class=bad",
            (true, false) => "",
        };
        let (number, title) = (escaped(&section.number), escaped(&section.title));
        write!(out, "<a{class} href=\"#{number}\">{number} {title}</a>")?;
    }
    out.push_str("</nav>\n");
    Ok(())
}

fn write_section(out: &mut String, section: &Section) -> fmt::Result {
    let number = escaped(&section.number);
    write!(
        out,
        "<section id=\"{number}\"><h2><span>{number}</span>{}</h2>\n<p class=soft><small>{}, {}</small></p>\n",
        escaped(&section.title),
        escaped(&section.report),
        escaped(&section.name),
    )?;
    if !section.is_here {
        writeln!(out, "<p class=why>Not run here. {}</p>", escaped(&section.text))?;
        write_ratios(out, section)?;
        out.push_str("</section>\n");
        return Ok(());
    }
    writeln!(out, "<p>{}</p>", escaped(&section.text))?;
    if let Some(failed) = &section.failed {
        writeln!(
            out,
            "<p class=failed>This table did not come to its end: {}</p>",
            escaped(failed)
        )?;
    }
    for broken in &section.broken {
        writeln!(
            out,
            "<p class=failed>A promise was not kept: {}</p>",
            escaped(broken)
        )?;
    }
    write_ratios(out, section)?;
    write_findings(out, section)?;
    for metric in CHARTS {
        let figures: Vec<&Figure> = section
            .figures
            .iter()
            .filter(|figure| figure.metric == metric)
            .collect();
        if let Some(first) = figures.first() {
            write!(
                out,
                "<h3>{}, {}</h3>\n{}",
                escaped(&in_words(metric)),
                escaped(unit(&first.unit)),
                chart::bars(section, &figures)
            )?;
        }
    }
    write_notes(out, section)?;
    write_figures(out, section)?;
    out.push_str("</section>\n");
    Ok(())
}

/// Ours beside theirs: a chart for each metric, and a table.
fn write_ratios(out: &mut String, section: &Section) -> fmt::Result {
    if section.ratios.is_empty() && section.published.is_empty() {
        return Ok(());
    }
    let metrics = distinct(section.ratios.iter().map(|ratio| ratio.metric.as_str()));
    for metric in metrics {
        let to = match chart::common(section, metric) {
            Some(to) => format!("ratio to {}", escaped(to)),
            None => "ratios".to_owned(),
        };
        write!(
            out,
            "<h3>{}, {to}</h3>\n{}",
            escaped(&in_words(metric)),
            chart::ratios(section, metric)
        )?;
    }
    let ours = distinct(
        section
            .ratios
            .iter()
            .map(|ratio| (ratio.of.as_str(), ratio.to.as_str())),
    );
    let theirs = distinct(section.published.iter().map(|row| (row.system, row.reference)));
    let own = section
        .ratios
        .iter()
        .map(|ratio| (ratio.parameter.as_str(), ratio.metric.as_str()));
    let rows = distinct(own.chain(section.published.iter().map(|row| (row.parameter, row.metric))));
    out.push_str("<div class=wide><table><tr><th></th><th class=text></th>");
    for (of, to) in &ours {
        write!(out, "<th>{}<br>÷ {}</th>", escaped(of), escaped(to))?;
    }
    for (of, to) in &theirs {
        write!(
            out,
            "<th class=theirs>published<br>{} ÷ {}</th>",
            escaped(of),
            escaped(to)
        )?;
    }
    out.push_str("</tr>\n");
    for (parameter, metric) in rows {
        write!(
            out,
            "<tr><td>{}</td><td class=text>{}</td>",
            escaped(&section.runs(&[parameter])),
            escaped(&in_words(metric))
        )?;
        for (of, to) in &ours {
            let found = section.ratios.iter().find(|ratio| {
                (ratio.parameter.as_str(), ratio.metric.as_str()) == (parameter, metric)
                    && (ratio.of.as_str(), ratio.to.as_str()) == (*of, *to)
            });
            write_ratio(out, found)?;
        }
        for (of, to) in &theirs {
            let found = section.published.iter().find(|row| {
                (row.parameter, row.metric, row.system, row.reference) == (parameter, metric, *of, *to)
            });
            let ratio = found.map_or(String::new(), |row| row.ratio.to_string());
            write!(out, "<td class=theirs>{ratio}</td>")?;
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
    Ok(())
}

fn write_ratio(out: &mut String, ratio: Option<&Ratio>) -> fmt::Result {
    let Some(ratio) = ratio else {
        return out.write_str("<td></td>");
    };
    let median = ratio.spread.median;
    match ratio.band {
        Some((low, high)) if ratio.is_measured => {
            write!(out, "<td>{median:.3}<small>{low:.2} to {high:.2}</small></td>")
        }
        Some((low, high)) => {
            write!(
                out,
                "<td class=open>not measured<small>{low:.2} to {high:.2}</small></td>"
            )
        }
        None => write!(out, "<td class=open>{median:.3}<small>one round</small></td>"),
    }
}

fn write_findings(out: &mut String, section: &Section) -> fmt::Result {
    out.push_str("<h3>What may be concluded</h3>\n<ul>");
    for finding in findings(section) {
        write!(out, "<li>{}</li>", escaped(&finding))?;
    }
    out.push_str("</ul>\n");
    Ok(())
}

/// What the bands tell, and what they do not.
pub(super) fn findings(section: &Section) -> Vec<String> {
    let all = section.ratios.iter();
    let mut findings = Vec::new();
    for (of, to, metric) in distinct(all.clone().map(|ratio| (&ratio.of, &ratio.to, &ratio.metric))) {
        let ratios = all
            .clone()
            .filter(|ratio| (&ratio.of, &ratio.to, &ratio.metric) == (of, to, metric));
        let mut groups = [const { Vec::new() }; 4];
        for ratio in ratios {
            let at = match ratio.band {
                Some((low, _)) if ratio.is_measured && low > 1.0 => 1,
                Some((_, high)) if ratio.is_measured && high < 1.0 => 0,
                Some(_) if ratio.is_measured => 2,
                _ => 3,
            };
            groups[at].push(&ratio.parameter[..]);
        }
        let words = ["less at", "more at", "no difference shown at", "not measured at"];
        let parts = words.iter().zip(&groups).filter(|(_, group)| !group.is_empty());
        let parts: Vec<String> = parts
            .map(|(words, group)| format!("{words} {}", section.runs(group)))
            .collect();
        findings.push(format!(
            "{}, {of} beside {to}: {}.",
            in_words(metric),
            parts.join("; ")
        ));
    }
    findings.push(section.conclusion.clone());
    findings
}

fn write_notes(out: &mut String, section: &Section) -> fmt::Result {
    if section.notes.is_empty() {
        return Ok(());
    }
    out.push_str("<ul class=soft>");
    for note in &section.notes {
        write!(out, "<li><small>{}</small></li>", escaped(note))?;
    }
    out.push_str("</ul>\n");
    Ok(())
}

fn write_figures(out: &mut String, section: &Section) -> fmt::Result {
    if section.figures.is_empty() {
        return Ok(());
    }
    // Where there is nothing else to see they are not hidden.
    let open = if section.ratios.is_empty() { " open" } else { "" };
    write!(
        out,
        "<details{open}><summary>All figures: median, lowest and highest round</summary>\n<div class=wide><table><tr><th></th>\
         <th class=text></th><th class=text></th><th>median</th><th>lowest</th><th>highest</th><th>rounds</th></tr>\n"
    )?;
    for figure in &section.figures {
        let Some(spread) = figure.spread() else { continue };
        writeln!(
            out,
            "<tr><td>{}</td><td class=text>{}</td><td class=text>{}</td><td>{} <small>{}</small></td><td>{}</td><td>{}</td>\
             <td>{}</td></tr>",
            escaped(&section.runs(&[&figure.parameter])),
            escaped(&figure.who),
            escaped(&in_words(&figure.metric)),
            number(spread.median),
            escaped(unit(&figure.unit)),
            number(spread.min),
            number(spread.max),
            figure.rounds.len(),
        )?;
    }
    out.push_str("</table></div></details>\n");
    Ok(())
}

/// As people write it.
pub(super) fn unit(unit: &str) -> &str {
    match unit {
        "us" => "µs",
        other => other,
    }
}

pub(super) fn in_words(metric: &str) -> String {
    match metric {
        "qps" => "Rate".to_owned(),
        "min_qps" => "Rate in the lowest second".to_owned(),
        "cpu" => "CPU for each query".to_owned(),
        "p99" => "99th percentile".to_owned(),
        "server cpu" => "CPU of the servers for each query".to_owned(),
        "load cpu" => "CPU of the load for each query".to_owned(),
        "idle" => "Idle part of the machine".to_owned(),
        "session" => "Memory of an idle session".to_owned(),
        "cpu of a connection" => "CPU of the gateway for a connection".to_owned(),
        "tpmC" => "New orders a minute".to_owned(),
        "queries a CPU second" => "Queries for a second of CPU".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        machine::Machine,
        report::catalogue::{self, Name},
    };

    pub(in crate::report) fn results() -> Results {
        let mut sections: Vec<Section> = catalogue::of(Name::All).into_iter().map(Section::new).collect();
        let first = &mut sections[0];
        for round in [1.0, 1.01, 1.02, 1.0, 1.01] {
            first.record(("20", "haproxy"), "cpu", "us", 10.0);
            first.record(("20", "session"), "cpu", "us", 9.0 * round);
            first.record(("20", "split"), "cpu", "us", 9.0 * round.powi(20));
        }
        first.compare("session", "haproxy", "cpu");
        first.compare("split", "haproxy", "cpu");
        first.notes.push("<script>alert(1)</script>".to_owned());
        sections[2].broken = vec!["replicas (errors: 3)".to_owned()];
        sections[1].failed = Some("it said \"<b>\" & 'no'".to_owned());
        Results {
            report: "all".to_owned(),
            title: "a <title>".to_owned(),
            date: "2026-11-27 19:30 UTC".to_owned(),
            machine: Machine::describe(),
            programs: vec!["a <program>".to_owned()],
            options: Vec::new(),
            is_done: true,
            is_whole: true,
            left_out: Vec::new(),
            sections,
        }
    }

    #[test]
    fn a_page_shows_texts_and_obeys_none() {
        let page = page(&results());
        for raw in ["<script", "<b>", "<program>"] {
            assert!(!page.contains(raw), "{raw}");
        }
        for shown in [
            "&lt;script&gt;",
            "&quot;&lt;b&gt;&quot; &amp; &#39;no&#39;",
            "a &lt;program&gt;",
        ] {
            assert!(page.contains(shown), "{shown}");
        }
    }

    #[test]
    fn a_page_needs_nothing_but_itself() {
        let page = page(&results());
        assert!(!page.contains("src=") && !page.contains("@import") && !page.contains("url("));
        let links = page.match_indices("href=").map(|(at, _)| &page[at..at + 7]);
        assert!(links.clone().count() > 30 && links.clone().all(|link| link == "href=\"#"));
        assert!(!page.contains("http:") && !page.contains("https:"));
    }

    #[test]
    fn every_table_has_its_section_with_what_was_measured_and_what_was_published() {
        let page = page(&results());
        for table in catalogue::of(Name::All) {
            let begin = page.find(&format!("<section id=\"{}\">", table.number)).unwrap();
            let section = page[begin..].split("</section>").next().unwrap();
            assert!(section.contains(&escaped(table.text)), "{}", table.number);
            assert_eq!(section.contains("Not run here"), !table.how.is_here());
            for row in table.published() {
                let cell = format!("<td class=theirs>{}</td>", row.ratio);
                assert!(section.contains(&cell), "{row:?}");
            }
        }
        assert!(page.contains("<td>0.909<small>"), "session to HAProxy");
        assert!(page.contains("less at 20 clients.") && page.contains("not measured at 20 clients."));
        assert!(page.contains("<td class=open>not measured<small>"));
        assert!(page.contains("A promise was not kept: replicas (errors: 3)"));
        assert_eq!(page.matches("did not come to its end").count(), 1);
    }

    #[test]
    fn a_page_of_some_tables_claims_no_others() {
        let mut results = results();
        assert!(page(&results).contains("Every table of the report has its place"));
        assert!(!page(&results).contains("tables are missing"));
        results.left_out = vec!["T2".to_owned(), "T9".to_owned()];
        (results.is_done, results.is_whole) = (false, false);
        let page = page(&results);
        assert!(page.contains("T2, T9 were not") && !page.contains("Every table of the report"));
        assert!(page.contains("tables are missing"));
    }

    #[test]
    fn tags_are_closed() {
        let page = page(&results());
        for tag in ["section", "table", "svg", "ul", "details", "div", "nav", "dl"] {
            let opened =
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
