//! Mapping tables: tables of the primary whose rows are mappings, named and made as PolarDB's.
//!
//! They are read as a whole when a stream begins, when the stream has shown a change of them, and when
//! somebody asks for it. A row that is no mapping is refused by itself, and what cannot be read now stays as
//! it was.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use config::{CacheMapping, MAPPINGS_MAX, MappingKind};
use mysql_wire::gtid::Flavor;
use tokio::time::Instant;
use upstream::conversation::TextRow;

use super::copy::{COMMITTED, CopyError, shows_by_gtid, wait_until_visible};
use super::progress::Progress;
use super::source::SourceServer;
use super::status::{MappingState, Phase};
use super::tables::RETRY;
use crate::mapping::SESSION;

/// The statements that make the tables.
pub const MAPPING_TABLES: &str = "\
CREATE DATABASE IF NOT EXISTS forebay;

CREATE TABLE IF NOT EXISTS forebay.string_containers (
  name VARCHAR(255) NOT NULL PRIMARY KEY COMMENT 'first part of Redis keys',
  db_schema VARCHAR(64) NOT NULL,
  db_table VARCHAR(64) NOT NULL,
  key_column VARCHAR(1100) NOT NULL COMMENT 'several with commas between them',
  value_column VARCHAR(64) NOT NULL,
  unique_idx_name_on_key VARCHAR(64) NOT NULL DEFAULT '' COMMENT 'may be left empty'
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS forebay.hash_containers (
  name VARCHAR(255) NOT NULL PRIMARY KEY COMMENT 'first part of Redis keys',
  db_schema VARCHAR(64) NOT NULL,
  db_table VARCHAR(64) NOT NULL,
  key_column VARCHAR(1100) NOT NULL COMMENT 'several with commas between them',
  value_column TEXT NOT NULL COMMENT 'several with commas between them, or * for all',
  unique_idx_name_on_key VARCHAR(64) NOT NULL DEFAULT '' COMMENT 'may be left empty'
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
";

const SCHEMA: &str = "forebay";
const TABLES: [(&str, &str, MappingKind); 2] = [
    (
        "string_containers",
        "forebay.string_containers",
        MappingKind::String,
    ),
    ("hash_containers", "forebay.hash_containers", MappingKind::Hash),
];
const COLUMNS: &str = "name, db_schema, db_table, key_column, value_column, unique_idx_name_on_key";

/// Time until tables are read again after a connection failed.
const AGAIN: Duration = Duration::from_secs(1);

/// What is the matter with a table at first.
const UNREAD: &str = "has not been read yet";

/// "Unknown database", "table doesn't exist".
const MISSING: [u16; 2] = [1049, 1146];

/// Whether this is one of them.
pub(super) fn is_one(schema: &[u8], table: &[u8]) -> bool {
    let is = |name: &str| table.eq_ignore_ascii_case(name.as_bytes());
    schema.eq_ignore_ascii_case(SCHEMA.as_bytes()) && TABLES.iter().any(|(name, ..)| is(name))
}

/// Whether a statement that was run with `default` as its schema may concern one of them.
pub(super) fn concerned(sql: &[u8], default: &[u8]) -> bool {
    TABLES
        .iter()
        .any(|(table, ..)| sql_class::logged::concerns(sql, default, SCHEMA, table))
}

/// What is wanted by the configuration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) mappings: Vec<CacheMapping>,
    /// Rows of mapping tables count, too.
    pub(super) tables: bool,
}

impl Wanted {
    pub(super) fn of(config: &config::Cache) -> Self {
        Self {
            mappings: config.mappings.clone(),
            tables: config.mapping_tables,
        }
    }
}

/// What is no mapping, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// Of the row. `None` where it is the table that cannot be read.
    pub(super) name: Option<String>,
    /// With its schema.
    pub(super) table: &'static str,
    pub(super) reason: String,
    /// The configuration has a mapping of this name: nothing is wrong.
    pub(super) is_overridden: bool,
}

impl Refused {
    /// How it shows beside mappings.
    pub(super) fn state(&self) -> MappingState {
        let reason = self.reason.as_str().into();
        let (name, phase) = match &self.name {
            None => (self.table.into(), Phase::Waiting { reason }),
            Some(name) => (format!("{}/{name}", self.table).into(), Phase::Stopped { reason }),
        };
        MappingState {
            name,
            table: self.table.into(),
            row_of: Some(self.table.into()),
            phase,
        }
    }
}

/// What one of the tables says.
#[derive(Debug)]
pub(super) enum TableAnswer {
    Rows(Vec<TextRow>),
    Missing,
    /// It cannot be read, in the server's words.
    Refused(String),
}

/// One for each of them.
pub(super) type Answers = [TableAnswer; 2];

#[derive(Debug, Default)]
struct Contents {
    rows: Vec<TextRow>,
    trouble: Option<String>,
    was_read: bool,
}

/// The mappings of the configuration with those of the tables.
#[derive(Debug)]
pub(super) struct MappingTables {
    wanted: Wanted,
    contents: [Contents; 2],
    due: Option<Instant>,
    /// What has been said about rows.
    told: Vec<Refused>,
}

impl MappingTables {
    pub(super) fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            contents: Default::default(),
            due: None,
            told: Vec::new(),
        }
    }

    /// The configuration has changed.
    pub(super) fn want(&mut self, wanted: Wanted) {
        if wanted.tables != self.wanted.tables {
            self.contents = Default::default();
            self.due = Some(Instant::now());
        }
        self.wanted = wanted;
    }

    /// Has the tables read after `delay`, if they count.
    pub(super) fn ask(&mut self, delay: Duration) {
        self.due = Some(Instant::now() + delay);
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due.filter(|_| self.wanted.tables)
    }

    /// True, once, when they are to be read now.
    pub(super) fn take_due(&mut self) -> bool {
        let is_due = self.due().is_some_and(|due| due <= Instant::now());
        if is_due {
            self.due = None;
        }
        is_due
    }

    /// They have been read.
    pub(super) fn answered(&mut self, answers: Result<Answers, CopyError>) {
        if !self.wanted.tables {
            // It was asked before the configuration changed.
            return;
        }
        match answers {
            Ok(answers) => {
                for (contents, answer) in self.contents.iter_mut().zip(answers) {
                    contents.take(answer);
                }
                if self.contents.iter().any(|contents| contents.trouble.is_some()) && self.due.is_none() {
                    self.ask(RETRY);
                }
            }
            Err(error) => {
                for contents in &mut self.contents {
                    contents.trouble = Some(format!("cannot be read: {error}"));
                }
                self.ask(AGAIN);
            }
        }
    }

    /// Which of the tables has never been read, and why: there may be mappings of any name.
    pub(super) fn unread(&self) -> Option<String> {
        let mut tables = self.contents.iter().zip(TABLES);
        let (contents, (_, table, _)) =
            tables.find(|(contents, _)| self.wanted.tables && !contents.was_read)?;
        let trouble = contents.trouble.as_deref().unwrap_or(UNREAD);
        Some(format!("{table} {trouble}"))
    }

    /// The mappings that there are to be, in order, and what cannot be one. Says what is new of the latter.
    pub(super) fn arrangement(&mut self) -> (Vec<CacheMapping>, Vec<Refused>) {
        let mut all = Collected::new(&self.wanted.mappings);
        for (contents, (_, table, kind)) in self.contents.iter().zip(TABLES) {
            if let Some(reason) = contents.trouble.clone().filter(|_| self.wanted.tables) {
                all.refuse(None, table, reason, false);
            }
            contents.rows.iter().for_each(|row| all.add(row, table, kind));
        }
        let Collected { wanted, refused, .. } = all;
        for new in refused.iter().filter(|refused| !self.told.contains(refused)) {
            let Refused {
                name, table, reason, ..
            } = new;
            let name = name.as_deref().unwrap_or_default();
            if new.is_overridden {
                tracing::info!(
                    table,
                    row = name,
                    "a mapping of the configuration has the same name: the row does not count"
                );
            } else {
                tracing::warn!(table, row = name, reason, "no mapping");
            }
        }
        self.told.clone_from(&refused);
        (wanted, refused)
    }
}

impl Contents {
    fn take(&mut self, answer: TableAnswer) {
        self.was_read |= !matches!(answer, TableAnswer::Refused(_));
        (self.rows, self.trouble) = match answer {
            TableAnswer::Rows(rows) => (rows, None),
            TableAnswer::Missing => (Vec::new(), None),
            TableAnswer::Refused(reason) => (std::mem::take(&mut self.rows), Some(reason)),
        };
    }
}

/// Mappings on their way to be arranged.
struct Collected {
    wanted: Vec<CacheMapping>,
    names: HashSet<String>,
    configured: HashSet<String>,
    refused: Vec<Refused>,
}

impl Collected {
    fn new(configured: &[CacheMapping]) -> Self {
        let names: HashSet<String> = configured.iter().map(|mapping| mapping.name.clone()).collect();
        Self {
            wanted: configured.to_vec(),
            configured: names.clone(),
            names,
            refused: Vec::new(),
        }
    }

    fn add(&mut self, row: &TextRow, table: &'static str, kind: MappingKind) {
        let text = |at: usize| {
            let value = row.get(at).and_then(Option::as_deref).unwrap_or_default();
            String::from_utf8_lossy(value).into_owned()
        };
        let list =
            |at: usize| -> Vec<String> { text(at).split(',').map(|name| name.trim().to_owned()).collect() };
        let mut mapping = CacheMapping::new(&text(0), kind, &format!("{}.{}", text(1), text(2)), &[], &[]);
        (mapping.key, mapping.value) = (list(3), list(4));
        mapping.index = Some(text(5)).filter(|index| !index.is_empty());
        mapping.row_of = Some(table.to_owned());
        let name = mapping.name.clone();
        if self.configured.contains(&name) {
            let reason = "the configuration has a mapping of this name".to_owned();
            return self.refuse(Some(name), table, reason, true);
        }
        let wrong = mapping.check().err().or_else(|| {
            let is_another = self.names.contains(&name);
            is_another.then(|| "name: another row has the same".to_owned())
        });
        let wrong = wrong.or_else(|| {
            let full = self.wanted.len() >= MAPPINGS_MAX;
            full.then(|| format!("there are {MAPPINGS_MAX} mappings already"))
        });
        if let Some(reason) = wrong {
            return self.refuse(Some(name), table, reason, false);
        }
        self.names.insert(name);
        self.wanted.push(mapping);
    }

    fn refuse(&mut self, name: Option<String>, table: &'static str, reason: String, is_overridden: bool) {
        self.refused.push(Refused {
            name,
            table,
            reason,
            is_overridden,
        });
    }
}

/// A server whose tables are read, and what of it has been applied.
pub(super) struct Reading {
    pub(super) source_server: SourceServer,
    pub(super) progress: Rc<RefCell<Progress>>,
}

impl Reading {
    /// Reads the tables, as new as what is applied now.
    pub(super) async fn run(self) -> Result<Answers, CopyError> {
        let primary = &self.source_server.primary;
        let mut link = self.source_server.connect().await?;
        link.query(SESSION).await?;
        link.query(COMMITTED).await?;
        // Nobody's lock may keep the tables from being read again.
        link.query("SET SESSION lock_wait_timeout = 10, innodb_lock_wait_timeout = 10")
            .await?;
        let by_gtid = shows_by_gtid(&mut link, primary, &self.progress).await?;
        wait_until_visible(&mut link, primary, by_gtid, &self.progress).await?;
        let is_shown = primary.filters.show(SCHEMA);
        let lock = match primary.flavor {
            Flavor::MySql if !by_gtid => " FOR SHARE",
            _ => "",
        };
        let mut answers = [TableAnswer::Missing, TableAnswer::Missing];
        for (answer, (_, table, _)) in answers.iter_mut().zip(TABLES) {
            // One more than there may be shows that there are more.
            let limit = MAPPINGS_MAX + 1;
            let sql = format!("SELECT {COLUMNS} FROM {table} ORDER BY name LIMIT {limit}{lock}");
            *answer = match (link.query(&sql).await, &is_shown) {
                (Ok(_), Err(error)) => TableAnswer::Refused(error.to_string()),
                (Ok(rows), Ok(())) => TableAnswer::Rows(rows),
                (Err(error), _) => match error.code() {
                    Some(code) if MISSING.contains(&code) => TableAnswer::Missing,
                    Some(_) => TableAnswer::Refused(format!("cannot be read: {error}")),
                    None => return Err(error.into()),
                },
            };
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: [&str; 6]) -> TextRow {
        values.map(|value| Some(value.as_bytes().to_vec())).to_vec()
    }

    fn mapping_tables(configured: &[CacheMapping], rows: [&[TextRow]; 2]) -> MappingTables {
        let mut mapping_tables = MappingTables::new(Wanted {
            mappings: configured.to_vec(),
            tables: true,
        });
        mapping_tables.answered(Ok(rows.map(|rows| TableAnswer::Rows(rows.to_vec()))));
        mapping_tables
    }

    #[test]
    fn rows_are_mappings() {
        let strings = [row(["a", "s", "t", "id", "v", ""])];
        let hashes = [row(["b", "s", "u", "x, y", "v,w", "xy"])];
        let (wanted, refused) = mapping_tables(&[], [&strings, &hashes]).arrangement();
        assert_eq!(refused, []);
        let mut a = CacheMapping::new("a", MappingKind::String, "s.t", &["id"], &["v"]);
        a.row_of = Some("forebay.string_containers".to_owned());
        let mut b = CacheMapping::new("b", MappingKind::Hash, "s.u", &["x", "y"], &["v", "w"]);
        b.row_of = Some("forebay.hash_containers".to_owned());
        b.index = Some("xy".to_owned());
        assert_eq!(wanted, [a, b]);
    }

    #[test]
    fn a_wrong_row_is_refused_by_itself() {
        let good = row(["good", "s", "t", "id", "v", ""]);
        for (wrong, reason) in [
            (["", "s", "t", "id", "v", ""], "name: expected 1 to 255 bytes"),
            (
                ["a@b", "s", "t", "id", "v", ""],
                "name: expected a name without `@`",
            ),
            (["a", "s.x", "t", "id", "v", ""], "table: expected a table as"),
            (["a", "", "t", "id", "v", ""], "table: expected a table as"),
            (
                ["a", "s", "t", "", "v", ""],
                "key[0]: expected the name of a column",
            ),
            (
                ["a", "s", "t", "id,ID", "v", ""],
                "key[1]: expected each column once",
            ),
            (["a", "s", "t", "id", "v,w", ""], "value: expected one column"),
            (
                ["a", "s", "t", "id", "*", ""],
                "value: expected the name of a column",
            ),
            (
                ["good", "s", "t", "id", "v", ""],
                "name: another row has the same",
            ),
        ] {
            let strings = [good.clone(), row(wrong)];
            let (wanted, refused) = mapping_tables(&[], [&strings, &[]]).arrangement();
            assert_eq!(wanted.len(), 1);
            let [refused] = refused.as_slice() else {
                panic!("{wrong:?}")
            };
            assert!(refused.reason.starts_with(reason), "{}", refused.reason);
            assert_eq!(refused.name.as_deref(), Some(wrong[0]));
            assert_eq!(refused.table, "forebay.string_containers");
        }
        let many: Vec<_> = (0..=MAPPINGS_MAX)
            .map(|n| row([&format!("m{n}"), "s", "t", "id", "v", ""]))
            .collect();
        let (wanted, refused) = mapping_tables(&[], [&many, &[]]).arrangement();
        assert_eq!((wanted.len(), refused.len()), (MAPPINGS_MAX, 1));
    }

    #[test]
    fn the_configuration_comes_first() {
        let own = CacheMapping::new("a", MappingKind::Hash, "s.t", &["id"], &["*"]);
        let strings = [
            row(["a", "s", "t", "id", "v", ""]),
            row(["b", "s", "t", "id", "v", ""]),
        ];
        let mut mapping_tables = mapping_tables(std::slice::from_ref(&own), [&strings, &[]]);
        let (wanted, refused) = mapping_tables.arrangement();
        assert_eq!(wanted[0], own);
        assert_eq!((wanted.len(), refused.len()), (2, 1));
        assert!(refused[0].is_overridden);
        // Without the tables there is nothing but the configuration.
        mapping_tables.want(Wanted {
            mappings: vec![own.clone()],
            tables: false,
        });
        assert_eq!(mapping_tables.arrangement(), (vec![own], Vec::new()));
        assert_eq!(mapping_tables.due(), None);
    }

    #[test]
    fn what_cannot_be_read_stays_as_it_was() {
        let strings = [row(["a", "s", "t", "id", "v", ""])];
        let mut mapping_tables = mapping_tables(&[], [&strings, &[]]);
        mapping_tables.answered(Ok([
            TableAnswer::Refused("denied".to_owned()),
            TableAnswer::Missing,
        ]));
        let (wanted, refused) = mapping_tables.arrangement();
        assert_eq!((wanted.len(), refused.len()), (1, 1));
        assert_eq!((&refused[0].name, refused[0].reason.as_str()), (&None, "denied"));
        assert!(mapping_tables.due().is_some());
        mapping_tables.answered(Ok([TableAnswer::Missing, TableAnswer::Missing]));
        assert_eq!(mapping_tables.arrangement(), (Vec::new(), Vec::new()));
    }

    #[test]
    fn they_are_known_by_their_names() {
        assert!(is_one(b"forebay", b"hash_containers") && is_one(b"Forebay", b"STRING_containers"));
        assert!(!is_one(b"shop", b"hash_containers") && !is_one(b"forebay", b"items"));
        assert!(concerned(b"DROP DATABASE forebay", b""));
        assert!(concerned(b"TRUNCATE hash_containers", b"forebay"));
        assert!(!concerned(b"TRUNCATE shop.hash_containers", b"shop"));
    }
}
