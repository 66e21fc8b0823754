//! Run slots: how many runs at once, in total and for each subject (contract 6.4).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_approval_core::ids::Subject;

use crate::options::Concurrency;

/// The slots of a host.
#[derive(Debug, Clone)]
pub(crate) struct Slots(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bounds: Concurrency,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    total: u32,
    by_subject: HashMap<Subject, u32>,
}

/// One slot, given back when it is dropped: at the end of the HTTP exchange.
#[derive(Debug)]
#[must_use = "the slot is free again as soon as this is dropped"]
pub(crate) struct Slot {
    slots: Slots,
    subject: Subject,
}

impl Slots {
    pub(crate) fn new(bounds: Concurrency) -> Self {
        Self(Arc::new(Inner { bounds, taken: Mutex::default() }))
    }

    /// Takes a slot, or says that the host or the subject has none left.
    pub(crate) fn take(&self, subject: &Subject) -> Option<Slot> {
        let mut taken = self.taken();
        let of_subject = taken.by_subject.get(subject).copied().unwrap_or(0);
        if taken.total >= self.0.bounds.total || of_subject >= self.0.bounds.per_subject {
            return None;
        }
        taken.total += 1;
        taken.by_subject.insert(subject.clone(), of_subject + 1);
        drop(taken);
        Some(Slot { slots: self.clone(), subject: subject.clone() })
    }

    // A panic while the lock is held cannot leave the counts half changed, so a poisoned lock is still right.
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken();
        taken.total = taken.total.saturating_sub(1);
        match taken.by_subject.get_mut(&self.subject) {
            Some(count) if *count > 1 => *count -= 1,
            // The last one goes with its entry: subjects that are not running cost nothing.
            _ => drop(taken.by_subject.remove(&self.subject)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Law 9: each bound is reached at its edge, and what is given back can be taken again.
    #[test]
    fn bounds_hold_in_total_and_for_each_subject() {
        let slots = Slots::new(Concurrency { total: 3, per_subject: 2 });
        let (ann, bob) = (Subject::parse("ann").unwrap(), Subject::parse("bob").unwrap());
        let first = slots.take(&ann).unwrap();
        let _second = slots.take(&ann).unwrap();
        assert!(slots.take(&ann).is_none(), "two of one subject");
        let third = slots.take(&bob).unwrap();
        assert!(slots.take(&bob).is_none(), "three in total");
        drop(first);
        let _again = slots.take(&ann).unwrap();
        assert!(slots.take(&bob).is_none());
        drop(third);
        assert_eq!(slots.taken().by_subject.len(), 1, "bob is forgotten");
        let _bob = slots.take(&bob).unwrap();
    }
}
