//! The capture's thread: reads answers, decides what may be written, and writes.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use dataplane::finished::{End as HowEnded, Interest};
use mysql_wire::statement::ExecuteHead;
use mysql_wire::{Capabilities, Command, PacketHeader, statement};
use sql_class::Syntax;

use super::observer::{Batch, CapturedAnswer, Ended, Queue};
use super::{Run, files, free_percent, lock};
use crate::checks::{self, Read};
use crate::file::{FileError, FolderWriter};
use crate::record::{CommandRecord, End, Flags, Record, SessionRecord};
use crate::replay::sets_session;
use crate::secrets::{
    goes_to_mysql, may_be_written, may_change_accounts, takes_harmless_values, values_may_be_written,
};
use crate::words::without_semicolon;

/// The thread's pause between two looks at the queues: workers need not wake it. Each time that it runs it
/// takes a core and its caches from a worker; at 100 000 commands a second some 1 MiB comes in the meantime.
const PAUSE: Duration = Duration::from_millis(25);
/// Bytes that are taken out of the queue before the counter is told: workers count there as well.
const COUNTED_TOGETHER: usize = 64 << 10;
/// For so many commands a batch keeps its memory: more than usually come between two looks.
const KEPT_MAX: usize = 16 << 10;
/// How often what is there is written, and limits are looked at.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// After so long the next file is begun where files go to an object store: what is lost with the machine is
/// what was written since.
const FILE_AGE_MAX: Duration = Duration::from_secs(60);
/// Sessions whose state is known. Beyond that all are forgotten, and what they say from there on has no user:
/// so many have come and gone without a word.
const SESSIONS_MAX: usize = 1_000_000;
/// Bytes that are known of prepared statements. Beyond that all sessions are forgotten as well: those that
/// end without a goodbye leave theirs behind.
pub(crate) const STATEMENTS_MAX: usize = 64 << 20;
/// Bytes that are known of one prepared statement, without the end of a long parameter.
const STATEMENT: usize = size_of::<(u32, Prepared)>();

/// Bytes in front of a part of a long parameter: the command, the statement, which parameter it is.
const LONG_DATA_HEAD: usize = 7;
/// So many bytes behind one another may be words of one statement with secrets.
const WORDS_MAX: usize = 1024;
/// The longest name of a schema that somebody can be in: servers have much shorter ones.
const SCHEMA_MAX: usize = 1024;

/// What the thread knows of a session.
#[derive(Default)]
pub(crate) struct Session {
    user: Box<str>,
    /// The schema that it has now, as far as that is known.
    pub(crate) schema: Vec<u8>,
    pub(crate) commands: u64,
    is_thinned: bool,
    /// It is in the server's own schema, or was: what it writes may be an account.
    was_in_mysql: bool,
    /// Nobody knows which schema it is in.
    may_be_in_mysql: bool,
    /// Of the text that it has prepared last.
    takes_harmless_values: bool,
    statements: HashMap<u32, Prepared>,
    /// Bytes that are known of them.
    statement_bytes: usize,
    /// The one that was prepared last, which clients of MariaDB need not name; 0 for none.
    last_prepared: u32,
}

#[derive(Clone)]
struct Prepared {
    digest: u64,
    parameters: u16,
    /// Its parameters are no secrets.
    may_be_written: bool,
    /// The end of what has come of a long parameter: words may begin there.
    last_bytes: Vec<u8>,
}

impl Prepared {
    /// Bytes that are known of it.
    fn size(&self) -> usize {
        STATEMENT + self.last_bytes.len()
    }

    /// Whether these bytes of parameters may be written. Once they may not, nor may those behind them.
    fn takes(&mut self, command: Command, values: &[u8]) -> bool {
        let is_part = command == Command::STMT_SEND_LONG_DATA;
        self.may_be_written &= values_may_be_written(values);
        if is_part {
            let both = [&self.last_bytes, values.get(LONG_DATA_HEAD..).unwrap_or_default()].concat();
            self.may_be_written &= values_may_be_written(&both);
            self.last_bytes = both[both.len().saturating_sub(WORDS_MAX)..].to_vec();
        }
        self.may_be_written
    }
}

impl Session {
    /// `schema`: where it is at its beginning; `None` where that is not known.
    pub(crate) fn new(user: &str, schema: Option<&[u8]>) -> Self {
        let mut session = Self {
            user: user.into(),
            ..Self::default()
        };
        session.is_in(schema.unwrap_or_default().to_vec());
        session.may_be_in_mysql = schema.is_none();
        session
    }

    /// Bytes that are known of its prepared statements.
    pub(crate) fn statement_bytes(&self) -> usize {
        self.statement_bytes
    }

    /// Forgets its prepared statements: executions of them are withheld, as of those of before the capture.
    pub(crate) fn forget_statements(&mut self) {
        self.statements.clear();
        self.statement_bytes = 0;
        self.last_prepared = 0;
    }

    pub(crate) fn is_in(&mut self, schema: Vec<u8>) {
        self.was_in_mysql |= schema.eq_ignore_ascii_case(b"mysql");
        self.may_be_in_mysql = false;
        self.schema = schema;
    }
}

struct Writing<'a> {
    run: &'a Run,
    writer: FolderWriter,
    sessions: HashMap<u32, Session, foldhash::fast::RandomState>,
    /// Bytes that are known of prepared statements of all sessions.
    statement_bytes: usize,
    /// The number of the first command of a session that is not known: those that were forgotten had others.
    first_number: u64,
    /// Bytes of what was taken out of the queue and is counted there still.
    taken_out: usize,
}

/// Runs until the capture ends. What comes of it is said also where the thread fails: another one may begin.
pub(super) fn run(run: &Arc<Run>, interest: &Interest, writer: FolderWriter) {
    let writing = AssertUnwindSafe(|| write(run, interest, writer));
    if catch_unwind(writing).is_err() {
        interest.set(false);
        let words = "the capture's thread has failed; the log says where";
        run.note_end("error", words);
        tracing::error!(folder = %run.order.to.display(), "capture: {words}");
        close(run);
    }
}

/// Ends the writing, and empties the queues, which workers keep until another capture begins.
fn close(run: &Run) {
    for queue in &*lock(&run.queues) {
        *lock(queue) = Batch::default();
    }
    run.has_ended.store(true, Release);
}

/// Takes what all queues have at one moment. A session may have said something because it knew what another
/// one had done: no batch has the first without the second, on whichever workers both are.
fn take_together(queues: &[Queue], batches: &mut [Batch]) {
    let mut locked: Vec<_> = queues.iter().map(|queue| lock(queue)).collect();
    for (queue, batch) in locked.iter_mut().zip(batches) {
        std::mem::swap(&mut **queue, batch);
    }
}

fn write(run: &Arc<Run>, interest: &Interest, writer: FolderWriter) {
    let mut writing = Writing {
        run,
        writer,
        sessions: HashMap::default(),
        statement_bytes: 0,
        first_number: 0,
        taken_out: 0,
    };
    let written = writing.until_end();
    interest.set(false);
    if let Err(error) = &written {
        run.note_end("error", &error.to_string());
    }
    run.note_end("stopped", "");
    let ended = writing.end();
    let (reason, words) = lock(&run.end).clone().unwrap_or_default();
    let status = run.status();
    tracing::info!(
        folder = %run.order.to.display(), reason, words,
        commands = status.commands, unchecked = run.counts.unchecked.load(Relaxed), sessions = status.sessions, thinned = status.thinned_sessions, bytes = status.bytes,
        "capture of traffic has ended"
    );
    if let Err(error) = ended {
        tracing::error!(%error, "the end of the capture could not be written");
    }
    close(run);
}

impl Writing<'_> {
    fn until_end(&mut self) -> Result<(), FileError> {
        let mut flushed = Instant::now();
        let mut batches = Vec::new();
        loop {
            let began = Instant::now();
            // Asked first: what was sent before the end is written.
            let is_to_stop = self.run.is_to_stop.load(Relaxed);
            let is_idle = !self.take_all(&mut batches)?;
            if is_to_stop && is_idle {
                return Ok(());
            }
            if flushed.elapsed() > FLUSH_EVERY {
                flushed = Instant::now();
                self.writer.flush()?;
                if self.run.upload.is_some() {
                    self.writer.next_file_after(FILE_AGE_MAX)?;
                }
                self.run.counts.bytes.store(self.writer.written(), Relaxed);
                if let Some((reason, words)) = self.limit() {
                    self.run.note_end(reason, &words);
                    return Ok(());
                }
            }
            if !is_to_stop {
                std::thread::sleep(PAUSE.saturating_sub(began.elapsed()));
            }
        }
    }

    /// Takes what has come of all workers, in the order of its end. `batches`: empty ones that they get for
    /// theirs. False where there was nothing.
    fn take_all(&mut self, batches: &mut Vec<Batch>) -> Result<bool, FileError> {
        let queues = lock(&self.run.queues).clone();
        batches.resize_with(queues.len(), Batch::default);
        take_together(&queues, batches);
        let mut has_some = false;
        let first = |batch: &Batch| batch.commands.front().map(|command| command.at);
        while let Some(batch) = batches
            .iter_mut()
            .filter(|batch| !batch.commands.is_empty())
            .min_by_key(|batch| first(batch))
            && let Some(ended) = batch.commands.pop_front()
        {
            has_some = true;
            self.taken_out += ended.size();
            self.command(ended)?;
            if self.taken_out > COUNTED_TOGETHER {
                self.count_taken();
            }
        }
        self.count_taken();
        for batch in batches {
            #[cfg(test)]
            assert!(!batch.panics, "as a test wants it");
            for session in batch.thinned.drain(..) {
                has_some = true;
                self.thin(session)?;
            }
            batch.commands.shrink_to(KEPT_MAX);
        }
        Ok(has_some)
    }

    fn count_taken(&mut self) {
        let taken = std::mem::take(&mut self.taken_out);
        self.run.queued.fetch_sub(taken, Relaxed);
    }

    /// Why it has to end now.
    fn limit(&self) -> Option<(&'static str, String)> {
        let order = &self.run.order;
        if order
            .duration
            .is_some_and(|limit| self.run.began.elapsed() >= limit)
        {
            return Some(("duration", String::new()));
        }
        if self.run.is_overrun.load(Relaxed) {
            return Some(("buffer", "the disk or the CPU does not keep up".to_owned()));
        }
        let size = self.writer.written();
        if let Some(max) = order.max_size.filter(|max| size >= *max) {
            return Some(("max-size", format!("{size} bytes of {max}")));
        }
        let free = free_percent(self.writer.folder()).filter(|free| *free < order.free_disk)?;
        Some(("disk", format!("{free} % of the disk are free")))
    }

    fn thin(&mut self, session: u32) -> Result<(), FileError> {
        let known = self.sessions.entry(session).or_default();
        if std::mem::replace(&mut known.is_thinned, true) {
            return Ok(());
        }
        // The status, the metrics and the last record count the others.
        if self.run.counts.thinned.fetch_add(1, Relaxed) == 0 {
            tracing::warn!(
                session,
                "capture: its queue is full, so that sessions are not captured any further"
            );
        }
        self.writer.put(&Record::Thinned { session })
    }

    fn command(&mut self, mut ended: Ended) -> Result<(), FileError> {
        let began = ended.at.checked_sub(ended.total).unwrap_or(ended.at);
        let start_us = began.saturating_duration_since(self.run.began).as_micros() as u64;
        let is_full = self.sessions.len() >= SESSIONS_MAX && !self.sessions.contains_key(&ended.session);
        if is_full || self.statement_bytes >= STATEMENTS_MAX {
            // Two commands of one number would be taken for one by whoever compares or goes on with a replay.
            let numbers = self.sessions.values().map(|session| session.commands);
            self.first_number = numbers.fold(self.first_number, u64::max);
            self.sessions.clear();
            self.statement_bytes = 0;
        }
        let is_new = !self.sessions.contains_key(&ended.session);
        let first_number = self.first_number;
        let session = self.sessions.entry(ended.session).or_insert_with(|| Session {
            commands: first_number,
            ..Session::default()
        });
        // It was forgotten, or its beginning was not heard.
        session.may_be_in_mysql |= is_new && !ended.is_first;
        if let Some(who) = ended
            .who
            .as_ref()
            .filter(|who| is_new || session.user != who.user || ended.command == Command::CHANGE_USER)
        {
            session.user = who.user.clone();
            // Of a session that was there before, the present one is nearer to what it had.
            let (login, present) = (who.login_schema.as_ref(), ended.schema.as_ref());
            let schema = match ended.is_first || !is_new {
                true => login.or(present),
                false => present.or(login),
            };
            // The text that was the last one to change it may have come before the capture.
            let is_known = ended.is_first || present.is_some();
            session.is_in(schema.map(|schema| schema.to_vec()).unwrap_or_default());
            session.may_be_in_mysql = !is_known;
            let record = SessionRecord {
                id: ended.session,
                at_us: start_us,
                user: who.user.to_string(),
                listener: who.listener.to_string(),
                schema: session.schema.clone(),
                capabilities: ended.capabilities.0,
                was_open: is_new && !ended.is_first,
                collation: who.login_collation,
            };
            self.writer.put(&Record::Session(record))?;
            self.run.counts.sessions.fetch_add(u64::from(is_new), Relaxed);
        }
        let before = session.statement_bytes;
        let record = record(&mut ended, session, start_us);
        self.statement_bytes = (self.statement_bytes + session.statement_bytes).saturating_sub(before);
        session.commands += 1;
        if ended.command == Command::QUIT {
            self.statement_bytes = self.statement_bytes.saturating_sub(session.statement_bytes);
            self.sessions.remove(&ended.session);
        }
        let schema = self.run.order.filters.schema.as_ref();
        let is_wanted = schema.is_none_or(|wanted| *wanted.as_bytes() == *record.schema)
            && self.run.digest.is_none_or(|wanted| wanted == record.digest);
        // A replay of the others needs what their session had set, and the `USE` that led to their schema.
        if !is_wanted && !sets_session(&record) {
            return Ok(());
        }
        if record.flags.has(Flags::UNCHECKED) {
            self.run.counts.unchecked.fetch_add(1, Relaxed);
        }
        if record.flags.has(Flags::WITHHELD) {
            self.run.counts.withheld.fetch_add(1, Relaxed);
        }
        self.run.counts.commands.fetch_add(1, Relaxed);
        self.writer.put(&Record::Command(Box::new(record)))
    }

    fn end(self) -> Result<(), FileError> {
        let Self { run, mut writer, .. } = self;
        let (reason, words) = lock(&run.end).clone().unwrap_or_default();
        writer.put(&Record::End(Box::new(End {
            reason,
            words,
            commands: run.counts.commands.load(Relaxed),
            sessions: run.counts.sessions.load(Relaxed),
            thinned_sessions: run.counts.thinned.load(Relaxed),
            withheld: run.counts.withheld.load(Relaxed),
            unchecked: run.counts.unchecked.load(Relaxed),
            lateness: None,
        })))?;
        let written = writer.finish()?;
        run.counts.bytes.store(written, Relaxed);
        Ok(())
    }
}

/// The record of a command, and what its session has after it.
pub(crate) fn record(ended: &mut Ended, session: &mut Session, start_us: u64) -> CommandRecord {
    let mut record = CommandRecord {
        session: ended.session,
        number: session.commands,
        start_us,
        took_us: ended.total.as_micros() as u64,
        command: ended.command.0,
        digest: ended.digest,
        schema: session.schema.clone(),
        rows: ended.rows,
        affected_rows: ended.affected_rows,
        insert_id: ended.insert_id,
        warnings: ended.warnings,
        error: ended.error,
        ..CommandRecord::default()
    };
    match ended.end {
        HowEnded::Relayed | HowEnded::Pipelined => {}
        HowEnded::Memory => record.flags.set(Flags::MEMORY),
        HowEnded::Gateway | HowEnded::Refused => record.flags.set(Flags::GATEWAY),
        HowEnded::Lost => record.flags.set(Flags::LOST),
        HowEnded::Closed => record.flags.set(Flags::CLOSED),
    }
    body(ended, session, &mut record);
    answer(ended, session, &mut record);
    let new_schema = match &ended.schema {
        Some(schema) => Some(schema.to_vec()),
        // Where the gateway knows it, it has said so when it became another.
        None if ended.error == 0 => schema_of(&record),
        None => None,
    };
    if let Some(schema) = new_schema {
        session.is_in(schema);
    }
    record
}

/// What the client said, as far as it may be written.
fn body(ended: &Ended, session: &mut Session, record: &mut CommandRecord) {
    let packet = &ended.packet[..];
    let payload = packet.get(PacketHeader::LEN..).unwrap_or_default();
    let is_one = PacketHeader::parse(packet).is_some_and(|header| !header.is_continued());
    if !ended.is_packet_whole || !is_one {
        record.flags.set(Flags::CUT);
    }
    let is_cut = record.flags.has(Flags::CUT);
    match ended.command {
        Command::QUERY | Command::STMT_PREPARE => {
            let text = text(payload, ended);
            if record.digest == 0 && !is_cut {
                record.digest = sql_class::digest(text, Syntax::default()).hash;
            }
            session.was_in_mysql |= goes_to_mysql(text);
            let changes_accounts = (session.was_in_mysql || session.may_be_in_mysql)
                && may_change_accounts(text, session.was_in_mysql);
            match may_be_written(text) && !changes_accounts {
                _ if is_cut => {}
                true => record.body = text.to_vec(),
                false => record.flags.set(Flags::WITHHELD),
            }
            if ended.command == Command::STMT_PREPARE {
                session.takes_harmless_values = takes_harmless_values(text);
                session.last_prepared = 0;
            }
        }
        Command::STMT_EXECUTE
        | Command::STMT_BULK_EXECUTE
        | Command::STMT_SEND_LONG_DATA
        | Command::STMT_FETCH
        | Command::STMT_RESET
        | Command::STMT_CLOSE => {
            record.statement = match statement::statement_id(payload) {
                Ok(Some(statement::LAST_PREPARED)) => session.last_prepared,
                named => named.ok().flatten().unwrap_or(0),
            };
            let mut known = session.statements.get_mut(&record.statement);
            record.digest = match (record.digest, &known) {
                (0, Some(prepared)) => prepared.digest,
                (digest, _) => digest,
            };
            let has_values = matches!(
                ended.command,
                Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE | Command::STMT_SEND_LONG_DATA
            );
            let is_secret = match &mut known {
                Some(known) if has_values => {
                    let before = known.last_bytes.len();
                    let may_be_written = known.takes(ended.command, payload);
                    session.statement_bytes = session.statement_bytes + known.last_bytes.len() - before;
                    !may_be_written
                }
                Some(_) => false,
                None => has_values,
            };
            match known {
                // Of a statement that was prepared before the capture nobody knows what its parameters are.
                _ if is_secret => record.flags.set(Flags::WITHHELD),
                _ if is_cut => {}
                known => {
                    match without_attributes(
                        payload,
                        ended,
                        known.as_ref().map_or(0, |known| known.parameters),
                    ) {
                        Some(body) => record.body = body,
                        None => record.flags.set(Flags::CUT),
                    }
                }
            }
            if ended.command == Command::STMT_CLOSE {
                let gone = session.statements.remove(&record.statement);
                session.statement_bytes -= gone.map_or(0, |gone| gone.size());
            }
        }
        // Passwords, and what proves that one is known.
        Command::CHANGE_USER => record.flags.set(Flags::WITHHELD),
        Command::INIT_DB | Command::SET_OPTION | Command::FIELD_LIST | Command::PROCESS_KILL if !is_cut => {
            record.body = payload.get(1..).unwrap_or_default().to_vec();
        }
        Command::QUIT | Command::PING | Command::RESET_CONNECTION | Command::STATISTICS => {}
        _ => record.flags.set(Flags::WITHHELD),
    }
    if ended.command == Command::RESET_CONNECTION || ended.command == Command::CHANGE_USER {
        session.forget_statements();
    }
    if ended.command == Command::CHANGE_USER {
        session.may_be_in_mysql = true;
    }
}

/// What comes behind the command byte, in the form of a client that knows no query attributes: a replay has
/// none, since not all servers know them. `None` where there are some, or the packet makes no sense.
fn without_attributes(payload: &[u8], ended: &Ended, parameters: u16) -> Option<Vec<u8>> {
    const PARAMETER_COUNT_AVAILABLE: u8 = 8;
    let body = payload.get(1..)?;
    let is_named = ended.capabilities.contains(Capabilities::QUERY_ATTRIBUTES);
    if ended.command != Command::STMT_EXECUTE || !is_named {
        return Some(body.to_vec());
    }
    let head = ExecuteHead::decode(payload, parameters, ended.capabilities).ok()?;
    if head.attributes > 0 {
        return None;
    }
    // The id, the flags and the count of iterations.
    let mut plain = body.get(..9)?.to_vec();
    plain[4] &= !PARAMETER_COUNT_AVAILABLE;
    let Some(nulls) = head.nulls() else {
        return Some(plain);
    };
    plain.extend_from_slice(payload.get(nulls)?);
    match head.types() {
        Some(types) => {
            plain.push(1);
            plain.extend_from_slice(types);
        }
        None => plain.push(0),
    }
    plain.extend_from_slice(payload.get(head.len..)?);
    Some(plain)
}

/// The text of a statement, without the attributes in front of it.
fn text<'a>(payload: &'a [u8], ended: &Ended) -> &'a [u8] {
    let rest = payload.get(1..).unwrap_or_default();
    let has_attributes = ended.capabilities.contains(Capabilities::QUERY_ATTRIBUTES);
    if ended.command != Command::QUERY || !has_attributes {
        return rest;
    }
    let query = mysql_wire::query::Query::decode(payload, ended.capabilities);
    query.map_or(rest, |query| query.text)
}

/// Takes over the answer, as the client got it.
fn answer(ended: &mut Ended, session: &mut Session, record: &mut CommandRecord) {
    let read = match std::mem::replace(&mut ended.answer, CapturedAnswer::Cut) {
        CapturedAnswer::Read(read) => read,
        CapturedAnswer::Long(copied) => {
            files::take_over(&copied, record);
            checks::read(ended.command, ended.capabilities, copied.answer())
        }
        CapturedAnswer::Cut => Read::default(),
    };
    if !read.is_whole {
        record.flags.set(Flags::UNCHECKED);
    }
    record.rows = record.rows.max(read.rows);
    record.checks = read.checks;
    if let Some((id, parameters)) = read.prepared {
        (record.statement, record.parameters) = (id, parameters);
        session.last_prepared = id;
        let is_written = !record.flags.has(Flags::WITHHELD) && !record.flags.has(Flags::CUT);
        let may_be_written = is_written && session.takes_harmless_values;
        let prepared = Prepared {
            digest: record.digest,
            parameters,
            may_be_written,
            last_bytes: Vec::new(),
        };
        session.statement_bytes += prepared.size();
        let other = session.statements.insert(id, prepared);
        session.statement_bytes -= other.map_or(0, |other| other.size());
    }
}

/// The schema that a command has gone to, where its text says so. For sessions of which the gateway reads
/// nothing else.
pub(crate) fn schema_of(record: &CommandRecord) -> Option<Vec<u8>> {
    let schema = match Command(record.command) {
        Command::INIT_DB => Some(record.body.clone()),
        Command::QUERY => {
            let text = record.body.trim_ascii();
            let (word, rest) = text.split_at_checked(4)?;
            if !word[..3].eq_ignore_ascii_case(b"use") || !matches!(word[3], b' ' | b'\t' | b'\n' | b'`') {
                return None;
            }
            let rest = if word[3] == b'`' { &text[3..] } else { rest };
            let rest = rest.trim_ascii();
            let name = without_semicolon(rest).trim_ascii();
            let quoted = name.strip_prefix(b"`").and_then(|name| name.strip_suffix(b"`"));
            let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..);
            // Whatever else stands there is not a name alone.
            let is_name = match quoted {
                Some(quoted) => !quoted.contains(&b'`'),
                None => name.iter().all(is_word),
            };
            let name = quoted.unwrap_or(name);
            (is_name && !name.is_empty()).then(|| name.to_vec())
        }
        _ => None,
    };
    schema.filter(|schema| schema.len() <= SCHEMA_MAX)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use mysql_wire::write_packet;

    use super::super::WhenFull;
    use super::super::tests::stalled;
    use super::*;
    use crate::file::Folder;
    use crate::record::{Check, Head};

    fn packet(payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        write_packet(&mut packet, &mut 0, payload);
        packet
    }

    fn ended(payload: &[u8], answer: &[u8]) -> Ended {
        Ended {
            session: 1,
            is_first: false,
            at: Instant::now(),
            total: Duration::ZERO,
            command: Command(payload[0]),
            who: None,
            schema: None,
            capabilities: Capabilities::PROTOCOL_41,
            digest: 0,
            end: HowEnded::Relayed,
            rows: 0,
            affected_rows: 0,
            insert_id: 0,
            warnings: 0,
            error: 0,
            packet: packet(payload).into(),
            is_packet_whole: true,
            answer: CapturedAnswer::read(Command(payload[0]), Capabilities::PROTOCOL_41, answer),
        }
    }

    fn writing<'a>(run: &'a Run, folder: &Path) -> Writing<'a> {
        Writing {
            run,
            writer: FolderWriter::create(folder, Head::default(), 1 << 20, None).unwrap(),
            sessions: HashMap::default(),
            statement_bytes: 0,
            first_number: 0,
            taken_out: 0,
        }
    }

    #[test]
    fn queues_are_taken_at_one_moment() {
        let queues = [Queue::default(), Queue::default()];
        let mut batches = [Batch::default(), Batch::default()];
        let limit = Instant::now() + Duration::from_secs(10);
        let mut looks_in_vain = 0;
        std::thread::scope(|scope| {
            let last = lock(&queues[1]);
            scope.spawn(|| take_together(&queues, &mut batches));
            // The first queue stays locked until all are: nothing may come into it meanwhile.
            while looks_in_vain < 10 && Instant::now() < limit {
                looks_in_vain = match queues[0].try_lock() {
                    Ok(_) => 0,
                    Err(_) => looks_in_vain + 1,
                };
                std::thread::yield_now();
            }
            drop(last);
        });
        assert_eq!(looks_in_vain, 10);
    }

    #[test]
    fn the_memory_of_many_commands_is_given_back() {
        let place = tempfile::tempdir().unwrap();
        let (_, run) = stalled(WhenFull::Thin, 1.0);
        let mut batch = Batch::default();
        batch.commands.reserve(2 * KEPT_MAX);
        batch.commands.push_back(ended(b"\x03SELECT 1", &[]));
        let queue = Queue::new(Mutex::new(batch));
        lock(&run.queues).push(Queue::clone(&queue));
        let mut batches = Vec::new();
        let mut writing = writing(&run, &place.path().join("folder"));
        assert!(writing.take_all(&mut batches).unwrap());
        assert!(batches[0].commands.capacity() <= KEPT_MAX);
        // A worker may put a last one there when nobody takes it any more.
        lock(&queue).commands.push_back(ended(b"\x03SELECT 2", &[]));
        close(&run);
        assert!(run.has_ended() && lock(&queue).commands.is_empty());
        assert_eq!(run.status().queued_bytes, 0);
    }

    #[test]
    fn the_checks_of_many_columns_are_counted() {
        let size = |columns: u8| {
            let mut answer = packet(&[columns]);
            // A column's definition ends with its type, its flags and its decimals.
            for _ in 0..columns {
                answer.extend(packet(&[0; 6]));
            }
            for _ in 0..2 {
                answer.extend(packet(&[0xfe, 0, 0, 0, 0]));
            }
            ended(b"\x03SELECT 1", &answer).size()
        };
        assert_eq!(size(101) - size(1), 100 * size_of::<Check>());
    }

    #[test]
    fn what_is_known_of_statements_is_counted() {
        let prepare = [&[Command::STMT_PREPARE.0][..], b"INSERT INTO t VALUES (?)"].concat();
        let prepared = packet(&[0, 7, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        let long = [
            &[Command::STMT_SEND_LONG_DATA.0, 7, 0, 0, 0, 0, 0][..],
            &[b'x'; 2000],
        ]
        .concat();
        let mut session = Session::new("app", Some(b"shop"));
        let mut known = |payload: &[u8], answer: &[u8]| {
            record(&mut ended(payload, answer), &mut session, 0);
            session.statement_bytes
        };
        assert_eq!(known(&prepare, &prepared), STATEMENT);
        assert_eq!(known(&long, &[]), STATEMENT + WORDS_MAX);
        assert_eq!(known(&prepare, &prepared), STATEMENT, "the other one is gone");
        assert_eq!(known(&long, &[]), STATEMENT + WORDS_MAX);
        assert_eq!(known(&[Command::STMT_CLOSE.0, 7, 0, 0, 0], &[]), 0);
        known(&prepare, &prepared);
        assert_eq!(known(&[Command::RESET_CONNECTION.0], &[]), 0);
    }

    #[test]
    fn the_statement_that_was_prepared_last_need_not_be_named() {
        let prepare = [&[Command::STMT_PREPARE.0][..], b"SELECT 1"].concat();
        let prepared = packet(&[0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let refused = packet(b"\xff\x28\x04#42000no");
        let execute = [&[Command::STMT_EXECUTE.0][..], &[0xff; 4], &[0, 1, 0, 0, 0]].concat();
        let mut session = Session::new("app", Some(b"shop"));
        let mut statement = |payload: &[u8], answer: &[u8]| {
            let record = record(&mut ended(payload, answer), &mut session, 0);
            (record.statement, record.flags.has(Flags::WITHHELD))
        };
        assert_eq!(statement(&prepare, &prepared), (7, false));
        assert_eq!(statement(&execute, &[]), (7, false));
        assert_eq!(statement(&prepare, &refused), (0, false));
        assert_eq!(statement(&execute, &[]), (0, true), "there is none");
    }

    #[test]
    fn a_session_that_is_forgotten_has_no_number_twice() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("folder");
        let (_, run) = stalled(WhenFull::Thin, 1.0);
        let mut writing = writing(&run, &folder);
        for forgets in [false, false, true, false, true, false] {
            if forgets {
                writing.statement_bytes = STATEMENTS_MAX;
            }
            let ended = ended(b"\x03SELECT 1", &[]);
            writing.command(ended).unwrap();
        }
        writing.end().unwrap();
        let mut folder = Folder::open(&folder, None).unwrap();
        let mut numbers = Vec::new();
        while let Some(record) = folder.next_record().unwrap() {
            if let Record::Command(command) = record {
                numbers.push(command.number);
            }
        }
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    }
}
