//! Sessions of mode `session` that need not be understood: each command is told apart by its first byte, and
//! relayed.

pub(crate) mod classify;
pub(crate) mod forward;
pub(crate) mod process_list;
pub(crate) mod serve;
pub(crate) mod session;
pub(crate) mod settle;
