//! Columns of all types, with the values at their edges, in the text and in the binary protocol: from rows
//! that came by the binary log, from those that were copied, and from those that were fetched.

use cache::feed::MAPPING_TABLES;
use mysql_wire::Capabilities as C;
use sandbox::Kind;

use crate::stage::{Setup, Stage, differs, execute, query, run_with};

#[test]
fn mariadb() {
    run(Kind::Mariadb, "mapping_tables = true");
}

#[test]
fn mysql() {
    run(Kind::Mysql, "mapping_tables = true");
}

#[test]
fn mariadb_fetched() {
    run(Kind::Mariadb, "mapping_tables = true\nmode = \"bounded\"");
}

#[test]
fn mysql_fetched() {
    run(Kind::Mysql, "mapping_tables = true\nmode = \"bounded\"");
}

fn run(kind: Kind, cache: &'static str) {
    let setup = Setup {
        kind,
        mode: "session",
        consistency: "strong",
        nodes: 1,
        cache,
        rules: "",
    };
    run_with(setup, values);
}

/// The type of an INT as a parameter.
const LONG: [u8; 2] = [3, 0];

/// Types, and values as SQL writes them.
const COLUMNS: &[(&str, &[&str])] = &[
    ("TINYINT", &["-128", "127"]),
    ("TINYINT(3) UNSIGNED ZEROFILL", &["7", "255"]),
    ("BOOL", &["TRUE", "FALSE"]),
    ("SMALLINT", &["-32768", "32767"]),
    ("SMALLINT UNSIGNED", &["0", "65535"]),
    ("MEDIUMINT", &["-8388608", "8388607"]),
    ("MEDIUMINT UNSIGNED", &["0", "16777215"]),
    ("INT", &["-2147483648", "2147483647"]),
    ("INT(5) ZEROFILL", &["42", "4294967295"]),
    ("BIGINT", &["-9223372036854775808", "9223372036854775807"]),
    ("BIGINT(20) UNSIGNED ZEROFILL", &["1", "18446744073709551615"]),
    (
        "DECIMAL(65,30)",
        &[
            "-12345678901234567890123456789012345.000000000000000000000000000001",
            "0",
        ],
    ),
    ("DECIMAL(10,2) ZEROFILL", &["1.5", "12345678.99"]),
    ("DECIMAL(5,0)", &["-99999", "1"]),
    ("DECIMAL(4,4)", &["-0.0001", "0.9999"]),
    (
        "FLOAT",
        &[
            "1.23456789",
            "-3.4028234e38",
            "1.17549435e-38",
            "16777217",
            "-0e0",
            "1e15",
            "0.00001",
        ],
    ),
    ("FLOAT(7,3)", &["1234.5678", "-0.0005", "0"]),
    ("FLOAT UNSIGNED ZEROFILL", &["1.5", "1e20", "0"]),
    (
        "DOUBLE",
        &[
            "1.7976931348623157e308",
            "5e-324",
            "-0e0",
            "0.1",
            "1e15",
            "1e16",
            "123456789012345678",
            "1594374757768783.25",
        ],
    ),
    ("DOUBLE(10,3)", &["1234567.8905", "-0.0005", "2.0005"]),
    ("DOUBLE ZEROFILL", &["1.5", "1e100", "0"]),
    ("BIT(1)", &["b'1'", "b'0'"]),
    ("BIT(64)", &["b'1'", "~0"]),
    ("YEAR", &["0", "1901", "2155"]),
    (
        "DATE",
        &["'0000-00-00'", "'9999-12-31'", "'2024-00-00'", "'2024-02-00'"],
    ),
    ("TIME", &["'-838:59:59'", "'838:59:59'", "0", "'-00:00:01'"]),
    (
        "TIME(6)",
        &["'-838:59:59.000000'", "'-00:00:00.000001'", "'24:00:00.5'", "0"],
    ),
    ("TIME(1)", &["'01:02:03.9'", "'-01:00:00.1'"]),
    (
        "DATETIME",
        &[
            "'0000-00-00 00:00:00'",
            "'2024-02-29 00:00:00'",
            "'9999-12-31 23:59:59'",
        ],
    ),
    (
        "DATETIME(6)",
        &[
            "'0000-00-00 00:00:00'",
            "'2024-02-29 00:00:00.000001'",
            "'2024-02-29 12:00:00'",
        ],
    ),
    (
        "TIMESTAMP NULL",
        &[
            "'0000-00-00 00:00:00'",
            "'1970-01-01 03:00:01'",
            "'2038-01-19 03:00:00'",
        ],
    ),
    (
        "TIMESTAMP(6) NULL",
        &[
            "'0000-00-00 00:00:00'",
            "'2024-03-31 02:30:00.000001'",
            "'2024-01-01 02:30:00'",
        ],
    ),
    ("CHAR(0)", &["''"]),
    ("CHAR(5)", &["'a  '", "''", "'üé😀'"]),
    ("VARCHAR(300)", &["'a  '", "''", "REPEAT('ü', 300)"]),
    ("VARCHAR(20) CHARACTER SET latin1", &["'€é'", "''"]),
    ("VARCHAR(20) CHARACTER SET utf16", &["'a😀'", "' '"]),
    ("CHAR(5) CHARACTER SET ucs2", &["'aé '", "''"]),
    ("BINARY(4)", &["'a'", "x'00ff'", "x'61000000'"]),
    (
        "VARBINARY(300)",
        &["x'00ff00'", "REPEAT('x', 251)", "REPEAT('x', 250)"],
    ),
    ("TINYTEXT", &["''", "REPEAT('x', 255)"]),
    ("MEDIUMTEXT", &["'x'", "REPEAT('ü', 40000)"]),
    ("LONGTEXT", &["'x '"]),
    ("TINYBLOB", &["x'00'"]),
    ("LONGBLOB", &["REPEAT(x'00', 70000)"]),
    ("ENUM('x','','ü')", &["'ü'", "'nothing'", "''", "1"]),
    ("SET('a','b','ü')", &["'ü,a'", "''", "7"]),
    ("ENUM('x','é') CHARACTER SET latin1", &["'é'", "'x'"]),
    (
        "JSON",
        &["'{\"b\": [1, 2.50, null], \"a\": \"ü\"}'", "'[]'", "'1.0'"],
    ),
    ("INT INVISIBLE", &["1"]),
];

const OF_MARIADB: &[(&str, &[&str])] = &[
    (
        "UUID",
        &[
            "'123e4567-e89b-12d3-a456-426655440000'",
            "'00000000-0000-0000-0000-000000000000'",
        ],
    ),
    (
        "INET6",
        &["'::'", "'::ffff:192.0.2.1'", "'2001:db8::ff00:42:8329'"],
    ),
    ("INET4", &["'0.0.0.0'", "'255.255.255.255'"]),
];

/// How many rows: as many as the longest list has values, and one of NULL.
const ROWS: usize = 9;

/// The names of the columns, and what makes their table with the first rows, and with the others.
fn table(kind: Kind) -> (Vec<String>, [String; 2]) {
    let of_kind = match kind {
        Kind::Mariadb => OF_MARIADB,
        _ => &[],
    };
    let columns: Vec<_> = COLUMNS.iter().chain(of_kind).collect();
    let names: Vec<String> = (0..columns.len()).map(|at| format!("c{at}")).collect();
    let types: String = names
        .iter()
        .zip(&columns)
        .map(|(name, (kind, _))| format!(", {name} {kind}"))
        .collect();
    let row = |id: usize| {
        let values = columns.iter().map(|(_, values)| match id {
            0 => "NULL",
            _ => values[(id - 1) % values.len()],
        });
        let names = names.join(", ");
        let begin = format!("INSERT IGNORE INTO test.types (id, {names}) VALUES ({id}");
        values.fold(begin, |row, value| row + ", " + value) + "); "
    };
    let rows = |ids: std::ops::Range<usize>| -> String { ids.map(row).collect() };
    let settings = "SET NAMES utf8mb4; SET sql_mode='', time_zone='+02:30'; ";
    let first = format!(
        "{settings} CREATE TABLE test.types (id INT PRIMARY KEY{types}) CHARACTER SET utf8mb4; {} {MAPPING_TABLES}
         INSERT INTO forebay.hash_containers VALUES ('types', 'test', 'types', 'id', '{}', '')",
        rows(0..ROWS / 2),
        names.join(",")
    );
    let others = format!("{settings} {}", rows(ROWS / 2..ROWS));
    (names, [first, others])
}

fn values(stage: &Stage) {
    let (names, [first, others]) = table(stage.kind);
    stage.sandbox.primary().sql(&first).unwrap();
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    let text = format!("SELECT {} FROM types WHERE id=", names.join(","));
    let statements = [&mut direct, &mut through].map(|session| {
        assert_eq!(session.sql("SET NAMES utf8mb4")[4], 0);
        assert_eq!(session.sql("SET time_zone='+02:30'")[4], 0);
        session.prepare(&format!("{text}?"))
    });
    let of_nulls = query(&format!("{text}0"));
    let expected = direct.ask(&of_nulls);
    stage.until_answered(&mut through, &of_nulls, &expected);
    stage.sandbox.primary().sql(&others).unwrap();
    let before = stage.answered();
    let mut wrong = String::new();
    for id in 0..ROWS as u32 {
        let texts = names
            .iter()
            .map(|name| query(&format!("SELECT {name} FROM types WHERE id={id}")))
            .map(|asked| [asked.clone(), asked]);
        let executed = statements.map(|statement| execute(statement, &LONG, &[0], &id.to_le_bytes(), true));
        // Again: what is new to the gateway is known then.
        for [at_server, at_gateway] in texts.chain([executed]).flat_map(|asked| [asked.clone(), asked]) {
            let (expected, said) = (direct.ask(&at_server), through.ask(&at_gateway));
            if said != expected {
                wrong += &differs(&at_gateway, &expected, &said);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    let asked = ROWS * 2 * (names.len() + 1);
    let answered = (stage.answered() - before) as usize;
    assert!(
        answered > asked * 3 / 4,
        "{answered} of {asked}: {}",
        stage.left()
    );
}
