//! A server that does not say what a statement does to its session, as TiDB: sessions could not share its
//! connections.

use std::io::Write;
use std::net::TcpListener;

use e2e::{Setup, client, eventually};
use mysql_async::Conn;
use mysql_wire::{Capabilities, Greeting, StatusFlags, write_packet};

/// The address of a server that greets, and then hangs up.
fn without_session_tracking() -> String {
    let greeting = Greeting {
        server_version: b"8.0.11-TiDB-v7.5.0".to_vec(),
        connection_id: 7,
        nonce: *b"twenty bytes of salt",
        capabilities: Capabilities::PROTOCOL_41
            | Capabilities::SECURE_CONNECTION
            | Capabilities::PLUGIN_AUTH
            | Capabilities::TRANSACTIONS,
        charset: 46,
        status: StatusFlags::AUTOCOMMIT,
        auth_plugin: b"mysql_native_password".to_vec(),
    };
    let (mut payload, mut packet) = (Vec::new(), Vec::new());
    greeting.encode(&mut payload);
    write_packet(&mut packet, &mut 0, &payload);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // Whoever has left before is no matter.
            let _ = stream.and_then(|mut stream| stream.write_all(&packet));
        }
    });
    address
}

#[tokio::test]
async fn before_the_first_login() {
    let address = without_session_tracking();
    let user = "[[user]]\nname = \"app\"\npassword = \"x\"";
    let setup = |mode| {
        Setup::of_addresses([address.clone()])
            .mode(mode)
            .check("interval = \"100ms\"\nrise = 1")
    };
    let gateway = setup("split").tables(user).start_unready();
    let said = "mode split refuses every login: server";
    eventually("readyz says why", async || {
        let (status, ready) = gateway.get("/readyz");
        status == 503 && ready.contains(said) && ready.contains("SESSION_TRACK")
    })
    .await;
    eventually("so does the log", async || {
        let log = gateway.log();
        log.contains("of no use to listeners in mode split") && log.contains(&address)
    })
    .await;
    let options = client::options(&gateway).user(Some("app")).pass(Some("x"));
    let error = Conn::new(options).await.unwrap_err();
    assert_eq!(client::code(&error), 1429, "{error}");

    let gateway = setup("session").start_unready();
    eventually("other modes can use it", async || {
        gateway.get("/readyz") == (200, "ok\n".to_owned())
    })
    .await;
}
