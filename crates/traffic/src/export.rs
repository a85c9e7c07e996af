//! Writes a folder as SQL text for the command line clients of MySQL and MariaDB.
//!
//! Such a client reads more than SQL in its input: `\!` and `system` run programs. A captured text is what
//! anybody may have sent, so that one in which a client could find something of its own is left out, and a
//! comment stands in front of each statement, since commands are only looked for at the beginning of a line.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io::{self, Write};
use std::path::Path;

use mysql_wire::Command;
use sql_class::text::{has, is_one_of};

use crate::file::{FileError, Folder};
use crate::record::{CommandRecord, Flags, Record, SessionRecord, plain};
use crate::replay::{Judge, Permitted};
use crate::seal::Key;
use crate::words::{comment_len, without_comments_in_front, without_semicolon};

mod charset;
mod values;

use self::charset::Charset;

/// Letters of what is only named in a comment.
const NAMED_MAX: usize = 100;

/// The first lines of the text.
const HEAD: &str = "\
-- Traffic that Forebay has written down: personal data, not to be kept longer than needed.
-- For mysql --binary-mode --force, or mariadb with the same; it stands for what others have sent.
-- A string x'...' with no charset in front of it is bytes, or a text in a charset that is not known.
";

/// In which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// One session after the other. All of the text is in memory before it is written.
    Session,
    /// As the commands have ended.
    Time,
}

#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub by: By,
    pub session: Option<u32>,
    /// What may be in it, as in a replay.
    pub permitted: Permitted,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Exported {
    pub statements: u64,
    /// Those that were not, which are named in comments.
    pub left_out: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the text cannot be written: {0}")]
    Out(#[from] io::Error),
}

/// A prepared statement, as far as it is known.
#[derive(Default)]
struct Prepared {
    text: Vec<u8>,
    /// Those of the execution before, which the next one may leave out.
    types: Vec<u8>,
    /// Parameters that came in parts in front of their execution.
    long: BTreeMap<u16, Vec<u8>>,
}

/// Writes what is wanted of a folder. `key`: with which it is sealed.
pub fn export(
    folder: &Path,
    key: Option<&Key>,
    wanted: Wanted,
    out: &mut impl Write,
) -> Result<Exported, ExportError> {
    let mut folder = Folder::open(folder, key)?;
    let mut exporting = Exporting {
        texts: Texts::new(wanted.permitted),
        exported: Exported::default(),
    };
    out.write_all(HEAD.as_bytes())?;
    if matches!(wanted.by, By::Time) {
        writeln!(
            out,
            "-- All sessions in one, by time: what one of them sets, and its temporary tables and transactions, the others have as well."
        )?;
    }
    // Quotes are read as they are by default, whatever the server's default is.
    writeln!(
        out,
        "SET SESSION sql_mode = REPLACE(@@SESSION.sql_mode, 'NO_BACKSLASH_ESCAPES', '');"
    )?;
    let mut sessions: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut last = 0;
    let is_wanted = |id: u32| wanted.session.is_none_or(|session| session == id);
    while let Some(record) = folder.next_record()? {
        let (id, text, schema) = match record {
            Record::Session(session) if is_wanted(session.id) => {
                exporting.texts.begin(&session);
                (session.id, begin_of(&session), Vec::new())
            }
            Record::Command(command) if is_wanted(command.session) => {
                let schema = match command.schema.is_empty() {
                    true => b"-- it has chosen no schema\n".to_vec(),
                    false => use_of(&command.schema),
                };
                (command.session, exporting.command(&command), schema)
            }
            _ => continue,
        };
        match wanted.by {
            By::Session => sessions.entry(id).or_default().extend_from_slice(&text),
            By::Time => {
                if id != last {
                    writeln!(out, "-- session {id}")?;
                    out.write_all(&schema)?;
                }
                last = id;
                out.write_all(&text)?;
            }
        }
    }
    for text in sessions.into_values() {
        out.write_all(&text)?;
        // What was not committed then went with the connection.
        writeln!(out, "ROLLBACK;")?;
    }
    for stop in crate::offline::stops_in_words(&folder) {
        writeln!(out, "-- {}", plain(stop.as_bytes(), NAMED_MAX))?;
    }
    out.flush()?;
    Ok(exporting.exported)
}

fn begin_of(session: &SessionRecord) -> Vec<u8> {
    let mut text = format!(
        "\n-- session {} of {} at {:.6} s\n",
        session.id,
        plain(session.user.as_bytes(), NAMED_MAX),
        session.at_us as f64 / 1e6
    )
    .into_bytes();
    if !session.schema.is_empty() {
        text.extend_from_slice(&use_of(&session.schema));
    }
    text
}

fn use_of(schema: &[u8]) -> Vec<u8> {
    if schema.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\0')) {
        return b"-- a schema of which the name is none\n".to_vec();
    }
    let mut text = b"USE `".to_vec();
    for byte in schema {
        text.push(*byte);
        if *byte == b'`' {
            text.push(b'`');
        }
    }
    text.extend_from_slice(b"`;\n");
    text
}

struct Exporting {
    texts: Texts,
    exported: Exported,
}

impl Exporting {
    /// The command as lines of text; none where there is nothing to be said in SQL.
    fn command(&mut self, command: &CommandRecord) -> Vec<u8> {
        let text = self.texts.of(command);
        match Command(command.command) {
            Command::INIT_DB => return use_of(&command.body),
            Command::RESET_CONNECTION | Command::CHANGE_USER => {
                return format!("-- {}\nROLLBACK;\n", Command(command.command).name()).into_bytes();
            }
            _ => {}
        }
        let Some(text) = text else {
            return Vec::new();
        };
        let at = format!("{:.6} s", command.start_us as f64 / 1e6);
        match text.and_then(|text| statement(&at, &text)) {
            Ok(text) => {
                self.exported.statements += 1;
                text
            }
            Err(why) => {
                self.exported.left_out += 1;
                let digest = command.digest;
                format!("-- {at}: left out, digest {digest:016x}: {why}\n").into_bytes()
            }
        }
    }
}

/// The texts of what sessions have said, those of executions with their values in them.
pub(crate) struct Texts {
    judge: Judge,
    /// By session.
    charsets: HashMap<u32, Charset>,
    /// The charsets of changes of the user that are still to come, in their order: the result of a replay has
    /// sessions long in front of their commands.
    logins: HashMap<u32, VecDeque<Charset>>,
    /// Prepared statements, by session and number.
    prepared: HashMap<u32, HashMap<u32, Prepared>>,
}

impl Texts {
    pub(crate) fn new(permitted: Permitted) -> Self {
        Self {
            judge: Judge::new(permitted),
            charsets: HashMap::new(),
            logins: HashMap::new(),
            prepared: HashMap::new(),
        }
    }

    pub(crate) fn begin(&mut self, session: &SessionRecord) {
        let charset = charset::of_collation(session.collation).filter(|_| !session.was_open);
        match self.charsets.entry(session.id) {
            Entry::Vacant(first) => {
                first.insert(charset);
            }
            Entry::Occupied(_) if session.was_open => {}
            Entry::Occupied(_) => self.logins.entry(session.id).or_default().push_back(charset),
        }
    }

    /// The text of the next command, or why it is left out; `None` where a command has no text.
    pub(crate) fn of(&mut self, command: &CommandRecord) -> Option<Result<Vec<u8>, &'static str>> {
        let text = self.text(command);
        let charset = self.charsets.entry(command.session).or_default();
        let of_session = self.prepared.get(&command.session);
        let prepared = of_session.and_then(|of_session| of_session.get(&command.statement));
        let said = match Command(command.command) {
            Command::QUERY => Some(&command.body),
            Command::STMT_EXECUTE => prepared.map(|prepared| &prepared.text),
            _ => None,
        };
        if let Some(said) = said.filter(|_| command.error == 0) {
            *charset = charset::behind(said, *charset);
        }
        if command.is_anew() || command.flags.has(Flags::CLOSED) {
            self.charsets.remove(&command.session);
            self.prepared.remove(&command.session);
        }
        match Command(command.command) {
            Command::CHANGE_USER if command.error == 0 => {
                let logins = self.logins.get_mut(&command.session);
                let next = logins.and_then(VecDeque::pop_front);
                self.charsets
                    .extend(next.map(|charset| (command.session, charset)));
            }
            Command::QUIT => drop(self.logins.remove(&command.session)),
            _ => {}
        }
        text
    }

    /// The statement that a command names.
    fn prepared(&mut self, command: &CommandRecord) -> Option<&mut Prepared> {
        self.prepared
            .get_mut(&command.session)?
            .get_mut(&command.statement)
    }

    fn text(&mut self, command: &CommandRecord) -> Option<Result<Vec<u8>, &'static str>> {
        let verdict = self.judge.may_be_sent(command);
        match Command(command.command) {
            Command::STMT_PREPARE => {
                let prepared = Prepared {
                    text: command.body.clone(),
                    ..Prepared::default()
                };
                let of_session = self.prepared.entry(command.session).or_default();
                of_session.insert(command.statement, prepared);
                return None;
            }
            Command::STMT_SEND_LONG_DATA => {
                if let Some(prepared) = self.prepared(command) {
                    prepared.add(&command.body);
                }
                return None;
            }
            Command::STMT_CLOSE => {
                if let Some(of_session) = self.prepared.get_mut(&command.session) {
                    of_session.remove(&command.statement);
                }
                return None;
            }
            Command::STMT_RESET => {
                if let Some(prepared) = self.prepared(command) {
                    prepared.long.clear();
                }
                return None;
            }
            Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => {}
            _ => return None,
        }
        // The next one has no parts of this one, and may leave out types that this one had and that nobody
        // knows.
        if verdict.is_err()
            && let Some(prepared) = self.prepared(command)
        {
            prepared.long.clear();
            prepared.types.clear();
        }
        let text = verdict.map_err(|why| why.words()).and_then(|()| {
            if !command.files.is_empty() {
                return Err("loads a file of the client's, which is in the capture alone");
            }
            if Command(command.command) == Command::QUERY {
                return Ok(command.body.clone());
            }
            let charset = self.charsets.get(&command.session).copied().flatten();
            let prepared = self.prepared(command).ok_or("its statement is not there")?;
            prepared.with_values(command, charset)
        });
        Some(text)
    }
}

/// Commands of clients that are no SQL.
const OF_CLIENTS: [&str; 27] = [
    "charset",
    "clear",
    "connect",
    "costs",
    "delimiter",
    "edit",
    "ego",
    "exit",
    "go",
    "help",
    "nopager",
    "notee",
    "nowarning",
    "pager",
    "print",
    "prompt",
    "query_attributes",
    "quit",
    "rehash",
    "resetconnection",
    "sandbox",
    "source",
    "ssl_session_data_print",
    "status",
    "system",
    "tee",
    "warnings",
];

/// A statement with a comment in front of it and with its end; the reason where a client may read something
/// else in it.
fn statement(comment: &str, text: &[u8]) -> Result<Vec<u8>, &'static str> {
    // Clients leave comments out, so that the line behind one is the first, where they look for commands.
    let text = without_semicolon(without_comments_in_front(text).trim_ascii());
    let word = text
        .split(|byte| !byte.is_ascii_alphabetic() && *byte != b'_')
        .next()
        .unwrap_or_default();
    // Clients pass over such a line, or such space, and look for commands behind it.
    let is_passed_over = text.starts_with(b"--") && text.contains(&b'\n') || text.starts_with(b"\x0b");
    if is_passed_over || text.starts_with(b"/*M") || is_one_of(word, &OF_CLIENTS) {
        return Err("a client may find a command of its own in it");
    }
    if has(text, b"no_backslash_escapes") {
        return Err("clients read quotes otherwise behind it");
    }
    if has(text, b"delimiter") {
        return Err("a client may find a command of its own in it");
    }
    for has_escapes in [true, false] {
        let read = read(text, has_escapes);
        if read.has_command {
            return Err("a client may find a command of its own in it");
        }
        if has_escapes && !read.is_whole {
            return Err("it ends within a text or a comment");
        }
    }
    if text.contains(&0) {
        return Err("it has a NUL byte");
    }
    let last_line = text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let ends_in_comment = last_line.contains(&b'#') || last_line.windows(2).any(|part| part == b"--");
    let end = if ends_in_comment { "\n" } else { "" };
    let comment = format!("/* {comment} */ ");
    if !text.contains(&b';') {
        return Ok([comment.as_bytes(), text, end.as_bytes(), b";\n"].concat());
    }
    // Of several statements, or of a program: its own `;` are no ends.
    let word = word_beside(text);
    let begin = format!("DELIMITER {word}\n{comment}");
    let end = format!("\n{word}\nDELIMITER ;\n");
    Ok([begin.as_bytes(), text, end.as_bytes()].concat())
}

/// A short word that is not in a text: `//` and a number.
fn word_beside(text: &[u8]) -> String {
    // Texts are too short to have all numbers of so many digits.
    const DIGITS_MAX: usize = 7;
    let mut taken = HashSet::new();
    for (at, _) in text.windows(2).enumerate().filter(|(_, part)| *part == b"//") {
        let digits = text[at + 2..].iter().take(DIGITS_MAX);
        let digits = digits.take_while(|byte| byte.is_ascii_digit());
        // A word is in the text as well where another digit stands behind it.
        taken.extend(digits.scan(0_u32, |number, digit| {
            *number = *number * 10 + u32::from(digit - b'0');
            Some(*number)
        }));
    }
    let number = (0..).find(|number| !taken.contains(number)).unwrap_or_default();
    format!("//{number}")
}

pub(crate) fn parameters_of(text: &[u8]) -> usize {
    read(text, true).parameters.len()
}

/// What a client sees in a text.
#[derive(Default)]
struct Read {
    /// Where parameters stand.
    parameters: Vec<usize>,
    /// A backslash begins a command of the client: one outside of quotes, or any where clients do not agree
    /// on what is quoted.
    has_command: bool,
    /// No quote and no comment is open at its end.
    is_whole: bool,
}

/// `has_escapes`: a backslash within quotes takes what follows as it is.
fn read(text: &[u8], has_escapes: bool) -> Read {
    let mut read = Read::default();
    let has_backslash = text.contains(&b'\\');
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let rest = &text[at..];
        let len = match rest {
            [b'\'' | b'"' | b'`', ..] => quoted_len(rest, has_escapes && byte != b'`'),
            [b'#', ..] | [b'-', b'-', b'\t'..=b'\r' | b' ', ..] => {
                let line = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                // Within comments clients read no commands, but not all agree on what a comment is.
                read.has_command |= rest[..line].contains(&b'\\');
                Some(line)
            }
            // Not all clients agree on whether a comment begins here, nor on which quotes count then.
            [b'-', b'-', ..] | [b'/', b'*', b'M', b'!', ..] => {
                read.has_command |= has_backslash;
                Some(1)
            }
            [b'/', b'*', b'!', ..] => Some(3),
            [b'/', b'*', ..] => {
                let end = comment_len(rest);
                read.has_command |= rest[..end.unwrap_or(rest.len())].contains(&b'\\');
                end
            }
            _ => {
                read.has_command |= byte == b'\\';
                if byte == b'?' {
                    read.parameters.push(at);
                }
                Some(1)
            }
        };
        let Some(len) = len else { return read };
        at += len;
    }
    read.is_whole = true;
    read
}

/// How long what begins with a quote is; `None` where it has no end.
fn quoted_len(text: &[u8], has_escapes: bool) -> Option<usize> {
    let quote = text.first()?;
    let mut at = 1;
    loop {
        let byte = text.get(at)?;
        if has_escapes && *byte == b'\\' {
            at += 2;
        } else if byte == quote {
            // A doubled one begins another text at once, which comes to the same.
            return Some(at + 1);
        } else {
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_has_nothing_of_one_that_was_left_out() {
        let mut exporting = Exporting {
            texts: Texts::new(Permitted::default()),
            exported: Exported::default(),
        };
        let mut say = |command: Command, flags, body: &[u8]| {
            let text = exporting.command(&CommandRecord {
                command: command.0,
                statement: 7,
                flags,
                body: body.to_vec(),
                ..CommandRecord::default()
            });
            String::from_utf8(text).unwrap()
        };
        let (whole, cut) = (Flags::default(), Flags::CUT);
        let typed = [7, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 5];
        let untyped = [7, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 6];
        say(Command::STMT_PREPARE, whole, b"SELECT ?");
        assert!(say(Command::STMT_EXECUTE, whole, &typed).ends_with("SELECT 5;\n"));
        assert!(say(Command::STMT_EXECUTE, whole, &untyped).ends_with("SELECT 6;\n"));
        assert!(say(Command::STMT_EXECUTE, cut, b"").contains("left out"));
        assert!(say(Command::STMT_EXECUTE, whole, &untyped).contains("left out"));
        say(Command::STMT_SEND_LONG_DATA, whole, b"\x07\0\0\0\0\0part");
        assert!(say(Command::STMT_EXECUTE, cut, b"").contains("left out"));
        assert!(say(Command::STMT_EXECUTE, whole, &typed).ends_with("SELECT 5;\n"));
    }

    #[test]
    fn what_loads_a_file_is_named() {
        let mut exporting = Exporting {
            texts: Texts::new(Permitted::default()),
            exported: Exported::default(),
        };
        let text = exporting.command(&CommandRecord {
            command: Command::QUERY.0,
            body: b"LOAD DATA LOCAL INFILE 'f' INTO TABLE t".to_vec(),
            files: vec![b"1\n".to_vec()],
            ..CommandRecord::default()
        });
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("left out") && text.contains("a file of the client's"),
            "{text}"
        );
        assert!(!text.contains("LOAD DATA"), "{text}");
    }

    #[test]
    fn a_client_finds_no_command_of_its_own() {
        let end_of =
            |text: &str| statement("c", text.as_bytes()).map(|text| String::from_utf8(text).unwrap());
        for text in [
            "SELECT 1 \\! rm -rf /",
            "SELECT 'a\\' \\! rm -rf /",
            "SELECT 'a\\'' \\! id",
            "SELECT 1 -- \\! id",
            "SELECT 1 /* \\! id */",
            "SELECT `a\\` \\! id",
            "SELECT 1 --\r'\n\\! id\n-- '",
            "SELECT 1 --\u{a0}'\n\\! id\n-- '",
            "SELECT 1 /*M! ' */\n\\! id\n-- '",
            "SELECT 'open",
            "SELECT 1 /* open",
            "SELECT 1\0",
            "system id",
            "-- x\nsystem id",
            "--x\nsystem id",
            "\u{b}\nsystem id",
            "\u{b}system id",
            "/* x */\n Source /etc/passwd",
            "/*M! x */\nsystem id",
            "delimiter x",
            "SELECT a AS delimiter FROM t",
            "SET sql_mode = 'No_Backslash_Escapes'",
        ] {
            assert!(end_of(text).is_err(), "{text}");
        }
        assert_eq!(end_of("SELECT 'it\\'s'").unwrap(), "/* c */ SELECT 'it\\'s';\n");
        assert_eq!(end_of("SELECT 1 -- x").unwrap(), "/* c */ SELECT 1 -- x\n;\n");
        assert_eq!(end_of("SELECT 5--3").unwrap(), "/* c */ SELECT 5--3\n;\n");
        assert_eq!(end_of("-- x").unwrap(), "/* c */ -- x\n;\n");
        assert_eq!(
            end_of("-- name: a\n# b\n/* c */ SELECT 1").unwrap(),
            "/* c */ SELECT 1;\n"
        );
        let several = end_of("SELECT '//0'; SELECT 2").unwrap();
        assert_eq!(
            several,
            "DELIMITER //1\n/* c */ SELECT '//0'; SELECT 2\n//1\nDELIMITER ;\n"
        );
        assert_eq!(use_of(b"a`b"), b"USE `a``b`;\n");
    }

    #[test]
    fn parameters_are_found_where_servers_find_them() {
        let of = |text: &str| read(text.as_bytes(), true).parameters;
        assert_eq!(of("SELECT ?, '?', \"?\", `?`, 'it''s ?', ? -- ?"), [7, 36]);
        assert_eq!(of("SELECT /* ? */ ? # ?\n, ?"), [15, 23]);
        assert_eq!(of("SELECT ? --\r?\n, ?"), [7, 16]);
    }

    #[test]
    fn only_what_is_written_of_one_session_is_counted() {
        let place = tempfile::tempdir().unwrap();
        let from = place.path().join("from");
        let head = crate::record::Head::default();
        let mut writer = crate::file::FolderWriter::create(&from, head, 1 << 20, None).unwrap();
        for (session, text) in [(1, "SELECT 1"), (2, "SELECT 2"), (2, "KILL 5"), (1, "SELECT 3")] {
            let command = CommandRecord {
                session,
                command: Command::QUERY.0,
                body: text.as_bytes().to_vec(),
                ..CommandRecord::default()
            };
            writer.put(&Record::Command(Box::new(command))).unwrap();
        }
        writer.finish().unwrap();
        for (session, statements, left_out) in [(Some(1), 2, 0), (Some(2), 1, 1), (None, 3, 1)] {
            let wanted = Wanted {
                by: By::Time,
                session,
                permitted: Permitted::default(),
            };
            let mut out = Vec::new();
            let exported = export(&from, None, wanted, &mut out).unwrap();
            assert_eq!((exported.statements, exported.left_out), (statements, left_out));
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text.matches("*/ SELECT ").count() as u64, statements, "{text}");
        }
    }

    #[test]
    fn nothing_is_kept_of_sessions_that_have_ended() {
        let mut texts = Texts::new(Permitted::default());
        let mut kept = |command: Command, flags| {
            drop(texts.of(&CommandRecord {
                session: 1,
                command: command.0,
                flags,
                body: b"SELECT 1".to_vec(),
                ..CommandRecord::default()
            }));
            (texts.prepared.len(), texts.charsets.len())
        };
        for (ends, flags) in [
            (Command::QUIT, Flags::default()),
            (Command::RESET_CONNECTION, Flags::default()),
            (Command::CHANGE_USER, Flags::default()),
            (Command::QUERY, Flags::CLOSED),
        ] {
            assert_eq!(kept(Command::STMT_PREPARE, Flags::default()), (1, 1));
            assert_eq!(kept(ends, flags), (0, 0), "{}", ends.name());
        }
    }

    #[test]
    fn strings_have_the_charset_of_the_last_change_of_the_user() {
        let mut texts = Texts::new(Permitted::default());
        for collation in [45, 8, 45] {
            texts.begin(&SessionRecord {
                id: 1,
                collation,
                ..SessionRecord::default()
            });
        }
        let command = |command: Command, body: &[u8]| CommandRecord {
            session: 1,
            command: command.0,
            statement: 7,
            body: body.to_vec(),
            ..CommandRecord::default()
        };
        let mut said = || {
            drop(texts.of(&command(Command::CHANGE_USER, b"")));
            drop(texts.of(&command(Command::STMT_PREPARE, b"SELECT ?")));
            let execute = [7, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 253, 0, 2, 0xc3, 0xa9];
            let text = texts.of(&command(Command::STMT_EXECUTE, &execute));
            String::from_utf8(text.unwrap().unwrap()).unwrap()
        };
        assert_eq!(said(), "SELECT _latin1 x'c3a9'");
        assert_eq!(said(), "SELECT _utf8mb4 x'c3a9'");
    }

    #[test]
    fn a_word_is_found_that_is_in_no_text() {
        for (text, word) in [
            ("", "//0"),
            ("//0 //2", "//1"),
            ("///10//0", "//2"),
            ("/0 / /0 //", "//0"),
        ] {
            assert_eq!(word_beside(text.as_bytes()), word, "{text}");
        }
        let began = std::time::Instant::now();
        let text: String = (0..100_000).map(|number| format!("//{number};")).collect();
        assert_eq!(word_beside(text.as_bytes()), "//100000");
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }
}
