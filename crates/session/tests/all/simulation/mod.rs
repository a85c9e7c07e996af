//! Random histories of many sessions, once on a connection of its own each and once on few shared ones: what
//! a client sees must be the same. `FOREBAY_SEED` repeats one history, `FOREBAY_SIM_HISTORIES` says how many.

mod connection;
mod history;
mod op;
mod pooled;
mod report;
mod server;

use inputs::{Random, asked, seed_of};
use mysql_wire::StatusFlags;
use sql_class::Dialect;

use connection::Armed;
use op::Op;
use pooled::{Gateway, UNKNOWN};
use server::{Reply, Server};

/// What a client sees of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Nothing,
    Error(u16),
    Done {
        rows: Option<Vec<String>>,
        affected: u64,
        insert_id: u64,
        warnings: u16,
        status: StatusFlags,
        trackers: Vec<String>,
    },
}

impl Seen {
    fn without_trackers(mut self) -> Self {
        if let Seen::Done { trackers, .. } = &mut self {
            trackers.clear();
        }
        self
    }
}

/// Each client on a connection of its own.
struct Direct {
    server: Server,
    connections: Vec<usize>,
}

impl Direct {
    fn run(&mut self, at: usize, op: &Op, tracks: bool) -> Vec<Seen> {
        let connection = self.connections[at];
        if *op == Op::ResetConnection {
            self.server.reset(connection);
            return vec![Seen::Nothing];
        }
        let replies = self.server.run(connection, op, op.slot().unwrap_or(0).into());
        let is_prepared = matches!(op, Op::Prepare(..)) && replies.iter().all(Result::is_ok);
        if !op.command().has_response() || is_prepared || *op == Op::Ping {
            return vec![Seen::Nothing];
        }
        let seen = |reply: &Reply| match reply {
            Err(code) => Seen::Error(*code),
            Ok((given, ok)) => Seen::of(given, ok, if tracks { &ok.session_state } else { &[] }),
        };
        replies.iter().map(seen).collect()
    }
}

/// Statistics of many histories, for the proof that there was sharing at all.
#[derive(Default)]
struct Tally {
    statements: u64,
    pinned: u64,
    switches: u64,
}

const CLIENTS: usize = 4;
const STATEMENTS: usize = 40;

/// One history. The error is what differed, and how it came to that.
fn history(seed: u64, tally: &mut Tally) -> Result<(), String> {
    let mut random = Random::new(seed);
    let dialect = random.pick(&[
        Dialect::MySql { version: 90_704 },
        Dialect::MariaDb { version: 101_119 },
        Dialect::MariaDb { version: 110_405 },
    ]);
    let tracks = random.one_in(2);
    let mut direct = Direct {
        server: Server::new(dialect),
        connections: Vec::new(),
    };
    for client in 0..CLIENTS {
        let connection = direct
            .server
            .connect(Armed::by_default(), Gateway::schema(client));
        direct.connections.push(connection);
    }
    let mut gateway = Gateway::new(dialect, CLIENTS, tracks);
    let mut writer = history::Writer::new(dialect, CLIENTS);
    let mut log = Vec::new();
    let mut before = CLIENTS;
    for turn in 0..STATEMENTS {
        let client = random.below(CLIENTS);
        let op = writer.next(client, &mut random);
        let alone = direct.run(client, &op, tracks);
        let shared = gateway.run(client, &op, &mut random, turn as u64);
        writer.note(client, &op, &alone);
        let pins = gateway.pins(client);
        tally.statements += 1;
        tally.pinned += u64::from(!pins.is_empty());
        tally.switches += u64::from(before != client);
        before = client;
        log.push(format!(
            "client {client}: {op:?}\n    {alone:?}\n    pins {pins:?}"
        ));
        let unknown = shared
            .iter()
            .any(|seen| matches!(seen, Seen::Done { rows: Some(rows), .. } if *rows == [UNKNOWN]));
        let without = |seen: &[Seen]| {
            seen.iter()
                .cloned()
                .map(Seen::without_trackers)
                .collect::<Vec<_>>()
        };
        let same = match gateway.trackers_differ {
            true => without(&alone) == without(&shared),
            false => alone == shared,
        };
        let same = same || unknown || op == Op::Ping;
        let everybody = direct.server.shared() == gateway.server.shared();
        if !same || !everybody {
            let (one, many) = (direct.server.shared(), gateway.server.shared());
            return Err(format!(
                "{dialect:?}, trackers {tracks}\n{}\nshared: {shared:?}\nservers: {one:?} and {many:?}",
                log.join("\n")
            ));
        }
    }
    Ok(())
}

#[test]
fn a_session_sees_the_same_on_shared_connections_as_on_its_own() {
    let first = seed_of("FOREBAY_SEED");
    let many = asked("FOREBAY_SIM_HISTORIES").unwrap_or(if cfg!(debug_assertions) { 4_000 } else { 100_000 });
    let histories = asked("FOREBAY_SEED").map_or(many, |_| 1);
    println!("FOREBAY_SEED={first}, {histories} histories");
    let mut tally = Tally::default();
    for number in 0..histories {
        let seed = first.wrapping_add(number);
        if let Err(difference) = history(seed, &mut tally) {
            panic!("FOREBAY_SEED={seed}, history {number}\n{difference}");
        }
    }
    let Tally {
        statements,
        pinned,
        switches,
    } = tally;
    println!(
        "{statements} statements, {pinned} of them left their session pinned, {switches} changes of session"
    );
    // A session that is always pinned sees no difference and proves nothing.
    assert!(
        histories < 100 || pinned * 10 < statements * 8,
        "hardly anything was shared"
    );
}
