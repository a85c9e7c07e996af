//! Makes a folder of another in which nobody is named any more: values of texts and parameters become others
//! of the same kind and length, the same value the same one each time.
//!
//! What is not surely understood is kept as a digest, as a secret is. Hashes of results are left out, since
//! those of few possible values tell which it was.

mod pseudonyms;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use mysql_wire::statement::ExecuteHead;
use mysql_wire::{Capabilities, Command};
use sql_class::text::{has, is_one_of};
use sql_class::{Class, Effects, Literal, Syntax, digest, facts, literals};

use crate::binary;
use crate::capture::schema_of;
use crate::file::{FileError, Folder, FolderWriter};
use crate::record::{CommandRecord, Filters, Flags, Record};
use crate::seal::Key;
use crate::words::comment_len;

use self::pseudonyms::Pseudonyms;

const FILE_MAX: u64 = 256 << 20;

/// What is to stay as it is, and by which secret pseudonyms are made.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Names of users.
    pub keeps_users: bool,
    /// Names of schemas.
    pub keeps_schemas: bool,
    /// Without one they are made by a random one that nobody keeps.
    pub secret: Option<Key>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Anonymised {
    pub commands: u64,
    /// Commands that are a digest alone now.
    pub withheld: u64,
    /// Files that could not be read to their end.
    pub stops: Vec<String>,
}

/// A prepared statement: the count and the types of its parameters.
#[derive(Default)]
struct Prepared {
    parameters: u16,
    types: Vec<u8>,
}

struct Making {
    pseudonyms: Pseudonyms,
    wanted: Wanted,
    /// By session, then by number.
    prepared: HashMap<u32, HashMap<u32, Prepared>>,
    /// Somebody has a backslash be a letter as others: texts with one may be read otherwise than here.
    may_mean_backslash: bool,
}

/// Makes `to` of `from`. `key`: with which `from` is sealed, and `to` will be.
pub fn anonymise(from: &Path, to: &Path, key: Option<&Key>, wanted: Wanted) -> Result<Anonymised, FileError> {
    let mut folder = Folder::open(from, key)?;
    let mut making = Making {
        pseudonyms: Pseudonyms::new(wanted.secret.as_ref()),
        wanted,
        prepared: HashMap::new(),
        may_mean_backslash: false,
    };
    let mut head = folder.head().clone();
    head.is_anonymised = true;
    head.filters = Filters {
        sample: head.filters.sample,
        ..Filters::default()
    };
    for server in &head.servers {
        making.look_for_modes(server.sql_mode.as_deref().unwrap_or_default().as_bytes());
    }
    let mut writer = FolderWriter::create(to, head, FILE_MAX, key)?;
    let mut anonymised = Anonymised::default();
    while let Some(record) = folder.next_record()? {
        let record = match record {
            Record::Session(mut session) => {
                if !making.wanted.keeps_users {
                    session.user = making.pseudonyms.name(session.user.as_bytes());
                }
                session.schema = making.schema(&session.schema);
                Record::Session(session)
            }
            Record::Command(mut command) => {
                anonymised.commands += 1;
                making.command(&mut command);
                anonymised.withheld += u64::from(command.flags.has(Flags::WITHHELD));
                Record::Command(command)
            }
            Record::End(mut end) => {
                // It has names of files.
                end.words.clear();
                end.withheld = anonymised.withheld;
                Record::End(end)
            }
            // A result has values as they are.
            Record::Result(_) => continue,
            other => other,
        };
        writer.put(&record)?;
    }
    anonymised.stops = crate::offline::stops_in_words(&folder);
    writer.finish()?;
    Ok(anonymised)
}

impl Making {
    fn schema(&self, schema: &[u8]) -> Vec<u8> {
        match self.wanted.keeps_schemas || schema.is_empty() {
            true => schema.to_vec(),
            false => self.pseudonyms.name(schema).into_bytes(),
        }
    }

    fn look_for_modes(&mut self, text: &[u8]) {
        self.may_mean_backslash |= has(text, b"NO_BACKSLASH_ESCAPES");
    }

    fn command(&mut self, command: &mut CommandRecord) {
        command.schema = self.schema(&command.schema);
        command.checks.clear();
        command.flags.set(Flags::UNCHECKED);
        // It is the number of a row.
        command.insert_id = 0;
        if !std::mem::take(&mut command.files).is_empty() {
            command.flags.set(Flags::FILES_CUT);
        }
        self.write(command);
        if command.is_anew() || command.flags.has(Flags::CLOSED) {
            self.prepared.remove(&command.session);
        }
    }

    fn write(&mut self, command: &mut CommandRecord) {
        if command.body.is_empty() {
            return;
        }
        match self.body(command) {
            Some(body) => command.body = body,
            None => {
                command.body.clear();
                command.flags.set(Flags::WITHHELD);
            }
        }
    }

    /// What stands in the place of a command's body; `None` where that is not sure.
    fn body(&mut self, command: &CommandRecord) -> Option<Vec<u8>> {
        match Command(command.command) {
            Command::QUERY | Command::STMT_PREPARE => {
                self.look_for_modes(&command.body);
                if Command(command.command) == Command::STMT_PREPARE {
                    let prepared = Prepared {
                        parameters: command.parameters,
                        types: Vec::new(),
                    };
                    let of_session = self.prepared.entry(command.session).or_default();
                    of_session.insert(command.statement, prepared);
                }
                if let Some(schema) = schema_of(command) {
                    let other = String::from_utf8_lossy(&self.schema(&schema)).replace('`', "``");
                    return Some(format!("USE `{other}`").into_bytes());
                }
                self.text(&command.body)
            }
            Command::INIT_DB => Some(self.schema(&command.body)),
            Command::STMT_EXECUTE => self.execution(command),
            Command::STMT_CLOSE => {
                if let Some(of_session) = self.prepared.get_mut(&command.session) {
                    of_session.remove(&command.statement);
                }
                Some(command.body.clone())
            }
            Command::STMT_RESET | Command::STMT_FETCH | Command::SET_OPTION | Command::PROCESS_KILL => {
                Some(command.body.clone())
            }
            // Parts of long parameters are among the others: a part of one byte would keep its digit, and no
            // execution with such a parameter is written.
            _ => None,
        }
    }

    fn text(&self, text: &[u8]) -> Option<Vec<u8>> {
        if self.may_mean_backslash && text.contains(&b'\\') {
            return None;
        }
        let syntax = Syntax::default();
        let facts = facts(text, syntax);
        let has_text_within = Effects::CHANGES_ACCOUNT
            .with(Effects::TEXT_PREPARE)
            .with(Effects::SET_ROLE);
        let is_immediate = facts.class == Class::Unknown && text.to_ascii_uppercase().starts_with(b"EXECUTE");
        // A name alone behind `USE` never comes here.
        let names_schema = facts.effects.contains(Effects::CHANGES_DATABASE) && !self.wanted.keeps_schemas;
        if facts.effects.intersects(has_text_within) || is_immediate || names_schema {
            return None;
        }
        let tokens = literals(text, syntax)?;
        if !is_cut_alike(text, &tokens) {
            return None;
        }
        let words: Vec<_> = tokens.iter().map(|(_, place)| &text[place.clone()]).collect();
        if names_account(&words) {
            return None;
        }
        // What a session sets of the server's own variables names nobody.
        let sets_own = facts.class == Class::Session
            && !facts.effects.contains(Effects::USER_VARIABLES)
            && facts.statements == 1
            && sets_variables(&words);
        // Lengths of columns are numbers, too.
        let has_lengths = facts.class == Class::Ddl && facts.statements == 1 && defines_table(&words);
        let mut out = Vec::with_capacity(text.len());
        let mut from = 0;
        for (literal, place) in tokens {
            between(&text[from..place.start], &mut out)?;
            from = place.end;
            let token = &text[place];
            match literal {
                Literal::Text if !sets_own => out.extend_from_slice(&self.pseudonyms.quoted(token)?),
                Literal::Number if !sets_own && !has_lengths => {
                    out.extend_from_slice(&self.pseudonyms.literal(token)?);
                }
                _ => out.extend_from_slice(token),
            }
        }
        between(&text[from..], &mut out)?;
        let is_same = digest(&out, syntax).hash == digest(text, syntax).hash;
        is_same.then_some(out)
    }

    fn execution(&mut self, command: &CommandRecord) -> Option<Vec<u8>> {
        let of_session = self.prepared.get_mut(&command.session)?;
        let prepared = of_session.get_mut(&command.statement)?;
        let mut payload = command.payload();
        let head = ExecuteHead::decode(&payload, prepared.parameters, Capabilities::default()).ok()?;
        if let Some(types) = head.types() {
            prepared.types = types.to_vec();
        }
        let count = usize::from(prepared.parameters);
        if prepared.types.len() != count * 2 {
            return None;
        }
        let nulls = head.nulls().and_then(|nulls| payload.get(nulls));
        let nulls = nulls.unwrap_or_default().to_vec();
        let mut at = head.len;
        // Where a long parameter has come before there is no value here, so that the rest does not fit, and
        // the execution is not written.
        for (index, kind) in prepared.types.chunks(2).enumerate() {
            if !binary::is_null(&nulls, index) {
                let mut rest = payload.get(at..)?;
                let len = binary::take(kind[0], &mut rest)?.len();
                at = payload.len() - rest.len();
                let value = payload.get_mut(at - len..at)?;
                self.pseudonyms.parameter([kind[0], kind[1]], value);
            }
        }
        (at == payload.len()).then(|| payload.split_off(1))
    }
}

/// Whether these are the tokens of a text whatever the character set and the `sql_mode` of its session:
/// nobody has told them.
fn is_cut_alike(text: &[u8], tokens: &[(Literal, Range<usize>)]) -> bool {
    // In some sets a character ends with such a byte, in others a byte makes a comment of two signs.
    let is_behind = |part: &[u8]| !part[0].is_ascii() && matches!(part[1], b'\\' | b'`');
    let is_comment = |part: &[u8]| part.starts_with(b"--") && !part[2].is_ascii();
    let depends_on_charset = text.windows(2).any(is_behind) || text.windows(3).any(is_comment);
    let without_escapes = || {
        let syntax = Syntax {
            no_backslash_escapes: true,
            ..Syntax::default()
        };
        literals(text, syntax)
    };
    let is_same = || without_escapes().is_some_and(|others| others == tokens);
    !depends_on_charset && (!text.contains(&b'\\') || is_same())
}

fn is_word(token: &[u8], word: &str) -> bool {
    token.eq_ignore_ascii_case(word.as_bytes())
}

/// `SET a = 1, …` with plain values: no other statement is within it, nor anything that is computed.
fn sets_variables(tokens: &[&[u8]]) -> bool {
    let is_other = |token: &&[u8]| is_one_of(token, &["STATEMENT", "ROLE"]);
    let is_computed = |token: &&[u8]| **token == *b"(" || is_word(token, "SELECT");
    matches!(tokens, [set, second, ..] if is_word(set, "SET") && !is_other(second))
        && !tokens.iter().any(is_computed)
}

/// Whether an account is named, or may be: `DEFINER = …`, `SHOW GRANTS`, `SHOW CREATE USER`, `KILL USER`,
/// `…@'host'`.
fn names_account(tokens: &[&[u8]]) -> bool {
    const BEFORE_USER: [&str; 6] = ["CREATE", "KILL", "HARD", "SOFT", "QUERY", "CONNECTION"];
    let is_host = |token: &&[u8]| matches!(token, [b'@', b'\'' | b'"' | b'`', ..]);
    let is_about = |pair: &[&[u8]]| {
        (is_word(pair[0], "SHOW") && is_word(pair[1], "GRANTS"))
            || (is_one_of(pair[0], &BEFORE_USER) && is_word(pair[1], "USER"))
    };
    let is_definer = |token: &&[u8]| is_word(token, "DEFINER");
    tokens.iter().any(|token| is_host(token) || is_definer(token)) || tokens.windows(2).any(is_about)
}

/// `CREATE TABLE` and its like, without rows of another.
fn defines_table(tokens: &[&[u8]]) -> bool {
    let mut first = tokens.iter().take(5);
    first.any(|token| is_one_of(token, &["TABLE", "INDEX"]))
        && !tokens.iter().any(|token| is_one_of(token, &["SELECT", "VALUES"]))
}

/// What is between two tokens: hints of the optimizer stay, and what has a server execute a comment. What
/// else stands in comments may name somebody.
fn between(mut gap: &[u8], out: &mut Vec<u8>) -> Option<()> {
    while let Some(byte) = gap.first() {
        let len = match gap {
            [b' ' | b'\t'..=b'\r', ..] => {
                out.push(*byte);
                1
            }
            [b'/', b'*', b'+', ..] => {
                let len = comment_len(gap)?;
                match is_hint(&gap[3..len.max(5) - 2]) {
                    true => out.extend_from_slice(&gap[..len]),
                    false => out.push(b' '),
                }
                len
            }
            [b'/', b'*', b'!', ..] | [b'/', b'*', b'M', b'!', ..] => {
                let sign = if gap[2] == b'M' { 4 } else { 3 };
                let digits = gap[sign..].iter().take_while(|byte| byte.is_ascii_digit());
                let len = sign + digits.count();
                out.extend_from_slice(&gap[..len]);
                len
            }
            [b'/', b'*', ..] => {
                out.push(b' ');
                comment_len(gap)?
            }
            [b'*', b'/', ..] => {
                out.extend_from_slice(b"*/");
                2
            }
            [b'#', ..] | [b'-', b'-', ..] => {
                out.push(b'\n');
                let end = gap.iter().position(|byte| *byte == b'\n');
                end.map_or(gap.len(), |end| end + 1)
            }
            _ => return None,
        };
        gap = gap.get(len..)?;
    }
    Some(())
}

/// `MAX_EXECUTION_TIME(1000) …`, with no name that somebody has chosen but those of tables and indexes.
fn is_hint(text: &[u8]) -> bool {
    let may_be = |byte: &u8| byte.is_ascii_alphanumeric() || b" \t\r\n_$@.,=()".contains(byte);
    text.trim_ascii_end().ends_with(b")") && text.iter().all(may_be)
}

#[cfg(test)]
mod tests;
