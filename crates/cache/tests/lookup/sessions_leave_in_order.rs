//! A session that has a server connection for itself ends it as its client has asked, and not by cutting it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use mysql_wire::Capabilities as C;
use sandbox::Kind;

use crate::stage::{PATIENCE, Stage, query, run};

#[test]
fn mariadb() {
    run(Kind::Mariadb, "session", quit);
}

#[test]
fn mysql() {
    run(Kind::Mysql, "session", quit);
}

const LOOKUP: &str = "SELECT c FROM t WHERE id=1";
const THEIR_IDS: &str = "SELECT id FROM information_schema.processlist WHERE user='app'";

fn quit(stage: &Stage) {
    let primary = stage.sandbox.primary();
    if stage.kind == Kind::Mysql {
        // With its notes: that a connection was cut is one.
        primary.sql("SET GLOBAL log_error_verbosity = 3").unwrap();
    }
    let ids = || -> Vec<String> {
        let ids = primary.sql(THEIR_IDS).unwrap();
        ids.lines().map(str::to_owned).collect()
    };
    // A thread leaves the list once the server has written how its session ended.
    let all_left = || {
        let since = Instant::now();
        while !ids().is_empty() {
            assert!(since.elapsed() < PATIENCE, "sessions stay");
            sleep(Duration::from_millis(10));
        }
    };
    let earlier = primary.log().len();
    let was_cut = |id: &String| primary.log()[earlier..].contains(&format!("Aborted connection {id} to db"));

    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    stage.until_answered(&mut through, &query(LOOKUP), &direct.sql(LOOKUP));
    let both = ids();
    assert_eq!(both.len(), 2);
    direct.quit();
    through.quit();
    all_left();
    assert_eq!(both.iter().find(|id| was_cut(id)), None);

    // The log does say it of those that are cut.
    let (direct, _) = stage.both("app", C::DEPRECATE_EOF);
    let cut = ids();
    drop(direct);
    all_left();
    assert!(cut.iter().any(was_cut), "{cut:?}");
}
