//! What is known of collations by their names, held against the servers: every pair of words of printable
//! ASCII is the same key for both or for neither.

use std::collections::BTreeSet;

use cache::mapping::{Texts, comparison};
use mysql_wire::binlog::Charset;
use sandbox::{Kind, Sandbox, Spec};

use crate::served::on_both;

on_both! { in_all_of_the_servers }

/// Words with each printable character, all pairs of small letters, and pairs in mixed case.
fn words() -> BTreeSet<String> {
    let printable = || (b'!'..=b'~').map(char::from);
    let letters = || ('a'..='z').chain('A'..='Z');
    let mut words: BTreeSet<String> = printable().map(|c| c.to_string()).collect();
    words.extend(printable().map(|c| format!("x {c}")));
    words.extend(letters().flat_map(|a| letters().map(move |b| format!("{a}{b}"))));
    words.extend(["abc", "aBC", "dzs", "DZS", "lly", "LLy", "ss", "sS"].map(str::to_owned));
    words
}

fn in_all_of_the_servers(kind: Kind) {
    let sandbox = Sandbox::lend(Spec::new(kind)).unwrap();
    let words = words();
    let values: Vec<String> = words.iter().map(|word| format!("(x'{}')", hex(word))).collect();
    let sql = |sql: &str| sandbox.primary().sql(sql).unwrap();
    sql("CREATE TABLE test.words (w VARCHAR(9) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY)");
    sql(&format!("INSERT INTO test.words VALUES {}", values.join(",")));
    let column = match kind {
        Kind::Mysql => "COLLATION_NAME, CHARACTER_SET_NAME",
        _ => "FULL_COLLATION_NAME, CHARACTER_SET_NAME",
    };
    let table = match kind {
        Kind::Mysql => "COLLATIONS",
        _ => "COLLATION_CHARACTER_SET_APPLICABILITY",
    };
    let names = sql(&format!("SELECT {column} FROM information_schema.{table}"));
    let classes = |fold: bool| -> usize {
        let form = |word: &String| if fold { word.to_lowercase() } else { word.clone() };
        words.iter().map(form).collect::<BTreeSet<_>>().len()
    };
    let (folded, exact) = (classes(true), classes(false));
    let mut checked = 0;
    for line in names.lines() {
        let (collation, charset) = line.split_once('\t').unwrap();
        let is_known = Charset::by_name(charset).is_some_and(|known| known != Charset::Binary);
        let Some(rule) = comparison(collation).filter(|_| is_known) else {
            continue;
        };
        let word = format!("CONVERT(w USING {charset}) COLLATE {collation}");
        let case = if rule.texts == Texts::AsciiFolded {
            "LOWER(w)"
        } else {
            "w"
        };
        let text = |text: &str| format!("CONVERT('{text}' USING {charset}) COLLATE {collation}");
        let answer = sql(&format!(
            "SET sql_mode = ''; SELECT COUNT(DISTINCT {word}), (SELECT COUNT(*) FROM (SELECT {case} f FROM test.words GROUP BY f COLLATE ascii_bin \
             HAVING COUNT(DISTINCT {word}) > 1) d), {} = {} FROM test.words",
            text("a"),
            text("a ")
        ));
        let expected = if rule.texts == Texts::AsciiFolded {
            folded
        } else {
            exact
        };
        let expected = format!("{expected}\t0\t{}", u8::from(rule.pad));
        assert_eq!(answer.trim(), expected, "{collation}");
        checked += 1;
    }
    assert!(checked > 20, "{checked} collations");
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}
