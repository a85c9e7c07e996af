//! A session with one strong lookup after the other waits before its next command is read from its socket.

use mysql_wire::Capabilities as C;
use sandbox::Kind;

use crate::stage::{Setup, Stage, differs, on_all, query, run_with};

on_all!(they_see_every_write other_commands_wait_once each_counts_once);

const LOOKUP: &str = "SELECT c FROM t WHERE id=1";
/// More than what it takes until a session is thought to go on like that.
const MANY: usize = 40;
/// Few enough that on a busy machine, too, all of them are answered at some time before a wait is given up.
const FEW: usize = 5;

fn they_see_every_write(stage: &Stage) {
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    let row = direct.sql(LOOKUP);
    stage.until_answered(&mut through, &query(LOOKUP), &row);
    for round in 0..3 * MANY {
        if round > MANY {
            direct.sql(&format!("UPDATE t SET c='{round}' WHERE id=1"));
        }
        let (row, said) = (direct.sql(LOOKUP), through.sql(LOOKUP));
        assert!(said == row, "{}", differs(&query(LOOKUP), &row, &said));
    }
}

fn other_commands_wait_once(stage: &Stage) {
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    let (row, ok) = (direct.sql(LOOKUP), direct.sql("DO 1"));
    let probes = || stage.count("forebay_cache_probes_total");
    // The gateway may have to learn the lookup anew in between, and a busy machine gives up waits.
    stage.until(|| {
        stage.until_answered(&mut through, &query(LOOKUP), &row);
        for _ in 0..MANY {
            assert_eq!(through.sql(LOOKUP), row);
        }
        let before = (stage.answered(), probes());
        for _ in 0..FEW {
            assert_eq!(through.sql(LOOKUP), row);
        }
        let few = (stage.answered() - before.0, probes() - before.1);
        let before = probes();
        assert_eq!(through.sql("DO 1"), ok);
        let taken_for_a_lookup = probes() - before;
        assert_eq!(through.sql("DO 1"), ok);
        assert_eq!(through.sql(LOOKUP), row);
        let of_all = probes() - before;
        few == (FEW as u64, FEW as u64) && (taken_for_a_lookup, of_all) == (1, 2)
    });
}

/// However long its answer is: below and above what is sent at once.
fn each_counts_once(stage: &Stage) {
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    for len in [100, 60_000, 70_000, 250_000] {
        direct.sql(&format!("REPLACE INTO wide VALUES (1, REPEAT('w', {len}))"));
        let lookup = "SELECT v FROM wide WHERE id=1";
        let row = direct.sql(lookup);
        stage.until_answered(&mut through, &query(lookup), &row);
        let reads = || stage.count("forebay_cache_reads_total");
        // What was learned may have to be learned anew in between.
        stage.until(|| {
            let before = (stage.answered(), reads());
            for _ in 0..5 {
                assert!(through.sql(lookup) == row, "{len} bytes");
            }
            let (answered, read) = (stage.answered() - before.0, reads() - before.1);
            assert!(read <= 5, "{read} reads of {len} bytes were counted");
            answered == 5 && read == 5
        });
    }
}

#[test]
fn rows_that_are_fetched_wait_once() {
    for (kind, mode) in [(Kind::Mariadb, "split"), (Kind::Mysql, "session")] {
        let setup = Setup {
            kind,
            mode,
            consistency: "strong",
            nodes: 1,
            cache: "mode = \"bounded\"",
            rules: "",
        };
        run_with(setup, |stage| {
            let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
            let lookup = |id: usize| format!("SELECT v FROM many WHERE id={id}");
            let row = direct.sql(&lookup(0));
            stage.until_answered(&mut through, &query(&lookup(0)), &row);
            let count = || {
                let asked = stage.count("forebay_cache_probes_total");
                let fetched = stage.count("forebay_cache_fetches_total");
                let strong = stage.count("forebay_cache_reads_total{consistency=\"strong\"");
                (stage.answered(), asked, strong, fetched)
            };
            let mut next = 1;
            // The gateway may have to learn the lookup anew in between, and a busy machine gives up waits.
            stage.until(|| {
                for _ in 0..MANY {
                    assert_eq!(through.sql(&lookup(0)), row);
                }
                let before = count();
                for id in next..next + FEW {
                    through.sql(&lookup(id));
                }
                next += FEW;
                let (now, few) = (count(), FEW as u64);
                assert!(next < 500, "{before:?} {now:?}");
                let since = |before: u64, now: u64| now - before == few;
                since(before.0, now.0)
                    && since(before.1, now.1)
                    && since(before.2, now.2)
                    && since(before.3, now.3)
            });
        });
    }
}
