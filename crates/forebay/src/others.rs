//! `KILL` of sessions of other gateways, between the data plane and the fleet.

use std::sync::Arc;

use dataplane::Gateway;
use dataplane::elsewhere::{Elsewhere, KillRequest, KilledBy, Killing, NotKilled};
use fleet::{Fleet, Kill, Killer, OnKilled};

pub(crate) struct Others(pub(crate) Arc<Fleet>);

impl Elsewhere for Others {
    fn kill(&self, request: KillRequest) -> Killing {
        let fleet = Arc::clone(&self.0);
        let killer = |by: KilledBy| Killer {
            user: by.user,
            cluster: by.cluster,
            may_others: by.may_others,
        };
        let kill = Kill {
            id: request.id,
            query_only: request.query_only,
            by: request.by.map(killer),
        };
        Box::pin(async move {
            let killed = fleet.kill(kill).await;
            killed.map_err(|why| match why {
                fleet::NotKilled::Unknown(why) => NotKilled::Unknown(why),
                fleet::NotKilled::NotOwner => NotKilled::NotOwner,
                fleet::NotKilled::Failed(why) => NotKilled::Failed(why),
            })
        })
    }
}

/// Ends a session of this gateway for another one.
pub(crate) fn kill_here(gateway: Arc<Gateway>, kill: Kill, told: OnKilled) {
    let killed_by = |by: Killer| KilledBy {
        user: by.user,
        cluster: by.cluster,
        may_others: by.may_others,
    };
    let request = KillRequest {
        id: kill.id,
        query_only: kill.query_only,
        by: kill.by.map(killed_by),
    };
    tokio::spawn(async move {
        let killed = gateway.kill(&request).await;
        told(killed.map_err(|why| match why {
            NotKilled::Unknown(why) => fleet::NotKilled::Unknown(why),
            NotKilled::NotOwner => fleet::NotKilled::NotOwner,
            NotKilled::Failed(why) => fleet::NotKilled::Failed(why),
        }));
    });
}
