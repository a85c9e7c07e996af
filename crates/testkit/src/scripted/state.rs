//! What a session of a server that [remembers](super::ServerScript::remembers) has set, and what such a
//! server says of it.
//!
//! | statement | what comes of it |
//! |---|---|
//! | `SET a = 1, @x = 'y', NAMES latin1` | OK, with the trackers of the variables that are tracked |
//! | `USE a`, COM_INIT_DB | OK, with the tracker of the schema |
//! | `BEGIN`, `START TRANSACTION`, `COMMIT`, `ROLLBACK` | OK, with the tracker of the transaction |
//! | `SET autocommit = 1`, where it was 0 | the same as of a `COMMIT` |
//! | `SET TRANSACTION READ ONLY` or another one | OK, with the tracker of what is said of the next transaction |
//! | `SELECT @@a, @x, DATABASE()` | one row of texts |
//! | the same with `FROM meant` behind it, prepared | what it was when it was prepared |
//! | the gateway's questions for user variables | as servers answer them; all are texts |
//!
//! Values are taken as they are written: nothing is calculated, and no value is refused.

use std::collections::BTreeMap;

use mysql_wire::session_state::Change;
use mysql_wire::{Capabilities, Command, OkPacket, StatusFlags};

use super::Reply;

/// A value that is not NULL.
type Text = Vec<u8>;

/// Names and values of variables as a session begins with them.
pub type Variables = &'static [[&'static str; 2]];

#[derive(Clone)]
pub(super) struct State {
    negotiated: Capabilities,
    initial: Variables,
    schema: Text,
    variables: BTreeMap<String, Text>,
    of_user: BTreeMap<String, Text>,
    in_transaction: bool,
    /// What was said of the transaction that comes next, or is open.
    next_transaction: String,
    /// What has changed since the last OK, encoded.
    changes: Vec<u8>,
    /// As it was when each statement was prepared, in the order of their ids.
    prepared: Vec<(String, Option<Box<State>>)>,
}

/// A statement that the state answers.
enum Statement<'t> {
    Set(&'t str),
    Use(&'t str),
    Transaction(bool),
    /// What the next one is to be like.
    NextTransaction(&'t str),
    Ask(Vec<&'t str>),
    /// All names of user variables.
    Names,
}

/// Whether a server that remembers answers this text.
pub fn is_of_state(text: &[u8]) -> bool {
    str::from_utf8(text).is_ok_and(|text| parse(text).is_some())
}

fn parse(text: &str) -> Option<Statement<'_>> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match word {
        "SET" if rest.starts_with("TRANSACTION ") => Some(Statement::NextTransaction(text)),
        "SET" if !rest.contains("TRANSACTION ") => Some(Statement::Set(rest)),
        "USE" => Some(Statement::Use(rest)),
        "BEGIN" => Some(Statement::Transaction(true)),
        "START" if rest.starts_with("TRANSACTION") => Some(Statement::Transaction(true)),
        "COMMIT" | "ROLLBACK" if rest.is_empty() => Some(Statement::Transaction(false)),
        "SELECT" if rest.starts_with("CONCAT(HEX(VARIABLE_NAME)") => Some(Statement::Names),
        "SELECT" | "VALUES" => {
            let items = rest.strip_suffix(" LIMIT 1").unwrap_or(rest);
            let items = items.strip_suffix(" FROM meant").unwrap_or(items);
            let is_one = |item: &&str| {
                ["@", "(@@", "DATABASE()", "COALESCE("]
                    .iter()
                    .any(|one| item.starts_with(one))
            };
            let items = parts(items);
            items.first().is_some_and(is_one).then_some(Statement::Ask(items))
        }
        _ => None,
    }
}

/// What is between commas, without those in brackets and quotes.
fn parts(text: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut from) = (0, false, 0);
    let mut parts = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\'' => quoted = !quoted,
            b'(' if !quoted => depth += 1,
            b')' if !quoted => depth -= 1,
            b',' if !quoted && depth == 0 => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[from..].trim());
    parts
}

impl State {
    /// A session that has just logged in.
    pub(super) fn new(negotiated: Capabilities, initial: Variables, schema: Text) -> Self {
        let variables = initial
            .iter()
            .map(|[name, value]| ((*name).to_owned(), value.as_bytes().to_vec()));
        Self {
            negotiated,
            initial,
            schema,
            variables: variables.collect(),
            of_user: BTreeMap::new(),
            in_transaction: false,
            next_transaction: String::new(),
            changes: Vec::new(),
            prepared: Vec::new(),
        }
    }

    /// The answer to what is about the state; `None` to all else.
    pub(super) fn reply(&mut self, request: &[u8]) -> Option<Reply> {
        let (&command, body) = request.split_first()?;
        let text = str::from_utf8(body).unwrap_or_default();
        match Command(command) {
            Command::QUERY => self.statement(parse(text)?, false),
            Command::INIT_DB => self.statement(Statement::Use(text), false),
            Command::STMT_PREPARE if !text.starts_with("ERROR") => {
                let was = Self {
                    prepared: Vec::new(),
                    ..self.clone()
                };
                let was = text.ends_with(" FROM meant").then(|| Box::new(was));
                self.prepared.push((text.to_owned(), was));
                None
            }
            Command::STMT_EXECUTE => {
                let id = u32::from_le_bytes(*body.first_chunk()?) as usize;
                let (text, was) = self.prepared.get(id.checked_sub(1)?)?.clone();
                let statement = parse(&text)?;
                match was {
                    Some(mut was) => was.statement(statement, true),
                    None => self.statement(statement, true),
                }
            }
            Command::RESET_CONNECTION => {
                *self = Self::new(self.negotiated, self.initial, std::mem::take(&mut self.schema));
                None
            }
            _ => None,
        }
    }

    /// The end of an answer says whether the session is in a transaction, and has autocommit.
    pub(super) fn mark(&self, command: Option<&u8>, reply: &mut Reply) {
        let has_end = [Command::QUERY.0, Command::STMT_EXECUTE.0]
            .map(Some)
            .contains(&command.copied());
        if let Reply::Payloads(payloads) = reply
            && let Some(end) = payloads.last_mut().filter(|_| has_end)
            && let Ok(mut ok) = OkPacket::decode(end, self.negotiated)
        {
            let is_of_rows = end[0] == 0xfe;
            ok.status = StatusFlags(ok.status.0 & !StatusFlags::AUTOCOMMIT.0) | self.status();
            end.clear();
            match is_of_rows {
                true => ok.encode_as_eof(end, self.negotiated),
                false => ok.encode(end, self.negotiated),
            }
        }
    }

    fn statement(&mut self, statement: Statement<'_>, is_binary: bool) -> Option<Reply> {
        match statement {
            Statement::Set(items) => {
                parts(items).into_iter().for_each(|item| self.set(item));
                if self.value("@@session_track_state_change").as_deref() == Some(b"ON") {
                    Change::StateChanged(true).encode(&mut self.changes);
                }
            }
            Statement::Use(schema) => {
                self.schema = schema.trim_matches('`').into();
                Change::Schema(&self.schema).encode(&mut self.changes);
            }
            Statement::Transaction(begins) => self.transaction(begins),
            Statement::NextTransaction(said) => {
                self.next_transaction.push_str(said);
                self.next_transaction.push_str("; ");
                Change::Characteristics(self.next_transaction.as_bytes()).encode(&mut self.changes);
            }
            Statement::Names => {
                let packet_max = " 16777216";
                let names = self.of_user.keys().map(|name| hex(name.as_bytes()) + packet_max);
                let rows = names.chain([hex(b"-") + packet_max]);
                return Some(self.rows(1, rows.map(|row| vec![Some(row.into_bytes())]), false));
            }
            Statement::Ask(items) => {
                let row: Vec<_> = items.iter().map(|item| self.asked(item)).collect();
                return Some(self.rows(items.len(), std::iter::once(row), is_binary));
            }
        }
        let changes = std::mem::take(&mut self.changes);
        let mut payload = Vec::new();
        self.ok(changes).encode(&mut payload, self.negotiated);
        Some(Reply::Payloads(vec![payload]))
    }

    fn transaction(&mut self, begins: bool) {
        self.in_transaction = begins;
        let state = if begins { b"T_______" } else { b"________" };
        if self.value("@@session_track_transaction_info").is_some() {
            Change::TransactionState(state).encode(&mut self.changes);
        }
        if !self.next_transaction.is_empty() {
            let said = match begins {
                true => std::mem::take(&mut self.next_transaction) + "START TRANSACTION;",
                false => String::new(),
            };
            Change::Characteristics(said.as_bytes()).encode(&mut self.changes);
            self.next_transaction = said;
        }
    }

    fn set(&mut self, item: &str) {
        if let Some(names) = item.strip_prefix("NAMES ") {
            let (charset, collation) = names.split_once(" COLLATE ").unwrap_or((names, ""));
            for name in ["client", "results", "connection"] {
                self.set_variable(&format!("character_set_{name}"), charset);
            }
            let usual = format!("{}_general_ci", charset.trim_matches('\''));
            let collation = if collation.is_empty() { &usual } else { collation };
            return self.set_variable("collation_connection", collation);
        }
        let Some((name, value)) = item.split_once('=') else {
            return;
        };
        let (name, value) = (name.trim_end_matches(':').trim(), value.trim());
        let name = name.strip_prefix("SESSION ").unwrap_or(name);
        match name.strip_prefix('@').filter(|name| !name.starts_with('@')) {
            Some(name) => {
                let name = name.trim_matches('`').to_owned();
                match self.value(value) {
                    Some(value) => self.of_user.insert(name, value),
                    None => self.of_user.remove(&name),
                };
            }
            None => self.set_variable(bare(name), value),
        }
    }

    fn set_variable(&mut self, name: &str, value: &str) {
        let value = match value {
            "DEFAULT" => {
                let initial = self.initial.iter().find(|[known, _]| *known == name);
                initial.map_or(Vec::new(), |[_, value]| value.as_bytes().to_vec())
            }
            value => self.value(value).unwrap_or_default(),
        };
        let value = match (name, &*value) {
            ("autocommit", b"0") => b"OFF".to_vec(),
            ("autocommit", b"1") => b"ON".to_vec(),
            _ => value,
        };
        if name == "autocommit" && value == b"ON" && self.variables.get(name) != Some(&value) {
            self.transaction(false);
        }
        self.variables.insert(name.to_owned(), value.clone());
        let tracked = self.variables.get("session_track_system_variables");
        let tracked = String::from_utf8_lossy(tracked.map_or(b"", |list| list));
        if tracked.split(',').any(|one| one == name || one == "*") {
            let name = name.as_bytes();
            Change::Variable { name, value: &value }.encode(&mut self.changes);
        }
    }

    /// What is behind `=` or in a list of columns; `None`: NULL.
    fn value(&self, written: &str) -> Option<Text> {
        if let Some(name) = written.strip_prefix("@@") {
            return self.variables.get(bare(name)).cloned();
        }
        if let Some(name) = written.strip_prefix('@') {
            return self.of_user.get(name.trim_matches('`')).cloned();
        }
        let bytes = written
            .split_once("0x")
            .filter(|(charset, _)| charset.is_empty() || charset.starts_with('_'));
        if let Some((_, digits)) = bytes {
            let (digits, _) = digits.split_once(' ').unwrap_or((digits, ""));
            let digits = (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..][..2], 16));
            return digits.collect::<Result<_, _>>().ok();
        }
        match written {
            "NULL" => None,
            "DATABASE()" => Some(self.schema.clone()).filter(|schema| !schema.is_empty()),
            _ if written.starts_with('_') => Some(Vec::new()),
            text => Some(text.trim_matches('\'').as_bytes().to_vec()),
        }
    }

    /// A column of a question, or the sum of lengths that it asks for.
    fn asked(&self, item: &str) -> Option<Text> {
        let item = item.strip_suffix(" AS v").unwrap_or(item);
        let (function, inside) = item.split_once("(@").unwrap_or(("", item));
        let of = || self.value(&format!("@{}", inside.trim_end_matches(')')));
        match function {
            _ if item.starts_with("COALESCE(") => {
                let lengths = item.split(" + ").filter_map(|one| {
                    let (_, name) = one.split_once('@')?;
                    self.value(&format!("@{}", name.split(')').next()?))
                        .map(|value| value.len())
                });
                Some(lengths.sum::<usize>().to_string().into_bytes())
            }
            "COLLATION" => Some(of().map_or(&b"binary"[..], |_| b"utf8mb4_general_ci").to_vec()),
            "COERCIBILITY" => Some(b"2".to_vec()),
            "HEX" => of().map(|value| hex(&value).into_bytes()),
            _ if item.starts_with("(@@") => of(),
            _ => self.value(item),
        }
    }

    fn status(&self) -> StatusFlags {
        let has_autocommit = self
            .variables
            .get("autocommit")
            .is_none_or(|value| value != b"OFF");
        let none = StatusFlags(0);
        let autocommit = if has_autocommit {
            StatusFlags::AUTOCOMMIT
        } else {
            none
        };
        autocommit
            | if self.in_transaction {
                StatusFlags::IN_TRANS
            } else {
                none
            }
    }

    fn ok(&self, changes: Vec<u8>) -> OkPacket {
        let session_state = match self.negotiated.contains(Capabilities::SESSION_TRACK) {
            true => changes,
            false => Vec::new(),
        };
        let mut status = self.status();
        if !session_state.is_empty() {
            status = status | StatusFlags::SESSION_STATE_CHANGED;
        }
        OkPacket {
            affected_rows: 0,
            last_insert_id: 0,
            status,
            warnings: 0,
            info: Vec::new(),
            session_state,
        }
    }

    /// Without the ends of clients that do not know DEPRECATE_EOF.
    fn rows(&self, columns: usize, rows: impl Iterator<Item = Vec<Option<Text>>>, is_binary: bool) -> Reply {
        let text = |text: &[u8]| match text.len() {
            len @ ..251 => [&[len as u8], text].concat(),
            len => [&[0xfc, len as u8, (len >> 8) as u8], text].concat(),
        };
        let column = || {
            let names = ["def", "", "", "", "v", "v"]
                .map(|name| text(name.as_bytes()))
                .concat();
            [names, vec![0x0c, 45, 0, 0, 4, 0, 0, 0xfd, 0, 0, 0, 0, 0]].concat()
        };
        let mut payloads = vec![vec![columns as u8]];
        payloads.extend((0..columns).map(|_| column()));
        payloads.extend(rows.map(|row| {
            let mut nulls = vec![0; if is_binary { 1 + (columns + 9) / 8 } else { 0 }];
            let mut values = Vec::new();
            for (at, value) in row.iter().enumerate() {
                match value {
                    Some(value) => values.extend(text(value)),
                    None if is_binary => nulls[1 + (at + 2) / 8] |= 1 << ((at + 2) % 8),
                    None => values.push(0xfb),
                }
            }
            [nulls, values].concat()
        }));
        let mut end = Vec::new();
        self.ok(Vec::new()).encode_as_eof(&mut end, self.negotiated);
        payloads.push(end);
        Reply::Payloads(payloads)
    }
}

/// Of a system variable, without what says of whom it is.
fn bare(name: &str) -> &str {
    let name = name.strip_prefix("@@").unwrap_or(name);
    name.strip_prefix("session.").unwrap_or(name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}
