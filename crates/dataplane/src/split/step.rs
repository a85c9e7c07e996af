//! How a statement goes on once it was looked at.

use std::pin::Pin;

use crate::error::SessionError;

/// How a statement goes on.
pub(crate) enum Step<'a> {
    /// It is to be relayed: everything is ready for it.
    Relay,
    /// It is at its end, and its answer on its way.
    Done,
    /// Something has to be waited for first. True where it is to be relayed after that, false where it is at
    /// its end.
    ///
    /// Boxed: every session has room for the command and its answer only.
    Wait(Waiting<'a>),
}

/// See [`Step::Wait`].
pub(crate) type Waiting<'a> = Pin<Box<dyn Future<Output = Result<bool, SessionError>> + 'a>>;

impl<'a> Step<'a> {
    /// Something that comes to the end of the statement by itself.
    pub(crate) fn to_the_end(rest: impl Future<Output = Result<(), SessionError>> + 'a) -> Self {
        Self::Wait(Box::pin(async { rest.await.map(|()| false) }))
    }

    pub(crate) async fn ready_to_relay(self) -> Result<bool, SessionError> {
        match self {
            Self::Relay => Ok(true),
            Self::Done => Ok(false),
            Self::Wait(rest) => rest.await,
        }
    }
}
