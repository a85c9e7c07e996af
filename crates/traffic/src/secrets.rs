//! Which texts may be written, and which are kept as a digest alone.
//!
//! What names an account, a key or a connection is not written: `CREATE USER`, `SET PASSWORD`, `GRANT …
//! IDENTIFIED`, `CHANGE MASTER`, `CREATE SERVER`, `AES_ENCRYPT` and their like, in comments that servers
//! execute and in texts of `PREPARE` as well. Nor is what is not surely understood. The words are looked for
//! everywhere in the text, in quotes and comments, too: a statement that only mentions one of them is
//! withheld as well. A column called `password` is none of them.

use std::sync::LazyLock;

use regex::bytes::Regex;
use sql_class::text::is_one_of;
use sql_class::{Class, Dialect, Effects, Facts, Syntax};

use crate::words::{comment_len, is_alone, without_comments_in_front, without_semicolon};

/// Words, as [`words`] has them.
type Words = LazyLock<Option<Regex>>;

/// The longest text that is written.
pub const TEXT_MAX: usize = 1 << 20;

/// Words of statements with secrets, wherever they are in a text. Between two of them there may be anything
/// that is no letter: spaces, comments, quotes that are glued together.
static WORDS: Words = LazyLock::new(|| words(PATTERN));

/// The same in the bytes of parameters: what stands in front of a value may look like a letter.
static WORDS_OF_VALUES: Words = LazyLock::new(|| {
    let pattern = PATTERN.replace(r"| \b", "| ");
    words(&format!(r"{pattern} | set\W+password\b"))
});

const PATTERN: &str = r"(?xis-u)
        identified \W* (?:by|with|via|as|for)
        | \b(?:create|alter|drop|rename)\W+(?:or\W+replace\W+)?(?:user|server)\b
        | password\W*\(
        | \bchange(?:\W+|_)(?:master|replication)\b | \bexternal_(?:master|source)
        | \bcall\W+(?:mysql|sys)\W*\.
        | (?:master|source)_(?:user|password|ssl_key|public_key_path)
        | \b(?:start|stop)\W+(?:replica|slave|group_replication)\b
        | \bclone\W+(?:instance|local)\b
        | (?:aes|des)_(?:en|de)crypt | \b(?:en|de)crypt\W*\( | \b(?:en|de)code\W*\( | \bkdf\W*\(
        | asymmetric_ | create_dh_parameters | \bkeyring_ | encryption_password | authentication_string
        | \bmysql\W*\.\W*(?:user|global_priv|servers|slave_|password_history|spider_)
        | \bconnection\W*=\W*mysql | \bengine\W+(?:federated|spider|connect|s3|lakehouse)\b
        | \bengine_attribute\b | \bspider_\w+\W*\( | \b(?:secret-)?access-key\b
        | ://[^\s/@']*:[^\s/@']*@
        | \b(?:grant|revoke)\b.{0,400}?\b(?:identified|require)\b
        | wsrep_sst_auth | validate_password_strength | ssl_passphrase";

/// Something of which letters can be made: texts, numbers in hexadecimal, functions that make letters of
/// numbers.
static LETTERS: Words =
    LazyLock::new(|| words(r#"(?i-u)['"]|\b0[xb][0-9a-f]|\b(?:char|chr|unhex|conv|hex|bin|oct)\W*\("#));

/// Reads a pattern. Comments may stand where it has `\W` or `\s*`, and the sign of one that servers execute
/// where it has `\b`. A server's version says which of them it executes, so that each counts both ways. A
/// comment is looked for in its place alone: in front of it there may be quotes with anything in them.
fn words(pattern: &str) -> Option<Regex> {
    const COMMENT: &str = r"\*/|/\*M?!\d*|/\*(?:[^*]|\*+[^*/])*\*+/|(?:--[\x00-\x20\x7f]|\#)[^\n]*\n";
    let pattern = pattern
        .replace(r"\b", r"(?:\b|/\*M?!\d*)")
        .replace(r"\s*", &format!(r"(?:\s|{COMMENT})*"))
        .replace(r"\W", &format!(r"(?:\W|{COMMENT})"));
    Regex::new(&pattern).ok()
}

/// Whether it is there. Where the words cannot be looked for, it is.
fn has(words: &Words, text: &[u8]) -> bool {
    words.as_ref().is_none_or(|words| words.is_match(text))
}

/// The text without its comments, and with what servers execute in some; `None` where there are none. Also
/// what only looks like a comment, in quotes, is left out: never look at this alone.
pub(crate) fn without_comments(text: &[u8]) -> Option<Vec<u8>> {
    let is_begin = |part: &[u8]| part[0] == b'#' || matches!(part, b"/*" | b"--");
    if !text.windows(2).any(is_begin) {
        return None;
    }
    // A text may have many beginnings without an end, from each of which nobody is to look for one.
    let last_end = text.windows(2).rposition(|part| part == b"*/");
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.get(at) {
        let has_end = last_end.is_some_and(|end| end >= at + 2);
        let len = comment_or_sign_len(&text[at..], has_end);
        out.push(if len.is_some() { b' ' } else { *byte });
        at += len.unwrap_or(1);
    }
    Some(out)
}

/// The length of the comment with which a text begins, or of the sign with which one begins or ends that
/// servers execute. `has_end`: a comment that begins here ends somewhere.
fn comment_or_sign_len(text: &[u8], has_end: bool) -> Option<usize> {
    let digits = |rest: &[u8]| rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some(match text {
        [b'/', b'*', b'!', rest @ ..] => 3 + digits(rest),
        [b'/', b'*', b'M', b'!', rest @ ..] => 4 + digits(rest),
        [b'/', b'*', ..] if has_end => comment_len(text)?,
        [b'*', b'/', ..] => 2,
        [b'#', ..] | [b'-', b'-', b'\t'..=b'\r' | b' ', ..] => {
            let line = text.iter().position(|byte| *byte == b'\n');
            line.unwrap_or(text.len())
        }
        _ => return None,
    })
}

/// Whether the bytes of parameters may be written: none of their texts has the words of a statement with
/// secrets.
#[must_use]
pub fn values_may_be_written(values: &[u8]) -> bool {
    !has(&WORDS_OF_VALUES, values)
}

/// Whether parameters of this statement may be written, whatever they are: not where they become parts of
/// another statement, or settings of the server.
#[must_use]
pub fn takes_harmless_values(text: &[u8]) -> bool {
    const BECOME_PARTS: Effects = Effects::SETS_GLOBAL.with(Effects::TEXT_PREPARE);
    let takes_harmless =
        |facts: &Facts| !gives_variables(facts, text) && !facts.effects.intersects(BECOME_PARTS);
    let facts = sql_class::facts(text, Syntax::default());
    takes_harmless(&facts) && other_readings(text).all(|facts| takes_harmless(&facts))
}

/// Whether the session is in the server's own schema after this text, or somewhere within it.
#[must_use]
pub fn goes_to_mysql(text: &[u8]) -> bool {
    static USE: Words = LazyLock::new(|| words(r"(?is-u)(?:^|;|\*/|/\*M?!\d*)\s*use\W+mysql\b"));
    has(&USE, text)
}

/// Whether the statement may change the tables of accounts: `is_there` where the session is in the server's
/// own schema, else it may be there.
#[must_use]
pub fn may_change_accounts(text: &[u8], is_there: bool) -> bool {
    static TABLES: Words = LazyLock::new(|| {
        words(
            r"(?i-u)\b(?:user|global_priv|servers|slave_master_info|slave_relay_log_info|password_history)\b",
        )
    });
    let class = sql_class::facts(text, Syntax::default()).class;
    class >= Class::Write && (is_there || has(&TABLES, text))
}

#[must_use]
pub fn may_be_written(text: &[u8]) -> bool {
    if text.len() > TEXT_MAX || has(&WORDS, text) || sets_password(text) {
        return false;
    }
    let facts = sql_class::facts(text, Syntax::default());
    let goes_on_in_mysql = facts.statements > 1 && goes_to_mysql(text);
    !goes_on_in_mysql
        && is_harmless(&facts, text)
        && other_readings(text).all(|facts| is_harmless(&facts, text))
}

/// Reads a text in other ways than the usual one, where that can make a difference: what its tokens are turns
/// on what the session has set, and on whose server it is and of which version. A reading in which a quote
/// has no end is none: the server has refused it.
fn other_readings(text: &[u8]) -> impl Iterator<Item = Facts> {
    let usual = Syntax::default();
    let of = |dialect| Syntax { dialect, ..usual };
    let later = of(Dialect::MySql { version: 99_999 });
    let mariadb = of(Dialect::MariaDb { version: 120_000 });
    let no_backslash_escapes = Syntax {
        no_backslash_escapes: true,
        ..usual
    };
    let ansi_quotes = Syntax {
        ansi_quotes: true,
        ..usual
    };
    let readings: [(&[u8], Syntax); 4] = [
        (b"\\", no_backslash_escapes),
        (b"\"", ansi_quotes),
        (b"/*", later),
        (b"/*", mariadb),
    ];
    readings
        .into_iter()
        .filter(move |(sign, _)| text.windows(sign.len()).any(|part| part == *sign))
        .map(move |(_, syntax)| sql_class::facts(text, syntax))
        .filter(|facts| !facts.effects.contains(Effects::INCOMPLETE))
}

/// `SET PASSWORD`, but not a column of that name in an `UPDATE … SET password = …` or the like, alone in its
/// text.
fn sets_password(text: &[u8]) -> bool {
    static SET_PASSWORD: Words = LazyLock::new(|| words(r"(?i-u)\bset\W+password\b"));
    if !has(&SET_PASSWORD, text) {
        return false;
    }
    let is_hidden = text.windows(2).any(|part| matches!(part, b"/*" | b"--"));
    !(is_alone(text) && !is_hidden && is_one_of(first_word(text), &["UPDATE", "INSERT", "REPLACE"]))
}

fn is_harmless(facts: &Facts, text: &[u8]) -> bool {
    let is_prepare = facts.effects.contains(Effects::TEXT_PREPARE);
    let is_known = match facts.class {
        _ if is_prepare => facts.statements == 1 && is_harmless_prepare(text),
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
    let is_of_account = facts.effects.intersects(Effects::CHANGES_ACCOUNT);
    let gives_text = gives_variables(facts, text) && has(&LETTERS, text);
    let sets_secret = facts.effects.contains(Effects::SETS_GLOBAL) && has(&OF_SETTINGS, text);
    let is_whole = !facts.effects.contains(Effects::INCOMPLETE);
    is_known && is_whole && !is_of_account && !gives_text && !sets_secret
}

/// Texts of settings, and names of those that are secrets.
static OF_SETTINGS: Words = LazyLock::new(|| {
    words(r#"(?i-u)['"]|\b0[xb][0-9a-f]|pwd|passw|passphrase|secret|token|credential|auth|_key"#)
});

/// The first word, behind comments that nobody executes.
fn first_word(text: &[u8]) -> &[u8] {
    let mut rest = without_comments_in_front(text);
    while let [b'(' | b';', behind @ ..] = rest {
        rest = without_comments_in_front(behind);
    }
    let end = rest.iter().position(|byte| !byte.is_ascii_alphabetic());
    &rest[..end.unwrap_or(rest.len())]
}

/// Questions, and what ends sessions or empties caches. Alone in its text: what comes behind `;` is not
/// looked at.
fn is_plain_administration(text: &[u8]) -> bool {
    const WORDS: [&str; 10] = [
        "SHOW", "KILL", "FLUSH", "ANALYZE", "OPTIMIZE", "CHECK", "CHECKSUM", "REPAIR", "EXPLAIN", "SET",
    ];
    is_one_of(first_word(text), &WORDS) && is_alone(text)
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
    const OTHERS: [&str; 7] = [
        "TRUNCATE", "ANALYZE", "OPTIMIZE", "CHECK", "REPAIR", "LOCK", "FLUSH",
    ];
    let first = first_word(text);
    if !is_one_of(first, &["CREATE", "ALTER", "DROP", "RENAME"]) {
        return is_one_of(first, &OTHERS) && is_alone(text);
    }
    let at = text
        .windows(first.len())
        .position(|part| part == first)
        .unwrap_or(0)
        + first.len();
    let second = first_word(&text[at..]);
    match is_one_of(second, &PLAIN) {
        true => is_alone(text) && !has(&OPTIONS, text),
        false => is_one_of(second, &PROGRAMS) && !has(&OPTIONS, text) && !has(&IN_PROGRAMS, text),
    }
}

/// Options of tables that are elsewhere (CONNECT, FEDERATED, SPIDER): how to log in there.
static OPTIONS: Words = LazyLock::new(|| {
    const OPTIONS: &str = r#"(?xis-u)
        \b(?:connection|option_list)\W*=
        | \bcomment\W*['"].*?(?:password|passwd|pwd)\W*["'=]"#;
    words(OPTIONS)
});

/// What of a program may make a statement of texts, or a setting of the server.
static IN_PROGRAMS: Words = LazyLock::new(|| {
    const WORDS: &str = r#"(?xis-u)
        \b(?:prepare|execute)\b
        | \bset\W+(?:global|persist)
        | @@\W*(?:global|persist)
        | (?:^|[^\w@`'"$])@[\w`'"$.]"#;
    words(WORDS)
});

fn is_call(text: &[u8]) -> bool {
    // What a procedure does with its arguments is not known; of one that deals with accounts it is guessed.
    static OF_ACCOUNTS: Words = LazyLock::new(|| {
        words(r"(?i-u)^\W*call[^(]*(?:user|account|login|passw|pwd|grant|secret|credential)")
    });
    is_one_of(first_word(text), &["CALL"]) && !has(&OF_ACCOUNTS, text) && is_alone(text)
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
        // MariaDB takes values here that are no variables.
        return !is_immediate && !text.contains(&b'/') && !text.contains(&b'(') && !has(&LETTERS, text);
    }
    if !is_one_of(word, &["PREPARE"]) {
        return false;
    }
    match words.get(3) {
        Some([b'@', ..]) => words.len() == 4,
        Some([b'\'', ..]) => {
            let begin = text.iter().position(|byte| *byte == b'\'').unwrap_or(0) + 1;
            let inner = without_semicolon(text[begin..].trim_ascii_end()).trim_ascii_end();
            let Some(inner) = inner.strip_suffix(b"'") else {
                return false;
            };
            // A quote within it, doubled or escaped, may hide where it ends.
            !inner.iter().any(|byte| matches!(byte, b'\'' | b'\\')) && may_be_written(inner)
        }
        _ => false,
    }
}

/// Whether user variables are given values: a later `PREPARE … FROM @variable` may make a statement of them,
/// and nobody sees here which parts it is put together of.
fn gives_variables(facts: &Facts, text: &[u8]) -> bool {
    static INTO: Words = LazyLock::new(|| words(r"(?i-u)\binto\s*@"));
    static SET: Words = LazyLock::new(|| words(r"(?i-u)\b(?:set|get)\b"));
    if !facts.effects.contains(Effects::USER_VARIABLES) {
        return false;
    }
    let is_hidden = text.windows(2).any(|part| part == b"/*");
    // What `SET` sets there is a column.
    let others = ["SELECT", "UPDATE", "INSERT", "REPLACE", "DELETE", "LOAD", "WITH"];
    let sets_columns = facts.statements == 1 && !is_hidden && is_one_of(first_word(text), &others);
    text.windows(2).any(|part| part == b":=") || has(&INTO, text) || (!sets_columns && has(&SET, text))
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

    /// A comment that one server executes another one skips, and what looks like one in quotes is none.
    #[test]
    fn comments_hide_no_secrets() {
        for text in [
            "SELECT PASSWORD /* x */ ('Geheim')",
            "SELECT PASSWORD/**/('Geheim'), '*/'",
            "SELECT PASSWORD # x\n ('Geheim')",
            "SELECT PASSWORD -- x\n ('Geheim')",
            "SELECT PASSWORD --\u{1}x\n ('Geheim')",
            "SELECT PASSWORD /*!99999 x */ ('Geheim')",
            "SELECT PASSWORD/*!50706 x */('Geheim')",
            "SELECT PASSWORD/*M! x */('Geheim')",
            "SELECT '/*', PASSWORD /* x */ ('Geheim')",
            "SELECT \"-- \", PASSWORD /* x */ ('Geheim')",
            "SELECT '#', ENCODE /* x ** y */ /*!99999 z */ ('a', 'Geheim')",
            "/*!50000SET PASSWORD = 'Geheim' */",
            "SELECT '/*'; SET /* x */ PASSWORD = 'Geheim'",
            "/*!90500 SET @s = CONCAT('ALT', 'ER US', 'Geheim') */",
        ] {
            assert!(!may_be_written(text.as_bytes()), "{text}");
        }
        for text in [
            "SELECT password /* x */ FROM t WHERE (a) /* y */",
            "CREATE /* x */ TABLE t (a INT /* y */, user INT)",
            "SELECT '#', password FROM t -- (\n WHERE (a)",
            "INSERT INTO t VALUES ('#', '/*', '-- ') /* traceparent='00-ab' */",
        ] {
            assert!(may_be_written(text.as_bytes()), "{text}");
        }
        for text in ["/*!90500 SET @s = ? */", "/*M! SET @s = ? */"] {
            assert!(!takes_harmless_values(text.as_bytes()), "{text}");
        }
        assert!(takes_harmless_values(
            b"/* x */ INSERT INTO t VALUES ('it\\'s', ?)"
        ));
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
            "SET @a = 5, @b := @@sql_mode",
            "SELECT COUNT(*), MAX(id) INTO @n, @m FROM t",
            "UPDATE t SET a = @n, b = 'x' WHERE c = 'create a thing'",
            "INSERT INTO t VALUES (@n, 'x')",
            "SELECT * FROM t WHERE connection = 'x' AND comment = 'the password'",
            "CREATE TABLE users (comment VARCHAR(9) DEFAULT '', password VARCHAR(60) COMMENT 'hash') COMMENT='all'",
            "SET GLOBAL max_connections = 100",
            "CREATE PROCEDURE q(IN a INT) BEGIN UPDATE t SET b = 'x' WHERE id = a; END",
            "EXECUTE s",
            "USE mysql",
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

    #[test]
    fn comments_are_taken_out_and_what_servers_execute_stays() {
        let of = |text: &str| without_comments(text.as_bytes()).map(|text| String::from_utf8(text).unwrap());
        for (text, without) in [
            ("a /* b\n */ c", "a   c"),
            ("a /**/ b /* c */ d", "a   b   d"),
            ("/*!50000 a */", "  a  "),
            ("/*M!100100 a */ /*M b */", "  a    "),
            ("a -- b\nc # d\ne", "a  \nc  \ne"),
            ("--\na --b", " \na --b"),
            ("a /* b", "a /* b"),
            ("a */ /*/ b", "a   /  b"),
        ] {
            assert_eq!(of(text).as_deref(), Some(without), "{text}");
        }
        assert_eq!(of("a - b / * c"), None);
    }

    #[test]
    fn many_comments_without_an_end_take_no_time() {
        let began = std::time::Instant::now();
        let text = "/*x #\n".repeat(150_000);
        assert_eq!(without_comments(text.as_bytes()).unwrap().len(), 150_000 * 6);
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }

    #[test]
    fn parameters_are_looked_at_as_texts_are() {
        for value in [
            &b"\x41ALTER USER a IDENTIFIED BY 'x'"[..],
            b"SET PASSWORD = 'x'",
            b"bGRANT ALL ON *.* TO a IDENTIFIED BY 'x'",
            b"mysql://u:p@h/db",
        ] {
            assert!(
                !values_may_be_written(value),
                "{}",
                String::from_utf8_lossy(value)
            );
        }
        for value in [
            &b"\x05hammer"[..],
            b"a user who has set his password",
            b"\0\x01\x02",
        ] {
            assert!(values_may_be_written(value), "{}", String::from_utf8_lossy(value));
        }
        for text in [
            "SET @s = ?",
            "SELECT CONCAT(?, ?) INTO @s",
            "SELECT @s := ?",
            "SET /* x */ @s = ?",
            "SET GLOBAL init_connect = ?",
        ] {
            assert!(!takes_harmless_values(text.as_bytes()), "{text}");
        }
        for text in [
            "INSERT INTO t VALUES (?, @a)",
            "UPDATE t SET a = ? WHERE b = @b",
            "SELECT ?",
        ] {
            assert!(takes_harmless_values(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn the_schema_of_accounts_is_known() {
        for text in [
            "USE mysql",
            "use `MySQL`;",
            "SELECT 1; USE mysql",
            "/*!50000 USE mysql */",
            "USE /* x */ mysql",
        ] {
            assert!(goes_to_mysql(text.as_bytes()), "{text}");
        }
        for text in [
            "USE mysql_app",
            "INSERT INTO t VALUES ('we use mysql')",
            "SELECT 1",
        ] {
            assert!(!goes_to_mysql(text.as_bytes()), "{text}");
        }
        assert!(may_change_accounts(b"UPDATE user SET Password = 'x'", false));
        assert!(may_change_accounts(b"INSERT INTO anything VALUES ('x')", true));
        assert!(!may_change_accounts(b"INSERT INTO anything VALUES ('x')", false));
        assert!(!may_change_accounts(b"SELECT * FROM user", true));
    }

    /// The same list is what a capture of real servers is searched for.
    const SECRETS: &[&str] = &include!("secrets_list.rs");
}
