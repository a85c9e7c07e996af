//! A model of a server: what its connections hold, what is shared between them, what it reports and what it
//! does not. Each rule was seen on MariaDB 10.11 and MySQL 9.7.

use std::collections::{BTreeMap, BTreeSet};

use mysql_wire::{Command, OkPacket};
use sql_class::Dialect;

use super::connection::{Armed, Connection, Given, global, rows};
use super::op::{Hidden, Op};

pub(crate) type Reply = Result<(Given, OkPacket), u16>;

#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) dialect: Dialect,
    pub(crate) rows: u64,
    pub(crate) binlog: u64,
    next_id: u64,
    sequence: u64,
    locks: BTreeMap<u8, usize>,
    pub(crate) connections: Vec<Connection>,
}

impl Server {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Server {
            dialect,
            rows: 0,
            binlog: 0,
            next_id: 1,
            sequence: 0,
            locks: BTreeMap::new(),
            connections: Vec::new(),
        }
    }

    pub(crate) fn connect(&mut self, armed: Armed, schema: Option<&str>) -> usize {
        let mut connection = Connection::new(armed, schema);
        connection.names_are_shared = self.names_are_shared();
        self.connections.push(connection);
        self.connections.len() - 1
    }

    /// What all sessions share, to be compared.
    pub(crate) fn shared(&self) -> (u64, u64, u64, BTreeSet<u8>) {
        (
            self.rows,
            self.binlog,
            self.sequence,
            self.locks.keys().copied().collect(),
        )
    }

    /// Values as a login sees them.
    pub(crate) fn variable(&self, at: usize, name: &str) -> String {
        self.connections[at].variable(name)
    }

    pub(crate) fn reset(&mut self, at: usize) {
        self.locks.retain(|_, owner| *owner != at);
        let old = &self.connections[at];
        let mut new = Connection::new(Armed::by_default(), old.schema.as_deref());
        (new.multi, new.found_rows) = (old.multi, old.found_rows);
        if !self.dialect.is_mariadb() {
            for name in [
                "character_set_client",
                "character_set_results",
                "collation_connection",
            ] {
                new.variables.insert(name.into(), global(name).into());
            }
        }
        new.names_are_shared = self.names_are_shared();
        self.connections[at] = new;
    }

    fn names_are_shared(&self) -> bool {
        matches!(self.dialect, Dialect::MariaDb { version } if version >= 110_000)
    }

    /// Runs what a client sends; `id` is the prepared statement's.
    pub(crate) fn run(&mut self, at: usize, op: &Op, id: u32) -> Vec<Reply> {
        match op {
            Op::Multi(..) if !self.connections[at].multi => vec![self.one(at, &Op::SyntaxError, id)],
            Op::Multi(first, second) => {
                let mut replies = vec![self.one(at, first, id)];
                if replies[0].is_ok() {
                    replies.push(self.one(at, second, id));
                }
                replies
            }
            op => vec![self.one(at, op, id)],
        }
    }

    fn one(&mut self, at: usize, op: &Op, id: u32) -> Reply {
        let keeps = matches!(op, Op::ShowWarnings) || (self.dialect.is_mariadb() && op.uses_no_tables());
        // MariaDB keeps them over a prepare that names no table.
        let prepares = matches!(op, Op::Prepare(..)) && !self.dialect.is_mariadb();
        if op.command() == Command::QUERY && !keeps || matches!(op, Op::Execute { .. }) || prepares {
            self.connections[at].warnings.clear();
        }
        let result = self.execute(at, op, id);
        let mariadb = self.dialect.is_mariadb();
        let connection = &mut self.connections[at];
        let is_refused = matches!(op, Op::Prepare(..)) && result.is_err();
        if op.command() == Command::QUERY || matches!(op, Op::Execute { .. }) || is_refused {
            connection.row_count = match &result {
                Ok(Given {
                    rows: None, affected, ..
                }) => *affected as i64,
                _ => -1,
            };
        }
        match result {
            Err(code) => {
                connection.warnings = vec![code];
                Err(code)
            }
            Ok(given) => {
                match (&given.rows, op) {
                    (Some(_), Op::ShowWarnings | Op::Ping) => {}
                    (Some(rows), _) => connection.found_rows = rows.len() as u64,
                    _ => {}
                }
                if matches!(op, Op::CalcFoundRows) {
                    connection.found_rows = 42;
                }
                if given.warns {
                    connection.warnings = vec![1265];
                }
                // No status and no trackers in the answers to these, if there are any.
                let silent = matches!(op, Op::Prepare(..) | Op::Close(_) | Op::LongData(_));
                let ok = match silent {
                    true => OkPacket::default(),
                    false => connection.ok(&given, mariadb),
                };
                if let Op::SetStatement(_) = op {
                    connection.pending.restored = true;
                }
                Ok((given, ok))
            }
        }
    }

    fn others_block(&self, at: usize) -> bool {
        let mut others = self
            .connections
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at);
        others.any(|(_, other)| other.table_lock || other.read_lock)
    }

    fn execute(&mut self, at: usize, op: &Op, id: u32) -> Result<Given, u16> {
        match op {
            Op::GetLock(name) => {
                let owner = *self.locks.entry(*name).or_insert(at);
                return rows(u8::from(owner == at));
            }
            Op::ReleaseLock(name) => {
                let owner = self.locks.get(name).copied();
                if owner == Some(at) {
                    self.locks.remove(name);
                }
                return rows(owner.map_or("NULL".into(), |owner| u8::from(owner == at).to_string()));
            }
            Op::ReleaseAllLocks => {
                let before = self.locks.len();
                self.locks.retain(|_, owner| *owner != at);
                return rows(before - self.locks.len());
            }
            Op::Insert { explicit, warns } => return self.insert(at, *explicit, *warns),
            Op::Call(hidden) => {
                self.hidden(at, *hidden)?;
                return Ok(Given::default());
            }
            Op::Function(hidden) => {
                self.hidden(at, *hidden)?;
                self.connections[at].pending.state |= *hidden == Hidden::UserVariable;
                return rows(1);
            }
            Op::NextVal => {
                self.sequence += 1;
                self.connections[at].last_value = Some(self.sequence);
                return rows(self.sequence);
            }
            Op::Ddl => {
                let mut others = self
                    .connections
                    .iter()
                    .enumerate()
                    .filter(|(other, _)| *other != at);
                if others.any(|(_, other)| other.instance_lock) {
                    return Err(1205);
                }
                self.commit(at);
                return Ok(Given::default());
            }
            Op::Begin | Op::BeginReadOnly | Op::LockTables | Op::DropDatabase => self.commit(at),
            Op::Commit => {
                self.commit(at);
                self.connections[at].next_isolation = None;
                return Ok(Given::default());
            }
            Op::Set("autocommit", Some("ON") | None) if self.variable(at, "autocommit") == "OFF" => {
                self.commit(at)
            }
            Op::Count => {
                let committed = self.rows;
                return self.connections[at].count(committed);
            }
            _ => {}
        }
        self.connections[at].execute(op, id)
    }

    fn hidden(&mut self, at: usize, hidden: Hidden) -> Result<(), u16> {
        match hidden {
            Hidden::UserVariable => self.connections[at].user = Some(99),
            Hidden::Lock(name) => {
                self.locks.entry(name).or_insert(at);
            }
            Hidden::Temporary => self.connections[at].temporary = true,
            Hidden::Insert => {
                self.insert(at, None, false)?;
            }
        }
        Ok(())
    }

    fn insert(&mut self, at: usize, explicit: Option<u64>, warns: bool) -> Result<Given, u16> {
        if self.others_block(at) {
            return Err(1205);
        }
        let connection = &mut self.connections[at];
        if connection.table_lock {
            return Err(1099);
        }
        if connection.read_lock {
            return Err(1223);
        }
        connection.begin_implicitly();
        if connection.transaction.as_ref().is_some_and(|open| open.read_only) {
            return Err(1792);
        }
        let id = explicit.or(connection.insert_id.take()).unwrap_or(self.next_id);
        self.next_id = self.next_id.max(id + 1);
        if explicit.is_none() {
            connection.last_insert_id = id;
        }
        if let Some(open) = &mut connection.transaction {
            open.inserted += 1;
            open.flags.1 = true;
        } else {
            connection.next_isolation = None;
            self.write(at, 1);
        }
        Ok(Given {
            affected: 1,
            insert_id: id,
            warns,
            ..Given::default()
        })
    }

    fn write(&mut self, at: usize, inserted: u64) {
        self.rows += inserted;
        if inserted > 0 && self.variable(at, "sql_log_bin") == "ON" {
            self.binlog += 1;
            self.connections[at].pending.gtid = Some(self.binlog);
        }
    }

    pub(crate) fn commit(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        connection.table_lock = false;
        if let Some(open) = connection.transaction.take() {
            connection.next_isolation = None;
            self.write(at, open.inserted);
        }
    }
}
