//! The next step of a command. Each stage names it, and the loop alone takes it: no stage calls another one.

use std::pin::Pin;

use session::Prepared;
use sql_class::Facts;

use crate::command_head::CommandHead;
use crate::engine::client_session::Refused;
use crate::error::SessionError;
use crate::relay::RelayOutcome;

/// The next step of the command under way. Boxed, so that a session that waits has little room for it.
pub(crate) enum Next {
    /// The command itself, which something had to go ahead of.
    Begin,
    /// Rules are asked about a statement of text.
    RuleQuery(Box<Query>),
    /// A target is found for a statement of text. Rules have said all that they have to say.
    RouteQuery(Box<Query>),
    /// A statement of text goes to the primary as it is.
    QueryOnPrimary(Box<Query>),
    /// Rules are asked about the execution of a prepared statement.
    RuleExecution(Box<Execution>),
    /// A target is found for the execution of a prepared statement. Rules have said all that they have to
    /// say.
    RouteExecution(Box<Execution>),
    /// The client's statement is prepared. Rules have said all that they have to say.
    Prepare,
    /// A command that is no statement goes to the primary, or to where the session is.
    Forward,
    /// The command is ready: it is sent over the leased connection, and its answer is relayed.
    Exchange,
    /// The exchange is over, one way or another.
    Settle(Box<RelayOutcome>),
    /// The command is not executed, and its client is told why.
    Refuse(Box<SessionError>),
    /// The command has its answer, or is to be sent once more.
    Done,
}

/// A statement of text, as the client sent it or as a rule has it.
pub(crate) struct Query {
    pub(crate) head: CommandHead,
    pub(crate) facts: Facts,
}

/// The client executes a statement that it has prepared.
pub(crate) struct Execution {
    pub(crate) head: CommandHead,
    /// The client's id of the statement.
    pub(crate) id: u32,
    pub(crate) prepared: Prepared,
}

impl Next {
    pub(crate) fn rule_query(head: CommandHead, facts: Facts) -> Self {
        Self::RuleQuery(Box::new(Query { head, facts }))
    }

    pub(crate) fn route_query(head: CommandHead, facts: Facts) -> Self {
        Self::RouteQuery(Box::new(Query { head, facts }))
    }

    pub(crate) fn settle(ended: RelayOutcome) -> Self {
        Self::Settle(Box::new(ended))
    }

    pub(crate) fn refuse(error: SessionError) -> Self {
        Self::Refuse(Box::new(error))
    }
}

impl From<Refused> for Next {
    fn from(Refused(error): Refused) -> Self {
        Self::refuse(error)
    }
}

/// The next step, or the wait before it is known.
pub(crate) enum Step<'a> {
    Now(Next),
    /// Boxed: every session has room for the command and its answer only.
    Wait(Pin<Box<dyn Future<Output = Result<Next, SessionError>> + 'a>>),
}

impl<'a> Step<'a> {
    pub(crate) fn wait(rest: impl Future<Output = Result<Next, SessionError>> + 'a) -> Self {
        Self::Wait(Box::pin(rest))
    }

    pub(crate) async fn next(self) -> Result<Next, SessionError> {
        match self {
            Self::Now(next) => Ok(next),
            Self::Wait(rest) => rest.await,
        }
    }
}

impl From<Next> for Step<'_> {
    fn from(next: Next) -> Self {
        Self::Now(next)
    }
}
