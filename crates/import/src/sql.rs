//! The SQL text of ProxySQL's tables, from `sqlite3 proxysql.db .dump`, from `mysqldump` of the admin
//! interface, or written by hand for it.
//!
//! Understood are `CREATE TABLE` (for the order of columns), `INSERT`, `REPLACE`, and what sets a global
//! variable. What else would change a table is kept as not understood; the rest is passed over.

use std::collections::BTreeMap;

use crate::dump::{Dump, ImportError, Row, TABLES};

/// Calls inside calls inside a value: sqlite writes `replace(replace(…, char(10)), …)`.
const DEPTH_MAX: usize = 8;

/// What a value may be, and no more: a value with more is no configuration.
const VALUE_MAX: usize = 1 << 20;

/// Reads a whole text.
pub(crate) fn parse(text: &str) -> Result<Dump, ImportError> {
    let mut reader = Reader::new(text);
    let mut dump = Dump::default();
    let mut columns: BTreeMap<String, Vec<String>> = BTreeMap::new();
    loop {
        let token = reader.next()?;
        let line = reader.line;
        let word = match &token {
            Token::End => return Ok(dump),
            Token::Symbol(b';') => continue,
            Token::Word(word) => word.to_ascii_uppercase(),
            _ => String::new(),
        };
        match word.as_str() {
            "INSERT" | "REPLACE" => insert(&mut reader, &mut dump, &columns)?,
            "CREATE" => create(&mut reader, &mut columns)?,
            "UPDATE" => update(&mut reader, &mut dump, line)?,
            "SET" => set(&mut reader, &mut dump)?,
            "DELETE" => delete(&mut reader, &mut dump, line)?,
            _ => reader.skip_statement()?,
        }
    }
}

/// `INSERT [OR word] INTO [schema.]table [(columns)] VALUES (…), …`, after its first word.
fn insert(
    reader: &mut Reader<'_>,
    dump: &mut Dump,
    known: &BTreeMap<String, Vec<String>>,
) -> Result<(), ImportError> {
    while !reader.take_word("INTO")? {
        let Token::Word(_) = reader.next()? else {
            return Err(reader.expected("INTO"));
        };
    }
    let table = reader.table()?;
    let columns = if reader.take(b'(')? {
        Some(reader.names()?)
    } else {
        known.get(&table).cloned()
    };
    if !reader.take_word("VALUES")? {
        // `INSERT … SELECT` copies between tables of one file.
        return reader.skip_statement();
    }
    loop {
        let line = reader.line_of_next()?;
        if !reader.take(b'(')? {
            return Err(reader.expected("`(`"));
        }
        let mut values = Vec::new();
        loop {
            values.push(reader.value(0)?);
            match reader.next()? {
                Token::Symbol(b',') => {}
                Token::Symbol(b')') => break,
                _ => return Err(reader.expected("`,` or `)`")),
            }
        }
        let columns = match &columns {
            Some(columns) if columns.len() == values.len() => columns.iter().cloned(),
            Some(columns) => {
                let problem = format!(
                    "{} values for the {} columns of {table}",
                    values.len(),
                    columns.len()
                );
                return Err(ImportError::new(line, problem));
            }
            // sqlite has tables of its own that no CREATE TABLE is for.
            None if !TABLES.contains(&table.as_str()) => [].iter().cloned(),
            None => {
                let problem = format!(
                    "neither a list of columns nor a CREATE TABLE says what the values of {table} are"
                );
                return Err(ImportError::new(line, problem));
            }
        };
        dump.add(&table, Row::new(line, columns.zip(values).collect()))?;
        if !reader.take(b',')? {
            return reader.skip_statement();
        }
    }
}

/// `CREATE TABLE [IF NOT EXISTS] [schema.]table (…)`, after its first word.
fn create(reader: &mut Reader<'_>, columns: &mut BTreeMap<String, Vec<String>>) -> Result<(), ImportError> {
    if !reader.take_word("TABLE")? {
        return reader.skip_statement();
    }
    if reader.take_word("IF")? {
        reader.next()?;
        reader.next()?;
    }
    let table = reader.table()?;
    if !reader.take(b'(')? {
        return reader.skip_statement();
    }
    let mut names = Vec::new();
    let (mut depth, mut is_first) = (1_usize, true);
    while depth > 0 {
        match reader.next()? {
            Token::End => return Err(reader.expected("`)`")),
            Token::Symbol(b'(') => depth += 1,
            Token::Symbol(b')') => depth -= 1,
            Token::Symbol(b',') if depth == 1 => {
                is_first = true;
                continue;
            }
            Token::Word(word) if is_first && !is_constraint(&word) => names.push(word),
            Token::Quoted(name) if is_first => names.push(name),
            _ => {}
        }
        is_first = false;
    }
    columns.insert(table, names);
    reader.skip_statement()
}

fn is_constraint(word: &str) -> bool {
    ["PRIMARY", "UNIQUE", "CHECK", "CONSTRAINT", "FOREIGN", "KEY"]
        .iter()
        .any(|constraint| word.eq_ignore_ascii_case(constraint))
}

/// `UPDATE global_variables SET variable_value = … WHERE variable_name = …`, after its first word.
fn update(reader: &mut Reader<'_>, dump: &mut Dump, line: usize) -> Result<(), ImportError> {
    let table = reader.table()?;
    let mut parts = Vec::new();
    if table == "global_variables" {
        for word in [
            "SET",
            "variable_value",
            "=",
            "",
            "WHERE",
            "variable_name",
            "=",
            "",
        ] {
            match word {
                "" => parts.extend(reader.value(0)?),
                "=" if reader.take(b'=')? => {}
                word if reader.take_word(word)? => {}
                _ => break,
            }
        }
    }
    let is_whole = reader.peek()? == &Token::Symbol(b';') || reader.peek()? == &Token::End;
    match <[String; 2]>::try_from(parts) {
        Ok([value, name]) if is_whole => {
            dump.variables.insert(name, value);
        }
        _ => dump.not_understood.push((line, format!("UPDATE {table}"))),
    }
    reader.skip_statement()
}

/// `SET mysql-threads = 4`, after its first word. Other settings are those of whoever reads the dump.
fn set(reader: &mut Reader<'_>, dump: &mut Dump) -> Result<(), ImportError> {
    let Token::Word(name) = reader.next()? else {
        return reader.skip_statement();
    };
    let is_variable = name.starts_with("mysql-") || name.starts_with("admin-");
    if is_variable
        && reader.take(b'=')?
        && let Some(value) = reader.value(0)?
    {
        dump.variables.insert(name, value);
    }
    reader.skip_statement()
}

/// Before its table is filled it says nothing; afterwards it takes something away.
fn delete(reader: &mut Reader<'_>, dump: &mut Dump, line: usize) -> Result<(), ImportError> {
    if reader.take_word("FROM")? {
        let table = reader.table()?;
        let has_rows = !dump.rows(&table).is_empty();
        if has_rows {
            dump.not_understood.push((line, format!("DELETE FROM {table}")));
        }
    }
    reader.skip_statement()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A keyword, a number, or a name without quotes.
    Word(String),
    /// A name in backticks or double quotes.
    Quoted(String),
    /// A text in single quotes.
    Text(String),
    Symbol(u8),
    End,
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    /// The line of `at`.
    line: usize,
    /// `\` in a text makes something else of the character after it: in dumps of `mysqldump`, not in those of
    /// sqlite.
    has_escapes: bool,
    peeked: Option<Token>,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        let head: String = text.lines().take(20).collect::<Vec<_>>().join("\n");
        Self {
            text,
            at: 0,
            line: 1,
            has_escapes: ["-- MySQL dump", "-- MariaDB dump", "/*!40"]
                .iter()
                .any(|mark| head.contains(mark)),
            peeked: None,
        }
    }

    fn expected(&self, what: &str) -> ImportError {
        ImportError::new(self.line, format!("expected {what}"))
    }

    fn next(&mut self) -> Result<Token, ImportError> {
        match self.peeked.take() {
            Some(token) => Ok(token),
            None => self.read(),
        }
    }

    fn peek(&mut self) -> Result<&Token, ImportError> {
        let token = self.next()?;
        Ok(self.peeked.insert(token))
    }

    fn line_of_next(&mut self) -> Result<usize, ImportError> {
        self.peek()?;
        Ok(self.line)
    }

    fn take(&mut self, symbol: u8) -> Result<bool, ImportError> {
        let is_next = *self.peek()? == Token::Symbol(symbol);
        if is_next {
            self.peeked = None;
        }
        Ok(is_next)
    }

    fn take_word(&mut self, word: &str) -> Result<bool, ImportError> {
        let is_next = matches!(self.peek()?, Token::Word(next) if next.eq_ignore_ascii_case(word));
        if is_next {
            self.peeked = None;
        }
        Ok(is_next)
    }

    /// A table's name without its schema, in lower case.
    fn table(&mut self) -> Result<String, ImportError> {
        let mut name = self.name()?;
        if self.take(b'.')? {
            name = self.name()?;
        }
        Ok(name.to_ascii_lowercase())
    }

    fn name(&mut self) -> Result<String, ImportError> {
        match self.next()? {
            Token::Word(name) | Token::Quoted(name) | Token::Text(name) => Ok(name),
            _ => Err(self.expected("a name")),
        }
    }

    /// The rest of `(a, b, c)`.
    fn names(&mut self) -> Result<Vec<String>, ImportError> {
        let mut names = vec![self.name()?];
        while self.take(b',')? {
            names.push(self.name()?);
        }
        if self.take(b')')? {
            Ok(names)
        } else {
            Err(self.expected("`,` or `)`"))
        }
    }

    /// A literal; `None` is NULL. `char`, `replace` and `unistr` are there because sqlite writes texts of
    /// several lines with them; `unhex` since ProxySQL's manual gives hashes of passwords by it.
    fn value(&mut self, depth: usize) -> Result<Option<String>, ImportError> {
        let word = match self.next()? {
            Token::Text(text) | Token::Quoted(text) => return Ok(Some(text)),
            Token::Word(word) => word,
            _ => return Err(self.expected("a value")),
        };
        if word.eq_ignore_ascii_case("X") && matches!(self.peek()?, Token::Text(_)) {
            let digits = self.name()?;
            let text = hexadecimal(&digits).ok_or_else(|| self.expected("hexadecimal digits"))?;
            return Ok(Some(text));
        }
        if !self.take(b'(')? {
            return Ok((!word.eq_ignore_ascii_case("NULL")).then_some(word));
        }
        if depth == DEPTH_MAX {
            return Err(self.expected("fewer calls inside one another"));
        }
        let mut arguments = Vec::new();
        loop {
            arguments.push(self.value(depth + 1)?.unwrap_or_default());
            if !self.take(b',')? {
                break;
            }
        }
        if !self.take(b')')? {
            return Err(self.expected("`)`"));
        }
        let called = match (word.to_ascii_lowercase().as_str(), arguments.as_slice()) {
            ("char", [code]) => code.parse().ok().and_then(char::from_u32).map(String::from),
            ("unistr", [text]) => unistr(text),
            ("unhex", [digits]) => hexadecimal(digits),
            ("replace", [text, from, to]) if !from.is_empty() => Some(text.replace(from.as_str(), to)),
            _ => None,
        };
        match called.filter(|text| text.len() <= VALUE_MAX) {
            Some(text) => Ok(Some(text)),
            None => Err(ImportError::new(
                self.line,
                format!("{word}(…) is not understood"),
            )),
        }
    }

    fn skip_statement(&mut self) -> Result<(), ImportError> {
        while !matches!(self.next()?, Token::Symbol(b';') | Token::End) {}
        Ok(())
    }

    fn read(&mut self) -> Result<Token, ImportError> {
        self.skip_blanks()?;
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else {
            return Ok(Token::End);
        };
        match first {
            '\'' => self.quoted('\'').map(Token::Text),
            '"' | '`' => self.quoted(first).map(Token::Quoted),
            c if is_word(c) || c == '-' => {
                // A minus belongs to numbers and to names of variables.
                let end = rest.find(|c| !is_word(c) && c != '-').unwrap_or(rest.len());
                self.at += end;
                Ok(Token::Word(rest[..end].to_owned()))
            }
            c => {
                self.at += c.len_utf8();
                Ok(Token::Symbol(u8::try_from(c).unwrap_or(b'?')))
            }
        }
    }

    /// The text in quotes that begins here; the quote twice stands for itself.
    fn quoted(&mut self, quote: char) -> Result<String, ImportError> {
        let begin = self.line;
        let mut text = String::new();
        let mut chars = self.text[self.at..].char_indices().skip(1).peekable();
        while let Some((place, c)) = chars.next() {
            match c {
                '\n' => self.line += 1,
                '\\' if self.has_escapes && quote != '`' => {
                    let escaped = chars.next().map(|(_, escaped)| escaped);
                    text.extend(escaped.map(unescape));
                    continue;
                }
                // A second one is taken with the first, and one of them kept.
                c if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() => {
                    self.at += place + 1;
                    return Ok(text);
                }
                _ => {}
            }
            text.push(c);
        }
        Err(ImportError::new(
            begin,
            format!("the {quote} that opens a text here is never closed"),
        ))
    }

    /// Passes over white space and comments; what stands in a version comment (`/*!40101 … */`) is a comment
    /// here.
    fn skip_blanks(&mut self) -> Result<(), ImportError> {
        loop {
            let rest = &self.text[self.at..];
            let skipped = if rest.starts_with("/*") {
                match rest.find("*/") {
                    Some(end) => end + 2,
                    None => return Err(self.expected("`*/` for the `/*` here")),
                }
            } else if rest.starts_with("--") || rest.starts_with('#') {
                rest.find('\n').unwrap_or(rest.len())
            } else {
                rest.len() - rest.trim_start().len()
            };
            if skipped == 0 {
                return Ok(());
            }
            self.line += rest[..skipped].matches('\n').count();
            self.at += skipped;
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '@')
}

/// The text whose bytes are written as hexadecimal digits; what is no UTF-8 in it is marked as such.
fn hexadecimal(digits: &str) -> Option<String> {
    let bytes = config::from_hex(digits)?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// sqlite's texts with `\u000a` for a newline and `\\` for a backslash.
fn unistr(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(place) = rest.find('\\') {
        out.push_str(&rest[..place]);
        let escape = &rest[place + 1..];
        let (length, c) = match escape.strip_prefix('u') {
            Some(digits) => (
                5,
                char::from_u32(u32::from_str_radix(digits.get(..4)?, 16).ok()?)?,
            ),
            None if escape.starts_with('\\') => (1, '\\'),
            None => return None,
        };
        out.push(c);
        rest = &escape[length..];
    }
    Some(out + rest)
}

fn unescape(c: char) -> char {
    match c {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        '0' => '\0',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_have_the_columns_of_the_list_or_of_the_table() {
        let dump = parse(
            "PRAGMA foreign_keys=OFF;\n\
             CREATE TABLE mysql_users (username VARCHAR NOT NULL , active INT CHECK (active IN (0,1)) , PRIMARY KEY (username, active));\n\
             INSERT INTO mysql_users VALUES('it''s',1),('b',NULL);\n\
             insert or replace into main.mysql_servers (hostgroup_id, hostname)\n values (10, 'db1');",
        )
        .unwrap();
        let users = dump.rows("mysql_users");
        assert_eq!(users[0].text("username"), Some("it's"));
        assert!(users[1].is_null("ACTIVE"));
        assert_eq!(dump.rows("mysql_servers")[0].number("hostgroup_id"), Ok(Some(10)));
        assert_eq!(dump.rows("mysql_servers")[0].line, 5);
    }

    #[test]
    fn backslashes_mean_what_the_writer_meant() {
        let row = r"INSERT INTO t (p) VALUES ('id = \\?\'');";
        let by_mysqldump = parse(&format!("-- MySQL dump 10.13\n{row}")).unwrap();
        assert_eq!(by_mysqldump.rows("t")[0].text("p"), Some(r"id = \?'"));
        let by_sqlite = parse(r"INSERT INTO t (p) VALUES ('id = \?');").unwrap();
        assert_eq!(by_sqlite.rows("t")[0].text("p"), Some(r"id = \?"));
    }

    #[test]
    fn texts_of_several_lines_come_in_sqlites_way() {
        let dump = parse(r"INSERT INTO t (a) VALUES (replace('x\ny','\n',char(10)));").unwrap();
        assert_eq!(dump.rows("t")[0].text("a"), Some("x\ny"));
        let dump = parse(r"INSERT INTO t (a, b) VALUES (unistr('x\u000a\\y'), X'41fF');").unwrap();
        assert_eq!(dump.rows("t")[0].text("a"), Some("x\n\\y"));
        assert_eq!(dump.rows("t")[0].text("b"), Some("A\u{fffd}"));
        assert!(parse(r"INSERT INTO t (a) VALUES (unistr('\u12'));").is_err());
        assert!(parse("INSERT INTO t (a) VALUES (X'1');").is_err());
    }

    #[test]
    fn variables_come_in_three_ways() {
        let dump = parse(
            "INSERT INTO global_variables (variable_name, variable_value) VALUES ('mysql-threads','4');\n\
             UPDATE global_variables SET variable_value='m' WHERE variable_name='mysql-monitor_username';\n\
             SET mysql-have_ssl = 0; SET NAMES utf8;",
        )
        .unwrap();
        let variables: Vec<_> = dump
            .variables
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            variables,
            ["mysql-have_ssl=0", "mysql-monitor_username=m", "mysql-threads=4"]
        );
    }

    #[test]
    fn what_is_not_understood_is_kept_or_told_with_its_line() {
        let dump = parse("INSERT INTO t (a) VALUES (1);\nUPDATE t SET a=2;\nDELETE FROM t;\nDELETE FROM u;")
            .unwrap();
        assert_eq!(
            dump.not_understood,
            [(2, "UPDATE t".to_owned()), (3, "DELETE FROM t".to_owned())]
        );
        let problem = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            problem("\nINSERT INTO t (a, b) VALUES (1);"),
            "line 2: 1 values for the 2 columns of t"
        );
        assert!(problem("INSERT INTO mysql_users VALUES (1);").contains("neither a list of columns"));
        assert!(problem("INSERT INTO t (a) VALUES ('x").contains("never closed"));
        assert!(problem("INSERT INTO t (a) VALUES (load_file('x'));").contains("not understood"));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(INSERT|INTO|t|\\(|\\)|'|\\\\|,|VALUES|;|CREATE TABLE| |\\n|/\\*|--|é){0,30}") {
            let _ = parse(&text);
        }

        #[test]
        fn a_text_in_quotes_is_read_back(text in "[a-z'\\\\ \\n;é]{0,20}") {
            let dump = parse(&format!("INSERT INTO t (a) VALUES ('{}');", text.replace('\'', "''"))).unwrap();
            prop_assert_eq!(dump.rows("t")[0].text("a"), Some(text.as_str()));
        }
    }
}
