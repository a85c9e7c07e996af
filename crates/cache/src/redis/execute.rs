//! Executes one request, as far as nothing has to be waited for.

use std::sync::Arc;

use config::ReadConsistency;
use dataplane::extension::ProtocolSession;
use resp_wire::{Args, Writer, parse_integer};

use super::Service;
use super::client;
use super::command::{Command, Nature};
use super::info;
use super::reads;
use super::refusal::{Refusal, UnknownCommand};
use super::rights::Known;
use super::rows::{Rows, Source, Space, Stop, Wanted};
use super::server;
use super::session::Session;
use super::subscribe;
use super::tracking::Tracked;
use super::transaction::Queue;
use crate::mapping::{Mapping, MappingSet};

#[derive(Debug)]
pub(crate) enum Next {
    /// The next request.
    Done,
    /// The client said goodbye.
    Quit,
    /// Wait until the store is fresh enough, then this request again.
    Fresh,
    /// Wait a moment, then this request again.
    Busy,
    /// Ask the server for the rows of this request.
    Ask,
    /// Find out whether the user may read this, then this request again.
    Right(Arc<Mapping>),
    Auth,
    Hello,
    /// Find out which mappings the user may read, and tell of those.
    Info,
    /// Have mappings read again, if the user may.
    Flush,
}

/// What one request is executed with.
pub(crate) struct Execution<'a> {
    pub(crate) service: &'a Service,
    pub(crate) control: &'a ProtocolSession,
    pub(crate) session: &'a mut Session,
    pub(crate) mappings: &'a MappingSet,
    pub(crate) space: &'a mut Space,
    /// Whether the store is fresh enough for what came until now; or why not.
    pub(crate) fresh: Option<&'a Result<(), String>>,
    /// The command of the request, once it is known.
    pub(crate) last: Option<Command>,
    /// It wants rows.
    pub(crate) reads: bool,
}

impl Execution<'_> {
    /// Executes a request. Only after [`Next::Done`] and [`Next::Quit`] is there a reply, which is then
    /// complete.
    #[inline]
    pub(crate) fn request(&mut self, args: Args<'_>, out: &mut Vec<u8>) -> Next {
        let start = out.len();
        let mut writer = Writer::new(out, self.session.version);
        match self.dispatch(args, &mut writer) {
            Ok(next) => next,
            Err(stop) => {
                writer.rewind(start);
                match stop {
                    Stop::Refused(refusal) => {
                        self.refuse(&refusal, &mut writer);
                        Next::Done
                    }
                    Stop::Busy => Next::Busy,
                    Stop::Ask => Next::Ask,
                    Stop::Right(mapping) => Next::Right(mapping),
                }
            }
        }
    }

    /// Tells the client why not.
    pub(crate) fn refuse(&mut self, refusal: &Refusal, out: &mut Writer<'_>) {
        self.service.counts.refuses(refusal);
        out.error(&refusal.to_string());
    }

    #[inline]
    fn dispatch(&mut self, args: Args<'_>, out: &mut Writer<'_>) -> Result<Next, Stop> {
        let checked = self.check(args);
        let command = match checked {
            Ok(command) => command,
            Err(Refusal::Arity("exec")) => {
                self.session.queue = None;
                return Err(Refusal::AbortedByArity.into());
            }
            Err(refusal) => {
                if let Some(queue) = &mut self.session.queue {
                    queue.spoil();
                }
                return Err(refusal.into());
            }
        };
        self.last = Some(command);
        let nature = command.spec().nature;
        if self.session.queue.is_some() {
            return self.in_transaction(command, args, out);
        }
        match nature {
            Nature::Read => {
                self.reads = true;
                if self.session.level != ReadConsistency::Eventual && !self.is_fresh()? {
                    return Ok(Next::Fresh);
                }
                self.read(command, args, out)?;
                Ok(Next::Done)
            }
            Nature::Say if command == Command::Ping && args.len() <= 2 && self.session.only_listens() => {
                subscribe::pong(args, out);
                Ok(Next::Done)
            }
            Nature::Say if command == Command::Info => Ok(Next::Info),
            Nature::Say => {
                say(
                    self.service,
                    self.control,
                    &self.session.rights,
                    command,
                    args,
                    out,
                )?;
                Ok(Next::Done)
            }
            Nature::Connection => self.connection(command, args, out),
            Nature::Transaction => self.transaction(command, out),
            Nature::Operate => Ok(Next::Flush),
        }
    }

    /// The command of a request, if it may be executed.
    #[inline]
    fn check(&self, args: Args<'_>) -> Result<Command, Refusal> {
        let command = args.get(0).and_then(Command::find);
        let known = self.session.identity.is_some();
        let Some(command) = command else {
            return Err(if known {
                Refusal::UnknownCommand(UnknownCommand::new(args))
            } else {
                Refusal::NotLoggedIn
            });
        };
        let is_open = matches!(
            command,
            Command::Auth | Command::Hello | Command::Quit | Command::Reset
        );
        if !known && !is_open {
            return Err(Refusal::NotLoggedIn);
        }
        let spec = command.spec();
        if !spec.takes(args.len()) {
            return Err(Refusal::Arity(spec.name));
        }
        let is_for_listeners = matches!(
            command,
            Command::Subscribe | Command::Unsubscribe | Command::Ping | Command::Quit | Command::Reset
        );
        if self.session.only_listens() && !is_for_listeners {
            return Err(Refusal::Subscribed(spec.name));
        }
        Ok(command)
    }

    /// # Errors
    /// It is not, and will not be in time.
    #[inline]
    fn is_fresh(&self) -> Result<bool, Refusal> {
        match self.fresh {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(reason)) => Err(Refusal::NotFresh(reason.clone())),
        }
    }

    /// Reads rows from memory: those of several keys from one state of it.
    #[inline]
    fn read(&mut self, command: Command, args: Args<'_>, out: &mut Writer<'_>) -> Result<(), Stop> {
        let several = matches!(command, Command::Mget | Command::Exists | Command::Touch);
        if !several || args.len() <= 2 {
            let mut rows = self.rows(Source::Store);
            return reads::read(command, args, &mut rows, out);
        }
        let start = out.position();
        let store = self.service.store();
        let read = store.snapshot(|view| {
            out.rewind(start);
            let mut rows = self.rows(Source::View(view));
            reads::read(command, args, &mut rows, out)
        });
        read?
    }

    fn rows<'r>(&'r mut self, source: Source<'r>) -> Rows<'r> {
        self.space.begin();
        Rows {
            mappings: self.mappings,
            store: self.service.store(),
            zone: self.service.shared.zone,
            source,
            rights: &self.session.rights,
            tracker: self.session.tracking.as_deref().and_then(Tracked::reader),
            space: self.space,
        }
    }

    fn connection(&mut self, command: Command, args: Args<'_>, out: &mut Writer<'_>) -> Result<Next, Stop> {
        match command {
            Command::Auth => return Ok(Next::Auth),
            Command::Hello => return Ok(Next::Hello),
            Command::Quit => {
                out.simple("OK");
                return Ok(Next::Quit);
            }
            Command::Reset => {
                self.session.reset(self.control);
                out.simple("RESET");
            }
            Command::Select => select(args, out)?,
            Command::Subscribe => subscribe::subscribe(self.session, args, out)?,
            Command::Unsubscribe => subscribe::unsubscribe(self.session, args, out),
            _ => client::client(self.session, self.control, self.service.tracking(), args, out)?,
        }
        Ok(Next::Done)
    }

    /// Outside a transaction.
    fn transaction(&mut self, command: Command, out: &mut Writer<'_>) -> Result<Next, Stop> {
        match command {
            Command::Multi => {
                self.session.queue = Some(Box::default());
                out.simple("OK");
            }
            Command::Unwatch => out.simple("OK"),
            other => return Err(Refusal::WithoutMulti(other.spec().upper()).into()),
        }
        Ok(Next::Done)
    }

    fn in_transaction(
        &mut self,
        command: Command,
        args: Args<'_>,
        out: &mut Writer<'_>,
    ) -> Result<Next, Stop> {
        let Some(queue) = &mut self.session.queue else {
            return Ok(Next::Done);
        };
        match command {
            Command::Exec => return self.exec(out),
            Command::Discard => {
                self.session.queue = None;
                out.simple("OK");
            }
            Command::Quit | Command::Reset => {
                self.session.queue = None;
                return self.connection(command, args, out);
            }
            Command::Multi => return Err(Refusal::NestedMulti.into()),
            Command::Auth
            | Command::Hello
            | Command::Client
            | Command::Flush
            | Command::Subscribe
            | Command::Unsubscribe => {
                queue.spoil();
                return Err(Refusal::NotInTransaction(command.spec().name).into());
            }
            _ => {
                queue.push(command, args)?;
                out.simple("QUEUED");
            }
        }
        Ok(Next::Done)
    }

    /// All commands, from one state of memory. The queue is there until they have been executed.
    fn exec(&mut self, out: &mut Writer<'_>) -> Result<Next, Stop> {
        let Some(queue) = self.session.queue.take() else {
            return Ok(Next::Done);
        };
        if queue.is_spoiled() {
            return Err(Refusal::Aborted.into());
        }
        self.reads = queue.reads();
        let is_fresh = if self.reads && self.session.level != ReadConsistency::Eventual {
            self.is_fresh()
        } else {
            Ok(true)
        };
        let executed = match is_fresh {
            Ok(true) => self.exec_now(&queue, out),
            Ok(false) => {
                self.session.queue = Some(queue);
                return Ok(Next::Fresh);
            }
            Err(refusal) => Err(refusal.into()),
        };
        if !matches!(executed, Ok(()) | Err(Stop::Refused(_))) {
            self.session.queue = Some(queue);
        }
        executed.map(|()| Next::Done)
    }

    fn exec_now(&mut self, queue: &Queue, out: &mut Writer<'_>) -> Result<(), Stop> {
        let start = out.position();
        let (service, control) = (self.service, self.control);
        let executed = service.store().snapshot(|view| {
            out.rewind(start);
            exec_each(service, control, queue, &mut self.rows(Source::View(view)), out)
        });
        executed?
    }

    /// The rows that a request needs of the server, in the order in which it reads them.
    ///
    /// # Errors
    /// Something has to be waited for before that can be said.
    pub(crate) fn wanted(&mut self, args: Args<'_>) -> Result<Vec<Wanted>, Stop> {
        let mut nowhere = Vec::new();
        let mut out = Writer::new(&mut nowhere, self.session.version);
        let queue = self.session.queue.take();
        let (service, control) = (self.service, self.control);
        let mut rows = self.rows(Source::List(Vec::new()));
        let read = read_or_exec(service, control, queue.as_deref(), args, &mut rows, &mut out);
        let wanted = match rows.source {
            Source::List(wanted) => wanted,
            _ => Vec::new(),
        };
        self.session.queue = queue;
        match read {
            // What is refused is refused when it is executed in earnest.
            Ok(()) | Err(Stop::Refused(_)) => Ok(wanted),
            Err(stop) => Err(stop),
        }
    }

    /// Whether the server has to be asked for a request that comes later. Nothing of it is executed.
    pub(crate) fn asks(&mut self, args: Args<'_>) -> bool {
        let tracked = self.session.tracking.as_ref();
        // What a client said of the next command it did not say of those behind it.
        if self.session.queue.is_some() || tracked.is_some_and(|tracked| tracked.said) {
            return false;
        }
        let command = self.check(args);
        let Some(command) = command
            .ok()
            .filter(|command| command.spec().nature == Nature::Read)
        else {
            return false;
        };
        let mut nowhere = Vec::new();
        let mut out = Writer::new(&mut nowhere, self.session.version);
        matches!(self.read(command, args, &mut out), Err(Stop::Ask))
    }

    /// Executes a request with the rows that [`wanted`](Self::wanted) asked for.
    pub(crate) fn request_fetched(
        &mut self,
        args: Args<'_>,
        fetched: Vec<Option<Vec<u8>>>,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        self.last = args.get(0).and_then(Command::find);
        self.reads = true;
        let mut out = Writer::new(out, self.session.version);
        let queue = self.session.queue.take();
        let (service, control) = (self.service, self.control);
        let mut rows = self.rows(Source::Fetched(fetched.into_iter()));
        if let Err(stop) = read_or_exec(service, control, queue.as_deref(), args, &mut rows, &mut out) {
            out.rewind(start);
            let refusal = match stop {
                Stop::Refused(refusal) => refusal,
                Stop::Busy | Stop::Ask | Stop::Right(_) => Refusal::NotAsked("rows changed".into()),
            };
            self.refuse(&refusal, &mut out);
        }
    }
}

/// The request is EXEC, if there is a queue, or it reads.
fn read_or_exec(
    service: &Service,
    control: &ProtocolSession,
    queue: Option<&Queue>,
    args: Args<'_>,
    rows: &mut Rows<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Stop> {
    match (queue, args.get(0).and_then(Command::find)) {
        (Some(queue), _) => exec_each(service, control, queue, rows, out),
        (None, Some(command)) => reads::read(command, args, rows, out),
        (None, None) => Ok(()),
    }
}

fn exec_each(
    service: &Service,
    control: &ProtocolSession,
    queue: &Queue,
    rows: &mut Rows<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Stop> {
    let start = out.position();
    out.array(queue.len());
    queue.each(|command, args| {
        let begin = out.position();
        let executed = match command.spec().nature {
            Nature::Read => reads::read(command, args, rows, out),
            Nature::Say => say(service, control, rows.rights, command, args, out).map_err(Stop::from),
            Nature::Connection if command == Command::Select => select(args, out).map_err(Stop::from),
            Nature::Connection | Nature::Transaction | Nature::Operate => {
                out.simple("OK");
                Ok(())
            }
        };
        if let Err(Stop::Refused(refusal)) = executed {
            // Rows that the server gave for a reply that is too large are not those of the next command.
            reads::check_size(out, start)?;
            out.rewind(begin);
            service.counts.refuses(&refusal);
            out.error(&refusal.to_string());
        } else {
            executed?;
        }
        Ok(reads::check_size(out, start)?)
    })
}

/// `SELECT`: there is database 0.
fn select(args: Args<'_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    match parse_integer(args.get(1).unwrap_or_default()) {
        Some(0) => out.simple("OK"),
        Some(_) => return Err(Refusal::Database),
        None => return Err(Refusal::NotAnInteger),
    }
    Ok(())
}

/// Executes a command of [`Nature::Say`].
fn say(
    service: &Service,
    control: &ProtocolSession,
    rights: &Known,
    command: Command,
    args: Args<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    match command {
        Command::Ping => match (args.get(1), args.len()) {
            (None, _) => out.simple("PONG"),
            (Some(text), 2) => out.bulk(text),
            (Some(_), _) => return Err(Refusal::Arity("ping")),
        },
        Command::Echo => out.bulk(args.get(1).unwrap_or_default()),
        Command::Time => server::time(out),
        Command::Role => server::role(out),
        Command::Info => out.verbatim(&info::info(service, rights, args.from(1))),
        Command::Commands => server::command(args, out)?,
        Command::Config => server::config(&service.shared.settings, control.listener(), args, out)?,
        Command::Cluster => server::cluster(args, out)?,
        _ => return Err(server::no_cluster()),
    }
    Ok(())
}
