//! Which values of a text are ids of rows: those that stand beside a column that has ids, or where an INSERT
//! has them for such a column. Of all others nobody knows.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use sql_class::text::is_one_of;
use sql_class::{Literal, TableName, literals, tables};

use super::super::plan::{readings, syntaxes};

/// The number of a table whose ids are mapped.
pub(super) type Owner = usize;

/// A table, with its schema in front.
type Table = (String, String);

/// The columns that have ids, and the tables whose ids they have.
#[derive(Debug, Default)]
pub(in super::super) struct Keys {
    owners: HashMap<Table, Owner>,
    /// The AUTO_INCREMENT columns of owners, in small letters.
    made: Vec<String>,
    /// By table and, in small letters, column.
    columns: HashMap<Table, HashMap<String, Owner>>,
}

impl Keys {
    /// `made`: schema, table and column of each id that the server makes. `referring`: the same of each
    /// column that refers to another one, which comes behind it.
    pub(in super::super) fn new(made: Vec<[String; 3]>, referring: Vec<[String; 6]>) -> Self {
        let mut keys = Self::default();
        for [schema, table, column] in made {
            let owner = keys.owners.len();
            keys.owners.insert((schema.clone(), table.clone()), owner);
            keys.made.push(column.to_lowercase());
            let columns = keys.columns.entry((schema, table)).or_default();
            columns.insert(column.to_lowercase(), owner);
        }
        for [schema, table, column, of_schema, of_table, of_column] in referring {
            let of = (of_schema, of_table);
            let owner = keys.owners.get(&of).copied();
            // What refers to another column of it has no ids.
            let owner = owner.filter(|owner| keys.column(&of, &of_column) == Some(*owner));
            if let Some(owner) = owner {
                let columns = keys.columns.entry((schema, table)).or_default();
                columns.entry(column.to_lowercase()).or_insert(owner);
            }
        }
        keys
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    fn column(&self, table: &Table, column: &str) -> Option<Owner> {
        self.columns.get(table)?.get(&column.to_lowercase()).copied()
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) place: Range<usize>,
    /// Which parameter it is, from 0.
    pub(super) parameter: Option<usize>,
    /// The table whose id it is, where that is known.
    pub(super) owner: Option<Owner>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// It makes ids of this table.
    pub(super) makes: Option<Owner>,
    /// It makes rows, and its answer has the id of the first of them.
    pub(super) inserts: bool,
    pub(super) values: Vec<Value>,
    /// All tables whose ids may be in it.
    pub(super) owners: Vec<Owner>,
    pub(super) updates_duplicates: bool,
}

/// Reads a text. `schema`: the current one. `None`: it is not understood.
pub(super) fn read(text: &[u8], schema: &str, keys: &Keys) -> Option<Reading> {
    if readings(text).iter().any(|facts| facts.statements != 1) {
        return None;
    }
    let [one, other] = syntaxes();
    let found = literals(text, one)?;
    if literals(text, other).as_ref() != Some(&found) {
        return None;
    }
    let with_schema = |table: TableName| (table.schema.unwrap_or_else(|| schema.to_owned()), table.name);
    let mut tokens = Tokens {
        text,
        found,
        tables: tables(text, one).into_iter().map(with_schema).collect(),
        owners: HashMap::new(),
        aliases: HashSet::new(),
        has_one_select: false,
        others: [HashSet::new(), HashSet::new()],
        having: usize::MAX,
    };
    tokens.others = tokens.others();
    tokens.having = (0..tokens.found.len())
        .find(|at| tokens.is(*at, &["HAVING"]))
        .unwrap_or(usize::MAX);
    tokens.has_one_select = (0..tokens.found.len())
        .filter(|at| tokens.is(*at, &["SELECT"]))
        .count()
        <= 1;
    tokens.aliases = tokens.aliases();
    let inserts = tokens.is(0, &["INSERT", "REPLACE"]);
    tokens.compared(keys);
    if inserts {
        tokens.inserted(keys);
    }
    let columns = tokens.tables.iter().filter_map(|table| keys.columns.get(table));
    let target = tokens.tables.first().filter(|_| inserts);
    let makes = target.and_then(|table| keys.owners.get(table).copied());
    Some(Reading {
        makes,
        inserts: inserts && !tokens.says_another_id(makes.and_then(|owner| keys.made.get(owner))),
        owners: columns.flat_map(HashMap::values).copied().collect(),
        updates_duplicates: (0..tokens.found.len()).any(|at| tokens.is(at, &["DUPLICATE"])),
        values: tokens.values(),
    })
}

struct Tokens<'a> {
    text: &'a [u8],
    found: Vec<(Literal, Range<usize>)>,
    tables: Vec<Table>,
    /// Whose id a token is, as far as that is known.
    owners: HashMap<usize, Owner>,
    /// Names of tables, each with an alias behind it, in small letters.
    aliases: HashSet<(String, String)>,
    has_one_select: bool,
    /// In small letters: names that no column has here, and that no table has.
    others: [HashSet<String>; 2],
    /// What stands behind it is compared with results.
    having: usize,
}

impl Tokens<'_> {
    /// The token's bytes; none behind the end.
    fn bytes(&self, at: usize) -> &[u8] {
        let place = self.found.get(at).map(|(_, place)| place.clone());
        place.and_then(|place| self.text.get(place)).unwrap_or_default()
    }

    fn is(&self, at: usize, words: &[&str]) -> bool {
        is_one_of(self.bytes(at), words)
    }

    /// The token as a name, without quotes.
    fn name(&self, at: usize) -> Option<String> {
        let (Literal::None, _) = self.found.get(at)? else {
            return None;
        };
        let bytes = self.bytes(at);
        let quoted = bytes.strip_prefix(b"`").and_then(|name| name.strip_suffix(b"`"));
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_$".contains(byte) || !byte.is_ascii();
        match quoted {
            Some(name) => String::from_utf8(name.to_vec())
                .ok()
                .map(|name| name.replace("``", "`")),
            None if !bytes.is_empty() && bytes.iter().all(is_plain) => String::from_utf8(bytes.to_vec()).ok(),
            None => None,
        }
    }

    fn is_value(&self, at: usize) -> bool {
        let literal = self.found.get(at).map(|(literal, _)| *literal);
        self.bytes(at) == b"?" || literal.is_some_and(|literal| literal != Literal::None)
    }

    /// A value that is all of an operand.
    fn is_operand(&self, at: usize) -> bool {
        let next = self.bytes(at + 1);
        let is_apart = matches!(next.first(), None | Some(b')' | b',' | b';'))
            || next[0].is_ascii_alphabetic() && !self.is(at + 1, &["DIV", "MOD", "COLLATE"]);
        self.is_value(at) && is_apart
    }

    /// Values that are compared with a column, or given to one by `SET`.
    fn compared(&mut self, keys: &Keys) {
        const COMPARISONS: [&str; 8] = ["=", "<=>", "<>", "!=", "<", "<=", ">", ">="];
        for at in 1..self.found.len() {
            let last = at - usize::from(self.is(at - 1, &["NOT"]) && at > 1);
            let values: Vec<usize> = if self.is(at, &COMPARISONS) {
                vec![at + 1]
            } else if self.is(at, &["BETWEEN"]) && self.is(at + 2, &["AND"]) {
                vec![at + 1, at + 3]
            } else if self.is(at, &["IN"]) && self.bytes(at + 1) == b"(" {
                let mut values = vec![at + 2];
                let mut next = at + 3;
                while self.bytes(next) == b"," {
                    values.push(next + 1);
                    next += 2;
                }
                values
            } else {
                continue;
            };
            if let Some(owner) = self.column_before(last, keys) {
                for value in values
                    .into_iter()
                    .filter(|value| self.is_operand(*value))
                    .collect::<Vec<_>>()
                {
                    self.owners.insert(value, owner);
                }
            }
        }
    }

    /// The table whose ids the column has that stands in front of this token as an operand of its own.
    fn column_before(&self, at: usize, keys: &Keys) -> Option<Owner> {
        const BEFORE: [&str; 10] = [
            "WHERE", "AND", "OR", "XOR", "ON", "NOT", "SET", "UPDATE", "(", ",",
        ];
        if at > self.having {
            return None;
        }
        let mut first = at.checked_sub(1)?;
        let column = self.name(first)?;
        let mut qualifiers = Vec::new();
        while first >= 2 && self.bytes(first - 1) == b"." {
            first -= 2;
            qualifiers.push(self.name(first)?);
        }
        if !self.is(first.checked_sub(1)?, &BEFORE) {
            return None;
        }
        let [columns, derived] = &self.others;
        let tables = self.tables.iter();
        let tables: Vec<&Table> = match &qualifiers[..] {
            [] if columns.contains(&column.to_lowercase()) => return None,
            [name] if derived.contains(&name.to_lowercase()) => return None,
            // In an inner query it may be a column of the outer one.
            [] if self.has_one_select => tables.collect(),
            [] => return None,
            [name] => tables
                .filter(|table| table.1 == *name || self.is_alias(name, &table.1))
                .collect(),
            [name, schema] => tables
                .filter(|table| (&table.0, &table.1) == (schema, name))
                .collect(),
            _ => return None,
        };
        match tables[..] {
            [table] => keys.column(table, &column),
            _ => None,
        }
    }

    fn is_alias(&self, alias: &str, table: &str) -> bool {
        self.aliases
            .contains(&(table.to_lowercase(), alias.to_lowercase()))
    }

    /// What is called so by `AS`, and by that or no word behind a `)` or in front of a `(`.
    fn others(&self) -> [HashSet<String>; 2] {
        let mut others = [HashSet::new(), HashSet::new()];
        let [columns, derived] = &mut others;
        for at in 1..self.found.len() {
            let has_as = self.is(at, &["AS"]);
            let is_derived = self.bytes(at - 1) == b")";
            if has_as && self.bytes(at + 1) == b"(" {
                derived.extend(self.name(at - 1).map(|name| name.to_lowercase()));
            } else if let Some(name) = self
                .name(at + usize::from(has_as))
                .filter(|_| has_as || is_derived)
            {
                let name = name.to_lowercase();
                if is_derived {
                    derived.insert(name.clone());
                }
                columns.insert(name);
            }
        }
        others
    }

    fn aliases(&self) -> HashSet<(String, String)> {
        let names: HashSet<&str> = self.tables.iter().map(|table| &*table.1).collect();
        let mut aliases = HashSet::new();
        for at in 0..self.found.len() {
            let alias = self.name(at + 1 + usize::from(self.is(at + 1, &["AS"])));
            if let Some(table) = self.name(at).filter(|name| names.contains(&**name))
                && let Some(alias) = alias
            {
                aliases.insert((table.to_lowercase(), alias.to_lowercase()));
            }
        }
        aliases
    }

    /// Values of an INSERT that names its columns.
    fn inserted(&mut self, keys: &Keys) {
        let Some(table) = self.tables.first().cloned() else {
            return;
        };
        let begins =
            |at: &usize| self.bytes(*at + 1) == b"(" && self.name(*at).is_some_and(|name| name == table.1);
        let Some(begin) = (0..self.found.len()).find(begins) else {
            return;
        };
        let mut columns = Vec::new();
        let mut at = begin + 2;
        while let Some(column) = self.name(at) {
            columns.push(keys.column(&table, &column));
            at += 2;
            match self.bytes(at - 1) {
                b"," => {}
                b")" => break,
                _ => return,
            }
        }
        if !self.is(at, &["VALUES", "VALUE"]) {
            return;
        }
        // One row after the other.
        while self.bytes(at + 1) == b"(" {
            at += 2;
            let (mut column, mut depth) = (0, 0);
            while at < self.found.len() && (depth > 0 || self.bytes(at) != b")") {
                let is_alone = depth == 0 && matches!(self.bytes(at - 1), b"(" | b",");
                if is_alone
                    && self.is_operand(at)
                    && let Some(Some(owner)) = columns.get(column)
                {
                    self.owners.insert(at, *owner);
                }
                match self.bytes(at) {
                    b"(" => depth += 1,
                    b")" => depth -= 1,
                    b"," if depth == 0 => column += 1,
                    _ => {}
                }
                at += 1;
            }
            at += 1;
            if self.bytes(at) != b"," {
                return;
            }
        }
    }

    /// Whether `LAST_INSERT_ID(…)` has something else than the column that it makes ids of.
    fn says_another_id(&self, made: Option<&String>) -> bool {
        let is_made = |at: usize| {
            let name = self.name(at).map(|name| name.to_lowercase());
            name.is_some() && name.as_ref() == made && self.bytes(at + 1) == b")"
        };
        (0..self.found.len())
            .filter(|at| self.is(*at, &["LAST_INSERT_ID"]) && self.bytes(at + 1) == b"(")
            .any(|at| self.bytes(at + 2) != b")" && !is_made(at + 2))
    }

    fn values(&self) -> Vec<Value> {
        let mut parameters = 0;
        let mut values = Vec::new();
        for (at, (_, place)) in self.found.iter().enumerate().filter(|(at, _)| self.is_value(*at)) {
            let is_parameter = self.bytes(at) == b"?";
            values.push(Value {
                place: place.clone(),
                parameter: is_parameter.then_some(parameters),
                owner: self.owners.get(&at).copied(),
            });
            parameters += usize::from(is_parameter);
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        let text = |words: &str| words.split('.').map(str::to_owned).collect::<Vec<_>>();
        let made = ["shop.orders.id", "shop.people.id"].map(|words| text(words).try_into().unwrap());
        let referring = [
            "shop.items.order_id.shop.orders.id",
            "shop.items.code.shop.orders.code",
        ];
        let referring = referring.map(|words| text(words).try_into().unwrap());
        Keys::new(made.to_vec(), referring.to_vec())
    }

    /// The values of a text that are ids, and how many others there are.
    fn of(text: &str) -> Option<(Vec<(&str, Owner)>, usize)> {
        let reading = read(text.as_bytes(), "shop", &keys())?;
        let known = reading.values.iter();
        let known = known.filter_map(|value| Some((&text[value.place.clone()], value.owner?)));
        let known: Vec<_> = known.collect();
        let others = reading.values.len() - known.len();
        Some((known, others))
    }

    #[test]
    fn ids_are_known_by_their_columns() {
        const ORDERS: Owner = 0;
        const PEOPLE: Owner = 1;
        type Case = (&'static str, &'static [(&'static str, Owner)], usize);
        let known: [Case; 24] = [
            ("SELECT * FROM orders WHERE id = 7", &[("7", ORDERS)], 0),
            (
                "SELECT * FROM shop.orders WHERE `ID`='7' LIMIT 7",
                &[("'7'", ORDERS)],
                1,
            ),
            ("UPDATE orders SET count = 7 WHERE id = ?", &[("?", ORDERS)], 1),
            (
                "DELETE FROM orders WHERE id NOT IN (1, ?, 3 + 4) AND x = 2",
                &[("1", ORDERS), ("?", ORDERS)],
                3,
            ),
            (
                "SELECT 1 FROM orders WHERE id BETWEEN 3 AND 4",
                &[("3", ORDERS), ("4", ORDERS)],
                1,
            ),
            (
                "SELECT * FROM items WHERE order_id = 7 AND code = 7",
                &[("7", ORDERS)],
                1,
            ),
            (
                "INSERT INTO items (name, order_id) VALUES ('x', 7), (f(1, 2), ?)",
                &[("7", ORDERS), ("?", ORDERS)],
                3,
            ),
            ("INSERT INTO items VALUES (1, 7)", &[], 2),
            ("INSERT INTO items SET order_id = 7", &[("7", ORDERS)], 0),
            (
                "SELECT * FROM orders o JOIN people AS p ON o.person = p.id WHERE p.id = 3 AND o.id = 4",
                &[("3", PEOPLE), ("4", ORDERS)],
                0,
            ),
            // Of which of them it is the column nobody knows.
            ("SELECT * FROM orders JOIN people WHERE id = 7", &[], 1),
            (
                "SELECT * FROM (SELECT COUNT(*) AS id FROM orders) x WHERE id = 7",
                &[],
                1,
            ),
            (
                "SELECT * FROM (SELECT 1 AS id FROM orders) x WHERE x.id = 7",
                &[],
                2,
            ),
            (
                "SELECT * FROM (SELECT 1 AS id FROM orders) orders WHERE orders.id = 7",
                &[],
                2,
            ),
            (
                "SELECT * FROM items i, (SELECT 1 id FROM orders) AS `Orders` WHERE orders.id=7 AND i.order_id=8",
                &[("8", ORDERS)],
                2,
            ),
            (
                "WITH orders AS (SELECT 1 AS id FROM orders) SELECT * FROM orders WHERE orders.id = 7",
                &[],
                2,
            ),
            // A name of the result's.
            ("SELECT MAX(x) AS id FROM orders WHERE id = 7", &[], 1),
            ("SELECT MAX(x) Id FROM orders WHERE id = 7", &[], 1),
            (
                "SELECT name id FROM orders WHERE id = 7 GROUP BY 1 HAVING id = 8 AND id = 9",
                &[("7", ORDERS)],
                3,
            ),
            ("SELECT * FROM orders AS `o` WHERE O.id = 7", &[("7", ORDERS)], 0),
            ("SELECT * FROM orders WHERE id = 7 + 1", &[], 2),
            ("SELECT * FROM orders WHERE 1 - id = 7", &[], 2),
            ("SELECT * FROM other.orders WHERE id = 7", &[], 1),
            ("SELECT * FROM orders WHERE id = -7", &[], 1),
        ];
        for (text, ids, others) in known {
            assert_eq!(of(text), Some((ids.to_vec(), others)), "{text}");
        }
        assert_eq!(of("SELECT * FROM orders WHERE id = 1; SELECT 2"), None);
        assert_eq!(of("SELECT * FROM orders WHERE name = 'open"), None);
    }

    #[test]
    fn a_long_text_is_read_in_time() {
        let began = std::time::Instant::now();
        let text = format!(
            "SELECT * FROM orders o WHERE id = 1{}",
            " OR id = 2 OR o.id = 3".repeat(20_000)
        );
        assert_eq!(of(&text).unwrap().0.len(), 40_001);
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }

    #[test]
    fn who_makes_ids_is_known() {
        let makes = |text: &str| read(text.as_bytes(), "shop", &keys()).and_then(|reading| reading.makes);
        assert_eq!(makes("INSERT INTO people (name) VALUES ('x')"), Some(1));
        assert_eq!(makes("replace orders SELECT * FROM people"), Some(0));
        assert_eq!(makes("INSERT INTO items (order_id) VALUES (1)"), None);
        assert_eq!(makes("UPDATE people SET id = LAST_INSERT_ID(id + 1)"), None);
    }
}
