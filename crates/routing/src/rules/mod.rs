//! Rules: what the configuration says about certain statements, in order.
//!
//! How to drive it: one [`RuleSet`] a configuration; one [`RuleSet::select`] a session (and again after a
//! change of user), which leaves the few rules that its user, its address and its listener can meet; then
//! [`RuleSet::decide`] for each statement, with the facts that [`Selection::needs`] asks for. The plain case,
//! no rules for a session, is one look at [`Selection::is_empty`].
//!
//! Everything but `text` depends on no more than the statement's digest, class and tag and the session's
//! schema, so where [`Selection::is_cacheable`] a verdict may be kept under these four.

mod groups;
mod limit;
mod verdict;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use config::{DigestHash, Glob, Pattern, Rule, StatementClass};

pub use groups::Groups;
pub use limit::{Limit, Turn, Wait};
pub use verdict::{Route, Verdict};

/// A session as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    pub user: &'a str,
    /// `None` for a client of a Unix socket.
    pub client: Option<IpAddr>,
    pub listener: &'a str,
}

/// A statement as rules see it. What [`Needs`] does not ask for may be left empty.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub text: &'a [u8],
    pub class: StatementClass,
    /// The session's default schema.
    pub schema: Option<&'a str>,
    /// The word of the hint `tag=WORD`.
    pub tag: Option<&'a str>,
    pub digest: u64,
    /// The normalised text; backticks are not looked at.
    pub digest_text: &'a str,
    pub tables: &'a [Table<'a>],
}

/// A table that a statement names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table<'a> {
    /// `None` where the statement says none: the session's default schema.
    pub schema: Option<&'a str>,
    pub name: &'a str,
}

/// The facts of a statement that have to be found out before a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub digest: bool,
    pub digest_text: bool,
    pub text: bool,
    pub tables: bool,
}

/// The rules that may concern a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    rules: Box<[usize]>,
    needs: Needs,
}

impl Selection {
    /// Whether no rule can concern the session: there is nothing to decide.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What a decision takes.
    #[must_use]
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// Whether a verdict holds for every statement of the same digest, class, tag and schema.
    #[must_use]
    pub fn is_cacheable(&self) -> bool {
        !self.needs.text
    }
}

/// What became of a rule in a decision, for `FOREBAY EXPLAIN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It matched.
    Matched,
    /// It did not, because of this condition.
    Differs(&'static str),
    /// A rule before it had the last word.
    NotReached,
}

/// All rules of a configuration that are enabled. The clone shares the limits and has expressions of its own,
/// which makes them faster: one for each worker.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: Vec<Compiled>,
}

#[derive(Clone, Debug)]
struct Compiled {
    /// The place among all rules of the configuration, those that are not enabled too.
    place: usize,
    rule: Rule,
    route: Option<Route>,
    mirror: Option<Arc<str>>,
    refuse: Option<Arc<str>>,
    answer_ok: Option<Arc<str>>,
    limit: Option<Arc<Limit>>,
}

impl RuleSet {
    /// The rules of a configuration. Limits of `previous` go on counting where a rule of the same name has
    /// the same ones.
    #[must_use]
    pub fn new(rules: &[Rule], previous: Option<&Self>) -> Self {
        let compile = |(place, rule): (usize, &Rule)| Compiled {
            place,
            rule: rule.clone(),
            route: rule.route.as_deref().map(Route::named),
            mirror: rule.mirror.as_deref().map(Arc::from),
            refuse: rule.refuse.as_deref().map(Arc::from),
            answer_ok: rule.answer_ok.as_deref().map(Arc::from),
            limit: limit_of(rule, previous),
        };
        let enabled = rules.iter().enumerate().filter(|(_, rule)| rule.enabled);
        Self {
            rules: enabled.map(compile).collect(),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What decisions take for a session that every rule may concern.
    #[must_use]
    pub fn needs(&self) -> Needs {
        self.rules
            .iter()
            .fold(Needs::default(), |needs, compiled| needs.with(&compiled.rule))
    }

    /// The rules that may concern a session.
    #[must_use]
    pub fn select(&self, who: &Who<'_>) -> Selection {
        let concerns = |(_, compiled): &(usize, &Compiled)| session_differs(&compiled.rule, who).is_none();
        let selected = self.rules.iter().enumerate().filter(concerns);
        let needs = selected.clone().fold(Needs::default(), |needs, (_, compiled)| {
            needs.with(&compiled.rule)
        });
        Selection {
            rules: selected.map(|(index, _)| index).collect(),
            needs,
        }
    }

    /// What is to happen to a statement of a session with this selection.
    #[must_use]
    pub fn decide(&self, selection: &Selection, statement: &Subject<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        let digest = without_backticks(statement.digest_text);
        for compiled in selection.rules.iter().filter_map(|index| self.rules.get(*index)) {
            let texts = Texts {
                statement: verdict.rewritten.as_deref().unwrap_or(statement.text),
                digest: &digest,
            };
            if statement_differs(&compiled.rule, statement, texts).is_none() {
                verdict.add(compiled, statement.text);
                if !compiled.rule.go_on {
                    break;
                }
            }
        }
        verdict
    }

    /// Every rule with its name and what became of it, in order.
    #[must_use]
    pub fn explain(&self, who: &Who<'_>, statement: &Subject<'_>) -> Vec<(&str, Look)> {
        let mut verdict = Verdict::default();
        let digest = without_backticks(statement.digest_text);
        let mut is_over = false;
        let look = |compiled: &'_ Compiled| {
            if is_over {
                return Look::NotReached;
            }
            let texts = Texts {
                statement: verdict.rewritten.as_deref().unwrap_or(statement.text),
                digest: &digest,
            };
            let differs = session_differs(&compiled.rule, who)
                .or_else(|| statement_differs(&compiled.rule, statement, texts));
            if let Some(condition) = differs {
                return Look::Differs(condition);
            }
            verdict.add(compiled, statement.text);
            is_over = !compiled.rule.go_on;
            Look::Matched
        };
        let looks: Vec<Look> = self.rules.iter().map(look).collect();
        let names = self.rules.iter().map(|compiled| compiled.rule.name.as_str());
        names.zip(looks).collect()
    }
}

impl Needs {
    fn with(self, rule: &Rule) -> Self {
        Self {
            digest: self.digest || !rule.digest.is_empty(),
            digest_text: self.digest_text || rule.digest_text.is_some(),
            text: self.text || rule.text.is_some(),
            tables: self.tables || !rule.table.is_empty(),
        }
    }
}

fn limit_of(rule: &Rule, previous: Option<&RuleSet>) -> Option<Arc<Limit>> {
    let limit = Limit::of(rule)?;
    let same_rule = |compiled: &&Compiled| compiled.rule.name == rule.name;
    let before = previous.and_then(|previous| previous.rules.iter().find(same_rule)?.limit.clone());
    let goes_on = before.filter(|before| before.allows_the_same(&limit));
    Some(goes_on.unwrap_or_else(|| Arc::new(limit)))
}

/// The first condition on the session that does not hold.
fn session_differs(rule: &Rule, who: &Who<'_>) -> Option<&'static str> {
    if !any_or_empty(&rule.user, who.user) {
        return Some("user");
    }
    let is_in = |client: IpAddr| {
        // A client may reach a listener of both families with its IPv4 address in the form of the other.
        let client = client.to_canonical();
        rule.client.iter().any(|network| network.contains(&client))
    };
    if !rule.client.is_empty() && !who.client.is_some_and(is_in) {
        return Some("client");
    }
    if !rule.listener.is_empty() && rule.listener.iter().all(|listener| listener != who.listener) {
        return Some("listener");
    }
    None
}

/// What expressions are looked for in.
#[derive(Clone, Copy)]
struct Texts<'a> {
    /// What the rules before this one made of the statement.
    statement: &'a [u8],
    /// The normalised text without backticks.
    digest: &'a str,
}

/// The first condition on the statement that does not hold, the cheap ones first.
fn statement_differs(rule: &Rule, statement: &Subject<'_>, texts: Texts<'_>) -> Option<&'static str> {
    if !rule.class.is_empty() && !rule.class.contains(&statement.class) {
        return Some("class");
    }
    if !rule.schema.is_empty() && !matches_some(&rule.schema, statement.schema) {
        return Some("schema");
    }
    if !rule.tag.is_empty() && !matches_some(&rule.tag, statement.tag) {
        return Some("tag");
    }
    if !rule.digest.is_empty() && !rule.digest.contains(&DigestHash(statement.digest)) {
        return Some("digest");
    }
    if !rule.table.is_empty() && !names_table(&rule.table, statement) {
        return Some("table");
    }
    let differs = |pattern: &Option<Pattern>, text: &[u8]| {
        pattern
            .as_ref()
            .is_some_and(|pattern| pattern.is_in(text) == rule.negate)
    };
    if differs(&rule.digest_text, texts.digest.as_bytes()) {
        return Some("digest_text");
    }
    differs(&rule.text, texts.statement).then_some("text")
}

/// A digest's text as rules see it: people write expressions for names as they write names.
#[must_use]
pub fn without_backticks(digest_text: &str) -> Cow<'_, str> {
    if digest_text.contains('`') {
        Cow::Owned(digest_text.replace('`', ""))
    } else {
        Cow::Borrowed(digest_text)
    }
}

fn any_or_empty(globs: &[Glob], name: &str) -> bool {
    globs.is_empty() || globs.iter().any(|glob| glob.matches(name))
}

fn matches_some(globs: &[Glob], name: Option<&str>) -> bool {
    name.is_some_and(|name| globs.iter().any(|glob| glob.matches(name)))
}

/// A glob with a dot is about schema and table, one without about the table alone.
fn names_table(globs: &[Glob], statement: &Subject<'_>) -> bool {
    statement.tables.iter().any(|table| {
        let schema = table.schema.or(statement.schema);
        globs.iter().any(|glob| {
            if !glob.as_str().contains('.') {
                return glob.matches(table.name);
            }
            schema.is_some_and(|schema| glob.matches(&format!("{schema}.{}", table.name)))
        })
    })
}

#[cfg(test)]
mod tests;
