//! Point lookups: statements that an extension answers instead of a server, for listeners with
//! `point_lookups`.
//!
//! A SELECT of one row by its key (`sql_class::point_lookup`) that stands alone is shown to the worker's
//! [`Lookups`]. The first time, the statement goes to a server all the same, with everything that comes back
//! noted: only a server knows what the columns are to this client, and that this user may read them. From
//! then on the answer is made of memory, byte for byte as the server would.
//!
//! This file has what both sides share; sessions ask in `engine::lookup`.

use std::any::Any;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use config::ReadConsistency;
use mysql_wire::gtid::GtidSet;
use mysql_wire::{Capabilities, PacketHeader, StatusFlags};
use sql_class::PointLookup;
use telemetry::{Counter, Samples, catalog, labels};

use crate::relay::Streams;
use crate::relay::flow::Flow;

/// The part of an extension that answers lookups on one worker.
pub trait Lookups {
    /// The number of these surroundings: sessions in which a statement has the same answer, byte for byte,
    /// share one.
    fn environment(&self, surroundings: &Surroundings<'_>) -> Environment;

    /// Decides what to do about a lookup. Writes the key of the row into `key` if the lookup is to be
    /// answered.
    fn find(&self, environment: Environment, asked: &Asked<'_>, key: &mut Vec<u8>) -> Finding;

    /// Decides what to do about another execution of a prepared statement that [has only
    /// parameters](PointLookup::has_only_parameters), for which `plan` was found in the same surroundings.
    /// `None`: the plan has to be found anew.
    fn find_again(&self, plan: &Plan, parameters: &Parameters<'_>, key: &mut Vec<u8>) -> Option<Finding>;

    /// Does what [`answer`](Self::answer) does, where nothing has to be waited for. `None`: a wait is needed,
    /// and nothing was done. `is_fresh`: a [`Gate`] has said that memory is fresh enough for this lookup.
    fn answer_now(
        &self,
        plan: &Plan,
        key: &[u8],
        consistency: ReadConsistency,
        own: Option<&GtidSet>,
        is_fresh: bool,
        out: &mut Vec<u8>,
    ) -> Option<Result<Answered, Left>>;

    /// Appends the packets of the answer to `out`, numbered from 1, once it is as fresh as it has to be.
    /// `own`: the GTIDs of what the session has written, where its consistency is that of the session.
    /// `is_fresh` as in [`answer_now`](Self::answer_now).
    fn answer<'a>(
        &'a self,
        plan: Plan,
        key: &'a [u8],
        consistency: ReadConsistency,
        own: Option<&'a GtidSet>,
        is_fresh: bool,
        out: &'a mut Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Result<Answered, Left>> + 'a>>;

    /// A gate for the session of this task, where there are any.
    fn gate(&self, task: &Waker) -> Option<Box<dyn Gate>>;

    /// The number of definitions and grants whose rights a session has that logs in from here on. `None`
    /// where grants have changed just now: a server may not go by them yet.
    fn rights_of_login(&self) -> Option<u64>;

    /// The present number of definitions and grants, which is another one whenever any has changed.
    fn definitions(&self) -> u64;

    /// Learns from the answer of the primary to the lookup. The packets are as the client got them.
    fn learn(&self, lesson: Lesson, answer: &[u8]);
}

/// A gate for a session whose next command is a strong lookup, most likely. The session waits there until
/// memory is fresh enough for the lookup, or for a moment.
pub trait Gate {
    /// Reads from a plain socket with `read`. Returns how many bytes were read, and whether memory is fresh
    /// enough for a strong lookup that is the first command in them, or that has begun before.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        read: &mut dyn FnMut(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<(usize, bool)>>;
}

/// Everything that an answer depends on beside the statement.
#[derive(Debug, Clone)]
pub struct Surroundings<'a> {
    pub user: &'a [u8],
    /// The number of the account among those of that name; 0 where there is one.
    pub account: u64,
    pub rights: Rights,
    /// The client's address, where that matters to the server.
    pub host: Option<IpAddr>,
    /// The current schema.
    pub schema: Option<&'a [u8]>,
    /// The client's capabilities.
    pub capabilities: Capabilities,
    /// Low byte of the collation of the login.
    pub collation: u8,
    /// The flags of the status that last.
    pub status: StatusFlags,
    /// Variables of the session that are not as the server's configuration has them, or whose value is known
    /// anyway. `is_set`: by the session.
    pub variables: Vec<Variable<'a>>,
}

/// The point in time whose rights a server goes by: it keeps some rights of a user from the login on, or from
/// the choice of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// The rights of the connections of a pool, whichever a statement gets.
    Pooled,
    /// The rights of a connection that the session has for itself.
    OfLogin {
        /// The number that [`Lookups::rights_of_login`] gave before the login.
        as_of: Option<u64>,
        /// The rights are known to be exactly those: nothing was on its way in the binary log.
        is_certain: bool,
        session: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable<'a> {
    pub name: &'a [u8],
    /// The value; empty also where it is not known.
    pub value: &'a [u8],
    /// Set by the session; otherwise the value is the one that every session begins with.
    pub is_set: bool,
}

/// See [`Lookups::environment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Environment(pub u64);

/// A lookup as a client asks it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub lookup: &'a PointLookup<'a>,
    pub text: &'a [u8],
    /// Parameters of a prepared statement.
    pub parameters: Option<Parameters<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub struct Parameters<'a> {
    /// The types, two bytes each.
    pub types: &'a [u8],
    pub nulls: &'a [u8],
    /// The values that are not NULL, one behind the other.
    pub values: &'a [u8],
}

/// The decision about a lookup.
pub enum Finding {
    /// Left to a server.
    Left(Left),
    /// Left to a server. Before the next lookup the session's environment has to be asked for again.
    Outdated,
    /// The lookup goes to the primary, and [`Lookups::learn`] is to be shown what comes back.
    Learn(Lesson),
    Answer(Plan),
}

/// The learned facts that an answer is made with.
#[derive(Clone)]
pub struct Plan(pub Rc<dyn Any>);

/// The facts that are known of a lookup before its answer.
pub struct Lesson(pub Box<dyn Any>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    pub rows: u64,
}

labels! {
    /// Why a lookup is left to a server.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Left {
        /// A transaction is open, or there is no autocommit, or the session holds its connection for
        /// something else.
        Session = "session",
        /// A rule or the client says something about where the statement runs.
        Routed = "routed",
        /// Answers are not known well enough under the session's settings, or the client's capabilities.
        Settings = "settings",
        /// No mapping of that table with that key.
        NotMapped = "not_mapped",
        /// Columns that the mapping does not have, or that only the server can print here.
        Columns = "columns",
        /// A value that only the server can compare.
        Value = "value",
        /// The lookup was learned right now; or again, because a definition or a grant has changed, or time
        /// has passed.
        Learned = "learned",
        /// The memory was not as fresh as it has to be within `strong_wait`.
        NotFresh = "not_fresh",
        /// The mapping is not served now.
        NotServed = "not_served",
    }
}

/// The counters of lookups on one worker.
#[derive(Debug, Default)]
pub(crate) struct LookupMetrics {
    pub(crate) answered: Counter,
    left: [Counter; Left::ALL.len()],
}

impl LookupMetrics {
    pub(crate) fn left(&self, reason: Left) {
        self.left[reason as usize].inc();
    }

    pub(crate) fn collect(&self, out: &mut Samples) {
        out.counter(&catalog::LOOKUPS_ANSWERED, &[], self.answered.get());
        for (left, count) in Left::ALL.iter().zip(&self.left) {
            out.counter(&catalog::LOOKUPS_LEFT, &[left.label()], count.get());
        }
    }
}

/// Reads a `FOREBAY SET lookup_consistency = …` (formerly `consistency`), which says how fresh the lookups of
/// a session are from here on: `None` within is what the configuration says. `None` for any other text.
pub(crate) fn wanted_level(text: &[u8]) -> Option<Option<ReadConsistency>> {
    let (name, value) = str::from_utf8(text).ok()?.split_once('=')?;
    let mut words = name.trim_end().trim_end_matches(':').split_whitespace();
    let mut next_is = |expected: &[&str]| {
        let next = words.next().unwrap_or_default();
        expected.iter().any(|word| next.eq_ignore_ascii_case(word))
    };
    let is_it = next_is(&["FOREBAY"]) && next_is(&["SET"]) && next_is(&["lookup_consistency", "consistency"]);
    if !is_it || words.next().is_some() {
        return None;
    }
    consistency_or_default(bare(value))
}

/// The value of a `FOREBAY SET` without what stands around it.
pub(crate) fn bare(value: &str) -> &str {
    value.trim_matches(|c: char| c.is_whitespace() || matches!(c, ';' | '\'' | '"'))
}

/// Reads such a value; `None` within is what the configuration says.
pub(crate) fn consistency_or_default(value: &str) -> Option<Option<ReadConsistency>> {
    match value.eq_ignore_ascii_case("DEFAULT") {
        true => Some(None),
        false => consistency(value).map(Some),
    }
}

/// The consistency with this word.
pub(crate) fn consistency(word: &str) -> Option<ReadConsistency> {
    const ALL: [ReadConsistency; 3] = [
        ReadConsistency::Eventual,
        ReadConsistency::Session,
        ReadConsistency::Strong,
    ];
    ALL.into_iter()
        .find(|known| word.eq_ignore_ascii_case(known.word()))
}

/// The packets of an answer on their way to the client.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    bytes: Vec<u8>,
    is_useless: bool,
}

/// Longest answer that is noted, in bytes: longer rows are none that many ask for.
const RECORDED_MAX: usize = 64 * 1024;

impl Recorder {
    /// Notes the bytes that may go to the client now and could not before.
    pub(crate) fn note(&mut self, down: &Flow) {
        for bytes in down.outgoing() {
            self.is_useless |= self.bytes.len() + bytes.len() > RECORDED_MAX;
            if !self.is_useless {
                self.bytes.extend_from_slice(bytes);
            }
        }
    }

    /// Gives the answer up, since another server than the primary gives it.
    pub(crate) fn give_up(&mut self) {
        self.is_useless = true;
    }

    /// The whole answer, if it came.
    pub(crate) fn answer(&self) -> Option<&[u8]> {
        (!self.is_useless && !self.bytes.is_empty()).then_some(self.bytes.as_slice())
    }
}

/// Whether an answer may be written to the client before its next command is read: nothing else is on its way
/// there. To be asked before an answer is made, since an answer that is made is counted.
pub(crate) fn may_put(streams: &Streams) -> bool {
    streams.down.is_empty() && !streams.down.is_pending()
}

/// Has an answer written to the client before its next command is read. False where that has to be done in
/// another way.
pub(crate) fn put(streams: &mut Streams, packets: &[u8]) -> bool {
    if packets.len() > net::buffer::CAPACITY {
        return false;
    }
    if streams.client.begin_command().is_err() {
        return false;
    }
    // A buffer of the worker's pool, instead of memory of the session's own.
    streams.down.fill(packets);
    streams.down.approve(packets.len());
    true
}

/// The buffer for the next answer: this one, unless it has become one for large rows.
pub(crate) fn kept(mut buffer: Vec<u8>) -> Vec<u8> {
    const LARGE: usize = 4096;
    if buffer.capacity() > LARGE {
        buffer = Vec::new();
    }
    buffer
}

/// The longest command that is looked at.
pub(crate) const COMMAND_MAX: usize = 4096;

/// The payload of a command that may be a lookup: all of it is there, and it is the only packet.
pub(crate) fn whole_payload(unseen: &[u8], payload_len: usize) -> Option<&[u8]> {
    if payload_len > COMMAND_MAX {
        return None;
    }
    unseen.get(PacketHeader::LEN..PacketHeader::LEN + payload_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_says_how_fresh_its_lookups_are() {
        for (text, wanted) in [
            ("FOREBAY SET consistency = strong", Some(ReadConsistency::Strong)),
            (
                "FOREBAY SET lookup_consistency = strong",
                Some(ReadConsistency::Strong),
            ),
            (
                "forebay set CONSISTENCY='Session';",
                Some(ReadConsistency::Session),
            ),
            (
                " FOREBAY  SET consistency := \"eventual\" ; ",
                Some(ReadConsistency::Eventual),
            ),
            ("FOREBAY SET consistency=DEFAULT", None),
        ] {
            assert_eq!(wanted_level(text.as_bytes()), Some(wanted), "{text}");
        }
        for text in [
            "FOREBAY SET consistency",
            "FOREBAY SET consistency = ",
            "FOREBAY SET consistency = fresh",
            "FOREBAY SET GLOBAL consistency = strong",
            "FOREBAY SET read_consistency = strong",
            "SET consistency = strong",
        ] {
            assert_eq!(wanted_level(text.as_bytes()), None, "{text}");
        }
    }
}
