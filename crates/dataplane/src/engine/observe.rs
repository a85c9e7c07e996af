//! The server's answer on its way to the client: reports about the session are read, and those that the
//! client did not ask for are taken out.
//!
//! Server connections always report their state (session tracking) and always end rows with an OK packet. A
//! client that knows both gets its answer as it comes, but for those reports; for an older one the answer is
//! put into the older form.

use mysql_wire::{
    Capabilities, ErrPacket, Event, OkPacket, Outcome, PacketHeader, StatusFlags, WireError, write_packet,
};

use crate::engine::last_error::LastError;
use crate::engine::prepared::Renaming;
use crate::engine::prepared::limit;
use crate::engine::rules::TimeLimit;
use crate::engine::shape::Shape;
use crate::lookups::Recorder;
use crate::relay::Answer;
use crate::relay::flow::Flow;

/// An answer while it is relayed.
pub(crate) struct Observed<'a> {
    pub(crate) shape: &'a mut Shape,
    pub(crate) session: &'a mut session::Session,
    pub(crate) client: Capabilities,
    pub(crate) server: Capabilities,
    /// COM_STMT_PREPARE: the id in the answer becomes the client's.
    pub(crate) renaming: Option<&'a mut Renaming>,
    /// The statement may be executed elsewhere if this server does not take writes (any more): that answer is
    /// kept from the client.
    pub(crate) may_go_elsewhere: bool,
    /// Every error is kept from the client, since another server is to say what is wrong.
    pub(crate) is_second_hand: bool,
    /// How long the statement may take.
    pub(crate) limit: Option<&'a TimeLimit>,
    /// The refusal that has come, in the server's words.
    pub(crate) took_no_writes: Option<Box<ErrPacket>>,
    /// The recorder of the answer.
    pub(crate) recorder: Option<&'a mut Recorder>,
    /// The server has said that something of the session has changed.
    pub(crate) reported: bool,
    /// The error that ends the answer.
    pub(crate) error: Option<Box<LastError>>,
}

/// Errors by which a server refuses a write because of what it is, before it has done anything.
///
/// 1290 ER_OPTION_PREVENTS_STATEMENT (`--read-only`, `--super-read-only`), 1836 ER_READ_ONLY_MODE, 3100
/// ER_RUN_HOOK_ERROR is not among them: a transaction that Group Replication refuses at its commit was
/// executed.
pub(crate) const TAKES_NO_WRITES: [u16; 2] = [1290, 1836];

impl Observed<'_> {
    /// Takes the server's refusal of a write off what has come, and ends the answer with it. `None` for any
    /// other answer; `Some(None)` while the refusal is not there whole.
    fn take_refusal(&mut self, down: &mut Flow) -> Result<Option<Option<Outcome>>, WireError> {
        let unseen = down.unseen();
        let Some(header) = PacketHeader::parse(unseen) else {
            return Ok(Some(None));
        };
        let packet = &unseen[PacketHeader::LEN..];
        let code = match packet {
            [] => return Ok(Some(None)),
            [ErrPacket::HEADER, low, high, ..] => u16::from_le_bytes([*low, *high]),
            [ErrPacket::HEADER, ..] => return Ok(Some(None)),
            _ => return Ok(None),
        };
        let is_of_role = match self.renaming {
            Some(_) if code == limit::NO_ROOM => false,
            None if self.is_second_hand => false,
            None if TAKES_NO_WRITES.contains(&code) => true,
            _ => return Ok(None),
        };
        let len = PacketHeader::LEN + header.payload_len;
        let Some(whole) = unseen.get(..len) else {
            return Ok(Some(None));
        };
        // 1290 is about any option; these are the ones that a failover changes.
        if is_of_role
            && !whole
                .windows(9)
                .any(|part| part == b"read-only" || part == b"read_only")
        {
            return Ok(None);
        }
        let progress = match &mut *self.shape {
            Shape::Same(tracker) => tracker.advance(whole)?,
            Shape::Older(reshaper) => reshaper.advance(whole, &mut Vec::new(), &mut |_| Vec::new())?,
        };
        let refusal = ErrPacket::decode(&whole[PacketHeader::LEN..], self.server)?;
        self.took_no_writes = Some(Box::new(refusal));
        down.discard(len);
        match progress.event {
            Event::Done(outcome) => Ok(Some(Some(outcome))),
            _ => Err(WireError::NotAsked),
        }
    }

    /// Puts a packet in the place of the OK packet with session state that is next. False while the OK packet
    /// is not there whole.
    fn inspect(&mut self, down: &mut Flow) -> Result<bool, WireError> {
        let unseen = down.unseen();
        let Some(header) = PacketHeader::parse(unseen) else {
            return Ok(false);
        };
        let len = PacketHeader::LEN + header.payload_len;
        let Some(payload) = unseen.get(PacketHeader::LEN..len) else {
            return if len > net::buffer::CAPACITY {
                Err(WireError::Invalid {
                    field: "length of the session state",
                })
            } else {
                Ok(false)
            };
        };
        let is_terminator = payload.first() == Some(&OkPacket::HEADER_AS_EOF);
        let mut ok = OkPacket::decode(payload, self.server)?;
        ok.session_state = self.session.observe_ok(&ok);
        self.reported = true;
        if ok.session_state.is_empty() {
            ok.status.remove(StatusFlags::SESSION_STATE_CHANGED);
        }
        let mut encoded = Vec::with_capacity(payload.len());
        if is_terminator {
            ok.encode_as_eof(&mut encoded, self.client);
        } else {
            ok.encode(&mut encoded, self.client);
        }
        let (mut packet, mut sequence) = (Vec::with_capacity(len), header.sequence);
        write_packet(&mut packet, &mut sequence, &encoded);
        if packet.len() > len {
            return Err(WireError::Invalid {
                field: "session state",
            });
        }
        down.replace(len, &packet);
        Ok(true)
    }

    fn advance_same(&mut self, down: &mut Flow) -> Result<(usize, Event), WireError> {
        let mut moved = 0;
        loop {
            let Shape::Same(tracker) = &mut *self.shape else {
                return Err(WireError::NotAsked);
            };
            let progress = tracker.advance(down.unseen())?;
            down.approve(progress.consumed);
            moved += progress.consumed;
            if let Event::Done(outcome) = progress.event
                && let Some(code) = outcome.error
            {
                self.error = at_error(self.limit, code, down.approved_mut());
            }
            if progress.event != Event::State {
                return Ok((moved, progress.event));
            }
            if !self.inspect(down)? {
                return Ok((moved, Event::More));
            }
            if let Shape::Same(tracker) = &mut *self.shape {
                tracker.pass_state();
            }
        }
    }

    fn advance_older(&mut self, down: &mut Flow) -> Result<(usize, Event), WireError> {
        let Shape::Older(reshaper) = &mut *self.shape else {
            return Err(WireError::NotAsked);
        };
        let (session, reported) = (&mut *self.session, &mut self.reported);
        // An EOF packet is added at most, but for a row that was held back.
        let mut out = Vec::with_capacity(down.unseen().len() + 2 * PacketHeader::LEN + 8);
        let progress = reshaper.advance(down.unseen(), &mut out, &mut |ok| {
            *reported = true;
            session.observe_ok(ok)
        })?;
        if let Event::Done(outcome) = progress.event
            && let Some(code) = outcome.error
        {
            self.error = at_error(self.limit, code, &mut out);
        }
        down.discard(progress.consumed);
        down.say(&out);
        Ok((out.len(), progress.event))
    }
}

/// Tells a client whose statement took too long that it did, in the error that ends these bytes. Returns the
/// error that the client is told.
#[cold]
fn at_error(limit: Option<&TimeLimit>, code: u16, bytes: &mut [u8]) -> Option<Box<LastError>> {
    if let Some(limit) = limit {
        limit.explain(code, bytes);
    }
    LastError::at_end_of(bytes, code)
}

impl Answer for Observed<'_> {
    fn advance(&mut self, down: &mut Flow) -> Result<(usize, Event), WireError> {
        if let Some(renaming) = &mut self.renaming
            && !renaming.rename(down.unseen_mut())
        {
            return Ok((0, Event::More));
        }
        if self.may_go_elsewhere || self.is_second_hand {
            match self.take_refusal(down)? {
                None => (self.may_go_elsewhere, self.is_second_hand) = (false, false),
                Some(None) => return Ok((0, Event::More)),
                Some(Some(outcome)) => return Ok((0, Event::Done(outcome))),
            }
        }
        let advanced = match self.shape {
            Shape::Same(_) => self.advance_same(down),
            Shape::Older(_) => self.advance_older(down),
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.note(down);
        }
        advanced
    }

    fn in_progress(&self) -> bool {
        match &*self.shape {
            Shape::Same(tracker) => tracker.in_progress(),
            Shape::Older(reshaper) => reshaper.in_progress(),
        }
    }

    fn error_sequence(&self) -> Option<u8> {
        match &*self.shape {
            Shape::Same(tracker) => tracker.error_sequence(),
            Shape::Older(reshaper) => reshaper.error_sequence(),
        }
    }

    fn sequence(&self) -> u8 {
        match &*self.shape {
            Shape::Same(tracker) => tracker.sequence(),
            Shape::Older(reshaper) => reshaper.server_sequence(),
        }
    }

    fn renumbers(&self) -> bool {
        match &*self.shape {
            Shape::Same(_) => false,
            Shape::Older(reshaper) => reshaper.client_sequence() != reshaper.server_sequence(),
        }
    }

    fn resume_after_local_infile(&mut self) {
        match &mut *self.shape {
            Shape::Same(tracker) => tracker.resume_after_local_infile(),
            Shape::Older(reshaper) => reshaper.resume_after_local_infile(),
        }
    }
}
