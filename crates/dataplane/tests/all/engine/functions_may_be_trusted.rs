//! A function that is not the server's own may do anything: it binds its session to the primary, unless an
//! option, a rule or a hint says that it only reads.

use super::stage::{Setup, Stage};

const RULE: &str = r#"
    [[rule]]
    name = "known"
    class = ["read"]
    digest_text = '\btwice \('
    route = "replicas"
    pin = "never"
"#;
const CALL: &str = "SELECT 'ROWS 1', twice(a) FROM t";
const WRITE: &str = "INSERT INTO t VALUES ('OK', twice(1))";

/// A primary and two replicas.
async fn start(cluster: &str, tables: &str) -> Stage {
    Stage::set(Setup {
        servers: 3,
        cluster,
        tables,
        ..Setup::default()
    })
    .await
}

#[tokio::test]
async fn but_are_not_by_themselves() {
    let stage = start("", "").await;
    let mut session = stage.connect().await;
    for is_prepared in [false, true] {
        assert_eq!(stage.spread(&mut session, CALL, is_prepared, 5).await, [5, 0, 0]);
        assert!(session.pins().await.contains(&"unknown-function".to_owned()));
        session.reset().await;
    }
}

#[tokio::test]
async fn by_a_rule_or_an_option() {
    for (cluster, rule) in [("", RULE), ("trust_functions = true", "")] {
        let stage = start(cluster, rule).await;
        let mut session = stage.connect().await;
        for is_prepared in [false, true] {
            let counts = stage.spread(&mut session, CALL, is_prepared, 40).await;
            assert_eq!(counts[0], 0, "{cluster}, prepared: {is_prepared}");
            assert!(counts[1] > 0 && counts[2] > 0, "{cluster}: {counts:?}");
            assert!(!session.pins().await.contains(&"unknown-function".to_owned()));
        }
        // A rule for reads says nothing of what writes do.
        session.reset().await;
        assert_eq!(stage.spread(&mut session, WRITE, false, 1).await, [1, 0, 0]);
        let pins = session.pins().await;
        assert_eq!(pins.is_empty(), rule.is_empty(), "{cluster}: {pins:?}");
        // What a procedure does is another matter.
        session.reset().await;
        assert_eq!(session.query("CALL nothing()").await, Ok(0));
        assert_eq!(session.pins().await[0], "procedure", "{cluster}");
    }
}

#[tokio::test]
async fn by_a_hint() {
    let stage = start("", "").await;
    let mut session = stage.connect().await;
    let hinted = format!("/* forebay: replica */ {CALL}");
    for _ in 0..3 {
        for is_prepared in [false, true] {
            let counts = stage.spread(&mut session, &hinted, is_prepared, 2).await;
            assert_eq!(counts[0], 0, "prepared: {is_prepared}");
            // It is no reason to stay there.
            let write = "INSERT INTO t VALUES ('OK')";
            assert_eq!(stage.spread(&mut session, write, is_prepared, 1).await, [1, 0, 0]);
        }
    }
}
