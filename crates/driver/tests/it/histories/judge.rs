//! Judges a history from outside, over its journal alone.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_approval_core::audit::{AuditRecord, Execution, ExecutionOutcome};
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::ids::{ApprovalId, CallId, RunId, Subject};
use countersign_approval_core::review::{ApprovalRequest, Decision, Outcome, Resolution};

use super::Seen;
use super::journal::{Entry, What};
use super::scene::Plan;

mod runs;

/// Timers of tokio are this coarse.
const TICK: Duration = Duration::from_millis(1);

pub(super) fn judge(entries: &[Entry], plans: &[Plan], seen: &mut Seen) {
    let mut case = Case {
        entries,
        plans,
        seen: RefCell::new(seen),
        reviews: BTreeMap::new(),
        executions: BTreeMap::new(),
    };
    case.trail();
    case.ends();
    case.decisions();
    case.effects();
    case.runs();
}

/// A review as the trail tells it. Numbers are positions in the journal.
struct Review {
    asked: usize,
    subject: Subject,
    approval: Arc<ApprovalRequest>,
    /// Where its end was recorded, or where the sink refused to.
    ended: Option<usize>,
    resolution: Option<Resolution>,
}

struct Executed {
    started: usize,
    execution: Execution,
    outcomes: Vec<ExecutionOutcome>,
    refused: u32,
}

struct Case<'a> {
    entries: &'a [Entry],
    plans: &'a [Plan],
    seen: RefCell<&'a mut Seen>,
    reviews: BTreeMap<ApprovalId, Review>,
    executions: BTreeMap<(RunId, CallId), Executed>,
}

impl<'a> Case<'a> {
    fn saw(&self, what: &'static str) {
        *self.seen.borrow_mut().entry(what).or_default() += 1;
    }

    /// I3, I7: records come in their order, each once, and each speaks of the same call.
    fn trail(&mut self) {
        for (at, entry) in self.entries.iter().enumerate() {
            let (record, accepted) = match &entry.what {
                What::Accepted(record) => (record, true),
                What::Refused(record) => (record, false),
                _ => continue,
            };
            match record {
                AuditRecord::Requested { .. } | AuditRecord::ExecutionStarted(_) if !accepted => {}
                AuditRecord::Requested { subject, approval, digest, .. } => {
                    assert_eq!(*digest, approval.call.digest());
                    let review = Review {
                        asked: at,
                        subject: subject.clone(),
                        approval: Arc::clone(approval),
                        ended: None,
                        resolution: None,
                    };
                    assert!(self.reviews.insert(approval.approval_id, review).is_none(), "asked twice");
                }
                AuditRecord::Resolved { subject, approval, digest, resolution, .. } => {
                    let review = self.reviews.get_mut(&approval.approval_id).expect("asked before");
                    assert_eq!(
                        (subject, approval, *digest),
                        (&review.subject, &review.approval, approval.call.digest())
                    );
                    assert_eq!(resolution.approval_id, approval.approval_id);
                    assert_eq!(resolution.run_id, approval.run_id);
                    assert_eq!(review.ended, None, "one end, tried once");
                    review.ended = Some(at);
                    review.resolution = accepted.then(|| resolution.clone());
                }
                AuditRecord::ExecutionStarted(execution) => {
                    let executed = Executed {
                        started: at,
                        execution: execution.clone(),
                        outcomes: Vec::new(),
                        refused: 0,
                    };
                    let key = (execution.run_id, execution.call_id.clone());
                    assert!(self.executions.insert(key, executed).is_none(), "started twice");
                }
                AuditRecord::ExecutionFinished { execution, outcome } => {
                    let key = (execution.run_id, execution.call_id.clone());
                    let executed = self.executions.get_mut(&key).expect("started before");
                    assert_eq!(executed.execution.digest, execution.digest);
                    if accepted { executed.outcomes.push(*outcome) } else { executed.refused += 1 }
                }
                _ => {}
            }
        }
        for executed in self.executions.values() {
            assert_eq!(executed.outcomes.len() as u32 + executed.refused, 1, "{:?}", executed.execution);
        }
    }

    /// I6, I7, R9: every review ends, in time, and for a reason that is true.
    fn ends(&mut self) {
        for (id, review) in std::mem::take(&mut self.reviews) {
            let plan = self.plan_of(review.approval.run_id);
            let asked = self.entries[review.asked].now;
            let ended = self.entries[review.ended.expect("every review ends")].now;
            let lasted = ended.monotonic - asked.monotonic;
            if let (Some(after), Some(expires_at)) = (plan.expires_after, review.approval.expires_at) {
                let after = Duration::from_millis(after.into());
                assert!(lasted <= after + TICK, "{id} went on after its time");
                // R9: a wall clock that stays past the due time is seen within a second.
                let mut past = None;
                for entry in &self.entries[review.asked..=review.ended.unwrap()] {
                    past = (entry.now.wall >= expires_at).then(|| past.unwrap_or(entry.monotonic()));
                    let unseen = past.map_or(Duration::ZERO, |past| entry.monotonic() - past);
                    assert!(unseen <= Duration::from_secs(1), "{id}: a wall jump was seen late");
                }
                if let Some(end) = review.resolution.as_ref().filter(|end| end.outcome == Outcome::Expired) {
                    // What counts is the wall clock when the end was proposed: it may be set back while a slow sink
                    // takes the record.
                    assert!(lasted >= after || end.decided_at >= expires_at, "{id} expired early");
                    if lasted < after {
                        self.saw("wall clock expired it");
                    }
                }
            } else {
                assert_eq!(review.approval.expires_at, None);
            }
            if let Some(resolution) = &review.resolution {
                if resolution.outcome == Outcome::Expired {
                    assert!(plan.expires_after.is_some());
                }
                self.saw(match resolution.outcome {
                    Outcome::Approved => "approved",
                    Outcome::Denied => "denied",
                    Outcome::Cancelled => "cancelled",
                    Outcome::Expired => "expired",
                });
            }
            self.idle_of_review(&review, plan, lasted);
            self.reviews.insert(id, review);
        }
    }

    /// I8: under `continue` the wait is not progress. (`pause` is judged where runs end.)
    fn idle_of_review(&self, review: &Review, plan: &Plan, lasted: Duration) {
        use countersign_approval_core::review::IdlePolicy;
        if let (IdlePolicy::Continue, Some(idle)) = (plan.policy, plan.idle) {
            let idle = Duration::from_millis(idle.into());
            assert!(lasted <= idle + TICK, "{:?} was open longer than the idle limit", review.approval);
        }
    }

    /// I4, I5: each decision has one answer, and the answer was recorded first.
    fn decisions(&self) {
        let mut taken: BTreeMap<ApprovalId, usize> = BTreeMap::new();
        for (told_at, entry) in self.entries.iter().enumerate() {
            let What::Told { attempt, result } = &entry.what else { continue };
            let (sent_at, caller, granted, request) = self.attempt(*attempt);
            let between = &self.entries[sent_at..told_at];
            let review = ApprovalId::parse(&request.approval_id).and_then(|id| self.reviews.get(&id));
            match result {
                Ok(receipt) => {
                    let review = review.expect("there is such a review");
                    assert_eq!(
                        *taken.entry(receipt.approval_id).or_insert(*attempt),
                        *attempt,
                        "decided twice"
                    );
                    assert_eq!(review.resolution.as_ref(), Some(receipt), "the receipt is what was recorded");
                    assert!(review.ended.is_some_and(|ended| ended < told_at), "recorded before told");
                    assert_eq!(receipt.outcome, request.decision.outcome());
                    assert!(granted && *caller == review.subject, "by its subject, with the grants");
                    assert_eq!(*request, DecisionRequest::of(&review.approval, request.decision));
                    self.in_time(sent_at, review);
                    self.saw("decision taken");
                }
                Err((code, message)) => {
                    let code = code.as_str();
                    assert!(!message.contains("private"), "{message}");
                    let rejected = |entry: &Entry| matches!(entry.accepted(), Some(AuditRecord::Rejected { subject, code: recorded, .. }) if subject == caller && *recorded == code);
                    let refused = |entry: &Entry| matches!(entry.what, What::Refused(_));
                    let known = ["APPROVAL_NOT_FOUND", "APPROVAL_MISMATCH", "FORBIDDEN", "INVALID_APPROVAL"];
                    match known.into_iter().find(|known| *known == code) {
                        Some(code) => {
                            assert!(between.iter().any(rejected), "{code} was told before it was recorded");
                            self.saw(code);
                        }
                        None => {
                            assert_eq!(code, "APPROVAL_AUDIT_FAILED");
                            assert!(between.iter().any(refused), "nothing failed");
                            self.saw("APPROVAL_AUDIT_FAILED");
                        }
                    }
                    if review.is_none_or(|review| review.subject != *caller) {
                        assert!(
                            !["APPROVAL_MISMATCH", "FORBIDDEN"].contains(&code),
                            "a stranger learned of it"
                        );
                        self.saw("stranger refused");
                    }
                    if code == "APPROVAL_NOT_FOUND" {
                        assert_eq!(
                            message,
                            &countersign_approval_core::Error::NotFound.to_string(),
                            "one answer in every case"
                        );
                    }
                }
            }
        }
    }

    /// R9: no decision is taken at or after the due instant of either clock.
    fn in_time(&self, sent_at: usize, review: &Review) {
        let now = self.entries[sent_at].now;
        if let Some(expires_at) = review.approval.expires_at {
            let after = self.plan_of(review.approval.run_id).expires_after.unwrap();
            let due = self.entries[review.asked].monotonic() + Duration::from_millis(after.into());
            assert!(now.wall < expires_at && now.monotonic < due, "decided too late");
        }
    }

    /// I1, I2, I3, I10: every call of a tool, and what it rests on.
    fn effects(&self) {
        let mut called: Vec<(RunId, CallId)> = Vec::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let What::Started { run, call, tool, subject, text } = &entry.what else { continue };
            let key = (*run, call.clone());
            assert!(!called.contains(&key), "{call} of {run} ran twice");
            called.push(key.clone());
            let plan = self.plan_of(*run);
            assert_eq!(subject.as_str(), plan.subject);
            if *tool != "write" {
                assert!(!self.executions.contains_key(&key), "only gated calls are recorded");
                continue;
            }
            let executed = &self.executions[&key];
            assert!(executed.started < at, "recorded before it ran");
            let review = &self.reviews[&executed.execution.approval_id.expect("by a person")];
            assert_eq!((review.approval.run_id, &review.approval.call.call().id), (*run, call));
            assert_eq!(executed.execution.digest, review.approval.call.digest());
            assert_eq!(review.approval.call.call().arguments.text(), text, "what was audited is what ran");
            assert_eq!(*subject, review.subject);
            let outcome = review.resolution.as_ref().map(|end| end.outcome);
            assert_eq!(outcome, Some(Outcome::Approved), "{call} of {run}");
            assert!(review.ended.is_some_and(|ended| ended < executed.started));
            self.rests_on_a_person(review);
            assert!(
                !executed.outcomes.contains(&ExecutionOutcome::NotStarted),
                "{call} of {run} ran and is recorded as not started"
            );
            self.saw("gated call ran");
        }
        for (key, executed) in &self.executions {
            if executed.outcomes.contains(&ExecutionOutcome::Completed) {
                let returned = self.entries.iter().any(|entry| matches!(&entry.what, What::Returned { run, call } if (*run, call.clone()) == *key));
                assert!(returned, "recorded as completed, but it did not return");
            }
            assert!(called.contains(key) || executed.outcomes != [ExecutionOutcome::Completed]);
        }
    }

    /// Somebody with that subject and the grants sent exactly this call with `approve`, before the end was recorded.
    fn rests_on_a_person(&self, review: &Review) {
        let wanted = DecisionRequest::of(&review.approval, Decision::Approve);
        let sent = self.entries[..review.ended.unwrap()].iter().any(|entry| {
            matches!(&entry.what, What::Deciding { caller, granted: true, request, .. } if *caller == review.subject && *request == wanted)
        });
        assert!(sent, "nobody approved {:?}", review.approval);
    }

    fn attempt(&self, number: usize) -> (usize, &'a Subject, bool, &'a DecisionRequest) {
        let found = self.entries.iter().enumerate().find_map(|(at, entry)| match &entry.what {
            What::Deciding { attempt, caller, granted, request } if *attempt == number => {
                Some((at, caller, *granted, request))
            }
            _ => None,
        });
        found.expect("sent before it was told")
    }

    fn plan_of(&self, run: RunId) -> &'a Plan {
        let number = self.entries.iter().find_map(|entry| match &entry.what {
            What::Took(number, event) if event.run_id == run => Some(*number),
            _ => None,
        });
        &self.plans[number.expect("every run begins with an event")]
    }
}
