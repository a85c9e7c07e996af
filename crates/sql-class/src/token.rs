//! A text cut into tokens, as the server's lexer would.
//!
//! Comments are skipped, but for those that this server executes: `/*!80400 … */` on MySQL, `/*M! … */` on
//! MariaDB. Tokens are places in the text; nothing is copied. A text that ends inside of a quote or a
//! comment, and a few that servers of different versions read differently, are reported as
//! [`Tokenizer::doubtful`].

use crate::keyword::Keyword;
use crate::syntax::{Charset, Dialect, Syntax};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name without quotes that may be a keyword.
    Word,
    /// A name without quotes that is none, because a dot is next to it: `t.select`.
    Name,
    /// `` `name` ``, or `"name"` under ANSI_QUOTES.
    Quoted,
    /// `'…'`, `"…"`, `N'…'`, `x'…'`, `b'…'`.
    String,
    Number,
    /// `@name`, `@'name'`; also the second half of `'user'@'host'`.
    Variable,
    /// `@@name`, without what may follow a dot.
    System,
    /// `?`
    Placeholder,
    Open,
    Close,
    Comma,
    Dot,
    Semicolon,
    /// Everything else; those of several characters are one token.
    Operator,
    /// There is no more, now and forever.
    End,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    /// Of a [`Kind::Word`].
    pub(crate) keyword: Keyword,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Token {
    /// The token in front of a text, as between two statements.
    pub(crate) const BEFORE: Self = Self {
        kind: Kind::Semicolon,
        keyword: Keyword::None,
        start: 0,
        end: 0,
    };
}

/// Most comments that are looked at for a hint: a text may be nothing but comments.
const HINTS_MAX: usize = 8;

#[derive(Debug, Clone)]
pub(crate) struct Tokenizer<'a> {
    sql: &'a [u8],
    at: usize,
    syntax: Syntax,
    /// Inside of a comment that is executed.
    executed: bool,
    /// The next word follows a dot at once.
    after_dot: bool,
    /// The text cannot be trusted to be what it seems.
    pub(crate) doubtful: bool,
    /// The comments that may hold a hint, until [`Tokenizer::stop_hints`].
    hints: [(usize, usize); HINTS_MAX],
    hint_count: usize,
    hints_wanted: bool,
}

impl<'a> Tokenizer<'a> {
    pub(crate) fn new(sql: &'a [u8], syntax: Syntax) -> Self {
        Self {
            sql,
            at: 0,
            syntax,
            executed: false,
            after_dot: false,
            doubtful: false,
            hints: [(0, 0); HINTS_MAX],
            hint_count: 0,
            hints_wanted: true,
        }
    }

    pub(crate) fn syntax(&self) -> Syntax {
        self.syntax
    }

    pub(crate) fn text(&self, token: Token) -> &'a [u8] {
        &self.sql[token.start..token.end]
    }

    /// From here on comments are only comments.
    pub(crate) fn stop_hints(&mut self) {
        self.hints_wanted = false;
    }

    /// The comments before [`Tokenizer::stop_hints`] that are addressed to the gateway.
    pub(crate) fn hints(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.hints[..self.hint_count]
            .iter()
            .map(|&(start, end)| &self.sql[start..end])
    }

    pub(crate) fn next(&mut self) -> Token {
        self.skip_space_and_comments();
        let start = self.at;
        let after_dot = std::mem::take(&mut self.after_dot);
        let kind = match self.sql.get(start) {
            None => {
                self.doubtful |= self.executed;
                Kind::End
            }
            Some(&byte) => self.scan(byte, after_dot),
        };
        let keyword = match kind {
            Kind::Word => Keyword::of(&self.sql[start..self.at]),
            _ => Keyword::None,
        };
        Token {
            kind,
            keyword,
            start,
            end: self.at,
        }
    }

    fn peek(&self, distance: usize) -> u8 {
        self.sql.get(self.at + distance).copied().unwrap_or(0)
    }

    fn scan(&mut self, byte: u8, after_dot: bool) -> Kind {
        match byte {
            b'0'..=b'9' if !after_dot => self.number(),
            b'.' if self.peek(1).is_ascii_digit() && !after_dot && !self.follows_word() => self.number(),
            b'n' | b'N' | b'x' | b'X' | b'b' | b'B' if self.peek(1) == b'\'' && !after_dot => {
                self.at += 1;
                self.quoted(
                    b'\'',
                    matches!(byte, b'n' | b'N') && !self.syntax.no_backslash_escapes,
                );
                Kind::String
            }
            _ if is_word_byte(byte) => self.word(after_dot),
            b'\'' => {
                self.quoted(byte, !self.syntax.no_backslash_escapes);
                Kind::String
            }
            b'"' if !self.syntax.ansi_quotes => {
                self.quoted(byte, !self.syntax.no_backslash_escapes);
                Kind::String
            }
            b'"' | b'`' => {
                self.quoted(byte, false);
                Kind::Quoted
            }
            b'@' => self.variable(),
            b'.' => {
                self.after_dot = self.follows_word() && is_word_byte(self.peek(1));
                self.single(Kind::Dot)
            }
            b'?' => self.single(Kind::Placeholder),
            b'(' => self.single(Kind::Open),
            b')' => self.single(Kind::Close),
            b',' => self.single(Kind::Comma),
            b';' => self.single(Kind::Semicolon),
            _ => {
                self.at += self.operator_len();
                Kind::Operator
            }
        }
    }

    fn single(&mut self, kind: Kind) -> Kind {
        self.at += 1;
        kind
    }

    /// Whether the byte before this place belongs to a name, so that a dot here joins.
    fn follows_word(&self) -> bool {
        self.at > 0 && is_word_byte(self.sql[self.at - 1])
    }

    fn operator_len(&self) -> usize {
        match (self.peek(0), self.peek(1), self.peek(2)) {
            (b'<', b'=', b'>') | (b'-', b'>', b'>') => 3,
            (b':' | b'<' | b'>' | b'!', b'=', _)
            | (b'<', b'>', _)
            | (b'<', b'<', _)
            | (b'>', b'>', _)
            | (b'-', b'>', _)
            | (b'|', b'|', _)
            | (b'&', b'&', _) => 2,
            _ => 1,
        }
    }

    fn word(&mut self, after_dot: bool) -> Kind {
        let start = self.at;
        self.skip_word();
        let word = &self.sql[start..self.at];
        if word[0] == b'$' && !self.syntax.dialect.is_mariadb() && word[1..].contains(&b'$') {
            self.doubtful = true; // MySQL 9 has strings of the form $tag$ … $tag$
        }
        if after_dot || (self.peek(0) == b'.' && is_word_byte(self.peek(1))) {
            Kind::Name
        } else {
            Kind::Word
        }
    }

    fn skip_word(&mut self) {
        let start = self.at;
        if self.syntax.charset == Charset::Utf8 {
            let rest = &self.sql[start..];
            let len = rest.iter().position(|&byte| !is_word_byte(byte));
            self.at += len.unwrap_or(rest.len());
            return;
        }
        while let Some(&byte) = self.sql.get(self.at)
            && is_word_byte(byte)
        {
            // In some sets of one byte a character these two are spaces, and what looks like a name is two
            // words.
            self.doubtful |= self.syntax.charset == Charset::SingleByte && matches!(byte, 0xA0 | 0xFF);
            self.at += self.syntax.charset.width(&self.sql[self.at..]);
        }
    }

    /// Begins with a digit, or a dot and a digit. Names may begin with digits.
    fn number(&mut self) -> Kind {
        let start = self.at;
        let prefixed = match (self.peek(0), self.peek(1)) {
            (b'0', b'x') => self.digits_len(2, u8::is_ascii_hexdigit),
            (b'0', b'b') => self.digits_len(2, |digit| matches!(digit, b'0' | b'1')),
            _ => 0,
        };
        if prefixed > 0 && !is_word_byte(self.peek(2 + prefixed)) {
            self.at += 2 + prefixed;
            return Kind::Number;
        }
        self.at += self.digits_len(0, u8::is_ascii_digit);
        if self.peek(0) == b'.' {
            self.at += 1;
            self.at += self.digits_len(0, u8::is_ascii_digit);
            self.at += self.exponent_len();
            return Kind::Number;
        }
        let exponent = self.exponent_len();
        self.at += exponent;
        if exponent == 0 && is_word_byte(self.peek(0)) {
            self.at = start;
            return self.word(false);
        }
        Kind::Number
    }

    fn digits_len(&self, from: usize, is_digit: impl Fn(&u8) -> bool) -> usize {
        let rest = self.sql.get(self.at + from..).unwrap_or_default();
        rest.iter().take_while(|digit| is_digit(digit)).count()
    }

    fn exponent_len(&self) -> usize {
        let signed = usize::from(matches!(self.peek(1), b'+' | b'-'));
        match self.peek(0) {
            b'e' | b'E' => match self.digits_len(1 + signed, u8::is_ascii_digit) {
                0 => 0,
                digits => 1 + signed + digits,
            },
            _ => 0,
        }
    }

    /// `@name`, `@'name'`, `@@name`.
    fn variable(&mut self) -> Kind {
        self.at += 1;
        let kind = match self.peek(0) {
            b'@' => {
                self.at += 1;
                Kind::System
            }
            _ => Kind::Variable,
        };
        match self.peek(0) {
            quote @ (b'\'' | b'"')
                if kind == Kind::Variable && (quote == b'\'' || !self.syntax.ansi_quotes) =>
            {
                self.quoted(quote, !self.syntax.no_backslash_escapes);
            }
            quote @ (b'`' | b'"') => self.quoted(quote, false),
            _ if kind == Kind::System => self.skip_word(),
            _ => {
                while is_word_byte(self.peek(0)) || self.peek(0) == b'.' {
                    self.at += self.syntax.charset.width(&self.sql[self.at..]);
                }
            }
        }
        kind
    }

    /// From the quote that opens to the one that closes; two of them are one that does not.
    fn quoted(&mut self, quote: u8, backslash_escapes: bool) {
        self.at += 1;
        while let Some(&byte) = self.sql.get(self.at) {
            if byte >= 0x80 {
                self.at += self.syntax.charset.width(&self.sql[self.at..]);
                continue;
            }
            self.at += 1;
            if byte == b'\\' && backslash_escapes {
                self.at += 1;
            } else if byte == quote {
                if self.peek(0) != quote {
                    return;
                }
                self.at += 1;
            }
        }
        self.at = self.sql.len();
        self.doubtful = true;
    }

    fn skip_space_and_comments(&mut self) {
        loop {
            match self.peek(0) {
                b' ' | b'\t'..=b'\r' => self.at += 1,
                b'#' => self.line_comment(1),
                b'-' if self.peek(1) == b'-' => {
                    // A minus of a minus is no comment: the third byte decides. The text's end counts as one.
                    let third = self.peek(2);
                    if !(third == b' ' || third.is_ascii_control()) {
                        self.doubtful |= self.syntax.charset == Charset::SingleByte && third >= 0x80;
                        return;
                    }
                    self.line_comment(2);
                }
                b'/' if self.peek(1) == b'*' => self.block_comment(),
                b'*' if self.executed && self.peek(1) == b'/' => {
                    self.executed = false;
                    self.at += 2;
                }
                _ => return,
            }
        }
    }

    fn line_comment(&mut self, opening: usize) {
        let start = (self.at + opening).min(self.sql.len());
        let len = self.sql[start..].iter().position(|&byte| byte == b'\n');
        self.at = len.map_or(self.sql.len(), |len| start + len + 1);
        self.note_hint(start, self.at);
    }

    fn block_comment(&mut self) {
        match self.version_comment() {
            Some(Version::Executed { opening }) => {
                self.executed = true;
                self.at += opening;
            }
            Some(Version::Skipped) => self.skip_comment(true),
            None => self.skip_comment(false),
        }
    }

    /// Past a comment that is not executed. One that hides statements from this version may have comments in
    /// it.
    fn skip_comment(&mut self, nests: bool) {
        let start = self.at + 2;
        let optimizer_hints = self.sql.get(start) == Some(&b'+');
        self.at = start;
        let mut quotes = [false; 3];
        let mut depth = 1;
        while let Some(&byte) = self.sql.get(self.at) {
            self.at += 1;
            match byte {
                b'*' if self.peek(0) == b'/' => {
                    self.at += 1;
                    depth -= 1;
                    if depth == 0 {
                        // The server looks for the end of optimizer hints outside of quotes.
                        self.doubtful |= optimizer_hints && quotes.contains(&true);
                        self.note_hint(start, self.at - 2);
                        return;
                    }
                }
                b'/' if nests && depth == 1 && self.peek(0) == b'*' => {
                    self.at += 1;
                    depth += 1;
                }
                b'\'' => quotes[0] ^= true,
                b'"' => quotes[1] ^= true,
                b'`' => quotes[2] ^= true,
                _ => {}
            }
        }
        self.doubtful = true;
    }

    /// What a comment with a `!` is to this server; `None` for a comment that is only that.
    fn version_comment(&mut self) -> Option<Version> {
        let rest = &self.sql[self.at + 2..];
        let (mark, theirs) = match rest {
            [b'!', ..] => (1, false),
            [b'M', b'!', ..] if self.syntax.dialect.is_mariadb() => (2, true),
            _ => return None,
        };
        let digits = rest[mark..]
            .iter()
            .take(6)
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if digits < 5 {
            return Some(Version::Executed { opening: 2 + mark });
        }
        let number = |len: usize| {
            rest[mark..mark + len]
                .iter()
                .fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'))
        };
        let version = number(digits);
        let executed = match self.syntax.dialect {
            Dialect::MySql { version: server } => {
                // Older versions take five digits, newer ones six: where both readings differ nobody knows.
                self.doubtful |= digits == 6;
                version <= server
            }
            Dialect::MariaDb { version: server } => {
                version <= server && (theirs || !(50_700..=99_999).contains(&version))
            }
        };
        Some(match executed {
            true => Version::Executed {
                opening: 2 + mark + digits,
            },
            false => Version::Skipped,
        })
    }

    fn note_hint(&mut self, start: usize, end: usize) {
        if self.hints_wanted
            && self.hint_count < HINTS_MAX
            && self.sql[start..end]
                .trim_ascii_start()
                .get(..7)
                .is_some_and(|word| word.eq_ignore_ascii_case(b"forebay"))
        {
            self.hints[self.hint_count] = (start, end);
            self.hint_count += 1;
        }
    }
}

enum Version {
    /// With this many bytes before what is executed.
    Executed {
        opening: usize,
    },
    Skipped,
}

fn is_word_byte(byte: u8) -> bool {
    WORD_BYTES[usize::from(byte)]
}

const WORD_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        table[at] = byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80;
        at += 1;
    }
    table
};
