//! Kind `static`: the roles are written down, or there is but one server.

use super::{Judged, Rules, Verdict, names};
use crate::topology::observation::{Facts, Observation, Visibility};

/// The server whose `role` is `primary` is it, and where there is only one server it needs no `role`. Others
/// are replicas. A primary that is gone has no stand-in: nobody said which one. What servers say of
/// themselves, where a monitor asks them, is good for their lag: where `lag_must_be_known`, a replica that
/// follows somebody and does not say how closely, or cannot be asked, is of no use. One that follows nobody
/// has no lag.
pub(super) fn decide(servers: &[Observation], rules: Rules) -> Verdict {
    let is_primary = |server: &Observation| match server.role {
        Some(role) => role == config::Role::Primary,
        None => servers.len() == 1,
    };
    let primaries: Vec<usize> = (0..servers.len())
        .filter(|&at| is_primary(&servers[at]))
        .collect();
    let conflict =
        (primaries.len() > 1).then(|| format!("{} have role = \"primary\"", names(servers, &primaries)));
    let judge = |server: &Observation| match (&server.visibility, is_primary(server)) {
        (Visibility::Lost { reason }, _) => Judged::unusable(reason),
        (visibility, false)
            if rules.lag_must_be_known && server.lag.is_none() && !follows_nobody(visibility) =>
        {
            Judged::unusable("its lag is not known, and `max_lag` limits it")
        }
        (_, false) => {
            let reason = match server.role {
                Some(_) => "role = \"replica\"",
                None if !rules.uses_roles => "roles play no part: no listener of mode split uses the cluster",
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

/// Kind `tidb`: any of them reads and writes, and no session needs to know more than which are there.
pub(super) fn decide_alike(servers: &[Observation]) -> Verdict {
    let judge = |server: &Observation| match &server.visibility {
        Visibility::Lost { reason } => Judged::unusable(reason),
        _ => Judged::replica("reads and writes, as all TiDB servers do", None),
    };
    Verdict::of(servers.iter().map(judge).collect(), None)
}

/// As it has said itself.
fn follows_nobody(visibility: &Visibility) -> bool {
    matches!(visibility.facts(), Some(Facts::Replication(facts)) if facts.sources.is_empty())
}
