//! What client and server say on one connection, from the greeting on.

use std::collections::VecDeque;

use mysql_wire::statement::asks_for_cursor;
use mysql_wire::{
    Capabilities, ChangeUser, Command, Event, Greeting, Login, Outcome, PacketHeader, ResponseTracker,
    SslRequest,
};

use super::{ImportError, Importer, Said, Who};
use crate::capture::{ANSWER_MAX, COMMAND_MAX};

/// Answers that wait for their command: more than that is no conversation.
const UNREAD_MAX: usize = 4 << 20;

/// Bytes of a client that wait for the rest of their packet or for an answer. A packet has up to 16 MiB.
const PACKET_MAX: usize = 17 << 20;
/// Bytes of one side that wait for the other one until the login is done: many connections of which only one
/// side was captured would have all memory.
const LOGIN_MAX: usize = 128 << 10;
/// What a command that waits costs beside its bytes.
const ASKED_COST: usize = 64;

/// Bytes of one side that were not read yet. What is read is dropped once it is more than what is left, so
/// that small packets do not move all that comes behind them.
#[derive(Default)]
struct Unread {
    bytes: Vec<u8>,
    read: usize,
}

impl Unread {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    fn consume(&mut self, len: usize) {
        self.read += len;
        if self.read >= self.rest().len() {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
    }

    /// The next packet, where all of it is there.
    fn take_packet(&mut self) -> Option<(PacketHeader, Vec<u8>)> {
        let rest = self.rest();
        let header = PacketHeader::parse(rest)?;
        let end = PacketHeader::LEN + header.payload_len;
        let payload = rest.get(PacketHeader::LEN..end)?.to_vec();
        self.consume(end);
        Some((header, payload))
    }

    /// Drops a packet that belongs to the login: commands begin anew with 0.
    fn take_login_packet(&mut self) -> bool {
        let is_of_login = PacketHeader::parse(self.rest()).is_some_and(|header| header.sequence != 0);
        is_of_login && self.take_packet().is_some()
    }
}

pub(super) struct Talk {
    /// The number of the connection here in the upper half, that of the server in the lower one.
    thread: u64,
    state: State,
    server_capabilities: Capabilities,
    who: Who,
    from_client: Unread,
    from_server: Unread,
    tracker: ResponseTracker,
    /// What the server has not answered yet.
    waiting: VecDeque<Asked>,
    waiting_len: usize,
    asked: Option<Asked>,
    answer: Vec<u8>,
    is_answer_cut: bool,
    /// The client sends a file.
    sends_file: bool,
    /// The command's packet that came last goes on in the next one.
    is_continued: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Greeting,
    Login,
    Authentication,
    Commands,
    /// Nothing of it is taken over any more.
    GivenUp,
}

/// A command.
struct Asked {
    at_us: u64,
    payload: Vec<u8>,
    is_cut: bool,
}

impl Talk {
    pub(super) fn new(number: u32) -> Self {
        Self {
            thread: u64::from(number) << 32,
            state: State::Greeting,
            server_capabilities: Capabilities::default(),
            who: Who::default(),
            from_client: Unread::default(),
            from_server: Unread::default(),
            tracker: ResponseTracker::new(Capabilities::default()),
            waiting: VecDeque::new(),
            waiting_len: 0,
            asked: None,
            answer: Vec::new(),
            is_answer_cut: false,
            sends_file: false,
            is_continued: false,
        }
    }

    /// Takes nothing more of it over, and says why if it was one of MySQL.
    pub(super) fn give_up(&mut self, importer: &mut Importer, why: &str) {
        if self.state != State::GivenUp && self.state != State::Greeting {
            importer.leave_out(why);
        }
        self.state = State::GivenUp;
        (self.from_client, self.from_server, self.answer) = Default::default();
        (self.waiting, self.asked) = Default::default();
    }

    pub(super) fn thread(&self) -> u64 {
        self.thread
    }

    /// The next bytes of one side.
    pub(super) fn bytes(
        &mut self,
        importer: &mut Importer,
        at_us: u64,
        is_server: bool,
        bytes: &[u8],
    ) -> Result<(), ImportError> {
        if self.state == State::GivenUp {
            return Ok(());
        }
        match is_server {
            true => self.from_server.add(bytes),
            false => self.from_client.add(bytes),
        }
        let (client_max, server_max) = match self.state {
            State::Commands => (PACKET_MAX, UNREAD_MAX),
            _ => (LOGIN_MAX, LOGIN_MAX),
        };
        let is_one_sided = self.from_client.rest().len() > client_max || self.waiting_len > PACKET_MAX;
        if self.from_server.rest().len() > server_max || is_one_sided {
            self.give_up(importer, "connections of which packets are missing");
        }
        while self.state != State::GivenUp && self.state != State::Commands {
            let is_next_server = self.state != State::Login;
            let from = if is_next_server {
                &mut self.from_server
            } else {
                &mut self.from_client
            };
            let Some((_, payload)) = from.take_packet() else {
                return Ok(());
            };
            match self.state {
                State::Greeting => self.greeting(importer, &payload),
                State::Login => self.login(importer, &payload),
                _ => self.verdict(importer, at_us, &payload),
            }
        }
        if self.state == State::Commands {
            self.client_packets(at_us);
            self.answers(importer, at_us)?;
        }
        Ok(())
    }

    fn greeting(&mut self, importer: &mut Importer, payload: &[u8]) {
        match Greeting::decode(payload) {
            Ok(greeting) => {
                self.thread |= u64::from(greeting.connection_id);
                self.server_capabilities = greeting.capabilities;
                let version = String::from_utf8_lossy(&greeting.server_version);
                importer.version.get_or_insert_with(|| version.into_owned());
                self.state = State::Login;
            }
            Err(_) => self.give_up(importer, ""),
        }
    }

    fn login(&mut self, importer: &mut Importer, payload: &[u8]) {
        if SslRequest::is_ssl_request(payload) {
            return self.give_up(importer, "connections with TLS");
        }
        let Ok(login) = Login::decode(payload) else {
            return self.give_up(importer, "connections with a login that makes no sense");
        };
        let capabilities = login.capabilities & self.server_capabilities;
        if capabilities.intersects(Capabilities::COMPRESS | Capabilities::ZSTD_COMPRESSION) {
            return self.give_up(importer, "connections with compression");
        }
        self.who = Who {
            user: String::from_utf8_lossy(&login.user).into_owned(),
            schema: Some(login.database.unwrap_or_default()),
            capabilities,
            collation: login.charset,
            was_open: false,
        };
        self.tracker = ResponseTracker::new(capabilities);
        self.state = State::Authentication;
    }

    /// What the server says to the login, or on the way there.
    fn verdict(&mut self, importer: &mut Importer, at_us: u64, payload: &[u8]) {
        match payload.first() {
            Some(0) => {
                importer.begins(self.thread, at_us, self.who.clone());
                // What the client had to prove itself with.
                while self.from_client.take_login_packet() {}
                self.state = State::Commands;
            }
            Some(0xff) => self.give_up(importer, "logins that were refused"),
            _ => {}
        }
    }

    fn client_packets(&mut self, at_us: u64) {
        while let Some((header, payload)) = self.from_client.take_packet() {
            let goes_on = std::mem::replace(&mut self.is_continued, header.is_continued());
            if goes_on {
                if let Some(last) = self.waiting.back_mut().or(self.asked.as_mut()) {
                    last.is_cut = true;
                }
            } else if self.sends_file {
                // Numbers of packets begin anew within a file, which ends with an empty one.
                if payload.is_empty() {
                    self.sends_file = false;
                    self.tracker.resume_after_local_infile();
                }
            } else if header.sequence == 0 && !payload.is_empty() {
                let mut payload = payload;
                let is_cut = payload.len() > COMMAND_MAX || header.is_continued();
                payload.truncate(COMMAND_MAX);
                self.waiting_len += payload.len() + ASKED_COST;
                self.waiting.push_back(Asked {
                    at_us,
                    payload,
                    is_cut,
                });
            }
        }
    }

    fn answers(&mut self, importer: &mut Importer, at_us: u64) -> Result<(), ImportError> {
        loop {
            if self.asked.is_none() {
                let Some(asked) = self.waiting.pop_front() else {
                    return Ok(());
                };
                self.waiting_len -= asked.payload.len() + ASKED_COST;
                let command = Command(asked.payload[0]);
                self.tracker.begin(command);
                self.tracker.allow_infile();
                if asks_for_cursor(&asked.payload) {
                    self.tracker.allow_cursor();
                }
                self.asked = Some(asked);
                if !self.tracker.in_progress() {
                    self.done(importer, at_us, &Outcome::default())?;
                    continue;
                }
            }
            let Ok(progress) = self.tracker.advance(self.from_server.rest()) else {
                self.give_up(importer, "connections with an answer that makes no sense");
                return Ok(());
            };
            let room = ANSWER_MAX - self.answer.len();
            self.is_answer_cut |= progress.consumed > room;
            self.answer
                .extend_from_slice(&self.from_server.rest()[..progress.consumed.min(room)]);
            self.from_server.consume(progress.consumed);
            match progress.event {
                Event::Done(outcome) => self.done(importer, at_us, &outcome)?,
                Event::LocalInfile => {
                    self.sends_file = true;
                    return Ok(());
                }
                Event::More | Event::State => return Ok(()),
                Event::Stream => {
                    self.give_up(importer, "connections of replicas");
                    return Ok(());
                }
            }
        }
    }

    /// A command has its answer.
    fn done(&mut self, importer: &mut Importer, at_us: u64, outcome: &Outcome) -> Result<(), ImportError> {
        let answer = std::mem::take(&mut self.answer);
        let is_answer_cut = std::mem::take(&mut self.is_answer_cut);
        let Some(asked) = self.asked.take() else {
            return Ok(());
        };
        let command = asked.payload[0];
        let error = outcome.error.unwrap_or(0);
        if Command(command) == Command::CHANGE_USER
            && error == 0
            && let Ok(change) = ChangeUser::decode(&asked.payload, self.who.capabilities)
        {
            importer.changes_user(self.thread, at_us, &change);
        }
        importer.say(&Said {
            thread: self.thread,
            start_us: asked.at_us,
            took_us: Some(at_us.saturating_sub(asked.at_us)),
            command,
            body: &asked.payload[1..],
            is_cut: asked.is_cut,
            answer: if is_answer_cut { &[] } else { &answer },
            error: Some(error),
            rows: Some(outcome.rows),
            affected_rows: Some(outcome.affected_rows),
            warnings: Some(outcome.warnings),
            insert_id: outcome.last_insert_id,
            is_lost: false,
        })
    }

    /// The connection is over. What has no answer by now gets none.
    pub(super) fn end(mut self, importer: &mut Importer, at_us: u64) -> Result<(), ImportError> {
        if self.state == State::GivenUp {
            return Ok(());
        }
        let [client, server] = [&self.from_client, &self.from_server].map(|unread| !unread.rest().is_empty());
        if matches!(
            (self.state, client, server),
            (State::Greeting, true, false) | (State::Login, false, true)
        ) {
            importer.leave_out("connections of which one side alone was captured");
        }
        let asked = self.asked.take().into_iter().chain(self.waiting.drain(..));
        for asked in asked {
            importer.say(&Said {
                thread: self.thread,
                start_us: asked.at_us,
                took_us: Some(at_us.saturating_sub(asked.at_us)),
                command: asked.payload[0],
                body: &asked.payload[1..],
                is_cut: asked.is_cut,
                is_lost: true,
                ..Said::default()
            })?;
        }
        importer.sessions.remove(&self.thread);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_many_packets_has_no_commands_in_it() {
        let mut talk = Talk::new(1);
        talk.state = State::Commands;
        talk.sends_file = true;
        let mut sequence = 2_u8;
        for payload in [&b"a row"[..]; 600].into_iter().chain([&b""[..]]) {
            let header = [payload.len() as u8, 0, 0, sequence];
            talk.from_client.add(&[&header, payload].concat());
            sequence = sequence.wrapping_add(1);
        }
        let query = b"\x03SELECT 1";
        talk.from_client.add(&[query.len() as u8, 0, 0, 0]);
        talk.from_client.add(query);
        talk.client_packets(7);
        let commands: Vec<_> = talk
            .waiting
            .iter()
            .map(|asked| asked.payload.as_slice())
            .collect();
        assert_eq!(commands, [query]);
        assert!(!talk.sends_file && talk.from_client.rest().is_empty());
    }

    /// Of a megabyte of packets with one byte each none moves those behind it.
    #[test]
    fn small_packets_move_little() {
        let mut unread = Unread::default();
        let packets = [1, 0, 0, 0, 7].repeat(200_000);
        unread.add(&packets);
        let (mut taken, mut moves) = (0, 0);
        while let Some((_, payload)) = unread.take_packet() {
            assert_eq!(payload, [7]);
            taken += 1;
            moves += usize::from(unread.read == 0);
            assert_eq!(unread.rest().len(), packets.len() - taken * 5);
        }
        assert!(taken == 200_000 && moves < 30, "{taken} {moves}");
    }

    #[test]
    fn a_side_alone_is_told() {
        let place = tempfile::tempdir().unwrap();
        let to = place.path().join("to");
        let mut importer = Importer::new(super::super::From::Pcap, &to, None, "test");
        let mut ended = |state, sides: &[bool]| {
            let mut talk = Talk::new(1);
            talk.state = state;
            for is_server in sides {
                talk.bytes(&mut importer, 0, *is_server, &[9, 0, 0]).unwrap();
            }
            talk.end(&mut importer, 0).unwrap();
            importer.imported.left_out.values().sum::<u64>()
        };
        assert_eq!(ended(State::Greeting, &[]), 0);
        assert_eq!(ended(State::Greeting, &[false, true]), 0);
        assert_eq!(ended(State::Login, &[false]), 0);
        assert_eq!(ended(State::Greeting, &[false]), 1);
        assert_eq!(ended(State::Login, &[true]), 2);
    }

    #[test]
    fn a_side_alone_has_little_memory() {
        let place = tempfile::tempdir().unwrap();
        let to = place.path().join("to");
        let mut importer = Importer::new(super::super::From::Pcap, &to, None, "test");
        for (state, is_server) in [
            (State::Greeting, false),
            (State::Login, true),
            (State::Authentication, false),
        ] {
            let mut talk = Talk::new(1);
            talk.state = state;
            let most = LOGIN_MAX / 1024;
            for number in 0..=most {
                assert!(talk.state == state, "{number}");
                talk.bytes(&mut importer, 0, is_server, &[0; 1024]).unwrap();
            }
            assert!(talk.state == State::GivenUp);
            assert!(talk.from_client.bytes.is_empty() && talk.from_server.bytes.is_empty());
        }
        let why = "connections of which packets are missing";
        assert_eq!(importer.imported.left_out.get(why), Some(&2));
    }

    #[test]
    fn commands_without_bytes_that_wait_have_a_limit() {
        let place = tempfile::tempdir().unwrap();
        let to = place.path().join("to");
        let mut importer = Importer::new(super::super::From::Pcap, &to, None, "test");
        let mut talk = Talk::new(1);
        talk.state = State::Commands;
        let pings = [1, 0, 0, 0, 14].repeat(1000);
        for _ in 0..1000 {
            talk.bytes(&mut importer, 0, false, &pings).unwrap();
        }
        assert!(talk.state == State::GivenUp && talk.waiting.is_empty());
        let why = "connections of which packets are missing";
        assert_eq!(importer.imported.left_out.get(why), Some(&1));
    }
}
