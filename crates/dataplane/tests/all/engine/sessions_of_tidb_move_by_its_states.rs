//! Sessions of mode `session` on TiDB: scripted servers that answer as its documentation says of
//! `SHOW SESSION_STATES` and of logins with a token.
//! <https://github.com/pingcap/tidb/blob/master/docs/design/2022-07-20-session-manager.md>

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_wire::{Capabilities, Command, ErrPacket, Login};
use testkit::certificates::Certificates;
use testkit::scripted::{Client, Identity, Reply, Seen, Server, ServerScript};
use tokio::time::{sleep, timeout};

use super::stage::PATIENCE;
use crate::gateway::RunningGateway;

/// Neither SESSION_TRACK nor DEPRECATE_EOF.
const CAPABILITIES: Capabilities = Capabilities(
    Capabilities::PROTOCOL_41.0
        | Capabilities::LONG_PASSWORD.0
        | Capabilities::LONG_FLAG.0
        | Capabilities::TRANSACTIONS.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::PLUGIN_AUTH_LENENC.0
        | Capabilities::MULTI_RESULTS.0,
);

/// With all that has to be written in another way inside of a literal.
const STATES: &str = r#"{"current-db":"it's","user-vars":{"a":"\\b\"c"}}"#;
const SET: &str = r#"SET SESSION_STATES '{"current-db":"it''s","user-vars":{"a":"\\\\b\\"c"}}'"#;

/// How a server answers, beyond what all do.
#[derive(Clone, Copy, Default)]
struct Refuses {
    /// Questions for the states of a session.
    states: bool,
    /// States of another server's.
    set: bool,
    /// Tokens: this one is older than a minute.
    token: bool,
}

fn refusal(message: &str) -> Reply {
    let mut payload = Vec::new();
    ErrPacket {
        code: 8146,
        sql_state: *b"HY000",
        message: message.into(),
    }
    .encode(&mut payload, CAPABILITIES);
    Reply::Payloads(vec![payload])
}

/// One row of texts.
fn row(names: &[&str], values: &[&str]) -> Reply {
    let text = |text: &str| {
        let len = text.len() as u16;
        let len = match len {
            0..251 => vec![len as u8],
            _ => [&[0xfc][..], &len.to_le_bytes()].concat(),
        };
        [&len, text.as_bytes()].concat()
    };
    let column = |name: &&str| {
        let names = ["def", "", "", "", name, name].map(text).concat();
        [names, vec![0x0c, 45, 0, 0, 4, 0, 0, 0xfd, 0, 0, 0, 0, 0]].concat()
    };
    let eof = || vec![0xfe, 0, 0, 2, 0];
    let mut payloads = vec![vec![names.len() as u8]];
    payloads.extend(names.iter().map(column));
    payloads.push(eof());
    payloads.push(
        values
            .iter()
            .map(|value| text(value))
            .collect::<Vec<_>>()
            .concat(),
    );
    payloads.push(eof());
    Reply::Payloads(payloads)
}

/// Longer than a byte can say, as real ones are.
fn token() -> String {
    format!("{{\"username\":\"app\",\"signature\":\"{}\"}}", "s".repeat(300))
}

fn script(certificates: &Certificates, refuses: Refuses) -> ServerScript {
    ServerScript {
        version: "8.0.11-TiDB-v8.5.0".into(),
        capabilities: CAPABILITIES,
        tls: Some(certificates.server_config().unwrap()),
        accepts_anyone: true,
        refuses_plugin: refuses.token.then_some("tidb_session_token"),
        special: Some(Arc::new(move |request| {
            let (&command, text) = request.split_first()?;
            let text = str::from_utf8(text)
                .ok()
                .filter(|_| command == Command::QUERY.0)?;
            match text {
                "SHOW SESSION_STATES" if refuses.states => Some(refusal(
                    "cannot migrate the current session: session has locked tables",
                )),
                "SHOW SESSION_STATES" => Some(row(&["Session_states", "Session_token"], &[STATES, &token()])),
                text if text.starts_with("SET SESSION_STATES") && refuses.set => Some(refusal("it is none")),
                text if text.starts_with("SET SESSION_STATES") => Some(ok()),
                "WHICH" => Some(ok()),
                _ => None,
            }
        })),
        ..ServerScript::default()
    }
}

fn ok() -> Reply {
    Reply::Payloads(vec![vec![0, 0, 0, 2, 0, 0, 0]])
}

struct Stage {
    servers: Vec<Server>,
    gateway: RunningGateway,
    client: Client,
}

impl Stage {
    /// Two servers and a session. All servers refuse the same.
    async fn set(refuses: Refuses) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Certificates::generate().unwrap();
        certificates.write_to(folder.path()).unwrap();
        let mut servers = Vec::new();
        for _ in 0..2 {
            servers.push(Server::start(script(&certificates, refuses)).await.unwrap());
        }
        let gateway = RunningGateway::start(&configuration(folder.path(), &servers), None);
        let identity = Identity {
            capabilities: CAPABILITIES,
            ..Identity::default()
        };
        let client = Client::connect(gateway.addresses()[0], &identity).await.unwrap();
        Self {
            servers,
            gateway,
            client,
        }
    }

    /// The client sends a statement; on which server it arrived.
    async fn is_at(&mut self) -> usize {
        let before: Vec<usize> = self.servers.iter().map(|server| had(server, "WHICH")).collect();
        self.client
            .send(&[&[Command::QUERY.0], &b"WHICH"[..]].concat())
            .await
            .unwrap();
        let answer = timeout(PATIENCE, self.client.receive()).await;
        assert_eq!(answer.unwrap().unwrap().payload[0], 0);
        let grown = |at: &usize| had(&self.servers[*at], "WHICH") > before[*at];
        (0..self.servers.len()).find(grown).unwrap()
    }

    /// A server is drained as soon as another one is known to be up: its first check may not be over yet.
    async fn drain(&self, server: usize) {
        let name = self.servers[server].address().to_string();
        let clusters = self.gateway.gateway().clusters();
        let began = Instant::now();
        while let Err(why) = clusters[0].drain(&name, None) {
            assert!(began.elapsed() < PATIENCE, "{why}");
            sleep(Duration::from_millis(1)).await;
        }
    }
}

fn configuration(folder: &Path, servers: &[Server]) -> String {
    let mut names = String::new();
    for server in servers {
        write!(names, "\"{}\", ", server.address()).unwrap();
    }
    format!(
        r#"
        workers = 1
        [[listener]]
        login_delay_max = "0s"
        login_timeout = "1m"
        bind = "127.0.0.1:0"
        cluster = "main"
        mode = "session"
        moves = true
        [cluster.main]
        servers = [{names}]
        tls = {{ mode = "required", ca = "{}" }}
        login_timeout = "1m"
        check = {{ interval = "1h", rise = 1, timeout = "1m" }}
        "#,
        folder.join("ca.pem").display()
    )
}

/// How often a server has had this text.
fn had(server: &Server, text: &str) -> usize {
    let is_it = |request: &&Vec<u8>| request[0] == Command::QUERY.0 && request[1..] == *text.as_bytes();
    server
        .seen()
        .iter()
        .map(|seen| seen.requests.iter().filter(is_it).count())
        .sum()
}

fn login_by_token(server: &Server) -> Option<(Login, Seen)> {
    let by_token = |seen: &Seen| {
        let login = seen.login.clone()?;
        let is_it = login.auth_plugin.as_deref() == Some(b"tidb_session_token");
        is_it.then(|| (login, seen.clone()))
    };
    server.seen().iter().find_map(by_token)
}

#[tokio::test]
async fn and_its_token_lets_them_in() {
    let mut stage = Stage::set(Refuses::default()).await;
    let first = stage.is_at().await;
    stage.drain(first).await;
    let second = stage.is_at().await;
    assert_ne!(first, second);
    assert_eq!(had(&stage.servers[first], "SHOW SESSION_STATES"), 1);
    let (login, seen) = login_by_token(&stage.servers[second]).expect("a login by the token");
    assert!(seen.encrypted);
    assert_eq!(login.user, b"app");
    assert_eq!(login.auth_response, token().as_bytes());
    assert_eq!(had(&stage.servers[second], SET), 1);
    assert_eq!(stage.is_at().await, second, "once is enough");
}

#[tokio::test]
async fn with_the_ids_of_their_statements() {
    let mut stage = Stage::set(Refuses::default()).await;
    let first = stage.is_at().await;
    let prepare = [&[Command::STMT_PREPARE.0], &b"ROWS 1"[..]].concat();
    let prepared = stage.client.exchange(&prepare).await.unwrap();
    // Behind the packet's header and its first byte.
    let execute = [&[Command::STMT_EXECUTE.0], &prepared[5..9], &[0, 1, 0, 0, 0]].concat();
    stage.client.exchange(&execute).await.unwrap();
    let executed = |server: &Server| {
        let requests = server.seen().into_iter().flat_map(|seen| seen.requests);
        let mut executions = requests.filter(|request| request[0] == Command::STMT_EXECUTE.0);
        executions.next().map(|request| request[1..5].to_vec())
    };
    let id = executed(&stage.servers[first]).expect("an execution");
    stage.drain(first).await;
    let second = stage.is_at().await;
    stage.client.send(&execute).await.unwrap();
    let is_there = |all: &[Seen]| {
        let mut requests = all.iter().flat_map(|seen| &seen.requests);
        requests.any(|request| request[0] == Command::STMT_EXECUTE.0)
    };
    let there = stage.servers[second].wait_until(is_there).await;
    assert!(there.is_some(), "it is executed as it is, and not prepared anew");
    assert_eq!(executed(&stage.servers[second]), Some(id));
}

#[tokio::test]
async fn unless_it_cannot_let_them_go() {
    let mut stage = Stage::set(Refuses {
        states: true,
        ..Refuses::default()
    })
    .await;
    let first = stage.is_at().await;
    stage.drain(first).await;
    assert_eq!(stage.is_at().await, first);
    assert!(had(&stage.servers[first], "SHOW SESSION_STATES") > 0);
    assert!(
        stage
            .servers
            .iter()
            .all(|server| login_by_token(server).is_none())
    );
}

#[tokio::test]
async fn or_the_other_one_does_not_take_them() {
    let mut stage = Stage::set(Refuses {
        set: true,
        ..Refuses::default()
    })
    .await;
    let first = stage.is_at().await;
    stage.drain(first).await;
    assert_eq!(stage.is_at().await, first);
    let other = &stage.servers[1 - first];
    assert_eq!(had(other, SET), 1);
    let has_left = |seen: &Seen| {
        seen.requests
            .last()
            .is_some_and(|last| last[0] == Command::QUIT.0)
    };
    let left = other.wait_until(|all| all.iter().any(has_left)).await;
    assert!(left.is_some(), "the connection that came to nothing is closed");
}

#[tokio::test]
async fn or_its_token_is_too_old() {
    let mut stage = Stage::set(Refuses {
        token: true,
        ..Refuses::default()
    })
    .await;
    let first = stage.is_at().await;
    stage.drain(first).await;
    assert_eq!(stage.is_at().await, first);
    let other = &stage.servers[1 - first];
    let (login, seen) = login_by_token(other).expect("it has tried");
    assert_eq!(login.auth_response, token().as_bytes());
    assert!(!seen.logged_in);
    assert_eq!(had(other, SET), 0);
    // Not again at once: a server counts failures.
    assert_eq!(stage.is_at().await, first);
    assert_eq!(had(&stage.servers[first], "SHOW SESSION_STATES"), 1);
}
