//! A function that is not the server's own may do anything: it binds its session to the primary, unless an
//! option, a rule or a hint says that it only reads. Where it then goes is with the tests of the data plane.

use mysql_async::prelude::Queryable;

use crate::cluster::{self, ask};

/// What it may read of its session is that of its session.
#[tokio::test]
async fn to_read_the_id_that_was_made_last() {
    cluster::schema(cluster::shared(), "trusted_to_read", "");
    let setup = cluster::split(cluster::shared()).cluster("trust_functions = true");
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect_to(&gateway, "trusted_to_read").await;
    for statement in [
        "CREATE TABLE numbered (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 70",
        "CREATE FUNCTION made_last() RETURNS BIGINT DETERMINISTIC NO SQL RETURN LAST_INSERT_ID()",
    ] {
        session.query_drop(statement).await.unwrap();
    }
    // The others have written nothing yet: their reads wait for no function.
    cluster::shared().sync().unwrap();
    let mut other = cluster::connect_to(&gateway, "trusted_to_read").await;
    let mut none = cluster::connect_to(&gateway, "trusted_to_read").await;
    for hint in ["", "/* forebay: replica */ "] {
        let question = format!("{hint}SELECT made_last()");
        for _ in 0..3 {
            for session in [&mut session, &mut other] {
                session
                    .query_drop("INSERT INTO numbered (v) VALUES (1)")
                    .await
                    .unwrap();
            }
            for _ in 0..4 {
                for session in [&mut session, &mut other, &mut none] {
                    let made = session.last_insert_id();
                    let expected = ask(session, "SELECT LAST_INSERT_ID()").await;
                    assert!(
                        made.is_none_or(|made| expected == Ok(Some(made.to_string()))),
                        "{made:?}"
                    );
                    assert_eq!(ask(session, &question).await, expected);
                    let prepared: Option<u64> = session.exec_first(&question, ()).await.unwrap();
                    assert_eq!(prepared.map(|id| id.to_string()), expected.unwrap());
                }
            }
        }
    }
    assert_eq!(
        ask(&mut none, "SELECT made_last()").await,
        Ok(Some("0".to_owned()))
    );
}
