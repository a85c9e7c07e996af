//! The slow query log of MySQL and of MariaDB.
//!
//! An entry is a head of lines that begin with `#`, `use` where the schema is another than that of the entry
//! before, `SET timestamp=…;`, and the text. MySQL's `# Time` is the end of the statement to the microsecond;
//! MariaDB says its beginning to the second, so that the statements of a session follow one another there as
//! fast as they took. Texts of prepared statements have their parameters in them.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use mysql_wire::Command;

use super::lines::Lines;
use super::{ImportError, Importer, Said, Who, times};
use crate::file::io_at;
use crate::secrets::TEXT_MAX;
use crate::words::{without_backticks, without_semicolon};

const ADMINISTRATOR: &[u8] = b"# administrator command: ";

/// Names in heads that are read. Others are not kept: there may be any number of them.
const FIELDS: [&str; 8] = [
    "Query_time",
    "Thread_id",
    "Id",
    "Schema",
    "Rows_sent",
    "Rows_affected",
    "Errno",
    "Last_errno",
];

#[derive(Default)]
struct Entry {
    line: u64,
    /// Of MySQL.
    ended_us: Option<u64>,
    /// From `SET timestamp`.
    began_us: Option<u64>,
    user: Option<String>,
    fields: HashMap<&'static str, Vec<u8>>,
    insert_id: u64,
    /// The head is over.
    has_text: bool,
    text: Vec<u8>,
    is_cut: bool,
}

struct Reading<'a> {
    importer: &'a mut Importer,
    path: &'a Path,
    entry: Option<Entry>,
    /// The last one that a `use` has named.
    schema: Option<Vec<u8>>,
}

pub(super) fn read(importer: &mut Importer, path: &Path, source: impl Read) -> Result<(), ImportError> {
    let mut lines = Lines::new(source);
    let mut reading = Reading {
        importer,
        path,
        entry: None,
        schema: None,
    };
    while lines.next().map_err(io_at(path))? {
        if super::begin_of_server(&lines.line).is_some() {
            let begin = lines.line.clone();
            match super::behind_begin(&mut lines).map_err(io_at(path))? {
                None => {
                    reading.end(lines.number)?;
                    reading.begin_of_server(&begin);
                }
                Some(of_text) => {
                    for (line, number, is_cut) in of_text {
                        reading.line(&line, number, is_cut)?;
                    }
                }
            }
            continue;
        }
        reading.line(&lines.line, lines.number, lines.is_cut)?;
    }
    let is_whole = |entry: &Entry| entry.text.trim_ascii_end().ends_with(b";");
    match reading
        .entry
        .as_ref()
        .filter(|entry| !is_whole(entry))
        .map(|entry| entry.line)
    {
        None => reading.end(lines.number),
        Some(line) => {
            reading.stop(line, "the file ends within this entry, which is left out");
            Ok(())
        }
    }
}

impl Reading<'_> {
    fn stop(&mut self, line: u64, why: &str) {
        self.importer.stop(self.path, line, why);
    }

    fn begin_of_server(&mut self, line: &[u8]) {
        self.importer.begin_of_server(line);
        self.schema = None;
    }

    fn line(&mut self, line: &[u8], number: u64, is_cut: bool) -> Result<(), ImportError> {
        let time = line
            .strip_prefix(b"# Time: ")
            .filter(|rest| times::iso(rest).or(times::short(rest)).is_some());
        let account = line.strip_prefix(b"# User@Host: ").and_then(account);
        let begins = match &self.entry {
            None => time.is_some() || account.is_some(),
            Some(entry) => time.is_some() || (account.is_some() && (entry.has_text || entry.user.is_some())),
        };
        if begins {
            self.end(number)?;
            self.entry = Some(Entry {
                line: number,
                ..Entry::default()
            });
        }
        let Some(entry) = &mut self.entry else {
            if !line.trim_ascii().is_empty() {
                self.importer.leave_out("lines that belong to no entry");
            }
            return Ok(());
        };
        if let Some(time) = time {
            entry.ended_us = times::iso(time);
        } else if let Some(user) = account {
            entry.user = Some(user);
            fields(line, &mut entry.fields);
        } else if entry.has_text {
            entry.add(line, is_cut);
        } else if line.starts_with(b"# ") && !line.starts_with(ADMINISTRATOR) {
            fields(line, &mut entry.fields);
        } else if let Some(schema) = used(line) {
            self.schema = Some(schema);
        } else if let Some(set) = line.strip_prefix(b"SET ").filter(|set| is_timestamp(set)) {
            entry.set(set);
            entry.has_text = true;
        } else {
            entry.has_text = true;
            entry.add(line, is_cut);
        }
        Ok(())
    }

    fn end(&mut self, line: u64) -> Result<(), ImportError> {
        let Some(entry) = self.entry.take() else {
            return Ok(());
        };
        // A server that writes a time alone has begun or ended just then.
        let Some(user) = &entry.user else {
            return Ok(());
        };
        let took_us = entry
            .fields
            .get("Query_time")
            .and_then(|value| times::seconds(value));
        let text = without_semicolon(entry.text.trim_ascii_end());
        if text.is_empty() || took_us.is_none() {
            self.stop(
                entry.line,
                &format!("an entry without a text or a time, up to line {}", line - 1),
            );
            return Ok(());
        }
        // Without a number all belong to one session.
        let thread = entry.number("Thread_id").or(entry.number("Id")).unwrap_or(1);
        let start_us = match (entry.ended_us, entry.began_us) {
            (Some(ended), _) => ended.saturating_sub(took_us.unwrap_or(0)),
            (None, began) => {
                let known = self.importer.sessions.get(&thread);
                let until = known.map_or(0, |known| known.until_us);
                began.unwrap_or(0).max(until)
            }
        };
        let schema = match entry.fields.get("Schema") {
            Some(schema) => Some(schema.clone()),
            None => self.schema.clone(),
        };
        let known = self.importer.sessions.get(&thread);
        if known.is_none_or(|known| known.who.user != *user) {
            let who = Who {
                user: user.clone(),
                schema: schema.clone(),
                was_open: true,
                ..Who::default()
            };
            self.importer.begins(thread, start_us, who);
        }
        self.importer.open(start_us)?;
        self.importer
            .is_in(thread, start_us, schema.as_deref().unwrap_or_default())?;
        let said = Said {
            thread,
            start_us,
            took_us,
            rows: entry.number("Rows_sent"),
            affected_rows: entry.number("Rows_affected"),
            error: entry
                .number("Errno")
                .or(entry.number("Last_errno"))
                .and_then(|code| u16::try_from(code).ok()),
            insert_id: entry.insert_id,
            is_cut: entry.is_cut,
            ..Said::default()
        };
        match text.strip_prefix(ADMINISTRATOR) {
            Some(name) => self.administrator(said, name),
            None => self.importer.say(&Said {
                command: Command::QUERY.0,
                body: text,
                ..said
            }),
        }
    }

    /// A command that is none of SQL.
    fn administrator(&mut self, said: Said<'_>, name: &[u8]) -> Result<(), ImportError> {
        let command = match name {
            b"Quit" => Command::QUIT,
            b"Ping" => Command::PING,
            b"Reset Connection" => Command::RESET_CONNECTION,
            // The schema is that of the entry.
            b"Init DB" => return Ok(()),
            _ => {
                let name = crate::record::plain(name, 40);
                self.importer
                    .leave_out(&format!("{name}, of which the log has no more than the name"));
                return Ok(());
            }
        };
        self.importer.say(&Said {
            command: command.0,
            ..said
        })
    }
}

impl Entry {
    fn add(&mut self, line: &[u8], is_cut: bool) {
        self.is_cut |= is_cut || self.text.len() + line.len() > TEXT_MAX;
        if self.is_cut {
            // It is not written. Its end says that the entry is whole.
            self.text.clear();
        }
        if !self.text.is_empty() {
            self.text.push(b'\n');
        }
        match self.is_cut {
            true => self.text.extend_from_slice(&line[line.len().saturating_sub(8)..]),
            false => self.text.extend_from_slice(line),
        }
    }

    /// `last_insert_id=1,insert_id=5,timestamp=1795835941;`
    fn set(&mut self, set: &[u8]) {
        for part in without_semicolon(set).split(|byte| *byte == b',') {
            if let Some(value) = part.strip_prefix(b"timestamp=") {
                self.began_us = times::seconds(value);
            } else if let Some(value) = part.strip_prefix(b"insert_id=") {
                self.insert_id = number(value).unwrap_or(0);
            }
        }
    }

    fn number(&self, field: &str) -> Option<u64> {
        number(self.fields.get(field)?)
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn is_timestamp(set: &[u8]) -> bool {
    let begins = [&b"timestamp="[..], b"last_insert_id=", b"insert_id="];
    set.ends_with(b";") && begins.iter().any(|begin| set.starts_with(begin))
}

/// The user of `app[app] @ localhost [127.0.0.1]  Id:    10`, which is the one in brackets: the first may
/// be a name that the server has given it.
fn account(rest: &[u8]) -> Option<String> {
    let at = rest.windows(4).position(|part| part == b"] @ ")?;
    let open = rest[..at].iter().position(|byte| *byte == b'[')?;
    Some(String::from_utf8_lossy(&rest[open + 1..at]).into_owned())
}

/// `use db;` and the same with backticks.
fn used(line: &[u8]) -> Option<Vec<u8>> {
    let name = line.strip_prefix(b"use ")?.strip_suffix(b";")?;
    Some(without_backticks(name).to_vec())
}

/// `# Name: value  Name: value`; a value may be missing.
fn fields(line: &[u8], fields: &mut HashMap<&'static str, Vec<u8>>) {
    let known = |name: &[u8]| FIELDS.into_iter().find(|known| known.as_bytes() == name);
    let mut name = None;
    for word in line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
    {
        match word.strip_suffix(b":") {
            Some(next) => {
                name = known(next);
                fields.extend(name.map(|name| (name, Vec::new())));
            }
            None => {
                fields.extend(name.take().map(|name| (name, word.to_vec())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_are_read_are_kept() {
        let mut kept = HashMap::new();
        for number in 0..1000 {
            fields(
                format!("# x{number}: y  Id: {number} z: Schema:").as_bytes(),
                &mut kept,
            );
        }
        let known = [("Id", b"999".to_vec()), ("Schema", Vec::new())];
        assert_eq!(kept, HashMap::from(known));
    }
}
