//! What TiProxy captures, in its `native` format: `traffic-1.log`, also packed as `.log.gz`.
//!
//! A command is lines `# Name: value` (`Time`, its start; `Conn_ID`; `Cmd_type`, a text where it is
//! missing; `Captured_ps_id`, of later versions; `Payload_len`) and then so many bytes. It has no users, no
//! answers and no ends, and of a statement that was prepared earlier versions do not say the number: TiDB
//! counts them up in each session, which is done here as well. Files that TiProxy has encrypted are not
//! read.

use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use mysql_wire::{Command, write_packet};

use super::lines::Lines;
use super::{ImportError, Importer, Said, Who, times};
use crate::export::parameters_of;
use crate::file::io_at;
use crate::volatile::{Named, named};
use crate::words::begins_with;

/// Its names of commands that are taken over.
const COMMANDS: [(&[u8], Command); 14] = [
    (b"Quit", Command::QUIT),
    (b"InitDB", Command::INIT_DB),
    (b"Query", Command::QUERY),
    (b"FieldList", Command::FIELD_LIST),
    (b"Statistics", Command::STATISTICS),
    (b"Ping", Command::PING),
    (b"StmtPrepare", Command::STMT_PREPARE),
    (b"StmtExecute", Command::STMT_EXECUTE),
    (b"StmtSendLongData", Command::STMT_SEND_LONG_DATA),
    (b"StmtClose", Command::STMT_CLOSE),
    (b"StmtReset", Command::STMT_RESET),
    (b"SetOption", Command::SET_OPTION),
    (b"StmtFetch", Command::STMT_FETCH),
    (b"ResetConnect", Command::RESET_CONNECTION),
];

/// The lines in front of a payload.
#[derive(Default)]
struct Head {
    at_us: Option<u64>,
    thread: Option<u64>,
    /// `None`: one that is not taken over.
    command: Option<Command>,
    statement: Option<u32>,
}

pub(super) fn read(importer: &mut Importer, path: &Path, source: impl Read) -> Result<(), ImportError> {
    let source: Box<dyn Read + '_> = match path.extension().is_some_and(|end| end == "gz") {
        true => Box::new(MultiGzDecoder::new(source)),
        false => Box::new(source),
    };
    let mut lines = Lines::new(source);
    loop {
        match head(&mut lines) {
            Ok(None) => return Ok(()),
            Ok(Some((head, len))) => {
                if !lines.exactly(len).map_err(io_at(path))? {
                    importer.stop(path, lines.number, "the file ends within a command");
                    return Ok(());
                }
                command(importer, &head, &lines)?;
            }
            Err(why) => {
                importer.stop(path, lines.number, &why);
                return Ok(());
            }
        }
    }
}

/// The next lines up to `Payload_len`, and that. `None` at the end of the file; in words what makes no sense,
/// or why a packed file cannot be read: it ends too early, or is none.
fn head<R: Read>(lines: &mut Lines<R>) -> Result<Option<(Head, u64)>, String> {
    let mut head = Head {
        command: Some(Command::QUERY),
        ..Head::default()
    };
    let mut is_begun = false;
    while lines.next().map_err(|error| error.to_string())? {
        is_begun = true;
        let Some((name, value)) = field(&lines.line) else {
            return Err("this is no line of a command: # Name: value".to_owned());
        };
        let number = || std::str::from_utf8(value).ok()?.parse::<u64>().ok();
        let is_known = match name {
            b"Time" => {
                head.at_us = times::iso(value);
                head.at_us.is_some()
            }
            b"Conn_ID" => {
                head.thread = number();
                head.thread.is_some()
            }
            b"Cmd_type" => {
                let found = COMMANDS.iter().find(|(name, _)| *name == value);
                head.command = found.map(|(_, command)| *command);
                true
            }
            b"Captured_ps_id" => {
                head.statement = number().and_then(|id| u32::try_from(id).ok());
                head.statement.is_some()
            }
            b"Payload_len" => match number() {
                Some(len) if head.at_us.is_some() && head.thread.is_some() => {
                    return Ok(Some((head, len)));
                }
                Some(_) => return Err("a command without a time or without a session".to_owned()),
                None => false,
            },
            _ => true,
        };
        if !is_known {
            return Err(format!("{} makes no sense", String::from_utf8_lossy(name)));
        }
    }
    match is_begun {
        false => Ok(None),
        true => Err("the file ends within a command".to_owned()),
    }
}

fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.strip_prefix(b"# ")?;
    let at = line.windows(2).position(|part| part == b": ")?;
    Some((&line[..at], &line[at + 2..]))
}

fn command<R>(importer: &mut Importer, head: &Head, lines: &Lines<R>) -> Result<(), ImportError> {
    let (Some(at_us), Some(thread)) = (head.at_us, head.thread) else {
        return Ok(());
    };
    let Some(command) = head.command else {
        importer.leave_out("commands that are neither statements nor pings");
        return Ok(());
    };
    let body = &lines.line[..];
    if command == Command::QUERY && begins_with(body, "SET SESSION_STATES ") {
        importer.leave_out("states of sessions that were open before, which only TiDB understands");
        return Ok(());
    }
    if !importer.sessions.contains_key(&thread) {
        // TiProxy tells the schema by a command of its own, and no user.
        let who = Who {
            schema: Some(Vec::new()),
            ..Who::default()
        };
        importer.begins(thread, at_us, who);
    }
    let mut answer = Vec::new();
    if let Some(known) = importer.sessions.get_mut(&thread) {
        match command {
            Command::STMT_PREPARE => {
                known.last_prepared = head.statement.unwrap_or(known.last_prepared.wrapping_add(1));
                prepared(known.last_prepared, body, &mut answer);
            }
            // Statements that are prepared as text have numbers, too.
            Command::QUERY if matches!(named(body), Some(Named::Prepares(..))) => {
                known.last_prepared = known.last_prepared.wrapping_add(1);
            }
            // TiDB makes another session of it.
            Command::RESET_CONNECTION => known.last_prepared = 0,
            _ => {}
        }
    }
    importer.say(&Said {
        thread,
        start_us: at_us,
        command: command.0,
        body,
        is_cut: lines.is_cut,
        answer: &answer,
        ..Said::default()
    })
}

/// The answer to a prepare, which nobody has written down, as far as it is needed.
fn prepared(number: u32, text: &[u8], answer: &mut Vec<u8>) {
    let parameters = u16::try_from(parameters_of(text)).unwrap_or(0);
    let mut ok = vec![0];
    ok.extend_from_slice(&number.to_le_bytes());
    ok.extend_from_slice(&[0; 2]);
    ok.extend_from_slice(&parameters.to_le_bytes());
    ok.extend_from_slice(&[0; 3]);
    write_packet(answer, &mut 1, &ok);
}
