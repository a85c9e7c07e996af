//! The server's connection ends at any byte of a command or its answer. What was acknowledged is there once,
//! and nothing is there twice.

use std::collections::BTreeMap;

use e2e::link::Link;
use e2e::{Setup, eventually};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error};
use sandbox::{PASSWORD, USER};
use testkit::lossy_link::Fault;

use crate::cluster;

const SCHEMA: &str = "once";

/// Some fall into the gateway's own commands, before and after the client's.
const CUTS: [u64; 4] = [0, 11, 40, 75];

async fn write(session: &mut Conn, way: usize, id: u64) -> Result<(), Error> {
    match way {
        0 => {
            session
                .query_drop(format!("INSERT INTO t (id) VALUES ({id})"))
                .await
        }
        1 => session.exec_drop("INSERT INTO t (id) VALUES (?)", (id,)).await,
        2 => {
            let reads_the_last = format!("INSERT INTO t (id, v) SELECT {id}, LAST_INSERT_ID()");
            session.query_drop(reads_the_last).await
        }
        3 => {
            session
                .query_drop(format!("INSERT INTO t (id) VALUES ({id}); SELECT 1"))
                .await
        }
        _ => {
            session.query_drop("BEGIN").await?;
            session
                .query_drop(format!("INSERT INTO t (id) VALUES ({id})"))
                .await?;
            session.query_drop("COMMIT").await
        }
    }
}

#[tokio::test]
async fn wherever_its_connection_ends() {
    let sandbox = cluster::single();
    cluster::schema(
        sandbox,
        SCHEMA,
        "CREATE TABLE t (id INT AUTO_INCREMENT, v INT, KEY (id))",
    );
    let link = Link::to(sandbox);
    let address = link.address().to_string();
    let server = format!("{{ address = {address:?}, max_connections = 2, role = \"primary\" }}");
    let gateway = Setup::of_addresses(vec![address])
        .servers([server])
        .mode("split")
        .top("workers = 1")
        .cluster("failover_wait = \"200ms\"")
        .check("interval = \"50ms\"\ntimeout = \"2s\"\nrise = 1\nfall = 2")
        .tables(&cluster::user(USER, PASSWORD))
        .start();
    let mut session = cluster::connect_to(&gateway, SCHEMA).await;
    let (mut id, mut written) = (0, BTreeMap::new());
    for cut in CUTS {
        for way in 0..5 {
            for to_server in [false, true] {
                id += 1;
                // Another session's, so that there is something to be set and to be asked. Checks were cut as
                // well: the server may be taken for down for a moment.
                eventually("a session has the server again", async || {
                    if session.ping().await.is_err() {
                        let options = cluster::options(&gateway).db_name(Some(SCHEMA));
                        match Conn::new(options).await {
                            Ok(another) => session = another,
                            Err(_) => return false,
                        }
                    }
                    session.query_drop("SET sql_mode = DEFAULT").await.is_ok()
                })
                .await;
                let fault = |fault| match to_server {
                    true => link.set_to_server(fault),
                    false => link.set_to_client(fault),
                };
                fault(Fault::CutAfter(cut));
                let result = write(&mut session, way, id).await;
                fault(Fault::None);
                if let Err(error) = &result {
                    let code = match error {
                        Error::Server(error) => error.code,
                        _ => 1158,
                    };
                    assert!(
                        matches!(code, 1158 | 1429 | 1290),
                        "way {way}, cut {cut}, {to_server}: {error}"
                    );
                }
                written.insert(id, (result.is_ok(), way, cut, to_server));
            }
        }
    }
    let counts = sandbox
        .primary()
        .sql("SELECT id, COUNT(*) FROM once.t GROUP BY id")
        .unwrap();
    let counts: BTreeMap<u64, u64> = counts
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(id, count)| (id.parse().unwrap(), count.parse().unwrap()))
        .collect();
    let is_wrong = |(id, (acknowledged, ..)): &(&u64, &(bool, usize, u64, bool))| {
        let count = counts.get(id).copied().unwrap_or(0);
        count > 1 || *acknowledged && count == 0
    };
    let wrong: Vec<_> = written.iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
