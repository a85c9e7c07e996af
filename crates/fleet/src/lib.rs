//! Several gateways as one: they have one configuration in a store, which is changed for all or for none.
//!
//! [`Fleet`] is what the binary holds. It is one task: `member` and `order` say what to do, as plain machines
//! that look at what the store has; `driver` does it. The store is an etcd or a folder (`store`).
//!
//! Sessions know nothing of this. Without the store a gateway goes on with what it runs, which is on its own
//! disk as well (`disk`).

mod claim;
#[cfg(test)]
mod claim_simulator;
mod deed;
mod disk;
mod driver;
mod fleet;
mod folder;
#[cfg(test)]
mod histories;
mod keys;
mod kill;
#[cfg(test)]
mod likeness;
mod member;
mod model;
mod number;
mod order;
mod share;
#[cfg(test)]
mod simulator;
mod store;
#[cfg(test)]
mod trials;
mod vip;

use std::fs::File;
use std::io::{self, Read};

pub use fleet::{
    Fleet, Host, MemberStatus, OnKilled, OrderStatus, Reached, Status, TEXT_MAX, VipStatus, Wanted,
};
pub use keys::{About, Deed, escaped};
pub use kill::{Kill, Killer, NotKilled};
pub use order::{Fate, Refusal};

/// A name that nobody else has.
fn random() -> io::Result<String> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
