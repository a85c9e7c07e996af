//! `[[rule]]`: what the configuration says about certain statements, and groups of servers to which it sends
//! them.
//!
//! Rules, and which of them counts, are in `routing::rules`; here they are carried out. A session in which no
//! rule can match costs a look at two figures a statement ([`concern`]). In other sessions a statement gets a
//! [`RuleDecision`], which lives as long as the statement does and is asked where something is decided: the
//! target (`choose`), how fresh that must be (`consistency`), what the statement may bind (`run`), for how
//! long it may run ([`time_limit`]).
//!
//! A prepared statement meets the rules when it is prepared, which is where it is rewritten, and each time it
//! is executed.

mod limits;
pub(crate) mod mirror;
pub(crate) mod rule_set;
pub(crate) mod session_rules;
mod time_limit;

use std::rc::Rc;
use std::time::Duration;

use config::PinRule;
use mysql_wire::{Command, OkPacket, PacketHeader, command_packet};
use routing::rules::{Look, Route, Verdict, Who, without_backticks};
use session::PinReason;
use sql_class::{Class, Digest, Effects, Facts, Hint};
use tokio::time::sleep;
use tracing::info;

use crate::command_head::CommandHead;
use crate::control::Waiting;
use crate::engine::answered::Answered;
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::identity::Identity;
use crate::engine::next::{Execution, Next};
use crate::engine::rules::session_rules::RuleDecision;
use crate::engine::target::Target;
use crate::engine::{answer, command};
use crate::error::SessionError;
use crate::frontend::listener_state::ListenerState;
use crate::relay::flow::Flow;

use rule_set::RuledStatement;
pub(crate) use time_limit::TimeLimit;

/// The longest normalised text in a log line, in bytes.
const LOGGED_MAX: usize = 1024;

/// Effects that bind a session to its connection, which a rule may overlook.
const BINDING: Effects = Effects::USER_VARIABLES
    .with(Effects::TAKES_USER_LOCK)
    .with(Effects::TEMPORARY_TABLE)
    .with(Effects::LOCKS_TABLES)
    .with(Effects::GLOBAL_LOCK)
    .with(Effects::HANDLER)
    .with(Effects::TEXT_PREPARE)
    .with(Effects::NEXT_TRANSACTION)
    .with(Effects::SET_STATEMENT)
    .with(Effects::SET_ROLE)
    .with(Effects::SETS_UNCARRIED)
    .with(Effects::LOADS_DATA)
    .with(Effects::SEQUENCE)
    .with(Effects::CALCULATES_FOUND_ROWS)
    .with(Effects::CALLS_PROCEDURE)
    .with(Effects::UNKNOWN_FUNCTION);

/// Whether any rule may say something about the session's statements. Rules are for mode `split`.
#[inline]
pub(crate) fn concern(session: &mut ClientSession) -> bool {
    if session.binding.is_own() && !session.context.listener.config.shares_never() {
        return false;
    }
    if session.rules.generation != session.context.worker.rules.generation() {
        let who = who(&session.client, &session.context.listener);
        session.rules.select(&session.context.worker, &who);
    }
    !session.rules.selection.is_empty() || session.rules.decision.is_some()
}

/// The session as rules see it.
fn who<'a>(client: &'a Identity, listener: &'a ListenerState) -> Who<'a> {
    Who {
        user: &client.account.user.name,
        client: client.host.socket_addr().map(|address| address.ip()),
        listener: &listener.config.name,
    }
}

/// The verdict of rules about a read of one row by its key. `None` where a rule that matches leaves the read
/// to a server, or has an answer of its own. `digest`: the statement's, where it is known.
pub(crate) fn of_lookup(
    session: &ClientSession,
    text: &[u8],
    facts: &Facts,
    digest: Option<u64>,
) -> Option<Rc<Verdict>> {
    // A statement that is sent again has its decision, which is its own only.
    if session.rules.decision.is_some() {
        return None;
    }
    let verdict = decide(session, text, facts, digest);
    verdict.allows_memory().then_some(verdict)
}

/// Counts a statement that was answered from memory for the rules that it met.
pub(crate) fn count(session: &ClientSession, verdict: &Verdict) {
    session.rules.rules.count(verdict);
}

/// COM_QUERY under rules.
pub(crate) async fn query(
    session: &mut ClientSession,
    head: CommandHead,
    facts: Facts,
) -> Result<Next, SessionError> {
    let (mut head, mut facts) = (head, facts);
    if !session.rules.goes_on() && !facts.effects.contains(Effects::GATEWAY) {
        let payload = command::payload(session, head);
        let text = command::text(payload, session.client.capabilities).unwrap_or_default();
        let before_text = payload.len() - text.len();
        let verdict = decide(session, text, &facts, None);
        let logged = verdict
            .log
            .then(|| sql_class::digest(text, session.state.syntax()));
        if let Some(answered) = answered(session, &verdict, logged.as_ref(), true).await {
            return answered;
        }
        if let Some(rewritten) = &verdict.rewritten {
            match rewrite(&mut session.streams.up, head, before_text, rewritten) {
                Ok(changed) => head = changed,
                Err(refused) => return Ok(refused.into()),
            }
            session.statement.head = head;
            facts = command::facts(session, head);
            command::note(session, head, &facts);
        }
        match enter(session, verdict, logged).await {
            Ok(decision) => session.rules.decision = decision,
            Err(refused) => return Ok(refused.into()),
        }
        if is_to_be_bound(session) {
            let digest = sql_class::digest(command::text_of(session, head), session.state.syntax());
            session.keep_connection(PinReason::Rule, digest.hash);
        }
        mirror::copy(session, head, &facts);
    }
    Ok(Next::route_query(head, facts))
}

/// COM_STMT_EXECUTE, and MariaDB's bulk execution, under rules.
pub(crate) async fn execute(session: &mut ClientSession, execution: Execution) -> Result<Next, SessionError> {
    let Execution { id, prepared, .. } = &execution;
    if !session.rules.goes_on() {
        let original = original(session, *id);
        let digest = original.is_none().then_some(prepared.digest);
        let text = original.unwrap_or_else(|| Rc::clone(&prepared.text));
        let verdict = decide(session, &text, &prepared.facts, digest);
        let logged = verdict
            .log
            .then(|| sql_class::digest(&text, session.state.syntax()));
        if let Some(answered) = answered(session, &verdict, logged.as_ref(), true).await {
            return answered;
        }
        match enter(session, verdict, logged).await {
            Ok(decision) => session.rules.decision = decision,
            Err(refused) => return Ok(refused.into()),
        }
        if is_to_be_bound(session) {
            session.keep_connection(PinReason::Rule, prepared.digest);
        }
    }
    Ok(Next::RouteExecution(Box::new(execution)))
}

/// COM_STMT_PREPARE under rules: it may be refused, be rewritten, and is prepared where it will be executed.
/// All else is for its executions.
pub(crate) async fn prepare(session: &mut ClientSession, head: CommandHead) -> Result<Next, SessionError> {
    let payload = command::payload(session, head);
    let text: Rc<[u8]> = payload.get(1..).unwrap_or_default().into();
    let facts = command::facts(session, head);
    let verdict = decide(session, &text, &facts, None);
    if let Some(answered) = answered(session, &verdict, None, false).await {
        return answered;
    }
    if let Some(rewritten) = &verdict.rewritten {
        match rewrite(&mut session.streams.up, head, 1, rewritten) {
            Ok(changed) => session.statement.head = changed,
            Err(refused) => return Ok(refused.into()),
        }
        session.statement.original = Some(text);
    }
    session.rules.decision =
        (!verdict.is_empty()).then(|| Box::new(RuleDecision::new(verdict, Vec::new(), None)));
    Ok(Next::Prepare)
}

/// The text that the client has sent of a prepared statement that was rewritten.
pub(crate) fn original(session: &ClientSession, id: u32) -> Option<Rc<[u8]>> {
    session.rules.originals.get(&id).cloned()
}

/// The verdict of the rules about a statement.
fn decide(session: &ClientSession, text: &[u8], facts: &Facts, digest: Option<u64>) -> Rc<Verdict> {
    let schema = session.state.carried().schema().map(String::from_utf8_lossy);
    let question = RuledStatement {
        text,
        facts,
        syntax: session.state.syntax(),
        schema: schema.as_deref(),
        digest,
    };
    session.rules.rules.decide(&session.rules.selection, question)
}

/// Counts a statement, and answers it where a rule says how. `None`: the statement is for a server. `is_run`:
/// the statement is to be executed and not only prepared.
async fn answered(
    session: &mut ClientSession,
    verdict: &Verdict,
    logged: Option<&Digest>,
    is_run: bool,
) -> Option<Result<Next, SessionError>> {
    if is_run || verdict.refuse.is_some() {
        session.rules.rules.count(verdict);
    }
    let answered = match (&verdict.refuse, &verdict.answer_ok) {
        (Some(words), _) => Ok(Next::refuse(SessionError::RefusedByRule(words.to_string()))),
        (None, Some(words)) if is_run => {
            let answered = answer_ok(session, words.as_bytes().to_vec()).await;
            answered.map(|()| Next::Done)
        }
        _ => return None,
    };
    if let Some(digest) = logged {
        log(session, verdict, digest, Duration::ZERO, "answered");
    }
    Some(answered)
}

async fn answer_ok(session: &mut ClientSession, info: Vec<u8>) -> Result<(), SessionError> {
    session.control.of_split.answered.set(Answered::Gateway);
    let sequence = answer::discard(session).await?;
    let ok = OkPacket {
        status: session.lasting_status(),
        info,
        ..OkPacket::default()
    };
    answer::say_ok(session, ok, sequence).await
}

/// Puts another text in the place of the client's, whose command has so many bytes in front of it.
fn rewrite(
    up: &mut Flow,
    head: CommandHead,
    before_text: usize,
    rewritten: &[u8],
) -> Result<CommandHead, Refused> {
    let too_long = |len| Err(Refused(SessionError::StatementTooLong(len)));
    let payload = up.payload(head.payload_len);
    if payload.len() != head.payload_len {
        return too_long(head.payload_len);
    }
    let old = up.unseen()[..PacketHeader::LEN + payload.len()].to_vec();
    let payload = [&payload[..before_text], rewritten].concat();
    up.discard(old.len());
    if !up.put_back(&command_packet(&payload)) {
        // The old command has just been there.
        up.put_back(&old);
        return too_long(payload.len());
    }
    Ok(CommandHead {
        command: head.command,
        payload_len: payload.len(),
    })
}

/// Lets a statement in, once it has had its turn and its delay.
async fn enter(
    session: &ClientSession,
    verdict: Rc<Verdict>,
    logged: Option<Digest>,
) -> Result<Option<Box<RuleDecision>>, Refused> {
    if verdict.is_empty() {
        return Ok(None);
    }
    let turns = limits::take(session, &verdict).await?;
    if let Some(delay) = verdict.delay {
        wait(session, delay).await?;
    }
    Ok(Some(Box::new(RuleDecision::new(verdict, turns, logged))))
}

/// Whether a rule is to bind the session to its connection for good.
fn is_to_be_bound(session: &ClientSession) -> bool {
    let pin = session.rules.verdict().and_then(|verdict| verdict.pin);
    pin == Some(PinRule::Always) && !session.binding.has_reason()
}

/// Lets time pass, unless the session is to end or its client has gone.
async fn wait(session: &ClientSession, time: Duration) -> Result<(), Refused> {
    session.control.mark_if_new(Waiting::Seat);
    tokio::select! {
        biased;
        signal = session.control.signalled(false) => Err(Refused(session.signalled(signal))),
        () = sleep(time) => Ok(()),
        () = session.streams.client.closed() => Err(Refused(SessionError::ClientGone)),
    }
}

/// Ends what rules do for a command that is over, unless the command is sent to another server.
pub(crate) fn finish(session: &mut ClientSession, command: Command) {
    if command == Command::STMT_PREPARE {
        session.rules.decision = None;
        if let Some(text) = session
            .statement
            .original
            .take()
            .filter(|_| session.prepared.last_prepared != 0)
        {
            let (statements, id) = (session.state.statements(), session.prepared.last_prepared);
            session.rules.remember_original(statements, id, text);
        }
        return;
    }
    let Some(decision) = session.rules.decision.take_if(|decision| !decision.goes_on) else {
        return;
    };
    if let Some(digest) = &decision.logged {
        log(
            session,
            &decision.verdict,
            digest,
            decision.begun.elapsed(),
            "done",
        );
    }
}

fn log(session: &ClientSession, verdict: &Verdict, digest: &Digest, took: Duration, what: &str) {
    let text = without_backticks(&digest.text);
    let end = text.floor_char_boundary(LOGGED_MAX);
    info!(
        session = session.control.id,
        listener = session.context.listener.config.name,
        client = %session.client.host,
        user = &*session.client.account.user.name,
        server = if what == "done" { session.server_name() } else { "" },
        rules = session.rules.rules.names(verdict).collect::<Vec<_>>().join(", "),
        digest = format!("{:016x}", digest.hash),
        statement = &text[..end],
        seconds = took.as_secs_f64(),
        "statement of a rule {what}"
    );
}

/// The target to which a rule sends the statement under way. A session that is bound to its connection stays
/// there.
pub(crate) fn route(session: &ClientSession, facts: &Facts) -> Option<Target> {
    let verdict = session.rules.verdict()?;
    if session.lease.is_some() {
        return None;
    }
    match &verdict.route {
        Some(Route::Primary) => Some(Target::Primary { for_writing: true }),
        Some(Route::Replicas) if verdict.pin != Some(PinRule::Never) && binds_read(session, facts) => {
            Some(Target::Primary { for_writing: true })
        }
        Some(Route::Replicas) => Some(Target::Replica),
        Some(Route::Group(name)) => Some(Target::Group {
            name: name.clone(),
            is_read: matches!(facts.class, Class::Read | Class::BeginReadOnly),
        }),
        // On a replica the session could never write again.
        None if verdict.pin == Some(PinRule::Always) => Some(Target::Primary { for_writing: true }),
        None => None,
    }
}

/// Whether the statement is a read that binds its session to its connection for longer than to the next
/// statement. On a replica the session could not write any more.
pub(crate) fn binds_read(session: &ClientSession, facts: &Facts) -> bool {
    let trusted = match is_trusted(session, facts) {
        true => Effects::UNKNOWN_FUNCTION,
        false => Effects::NONE,
    };
    let binding = BINDING.0 & !Effects::CALCULATES_FOUND_ROWS.0 & !trusted.0;
    facts.class == Class::Read && facts.effects.intersects(Effects(binding))
}

/// Whether the statement binds its session to any connection for longer than to the next statement. `GET
/// DIAGNOSTICS` binds it only to the connection that has them.
pub(crate) fn binds_for_long(session: &ClientSession, facts: &Facts) -> bool {
    let overlooked = overlooked(session, facts);
    let effects = overlooked.as_ref().unwrap_or(facts).effects;
    let trusted = match effects.contains(Effects::LEAVES_NOTHING) {
        true => Effects::CALLS_PROCEDURE,
        false => Effects::NONE,
    };
    let binding = BINDING.0 & !Effects::CALCULATES_FOUND_ROWS.0 & !trusted.0;
    effects.intersects(Effects(binding)) && !effects.intersects(Effects::READS_DIAGNOSTICS)
}

/// Whether the author of the statement or of the configuration says that the functions it calls only read.
fn is_trusted(session: &ClientSession, facts: &Facts) -> bool {
    facts.class == Class::Read && (facts.hint == Some(Hint::Replica) || session.state.trusts_functions())
}

/// Whether a rule says where the statement under way goes.
pub(crate) fn routes(session: &ClientSession) -> bool {
    let verdict = session.rules.verdict();
    verdict.is_some_and(|verdict| verdict.route.is_some())
}

/// Whether a rule says of the statement under way that it belongs to the primary.
pub(crate) fn wants_primary(session: &ClientSession) -> bool {
    let route = session.rules.verdict().and_then(|verdict| verdict.route.as_ref());
    matches!(route, Some(Route::Primary))
}

/// The facts that the session is to see of a statement that must not bind it.
pub(crate) fn overlooked(session: &ClientSession, facts: &Facts) -> Option<Facts> {
    let verdict = session.rules.verdict();
    let (overlooked, instead) = match verdict.is_some_and(|verdict| verdict.pin == Some(PinRule::Never)) {
        // The statement may begin a transaction all the same, or write.
        true if facts.class == Class::Unknown => {
            let calls = facts.effects.0 & Effects::CALLS_PROCEDURE.0;
            (BINDING, Effects::LEAVES_NOTHING.with(Effects(calls)))
        }
        true => (BINDING, Effects::NONE),
        false if is_trusted(session, facts) => (Effects::UNKNOWN_FUNCTION, Effects::NONE),
        false => return None,
    };
    let effects = Effects(facts.effects.0 & !overlooked.0).with(instead);
    (effects != facts.effects).then(|| Facts {
        effects,
        ..facts.clone()
    })
}

/// Whether a statement whose server was lost is sent to another one at all.
pub(crate) fn sends_again(session: &ClientSession) -> bool {
    let decision = session.rules.decision.as_ref();
    let retries = decision.and_then(|decision| decision.verdict.retries);
    retries.is_none_or(|retries| retries > 0)
}

/// The outcome of each rule for a statement, in words. After this the rules are in force as for the statement
/// itself, until they are [explained](session_rules::SessionRules::explained).
pub(crate) fn explain(session: &mut ClientSession, text: &[u8], facts: &Facts) -> Vec<(String, String)> {
    concern(session);
    let schema = session.state.carried().schema().map(String::from_utf8_lossy);
    let question = RuledStatement {
        text,
        facts,
        syntax: session.state.syntax(),
        schema: schema.as_deref(),
        digest: None,
    };
    let in_words = |(name, look): (&str, Look)| {
        let look = match look {
            Look::Matched => "matches".to_owned(),
            Look::Differs(condition) => format!("differs: {condition}"),
            Look::NotReached => "not looked at: a rule before it was the last".to_owned(),
        };
        (format!("rule {name}"), look)
    };
    let who = who(&session.client, &session.context.listener);
    let looks = session.rules.rules.explain(&who, question);
    let looks = looks.into_iter().map(in_words);
    let verdict = session.rules.rules.decide(&session.rules.selection, question);
    let says = verdict.in_words().into_iter();
    let looks = looks
        .chain(says.map(|(option, value)| (option.to_owned(), value)))
        .collect();
    session.rules.decision = Some(Box::new(RuleDecision::new(verdict, Vec::new(), None)));
    looks
}

/// Whether the rules that are explained have the statement answered by the gateway.
pub(crate) fn answer_it(session: &ClientSession) -> bool {
    let decision = session.rules.decision.as_ref();
    decision.is_some_and(|decision| decision.verdict.is_answer())
}
