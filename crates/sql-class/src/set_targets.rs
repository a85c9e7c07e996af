//! Which variables a text with `SET` sets.

use crate::keyword::Keyword;
use crate::reader::unquoted;
use crate::syntax::Syntax;
use crate::token::{Kind, Token, Tokenizer};
use crate::variables::{Scope, is_carried, is_transaction_characteristic};
use crate::words::is_one_of;

/// The system variables that the `SET` statements of a text may set, of the session or of the server, in
/// lower case. None of them for `SET NAMES` and the like, nor for what holds for one statement or the next
/// transaction only. `None`: it is not understood.
#[must_use]
pub fn set_targets(sql: &[u8], syntax: Syntax) -> Option<Vec<Box<[u8]>>> {
    find(sql, syntax, Wanted::All)
}

/// Of those the ones behind [`Effects::SETS_UNSEEN`](crate::Effects::SETS_UNSEEN).
#[must_use]
pub fn set_targets_unseen(sql: &[u8], syntax: Syntax) -> Option<Vec<Box<[u8]>>> {
    let found = find(sql, syntax, Wanted::Unscoped)?;
    Some(found.into_iter().filter(|name| is_carried(name)).collect())
}

/// Of those the session's own that no effect stands for: what they are set to goes with the session, and has
/// to be known.
#[must_use]
pub fn set_targets_in_session(sql: &[u8], syntax: Syntax) -> Option<Vec<Box<[u8]>>> {
    let found = find(sql, syntax, Wanted::OfSession)?;
    Some(found.into_iter().filter(|name| is_carried(name)).collect())
}

/// Whether all that the `SET` statements of a text set is given in it, so that it is the same whichever
/// server executes them: no default, no query, no variable but the session's own `sql_mode`, and no function
/// of anything else. False also where it is not understood.
#[must_use]
pub fn assigns_given_values(sql: &[u8], syntax: Syntax) -> bool {
    let mut assignments = Assignments::new(sql, syntax, Wanted::All);
    assignments.find().is_some() && assignments.all_given
}

/// Which variables are of interest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    All,
    /// Those with `@@` and without a scope.
    Unscoped,
    OfSession,
}

fn find(sql: &[u8], syntax: Syntax, wanted: Wanted) -> Option<Vec<Box<[u8]>>> {
    let mut assignments = Assignments::new(sql, syntax, wanted);
    assignments.find()?;
    Some(assignments.found)
}

struct Assignments<'a> {
    tokens: Tokenizer<'a>,
    next: Token,
    found: Vec<Box<[u8]>>,
    wanted: Wanted,
    /// No value seen so far depends on what executes it.
    all_given: bool,
}

impl<'a> Assignments<'a> {
    fn new(sql: &'a [u8], syntax: Syntax, wanted: Wanted) -> Self {
        let mut tokens = Tokenizer::new(sql, syntax);
        let next = tokens.next();
        Self {
            tokens,
            next,
            found: Vec::new(),
            wanted,
            all_given: true,
        }
    }

    fn find(&mut self) -> Option<()> {
        while self.next.kind != Kind::End {
            self.statement()?;
        }
        (!self.tokens.doubtful).then_some(())
    }

    /// One statement and its semicolon.
    fn statement(&mut self) -> Option<()> {
        if self.step().keyword == Keyword::Set {
            match self.next.keyword {
                // What they do is an effect, or is over with the statement.
                Keyword::Password
                | Keyword::Role
                | Keyword::Default
                | Keyword::Resource
                | Keyword::Transaction
                | Keyword::Statement => {}
                _ => self.assignments()?,
            }
        }
        while !self.at_end() {
            // One within another statement.
            if self.step().keyword == Keyword::Set && self.next.kind != Kind::Operator {
                return None;
            }
        }
        self.step();
        Some(())
    }

    fn assignments(&mut self) -> Option<()> {
        let mut scope = Scope::Session;
        loop {
            if self.is_scope() {
                let word = self.step();
                scope = Scope::of(self.tokens.text(word)).unwrap_or(scope);
                if self.next.keyword == Keyword::Transaction {
                    return Some(());
                }
            }
            self.assignment(scope)?;
            if self.next.kind != Kind::Comma {
                return Some(());
            }
            self.step();
        }
    }

    /// `scope`: where the target has none of its own.
    fn assignment(&mut self, scope: Scope) -> Option<()> {
        let target = self.step();
        let mut name = self.name(target)?;
        let is_charset = is_one_of(name, &["NAMES", "CHARACTER", "CHARSET", "CHAR"]);
        let is_unscoped = target.kind == Kind::System && self.next.kind != Kind::Dot;
        let scope = match target.kind {
            Kind::System if is_unscoped => Scope::Session,
            Kind::System => Scope::of(name).unwrap_or(Scope::Session),
            _ => scope,
        };
        while self.next.kind == Kind::Dot {
            self.step();
            let part = self.step();
            name = self.name(part)?;
        }
        let operator = self.tokens.text(self.next);
        let is_assigned = self.next.kind == Kind::Operator && (operator == b"=" || operator == b":=");
        match target.kind {
            Kind::Variable if is_assigned => {}
            _ if is_assigned => {
                let is_wanted = match self.wanted {
                    Wanted::All => true,
                    Wanted::Unscoped => is_unscoped,
                    // Without a scope, and with `@@`, some are for the next transaction only.
                    Wanted::OfSession => {
                        scope == Scope::Session && !(is_unscoped && is_transaction_characteristic(name))
                    }
                };
                if is_wanted {
                    self.found.push(name.to_ascii_lowercase().into());
                }
            }
            _ if is_charset => {}
            _ => return None,
        }
        let mut open = 0_usize;
        while !self.at_end() && (open > 0 || self.next.kind != Kind::Comma) {
            let token = self.step();
            match token.kind {
                Kind::Open => open += 1,
                Kind::Close => open = open.saturating_sub(1),
                _ => self.all_given &= self.is_given(token),
            }
        }
        Some(())
    }

    /// Whether this part of a value means the same everywhere; what follows it is next.
    fn is_given(&self, token: Token) -> bool {
        let is = |words: &[&str]| is_one_of(unquoted(self.tokens.text(token)), words);
        let is_called = self.next.kind == Kind::Open;
        match token.kind {
            Kind::Variable => false,
            Kind::System => is(&["@@sql_mode", "@@session", "@@local"]),
            Kind::Dot => unquoted(self.tokens.text(self.next)).eq_ignore_ascii_case(b"sql_mode"),
            Kind::Word | Kind::Name | Kind::Quoted if is_called => is(&["CONCAT", "REPLACE"]),
            Kind::Word => !is(&["DEFAULT", "SELECT", "TABLE"]),
            _ => true,
        }
    }

    fn is_scope(&self) -> bool {
        const ALL: &[&str] = &["GLOBAL", "SESSION", "LOCAL", "PERSIST", "PERSIST_ONLY"];
        self.next.kind == Kind::Word && is_one_of(self.tokens.text(self.next), ALL)
    }

    fn name(&self, token: Token) -> Option<&'a [u8]> {
        let text = self.tokens.text(token);
        match token.kind {
            Kind::Word | Kind::Name | Kind::Quoted => Some(unquoted(text)),
            Kind::System => Some(unquoted(&text[2..])),
            Kind::Variable => Some(text),
            _ => None,
        }
    }

    fn at_end(&self) -> bool {
        matches!(self.next.kind, Kind::Semicolon | Kind::End)
    }

    fn step(&mut self) -> Token {
        let token = self.next;
        self.next = self.tokens.next();
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(sql: &str) -> Option<String> {
        let found = set_targets(sql.as_bytes(), Syntax::default())?;
        let names: Vec<_> = found.iter().map(|name| String::from_utf8_lossy(name)).collect();
        Some(names.join(" "))
    }

    #[test]
    fn variables_however_they_are_written() {
        for (sql, expected) in [
            ("SET a=1", "a"),
            (
                "set A:=1, @b=2, @@c=(SELECT 1, 2), @@session.D = 4, LOCAL e=5, `f`=6",
                "a c d e f",
            ),
            ("SET GLOBAL a=1, b=2", "a b"),
            ("SET @@global.a=1; SELECT 1; SET b=2;", "a b"),
            ("SET NAMES utf8mb4 COLLATE utf8mb4_bin, a=1", "a"),
            ("SET CHARACTER SET latin1", ""),
            ("SET charset latin1", ""),
            ("SET SESSION TRANSACTION READ ONLY", ""),
            ("SET TRANSACTION READ ONLY", ""),
            ("SET STATEMENT a=1 FOR SELECT 1", ""),
            ("SET session_a=1, globals=2", "session_a globals"),
            ("USE test", ""),
            ("", ""),
        ] {
            assert_eq!(names(sql).as_deref(), Some(expected), "{sql}");
        }
    }

    #[test]
    fn what_nothing_reports() {
        let syntax = Syntax {
            dialect: crate::Dialect::MariaDb { version: 101_119 },
            ..Syntax::default()
        };
        for (sql, expected) in [
            ("SET @@a=1, b=2, @@session.c=3, @@`D` := 4", "a d"),
            ("SET @@global.a=1, SESSION b=2", ""),
            ("SET @@autocommit=0, @@timestamp=5, @@e=1", "e"),
        ] {
            let found = set_targets_unseen(sql.as_bytes(), syntax).unwrap();
            let names: Vec<_> = found.iter().map(|name| String::from_utf8_lossy(name)).collect();
            assert_eq!(names.join(" "), expected, "{sql}");
            let effects = crate::facts(sql.as_bytes(), syntax).effects;
            let is_unseen = effects.contains(crate::Effects::SETS_UNSEEN);
            assert_eq!(is_unseen, !expected.is_empty(), "{sql}");
        }
        let of_mysql = crate::facts(b"SET @@a=1", Syntax::default()).effects;
        assert_eq!(of_mysql, crate::Effects::NONE);
    }

    #[test]
    fn what_goes_with_the_session() {
        for (sql, expected) in [
            ("SET a=1, @@b=2, @@session.c=3, LOCAL d=4, @e=5", "a b c d"),
            ("SET GLOBAL a=1, b=2, SESSION c=3, @@global.d=4, e=5", "c e"),
            ("SET autocommit=0, timestamp=5, last_insert_id=6, e=1", "e"),
            (
                "SET @@tx_isolation='SERIALIZABLE', @@session.tx_read_only=1",
                "tx_read_only",
            ),
            ("SET NAMES latin1; SET a=1", "a"),
        ] {
            let found = set_targets_in_session(sql.as_bytes(), Syntax::default()).unwrap();
            let names: Vec<_> = found.iter().map(|name| String::from_utf8_lossy(name)).collect();
            assert_eq!(names.join(" "), expected, "{sql}");
        }
    }

    #[test]
    fn values_that_are_the_same_on_every_server() {
        for (sql, is_given) in [
            ("SET a=1, b='@@c', SESSION d=ON, @@session.e=-2.5", true),
            ("SET NAMES utf8mb4 COLLATE utf8mb4_bin", true),
            ("SET SESSION TRANSACTION READ ONLY", true),
            (
                "SET @@SESSION.sql_mode = CONCAT(@@sql_mode, ',ANSI'), a=2147",
                true,
            ),
            ("SET sql_mode = REPLACE(@@session.sql_mode, 'A', 'B')", true),
            ("SET NAMES DEFAULT", false),
            ("SET sql_mode=default", false),
            ("SET sql_mode=@@global.sql_mode", false),
            ("SET a=1, transaction_read_only=@@read_only", false),
            ("SET sql_mode=CONCAT(@@hostname, ',ANSI')", false),
            ("SET a=/*,*/@@b", false),
            ("SET a=@@session.b", false),
            ("SET a=@b", false),
            ("SET a=(SELECT 1)", false),
            ("SET a=(1), b=own(2)", false),
            ("SET a=s.concat(2)", false),
            ("SET a='open", false),
        ] {
            assert_eq!(
                assigns_given_values(sql.as_bytes(), Syntax::default()),
                is_given,
                "{sql}"
            );
        }
    }

    #[test]
    fn what_is_not_understood() {
        for sql in [
            "SET a",
            "SET 1=2",
            "SET STATEMENT a=1 FOR SET b=2",
            "UPDATE t SET a=1",
            "SET global=2",
            "BEGIN NOT ATOMIC SET a=1; END",
            "SET a='open",
            "SET",
        ] {
            assert_eq!(names(sql), None, "{sql}");
        }
    }
}
