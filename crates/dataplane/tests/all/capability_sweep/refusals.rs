//! Who says no is heard: the server in its own words, or the gateway where it has to.

use std::io::ErrorKind;

use mysql_wire::{Command, ErrPacket};
use testkit::scripted::{Client, ClientError, Packet, Plugin, Seen, Server};

use super::combination::{Back, Combination};
use super::exchanges::request;
use super::logins;
use super::stage::{PASSWORD, Stage};
use super::sweep::{Sweep, block_on};

const WRONG: &[u8] = b"open barley, which is longer than a nonce, too";

/// The start of error 1158, SQLSTATE 08S01.
const LOST_CONNECTION: &[u8] = b"\xff\x86\x04#08S01";

#[test]
fn a_wrong_password_is_for_the_server_to_refuse() {
    for plugin in Plugin::ALL {
        let mut sweep = Sweep::of(plugin).logins_only();
        sweep.client = |identity| identity.password = WRONG.to_vec();
        sweep.play(async |_| Ok(()));
    }
}

#[test]
fn a_refused_change_of_user_is_told_in_the_servers_words() {
    for plugin in Plugin::ALL {
        let mut sweep = Sweep::of(plugin).logins_only();
        sweep.changed_to = WRONG;
        sweep.play(async |mut client: Client| {
            let refused = client.change_user(b"other", WRONG).await;
            match refused {
                Err(ClientError::Refused(ErrPacket {
                    code: 1045, message, ..
                })) if message.ends_with(b"the password does not match") => ended(client).await,
                other => Err(format!("{other:?}")),
            }
        });
    }
}

#[test]
fn a_change_of_user_that_would_expose_the_password_is_refused_by_the_gateway() {
    block_on(async {
        for plugin in [Plugin::Clear, Plugin::Dialog, Plugin::TwoFactorsClear] {
            let mut sweep = Sweep::of(Plugin::Native).logins_only();
            sweep.script.change_plugin = Some(plugin);
            let stage = Stage::start_with(&sweep.script, "", None).await;
            let exposing = sweep
                .combinations
                .iter()
                .filter(|one| one.client_tls && !one.back.tls);
            for combination in exposing {
                let mut identity = stage.identity(combination);
                identity.capabilities.insert(plugin.capabilities());
                let (address, server) = stage.front(combination.back);
                let mut client = Client::connect(address, &identity).await.unwrap();
                let Err(ClientError::Refused(error)) = client.change_user(b"other", PASSWORD).await else {
                    panic!("{plugin:?}, {combination}: not refused");
                };
                logins::check_refusal(&error).unwrap();
                ended(client).await.unwrap();
                let is_ours = |seen: &Seen| {
                    let login = seen.login.as_ref();
                    login.is_some_and(|login| login.user == b"other")
                };
                let seen = server.take(is_ours).await.unwrap();
                assert!(!seen.logged_in, "the server was left to wait for an answer");
                assert!(
                    !logins::shows(&seen.tape.take(), PASSWORD),
                    "{plugin:?}, {combination}"
                );
            }
        }
    });
}

#[test]
fn a_password_for_the_servers_rsa_key_is_refused_where_the_gateway_has_to_read_it() {
    block_on(async {
        for plugin in [Plugin::CachingSha2Full, Plugin::Sha256] {
            let sweep = Sweep::of(plugin).logins_only();
            let stage = Stage::start_with(&sweep.script, "", None).await;
            let unreadable = sweep
                .combinations
                .iter()
                .filter(|one| !one.client_tls && one.back.tls);
            for combination in unreadable {
                let mut identity = stage.identity(combination);
                identity.has_server_key = true;
                let refused = Client::connect(stage.front(combination.back).0, &identity)
                    .await
                    .err();
                let Some(ClientError::Refused(error)) = refused else {
                    panic!("{plugin:?}, {combination}: {refused:?}");
                };
                let told = String::from_utf8_lossy(&error.message);
                assert_eq!(error.code, 1045, "{plugin:?}, {combination}: {told}");
                assert!(told.contains("rsa_key"), "{plugin:?}, {combination}: {told}");
            }
        }
    });
}

#[test]
fn an_error_in_place_of_the_greeting_reaches_the_client() {
    block_on(async {
        let sweep = Sweep::of(Plugin::Native).logins_only();
        let stage = Stage::start_with(&sweep.script, "", None).await;
        for back in Back::all() {
            introduced(stage.front(back).1).await;
        }
        for (code, message) in [
            (1040, "Too many connections"),
            (1129, "Host '10.0.0.1' is blocked"),
        ] {
            for combination in &sweep.combinations {
                refuses(&stage, combination, code, message).await;
            }
        }
    });
}

/// The gateway knows the server by its greeting from now on.
async fn introduced(server: &Server) {
    let checked = |seen: &[Seen]| seen.iter().any(|seen| seen.end.is_some());
    server.wait_until(checked).await.unwrap();
}

async fn refuses(stage: &Stage, combination: &Combination, code: u16, message: &str) {
    let (address, server) = stage.front(combination.back);
    server.refuse(Some(ErrPacket {
        code,
        sql_state: *b"08004",
        message: message.into(),
    }));
    let refused = Client::connect(address, &stage.identity(combination)).await.err();
    let Some(ClientError::Refused(error)) = refused else {
        panic!("{combination}: {refused:?}");
    };
    assert_eq!(
        (error.code, error.message.as_slice()),
        (code, message.as_bytes()),
        "{combination}"
    );

    server.refuse(None);
    let again = Client::connect(address, &stage.identity(combination)).await;
    let mut client = again.unwrap_or_else(|error| panic!("{combination}: then {error}"));
    client.exchange(&request(Command::QUIT, b"")).await.unwrap();
}

/// The connection is closed, by a server that thereby leaves the session or by the gateway.
async fn ended(mut client: Client) -> Result<(), String> {
    match client.receive_unasked().await {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
        Ok(Packet { sequence: 0, payload }) if payload.starts_with(LOST_CONNECTION) => Ok(()),
        other => Err(format!("after the refusal: {other:?}")),
    }
}
