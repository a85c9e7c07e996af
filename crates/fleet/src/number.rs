//! The number of a gateway, which the connection ids that it gives begin with: so the others know whose a
//! session is.
//!
//! A number stays with the name that has claimed it. Another gateway gets it only where all others are given
//! as well, and once it has seen for an hour that no gateway of that name lives: the store itself looks at
//! that in the end. So a gateway that was restarted, or is cut off for a while, has the number of before; and
//! one that is cut off for longer gives no ids with it any more before another one may.

use std::collections::BTreeMap;
use std::time::Duration;

use upstream::etcd::{Guard, Op, Transaction};

use crate::keys::{Keys, View};

/// The last one; 0 is that of those who have none.
pub(crate) const LAST: u32 = 63;

/// For so long a gateway is gone before another one gets its number.
const GONE: Duration = Duration::from_secs(3600);

/// For so long a gateway gives ids with its number without being one of the fleet.
pub(crate) const KEPT: Duration = Duration::from_secs(1800);

/// For so long it need not be looked who lives: a gateway that came and went meanwhile would be missed.
const UNSEEN: Duration = Duration::from_secs(10);

/// The gateways that have numbers and are gone, as this one has seen it.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    seen_at: Duration,
    /// Since when, by number; with when that one was given.
    since: BTreeMap<u32, (i64, Duration)>,
}

impl Gone {
    /// The number of one that is gone for long.
    fn for_long(&mut self, view: &View, keys: &Keys, now: Duration) -> Option<u32> {
        if now.saturating_sub(self.seen_at) > UNSEEN {
            self.since.clear();
        }
        self.seen_at = now;
        let lives = |name: &str| view.get(&keys.gateway(name)).is_some();
        for number in 1..=LAST {
            let given = view.get(&keys.number(number)).map(|entry| entry.modified);
            match given.filter(|_| !view.holder(keys, number).is_some_and(lives)) {
                Some(given) => {
                    let known = self.since.entry(number).or_insert((given, now));
                    if known.0 != given {
                        *known = (given, now);
                    }
                }
                None => drop(self.since.remove(&number)),
            }
        }
        let gone = self.since.iter();
        let mut long = gone.filter(|(_, (_, since))| now.saturating_sub(*since) >= GONE);
        long.next().map(|(number, _)| *number)
    }
}

/// The number of the gateway of this name.
pub(crate) fn of(view: &View, keys: &Keys, name: &str) -> Option<u32> {
    (1..=LAST).find(|number| view.holder(keys, *number) == Some(name))
}

/// Gives this gateway, which lives by this lease, a number. `None`: it has one, or there is none to be had.
///
/// One that was gone and has its number still claims it again: so who has not seen that it is back begins
/// anew to count for how long it is gone.
pub(crate) fn claim(
    view: &View,
    keys: &Keys,
    (name, lease): (&str, i64),
    gone: &mut Gone,
    now: Duration,
) -> Option<Transaction> {
    let entry = |number: u32| view.get(&keys.number(number));
    let free = (1..=LAST).find(|number| entry(*number).is_none());
    let (number, guards) = match (of(view, keys, name), free) {
        (Some(own), _) => {
            let modified = entry(own)?.modified;
            let is_back = view.get(&keys.gateway(name))?.created > modified;
            is_back.then(|| (own, vec![Guard::Modified(keys.number(own), modified)]))?
        }
        (None, Some(number)) => (number, vec![Guard::Version(keys.number(number), 0)]),
        (None, None) => {
            let number = gone.for_long(view, keys, now)?;
            let modified = entry(number)?.modified;
            let mut guards = vec![Guard::Modified(keys.number(number), modified)];
            let holder = view.holder(keys, number);
            guards.extend(holder.map(|holder| Guard::Version(keys.gateway(holder), 0)));
            (number, guards)
        }
    };
    let is_member = Guard::Lease(keys.gateway(name), lease);
    Some(Transaction {
        guards: [guards, vec![is_member]].concat(),
        ops: vec![Op::Put(keys.number(number), name.as_bytes().to_vec(), 0)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    fn put(model: &mut Model, key: String, value: &str) {
        let ops = vec![Op::Put(key, value.as_bytes().to_vec(), 0)];
        let guards = Vec::new();
        assert!(model.change(&Transaction { guards, ops }));
    }

    fn delete(model: &mut Model, key: String) {
        let ops = vec![Op::Delete(key)];
        let guards = Vec::new();
        assert!(model.change(&Transaction { guards, ops }));
    }

    fn view(model: &Model, keys: &Keys) -> View {
        model.read(&keys.live()).into()
    }

    #[test]
    fn a_number_stays_with_a_name_and_goes_to_another_only_once_that_is_gone() {
        let (keys, mut model) = (Keys::of("main"), Model::default());
        for number in 1..=LAST {
            let name = format!("g{number}");
            put(&mut model, keys.gateway(&name), "{}");
            let before = view(&model, &keys);
            let gone = &mut Gone::default();
            let claim = claim(&before, &keys, (&name, 0), gone, Duration::ZERO).unwrap();
            assert!(model.change(&claim));
            assert_eq!(of(&view(&model, &keys), &keys, &name), Some(number));
        }
        put(&mut model, keys.gateway("new"), "{}");
        let mut gone = Gone::default();
        let mut now = Duration::ZERO;
        let mut claims = |model: &Model, lasts: Duration| {
            let seen = view(model, &keys);
            for _ in 0..lasts.as_secs() {
                let claimed = claim(&seen, &keys, ("new", 0), &mut gone, now);
                if claimed.is_some() {
                    return claimed;
                }
                now += Duration::from_secs(1);
            }
            None
        };
        let whole = GONE + Duration::from_secs(2);
        assert_eq!(claims(&model, whole), None, "all live");
        // One of them is away for a while, and has its number when it is back.
        delete(&mut model, keys.gateway("g7"));
        let claimed = claims(&model, whole).unwrap();
        put(&mut model, keys.gateway("g7"), "{}");
        assert!(!model.change(&claimed), "it lives");
        assert_eq!(claims(&model, Duration::from_secs(1)), None);
        // Each time its hour begins anew, seen or not.
        for is_seen in [true, false, true] {
            delete(&mut model, keys.gateway("g7"));
            assert_eq!(claims(&model, GONE - Duration::from_secs(1)), None);
            put(&mut model, keys.gateway("g7"), "{}");
            let back = view(&model, &keys);
            let own = claim(&back, &keys, ("g7", 0), &mut Gone::default(), Duration::ZERO);
            assert!(model.change(&own.unwrap()));
            if is_seen {
                assert_eq!(claims(&model, Duration::from_secs(1)), None);
            }
        }
        delete(&mut model, keys.gateway("g7"));
        assert_eq!(claims(&model, GONE - Duration::from_secs(1)), None);
        assert!(model.change(&claims(&model, Duration::from_secs(2)).unwrap()));
        let now = view(&model, &keys);
        assert_eq!((of(&now, &keys, "new"), of(&now, &keys, "g7")), (Some(7), None));
    }

    #[test]
    fn what_was_not_seen_all_the_time_does_not_count() {
        let (keys, mut model) = (Keys::of("main"), Model::default());
        (1..=LAST).for_each(|number| put(&mut model, keys.number(number), "gone"));
        let seen = view(&model, &keys);
        let mut gone = Gone::default();
        let mut at = |now| claim(&seen, &keys, ("new", 0), &mut gone, now).is_some();
        assert!(!at(Duration::ZERO) && !at(GONE), "it was stopped meanwhile");
        let looks = 1..GONE.as_secs();
        assert!(
            !looks
                .map(|second| GONE + Duration::from_secs(second))
                .any(&mut at)
        );
        assert!(at(2 * GONE));
    }
}
