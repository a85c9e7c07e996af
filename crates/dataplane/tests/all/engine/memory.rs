//! Rows in memory for point lookups. What becomes of a lookup is said by its table:
//!
//! | table | what becomes of it |
//! |---|---|
//! | `remembered` | it is answered at once |
//! | `awaited` | it is answered after a wait |
//! | `never` | it waits for ever |
//! | `taught` | what a server says of the first one is said to all others with the same capabilities |
//! | any other | it is left to a server |
//!
//! There is a row with every key but 0. It looks like that of `SELECT 'ROWS 1'`.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Waker;

use config::ReadConsistency;
use dataplane::extension::{
    Answered, Asked, Environment, Finding, Gate, Left, Lesson, Lookups, Parameters, Plan, Surroundings,
};
use mysql_wire::gtid::GtidSet;
use mysql_wire::{Capabilities, Command};
use sql_class::Value;
use testkit::scripted::{Reply, Script};

use super::stage::as_here;

/// What one worker remembers.
#[derive(Default)]
pub(crate) struct Memory {
    /// Those of clients, by the number of their environment.
    capabilities: RefCell<Vec<Capabilities>>,
    taught: RefCell<Vec<(Kind, Vec<u8>)>>,
}

/// What answers to lookups on `taught` depend on: the environment, and whether rows are binary.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind(Environment, bool);

/// A [`Plan`].
struct Made {
    packets: Vec<u8>,
    rows: u64,
    comes: Comes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comes {
    AtOnce,
    Later,
    Never,
}

impl Lookups for Memory {
    fn environment(&self, surroundings: &Surroundings<'_>) -> Environment {
        let mut all = self.capabilities.borrow_mut();
        let known = all.iter().position(|known| *known == surroundings.capabilities);
        let number = known.unwrap_or_else(|| {
            all.push(surroundings.capabilities);
            all.len() - 1
        });
        Environment(number as u64)
    }

    fn find(&self, environment: Environment, asked: &Asked<'_>, _key: &mut Vec<u8>) -> Finding {
        let is_binary = asked.parameters.is_some();
        let comes = match asked.lookup.table {
            b"remembered" => Comes::AtOnce,
            b"awaited" => Comes::Later,
            b"never" => Comes::Never,
            b"taught" => return self.taught(Kind(environment, is_binary)),
            _ => return Finding::Left(Left::NotMapped),
        };
        let rows = u64::from(!asks_for_nothing(asked));
        let capabilities = self.capabilities.borrow()[environment.0 as usize];
        Finding::Answer(Plan(Rc::new(Made {
            packets: packets(rows, is_binary, capabilities),
            rows,
            comes,
        })))
    }

    fn find_again(&self, _plan: &Plan, _parameters: &Parameters<'_>, _key: &mut Vec<u8>) -> Option<Finding> {
        None
    }

    fn answer_now(
        &self,
        plan: &Plan,
        _key: &[u8],
        _consistency: ReadConsistency,
        _own: Option<&GtidSet>,
        _is_fresh: bool,
        out: &mut Vec<u8>,
    ) -> Option<Result<Answered, Left>> {
        let made = plan.0.downcast_ref::<Made>().unwrap();
        (made.comes == Comes::AtOnce).then(|| Ok(made.put(out)))
    }

    fn answer<'a>(
        &'a self,
        plan: Plan,
        _key: &'a [u8],
        _consistency: ReadConsistency,
        _own: Option<&'a GtidSet>,
        _is_fresh: bool,
        out: &'a mut Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Result<Answered, Left>> + 'a>> {
        Box::pin(async move {
            let made = plan.0.downcast_ref::<Made>().unwrap();
            match made.comes {
                Comes::AtOnce | Comes::Later => tokio::task::yield_now().await,
                Comes::Never => std::future::pending().await,
            }
            Ok(made.put(out))
        })
    }

    fn gate(&self, _task: &Waker) -> Option<Box<dyn Gate>> {
        None
    }

    fn rights_of_login(&self) -> Option<u64> {
        Some(0)
    }

    fn definitions(&self) -> u64 {
        0
    }

    fn learn(&self, lesson: Lesson, answer: &[u8]) {
        let kind = *lesson.0.downcast::<Kind>().unwrap();
        self.taught.borrow_mut().push((kind, answer.to_vec()));
    }
}

impl Memory {
    fn taught(&self, kind: Kind) -> Finding {
        let taught = self.taught.borrow();
        let Some((_, packets)) = taught.iter().find(|(known, _)| *known == kind) else {
            return Finding::Learn(Lesson(Box::new(kind)));
        };
        Finding::Answer(Plan(Rc::new(Made {
            packets: packets.clone(),
            rows: 1,
            comes: Comes::AtOnce,
        })))
    }
}

impl Made {
    fn put(&self, out: &mut Vec<u8>) -> Answered {
        out.extend(&self.packets);
        Answered { rows: self.rows }
    }
}

/// Whether the key is 0.
fn asks_for_nothing(asked: &Asked<'_>) -> bool {
    let values = asked.parameters.map_or(&b""[..], |parameters| parameters.values);
    asked
        .lookup
        .conditions()
        .iter()
        .any(|condition| match condition.value {
            Value::Integer { magnitude, .. } => magnitude == 0,
            Value::Text(_) => false,
            Value::Parameter => values.iter().all(|byte| *byte == 0),
        })
}

/// The answer with so many rows, numbered from 1.
fn packets(rows: u64, is_binary: bool, capabilities: Capabilities) -> Vec<u8> {
    let mut script = Script::new(capabilities);
    let text = format!("ROWS {rows}");
    let mut ask = |command: Command, rest: &[u8]| script.reply(&[&[command.0], rest].concat());
    let mut reply = match is_binary {
        false => ask(Command::QUERY, text.as_bytes()),
        true => {
            ask(Command::STMT_PREPARE, text.as_bytes());
            ask(Command::STMT_EXECUTE, &[1, 0, 0, 0, 0, 1, 0, 0, 0])
        }
    };
    if let Reply::Payloads(payloads) = &mut reply {
        let end = payloads.last_mut().unwrap();
        if capabilities.contains(Capabilities::DEPRECATE_EOF) {
            as_here(end, false, capabilities);
        }
    }
    Script::bytes(&reply).unwrap()
}
