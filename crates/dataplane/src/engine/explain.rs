//! `FOREBAY …`: statements for the gateway itself.
//!
//! `FOREBAY EXPLAIN <statement>` says what the gateway knows of a statement and where it would go, without
//! executing it; `FOREBAY SHOW PINS` says why the session holds its connection; `FOREBAY SHOW LAST` who
//! answered its last statement; `FOREBAY SET read_consistency = …` says how fresh the session's reads are
//! from here on.

use config::ReadConsistency;
use routing::Explanation;
use routing::rules::without_backticks;
use session::{Pin, PinReason};
use sql_class::{Effects, Facts};
use upstream::Member;

use crate::command_head::CommandHead;
use crate::engine::account_backoff;
use crate::engine::answered::Answered;
use crate::engine::choose;
use crate::engine::client_session::ClientSession;
use crate::engine::command;
use crate::engine::consistency::Freshness;
use crate::engine::next::Next;
use crate::engine::target::Target;
use crate::engine::{answer, consistency, lookup, rules, transaction};
use crate::error::SessionError;
use crate::lookups;

/// Executes a statement for the gateway.
pub(crate) async fn statement(session: &mut ClientSession, head: CommandHead) -> Result<Next, SessionError> {
    let text = String::from_utf8_lossy(command::text_of(session, head)).into_owned();
    let mut words = text.split_whitespace().skip(1);
    match (words.next(), words.next()) {
        (Some(word), Some(_)) if word.eq_ignore_ascii_case("EXPLAIN") => {
            let at = text
                .to_ascii_uppercase()
                .find("EXPLAIN")
                .map_or(0, |at| at + "EXPLAIN".len());
            let rows = explain(session, text[at..].trim_start()).await;
            answer::rows(session, &["what", "value"], &rows).await
        }
        (Some(show), Some(what)) if show.eq_ignore_ascii_case("SHOW") => {
            match what.trim_end_matches(';').to_ascii_uppercase().as_str() {
                "PINS" => {
                    let rows = pins_of(session);
                    answer::rows(session, &["reason", "digest", "since_seconds"], &rows).await
                }
                "LAST" => {
                    let rows = last_of(session);
                    answer::rows(session, &["server", "address", "role", "why"], &rows).await
                }
                _ => Ok(unknown()),
            }
        }
        (Some(set), Some(_)) if set.eq_ignore_ascii_case("SET") => set_option(session, &text).await,
        // This word is for the test of what a panic leaves behind; it is not in what is released.
        #[cfg(debug_assertions)]
        (Some("PANIC"), None) => panic!("a client has asked for it"),
        _ => Ok(unknown()),
    }
}

fn unknown() -> Next {
    let known = "known are FOREBAY EXPLAIN <statement>, FOREBAY SHOW PINS, FOREBAY SHOW LAST and \
                 FOREBAY SET read_consistency (or lookup_consistency) = <value>"
        .to_owned();
    Next::refuse(SessionError::GatewayStatement(known))
}

/// `FOREBAY SET read_consistency = …`, or `lookup_consistency`.
async fn set_option(session: &mut ClientSession, text: &str) -> Result<Next, SessionError> {
    if let Some(wanted) = lookups::wanted_level(text.as_bytes()) {
        if lookup::set_level(&mut session.lookups, &session.context.listener, wanted) {
            return answer::ok(session).await;
        }
        let why = "no lookup_consistency to be set: the listener has no point_lookups".to_owned();
        return Ok(Next::refuse(SessionError::GatewayStatement(why)));
    }
    let several = session.pool().config().max_writers > 1;
    match consistency(text) {
        Ok(Some(ReadConsistency::Strong)) if several => {
            let why = "not strong, since several servers take writes (max_writers)".to_owned();
            Ok(Next::refuse(SessionError::GatewayStatement(why)))
        }
        Ok(wanted) => set_consistency(session, wanted).await,
        Err(why) => Ok(Next::refuse(SessionError::GatewayStatement(why))),
    }
}

/// A transaction that reads on a replica goes on to the primary where its reads have to be fresher from here
/// on than it has begun with.
async fn set_consistency(
    session: &mut ClientSession,
    wanted: Option<ReadConsistency>,
) -> Result<Next, SessionError> {
    let (before, said) = (session.read_consistency(), session.own_writes.said_consistency());
    session.own_writes.say_consistency(wanted);
    if session.read_consistency() > before
        && transaction::is_on_replica(session)
        && let Err(refused) = Box::pin(transaction::go_now(session)).await
    {
        session.own_writes.say_consistency(said);
        return Ok(refused.into());
    }
    answer::ok(session).await
}

/// The consistency that a `FOREBAY SET` wants; `None` is what the configuration says.
fn consistency(text: &str) -> Result<Option<ReadConsistency>, String> {
    let (left, right) = text.split_once('=').unwrap_or((text, ""));
    let name = left
        .trim_end_matches(':')
        .split_whitespace()
        .nth(2)
        .unwrap_or_default();
    if !name.eq_ignore_ascii_case("read_consistency") {
        let known = "read_consistency and lookup_consistency, to eventual, session, strong or DEFAULT";
        return Err(format!("what can be set is {known}"));
    }
    let value = lookups::bare(right);
    let expected = || format!("read_consistency is eventual, session, strong or DEFAULT, and not '{value}'");
    lookups::consistency_or_default(value).ok_or_else(expected)
}

fn pins_of(session: &ClientSession) -> Vec<Vec<String>> {
    let now_ms = session.context.worker.now_ms();
    let row = |pin: &Pin| {
        let seconds = now_ms.saturating_sub(pin.since_ms) as f64 / 1000.0;
        vec![
            pin.reason.label().to_owned(),
            format!("{:016x}", pin.digest),
            format!("{seconds:.1}"),
        ]
    };
    session.shown_pins().map(row).collect()
}

/// The origin of the answer to the session's last statement; no row before the first one.
fn last_of(session: &ClientSession) -> Vec<Vec<String>> {
    let row = |parts: [&str; 4]| vec![parts.map(str::to_owned).to_vec()];
    match (session.control.of_split.answered.get(), &session.last.server) {
        (Answered::Server { is_primary, why }, Some(server)) => {
            let role = if is_primary { "primary" } else { "replica" };
            row([server.name(), &server.address().to_string(), role, why.label()])
        }
        (Answered::Memory, _) => row(["", "", "memory", "point-lookup"]),
        (Answered::Gateway, _) => row(["", "", "gateway", ""]),
        (Answered::Nobody | Answered::Server { .. }, _) => Vec::new(),
    }
}

/// The facts of a statement, and where it would go.
pub(crate) async fn explain(session: &mut ClientSession, text: &str) -> Vec<Vec<String>> {
    let syntax = session.state.syntax();
    let mut facts = sql_class::facts(text.as_bytes(), syntax);
    command::note_schema(session, text.as_bytes(), &mut facts);
    let digest = sql_class::digest(text.as_bytes(), syntax);
    let mut rows = Vec::new();
    let mut say = |what: &str, value: String| rows.push(vec![what.to_owned(), value]);
    say("class", facts.class.label().to_owned());
    say("effects", effects(&facts));
    say("digest", format!("{:016x}", digest.hash));
    say("digest_text", without_backticks(&digest.text).into_owned());
    let tables = sql_class::tables(text.as_bytes(), syntax);
    let tables: Vec<String> = tables.iter().map(ToString::to_string).collect();
    say("tables", tables.join(", "));
    let looks = rules::explain(session, text.as_bytes(), &facts);
    looks.into_iter().for_each(|(rule, look)| say(&rule, look));
    if rules::answer_it(session) {
        session.rules.explained();
        say("target", "none: a rule answers it".to_owned());
        return rows;
    }
    if session.last.kept_variables.is_some() {
        session.rules.explained();
        say(
            "pinned",
            format!("{}, once they are set again", PinReason::UserVariables.label()),
        );
        return rows;
    }
    if session.lease.is_some() {
        if transaction::is_on_replica(session) {
            say("target", target_in_words(&choose::target(session, &facts)));
        }
        session.rules.explained();
        let reasons = session.state.pins().iter().map(|pin| pin.reason.label());
        say("pinned", reasons.collect::<Vec<_>>().join(", "));
        say("server", session.server_name().to_owned());
        return rows;
    }
    let target = match transaction::may_begin(session, text.as_bytes(), &facts) {
        true => Target::Replica,
        false => choose::target(session, &facts),
    };
    say("target", target_in_words(&target));
    let topology = session.context.listener.cluster.topology();
    if matches!(target, Target::Replica | Target::Group { .. }) {
        say("read_consistency", consistency::wanted(session).word().to_owned());
        let freshness = consistency::needed(session).await.unwrap_or(Freshness::Primary);
        let topology = session.context.listener.cluster.topology();
        let covers = |server: &upstream::Server| freshness.covered_by(server);
        let reasons = choose::explain(session, &topology, target.group(), covers);
        let mut server = None;
        for (member, reason) in topology.members.iter().zip(reasons) {
            let name = member.server.name();
            server = server.or(reason.is_chosen().then_some(name));
            say(
                &format!("candidate {name}"),
                candidate_in_words(session, member, reason),
            );
        }
        say("server", server.unwrap_or("none").to_owned());
    } else {
        let primary = topology.primary().map_or("none", |member| member.server.name());
        let server = match &target {
            Target::Named(name) => name,
            _ => primary,
        };
        say("server", server.to_owned());
    }
    session.rules.explained();
    rows
}

fn candidate_in_words(session: &ClientSession, member: &Member, reason: Explanation) -> String {
    let role = member.role.label();
    match account_backoff::is_denied(session, &member.server) && !reason.is_chosen() {
        true => format!("{role}: refuses the account, and is asked again in a while"),
        false => format!("{role}: {reason}"),
    }
}

fn target_in_words(target: &Target) -> String {
    match target {
        Target::Primary { .. } => "primary".to_owned(),
        Target::Replica => "replica".to_owned(),
        Target::Anywhere => "primary, or any".to_owned(),
        Target::Group { name, .. } => format!("group {name}"),
        Target::Named(name) => format!("server {name}"),
        Target::Held => "held".to_owned(),
    }
}

fn effects(facts: &Facts) -> String {
    let named = Effects::ALL
        .iter()
        .filter(|(effect, _)| facts.effects.contains(*effect));
    named.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_says_how_fresh_its_reads_are() {
        for (text, wanted) in [
            (
                "FOREBAY SET read_consistency = strong",
                Some(ReadConsistency::Strong),
            ),
            (
                "forebay set READ_CONSISTENCY='Session';",
                Some(ReadConsistency::Session),
            ),
            (
                "FOREBAY SET read_consistency := \"eventual\" ; ",
                Some(ReadConsistency::Eventual),
            ),
            ("FOREBAY SET read_consistency=DEFAULT", None),
        ] {
            assert_eq!(consistency(text), Ok(wanted), "{text}");
        }
        for text in [
            "FOREBAY SET read_consistency",
            "FOREBAY SET read_consistency = ",
            "FOREBAY SET read_consistency = fresh",
            "FOREBAY SET GLOBAL read_consistency = strong",
            "FOREBAY SET x = strong",
            "FOREBAY SET = strong",
        ] {
            assert!(consistency(text).is_err(), "{text}");
        }
    }
}
