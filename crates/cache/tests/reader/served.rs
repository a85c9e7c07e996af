//! A server with mapped tables, a feed of it, and a reader.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cache::feed::{Feed, Phase};
use cache::mapping::{Decision, Mapping};
use cache::reader::{NotFetched, Reader, Want};
use cache::store::{Found, Store};
use config::{CacheAccount, CacheMapping, MappingKind, Secret, ServerAddress};
use mysql_async::prelude::Queryable;
use mysql_wire::binlog::{Value, Zone, text};
use sandbox::{Kind, Lent, Node, Sandbox, Spec};
use telemetry::Telemetry;
use tokio::task::LocalSet;
use upstream::Cluster;

/// Far above what anything here needs: a busy machine is no failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Both kinds of servers.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod mariadb { $(#[test] fn $name() { super::$name(sandbox::Kind::Mariadb); })* }
        mod mysql { $(#[test] fn $name() { super::$name(sandbox::Kind::Mysql); })* }
    };
}
pub(crate) use on_both;

pub(crate) struct Served {
    // Dropped before the server.
    pub(crate) reader: Rc<Reader>,
    pub(crate) feed: Feed,
    pub(crate) metrics: Arc<telemetry::Worker>,
    pub(crate) sandbox: Lent,
}

/// Runs `test` with a server on which `sql` was run and these mappings.
pub(crate) fn served<F: Future<Output = ()>>(
    spec: Spec,
    sql: &str,
    change: impl FnOnce(&mut config::Cache),
    mappings: Vec<CacheMapping>,
    test: impl FnOnce(Served) -> F,
) {
    let sandbox = Sandbox::lend(spec).unwrap();
    sandbox.primary().sql(sql).unwrap();
    // Another node that has a table and not its rows yet updates none of them.
    sandbox.sync().unwrap();
    let ports: Vec<u16> = sandbox.nodes().iter().map(Node::port).collect();
    served_at(&ports, sandbox, change, mappings, test);
}

/// The same, where its servers are reached at these ports.
pub(crate) fn served_at<F: Future<Output = ()>>(
    ports: &[u16],
    sandbox: Lent,
    change: impl FnOnce(&mut config::Cache),
    mappings: Vec<CacheMapping>,
    test: impl FnOnce(Served) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        let cluster = cluster(sandbox.kind(), ports);
        let mut config = config::Cache::new("main");
        let password = Some(Secret::new(sandbox::PASSWORD));
        config.account = Some(CacheAccount::new(sandbox::USER, password));
        config.strong_wait = Duration::from_secs(20);
        config.mappings = mappings;
        change(&mut config);
        let (store, writer) = Store::new(1 << 30);
        let feed = Feed::start(&config, Arc::clone(&cluster), writer).unwrap();
        let metrics = Telemetry::new(1, |_| "").worker(0);
        let feed_status = Arc::clone(feed.status());
        let reader = Reader::new(&config, cluster, store, feed_status, Arc::clone(&metrics));
        test(Served {
            reader,
            feed,
            metrics,
            sandbox,
        })
        .await;
    });
}

/// All nodes; where there are several, what they are is found out.
fn cluster(kind: Kind, ports: &[u16]) -> Arc<Cluster> {
    let servers = ports.iter().map(|&port| {
        config::Server::new(ServerAddress::Host {
            host: "127.0.0.1".to_owned(),
            port,
        })
    });
    let mut config = config::Cluster::new("main", servers.collect());
    config.topology = match kind {
        Kind::GroupReplication => config::Topology::GroupReplication,
        Kind::Galera => config::Topology::Galera,
        _ => return Cluster::new(config).unwrap(),
    };
    let often = Duration::from_millis(100);
    config.check.interval = often;
    config.monitor = Some(config::Monitor {
        password: Some(Secret::new(sandbox::PASSWORD)),
        interval: often,
        ..config::Monitor::new(sandbox::USER)
    });
    let cluster = Cluster::new(config).unwrap();
    tokio::task::spawn_local(Arc::clone(&cluster).run_checks());
    cluster
}

pub(crate) fn hash(name: &str, table: &str, key: &[&str]) -> CacheMapping {
    CacheMapping::new(name, MappingKind::Hash, table, key, &["*"])
}

impl Served {
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.sandbox.primary().sql(sql).unwrap()
    }

    /// A client of the server itself.
    pub(crate) async fn client(&self) -> mysql_async::Conn {
        self.client_of(0).await
    }

    /// A client of one node.
    pub(crate) async fn client_of(&self, node: usize) -> mysql_async::Conn {
        let options = mysql_async::OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(self.sandbox.node(node).port())
            .user(Some(sandbox::USER))
            .pass(Some(sandbox::PASSWORD))
            .prefer_socket(false);
        mysql_async::Conn::new(options).await.unwrap()
    }

    /// How a mapping is, once it is served or cannot be.
    pub(crate) async fn settled(&self, name: &str) -> Phase {
        let begun = Instant::now();
        loop {
            let states = self.feed.status().states();
            let state = states.iter().find(|state| &*state.name == name);
            match state.map(|state| &state.phase) {
                Some(phase @ (Phase::Serving | Phase::Stopped { .. })) => return phase.clone(),
                Some(phase @ Phase::Waiting { reason }) if !reason.is_empty() => return phase.clone(),
                _ => {}
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{states:?} {}",
                self.feed.status().stream()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) async fn mapping(&self, name: &str) -> Arc<Mapping> {
        assert_eq!(self.settled(name).await, Phase::Serving);
        let mappings = self.reader.mappings();
        let found = mappings.by_name(name.as_bytes());
        Arc::clone(found.unwrap_or_else(|| panic!("{name}: {:?}", mappings.unready(name.as_bytes()))))
    }

    /// What memory says about a key; `None` where it does not know. With the texts of the row's columns.
    pub(crate) fn remembered(&self, mapping: &Mapping, text: &str) -> Option<Option<String>> {
        let mut key = Vec::new();
        match mapping.parse_key(text.as_bytes(), &mut key).unwrap() {
            Decision::Nowhere => return Some(None),
            Decision::Server => return None,
            Decision::Memory => {}
        }
        let mut row = Vec::new();
        loop {
            match self.reader.get(mapping, &key, &mut row) {
                Found::Row => return Some(Some(shown(mapping, &row))),
                Found::Absent => return Some(None),
                Found::Missing => return None,
                Found::Busy => std::thread::yield_now(),
                Found::Closed => panic!(
                    "{} is not served: {:?}",
                    mapping.name,
                    self.feed.status().states()
                ),
            }
        }
    }

    /// What the primary says about keys.
    pub(crate) async fn fetched(
        &self,
        mapping: &Mapping,
        texts: &[&str],
    ) -> Result<Vec<Option<String>>, NotFetched> {
        let keys: Vec<Vec<u8>> = texts.iter().map(|text| key(mapping, text)).collect();
        let wants: Vec<Want<'_>> = keys.iter().map(|key| Want { mapping, key }).collect();
        let rows = self.reader.fetch(&wants).await?;
        Ok(rows
            .into_iter()
            .map(|row| row.map(|row| shown(mapping, &row)))
            .collect())
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(
                begun.elapsed() < PATIENCE,
                "never: {what}; {}",
                self.feed.status().stream()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

pub(crate) fn key(mapping: &Mapping, text: &str) -> Vec<u8> {
    let mut key = Vec::new();
    mapping.parse_key(text.as_bytes(), &mut key).unwrap();
    key
}

/// The values of a row, separated by `|`.
pub(crate) fn shown(mapping: &Mapping, row: &[u8]) -> String {
    let mut rest = row;
    let values = mapping
        .values()
        .map(|column| match Value::decode(&mut rest).unwrap() {
            Value::Null => "NULL".to_owned(),
            value => {
                let mut out = Vec::new();
                text(&value, &column.column_type, Zone::UTC, &mut out).unwrap();
                String::from_utf8_lossy(&out).into_owned()
            }
        });
    values.collect::<Vec<_>>().join("|")
}

/// The first value of a query.
pub(crate) async fn value(client: &mut mysql_async::Conn, sql: &str) -> String {
    client.query_first(sql).await.unwrap().unwrap()
}

pub(crate) fn spec(kind: Kind) -> Spec {
    Spec::new(kind)
}
