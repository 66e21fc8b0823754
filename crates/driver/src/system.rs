//! The real clock and the real source of ids.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use countersign_approval_core::clock::{Clock, Now, Timestamp};
use countersign_approval_core::ids::Ids;
use tokio::time::Instant;
use uuid::Uuid;

/// The machine's clocks. The monotonic one is tokio's, so that tests with paused time run the same code.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic part starts now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let millis = i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX);
        Now { wall: Timestamp::from_millis(millis), monotonic: self.start.elapsed() }
    }
}

/// UUID v4 from the system's random source.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn uuid(&self) -> Uuid {
        Uuid::new_v4()
    }
}
