//! Commands that the gateway has to change or answer itself: connection ids in `KILL`, and the login within a
//! session.

use std::future::poll_fn;

use mysql_wire::{Command, PacketHeader, command_packet};
use net::Peer;
use tokio::io::AsyncWriteExt;
use upstream::{Server, ServerId, ServerProfile};

use sql_class::text::Kill;

use crate::command_head::CommandHead;
use crate::control::{Control, Waiting};
use crate::elsewhere::{Far, NotKilled};
use crate::engine::ask;
use crate::error::{SessionError, not_killed};
use crate::forwarded::forward;
use crate::forwarded::session::Session;
use crate::frontend::guesses::Guesses;
use crate::frontend::handshake::{self, Agreed, Changed};
use crate::frontend::kill_right;
use crate::frontend::listener_state::ListenerState;
use crate::frontend::packet_io::{LOGIN_PACKET_MAX, LoginPeer};
use crate::frontend::registry::{SessionPlace, is_ours};
use crate::frontend::user_name::shown_user;
use crate::relay::{Exchanged, RelayError, Streams};
use crate::session_end::error_bytes;

/// Sends a `KILL` with the connection id that the server knows. Ids that are not ours, or nobody's, go as
/// they are.
///
/// A session on another server of the cluster is reached by the account of the checks, if there is one: the
/// session has to be the same user's, or the client's server says that the user may end those of others.
/// Without such an account, the gateway ends the session itself if the whole connection is to end; if only
/// the statement is, the client's server answers for an id it does not know (1094).
pub(crate) async fn kill(
    session: &mut Session,
    head: CommandHead,
    kill: Kill,
) -> Result<Exchanged, RelayError> {
    let registry = &session.worker.shared.registry;
    let found = is_ours(kill.id).then(|| registry.find(kill.id)).flatten();
    let Some(place) = found else {
        let far = {
            let own = registry.find(session.control.id);
            let what = (kill.id, kill.query_only);
            own.and_then(|own| {
                Far::of(
                    session.worker.shared.sessions_anywhere(),
                    &session.listener,
                    what,
                    &own.user,
                )
            })
        };
        if let Some(far) = far {
            return kill_on_another_gateway(session, head, kill.id, far).await;
        }
        return forward::forward(session, head).await;
    };
    if let Some((server, thread_id)) = place.server_connection
        && server == session.listener.key(&session.server)
    {
        let kill = in_words_of(kill, session.server.profile().as_deref());
        return send_instead(session, head, &kill_text(kill, thread_id)).await;
    }
    if !may_kill(session, &place).await? {
        return answer(session, head, Err(SessionError::NotOwner(kill.id))).await;
    }
    let has_account = session.listener.cluster.has_account();
    match place.server_connection {
        Some((server, thread_id)) if has_account => {
            let target = session.listener.cluster.server(server.server);
            let profile = target.and_then(|target| target.profile());
            let kill = in_words_of(kill, profile.as_deref());
            kill_elsewhere(session, head, server.server, &kill_text(kill, thread_id)).await
        }
        None if has_account => kill_in_pool(session, head, kill, &place).await,
        _ if !kill.query_only => {
            session.worker.shared.kill(place.worker, kill.id);
            answer(session, head, Ok(())).await
        }
        _ => forward::forward(session, head).await,
    }
}

/// Whether the user may end the session at `place`: it is the user's own, or the user may end those of
/// others. A server asks the same. Sessions of other clusters are other servers' sessions, where the user's
/// rights say nothing.
async fn may_kill(session: &mut Session, place: &SessionPlace) -> Result<bool, RelayError> {
    if place.cluster != session.listener.cluster_serial {
        return Ok(false);
    }
    let own = session.worker.shared.registry.find(session.control.id);
    if own.is_some_and(|own| own.user == place.user) {
        return Ok(true);
    }
    may_kill_others(session).await
}

/// Whether the user may end sessions of others on the server of this session.
async fn may_kill_others(session: &mut Session) -> Result<bool, RelayError> {
    let question = [ask::query(session.capabilities, kill_right::QUESTION)];
    let asked = tokio::select! {
        biased;
        signal = session.control.signalled(false) => return Err(RelayError::Signal(signal)),
        asked = ask::ask(&mut session.streams.server, session.capabilities, &question) => asked,
    };
    // Nobody knows what comes next on a connection whose conversation broke.
    let replies = asked.map_err(|_| RelayError::Server)?;
    let profile = session.server.profile();
    Ok(replies
        .first()
        .zip(profile)
        .is_some_and(|(reply, profile)| kill_right::allowed_by(reply, &profile.server_version)))
}

/// Kills a session of another gateway. The other gateway knows whose it is; whether the account may end
/// those of others is asked here, if that counts.
async fn kill_on_another_gateway(
    session: &mut Session,
    head: CommandHead,
    id: u32,
    far: Far,
) -> Result<Exchanged, RelayError> {
    let killed = far.kill(&session.control, false).await;
    let mut killed = killed.map_err(RelayError::Signal)?;
    if killed == Err(NotKilled::NotOwner) && may_kill_others(session).await? {
        let again = far.kill(&session.control, true).await;
        killed = again.map_err(RelayError::Signal)?;
    }
    let killed = killed.map_err(|why| not_killed(id, why));
    answer(session, head, killed).await
}

/// Kills a session of mode `split` through its worker, which alone knows where the session is.
async fn kill_in_pool(
    session: &mut Session,
    head: CommandHead,
    kill: Kill,
    place: &SessionPlace,
) -> Result<Exchanged, RelayError> {
    let (shared, cluster) = (&session.worker.shared, &session.listener.cluster);
    let killed = shared.kill_in_pool(place.worker, (kill.id, kill.query_only), cluster);
    if !kill.query_only {
        return answer(session, head, Ok(())).await;
    }
    let killed = tokio::select! {
        biased;
        signal = session.control.signalled(false) => return Err(RelayError::Signal(signal)),
        killed = killed => killed,
    };
    // A worker that has stopped has no statement under way.
    let killed = killed.unwrap_or(Ok(())).map_err(SessionError::KillFailedThere);
    answer(session, head, killed).await
}

/// Kills a session by the account of the checks, on the server that the session is on.
async fn kill_elsewhere(
    session: &mut Session,
    head: CommandHead,
    server: ServerId,
    statement: &str,
) -> Result<Exchanged, RelayError> {
    let ran = tokio::select! {
        biased;
        signal = session.control.signalled(false) => return Err(RelayError::Signal(signal)),
        ran = session.listener.cluster.kill(server, statement) => ran,
    };
    answer(session, head, ran.map_err(SessionError::KillFailedThere)).await
}

/// Answers a `KILL` that the client's server has not heard of. The session goes on.
async fn answer(
    session: &mut Session,
    head: CommandHead,
    killed: Result<(), SessionError>,
) -> Result<Exchanged, RelayError> {
    match killed {
        // The server is asked for an OK of its own, with its status flags, by a statement that does nothing.
        Ok(()) => send_instead(session, head, "DO 0").await,
        Err(error) => refuse(session, head, &error).await,
    }
}

/// Answers the command with an error of the gateway's. The session goes on.
async fn refuse(
    session: &mut Session,
    head: CommandHead,
    error: &SessionError,
) -> Result<Exchanged, RelayError> {
    let len = PacketHeader::LEN + head.payload_len;
    session.streams.up.discard(len);
    session.streams.traffic.add_from_client(len);
    session.streams.begin_command()?;
    if let Some(packet) = error.to_packet() {
        session.worker.metrics.error_sent(packet.code, error.fault());
        session.control.record.note_error(packet.code);
        let bytes = error_bytes(&packet, 1, session.capabilities);
        session.streams.down.fill(&bytes);
    }
    let len = session.streams.down.unseen().len();
    session.streams.down.approve(len);
    let streams = &mut session.streams;
    let written = poll_fn(|cx| streams.down.poll_write(cx, &mut streams.client));
    tokio::select! {
        biased;
        signal = session.control.signalled(false) => return Err(RelayError::Signal(signal)),
        written = written => written.map_err(RelayError::Client)?,
    }
    Ok(Exchanged::Sent)
}

/// The `KILL` as this server takes it. TiDB takes a plain `KILL` for one that a balancer may have brought to
/// the wrong server, and does nothing; here the id is known to be this server's.
fn in_words_of(kill: Kill, server: Option<&ServerProfile>) -> Kill {
    let tidb = kill.tidb || !kill.soft && server.is_some_and(ServerProfile::is_tidb);
    Kill { tidb, ..kill }
}

pub(crate) fn kill_text(kill: Kill, thread_id: u32) -> String {
    let how = match kill {
        Kill { tidb: true, .. } => "TIDB ",
        Kill { soft: true, .. } => "SOFT ",
        _ => "",
    };
    let what = if kill.query_only { "QUERY " } else { "CONNECTION " };
    format!("KILL {how}{what}{thread_id}")
}

/// Sends a statement in the place of the command that the client sent, which is dropped. The response is the
/// client's.
async fn send_instead(session: &mut Session, head: CommandHead, text: &str) -> Result<Exchanged, RelayError> {
    session.streams.up.discard(PacketHeader::LEN + head.payload_len);
    let packet = command_packet(&ask::query(session.capabilities, text));
    session.streams.begin_command()?;
    let written = async {
        session.streams.server.write_all(&packet).await?;
        session.streams.server.flush().await
    };
    written.await.map_err(|_| RelayError::Server)?;
    session.response.begin(Command::QUERY);
    forward::response(session).await
}

/// Whether a COM_CHANGE_USER of so many bytes is no longer than a packet of a login may be.
pub(crate) const fn change_user_packet_fits(payload_len: usize) -> bool {
    payload_len <= LOGIN_PACKET_MAX
}

/// Serves a COM_CHANGE_USER.
pub(crate) async fn change_user(session: &mut Session, head: CommandHead) -> Result<(), SessionError> {
    if !change_user_packet_fits(head.payload_len) {
        session.error_sequence = Some(1);
        return Err(SessionError::PacketTooLong(head.payload_len));
    }
    session.control.mark(Waiting::Login);
    session.streams.traffic.commands += 1;
    session.worker.metrics.commands[usize::from(head.command.0)].inc();
    session
        .streams
        .begin_command()
        .map_err(|broken| session.broken(broken))?;
    let (changed, sequence) = log_in_anew(
        &mut session.streams,
        &session.listener,
        Agreed::alike(session.capabilities),
        (&session.server, &session.control),
        (&session.worker.shared.accounts.guesses, &session.peer),
    )
    .await;
    session.error_sequence = Some(sequence);
    match changed? {
        Changed::To(request, status, _) => {
            session.status = status;
            let shown = shown_user(&request.user);
            session.control.name_user(&shown);
            // The low byte of a collation above 255 is noted, as at the login.
            let collation = request.charset.map(|charset| charset as u8);
            session.control.name_login(Some(&request.database), collation);
            session.changed_user = Some(shown);
            let registry = &session.worker.shared.registry;
            registry.rename(session.control.id, request.user.into());
        }
        // The client has the server's error. For a while, the server decides whether the connection goes on.
        Changed::Refused { is_denied, .. } => {
            if is_denied && session.control.login_failed() >= session.listener.config.login_failures_max {
                session.error_sequence = None;
                return Err(SessionError::LoginsRefused);
            }
        }
    }
    Ok(())
}

/// Passes on a COM_CHANGE_USER and what both sides say about it until the server has decided. When this
/// returns a decision, the client has heard it. The number is the sequence number that an error has then.
pub(crate) async fn log_in_anew(
    streams: &mut Streams,
    listener: &ListenerState,
    agreed: Agreed,
    parties: (&Server, &Control),
    (guesses, peer): (&Guesses, &Peer),
) -> (Result<Changed, SessionError>, u8) {
    let unread = streams.up.take_unseen();
    let (mut client_sequence, mut server_sequence) = (0, 0);
    let mut client = LoginPeer::new(&mut streams.client, &mut client_sequence, unread);
    let mut server = LoginPeer::new(&mut streams.server, &mut server_sequence, Vec::new());
    let changing = async {
        let (client, server) = (&mut client, &mut server);
        let who = (guesses, peer);
        let changed = handshake::change_user(client, server, listener, agreed, parties, who).await?;
        if let Changed::Refused { payload, held, .. } = &changed {
            tokio::time::sleep(*held).await;
            client.write(payload).await.map_err(SessionError::ClientFailed)?;
        }
        Ok(changed)
    };
    let changed = changing.await;
    streams.up.fill(&client.into_unread());
    streams.down.fill(&server.into_unread());
    (changed, client_sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_of_a_session_on_tidb_says_that_it_is_for_this_server() {
        let server = |version: &str| ServerProfile {
            server_version: version.as_bytes().to_vec(),
            capabilities: mysql_wire::Capabilities::default(),
            charset: 45,
            auth_plugin: Vec::new(),
            status: mysql_wire::StatusFlags::default(),
        };
        let [tidb, mysql] = ["5.7.25-TiDB-v5.4.0", "9.7.4"].map(server);
        let kill = Kill {
            id: 1 << 30 | 1,
            query_only: true,
            soft: false,
            tidb: false,
        };
        let on = |kill, server| kill_text(in_words_of(kill, server), 7);
        assert_eq!(on(kill, Some(&tidb)), "KILL TIDB QUERY 7");
        assert_eq!(on(kill, Some(&mysql)), "KILL QUERY 7");
        assert_eq!(on(kill, None), "KILL QUERY 7");
        // A `KILL` that the client has written and no server understands is for its server to refuse.
        let soft = Kill { soft: true, ..kill };
        assert_eq!(on(soft, Some(&tidb)), "KILL SOFT QUERY 7");
        let written = Kill {
            tidb: true,
            query_only: false,
            ..kill
        };
        assert_eq!(on(written, Some(&mysql)), "KILL TIDB CONNECTION 7");
    }
}
