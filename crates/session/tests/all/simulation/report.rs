//! What a connection of the model reports, and what the gateway's own commands do on it, read from their
//! bytes.

use mysql_wire::session_state::Change;
use mysql_wire::{Command, OkPacket, StatusFlags};
use sql_class::Dialect;

use super::connection::{Connection, Given, UNSETTABLE, global, own_collation};

/// Told as the first of them that was named when the trackers were armed.
const TOGETHER: &[&[&str]] = &[
    &[
        "last_gtid",
        "last_insert_id",
        "timestamp",
        "insert_id",
        "sql_select_limit",
    ],
    &["autocommit", "sql_auto_is_null"],
    &["collation_connection", "character_set_connection"],
];

impl Connection {
    fn status(&self, mariadb: bool) -> StatusFlags {
        let mode = self.variable("sql_mode");
        let mut status = StatusFlags(0);
        let flags = [
            (self.transaction.is_some(), StatusFlags::IN_TRANS),
            (
                self.transaction.as_ref().is_some_and(|open| open.read_only),
                StatusFlags::IN_TRANS_READONLY,
            ),
            (self.variable("autocommit") == "ON", StatusFlags::AUTOCOMMIT),
            (
                mode.contains("NO_BACKSLASH_ESCAPES"),
                StatusFlags::NO_BACKSLASH_ESCAPES,
            ),
            (mariadb && mode.contains("ANSI_QUOTES"), StatusFlags::ANSI_QUOTES),
        ];
        for (_, flag) in flags.iter().filter(|(on, _)| *on) {
            status.insert(*flag);
        }
        status
    }

    fn transaction_state(&self) -> (String, String) {
        let mut state = [b'_'; 8];
        let mut text = self.next_isolation.as_ref().map_or(String::new(), |level| {
            format!("SET TRANSACTION ISOLATION LEVEL {level};")
        });
        if let Some(open) = &self.transaction {
            state[0] = if open.explicit { b'T' } else { b'I' };
            let (read, write, sent) = open.flags;
            state[2] = if read { b'R' } else { b'_' };
            state[4] = if write { b'W' } else { b'_' };
            state[6] = if sent { b'S' } else { b'_' };
            if open.explicit {
                text.push_str(if open.read_only {
                    "START TRANSACTION READ ONLY;"
                } else {
                    "START TRANSACTION;"
                });
            }
        }
        state[7] = if self.table_lock { b'L' } else { b'_' };
        (String::from_utf8(state.into()).unwrap(), text)
    }

    /// The name that MariaDB 11 has for a variable and those that are kept with it, and that one's value.
    fn told_as(&self, name: &str) -> Option<(String, String)> {
        let together = TOGETHER.iter().find(|together| together.contains(&name));
        let Some(together) = together else {
            return Some((name.into(), self.reported_value(name)));
        };
        let named = self
            .armed
            .variables
            .split(',')
            .find(|known| together.contains(known));
        let name = named.or_else(|| self.armed.tracks("*").then_some(together[0]))?;
        Some((name.into(), self.reported_value(name)))
    }

    fn reported_value(&self, name: &str) -> String {
        match name {
            "last_gtid" => self.last_gtid.clone(),
            "session_track_system_variables" => self.armed.variables.clone(),
            name if name.starts_with("session_track_") => {
                let tracking = self.tracking();
                let known = tracking.into_iter().find(|(known, _)| *known == name);
                known.map_or(String::new(), |(_, value)| value)
            }
            name => self.variable(name),
        }
    }

    /// The OK packet, with what the trackers have to say since the last one.
    pub(crate) fn ok(&mut self, given: &Given, mariadb: bool) -> OkPacket {
        let mut pending = std::mem::take(&mut self.pending);
        if pending.restored && (pending.state || pending.schema || !pending.variables.is_empty()) {
            let restored = self.variable("lc_time_names");
            pending
                .variables
                .entry("lc_time_names".into())
                .or_insert(restored);
        } else {
            self.pending.restored = pending.restored;
        }
        let mut state = Vec::new();
        if let (Some(gtid), true) = (pending.gtid, mariadb) {
            self.last_gtid = format!("0-1-{gtid}");
            pending
                .variables
                .insert("last_gtid".into(), self.last_gtid.clone());
        }
        if self.names_are_shared {
            let told = pending.variables.keys().filter_map(|name| self.told_as(name));
            let told: Vec<_> = told.collect();
            pending.variables = told.into_iter().collect();
        }
        for (name, value) in pending
            .variables
            .iter()
            .filter(|(name, _)| self.armed.tracks(name))
        {
            Change::Variable {
                name: name.as_bytes(),
                value: value.as_bytes(),
            }
            .encode(&mut state);
        }
        if pending.schema && self.armed.schema {
            Change::Schema(self.schema.as_deref().unwrap_or("").as_bytes()).encode(&mut state);
        }
        if pending.state && self.armed.state {
            Change::StateChanged(true).encode(&mut state);
        }
        if let (Some(gtid), false, true) = (pending.gtid, mariadb, self.armed.gtids) {
            Change::Gtids(format!("u:{gtid}").as_bytes()).encode(&mut state);
        }
        let now = self.transaction_state();
        if now.0 != self.reported.0 && self.armed.transaction >= 1 {
            Change::TransactionState(now.0.as_bytes()).encode(&mut state);
        }
        if now.1 != self.reported.1 && self.armed.transaction == 2 {
            Change::Characteristics(now.1.as_bytes()).encode(&mut state);
        }
        self.reported = now;
        let mut status = self.status(mariadb).with(given.status);
        if !state.is_empty() {
            status.insert(StatusFlags::SESSION_STATE_CHANGED);
        }
        OkPacket {
            affected_rows: given.affected,
            last_insert_id: given.insert_id,
            status,
            warnings: u16::from(given.warns),
            info: Vec::new(),
            session_state: state,
        }
    }

    /// A command of the gateway's own, from its bytes.
    pub(crate) fn rebuild(&mut self, payload: &[u8], mariadb: bool) -> OkPacket {
        let text = std::str::from_utf8(&payload[1..]).unwrap_or_default();
        match Command(payload[0]) {
            Command::INIT_DB => {
                assert!(!text.is_empty(), "no connection can be made to have no schema");
                self.schema = Some(text.into());
            }
            Command::SET_OPTION => self.multi = payload[1] == 0,
            Command::QUERY if text.starts_with("DO ") => self.warnings.clear(),
            Command::QUERY if text == "VALUES (LAST_INSERT_ID()) LIMIT 1" => {}
            Command::QUERY => {
                self.assign(text.strip_prefix("SET ").unwrap());
                if !text.starts_with("SET last_insert_id") {
                    self.warnings = vec![3090]; // now and then on a real server; here always
                } else if !mariadb {
                    self.warnings.clear();
                }
            }
            other => panic!("{}", other.name()),
        }
        let mut ok = self.ok(&Given::default(), mariadb);
        ok.warnings = self.warnings.len() as u16;
        ok
    }

    /// `SET x=@@x, …` of the gateway. None where one of them may not be set.
    pub(crate) fn ask_by_setting(&mut self, payload: &[u8], dialect: Dialect) -> Option<OkPacket> {
        let text = std::str::from_utf8(&payload[1..]).unwrap();
        if text.contains(UNSETTABLE) {
            return None; // before anything is set
        }
        for item in text.strip_prefix("SET ").unwrap().split(", ") {
            let (name, same) = item.split_once("=@@").unwrap();
            assert_eq!(name, same);
            self.set(name, &self.variable(name));
        }
        Some(self.ok(&Given::default(), dialect.is_mariadb()))
    }

    fn assign(&mut self, list: &str) {
        for item in list.split(", ") {
            if let Some(names) = item.strip_prefix("NAMES ") {
                let (charset, collation) = names.split_once(" COLLATE ").unwrap_or((names, ""));
                let charset = charset.trim_matches('\'');
                let collation = Some(collation.trim_matches('\'')).filter(|name| !name.is_empty());
                self.names(charset, collation.unwrap_or(own_collation(charset)));
                continue;
            }
            let (name, value) = item.split_once('=').unwrap();
            assert_ne!(name, UNSETTABLE, "may not be set");
            match (name, unquoted(value)) {
                ("last_insert_id", value) => {
                    // What else it is set to is what it is.
                    self.last_insert_id = value.unwrap().parse().unwrap_or(self.last_insert_id);
                    self.mark("last_insert_id", &self.last_insert_id.to_string());
                }
                ("character_set_connection", None) => {
                    self.set("collation_connection", global("collation_connection"))
                }
                (name, value) => self.set(name, value.as_deref().unwrap_or(global(name))),
            }
        }
    }
}

/// The value of a literal as the gateway writes it; `None` for `DEFAULT`.
fn unquoted(literal: &str) -> Option<String> {
    if literal == "DEFAULT" {
        return None;
    }
    if literal == "NULL" {
        return Some(String::new());
    }
    if let Some(digits) = literal.strip_prefix("_utf8mb4 0x") {
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        return Some(String::from_utf8(bytes).unwrap());
    }
    assert!(
        !literal.contains('\\') && !literal.contains('"'),
        "{literal} is read by the rules of sql_mode"
    );
    Some(literal.trim_matches('\'').into())
}
