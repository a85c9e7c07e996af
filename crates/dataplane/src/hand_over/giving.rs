//! The old process's side: all sessions are offered to its successor, again and again.

use std::sync::Arc;

use net::handover::Channel;
use tracing::{info, warn};

use super::AGAIN_EVERY;
use super::sizes;
use super::stays::Staying;
use super::way::Giving;
use crate::frontend::data_plane::Shared;
use crate::frontend::gateway::Gateway;
use crate::frontend::message::Message;

impl Gateway {
    /// Gives the sessions to the process that has taken over, and says to it and in the log how many went and
    /// why others stay. The others are offered again each second. Never returns: drop the future to end it.
    pub async fn give_sessions(&self, channel: Channel) {
        let last = (self.shared().registry.last_id(), sizes::learned(&self.clusters()));
        let giving = match Giving::start(channel, (last.0, &last.1)) {
            Ok(giving) => giving,
            Err(error) => {
                warn!(%error, "upgrade: no session can be handed over: they stay until they end");
                return std::future::pending().await;
            }
        };
        let _end = End(Arc::clone(&giving));
        let mut said = None;
        loop {
            self.shared().tell_all(|| Message::GiveAway(Arc::clone(&giving)));
            tokio::time::sleep(AGAIN_EVERY).await;
            let staying = staying(self.shared()).await;
            giving.say(staying.in_words());
            let now = (giving.went(), staying);
            if said.as_ref() != Some(&now) {
                info!(
                    went = now.0,
                    stay = now.1.sum(),
                    why = now.1.in_words(),
                    "upgrade: sessions handed over"
                );
                said = Some(now);
            }
        }
    }
}

/// Says at the end how many have gone.
struct End(Arc<Giving>);

impl Drop for End {
    fn drop(&mut self) {
        info!(went = self.0.went(), "upgrade: no more sessions are handed over");
    }
}

/// The counts of sessions that stay, on all workers, by reason.
async fn staying(shared: &Shared) -> Staying {
    let mut all = Staying::default();
    for why in shared.ask_all(|reply| Message::Staying { reply }).await {
        all.add(why, 1);
    }
    all
}
