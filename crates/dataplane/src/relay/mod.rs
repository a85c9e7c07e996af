//! Bytes both ways: one command and its response ([`Exchange`]), or everything without end ([`stream`]).
//!
//! Nothing is decoded but packet headers, the first byte of a packet and the last packet of a response.
//! Nothing is copied: the trackers of `mysql-wire` say how many of the bytes just read may go on, and the
//! bytes are written from where they were read.

pub(crate) mod flow;
pub(crate) mod unasked;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use mysql_wire::{Event, Outcome, RequestTracker, ResponseTracker, WireError};
use net::Stream;
use telemetry::{ListenerMetrics, ServerMetrics};
use upstream::Permit;

use crate::control::{Control, Signal, Waiting};
use crate::hand_over::Stays;
use crate::relay::flow::Flow;

/// The two sides of a session and what is on its way between them.
pub(crate) struct Streams {
    pub(crate) client: Stream,
    pub(crate) server: Stream,
    /// Client to server.
    pub(crate) up: Flow,
    /// Server to client.
    pub(crate) down: Flow,
    pub(crate) traffic: Traffic,
}

/// A client and its server in mode `tcp`.
pub(crate) struct Pair {
    pub(crate) streams: Streams,
    pub(crate) permit: Permit,
}

impl Streams {
    /// Streams with nothing on their way.
    pub(crate) fn new(client: Stream, server: Stream, traffic: Traffic) -> Self {
        Self {
            client,
            server,
            up: Flow::default(),
            down: Flow::default(),
            traffic,
        }
    }

    /// A command begins: frames of the compressed protocol are numbered from here.
    #[inline]
    pub(crate) fn begin_command(&mut self) -> Result<(), RelayError> {
        self.client.begin_command().map_err(RelayError::Client)?;
        self.server.begin_command().map_err(|_| RelayError::Server)
    }
}

/// Bytes and commands of one session, and the series they are added to.
pub(crate) struct Traffic {
    pub(crate) from_client: u64,
    pub(crate) to_client: u64,
    /// Commands from the client; none are counted in mode `tcp`.
    pub(crate) commands: u64,
    pub(crate) listener: Arc<ListenerMetrics>,
    pub(crate) server: Arc<ServerMetrics>,
}

impl Traffic {
    pub(crate) fn new(listener: Arc<ListenerMetrics>, server: Arc<ServerMetrics>) -> Self {
        Self {
            from_client: 0,
            to_client: 0,
            commands: 0,
            listener,
            server,
        }
    }

    #[inline]
    pub(crate) fn add_up(&mut self, n: usize) {
        self.add_from_client(n);
        self.server.bytes_to_server.add(n as u64);
    }

    #[inline]
    fn add_down(&mut self, n: usize) {
        self.add_to_client(n);
        self.server.bytes_from_server.add(n as u64);
    }

    /// Counts bytes that no server gets to see.
    #[inline]
    pub(crate) fn add_from_client(&mut self, n: usize) {
        self.from_client += n as u64;
        self.listener.bytes_from_clients.add(n as u64);
    }

    /// Counts bytes that no server has said.
    #[inline]
    pub(crate) fn add_to_client(&mut self, n: usize) {
        self.to_client += n as u64;
        self.listener.bytes_to_clients.add(n as u64);
    }
}

/// How an exchange ended short of a whole response.
#[derive(Debug)]
pub(crate) enum RelayError {
    /// Reading from or writing to the client failed.
    Client(io::Error),
    /// The server closed the connection or it failed; with the error packet that may follow what was
    /// forwarded.
    Server,
    ServerProtocol(WireError),
    Signal(Signal),
}

/// How an exchange ended as it should.
#[derive(Debug)]
pub(crate) enum Exchanged {
    /// The response has been written to the client to its last byte.
    Done(Outcome),
    /// The command was one without a response; it has been written to the server.
    Sent,
    /// The response has begun and has no end: see [`endless`].
    Streaming,
}

/// The way to follow the answer to a command to its end, and to change it on its way to the client.
pub(crate) trait Answer {
    /// Looks at what has come from the server, and approves what may go to the client. Returns how many bytes
    /// of the server's that were, and what comes next.
    fn advance(&mut self, down: &mut Flow) -> Result<(usize, Event), WireError>;

    /// The answer has begun and not ended, or is awaited.
    fn in_progress(&self) -> bool;

    /// See [`ResponseTracker::error_sequence`].
    fn error_sequence(&self) -> Option<u8>;

    /// Sequence number of the last packet that began.
    fn sequence(&self) -> u8;

    /// Whether the client was told other sequence numbers than the server's.
    fn renumbers(&self) -> bool {
        false
    }

    /// See [`ResponseTracker::resume_after_local_infile`].
    fn resume_after_local_infile(&mut self);
}

/// An answer that is passed on unchanged.
impl Answer for ResponseTracker {
    #[inline]
    fn advance(&mut self, down: &mut Flow) -> Result<(usize, Event), WireError> {
        let progress = ResponseTracker::advance(self, down.unseen())?;
        down.approve(progress.consumed);
        Ok((progress.consumed, progress.event))
    }

    fn in_progress(&self) -> bool {
        ResponseTracker::in_progress(self)
    }

    fn error_sequence(&self) -> Option<u8> {
        ResponseTracker::error_sequence(self)
    }

    fn sequence(&self) -> u8 {
        ResponseTracker::sequence(self)
    }

    fn resume_after_local_infile(&mut self) {
        ResponseTracker::resume_after_local_infile(self);
    }
}

/// How an exchange ended.
pub(crate) struct RelayOutcome {
    pub(crate) result: Result<Exchanged, RelayError>,
    /// The sequence number that an error has where the exchange ended too early: the one after the request as
    /// long as nothing of the response was forwarded, or the next one between two rows.
    pub(crate) error_sequence: Option<u8>,
    /// Nothing of the command is left to be read from the client.
    pub(crate) request_done: bool,
    /// Bytes of the answer that have gone to the client, or may go.
    pub(crate) said: u64,
    /// The client has closed its side while it waited, and the server was told so: the server's connection is
    /// of no use any more.
    pub(crate) client_at_end: bool,
    /// Time from the command to the end of its answer; zero where the end did not come.
    pub(crate) took: Duration,
}

/// A command on its way.
pub(crate) struct Exchange<'a, A> {
    request: RequestTracker,
    response: &'a mut A,
    control: &'a Control,
    request_done: bool,
    client_at_end: bool,
    /// The server closed its reading side: the rest of the command has nowhere to go, but an answer may come.
    server_refuses: bool,
    /// The server closed it before the client had sent all of the command, whose rest is no command.
    is_cut_off: bool,
    /// Bytes that were read from the server have to be looked at before more is read.
    pub(crate) look_again: bool,
    /// The number of the client's next packet, given anew because the client compresses; else `None`.
    next_number: Option<u8>,
    event: Event,
    /// When the command was sent.
    since: Instant,
    /// Bytes of the command that were passed on.
    sent: usize,
}

impl<'a, A: Answer> Exchange<'a, A> {
    /// `request_done`: the command is on its way already, or was sent.
    pub(crate) fn new(response: &'a mut A, control: &'a Control, request_done: bool) -> Self {
        Self {
            request: {
                let mut request = RequestTracker::new();
                request.begin_command();
                request
            },
            response,
            control,
            request_done,
            client_at_end: false,
            server_refuses: false,
            is_cut_off: false,
            look_again: false,
            next_number: None,
            event: Event::More,
            since: Instant::now(),
            sent: 0,
        }
    }

    /// An exchange whose command was sent at `since`, and whose whole answer has been read.
    pub(crate) fn of_whole_answer(response: &'a mut A, control: &'a Control, since: Instant) -> Self {
        Self {
            look_again: true,
            since,
            ..Self::new(response, control, true)
        }
    }

    /// Runs to the end of the answer, or to what cuts it short.
    pub(crate) async fn run(mut self, streams: &mut Streams) -> RelayOutcome {
        let forwarded = streams.traffic.to_client;
        self.next_number = streams.client.is_compressed().then_some(0);
        self.control.mark(Waiting::Server);
        poll_fn(|cx| {
            let result = ready!(self.poll(cx, streams));
            let said = streams.traffic.to_client - forwarded;
            Poll::Ready(self.outcome(result, said, streams))
        })
        .await
    }

    fn outcome(&self, result: Result<Exchanged, RelayError>, said: u64, streams: &Streams) -> RelayOutcome {
        let mut took = Duration::ZERO;
        let (result, error_sequence) = match result {
            // The client has the server's answer, and the server is gone: the rest of the command is no
            // command.
            Ok(_) if self.server_refuses => (Err(RelayError::Server), None),
            Ok(Exchanged::Done(outcome)) => {
                took = self.since.elapsed();
                streams.traffic.server.latency.record(took);
                (Ok(Exchanged::Done(outcome)), None)
            }
            Ok(exchanged) => (Ok(exchanged), None),
            Err(broken) if said == 0 => (Err(broken), Some(self.request.sequence().wrapping_add(1))),
            // The tracker has gone on over rows that were not forwarded.
            Err(RelayError::ServerProtocol(error)) => (Err(RelayError::ServerProtocol(error)), None),
            Err(broken) => (Err(broken), self.response.error_sequence()),
        };
        RelayOutcome {
            result,
            error_sequence,
            request_done: self.request_done && !self.is_cut_off,
            said,
            client_at_end: self.client_at_end,
            took,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, streams: &mut Streams) -> Poll<Result<Exchanged, RelayError>> {
        loop {
            if let Some(signal) = self.control.due(false) {
                return Poll::Ready(Err(RelayError::Signal(signal)));
            }
            // A command on its way comes first. Otherwise the answer is looked for first, which makes it
            // needless to look at the client.
            let mut up = Poll::Pending;
            let awaits_answer = self.request_done && !streams.up.is_pending();
            if !awaits_answer {
                up = self.poll_up(cx, streams)?;
                if up.is_ready() && self.request_done && streams.up.is_pending() {
                    continue;
                }
            }
            let down = self.poll_down(cx, streams)?;
            if let Some(end) = self.end(streams) {
                return Poll::Ready(Ok(end));
            }
            if awaits_answer {
                up = self.poll_up(cx, streams)?;
            }
            if up.is_pending() && down.is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// `Ready` when something was moved, so that another turn may move more.
    fn poll_up(&mut self, cx: &mut Context<'_>, streams: &mut Streams) -> Poll<Result<(), RelayError>> {
        if streams.up.is_pending() && !self.server_refuses {
            match streams.up.poll_write(cx, &mut streams.server) {
                Poll::Ready(Ok(())) => self.control.mark(Waiting::Server),
                Poll::Ready(Err(_)) => self.give_up_sending(streams),
                Poll::Pending => {
                    self.control.mark_if_new(Waiting::Server);
                    return Poll::Pending;
                }
            }
        }
        if self.request_done {
            return self.poll_watch_client(cx, streams);
        }
        if let Some(next) = &mut self.next_number {
            self.request.renumber(streams.up.unseen_mut(), next);
        }
        let (consumed, finished) = self.request.advance(streams.up.unseen());
        if consumed == 0 && !finished {
            return self.poll_read_on(cx, streams);
        }
        let bytes = &streams.up.unseen()[..consumed];
        match self.event {
            Event::LocalInfile => self.control.record.note_file(bytes),
            _ => self.control.record.note_request(self.sent, bytes),
        }
        self.sent += consumed;
        streams.up.approve(consumed);
        streams.traffic.add_up(consumed);
        if finished {
            self.request_ends();
        }
        Poll::Ready(Ok(()))
    }

    /// Reads more of a command that has not ended.
    fn poll_read_on(&mut self, cx: &mut Context<'_>, streams: &mut Streams) -> Poll<Result<(), RelayError>> {
        match streams.up.poll_read(cx, &mut streams.client) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(RelayError::Client(io::ErrorKind::UnexpectedEof.into()))),
            Poll::Ready(Ok(_)) => {
                self.control.mark(Waiting::Request);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(RelayError::Client(error))),
            Poll::Pending => {
                self.control.mark_if_new(Waiting::Request);
                Poll::Pending
            }
        }
    }

    /// The client has nothing more to say before the answer.
    fn request_ends(&mut self) {
        self.request_done = true;
        self.control.mark(Waiting::Server);
        if matches!(self.event, Event::LocalInfile) {
            self.response.resume_after_local_infile();
            self.event = Event::More;
            self.look_again = true;
        }
    }

    /// Watches a client that has nothing to say before the response. One buffer of the next command is read
    /// ahead, and the client's goodbye is passed on, so that the server can stop waiting for locks on behalf
    /// of nobody.
    fn poll_watch_client(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut Streams,
    ) -> Poll<Result<(), RelayError>> {
        if self.client_at_end || !streams.up.is_empty() {
            return Poll::Pending;
        }
        match streams.up.poll_read(cx, &mut streams.client) {
            Poll::Ready(Ok(0)) => {
                self.client_at_end = true;
                if !self.is_cut_off {
                    // The call fails where the server is gone, which is found when it is read.
                    let _: io::Result<()> = streams.server.end_writing();
                }
                Poll::Pending
            }
            // These bytes are the rest of a command that the server does not take: a connection that is
            // closed with bytes unread is reset, and the server's answer would be lost with it.
            Poll::Ready(Ok(_)) if self.is_cut_off => {
                streams.up.clear();
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(_)) | Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(RelayError::Client(error))),
        }
    }

    fn poll_down(&mut self, cx: &mut Context<'_>, streams: &mut Streams) -> Poll<Result<(), RelayError>> {
        if self.poll_answer(cx, streams)?.is_pending() {
            return Poll::Pending;
        }
        if matches!(self.event, Event::LocalInfile) {
            return Self::poll_server_end(cx, streams);
        }
        if !matches!(self.event, Event::More) || !self.response.in_progress() {
            return Poll::Pending;
        }
        if !std::mem::take(&mut self.look_again) {
            match streams.down.poll_read_much(cx, &mut streams.server) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(RelayError::Server)),
                Poll::Ready(Ok(_)) => self.control.mark_answer(),
                Poll::Pending => {
                    if self.request_done {
                        self.control.mark_if_new(Waiting::Server);
                    }
                    return Poll::Pending;
                }
            }
        }
        let (consumed, event) = self
            .response
            .advance(&mut streams.down)
            .map_err(RelayError::ServerProtocol)?;
        self.control.record.note_relayed(&streams.down);
        streams.traffic.add_down(consumed);
        self.event = event;
        if matches!(self.event, Event::LocalInfile) {
            self.request.begin_infile();
            let renumbers = self.next_number.is_some() || self.response.renumbers();
            self.next_number = renumbers.then(|| self.response.sequence().wrapping_add(1));
            self.request_done = false;
        }
        self.poll_answer(cx, streams)
    }

    /// Writes to the client what may go there.
    fn poll_answer(&mut self, cx: &mut Context<'_>, streams: &mut Streams) -> Poll<Result<(), RelayError>> {
        if !streams.down.is_pending() {
            return Poll::Ready(Ok(()));
        }
        let written = streams.down.poll_write(cx, &mut streams.client);
        if written.is_pending() {
            self.control.mark(Waiting::Reader);
        }
        written.map_err(RelayError::Client)
    }

    /// While the client sends its file the server only listens, or ends. Bytes from the server are looked at
    /// after the file.
    fn poll_server_end(cx: &mut Context<'_>, streams: &mut Streams) -> Poll<Result<(), RelayError>> {
        if !streams.down.is_empty() {
            return Poll::Pending;
        }
        match streams.down.poll_read(cx, &mut streams.server) {
            Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(Err(RelayError::Server)),
            Poll::Ready(Ok(_)) | Poll::Pending => Poll::Pending,
        }
    }

    fn end(&self, streams: &Streams) -> Option<Exchanged> {
        if streams.up.is_pending() || streams.down.is_pending() || !self.request_done {
            return None;
        }
        match self.event {
            Event::Done(outcome) => Some(Exchanged::Done(outcome)),
            Event::More if !self.response.in_progress() => Some(Exchanged::Sent),
            Event::Stream => Some(Exchanged::Streaming),
            // Nobody asks this tracker to stop for session state.
            Event::More | Event::LocalInfile | Event::State => None,
        }
    }

    /// Gives up sending to a server that does not take what the client sends. The server may have answered
    /// before it closed (a packet that is too large, a kill), and the client is to see that answer.
    fn give_up_sending(&mut self, streams: &mut Streams) {
        self.server_refuses = true;
        if self.request_done {
            // Commands that were read behind this one are still to be answered.
            streams.up.drop_outgoing();
        } else {
            self.is_cut_off = true;
            self.request_ends();
            streams.up.clear();
        }
    }
}

/// The outcome of forwarding everything.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Streamed {
    /// Both sides have said that they are done.
    Ended,
    /// Nothing is on its way, and both sockets may go to the process that has taken over.
    Goes,
}

/// Forwards everything in both directions until both sides have said that they are done, one fails, or a
/// signal comes; or until the connection is to go to another process and can. The end of one side is passed
/// on to the other, which may still have something to say.
pub(crate) async fn stream(streams: &mut Streams, control: &Control) -> Result<Streamed, RelayError> {
    forward_all(streams, control, Waiting::Stream).await
}

/// Forwards, in both directions, an answer that has no end (binlog dump, clone) and has begun. A server that
/// has nothing to say, for hours maybe, is in order; a client that does not take what the server has said is
/// idle.
pub(crate) async fn endless(streams: &mut Streams, control: &Control) -> Result<(), RelayError> {
    control.stays(Stays::Stream);
    forward_all(streams, control, Waiting::Endless).await.map(drop)
}

async fn forward_all(
    streams: &mut Streams,
    control: &Control,
    waiting: Waiting,
) -> Result<Streamed, RelayError> {
    control.mark(waiting);
    let mut up_ended = false;
    let mut down_ended = false;
    let mut server_refuses = false;
    let approve_all = |flow: &mut Flow| {
        let n = flow.unseen().len();
        flow.approve(n);
        n
    };
    let n = approve_all(&mut streams.up);
    streams.traffic.add_up(n);
    let n = approve_all(&mut streams.down);
    streams.traffic.add_down(n);
    poll_fn(|cx| {
        if let Some(signal) = control.due(false) {
            return Poll::Ready(Err(RelayError::Signal(signal)));
        }
        let Streams {
            client,
            server,
            up,
            down,
            traffic,
        } = streams;
        let moved_up = poll_pipe(cx, client, server, up, &mut up_ended, RelayError::Client, |_| {
            RelayError::Server
        });
        let moved_up = match moved_up {
            // The server takes no more, and may have said why.
            Err(RelayError::Server) => {
                up.clear();
                (up_ended, server_refuses) = (true, true);
                0
            }
            moved => moved?,
        };
        let moved_down = poll_pipe(
            cx,
            server,
            client,
            down,
            &mut down_ended,
            |_| RelayError::Server,
            RelayError::Client,
        )?;
        traffic.add_up(moved_up);
        traffic.add_down(moved_down);
        let waiting = match waiting {
            Waiting::Endless if down.is_pending() => Waiting::Client,
            _ => waiting,
        };
        match moved_up + moved_down {
            0 => control.mark_if_new(waiting),
            _ => control.mark(waiting),
        }
        if up_ended && down_ended && !up.is_pending() && !down.is_pending() {
            return Poll::Ready(if server_refuses {
                Err(RelayError::Server)
            } else {
                Ok(Streamed::Ended)
            });
        }
        if control.is_to_go() && waiting == Waiting::Stream && up.is_at_rest() && down.is_at_rest() {
            return Poll::Ready(Ok(Streamed::Goes));
        }
        Poll::Pending
    })
    .await
}

/// Moves what can be moved from `source` to `sink`; returns how many bytes were read. Everything is
/// registered for a wake-up when it returns.
fn poll_pipe(
    cx: &mut Context<'_>,
    source: &mut Stream,
    sink: &mut Stream,
    flow: &mut Flow,
    ended: &mut bool,
    source_failed: impl Fn(io::Error) -> RelayError,
    sink_failed: impl Fn(io::Error) -> RelayError,
) -> Result<usize, RelayError> {
    let mut moved = 0;
    loop {
        if flow.is_pending() {
            match flow.poll_write(cx, sink) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Err(sink_failed(error)),
                Poll::Pending => return Ok(moved),
            }
        }
        if *ended {
            return Ok(moved);
        }
        match flow.poll_read_much(cx, source) {
            Poll::Ready(Ok(0)) => {
                *ended = true;
                flow.close();
            }
            Poll::Ready(Ok(n)) => {
                flow.approve(n);
                moved += n;
            }
            Poll::Ready(Err(error)) => return Err(source_failed(error)),
            Poll::Pending => return Ok(moved),
        }
    }
}
