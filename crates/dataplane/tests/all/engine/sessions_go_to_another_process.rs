//! Sessions go to the process that takes over, or go on where they are: `hand_over`. Both processes are in
//! this one, with their real way between them.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dataplane::Gateway;
use dataplane::elsewhere::KillRequest;
use mysql_wire::Command;
use net::handover::Channel;
use serde_json::Value;

use super::stage::{PATIENCE, Session, Setup, Stage};
use crate::gateway::RunningGateway;

const FORMAT: &[u8] = b"forebay sessions 5";

/// Waits until both have as many sessions as are said. Where one was not answered in time, on a busy machine,
/// none is offered for half a minute.
async fn have(old: &Gateway, new: &Gateway, sessions: [usize; 2]) {
    let began = Instant::now();
    while [old.sessions(), new.sessions()] != sessions {
        let now = [old.sessions(), new.sessions()];
        assert!(began.elapsed() < PATIENCE, "{now:?} instead of {sessions:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Has a gateway give its sessions away until this is over.
async fn while_giving<T>(old: &Arc<Gateway>, channel: Channel, then: impl Future<Output = T>) -> T {
    tokio::select! {
        () = old.give_sessions(channel) => unreachable!("it never ends"),
        done = then => done,
    }
}

/// The new process, which takes what it is given, and the old one's end of the way to it.
fn successor(stage: &Stage) -> (RunningGateway, Channel) {
    let (old, new) = Channel::pair().unwrap();
    let successor = stage.another();
    successor.gateway().take_sessions(new).unwrap();
    (successor, old)
}

async fn works(stage: &Stage, session: &mut Session, at: &str) {
    let write = format!("INSERT INTO t VALUES ('OK', '{at}')");
    assert_eq!(session.query(&write).await, Ok(0), "{at}");
    assert_eq!(stage.sent(&format!("'{at}'")).len(), 1, "{at}: once");
}

#[tokio::test]
async fn with_all_that_they_hold() {
    let stage = Stage::set(Setup::default()).await;
    let [mut free, mut pinned] = [stage.connect().await, stage.connect().await];
    let prepared = free.prepare("SELECT 'ROWS 1' FROM prepared WHERE id = ?").await;
    assert_eq!(free.execute_with(prepared, 1).await, Ok(0));
    assert_eq!(free.query("SET time_zone = 'OK'").await, Ok(0));
    let kept = pinned.prepare("INSERT INTO kept VALUES (1)").await;
    assert_eq!(pinned.execute(kept).await, Ok(0));
    assert_eq!(pinned.query("SET @x = 1").await, Ok(0));
    let place = stage.place("@x");
    let (new, channel) = successor(&stage);
    let (old, to) = (stage.gateway(), new.gateway());
    while_giving(old, channel, async {
        have(old, to, [0, 2]).await;
        // Types are known that were sent once only.
        let rest = [
            &prepared.to_le_bytes()[..],
            &[0, 1, 0, 0, 0, 0, 0],
            &2_u64.to_le_bytes(),
        ]
        .concat();
        free.send(Command::STMT_EXECUTE, &rest).await;
        assert_eq!(free.answer().await, Ok(0));
        works(&stage, &mut free, "free").await;
        assert_eq!(pinned.pins().await, ["user-variables"]);
        works(&stage, &mut pinned, "pinned").await;
        assert_eq!(stage.place("'pinned'"), place, "on the same connection");
        assert_eq!(pinned.execute(kept).await, Ok(0));
        assert_eq!(stage.sent("INTO kept").len(), 1, "it was not prepared again");
        let ids = [free.id(), pinned.id()];
        let described = to.describe_sessions(10).await;
        assert!(
            described
                .iter()
                .all(|session| ids.contains(&session.id) && session.user == "app")
        );
        drop((free, pinned));
        have(old, to, [0, 0]).await;
    })
    .await;
}

/// A statement that was prepared about the one before keeps a session where it is, until a reset.
#[tokio::test]
async fn behind_a_reset() {
    let stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    session.prepare("SELECT ROW_COUNT()").await;
    session.reset().await;
    let (new, channel) = successor(&stage);
    let (old, to) = (stage.gateway(), new.gateway());
    while_giving(old, channel, async {
        have(old, to, [0, 1]).await;
        works(&stage, &mut session, "behind").await;
        drop(session);
        have(old, to, [0, 0]).await;
    })
    .await;
}

#[tokio::test]
async fn with_their_connections_where_they_have_them_for_themselves() {
    for (mode, listener) in [("session", ""), ("session", "moves = true"), ("tcp", "")] {
        let stage = Stage::set(Setup {
            mode,
            listener,
            ..Setup::default()
        })
        .await;
        let mut session = stage.connect().await;
        works(&stage, &mut session, "before").await;
        let (new, channel) = successor(&stage);
        let (old, to) = (stage.gateway(), new.gateway());
        while_giving(old, channel, async {
            have(old, to, [0, 1]).await;
            works(&stage, &mut session, "behind").await;
            assert_eq!(
                stage.place("'behind'"),
                stage.place("'before'"),
                "{mode} {listener}"
            );
            drop(session);
            have(old, to, [0, 0]).await;
        })
        .await;
    }
}

#[tokio::test]
async fn with_what_their_logins_have_named() {
    for (mode, listener) in [("split", ""), ("session", ""), ("session", "moves = true")] {
        let mut stage = Stage::set(Setup {
            mode,
            listener,
            ..Setup::default()
        })
        .await;
        let mut session = stage.connect_to("shop").await;
        let (to_new, new_end) = Channel::pair().unwrap();
        let (old, new) = (Arc::clone(stage.gateway()), stage.another_that_is_observed());
        new.gateway().take_sessions(new_end).unwrap();
        while_giving(&old, to_new, async {
            have(&old, new.gateway(), [0, 1]).await;
            assert_eq!(session.query("INSERT INTO t VALUES ('OK')").await, Ok(0));
            let named = (Some(b"shop".to_vec()), 45);
            assert_eq!(stage.next_end().await.login, named, "{mode} {listener}");
        })
        .await;
    }
}

#[tokio::test]
async fn at_the_end_of_a_transaction() {
    for (mode, listener) in [("split", ""), ("session", ""), ("session", "moves = true")] {
        let stage = Stage::set(Setup {
            mode,
            listener,
            ..Setup::default()
        })
        .await;
        let mut session = stage.connect().await;
        assert_eq!(session.query("BEGIN").await, Ok(0));
        let (new, channel) = successor(&stage);
        let (old, to) = (stage.gateway(), new.gateway());
        while_giving(old, channel, async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            have(old, to, [1, 0]).await;
            assert_eq!(session.query("INSERT INTO t VALUES ('OK', 'TRX')").await, Ok(0));
            assert_eq!(session.query("COMMIT").await, Ok(0));
            have(old, to, [0, 1]).await;
            works(&stage, &mut session, "behind").await;
        })
        .await;
    }
}

#[tokio::test]
async fn with_how_many_connections_are_of_use() {
    const LEARNED: u32 = 100;
    let stage = Stage::set(Setup::default()).await;
    let server = |gateway: &Gateway| Arc::clone(&gateway.clusters()[0].servers()[0]);
    server(stage.gateway()).begin_with_size(LEARNED);
    let (new, channel) = successor(&stage);
    let (old, to) = (stage.gateway(), server(new.gateway()));
    assert!(to.learned_size() < LEARNED / 2);
    while_giving(old, channel, async {
        let began = Instant::now();
        // It goes down again, one at a time: nobody needs them.
        while to.learned_size() < LEARNED / 2 {
            assert!(began.elapsed() < PATIENCE, "{}", to.learned_size());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// What the other process does instead of what it should, and its client waits no longer than for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    SaysNo,
    SaysNothing,
    AcceptsTooLate,
    Ends,
}

#[tokio::test]
async fn or_go_on_where_they_are() {
    for fault in [
        Fault::SaysNo,
        Fault::SaysNothing,
        Fault::AcceptsTooLate,
        Fault::Ends,
    ] {
        let stage = Stage::set(Setup::default()).await;
        let mut session = stage.connect().await;
        let (to_new, new) = Channel::pair().unwrap();
        let new = Arc::new(new);
        let old = stage.gateway();
        while_giving(old, to_new, async {
            assert_eq!(receive(&new).await.0, FORMAT);
            new.send(FORMAT, &[]).unwrap();
            // The number that was given last, and the offer with its socket.
            assert_eq!(receive(&new).await.0[0], b'L');
            let (offer, sockets) = receive(&new).await;
            assert_eq!((offer[0], sockets.len()), (b'O', 1), "{fault:?}");
            let number = &offer[1..5];
            match fault {
                Fault::SaysNo => new.send(&[b"R", number, b"server"].concat(), &[]).unwrap(),
                Fault::Ends => drop(new),
                Fault::SaysNothing => assert_eq!(receive(&new).await.0, [b"W", number].concat()),
                Fault::AcceptsTooLate => {
                    let mut withdrawn = Vec::new();
                    while withdrawn.first() != Some(&b'W') {
                        withdrawn = receive(&new).await.0;
                    }
                    new.send(&[b"A", number].concat(), &[]).unwrap();
                }
            }
            works(&stage, &mut session, "behind").await;
            assert_eq!(old.sessions(), 1, "{fault:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn or_stay_where_the_other_process_knows_another_form() {
    let stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    let (to_new, new) = Channel::pair().unwrap();
    let new = Arc::new(new);
    while_giving(stage.gateway(), to_new, async {
        assert_eq!(receive(&new).await.0, FORMAT);
        new.send(b"forebay sessions 0", &[]).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        works(&stage, &mut session, "behind").await;
        assert_eq!(stage.gateway().sessions(), 1);
    })
    .await;
    // And the other way round.
    let (old, to_old) = Channel::pair().unwrap();
    let old = Arc::new(old);
    stage.another().gateway().take_sessions(to_old).unwrap();
    old.send(b"forebay sessions 0", &[]).unwrap();
    assert_eq!(receive(&old).await.0, FORMAT);
    let waiting = Arc::clone(&old);
    let answer = tokio::task::spawn_blocking(move || waiting.receive().unwrap());
    assert!(answer.await.unwrap().is_none(), "it takes none");
}

/// With its sockets, as the other process gets it.
type Offer = (Vec<u8>, Vec<OwnedFd>);

/// What the old process says of its only session.
async fn offer_of(stage: &Stage) -> Offer {
    let (to_new, new) = Channel::pair().unwrap();
    let new = Arc::new(new);
    while_giving(stage.gateway(), to_new, async {
        assert_eq!(receive(&new).await.0, FORMAT);
        new.send(FORMAT, &[]).unwrap();
        assert_eq!(receive(&new).await.0[0], b'L');
        receive(&new).await
    })
    .await
}

/// What a new process answers to it.
async fn answer_of(successor: &RunningGateway, (offer, sockets): &Offer) -> String {
    let (old, to_old) = Channel::pair().unwrap();
    let old = Arc::new(old);
    successor.gateway().take_sessions(to_old).unwrap();
    old.send(FORMAT, &[]).unwrap();
    assert_eq!(receive(&old).await.0, FORMAT);
    old.send(offer, sockets).unwrap();
    let answer = receive(&old).await.0;
    assert_eq!(answer[1..5], offer[1..5], "of this offer");
    String::from_utf8([&answer[..1], b" ", &answer[5..]].concat()).unwrap()
}

#[tokio::test]
async fn or_stay_with_a_connection_that_was_opened_on_other_terms() {
    for (mode, listener) in [("split", ""), ("session", "moves = true"), ("session", "")] {
        let stage = Stage::set(Setup {
            mode,
            listener,
            ..Setup::default()
        })
        .await;
        let mut session = stage.connect().await;
        assert_eq!(session.query("SET @x = 1").await, Ok(0));
        let offer = offer_of(&stage).await;
        for (cluster, answer) in [
            ("", "A "),
            ("compression = \"zlib\"", "R terms"),
            ("tls = { mode = \"preferred\" }", "R terms"),
            ("pool = { init = [\"SET lock_wait_timeout = 9\"] }", "R terms"),
            ("pool = { max_age = \"1h\" }", "A "),
        ] {
            let answered = answer_of(&stage.another_with(cluster), &offer).await;
            assert_eq!(answered, answer, "{mode} {listener}: {cluster}");
        }
    }
}

/// Offers stand for two seconds, which may not do on a busy machine.
#[tokio::test]
async fn and_whoever_kills_one_in_that_moment_has_it_killed_there() {
    for _ in 0..20 {
        if kill_in_that_moment().await.is_some() {
            return;
        }
    }
    panic!("never was the offer answered in time");
}

/// `None` where the offer was withdrawn before all was done.
async fn kill_in_that_moment() -> Option<()> {
    let stage = Stage::set(Setup::default()).await;
    let [session, long, later] = [(); 3].map(|()| stage.connect());
    let [mut session, mut long, mut later] = [session.await, long.await, later.await];
    for busy in [&mut long, &mut later] {
        assert_eq!(busy.query("BEGIN").await, Ok(0));
    }
    for number in 0..20 {
        long.prepare(&format!("SELECT 'ROWS 1', {number}, {}", "1".repeat(8000)))
            .await;
    }
    let (to_new, new) = Channel::pair().unwrap();
    let new = Arc::new(new);
    let (number, offer) = while_giving(stage.gateway(), to_new, async {
        assert_eq!(receive(&new).await.0, FORMAT);
        new.send(FORMAT, &[]).unwrap();
        assert_eq!(receive(&new).await.0[0], b'L');
        let offer = receive(&new).await;
        let number = offer.0[1..5].to_vec();
        let withdrawn = [b"W", &number[..]].concat();
        let stands = async || {
            let said = receive(&new).await.0;
            (said != withdrawn).then_some(said)
        };
        assert_eq!(later.query("COMMIT").await, Ok(0));
        let later_offer = stands().await?;
        // Behind what is said of another session, the word that it is the other process's has to wait.
        assert_eq!(long.query("COMMIT").await, Ok(0));
        assert_eq!(stands().await?[0], b'P');
        new.send(&[b"A", &number[..]].concat(), &[]).unwrap();
        // Answers are heard one after the other: when this one has gone on, the first has been given away.
        new.send(&[b"R", &later_offer[1..5], b"server"].concat(), &[])
            .unwrap();
        works(&stage, &mut later, "later").await;
        let kill = KillRequest {
            id: session.id(),
            query_only: false,
            by: None,
        };
        stage.gateway().kill(&kill).await.unwrap();
        let mut said = stands().await?;
        while matches!(said[0], b'P' | b'O') {
            said = stands().await?;
        }
        assert_eq!(said, [b"Y", &number[..]].concat());
        assert_eq!(receive(&new).await.0, [b"W", &later_offer[1..5]].concat());
        let killed = receive(&new).await.0;
        assert_eq!(killed, [&b"K"[..], &session.id().to_le_bytes()].concat());
        Some((number, offer))
    })
    .await?;
    let successor = stage.another();
    let (old, to_old) = Channel::pair().unwrap();
    let old = Arc::new(old);
    successor.gateway().take_sessions(to_old).unwrap();
    assert_eq!(receive(&old).await.0, FORMAT);
    old.send(FORMAT, &[]).unwrap();
    old.send(&offer.0, &offer.1).unwrap();
    drop(offer);
    assert_eq!(receive(&old).await.0[0], b'A');
    old.send(&[b"Y", &number[..]].concat(), &[]).unwrap();
    old.send(&[&b"K"[..], &session.id().to_le_bytes()].concat(), &[])
        .unwrap();
    assert!(session.answer().await.is_err(), "it ends");
    Some(())
}

/// The next message but those that say why sessions stay.
async fn receive(channel: &Arc<Channel>) -> Offer {
    let began = Instant::now();
    loop {
        let channel = Arc::clone(channel);
        let received = tokio::task::spawn_blocking(move || channel.receive().unwrap());
        let (bytes, sockets) = received.await.unwrap().unwrap();
        if bytes.first() != Some(&b'S') {
            return (bytes, sockets);
        }
        assert!(began.elapsed() < PATIENCE, "nothing comes");
    }
}

/// The names of all that is said of a session. Where they change, what one process says another may not
/// understand: give the form another number (`FORMAT` in `hand_over`), here as well. `UPDATE_EXPECT=1` writes
/// the file anew.
#[tokio::test]
async fn in_a_form_that_has_a_number() {
    let mut names = BTreeSet::new();
    for (mode, listener) in [
        ("split", ""),
        ("session", "moves = true"),
        ("session", ""),
        ("tcp", ""),
    ] {
        let stage = Stage::set(Setup {
            mode,
            listener,
            ..Setup::default()
        })
        .await;
        let mut session = stage.connect().await;
        let prepared = session.prepare("SELECT 'ROWS 1' FROM form WHERE id = ?").await;
        assert_eq!(session.execute_with(prepared, 1).await, Ok(0));
        assert_eq!(session.query("SET @x = 1").await, Ok(0));
        let (offer, _) = offer_of(&stage).await;
        let (length, rest) = offer[5..].split_first_chunk::<4>().unwrap();
        let (head, body) = rest.split_at(u32::from_le_bytes(*length) as usize);
        add_names("head", &serde_json::from_slice(head).unwrap(), &mut names);
        let kind = format!("{mode}{}", if listener.is_empty() { "" } else { " that moves" });
        add_names(&kind, &serde_json::from_slice(body).unwrap(), &mut names);
    }
    // Sets of bits go as numbers.
    names.extend(
        sql_class::Effects::ALL
            .iter()
            .map(|(bit, word)| format!("effect {:#x} {word}", bit.0)),
    );
    let form = names.into_iter().collect::<Vec<_>>().join("\n") + "\n";
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/all/engine/form_of_sessions.txt"
    );
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, &form).unwrap();
    }
    let known = std::fs::read_to_string(path).unwrap();
    assert_eq!(form, known, "the form needs another number");
}

fn add_names(at: &str, value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                add_names(&format!("{at}.{name}"), value, names);
            }
        }
        Value::Array(values) => values
            .iter()
            .for_each(|value| add_names(&format!("{at}[]"), value, names)),
        _ => _ = names.insert(at.to_owned()),
    }
}
