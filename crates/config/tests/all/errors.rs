//! Every mistake is told with its place, what was expected and what was found; all of them at once.

use config::Config;
use expect_test::{Expect, expect};
use proptest::prelude::*;

const SOUND: &str = r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "main"

[cluster.main]
servers = ["db1", "db2"]
"#;

/// Compares the messages for a text.
fn told(text: &str, expected: Expect) {
    let errors = Config::parse(text, "f.toml").unwrap_err();
    expected.assert_eq(&format!("{errors}\n"));
}

/// Compares the messages for a sound file with `addition` at its end, which begins in line 8.
fn told_after(addition: &str, expected: Expect) {
    told(&format!("{SOUND}{addition}"), expected);
}

#[test]
fn an_empty_file_has_no_listener() {
    told(
        "",
        expect![[r#"
        f.toml:1:1: listener: expected at least one listener, found none; add [[listener]] with `bind` and `cluster`
    "#]],
    );
}

#[test]
fn what_is_kept_of_transactions_has_bounds() {
    told_after(
        "transaction_replay = 1\ntransaction_replay_max = \"128MiB\"\ntransaction_replay_memory = \"512KiB\"\n",
        expect![[r#"
            f.toml:8:22: cluster.main.transaction_replay: expected true or false, found 1
            f.toml:9:26: cluster.main.transaction_replay_max: expected a size from "1KiB" to "64MiB", found "128MiB"
            f.toml:10:29: cluster.main.transaction_replay_memory: expected a size from "1MiB" to "64GiB", found "512KiB"
        "#]],
    );
}

#[test]
fn unknown_keys_have_a_suggestion() {
    told(
        r#"
worker = 2
interval = "2s"
topology = "replication"
cash = true

[[listner]]
bind = "127.0.0.1:6033"

[[listener]]
bind = "127.0.0.1:6034"
cluster = "main"
lookup_consistency = "session"

[cluster.main]
severs = ["db1"]
moniter = { user = "forebay", password = "hunter2" }

[[user]]
name = "app"
pasword = "hunter2"
"#,
        expect![[r#"
            f.toml:2:1: worker: expected an option of the file's top level, found the unknown key `worker`; did you mean `workers`?
            f.toml:3:1: interval: expected an option of the file's top level, found the unknown key `interval`; `interval` belongs in `cluster.NAME.monitor`, `cluster.NAME.accounts` or `cluster.NAME.check`
            f.toml:4:1: topology: expected an option of the file's top level, found the unknown key `topology`; `topology` belongs in `cluster.NAME`
            f.toml:5:1: cash: expected an option of the file's top level, found the unknown key `cash`; known here: workers, max_connections, shutdown_timeout, shutdown_delay, upgrade_timeout, watch, buffer_pool_max, statement_memory_max, memory_max, log, admin, store, vip, listener, cluster, user, users_file, rule, zone, zone_file, zone_env, cache
            f.toml:7:3: listner: expected an option of the file's top level, found the unknown key `listner`; did you mean `listener`?
            f.toml:13:1: listener[0].lookup_consistency: expected this option with `protocol = "redis"` or `point_lookups = true`, found it where nothing is read from memory; for reads on replicas it is `read_consistency`
            f.toml:15:1: cluster.main.servers: expected a list; each is a text (its `address`) or a table, found nothing: the option is missing
            f.toml:16:1: cluster.main.severs: expected an option of `cluster.main`, found the unknown key `severs`; did you mean `servers`?
            f.toml:17:1: cluster.main.moniter: expected an option of `cluster.main`, found the unknown key `moniter`; did you mean `monitor`?
            f.toml:19:1: user[0].password: expected a password, or one of `password_file`, `password_env`, `native_hash`, `sha2_hash` and `ed25519_key` ("" is no password), found nothing: the option is missing
            f.toml:21:1: user[0].pasword: expected an option of `user[0]`, found the unknown key `pasword`; did you mean `password`?
        "#]],
    );
}

#[test]
fn values_of_the_wrong_type_say_what_would_be_right() {
    told(
        r#"
workers = "2"
max_connections = -1
watch = "true"
shutdown_timeout = 30
buffer_pool_max = 1.5
memory_max = 4096
admin = "127.0.0.1:6080"

[log]
level = 3
format = "jsn"

[[listener]]
bind = "6033"
cluster = 7
mode = "sesion"
unix_mode = 0o666
accept_proxy_from = "10.0.0.0/8"
login_timeout = "10 sec"
client_idle_timeout = "8hours"
tls = { mode = true }

[[listener]]
bind = "localhost:6033"
cluster = "main"
unix_mode = "0888"
accept_proxy_from = ["10.0.0.0/40", "10.1.2.3"]

[cluster.main]
servers = ["::1", "db1:port", { addres = "db2" }, 5, "mysql://root:hunter2@db3"]
check = { interval = "2m30s", rise = 0, password = 12345 }
queue_timeout = "2h"
"#,
        expect![[r#"
            f.toml:2:11: workers: expected a whole number from 1 to 1024, found "2"; leave the quotes out
            f.toml:3:19: max_connections: expected a whole number from 1 to 10000000, found -1
            f.toml:4:9: watch: expected true or false, found "true"; leave the quotes out
            f.toml:5:20: shutdown_timeout: expected a duration from "0s" to "1d", found 30; give the unit: "30s" or "30ms"
            f.toml:6:19: buffer_pool_max: expected a whole number from 0 to 65536, found 1.5
            f.toml:7:14: memory_max: expected a size from "16MiB" to "64TiB", found 4096; give the unit: "4096MiB" or "4096GiB"
            f.toml:8:9: admin: expected a table, found "127.0.0.1:6080"; options: bind, socket, token_file, hosts
            f.toml:11:9: log.level: expected a text, found 3
            f.toml:12:10: log.format: expected "text" or "json", found "jsn"; did you mean `json`?
            f.toml:15:8: listener[0].bind: expected an address and port ("127.0.0.1:6033", "[::1]:6033") or a socket's absolute path ("/run/forebay.sock"), found "6033"; for every address of this machine write "0.0.0.0:6033" or "[::]:6033"
            f.toml:16:11: listener[0].cluster: expected a text, found 7
            f.toml:17:8: listener[0].mode: expected "tcp" or "session" or "split", found "sesion"; did you mean `session`?
            f.toml:18:13: listener[0].unix_mode: expected permissions in octal ("0660"), found 0o666; write "0666"
            f.toml:19:21: listener[0].accept_proxy_from: expected a list; each is a network ("10.0.0.0/8", "fd00::/8") or one address, found "10.0.0.0/8"; put it in brackets: [ … ]
            f.toml:20:17: listener[0].login_timeout: expected a duration from "10ms" to "1h", found "10 sec"; write "10s"
            f.toml:21:23: listener[0].client_idle_timeout: expected a duration from "0s" to "365d", found "8hours"; write "8h"
            f.toml:22:16: listener[0].tls.mode: expected "off" or "preferred" or "required", found true
            f.toml:25:8: listener[1].bind: expected an address and port ("127.0.0.1:6033", "[::1]:6033") or a socket's absolute path ("/run/forebay.sock"), found "localhost:6033"; names are not looked up here; write "127.0.0.1:6033"
            f.toml:27:13: listener[1].unix_mode: expected permissions in octal ("0660"), found "0888"
            f.toml:28:22: listener[1].accept_proxy_from[0]: expected a network ("10.0.0.0/8", "fd00::/8") or one address, found "10.0.0.0/40"
            f.toml:31:12: cluster.main.servers[0].address: expected "host", "host:port", "[IPv6]:port" or a socket's absolute path, found "::1"; an IPv6 address goes in brackets: "[::1]:3306"
            f.toml:31:19: cluster.main.servers[1].address: expected "host", "host:port", "[IPv6]:port" or a socket's absolute path, found "db1:port"
            f.toml:31:31: cluster.main.servers[2].address: expected "host", "host:port", "[IPv6]:port" or a socket's absolute path, found nothing: the option is missing
            f.toml:31:33: cluster.main.servers[2].addres: expected an option of `cluster.main.servers[2]`, found the unknown key `addres`; did you mean `address`?
            f.toml:31:51: cluster.main.servers[3]: expected a text or a table, found 5; options: address, name, weight, max_connections, backup, role, zone, label, status_port, exporter
            f.toml:31:54: cluster.main.servers[4].address: expected "host", "host:port", "[IPv6]:port" or a socket's absolute path, found a text with an `@`; give the address without a scheme
            f.toml:32:9: cluster.main.check.user: expected an account, since `password` is given, found nothing: the option is missing
            f.toml:32:22: cluster.main.check.interval: expected a duration from "50ms" to "1h", found "2m30s"; one number and one unit: ms, s, m, h, d
            f.toml:32:38: cluster.main.check.rise: expected a whole number from 1 to 1000, found 0
            f.toml:32:52: cluster.main.check.password: expected a text, found something that is not text
            f.toml:33:17: cluster.main.queue_timeout: expected a duration from "0s" to "1h", found "2h"
        "#]],
    );
}

#[test]
fn missing_options_point_at_their_table() {
    told(
        "[[listener]]\nmode = \"tcp\"\n[cluster.main]\n[admin]\n",
        expect![[r#"
            f.toml:1:1: listener[0].bind: expected an address and port ("127.0.0.1:6033", "[::1]:6033") or a socket's absolute path ("/run/forebay.sock"), found nothing: the option is missing
            f.toml:1:1: listener[0].cluster: expected a text, found nothing: the option is missing
            f.toml:3:1: cluster.main.servers: expected a list; each is a text (its `address`) or a table, found nothing: the option is missing
            f.toml:4:1: admin.bind: expected an address and port ("127.0.0.1:6080", "[::1]:6080"), found nothing: the option is missing
        "#]],
    );
}

#[test]
fn tables_of_the_wrong_form_say_the_right_one() {
    told(
        "[listener]\nbind = \"127.0.0.1:1\"\n[[cluster]]\nname = \"main\"\n",
        expect![[r#"
            f.toml:1:1: listener: expected a list; each is a table, found one table; write [[listener]] with two brackets
            f.toml:3:1: cluster: expected tables with a name; each is a table, found a list; write [cluster.NAME] with a name of your choice
        "#]],
    );
}

#[test]
fn listeners_must_fit_together() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "mian"
name = "a"

[[listener]]
bind = "0.0.0.0:6033"
cluster = "other"
name = "a"

[[listener]]
bind = "/run/forebay.sock"
cluster = "main"
name = ""

[cluster.main]
servers = ["db1"]

[cluster."two words"]
servers = ["db1"]

[admin]
bind = "127.0.0.1:6033"

[log]
level = "inof,net=debug"
"#,
        expect![[r#"
            f.toml:4:11: listener[0].cluster: expected the name of a [cluster.NAME], found "mian"; did you mean `main`?
            f.toml:8:8: listener[1].bind: expected an address of its own, found 0.0.0.0:6033, which collides with 127.0.0.1:6033 of `listener[0].bind` in line 3
            f.toml:9:11: listener[1].cluster: expected the name of a [cluster.NAME], found "other"; there is main, two words
            f.toml:10:8: listener[1].name: expected a name of its own, found "a" a second time, first in line 2; give it another `name`
            f.toml:15:8: listener[2].name: expected 1 to 255 bytes of printable text, found 0 bytes
            f.toml:20:10: cluster.two words: expected a name of letters, digits, `-` and `_`, found "two words"
            f.toml:24:8: admin.bind: expected an address of its own, found 127.0.0.1:6033, which collides with 127.0.0.1:6033 of `listener[0].bind` in line 3
            f.toml:27:9: log.level: expected LEVEL or PART=LEVEL, separated by commas, found "inof"; did you mean `info`?
        "#]],
    );
}

#[test]
fn servers_of_a_cluster_differ_and_take_sessions() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "a"

[cluster.a]
servers = []

[cluster.b]
servers = ["db1", "db1:3306", { address = "db2", name = "db1:3306" }]

[cluster.c]
servers = [{ address = "db1", weight = 0 }, { address = "db2", weight = 0 }]
"#,
        expect![[r#"
            f.toml:7:11: cluster.a.servers: expected at least one server, found none
            f.toml:10:19: cluster.b.servers[1].address: expected a server of its own, found db1:3306 a second time, first in line 10
            f.toml:10:57: cluster.b.servers[2].name: expected a name of its own, found "db1:3306" a second time, first in line 10; give it another `name`
            f.toml:13:11: cluster.c.servers: expected a server with a weight above 0, found none: no server takes new sessions
        "#]],
    );
}

#[test]
fn encryption_needs_its_files() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "main"
[listener.tls]
mode = "required"
client_auth = "required"

[[listener]]
bind = "127.0.0.1:6034"
cluster = "main"
mode = "tcp"
[listener.tls]
mode = "preferred"
cert = "cert.pem"
key = "key.pem"
client_ca = "ca.pem"

[[listener]]
bind = "127.0.0.1:6035"
cluster = "main"
tls = { cert = "cert.pem" }

[cluster.main]
servers = ["db1"]
tls = { mode = "required", verify = "identity", key = "key.pem" }

[cluster.other]
servers = ["db1"]
tls = { ca = "ca.pem" }
"#,
        expect![[r#"
            f.toml:5:1: listener[0].tls.cert: expected a file, since `mode` is "required", found nothing: the option is missing
            f.toml:5:1: listener[0].tls.key: expected a file, since `mode` is "required", found nothing: the option is missing
            f.toml:5:1: listener[0].tls.client_ca: expected a file, since `client_auth` is "required", found nothing: the option is missing
            f.toml:13:1: listener[1].tls.client_auth: expected "optional" or "required" (or "off"), since `client_ca` is given, found nothing: the option is missing
            f.toml:14:8: listener[1].tls.mode: expected "off" in a listener of mode "tcp", found "preferred"; in mode "tcp" TLS passes through from client to server
            f.toml:22:7: listener[2].tls.mode: expected "preferred" or "required" (or "off"), since `cert` is given, found nothing: the option is missing
            f.toml:22:7: listener[2].tls.key: expected a file, since `cert` is given, found nothing: the option is missing
            f.toml:26:7: cluster.main.tls.cert: expected a file, since `key` is given, found nothing: the option is missing
            f.toml:26:7: cluster.main.tls.ca: expected a file, since `verify` is "identity", found nothing: the option is missing
            f.toml:30:7: cluster.other.tls.mode: expected "preferred" or "required" (or "off"), since `ca` is given, found nothing: the option is missing
        "#]],
    );
}

#[test]
fn a_certificate_is_demanded_only_where_tls_is() {
    let listener = |port: u16, mode: &str, client_auth: &str| {
        format!(
            "[[listener]]\nbind = \"127.0.0.1:{port}\"\ncluster = \"main\"\n\
             tls = {{ mode = \"{mode}\", cert = \"a\", key = \"b\", client_ca = \"c\", client_auth = \"{client_auth}\" }}\n"
        )
    };
    let cluster = "[cluster.main]\nservers = [\"db1\"]\n";
    let wrong = [
        listener(1, "preferred", "required"),
        listener(2, "off", "required"),
        cluster.to_owned(),
    ];
    told(
        &wrong.concat(),
        expect![[r#"
            f.toml:4:16: listener[0].tls.mode: expected "required", since `client_auth` is "required", found "preferred", which lets clients in without TLS, and so without a certificate
            f.toml:8:16: listener[1].tls.mode: expected "required", since `client_auth` is "required", found "off", which lets clients in without TLS, and so without a certificate
        "#]],
    );
    let right = [
        listener(1, "required", "required"),
        listener(2, "preferred", "optional"),
        listener(3, "off", "optional"),
        cluster.to_owned(),
    ];
    assert!(Config::parse(&right.concat(), "f.toml").is_ok());
}

#[test]
fn an_account_is_whole_and_used() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "a"

[cluster.a]
servers = ["db1"]
check = { user = "forebay", password = "hunter2", password_file = "p", password_env = "P" }

[cluster.b]
servers = ["db1"]
check = { kind = "login", query = " " }

[cluster.c]
servers = ["db1"]
check = { password_env = "P" }

[cluster.d]
servers = ["db1"]
check = { kind = "greeting", user = "forebay", query = "SELECT 2" }
"#,
        expect![[r#"
            f.toml:8:51: cluster.a.check.password_file: expected the password once, found a second one beside `password`
            f.toml:8:72: cluster.a.check.password_env: expected the password once, found a second one beside `password`
            f.toml:12:9: cluster.b.check.user: expected an account, since `kind` is "login", found nothing: the option is missing
            f.toml:12:35: cluster.b.check.query: expected a statement, found none
            f.toml:16:9: cluster.c.check.user: expected an account, since `password_env` is given, found nothing: the option is missing
            f.toml:20:18: cluster.d.check.kind: expected "login", since `user` is given, found "greeting", which uses no account
        "#]],
    );
}

#[test]
fn accounts_have_one_name_and_one_password() {
    let users = r#"
user = [
    { name = "app", password = "hunter2", password_env = "P" },
    { name = "app", password = "" },
    { name = "", password = "hunter2" },
    { name = "none" },
    { name = "wrong", password = 12345 },
    { password = "hunter2" },
]
"#;
    told(
        &format!("{users}{SOUND}"),
        expect![[r#"
        f.toml:3:43: user[0].password_env: expected the password once, found a second one beside `password`
        f.toml:4:14: user[1].name: expected a name of its own, found "app" a second time, first in line 3; give it another `name`
        f.toml:5:14: user[2].name: expected 1 to 255 bytes of printable text, found 0 bytes
        f.toml:6:5: user[3].password: expected a password, or one of `password_file`, `password_env`, `native_hash`, `sha2_hash` and `ed25519_key` ("" is no password), found nothing: the option is missing
        f.toml:7:34: user[4].password: expected a text, found something that is not text
        f.toml:8:5: user[5].name: expected a text, found nothing: the option is missing
    "#]],
    );
}

#[test]
fn where_transactions_read_is_said_in_mode_split_and_not_with_strong_reads() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "main"
transaction_reads = "replica"
[[listener]]
bind = "127.0.0.1:6034"
mode = "split"
cluster = "main"
read_consistency = "strong"
transaction_reads = "replica"

[[user]]
name = "app"
password = "p"
transaction_reads = "primary"

[cluster.main]
servers = [{ address = "db1", role = "primary" }]
"#,
        expect![[r#"
            f.toml:5:1: listener[0].transaction_reads: expected this option only in mode "split", found it in mode "session", where reads go where writes go
            f.toml:11:21: listener[1].transaction_reads: expected "primary", since `read_consistency` is "strong", found "replica"
        "#]],
    );
}

#[test]
fn sessions_move_in_mode_session_alone() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
mode = "tcp"
cluster = "main"
moves = true
[[listener]]
bind = "127.0.0.1:6034"
mode = "split"
cluster = "main"
moves = true
[[listener]]
bind = "127.0.0.1:6035"
cluster = "main"
moves = true

[[user]]
name = "app"
password = "p"

[cluster.main]
servers = [{ address = "db1", role = "primary" }]
"#,
        expect![[r#"
            f.toml:6:9: listener[0].moves: expected false, or `mode = "session"`, found true in mode "tcp", which looks at no statement
            f.toml:11:9: listener[1].moves: expected false, or `mode = "session"`, found true in mode "split", whose statements go to another server without it
        "#]],
    );
}

#[test]
fn a_zone_is_said_once() {
    told(
        &format!("zone = \"a\"\nzone_file = \"f\"\nzone_env = \"E\"\n{SOUND}"),
        expect![[r#"
            f.toml:2:1: zone_file: expected the zone once, found a second one beside `zone`
            f.toml:3:1: zone_env: expected the zone once, found a second one beside `zone`
        "#]],
    );
}

#[test]
fn splitting_needs_accounts_and_a_primary() {
    told(
        r#"
zone = ""
[[listener]]
bind = "127.0.0.1:6033"
mode = "split"
cluster = "none"
[[listener]]
bind = "127.0.0.1:6034"
mode = "split"
cluster = "two"
[[listener]]
bind = "127.0.0.1:6035"
mode = "split"
cluster = "replica"
[[listener]]
bind = "127.0.0.1:6036"
cluster = "single"
read_consistency = "strong"

[cluster.none]
servers = ["db1", "db2"]
[cluster.two]
servers = [{ address = "db1", role = "primary" }, "db2", { address = "db3", role = "primary", zone = "\n" }]
[cluster.replica]
servers = [{ address = "db1", role = "replica" }]
[cluster.single]
servers = ["db1"]
"#,
        expect![[r#"
            f.toml:2:8: zone: expected 1 to 255 bytes of printable text, found 0 bytes
            f.toml:5:8: listener[0].mode: expected accounts in [[user]] or `users_file`, since it is "split", found none; add [[user]] with `name` and `password`, or `accounts = "servers"` to [cluster.none]
            f.toml:9:8: listener[1].mode: expected accounts in [[user]] or `users_file`, since it is "split", found none; add [[user]] with `name` and `password`, or `accounts = "servers"` to [cluster.two]
            f.toml:13:8: listener[2].mode: expected accounts in [[user]] or `users_file`, since it is "split", found none; add [[user]] with `name` and `password`, or `accounts = "servers"` to [cluster.replica]
            f.toml:18:1: listener[3].read_consistency: expected this option only in mode "split", found it in mode "session", where reads go where writes go
            f.toml:21:11: cluster.none.servers: expected a server with `role = "primary"`, since the listener of line 5 has mode "split", found none; or let the servers say which it is: `topology` and `monitor`
            f.toml:23:84: cluster.two.servers[2].role: expected one primary in a cluster, found a second one, first in line 23
            f.toml:23:102: cluster.two.servers[2].zone: expected 1 to 255 bytes of printable text, found 1 bytes
            f.toml:25:11: cluster.replica.servers: expected a server with `role = "primary"`, since the listener of line 13 has mode "split", found none; or let the servers say which it is: `topology` and `monitor`
        "#]],
    );
}

#[test]
fn accounts_of_servers_are_read_by_the_monitor() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
mode = "split"
cluster = "a"
[cluster.a]
servers = ["db1"]
accounts = "servers"
[cluster.b]
servers = ["db1"]
monitor = { user = "forebay" }
accounts = { from = "server", interval = "1ms" }
"#,
        expect![[r#"
            f.toml:6:1: cluster.a.monitor: expected an account, since `accounts` is "servers", found nothing: the option is missing
            f.toml:12:21: cluster.b.accounts.from: expected "configured" or "servers" or "pass-through", found "server"; did you mean `servers`?
            f.toml:12:42: cluster.b.accounts.interval: expected a duration from "1s" to "1d", found "1ms"
        "#]],
    );
}

#[test]
fn roles_that_servers_say_are_not_written() {
    told_after(
        r#"
[cluster.a]
topology = "galera"
servers = [{ address = "db1", role = "primary" }, "db2"]
[cluster.b]
topology = "group-replicaton"
servers = [{ address = "db1", role = "primary" }, { address = "db2", role = "primary" }]
[cluster.c]
topology = "replication"
servers = ["db1"]
monitor = { user = "", password = "hunter2", password_file = "p", password_env = "P", heartbeat_table = "heartbeat" }
[cluster.d]
topology = "replication"
servers = ["db1"]
monitor = { user = "forebay", heartbeat_table = "a.b.c", interval = "1ms" }
[cluster.e]
topology = "replication"
servers = ["db1"]
monitor = { heartbeat_table = "`a`.b" }
"#,
        expect![[r#"
            f.toml:9:1: cluster.a.monitor: expected an account, since `topology` is "galera", found nothing: the option is missing
            f.toml:11:38: cluster.a.servers[0].role: expected no role, since `topology` is "galera", found "primary", which the servers say themselves
            f.toml:13:12: cluster.b.topology: expected "static" or "replication" or "group-replication" or "galera" or "tidb", found "group-replicaton"; did you mean `group-replication`?
            f.toml:18:20: cluster.c.monitor.user: expected a user name, found none
            f.toml:18:46: cluster.c.monitor.password_file: expected the password once, found a second one beside `password`
            f.toml:18:67: cluster.c.monitor.password_env: expected the password once, found a second one beside `password`
            f.toml:18:105: cluster.c.monitor.heartbeat_table: expected a table as "schema.table", found "heartbeat"; say its schema, too: "SCHEMA.heartbeat"
            f.toml:22:49: cluster.d.monitor.heartbeat_table: expected a table as "schema.table", found "a.b.c"
            f.toml:22:69: cluster.d.monitor.interval: expected a duration from "20ms" to "1h", found "1ms"
            f.toml:26:11: cluster.e.monitor.user: expected a text, found nothing: the option is missing
            f.toml:26:31: cluster.e.monitor.heartbeat_table: expected a table as "schema.table", found "`a`.b"
        "#]],
    );
}

#[test]
fn broken_toml_is_told_alone() {
    told(
        "workers = \n[[listener]\nbind = \"é\" x\n",
        expect![[r#"
            f.toml:1:11: a text without quotes, or no value at all; text goes in quotes: "..."
            f.toml:2:12: unclosed array table, expected `]`
            f.toml:3:12: unexpected key or value, expected newline, `#`
        "#]],
    );
}

#[test]
fn a_duplicate_key_is_told() {
    told_after(
        "servers = [\"db3\"]\n",
        expect![[r#"
            f.toml:8:1: `servers` a second time
        "#]],
    );
}

#[test]
fn columns_count_characters() {
    told_after(
        "check = { query = \"SELECT 'é'\", kind = \"x\" }\n",
        expect![[r#"
            f.toml:8:40: cluster.main.check.kind: expected "tcp" or "greeting" or "login", found "x"
        "#]],
    );
}

#[test]
fn a_file_of_something_else_is_cut_short() {
    let text: String = (0..5000).map(|index| format!("key_{index} = 1\n")).collect();
    let errors = Config::parse(&text, "f.toml").unwrap_err();
    assert_eq!(errors.0.len(), 100);
}

#[test]
fn names_of_the_admin_server_are_plain() {
    for host in ["http://gateway", "*.example", "gateway:6080", ""] {
        let text =
            format!("{SOUND}[admin]\nbind = \"127.0.0.1:6080\"\nhosts = [\"gateway.example\", {host:?}]\n");
        let errors = Config::parse(&text, "f.toml").unwrap_err().to_string();
        assert!(
            errors.contains("admin.hosts: expected names without") && errors.contains(&format!("{host:?}"))
        );
    }
    let text =
        format!("{SOUND}[admin]\nbind = \"127.0.0.1:6080\"\nhosts = [\"gateway\", \"gateway.example.\"]\n");
    Config::parse(&text, "f.toml").unwrap();
}

proptest! {
    #[test]
    fn any_text_is_answered(text in ".*") {
        let _ = Config::parse(&text, "f.toml").map_err(|errors| errors.to_string());
    }

    /// Texts that are nearly right reach further than noise does.
    #[test]
    fn any_damage_is_answered(at in 0..SOUND.len(), cut in 0..40usize, insert in "[a-z\"\\[\\]{}=.,0-9é\n]{0,8}") {
        let mut text = SOUND.to_owned();
        text.replace_range(at..(at + cut).min(SOUND.len()), &insert);
        if let Err(errors) = Config::parse(&text, "f.toml") {
            prop_assert!(!errors.0.is_empty());
            for error in &errors.0 {
                let place = error.place.unwrap();
                prop_assert!(place.line >= 1 && place.line <= text.lines().count() + 1);
            }
        }
    }

    /// Every option with every kind of value: a mistake or a configuration, never a panic.
    #[test]
    fn any_value_of_any_option_is_answered(
        option in 0..config::options().len(),
        value in prop_oneof![
            Just("[]"), Just("{}"), Just("1979-05-27"), Just("nan"), Just("-0"), Just("99999999999999999999"),
            Just("\"\""), Just("\"0s\""), Just("\"\\u0000\""), Just("[[\"a\"]]"), Just("{ a = { b = 1 } }"), Just("true"),
        ],
    ) {
        let path = config::options()[option].path.replace("NAME", "main");
        let _ = Config::parse(&format!("{path} = {value}\n"), "f.toml").map_err(|errors| errors.to_string());
        if let Some(rest) = path.strip_prefix("listener.") {
            let _ = Config::parse(&format!("[[listener]]\n{rest} = {value}\n"), "f.toml").map_err(|e| e.to_string());
        }
    }
}

#[test]
fn a_virtual_address_takes_an_etcd_and_an_address_that_can_move() {
    told_after(
        "[vip]\naddress = \"10.0.0.0/24\"\ninterface = \"a/b\"\npriority = 300\n",
        expect![[r#"
            f.toml:8:1: vip: expected a [store] with `endpoints` of an etcd, which says who has the address, found none
            f.toml:9:11: vip.address: expected the address of a machine ("10.0.0.9/24"), found "10.0.0.0/24"
            f.toml:10:13: vip.interface: expected the name of an interface, 1 to 15 characters ("eth0"), found "a/b"
            f.toml:11:12: vip.priority: expected a whole number from 0 to 255, found 300
        "#]],
    );
    let store = "[store]\nfolder = \"shared\"\n";
    told(
        &format!("{store}[vip]\naddress = \"fd00::9/64\"\ninterface = \"\"\n"),
        expect![[r#"
            f.toml:3:1: vip: expected a [store] with `endpoints` of an etcd, which says who has the address, found `folder`
            f.toml:4:11: vip.address: expected an IPv4 address: one of IPv6 cannot move yet, found "fd00::9/64"
            f.toml:5:13: vip.interface: expected the name of an interface, 1 to 15 characters ("eth0"), found ""
        "#]],
    );
    for address in ["127.0.0.1/8", "0.0.0.0", "224.0.0.1", "10.0.0.255/24"] {
        let store = "[store]\nendpoints = [\"127.0.0.1:2379\"]\n";
        let text = format!("{store}[vip]\naddress = {address:?}\ninterface = \"eth0\"\n");
        let problem = Config::parse(&text, "f.toml").unwrap_err().to_string();
        assert!(
            problem.contains("vip.address: expected the address of a machine"),
            "{problem}"
        );
    }
}

#[test]
fn a_service_of_kubernetes_is_named_as_there() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "a"
[cluster.a]
servers = []
endpoint_slices = "MySQL/primary"
srv = "_mysql._tcp.db"
[cluster.b]
servers = []
endpoint_slices = { namespace = "", port = 3306, api_server = "10.96.0.1", account_dir = 1 }
[cluster.c]
servers = []
endpoint_slices = { service = "mysql", api_server = "/run/api.sock" }
"#,
        expect![[r#"
            f.toml:7:1: cluster.a.endpoint_slices: expected one that names the servers, found both `srv` and `endpoint_slices`
            f.toml:7:19: cluster.a.endpoint_slices.service: expected a name as Kubernetes has it: lower-case letters, digits and `-`, found "MySQL/primary"
            f.toml:11:19: cluster.b.endpoint_slices.service: expected a text, found nothing: the option is missing
            f.toml:11:33: cluster.b.endpoint_slices.namespace: expected a name as Kubernetes has it: lower-case letters, digits and `-`, found ""
            f.toml:11:44: cluster.b.endpoint_slices.port: expected a text, found 3306
            f.toml:11:63: cluster.b.endpoint_slices.api_server: expected the host and port of the API server ("10.96.0.1:443"), found 10.96.0.1:3306
            f.toml:11:90: cluster.b.endpoint_slices.account_dir: expected a path, found 1
            f.toml:14:53: cluster.c.endpoint_slices.api_server: expected the host and port of the API server ("10.96.0.1:443"), found /run/api.sock
        "#]],
    );
}

#[test]
fn a_service_of_kubernetes_is_its_name_or_a_table() {
    let text = r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "a"
[cluster.a]
servers = []
endpoint_slices = "mysql"
[cluster.b]
servers = []
endpoint_slices = { service = "mysql", namespace = "db", port = "sql", api_server = "[fd00::1]:6443", account_dir = "/a", max_connections = 9 }
"#;
    let mut config = Config::parse(text, "f.toml").unwrap();
    assert_eq!(
        config.clusters["a"].endpoint_slices,
        Some(config::EndpointSlices::new("mysql"))
    );
    config.share(3);
    let slices = config.clusters["b"].endpoint_slices.clone().unwrap();
    assert_eq!(slices.api_server, config::ServerAddress::parse("[fd00::1]:6443"));
    assert_eq!(slices.max_connections, 3);
    assert!(config.clusters["b"].looks_up_servers());
}
