//! Which user variables a text names.

use crate::syntax::Syntax;
use crate::token::{Kind, Tokenizer};

/// Names of a text that are told.
const NAMES_MAX: usize = 64;
/// As long as a server lets a name be, in characters.
const NAME_MAX: usize = 64;

/// The user variables that a text names, in lower case, each once. `None`: it cannot be read to its end, or
/// names too many, or one in other than plain characters.
#[must_use]
pub fn user_variables(sql: &[u8], syntax: Syntax) -> Option<Vec<Box<[u8]>>> {
    let mut tokens = Tokenizer::new(sql, syntax);
    let mut names: Vec<Box<[u8]>> = Vec::new();
    loop {
        let token = tokens.next();
        match token.kind {
            Kind::End => break,
            Kind::Variable => {
                let name = plain(&tokens.text(token)[1..])?
                    .to_ascii_lowercase()
                    .into_boxed_slice();
                if !names.contains(&name) {
                    names.push(name);
                }
                if names.len() > NAMES_MAX {
                    return None;
                }
            }
            _ => {}
        }
    }
    (!tokens.doubtful).then_some(names)
}

/// The name, with or without quotes, where it has only characters that mean the same everywhere.
fn plain(written: &[u8]) -> Option<&[u8]> {
    let name = match written {
        [b'`', name @ .., b'`'] | [b'"', name @ .., b'"'] | [b'\'', name @ .., b'\''] => name,
        name => name,
    };
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.$".contains(byte);
    (!name.is_empty() && name.len() <= NAME_MAX && name.iter().all(is_plain)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(sql: &str) -> Option<Vec<String>> {
        let names = user_variables(sql.as_bytes(), Syntax::default())?;
        let text = |name: Box<[u8]>| String::from_utf8(name.into()).unwrap();
        Some(names.into_iter().map(text).collect())
    }

    #[test]
    fn each_is_named_once_however_it_is_written() {
        let sql = "SET @a = 1, @`A` = @@sql_mode, @'b.c' = (SELECT @d := '@e' /* @f */ FROM t)";
        assert_eq!(named(sql).unwrap(), ["a", "b.c", "d"]);
        assert_eq!(named("SELECT 1").unwrap(), [""; 0]);
    }

    #[test]
    fn what_is_not_plain_is_not_told() {
        assert_eq!(named("SET @ä = 1"), None);
        assert_eq!(named("SET @`a``b` = 1"), None);
        assert_eq!(named("SET @a = 'b"), None, "it has no end");
        let many: Vec<_> = (0..65).map(|number| format!("@v{number} = 1")).collect();
        assert_eq!(named(&format!("SET {}", many.join(", "))), None);
    }
}
