//! The idle clock of a run (contract 8): a state machine over monotonic time.

use std::time::Duration;

/// Counts the time since the last progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdleClock {
    limit: Option<Duration>,
    /// When the clock runs out; none while it is paused or there is no limit.
    deadline: Option<Duration>,
}

impl IdleClock {
    /// A clock that starts now. The effective limit is the smallest positive one of the request's and the host's.
    pub(crate) fn start(now: Duration, request: Option<Duration>, host: Option<Duration>) -> Self {
        let limit = [request, host].into_iter().flatten().filter(|limit| !limit.is_zero()).min();
        let mut clock = Self { limit, deadline: None };
        clock.restart(now);
        clock
    }

    /// Progress: a full interval starts. Also ends a pause.
    pub(crate) fn restart(&mut self, now: Duration) {
        self.deadline = self.limit.map(|limit| now.saturating_add(limit));
    }

    /// A person is deciding: the clock stops.
    pub(crate) const fn pause(&mut self) {
        self.deadline = None;
    }

    /// When the clock runs out.
    pub(crate) const fn deadline(&self) -> Option<Duration> {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_smallest_positive_limit_counts() {
        // Contract 8: a request cannot lengthen or disable a positive host limit.
        let cases = [
            (None, None, None),
            (Some(0), None, None),
            (Some(0), Some(20), Some(20)),
            (Some(30), Some(20), Some(20)),
            (Some(10), Some(20), Some(10)),
            (Some(10), None, Some(10)),
            (None, Some(0), None),
        ];
        for (request, host, expected) in cases {
            let clock = IdleClock::start(ms(5), request.map(ms), host.map(ms));
            assert_eq!(clock.deadline(), expected.map(|n| ms(5 + n)), "request {request:?}, host {host:?}");
        }
    }

    #[test]
    fn a_pause_costs_nothing_and_a_full_interval_follows() {
        let mut clock = IdleClock::start(ms(0), Some(ms(50)), None);
        clock.pause();
        assert_eq!(clock.deadline(), None);
        clock.restart(ms(1_000_000));
        assert_eq!(clock.deadline(), Some(ms(1_000_050)));
    }
}
