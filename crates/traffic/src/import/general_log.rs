//! The general query log of MySQL and of MariaDB: who has said what in which order, and no more.
//!
//! A line is a time (MariaDB leaves it out where it is that of the line before), the number of the session,
//! the name of a command, and its text, which may have more lines. MySQL's times have microseconds; within
//! a second of MariaDB the statements follow one another at once. Both log a statement that was prepared
//! with its parameters in it when it is executed, so that is what is taken over, as text.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use mysql_wire::Command;

use super::lines::Lines;
use super::{ImportError, Importer, Said, Who, times};
use crate::file::io_at;
use crate::secrets::TEXT_MAX;

/// Bytes of statements that wait for what they have executed.
const EXECUTES_MAX: usize = 8 << 20;
/// What one costs beside its text.
const EXECUTE_COST: usize = 128;

/// Names of commands, as servers write them. Whatever else stands there is part of a text.
const COMMANDS: [&str; 28] = [
    "Connect",
    "Init DB",
    "Query",
    "Prepare",
    "Execute",
    "Close stmt",
    "Reset stmt",
    "Long Data",
    "Fetch",
    "Quit",
    "Ping",
    "Change user",
    "Field List",
    "Statistics",
    "Processlist",
    "Process Kill",
    "Kill",
    "Reset Connection",
    "Set option",
    "Refresh",
    "Shutdown",
    "Binlog Dump",
    "Binlog Dump GTID",
    "Register Slave",
    "Register Replica",
    "Create DB",
    "Drop DB",
    "Bulk_execute",
];

/// A line with which an entry begins.
struct Entry {
    at_us: u64,
    thread: u64,
    command: &'static str,
    text: Vec<u8>,
    is_cut: bool,
}

struct Reading<'a> {
    importer: &'a mut Importer,
    /// The time that was written last.
    at_us: u64,
    entry: Option<Entry>,
    /// `EXECUTE` by text, by session: behind it comes what was executed, or nothing.
    executes: HashMap<u64, Entry>,
    executes_len: usize,
}

pub(super) fn read(importer: &mut Importer, path: &Path, source: impl Read) -> Result<(), ImportError> {
    let mut lines = Lines::new(source);
    let mut reading = Reading {
        importer,
        at_us: 0,
        entry: None,
        executes: HashMap::new(),
        executes_len: 0,
    };
    while lines.next().map_err(io_at(path))? {
        if super::begin_of_server(&lines.line).is_some() {
            let begin = lines.line.clone();
            match super::behind_begin(&mut lines).map_err(io_at(path))? {
                None => {
                    reading.end()?;
                    reading.end_of_all()?;
                    reading.importer.begin_of_server(&begin);
                }
                Some(of_text) => {
                    for (line, _, is_cut) in of_text {
                        reading.line(&line, is_cut)?;
                    }
                }
            }
            continue;
        }
        reading.line(&lines.line, lines.is_cut)?;
    }
    reading.end()?;
    reading.end_of_all()
}

impl Reading<'_> {
    fn line(&mut self, line: &[u8], is_cut: bool) -> Result<(), ImportError> {
        if let Some(mut entry) = begin(line, self.at_us) {
            self.end()?;
            self.at_us = entry.at_us;
            entry.is_cut = is_cut;
            self.entry = Some(entry);
            return Ok(());
        }
        match &mut self.entry {
            Some(entry) => {
                entry.is_cut |= is_cut || entry.text.len() + line.len() > TEXT_MAX;
                if !entry.is_cut {
                    entry.text.push(b'\n');
                    entry.text.extend_from_slice(line);
                }
            }
            None if line.trim_ascii().is_empty() => {}
            None => self.importer.leave_out("lines that belong to no entry"),
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), ImportError> {
        let Some(entry) = self.entry.take() else {
            return Ok(());
        };
        let executes = match entry.command {
            // A server that prepares a statement anew, on its own.
            "Prepare" => None,
            _ => self.executes.remove(&entry.thread),
        };
        self.executes_len -= executes.as_ref().map_or(0, Entry::cost);
        if let Some(executes) = executes.filter(|_| entry.command != "Execute") {
            self.query(&executes)?;
        }
        match entry.command {
            "Connect" => self.connect(&entry, false),
            "Change user" => self.connect(&entry, true),
            "Query" if is_execute(&entry.text) => return self.wait(entry),
            "Query" | "Execute" => return self.query(&entry),
            "Init DB" => return self.say(&entry, Command::INIT_DB, &entry.text),
            "Quit" => return self.say(&entry, Command::QUIT, b""),
            "Ping" => return self.say(&entry, Command::PING, b""),
            "Reset Connection" => return self.say(&entry, Command::RESET_CONNECTION, b""),
            "Statistics" => return self.say(&entry, Command::STATISTICS, b""),
            // Their executions have all of the text.
            "Prepare" | "Close stmt" | "Reset stmt" | "Long Data" | "Fetch" => {}
            name => self.importer.leave_out(&format!("{name}, which is no statement")),
        }
        Ok(())
    }

    /// Where there are too many, those before have waited long enough.
    fn wait(&mut self, entry: Entry) -> Result<(), ImportError> {
        if self.executes_len + entry.cost() > EXECUTES_MAX {
            self.end_of_all()?;
        }
        self.executes_len += entry.cost();
        self.executes.insert(entry.thread, entry);
        Ok(())
    }

    /// Nothing comes behind these.
    fn end_of_all(&mut self) -> Result<(), ImportError> {
        self.executes_len = 0;
        let mut left: Vec<_> = self.executes.drain().map(|(_, entry)| entry).collect();
        left.sort_by_key(|entry| (entry.at_us, entry.thread));
        left.iter().try_for_each(|entry| self.query(entry))
    }

    fn query(&mut self, entry: &Entry) -> Result<(), ImportError> {
        self.say(entry, Command::QUERY, &entry.text)
    }

    fn say(&mut self, entry: &Entry, command: Command, body: &[u8]) -> Result<(), ImportError> {
        if !self.importer.sessions.contains_key(&entry.thread) {
            if command == Command::QUIT {
                return Ok(());
            }
            let who = Who {
                was_open: true,
                ..Who::default()
            };
            self.importer.begins(entry.thread, entry.at_us, who);
        }
        self.importer.say(&Said {
            thread: entry.thread,
            start_us: entry.at_us,
            command: command.0,
            body,
            is_cut: entry.is_cut,
            ..Said::default()
        })
    }

    /// `app@localhost on test using TCP/IP`; without a schema there are two spaces.
    fn connect(&mut self, entry: &Entry, is_change: bool) {
        if entry.text.starts_with(b"Access denied") {
            self.importer.sessions.remove(&entry.thread);
            return;
        }
        let text = String::from_utf8_lossy(&entry.text);
        let (account, rest) = text.split_once(" on ").unwrap_or((&text, ""));
        let account = account.split(" as ").next().unwrap_or_default();
        let user = account.rsplit_once('@').map_or(account, |(user, _)| user);
        let schema = rest
            .rsplit_once(" using ")
            .map_or(rest, |(schema, _)| schema)
            .trim();
        if is_change {
            self.importer
                .leave_out("changes of the user, which begin new sessions here");
        }
        let who = Who {
            user: user.to_owned(),
            schema: Some(schema.as_bytes().to_vec()),
            ..Who::default()
        };
        self.importer.begins(entry.thread, entry.at_us, who);
    }
}

impl Entry {
    fn cost(&self) -> usize {
        self.text.len() + EXECUTE_COST
    }
}

fn is_execute(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    text.get(..8)
        .is_some_and(|word| word[..7].eq_ignore_ascii_case(b"EXECUTE") && word[7].is_ascii_whitespace())
}

/// An entry's first line. `last_us`: the time of the one before.
fn begin(line: &[u8], last_us: u64) -> Option<Entry> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let (time, rest) = (&line[..tab], &line[tab + 1..]);
    let (at_us, rest) = match time {
        [] => (last_us, rest.strip_prefix(b"\t")?),
        time => (times::iso(time).or_else(|| times::short(time))?, rest),
    };
    let rest = rest.trim_ascii_start();
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let thread = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let rest = rest[digits..].strip_prefix(b" ")?;
    let end = rest.iter().position(|byte| *byte == b'\t')?;
    let command = COMMANDS
        .into_iter()
        .find(|name| name.as_bytes() == &rest[..end])?;
    let text = rest[end + 1..].to_vec();
    Some(Entry {
        at_us,
        thread,
        command,
        text,
        is_cut: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_wait_have_a_limit() {
        let place = tempfile::tempdir().unwrap();
        let mut importer = Importer::new(
            super::super::From::GeneralLog,
            &place.path().join("to"),
            None,
            "test",
        );
        let mut reading = Reading {
            importer: &mut importer,
            at_us: 0,
            entry: None,
            executes: HashMap::new(),
            executes_len: 0,
        };
        let long = " ".repeat(1 << 20);
        for thread in 0..20 {
            let line = format!("2026-11-28T03:19:04Z\t{thread} Query\tEXECUTE {long}");
            reading.line(line.as_bytes(), false).unwrap();
            let kept: usize = reading.executes.values().map(Entry::cost).sum();
            assert!(kept == reading.executes_len && kept <= EXECUTES_MAX, "{kept}");
        }
        // Those that have their execution wait no more.
        let before = reading.executes.len();
        reading
            .line(b"2026-11-28T03:19:04Z\t18 Execute\tSELECT 1", false)
            .unwrap();
        reading.end().unwrap();
        let kept: usize = reading.executes.values().map(Entry::cost).sum();
        assert_eq!((reading.executes.len(), reading.executes_len), (before, kept));
        reading.end_of_all().unwrap();
        assert_eq!(importer.finish().unwrap().commands, 20);
    }
}
