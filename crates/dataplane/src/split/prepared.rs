//! Prepared statements of a server connection, which outlive the session that prepared them.
//!
//! A client's statement id is the session's (`session::Statements`); the server's belongs to one server connection. What
//! joins them is the text, and the state it was prepared under: names without a schema, quotes and literals
//! mean what they meant then, whatever the session has set since.

use std::rc::Rc;

use mysql_wire::{Command, ErrPacket, PacketHeader, write_packet};
use session::Carried;

/// What one server connection has prepared.
pub(crate) struct OnServer {
    statements: Vec<ServerStatement>,
    max: usize,
    /// Counts uses, to find the statement used longest ago.
    uses: u64,
    /// Greater than every id that the server has given on this connection: the one that it gives next, as a rule. 0 where it has given
    /// none yet: MariaDB's threads go on where they were with the client before.
    next_id: u32,
    /// How often it was another one.
    wrong_guesses: u8,
}

/// Ids are guessed up to this one only: somewhere they begin anew.
const GUESSED_MAX: u32 = i32::MAX as u32;

/// Who gives other ids than are guessed goes on with that.
const WRONG_GUESSES_MAX: u8 = 3;

/// A statement prepared on a server connection.
#[derive(Debug)]
pub(crate) struct ServerStatement {
    pub(crate) id: u32,
    /// The parameter types that the server has of the last execution.
    pub(crate) types: Option<Rc<[u8]>>,
    /// The client's id of a statement that has a cursor or long data here: the same text under another id must not
    /// disturb it.
    pub(crate) held_by: Option<u32>,
    text: Rc<[u8]>,
    context: Rc<Carried>,
    used: u64,
}

impl OnServer {
    pub(crate) fn new(max: u32) -> Self {
        Self {
            statements: Vec::new(),
            max: max as usize,
            uses: 0,
            next_id: 0,
            wrong_guesses: 0,
        }
    }

    /// The statement with this text, prepared under this state, for the client's statement of this id.
    pub(crate) fn find(
        &mut self,
        text: &Rc<[u8]>,
        context: &Rc<Carried>,
        client_id: u32,
    ) -> Option<&mut ServerStatement> {
        self.uses += 1;
        let found = self.statements.iter_mut().find(|statement| {
            (Rc::ptr_eq(&statement.text, text) || statement.text == *text)
                && (Rc::ptr_eq(&statement.context, context) || statement.context.means_the_same(context))
                && statement.held_by.is_none_or(|holder| holder == client_id)
        })?;
        found.used = self.uses;
        Some(found)
    }

    /// The text of the statement that has a cursor or long data of the client's statement.
    pub(crate) fn text_held_by(&self, client_id: u32) -> Option<Rc<[u8]>> {
        let mut statements = self.statements.iter();
        let held = statements.find(|statement| statement.held_by == Some(client_id))?;
        Some(Rc::clone(&held.text))
    }

    /// Adds a statement that was just prepared. Returns the id of one that must be closed for it: the one not used for
    /// the longest time, where the limit is reached.
    pub(crate) fn add(&mut self, id: u32, text: Rc<[u8]>, context: Rc<Carried>) -> Option<u32> {
        self.uses += 1;
        self.note_given(id);
        let evicted = (self.statements.len() >= self.max)
            .then(|| self.oldest())
            .flatten()
            .map(|oldest| self.statements.swap_remove(oldest).id);
        self.statements.push(ServerStatement {
            id,
            types: None,
            held_by: None,
            text,
            context,
            used: self.uses,
        });
        evicted
    }

    /// The id that the server most likely gives to the statement prepared next. No statement of the connection has it. `None` where it
    /// is not to be guessed.
    pub(crate) fn next_id(&self) -> Option<u32> {
        let may_guess = (1..GUESSED_MAX).contains(&self.next_id) && self.wrong_guesses < WRONG_GUESSES_MAX;
        may_guess.then_some(self.next_id)
    }

    /// The server has given this id to a statement. To be told of every one.
    pub(crate) fn note_given(&mut self, id: u32) {
        self.next_id = self.next_id.max(id.saturating_add(1));
    }

    /// The server has refused to prepare a statement, which takes an id all the same.
    pub(crate) fn note_refused(&mut self) {
        self.next_id = self.next_id.saturating_add(u32::from(self.next_id > 0));
    }

    /// Whether the id was the one that was guessed.
    pub(crate) fn note_guess(&mut self, was_right: bool) {
        self.wrong_guesses = match was_right {
            true => 0,
            false => self.wrong_guesses.saturating_add(1),
        };
    }

    pub(crate) fn len(&self) -> usize {
        self.statements.len()
    }

    /// Forgets the half of the statements that nobody holds, those used longest ago, and gives their ids: they are to be closed.
    pub(crate) fn give_up_half(&mut self) -> Vec<u32> {
        let free = self
            .statements
            .iter()
            .filter(|statement| statement.held_by.is_none());
        let mut free: Vec<_> = free.map(|statement| (statement.used, statement.id)).collect();
        free.sort_unstable();
        free.truncate(free.len().div_ceil(2));
        let ids: Vec<u32> = free.into_iter().map(|(_, id)| id).collect();
        self.statements.retain(|statement| !ids.contains(&statement.id));
        ids
    }

    /// No session holds anything on the connection any more.
    pub(crate) fn let_go(&mut self) {
        self.statements
            .iter_mut()
            .for_each(|statement| statement.held_by = None);
    }

    /// Forgets a statement of the server's.
    pub(crate) fn remove(&mut self, id: u32) {
        self.statements.retain(|statement| statement.id != id);
    }

    /// After COM_RESET_CONNECTION the server has none of them any more.
    pub(crate) fn clear(&mut self) {
        self.statements.clear();
    }

    fn oldest(&self) -> Option<usize> {
        let idle = self.statements.iter().enumerate();
        idle.filter(|(_, statement)| statement.held_by.is_none())
            .min_by_key(|(_, statement)| statement.used)
            .map(|(index, _)| index)
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
const PREPARE_OK_LEN: usize = 12;

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
        let Some(payload) = bytes.get_mut(PacketHeader::LEN..) else {
            return false;
        };
        if payload.first() == Some(&ErrPacket::HEADER) {
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

    /// Another answer comes in the place of one that nobody has seen.
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

/// COM_STMT_CLOSE. It has no answer.
pub(crate) fn close_command(id: u32) -> Vec<u8> {
    mysql_wire::statement::encode(Command::STMT_CLOSE, id).to_vec()
}

/// The same as packets, of all that are to be closed.
pub(crate) fn close_packets(to_close: &mut Vec<u32>) -> Vec<u8> {
    let mut packets = Vec::new();
    for id in to_close.drain(..) {
        write_packet(&mut packets, &mut 0, &close_command(id));
    }
    packets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Rc<[u8]> {
        text.as_bytes().into()
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
    }

    #[test]
    fn the_next_id_is_one_that_no_statement_has() {
        let context = Rc::new(Carried::default());
        let mut on_server = OnServer::new(2);
        on_server.note_refused();
        assert_eq!(on_server.next_id(), None, "the first one is not known");
        on_server.add(7, text("a"), Rc::clone(&context));
        assert_eq!(on_server.next_id(), Some(8));
        on_server.note_given(3);
        assert_eq!(on_server.next_id(), Some(8), "never one from before");
        on_server.note_refused();
        on_server.remove(7);
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
        at_its_end.note_refused();
        assert_eq!(at_its_end.next_id(), None, "where ids may begin anew");
    }

    #[test]
    fn half_of_the_statements_that_nobody_holds_are_given_up() {
        let context = Rc::new(Carried::default());
        let mut on_server = OnServer::new(9);
        for (id, name) in [(1, "a"), (2, "b"), (3, "c"), (4, "d")] {
            on_server.add(id, text(name), Rc::clone(&context));
        }
        on_server.find(&text("a"), &context, 1).unwrap();
        on_server.find(&text("b"), &context, 1).unwrap().held_by = Some(1);
        assert_eq!(on_server.give_up_half(), [3, 4]);
        assert_eq!(on_server.give_up_half(), [1]);
        assert_eq!(on_server.give_up_half(), [0; 0]);
        assert_eq!(on_server.len(), 1);
    }

    #[test]
    fn the_statement_used_longest_ago_makes_room_unless_it_is_held() {
        let context = Rc::new(Carried::default());
        let mut on_server = OnServer::new(2);
        assert_eq!(on_server.add(1, text("a"), Rc::clone(&context)), None);
        assert_eq!(on_server.add(2, text("b"), Rc::clone(&context)), None);
        on_server.find(&text("a"), &context, 9).unwrap().held_by = Some(9);
        on_server.find(&text("b"), &context, 9).unwrap();
        assert_eq!(on_server.add(3, text("c"), Rc::clone(&context)), Some(2));
        assert!(on_server.find(&text("b"), &context, 9).is_none());
        assert!(
            on_server.find(&text("a"), &context, 8).is_none(),
            "held by another"
        );
        assert!(on_server.find(&text("a"), &context, 9).is_some());
        assert_eq!(on_server.statements.len(), 2);
    }
}
