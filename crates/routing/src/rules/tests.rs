//! Rules: each condition alone, each action, and what several rules make together.

use std::net::IpAddr;
use std::time::Duration;

use config::{PinRule, ReadConsistency};
use proptest::prelude::*;

use super::*;

fn who() -> Who<'static> {
    Who {
        user: "app",
        client: Some(IpAddr::from([10, 1, 2, 3])),
        listener: "apps",
    }
}

fn statement() -> Subject<'static> {
    Subject {
        text: b"/* forebay: tag=report */ SELECT a FROM orders, log.hits WHERE id = 5",
        class: StatementClass::Read,
        schema: Some("shop"),
        tag: Some("report"),
        digest: 0xff00,
        digest_text: "SELECT `a` FROM `orders` , `log` . `hits` WHERE `id` = ?",
        tables: &[
            Table {
                schema: None,
                name: "orders",
            },
            Table {
                schema: Some("log"),
                name: "hits",
            },
        ],
    }
}

/// A rule from what would stand in the file.
fn rule(options: &str) -> Rule {
    let text = format!(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
mode = "split"
cluster = "main"
name = "apps"
[[listener]]
bind = "127.0.0.1:6034"
mode = "split"
cluster = "main"
name = "others"
[cluster.main]
servers = ["db1"]
[cluster.main.group.reports]
servers = ["db1"]
[[user]]
name = "app"
password = ""
[[rule]]
{options}
"#
    );
    match config::Config::parse(&text, "test") {
        Ok(mut config) => config.rules.remove(0),
        Err(errors) => panic!("{options}: {errors}"),
    }
}

fn set(rules: &[&str]) -> RuleSet {
    let rules: Vec<Rule> = rules.iter().map(|options| rule(options)).collect();
    RuleSet::new(&rules, None)
}

fn decide(rules: &[&str]) -> Verdict {
    let set = set(rules);
    set.decide(&set.select(&who()), &statement())
}

#[test]
fn each_condition_holds_or_says_that_it_does_not() {
    let hold = [
        "",
        r#"user = ["root", "a*"]"#,
        r#"schema = ["shop"]"#,
        r#"client = ["192.168.0.0/16", "10.0.0.0/8"]"#,
        r#"listener = ["apps"]"#,
        r#"digest = ["000000000000ff00"]"#,
        r#"digest_text = '^select a from orders .* = \?$'"#,
        r#"text = 'where id = 5$'"#,
        r#"text = 'update'
           negate = true"#,
        r#"class = ["write", "read"]"#,
        r#"table = ["orders"]"#,
        r#"table = ["shop.ord*"]"#,
        r#"table = ["log.*"]"#,
        r#"tag = ["report", "batch"]"#,
    ];
    for options in hold {
        assert!(!decide(&[options]).is_empty(), "{options}");
    }
    let differ = [
        (r#"user = ["App"]"#, "user"),
        (r#"schema = ["log"]"#, "schema"),
        (r#"client = ["10.2.0.0/16"]"#, "client"),
        (r#"listener = ["others"]"#, "listener"),
        (r#"digest = ["000000000000ff01"]"#, "digest"),
        (r#"digest_text = 'id = 5'"#, "digest_text"),
        (r#"digest_text = '(?-i)^select'"#, "digest_text"),
        ("text = 'select'\nnegate = true", "text"),
        (r#"class = ["write"]"#, "class"),
        (r#"table = ["hit", "shop.hits"]"#, "table"),
        (r#"tag = ["r"]"#, "tag"),
    ];
    for (options, condition) in differ {
        assert!(decide(&[options]).is_empty(), "{options}");
        let set = set(&[options]);
        let looks = set.explain(&who(), &statement());
        assert_eq!(looks, [("rule-1", Look::Differs(condition))], "{options}");
    }
}

#[test]
fn a_client_of_a_socket_is_in_no_network_and_a_mapped_one_in_that_of_its_address() {
    let set = set(&[r#"client = ["10.0.0.0/8"]"#]);
    let select = |client: Option<&str>| {
        set.select(&Who {
            client: client.map(|client| client.parse().unwrap()),
            ..who()
        })
    };
    assert!(select(None).is_empty());
    assert!(select(Some("::1")).is_empty());
    assert!(!select(Some("::ffff:10.0.0.1")).is_empty());
}

#[test]
fn the_first_rule_decides_and_those_that_go_on_add() {
    let verdict = decide(&[
        "route = \"primary\"\npin = \"always\"\nlog = true\ncontinue = true",
        "class = [\"write\"]\nroute = \"reports\"",
        "route = \"replicas\"\nread_consistency = \"strong\"\ntimeout = \"2s\"\nretries = 0",
        "route = \"reports\"",
    ]);
    assert_eq!(verdict.rules, [0, 2]);
    assert_eq!(verdict.route, Some(Route::Replicas), "the later one");
    assert_eq!(verdict.pin, Some(PinRule::Always));
    assert!(verdict.log);
    assert_eq!(verdict.read_consistency, Some(ReadConsistency::Strong));
    assert_eq!(verdict.timeout, Some(Duration::from_secs(2)));
    assert_eq!(verdict.retries, Some(0));
    let reports = Route::Group(Arc::from("reports"));
    assert_eq!(decide(&["route = \"reports\""]).route, Some(reports));
}

#[test]
fn rules_are_counted_by_their_place_in_the_file() {
    let verdict = decide(&[
        "enabled = false",
        "log = true\ncontinue = true",
        "refuse = \"no\"",
    ]);
    assert_eq!(verdict.rules, [1, 2]);
    let set = set(&["", "refuse = \"no\""]);
    let looks = set.explain(&who(), &statement());
    assert_eq!(looks[1].1, Look::NotReached);
}

#[test]
fn of_two_answers_the_later_counts() {
    let verdict = decide(&["refuse = \"no\"\ncontinue = true", "answer_ok = \"\""]);
    assert_eq!((verdict.refuse, verdict.answer_ok.as_deref()), (None, Some("")));
}

#[test]
fn a_rule_after_a_rewrite_sees_what_it_made() {
    let verdict = decide(&[
        "text = 'FROM (\\w+)'\nrewrite = 'FROM ${1}_new'\ncontinue = true",
        "text = 'orders_new'\nrewrite = 'x'\ncontinue = true",
        "digest_text = 'from orders ,'\nlog = true",
    ]);
    let rewritten = b"/* forebay: tag=report */ SELECT a FROM x, log.hits WHERE id = 5";
    assert_eq!(verdict.rewritten.as_deref(), Some(rewritten.as_slice()));
    assert!(verdict.log, "the digest stays that of the client's statement");
}

#[test]
fn a_rewrite_that_bursts_the_packet_refuses() {
    let replacement = "y".repeat(60_000);
    let set = set(&[&format!(
        "text = 'x'\nrewrite = '{replacement}'\nrewrite_all = true"
    )]);
    let text = "x".repeat(1000);
    let long = Subject {
        text: text.as_bytes(),
        ..statement()
    };
    let verdict = set.decide(&set.select(&who()), &long);
    assert_eq!(
        verdict.refuse.as_deref(),
        Some("the rewritten statement is too long")
    );
    assert_eq!(verdict.rewritten, None);
}

#[test]
fn a_selection_asks_only_for_what_its_rules_look_at() {
    let set = set(&[
        "listener = [\"others\"]\ntext = 'x'",
        "table = [\"t\"]",
        "digest_text = 'x'",
    ]);
    let selection = set.select(&who());
    let needs = Needs {
        digest_text: true,
        tables: true,
        ..Needs::default()
    };
    assert_eq!(selection.needs(), needs);
    assert!(selection.is_cacheable());
    assert!(set.needs().text && !set.is_empty());
    assert!(RuleSet::default().select(&who()).is_empty());
}

#[test]
fn limits_go_on_counting_over_a_reload() {
    let before = [rule("name = \"few\"\nmax_concurrency = 1")];
    let old = RuleSet::new(&before, None);
    let verdict = old.decide(&old.select(&who()), &statement());
    let _turn = verdict.limits[0].turn(0).unwrap();
    let is_free = |rules: &[Rule]| {
        let new = RuleSet::new(rules, Some(&old));
        let verdict = new.decide(&new.select(&who()), &statement());
        verdict.limits[0].turn(0).is_ok()
    };
    assert!(!is_free(&before));
    assert!(!is_free(&[
        rule("log = true\ncontinue = true"),
        before[0].clone()
    ]));
    assert!(is_free(&[rule("name = \"few\"\nmax_concurrency = 2")]));
}

proptest! {
    /// The index by session changes nothing: what is decided is what the first matching rules in order say.
    #[test]
    fn a_selection_decides_as_all_rules_would(
        rules in prop::collection::vec((0..3_usize, 0..3_usize, any::<bool>()), 0..8),
        user in 0..3_usize,
        class in 0..3_usize,
    ) {
        let users = ["a", "b", "c"];
        let classes = [StatementClass::Read, StatementClass::Write, StatementClass::Ddl];
        let rules: Vec<Rule> = rules
            .iter()
            .map(|&(user, class, go_on)| Rule {
                user: vec![Glob::new(users[user]).unwrap()],
                class: vec![classes[class]],
                go_on,
                ..Rule::new("r")
            })
            .collect();
        let set = RuleSet::new(&rules, None);
        let who = Who { user: users[user], ..who() };
        let statement = Subject { class: classes[class], ..statement() };
        let mut expected = Vec::new();
        for (place, rule) in rules.iter().enumerate() {
            if rule.user[0].as_str() == users[user] && rule.class[0] == classes[class] {
                expected.push(place);
                if !rule.go_on {
                    break;
                }
            }
        }
        prop_assert_eq!(set.decide(&set.select(&who), &statement).rules, expected.clone());
        let looks = set.explain(&who, &statement);
        let matched: Vec<usize> =
            (0..looks.len()).filter(|place| looks[*place].1 == Look::Matched).collect();
        prop_assert_eq!(matched, expected);
    }
}
