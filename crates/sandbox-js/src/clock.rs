//! What a run reads of the outside's time: once the wall clock, when it begins; afterwards tokio's clock, which tests
//! pause.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// Milliseconds since 1970 of now.
pub(crate) fn wall_millis(now: SystemTime) -> i64 {
    match now.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis),
    }
}

/// The wall clock.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// Now, for how long an engine has been resting, and whether a question expired.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Whether tokio's clock is the machine's, and not one that a test stopped.
pub(crate) fn is_real() -> bool {
    let before = std::time::Instant::now();
    let now = Instant::now().into_std();
    before <= now && now <= std::time::Instant::now()
}

/// The moment after a while; `None` beyond the clock's range.
pub(crate) fn after(duration: Duration) -> Option<Instant> {
    Instant::now().checked_add(duration)
}

/// How long a run has used of its budget: it counts while something of ours is at work and stands still while only a
/// person is (law 6).
#[derive(Debug)]
pub(crate) struct Stopwatch {
    limit: Duration,
    counted: Duration,
    running_since: Option<Instant>,
}

impl Stopwatch {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, counted: Duration::ZERO, running_since: None }
    }

    pub(crate) fn run(&mut self) {
        self.running_since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn stop(&mut self) {
        if let Some(since) = self.running_since.take() {
            self.counted = self.counted.saturating_add(since.elapsed());
        }
    }

    /// Counts time that the engine measured.
    pub(crate) fn add(&mut self, took: Duration) {
        if self.running_since.is_none() {
            self.counted = self.counted.saturating_add(took);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// When the budget will be used up, if it is being used.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let since = self.running_since?;
        since.checked_add(self.limit.saturating_sub(self.counted))
    }

    fn left(&self) -> Duration {
        let running = self.running_since.map_or(Duration::ZERO, |since| since.elapsed());
        self.limit.saturating_sub(self.counted.saturating_add(running))
    }
}

/// The moment a run began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    wall: i64,
    at: Instant,
}

impl Began {
    pub(crate) fn now(wall: SystemTime) -> Self {
        Self { wall: wall_millis(wall), at: Instant::now() }
    }

    /// Milliseconds since 1970, as far as the time that passed since the beginning says.
    pub(crate) fn millis(&self) -> i64 {
        self.wall.saturating_add(i64::try_from(self.at.elapsed().as_millis()).unwrap_or(i64::MAX))
    }
}
