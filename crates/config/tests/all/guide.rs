//! Every piece of configuration in the guide and the README is right: options that there are, with values
//! that they take.

use std::fs;
use std::path::{Path, PathBuf};

use config::{Config, ConfigError};

/// What a piece may leave to the reader to put before it.
const CONTEXTS: [&str; 4] = ["", "[[listener]]\n", SPLIT, "[cluster.main]\n"];

/// What the header of a piece may stand for.
const SPLIT: &str = "[[listener]]\nmode = \"split\"\n";

/// What it may count on to be there.
const PARTS: [(&str, &str); 4] = [
    (
        "[cluster.main]",
        "\n[cluster.main]\nservers = [\"db1\", { address = \"db3\", name = \"db3\" }]\n",
    ),
    ("[cluster.primary]", "\n[cluster.primary]\nservers = [\"db1\"]\n"),
    (
        "[cluster.writable]",
        "\n[cluster.writable]\nservers = [\"db1\"]\n",
    ),
    ("[cluster.galera]", "\n[cluster.galera]\nservers = [\"db1\"]\n"),
];

#[test]
fn every_piece_of_configuration_is_right() {
    let (mut seen, mut wrong) = (0, String::new());
    for path in pages() {
        let text = fs::read_to_string(&path).unwrap();
        for (line, piece) in pieces(&text) {
            let mistakes: Vec<_> = CONTEXTS.iter().map(|context| mistakes(context, &piece)).collect();
            let fewest = mistakes.iter().min_by_key(|mistakes| mistakes.len()).unwrap();
            if !fewest.is_empty() {
                wrong += &format!("{}:{line}: {fewest:#?}\n", path.display());
            }
            seen += 1;
        }
    }
    assert_eq!(wrong, "");
    assert!(seen >= 20, "{seen} pieces");
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = fs::read_dir(root.join("docs/guide")).unwrap();
    let mut pages: Vec<_> = guide.map(|entry| entry.unwrap().path()).collect();
    pages.push(root.join("README.md"));
    pages
}

/// What stands between "```toml" and "```", with the line where it begins.
fn pieces(page: &str) -> Vec<(usize, String)> {
    let mut pieces: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (index, line) in page.lines().enumerate() {
        match line.trim() {
            "```toml" => {
                open = true;
                pieces.push((index + 1, String::new()));
            }
            "```" => open = false,
            line if open => {
                let piece = &mut pieces.last_mut().unwrap().1;
                *piece += line;
                *piece += "\n";
            }
            _ => {}
        }
    }
    pieces
}

/// But for what is missing: a piece is not the whole.
fn mistakes(context: &str, piece: &str) -> Vec<String> {
    let rest = piece.strip_prefix("[[listener]]\n").filter(|_| context == SPLIT);
    let mut text = format!("{context}{}", rest.unwrap_or(piece));
    // Beside a store the rest stands there.
    let parts = PARTS.into_iter().filter(|_| !piece.contains("[store]"));
    for (header, part) in parts {
        if !text.contains(header) && !context.starts_with(header) {
            text += part;
        }
    }
    let Err(errors) = Config::parse(&text, "piece") else {
        return Vec::new();
    };
    let is_wrong = |error: &&ConfigError| error.found != "none" && !error.found.starts_with("nothing");
    errors
        .0
        .iter()
        .filter(is_wrong)
        .map(ToString::to_string)
        .collect()
}
