//! Statements about rows, and transactions.

use super::{Class, Effects, Keyword, Kind, Reader};

impl Reader<'_> {
    /// `(SELECT …) UNION …`; its first parenthesis is behind us.
    pub(super) fn parenthesised(&mut self) -> Class {
        while self.next.kind == Kind::Open {
            self.advance();
        }
        match self.next.keyword {
            Keyword::Select | Keyword::Table | Keyword::Values | Keyword::With => Class::Read,
            _ => Class::Unknown,
        }
    }

    pub(super) fn change(&mut self, verb: Keyword) -> Class {
        if matches!(verb, Keyword::Insert | Keyword::Replace) {
            self.inserts = true;
            self.insert_target();
        }
        Class::Write
    }

    /// `INTO schema.table (columns)`, which looks like a call.
    fn insert_target(&mut self) {
        self.notes_calls = false;
        self.take_all(&[
            Keyword::LowPriority,
            Keyword::HighPriority,
            Keyword::Delayed,
            Keyword::Ignore,
            Keyword::Into,
        ]);
        if matches!(self.next.kind, Kind::Word | Kind::Name | Kind::Quoted) {
            self.advance();
            while self.next.kind == Kind::Dot {
                self.advance();
                self.advance();
            }
        }
        self.notes_calls = true;
    }

    /// The tables of a `WITH`, and the statement after them.
    pub(super) fn with(&mut self) -> Class {
        self.take(Keyword::Recursive);
        loop {
            self.notes_calls = false;
            if !matches!(self.next.kind, Kind::Word | Kind::Quoted) {
                return Class::Unknown;
            }
            self.advance();
            if self.next.kind == Kind::Open && !self.parentheses() {
                return Class::Unknown;
            }
            self.notes_calls = true;
            if !self.take(Keyword::As) || !self.parentheses() {
                return Class::Unknown;
            }
            if self.next.kind != Kind::Comma {
                break;
            }
            self.advance();
        }
        self.after_with()
    }

    fn after_with(&mut self) -> Class {
        // MariaDB: `CYCLE column, … RESTRICT` may stand here, of which nothing is known.
        if self.next.keyword == Keyword::None && self.is_mariadb() {
            while !self.at_end() && self.next.keyword == Keyword::None && self.next.kind != Kind::Open {
                self.advance();
            }
        }
        let verb = self.advance();
        match verb.keyword {
            _ if verb.kind == Kind::Open => self.parenthesised(),
            Keyword::Select | Keyword::Table | Keyword::Values => Class::Read,
            Keyword::Insert | Keyword::Replace | Keyword::Update | Keyword::Delete => {
                self.change(verb.keyword)
            }
            _ => Class::Unknown,
        }
    }

    /// `EXPLAIN` is what its statement is: it goes where that would go, which is where its plan is of
    /// interest. And `EXPLAIN ANALYZE` executes it.
    pub(super) fn explain(&mut self) -> Class {
        loop {
            match self.next.keyword {
                Keyword::Extended | Keyword::Partitions | Keyword::Analyze => {
                    self.advance();
                }
                Keyword::Format => {
                    self.advance();
                    if !self.at_operator(b"=") {
                        return self.describe_table();
                    }
                    self.advance();
                    self.advance();
                }
                Keyword::Into => {
                    self.advance();
                    self.advance();
                }
                Keyword::For => {
                    self.advance();
                    if self.take(Keyword::Connection) {
                        return self.with_effects(Class::Administration, Effects::READS_SERVER);
                    }
                    self.take_all(&[Keyword::Schema, Keyword::Database]);
                    self.advance();
                }
                _ => return self.explained(),
            }
            if self.at_end() {
                return Class::Unknown;
            }
        }
    }

    fn explained(&mut self) -> Class {
        match self.next.keyword {
            _ if self.next.kind == Kind::Open => {
                self.advance();
                self.parenthesised()
            }
            Keyword::Select | Keyword::Table | Keyword::Values => Class::Read,
            verb @ (Keyword::Insert | Keyword::Replace | Keyword::Update | Keyword::Delete) => {
                self.advance();
                self.change(verb)
            }
            Keyword::With => {
                self.advance();
                self.with()
            }
            _ => {
                self.advance();
                self.describe_table()
            }
        }
    }

    /// `DESCRIBE schema.table column`; the first name is behind us.
    fn describe_table(&mut self) -> Class {
        while self.next.kind == Kind::Dot {
            self.advance();
            self.advance();
        }
        if !self.at_end() {
            self.advance();
        }
        if self.at_end() {
            Class::Read
        } else {
            Class::Unknown
        }
    }

    /// Of a table: administration. Of a statement (MariaDB): executes it.
    pub(super) fn analyze(&mut self) -> Class {
        match self.next.keyword {
            Keyword::Table | Keyword::Tables | Keyword::NoWriteToBinlog | Keyword::Local => {
                self.notes_calls = false;
                self.with_effects(Class::Administration, Effects::COMMITS)
            }
            _ => self.explain(),
        }
    }

    pub(super) fn load(&mut self) -> Class {
        if !matches!(self.next.keyword, Keyword::Data | Keyword::Xml) {
            return self.commits_on_mysql(); // LOAD INDEX INTO CACHE
        }
        self.advance();
        self.take_all(&[Keyword::LowPriority, Keyword::Concurrent]);
        if !self.take(Keyword::Local) {
            self.add(Effects::SERVER_FILE);
        }
        self.notes_calls = false; // `INTO TABLE t (columns)`
        while !self.at_end() && self.next.keyword != Keyword::Set {
            self.advance();
        }
        self.notes_calls = true;
        self.with_effects(Class::Write, Effects::LOADS_DATA)
    }

    pub(super) fn begin(&mut self) -> Class {
        self.take(Keyword::Work);
        if self.at_end() {
            Class::Begin
        } else {
            self.compound()
        }
    }

    pub(super) fn start(&mut self) -> Class {
        if !self.take(Keyword::Transaction) {
            return self.commits_on_mysql(); // START REPLICA
        }
        let mut class = Class::Begin;
        while !self.at_end() {
            if self.advance().keyword == Keyword::Read && self.next.keyword == Keyword::Only {
                class = Class::BeginReadOnly;
            }
        }
        class
    }

    /// With `RELEASE` it is the end of the connection, too.
    pub(super) fn end_of_transaction(&mut self) -> Class {
        let mut is_refused = false;
        while !self.at_end() {
            let word = self.advance();
            if word.keyword == Keyword::Release && !is_refused {
                self.add(Effects::SETS_UNCARRIED);
            }
            is_refused = self.text(word).eq_ignore_ascii_case(b"NO");
        }
        Class::Transaction
    }

    pub(super) fn xa(&mut self) -> Class {
        match self.next.keyword {
            Keyword::Start | Keyword::Begin => self.with_effects(Class::Begin, Effects::XA),
            Keyword::End | Keyword::Prepare | Keyword::Commit | Keyword::Rollback => {
                self.with_effects(Class::Transaction, Effects::XA)
            }
            Keyword::Recover => self.with_effects(Class::Administration, Effects::READS_SERVER),
            _ => self.with_effects(Class::Unknown, Effects::XA),
        }
    }

    pub(super) fn lock(&mut self) -> Class {
        match self.advance().keyword {
            Keyword::Table | Keyword::Tables => {
                if self.next.keyword == Keyword::For {
                    self.add(Effects::GLOBAL_LOCK); // Percona: FOR BACKUP
                }
                self.with_effects(Class::LockingRead, Effects::LOCKS_TABLES.with(Effects::COMMITS))
            }
            Keyword::Instance | Keyword::Binlog => {
                self.with_effects(Class::Administration, Effects::GLOBAL_LOCK)
            }
            _ => Class::Unknown,
        }
    }

    pub(super) fn unlock(&mut self) -> Class {
        match self.next.keyword {
            Keyword::Table | Keyword::Tables => {
                self.with_effects(Class::Transaction, Effects::UNLOCKS_TABLES.with(Effects::COMMITS))
            }
            Keyword::Instance | Keyword::Binlog => {
                self.with_effects(Class::Administration, Effects::RELEASES_GLOBAL_LOCK)
            }
            _ => Class::Unknown,
        }
    }
}
