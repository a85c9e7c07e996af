//! What every connection begins with: trackers on, `pool.init`, and a look at the values that variables have
//! after that.
//!
//! Measured on MySQL 9.7.4 and MariaDB 10.11.19. `*` would have MySQL report `statement_id` with every
//! statement, so the variables are named there. Names that the server does not know draw a warning and are
//! ignored, so that a list that is out of date does no harm; names of global variables do none either but
//! make the statement longer.

use std::sync::Arc;

use mysql_wire::Capabilities;
use net::Stream;
use serde::{Deserialize, Serialize};

use super::connection::Baseline;
use crate::conversation::{Bounds, QueryError, TextRow, ask, query, rows};

/// Session variables of a server, by which its connections are to track their state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tracked {
    /// Of the server when they were read.
    pub(super) version: Vec<u8>,
    /// The statement that switches the trackers on.
    trackers: String,
    /// The query for the [`Baseline`].
    baseline: String,
}

/// Names with their scope, on MySQL 9 and later; whatever limits the server's operators have set on large
/// results.
pub(super) const LIST_SCOPES: &str = "SELECT /*+ SET_VAR(sql_big_selects=ON) SET_VAR(sql_select_limit=18446744073709551615) */ VARIABLE_NAME \
     FROM performance_schema.variables_metadata WHERE VARIABLE_SCOPE <> 'GLOBAL'";
/// All names, on MySQL 8.
pub(super) const LIST_SESSION: &str = "SELECT /*+ SET_VAR(sql_big_selects=ON) SET_VAR(sql_select_limit=18446744073709551615) */ VARIABLE_NAME \
     FROM performance_schema.session_variables";
/// All names, on any other.
pub(super) const LIST_NAMES: &str = "SHOW SESSION VARIABLES";

/// Not tracked: they change by themselves, or nobody can set them.
const UNTRACKED: [&str; 9] = [
    "statement_id",
    "error_count",
    "warning_count",
    "external_user",
    "proxy_user",
    "gtid_owned",
    "hostname",
    "license",
    "version",
];

/// All variables of MariaDB. Those that are named have their reports under their own name: from 11 on several
/// that are kept in one place are reported as the first of them that was named or set. Whoever sets
/// `foreign_key_checks` is told `autocommit`, and who sets `last_insert_id`, or on some servers a variable of
/// a storage engine, the connection's `last_gtid`, which may be an old one (seen with 11.4.5 and 11.8.9).
const OF_MARIADB: &str = "autocommit,last_gtid,collation_connection,collation_database,collation_server,*";

/// Families without a session variable, for servers that do not tell the scopes.
const GLOBAL_PREFIXES: [&str; 14] = [
    "admin_",
    "binlog_group_",
    "caching_sha2_",
    "have_",
    "innodb_buffer_",
    "innodb_log_",
    "log_",
    "mysqlx_",
    "performance_schema",
    "relay_",
    "replica_",
    "rpl_",
    "slave_",
    "ssl_",
];

/// Variables that a login, and not the server's configuration, gives their values, that change what
/// statements mean, or whose `DEFAULT` is not what they have by default: `SET foreign_key_checks = DEFAULT`
/// switches them off on MySQL 9.7. In the order in which they are to be set: a character set sets a
/// collation. The last two say how long a client may stall.
const BASELINE: [&str; 14] = [
    "character_set_client",
    "character_set_connection",
    "character_set_results",
    "collation_connection",
    "autocommit",
    "sql_mode",
    "time_zone",
    "transaction_isolation",
    "transaction_read_only",
    "wait_timeout",
    "foreign_key_checks",
    "unique_checks",
    "net_read_timeout",
    "net_write_timeout",
];

/// The same on MariaDB before 11.1; later it knows both names.
const MARIADB_NAMES: [(&str, &str); 2] = [
    ("transaction_isolation", "tx_isolation"),
    ("transaction_read_only", "tx_read_only"),
];

impl Tracked {
    /// MariaDB tracks all its variables at a word.
    pub(super) fn everything(version: &[u8]) -> Self {
        Self {
            version: version.to_vec(),
            trackers: trackers(OF_MARIADB, true),
            baseline: baseline_query(true),
        }
    }

    /// Of rows whose first column is the name. `scoped`: they hold session variables only.
    pub(super) fn named(version: &[u8], rows: &[TextRow], scoped: bool) -> Self {
        let mut list = String::new();
        for row in rows {
            let Some(Some(name)) = row.first() else { continue };
            let Ok(name) = std::str::from_utf8(name) else {
                continue;
            };
            let plain = name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte));
            let global = !scoped && GLOBAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
            if plain && !global && !UNTRACKED.contains(&name) {
                if !list.is_empty() {
                    list.push(',');
                }
                list.push_str(name);
            }
        }
        Self {
            version: version.to_vec(),
            trackers: trackers(&list, false),
            baseline: baseline_query(false),
        }
    }
}

/// The statements of one configuration for one server. Its connections share what is long.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) tracked: Arc<Tracked>,
    pub(super) config: Arc<config::Cluster>,
}

impl Setup {
    /// The trackers alone, on a connection of which somebody else asks what it is like.
    ///
    /// # Errors
    /// With the statement that failed.
    pub(super) async fn switch_on(
        &self,
        stream: &mut Stream,
        capabilities: Capabilities,
    ) -> Result<(), (String, QueryError)> {
        let trackers = self.trackers();
        let asked = ask(stream, capabilities, &[query(capabilities, trackers)]).await;
        let replies = asked.map_err(|broken| (trackers.to_owned(), broken.into()))?;
        let done = replies.iter().try_for_each(|reply| reply.done(capabilities));
        done.map_err(|error| (trackers.to_owned(), error))
    }

    /// Everything, on a connection that has just logged in. `init`: `pool.init`, or nothing where one session
    /// has the connection for itself.
    ///
    /// # Errors
    /// With the statement that failed.
    pub(super) async fn begin(
        &self,
        stream: &mut Stream,
        capabilities: Capabilities,
        init: &[String],
    ) -> Result<Baseline, (String, QueryError)> {
        let Tracked {
            trackers,
            baseline: look,
            ..
        } = &*self.tracked;
        let statements: Vec<&str> = [trackers]
            .into_iter()
            .chain(init)
            .chain([look])
            .map(String::as_str)
            .collect();
        // A second statement of the operator's may count on the first.
        let batch = if init.len() > 1 { 1 } else { statements.len() };
        let mut rows = Vec::new();
        for batch in statements.chunks(batch) {
            let commands: Vec<_> = batch.iter().map(|sql| query(capabilities, sql)).collect();
            let all = batch.join("; ");
            let asked = ask(stream, capabilities, &commands).await;
            for (sql, reply) in batch.iter().zip(asked.map_err(|broken| (all, broken.into()))?) {
                rows = match reply.rows(capabilities) {
                    Ok(answer) => answer.rows,
                    Err(_) if *sql == look => {
                        return self.plain_baseline(stream, capabilities).await;
                    }
                    Err(error) => return Err(((*sql).to_owned(), error)),
                };
            }
        }
        Ok(baseline(rows))
    }

    /// Where the account or the server does not allow the comparison with global values: the variables of
    /// [`BASELINE`] alone.
    async fn plain_baseline(
        &self,
        stream: &mut Stream,
        capabilities: Capabilities,
    ) -> Result<Baseline, (String, QueryError)> {
        let shown = rows(stream, capabilities, LIST_NAMES, Bounds::USUAL).await;
        let shown = shown.map_err(|error| (LIST_NAMES.to_owned(), error))?;
        let mut baseline = baseline(shown.rows);
        baseline.retain(|(name, _)| rank(name) < BASELINE.len());
        Ok(baseline)
    }

    /// The statement that switches the trackers on.
    pub(super) fn trackers(&self) -> &str {
        &self.tracked.trackers
    }

    /// The commands that make a connection as it was after [`begin`](Self::begin), once a
    /// COM_RESET_CONNECTION has set every variable to its global value.
    pub(super) fn again(&self, capabilities: Capabilities, baseline: &Baseline) -> Vec<Vec<u8>> {
        let mut commands = vec![query(capabilities, &self.tracked.trackers)];
        commands.extend(self.config.pool.init.iter().map(|sql| query(capabilities, sql)));
        if !baseline.is_empty() {
            commands.push(query(capabilities, &assignments(baseline)));
        }
        commands
    }
}

/// `list` is the value of `session_track_system_variables`.
fn trackers(list: &str, mariadb: bool) -> String {
    let gtids = match mariadb {
        true => "",
        false => ", session_track_gtids='OWN_GTID'",
    };
    format!(
        "SET SESSION session_track_system_variables='{list}', session_track_schema=ON, \
         session_track_state_change=ON, session_track_transaction_info='CHARACTERISTICS'{gtids}"
    )
}

/// Asks for the variables of [`BASELINE`], and for those whose value is not the global one: `init_connect`,
/// `pool.init` or CLIENT_INTERACTIVE have set them.
fn baseline_query(mariadb: bool) -> String {
    let mut names: Vec<String> = BASELINE.iter().map(|name| format!("'{name}'")).collect();
    if mariadb {
        names.extend(MARIADB_NAMES.iter().map(|(_, name)| format!("'{name}'")));
        let names = names.join(",");
        return format!(
            "SELECT VARIABLE_NAME, SESSION_VALUE FROM information_schema.SYSTEM_VARIABLES \
             WHERE VARIABLE_NAME IN ({names}) OR VARIABLE_SCOPE = 'SESSION' AND SESSION_VALUE <> GLOBAL_VALUE"
        );
    }
    let names = names.join(",");
    format!(
        "SELECT /*+ SET_VAR(sql_big_selects=ON) SET_VAR(sql_select_limit=18446744073709551615) */ \
         s.VARIABLE_NAME, s.VARIABLE_VALUE FROM performance_schema.session_variables s \
         LEFT JOIN performance_schema.global_variables g ON g.VARIABLE_NAME = s.VARIABLE_NAME \
         WHERE s.VARIABLE_NAME IN ({names}) OR s.VARIABLE_VALUE <> g.VARIABLE_VALUE"
    )
}

/// The rows in the order of [`BASELINE`], with lower-case names, without what is not a session's own.
fn baseline(rows: Vec<TextRow>) -> Baseline {
    let mut baseline: Baseline = rows
        .into_iter()
        .filter_map(|row| {
            let mut columns = row.into_iter();
            let name = columns.next()??.to_ascii_lowercase();
            let value = columns.next()?.unwrap_or_default();
            let kept = !name.starts_with(b"session_track_")
                && !name.ends_with(b"_database")
                && name != b"pseudo_thread_id";
            kept.then_some((name, value))
        })
        .collect();
    baseline.sort_by(|(a, _), (b, _)| (rank(a), a).cmp(&(rank(b), b)));
    baseline
}

/// The place of a variable in [`BASELINE`]; its end for others.
fn rank(name: &[u8]) -> usize {
    let modern = MARIADB_NAMES.iter().find(|(_, old)| old.as_bytes() == name);
    let name = modern.map_or(name, |(new, _)| new.as_bytes());
    BASELINE
        .iter()
        .position(|known| known.as_bytes() == name)
        .unwrap_or(BASELINE.len())
}

fn assignments(baseline: &Baseline) -> String {
    let (of_charset, _) = BASELINE.split_at(4);
    let [client, connection, results, collation] = [0, 1, 2, 3].map(|at| {
        let mut known = baseline.iter();
        known
            .find(|(name, _)| name == of_charset[at].as_bytes())
            .map(|(_, value)| value)
    });
    // As a login does it: columns of results have the collation then, which MySQL takes from no assignment.
    let names = client
        .zip(collation)
        .filter(|_| connection == client && results == client);
    let is_named = |name: &[u8]| names.is_some() && of_charset.iter().any(|known| known.as_bytes() == name);
    let names = names.map(|(charset, collation)| {
        let [charset, collation] = [charset, collation].map(|value| literal(b"", value));
        format!("NAMES {charset} COLLATE {collation}")
    });
    let others = baseline.iter().filter(|(name, _)| !is_named(name));
    let others =
        others.map(|(name, value)| format!("{}={}", String::from_utf8_lossy(name), literal(name, value)));
    let items: Vec<_> = names.into_iter().chain(others).collect();
    format!("SET {}", items.join(", "))
}

/// A value so that it means the same under any `sql_mode`.
fn literal(name: &[u8], value: &[u8]) -> String {
    let number = !value.is_empty() && value.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    match std::str::from_utf8(value) {
        // The only one that can be NULL.
        Ok("") if name == b"character_set_results" => "NULL".to_owned(),
        Ok(value) if number => value.to_owned(),
        Ok(value) if !value.contains(['\'', '\\']) => format!("'{value}'"),
        _ => {
            let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("CONVERT(0x{digits} USING utf8mb4)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, value: &str) -> TextRow {
        vec![Some(name.as_bytes().to_vec()), Some(value.as_bytes().to_vec())]
    }

    #[test]
    fn mysql_names_what_it_tracks() {
        let rows = ["autocommit", "statement_id", "log_bin", "it's", "sql_mode"].map(|name| row(name, ""));
        let tracked = Tracked::named(b"8.0.36", &rows, false);
        let start = "SET SESSION session_track_system_variables='autocommit,sql_mode', ";
        assert!(tracked.trackers.starts_with(start), "{}", tracked.trackers);
        assert!(tracked.trackers.ends_with("session_track_gtids='OWN_GTID'"));
        let tracked = Tracked::everything(b"10.11.19-MariaDB");
        assert!(
            tracked
                .trackers
                .starts_with("SET SESSION session_track_system_variables='autocommit,last_gtid,")
        );
        assert!(tracked.trackers.contains(",*', ") && !tracked.trackers.contains("gtids"));
    }

    #[test]
    fn a_baseline_is_in_the_order_in_which_it_can_be_set() {
        let rows = vec![
            row("WAIT_TIMEOUT", "600"),
            row("COLLATION_CONNECTION", "latin1_bin"),
            row("SESSION_TRACK_SCHEMA", "ON"),
            row("LC_MESSAGES", "de_DE"),
            row("CHARACTER_SET_CONNECTION", "latin1"),
            row("TX_ISOLATION", "SERIALIZABLE"),
        ];
        assert_eq!(
            assignments(&baseline(rows)),
            "SET character_set_connection='latin1', collation_connection='latin1_bin', \
             tx_isolation='SERIALIZABLE', wait_timeout=600, lc_messages='de_DE'"
        );
    }

    #[test]
    fn values_mean_the_same_under_any_mode() {
        assert_eq!(literal(b"long_query_time", b"10.000000"), "10.000000");
        assert_eq!(literal(b"sql_mode", b""), "''");
        assert_eq!(literal(b"character_set_results", b""), "NULL");
        assert_eq!(literal(b"x", br"a\b'"), "CONVERT(0x615c6227 USING utf8mb4)");
    }
}
