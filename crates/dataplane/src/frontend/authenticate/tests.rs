use std::net::SocketAddr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use config::Secret;
use mysql_wire::{Capabilities, OkPacket, StatusFlags, auth};
use net::{Stream, TlsAcceptor};
use testkit::certificates::Certificates;
use testkit::scripted::{self, ClientError, Identity};
use tokio::net::{TcpListener, TcpStream};
use upstream::CredentialSecret;
use upstream::{Cluster, ServerProfile};

use super::*;
use crate::frontend::handshake::greet;
use crate::frontend::rsa_key;
use crate::frontend::users::Users;

mod hashes;

/// `PASSWORD('secret')`
const HASH: &str = "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7";

/// A key that all tests share, since making one takes a while.
static KEY: LazyLock<Arc<PrivateKey>> = LazyLock::new(|| Arc::new(PrivateKey::generate().unwrap()));

/// A listener of mode `split` that clients log in at, one at a time.
struct Stage {
    listener: ListenerState,
    accounts: Accounts,
    greeted_with: &'static str,
    sockets: TcpListener,
    certificates: Certificates,
}

impl Stage {
    async fn new(users: &[config::User]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Certificates::generate().unwrap();
        certificates.write_to(folder.path()).unwrap();
        let bind = config::BindAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let mut config = config::Listener::new(bind, "main");
        // Many logins fail here.
        config.login_delay_max = Duration::ZERO;
        config.tls.mode = config::TlsMode::Preferred;
        config.tls.cert = Some(folder.path().join("cert.pem"));
        config.tls.key = Some(folder.path().join("key.pem"));
        Self {
            listener: ListenerState {
                tls: Some(Arc::new(TlsAcceptor::new(&config.tls).unwrap())),
                config,
                cluster: Cluster::new(config::Cluster::new("main", Vec::new())).unwrap(),
                cluster_serial: 1,
                rsa_key: Arc::clone(&KEY),
                active: Arc::new(AtomicU32::new(0)),
            },
            accounts: Accounts::new(Users::new(users, None)),
            greeted_with: "caching_sha2_password",
            sockets: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            certificates,
        }
    }

    fn address(&self) -> SocketAddr {
        self.sockets.local_addr().unwrap()
    }

    /// The next client's login, up to what it is told in the end.
    async fn take_one(&self) -> Result<Authenticated, SessionError> {
        let (stream, host) = self.sockets.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Some(Client {
            stream: Stream::from(stream),
            sequence: 0,
            unread: Vec::new(),
            capabilities: Capabilities::default(),
        });
        let profile = ServerProfile {
            server_version: b"9.7.4".to_vec(),
            capabilities: Capabilities(u64::MAX),
            charset: 45,
            auth_plugin: self.greeted_with.into(),
            status: StatusFlags::default(),
        };
        let (login, greeting) = greet(&mut client, &self.listener, &profile, 7).await?;
        let mut client = client.unwrap();
        let result = authenticate(
            &mut client,
            &login,
            &greeting,
            &Peer::from(host),
            &self.accounts,
            &self.listener,
        )
        .await;
        let mut side = LoginPeer::new(&mut client.stream, &mut client.sequence, client.unread);
        tell(&mut side, &result).await;
        result
    }

    /// Both sides of a login of the scripted client.
    async fn log_in(
        &self,
        identity: &Identity,
    ) -> (Result<(), ClientError>, Result<Authenticated, SessionError>) {
        let client = async {
            scripted::Client::connect(self.address(), identity)
                .await
                .map(drop)
        };
        tokio::join!(client, self.take_one())
    }
}

/// Tells the client how its login has ended.
async fn tell(side: &mut LoginPeer<'_>, result: &Result<Authenticated, SessionError>) {
    let mut payload = Vec::new();
    match result {
        Ok(_) => OkPacket::default().encode(&mut payload, Capabilities::PROTOCOL_41),
        Err(error) => error
            .to_packet()
            .unwrap()
            .encode(&mut payload, Capabilities::PROTOCOL_41),
    }
    side.write(&payload).await.unwrap();
}

/// `app` has a password, `changing` two, `hashed` a hash, `open` none; `nobody` is no account.
fn accounts() -> Vec<config::User> {
    let user = |name, password| config::User::new(name, Some(Secret::new(password)));
    let mut changing = user("changing", "another");
    changing.previous_password = Some(Secret::new("secret"));
    let mut hashed = config::User::new("hashed", None);
    hashed.native_hash = Some(Secret::new(HASH));
    vec![user("app", "secret"), changing, hashed, user("open", "")]
}

/// Without hashes, no account that does not exist is asked for the native plugin.
fn accounts_with_passwords() -> Vec<config::User> {
    accounts()
        .into_iter()
        .filter(|user| user.name != "hashed")
        .collect()
}

fn is_right(user: &str, password: &str) -> bool {
    match user {
        "app" | "hashed" => password == "secret",
        "changing" => password == "another" || password == "secret",
        "open" => password.is_empty(),
        _ => false,
    }
}

/// Every plugin that a client may come with, whatever it was greeted with, with every kind of account and
/// password.
async fn sweep(over_tls: bool) {
    let mut stage = Stage::new(&accounts()).await;
    let tls = over_tls.then(|| stage.certificates.client_config(false).unwrap());
    for greeted_with in [
        "caching_sha2_password",
        "mysql_native_password",
        "sha256_password",
        "auth_gssapi",
    ] {
        stage.greeted_with = greeted_with;
        for plugin in [
            "mysql_native_password",
            "caching_sha2_password",
            "sha256_password",
            "mysql_clear_password",
        ] {
            for user in ["app", "changing", "hashed", "open", "nobody"] {
                for password in ["secret", "another", "wrong", ""] {
                    let case = format!("{greeted_with} {plugin} {user} {password:?}");
                    let identity = Identity {
                        user: user.into(),
                        password: password.into(),
                        plugin,
                        tls: tls.clone(),
                        ..Identity::default()
                    };
                    check(stage.log_in(&identity).await, user, password, &case);
                }
            }
        }
    }
}

fn check(
    (client, server): (Result<(), ClientError>, Result<Authenticated, SessionError>),
    user: &str,
    password: &str,
    case: &str,
) {
    match (client, server) {
        (Ok(()), Ok(authenticated)) if is_right(user, password) => {
            assert_eq!(&*authenticated.credential.user, user, "{case}");
            match authenticated.credential.secret {
                CredentialSecret::Password(known) => assert_eq!(known.reveal(), password, "{case}"),
                CredentialSecret::NativeStage1(stage1) => {
                    let nonce = [9; 20];
                    let answer = auth::native_from_stage1(&nonce, &stage1).to_vec();
                    assert_eq!(
                        answer,
                        auth::native_password(&nonce, password.as_bytes()),
                        "{case}"
                    );
                }
            }
            let other = authenticated.other_credential.is_some();
            assert_eq!(other, user == "changing", "{case}");
        }
        (Err(ClientError::Refused(packet)), Err(SessionError::AccessDenied { .. }))
            if !is_right(user, password) =>
        {
            let used = if password.is_empty() { "NO" } else { "YES" };
            let text = format!("Access denied for user '{user}'@'127.0.0.1' (using password: {used})");
            assert_eq!((packet.code, &packet.sql_state), (1045, b"28000"), "{case}");
            assert_eq!(String::from_utf8(packet.message).unwrap(), text, "{case}");
        }
        (client, server) => panic!("{case}: {client:?}, {server:?}"),
    }
}

#[tokio::test]
async fn every_client_gets_in_with_its_password_and_with_no_other() {
    sweep(false).await;
}

#[tokio::test]
async fn every_client_gets_in_over_tls() {
    sweep(true).await;
}

/// A client whose every packet the test chooses.
struct ByHand {
    stream: Stream,
    sequence: u8,
    nonce: [u8; 20],
}

impl ByHand {
    async fn greeted(stage: &Stage) -> Self {
        let stream = TcpStream::connect(stage.address()).await.unwrap();
        let mut client = Self {
            stream: Stream::from(stream),
            sequence: 0,
            nonce: [0; 20],
        };
        client.nonce = Greeting::decode(&client.read().await).unwrap().nonce;
        client
    }

    async fn read(&mut self) -> Vec<u8> {
        LoginPeer::new(&mut self.stream, &mut self.sequence, Vec::new())
            .read()
            .await
            .unwrap()
    }

    async fn write(&mut self, payload: &[u8]) {
        let mut side = LoginPeer::new(&mut self.stream, &mut self.sequence, Vec::new());
        side.write(payload).await.unwrap();
    }

    async fn log_in(&mut self, user: &str, plugin: &str, answer: Vec<u8>) {
        let mut payload = Vec::new();
        Login {
            capabilities: Capabilities::PROTOCOL_41
                | Capabilities::SECURE_CONNECTION
                | Capabilities::PLUGIN_AUTH,
            max_packet_size: 1 << 24,
            charset: 45,
            user: user.into(),
            auth_response: answer,
            database: None,
            auth_plugin: Some(plugin.into()),
            attributes: None,
            zstd_level: None,
        }
        .encode(&mut payload);
        self.write(&payload).await;
    }

    /// Reads the switch that must come now.
    async fn asked(&mut self) -> AuthSwitch {
        AuthSwitch::decode(&self.read().await).unwrap()
    }

    async fn is_let_in(&mut self) -> bool {
        self.read().await[0] == OkPacket::HEADER
    }
}

#[tokio::test]
async fn mariadb_clients_sign_with_ed25519() {
    let stage = Stage::new(&accounts_with_passwords()).await;
    for user in ["app", "changing", "open", "nobody"] {
        for password in ["secret", "another", "wrong", ""] {
            let client = async {
                let mut client = ByHand::greeted(&stage).await;
                client.log_in(user, "client_ed25519", vec![]).await;
                let AuthSwitch { plugin, data } = client.asked().await;
                assert_eq!(plugin, b"client_ed25519");
                let nonce: [u8; 32] = data.try_into().expect("nothing behind the nonce");
                client.write(&auth::ed25519(&nonce, password.as_bytes())).await;
                client.is_let_in().await
            };
            let (let_in, result) = tokio::join!(client, stage.take_one());
            assert_eq!(
                (let_in, result.is_ok()),
                (is_right(user, password), is_right(user, password))
            );
        }
    }
}

#[tokio::test]
async fn of_a_hash_only_the_native_plugin_can_be_asked() {
    let stage = Stage::new(&accounts()).await;
    for plugin in ["client_ed25519", "caching_sha2_password"] {
        let client = async {
            let mut client = ByHand::greeted(&stage).await;
            client.log_in("hashed", plugin, vec![1; 32]).await;
            let switch = client.asked().await;
            assert_eq!(switch.plugin, b"mysql_native_password");
            assert_eq!(switch.data.len(), 21);
            let nonce = switch.nonce().unwrap();
            assert_ne!(nonce, client.nonce);
            client.write(&auth::native_password(&nonce, b"secret")).await;
            client.is_let_in().await
        };
        let (let_in, result) = tokio::join!(client, stage.take_one());
        assert!(let_in && result.is_ok());
    }
}

/// Clients that prefer to send the password itself ask for the key on a plain link.
#[tokio::test]
async fn a_password_may_come_encrypted_for_the_gateway() {
    let stage = Stage::new(&accounts_with_passwords()).await;
    let other_key = PrivateKey::generate().unwrap();
    for (user, password, foreign) in [
        ("app", "secret", false),
        ("changing", "another", false),
        ("app", "wrong", false),
        ("app", "", false),
        ("nobody", "secret", false),
        ("app", "secret", true),
    ] {
        let client = async {
            let mut client = ByHand::greeted(&stage).await;
            client.log_in(user, "caching_sha2_password", vec![]).await;
            let nonce = client.asked().await.nonce().unwrap();
            client.write(&[2]).await;
            let key = AuthMoreData::decode(&client.read().await).unwrap().data;
            assert_eq!(key, KEY.public_pem().as_bytes());
            let key = if foreign {
                other_key.public_pem().as_bytes()
            } else {
                &key
            };
            let password = [password.as_bytes(), &[0]].concat();
            client
                .write(&rsa_key::encrypt_password(key, &password, &nonce).unwrap())
                .await;
            client.is_let_in().await
        };
        let (let_in, result) = tokio::join!(client, stage.take_one());
        let right = is_right(user, password) && !foreign;
        assert_eq!((let_in, result.is_ok()), (right, right), "{user} {password}");
    }
}

#[tokio::test]
async fn a_password_in_the_clear_is_not_taken_on_a_plain_link() {
    let stage = Stage::new(&accounts()).await;
    for answer in [&b"secret\0"[..], b"secret", &[0; 64], &[2, 2]] {
        let client = async {
            let mut client = ByHand::greeted(&stage).await;
            client
                .log_in("app", "caching_sha2_password", answer.to_vec())
                .await;
            client.is_let_in().await
        };
        let (let_in, result) = tokio::join!(client, stage.take_one());
        assert!(!let_in && result.is_err(), "{answer:?}");
    }
}

/// The packets that a client gets to see of a failed login, without nonces.
async fn failed_login(stage: &Stage, user: &str, plugin: &str, answer: Vec<u8>) -> Vec<Vec<u8>> {
    let client = async {
        let mut client = ByHand::greeted(stage).await;
        client.log_in(user, plugin, answer).await;
        let mut seen = Vec::new();
        loop {
            let packet = client.read().await;
            match packet[0] {
                0xfe => {
                    let switch = AuthSwitch::decode(&packet).unwrap();
                    client.write(&[7; 32]).await;
                    seen.push([&switch.plugin[..], &[switch.data.len() as u8]].concat());
                }
                _ => {
                    seen.push(
                        String::from_utf8_lossy(&packet)
                            .replace(user, "USER")
                            .into_bytes(),
                    );
                    return seen;
                }
            }
        }
    };
    let (seen, result) = tokio::join!(client, stage.take_one());
    assert!(matches!(result, Err(SessionError::AccessDenied { .. })));
    seen
}

#[tokio::test]
async fn a_wrong_password_and_an_account_that_does_not_exist_look_alike() {
    let mut stage = Stage::new(&[]).await;
    for name in ["app", "changing", "hashed"] {
        let only: Vec<_> = accounts().into_iter().filter(|user| user.name == name).collect();
        stage.accounts = Accounts::new(Users::new(&only, None));
        for greeted_with in ["caching_sha2_password", "mysql_native_password"] {
            stage.greeted_with = greeted_with;
            for plugin in [
                "mysql_native_password",
                "caching_sha2_password",
                "client_ed25519",
                "dialog",
                "",
            ] {
                for answer in [vec![], vec![0], vec![2; 20], vec![2; 32], vec![2; 64]] {
                    let known = failed_login(&stage, name, plugin, answer.clone()).await;
                    let unknown = failed_login(&stage, "nobody", plugin, answer.clone()).await;
                    assert_eq!(known, unknown, "{name} {greeted_with} {plugin} {answer:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_login_within_a_session_is_asked_for_anew() {
    let stage = Stage::new(&accounts()).await;
    for (user, password) in [
        ("app", "secret"),
        ("app", "wrong"),
        ("hashed", "secret"),
        ("open", ""),
        ("nobody", ""),
    ] {
        let request = ChangeUser {
            user: user.into(),
            // An answer made with an old nonce.
            auth_response: vec![1; 20],
            database: Vec::new(),
            charset: Some(45),
            auth_plugin: Some(b"mysql_native_password".to_vec()),
            attributes: None,
        };
        let client = async {
            let stream = TcpStream::connect(stage.address()).await.unwrap();
            let mut client = ByHand {
                stream: Stream::from(stream),
                sequence: 1,
                nonce: [0; 20],
            };
            let nonce = client.asked().await.nonce().unwrap();
            client
                .write(&auth::native_password(&nonce, password.as_bytes()))
                .await;
            client.is_let_in().await
        };
        let server = async {
            let (stream, host) = stage.sockets.accept().await.unwrap();
            let (mut stream, mut sequence) = (Stream::from(stream), 1);
            let mut side = LoginPeer::new(&mut stream, &mut sequence, Vec::new());
            let result = reauthenticate(
                &mut side,
                &request,
                (&Peer::from(host), None),
                &stage.accounts,
                &stage.listener,
            )
            .await;
            tell(&mut side, &result).await;
            result
        };
        let (let_in, result) = tokio::join!(client, server);
        let right = is_right(user, password);
        assert_eq!((let_in, result.is_ok()), (right, right), "{user} {password}");
    }
}

#[tokio::test]
async fn an_account_has_no_more_sessions_than_it_may() {
    let mut accounts = accounts();
    accounts[0].max_connections = Some(1);
    let stage = Stage::new(&accounts).await;
    let identity = Identity::default();
    let (_, first) = stage.log_in(&identity).await;
    let first = first.unwrap();
    let (refused, second) = stage.log_in(&identity).await;
    let Err(ClientError::Refused(packet)) = refused else {
        panic!("{second:?}");
    };
    assert_eq!((packet.code, &packet.sql_state), (1226, b"42000"));
    assert_eq!(
        String::from_utf8(packet.message).unwrap(),
        "User 'app' has exceeded the 'max_user_connections' resource (current value: 1)"
    );
    // A client with a wrong password does not get to know how many sessions there are.
    let wrong = Identity {
        password: b"wrong".to_vec(),
        ..Identity::default()
    };
    assert!(matches!(
        stage.log_in(&wrong).await.1,
        Err(SessionError::AccessDenied { .. })
    ));
    drop(first);
    assert!(stage.log_in(&identity).await.0.is_ok());
}

#[tokio::test]
async fn a_client_that_does_not_answer_has_only_so_long() {
    let mut stage = Stage::new(&accounts()).await;
    stage.listener.config.login_timeout = Duration::from_secs(1);
    let client = async {
        let mut client = ByHand::greeted(&stage).await;
        client.log_in("app", "dialog", vec![]).await;
        client.asked().await;
        client.is_let_in().await
    };
    let (let_in, result) = tokio::join!(client, stage.take_one());
    assert!(!let_in && matches!(result, Err(SessionError::LoginTimeout(_))));
}

#[test]
fn clients_are_named_as_servers_name_them() {
    let peer = |text: &str| Peer::from(text.parse::<SocketAddr>().unwrap());
    assert_eq!(host_name(&peer("10.1.2.3:4567")), "10.1.2.3");
    assert_eq!(host_name(&peer("[::ffff:10.1.2.3]:4567")), "10.1.2.3");
    assert_eq!(host_name(&peer("[fd00::1]:4567")), "fd00::1");
    assert_eq!(host_name(&Peer::Unix), "localhost");
}

/// The log has no line that is as long as a login packet.
#[test]
fn of_a_long_name_the_beginning_is_told() {
    let told = access_denied(&[b'x'; 100_000], &Peer::Unix, true).to_string();
    assert!(told.len() < 400, "{} bytes", told.len());
}

fn asking<'a>(host: &'a Peer, stage: &Stage) -> Asking<'a> {
    Asking::new(host, b"app", &stage.listener.config)
}

/// The key to encrypt a password with was asked for, and the password does not come.
#[tokio::test]
async fn a_client_that_stalls_in_its_login_keeps_nobody_waiting() {
    let mut stage = Stage::new(&accounts()).await;
    stage.listener.config.login_delay_max = Duration::from_secs(10);
    let host = Peer::from(SocketAddr::from(([127, 0, 0, 1], 1)));
    for _ in 0..3 {
        let attempt = stage.accounts.guesses.begin(asking(&host, &stage)).await;
        attempt.unwrap().failed();
    }
    let client = async {
        let mut client = ByHand::greeted(&stage).await;
        client.log_in("app", "caching_sha2_password", vec![2]).await;
        assert_eq!(client.read().await[0], 1, "the key");
        let attempt = stage.accounts.guesses.begin(asking(&host, &stage));
        let begun = timeout(Duration::from_secs(5), attempt).await;
        begun.expect("somebody else waits").unwrap().succeeded();
    };
    tokio::select! {
        () = client => {}
        result = stage.take_one() => panic!("the login is over: {result:?}"),
    }
}
