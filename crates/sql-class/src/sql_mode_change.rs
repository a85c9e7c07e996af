//! Texts whose beginning changes how a server reads the rest: `SET sql_mode = 'ANSI_QUOTES'; SELECT "a"`.
//!
//! Servers read one statement of a text after the other, each under what those before it have set. Here all
//! are read under what the session had at the beginning, and it is only said where that makes a difference.

use crate::syntax::{Charset, Syntax};
use crate::token::{Kind, Token, Tokenizer};

/// What a `SET` has changed of that, as far as can be known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Change {
    modes: bool,
    charset: bool,
}

/// Modes that are about quotes, or of which these are a part, in upper case.
const OF_QUOTES: [&[u8]; 7] = [
    b"ANSI",
    b"NO_BACKSLASH",
    b"ORACLE",
    b"DB2",
    b"MAXDB",
    b"MSSQL",
    b"POSTGRESQL",
];

impl Change {
    pub(crate) fn is_any(self) -> bool {
        self.modes || self.charset
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            modes: self.modes || other.modes,
            charset: self.charset || other.charset,
        }
    }

    /// By an assignment to this name; `value` is what stands behind it.
    pub(crate) fn by(name: &[u8], value: &[u8], syntax: Syntax) -> Self {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            8 if is("sql_mode") => Self {
                modes: syntax.ansi_quotes || syntax.no_backslash_escapes || !is_plain_mode(value, syntax),
                charset: false,
            },
            4 | 5 | 7 | 9 | 20
                if is("NAMES")
                    || is("CHARACTER")
                    || is("CHARSET")
                    || is("CHAR")
                    || is("character_set_client") =>
            {
                Self {
                    modes: false,
                    charset: charset_in(value, syntax) != Some(syntax.charset),
                }
            }
            _ => Self::default(),
        }
    }

    /// Whether what comes from there on may be read otherwise than it was.
    pub(crate) fn matters(self, sql: &[u8], syntax: Syntax, from: usize) -> bool {
        let mut tokens = Tokenizer::new(sql, syntax);
        loop {
            let token = tokens.next();
            if token.kind == Kind::End {
                return false;
            }
            if token.start >= from && self.matters_to(token, tokens.text(token)) {
                return true;
            }
        }
    }

    fn matters_to(self, token: Token, text: &[u8]) -> bool {
        let has_backslash = text.contains(&b'\\');
        let has_more = text.iter().any(|byte| *byte >= 0x80);
        self.modes && (has_backslash || text.contains(&b'"') && text[0] != b'\'')
            || self.charset && has_more && (has_backslash || token.kind != Kind::String)
    }
}

/// `= 'STRICT_TRANS_TABLES'`: one string and nothing else, that says what is written.
fn is_plain_mode(value: &[u8], syntax: Syntax) -> bool {
    let value = behind_assignment(value);
    let mut tokens = Tokenizer::new(value, syntax);
    let token = tokens.next();
    let text = tokens.text(token);
    let is_one = token.kind == Kind::String && tokens.next().kind == Kind::End;
    let upper = text.to_ascii_uppercase();
    let is_named = |mode: &&[u8]| upper.windows(mode.len()).any(|part| part == *mode);
    is_one && text.starts_with(b"'") && !text.contains(&b'\\') && !OF_QUOTES.iter().any(is_named)
}

/// `= utf8mb4`, ` 'utf8mb4' COLLATE …`, ` SET utf8mb4`. `None` where it is not one known name: a number, an
/// expression, `DEFAULT`.
fn charset_in(value: &[u8], syntax: Syntax) -> Option<Charset> {
    let value = behind_assignment(value);
    let mut tokens = Tokenizer::new(value, syntax);
    let mut word = || {
        let token = tokens.next();
        (token.kind != Kind::End).then(|| tokens.text(token))
    };
    let is = |word: Option<&[u8]>, known: &str| {
        word.is_some_and(|word| word.eq_ignore_ascii_case(known.as_bytes()))
    };
    let mut name = word();
    if is(name, "SET") {
        name = word();
    }
    let further = word();
    let ends = further.is_none() || is(further, "COLLATE") && word().is_some() && word().is_none();
    let charset = Charset::known(without_quotes(name?))?;
    ends.then_some(charset)
}

fn behind_assignment(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii_start();
    let assigned = value.strip_prefix(b":=").or_else(|| value.strip_prefix(b"="));
    assigned.unwrap_or(value)
}

fn without_quotes(word: &[u8]) -> &[u8] {
    match word {
        [first @ (b'\'' | b'"' | b'`'), name @ .., last] if first == last => name,
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Effects, facts};

    fn is_trusted(sql: &str, syntax: Syntax) -> bool {
        !facts(sql.as_bytes(), syntax)
            .effects
            .contains(Effects::INCOMPLETE)
    }

    #[test]
    fn what_may_be_read_in_another_way() {
        for sql in [
            r"SET sql_mode = 'NO_BACKSLASH_ESCAPES'; SELECT '\'; DO GET_LOCK('a', 0); SELECT ''",
            r#"SET @@session.sql_mode := 'ansi'; SELECT "a'b"; DO GET_LOCK('a', 0); SELECT "c'd""#,
            r"SET a = 1, SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES'); SELECT 1; SELECT 'it\'s'",
            "SET NAMES gbk; SELECT 'é\\', GET_LOCK('a', 0), '",
            "SET character_set_client = 'sjis'; SELECT `é`",
            "SET CHARACTER SET big5; SELECT é",
            r"SET sql_mode = 'NO_BACK' 'SLASH_ESCAPES'; SELECT '\', 0 'x'; DO GET_LOCK('hid', 0); SELECT 1 -- '",
            r"SET sql_mode = 'NO_BACK\SLASH_ESCAPES'; SELECT '\', 0 'x'; DO GET_LOCK('hid', 0); SELECT 1 -- '",
            r#"SET sql_mode = '' + 4; SELECT "a""#,
            r#"SET sql_mode = '' | 4, @a = 1; SELECT "a""#,
            r#"SET sql_mode = @mode; SELECT "a""#,
            "SET character_set_client = 'utf8' + 28; SELECT `é`",
            "SET character_set_client = 'utf8mb4' 'x'; SELECT `é`",
        ] {
            let found = facts(sql.as_bytes(), Syntax::default());
            assert!(found.effects.contains(Effects::INCOMPLETE), "{sql}");
            assert_eq!(found.class, Class::Unknown, "{sql}");
        }
        let ansi = Syntax {
            ansi_quotes: true,
            ..Syntax::default()
        };
        assert!(!is_trusted(r#"SET sql_mode = ''; SELECT "a""#, ansi));
    }

    #[test]
    fn what_is_no_name_of_a_charset_may_be_any() {
        let latin1 = Syntax {
            charset: Charset::SingleByte,
            ..Syntax::default()
        };
        for sql in [
            "SET character_set_client = 28",
            "SET character_set_client = CONCAT('g', 'bk')",
            "SET character_set_client = @cs",
            "SET character_set_client = 'klingon'",
            "SET character_set_client = DEFAULT",
            "SET NAMES DEFAULT",
            "SET NAMES gbk",
        ] {
            assert!(!is_trusted(&format!("{sql}; SELECT `é`"), latin1), "{sql}");
        }
        for sql in [
            "SET NAMES latin1",
            "SET character_set_client := `latin2`",
            "SET CHARACTER SET 'KOI8R'",
            "SET NAMES latin1 COLLATE latin1_bin",
        ] {
            assert!(is_trusted(&format!("{sql}; SELECT `é`"), latin1), "{sql}");
        }
    }

    #[test]
    fn what_is_read_the_same() {
        for sql in [
            r#"SET sql_mode = 'STRICT_TRANS_TABLES'; SELECT 'it\'s', "a""#,
            r#"SET sql_mode := '', @a = 1; SELECT 'it\'s', "a""#,
            r#"SELECT "a", '\''; SET sql_mode = 'ANSI_QUOTES'"#,
            r#"SET sql_mode = 'ANSI_QUOTES'; SELECT 'a"b', 1"#,
            "SET NAMES utf8mb4 COLLATE utf8mb4_bin; SELECT 'é\\'', `é`",
            r#"SET NAMES gbk; SELECT 'it\'s', "a""#,
            "SET NAMES gbk; SELECT 'é'",
            r#"SET GLOBAL sql_mode = 'ANSI_QUOTES'; SELECT "a""#,
            r#"SET @sql_mode = 'ANSI_QUOTES'; SELECT "a""#,
            r#"CREATE PROCEDURE p() BEGIN SELECT 1; SET sql_mode = 'ANSI_QUOTES'; SELECT "a"; END"#,
        ] {
            assert!(is_trusted(sql, Syntax::default()), "{sql}");
        }
    }
}
