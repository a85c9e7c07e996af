//! State that lives for one command of the client.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::rc::Rc;

use mysql_wire::{PacketHeader, command_packet};
use upstream::{Released, ServerId};

use crate::command_head::CommandHead;
use crate::engine::metrics::AtPrimary;
use crate::relay::Streams;
use crate::relay::flow::Flow;

/// A command of the client, from when it is received until its answer is over. The session makes a new one
/// for each command, so nothing of it has to be reset.
#[derive(Default)]
pub(crate) struct Statement {
    /// The command at the head of what the client sent, or what a rule has put in its place.
    pub(crate) head: CommandHead,
    /// The outcomes on servers to which the command was sent before.
    pub(crate) attempts: Attempts,
    /// The command is in the flow once more, as if the client had just sent it: the next command is this one.
    comes_again: bool,
    /// The command with its packet header, where it may be sent to another server: its own is lost before it
    /// answers, or takes no writes.
    pub(crate) copy: Option<Box<[u8]>>,
    /// The copy is a read that leaves nothing behind, however often it is executed.
    pub(crate) leaves_nothing: bool,
    /// The command may be executed elsewhere if its server takes no writes.
    pub(crate) may_go_elsewhere: bool,
    /// The server has refused the command because it takes no writes.
    pub(crate) took_no_writes: bool,
    /// The command sets what any server can: one that is not the primary is not to refuse it.
    pub(crate) asks_primary: bool,
    /// The reason why the statement goes to the primary, where it is a read that might not.
    pub(crate) at_primary: Cell<Option<AtPrimary>>,
    /// The number that the statement has in common with those that differ in values only; see `pipeline`.
    pub(crate) number: Option<NonZeroU64>,
    /// The session was bound to its connection before this command. Each attempt to lease finds that out
    /// anew: a statement has several where its transaction moves, or where a server refuses the session's
    /// state.
    pub(crate) was_pinned: bool,
    pub(crate) asks_for_cursor: bool,
    pub(crate) may_load_file: bool,
    pub(crate) lists_processes: bool,
    pub(crate) executes_call: bool,
    /// The command to relay is not the client's but one of ours, which waits in the flow, whole.
    pub(crate) is_ours: bool,
    /// The text that the client has sent, where a rule has another text prepared.
    pub(crate) original: Option<Rc<[u8]>>,
    /// The explanation why the statement goes where it goes, if the client has asked for that.
    pub(crate) explanation: Option<Box<[Vec<String>]>>,
    /// The place of a statement that has waited for a new primary, among those that are let through. Others
    /// wait for it and the next command may be long in coming, so the place is given back by hand: where the
    /// statement is over, has no end or waits anew, and behind a replay.
    pub(crate) released: Option<Released>,
}

/// The attempts to have servers execute a command.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Attempts {
    /// The server that was lost with the command.
    pub(crate) lost_on: Option<ServerId>,
    /// How many servers have refused the command because they take no writes.
    pub(crate) refusals: u8,
    /// A server was lost on the way to the command, and its transaction was executed again on another.
    pub(crate) lost_before: bool,
}

impl Statement {
    /// The statement of the next command, which may be this one again.
    pub(crate) fn next(&mut self, head: CommandHead) -> Self {
        let released = self.released.take();
        Self {
            head,
            released: released.filter(|_| self.comes_again),
            attempts: if self.comes_again {
                self.attempts
            } else {
                Attempts::default()
            },
            ..Self::default()
        }
    }

    /// Whether the next command is this one.
    pub(crate) fn is_to_come_again(&self) -> bool {
        self.comes_again
    }

    /// Says a command in the place of the client's, which was taken off already.
    pub(crate) fn say(&mut self, up: &mut Flow, payload: &[u8]) {
        up.say(&command_packet(payload));
        self.is_ours = true;
    }

    /// Says a command in the place of the client's.
    pub(crate) fn replace(&mut self, up: &mut Flow, head: CommandHead, payload: &[u8]) {
        up.discard(PacketHeader::LEN + head.payload_len);
        self.say(up, payload);
    }

    /// Notes that the command has been sent: what has come of its answer goes where it would have been read
    /// to.
    pub(crate) fn take_in(&mut self, streams: &mut Streams, head: CommandHead, unread: &[u8]) {
        let len = PacketHeader::LEN + head.payload_len;
        streams.up.discard(len);
        streams.traffic.add_up(len);
        streams.down.fill(unread);
        self.is_ours = true;
    }

    /// Notes that the command has been put back into the flow.
    pub(crate) fn comes_again(&mut self) {
        self.comes_again = true;
    }
}
