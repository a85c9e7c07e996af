//! The record of an open transaction, kept so that it can be executed again.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;

use mysql_wire::Capabilities;
use mysql_wire::statement::replace_id;
use session::PortableState;

use crate::engine::metrics::SplitMetrics;
use crate::engine::replay::sum::Sum;
use crate::engine::replay::why::Why;

/// Bytes that a statement takes beyond its own.
const OVERHEAD: usize = 64;

/// Servers that may be lost with the same statement under way: the statement may be what has brought them
/// down.
const LOSSES_MAX: u32 = 2;

/// Bytes that sessions of one worker keep, of one cluster.
#[derive(Default)]
pub(crate) struct Memory(Cell<usize>);

/// A command that can be sent to another server.
pub(crate) enum Command {
    /// COM_QUERY: its payload.
    Text(Box<[u8]>),
    /// COM_STMT_EXECUTE, with the types of its parameters, and the text of what it executes. `id` is the
    /// client's.
    Execution {
        text: Rc<[u8]>,
        payload: Box<[u8]>,
        id: u32,
    },
}

impl Command {
    /// The command as the client has sent it.
    pub(crate) fn as_sent(&self) -> Box<[u8]> {
        match self {
            Self::Text(payload) => payload.clone(),
            Self::Execution { payload, id, .. } => {
                let mut payload = payload.clone();
                let is_long = replace_id(&mut payload, *id);
                debug_assert!(is_long, "it was put in before");
                payload
            }
        }
    }

    /// The text that is executed, without its parameters.
    fn text(&self) -> &[u8] {
        match self {
            Self::Text(payload) => payload,
            Self::Execution { text, .. } => text,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Text(payload) => payload.len(),
            Self::Execution { text, payload, .. } => text.len() + payload.len(),
        }
    }
}

/// A statement that was executed, and the checksum of its answer.
pub(crate) struct Executed {
    pub(crate) command: Command,
    pub(crate) sum: u64,
}

/// The command that was sent last.
pub(crate) enum UnderWay {
    /// No command of which anything is kept.
    Nothing,
    /// A statement of the transaction. `changes_rows`: the statement changes rows, or may.
    Statement { command: Command, changes_rows: bool },
    /// COMMIT or ROLLBACK: never sent again.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No transaction is kept.
    Empty,
    Kept,
    /// There is a transaction, and this is why it is not kept.
    Left(Why),
}

/// The transaction of one session.
pub(crate) struct Replay {
    state: State,
    executed: Vec<Executed>,
    under_way: UnderWay,
    /// Bytes of the executed statements, and of the command under way.
    bytes: usize,
    bytes_under_way: usize,
    bytes_max: usize,
    memory_max: usize,
    memory: Rc<Memory>,
    metrics: Arc<SplitMetrics>,
    /// The session's state at the beginning, and its LAST_INSERT_ID().
    carried: Rc<PortableState>,
    insert_id: u64,
    /// The hash of the statement that was under way when a server was lost, and how many were lost so since
    /// the last answer.
    lost: Option<(u64, u32)>,
    keys: RandomState,
}

impl Replay {
    pub(crate) fn new(config: &config::Cluster, memory: &Rc<Memory>, metrics: &Arc<SplitMetrics>) -> Self {
        let bytes = |size: config::ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
        let mut replay = Self::of(memory, metrics);
        replay.bytes_max = bytes(config.transaction_replay_max);
        replay.memory_max = bytes(config.transaction_replay_memory);
        replay
    }

    fn of(memory: &Rc<Memory>, metrics: &Arc<SplitMetrics>) -> Self {
        Self {
            state: State::Empty,
            executed: Vec::new(),
            under_way: UnderWay::Nothing,
            bytes: 0,
            bytes_under_way: 0,
            bytes_max: 0,
            memory_max: 0,
            memory: Rc::clone(memory),
            metrics: Arc::clone(metrics),
            carried: Rc::default(),
            insert_id: 0,
            lost: None,
            keys: RandomState::new(),
        }
    }

    /// Whether the transaction that is open could be executed again, as far as its statements say.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.state == State::Kept
    }

    /// The reason why an open transaction could not be executed again.
    pub(crate) fn why_not(&self) -> Option<Why> {
        match self.state {
            State::Left(why) => Some(why),
            State::Empty | State::Kept => None,
        }
    }

    #[inline]
    pub(crate) fn has_command(&self) -> bool {
        !matches!(self.under_way, UnderWay::Nothing)
    }

    /// Forgets the transaction: there is none any more.
    pub(crate) fn forget(&mut self) {
        self.let_go();
        self.state = State::Empty;
    }

    fn let_go(&mut self) {
        self.give_back(self.bytes);
        self.bytes_under_way = 0;
        self.executed = Vec::new();
        self.under_way = UnderWay::Nothing;
    }

    fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.memory.0.set(self.memory.0.get() - bytes);
        self.metrics.replay_bytes.add(-(bytes as i64));
    }

    /// Whether there is room for a command of this length.
    pub(crate) fn has_room(&self, len: usize) -> Result<(), Why> {
        let len = len + OVERHEAD;
        if self.bytes + len > self.bytes_max {
            return Err(Why::TooLarge);
        }
        match self.memory.0.get() + len > self.memory_max {
            true => Err(Why::NoMemory),
            false => Ok(()),
        }
    }

    /// Begins a transaction with the next command.
    pub(crate) fn begin(&mut self, carried: &Rc<PortableState>, insert_id: u64) {
        self.forget();
        self.lost = None;
        self.state = State::Kept;
        self.carried = Rc::clone(carried);
        self.insert_id = insert_id;
    }

    /// Gives the transaction up, which can not be executed again from here on. The first reason counts.
    pub(crate) fn leave(&mut self, why: Why) {
        self.let_go();
        if !matches!(self.state, State::Left(_)) {
            self.state = State::Left(why);
            self.metrics.not_replayable(why);
        }
    }

    pub(crate) fn is_sent(&mut self, under_way: UnderWay) {
        let bytes = std::mem::take(&mut self.bytes_under_way);
        self.give_back(bytes);
        self.under_way = UnderWay::Nothing;
        if let UnderWay::Statement { command, .. } = &under_way {
            if let Err(why) = self.has_room(command.len()) {
                return self.leave(why);
            }
            self.bytes_under_way = command.len() + OVERHEAD;
            self.bytes += self.bytes_under_way;
            self.memory.0.set(self.memory.0.get() + self.bytes_under_way);
            self.metrics.replay_bytes.add(self.bytes_under_way as i64);
        }
        self.under_way = under_way;
    }

    pub(crate) fn sum(&self, capabilities: Capabilities) -> Sum {
        Sum::new(&self.keys, capabilities)
    }

    /// Notes that the command that was sent last has been answered.
    pub(crate) fn is_answered(&mut self, sum: Option<u64>) {
        self.lost = None;
        match std::mem::replace(&mut self.under_way, UnderWay::Nothing) {
            UnderWay::Nothing => {}
            UnderWay::End => self.forget(),
            UnderWay::Statement { command, .. } => {
                let Some(sum) = sum else {
                    return self.leave(Why::Answer);
                };
                self.bytes_under_way = 0;
                self.executed.push(Executed { command, sum });
            }
        }
    }

    /// Notes that the server is lost with the command that was sent last.
    pub(crate) fn is_lost(&mut self) {
        let UnderWay::Statement { command, .. } = &self.under_way else {
            return;
        };
        let hash = self.keys.hash_one(command.text());
        let before = self.lost.filter(|(lost, _)| *lost == hash);
        let losses = before.map_or(0, |(_, losses)| losses) + 1;
        self.lost = Some((hash, losses));
        if losses >= LOSSES_MAX {
            self.leave(Why::LostTwice);
        }
    }

    /// The statements that were executed, in their order.
    pub(crate) fn executed(&self) -> &[Executed] {
        &self.executed
    }

    /// The command that was sent last, where that was one of the transaction's and has no answer yet.
    pub(crate) fn under_way(&self) -> &UnderWay {
        &self.under_way
    }

    /// The state that the session had at the beginning.
    pub(crate) fn carried(&self) -> &Rc<PortableState> {
        &self.carried
    }

    /// LAST_INSERT_ID() at the beginning.
    pub(crate) fn insert_id(&self) -> u64 {
        self.insert_id
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(len: usize) -> UnderWay {
        UnderWay::Statement {
            command: Command::Text(vec![0; len].into()),
            changes_rows: true,
        }
    }

    fn replay(memory: &Rc<Memory>, bytes_max: usize, memory_max: usize) -> Replay {
        let mut replay = Replay::of(memory, &Arc::default());
        (replay.bytes_max, replay.memory_max) = (bytes_max, memory_max);
        replay
    }

    #[test]
    fn what_is_kept_is_bounded_for_each_and_for_all() {
        let memory = Rc::<Memory>::default();
        let mut first = replay(&memory, 1000, 1500);
        let mut second = replay(&memory, 1000, 1500);
        for replay in [&mut first, &mut second] {
            replay.begin(&Rc::default(), 0);
            for _ in 0..3 {
                replay.is_sent(text(200));
                replay.is_answered(Some(1));
            }
        }
        assert!(first.is_kept());
        assert_eq!(second.why_not(), Some(Why::NoMemory));
        assert_eq!(memory.0.get(), 3 * 264);
        first.is_sent(text(200));
        first.is_answered(Some(1));
        assert_eq!(first.why_not(), Some(Why::TooLarge));
        assert_eq!((first.executed().len(), memory.0.get()), (0, 0));
        first.begin(&Rc::default(), 0);
        first.is_sent(text(200));
        first.is_answered(Some(1));
        drop(first);
        assert_eq!(memory.0.get(), 0);
    }

    #[test]
    fn a_statement_is_lost_twice_where_no_answer_comes_in_between() {
        let mut replay = replay(&Rc::default(), 1000, 1000);
        replay.begin(&Rc::default(), 0);
        for (len, is_answered) in [(10, false), (20, false), (10, true), (10, false)] {
            replay.is_sent(text(len));
            replay.is_lost();
            assert!(replay.is_kept());
            if is_answered {
                replay.is_answered(Some(1));
            }
        }
        replay.is_lost();
        assert_eq!(replay.why_not(), Some(Why::LostTwice));
        assert!(!replay.has_command());
    }

    #[test]
    fn the_end_of_a_transaction_leaves_nothing() {
        let memory = Rc::<Memory>::default();
        let mut replay = replay(&memory, 1000, 1000);
        replay.begin(&Rc::default(), 0);
        replay.is_sent(text(10));
        replay.is_answered(Some(1));
        replay.is_sent(UnderWay::End);
        replay.is_answered(None);
        assert!(!replay.is_kept() && replay.why_not().is_none());
        assert_eq!(memory.0.get(), 0);
        replay.begin(&Rc::default(), 0);
        replay.is_sent(text(10));
        replay.is_answered(None);
        assert_eq!(replay.why_not(), Some(Why::Answer));
    }
}
