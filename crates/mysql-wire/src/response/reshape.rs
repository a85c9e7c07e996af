//! Gives a server's response the shape that the client's capabilities ask for.
//!
//! With servers DEPRECATE_EOF and SESSION_TRACK are always spoken, because that is how they tell what a
//! statement does to its session. For a client that has not asked for them this puts the EOF packets in that
//! an older server would send, turns the OK packet at the end of rows into one, takes session state out, and
//! numbers packets anew. Everything else passes as it is.
//!
//! One thing cannot be known in time: the EOF packet after the definitions comes before the rows, and its
//! status, which DEPRECATE_EOF moves behind them, tells a client of a cursor or of OUT parameters. So with a
//! prepared statement, where these exist, that EOF packet waits for the packet after the first row. Of other
//! flags it carries what the session's last status said; what clients go by is the status behind the rows.
//! MariaDB Connector/C does not, where it reads rows as they arrive, and misses that a `CALL` has another
//! result: see [`Reshaper::expect_more`].

use super::packets::{ERR, Expect, Head, OkStart};
use super::{Event, Progress, ResponseTracker};
use crate::{Capabilities, Command, EofPacket, OkPacket, PacketHeader, StatusFlags, WireError, write_packet};

/// A row that is longer is not held back: OUT parameters longer than this are told as such behind their row
/// only.
const HELD_ROW_MAX: usize = 1 << 20;
/// Memory that a packet gets at once that is held back; a longer one gets more as it comes.
const HELD_AT_ONCE: usize = 4096;
/// Session state that waits for an OK packet, because it came with a packet that is an EOF packet for the
/// client. More than this is forgotten.
const DEFERRED_STATE_MAX: usize = 1 << 16;

/// What stays true from one statement to the next, and may be in an EOF packet before the rows of the next.
const LASTING: StatusFlags = StatusFlags(
    StatusFlags::IN_TRANS.0
        | StatusFlags::AUTOCOMMIT.0
        | StatusFlags::NO_BACKSLASH_ESCAPES.0
        | StatusFlags::IN_TRANS_READONLY.0
        | StatusFlags::ANSI_QUOTES.0,
);

/// Reshapes responses for one client. Driven like a [`ResponseTracker`], of which it does the work as well.
/// It belongs to the client, not to the server connection: between two responses the client may go on with
/// another connection that has the same capabilities.
#[derive(Debug, Clone)]
pub struct Reshaper {
    tracker: ResponseTracker,
    client: Capabilities,
    /// How far the client's sequence numbers are ahead of the server's: packets put into this response.
    ahead: u8,
    /// Where the packet under way goes.
    sink: Sink,
    /// The EOF packet after the definitions waits: the server's sequence number of the last definition.
    owed: Option<u8>,
    /// The row that waits behind the EOF packet, header and all, or the packet that is collected.
    held: Vec<u8>,
    deferred_state: Vec<u8>,
    /// Behind rows there is always something else.
    has_more: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Sink {
    /// To the client, as it is.
    #[default]
    Client,
    /// It is the first row, which waits.
    Held,
    /// It is an OK packet, which is written anew once it is there as a whole.
    Collected(OkKind),
    /// It is an OK packet for which the client has got an EOF packet.
    Dropped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OkKind {
    Ok,
    AsEof,
}

const _: () = assert!(size_of::<Reshaper>() <= 144);

/// What the caller does with session state: looks at it, and says what of it the client is to see, encoded.
type OnOk<'a> = &'a mut dyn FnMut(&OkPacket) -> Vec<u8>;

impl Reshaper {
    /// `server`: what was negotiated with the server. `client`: what was negotiated with the client, which
    /// may lack DEPRECATE_EOF and SESSION_TRACK of these, and must be the same in what else changes a
    /// response.
    pub fn new(server: Capabilities, client: Capabilities) -> Reshaper {
        debug_assert!(
            server.contains(Capabilities::DEPRECATE_EOF) || !client.contains(Capabilities::DEPRECATE_EOF)
        );
        Reshaper {
            tracker: ResponseTracker::new(server),
            client,
            ahead: 0,
            sink: Sink::Client,
            owed: None,
            held: Vec::new(),
            deferred_state: Vec::new(),
            has_more: false,
        }
    }

    /// The status of the session, where this has not seen it: after a login, or when another connection has
    /// taken over.
    pub fn note_status(&mut self, status: StatusFlags) {
        self.tracker.outcome.status = status;
    }

    /// The next response is this command's; see [`ResponseTracker::begin`].
    pub fn begin(&mut self, command: Command) {
        self.tracker.begin(command);
        self.ahead = 0;
        self.sink = Sink::Client;
        self.owed = None;
        self.held = Vec::new();
        self.has_more = false;
    }

    /// The response that has begun is a prepared `CALL`'s: each result has another one behind it, and be it
    /// the OK packet that ends all.
    pub fn expect_more(&mut self) {
        self.has_more = true;
    }

    /// See [`ResponseTracker::allow_cursor`].
    pub fn allow_cursor(&mut self) {
        self.tracker.allow_cursor();
    }

    /// See [`ResponseTracker::allow_infile`].
    pub fn allow_infile(&mut self) {
        self.tracker.allow_infile();
    }

    /// A response is under way.
    pub fn in_progress(&self) -> bool {
        self.tracker.in_progress()
    }

    /// See [`ResponseTracker::error_sequence`]. The number is the client's.
    pub fn error_sequence(&self) -> Option<u8> {
        let number = self.tracker.error_sequence()?;
        self.owed.is_none().then_some(number.wrapping_add(self.ahead))
    }

    /// The sequence number of the last packet that began, as the server gave it. The client's file (LOCAL
    /// INFILE) goes on from it on the server's side.
    pub fn server_sequence(&self) -> u8 {
        self.tracker.sequence()
    }

    /// The same as the client sees it.
    pub fn client_sequence(&self) -> u8 {
        self.tracker.sequence().wrapping_add(self.ahead)
    }

    /// See [`ResponseTracker::resume_after_local_infile`].
    pub fn resume_after_local_infile(&mut self) {
        self.tracker.resume_after_local_infile();
    }

    /// Takes bytes that start where the bytes consumed before ended, and appends to `out` what the client is
    /// to get for them: what was consumed, what was held back (at most a row of 1 MiB) and a few packets
    /// more. Bytes that were consumed are not to be presented again. `on_ok` is called for each OK packet
    /// with session state, in order.
    ///
    /// # Errors
    /// What the server sent is no response to the command; neither connection can be used any more.
    pub fn advance(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        on_ok: OnOk<'_>,
    ) -> Result<Progress, WireError> {
        let mut at = 0;
        loop {
            at += self.pass_payload(bytes.get(at..).unwrap_or_default(), out);
            if self.tracker.skip > 0 {
                return Ok(Progress::more(at));
            }
            if self.tracker.continued {
                let Some(header) = bytes.get(at..).and_then(PacketHeader::parse) else {
                    return Ok(Progress::more(at));
                };
                at += self.enter(header, out);
                continue;
            }
            self.packet_ends(out, on_ok)?;
            if self.tracker.expect == Expect::Rows && self.owed.is_none() {
                at = self.pass_rows(bytes, at, out);
                if self.tracker.skip > 0 {
                    return Ok(Progress::more(at));
                }
            }
            if let Some(event) = self.tracker.settled() {
                let consumed = if event == Event::Stream { bytes.len() } else { at };
                out.extend_from_slice(bytes.get(at..consumed).unwrap_or_default());
                return Ok(Progress { consumed, event });
            }
            let Some(head) = self.tracker.head(bytes.get(at..).unwrap_or_default())? else {
                return Ok(Progress::more(at));
            };
            self.packet_begins(&head, out)?;
            if self.tracker.expect != Expect::Stream {
                at += self.enter(head.header, out);
            }
        }
    }

    fn pass_payload(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let passed = self.tracker.pass_payload(bytes.len());
        self.write(bytes.get(..passed).unwrap_or(bytes), out);
        passed
    }

    fn enter(&mut self, header: PacketHeader, out: &mut Vec<u8>) -> usize {
        let sequence = match self.sink {
            Sink::Client => header.sequence.wrapping_add(self.ahead),
            _ => header.sequence,
        };
        if matches!(self.sink, Sink::Held | Sink::Collected(_)) {
            // Most come whole.
            let len = PacketHeader::LEN + header.payload_len;
            self.held.reserve(len.min(HELD_AT_ONCE));
        }
        self.write(&PacketHeader { sequence, ..header }.encode(), out);
        self.tracker.enter(header)
    }

    fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match self.sink {
            Sink::Client => out.extend_from_slice(bytes),
            Sink::Held | Sink::Collected(_) => self.held.extend_from_slice(bytes),
            Sink::Dropped => {}
        }
    }

    /// The hot path: whole rows, copied at once and then numbered.
    fn pass_rows(&mut self, bytes: &[u8], from: usize, out: &mut Vec<u8>) -> usize {
        let to = self.tracker.pass_rows(bytes, from);
        let mut at = out.len();
        out.extend_from_slice(bytes.get(from..to).unwrap_or_default());
        if self.ahead == 0 {
            return to;
        }
        while let Some([a, b, c, sequence]) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *sequence = sequence.wrapping_add(self.ahead);
            at += PacketHeader::LEN + u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        }
        to
    }

    /// Decides where the packet goes that starts like this.
    fn packet_begins(&mut self, head: &Head<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
        let kind = if self.tracker.is_ok(head) {
            Some(OkKind::Ok)
        } else if self.tracker.is_ok_as_eof(head) {
            Some(OkKind::AsEof)
        } else {
            None
        };
        if kind.is_some() && head.header.is_continued() {
            return Err(WireError::Invalid {
                field: "length of an OK packet",
            });
        }
        self.sink = Sink::Client;
        if let Some(after) = self.owed {
            self.settle_owed(after, head, out)?;
        }
        if let Some(kind) = kind {
            self.ok_begins(kind, head, out)?;
        }
        self.tracker.expect = self.tracker.next(head)?;
        Ok(())
    }

    fn ok_begins(&mut self, kind: OkKind, head: &Head<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
        let becomes_eof = kind == OkKind::AsEof && self.writes_eof();
        if self.tracker.carries_state(head)? || (!becomes_eof && !self.deferred_state.is_empty()) {
            self.sink = Sink::Collected(kind);
        } else if becomes_eof {
            let start = OkStart::read(head)?;
            let sequence = head.header.sequence.wrapping_add(self.ahead);
            write_eof_packet(sequence, start.status, start.warnings, out);
            self.sink = Sink::Dropped;
        }
        Ok(())
    }

    fn writes_eof(&self) -> bool {
        let deprecated = Capabilities::DEPRECATE_EOF;
        self.tracker.capabilities.contains(deprecated) && !self.client.contains(deprecated)
    }

    /// The EOF packet after the definitions is owed: writes it where what comes next says what is to be in
    /// it.
    fn settle_owed(&mut self, after: u8, head: &Head<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
        let cursor = StatusFlags::CURSOR_EXISTS;
        let status = match self.tracker.end_of_rows(head)? {
            // What follows the definitions is the EOF packet itself.
            Some(end) if self.tracker.opens_cursor(end.status) && self.held.is_empty() => {
                self.owed = None;
                return Ok(());
            }
            Some(end) => end.status.without(cursor | StatusFlags::LAST_ROW_SENT),
            None if self.may_wait(head) => {
                self.sink = Sink::Held;
                return Ok(());
            }
            None => self.status_before_rows(),
        };
        self.owed = None;
        self.write_eof(after, status, out);
        self.release(out);
        Ok(())
    }

    fn status_before_rows(&self) -> StatusFlags {
        let status = self.tracker.outcome.status.intersection(LASTING);
        match self.has_more {
            true => status.with(StatusFlags::MORE_RESULTS),
            false => status,
        }
    }

    /// It is the first row, and not too long.
    fn may_wait(&self, head: &Head<'_>) -> bool {
        head.first != ERR && self.held.is_empty() && head.header.payload_len <= HELD_ROW_MAX
    }

    /// The row that was held back goes to the client.
    fn release(&mut self, out: &mut Vec<u8>) {
        let mut row = std::mem::take(&mut self.held);
        if let Some(sequence) = row.get_mut(PacketHeader::LEN - 1) {
            *sequence = sequence.wrapping_add(self.ahead);
        }
        out.append(&mut row);
    }

    /// A packet has passed, or none is under way.
    fn packet_ends(&mut self, out: &mut Vec<u8>, on_ok: OnOk<'_>) -> Result<(), WireError> {
        if let Sink::Collected(kind) = std::mem::take(&mut self.sink) {
            self.rewrite(kind, out, on_ok)?;
        }
        let groups = std::mem::take(&mut self.tracker.groups_ended);
        if !self.writes_eof() {
            return Ok(());
        }
        for _ in 0..groups {
            let after = self.tracker.sequence();
            if self.tracker.command == Command::STMT_EXECUTE {
                self.owed = Some(after);
            } else {
                let status = self.tracker.outcome.status.intersection(LASTING);
                self.write_eof(after, status, out);
            }
        }
        Ok(())
    }

    /// Puts an EOF packet in behind the server's packet number `after`.
    fn write_eof(&mut self, after: u8, status: StatusFlags, out: &mut Vec<u8>) {
        let sequence = after.wrapping_add(self.ahead).wrapping_add(1);
        write_eof_packet(sequence, status, 0, out);
        self.ahead = self.ahead.wrapping_add(1);
    }

    /// Writes the OK packet that was collected as the client is to see it.
    fn rewrite(&mut self, kind: OkKind, out: &mut Vec<u8>, on_ok: OnOk<'_>) -> Result<(), WireError> {
        let packet = std::mem::take(&mut self.held);
        let payload = packet.get(PacketHeader::LEN..).unwrap_or_default();
        let mut ok = OkPacket::decode(payload, self.tracker.capabilities)?;
        let carries_state = self.tracker.capabilities.contains(Capabilities::SESSION_TRACK)
            && ok.status.contains(StatusFlags::SESSION_STATE_CHANGED);
        ok.session_state = if carries_state { on_ok(&ok) } else { Vec::new() };
        let mut sequence = self.client_sequence();
        if kind == OkKind::AsEof && self.writes_eof() {
            self.defer_state(&ok.session_state);
            write_eof_packet(sequence, ok.status, ok.warnings, out);
            return Ok(());
        }
        if !self.deferred_state.is_empty() {
            let first = std::mem::take(&mut self.deferred_state);
            ok.session_state.splice(..0, first);
        }
        ok.status = match ok.session_state.is_empty() {
            true => ok.status.without(StatusFlags::SESSION_STATE_CHANGED),
            false => ok.status.with(StatusFlags::SESSION_STATE_CHANGED),
        };
        let mut payload = Vec::new();
        match kind {
            OkKind::Ok => ok.encode(&mut payload, self.client),
            OkKind::AsEof => ok.encode_as_eof(&mut payload, self.client),
        }
        write_packet(out, &mut sequence, &payload);
        Ok(())
    }

    /// As servers do it, session state that has no place in an EOF packet comes with the next OK packet.
    fn defer_state(&mut self, state: &[u8]) {
        let fits = self.deferred_state.len() + state.len() <= DEFERRED_STATE_MAX;
        if fits && self.client.contains(Capabilities::SESSION_TRACK) {
            self.deferred_state.extend_from_slice(state);
        }
    }
}

fn write_eof_packet(sequence: u8, status: StatusFlags, warnings: u16, out: &mut Vec<u8>) {
    let header = PacketHeader {
        payload_len: EofPacket::LEN,
        sequence,
    };
    let status = status.without(StatusFlags::SESSION_STATE_CHANGED);
    out.extend_from_slice(&header.encode());
    EofPacket { warnings, status }.encode(out);
}
