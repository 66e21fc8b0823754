//! [`Journal`]: what a program did and what it was told, as much of it as makes it do the same again (sandbox spec 4, 5).
//!
//! A program is determined by its source, its seed, its first clock, and the outcomes that it was told, each when it had
//! nothing left to do. So a waiting run is kept as these, and its engine is made anew when there is more to tell.
//!
//! Invariant: a replay executes nothing. Each call is compared with the recorded one before the program is told what
//! became of it, and the first difference ends the replay (law 7).

use std::collections::VecDeque;
use std::time::Duration;

use countersign_approval_core::json::Exact;

use crate::engine::{NewCall, Outcome, Settlement, Step, Stop};

/// What a pass of a program recorded.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Every call that has a number, in that order.
    made: Vec<Made>,
    told: Vec<Told>,
}

/// A call as it was made.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) function: usize,
    pub(crate) input: Exact,
}

/// An outcome, in the order in which they were told.
#[derive(Clone, Debug)]
struct Told {
    number: u32,
    /// Calls that the program had made before.
    made: u32,
    clock: i64,
    outcome: Outcome,
}

impl Journal {
    /// Writes down a call that was made for the first time.
    pub(crate) fn call(&mut self, call: &NewCall) {
        self.made.push(Made { function: call.function, input: call.input.clone() });
    }

    /// Writes down an outcome that is about to be told.
    pub(crate) fn tell(&mut self, settlement: &Settlement) {
        self.told.push(Told {
            number: settlement.number,
            made: u32::try_from(self.made.len()).unwrap_or(u32::MAX),
            clock: settlement.clock,
            outcome: settlement.outcome.clone(),
        });
    }

    /// Gives back room for more.
    pub(crate) fn shrink(&mut self) {
        self.made.shrink_to_fit();
        self.told.shrink_to_fit();
    }

    /// Everything that was told so far. What the program does after the last of it is new.
    pub(crate) fn replay(&self) -> Replay {
        Replay {
            made: self.made.iter().cloned().collect(),
            told: self.told.iter().cloned().collect(),
            seen: 0,
            at: Vec::new(),
        }
    }
}

/// A journal that is being replayed.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// Calls that are still to come.
    made: VecDeque<Made>,
    told: VecDeque<Told>,
    /// Calls that were compared.
    seen: u32,
    /// Where they were made.
    at: Vec<Option<(u32, u32)>>,
}

/// A replay that did something else. Nothing ran.
#[derive(Clone, Debug)]
pub(crate) struct Mismatch {
    /// The number of the call.
    pub(crate) number: u32,
    /// The call of the record, if there was one.
    pub(crate) recorded: Option<Made>,
    /// The call that was made in its place, if there was one.
    pub(crate) attempted: Option<Made>,
}

/// Why a replay went no further.
#[derive(Debug)]
pub(crate) enum Halt {
    Differs(Box<Mismatch>),
    /// A limit, which does not say that the program differs.
    Stopped(Stop),
}

impl Replay {
    /// How long it may take to hand all of it to an engine elsewhere, the engine's own time apart.
    pub(crate) fn transfer(&self) -> Duration {
        let bytes: usize = self.told.iter().map(|told| told.outcome.size()).sum();
        Duration::from_millis(self.told.len() as u64) + Duration::from_micros(bytes as u64 / 10)
    }

    /// Compares a step with the record, and gives what the program was told after it. `None` if the record ends here: the
    /// step is new.
    ///
    /// # Errors
    /// [`Halt`], if the step is not the recorded one.
    pub(crate) fn next(&mut self, step: &Step, calls: &[NewCall]) -> Result<Option<Settlement>, Halt> {
        let Some(told) = self.told.pop_front() else { return Ok(None) };
        if let Step::Stopped(stop) = step {
            return Err(Halt::Stopped(stop.clone()));
        }
        let differs = |number, recorded, attempted| {
            Err(Halt::Differs(Box::new(Mismatch { number, recorded, attempted })))
        };
        for call in calls {
            let attempted = Made { function: call.function, input: call.input.clone() };
            // Calls of the step after this one are not this step's.
            let recorded = if self.seen < told.made { self.made.pop_front() } else { None };
            let same = recorded.as_ref().is_some_and(|made| {
                call.number == self.seen + 1 && made.function == call.function && made.input == call.input
            });
            if !same {
                return differs(self.seen + 1, recorded, Some(attempted));
            }
            self.seen += 1;
            self.at.push(call.at);
        }
        if self.seen < told.made || !matches!(step, Step::Idle) {
            let recorded = if self.seen < told.made { self.made.pop_front() } else { None };
            return differs(self.seen + 1, recorded, None);
        }
        let at = told.number.checked_sub(1).and_then(|index| self.at.get(index as usize).copied().flatten());
        Ok(Some(Settlement { number: told.number, outcome: told.outcome, clock: told.clock, at }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u32, function: usize, input: &str) -> NewCall {
        NewCall { number, function, input: Exact::parse(input).unwrap(), at: Some((number, 1)) }
    }

    fn value(number: u32) -> Settlement {
        let outcome = Outcome::Value(Exact::parse("null").unwrap());
        Settlement { number, outcome, clock: i64::from(number), at: Some((number, 1)) }
    }

    /// Two calls, the second is answered first, a third call, and its answer.
    fn journal() -> Journal {
        let mut journal = Journal::default();
        journal.call(&call(1, 0, r#"{"a":1,"b":[1.0]}"#));
        journal.call(&call(2, 1, "{}"));
        journal.tell(&value(2));
        journal.call(&call(3, 0, "3"));
        journal.tell(&value(3));
        journal
    }

    // Law 7: the same calls, in another spelling, are the same; anything else is named and stops the replay.
    #[test]
    fn each_call_is_compared() {
        let same = [call(1, 0, r#"{"b":[1],"a":1.0}"#), call(2, 1, "{}")];
        let mut replay = journal().replay();
        let told = replay.next(&Step::Idle, &same).unwrap().unwrap();
        assert_eq!((told.number, told.clock, told.at), (2, 2, Some((2, 1))));
        assert_eq!(replay.next(&Step::Idle, &[call(3, 0, "3")]).unwrap().unwrap().number, 3);
        assert!(replay.next(&Step::Stalled, &[call(4, 0, "4")]).unwrap().is_none());

        let first = |calls: &[NewCall]| match journal().replay().next(&Step::Idle, calls) {
            Err(Halt::Differs(it)) => (
                it.number,
                it.recorded.map(|made| made.input.text().to_owned()),
                it.attempted.map(|made| made.input.text().to_owned()),
            ),
            other => panic!("{other:?}"),
        };
        let recorded = || Some(r#"{"a":1,"b":[1.0]}"#.to_owned());
        for (calls, expected) in [
            (vec![], (1, recorded(), None)),
            (vec![call(1, 0, "{}")], (1, recorded(), Some("{}".to_owned()))),
            (vec![call(1, 1, r#"{"a":1,"b":[1]}"#)], (1, recorded(), Some(r#"{"a":1,"b":[1]}"#.to_owned()))),
            (vec![same[0].clone()], (2, Some("{}".to_owned()), None)),
            (vec![same[1].clone(), same[0].clone()], (1, recorded(), Some("{}".to_owned()))),
            (vec![same[0].clone(), same[1].clone(), call(3, 0, "3")], (3, None, Some("3".to_owned()))),
        ] {
            assert_eq!(first(&calls), expected, "{calls:?}");
        }
        let mut replay = journal().replay();
        assert!(matches!(replay.next(&Step::Stalled, &same), Err(Halt::Differs(it)) if it.number == 3));
        let stopped = Step::Stopped(Stop::Panicked);
        assert!(matches!(journal().replay().next(&stopped, &[]), Err(Halt::Stopped(Stop::Panicked))));
    }
}
