//! The execution of a prepared statement together with others.

use std::rc::Rc;

use mysql_wire::statement::ExecuteHead;
use mysql_wire::{PacketHeader, command_packet};
use session::Prepared;

use super::pipelines::BatchedExecution;
use crate::engine::client_session::ClientSession;
use crate::engine::connection_state::ConnectionState;
#[cfg(doc)]
use crate::engine::statement::Statement;

impl BatchedExecution {
    /// The execution by the command that is [kept to be sent again](Statement::copy), into which the types of
    /// its parameters are put where the client has sent them before. `None` for an execution that has to go
    /// alone: with a cursor, long data or query attributes, or without types.
    pub(super) fn of(session: &mut ClientSession, id: u32, prepared: &Prepared) -> Option<Self> {
        let copy = session.statement.copy.as_mut()?;
        let payload = copy.get(PacketHeader::LEN..)?;
        let parsed = ExecuteHead::decode(payload, prepared.params, session.client.key.capabilities).ok()?;
        let is_held = prepared.long_data || prepared.cursor;
        if is_held || parsed.opens_cursor || parsed.attributes > 0 {
            return None;
        }
        let mut types = None;
        if let Some(sent) = parsed.types() {
            let known = prepared.types.as_ref().filter(|known| ***known == *sent);
            let sent = known.map_or_else(|| sent.into(), Rc::clone);
            types = Some(sent);
        } else if parsed.needs_types() {
            let known = Rc::clone(prepared.types.as_ref()?);
            let mut changed = payload.to_vec();
            if !parsed.inject_types(&mut changed, &known) {
                return None;
            }
            *copy = command_packet(&changed).into();
            types = Some(known);
        }
        if prepared.types != types
            && let Some(known) = session.state.statements().get_mut(id)
        {
            known.types.clone_from(&types);
        }
        Some(Self {
            prepared: prepared.clone(),
            types,
        })
    }

    /// Puts the server's id into the command. False where the connection has not prepared the statement.
    pub(super) fn address(&self, held: &mut ConnectionState, command: &mut [u8]) -> bool {
        let Some(on_server) = held.statements.find(&self.prepared) else {
            return false;
        };
        let Some(place) = command.get_mut(PacketHeader::LEN + 1..PacketHeader::LEN + 5) else {
            return false;
        };
        place.copy_from_slice(&on_server.id.to_le_bytes());
        if self.types.is_some() {
            on_server.types.clone_from(&self.types);
        }
        true
    }
}
