//! Chores of this repository: `cargo xtask tidy`, `cargo xtask gen-docs [--check]` and `cargo xtask figures
//! [--pairs]`.
//!
//! What a reviewer said twice, a program says here. Formatting, lints and licences have programs of their own
//! (rustfmt, clippy, cargo-deny) and are not repeated.

mod architecture;
mod docs;
mod features;
mod figures;
mod layers;
mod links;
mod modules;
mod source;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask tidy               check what formatters and linters do not
       cargo xtask gen-docs           write the generated pages of docs/guide
       cargo xtask gen-docs --check   fail where one of them is out of date
       cargo xtask figures            the figures of the code's shape, beside their aims
       cargo xtask figures --pairs    and the modules that import each other";

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let problems = match words.as_slice() {
        ["tidy"] => tidy::run(&root())?,
        ["figures"] | ["figures", "--pairs"] => {
            figures::run(&root(), arguments.len() > 1)?;
            Vec::new()
        }
        ["gen-docs"] => docs::write(&root())?,
        ["gen-docs", "--check"] => docs::check(&root()),
        _ => {
            eprintln!("{USAGE}");
            return Ok(ExitCode::from(2));
        }
    };
    for problem in &problems {
        eprintln!("{problem}");
    }
    match problems.len() {
        0 => Ok(ExitCode::SUCCESS),
        count => {
            eprintln!("{}: {count} to put right", words[0]);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
