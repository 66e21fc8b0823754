//! What must be true, told from facts alone: each review is the list of what happened to it, and every question is
//! answered by going through the list. Nothing is ever removed.

use std::collections::BTreeMap;

use countersign_approval_core::review::Outcome;

/// Both clocks in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clocks {
    pub(super) wall: i64,
    pub(super) monotonic: u64,
}

/// Something that happened to a review, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {
    Registered,
    /// Its requested record was accepted.
    Shown,
    /// An end was proposed.
    Ending(Outcome),
    /// The end's record was accepted.
    Ended(Outcome),
    /// A record of it was refused.
    Failed,
    RunAborted,
}

#[derive(Debug)]
pub(super) struct Review {
    pub(super) owner: &'static str,
    pub(super) asked: Clocks,
    pub(super) lasts: Option<u64>,
    pub(super) facts: Vec<Fact>,
}

impl Review {
    fn happened(&self, which: impl Fn(&Fact) -> bool) -> bool {
        self.facts.iter().any(which)
    }

    pub(super) fn over(&self) -> bool {
        self.happened(|fact| matches!(fact, Fact::Ended(_) | Fact::Failed))
    }

    /// Whether a person could answer it now.
    pub(super) fn open(&self) -> bool {
        self.happened(|fact| *fact == Fact::Shown)
            && !self.happened(|fact| matches!(fact, Fact::Ending(_)))
            && !self.over()
    }

    pub(super) fn aborted(&self) -> bool {
        self.happened(|fact| *fact == Fact::RunAborted)
    }

    pub(super) fn late(&self, now: Clocks) -> bool {
        let by_wall = |lasts: u64| now.wall - self.asked.wall >= lasts as i64;
        let by_monotonic = |lasts: u64| now.monotonic - self.asked.monotonic >= lasts;
        self.lasts.is_some_and(|lasts| by_wall(lasts) || by_monotonic(lasts))
    }
}

/// How the echo of a decision differs from the honest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    None,
    Run,
    CallId,
    Name,
    Arguments,
}

/// A decision as the model sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) caller: &'static str,
    pub(super) review: u128,
    pub(super) lacks_grants: bool,
    pub(super) change: Change,
    /// What it asks for.
    pub(super) outcome: Outcome,
}

/// What a decision must lead to: what the caller is told, and how the review is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) code: Option<&'static str>,
    pub(super) settles: Option<Outcome>,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) reviews: BTreeMap<u128, Review>,
    /// When each subject's refusals came.
    refusals: BTreeMap<&'static str, Vec<u64>>,
}

impl Model {
    pub(super) fn happens(&mut self, n: u128, fact: Fact) {
        if let Some(review) = self.reviews.get_mut(&n) {
            review.facts.push(fact);
        }
    }

    pub(super) fn pending(&self) -> usize {
        self.reviews.values().filter(|review| !review.over()).count()
    }

    /// The earliest ends by each clock, of those that can still expire.
    pub(super) fn next_due(&self) -> Option<Clocks> {
        let open = || self.reviews.values().filter(|review| review.open());
        Some(Clocks {
            wall: open().filter_map(|review| Some(review.asked.wall + review.lasts? as i64)).min()?,
            monotonic: open().filter_map(|review| Some(review.asked.monotonic + review.lasts?)).min()?,
        })
    }

    pub(super) fn any_late(&self, now: Clocks) -> bool {
        self.reviews.values().any(|review| review.open() && review.late(now))
    }

    /// Contract 4.4, rows 2 to 7.
    pub(super) fn verdict(&mut self, now: Clocks, attempt: Attempt, limit: usize) -> Verdict {
        let Attempt { caller, review, lacks_grants, change, outcome } = attempt;
        let found = self.reviews.get(&review).filter(|review| review.open() && review.owner == caller);
        let (code, settles) = match found {
            None => (Some("APPROVAL_NOT_FOUND"), None),
            Some(review) if review.aborted() => (Some("APPROVAL_NOT_FOUND"), Some(Outcome::Cancelled)),
            Some(review) if review.late(now) => (Some("APPROVAL_NOT_FOUND"), Some(Outcome::Expired)),
            Some(_) if lacks_grants => (Some("FORBIDDEN"), None),
            Some(_) if change != Change::None => (Some("APPROVAL_MISMATCH"), None),
            Some(_) => (None, Some(outcome)),
        };
        if code.is_some() && self.flooded(now, caller, limit) {
            return Verdict { code: Some("RATE_LIMITED"), settles };
        }
        Verdict { code, settles }
    }

    /// Counts a refusal; a minute begins with the first one after the last minute.
    fn flooded(&mut self, now: Clocks, caller: &'static str, limit: usize) -> bool {
        let times = self.refusals.entry(caller).or_default();
        times.push(now.monotonic);
        let mut minute: Vec<u64> = Vec::new();
        for time in times {
            if minute.first().is_some_and(|first| *time - first >= 60_000) {
                minute.clear();
            }
            minute.push(*time);
        }
        minute.len() > limit
    }
}
