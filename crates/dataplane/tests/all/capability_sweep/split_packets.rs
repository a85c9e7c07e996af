//! Reads end anywhere: what both ends write is cut in two, one byte further on each time.

use mysql_wire::Command;
use testkit::scripted::{Client, Cuts, Plugin};

use super::exchanges::{self, request, statement, told};
use super::sweep::Sweep;

/// More than the longest message below.
const PLACES: usize = 280;

#[test]
fn answers_cut_at_every_place_are_the_same_answers() {
    let mut sweep = Sweep::of(Plugin::Native);
    sweep.script.cuts = Some(Cuts::default());
    sweep
        .combinations
        .retain(|one| one.session_track && one.names_plugin);
    sweep.play(async |mut client: Client| {
        for text in ["TRACK", "ROWS 1", "OK; ERROR"] {
            for _ in 0..PLACES / 4 {
                told(text, client.query(text).await)?;
            }
        }
        told("quit", client.exchange(&request(Command::QUIT, b"")).await).map(drop)
    });
}

#[test]
fn commands_cut_at_every_place_are_the_same_commands() {
    let mut sweep = Sweep::of(Plugin::Native);
    sweep.client = |identity| identity.cuts = Some(Cuts::default());
    sweep
        .combinations
        .retain(|one| one.session_track && one.names_plugin);
    sweep.play(async |mut client: Client| {
        let long = statement(&format!("ROWS 2; OK {}", "x".repeat(60)), client.negotiated());
        for _ in 0..long.len() {
            told("a statement", client.exchange(&long).await)?;
            told("ping", client.exchange(&request(Command::PING, b"")).await)?;
        }
        let many = vec![
            request(Command::PING, b""),
            long,
            request(Command::STATISTICS, b""),
        ];
        for _ in 0..PLACES / 4 {
            told("pipelined commands", client.pipeline(&many).await)?;
        }
        told("quit", client.exchange(&request(Command::QUIT, b"")).await).map(drop)
    });
}

#[test]
fn logins_and_everything_else_pass_when_both_ends_cut_what_they_write() {
    for plugin in [
        Plugin::CachingSha2Full,
        Plugin::TwoFactorsSha256,
        Plugin::ParsecLike,
    ] {
        for place in [1, 3, 4, 5, 40] {
            let mut sweep = Sweep::of(plugin).logins_only();
            sweep.script.cuts = Some(Cuts::from(place));
            sweep.client = |identity| identity.cuts = Some(Cuts::default());
            sweep.play(async |client| exchanges::run(client, super::stage::PASSWORD).await);
        }
    }
}
