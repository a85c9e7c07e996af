//! `FOREBAY SHOW LAST` says which server answered the session's last statement, or what else did.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};

use crate::cluster::{self, WHERE_AM_I, ask};

/// Server, address, role, why; none before the first statement.
async fn last(session: &mut Conn) -> Option<[String; 4]> {
    let row: Option<Row> = session.query_first("FOREBAY SHOW LAST").await.unwrap();
    let row: Option<(String, String, String, String)> = row.map(mysql_async::from_row);
    row.map(|(server, address, role, why)| [server, address, role, why])
}

#[tokio::test]
async fn whichever_it_was() {
    let sandbox = cluster::shared();
    let setup =
        cluster::split(sandbox).tables("[[rule]]\nname = \"mine\"\ntext = \"^DO 42\"\nanswer_ok = \"\"\n");
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect(&gateway).await;
    assert_eq!(last(&mut session).await, None);
    let answered_by = |address: String, role: &str, why: &str| {
        Some([address.clone(), address, role.to_owned(), why.to_owned()])
    };
    let primary = sandbox.primary().address();

    let port = cluster::where_am_i(&mut session).await;
    let replica = sandbox.nodes().iter().find(|node| node.port() == port).unwrap();
    for _ in 0..2 {
        let said = last(&mut session).await;
        assert_eq!(
            said,
            answered_by(replica.address(), "replica", ""),
            "it does not count itself"
        );
    }
    session.exec_drop(WHERE_AM_I, ()).await.unwrap();
    assert_eq!(last(&mut session).await.unwrap()[2], "replica");
    session
        .query_drop("UPDATE where_am_i SET port = port")
        .await
        .unwrap();
    assert_eq!(
        last(&mut session).await,
        answered_by(primary.clone(), "primary", "")
    );
    session.query_drop("BEGIN").await.unwrap();
    session.query_drop(WHERE_AM_I).await.unwrap();
    assert_eq!(last(&mut session).await, answered_by(primary, "primary", "held"));
    session.query_drop("ROLLBACK").await.unwrap();
    session.query_drop("DO 42").await.unwrap();
    let gateway_itself = ["", "", "gateway", ""].map(str::to_owned);
    assert_eq!(last(&mut session).await, Some(gateway_itself.clone()));
    assert_eq!(
        ask(&mut session, "/* forebay: server=nobody */ SELECT 1").await,
        Err(1429)
    );
    assert_eq!(last(&mut session).await, Some(gateway_itself));
    assert_eq!(ask(&mut session, "FOREBAY SHOW FIRST").await, Err(1064));
}
