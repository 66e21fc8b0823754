//! What a driver counts, so that whoever operates it can look (issue of the design, "observability").
//!
//! Counts only: no subject, no run and no argument is in them. They are kept always, for each costs one atomic
//! operation, and asked for with [`Driver::figures`](crate::Driver::figures).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_approval_core::review::Outcome;

/// Upper bounds of the classes of [`DecisionTimes`]: a rule decides in milliseconds, a person in minutes or days.
const CLASSES: [Duration; 11] = [
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(300),
    Duration::from_secs(900),
    Duration::from_secs(3_600),
    Duration::from_secs(14_400),
    Duration::from_secs(86_400),
];

/// The codes of refused decisions (contract 4.4; design 3 and 4), so that a code that never came is told as none.
const REFUSALS: [&str; 7] = [
    "INVALID_REQUEST",
    "INVALID_APPROVAL",
    "APPROVAL_NOT_FOUND",
    "FORBIDDEN",
    "APPROVAL_MISMATCH",
    "RATE_LIMITED",
    "APPROVAL_AUDIT_FAILED",
];

const OUTCOMES: [Outcome; 4] = [Outcome::Approved, Outcome::Denied, Outcome::Cancelled, Outcome::Expired];

/// What a driver has counted since it was built. Names are lower case, codes are those of the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Runs at this moment by what they do: `model`, `review` (a person is asked), `tool`. Each is in one of them from
    /// its admission to its end.
    pub runs: Vec<(&'static str, u64)>,
    /// Runs that ended: `completed`, `failed`, `cancelled`. A replay is no run.
    pub runs_ended: Vec<(&'static str, u64)>,
    /// Reviews that wait for a decision.
    pub pending_reviews: u64,
    /// How long reviews were open, by how they ended: `approved`, `denied`, `cancelled`, `expired`.
    pub decision_times: Vec<(&'static str, DecisionTimes)>,
    /// Records that the audit sink refused.
    pub audit_failures: u64,
    /// Decisions that were refused, by the code that their sender got.
    pub rejected_decisions: Vec<(&'static str, u64)>,
}

/// A histogram of durations, by the clock that cannot be set.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecisionTimes {
    /// How many reviews.
    pub count: u64,
    /// All durations together.
    pub sum: Duration,
    /// How many took at most so long, and longer than the class before. What took longer than the last class is in
    /// `count` only.
    pub classes: Vec<(Duration, u64)>,
}

/// What a run does (`Figures::runs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    Model,
    Review,
    Tool,
}

/// How a run ended (`Figures::runs_ended`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnd {
    Completed,
    Failed,
    Cancelled,
}

/// Where it is counted.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    runs: [AtomicU64; 3],
    ended: [AtomicU64; 3],
    times: [Times; 4],
    audit_failures: AtomicU64,
    refusals: Mutex<BTreeMap<&'static str, u64>>,
}

#[derive(Debug, Default)]
struct Times {
    count: AtomicU64,
    sum_micros: AtomicU64,
    classes: [AtomicU64; CLASSES.len()],
}

impl Meter {
    pub(crate) fn run_ended(&self, end: RunEnd) {
        self.ended[end as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn review_ended(&self, outcome: Outcome, open: Duration) {
        let times = &self.times[place(outcome)];
        if let Some(class) = CLASSES.iter().position(|bound| open <= *bound) {
            times.classes[class].fetch_add(1, Relaxed);
        }
        times.sum_micros.fetch_add(u64::try_from(open.as_micros()).unwrap_or(u64::MAX), Relaxed);
        times.count.fetch_add(1, Relaxed);
    }

    pub(crate) fn audit_failed(&self) {
        self.audit_failures.fetch_add(1, Relaxed);
    }

    pub(crate) fn decision_refused(&self, code: &'static str) {
        *self.refusals().entry(code).or_default() += 1;
    }

    pub(crate) fn figures(&self, pending_reviews: usize) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let mut refused: BTreeMap<_, _> = REFUSALS.into_iter().map(|code| (code, 0)).collect();
        refused.extend(self.refusals().iter());
        Figures {
            runs: ["model", "review", "tool"].into_iter().zip(self.runs.iter().map(read)).collect(),
            runs_ended: ["completed", "failed", "cancelled"]
                .into_iter()
                .zip(self.ended.iter().map(read))
                .collect(),
            pending_reviews: u64::try_from(pending_reviews).unwrap_or(u64::MAX),
            decision_times: OUTCOMES
                .into_iter()
                .map(|outcome| (name(outcome), self.times[place(outcome)].read()))
                .collect(),
            audit_failures: read(&self.audit_failures),
            rejected_decisions: refused.into_iter().collect(),
        }
    }

    fn refusals(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Times {
    fn read(&self) -> DecisionTimes {
        // In this order: a review that ends meanwhile may be in `count` and in no class yet, never the reverse.
        let classes = self.classes.iter().map(|class| class.load(Relaxed));
        let classes = CLASSES.into_iter().zip(classes).collect();
        let sum = Duration::from_micros(self.sum_micros.load(Relaxed));
        DecisionTimes { count: self.count.load(Relaxed), sum, classes }
    }
}

/// A run among those that are counted, from its admission until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    meter: Arc<Meter>,
    doing: Doing,
}

impl Counted {
    pub(crate) fn new(meter: Arc<Meter>) -> Self {
        meter.runs[Doing::Model as usize].fetch_add(1, Relaxed);
        Self { meter, doing: Doing::Model }
    }

    pub(crate) fn now(&mut self, doing: Doing) {
        self.meter.runs[doing as usize].fetch_add(1, Relaxed);
        self.meter.runs[self.doing as usize].fetch_sub(1, Relaxed);
        self.doing = doing;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.meter.runs[self.doing as usize].fetch_sub(1, Relaxed);
    }
}

/// The word of the wire.
pub(crate) const fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Approved => "approved",
        Outcome::Denied => "denied",
        Outcome::Cancelled => "cancelled",
        Outcome::Expired => "expired",
    }
}

const fn place(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Approved => 0,
        Outcome::Denied => 1,
        Outcome::Cancelled => 2,
        Outcome::Expired => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Law 9: a class holds its bound, and what is longer than all of them is counted all the same.
    #[test]
    fn classes_hold_their_bound() {
        let meter = Meter::default();
        let longest = CLASSES[CLASSES.len() - 1];
        for open in [Duration::ZERO, CLASSES[0], CLASSES[0] + Duration::from_micros(1), longest, longest * 30]
        {
            meter.review_ended(Outcome::Denied, open);
        }
        let figures = meter.figures(0);
        let (_, denied) = figures.decision_times.iter().find(|(name, _)| *name == "denied").unwrap();
        let counts: Vec<_> = denied.classes.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(denied.count, 5);
        assert_eq!(denied.sum, CLASSES[0] * 2 + Duration::from_micros(1) + longest * 31);
        assert!(figures.decision_times.iter().all(|(name, times)| *name == "denied" || times.count == 0));
    }

    #[test]
    fn a_run_is_in_one_place_until_it_ends() {
        let meter = Arc::new(Meter::default());
        let runs = |meter: &Meter| meter.figures(0).runs.iter().map(|(_, count)| *count).collect::<Vec<_>>();
        let mut run = Counted::new(Arc::clone(&meter));
        assert_eq!(runs(&meter), [1, 0, 0]);
        run.now(Doing::Review);
        run.now(Doing::Review);
        assert_eq!(runs(&meter), [0, 1, 0]);
        run.now(Doing::Tool);
        assert_eq!(runs(&meter), [0, 0, 1]);
        drop(run);
        assert_eq!(runs(&meter), [0, 0, 0]);
    }
}
