//! Files that change while the gateway runs.

use config::Verify;
use net::{NetError, TlsAcceptor, TlsConnector};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::authority::{Authority, Pair, cluster, listener, replace};
use super::pair::{encrypted, shake_hands};

/// Whether `acceptor` shows the certificate that is in the file now.
async fn shows(acceptor: &TlsAcceptor, pair: &Pair) -> bool {
    let connector = TlsConnector::new(&cluster(Verify::Off, None)).unwrap();
    let (client, _server) = encrypted(&connector, acceptor, "localhost").await;
    client.peer_certificate().unwrap() == CertificateDer::from_pem_file(&pair.cert).unwrap().as_ref()
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_new_connections_only() {
    let authority = Authority::new();
    let pair = authority.issue("gate", &["localhost"]);
    let acceptor = TlsAcceptor::new(&listener(&pair)).unwrap();
    assert!(!acceptor.reload_if_changed().unwrap());
    let connector = TlsConnector::new(&cluster(Verify::Off, None)).unwrap();
    let (mut client, mut server) = encrypted(&connector, &acceptor, "localhost").await;
    authority.issue("gate", &["localhost"]);
    assert!(!shows(&acceptor, &pair).await);
    assert!(acceptor.reload_if_changed().unwrap());
    assert!(shows(&acceptor, &pair).await);
    assert!(!acceptor.reload_if_changed().unwrap());
    client.write_all(b"still here").await.unwrap();
    client.flush().await.unwrap();
    let mut word = [0; 10];
    server.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"still here");
}

#[tokio::test]
async fn a_broken_certificate_is_reported_once_and_the_old_one_stays() {
    let authority = Authority::new();
    let pair = authority.issue("gate", &["localhost"]);
    let acceptor = TlsAcceptor::new(&listener(&pair)).unwrap();
    let good = std::fs::read_to_string(&pair.cert).unwrap();
    replace(&pair.cert, "garbage");
    let error = acceptor.reload_if_changed().unwrap_err();
    assert!(
        matches!(&error, NetError::BadFile { path, .. } if *path == pair.cert),
        "{error}"
    );
    assert!(!acceptor.reload_if_changed().unwrap());
    replace(&pair.cert, &good);
    assert!(acceptor.reload_if_changed().unwrap());
    assert!(shows(&acceptor, &pair).await);

    std::fs::remove_file(&pair.cert).unwrap();
    assert!(matches!(
        acceptor.reload_if_changed(),
        Err(NetError::ReadFile { .. })
    ));
    let connector = TlsConnector::new(&cluster(Verify::Ca, Some(authority.ca()))).unwrap();
    encrypted(&connector, &acceptor, "localhost").await;
}

#[tokio::test]
async fn certificate_and_key_may_be_replaced_one_after_the_other() {
    let authority = Authority::new();
    let pair = authority.issue("gate", &["localhost"]);
    let acceptor = TlsAcceptor::new(&listener(&pair)).unwrap();
    let next = authority.issue("next", &["localhost"]);
    replace(&pair.cert, &std::fs::read_to_string(&next.cert).unwrap());
    let error = acceptor.reload_if_changed().unwrap_err().to_string();
    assert!(error.contains("belongs to another certificate"), "{error}");
    replace(&pair.key, &std::fs::read_to_string(&next.key).unwrap());
    assert!(acceptor.reload_if_changed().unwrap());
    assert!(shows(&acceptor, &next).await);
}

#[tokio::test]
async fn a_link_that_points_elsewhere_is_a_change() {
    let authority = Authority::new();
    let (one, two) = (
        authority.issue("one", &["localhost"]),
        authority.issue("two", &["localhost"]),
    );
    let link = |name: &str, to: &std::path::Path| {
        let (path, aside) = (authority.path(name), authority.path("aside"));
        std::os::unix::fs::symlink(to, &aside).unwrap();
        std::fs::rename(aside, &path).unwrap();
        path
    };
    let pair = Pair {
        cert: link("cert", &one.cert),
        key: link("key", &one.key),
    };
    let acceptor = TlsAcceptor::new(&listener(&pair)).unwrap();
    link("cert", &two.cert);
    link("key", &two.key);
    assert!(acceptor.reload_if_changed().unwrap());
    assert!(shows(&acceptor, &two).await);
}

#[tokio::test]
async fn a_new_ca_is_used_for_new_connections() {
    let (old, new) = (Authority::new(), Authority::new());
    let file = old.path("trusted.pem");
    replace(&file, &std::fs::read_to_string(old.ca()).unwrap());
    let connector = TlsConnector::new(&cluster(Verify::Ca, Some(file.clone()))).unwrap();
    let acceptor = TlsAcceptor::new(&listener(&new.issue("server", &["localhost"]))).unwrap();
    assert!(shake_hands(&connector, &acceptor, "localhost").await.0.is_err());
    replace(&file, "");
    assert!(connector.reload_if_changed().is_err());
    replace(&file, &std::fs::read_to_string(new.ca()).unwrap());
    assert!(connector.reload_if_changed().unwrap());
    encrypted(&connector, &acceptor, "localhost").await;
}
