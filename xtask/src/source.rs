//! A Rust file as far as the rules of `tidy` and the counts of `figures` need it: its code without comments
//! and literals, its functions, and what of it is there for tests only.
//!
//! This is a scanner, not a parser: it knows where comments, strings and braces begin and end, and nothing
//! else.

use std::ops::Range;

/// A Rust file.
pub(crate) struct Source {
    /// The text with every comment and every literal replaced by spaces; lines stay where they are.
    code: String,
    /// Where comments to the end of a line begin, in bytes of the text.
    comments: Vec<usize>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function<'s> {
    pub(crate) name: &'s str,
    /// Line of its `fn`, from 1.
    pub(crate) line: usize,
    /// Lines between its braces that are neither blank nor comment, as clippy counts them.
    pub(crate) length: usize,
    /// What stands between its `fn` and its body.
    pub(crate) head: &'s str,
    /// Where its `fn` is.
    pub(crate) at: usize,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let (code, comments) = blank(text);
        Self { code, comments }
    }

    /// Every line of code with its number, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }

    /// Every line of the text that is nothing but a comment, with its number, from 1. What looks like one
    /// inside a literal is none.
    pub(crate) fn comment_lines<'t>(&self, text: &'t str) -> Vec<(usize, &'t str)> {
        let mut begins = self.comments.iter().copied().peekable();
        let mut at = 0;
        let mut found = Vec::new();
        for (index, line) in text.split_inclusive('\n').enumerate() {
            let begin = at + (line.len() - line.trim_start().len());
            at += line.len();
            while begins.next_if(|comment| *comment < begin).is_some() {}
            if begins.peek() == Some(&begin) {
                found.push((index + 1, line.trim_end()));
            }
        }
        found
    }

    /// Names of modules declared here, with their line.
    pub(crate) fn modules(&self) -> impl Iterator<Item = (usize, &str)> {
        self.after_word("mod").map(|(at, name)| (self.line(at), name))
    }

    /// Every function with a body, outer ones before those inside them.
    pub(crate) fn functions(&self) -> impl Iterator<Item = Function<'_>> {
        self.after_word("fn").filter_map(|(at, name)| {
            let body = self.body(at)?;
            let head = &self.code[at..body.start - 1];
            let length = self.code[body]
                .lines()
                .filter(|line| !line.trim().is_empty())
                .count();
            Some(Function {
                name,
                line: self.line(at),
                length,
                head,
                at,
            })
        })
    }

    /// Its code, with spaces in the place of comments and literals.
    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    /// Whether the word stands in its code.
    pub(crate) fn names(&self, word: &str) -> bool {
        self.whole_words(word).next().is_some()
    }

    /// Where the items under `#[cfg(test)]` are, with that attribute. Other conditions, such as
    /// `cfg(any(test, fuzzing))`, are not looked at: what they hold is also built for something else.
    pub(crate) fn test_items(&self) -> Vec<Range<usize>> {
        let mut items: Vec<Range<usize>> = Vec::new();
        for (at, _) in self.code.match_indices("#[cfg(test)]") {
            if items.last().is_none_or(|item| item.end <= at) {
                items.push(at..self.item_end(at));
            }
        }
        items
    }

    /// The same without what is there for tests only; lines stay where they are.
    pub(crate) fn without_tests(&self) -> Self {
        let mut code = self.code.clone();
        for item in self.test_items() {
            let blank: String = self.code[item.clone()]
                .bytes()
                .map(|byte| if byte == b'\n' { '\n' } else { ' ' })
                .collect();
            code.replace_range(item, &blank);
        }
        Self {
            code,
            comments: self.comments.clone(),
        }
    }

    /// Lines that the range touches.
    pub(crate) fn lines_of(&self, range: &Range<usize>) -> usize {
        self.code[range.clone()].matches('\n').count() + 1
    }

    /// What is between the braces of each `impl` of the type itself or of a trait for it.
    pub(crate) fn impls<'s>(&'s self, name: &'s str) -> impl Iterator<Item = Range<usize>> {
        self.whole_words("impl").filter_map(move |at| {
            let body = self.body(at)?;
            let head = self.code[at..body.start - 1].trim_end();
            let named = head.strip_suffix(name)?;
            named.ends_with([' ', ':', '>']).then_some(body)
        })
    }

    /// Names of the fields of the struct; `None` where it is not here.
    pub(crate) fn fields(&self, name: &str) -> Option<Vec<&str>> {
        let (at, _) = self.after_word("struct").find(|(_, found)| *found == name)?;
        let body = &self.code[self.body(at)?];
        let (mut depth, mut begin) = (0_i32, 0);
        let mut fields = Vec::new();
        let mut before = b' ';
        for (offset, byte) in body.bytes().enumerate() {
            match byte {
                b'(' | b'[' | b'{' | b'<' => depth += 1,
                b'>' if before == b'-' => {}
                b')' | b']' | b'}' | b'>' => depth -= 1,
                b',' if depth == 0 => {
                    fields.push(&body[begin..offset]);
                    begin = offset + 1;
                }
                _ => {}
            }
            before = byte;
        }
        fields.push(&body[begin..]);
        let name = |field: &'_ str| field.split_once(':').map(|(head, _)| head.len());
        let named = fields
            .into_iter()
            .filter_map(|field| Some(&field[..name(field)?]));
        Some(named.filter_map(|head| head.split_whitespace().last()).collect())
    }

    /// Places where `word` is followed by a name: the place of the word, and the name.
    fn after_word<'s>(&'s self, word: &'s str) -> impl Iterator<Item = (usize, &'s str)> {
        self.whole_words(word).filter_map(move |at| {
            let rest = &self.code[at + word.len()..];
            let name = rest.trim_start();
            let name = &name[..name.find(|c| !part_of_name(c)).unwrap_or(name.len())];
            (rest.starts_with(char::is_whitespace) && !name.is_empty()).then_some((at, name))
        })
    }

    /// Places of the word where it is no part of a longer one.
    fn whole_words<'s>(&'s self, word: &'s str) -> impl Iterator<Item = usize> {
        self.code.match_indices(word).filter_map(move |(at, _)| {
            let whole = !self.code[..at].ends_with(part_of_name)
                && !self.code[at + word.len()..].starts_with(part_of_name);
            whole.then_some(at)
        })
    }

    /// What is between the braces of the item whose head begins at `start`; `None` for one without a body.
    fn body(&self, start: usize) -> Option<Range<usize>> {
        let (opening, b'{') = self.head_end(start)? else {
            return None;
        };
        let mut depth = 0_usize;
        for (offset, byte) in self.code.bytes().enumerate().skip(opening + 1) {
            match byte {
                b'{' => depth += 1,
                b'}' if depth == 0 => return Some(opening + 1..offset),
                b'}' => depth -= 1,
                _ => {}
            }
        }
        None
    }

    /// Where the item whose head begins at `start` is over.
    fn item_end(&self, start: usize) -> usize {
        match (self.body(start), self.head_end(start)) {
            (Some(body), _) => body.end + 1,
            (None, Some((semicolon, b';'))) => semicolon + 1,
            (None, _) => self.code.len(),
        }
    }

    /// The first semicolon or brace outside parentheses, and where it is.
    fn head_end(&self, start: usize) -> Option<(usize, u8)> {
        let mut parentheses = 0_usize;
        for (offset, byte) in self.code.bytes().enumerate().skip(start) {
            match byte {
                b'(' | b'[' => parentheses += 1,
                b')' | b']' => parentheses = parentheses.saturating_sub(1),
                b';' | b'{' if parentheses == 0 => return Some((offset, byte)),
                _ => {}
            }
        }
        None
    }

    fn line(&self, at: usize) -> usize {
        self.code[..at].matches('\n').count() + 1
    }
}

/// Whether the character may stand in a name.
pub(crate) fn part_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Replaces comments and literals by spaces, and says where comments to the end of a line begin.
fn blank(text: &str) -> (String, Vec<usize>) {
    let mut code = String::with_capacity(text.len());
    let mut comments = Vec::new();
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
        if rest.starts_with("//") {
            comments.push(text.len() - rest.len());
        }
        code.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &rest[length..];
    }
    (code, comments)
}

/// Bytes of the comment or literal at the beginning of `text`; 0 where there is none.
fn literal(text: &str, before: Option<char>) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment(text);
    }
    let in_name = before.is_some_and(part_of_name);
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
        let code = |text: &str| blank(text).0.split_whitespace().collect::<Vec<_>>().join(" ");
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

    #[test]
    fn what_is_for_tests_is_found() {
        let text = "\
mod a;
#[cfg(test)]
mod tests;
#[cfg(test)]
const SIZES: [u8; 2] = [1, 2];
fn b() {}
#[cfg(test)]
mod inner {
    #[cfg(test)]
    fn c() {}
}
";
        let source = Source::new(text);
        let items = source.test_items();
        let lines: Vec<_> = items.iter().map(|item| source.lines_of(item)).collect();
        assert_eq!(lines, [2, 2, 5]);
        let rest = source.without_tests();
        assert_eq!(
            rest.code().split_whitespace().collect::<Vec<_>>(),
            ["mod", "a;", "fn", "b()", "{}"]
        );
        assert_eq!(rest.lines().count(), source.lines().count());
    }

    #[test]
    fn fields_of_a_struct_are_named() {
        let text = "struct Other { x: u8 }\npub struct S {\n    /// Text, with: all.\n    pub(crate) a: Map<u8, u8>,\n    \
                    b: fn(u8, u8) -> u8,\n    #[rare]\n    c: [u8; 2],\n}\n";
        assert_eq!(Source::new(text).fields("S"), Some(vec!["a", "b", "c"]));
        assert_eq!(Source::new(text).fields("T"), None);
    }

    #[test]
    fn implementations_are_those_of_the_type() {
        let text = "impl S { one }\nimpl<'a> Drop for x::S { two }\nimpl From<S> for T { three }\nimpl OtherS { four }";
        let source = Source::new(text);
        let bodies: Vec<_> = source.impls("S").map(|body| source.code()[body].trim()).collect();
        assert_eq!(bodies, ["one", "two"]);
    }
}
