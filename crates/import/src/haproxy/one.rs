//! Sections in which one server has all sessions at a time, although several stand there without `backup`:
//! the usual way to have one writer in front of Galera.

use super::parameters::Taken;
use super::proxy::{Proxy, Server};
use super::samples::is_same_for_all;

/// The words by which a section gives all sessions to one server at a time, and why that is what they do.
pub(super) fn words(proxy: &Proxy) -> Option<(Taken<String>, &'static str)> {
    let of_balance = || {
        let taken = proxy.balance.as_ref()?;
        let why = match taken.value.split_once(' ') {
            None if taken.value == "first" => {
                "HAProxy fills the first server up to its `maxconn` before it takes the next, and with one writer that is what this is for"
            }
            Some(("hash", expression)) if is_same_for_all(expression) => {
                "all clients have the same hash, and go to the same server"
            }
            _ => return None,
        };
        let value = format!("`balance {}`", taken.value);
        Some((
            Taken {
                value,
                line: taken.line,
            },
            why,
        ))
    };
    let sticks = proxy.sticks.clone();
    sticks
        .map(|taken| {
            (
                taken,
                "all clients have one entry in the table, and go to the same server",
            )
        })
        .or_else(of_balance)
}

/// The server that comes first, by `id` where that is said: those without have the smallest that is left.
pub(super) fn first<'s, 'p>(servers: &'s [(String, &'p Server)]) -> Option<&'s (String, &'p Server)> {
    let id = |server: &Server| server.parameters.id.as_ref().map(|id| id.value);
    let taken: Vec<u64> = servers.iter().filter_map(|(_, server)| id(server)).collect();
    let mut left = (1..).filter(|id| !taken.contains(id));
    let numbered: Vec<_> = servers
        .iter()
        .map(|server| (id(server.1).or_else(|| left.next()), server))
        .collect();
    let takes_sessions = |server: &Server| {
        let parameters = &server.parameters;
        let has_weight = parameters.weight.as_ref().is_none_or(|weight| weight.value > 0);
        has_weight && parameters.is_backup.is_none() && parameters.disabled.is_none()
    };
    let candidates = numbered
        .into_iter()
        .filter(|(_, server)| takes_sessions(server.1));
    candidates.min_by_key(|(id, _)| *id).map(|(_, server)| server)
}
