//! Ids that the server has made are others in a replay than they were in the capture: where statements name
//! those of then, they are sent with those of now.
//!
//! Only values of which the schema says that they are such ids are changed: those of an AUTO_INCREMENT
//! column, and of columns that refer to one by a foreign key. All sessions share what is known, since an id
//! belongs to one row of its table whoever names it.

mod reading;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use mysql_wire::statement::ExecuteHead;
use mysql_wire::{Capabilities, Command};

pub(super) use self::reading::Keys;
use self::reading::{Owner, Reading, read};
use crate::binary;
use crate::record::CommandRecord;

/// Ids that are kept, of all tables together.
pub(super) const IDS_MAX: usize = 1 << 20;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IdsMapped {
    /// Ids that are others than they were.
    pub others: u64,
    /// Values that were sent as the ids of now.
    pub mapped: u64,
    /// Values that were sent as they were: they are such ids by their number, and nobody can tell; or the
    /// type of a parameter has no room for the id of now.
    pub left: u64,
    /// Ids that are others, of which the table is not known, or for which there was no room.
    pub not_kept: u64,
}

#[derive(Default)]
pub(super) struct Ids {
    keys: Keys,
    known: RefCell<HashMap<(Owner, u64), u64>>,
    mapped: RefCell<IdsMapped>,
}

impl Ids {
    pub(super) fn new(keys: Keys) -> Self {
        Self {
            keys,
            ..Self::default()
        }
    }

    pub(super) fn outcome(&self) -> IdsMapped {
        *self.mapped.borrow()
    }

    fn is_empty(&self) -> bool {
        self.known.borrow().is_empty()
    }

    fn now(&self, owner: Owner, then: u64) -> Option<u64> {
        self.known.borrow().get(&(owner, then)).copied()
    }

    fn note(&self, owner: Option<Owner>, then: u64, now: u64) {
        let mut known = self.known.borrow_mut();
        let mut mapped = self.mapped.borrow_mut();
        if then == now {
            // Its number may have been another row's.
            if let Some(owner) = owner {
                known.remove(&(owner, then));
            }
            return;
        }
        mapped.others += 1;
        match owner {
            Some(owner) if known.len() < IDS_MAX || known.contains_key(&(owner, then)) => {
                known.insert((owner, then), now);
            }
            _ => mapped.not_kept += 1,
        }
    }

    /// The id of now for a value, as `write` writes it, where it is known for certain and has room there. Of
    /// other ids is counted that they are left.
    fn map<T>(
        &self,
        reading: &Reading,
        owner: Option<Owner>,
        then: u64,
        write: impl FnOnce(u64) -> Option<T>,
    ) -> Option<T> {
        let now = owner.and_then(|owner| self.now(owner, then));
        let written = now.and_then(write);
        let may_be_id = || {
            let mut owners = reading.owners.iter();
            owner.is_none() && owners.any(|owner| self.now(*owner, then).is_some())
        };
        let is_left = written.is_none() && (now.is_some() || may_be_id());
        let mut mapped = self.mapped.borrow_mut();
        mapped.mapped += u64::from(written.is_some());
        mapped.left += u64::from(is_left);
        written
    }
}

/// A prepared statement, as far as ids matter.
struct Prepared {
    text: Vec<u8>,
    schema: String,
    reading: Option<Option<Rc<Reading>>>,
    parameters: u16,
    /// Of its parameters; an execution may leave them out.
    types: Vec<u8>,
}

impl Prepared {
    fn head(&self, payload: &[u8]) -> Option<ExecuteHead> {
        ExecuteHead::decode(payload, self.parameters, Capabilities::default()).ok()
    }

    /// An execution with the ids of now. `None`: its parameters are not understood, or there are none.
    fn mapped(&self, ids: &Ids, reading: &Reading, payload: &[u8]) -> Option<Vec<u8>> {
        let head = self.head(payload)?;
        let nulls = payload.get(head.nulls()?)?;
        let (types, _) = self.types.as_chunks::<2>();
        let mut out = payload.get(..head.len)?.to_vec();
        let mut values = payload.get(head.len..)?;
        let parameters = reading.values.iter().filter(|value| value.parameter.is_some());
        if types.len() != usize::from(self.parameters) || parameters.clone().count() != types.len() {
            return None;
        }
        for (index, (parameter, [kind, flags])) in parameters.zip(types).enumerate() {
            if binary::is_null(nulls, index) {
                continue;
            }
            let before = values;
            let value = binary::take(*kind, &mut values)?;
            let is_unsigned = flags & 0x80 != 0;
            let write = |now| encoded(*kind, is_unsigned, value.len(), now);
            let mapped = number(*kind, is_unsigned, value)
                .and_then(|then| ids.map(reading, parameter.owner, then, write));
            let as_sent = &before[..before.len() - values.len()];
            out.extend_from_slice(mapped.as_deref().unwrap_or(as_sent));
        }
        values.is_empty().then_some(out)
    }
}

/// The number that a parameter is: an integer, or a text of digits.
fn number(kind: u8, is_unsigned: bool, value: &[u8]) -> Option<u64> {
    match kind {
        1 | 2 | 3 | 8 | 9 | 13 => {
            let is_negative = !is_unsigned && value.last()? & 0x80 != 0;
            (!is_negative).then(|| binary::little(value))
        }
        0 | 15 | 246 | 253 | 254 => digits(value),
        _ => None,
    }
}

/// A number as a parameter of the same type. `None` where it has no room there.
fn encoded(kind: u8, is_unsigned: bool, len: usize, number: u64) -> Option<Vec<u8>> {
    if matches!(kind, 0 | 15 | 246 | 253 | 254) {
        let text = number.to_string();
        return Some([&[text.len() as u8], text.as_bytes()].concat());
    }
    let bits = 8 * len as u32 - u32::from(!is_unsigned);
    let fits = number.checked_shr(bits).unwrap_or(0) == 0;
    fits.then(|| number.to_le_bytes()[..len].to_vec())
}

pub(super) struct SessionIds {
    ids: Rc<Ids>,
    /// By their captured numbers.
    prepared: HashMap<u32, Prepared>,
}

impl SessionIds {
    pub(super) fn new(ids: Rc<Ids>) -> Self {
        Self {
            ids,
            prepared: HashMap::new(),
        }
    }

    /// The next command of the capture, sent or not. `schema`: the target's name of its current one.
    pub(super) fn hear(&mut self, captured: &CommandRecord, schema: &[u8]) {
        match Command(captured.command) {
            Command::STMT_PREPARE if !self.ids.keys.is_empty() => {
                let prepared = Prepared {
                    text: captured.body.clone(),
                    schema: String::from_utf8_lossy(schema).into_owned(),
                    reading: None,
                    parameters: captured.parameters,
                    types: Vec::new(),
                };
                self.prepared.insert(captured.statement, prepared);
            }
            Command::STMT_CLOSE => drop(self.prepared.remove(&captured.statement)),
            Command::RESET_CONNECTION | Command::CHANGE_USER => self.prepared.clear(),
            Command::STMT_EXECUTE => {
                let payload = captured.payload();
                if let Some(prepared) = self.prepared.get_mut(&captured.statement)
                    && let Some(types) = prepared.head(&payload).as_ref().and_then(ExecuteHead::types)
                {
                    prepared.types = types.to_vec();
                }
            }
            _ => {}
        }
    }

    /// A command was answered with this id.
    pub(super) fn answered(&mut self, captured: &CommandRecord, schema: &[u8], affected_rows: u64, id: u64) {
        let has_made = captured.insert_id != 0 && id != 0 && captured.error == 0;
        if !has_made || self.ids.keys.is_empty() {
            return;
        }
        if captured.insert_id == id && self.ids.is_empty() {
            return;
        }
        let reading = self.reading(captured, schema);
        let Some(reading) = reading.filter(|reading| reading.inserts) else {
            return;
        };
        let rows_max = if reading.updates_duplicates { 2 } else { u64::MAX };
        if affected_rows == captured.affected_rows && (1..=rows_max).contains(&affected_rows) {
            self.ids.note(reading.makes, captured.insert_id, id);
        }
    }

    fn reading(&mut self, captured: &CommandRecord, schema: &[u8]) -> Option<Rc<Reading>> {
        match Command(captured.command) {
            Command::QUERY | Command::STMT_PREPARE => {
                let schema = String::from_utf8_lossy(schema);
                read(&captured.body, &schema, &self.ids.keys).map(Rc::new)
            }
            Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => {
                let Prepared {
                    text,
                    schema,
                    reading,
                    ..
                } = self.prepared.get_mut(&captured.statement)?;
                let anew = || read(text, schema, &self.ids.keys).map(Rc::new);
                reading.get_or_insert_with(anew).clone()
            }
            _ => None,
        }
    }

    /// Puts the ids of now into a command that is about to be sent.
    pub(super) fn map(&mut self, captured: &CommandRecord, schema: &[u8], payload: &mut Vec<u8>) {
        let has_values = matches!(
            Command(captured.command),
            Command::QUERY | Command::STMT_PREPARE | Command::STMT_EXECUTE
        );
        if self.ids.is_empty() || !has_values {
            return;
        }
        let Some(reading) = self.reading(captured, schema) else {
            return;
        };
        match Command(captured.command) {
            Command::STMT_EXECUTE => {
                let prepared = self.prepared.get(&captured.statement);
                let mapped = prepared.and_then(|prepared| prepared.mapped(&self.ids, &reading, payload));
                if let Some(mapped) = mapped {
                    *payload = mapped;
                }
            }
            // A schema that is another on the target is not in a text with ids.
            _ if payload.get(1..) == Some(&captured.body[..]) => {
                let text = text_mapped(&self.ids, &reading, &captured.body);
                payload.truncate(1);
                payload.extend_from_slice(&text);
            }
            _ => {}
        }
    }
}

fn text_mapped(ids: &Ids, reading: &Reading, text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut from = 0;
    for value in reading.values.iter().filter(|value| value.parameter.is_none()) {
        let written = text.get(value.place.clone()).unwrap_or_default();
        let inner = written
            .strip_prefix(b"'")
            .and_then(|inner| inner.strip_suffix(b"'"));
        let now = digits(inner.unwrap_or(written)).and_then(|then| ids.map(reading, value.owner, then, Some));
        if let Some(now) = now {
            out.extend_from_slice(&text[from..value.place.start]);
            let quote = if inner.is_some() { "'" } else { "" };
            out.extend_from_slice(format!("{quote}{now}{quote}").as_bytes());
            from = value.place.end;
        }
    }
    out.extend_from_slice(&text[from..]);
    out
}

/// The number that digits and nothing else are.
fn digits(bytes: &[u8]) -> Option<u64> {
    let is_number = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(bytes)
        .ok()
        .filter(|_| is_number)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> Rc<Ids> {
        let words = |words: &str| -> Vec<String> { words.split('.').map(str::to_owned).collect() };
        let made = words("shop.orders.id").try_into().unwrap();
        let referring = words("shop.items.order_id.shop.orders.id").try_into().unwrap();
        Rc::new(Ids::new(Keys::new(vec![made], vec![referring])))
    }

    fn query(text: &str, insert_id: u64) -> CommandRecord {
        CommandRecord {
            command: Command::QUERY.0,
            body: text.as_bytes().to_vec(),
            affected_rows: 1,
            insert_id,
            ..CommandRecord::default()
        }
    }

    fn sent(session: &mut SessionIds, captured: &CommandRecord) -> Vec<u8> {
        let mut payload = captured.payload();
        session.hear(captured, b"shop");
        session.map(captured, b"shop", &mut payload);
        payload.split_off(1)
    }

    fn told(session: &mut SessionIds, text: &str) -> String {
        String::from_utf8(sent(session, &query(text, 0))).unwrap()
    }

    #[test]
    fn texts_have_the_ids_of_now() {
        let ids = ids();
        let [mut one, mut other] = [(); 2].map(|()| SessionIds::new(Rc::clone(&ids)));
        one.answered(
            &query("INSERT INTO orders (name) VALUES ('a')", 7),
            b"shop",
            1,
            107,
        );
        assert_eq!(
            told(&mut other, "UPDATE orders SET count = 7 WHERE id = 7 OR id = '7'"),
            "UPDATE orders SET count = 7 WHERE id = 107 OR id = '107'"
        );
        assert_eq!(
            told(&mut one, "INSERT INTO items (order_id) VALUES (7)"),
            "INSERT INTO items (order_id) VALUES (107)"
        );
        for text in [
            "SELECT * FROM orders WHERE id = 8",
            "SELECT 7",
            "SELECT 7; SELECT id FROM orders",
        ] {
            assert_eq!(told(&mut one, text), text);
        }
        let outcome = IdsMapped {
            others: 1,
            mapped: 3,
            left: 1,
            not_kept: 0,
        };
        assert_eq!(ids.outcome(), outcome);
        // The number is given to another row.
        one.answered(&query("INSERT INTO orders (name) VALUES ('b')", 7), b"shop", 1, 7);
        let text = "SELECT * FROM orders WHERE id = 7";
        assert_eq!(told(&mut one, text), text);
    }

    #[test]
    fn what_may_be_no_id_is_not_kept() {
        let ids = ids();
        let mut session = SessionIds::new(Rc::clone(&ids));
        let insert = "INSERT INTO orders (name) VALUES ('a')";
        for (text, affected_rows) in [
            ("UPDATE orders SET id = LAST_INSERT_ID(id + 1)", 1),
            ("SELECT 1; INSERT INTO orders (name) VALUES ('a')", 1),
            (insert, 0),
        ] {
            session.answered(&query(text, 7), b"shop", affected_rows, 107);
        }
        assert_eq!(ids.outcome(), IdsMapped::default());
        session.answered(
            &query("INSERT INTO others (name) VALUES ('a')", 7),
            b"shop",
            1,
            107,
        );
        assert_eq!(ids.outcome().not_kept, 1);
        assert!(ids.is_empty());
    }

    #[test]
    fn a_counter_is_no_id() {
        for (update, others) in [
            ("count = LAST_INSERT_ID(count + 1)", 0),
            ("count = last_insert_id(count)", 0),
            ("id = LAST_INSERT_ID(`Id`), count = LAST_INSERT_ID(5)", 0),
            ("id = LAST_INSERT_ID(`Id`), count = 5", 1),
            ("count = LAST_INSERT_ID()", 1),
        ] {
            let ids = ids();
            let mut session = SessionIds::new(Rc::clone(&ids));
            let text = format!("INSERT INTO orders (name) VALUES ('a') ON DUPLICATE KEY UPDATE {update}");
            session.answered(&query(&text, 7), b"shop", 1, 107);
            assert_eq!(ids.outcome().others, others, "{update}");
            assert_eq!(ids.outcome().not_kept, 0, "{update}");
        }
    }

    #[test]
    fn parameters_are_the_ids_of_now() {
        let ids = ids();
        let mut session = SessionIds::new(Rc::clone(&ids));
        session.answered(
            &query("INSERT INTO orders (name) VALUES ('a')", 7),
            b"shop",
            1,
            300,
        );
        let prepare = CommandRecord {
            command: Command::STMT_PREPARE.0,
            body: b"SELECT ? FROM orders WHERE id = ? AND x = ?".to_vec(),
            parameters: 3,
            statement: 5,
            ..CommandRecord::default()
        };
        session.hear(&prepare, b"shop");
        let mut execution = |types: &[u8], values: &[u8]| {
            let head: &[u8] = &[5, 0, 0, 0, 0, 1, 0, 0, 0, 0];
            let body = [head, &[u8::from(!types.is_empty())], types, values].concat();
            let captured = CommandRecord {
                command: Command::STMT_EXECUTE.0,
                body,
                statement: 5,
                ..CommandRecord::default()
            };
            let sent = sent(&mut session, &captured);
            sent[head.len() + 1 + types.len()..].to_vec()
        };
        let same = &[8, 0, 3, 0x80, 253, 0];
        let values = b"\x07\0\0\0\0\0\0\0\x07\0\0\0\x017";
        let mapped = b"\x07\0\0\0\0\0\0\0\x2c\x01\0\0\x017";
        assert_eq!(execution(same, values), mapped);
        assert_eq!(execution(&[], values), mapped, "the types are those of before");
        assert_eq!(
            execution(&[1, 0, 253, 0, 1, 0], b"\x01\x017\x01"),
            b"\x01\x03300\x01"
        );
        // It is cut.
        assert_eq!(execution(&[1, 0, 8, 0, 1, 0], b"\x01\x07\x01"), b"\x01\x07\x01");
        let before = ids.outcome();
        // There is no room for it.
        assert_eq!(execution(&[1, 0, 1, 0, 1, 0], b"\x01\x07\x01"), b"\x01\x07\x01");
        let left = before.left + 1;
        assert_eq!(ids.outcome(), IdsMapped { left, ..before });
    }
}
