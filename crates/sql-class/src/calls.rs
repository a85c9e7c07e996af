//! Where a text calls functions without arguments whose answer the gateway knows better than the server it
//! asks: `CONNECTION_ID()`, `LAST_INSERT_ID()`, `@@pseudo_thread_id`.

use std::ops::Range;

use crate::keyword::Keyword;
use crate::reader::unquoted;
use crate::syntax::Syntax;
use crate::token::{Kind, Token, Tokenizer};
use crate::variables::Scope;

/// One place where a literal can stand instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub range: Range<usize>,
    /// It is all of a column of a result, and the column has its name from it: a literal needs `AS`.
    pub is_bare_item: bool,
    /// No other statement of the text comes before it.
    pub is_in_first: bool,
    /// A statement of the text that comes before it may have counted rows, which is what FOUND_ROWS() says
    /// then.
    pub rows_were_counted: bool,
}

/// Most calls that are looked for.
const CALLS_MAX: usize = 64;
/// Most parentheses around them of which it is known whether they hold the columns of a query.
const DEPTH_MAX: usize = 64;

/// The calls of `function` without arguments, in the order of the text; a name that begins with `@@` is a
/// system variable. Empty also where the text cannot be read to its end, or has too many of them.
#[must_use]
pub fn calls(sql: &[u8], syntax: Syntax, function: &str) -> Vec<Call> {
    let mut search = Search {
        window: Window::new(sql, syntax),
        found: Vec::new(),
        columns: [false; DEPTH_MAX],
        depth: 0,
        is_in_first: true,
        counts_rows: false,
        rows_were_counted: false,
        verb: Keyword::None,
    };
    let variable = function.strip_prefix("@@");
    while search.window.current().kind != Kind::End && search.found.len() <= CALLS_MAX {
        match variable {
            Some(name) => search.variable(name.as_bytes()),
            None => search.call(function.as_bytes()),
        }
        search.step();
    }
    if search.window.tokens.doubtful || search.found.len() > CALLS_MAX {
        search.found.clear();
    }
    search.found
}

/// The token before the current one, the current one, and those after it.
struct Window<'a> {
    tokens: Tokenizer<'a>,
    seen: [Token; 5],
}

impl<'a> Window<'a> {
    fn new(sql: &'a [u8], syntax: Syntax) -> Self {
        let mut tokens = Tokenizer::new(sql, syntax);
        let before = Token {
            kind: Kind::Semicolon,
            keyword: Keyword::None,
            start: 0,
            end: 0,
        };
        let seen = [before, tokens.next(), tokens.next(), tokens.next(), tokens.next()];
        Self { tokens, seen }
    }

    fn current(&self) -> Token {
        self.seen[1]
    }

    fn advance(&mut self) {
        self.seen.rotate_left(1);
        self.seen[4] = self.tokens.next();
    }
}

struct Search<'a> {
    window: Window<'a>,
    found: Vec<Call>,
    /// At each depth: between `SELECT` and what ends its columns.
    columns: [bool; DEPTH_MAX],
    depth: usize,
    is_in_first: bool,
    /// The statement at hand may count rows.
    counts_rows: bool,
    /// One before it may have.
    rows_were_counted: bool,
    /// What the statement at hand begins with; an UPDATE only up to its `SET`.
    verb: Keyword,
}

impl Search<'_> {
    fn call(&mut self, function: &[u8]) {
        let [before, name, open, close, after] = self.window.seen;
        let is_call = matches!(name.kind, Kind::Word | Kind::Quoted)
            && open.kind == Kind::Open
            && close.kind == Kind::Close
            && before.kind != Kind::Dot
            && unquoted(self.window.tokens.text(name)).eq_ignore_ascii_case(function);
        if is_call {
            self.push(name.start..close.end, self.is_column(before, after));
        }
    }

    fn variable(&mut self, variable: &[u8]) {
        let [before, first, dot, second, _] = self.window.seen;
        if first.kind != Kind::System || self.is_assigned(before) {
            return;
        }
        let name = unquoted(&self.window.tokens.text(first)[2..]);
        if dot.kind != Kind::Dot {
            if name.eq_ignore_ascii_case(variable) {
                self.push(first.start..first.end, self.is_column(before, dot));
            }
        } else if Scope::of(name) == Some(Scope::Session)
            && unquoted(self.window.tokens.text(second)).eq_ignore_ascii_case(variable)
        {
            self.push(
                first.start..second.end,
                self.is_column(before, self.window.seen[4]),
            );
        }
    }

    /// Whether a variable behind this token is one that a `SET` assigns to, and is not read.
    fn is_assigned(&self, before: Token) -> bool {
        let is_first = before.kind == Kind::Comma || before.keyword == Keyword::Set;
        self.verb == Keyword::Set && self.depth == 0 && is_first
    }

    /// Whether the statement at hand may count rows, as far as this token tells (tested on both servers).
    fn may_count(&mut self, token: Token) -> bool {
        use Keyword::{
            Begin, Commit, Delete, Do, Ignore, Insert, LowPriority, Quick, Replace, Rollback, Savepoint,
        };
        let is_mariadb = self.window.tokens.syntax().dialect.is_mariadb();
        let word = token.keyword;
        if self.window.seen[0].kind == Kind::Semicolon {
            self.verb = word;
            return match word {
                Begin | Commit | Insert | Replace | Rollback | Savepoint => false,
                Keyword::Set | Keyword::Start | Keyword::Use => false,
                Delete => !matches!(
                    self.window.seen[2].keyword,
                    Keyword::From | LowPriority | Quick | Ignore
                ),
                Do | Keyword::Update => !is_mariadb,
                _ => token.kind != Kind::Semicolon,
            };
        }
        match (self.verb, word) {
            (Keyword::Update, Keyword::Set) => {
                self.verb = Keyword::None;
                false
            }
            (Keyword::Update, _) if token.kind == Kind::Comma => true,
            (Keyword::Set, Keyword::Select) => is_mariadb,
            (Insert, Keyword::Table) => true,
            _ => matches!(
                word,
                Keyword::Select | Keyword::Join | Keyword::Using | Keyword::Returning | Keyword::Call
            ),
        }
    }

    fn push(&mut self, range: Range<usize>, is_bare_item: bool) {
        self.found.push(Call {
            range,
            is_bare_item,
            is_in_first: self.is_in_first,
            rows_were_counted: self.rows_were_counted,
        });
    }

    fn is_column(&self, before: Token, after: Token) -> bool {
        let begins = match before.kind {
            Kind::Comma => true,
            Kind::Word => matches!(
                before.keyword,
                Keyword::Select
                    | Keyword::Distinct
                    | Keyword::All
                    | Keyword::SqlCalcFoundRows
                    | Keyword::Returning
            ),
            _ => false,
        };
        let ends = match after.kind {
            Kind::Comma | Kind::Close | Kind::Semicolon | Kind::End => true,
            _ => ends_columns(after.keyword),
        };
        begins && ends && self.columns.get(self.depth).is_some_and(|columns| *columns)
    }

    fn step(&mut self) {
        let token = self.window.current();
        self.counts_rows |= self.may_count(token);
        match token.kind {
            Kind::Open => {
                self.depth += 1;
                self.set_columns(false);
            }
            Kind::Close => self.depth = self.depth.saturating_sub(1),
            Kind::Semicolon => {
                (self.depth, self.is_in_first) = (0, false);
                self.rows_were_counted |= std::mem::take(&mut self.counts_rows);
                self.verb = Keyword::None;
                self.set_columns(false);
            }
            _ if matches!(token.keyword, Keyword::Select | Keyword::Returning) => self.set_columns(true),
            _ if ends_columns(token.keyword) => self.set_columns(false),
            _ => {}
        }
        self.window.advance();
    }

    fn set_columns(&mut self, columns: bool) {
        if let Some(here) = self.columns.get_mut(self.depth) {
            *here = columns;
        }
    }
}

/// Whether what this word begins comes after the columns of a query.
fn ends_columns(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::From
            | Keyword::Where
            | Keyword::Into
            | Keyword::Union
            | Keyword::Except
            | Keyword::Intersect
            | Keyword::Order
            | Keyword::Limit
            | Keyword::Having
            | Keyword::Group
            | Keyword::For
            | Keyword::Window
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    fn found(sql: &str, function: &str) -> Vec<(String, bool)> {
        let calls = calls(sql.as_bytes(), Syntax::default(), function);
        calls
            .into_iter()
            .map(|call| (sql[call.range].to_owned(), call.is_bare_item))
            .collect()
    }

    fn one(text: &str, is_bare_item: bool) -> Vec<(String, bool)> {
        vec![(text.to_owned(), is_bare_item)]
    }

    #[test]
    fn columns_are_told_from_parts_of_expressions() {
        assert_eq!(
            found("SELECT connection_id()", "CONNECTION_ID"),
            one("connection_id()", true)
        );
        assert_eq!(
            found("SELECT 1, CONNECTION_ID ( ) FROM t", "CONNECTION_ID"),
            one("CONNECTION_ID ( )", true)
        );
        assert_eq!(
            found("SELECT CONNECTION_ID() AS id", "CONNECTION_ID"),
            one("CONNECTION_ID()", false)
        );
        assert_eq!(
            found("SELECT CONNECTION_ID() id", "CONNECTION_ID"),
            one("CONNECTION_ID()", false)
        );
        assert_eq!(
            found("SELECT CONNECTION_ID() + 1", "CONNECTION_ID"),
            one("CONNECTION_ID()", false)
        );
        assert_eq!(
            found("SELECT f(1, CONNECTION_ID())", "CONNECTION_ID"),
            one("CONNECTION_ID()", false)
        );
        assert_eq!(
            found("KILL CONNECTION_ID()", "CONNECTION_ID"),
            one("CONNECTION_ID()", false)
        );
        assert_eq!(
            found("INSERT INTO t VALUES (1, CONNECTION_ID())", "CONNECTION_ID"),
            one("CONNECTION_ID()", false)
        );
        assert_eq!(
            found("SELECT 1 FROM t WHERE a IN (1, CONNECTION_ID())", "CONNECTION_ID"),
            one("CONNECTION_ID()", false)
        );
        assert_eq!(
            found("SELECT 1 ORDER BY 1, LAST_INSERT_ID()", "LAST_INSERT_ID"),
            one("LAST_INSERT_ID()", false)
        );
        assert_eq!(
            found("SELECT LAST_INSERT_ID(); SELECT 2", "LAST_INSERT_ID"),
            one("LAST_INSERT_ID()", true)
        );
    }

    #[test]
    fn other_functions_and_texts_are_not_calls() {
        for sql in [
            "SELECT LAST_INSERT_ID(1)",
            "SELECT db.LAST_INSERT_ID()",
            "SELECT 'LAST_INSERT_ID()'",
            "SELECT last_insert_id FROM t",
            "SELECT LAST_INSERT_ID() /* cut",
        ] {
            assert_eq!(found(sql, "LAST_INSERT_ID"), [], "{sql}");
        }
    }

    #[test]
    fn the_first_statement_ends_with_a_semicolon() {
        let sql = b"SELECT ';', ROW_COUNT() /*;*/; SELECT ROW_COUNT()";
        let calls = calls(sql, Syntax::default(), "ROW_COUNT");
        let first: Vec<_> = calls.iter().map(|call| call.is_in_first).collect();
        assert_eq!(first, [true, false]);
    }

    #[test]
    fn rows_are_counted_by_what_may_be_a_query() {
        let maria = Dialect::MariaDb { version: 101_119 };
        let on = |sql: &str, dialect| {
            let (sql, syntax) = (format!("{sql}; SELECT FOUND_ROWS()"), Syntax::default());
            let calls = calls(sql.as_bytes(), Syntax { dialect, ..syntax }, "FOUND_ROWS");
            calls.last().unwrap().rows_were_counted
        };
        let [mysql, maria] =
            [Syntax::default().dialect, maria].map(|dialect| move |sql: &str| on(sql, dialect));
        let after = |sql: &str| {
            assert_eq!(mysql(sql), maria(sql), "{sql}");
            maria(sql)
        };
        assert!(mysql("UPDATE t SET a = 1") && !maria("UPDATE t SET a = 1, b = 2"));
        assert!(mysql("DO 1") && !maria("DO 1"));
        assert!(!mysql("SET @x = (SELECT 1)") && maria("SET @x = (SELECT 1)"));
        for sql in [
            "",
            "SET @x = 1",
            "SET @x = 1; ; INSERT INTO t VALUES (1); BEGIN",
            "use a; delete from t; commit",
            "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 2, b = 3",
        ] {
            assert!(!after(sql), "{sql}");
        }
        for sql in [
            "SELECT 1",
            "SELECT 1; SET @x = 1",
            "INSERT INTO t TABLE u",
            "UPDATE t, u SET a = 1",
            "DELETE a FROM a, b",
            "DELETE FROM a USING a, b",
            "CALL p()",
            "SHOW TABLES",
            "VALUES (1)",
            "(SELECT 1)",
            "EXECUTE s",
        ] {
            assert!(after(sql), "{sql}");
        }
    }

    #[test]
    fn system_variables() {
        assert_eq!(
            found("SELECT @@last_insert_id", "@@last_insert_id"),
            one("@@last_insert_id", true)
        );
        assert_eq!(
            found("SELECT @@session.identity, 1", "@@identity"),
            one("@@session.identity", true)
        );
        assert_eq!(
            found("SELECT @@`identity` x", "@@identity"),
            one("@@`identity`", false)
        );
        assert_eq!(found("SELECT @@global.identity", "@@identity"), []);
        let set = "SET @@identity = 1, @@session.identity := 2";
        assert_eq!(found(set, "@@identity"), [], "they are not read");
        let read = "SET @@identity = @@session.identity + (SELECT MAX(a), @@identity FROM t)";
        assert_eq!(found(read, "@@identity").len(), 2);
    }

    #[test]
    fn every_place_up_to_a_limit() {
        let many = |count: usize| format!("SELECT 1{}", ", ROW_COUNT()".repeat(count));
        assert_eq!(found(&many(64), "ROW_COUNT").len(), 64);
        assert_eq!(found(&many(65), "ROW_COUNT"), []);
        let deep = format!("SELECT {}ROW_COUNT(){}", "(".repeat(500), ")".repeat(500));
        assert_eq!(found(&deep, "ROW_COUNT"), one("ROW_COUNT()", false));
        let maria = Syntax {
            dialect: Dialect::MariaDb { version: 101_119 },
            ..Syntax::default()
        };
        assert_eq!(calls(b"SELECT ROW_COUNT() -- x", maria, "row_count").len(), 1);
    }
}
