//! Whoever tries passwords is slowed, on one connection and on many; whoever has the right one is not.

use std::time::Instant;

use e2e::{Gateway, Setup, client, eventually, kind, servers};
use mysql_async::{ChangeUserOpts, Conn, Error};
use sandbox::{Kind, Lent, PASSWORD, USER};
use tokio::task::JoinSet;

/// More logins at once than are let through before the first of them has failed.
const MANY: usize = 60;

fn gateway(servers: &[Lent], mode: &str) -> Gateway {
    let address = format!(
        "{{ address = {:?}, role = \"primary\" }}",
        servers[0].primary().address()
    );
    let setup = Setup::in_front_of(servers)
        .mode(mode)
        .listener("login_delay_max = \"500ms\"");
    match mode {
        "split" => setup
            .servers([address])
            .tables(&format!("[[user]]\nname = \"{USER}\"\npassword = \"{PASSWORD}\"")),
        _ => setup,
    }
    .start()
}

/// The codes of so many wrong logins that come at once.
async fn guess(gateway: &Gateway, many: usize) -> Vec<u16> {
    let mut guesses = JoinSet::new();
    for number in 0..many {
        let options = client::options(gateway).pass(Some(format!("wrong{number}")));
        guesses.spawn(Conn::new(options));
    }
    let results = guesses.join_all().await.into_iter();
    results.map(|result| client::code(&result.unwrap_err())).collect()
}

fn delayed(gateway: &Gateway) -> f64 {
    gateway.metric("forebay_logins_delayed_total", &[])
        + gateway.metric("forebay_logins_not_tried_total", &[])
}

#[tokio::test]
async fn on_many_connections_at_once() {
    let servers = servers(1);
    for mode in ["session", "split"] {
        let gateway = gateway(&servers, mode);
        let began = Instant::now();
        let codes = guess(&gateway, MANY).await;
        let tried = codes.iter().filter(|code| **code == 1045).count();
        // Slowed attempts come one each half second: where a busy machine lets them in late, all of them may.
        let slowed = usize::try_from(began.elapsed().as_millis() / 500).unwrap();
        assert!(
            tried < MANY * 2 / 3 + slowed,
            "{mode}: {tried} passwords of {MANY} were looked at, in {slowed} half seconds"
        );
        assert!(
            codes.iter().all(|code| [1045, 1129].contains(code)),
            "{mode}: {codes:?}"
        );
        assert!(delayed(&gateway) > 0.0, "{mode}");
        eventually("the log says so", async || {
            gateway.log().contains("logins fail again and again")
        })
        .await;
    }
}

/// Somebody else behind the same address cannot lock it out.
#[tokio::test]
async fn and_not_for_a_client_that_has_logged_in_before() {
    let servers = servers(1);
    for mode in ["session", "split"] {
        let gateway = gateway(&servers, mode);
        client::connect(&gateway).await;
        assert_eq!(guess(&gateway, 20).await, vec![1045; 20], "{mode}");
        for _ in 0..5 {
            client::connect(&gateway).await;
        }
        assert_eq!(delayed(&gateway), 0.0, "{mode}");
    }
}

/// MySQL ends a connection at the first refusal by itself.
#[tokio::test]
async fn and_ends_a_connection_that_changes_its_user_in_vain() {
    let servers = servers(1);
    for mode in ["session", "split"] {
        let gateway = gateway(&servers, mode);
        let mut session = client::connect(&gateway).await;
        let mut refused = 0;
        let end = loop {
            let wrong = ChangeUserOpts::default().with_pass(Some("wrong".to_owned()));
            match session.change_user(wrong).await.unwrap_err() {
                Error::Server(error) if error.code == 1045 => refused += 1,
                // Closed, or told 1158 where the gateway hears of the server's end behind the next command.
                end => break end,
            }
            assert!(refused < 10, "{mode}: the session goes on");
        };
        let expected = if kind() == Kind::Mysql { 1 } else { 3 };
        assert_eq!(refused, expected, "{mode}: {end}");
    }
}
