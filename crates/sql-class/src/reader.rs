//! Goes over the tokens once, for the rules, and notes by the way what is noteworthy wherever it stands:
//! variables, calls of functions, locking clauses, tables that are about the server.

use crate::facts::{Class, Effects};
use crate::functions;
use crate::keyword::Keyword;
use crate::keywords::is_servers_own;
use crate::sql_mode_change::Change;
use crate::syntax::Syntax;
use crate::token::{Kind, Token, Tokenizer};
use crate::variables;

pub(crate) struct Reader<'a> {
    tokens: Tokenizer<'a>,
    /// The token that the rules look at; not consumed and not noted yet.
    pub(crate) next: Token,
    previous: Token,
    expected: Expected,
    /// What parts of the statement ask for, whatever it is as a whole.
    pub(crate) lifted: Class,
    pub(crate) effects: Effects,
    /// Off where a name before a parenthesis is no call: definitions of columns, privileges.
    pub(crate) notes_calls: bool,
    /// Off where `@` belongs to an account.
    pub(crate) notes_variables: bool,
    /// The statement inserts rows.
    pub(crate) inserts: bool,
    /// The statement is a stored program: semicolons after it may be its own.
    pub(crate) program: bool,
    /// What statements have changed of how a server reads those after them.
    pub(crate) change: Change,
}

/// What a token says about the one after the next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Nothing,
    /// `information_schema.`
    InformationSchemaTable,
    /// `@@session.`
    SystemVariable,
    /// `LAST_INSERT_ID(`
    LastInsertIdArgument,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(sql: &'a [u8], syntax: Syntax) -> Self {
        let mut tokens = Tokenizer::new(sql, syntax);
        let next = tokens.next();
        Self {
            tokens,
            next,
            previous: Token::BEFORE,
            expected: Expected::Nothing,
            lifted: Class::Read,
            effects: Effects::NONE,
            notes_calls: true,
            notes_variables: true,
            inserts: false,
            program: false,
            change: Change::default(),
        }
    }

    pub(crate) fn tokens(&mut self) -> &mut Tokenizer<'a> {
        &mut self.tokens
    }

    pub(crate) fn syntax(&self) -> Syntax {
        self.tokens.syntax()
    }

    pub(crate) fn is_mariadb(&self) -> bool {
        self.syntax().dialect.is_mariadb()
    }

    pub(crate) fn text(&self, token: Token) -> &'a [u8] {
        self.tokens.text(token)
    }

    /// The text from one place to another.
    pub(crate) fn between(&self, start: usize, end: usize) -> &'a [u8] {
        self.text(Token {
            start,
            end: end.max(start),
            ..self.next
        })
    }

    /// The next token is consumed and noted. Never goes beyond the end of the statement: there it stays.
    pub(crate) fn advance(&mut self) -> Token {
        let before = self.previous;
        let token = self.skip();
        self.note(token, before);
        token
    }

    /// The next token is consumed and means nothing.
    pub(crate) fn skip(&mut self) -> Token {
        if self.at_end() {
            return self.next;
        }
        self.step()
    }

    /// To the beginning of the next statement. `false`: there is none.
    pub(crate) fn next_statement(&mut self) -> bool {
        while self.next.kind == Kind::Semicolon {
            self.step();
        }
        self.next.kind != Kind::End
    }

    fn step(&mut self) -> Token {
        self.previous = self.next;
        self.next = self.tokens.next();
        self.previous
    }

    pub(crate) fn at_end(&self) -> bool {
        matches!(self.next.kind, Kind::Semicolon | Kind::End)
    }

    pub(crate) fn at_operator(&self, operator: &[u8]) -> bool {
        self.next.kind == Kind::Operator && self.text(self.next) == operator
    }

    /// Everything up to the end of the statement.
    pub(crate) fn rest(&mut self) {
        while !self.at_end() {
            self.advance();
        }
    }

    /// Consumes the next token if it is this word.
    pub(crate) fn take(&mut self, keyword: Keyword) -> bool {
        let found = self.next.keyword == keyword;
        if found {
            self.advance();
        }
        found
    }

    /// Consumes all of these words that come now.
    pub(crate) fn take_all(&mut self, keywords: &[Keyword]) {
        while self.next.keyword != Keyword::None && keywords.contains(&self.next.keyword) {
            self.advance();
        }
    }

    /// From a parenthesis that opens to the one that closes it. `false`: there is none, or the statement ends
    /// before.
    pub(crate) fn parentheses(&mut self) -> bool {
        let mut depth = 0_usize;
        while !self.at_end() {
            match self.advance().kind {
                Kind::Open => depth += 1,
                Kind::Close => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return self.previous.kind == Kind::Close;
            }
        }
        false
    }

    pub(crate) fn add(&mut self, effects: Effects) {
        self.effects = self.effects.with(effects);
    }

    pub(crate) fn lift(&mut self, class: Class) {
        self.lifted = self.lifted.max(class);
    }

    /// `token` was consumed, `self.next` comes after it and `before` came before.
    fn note(&mut self, token: Token, before: Token) {
        let expected = std::mem::replace(&mut self.expected, Expected::Nothing);
        match token.kind {
            Kind::Word | Kind::Name | Kind::Quoted => self.note_name(token, before, expected),
            Kind::Variable => self.note_variable(token, before),
            Kind::System => self.note_system_variable(token),
            Kind::Dot => self.expected = expected,
            Kind::Open if expected == Expected::LastInsertIdArgument && self.next.kind != Kind::Close => {
                self.add(Effects::SETS_UNCARRIED);
            }
            _ => {}
        }
    }

    fn note_name(&mut self, token: Token, before: Token, expected: Expected) {
        if token.keyword != Keyword::None {
            self.note_keyword(token.keyword);
        }
        match self.next.kind {
            Kind::Open if self.notes_calls => self.note_call(token, before),
            Kind::Dot => self.note_schema(token),
            _ => {}
        }
        if before.kind == Kind::Dot {
            self.note_qualified(token, expected);
        }
    }

    fn note_keyword(&mut self, keyword: Keyword) {
        match (keyword, self.next.keyword) {
            (Keyword::For, Keyword::Update | Keyword::Share) | (Keyword::Lock, Keyword::In) => {
                self.lift(Class::LockingRead);
            }
            (Keyword::Into, Keyword::Outfile | Keyword::Dumpfile) => {
                self.add(Effects::SERVER_FILE);
                self.lift(Class::Write);
            }
            (Keyword::Returning, _) if self.inserts && self.is_mariadb() => {
                self.add(Effects::RETURNS_INSERTED);
            }
            (Keyword::SqlCalcFoundRows, _) => self.add(Effects::CALCULATES_FOUND_ROWS),
            // Counts the rows of the query, not those of the plan that it answers with.
            (Keyword::Analyze, Keyword::Select | Keyword::With | Keyword::Format) => {
                self.add(Effects::CALCULATES_FOUND_ROWS);
            }
            (Keyword::Next, Keyword::Value) if self.is_mariadb() => {
                self.add(Effects::SEQUENCE);
                self.lift(Class::Write);
            }
            (Keyword::Previous, Keyword::Value) if self.is_mariadb() => self.add(Effects::SEQUENCE),
            _ => {}
        }
    }

    /// A name before a parenthesis.
    fn note_call(&mut self, token: Token, before: Token) {
        if before.kind == Kind::Dot {
            return self.add(Effects::UNKNOWN_FUNCTION);
        }
        // Names of columns follow: `WITH name (…)`, `AS name (…)`. After a parenthesis or a string there is
        // no call.
        if matches!(before.keyword, Keyword::As | Keyword::With | Keyword::Recursive)
            || matches!(before.kind, Kind::Close | Kind::String)
        {
            return;
        }
        let (name, adjacent) = (unquoted(self.text(token)), self.next.start == token.end);
        let dialect = self.syntax().dialect;
        if token.kind == Kind::Quoted || !is_servers_own(name, adjacent, dialect) {
            self.add(Effects::UNKNOWN_FUNCTION);
        }
        if let Some(function) = functions::find(name, dialect) {
            self.add(function.effects);
            self.lift(function.class);
            if function.effects == Effects::READS_LAST_INSERT_ID {
                self.expected = Expected::LastInsertIdArgument;
            }
        }
    }

    /// A name before a dot.
    fn note_schema(&mut self, token: Token) {
        let name = unquoted(self.text(token));
        let is = |schema: &[u8]| name.eq_ignore_ascii_case(schema);
        match name.len() {
            18 if is(b"performance_schema") => self.add(Effects::READS_SERVER),
            18 if is(b"information_schema") => self.expected = Expected::InformationSchemaTable,
            5 if is(b"mysql") => self.add(Effects::READS_SERVER),
            3 if is(b"sys") => self.add(Effects::READS_SERVER),
            _ => {}
        }
    }

    /// A name after a dot.
    fn note_qualified(&mut self, token: Token, expected: Expected) {
        let name = unquoted(self.text(token));
        match expected {
            Expected::InformationSchemaTable if !variables::is_alike_everywhere(name) => {
                self.add(Effects::READS_SERVER);
            }
            Expected::SystemVariable => self.add(variables::effects_of_reading(name)),
            _ => {}
        }
        if name.eq_ignore_ascii_case(b"session_variables") || name.eq_ignore_ascii_case(b"system_variables") {
            self.add(Effects::READS_LAST_INSERT_ID);
        }
        // Under MariaDB's sql_mode=ORACLE: `sequence.NEXTVAL`.
        if self.is_mariadb() && name.len() == 7 {
            if name.eq_ignore_ascii_case(b"nextval") {
                self.add(Effects::SEQUENCE);
                self.lift(Class::Write);
            } else if name.eq_ignore_ascii_case(b"currval") {
                self.add(Effects::SEQUENCE);
            }
        }
    }

    fn note_variable(&mut self, token: Token, before: Token) {
        let is_host = matches!(before.kind, Kind::String | Kind::Quoted) && before.end == token.start;
        if self.notes_variables && !is_host {
            self.add(Effects::USER_VARIABLES);
        }
    }

    fn note_system_variable(&mut self, token: Token) {
        let name = unquoted(&self.text(token)[2..]);
        if self.next.kind == Kind::Dot {
            self.expected = Expected::SystemVariable;
            if variables::Scope::of(name) == Some(variables::Scope::Global) {
                self.add(Effects::READS_SERVER);
            }
        }
        self.add(variables::effects_of_reading(name));
    }
}

/// A name without its quotes. One with quotes inside stays as it is written, and is no name that anything is
/// known of.
pub(crate) fn unquoted(name: &[u8]) -> &[u8] {
    match name {
        [b'`', inner @ .., b'`'] | [b'"', inner @ .., b'"'] => inner,
        _ => name,
    }
}
