//! Client and server directly against each other: every combination that the gateway's sweep will use must
//! work first without a gateway.

use mysql_wire::{Capabilities, Command, ErrPacket};

use super::{Client, ClientError, Identity, Plugin, Reply, Server, ServerScript};
use crate::certificates::Certificates;

const STATEMENTS: &[&str] = &[
    "OK",
    "TRACK",
    "ERROR",
    "ROWS 0",
    "ROWS 250",
    "WIDE 0",
    "WIDE 16777300",
    "BROKEN 3",
    "OK; ROWS 2; TRACK; ERROR; OK",
    "INFILE /tmp/data",
    "PROGRESS 3",
];

fn identity(capabilities: Capabilities) -> Identity {
    let identity = Identity::default();
    Identity {
        capabilities: identity.capabilities | capabilities,
        ..identity
    }
}

async fn run_everything(client: &mut Client) {
    for statement in STATEMENTS {
        client
            .query(statement)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    for (command, body) in [
        (Command::PING, &b""[..]),
        (Command::INIT_DB, b"test"),
        (Command::STATISTICS, b""),
        (Command::FIELD_LIST, b"t\0"),
        (Command::PROCESS_INFO, b""),
        (Command::SET_OPTION, b"\0\0"),
        (Command::STMT_PREPARE, b"ROWS 10 ?"),
        (Command::STMT_PREPARE, b"ROWS 10"),
        (Command::STMT_EXECUTE, b"\x02\0\0\0\x00\x01\0\0\0"),
        (Command::STMT_EXECUTE, b"\x02\0\0\0\x01\x01\0\0\0"),
        (Command::STMT_FETCH, b"\x02\0\0\0\x07\0\0\0"),
        (Command::STMT_FETCH, b"\x02\0\0\0\x07\0\0\0"),
        (Command::STMT_FETCH, b"\x02\0\0\0\x07\0\0\0"),
        (Command::STMT_SEND_LONG_DATA, b"\x01\0\0\0\0\0abc"),
        (Command::STMT_CLOSE, b"\x01\0\0\0"),
        (Command::RESET_CONNECTION, b""),
        (Command(0x77), b""),
    ] {
        let request = [&[command.0], body].concat();
        client
            .exchange(&request)
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", command.name()));
    }
}

#[tokio::test]
async fn every_plugin_logs_in_with_and_without_tls() {
    let certificates = Certificates::generate().unwrap();
    for plugin in Plugin::ALL {
        for tls in [false, true] {
            let server_tls = tls.then(|| certificates.server_config().unwrap());
            let script = ServerScript {
                plugin,
                tls: server_tls,
                ..ServerScript::default()
            };
            let server = Server::start(script).await.unwrap();
            for named in ["mysql_native_password", plugin.name()] {
                let client_tls = tls.then(|| certificates.client_config(false).unwrap());
                let right = Identity {
                    capabilities: Identity::default().capabilities | plugin.capabilities(),
                    plugin: named,
                    tls: client_tls,
                    ..Identity::default()
                };
                let logged_in = Client::connect(server.address(), &right).await;
                logged_in.unwrap_or_else(|error| panic!("{plugin:?}, TLS {tls}, names {named}: {error}"));
                let wrong = Identity {
                    password: b"guess".to_vec(),
                    ..right
                };
                let refused = Client::connect(server.address(), &wrong).await.err();
                assert!(
                    matches!(&refused, Some(ClientError::Refused(ErrPacket { code: 1045, .. }))),
                    "{plugin:?}: {refused:?}"
                );
            }
            let seen = server.seen();
            assert!(seen.iter().all(|session| session.encrypted == tls));
            assert_eq!(seen.iter().filter(|session| session.logged_in).count(), 2);
        }
    }
}

#[tokio::test]
async fn every_statement_gives_the_same_bytes_on_both_sides() {
    use Capabilities as C;
    for mariadb in [false, true] {
        let script = ServerScript::default();
        let script = if mariadb { script.like_mariadb() } else { script };
        let server = Server::start(script).await.unwrap();
        for capabilities in [
            Capabilities(0),
            C::DEPRECATE_EOF,
            C::DEPRECATE_EOF | C::SESSION_TRACK,
            C::COMPRESS | C::SESSION_TRACK,
            C::ZSTD_COMPRESSION | C::DEPRECATE_EOF | C::QUERY_ATTRIBUTES,
            C::OPTIONAL_RESULTSET_METADATA | C::MARIADB_CACHE_METADATA,
            C::DEPRECATE_EOF | C::MARIADB_EXTENDED_METADATA | C::MARIADB_PROGRESS,
        ] {
            let mut identity = identity(capabilities);
            if mariadb {
                identity.capabilities.remove(C::LONG_PASSWORD);
            }
            let mut client = Client::connect(server.address(), &identity).await.unwrap();
            run_everything(&mut client).await;
        }
    }
}

#[tokio::test]
async fn a_session_changes_user_and_the_server_sees_it() {
    let server = Server::start(ServerScript::default()).await.unwrap();
    let identity = Identity {
        database: Some(b"shop".to_vec()),
        ..Identity::default()
    };
    let mut client = Client::connect(server.address(), &identity).await.unwrap();
    client.change_user(b"other", b"secret").await.unwrap();
    client.query("ROWS 1").await.unwrap();
    let refused = client.change_user(b"other", b"wrong").await;
    assert!(matches!(refused, Err(ClientError::Refused(_))));
    let seen = server.wait_until(|seen| seen[0].end.is_some()).await.unwrap();
    let login = seen[0].login.as_ref().unwrap();
    assert_eq!(
        (login.user.as_slice(), login.database.as_deref()),
        (&b"other"[..], Some(&b"shop"[..]))
    );
}

#[tokio::test]
async fn a_cut_is_seen_after_exactly_the_promised_bytes() {
    let server = Server::start(ServerScript::default()).await.unwrap();
    for statement in ["HALF 0", "HALF 3", "HALF 5000", "CUT"] {
        let mut client = Client::connect(server.address(), &Identity::default())
            .await
            .unwrap();
        client
            .query(statement)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

#[tokio::test]
async fn a_refusal_and_a_difference_are_told() {
    let refusal = ErrPacket {
        code: 1040,
        sql_state: *b"08004",
        message: b"Too many connections".to_vec(),
    };
    let server = Server::start(ServerScript::default()).await.unwrap();
    server.refuse(Some(refusal));
    let refused = Client::connect(server.address(), &Identity::default())
        .await
        .err();
    assert!(
        matches!(&refused, Some(ClientError::Refused(error)) if error.code == 1040),
        "{refused:?}"
    );

    let special = |_: &[u8]| Some(Reply::Payloads(vec![b"\0something else".to_vec()]));
    let script = ServerScript {
        special: Some(std::sync::Arc::new(special)),
        ..ServerScript::default()
    };
    let server = Server::start(script).await.unwrap();
    let mut client = Client::connect(server.address(), &Identity::default())
        .await
        .unwrap();
    assert!(matches!(
        client.query("OK").await,
        Err(ClientError::Differs { .. })
    ));
}
