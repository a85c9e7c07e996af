//! The rules that tell statements apart, by their first words.
//!
//! A rule reads as far as it must to know its statement, and returns the class; [`Reader`] notes the rest.
//! What a rule does not recognise is [`Class::Unknown`].

mod data;
mod schema;
mod server;
mod set;

use crate::facts::{Class, Effects};
use crate::keyword::Keyword;
use crate::reader::Reader;
use crate::token::Kind;

/// How deep a statement may stand in a statement (`SET STATEMENT … FOR`).
const NESTED_MAX: u8 = 4;

impl Reader<'_> {
    /// One statement, up to its semicolon or the end of the text.
    pub(crate) fn statement(&mut self) -> Class {
        self.lifted = Class::Read;
        self.notes_calls = true;
        self.notes_variables = true;
        self.inserts = false;
        let class = self.statement_within(0);
        self.rest();
        class.max(self.lifted)
    }

    fn statement_within(&mut self, depth: u8) -> Class {
        if depth > NESTED_MAX {
            return Class::Unknown;
        }
        let first = self.advance();
        self.tokens().stop_hints();
        if first.kind == Kind::Open {
            return self.parenthesised();
        }
        match first.keyword {
            Keyword::Select
            | Keyword::Table
            | Keyword::Values
            | Keyword::Do
            | Keyword::Help
            | Keyword::Checksum => Class::Read,
            Keyword::Insert | Keyword::Replace | Keyword::Update | Keyword::Delete => {
                self.change(first.keyword)
            }
            Keyword::With => self.with(),
            Keyword::Set => self.set(depth),
            Keyword::Begin => self.begin(),
            Keyword::Start => self.start(),
            Keyword::Commit | Keyword::Rollback => self.end_of_transaction(),
            Keyword::Savepoint | Keyword::Release => Class::Transaction,
            Keyword::Show => self.show(),
            Keyword::Use => self.with_effects(Class::Session, Effects::CHANGES_DATABASE),
            Keyword::Prepare => self.with_effects(Class::Unknown, Effects::TEXT_PREPARE),
            Keyword::Execute => self.execute(),
            Keyword::Deallocate => self.with_effects(Class::Session, Effects::TEXT_PREPARE),
            Keyword::Call => self.call(),
            Keyword::Explain | Keyword::Describe | Keyword::Desc => self.explain(),
            Keyword::Analyze => self.analyze(),
            Keyword::Load => self.load(),
            Keyword::Xa => self.xa(),
            Keyword::Lock => self.lock(),
            Keyword::Unlock => self.unlock(),
            Keyword::Handler => self.with_effects(Class::LockingRead, Effects::HANDLER),
            Keyword::Get => self.get_diagnostics(),
            Keyword::Signal | Keyword::Resignal => Class::Session,
            Keyword::Create | Keyword::Alter | Keyword::Drop => self.definition(first.keyword),
            Keyword::Rename => self.rename(),
            Keyword::Truncate | Keyword::Import => self.changes_schema(),
            Keyword::Grant | Keyword::Revoke => self.account(),
            Keyword::Forebay => self.gateway(),
            Keyword::If | Keyword::Case | Keyword::Loop | Keyword::While | Keyword::Repeat | Keyword::For => {
                self.compound()
            }
            other => self.administration(other),
        }
    }

    fn with_effects(&mut self, class: Class, effects: Effects) -> Class {
        self.add(effects);
        class
    }

    /// A statement for the gateway itself: what it says about other statements is not done.
    fn gateway(&mut self) -> Class {
        while !self.at_end() {
            self.skip();
        }
        self.with_effects(Class::Administration, Effects::GATEWAY)
    }

    /// Statements between `BEGIN` and `END` outside of any stored program.
    fn compound(&mut self) -> Class {
        self.program = true;
        self.with_effects(Class::Unknown, Effects::CALLS_PROCEDURE)
    }

    fn call(&mut self) -> Class {
        self.notes_calls = false;
        self.with_effects(Class::Unknown, Effects::CALLS_PROCEDURE)
    }

    fn execute(&mut self) -> Class {
        match self.take(Keyword::Immediate) {
            true => self.with_effects(Class::Unknown, Effects::CALLS_PROCEDURE),
            false => self.with_effects(Class::Unknown, Effects::TEXT_PREPARE),
        }
    }
}
