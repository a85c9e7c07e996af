//! A fake client and a fake server through the real data plane, swept over everything that decides how a
//! session looks on its two links. Every byte is compared.
//!
//! For each authentication plugin there is a test that goes through all combinations of TLS, DEPRECATE_EOF,
//! session tracking, compression on either side, and the plugin that the login names: 288 sessions, each with
//! a login, some fifty commands of all kinds and a change of user. What the server scripted must be what the
//! client got, to the byte and with its sequence numbers, and the other way round; where a login is joined
//! from two ways to send a password it must be joined as `logins` has it. The other files have what differs
//! from that: refusals, cut and large packets, secrets.
//!
//! A failure names its combination. `FOREBAY_SWEEP=<number>` runs that one alone.

mod agreements;
mod combination;
mod exchanges;
mod large_packets;
mod logins;
mod refusals;
mod secrets;
mod split_packets;
mod stage;
mod sweep;

/// One test a plugin, so that they run side by side and a failure names its plugin.
macro_rules! sweeps {
    ($($name:ident: $plugin:expr;)+) => {$(
        #[test]
        fn $name() {
            crate::capability_sweep::sweep::Sweep::of($plugin).run();
        }
    )+};
}

mod every_combination_passes_every_byte_with {
    use testkit::scripted::Plugin;

    sweeps! {
        mysql_native_password: Plugin::Native;
        caching_sha2_password_fast: Plugin::CachingSha2Fast;
        caching_sha2_password_full: Plugin::CachingSha2Full;
        sha256_password: Plugin::Sha256;
        mysql_clear_password: Plugin::Clear;
        an_opaque_challenge: Plugin::Ed25519Like;
        a_second_challenge: Plugin::ParsecLike;
        a_dialog: Plugin::Dialog;
        sha256_password_as_second_factor: Plugin::TwoFactorsSha256;
        mysql_clear_password_as_second_factor: Plugin::TwoFactorsClear;
    }
}
