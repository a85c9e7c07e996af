//! Random SQL literals of every type: the same each time, since what must pass may not depend on luck.
//! `FOREBAY_BINLOG_ROWS` asks for new ones, `FOREBAY_SEED` repeats a run.

use std::ops::{Deref, DerefMut};

use inputs::{Random, asked, seed_of};

/// Where those begin that are always made.
const ALWAYS_FROM: u64 = 42;

pub(crate) struct Literals(Random);

impl Deref for Literals {
    type Target = Random;

    fn deref(&self) -> &Random {
        &self.0
    }
}

impl DerefMut for Literals {
    fn deref_mut(&mut self) -> &mut Random {
        &mut self.0
    }
}

impl Literals {
    pub(crate) fn new() -> (Literals, u64) {
        let seed = match std::env::var_os("FOREBAY_BINLOG_ROWS") {
            Some(_) => seed_of("FOREBAY_SEED"),
            None => asked("FOREBAY_SEED").unwrap_or(ALWAYS_FROM),
        };
        (Literals(Random::new(seed | 1)), seed)
    }

    pub(crate) fn bytes(&mut self, max: u64) -> Vec<u8> {
        let len = self.below(max + 1);
        (0..len)
            .map(|_| {
                if self.below(5) == 0 {
                    0
                } else {
                    self.number() as u8
                }
            })
            .collect()
    }

    pub(crate) fn text(&mut self, max: u64) -> String {
        const CHARS: &[char] = &[
            'a', 'Z', '0', ' ', '\'', '"', '\\', '\n', '\0', 'ü', 'ß', '€', 'Ÿ', '漢', '😀', '\u{81}',
            '\u{7f}', '\u{1}',
        ];
        let len = self.below(max + 1);
        (0..len).map(|_| self.pick(CHARS)).collect()
    }

    fn digits(&mut self, max: u64) -> String {
        let len = 1 + self.below(max);
        (0..len).map(|_| self.pick(&['0', '1', '5', '9', '7'])).collect()
    }

    pub(crate) fn integer(&mut self) -> String {
        let bits = self.number() >> self.below(64);
        match self.below(3) {
            0 => format!("-{bits}"),
            1 => bits.to_string(),
            _ => self
                .pick(&[
                    "0",
                    "1",
                    "-1",
                    "127",
                    "128",
                    "255",
                    "-128",
                    "32767",
                    "-32768",
                    "65535",
                    "8388607",
                    "-8388608",
                    "2147483647",
                    "-2147483648",
                    "4294967295",
                    "9223372036854775807",
                    "-9223372036854775808",
                    "18446744073709551615",
                ])
                .to_owned(),
        }
    }

    pub(crate) fn decimal(&mut self) -> String {
        let sign = self.pick(&["", "-"]);
        let (whole, fraction) = (self.digits(40), self.digits(32));
        match self.below(6) {
            0 => format!("{sign}{}", self.digits(3)),
            1 => format!("{sign}0.{fraction}"),
            2 => format!("{sign}{}.{}", self.digits(8), self.digits(3)),
            3 => format!("{sign}0.00"),
            _ => format!("{sign}{whole}.{fraction}"),
        }
    }

    pub(crate) fn float(&mut self) -> String {
        match self.below(6) {
            0 => {
                let number = f64::from_bits(self.number());
                if number.is_finite() {
                    format!("{number:e}")
                } else {
                    "-0.0e0".to_owned()
                }
            }
            1 => {
                let number = f32::from_bits(self.number() as u32);
                if number.is_finite() {
                    format!("{number:e}")
                } else {
                    "1e10".to_owned()
                }
            }
            2 => format!("{}1e{}", self.pick(&["", "-"]), self.below(40) as i64 - 20),
            // Halves of the last of six digits.
            3 => format!("{}5", 100_000 + self.below(900_000)),
            4 => format!("{}.5e{}", 100_000 + self.below(900_000), self.below(12)),
            _ => format!(
                "{}{}e-{}",
                self.pick(&["", "-"]),
                self.number() >> self.below(64),
                self.below(25)
            ),
        }
    }

    pub(crate) fn date(&mut self) -> String {
        match self.below(5) {
            0 => self
                .pick(&[
                    "0000-00-00",
                    "1000-01-01",
                    "9999-12-31",
                    "2020-00-00",
                    "2020-05-00",
                    "0000-01-01",
                    "0001-01-01",
                    "2024-02-29",
                ])
                .to_owned(),
            _ => format!(
                "{:04}-{:02}-{:02}",
                1 + self.below(9999),
                1 + self.below(12),
                1 + self.below(28)
            ),
        }
    }

    pub(crate) fn clock(&mut self) -> String {
        let fraction = self.pick(&["", ".5", ".000001", ".999999", ".1", ".123456", ".01"]);
        match self.below(4) {
            0 => "00:00:00".to_owned(),
            1 => format!("00:00:00{fraction}"),
            _ => format!(
                "{:02}:{:02}:{:02}{fraction}",
                self.below(24),
                self.below(60),
                self.below(60)
            ),
        }
    }

    pub(crate) fn time(&mut self) -> String {
        let sign = self.pick(&["", "-"]);
        match self.below(4) {
            0 => format!("{sign}838:59:59.000000"),
            1 => format!("{sign}838:59:58.999999"),
            2 => format!("{sign}{}", self.clock()),
            _ => format!("{sign}{}:{}", self.below(839), &self.clock()[3..]),
        }
    }

    pub(crate) fn timestamp(&mut self) -> String {
        match self.below(6) {
            0 => self
                .pick(&[
                    "0000-00-00 00:00:00",
                    "1970-01-01 00:00:01",
                    "2038-01-19 03:14:07",
                    "2106-02-07 06:28:15",
                    "2038-01-19 03:14:07.999999",
                    "2000-02-29 23:59:59.5",
                ])
                .to_owned(),
            _ => format!(
                "{:04}-{:02}-{:02} {}",
                1971 + self.below(67),
                1 + self.below(12),
                1 + self.below(28),
                self.clock()
            ),
        }
    }

    /// A document in SQL, nested up to `depth`.
    pub(crate) fn json(&mut self, depth: u32, mysql: bool) -> String {
        let kinds = if depth == 0 { 6 } else { 9 };
        match self.below(kinds) {
            0 => "CAST('null' AS JSON)".to_owned(),
            1 => format!("CAST('{}' AS JSON)", self.pick(&["true", "false"])),
            2 => format!("CAST('{}' AS JSON)", self.integer()),
            3 => format!("CAST('{}' AS JSON)", self.float()),
            4 => format!("JSON_EXTRACT(JSON_ARRAY({}), '$[0]')", quoted(&self.text(40))),
            5 if mysql => self.json_of_sql(),
            6 => {
                let members: Vec<_> = (0..self.below(6))
                    .map(|at| {
                        format!(
                            "{}, {}",
                            quoted(&format!("{}{at}", self.text(5))),
                            self.json(depth - 1, mysql)
                        )
                    })
                    .collect();
                format!("JSON_OBJECT({})", members.join(", "))
            }
            7 => {
                let members: Vec<_> = (0..self.below(6)).map(|_| self.json(depth - 1, mysql)).collect();
                format!("JSON_ARRAY({})", members.join(", "))
            }
            8 => {
                let long = quoted(&self.text(8).repeat(1 + self.below(9000) as usize));
                format!("JSON_ARRAY({long}, {})", self.json(depth - 1, mysql))
            }
            _ => "CAST('{}' AS JSON)".to_owned(),
        }
    }

    /// Values that only SQL can put into a document.
    fn json_of_sql(&mut self) -> String {
        let inner = match self.below(9) {
            0 => format!(
                "DATE'{:04}-{:02}-{:02}'",
                1 + self.below(9999),
                1 + self.below(12),
                1 + self.below(28)
            ),
            1 => format!("TIME'{}'", self.time()),
            2 => format!("TIMESTAMP'2020-{:02}-01 {}'", 1 + self.below(12), self.clock()),
            3 => format!("CAST({} AS DECIMAL(60,{}))", self.decimal(), self.below(30)),
            4 => format!("x'{}'", hex(&self.bytes(200))),
            5 => format!("b'{:b}'", self.number() >> self.below(63)),
            6 => "CAST(2020 AS YEAR)".to_owned(),
            7 => format!("CAST({} AS UNSIGNED)", self.number()),
            _ => format!("CAST({} AS DOUBLE)", self.float()),
        };
        format!("JSON_ARRAY({inner})")
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn quoted(text: &str) -> String {
    format!("_utf8mb4 0x{} COLLATE utf8mb4_bin", hex(text.as_bytes())).replace("0x ", "'' ")
}
