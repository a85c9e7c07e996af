//! Statements about the server.

use super::{Class, Effects, Keyword, Reader};

impl Reader<'_> {
    pub(super) fn show(&mut self) -> Class {
        let mut is_global = false;
        while !self.at_end() {
            match self.advance().keyword {
                Keyword::Full | Keyword::Extended | Keyword::Session | Keyword::Local => {}
                Keyword::Global => is_global = true,
                Keyword::Warnings | Keyword::Errors | Keyword::Count => {
                    return self.with_effects(Class::Read, Effects::READS_DIAGNOSTICS);
                }
                // `last_insert_id` may be among them.
                Keyword::Variables if !is_global => {
                    let effects = Effects::READS_SERVER.with(Effects::READS_LAST_INSERT_ID);
                    return self.with_effects(Class::Read, effects);
                }
                Keyword::Variables | Keyword::Status => {
                    return self.with_effects(Class::Read, Effects::READS_SERVER);
                }
                Keyword::Grants | Keyword::Create => {
                    self.notes_variables = false; // 'user'@'host'
                    return Class::Read;
                }
                Keyword::Databases
                | Keyword::Schemas
                | Keyword::Tables
                | Keyword::Table
                | Keyword::Columns
                | Keyword::Fields
                | Keyword::Index
                | Keyword::Indexes
                | Keyword::Keys
                | Keyword::Triggers
                | Keyword::Events
                | Keyword::Character
                | Keyword::Charset
                | Keyword::Collation
                | Keyword::Privileges
                | Keyword::Engines
                | Keyword::Storage
                | Keyword::Plugins
                | Keyword::Procedure
                | Keyword::Function
                | Keyword::Package
                | Keyword::Library
                | Keyword::ParseTree => return Class::Read,
                _ => break,
            }
        }
        self.with_effects(Class::Administration, Effects::READS_SERVER)
    }

    /// `GET DIAGNOSTICS @n = ROW_COUNT, …`.
    pub(super) fn get_diagnostics(&mut self) -> Class {
        while !self.at_end() {
            let is_item = self.at_operator(b"=");
            self.advance();
            if is_item && self.text(self.next).eq_ignore_ascii_case(b"ROW_COUNT") {
                self.add(Effects::READS_ROW_COUNT);
            }
        }
        self.with_effects(Class::Session, Effects::READS_DIAGNOSTICS)
    }

    /// What is left of the first words; the rest is not known.
    pub(super) fn administration(&mut self, verb: Keyword) -> Class {
        let effects = match verb {
            Keyword::Kill => Effects::KILL,
            Keyword::Flush => return self.flush(),
            Keyword::Backup => return self.backup(),
            Keyword::Binlog => return self.with_effects(Class::Write, Effects::SETS_UNCARRIED),
            Keyword::Reset if self.next.keyword == Keyword::Persist => Effects::SETS_GLOBAL,
            Keyword::Cache | Keyword::Change | Keyword::Stop => return self.commits_on_mysql(),
            Keyword::Check
            | Keyword::Optimize
            | Keyword::Repair
            | Keyword::Install
            | Keyword::Uninstall
            | Keyword::Reset => Effects::COMMITS,
            Keyword::Purge | Keyword::Shutdown | Keyword::Restart | Keyword::Clone => Effects::NONE,
            _ => return Class::Unknown,
        };
        self.notes_calls = verb == Keyword::Kill;
        self.with_effects(Class::Administration, effects)
    }

    /// It ends the transaction on MySQL. MariaDB leaves that as it is, or refuses within one.
    pub(super) fn commits_on_mysql(&mut self) -> Class {
        let effects = match self.is_mariadb() {
            true => Effects::NONE,
            false => Effects::COMMITS,
        };
        self.with_effects(Class::Administration, effects)
    }

    fn flush(&mut self) -> Class {
        self.add(Effects::COMMITS);
        while !self.at_end() {
            match (self.advance().keyword, self.next.keyword) {
                (Keyword::With, Keyword::Read) | (Keyword::For, Keyword::Export) => {
                    self.add(Effects::GLOBAL_LOCK)
                }
                (Keyword::Privileges, _) => self.add(Effects::CHANGES_ACCOUNT),
                _ => {}
            }
        }
        Class::Administration
    }

    fn backup(&mut self) -> Class {
        let effects = match self.advance().keyword {
            Keyword::Stage if self.next.keyword == Keyword::End => Effects::RELEASES_GLOBAL_LOCK,
            Keyword::Stage | Keyword::Lock => Effects::GLOBAL_LOCK,
            Keyword::Unlock => Effects::RELEASES_GLOBAL_LOCK,
            _ => return Class::Unknown,
        };
        self.with_effects(Class::Administration, effects.with(Effects::COMMITS))
    }
}
