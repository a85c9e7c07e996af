//! The account of a switchover, on one server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_wire::gtid::Flavor;
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::conversation::{Bounds, Rows, rows};
use crate::direct::Direct;
use crate::login::Account;
use crate::server::Server;

/// The lock keeps two gateways from switching at the same time. A server may have yet to free the lock of a
/// connection that has just ended.
const LOCK: &str = "SELECT GET_LOCK('forebay.switchover', 1)";

/// A connection of its own. Every statement has a limit of time.
pub(super) struct Client {
    cluster: Arc<Cluster>,
    pub(super) server: Arc<Server>,
    config: config::Switchover,
    /// `None` once a statement was given up on it.
    direct: Option<Direct>,
    /// It has the lock, which goes with its connection.
    is_locked: bool,
    /// When all has to be done, whatever each step may take.
    pub(super) until: Option<Instant>,
    pub(super) flavor: Flavor,
}

impl Client {
    pub(super) async fn open(
        cluster: &Arc<Cluster>,
        server: &Arc<Server>,
        config: &config::Switchover,
    ) -> Result<Self, String> {
        let direct = log_in(cluster, server, config).await?;
        Ok(Self {
            cluster: Arc::clone(cluster),
            server: Arc::clone(server),
            config: config.clone(),
            flavor: direct.flavor,
            direct: Some(direct),
            is_locked: false,
            until: None,
        })
    }

    pub(super) fn name(&self) -> &str {
        self.server.name()
    }

    /// The connection was lost, or given up: the next statement has another one.
    pub(super) fn is_lost(&self) -> bool {
        self.direct.is_none()
    }

    /// How long the next step may take.
    pub(super) fn left(&self) -> Duration {
        let limit = self.config.step_timeout;
        let left = self
            .until
            .map(|until| until.saturating_duration_since(Instant::now()));
        left.map_or(limit, |left| left.min(limit))
    }

    /// Keeps others from switching over with this server.
    ///
    /// # Errors
    /// Somebody does.
    pub(super) async fn lock(&mut self) -> Result<(), String> {
        self.take_lock().await?;
        self.is_locked = true;
        Ok(())
    }

    async fn take_lock(&mut self) -> Result<(), String> {
        let name = self.server.name().to_owned();
        let limit = self.config.step_timeout;
        let Some(direct) = &mut self.direct else {
            return Err(format!("server {name} is not reached"));
        };
        let asked = rows(&mut direct.stream, direct.capabilities, LOCK, Bounds::USUAL);
        let rows = timeout(limit, asked)
            .await
            .map_err(|_| format!("server {name}: no answer within step_timeout"))?
            .map_err(|error| format!("server {name}: {error}"))?;
        match rows.texts().next().as_deref() {
            Some("1") => Ok(()),
            _ => Err(format!(
                "another switchover is under way: somebody has the lock forebay.switchover on {name}"
            )),
        }
    }

    /// The statement's rows.
    ///
    /// # Errors
    /// In words that name the server and the statement.
    pub(super) async fn rows(&mut self, statement: &str) -> Result<Rows, String> {
        self.ask(statement, statement).await
    }

    /// The first column of its first row; nothing where there is none.
    pub(super) async fn value(&mut self, statement: &str) -> Result<String, String> {
        let rows = self.rows(statement).await?;
        Ok(rows.texts().next().unwrap_or_default().replace('\n', ""))
    }

    pub(super) async fn run(&mut self, statement: &str) -> Result<(), String> {
        self.rows(statement).await.map(drop)
    }

    /// The same for a statement that has a password in it: errors say `what` in its place.
    pub(super) async fn run_secret(&mut self, statement: &str, what: &str) -> Result<(), String> {
        self.ask(statement, what).await.map(drop)
    }

    async fn ask(&mut self, statement: &str, what: &str) -> Result<Rows, String> {
        let name = self.server.name().to_owned();
        if self.direct.is_none() {
            self.direct = Some(log_in(&self.cluster, &self.server, &self.config).await?);
            if self.is_locked
                && let Err(error) = self.take_lock().await
            {
                self.direct = None;
                return Err(error);
            }
        }
        let limit = self.left();
        let Some(direct) = &mut self.direct else {
            return Err(format!("server {name} is not reached"));
        };
        let (stream, capabilities) = (&mut direct.stream, direct.capabilities);
        let asked = rows(stream, capabilities, statement, Bounds::USUAL);
        match timeout(limit, asked).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                if !error.is_refusal() {
                    self.direct = None;
                }
                Err(format!("server {name}: {what}: {error}"))
            }
            Err(_) => {
                let given_up = self.give_up().await;
                Err(format!(
                    "server {name}: {what}: not done within {limit:?}{given_up}"
                ))
            }
        }
    }

    /// A server goes on with a statement whose client is gone, and what it does later nobody wants any more.
    async fn give_up(&mut self) -> String {
        let Some(stuck) = self.direct.take() else {
            return String::new();
        };
        let kill = format!("KILL {}", stuck.thread_id);
        let killing = async {
            let mut direct = log_in(&self.cluster, &self.server, &self.config).await?;
            let killed = rows(&mut direct.stream, direct.capabilities, &kill, Bounds::USUAL).await;
            direct.close().await;
            killed.map(drop).map_err(|error| error.to_string())
        };
        match timeout(self.config.step_timeout, killing).await {
            Ok(Ok(())) => String::new(),
            Ok(Err(error)) => format!(", and it could not be ended: {error}"),
            Err(_) => ", and it could not be ended in time".to_owned(),
        }
    }

    /// Says good-bye; locks that it holds are free then.
    pub(super) async fn close(self) {
        if let Some(direct) = self.direct {
            direct.close().await;
        }
    }
}

/// In whole seconds, at least one, as servers take limits.
pub(super) fn seconds(limit: Duration) -> u64 {
    limit.as_secs().max(1)
}

async fn log_in(cluster: &Cluster, server: &Server, config: &config::Switchover) -> Result<Direct, String> {
    let account = Account::of(&config.user, config.password.as_ref());
    let opened = Direct::open(cluster, server, account).await;
    let told = |error: &dyn std::fmt::Display| format!("server {}: {error}", server.name());
    let mut direct = opened.map_err(|error| told(&error))?;
    // Literals are written that way.
    let mode = "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'";
    let set = rows(&mut direct.stream, direct.capabilities, mode, Bounds::USUAL);
    match timeout(config.step_timeout, set).await {
        Ok(Ok(_)) => Ok(direct),
        Ok(Err(error)) => Err(told(&error)),
        Err(_) => Err(told(&"no answer within step_timeout")),
    }
}
