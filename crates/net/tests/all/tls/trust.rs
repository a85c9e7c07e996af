//! Who is trusted: servers by connectors, clients by acceptors.

use config::{ClientAuth, ClusterTls, ListenerTls, Verify};
use net::{NetError, TlsAcceptor, TlsConnector};

use super::authority::{Authority, Pair, cluster, listener};
use super::pair::{encrypted, shake_hands};

/// Whether a connector with these settings accepts a server that shows `pair` and is called `name`.
async fn trusts(settings: &ClusterTls, pair: &Pair, name: &str) -> Result<(), String> {
    let connector = TlsConnector::new(settings).unwrap();
    let acceptor = TlsAcceptor::new(&listener(pair)).unwrap();
    shake_hands(&connector, &acceptor, name)
        .await
        .0
        .map(drop)
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn without_verification_every_server_is_accepted() {
    let (authority, settings) = (Authority::new(), cluster(Verify::Off, None));
    for pair in [
        authority.issue("right", &["localhost"]),
        authority.issue_expired("old", &["localhost"]),
        authority.self_signed("self", &["elsewhere"]),
    ] {
        trusts(&settings, &pair, "localhost").await.unwrap();
        trusts(&settings, &pair, "127.0.0.1").await.unwrap();
        trusts(&settings, &pair, "not a name at all").await.unwrap();
    }
}

#[tokio::test]
async fn ca_checks_the_chain_and_not_the_name() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let settings = cluster(Verify::Ca, Some(authority.ca()));
    let right = authority.issue("right", &["db.example"]);
    trusts(&settings, &right, "db.example").await.unwrap();
    trusts(&settings, &right, "other.example").await.unwrap();
    trusts(&settings, &right, "127.0.0.1").await.unwrap();
    let error = trusts(&settings, &stranger.issue("x", &["db.example"]), "db.example")
        .await
        .unwrap_err();
    assert!(error.contains("UnknownIssuer"), "{error}");
    let error = trusts(
        &settings,
        &authority.issue_expired("old", &["db.example"]),
        "db.example",
    )
    .await
    .unwrap_err();
    assert!(error.contains("expired"), "{error}");
    let error = trusts(
        &settings,
        &authority.self_signed("self", &["db.example"]),
        "db.example",
    )
    .await
    .unwrap_err();
    assert!(error.contains("invalid peer certificate"), "{error}");
}

#[tokio::test]
async fn identity_checks_chain_and_name() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let settings = cluster(Verify::Identity, Some(authority.ca()));
    let right = authority.issue("right", &["db.example", "127.0.0.1"]);
    trusts(&settings, &right, "db.example").await.unwrap();
    trusts(&settings, &right, "127.0.0.1").await.unwrap();
    for wrong in ["other.example", "127.0.0.2", "right"] {
        let error = trusts(&settings, &right, wrong).await.unwrap_err();
        assert!(error.contains("not valid for name"), "{error}");
    }
    let error = trusts(&settings, &right, "/run/mysqld.sock").await.unwrap_err();
    assert!(
        error.contains("no name that a certificate can be checked against"),
        "{error}"
    );
    let error = trusts(&settings, &stranger.issue("x", &["db.example"]), "db.example")
        .await
        .unwrap_err();
    assert!(error.contains("UnknownIssuer"), "{error}");
}

#[tokio::test]
async fn a_certificate_listed_in_the_ca_file_is_trusted_itself() {
    let authority = Authority::new();
    let own = authority.self_signed("self", &["db.example"]);
    trusts(
        &cluster(Verify::Ca, Some(own.cert.clone())),
        &own,
        "anything.example",
    )
    .await
    .unwrap();
    let identity = cluster(Verify::Identity, Some(own.cert.clone()));
    trusts(&identity, &own, "db.example").await.unwrap();
    assert!(trusts(&identity, &own, "other.example").await.is_err());
    let other = authority.self_signed("other", &["db.example"]);
    assert!(trusts(&identity, &other, "db.example").await.is_err());
}

/// An acceptor that treats client certificates as told, and its answer to a client that shows `shown`.
async fn admits(mode: ClientAuth, authority: &Authority, shown: Option<&Pair>) -> Result<bool, String> {
    let gate = authority.issue("gate", &["localhost"]);
    let settings = ListenerTls {
        client_auth: mode,
        client_ca: Some(authority.ca()),
        ..listener(&gate)
    };
    let acceptor = TlsAcceptor::new(&settings).unwrap();
    let mut client = cluster(Verify::Off, None);
    client.cert = shown.map(|pair| pair.cert.clone());
    client.key = shown.map(|pair| pair.key.clone());
    let connector = TlsConnector::new(&client).unwrap();
    let (client, server) = shake_hands(&connector, &acceptor, "localhost").await;
    assert_eq!(client.is_ok(), server.is_ok());
    server
        .map(|stream| stream.peer_certificate().is_some())
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn client_certificates_are_off_optional_or_required() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let known = authority.issue("alice", &[]);
    let unknown = stranger.issue("mallory", &[]);
    assert_eq!(admits(ClientAuth::Off, &authority, None).await, Ok(false));
    assert_eq!(
        admits(ClientAuth::Off, &authority, Some(&unknown)).await,
        Ok(false)
    );
    assert_eq!(admits(ClientAuth::Optional, &authority, None).await, Ok(false));
    assert_eq!(
        admits(ClientAuth::Optional, &authority, Some(&known)).await,
        Ok(true)
    );
    assert_eq!(
        admits(ClientAuth::Required, &authority, Some(&known)).await,
        Ok(true)
    );
    let error = admits(ClientAuth::Required, &authority, None).await.unwrap_err();
    assert!(error.contains("no certificate"), "{error}");
    for mode in [ClientAuth::Optional, ClientAuth::Required] {
        let error = admits(mode, &authority, Some(&unknown)).await.unwrap_err();
        assert!(error.contains("UnknownIssuer"), "{error}");
    }
}

/// What `openssl x509 -req` makes of a request where nobody names extensions.
const VERSION_1: &str = "-----BEGIN CERTIFICATE-----\n\
MIIBFjCBvQIUX59cUatlewyV1Q4ItdDRCb4ekmMwCgYIKoZIzj0EAwIwDjEMMAoG\n\
A1UEAwwDb2xkMB4XDTI2MTEyMzA0MTc0OVoXDTI2MTEyODA0MTc0OVowDjEMMAoG\n\
A1UEAwwDb2xkMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEV3TBiwth2vpGGjIL\n\
L3oBRoe3HpcWug5zsTHT+vdGC/c1MTMQxufsKrwB/TC1klgPmV25JVz2TEN1Eta9\n\
wOGJEDAKBggqhkjOPQQDAgNIADBFAiAqAA6xSfVs2F02UasiImDFZAjfB9UJaosz\n\
GCljwx0f4wIhAK263omUDUDHVTU+NCUJtZ4VLQKASUfDVMDePfyGUQ/3\n\
-----END CERTIFICATE-----\n";

#[tokio::test]
async fn settings_that_cannot_work_are_explained() {
    let authority = Authority::new();
    let (one, two) = (authority.issue("one", &["one"]), authority.issue("two", &["two"]));
    let acceptor = |change: &dyn Fn(&mut ListenerTls)| {
        let mut settings = listener(&one);
        change(&mut settings);
        TlsAcceptor::new(&settings).unwrap_err().to_string()
    };
    let says = |error: String, expected: &str| assert!(error.contains(expected), "{error}");
    says(acceptor(&|tls| tls.cert = None), "needs `cert`");
    says(acceptor(&|tls| tls.key = None), "needs `key`");
    says(
        acceptor(&|tls| tls.client_auth = ClientAuth::Required),
        "needs `client_ca`",
    );
    says(
        acceptor(&|tls| tls.key = Some(two.key.clone())),
        "belongs to another certificate",
    );
    says(
        acceptor(&|tls| tls.key = Some(one.cert.clone())),
        "expected a PEM private key, found none",
    );
    says(
        acceptor(&|tls| tls.cert = Some(one.key.clone())),
        "expected PEM certificates, found none",
    );
    says(
        acceptor(&|tls| tls.cert = Some(authority.path("none"))),
        "cannot read certificate file",
    );
    let large = authority.path("large.pem");
    let file = std::fs::File::create(&large).unwrap();
    file.set_len(5 * 1024 * 1024).unwrap();
    says(acceptor(&|tls| tls.cert = Some(large.clone())), "larger than");
    let encrypted = authority.path("encrypted.key");
    std::fs::write(
        &encrypted,
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    says(
        acceptor(&|tls| tls.key = Some(encrypted.clone())),
        "the key is encrypted",
    );
    let version_1 = authority.path("version_1.pem");
    std::fs::write(&version_1, VERSION_1).unwrap();
    says(
        acceptor(&|tls| tls.cert = Some(version_1.clone())),
        "X.509 version 1, expected 3",
    );

    let connector = |tls: ClusterTls| TlsConnector::new(&tls).unwrap_err();
    assert!(matches!(
        connector(cluster(Verify::Ca, None)),
        NetError::TlsSettings(_)
    ));
    let half = ClusterTls {
        cert: Some(one.cert.clone()),
        ..cluster(Verify::Off, None)
    };
    assert!(matches!(connector(half), NetError::TlsSettings(_)));
    assert!(matches!(
        connector(cluster(Verify::Ca, Some(one.key.clone()))),
        NetError::BadFile { .. }
    ));
}

/// Whoever opens a pipe waits until somebody writes.
#[tokio::test]
async fn what_is_no_file_is_not_waited_for() {
    let authority = Authority::new();
    let pipe = authority.path("pipe.pem");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for no_file in [pipe, "/dev/zero".into(), authority.path(".")] {
        let mut settings = listener(&authority.issue("one", &["one"]));
        settings.cert = Some(no_file);
        let error = TlsAcceptor::new(&settings).unwrap_err().to_string();
        assert!(error.contains("expected a file, found"), "{error}");
    }
}

#[tokio::test]
async fn one_connection_does_not_disturb_the_next() {
    let authority = Authority::new();
    let acceptor = TlsAcceptor::new(&listener(&authority.issue("gate", &["localhost"]))).unwrap();
    let strict = TlsConnector::new(&cluster(Verify::Identity, Some(authority.ca()))).unwrap();
    for _ in 0..3 {
        assert!(shake_hands(&strict, &acceptor, "elsewhere").await.0.is_err());
        // The second time by a session ticket.
        encrypted(&strict, &acceptor, "localhost").await;
    }
}
