//! How much of a server's CPU and memory is in use, as far as somebody has said it lately.

mod figures;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use routing::rebalance::Sample;

use crate::lock::lock;

pub(crate) use figures::Reading;

/// Figures older than this say nothing any more.
const AGE: Duration = Duration::from_secs(16);

/// What was last heard of a server's CPU and memory.
#[derive(Debug, Default)]
pub(crate) struct Usage(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    last: Option<(Instant, Reading)>,
    cpu: Option<(Instant, u32)>,
    memory: Option<(Instant, u32)>,
}

impl Usage {
    /// CPU and memory in thousandths, as far as they are known and new enough. `began`: where the time of
    /// samples begins.
    pub(crate) fn samples(&self, began: Instant, now: Instant) -> [Option<Sample>; 2] {
        let heard = lock(&self.0);
        [heard.cpu, heard.memory].map(|known| {
            let (when, permille) = known.filter(|(when, _)| now.saturating_duration_since(*when) < AGE)?;
            let at = when.saturating_duration_since(began);
            Some(Sample { permille, at })
        })
    }

    pub(crate) fn forget(&self) {
        *lock(&self.0) = Heard::default();
    }

    pub(crate) fn note(&self, reading: Reading, when: Instant) {
        let mut heard = lock(&self.0);
        let before = heard.last.as_ref();
        let cpu =
            before.and_then(|(at, before)| reading.cpu_since(before, when.saturating_duration_since(*at)));
        heard.cpu = cpu.map(|permille| (when, permille)).or(heard.cpu);
        heard.memory = reading.memory().map(|permille| (when, permille));
        heard.last = Some((when, reading));
    }
}
