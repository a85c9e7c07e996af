//! The model does what a real etcd does: what the simulator proves is true of the store that there is.

use std::collections::BTreeMap;
use std::time::Duration;

use inputs::Random;
use sandbox::Etcd as Server;
use upstream::etcd::{Entry, Etcd, Guard, Op, Outcome, Range, Transaction};

use crate::model::Model;

const CHANGES: usize = 400;
const KEYS: [&str; 4] = ["/t/a", "/t/a/b", "/t/b", "/t/c"];

/// A lease of each.
type Lease = (i64, i64);

/// What can be compared: moments are counted from different beginnings, so only their order.
fn comparable(
    entries: &[Entry],
    lease: impl Fn(i64) -> usize,
) -> Vec<(String, Vec<u8>, usize, i64, usize, usize)> {
    let mut moments: Vec<i64> = entries
        .iter()
        .flat_map(|entry| [entry.created, entry.modified])
        .collect();
    moments.sort_unstable();
    moments.dedup();
    let place = |moment: i64| moments.iter().position(|at| *at == moment).unwrap();
    let compared = entries.iter().map(|entry| {
        (
            entry.key.clone(),
            entry.value.clone(),
            lease(entry.lease),
            entry.version,
            place(entry.created),
            place(entry.modified),
        )
    });
    compared.collect()
}

/// The same guards for both, of what each has: what holds, mostly.
fn guards(
    random: &mut Random,
    ours: &[Entry],
    theirs: &[Entry],
    leases: &[Lease],
) -> (Vec<Guard>, Vec<Guard>) {
    let mut both = (Vec::new(), Vec::new());
    for _ in 0..random.below(3) {
        let key = random.pick(&KEYS).to_owned();
        let of = |entries: &[Entry], number: fn(&Entry) -> i64| {
            let entry = entries.iter().find(|entry| entry.key == key);
            entry.map_or(0, number)
        };
        let off = i64::from(random.one_in(4));
        let (our, their) = match random.below(4) {
            0 => {
                let version = of(ours, |entry| entry.version) + off;
                (Guard::Version(key.clone(), version), Guard::Version(key, version))
            }
            1 => (
                Guard::Modified(key.clone(), of(ours, |entry| entry.modified) + off),
                Guard::Modified(key.clone(), of(theirs, |entry| entry.modified) + off),
            ),
            2 => match leases.get(random.below(leases.len() + 1)) {
                Some((our, their)) => (Guard::Lease(key.clone(), *our), Guard::Lease(key, *their)),
                None => (Guard::Lease(key.clone(), 0), Guard::Lease(key, 0)),
            },
            _ => {
                let last =
                    |entries: &[Entry]| entries.iter().map(|entry| entry.created).max().unwrap_or(0) - off;
                let range = Range::below("/t/a");
                (
                    Guard::NoneCreatedAfter(range.clone(), last(ours)),
                    Guard::NoneCreatedAfter(range, last(theirs)),
                )
            }
        };
        both.0.push(our);
        both.1.push(their);
    }
    both
}

#[tokio::test]
async fn the_model_does_what_etcd_does() {
    let server = Server::start().unwrap();
    let address = server.address();
    let (host, port) = address.rsplit_once(':').unwrap();
    let mut etcd = Etcd::new([(host, port.parse().unwrap())], None, None);
    let mut model = Model::default();
    let mut random = Random::new(7);
    let range = Range::below("/t/");
    let mut leases: Vec<Lease> = Vec::new();
    let mut seen: BTreeMap<bool, usize> = BTreeMap::new();
    for _ in 0..CHANGES {
        if leases.len() < 3 {
            leases.push((
                model.grant(1_000_000, 0),
                etcd.grant(Duration::from_secs(1000)).await.unwrap(),
            ));
        }
        if random.one_in(20) {
            let (ours, theirs) = leases.swap_remove(random.below(leases.len()));
            model.end(ours);
            etcd.revoke(theirs).await.unwrap();
            assert!(!model.renew(ours, 0) && !etcd.renew(theirs).await.unwrap());
            continue;
        }
        let (ours, theirs) = (model.read(&range), etcd.read(&range).await.unwrap());
        let mut pair = guards(&mut random, &ours.entries, &theirs.entries, &leases);
        let (mut our_ops, mut their_ops) = (Vec::new(), Vec::new());
        // No key twice, which etcd refuses.
        for key in KEYS.into_iter().filter(|_| random.one_in(3)).collect::<Vec<_>>() {
            let key = key.to_owned();
            if random.one_in(3) {
                our_ops.push(Op::Delete(key.clone()));
                their_ops.push(Op::Delete(key));
                continue;
            }
            let value = random.bytes(3);
            let (our, their) = match leases.get(random.below(leases.len() + 1)) {
                Some(lease) => *lease,
                None => (0, 0),
            };
            our_ops.push(Op::Put(key.clone(), value.clone(), our));
            their_ops.push(Op::Put(key, value, their));
        }
        let transaction = |guards: &mut Vec<Guard>, ops| Transaction {
            guards: std::mem::take(guards),
            ops,
        };
        let made = model.change(&transaction(&mut pair.0, our_ops));
        let outcome = etcd.change(&transaction(&mut pair.1, their_ops)).await;
        assert_eq!(made, matches!(outcome, Outcome::Made(_)), "{outcome:?}");
        *seen.entry(made).or_default() += 1;
        let our_lease = |lease| {
            leases
                .iter()
                .position(|(ours, _)| *ours == lease)
                .map_or(0, |at| at + 1)
        };
        let their_lease = |lease| {
            leases
                .iter()
                .position(|(_, theirs)| *theirs == lease)
                .map_or(0, |at| at + 1)
        };
        assert_eq!(
            comparable(&model.read(&range).entries, our_lease),
            comparable(&etcd.read(&range).await.unwrap().entries, their_lease)
        );
    }
    assert!(
        seen[&true] > CHANGES / 4 && seen[&false] > CHANGES / 20,
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_watch_from_a_moment_that_is_forgotten_says_so() {
    let server = Server::start().unwrap();
    let port = server.address().rsplit(':').next().unwrap().parse().unwrap();
    let mut etcd = Etcd::new([("127.0.0.1", port)], None, None);
    let range = Range::below("/t/");
    for value in ["1", "2", "3"] {
        assert!(server.put("/t/a", value));
    }
    let now = etcd.read(&range).await.unwrap();
    assert!(server.compact());
    let heard = async |behind: i64| {
        let mut etcd = Etcd::new([("127.0.0.1", port)], None, None);
        let mut watch = etcd.watch(&range, behind).await?;
        loop {
            let changes = watch.next().await?;
            if !changes.is_empty() {
                return std::io::Result::Ok(changes.len());
            }
        }
    };
    let limit = Duration::from_secs(20);
    let forgotten = tokio::time::timeout(limit, heard(1)).await.unwrap().unwrap_err();
    assert!(forgotten.to_string().contains("compacted"), "{forgotten}");
    // What was read is where it goes on.
    assert!(server.put("/t/a", "4"));
    assert_eq!(
        tokio::time::timeout(limit, heard(now.revision))
            .await
            .unwrap()
            .unwrap(),
        1
    );
}
