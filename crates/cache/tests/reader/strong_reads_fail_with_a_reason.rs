use std::time::{Duration, Instant};

use config::Consistency;
use sandbox::Kind;

use crate::served::{hash, on_both, served, spec};

on_both! { when_the_server_is_read_only when_the_server_does_not_answer when_its_log_cannot_be_followed }

const SQL: &str = "CREATE TABLE test.t (id INT PRIMARY KEY); INSERT INTO test.t VALUES (1)";

fn short(config: &mut config::Cache) {
    config.strong_wait = Duration::from_secs(2);
}

/// The probe finds it out, or the monitor of the cluster is faster.
fn says_why(error: &str) -> bool {
    error.contains("is read-only and so not the primary") || error.contains("there is no primary")
}

fn when_the_server_is_read_only(kind: Kind) {
    served(
        spec(kind),
        SQL,
        |config| config.strong_wait = Duration::from_secs(5),
        vec![hash("t", "test.t", &["id"])],
        |served| async move {
            let mapping = served.mapping("t").await;
            for _ in 0..3 {
                // By now the question is a prepared one.
                served.reader.fresh(Consistency::Strong, None).await.unwrap();
            }
            served.sql("SET GLOBAL read_only = 1");
            let error = served.reader.fresh(Consistency::Strong, None).await.unwrap_err();
            assert!(says_why(&error.to_string()), "{error}");
            let error = served.fetched(&mapping, &["1"]).await.unwrap_err();
            assert!(says_why(&error.to_string()), "{error}");
            served.reader.fresh(Consistency::Eventual, None).await.unwrap();
            assert_eq!(served.metrics.cache.not_fresh.get(), 1);
            served.sql("SET GLOBAL read_only = 0");
            let begun = Instant::now();
            while served.reader.fresh(Consistency::Strong, None).await.is_err() {
                assert!(
                    begun.elapsed() < Duration::from_secs(60),
                    "it is the primary again"
                );
            }
            assert_eq!(
                served.fetched(&mapping, &["1"]).await.unwrap(),
                [Some("1".to_owned())]
            );
        },
    );
}

fn when_the_server_does_not_answer(kind: Kind) {
    served(
        spec(kind),
        SQL,
        short,
        vec![hash("t", "test.t", &["id"])],
        |served| async move {
            served.mapping("t").await;
            let begun = Instant::now();
            while let Err(error) = served.reader.fresh(Consistency::Strong, None).await {
                assert!(begun.elapsed() < Duration::from_secs(60), "{error}");
            }
            served.sandbox.primary().freeze().unwrap();
            let begun = Instant::now();
            let reads = [(); 3].map(|()| served.reader.fresh(Consistency::Strong, None));
            for read in reads {
                let error = read.await.unwrap_err();
                assert!(
                    error.to_string().contains("no answer from the primary"),
                    "{error}"
                );
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
            served.sandbox.primary().thaw().unwrap();
            let begun = Instant::now();
            while served.reader.fresh(Consistency::Strong, None).await.is_err() {
                assert!(begun.elapsed() < Duration::from_secs(60), "it answers again");
            }
        },
    );
}

fn when_its_log_cannot_be_followed(kind: Kind) {
    let short = |config: &mut config::Cache| config.strong_wait = Duration::from_millis(100);
    let spec = spec(kind).option("--binlog-row-image=MINIMAL");
    served(spec, SQL, short, Vec::new(), |served| async move {
        assert_eq!(served.sql("SELECT @@GLOBAL.binlog_row_image").trim(), "MINIMAL");
        let begun = Instant::now();
        loop {
            let error = served.reader.fresh(Consistency::Strong, None).await.unwrap_err();
            if error.to_string().contains("binlog_row_image is MINIMAL") {
                return;
            }
            // It has not been looked at yet.
            assert!(begun.elapsed() < Duration::from_secs(60), "{error}");
        }
    });
}
