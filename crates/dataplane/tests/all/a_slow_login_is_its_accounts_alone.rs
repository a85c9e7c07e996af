//! A server that does not finish a login may ask somebody else about this account: it stays for all others.

use std::time::Duration;

use mysql_wire::{Greeting, StatusFlags, write_packet};
use testkit::scripted::{Client, ClientError, Identity, ServerScript};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use crate::gateway::RunningGateway;

/// Longest wait for anything that should happen at once; a busy machine is no failure.
const PATIENCE: Duration = Duration::from_secs(60);

fn greeting() -> Vec<u8> {
    let greeting = Greeting {
        server_version: b"8.4.0".to_vec(),
        connection_id: 1,
        nonce: *b"abcdefghijklmnopqrst",
        capabilities: ServerScript::all_capabilities(),
        charset: 45,
        status: StatusFlags::AUTOCOMMIT,
        auth_plugin: b"mysql_native_password".to_vec(),
    };
    let (mut payload, mut packet) = (Vec::new(), Vec::new());
    greeting.encode(&mut payload);
    write_packet(&mut packet, &mut 0, &payload);
    packet
}

/// Says nothing to the first login of `app`, nor to anybody from then on: a server that is suspected is not
/// cleared by a check.
async fn serve(listener: TcpListener) {
    let mut kept = Vec::new();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        if kept.is_empty() {
            stream.write_all(&greeting()).await.unwrap();
            let mut login = [0; 1024];
            let n = stream.read(&mut login).await.unwrap_or(0);
            if !login[..n].windows(3).any(|part| part == b"app") {
                continue;
            }
        }
        kept.push(stream);
    }
}

#[tokio::test]
async fn and_the_server_is_not_suspected() {
    for mode in ["session", "split"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap().to_string();
        let serving = tokio::spawn(serve(listener));
        let configuration = format!(
            r#"
            workers = 1
            [[listener]]
            bind = "127.0.0.1:0"
            cluster = "main"
            mode = "{mode}"
            login_timeout = "1m"
            [[user]]
            name = "app"
            password = "secret"
            [cluster.main]
            servers = ["{server}"]
            login_timeout = "2s"
            check = {{ interval = "1h", timeout = "1m", rise = 1 }}
            "#
        );
        let gateway = RunningGateway::start(&configuration, None);
        let is_up = async {
            // Nothing tells when the first check is over; the limit is PATIENCE.
            while !gateway.takes_statements(&server) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, is_up).await.unwrap();
        let refused = Client::connect(gateway.addresses()[0], &Identity::default()).await;
        assert!(
            matches!(refused, Err(ClientError::Refused(_))),
            "{mode}: {:?}",
            refused.err()
        );
        assert!(gateway.takes_statements(&server), "{mode}");
        serving.abort();
    }
}
