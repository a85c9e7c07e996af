//! One connection of the model: what it holds, and what it says when its trackers are armed.

use std::collections::BTreeMap;

use inputs::Random;
use mysql_wire::StatusFlags;

use super::op::Op;

pub(crate) const LOGIN_COLLATION: &str = "utf8mb4_unicode_ci";
/// Of a session, and read-only there.
pub(crate) const UNSETTABLE: &str = "max_allowed_packet";
pub(crate) const GLOBALS: &[(&str, &str)] = &[
    ("autocommit", "ON"),
    ("character_set_client", "latin1"),
    ("character_set_results", "latin1"),
    ("collation_connection", "latin1_swedish_ci"),
    ("lc_time_names", "en_US"),
    (UNSETTABLE, "16777216"),
    ("sql_auto_is_null", "OFF"),
    ("sql_log_bin", "ON"),
    ("sql_mode", "STRICT_TRANS_TABLES"),
    ("sql_select_limit", "18446744073709551615"),
    ("time_zone", "SYSTEM"),
    ("transaction_isolation", "REPEATABLE-READ"),
];

/// How the trackers of a connection are armed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Armed {
    pub(crate) variables: String,
    pub(crate) schema: bool,
    pub(crate) state: bool,
    pub(crate) transaction: u8,
    pub(crate) gtids: bool,
}

impl Armed {
    pub(crate) fn by_default() -> Self {
        let variables =
            "time_zone,autocommit,character_set_client,character_set_results,character_set_connection";
        Armed {
            variables: variables.into(),
            schema: true,
            state: false,
            transaction: 0,
            gtids: false,
        }
    }

    pub(crate) fn for_gateway() -> Self {
        Armed {
            variables: "autocommit,last_gtid,collation_connection,*".into(),
            schema: true,
            state: true,
            transaction: 2,
            gtids: true,
        }
    }

    pub(crate) fn tracks(&self, name: &str) -> bool {
        self.variables
            .split(',')
            .any(|tracked| tracked == "*" || tracked == name)
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Transaction {
    pub(crate) explicit: bool,
    pub(crate) read_only: bool,
    pub(crate) isolation: String,
    pub(crate) inserted: u64,
    pub(crate) flags: (bool, bool, bool),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Prepared {
    /// What its text means.
    pub(crate) meaning: String,
    pub(crate) long_data: u32,
    pub(crate) cursor: Option<u32>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Pending {
    pub(crate) variables: BTreeMap<String, String>,
    /// Restored by SET STATEMENT: reported with the next change, not with the next OK.
    pub(crate) restored: bool,
    pub(crate) schema: bool,
    pub(crate) state: bool,
    pub(crate) gtid: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) armed: Armed,
    pub(crate) schema: Option<String>,
    pub(crate) multi: bool,
    pub(crate) user: Option<u8>,
    pub(crate) temporary: bool,
    pub(crate) table_lock: bool,
    pub(crate) read_lock: bool,
    pub(crate) instance_lock: bool,
    pub(crate) transaction: Option<Transaction>,
    pub(crate) next_isolation: Option<String>,
    pub(crate) statements: BTreeMap<u32, Prepared>,
    pub(crate) text_prepared: Option<u8>,
    pub(crate) last_insert_id: u64,
    pub(crate) insert_id: Option<u64>,
    pub(crate) timestamp: Option<u8>,
    pub(crate) role: u8,
    pub(crate) handler: bool,
    pub(crate) last_value: Option<u64>,
    pub(crate) row_count: i64,
    pub(crate) found_rows: u64,
    pub(crate) warnings: Vec<u16>,
    pub(crate) pending: Pending,
    pub(crate) reported: (String, String),
    pub(crate) last_gtid: String,
    /// MariaDB 11.
    pub(crate) names_are_shared: bool,
}

/// What a statement gives.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    pub(crate) rows: Option<Vec<String>>,
    pub(crate) affected: u64,
    pub(crate) insert_id: u64,
    pub(crate) warns: bool,
    pub(crate) status: StatusFlags,
}

pub(crate) fn rows<T: ToString>(value: T) -> Result<Given, u16> {
    Ok(Given {
        rows: Some(vec![value.to_string()]),
        ..Given::default()
    })
}

pub(crate) fn own_collation(charset: &str) -> &'static str {
    match charset {
        "latin1" => "latin1_swedish_ci",
        "gbk" => "gbk_chinese_ci",
        _ => "utf8mb4_general_ci",
    }
}

pub(crate) fn global(name: &str) -> &'static str {
    GLOBALS
        .iter()
        .find(|(known, _)| *known == name)
        .map_or("", |(_, value)| value)
}

impl Connection {
    pub(crate) fn new(armed: Armed, schema: Option<&str>) -> Self {
        let mut variables: BTreeMap<String, String> = GLOBALS
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        variables.insert("character_set_client".into(), "utf8mb4".into());
        variables.insert("character_set_results".into(), "utf8mb4".into());
        variables.insert("collation_connection".into(), LOGIN_COLLATION.into());
        Connection {
            variables,
            armed,
            schema: schema.map(Into::into),
            multi: true,
            user: None,
            temporary: false,
            table_lock: false,
            read_lock: false,
            instance_lock: false,
            transaction: None,
            next_isolation: None,
            statements: BTreeMap::new(),
            text_prepared: None,
            last_insert_id: 0,
            insert_id: None,
            timestamp: None,
            role: 0,
            handler: false,
            last_value: None,
            row_count: 0,
            found_rows: 0,
            warnings: Vec::new(),
            pending: Pending::default(),
            reported: ("________".into(), String::new()),
            last_gtid: String::new(),
            names_are_shared: false,
        }
    }

    /// Closes a statement now and then, as a gateway does that keeps few.
    pub(crate) fn make_room(&mut self, id: u32, random: &mut Random) {
        let held = |prepared: &Prepared| prepared.long_data > 0 || prepared.cursor.is_some();
        if random.one_in(4) && !self.statements.get(&id).is_some_and(held) {
            self.statements.remove(&id);
        }
    }

    pub(crate) fn has_statement(&self, id: u32) -> bool {
        self.statements.contains_key(&id)
    }

    pub(crate) fn variable(&self, name: &str) -> String {
        match name {
            "character_set_connection" => {
                let collation = &self.variables["collation_connection"];
                collation.split('_').next().unwrap_or_default().into()
            }
            name => self.variables.get(name).cloned().unwrap_or_default(),
        }
    }

    pub(crate) fn mark(&mut self, name: &str, value: &str) {
        self.pending.variables.insert(name.into(), value.into());
        self.pending.state = true;
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        let (stored, held) = match name {
            "character_set_connection" => ("collation_connection", own_collation(value)),
            name => (name, value),
        };
        self.variables.insert(stored.into(), held.into());
        self.mark(name, value);
    }

    pub(crate) fn names(&mut self, charset: &str, collation: &str) {
        self.set("character_set_client", charset);
        self.set("character_set_results", charset);
        self.variables
            .insert("collation_connection".into(), collation.into());
        self.mark(
            "character_set_connection",
            collation.split('_').next().unwrap_or_default(),
        );
    }

    pub(crate) fn begin(&mut self, explicit: bool, read_only: bool) {
        let isolation = self
            .next_isolation
            .clone()
            .unwrap_or_else(|| self.variable("transaction_isolation"));
        self.transaction = Some(Transaction {
            explicit,
            read_only,
            isolation,
            ..Transaction::default()
        });
    }

    pub(crate) fn begin_implicitly(&mut self) {
        if self.transaction.is_none() && self.variable("autocommit") == "OFF" {
            self.begin(false, false);
        }
    }

    pub(crate) fn count(&mut self, committed: u64) -> Result<Given, u16> {
        self.begin_implicitly();
        let isolation = match &mut self.transaction {
            Some(open) => {
                open.flags.0 = true;
                open.flags.2 = true;
                open.isolation.clone()
            }
            None => self
                .next_isolation
                .take()
                .unwrap_or_else(|| self.variable("transaction_isolation")),
        };
        let own = self.transaction.as_ref().map_or(0, |open| open.inserted);
        rows(format!("{} {isolation}", committed + own))
    }

    pub(crate) fn execute(&mut self, op: &Op, id: u32) -> Result<Given, u16> {
        let done = || Ok(Given::default());
        match op {
            Op::Set(UNSETTABLE, _) => Err(1621),
            Op::Set(name, value) => {
                self.set(name, value.unwrap_or(global(name)));
                done()
            }
            Op::SetHalf(name, value, half) => {
                if *half {
                    self.set(name, value);
                }
                Err(1231)
            }
            Op::Names(charset, collation) => {
                self.names(charset, collation.unwrap_or(own_collation(charset)));
                done()
            }
            Op::CharacterSet(charset) => {
                self.names(charset, "gbk_bin"); // the schema's
                done()
            }
            Op::Use(schema) | Op::InitDb(schema) => {
                self.schema = Some((*schema).into());
                self.pending.schema = true;
                self.pending.state = true;
                done()
            }
            _ => self.execute_reads(op, id),
        }
    }

    fn execute_reads(&mut self, op: &Op, id: u32) -> Result<Given, u16> {
        let done = || Ok(Given::default());
        match op {
            Op::DropDatabase => {
                self.pending.schema |= self.schema.take().is_some();
                done()
            }
            Op::Read(name) => rows(self.variable(name)),
            Op::ReadSchema => rows(self.schema.clone().unwrap_or("NULL".into())),
            Op::SetUser(value) => {
                self.user = Some(*value);
                self.pending.state = true;
                done()
            }
            Op::SelectIntoUser(value) => {
                self.user = Some(*value);
                done()
            }
            Op::ReadUser => rows(format!("{:?}", self.user)),
            Op::CreateTemporary if self.temporary => Err(1050),
            Op::CreateTemporary => {
                self.temporary = true;
                self.pending.state = true;
                done()
            }
            Op::DropTemporary | Op::ReadTemporary if !self.temporary => Err(1146),
            Op::DropTemporary => {
                self.temporary = false;
                done()
            }
            Op::ReadTemporary => rows("temporary"),
            Op::LastInsertId => rows(self.last_insert_id),
            Op::SelectLastInsertId(value) | Op::SetLastInsertId(value) => {
                self.last_insert_id = *value;
                if let Op::SetLastInsertId(value) = op {
                    self.mark("last_insert_id", &value.to_string());
                    return done();
                }
                rows(value)
            }
            Op::RowCount => rows(self.row_count),
            Op::FoundRows => rows(self.found_rows),
            Op::ShowWarnings => rows(format!("{:?}", self.warnings)),
            Op::Fail => Err(1146),
            Op::SyntaxError => Err(1064),
            Op::IdIsNull => match self.variable("sql_auto_is_null").as_str() {
                "ON" => rows(self.last_insert_id),
                _ => rows("none"),
            },
            Op::SetStatement(value) => {
                self.mark("lc_time_names", value);
                rows(value)
            }
            _ => self.execute_more(op, id),
        }
    }

    pub(crate) fn execute_more(&mut self, op: &Op, id: u32) -> Result<Given, u16> {
        let done = || Ok(Given::default());
        match op {
            Op::LockTables => self.table_lock = true,
            Op::UnlockTables => (self.table_lock, self.read_lock) = (false, false),
            Op::FlushWithReadLock => self.read_lock = true,
            Op::LockInstance => self.instance_lock = true,
            Op::UnlockInstance => self.instance_lock = false,
            Op::Begin => self.begin(true, false),
            Op::BeginReadOnly => self.begin(true, true),
            Op::Rollback => (self.transaction, self.next_isolation) = (None, None),
            Op::NextIsolation(_) if self.transaction.is_some() => return Err(1568),
            Op::NextIsolation(level) => self.next_isolation = Some((*level).into()),
            Op::Prepare(_, false) if self.schema.is_none() => return Err(1046),
            Op::Prepare(_, is_qualified) => {
                let prepared = Prepared {
                    meaning: self.meaning(*is_qualified),
                    ..Prepared::default()
                };
                self.statements.insert(id, prepared);
            }
            Op::Close(_) => {
                self.statements.remove(&id);
            }
            Op::Execute { cursor, .. } => {
                let prepared = self.statements.get_mut(&id).ok_or(1243_u16)?;
                let long_data = std::mem::take(&mut prepared.long_data);
                prepared.cursor = cursor.then_some(2);
                let status = if *cursor {
                    StatusFlags::CURSOR_EXISTS
                } else {
                    StatusFlags(0)
                };
                let rows = if *cursor {
                    vec![]
                } else {
                    vec![format!("{long_data} {}", prepared.meaning)]
                };
                return Ok(Given {
                    rows: Some(rows),
                    status,
                    ..Given::default()
                });
            }
            Op::Fetch(_) => {
                let prepared = self.statements.get_mut(&id).ok_or(1243_u16)?;
                let left = prepared.cursor.ok_or(1421_u16)?;
                prepared.cursor = left.checked_sub(1);
                let last = if left == 0 {
                    StatusFlags::LAST_ROW_SENT
                } else {
                    StatusFlags::CURSOR_EXISTS
                };
                return Ok(Given {
                    rows: Some(vec![left.to_string()]),
                    status: last,
                    ..Given::default()
                });
            }
            Op::LongData(_) => self.statements.get_mut(&id).ok_or(1243_u16)?.long_data += 1,
            Op::ResetStatement(_) => {
                let prepared = self.statements.get_mut(&id).ok_or(1243_u16)?;
                (prepared.long_data, prepared.cursor) = (0, None);
            }
            _ => return self.execute_rest(op),
        }
        done()
    }

    /// What a text means that is prepared now.
    fn meaning(&self, is_qualified: bool) -> String {
        // Not the time zone: what a SET that failed has changed of it is not known in time.
        let names = ["sql_mode", "character_set_client", "collation_connection"];
        let values = names.map(|name| self.variable(name)).join(" ");
        let schema = self.schema.as_deref().filter(|_| !is_qualified);
        format!("{} {values}", schema.unwrap_or("-"))
    }

    fn execute_rest(&mut self, op: &Op) -> Result<Given, u16> {
        match op {
            Op::TextPrepare(value) => {
                self.text_prepared = Some(*value);
                self.pending.state = true;
            }
            Op::TextExecute => return rows(self.text_prepared.ok_or(1243_u16)?),
            Op::SetOption(on) => self.multi = *on,
            Op::SetRole(role) => self.role = *role,
            Op::ReadRole => return rows(self.role),
            Op::HandlerOpen => self.handler = true,
            Op::HandlerRead if self.handler => return rows("handler"),
            Op::HandlerRead => return Err(1109),
            Op::LastVal => return rows(format!("{:?}", self.last_value)),
            Op::SetTimestamp(value) => {
                let old = self.timestamp.unwrap_or(0);
                self.mark("timestamp", &value.unwrap_or(old).to_string());
                self.timestamp = *value;
            }
            Op::Now => return rows(format!("{:?}", self.timestamp)),
            Op::SetInsertId(value) => {
                self.insert_id = Some(*value);
                self.mark("insert_id", &value.to_string());
            }
            Op::Track(name, value) => self.track(name, value),
            _ => return rows(1),
        }
        Ok(Given::default())
    }

    pub(crate) fn track(&mut self, name: &str, value: &str) {
        match name {
            "session_track_system_variables" => self.armed.variables = value.into(),
            "session_track_schema" => self.armed.schema = value == "ON",
            "session_track_state_change" => self.armed.state = value == "ON",
            "session_track_transaction_info" => {
                self.armed.transaction = ["OFF", "STATE", "CHARACTERISTICS"]
                    .iter()
                    .position(|v| *v == value)
                    .unwrap() as u8;
            }
            other => panic!("{other}"),
        }
        self.mark(name, value);
    }

    /// The five, as they are now.
    pub(crate) fn tracking(&self) -> [(&'static str, String); 4] {
        let on = |on| if on { "ON" } else { "OFF" }.to_owned();
        let info = ["OFF", "STATE", "CHARACTERISTICS"][usize::from(self.armed.transaction)];
        [
            ("session_track_system_variables", self.armed.variables.clone()),
            ("session_track_schema", on(self.armed.schema)),
            ("session_track_state_change", on(self.armed.state)),
            ("session_track_transaction_info", info.into()),
        ]
    }
}
