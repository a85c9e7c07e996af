//! Whether a statement may have given an id itself, in whatever form: as digits, as another kind of number,
//! or bound as one.
//!
//! The answer is wrong in one direction only: bytes that may be the id count as the id, which costs a
//! question.

use mysql_wire::Capabilities;
use mysql_wire::statement::ExecuteHead;
use session::Prepared;
use sql_class::text::{in_text, is_near};

// Types of parameters. <https://dev.mysql.com/doc/dev/mysql-server/latest/field__types_8h.html>
const FLOAT: u8 = 4;
const DOUBLE: u8 = 5;

/// Whether the id may be among the values of an execution. `payload`: the command.
pub(crate) fn in_values(payload: &[u8], prepared: &Prepared, capabilities: Capabilities, id: u64) -> bool {
    let binary = id.to_le_bytes();
    let len = binary.len() - id.leading_zeros() as usize / 8;
    if payload.windows(len).any(|window| *window == binary[..len]) || in_text(payload, id) {
        return true;
    }
    let Ok(head) = ExecuteHead::decode(payload, prepared.params, capabilities) else {
        return true;
    };
    let Some(types) = head.types().or(prepared.types.as_deref()) else {
        return prepared.params > 0;
    };
    let is_bound = |kind: u8| types.chunks(2).any(|bound| bound.first() == Some(&kind));
    let values = payload.get(head.len..).unwrap_or_default();
    let is_double = |bytes: &[u8; 8]| is_near(f64::from_le_bytes(*bytes), id);
    let is_float = |bytes: &[u8; 4]| is_near(f32::from_le_bytes(*bytes).into(), id);
    is_bound(DOUBLE) && chunks(values).any(is_double) || is_bound(FLOAT) && chunks(values).any(is_float)
}

/// All pieces of so many bytes, wherever they begin.
fn chunks<const LEN: usize>(bytes: &[u8]) -> impl Iterator<Item = &[u8; LEN]> {
    bytes.windows(LEN).filter_map(|window| window.try_into().ok())
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use mysql_wire::Command;

    use super::*;

    #[test]
    fn an_id_may_be_bound_as_another_number() {
        let text = "INSERT INTO t VALUES (?)";
        let bound = |kind: u8, value: &[u8]| {
            let facts = sql_class::facts(text.as_bytes(), sql_class::Syntax::default());
            let mut prepared = Prepared::new(text.as_bytes().into(), Rc::new(facts), 1, 1);
            prepared.types = None;
            let head = [
                &[Command::STMT_EXECUTE.0][..],
                &[1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, kind, 0],
            ]
            .concat();
            in_values(&[&head, value].concat(), &prepared, Capabilities::default(), 700)
        };
        assert!(bound(DOUBLE, &700_f64.to_le_bytes()) && bound(DOUBLE, &699.6_f64.to_le_bytes()));
        assert!(bound(FLOAT, &700_f32.to_le_bytes()));
        assert!(bound(8, &700_u64.to_le_bytes()) && bound(253, b"\x037e2"));
        assert!(!bound(DOUBLE, &701_f64.to_le_bytes()) && !bound(8, &700_f64.to_le_bytes()));
    }
}
