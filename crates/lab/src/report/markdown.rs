//! What a report has found as a page of Markdown, such as the guide has.

use std::fmt::{self, Write as _};

use super::{
    page::{findings, in_words, unit},
    results::{Results, Section},
    text::{distinct, number, written},
};

/// Columns of prose.
const WIDTH: usize = 160;

/// The whole page.
pub(super) fn markdown(results: &Results) -> String {
    written(|out| write_page(out, results))
}

fn write_page(out: &mut String, results: &Results) -> fmt::Result {
    let quick = match results.options.iter().any(|option| option.starts_with("--quick")) {
        true => " --quick",
        false => "",
    };
    writeln!(out, "# {}", plain(&results.title))?;
    prose(
        out,
        &format!(
            "Made by `forebay bench report {}{quick} --markdown FILE`, and by no hand. Contenders took turns round by round, and ratios \
             are formed within a round: below 1, the first of both has less. A ratio stands with the band in which the median of another \
             run on this machine is to be expected, in nine of ten. Where the band is wider than 30 % nothing was measured, and nothing is \
             concluded. Published ratios are those that a report forms of its own figures: figures of different machines do not compare.",
            results.report
        ),
    )?;
    out.push('\n');
    let machine = &results.machine;
    let memory = machine.memory as f64 / f64::from(1 << 30);
    let options = match &results.options[..] {
        [] => "none".to_owned(),
        options => options.join("; "),
    };
    let place = format!(
        "{}, {} cores, {memory:.0} GiB, {}; load average before: {}",
        machine.cpu, machine.cpus, machine.kernel, machine.load_average
    );
    let programs = results.programs.join("; ");
    for (what, words) in [
        ("date", &results.date),
        ("machine", &place),
        ("programs", &programs),
        ("options", &options),
    ] {
        item(out, &format!("{what}: {}", plain(words)))?;
    }
    if machine.is_busy() {
        let busy =
            "The machine was busy with something else when this began: take the figures for an impression.";
        prose(out, busy)?;
    }
    if !results.is_done {
        let cut = "This run was broken off, or is still under way: tables are missing.";
        prose(out, cut)?;
    }
    if !results.left_out.is_empty() {
        let left_out = results.left_out.join(", ");
        prose(out, &format!("Tables that were not asked for: {left_out}."))?;
    }
    for section in &results.sections {
        write_section(out, section)?;
    }
    Ok(())
}

fn write_section(out: &mut String, section: &Section) -> fmt::Result {
    writeln!(out, "\n## {} {}", section.number, plain(&section.title))?;
    let not_here = if section.is_here { "" } else { "Not run here. " };
    let (report, name, text) = (&section.report, &section.name, plain(&section.text));
    prose(out, &format!("{report}, {name}. {not_here}{text}"))?;
    if let Some(failed) = &section.failed {
        let failed = plain(failed);
        prose(out, &format!("This table did not come to its end: {failed}"))?;
    }
    for broken in &section.broken {
        prose(out, &format!("A promise was not kept: {}", plain(broken)))?;
    }
    write_ratios(out, section)?;
    if !section.is_here {
        return Ok(());
    }
    if section.ratios.is_empty() {
        write_figures(out, section)?;
    }
    out.push_str("\nWhat may be concluded:\n\n");
    for finding in findings(section) {
        item(out, &plain(&finding))?;
    }
    if !section.notes.is_empty() {
        out.push_str("\nNotes:\n\n");
    }
    for note in &section.notes {
        item(out, &plain(note))?;
    }
    Ok(())
}

/// Ours, and below it what was published of the same run and metric.
fn write_ratios(out: &mut String, section: &Section) -> fmt::Result {
    let own = section
        .ratios
        .iter()
        .map(|ratio| (&ratio.parameter[..], &ratio.metric[..]));
    let theirs = section.published.iter().map(|row| (row.parameter, row.metric));
    let rows = distinct(own.chain(theirs));
    if rows.is_empty() {
        return Ok(());
    }
    out.push_str("\n| run | figure | ratio | here | published |\n|---|---|---|---|---|\n");
    for (parameter, metric) in rows {
        let (run, figure) = (plain(&section.runs(&[parameter])), plain(&in_words(metric)));
        for ratio in &section.ratios {
            if (&ratio.parameter[..], &ratio.metric[..]) == (parameter, metric) {
                let (of, to, here) = (plain(&ratio.of), plain(&ratio.to), ratio.in_words());
                writeln!(out, "| {run} | {figure} | {of} ÷ {to} | {here} | |")?;
            }
        }
        for row in &section.published {
            if (row.parameter, row.metric) == (parameter, metric) {
                let (of, to) = (plain(row.system), plain(row.reference));
                writeln!(out, "| {run} | {figure} | {of} ÷ {to} | | {} |", row.ratio)?;
            }
        }
    }
    Ok(())
}

fn write_figures(out: &mut String, section: &Section) -> fmt::Result {
    if section.figures.is_empty() {
        return Ok(());
    }
    out.push_str("\n| run | who | figure | median | lowest | highest |\n|---|---|---|---|---|---|\n");
    for figure in &section.figures {
        let Some(spread) = figure.spread() else { continue };
        writeln!(
            out,
            "| {} | {} | {} | {} {} | {} | {} |",
            plain(&section.runs(&[&figure.parameter])),
            plain(&figure.who),
            plain(&in_words(&figure.metric)),
            number(spread.median),
            unit(&figure.unit),
            number(spread.min),
            number(spread.max),
        )?;
    }
    Ok(())
}

/// A paragraph below what is there.
fn prose(out: &mut String, text: &str) -> fmt::Result {
    out.push('\n');
    paragraph(out, "", text)
}

fn item(out: &mut String, text: &str) -> fmt::Result {
    paragraph(out, "- ", text)
}

/// Lines of at most [`WIDTH`], where words let them be. Further lines of an item stand below its first.
fn paragraph(out: &mut String, mark: &str, text: &str) -> fmt::Result {
    let indent = " ".repeat(mark.len());
    let mut line = mark.to_owned();
    let mut is_begun = false;
    for word in text.split_whitespace() {
        if is_begun && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{line}")?;
            line.clone_from(&indent);
            is_begun = false;
        }
        if is_begun {
            line.push(' ');
        }
        line += word;
        is_begun = true;
    }
    writeln!(out, "{line}")
}

/// As Markdown shows it, whatever it is, in one line.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        if "\\`*_<>[]|".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{
        catalogue::{self, Name},
        page::tests::results,
    };

    #[test]
    fn every_table_has_its_place_with_ours_beside_theirs() {
        let results = results();
        let page = markdown(&results);
        for table in catalogue::of(Name::All) {
            assert!(page.contains(&format!("\n## {} {}\n", table.number, table.title)));
        }
        assert!(
            page.contains("| 20 clients | CPU for each query | session ÷ haproxy | 0.909 ("),
            "{page}"
        );
        assert!(page.contains("| TiProxy ÷ HAProxy | | 1.474 |"));
        assert!(page.contains("| split ÷ haproxy | not measured ("));
        let in_one_line = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "less at 20 clients",
            "not measured at 20 clients",
            "A promise was not kept: replicas (errors: 3)",
            "did not come to its end: it said \"\\<b\\>\" & 'no'",
            "date: 2026-11-27 19:30 UTC",
            "a \\<program\\>",
        ] {
            assert!(in_one_line.contains(words), "{words}");
        }
    }

    #[test]
    fn prose_has_at_most_160_columns_and_tables_have_as_many_cells_as_their_heads() {
        let mut results = results();
        results.machine.load_average = 99.0;
        results.sections[0].notes.push("a note of many words ".repeat(30));
        let page = markdown(&results);
        let mut cells = 0;
        for line in page.lines() {
            let of_line = line.replace("\\|", "").matches('|').count();
            match line.starts_with('|') {
                true => assert!(cells == 0 || cells == of_line, "{line}"),
                false => assert!(line.chars().count() <= WIDTH, "{line}"),
            }
            cells = of_line;
        }
        assert!(page.contains("The machine was busy"));
        assert!(page.contains("\n  "), "a long item goes on below its first line");
    }
}
