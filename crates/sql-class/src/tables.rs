//! The tables that a text names.
//!
//! Those that can be named by their place: after `FROM`, `JOIN`, `INTO`, `UPDATE`, `TABLE` and in the lists
//! that follow. For rules that match on tables, not for safety: views, triggers and routines use tables that
//! no text shows.

use std::fmt;

use crate::keyword::Keyword;
use crate::reader::unquoted;
use crate::syntax::Syntax;
use crate::token::{Kind, Token, Tokenizer};

/// A table as it is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    pub schema: Option<String>,
    pub name: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(out, "{schema}.{}", self.name),
            None => out.write_str(&self.name),
        }
    }
}

const TABLES_MAX: usize = 64;
/// Most parentheses in which tables are looked for.
const DEPTH_MAX: usize = 64;

/// The tables of a text, each once, in the order in which they are named first.
#[must_use]
pub fn tables(sql: &[u8], syntax: Syntax) -> Vec<TableName> {
    let mut tokens = Tokenizer::new(sql, syntax);
    let next = tokens.next();
    let mut search = Search::new(tokens, next);
    while search.next.kind != Kind::End && search.found.len() < TABLES_MAX {
        search.step();
    }
    let names = search.with_names;
    search
        .found
        .retain(|table| table.schema.is_some() || !names.contains(&table.name));
    search.found
}

/// What is known of one pair of parentheses.
#[derive(Clone, Copy, Default)]
struct Level {
    /// There is a verb in it, so that `FROM` begins tables: in `TRIM('x' FROM y)` it does not.
    verb: bool,
    /// A comma here leads to one more table.
    list: bool,
}

struct Search<'a> {
    tokens: Tokenizer<'a>,
    next: Token,
    previous: Token,
    /// Of the statement.
    verb: Keyword,
    levels: [Level; DEPTH_MAX],
    depth: usize,
    /// The next name is a table's.
    expects: bool,
    found: Vec<TableName>,
    /// What `WITH` has defined.
    with_names: Vec<String>,
}

impl<'a> Search<'a> {
    fn new(tokens: Tokenizer<'a>, next: Token) -> Self {
        let levels = [Level::default(); DEPTH_MAX];
        let (found, with_names) = (Vec::new(), Vec::new());
        Self {
            tokens,
            next,
            previous: Token::BEFORE,
            verb: Keyword::None,
            levels,
            depth: 0,
            expects: false,
            found,
            with_names,
        }
    }

    fn advance(&mut self) -> Token {
        self.previous = self.next;
        self.next = self.tokens.next();
        self.previous
    }

    fn step(&mut self) {
        let before = self.previous;
        let token = self.advance();
        match token.kind {
            Kind::Semicolon => {
                (self.verb, self.depth, self.expects) = (Keyword::None, 0, false);
                self.set_level(Level::default());
            }
            Kind::Open => {
                // Of joined tables, unless a verb comes: `FROM (a, b)`.
                let level = Level {
                    verb: self.expects,
                    list: self.expects,
                };
                self.depth += 1;
                self.set_level(level);
            }
            Kind::Close => {
                self.depth = self.depth.saturating_sub(1);
                self.expects = false;
            }
            Kind::Comma => self.expects = self.level().list,
            Kind::Word if token.keyword != Keyword::None => self.keyword(token, before),
            Kind::Word | Kind::Name | Kind::Quoted if self.expects => self.table(token),
            Kind::Word | Kind::Quoted if self.next.keyword == Keyword::As || self.next.kind == Kind::Open => {
                self.with_name(token, before);
            }
            _ => {}
        }
    }

    fn level(&self) -> Level {
        self.levels.get(self.depth).copied().unwrap_or_default()
    }

    fn set_level(&mut self, level: Level) {
        if let Some(here) = self.levels.get_mut(self.depth) {
            *here = level;
        }
    }

    fn keyword(&mut self, token: Token, before: Token) {
        let is_first = self.verb == Keyword::None && self.depth == 0;
        if is_first {
            self.verb = token.keyword;
        }
        match token.keyword {
            Keyword::Select | Keyword::Delete => {
                self.expects = false;
                self.set_level(Level {
                    verb: true,
                    list: false,
                });
            }
            Keyword::Update if is_first || before.kind == Kind::Close || self.verb == Keyword::Explain => {
                self.begin_list()
            }
            Keyword::From if self.verb == Keyword::Show => self.expects = self.shows_table(before),
            Keyword::From if self.level().verb => self.begin_list(),
            Keyword::Join | Keyword::StraightJoin if self.level().verb || self.level().list => {
                self.expects = true
            }
            Keyword::Table if matches!(self.verb, Keyword::Create | Keyword::Alter) => self.expects = true,
            Keyword::Table | Keyword::Tables if self.verb != Keyword::Show => self.begin_list(),
            Keyword::Table if before.keyword == Keyword::Create => self.expects = true,
            Keyword::Insert | Keyword::Replace | Keyword::Into => self.expects = self.next.kind != Kind::Open,
            Keyword::Truncate | Keyword::Handler if is_first => self.expects = true,
            Keyword::Describe | Keyword::Desc | Keyword::Explain if is_first => {
                self.expects = self.next.keyword == Keyword::None;
            }
            Keyword::View if matches!(self.verb, Keyword::Create | Keyword::Alter | Keyword::Drop) => {
                self.expects = true
            }
            Keyword::To if self.verb == Keyword::Rename => self.expects = true,
            Keyword::On if matches!(self.verb, Keyword::Create | Keyword::Drop) && !self.level().verb => {
                self.expects = self.next.keyword == Keyword::None;
            }
            Keyword::Using if self.verb == Keyword::Delete && self.next.kind != Kind::Open => {
                self.begin_list()
            }
            Keyword::Outfile | Keyword::Dumpfile | Keyword::Dual => self.expects = false,
            Keyword::JsonTable => self.expects = false,
            word if ends_list(word) => {
                self.expects = false;
                let verb = self.level().verb;
                self.set_level(Level { verb, list: false });
            }
            // Between the verb and the table: `INSERT IGNORE`, `TABLE IF NOT EXISTS`. Elsewhere a table has
            // the name.
            word if self.expects && !comes_before_tables(word) => self.table(token),
            _ => {}
        }
    }

    fn begin_list(&mut self) {
        self.expects = true;
        self.set_level(Level {
            verb: true,
            list: true,
        });
    }

    /// `SHOW COLUMNS FROM t FROM schema`.
    fn shows_table(&self, before: Token) -> bool {
        matches!(
            before.keyword,
            Keyword::Columns | Keyword::Fields | Keyword::Index | Keyword::Indexes | Keyword::Keys
        )
    }

    fn table(&mut self, token: Token) {
        self.expects = false;
        let first = self.name(token);
        let table = if self.next.kind == Kind::Dot {
            self.advance();
            let second = self.advance();
            if !matches!(second.kind, Kind::Word | Kind::Name | Kind::Quoted) {
                return; // DELETE FROM t.*
            }
            TableName {
                schema: Some(first),
                name: self.name(second),
            }
        } else {
            TableName {
                schema: None,
                name: first,
            }
        };
        // A parenthesis after a name in a list of tables: a function that gives rows.
        let is_function = self.next.kind == Kind::Open && self.level().list && self.verb == Keyword::Select;
        if !is_function && !self.found.contains(&table) {
            self.found.push(table);
        }
    }

    fn with_name(&mut self, token: Token, before: Token) {
        let after_comma = before.kind == Kind::Comma && !self.level().verb;
        if matches!(before.keyword, Keyword::With | Keyword::Recursive) || after_comma {
            let name = self.name(token);
            if self.with_names.len() < TABLES_MAX {
                self.with_names.push(name);
            }
        }
    }

    fn name(&self, token: Token) -> String {
        let text = self.tokens.text(token);
        let name = String::from_utf8_lossy(unquoted(text));
        match text {
            [quote @ (b'`' | b'"'), ..] => {
                let quote = char::from(*quote).to_string();
                name.replace(&quote.repeat(2), &quote)
            }
            _ => name.into_owned(),
        }
    }
}

fn ends_list(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::Where
            | Keyword::Set
            | Keyword::Group
            | Keyword::Order
            | Keyword::Limit
            | Keyword::Having
            | Keyword::Union
            | Keyword::Except
            | Keyword::Intersect
            | Keyword::Values
            | Keyword::Window
            | Keyword::For
    )
}

fn comes_before_tables(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::Ignore
            | Keyword::LowPriority
            | Keyword::HighPriority
            | Keyword::Delayed
            | Keyword::Quick
            | Keyword::If
            | Keyword::Not
            | Keyword::Exists
            | Keyword::Only
            | Keyword::Lateral
            | Keyword::Table
            | Keyword::Left
            | Keyword::Right
            | Keyword::Inner
            | Keyword::Natural
            | Keyword::Cross
            | Keyword::Outer
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(sql: &str) -> String {
        let tables: Vec<String> = tables(sql.as_bytes(), Syntax::default())
            .iter()
            .map(ToString::to_string)
            .collect();
        tables.join(" ")
    }

    #[test]
    fn of_reads() {
        assert_eq!(named("SELECT c FROM sbtest1 WHERE id=1"), "sbtest1");
        assert_eq!(
            named("SELECT * FROM a, b.c x, `d``e` WHERE y IN (1, z)"),
            "a b.c d`e"
        );
        assert_eq!(
            named("SELECT * FROM a JOIN b USING (id) LEFT JOIN c ON f(a.x, 1) = c.y, d GROUP BY e, f"),
            "a b c d"
        );
        assert_eq!(
            named("SELECT (SELECT 1 FROM u LIMIT 1), x FROM (a, b) JOIN (SELECT q, r FROM s) t"),
            "u a b s"
        );
        assert_eq!(named("SELECT TRIM('x' FROM y), EXTRACT(DAY FROM z) FROM t"), "t");
        assert_eq!(
            named("WITH c (i) AS (SELECT 1 FROM r), d AS (SELECT 2) SELECT * FROM c, d, t, s.c"),
            "r t s.c"
        );
        assert_eq!(named("SELECT 1 FROM DUAL"), "");
        assert_eq!(named("SELECT 1 FROM t FOR UPDATE OF t"), "t");
        assert_eq!(named("TABLE t"), "t");
        assert_eq!(named("(SELECT 1 FROM a) UNION (SELECT 2 FROM b)"), "a b");
        assert_eq!(named("SELECT 1 FROM t INTO @x"), "t");
        assert_eq!(named("SELECT 1 FROM status"), "status");
    }

    #[test]
    fn of_changes() {
        assert_eq!(named("INSERT IGNORE INTO t (a, b) VALUES (1, 2), (3, 4)"), "t");
        assert_eq!(
            named("INSERT t VALUES (1) ON DUPLICATE KEY UPDATE a = 1, b = 2"),
            "t"
        );
        assert_eq!(named("INSERT INTO t SELECT a, b FROM u"), "t u");
        assert_eq!(named("REPLACE LOW_PRIORITY s.t SET a = 1"), "s.t");
        assert_eq!(named("UPDATE a, b SET a.x = b.y, a.z = 1"), "a b");
        assert_eq!(named("DELETE FROM t WHERE a = (SELECT MAX(x) FROM u)"), "t u");
        assert_eq!(named("DELETE a FROM t AS a JOIN u"), "t u");
        assert_eq!(named("DELETE FROM t USING t JOIN u"), "t u");
        assert_eq!(named("LOAD DATA LOCAL INFILE 'x' INTO TABLE t (a, b)"), "t");
    }

    #[test]
    fn of_definitions() {
        assert_eq!(named("CREATE TABLE IF NOT EXISTS t (a INT, b INT)"), "t");
        assert_eq!(named("DROP TABLE IF EXISTS a, b.c"), "a b.c");
        assert_eq!(named("ALTER TABLE t ADD COLUMN a INT, ADD INDEX (a)"), "t");
        assert_eq!(named("TRUNCATE t"), "t");
        assert_eq!(named("TRUNCATE TABLE t"), "t");
        assert_eq!(named("RENAME TABLE a TO b, c TO d"), "a b c d");
        assert_eq!(named("CREATE INDEX i ON t (a, b)"), "t");
        assert_eq!(named("CREATE VIEW v AS SELECT * FROM t"), "v t");
    }

    #[test]
    fn of_others() {
        assert_eq!(named("LOCK TABLES a READ, b WRITE"), "a b");
        assert_eq!(named("SHOW COLUMNS FROM t FROM s"), "t");
        assert_eq!(named("SHOW CREATE TABLE t"), "t");
        assert_eq!(named("SHOW TABLES FROM s"), "");
        assert_eq!(named("DESC t"), "t");
        assert_eq!(named("SELECT 1 FROM a; DELETE FROM b; COMMIT"), "a b");
        assert_eq!(named("SET @x = 1, y = 2"), "");
    }

    #[test]
    fn not_more_than_a_limit() {
        let many: Vec<String> = (0..1000).map(|table| format!("t{table}")).collect();
        assert_eq!(
            tables(
                format!("SELECT 1 FROM {}", many.join(",")).as_bytes(),
                Syntax::default()
            )
            .len(),
            TABLES_MAX
        );
    }
}
