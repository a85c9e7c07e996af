//! Servers of the user's: a schema of the lab's own in them, and nothing else is touched.

use std::{
    io::{self, IsTerminal, Write as _},
    net::{SocketAddr, ToSocketAddrs},
    str::FromStr,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};

use super::foreign::Foreign;
use crate::{
    child,
    client::{Account, Client, ClientError, Server, Tls},
    split::ServerKind,
    tpcc,
};

pub(super) const SCHEMA: &str = "forebay_bench";
/// Tables of the lab's own in it, beside those of sysbench and of TPC-C.
const TABLES: &str = "lab_mark, lab_trial, lab_bank, lab_written, rows_of_lab";
/// What is written to the first server has to be seen in it on all others.
const MARK: &str = "lab_mark";
/// Code of a database that there is already.
const EXISTS: u16 = 1007;
/// Replicas get what is written meanwhile; before anything starts, and behind the making of all tables.
const PATIENCE: Duration = Duration::from_secs(20);
const PATIENCE_WITH_ROWS: Duration = Duration::from_secs(300);
/// Each with what it needs.
const TRIALS: [(&str, &str); 6] = [
    ("CREATE", "CREATE TABLE lab_trial (id INT PRIMARY KEY, value INT)"),
    ("INSERT", "INSERT INTO lab_trial VALUES (1, 1)"),
    ("SELECT", "SELECT value FROM lab_trial"),
    ("UPDATE", "UPDATE lab_trial SET value = 2 WHERE id = 1"),
    ("DELETE", "DELETE FROM lab_trial WHERE id = 1"),
    ("DROP", "DROP TABLE lab_trial"),
];

/// What `--servers` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// Those that are started for the run.
    Started(ServerKind),
    /// One of the user's own: `HOST:PORT`.
    Own(String),
}

impl FromStr for Servers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.rsplit_once(':')) {
            ("mariadb", _) => Ok(Self::Started(ServerKind::Mariadb)),
            ("mysql", _) => Ok(Self::Started(ServerKind::Mysql)),
            (_, Some((host, port))) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self::Own(text.to_owned()))
            }
            _ => Err("it is neither `mariadb` nor `mysql`, nor `HOST:PORT` of a server of yours".to_owned()),
        }
    }
}

/// As the command line has it.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub servers: Vec<&'a str>,
    pub user: Option<&'a str>,
    pub password_env: Option<&'a str>,
    pub reuses_schema: bool,
    pub contenders: &'a [Foreign],
}

/// They can be reached, and the schema is there, until it is dropped.
#[derive(Debug)]
pub(super) struct Own {
    /// The primary first.
    pub servers: Vec<SocketAddr>,
    pub account: Account,
    pub version: String,
    /// Contenders that run already.
    pub contenders: Vec<(String, SocketAddr)>,
    _schema: Schema,
}

/// Removes it when it is dropped, and when the process ends at once.
#[derive(Debug)]
struct Schema;

impl Own {
    /// Whatever is wrong is told before anything is run.
    pub(super) fn new(asked: &Asked<'_>) -> anyhow::Result<Self> {
        let user = asked.user.context("--servers HOST:PORT needs --user")?;
        let password = match asked.password_env {
            Some(name) => {
                std::env::var(name).with_context(|| format!("--password-env: the variable {name}"))?
            }
            None => String::new(),
        };
        // It is as long in use as the process.
        let nowhere = Account {
            user: user.to_owned().leak(),
            password: password.leak(),
            database: "information_schema",
        };
        let account = Account {
            database: SCHEMA,
            ..nowhere
        };
        let mut servers = Vec::new();
        let mut version = String::new();
        for name in &asked.servers {
            let addresses = name.to_socket_addrs();
            let address = addresses
                .with_context(|| format!("--servers {name}"))?
                .next()
                .with_context(|| format!("--servers {name}: it has no address"))?;
            let found = version_of(address, nowhere).with_context(|| format!("--servers {name}"))?;
            if version.is_empty() {
                version = found;
            }
            servers.push(address);
        }
        let primary = *servers.first().context("--servers: none")?;
        let mut client = Client::connect(primary, nowhere)?;
        fits(&mut client, primary)?;
        let is_there = has_schema(&mut client)?;
        for &replica in servers.iter().skip(1).filter(|_| !is_there) {
            ensure!(
                !has_schema(&mut Client::connect(replica, nowhere)?)?,
                "{replica} has a schema {SCHEMA}, and {primary} has none: remove it, or rename it"
            );
        }
        let is_new = create(&mut client, primary, asked)?;
        let server = Server {
            address: primary,
            account,
        };
        child::at_exit(move || {
            if let Err(error) = remove(server, is_new) {
                eprintln!("the schema {SCHEMA} is left on {primary}: {error}");
            }
        });
        let mut own = Self {
            servers,
            account,
            version,
            contenders: Vec::new(),
            _schema: Schema,
        };
        attempt(server)?;
        server
            .connect()?
            .query(&format!("CREATE TABLE {MARK} (id VARCHAR(40) PRIMARY KEY)"))?;
        let mark = own.wait_for_replicas(PATIENCE)?;
        for contender in asked.contenders {
            let address = contender.reach(account, &mark)?;
            own.contenders.push((contender.name.clone(), address));
        }
        Ok(own)
    }

    /// All servers have all that was written before.
    pub(super) fn wait_for_all_rows(&self) -> anyhow::Result<()> {
        self.wait_for_replicas(PATIENCE_WITH_ROWS)?;
        Ok(())
    }

    /// The mark that they have now.
    fn wait_for_replicas(&self, patience: Duration) -> anyhow::Result<String> {
        let Some((&primary, replicas)) = self.servers.split_first() else {
            return Ok(String::new());
        };
        let mut client = Client::connect(primary, self.account)?;
        let mark = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos()
            .to_string();
        client.query("DELETE FROM lab_mark")?;
        client.query(&format!("INSERT INTO lab_mark VALUES ('{mark}')"))?;
        let has_mark = |address| -> Result<bool, ClientError> {
            let found = Client::connect(address, self.account)?.query("SELECT id FROM lab_mark")?;
            Ok(found.rows == [[Some(mark.clone())]])
        };
        for &replica in replicas {
            let deadline = Instant::now() + patience;
            while !has_mark(replica).unwrap_or(false) {
                ensure!(
                    Instant::now() < deadline,
                    "{replica} does not get what is written to {primary}: the servers behind the first are to be its \
                     replicas, with the same account"
                );
                thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(mark)
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        child::run_at_exit();
    }
}

/// The first login goes over TLS where there is some: `caching_sha2_password` may want the password in full.
fn version_of(address: SocketAddr, account: Account) -> Result<String, ClientError> {
    let mut client = Client::connect_by(address, account, Tls::Preferred)?;
    let answer = client.query("SELECT @@version_comment, VERSION()")?;
    let words = answer.rows.into_iter().flatten().flatten();
    Ok(words.collect::<Vec<_>>().join(" "))
}

fn has_schema(client: &mut Client) -> Result<bool, ClientError> {
    let found = client.query(&format!("SHOW DATABASES LIKE '{}'", SCHEMA.replace('_', "\\_")))?;
    Ok(!found.rows.is_empty())
}

/// What sessions beside a load read would mean nothing under these settings.
fn fits(client: &mut Client, primary: SocketAddr) -> anyhow::Result<()> {
    let settings = "SHOW VARIABLES WHERE Variable_name IN ('autocommit', 'read_only', 'transaction_isolation', 'tx_isolation')";
    for row in client.query(settings)?.rows {
        let [Some(name), Some(value)] = &row[..] else {
            continue;
        };
        match (name.as_str(), value.as_str()) {
            ("read_only", "ON") => {
                bail!("{primary} is read-only: the first of --servers has to be the primary")
            }
            ("autocommit", "OFF") | (_, "READ-UNCOMMITTED") => {
                bail!("{primary} has {name} = {value} for new sessions: the lab's checks need the default")
            }
            _ => {}
        }
    }
    Ok(())
}

/// Tables in the schema that the lab would make anew.
fn of_lab(client: &mut Client) -> Result<Vec<String>, ClientError> {
    let names: Vec<&str> = TABLES.split(", ").chain(tpcc::TABLES.split(", ")).collect();
    let is_of_sysbench = |table: &str| {
        let number = table.strip_prefix("sbtest");
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let found = client.query(&format!("SHOW TABLES IN {SCHEMA}"))?;
    let tables = found.rows.into_iter().flatten().flatten();
    Ok(tables
        .filter(|table| names.iter().any(|name| name.eq_ignore_ascii_case(table)) || is_of_sysbench(table))
        .collect())
}

/// Makes the schema, and says whether it is new. A schema that was there is asked for, and has nothing with
/// the name of one of the lab's tables: tables that a killed run has left cannot be told from the user's own.
fn create(client: &mut Client, primary: SocketAddr, asked: &Asked<'_>) -> anyhow::Result<bool> {
    let created = client.query(&format!("CREATE DATABASE {SCHEMA}"));
    if !matches!(created, Err(ClientError::Refused { code: EXISTS, .. })) {
        granted(created, "the grant CREATE")?;
        return Ok(true);
    }
    let question = format!(
        "{primary} has a schema {SCHEMA} already. The lab makes tables of its own in it, and removes them afterwards."
    );
    ensure!(
        asked.reuses_schema || agrees(&question)?,
        "{primary} has a schema {SCHEMA} already: remove it, or have the lab write into it with --reuse-schema"
    );
    let tables = of_lab(client)?;
    ensure!(
        tables.is_empty(),
        "the schema {SCHEMA} on {primary} has tables that the lab would replace: remove those that a run has left which \
         was killed, and rename those that are yours: {}",
        tables.join(", ")
    );
    Ok(false)
}

/// A question on a terminal; without one, no.
fn agrees(question: &str) -> io::Result<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(false);
    }
    eprint!("{question} Go on? [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The account may do all that the tables need.
fn attempt(server: Server) -> anyhow::Result<()> {
    let mut client = granted(server.connect(), "grants")?;
    for (grant, statement) in TRIALS {
        granted(client.query(statement), &format!("the grant {grant}"))?;
    }
    Ok(())
}

/// Tells what the account lacks where the server has refused something.
fn granted<T>(tried: Result<T, ClientError>, lacks: &str) -> anyhow::Result<T> {
    match tried {
        Err(ClientError::Refused { message, .. }) => {
            bail!("the account needs {lacks} on {SCHEMA}.*: {message}")
        }
        tried => Ok(tried?),
    }
}

/// What was there before stays.
fn remove(server: Server, is_new: bool) -> Result<(), ClientError> {
    let mut client = server.connect()?;
    // Sessions that were cut off may hold locks for a while.
    client.query("SET lock_wait_timeout = 20")?;
    if is_new {
        let of_runs = format!(
            "SELECT id FROM information_schema.processlist WHERE db = '{SCHEMA}' AND id <> CONNECTION_ID()"
        );
        for id in client.query(&of_runs)?.rows.into_iter().flatten().flatten() {
            // It may have ended.
            let _ = client.query(&format!("KILL {id}"));
        }
        client.query(&format!("DROP DATABASE {SCHEMA}"))?;
        return Ok(());
    }
    let tables = of_lab(&mut client)?;
    if tables.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = tables.iter().map(|table| format!("`{table}`")).collect();
    client.query(&format!("DROP TABLE IF EXISTS {}", names.join(", ")))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        sync::{Mutex, PoisonError},
    };

    use clap::Parser;
    use sandbox::{Kind, Sandbox, Spec};

    use super::*;
    use crate::{
        cache::rig,
        report::{ReportArgs, report},
    };

    /// What is done at the end of the process is one thing at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: ReportArgs,
    }

    fn asked<'a>(server: &'a str, reuses_schema: bool) -> Asked<'a> {
        Asked {
            servers: vec![server],
            user: Some("lab"),
            password_env: None,
            reuses_schema,
            contenders: &[],
        }
    }

    fn schemas(servers: &Sandbox) -> String {
        let schemas = servers.primary().sql(&format!("SHOW DATABASES LIKE '{SCHEMA}'"));
        schemas.unwrap().trim().to_owned()
    }

    #[test]
    fn servers_are_kinds_or_addresses() {
        let own = |text: &str| Ok(Servers::Own(text.to_owned()));
        assert_eq!("mysql".parse(), Ok(Servers::Started(ServerKind::Mysql)));
        for address in ["db.example:3306", "127.0.0.1:1", "[::1]:3306"] {
            assert_eq!(address.parse::<Servers>(), own(address));
        }
        for wrong in ["oracle", "db.example", ":3306", "db.example:port"] {
            assert!(wrong.parse::<Servers>().is_err(), "{wrong}");
        }
    }

    /// A gateway that is not the lab's.
    fn haproxy_before(servers: &Sandbox, folder: &Path) -> (child::ListeningChild, SocketAddr) {
        let program = rig::find_program(&["haproxy"]).unwrap();
        rig::start_haproxy(&program, None, &servers.primary().address(), folder).unwrap()
    }

    #[test]
    fn contenders_lead_to_them() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || {
            let servers = Sandbox::start(Spec::new(Kind::Mariadb)).unwrap();
            let grant = "CREATE USER lab@'127.0.0.1'; GRANT ALL ON forebay_bench.* TO lab@'127.0.0.1'";
            servers.primary().sql(grant).unwrap();
            servers
        };
        let (servers, others) = (start(), start());
        let folder = tempfile::tempdir().unwrap();
        let (_haproxy, right) = haproxy_before(&servers, folder.path());
        let address = servers.primary().address();
        let contender = |place: &str| [format!("mine={place}").parse().unwrap()];
        let made = |contenders: &[Foreign]| {
            Own::new(&Asked {
                contenders,
                ..asked(&address, false)
            })
        };
        let error = |place: &str| format!("{:#}", made(&contender(place)).unwrap_err());

        let own = made(&contender(&right.to_string())).unwrap();
        assert_eq!(own.contenders, [("mine".to_owned(), right)]);
        drop(own);
        let unreachable = error("127.0.0.1:1");
        assert!(
            unreachable.contains("--contender mine=127.0.0.1:1: it cannot be reached"),
            "{unreachable}"
        );
        let elsewhere = others.primary().address();
        let without = error(&elsewhere);
        assert!(
            without.contains("it does not lead to the schema forebay_bench of --servers: error 1049"),
            "{without}"
        );
        let root = |sql: &str| others.primary().sql(sql).unwrap();
        root(
            "CREATE DATABASE forebay_bench; CREATE TABLE forebay_bench.lab_mark (id VARCHAR(40)); \
             INSERT INTO forebay_bench.lab_mark VALUES ('1')",
        );
        let other = error(&elsewhere);
        assert!(
            other.contains("what was written to the first of --servers is not seen"),
            "{other}"
        );
        assert_eq!(schemas(&servers), "", "nothing is left");
    }

    #[test]
    fn a_report_is_made_on_them_and_leaves_nothing() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let servers = Sandbox::start(Spec::new(Kind::Mariadb)).unwrap();
        servers
            .primary()
            .sql("CREATE USER lab@'127.0.0.1'; GRANT ALL ON forebay_bench.* TO lab@'127.0.0.1'")
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (_haproxy, before) = haproxy_before(&servers, folder.path());
        let words = format!(
            "report all --tables L4,P2 --quick --rounds 1 --rows 50 --contenders direct --servers {} --user lab --contender mine={before} --output {}",
            servers.primary().address(),
            folder.path().display()
        );
        report(&Cli::try_parse_from(words.split(' ')).unwrap().args).unwrap();
        assert_eq!(schemas(&servers), "");
        let results = std::fs::read_to_string(folder.path().join("results.json")).unwrap();
        let results: serde_json::Value = serde_json::from_str(&results).unwrap();
        let [left_out, made] = [&results["sections"][0], &results["sections"][1]];
        assert_eq!(
            (&left_out["number"], &left_out["is_here"]),
            (&"P2".into(), &false.into())
        );
        assert!(
            left_out["text"]
                .as_str()
                .unwrap()
                .contains("Left out on your own servers")
        );
        assert_eq!(
            (&made["number"], &made["failed"]),
            (&"L4".into(), &serde_json::Value::Null)
        );
        assert_eq!(made["figures"][0]["rounds"].as_array().unwrap().len(), 1);
        let ratio = &made["ratios"][0];
        assert_eq!((&ratio["of"], &ratio["to"]), (&"mine".into(), &"direct".into()));
        assert_eq!(results["options"][1], format!("contender mine: at {before}"));
    }

    #[test]
    fn what_is_wrong_is_told_and_the_schema_goes_afterwards() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let servers = Sandbox::start(Spec::new(Kind::Mariadb)).unwrap();
        let root = |sql: &str| servers.primary().sql(sql).unwrap();
        let address = servers.primary().address();
        let error = |asked: &Asked<'_>| format!("{:#}", Own::new(asked).unwrap_err());

        let unreachable = error(&asked("127.0.0.1:1", false));
        assert!(unreachable.contains("--servers 127.0.0.1:1: "), "{unreachable}");
        let unset = error(&Asked {
            password_env: Some("FOREBAY_NO_SUCH_VARIABLE"),
            ..asked(&address, false)
        });
        assert!(
            unset.contains("the variable FOREBAY_NO_SUCH_VARIABLE: environment variable not found"),
            "{unset}"
        );
        let unknown = error(&asked(&address, false));
        assert!(unknown.contains("Access denied for user 'lab'"), "{unknown}");

        root("CREATE USER lab@'127.0.0.1'");
        let none = error(&asked(&address, false));
        assert!(
            none.contains("needs the grant CREATE on forebay_bench.*"),
            "{none}"
        );
        root("GRANT CREATE, INSERT, SELECT, DROP ON forebay_bench.* TO lab@'127.0.0.1'");
        let some = error(&asked(&address, false));
        assert!(
            some.contains("needs the grant UPDATE on forebay_bench.*"),
            "{some}"
        );
        assert_eq!(schemas(&servers), "", "what fails leaves nothing");

        root("GRANT ALL ON forebay_bench.* TO lab@'127.0.0.1'");
        let own = Own::new(&asked(&address, false)).unwrap();
        assert!(own.version.contains("MariaDB"), "{}", own.version);
        assert_eq!(schemas(&servers), SCHEMA);
        drop(own);
        assert_eq!(schemas(&servers), "");

        root(
            "CREATE DATABASE forebay_bench; CREATE TABLE forebay_bench.mine (id INT); CREATE TABLE forebay_bench.sbtest_mine (id INT)",
        );
        let there = error(&asked(&address, false));
        assert!(
            there.contains("remove it, or have the lab write into it with --reuse-schema"),
            "{there}"
        );
        root("CREATE TABLE forebay_bench.orders (id INT); CREATE TABLE forebay_bench.lab_mark (id INT)");
        let replaced = error(&asked(&address, true));
        assert!(
            replaced.contains("rename those that are yours: lab_mark, orders"),
            "{replaced}"
        );
        root("DROP TABLE forebay_bench.orders, forebay_bench.lab_mark");
        let own = Own::new(&asked(&address, true)).unwrap();
        Client::connect(own.servers[0], own.account)
            .unwrap()
            .query("CREATE TABLE sbtest1 (id INT)")
            .unwrap();
        drop(own);
        let left = root("SHOW TABLES IN forebay_bench");
        assert_eq!(
            left.split_whitespace().collect::<Vec<_>>(),
            ["mine", "sbtest_mine"]
        );
    }
}
