//! Real servers with `max_connect_errors` = 10: two hundred checks later they still talk to us. Loopback
//! itself is never blocked, so connections come from 127.0.0.2, which servers take for any other host.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use config::{ClusterTls, TlsMode, Verify};
use net::{Stream, TlsConnector};
use sandbox::{Kind, Sandbox, Spec};
use tokio::net::TcpSocket;
use upstream::login::{Account, LoginError, Secret, Terms, Tls, log_in};
use upstream::{Cluster, GreetingError, Nobody, Status, disconnect, read_greeting};

use crate::play::{cluster, server, status, until};

const CHECKS: usize = 200;
const ER_HOST_IS_BLOCKED: u16 = 1129;

#[tokio::test]
async fn mariadb() {
    leaves_in_order(Kind::Mariadb).await;
}

#[tokio::test]
async fn mysql() {
    leaves_in_order(Kind::Mysql).await;
}

/// MariaDB pretends that an unknown user has the plugin of some account.
#[tokio::test]
async fn mariadb_with_accounts_of_another_plugin() {
    let sandbox = start(Kind::Mariadb).await;
    let mut accounts = "INSTALL SONAME 'auth_ed25519';".to_owned();
    for number in 0..200 {
        accounts += &format!("CREATE USER e{number} IDENTIFIED VIA ed25519 USING PASSWORD('secret');");
    }
    sandbox.primary().sql(&accounts).unwrap();
    stays_unblocked(&sandbox).await;
}

async fn leaves_in_order(kind: Kind) {
    let sandbox = start(kind).await;
    certificates_that_are_wrong(&sandbox).await;
    logins_that_cannot_go_on(&sandbox).await;
    stays_unblocked(&sandbox).await;
}

/// Two hundred logins with a hash where the account's plugin wants the password.
async fn logins_that_cannot_go_on(sandbox: &Sandbox) {
    let create = match sandbox.kind() {
        Kind::Mysql => "CREATE USER keyed IDENTIFIED BY 'secret'",
        _ => {
            "INSTALL SONAME 'auth_ed25519'; CREATE USER keyed IDENTIFIED VIA ed25519 USING PASSWORD('secret')"
        }
    };
    sandbox.primary().sql(create).unwrap();
    let address: SocketAddr = sandbox.primary().address().parse().unwrap();
    for _ in 0..CHECKS {
        let mut stream = connect_from_another_host(address).await;
        let (greeting, _) = read_greeting(&mut stream, PATIENCE).await.unwrap();
        let account = Account {
            user: b"keyed",
            secret: Secret::NativeStage1(&[7; 20]),
        };
        let error = log_in(stream, &greeting, account, Terms::PLAIN, None)
            .await
            .unwrap_err();
        assert!(matches!(error, LoginError::NeedsPassword(_)), "{error}");
    }
    assert_eq!(blocking(sandbox), 0, "logins that cannot go on");
}

/// Two hundred logins that end with the server's certificate.
async fn certificates_that_are_wrong(sandbox: &Sandbox) {
    let address: SocketAddr = sandbox.primary().address().parse().unwrap();
    let tls = ClusterTls {
        mode: TlsMode::Required,
        verify: Verify::Identity,
        ca: Some(sandbox.ca_file().to_owned()),
        cert: None,
        key: None,
    };
    let connector = TlsConnector::new(&tls).unwrap();
    for _ in 0..CHECKS {
        let mut stream = connect_from_another_host(address).await;
        let (greeting, _) = read_greeting(&mut stream, PATIENCE).await.unwrap();
        let account = Account {
            user: sandbox::USER.as_bytes(),
            secret: Secret::Password(sandbox::PASSWORD.as_bytes()),
        };
        let tls = Tls {
            connector: &connector,
            server_name: "elsewhere.example",
            required: true,
        };
        let error = log_in(stream, &greeting, account, Terms::PLAIN, Some(tls))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    assert_eq!(blocking(sandbox), 0, "wrong certificates");
}

/// Errors that count towards `max_connect_errors`.
fn blocking(sandbox: &Sandbox) -> u64 {
    count(
        sandbox,
        "SELECT IFNULL(SUM(SUM_CONNECT_ERRORS), 0) FROM performance_schema.host_cache",
    )
}

async fn stays_unblocked(sandbox: &Sandbox) {
    let address: SocketAddr = sandbox.primary().address().parse().unwrap();
    let blocked = || blocking(sandbox);
    let nobody = Nobody::default();
    for _ in 0..CHECKS {
        let mut stream = connect_from_another_host(address).await;
        let (greeting, _) = read_greeting(&mut stream, PATIENCE).await.unwrap();
        disconnect(&mut stream, &greeting, &nobody, None).await.unwrap();
    }
    assert_eq!(blocked(), 0, "errors that count towards max_connect_errors");
    assert_eq!(
        count(sandbox, "SELECT COUNT(*) FROM performance_schema.host_cache"),
        1,
        "we were seen"
    );
    // The server counts each when it has noticed its end.
    until("what remains was counted, see `disconnect`", || {
        count_status(sandbox, "Aborted_connects") >= CHECKS as u64
    })
    .await;

    // The test can tell: leaving without a word gets us blocked.
    for _ in 0..10 {
        let mut stream = connect_from_another_host(address).await;
        read_greeting(&mut stream, PATIENCE).await.unwrap();
    }
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while blocked() < 10 {
        assert!(tokio::time::Instant::now() < deadline, "{} counted", blocked());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut stream = connect_from_another_host(address).await;
    let refused = read_greeting(&mut stream, PATIENCE).await.unwrap_err();
    assert!(
        matches!(&refused, GreetingError::Refused(error) if error.code == ER_HOST_IS_BLOCKED),
        "{refused}"
    );
}

#[tokio::test]
async fn a_check_that_logs_in_leaves_no_trace() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let sandbox = start(kind).await;
        let traces = || ["Aborted_connects", "Aborted_clients"].map(|name| count_status(&sandbox, name));
        // The sandbox has looked for a greeting, which is counted when the server has noticed its end.
        let coming = "SELECT COUNT(*) FROM information_schema.processlist WHERE user LIKE 'unauthenticated%'";
        until("the sandbox's own look is over", || count(&sandbox, coming) == 0).await;
        let before = traces();
        let mut config = cluster(vec![server("real", sandbox.primary().address().parse().unwrap())]);
        config.check.interval = Duration::from_millis(50);
        // A check that is given up leaves a trace.
        config.check.timeout = Duration::from_secs(30);
        config.check.kind = config::CheckKind::Login;
        config.check.user = Some(sandbox::USER.to_owned());
        config.check.password = Some(config::Secret::new(sandbox::PASSWORD));
        let cluster = Cluster::new(config).unwrap();
        let checks = tokio::spawn(Arc::clone(&cluster).run_checks());
        until("up", || status(&cluster, "real") == Status::Up).await;
        let version = String::from_utf8(cluster.profile().unwrap().server_version.clone()).unwrap();
        assert!(
            version.contains(sandbox.version().split('-').next().unwrap()),
            "{version}"
        );
        // Some of them are our own questions.
        let connections = count_status(&sandbox, "Connections");
        until("more checks", || {
            count_status(&sandbox, "Connections") > connections + 40
        })
        .await;
        assert_eq!(traces(), before);
        checks.abort();
    }
}

/// MySQL draws by lot, for each name, which plugin an unknown user has, and complains of one of them each
/// time.
#[tokio::test]
async fn mysql_s_log_does_not_fill_with_our_coming_and_going() {
    const NAMES: u8 = 32;
    let sandbox = start_as(Spec::new(Kind::Mysql)).await;
    let address: SocketAddr = sandbox.primary().address().parse().unwrap();
    let visit = async |nobody: &Nobody| {
        let mut stream = connect_from_another_host(address).await;
        let (greeting, _) = read_greeting(&mut stream, PATIENCE).await.unwrap();
        disconnect(&mut stream, &greeting, nobody, None).await.unwrap();
    };
    let complaints = || sandbox.primary().log().matches("sha256_password").count();
    for number in 0..NAMES {
        let nobody = Nobody::numbered(number);
        for _ in 0..24 {
            visit(&nobody).await;
        }
        let before = complaints();
        for _ in 0..4 {
            visit(&nobody).await;
        }
        assert_eq!(complaints(), before, "once it has found a name");
    }
    assert!(complaints() > 0, "the test can tell");
}

const PATIENCE: Duration = Duration::from_secs(30);

async fn start(kind: Kind) -> Sandbox {
    let spec = Spec::new(kind)
        .option("--max-connect-errors=10")
        .option("--performance-schema=ON");
    start_as(spec).await
}

async fn start_as(spec: Spec) -> Sandbox {
    tokio::task::spawn_blocking(|| Sandbox::start(spec))
        .await
        .unwrap()
        .unwrap()
}

async fn connect_from_another_host(address: SocketAddr) -> Stream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    Stream::from(socket.connect(address).await.unwrap())
}

fn count(sandbox: &Sandbox, query: &str) -> u64 {
    let answer = sandbox.primary().sql(query).unwrap();
    answer
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("{query}: {answer}"))
}

fn count_status(sandbox: &Sandbox, name: &str) -> u64 {
    let answer = sandbox
        .primary()
        .sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))
        .unwrap();
    answer
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or_else(|| panic!("{name}: {answer}"))
}
