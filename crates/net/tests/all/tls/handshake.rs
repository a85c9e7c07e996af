//! Versions, the first bytes of a client, big transfers, ends.

use std::sync::Arc;

use config::{TlsVersion, Verify};
use net::{Listener, Peer, Stream, TlsAcceptor, TlsConnector, buffer};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::authority::{Authority, cluster, listener};
use super::pair::{encrypted, plain};

/// A client that speaks one version only.
fn client_of(
    authority: &Authority,
    version: &'static rustls::SupportedProtocolVersion,
) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(authority.ca()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

#[tokio::test]
async fn version_1_3_is_preferred() {
    let authority = Authority::new();
    let acceptor = TlsAcceptor::new(&listener(&authority.issue("gate", &["localhost"]))).unwrap();
    let connector = TlsConnector::new(&cluster(Verify::Off, None)).unwrap();
    let (client, server) = encrypted(&connector, &acceptor, "localhost").await;
    for stream in [&client, &server] {
        assert!(stream.is_encrypted());
        let (version, cipher) = stream.tls_summary().unwrap();
        assert_eq!(version, "TLSv1.3");
        assert!(cipher.starts_with("TLS13_"), "{cipher}");
    }
    assert!(client.peer_certificate().is_some());
    assert!(server.peer_certificate().is_none());
    assert_eq!(client.local().unwrap(), server.peer().unwrap());
    assert!(size_of::<Stream>() <= 48);
}

#[tokio::test]
async fn version_1_2_is_spoken_unless_forbidden() {
    let authority = Authority::new();
    let mut settings = listener(&authority.issue("gate", &["localhost"]));
    for (min_version, version, works) in [
        (TlsVersion::V12, &rustls::version::TLS12, true),
        (TlsVersion::V12, &rustls::version::TLS13, true),
        (TlsVersion::V13, &rustls::version::TLS12, false),
        (TlsVersion::V13, &rustls::version::TLS13, true),
    ] {
        settings.min_version = min_version;
        let acceptor = TlsAcceptor::new(&settings).unwrap();
        let (client, server) = plain().await;
        let connector = tokio_rustls::TlsConnector::from(client_of(&authority, version));
        let name = "localhost".try_into().unwrap();
        let (client, server) = tokio::join!(
            connector.connect(name, client),
            acceptor.accept(server, Vec::new())
        );
        assert_eq!(
            client.is_ok(),
            works,
            "{version:?} with a minimum of {min_version:?}: {:?}",
            client.err()
        );
        assert_eq!(server.is_ok(), works);
    }
}

/// MySQL clients may send their first TLS message together with the SSLRequest, so that some or all of it was
/// already read as if it were MySQL packets.
#[tokio::test]
async fn bytes_read_behind_the_ssl_request_begin_the_handshake() {
    let authority = Authority::new();
    let acceptor = TlsAcceptor::new(&listener(&authority.issue("gate", &["localhost"]))).unwrap();
    let connector = TlsConnector::new(&cluster(Verify::Off, None)).unwrap();
    for at_most in [1, 5, 100, 64 * 1024] {
        let (client, mut server) = plain().await;
        let server = async {
            let mut first = vec![0; at_most];
            let n = server.read(&mut first).await.unwrap();
            first.truncate(n);
            acceptor.accept(server, first).await
        };
        let (client, server) = tokio::join!(connector.connect(client, "localhost"), server);
        assert!(
            client.is_ok() && server.is_ok(),
            "{at_most}: {:?} {:?}",
            client.err(),
            server.err()
        );
    }
    let (_client, server) = plain().await;
    let error = acceptor.accept(server, vec![0; 64 * 1024 + 1]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
}

#[tokio::test]
async fn big_transfers_arrive_whole_and_leave_no_buffer_behind() {
    let authority = Authority::new();
    let acceptor = TlsAcceptor::new(&listener(&authority.issue("gate", &["localhost"]))).unwrap();
    let connector = TlsConnector::new(&cluster(Verify::Off, None)).unwrap();
    let (client, server) = encrypted(&connector, &acceptor, "localhost").await;
    assert_eq!(buffer::in_use_count(), 0, "an idle TLS connection holds a buffer");
    for (mut from, mut to) in [(client, server)] {
        let sent: Vec<u8> = (0..2_000_000_u32).map(|n| (n % 253) as u8).collect();
        let mut got = Vec::new();
        let write = async {
            from.write_all(&sent).await.unwrap();
            from.shutdown().await.unwrap();
            from
        };
        let (_from, read) = tokio::join!(write, to.read_to_end(&mut got));
        read.unwrap();
        assert!(got == sent);
        assert_eq!(buffer::in_use_count(), 0);
    }
}

#[tokio::test]
async fn an_end_without_close_notify_is_an_end() {
    let authority = Authority::new();
    let acceptor = TlsAcceptor::new(&listener(&authority.issue("gate", &["localhost"]))).unwrap();
    let connector = TlsConnector::new(&cluster(Verify::Off, None)).unwrap();
    let (client, mut server) = encrypted(&connector, &acceptor, "localhost").await;
    drop(client);
    server.closed().await;
    assert_eq!(server.read(&mut [0; 16]).await.unwrap(), 0);
}

#[tokio::test]
async fn what_is_not_tls_is_refused() {
    let authority = Authority::new();
    let acceptor = TlsAcceptor::new(&listener(&authority.issue("gate", &["localhost"]))).unwrap();
    let (mut client, server) = plain().await;
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(
        acceptor.accept(server, Vec::new()).await.unwrap_err().kind(),
        std::io::ErrorKind::InvalidData
    );
    let (client, server) = plain().await;
    drop(client);
    assert_eq!(
        acceptor.accept(server, Vec::new()).await.unwrap_err().kind(),
        std::io::ErrorKind::UnexpectedEof
    );
    assert_eq!(buffer::in_use_count(), 0);
}

#[tokio::test]
async fn runs_over_unix_sockets() {
    let authority = Authority::new();
    let acceptor = TlsAcceptor::new(&listener(&authority.issue("gate", &["localhost"]))).unwrap();
    let connector = TlsConnector::new(&cluster(Verify::Off, None)).unwrap();
    let gate = Listener::bind_unix(&authority.path("gate.sock"), 0o600, 4).unwrap();
    let client = Stream::connect_unix(&authority.path("gate.sock")).await.unwrap();
    let server = Stream::from_accepted(gate.accept().await.unwrap()).unwrap();
    // A path is no name for a certificate; without identity checks that is no obstacle.
    let (client, server) = tokio::join!(
        connector.connect(client, "/run/gate.sock"),
        acceptor.accept(server, Vec::new())
    );
    assert_eq!(client.unwrap().peer().unwrap(), Peer::Unix);
    server.unwrap();
}
