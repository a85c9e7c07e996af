//! Sessions that another gateway has, of several that act as one: `KILL` reaches them through whoever knows
//! the others.

use std::pin::Pin;
use std::sync::Arc;

use crate::control::{Control, Signal};
use crate::frontend::listener_state::ListenerState;
use crate::frontend::registry::{Registry, SessionPlace};

/// A session to be ended, by the id that its client knows, or the statement that it has under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillRequest {
    pub id: u32,
    /// Only its statement.
    pub query_only: bool,
    /// Whose session says it; none: an operator, who may end every session.
    pub by: Option<KilledBy>,
}

/// Whose session says `KILL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KilledBy {
    pub user: Vec<u8>,
    /// The cluster whose account it is.
    pub cluster: String,
    /// A server has said that it may end sessions of others.
    pub may_others: bool,
}

/// Why a session was not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotKilled {
    /// There is none of this id. With more words about that, if there are any.
    Unknown(String),
    /// It is another user's, or another cluster's.
    NotOwner,
    /// In words.
    Failed(String),
}

/// What comes of it.
pub type Killing = Pin<Box<dyn Future<Output = Result<(), NotKilled>> + Send>>;

/// Who reaches the other gateways.
pub trait Elsewhere: Send + Sync {
    /// Has the gateway that gave the id end the session. It comes to an end by itself, and soon.
    fn kill(&self, request: KillRequest) -> Killing;
}

/// `KILL` of a session of another gateway, where its rights are not known yet.
pub(crate) struct Far {
    elsewhere: Arc<dyn Elsewhere>,
    request: KillRequest,
}

impl Far {
    /// `None`: no other gateway has it.
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

    /// Asks for it; whether the account `may_others`, is asked only where that is needed.
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

/// Whether who asks may end a session that is here: his own, or those of others in the same cluster.
/// `cluster`: the name of the session's.
pub(crate) fn may_kill(by: &Option<KilledBy>, place: &SessionPlace, cluster: &str) -> bool {
    by.as_ref().is_none_or(|by| {
        let is_own = *place.user == *by.user;
        by.cluster == cluster && (is_own || by.may_others)
    })
}
