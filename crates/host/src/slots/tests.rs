//! Law 9 and contract 6.4: bounds hold, turns are fair, and nothing is lost.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::line::Ticket;
use super::*;
use crate::options::Queue;

fn subject(name: &str) -> Subject {
    Subject::parse(name).unwrap()
}

fn queued(total: u32, per_subject: u32, queue: Queue) -> Slots {
    Slots::new(Concurrency { total, per_subject, queue: Some(queue), ..Concurrency::default() })
}

fn now(slots: &Slots, subject: &Subject) -> Slot {
    match slots.take(subject) {
        Ok(Admission::Now(slot)) => slot,
        other => panic!("{other:?}"),
    }
}

fn later(slots: &Slots, subject: &Subject) -> Place {
    match slots.take(subject) {
        Ok(Admission::Later(place)) => place,
        other => panic!("{other:?}"),
    }
}

async fn granted(place: &mut Place) -> Option<Slot> {
    tokio::select! {
        biased;
        slot = place => Some(slot),
        () = std::future::ready(()) => None,
    }
}

// Each bound is reached at its edge, and what is given back can be taken again.
#[test]
fn bounds_hold_in_total_and_for_each_subject() {
    let subjects = BTreeMap::from([("carl".to_owned(), 3)]);
    let slots = Slots::new(Concurrency { total: 4, per_subject: 2, subjects, queue: None });
    let (ann, bob, carl) = (subject("ann"), subject("bob"), subject("carl"));
    let first = now(&slots, &ann);
    let second = now(&slots, &ann);
    assert_eq!(slots.take(&ann).unwrap_err(), Code::BUSY, "two of one subject");
    let third = now(&slots, &bob);
    let _fourth = now(&slots, &bob);
    assert_eq!(slots.take(&carl).unwrap_err(), Code::BUSY, "four in total");
    drop((first, second, third));
    let _carl: Vec<_> = (0..3).map(|_| now(&slots, &carl)).collect();
    assert_eq!(slots.take(&carl).unwrap_err(), Code::BUSY, "three of carl, whom the override names");
    assert_eq!(slots.line().sizes(), (4, 2, 0), "ann is forgotten");
}

#[tokio::test]
async fn a_place_is_given_up_wherever_it_is() {
    let slots = queued(1, 1, Queue { total: 3, per_subject: 2 });
    let (ann, bob) = (subject("ann"), subject("bob"));
    let running = now(&slots, &ann);
    let (first, second) = (later(&slots, &ann), later(&slots, &ann));
    assert_eq!(slots.take(&ann).unwrap_err(), Code::QUEUE_FULL, "two of one subject");
    let mut third = later(&slots, &bob);
    assert_eq!(slots.take(&bob).unwrap_err(), Code::QUEUE_FULL, "three in total");
    drop(first);
    let fourth = later(&slots, &ann);
    assert!(granted(&mut third).await.is_none());
    // Granted to the second, who does not know it yet, and gives it on by going.
    drop(running);
    drop(second);
    let slot = granted(&mut third).await.expect("bob's turn");
    assert_eq!(slots.line().sizes(), (1, 1, 1));
    // Granted to the fourth, who goes: nobody is left.
    drop(slot);
    drop(fourth);
    assert_eq!(slots.line().sizes(), (0, 0, 0));
}

/// What happens to a line.
#[derive(Debug, Clone)]
enum Act {
    /// Somebody comes.
    Come(usize),
    /// One of those who run ends.
    End(usize),
    /// One of those who wait goes.
    Go(usize),
}

const NAMES: [&str; 4] = ["ann", "bob", "carl", "dora"];

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        5 => (0..NAMES.len()).prop_map(Act::Come),
        3 => any::<usize>().prop_map(Act::End),
        1 => any::<usize>().prop_map(Act::Go),
    ];
    prop::collection::vec(act, 1..200)
}

fn bounds() -> impl Strategy<Value = Concurrency> {
    let subjects =
        prop::collection::btree_map((0..NAMES.len()).prop_map(|at| NAMES[at].to_owned()), 1..4_u32, 0..3);
    let queue = (1..12_u32, 1..6_u32).prop_map(|(total, per_subject)| Queue { total, per_subject });
    (1..6_u32, 1..4_u32, subjects, queue).prop_map(|(total, per_subject, subjects, queue)| Concurrency {
        total,
        per_subject,
        subjects,
        queue: Some(queue),
    })
}

/// A line and what is known of it from outside.
struct History {
    line: Line<u32>,
    bounds: Concurrency,
    come: u32,
    running: Vec<(usize, u32)>,
    /// In the order in which they came.
    waiting: Vec<(usize, u32, Ticket)>,
    /// `passed[a][b]`: how often `b` had a turn while `a` waited and could have had it.
    passed: [[u32; 4]; 4],
}

impl History {
    fn may_have_more(&self, who: usize) -> bool {
        let running = self.running.iter().filter(|(of, _)| *of == who).count();
        running < self.bounds.of(NAMES[who]) as usize
    }

    fn waits(&self, who: usize) -> bool {
        self.waiting.iter().any(|(of, ..)| *of == who)
    }

    fn apply(&mut self, act: &Act) {
        match *act {
            Act::Come(who) => self.come(who),
            Act::End(at) if !self.running.is_empty() => {
                let (who, _) = self.running.remove(at % self.running.len());
                let could: Vec<usize> =
                    (0..4).filter(|who| self.waits(*who) && self.may_have_more(*who)).collect();
                let next = self.line.give_back(&subject(NAMES[who]));
                self.turn(next, &could);
            }
            Act::Go(at) if !self.waiting.is_empty() => {
                let (who, number, ticket) = self.waiting.remove(at % self.waiting.len());
                assert_eq!(self.line.leave(&subject(NAMES[who]), ticket), Some(number), "nobody is lost");
                assert_eq!(self.line.leave(&subject(NAMES[who]), ticket), None);
                if !self.waits(who) {
                    // If he comes again, he stands behind those who wait now.
                    self.passed[who] = [0; 4];
                }
            }
            Act::End(_) | Act::Go(_) => {}
        }
        let running = u32::try_from(self.running.len()).unwrap();
        let (taken, _, waiting) = self.line.sizes();
        assert_eq!((taken, waiting as usize), (running, self.waiting.len()));
        assert!(taken <= self.bounds.total);
        let queue = self.bounds.queue.unwrap();
        assert!(waiting <= queue.total);
        for (who, name) in NAMES.iter().enumerate() {
            let count = |all: usize| u32::try_from(all).unwrap();
            assert!(count(self.running.iter().filter(|(of, _)| *of == who).count()) <= self.bounds.of(name));
            assert!(count(self.waiting.iter().filter(|(of, ..)| *of == who).count()) <= queue.per_subject);
            let idle = taken < self.bounds.total && self.waits(who) && self.may_have_more(who);
            assert!(!idle, "a slot is free, and {name} waits for one");
        }
    }

    fn come(&mut self, who: usize) {
        let number = self.come;
        self.come += 1;
        let free = self.running.len() < self.bounds.total as usize && self.may_have_more(who);
        assert_eq!(self.line.take(&subject(NAMES[who])), free);
        if free {
            self.running.push((who, number));
            return;
        }
        let queue = self.bounds.queue.unwrap();
        let of_one = self.waiting.iter().filter(|(of, ..)| *of == who).count();
        let room = self.waiting.len() < queue.total as usize && of_one < queue.per_subject as usize;
        let ticket = self.line.wait(&subject(NAMES[who]), number);
        assert_eq!(ticket.is_some(), room);
        self.waiting.extend(ticket.map(|ticket| (who, number, ticket)));
    }

    fn turn(&mut self, next: Option<(Subject, u32)>, could: &[usize]) {
        let Some((name, number)) = next else { return };
        let who = NAMES.iter().position(|known| *known == name.as_str()).unwrap();
        assert!(could.contains(&who), "{name} may have no more");
        let at = self.waiting.iter().position(|(of, ..)| *of == who).expect("one who waits");
        assert_eq!(self.waiting.remove(at).1, number, "first come, first served, within a subject");
        self.running.push((who, number));
        for (other, passed) in self.passed.iter_mut().enumerate() {
            if other == who || !could.contains(&other) {
                *passed = [0; 4];
            } else {
                passed[who] += 1;
                assert!(passed[who] <= 1, "{} was passed over", NAMES[other]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random histories (proptest prints the seed and the shortest history that fails): bounds hold, no slot is left
    /// free while somebody could have it, nobody is lost or served twice, and between two turns of one subject each
    /// other that could have had one has had one.
    #[test]
    fn turns_are_fair_and_nothing_is_lost(bounds in bounds(), acts in acts()) {
        let line = Line::new(bounds.clone());
        let (running, waiting) = (Vec::new(), Vec::new());
        let mut history = History { line, bounds, come: 0, running, waiting, passed: [[0; 4]; 4] };
        for act in &acts {
            history.apply(act);
        }
        while !history.running.is_empty() {
            history.apply(&Act::End(0));
        }
        prop_assert_eq!(history.line.sizes(), (0, 0, 0), "whoever waited had his turn");
    }
}
