//! The tables of a ProxySQL configuration, whichever form they were read from.

use std::collections::BTreeMap;

/// Rows of all tables together. ProxySQL's own tables have a few thousand at most.
const ROWS_MAX: usize = 100_000;

/// The tables that are looked at.
pub(crate) const TABLES: [&str; 9] = [
    "mysql_servers",
    "mysql_users",
    "mysql_query_rules",
    "mysql_query_rules_fast_routing",
    "mysql_replication_hostgroups",
    "mysql_group_replication_hostgroups",
    "mysql_galera_hostgroups",
    "proxysql_servers",
    "global_variables",
];

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ImportError {
    pub line: usize,
    pub problem: String,
}

impl ImportError {
    pub(crate) fn new(line: usize, problem: impl Into<String>) -> Self {
        Self {
            line,
            problem: problem.into(),
        }
    }
}

/// Longest file. Configurations are a fraction of it.
const LENGTH_MAX: usize = 64 << 20;

/// The text of a file that is not too long.
pub(crate) fn text_of(file: &str) -> Result<&str, ImportError> {
    if file.len() > LENGTH_MAX {
        return Err(ImportError::new(1, format!("more than {LENGTH_MAX} bytes")));
    }
    // Editors of some systems begin every file with it.
    Ok(file.strip_prefix('\u{feff}').unwrap_or(file))
}

/// All tables of a file.
#[derive(Debug, Default)]
pub(crate) struct Dump {
    tables: BTreeMap<String, Vec<Row>>,
    rows: usize,
    /// Global variables with their `mysql-` or `admin-`.
    pub(crate) variables: BTreeMap<String, String>,
    /// Statements that change tables in ways that are not understood, with their line.
    pub(crate) not_understood: Vec<(usize, String)>,
}

impl Dump {
    pub(crate) fn add(&mut self, table: &str, row: Row) -> Result<(), ImportError> {
        self.rows += 1;
        if self.rows > ROWS_MAX {
            return Err(ImportError::new(row.line, format!("more than {ROWS_MAX} rows")));
        }
        if table == "global_variables" {
            if let (Some(name), Some(value)) = (row.text("variable_name"), row.text("variable_value")) {
                self.variables.insert(name.to_owned(), value.to_owned());
            }
            return Ok(());
        }
        self.tables.entry(table.to_owned()).or_default().push(row);
        Ok(())
    }

    /// The rows of a table, in the order of the file.
    pub(crate) fn rows(&self, table: &str) -> &[Row] {
        self.tables.get(table).map_or(&[], Vec::as_slice)
    }

    /// Every table that has rows, with their number.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&str, usize)> {
        self.tables.iter().map(|(name, rows)| (name.as_str(), rows.len()))
    }

    /// A variable that is there and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// A variable that is a whole number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.variable(name)?.parse().ok()
    }

    /// A variable that is `true` or `false`, in any of the forms that ProxySQL takes.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        match self.variable(name)?.to_ascii_lowercase().as_str() {
            "true" | "1" | "on" => Some(true),
            "false" | "0" | "off" => Some(false),
            _ => None,
        }
    }
}

/// A row of a table. Names of columns are compared without case, as SQL does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) line: usize,
    /// `None` is NULL.
    columns: Vec<(String, Option<String>)>,
}

impl Row {
    pub(crate) fn new(line: usize, columns: Vec<(String, Option<String>)>) -> Self {
        Self { line, columns }
    }

    /// The value of a column; `None` where it is NULL or where the table has no such column.
    pub(crate) fn text(&self, column: &str) -> Option<&str> {
        self.columns
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(column))?
            .1
            .as_deref()
    }

    /// The value of a column where it is neither NULL nor empty.
    pub(crate) fn filled(&self, column: &str) -> Option<&str> {
        self.text(column).filter(|text| !text.trim().is_empty())
    }

    /// Whether the table has the column and its value is NULL.
    pub(crate) fn is_null(&self, column: &str) -> bool {
        self.columns
            .iter()
            .any(|(name, value)| name.eq_ignore_ascii_case(column) && value.is_none())
    }

    /// A whole number.
    pub(crate) fn number(&self, column: &str) -> Result<Option<u64>, ImportError> {
        let Some(text) = self.filled(column) else {
            return Ok(None);
        };
        // libconfig has words for what SQL has 0 and 1 for.
        match text.trim() {
            "true" => Ok(Some(1)),
            "false" => Ok(Some(0)),
            digits => digits.parse().map(Some).map_err(|_| {
                ImportError::new(
                    self.line,
                    format!("{column} is {text:?}, expected a whole number"),
                )
            }),
        }
    }

    /// A number that stands for yes or no.
    pub(crate) fn flag(&self, column: &str, default: bool) -> Result<bool, ImportError> {
        Ok(self.number(column)?.map_or(default, |number| number != 0))
    }

    /// A number that must be there.
    pub(crate) fn required(&self, column: &str) -> Result<u64, ImportError> {
        self.number(column)?
            .ok_or_else(|| ImportError::new(self.line, format!("{column} is missing")))
    }
}
