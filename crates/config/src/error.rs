//! What is wrong with a configuration: every mistake, with its place, what was expected and what was found.

use std::fmt;

/// A position in the configuration file. Both figures start at 1; the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// One mistake. Shown as `forebay.toml:7:8: listener[0].mode: expected …, found …; did you mean …?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file as it was named by the caller.
    pub file: String,
    /// `None` where the file itself is the problem (missing, unreadable, not UTF-8).
    pub place: Option<Place>,
    /// The option, as a path into the file: `listener[0].tls.cert`. Empty for a syntax error.
    pub key: String,
    /// What would be right here. Empty for a syntax error, whose `found` says everything.
    pub expected: String,
    /// What stands here. Never the value of a secret.
    pub found: String,
    /// The next step, where there is a likely one.
    pub hint: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.file)?;
        if let Some(Place { line, column }) = self.place {
            write!(out, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(out, ": {}", self.key)?;
        }
        if self.expected.is_empty() {
            write!(out, ": {}", self.found)?;
        } else {
            write!(out, ": expected {}, found {}", self.expected, self.found)?;
        }
        match &self.hint {
            Some(hint) => write!(out, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// All mistakes of a configuration in the order of the file, at least one. Shown one a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                out.write_str("\n")?;
            }
            write!(out, "{error}")?;
        }
        Ok(())
    }
}
