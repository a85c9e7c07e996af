use config::ServerAddress;
use proptest::prelude::*;

use super::*;
use crate::topology::lag::Reading;
use crate::topology::observation::ReplicationFacts;

/// Two servers of a replication without followers, so that both may be the primary.
struct World {
    state: ClusterState,
    config: config::Cluster,
    servers: Vec<Arc<Server>>,
    start: Instant,
}

impl World {
    fn new() -> Self {
        let address = |port| ServerAddress::Host {
            host: "10.0.0.1".to_owned(),
            port,
        };
        let configured = vec![config::Server::new(address(1)), config::Server::new(address(2))];
        let servers = (0..).zip(&configured);
        let servers = servers
            .map(|(id, config)| Server::new(ServerId(id), config, true))
            .collect();
        let mut config = config::Cluster::new("main", configured);
        config.topology = config::Topology::Replication;
        Self {
            state: ClusterState::default(),
            config,
            servers,
            start: crate::server::now(),
        }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn says(&mut self, server: u32, ms: u64, writable: bool) {
        self.says_of(server, ms, writable, None);
    }

    /// The same, and which process it is.
    fn says_of(&mut self, server: u32, ms: u64, writable: bool, host_identity: Option<&str>) {
        let finding = Finding {
            facts: Facts::Replication(ReplicationFacts {
                identity: None,
                writable,
                sources: Vec::new(),
            }),
            offline: false,
            lag: Reading::Nothing,
            waiting: None,
            applied: None,
            executed: None,
            without_gtids: false,
            identity: host_identity.map(|host_identity| Identity(host_identity.to_owned())),
            host_identity: host_identity.map(|host_identity| HostIdentity(host_identity.to_owned())),
            named: Vec::new(),
        };
        self.state.note(ServerId(server), self.at(ms), Ok(finding));
    }

    fn fails(&mut self, server: u32, ms: u64, meaning: Meaning) {
        let reason = "no answer".to_owned();
        let blind = Blind { reason, meaning };
        self.state.note(ServerId(server), self.at(ms), Err(blind));
    }

    /// The primary, and whether writes are refused.
    fn primary(&mut self, ms: u64) -> (Option<usize>, bool) {
        let topology = self.state.topology(&self.config, &self.servers, self.at(ms));
        (topology.primary, topology.refuse_writes.is_some())
    }
}

#[tokio::test]
async fn a_server_is_given_up_after_three_looks_or_when_nobody_is_there() {
    let mut world = World::new();
    world.says(0, 0, true);
    assert_eq!(world.primary(1), (None, false), "the other one may be it");
    world.says(1, 1, false);
    assert_eq!(world.primary(2), (Some(0), false));
    for ms in [100, 200] {
        world.fails(0, ms, Meaning::Unknown);
        assert_eq!(world.primary(ms), (Some(0), false));
    }
    world.says(1, 250, true);
    assert_eq!(
        world.primary(250),
        (None, false),
        "one of them is not known well enough"
    );
    world.fails(0, 300, Meaning::Unknown);
    assert_eq!(world.primary(300), (Some(1), false));

    let mut world = World::new();
    world.says(0, 0, true);
    world.says(1, 0, true);
    world.fails(0, 100, Meaning::NobodyThere);
    assert_eq!(world.primary(100), (Some(1), false), "at once");
}

#[tokio::test]
async fn a_server_that_is_full_is_not_given_up() {
    let mut world = World::new();
    world.says(0, 0, true);
    world.says(1, 0, false);
    for ms in 1..10 {
        world.fails(0, ms, Meaning::Full);
        assert_eq!(world.primary(ms), (Some(0), false));
    }
}

#[tokio::test]
async fn writes_are_refused_only_when_all_have_been_looked_at_again() {
    let mut world = World::new();
    world.says(0, 0, true);
    world.says(1, 0, false);
    assert_eq!(world.primary(10), (Some(0), false));
    world.says(1, 100, true);
    assert_eq!(world.primary(110), (None, false), "n0 may have changed its mind");
    assert!(world.state.has_conflict() && world.state.is_searching(world.at(110)));
    assert!(!world.state.is_searching(world.at(70_000)), "not for ever");
    world.says(0, 120, true);
    assert_eq!(world.primary(130), (None, false), "and n1 since");
    world.says(1, 140, true);
    assert_eq!(world.primary(150), (None, true));
    // That one or both are not seen for a moment decides nothing.
    for (server, ms) in [(0, 151), (1, 152)] {
        world.fails(server, ms, Meaning::Unknown);
        assert_eq!(world.primary(ms), (None, true));
    }
    world.says(1, 155, true);
    world.says(0, 160, false);
    assert_eq!(world.primary(170), (Some(1), false));
    assert!(!world.state.has_conflict() && !world.state.is_searching(world.at(180)));
}

proptest! {
    /// Whatever was seen and missed before: when all have said that one takes writes, it is the primary.
    #[test]
    fn what_is_seen_clearly_in_the_end_counts(
        history in prop::collection::vec((0..2_u32, 0..5), 0..40),
        writer in 0..2_u32,
    ) {
        let mut world = World::new();
        for (ms, (server, event)) in (0..).zip(&history) {
            match event {
                0 => world.fails(*server, ms, Meaning::Unknown),
                1 => world.fails(*server, ms, Meaning::NobodyThere),
                2 => world.fails(*server, ms, Meaning::Full),
                event => world.says(*server, ms, *event == 3),
            }
            world.primary(ms);
        }
        for server in 0..2 {
            world.says(server, 100, server == writer);
        }
        prop_assert_eq!(world.primary(100), (Some(writer as usize), false));
    }
}

/// The primary crashes again and again, for which somebody promotes another one.
#[tokio::test]
async fn who_is_promoted_does_not_pay_for_a_crash_loop() {
    let mut world = World::new();
    world.config.monitor = Some(config::Monitor::new("watch"));
    world.says(0, 0, true);
    world.says(1, 0, false);
    assert_eq!(world.primary(1), (Some(0), false));
    let mut ms = 100;
    for turn in 1..=4 {
        world.fails(0, ms, Meaning::NobodyThere);
        assert_eq!(world.primary(ms).0, None);
        world.says(0, ms + 10, true);
        let taken = world.primary(ms + 10).0;
        assert_eq!(taken.is_some(), turn <= 2, "turn {turn}");
        ms += 100;
    }
    world.fails(0, ms, Meaning::NobodyThere);
    world.says(1, ms, true);
    assert_eq!(world.primary(ms), (Some(1), false), "at once");
}

#[tokio::test]
async fn one_server_by_two_names_is_one() {
    let (mut world, db1) = (World::new(), Some("7 db1:3306:/data/"));
    (0..2).for_each(|name| world.says_of(name, 0, true, db1));
    assert_eq!(world.primary(1), (Some(0), false));
    let topology = world.state.topology(&world.config, &world.servers, world.at(2));
    assert_eq!(topology.members[1].reason, "is the same server as 10.0.0.1:1");
    // A slow look is no reason for another name, and what it is now is known by the other one.
    for (ms, writable, primary) in [(50, true, Some(0)), (60, false, None)] {
        world.fails(0, ms, Meaning::Unknown);
        world.says_of(1, ms, writable, db1);
        assert_eq!(world.primary(ms), (primary, false));
    }
    // By the first name it cannot be found any more.
    world.fails(0, 100, Meaning::Unknown);
    world.says_of(1, 100, true, db1);
    assert_eq!(world.primary(100), (Some(1), false));
    world.says_of(0, 200, true, db1);
    assert_eq!(world.primary(200), (Some(1), false), "the name it went by");
    // Somebody else, on a copy of its machine.
    world.says_of(0, 300, true, Some("7 db2:3306:/data/"));
    assert_eq!(world.primary(301).0, None);
    assert!(world.state.has_conflict());
}

#[tokio::test]
async fn a_damped_primary_is_a_replica_until_it_is_taken() {
    let mut world = World::new();
    let monitor = config::Monitor::new("forebay");
    world.config.monitor = Some(config::Monitor {
        damping: Duration::from_secs(1),
        ..monitor
    });
    world.says(0, 0, true);
    world.says(1, 0, false);
    assert_eq!(world.primary(0), (Some(0), false));
    for (ms, primary) in [(10, 1), (20, 0), (30, 1), (40, 0)] {
        world.says(1 - primary, ms, false);
        world.says(primary, ms, true);
        assert_eq!(world.primary(ms), (Some(primary as usize), false), "at once");
    }
    assert_eq!(world.state.damped(), 0);
    world.fails(1, 90, Meaning::NobodyThere);
    world.says(0, 90, false);
    assert_eq!(world.primary(90), (None, false));
    world.says(0, 100, true);
    let topology = world.state.topology(&world.config, &world.servers, world.at(100));
    assert_eq!(
        (topology.primary, topology.members[0].role),
        (None, Role::Replica)
    );
    assert!(
        topology.members[0].reason.contains("damping"),
        "{}",
        topology.members[0].reason
    );
    assert_eq!(world.state.damped(), 1);
    assert_eq!(world.primary(1099), (None, false));
    assert_eq!(world.primary(1100), (Some(0), false));
}
