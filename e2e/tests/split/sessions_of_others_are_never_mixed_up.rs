//! Many sessions of several users in several schemas on very few connections, each of which checks at every
//! step that it is still itself. What one sets is its own number, so that anything of another's shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inputs::Random;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::task::JoinSet;

use crate::cluster::{self, narrow, user};

const USERS: usize = 3;
const SCHEMAS: usize = 3;
const SESSIONS: usize = 24;
const STEPS: usize = 120;
const CONNECTIONS: u32 = 12;

/// What a session knows of itself.
struct Witness {
    number: usize,
    conn: Conn,
    user: String,
    schema: String,
    buffer: Option<usize>,
    variable: Option<usize>,
    temporary: bool,
    rows: u64,
}

impl Witness {
    async fn step(&mut self, choice: u64) {
        let number = self.number;
        match choice {
            0 => {
                let size = 100_000 + 1024 * number;
                self.run(&format!("SET SESSION group_concat_max_len = {size}"))
                    .await;
                self.buffer = Some(size);
            }
            1 => {
                self.schema = format!("mixed_{}", (number + self.rows as usize) % SCHEMAS);
                self.run(&format!("USE {}", self.schema)).await;
            }
            2 => {
                self.run(&format!("INSERT INTO notes (session) VALUES ({number})"))
                    .await;
                let id = self.conn.last_insert_id().unwrap();
                self.rows += 1;
                let told: Option<u64> = self.conn.query_first("SELECT LAST_INSERT_ID()").await.unwrap();
                assert_eq!(told, Some(id), "session {number}");
            }
            3 => {
                self.run("BEGIN").await;
                self.run(&format!("INSERT INTO notes (session) VALUES ({number})"))
                    .await;
                self.check().await;
                self.run("ROLLBACK").await;
            }
            4 if number.is_multiple_of(4) => {
                self.run(&format!("SET @mine = {number}")).await;
                self.variable = Some(number);
            }
            5 if number.is_multiple_of(4) && !self.temporary => {
                self.run(&format!("CREATE TEMPORARY TABLE mine SELECT {number} AS n"))
                    .await;
                self.run("USE mixed_0").await;
                self.schema = "mixed_0".to_owned();
                self.run(&format!(
                    "CREATE TEMPORARY TABLE IF NOT EXISTS mixed_0.mine SELECT {number} AS n"
                ))
                .await;
                self.temporary = true;
            }
            6 => {
                assert!(self.conn.reset().await.unwrap());
                (self.buffer, self.variable, self.temporary) = (None, None, false);
            }
            _ => self.prepared().await,
        }
        self.check().await;
    }

    /// The same text in all sessions, with other parameters in each.
    async fn prepared(&mut self) {
        let answer: Option<(String, usize)> = self
            .conn
            .exec_first("SELECT CURRENT_USER(), ? + 0", (self.number,))
            .await
            .unwrap();
        assert_eq!(answer, Some((self.user.clone(), self.number)));
    }

    async fn run(&mut self, statement: &str) {
        let number = self.number;
        let done = self.conn.query_drop(statement).await;
        done.unwrap_or_else(|error| panic!("session {number}: {statement}: {error}"));
    }

    async fn check(&mut self) {
        let question = "SELECT CURRENT_USER(), DATABASE(), @@group_concat_max_len, @@autocommit";
        let seen: Option<(String, String, usize, u8)> = self.conn.query_first(question).await.unwrap();
        let (user, schema, buffer, autocommit) = seen.unwrap();
        let number = self.number;
        assert_eq!(
            (user, schema, autocommit),
            (self.user.clone(), self.schema.clone(), 1),
            "session {number}"
        );
        match self.buffer {
            Some(size) => assert_eq!(buffer, size, "session {number}"),
            None => assert!(
                buffer < 100_000 || buffer == 1_048_576,
                "session {number}: {buffer}"
            ),
        }
        if number.is_multiple_of(4) {
            let variable: Option<Option<usize>> = self.conn.query_first("SELECT @mine").await.unwrap();
            assert_eq!(variable.flatten(), self.variable, "session {number}");
            if self.temporary {
                let n: Option<usize> = self.conn.query_first("SELECT n FROM mixed_0.mine").await.unwrap();
                assert_eq!(n, Some(number));
            }
        }
    }
}

#[tokio::test]
async fn over_few_connections() {
    let sandbox = cluster::single();
    let (mut tables, mut accounts) = (String::new(), String::new());
    for schema in 0..SCHEMAS {
        accounts += &format!(
            "CREATE DATABASE mixed_{schema};
             CREATE TABLE mixed_{schema}.notes (id INT AUTO_INCREMENT PRIMARY KEY, session INT);"
        );
    }
    for number in 0..USERS {
        let name = format!("mixed_{number}");
        tables += &user(&name, &name);
        accounts += &format!(
            "CREATE USER {name}@'%' IDENTIFIED BY '{name}'; GRANT ALL ON `mixed\\_%`.* TO {name}@'%';"
        );
    }
    sandbox.primary().sql(&accounts).unwrap();
    let gateway = narrow(sandbox, CONNECTIONS)
        .cluster("queue_timeout = \"50s\"")
        .tables(&tables)
        .start();
    let failed = Arc::new(AtomicBool::new(false));
    let mut sessions = JoinSet::new();
    for number in 0..SESSIONS {
        let (name, schema) = (
            format!("mixed_{}", number % USERS),
            format!("mixed_{}", number % SCHEMAS),
        );
        let options = cluster::options(&gateway)
            .user(Some(&name))
            .pass(Some(&name))
            .db_name(Some(&schema));
        let mut witness = Witness {
            number,
            conn: Conn::new(options).await.unwrap(),
            user: format!("{name}@%"),
            schema,
            buffer: None,
            variable: None,
            temporary: false,
            rows: 0,
        };
        let failed = Arc::clone(&failed);
        sessions.spawn(async move {
            let mut random = Random::new(number as u64);
            for _ in 0..STEPS {
                if failed.load(Ordering::Relaxed) {
                    return;
                }
                witness.step(random.below(12)).await;
            }
        });
    }
    let mut panics = Vec::new();
    while let Some(ended) = sessions.join_next().await {
        if let Err(error) = ended {
            failed.store(true, Ordering::Relaxed);
            panics.push(error);
        }
    }
    assert!(panics.is_empty(), "{panics:?}");
}
