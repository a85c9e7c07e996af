//! Verdicts that a worker remembers, and how they turn out then.

use config::Rule;

use super::*;

fn rules(rules: &[Rule]) -> Rc<Rules> {
    let worker = WorkerRules::default();
    let configured = ConfiguredRules::new(rules, &BTreeMap::new(), &ConfiguredRules::default());
    worker.replace(Arc::new(configured), |_| Arc::default());
    Rc::clone(&worker.current())
}

fn rule(name: &str, set: impl FnOnce(&mut Rule)) -> Rule {
    let mut rule = Rule::new(name);
    set(&mut rule);
    rule
}

fn who(user: &str) -> Who<'_> {
    Who {
        user,
        client: None,
        listener: "apps",
    }
}

fn decide(rules: &Rules, user: &str, text: &str, schema: Option<&str>) -> Rc<Verdict> {
    let syntax = Syntax::default();
    let question = RuledStatement {
        text: text.as_bytes(),
        facts: &sql_class::facts(text.as_bytes(), syntax),
        syntax,
        schema,
        digest: None,
    };
    rules.decide(&rules.select(&who(user)), question)
}

fn on_table(table: &str) -> Rule {
    rule(table, |rule| rule.table = vec![config::Glob::new(table).unwrap()])
}

#[test]
fn a_verdict_is_remembered_under_all_that_it_depends_on() {
    let rules = rules(&[
        on_table("shop.t"),
        rule("own", |rule| {
            rule.user = vec![config::Glob::new("a").unwrap()];
        }),
    ]);
    let first = decide(&rules, "a", "SELECT 1 FROM t", Some("shop"));
    assert_eq!(first.rules, [0]);
    let same = decide(&rules, "a", "SELECT 2 FROM t", Some("shop"));
    assert!(Rc::ptr_eq(&first, &same));
    assert_eq!(
        decide(&rules, "a", "SELECT 1 FROM t", Some("log")).rules,
        [1],
        "another schema"
    );
    assert!(
        decide(&rules, "b", "SELECT 1 FROM t", Some("log"))
            .rules
            .is_empty(),
        "another user"
    );
    assert_eq!(
        decide(&rules, "b", "SELECT 1 FROM shop.t", None).rules,
        [0],
        "another digest"
    );
    assert_eq!(rules.remembered(), 4);
}

#[test]
fn what_looks_at_the_text_is_decided_each_time() {
    let pattern = config::Pattern::new("= 2").unwrap();
    let rules = rules(&[on_table("u"), rule("text", |rule| rule.text = Some(pattern))]);
    assert!(
        decide(&rules, "a", "SELECT 1 FROM t WHERE i = 1", None)
            .rules
            .is_empty()
    );
    assert_eq!(
        decide(&rules, "a", "SELECT 1 FROM t WHERE i = 2", None).rules,
        [1]
    );
    assert_eq!(
        decide(&rules, "a", "SELECT 1 FROM u WHERE i = 2", None).rules,
        [0]
    );
    assert_eq!(rules.remembered(), 0);
}

#[test]
fn a_digest_that_is_known_says_the_same_as_the_text() {
    let text = "SELECT 1 FROM t WHERE i = 1";
    let digest = sql_class::digest(text.as_bytes(), Syntax::default()).hash;
    let listed = config::DigestHash(digest);
    let rules = rules(&[rule("listed", |rule| rule.digest = vec![listed])]);
    let selection = rules.select(&who("a"));
    let facts = sql_class::facts(text.as_bytes(), Syntax::default());
    for known in [None, Some(digest)] {
        let question = RuledStatement {
            text: text.as_bytes(),
            facts: &facts,
            syntax: Syntax::default(),
            schema: None,
            digest: known,
        };
        assert_eq!(rules.decide(&selection, question).rules, [0], "{known:?}");
    }
}

#[test]
fn memory_is_bounded_and_sessions_share_their_selections() {
    let rules = rules(&[on_table("t")]);
    assert!(Rc::ptr_eq(&rules.select(&who("a")), &rules.select(&who("b"))));
    for column in 0..VERDICTS_MAX + 10 {
        decide(&rules, "a", &format!("SELECT c{column} FROM t"), None);
    }
    assert!((1..=VERDICTS_MAX).contains(&rules.remembered()));
}

#[test]
fn other_rules_are_another_generation() {
    let worker = WorkerRules::default();
    let before = worker.generation();
    let configured = |rules: &[Rule]| {
        Arc::new(ConfiguredRules::new(
            rules,
            &BTreeMap::new(),
            &ConfiguredRules::default(),
        ))
    };
    worker.replace(configured(&[on_table("t")]), |_| Arc::default());
    assert_ne!(worker.generation(), before);
    assert!(!worker.current().select(&who("a")).is_empty());
    worker.replace(configured(&[]), |_| Arc::default());
    assert!(worker.current().select(&who("a")).is_empty());
}

#[test]
fn a_limit_is_named_after_its_rule() {
    let limited = |name: &str| {
        rule(name, |rule| {
            rule.max_concurrency = Some(1);
            rule.go_on = true;
        })
    };
    let free = rule("free", |rule| rule.go_on = true);
    let rules = rules(&[limited("first"), free, limited("second")]);
    let verdict = decide(&rules, "a", "SELECT 1", None);
    assert_eq!(verdict.limits.len(), 2);
    assert_eq!(rules.name_of_limit(&verdict, 0), "first");
    assert_eq!(rules.name_of_limit(&verdict, 1), "second");
    assert_eq!(
        rules.names(&verdict).collect::<Vec<_>>(),
        ["first", "free", "second"]
    );
}
