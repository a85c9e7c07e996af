//! Prepared statements: their texts, and the types of parameters that the server has of them.

use mysql_wire::statement::{ExecuteHead, PrepareOk, statement_id};
use mysql_wire::{Capabilities, Command, ErrPacket};
use sql_class::{Charset, Syntax, point_lookup};

use super::{
    ANY_OTHER, Found, NOTHING, OfSession, Other, Prepared, STATEMENTS_MAX, Step, ToldColumns, catch_up,
    classify, forward, forward_statement, go_on, left, settings, step,
};
use crate::error::SessionError;
use crate::lookups::{self, Asked, Environment, Finding, Left, Parameters, Recorder, Told};
use crate::session::{CommandHead, Session};

/// MariaDB's name for the statement that was prepared last.
const LAST: u32 = u32::MAX;

/// What [`LAST`] stands for.
#[derive(Clone, Copy, Default)]
pub(super) enum LastPrepared {
    #[default]
    Unknown,
    /// Nothing: the server has refused it.
    Refused,
    Statement(u32),
}

/// COM_STMT_PREPARE: the statement is remembered by the id that the server gives it.
pub(super) async fn prepare(
    session: &mut Session,
    of: &mut OfSession,
    head: CommandHead,
) -> Result<(), SessionError> {
    // Its warnings and errors take the place of those of the statement before.
    catch_up(session, of).await?;
    let payload = lookups::whole_payload(session.streams.up.unseen(), head.payload_len).unwrap_or_default();
    let text: Option<Box<[u8]>> = payload.get(1..).map(Box::from);
    let other = text
        .as_ref()
        .map_or(ANY_OTHER, |text| classify(session, of, text));
    // Of others, and there may be thousands, no more needs to be known.
    let may_be_lookup = text
        .as_ref()
        .is_some_and(|text| may_be_read_as_lookup(text, of.syntax));
    let text = text.map(|text| if may_be_lookup { text } else { Box::default() });
    let definitions = of.lookups.definitions();
    let mut recorder = Recorder::default();
    forward(session, of, head, Some(&mut recorder)).await?;
    let told = recorder
        .answer()
        .filter(|_| may_be_lookup && caches_columns(session))
        .map(|answer| ToldColumns {
            definitions,
            answer: answer.into(),
        });
    let prepared = recorder
        .head()
        .and_then(|payload| PrepareOk::decode(payload).ok());
    of.last_prepared = match recorder.head() {
        Some([ErrPacket::HEADER, ..]) => LastPrepared::Refused,
        _ => LastPrepared::Unknown,
    };
    if let Some((text, prepared)) = text.zip(prepared)
        && of.statements.len() < STATEMENTS_MAX
    {
        of.last_prepared = LastPrepared::Statement(prepared.statement_id);
        of.statements.insert(
            prepared.statement_id,
            Prepared {
                text,
                other,
                changes: of.changes,
                parameters: prepared.parameters,
                types: None,
                has_long_data: false,
                told,
                is_lookup: None,
                plan: None,
            },
        );
    }
    Ok(())
}

/// Whether a text is a lookup to any session: how it is read may be known later.
fn may_be_read_as_lookup(text: &[u8], syntax: Syntax) -> bool {
    let mut readings = [false, true].into_iter().map(|ansi_quotes| Syntax {
        ansi_quotes,
        no_backslash_escapes: true,
        charset: Charset::Utf8,
        ..syntax
    });
    readings.any(|syntax| point_lookup(text, syntax).is_some())
}

pub(super) fn note_statement(of: &mut OfSession, command: Command, payload: &[u8]) {
    let id = statement_id(payload).ok().flatten();
    match (id.and_then(|id| Some((id, of.statements.get_mut(&id)?))), command) {
        (Some((id, _)), Command::STMT_CLOSE) => drop(of.statements.remove(&id)),
        (Some((_, statement)), Command::STMT_SEND_LONG_DATA) => statement.has_long_data = true,
        (Some((_, statement)), Command::STMT_RESET) => statement.has_long_data = false,
        // Long data of a command that was not seen whole: of any statement.
        (None, Command::STMT_SEND_LONG_DATA) => {
            of.statements
                .values_mut()
                .for_each(|statement| statement.has_long_data = true);
        }
        _ => {}
    }
}

/// Whether a command may be about the statement that another one executes.
pub(super) fn is_about_the_same(execution: &[u8], payload: &[u8]) -> bool {
    let id = |payload| statement_id(payload).ok().flatten();
    id(execution).is_some_and(|executed| id(payload).is_none_or(|id| id == executed || id == LAST))
}

/// COM_STMT_EXECUTE of a statement that was answered before, or is no lookup. `None`: more has to be looked
/// at.
pub(super) fn execute_now(session: &Session, of: &mut OfSession, head: CommandHead) -> Option<Found> {
    let seen = session.payload(head);
    let id = statement_id(seen).ok().flatten()?;
    let statement = of.statements.get_mut(&id)?;
    if !statement.may_be_lookup(of.changes, of.syntax) {
        return Some(Found::Other(statement.begin_other(seen, session.capabilities)));
    }
    let payload = lookups::whole_payload(session.streams.up.unseen(), head.payload_len)?;
    let environment = settings::ready_now(session, of)?;
    let statement = of.statements.get(&id)?;
    let (known_in, plan) = statement.plan.as_ref()?;
    if *known_in != environment {
        return None;
    }
    let sent = ExecuteHead::decode(payload, statement.parameters, session.capabilities).ok()?;
    if !statement.may_answer(&sent) {
        return None;
    }
    let parameters = statement.parameters_of(&sent, payload)?;
    let finding = of
        .lookups
        .find_again(plan, &parameters, statement.told(), &mut of.key)?;
    Some(Found::Lookup(step(session, of, finding)))
}

impl Prepared {
    /// Whether the server needs nothing that comes with this execution, and it may be answered without it.
    fn may_answer(&self, sent: &ExecuteHead) -> bool {
        let has_types = self.parameters == 0
            || (self.types.is_some()
                && sent
                    .types()
                    .is_none_or(|types| Some(types) == self.types.as_deref()));
        has_types && !sent.opens_cursor && sent.attributes == 0 && !self.has_long_data
    }

    fn parameters_of<'a>(&'a self, sent: &'a ExecuteHead, payload: &'a [u8]) -> Option<Parameters<'a>> {
        let (types, nulls) = match self.parameters {
            0 => (&[][..], &[][..]),
            _ => (
                sent.types().or(self.types.as_deref())?,
                payload.get(sent.nulls()?)?,
            ),
        };
        Some(Parameters {
            types,
            nulls,
            values: payload.get(sent.len..)?,
        })
    }

    fn told(&self) -> Option<Told<'_>> {
        let told = self.told.as_ref()?;
        Some(Told {
            definitions: told.definitions,
            answer: &told.answer,
        })
    }

    /// Whether it is a lookup, and means what it meant when it was prepared.
    fn may_be_lookup(&mut self, changes: u32, syntax: Syntax) -> bool {
        self.changes == changes && self.is_lookup(syntax)
    }

    /// An execution that is no lookup goes to the server.
    fn begin_other(&mut self, payload: &[u8], capabilities: Capabilities) -> Other {
        self.note_types(ExecuteHead::decode(payload, self.parameters, capabilities).ok());
        self.other.clone()
    }

    /// An execution goes to the server, with its types.
    fn note_types(&mut self, sent: Option<ExecuteHead>) {
        self.has_long_data = false;
        match sent {
            Some(sent) => {
                if let Some(types) = sent.types()
                    && self.types.as_deref() != Some(types)
                {
                    self.types = Some(types.into());
                }
            }
            None => self.types = None,
        }
    }

    fn is_lookup(&mut self, syntax: Syntax) -> bool {
        match self.is_lookup {
            Some((known, is_lookup)) if known == syntax => is_lookup,
            _ => {
                let is_lookup = point_lookup(&self.text, syntax).is_some();
                self.is_lookup = Some((syntax, is_lookup));
                is_lookup
            }
        }
    }
}

/// COM_STMT_EXECUTE.
pub(super) async fn execute(
    session: &mut Session,
    of: &mut OfSession,
    head: CommandHead,
    found: Found,
) -> Result<(), SessionError> {
    if let Found::Other(other) = &found {
        return forward_statement(session, of, head, other).await;
    }
    let payload = session.payload(head);
    let id = statement_id(payload).ok().flatten();
    let Some((id, statement)) = id.and_then(|id| Some((id, of.statements.get_mut(&id)?))) else {
        return execute_unseen(session, of, head).await;
    };
    if !statement.may_be_lookup(of.changes, of.syntax) {
        let other = statement.begin_other(payload, session.capabilities);
        return forward_statement(session, of, head, &other).await;
    }
    let sent = ExecuteHead::decode(payload, statement.parameters, session.capabilities).ok();
    let may_answer = sent.as_ref().is_some_and(|sent| statement.may_answer(sent));
    let step = match found {
        Found::Lookup(step) => step,
        _ => match settings::ready(session, of).await? {
            Ok(environment) => find_execution(session, of, head, id, environment),
            Err(reason) => left(session, reason),
        },
    };
    let step = match step {
        // Its types are what the server needs for those to come.
        Step::Answer(_) if !may_answer => left(session, Left::Learned),
        step => step,
    };
    if let (false, Some(statement)) = (matches!(step, Step::Answer(_)), of.statements.get_mut(&id)) {
        statement.note_types(sent);
    }
    let definitions = of.lookups.definitions();
    let mut recorder = caches_columns(session).then(Recorder::default);
    go_on(session, of, head, step, &mut recorder).await?;
    if let Some(recorder) = &recorder {
        note_columns(of, id, definitions, recorder);
    }
    Ok(())
}

/// An execution that is not looked at: in bulk, or of the statement that was prepared last, by that name.
pub(super) async fn execute_unseen(
    session: &mut Session,
    of: &mut OfSession,
    head: CommandHead,
) -> Result<(), SessionError> {
    let payload = session.payload(head);
    let id = match (statement_id(payload).ok().flatten(), of.last_prepared) {
        (Some(LAST), LastPrepared::Refused) => {
            return forward_statement(session, of, head, &NOTHING).await;
        }
        (Some(LAST), LastPrepared::Statement(id)) => Some(id),
        (id, _) => id,
    };
    let statement = id.and_then(|id| of.statements.get_mut(&id));
    let other = statement.map(|statement| match head.command {
        Command::STMT_EXECUTE => statement.begin_other(payload, session.capabilities),
        _ => {
            statement.note_types(None);
            statement.other.clone()
        }
    });
    forward_statement(session, of, head, &other.unwrap_or(ANY_OTHER)).await
}

/// Columns that a client was told once are only told again when they have changed.
fn caches_columns(session: &Session) -> bool {
    session
        .capabilities
        .contains(Capabilities::MARIADB_CACHE_METADATA)
}

/// A server has answered an execution: what the client knows of the columns is of now.
fn note_columns(of: &mut OfSession, id: u32, definitions: u64, recorder: &Recorder) {
    let Some(statement) = of.statements.get_mut(&id) else {
        return;
    };
    match (recorder.head(), &mut statement.told) {
        (Some([_, 0]), Some(told)) => told.definitions = definitions,
        (Some([_, 1]), told) => {
            *told = recorder.answer().map(|answer| ToldColumns {
                definitions,
                answer: answer.into(),
            });
        }
        _ => {}
    }
}

fn find_execution(
    session: &Session,
    of: &mut OfSession,
    head: CommandHead,
    id: u32,
    environment: Environment,
) -> Step {
    let found = (|| {
        let statement = of.statements.get(&id)?;
        let payload = lookups::whole_payload(session.streams.up.unseen(), head.payload_len)?;
        let sent = ExecuteHead::decode(payload, statement.parameters, session.capabilities).ok()?;
        let lookup = point_lookup(&statement.text, of.syntax)?;
        if sent.opens_cursor || sent.attributes > 0 || statement.has_long_data {
            return None;
        }
        let asked = Asked {
            lookup: &lookup,
            text: &statement.text,
            parameters: Some(statement.parameters_of(&sent, payload)?),
            told: statement.told(),
        };
        let finding = of.lookups.find(environment, &asked, &mut of.key);
        Some((finding, lookup.has_only_parameters()))
    })();
    let Some((finding, is_same_for_all)) = found else {
        return Step::Forward;
    };
    if let (Finding::Answer(plan), true, Some(statement)) =
        (&finding, is_same_for_all, of.statements.get_mut(&id))
    {
        statement.plan = Some((environment, plan.clone()));
    }
    step(session, of, finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_text_is_enough_however_it_is_read() {
        let is_kept = |text: &str| may_be_read_as_lookup(text.as_bytes(), Syntax::default());
        for text in [
            "SELECT c FROM t WHERE id=?",
            "SELECT \"c\" FROM t WHERE id=?",
            "SELECT c FROM t WHERE id=\"1\"",
            "SELECT c FROM t WHERE k='\\' AND b=?",
            "SELECT c FROM t WHERE k='é' AND b=?",
        ] {
            assert!(is_kept(text), "{text}");
        }
        for text in [
            "UPDATE t SET c=? WHERE id=?",
            "SELECT c FROM t WHERE id=? OR id=?",
            "",
        ] {
            assert!(!is_kept(text), "{text}");
        }
    }
}
