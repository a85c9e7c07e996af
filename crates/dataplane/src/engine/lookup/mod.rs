//! Point lookups in mode `split`: which statement may be answered from memory, and what it leaves behind.
//!
//! Only a statement that stands alone may be: the session holds no connection, no transaction is open, no
//! rule that matches it wants a server. To the session it is a read like any other. The connection of the
//! statement before does not know of it, which [`found_rows`] says to those who ask that connection
//! ([`behind`]).

mod behind;
pub(crate) mod catch_up;
mod on_own_connection;
mod own_rights;
mod ruled;
pub(crate) mod session_lookups;

use std::rc::Rc;

use config::ReadConsistency;
use mysql_wire::gtid::GtidSet;
use mysql_wire::query::plain_text;
use mysql_wire::statement::ExecuteHead;
use mysql_wire::{Capabilities, Command, Outcome, PacketHeader, StatusFlags};
use session::{Prepared, Session};
use sql_class::{Class, Effects, Facts, point_lookup};

pub(crate) use self::behind::{bring_about, found_rows};
pub(crate) use self::on_own_connection::{command_owes, owes};
use self::ruled::ruled;
use self::session_lookups::{LookupStep, Planned, Seen, SessionLookups};
use crate::command_head::CommandHead;
use crate::control::Waiting;
use crate::engine::answered::Answered;
use crate::engine::begin::{let_go, with_statement};
use crate::engine::client_session::ClientSession;
use crate::engine::identity::Identity;
use crate::engine::next::{Execution, Next};
use crate::engine::{answer, command, consistency, rules};
use crate::error::SessionError;
use crate::finished::End;
use crate::frontend::listener_state::ListenerState;
use crate::lookups::{
    self, Asked, Environment, Finding, Left, LookupMetrics, Parameters, Plan, Recorder, Surroundings,
    Variable,
};
use crate::relay::flow::Flow;

/// The facts of a lookup to everybody else.
const PLAIN: Facts = Facts {
    class: Class::Read,
    effects: Effects::NONE,
    statements: 1,
    hint: None,
};

/// Statements whose plans are kept.
const PLANS_MAX: usize = 256;

/// The outcome of a look at a statement.
pub(crate) enum Looked {
    /// The statement is no lookup, or is not answered here: it takes the usual way.
    Elsewhere,
    /// The statement is to [go on](go_on) here. Nothing has been done about it yet.
    GoesOn,
    /// The answer is on its way to the client.
    Answered,
}

/// Notes a command that is about to be sent, of which the session knows.
#[inline]
pub(crate) fn note_sent(session: &mut ClientSession, command: Command) {
    let forgets_rows = found_rows(session).is_some() && behind::forgets_rows(session, command);
    let Some(of) = &mut session.lookups else { return };
    if forgets_rows {
        of.rows = None;
    }
    if session.binding.is_own() {
        let now = session.context.worker.clock.now();
        of.note_sent(command, session.state.statement(), now);
    }
}

/// Sets how fresh the session's lookups are from here on; `None`: as the configuration has it. False where
/// the session has no lookups.
pub(crate) fn set_level(
    lookups: &mut Option<Box<SessionLookups>>,
    listener: &ListenerState,
    wanted: Option<ReadConsistency>,
) -> bool {
    let Some(of) = lookups else { return false };
    of.consistency = wanted.unwrap_or(listener.config.lookup_consistency);
    true
}

/// Whether the primary's answer to the statement under way is to be learned.
pub(crate) fn learns(session: &ClientSession) -> bool {
    session.lookups.as_ref().is_some_and(|of| of.recorder.is_some())
}

/// The recorder of the answer to the command that is about to be sent.
pub(crate) fn recorder(lookups: &mut Option<Box<SessionLookups>>, on_primary: bool) -> Option<&mut Recorder> {
    let (_, recorder) = lookups.as_mut()?.recorder.as_mut()?;
    if !on_primary {
        recorder.give_up();
    }
    Some(recorder)
}

/// Looks at a COM_QUERY.
pub(crate) fn query(session: &mut ClientSession, head: CommandHead) -> Looked {
    let step = query_step(session, head);
    take_up(session, head, None, step)
}

fn query_step(session: &mut ClientSession, head: CommandHead) -> Option<LookupStep> {
    let (syntax, capabilities) = (session.state.syntax(), session.client.capabilities);
    if session.lease.is_some() && !session.binding.is_own() || rules::concern(session) {
        point_lookup(text_of(&session.streams.up, head, capabilities)?, syntax)?;
    }
    let ready = ready(session, head, None);
    let of = session.lookups.as_mut()?;
    let text = text_of(&session.streams.up, head, capabilities)?;
    let lookup = point_lookup(text, syntax).filter(|lookup| !lookup.has_parameters())?;
    let asked = Asked {
        lookup: &lookup,
        text,
        parameters: None,
    };
    let finding = ready.map_or_else(Finding::Left, |ready| of.lookups.find(ready, &asked, &mut of.key));
    step(&mut session.lookups, session.context.lookup_metrics(), finding)
}

fn text_of(up: &Flow, head: CommandHead, capabilities: Capabilities) -> Option<&[u8]> {
    let payload = lookups::whole_payload(up.unseen(), head.payload_len)?;
    plain_text(payload, capabilities)
}

/// Looks at a COM_STMT_EXECUTE.
pub(crate) fn execute(
    session: &mut ClientSession,
    head: CommandHead,
    id: u32,
    prepared: &Prepared,
) -> Looked {
    let step = execute_step(session, head, id, prepared);
    take_up(session, head, Some((id, prepared.digest)), step)
}

/// Answers what can be answered at once. `prepared`: the id and the digest of the statement that is executed.
fn take_up(
    session: &mut ClientSession,
    head: CommandHead,
    prepared: Option<(u32, u64)>,
    step: Option<LookupStep>,
) -> Looked {
    let Some(step) = step else {
        return Looked::Elsewhere;
    };
    if let LookupStep::Answer(plan) = &step
        && answer_now(session, head, prepared, plan)
    {
        return Looked::Answered;
    }
    if let Some(of) = &mut session.lookups {
        of.step = Some(step);
    }
    Looked::GoesOn
}

fn answer_now(
    session: &mut ClientSession,
    head: CommandHead,
    prepared: Option<(u32, u64)>,
    plan: &Plan,
) -> bool {
    if !lookups::may_put(&session.streams) {
        return false;
    }
    let Some(mut of) = session.lookups.take() else {
        return false;
    };
    let consistency = of.consistency(session);
    let began = of.gating.began();
    let mut out = std::mem::take(&mut of.out);
    out.clear();
    let answered = of.lookups.answer_now(
        plan,
        &of.key,
        consistency,
        own(session, consistency),
        of.gating.is_fresh(of.lookups.definitions()),
        &mut out,
    );
    let rows = match answered {
        Some(Ok(answered)) if lookups::put(&mut session.streams, &out) => {
            session.control.record.note_said(&out);
            Some(answered.rows)
        }
        _ => None,
    };
    let len = out.len();
    of.out = lookups::kept(out);
    if rows.is_some() {
        of.note_waited_for(consistency, began.unwrap_or(session.context.worker.clock.now()));
    }
    session.lookups = Some(of);
    if let Some(rows) = rows {
        note_answered(session, head, prepared, rows);
        session.streams.traffic.add_to_client(len);
    }
    rows.is_some()
}

fn execute_step(
    session: &mut ClientSession,
    head: CommandHead,
    id: u32,
    prepared: &Prepared,
) -> Option<LookupStep> {
    let planned = session.lookups.as_ref()?.plans.get(&id);
    let has_plan = planned.is_some_and(|planned| Rc::ptr_eq(&planned.text, &prepared.text));
    let lookup = match has_plan {
        true => None,
        false => Some(point_lookup(&prepared.text, session.state.syntax())?),
    };
    let is_current = Rc::ptr_eq(&prepared.context, session.state.carried())
        || prepared.context == *session.state.carried();
    let ready = match ready(session, head, Some((id, prepared))) {
        Ok(ready) if is_current && !prepared.long_data && !prepared.cursor => ready,
        left => {
            let reason = left.err().unwrap_or(Left::Session);
            session.context.lookup_metrics().left(reason);
            return None;
        }
    };
    let payload = lookups::whole_payload(session.streams.up.unseen(), head.payload_len)?;
    let sent = ExecuteHead::decode(payload, prepared.params, session.client.capabilities).ok()?;
    if sent.opens_cursor || sent.attributes > 0 || sent.command != head.command {
        return None;
    }
    let types = sent.types().or(prepared.types.as_deref());
    let (types, nulls) = match prepared.params {
        0 => (&[][..], &[][..]),
        _ => (types?, payload.get(sent.nulls()?)?),
    };
    let parameters = Parameters {
        types,
        nulls,
        values: payload.get(sent.len..)?,
    };
    let of = session.lookups.as_mut()?;
    let again = of.find_again(id, ready, &parameters).filter(|_| has_plan);
    let finding = match again {
        Some(finding) => finding,
        None => {
            let lookup = match lookup {
                Some(lookup) => lookup,
                None => point_lookup(&prepared.text, session.state.syntax())?,
            };
            let asked = Asked {
                lookup: &lookup,
                text: &prepared.text,
                parameters: Some(parameters),
            };
            let finding = of.lookups.find(ready, &asked, &mut of.key);
            of.keep_plan(id, ready, &asked, &prepared.text, &finding);
            finding
        }
    };
    // The client sends types once, and whoever executes the statement next has to have them.
    if let (Finding::Answer(_), Some(types)) = (&finding, sent.types())
        && prepared.types.as_deref() != Some(types)
        && let Some(known) = session.state.statements().get_mut(id)
    {
        known.types = Some(types.into());
    }
    step(&mut session.lookups, session.context.lookup_metrics(), finding)
}

fn step(
    lookups: &mut Option<Box<SessionLookups>>,
    metrics: &LookupMetrics,
    finding: Finding,
) -> Option<LookupStep> {
    match finding {
        Finding::Left(reason) => {
            metrics.left(reason);
            None
        }
        Finding::Outdated => {
            metrics.left(Left::Learned);
            if let Some(of) = lookups {
                of.seen = None;
            }
            None
        }
        Finding::Learn(lesson) => Some(LookupStep::Learn(lesson)),
        Finding::Answer(plan) => Some(LookupStep::Answer(plan)),
    }
}

/// The session's environment, where its statement stands alone.
fn ready(
    session: &mut ClientSession,
    head: CommandHead,
    prepared: Option<(u32, &Prepared)>,
) -> Result<Environment, Left> {
    // An execution that asks why has gone another way.
    if prepared.is_none() && command::may_ask_why(session, head) {
        return Err(Left::Routed);
    }
    let verdict = match rules::concern(session) {
        true => Some(ruled(session, head, prepared).ok_or(Left::Routed)?),
        false => None,
    };
    if let Some(of) = &mut session.lookups {
        of.verdict = verdict;
    }
    if session.lease.is_some() {
        let about = prepared.map(|(id, prepared)| (id, prepared.digest));
        let_go(session, head, Some(&PLAIN), about);
    }
    if session.state.in_transaction() || !session.state.autocommit() {
        return Err(Left::Session);
    }
    if session.binding.is_own() {
        on_own_connection::check(session)?;
    } else if session.lease.is_some()
        || session.state.is_pinned()
        || session.client.account.user.config.pooling != config::Pooling::Transaction
    {
        return Err(Left::Session);
    }
    let status = session.lasting_status();
    let of = session.lookups.as_mut();
    let environment = of.map(|of| of.environment(&session.state, &session.client, status));
    Ok(environment.unwrap_or_default())
}

/// Goes on with a lookup. `prepared`: the statement that is executed.
pub(crate) async fn go_on(
    session: &mut ClientSession,
    head: CommandHead,
    prepared: Option<(u32, Prepared)>,
) -> Result<Next, SessionError> {
    match session.lookups.as_mut().and_then(|of| of.step.take()) {
        None => {}
        Some(LookupStep::Learn(lesson)) => {
            session.context.lookup_metrics().left(Left::Learned);
            if let Some(of) = &mut session.lookups {
                of.recorder = Some((lesson, Recorder::default()));
            }
        }
        Some(LookupStep::Answer(plan)) => match from_memory(session, plan).await? {
            Ok(rows) => return reply(session, head, prepared, rows).await.map(|()| Next::Done),
            Err(reason) => session.context.lookup_metrics().left(reason),
        },
    }
    Ok(match prepared {
        Some((id, prepared)) => Next::RuleExecution(Box::new(Execution { head, id, prepared })),
        None => Next::rule_query(head, PLAIN),
    })
}

/// Learns from the answer to a statement that is over, if that was recorded.
pub(crate) fn finish(lookups: &mut Option<Box<SessionLookups>>) {
    if let Some(of) = lookups
        && let Some((lesson, recorder)) = of.recorder.take()
        && let Some(answer) = recorder.answer()
    {
        of.lookups.learn(lesson, answer);
    }
}

/// The GTIDs that the session has written, where they matter.
fn own(session: &ClientSession, consistency: ReadConsistency) -> Option<&GtidSet> {
    let own = session.state.written().ok()??;
    (consistency == ReadConsistency::Session).then_some(&**own)
}

/// Makes the answer.
async fn from_memory(session: &mut ClientSession, plan: Plan) -> Result<Result<u64, Left>, SessionError> {
    let Some(mut of) = session.lookups.take() else {
        return Ok(Err(Left::Session));
    };
    let consistency = of.consistency(session);
    session.control.mark(Waiting::Server);
    let mut out = std::mem::take(&mut of.out);
    out.clear();
    let is_fresh = of.gating.is_fresh(of.lookups.definitions());
    let now = session.context.worker.clock.now();
    let began = of.gating.began().filter(|_| is_fresh).unwrap_or(now);
    let answered = of.lookups.answer(
        plan,
        &of.key,
        consistency,
        own(session, consistency),
        is_fresh,
        &mut out,
    );
    let answered = tokio::select! {
        biased;
        signal = session.control.signalled(false) => Err(session.signalled(signal)),
        answered = answered => Ok(answered),
    };
    of.out = match &answered {
        Ok(Ok(_)) => {
            of.note_waited_for(consistency, began);
            out
        }
        _ => lookups::kept(out),
    };
    session.lookups = Some(of);
    Ok(answered?.map(|answered| answered.rows))
}

impl SessionLookups {
    /// The environment of a statement of the session that stands alone.
    fn environment(&mut self, state: &Session, client: &Identity, status: StatusFlags) -> Environment {
        let (carried, rights) = (state.carried(), self.rights());
        if let Some(seen) = &self.seen
            && Rc::ptr_eq(&seen.carried, carried)
            && Rc::ptr_eq(&seen.baseline, state.baseline())
            && Rc::ptr_eq(&seen.key, &client.key)
            && seen.status == status
            && seen.rights == rights
        {
            return seen.environment;
        }
        let set = carried.variables().map(|(name, value)| Variable {
            name,
            value,
            is_set: true,
        });
        let mut variables: Vec<_> = set.collect();
        for (name, value) in &state.baseline().variables {
            if carried.variable(name).is_none() {
                variables.push(Variable {
                    name,
                    value,
                    is_set: false,
                });
            }
        }
        let environment = self.lookups.environment(&Surroundings {
            user: client.key.user.as_bytes(),
            account: client.key.account,
            rights,
            // A server may know several accounts of one name, by where their clients come from.
            host: self.on_own.as_ref().and_then(|_| {
                let address = client.host.socket_addr()?;
                Some(address.ip())
            }),
            schema: carried.schema(),
            capabilities: client.capabilities,
            collation: client.key.collation,
            status,
            variables,
        });
        self.seen = Some(Seen {
            carried: Rc::clone(carried),
            baseline: Rc::clone(state.baseline()),
            key: Rc::clone(&client.key),
            status,
            rights,
            environment,
        });
        environment
    }

    /// How fresh the answer must be. Writes of the session that it cannot name are there for certain only
    /// when all are.
    fn consistency(&mut self, session: &ClientSession) -> ReadConsistency {
        if self.consistency != ReadConsistency::Session {
            return self.consistency;
        }
        if self.makes_rights_certain(session.context.worker.clock.now()) {
            return ReadConsistency::Strong;
        }
        if consistency::has_untold_writes(session) {
            return ReadConsistency::Strong;
        }
        match session.state.written() {
            Ok(_) => ReadConsistency::Session,
            Err(_) => ReadConsistency::Strong,
        }
    }

    fn find_again(
        &mut self,
        id: u32,
        environment: Environment,
        parameters: &Parameters<'_>,
    ) -> Option<Finding> {
        let planned = self.plans.get(&id)?;
        if planned.environment != environment {
            return None;
        }
        self.lookups.find_again(&planned.plan, parameters, &mut self.key)
    }

    fn keep_plan(
        &mut self,
        id: u32,
        environment: Environment,
        asked: &Asked<'_>,
        text: &Rc<[u8]>,
        finding: &Finding,
    ) {
        let Finding::Answer(plan) = finding else { return };
        if !asked.lookup.has_only_parameters() {
            return;
        }
        if self.plans.len() >= PLANS_MAX {
            self.plans.clear();
        }
        let planned = Planned {
            text: Rc::clone(text),
            environment,
            plan: plan.clone(),
        };
        self.plans.insert(id, planned);
    }
}

/// Sends the answer.
async fn reply(
    session: &mut ClientSession,
    head: CommandHead,
    prepared: Option<(u32, Prepared)>,
    rows: u64,
) -> Result<(), SessionError> {
    let about = prepared.as_ref().map(|(id, prepared)| (*id, prepared.digest));
    let Some(of) = &mut session.lookups else {
        return Ok(());
    };
    let out = std::mem::take(&mut of.out);
    note_answered(session, head, about, rows);
    let said = answer::say(session, &out).await;
    if let Some(of) = &mut session.lookups {
        of.out = lookups::kept(out);
    }
    said
}

/// Tells the session of an answer from memory, and counts it. `prepared`: the id and the digest of the
/// statement that was executed.
fn note_answered(session: &mut ClientSession, head: CommandHead, prepared: Option<(u32, u64)>, rows: u64) {
    if let Some(of) = &mut session.lookups {
        of.note_answered(&session.state, session.lease.as_mut());
    }
    with_statement(session, head, Some(&PLAIN), prepared, |session, statement| {
        session.begin(statement);
    });
    session.state.end(&Outcome {
        status: session.lasting_status(),
        error: None,
        has_status: true,
        is_result_set: true,
        warnings: 0,
        affected_rows: 0,
        last_insert_id: 0,
        rows,
    });
    let len = PacketHeader::LEN + head.payload_len;
    session.streams.traffic.add_from_client(len);
    session.streams.up.discard(len);
    session.context.lookup_metrics().answered.inc();
    let verdict = session.lookups.as_mut().and_then(|of| of.verdict.take());
    if let Some(verdict) = verdict {
        rules::count(session, &verdict);
    }
    session.control.of_split.answered.set(Answered::Memory);
    let digest = prepared.map_or(0, |(_, digest)| digest);
    session.control.record.note_statement(PLAIN.class, digest);
    session.control.record.note_end(End::Memory);
    // The connection that had the statement before knows of that one only.
    session.last.turn = session.last.turn.wrapping_add(1);
    if let Some(of) = &mut session.lookups {
        of.rows = Some(rows);
        if of.consistency == ReadConsistency::Strong {
            of.gating.note_lookup();
        }
    }
}
