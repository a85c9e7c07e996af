//! What the control thread counts: reloads, limits, the state of the process.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{Counter, Gauge, Samples, catalog};

/// Series written by the control thread only.
#[derive(Debug, Default)]
pub struct ControlSeries {
    /// `max_connections` in force for the whole process.
    pub sessions_limit: Gauge,
    /// 1 once a shutdown has begun.
    pub shutting_down: Gauge,
    reloads_ok: Counter,
    reloads_failed: Counter,
    last_reload_s: Gauge,
}

impl ControlSeries {
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

    pub(crate) fn collect(&self, out: &mut Samples) {
        out.gauge(&catalog::SESSIONS_LIMIT, &[], self.sessions_limit.get());
        out.gauge(&catalog::SHUTTING_DOWN, &[], self.shutting_down.get());
        out.counter(&catalog::CONFIG_RELOADS, &["ok"], self.reloads_ok.get());
        out.counter(&catalog::CONFIG_RELOADS, &["failed"], self.reloads_failed.get());
        out.gauge(&catalog::CONFIG_LAST_RELOAD, &[], self.last_reload_s.get());
    }
}
