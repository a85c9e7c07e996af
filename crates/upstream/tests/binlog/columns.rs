//! Columns of every type, and literals for them.

use crate::random::{Literals, hex, quoted};

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
    MariaDbVector,
}

type Columns = Vec<(String, Literal)>;

/// Declarations, and what to put in.
fn common() -> Columns {
    let mut columns = Vec::new();
    numbers(&mut columns);
    times(&mut columns);
    texts(&mut columns);
    others(&mut columns);
    columns
}

fn add(columns: &mut Columns, literal: Literal, declarations: &[&str]) {
    columns.extend(
        declarations
            .iter()
            .map(|&declaration| (declaration.to_owned(), literal)),
    );
}

fn numbers(columns: &mut Columns) {
    for name in ["TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"] {
        for attributes in ["", " UNSIGNED", " ZEROFILL", "(25) ZEROFILL"] {
            add(columns, Literal::Integer, &[&format!("{name}{attributes}")]);
        }
    }
    for digits in [
        "(10,2)",
        "(65,30)",
        "(65,0)",
        "(5)",
        "(9,9)",
        "(18,9) UNSIGNED",
        "(30,7) ZEROFILL",
        "(4,4) ZEROFILL",
    ] {
        add(columns, Literal::Decimal, &[&format!("DECIMAL{digits}")]);
    }
    for digits in ["", " UNSIGNED ZEROFILL", "(7,2)", "(20,10)", "(9,3) ZEROFILL"] {
        add(columns, Literal::Float, &[&format!("FLOAT{digits}")]);
    }
    for digits in [
        "",
        " ZEROFILL",
        "(20,10)",
        "(30,0)",
        "(255,30)",
        "(12,3) ZEROFILL",
    ] {
        add(columns, Literal::Float, &[&format!("DOUBLE{digits}")]);
    }
    add(
        columns,
        Literal::Bits,
        &["BIT(1)", "BIT(7)", "BIT(8)", "BIT(9)", "BIT(33)", "BIT(64)"],
    );
}

fn times(columns: &mut Columns) {
    add(columns, Literal::Year, &["YEAR"]);
    add(columns, Literal::Date, &["DATE"]);
    for decimals in 0..=6 {
        add(columns, Literal::Time, &[&format!("TIME({decimals})")]);
        add(columns, Literal::DateTime, &[&format!("DATETIME({decimals})")]);
        add(
            columns,
            Literal::Timestamp,
            &[&format!("TIMESTAMP({decimals}) NULL")],
        );
    }
}

fn texts(columns: &mut Columns) {
    for charset in [
        "utf8mb4", "utf8mb3", "latin1", "ascii", "ucs2", "utf16", "utf16le", "utf32",
    ] {
        for (declaration, max) in [
            ("CHAR(20)", 30),
            ("VARCHAR(60)", 30),
            ("VARCHAR(300)", 300),
            ("TEXT", 300),
        ] {
            add(
                columns,
                Literal::Text(max),
                &[&format!("{declaration} CHARACTER SET {charset}")],
            );
        }
        let member = if charset == "ascii" { "u" } else { "ü" };
        let declaration = format!("ENUM('a','x','{member}','it''s') CHARACTER SET {charset}");
        add(columns, Literal::Index(5), &[&declaration]);
    }
    let wide = ["CHAR(255) CHARACTER SET utf8mb4", "CHAR(200) CHARACTER SET utf32"];
    add(columns, Literal::Text(60), &wide);
    add(
        columns,
        Literal::Text(60),
        &["TINYTEXT", "MEDIUMTEXT", "LONGTEXT"],
    );
}

fn others(columns: &mut Columns) {
    add(
        columns,
        Literal::Bytes(20),
        &["BINARY", "BINARY(16)", "BINARY(255)", "TINYBLOB"],
    );
    add(
        columns,
        Literal::Bytes(20),
        &["VARBINARY(20)", "VARBINARY(255)", "VARBINARY(256)"],
    );
    add(
        columns,
        Literal::Bytes(2000),
        &["VARBINARY(3000)", "BLOB", "MEDIUMBLOB", "LONGBLOB"],
    );
    let members: Vec<String> = (0..300).map(|at| format!("'m{at}'")).collect();
    add(columns, Literal::Index(6), &["ENUM('a','','c\\\\d','e\nf','0')"]);
    add(
        columns,
        Literal::Index(301),
        &[&format!("ENUM({})", members.join(","))],
    );
    add(
        columns,
        Literal::Index(8),
        &["SET('a','b','c d')", "SET('a','b','ü') CHARACTER SET latin1"],
    );
    add(
        columns,
        Literal::Index(u64::MAX),
        &[&format!("SET({})", members[..64].join(","))],
    );
    add(columns, Literal::Point, &["POINT", "GEOMETRY"]);
}

pub(crate) fn mysql() -> Columns {
    let mut columns = common();
    columns.extend([
        ("JSON".to_owned(), Literal::MySqlJson),
        ("VECTOR(5)".to_owned(), Literal::Vector),
    ]);
    columns
}

/// As MariaDB stores times with `mysql56_temporal_format = OFF`. With fractions they cannot be read.
pub(crate) fn old_times() -> Columns {
    let mut columns = Vec::new();
    add(&mut columns, Literal::Date, &["DATE"]);
    add(&mut columns, Literal::Time, &["TIME"]);
    add(&mut columns, Literal::DateTime, &["DATETIME"]);
    add(&mut columns, Literal::Timestamp, &["TIMESTAMP NULL"]);
    columns
}

pub(crate) fn newer_mariadb() -> Columns {
    let mut columns = mariadb();
    add(&mut columns, Literal::MariaDbVector, &["VECTOR(5)"]);
    columns
}

pub(crate) fn mariadb() -> Columns {
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

/// Without the types that a server of this version (`10.6.12-MariaDB`) lacks.
pub(crate) fn known_to(version: &str, columns: Columns) -> Columns {
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    let known = |(_, literal): &(String, Literal)| literal.since() <= version;
    columns.into_iter().filter(known).collect()
}

impl Literal {
    /// The first version of the server with such a type.
    fn since(self) -> (u32, u32) {
        match self {
            Literal::Uuid => (10, 7),
            Literal::Inet4 => (10, 10),
            Literal::Vector => (9, 0),
            Literal::MariaDbVector => (11, 7),
            _ => (0, 0),
        }
    }

    pub(crate) fn make(self, random: &mut Literals) -> String {
        if random.below(12) == 0 {
            return "NULL".to_owned();
        }
        match self {
            Literal::Integer => random.integer(),
            Literal::Decimal => random.decimal(),
            Literal::Float => random.float(),
            Literal::Bits => format!("b'{:b}'", random.number() >> random.below(63)),
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
                let text = hex(&[random.number().to_be_bytes(), random.number().to_be_bytes()].concat());
                format!(
                    "'{}-{}-{}-{}-{}'",
                    &text[..8],
                    &text[8..12],
                    &text[12..16],
                    &text[16..20],
                    &text[20..]
                )
            }
            Literal::MariaDbVector => format!("VEC_FromText('[1,2.5,{},0,-1]')", random.below(1000)),
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

fn inet6(random: &mut Literals) -> String {
    let groups: Vec<String> = (0..8)
        .map(|_| {
            if random.below(2) == 0 {
                "0".to_owned()
            } else {
                format!("{:x}", random.number() as u16)
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
