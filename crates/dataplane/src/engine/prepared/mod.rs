//! The statements that a server connection has prepared.
//!
//! A client's statement id is the session's (`session::Statements`); the server's belongs to one server
//! connection. A server's statement is executed for the client's statement that it was prepared for, and for
//! no other, whatever the text: servers resolve names when they prepare, optimize once, and do not do the
//! same at a second execution as at the first after another preparation.
//!
//! A client's statement ends on whatever connection it is prepared, and nobody goes there to say so: it is
//! found out when the connection has to have room.

pub(crate) mod client_statements;
pub(crate) mod execute;
pub(crate) mod known;
pub(crate) mod limit;
pub(crate) mod prepare;
pub(crate) mod prepare_execute;
pub(crate) mod reprepare;

use std::collections::HashMap;
use std::rc::{Rc, Weak};

use foldhash::fast::RandomState;
use mysql_wire::statement::{PrepareOk, encode};
use mysql_wire::{Command, ErrPacket, PacketHeader, write_packet};
use net::buffer;
use serde::{Deserialize, Serialize};
use session::{Prepared, Statements};

/// The statements that one server connection has prepared.
pub(crate) struct OnServer {
    /// The statements, by the address of the owner, which is nobody else's as long as there is a reference to
    /// it, and be it a weak one.
    statements: HashMap<*const (), ServerStatement, RandomState>,
    max: usize,
    /// A statement was added whose text is long: such are not kept beside others once they are of no use.
    has_long: bool,
    /// Number of statements at which those without an owner are looked for.
    looked_at: usize,
    /// The server's ids of statements that have a cursor or long data.
    held: Vec<u32>,
    /// The server's ids of statements that are to be closed with the next command that is about one.
    to_close: Vec<u32>,
    /// Counts uses, to find the statement used longest ago.
    uses: u64,
    /// Greater than every id that the server has given on this connection: the one that it gives next, as a
    /// rule. 0 where it has given none yet: MariaDB's threads go on where they were with the client before.
    next_id: u32,
    /// How often the server has given another id.
    wrong_guesses: u8,
}

/// Ids are guessed up to this one only: somewhere they begin anew.
const GUESSED_MAX: u32 = i32::MAX as u32;

/// Wrong guesses in a row after which none are made: a server that gives other ids goes on with that.
const WRONG_GUESSES_MAX: u8 = 3;

/// Statements without an owner that a connection may have beside as many as have one.
const UNOWNED: usize = 8;

/// The part of the statements used longest ago that is given up at once where there is no room: looking for
/// one costs as much as looking for all of them.
const GIVEN_UP: usize = 8;

/// A statement prepared on a server connection.
#[derive(Debug)]
pub(crate) struct ServerStatement {
    pub(crate) id: u32,
    /// The parameter types that the server has of the last execution.
    pub(crate) types: Option<Rc<[u8]>>,
    /// The text as it was prepared: with figures of the session's last statement it is of use until the next
    /// one only.
    pub(crate) text: Rc<[u8]>,
    owner: Weak<()>,
    used: u64,
}

impl ServerStatement {
    fn is_owned(&self) -> bool {
        self.owner.strong_count() > 0
    }
}

impl OnServer {
    pub(crate) fn new(max: u32) -> Self {
        Self {
            statements: HashMap::default(),
            max: max as usize,
            has_long: false,
            looked_at: UNOWNED.min(max as usize),
            held: Vec::new(),
            to_close: Vec::new(),
            uses: 0,
            next_id: 0,
            wrong_guesses: 0,
        }
    }

    /// The statement that was prepared here for the client's, with the text that is to be executed.
    pub(crate) fn find(&mut self, prepared: &Prepared) -> Option<&mut ServerStatement> {
        self.uses += 1;
        let uses = self.uses;
        let found = self.of(&prepared.owner);
        let found = found.filter(|found| Rc::ptr_eq(&found.text, &prepared.text))?;
        found.used = uses;
        Some(found)
    }

    /// The statement that [`find`](Self::find) finds, without a use of it.
    pub(crate) fn known(&self, prepared: &Prepared) -> Option<&ServerStatement> {
        let known = self.statements.get(&Rc::as_ptr(&prepared.owner));
        known.filter(|known| Rc::ptr_eq(&known.text, &prepared.text))
    }

    /// The statement that was prepared here for the client's, with whatever text.
    pub(crate) fn of(&mut self, owner: &Rc<()>) -> Option<&mut ServerStatement> {
        self.statements.get_mut(&Rc::as_ptr(owner))
    }

    /// Notes whether the client's statement has a cursor or long data here.
    pub(crate) fn set_held(&mut self, owner: &Rc<()>, is_held: bool) {
        let Some(id) = self.of(owner).map(|statement| statement.id) else {
            return;
        };
        self.held.retain(|held| *held != id);
        if is_held {
            self.held.push(id);
        }
    }

    /// The statement that has a cursor or long data of the client's.
    pub(crate) fn held(&self, owner: &Rc<()>) -> Option<&ServerStatement> {
        let statement = self.statements.get(&Rc::as_ptr(owner));
        statement.filter(|statement| self.held.contains(&statement.id))
    }

    /// Adds a statement that was just prepared. Statements that are of no use any more are closed for it, and
    /// where the limit is reached some of those not used for the longest time.
    pub(crate) fn add(&mut self, id: u32, text: Rc<[u8]>, owner: &Rc<()>) {
        self.uses += 1;
        self.note_given(id);
        self.close(owner);
        self.has_long |= text.len() > buffer::CAPACITY;
        if self.statements.len() >= self.looked_at {
            self.give_up(|statement| !statement.is_owned());
            if self.statements.len() >= self.max {
                self.give_up_oldest(self.statements.len().div_ceil(GIVEN_UP));
            }
            self.looked_at = (2 * self.statements.len() + UNOWNED).min(self.max);
        }
        let statement = ServerStatement {
            id,
            types: None,
            text,
            owner: Rc::downgrade(owner),
            used: self.uses,
        };
        self.statements.insert(Rc::as_ptr(owner), statement);
    }

    /// The id that the server most likely gives to the statement prepared next. No statement of the
    /// connection has it. `None` where it is not to be guessed.
    pub(crate) fn next_id(&self) -> Option<u32> {
        let may_guess = (1..GUESSED_MAX).contains(&self.next_id) && self.wrong_guesses < WRONG_GUESSES_MAX;
        may_guess.then_some(self.next_id)
    }

    /// Notes that the server has given this id to a statement. To be told of every one.
    fn note_given(&mut self, id: u32) {
        self.next_id = self.next_id.max(id.saturating_add(1));
    }

    /// Notes a preparation that has come to nothing: the statement of this id is of no use, or the server has
    /// refused to prepare one, which takes an id all the same.
    pub(crate) fn note_unused(&mut self, id: Option<u32>) {
        match id {
            Some(id) => {
                self.note_given(id);
                self.to_close.push(id);
            }
            None => self.next_id = self.next_id.saturating_add(u32::from(self.next_id > 0)),
        }
    }

    /// Notes whether the id was the one that was guessed.
    pub(crate) fn note_guess(&mut self, was_right: bool) {
        self.wrong_guesses = match was_right {
            true => 0,
            false => self.wrong_guesses.saturating_add(1),
        };
    }

    /// How many statements the server has, with those that are to be closed.
    pub(crate) fn len(&self) -> usize {
        self.statements.len() + self.to_close.len()
    }

    /// Gives up the half of the statements that hold nothing, those of no use first, then those used longest
    /// ago. Returns how many statements are to be closed now.
    pub(crate) fn give_up_half(&mut self) -> usize {
        let free = self.statements.len() - self.held.len().min(self.statements.len());
        self.give_up_oldest(free.div_ceil(2));
        self.to_close.len()
    }

    fn give_up_oldest(&mut self, count: usize) {
        let statements = self.statements.values();
        let free = statements.filter(|statement| !self.held.contains(&statement.id));
        let mut free: Vec<_> = free
            .map(|statement| (statement.is_owned(), statement.used))
            .collect();
        free.sort_unstable();
        if let Some(last) = free.get(count.min(free.len()).wrapping_sub(1)).copied() {
            self.give_up(|statement| (statement.is_owned(), statement.used) <= last);
        }
    }

    /// Forgets superfluous statements that hold nothing, which are to be closed.
    fn give_up(&mut self, is_superfluous: impl Fn(&ServerStatement) -> bool) {
        let held = &self.held;
        let given_up = self
            .statements
            .extract_if(|_, statement| !held.contains(&statement.id) && is_superfluous(statement));
        self.to_close.extend(given_up.map(|(_, statement)| statement.id));
    }

    /// Notes that no session holds anything on the connection any more. Long texts of no use are not kept.
    pub(crate) fn let_go(&mut self) {
        self.held.clear();
        if self.has_long {
            let is_long = |statement: &ServerStatement| statement.text.len() > buffer::CAPACITY;
            self.give_up(|statement| is_long(statement) && !statement.is_owned());
            self.has_long = self.statements.values().any(is_long);
        }
    }

    /// Forgets the client's statement, and gives the server's id of it.
    pub(crate) fn remove(&mut self, owner: &Rc<()>) -> Option<u32> {
        let id = self.statements.remove(&Rc::as_ptr(owner))?.id;
        self.held.retain(|held| *held != id);
        Some(id)
    }

    /// Forgets the client's statement, which is to be closed.
    pub(crate) fn close(&mut self, owner: &Rc<()>) {
        let id = self.remove(owner);
        self.to_close.extend(id);
    }

    /// Commands that close what is to be closed.
    pub(crate) fn take_closing(&mut self) -> Vec<Vec<u8>> {
        let close = |id| encode(Command::STMT_CLOSE, id).to_vec();
        self.to_close.drain(..).map(close).collect()
    }

    /// These commands as packets, which have no answer.
    pub(crate) fn take_closing_packets(&mut self) -> Vec<u8> {
        let mut packets = Vec::new();
        for id in self.to_close.drain(..) {
            write_packet(&mut packets, &mut 0, &encode(Command::STMT_CLOSE, id));
        }
        packets
    }

    /// Forgets all statements: after COM_RESET_CONNECTION the server has none any more.
    pub(crate) fn clear(&mut self) {
        self.statements.clear();
        self.held.clear();
        self.to_close.clear();
    }

    /// Packs the statements for another worker, whose sessions have prepared none of them: all are to be
    /// closed.
    pub(crate) fn pack(self) -> StatementsLuggage {
        let ids = self.statements.into_values().map(|statement| statement.id);
        StatementsLuggage {
            to_close: self.to_close.into_iter().chain(ids).collect(),
            next_id: self.next_id,
            wrong_guesses: self.wrong_guesses,
        }
    }

    /// Takes in what another worker has packed.
    pub(crate) fn unpack(&mut self, luggage: StatementsLuggage) {
        self.to_close = luggage.to_close;
        (self.next_id, self.wrong_guesses) = (luggage.next_id, luggage.wrong_guesses);
    }
}

/// [`OnServer`] on its way to another worker.
pub(crate) struct StatementsLuggage {
    to_close: Vec<u32>,
    next_id: u32,
    wrong_guesses: u8,
}

/// The statements that a connection has prepared for the session that holds it, on their way to another
/// process with both.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackedStatements {
    statements: Vec<PackedStatement>,
    next_id: u32,
    wrong_guesses: u8,
}

#[derive(Serialize, Deserialize)]
struct PackedStatement {
    /// The client's id.
    of: u32,
    id: u32,
    types: Option<Rc<[u8]>>,
    is_held: bool,
}

impl OnServer {
    /// The statements that are prepared for these of the client, and the ids of those to be closed, among
    /// which are all that are of no use to the client. `None` where one of the latter has a cursor or long
    /// data.
    pub(crate) fn packed(&self, of: &Statements) -> Option<(PackedStatements, Vec<u32>)> {
        let mut superfluous: Vec<u32> = self.statements.values().map(|statement| statement.id).collect();
        let mut statements = Vec::new();
        for (client_id, prepared) in of.iter() {
            let Some(found) = self.known(prepared) else {
                continue;
            };
            superfluous.retain(|id| *id != found.id);
            statements.push(PackedStatement {
                of: client_id,
                id: found.id,
                types: found.types.clone(),
                is_held: self.held.contains(&found.id),
            });
        }
        let packed = PackedStatements {
            statements,
            next_id: self.next_id,
            wrong_guesses: self.wrong_guesses,
        };
        let holds_none = superfluous.iter().all(|id| !self.held.contains(id));
        holds_none.then(|| (packed, [self.to_close.as_slice(), &superfluous].concat()))
    }

    /// Takes these in, in the other process, on a connection of which nothing else is known yet. Statements
    /// for which there is no room here are closed.
    pub(crate) fn unpacked(&mut self, (packed, to_close): (PackedStatements, Vec<u32>), of: &Statements) {
        self.to_close = to_close;
        for PackedStatement {
            of: client_id,
            id,
            types,
            is_held,
        } in packed.statements
        {
            let Some(prepared) = of.get(client_id) else {
                continue;
            };
            self.add(id, Rc::clone(&prepared.text), &prepared.owner);
            let types = match types == prepared.types {
                true => prepared.types.clone(),
                false => types,
            };
            if let Some(statement) = self.of(&prepared.owner) {
                statement.types = types;
            }
            self.set_held(&prepared.owner, is_held);
        }
        (self.next_id, self.wrong_guesses) = (packed.next_id, packed.wrong_guesses);
    }
}

/// Gives the answer to COM_STMT_PREPARE the client's id in the place of the server's.
#[derive(Debug)]
pub(crate) struct Renaming {
    to: u32,
    state: Renamed,
}

#[derive(Debug, Clone, Copy)]
enum Renamed {
    NotYet,
    /// The server's id, and the count of parameters.
    From(u32, u16),
    /// The answer is an error.
    Refused,
}

/// The head of the answer: `00`, id, columns, parameters, filler, warnings.
/// <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_stmt_prepare.html>.
const PREPARE_OK_LEN: usize = PrepareOk::LEN;

impl Renaming {
    pub(crate) fn new(to: u32) -> Self {
        Self {
            to,
            state: Renamed::NotYet,
        }
    }

    /// Changes the head of the answer at the start of `bytes`, once. False while it is not there.
    pub(crate) fn rename(&mut self, bytes: &mut [u8]) -> bool {
        if !matches!(self.state, Renamed::NotYet) {
            return true;
        }
        let Some(header) = PacketHeader::parse(bytes) else {
            return false;
        };
        let payload = &mut bytes[PacketHeader::LEN..];
        // MySQL says a plain OK where it has prepared nothing: `SET GLOBAL` without the right to it.
        let is_plain_ok = header.payload_len < PREPARE_OK_LEN;
        if payload.first() == Some(&ErrPacket::HEADER) || is_plain_ok {
            self.state = Renamed::Refused;
            return true;
        }
        let Some(head) = payload.first_chunk_mut::<PREPARE_OK_LEN>() else {
            return false;
        };
        let [_, a, b, c, d, _, _, p0, p1, ..] = *head;
        self.state = Renamed::From(u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([p0, p1]));
        head[1..5].copy_from_slice(&self.to.to_le_bytes());
        true
    }

    /// Begins anew, with another answer in the place of one that nobody has seen.
    pub(crate) fn begin_anew(&mut self) {
        self.state = Renamed::NotYet;
    }

    /// The server's id and the count of parameters, unless the server refused.
    pub(crate) fn prepared(&self) -> Option<(u32, u16)> {
        match self.state {
            Renamed::From(id, parameters) => Some((id, parameters)),
            Renamed::NotYet | Renamed::Refused => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Prepared {
        let facts = sql_class::facts(text.as_bytes(), sql_class::Syntax::default());
        Prepared::new(text.as_bytes().into(), Rc::new(facts), 0, 0)
    }

    /// Adds a statement. Returns the ids of those that are closed for it.
    fn add(on_server: &mut OnServer, id: u32, prepared: &Prepared) -> Vec<u32> {
        on_server.add(id, Rc::clone(&prepared.text), &prepared.owner);
        take_closed(on_server)
    }

    fn take_closed(on_server: &mut OnServer) -> Vec<u32> {
        let mut closed = std::mem::take(&mut on_server.to_close);
        closed.sort_unstable();
        closed
    }

    #[test]
    fn the_answer_to_a_prepare_gets_the_clients_id() {
        let mut answer = b"\x0c\0\0\x01\0\x07\0\0\0\x02\0\x03\0\0\0\0".to_vec();
        let mut renaming = Renaming::new(0x0102_0304);
        for end in 0..answer.len() {
            assert!(!renaming.rename(&mut answer[..end].to_vec()), "{end} bytes");
        }
        assert!(renaming.rename(&mut answer));
        assert_eq!(&answer[5..9], b"\x04\x03\x02\x01");
        assert_eq!(renaming.prepared(), Some((7, 3)));
        let mut refused = Renaming::new(1);
        assert!(refused.rename(&mut b"\x09\0\0\x01\xff\x28\x04#42000".to_vec()));
        assert_eq!(refused.prepared(), None);
        let mut plain_ok = b"\x07\0\0\x01\0\0\0\x02\0\0\0".to_vec();
        let mut nothing = Renaming::new(1);
        assert!(nothing.rename(&mut plain_ok));
        assert_eq!(
            (&plain_ok[4..], nothing.prepared()),
            (&b"\0\0\0\x02\0\0\0"[..], None)
        );
    }

    #[test]
    fn the_next_id_is_one_that_no_statement_has() {
        let mut on_server = OnServer::new(2);
        on_server.note_unused(None);
        assert_eq!(on_server.next_id(), None, "the first one is not known");
        let prepared = of("a");
        add(&mut on_server, 7, &prepared);
        assert_eq!(on_server.next_id(), Some(8));
        on_server.note_given(3);
        assert_eq!(on_server.next_id(), Some(8), "never one from before");
        on_server.note_unused(None);
        assert_eq!(on_server.remove(&prepared.owner), Some(7));
        on_server.clear();
        assert_eq!(on_server.next_id(), Some(9));
        for was_right in [false, false, true, false, false] {
            on_server.note_guess(was_right);
        }
        assert_eq!(on_server.next_id(), Some(9));
        on_server.note_guess(false);
        assert_eq!(on_server.next_id(), None, "a server that gives others");
        let mut at_its_end = OnServer::new(2);
        at_its_end.note_given(u32::MAX);
        at_its_end.note_unused(None);
        assert_eq!(at_its_end.next_id(), None, "where ids may begin anew");
    }

    #[test]
    fn a_statement_is_found_for_nobody_but_its_owner() {
        let mut on_server = OnServer::new(9);
        let (mut own, other) = (of("a"), of("a"));
        add(&mut on_server, 1, &own);
        assert!(on_server.find(&other).is_none());
        assert_eq!(on_server.find(&own).unwrap().id, 1);
        own.text = Rc::from(&b"b"[..]);
        assert!(on_server.find(&own).is_none(), "with other figures");
        assert_eq!(add(&mut on_server, 2, &own), [1]);
        assert_eq!(on_server.find(&own).unwrap().id, 2);
    }

    #[test]
    fn half_of_the_statements_that_hold_nothing_are_given_up() {
        let mut on_server = OnServer::new(9);
        let statements = ["a", "b", "c", "d"].map(of);
        for (id, prepared) in (1..).zip(&statements) {
            add(&mut on_server, id, prepared);
        }
        on_server.find(&statements[0]).unwrap();
        on_server.set_held(&statements[1].owner, true);
        assert_eq!(on_server.give_up_half(), 2);
        assert_eq!(take_closed(&mut on_server), [3, 4]);
        assert_eq!(on_server.give_up_half(), 1);
        assert_eq!(take_closed(&mut on_server), [1]);
        assert_eq!(on_server.give_up_half(), 0);
        assert_eq!(on_server.len(), 1);
        assert!(on_server.held(&statements[1].owner).is_some());
    }

    #[test]
    fn the_statement_used_longest_ago_makes_room_unless_it_holds_something() {
        let mut on_server = OnServer::new(2);
        let [a, b, c] = ["a", "b", "c"].map(of);
        assert_eq!(add(&mut on_server, 1, &a), [0; 0]);
        assert_eq!(add(&mut on_server, 2, &b), [0; 0]);
        on_server.set_held(&a.owner, true);
        on_server.find(&b).unwrap();
        assert_eq!(add(&mut on_server, 3, &c), [2]);
        assert!(on_server.find(&b).is_none());
        assert!(on_server.find(&a).is_some());
        on_server.let_go();
        assert_eq!(take_closed(&mut on_server), [0; 0]);
        assert_eq!(add(&mut on_server, 4, &b), [3], "used longest ago");
        assert!(on_server.find(&a).is_some());
        assert_eq!(on_server.len(), 2);
    }

    #[test]
    fn long_texts_of_no_use_are_not_kept_for_the_next_session() {
        let mut on_server = OnServer::new(9);
        let (short, long) = (of("a"), of(&"a".repeat(buffer::CAPACITY + 1)));
        add(&mut on_server, 1, &short);
        add(&mut on_server, 2, &long);
        on_server.let_go();
        assert_eq!(take_closed(&mut on_server), [0; 0]);
        let text = Rc::downgrade(&long.text);
        drop((short, long));
        on_server.let_go();
        assert_eq!(take_closed(&mut on_server), [2]);
        assert_eq!((on_server.len(), text.strong_count()), (1, 0));
    }

    #[test]
    fn what_is_to_be_closed_is_closed_on_whatever_worker() {
        let mut on_server = OnServer::new(9);
        let (closed, open) = (of("a"), of("b"));
        add(&mut on_server, 1, &closed);
        add(&mut on_server, 2, &open);
        on_server.close(&closed.owner);
        on_server.note_unused(Some(3));
        let mut there = OnServer::new(9);
        there.unpack(on_server.pack());
        assert_eq!((there.next_id(), there.len()), (Some(4), 3));
        let close = |id: u8| [5, 0, 0, 0, Command::STMT_CLOSE.0, id, 0, 0, 0];
        assert_eq!(
            there.take_closing_packets(),
            [close(1), close(3), close(2)].concat()
        );
        assert_eq!(there.len(), 0);
    }

    #[test]
    fn those_without_an_owner_are_never_more_than_the_others() {
        let mut on_server = OnServer::new(1000);
        let lasting: Vec<_> = (0..20).map(|_| of("a")).collect();
        let mut open = 0;
        for (id, prepared) in (1..).zip(&lasting) {
            open += 1;
            open -= add(&mut on_server, id, prepared).len();
        }
        for id in 100..1000 {
            open += 1;
            open -= add(&mut on_server, id, &of("b")).len();
            assert!(open <= 2 * lasting.len() + UNOWNED + 1, "{open}");
        }
        assert!(lasting.iter().all(|prepared| on_server.find(prepared).is_some()));
    }
}
