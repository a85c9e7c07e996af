//! The client of a session: who it is, and how it has come.

use std::rc::Rc;
use std::sync::Arc;

use mysql_wire::compression::Algorithm;
use mysql_wire::{Capabilities, Login};
use net::Peer;
use upstream::{Key, ServerProfile};

use crate::frontend::authenticate::Authenticated;

/// The facts that a client's login has said and proved. COM_CHANGE_USER changes them.
pub(crate) struct Identity {
    pub(crate) account: Authenticated,
    /// The client's address as accounts and messages name it.
    pub(crate) host: Peer,
    pub(crate) login: Login,
    /// The client's capabilities.
    pub(crate) capabilities: Capabilities,
    /// The properties that the session's server connections share with those of others.
    pub(crate) key: Rc<Key>,
    /// The properties that the cluster's servers had in common when the client came.
    pub(crate) profile: Arc<ServerProfile>,
    /// The compression that client and gateway have agreed on.
    pub(crate) compression: Option<Algorithm>,
}
