//! Finds requests in the bytes of a client.

#[cfg(test)]
mod tests;

use std::mem;

use crate::error::ProtocolError;
use crate::inline;
use crate::number::parse_integer;

/// The longest line with a count or a length. Those of Redis hold no more than 20 digits.
const HEADER_MAX: usize = 32;
/// The most bytes of a request that is too large which are kept: the name of its command.
const NAME_KEPT: usize = 64;

/// What a client may send. A [`Parser`] asks its caller for no more than these bytes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request that are kept. Of a longer one the bytes are dropped as they come.
    pub request_bytes: usize,
    /// Bytes of an inline request.
    pub inline_bytes: usize,
    /// Arguments of a request, which is an error beyond that.
    pub arguments: i64,
    /// Bytes of an argument, which is an error beyond that (`proto-max-bulk-len`).
    pub bulk_bytes: i64,
}

impl Limits {
    /// Those of Redis, but that no more than 1 MiB of a request is kept: a request that only reads names
    /// keys.
    pub const LOGGED_IN: Self = Self {
        request_bytes: 1024 * 1024,
        inline_bytes: 64 * 1024,
        arguments: 1024 * 1024,
        bulk_bytes: 512 * 1024 * 1024,
    };

    /// Before a client has logged in: 10 arguments of 16 KiB.
    pub const STRANGER: Self = Self {
        request_bytes: 64 * 1024,
        inline_bytes: 16 * 1024,
        arguments: 10,
        bulk_bytes: 16 * 1024,
    };

    const LENGTH_MAX: i64 = Self::LOGGED_IN.bulk_bytes;

    fn count_error(&self, count: Option<i64>) -> ProtocolError {
        match count {
            Some(count) if count <= Self::LOGGED_IN.arguments => ProtocolError::UnauthenticatedCount,
            _ => ProtocolError::InvalidCount,
        }
    }

    fn length_error(&self, length: Option<i64>) -> ProtocolError {
        match length {
            Some(0..=Self::LENGTH_MAX) => ProtocolError::UnauthenticatedLength,
            _ => ProtocolError::InvalidLength,
        }
    }
}

/// What [`Parser::parse`] found at the front of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseStep {
    /// A request of so many bytes; [`Parser::args`] has its arguments, at least one.
    Request(usize),
    /// The end, so many bytes away, of a request that was longer than [`Limits::request_bytes`]:
    /// [`Parser::args`] has the name of its command, or nothing if that is too long, too.
    TooLarge(usize),
    /// So many bytes, at least one, have no meaning or are dropped: go on behind them.
    Skip(usize),
    /// More bytes are needed behind those that are there.
    Incomplete,
}

/// Finds requests, arrays of bulk strings or lines, one after the other.
///
/// Give [`parse`](Self::parse) all bytes that have been received and not consumed, and consume what its
/// answer says. After [`ParseStep::Incomplete`] give it the same bytes and more: it goes on where it stopped,
/// so bytes that come one by one cost no more than those that come together. Nothing is allocated but the
/// list of arguments, and that grows with the bytes that are there, never with what they promise.
#[derive(Debug, Default)]
pub struct Parser {
    /// Where the arguments are, from the start of the request, or in `own`.
    spans: Vec<Span>,
    /// Arguments that had to be rewritten: inline ones, and the name of the command of a request that is too
    /// large.
    own: Vec<u8>,
    own_used: bool,
    state: State,
    /// Bytes of the request that have been looked at.
    seen: usize,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A request begins here.
    #[default]
    Start,
    /// So many arguments are left, and what comes is the length of the next.
    Length {
        left: u32,
    },
    /// An argument comes, and then so many.
    Bulk {
        length: usize,
        left: u32,
    },
    /// The same for a request whose bytes are dropped; `length` has its line end with it.
    Dropped {
        length: usize,
        left: u32,
    },
    DroppedLength {
        left: u32,
    },
}

/// The arguments of a request; the first is the name of the command.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// One of them; the name of the command is number 0.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(index)?;
        self.bytes.get(span.start as usize..span.end as usize)
    }

    pub fn from(&self, index: usize) -> Self {
        Self {
            bytes: self.bytes,
            spans: self.spans.get(index..).unwrap_or_default(),
        }
    }

    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let slice = move |span: &Span| self.bytes.get(span.start as usize..span.end as usize);
        self.spans.iter().map(move |span| slice(span).unwrap_or_default())
    }
}

impl Parser {
    /// Looks for the next request; see [`Parser`].
    ///
    /// # Errors
    /// The client broke the protocol: what follows cannot be read.
    #[inline]
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<ParseStep, ProtocolError> {
        if self.state == State::Start {
            match bytes.first() {
                None => return Ok(ParseStep::Incomplete),
                Some(b'*') => {
                    if let Some(step) = self.count(bytes, limits)? {
                        return Ok(step);
                    }
                }
                Some(_) => return self.inline(bytes, limits),
            }
        }
        self.arguments(bytes, limits)
    }

    /// The arguments of the request that [`parse`](Self::parse) found at the front of `bytes`.
    #[inline]
    pub fn args<'a>(&'a self, bytes: &'a [u8]) -> Args<'a> {
        Args {
            bytes: if self.own_used { &self.own } else { bytes },
            spans: &self.spans,
        }
    }

    /// Whether part of a request has been seen. If not, the parser may be used for another client.
    pub fn is_within_request(&self) -> bool {
        self.state != State::Start || self.seen > 0
    }

    /// Bytes of memory it holds.
    pub fn capacity(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.own.capacity()
    }

    /// The line `*count`. Answers with a step if that is all there is.
    #[inline]
    fn count(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<ParseStep>, ProtocolError> {
        let Some((text, end)) = header(bytes, 0, ProtocolError::CountLineTooBig)? else {
            return Ok(Some(ParseStep::Incomplete));
        };
        let count = parse_integer(text);
        match count {
            Some(count) if count <= 0 => Ok(Some(ParseStep::Skip(end))),
            Some(count) if count <= limits.arguments => {
                self.begin();
                self.state = State::Length {
                    left: u32::try_from(count).map_err(|_| ProtocolError::InvalidCount)?,
                };
                self.seen = end;
                Ok(None)
            }
            _ => Err(limits.count_error(count)),
        }
    }

    fn begin(&mut self) {
        self.spans.clear();
        self.own.clear();
        self.own_used = false;
    }

    fn finish(&mut self) -> usize {
        self.state = State::Start;
        mem::take(&mut self.seen)
    }

    /// Goes through as many arguments as are there.
    #[inline]
    fn arguments(&mut self, bytes: &[u8], limits: &Limits) -> Result<ParseStep, ProtocolError> {
        loop {
            match self.state {
                State::Start | State::Length { left: 0 } => return Ok(ParseStep::Request(self.finish())),
                State::DroppedLength { left: 0 } => return Ok(ParseStep::TooLarge(self.finish())),
                State::Length { left } => {
                    let Some((length, end)) = bulk_length(bytes, self.seen, limits)? else {
                        return Ok(ParseStep::Incomplete);
                    };
                    let left = left - 1;
                    self.seen = end;
                    if end.saturating_add(length) + 2 > limits.request_bytes {
                        self.drop_from_here(bytes, length + 2, left);
                    } else {
                        self.state = State::Bulk { length, left };
                    }
                }
                State::Bulk { length, left } => {
                    let end = self.seen + length;
                    let Some(line_end) = bytes.get(end..end + 2) else {
                        return Ok(ParseStep::Incomplete);
                    };
                    if line_end != b"\r\n" {
                        return Err(ProtocolError::MissingLineEnd);
                    }
                    self.add(self.seen, end);
                    self.seen = end + 2;
                    self.state = State::Length { left };
                }
                State::Dropped { length, left } => {
                    let there = length.min(bytes.len() - self.seen);
                    self.seen += there;
                    self.state = State::Dropped {
                        length: length - there,
                        left,
                    };
                    if there < length {
                        return Ok(self.skip_or_wait());
                    }
                    self.state = State::DroppedLength { left };
                }
                State::DroppedLength { left } => match bulk_length(bytes, self.seen, limits)? {
                    None => return Ok(self.skip_or_wait()),
                    Some((length, end)) => {
                        self.seen = end;
                        self.state = State::Dropped {
                            length: length + 2,
                            left: left - 1,
                        };
                    }
                },
            }
        }
    }

    #[inline]
    fn add(&mut self, start: usize, end: usize) {
        // A request has at most `request_bytes` bytes, which fit.
        let (start, end) = (start as u32, end as u32);
        self.spans.push(Span { start, end });
    }

    /// The request is too large: keeps the name of its command and drops the rest as it comes.
    fn drop_from_here(&mut self, bytes: &[u8], length: usize, left: u32) {
        let name = self.args(bytes).get(0).filter(|name| name.len() <= NAME_KEPT);
        let name = name.map(<[u8]>::to_vec);
        self.spans.clear();
        self.own_used = true;
        if let Some(name) = name {
            self.own = name;
            self.add(0, self.own.len());
        }
        self.state = State::Dropped { length, left };
    }

    /// What has been looked at of a dropped request is of no use any more.
    fn skip_or_wait(&mut self) -> ParseStep {
        match mem::take(&mut self.seen) {
            0 => ParseStep::Incomplete,
            seen => ParseStep::Skip(seen),
        }
    }

    fn inline(&mut self, bytes: &[u8], limits: &Limits) -> Result<ParseStep, ProtocolError> {
        let unseen = bytes.get(self.seen..).unwrap_or_default();
        let end = unseen.iter().position(|&byte| byte == b'\n');
        let end = end.map(|end| self.seen + end);
        self.seen = bytes.len();
        if end.unwrap_or(self.seen) > limits.inline_bytes {
            return Err(ProtocolError::InlineTooBig);
        }
        let Some(end) = end else {
            return Ok(ParseStep::Incomplete);
        };
        self.begin();
        self.own_used = true;
        let (line, spans) = (bytes.get(..end).unwrap_or_default(), &mut self.spans);
        inline::split(line, &mut self.own, |start, end| {
            spans.push(Span {
                start: start as u32,
                end: end as u32,
            });
        })?;
        self.seen = 0;
        Ok(if self.spans.is_empty() {
            ParseStep::Skip(end + 1)
        } else {
            ParseStep::Request(end + 1)
        })
    }
}

/// The line `$length` at `at`: the length and where the argument begins.
#[inline]
fn bulk_length(bytes: &[u8], at: usize, limits: &Limits) -> Result<Option<(usize, usize)>, ProtocolError> {
    match bytes.get(at) {
        None => return Ok(None),
        Some(b'$') => {}
        Some(&other) => return Err(ProtocolError::ExpectedBulk(other)),
    }
    let Some((text, end)) = header(bytes, at, ProtocolError::LengthLineTooBig)? else {
        return Ok(None);
    };
    let length = parse_integer(text);
    match length {
        Some(length @ 0..) if length <= limits.bulk_bytes => {
            let length = usize::try_from(length).map_err(|_| ProtocolError::InvalidLength)?;
            Ok(Some((length, end)))
        }
        _ => Err(limits.length_error(length)),
    }
}

/// The line at `at` without its first byte and its end, and where the next begins.
#[inline]
fn header(bytes: &[u8], at: usize, too_big: ProtocolError) -> Result<Option<(&[u8], usize)>, ProtocolError> {
    let line = bytes.get(at + 1..).unwrap_or_default();
    let line = line.get(..HEADER_MAX).unwrap_or(line);
    let end = line.iter().position(|&byte| byte == b'\r');
    match end.and_then(|end| line.split_at_checked(end)) {
        Some((text, [_, b'\n', ..])) => Ok(Some((text, at + text.len() + 3))),
        Some((_, [_, _, ..])) => Err(ProtocolError::MissingLineEnd),
        _ if line.len() == HEADER_MAX => Err(too_big),
        _ => Ok(None),
    }
}
