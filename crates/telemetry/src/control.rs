//! What the control thread counts: reloads, limits, the state of the process.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{Counter, Gauge, Samples, catalog};

/// Series written by the control thread only.
#[derive(Debug, Default)]
pub struct ControlMetrics {
    /// `max_connections` in force for the whole process.
    pub sessions_limit: Gauge,
    /// 1 once a shutdown has begun.
    pub shutting_down: Gauge,
    /// 1 while an operator says that no client is to come.
    pub unready: Gauge,
    /// The limit of memory in force, in bytes; 0 is none.
    pub memory_max: Gauge,
    /// 1 while new clients are refused for want of memory.
    pub memory_short: Gauge,
    reloads_ok: Counter,
    reloads_failed: Counter,
    last_reload_s: Gauge,
    admin_refused: [Counter; Refusal::ALL.len()],
}

crate::labels! {
    /// Why the admin server refuses a request. The same words appear in logs and metric labels.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Refusal {
        /// An act without the token, or with another.
        Token = "token",
        /// An act on the address, where no token is configured.
        NoTokenFile = "no_token_file",
        /// A request by a name that is not the gateway's.
        Host = "host",
        /// A request of a web page.
        Page = "page",
        /// A request of another system user, by the socket.
        User = "user",
    }
}

impl ControlMetrics {
    /// Counts a reload of the configuration that ended now, well or not. The first load at start counts as
    /// well.
    pub fn config_reloaded(&self, ok: bool) {
        if !ok {
            return self.reloads_failed.inc();
        }
        self.reloads_ok.inc();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_reload_s.set(now.as_secs() as i64);
    }

    /// Counts a request that the admin server has refused.
    pub fn admin_refused(&self, why: Refusal) {
        self.admin_refused[why as usize].inc();
    }

    pub(crate) fn collect(&self, out: &mut Samples) {
        out.gauge(&catalog::SESSIONS_LIMIT, &[], self.sessions_limit.get());
        out.gauge(&catalog::SHUTTING_DOWN, &[], self.shutting_down.get());
        out.gauge(&catalog::UNREADY, &[], self.unready.get());
        out.gauge(&catalog::MEMORY_MAX, &[], self.memory_max.get());
        out.gauge(&catalog::MEMORY_SHORT, &[], self.memory_short.get());
        out.counter(&catalog::CONFIG_RELOADS, &["ok"], self.reloads_ok.get());
        out.counter(&catalog::CONFIG_RELOADS, &["failed"], self.reloads_failed.get());
        out.gauge(&catalog::CONFIG_LAST_RELOAD, &[], self.last_reload_s.get());
        for why in Refusal::ALL {
            let count = self.admin_refused[why as usize].get();
            out.counter(&catalog::ADMIN_REFUSED, &[why.label()], count);
        }
    }
}
