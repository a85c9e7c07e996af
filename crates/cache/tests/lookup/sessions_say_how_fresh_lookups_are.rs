//! `FOREBAY SET consistency = …`: a session's own word, until it says something else or is reset.

use mysql_wire::{Capabilities as C, Command};

use crate::stage::{Session, Stage, differs, on_all, query};

on_all!(levels);

const LOOKUP: &str = "SELECT c FROM t WHERE id=1";
const LOOKUPS: u64 = 20;

fn reads(stage: &Stage, level: &str) -> u64 {
    stage.count(&format!("forebay_cache_reads_total{{consistency=\"{level}\"}}"))
}

/// Lookups are answered from memory at this level.
#[track_caller]
fn are_read_at(stage: &Stage, session: &mut Session, expected: &[u8], level: &str) {
    let both = || ["strong", "eventual"].map(|level| reads(stage, level));
    let mut found = [0, 0];
    // What has changed just now is learned anew.
    stage.until(|| {
        stage.until_answered(session, &query(LOOKUP), expected);
        let (before, answered) = (both(), stage.answered());
        for _ in 0..LOOKUPS {
            assert_eq!(session.sql(LOOKUP), expected);
        }
        let after = both();
        found = [after[0] - before[0], after[1] - before[1]];
        stage.answered() - answered == LOOKUPS
    });
    let wanted = if level == "strong" {
        [LOOKUPS, 0]
    } else {
        [0, LOOKUPS]
    };
    assert_eq!(found, wanted, "{level}");
}

fn levels(stage: &Stage) {
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    let row = direct.sql(LOOKUP);
    are_read_at(stage, &mut through, &row, "strong");
    let ok = direct.sql("DO 1");
    for (text, level) in [
        ("FOREBAY SET consistency = eventual", "eventual"),
        ("forebay set consistency='strong';", "strong"),
        ("FOREBAY SET consistency := 'eventual'", "eventual"),
        ("FOREBAY SET consistency = DEFAULT", "strong"),
        ("FOREBAY SET consistency = eventual", "eventual"),
    ] {
        let said = through.sql(text);
        assert!(said == ok, "{}", differs(&query(text), &ok, &said));
        are_read_at(stage, &mut through, &row, level);
    }
    // Another session has its own, and what is no level changes nothing.
    let (_, mut other) = stage.both("app", C::DEPRECATE_EOF);
    are_read_at(stage, &mut other, &row, "strong");
    for text in [
        "FOREBAY SET consistency = fresh",
        "FOREBAY SET freshness = strong",
    ] {
        assert_eq!(through.sql(text)[4], 0xff, "{text}");
    }
    are_read_at(stage, &mut through, &row, "eventual");
    for session in [&mut direct, &mut through] {
        assert_eq!(session.ask(&[Command::RESET_CONNECTION.0])[4], 0);
        session.sql("SET NAMES utf8mb4");
    }
    let row = direct.sql(LOOKUP);
    are_read_at(stage, &mut through, &row, "strong");
}
