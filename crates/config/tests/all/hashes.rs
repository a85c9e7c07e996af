//! What may stand in the place of a password, and what is said of what may not.

use config::Config;
use expect_test::{Expect, expect};

const SOUND: &str = r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "main"

[cluster.main]
servers = ["db1", "db2"]
"#;

/// Compares the messages for a sound file with `addition` at its end, which begins in line 8.
fn told_after(addition: &str, expected: Expect) {
    let errors = Config::parse(&format!("{SOUND}{addition}"), "f.toml").unwrap_err();
    expected.assert_eq(&format!("{errors}\n"));
}

#[test]
fn a_hash_has_the_form_that_servers_give_it() {
    told_after(
        r#"
[[user]]
name = "a"
native_hash = "2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19"
[[user]]
name = "b"
native_hash = "$A$005$THISISACOMBINATIONOFINVALIDSALTANDPASSWORD"
[[user]]
name = "c"
native_hash = "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E1Ä"
previous_native_hash = "*2470c0c06dee42fd1618bb99005adca2ec9d1e19"
[[user]]
name = "d"
password = "hunter2"
native_hash = "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19"
previous_password = "hunter3"
previous_native_hash = "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19"
"#,
        expect![[r#"
            f.toml:11:15: user[0].native_hash: expected `*` and 40 hexadecimal digits, as in `mysql.user`, found another text of 40 bytes; put `*` in front
            f.toml:14:15: user[1].native_hash: expected `*` and 40 hexadecimal digits, as in `mysql.user`, found another text of 49 bytes; a hash of `caching_sha2_password` is one for `sha2_hash`
            f.toml:17:15: user[2].native_hash: expected `*` and 40 hexadecimal digits, as in `mysql.user`, found another text of 42 bytes
            f.toml:22:1: user[3].native_hash: expected the password once, found a second one beside `password`
            f.toml:24:1: user[3].previous_native_hash: expected the previous password once, found a second one beside `previous_password`
        "#]],
    );
}

#[test]
fn every_plugin_has_its_own_form_of_a_hash() {
    told_after(
        r#"
[[user]]
name = "a"
sha2_hash = "$A$005$abcdefghijabcdefghij0123456789012345678901234567890123456789012"
previous_sha2_hash = "0x2441243030352461626364656667"
[[user]]
name = "b"
sha2_hash = "2441243030352461"
previous_ed25519_key = "ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY"
[[user]]
name = "c"
sha2_hash = "$A$005$abcdefghijabcdefghi0123456789012345678901234567890123456789012"
[[user]]
name = "d"
ed25519_key = "$A$005$abcdefghijabcdefghij0123456789012345678901234567890123456789012"
[[user]]
name = "e"
ed25519_key = "ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJ"
previous_sha2_hash = "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19"
[[user]]
name = "f"
sha2_hash = "$A$005$abcdefghijabcdefghij0123456789012345678901234567890123456789012"
ed25519_key = "ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY"
"#,
        expect![[r#"
            f.toml:12:22: user[0].previous_sha2_hash: expected a hash of `caching_sha2_password` as in `mysql.user` (`$A$005$` and 63 bytes), or all of it in hexadecimal behind `0x`, found another text of 30 bytes
            f.toml:15:13: user[1].sha2_hash: expected a hash of `caching_sha2_password` as in `mysql.user` (`$A$005$` and 63 bytes), or all of it in hexadecimal behind `0x`, found another text of 16 bytes; put `0x` in front
            f.toml:19:13: user[2].sha2_hash: expected a hash of `caching_sha2_password` as in `mysql.user` (`$A$005$` and 63 bytes), or all of it in hexadecimal behind `0x`, found another text of 69 bytes; take it in hexadecimal, for its salt may hold bytes that get lost: SELECT HEX(authentication_string) FROM mysql.user
            f.toml:22:15: user[3].ed25519_key: expected the 43 characters that MariaDB has for an account of `ed25519`, found another text of 70 bytes; that is one for `sha2_hash`
            f.toml:25:15: user[4].ed25519_key: expected the 43 characters that MariaDB has for an account of `ed25519`, found another text of 42 bytes
            f.toml:26:22: user[4].previous_sha2_hash: expected a hash of `caching_sha2_password` as in `mysql.user` (`$A$005$` and 63 bytes), or all of it in hexadecimal behind `0x`, found another text of 41 bytes; that is one for `native_hash`
            f.toml:30:1: user[5].ed25519_key: expected the password once, found a second one beside `sha2_hash`
        "#]],
    );
}
