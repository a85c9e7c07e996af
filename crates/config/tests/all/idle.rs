//! What is right and does nothing is told: options of mode `split` where no listener has it.

use config::Config;
use expect_test::{Expect, expect};

fn listener(name: &str, more: &str) -> String {
    let port = 7000 + name.bytes().map(u16::from).sum::<u16>();
    format!("[[listener]]\nname = \"{name}\"\nbind = \"127.0.0.1:{port}\"\ncluster = \"main\"\n{more}\n")
}

fn told(parts: &[String], expected: Expect) {
    let config = Config::parse(&parts.concat(), "f.toml").unwrap();
    expected.assert_eq(&config::idle_worries(&config).join("\n"));
}

const CLUSTER: &str = "[cluster.main]\nservers = [\"db1\"]\n";
const USER: &str = "[[user]]\nname = \"app\"\npassword = \"a\"\n";
const REFUSE: &str = "[[rule]]\nname = \"no deletes\"\ndigest_text = \"^DELETE\"\nrefuse = \"no\"\n";

#[test]
fn without_a_listener_of_mode_split_nobody_looks_at_its_options() {
    let cluster = "[cluster.main]\nservers = [{ address = \"db1\", role = \"primary\" }, \"db2\"]\nread_balance = \"latency\"\n\
                   primary_reads = true\nfailover_wait = \"1s\"\naccounts = \"pass-through\"\n\
                   [cluster.main.pool]\nmin_idle = 2\n[cluster.main.group.g]\nservers = [\"db2\"]\n";
    told(
        &[
            listener("a", ""),
            listener("b", "mode = \"tcp\""),
            REFUSE.into(),
            USER.into(),
            cluster.into(),
        ],
        expect![[r#"
            rule[no deletes]: it does nothing, since no listener has mode "split"; other modes know no rules
            user: accounts are asked for by listeners of mode "split", of `protocol = "redis"` and with `moves`, and there is none: servers alone decide who logs in
            cluster.main: `accounts`, `failover_wait`, `group`, `pool`, `primary_reads`, `read_balance` do nothing, since no listener of this cluster has mode "split""#]],
    );
    let two = "[[rule]]\ntimeout = \"1s\"\n[[rule]]\nenabled = false\n";
    told(
        &[
            listener("a", ""),
            REFUSE.into(),
            two.into(),
            CLUSTER.into(),
            "failover_wait = \"1s\"\n".into(),
        ],
        expect![[r#"
            rule: all 2 do nothing, since no listener has mode "split"; other modes know no rules
            cluster.main: `failover_wait` does nothing, since no listener of this cluster has mode "split""#]],
    );
}

#[test]
fn listeners_that_rules_do_not_reach_are_named() {
    let split = listener("split", "mode = \"split\"");
    let beside = [
        split.clone(),
        listener("dumps", ""),
        listener("raw", "mode = \"tcp\""),
    ]
    .concat();
    let with_rule = |more: &str| {
        [
            beside.clone(),
            format!("{REFUSE}{more}"),
            USER.into(),
            CLUSTER.into(),
        ]
    };
    told(
        &with_rule(""),
        expect![[
            r#"rule: rules do not apply to dumps (mode "session"), raw (mode "tcp"): only mode "split" knows them. A rule that is not for all listeners says for which in `listener`"#
        ]],
    );
    told(
        &with_rule("listener = [\"split\", \"raw\"]\n"),
        expect![[
            r#"rule: rules do not apply to raw (mode "tcp"): only mode "split" knows them. A rule that is not for all listeners says for which in `listener`"#
        ]],
    );
    told(&with_rule("listener = [\"split\"]\n"), expect![[""]]);
    told(&with_rule("enabled = false\n"), expect![[""]]);
    told(
        &[split, REFUSE.into(), USER.into(), CLUSTER.into()],
        expect![[""]],
    );
}

/// A cluster that gets copies has a pool for them, Redis clients log in with accounts, and what is as it is
/// anyway is no slip.
#[test]
fn what_somebody_looks_at_is_not_told() {
    let split = listener("split", "mode = \"split\"");
    let copies = "[[rule]]\nmirror = \"copy\"\n[cluster.copy]\nservers = [\"db9\"]\n[cluster.copy.pool]\nmin_idle = 2\n";
    told(
        &[split, USER.into(), CLUSTER.into(), copies.into()],
        expect![[""]],
    );
    let redis = "[[listener]]\nbind = \"127.0.0.1:6379\"\nprotocol = \"redis\"\n";
    let cache = "[cache]\ncluster = \"main\"\n[cluster.main.monitor]\nuser = \"m\"\n";
    told(
        &[redis.into(), USER.into(), CLUSTER.into(), cache.into()],
        expect![[""]],
    );
    let usual = "[cluster.main.pool]\nmin_idle = 0\n";
    told(&[listener("a", ""), CLUSTER.into(), usual.into()], expect![[""]]);
}

#[test]
fn sessions_that_do_not_move_do_not_even_out() {
    let by = |policy: &str| format!("rebalance.policy = \"{policy}\"\n");
    let moves = || listener("a", "moves = true");
    told(
        &[listener("a", ""), CLUSTER.into(), by("connections")],
        expect![[
            r#"cluster.main: `rebalance` does nothing, since no listener of this cluster has `moves = true`"#
        ]],
    );
    told(
        &[moves(), USER.into(), CLUSTER.into(), by("connections")],
        expect![[""]],
    );
    told(
        &[
            "zone = \"a\"\n".into(),
            moves(),
            USER.into(),
            CLUSTER.into(),
            by("location"),
        ],
        expect![[
            r#"cluster.main: `rebalance` knows no server of the gateway's own zone: set `zone` of the gateway and of its servers"#
        ]],
    );
    let zoned = "[cluster.main]\nservers = [{ address = \"db1\", zone = \"a\" }]\n";
    told(
        &[
            "zone = \"a\"\n".into(),
            moves(),
            USER.into(),
            zoned.into(),
            by("location"),
        ],
        expect![[""]],
    );
}
