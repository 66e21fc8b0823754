//! A clock that a test sets.

use std::sync::atomic::{AtomicI64, Ordering};

use countersign_approval_core::clock::{Clock, Now, Timestamp};
use tokio::time::Instant;

/// 2026-01-02T03:04:05.678Z, where every fake wall clock starts.
const START: i64 = 1_767_323_045_678;

/// The monotonic part is tokio's time since the clock was made, so it stands still while a test's time is paused.
/// The wall part goes with it and can be set forward and back.
#[derive(Debug)]
pub struct FakeClock {
    start: Instant,
    wall_shift: AtomicI64,
}

impl FakeClock {
    /// A clock that starts now, within a tokio runtime.
    pub fn new() -> Self {
        Self { start: Instant::now(), wall_shift: AtomicI64::new(0) }
    }

    /// Sets the wall clock forward (or back, if negative) by so many milliseconds. Monotonic time does not notice.
    pub fn step_wall(&self, millis: i64) {
        self.wall_shift.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Now {
        let monotonic = self.start.elapsed();
        let elapsed = i64::try_from(monotonic.as_millis()).unwrap_or(i64::MAX);
        let millis = START.saturating_add(elapsed).saturating_add(self.wall_shift.load(Ordering::SeqCst));
        Now { wall: Timestamp::from_millis(millis), monotonic }
    }
}
