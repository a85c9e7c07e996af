//! Pages of the guide that are made from tables in the code.

use std::path::Path;

use anyhow::Context;

/// A page: where it is, and what it must say.
struct Page {
    path: &'static str,
    content: String,
}

fn pages() -> [Page; 2] {
    [
        Page {
            path: "docs/guide/options.md",
            content: config::docs::markdown(),
        },
        Page {
            path: "docs/guide/metrics.md",
            content: telemetry::docs::text(),
        },
    ]
}

/// Writes every page that is out of date. Nothing is ever wrong with that.
pub(crate) fn write(root: &Path) -> anyhow::Result<Vec<String>> {
    for page in outdated(root) {
        std::fs::write(root.join(page.path), page.content)
            .with_context(|| format!("writing {}", page.path))?;
        println!("wrote {}", page.path);
    }
    Ok(Vec::new())
}

/// A line for every page that is out of date.
pub(crate) fn check(root: &Path) -> Vec<String> {
    outdated(root)
        .map(|page| format!("{}: out of date, run `cargo xtask gen-docs`", page.path))
        .collect()
}

fn outdated(root: &Path) -> impl Iterator<Item = Page> {
    pages().into_iter().filter(|page| {
        let written = std::fs::read_to_string(root.join(page.path));
        written.ok().as_ref() != Some(&page.content)
    })
}
