//! The life of a connection: read, execute all that came, write, again.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dataplane::extension::{Gating, ProtocolConnection, ProtocolEnd, ProtocolSession, is_plain};
use net::{Stream, buffer};
use resp_wire::{ParseStep, Writer};
use tokio::time::{sleep, sleep_until};

use super::ahead;
use super::batch::{Batch, execution};
use super::command::{self, Command};
use super::execute::Next;
use super::flush;
use super::info;
use super::input::Input;
use super::login;
use super::output;
use super::refusal::{Refusal, UnknownCommand};
use super::rows::Stop;
use super::session::{Replies, Session};
use super::tracking;
use super::wait::unless_ordered;
use super::{SCRATCH_KEPT, Scratch, Service};
use crate::mapping::Mapping;
use crate::store::NotRead;
use crate::tracking::{Mail, Mailbox};

/// Bytes of replies that are collected before they are written: so much of a long pipeline is executed at
/// once.
pub(super) const PORTION: usize = 64 * 1024;
/// Turns of the runtime that a request waits for a readable state of the store before it sleeps.
const TURNS: u32 = 8;
/// How long it sleeps each time after that.
const PAUSE: Duration = Duration::from_millis(1);

/// Serves a connection until it ends.
pub(super) async fn run(service: &Service, connection: ProtocolConnection) -> ProtocolEnd {
    let ProtocolConnection {
        stream,
        unread,
        control,
    } = connection;
    let (address, local) = (control.peer().to_string(), control.local().to_string());
    let listed = service.shared.clients.enlist(control.id(), address, local);
    let mut connection = Connection {
        service,
        session: Session::new(&control, listed),
        control,
        stream,
        input: Input::new(unread),
        scratch: None,
        gating: None,
    };
    // Boxed, because it is over soon: a connection has no room for it later.
    match Box::pin(connection.become_known()).await {
        Some(departure) => departure,
        None => connection.serve(false).await.unwrap_or(ProtocolEnd::Gone),
    }
}

struct Connection<'s> {
    service: &'s Service,
    control: ProtocolSession,
    stream: Stream,
    session: Session,
    input: Input,
    /// While part of a request is there.
    scratch: Option<Box<Scratch>>,
    /// Since its first strong read.
    gating: Option<Box<Gating<()>>>,
}

/// What a connection has waited for.
enum ReadEvent {
    /// So many bytes of the client; 0 are the end.
    Bytes(usize),
    /// Something to tell it.
    Mail,
}

/// What a client has to be told, on its own behalf and on that of others.
struct PendingPush {
    own: Option<Mail>,
    letters: Option<Mail>,
}

impl Connection<'_> {
    /// Serves a stranger, who has the time of a login to become known.
    async fn become_known(&mut self) -> Option<ProtocolEnd> {
        let deadline = tokio::time::Instant::now() + self.control.listener().login_timeout;
        tokio::select! {
            biased;
            departure = self.serve(true) => departure,
            () = sleep_until(deadline) => Some(ProtocolEnd::LoginTimeout),
        }
    }

    /// Serves until the connection ends; `until_login`: or until the client has logged in.
    async fn serve(&mut self, until_login: bool) -> Option<ProtocolEnd> {
        let mut was_full = false;
        loop {
            // What has changed before a request is told before it: a client hears of a change before it is
            // shown what came later.
            if let Some(pending_push) = self.pending_push()
                && let Err(departure) = Box::pin(self.tell_pending_push(pending_push)).await
            {
                return Some(departure);
            }
            if !self.input.bytes().is_empty() {
                if let Err(departure) = self.work().await {
                    return Some(departure);
                }
                // What has changed meanwhile is told behind its reply.
                if let Some(pending_push) = self.pending_push()
                    && let Err(departure) = Box::pin(self.tell_pending_push(pending_push)).await
                {
                    return Some(departure);
                }
            }
            if until_login && self.session.identity.is_some() {
                return None;
            }
            if was_full {
                // Others have their turn: there is more of this.
                tokio::task::yield_now().await;
            }
            match self.receive().await {
                Ok(ReadEvent::Mail) => was_full = false,
                Ok(ReadEvent::Bytes(0)) => return Some(ProtocolEnd::Gone),
                Ok(ReadEvent::Bytes(n)) => {
                    was_full = n >= buffer::CAPACITY / 2;
                    self.control.add_from_client(n);
                }
                Err(departure) => return Some(departure),
            }
        }
    }

    /// What there is to tell the client.
    fn pending_push(&self) -> Option<PendingPush> {
        let tracked = self.session.tracking.as_deref();
        let own = tracked.and_then(|tracked| tracked.tracker.take_mail());
        let letters = self.session.letters.as_deref().and_then(Mailbox::take);
        (own.is_some() || letters.is_some()).then_some(PendingPush { own, letters })
    }

    async fn tell_pending_push(
        &mut self,
        PendingPush { own, letters }: PendingPush,
    ) -> Result<(), ProtocolEnd> {
        if let Some(mail) = own {
            self.tell(mail).await?;
        }
        if let Some(mail) = letters {
            self.say(|_, out| tracking::tell(&mail, out)).await?;
        }
        Ok(())
    }

    /// Waits for bytes, or for something that the client has to be told.
    async fn receive(&mut self) -> Result<ReadEvent, ProtocolEnd> {
        self.control.waits_for_client();
        poll_fn(|cx| {
            if let Some(order) = self.control.due(true) {
                return Poll::Ready(Err(ProtocolEnd::Signalled(order)));
            }
            if let Poll::Ready(read) = self.poll_read(cx) {
                return Poll::Ready(read.map(ReadEvent::Bytes).map_err(ProtocolEnd::Failed));
            }
            let mail = self.session.tracking.as_deref();
            let mail = mail.map_or(Poll::Pending, |tracked| tracked.tracker.poll_mail(cx));
            let letters = self.session.letters.as_deref();
            let letters = letters.map_or(Poll::Pending, |letters| letters.poll(cx));
            match (mail, letters) {
                (Poll::Pending, Poll::Pending) => Poll::Pending,
                _ => Poll::Ready(Ok(ReadEvent::Mail)),
            }
        })
        .await
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let (input, stream) = (&mut self.input, &mut self.stream);
        match &mut self.gating {
            Some(gating) => gating.poll_read(cx, self.service, is_plain(stream), |cx| {
                input.poll_read(cx, stream)
            }),
            None => input.poll_read(cx, stream),
        }
    }

    /// Tells the client which keys have changed, or the one that is told in its place. Only between two
    /// requests: what changed during one is told behind its reply.
    async fn tell(&mut self, mut mail: Mail) -> Result<(), ProtocolEnd> {
        let Some(tracked) = &self.session.tracking else {
            return Ok(());
        };
        let to = tracked.redirection;
        self.control.works();
        if tracked.is_broadcast() {
            mail = self.readable(mail).await?;
        }
        self.say(|session, out| match to {
            0 => tracking::tell(&mail, out),
            to => tracking::redirect(&mail, session, to, out),
        })
        .await
    }

    /// Writes something that the client has not asked for.
    async fn say(&mut self, write: impl FnOnce(&Session, &mut Writer<'_>)) -> Result<(), ProtocolEnd> {
        self.control.works();
        let mut scratch = self.scratch.take().unwrap_or_else(|| self.service.take_scratch());
        write(
            &self.session,
            &mut Writer::new(&mut scratch.out, self.session.version),
        );
        let written = output::write(&mut self.stream, &self.control, &mut scratch.out).await;
        self.put_away(scratch);
        written
    }

    /// What of it the client's user may read.
    async fn readable(&mut self, mail: Mail) -> Result<Mail, ProtocolEnd> {
        let Mail::Keys(mut keys) = mail else {
            return Ok(mail);
        };
        self.age_rights(Instant::now());
        let mappings = self.service.mappings();
        let mut allowed = Vec::with_capacity(keys.len());
        for key in &keys {
            let name = key.split(|&byte| byte == b'@').next().unwrap_or_default();
            let Some(mapping) = mappings.0.by_name(name) else {
                return Ok(Mail::All);
            };
            if self.session.rights.of(mapping).is_none() {
                self.find_right(mapping).await?;
            }
            match self.session.rights.of(mapping) {
                Some(verdict) => allowed.push(verdict),
                None => return Ok(Mail::All),
            }
        }
        let mut allowed = allowed.into_iter();
        keys.retain(|_| allowed.next().unwrap_or(false));
        Ok(Mail::Keys(keys))
    }

    /// Executes the requests that are there.
    async fn work(&mut self) -> Result<(), ProtocolEnd> {
        self.control.works();
        let mut scratch = self.scratch.take().unwrap_or_else(|| self.service.take_scratch());
        let first_is_fresh = self.has_waited_at_gate();
        let mut batch = Batch::new(self.service.mappings(), self.session.level, first_is_fresh);
        let worked = self.requests(&mut scratch, &mut batch).await;
        let written = match &worked {
            // Nobody would read it.
            Err(ProtocolEnd::Failed(_) | ProtocolEnd::Signalled(_)) => Ok(()),
            _ => output::write(&mut self.stream, &self.control, &mut scratch.out).await,
        };
        self.service.counts.commands.add(batch.commands.into());
        self.note_reads(&mut batch);
        if let Some(last) = batch.last {
            self.session.listed.worked(last);
        }
        if batch.has_begun() {
            self.end_commands(&batch);
        }
        self.input.rest();
        self.put_away(scratch);
        worked.and(written)
    }

    fn note_reads(&self, batch: &mut Batch) {
        let reads = std::mem::take(&mut batch.reads);
        if reads > 0 {
            self.service.reader.note_reads(batch.level, reads.into());
        }
    }

    /// The first request that came is as fresh as it has to be.
    fn has_waited_at_gate(&self) -> bool {
        let definitions = self.service.reader.feed_status().definitions();
        let gating = self.gating.as_deref();
        gating.is_some_and(|gating| gating.is_fresh(definitions)) && self.session.reads_strongly()
    }

    /// Strong reads that come one at a time wait at a gate, from some of them on.
    fn end_commands(&mut self, batch: &Batch) {
        if batch.is_one_read() && self.session.reads_strongly() {
            self.gating.get_or_insert_default().note_lookup();
        }
        if let Some(gating) = &mut self.gating {
            gating.next_command();
        }
    }

    /// The scratch is kept while part of a request is there.
    fn put_away(&mut self, mut scratch: Box<Scratch>) {
        scratch.out.clear();
        if scratch.parser.is_within_request() {
            scratch.space.shrink_to(SCRATCH_KEPT);
            self.scratch = Some(scratch);
        } else {
            self.service.give_back(scratch);
        }
    }

    async fn requests(&mut self, scratch: &mut Scratch, batch: &mut Batch) -> Result<(), ProtocolEnd> {
        self.age_rights(batch.began);
        loop {
            match scratch.parser.parse(self.input.bytes(), self.session.limits()) {
                Ok(ParseStep::Incomplete) => return Ok(()),
                Ok(ParseStep::Skip(n)) => {
                    batch.pass_over();
                    self.input.consume(n);
                }
                Ok(ParseStep::Request(n)) => {
                    let quits = self.request(scratch, batch, n).await?;
                    self.input.consume(n);
                    if quits {
                        return Err(ProtocolEnd::Quit);
                    }
                }
                Ok(ParseStep::TooLarge(n)) => {
                    batch.pass_over();
                    let (start, replies) = (scratch.out.len(), self.session.replies);
                    self.refuse_large(scratch);
                    self.mute(replies, start, &mut scratch.out);
                    self.input.consume(n);
                }
                Err(error) => {
                    let mut out = Writer::new(&mut scratch.out, self.session.version);
                    out.error(&format!("ERR {error}"));
                    return Err(ProtocolEnd::Protocol(error.to_string()));
                }
            }
            if scratch.out.len() >= PORTION {
                output::write(&mut self.stream, &self.control, &mut scratch.out).await?;
                // A client may take its time.
                self.look_anew(batch);
            }
            if scratch.space.is_turn_over() {
                tokio::task::yield_now().await;
                self.look_anew(batch);
            }
        }
    }

    /// True: something was forgotten.
    fn age_rights(&mut self, now: Instant) -> bool {
        let definitions = self.service.reader.feed_status().definitions();
        self.session.rights.age(now, definitions)
    }

    /// Something was waited for, which may have been a REVOKE or an ALTER. What was asked for by what was
    /// known before is of no use then.
    fn look_anew(&mut self, batch: &mut Batch) {
        let has_forgotten = self.age_rights(Instant::now());
        let mappings = self.service.mappings();
        if has_forgotten || !Rc::ptr_eq(&mappings, &batch.mappings) {
            batch.mappings = mappings;
            batch.ahead = None;
        }
    }

    /// Executes the request that the parser has found, whatever has to be waited for. `size`: its bytes.
    /// True: the client said goodbye.
    async fn request(
        &mut self,
        scratch: &mut Scratch,
        batch: &mut Batch,
        size: usize,
    ) -> Result<bool, ProtocolEnd> {
        let start = scratch.out.len();
        let replies = self.session.replies;
        // How often it has waited for a state of the store that can be read.
        let mut turns = 0;
        let mut waits = false;
        let (mut command, mut reads);
        let quits = loop {
            let Scratch { parser, out, space } = &mut *scratch;
            let args = parser.args(self.input.bytes());
            let fetched = batch.ahead.as_mut().and_then(|ahead| ahead.pop_front());
            let mut execution = execution(self.service, &self.control, &mut self.session, batch, space);
            let next = match fetched {
                None => execution.request(args, out),
                Some(rows) => {
                    execution.request_fetched(args, rows, out);
                    Next::Done
                }
            };
            (command, reads) = (execution.last, execution.reads);
            batch.last = command.or(batch.last);
            match next {
                Next::Done => break false,
                Next::Quit => break true,
                Next::Fresh => {
                    waits = true;
                    self.input.make_small();
                    batch.fresh = Some(self.fresh().await?);
                    self.look_anew(batch);
                }
                Next::Busy => {
                    if !self.pause(&mut turns).await? {
                        let reason = NotRead::Busy.to_string();
                        self.give_up(&Refusal::NotFresh(reason), &mut scratch.out);
                        break false;
                    }
                }
                Next::Right(mapping) => {
                    if !Box::pin(self.learn_right(&mapping, &mut scratch.out)).await? {
                        break false;
                    }
                }
                Next::Ask => {
                    if Box::pin(self.ask(scratch, batch, size, &mut turns)).await? {
                        break false;
                    }
                }
                Next::Auth | Next::Hello | Next::Info | Next::Flush => {
                    Box::pin(self.await_server(scratch)).await?;
                    break false;
                }
            }
        };
        batch.end_command(reads, waits);
        if std::mem::take(&mut self.session.level_is_new) {
            self.note_reads(batch);
            batch.change_level(self.session.level);
        }
        if let Some(tracked) = &mut self.session.tracking
            && command != Some(Command::Client)
            && self.session.queue.is_none()
        {
            tracked.said = false;
        }
        self.mute(replies, start, &mut scratch.out);
        Ok(quits)
    }

    /// Waits until the store is as fresh as the client's level wants it for all that has come.
    async fn fresh(&self) -> Result<Result<(), String>, ProtocolEnd> {
        let fresh = self
            .service
            .reader
            .fresh(self.session.level, self.session.seen.as_deref());
        let fresh = unless_ordered(&self.control, pin!(fresh)).await?;
        Ok(fresh.map_err(|not_fresh| not_fresh.to_string()))
    }

    /// Waits a moment: a large transaction is being applied. First a turn of the runtime, then longer. False:
    /// it has taken too long.
    async fn pause(&self, turns: &mut u32) -> Result<bool, ProtocolEnd> {
        *turns += 1;
        if *turns <= TURNS {
            tokio::task::yield_now().await;
            return Ok(true);
        }
        if PAUSE * (*turns - TURNS) > self.service.shared.wait {
            return Ok(false);
        }
        unless_ordered(&self.control, pin!(sleep(PAUSE))).await?;
        Ok(true)
    }

    /// Finds out whether the user may read a mapping. `Some`: why nobody knows.
    async fn find_right(&mut self, mapping: &Arc<Mapping>) -> Result<Option<String>, ProtocolEnd> {
        let (rights, known) = (&self.service.rights, &mut self.session.rights);
        let Some(identity) = &self.session.identity else {
            return Ok(Some("nobody has logged in".into()));
        };
        let definitions = self.service.reader.feed_status().definitions();
        let asked = rights.find_out(&self.control, identity, mapping, definitions, known);
        Ok(unless_ordered(&self.control, pin!(asked)).await?.err())
    }

    /// The same for a request, which is refused where nobody knows: false.
    async fn learn_right(&mut self, mapping: &Arc<Mapping>, out: &mut Vec<u8>) -> Result<bool, ProtocolEnd> {
        let reason = self.find_right(mapping).await?;
        let is_known = reason.is_none();
        if let Some(reason) = reason {
            self.give_up(&Refusal::NotAsked(reason), out);
        }
        Ok(is_known)
    }

    /// Asks the server for the rows of a request, and executes it with them. What comes behind it is asked
    /// for, too. False: it is to be tried once more, because something had to be waited for first.
    async fn ask(
        &mut self,
        scratch: &mut Scratch,
        batch: &mut Batch,
        size: usize,
        turns: &mut u32,
    ) -> Result<bool, ProtocolEnd> {
        self.input.make_small();
        let Scratch { parser, out, space } = scratch;
        let args = parser.args(self.input.bytes());
        let mut asking = execution(self.service, &self.control, &mut self.session, batch, space);
        let question = match ahead::AheadQuestion::new(&mut asking, args, &self.input.bytes()[size..]) {
            Ok(question) => question,
            Err(Stop::Right(mapping)) => return Ok(!self.learn_right(&mapping, out).await?),
            Err(_) => return self.gives_up(turns, out).await,
        };
        self.service.counts.asked_server.inc();
        let fetched = unless_ordered(&self.control, pin!(question.ask(self.service))).await?;
        // That may have taken long, and what the server says may have come after a REVOKE.
        let definitions = self.service.reader.feed_status().definitions();
        if fetched.is_ok() && self.session.rights.age(Instant::now(), definitions) {
            return self.gives_up(turns, out).await;
        }
        match fetched {
            Ok(mut fetched) => {
                let own = fetched.pop_front().unwrap_or_default();
                batch.ahead = Some(Box::new(fetched));
                execution(self.service, &self.control, &mut self.session, batch, space)
                    .request_fetched(args, own, out);
            }
            Err(error) => self.give_up(&error.into(), out),
        }
        Ok(true)
    }

    /// A request is to be tried once more, a moment later: false. True: it was tried for long enough, and
    /// comes to nothing.
    async fn gives_up(&mut self, turns: &mut u32, out: &mut Vec<u8>) -> Result<bool, ProtocolEnd> {
        let gives_up = !self.pause(turns).await?;
        if gives_up {
            self.give_up(&Refusal::NotFresh(NotRead::Busy.to_string()), out);
        }
        Ok(gives_up)
    }

    /// Executes a request about which a server has the last word.
    async fn await_server(&mut self, scratch: &mut Scratch) -> Result<(), ProtocolEnd> {
        let Scratch { parser, out, .. } = scratch;
        let args = parser.args(self.input.bytes());
        let command = args.get(0).and_then(Command::find);
        let (service, session, control) = (self.service, &mut self.session, &self.control);
        let version = session.version;
        let executed = async {
            match command {
                Some(Command::Auth) => {
                    login::auth(session, control, args, &mut Writer::new(out, version)).await
                }
                Some(Command::Info) => {
                    info::learn_rights(service, session, control, args.from(1)).await;
                    let text = info::info(service, &session.rights, args.from(1));
                    Writer::new(out, version).verbatim(&text);
                    Ok(())
                }
                Some(Command::Flush) => {
                    flush::flush(service, session, control, &mut Writer::new(out, version)).await
                }
                _ => login::hello(session, control, args, out).await,
            }
        };
        let executed = unless_ordered(control, pin!(executed)).await?;
        if let Err(refusal) = executed {
            self.refuse(&refusal, out);
        }
        if self.control.has_failed_too_often() {
            return Err(ProtocolEnd::Protocol("too many logins have failed".to_owned()));
        }
        Ok(())
    }

    /// The request comes to nothing, and the transaction that it may have been the end of.
    fn give_up(&mut self, refusal: &Refusal, out: &mut Vec<u8>) {
        self.session.queue = None;
        self.refuse(refusal, out);
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        self.service.counts.refuses(refusal);
        Writer::new(out, self.session.version).error(&refusal.to_string());
    }

    /// A request whose bytes were dropped as they came.
    fn refuse_large(&mut self, scratch: &mut Scratch) {
        let Scratch { parser, out, .. } = scratch;
        let args = parser.args(self.input.bytes());
        let is_write = args.get(0).is_some_and(command::is_write);
        let refusal = if is_write {
            Refusal::UnknownCommand(UnknownCommand::new(args))
        } else {
            Refusal::TooLarge(self.session.limits().request_bytes)
        };
        if let Some(queue) = &mut self.session.queue {
            queue.spoil();
        }
        self.refuse(&refusal, out);
    }

    /// Takes a reply back that the client does not want.
    fn mute(&mut self, before: Replies, start: usize, out: &mut Vec<u8>) {
        match (before, self.session.replies) {
            (Replies::On, Replies::On) => {}
            (_, Replies::Off) => out.truncate(start),
            (Replies::SkipNext, Replies::SkipNext) => {
                out.truncate(start);
                self.session.replies = Replies::On;
            }
            (_, Replies::On | Replies::SkipNext) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<V, F: Future>(_: impl FnOnce(&'static Service, V) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        let size = size_of_future(|service, connection: ProtocolConnection| run(service, connection));
        assert!(size <= 1500, "{size} bytes");
    }
}
