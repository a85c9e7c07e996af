//! What an operator, or a program that promotes, does to servers with asynchronous replication.

use crate::batch;
use crate::{Kind, Node, PASSWORD, Sandbox, SandboxError, Spec, USER};

impl Spec {
    /// Servers that [`Sandbox::replicate_safely`] can be said to. MySQL's half of it is a plugin; MariaDB has
    /// it built in.
    #[must_use]
    pub fn semi_synchronous(self) -> Self {
        match self.kind {
            Kind::Mysql => self.option("--plugin-load-add=semisync_source.so;semisync_replica.so"),
            _ => self,
        }
    }
}

impl Sandbox {
    /// From here on commits of the primary wait until a replica has them, so that its death loses nothing
    /// that was acknowledged.
    ///
    /// # Errors
    /// The servers are not [`Spec::semi_synchronous`], or replicas do not confirm.
    pub fn replicate_safely(&self) -> Result<(), SandboxError> {
        let (on_replica, on_primary, count) = match self.kind() {
            Kind::Mysql => (
                "SET GLOBAL rpl_semi_sync_replica_enabled = ON; STOP REPLICA IO_THREAD; START REPLICA IO_THREAD",
                "SET GLOBAL rpl_semi_sync_source_timeout = 60000; SET GLOBAL rpl_semi_sync_source_enabled = ON",
                "SHOW STATUS LIKE 'Rpl_semi_sync_source_clients'",
            ),
            _ => (
                "SET GLOBAL rpl_semi_sync_slave_enabled = ON; STOP SLAVE IO_THREAD; START SLAVE IO_THREAD",
                "SET GLOBAL rpl_semi_sync_master_timeout = 60000, rpl_semi_sync_master_wait_point = AFTER_SYNC,
                     rpl_semi_sync_master_enabled = ON",
                "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'",
            ),
        };
        let (primary, replicas) = (self.primary(), &self.nodes()[1..]);
        primary.sql(on_primary)?;
        for replica in replicas {
            replica.sql(on_replica)?;
        }
        let all = format!("\t{}", replicas.len());
        primary.wait_for("confirmation by the replicas", || {
            Ok(primary.sql(count)?.trim().ends_with(&all))
        })
    }
}

impl Sandbox {
    /// Makes an account for `[cluster.NAME.switchover]`, with the privileges that the guide names.
    pub fn let_switch_over(&self, user: &str) -> Result<(), SandboxError> {
        let grants = match self.kind() {
            Kind::Mysql | Kind::GroupReplication => {
                "GRANT SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN, REPLICATION_SLAVE_ADMIN, GROUP_REPLICATION_ADMIN,
                     REPLICATION SLAVE, REPLICATION CLIENT, RELOAD, EVENT ON *.*"
            }
            Kind::Mariadb | Kind::Galera => {
                "GRANT READ_ONLY ADMIN, REPLICATION SLAVE ADMIN, REPLICATION SLAVE, SLAVE MONITOR, RELOAD, EVENT
                     ON *.*"
            }
        };
        let statements = format!(
            "CREATE USER {user}@'%' IDENTIFIED BY '{PASSWORD}';
             {grants} TO {user}@'%';
             GRANT SELECT ON performance_schema.* TO {user}@'%';"
        );
        self.primary().sql(&statements).map(drop)
    }
}

impl Node {
    /// Receives no more, and waits until all is applied that was received.
    ///
    /// # Errors
    /// It does not answer, is no replica, or has more to apply than can be done in 90 s.
    pub fn apply_received(&self) -> Result<(), SandboxError> {
        let (statements, received) = match self.kind() {
            Kind::Mysql => (
                "STOP REPLICA IO_THREAD; SHOW REPLICA STATUS",
                "Retrieved_Gtid_Set",
            ),
            _ => ("STOP SLAVE IO_THREAD; SHOW SLAVE STATUS", "Gtid_IO_Pos"),
        };
        let mut client = self.client();
        client.arg("--column-names"); // columns have other places in other versions
        let status = batch::run(client, statements, self.index())?;
        let mut lines = status.lines().map(|line| line.split('\t'));
        let names = lines.next().into_iter().flatten();
        let values = lines.next().into_iter().flatten();
        let position = names
            .zip(values)
            .find(|(name, _)| *name == received)
            .map_or_else(String::new, |(_, value)| value.replace("\\n", ""));
        self.wait_until_applied("applying what it has received", &position)
    }

    /// Waits until it has applied all of a position.
    pub(crate) fn wait_until_applied(&self, what: &str, position: &str) -> Result<(), SandboxError> {
        let wait = match self.kind() {
            Kind::Mysql | Kind::GroupReplication => "WAIT_FOR_EXECUTED_GTID_SET",
            Kind::Mariadb | Kind::Galera => "MASTER_GTID_WAIT",
        };
        let statement = format!("SELECT {wait}('{position}', 1)");
        // 0 when the position was reached; otherwise the second is over and is tried again.
        self.wait_for(what, || Ok(self.sql(&statement)?.trim() == "0"))
    }

    /// Makes a replica the primary.
    pub fn promote(&self) -> Result<(), SandboxError> {
        let statements = match self.kind() {
            Kind::Mysql => {
                "STOP REPLICA; RESET REPLICA ALL; SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF;"
            }
            _ => "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = OFF;",
        };
        self.sql(statements).map(drop)
    }

    /// Makes it follow another server; `was_primary` has written itself before.
    pub fn follow(&self, primary: &Self, was_primary: bool) -> Result<(), SandboxError> {
        let port = primary.port();
        let statements = match self.kind() {
            Kind::Mysql => format!(
                "STOP REPLICA; RESET REPLICA ALL; SET GLOBAL super_read_only = ON;
                 CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, SOURCE_USER='{USER}',
                     SOURCE_PASSWORD='{PASSWORD}', SOURCE_CONNECT_RETRY=1, SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1;
                 START REPLICA;"
            ),
            _ => {
                let position = if was_primary { "SET GLOBAL gtid_slave_pos = @@gtid_binlog_pos;" } else { "" };
                format!(
                    "STOP SLAVE; {position} SET GLOBAL read_only = ON;
                     CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='{USER}',
                         MASTER_PASSWORD='{PASSWORD}', MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos;
                     START SLAVE;"
                )
            }
        };
        self.sql(&statements).map(drop)
    }

    /// How far its binary log is, as others can be asked for.
    pub fn position(&self) -> Result<String, SandboxError> {
        let question = match self.kind() {
            Kind::Mysql | Kind::GroupReplication => "SELECT @@gtid_executed",
            Kind::Mariadb | Kind::Galera => "SELECT @@gtid_binlog_pos",
        };
        Ok(self.sql(question)?.trim().replace("\\n", ""))
    }

    /// Whether it has all of a position.
    pub fn has(&self, position: &str) -> Result<bool, SandboxError> {
        let question = match self.kind() {
            Kind::Mysql => format!("SELECT GTID_SUBSET('{position}', @@gtid_executed)"),
            _ => format!("SELECT MASTER_GTID_WAIT('{position}', 0) = 0"),
        };
        Ok(self.sql(&question)?.trim() == "1")
    }
}
