//! The query attribute `forebay_explain`: why a statement went where it went, as a Note that `SHOW WARNINGS`
//! has.
//!
//! The statement is executed as ever. The words of [`super::explain`] about it are kept until the session's
//! next statement. If that is `SHOW WARNINGS`, the gateway answers it, provided the server has no warnings of
//! its own to show.

use std::rc::Rc;

use mysql_wire::query::Query;
use mysql_wire::statement::ExecuteHead;
use mysql_wire::{Capabilities, Command};
use session::Prepared;
use sql_class::text::shows_warnings;
use sql_class::{Effects, Facts};

use crate::command_head::CommandHead;
use crate::engine::client_session::{ClientSession, ExplainWarning};
use crate::engine::next::{Execution, Next};
use crate::engine::{answer, command, explain, rules};
use crate::error::SessionError;

/// The attribute; its value does not count.
const ATTRIBUTE: &[u8] = b"forebay_explain";

/// `ER_YES`, which servers use for notes on how a statement was understood.
const CODE: &str = "1003";

/// The longest warning, in bytes.
const LONGEST: usize = 4096;

/// COM_QUERY that asks for an explanation, or comes after one that did.
pub(crate) async fn query(
    session: &mut ClientSession,
    head: CommandHead,
    facts: Facts,
) -> Result<Next, SessionError> {
    let payload = command::payload(session, head);
    let text = command::text(payload, session.client.capabilities).unwrap_or_default();
    let (shows, asks) = (
        facts.effects.contains(Effects::READS_DIAGNOSTICS) && shows_warnings(text),
        is_asked(payload, session.client.capabilities),
    );
    let text = String::from_utf8_lossy(text).into_owned();
    if let Some(note) = session.last.explain_warning.take()
        && shows
        && note.turn == session.last.turn
        && session.state.warning_count() == 0
    {
        let row = vec!["Note".to_owned(), CODE.to_owned(), note.words.to_string()];
        // The client may ask for it again.
        session.last.explain_warning = Some(note);
        return answer::rows(session, &["Level", "Code", "Message"], &[row]).await;
    }
    if asks {
        session.statement.explanation = Some(explain::explain(session, &text).await.into());
    }
    Ok(Next::rule_query(head, facts))
}

/// Ends the statement: its explanation can be shown from here on.
pub(crate) fn finish(session: &mut ClientSession) {
    if let Some(rows) = session.statement.explanation.take() {
        let words = in_words(&rows, session.server_name());
        let turn = session.last.turn;
        session.last.explain_warning = Some(Box::new(ExplainWarning { words, turn }));
    }
}

/// Whether the execution of a prepared statement is for [`execute()`].
#[inline]
pub(crate) fn concerns_execution(session: &ClientSession, head: CommandHead, prepared: &Prepared) -> bool {
    let capabilities = session.client.capabilities;
    capabilities.contains(Capabilities::QUERY_ATTRIBUTES)
        && is_asked_with(command::payload(session, head), prepared.params, capabilities)
}

/// The execution of a prepared statement that asks for an explanation.
pub(crate) async fn execute(session: &mut ClientSession, execution: Execution) -> Result<Next, SessionError> {
    let text = rules::original(session, execution.id).unwrap_or_else(|| Rc::clone(&execution.prepared.text));
    let rows = explain::explain(session, &String::from_utf8_lossy(&text)).await;
    session.statement.explanation = Some(rows.into());
    Ok(Next::RuleExecution(Box::new(execution)))
}

/// Whether an execution asks for an explanation. The usual execution has as many parameters as its statement,
/// and no attributes.
fn is_asked_with(payload: &[u8], parameters: u16, capabilities: Capabilities) -> bool {
    const FLAGS: usize = 5;
    const COUNT: usize = 10;
    const COUNTS_PARAMETERS: u8 = 0x08;
    let counts = parameters > 0
        || payload
            .get(FLAGS)
            .is_some_and(|flags| flags & COUNTS_PARAMETERS != 0);
    let is_usual = parameters < 251 && payload.get(COUNT) == Some(&(parameters as u8));
    counts
        && !is_usual
        && payload.first() == Some(&Command::STMT_EXECUTE.0)
        && ExecuteHead::decode(payload, parameters, capabilities)
            .is_ok_and(|head| head.attributes > 0 && head.has_attribute(payload, ATTRIBUTE))
}

fn is_asked(payload: &[u8], capabilities: Capabilities) -> bool {
    payload.first() == Some(&Command::QUERY.0)
        && Query::decode(payload, capabilities).is_ok_and(|query| {
            query
                .attributes
                .iter()
                .any(|attribute| attribute.name == ATTRIBUTE)
        })
}

/// The rows of an explanation in one line; where the statement would have gone is replaced by where it went.
fn in_words(rows: &[Vec<String>], server: &str) -> Box<str> {
    let said = |row: &&Vec<String>| match row.as_slice() {
        [what, value] => {
            let is_other_rule = what.starts_with("rule ") && value != "matches";
            what != "server" && what != "digest_text" && !value.is_empty() && !is_other_rule
        }
        _ => false,
    };
    let parts = rows.iter().filter(said).map(|row| row.join(" "));
    let mut words = format!("ran on {server}; {}", parts.collect::<Vec<_>>().join("; "));
    words.truncate(words.floor_char_boundary(LONGEST));
    words.into()
}

#[cfg(test)]
mod tests {
    use sql_class::Syntax;

    use super::*;

    #[test]
    fn an_attribute_of_this_name_asks() {
        let attributes = Capabilities::QUERY_ATTRIBUTES;
        let asking = b"\x03\x01\x01\x00\x01\xfe\x00\x0fforebay_explain\x011SELECT 1";
        assert!(is_asked(asking, attributes));
        assert!(!is_asked(
            &asking.map(|byte| if byte == b'y' { b'z' } else { byte }),
            attributes
        ));
        assert!(!is_asked(b"\x03\x00\x01SELECT 1", attributes));
        assert!(!is_asked(b"\x03forebay_explain", Capabilities::PROTOCOL_41));
    }

    #[test]
    fn and_so_it_does_with_an_execution() {
        let attributes = Capabilities::QUERY_ATTRIBUTES;
        let asks = |flags: u8, rest: &[u8], parameters| {
            let payload = [b"\x17\x07\0\0\0", &[flags][..], b"\x01\0\0\0", rest].concat();
            is_asked_with(&payload, parameters, attributes)
        };
        let attribute = b"\xfe\0\x0fforebay_explain";
        let alone = [&b"\x01\0\x01"[..], attribute, b"\x011"].concat();
        let behind = [&b"\x02\0\x01\x08\0\0"[..], attribute, b"\x01\0\0\0\0\0\0\0\x011"].concat();
        assert!(asks(8, &alone, 0) && asks(8, &behind, 1) && asks(0, &behind, 1));
        assert!(!asks(0, &alone, 0), "nothing counts them");
        assert!(!asks(8, b"\0", 0) && !asks(0, b"", 0));
        assert!(!asks(8, b"\x01\0\x01\x08\0\0\x01\0\0\0\0\0\0\0", 1));
        assert!(!asks(8, &alone[..8], 0), "cut off");
    }

    #[test]
    fn show_warnings_is_found_in_its_plain_form_only() {
        let shows = |text: &str| {
            let facts = sql_class::facts(text.as_bytes(), Syntax::default());
            facts.effects.contains(Effects::READS_DIAGNOSTICS) && shows_warnings(text.as_bytes())
        };
        assert!(shows("SHOW WARNINGS") && shows(" show  warnings ; "));
        for other in [
            "SHOW WARNINGS LIMIT 1",
            "SHOW ERRORS",
            "SHOW COUNT(*) WARNINGS",
            "SELECT 1",
        ] {
            assert!(!shows(other), "{other}");
        }
    }

    #[test]
    fn a_note_says_where_it_ran_and_which_rules_counted() {
        let row = |what: &str, value: &str| vec![what.to_owned(), value.to_owned()];
        let rows = [
            row("class", "read"),
            row("effects", ""),
            row("rule a", "matches"),
            row("rule b", "differs: user"),
            row("server", "db2"),
        ];
        assert_eq!(&*in_words(&rows, "db3"), "ran on db3; class read; rule a matches");
    }
}
