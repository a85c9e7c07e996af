//! What a gateway holds: must be the same before an attack and after it.

use std::time::Instant;

use e2e::{Gateway, PATIENCE};

/// Taken while nobody is connected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footprint {
    descriptors: f64,
    pub(crate) resident_bytes: f64,
}

impl Footprint {
    pub(crate) fn of(gateway: &Gateway) -> Self {
        Self {
            descriptors: gateway.metric("process_open_fds", &[]),
            resident_bytes: gateway.metric("process_resident_memory_bytes", &[]),
        }
    }

    /// Waits until there is no session, no server connection, no buffer in use and no descriptor more than
    /// before, and returns the bytes of memory that the process has more than before.
    ///
    /// # Panics
    /// When that does not come true.
    pub(crate) async fn comes_back(self, gateway: &mut Gateway) -> f64 {
        const NOTHING_OF: [&str; 5] = [
            "forebay_sessions_active",
            "forebay_worker_sessions",
            "forebay_server_sessions_active",
            "forebay_queue_waiting",
            "forebay_buffers_in_use",
        ];
        let begin = Instant::now();
        loop {
            let left: Vec<_> = NOTHING_OF
                .into_iter()
                .map(|name| (name, gateway.metric(name, &[])))
                .filter(|(_, value)| *value != 0.0)
                .collect();
            let now = Self::of(gateway);
            // A health check has one at times.
            if left.is_empty() && now.descriptors <= self.descriptors {
                return now.resident_bytes - self.resident_bytes;
            }
            assert!(gateway.is_running());
            assert!(
                begin.elapsed() < PATIENCE,
                "still there: {left:?}, {now:?} after {self:?}"
            );
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

/// A gateway that survived says so itself: a panic of a task is not the end of the process.
#[track_caller]
pub(crate) fn assert_no_panic(gateway: &Gateway) {
    let log = gateway.log();
    let panics: Vec<_> = log.lines().filter(|line| line.contains("panicked at")).collect();
    assert!(panics.is_empty(), "{panics:#?}");
}
