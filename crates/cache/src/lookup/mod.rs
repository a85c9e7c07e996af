//! Point lookups: SELECTs of one row by its whole key, answered from memory in the server's own packets.
//!
//! ```text
//! find:   settings known? → shape known? ── yes → key → answer: fresh enough? → row → packets
//!                                        └─ no  → it goes to the primary, and its answer is learned from
//! ```
//!
//! What is learned is everything of the answer but the row, for this user, these settings and this text
//! without its values; that the server has answered also shows that the user may read these columns. It is
//! forgotten when the binary log shows a change of a mapped table's definition or of grants, and after a
//! minute. When an answer is learned its row is compared with the one that memory would have given: lookups
//! whose rows come out otherwise are never answered. Where memory is behind, the rows that the server has
//! shown are kept, and compared again with the next lookup.

mod answer;
mod environment;
mod learned;
mod memory;
mod render;
mod shape;
mod values;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use config::ReadConsistency;
use dataplane::extension::{
    Answered, Asked, Environment, Finding, Gate, Left, Lesson, Lookups, Parameters, Plan, Surroundings,
};
use mysql_wire::gtid::GtidSet;
use mysql_wire::{ErrPacket, PacketHeader, write_packet};
use sql_class::PointLookup;
use tokio::task::{spawn_local, yield_now};

pub use self::memory::Memory;

use self::answer::ClientAnswer;
use self::environment::Environments;
use self::learned::{EPOCH, Learned, Ready, Shown};
use self::render::Rendering;
use self::shape::{Kept, Shape};
use crate::mapping::Mapping;
use crate::store::Found;

pub struct PointLookups<M> {
    memory: M,
    environments: RefCell<Environments>,
    learned: RefCell<Learned>,
    /// Rows on their way into answers.
    row: RefCell<Vec<u8>>,
}

/// What is known of a lookup that goes to the primary.
struct PendingLookup {
    hash: u64,
    shape: Kept,
    environment: u64,
    definitions: u64,
    epoch: u32,
    candidates: Vec<(Arc<Mapping>, Box<[usize]>)>,
    key: Vec<u8>,
}

/// What follows from a server's answer.
enum Conclusion {
    Known(Result<Rc<Ready>, Left>),
    /// Memory has another row than the one that the server has shown: another version of it, or it shows it
    /// otherwise.
    Doubtful(Rc<Ready>, Option<Box<[u8]>>),
}

/// What a look into memory has found.
enum Looked {
    Answered(Result<Answered, Left>),
    /// The primary has to be asked.
    Missing,
    /// The row is being changed.
    Busy,
}

/// How often changes of definitions and grants are looked for where no lookup comes.
const LOOK: Duration = Duration::from_millis(250);

/// The longest row in memory that is shown, in bytes: an answer is there as a whole until its client has read
/// it, and what a server says of longer ones passes in pieces.
const ROW_MAX: usize = 256 * 1024;

/// How often a row is tried to be read that changes all the time.
const BUSY_MAX: usize = 64;

impl<M: Memory + 'static> PointLookups<M> {
    /// Runs beside it on the worker whatever has to be done from time to time.
    pub fn start(memory: M) -> Rc<Self> {
        let lookups = Rc::new(Self::new(memory));
        let weak = Rc::downgrade(&lookups);
        spawn_local(async move {
            let mut began = Instant::now();
            loop {
                tokio::time::sleep(LOOK).await;
                let Some(lookups) = weak.upgrade() else { return };
                let (mut learned, now) = (lookups.learned.borrow_mut(), Instant::now());
                // Seen now, a change is settled by the time that a lookup comes.
                learned.is_settled(lookups.memory.definitions(), now);
                if now.duration_since(began) >= EPOCH {
                    learned.next_epoch();
                    began = now;
                }
            }
        });
        lookups
    }

    fn new(memory: M) -> Self {
        let learned = Learned::new(memory.definitions());
        Self {
            memory,
            environments: RefCell::default(),
            learned: RefCell::new(learned),
            row: RefCell::default(),
        }
    }

    /// Whether the answer depends on nothing that is not known; says whether that is so for ASCII only.
    fn may_answer(&self, environment: u64, asked: &Asked<'_>) -> Result<bool, Left> {
        let environments = self.environments.borrow();
        let settings = environments.get(environment).filter(|settings| settings.is_known);
        let settings = settings.ok_or(Left::Settings)?;
        if settings.is_ascii_only && !asked.text.is_ascii() {
            return Err(Left::Settings);
        }
        Ok(settings.is_ascii_only)
    }

    /// What a lookup that is not known yet needs to be learned; or why it cannot be.
    fn question(
        &self,
        environment: u64,
        asked: &Asked<'_>,
        shape: &Shape<'_>,
        hash: u64,
        key: &mut Vec<u8>,
    ) -> Result<PendingLookup, Left> {
        let environments = self.environments.borrow();
        let settings = environments.get(environment).ok_or(Left::Settings)?;
        let schema = asked
            .lookup
            .schema
            .or(settings.schema.as_deref())
            .ok_or(Left::NotMapped)?;
        let mappings = self.memory.mappings();
        let candidates: Vec<_> = mappings
            .by_table(schema, asked.lookup.table)
            .filter_map(|mapping| Some((Arc::clone(mapping), order(mapping, asked.lookup)?)))
            .collect();
        let (mapping, order) = candidates.first().ok_or(Left::NotMapped)?;
        let (parameters, is_ascii_only) = (asked.parameters.as_ref(), settings.is_ascii_only);
        if !values::key(mapping, order, asked.lookup, parameters, is_ascii_only, key) {
            return Err(Left::Value);
        }
        let (learned, definitions) = (self.learned.borrow(), self.memory.definitions());
        if !learned.is_settled(definitions, Instant::now()) {
            return Err(Left::Learned);
        }
        Ok(PendingLookup {
            hash,
            shape: shape.kept(),
            environment,
            definitions,
            epoch: learned.epoch(),
            candidates,
            key: key.clone(),
        })
    }

    /// What follows from an answer. `None`: nothing.
    fn conclusion(&self, question: &PendingLookup, bytes: &[u8]) -> Option<Conclusion> {
        let environments = self.environments.borrow();
        let settings = environments.get(question.environment)?;
        let Some(answer) = ClientAnswer::read(bytes, settings.capabilities) else {
            let is_error = bytes.get(PacketHeader::LEN) == Some(&ErrPacket::HEADER);
            return (!is_error).then_some(Conclusion::Known(Err(Left::Settings)));
        };
        let rendering = |mapping| {
            let (zone, is_ascii_only) = (settings.zone, settings.is_ascii_only);
            Rendering::new(
                mapping,
                &answer.columns,
                zone,
                question.shape.is_binary,
                is_ascii_only,
            )
        };
        let mut candidates = question.candidates.iter();
        let fitting = candidates.find_map(|(mapping, order)| Some((mapping, order, rendering(mapping)?)));
        let Some((mapping, order, rendering)) = fitting else {
            return Some(Conclusion::Known(Err(Left::Columns)));
        };
        let is_same = self.shows_the_same(mapping, &rendering, &question.key, answer.row) != Some(false);
        let ready = Rc::new(Ready {
            mapping: Arc::clone(mapping),
            order: order.clone(),
            head: answer.head.into(),
            next: answer.next,
            end: answer.end.into(),
            rendering,
            definitions: question.definitions,
            epoch: question.epoch,
        });
        Some(match is_same {
            true => Conclusion::Known(Ok(ready)),
            false => Conclusion::Doubtful(ready, answer.row.map(Box::from)),
        })
    }

    /// What is known of a shape now that memory has a row that the server has shown before.
    fn settled(&self, hash: u64, shape: &Shape<'_>) -> Option<Rc<Ready>> {
        let definitions = self.memory.definitions();
        let ready = {
            let learned = self.learned.borrow();
            let (ready, mut shown) = learned.doubts(hash, shape, definitions)?;
            let is_shown = shown.any(|shown| {
                let same =
                    self.shows_the_same(&ready.mapping, &ready.rendering, &shown.key, shown.row.as_deref());
                same == Some(true)
            });
            is_shown.then(|| Rc::clone(ready))?
        };
        let what = Ok(Rc::clone(&ready));
        self.learned
            .borrow_mut()
            .put(hash, shape.kept(), definitions, ready.epoch, what);
        Some(ready)
    }

    /// Whether memory has the row that the server has shown, printed alike. `None`: a bounded mapping does
    /// not have it.
    fn shows_the_same(
        &self,
        mapping: &Mapping,
        rendering: &Rendering,
        key: &[u8],
        shown: Option<&[u8]>,
    ) -> Option<bool> {
        let mut row = self.row.borrow_mut();
        Some(match self.memory.get(mapping, key, &mut row) {
            Found::Row => {
                let mut payload = Vec::new();
                rendering.put(key, &row, &mut payload).is_ok() && shown == Some(payload.as_slice())
            }
            Found::Absent => shown.is_none(),
            Found::Missing => return None,
            Found::Busy | Found::Closed => false,
        })
    }

    async fn make(
        &self,
        ready: &Ready,
        key: &[u8],
        consistency: ReadConsistency,
        own: Option<&GtidSet>,
        is_fresh: bool,
        out: &mut Vec<u8>,
    ) -> Result<Answered, Left> {
        if self.is_fresh_now(consistency, own, is_fresh) {
            self.memory.note(consistency);
        } else if !self.memory.fresh(consistency, own).await {
            return Err(Left::NotFresh);
        }
        for _ in 0..BUSY_MAX {
            match self.look(ready, key, out) {
                Looked::Answered(answered) => return answered,
                Looked::Missing => return self.fetched(ready, key, out).await,
                Looked::Busy => yield_now().await,
            }
        }
        Err(Left::NotServed)
    }

    /// Looks into memory, which is as fresh as it has to be.
    fn look(&self, ready: &Ready, key: &[u8], out: &mut Vec<u8>) -> Looked {
        let mut row = self.row.borrow_mut();
        if row.capacity() > 2 * ROW_MAX {
            *row = Vec::new();
        }
        let found = self.memory.get(&ready.mapping, key, &mut row);
        // Definitions are looked at behind the row: one that came after a grant was taken away is not shown
        // by what was learned before. What is asked for after this may be of other definitions, too.
        if ready.definitions != self.memory.definitions() {
            return Looked::Answered(Err(Left::Learned));
        }
        Looked::Answered(match found {
            Found::Row => put(ready, key, Some(&row), out),
            Found::Absent if ready.mapping.may_be_beyond() => Err(Left::Value),
            Found::Absent => put(ready, key, None, out),
            Found::Closed => Err(Left::NotServed),
            Found::Missing => return Looked::Missing,
            Found::Busy => return Looked::Busy,
        })
    }

    /// Whether memory is as fresh as that at this moment, as far as that can be said without a question.
    /// `is_fresh`: it is so for a strong read.
    fn is_fresh_now(&self, consistency: ReadConsistency, own: Option<&GtidSet>, is_fresh: bool) -> bool {
        match consistency {
            ReadConsistency::Eventual => true,
            ReadConsistency::Session => self.memory.has(own),
            ReadConsistency::Strong => is_fresh,
        }
    }

    /// The answer by the primary's row.
    async fn fetched(&self, ready: &Ready, key: &[u8], out: &mut Vec<u8>) -> Result<Answered, Left> {
        let mut row = Vec::new();
        let fetched = self.memory.fetch(&ready.mapping, key, &mut row).await;
        let is_there = fetched.map_err(|()| Left::NotServed)?;
        if ready.definitions != self.memory.definitions() {
            return Err(Left::Learned);
        }
        put(ready, key, is_there.then_some(row.as_slice()), out)
    }
}

impl<M: Memory + 'static> Lookups for PointLookups<M> {
    fn environment(&self, surroundings: &Surroundings<'_>) -> Environment {
        let definitions = self.memory.definitions();
        let mut environments = self.environments.borrow_mut();
        Environment(environments.number(surroundings, definitions))
    }

    fn rights_of_login(&self) -> Option<u64> {
        let definitions = self.memory.definitions();
        let learned = self.learned.borrow();
        learned
            .is_settled(definitions, Instant::now())
            .then_some(definitions)
    }

    fn find(&self, Environment(environment): Environment, asked: &Asked<'_>, key: &mut Vec<u8>) -> Finding {
        if !self.environments.borrow().has(environment) {
            return Finding::Outdated;
        }
        let is_ascii_only = match self.may_answer(environment, asked) {
            Ok(is_ascii_only) => is_ascii_only,
            Err(reason) => return Finding::Left(reason),
        };
        let shape = Shape::new(asked, environment);
        let learned = self.learned.borrow();
        let hash = shape.hash(&learned.hashes);
        match learned.get(hash, &shape, self.memory.definitions()) {
            Some(Ok(ready)) => answered_by(ready, asked, is_ascii_only, key),
            Some(Err(reason)) => Finding::Left(*reason),
            None => {
                drop(learned);
                if !self.environments.borrow().is_of(self.memory.definitions()) {
                    return Finding::Outdated;
                }
                if let Some(ready) = self.settled(hash, &shape) {
                    return answered_by(&ready, asked, is_ascii_only, key);
                }
                match self.question(environment, asked, &shape, hash, key) {
                    Ok(question) => Finding::Learn(Lesson(Box::new(question))),
                    Err(reason) => Finding::Left(reason),
                }
            }
        }
    }

    fn find_again(&self, plan: &Plan, parameters: &Parameters<'_>, key: &mut Vec<u8>) -> Option<Finding> {
        let ready = plan.0.downcast_ref::<Ready>()?;
        let definitions = self.memory.definitions();
        if ready.definitions != definitions || !self.learned.borrow().is_of_now(ready.epoch) {
            return None;
        }
        let is_ascii_only = ready.rendering.is_ascii_only;
        let (mapping, order) = (&ready.mapping, &ready.order);
        Some(
            match values::key_of_parameters(mapping, order, parameters, is_ascii_only, key) {
                true => Finding::Answer(plan.clone()),
                false => Finding::Left(Left::Value),
            },
        )
    }

    fn answer_now(
        &self,
        plan: &Plan,
        key: &[u8],
        consistency: ReadConsistency,
        own: Option<&GtidSet>,
        is_fresh: bool,
        out: &mut Vec<u8>,
    ) -> Option<Result<Answered, Left>> {
        let ready = plan.0.downcast_ref::<Ready>()?;
        if !self.is_fresh_now(consistency, own, is_fresh) {
            return None;
        }
        let begin = out.len();
        match self.look(ready, key, out) {
            // Written as a whole it would have no place: it counts where it is asked for again.
            Looked::Answered(Ok(_)) if out.len() - begin > net::buffer::CAPACITY => {
                out.truncate(begin);
                None
            }
            Looked::Answered(answered) => {
                if answered.is_ok() {
                    self.memory.note(consistency);
                }
                Some(answered)
            }
            Looked::Missing | Looked::Busy => None,
        }
    }

    fn answer<'a>(
        &'a self,
        plan: Plan,
        key: &'a [u8],
        consistency: ReadConsistency,
        own: Option<&'a GtidSet>,
        is_fresh: bool,
        out: &'a mut Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Result<Answered, Left>> + 'a>> {
        Box::pin(async move {
            let ready = plan.0.downcast::<Ready>().map_err(|_| Left::NotServed)?;
            self.make(&ready, key, consistency, own, is_fresh, out).await
        })
    }

    fn gate(&self, task: &Waker) -> Option<Box<dyn Gate>> {
        self.memory.gate(task)
    }

    fn definitions(&self) -> u64 {
        self.memory.definitions()
    }

    fn learn(&self, lesson: Lesson, answer: &[u8]) {
        let Ok(question) = lesson.0.downcast::<PendingLookup>() else {
            return;
        };
        if question.definitions != self.memory.definitions() {
            return;
        }
        let Some(conclusion) = self.conclusion(&question, answer) else {
            return;
        };
        let PendingLookup {
            hash,
            shape,
            definitions,
            epoch,
            key,
            ..
        } = *question;
        let mut learned = self.learned.borrow_mut();
        match conclusion {
            Conclusion::Known(what) => learned.put(hash, shape, definitions, epoch, what),
            Conclusion::Doubtful(ready, row) => learned.doubt(hash, shape, ready, Shown { key, row }),
        }
    }
}

/// What to do about a lookup of which all is known.
fn answered_by(ready: &Rc<Ready>, asked: &Asked<'_>, is_ascii_only: bool, key: &mut Vec<u8>) -> Finding {
    let parameters = asked.parameters.as_ref();
    let (mapping, order) = (&ready.mapping, &ready.order);
    match values::key(mapping, order, asked.lookup, parameters, is_ascii_only, key) {
        true => Finding::Answer(Plan(Rc::clone(ready) as Rc<_>)),
        false => Finding::Left(Left::Value),
    }
}

/// Which condition is about which column of the key. `None` where they are not about all of them, each once.
fn order(mapping: &Mapping, lookup: &PointLookup<'_>) -> Option<Box<[usize]>> {
    let conditions = lookup.conditions();
    let columns = mapping.key_columns();
    if columns.len() != conditions.len() {
        return None;
    }
    columns
        .map(|column| {
            let is_about = |name: &[u8]| name.eq_ignore_ascii_case(column.name.as_bytes());
            conditions.iter().position(|condition| is_about(condition.column))
        })
        .collect()
}

fn put(ready: &Ready, key: &[u8], row: Option<&[u8]>, out: &mut Vec<u8>) -> Result<Answered, Left> {
    if row.is_some_and(|row| row.len() > ROW_MAX) {
        return Err(Left::Columns);
    }
    out.extend_from_slice(&ready.head);
    let mut sequence = ready.next;
    if let Some(row) = row {
        let at = out.len();
        out.extend_from_slice(&[0, 0, 0, sequence]);
        let rendered = ready.rendering.put(key, row, out);
        let len = out.len() - at - PacketHeader::LEN;
        if rendered.is_err() && ready.rendering.is_ascii_only {
            return Err(Left::Settings);
        }
        if rendered.is_err() || len >= PacketHeader::MAX_PAYLOAD {
            return Err(Left::Columns);
        }
        let len = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
        out[at..at + 3].copy_from_slice(&len[..3]);
        sequence = sequence.wrapping_add(1);
    }
    write_packet(out, &mut sequence, &ready.end);
    Ok(Answered {
        rows: u64::from(row.is_some()),
    })
}
