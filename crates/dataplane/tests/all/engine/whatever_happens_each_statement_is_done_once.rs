//! Random statements of many sessions at the same time, while servers drain and come back, connections are
//! lost, and a server dies. What a client was told is what has happened: nothing is lost, nothing is executed
//! twice, and no transaction is on two connections. `FOREBAY_SEED` repeats one run, `FOREBAY_SEEDS` says how
//! many there are, `FOREBAY_SIM_STATEMENTS` how many statements each session sends.

use std::collections::HashMap;
use std::time::Duration;

use inputs::{Random, asked};
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::stage::{Place, Session, Setup, Stage, Told};

const SESSIONS: u64 = 8;
const STATEMENTS: u64 = 150;
/// The one that dies.
const LAST: usize = 2;

/// What a statement is, and what has to become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    /// Whose connection is lost at the first time.
    ReadAgain,
    Write,
    /// Whose connection is lost.
    LostWrite,
    InTransaction(u64),
}

struct Said {
    text: String,
    kind: Kind,
    told: Told,
}

/// A session says one statement after the other, and goes on whatever it is told.
async fn say(mut session: Session, of: u64, statements: u64, mut random: Random) -> Vec<Said> {
    let mut said = Vec::new();
    let mut number = 0;
    while number < statements {
        let mut id = || {
            number += 1;
            format!("id_{of}_{number}_")
        };
        let of_transaction = Kind::InTransaction(of << 32 | said.len() as u64);
        let mut texts = Vec::new();
        match random.below(7) {
            0 => texts.push((format!("SELECT 'ONCE CUT' FROM {}", id()), Kind::ReadAgain)),
            1 | 2 => texts.push((format!("INSERT INTO t VALUES ('OK', '{}')", id()), Kind::Write)),
            3 => texts.push((
                format!("INSERT INTO t VALUES ('CUT', '{}')", id()),
                Kind::LostWrite,
            )),
            4 => {
                texts.push((format!("BEGIN /* {} */", id()), of_transaction));
                for _ in 0..random.below(4) {
                    let text = match random.one_in(2) {
                        true => format!("SELECT 'ROWS 1', 'TRX' FROM {}", id()),
                        false => format!("UPDATE t SET a = 'OK', b = 'TRX', c = '{}'", id()),
                    };
                    texts.push((text, of_transaction));
                }
                texts.push((format!("COMMIT /* {} */", id()), of_transaction));
            }
            _ => texts.push((format!("SELECT 'ROWS 1' FROM {}", id()), Kind::Read)),
        }
        for (text, kind) in texts {
            let told = session.query(&text).await;
            said.push(Said { text, kind, told });
        }
    }
    said
}

/// Where servers have had each statement that has a number. Of the one that has died nobody knows.
fn places(stage: &Stage) -> HashMap<String, Vec<Place>> {
    let mut places: HashMap<_, Vec<_>> = HashMap::new();
    for (place, text) in stage.sent("id_") {
        places.entry(text).or_default().push(place);
    }
    places
}

/// `died`: a server has, which may have had the second try of a read.
fn check(said: &Said, at: &[Place], transactions: &mut HashMap<u64, Place>, died: bool) {
    let Said { text, kind, told } = said;
    let on_primary = || at.len() == 1 && at[0].server == 0;
    let is_right = match kind {
        Kind::Read => *told == Ok(1) && at.len() <= 2,
        Kind::ReadAgain => (*told == Ok(1) || died && *told == Err(1158)) && (1..=2).contains(&at.len()),
        Kind::Write => *told == Ok(0) && on_primary(),
        Kind::LostWrite => *told == Err(1158) && on_primary(),
        Kind::InTransaction(number) => {
            told.is_ok() && on_primary() && *transactions.entry(*number).or_insert(at[0]) == at[0]
        }
    };
    assert!(
        is_right,
        "{text} ({kind:?}): {told:?} at {at:?}; one has died: {died}"
    );
}

async fn run(seed: u64) {
    let mut random = Random::new(seed);
    let mut stage = Stage::set(Setup {
        servers: 3,
        ..Setup::default()
    })
    .await;
    let statements = asked("FOREBAY_SIM_STATEMENTS").unwrap_or(STATEMENTS);
    let local = LocalSet::new();
    let mut sessions = Vec::new();
    for of in 0..SESSIONS {
        let session = stage.connect().await;
        let random = Random::new(random.number());
        sessions.push(local.spawn_local(say(session, of, statements, random)));
    }
    let (mut acts, mut died, mut drained) = (0, false, None);
    let disturb = async {
        while sessions.iter().any(|session| !session.is_finished()) {
            sleep(Duration::from_millis(1)).await;
            let clusters = stage.gateway().clusters();
            // Reads need one of the others once it has died.
            let at = if died { 1 } else { random.below(3) };
            let server = stage.name(at).unwrap();
            // Servers drain one at a time: a read whose connection is cut needs another server.
            let drains = random.one_in(2) && drained.is_none_or(|drained| drained == at);
            let done = match drains {
                true => clusters[0].drain(&server, None).is_ok(),
                false => clusters[0].undrain(&server).is_ok(),
            };
            match done {
                true if drains => drained = Some(at),
                true if drained == Some(at) => drained = None,
                _ => {}
            }
            acts += u64::from(done);
            if !died && random.one_in(50) {
                drop(clusters[0].undrain(&stage.name(0).unwrap()));
                drained = drained.filter(|drained| *drained == 1);
                stage.remove(LAST);
                died = true;
            }
        }
    };
    local.run_until(disturb).await;
    let places = places(&stage);
    let mut transactions = HashMap::new();
    let mut count = 0;
    for session in sessions {
        for said in session.await.unwrap() {
            let at = places.get(&said.text).map_or(&[][..], Vec::as_slice);
            check(&said, at, &mut transactions, died);
            count += 1;
        }
    }
    println!("{count} statements, {acts} drains and their ends, and a death: {died}");
    assert!(count >= SESSIONS * statements && acts > 0);
}

#[tokio::test]
async fn or_told_to_be_unknown() {
    for seed in inputs::seeds(4) {
        run(seed).await;
    }
}
