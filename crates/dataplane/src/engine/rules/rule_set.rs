//! The rules of a configuration: as all threads share them ([`ConfiguredRules`]), and as one worker has them
//! ([`Rules`]).
//!
//! A worker has expressions of its own and remembers verdicts, so that nothing is locked for a statement.

use std::cell::{Cell, Ref, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;

use config::StatementClass;
use routing::rules::{Look, RuleSet, Selection, Subject, Table, Verdict, Who};
use sql_class::{Class, Digest, Facts, Hint, Syntax, TableName};
use telemetry::Counter;

use crate::frontend::listener_state::NumberedCluster;

/// Verdicts that a worker remembers. If there are more, the worker forgets them all: those that count come
/// back at once.
const VERDICTS_MAX: usize = 4096;

/// Different selections that a worker's sessions share. A session with a further one has it for itself.
const SELECTIONS_MAX: usize = 256;

/// The rules as a reload has made them.
#[derive(Default)]
pub(crate) struct ConfiguredRules {
    set: RuleSet,
    /// The entries, by their places in the configuration.
    entries: Vec<Entry>,
    /// Clusters that get copies of statements.
    mirrors: BTreeMap<String, NumberedCluster>,
}

struct Entry {
    name: String,
    is_limited: bool,
}

impl ConfiguredRules {
    /// Limits of `previous` go on counting where a rule keeps its name and its figures.
    pub(crate) fn new(
        rules: &[config::Rule],
        clusters: &BTreeMap<String, NumberedCluster>,
        previous: &Self,
    ) -> Self {
        let entry = |rule: &config::Rule| Entry {
            name: rule.name.clone(),
            is_limited: rule.max_concurrency.is_some() || rule.rate.is_some(),
        };
        let is_mirror = |name: &str| rules.iter().any(|rule| rule.mirror.as_deref() == Some(name));
        Self {
            set: RuleSet::new(rules, Some(&previous.set)),
            entries: rules.iter().map(entry).collect(),
            mirrors: clusters
                .iter()
                .filter(|(name, _)| is_mirror(name))
                .map(|(name, cluster)| (name.clone(), cluster.clone()))
                .collect(),
        }
    }
}

#[derive(Default)]
pub(crate) struct WorkerRules {
    current: RefCell<Rc<Rules>>,
    generation: Cell<u32>,
}

impl WorkerRules {
    /// Takes over what a reload has made. `hits` gives the counter of a rule by its name.
    pub(crate) fn replace(&self, configured: Arc<ConfiguredRules>, hits: impl Fn(&str) -> Arc<Counter>) {
        *self.current.borrow_mut() = Rc::new(Rules {
            set: configured.set.clone(),
            hits: configured.entries.iter().map(|entry| hits(&entry.name)).collect(),
            configured,
            ..Rules::default()
        });
        self.generation.set(self.generation.get().wrapping_add(1));
    }

    /// A number that changes with the rules.
    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        self.generation.get()
    }

    pub(crate) fn current(&self) -> Ref<'_, Rc<Rules>> {
        self.current.borrow()
    }
}

#[derive(Default)]
pub(crate) struct Rules {
    configured: Arc<ConfiguredRules>,
    set: RuleSet,
    hits: Vec<Arc<Counter>>,
    none: Rc<Selection>,
    selections: RefCell<Vec<Rc<Selection>>>,
    verdicts: RefCell<HashMap<u64, Remembered>>,
    hasher: RandomState,
}

/// A verdict and all that it depends on.
struct Remembered {
    selection: Rc<Selection>,
    digest: u64,
    class: Class,
    tag: Option<Box<str>>,
    schema: Option<Box<str>>,
    verdict: Rc<Verdict>,
}

/// A statement, about which more is found out where rules ask for it.
#[derive(Clone, Copy)]
pub(crate) struct RuledStatement<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) facts: &'a Facts,
    pub(crate) syntax: Syntax,
    pub(crate) schema: Option<&'a str>,
    /// The digest, where it is known.
    pub(crate) digest: Option<u64>,
}

impl Rules {
    pub(crate) fn none(&self) -> &Rc<Selection> {
        &self.none
    }

    /// The rules that may concern a session.
    pub(crate) fn select(&self, who: &Who<'_>) -> Rc<Selection> {
        let selection = self.set.select(who);
        if selection.is_empty() {
            return Rc::clone(&self.none);
        }
        let mut selections = self.selections.borrow_mut();
        if let Some(same) = selections.iter().find(|present| ***present == selection) {
            return Rc::clone(same);
        }
        let selection = Rc::new(selection);
        if selections.len() < SELECTIONS_MAX {
            selections.push(Rc::clone(&selection));
        }
        selection
    }

    /// The verdict about a statement.
    pub(crate) fn decide(&self, selection: &Rc<Selection>, question: RuledStatement<'_>) -> Rc<Verdict> {
        let needs = selection.needs();
        if !needs.digest && !needs.digest_text && !needs.tables {
            return Rc::new(self.set.decide(selection, &question.statement(0, "", &[])));
        }
        if !selection.is_cacheable() {
            return Rc::new(self.decide_anew(selection, question, None));
        }
        let (hash, digest) = match question.digest {
            Some(hash) => (hash, None),
            None => {
                let digest = sql_class::digest(question.text, question.syntax);
                (digest.hash, Some(digest))
            }
        };
        let (class, tag, schema) = (question.facts.class, question.tag(), question.schema);
        let number = Rc::as_ptr(selection).addr();
        let key = self.hasher.hash_one((number, hash, class, tag, schema));
        let is_same = |known: &Remembered| {
            Rc::ptr_eq(&known.selection, selection)
                && (known.digest, known.class) == (hash, class)
                && (known.tag.as_deref(), known.schema.as_deref()) == (tag, schema)
        };
        if let Some(known) = self.verdicts.borrow().get(&key)
            && is_same(known)
        {
            return Rc::clone(&known.verdict);
        }
        let verdict = Rc::new(self.decide_anew(selection, question, digest));
        let mut verdicts = self.verdicts.borrow_mut();
        if verdicts.len() >= VERDICTS_MAX {
            verdicts.clear();
        }
        let remembered = Remembered {
            selection: Rc::clone(selection),
            digest: hash,
            class,
            tag: tag.map(Box::from),
            schema: schema.map(Box::from),
            verdict: Rc::clone(&verdict),
        };
        verdicts.insert(key, remembered);
        verdict
    }

    fn decide_anew(
        &self,
        selection: &Selection,
        question: RuledStatement<'_>,
        digest: Option<Digest>,
    ) -> Verdict {
        let needs = selection.needs();
        let digest = match digest {
            None if needs.digest || needs.digest_text => sql_class::digest(question.text, question.syntax),
            known => known.unwrap_or_else(|| Digest {
                hash: 0,
                text: String::new(),
            }),
        };
        let names = if needs.tables {
            sql_class::tables(question.text, question.syntax)
        } else {
            Vec::new()
        };
        let tables = tables(&names);
        self.set
            .decide(selection, &question.statement(digest.hash, &digest.text, &tables))
    }

    /// Every rule with its outcome for the statement.
    pub(crate) fn explain(&self, who: &Who<'_>, question: RuledStatement<'_>) -> Vec<(&str, Look)> {
        if self.set.is_empty() {
            return Vec::new();
        }
        let digest = sql_class::digest(question.text, question.syntax);
        let names = sql_class::tables(question.text, question.syntax);
        let tables = tables(&names);
        self.set
            .explain(who, &question.statement(digest.hash, &digest.text, &tables))
    }

    /// Counts a statement for every rule that it met.
    pub(crate) fn count(&self, verdict: &Verdict) {
        let hits = verdict.rules.iter().filter_map(|place| self.hits.get(*place));
        hits.for_each(|counter| counter.inc());
    }

    /// The names of the rules that a statement met.
    pub(crate) fn names<'a>(&'a self, verdict: &'a Verdict) -> impl Iterator<Item = &'a str> {
        let entries = verdict
            .rules
            .iter()
            .filter_map(|place| self.configured.entries.get(*place));
        entries.map(|entry| entry.name.as_str())
    }

    /// The name of the rule of one of a verdict's limits, which are in the order of its rules.
    pub(crate) fn name_of_limit(&self, verdict: &Verdict, index: usize) -> &str {
        let entries = verdict
            .rules
            .iter()
            .filter_map(|place| self.configured.entries.get(*place));
        let mut limited = entries.filter(|entry| entry.is_limited);
        limited.nth(index).map_or("", |entry| entry.name.as_str())
    }

    /// A cluster that gets copies.
    pub(crate) fn mirror(&self, name: &str) -> Option<&NumberedCluster> {
        self.configured.mirrors.get(name)
    }

    #[cfg(test)]
    fn remembered(&self) -> usize {
        self.verdicts.borrow().len()
    }
}

impl<'a> RuledStatement<'a> {
    fn tag(self) -> Option<&'a str> {
        match &self.facts.hint {
            Some(Hint::Tag(tag)) => Some(tag),
            _ => None,
        }
    }

    fn statement<'b>(self, digest: u64, digest_text: &'b str, tables: &'b [Table<'b>]) -> Subject<'b>
    where
        'a: 'b,
    {
        Subject {
            text: self.text,
            class: class(self.facts.class),
            schema: self.schema,
            tag: self.tag(),
            digest,
            digest_text,
            tables,
        }
    }
}

fn tables(names: &[TableName]) -> Vec<Table<'_>> {
    let mut tables = Vec::with_capacity(names.len());
    for name in names {
        tables.push(Table {
            schema: name.schema.as_deref(),
            name: &name.name,
        });
    }
    tables
}

/// The configuration's word for a class.
fn class(class: Class) -> StatementClass {
    match class {
        Class::Read => StatementClass::Read,
        Class::Session => StatementClass::Session,
        Class::LockingRead => StatementClass::LockingRead,
        Class::BeginReadOnly => StatementClass::BeginReadOnly,
        Class::Begin => StatementClass::Begin,
        Class::Transaction => StatementClass::Transaction,
        Class::Write => StatementClass::Write,
        Class::Ddl => StatementClass::Ddl,
        Class::Administration => StatementClass::Administration,
        Class::Unknown => StatementClass::Unknown,
    }
}

#[cfg(test)]
mod tests;
