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
    /// The old primary was told to be read-only.
    is_demoted: bool,
    /// The new one was told to replicate no more.
    is_stopped: bool,
    /// What the old one had when the new one had all of it.
    handed_over: String,
}

pub(super) async fn run(switchover: &Switchover, check_only: bool) -> Result<(), Failure> {
    let mut parts = check(switchover).await.map_err(Failure::Refused)?;
    if check_only {
        parts.close().await;
        return Ok(());
    }
    let paused = switchover.pause().await.map_err(Failure::Undone)?;
    parts.hurry(Some(paused.until));
    let handed_over = match parts.hand_over(switchover).await {
        // As long as it still knows whom it followed it can go on with that.
        Ok(()) => parts.new.run(forget(parts.new.flavor)).await,
        failed => failed,
    };
    parts.hurry(None);
    if let Err(reason) = handed_over {
        let failure = parts.take_back(switchover, reason).await;
        drop(paused);
        return Err(failure);
    }
    let promoted = parts.promote(switchover, paused.until).await;
    let followed = match &promoted {
        Ok(()) => switchover.until_followed(switchover.step_end()).await,
        Err(_) => Ok(()),
    };
    drop(paused);
    promoted.map_err(Failure::Failed)?;
    parts.follow(switchover).await;
    parts.close().await;
    followed.map_err(Failure::Failed)
}

/// Finds out whether it can be done, and who takes part.
async fn check(switchover: &Switchover) -> Result<Parts, String> {
    let mut old = switchover.client(&switchover.old).await?;
    let mut new = switchover.client(&switchover.new).await?;
    // So that two gateways do not switch at the same time.
    old.lock().await?;
    new.lock().await?;
    is_primary(&mut old).await?;
    let source = source(&mut new).await?;
    let source = source.ok_or_else(|| format!("{} replicates from nobody", new.name()))?;
    source.may_take_over(&new)?;
    let identity = old.value(identity(old.flavor)).await?;
    if source.identity.as_deref() != Some(identity.as_str()) {
        return Err(format!("{} does not replicate from {}", new.name(), old.name()));
    }
    may_change(&mut old, &mut new).await?;
    may_have_replicas(&mut new).await?;
    has_nothing_of_its_own(&mut old, &mut new).await?;
    let address = reached_at(&mut new).await?;
    let others = others(switchover, &source).await;
    replicates(switchover).await?;
    tell_of_events(switchover, &mut old).await;
    // What takes long is done while statements go on.
    let position = position(&mut old).await?;
    catch_up(&mut new, &position).await?;
    let tls = source.tls;
    switchover.report.step(format!("{} can take over", new.name()));
    Ok(Parts {
        old,
        new,
        others,
        address,
        tls,
        is_demoted: false,
        is_stopped: false,
        handed_over: String::new(),
    })
}

impl Parts {
    /// Until it is lifted each step has to be done by then: statements wait.
    fn hurry(&mut self, until: Option<Instant>) {
        (self.old.until, self.new.until) = (until, until);
    }

    /// The old primary takes no more writes, and the new one has all that there are.
    async fn hand_over(&mut self, switchover: &Switchover) -> Result<(), String> {
        let (old, new) = (&mut self.old, &mut self.new);
        // Somebody may have switched since the check.
        is_primary(old).await?;
        let wait = seconds(old.left() / 2);
        old.run(&format!("SET SESSION lock_wait_timeout = {wait}"))
            .await?;
        self.is_demoted = true;
        old.run(read_only(old.flavor)).await?;
        let name = old.name().to_owned();
        switchover.report.step(format!("{name} is read-only"));
        let mut last = position(old).await?;
        for _ in 0..ROUNDS {
            catch_up(new, &last).await?;
            let now = position(old).await?;
            if now != last {
                last = now;
                continue;
            }
            switchover
                .report
                .step(format!("{} has all that {name} has", new.name()));
            self.is_stopped = true;
            new.run(stop(new.flavor)).await?;
            if position(old).await? == last {
                self.handed_over = last;
                return Ok(());
            }
            break;
        }
        Err(format!(
            "somebody writes to {name} although it is read-only: an account with READ_ONLY ADMIN, CONNECTION_ADMIN or SUPER, \
             or an event"
        ))
    }

    /// Puts back what [`hand_over`](Self::hand_over) has changed.
    async fn take_back(&mut self, switchover: &Switchover, reason: String) -> Failure {
        let mut failed = Vec::new();
        if self.is_stopped
            && let Err(error) = self.new.run(start(self.new.flavor)).await
        {
            failed.push(error);
        }
        if self.is_demoted
            && let Err(error) = take_writes(&mut self.old, switchover.step_end()).await
        {
            failed.push(error);
        }
        match failed.is_empty() {
            true => {
                let name = self.old.name();
                switchover.report.step(format!("{name} takes writes, as before"));
                Failure::Undone(reason)
            }
            false => Failure::Failed(format!(
                "{reason}; and it could not be put back: {}",
                failed.join("; ")
            )),
        }
    }

    /// The new primary takes writes.
    async fn promote(&mut self, switchover: &Switchover, until: Instant) -> Result<(), String> {
        take_writes(&mut self.new, until).await?;
        switchover
            .report
            .step(format!("{} takes writes", self.new.name()));
        Ok(())
    }

    /// The others follow the new primary, the old one included. That one does not is told, and hinders
    /// nobody.
    async fn follow(&mut self, switchover: &Switchover) {
        let account = switchover.config.replication.as_ref();
        let user = account.map_or(&switchover.config.user, |account| &account.user);
        let password = password(&switchover.config);
        for other in &mut self.others {
            let change = change(other.flavor, &self.address, None, self.tls);
            let stopped = other.run(stop(other.flavor)).await;
            let result = match stopped {
                Ok(()) => follow_now(switchover, other, &change).await,
                stopped => stopped,
            };
            tell(switchover, other, result);
        }
        let old = &mut self.old;
        let change = change(old.flavor, &self.address, Some((user, password)), self.tls);
        let result = match has_no_more(old, &self.handed_over).await {
            Ok(()) => follow_now(switchover, old, &change).await,
            failed => failed,
        };
        tell(switchover, old, result);
    }

    async fn close(self) {
        for client in [self.old, self.new].into_iter().chain(self.others) {
            client.close().await;
        }
    }
}

/// The password by which the old primary is to replicate.
fn password(config: &config::Switchover) -> &str {
    let password = match &config.replication {
        Some(account) => &account.password,
        None => &config.password,
    };
    password.as_ref().map_or("", |password| password.reveal())
}

/// Whether a server takes writes and follows nobody: what the gateway knows may be a look old.
async fn is_primary(old: &mut Client) -> Result<(), String> {
    let is_read_only = old.value("SELECT @@GLOBAL.read_only").await? != "0";
    if is_read_only || source(old).await?.is_some() {
        return Err(format!(
            "{} is not the primary any more: it is read-only, or replicates itself",
            old.name()
        ));
    }
    Ok(())
}

/// Makes a server take writes. No other does meanwhile, so that statements that are lost with their
/// connection are said again while there is time: twice is as good as once.
pub(super) async fn take_writes(client: &mut Client, until: Instant) -> Result<(), String> {
    loop {
        let told = make_writable(client).await;
        if told.is_ok() || !client.is_lost() || Instant::now() >= until {
            return told;
        }
        tokio::time::sleep(5 * LOOK_EVERY).await;
    }
}

/// Makes one attempt, and looks whether the server takes writes then.
async fn make_writable(client: &mut Client) -> Result<(), String> {
    for statement in writable(client.flavor) {
        client.run(statement).await?;
    }
    match client.value("SELECT @@GLOBAL.read_only").await?.as_str() {
        "0" => Ok(()),
        _ => Err(format!("{} is still read-only", client.name())),
    }
}

/// Whether the old primary has what the new one has, and nothing else. It follows from there on.
async fn has_no_more(old: &mut Client, handed_over: &str) -> Result<(), String> {
    let has = position(old).await?;
    if has != handed_over {
        return Err(format!(
            "somebody has written there past read_only, which {has} has and {handed_over} has not: those transactions are on no \
             other server"
        ));
    }
    match old.flavor {
        Flavor::MariaDb => {
            old.run("SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos")
                .await
        }
        Flavor::MySql => Ok(()),
    }
}

fn identity(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::MySql => "SELECT @@GLOBAL.server_uuid",
        Flavor::MariaDb => "SELECT @@GLOBAL.server_id",
    }
}

/// Where a replica gets its transactions from.
struct Source {
    host: String,
    port: String,
    /// Of the server, as `identity` asks for it.
    identity: Option<String>,
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
            "Replicate_Do_Domain_Ids",
            "Replicate_Ignore_Domain_Ids",
            "Replicate_Ignore_Server_Ids",
        ];
        let by_gtid = match row.text(&["Using_Gtid"]) {
            Some(using) => using != "No",
            None => row.is_on(&["Auto_Position"]) == Some(true),
        };
        Some(Self {
            host: row.text(&["Source_Host", "Master_Host"])?,
            port: row.text(&["Source_Port", "Master_Port"])?,
            identity: row.text(&["Source_UUID", "Master_UUID", "Master_Server_Id"]),
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
    let errant = match new.flavor {
        Flavor::MySql => {
            let its = position(new).await?;
            let statement = format!("SELECT GTID_SUBTRACT('{its}', @@GLOBAL.gtid_executed)");
            old.value(&statement).await?
        }
        Flavor::MariaDb => {
            const STATE: &str = "SELECT @@GLOBAL.gtid_binlog_state";
            let its = new.value(STATE).await?;
            ahead(&its, &old.value(STATE).await?).join(",")
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

/// Of transactions as MariaDB writes them, the last of each server in each domain, those that `known` lacks.
fn ahead<'p>(own: &'p str, known: &str) -> Vec<&'p str> {
    fn parts(state: &str) -> impl Iterator<Item = (&str, &str, u64)> {
        state.split(',').filter_map(|part| {
            let (of, sequence) = part.rsplit_once('-')?;
            Some((part, of, sequence.parse().ok()?))
        })
    }
    let known_of = |of: &str| {
        let known = parts(known).find(|(_, known, _)| *known == of);
        known.map_or(0, |(_, _, sequence)| sequence)
    };
    parts(own)
        .filter(|(_, of, sequence)| *sequence > known_of(of))
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
    // MySQL keeps no longer ones.
    const LONGEST: usize = 32;
    if password(&switchover.config).len() > LONGEST {
        return Err(format!(
            "the password for replication is longer than {LONGEST} bytes"
        ));
    }
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
            "{old} has events that are enabled: disable them there, where those of privileged accounts write past read_only, and \
             enable them on {new}"
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
async fn catch_up(replica: &mut Client, position: &str) -> Result<(), String> {
    // The servers count whole seconds, and the connection has the same limit.
    let limit = seconds(replica.left()).saturating_sub(1).max(1);
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
    // What it cannot apply it says a moment after it has begun.
    let mut looks_well = 0;
    while looks_well < 5 {
        match source(client).await?.is_some_and(|source| source.runs) {
            true => looks_well += 1,
            false if Instant::now() >= until => {
                return Err("its replication does not run: its SHOW REPLICA STATUS tells why".to_owned());
            }
            false => looks_well = 0,
        }
        tokio::time::sleep(5 * LOOK_EVERY).await;
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
    fn transactions_of_ones_own_are_found() {
        assert_eq!(ahead("0-1-5,1-2-7", "0-1-5,1-2-9"), [""; 0]);
        assert_eq!(
            ahead("0-1-5,0-2-3", "0-1-105"),
            ["0-2-3"],
            "of a server of its own"
        );
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
