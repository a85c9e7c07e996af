//! A server with mapped tables, and a feed of it.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cache::coherence::Applied;
use cache::feed::{Feed, Phase};
use cache::mapping::Mapping;
use cache::store::Store;
use config::{CacheAccount, CacheMapping, MappingKind, Secret, ServerAddress};
use mysql_wire::binlog::{Value, Zone, text};
use mysql_wire::gtid::{Flavor, GtidSet};
use sandbox::{Kind, Lent, Sandbox, Spec};
use testkit::redirected_link::RedirectedLink;
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

pub(crate) struct Fed {
    // Dropped before the servers.
    pub(crate) feed: Feed,
    pub(crate) store: Arc<Store>,
    pub(crate) sandbox: Arc<Lent>,
    /// In front of the first node, where one is wished for.
    pub(crate) proxy: Option<RedirectedLink>,
    checks: Option<(JoinHandle<()>, tokio::sync::oneshot::Sender<()>)>,
}

/// What is different from the usual.
pub(crate) struct Wishes {
    pub(crate) spec: Spec,
    pub(crate) topology: config::Topology,
    pub(crate) chunk: u32,
    pub(crate) memory_max: u64,
    pub(crate) bounded: bool,
    pub(crate) tls: bool,
    pub(crate) mapping_tables: bool,
    /// The feed reaches the first node through one.
    pub(crate) proxy: bool,
}

impl Wishes {
    pub(crate) fn of(kind: Kind) -> Self {
        Self {
            spec: Spec::new(kind),
            topology: config::Topology::Static,
            chunk: 100,
            memory_max: 1 << 30,
            bounded: false,
            tls: false,
            mapping_tables: false,
            proxy: false,
        }
    }
}

pub(crate) fn string(name: &str, table: &str, key: &[&str], value: &str) -> CacheMapping {
    CacheMapping::new(name, MappingKind::String, table, key, &[value])
}

pub(crate) fn hash(name: &str, table: &str, key: &[&str]) -> CacheMapping {
    CacheMapping::new(name, MappingKind::Hash, table, key, &["*"])
}

impl Fed {
    /// A server on which `sql` was run, and a feed of it.
    pub(crate) fn start(wishes: Wishes, sql: &str, mappings: Vec<CacheMapping>) -> Self {
        let sandbox = Arc::new(Sandbox::lend(wishes.spec.clone()).unwrap());
        sandbox.primary().sql(sql).unwrap();
        sandbox.sync().unwrap();
        Self::of(sandbox, &wishes, mappings)
    }

    /// Another feed of the same server.
    pub(crate) fn beside(other: &Self, mappings: Vec<CacheMapping>) -> Self {
        let wishes = Wishes::of(other.sandbox.kind());
        Self::of(Arc::clone(&other.sandbox), &wishes, mappings)
    }

    fn of(sandbox: Arc<Lent>, wishes: &Wishes, mappings: Vec<CacheMapping>) -> Self {
        let proxy = wishes
            .proxy
            .then(|| RedirectedLink::start(sandbox.primary().port()).unwrap());
        let servers = sandbox.nodes().iter().map(|node| {
            let proxy = proxy.as_ref().filter(|_| node.index() == 0);
            let mut server = config::Server::new(ServerAddress::Host {
                host: "127.0.0.1".to_owned(),
                port: proxy.map_or(node.port(), |proxy| proxy.port),
            });
            server.name = format!("n{}", node.index());
            server
        });
        let mut config = config::Cluster::new("main", servers.collect());
        config.topology = wishes.topology;
        if wishes.tls {
            config.tls.mode = config::TlsMode::Required;
            config.tls.verify = config::Verify::Ca;
            config.tls.ca = Some(sandbox.ca_file().to_owned());
        }
        config.check.interval = Duration::from_millis(200);
        config.monitor = Some(config::Monitor {
            password: Some(Secret::new(sandbox::PASSWORD)),
            interval: Duration::from_millis(200),
            ..config::Monitor::new(sandbox::USER)
        });
        let cluster = Cluster::new(config).unwrap();
        let checks = (wishes.topology != config::Topology::Static).then(|| check(&cluster));
        let mut config = config::Cache::new("main");
        config.account = Some(CacheAccount::new(
            sandbox::USER,
            Some(Secret::new(sandbox::PASSWORD)),
        ));
        config.mappings = mappings;
        config.copy_chunk = wishes.chunk;
        config.mapping_tables = wishes.mapping_tables;
        if wishes.bounded {
            config.mode = config::CacheMode::Bounded;
        }
        let (store, writer) = Store::new(wishes.memory_max);
        let feed = Feed::start(&config, cluster, writer).unwrap();
        Self {
            feed,
            store,
            sandbox,
            proxy,
            checks,
        }
    }

    /// The configuration has these mappings now.
    pub(crate) fn reload(&self, mappings: Vec<CacheMapping>) {
        self.reload_with(false, mappings);
    }

    pub(crate) fn reload_with(&self, mapping_tables: bool, mappings: Vec<CacheMapping>) {
        let mut config = config::Cache::new("main");
        (config.mapping_tables, config.mappings) = (mapping_tables, mappings);
        self.feed.reload(&config);
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        self.sandbox.primary().sql(sql).unwrap()
    }

    /// How a mapping is.
    pub(crate) fn phase(&self, name: &str) -> Phase {
        let states = self.feed.status().states();
        let state = states.iter().find(|state| &*state.name == name);
        state.map_or(Phase::Reading, |state| state.phase.clone())
    }

    pub(crate) fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let begun = Instant::now();
        while !condition() {
            let (states, stream) = (self.feed.status().states(), self.feed.status().stream());
            assert!(begun.elapsed() < PATIENCE, "never: {what}; {stream}; {states:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn until_served(&self, name: &str) -> Arc<Mapping> {
        // What is said to be served may be none any more a moment later.
        let served = RefCell::new(None);
        self.until(&format!("{name} is served"), || {
            let is_served = self.phase(name) == Phase::Serving;
            let mappings = self.feed.status().mappings();
            *served.borrow_mut() = mappings.by_name(name.as_bytes()).cloned();
            is_served && served.borrow().is_some()
        });
        served.into_inner().unwrap()
    }

    pub(crate) fn applied(&self) -> Arc<Applied> {
        Arc::clone(&self.feed.status().applied().borrow())
    }

    /// Waits until all that node `at` has committed is applied.
    pub(crate) fn until_applied_of(&self, at: usize) {
        let (flavor, sql) = match self.sandbox.kind() {
            Kind::Mariadb | Kind::Galera => (Flavor::MariaDb, "SELECT @@GLOBAL.gtid_binlog_pos"),
            Kind::Mysql | Kind::GroupReplication => {
                (Flavor::MySql, "SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', '')")
            }
        };
        let gtids = self.sandbox.node(at).sql(sql).unwrap();
        let gtids = GtidSet::parse(flavor, gtids.trim().as_bytes()).unwrap();
        // `Applied::has` says it to sessions, and never of Galera, whose nodes number transactions alone.
        self.until(&format!("{gtids} is applied"), || {
            let applied = self.applied();
            applied.position.is_some() && applied.gtids.covers(&gtids)
        });
    }

    pub(crate) fn until_applied(&self) {
        self.until_applied_of(0);
    }

    /// Keys and values of what is served, as `key<TAB>value<TAB>…`, in order.
    pub(crate) fn rows(&self, name: &str) -> Vec<String> {
        loop {
            // It may be served no more a moment later, or change while it is read.
            if let Some(rows) = self.rows_of(&self.until_served(name)) {
                return rows;
            }
        }
    }

    fn rows_of(&self, mapping: &Mapping) -> Option<Vec<String>> {
        let mut rows = Vec::new();
        let mut cursor = 0;
        loop {
            let each = |key: &[u8], row: &[u8]| {
                let mut line = Vec::new();
                mapping.key_text(key, &mut line).unwrap();
                let mut rest = row;
                for column in mapping.values() {
                    line.push(b'\t');
                    match Value::decode(&mut rest).unwrap() {
                        Value::Null => line.extend_from_slice(b"NULL"),
                        value => text(&value, &column.column_type, Zone::UTC, &mut line).unwrap(),
                    }
                }
                rows.push(String::from_utf8(line).unwrap());
            };
            cursor = self.store.scan(mapping.id, cursor, 1000, each).ok()?;
            if cursor == 0 {
                break;
            }
        }
        rows.sort();
        rows.dedup();
        Some(rows)
    }

    /// What is served is what `select` says on node `at`.
    pub(crate) fn assert_same_as(&self, at: usize, name: &str, select: &str) {
        self.until_served(name);
        self.until_applied_of(at);
        let sql = format!("SET time_zone = '+00:00'; {select}");
        let answer = self.sandbox.node(at).sql(&sql).unwrap();
        let mut expected: Vec<String> = answer.lines().map(|line| line.replace("\\\\", "\\")).collect();
        expected.sort();
        let found = self.rows(name);
        let missing: Vec<_> = expected
            .iter()
            .filter(|row| found.binary_search(row).is_err())
            .take(5)
            .collect();
        let surplus: Vec<_> = found
            .iter()
            .filter(|row| expected.binary_search(row).is_err())
            .take(5)
            .collect();
        assert!(
            missing.is_empty() && surplus.is_empty() && found.len() == expected.len(),
            "{} rows instead of {}; missing {missing:?}, surplus {surplus:?}",
            found.len(),
            expected.len()
        );
    }

    pub(crate) fn assert_same(&self, name: &str, select: &str) {
        self.assert_same_as(0, name, select);
    }

    pub(crate) fn copies(&self) -> u64 {
        self.feed.status().copies()
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        if let Some((thread, stop)) = self.checks.take() {
            let _ = stop.send(());
            thread.join().unwrap();
        }
    }
}

/// Has the cluster followed on a thread.
fn check(cluster: &Arc<Cluster>) -> (JoinHandle<()>, tokio::sync::oneshot::Sender<()>) {
    let cluster = Arc::clone(cluster);
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::select! {
                () = cluster.run_checks() => {}
                _ = stopped => {}
            }
        });
    };
    (std::thread::spawn(run), stop)
}
