//! Statements that differ in their values only, told by one text: the form of MySQL's `DIGEST_TEXT`.
//!
//! Tested against texts recorded from MySQL 9.7.4 (`tests/all/digests.txt`). What differs: optimizer hints
//! are dropped like other comments, `PREPARE` keeps its name, several statements are one text, and of a text
//! beyond [`PIECES_MAX`] the rest is `...`. It is the same for MariaDB.

mod print;

use crate::keywords;
use crate::reader::unquoted;
use crate::syntax::Syntax;
use crate::token::{Kind, Token, Tokenizer};

pub use print::synonym;

/// What a text is without its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest {
    /// FNV-1a of the text, 64 bits: the same in every version and on every machine.
    pub hash: u64,
    pub text: String,
}

/// Most pieces of a digest; what repeats is one.
const PIECES_MAX: usize = 2000;

#[must_use]
pub fn digest(sql: &[u8], syntax: Syntax) -> Digest {
    let mut pieces = Pieces {
        list: Vec::with_capacity(32),
        positions: None,
        depth: 0,
    };
    let mut tokens = Tokenizer::new(sql, syntax);
    let mut token = tokens.next();
    while token.kind != Kind::End && pieces.list.len() < PIECES_MAX {
        let next = tokens.next();
        pieces.token(&tokens, token, next);
        token = next;
    }
    if token.kind != Kind::End {
        pieces.list.push(Piece::Cut);
    }
    while pieces.list.last() == Some(&Piece::Operator(b";")) {
        pieces.list.pop();
    }
    let text = print::text(&pieces.list);
    Digest {
        hash: fnv1a(text.as_bytes()),
        text,
    }
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece<'a> {
    /// `?`
    Value,
    /// `?, ...`
    Values,
    /// `(?)`
    Row,
    /// `(?) /* , ... */`
    Rows,
    /// `(...)`
    WideRow,
    /// `(...) /* , ... */`
    WideRows,
    /// `IN (...)`
    InValues,
    Keyword(&'static str),
    Name(&'a [u8]),
    /// `@?`
    Variable,
    /// `@?, ...`: to MySQL the name is a value.
    Variables,
    /// ``@`name` ``
    QuotedVariable(&'a [u8]),
    /// ``@@`name` ``
    System(&'a [u8]),
    /// `@@GLOBAL`
    SystemScope(&'static str),
    /// The number of a column after `ORDER BY`.
    Position(&'a [u8]),
    /// `(_charset)`
    Charset,
    Operator(&'a [u8]),
    /// `...`
    Cut,
}

const OPEN: Piece<'static> = Piece::Operator(b"(");
const CLOSE: Piece<'static> = Piece::Operator(b")");
const COMMA: Piece<'static> = Piece::Operator(b",");

struct Pieces<'a> {
    list: Vec<Piece<'a>>,
    /// The depth at which there is an `ORDER BY` or `GROUP BY`.
    positions: Option<usize>,
    depth: usize,
}

impl<'a> Pieces<'a> {
    fn token(&mut self, tokens: &Tokenizer<'a>, token: Token, next: Token) {
        let text = tokens.text(token);
        match token.kind {
            Kind::Word => self.word(tokens, token, next),
            Kind::Name | Kind::Quoted => self.list.push(Piece::Name(unquoted(text))),
            Kind::Number => self.number(text, next),
            Kind::String | Kind::Placeholder => self.value(),
            Kind::Variable => self.list.push(match text.get(1) {
                Some(b'`') => Piece::QuotedVariable(unquoted(&text[1..])),
                Some(b'"') if tokens.syntax().ansi_quotes => Piece::QuotedVariable(unquoted(&text[1..])),
                _ => Piece::Variable,
            }),
            Kind::System => {
                let name = unquoted(&text[2..]);
                let scope = if next.kind == Kind::Dot {
                    keywords::keyword(name, false)
                } else {
                    None
                };
                self.list
                    .push(scope.map_or(Piece::System(name), Piece::SystemScope));
            }
            Kind::Open => {
                self.depth += 1;
                self.list.push(OPEN);
            }
            Kind::Close => self.close(),
            Kind::Operator if text == b"<>" => self.list.push(Piece::Operator(b"!=")),
            Kind::Comma | Kind::Dot | Kind::Semicolon | Kind::Operator => {
                self.list.push(Piece::Operator(text))
            }
            Kind::End => {}
        }
    }

    fn word(&mut self, tokens: &Tokenizer<'a>, token: Token, next: Token) {
        let word = tokens.text(token);
        if word[0] == b'_' && matches!(next.kind, Kind::String | Kind::Number) {
            return self.list.push(Piece::Charset);
        }
        let called = next.kind == Kind::Open && next.start == token.end;
        let Some(keyword) = keywords::keyword(word, called) else {
            return self.list.push(Piece::Name(word));
        };
        if keyword == "NULL" && self.may_begin_expression(&["NOT"]) {
            return self.value();
        }
        let previous = self.list.last().copied();
        match keyword {
            "BY" if matches!(previous, Some(Piece::Keyword("ORDER" | "GROUP"))) => {
                self.positions = Some(self.depth)
            }
            "HAVING" | "LIMIT" | "SELECT" | "WHERE" | "FOR" | "INTO" | "UNION" => self.positions = None,
            _ => {}
        }
        self.list.push(Piece::Keyword(print::printed_as(keyword)));
    }

    fn number(&mut self, text: &'a [u8], next: Token) {
        // A sign is part of the value where nothing can be subtracted from.
        while let Some(Piece::Operator(b"-" | b"+")) = self.list.last() {
            let sign = self.list.pop();
            if !self.may_begin_expression(&[]) {
                self.list.extend(sign);
                break;
            }
        }
        let follows = |piece| self.list.last() == Some(&piece);
        let begins_item =
            self.positions == Some(self.depth) && (follows(Piece::Keyword("BY")) || follows(COMMA));
        let is_item = text.iter().all(u8::is_ascii_digit) && next.kind != Kind::Operator;
        if begins_item && is_item && self.merged().is_none() {
            return self.list.push(Piece::Position(text));
        }
        self.value();
    }

    fn value(&mut self) {
        let Some(values) = self.merged() else {
            return self.list.push(Piece::Value);
        };
        self.list.truncate(self.list.len() - 2);
        self.list.push(values);
    }

    /// What the last two pieces are together with a value that comes now.
    fn merged(&self) -> Option<Piece<'a>> {
        match self.list.as_slice() {
            [.., Piece::Value | Piece::Values, COMMA] => Some(Piece::Values),
            [.., Piece::Variable | Piece::Variables, COMMA] => Some(Piece::Variables),
            _ => None,
        }
    }

    /// A parenthesis closes: a list of nothing but values is one piece, and so are several such lists.
    fn close(&mut self) {
        if self.positions == Some(self.depth) {
            self.positions = None;
        }
        self.depth = self.depth.saturating_sub(1);
        let row = match self.list.as_slice() {
            [.., OPEN, Piece::Value] => Piece::Row,
            [.., OPEN, Piece::Values] => Piece::WideRow,
            _ => return self.list.push(CLOSE),
        };
        self.list.truncate(self.list.len() - 2);
        let (dropped, collapsed) = match (self.list.as_slice(), row) {
            ([.., Piece::Keyword("IN")], _) => (1, Piece::InValues),
            ([.., Piece::Row | Piece::Rows, COMMA], Piece::Row) => (2, Piece::Rows),
            ([.., Piece::WideRow | Piece::WideRows, COMMA], Piece::WideRow) => (2, Piece::WideRows),
            _ => (0, row),
        };
        self.list.truncate(self.list.len() - dropped);
        self.list.push(collapsed);
    }

    /// Whether what comes now begins an expression, by the last piece.
    fn may_begin_expression(&self, except: &[&str]) -> bool {
        match self.list.last() {
            Some(Piece::Operator(operator)) => !matches!(*operator, b")" | b"." | b"}" | b"]"),
            Some(Piece::Keyword(keyword)) => {
                BEFORE_EXPRESSIONS.contains(keyword) && !except.contains(keyword)
            }
            _ => false,
        }
    }
}

const BEFORE_EXPRESSIONS: &[&str] = &[
    "AND", "AT", "BETWEEN", "CASE", "DEFAULT", "DIV", "ELSE", "ELSEIF", "ENDS", "EVERY", "IF", "INTERVAL",
    "LIKE", "MOD", "NOT", "OR", "RETURN", "RLIKE", "SELECT", "STARTS", "THEN", "UNTIL", "WHEN", "WHILE",
    "XOR",
];
