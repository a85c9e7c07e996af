//! The one form of a SELECT whose answer is a row that is found by its key, recognised for certain or not at
//! all.
//!
//! `SELECT columns FROM [schema.]table WHERE column = value [AND column = value …] [LIMIT n]`: names with or
//! without quotes, `AS` with columns, an alias of the table, plain comments, one semicolon at the end. No
//! functions, hints, operators, parentheses, and no value whose bytes are not its content (escapes, `N'…'`,
//! `x'…'`, decimals). What is not understood here costs nothing but speed.
//!
//! Whether the names mean what they seem to mean (a column, a table and no view) is not known here.

use crate::syntax::{Charset, Syntax};
use crate::words::is_one_of;

/// Conditions that are looked at; keys of more columns are rare.
pub const CONDITIONS_MAX: usize = 8;

/// A statement that asks for the row with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointLookup<'a> {
    /// Without quotes; `None`: the session's.
    pub schema: Option<&'a [u8]>,
    /// Without quotes.
    pub table: &'a [u8],
    /// Where it begins and ends in the text, without the comments around it.
    pub start: usize,
    pub end: usize,
    conditions: [Condition<'a>; CONDITIONS_MAX],
    count: usize,
}

/// `column = value`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition<'a> {
    /// Without quotes and qualifiers.
    pub column: &'a [u8],
    pub value: Value<'a>,
    /// Where the value begins and ends in the text.
    pub start: usize,
    pub end: usize,
}

/// What a column is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Digits, with or without a minus.
    Integer { negative: bool, magnitude: u64 },
    /// The content of a string in the session's `character_set_client`, byte for byte.
    Text(&'a [u8]),
    /// `?`
    Parameter,
}

impl<'a> PointLookup<'a> {
    #[must_use]
    pub fn conditions(&self) -> &[Condition<'a>] {
        &self.conditions[..self.count]
    }

    /// Whether any of its values is to come with the execution.
    #[must_use]
    pub fn has_parameters(&self) -> bool {
        self.conditions()
            .iter()
            .any(|condition| condition.value == Value::Parameter)
    }

    /// Whether all of its values are to come with the execution: all executions of its text look the same.
    #[must_use]
    pub fn has_only_parameters(&self) -> bool {
        self.conditions()
            .iter()
            .all(|condition| condition.value == Value::Parameter)
    }
}

/// The lookup that a text is, if it certainly is one.
#[inline]
#[must_use]
pub fn point_lookup(sql: &[u8], syntax: Syntax) -> Option<PointLookup<'_>> {
    // Nearly every other statement is told by its first letters.
    let head = sql.first_chunk::<6>()?;
    if head[0].is_ascii_alphabetic() && !head.eq_ignore_ascii_case(b"SELECT") {
        return None;
    }
    Scanner { sql, at: 0, syntax }.lookup()
}

struct Scanner<'a> {
    sql: &'a [u8],
    at: usize,
    syntax: Syntax,
}

const NOTHING: Condition<'_> = Condition {
    column: &[],
    value: Value::Parameter,
    start: 0,
    end: 0,
};

/// Words that are values or calls where they stand without quotes in the place of a column.
const NO_COLUMNS: [&str; 16] = [
    "CURRENT_DATE",
    "CURRENT_ROLE",
    "CURRENT_TIME",
    "CURRENT_TIMESTAMP",
    "CURRENT_USER",
    "DEFAULT",
    "FALSE",
    "LOCALTIME",
    "LOCALTIMESTAMP",
    "NOT",
    "NULL",
    "SYSDATE",
    "TRUE",
    "UTC_DATE",
    "UTC_TIME",
    "UTC_TIMESTAMP",
];

/// The length of the shortest of them.
const SHORTEST: usize = 3;

impl<'a> Scanner<'a> {
    fn lookup(&mut self) -> Option<PointLookup<'a>> {
        self.space()?;
        let start = self.at;
        self.word(b"SELECT").then_some(())?;
        self.gap()?;
        self.columns()?;
        let (schema, table) = self.table()?;
        let mut lookup = PointLookup {
            schema,
            table,
            start,
            end: start,
            conditions: [NOTHING; CONDITIONS_MAX],
            count: 0,
        };
        loop {
            let condition = self.condition()?;
            lookup.end = condition.end;
            *lookup.conditions.get_mut(lookup.count)? = condition;
            lookup.count += 1;
            if !self.word(b"AND") {
                break;
            }
            self.gap()?;
        }
        if let Some(end) = self.limit()? {
            lookup.end = end;
        }
        if self.take(b';') {
            self.space()?;
        }
        (self.at == self.sql.len()).then_some(lookup)
    }

    /// The list of columns, and FROM.
    fn columns(&mut self) -> Option<()> {
        loop {
            if !self.take(b'*') {
                self.column_or_star()?;
            }
            self.space()?;
            if self.word(b"AS") {
                self.gap()?;
                self.name()?;
                self.space()?;
            }
            if self.take(b',') {
                self.space()?;
                continue;
            }
            self.word(b"FROM").then_some(())?;
            return self.gap();
        }
    }

    /// `[[schema.]table.]column`, or `[schema.]table.*`.
    fn column_or_star(&mut self) -> Option<()> {
        self.name()?;
        for _ in 0..2 {
            if !self.take(b'.') {
                break;
            }
            if self.take(b'*') {
                return Some(());
            }
            self.name()?;
        }
        Some(())
    }

    /// `[schema.]table [[AS] alias] WHERE`
    fn table(&mut self) -> Option<(Option<&'a [u8]>, &'a [u8])> {
        let first = self.name()?;
        let (schema, table) = match self.take(b'.') {
            true => (Some(first), self.name()?),
            false => (None, first),
        };
        self.space()?;
        if !self.word(b"WHERE") {
            if self.word(b"AS") {
                self.gap()?;
            }
            self.name()?;
            self.space()?;
            self.word(b"WHERE").then_some(())?;
        }
        self.gap()?;
        Some((schema, table))
    }

    /// `[[schema.]table.]column = value`, and the space after it.
    fn condition(&mut self) -> Option<Condition<'a>> {
        let start = self.at;
        let mut column = self.name()?;
        let is_bare = column.as_ptr() == self.sql[start..].as_ptr();
        for _ in 0..2 {
            if self.take(b'.') {
                column = self.name()?;
            }
        }
        let is_word = is_bare && self.at - start == column.len();
        if is_word && column.len() >= SHORTEST && is_one_of(column, &NO_COLUMNS) {
            return None;
        }
        self.space()?;
        self.take(b'=').then_some(())?;
        self.space()?;
        let start = self.at;
        let value = self.value()?;
        let end = self.at;
        self.space()?;
        // After a number without a space there could be more of it.
        Some(Condition {
            column,
            value,
            start,
            end,
        })
    }

    fn value(&mut self) -> Option<Value<'a>> {
        match self.byte()? {
            b'?' => {
                self.at += 1;
                Some(Value::Parameter)
            }
            b'-' => {
                self.at += 1;
                Some(Value::Integer {
                    negative: true,
                    magnitude: self.digits()?,
                })
            }
            b'0'..=b'9' => Some(Value::Integer {
                negative: false,
                magnitude: self.digits()?,
            }),
            b'\'' => self.text(b'\'').map(Value::Text),
            b'"' if !self.syntax.ansi_quotes => self.text(b'"').map(Value::Text),
            _ => None,
        }
    }

    fn digits(&mut self) -> Option<u64> {
        let start = self.at;
        let mut value = 0_u64;
        while let Some(digit @ b'0'..=b'9') = self.byte() {
            value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            self.at += 1;
        }
        (self.at > start).then_some(())?;
        // `1.0`, `1e3`, `1abc`, `0x1F`, `1AND`: not for certain.
        let goes_on = matches!(self.byte(), Some(byte) if is_word_byte(byte) || byte == b'.' || byte >= 0x80);
        (!goes_on).then_some(value)
    }

    /// A string without anything that stands for something else.
    fn text(&mut self, quote: u8) -> Option<&'a [u8]> {
        let start = self.at + 1;
        let escapes = !self.syntax.no_backslash_escapes;
        let ascii_only = self.syntax.charset != Charset::Utf8;
        let content = &self.sql[start..];
        let len = content.iter().position(|&byte| {
            byte == quote || byte == b'\\' && escapes || byte >= 0x80 && ascii_only || byte == 0
        })?;
        let end = start + len;
        (self.sql[end] == quote && self.sql.get(end + 1) != Some(&quote)).then_some(())?;
        self.at = end + 1;
        Some(&self.sql[start..end])
    }

    /// `LIMIT n` with more than nothing: a key finds at most one row. Says where it ends, if it is there.
    fn limit(&mut self) -> Option<Option<usize>> {
        if !self.word(b"LIMIT") {
            return Some(None);
        }
        self.gap()?;
        (self.digits()? > 0).then_some(())?;
        let end = self.at;
        self.space()?;
        Some(Some(end))
    }

    /// A name, in quotes or of nothing but letters, digits and `_` that does not begin with a digit.
    fn name(&mut self) -> Option<&'a [u8]> {
        let quote = match self.byte()? {
            b'`' => b'`',
            b'"' if self.syntax.ansi_quotes => b'"',
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let start = self.at;
                while self.byte().is_some_and(is_word_byte) {
                    self.at += 1;
                }
                let is_over = !matches!(self.byte(), Some(b'$' | b'(' | 0x80..));
                return is_over.then_some(&self.sql[start..self.at]);
            }
            _ => return None,
        };
        let start = self.at + 1;
        let content = &self.sql[start..];
        let len = content.iter().position(|&byte| byte == quote || byte >= 0x80)?;
        let end = start + len;
        // A quote in a name is written twice.
        let is_plain = len > 0 && self.sql[end] == quote && self.sql.get(end + 1) != Some(&quote);
        is_plain.then_some(())?;
        self.at = end + 1;
        Some(&self.sql[start..end])
    }

    /// Consumes a word of capital letters in any case, if it is the next.
    #[inline]
    fn word<const LEN: usize>(&mut self, word: &[u8; LEN]) -> bool {
        let Some(next) = self.sql[self.at..].first_chunk::<LEN>() else {
            return false;
        };
        if next[0] & !LOWER != word[0] || next[LEN - 1] & !LOWER != word[LEN - 1] {
            return false;
        }
        let end = self.at + LEN;
        let is_next = next.eq_ignore_ascii_case(word)
            && !matches!(self.sql.get(end), Some(&byte) if is_word_byte(byte) || byte >= 0x80 || matches!(byte, b'$' | b'.'));
        if is_next {
            self.at = end;
        }
        is_next
    }

    /// Space that has to be there, unless a quoted name or a star comes at once.
    fn gap(&mut self) -> Option<()> {
        let before = self.at;
        self.space()?;
        let is_apart = self.at > before || matches!(self.byte(), Some(b'`' | b'"' | b'*'));
        is_apart.then_some(())
    }

    /// Space and plain comments. `None`: a comment that may mean something.
    #[inline]
    fn space(&mut self) -> Option<()> {
        self.take(b' ');
        match self.byte() {
            Some(b' ' | b'\t' | b'\n' | b'\r' | b'/') => self.more_space(),
            _ => Some(()),
        }
    }

    #[cold]
    fn more_space(&mut self) -> Option<()> {
        loop {
            match self.byte() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                Some(b'/') => self.comment()?,
                _ => return Some(()),
            }
        }
    }

    fn comment(&mut self) -> Option<()> {
        let rest = self.sql[self.at..].strip_prefix(b"/*")?;
        let len = rest.windows(2).position(|pair| pair == b"*/")?;
        let text = &rest[..len];
        let means_something = matches!(text.first(), Some(b'!' | b'+' | b'M' | b'm'))
            || text
                .windows(7)
                .any(|word| word.eq_ignore_ascii_case(b"forebay"))
            // Within it MariaDB and MySQL do not agree on what ends it.
            || text.windows(2).any(|pair| pair == b"/*")
            || text.iter().any(|&byte| byte >= 0x80 || byte == 0);
        self.at += len + 4;
        (!means_something).then_some(())
    }

    /// Consumes this byte, if it is the next.
    #[inline]
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.byte() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.sql.get(self.at).copied()
    }
}

/// What sets a small letter apart from the capital.
const LOWER: u8 = 0x20;

/// Letters, digits and `_`.
const WORD_BYTES: [bool; 256] = {
    let mut is_word = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        is_word[byte] = (byte as u8).is_ascii_alphanumeric() || byte == b'_' as usize;
        byte += 1;
    }
    is_word
};

#[inline]
fn is_word_byte(byte: u8) -> bool {
    WORD_BYTES[usize::from(byte)]
}
