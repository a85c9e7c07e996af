//! Columns of every type, and literals for them.

use crate::random::{Random, hex, quoted};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Literal {
    Integer,
    Decimal,
    Float,
    Bits,
    Year,
    Date,
    Time,
    DateTime,
    Timestamp,
    Text(u64),
    Bytes(u64),
    Index(u64),
    Point,
    MySqlJson,
    MariaDbJson,
    Uuid,
    Inet6,
    Inet4,
    Vector,
}

/// Declarations, and what to put in.
#[allow(clippy::too_many_lines)]
pub(crate) fn common() -> Vec<(String, Literal)> {
    let mut columns = Vec::new();
    let mut add = |declarations: &[&str], literal: Literal| {
        columns.extend(
            declarations
                .iter()
                .map(|declaration| ((*declaration).to_owned(), literal)),
        );
    };
    for name in ["TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"] {
        let (unsigned, filled, wide) = (
            format!("{name} UNSIGNED"),
            format!("{name} ZEROFILL"),
            format!("{name}(25) ZEROFILL"),
        );
        add(&[name, &unsigned, &filled, &wide], Literal::Integer);
    }
    add(
        &[
            "DECIMAL(10,2)",
            "DECIMAL(65,30)",
            "DECIMAL(65,0)",
            "DECIMAL(5)",
            "DECIMAL(9,9)",
            "DECIMAL(18,9) UNSIGNED",
            "DECIMAL(30,7) ZEROFILL",
            "DECIMAL(4,4) ZEROFILL",
        ],
        Literal::Decimal,
    );
    add(
        &[
            "FLOAT",
            "FLOAT UNSIGNED ZEROFILL",
            "FLOAT(7,2)",
            "FLOAT(20,10)",
            "FLOAT(9,3) ZEROFILL",
            "DOUBLE",
            "DOUBLE ZEROFILL",
            "DOUBLE(20,10)",
            "DOUBLE(30,0)",
            "DOUBLE(255,30)",
            "DOUBLE(12,3) ZEROFILL",
        ],
        Literal::Float,
    );
    add(
        &["BIT(1)", "BIT(7)", "BIT(8)", "BIT(9)", "BIT(33)", "BIT(64)"],
        Literal::Bits,
    );
    add(&["YEAR"], Literal::Year);
    add(&["DATE"], Literal::Date);
    for decimals in 0..=6 {
        add(&[&format!("TIME({decimals})")], Literal::Time);
        add(&[&format!("DATETIME({decimals})")], Literal::DateTime);
        add(&[&format!("TIMESTAMP({decimals}) NULL")], Literal::Timestamp);
    }
    for charset in [
        "utf8mb4", "utf8mb3", "latin1", "ascii", "ucs2", "utf16", "utf16le", "utf32",
    ] {
        add(
            &[
                &format!("CHAR(20) CHARACTER SET {charset}"),
                &format!("VARCHAR(60) CHARACTER SET {charset}"),
            ],
            Literal::Text(30),
        );
        add(
            &[
                &format!("VARCHAR(300) CHARACTER SET {charset}"),
                &format!("TEXT CHARACTER SET {charset}"),
            ],
            Literal::Text(300),
        );
        add(
            &[&format!("ENUM('a','x','ü','it''s') CHARACTER SET {charset}")
                .replace("'ü'", if charset == "ascii" { "'u'" } else { "'ü'" })],
            Literal::Index(5),
        );
    }
    add(
        &[
            "CHAR(255) CHARACTER SET utf8mb4",
            "CHAR(200) CHARACTER SET utf32",
            "TINYTEXT",
            "MEDIUMTEXT",
            "LONGTEXT",
        ],
        Literal::Text(60),
    );
    add(
        &[
            "BINARY",
            "BINARY(16)",
            "BINARY(255)",
            "VARBINARY(20)",
            "VARBINARY(255)",
            "VARBINARY(256)",
            "TINYBLOB",
        ],
        Literal::Bytes(20),
    );
    add(
        &["VARBINARY(3000)", "BLOB", "MEDIUMBLOB", "LONGBLOB"],
        Literal::Bytes(2000),
    );
    let members: Vec<String> = (0..300).map(|at| format!("'m{at}'")).collect();
    add(&["ENUM('a','','c\\\\d','e\nf','0')"], Literal::Index(6));
    add(&[&format!("ENUM({})", members.join(","))], Literal::Index(301));
    add(
        &["SET('a','b','c d')", "SET('a','b','ü') CHARACTER SET latin1"],
        Literal::Index(8),
    );
    add(
        &[&format!("SET({})", members[..64].join(","))],
        Literal::Index(u64::MAX),
    );
    add(&["POINT", "GEOMETRY"], Literal::Point);
    columns
}

pub(crate) fn mysql() -> Vec<(String, Literal)> {
    let mut columns = common();
    columns.extend([
        ("JSON".to_owned(), Literal::MySqlJson),
        ("VECTOR(5)".to_owned(), Literal::Vector),
    ]);
    columns
}

pub(crate) fn mariadb() -> Vec<(String, Literal)> {
    let mut columns = common();
    columns.extend([
        ("JSON".to_owned(), Literal::MariaDbJson),
        ("UUID".to_owned(), Literal::Uuid),
        ("INET6".to_owned(), Literal::Inet6),
        ("INET4".to_owned(), Literal::Inet4),
        (
            "VARCHAR(1000) COMPRESSED CHARACTER SET latin1".to_owned(),
            Literal::Text(900),
        ),
        ("TEXT COMPRESSED".to_owned(), Literal::Text(900)),
        ("BLOB COMPRESSED".to_owned(), Literal::Bytes(900)),
    ]);
    columns
}

impl Literal {
    pub(crate) fn make(self, random: &mut Random) -> String {
        if random.below(12) == 0 {
            return "NULL".to_owned();
        }
        match self {
            Literal::Integer => random.integer(),
            Literal::Decimal => random.decimal(),
            Literal::Float => random.float(),
            Literal::Bits => format!("b'{:b}'", random.next() >> random.below(63)),
            Literal::Year => random
                .pick(&["0", "'0000'", "1901", "2155", "1970", "2026", "1999"])
                .to_owned(),
            Literal::Date => format!("'{}'", random.date()),
            Literal::Time => format!("'{}'", random.time()),
            Literal::DateTime => format!("'{} {}'", random.date(), random.clock()),
            Literal::Timestamp => format!("'{}'", random.timestamp()),
            Literal::Text(max) => quoted(&random.text(max)),
            Literal::Bytes(max) => format!("x'{}'", hex(&random.bytes(max))),
            Literal::Index(end) => random.below(end).to_string(),
            Literal::Point => format!(
                "ST_GeomFromText('POINT({} {})')",
                random.below(90),
                random.below(90)
            ),
            Literal::MySqlJson => random.json(3, true),
            Literal::MariaDbJson => format!(
                "'[{}, \"{}\"]'",
                random.integer(),
                "x".repeat(random.below(300) as usize)
            ),
            Literal::Uuid => {
                let text = hex(&[random.next().to_be_bytes(), random.next().to_be_bytes()].concat());
                format!(
                    "'{}-{}-{}-{}-{}'",
                    &text[..8],
                    &text[8..12],
                    &text[12..16],
                    &text[16..20],
                    &text[20..]
                )
            }
            Literal::Inet6 => inet6(random),
            Literal::Inet4 => format!(
                "'{}.{}.{}.{}'",
                random.below(256),
                random.below(256),
                random.below(256),
                random.below(256)
            ),
            Literal::Vector => {
                let numbers: Vec<String> = (0..random.below(6))
                    .map(|_| format!("{}.5", random.below(1000)))
                    .collect();
                if numbers.is_empty() {
                    "NULL".to_owned()
                } else {
                    format!("STRING_TO_VECTOR('[{}]')", numbers.join(","))
                }
            }
        }
    }
}

fn inet6(random: &mut Random) -> String {
    let groups: Vec<String> = (0..8)
        .map(|_| {
            if random.below(2) == 0 {
                "0".to_owned()
            } else {
                format!("{:x}", random.next() as u16)
            }
        })
        .collect();
    match random.below(4) {
        0 => format!(
            "'::ffff:{}.{}.{}.{}'",
            random.below(256),
            random.below(256),
            random.below(256),
            random.below(256)
        ),
        1 => format!(
            "'::{}.{}.{}.{}'",
            random.below(256),
            random.below(256),
            random.below(256),
            random.below(256)
        ),
        _ => format!("'{}'", groups.join(":")),
    }
}
