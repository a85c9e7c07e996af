//! `KILL` of sessions whose server connection changes with every statement.
//!
//! Only the worker of the session knows where it is, so the word is passed to that worker, which ends the
//! session, or has the statement under way killed over another connection of the same account. The connection
//! that a kill aims at is not lent to anybody else meanwhile: the wrong statement would be hit.

use std::rc::Rc;
use std::sync::Arc;

use sql_class::Facts;
use sql_class::text::Kill;
use tokio::time::timeout;

use crate::command_head::CommandHead;
use crate::control::{Control, Signal};
use crate::elsewhere::{Far, NotKilled};
use crate::engine::answered::Answered;
use crate::engine::ask::{self, Reply};
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::next::{Next, Query};
use crate::engine::{answer, command, lease};
use crate::error::{SessionError, not_killed};
use crate::frontend::kill_right;
use crate::frontend::registry::{SessionPlace, is_ours};
use upstream::{Cluster, Direct, DirectError, Server, ServerId};

/// Executes a `KILL` whose id may be one that the gateway gave out.
pub(crate) async fn statement(
    session: &mut ClientSession,
    head: CommandHead,
    kill: Kill,
    facts: Facts,
) -> Result<Next, SessionError> {
    match is_ours(kill.id) {
        true => kill_session(session, kill).await,
        false => Ok(Next::QueryOnPrimary(Box::new(Query { head, facts }))),
    }
}

/// COM_PROCESS_KILL.
pub(crate) async fn process_kill(
    session: &mut ClientSession,
    head: CommandHead,
) -> Result<Next, SessionError> {
    match command::kill(session, head).filter(|kill| is_ours(kill.id)) {
        Some(kill) => kill_session(session, kill).await,
        None => Ok(Next::Forward),
    }
}

/// Kills the session to which the gateway gave this id.
async fn kill_session(session: &mut ClientSession, kill: Kill) -> Result<Next, SessionError> {
    let Some(place) = session.context.worker.shared.registry.find(kill.id) else {
        return kill_elsewhere(session, kill).await;
    };
    let may = match may_kill(session, &place) {
        Some(may) => Ok(may),
        None => may_kill_others(session).await?,
    };
    match may {
        Ok(true) => {}
        Ok(false) => return Ok(Next::refuse(SessionError::NotOwner(kill.id))),
        Err(refused) => return Ok(refused.into()),
    }
    let is_itself = kill.id == session.control.id;
    if kill.query_only && is_itself {
        return Ok(Next::refuse(SessionError::Interrupted));
    }
    if is_itself {
        session.answer.error_sequence = Some(answer::discard(session).await?);
        return Err(SessionError::KilledItself {
            mariadb: session.state.syntax().dialect.is_mariadb(),
        });
    }
    session.control.of_split.answered.set(Answered::Gateway);
    let (shared, cluster) = (&session.context.worker.shared, &session.context.listener.cluster);
    let killed = shared.kill_in_pool(place.worker, (kill.id, kill.query_only), cluster);
    if !kill.query_only {
        return answer::ok(session).await;
    }
    let killed = tokio::select! {
        biased;
        signal = session.control.signalled(false) => return Err(session.signalled(signal)),
        killed = killed => killed,
    };
    // A worker that has stopped has no statement under way.
    match killed.unwrap_or(Ok(())) {
        Ok(()) => answer::ok(session).await,
        Err(cause) => Ok(Next::refuse(SessionError::KillFailed(cause))),
    }
}

/// Kills the session to which another gateway gave this id, if one did. The other gateway knows whose session
/// it is; whether the account may end those of others is asked here, if that counts.
async fn kill_elsewhere(session: &mut ClientSession, kill: Kill) -> Result<Next, SessionError> {
    let (shared, listener) = (&session.context.worker.shared, &session.context.listener);
    let what = (kill.id, kill.query_only);
    let user = session.client.account.user.name.as_bytes();
    let Some(far) = Far::of(shared.sessions_anywhere(), listener, what, user) else {
        return Ok(Next::refuse(SessionError::NoSuchSession(kill.id)));
    };
    let killed = far.kill(&session.control, false).await;
    let mut killed = killed.map_err(|signal| session.signalled(signal))?;
    if killed == Err(NotKilled::NotOwner) {
        match may_kill_others(session).await? {
            Ok(true) => {
                let again = far.kill(&session.control, true).await;
                killed = again.map_err(|signal| session.signalled(signal))?;
            }
            Ok(false) => {}
            Err(refused) => return Ok(refused.into()),
        }
    }
    if let Err(why) = killed {
        return Ok(Next::refuse(not_killed(kill.id, why)));
    }
    session.control.of_split.answered.set(Answered::Gateway);
    answer::ok(session).await
}

/// Whether the user may end the session at `place`: always one of the same user, and never one of another
/// cluster, where the user's rights say nothing. `None`: a server has to say whether the user may end
/// sessions of others.
fn may_kill(session: &ClientSession, place: &SessionPlace) -> Option<bool> {
    if place.cluster != session.context.listener.cluster_serial {
        return Some(false);
    }
    (*place.user == *session.client.account.user.name.as_bytes()).then_some(true)
}

/// Whether the user may end sessions of others on the servers of this cluster.
async fn may_kill_others(session: &mut ClientSession) -> Result<Result<bool, Refused>, SessionError> {
    let asked = match session.lease.is_some() {
        // Roles that the session has taken on are on this connection. A conversation that breaks ends the
        // session.
        true => {
            let question = [ask::query(session.client.key.capabilities, kill_right::QUESTION)];
            Ok(lease::ask_on_lease(session, &question)
                .await
                .map_err(|Refused(error)| lease::lost_before(session, error))?)
        }
        false => {
            let asked = Box::pin(asked_of_a_server(session));
            tokio::select! {
                biased;
                signal = session.control.signalled(false) => return Err(session.signalled(signal)),
                asked = asked => asked,
            }
        }
    };
    Ok(asked.map(|replies| {
        let version = &session.client.profile.server_version;
        let reply = replies.first();
        reply.is_some_and(|reply| kill_right::allowed_by(reply, version))
    }))
}

/// Asks any server that the session may use, as its account: the primary, where there is one. The connection
/// is outside the pool, whose connections may all be held by those whom the `KILL` is meant for; one at a
/// time on each worker.
async fn asked_of_a_server(session: &ClientSession) -> Result<Vec<Reply>, Refused> {
    let failed = |cause: String| Refused(SessionError::KillFailed(cause));
    let cluster = &session.context.listener.cluster;
    let server = any_server(session)
        .ok_or_else(|| failed("no server can be asked for the account's rights".to_owned()))?;
    let _one_at_a_time = session.context.cluster.kill_question.lock().await;
    let limit = cluster.config().login_timeout;
    let asking = async {
        let account = session.client.account.credential.account_to_log_in();
        let opened = match Direct::open(cluster, &server, account).await {
            // The servers may have another password than the client by now.
            Err(DirectError::Refused(packet)) => match &session.client.account.other_credential {
                Some(other) => Direct::open(cluster, &server, other.account_to_log_in()).await,
                None => Err(DirectError::Refused(packet)),
            },
            opened => opened,
        };
        let mut direct = opened.map_err(|error| failed(error.to_string()))?;
        let question = [ask::query(direct.capabilities, kill_right::QUESTION)];
        let replies = ask::ask(&mut direct.stream, direct.capabilities, &question).await;
        let replies = replies.map_err(|broken| failed(ask::cause(broken)))?;
        direct.close().await;
        Ok(replies)
    };
    let asked = timeout(limit, asking).await;
    asked.unwrap_or_else(|_| Err(failed(format!("no answer within {limit:?}"))))
}

/// The primary, else any server that takes statements.
fn any_server(session: &ClientSession) -> Option<Arc<Server>> {
    let topology = session.pool().topology();
    let any = || {
        let mut members = topology.members.iter();
        members.find(|member| member.server.takes_statements())
    };
    let member = session.writer(&topology).or_else(any)?;
    Some(Arc::clone(&member.server))
}

/// Ends a session, on its worker, and has the connection that it holds killed by the account that watches the
/// servers: a server goes on with a statement whose client is gone, and commits it.
pub(crate) async fn end(control: Rc<Control>, cluster: Arc<Cluster>) {
    let server_connection = control.server_connection();
    let _aim = control.aim();
    control.raise(Signal::Kill);
    let Some((server, thread_id)) = server_connection.filter(|(_, thread_id)| *thread_id != 0) else {
        return;
    };
    let kill = kill_on(&cluster, server.server, "");
    if let Err(cause) = cluster.kill(server.server, &format!("{kill}{thread_id}")).await {
        let session = control.id;
        tracing::info!(
            session,
            cause,
            "session ended; its server may go on with its statement"
        );
    }
}

/// Has the statement under way of a session killed, on its worker, by the account that watches the servers.
pub(crate) async fn shoot(control: Rc<Control>, cluster: Arc<Cluster>) -> Result<(), String> {
    let Some((server, thread_id)) = control.server_connection() else {
        // Between two statements there is nothing to be killed, as on a server.
        return Ok(());
    };
    let _aim = control.aim();
    let kill = kill_on(&cluster, server.server, "QUERY ");
    cluster.kill(server.server, &format!("{kill}{thread_id}")).await
}

/// The `KILL` statement up to the id. TiDB does nothing for a plain `KILL`: see [`crate::answer`].
fn kill_on(cluster: &Cluster, server: ServerId, what: &str) -> String {
    let profile = cluster.server(server).and_then(|known| known.profile());
    let is_tidb = profile.is_some_and(|known| known.is_tidb());
    format!("KILL {}{what}", if is_tidb { "TIDB " } else { "" })
}
