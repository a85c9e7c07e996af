//! The file form of a ProxySQL configuration, in the syntax of libconfig.
//!
//! A setting at the top is a group (`mysql_variables = { … }`), a list of groups
//! (`mysql_servers = ( { … }, … )`, a table with its rows), or a plain value that says nothing about routing.
//! Read without recursion: there is nothing deeper.

use crate::dump::{Dump, ImportError, Row};

/// Columns that have another name in the file than in the table.
const OTHER_NAMES: [(&str, &str); 2] = [("address", "hostname"), ("hostgroup", "hostgroup_id")];

/// Reads a whole text.
pub(crate) fn parse(text: &str) -> Result<Dump, ImportError> {
    let mut reader = Reader { text, at: 0, line: 1 };
    let mut dump = Dump::default();
    loop {
        reader.skip_blanks()?;
        if reader.rest().is_empty() {
            return Ok(dump);
        }
        if reader.rest().starts_with('@') {
            return Err(reader.wrong("another file is included here; put its text in its place"));
        }
        let name = reader.name()?;
        reader.assignment()?;
        if reader.take('{')? {
            let prefix = name.strip_suffix("_variables").unwrap_or(&name);
            for (variable, value) in reader.settings()? {
                let variable = match variable.strip_prefix(prefix) {
                    Some(rest) if rest.starts_with('-') => variable,
                    _ => format!("{prefix}-{variable}"),
                };
                dump.variables.insert(variable, value.unwrap_or_default());
            }
        } else if reader.take('(')? {
            rows(&mut reader, &name, &mut dump)?;
        } else {
            reader.value()?;
        }
        let _ = reader.take(';')? || reader.take(',')?;
    }
}

/// The groups of a list, after its `(`.
fn rows(reader: &mut Reader<'_>, table: &str, dump: &mut Dump) -> Result<(), ImportError> {
    while !reader.take(')')? {
        reader.skip_blanks()?;
        let line = reader.line;
        if !reader.take('{')? {
            return Err(reader.wrong("expected `{` or `)`"));
        }
        let mut columns = reader.settings()?;
        for (name, _) in &mut columns {
            if let Some((_, column)) = OTHER_NAMES.iter().find(|(other, _)| other == name) {
                *name = (*column).to_owned();
            }
        }
        // A rule of a file is active where that is not said, other than a row of the table.
        if table == "mysql_query_rules" && columns.iter().all(|(name, _)| name != "active") {
            columns.push(("active".to_owned(), Some("1".to_owned())));
        }
        dump.add(table, Row::new(line, columns))?;
        // ProxySQL's own examples leave the comma out.
        reader.take(',')?;
    }
    Ok(())
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn wrong(&self, problem: &str) -> ImportError {
        ImportError::new(self.line, problem)
    }

    fn take(&mut self, symbol: char) -> Result<bool, ImportError> {
        self.skip_blanks()?;
        let is_next = self.rest().starts_with(symbol);
        if is_next {
            self.at += symbol.len_utf8();
        }
        Ok(is_next)
    }

    /// The settings of a group, after its `{`.
    fn settings(&mut self) -> Result<Vec<(String, Option<String>)>, ImportError> {
        let mut settings = Vec::new();
        while !self.take('}')? {
            let name = self.name()?;
            self.assignment()?;
            settings.push((name, Some(self.value()?)));
            let _ = self.take(';')? || self.take(',')?;
        }
        Ok(settings)
    }

    fn name(&mut self) -> Result<String, ImportError> {
        self.skip_blanks()?;
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-' | '*'))
            .unwrap_or(rest.len());
        if end == 0 {
            return Err(self.wrong("expected the name of a setting"));
        }
        self.at += end;
        Ok(rest[..end].to_owned())
    }

    fn assignment(&mut self) -> Result<(), ImportError> {
        if self.take('=')? || self.take(':')? {
            Ok(())
        } else {
            Err(self.wrong("expected `=` or `:`"))
        }
    }

    /// A plain value: a text, a number, `true` or `false`.
    fn value(&mut self) -> Result<String, ImportError> {
        if self.take('"')? {
            let mut text = self.quoted()?;
            // Texts that follow one another are one.
            while self.take('"')? {
                text.push_str(&self.quoted()?);
            }
            return Ok(text);
        }
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '+' | '-'))
            .unwrap_or(rest.len());
        let word = &rest[..end];
        let lower = word.to_ascii_lowercase();
        self.at += end;
        if let "true" | "false" = lower.as_str() {
            return Ok(lower);
        }
        let hexadecimal = lower
            .trim_end_matches('l')
            .strip_prefix("0x")
            .map(|digits| u64::from_str_radix(digits, 16));
        match hexadecimal {
            Some(Ok(number)) => Ok(number.to_string()),
            None if word.parse::<f64>().is_ok() => Ok(word.to_owned()),
            None if lower.trim_end_matches('l').parse::<i64>().is_ok() => {
                Ok(lower.trim_end_matches('l').to_owned())
            }
            _ => Err(self.wrong("expected a text in quotes, a number, true or false")),
        }
    }

    /// The rest of a text after its opening quote.
    fn quoted(&mut self) -> Result<String, ImportError> {
        let begin = self.line;
        let mut text = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((place, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += place + 1;
                    return Ok(text);
                }
                '\\' => match chars.next().map(|(_, escaped)| escaped) {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some('f') => text.push('\u{c}'),
                    Some('x') => {
                        let digits: String = chars.by_ref().take(2).map(|(_, digit)| digit).collect();
                        let code = u8::from_str_radix(&digits, 16)
                            .map_err(|_| self.wrong("expected two digits after \\x"))?;
                        text.push(char::from(code));
                    }
                    Some(other @ ('"' | '\\')) => text.push(other),
                    // Kept, since regular expressions live from it.
                    Some(other) => text.extend(['\\', other]),
                    None => break,
                },
                '\n' => {
                    self.line += 1;
                    text.push(c);
                }
                _ => text.push(c),
            }
        }
        Err(ImportError::new(
            begin,
            "the text that opens here is never closed",
        ))
    }

    fn skip_blanks(&mut self) -> Result<(), ImportError> {
        loop {
            let rest = self.rest();
            let skipped = if rest.starts_with("/*") {
                match rest.find("*/") {
                    Some(end) => end + 2,
                    None => return Err(self.wrong("the comment that opens here is never closed")),
                }
            } else if rest.starts_with('#') || rest.starts_with("//") {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn groups_are_variables_and_lists_are_tables() {
        let dump = parse(
            "datadir=\"/var/lib/proxysql\"\n# c\nmysql_variables=\n{\n threads=4 // c\n interfaces=\"0.0.0.0:6033;\" \"/tmp/p.sock\"\n have_ssl=False;\n mysql-max_connections=10\n}\n\
             mysql_servers:\n(\n { address = \"db1\" , port=3306 , hostgroup=0x0A, weight=1L }\n { address=\"db2\"; hostgroup=2; },\n)\n",
        )
        .unwrap();
        assert_eq!(
            dump.variable("mysql-interfaces"),
            Some("0.0.0.0:6033;/tmp/p.sock")
        );
        assert_eq!(
            (dump.number("mysql-threads"), dump.number("mysql-max_connections")),
            (Some(4), Some(10))
        );
        assert_eq!(dump.flag("mysql-have_ssl"), Some(false));
        let servers = dump.rows("mysql_servers");
        assert_eq!(
            (servers[0].text("hostname"), servers[0].number("hostgroup_id")),
            (Some("db1"), Ok(Some(10)))
        );
        assert_eq!((servers[1].text("hostname"), servers[1].line), (Some("db2"), 13));
    }

    #[test]
    fn expressions_keep_their_backslashes() {
        let dump = parse(r#"r=({ a="^\\d \"x\" \?\x41" })"#).unwrap();
        assert_eq!(dump.rows("r")[0].text("a"), Some(r#"^\d "x" \?A"#));
    }

    #[test]
    fn mistakes_have_a_line() {
        let problem = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            problem("\n@include \"x\""),
            "line 2: another file is included here; put its text in its place"
        );
        assert_eq!(
            problem("a=\n({ b=c })"),
            "line 2: expected a text in quotes, a number, true or false"
        );
        assert_eq!(
            problem("a={\nb=\"x"),
            "line 2: the text that opens here is never closed"
        );
        assert_eq!(problem("a=(1)"), "line 1: expected `{` or `)`");
        assert_eq!(problem("a 1"), "line 1: expected `=` or `:`");
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(a|=|:|\\{|\\}|\\(|\\)|\"|\\\\|1|true|,|;| |\\n|#|/\\*|@|é){0,30}") {
            let _ = parse(&text);
        }
    }
}
