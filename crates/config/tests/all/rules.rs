//! Rules and groups: what is read, and what a mistake in them is told as.

use config::{Config, Glob, PinRule, ReadConsistency, StatementClass};
use expect_test::{Expect, expect};

const SOUND: &str = r#"
[[listener]]
bind = "127.0.0.1:6033"
name = "apps"
mode = "split"
cluster = "main"

[cluster.main]
topology = "replication"
monitor = { user = "forebay", password = "x" }
servers = ["db1", { address = "db2", name = "two" }]

[cluster.main.group.reports]
servers = ["db2", "db1", "db9:3306"]
exclusive = true

[cluster.shadow]
servers = ["db3"]

[[user]]
name = "app"
password = ""
"#;

fn told(rules: &str, expected: Expect) {
    let errors = Config::parse(&format!("{SOUND}{rules}"), "f.toml").unwrap_err();
    expected.assert_eq(&format!("{errors}\n"));
}

#[test]
fn a_rule_has_conditions_and_actions() {
    let rules = r#"
[[rule]]
user = ["app", "report_*"]
client = ["10.0.0.0/8"]
listener = ["apps"]
digest = ["00ff00ff00ff00ff"]
text = 'FROM (\w+)_old'
class = ["read", "locking-read"]
table = ["shop.*"]
route = "reports"
rewrite = "FROM $1"
pin = "never"
mirror = "shadow"
mirror_compare = 0.1
rate = 10
burst = 100
limit_wait = "1s"
timeout = "5s"
read_consistency = "strong"
continue = true

[[rule]]
name = "no drops"
text = "^DROP"
negate = true
refuse = "not here"
"#;
    let config = Config::parse(&format!("{SOUND}{rules}"), "f.toml").unwrap();
    let [first, second] = config.rules.as_slice() else {
        panic!("two rules: {:?}", config.rules)
    };
    assert_eq!(first.name, "rule-1");
    assert_eq!(
        first.user,
        [Glob::new("app").unwrap(), Glob::new("report_*").unwrap()]
    );
    assert_eq!(first.class, [StatementClass::Read, StatementClass::LockingRead]);
    assert_eq!(first.pin, Some(PinRule::Never));
    assert_eq!(first.read_consistency, Some(ReadConsistency::Strong));
    assert!(first.go_on && !second.go_on);
    assert_eq!((second.name.as_str(), second.negate), ("no drops", true));
    let reports = &config.clusters["main"].groups["reports"];
    assert!(reports.exclusive);
    assert_eq!(reports.servers, ["two", "db1:3306", "db9:3306"], "by their names");
}

#[test]
fn what_a_rule_names_must_exist() {
    let rules = r#"
[[rule]]
listener = ["app"]
route = "report"
mirror = "shadows"

[[rule]]
name = "twice"
route = "two"

[[rule]]
name = "twice"

[cluster.shadow.group.primary]
servers = ["db4:3306", "db3", "db5"]
"#;
    told(
        rules,
        expect![[r#"
            f.toml:25:13: rule[0].listener[0]: expected the name of a listener, found "app"; did you mean `apps`?
            f.toml:26:9: rule[0].route: expected "primary", "replicas" or the name of a group, found "report"; did you mean `reports`?
            f.toml:27:10: rule[0].mirror: expected the name of a [cluster.NAME], found "shadows"; did you mean `shadow`?
            f.toml:31:9: rule[1].route: expected "primary", "replicas" or the name of a group, found "two", which [cluster.main] does not have
            f.toml:34:8: rule[2].name: expected a name of its own, found "twice" a second time, first in line 29; give it another `name`
            f.toml:36:23: cluster.shadow.group.primary: expected a name of letters, digits, `-` and `_` other than "primary" and "replicas", found "primary"
            f.toml:37:12: cluster.shadow.group.primary.servers[0]: expected the name of a server of the cluster, found "db4:3306"; did you mean `db3:3306`?
            f.toml:37:31: cluster.shadow.group.primary.servers[2]: expected the name of a server of the cluster, found "db5"
        "#]],
    );
}

#[test]
fn what_a_rule_wants_must_fit_together() {
    let rules = r#"
[[rule]]
text = "a(b"
rewrite = "x"

[[rule]]
digest_text = "(?=look)"
digest = ["12"]
class = ["reads"]
negate = true

[[rule]]
negate = true
refuse = "no"
answer_ok = "yes"

[[rule]]
text = "x(y)"
rewrite = "$2"

[[rule]]
rewrite = "x"
burst = 5
limit_wait = "1s"

[[rule]]
rewrite_all = true
max_concurrency = 0
timeout = "0s"

[[rule]]
mirror_compare = 1

[[rule]]
mirror = "shadow"
mirror_compare = 1.5

[[rule]]
mirror = "shadow"
mirror_compare = "0.5"
"#;
    told(
        rules,
        expect![[r#"
            f.toml:25:8: rule[0].text: expected a regular expression ("^SELECT .* FROM orders"), found "a(b"; unclosed group
            f.toml:29:15: rule[1].digest_text: expected a regular expression ("^SELECT .* FROM orders"), found "(?=look)"; look-around, including look-ahead and look-behind, is not supported
            f.toml:30:11: rule[1].digest[0]: expected 16 hexadecimal digits ("5f0c27b1a9e3d846"), found "12"
            f.toml:31:10: rule[1].class[0]: expected "read" or "session" or "locking-read" or "begin-read-only" or "begin" or "transaction" or "write" or "ddl" or "administration" or "unknown", found "reads"; did you mean `read`?
            f.toml:35:10: rule[2].negate: expected false, or `digest_text` or `text` as well, found true, with neither of them
            f.toml:37:13: rule[2].answer_ok: expected one answer, found a second answer beside `refuse`
            f.toml:41:11: rule[3].rewrite: expected groups of `text`, found ${2}, which `text` does not have
            f.toml:44:11: rule[4].rewrite: expected only with `text` (and without `negate`), which says what is replaced, found it without
            f.toml:45:9: rule[4].burst: expected only with `rate`, found it without
            f.toml:46:14: rule[4].limit_wait: expected only with `rate` or `max_concurrency`, found it without
            f.toml:49:15: rule[5].rewrite_all: expected false, or `rewrite` as well, found true
            f.toml:50:19: rule[5].max_concurrency: expected a whole number from 1 to 1000000, found 0
            f.toml:51:11: rule[5].timeout: expected a duration from "1ms" to "30d", found "0s"
            f.toml:54:18: rule[6].mirror_compare: expected only with `mirror`, found it without
            f.toml:58:18: rule[7].mirror_compare: expected a share from 0 to 1 (0.1), found 1.5
            f.toml:62:18: rule[8].mirror_compare: expected a share from 0 to 1 (0.1), found "0.5"; leave the quotes out
        "#]],
    );
}
