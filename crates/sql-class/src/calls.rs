//! Where a text calls functions without arguments whose answer the gateway knows better than the server it
//! asks: `CONNECTION_ID()`, `LAST_INSERT_ID()`, `@@pseudo_thread_id`.

use std::ops::Range;

use crate::keyword::Keyword;
use crate::reader::unquoted;
use crate::syntax::Syntax;
use crate::token::{Kind, Token, Tokenizer};
use crate::variables::Scope;
use crate::words::is_one_of;

/// One place where a literal can stand instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub range: Range<usize>,
    /// The items of select lists that the call stands in, from inside to outside, by whose text a column is
    /// named: with a literal in it such an item needs `AS`. An item that may have an alias, or whose end is
    /// not certain, is not among them.
    pub items: Vec<Range<usize>>,
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
/// Servers cut longer names of columns: MySQL at 256 bytes, MariaDB at 255 (tested with 10.11).
const NAME_MAX: usize = 255;

/// Words that may stand between `SELECT` and the first item.
const SELECT_OPTIONS: &[&str] = &[
    "ALL",
    "DISTINCT",
    "DISTINCTROW",
    "HIGH_PRIORITY",
    "SQL_BIG_RESULT",
    "SQL_BUFFER_RESULT",
    "SQL_CACHE",
    "SQL_CALC_FOUND_ROWS",
    "SQL_NO_CACHE",
    "SQL_SMALL_RESULT",
    "STRAIGHT_JOIN",
];
/// Words between operands, or before one. Both servers reserve them: none is an alias, nor begins a clause.
const OPERATORS: &[&str] = &[
    "AND", "BETWEEN", "BINARY", "CASE", "COLLATE", "DIV", "ELSE", "IN", "IS", "LIKE", "MOD", "NOT", "OR",
    "REGEXP", "RLIKE", "THEN", "WHEN", "XOR",
];

/// The calls of `function` without arguments, in the order of the text; a name that begins with `@@` is a
/// system variable. Empty also where the text cannot be read to its end, or has too many of them.
#[must_use]
pub fn calls(sql: &[u8], syntax: Syntax, function: &str) -> Vec<Call> {
    let mut search = Search {
        sql,
        window: Window::new(sql, syntax),
        found: Vec::new(),
        items: [None; DEPTH_MAX],
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
    search.end_item(None);
    if search.window.tokens.doubtful || search.found.len() > CALLS_MAX {
        search.found.clear();
    }
    search.found
}

/// The token before the current one, the current one, and those after it.
struct Window<'a> {
    tokens: Tokenizer<'a>,
    seen: [Token; 4],
}

impl<'a> Window<'a> {
    fn new(sql: &'a [u8], syntax: Syntax) -> Self {
        let mut tokens = Tokenizer::new(sql, syntax);
        let seen = [Token::BEFORE, tokens.next(), tokens.next(), tokens.next()];
        Self { tokens, seen }
    }

    fn current(&self) -> Token {
        self.seen[1]
    }

    fn advance(&mut self) {
        self.seen.rotate_left(1);
        self.seen[3] = self.tokens.next();
    }
}

/// An item of a select list, as far as it was read.
#[derive(Clone, Copy, Default)]
struct Item {
    start: usize,
    /// 0 before its first token.
    end: usize,
    /// Counts the calls that were found before it.
    calls_before: usize,
    /// Counts the `CASE` that have no `END` yet.
    cases: usize,
    /// The last token ends an operand.
    ends_operand: bool,
    /// Two operands stand side by side: the second one may be an alias, or begin a clause.
    is_unclear: bool,
}

impl Item {
    fn add(&mut self, token: Token, text: &[u8]) {
        if self.end == 0 {
            if is_one_of(text, SELECT_OPTIONS) {
                return;
            }
            self.start = token.start;
        }
        self.end = token.end;
        match token.kind {
            Kind::Close => self.ends_operand = true,
            Kind::Open | Kind::Dot | Kind::Operator => self.ends_operand = false,
            Kind::Word if token.keyword == Keyword::End && self.cases > 0 => {
                self.cases -= 1;
                self.ends_operand = true;
            }
            Kind::Word if is_one_of(text, OPERATORS) => {
                self.cases += usize::from(token.keyword == Keyword::Case);
                self.ends_operand = false;
            }
            _ => {
                self.is_unclear |= self.ends_operand;
                self.ends_operand = true;
            }
        }
    }

    /// The place of the text that names the item's column. `None` where that is not certain.
    fn as_name(&self, sql: &[u8]) -> Option<Range<usize>> {
        let text = &sql[self.start..self.end];
        // Servers leave out some comments, and of others the marks. What is not ASCII may be no name.
        let is_comment = |pair: &[u8]| matches!(pair, b"/*" | b"*/");
        let is_plain = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        let is_name = text.len() <= NAME_MAX && text.iter().all(is_plain) && !text.windows(2).any(is_comment);
        (is_name && self.ends_operand && !self.is_unclear).then_some(self.start..self.end)
    }
}

struct Search<'a> {
    sql: &'a [u8],
    window: Window<'a>,
    found: Vec<Call>,
    /// At each depth: the item at hand, between `SELECT` and what ends its columns.
    items: [Option<Item>; DEPTH_MAX],
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
        let [before, name, open, close] = self.window.seen;
        let is_call = matches!(name.kind, Kind::Word | Kind::Quoted)
            && open.kind == Kind::Open
            && close.kind == Kind::Close
            && before.kind != Kind::Dot
            && unquoted(self.window.tokens.text(name)).eq_ignore_ascii_case(function);
        if is_call {
            self.push(name.start..close.end);
        }
    }

    fn variable(&mut self, variable: &[u8]) {
        let [before, first, dot, second] = self.window.seen;
        if first.kind != Kind::System || self.is_assigned(before) {
            return;
        }
        let name = unquoted(&self.window.tokens.text(first)[2..]);
        if dot.kind != Kind::Dot {
            if name.eq_ignore_ascii_case(variable) {
                self.push(first.start..first.end);
            }
        } else if Scope::of(name) == Some(Scope::Session)
            && unquoted(self.window.tokens.text(second)).eq_ignore_ascii_case(variable)
        {
            self.push(first.start..second.end);
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

    fn push(&mut self, range: Range<usize>) {
        self.found.push(Call {
            range,
            items: Vec::new(),
            is_in_first: self.is_in_first,
            rows_were_counted: self.rows_were_counted,
        });
    }

    fn step(&mut self) {
        let mut token = self.window.current();
        self.counts_rows |= self.may_count(token);
        if token.kind == Kind::Word && self.window.seen[0].kind == Kind::Dot {
            // Servers take any word behind a dot for a name, also where a quote is before the dot.
            (token.kind, token.keyword) = (Kind::Name, Keyword::None);
        }
        match token.kind {
            Kind::Open => {
                self.add(token);
                self.depth += 1;
            }
            Kind::Close => {
                self.end_item(None);
                self.depth = self.depth.saturating_sub(1);
                self.add(token);
            }
            Kind::Comma => {
                let is_in_list = matches!(self.items.get(self.depth), Some(Some(_)));
                let next = is_in_list.then(|| self.next_item());
                self.end_item(next);
            }
            Kind::Semicolon => {
                self.end_item(None);
                self.items = [None; DEPTH_MAX];
                (self.depth, self.is_in_first) = (0, false);
                self.rows_were_counted |= std::mem::take(&mut self.counts_rows);
                self.verb = Keyword::None;
            }
            _ if self.begins_columns(token.keyword) => self.end_item(Some(self.next_item())),
            _ if ends_columns(token.keyword) => self.end_item(None),
            _ => self.add(token),
        }
        self.window.advance();
    }

    /// Whether the columns of a result come behind this word. MySQL does not reserve RETURNING: an alias may
    /// have that name.
    fn begins_columns(&self, keyword: Keyword) -> bool {
        let is_mariadb = self.window.tokens.syntax().dialect.is_mariadb();
        keyword == Keyword::Select || is_mariadb && keyword == Keyword::Returning
    }

    fn next_item(&self) -> Item {
        Item {
            calls_before: self.found.len(),
            ..Item::default()
        }
    }

    fn add(&mut self, token: Token) {
        let text = self.window.tokens.text(token);
        if let Some(Some(item)) = self.items.get_mut(self.depth) {
            item.add(token, text);
        }
    }

    /// The item at hand has ended. `None`: so has its list.
    fn end_item(&mut self, next: Option<Item>) {
        let Some(here) = self.items.get_mut(self.depth) else {
            return;
        };
        let Some(item) = std::mem::replace(here, next) else {
            return;
        };
        if let Some(name) = item.as_name(self.sql) {
            for call in &mut self.found[item.calls_before..] {
                call.items.push(name.clone());
            }
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
            | Keyword::On
            | Keyword::Having
            | Keyword::Group
            | Keyword::For
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    /// The calls, and whether each of them is all of an item.
    fn found(sql: &str, function: &str) -> Vec<(String, bool)> {
        let calls = calls(sql.as_bytes(), Syntax::default(), function);
        calls
            .into_iter()
            .map(|call| {
                let is_all = call.items.contains(&call.range);
                (sql[call.range].to_owned(), is_all)
            })
            .collect()
    }

    fn one(text: &str, is_all: bool) -> Vec<(String, bool)> {
        vec![(text.to_owned(), is_all)]
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

    /// The items that the first call stands in.
    fn items(sql: &str) -> Vec<&str> {
        items_on(Dialect::default(), sql)
    }

    fn items_on(dialect: Dialect, sql: &str) -> Vec<&str> {
        let syntax = Syntax {
            dialect,
            ..Syntax::default()
        };
        let calls = calls(sql.as_bytes(), syntax, "ROW_COUNT");
        let items = calls.into_iter().next().unwrap().items;
        items.into_iter().map(|item| &sql[item]).collect()
    }

    #[test]
    fn an_item_is_named_as_it_is_written() {
        for item in [
            "@a - ROW_COUNT()",
            "-ROW_COUNT()",
            "(ROW_COUNT ( ))",
            "@x:=ROW_COUNT()",
            "t.a + ROW_COUNT() * b",
            "ROW_COUNT()\n  + 'it''s, \"x\" `y`'",
            "IF(ROW_COUNT() > 0, 'a', (1 + 2))",
            "ROW_COUNT() NOT IN (1, 2) OR NOT a IS NULL",
            "ROW_COUNT() DIV 2 BETWEEN ? AND @@session.identity",
            "CASE ROW_COUNT() WHEN 1 THEN CASE WHEN a THEN b END ELSE 'd' END",
            "1 + -- x\n ROW_COUNT()",
            "EXTRACT(YEAR FROM ROW_COUNT())",
            "ROW_COUNT() + `t`.mod",
            "`t`.order + ROW_COUNT()",
        ] {
            for sql in [
                format!("SELECT {item}"),
                format!("SELECT DISTINCT sql_no_cache {item} -- end"),
                format!("/* c */ SELECT /* c */ a x, {item} /* c */, 2 AS y FROM t"),
                format!("SELECT {item} UNION ALL SELECT 2"),
                format!("SELECT * FROM (SELECT {item}) d"),
                format!("CREATE TABLE t AS SELECT {item}; SELECT 1"),
                format!("SELECT {item} INTO @x"),
                format!("INSERT INTO t SELECT 1, {item} ON DUPLICATE KEY UPDATE a = 1, b = 2 + (3)"),
            ] {
                assert_eq!(items(&sql), [item], "{sql}");
            }
            let mariadb = Dialect::MariaDb { version: 101_119 };
            let sql = format!("DELETE FROM t RETURNING 1, {item}");
            assert_eq!(items_on(mariadb, &sql), [item], "{sql}");
        }
    }

    #[test]
    fn an_item_that_may_have_an_alias_or_no_end_is_left_alone() {
        for sql in [
            "SELECT ROW_COUNT() + 1 x",
            "SELECT ROW_COUNT() + 1 AS x",
            "SELECT ROW_COUNT() + 1 `x`",
            "SELECT ROW_COUNT() + a 'x'",
            "SELECT ROW_COUNT() + 1 END",
            "SELECT ROW_COUNT() + 1 window",
            "SELECT ROW_COUNT() + 1 returning",
            "SELECT ROW_COUNT() + `t`.mod x",
            "SELECT CASE ROW_COUNT() WHEN 1 THEN 2 END END",
            "SELECT ROW_COUNT() IS NULL x",
            "SELECT ROW_COUNT() + 1 LOCK IN SHARE MODE",
            "SELECT ROW_COUNT() + 1 PROCEDURE ANALYSE()",
            "SELECT ROW_COUNT() + INTERVAL 1 DAY",
            "SELECT /*!50000 1 + */ ROW_COUNT()",
            "SELECT ROW_COUNT() + /*!50000 1 */",
            "SELECT 1 + /* c */ ROW_COUNT()",
            "SELECT CONCAT('\u{e9}', ROW_COUNT())",
            "SELECT ROW_COUNT() +",
            "DO ROW_COUNT() + 1",
            "SET @x = 1, @y = ROW_COUNT() + 1",
            "INSERT INTO t VALUES (1, ROW_COUNT() + 1)",
            "INSERT INTO t SELECT 1 ON DUPLICATE KEY UPDATE a = 1, b = ROW_COUNT() + 1",
            "SELECT 1 FROM t WHERE a IN (1, ROW_COUNT() + 1)",
            "SELECT 1 FROM t GROUP BY 1, ROW_COUNT() + 1",
        ] {
            assert!(items(sql).is_empty(), "{sql}");
        }
        let long = |len: usize| format!("SELECT ROW_COUNT() + {}", "1".repeat(len));
        assert_eq!(items(&long(255 - 14)).len(), 1);
        assert!(items(&long(256 - 14)).is_empty());
    }

    #[test]
    fn items_of_subqueries_and_those_around_them() {
        for (sql, expected) in [
            (
                "SELECT (SELECT 1 + ROW_COUNT()), 2",
                &["1 + ROW_COUNT()", "(SELECT 1 + ROW_COUNT())"][..],
            ),
            ("SELECT (SELECT ROW_COUNT()) AS x", &["ROW_COUNT()"]),
            (
                "SELECT (SELECT ROW_COUNT() x) + 1",
                &["(SELECT ROW_COUNT() x) + 1"],
            ),
            (
                "WITH w AS (SELECT -ROW_COUNT()) SELECT * FROM w",
                &["-ROW_COUNT()"],
            ),
            ("(SELECT -ROW_COUNT() LIMIT 1) UNION SELECT 2", &["-ROW_COUNT()"]),
        ] {
            assert_eq!(items(sql), expected, "{sql}");
        }
        let sql = b"SELECT ROW_COUNT() + ROW_COUNT(), ROW_COUNT()";
        let calls = calls(sql, Syntax::default(), "ROW_COUNT").into_iter();
        let items: Vec<_> = calls.flat_map(|call| call.items).collect();
        assert_eq!(items, [7..32, 7..32, 34..45]);
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
