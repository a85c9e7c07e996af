//! MySQL's client asks `select $$` when it starts, to learn from the error whether the server has strings of
//! that form.

use e2e::{client, kind};
use mysql_async::prelude::Queryable;
use sandbox::Kind;

use crate::cluster::{self, pins};

const ER_PARSE_ERROR: u16 = 1064;

/// A name, to MariaDB.
const ER_BAD_FIELD_ERROR: u16 = 1054;

#[tokio::test]
async fn to_its_connection() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    let replicas = cluster::replica_ports(sandbox);
    let mut session = cluster::connect(&gateway).await;
    let of_dollars = match kind() {
        Kind::Mysql => ER_PARSE_ERROR,
        _ => ER_BAD_FIELD_ERROR,
    };
    for (question, code) in [
        ("select $$", of_dollars),
        ("SELECT port FROM where_am_i WHERE port = 'it", ER_PARSE_ERROR),
    ] {
        for _ in 0..4 {
            let error = session.query_drop(question).await.unwrap_err();
            assert_eq!(client::code(&error), code, "{question}");
            let warned: Option<(String, u16, String)> = session.query_first("SHOW WARNINGS").await.unwrap();
            assert_eq!(warned.unwrap().1, code, "{question}");
            let pins_left = pins(&mut session).await;
            let are_warnings = pins_left.iter().all(|pin| pin == "diagnostics");
            assert!(are_warnings, "{question}: {pins_left:?}");
            let port = cluster::where_am_i(&mut session).await;
            assert!(replicas.contains(&port), "{question}: {port}");
            assert!(pins(&mut session).await.is_empty(), "{question}");
        }
    }
}

/// Nobody knows how much of several statements was executed, or what a function has done.
#[tokio::test]
async fn unless_there_may_be_more_to_it() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    for question in ["SELECT 1 'a; SELECT 2", "SELECT now('"] {
        let mut session = cluster::connect(&gateway).await;
        let error = session.query_drop(question).await.unwrap_err();
        assert_eq!(client::code(&error), ER_PARSE_ERROR, "{question}");
        cluster::where_am_i(&mut session).await;
        let pins = pins(&mut session).await;
        assert!(pins.contains(&"incomplete".to_owned()), "{question}: {pins:?}");
    }
}
