//! What the feed demands of a primary before it believes its binary log.

use mysql_wire::gtid::Flavor;
use upstream::conversation::{Broken, QueryError};

use super::link::Link;
use crate::mapping::{NATIVE_FOREIGN_KEYS, logs_cascades};

/// Why a server's binary log cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PreflightError {
    /// A variable does not have the value that it must have.
    #[error("{name} is {found}, and must be {wanted}: {why}")]
    Variable {
        name: &'static str,
        found: String,
        wanted: &'static str,
        why: &'static str,
    },
    /// It has no binary log, whatever its variables say.
    #[error(
        "it is TiDB, which has no binary log: its rows cannot be kept in memory. Name another cluster in [cache], or take \
         [cache] out"
    )]
    Tidb,
    /// The server filters its binary log by schema.
    #[error("changes of schema {schema} are not in the binary log ({option})")]
    Filtered { schema: String, option: &'static str },
    /// It does so for other schemas. Rows are filtered by the schema of their table, statements by the
    /// default one of whoever runs them.
    #[error(
        "statements that change tables of schema {schema} may be missing in the binary log: {option} must not be set, since it goes by \
         the default schema of a session and not by the table's"
    )]
    StatementsFiltered { schema: String, option: &'static str },
    #[error(transparent)]
    Link(#[from] QueryError),
}

/// What is known of a primary once it has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Primary {
    pub(super) flavor: Flavor,
    /// `server_uuid` of MySQL; of MariaDB, which has none, [what it is told by](words_of_mariadb).
    pub(super) uuid: String,
    pub(super) server_id: u32,
    /// Every transaction has a GTID (MySQL: `gtid_mode=ON`; MariaDB always).
    pub(super) gtids: bool,
    /// MariaDB: GTIDs of a domain grow without exception (`gtid_strict_mode=ON`).
    pub(super) strict: bool,
    /// A node of MariaDB's Galera numbers transactions by itself, and with `wsrep_gtid_mode` still those that
    /// are not replicated: its GTIDs say nothing about those of another node.
    pub(super) numbers_alone: bool,
    /// The statement that says where the log ends.
    pub(super) status_question: &'static str,
    /// What foreign keys change is in its log.
    pub(super) logs_cascades: bool,
    /// What it replicates from another server is in its log. That changes with a restart only.
    pub(super) logs_replicated: bool,
    pub(super) filters: Filters,
}

/// A file of the binary log and an offset in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePosition {
    pub(super) file: String,
    pub(super) offset: u64,
}

/// Where the binary log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) end: FilePosition,
    filters: Filters,
}

/// Which schemas are in the binary log. It changes with a restart of the server only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filters {
    do_db: String,
    ignore_db: String,
}

/// The question for the end of the binary log, to ask MySQL 8.2 and later.
pub(crate) const NEW_STATUS: &str = "SHOW BINARY LOG STATUS";
/// The question for all other servers.
pub(crate) const OLD_STATUS: &str = "SHOW MASTER STATUS";

const VALUE_OPTIONS: &str = "binlog_row_value_options";

const NAMES: [&str; 15] = [
    "version",
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    VALUE_OPTIONS,
    "sync_binlog",
    "server_id",
    "server_uuid",
    "gtid_mode",
    "gtid_strict_mode",
    "wsrep_on",
    "log_slave_updates",
    "log_replica_updates",
    "slave_run_triggers_for_rbr",
    NATIVE_FOREIGN_KEYS,
];

/// The value of a variable; empty where the server has none of that name.
struct Variables(Vec<(String, String)>);

impl Variables {
    async fn read(link: &mut Link, names: &[&str]) -> Result<Self, QueryError> {
        let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
        let names = names.join(",");
        let sql = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})");
        let text = |value: Option<Vec<u8>>| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
        let rows = link.query(&sql).await?.into_iter().filter_map(|row| {
            let mut row = row.into_iter();
            Some((text(row.next()?), text(row.next()?)))
        });
        Ok(Self(rows.collect()))
    }

    fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    fn server_id(&self) -> u32 {
        self.get("server_id").parse().unwrap_or(0)
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name), "ON" | "1")
    }

    /// The name that this server has for it.
    fn log_updates(&self) -> &'static str {
        match self.get("log_replica_updates") {
            "" => "log_slave_updates",
            _ => "log_replica_updates",
        }
    }

    fn logs_what_is_replicated(&self) -> bool {
        self.is_on(self.log_updates())
    }

    fn must_log_what_is_replicated(&self, is_replica: bool) -> Result<(), PreflightError> {
        let why = if self.is_on("wsrep_on") {
            "what other nodes of a Galera cluster write is missing in the binary log otherwise"
        } else if is_replica {
            "what comes from the source of this server is missing in the binary log otherwise"
        } else {
            return Ok(());
        };
        self.must(self.log_updates(), "ON", why)
    }

    /// MariaDB: a replica may run triggers for rows that it gets, without a word in its own log.
    fn runs_triggers_in_silence(&self) -> bool {
        self.get("slave_run_triggers_for_rbr").eq_ignore_ascii_case("YES")
    }

    fn must_log_rows(&self) -> Result<(), PreflightError> {
        self.must(
            "binlog_format",
            "ROW",
            "other formats do not say which rows change",
        )?;
        self.must(
            "binlog_row_image",
            "FULL",
            "rows are kept as they are in the binary log",
        )?;
        match self.get(VALUE_OPTIONS) {
            "" => Ok(()),
            options => Err(PreflightError::Variable {
                name: VALUE_OPTIONS,
                found: options.to_owned(),
                wanted: "empty",
                why: "JSON values are kept as they are in the binary log",
            }),
        }
    }

    fn must(
        &self,
        name: &'static str,
        wanted: &'static str,
        why: &'static str,
    ) -> Result<(), PreflightError> {
        let found = self.get(name);
        if found.eq_ignore_ascii_case(wanted) || (wanted == "ON" && self.is_on(name)) {
            return Ok(());
        }
        Err(PreflightError::Variable {
            name,
            found: if found.is_empty() { "unset" } else { found }.to_owned(),
            wanted,
            why,
        })
    }
}

/// Whether a server is set up as a replica of another, running or not.
async fn has_source(link: &mut Link, flavor: Flavor) -> Result<bool, QueryError> {
    let rows = match flavor {
        Flavor::MariaDb => link.query("SHOW ALL SLAVES STATUS").await?,
        Flavor::MySql => match link.query("SHOW REPLICA STATUS").await {
            Err(error) if error.is_syntax() => link.query("SHOW SLAVE STATUS").await?,
            rows => rows?,
        },
    };
    Ok(!rows.is_empty())
}

/// What MariaDB says of itself that other servers do not: a name may lead to another one, which may have the
/// same number. Older ones have no `server_uid`.
pub(crate) async fn words_of_mariadb(link: &mut Link) -> Result<String, QueryError> {
    let sql = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('hostname', 'port', 'datadir', 'server_uid')";
    let rows = link.query(sql).await?;
    let words = rows.into_iter().flatten().flatten();
    let words: Vec<_> = words
        .map(|word| String::from_utf8_lossy(&word).into_owned())
        .collect();
    Ok(words.join("\n"))
}

/// What names a server, as [`Primary`] has it: `uuid` and `server_id`.
pub(super) async fn identity(link: &mut Link, flavor: Flavor) -> Result<(String, u32), QueryError> {
    let variables = Variables::read(link, &["server_id", "server_uuid"]).await?;
    let uuid = match flavor {
        Flavor::MySql => variables.get("server_uuid").to_owned(),
        Flavor::MariaDb => words_of_mariadb(link).await?,
    };
    Ok((uuid, variables.server_id()))
}

pub(super) async fn examine(link: &mut Link, flavor: Flavor) -> Result<Primary, PreflightError> {
    let variables = Variables::read(link, &NAMES).await?;
    if variables.get("version").contains("-TiDB-") {
        return Err(PreflightError::Tidb);
    }
    variables.must(
        "log_bin",
        "ON",
        "rows in memory are kept up to date from the binary log",
    )?;
    variables.must_log_rows()?;
    if !variables.logs_what_is_replicated() {
        let is_replica = has_source(link, flavor).await?;
        variables.must_log_what_is_replicated(is_replica)?;
    }
    if variables.runs_triggers_in_silence() && has_source(link, flavor).await? {
        variables.must(
            "slave_run_triggers_for_rbr",
            "LOGGING",
            "what triggers of this replica change is missing in the binary log otherwise",
        )?;
    }
    if variables.get("sync_binlog") != "1" {
        tracing::warn!(
            sync_binlog = variables.get("sync_binlog"),
            "the primary may lose transactions in a crash that readers have seen already: sync_binlog is not 1"
        );
    }
    let mut primary = Primary {
        flavor,
        uuid: variables.get("server_uuid").to_owned(),
        server_id: variables.server_id(),
        gtids: flavor == Flavor::MariaDb || variables.is_on("gtid_mode"),
        strict: variables.is_on("gtid_strict_mode"),
        numbers_alone: flavor == Flavor::MariaDb && variables.is_on("wsrep_on"),
        status_question: NEW_STATUS,
        logs_cascades: logs_cascades(variables.get(NATIVE_FOREIGN_KEYS)),
        logs_replicated: variables.logs_what_is_replicated(),
        filters: Filters::default(),
    };
    if flavor == Flavor::MariaDb {
        primary.uuid = words_of_mariadb(link).await?;
    }
    primary.filters = primary.status(link).await?.filters;
    Ok(primary)
}

/// What can be changed while the server runs is looked at before each copy: otherwise the first change would
/// have the table copied again, and so on.
pub(super) async fn must_log_rows(link: &mut Link) -> Result<(), PreflightError> {
    let names = ["binlog_format", "binlog_row_image", VALUE_OPTIONS];
    Variables::read(link, &names).await?.must_log_rows()
}

/// Whether replication changes rows without the server's log, as [`examine`] would say: a source may be named
/// while the server runs, and triggers be switched on.
pub(super) async fn replicates_in_silence(link: &mut Link, primary: &Primary) -> Result<bool, QueryError> {
    let mut is_silent = !primary.logs_replicated;
    if primary.flavor == Flavor::MariaDb {
        let triggers = link.value("SELECT @@GLOBAL.slave_run_triggers_for_rbr").await?;
        is_silent |= triggers.is_some_and(|run| run.eq_ignore_ascii_case("YES"));
    }
    Ok(is_silent && has_source(link, primary.flavor).await?)
}

impl Primary {
    /// Where its binary log ends now. Every transaction that was visible before is before that.
    pub(super) async fn status(&mut self, link: &mut Link) -> Result<Status, QueryError> {
        let rows = match link.query(self.status_question).await {
            Err(error) if self.status_question == NEW_STATUS && error.is_syntax() => {
                self.status_question = OLD_STATUS;
                link.query(OLD_STATUS).await?
            }
            rows => rows?,
        };
        let row = rows
            .first()
            .ok_or(Broken::Unexpected("no status of the binary log"))?;
        let text = |at: usize| {
            let value = row.get(at).and_then(Option::as_deref).unwrap_or_default();
            String::from_utf8_lossy(value).into_owned()
        };
        let offset = text(1).parse();
        Ok(Status {
            end: FilePosition {
                file: text(0),
                offset: offset.map_err(|_| Broken::Unexpected("no offset in the binary log"))?,
            },
            filters: Filters {
                do_db: text(2),
                ignore_db: text(3),
            },
        })
    }
}

impl Filters {
    /// All changes of `schema` are in the binary log.
    pub(super) fn show(&self, schema: &str) -> Result<(), PreflightError> {
        let lists = |list: &str| {
            list.split(',')
                .any(|name| name.trim().eq_ignore_ascii_case(schema))
        };
        let (option, is_filtered) = match () {
            () if !self.do_db.is_empty() => ("binlog_do_db", !lists(&self.do_db)),
            () if !self.ignore_db.is_empty() => ("binlog_ignore_db", lists(&self.ignore_db)),
            () => return Ok(()),
        };
        let schema = schema.to_owned();
        Err(match is_filtered {
            true => PreflightError::Filtered { schema, option },
            false => PreflightError::StatementsFiltered { schema, option },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_seen() {
        let filters = |do_db: &str, ignore_db: &str| Filters {
            do_db: do_db.to_owned(),
            ignore_db: ignore_db.to_owned(),
        };
        let why = |do_db: &str, ignore_db: &str| {
            let shown = filters(do_db, ignore_db).show("shop");
            shown.err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(why("", ""), "");
        assert_eq!(
            [why("a,b", ""), why("", "mysql,shop")],
            ["do", "ignore"]
                .map(|which| format!("changes of schema shop are not in the binary log (binlog_{which}_db)"))
        );
        for (do_db, ignore_db, option) in [("a,shop", "b", "binlog_do_db"), ("", "mysql", "binlog_ignore_db")]
        {
            let error = why(do_db, ignore_db);
            assert!(error.contains(&format!("{option} must not be set")), "{error}");
        }
    }

    #[test]
    fn a_variable_is_named_with_what_it_must_be() {
        let variables = Variables(vec![("binlog_format".to_owned(), "MIXED".to_owned())]);
        let error = variables.must("binlog_format", "ROW", "reasons").unwrap_err();
        assert_eq!(
            error.to_string(),
            "binlog_format is MIXED, and must be ROW: reasons"
        );
        let error = variables.must("log_bin", "ON", "reasons").unwrap_err();
        assert_eq!(error.to_string(), "log_bin is unset, and must be ON: reasons");
    }
    #[test]
    fn a_replica_must_log_what_it_replicates() {
        let variables = |of: &[(&str, &str)]| {
            let of = of
                .iter()
                .map(|&(name, value)| (name.to_owned(), value.to_owned()));
            Variables(of.collect())
        };
        let on = variables(&[("log_slave_updates", "ON"), ("wsrep_on", "ON")]);
        assert!(on.logs_what_is_replicated() && on.must_log_what_is_replicated(true).is_ok());
        let off = variables(&[("log_slave_updates", "OFF")]);
        assert!(!off.logs_what_is_replicated() && off.must_log_what_is_replicated(false).is_ok());
        let error = off.must_log_what_is_replicated(true).unwrap_err().to_string();
        assert_eq!(
            error,
            "log_slave_updates is OFF, and must be ON: what comes from the source of this server is missing in the binary log \
             otherwise"
        );
        let both = variables(&[("log_slave_updates", "OFF"), ("log_replica_updates", "OFF")]);
        let error = both.must_log_what_is_replicated(true).unwrap_err().to_string();
        assert!(error.starts_with("log_replica_updates is OFF"), "{error}");
        let galera = variables(&[("log_slave_updates", "OFF"), ("wsrep_on", "ON")]);
        assert!(galera.must_log_what_is_replicated(false).is_err());
    }
}
