//! The parts: what is done to the servers while the clients go on.

use std::time::{Duration, Instant};

use sandbox::{Kind, Sandbox};

use super::{
    gateway::{Mode, server_name},
    script::Work,
    stage::{Act, Plan, Promise, Scene, Stage, Sum, three},
};

/// How long a replica stays dead.
const REPLICA_IS_DEAD: Duration = Duration::from_secs(2);
/// How long clients are watched after another server has become the primary.
const AFTER_PROMOTION: Duration = Duration::from_secs(8);
/// Clients of the part `upgrade`, and their statements a second, at least.
const UPGRADE_CLIENTS: u64 = 200;
const UPGRADE_RATE: f64 = 800.0;
/// The longest that one of them may wait.
const UPGRADE_WAIT: Duration = Duration::from_millis(100);
const UPGRADES: usize = 3;
/// As long as the upgrades take.
const BEFORE_UPGRADES: Duration = Duration::from_secs(8);
/// As quick as a program that promotes may be.
const UNTIL_PROMOTION: Duration = Duration::from_secs(2);

/// Clients of both modes to which nothing may happen. `in_session`: what those of mode `session` do, who
/// write where every server takes writes.
fn planned(in_session: Work) -> [Act; 2] {
    let act = |mode, work| Act {
        mode,
        work,
        promise: Promise::NoErrors,
    };
    [
        act(Mode::Split, Work::ReadsAndWrites),
        act(Mode::Session, in_session),
    ]
}

/// Rolling restart of the replicas.
pub(super) fn replicas(kind: Kind, scene: Scene<'_>) -> anyhow::Result<Sum> {
    let mut stage = Stage::set(("replicas", three(kind)), &planned(Work::Reads), &scene)?;
    for replica in [1, 2] {
        stage.restart(replica)?;
    }
    stage.conclude(0, scene.report)
}

/// Rolling restart of the nodes, of as many as are asked for.
pub(super) fn galera(nodes: usize, scene: Scene<'_>) -> anyhow::Result<Sum> {
    let mut stage = Stage::set(
        ("galera", three(Kind::Galera)),
        &planned(Work::ReadsAndWrites),
        &scene,
    )?;
    for node in (0..3).rev().take(nodes) {
        stage.restart(node)?;
    }
    stage.conclude(0, scene.report)
}

/// Rolling restart of the members, the primary last. Before its own restart another member is made the
/// primary.
pub(super) fn group_replication(scene: Scene<'_>) -> anyhow::Result<Sum> {
    let spec = three(Kind::GroupReplication);
    let mut stage = Stage::set(("group-replication", spec), &planned(Work::Reads), &scene)?;
    for member in [2, 1] {
        stage.restart(member)?;
    }
    stage.switch_over(1)?;
    stage.restart(0)?;
    stage.conclude(1, scene.report)
}

/// Rolling restart of all servers: another one is made the primary before the first one restarts.
pub(super) fn switchover(kind: Kind, scene: Scene<'_>) -> anyhow::Result<Sum> {
    let all = Act {
        mode: Mode::Split,
        work: Work::ReadsAndWrites,
        promise: Promise::NoErrors,
    };
    let mut stage = Stage::set(("switchover", three(kind)), &[all], &scene)?;
    for to in [1, 2] {
        stage.switch_over(to)?;
        stage.restart_while_primary_is(to - 1, to)?;
    }
    stage.conclude(2, scene.report)
}

/// The gateway is replaced by a new process, again and again, under sessions that are all busy and plain.
pub(super) fn upgrade(kind: Kind, scene: Scene<'_>) -> anyhow::Result<Sum> {
    let plan = Plan {
        clients: scene.plan.clients.max(UPGRADE_CLIENTS),
        rate: scene.plan.rate.max(UPGRADE_RATE),
        ..scene.plan.clone()
    };
    let scene = Scene { plan: &plan, ..scene };
    let acts = planned(Work::Reads).map(|act| Act {
        promise: Promise::NoWait(UPGRADE_WAIT),
        ..act
    });
    let mut stage = Stage::set(("upgrade", three(kind)), &acts, &scene)?;
    stage.watch("nothing is done, to compare", BEFORE_UPGRADES);
    for _ in 0..UPGRADES {
        stage.upgrade()?;
    }
    stage.conclude(0, scene.report)
}

/// Replicas die, one at a time, under a load that reads outside transactions.
pub(super) fn kill_replica(kind: Kind, scene: Scene<'_>) -> anyhow::Result<Sum> {
    let reads = Act {
        mode: Mode::Split,
        work: Work::SingleReads,
        promise: Promise::NoErrors,
    };
    let stage = Stage::set(("kill-replica", three(kind)), &[reads], &scene)?;
    for replica in [2, 1, 2] {
        let server = server_name(stage.servers.node(replica));
        stage.servers.node(replica).kill9()?;
        stage.watch(&format!("{server} is dead"), REPLICA_IS_DEAD);
        stage.say(&format!("{server} is started"));
        stage.servers.node(replica).restart()?;
        stage.servers.sync()?;
        stage.wait_until_whole()?;
    }
    stage.conclude(0, scene.report)
}

/// The primary dies, and a replica is promoted that has all that was acknowledged.
pub(super) fn kill_primary(kind: Kind, scene: Scene<'_>) -> anyhow::Result<Sum> {
    let acts = [
        Act {
            mode: Mode::Split,
            work: Work::ReadsAndWrites,
            promise: Promise::WritesUnderWay,
        },
        Act {
            mode: Mode::Session,
            work: Work::Reads,
            promise: Promise::Told,
        },
    ];
    let spec = three(kind).semi_synchronous();
    let mut stage = Stage::set(("kill-primary", spec), &acts, &scene)?;
    let killed = Instant::now();
    stage.servers.primary().kill9()?;
    stage.watch("db1 is dead", UNTIL_PROMOTION);
    let new = promote_the_furthest(&stage.servers)?;
    stage.took("from the kill to the promotion", killed.elapsed());
    stage.watch("another one is promoted", AFTER_PROMOTION);
    stage.conclude(new, scene.report)
}

/// Of two replicas that which has more becomes the primary, and the other one follows it.
fn promote_the_furthest(servers: &Sandbox) -> anyhow::Result<usize> {
    let (one, other) = (servers.node(1), servers.node(2));
    one.apply_received()?;
    other.apply_received()?;
    let (new, old) = match one.has(&other.position()?)? {
        true => (one, other),
        false => (other, one),
    };
    new.promote()?;
    old.follow(new, false)?;
    Ok(new.index())
}
