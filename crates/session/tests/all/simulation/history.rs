//! Writes random histories: what clients do that is likely to go wrong.

use inputs::Random;
use sql_class::Dialect;

use super::Seen;
use super::connection::UNSETTABLE;
use super::op::{Hidden, Op};

/// What a client may do next depends on what it did.
pub(crate) struct Writer {
    mariadb: bool,
    clients: Vec<Known>,
}

#[derive(Clone, Default)]
struct Known {
    slots: [bool; 3],
    /// Most clients do only what can be shared, so that there is sharing.
    wild: bool,
    decided: bool,
}

impl Writer {
    pub(crate) fn new(dialect: Dialect, clients: usize) -> Self {
        Writer {
            mariadb: dialect.is_mariadb(),
            clients: vec![Known::default(); clients],
        }
    }

    pub(crate) fn next(&mut self, client: usize, random: &mut Random) -> Op {
        if !self.clients[client].decided {
            self.clients[client].wild = random.one_in(3);
            self.clients[client].decided = true;
        }
        let wild = self.clients[client].wild;
        loop {
            let op = match random.below(if wild { 13 } else { 8 }) {
                0..=2 => variable(random),
                3..=4 => read(random),
                5 => write(random),
                6 => transaction(random),
                7 => self.prepared(client, random),
                8..=9 => lock(random),
                10..=11 => rare(random),
                _ => self.last(random),
            };
            if let Some(op) = self.fitting(client, op) {
                return op;
            }
        }
    }

    /// Learns from what the client saw: which statements it has.
    pub(crate) fn note(&mut self, client: usize, op: &Op, seen: &[Seen]) {
        match op {
            Op::Prepare(slot, _) => {
                self.clients[client].slots[usize::from(*slot)] = *seen == [Seen::Nothing];
            }
            Op::Close(slot) => self.clients[client].slots[usize::from(*slot)] = false,
            Op::ResetConnection => self.clients[client].slots = [false; 3],
            _ => {}
        }
    }

    /// Not what this server cannot do, nor what the client could not.
    fn fitting(&self, client: usize, op: Op) -> Option<Op> {
        if matches!(op, Op::SetStatement(_)) && !self.mariadb {
            return None;
        }
        let has = |slot: u8| self.clients[client].slots[usize::from(slot)];
        match op {
            Op::Prepare(slot, _) if has(slot) => None,
            Op::Prepare(..) => Some(op),
            _ if op.slot().is_some_and(|slot| !has(slot)) => None,
            op => Some(op),
        }
    }

    fn prepared(&self, client: usize, random: &mut Random) -> Op {
        let slot = random.below(3) as u8;
        if !self.clients[client].slots[usize::from(slot)] {
            return Op::Prepare(slot, random.one_in(3));
        }
        match random.below(9) {
            0 => Op::Close(slot),
            1..=3 => Op::Execute { slot, cursor: false },
            4 => Op::Execute { slot, cursor: true },
            5..=6 => Op::Fetch(slot),
            7 => Op::LongData(slot),
            _ => Op::ResetStatement(slot),
        }
    }

    fn last(&self, random: &mut Random) -> Op {
        match random.below(4) {
            0 => Op::ResetConnection,
            1 => Op::SetOption(random.one_in(2)),
            _ => Op::Multi(Box::new(simple(random)), Box::new(simple(random))),
        }
    }
}

/// Part of a text of several statements.
fn simple(random: &mut Random) -> Op {
    loop {
        let op = match random.below(4) {
            0 => variable(random),
            1 => write(random),
            2 => read(random),
            _ => transaction(random),
        };
        // What is answered by the gateway, or is a command of its own, is no part of a text.
        let alone = matches!(
            op,
            Op::RowCount | Op::FoundRows | Op::LastInsertId | Op::InitDb(_) | Op::Ping | Op::Track(..)
        );
        if !alone {
            return op;
        }
    }
}

fn variable(random: &mut Random) -> Op {
    match random.below(16) {
        0 => Op::Set(
            "sql_mode",
            random.pick(&[Some("ANSI_QUOTES"), Some("NO_BACKSLASH_ESCAPES"), Some(""), None]),
        ),
        1 => Op::Set(
            "time_zone",
            random.pick(&[Some("+01:00"), Some("Europe/O'Higgins"), Some("a\\b"), None]),
        ),
        2 => Op::Set("lc_time_names", random.pick(&[Some("de_DE"), Some("é"), None])),
        3 => Op::Set("sql_select_limit", random.pick(&[Some("7"), None])),
        15 => Op::Set(UNSETTABLE, Some("1024")),
        4 => Op::Set(
            "transaction_isolation",
            random.pick(&[Some("SERIALIZABLE"), None]),
        ),
        5 => Op::Set(
            "character_set_results",
            random.pick(&[Some(""), Some("utf8mb4"), Some("latin1")]),
        ),
        6 => Op::Set(
            "collation_connection",
            random.pick(&["utf8mb4_bin", "latin1_bin"]).into(),
        ),
        7 => Op::Set(
            "character_set_connection",
            random.pick(&["utf8mb4", "latin1"]).into(),
        ),
        8..=9 => {
            let (charset, collation) = random.pick(&[
                ("utf8mb4", "utf8mb4_bin"),
                ("latin1", "latin1_bin"),
                ("gbk", "gbk_bin"),
            ]);
            Op::Names(charset, random.one_in(2).then_some(collation))
        }
        10 => Op::SetHalf("time_zone", "+05:00", random.one_in(2)),
        11 => Op::Use(random.pick(&["shop", "stock"])),
        12 => Op::InitDb(random.pick(&["shop", "stock"])),
        13 => Op::Set("autocommit", random.pick(&[Some("ON"), Some("ON"), Some("OFF")])),
        _ => match random.below(8) {
            0 => Op::Track(
                "session_track_system_variables",
                random.pick(&["*", "sql_mode,time_zone", ""]),
            ),
            1 => Op::Track("session_track_schema", random.pick(&["ON", "OFF"])),
            2 => Op::Track("session_track_state_change", random.pick(&["ON", "OFF"])),
            _ => Op::Set("time_zone", Some("+02:00")),
        },
    }
}

fn read(random: &mut Random) -> Op {
    const NAMES: &[&str] = &[
        "sql_mode",
        "time_zone",
        "lc_time_names",
        "sql_select_limit",
        "transaction_isolation",
        "character_set_client",
        "character_set_results",
        "character_set_connection",
        "collation_connection",
        "autocommit",
    ];
    match random.below(10) {
        0..=3 => Op::Read(random.pick(NAMES)),
        4 => Op::ReadSchema,
        5 => Op::LastInsertId,
        6 => Op::RowCount,
        7 => Op::FoundRows,
        8 => Op::ShowWarnings,
        // What others may have left.
        _ => match random.below(8) {
            0 => Op::ReadRole,
            1 => Op::Now,
            2 => Op::IdIsNull,
            _ => Op::Count,
        },
    }
}

fn write(random: &mut Random) -> Op {
    match random.below(8) {
        0 => Op::Insert {
            // None that a server has given before: it would refuse that one.
            explicit: Some(1_000_000 * (1 + random.below(1000) as u64)),
            warns: false,
        },
        1 => Op::Insert {
            explicit: None,
            warns: true,
        },
        2 => Op::Fail,
        3 => Op::SyntaxError,
        4 => Op::Ddl,
        _ => Op::Insert {
            explicit: None,
            warns: false,
        },
    }
}

fn transaction(random: &mut Random) -> Op {
    match random.below(8) {
        0 => Op::Begin,
        1 => Op::BeginReadOnly,
        2..=4 => Op::Commit,
        5 => Op::Rollback,
        6 => Op::NextIsolation("READ-COMMITTED"),
        _ => Op::Ping,
    }
}

fn lock(random: &mut Random) -> Op {
    let name = random.below(2) as u8;
    match random.below(12) {
        0..=1 => Op::GetLock(name),
        2..=3 => Op::ReleaseLock(name),
        4..=5 => Op::ReleaseAllLocks,
        6 => Op::LockTables,
        7 => Op::FlushWithReadLock,
        8 => Op::LockInstance,
        9 => Op::UnlockInstance,
        _ => Op::UnlockTables,
    }
}

fn rare(random: &mut Random) -> Op {
    let hidden = random.pick(&[
        Hidden::UserVariable,
        Hidden::Lock(1),
        Hidden::Temporary,
        Hidden::Insert,
    ]);
    match random.below(28) {
        0 => Op::SetUser(random.below(5) as u8),
        1 => Op::SelectIntoUser(random.below(5) as u8),
        2 => Op::ReadUser,
        3 => Op::Call(hidden),
        4 => Op::Function(if hidden == Hidden::Insert {
            Hidden::UserVariable
        } else {
            hidden
        }),
        5 => Op::CreateTemporary,
        6 => Op::DropTemporary,
        7..=8 => Op::ReadTemporary,
        9 => Op::TextPrepare(random.below(5) as u8),
        10 => Op::TextExecute,
        11 => Op::SetRole(random.below(3) as u8),
        12 => Op::HandlerOpen,
        13 => Op::HandlerRead,
        14 => Op::NextVal,
        15 => Op::LastVal,
        16 => Op::SetTimestamp(random.one_in(2).then_some(9)),
        17 => Op::SetInsertId(5000 + random.below(1000) as u64),
        18 => Op::SetLastInsertId(random.below(100) as u64),
        19 => Op::SelectLastInsertId(random.below(100) as u64),
        20 => Op::Set("sql_auto_is_null", Some("ON")),
        21 => Op::IdIsNull,
        22..=23 => Op::SetStatement("fr_FR"),
        24 => Op::CalcFoundRows,
        25 => Op::CharacterSet("latin1"),
        26 => Op::DropDatabase,
        _ => Op::Set("sql_log_bin", random.pick(&[Some("ON"), Some("OFF")])),
    }
}
