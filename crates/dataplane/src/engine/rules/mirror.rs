//! `mirror`: a copy of a statement to another cluster, whose answer nobody waits for.
//!
//! Each copy is a task of its own with a connection of that cluster's pool, under the session's account and
//! with what the session has set; so copies overtake one another. There are only so many of them at a time,
//! and only so long: what does not fit is dropped. Statements that need more of a session than its settings,
//! or change it, are left out.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_wire::{Capabilities, Command, StatusFlags};
use routing::{Draw, ReadCandidate, ReadPolicy, Role as ReadRole, choose_replica};
use session::PortableState;
use sql_class::{Class, Dialect, Effects, Facts};
use telemetry::MirrorMetrics;
use tokio::task::spawn_local;
use tokio::time::timeout;
use upstream::{Connection, Credential, Key, Role, Server, Topology};

use crate::command_head::CommandHead;
use crate::engine::client_session::ClientSession;
use crate::engine::connection_state::ConnectionState;
use crate::engine::worker_cluster::WorkerCluster;
use crate::engine::{ask, command};
use crate::worker::Worker;

/// Copies of one worker under way at the same time, for all clusters together.
const COPIES_MAX: usize = 128;

/// A longer text is not copied: all of these may wait at once.
const TEXT_MAX: usize = net::buffer::CAPACITY;

/// Time for a copy, with the wait for a connection.
const LONGEST: Duration = Duration::from_secs(60);

/// What keeps a statement from being copied: it depends on the session's connection, or on one server.
const LEFT_OUT: Effects = super::BINDING
    .with(Effects::RELEASES_ALL_LOCKS)
    .with(Effects::NEEDS_USER_LOCKS)
    .with(Effects::UNLOCKS_TABLES)
    .with(Effects::RELEASES_GLOBAL_LOCK)
    .with(Effects::READS_LAST_INSERT_ID)
    .with(Effects::READS_ROW_COUNT)
    .with(Effects::READS_FOUND_ROWS)
    .with(Effects::READS_DIAGNOSTICS)
    .with(Effects::READS_CONNECTION_ID)
    .with(Effects::SETS_GLOBAL)
    .with(Effects::XA)
    .with(Effects::SERVER_FILE)
    .with(Effects::KILL)
    .with(Effects::CHANGES_DATABASE)
    .with(Effects::INCOMPLETE)
    .with(Effects::SETS_AUTOCOMMIT);

/// The copies of one worker.
#[derive(Default)]
pub(crate) struct Mirrors {
    under_way: Rc<Cell<usize>>,
}

/// A place among the copies under way.
struct Place(Rc<Cell<usize>>);

impl Mirrors {
    fn place(&self) -> Option<Place> {
        let count = self.under_way.get();
        (count < COPIES_MAX).then(|| {
            self.under_way.set(count + 1);
            Place(Rc::clone(&self.under_way))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A statement on its way.
struct Copy {
    worker: Rc<Worker>,
    to: Rc<WorkerCluster>,
    key: Rc<Key>,
    credential: Credential,
    carried: Rc<PortableState>,
    oldest_login: Instant,
    dialect: Dialect,
    is_read: bool,
    text: Vec<u8>,
}

/// Sends a copy of the statement that is about to be sent, if a rule says so.
pub(super) fn copy(session: &ClientSession, head: CommandHead, facts: &Facts) {
    let Some(name) = session
        .rules
        .verdict()
        .and_then(|verdict| verdict.mirror.as_deref())
    else {
        return;
    };
    let Some(numbered) = session.rules.rules.mirror(name) else {
        return;
    };
    let metrics = session.context.worker.metrics.mirror(name);
    let copied = matches!(
        facts.class,
        Class::Read | Class::LockingRead | Class::Write | Class::Ddl
    );
    let text = command::text(command::payload(session, head), session.client.capabilities);
    let is_short = |text: &&[u8]| text.len() <= TEXT_MAX;
    let Some(text) = text.filter(|text| is_short(text) && copied && !facts.effects.intersects(LEFT_OUT))
    else {
        metrics.left_out.inc();
        return;
    };
    let Some(place) = session.context.worker.mirrors.place() else {
        metrics.dropped.inc();
        return;
    };
    let copy = Copy {
        worker: Rc::clone(&session.context.worker),
        to: session
            .context
            .worker
            .pools
            .of_cluster(numbered, &session.context.worker.metrics),
        key: Rc::clone(&session.client.key),
        credential: session.client.account.credential.clone(),
        carried: Rc::clone(session.state.carried()),
        oldest_login: session.control.oldest_login.get(),
        dialect: session.dialect(),
        is_read: facts.class == Class::Read,
        text: text.to_vec(),
    };
    spawn_local(async move {
        count(&metrics, timeout(LONGEST, copy.send()).await.unwrap_or(None));
        drop(place);
    });
}

fn count(metrics: &MirrorMetrics, sent: Option<()>) {
    match sent {
        Some(()) => metrics.sent.inc(),
        None => metrics.failed.inc(),
    }
}

impl Copy {
    /// `None` where it has not reached its end. An error of the server's is an answer, too.
    async fn send(self) -> Option<()> {
        let pool = &self.to.pool;
        let server = self.server(&pool.cluster().topology())?;
        let cost = |held: &ConnectionState| held.cost(&self.carried, self.oldest_login);
        let leased = pool.lease(&server, &self.key, &self.credential, cost, true);
        let mut connection = leased.await.ok()?;
        self.rebuild(&mut connection).await?;
        connection.state.last_session = None;
        connection.state.known = session::OfConnection::UNKNOWN;
        let capabilities = connection.opened.capabilities;
        let mut payload = vec![Command::QUERY.0];
        if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
            payload.extend([0, 1]);
        }
        payload.extend_from_slice(&self.text);
        let outcome = ask::run(&mut connection.stream, capabilities, &payload)
            .await
            .ok()?;
        if outcome.error.is_some() || outcome.warnings > 0 {
            self.clear_diagnostics(&mut connection).await?;
        }
        // A connection on which a transaction has begun is closed: nobody would end it.
        if !outcome.status.contains(StatusFlags::IN_TRANS) {
            pool.give_back(connection);
        }
        Some(())
    }

    /// What the copy is warned of is not for the session that has the connection next.
    async fn clear_diagnostics(&self, connection: &mut Connection<ConnectionState>) -> Option<()> {
        let capabilities = connection.opened.capabilities;
        let commands = ask::framed(capabilities, vec![session::clear_diagnostics()]);
        let replies = ask::ask(&mut connection.stream, capabilities, &commands).await;
        let done = replies.ok()?.iter().all(|reply| reply.outcome.error.is_none());
        done.then_some(())
    }

    /// Gives the connection what the session has set.
    async fn rebuild(&self, connection: &mut Connection<ConnectionState>) -> Option<()> {
        if Rc::ptr_eq(&self.carried, &connection.state.carried) {
            return Some(());
        }
        if session::cost(&self.carried, &connection.state.carried) == session::CANNOT {
            return None;
        }
        let held = &connection.state;
        let commands = session::rebuild(&self.carried, &held.carried, &held.baseline, self.dialect);
        let capabilities = connection.opened.capabilities;
        let commands = ask::framed(capabilities, commands);
        let replies = ask::ask(&mut connection.stream, capabilities, &commands)
            .await
            .ok()?;
        if replies.iter().any(|reply| reply.outcome.error.is_some()) {
            return None;
        }
        connection.state.carried = Rc::clone(&self.carried);
        Some(())
    }

    /// A replica for a read, where there is one; else the primary.
    fn server(&self, topology: &Topology) -> Option<Arc<Server>> {
        let candidates: Vec<ReadCandidate> = topology
            .members
            .iter()
            .map(|member| ReadCandidate {
                admitted: self.is_read || member.role == Role::Primary,
                available: member.server.takes_statements(),
                weight: member.server.weight(),
                ..ReadCandidate::new(match member.role {
                    Role::Primary => ReadRole::Primary,
                    Role::Replica => ReadRole::Replica,
                    Role::Unusable => ReadRole::Unusable,
                })
            })
            .collect();
        let draw: Draw = self.worker.draw(0);
        let place = choose_replica(&candidates, &ReadPolicy::default(), draw)?;
        topology
            .members
            .get(place)
            .map(|member| Arc::clone(&member.server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_many_copies_and_no_more() {
        let mirrors = Mirrors::default();
        let places: Vec<Place> = (0..COPIES_MAX).filter_map(|_| mirrors.place()).collect();
        assert_eq!(places.len(), COPIES_MAX);
        assert!(mirrors.place().is_none());
        drop(places);
        assert!(mirrors.place().is_some());
    }
}
