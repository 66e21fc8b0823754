//! Who has a slot and who is next: a state machine without lock, clock or tasks.
//!
//! While a slot is free nobody waits who could have it, so a newcomer who can have it overtakes nobody. A slot that
//! becomes free goes round-robin over the subjects that wait, leaving out those who have as many as they may; within a
//! subject, first come, first served.

use std::collections::{HashMap, VecDeque};

use countersign_approval_core::ids::Subject;

use crate::options::Concurrency;

/// Names one who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// Slots that are taken, and those who wait, each with what tells him (`W`).
#[derive(Debug)]
pub(super) struct Line<W> {
    bounds: Concurrency,
    taken: u32,
    taken_by: HashMap<Subject, u32>,
    waiting: u32,
    /// Those who wait, by subject: the oldest first, and never an empty list.
    queues: HashMap<Subject, VecDeque<(Ticket, W)>>,
    /// The subjects of `queues`, each once: whose turn it is first.
    turns: VecDeque<Subject>,
    next: u64,
}

impl<W> Line<W> {
    pub(super) fn new(bounds: Concurrency) -> Self {
        Self {
            bounds,
            taken: 0,
            taken_by: HashMap::new(),
            waiting: 0,
            queues: HashMap::new(),
            turns: VecDeque::new(),
            next: 0,
        }
    }

    pub(super) const fn has_queue(&self) -> bool {
        self.bounds.queue.is_some()
    }

    /// How many wait.
    #[cfg(feature = "metrics")]
    pub(super) const fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Takes a slot if one is free for this subject.
    pub(super) fn take(&mut self, subject: &Subject) -> bool {
        let free = self.taken < self.bounds.total && self.may_have_more(subject);
        if free {
            self.count(subject);
        }
        free
    }

    /// Takes a place in the queue; none if it is full, in total or for this subject.
    pub(super) fn wait(&mut self, subject: &Subject, waiter: W) -> Option<Ticket> {
        let bounds = self.bounds.queue?;
        let of_subject = self.queues.get(subject).map_or(0, VecDeque::len);
        if self.waiting >= bounds.total || of_subject >= usize::try_from(bounds.per_subject).ok()? {
            return None;
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiting += 1;
        if of_subject == 0 {
            self.turns.push_back(subject.clone());
        }
        self.queues.entry(subject.clone()).or_default().push_back((ticket, waiter));
        Some(ticket)
    }

    /// Gives a slot back. Who is next has it already when this returns, and is to be told.
    pub(super) fn give_back(&mut self, subject: &Subject) -> Option<(Subject, W)> {
        self.taken = self.taken.saturating_sub(1);
        match self.taken_by.get_mut(subject) {
            Some(count) if *count > 1 => *count -= 1,
            // The last one goes with its entry: subjects that are not running cost nothing.
            _ => drop(self.taken_by.remove(subject)),
        }
        self.next()
    }

    /// Leaves the queue; none if this one is not in it.
    pub(super) fn leave(&mut self, subject: &Subject, ticket: Ticket) -> Option<W> {
        let queue = self.queues.get_mut(subject)?;
        let at = queue.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
        let (_, waiter) = queue.remove(at)?;
        self.waiting -= 1;
        if queue.is_empty() {
            self.queues.remove(subject);
            self.turns.retain(|waiting| waiting != subject);
        }
        Some(waiter)
    }

    /// Whoever is next takes a slot, if there is one for him.
    fn next(&mut self) -> Option<(Subject, W)> {
        if self.taken >= self.bounds.total {
            return None;
        }
        let at = self.turns.iter().position(|subject| self.may_have_more(subject))?;
        let subject = self.turns.remove(at)?;
        let queue = self.queues.get_mut(&subject)?;
        let (_, waiter) = queue.pop_front()?;
        self.waiting -= 1;
        if queue.is_empty() {
            self.queues.remove(&subject);
        } else {
            self.turns.push_back(subject.clone());
        }
        self.count(&subject);
        Some((subject, waiter))
    }

    fn may_have_more(&self, subject: &Subject) -> bool {
        self.taken_by.get(subject).copied().unwrap_or(0) < self.bounds.of(subject.as_str())
    }

    fn count(&mut self, subject: &Subject) {
        self.taken += 1;
        *self.taken_by.entry(subject.clone()).or_default() += 1;
    }

    /// Slots that are taken, subjects that have one, and places that are taken.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (u32, usize, u32) {
        assert_eq!(self.waiting as usize, self.queues.values().map(VecDeque::len).sum::<usize>());
        assert_eq!(self.taken, self.taken_by.values().sum::<u32>());
        assert_eq!(self.turns.len(), self.queues.len());
        (self.taken, self.taken_by.len(), self.waiting)
    }
}
