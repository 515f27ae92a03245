//! The gateway's wall clock: monotone within a process, based anew at each start.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Wall time that cannot jump while the process runs: the system's clock when the process started, plus the time that
/// has passed since. A step of the system's clock can so neither fire a deadline early nor hold it back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: SystemTime,
    started: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Clock { epoch: SystemTime::now(), started: Instant::now() }
    }
    /// Milliseconds since the Unix epoch.
    pub(crate) fn now_ms(&self) -> i64 {
        let now = self.epoch + self.started.elapsed();
        now.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A time in the form that conditions carry (RFC 3339, UTC).
pub(crate) fn rfc3339(ms: i64) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    prost_types::Timestamp::from(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_moves_with_the_runtimes_time() {
        let clock = Clock::start();
        let before = clock.now_ms();
        tokio::time::sleep(Duration::from_secs(90)).await;
        let passed = clock.now_ms() - before;
        assert!((90_000..90_010).contains(&passed), "{passed}");
    }
    #[test]
    fn a_condition_time_is_rfc_3339() {
        assert_eq!(rfc3339(1_790_000_000_250), "2026-09-21T14:13:20.250Z");
    }
}
