//! Statements that make and drop indexes, and nothing else: rows and columns stay as they are, so what is in
//! memory stays, too.
//!
//! Wrong in one direction only: a statement that is not surely of this kind is none of them, which costs a
//! copy. So nothing is read here that may mean different things to different servers or sessions: no
//! comments, no quotes but those of names and plain strings, no character beyond ASCII, no expressions as
//! columns.

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct IndexChange {
    dropped: Vec<String>,
}

impl IndexChange {
    /// Reads a statement that changes indexes or the comment of a table, and nothing else.
    pub(super) fn read(sql: &[u8]) -> Option<Self> {
        let mut parser = Parser {
            tokens: tokens(sql)?,
            at: 0,
            change: Self::default(),
        };
        parser.statement()?;
        (parser.at == parser.tokens.len()).then_some(parser.change)
    }

    /// This index is there as before.
    pub(super) fn keeps(&self, index: &str) -> bool {
        !self.dropped.iter().any(|name| name.eq_ignore_ascii_case(index))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A word or a number.
    Word(&'a str),
    /// A name in backticks.
    Name(&'a str),
    Text,
    Sign(u8),
}

fn tokens(sql: &[u8]) -> Option<Vec<Token<'_>>> {
    let mut rest = str::from_utf8(sql).ok().filter(|text| text.is_ascii())?;
    if ["/*", "--", "#", "\\", "\"", "\0"]
        .iter()
        .any(|part| rest.contains(part))
    {
        return None;
    }
    let mut tokens = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        let Some(&first) = rest.as_bytes().first() else {
            return Some(tokens);
        };
        let len = match first {
            b'`' | b'\'' => {
                // What has its own quote in it, doubled, is left alone.
                let len = rest[1..].find(char::from(first))?;
                let (inner, behind) = (&rest[1..=len], &rest[len + 2..]);
                if behind.starts_with(char::from(first)) {
                    return None;
                }
                tokens.push(if first == b'`' {
                    Token::Name(inner)
                } else {
                    Token::Text
                });
                len + 2
            }
            b'(' | b')' | b',' | b'.' | b'=' => {
                tokens.push(Token::Sign(first));
                1
            }
            _ => {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
                let len = rest.find(|c| !is_plain(c)).unwrap_or(rest.len());
                tokens.push(Token::Word(rest.get(..len).filter(|word| !word.is_empty())?));
                len
            }
        };
        rest = &rest[len..];
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    change: IndexChange,
}

impl<'a> Parser<'a> {
    fn statement(&mut self) -> Option<()> {
        if self.take("CREATE") {
            self.take("UNIQUE");
            self.must("INDEX")?;
            self.maybe(&["IF", "NOT", "EXISTS"]);
            self.name()?;
            self.using()?;
            self.must("ON")?;
            self.table()?;
            self.columns()?;
            self.options(true)
        } else if self.take("DROP") {
            self.must("INDEX")?;
            self.drop_index()?;
            self.must("ON")?;
            self.table()?;
            self.options(true)
        } else {
            self.must("ALTER")?;
            self.must("TABLE")?;
            self.table()?;
            self.part()?;
            while self.take_sign(b',') {
                self.part()?;
            }
            Some(())
        }
    }

    /// Of ALTER TABLE.
    fn part(&mut self) -> Option<()> {
        if self.take("ADD") {
            let is_unique = self.take("UNIQUE");
            let is_index = self.take("INDEX") || self.take("KEY");
            (is_unique || is_index).then_some(())?;
            self.maybe(&["IF", "NOT", "EXISTS"]);
            if self.tokens.get(self.at) != Some(&Token::Sign(b'(')) && !self.sees("USING") {
                self.name()?;
            }
            self.using()?;
            self.columns()?;
            self.options(false)
        } else if self.take("DROP") {
            (self.take("INDEX") || self.take("KEY")).then_some(())?;
            self.drop_index()
        } else if self.take("COMMENT") {
            self.take_sign(b'=');
            self.text()
        } else {
            self.how().then_some(())
        }
    }

    fn drop_index(&mut self) -> Option<()> {
        self.maybe(&["IF", "EXISTS"]);
        let name = self.name()?.to_owned();
        self.change.dropped.push(name);
        Some(())
    }

    /// `(a, b(10) DESC)`: no expressions.
    fn columns(&mut self) -> Option<()> {
        self.sign(b'(')?;
        loop {
            self.name()?;
            if self.take_sign(b'(') {
                let Some(Token::Word(length)) = self.next() else {
                    return None;
                };
                length.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
                self.sign(b')')?;
            }
            let _ = self.take("ASC") || self.take("DESC");
            if !self.take_sign(b',') {
                return self.sign(b')');
            }
        }
    }

    /// `how`: the options of the statement may stand there, too.
    fn options(&mut self, how: bool) -> Option<()> {
        loop {
            if self.take("COMMENT") {
                self.text()?;
            } else if self.sees("USING") {
                self.using()?;
            } else if !(self.take("VISIBLE") || self.take("INVISIBLE") || how && self.how()) {
                return Some(());
            }
        }
    }

    fn using(&mut self) -> Option<()> {
        if self.take("USING") {
            (self.take("BTREE") || self.take("HASH")).then_some(())?;
        }
        Some(())
    }

    /// `ALGORITHM = INPLACE`, `LOCK = NONE`.
    fn how(&mut self) -> bool {
        if !self.take("ALGORITHM") && !self.take("LOCK") {
            return false;
        }
        self.take_sign(b'=');
        matches!(self.next(), Some(Token::Word(_)))
    }

    fn table(&mut self) -> Option<()> {
        self.name()?;
        if self.take_sign(b'.') {
            self.name()?;
        }
        Some(())
    }

    fn name(&mut self) -> Option<&'a str> {
        match self.next()? {
            &(Token::Word(name) | Token::Name(name)) => Some(name),
            Token::Text | Token::Sign(_) => None,
        }
    }

    fn text(&mut self) -> Option<()> {
        (*self.next()? == Token::Text).then_some(())
    }

    fn next(&mut self) -> Option<&Token<'a>> {
        self.at += 1;
        self.tokens.get(self.at - 1)
    }

    fn sees(&self, word: &str) -> bool {
        matches!(self.tokens.get(self.at), Some(Token::Word(found)) if found.eq_ignore_ascii_case(word))
    }

    fn take(&mut self, word: &str) -> bool {
        let sees = self.sees(word);
        self.at += usize::from(sees);
        sees
    }

    fn must(&mut self, word: &str) -> Option<()> {
        self.take(word).then_some(())
    }

    fn take_sign(&mut self, sign: u8) -> bool {
        let sees = self.tokens.get(self.at) == Some(&Token::Sign(sign));
        self.at += usize::from(sees);
        sees
    }

    fn sign(&mut self, sign: u8) -> Option<()> {
        self.take_sign(sign).then_some(())
    }

    /// All of these words, where the first is there.
    fn maybe(&mut self, words: &[&str]) {
        if words.iter().enumerate().all(|(at, word)| {
            matches!(self.tokens.get(self.at + at), Some(Token::Word(found)) if found.eq_ignore_ascii_case(word))
        }) {
            self.at += words.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_made_and_dropped() {
        for (sql, dropped) in [
            ("CREATE INDEX i ON t (a)", ""),
            (
                "create unique index `a b` using btree on `s`.`t` (a DESC, `b`(10)) COMMENT 'x, (y' LOCK=NONE algorithm inplace",
                "",
            ),
            ("CREATE INDEX IF NOT EXISTS i ON s.t(a)", ""),
            ("ALTER TABLE t ADD INDEX (a)", ""),
            (
                "ALTER TABLE t ADD KEY i USING HASH (a) INVISIBLE, ADD UNIQUE u (b), ALGORITHM=COPY",
                "",
            ),
            (
                "ALTER TABLE t ADD UNIQUE KEY (b), COMMENT = 'what', DROP INDEX i",
                "i",
            ),
            ("ALTER TABLE t DROP KEY IF EXISTS `PRIMARY`", "primary"),
            ("DROP INDEX i ON t", "I"),
        ] {
            let change = IndexChange::read(sql.as_bytes());
            let change = change.unwrap_or_else(|| panic!("{sql}"));
            assert_eq!(change.dropped.is_empty(), dropped.is_empty(), "{sql}");
            assert_eq!(change.keeps(dropped), dropped.is_empty(), "{sql}");
            assert!(change.keeps("other"));
        }
    }

    #[test]
    fn everything_else_is_something_else() {
        for sql in [
            "",
            "CREATE TABLE t (a INT)",
            "CREATE OR REPLACE INDEX i ON t (a)",
            "CREATE FULLTEXT INDEX i ON t (a)",
            "CREATE INDEX i ON t ((a + 1))",
            "CREATE INDEX i ON t (a, (b))",
            "CREATE INDEX i ON t (f(a))",
            "CREATE INDEX i ON t (a) ; DROP TABLE t",
            "/*!50001 CREATE INDEX i ON t (a) */",
            "CREATE INDEX i ON t (a) -- ",
            "CREATE INDEX i ON t (a) COMMENT \"x\"",
            "CREATE INDEX i ON t (a) COMMENT 'x\\'",
            "CREATE INDEX i ON t (a) COMMENT 'x''y'",
            "CREATE INDEX \u{fc} ON t (a)",
            "ALTER TABLE t",
            "ALTER TABLE t ADD i INT",
            "ALTER TABLE t ADD COLUMN i INT",
            "ALTER TABLE t ADD PRIMARY KEY (a)",
            "ALTER TABLE t ADD CONSTRAINT u UNIQUE (a)",
            "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES u (a)",
            "ALTER IGNORE TABLE t ADD UNIQUE (a)",
            "ALTER ONLINE TABLE t ADD INDEX (a)",
            "ALTER TABLE t ADD INDEX (a), DROP COLUMN b",
            "ALTER TABLE t ADD INDEX (a), DROP PRIMARY KEY",
            "ALTER TABLE t ADD INDEX (a) ENGINE = MyISAM",
            "ALTER TABLE t ADD INDEX (a) PARTITION BY KEY (a)",
            "ALTER TABLE t COMMENT 'x' ENGINE = MyISAM",
            "ALTER TABLE t COMMENT 'x' ROW_FORMAT = COMPRESSED",
            "ALTER TABLE t DROP i",
            "ALTER TABLE t DROP COLUMN i",
            "ALTER TABLE t RENAME INDEX i TO j",
            "ALTER TABLE t RENAME u",
            "ALTER TABLE t FORCE",
            "ALTER TABLE t ADD INDEX (a),",
            "DROP INDEX i ON t, u",
            "DROP TABLE t",
            "SET STATEMENT a=1 FOR CREATE INDEX i ON t (a)",
        ] {
            assert_eq!(IndexChange::read(sql.as_bytes()), None, "{sql}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(sql: Vec<u8>) {
            let _ = IndexChange::read(&sql);
        }

        #[test]
        fn no_words_panic(words in proptest::collection::vec("ALTER|TABLE|t|ADD|DROP|INDEX|UNIQUE|`|'|\\(|\\)|,|=|\\.|COMMENT|USING|LOCK", 0..12)) {
            let _ = IndexChange::read(words.join(" ").as_bytes());
        }
    }
}
