//! Prepared statements: their texts, and the types of parameters that the server has of them.

use mysql_wire::statement::{ExecuteHead, PrepareOk, statement_id};
use mysql_wire::{Capabilities, Command};
use sql_class::{Facts, point_lookup};

use super::{
    ANYTHING, OfSession, Prepared, STATEMENTS_MAX, Step, ToldColumns, begins_with_select, catch_up, classify,
    forward, forward_statement, go_on, left, settings, step,
};
use crate::error::SessionError;
use crate::lookups::{self, Asked, Environment, Left, Parameters, Recorder, Told};
use crate::session::{CommandHead, Session};

/// COM_STMT_PREPARE: the statement is remembered by the id that the server gives it.
pub(super) async fn prepare(
    session: &mut Session,
    of: &mut OfSession,
    head: CommandHead,
) -> Result<(), SessionError> {
    // Its warnings and errors take the place of those of the statement before.
    catch_up(session, of).await?;
    let payload = lookups::whole_payload(session.wires.up.unseen(), head.payload_len).unwrap_or_default();
    let text: Option<Box<[u8]>> = payload.get(1..).map(Box::from);
    let facts = text.as_ref().map_or(ANYTHING, |text| classify(session, of, text));
    let definitions = of.lookups.definitions();
    let mut recorder = Recorder::default();
    forward(session, of, head, Some(&mut recorder)).await?;
    let told = recorder
        .answer()
        .filter(|_| caches_columns(session))
        .map(|answer| ToldColumns {
            definitions,
            answer: answer.into(),
        });
    let prepared = recorder
        .head()
        .and_then(|payload| PrepareOk::decode(payload).ok());
    if let Some((text, prepared)) = text.zip(prepared)
        && of.statements.len() < STATEMENTS_MAX
    {
        of.statements.insert(
            prepared.statement_id,
            Prepared {
                text,
                facts,
                changes: of.changes,
                parameters: prepared.parameters,
                types: None,
                has_long_data: false,
                told,
            },
        );
    }
    Ok(())
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
    /// MariaDB's name for the statement that was prepared last.
    const LAST: u32 = u32::MAX;
    let id = |payload| statement_id(payload).ok().flatten();
    id(execution).is_some_and(|executed| id(payload).is_none_or(|id| id == executed || id == LAST))
}

/// COM_STMT_EXECUTE.
pub(super) async fn execute(
    session: &mut Session,
    of: &mut OfSession,
    head: CommandHead,
) -> Result<(), SessionError> {
    let payload = lookups::whole_payload(session.wires.up.unseen(), head.payload_len).unwrap_or_default();
    let id = statement_id(payload).ok().flatten();
    let Some((id, statement)) = id.and_then(|id| Some((id, of.statements.get(&id)?))) else {
        return forward_statement(session, of, head, &ANYTHING, false).await;
    };
    let (facts, is_select) = (statement.facts.clone(), begins_with_select(&statement.text));
    let sent = ExecuteHead::decode(payload, statement.parameters, session.capabilities).ok();
    let may_answer = sent.as_ref().is_some_and(|sent| {
        let has_types = statement.parameters == 0
            || sent.types().or(statement.types.as_deref()) == statement.types.as_deref();
        let has_types = has_types && (statement.parameters == 0 || statement.types.is_some());
        has_types && !sent.opens_cursor && sent.attributes == 0 && !statement.has_long_data
    });
    let is_lookup = statement.changes == of.changes && point_lookup(&statement.text, of.syntax).is_some();
    if !is_lookup {
        return forward_execution(session, of, head, id, sent, &facts, is_select).await;
    }
    let step = match settings::ready(session, of).await? {
        Ok(environment) => find_execution(session, of, head, id, environment),
        Err(reason) => left(session, reason),
    };
    let step = match step {
        // Its types are what the server needs for those to come.
        Step::Answer(_) if !may_answer => left(session, Left::Learned),
        step => step,
    };
    if !matches!(step, Step::Answer(_)) {
        note_types(of, id, sent);
    }
    let definitions = of.lookups.definitions();
    let mut recorder = caches_columns(session).then(Recorder::default);
    go_on(session, of, head, step, &mut recorder).await?;
    if let Some(recorder) = &recorder {
        note_columns(of, id, definitions, recorder);
    }
    Ok(())
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

async fn forward_execution(
    session: &mut Session,
    of: &mut OfSession,
    head: CommandHead,
    id: u32,
    sent: Option<ExecuteHead>,
    facts: &Facts,
    is_select: bool,
) -> Result<(), SessionError> {
    note_types(of, id, sent);
    forward_statement(session, of, head, facts, is_select).await
}

/// An execution goes to the server, with its types.
fn note_types(of: &mut OfSession, id: u32, sent: Option<ExecuteHead>) {
    if let Some(statement) = of.statements.get_mut(&id) {
        statement.has_long_data = false;
        match sent {
            Some(sent) => {
                if let Some(types) = sent.types() {
                    statement.types = Some(types.into());
                }
            }
            None => statement.types = None,
        }
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
        let payload = lookups::whole_payload(session.wires.up.unseen(), head.payload_len)?;
        let sent = ExecuteHead::decode(payload, statement.parameters, session.capabilities).ok()?;
        let lookup = point_lookup(&statement.text, of.syntax)?;
        if sent.opens_cursor || sent.attributes > 0 || statement.has_long_data {
            return None;
        }
        let (types, nulls) = match statement.parameters {
            0 => (&[][..], &[][..]),
            _ => (
                sent.types().or(statement.types.as_deref())?,
                payload.get(sent.nulls()?)?,
            ),
        };
        let asked = Asked {
            lookup: &lookup,
            text: &statement.text,
            parameters: Some(Parameters {
                types,
                nulls,
                values: payload.get(sent.len..)?,
            }),
            told: statement.told.as_ref().map(|told| Told {
                definitions: told.definitions,
                answer: &told.answer,
            }),
        };
        Some(of.lookups.find(environment, &asked, &mut of.key))
    })();
    found.map_or(Step::Forward, |finding| step(session, of, finding))
}
