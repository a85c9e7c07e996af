//! Accounts that nobody has listed and nobody reads: a login is tried on a server, and its word is taken for
//! a while.

use std::time::{Duration, Instant};

use e2e::{Gateway, Setup, client, eventually, kind};
use mysql_async::{Conn, SslOpts};
use mysql_wire::{Capabilities, Greeting, Login, auth, write_packet};
use sandbox::{Certificates, Kind, Sandbox};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::accounts::{account, is_let_in, log_in, options, sql};
use crate::cluster::{self, ask};

/// A gateway that knows nobody, in front of one server.
fn setup(sandbox: &Sandbox, options: &str) -> Setup {
    let server = format!(
        "{{ address = {:?}, role = \"primary\" }}",
        sandbox.primary().address()
    );
    Setup::of_addresses(sandbox.addresses())
        .servers([server])
        .mode("split")
        .top("workers = 1")
        .cluster(&format!("accounts = {{ from = \"pass-through\"{options} }}"))
        .check(cluster::PATIENT_CHECKS)
}

/// Whether the fast answer is enough to a client that has not sent its password: whether the gateway knows
/// it.
async fn is_known(gateway: &Gateway, user: &str) -> bool {
    let mut stream = TcpStream::connect(("127.0.0.1", gateway.port())).await.unwrap();
    let greeting = Greeting::decode(&packet(&mut stream).await).unwrap();
    let wanted = Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION | Capabilities::PLUGIN_AUTH;
    let login = Login {
        capabilities: wanted,
        max_packet_size: 1 << 24,
        charset: greeting.charset,
        user: user.into(),
        auth_response: auth::caching_sha2_password(&greeting.nonce, b"hunter2"),
        database: None,
        auth_plugin: Some(b"caching_sha2_password".to_vec()),
        attributes: None,
        zstd_level: None,
    };
    let (mut payload, mut bytes) = (Vec::new(), Vec::new());
    login.encode(&mut payload);
    write_packet(&mut bytes, &mut 1, &payload);
    stream.write_all(&bytes).await.unwrap();
    match packet(&mut stream).await.as_slice() {
        [1, 3] => packet(&mut stream).await.first() == Some(&0),
        [1, 4] => false,
        other => panic!("{other:?}"),
    }
}

async fn packet(stream: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).await.unwrap();
    let mut payload = vec![0; usize::from(u16::from_le_bytes([header[0], header[1]]))];
    stream.read_exact(&mut payload).await.unwrap();
    payload
}

#[tokio::test]
async fn whoever_they_let_in_is_let_in() {
    let sandbox = cluster::single();
    account(sandbox, "passed");
    sql(sandbox, "CREATE USER passed_open@'%'");
    let gateway = setup(sandbox, "").start();
    for _ in 0..2 {
        assert!(is_let_in(&gateway, "passed", "hunter2").await);
        for wrong in ["hunter3", "", "x"] {
            assert!(!is_let_in(&gateway, "passed", wrong).await, "{wrong:?}");
        }
        for nobody in ["hunter2", ""] {
            assert!(!is_let_in(&gateway, "passed_by", nobody).await);
        }
    }
    // The server would let it in; nobody has shown anything.
    assert!(!is_let_in(&gateway, "passed_open", "").await);
}

#[tokio::test]
async fn with_any_plugin_that_takes_a_password() {
    let sandbox = cluster::single();
    let statements = match kind() {
        Kind::Mysql => "CREATE USER passed_other@'%' IDENTIFIED WITH sha256_password BY 'hunter2'",
        _ => {
            "INSTALL SONAME 'auth_ed25519'; CREATE USER passed_other@'%' IDENTIFIED VIA ed25519 USING PASSWORD('hunter2')"
        }
    };
    sql(sandbox, statements);
    sql(sandbox, "GRANT ALL ON test.* TO passed_other@'%'");
    let gateway = setup(sandbox, "").start();
    for _ in 0..2 {
        assert!(is_let_in(&gateway, "passed_other", "hunter2").await);
        assert!(!is_let_in(&gateway, "passed_other", "hunter3").await);
    }
}

#[tokio::test]
async fn over_tls_as_well() {
    let sandbox = cluster::single();
    account(sandbox, "passed_over_tls");
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(folder.path()).unwrap();
    let (cert, key) = (&certificates.server_cert, &certificates.server_key);
    let gateway = setup(sandbox, "")
        .listener_tls(&format!("mode = \"required\"\ncert = {cert:?}\nkey = {key:?}"))
        .start();
    let tls = SslOpts::default().with_root_certs(vec![certificates.ca.clone().into()]);
    for _ in 0..2 {
        let with_tls = |password| options(&gateway, "passed_over_tls", password).ssl_opts(tls.clone());
        Conn::new(with_tls("hunter2")).await.unwrap();
        let error = Conn::new(with_tls("hunter3")).await.unwrap_err();
        assert_eq!(client::code(&error), 1045);
    }
}

#[tokio::test]
async fn and_is_known_from_then_on() {
    let sandbox = cluster::single();
    account(sandbox, "passed_again");
    let gateway = setup(sandbox, "").start();
    assert!(!is_known(&gateway, "passed_again").await);
    assert!(!is_let_in(&gateway, "passed_again", "hunter3").await);
    assert!(
        !is_known(&gateway, "passed_again").await,
        "a wrong password makes nobody known"
    );
    assert!(is_let_in(&gateway, "passed_again", "hunter2").await);
    assert!(is_known(&gateway, "passed_again").await);
    assert!(!is_let_in(&gateway, "passed_again", "hunter3").await);
    assert!(
        is_known(&gateway, "passed_again").await,
        "nor a known one forgotten"
    );
    let tried = |result| gateway.metric("forebay_account_trials_total", &[&format!("result={result:?}")]);
    assert_eq!(
        ["let_in", "denied", "refused", "no_verdict"].map(tried),
        [1.0, 2.0, 0.0, 0.0]
    );
    assert_eq!(gateway.metric("forebay_accounts_known", &[]), 1.0);

    let forgetful = setup(sandbox, ", keep_passwords = false").start();
    for _ in 0..2 {
        assert!(is_let_in(&forgetful, "passed_again", "hunter2").await);
        assert!(!is_known(&forgetful, "passed_again").await);
    }
    let small = setup(sandbox, ", passwords_max = 1").start();
    account(sandbox, "passed_first");
    assert!(is_let_in(&small, "passed_first", "hunter2").await);
    assert!(is_let_in(&small, "passed_again", "hunter2").await);
    assert!(is_known(&small, "passed_again").await && !is_known(&small, "passed_first").await);
}

#[tokio::test]
async fn until_the_password_is_changed_or_the_account_is_dropped() {
    let sandbox = cluster::single();
    account(sandbox, "passed_changing");
    let gateway = setup(sandbox, ", interval = \"1s\"").start();
    let mut before = log_in(&gateway, "passed_changing", "hunter2").await.unwrap();
    sql(sandbox, "ALTER USER passed_changing@'%' IDENTIFIED BY 'hunter3'");
    // The new password needs no patience, and shows that the old one is none any more.
    assert!(is_let_in(&gateway, "passed_changing", "hunter3").await);
    assert!(!is_let_in(&gateway, "passed_changing", "hunter2").await);
    assert!(is_let_in(&gateway, "passed_changing", "hunter3").await);
    sql(sandbox, "DROP USER passed_changing@'%'");
    eventually("the account is known to be gone", async || {
        match log_in(&gateway, "passed_changing", "hunter3").await {
            Ok(_) => false,
            Err(error) => client::code(&error) == 1045,
        }
    })
    .await;
    // As on a server, those who are in stay in.
    assert_eq!(ask(&mut before, "SELECT 1").await, Ok(Some("1".to_owned())));
}

/// A server connection that has to be opened shows it before the time is over.
#[tokio::test]
async fn and_forgotten_when_a_server_refuses_it() {
    let sandbox = cluster::single();
    account(sandbox, "passed_refused");
    let gateway = setup(sandbox, ", interval = \"1d\"").start();
    let mut busy = log_in(&gateway, "passed_refused", "hunter2").await.unwrap();
    assert!(is_known(&gateway, "passed_refused").await);
    // It holds the account's connection, so that the next session needs one of its own.
    assert_eq!(ask(&mut busy, "BEGIN").await, Ok(None));
    sql(sandbox, "ALTER USER passed_refused@'%' IDENTIFIED BY 'hunter3'");
    assert!(!is_let_in(&gateway, "passed_refused", "hunter2").await);
    assert!(!is_known(&gateway, "passed_refused").await);
    assert!(is_let_in(&gateway, "passed_refused", "hunter3").await);
}

/// Its limit is reached by the connections that the gateway itself keeps: that says nothing of the password.
#[tokio::test]
async fn nor_by_a_server_that_is_too_busy_to_say() {
    let sandbox = cluster::single();
    account(sandbox, "passed_busy");
    sql(sandbox, "ALTER USER passed_busy@'%' WITH MAX_USER_CONNECTIONS 2");
    let gateway = setup(sandbox, ", interval = \"1s\"").start();
    let begun = Instant::now();
    let mut both = Vec::new();
    for _ in 0..2 {
        let mut session = log_in(&gateway, "passed_busy", "hunter2").await.unwrap();
        assert_eq!(ask(&mut session, "BEGIN").await, Ok(None));
        both.push(session);
    }
    for session in &mut both {
        assert_eq!(ask(session, "ROLLBACK").await, Ok(None));
    }
    while begun.elapsed() < Duration::from_secs(3) {
        assert!(is_let_in(&gateway, "passed_busy", "hunter2").await);
    }
}

#[tokio::test]
async fn behind_those_that_are_listed() {
    let sandbox = cluster::single();
    account(sandbox, "passed_listed");
    let gateway = setup(sandbox, "")
        .tables(&cluster::user("passed_listed", "other"))
        .start();
    assert!(!is_let_in(&gateway, "passed_listed", "hunter2").await);
}
