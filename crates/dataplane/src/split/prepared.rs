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
}

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

    /// The server's id and the count of parameters, unless the server refused.
    pub(crate) fn prepared(&self) -> Option<(u32, u16)> {
        match self.state {
            Renamed::From(id, parameters) => Some((id, parameters)),
            Renamed::NotYet | Renamed::Refused => None,
        }
    }
}

/// COM_STMT_CLOSE as a packet. It has no answer.
pub(crate) fn close_packet(id: u32) -> Vec<u8> {
    let mut payload = vec![Command::STMT_CLOSE.0];
    payload.extend(id.to_le_bytes());
    let mut packet = Vec::with_capacity(payload.len() + PacketHeader::LEN);
    write_packet(&mut packet, &mut 0, &payload);
    packet
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
