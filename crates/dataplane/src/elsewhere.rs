//! Sessions that another gateway has, of several that act as one: `KILL` reaches them through an
//! [`Elsewhere`], which knows the others.

use std::pin::Pin;
use std::sync::Arc;

use crate::control::{Control, Signal};
use crate::frontend::listener_state::ListenerState;
use crate::frontend::registry::{Registry, SessionPlace};

/// A session to be ended, by the id that its client knows, or the statement that it has under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillRequest {
    pub id: u32,
    /// Only the session's statement is to end.
    pub query_only: bool,
    /// The account whose session says `KILL`; `None`: an operator, who may end every session.
    pub by: Option<KilledBy>,
}

/// An account whose session says `KILL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KilledBy {
    pub user: Vec<u8>,
    /// The cluster that the account is of.
    pub cluster: String,
    /// A server has said that the account may end sessions of others.
    pub may_others: bool,
}

/// Why a session was not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotKilled {
    /// There is no session of this id. With more words about that, if there are any.
    Unknown(String),
    /// The session is another user's, or another cluster's.
    NotOwner,
    /// The session could not be ended, for this reason in words.
    Failed(String),
}

/// The outcome of such a request.
pub type Killing = Pin<Box<dyn Future<Output = Result<(), NotKilled>> + Send>>;

/// The way to the other gateways.
pub trait Elsewhere: Send + Sync {
    /// Has the gateway that gave the id end the session. The future comes to an end by itself, and soon.
    fn kill(&self, request: KillRequest) -> Killing;
}

/// `KILL` of a session of another gateway, before the rights of the account are known.
pub(crate) struct Far {
    elsewhere: Arc<dyn Elsewhere>,
    request: KillRequest,
}

impl Far {
    /// `None`: no other gateway has given the id.
    pub(crate) fn of(
        (elsewhere, registry): (Option<&Arc<dyn Elsewhere>>, &Registry),
        listener: &ListenerState,
        (id, query_only): (u32, bool),
        user: &[u8],
    ) -> Option<Self> {
        let elsewhere = elsewhere.filter(|_| registry.is_of_another(id))?;
        Some(Self {
            elsewhere: Arc::clone(elsewhere),
            request: KillRequest {
                id,
                query_only,
                by: Some(KilledBy {
                    user: user.to_vec(),
                    cluster: listener.config.cluster.clone(),
                    may_others: false,
                }),
            },
        })
    }

    /// Asks for the `KILL`. `may_others`: whether the account may end sessions of others, which is found out
    /// only where that is needed.
    pub(crate) async fn kill(
        &self,
        control: &Control,
        may_others: bool,
    ) -> Result<Result<(), NotKilled>, Signal> {
        let mut request = self.request.clone();
        if let Some(by) = &mut request.by {
            by.may_others = may_others;
        }
        tokio::select! {
            biased;
            signal = control.signalled(false) => Err(signal),
            killed = self.elsewhere.kill(request) => Ok(killed),
        }
    }
}

/// Whether `by` may end a session that is here: one of the same user, or of others if `by` may end those, in
/// the same cluster. `cluster` is the name of the session's cluster.
pub(crate) fn may_kill(by: &Option<KilledBy>, place: &SessionPlace, cluster: &str) -> bool {
    by.as_ref().is_none_or(|by| {
        let is_own = *place.user == *by.user;
        by.cluster == cluster && (is_own || by.may_others)
    })
}
