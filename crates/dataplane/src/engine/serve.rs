//! The life of a connection in mode `split`: its login, its commands, its end.

use net::Accepted;

use crate::engine::client_session::ClientSession;
use crate::engine::login::log_in;
use crate::engine::{answer, finish, lease, run};
use crate::error::SessionError;
use crate::frontend::counted::Counted;
use crate::frontend::session_summary::SessionSummary;

pub(crate) async fn serve(
    counted: &Counted,
    accepted: Accepted,
    summary: &mut SessionSummary,
) -> SessionError {
    let mut session = match Box::pin(log_in(counted, accepted, summary)).await {
        Ok(session) => session,
        Err(error) => {
            counted.metrics.login_failures.inc();
            return error;
        }
    };
    // The user's name comes from the account from here on.
    summary.user = Box::default();
    let Err(error) = run::run(&mut session).await;
    Box::pin(end(&mut session, error, summary)).await
}

/// Ends the session for this reason.
pub(crate) async fn end(
    session: &mut ClientSession,
    error: SessionError,
    summary: &mut SessionSummary,
) -> SessionError {
    // Observers hear of a command that was to be sent once more.
    finish::tell(session, session.statement.head.command, Err(&error));
    answer::farewell(session, &error).await;
    if matches!(error, SessionError::ClientQuit)
        && let Some(connection) = lease::detach(session)
    {
        connection.quit();
    }
    summary.server = session.last.server.take();
    summary.user = String::from_utf8_lossy(session.client.account.user.name.as_bytes()).into();
    summary.count(&session.streams.traffic);
    error
}
