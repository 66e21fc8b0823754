//! [`Guard`]: what ends a run from outside the program, and the counters that decide it.
//!
//! The flag is what guarantees (sandbox spec R1.9): every host function, every job and the final result look at it.
//! The uncatchable error and the refused memory only make the end quick.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::limits::{Bound, Limits};

/// Why the engine stopped a run. The first reason stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stop {
    /// Nobody waits for the run any more.
    Abandoned,
    /// A limit was passed.
    Limit(Bound),
    /// Our own code panicked inside a host function.
    Panicked,
}

/// Counters of one run, shared by its host functions, its allocator and the interrupt handler. Only one thread at a time
/// runs the engine, so relaxed order is enough.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Whether the program runs. Building its world is our work, and running out of memory there is what crashes the
    /// engine, so nothing is refused before.
    armed: AtomicBool,
    stopped: AtomicBool,
    /// Raised from another thread when the run is over for everybody else.
    abandoned: Arc<AtomicBool>,
    reason: Mutex<Option<Stop>>,
    polls: AtomicU64,
    max_polls: u64,
    epoch: Instant,
    /// Nanoseconds after `epoch` at which the current step is over its budget; `u64::MAX` between steps.
    deadline: AtomicU64,
    /// Engine time that finished steps used.
    spent: AtomicU64,
    max_compute: Duration,
    used: AtomicUsize,
    memory: usize,
    allocations: AtomicUsize,
}

/// The engine sees a refusal only at this multiple of the bound, so that it rarely has to get along without memory: the
/// flag ends the run before.
const HARD: usize = 2;

impl Guard {
    pub(crate) fn new(limits: &Limits, abandoned: Arc<AtomicBool>) -> Self {
        Self {
            armed: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            abandoned,
            reason: Mutex::new(None),
            polls: AtomicU64::new(0),
            max_polls: limits.polls,
            epoch: Instant::now(),
            deadline: AtomicU64::new(u64::MAX),
            spent: AtomicU64::new(0),
            max_compute: limits.compute,
            used: AtomicUsize::new(0),
            memory: limits.memory,
            allocations: AtomicUsize::new(0),
        }
    }

    /// Ends the run. From now on nothing that the program does has an effect.
    pub(crate) fn stop(&self, why: Stop) {
        // A poisoned lock still holds a reason or none.
        let mut reason = self.reason.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        reason.get_or_insert(why);
        self.stopped.store(true, Relaxed);
    }

    /// From now on the bounds hold.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Relaxed);
        self.polls.store(0, Relaxed);
        if self.used.load(Relaxed) > self.memory {
            self.stop(Stop::Limit(Bound::Memory));
        }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    pub(crate) fn reason(&self) -> Option<Stop> {
        self.reason.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Begins to count engine time. The answer ends it.
    pub(crate) fn enter(&self) -> Entered<'_> {
        let spent = Duration::from_nanos(self.spent.load(Relaxed));
        let left = self.max_compute.saturating_sub(spent);
        let now = self.epoch.elapsed();
        self.deadline.store(nanos(now.saturating_add(left)), Relaxed);
        Entered { guard: self, since: now }
    }

    /// Engine time of the finished steps.
    pub(crate) fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent.load(Relaxed))
    }

    /// The interpreter's regular question: one poll. Answers whether the run must end.
    pub(crate) fn poll(&self) -> bool {
        if self.polls.fetch_add(1, Relaxed) >= self.max_polls && self.armed.load(Relaxed) {
            self.stop(Stop::Limit(Bound::Compute));
        }
        self.overdue() || self.stopped()
    }

    /// Looks at the clock, for natives that run long without a poll. Answers whether the run must end.
    pub(crate) fn overdue(&self) -> bool {
        if self.abandoned.load(Relaxed) {
            self.stop(Stop::Abandoned);
        }
        if self.armed.load(Relaxed) && nanos(self.epoch.elapsed()) > self.deadline.load(Relaxed) {
            self.stop(Stop::Limit(Bound::Compute));
        }
        self.stopped()
    }

    /// Accounts for a block of `size` bytes; false if there shall be none.
    pub(crate) fn take(&self, size: usize) -> bool {
        let used = self.used.load(Relaxed).saturating_add(size);
        if self.armed.load(Relaxed) {
            // A native that allocates in a loop is not polled: let it fail.
            if self.allocations.fetch_add(1, Relaxed).is_multiple_of(16) && self.overdue() {
                return false;
            }
            if used > self.memory {
                self.stop(Stop::Limit(Bound::Memory));
                if used > self.memory.saturating_mul(HARD) {
                    return false;
                }
            }
        }
        self.used.store(used, Relaxed);
        true
    }

    pub(crate) fn give_back(&self, size: usize) {
        self.used.store(self.used.load(Relaxed).saturating_sub(size), Relaxed);
    }
}

/// A step that is being timed.
pub(crate) struct Entered<'g> {
    guard: &'g Guard,
    since: Duration,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let took = self.guard.epoch.elapsed().saturating_sub(self.since);
        self.guard.spent.fetch_add(nanos(took), Relaxed);
        self.guard.deadline.store(u64::MAX, Relaxed);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX - 1)
}
