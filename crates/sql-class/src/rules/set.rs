//! `SET` in all its forms.

use super::{Class, Effects, Keyword, Kind, Reader};
use crate::reader::unquoted;
use crate::sql_mode_change::Change;
use crate::variables::{self, Scope};

impl Reader<'_> {
    pub(super) fn set(&mut self, depth: u8) -> Class {
        match self.next.keyword {
            Keyword::Password => {
                self.notes_variables = false;
                let effects = Effects::CHANGES_ACCOUNT.with(Effects::COMMITS);
                self.with_effects(Class::Administration, effects)
            }
            Keyword::Role => self.with_effects(Class::Session, Effects::SET_ROLE),
            Keyword::Default => {
                self.notes_variables = false;
                let effects = Effects::CHANGES_ACCOUNT
                    .with(Effects::SET_ROLE)
                    .with(Effects::COMMITS);
                self.with_effects(Class::Administration, effects)
            }
            Keyword::Resource => self.with_effects(Class::Session, Effects::SETS_UNCARRIED),
            Keyword::Transaction => self.with_effects(Class::Session, Effects::NEXT_TRANSACTION),
            Keyword::Statement if self.is_mariadb() => self.set_statement(depth),
            _ => self.assignments(),
        }
    }

    /// MariaDB: `SET STATEMENT max_statement_time=1, … FOR SELECT …`.
    fn set_statement(&mut self, depth: u8) -> Class {
        self.add(Effects::SET_STATEMENT);
        let mut open = 0_usize;
        while !self.at_end() {
            match self.next.kind {
                Kind::Open => open += 1,
                Kind::Close => open = open.saturating_sub(1),
                Kind::Word if open == 0 && self.next.keyword == Keyword::For => break,
                _ => {}
            }
            self.skip();
        }
        self.skip();
        if self.at_end() {
            return Class::Unknown;
        }
        self.statement_within(depth + 1).max(Class::Session)
    }

    fn assignments(&mut self) -> Class {
        let mut class = Class::Session;
        let mut scope = Scope::Session;
        loop {
            if self.next.kind != Kind::System
                && let Some(word) = Scope::of(self.text(self.next))
            {
                scope = word;
                self.skip();
                if self.next.keyword == Keyword::Transaction {
                    return self.transaction_characteristics(scope);
                }
                // MariaDB 12: the session is another account's from here on.
                if self.text(self.next).eq_ignore_ascii_case(b"authorization") {
                    return Class::Unknown;
                }
            }
            if self.assignment(scope) == Scope::Global {
                class = Class::Administration;
                self.add(Effects::SETS_GLOBAL);
            }
            if self.next.kind != Kind::Comma {
                return class;
            }
            self.advance();
        }
    }

    /// `SET GLOBAL TRANSACTION …`; without a scope it would be for the next transaction only.
    fn transaction_characteristics(&mut self, scope: Scope) -> Class {
        match scope {
            Scope::Session => Class::Session,
            Scope::Global => self.with_effects(Class::Administration, Effects::SETS_GLOBAL),
        }
    }

    /// One variable and its value, up to the comma after it. Says whose variable it was.
    fn assignment(&mut self, scope: Scope) -> Scope {
        let mut scope = scope;
        let target = self.skip(); // not noted: it is not read
        let mut name = unquoted(self.text(target));
        match target.kind {
            Kind::Variable => self.add(Effects::USER_VARIABLES),
            Kind::System => {
                name = unquoted(name.get(2..).unwrap_or_default());
                scope = match self.next.kind {
                    Kind::Dot => Scope::of(name).unwrap_or(Scope::Session),
                    _ => Scope::Session,
                };
                // Without a scope, and with `@@`, these are for the next transaction only.
                if self.next.kind != Kind::Dot && variables::is_transaction_characteristic(name) {
                    self.add(Effects::NEXT_TRANSACTION);
                } else if self.next.kind != Kind::Dot && self.is_mariadb() && variables::is_carried(name) {
                    self.add(Effects::SETS_UNSEEN);
                }
            }
            _ => {}
        }
        while self.next.kind == Kind::Dot {
            self.skip();
            let part = self.skip();
            name = unquoted(self.text(part));
        }
        let is_of_session = scope == Scope::Session && target.kind != Kind::Variable;
        if is_of_session {
            self.add(variables::effects_of_setting(name));
        }
        let value = self.next.start;
        let mut open = 0_usize;
        while !self.at_end() && (open > 0 || self.next.kind != Kind::Comma) {
            match self.advance().kind {
                Kind::Open => open += 1,
                Kind::Close => open = open.saturating_sub(1),
                _ => {}
            }
        }
        if is_of_session && !self.program {
            let value = self.between(value, self.next.start);
            self.change = self.change.with(Change::by(name, value, self.syntax()));
        }
        match target.kind {
            Kind::Variable => Scope::Session,
            _ => scope,
        }
    }
}
