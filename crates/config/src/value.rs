//! Types an option can have: how each is read from TOML, written back, named in documents and compared.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeValue;

use crate::address::{BindAddress, ServerAddress, bind_hint, server_hint};
use crate::byte_size::ByteSize;
use crate::congestion::Congestion;
use crate::duration;
use crate::fraction::Fraction;
use crate::http_url::HttpUrl;
use crate::matcher::{DigestHash, Glob, Pattern};
use crate::option::{Change, OptionDoc, Reload};
use crate::report::Report;
use crate::secret::Secret;
use crate::zone_offset::ZoneOffset;

/// Longest part of a value that an error message repeats, in characters.
const SHOWN_MAX: usize = 60;

/// A value as it stands in the file, with its place.
pub(crate) type Found<'f> = Spanned<DeValue<'f>>;

/// A type an option can have.
pub(crate) trait Value: Sized + PartialEq {
    /// What a right value looks like, examples in parentheses at the end: the `expected …` of an error and
    /// the type in the reference.
    fn kind() -> String;

    /// Reads the value of the option `path`. `None` after the mistake was told to `report`.
    fn read(found: &Found<'_>, path: &str, report: &mut Report<'_>) -> Option<Self>;

    /// The value as TOML, as `read` takes it. Never a secret.
    fn show(&self) -> String;

    /// Takes the place of a value that could not be read, so that the rest of the file is still checked.
    /// A configuration with a stand-in never leaves this crate.
    fn stand_in() -> Self;

    /// Tables list their own options under `path`; plain values have none.
    fn list_options(_path: &str, _options: &mut Vec<OptionDoc>) {}

    /// Adds what differs between `self` and `new` to `changes`. Tables look inside.
    fn compare(&self, new: &Self, path: &str, reload: Reload, changes: &mut Vec<Change>) {
        compare_whole(self, new, path, reload, changes);
    }

    /// The name that tells elements of a list apart, for types that have one.
    fn label(&self) -> Option<&str> {
        None
    }
}

/// What stands in the file, in words for an error message.
pub(crate) fn describe(found: &DeValue<'_>) -> String {
    match found {
        DeValue::String(text) => describe_text(text),
        DeValue::Integer(number) => shorten(&number.to_string()),
        DeValue::Float(number) => shorten(number.as_str()),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Text in quotes, cut to a readable length. What has an `@` may be a URL with a password in it.
fn describe_text(text: &str) -> String {
    if text.contains('@') {
        "a text with an `@`".to_owned()
    } else {
        format!("{:?}", shorten(text))
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}

pub(crate) fn quote(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Reads an option that is a string with a grammar of its own.
fn read_text<T: Value>(
    found: &Found<'_>,
    path: &str,
    report: &mut Report<'_>,
    parse: impl Fn(&str) -> Option<T>,
    hint: impl Fn(&str) -> Option<String>,
) -> Option<T> {
    let value = found.get_ref().as_str().and_then(parse);
    if value.is_none() {
        let written = match found.get_ref() {
            DeValue::Integer(number) => number.to_string(),
            other => other.as_str().unwrap_or_default().to_owned(),
        };
        report
            .wrong_at(found.span(), path, T::kind(), describe(found.get_ref()))
            .hint(hint(&written));
    }
    value
}

/// Passes on what was read of an option that is no string, or tells the mistake. `is_right`: whether a text
/// is what was meant, but for its quotes.
fn unquoted<T: Value>(
    value: Option<T>,
    is_right: impl Fn(&str) -> bool,
    found: &Found<'_>,
    path: &str,
    report: &mut Report<'_>,
) -> Option<T> {
    if value.is_none() {
        let is_quoted = found.get_ref().as_str().is_some_and(is_right);
        let hint = is_quoted.then(|| "leave the quotes out".to_owned());
        report
            .wrong_at(found.span(), path, T::kind(), describe(found.get_ref()))
            .hint(hint);
    }
    value
}

/// Types that are a string in TOML: name, what one looks like, reading, writing, stand-in, hint.
macro_rules! text_value {
    ($type:ty, $kind:expr, $parse:expr, $show:expr, $stand_in:expr, $hint:expr) => {
        impl Value for $type {
            fn kind() -> String {
                $kind.to_owned()
            }

            fn read(found: &Found<'_>, path: &str, report: &mut Report<'_>) -> Option<Self> {
                read_text(found, path, report, $parse, $hint)
            }

            fn show(&self) -> String {
                let show: fn(&Self) -> String = $show;
                quote(&show(self))
            }

            fn stand_in() -> Self {
                $stand_in
            }
        }
    };
}

/// Permissions of a file, in TOML a string of octal digits: `"0666"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl FileMode {
    fn parse(text: &str) -> Option<Self> {
        let octal = (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
        octal.then(|| {
            u32::from_str_radix(text, 8)
                .ok()
                .filter(|mode| *mode <= 0o777)
                .map(Self)
        })?
    }

    fn hint(text: &str) -> Option<String> {
        let written = text.trim_start_matches("0o");
        Self::parse(written).map(|mode| format!("write {}", mode.show()))
    }
}

text_value!(
    FileMode,
    "permissions in octal (\"0660\")",
    FileMode::parse,
    |mode| format!("{:04o}", mode.0),
    FileMode(0),
    FileMode::hint
);

fn no_hint(_: &str) -> Option<String> {
    None
}

fn unspecified() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 0))
}

text_value!(
    String,
    "a text",
    |text| Some(text.to_owned()),
    String::clone,
    String::new(),
    no_hint
);
text_value!(
    PathBuf,
    "a path",
    |text| (!text.is_empty()).then(|| text.into()),
    |path| path.display().to_string(),
    PathBuf::new(),
    no_hint
);
text_value!(
    Duration,
    duration::KIND,
    duration::parse,
    |duration| duration::show(*duration),
    Duration::ZERO,
    duration::hint
);
text_value!(
    ByteSize,
    ByteSize::KIND,
    ByteSize::parse,
    ToString::to_string,
    ByteSize(0),
    ByteSize::hint
);
text_value!(
    Congestion,
    Congestion::KIND,
    Congestion::parse,
    |congestion| congestion.word().to_owned(),
    Congestion::AUTO,
    no_hint
);
text_value!(
    ZoneOffset,
    ZoneOffset::KIND,
    ZoneOffset::parse,
    ToString::to_string,
    ZoneOffset::UTC,
    ZoneOffset::hint
);
text_value!(
    BindAddress,
    BindAddress::KIND,
    BindAddress::parse,
    ToString::to_string,
    BindAddress::Tcp(unspecified()),
    bind_hint
);
text_value!(
    SocketAddr,
    "an address and port (\"127.0.0.1:6080\", \"[::1]:6080\")",
    |text| text.parse().ok(),
    ToString::to_string,
    unspecified(),
    bind_hint
);
text_value!(
    ServerAddress,
    ServerAddress::KIND,
    ServerAddress::parse,
    ToString::to_string,
    ServerAddress::Unix(PathBuf::new()),
    server_hint
);
text_value!(
    HttpUrl,
    HttpUrl::KIND,
    HttpUrl::parse,
    ToString::to_string,
    HttpUrl::example(),
    HttpUrl::hint
);
text_value!(
    IpNet,
    "a network (\"10.0.0.0/8\", \"fd00::/8\") or one address",
    |text| text
        .parse()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from)),
    ToString::to_string,
    IpNet::from(unspecified().ip()),
    no_hint
);

text_value!(
    Pattern,
    Pattern::KIND,
    |text| Pattern::new(text).ok(),
    |pattern| pattern.as_str().to_owned(),
    Pattern::empty(),
    |text| Pattern::new(text).err()
);
text_value!(
    Glob,
    Glob::KIND,
    Glob::new,
    |glob| glob.as_str().to_owned(),
    Glob::any(),
    no_hint
);
text_value!(
    DigestHash,
    DigestHash::KIND,
    DigestHash::parse,
    ToString::to_string,
    DigestHash(0),
    no_hint
);

impl Value for Secret {
    fn kind() -> String {
        "a text".to_owned()
    }

    /// Not by `read_text`: an error must not repeat what stands there.
    fn read(found: &Found<'_>, path: &str, report: &mut Report<'_>) -> Option<Self> {
        let secret = found.get_ref().as_str().map(Secret::new);
        if secret.is_none() {
            report.wrong_at(found.span(), path, Self::kind(), "something that is not text");
        }
        secret
    }

    fn show(&self) -> String {
        quote("***")
    }

    fn stand_in() -> Self {
        Self::default()
    }
}

impl Value for bool {
    fn kind() -> String {
        "true or false".to_owned()
    }

    fn read(found: &Found<'_>, path: &str, report: &mut Report<'_>) -> Option<Self> {
        let is_right = |text: &str| matches!(text, "true" | "false");
        unquoted(found.get_ref().as_bool(), is_right, found, path, report)
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn stand_in() -> Self {
        false
    }
}

macro_rules! whole_number {
    ($($type:ty)*) => {$(
        impl Value for $type {
            fn kind() -> String {
                "a whole number".to_owned()
            }

            fn read(found: &Found<'_>, path: &str, report: &mut Report<'_>) -> Option<Self> {
                let number = match found.get_ref() {
                    DeValue::Integer(number) => <$type>::from_str_radix(number.as_str(), number.radix()).ok(),
                    _ => None,
                };
                let is_digit = |byte: u8| byte.is_ascii_digit();
                let is_right = |text: &str| !text.is_empty() && text.bytes().all(is_digit);
                unquoted(number, is_right, found, path, report)
            }

            fn show(&self) -> String {
                self.to_string()
            }

            fn stand_in() -> Self {
                0
            }
        }
    )*};
}

whole_number!(u32 usize);

impl Value for Fraction {
    fn kind() -> String {
        Self::KIND.to_owned()
    }

    fn read(found: &Found<'_>, path: &str, report: &mut Report<'_>) -> Option<Self> {
        let fraction = match found.get_ref() {
            DeValue::Integer(number) => Self::parse(number.as_str()),
            DeValue::Float(number) => Self::parse(number.as_str()),
            _ => None,
        };
        let is_right = |text: &str| Self::parse(text).is_some();
        unquoted(fraction, is_right, found, path, report)
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn stand_in() -> Self {
        Self::NONE
    }
}

/// Compares what is one value, with nothing in it to be told by itself.
fn compare_whole<T: Value>(old: &T, new: &T, path: &str, reload: Reload, changes: &mut Vec<Change>) {
    if old != new {
        changes.push(Change {
            path: path.to_owned(),
            reload,
            old: Some(old.show()),
            new: Some(new.show()),
        });
    }
}

/// Compares what may be on one side only: it was added, or removed.
fn compare_sides<T: Value>(
    old: Option<&T>,
    new: Option<&T>,
    path: &str,
    reload: Reload,
    changes: &mut Vec<Change>,
) {
    match (old, new) {
        (Some(old), Some(new)) => old.compare(new, path, reload, changes),
        (None, None) => {}
        (old, new) => changes.push(Change {
            path: path.to_owned(),
            reload,
            old: old.map(T::show),
            new: new.map(T::show),
        }),
    }
}

impl<T: Value> Value for Option<T> {
    fn kind() -> String {
        T::kind()
    }

    fn read(found: &Found<'_>, path: &str, report: &mut Report<'_>) -> Option<Self> {
        T::read(found, path, report).map(Some)
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "none".to_owned(), T::show)
    }

    fn stand_in() -> Self {
        None
    }

    fn list_options(path: &str, options: &mut Vec<OptionDoc>) {
        T::list_options(path, options);
    }

    fn compare(&self, new: &Self, path: &str, reload: Reload, changes: &mut Vec<Change>) {
        compare_sides(self.as_ref(), new.as_ref(), path, reload, changes);
    }
}

impl<T: Value> Value for Vec<T> {
    fn kind() -> String {
        format!("a list; each is {}", T::kind())
    }

    fn read(found: &Found<'_>, path: &str, report: &mut Report<'_>) -> Option<Self> {
        let Some(list) = found.get_ref().as_array() else {
            let (words, hint) = match found.get_ref() {
                DeValue::Table(_) => (
                    "one table".to_owned(),
                    format!("write [[{path}]] with two brackets"),
                ),
                other => (describe(other), "put it in brackets: [ … ]".to_owned()),
            };
            report
                .wrong_at(found.span(), path, Self::kind(), words)
                .hint(hint);
            return None;
        };
        let mut values = Vec::with_capacity(list.len());
        for (index, element) in list.iter().enumerate() {
            let path = format!("{path}[{index}]");
            report.note(&path, element.span(), element.span());
            values.push(T::read(element, &path, report).unwrap_or_else(T::stand_in));
        }
        Some(values)
    }

    fn show(&self) -> String {
        format!("[{}]", self.iter().map(T::show).collect::<Vec<_>>().join(", "))
    }

    fn stand_in() -> Self {
        Vec::new()
    }

    fn list_options(path: &str, options: &mut Vec<OptionDoc>) {
        T::list_options(path, options);
    }

    /// By name where the elements have one, and then by the order of those that stay: of rules the first one
    /// that matches counts. No order is worth a restart. Otherwise the list is one value.
    fn compare(&self, new: &Self, path: &str, reload: Reload, changes: &mut Vec<Change>) {
        let named = |list: &Self| list.iter().all(|element| element.label().is_some());
        if self.is_empty() && new.is_empty() || !named(self) || !named(new) {
            return compare_whole(self, new, path, reload, changes);
        }
        let place = |element: &T| format!("{path}[{}]", element.label().unwrap_or_default());
        // There may be thousands of users.
        let [old_by_name, new_by_name] = [self, new].map(|list| {
            list.iter()
                .map(|element| (element.label(), element))
                .collect::<BTreeMap<_, _>>()
        });
        for old in self {
            let new = new_by_name.get(&old.label()).copied();
            compare_sides(Some(old), new, &place(old), reload, changes);
        }
        for added in new.iter().filter(|new| !old_by_name.contains_key(&new.label())) {
            compare_sides(None, Some(added), &place(added), reload, changes);
        }
        let stays = |element: &&T| {
            let name = element.label();
            old_by_name.contains_key(&name) && new_by_name.contains_key(&name)
        };
        let [before, after] = [self, new].map(|list| list.iter().filter(stays).map(T::label));
        if reload != Reload::Restart && before.ne(after) {
            changes.push(Change {
                path: path.to_owned(),
                reload,
                old: Some("one order".to_owned()),
                new: Some("another order".to_owned()),
            });
        }
    }
}

impl<T: Value> Value for BTreeMap<String, T> {
    fn kind() -> String {
        format!("tables with a name; each is {}", T::kind())
    }

    fn read(found: &Found<'_>, path: &str, report: &mut Report<'_>) -> Option<Self> {
        let Some(tables) = found.get_ref().as_table() else {
            let hint = format!("write [{path}.NAME] with a name of your choice");
            report
                .wrong_at(found.span(), path, Self::kind(), describe(found.get_ref()))
                .hint(hint);
            return None;
        };
        let mut values = BTreeMap::new();
        for (name, table) in tables {
            let is_option = table.get_ref().as_table().is_none() && T::kind() == "a table";
            if is_option {
                if !report.is_wrong(path) {
                    let found = format!("`{}` in one without a name", name.get_ref());
                    let hint = format!("write [{path}.NAME] with a name of your choice");
                    report.wrong_at(name.span(), path, Self::kind(), found).hint(hint);
                }
                continue;
            }
            let path = format!("{path}.{}", name.get_ref());
            report.note(&path, name.span(), table.span());
            let value = T::read(table, &path, report).unwrap_or_else(T::stand_in);
            values.insert(name.get_ref().clone().into_owned(), value);
        }
        Some(values)
    }

    fn show(&self) -> String {
        let tables: Vec<_> = self
            .iter()
            .map(|(name, table)| format!("{name} = {}", table.show()))
            .collect();
        format!("{{ {} }}", tables.join(", "))
    }

    fn stand_in() -> Self {
        BTreeMap::new()
    }

    fn list_options(path: &str, options: &mut Vec<OptionDoc>) {
        T::list_options(&format!("{path}.NAME"), options);
    }

    fn compare(&self, new: &Self, path: &str, reload: Reload, changes: &mut Vec<Change>) {
        for (name, old) in self {
            compare_sides(
                Some(old),
                new.get(name),
                &format!("{path}.{name}"),
                reload,
                changes,
            );
        }
        for (name, added) in new.iter().filter(|(name, _)| !self.contains_key(*name)) {
            compare_sides(None, Some(added), &format!("{path}.{name}"), reload, changes);
        }
    }
}
