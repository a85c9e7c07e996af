//! The log: tracing events as text or JSON lines on standard error, with a level that can be changed at run
//! time.
//!
//! Lines are written by a thread of their own. Workers hand them over through a bounded queue and never wait:
//! where the reader of standard error is too slow, or it is a file on a full disk, lines are dropped and
//! counted (`forebay_log_lines_dropped_total`).

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use tracing::Subscriber;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::{Samples, Source, catalog};

/// Lines that may wait for the writing thread.
const QUEUE_LINES: usize = 4096;
/// How long the writing thread lets lines gather once it has written all there were.
const GATHER: Duration = Duration::from_millis(2);
/// A line longer than this is dropped: with [`QUEUE_LINES`] it bounds the memory of the queue (64 MiB, where
/// 1 MiB is usual).
const MAX_LINE_BYTES: usize = 16 * 1024;
/// A longer level text is refused.
const MAX_LEVEL_BYTES: usize = 1024;

/// Why the log could not be started or changed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The text is no level and no list of directives.
    #[error(
        "\"{level}\" is not a log level: expected error, warn, info, debug or trace, or a list such as \"info,net=debug\" ({reason})"
    )]
    Level {
        /// What was given.
        level: String,
        /// What the parser says.
        reason: String,
    },
    /// The text is too long to be a level.
    #[error("a log level of {0} bytes: expected at most {MAX_LEVEL_BYTES}")]
    TooLong(usize),
    /// The process has a log already.
    #[error("the log of this process has been started already")]
    Started,
    /// The writing thread could not be started.
    #[error("cannot start the thread that writes the log: {0}")]
    Thread(#[source] io::Error),
}

/// Starts the log of this process on standard error.
///
/// # Errors
/// If the level is none, or the process has a log already.
pub fn init(config: &config::Log) -> Result<LogHandle, LogError> {
    let json = config.format == config::LogFormat::Json;
    let (subscriber, handle) = build(&config.level, json, io::stderr())?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Started)?;
    Ok(handle)
}

/// A running log. Clones are the same log.
#[derive(Clone)]
pub struct LogHandle {
    filter: reload::Handle<EnvFilter, Registry>,
    queue: Queue,
}

impl LogHandle {
    /// Changes what is logged: a level (`debug`) or directives by module (`info,net=debug,[session]=trace`).
    ///
    /// # Errors
    /// If the text is neither; the level stays as it was.
    pub fn set_level(&self, level: &str) -> Result<(), LogError> {
        // The other error, that the subscriber is gone, is impossible: it lives as long as the process.
        let _ = self.filter.reload(parse_filter(level)?);
        Ok(())
    }

    /// Changes the levels that are named, and keeps the others: a level (`debug`) is that of all parts that
    /// have none of their own, `net=debug` that of one part. Returns what is logged now.
    ///
    /// # Errors
    /// If the text is neither, or too much has been named; the levels stay as they were.
    pub fn change_level(&self, change: &str) -> Result<String, LogError> {
        parse_filter(change)?;
        self.set_level(&changed(&self.level(), change))?;
        Ok(self.level())
    }

    /// What is logged now.
    #[must_use]
    pub fn level(&self) -> String {
        self.filter.with_current(ToString::to_string).unwrap_or_default()
    }

    /// Waits until every line logged so far has been written, at most for `timeout`. To be called before the
    /// process ends. False if time ran out.
    pub fn flush(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let (done, written) = sync_channel(1);
        let mut message = Message::Flush(done);
        while let Err(TrySendError::Full(unsent)) = self.queue.sender.try_send(message) {
            if Instant::now() >= deadline {
                return false;
            }
            message = unsent;
            std::thread::sleep(Duration::from_millis(1));
        }
        written
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            .is_ok()
    }

    #[must_use]
    pub fn dropped_lines(&self) -> u64 {
        self.queue.dropped.load(Relaxed)
    }
}

impl Source for LogHandle {
    fn collect(&self, out: &mut Samples) {
        out.counter(&catalog::LOG_LINES_DROPPED, &[], self.dropped_lines());
    }
}

impl std::fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogHandle")
            .field("level", &self.level())
            .finish_non_exhaustive()
    }
}

fn build(
    level: &str,
    json: bool,
    sink: impl Write + Send + 'static,
) -> Result<(impl Subscriber + Send + Sync, LogHandle), LogError> {
    let (filter_layer, filter) = reload::Layer::new(parse_filter(level)?);
    let queue = Queue::start(sink)?;
    let lines = fmt::layer().with_ansi(false).with_writer(queue.clone());
    let lines = match json {
        true => lines.json().flatten_event(true).with_span_list(false).boxed(),
        false => lines.boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(filter_layer).with(lines);
    Ok((subscriber, LogHandle { filter, queue }))
}

fn parse_filter(level: &str) -> Result<EnvFilter, LogError> {
    if level.len() > MAX_LEVEL_BYTES {
        return Err(LogError::TooLong(level.len()));
    }
    let invalid = |reason: String| LogError::Level {
        level: level.to_owned(),
        reason,
    };
    if level.is_empty() {
        return Err(invalid("it is empty".to_owned()));
    }
    // A lone word that is no level would be taken for the name of a module, and silence everything else.
    if level.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        level
            .parse::<LevelFilter>()
            .map_err(|error| invalid(error.to_string()))?;
    }
    EnvFilter::builder()
        .parse(level)
        .map_err(|error| invalid(error.to_string()))
}

/// The directives of `level` but those that `change` has others for, and those.
fn changed(level: &str, change: &str) -> String {
    let mut directives: Vec<&str> = level.split(',').collect();
    for directive in change.split(',').map(str::trim).filter(|named| !named.is_empty()) {
        directives.retain(|known| place_of(known) != place_of(directive));
        directives.push(directive);
    }
    directives.join(",")
}

/// What the directive is about, which is all but its level; empty where it is for all parts that have none of
/// their own.
fn place_of(directive: &str) -> &str {
    if directive.parse::<LevelFilter>().is_ok() {
        return "";
    }
    // Behind a span there may be values of fields, which are no levels.
    let after_span = directive.rfind(']').map_or(0, |at| at + 1);
    match directive[after_span..].find('=') {
        Some(at) => directive[..after_span + at].trim_end(),
        None => directive,
    }
}

enum Message {
    Line(Box<[u8]>),
    Flush(SyncSender<()>),
}

/// The way from those who log to the thread that writes.
#[derive(Clone)]
struct Queue {
    sender: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl Queue {
    fn start(sink: impl Write + Send + 'static) -> Result<Self, LogError> {
        let (sender, receiver) = sync_channel(QUEUE_LINES);
        let dropped: Arc<AtomicU64> = Arc::default();
        let counter = Arc::clone(&dropped);
        let thread = std::thread::Builder::new().name("log".to_owned());
        thread
            .spawn(move || write_lines(&receiver, sink, &counter))
            .map_err(LogError::Thread)?;
        Ok(Self { sender, dropped })
    }
}

/// The formatter calls `write` once, with a whole line.
impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if line.len() > MAX_LINE_BYTES || self.sender.try_send(Message::Line(line.into())).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Queue;

    fn make_writer(&'a self) -> Queue {
        self.clone()
    }
}

fn write_lines(receiver: &Receiver<Message>, mut sink: impl Write, dropped: &AtomicU64) {
    let mut is_torn = false;
    while let Some(message) = next_message(receiver) {
        match message {
            Message::Line(line) => {
                if write_line(&mut sink, &as_one_line(&line), &mut is_torn).is_err() {
                    dropped.fetch_add(1, Relaxed);
                }
            }
            Message::Flush(done) => {
                let _ = sink.flush();
                let _ = done.try_send(());
            }
        }
    }
}

/// The next message; `None` once nobody is left who logs. A thread that has emptied the queue stays asleep
/// for [`GATHER`] before it waits for more: otherwise every session that ends wakes it for one line.
fn next_message(receiver: &Receiver<Message>) -> Option<Message> {
    match receiver.try_recv() {
        Ok(message) => Some(message),
        Err(TryRecvError::Disconnected) => None,
        Err(TryRecvError::Empty) => {
            std::thread::sleep(GATHER);
            receiver.recv().ok()
        }
    }
}

/// Writes a line, and behind one that was torn by a full disk a new one.
fn write_line(sink: &mut impl Write, line: &[u8], is_torn: &mut bool) -> io::Result<()> {
    if *is_torn {
        sink.write_all(b"\n")?;
        *is_torn = false;
    }
    let mut rest = line;
    while !rest.is_empty() {
        match sink.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                rest = &rest[written..];
                *is_torn = !rest.is_empty();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Escapes control characters, of which a line has none of its own: what clients send (user names) must
/// neither begin a line of the log nor speak to the terminal of who reads it.
fn as_one_line(line: &[u8]) -> Cow<'_, [u8]> {
    let text = String::from_utf8_lossy(line);
    let content = text.strip_suffix('\n').unwrap_or(&text);
    if !content.contains(char::is_control) {
        return Cow::Borrowed(line);
    }
    let mut escaped = String::with_capacity(line.len() + 64);
    for character in content.chars() {
        match character.is_control() {
            true => escaped.extend(character.escape_default()),
            false => escaped.push(character),
        }
    }
    escaped.push('\n');
    Cow::Owned(escaped.into_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const SECONDS: Duration = Duration::from_secs(10);

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Page {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn json_lines_have_their_fields_at_the_top() {
        let page = Page::default();
        let (subscriber, log) = build("info", true, page.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(reason = "client_quit", bytes = 17, "session ended");
        });
        assert!(log.flush(SECONDS));
        let line: serde_json::Value = serde_json::from_str(&page.text()).unwrap();
        assert_eq!(line["message"], "session ended");
        assert_eq!(line["reason"], "client_quit");
        assert_eq!(line["bytes"], 17);
        assert_eq!(line["level"], "INFO");
    }

    #[test]
    fn a_line_stays_one_line_whatever_is_in_it() {
        let page = Page::default();
        let (subscriber, log) = build("info", false, page.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(user = %"é\n2026 INFO forged\x1b[31m\u{9b}", "one");
            tracing::info!("two");
        });
        assert!(log.flush(SECONDS));
        let text = page.text();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.contains("user=é\\n2026 INFO forged"), "{text}");
    }

    #[test]
    fn the_level_changes_at_run_time_and_a_wrong_one_changes_nothing() {
        let page = Page::default();
        let (subscriber, log) = build("info", false, page.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!("one");
            log.set_level("debug").unwrap();
            tracing::debug!("two");
            let error = log.set_level("verbose").unwrap_err().to_string();
            assert!(
                error.starts_with("\"verbose\" is not a log level: expected error, warn"),
                "{error}"
            );
            assert!(log.set_level("info,net=nonsense").is_err());
            assert!(log.set_level(&"x".repeat(5000)).is_err());
            tracing::debug!("three");
            log.set_level("warn,telemetry=trace").unwrap();
            tracing::trace!("four");
            assert_eq!(log.level(), "telemetry=trace,warn");
            assert_eq!(
                log.change_level("net=debug").unwrap(),
                "telemetry=trace,net=debug,warn"
            );
            assert_eq!(
                log.change_level("error").unwrap(),
                "telemetry=trace,net=debug,error"
            );
            assert!(log.change_level("inof").is_err());
            let long = format!("{}=info", "x".repeat(MAX_LEVEL_BYTES - 20));
            assert!(log.change_level(&long).is_err(), "together they are too long");
        });
        assert!(log.flush(SECONDS));
        let text = page.text();
        assert!(!text.contains("one"), "{text}");
        assert!(
            ["two", "three", "four"].iter().all(|word| text.contains(word)),
            "{text}"
        );
    }

    #[test]
    fn a_change_keeps_the_levels_that_it_does_not_name() {
        for (level, change, wanted) in [
            (
                "info,net=debug",
                "upstream=debug",
                "info,net=debug,upstream=debug",
            ),
            ("net=debug,info", "warn", "net=debug,warn"),
            ("net=debug,info", "net = trace, Warn", "net = trace,Warn"),
            ("info", "[session{id=7}]=trace", "info,[session{id=7}]=trace"),
            (
                "info,[session{id=7}]=trace",
                "[session{id=7}]=warn,net=info",
                "info,[session{id=7}]=warn,net=info",
            ),
        ] {
            assert_eq!(changed(level, change), wanted, "{level}, {change}");
        }
    }

    #[test]
    fn a_full_disk_costs_lines_that_are_counted_and_those_after_it_are_whole() {
        /// A disk with room for some bytes.
        #[derive(Clone, Default)]
        struct Disk(Page, Arc<AtomicU64>);
        impl Write for Disk {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let room = self.1.load(Relaxed);
                let fits = bytes.len().min(room as usize);
                if fits == 0 {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                self.1.fetch_sub(fits as u64, Relaxed);
                self.0.write(&bytes[..fits])
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let disk = Disk::default();
        disk.1.store(100, Relaxed);
        let (subscriber, log) = build("info", false, disk.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..10 {
                tracing::info!(number, "a line");
            }
            assert!(log.flush(SECONDS));
            let whole = disk.0.text().matches('\n').count();
            assert!(whole < 10);
            assert_eq!(log.dropped_lines() as usize, 10 - whole);
            disk.1.store(10_000, Relaxed);
            tracing::info!("there is room");
        });
        assert!(log.flush(SECONDS));
        let text = disk.0.text();
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("20") && last.ends_with("there is room"),
            "{text}"
        );
    }

    #[test]
    fn a_reader_that_never_reads_costs_lines_and_stops_nobody() {
        struct Stuck(Receiver<()>);
        impl Write for Stuck {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (release, stuck) = sync_channel(0);
        let (subscriber, log) = build("info", false, Stuck(stuck)).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            for i in 0..3 * QUEUE_LINES {
                tracing::info!(i, "line");
            }
            tracing::info!(long = "x".repeat(MAX_LINE_BYTES), "line");
        });
        // One line is in the hands of the writer, the queue is full, all else was dropped.
        let dropped = log.dropped_lines() as usize;
        assert!(
            (2 * QUEUE_LINES..=2 * QUEUE_LINES + 1).contains(&dropped),
            "{dropped} dropped"
        );
        assert!(!log.flush(Duration::from_millis(20)));
        drop(release);
        assert!(log.flush(SECONDS));
    }
}
