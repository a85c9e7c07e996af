//! What the client itself is to see of the session state that servers report to the gateway.
//!
//! The gateway arms every tracker for its own use. A client with SESSION_TRACK gets what it would get from
//! the server directly: by default five variables and the schema; otherwise what it asked for with
//! `SET session_track_…`, which is remembered here as its wish.

use mysql_wire::session_state::Change;
use serde::{Deserialize, Serialize};

/// `session_track_transaction_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum TransactionInfo {
    #[default]
    Off,
    State,
    Characteristics,
}

/// `session_track_system_variables`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrackedVariables {
    All,
    These(Box<[Box<[u8]>]>),
}

/// What a client sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTrackers {
    /// The client has SESSION_TRACK; without it, it sees nothing.
    pub enabled: bool,
    pub variables: TrackedVariables,
    pub schema: bool,
    pub state_change: bool,
    pub transaction_info: TransactionInfo,
    pub gtids: bool,
}

impl ClientTrackers {
    /// What both servers do for a client with SESSION_TRACK that asks for nothing else.
    #[must_use]
    pub fn server_defaults() -> Self {
        Self {
            enabled: true,
            variables: TrackedVariables::parse(
                b"time_zone,autocommit,character_set_client,character_set_results,character_set_connection",
            ),
            schema: true,
            state_change: false,
            transaction_info: TransactionInfo::Off,
            gtids: false,
        }
    }

    /// For a client without SESSION_TRACK.
    #[must_use]
    pub fn none() -> Self {
        Self {
            enabled: false,
            ..Self::server_defaults()
        }
    }

    /// The client has set one of the `session_track_…` variables.
    pub(crate) fn wish(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"session_track_system_variables" => self.variables = TrackedVariables::parse(value),
            b"session_track_schema" => self.schema = is_on(value),
            b"session_track_state_change" => self.state_change = is_on(value),
            b"session_track_gtids" => self.gtids = !matches!(value, b"OFF" | b"0"),
            b"session_track_transaction_info" => {
                self.transaction_info = match value {
                    b"STATE" | b"1" => TransactionInfo::State,
                    b"CHARACTERISTICS" | b"2" => TransactionInfo::Characteristics,
                    _ => TransactionInfo::Off,
                };
            }
            _ => {}
        }
    }

    pub(crate) fn shows(&self, change: &Change<'_>) -> bool {
        self.enabled
            && match change {
                Change::Variable { name, .. } => self.variables.contain(name),
                Change::Schema(_) => self.schema,
                Change::StateChanged(_) => self.state_change,
                Change::Gtids(_) => self.gtids,
                Change::TransactionState(_) => self.transaction_info >= TransactionInfo::State,
                Change::Characteristics(_) => self.transaction_info == TransactionInfo::Characteristics,
                Change::Other { .. } => false,
            }
    }
}

impl TrackedVariables {
    /// A list as the variable holds it: names with commas between them, or `*`.
    #[must_use]
    pub fn parse(list: &[u8]) -> Self {
        let names = list.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        let names: Vec<Box<[u8]>> = names
            .filter(|name| !name.is_empty())
            .map(|name| name.to_ascii_lowercase().into())
            .collect();
        match names.iter().any(|name| **name == *b"*") {
            true => Self::All,
            false => Self::These(names.into()),
        }
    }

    fn contain(&self, name: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.iter().any(|known| known.eq_ignore_ascii_case(name)),
        }
    }
}

fn is_on(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"ON") || value == b"1"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &[u8]) -> Change<'_> {
        Change::Variable { name, value: b"x" }
    }

    #[test]
    fn by_default_five_variables_and_the_schema() {
        let trackers = ClientTrackers::server_defaults();
        assert!(trackers.shows(&variable(b"time_zone")));
        assert!(!trackers.shows(&variable(b"sql_mode")));
        assert!(trackers.shows(&Change::Schema(b"a")));
        assert!(!trackers.shows(&Change::StateChanged(true)));
        assert!(!trackers.shows(&Change::TransactionState(b"________")));
        assert!(!trackers.shows(&Change::Gtids(b"u:1")));
        assert!(!ClientTrackers::none().shows(&Change::Schema(b"a")));
    }

    #[test]
    fn a_clients_wish_is_remembered() {
        let mut trackers = ClientTrackers::server_defaults();
        trackers.wish(b"session_track_system_variables", b" SQL_MODE , time_zone");
        trackers.wish(b"session_track_schema", b"OFF");
        trackers.wish(b"session_track_transaction_info", b"STATE");
        trackers.wish(b"session_track_gtids", b"OWN_GTID");
        assert!(trackers.shows(&variable(b"sql_mode")));
        assert!(!trackers.shows(&variable(b"autocommit")));
        assert!(!trackers.shows(&Change::Schema(b"a")));
        assert!(trackers.shows(&Change::TransactionState(b"T_______")));
        assert!(!trackers.shows(&Change::Characteristics(b"")));
        assert!(trackers.shows(&Change::Gtids(b"u:1")));
        trackers.wish(b"session_track_system_variables", b"*");
        assert_eq!(trackers.variables, TrackedVariables::All);
    }
}
