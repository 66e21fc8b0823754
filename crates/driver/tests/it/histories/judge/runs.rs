//! Judges each run by the events that its reader took (contract 3.2, 5.4, 5.5; I3, I8, I10).

use std::time::Duration;

use countersign_approval_core::ids::CallId;
use countersign_approval_core::review::{IdlePolicy, Outcome};
use countersign_protocol::event::{Event, EventBody};

use super::{Case, Plan, What};

/// An event with its place in the journal.
type Taken<'a> = (usize, &'a Event);

impl Case<'_> {
    pub(super) fn runs(&self) {
        let (entries, plans) = (self.entries, self.plans);
        for plan in plans {
            let taken: Vec<Taken<'_>> = entries
                .iter()
                .enumerate()
                .filter_map(|(at, entry)| match &entry.what {
                    What::Took(number, event) if *number == plan.number => Some((at, event)),
                    _ => None,
                })
                .collect();
            let left =
                entries.iter().any(|entry| matches!(entry.what, What::Left(number) if number == plan.number));
            self.sequence(&taken, left);
            self.reviews_of_run(plan, &taken);
            if let Some((at, event)) = taken.last().filter(|(_, event)| event.is_terminal()) {
                self.terminal(plan, &taken, *at, event);
            }
            if left {
                self.saw("reader left");
            }
        }
    }

    /// Numbers without gaps, one run, one start, one end.
    fn sequence(&self, taken: &[Taken<'_>], left: bool) {
        let first = taken.first().expect("a run begins with an event").1;
        for ((_, event), sequence) in taken.iter().zip(1..) {
            assert_eq!((event.sequence, event.run_id), (sequence, first.run_id));
            assert_eq!(matches!(event.body, EventBody::RunStarted { .. }), sequence == 1);
            assert!(!event.to_json().contains("private"), "a private cause was told");
        }
        let ends = taken.iter().filter(|(_, event)| event.is_terminal()).count();
        let last = taken.last().is_some_and(|(_, event)| event.is_terminal());
        assert!(ends == usize::from(last), "nothing follows the end");
        assert!(last || left, "a run that is read to the end says how it ended");
    }

    /// A question is told after it was recorded, its end after that, and only then does the call run.
    fn reviews_of_run(&self, plan: &Plan, taken: &[Taken<'_>]) {
        for (n, (at, event)) in taken.iter().enumerate() {
            let next = taken.get(n + 1).map(|(_, event)| &event.body);
            match &event.body {
                EventBody::ApprovalRequested { approval, .. } => {
                    let review = &self.reviews[&approval.approval_id];
                    assert!(review.asked < *at, "recorded before told");
                    assert_eq!(**approval, *review.approval);
                    let called = taken[..n].last().map(|(_, event)| &event.body);
                    assert!(
                        matches!(called, Some(EventBody::ToolCalled { call }) if call == approval.call.call()),
                        "the question is about the call that was just shown"
                    );
                    assert!(matches!(
                        next,
                        None | Some(
                            EventBody::ApprovalResolved { .. }
                                | EventBody::RunFailed { .. }
                                | EventBody::RunCancelled { .. }
                        )
                    ));
                }
                EventBody::ApprovalResolved { resolution } => {
                    let review = &self.reviews[&resolution.approval_id];
                    assert_eq!(review.resolution.as_ref(), Some(resolution));
                    assert!(review.ended.is_some_and(|ended| ended < *at), "recorded before told");
                    let asked = taken[..n].last().map(|(_, event)| &event.body);
                    assert!(
                        matches!(asked, Some(EventBody::ApprovalRequested { approval, .. }) if approval.approval_id == resolution.approval_id)
                    );
                    // The call waits until the reader has taken this and asks for more (design 4).
                    let started = self.start_of(event, &resolution.call_id);
                    let asks = |what: &What| matches!(what, What::Asks(number) if *number == plan.number);
                    let asked = (*at..self.entries.len()).find(|at| asks(&self.entries[*at].what));
                    assert!(
                        started.is_none_or(|started| asked.is_some_and(|asked| started > asked)),
                        "it ran before its approval was taken"
                    );
                    assert!(started.is_none() || resolution.outcome == Outcome::Approved);
                }
                EventBody::ToolCompleted { call_id, .. } => {
                    assert!(self.start_of(event, call_id).is_some_and(|started| started < *at));
                    let returned = self.entries[..*at].iter().any(|entry| matches!(&entry.what, What::Returned { run, call } if *run == event.run_id && call == call_id));
                    assert!(returned, "completed before it returned");
                }
                _ => {}
            }
        }
    }

    fn terminal(&self, plan: &Plan, taken: &[Taken<'_>], at: usize, event: &Event) {
        // Law 8: a call that was made and not confirmed makes the end uncertain, and nothing else does.
        let open = self.entries.iter().any(|entry| {
            match &entry.what {
            What::Started { run, call, .. } if *run == event.run_id => !taken.iter().any(|(_, event)| {
                matches!(&event.body, EventBody::ToolCompleted { call_id, .. } if call_id == call)
            }),
            _ => false,
        }
        });
        let last_review = taken.iter().rev().find_map(|(_, event)| match &event.body {
            EventBody::ApprovalResolved { resolution } => Some(resolution.outcome),
            _ => None,
        });
        match &event.body {
            EventBody::RunCompleted { .. } => {
                assert!(!open);
                assert!(last_review.is_none_or(|outcome| outcome == Outcome::Approved));
                self.saw("run.completed");
            }
            EventBody::RunFailed { error } => {
                assert_eq!(error.outcome.is_some(), open, "{error:?}");
                let code = error.code.as_str();
                match last_review {
                    Some(Outcome::Denied) => assert_eq!(code, "APPROVAL_DENIED"),
                    Some(Outcome::Expired) => assert_eq!(code, "APPROVAL_EXPIRED"),
                    Some(Outcome::Cancelled) => panic!("a cancelled review cancels its run"),
                    Some(Outcome::Approved) | None if open => {
                        assert!(
                            ["TOOL_OUTCOME_UNCERTAIN", "APPROVAL_AUDIT_FAILED"].contains(&code),
                            "{code}"
                        );
                    }
                    Some(Outcome::Approved) | None => assert_eq!(code, "APPROVAL_AUDIT_FAILED"),
                }
                self.saw("run.failed");
            }
            EventBody::RunCancelled { error } => {
                assert_eq!(error.outcome.is_some(), open, "{error:?}");
                match error.code.as_str() {
                    "CANCELLED" => {}
                    "IDLE_TIMEOUT" => self.idle_end(plan, at, event),
                    other => panic!("cancelled by {other}"),
                }
                self.saw("run.cancelled");
            }
            _ => {}
        }
        if open {
            self.saw("uncertain");
        }
    }

    /// I8: no idle end without a limit, none while a `pause` review is open, and none within a whole interval after
    /// its approval.
    fn idle_end(&self, plan: &Plan, at: usize, event: &Event) {
        let limit = Duration::from_millis(plan.idle.expect("there is a limit").into());
        let now = self.entries[at].monotonic();
        let of_run = self.reviews.values().filter(|review| review.approval.run_id == event.run_id);
        for review in of_run.filter(|_| plan.policy == IdlePolicy::Pause) {
            let outcome = review.resolution.as_ref().map(|end| end.outcome);
            assert_ne!(outcome, Some(Outcome::Cancelled), "the clock ran while a person was deciding");
            let ended = self.entries[review.ended.unwrap()].monotonic();
            if outcome == Some(Outcome::Approved) {
                assert!(now >= ended + limit, "less than a whole interval after the approval");
            }
        }
        self.saw("idle timeout");
    }

    fn start_of(&self, event: &Event, id: &CallId) -> Option<usize> {
        self.entries.iter().position(|entry| matches!(&entry.what, What::Started { run, call, .. } if *run == event.run_id && call == id))
    }
}
