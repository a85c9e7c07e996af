//! The two macros the table of options is written in: [`section!`] for a TOML table and its options,
//! [`choice!`] for a word from a fixed set.
//!
//! An option reads
//!
//! ```text
//! /// What it does.
//! pub backlog: u32 = default(1024) unit "connections" in 1..=65_535, Restart;
//! ```
//!
//! - `required`, `default(VALUE)`, or `default(VALUE, "in words")` where the value depends on the machine or
//!   on other options; `internal(VALUE)` is a field that is no option;
//! - `as "key"` after the name where the key in TOML is another word than the field;
//! - `formerly "key"` after that where earlier versions had another key: it is still understood, and a notice
//!   says the new one;
//! - what a change of it takes in a running gateway: [`Reload`]. For a table: adding or removing it.
//!
//! `[impl Default]` behind a section's name is for those in which no option is required.
//!
//! From it come the struct's field, its reading with all errors, its line in the reference and its
//! comparison.

use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::DeValue;

use crate::docs::options;
use crate::option::{OptionDoc, Reload};
use crate::report::{Report, Span};
use crate::suggest;
use crate::value::{Found, Value, describe};

/// What stands in for an option that is not written.
pub(crate) enum Presence<T> {
    Required,
    Default {
        value: T,
        /// The default in words, where the value alone would mislead.
        words: Option<&'static str>,
    },
    /// Not an option: filled in by the program.
    Internal(T),
}

/// The values that an option can have.
pub(crate) struct Bounds<T> {
    holds: fn(&RangeInclusive<T>, &T) -> bool,
    range: RangeInclusive<T>,
}

impl<T: Value + PartialOrd> Bounds<T> {
    pub(crate) fn new(range: RangeInclusive<T>) -> Self {
        Self {
            holds: RangeInclusive::contains,
            range,
        }
    }
}

impl<T: Value> Bounds<T> {
    /// `a whole number from 1 to 1000`: the type without its examples, and the bounds.
    fn expected(&self) -> String {
        let kind = T::kind();
        format!("{} {}", kind.split(" (").next().unwrap_or_default(), self.words())
    }

    fn words(&self) -> String {
        format!(
            "from {} to {}",
            self.range.start().show(),
            self.range.end().show()
        )
    }
}

pub(crate) struct Field<T> {
    pub(crate) key: &'static str,
    pub(crate) presence: Presence<T>,
    pub(crate) unit: &'static str,
    pub(crate) bounds: Option<Bounds<T>>,
    pub(crate) reload: Reload,
    pub(crate) doc: &'static str,
}

impl<T: Value> Field<T> {
    /// The option's value from `table`: what is written, else the default. A mistake is told to `report`, and
    /// a stand-in is answered so that reading goes on.
    pub(crate) fn read(self, table: &Table<'_, '_>, report: &mut Report<'_>) -> T {
        let path = join(&table.path, self.key);
        let written = table.entries.iter().find(|entry| entry.0 == self.key);
        let value = written.and_then(|(_, _, found)| {
            let Some(value) = T::read(found, &path, report) else {
                if let Some(bounds) = &self.bounds {
                    report.expect_instead(&path, bounds.expected());
                }
                return None;
            };
            let broken = self
                .bounds
                .as_ref()
                .filter(|bounds| !(bounds.holds)(&bounds.range, &value));
            if let Some(bounds) = broken {
                report.wrong_at(found.span(), &path, bounds.expected(), describe(found.get_ref()));
            }
            broken.is_none().then_some(value)
        });
        match (value, self.presence) {
            (Some(value), _) | (None, Presence::Default { value, .. } | Presence::Internal(value)) => value,
            (None, Presence::Required) => {
                if written.is_none() {
                    report.wrong_at(
                        table.span.clone(),
                        &path,
                        T::kind(),
                        "nothing: the option is missing",
                    );
                }
                T::stand_in()
            }
        }
    }

    /// The value an option has in a section made by the program instead of read from a file.
    pub(crate) fn initial(self) -> T {
        match self.presence {
            Presence::Default { value, .. } | Presence::Internal(value) => value,
            Presence::Required => T::stand_in(),
        }
    }

    /// Adds the option, or the options of the table that it is, to the reference.
    pub(crate) fn list(self, section: &str, options: &mut Vec<OptionDoc>) {
        let default = match &self.presence {
            Presence::Internal(_) => return,
            Presence::Required => None,
            Presence::Default {
                words: Some(words), ..
            } => Some((*words).to_owned()),
            Presence::Default { value, .. } => Some(value.show()),
        };
        let path = join(section, self.key);
        let before = options.len();
        T::list_options(&path, options);
        // A list of tables that may also be written short (`servers`) is an option and has options.
        if options.len() > before && !matches!(self.presence, Presence::Required) {
            return;
        }
        let doc = OptionDoc {
            path,
            kind: T::kind(),
            default,
            range: self.bounds.as_ref().map(Bounds::words),
            unit: self.unit,
            reload: self.reload,
            doc: self
                .doc
                .lines()
                .map(str::trim)
                .collect::<Vec<_>>()
                .join(" ")
                .trim()
                .to_owned(),
        };
        options.insert(before, doc);
    }

    pub(crate) fn is_option(&self) -> bool {
        !matches!(self.presence, Presence::Internal(_))
    }
}

fn join(section: &str, key: &str) -> String {
    if section.is_empty() {
        key.to_owned()
    } else {
        format!("{section}.{key}")
    }
}

/// A table of the file while its options are read.
pub(crate) struct Table<'f, 'i> {
    path: String,
    /// Where the table begins, for options that are missing.
    span: Span,
    entries: Vec<(&'f str, Span, &'f Found<'i>)>,
}

impl<'f, 'i> Table<'f, 'i> {
    /// Opens a table and reports keys that are no option of it. A text or a list stands for a table with the
    /// option `short` alone, where the section has such an option. `former` are keys of earlier versions,
    /// each with its present one.
    pub(crate) fn open(
        found: &'f Spanned<DeValue<'i>>,
        path: &str,
        keys: &[&'static str],
        former: &[(&'static str, &'static str)],
        short: Option<&'static str>,
        report: &mut Report<'_>,
    ) -> Option<Self> {
        let mut entries: Vec<(&'f str, Span, &'f Found<'i>)> = match (found.get_ref(), short) {
            (DeValue::Table(table), _) => table
                .iter()
                .map(|(key, value)| (key.get_ref().as_ref(), key.span(), value))
                .collect(),
            (DeValue::String(_) | DeValue::Array(_), Some(key)) => vec![(key, found.span(), found)],
            (other, _) => {
                let expected = if short.is_some() {
                    "a text or a table"
                } else {
                    "a table"
                };
                let hint = format!("options: {}", keys.join(", "));
                report
                    .wrong_at(found.span(), path, expected, describe(other))
                    .hint(hint);
                return None;
            }
        };
        renew_keys(&mut entries, path, former, report);
        let table = Self {
            path: path.to_owned(),
            span: found.span(),
            entries,
        };
        for (key, span, value) in &table.entries {
            let path = join(path, key);
            report.note(&path, span.clone(), value.span());
            if !keys.contains(key) {
                let expected = format!("an option of {}", section_name(&table.path));
                report
                    .wrong_key(&path, expected, format!("the unknown key `{key}`"))
                    .hint(unknown_hint(key, value.get_ref(), keys));
            }
        }
        Some(table)
    }
}

/// Puts present keys in the place of former ones, with a notice. An option under both names is a mistake.
fn renew_keys<'f>(
    entries: &mut Vec<(&'f str, Span, &'f Found<'_>)>,
    path: &str,
    former: &[(&'static str, &'static str)],
    report: &mut Report<'_>,
) {
    for (old, new) in former {
        let Some(index) = entries.iter().position(|(key, ..)| key == old) else {
            continue;
        };
        let span = entries[index].1.clone();
        let written = join(path, old);
        if entries.iter().any(|(key, ..)| key == new) {
            entries.remove(index);
            let expected = format!("`{new}` alone, which was `{old}` in earlier versions");
            report
                .wrong_at(span, &written, expected, format!("it beside `{new}`"))
                .hint(format!("delete `{old}`"));
        } else {
            entries[index].0 = new;
            report.renamed(span, &written, new);
        }
    }
}

fn section_name(path: &str) -> String {
    if path.is_empty() {
        "the file's top level".to_owned()
    } else {
        format!("`{path}`")
    }
}

/// A neighbour of the same spelling, or the section where the option belongs, or the options there are.
fn unknown_hint(key: &str, value: &DeValue<'_>, keys: &[&'static str]) -> String {
    if let Some(hint) = suggest::hint(key, keys.iter().copied()) {
        return hint;
    }
    let is_plain = !matches!(value, DeValue::Table(_) | DeValue::Array(_));
    let elsewhere = options()
        .iter()
        .filter_map(|option| option.path.strip_suffix(key)?.strip_suffix('.'));
    let elsewhere: Vec<String> = elsewhere.map(|section| format!("`{section}`")).collect();
    match elsewhere.split_last().filter(|_| is_plain) {
        Some((section, [])) => format!("`{key}` belongs in {section}"),
        Some((last, others)) => format!("`{key}` belongs in {} or {last}", others.join(", ")),
        None => format!("known here: {}", keys.join(", ")),
    }
}

macro_rules! presence {
    (required) => {
        $crate::section::Presence::Required
    };
    (default, $value:expr) => {
        $crate::section::Presence::Default {
            value: $value,
            words: None,
        }
    };
    (default, $value:expr, $words:literal) => {
        $crate::section::Presence::Default {
            value: $value,
            words: Some($words),
        }
    };
    (internal, $value:expr) => {
        $crate::section::Presence::Internal($value)
    };
}

macro_rules! last {
    ($only:expr) => {
        $only
    };
    ($_first:expr, $last:expr) => {
        $last
    };
}

macro_rules! section {
    ($(
        $(#[doc = $about:literal])+
        $vis:vis struct $name:ident $([label $label:ident])? $([short $short:literal])? $([list $list:literal])? $([impl $default:ident])? {
            $(
                $(#[doc = $doc:literal])+
                $field_vis:vis $field:ident $(as $key:literal)? $(formerly $former:literal)?: $type:ty = $presence:ident $(($($value:tt)+))?
                    $(unit $unit:literal)? $(in $range:expr)?, $reload:ident;
            )+
        }
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $($(#[doc = $doc])+ $field_vis $field: $type,)+
        }

        impl $name {
            $(
                fn $field() -> $crate::section::Field<$type> {
                    $crate::section::Field {
                        key: $crate::section::last!(stringify!($field) $(, $key)?),
                        presence: $crate::section::presence!($presence $(, $($value)+)?),
                        unit: $crate::section::last!("" $(, $unit)?),
                        bounds: $crate::section::last!(None $(, Some($crate::section::Bounds::new($range)))?),
                        reload: $crate::option::Reload::$reload,
                        doc: concat!($($doc, "\n"),+),
                    }
                }
            )+
        }

        impl $crate::value::Value for $name {
            fn kind() -> String {
                $crate::section::last!(
                    "a table"
                    $(, concat!("a text (its `", $short, "`) or a table"))?
                    $(, concat!("a list (its `", $list, "`) or a table"))?
                )
                .to_owned()
            }

            fn read(
                found: &$crate::value::Found<'_>,
                path: &str,
                report: &mut $crate::report::Report<'_>,
            ) -> Option<Self> {
                let keys: Vec<&str> = [$(Self::$field().is_option().then(|| Self::$field().key)),+]
                    .into_iter()
                    .flatten()
                    .collect();
                let short = $crate::section::last!(None $(, Some($short))? $(, Some($list))?);
                let former: &[(&str, &str)] = &[$($(($former, Self::$field().key),)?)+];
                let table = $crate::section::Table::open(found, path, &keys, former, short, report)?;
                Some(Self { $($field: Self::$field().read(&table, report)),+ })
            }

            fn show(&self) -> String {
                let shown = [$(Self::$field().is_option().then(|| {
                    format!("{} = {}", Self::$field().key, $crate::value::Value::show(&self.$field))
                })),+];
                format!("{{ {} }}", shown.into_iter().flatten().collect::<Vec<_>>().join(", "))
            }

            fn stand_in() -> Self {
                Self { $($field: Self::$field().initial()),+ }
            }

            fn list_options(path: &str, options: &mut Vec<$crate::option::OptionDoc>) {
                $(Self::$field().list(path, options);)+
            }

            fn compare(
                &self,
                new: &Self,
                path: &str,
                _: $crate::option::Reload,
                changes: &mut Vec<$crate::option::Change>,
            ) {
                $($crate::section::compare(Self::$field(), [&self.$field, &new.$field], path, changes);)+
            }

            fn label(&self) -> Option<&str> {
                $crate::section::last!(None $(, Some(&self.$label))?)
            }
        }

        $(impl $default for $name {
            fn default() -> Self {
                $crate::value::Value::stand_in()
            }
        })?
    )+};
}

pub(crate) fn compare<T: Value>(
    field: Field<T>,
    [old, new]: [&T; 2],
    section: &str,
    changes: &mut Vec<crate::option::Change>,
) {
    if field.is_option() {
        old.compare(new, &join(section, field.key), field.reload, changes);
    }
}

/// An option that is one word of a fixed set.
macro_rules! choice {
    ($(
        $(#[doc = $about:literal])+
        pub enum $name:ident {
            $($(#[doc = $doc:literal])+ $variant:ident = $word:literal,)+
        }
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $name {
            /// The word that stands for it in the configuration, in logs and in metric labels.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl $crate::value::Value for $name {
            fn kind() -> String {
                [$(concat!("\"", $word, "\"")),+].join(" or ")
            }

            fn read(
                found: &$crate::value::Found<'_>,
                path: &str,
                report: &mut $crate::report::Report<'_>,
            ) -> Option<Self> {
                match found.get_ref().as_str() {
                    $(Some($word) => Some(Self::$variant),)+
                    other => {
                        let hint = $crate::suggest::hint(other.unwrap_or_default(), [$($word),+]);
                        let words = $crate::value::describe(found.get_ref());
                        report.wrong_at(found.span(), path, Self::kind(), words).hint(hint);
                        None
                    }
                }
            }

            fn show(&self) -> String {
                $crate::value::quote(self.word())
            }

            fn stand_in() -> Self {
                [$(Self::$variant),+][0]
            }
        }
    )+};
}

pub(crate) use {choice, last, presence, section};
