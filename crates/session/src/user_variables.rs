//! User variables on their way to another connection.
//!
//! Which there are the server lists: triggers and functions set some that no text names. MySQL does so for
//! accounts with a right to it; for others those count that texts have named. What they are is asked for on
//! the connection. No server tells types and collations of all of them to everybody, so each is asked for by
//! a SELECT: the definition of its column has the type.
//!
//! A session that moves has them asked for again on its next connection. One that leaves its connection with
//! them, for one that it does not know yet (see [`crate::Leave`]), has them tried out before, under other
//! names on the same connection.

use serde::{Deserialize, Serialize};
use sql_class::Dialect;

use crate::rebuild::query;
use crate::variables;

/// Names of one session.
const NAMES_MAX: usize = 250;

/// Columns of the question for each variable: its value, collation and coercibility, and its bytes.
pub(crate) const COLUMNS: usize = 4;

/// The names that a session has used.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Named {
    names: Vec<Box<[u8]>>,
    /// There are others, of which nobody knows the names.
    and_others: bool,
}

impl Named {
    /// `None`: not all of them are known.
    pub(crate) fn add(&mut self, names: Option<Vec<Box<[u8]>>>) {
        self.and_others |= names.is_none();
        for name in names.into_iter().flatten() {
            if self.names.len() <= NAMES_MAX && !self.names.contains(&name) {
                self.names.push(name);
            }
        }
        self.and_others |= self.names.len() > NAMES_MAX;
    }

    /// All of them, where they are known.
    pub(crate) fn all(&self) -> Option<&[Box<[u8]>]> {
        (!self.and_others).then_some(&self.names)
    }
}

/// A row of the [`list`] that is there whenever the list is whole. Nobody's name is read as this one: it is
/// not [plain](is_plain).
const WHOLE: &str = "HEX('-')";

/// The command that has a server list the user variables of a connection, for [`crate::Leave::of`]: names in
/// hexadecimal digits, which are the same in any character set, each with the length from which on the server
/// takes no packet.
#[must_use]
pub fn list(dialect: Dialect) -> Vec<u8> {
    let limit = NAMES_MAX + 2;
    let (from, whole) = match dialect {
        Dialect::MariaDb { .. } => ("information_schema.user_variables", ""),
        // Without the thread's number there is nothing to be found.
        Dialect::MySql { .. } => (
            "performance_schema.user_variables_by_thread WHERE THREAD_ID = PS_CURRENT_THREAD_ID()",
            " FROM DUAL WHERE PS_CURRENT_THREAD_ID() IS NOT NULL",
        ),
    };
    query(&format!(
        "SELECT CONCAT(HEX(VARIABLE_NAME), ' ', @@max_allowed_packet) FROM {from} \
         UNION ALL SELECT CONCAT({WHOLE}, ' ', @@max_allowed_packet){whole} LIMIT {limit}"
    ))
}

/// What the rows of the [`list`] say; `None` where it is not whole or too long, or has names that are not
/// plain.
pub(crate) fn listed(rows: impl Iterator<Item = Vec<u8>>) -> Option<(Vec<Box<[u8]>>, usize)> {
    let (mut names, mut packet_max) = (Vec::new(), None);
    for row in rows {
        let (digits, max) = str::from_utf8(&row).ok()?.split_once(' ')?;
        match &*unhex(digits.as_bytes())? {
            b"-" if packet_max.is_some() => return None,
            b"-" => packet_max = Some(max.parse().ok()?),
            name if is_plain(name) => names.push(name.into()),
            _ => return None,
        }
    }
    packet_max
        .filter(|_| names.len() <= NAMES_MAX)
        .map(|max| (names, max))
}

fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(byte).collect()
}

/// It means the same in any character set, and needs no care between backticks.
fn is_plain(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.$".contains(byte);
    !name.is_empty() && name.iter().all(is_plain)
}

/// The command that asks for all of these.
pub(crate) fn question(names: &[Box<[u8]>]) -> Vec<u8> {
    let columns = names.iter().map(|name| {
        let name = String::from_utf8_lossy(name);
        // The definition is not to have the name.
        format!("@`{name}` AS v, COLLATION(@`{name}`), COERCIBILITY(@`{name}`), HEX(@`{name}`)")
    });
    let columns: Vec<_> = columns.collect();
    // The LIMIT is for sessions that have set `sql_select_limit`.
    query(&format!("SELECT {} LIMIT 1", columns.join(", ")))
}

/// The command that asks how many bytes these have.
pub(crate) fn length(names: &[Box<[u8]>]) -> Vec<u8> {
    let lengths = names.iter().map(|name| {
        let name = String::from_utf8_lossy(name);
        format!("COALESCE(OCTET_LENGTH(@`{name}`), 0)")
    });
    let lengths: Vec<_> = lengths.collect();
    query(&format!("SELECT {} LIMIT 1", lengths.join(" + ")))
}

/// A variable as a server has told it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ToldVariable {
    /// Of its column. Names, lengths, types: nothing of it may differ.
    definition: Vec<u8>,
    value: Option<Vec<u8>>,
    collation: Option<Vec<u8>>,
    coercibility: Option<Vec<u8>>,
    bytes: Option<Vec<u8>>,
}

/// The answer to the [`question`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserVariables(Vec<ToldVariable>);

impl UserVariables {
    /// `definitions`: those of the columns, as packets; `row`: its values in plain characters. `None` where
    /// they do not belong together.
    #[must_use]
    pub fn new<'p>(definitions: impl Iterator<Item = &'p [u8]>, row: Vec<Option<Vec<u8>>>) -> Option<Self> {
        let definitions: Vec<_> = definitions.step_by(COLUMNS).collect();
        let mut values = row.into_iter();
        let told = definitions.into_iter().map(|definition| {
            Some(ToldVariable {
                definition: definition.to_vec(),
                value: values.next()?,
                collation: values.next()?,
                coercibility: values.next()?,
                bytes: values.next()?,
            })
        });
        let told: Option<Vec<_>> = told.collect();
        told.filter(|_| values.next().is_none()).map(Self)
    }

    /// The command that makes those which differ on another server what these are; `None` where none does.
    /// What comes of it has to be asked for.
    pub(crate) fn set(&self, names: &[Box<[u8]>], has: &Self) -> Option<Vec<u8>> {
        let pairs = self.0.iter().zip(&has.0);
        let differing = names.iter().zip(pairs).filter(|(_, (had, has))| had != has);
        let items = differing.map(|(name, (had, has))| {
            let name = String::from_utf8_lossy(name);
            let value = format!("@`{name}`={}", had.literal());
            match had.value.is_none() && had.definition != has.definition {
                // It had a value before, which has left it a type.
                true => format!("@`{name}`={}, {value}", had.empty()),
                false => value,
            }
        });
        let items: Vec<_> = items.collect();
        (!items.is_empty()).then(|| query(&format!("SET {}", items.join(", "))))
    }
}

/// Of a column, as its definition has them at its end.
const LONGLONG: u8 = 8;
const DOUBLE: u8 = 5;
const DECIMAL: u8 = 246;
const UNSIGNED: u8 = 32;

impl ToldVariable {
    /// Its type, and the low byte of the flags.
    fn kind(&self) -> (u8, u8) {
        // Type, two bytes of flags, decimals, two of nothing.
        match self.definition.as_slice() {
            [.., kind, low, _, _, _, _] => (*kind, *low),
            _ => (0, 0),
        }
    }

    /// Some value of the type that a NULL has.
    fn empty(&self) -> String {
        let number = match self.kind() {
            (LONGLONG, flags) if flags & UNSIGNED != 0 => "CAST(0 AS UNSIGNED)",
            (LONGLONG, _) => "0",
            (DOUBLE, _) => "0e0",
            (DECIMAL, _) => "0.",
            _ => return self.string(),
        };
        number.to_owned()
    }

    /// As it is written behind `=`. Where that makes something else of it, the session stays.
    fn literal(&self) -> String {
        let Some(value) = &self.value else {
            return "NULL".to_owned();
        };
        let text = String::from_utf8_lossy(value);
        let (kind, flags) = self.kind();
        match kind {
            LONGLONG if flags & UNSIGNED != 0 => format!("CAST({text} AS UNSIGNED)"),
            LONGLONG => text.into_owned(),
            DOUBLE if !text.contains('e') => format!("{text}e0"),
            DOUBLE => text.into_owned(),
            DECIMAL if !text.contains('.') => format!("{text}."),
            DECIMAL => text.into_owned(),
            _ => self.string(),
        }
    }

    fn string(&self) -> String {
        let collation = self.collation.as_deref().unwrap_or(b"binary");
        let is_word = variables::is_word(collation);
        let collation = if is_word { collation } else { b"binary" };
        let [charset, collation] = [variables::charset_of(collation), collation].map(String::from_utf8_lossy);
        let bytes = match self.bytes.as_deref() {
            None | Some(b"") => "''".to_owned(),
            Some(digits) => format!("0x{}", String::from_utf8_lossy(digits)),
        };
        match &*collation {
            // The one that is no name.
            "binary" => format!("_binary {bytes}"),
            _ => format!("_{charset} {bytes} COLLATE {collation}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Box<[u8]>> {
        names.iter().map(|name| name.as_bytes().into()).collect()
    }

    fn told(kind: u8, flags: u8, value: [Option<&str>; 4]) -> UserVariables {
        let definition = [&b"def"[..], &[kind, flags, 0, 0, 0, 0]].concat();
        let row = value
            .map(|value| value.map(|value| value.as_bytes().to_vec()))
            .to_vec();
        UserVariables::new([definition.as_slice(); 4].into_iter(), row).unwrap()
    }

    fn set(had: &UserVariables) -> String {
        let unset = told(251, 0, [None, Some("binary"), Some("2"), None]);
        let command = had.set(&names(&["a"]), &unset).unwrap();
        String::from_utf8_lossy(&command[1..]).into_owned()
    }

    #[test]
    fn each_type_has_its_literal() {
        let number = |kind, flags, value| {
            told(
                kind,
                flags,
                [Some(value), Some("latin1_bin"), Some("2"), Some("7B")],
            )
        };
        assert_eq!(set(&number(LONGLONG, 0, "-5")), "SET @`a`=-5");
        assert_eq!(
            set(&number(LONGLONG, UNSIGNED, "5")),
            "SET @`a`=CAST(5 AS UNSIGNED)"
        );
        assert_eq!(set(&number(DOUBLE, 0, "0.5")), "SET @`a`=0.5e0");
        assert_eq!(set(&number(DOUBLE, 0, "1e300")), "SET @`a`=1e300");
        assert_eq!(set(&number(DECIMAL, 0, "1.50")), "SET @`a`=1.50");
        assert_eq!(set(&number(DECIMAL, 0, "7")), "SET @`a`=7.");
        assert_eq!(
            set(&number(253, 0, "{")),
            "SET @`a`=_latin1 0x7B COLLATE latin1_bin"
        );
        let empty = told(253, 0, [Some(""), Some("utf8mb4_bin"), Some("2"), Some("")]);
        assert_eq!(set(&empty), "SET @`a`=_utf8mb4 '' COLLATE utf8mb4_bin");
        let no_text = told(253, 0, [None, Some("latin1_bin"), Some("2"), None]);
        assert_eq!(set(&no_text), "SET @`a`=_latin1 '' COLLATE latin1_bin, @`a`=NULL");
        let nothing = told(251, 0, [None, Some("binary"), Some("0"), None]);
        assert_eq!(set(&nothing), "SET @`a`=NULL");
        let no_number = told(LONGLONG, 0, [None, Some("binary"), Some("2"), None]);
        assert_eq!(set(&no_number), "SET @`a`=0, @`a`=NULL");
    }

    #[test]
    fn what_is_the_same_is_not_set() {
        let same = told(LONGLONG, 0, [Some("1"), None, None, None]);
        assert_eq!(same.set(&names(&["a"]), &same), None);
    }

    #[test]
    fn a_list_is_whole_or_none() {
        let of = |names: &[&str]| listed(names.iter().map(|name| format!("{name} 1024").into_bytes()));
        assert_eq!(of(&["2D"]), Some((Vec::new(), 1024)));
        assert_eq!(of(&["6158", "2D", "5F"]), Some((names(&["aX", "_"]), 1024)));
        for unclear in [
            &["61"][..],
            &[],
            &["2D", "2D"],
            &["2D", ""],
            &["2D", "612062"],
            &["2D", "C3A4"],
            &["2D", "6"],
            &["2D", "60"],
        ] {
            assert_eq!(of(unclear), None, "{unclear:?}");
        }
        let many: Vec<_> = (0..NAMES_MAX)
            .map(|at| format!("61{:X}", 0x3030 + at % 10))
            .collect();
        let mut many: Vec<_> = many.iter().map(String::as_str).chain(["2D"]).collect();
        assert!(of(&many).is_some());
        many.push("61");
        assert_eq!(of(&many), None);
        assert_eq!(listed([b"2D".to_vec()].into_iter()), None);
    }

    #[test]
    fn names_are_known_or_not() {
        let mut named = Named::default();
        named.add(Some(names(&["a", "b"])));
        named.add(Some(names(&["b"])));
        assert_eq!(named.all().map(<[_]>::len), Some(2));
        named.add(None);
        assert_eq!(named.all(), None);
    }

    #[test]
    fn no_more_names_are_kept_than_are_carried() {
        let mut named = Named::default();
        for at in 0..2 * NAMES_MAX {
            named.add(Some(names(&[format!("v{at}").as_str()])));
        }
        assert_eq!(named.all(), None);
        assert!(named.names.len() <= NAMES_MAX + 1, "{}", named.names.len());
    }
}
