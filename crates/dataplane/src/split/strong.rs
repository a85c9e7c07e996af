//! Strong reads: the primary's position, asked for once for all reads of a worker that wait for it.
//!
//! A read must see every write that was acknowledged before it began. So it takes a position that the primary was asked for
//! after that moment: not one that is on its way already, but the next. Reads that come while a question is under
//! way share the one after it; whoever was first asks for all of them.

use std::cell::RefCell;
use std::sync::Arc;

use mysql_wire::gtid::{Flavor, GtidSet};
use tokio::sync::oneshot;
use upstream::Topology;

use crate::split::ask;
use crate::split::fresh::flavor;
use crate::split::lease;
use crate::split::state::Split;

/// The question that is under way on a worker for one cluster, and who waits for the next.
#[derive(Default)]
pub(crate) struct ReadIndex {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    asking: bool,
    waiting: Vec<oneshot::Sender<Told>>,
}

enum Told {
    /// The primary's position; `None` where it could not be had.
    Position(Option<GtidSet>),
    /// Ask yourself, for all who wait.
    Ask,
}

/// The right to ask. Dropped, however that comes, it passes the right on.
struct Asking<'i>(&'i ReadIndex);

impl ReadIndex {
    fn waiters(&self) -> Vec<oneshot::Sender<Told>> {
        std::mem::take(&mut self.state.borrow_mut().waiting)
    }

    /// Takes the right to ask, or a place among those who wait for the next question.
    fn enter(&self) -> Result<Asking<'_>, oneshot::Receiver<Told>> {
        let mut state = self.state.borrow_mut();
        if state.asking {
            let (tell, told) = oneshot::channel();
            state.waiting.push(tell);
            return Err(told);
        }
        state.asking = true;
        Ok(Asking(self))
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.borrow_mut();
        while let Some(next) = state.waiting.pop() {
            if next.send(Told::Ask).is_ok() {
                return;
            }
        }
        state.asking = false;
    }
}

/// A position of the primary's that includes every write acknowledged before this call. `None` where nobody could say:
/// the read goes to the primary itself.
pub(crate) async fn position(split: &Split, topology: &Topology) -> Option<GtidSet> {
    let index = &split.shared.read_index;
    let asking = match index.enter() {
        Ok(asking) => asking,
        Err(told) => match told.await {
            Ok(Told::Position(position)) => return position,
            Ok(Told::Ask) => Asking(index),
            Err(_) => return None,
        },
    };
    // Those who have come until now began before the question is sent, and share its answer.
    let sharing = index.waiters();
    let position = ask_primary(split, topology).await;
    for tell in sharing {
        // Who has gone does not wait.
        let _ = tell.send(Told::Position(position.clone()));
    }
    drop(asking);
    position
}

async fn ask_primary(split: &Split, topology: &Topology) -> Option<GtidSet> {
    let server = Arc::clone(&topology.primary()?.server);
    let mut connection = lease::connection(split, &server).await.ok()?;
    let (flavor, statement) = match flavor(split) {
        Flavor::MySql => (Flavor::MySql, "SELECT @@GLOBAL.gtid_executed"),
        Flavor::MariaDb => (Flavor::MariaDb, "SELECT @@GLOBAL.gtid_current_pos"),
    };
    let command = ask::query(connection.capabilities, statement);
    let replies = lease::asked(split, &mut connection, std::slice::from_ref(&command))
        .await
        .ok()?;
    let position = GtidSet::parse(flavor, replies.first()?.value()?).ok()?;
    split.pool().give_back(connection);
    (!position.is_empty()).then_some(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_to_ask_is_passed_on_when_it_is_dropped() {
        let index = ReadIndex::default();
        let first = index.enter().ok().unwrap();
        let gone = index.enter().err().unwrap();
        let mut second = index.enter().err().unwrap();
        drop(gone);
        drop(first);
        assert!(matches!(second.try_recv(), Ok(Told::Ask)));
        let second = Asking(&index);
        assert!(index.enter().is_err(), "one at a time");
        drop(index.waiters());
        drop(second);
        assert!(index.enter().is_ok());
    }
}
