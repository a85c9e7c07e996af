use e2e::{Setup, client, servers};
use mysql_async::prelude::Queryable;
use mysql_async::{Row, TxOpts};

#[tokio::test]
async fn prepared_statements_and_big_results() {
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers).start();
    let mut session = client::connect(&gateway).await;
    session
        .query_drop("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200)) ENGINE=InnoDB")
        .await
        .unwrap();
    let rows = (0..1000).map(|id| (id, format!("value {id}")));
    session
        .exec_batch("INSERT INTO t VALUES (?, ?)", rows)
        .await
        .unwrap();
    let found: Option<String> = session
        .exec_first("SELECT v FROM t WHERE id = ?", (700,))
        .await
        .unwrap();
    assert_eq!(found.as_deref(), Some("value 700"));
    // A million rows: more than all buffers on the way together.
    let all: Vec<Row> = session.query("SELECT a.v FROM t a JOIN t b").await.unwrap();
    assert_eq!(all.len(), 1_000_000);
    let error = session
        .exec_drop("SELECT * FROM nothing_here", ())
        .await
        .unwrap_err();
    assert_eq!(client::code(&error), 1146);
    session.ping().await.unwrap();
}

#[tokio::test]
async fn transactions_and_session_changes() {
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers).start();
    let (mut one, mut other) = (client::connect(&gateway).await, client::connect(&gateway).await);
    one.query_drop("CREATE TABLE t (id INT PRIMARY KEY) ENGINE=InnoDB")
        .await
        .unwrap();
    let count = "SELECT COUNT(*) FROM test.t";

    let mut transaction = one.start_transaction(TxOpts::default()).await.unwrap();
    transaction.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
    assert_eq!(other.query_first(count).await.unwrap(), Some(0));
    transaction.rollback().await.unwrap();
    let mut transaction = one.start_transaction(TxOpts::default()).await.unwrap();
    transaction.query_drop("INSERT INTO t VALUES (2)").await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(other.query_first(count).await.unwrap(), Some(1));

    one.query_drop("SET @mine = 5").await.unwrap();
    assert!(one.reset().await.unwrap(), "COM_RESET_CONNECTION is known");
    let mine: Option<Option<u8>> = one.query_first("SELECT @mine").await.unwrap();
    assert_eq!(mine, Some(None));
    one.change_user(mysql_async::ChangeUserOpts::default().with_db_name(Some("mysql".to_owned())))
        .await
        .unwrap();
    let database: Option<String> = one.query_first("SELECT DATABASE()").await.unwrap();
    assert_eq!(database.as_deref(), Some("mysql"));
}

#[tokio::test]
async fn wrong_logins_get_the_server_s_own_error() {
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers).start();
    for (options, expected) in [
        (client::options(&gateway).pass(Some("wrong")), 1045),
        (client::options(&gateway).db_name(Some("nothing_here")), 1049),
    ] {
        let error = mysql_async::Conn::new(options).await.unwrap_err();
        assert_eq!(client::code(&error), expected, "{error}");
    }
    // With the command line client: MySQL asks unknown users by any plugin, also by such as mysql_async
    // lacks.
    let error = client::command_line(gateway.port(), &["--user=nobody"], "SELECT 1").unwrap_err();
    assert!(error.contains("ERROR 1045 (28000)"), "{error}");
}
