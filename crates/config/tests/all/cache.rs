//! `[cache]`, its mappings, and the listeners that read from it.

use std::time::Duration;

use config::{ByteSize, CacheMapping, CacheMode, Config, Consistency, MappingKind, Protocol, Secret};
use expect_test::{Expect, expect};

const SOUND: &str = r#"
[cache]
cluster = "main"

[[listener]]
bind = "127.0.0.1:6380"
protocol = "redis"

[cluster.main]
servers = ["db1"]
monitor = { user = "watch", password = "w" }
"#;

/// Compares the messages for a text.
fn told(text: &str, expected: Expect) {
    let errors = Config::parse(text, "f.toml").unwrap_err();
    expected.assert_eq(&format!("{errors}\n"));
}

/// Compares the messages for a sound file with `addition` at its end, which begins in line 12.
fn told_after(addition: &str, expected: Expect) {
    told(&format!("{SOUND}{addition}"), expected);
}

#[test]
fn every_option_of_the_cache_is_read() {
    let text = r#"
[cache]
cluster = "main"
memory_max = "4GiB"
mode = "bounded"
strong_wait = "250ms"
account = { user = "repl", password = "r" }
time_zone = "-05:30"
copy_chunk = 100
server_id = 77

[[cache.mapping]]
name = "sbtest"
kind = "string"
table = "sbtest.sbtest1"
key = ["id"]
value = ["c"]

[[cache.mapping]]
name = "all"
kind = "hash"
table = "shop.orders"
key = ["customer", "number"]
value = ["*"]

[[listener]]
bind = "127.0.0.1:6380"
protocol = "redis"
lookup_consistency = "eventual"

[[listener]]
bind = "127.0.0.1:6033"
cluster = "main"
point_lookups = true
lookup_consistency = "session"

[cluster.main]
servers = ["db1"]
"#;
    let config = Config::parse(text, "f.toml").unwrap();
    let cache = config.cache.unwrap();
    assert_eq!(cache.cluster, "main");
    assert_eq!(cache.memory_max, ByteSize(4 << 30));
    assert_eq!(cache.mode, CacheMode::Bounded);
    assert_eq!(cache.strong_wait, Duration::from_millis(250));
    assert_eq!(cache.account.unwrap().user, "repl");
    assert_eq!(cache.time_zone.east_s, -19_800);
    assert_eq!((cache.copy_chunk, cache.server_id), (100, Some(77)));
    let string = CacheMapping::new("sbtest", MappingKind::String, "sbtest.sbtest1", &["id"], &["c"]);
    let hash = CacheMapping::new(
        "all",
        MappingKind::Hash,
        "shop.orders",
        &["customer", "number"],
        &["*"],
    );
    assert_eq!(hash.schema_and_table(), ("shop", "orders"));
    assert_eq!(cache.mappings, [string, hash]);
    let [redis, mysql] = config.listeners.as_slice() else {
        panic!("two listeners");
    };
    assert_eq!(
        (redis.protocol, redis.lookup_consistency),
        (Protocol::Redis, Consistency::Eventual)
    );
    assert_eq!(redis.cluster, "main", "that of the cache");
    assert_eq!(
        (mysql.protocol, mysql.lookup_consistency),
        (Protocol::Mysql, Consistency::Session)
    );
    assert!(mysql.point_lookups);
}

#[test]
fn the_account_of_the_monitor_stands_in() {
    let config = Config::parse(SOUND, "f.toml").unwrap();
    assert_eq!(config.listeners[0].lookup_consistency, Consistency::Strong);
    let cache = config.cache.unwrap();
    assert_eq!(
        (cache.mode, cache.memory_max),
        (CacheMode::Whole, ByteSize(1 << 30))
    );
    let account = cache.account.unwrap();
    assert_eq!(account.user, "watch");
    assert_eq!(account.password.as_ref().map(Secret::reveal), Some("w"));
}

#[test]
fn a_redis_listener_refuses_what_is_about_mysql() {
    told_after(
        r#"
[[listener]]
bind = "127.0.0.1:6381"
protocol = "redis"
cluster = "mian"
mode = "split"
read_consistency = "strong"
point_lookups = true
compression = false
rsa_key = "key.pem"
"#,
        expect![[r#"
            f.toml:16:11: listener[1].cluster: expected "main", the cluster of [cache], found "mian"; leave it out
            f.toml:17:1: listener[1].mode: expected options for Redis clients, since `protocol` is "redis", found `mode`, which is about MySQL clients
            f.toml:18:1: listener[1].read_consistency: expected options for Redis clients, since `protocol` is "redis", found `read_consistency`, which is about MySQL clients; here it is `lookup_consistency`
            f.toml:19:1: listener[1].point_lookups: expected options for Redis clients, since `protocol` is "redis", found `point_lookups`, which is about MySQL clients
            f.toml:20:1: listener[1].compression: expected options for Redis clients, since `protocol` is "redis", found `compression`, which is about MySQL clients
            f.toml:21:1: listener[1].rsa_key: expected options for Redis clients, since `protocol` is "redis", found `rsa_key`, which is about MySQL clients
        "#]],
    );
}

#[test]
fn listeners_that_read_from_memory_need_a_cache() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6380"
protocol = "redis"

[[listener]]
bind = "127.0.0.1:6033"
cluster = "main"
point_lookups = true

[cluster.main]
servers = ["db1"]
"#,
        expect![[r#"
            f.toml:4:12: listener[0].protocol: expected a [cache] whose rows are read, found "redis" without any [cache]; add [cache] with `cluster`, and [[cache.mapping]]
            f.toml:9:17: listener[1].point_lookups: expected a [cache] whose rows are read, found true without any [cache]; add [cache] with `cluster`, and [[cache.mapping]]
        "#]],
    );
}

#[test]
fn a_mysql_listener_needs_its_cluster_and_reads_from_memory_where_it_can() {
    told_after(
        r#"
[[listener]]
bind = "127.0.0.1:1"

[[listener]]
bind = "127.0.0.1:2"
cluster = "main"
mode = "tcp"
point_lookups = true

[[listener]]
bind = "127.0.0.1:3"
cluster = "other"
point_lookups = true

[[listener]]
bind = "127.0.0.1:4"
cluster = "main"
lookup_consistency = "strong"

[[listener]]
bind = "127.0.0.1:5"
protocol = "valkey"

[cluster.other]
servers = ["db2"]
"#,
        expect![[r#"
            f.toml:13:1: listener[1].cluster: expected a text, found nothing: the option is missing
            f.toml:20:17: listener[2].point_lookups: expected false, or another `mode`, found true in mode "tcp", which looks at no statement
            f.toml:25:17: listener[3].point_lookups: expected false, since the rows in memory are those of cluster "main", found true in a listener of cluster "other"
            f.toml:30:1: listener[4].lookup_consistency: expected this option with `protocol = "redis"` or `point_lookups = true`, found it where nothing is read from memory; for reads on replicas it is `read_consistency`
            f.toml:32:1: listener[5].cluster: expected a text, found nothing: the option is missing
            f.toml:34:12: listener[5].protocol: expected "mysql" or "redis", found "valkey"
        "#]],
    );
}

#[test]
fn mistakes_of_the_cache_itself_are_told() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6380"
protocol = "redis"

[cache]
cluster = "mian"
memory_max = "4 GB"
mode = "some"
strong_wait = "0s"
time_zone = "Europe/Berlin"
copy_chunk = 0
server_id = 0

[cluster.main]
servers = ["db1"]
"#,
        expect![[r#"
            f.toml:7:11: cache.cluster: expected the name of a [cluster.NAME], found "mian"; did you mean `main`?
            f.toml:8:14: cache.memory_max: expected a size from "1MiB" to "64TiB", found "4 GB"; write "4GiB"
            f.toml:9:8: cache.mode: expected "whole" or "bounded", found "some"
            f.toml:10:15: cache.strong_wait: expected a duration from "1ms" to "10m", found "0s"
            f.toml:11:13: cache.time_zone: expected a distance from UTC ("+00:00", "-05:30"), found "Europe/Berlin"; names of zones are not known here: give its distance from UTC
            f.toml:12:14: cache.copy_chunk: expected a whole number from 1 to 1000000, found 0
            f.toml:13:13: cache.server_id: expected a whole number from 1 to 4294967295, found 0
        "#]],
    );
}

#[test]
fn a_cache_needs_an_account_and_a_primary() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6380"
protocol = "redis"

[cache]
cluster = "main"

[cluster.main]
servers = ["db1", "db2"]
"#,
        expect![[r#"
            f.toml:6:1: cache.account: expected an account, since [cluster.main] has no `monitor` whose account could be used, found nothing: the option is missing
            f.toml:10:11: cluster.main.servers: expected a server with `role = "primary"`, since the [cache] of line 6 follows it, found none; or let the servers say which it is: `topology` and `monitor`
        "#]],
    );
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6380"
protocol = "redis"

[cache]
cluster = "main"
account = { user = "", password = "a", password_env = "B" }

[cluster.main]
servers = ["db1"]
"#,
        expect![[r#"
            f.toml:8:20: cache.account.user: expected a user name, found none
            f.toml:8:40: cache.account.password_env: expected the password once, found a second one beside `password`
        "#]],
    );
}

#[test]
fn mistakes_of_mappings_are_told() {
    told_after(
        r#"
[[cache.mapping]]
name = "a@b"
kind = "list"
table = "orders"
key = []
value = ["a", "A"]

[[cache.mapping]]
name = "strings"
kind = "string"
table = "shop.orders"
key = ["id"]
value = ["a", "b"]

[[cache.mapping]]
name = "strings"
kind = "string"
table = "shop.or`ders"
key = ["*"]
value = ["*"]

[[cache.mapping]]
kind = "hash"
table = "shop.orders"
key = ["id", ""]
value = ["*", "a"]
"#,
        expect![[r#"
            f.toml:14:8: cache.mapping[0].name: expected a name without `@` and blanks, found "a@b"
            f.toml:15:8: cache.mapping[0].kind: expected "string" or "hash", found "list"
            f.toml:16:9: cache.mapping[0].table: expected a table as "schema.table", found "orders"; say its schema, too: "SCHEMA.orders"
            f.toml:17:7: cache.mapping[0].key: expected 1 to 16 columns, found 0
            f.toml:18:15: cache.mapping[0].value[1]: expected each column once, found "A" after "a"
            f.toml:25:9: cache.mapping[1].value: expected one column, since `kind` is "string", found 2 columns; `kind = "hash"` has any number of columns
            f.toml:28:8: cache.mapping[2].name: expected a name of its own, found "strings" a second time, first in line 20; give it another `name`
            f.toml:30:9: cache.mapping[2].table: expected a table as "schema.table", found "shop.or`ders"
            f.toml:31:7: cache.mapping[2].key: expected the columns of a unique index by their names, found "*"
            f.toml:32:9: cache.mapping[2].value: expected the name of a column, since `kind` is "string", found "*", which is all of them; `kind = "hash"` has any number of columns
            f.toml:34:1: cache.mapping[3].name: expected a text, found nothing: the option is missing
            f.toml:37:14: cache.mapping[3].key[1]: expected the name of a column, 1 to 64 characters, found 0 characters
            f.toml:38:9: cache.mapping[3].value: expected "*" alone, found other columns beside it
        "#]],
    );
}
