//! The text of an `haproxy.cfg` as sections of lines of words.

use crate::dump::ImportError;

/// Lines of a file. Generated ones have a few thousand.
const LINES_MAX: usize = 100_000;

/// One line that says something.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    /// At least one.
    pub(super) words: Vec<String>,
    /// A `$` outside single quotes: something of the environment, which is not here.
    pub(super) has_variable: bool,
}

impl Line {
    pub(super) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// All of it, as one would quote it.
    pub(super) fn shown(&self) -> String {
        shown(&self.words)
    }
}

/// Words in backticks, cut where they are many.
pub(super) fn shown(words: &[String]) -> String {
    const LONGEST: usize = 60;
    let text = words.join(" ");
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("`{}…`", &text[..cut]),
        None => format!("`{text}`"),
    }
}

/// From one header to the next.
#[derive(Debug)]
pub(super) struct Section {
    /// `frontend mysql`, for instance, with what follows it.
    pub(super) header: Line,
    pub(super) lines: Vec<Line>,
}

impl Section {
    pub(super) fn kind(&self) -> &str {
        self.header.word(0)
    }

    pub(super) fn name(&self) -> &str {
        self.header.word(1)
    }

    pub(super) fn length(&self) -> String {
        match self.lines.len() {
            1 => "1 line".to_owned(),
            count => format!("{count} lines"),
        }
    }
}

/// Words that begin a section.
const HEADERS: [&str; 20] = [
    "acme",
    "backend",
    "cache",
    "crt-store",
    "defaults",
    "fcgi-app",
    "frontend",
    "global",
    "http-errors",
    "listen",
    "log-forward",
    "log-profile",
    "mailers",
    "peers",
    "program",
    "resolvers",
    "ring",
    "traces",
    "userlist",
    "healthcheck",
];

/// All sections. What stands in front of the first has a header without words.
pub(super) fn sections(text: &str) -> Result<Vec<Section>, ImportError> {
    let mut sections: Vec<Section> = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let number = index + 1;
        if number > LINES_MAX {
            return Err(ImportError::new(number, format!("more than {LINES_MAX} lines")));
        }
        let line = line(number, text)?;
        if line.words.is_empty() {
            continue;
        }
        if HEADERS.contains(&line.word(0)) {
            sections.push(Section {
                header: line,
                lines: Vec::new(),
            });
        } else if let Some(section) = sections.last_mut() {
            section.lines.push(line);
        } else {
            let words = Vec::new();
            let header = Line {
                number,
                words,
                has_variable: false,
            };
            sections.push(Section {
                header,
                lines: vec![line],
            });
        }
    }
    Ok(sections)
}

/// Words end at blanks outside quotes; a backslash takes its meaning from the next character; `#` begins a
/// comment.
fn line(number: usize, text: &str) -> Result<Line, ImportError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut has_variable = false;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match (quote, c) {
            (None, '#') => break,
            (None, c) if c.is_ascii_whitespace() => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if c == open => quote = None,
            (None | Some('"'), '\\') => {
                let next = rest
                    .next()
                    .ok_or_else(|| ImportError::new(number, "a backslash at the end of the line"))?;
                word.get_or_insert_default().push(next);
            }
            (_, c) => {
                has_variable |= c == '$' && quote != Some('\'');
                word.get_or_insert_default().push(c);
            }
        }
    }
    if let Some(quote) = quote {
        return Err(ImportError::new(number, format!("a {quote} without its end")));
    }
    words.extend(word);
    Ok(Line {
        number,
        words,
        has_variable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_haproxy_makes_of_a_line() {
        let words = |text: &str| line(1, text).unwrap().words;
        assert_eq!(
            words("\tserver  db1 10.0.0.1:3306 check # the first"),
            ["server", "db1", "10.0.0.1:3306", "check"]
        );
        assert_eq!(
            words(r#"a\ b 'c "d' "e 'f" g\#h """#),
            ["a b", "c \"d", "e 'f", "g#h", ""]
        );
        assert_eq!(words("  # nothing"), [""; 0]);
        assert!(line(1, "bind :\"${PORT}\"").unwrap().has_variable);
        assert!(!line(1, "a '$b'").unwrap().has_variable);
        assert_eq!(
            line(7, "a 'b").unwrap_err().to_string(),
            "line 7: a ' without its end"
        );
        assert_eq!(
            line(7, "a\\").unwrap_err().to_string(),
            "line 7: a backslash at the end of the line"
        );
    }
}
