//! A Rust file as far as the rules of `tidy` need it: its code without comments and literals, and its functions.
//!
//! This is a scanner, not a parser: it knows where comments, strings and braces begin and end, and nothing else.

/// A Rust file.
pub(crate) struct Source {
    /// The text with every comment and every literal replaced by spaces; lines stay where they are.
    code: String,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function<'s> {
    pub(crate) name: &'s str,
    /// Line of its `fn`, from 1.
    pub(crate) line: usize,
    /// Lines between its braces that are neither blank nor comment, as clippy counts them.
    pub(crate) length: usize,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        Self { code: blank(text) }
    }

    /// Every line of code with its number, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }

    /// Names of modules declared here, with their line.
    pub(crate) fn modules(&self) -> impl Iterator<Item = (usize, &str)> {
        self.after_word("mod").map(|(at, name)| (self.line(at), name))
    }

    /// Every function with a body, outer ones before those inside them.
    pub(crate) fn functions(&self) -> impl Iterator<Item = Function<'_>> {
        self.after_word("fn").filter_map(|(at, name)| {
            let body = self.body(at)?;
            let length = self.code[body]
                .lines()
                .filter(|line| !line.trim().is_empty())
                .count();
            Some(Function {
                name,
                line: self.line(at),
                length,
            })
        })
    }

    /// Places where `word` is followed by a name: the place of the word, and the name.
    fn after_word<'s>(&'s self, word: &'s str) -> impl Iterator<Item = (usize, &'s str)> {
        let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
        self.code.match_indices(word).filter_map(move |(at, _)| {
            let whole = !self.code[..at].ends_with(part_of_name);
            let rest = &self.code[at + word.len()..];
            let name = rest.trim_start();
            let name = &name[..name.find(|c| !part_of_name(c)).unwrap_or(name.len())];
            (whole && rest.starts_with(char::is_whitespace) && !name.is_empty()).then_some((at, name))
        })
    }

    /// What is between the braces of the function whose `fn` is at `start`; `None` for one without a body.
    fn body(&self, start: usize) -> Option<std::ops::Range<usize>> {
        let mut parentheses = 0_usize;
        let mut braces = 0_usize;
        let mut begin = None;
        for (offset, byte) in self.code.bytes().enumerate().skip(start) {
            match (byte, begin) {
                (b'(' | b'[', None) => parentheses += 1,
                (b')' | b']', None) => parentheses = parentheses.saturating_sub(1),
                (b';', None) if parentheses == 0 => return None,
                (b'{', None) if parentheses == 0 => begin = Some(offset + 1),
                (b'{', Some(_)) => braces += 1,
                (b'}', Some(begin)) if braces == 0 => return Some(begin..offset),
                (b'}', Some(_)) => braces -= 1,
                _ => {}
            }
        }
        None
    }

    fn line(&self, at: usize) -> usize {
        self.code[..at].matches('\n').count() + 1
    }
}

/// Replaces comments and literals by spaces.
fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match literal(rest, code.chars().next_back()) {
            0 => {
                code.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            }
            length => length,
        };
        code.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &rest[length..];
    }
    code
}

/// Bytes of the comment or literal at the beginning of `text`; 0 where there is none.
fn literal(text: &str, before: Option<char>) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment(text);
    }
    let in_name = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let prefix = if in_name {
        0
    } else {
        text.len() - text.trim_start_matches(['b', 'c', 'r']).len()
    };
    let body = &text[prefix..];
    let hashes = body.len() - body.trim_start_matches('#').len();
    if prefix > 0 && text[..prefix].ends_with('r') && body[hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let begin = prefix + hashes + 1;
        return text[begin..]
            .find(&end)
            .map_or(text.len(), |at| begin + at + end.len());
    }
    match body.chars().next() {
        Some('"') => prefix + quoted(body, '"'),
        Some('\'') if is_character(body) => prefix + quoted(body, '\''),
        _ => 0,
    }
}

/// Block comments nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// `'a'` and `'\n'` are characters, `'a` is a lifetime.
fn is_character(text: &str) -> bool {
    let mut characters = text.chars().skip(1);
    match characters.next() {
        Some('\\') => true,
        Some(_) => characters.next() == Some('\''),
        None => false,
    }
}

/// Bytes of a literal between `quote`s, with escapes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_no_code() {
        let code = |text: &str| blank(text).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code("a // fn b\nc"), "a c");
        assert_eq!(code("a /* x /* y */ fn */ b"), "a b");
        assert_eq!(code(r##"a "fn \" {" r#"" fn"# b'{' '\'' 'x' b"##), "a b");
        assert_eq!(
            code("fn f<'a>(x: &'a str) { char = '}'; }"),
            "fn f<'a>(x: &'a str) { char = ; }"
        );
        assert_eq!(code("attribute\"x\" barb"), "attribute barb");
        assert_eq!(code("\"open"), "");
    }

    #[test]
    fn functions_are_measured_like_clippy_does() {
        let text = "\
fn one() {
    // a comment

    let text = \"}\";
    if true {
    }
}
trait T { fn without(&self) -> [u8; 4]; }
const fn short() -> usize { 1 }
";
        let source = Source::new(text);
        let functions: Vec<_> = source.functions().map(|f| (f.name, f.line, f.length)).collect();
        assert_eq!(functions, [("one", 1, 3), ("short", 9, 1)]);
    }

    #[test]
    fn modules_are_found_by_name() {
        let source = Source::new("mod a;\npub(crate) mod b {}\n// mod c;\nlet modest = 1;");
        assert_eq!(source.modules().collect::<Vec<_>>(), [(1, "a"), (2, "b")]);
    }
}
