//! Point lookups: statements that an extension answers instead of a server, for listeners with
//! `point_lookups`.
//!
//! A SELECT of one row by its key (`sql_class::point_lookup`) that stands alone is shown to the worker's
//! [`Lookups`]. The first time it goes to a server all the same, with everything that comes back noted: what
//! the columns are to this client, and that this user may read them, nobody else knows. From then on the
//! answer is made of memory, byte for byte as the server would.
//!
//! Here is what both sides have in common; `engine::lookup` is where sessions ask.

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

/// What answers lookups on one worker.
pub trait Lookups {
    /// The number of these surroundings: sessions in which a statement has the same answer, byte for byte,
    /// share one.
    fn environment(&self, surroundings: &Surroundings<'_>) -> Environment;

    /// What to do about a lookup. Writes the key of the row into `key` where it is to be answered.
    fn find(&self, environment: Environment, asked: &Asked<'_>, key: &mut Vec<u8>) -> Finding;

    /// What to do about another execution of a prepared statement that
    /// [has only parameters](PointLookup::has_only_parameters), for which `plan` was found in the same
    /// surroundings. `None`: it has to be found anew.
    fn find_again(&self, plan: &Plan, parameters: &Parameters<'_>, key: &mut Vec<u8>) -> Option<Finding>;

    /// Like [`answer`](Self::answer), where nothing has to be waited for. `None`: something has to be, and
    /// nothing was done. `is_fresh`: a [`Gate`] has said so of this lookup.
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

    /// As of which definitions and grants the rights of a session are that logs in from here on. `None` where
    /// grants have changed just now: a server may not go by them yet.
    fn rights_of_login(&self) -> Option<u64>;

    /// The present number of definitions and grants: another one where any has changed.
    fn definitions(&self) -> u64;

    /// The primary has answered the lookup, with these packets as the client got them.
    fn learn(&self, lesson: Lesson, answer: &[u8]);
}

/// Where a session waits whose next command is a strong lookup, most likely: until memory is fresh enough for
/// it, or for a moment.
pub trait Gate {
    /// Reads from a plain socket with `read`. With the bytes comes whether memory is as fresh as a strong
    /// lookup demands that is the first command in them, or that has begun before.
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
    /// Which of the accounts of that name; 0 where there is one.
    pub account: u64,
    pub rights: Rights,
    /// Where it matters to the server from where the client comes.
    pub host: Option<IpAddr>,
    /// The current one.
    pub schema: Option<&'a [u8]>,
    /// The client's.
    pub capabilities: Capabilities,
    /// Low byte of the collation of the login.
    pub collation: u8,
    /// What of the status lasts.
    pub status: StatusFlags,
    /// Variables of the session that are not as the server's configuration has them, or whose value is known
    /// anyway. `is_set`: by the session.
    pub variables: Vec<Variable<'a>>,
}

/// As of when a server has the rights of a user: it keeps some of them from the login on, or from the choice
/// of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Those of the connections of a pool, whichever a statement gets.
    Pooled,
    /// Those of a connection that the session has for itself.
    OfLogin {
        /// What [`Lookups::rights_of_login`] said before the login.
        as_of: Option<u64>,
        /// They are known to be exactly those: nothing was on its way in the binary log.
        is_certain: bool,
        session: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable<'a> {
    pub name: &'a [u8],
    /// Empty where it is not known, too.
    pub value: &'a [u8],
    /// By the session; otherwise it is what every session begins with.
    pub is_set: bool,
}

/// See [`Lookups::environment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Environment(pub u32);

/// A lookup as a client asks it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub lookup: &'a PointLookup<'a>,
    pub text: &'a [u8],
    /// Of a prepared statement.
    pub parameters: Option<Parameters<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub struct Parameters<'a> {
    /// Two bytes each.
    pub types: &'a [u8],
    pub nulls: &'a [u8],
    /// One behind the other, those that are not NULL.
    pub values: &'a [u8],
}

/// What is to be done about a lookup.
pub enum Finding {
    /// Left to a server.
    Left(Left),
    /// Left to a server. Before the next one the session's environment has to be asked for again.
    Outdated,
    /// It goes to the primary, and what comes back is to be shown.
    Learn(Lesson),
    Answer(Plan),
}

/// What was learned that the answer is made with.
#[derive(Clone)]
pub struct Plan(pub Rc<dyn Any>);

/// What is known of a lookup before its answer.
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
        /// A rule or the client says something about where it runs.
        Routed = "routed",
        /// Settings of the session, or what the client can, under which answers are not known well enough.
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

/// What one worker counts of lookups.
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

/// What `FOREBAY SET lookup_consistency = …` (formerly `consistency`) says about how fresh the lookups of a
/// session are from here on: `None` within is what the configuration says. `None` where it is something else.
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

/// Reads such a value: `None` within is what the configuration says.
pub(crate) fn consistency_or_default(value: &str) -> Option<Option<ReadConsistency>> {
    match value.eq_ignore_ascii_case("DEFAULT") {
        true => Some(None),
        false => consistency(value).map(Some),
    }
}

/// The consistency that has this word.
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

/// Rows that are longer than this are no rows that many ask for.
const RECORDED_MAX: usize = 64 * 1024;

impl Recorder {
    /// Notes what may go to the client now and could not before.
    pub(crate) fn note(&mut self, down: &Flow) {
        for bytes in down.outgoing() {
            self.is_useless |= self.bytes.len() + bytes.len() > RECORDED_MAX;
            if !self.is_useless {
                self.bytes.extend_from_slice(bytes);
            }
        }
    }

    /// It is not the primary that answers.
    pub(crate) fn give_up(&mut self) {
        self.is_useless = true;
    }

    /// All of the answer, where it came.
    pub(crate) fn answer(&self) -> Option<&[u8]> {
        (!self.is_useless && !self.bytes.is_empty()).then_some(self.bytes.as_slice())
    }
}

/// Whether an answer may be written to the client before its next command is read: nothing else is on its way
/// there. To be asked before one is made, which counts.
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

/// A buffer for the next answer, unless it has become one for large rows.
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
