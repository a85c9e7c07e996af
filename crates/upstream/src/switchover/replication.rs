//! Asynchronous replication: the primary becomes a replica of one of its replicas. MariaDB and MySQL, by
//! GTID.
//!
//! A server is told to follow another by the address that its replicas use, which may be another than the
//! gateway's: `report_host` where it is set.

use std::time::Instant;

use config::ServerAddress;
use mysql_wire::gtid::Flavor;

use super::client::{Client, seconds};
use super::{Failure, LOOK_EVERY, Switchover};
use crate::conversation::Row;

/// So often it is looked whether the old primary is still, and waited for what it has written meanwhile.
const ROUNDS: u32 = 3;

/// Taken on both servers, so that two gateways do not switch at the same time.
const LOCK: &str = "SELECT GET_LOCK('forebay.switchover', 0)";

/// The servers that take part.
struct Parts {
    old: Client,
    new: Client,
    /// The other replicas of the old primary.
    others: Vec<Client>,
    /// Where replicas find the new primary.
    address: (String, u16),
    /// Replicas use TLS.
    tls: bool,
}

pub(super) async fn run(switchover: &Switchover, check_only: bool) -> Result<(), Failure> {
    let mut parts = check(switchover).await.map_err(Failure::Refused)?;
    if check_only {
        return parts.close().await;
    }
    let paused = switchover.pause().await.map_err(Failure::Undone)?;
    if let Err(reason) = parts.hand_over(switchover).await {
        let failure = parts.take_back(switchover, reason).await;
        drop(paused);
        return Err(failure);
    }
    let promoted = parts.promote(switchover).await;
    let followed = match &promoted {
        Ok(()) => switchover.until_followed().await,
        Err(_) => Ok(()),
    };
    drop(paused);
    promoted.map_err(Failure::Failed)?;
    parts.follow(switchover).await;
    parts.close().await?;
    followed.map_err(Failure::Failed)
}

/// Finds out whether it can be done, and who takes part.
async fn check(switchover: &Switchover) -> Result<Parts, String> {
    let mut old = switchover.client(&switchover.old).await?;
    let mut new = switchover.client(&switchover.new).await?;
    for client in [&mut old, &mut new] {
        if client.value(LOCK).await? != "1" {
            return Err(format!(
                "another switchover is under way: somebody has the lock forebay.switchover on {}",
                client.name()
            ));
        }
    }
    let source = source(&mut new).await?;
    let source = source.ok_or_else(|| format!("{} replicates from nobody", new.name()))?;
    source.may_take_over(&new)?;
    may_change(&mut old, &mut new).await?;
    may_have_replicas(&mut new).await?;
    has_nothing_of_its_own(&mut old, &mut new).await?;
    let address = reached_at(&mut new).await?;
    let others = others(switchover, &source).await;
    replicates(switchover).await?;
    tell_of_events(switchover, &mut old).await;
    // What takes long is done while statements go on.
    let position = position(&mut old).await?;
    catch_up(switchover, &mut new, &position).await?;
    let tls = source.tls;
    switchover.report.step(format!("{} can take over", new.name()));
    Ok(Parts {
        old,
        new,
        others,
        address,
        tls,
    })
}

impl Parts {
    /// The old primary takes no more writes, and the new one has all that there are.
    async fn hand_over(&mut self, switchover: &Switchover) -> Result<(), String> {
        let (old, new) = (&mut self.old, &mut self.new);
        let wait = seconds(switchover.config.step_timeout / 2);
        old.run(&format!("SET SESSION lock_wait_timeout = {wait}"))
            .await?;
        old.run(read_only(old.flavor)).await?;
        let name = old.name().to_owned();
        switchover.report.step(format!("{name} is read-only"));
        let mut last = position(old).await?;
        for _ in 0..ROUNDS {
            catch_up(switchover, new, &last).await?;
            let now = position(old).await?;
            if now == last {
                switchover
                    .report
                    .step(format!("{} has all that {name} has", new.name()));
                return new.run(stop(new.flavor)).await;
            }
            last = now;
        }
        Err(format!(
            "somebody writes to {name} although it is read-only: an account with READ_ONLY ADMIN, CONNECTION_ADMIN or SUPER, \
             or an event"
        ))
    }

    /// Puts back what [`hand_over`](Self::hand_over) has changed.
    async fn take_back(&mut self, switchover: &Switchover, reason: String) -> Failure {
        let (old, new) = (&mut self.old, &mut self.new);
        let mut failed = Vec::new();
        // It follows already where it was not stopped.
        if let Err(error) = new.run(start(new.flavor)).await {
            failed.push(error);
        }
        for statement in writable(old.flavor) {
            if let Err(error) = old.run(statement).await {
                failed.push(error);
            }
        }
        match failed.is_empty() {
            true => {
                switchover
                    .report
                    .step(format!("{} takes writes again", old.name()));
                Failure::Undone(reason)
            }
            false => Failure::Failed(format!(
                "{reason}; and it could not be put back: {}",
                failed.join("; ")
            )),
        }
    }

    /// The new primary takes writes.
    async fn promote(&mut self, switchover: &Switchover) -> Result<(), String> {
        let new = &mut self.new;
        new.run(forget(new.flavor)).await?;
        for statement in writable(new.flavor) {
            new.run(statement).await?;
        }
        switchover.report.step(format!("{} takes writes", new.name()));
        Ok(())
    }

    /// The others follow the new primary, the old one included. That one does not is told, and hinders
    /// nobody.
    async fn follow(&mut self, switchover: &Switchover) {
        let Self { old, others, .. } = self;
        let account = switchover.config.replication.as_ref();
        let user = account.map_or(&switchover.config.user, |account| &account.user);
        let password = match account {
            Some(account) => &account.password,
            None => &switchover.config.password,
        };
        let password = password.as_ref().map_or("", |password| password.reveal());
        for other in others {
            let change = change(other.flavor, &self.address, None, self.tls);
            let stopped = other.run(stop(other.flavor)).await;
            let result = match stopped {
                Ok(()) => follow_now(switchover, other, &change).await,
                stopped => stopped,
            };
            tell(switchover, other, result);
        }
        let change = change(old.flavor, &self.address, Some((user, password)), self.tls);
        let result = match old.flavor {
            // It has written what it follows from here on.
            Flavor::MariaDb => {
                old.run("SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos")
                    .await
            }
            Flavor::MySql => Ok(()),
        };
        let result = match result {
            Ok(()) => follow_now(switchover, old, &change).await,
            failed => failed,
        };
        tell(switchover, old, result);
    }

    async fn close(self) -> Result<(), Failure> {
        for client in [self.old, self.new].into_iter().chain(self.others) {
            client.close().await;
        }
        Ok(())
    }
}

/// Where a replica gets its transactions from.
struct Source {
    host: String,
    port: String,
    runs: bool,
    by_gtid: bool,
    filters: bool,
    /// It is one of several that a server may have.
    named: bool,
    tls: bool,
}

impl Source {
    fn of(row: Row<'_>) -> Option<Self> {
        let is_on = |names: &[&str]| row.text(names).as_deref() == Some("Yes");
        let filters = [
            "Replicate_Do_DB",
            "Replicate_Ignore_DB",
            "Replicate_Do_Table",
            "Replicate_Ignore_Table",
            "Replicate_Wild_Do_Table",
            "Replicate_Wild_Ignore_Table",
            "Replicate_Rewrite_DB",
        ];
        let by_gtid = match row.text(&["Using_Gtid"]) {
            Some(using) => using != "No",
            None => row.is_on(&["Auto_Position"]) == Some(true),
        };
        Some(Self {
            host: row.text(&["Source_Host", "Master_Host"])?,
            port: row.text(&["Source_Port", "Master_Port"])?,
            runs: is_on(&["Replica_IO_Running", "Slave_IO_Running"])
                && is_on(&["Replica_SQL_Running", "Slave_SQL_Running"]),
            by_gtid,
            filters: filters.iter().any(|name| row.text(&[*name]).is_some()),
            named: row.text(&["Connection_name", "Channel_Name"]).is_some(),
            tls: is_on(&["Source_SSL_Allowed", "Master_SSL_Allowed"]),
        })
    }

    fn may_take_over(&self, of: &Client) -> Result<(), String> {
        let name = of.name();
        let cause = match self {
            Self { runs: false, .. } => "does not replicate at the moment",
            Self { by_gtid: false, .. } => "replicates by files and positions, not by GTIDs",
            Self { named: true, .. } => "replicates by a channel or connection with a name",
            Self { filters: true, .. } => "leaves out something by replication filters",
            _ => return Ok(()),
        };
        Err(format!("{name} {cause}"))
    }
}

/// Whom a server follows; `None` for nobody.
async fn source(client: &mut Client) -> Result<Option<Source>, String> {
    let statement = match client.flavor {
        Flavor::MariaDb => "SHOW ALL SLAVES STATUS",
        Flavor::MySql => "SHOW REPLICA STATUS",
    };
    let rows = client.rows(statement).await?;
    match rows.rows.len() {
        0 | 1 => Ok(rows.first().and_then(Source::of)),
        _ => Err(format!("{} replicates from several servers", client.name())),
    }
}

/// Whether the account has the privileges: by statements that change nothing.
async fn may_change(old: &mut Client, new: &mut Client) -> Result<(), String> {
    for client in [&mut *old, new] {
        client.run(read_only_as_it_is(client.flavor)).await?;
    }
    // It runs already.
    new.run(start(new.flavor)).await
}

/// A server without a binary log of what it replicates has nothing for others.
async fn may_have_replicas(new: &mut Client) -> Result<(), String> {
    let variables = new
        .rows("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'log_slave_updates', 'log_replica_updates')")
        .await?;
    let is_on = |name: &str| variables.value_of(name).is_some_and(|value| value == "ON");
    match is_on("log_bin") && (is_on("log_slave_updates") || is_on("log_replica_updates")) {
        true => Ok(()),
        false => Err(format!(
            "{} does not log what it replicates (log_bin, log_slave_updates), so nobody could follow it",
            new.name()
        )),
    }
}

/// Transactions that only the new primary has would reach the others, or break their replication.
async fn has_nothing_of_its_own(old: &mut Client, new: &mut Client) -> Result<(), String> {
    // What the old one has written since is more.
    let its = position(new).await?;
    let errant = match new.flavor {
        Flavor::MySql => {
            let statement = format!("SELECT GTID_SUBTRACT('{its}', @@GLOBAL.gtid_executed)");
            old.value(&statement).await?
        }
        Flavor::MariaDb => {
            let known = position(old).await?;
            ahead(&its, &known).join(",")
        }
    };
    match errant.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{} has transactions that {} lacks: {errant}",
            new.name(),
            old.name()
        )),
    }
}

/// Of positions as MariaDB writes them, those of domains in which `own` is further.
fn ahead<'p>(own: &'p str, known: &str) -> Vec<&'p str> {
    fn parts(position: &str) -> impl Iterator<Item = (&str, &str, u64)> {
        position.split(',').filter_map(|part| {
            let (domain, rest) = part.split_once('-')?;
            let (_, sequence) = rest.split_once('-')?;
            Some((part, domain, sequence.parse().ok()?))
        })
    }
    let known_of = |domain: &str| {
        let of = parts(known).find(|(_, of, _)| *of == domain);
        of.map_or(0, |(_, _, sequence)| sequence)
    };
    parts(own)
        .filter(|(_, domain, sequence)| *sequence > known_of(domain))
        .map(|(part, _, _)| part)
        .collect()
}

/// The server's address, for replicas.
async fn reached_at(new: &mut Client) -> Result<(String, u16), String> {
    let host = new.value("SELECT @@GLOBAL.report_host").await?;
    if !host.is_empty() {
        let port = new.value("SELECT @@GLOBAL.report_port").await?;
        let port = port
            .parse()
            .map_err(|_| format!("{}: report_port is {port:?}", new.name()))?;
        return Ok((host, port));
    }
    match new.server.address() {
        ServerAddress::Host { host, port } => Ok((host.clone(), *port)),
        ServerAddress::Unix(_) => Err(format!(
            "{} is reached by a Unix socket: set report_host there, so that replicas find it",
            new.name()
        )),
    }
}

/// The other servers of the cluster that follow the same one. Who cannot be asked is told.
async fn others(switchover: &Switchover, of: &Source) -> Vec<Client> {
    let mut others = Vec::new();
    for server in switchover.cluster.servers().iter() {
        if [switchover.old.id(), switchover.new.id()].contains(&server.id()) {
            continue;
        }
        let asked = async {
            let mut client = switchover.client(server).await?;
            let source = source(&mut client).await?;
            Ok::<_, String>((client, source))
        };
        match asked.await {
            Ok((client, Some(source))) if (&source.host, &source.port) == (&of.host, &of.port) => {
                others.push(client);
            }
            Ok((client, _)) => {
                let what = format!("{} follows another server, and is left alone", client.name());
                switchover.report.warn(what);
                client.close().await;
            }
            Err(error) => {
                let name = server.name();
                switchover.report.warn(format!(
                    "{name} is not reached, and will have to be told by hand whom it follows: {error}"
                ));
            }
        }
    }
    others
}

/// Whether the account lets in by which the old primary is to replicate.
async fn replicates(switchover: &Switchover) -> Result<(), String> {
    let Some(account) = &switchover.config.replication else {
        return Ok(());
    };
    let config = config::Switchover {
        user: account.user.clone(),
        password: account.password.clone(),
        ..switchover.config.clone()
    };
    let client = Client::open(&switchover.cluster, &switchover.new, &config).await;
    client
        .map_err(|error| format!("the account of `replication`: {error}"))?
        .close()
        .await;
    Ok(())
}

/// Events do not run on replicas, and nobody enables them by himself where they are to run now.
async fn tell_of_events(switchover: &Switchover, old: &mut Client) {
    let events = old
        .value("SELECT COUNT(*) FROM information_schema.EVENTS WHERE STATUS = 'ENABLED'")
        .await;
    if events.is_ok_and(|count| !matches!(count.as_str(), "" | "0")) {
        let (old, new) = (switchover.old.name(), switchover.new.name());
        switchover.report.warn(format!(
            "{old} has events that are enabled: on {new} they are not (ALTER EVENT … ENABLE)"
        ));
    }
}

/// What a server has executed.
async fn position(client: &mut Client) -> Result<String, String> {
    let statement = match client.flavor {
        Flavor::MySql => "SELECT @@GLOBAL.gtid_executed",
        Flavor::MariaDb => "SELECT @@GLOBAL.gtid_binlog_pos",
    };
    client.value(statement).await
}

/// Waits until a replica has executed that.
async fn catch_up(switchover: &Switchover, replica: &mut Client, position: &str) -> Result<(), String> {
    // The servers count whole seconds, and the connection has the same limit.
    let limit = seconds(switchover.config.step_timeout).saturating_sub(1).max(1);
    let statement = match replica.flavor {
        Flavor::MySql => format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{position}', {limit})"),
        Flavor::MariaDb => format!("SELECT MASTER_GTID_WAIT('{position}', {limit})"),
    };
    match replica.value(&statement).await?.as_str() {
        "0" => Ok(()),
        _ => Err(format!(
            "{} has not caught up within step_timeout: it is too far behind",
            replica.name()
        )),
    }
}

async fn follow_now(switchover: &Switchover, client: &mut Client, change: &str) -> Result<(), String> {
    client.run_secret(change, "CHANGE of its source").await?;
    client.run(start(client.flavor)).await?;
    let until = Instant::now() + switchover.config.step_timeout;
    while !source(client).await?.is_some_and(|source| source.runs) {
        if Instant::now() >= until {
            return Err("its replication does not run: its SHOW REPLICA STATUS tells why".to_owned());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

fn tell(switchover: &Switchover, client: &Client, result: Result<(), String>) {
    let (name, new) = (client.name(), switchover.new.name());
    match result {
        Ok(()) => switchover.report.step(format!("{name} follows {new}")),
        Err(error) => switchover.report.warn(format!(
            "{name} does not follow {new}, and has to be told by hand: {error}"
        )),
    }
}

/// The statement by which a server follows another one. Without an account the one that it has stays.
fn change(flavor: Flavor, (host, port): &(String, u16), account: Option<(&str, &str)>, tls: bool) -> String {
    let host = quote(host);
    match flavor {
        Flavor::MariaDb => {
            let account = account.map_or_else(String::new, |(user, password)| {
                format!(
                    ", MASTER_USER = {}, MASTER_PASSWORD = {}, MASTER_SSL = {}",
                    quote(user),
                    quote(password),
                    u8::from(tls)
                )
            });
            format!(
                "CHANGE MASTER TO MASTER_HOST = {host}, MASTER_PORT = {port}{account}, MASTER_USE_GTID = slave_pos"
            )
        }
        Flavor::MySql => {
            let account = account.map_or_else(String::new, |(user, password)| {
                format!(
                    ", SOURCE_USER = {}, SOURCE_PASSWORD = {}, SOURCE_SSL = {}, GET_SOURCE_PUBLIC_KEY = 1",
                    quote(user),
                    quote(password),
                    u8::from(tls)
                )
            });
            format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = {host}, SOURCE_PORT = {port}{account}, SOURCE_AUTO_POSITION = 1"
            )
        }
    }
}

/// A literal, where backslashes mean themselves.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn read_only(flavor: Flavor) -> &'static str {
    match flavor {
        // `read_only` as well.
        Flavor::MySql => "SET GLOBAL super_read_only = ON",
        Flavor::MariaDb => "SET GLOBAL read_only = ON",
    }
}

fn read_only_as_it_is(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::MySql => "SET GLOBAL super_read_only = @@GLOBAL.super_read_only",
        Flavor::MariaDb => "SET GLOBAL read_only = @@GLOBAL.read_only",
    }
}

fn writable(flavor: Flavor) -> &'static [&'static str] {
    match flavor {
        Flavor::MySql => &["SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF"],
        Flavor::MariaDb => &["SET GLOBAL read_only = OFF"],
    }
}

fn stop(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::MySql => "STOP REPLICA",
        Flavor::MariaDb => "STOP SLAVE",
    }
}

fn start(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::MySql => "START REPLICA",
        Flavor::MariaDb => "START SLAVE",
    }
}

/// A server that follows nobody any more, also after a restart.
fn forget(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::MySql => "RESET REPLICA ALL",
        Flavor::MariaDb => "RESET SLAVE ALL",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_of_ones_own_are_found_by_domain() {
        assert_eq!(ahead("0-1-5,1-2-7", "0-1-5,1-2-9"), [""; 0]);
        assert_eq!(ahead("0-2-6,1-2-7", "0-1-5,1-2-9"), ["0-2-6"]);
        assert_eq!(ahead("0-1-5,3-3-1", "0-1-9"), ["3-3-1"], "a domain of its own");
        assert_eq!(ahead("", "0-1-9"), [""; 0]);
    }

    #[test]
    fn a_source_is_named_with_its_account_or_without() {
        let address = ("db'2".to_owned(), 3307);
        assert_eq!(
            change(Flavor::MariaDb, &address, None, true),
            "CHANGE MASTER TO MASTER_HOST = 'db''2', MASTER_PORT = 3307, MASTER_USE_GTID = slave_pos"
        );
        let mysql = change(Flavor::MySql, &address, Some(("repl", "it's")), true);
        for part in [
            "SOURCE_PASSWORD = 'it''s'",
            "SOURCE_SSL = 1",
            "SOURCE_AUTO_POSITION = 1",
        ] {
            assert!(mysql.contains(part), "{part} in {mysql}");
        }
    }
}
