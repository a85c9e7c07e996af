//! `FOREBAY SHOW LAST`: which server answered the session's last statement, or what else did, in words.

use crate::engine::answered::{Answered, Why};
use crate::engine::client_session::ClientSession;

pub(crate) const COLUMNS: [&str; 4] = ["server", "address", "role", "why"];

/// A statement is about to be sent over the connection that is leased.
pub(crate) fn note_sent(session: &ClientSession) {
    let why = match session.statement.at_primary.get() {
        Some(why) => Why::AtPrimary(why),
        None if session.statement.was_pinned => Why::Held,
        None => Why::Usual,
    };
    if let Some(leased) = &session.lease {
        let is_primary = leased.is_primary;
        let answered = Answered::Server { is_primary, why };
        session.control.of_split.answered.set(answered);
    }
}

/// The row of the answer; none before the first statement.
pub(crate) fn rows(session: &ClientSession) -> Vec<Vec<String>> {
    let row = |parts: [&str; 4]| vec![parts.map(str::to_owned).to_vec()];
    match (session.control.of_split.answered.get(), &session.last.server) {
        (Answered::Server { is_primary, why }, Some(server)) => {
            let role = if is_primary { "primary" } else { "replica" };
            row([server.name(), &server.address().to_string(), role, label(why)])
        }
        (Answered::Memory, _) => row(["", "", "memory", "point-lookup"]),
        (Answered::Gateway, _) => row(["", "", "gateway", ""]),
        (Answered::Nobody | Answered::Server { .. }, _) => Vec::new(),
    }
}

fn label(why: Why) -> &'static str {
    match why {
        Why::Usual => "",
        Why::Held => "held",
        Why::AtPrimary(why) => why.label(),
    }
}
