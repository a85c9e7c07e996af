//! Statements about the server's connections: `KILL` and `SHOW PROCESSLIST`.

use crate::words::is_one_of;

/// A `KILL` statement, or the command that is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// The connection id as the client wrote it.
    pub id: u32,
    /// Only the running statement is to end.
    pub query_only: bool,
    /// MariaDB's `KILL SOFT`.
    pub soft: bool,
    /// TiDB's `KILL TIDB`, without which it takes an id for one that may be another server's, and does
    /// nothing.
    pub tidb: bool,
}

/// `KILL [HARD | SOFT | TIDB] [CONNECTION | QUERY] id`, comments and a final semicolon allowed.
/// <https://mariadb.com/kb/en/kill/>, <https://dev.mysql.com/doc/refman/9.7/en/kill.html>,
/// <https://docs.pingcap.com/tidb/stable/sql-statement-kill>.
#[must_use]
pub fn kill(text: &[u8]) -> Option<Kill> {
    let mut words = Words(text);
    let mut word = words.next()?;
    if !word.eq_ignore_ascii_case(b"KILL") {
        return None;
    }
    let mut kill = Kill {
        id: 0,
        query_only: false,
        soft: false,
        tidb: false,
    };
    word = words.next()?;
    if word.eq_ignore_ascii_case(b"TIDB") {
        kill.tidb = true;
        word = words.next()?;
    } else if word.eq_ignore_ascii_case(b"HARD") || word.eq_ignore_ascii_case(b"SOFT") {
        kill.soft = word.eq_ignore_ascii_case(b"SOFT");
        word = words.next()?;
    }
    if word.eq_ignore_ascii_case(b"CONNECTION") || word.eq_ignore_ascii_case(b"QUERY") {
        kill.query_only = word.eq_ignore_ascii_case(b"QUERY");
        word = words.next()?;
    }
    kill.id = std::str::from_utf8(word).ok()?.parse().ok()?;
    words.next().is_none().then_some(kill)
}

/// `SHOW [FULL] PROCESSLIST`, comments and a final semicolon allowed.
#[must_use]
pub fn shows_processes(text: &[u8]) -> bool {
    let mut words = Words(text);
    let mut next = || words.next().unwrap_or_default();
    if !is_one_of(next(), &["SHOW"]) {
        return false;
    }
    let mut word = next();
    if is_one_of(word, &["FULL"]) {
        word = next();
    }
    is_one_of(word, &["PROCESSLIST"])
}

/// The words of a statement, without blanks, comments and semicolons.
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let start = self
                .0
                .iter()
                .position(|byte| !byte.is_ascii_whitespace() && *byte != b';')?;
            self.0 = &self.0[start..];
            let comment_end = match self.0 {
                [b'/', b'*', rest @ ..] => rest
                    .windows(2)
                    .position(|pair| pair == b"*/")
                    .map_or(self.0.len(), |end| end + 4),
                [b'#', ..] | [b'-', b'-', ..] => self
                    .0
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .unwrap_or(self.0.len()),
                _ => break,
            };
            self.0 = &self.0[comment_end..];
        }
        let ends_word = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b';' | b'/' | b'#');
        let end = self.0.iter().position(ends_word).unwrap_or(self.0.len()).max(1);
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(word)
    }
}
