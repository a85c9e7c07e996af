//! What is asked of the statement before is answered as on a connection of one's own, whatever the gateway
//! and others have done on the shared one since.

use std::sync::Once;

use e2e::link::Link;
use e2e::{Gateway, Setup, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};
use sandbox::{Kind, PASSWORD, USER};
use testkit::lossy_link::Fault;

use crate::cluster::{self, ask};

const SCHEMA: &str = "figures";

/// Two sessions over so many connections, and one on the server itself.
async fn sessions(connections: u32) -> (Gateway, Conn, Conn, Conn) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        cluster::schema(
            cluster::single(),
            SCHEMA,
            "CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 5000;
             CREATE TABLE rows_of (n INT); INSERT INTO rows_of VALUES (1), (2), (3), (4), (5);",
        );
    });
    let gateway = cluster::narrow(cluster::single(), connections).start();
    let own = cluster::connect_to(&gateway, SCHEMA).await;
    let other = cluster::connect_to(&gateway, SCHEMA).await;
    let port = cluster::single().primary().port();
    let direct = e2e::client::options_at(port).db_name(Some(SCHEMA));
    (gateway, own, other, Conn::new(direct).await.unwrap())
}

/// Another session writes and reads over the same connections.
async fn disturb(other: &mut Conn) {
    for _ in 0..2 {
        other
            .query_drop("INSERT INTO other (v) VALUES (1), (2)")
            .await
            .unwrap();
        other.query_drop("SELECT n FROM rows_of LIMIT 4").await.unwrap();
    }
}

/// `question` after each script, on a new table `t`; `!` is for the other session's turn.
async fn answers(session: &mut Conn, other: &mut Conn, script: &str, question: &str) -> Vec<i64> {
    session.query_drop("DROP TABLE IF EXISTS t").await.unwrap();
    let create = "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 50";
    session.query_drop(create).await.unwrap();
    for statement in script.split("; ") {
        match statement {
            "!" => disturb(other).await,
            _ => session.query_drop(statement).await.unwrap(),
        }
    }
    let mut answers = Vec::new();
    for prepared in [false, true, true] {
        answers.extend(match prepared {
            true => session.exec_first::<i64, _, _>(question, ()).await.unwrap(),
            false => session.query_first::<i64, _>(question).await.unwrap(),
        });
        if !prepared {
            session.query_drop("SELECT n FROM rows_of LIMIT 2").await.unwrap();
            disturb(other).await;
        }
    }
    answers
}

async fn same(connections: u32, scripts: &[&str], question: &str) {
    let mut wrong = Vec::new();
    for script in scripts {
        // A session that has prepared a question keeps its connection.
        let (_gateway, mut own, mut other, mut direct) = sessions(connections).await;
        let expected = answers(&mut direct, &mut other, script, question).await;
        let told = answers(&mut own, &mut other, script, question).await;
        if told != expected {
            wrong.push(format!("{script}: {expected:?} there, {told:?} here"));
        }
    }
    assert!(wrong.is_empty(), "{question}\n{wrong:#?}");
}

#[tokio::test]
async fn rows_that_a_statement_with_a_new_id_has_counted() {
    let scripts = [
        "INSERT INTO t (v) SELECT n FROM rows_of LIMIT 3",
        "INSERT INTO t (v) SELECT n FROM rows_of LIMIT 3; !",
        "SELECT 1; INSERT INTO t (v) SELECT n FROM rows_of; !",
        "INSERT INTO t (id) SELECT n FROM rows_of WHERE n > 3; !",
        "INSERT INTO t (v) VALUES (1), (2); SELECT n FROM rows_of LIMIT 3; INSERT INTO t VALUES (77, 1); !",
    ];
    same(2, &scripts, "SELECT FOUND_ROWS()").await;
    same(2, &scripts, "SELECT ROW_COUNT()").await;
}

/// Commands that are no statements come between, on whatever connection.
#[tokio::test]
async fn a_preparation_leaves_the_count_of_rows() {
    for question in ["SELECT ROW_COUNT()", "SELECT FOUND_ROWS()"] {
        let (_gateway, mut own, mut other, mut direct) = sessions(2).await;
        let mut told = Vec::new();
        for session in [&mut direct, &mut own] {
            session.query_drop("SELECT n FROM rows_of LIMIT 1").await.unwrap();
            session
                .query_drop("INSERT INTO other (v) VALUES (1), (2), (3)")
                .await
                .unwrap();
            disturb(&mut other).await;
            session.prep("SELECT n FROM rows_of").await.unwrap();
            told.push(ask(session, question).await);
        }
        assert_eq!(told[1], told[0], "{question}");
    }
}

#[tokio::test]
async fn the_count_of_rows_in_diagnostics() {
    let (_gateway, mut own, mut other, mut direct) = sessions(2).await;
    let mut told = Vec::new();
    for session in [&mut direct, &mut own] {
        session
            .query_drop("INSERT INTO other (v) VALUES (1), (2), (3)")
            .await
            .unwrap();
        disturb(&mut other).await;
        let get = "GET DIAGNOSTICS @number = NUMBER, @rows = ROW_COUNT";
        session.query_drop(get).await.unwrap();
        let row: Option<(i64, i64)> = session.query_first("SELECT @number, @rows").await.unwrap();
        told.push(row.unwrap());
    }
    assert_eq!(told, [(0, 3); 2]);
}

/// The first row; errors by their number.
async fn first(session: &mut Conn, statement: &str) -> Result<Option<Vec<Value>>, u16> {
    match session.query_first::<Row, _>(statement).await {
        Ok(row) => Ok(row.map(Row::unwrap)),
        Err(error) => Err(e2e::client::code(&error)),
    }
}

/// Errors and warnings of a read are where it was, and others come and go there.
#[tokio::test]
async fn what_a_replica_had_to_say() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    let mut other = cluster::connect(&gateway).await;
    let mut wrong = Vec::new();
    for before in ["SELECT * FROM nothing", "SELECT CAST('x' AS SIGNED)", "SELECT 1"] {
        for question in [
            "SHOW WARNINGS",
            "SHOW ERRORS",
            "SHOW COUNT(*) WARNINGS",
            "SHOW COUNT(*) ERRORS",
            "SELECT @@warning_count",
            "SELECT @@error_count",
            "GET DIAGNOSTICS CONDITION 1 @e = MYSQL_ERRNO; SELECT @e",
            "GET DIAGNOSTICS @n = NUMBER; SELECT @n",
            "GET DIAGNOSTICS @n = ROW_COUNT; SELECT @n",
        ] {
            let direct = e2e::client::options_at(sandbox.primary().port());
            let mut direct = Conn::new(direct).await.unwrap();
            let mut own = cluster::connect(&gateway).await;
            let mut told = Vec::new();
            for session in [&mut direct, &mut own] {
                let _ = first(session, before).await;
                for _ in 0..3 {
                    let _ = first(&mut other, "SELECT CAST('y' AS SIGNED)").await;
                    other.query_drop("SELECT 1 UNION SELECT 2").await.unwrap();
                }
                let mut answers = Vec::new();
                for statement in question.split("; ") {
                    answers.push(first(session, statement).await);
                }
                told.push(answers);
            }
            if told[0] != told[1] {
                wrong.push(format!("{before}; {question}: {told:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Later statements of a text ask for what those before them have left.
#[tokio::test]
async fn figures_of_statements_in_the_same_text() {
    let insert = "INSERT INTO other (v) VALUES (1), (2), (3)";
    let mut questions = vec![
        format!("{insert}; SELECT ROW_COUNT()"),
        format!("SELECT ROW_COUNT(); {insert}; SELECT ROW_COUNT()"),
        "SELECT SQL_CALC_FOUND_ROWS n FROM rows_of LIMIT 1; SELECT FOUND_ROWS()".to_owned(),
        "SELECT FOUND_ROWS(); SELECT n FROM rows_of LIMIT 3; SELECT FOUND_ROWS(), ROW_COUNT()".to_owned(),
        "SET @a = 1; SELECT ROW_COUNT()".to_owned(),
    ];
    if kind() == Kind::Mariadb {
        questions.push("SELECT 1; SELECT @@last_gtid".to_owned());
    }
    let (_gateway, mut own, mut other, mut direct) = sessions(2).await;
    let mut wrong = Vec::new();
    for question in questions {
        let mut told = Vec::new();
        for session in [&mut direct, &mut own] {
            session
                .query_drop("INSERT INTO other (v) VALUES (1), (2)")
                .await
                .unwrap();
            let last = match kind() {
                Kind::Mariadb => ask(session, "SELECT @@last_gtid").await.unwrap(),
                _ => None,
            };
            disturb(&mut other).await;
            let mut results = session.query_iter(&question).await.unwrap();
            let mut answers = Vec::new();
            while !results.is_empty() {
                let rows: Vec<Row> = results.collect().await.unwrap();
                let row = rows.into_iter().next().map(Row::unwrap);
                let is_last = |value: &Value| last.as_deref().is_some_and(|last| *value == last.into());
                answers.push(row.map(|row| {
                    let values = row.into_iter();
                    values
                        .map(|value| if is_last(&value) { "own".into() } else { value })
                        .collect::<Vec<_>>()
                }));
            }
            told.push(answers);
        }
        if told[0] != told[1] {
            wrong.push(format!("{question}: {told:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    if kind() == Kind::Mariadb {
        let question = "SELECT @@last_gtid";
        let before = ask(&mut own, question).await.unwrap();
        let both = format!("INSERT INTO other (v) VALUES (1); {question}");
        let mut results = own.query_iter(both).await.unwrap();
        results.collect::<Row>().await.unwrap();
        let within: Vec<String> = results.collect().await.unwrap();
        drop(results);
        assert_ne!(within.first(), before.as_ref());
        assert_eq!(ask(&mut own, question).await, Ok(within.into_iter().next()));
    }
}

/// MariaDB has it as a variable, by which applications tell others what they have to wait for.
#[tokio::test]
async fn the_gtid_of_its_last_write() {
    if kind() != Kind::Mariadb {
        return;
    }
    let (_gateway, mut own, mut other, mut direct) = sessions(2).await;
    let question = "SELECT @@last_gtid";
    let before = ask(&mut direct, question).await;
    disturb(&mut other).await;
    assert_eq!(ask(&mut own, question).await, before, "none");
    let number = |gtid: &str| gtid.rsplit('-').next().unwrap().parse::<u64>().unwrap();
    let mut last = 0;
    for _ in 0..3 {
        own.query_drop("INSERT INTO other (v) VALUES (1)").await.unwrap();
        let told = ask(&mut own, question).await.unwrap().unwrap();
        assert!(number(&told) > last, "{told}");
        last = number(&told);
        disturb(&mut other).await;
        own.query_drop("SELECT 1").await.unwrap();
        assert_eq!(ask(&mut own, question).await, Ok(Some(told)));
        let others = ask(&mut other, question).await.unwrap().unwrap();
        assert!(number(&others) > last, "{others}");
    }
    disturb(&mut other).await;
    let prepared: Option<String> = own.exec_first(question, ()).await.unwrap();
    assert_eq!(number(&prepared.unwrap()), last);
    disturb(&mut other).await;
    own.query_drop("INSERT INTO other (v) VALUES (1)").await.unwrap();
    let prepared: Option<String> = own.exec_first(question, ()).await.unwrap();
    assert!(number(&prepared.unwrap()) > last);
}

/// However many ids its statements give, the one that another session's statement has made on the connection
/// is not theirs.
#[tokio::test]
async fn an_id_among_many_that_were_given() {
    let given = |from: u32| {
        let inserts = (from..from + 60).map(|id| format!("INSERT INTO many (id) VALUES ({id})"));
        inserts.collect::<Vec<_>>().join("; ")
    };
    let all = [
        format!(
            "INSERT INTO many (v) VALUES (1); !; BEGIN; {}; COMMIT",
            given(1000)
        ),
        format!(
            "!; BEGIN; {}; INSERT INTO many (v) VALUES (1); {}; COMMIT",
            given(1000),
            given(2000)
        ),
        format!(
            "!; BEGIN; INSERT INTO many (v) VALUES (1); {}; ROLLBACK",
            given(1000)
        ),
        format!("!; BEGIN; {}; COMMIT", given(1000)),
    ];
    let (_gateway, mut own, mut other, mut direct) = sessions(1).await;
    let mut wrong = Vec::new();
    for script in &all {
        let mut told = Vec::new();
        for session in [&mut direct, &mut own] {
            session.query_drop("DROP TABLE IF EXISTS many").await.unwrap();
            let create = "CREATE TABLE many (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 50";
            session.query_drop(create).await.unwrap();
            session
                .query_drop("INSERT INTO many (v) VALUES (0)")
                .await
                .unwrap();
            for statement in script.split("; ") {
                match statement {
                    "!" => disturb(&mut other).await,
                    _ => session.query_drop(statement).await.unwrap(),
                }
            }
            told.push(ask(session, "SELECT LAST_INSERT_ID()").await.unwrap());
        }
        if told[0] != told[1] {
            wrong.push(format!("{} …: {told:?}", &script[..60]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What is defined asks whoever uses it, not whoever has defined it.
#[tokio::test]
async fn definitions_keep_what_they_say() {
    let (_gateway, mut own, mut other, mut direct) = sessions(2).await;
    direct.query_drop("CREATE DATABASE defined").await.unwrap();
    own.query_drop("USE defined").await.unwrap();
    own.query_drop("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
        .await
        .unwrap();
    let body = "BEGIN SELECT ROW_COUNT(), FOUND_ROWS() INTO @a, @b; SET @c = CONNECTION_ID(), @d = LAST_INSERT_ID(); END";
    let definitions = [
        ("VIEW", "v", "AS SELECT CONNECTION_ID()".to_owned()),
        (
            "TRIGGER",
            "g",
            "BEFORE INSERT ON t FOR EACH ROW SET NEW.v = CONNECTION_ID() + ROW_COUNT()".to_owned(),
        ),
        ("PROCEDURE", "p", format!("() {body}")),
        (
            "FUNCTION",
            "f",
            "() RETURNS INT NO SQL RETURN CONNECTION_ID() + FOUND_ROWS()".to_owned(),
        ),
        (
            "EVENT",
            "e",
            format!("ON SCHEDULE EVERY 1 YEAR DISABLE DO {body}"),
        ),
    ];
    for (kind, name, definition) in &definitions {
        for prepared in [false, true] {
            disturb(&mut other).await;
            let create = format!("CREATE {kind} {name} {definition}");
            match prepared {
                false => own.query_drop(create).await.unwrap(),
                // Servers prepare few of them.
                true if own.exec_drop(create, ()).await.is_err() => continue,
                true => {}
            }
            let show = format!("SHOW CREATE {kind} defined.{name}");
            let row: Row = direct.query_first(show).await.unwrap().unwrap();
            let shown: Vec<_> = row.unwrap().iter().map(|value| value.as_sql(true)).collect();
            let shown = shown.join(" ").to_ascii_lowercase();
            for call in [
                "connection_id()",
                "row_count()",
                "found_rows()",
                "last_insert_id()",
            ] {
                let count = |text: &str| text.matches(call).count();
                // MariaDB's views name their columns by what they show.
                let said = count(&definition.to_ascii_lowercase());
                assert!(
                    count(&shown) >= said && !shown.contains("if(true"),
                    "{prepared}: {shown}"
                );
            }
            own.query_drop(format!("DROP {kind} {name}")).await.unwrap();
        }
    }
}

/// A table keeps what was answered.
#[tokio::test]
async fn tables_are_made_of_its_figures() {
    let (_gateway, mut own, mut other, mut direct) = sessions(2).await;
    for session in [&mut direct, &mut own] {
        session
            .query_drop("INSERT INTO other (v) VALUES (1), (2), (3)")
            .await
            .unwrap();
        disturb(&mut other).await;
        session
            .query_drop("CREATE TABLE made AS SELECT ROW_COUNT() AS n, CONNECTION_ID() AS id")
            .await
            .unwrap();
        let made: Option<(i64, u32)> = session.query_first("SELECT n, id FROM made").await.unwrap();
        assert_eq!(made, Some((3, session.id())));
        session.query_drop("DROP TABLE made").await.unwrap();
    }
}

const TRIGGERS: &str = "CREATE FUNCTION sets_id() RETURNS INT NO SQL RETURN LAST_INSERT_ID(4321);
    CREATE FUNCTION makes_id() RETURNS INT NO SQL RETURN 31;
    CREATE TABLE plain (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 300;
    CREATE TABLE given (id INT AUTO_INCREMENT PRIMARY KEY, v INT);
    CREATE TRIGGER gives BEFORE INSERT ON given FOR EACH ROW SET NEW.id = 700 + NEW.v;
    CREATE TABLE named (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 400;
    CREATE TRIGGER names BEFORE INSERT ON named FOR EACH ROW SET NEW.v = LAST_INSERT_ID(4321);
    CREATE TABLE kept (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 800;
    CREATE TABLE followed (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 900;
    CREATE TRIGGER follows AFTER INSERT ON followed FOR EACH ROW INSERT INTO kept (v) VALUES (NEW.v);";

/// Nothing in the statements says that their ids are given.
#[tokio::test]
async fn an_id_that_a_trigger_or_an_expression_gives() {
    let (_gateway, mut own, mut other, mut direct) = sessions(2).await;
    direct
        .query_drop("DROP DATABASE IF EXISTS triggers")
        .await
        .unwrap();
    direct.query_drop("CREATE DATABASE triggers").await.unwrap();
    direct.query_drop("USE triggers").await.unwrap();
    for statement in TRIGGERS
        .split(';')
        .filter(|statement| !statement.trim().is_empty())
    {
        direct.query_drop(statement).await.unwrap();
    }
    own.query_drop("USE triggers").await.unwrap();
    let mut wrong = Vec::new();
    for insert in [
        "INSERT INTO given (v) VALUES ({})",
        "INSERT INTO plain (id) VALUES (600 + {} * 3)",
        "INSERT INTO named (v) VALUES ({})",
        "INSERT INTO followed (v) VALUES ({})",
        "INSERT INTO plain (v) VALUES (sets_id() + {})",
        "INSERT INTO plain (id) VALUES (makes_id() + {})",
    ] {
        for round in 1..4 {
            let mut told = Vec::new();
            for (place, session) in [&mut direct, &mut own].into_iter().enumerate() {
                // Only one session holds what functions bind.
                let made = session.query_drop("INSERT INTO plain (v) VALUES (1)").await;
                made.unwrap();
                let made = session.last_insert_id().unwrap();
                let value = 2 * round + place;
                let insert = insert.replace("{}", &value.to_string());
                disturb(&mut other).await;
                session.query_drop(&insert).await.unwrap();
                disturb(&mut other).await;
                let id = ask(session, "SELECT LAST_INSERT_ID()").await.unwrap().unwrap();
                let new = id != made.to_string();
                told.push((
                    new,
                    new && id == session.last_insert_id().unwrap_or(0).to_string(),
                ));
            }
            if told[0] != told[1] {
                wrong.push(format!("{insert}, round {round}: {told:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Ids that are in no digits of a statement that makes some at other times.
#[tokio::test]
async fn an_id_that_is_given_in_another_form() {
    let (_gateway, mut own, mut other, mut direct) = sessions(2).await;
    let mut wrong = Vec::new();
    for given in [
        Ok("0x1092"),
        Ok("4.242e3"),
        Ok("4241.6"),
        Ok("'42.42e2'"),
        Err(Value::Double(4242.0)),
        Err(Value::Double(4241.7)),
        Err(Value::Float(4242.0)),
        Err("4.242e3".into()),
    ] {
        let mut told = Vec::new();
        for session in [&mut direct, &mut own] {
            session.query_drop("DROP TABLE IF EXISTS forms").await.unwrap();
            let create = "CREATE TABLE forms (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 50";
            session.query_drop(create).await.unwrap();
            let prepared = session
                .prep("INSERT INTO forms (id, v) VALUES (?, 1)")
                .await
                .unwrap();
            // The server makes ids, as is found out with the first.
            for value in [Ok("0"), Ok("0"), Ok("0"), given.clone()] {
                let value = match (value, &given) {
                    (Ok(text), Ok(_)) => {
                        let insert = format!("INSERT INTO forms (id, v) VALUES ({text}, 1)");
                        session.query_drop(insert).await.unwrap();
                        disturb(&mut other).await;
                        continue;
                    }
                    (Ok(_), Err(_)) => Value::Int(0),
                    (Err(value), _) => value,
                };
                session.exec_drop(&prepared, (value,)).await.unwrap();
                disturb(&mut other).await;
            }
            told.push(ask(session, "SELECT LAST_INSERT_ID()").await.unwrap());
        }
        if told[0] != told[1] {
            wrong.push(format!("{given:?}: {told:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The server ends the connection then, which is not to happen to another session's statement.
#[tokio::test]
async fn whoever_releases_the_connection_has_none_afterwards() {
    for ends in [
        &["COMMIT RELEASE"][..],
        &["ROLLBACK RELEASE"],
        &["SET completion_type = 'RELEASE'", "BEGIN", "COMMIT"],
    ] {
        let (_gateway, mut own, mut other, _direct) = sessions(1).await;
        for statement in ends {
            own.query_drop(*statement).await.unwrap();
        }
        own.query_drop("SELECT 1").await.unwrap_err();
        disturb(&mut other).await;
    }
}

/// Whether the write was done is to be seen where it would have been done.
#[tokio::test]
async fn who_looks_for_a_write_whose_answer_was_lost_looks_at_the_primary() {
    let sandbox = cluster::single();
    let link = Link::to(sandbox);
    let (address, replica) = (
        link.address().to_string(),
        format!("localhost:{}", sandbox.primary().port()),
    );
    let server = |address: &str, role| format!("{{ address = {address:?}, role = {role:?} }}");
    let gateway = Setup::of_addresses(vec![address.clone()])
        .servers([server(&address, "primary"), server(&replica, "replica")])
        .mode("split")
        .tables(&cluster::user(USER, PASSWORD))
        // Checks that are cut as well say nothing of the server.
        .check("interval = \"200ms\"\ntimeout = \"2s\"\nrise = 1\nfall = 1000")
        .start();
    let mut session = cluster::connect(&gateway).await;
    let chosen = async |session: &mut Conn| {
        let why = cluster::why(session).await;
        let server = why.into_iter().find(|(what, _)| what == "server");
        server.unwrap().1
    };
    let drop = "DROP TABLE IF EXISTS looked_for";
    sandbox
        .primary()
        .sql(&format!("USE test; {drop}; CREATE TABLE looked_for (id INT)"))
        .unwrap();
    assert_eq!(chosen(&mut session).await, replica);
    session.query_drop("SELECT * FROM looked_for").await.unwrap();
    link.set_to_client(Fault::CutAfter(1));
    let error = ask(&mut session, "INSERT INTO looked_for VALUES (1)").await;
    link.set_to_client(Fault::None);
    assert_eq!(error, Err(1158));
    assert_eq!(chosen(&mut session).await, address);
    let rows = ask(&mut session, "SELECT COUNT(*) FROM looked_for").await;
    assert_eq!(rows, Ok(Some("1".to_owned())));
}
