//! Strong reads: the primary's position, asked for once for all reads that wait for it, on whatever worker.
//! The rule is that of the cache's strong reads, too: [`upstream::ReadIndex`].
//!
//! A server that was the primary when it was last looked at may be it no more, and answer with less than its
//! successor has acknowledged. The server therefore says in the same row that it is not read-only and that it
//! is the server it was, and a member of a group first hears from the others what they have agreed on, which
//! a minority cannot. Otherwise that is no answer, and the read waits for a primary as a write does. Roles
//! that are written down (`static`) are believed.

use std::sync::Arc;
use std::time::Duration;

use mysql_wire::gtid::{Flavor, GtidSet};
use tokio::time::{Instant, timeout_at};
use upstream::{Connection, Member, PrimaryPosition, Probe, Probes, Topology};

use crate::control::Waiting;
use crate::engine::ask::{self, Reply, plain};
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::connection_state::ConnectionState;
use crate::engine::consistency::Freshness;
use crate::engine::lease;
use crate::engine::rebuild;
use crate::engine::server::next_topology;
use crate::error::SessionError;

/// How long the primary is asked at least, however short `failover_wait` is.
const ANSWER_MIN: Duration = Duration::from_secs(5);

/// The right to ask for all, which is passed on where this is dropped without an answer, however that comes.
struct Asking<'c> {
    probes: &'c Probes<PrimaryPosition>,
    probe: Option<Probe>,
}

impl Asking<'_> {
    fn end(mut self, answer: &PrimaryPosition) {
        if let Some(probe) = self.probe.take() {
            self.probes.end(probe, &Ok(answer.clone()));
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(probe) = self.probe.take() {
            self.probes
                .end(probe, &Err("whoever asked has gone, or was refused".into()));
        }
    }
}

/// The freshness of a read that begins now, as a primary says that answers as the primary. Waits for one,
/// within `failover_wait`.
pub(crate) async fn needed(session: &ClientSession) -> Result<Freshness, Refused> {
    let cluster = &session.context.listener.cluster;
    let wait = cluster.config().failover_wait;
    let deadline = Instant::now() + wait;
    loop {
        let topology = cluster.topology();
        if topology.refuse_writes.is_some() {
            // The client is told why on the way to the primary.
            return Ok(Freshness::Primary);
        }
        session.control.mark_if_new(Waiting::Position);
        let asked = tokio::select! {
            biased;
            signal = session.control.signalled(false) => return Err(Refused(session.signalled(signal))),
            asked = timeout_at(deadline.max(Instant::now() + ANSWER_MIN), answer(session)) => asked,
        };
        match asked.unwrap_or(Ok(PrimaryPosition::Unknown))? {
            PrimaryPosition::At(position) => return Ok(Freshness::Position(position.into())),
            PrimaryPosition::WithoutGtids => return Ok(Freshness::Primary),
            PrimaryPosition::Unknown => cluster.look_again(),
        }
        if let Err(error) = next_topology(session, &topology, deadline).await {
            return Err(Refused(error.unwrap_or(SessionError::NoPrimary(wait))));
        }
    }
}

/// The answer to a question that is asked after this call, by this session or by another one on any worker.
async fn answer(session: &ClientSession) -> Result<PrimaryPosition, Refused> {
    let probes = session.context.listener.cluster.primary_positions();
    let mut ended = probes.ended();
    let arrival = probes.arrive();
    loop {
        if let Some(answer) = ended.borrow_and_update().answer(arrival) {
            return Ok(answer.clone());
        }
        match probes.send(Instant::now()) {
            Ok(probe) => {
                let asking = Asking {
                    probes,
                    probe: Some(probe),
                };
                // The present topology counts: a session that has waited for the right knows an older one.
                let topology = session.context.listener.cluster.topology();
                let answer = match topology.primary() {
                    Some(primary) => ask_primary(session, &topology, primary).await,
                    None => Ok(PrimaryPosition::Unknown),
                };
                return match answer {
                    Ok(answer) => {
                        asking.end(&answer);
                        Ok(answer)
                    }
                    // The error may be for this session's account alone: others ask for themselves.
                    Err(Refused(error)) if lease::may_try_another(&error) => Ok(PrimaryPosition::Unknown),
                    Err(refused) => Err(refused),
                };
            }
            // Either is a reason to look again.
            Err(overdue) => drop(timeout_at(overdue, ended.changed()).await),
        }
    }
}

/// Asks the primary. Ends without an answer when another server is the primary: one that was cut off may
/// never answer.
async fn ask_primary(
    session: &ClientSession,
    topology: &Topology,
    primary: &Member,
) -> Result<PrimaryPosition, Refused> {
    let changed = session
        .pool()
        .cluster()
        .wait_for_topology_change(topology.generation);
    tokio::select! {
        biased;
        asked = ask_server(session, primary) => asked,
        _ = changed => Ok(PrimaryPosition::Unknown),
    }
}

async fn ask_server(session: &ClientSession, primary: &Member) -> Result<PrimaryPosition, Refused> {
    let server = Arc::clone(&primary.server);
    let mut connection = lease::connection(session, &server).await?;
    let question = PositionQuestion::of(session);
    let commands = question.commands(session, &connection);
    let replies = rebuild::asked(session, &mut connection, &commands).await?;
    // In a group, the answer is between those to what has the server wait and to what ends that.
    let (before, rest) = replies.split_at(usize::from(question.in_group));
    if let Some(packet) = before
        .iter()
        .find_map(|reply| reply.error(connection.capabilities))
    {
        return Err(Refused(rebuild::state_refused(&server, packet)));
    }
    let answer = rest.first().map_or(PrimaryPosition::Unknown, |reply| {
        question.understood(primary.identity.as_deref(), reply)
    });
    let is_well = replies.iter().all(|reply| reply.outcome.error.is_none());
    if is_well && !matches!(answer, PrimaryPosition::Unknown) {
        session.pool().give_back(connection);
    }
    Ok(answer)
}

/// The question to the primary of a cluster of this kind.
struct PositionQuestion {
    flavor: Flavor,
    /// The server has to say that it is the primary.
    must_prove: bool,
    /// The server has to hear from its group first.
    in_group: bool,
}

impl PositionQuestion {
    fn of(session: &ClientSession) -> Self {
        let (flavor, topology) = (session.state.flavor(), session.pool().config().topology);
        Self {
            flavor,
            must_prove: topology.has_primary(),
            in_group: topology == config::Topology::GroupReplication && flavor == Flavor::MySql,
        }
    }

    fn commands(&self, session: &ClientSession, connection: &Connection<ConnectionState>) -> Vec<Vec<u8>> {
        const CONSISTENCY: &str = "group_replication_consistency";
        let own = session.state.carried().variable(CONSISTENCY.as_bytes());
        let own = own.and_then(|own| str::from_utf8(own).ok());
        let own = own.map_or("DEFAULT".to_owned(), |own| format!("'{own}'"));
        let statements = match self.in_group {
            true => vec![
                format!("SET SESSION {CONSISTENCY}='BEFORE'"),
                self.statement(),
                format!("SET SESSION {CONSISTENCY}={own}"),
            ],
            false => vec![self.statement()],
        };
        let command = |statement: &String| ask::query(connection.capabilities, statement);
        statements.iter().map(command).collect()
    }

    /// The statement that asks. The LIMIT is for sessions that have set `sql_select_limit`.
    fn statement(&self) -> String {
        let (position, proof) = match self.flavor {
            // If not every transaction gets a GTID, the set may be from a time when all did.
            Flavor::MySql => (
                "IF(@@GLOBAL.gtid_mode='ON', @@GLOBAL.gtid_executed, '')",
                ", @@GLOBAL.server_uuid, @@GLOBAL.read_only, @@GLOBAL.super_read_only",
            ),
            Flavor::MariaDb => (
                "@@GLOBAL.gtid_current_pos",
                ", @@GLOBAL.server_id, @@GLOBAL.read_only, 0",
            ),
        };
        let proof = if self.must_prove { proof } else { "" };
        // Only a statement that reads a table waits for the group, be it this one (tested on MySQL 9.7).
        let table = if self.in_group {
            " FROM (SELECT 1) AS t"
        } else {
            ""
        };
        format!("SELECT {position}{proof}{table} LIMIT 1")
    }

    /// Reads the answer. `identity`: who the primary is, where that is known.
    fn understood(&self, identity: Option<&str>, reply: &Reply) -> PrimaryPosition {
        let position = match self.must_prove {
            true => reply
                .row()
                .and_then(|[position, who, read_only, super_read_only]| {
                    let is_off = |value| matches!(plain(value).as_deref(), Some(b"0" | b"OFF"));
                    let who = plain(who)?;
                    let is_known = identity.is_none_or(|identity| identity.as_bytes() == who);
                    (is_known && is_off(read_only) && is_off(super_read_only)).then_some(position)
                }),
            false => reply.row().map(|[position]| position),
        };
        match position.map(|position| GtidSet::parse(self.flavor, &plain(position).unwrap_or_default())) {
            None => PrimaryPosition::Unknown,
            Some(Ok(position)) if !position.is_empty() => PrimaryPosition::At(position),
            Some(_) => PrimaryPosition::WithoutGtids,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_to_ask_is_passed_on_when_it_is_dropped() {
        let probes = Probes::new(Duration::from_secs(1));
        let asking = |probe| Asking {
            probes: &probes,
            probe: Some(probe),
        };
        let (ended, arrival, now) = (probes.ended(), probes.arrive(), Instant::now());
        let first = asking(probes.send(now).unwrap());
        assert!(probes.send(now).is_err(), "one at a time");
        drop(first);
        assert_eq!(ended.borrow().answer(arrival), None);
        let second = asking(probes.send(now).expect("the right to ask"));
        second.end(&PrimaryPosition::WithoutGtids);
        assert_eq!(
            ended.borrow().answer(arrival),
            Some(&PrimaryPosition::WithoutGtids)
        );
        assert!(probes.send(now).is_ok());
    }

    /// A row of a result with so many columns.
    fn reply(row: &[&[u8]]) -> Reply {
        let mut bytes = Vec::new();
        let mut sequence = 0;
        let mut packet = |payload: &[u8]| mysql_wire::write_packet(&mut bytes, &mut sequence, payload);
        packet(&[row.len() as u8]);
        row.iter().for_each(|_| packet(b"definition"));
        let values = row.iter().map(|value| [&[value.len() as u8][..], value].concat());
        packet(&values.collect::<Vec<_>>().concat());
        let outcome = mysql_wire::Outcome {
            is_result_set: true,
            rows: 1,
            ..mysql_wire::Outcome::default()
        };
        Reply { outcome, bytes }
    }

    #[test]
    fn only_the_primary_has_an_answer() {
        let question = PositionQuestion {
            flavor: Flavor::MariaDb,
            must_prove: true,
            in_group: false,
        };
        let answer = |row: &[&[u8]]| question.understood(Some("7"), &reply(row));
        let has = |answer, text: &str| matches!(answer, PrimaryPosition::At(position) if position.to_string() == text);
        assert!(has(answer(&[b"0-1-5", b"7", b"0", b"0"]), "0-1-5"));
        assert!(has(
            answer(&[b"\x000\0-\x001\0-\x005", b"\x007", b"\x000", b"0"]),
            "0-1-5"
        ));
        assert!(matches!(
            answer(&[b"", b"7", b"OFF", b"0"]),
            PrimaryPosition::WithoutGtids
        ));
        for row in [
            [b"0-1-5", &b"8"[..], b"0", b"0"],
            [b"0-1-5", b"7", b"1", b"0"],
            [b"0-1-5", b"7", b"0", b"ON"],
            [b"0-1-5", b"7", b"NO_LOCK", b"0"],
        ] {
            assert!(matches!(answer(&row), PrimaryPosition::Unknown), "{row:?}");
        }
        assert!(matches!(
            question.understood(None, &reply(&[b"0-1-5", b"8", b"0", b"0"])),
            PrimaryPosition::At(_)
        ));
        let believed = PositionQuestion {
            must_prove: false,
            ..question
        };
        assert!(matches!(
            believed.understood(Some("7"), &reply(&[b"0-1-5"])),
            PrimaryPosition::At(_)
        ));
        assert_eq!(believed.statement(), "SELECT @@GLOBAL.gtid_current_pos LIMIT 1");
    }
}
