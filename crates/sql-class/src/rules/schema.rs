//! Definitions: of tables and what is like them, of stored programs, of accounts.

use super::{Class, Effects, Keyword, Kind, Reader};

/// Most words between `CREATE` and what is created.
const MODIFIERS_MAX: usize = 24;

impl Reader<'_> {
    /// `CREATE`, `ALTER`, `DROP`.
    pub(super) fn definition(&mut self, verb: Keyword) -> Class {
        self.notes_calls = false;
        self.notes_variables = false;
        let mut temporary = false;
        for _ in 0..MODIFIERS_MAX {
            if self.at_end() {
                break;
            }
            match self.advance().keyword {
                Keyword::Temporary => temporary = true,
                Keyword::Definer => self.definer(),
                Keyword::User | Keyword::Role => return self.account(),
                Keyword::Prepare => return self.with_effects(Class::Session, Effects::TEXT_PREPARE),
                Keyword::Instance => return self.with_effects(Class::Administration, Effects::COMMITS),
                Keyword::Table if temporary => return self.temporary_table(verb),
                Keyword::Sequence if temporary => {
                    self.add(Effects::COMMITS);
                    return self.temporary_table(verb);
                }
                Keyword::Procedure | Keyword::Function | Keyword::Trigger | Keyword::Package
                    if verb == Keyword::Create =>
                {
                    return self.stored_program();
                }
                Keyword::Event if verb != Keyword::Drop => return self.stored_program(),
                Keyword::Table
                | Keyword::View
                | Keyword::Database
                | Keyword::Schema
                | Keyword::Index
                | Keyword::Sequence
                | Keyword::Tablespace
                | Keyword::Logfile
                | Keyword::Server
                | Keyword::Procedure
                | Keyword::Function
                | Keyword::Trigger
                | Keyword::Package
                | Keyword::Event
                | Keyword::Resource => break,
                _ => {}
            }
        }
        self.definition_body();
        self.changes_schema()
    }

    /// `= 'user'@'host'`, or `= user`.
    fn definer(&mut self) {
        self.advance();
        self.advance();
        if self.next.kind == Kind::Variable {
            self.advance();
        }
    }

    /// Columns first, which look like calls; then perhaps a query.
    fn definition_body(&mut self) {
        while !self.at_end() {
            let is_query = match self.advance().keyword {
                Keyword::Select => true,
                Keyword::Values => {
                    self.next.kind == Kind::Open || self.text(self.next).eq_ignore_ascii_case(b"ROW")
                }
                _ => false,
            };
            if is_query {
                self.notes_calls = true;
                self.notes_variables = true;
            }
        }
    }

    fn temporary_table(&mut self, verb: Keyword) -> Class {
        if verb == Keyword::Create {
            self.add(Effects::TEMPORARY_TABLE);
        }
        self.definition_body();
        self.with_effects(Class::Ddl, Effects::CHANGES_SCHEMA)
    }

    /// Its statements are not executed now, so nothing is noted of them; but behind the first semicolon
    /// nobody knows without a parser whether it has ended.
    fn stored_program(&mut self) -> Class {
        self.program = true;
        let (effects, lifted) = (self.effects, self.lifted);
        self.rest();
        (self.effects, self.lifted) = (effects, lifted);
        self.changes_schema()
    }

    pub(super) fn changes_schema(&mut self) -> Class {
        self.notes_calls = false;
        self.with_effects(Class::Ddl, Effects::COMMITS.with(Effects::CHANGES_SCHEMA))
    }

    pub(super) fn rename(&mut self) -> Class {
        match self.next.keyword {
            Keyword::User => self.account(),
            _ => self.changes_schema(),
        }
    }

    pub(super) fn account(&mut self) -> Class {
        self.notes_calls = false;
        self.notes_variables = false;
        self.with_effects(
            Class::Administration,
            Effects::CHANGES_ACCOUNT.with(Effects::COMMITS),
        )
    }
}
