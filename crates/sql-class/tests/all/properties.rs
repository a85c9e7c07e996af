//! What holds of every text.

use proptest::collection::vec;
use proptest::prelude::*;
use sql_class::{Charset, Class, Dialect, Effects, Syntax, digest, facts, fuzzing};

/// Statements whose words can be told apart by the spaces between them, of every class.
const STATEMENTS: &[&str] = &[
    "SELECT c , max( d ) FROM sbtest1 WHERE id = 12345 AND e IN ( 1 , 2 )",
    "( SELECT 1 ) UNION ( SELECT 'two' )",
    "SELECT GET_LOCK( 'a' , 1 ) , RELEASE_LOCK( 'b' ) , @x := f( 1 ) , LAST_INSERT_ID( )",
    "SELECT LAST_INSERT_ID( 5 ) , @@hostname , @@session . identity , COUNT( * )",
    "SELECT * FROM information_schema . processlist , s . t",
    "SELECT 1 FROM t FOR UPDATE",
    "SELECT 1 FROM t LOCK IN SHARE MODE",
    "SELECT 1 INTO OUTFILE 'x'",
    "WITH a ( x ) AS ( SELECT 1 ) , b AS ( SELECT 2 ) SELECT * FROM a , b",
    "WITH a AS ( SELECT 1 ) DELETE FROM t",
    "INSERT INTO t ( a , b ) VALUES ( 1 , g( 2 ) ) ON DUPLICATE KEY UPDATE a = 1",
    "UPDATE t SET a = 1 WHERE b = 'c'",
    "LOAD DATA LOCAL INFILE 'x' INTO TABLE t ( a , b )",
    "SET NAMES utf8 , @@global . x = 1 , autocommit = 0",
    "SET SESSION TRANSACTION READ ONLY",
    "SET TRANSACTION READ ONLY",
    "SET PASSWORD = 'x'",
    "START TRANSACTION READ ONLY",
    "BEGIN",
    "XA START 'x'",
    "COMMIT",
    "LOCK TABLES t READ",
    "FLUSH TABLES WITH READ LOCK",
    "CREATE TEMPORARY TABLE t ( a INT )",
    "DROP TABLE t",
    "CREATE DEFINER = `a` @`b` VIEW v AS SELECT 1",
    "GRANT SELECT ( a ) ON t TO u",
    "SHOW FULL COLUMNS FROM t",
    "SHOW ENGINE INNODB STATUS",
    "EXPLAIN FORMAT = JSON UPDATE t SET a = 1",
    "DESCRIBE t",
    "CALL p( @a )",
    "PREPARE s FROM 'x'",
    "KILL 5",
    "USE s",
    "HANDLER t OPEN",
    "FROBNICATE t",
];

/// What is the same as a space to every server.
const SPACES: &[&str] = &[
    " ",
    "\n\t",
    " /* x ; ' */ ",
    " -- FOR UPDATE '\n",
    " # `\n",
    "/**/",
    " /*M!999999 x*/ ",
    "/*!99999 FOR */",
];

fn syntaxes() -> impl Strategy<Value = Syntax> {
    let charsets = prop::sample::select(vec![
        Charset::Utf8,
        Charset::SingleByte,
        Charset::Gbk,
        Charset::Gb18030,
        Charset::Sjis,
        Charset::Big5,
    ]);
    let dialects = prop::sample::select(vec![
        Dialect::MySql { version: 80_046 },
        Dialect::MySql { version: 90_704 },
        Dialect::MariaDb { version: 101_119 },
        Dialect::MariaDb { version: 110_809 },
    ]);
    (any::<bool>(), any::<bool>(), charsets, dialects).prop_map(
        |(ansi_quotes, no_backslash_escapes, charset, dialect)| Syntax {
            ansi_quotes,
            no_backslash_escapes,
            charset,
            dialect,
        },
    )
}

fn statement() -> impl Strategy<Value = &'static str> {
    prop::sample::select(STATEMENTS)
}

/// Bytes that look like SQL more often than not.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let fragments = prop::sample::select(vec![
        "'",
        "\"",
        "`",
        "\\",
        "/*",
        "*/",
        "/*!50000",
        "/*!",
        "/*M!",
        "/*+",
        "--",
        "-- ",
        "#",
        "\n",
        ";",
        "(",
        ")",
        ",",
        ".",
        "@",
        "@@",
        "$",
        "0x",
        "1e",
        "1.",
        "x'",
        "N'",
        "_utf8",
        ":=",
        "?",
        " ",
        "\0",
        "SELECT ",
        "FOR ",
        "UPDATE ",
        "INTO ",
        "SET ",
        "STATEMENT ",
        "WITH ",
        "AS ",
        "CREATE ",
        "PROCEDURE ",
        "EXPLAIN ",
        "FORMAT ",
        "GET_LOCK(",
        "LAST_INSERT_ID(",
        "f(",
        "t",
        "forebay:",
        "information_schema.",
        "global.",
        "BEGIN ",
        "ORDER BY 1",
        "IN (",
        "NULL",
        "FROM ",
        "TABLE ",
        "VALUES ",
    ]);
    let piece = prop_oneof![
        6 => fragments.prop_map(|fragment| fragment.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 1..4),
        1 => statement().prop_map(|statement| statement.as_bytes().to_vec()),
    ];
    vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// A literal for `content`, as a careful client writes it.
fn quoted(content: &str, quote: char, syntax: Syntax) -> String {
    let doubled = content.replace(quote, &format!("{quote}{quote}"));
    let escaped = match syntax.no_backslash_escapes {
        true => doubled,
        false => doubled.replace('\\', "\\\\"),
    };
    format!("{quote}{escaped}{quote}")
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(2000),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_bytes_are_a_danger(flags in any::<u8>(), cut in any::<u8>(), text in text()) {
        fuzzing::fuzz_facts(&[&[flags, cut], text.as_slice()].concat());
    }

    /// Of texts in which all is certain, most have a fingerprint.
    #[test]
    fn no_values_are_a_danger(flags in any::<u8>(), cut in any::<u8>(), mut text in text()) {
        for byte in &mut text {
            *byte = match *byte {
                b'\\' | b'"' => b'\'',
                b'/' => b'7',
                b'-' | b'#' => b'.',
                0x80.. => b'0',
                plain => plain,
            };
        }
        fuzzing::fuzz_facts(&[&[flags, cut], text.as_slice()].concat());
    }

    #[test]
    fn a_comment_is_a_space(
        statement in statement(),
        spaces in vec(prop::sample::select(SPACES), 32),
        syntax in syntaxes(),
    ) {
        let mut spaced = String::new();
        for (word, space) in statement.split(' ').zip(spaces) {
            spaced = spaced + space + word;
        }
        let (before, after) = (facts(statement.as_bytes(), syntax), facts(spaced.as_bytes(), syntax));
        prop_assert_eq!(before, after, "{}", spaced);
        prop_assert_eq!(digest(statement.as_bytes(), syntax), digest(spaced.as_bytes(), syntax));
    }

    #[test]
    fn an_executed_comment_is_what_is_in_it(statement in statement(), at in any::<prop::sample::Index>(), syntax in syntaxes()) {
        let mut words: Vec<String> = statement.split(' ').map(str::to_owned).collect();
        let word = at.get_mut(&mut words);
        *word = format!("/*!50000 {word}*/");
        let wrapped = words.join(" ");
        prop_assert_eq!(facts(statement.as_bytes(), syntax), facts(wrapped.as_bytes(), syntax), "{}", wrapped);
    }

    #[test]
    fn the_case_of_words_does_not_matter(statement in statement(), syntax in syntaxes()) {
        let lower = statement.to_ascii_lowercase();
        prop_assert_eq!(facts(statement.as_bytes(), syntax), facts(lower.as_bytes(), syntax));
    }

    #[test]
    fn a_string_is_never_more_than_a_string(
        content in prop_oneof![
            any::<String>(),
            statement().prop_map(|statement| format!("' ; {statement} -- ")),
            statement().prop_map(|statement| format!("\\' */ {statement} \"`")),
            text().prop_map(|text| String::from_utf8_lossy(&text).into_owned()),
        ],
        syntax in syntaxes(),
    ) {
        // A client of another character set sends other bytes for what is beyond ASCII.
        let content: String = match syntax.charset {
            Charset::Utf8 | Charset::SingleByte => content,
            _ => content.chars().filter(char::is_ascii).collect(),
        };
        let literal = quoted(&content, '\'', syntax);
        let sql = format!("SELECT a FROM t WHERE b = {literal} AND c = 1");
        let of_read = facts(sql.as_bytes(), syntax);
        prop_assert_eq!((of_read.class, of_read.effects, of_read.statements), (Class::Read, Effects::NONE, 1), "{}", sql);
        let sql = format!("UPDATE t SET a = {literal} ; SELECT {literal}");
        let of_write = facts(sql.as_bytes(), syntax);
        prop_assert_eq!((of_write.class, of_write.effects, of_write.statements), (Class::Write, Effects::NONE, 2), "{}", sql);
        prop_assert_eq!(digest(format!("SELECT {literal}").as_bytes(), syntax).text, "SELECT ?");

        let unclosed = &literal[..literal.len() - 1];
        let cut = facts(format!("SELECT {unclosed}").as_bytes(), syntax);
        prop_assert!(cut.effects.contains(Effects::INCOMPLETE) && cut.class >= Class::Write, "{}", unclosed);
    }

    #[test]
    fn several_statements_are_what_each_of_them_is(statements in vec(statement(), 1..5), syntax in syntaxes()) {
        let together = facts(statements.join(" ; ").as_bytes(), syntax);
        let each: Vec<_> = statements.iter().map(|statement| facts(statement.as_bytes(), syntax)).collect();
        prop_assert_eq!(together.class, each.iter().map(|facts| facts.class).max().unwrap());
        prop_assert_eq!(together.effects, each.iter().fold(Effects::NONE, |all, facts| all.with(facts.effects)));
        prop_assert_eq!(together.statements as usize, statements.len());
    }

    #[test]
    fn what_comes_after_a_read_is_never_missed(read in text(), statement in statement(), syntax in syntaxes()) {
        // Whatever came before, if it was read to its end, the next statement does what it does.
        let first = facts(&read, syntax);
        if first.effects.contains(Effects::INCOMPLETE) {
            return Ok(());
        }
        let sql = [read.as_slice(), b"\n;", statement.as_bytes()].concat();
        let (second, both) = (facts(statement.as_bytes(), syntax), facts(&sql, syntax));
        prop_assert!(both.effects.contains(second.effects.with(first.effects)), "{}", String::from_utf8_lossy(&sql));
        prop_assert!(both.class >= first.class);
        prop_assert!(both.class >= second.class || both.class >= Class::Ddl, "{}", String::from_utf8_lossy(&sql));
    }
}
