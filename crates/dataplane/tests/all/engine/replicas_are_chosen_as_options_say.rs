//! Which of several replicas has a read: by zones and weights, of one session and of many.

use super::stage::{Session, Setup, Stage};

const READ: &str = "SELECT 'ROWS 1'";
const READS: usize = 120;

/// A primary and two replicas, of which each has its options. `top`: lines in front of all tables.
async fn start(options: [&str; 3], cluster: &str, top: &str) -> Stage {
    Stage::set(Setup {
        servers: 3,
        each: &options,
        cluster,
        top,
        ..Setup::default()
    })
    .await
}

/// What `FOREBAY EXPLAIN` says of a server.
async fn word_of(stage: &Stage, session: &mut Session, server: usize) -> Option<String> {
    let name = format!("candidate {}", stage.name(server).unwrap());
    session.explain(READ, &name).await
}

#[tokio::test]
async fn those_of_its_own_zone_first() {
    let zones = [", zone = \"a\"", ", zone = \"a\"", ", zone = \"b\""];
    for (own, counts, far) in [("a", [0, READS, 0], 2), ("b", [0, 0, READS], 1)] {
        let stage = start(zones, "", &format!("zone = {own:?}")).await;
        let mut session = stage.connect().await;
        for is_prepared in [false, true] {
            let seen = stage.spread(&mut session, READ, is_prepared, READS).await;
            assert_eq!(seen, counts, "{own}, prepared: {is_prepared}");
        }
        assert_eq!(
            word_of(&stage, &mut session, far).await.as_deref(),
            Some("replica: in another zone")
        );
    }
    // Of a third one all are equally far.
    let stage = start(zones, "", "zone = \"c\"").await;
    let mut session = stage.connect().await;
    let counts = stage.spread(&mut session, READ, false, READS).await;
    assert!(counts[0] == 0 && counts[1] > 0 && counts[2] > 0, "{counts:?}");
}

/// Nobody near enough is up: those of other zones do as well, before the primary.
#[tokio::test]
async fn and_those_of_another_where_there_is_no_other() {
    let zones = [", zone = \"a\"", ", zone = \"a\"", ", zone = \"b\""];
    let mut stage = start(zones, "", "zone = \"a\"").await;
    let mut session = stage.connect().await;
    assert_eq!(stage.spread(&mut session, READ, false, 10).await, [0, 10, 0]);
    stage.remove(1);
    assert_eq!(stage.spread(&mut session, READ, false, 10).await, [0, 0, 10]);
}

#[tokio::test]
async fn in_proportion_to_their_weights() {
    let weights = [", weight = 1", ", weight = 3", ", weight = 1"];
    let stage = start(weights, "read_balance = \"weighted\"", "").await;
    let mut session = stage.connect().await;
    let counts = stage.spread(&mut session, READ, false, READS).await;
    assert!((READS * 3 / 4).abs_diff(counts[1]) <= 4, "{counts:?}");
    assert_eq!(counts[0], 0, "{counts:?}");

    let stage = start([", weight = 1", ", weight = 0", ", weight = 1"], "", "").await;
    let mut session = stage.connect().await;
    assert_eq!(
        stage.spread(&mut session, READ, false, READS).await,
        [0, 0, READS]
    );
    assert_eq!(
        word_of(&stage, &mut session, 1).await.as_deref(),
        Some("replica: weight 0, or it is in `drain`")
    );
}

/// One session alone does not stick to one replica, and many share them evenly.
#[tokio::test]
async fn and_evenly_where_nothing_is_said() {
    let stage = start([""; 3], "", "").await;
    let mut sum = [0; 3];
    for _ in 0..8 {
        let mut session = stage.connect().await;
        let counts = stage.spread(&mut session, READ, false, 20).await;
        // By lot: one of 500 000 sessions has none of its reads on one of the two.
        assert!(counts[1] > 0 && counts[2] > 0, "{counts:?}");
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    assert!(sum[0] == 0 && sum[1] >= 40 && sum[2] >= 40, "{sum:?}");
}
