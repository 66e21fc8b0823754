//! The audit records against what the tool and the clients saw (I1 to I4, I7; laws 1, 2, 5, 8).

use std::collections::{BTreeMap, BTreeSet};

use countersign_approval_core::audit::{AuditRecord, ExecutionOutcome};
use countersign_approval_core::ids::{ApprovalId, CallId, RunId};
use countersign_approval_core::json::{Digest, Exact};
use countersign_approval_core::review::{ApprovalRequest, Outcome, Resolution};
use countersign_protocol::event::EventBody;

use super::position;
use crate::histories::journal::{Fact, Kind, Played, Sink};

/// Everything that the trail says of one review, with positions among the facts.
#[derive(Default)]
struct Review<'a> {
    requested: Vec<(usize, &'a ApprovalRequest, Digest)>,
    resolved: Vec<(usize, &'a Resolution, Sink)>,
    started: Vec<(usize, Digest, Sink)>,
    finished: Vec<(usize, ExecutionOutcome)>,
}

pub(super) fn check(played: &Played) {
    let reviews = reviews(played);
    for (id, review) in &reviews {
        check_review(played, *id, review);
    }
    check_effects(played, &reviews);
    check_questions(played, &reviews);
}

fn reviews(played: &Played) -> BTreeMap<ApprovalId, Review<'_>> {
    let mut reviews: BTreeMap<ApprovalId, Review<'_>> = BTreeMap::new();
    for (at, fact) in played.facts.iter().enumerate() {
        let Fact::Audit { record, sink } = fact else { continue };
        match record {
            AuditRecord::Requested { approval, digest, .. } if *sink == Sink::Accepted => {
                reviews.entry(approval.approval_id).or_default().requested.push((at, approval, *digest));
            }
            AuditRecord::Resolved { approval, resolution, .. } => {
                assert_eq!(resolution.approval_id, approval.approval_id);
                reviews.entry(approval.approval_id).or_default().resolved.push((at, resolution, *sink));
            }
            AuditRecord::ExecutionStarted(execution) => {
                let id = execution.approval_id.expect("every execution here was reviewed");
                reviews.entry(id).or_default().started.push((at, execution.digest, *sink));
            }
            AuditRecord::ExecutionFinished { execution, outcome } => {
                let id = execution.approval_id.expect("every execution here was reviewed");
                reviews.entry(id).or_default().finished.push((at, *outcome));
            }
            _ => {}
        }
    }
    reviews
}

fn check_review(played: &Played, id: ApprovalId, review: &Review<'_>) {
    let [(asked, approval, digest)] = review.requested[..] else {
        panic!("{id}: asked {} times, and settled or executed", review.requested.len());
    };
    assert_eq!(approval.call.call().arguments.text(), played.arguments, "I2: recorded as proposed");
    assert_eq!(digest, digest_of(approval), "the digest is that of what was shown");

    // I7: one end, or one that the sink refused; law 5: and always one.
    let [(settled, resolution, sink)] = review.resolved[..] else {
        panic!("I7, law 5: {id} was settled {} times", review.resolved.len());
    };
    assert!(asked < settled, "I7: asked before settled");
    assert_eq!((resolution.run_id, &resolution.call_id), (approval.run_id, &approval.call.call().id));

    let decided = position(played, |fact| match fact {
        Fact::Attempt { attempt, .. } => {
            attempt.kind == Kind::Honest
                && attempt.decision.approval_id == id.to_string()
                && attempt.decision.decision.outcome() == resolution.outcome
        }
        _ => false,
    });
    if matches!(resolution.outcome, Outcome::Approved | Outcome::Denied) {
        assert!(decided.is_some_and(|at| at < settled), "I1: {id} was {:?} by nobody", resolution.outcome);
    }

    if let Some((started, executed, accepted)) = review.started.first().copied() {
        assert_eq!(review.started.len(), 1, "I1: {id} was executed twice");
        assert_eq!(sink, Sink::Accepted, "I4: executed though the sink had refused its approval");
        assert_eq!(resolution.outcome, Outcome::Approved, "I1");
        assert_eq!(executed, digest, "I2: another call was executed");
        assert!(settled < started, "I3");
        match (accepted, &review.finished[..]) {
            (Sink::Accepted, [(finished, _)]) => assert!(started < *finished),
            (Sink::Refused, []) => {}
            (_, finished) => panic!("{id}: started, {accepted:?}, and finished {} times", finished.len()),
        }
    } else {
        assert!(review.finished.is_empty(), "{id} finished without having started");
    }
}

fn check_effects(played: &Played, reviews: &BTreeMap<ApprovalId, Review<'_>>) {
    let mut ran: BTreeSet<(RunId, CallId)> = BTreeSet::new();
    for (at, fact) in played.facts.iter().enumerate() {
        let Fact::Tool { run, call, subject, text } = fact else { continue };
        assert!(ran.insert((*run, call.clone())), "I1: {run} {call} ran twice");
        assert_eq!(*text, played.arguments, "I2: other arguments than the reviewed ones ran");
        let review = reviews
            .values()
            .find(|review| {
                let approval = review.requested[0].1;
                approval.run_id == *run && approval.call.call().id == *call
            })
            .expect("I1: ran without a review");
        let (started, _, sink) = review.started.first().copied().expect("I3: ran without a record of it");
        assert!(started < at && sink == Sink::Accepted, "I3, I4: ran before its record was accepted");
        assert!(
            played.facts.iter().any(|fact| matches!(fact, Fact::Audit {
                record: AuditRecord::Requested { subject: recorded, approval, .. }, ..
            } if approval.run_id == *run && recorded == subject)),
            "law 4: the tool was told another subject than the recorded one"
        );
    }
    // Law 8: what the trail calls not started did not run; what it calls completed did.
    for review in reviews.values() {
        let approval = review.requested[0].1;
        let has_run = ran.contains(&(approval.run_id, approval.call.call().id.clone()));
        match review.finished.first() {
            Some((_, ExecutionOutcome::NotStarted)) | None => assert!(!has_run),
            Some((_, ExecutionOutcome::Completed)) => assert!(has_run),
            Some((_, ExecutionOutcome::Uncertain)) => {}
        }
    }
}

/// I3 and J9: a question reaches a client only after its record, and is the very same one.
fn check_questions(played: &Played, reviews: &BTreeMap<ApprovalId, Review<'_>>) {
    for (at, fact) in played.facts.iter().enumerate() {
        let Fact::Event { event, .. } = fact else { continue };
        match &event.body {
            EventBody::ApprovalRequested { approval, .. } => {
                let (recorded, asked, _) = reviews[&approval.approval_id].requested[0];
                assert!(recorded < at, "I3: asked before it was recorded");
                assert_eq!(**approval, *asked);
                assert_eq!(event.run_id, asked.run_id);
            }
            EventBody::ApprovalResolved { resolution } => {
                let (recorded, settled, sink) = reviews[&resolution.approval_id].resolved[0];
                assert!(recorded < at && sink == Sink::Accepted, "I3, I4: told before it was recorded");
                assert_eq!(resolution, settled);
            }
            _ => {}
        }
    }
}

/// The digest of design 3, from the text that was shown and not from the host's snapshot.
fn digest_of(approval: &ApprovalRequest) -> Digest {
    let call = approval.call.call();
    let text =
        format!(r#"{{"id":"{}","name":"{}","arguments":{}}}"#, call.id, call.name, call.arguments.text());
    Exact::parse(&text).unwrap().digest()
}
