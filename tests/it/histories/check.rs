//! The laws, read off the facts of a history from outside.

mod answers;
mod streams;
mod trail;

use super::journal::{Ended, Fact, Played, Said};

/// How often the interesting things happened, so that a generator that went dull is noticed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    effects: usize,
    receipts: usize,
    refusals: usize,
    hang_ups: usize,
    expired: usize,
    audit_failures: usize,
    idle: usize,
    uncertain: usize,
    closed: usize,
    capacity: usize,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, more) in self.counts_mut().into_iter().zip(other.counts()) {
            *mine += more;
        }
    }

    /// Every kind of thing came up.
    pub(crate) fn assert_varied(&self) {
        assert!(self.counts().iter().all(|count| *count > 0), "something never happened: {self:?}");
    }

    fn counts(&self) -> [usize; 10] {
        let mut copy = *self;
        copy.counts_mut().map(|count| *count)
    }

    fn counts_mut(&mut self) -> [&mut usize; 10] {
        [
            &mut self.effects,
            &mut self.receipts,
            &mut self.refusals,
            &mut self.hang_ups,
            &mut self.expired,
            &mut self.audit_failures,
            &mut self.idle,
            &mut self.uncertain,
            &mut self.closed,
            &mut self.capacity,
        ]
    }
}

pub(crate) fn check(played: &Played) -> Seen {
    trail::check(played);
    streams::check(played);
    answers::check(played);
    count(played)
}

fn count(played: &Played) -> Seen {
    let mut seen = Seen::default();
    for fact in &played.facts {
        match fact {
            Fact::Tool { .. } => seen.effects += 1,
            Fact::Answer { said: Said::Receipt(_), .. } => seen.receipts += 1,
            Fact::Answer { said: Said::Refused(..), .. } => seen.refusals += 1,
            Fact::Ended { how: Ended::HungUp, .. } => seen.hang_ups += 1,
            Fact::Closing => seen.closed += 1,
            Fact::Event { event, .. } => {
                let word = crate::support::word(event);
                seen.uncertain += usize::from(word.ends_with(" uncertain"));
                seen.expired += usize::from(word == "run.failed APPROVAL_EXPIRED");
                seen.audit_failures += usize::from(word == "run.failed APPROVAL_AUDIT_FAILED");
                seen.idle += usize::from(word == "run.cancelled IDLE_TIMEOUT");
                seen.capacity += usize::from(word == "run.failed APPROVAL_CAPACITY");
            }
            _ => {}
        }
    }
    seen
}

/// Where a fact stands among all.
fn position(played: &Played, of: impl Fn(&Fact) -> bool) -> Option<usize> {
    played.facts.iter().position(of)
}
