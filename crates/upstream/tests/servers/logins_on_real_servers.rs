//! The login of checks, with every plugin it knows, over every kind of link.

use std::sync::Arc;
use std::time::Duration;

use config::{CheckKind, ClusterTls, TlsMode, Verify};
use net::{Stream, TlsConnector};
use sandbox::{Kind, Lent, Sandbox, Spec};
use upstream::login::{self, Account, LoggedIn, LoginError, Secret, Terms, Tls};
use upstream::{Cluster, Status, read_greeting};

use crate::play::{Act, Player, by_name, cluster, packet, server, status, until};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Link {
    Plain,
    Encrypted,
    Unix,
}

async fn start(kind: Kind) -> Lent {
    tokio::task::spawn_blocking(move || Sandbox::lend(Spec::new(kind)))
        .await
        .unwrap()
        .unwrap()
}

async fn log_in(sandbox: &Sandbox, link: Link, user: &str, password: &str) -> Result<LoggedIn, LoginError> {
    let node = sandbox.primary();
    let mut stream = match link {
        Link::Unix => Stream::connect_unix(node.socket()).await.unwrap(),
        Link::Plain | Link::Encrypted => Stream::connect_tcp(node.address().parse().unwrap(), Duration::ZERO)
            .await
            .unwrap(),
    };
    let (greeting, _) = read_greeting(&mut stream, Duration::from_secs(30)).await.unwrap();
    let tls = ClusterTls {
        mode: TlsMode::Required,
        verify: Verify::Ca,
        ca: Some(sandbox.ca_file().to_owned()),
        cert: None,
        key: None,
    };
    let connector = TlsConnector::new(&tls).unwrap();
    let tls = Tls {
        connector: &connector,
        server_name: "127.0.0.1",
        required: true,
    };
    let tls = (link == Link::Encrypted).then_some(tls);
    let account = Account {
        user: user.as_bytes(),
        secret: Secret::Password(password.as_bytes()),
    };
    login::log_in(stream, &greeting, account, Terms::PLAIN, tls).await
}

#[tokio::test]
async fn mariadb() {
    let sandbox = start(Kind::Mariadb).await;
    sandbox
        .primary()
        .sql(
            "INSTALL SONAME 'auth_ed25519'; \
             CREATE USER nobody_knows@'%' IDENTIFIED BY ''; \
             CREATE USER curve@'%' IDENTIFIED VIA ed25519 USING PASSWORD('secret')",
        )
        .unwrap();
    let accounts = [
        (sandbox::USER, sandbox::PASSWORD),
        ("nobody_knows", ""),
        ("curve", "secret"),
    ];
    every_link(&sandbox, &accounts).await;
}

#[tokio::test]
async fn mariadb_11() {
    let program = sandbox::mariadb_11().unwrap();
    let spec = Spec::new(Kind::Mariadb).program(program);
    let sandbox = tokio::task::spawn_blocking(|| Sandbox::lend(spec))
        .await
        .unwrap()
        .unwrap();
    sandbox
        .primary()
        .sql(
            "INSTALL SONAME 'auth_parsec'; \
             CREATE USER modern@'%' IDENTIFIED VIA parsec USING PASSWORD('secret')",
        )
        .unwrap();
    every_link(
        &sandbox,
        &[(sandbox::USER, sandbox::PASSWORD), ("modern", "secret")],
    )
    .await;
}

async fn every_link(sandbox: &Sandbox, accounts: &[(&str, &str)]) {
    for link in [Link::Plain, Link::Encrypted, Link::Unix] {
        for (user, password) in accounts {
            let logged_in = log_in(sandbox, link, user, password).await;
            let logged_in = logged_in.unwrap_or_else(|error| panic!("{user} over {link:?}: {error}"));
            assert_eq!(logged_in.stream.is_encrypted(), link == Link::Encrypted);
            let error = log_in(sandbox, link, user, "wrong").await.unwrap_err();
            assert!(
                matches!(&error, LoginError::Refused(error) if error.code == 1045),
                "{link:?}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn mysql() {
    let sandbox = start(Kind::Mysql).await;
    let long = "p".repeat(200);
    sandbox
        .primary()
        .sql(&format!(
            "CREATE USER sha2@'%' IDENTIFIED WITH caching_sha2_password BY 'secret'; \
             CREATE USER open@'%' IDENTIFIED WITH caching_sha2_password BY ''; \
             CREATE USER lengthy@'%' IDENTIFIED WITH caching_sha2_password BY '{long}'; \
             CREATE USER old@'%' IDENTIFIED WITH sha256_password BY 'secret'"
        ))
        .unwrap();
    for link in [Link::Plain, Link::Encrypted, Link::Unix] {
        for (user, password) in [
            ("sha2", "secret"),
            ("open", ""),
            ("lengthy", &long),
            ("old", "secret"),
        ] {
            // Empties the cache of passwords, so that the first login is a full one and the second a fast
            // one.
            sandbox.primary().sql("FLUSH PRIVILEGES").unwrap();
            for attempt in ["full", "fast"] {
                let result = log_in(&sandbox, link, user, password).await;
                assert!(
                    result.is_ok(),
                    "{user} over {link:?}, {attempt}: {:?}",
                    result.err()
                );
            }
        }
        for user in ["sha2", "old"] {
            let error = log_in(&sandbox, link, user, "wrong").await.unwrap_err();
            assert!(
                matches!(&error, LoginError::Refused(error) if error.code == 1045),
                "{link:?}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn checks_log_in_and_ask() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let sandbox = start(kind).await;
        let mut config = cluster(vec![server("real", sandbox.primary().address().parse().unwrap())]);
        config.tls.mode = TlsMode::Preferred;
        config.check.kind = CheckKind::Login;
        config.check.interval = Duration::from_millis(50);
        config.check.timeout = Duration::from_secs(30);
        config.check.user = Some(sandbox::USER.to_owned());
        config.check.password = Some(config::Secret::new(sandbox::PASSWORD));
        config.check.query = "SELECT 1 UNION SELECT 2".to_owned();
        let cluster = Cluster::new(config.clone()).unwrap();
        let checks = tokio::spawn(Arc::clone(&cluster).run_checks());
        until("up", || status(&cluster, "real") == Status::Up).await;
        let reason = || by_name(&cluster, "real").state().reason.clone();
        assert!(reason().starts_with("answers queries, version "), "{}", reason());

        config.check.query = "SELECT * FROM no_such.table".to_owned();
        cluster.reload(config.clone()).unwrap();
        until("down", || status(&cluster, "real") == Status::Down).await;
        assert!(
            reason().starts_with("statement of the check's user: "),
            "{}",
            reason()
        );
        assert!(
            reason().contains("(error 1049)") || reason().contains("(error 1146)"),
            "{}",
            reason()
        );

        config.check.query = "SELECT 1".to_owned();
        cluster.reload(config.clone()).unwrap();
        until("up again", || status(&cluster, "real") == Status::Up).await;

        // The error comes behind the columns.
        config.check.query = "SELECT IF(@@global.read_only = 1, 1, (SELECT 1 UNION SELECT 2))".to_owned();
        cluster.reload(config.clone()).unwrap();
        until("down", || status(&cluster, "real") == Status::Down).await;
        let why = "statement of the check's user: Subquery returns more than 1 row (error 1242)";
        assert_eq!(reason(), why);

        config.check.query = "SELECT 1".to_owned();
        cluster.reload(config.clone()).unwrap();
        until("up again", || status(&cluster, "real") == Status::Up).await;

        config.check.password = Some(config::Secret::new("wrong"));
        cluster.reload(config).unwrap();
        until("down", || status(&cluster, "real") == Status::Down).await;
        assert!(
            reason().contains("Access denied for user 'forebay'@"),
            "{}",
            reason()
        );
        assert!(!reason().contains("wrong"), "{}", reason());
        checks.abort();
    }
}

/// Logs in on a played server whose answer to the login is `reply`.
async fn answered(reply: &[u8]) -> LoginError {
    let greeting = mysql_wire::Greeting::decode(&crate::play::greeting("9.0.0")).unwrap();
    let player = Player::start(Act::Bytes(packet(2, reply))).await;
    let stream = Stream::connect_tcp(player.address, Duration::ZERO).await.unwrap();
    let account = Account {
        user: b"u",
        secret: Secret::Password(b"secret"),
    };
    let login = login::log_in(stream, &greeting, account, Terms::PLAIN, None);
    // The login has no time limit of its own: one that waits for more must not hang the test.
    tokio::time::timeout(Duration::from_secs(30), login)
        .await
        .unwrap()
        .unwrap_err()
}

#[tokio::test]
async fn a_password_never_goes_readable_over_a_plain_link() {
    let error = answered(b"\xfemysql_clear_password\0").await;
    assert!(
        matches!(error, LoginError::NeedsTls("mysql_clear_password")),
        "{error}"
    );
}

#[tokio::test]
async fn what_it_cannot_do_is_said() {
    let error = answered(b"\xfedialog\0").await;
    assert!(
        matches!(&error, LoginError::UnknownPlugin(name) if name == "dialog"),
        "{error}"
    );
    let error = answered(b"\xfeclient_ed25519\0too short").await;
    assert!(
        error.to_string().contains("nonce of 9 bytes for client_ed25519"),
        "{error}"
    );
    let error = answered(b"\xfe").await;
    assert!(
        matches!(&error, LoginError::UnknownPlugin(name) if name == "mysql_old_password"),
        "{error}"
    );
    let error = answered(b"\x02authentication_fido\0").await;
    assert!(error.to_string().contains("second factor"), "{error}");
    let error = answered(b"\x01unexpected").await;
    assert!(matches!(error, LoginError::Protocol(_)), "{error}");
    let error = answered(b"").await;
    assert!(matches!(error, LoginError::Protocol(_)), "{error}");
    let error = answered(&[0x0a; 20]).await;
    assert!(matches!(error, LoginError::Protocol(_)), "{error}");
}

#[tokio::test]
async fn a_bad_key_is_no_key() {
    // caching_sha2_password asks for a full login, and then sends something else than a key.
    let mut script = packet(2, b"\x01\x04");
    script.extend(packet(
        4,
        b"\x01-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
    ));
    let greeting = mysql_wire::Greeting::decode(&crate::play::greeting("9.0.0")).unwrap();
    let player = Player::start(Act::Bytes(script)).await;
    let stream = Stream::connect_tcp(player.address, Duration::ZERO).await.unwrap();
    let account = Account {
        user: b"u",
        secret: Secret::Password(b"secret"),
    };
    let login = login::log_in(stream, &greeting, account, Terms::PLAIN, None);
    let error = login.await.unwrap_err();
    assert!(matches!(error, LoginError::Key(_)), "{error}");
}
