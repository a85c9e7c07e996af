//! One session of a replay: its connection, its prepared statements, one command after the other.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use mysql_wire::{Capabilities, Command, statement};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use super::client::{Answer, Client, ClientError};
use super::plan::{Judge, LeftOut};
use super::{Closing, Shared, Speed};
use crate::capture::schema_of;
use crate::checks;
use crate::record::{CommandRecord, Flags, Record, SessionRecord};

/// For an answer, or four times as long as it took when it was captured.
const ANSWER_LIMIT: Duration = Duration::from_secs(600);

/// What a session is given to do.
pub(super) enum Given {
    /// Who it is from here on.
    Session(SessionRecord),
    /// A command. The permit is for its place among those that are read ahead.
    Command(Box<CommandRecord>, OwnedSemaphorePermit),
}

struct Session {
    shared: Rc<Shared>,
    judge: Judge,
    who: SessionRecord,
    client: Option<Client>,
    /// The target's numbers of prepared statements, by those that were captured.
    statements: HashMap<u32, u32>,
    /// Texts of those that are closed behind each execution.
    texts: HashMap<u32, Vec<u8>>,
    /// Captured numbers of statements whose parameters have come in parts.
    has_long_data: HashSet<u32>,
    has_no_login: bool,
}

/// Runs until there is nothing more to do.
pub(super) async fn run(shared: Rc<Shared>, mut given: UnboundedReceiver<Given>) {
    let mut session = Session {
        judge: Judge::new(shared.order.permitted),
        shared,
        who: SessionRecord::default(),
        client: None,
        statements: HashMap::new(),
        texts: HashMap::new(),
        has_long_data: HashSet::new(),
        has_no_login: false,
    };
    while let Some(next) = given.recv().await {
        match next {
            Given::Session(who) => {
                let is_new = session.who.id == 0;
                session.who = who;
                // The connection is there before the first command is due.
                if is_new {
                    let _ = session.connect().await;
                }
            }
            Given::Command(command, _permit) => session.command(&command).await,
        }
    }
    if let Some(client) = session.client {
        client.close().await;
    }
}

impl Session {
    async fn command(&mut self, captured: &CommandRecord) {
        let shared = Rc::clone(&self.shared);
        let verdict = self.judge.may_be_sent(captured);
        let is_chosen = shared.order.selection.takes(captured);
        let verdict = if is_chosen {
            verdict
        } else {
            Err(LeftOut::NotChosen)
        };
        if let Speed::Times(_) = shared.order.speed
            && is_chosen
        {
            let due = shared.due(captured.start_us);
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            let late = Instant::now().saturating_duration_since(due);
            if let Some(all) = shared.late.borrow_mut().as_mut() {
                // It grows as it needs.
                let _ = all.record(late.as_micros() as u64);
            }
            shared.progress.borrow_mut().late = late;
        }
        let mut record = CommandRecord {
            session: captured.session,
            number: captured.number,
            start_us: shared.began.elapsed().as_micros() as u64,
            command: captured.command,
            digest: captured.digest,
            schema: captured.schema.clone(),
            body: captured.body.clone(),
            statement: captured.statement,
            ..CommandRecord::default()
        };
        let sent = match verdict {
            Ok(()) => self.send(captured, &mut record).await,
            Err(why) => {
                self.drop_long_data(captured).await;
                Err(why)
            }
        };
        {
            let mut outcome = shared.outcome.borrow_mut();
            match sent {
                Ok(()) => outcome.sent += 1,
                Err(why) => {
                    record.flags.set(Flags::LEFT_OUT);
                    *outcome.left_out.entry(why).or_default() += 1;
                }
            }
        }
        {
            let mut progress = shared.progress.borrow_mut();
            progress.done += 1;
            let is_known = !captured.flags.has(Flags::ERROR_UNKNOWN);
            let differs = sent.is_ok() && is_known && record.error != captured.error;
            progress.errors_differ += u64::from(differs);
        }
        shared.put(&Record::Command(Box::new(record)));
    }

    /// Sends the command, and notes in the record what came of it.
    async fn send(&mut self, captured: &CommandRecord, record: &mut CommandRecord) -> Result<(), LeftOut> {
        let command = Command(captured.command);
        if command == Command::QUIT {
            if let Some(client) = self.client.take() {
                client.close().await;
            }
            return Ok(());
        }
        if command == Command::CHANGE_USER {
            // Its own connection is as good as one that has changed its user.
            if let Some(client) = self.client.take() {
                client.close().await;
            }
            self.connect().await?;
            return Ok(());
        }
        if self.client.is_none() {
            self.connect().await?;
            record.start_us = self.shared.began.elapsed().as_micros() as u64;
        }
        if command == Command::STMT_CLOSE {
            match self.shared.order.closing {
                Closing::AsCaptured => {}
                Closing::Never => return Err(LeftOut::StaysPrepared),
                Closing::Always => {
                    self.texts.remove(&captured.statement);
                    // Behind an execution it is closed already.
                    if !self.statements.contains_key(&captured.statement) {
                        return Ok(());
                    }
                }
            }
        }
        self.prepare_again(captured.statement).await;
        let payload = self.payload(captured)?;
        let Some(client) = &mut self.client else {
            return Err(LeftOut::NoLogin);
        };
        let began = Instant::now();
        let limit = ANSWER_LIMIT.max(4 * Duration::from_micros(captured.took_us));
        let answer = match timeout(limit, client.ask(&payload)).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::Lost(format!(
                "no answer within {} s",
                limit.as_secs()
            ))),
        };
        record.took_us = began.elapsed().as_micros() as u64;
        match answer {
            Ok(answer) => {
                match command {
                    Command::STMT_SEND_LONG_DATA => drop(self.has_long_data.insert(captured.statement)),
                    _ => drop(self.has_long_data.remove(&captured.statement)),
                }
                self.note(captured, record, &answer);
                self.close_behind(captured).await;
            }
            Err(error) => {
                tracing::debug!(session = captured.session, %error, "replay");
                record.flags.set(Flags::LOST);
                self.client = None;
                self.statements.clear();
            }
        }
        Ok(())
    }

    /// An execution is left out: the parameters that were sent in front of it are not for the next one.
    async fn drop_long_data(&mut self, captured: &CommandRecord) {
        let is_execution =
            [Command::STMT_EXECUTE, Command::STMT_BULK_EXECUTE].contains(&Command(captured.command));
        if is_execution
            && self.has_long_data.remove(&captured.statement)
            && let Some(id) = self.statements.get(&captured.statement).copied()
        {
            let _ = self.ask(&statement::encode(Command::STMT_RESET, id)).await;
        }
    }

    /// Asks for something that was not captured. Where there is no answer in time the connection is given up.
    async fn ask(&mut self, payload: &[u8]) -> Option<(Capabilities, Answer)> {
        let client = self.client.as_mut()?;
        let capabilities = client.capabilities;
        match timeout(ANSWER_LIMIT, client.ask(payload)).await {
            Ok(Ok(answer)) => Some((capabilities, answer)),
            Ok(Err(_)) | Err(_) => {
                self.client = None;
                self.statements.clear();
                None
            }
        }
    }

    /// With `Closing::Always`: a statement that was closed behind an execution is needed once more. Where
    /// that fails, the command is left out.
    async fn prepare_again(&mut self, statement: u32) {
        let Some(text) = self
            .texts
            .get(&statement)
            .filter(|_| !self.statements.contains_key(&statement))
        else {
            return;
        };
        let payload = [&[Command::STMT_PREPARE.0], &text[..]].concat();
        if let Some((capabilities, answer)) = self.ask(&payload).await {
            let read = checks::read(Command::STMT_PREPARE, capabilities, &answer.packets);
            if let Some((id, _)) = read.prepared {
                self.statements.insert(statement, id);
            }
        }
    }

    /// With `Closing::Always`: closes what was executed, unless it has a cursor.
    async fn close_behind(&mut self, captured: &CommandRecord) {
        if self.shared.order.closing != Closing::Always {
            return;
        }
        let payload = [&[captured.command], &captured.body[..]].concat();
        match Command(captured.command) {
            Command::STMT_PREPARE if self.statements.contains_key(&captured.statement) => {
                self.texts.insert(captured.statement, captured.body.clone());
            }
            Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE if !statement::asks_for_cursor(&payload) => {
                if let Some(id) = self.statements.remove(&captured.statement) {
                    // It has no answer.
                    let _ = self.ask(&statement::encode(Command::STMT_CLOSE, id)).await;
                }
            }
            _ => {}
        }
    }

    /// The schema of the target for one that was captured.
    fn schema<'a>(&'a self, captured: &'a [u8]) -> &'a [u8] {
        let name = std::str::from_utf8(captured).ok();
        let other = name.and_then(|name| self.shared.order.schemas.get(name));
        other.map_or(captured, |other| other.as_bytes())
    }

    async fn connect(&mut self) -> Result<(), LeftOut> {
        if self.has_no_login {
            return Err(LeftOut::NoLogin);
        }
        self.statements.clear();
        self.texts.clear();
        let order = &self.shared.order;
        let Some(login) = order.logins.of(&self.who.user) else {
            return Err(LeftOut::NoLogin);
        };
        match Client::connect(order.target, login, &self.who).await {
            Ok(mut client) => {
                if !self.who.schema.is_empty() {
                    let mut payload = vec![Command::INIT_DB.0];
                    payload.extend_from_slice(self.schema(&self.who.schema));
                    // Where it is not there each statement says so.
                    if client.ask(&payload).await.is_err() {
                        return Err(LeftOut::NoLogin);
                    }
                }
                self.client = Some(client);
                Ok(())
            }
            Err(error) => {
                self.has_no_login = matches!(error, ClientError::Login { .. });
                let mut outcome = self.shared.outcome.borrow_mut();
                let no_login = outcome.no_login.get_or_insert_with(|| (0, error.to_string()));
                no_login.0 += 1;
                Err(LeftOut::NoLogin)
            }
        }
    }

    fn payload(&self, captured: &CommandRecord) -> Result<Vec<u8>, LeftOut> {
        let mut payload = Vec::with_capacity(captured.body.len() + 1);
        payload.push(captured.command);
        match schema_of(captured) {
            Some(schema) if *self.schema(&schema) != *schema => {
                let other = self.schema(&schema);
                match Command(captured.command) {
                    Command::INIT_DB => payload.extend_from_slice(other),
                    _ => {
                        payload.extend_from_slice(b"USE `");
                        payload.extend_from_slice(
                            &String::from_utf8_lossy(other).replace('`', "``").into_bytes(),
                        );
                        payload.push(b'`');
                    }
                }
            }
            _ => payload.extend_from_slice(&captured.body),
        }
        let uses_statement = matches!(
            Command(captured.command),
            Command::STMT_EXECUTE
                | Command::STMT_BULK_EXECUTE
                | Command::STMT_SEND_LONG_DATA
                | Command::STMT_FETCH
                | Command::STMT_RESET
                | Command::STMT_CLOSE
        );
        if uses_statement {
            let id = self
                .statements
                .get(&captured.statement)
                .ok_or(LeftOut::NotPrepared)?;
            if !statement::replace_id(&mut payload, *id) {
                return Err(LeftOut::TooLong);
            }
        }
        Ok(payload)
    }

    fn note(&mut self, captured: &CommandRecord, record: &mut CommandRecord, answer: &Answer) {
        let command = Command(captured.command);
        let outcome = &answer.outcome;
        record.rows = outcome.rows;
        record.affected_rows = outcome.affected_rows;
        record.insert_id = outcome.last_insert_id;
        record.warnings = outcome.warnings;
        record.error = outcome.error.unwrap_or(0);
        match command {
            Command::STMT_CLOSE => drop(self.statements.remove(&captured.statement)),
            Command::RESET_CONNECTION if record.error == 0 => {
                self.statements.clear();
                self.texts.clear();
            }
            _ => {}
        }
        if answer.is_cut {
            record.flags.set(Flags::UNCHECKED);
            return;
        }
        let capabilities = self.client.as_ref().map(|client| client.capabilities);
        let read = checks::read(command, capabilities.unwrap_or_default(), &answer.packets);
        if !read.is_whole {
            record.flags.set(Flags::UNCHECKED);
        }
        record.rows = record.rows.max(read.rows);
        record.checks = read.checks;
        if let Some((id, parameters)) = read.prepared {
            record.parameters = parameters;
            self.statements.insert(captured.statement, id);
        }
    }
}
