use e2e::{Setup, client, servers};
use mysql_async::prelude::Queryable;

#[tokio::test]
async fn and_so_do_several_statements_in_one() {
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers).start();
    let mut session = client::connect(&gateway).await;
    session
        .query_drop("CREATE PROCEDURE three() BEGIN SELECT 1; SELECT 2, 3; DO 0; SELECT 4; END")
        .await
        .unwrap();
    for call in ["CALL three()", "SELECT 1; SELECT 2, 3; SELECT 4"] {
        let mut result = session.query_iter(call).await.unwrap();
        let mut columns = Vec::new();
        while let Some(set) = result.columns() {
            columns.push(set.len());
            let rows: Vec<mysql_async::Row> = result.collect().await.unwrap();
            assert!(rows.len() <= 1);
        }
        drop(result);
        columns.retain(|count| *count > 0);
        assert_eq!(columns, [1, 2, 1], "{call}");
        session.ping().await.unwrap();
    }
    let error = session
        .query_drop("SELECT 1; SELECT no_such_column; SELECT 3")
        .await
        .unwrap_err();
    assert_eq!(client::code(&error), 1054);
    session.ping().await.unwrap();
}
