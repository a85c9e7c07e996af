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
const PRESENT: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app'";

fn quit(stage: &Stage) {
    let primary = stage.sandbox.primary();
    let aborted = || primary.sql("SHOW GLOBAL STATUS LIKE 'Aborted_clients'").unwrap();
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    stage.until_answered(&mut through, &query(LOOKUP), &direct.sql(LOOKUP));
    // The cache's own connections to read tables are cut, which is over by now.
    let before = aborted();
    direct.quit();
    through.quit();
    let since = Instant::now();
    while primary.sql(PRESENT).unwrap().trim() != "0" {
        assert!(since.elapsed() < PATIENCE, "sessions stay");
        sleep(Duration::from_millis(10));
    }
    assert_eq!(aborted(), before);
}
