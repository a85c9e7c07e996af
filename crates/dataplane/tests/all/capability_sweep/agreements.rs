//! What client and server agree on, and servers that differ from the usual in more than their plugin.

use mysql_wire::Capabilities as C;
use testkit::scripted::Plugin;

use super::exchanges;
use super::sweep::Sweep;

#[test]
fn a_server_that_asks_for_nothing_lets_every_combination_in() {
    let mut sweep = Sweep::of(Plugin::Native);
    sweep.script.accepts_anyone = true;
    sweep.run();
}

#[test]
fn every_combination_passes_every_byte_of_mariadb() {
    let mut sweep = Sweep::of(Plugin::Native);
    sweep.script = sweep.script.like_mariadb();
    sweep.run();
}

#[test]
fn what_a_server_lacks_no_client_is_offered() {
    for lacking in [
        C::DEPRECATE_EOF,
        C::SESSION_TRACK,
        C::OPTIONAL_RESULTSET_METADATA,
        C::QUERY_ATTRIBUTES,
        C::COMPRESS,
        C::ZSTD_COMPRESSION,
        C::PLUGIN_AUTH_LENENC,
        C::MULTI_STATEMENTS,
        C::CONNECT_ATTRS,
    ] {
        let mut sweep = Sweep::of(Plugin::Native);
        sweep.script.capabilities.remove(lacking);
        sweep.client = |identity| {
            identity.capabilities = identity.capabilities
                | C::DEPRECATE_EOF
                | C::SESSION_TRACK
                | C::OPTIONAL_RESULTSET_METADATA
                | C::QUERY_ATTRIBUTES
                | C::PLUGIN_AUTH_LENENC;
        };
        let is_same_for_client =
            |one: &super::combination::Combination| one.deprecate_eof && one.session_track;
        sweep.combinations.retain(is_same_for_client);
        let password = sweep.script.password.clone();
        let neighbourly = C::COMPRESS | C::ZSTD_COMPRESSION;
        sweep.play(async move |client| {
            if !neighbourly.intersects(lacking) && client.greeting().capabilities.intersects(lacking) {
                return Err(format!("{lacking:?} was offered"));
            }
            exchanges::run(client, &password).await
        });
    }
}

#[test]
fn an_empty_password_is_empty_on_both_links() {
    for plugin in [
        Plugin::Native,
        Plugin::CachingSha2Fast,
        Plugin::Sha256,
        Plugin::TwoFactorsSha256,
    ] {
        let mut sweep = Sweep::of(plugin).logins_only();
        sweep.script.password.clear();
        sweep.run();
    }
}

#[test]
fn an_operator_may_let_passwords_travel_in_the_clear() {
    for plugin in [Plugin::Clear, Plugin::Dialog, Plugin::TwoFactorsClear] {
        let mut sweep = Sweep::of(plugin).logins_only();
        sweep.options = "allow_cleartext_passwords = true";
        sweep.run();
    }
}

#[test]
fn a_client_that_has_the_servers_rsa_key_does_without_the_gateways() {
    for plugin in [Plugin::CachingSha2Full, Plugin::Sha256] {
        let mut sweep = Sweep::of(plugin).logins_only();
        sweep.client = |identity| identity.has_server_key = true;
        // Over the pair of links where the gateway has to read the password it cannot: see `refusals`.
        sweep.combinations.retain(|one| one.client_tls || !one.back.tls);
        sweep.run();
    }
}
