//! Which texts may be written, and which are kept as a digest alone.
//!
//! What names an account, a key or a connection is not written: `CREATE USER`, `SET PASSWORD`, `GRANT …
//! IDENTIFIED`, `CHANGE MASTER`, `CREATE SERVER`, `AES_ENCRYPT` and their like, in comments that servers
//! execute and in texts of `PREPARE` as well. Nor is what is not surely understood. The words are looked for
//! everywhere in the text, in quotes and comments, too: a statement that only mentions one of them is
//! withheld as well. A column called `password` is none of them.

use std::sync::LazyLock;

use regex::bytes::Regex;
use sql_class::{Class, Dialect, Effects, Facts, Syntax};

/// The longest text that is written.
pub const TEXT_MAX: usize = 1 << 20;

/// Words of statements with secrets, wherever they are in a text. Between two of them there may be anything
/// that is no letter: spaces, comments, quotes that are glued together.
static WORDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    const WORDS: &str = r"(?xis-u)
        identified \W* (?:by|with|via|as|for)
        | \b(?:create|alter|drop|rename)\W+(?:or\W+replace\W+)?(?:user|server)\b
        | password\W*\(
        | \bchange\W+(?:master|replication)\b
        | (?:master|source)_(?:user|password|ssl_key|public_key_path)
        | \b(?:start|stop)\W+(?:replica|slave|group_replication)\b
        | \bclone\W+(?:instance|local)\b
        | (?:aes|des)_(?:en|de)crypt | \b(?:en|de)crypt\W*\( | \b(?:en|de)code\W*\( | \bkdf\W*\(
        | asymmetric_ | create_dh_parameters | keyring_key | authentication_string
        | \bmysql\W{0,3}\.\W{0,3}(?:user|global_priv|servers|slave_)
        | \bconnection\W*=\W*mysql | \bengine\W+(?:federated|spider|connect|s3)\b
        | ://[^\s/@']*:[^\s/@']*@
        | \b(?:grant|revoke)\b.{0,400}?\b(?:identified|require)\b
        | wsrep_sst_auth | validate_password_strength | ssl_passphrase";
    Regex::new(WORDS).ok()
});

/// Whether the text of a statement may be written.
#[must_use]
pub fn may_be_written(text: &[u8]) -> bool {
    let has_words = || WORDS.as_ref().is_none_or(|words| words.is_match(text));
    if text.len() > TEXT_MAX || has_words() || sets_password(text) {
        return false;
    }
    let has = |what: &[u8]| text.windows(what.len()).any(|part| part == what);
    if !is_harmless(&sql_class::facts(text, Syntax::default()), text) {
        return false;
    }
    // How a text is cut into tokens turns on what the session has set, and on whose server it is; where that
    // can make a difference, all readings have to be harmless. One in which a quote has no end is none: the
    // server has refused it.
    let mut readings = Vec::new();
    if has(b"\\") {
        readings.push(Syntax {
            no_backslash_escapes: true,
            ..Syntax::default()
        });
    }
    if has(b"\"") {
        readings.push(Syntax {
            ansi_quotes: true,
            ..Syntax::default()
        });
    }
    if has(b"/*") {
        let mariadb = Dialect::MariaDb { version: 120_000 };
        readings.push(Syntax {
            dialect: mariadb,
            ..Syntax::default()
        });
    }
    readings.into_iter().all(|syntax| {
        let facts = sql_class::facts(text, syntax);
        facts.effects.contains(Effects::INCOMPLETE) || is_harmless(&facts, text)
    })
}

/// `SET PASSWORD`, but not a column of that name in an `UPDATE … SET password = …` or the like, alone in its
/// text.
fn sets_password(text: &[u8]) -> bool {
    static SET_PASSWORD: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?i-u)\bset\W+password\b").ok());
    if SET_PASSWORD.as_ref().is_some_and(|words| !words.is_match(text)) {
        return false;
    }
    let is_alone = !text.trim_ascii_end().trim_suffix_semicolon().contains(&b';');
    let is_hidden = text.windows(2).any(|part| matches!(part, b"/*" | b"--"));
    !(is_alone && !is_hidden && is_one_of(first_word(text), &["UPDATE", "INSERT", "REPLACE"]))
}

fn is_harmless(facts: &Facts, text: &[u8]) -> bool {
    let is_prepare = facts.effects.contains(Effects::TEXT_PREPARE);
    let is_known = match facts.class {
        _ if is_prepare => is_harmless_prepare(text),
        Class::Read
        | Class::Session
        | Class::LockingRead
        | Class::BeginReadOnly
        | Class::Begin
        | Class::Transaction
        | Class::Write => true,
        Class::Ddl => is_known_ddl(text),
        Class::Administration => is_plain_administration(text),
        Class::Unknown => is_call(text),
    };
    is_known
        && !facts.effects.intersects(Effects::CHANGES_ACCOUNT)
        && !facts.effects.contains(Effects::INCOMPLETE)
        && !makes_a_statement(facts, text)
}

/// The first word, behind comments that nobody executes.
fn first_word(text: &[u8]) -> &[u8] {
    let mut rest = text;
    loop {
        rest = rest.trim_ascii_start();
        let behind = match rest {
            [b'/', b'*', b'!' | b'M', ..] => return b"",
            [b'/', b'*', ..] => rest
                .windows(2)
                .skip(2)
                .position(|end| end == b"*/")
                .map(|at| at + 4),
            [b'#', ..] | [b'-', b'-', ..] => rest.iter().position(|byte| *byte == b'\n').map(|at| at + 1),
            [b'(' | b';', ..] => Some(1),
            _ => break,
        };
        match behind.and_then(|behind| rest.get(behind..)) {
            Some(behind) => rest = behind,
            None => return b"",
        }
    }
    let end = rest
        .iter()
        .position(|byte| !byte.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    &rest[..end]
}

fn is_one_of(word: &[u8], words: &[&str]) -> bool {
    words
        .iter()
        .any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

/// Questions, and what ends sessions or empties caches. Alone in its text: what comes behind `;` is not
/// looked at.
fn is_plain_administration(text: &[u8]) -> bool {
    const WORDS: [&str; 10] = [
        "SHOW", "KILL", "FLUSH", "ANALYZE", "OPTIMIZE", "CHECK", "CHECKSUM", "REPAIR", "EXPLAIN", "SET",
    ];
    is_one_of(first_word(text), &WORDS) && !text.trim_ascii_end().trim_suffix_semicolon().contains(&b';')
}

/// Of `CREATE` and the like only what is known, and alone in its text, unless that is a program's.
fn is_known_ddl(text: &[u8]) -> bool {
    const PLAIN: [&str; 14] = [
        "TABLE",
        "TABLES",
        "TEMPORARY",
        "INDEX",
        "UNIQUE",
        "FULLTEXT",
        "SPATIAL",
        "VIEW",
        "DATABASE",
        "SCHEMA",
        "SEQUENCE",
        "OR",
        "ONLINE",
        "IGNORE",
    ];
    const PROGRAMS: [&str; 7] = [
        "PROCEDURE",
        "FUNCTION",
        "TRIGGER",
        "EVENT",
        "DEFINER",
        "ALGORITHM",
        "SQL",
    ];
    let first = first_word(text);
    if !is_one_of(first, &["CREATE", "ALTER", "DROP", "RENAME"]) {
        return is_one_of(
            first,
            &[
                "TRUNCATE", "ANALYZE", "OPTIMIZE", "CHECK", "REPAIR", "LOCK", "FLUSH",
            ],
        ) && !text.trim_ascii_end().trim_suffix_semicolon().contains(&b';');
    }
    let at = text
        .windows(first.len())
        .position(|part| part == first)
        .unwrap_or(0)
        + first.len();
    let second = first_word(&text[at..]);
    match is_one_of(second, &PLAIN) {
        true => !text.trim_ascii_end().trim_suffix_semicolon().contains(&b';'),
        false => is_one_of(second, &PROGRAMS),
    }
}

fn is_call(text: &[u8]) -> bool {
    is_one_of(first_word(text), &["CALL"]) && !text.trim_ascii_end().trim_suffix_semicolon().contains(&b';')
}

trait TrimSemicolon {
    fn trim_suffix_semicolon(&self) -> &Self;
}

impl TrimSemicolon for [u8] {
    fn trim_suffix_semicolon(&self) -> &Self {
        self.strip_suffix(b";").unwrap_or(self)
    }
}

/// `EXECUTE name`, `DEALLOCATE PREPARE name`, and `PREPARE name FROM @variable`: the text is elsewhere. And
/// `PREPARE name FROM 'text'` with one quoted text and nothing else that may be written itself.
fn is_harmless_prepare(text: &[u8]) -> bool {
    let word = first_word(text);
    if is_one_of(word, &["DEALLOCATE", "DROP"]) {
        return true;
    }
    let words: Vec<_> = text
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .collect();
    if is_one_of(word, &["EXECUTE"]) {
        let is_immediate = words.get(1).is_some_and(|second| {
            let end = second.iter().position(|byte| !byte.is_ascii_alphanumeric());
            is_one_of(&second[..end.unwrap_or(second.len())], &["IMMEDIATE"])
        });
        return !is_immediate && !text.contains(&b'/');
    }
    if !is_one_of(word, &["PREPARE"]) {
        return false;
    }
    match words.get(3) {
        Some([b'@', ..]) => words.len() == 4,
        Some([b'\'', ..]) => {
            let begin = text.iter().position(|byte| *byte == b'\'').unwrap_or(0) + 1;
            let inner = text[begin..]
                .trim_ascii_end()
                .trim_suffix_semicolon()
                .trim_ascii_end();
            let Some(inner) = inner.strip_suffix(b"'") else {
                return false;
            };
            // A quote within it, doubled or escaped, may hide where it ends.
            !inner.iter().any(|byte| matches!(byte, b'\'' | b'\\')) && may_be_written(inner)
        }
        _ => false,
    }
}

/// A user variable is given a text in which words of a statement are that has secrets: it may be put together
/// of parts.
fn makes_a_statement(facts: &Facts, text: &[u8]) -> bool {
    static PARTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        const PARTS: &str = r"(?x-u)(?i)
            \b(?:create|alter|grant|change|rename|set|start|clone)\b | user | pass | ident | server | source | master | fied";
        Regex::new(PARTS).ok()
    });
    let assigns = facts.effects.contains(Effects::USER_VARIABLES)
        && (is_one_of(first_word(text), &["SET"]) || text.windows(2).any(|part| part == b":="));
    if !assigns {
        return false;
    }
    // The first word is SET itself.
    let rest = text.iter().position(|byte| matches!(byte, b'\'' | b'"'));
    let hex = text.windows(2).any(|part| matches!(part, b"0x" | b"0X"))
        || text.windows(3).any(|part| {
            let begins = !part[0].is_ascii_alphanumeric() && !matches!(part[0], b'\'' | b'_');
            begins && matches!(part[1], b'x' | b'X' | b'b' | b'B') && part[2] == b'\''
        });
    hex || rest.is_some_and(|quote| PARTS.as_ref().is_none_or(|parts| parts.is_match(&text[quote..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_with_secrets_are_not_written() {
        for text in SECRETS {
            assert!(!may_be_written(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_applications_say_is_written() {
        for text in [
            "SELECT c FROM sbtest1 WHERE id=1",
            "SELECT id, password FROM users WHERE name = 'x'",
            "INSERT INTO users (name, password_hash) VALUES ('a', '$2y$10$abc')",
            "UPDATE users SET password = '$2y$10$abc' WHERE id = 4",
            "/* mysql-connector-java-8.0.33 */SELECT @@session.auto_increment_increment",
            "SET NAMES utf8mb4",
            "SET @a = 5, @b := 'x'",
            "SET SESSION sql_mode = 'STRICT_TRANS_TABLES'",
            "CALL p(1, 'x')",
            "BEGIN",
            "COMMIT",
            "CREATE TABLE t (id INT PRIMARY KEY, user_id INT)",
            "ALTER TABLE users ADD COLUMN role INT",
            "SHOW TABLES",
            "SHOW VARIABLES LIKE 'version'",
            "PREPARE s FROM 'SELECT 1'",
            "EXECUTE s USING @a",
            "DEALLOCATE PREPARE s",
            "SELECT 'it\\'s' FROM t",
            "SELECT \"a\" FROM t",
            "REPLACE INTO t VALUES (1)",
            "WITH c AS (SELECT 1) SELECT * FROM c",
            "EXPLAIN SELECT 1",
            "SELECT * FROM role WHERE user = 'x' FOR UPDATE",
        ] {
            assert!(may_be_written(text.as_bytes()), "{text}");
        }
    }

    /// The same list is what a capture of real servers is searched for.
    const SECRETS: &[&str] = &include!("secrets_list.rs");
}
