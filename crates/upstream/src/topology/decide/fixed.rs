//! Kind `static`: the roles are written down, or there is but one server.

use super::{Judged, Verdict, names};
use crate::topology::observation::{Observation, Sight};

/// The server whose `role` is `primary` is it, and where there is only one server it needs no `role`. Others are
/// replicas. A primary that is gone has no stand-in: nobody said which one. What servers say of themselves, where a
/// monitor asks them, is good for their lag.
pub(super) fn decide(servers: &[Observation]) -> Verdict {
    let is_primary = |server: &Observation| match server.role {
        Some(role) => role == config::Role::Primary,
        None => servers.len() == 1,
    };
    let primaries: Vec<usize> = (0..servers.len())
        .filter(|&at| is_primary(&servers[at]))
        .collect();
    let conflict =
        (primaries.len() > 1).then(|| format!("{} have role = \"primary\"", names(servers, &primaries)));
    let judge = |server: &Observation| match (&server.sight, is_primary(server)) {
        (Sight::Gone { reason }, _) => Judged::unusable(reason),
        (_, false) => {
            let reason = match server.role {
                Some(_) => "role = \"replica\"",
                None => "has no role = \"primary\"",
            };
            Judged::replica(reason, server.lag.map(|lag| lag.was + lag.age))
        }
        (_, true) if conflict.is_some() => Judged::unusable("is not the only one with role = \"primary\""),
        (_, true) if server.role.is_none() => Judged::primary("is the only server"),
        (_, true) => Judged::primary("role = \"primary\""),
    };
    Verdict::of(servers.iter().map(judge).collect(), conflict)
}
