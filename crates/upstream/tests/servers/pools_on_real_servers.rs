//! What the pool makes of real servers: logins, trackers, baselines, and what happens when they die.

use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use config::{CheckKind, Secret, ServerCompression, TlsMode};
use mysql_wire::{
    Capabilities, Command, ErrPacket, Event, OkPacket, PacketHeader, ResponseTracker, StatusFlags,
    write_packet,
};
use sandbox::{Kind, Lent, Sandbox, Spec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_local;
use upstream::{Cluster, Connection, Credential, CredentialSecret, Key, LeaseError, Pool, Server, Status};

use crate::play::{by_name, cluster, server, status, until};
use crate::sessions_share_connections::on_a_worker;

const LIMIT: Duration = Duration::from_secs(30);

struct Fixture {
    sandbox: Lent,
    config: config::Cluster,
}

impl Fixture {
    fn start(spec: Spec) -> Self {
        let sandbox = Sandbox::lend(spec).unwrap();
        let mut config = cluster(vec![server("a", sandbox.primary().address().parse().unwrap())]);
        config.connect_timeout = LIMIT;
        config.login_timeout = LIMIT;
        Self { sandbox, config }
    }

    fn pool(&self) -> (Rc<Pool<()>>, Arc<Server>) {
        let cluster = Cluster::new(self.config.clone()).unwrap();
        let server = by_name(&cluster, "a");
        (Pool::new(cluster, |_| ()), server)
    }

    fn is_mariadb(&self) -> bool {
        self.sandbox.kind() == Kind::Mariadb
    }
}

fn credential(user: &str, password: &str) -> Credential {
    Credential {
        user: user.into(),
        account: 0,
        secret: CredentialSecret::Password(Secret::new(password)),
    }
}

async fn lease_with(
    pool: &Pool<()>,
    server: &Arc<Server>,
    credential: &Credential,
    capabilities: Capabilities,
    collation: u8,
) -> Result<Connection<()>, LeaseError> {
    let key = Rc::new(Key {
        user: Arc::clone(&credential.user),
        account: credential.account,
        capabilities,
        collation,
    });
    pool.lease(server, &key, credential, |()| 0, Some(pending()))
        .await
}

async fn lease(pool: &Pool<()>, server: &Arc<Server>) -> Connection<()> {
    let credential = credential(sandbox::USER, sandbox::PASSWORD);
    lease_with(pool, server, &credential, Capabilities(0), 45)
        .await
        .unwrap()
}

/// What an answer ends with, and the bytes of it.
async fn query(connection: &mut Connection<()>, sql: &str) -> Vec<Vec<u8>> {
    let capabilities = connection.capabilities;
    let mut payload = vec![Command::QUERY.0];
    if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
        payload.extend([0, 1]);
    }
    payload.extend(sql.as_bytes());
    let mut bytes = Vec::new();
    write_packet(&mut bytes, &mut 0, &payload);
    connection.stream.begin_command().unwrap();
    connection.stream.write_all(&bytes).await.unwrap();
    connection.stream.flush().await.unwrap();
    let mut tracker = ResponseTracker::new(capabilities);
    tracker.begin(Command::QUERY);
    let (mut answer, mut seen) = (Vec::new(), 0);
    loop {
        assert_ne!(connection.stream.read_buf(&mut answer).await.unwrap(), 0, "{sql}");
        let progress = tracker.advance(&answer[seen..]).unwrap();
        seen += progress.consumed;
        if let Event::Done(outcome) = progress.event {
            assert_eq!(outcome.error, None, "{sql}: {}", String::from_utf8_lossy(&answer));
            break;
        }
    }
    let mut packets = Vec::new();
    let mut rest = answer.as_slice();
    while let Some(header) = PacketHeader::parse(rest) {
        let (packet, behind) = rest.split_at(PacketHeader::LEN + header.payload_len);
        packets.push(packet[PacketHeader::LEN..].to_vec());
        rest = behind;
    }
    packets
}

/// The session state in the last packet of the answer.
async fn state_after(connection: &mut Connection<()>, sql: &str) -> String {
    let packets = query(connection, sql).await;
    let ok = OkPacket::decode(packets.last().unwrap(), connection.capabilities).unwrap();
    assert_eq!(
        ok.status.contains(StatusFlags::SESSION_STATE_CHANGED),
        !ok.session_state.is_empty(),
        "{sql}"
    );
    String::from_utf8_lossy(&ok.session_state).into_owned()
}

/// The only value of the only row.
async fn value(connection: &mut Connection<()>, sql: &str) -> String {
    let packets = query(connection, sql).await;
    String::from_utf8_lossy(&packets[packets.len() - 2][1..]).into_owned()
}

fn baseline(connection: &Connection<()>, name: &str) -> Option<String> {
    let found = connection
        .baseline
        .iter()
        .find(|(known, _)| known == name.as_bytes());
    found.map(|(_, value)| String::from_utf8(value.clone()).unwrap())
}

/// Variables, schema and state are tracked, and nothing is that does not change.
async fn trackers_are_on(connection: &mut Connection<()>, mariadb: bool) {
    let state = state_after(connection, "SET sql_mode = 'ANSI_QUOTES'").await;
    assert!(
        state.contains("sql_mode") && state.contains("ANSI_QUOTES"),
        "{state}"
    );
    assert!(
        state_after(connection, "USE test").await.contains("test"),
        "the schema"
    );
    assert!(
        !state_after(connection, "SET @x = 1").await.is_empty(),
        "that the state changed"
    );
    let begun = state_after(connection, "START TRANSACTION READ ONLY").await;
    assert!(begun.contains("START TRANSACTION READ ONLY"), "{begun}");
    state_after(connection, "COMMIT").await;
    for sql in [
        "SELECT 1",
        "SELECT RAND(), NOW(), LAST_INSERT_ID(7)",
        "DO 1",
        "INSERT INTO numbered VALUES (NULL)",
    ] {
        let state = state_after(connection, sql).await;
        // A write may show its transaction and its GTID, and MariaDB shows transactions of one read, too.
        let harmless = mariadb || sql.starts_with("INSERT");
        assert!(state.is_empty() || harmless, "{sql}: {state:?}");
        assert!(!state.contains("statement_id"), "{sql}: {state:?}");
    }
    state_after(connection, "SET sql_mode = DEFAULT").await;
}

async fn arming_baseline_and_reset(fixture: &mut Fixture) {
    let node = fixture.sandbox.primary();
    node.sql(
        "CREATE TABLE test.numbered (id INT AUTO_INCREMENT PRIMARY KEY); SET GLOBAL lc_messages = 'de_DE'",
    )
    .unwrap();
    fixture.config.pool.init = vec![
        "SET lock_wait_timeout = 77, @mine = 5".to_owned(),
        "SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')".to_owned(),
    ];
    let (pool, server) = fixture.pool();
    // latin1_swedish_ci: none of these servers' default, or not as a matter of course.
    let account = credential(sandbox::USER, sandbox::PASSWORD);
    let of_kind = match fixture.is_mariadb() {
        true => Capabilities::MARIADB_EXTENDED_METADATA | Capabilities::MARIADB_CACHE_METADATA,
        false => Capabilities::QUERY_ATTRIBUTES | Capabilities::OPTIONAL_RESULTSET_METADATA,
    };
    let capabilities =
        of_kind | Capabilities::INTERACTIVE | Capabilities::MULTI_STATEMENTS | Capabilities::FOUND_ROWS;
    let mut connection = lease_with(&pool, &server, &account, capabilities, 8)
        .await
        .unwrap();
    assert_eq!(connection.is_mariadb(), fixture.is_mariadb());
    assert_eq!(
        baseline(&connection, "character_set_client").as_deref(),
        Some("latin1")
    );
    assert_eq!(
        baseline(&connection, "collation_connection").as_deref(),
        Some("latin1_swedish_ci")
    );
    assert_eq!(baseline(&connection, "autocommit").as_deref(), Some("ON"));
    assert!(baseline(&connection, "sql_mode").unwrap().contains("ANSI_QUOTES"));
    assert!(baseline(&connection, "time_zone").is_some());
    assert_eq!(baseline(&connection, "lock_wait_timeout").as_deref(), Some("77"));
    let isolation = ["transaction_isolation", "tx_isolation"].map(|name| baseline(&connection, name));
    assert!(
        isolation.contains(&Some("REPEATABLE-READ".to_owned())),
        "{isolation:?}"
    );
    trackers_are_on(&mut connection, fixture.is_mariadb()).await;

    // Another one has the same baseline, and shares it.
    let other = lease_with(&pool, &server, &account, capabilities, 8)
        .await
        .unwrap();
    assert!(Rc::ptr_eq(&connection.baseline, &other.baseline));

    // After a reset everything is as it was, trackers and all.
    query(&mut connection, "SET NAMES utf8mb4").await;
    query(
        &mut connection,
        "SET time_zone = '+05:00', autocommit = 0, @mine = 6",
    )
    .await;
    connection.reset(LIMIT).await.unwrap();
    for (name, value_then) in connection.baseline.clone().iter() {
        let name = String::from_utf8_lossy(name).into_owned();
        let packets = query(&mut connection, &format!("SHOW SESSION VARIABLES LIKE '{name}'")).await;
        let row = &packets[packets.len() - 2];
        assert!(row.ends_with(value_then), "{name}: {row:?}");
    }
    assert_eq!(value(&mut connection, "SELECT @mine").await, "5");
    trackers_are_on(&mut connection, fixture.is_mariadb()).await;
    node_forgets_us_not(&mut connection).await;
}

/// Who we are can be seen on the server.
async fn node_forgets_us_not(connection: &mut Connection<()>) {
    let id = value(connection, "SELECT CONNECTION_ID()").await;
    assert_eq!(id, connection.thread_id.to_string());
}

#[test]
fn mariadb_is_armed() {
    let mut fixture = Fixture::start(Spec::new(Kind::Mariadb).option("--interactive-timeout=123"));
    on_a_worker(arming_baseline_and_reset(&mut fixture));
}

#[test]
fn mariadb_11_is_armed() {
    let program = sandbox::mariadb_11().unwrap();
    let mut fixture = Fixture::start(Spec::new(Kind::Mariadb).program(program));
    on_a_worker(arming_baseline_and_reset(&mut fixture));
}

#[test]
fn mysql_is_armed() {
    let mut fixture = Fixture::start(Spec::new(Kind::Mysql).option("--interactive-timeout=123"));
    on_a_worker(async {
        arming_baseline_and_reset(&mut fixture).await;
        // What it tracks is tracked by name, and every name is one that it knows.
        let (pool, server) = fixture.pool();
        let mut connection = lease(&pool, &server).await;
        let list = value(&mut connection, "SELECT LENGTH(@@session_track_system_variables)").await;
        assert!(list.parse::<usize>().unwrap() > 3000, "{list}");
        query(
            &mut connection,
            "SET @list = @@session_track_system_variables, session_track_system_variables = @list",
        )
        .await;
        assert_eq!(value(&mut connection, "SELECT @@warning_count").await, "0");
    });
}

/// Without performance_schema, and where a join is refused for being large.
#[test]
fn a_mysql_that_shows_little_of_itself_is_armed() {
    let options = ["--performance-schema=OFF", "--max-join-size=1"];
    for options in [&options[..1], &options[1..], &options] {
        let spec = options
            .iter()
            .fold(Spec::new(Kind::Mysql), |spec, option| spec.option(*option));
        let fixture = Fixture::start(spec);
        fixture
            .sandbox
            .primary()
            .sql("SET GLOBAL sql_big_selects = 0")
            .unwrap();
        on_a_worker(async {
            let (pool, server) = fixture.pool();
            let mut connection = lease(&pool, &server).await;
            for name in ["character_set_client", "autocommit", "transaction_isolation"] {
                assert!(baseline(&connection, name).is_some(), "{options:?}: {name}");
            }
            let state = state_after(&mut connection, "SET sql_mode = ''").await;
            assert!(state.contains("sql_mode"), "{state}");
            assert_eq!(state_after(&mut connection, "DO 1").await, "");
        });
    }
}

#[test]
fn every_plugin_and_every_link() {
    let native = "CREATE USER curve@'%' IDENTIFIED VIA ed25519 USING PASSWORD('secret'); \
                  CREATE USER plain@'%' IDENTIFIED BY 'secret'";
    let sha2 = "CREATE USER curve@'%' IDENTIFIED WITH caching_sha2_password BY 'secret'; \
                CREATE USER plain@'%' IDENTIFIED WITH sha256_password BY 'secret'";
    for (kind, sql) in [(Kind::Mariadb, native), (Kind::Mysql, sha2)] {
        let mut fixture = Fixture::start(Spec::new(kind));
        let node = fixture.sandbox.primary();
        if kind == Kind::Mariadb {
            node.sql("INSTALL SONAME 'auth_ed25519'").unwrap();
        }
        node.sql(sql).unwrap();
        node.sql("GRANT ALL ON *.* TO curve@'%'; GRANT ALL ON *.* TO plain@'%'")
            .unwrap();
        for tls in [TlsMode::Off, TlsMode::Required] {
            for compression in [
                ServerCompression::Off,
                ServerCompression::Zlib,
                ServerCompression::Zstd,
            ] {
                fixture.config.tls.mode = tls;
                fixture.config.compression = compression;
                // With several statements they are sent one by one, else all at once.
                fixture.config.pool.init = vec!["SET @mine = 5".to_owned()];
                on_a_worker(async {
                    let (pool, server) = fixture.pool();
                    for user in ["curve", "plain"] {
                        let account = credential(user, "secret");
                        let leased = lease_with(&pool, &server, &account, Capabilities(0), 45).await;
                        let mut connection =
                            leased.unwrap_or_else(|error| panic!("{user} {tls:?} {compression:?}: {error}"));
                        assert_eq!(connection.stream.is_encrypted(), tls == TlsMode::Required);
                        let zstd = compression == ServerCompression::Zstd && kind == Kind::Mariadb;
                        assert_eq!(
                            connection.stream.is_compressed(),
                            compression != ServerCompression::Off && !zstd
                        );
                        assert_eq!(value(&mut connection, "SELECT @mine").await, "5");
                        connection.reset(LIMIT).await.unwrap();
                        assert_eq!(value(&mut connection, "SELECT @mine").await, "5");
                        pool.give_back(connection);
                        assert_eq!(pool.idle(), 1);
                        let again = lease_with(&pool, &server, &account, Capabilities(0), 45).await;
                        drop(again.unwrap());
                        let wrong = credential(user, "wrong");
                        let error = lease_with(&pool, &server, &wrong, Capabilities(0), 45)
                            .await
                            .unwrap_err();
                        assert!(
                            matches!(&error, LeaseError::Refused { packet, .. } if packet.code == 1045),
                            "{error}"
                        );
                    }
                    assert_eq!(server.sessions(), 0);
                    assert!(!server.state().suspect, "a wrong password is not its fault");
                });
            }
        }
    }
}

#[test]
fn a_hash_does_where_the_plugin_is_the_native_one() {
    let stage1: [u8; 20] = digest(&SHA1_FOR_LEGACY_USE_ONLY, sandbox::PASSWORD.as_bytes())
        .as_ref()
        .try_into()
        .unwrap();
    let account = Credential {
        user: sandbox::USER.into(),
        account: 0,
        secret: CredentialSecret::NativeStage1(stage1),
    };
    assert_eq!(format!("{:?}", account.secret), "***");
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let fixture = Fixture::start(Spec::new(kind));
        on_a_worker(async {
            let (pool, server) = fixture.pool();
            let leased = lease_with(&pool, &server, &account, Capabilities(0), 45).await;
            if kind == Kind::Mariadb {
                assert_eq!(value(&mut leased.unwrap(), "SELECT 1").await, "1");
            } else {
                let error = leased.unwrap_err().to_string();
                assert!(
                    error.contains("caching_sha2_password, which needs the password itself"),
                    "{error}"
                );
                assert!(!server.state().suspect);
            }
        });
    }
}

#[test]
fn a_first_statement_that_fails_is_said() {
    let mut fixture = Fixture::start(Spec::new(Kind::Mariadb));
    fixture.config.pool.init = vec!["SET nonsense = 1".to_owned()];
    on_a_worker(async {
        let (pool, server) = fixture.pool();
        let account = credential(sandbox::USER, sandbox::PASSWORD);
        let error = lease_with(&pool, &server, &account, Capabilities(0), 45)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "server a cannot be used: statement `SET nonsense = 1`: Unknown system variable 'nonsense' (error 1193)"
        );
        assert_eq!((server.sessions(), pool.busy(), pool.idle()), (0, 0, 0));
    });
}

/// Where no limit is configured the server's own is found out: sessions wait for one another, and for nobody
/// else.
#[test]
fn a_server_that_is_full_makes_sessions_wait() {
    let mut fixture = Fixture::start(Spec::new(Kind::Mariadb).option("--max-connections=10"));
    fixture.config.queue_timeout = Duration::from_secs(6);
    on_a_worker(async {
        let account = credential(sandbox::USER, sandbox::PASSWORD);
        let (pool, server) = fixture.pool();
        let keeping = spawn_local(Rc::clone(&pool).run());
        let mut leased = Vec::new();
        let error = loop {
            match lease_with(&pool, &server, &account, Capabilities(0), 45).await {
                Ok(connection) => leased.push(connection),
                Err(error) => break error,
            }
        };
        assert!(matches!(&error, LeaseError::QueueTimeout { .. }), "{error}");
        assert!(!server.state().suspect, "full is not ill");

        // Somebody else finds none of its own to wait for.
        let (other, same_server) = fixture.pool();
        let error = lease_with(&other, &same_server, &account, Capabilities(0), 45)
            .await
            .unwrap_err();
        assert!(
            matches!(
                &error,
                LeaseError::Refused {
                    packet: ErrPacket { code: 1040, .. },
                    ..
                }
            ),
            "{error}"
        );

        let mut tasks = Vec::new();
        for _ in 0..40 {
            let (pool, server, account) = (Rc::clone(&pool), Arc::clone(&server), account.clone());
            tasks.push(spawn_local(async move {
                let leased = lease_with(&pool, &server, &account, Capabilities(0), 45).await;
                let mut connection = leased.unwrap();
                assert_eq!(value(&mut connection, "SELECT 1").await, "1");
                pool.give_back(connection);
            }));
        }
        until("they are in line", || pool.waiting() == 40).await;
        leased
            .into_iter()
            .for_each(|connection| pool.give_back(connection));
        for task in tasks {
            task.await.unwrap();
        }
        keeping.abort();
    });
}

/// Who made a server full may be somebody else, who leaves without our knowing: it is tried again after a
/// while.
#[test]
fn a_server_that_was_full_is_tried_again() {
    let mut fixture = Fixture::start(Spec::new(Kind::Mariadb).option("--max-connections=10"));
    fixture.config.queue_timeout = LIMIT;
    on_a_worker(async {
        let account = credential(sandbox::USER, sandbox::PASSWORD);
        let (other, same_server) = fixture.pool();
        let others = [
            lease(&other, &same_server).await,
            lease(&other, &same_server).await,
        ];
        let (pool, server) = fixture.pool();
        let keeping = spawn_local(Rc::clone(&pool).run());
        let mut ours = vec![lease(&pool, &server).await];
        let mut waiting = Box::pin(async {
            loop {
                let leased = lease_with(&pool, &server, &account, Capabilities(0), 45).await;
                ours.push(leased.unwrap());
            }
        });
        let in_line = until("the server is full", || pool.waiting() == 1);
        tokio::select! {
            () = in_line => {}
            () = &mut waiting => {}
        }
        let before = pool.busy();
        drop(others);
        tokio::select! {
            () = until("there is room", || pool.busy() > before) => {}
            () = &mut waiting => {}
        }
        drop(waiting);
        assert_eq!(ours.len(), pool.busy());
        keeping.abort();
    });
}

/// Idle connections of a killed server are gone, those in use are not taken back, and it all begins anew
/// afterwards.
#[test]
fn a_killed_server_leaves_nothing_behind() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let mut fixture = Fixture::start(Spec::new(kind));
        fixture.config.check.kind = CheckKind::Greeting;
        fixture.config.check.interval = Duration::from_millis(50);
        on_a_worker(async {
            let (pool, server) = fixture.pool();
            let checks = spawn_local(Arc::clone(pool.cluster()).run_checks());
            let keeping = spawn_local(Rc::clone(&pool).run());
            until("up", || status(pool.cluster(), "a") == Status::Up).await;
            let busy = lease(&pool, &server).await;
            let idle = lease(&pool, &server).await;
            pool.give_back(idle);
            fixture.sandbox.primary().kill9().unwrap();
            until("the idle one is closed", || pool.idle() == 0).await;
            until("down", || status(pool.cluster(), "a") == Status::Down).await;
            let account = credential(sandbox::USER, sandbox::PASSWORD);
            let error = lease_with(&pool, &server, &account, Capabilities(0), 45)
                .await
                .unwrap_err();
            assert!(error.to_string().contains("a is down"), "{error}");
            fixture.sandbox.primary().restart().unwrap();
            until("up again", || status(pool.cluster(), "a") == Status::Up).await;
            // From before: it may look well, and is not.
            pool.give_back(busy);
            assert_eq!((pool.idle(), server.sessions()), (0, 0));
            let mut fresh = lease(&pool, &server).await;
            assert_eq!(value(&mut fresh, "SELECT 1").await, "1");
            checks.abort();
            keeping.abort();
        });
    }
}
