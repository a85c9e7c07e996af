//! One session of a replay: its connection, its prepared statements, one command after the other.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::LazyLock;
use std::task::Poll;
use std::time::{Duration, Instant};

use mysql_wire::statement::ExecuteHead;
use mysql_wire::{Capabilities, Command, StatusFlags, statement};
use regex::bytes::Regex;
use sql_class::text::{has, is_one_of, only_sets_insert_id};
use sql_class::{Class, Effects};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use super::client::{Client, ClientError, ReplayAnswer};
use super::ids::SessionIds;
use super::plan::{
    Judge, LeftOut, class_of, found, is_for_next_transaction, prepares, readings, sets_the_same_again,
    syntaxes,
};
use super::transactions::{Expected, Part};
use super::{Closing, Fate, Shared, Speed};
use crate::capture::schema_of;
use crate::checks;
use crate::record::{CommandRecord, Flags, Record, ResultRecord, SessionRecord};
use crate::volatile::asks_for_time;

/// For an answer, or four times as long as it took when it was captured.
const ANSWER_LIMIT: Duration = Duration::from_secs(600);

/// What a session may ask about its statements of before: of those on another connection nobody knows it.
const ABOUT_BEFORE: [Effects; 3] = [
    Effects::READS_LAST_INSERT_ID,
    Effects::READS_ROW_COUNT,
    Effects::READS_FOUND_ROWS,
];

pub(super) enum Given {
    /// Who it is from here on.
    Session(SessionRecord),
    /// A command, whether a transaction begins with it, and what it has until it is done: transactions of
    /// others that wait for it, and its place among those that are read ahead.
    Command(Box<CommandRecord>, bool, (Option<Expected>, OwnedSemaphorePermit)),
}

/// The types of a statement's parameters, two bytes each.
type Types = Box<[u8]>;

struct Session {
    shared: Rc<Shared>,
    ids: SessionIds,
    judge: Judge,
    who: SessionRecord,
    client: Option<Client>,
    /// The target's numbers of prepared statements, by those that were captured.
    statements: HashMap<u32, u32>,
    /// Prepares of those that are closed behind each execution.
    texts: HashMap<u32, CommandRecord>,
    /// By their captured numbers, those with parameters: how many they are, and their types as they were said
    /// last; `None` where nobody knows them.
    types: HashMap<u32, (u16, Option<Types>)>,
    /// Captured numbers of statements whose parameters have come in parts.
    has_long_data: HashSet<u32>,
    has_no_login: bool,
    /// A transaction is open on its connection, as the server has said last, and would go with it.
    in_transaction: bool,
    /// The transaction that is open on its connection is prepared (`XA PREPARE`), and would not go with it.
    /// MySQL does not show such a one as open, MariaDB does.
    is_prepared: bool,
    /// Without one each statement is one of its own; the same.
    autocommit: bool,
    /// The transaction in which it was has gone with its connection, or with a replayer that was killed.
    is_undone: bool,
    /// What it had set then is not set now.
    has_lost_settings: bool,
    /// What nothing on this connection has an answer to yet, and something on one before had.
    is_not_known: Vec<Effects>,
    /// What executions of prepared statements do, by their captured numbers.
    prepared: HashMap<u32, Prepared>,
    /// It has set, prepared or locked something on its connection.
    has_settings: bool,
    /// It has set its time itself.
    has_own_time: bool,
    /// Captured numbers of statements that write or ask for the time.
    timed: HashSet<u32>,
    /// The first rows of what was answered last, where results are kept.
    kept: Option<String>,
}

#[derive(Clone, Copy)]
struct Prepared {
    part: Part,
    sets_the_same_again: bool,
    /// It asks for some of [`ABOUT_BEFORE`].
    asks: Effects,
}

/// Runs until there is nothing more to do. Where a session fails by a fault of this program, the others go
/// on, and the rest of it is left out.
pub(super) async fn run(shared: Rc<Shared>, id: u32, mut given: UnboundedReceiver<Given>) {
    let Err(panic) = caught(replay(Rc::clone(&shared), &mut given)).await else {
        return;
    };
    shared.note_failed(id, &*panic);
    while let Some(next) = given.recv().await {
        if let Given::Command(command, ..) = next {
            shared.leave_out(&command, LeftOut::SessionFailed);
        }
    }
}

/// Polls a future to its end; an error is what it has panicked with.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        polled.map_or_else(|panic| Poll::Ready(Err(panic)), |polled| polled.map(Ok))
    })
    .await
}

async fn replay(shared: Rc<Shared>, given: &mut UnboundedReceiver<Given>) {
    let mut session = Session {
        judge: Judge::new(shared.order.permitted),
        ids: SessionIds::new(Rc::clone(&shared.ids)),
        shared,
        who: SessionRecord::default(),
        client: None,
        statements: HashMap::new(),
        texts: HashMap::new(),
        types: HashMap::new(),
        has_long_data: HashSet::new(),
        has_no_login: false,
        in_transaction: false,
        is_prepared: false,
        autocommit: true,
        is_undone: false,
        has_lost_settings: false,
        is_not_known: Vec::new(),
        prepared: HashMap::new(),
        has_settings: false,
        has_own_time: false,
        timed: HashSet::new(),
        kept: None,
    };
    while let Some(next) = given.recv().await {
        match next {
            Given::Session(who) => {
                let is_new = session.who.id == 0;
                session.has_no_login &= session.who.user == who.user;
                session.who = who;
                // The connection is there before the first command is due.
                if is_new {
                    let _ = session.connect(&[]).await;
                } else if !session.is_chosen() {
                    session.hang_up().await;
                }
            }
            Given::Command(command, begins, _until_done) => session.command(&command, begins).await,
        }
    }
    session.hang_up().await;
}

impl Session {
    async fn command(&mut self, captured: &CommandRecord, begins: bool) {
        #[cfg(test)]
        assert!(!captured.body.ends_with(b"PANICS"), "as a test wants it");
        let shared = Rc::clone(&self.shared);
        let schema = self.schema(&captured.schema).to_vec();
        self.ids.hear(captured, &schema);
        self.hear_time(captured);
        self.hear_types(captured);
        let verdict = self.judge.may_be_sent(captured);
        let is_chosen = self.is_chosen() && shared.order.selection.takes(captured);
        let verdict = if is_chosen {
            verdict
        } else {
            Err(LeftOut::NotChosen)
        };
        let fate = shared.fate(captured);
        if !matches!(fate, Fate::Open) {
            self.is_not_known = ABOUT_BEFORE.to_vec();
        }
        let verdict = match fate {
            Fate::Done { is_in_transaction } => {
                let made = shared.before.as_ref().and_then(|before| before.made(captured));
                if let Some((affected_rows, id)) = made {
                    self.ids.answered(captured, &schema, affected_rows, id);
                }
                self.is_undone = is_in_transaction;
                self.judge.is_not_sent(captured);
                if verdict.is_ok() {
                    self.set_again(captured).await;
                }
                return;
            }
            Fate::Unknown => {
                self.may_have_done(captured, true);
                if verdict.is_ok() {
                    self.set_again(captured).await;
                }
                Err(LeftOut::FateUnknown)
            }
            Fate::Open
                if shared.before.is_some()
                    || self.is_undone
                    || self.has_lost_settings
                    || !self.is_not_known.is_empty() =>
            {
                self.after_loss(captured, verdict).await
            }
            Fate::Open => {
                // A transaction that it begins or ends has to be known once a connection is lost.
                if Command(captured.command) == Command::STMT_PREPARE {
                    self.part(captured);
                }
                verdict
            }
        };
        let mut late = Duration::ZERO;
        if let Speed::Times(_) = shared.order.speed
            && is_chosen
        {
            let due = shared.due(captured.start_us);
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            late = Instant::now().saturating_duration_since(due);
            shared.note_late(late);
        }
        if verdict.is_ok() && begins && !shared.commits.wait(captured).await {
            shared.outcome.borrow_mut().out_of_order += 1;
        }
        let state = |session: &Self| {
            (
                session.is_undone,
                session.has_lost_settings,
                session.is_not_known.len(),
            )
        };
        let was = state(self);
        if verdict.is_ok() && shared.order.freezes_time {
            self.freeze_time(captured).await;
        }
        // The connection may have been lost there.
        let verdict = match state(self) == was {
            true => verdict,
            false => self.after_loss(captured, verdict).await,
        };
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
        self.kept = None;
        let sent = match verdict {
            Ok(()) if !shared.note_sent(captured, late) => return,
            Ok(()) => self.send(captured, &mut record).await,
            Err(why) => {
                self.drop_long_data(captured).await;
                Err(why)
            }
        };
        if sent.is_err() || record.flags.has(Flags::LOST) {
            self.judge.is_not_sent(captured);
        }
        if sent == Err(LeftOut::NoLogin) || record.flags.has(Flags::LOST) {
            self.may_have_done(captured, record.flags.has(Flags::LOST));
            self.has_lost_settings |= self.may_set(captured, captured.error);
        }
        // Each record says it, since any may be the last one that is written.
        if self.in_transaction || self.is_undone {
            record.flags.set(Flags::IN_TRANSACTION);
        }
        {
            let mut outcome = shared.outcome.borrow_mut();
            match sent {
                Ok(()) => outcome.sent += 1,
                Err(why) => {
                    record.flags.set(Flags::LEFT_OUT);
                    if why == LeftOut::FateUnknown {
                        record.flags.set(Flags::LOST);
                    }
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
        if let Some(text) = self.kept.take() {
            shared.put(&Record::Result(ResultRecord {
                session: record.session,
                number: record.number,
                text,
            }));
        }
        shared.put(&Record::Command(Box::new(record)));
    }

    /// Whether commands of the user that it has now are replayed.
    fn is_chosen(&self) -> bool {
        self.shared.order.selection.takes_user(&self.who.user)
    }

    /// A command's part in a transaction, and whether it only sets what can be set again.
    fn part(&mut self, captured: &CommandRecord) -> Prepared {
        let of_text = || Prepared {
            part: Part::of_text(&captured.body),
            sets_the_same_again: sets_the_same_again(&captured.body) || prepares(&captured.body).is_some(),
            asks: asks(&captured.body),
        };
        let of_command = Prepared {
            part: Part::of(captured),
            sets_the_same_again: true,
            asks: Effects::NONE,
        };
        match Command(captured.command) {
            Command::QUERY => of_text(),
            Command::STMT_PREPARE => {
                self.prepared.insert(captured.statement, of_text());
                of_command
            }
            Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => {
                let known = self.prepared.get(&captured.statement);
                known.copied().unwrap_or(of_command)
            }
            _ => of_command,
        }
    }

    /// A command is not sent, or not again (`was_sent`), and may have been executed: notes what that means
    /// for the transaction.
    fn may_have_done(&mut self, captured: &CommandRecord, was_sent: bool) {
        match self.part(captured).part {
            Part::Begins => self.is_undone = true,
            Part::Ends | Part::EndsXa => self.is_undone = false,
            Part::PreparesXa => self.is_undone &= !was_sent,
            Part::Breaks => self.is_undone &= captured.error != 0,
            Part::Inside | Part::Several if !self.autocommit => self.is_undone = true,
            Part::Several => self.is_undone |= may_begin(&captured.body),
            Part::Inside | Part::Apart => {}
        }
    }

    fn prepares_xa(&self, captured: &CommandRecord) -> bool {
        let part = match Command(captured.command) {
            Command::QUERY if has(&captured.body, b"xa") => Some(Part::of_text(&captured.body)),
            Command::STMT_EXECUTE => self.prepared.get(&captured.statement).map(|known| known.part),
            _ => None,
        };
        part == Some(Part::PreparesXa)
    }

    /// A connection that is gone, or a replayer that was killed, may forbid a command: the transaction that
    /// it belongs to is gone as well.
    async fn after_loss(
        &mut self,
        captured: &CommandRecord,
        verdict: Result<(), LeftOut>,
    ) -> Result<(), LeftOut> {
        if captured.is_anew() {
            self.is_undone = false;
            self.miss_nothing().await;
            return verdict;
        }
        let known = self.part(captured);
        if self.has_lost_settings {
            // A transaction that is prepared needs none of them, and has its locks until it is ended.
            if known.part == Part::EndsXa && !self.is_undone {
                return verdict;
            }
            self.may_have_done(captured, false);
            return verdict.and(Err(LeftOut::SettingsLost));
        }
        if self.is_not_known.iter().any(|asked| known.asks.contains(*asked)) {
            self.has_lost_settings |= verdict.is_ok() && self.may_set(captured, captured.error);
            return verdict.and(Err(LeftOut::NotKnown));
        }
        match known.part {
            Part::Apart => verdict,
            Part::Ends | Part::EndsXa if std::mem::take(&mut self.is_undone) => {
                verdict.and(Err(LeftOut::Undone))
            }
            Part::Begins => {
                self.is_undone = false;
                verdict
            }
            // One that has failed may have ended nothing.
            Part::Breaks if captured.error == 0 => {
                self.is_undone = false;
                verdict
            }
            _ if self.is_undone => verdict.and(Err(LeftOut::Undone)),
            _ => verdict,
        }
    }

    /// Which prepared statements there are and which are about the time, sent or not, and whether the session
    /// has set its own.
    fn hear_time(&mut self, captured: &CommandRecord) {
        if captured.is_anew() {
            self.timed.clear();
            self.has_own_time = false;
        }
        match Command(captured.command) {
            Command::QUERY if class_of(&captured.body) == Class::Session && has_timestamp(&captured.body) => {
                self.has_own_time = !gives_timestamp_back(&captured.body);
            }
            Command::STMT_PREPARE if is_timed(&captured.body) => drop(self.timed.insert(captured.statement)),
            Command::STMT_PREPARE => drop(self.timed.remove(&captured.statement)),
            Command::STMT_CLOSE => {
                self.timed.remove(&captured.statement);
                self.prepared.remove(&captured.statement);
            }
            _ => {}
        }
    }

    /// The types of parameters, sent or not: an execution may leave out those of the one before.
    fn hear_types(&mut self, captured: &CommandRecord) {
        match Command(captured.command) {
            Command::STMT_PREPARE if captured.parameters > 0 => {
                self.types.insert(captured.statement, (captured.parameters, None));
            }
            Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => {
                if let Some((parameters, types)) = self.types.get_mut(&captured.statement) {
                    let payload = captured.payload();
                    match ExecuteHead::decode(&payload, *parameters, Capabilities::default()) {
                        Ok(head) if head.types().is_some() => *types = head.types().map(Into::into),
                        Ok(_) => {}
                        // Its parameters were not written, and may have had other types.
                        Err(_) => *types = None,
                    }
                }
            }
            Command::STMT_CLOSE => drop(self.types.remove(&captured.statement)),
            Command::RESET_CONNECTION | Command::CHANGE_USER => self.types.clear(),
            _ => {}
        }
    }

    /// Where a statement writes or asks for the time, the time is the one when it was captured. What sets it
    /// for itself has its own.
    async fn freeze_time(&mut self, captured: &CommandRecord) {
        let is_timed = match Command(captured.command) {
            Command::QUERY => is_timed(&captured.body),
            Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => self.timed.contains(&captured.statement),
            _ => false,
        };
        if !is_timed || self.has_own_time {
            return;
        }
        // Both would tell of the statement that sets the time.
        let counts = Effects::READS_ROW_COUNT.with(Effects::READS_FOUND_ROWS);
        if self.part(captured).asks.intersects(counts) {
            return;
        }
        let unix_us = self.shared.captured_unix_us.saturating_add(captured.start_us);
        let (seconds, micros) = (unix_us / 1_000_000, unix_us % 1_000_000);
        let mut payload = vec![Command::QUERY.0];
        payload.extend_from_slice(format!("SET TIMESTAMP = {seconds}.{micros:06}").as_bytes());
        if self.client.is_none() {
            // A connection that cannot be made fails the statement below as well.
            let _ = self.connect(&captured.schema).await;
        }
        let answer = self.ask(&payload).await;
        if answer.is_none_or(|(_, answer)| answer.outcome.error.is_some()) {
            self.shared.outcome.borrow_mut().not_frozen += 1;
        }
    }

    /// A command was sent by a replayer that was killed: what it has set for its session is set again. Where
    /// that is not to be had, nothing behind it is sent.
    async fn set_again(&mut self, captured: &CommandRecord) {
        let command = Command(captured.command);
        let known = self.part(captured);
        let sets = match known.part {
            Part::Apart => [
                Command::QUERY,
                Command::STMT_PREPARE,
                Command::STMT_EXECUTE,
                Command::STMT_CLOSE,
                Command::INIT_DB,
                Command::SET_OPTION,
            ]
            .contains(&command),
            _ => captured.is_anew() && command != Command::QUIT,
        };
        if captured.is_anew() {
            self.miss_nothing().await;
        }
        // All of them are not to be done again.
        self.has_lost_settings |= known.part == Part::Several && has_setting(&captured.body);
        if !sets || self.has_lost_settings {
            return;
        }
        if !known.sets_the_same_again {
            self.has_lost_settings |= captured.error == 0 && !is_for_next_transaction(&captured.body);
            return;
        }
        let mut record = CommandRecord::default();
        // Where the server refuses it the statements behind it say so.
        let sent = self.send(captured, &mut record).await;
        self.has_lost_settings |= sent == Err(LeftOut::NoLogin) || record.flags.has(Flags::LOST);
    }

    /// Sends the command, and notes in the record what came of it.
    async fn send(&mut self, captured: &CommandRecord, record: &mut CommandRecord) -> Result<(), LeftOut> {
        let command = Command(captured.command);
        // A new connection is as good as one that has changed its user. The next command makes it: only that
        // one knows the schema, which may be another one than at the login.
        if command == Command::QUIT || command == Command::CHANGE_USER {
            self.hang_up().await;
            return Ok(());
        }
        if self.client.is_none() {
            self.connect(&captured.schema).await?;
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
        let mut payload = match self.payload(captured) {
            Ok(payload) => payload,
            Err(why) => {
                self.drop_long_data(captured).await;
                return Err(why);
            }
        };
        let schema = self.schema(&captured.schema).to_vec();
        if !self.has_long_data.contains(&captured.statement) {
            self.ids.map(captured, &schema, &mut payload);
        }
        let Some(client) = &mut self.client else {
            return Err(LeftOut::NoLogin);
        };
        let began = Instant::now();
        let limit = ANSWER_LIMIT.max(4 * Duration::from_micros(captured.took_us));
        let answer = match timeout(limit, client.ask_with(&payload, &captured.files)).await {
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
                self.has_settings |= self.may_set(captured, record.error);
                if record.error == 0 {
                    self.ids
                        .answered(captured, &schema, record.affected_rows, record.insert_id);
                }
                self.close_behind(captured).await;
                if answer.lacks_files {
                    return Err(LeftOut::LocalFile);
                }
            }
            Err(error) => {
                tracing::debug!(session = captured.session, %error, "replay");
                record.flags.set(Flags::LOST);
                self.give_up();
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
    async fn ask(&mut self, payload: &[u8]) -> Option<(Capabilities, ReplayAnswer)> {
        let client = self.client.as_mut()?;
        let capabilities = client.capabilities;
        match timeout(ANSWER_LIMIT, client.ask(payload)).await {
            Ok(Ok(answer)) => Some((capabilities, answer)),
            Ok(Err(_)) | Err(_) => {
                self.give_up();
                None
            }
        }
    }

    /// The connection is not there any more, and what was on it is not, either.
    fn give_up(&mut self) {
        self.client = None;
        self.statements.clear();
        self.is_undone |= self.in_transaction;
        self.in_transaction = false;
        // On another connection what comes next would mean something else.
        self.is_not_known = ABOUT_BEFORE.to_vec();
        self.has_lost_settings |= std::mem::take(&mut self.has_settings);
    }

    /// Whether a command that has ended with this error may have left something on its connection. Of several
    /// statements those in front of one that has failed have done what they do.
    fn may_set(&mut self, captured: &CommandRecord, error: u16) -> bool {
        let known = self.part(captured).part;
        if error != 0 && known != Part::Several {
            return false;
        }
        match Command(captured.command) {
            Command::STMT_PREPARE | Command::INIT_DB | Command::SET_OPTION => true,
            Command::STMT_EXECUTE => known == Part::Apart,
            Command::QUERY => {
                let words: [&[u8]; 3] = [b"@", b"temporary", b"lock"];
                let has_setting = known == Part::Several && has_setting(&captured.body);
                known == Part::Apart || has_setting || words.iter().any(|word| has(&captured.body, word))
            }
            _ => false,
        }
    }

    /// With `Closing::Always`: a statement that was closed behind an execution is needed once more. Where
    /// that fails, the command is left out.
    async fn prepare_again(&mut self, statement: u32) {
        let Some(prepared) = self
            .texts
            .get(&statement)
            .filter(|_| !self.statements.contains_key(&statement))
        else {
            return;
        };
        let mut payload = [&[Command::STMT_PREPARE.0], &prepared.body[..]].concat();
        let schema = self.schema(&prepared.schema).to_vec();
        self.ids.map(prepared, &schema, &mut payload);
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
        let payload = captured.payload();
        match Command(captured.command) {
            Command::STMT_PREPARE if self.statements.contains_key(&captured.statement) => {
                self.texts.insert(captured.statement, captured.clone());
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

    async fn hang_up(&mut self) {
        self.in_transaction = false;
        if let Some(client) = self.client.take() {
            client.close().await;
        }
    }

    /// The session is as new. A connection that does without some of its settings may be in another schema
    /// than the session, which a reset keeps.
    async fn miss_nothing(&mut self) {
        self.is_not_known.clear();
        if std::mem::take(&mut self.has_lost_settings) {
            self.hang_up().await;
        }
    }

    /// `schema`: the captured one that the session has now. Empty: the one of its beginning.
    async fn connect(&mut self, schema: &[u8]) -> Result<(), LeftOut> {
        if self.has_no_login {
            return Err(LeftOut::NoLogin);
        }
        self.statements.clear();
        self.texts.clear();
        self.in_transaction = false;
        self.is_prepared = false;
        self.has_settings = false;
        self.autocommit = true;
        let order = &self.shared.order;
        let connected = match order.logins.of(&self.who.user) {
            Some(login) => {
                let connected = Client::connect(order.target, login, &self.who).await;
                connected.map_err(|error| (matches!(error, ClientError::Login { .. }), error.to_string()))
            }
            // Of a capture that goes on not all users are known before.
            None => Err((
                false,
                format!("no account for the captured user {:?}", self.who.user),
            )),
        };
        let mut client = match connected {
            Ok(client) => client,
            Err((is_refused, why)) => {
                self.has_no_login = is_refused;
                let mut outcome = self.shared.outcome.borrow_mut();
                outcome.no_login.get_or_insert((0, why)).0 += 1;
                return Err(LeftOut::NoLogin);
            }
        };
        let schema = if schema.is_empty() {
            &self.who.schema
        } else {
            schema
        };
        if !schema.is_empty() {
            let payload = [&[Command::INIT_DB.0], self.schema(schema)].concat();
            // If the schema is not there, each statement says so.
            if !matches!(timeout(ANSWER_LIMIT, client.ask(&payload)).await, Ok(Ok(_))) {
                return Err(LeftOut::NoLogin);
            }
        }
        self.client = Some(client);
        Ok(())
    }

    fn payload(&self, captured: &CommandRecord) -> Result<Vec<u8>, LeftOut> {
        let mut payload = captured.payload();
        if let Some(schema) = schema_of(captured)
            && *self.schema(&schema) != *schema
        {
            let other = self.schema(&schema);
            payload.truncate(1);
            match Command(captured.command) {
                Command::INIT_DB => payload.extend_from_slice(other),
                _ => {
                    let name = String::from_utf8_lossy(other).replace('`', "``");
                    payload.extend_from_slice(format!("USE `{name}`").as_bytes());
                }
            }
        }
        let is_about_none = matches!(statement::statement_id(&payload), Ok(None));
        if !is_about_none {
            let id = self
                .statements
                .get(&captured.statement)
                .ok_or(LeftOut::NotPrepared)?;
            if !statement::replace_id(&mut payload, *id) {
                return Err(LeftOut::TooLong);
            }
        }
        // The statement of now may not have been executed before, or with other types.
        if let Some((parameters, types)) = self.types.get(&captured.statement)
            && let Ok(head) = ExecuteHead::decode(&payload, *parameters, Capabilities::default())
            && head.needs_types()
        {
            let types = types.as_deref().ok_or(LeftOut::PartsMissing)?;
            head.inject_types(&mut payload, types);
        }
        Ok(payload)
    }

    fn note(&mut self, captured: &CommandRecord, record: &mut CommandRecord, answer: &ReplayAnswer) {
        let command = Command(captured.command);
        let outcome = &answer.outcome;
        record.rows = outcome.rows;
        record.affected_rows = outcome.affected_rows;
        record.insert_id = outcome.last_insert_id;
        record.warnings = outcome.warnings;
        record.error = outcome.error.unwrap_or(0);
        if outcome.has_status {
            let autocommit = outcome.status.contains(StatusFlags::AUTOCOMMIT);
            // Whoever sets it commits what is open.
            self.is_undone &= self.autocommit || !autocommit;
            self.autocommit = autocommit;
            let is_open = outcome.status.contains(StatusFlags::IN_TRANS);
            self.is_prepared = is_open && (self.is_prepared || self.prepares_xa(captured));
            self.in_transaction = is_open && !self.is_prepared;
        }
        if !self.is_not_known.is_empty() && [Command::QUERY, Command::STMT_EXECUTE].contains(&command) {
            self.is_not_known.retain(|asked| match *asked {
                Effects::READS_LAST_INSERT_ID => record.insert_id == 0,
                Effects::READS_FOUND_ROWS => record.rows == 0,
                _ => false,
            });
        }
        match command {
            Command::STMT_CLOSE => drop(self.statements.remove(&captured.statement)),
            Command::RESET_CONNECTION if record.error == 0 => {
                self.has_settings = false;
                self.statements.clear();
                self.texts.clear();
            }
            _ => {}
        }
        let capabilities = self.client.as_ref().map(|client| client.capabilities);
        let capabilities = capabilities.unwrap_or_default();
        let keeps_results = self.shared.order.keeps_results;
        if answer.is_cut && !keeps_results {
            record.flags.set(Flags::UNCHECKED);
            return;
        }
        let mut read = match keeps_results {
            true => checks::read_and_keep(command, capabilities, &answer.packets),
            false => checks::read(command, capabilities, &answer.packets),
        };
        self.kept = read.kept.take().and_then(|kept| kept.text(read.is_whole));
        if answer.is_cut {
            record.flags.set(Flags::UNCHECKED);
            return;
        }
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

/// What a text asks about the statements before it.
fn asks(text: &[u8]) -> Effects {
    let [one, other] = readings(text).map(|facts| facts.effects);
    let is_one = |asked: &Effects| match *asked {
        // What it is to be is not what it was.
        Effects::READS_LAST_INSERT_ID
            if syntaxes().iter().all(|syntax| only_sets_insert_id(text, *syntax)) =>
        {
            false
        }
        asked => one.with(other).contains(asked),
    };
    ABOUT_BEFORE
        .into_iter()
        .filter(is_one)
        .fold(Effects::NONE, Effects::with)
}

/// Whether one of several statements may set something for its session.
fn has_setting(text: &[u8]) -> bool {
    let mut words = text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    words.any(|word| is_one_of(word, &["set", "use", "prepare"]))
}

/// Whether one of several statements may begin a transaction.
fn may_begin(text: &[u8]) -> bool {
    let words: [&[u8]; 4] = [b"BEGIN", b"START", b"CHAIN", b"AUTOCOMMIT"];
    words.iter().any(|word| has(text, word))
}

/// Whether a statement writes or asks for the time.
fn is_timed(text: &[u8]) -> bool {
    matches!(class_of(text), Class::Write | Class::Unknown) || asks_for_time(text)
}

/// Whether a text only has the clock go on: `SET timestamp = DEFAULT`, or 0.
fn gives_timestamp_back(text: &[u8]) -> bool {
    static SET: LazyLock<Option<Regex>> = LazyLock::new(|| {
        const SET: &str =
            r"(?xi-u)^\W*set\s+(@@)?((session|local)[\s.]\s*)?timestamp\s*:?=\s*(default|0)\s*;?\s*$";
        Regex::new(SET).ok()
    });
    found(&SET, text).is_some()
}

fn has_timestamp(text: &[u8]) -> bool {
    static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i-u)\btimestamp\b").ok());
    NAME.as_ref().is_none_or(|name| name.is_match(text))
}
