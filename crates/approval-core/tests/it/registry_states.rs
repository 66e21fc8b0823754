//! The states of a review between its two clocks: opening, waiting, settling, gone (design 4, contract 4.3, 4.7).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at what it does not expect")]

use std::time::Duration;

use countersign_approval_core::clock::{Now, Timestamp};
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::registry::{Due, Limits, Proposal, Reasons, Registry, Verdict};
use countersign_approval_core::review::{Decision, Outcome};

use crate::registry_bench::{Run, START, approval_id, at, caller, limits, opened, review};

fn decide(
    registry: &mut Registry<Run>,
    now: Now,
    request: &DecisionRequest,
) -> Result<Box<Proposal>, &'static str> {
    match registry.decide(now, &caller("alice"), request) {
        Verdict::Settle(proposal) => Ok(proposal),
        Verdict::Refuse(refusal) => Err(refusal.error.code()),
    }
}

#[test]
fn an_opening_review_is_not_there_yet() {
    // Law 2: what was not recorded as asked can be neither decided nor expired nor withdrawn.
    let mut registry = Registry::new(Limits::default());
    let opening = registry.open(at(0, 0), approval_id(1), review(Some(10)), Run::number(1)).unwrap();
    assert_eq!((registry.pending(), registry.next_due()), (1, None));
    let approval = match opening.record() {
        countersign_approval_core::audit::AuditRecord::Requested { approval, .. } => approval.clone(),
        other => panic!("{other:?}"),
    };
    let request = DecisionRequest::of(&approval, Decision::Approve);
    assert_eq!(decide(&mut registry, at(5, 5), &request).unwrap_err(), "APPROVAL_NOT_FOUND");
    assert!(registry.expire_next(at(20, 20)).is_none());
    assert!(registry.cancel(at(5, 5), approval_id(1)).is_none());
    assert!(registry.abort(approval_id(1)).is_none(), "nothing is being settled");
    // Its time runs from the opening, not from the acceptance of the record.
    let approval = registry.opened(opening);
    assert_eq!(approval.requested_at, Timestamp::from_millis(START));
    assert_eq!(approval.expires_at, Some(Timestamp::from_millis(START + 10)));
    assert_eq!(registry.expire_next(at(10, 5)).unwrap().resolution().outcome, Outcome::Expired);
}

#[test]
fn a_review_that_could_not_be_recorded_leaves_nothing() {
    // Contract 4.3, step 5; reliability I4, I6.
    let mut registry = Registry::new(limits(1, 600));
    let opening = registry.open(at(0, 0), approval_id(1), review(Some(10)), Run::number(7)).unwrap();
    assert_eq!(registry.open_failed(opening).unwrap().number, 7, "the waiter comes back");
    assert_eq!((registry.pending(), registry.next_due()), (0, None));
    let approval = opened(&mut registry, 1, None);
    let request = DecisionRequest::of(&approval, Decision::Deny);
    assert!(decide(&mut registry, at(0, 0), &request).is_ok(), "the id and the room are free again");
}

#[test]
fn a_reason_is_recorded_where_reasons_are_taken() {
    // Design 4, denial-feedback: whatever the answer; at most 2,000 characters; law 2: with the record of the decision.
    use countersign_approval_core::audit::AuditRecord;
    for decision in [Decision::Deny, Decision::Approve, Decision::Cancel] {
        let mut registry = Registry::new(Limits::default()).with_reasons(Reasons::Accepted);
        let approval = opened(&mut registry, 1, None);
        let request = DecisionRequest::of(&approval, decision);
        for (longest, code) in
            [("é".repeat(2_001), Err("INVALID_APPROVAL")), ("\u{1f600}".repeat(1_000), Ok(()))]
        {
            let request = request.clone().with_reason(longest.clone());
            let answer = decide(&mut registry, at(0, 0), &request).map(|proposal| {
                let AuditRecord::Resolved { reason, .. } = proposal.record() else { panic!() };
                assert_eq!(reason.as_deref(), Some(longest.as_str()));
                let settled = registry.commit(*proposal).unwrap();
                assert_eq!(settled.reason.as_deref(), Some(longest.as_str()));
            });
            assert_eq!(answer, code);
        }
    }
    // Elsewhere it makes the decision invalid, before anything is looked up (contract 4.4, row 1).
    let mut registry = Registry::new(Limits::default());
    let approval = opened(&mut registry, 1, None);
    let honest = DecisionRequest::of(&approval, Decision::Deny);
    let unknown = DecisionRequest { approval_id: "x".into(), ..honest.clone() };
    for request in [honest.clone().with_reason(""), unknown.with_reason("no")] {
        assert_eq!(decide(&mut registry, at(0, 0), &request).unwrap_err(), "INVALID_APPROVAL");
    }
    assert!(decide(&mut registry, at(0, 0), &honest).is_ok(), "the review stays");
}

#[test]
fn a_late_decision_leaves_no_reason() {
    // Design 4: expiry is never told as a refusal (contract 4.4, row 4).
    use countersign_approval_core::audit::AuditRecord;
    let mut registry = Registry::new(Limits::default()).with_reasons(Reasons::Accepted);
    let approval = opened(&mut registry, 1, Some(10));
    let request = DecisionRequest::of(&approval, Decision::Deny).with_reason("no");
    let proposal = decide(&mut registry, at(10, 10), &request).unwrap();
    let AuditRecord::Resolved { reason, resolution, .. } = proposal.record() else { panic!() };
    assert_eq!((resolution.outcome, reason), (Outcome::Expired, &None));
    assert_eq!(registry.commit(*proposal).unwrap().reason, None);
}

#[test]
fn a_settling_review_is_left_alone_however_it_is_settled() {
    // Design 4: every other decision is NotFound; expiry and cancel leave it alone; then commit or abort, once.
    type Settle = fn(&mut Registry<Run>, &DecisionRequest) -> Proposal;
    let ways: [(Outcome, Settle); 5] = [
        (Outcome::Approved, |registry, request| *decide(registry, at(0, 0), request).unwrap()),
        (Outcome::Denied, |registry, request| {
            let deny = DecisionRequest { decision: Decision::Deny, ..request.clone() };
            *decide(registry, at(0, 0), &deny).unwrap()
        }),
        (Outcome::Expired, |registry, request| *decide(registry, at(10, 0), request).unwrap()),
        (Outcome::Expired, |registry, _| registry.expire_next(at(0, 10)).unwrap()),
        (Outcome::Cancelled, |registry, _| registry.cancel(at(0, 0), approval_id(1)).unwrap()),
    ];
    for (way, (outcome, settle)) in ways.into_iter().enumerate() {
        for accepted in [true, false] {
            let mut registry = Registry::new(limits(1, 600));
            let request = DecisionRequest::of(&opened(&mut registry, 1, Some(10)), Decision::Approve);
            let proposal = settle(&mut registry, &request);
            assert_eq!(proposal.resolution().outcome, outcome, "way {way}");
            assert_eq!((registry.pending(), registry.next_due()), (1, None), "way {way}");
            assert!(registry.check_capacity().is_err(), "way {way}: it still takes up room");
            for now in [at(1, 1), at(50, 50)] {
                assert_eq!(decide(&mut registry, now, &request).unwrap_err(), "APPROVAL_NOT_FOUND");
                assert!(registry.expire_next(now).is_none(), "way {way}");
                assert!(registry.cancel(now, approval_id(1)).is_none(), "way {way}");
            }
            let settled =
                if accepted { registry.commit(proposal) } else { registry.abort(proposal.id()) }.unwrap();
            assert_eq!(settled.waiter.number, 1);
            assert_eq!(settled.end.ok().map(|end| end.outcome), accepted.then_some(outcome), "way {way}");
            assert_eq!((registry.pending(), registry.next_due()), (0, None), "way {way}");
            assert!(registry.abort(approval_id(1)).is_none(), "way {way}: it is over");
            assert!(registry.cancel(at(2, 2), approval_id(1)).is_none(), "way {way}");
            assert_eq!(decide(&mut registry, at(2, 2), &request).unwrap_err(), "APPROVAL_NOT_FOUND");
        }
    }
}

#[test]
fn abort_is_for_settling_reviews_only() {
    // A stray abort must not take a person's question away.
    let mut registry = Registry::new(Limits::default());
    let request = DecisionRequest::of(&opened(&mut registry, 1, None), Decision::Approve);
    assert!(registry.abort(approval_id(1)).is_none());
    assert!(decide(&mut registry, at(0, 0), &request).is_ok());
}

#[test]
fn a_proposal_fits_its_own_registry_only() {
    let (mut one, mut other) = (Registry::new(Limits::default()), Registry::new(Limits::default()));
    let request = DecisionRequest::of(&opened(&mut one, 1, None), Decision::Approve);
    let request_of_other = DecisionRequest::of(&opened(&mut other, 1, None), Decision::Approve);
    let proposal = decide(&mut one, at(0, 0), &request).unwrap();
    assert!(other.commit(*proposal).is_none());
    assert!(decide(&mut other, at(0, 0), &request_of_other).is_ok());
}

#[test]
fn capacity_counts_everything_that_is_not_over() {
    // Contract 4.1, 4.3; law 9: tested at its edge, with the bound named.
    let mut registry = Registry::new(limits(3, 600));
    let opening = registry.open(at(0, 0), approval_id(1), review(None), Run::number(1)).unwrap();
    opened(&mut registry, 2, None);
    opened(&mut registry, 3, None);
    let settling = registry.cancel(at(0, 0), approval_id(3)).unwrap();
    let refused = registry.open(at(0, 0), approval_id(4), review(None), Run::number(4)).unwrap_err();
    assert_eq!(refused.code(), "APPROVAL_CAPACITY");
    assert!(refused.to_string().starts_with("3 "), "{refused}");
    assert_eq!(registry.pending(), 3);
    let _ = registry.commit(settling).unwrap();
    assert!(registry.check_capacity().is_ok());
    // An id in use is refused although there is room, and what has it stays.
    assert!(registry.open(at(0, 0), approval_id(2), review(None), Run::number(5)).is_err());
    assert_eq!(registry.pending(), 2);
    let approval = registry.opened(opening);
    assert!(decide(&mut registry, at(0, 0), &DecisionRequest::of(&approval, Decision::Approve)).is_ok());
    assert!(Registry::<Run>::new(limits(0, 600)).check_capacity().is_err());
}

#[test]
fn either_clock_expires_at_the_exact_instant_and_neither_extends() {
    // Contract 4.4, row 4; reliability R9; scenario G1. `expiresAfterMs: 1000` from (0, 0).
    const DAY: i64 = 86_400_000;
    let cases = [
        (at(0, 0), false),
        (at(999, 999), false),
        (at(1_000, 999), true),
        (at(999, 1_000), true),
        (at(1_000, 0), true),
        (at(-DAY, 999), false),
        (at(-DAY, 1_000), true),
        (at(DAY, 0), true),
        // Past 2^31 ms.
        (at(25 * DAY, 0), true),
        (at(-25 * DAY, 1_000), true),
    ];
    for (now, over) in cases {
        let mut registry = Registry::new(Limits::default());
        let request = DecisionRequest::of(&opened(&mut registry, 1, Some(1_000)), Decision::Approve);
        let proposal = registry.expire_next(now);
        assert_eq!(proposal.is_some(), over, "expiry at {now:?}");
        assert!(registry.expire_next(now).is_none(), "once");

        let mut registry = Registry::new(Limits::default());
        opened(&mut registry, 1, Some(1_000));
        let decided = decide(&mut registry, now, &request).unwrap();
        let expected = if over { Outcome::Expired } else { Outcome::Approved };
        assert_eq!(decided.resolution().outcome, expected, "decision at {now:?}");
    }
}

#[test]
fn a_backward_jump_does_not_revive() {
    // R9: seen before and after the due time, with the wall clock set back in between.
    let mut registry = Registry::new(Limits::default());
    opened(&mut registry, 1, Some(1_000));
    assert!(registry.expire_next(at(500, 500)).is_none());
    assert!(registry.expire_next(at(-90_000, 900)).is_none());
    assert_eq!(registry.expire_next(at(-90_000, 1_000)).unwrap().resolution().outcome, Outcome::Expired);
}

#[test]
fn without_an_expiry_a_review_waits_for_ever() {
    // Contract 4.7; scenario G7.
    let mut registry = Registry::new(Limits::default());
    let approval = opened(&mut registry, 1, None);
    assert_eq!((approval.expires_at, registry.next_due()), (None, None));
    let far = Now { wall: Timestamp::MAX, monotonic: Duration::MAX };
    assert!(registry.expire_next(far).is_none());
    assert!(decide(&mut registry, far, &DecisionRequest::of(&approval, Decision::Approve)).is_ok());
}

#[test]
fn the_shortest_and_the_longest_expiry() {
    // Law 9: no arithmetic overflows; the wall time stays one that can be written.
    let mut registry = Registry::new(Limits::default());
    opened(&mut registry, 1, Some(0));
    assert!(registry.expire_next(at(0, 0)).is_some());
    let now = Now { wall: Timestamp::MAX, monotonic: Duration::MAX };
    let mut new = review(None);
    new.expires_after = Some(Duration::MAX);
    let opening = registry.open(at(0, 0), approval_id(2), new.clone(), Run::number(2)).unwrap();
    assert_eq!(registry.opened(opening).expires_at, Some(Timestamp::MAX));
    let opening = registry.open(now, approval_id(3), new, Run::number(3)).unwrap();
    assert_eq!(registry.opened(opening).expires_at, Some(Timestamp::MAX));
    // Both are due at the last moment of the clock, and not before.
    assert!(registry.expire_next(at(0, 0)).is_none());
    assert!(registry.expire_next(now).is_some());
    assert!(registry.expire_next(now).is_some());
    assert!(registry.expire_next(now).is_none());
}

#[test]
fn many_expire_in_order_each_once() {
    // Next due is the earliest of each clock, among the waiting ones only.
    let mut registry = Registry::new(Limits::default());
    for (n, after) in [(1, Some(300)), (2, Some(100)), (3, None), (4, Some(200)), (5, Some(100))] {
        opened(&mut registry, n, after);
    }
    let due = |ms: i64| Due { wall: at(ms, 0).wall, monotonic: Duration::from_millis(ms.unsigned_abs()) };
    assert_eq!(registry.next_due(), Some(due(100)));
    assert!(registry.expire_next(at(99, 99)).is_none());
    let mut held = Vec::new();
    while let Some(proposal) = registry.expire_next(at(200, 0)) {
        held.push(proposal);
    }
    assert_eq!(held.iter().map(Proposal::id).collect::<Vec<_>>(), [2, 5, 4].map(approval_id));
    assert_eq!(registry.next_due(), Some(due(300)), "settling reviews are not due again");
    for proposal in held {
        assert_eq!(registry.commit(proposal).unwrap().end.unwrap().outcome, Outcome::Expired);
    }
    assert!(registry.cancel(at(0, 0), approval_id(1)).is_some());
    assert_eq!((registry.next_due(), registry.pending()), (None, 2));
}

#[test]
fn refused_decisions_are_limited_for_each_subject() {
    // Design 4, Flood: counted, not audited, and no harm to anybody else or to an honest decision.
    let mut registry = Registry::new(limits(1_000, 3));
    let request = DecisionRequest::of(&opened(&mut registry, 1, None), Decision::Approve);
    let unknown = DecisionRequest { approval_id: "x".into(), ..request.clone() };
    let refuse = |registry: &mut Registry<Run>, name: &str, ms: u64| {
        // The window is the monotonic clock's: a wall jump opens none.
        let Verdict::Refuse(refusal) = registry.decide(at(1_000_000, ms), &caller(name), &unknown) else {
            panic!("nothing is found")
        };
        assert_eq!(refusal.record.is_some(), refusal.error.code() != "RATE_LIMITED");
        refusal.error.code()
    };
    for _ in 0..2 {
        assert_eq!(refuse(&mut registry, "alice", 5_000), "APPROVAL_NOT_FOUND");
    }
    // A body that cannot be read counts too.
    let invalid = registry.refuse_invalid(at(0, 5_000), &caller("alice"), None, None, "no".into());
    assert!(invalid.record.is_some());
    assert_eq!(refuse(&mut registry, "alice", 5_000), "RATE_LIMITED");
    let invalid = registry.refuse_invalid(at(0, 5_000), &caller("alice"), None, None, "no".into());
    assert_eq!((invalid.error.code(), invalid.record), ("RATE_LIMITED", None));
    assert_eq!(refuse(&mut registry, "bob", 5_000), "APPROVAL_NOT_FOUND");
    assert_eq!(refuse(&mut registry, "alice", 64_999), "RATE_LIMITED");
    assert_eq!(refuse(&mut registry, "alice", 65_000), "APPROVAL_NOT_FOUND");
    for _ in 0..9 {
        refuse(&mut registry, "alice", 65_001);
    }
    // A window that opened between two sweeps ends by itself.
    for code in ["APPROVAL_NOT_FOUND", "APPROVAL_NOT_FOUND", "APPROVAL_NOT_FOUND", "RATE_LIMITED"] {
        assert_eq!(refuse(&mut registry, "carol", 65_500), code);
    }
    assert_eq!(refuse(&mut registry, "carol", 125_499), "RATE_LIMITED");
    assert_eq!(refuse(&mut registry, "carol", 125_500), "APPROVAL_NOT_FOUND");
    assert!(decide(&mut registry, at(0, 125_501), &request).is_ok(), "an honest decision gets through");
}

#[test]
fn a_limited_caller_still_settles_what_is_over() {
    // Rows 3 and 4 settle the review even if the caller is only told RATE_LIMITED.
    let mut registry = Registry::new(limits(1_000, 0));
    let request = DecisionRequest::of(&opened(&mut registry, 1, Some(10)), Decision::Approve);
    let mut proposal = decide(&mut registry, at(10, 10), &request).unwrap();
    assert_eq!(proposal.resolution().outcome, Outcome::Expired);
    let refusal = proposal.take_refusal().unwrap();
    assert_eq!((refusal.error.code(), refusal.record.is_none()), ("RATE_LIMITED", true));
}

#[test]
fn only_short_ids_are_recorded() {
    // Contract 4.8: ids only if they are text of at most 256 (UTF-16 units).
    let recorded = |approval: &str, run: &str| {
        let mut registry = Registry::<Run>::new(Limits::default());
        let refusal =
            registry.refuse_invalid(at(0, 0), &caller("alice"), Some(approval), Some(run), "no".into());
        let json = serde_json::to_value(refusal.record.unwrap()).unwrap();
        (json.get("approvalId").is_some(), json.get("runId").is_some())
    };
    let (fits, long) = ("é".repeat(256), "é".repeat(257));
    let (wide_fits, wide_long) = ("\u{1f600}".repeat(128), "\u{1f600}".repeat(129));
    assert_eq!(recorded(&fits, &long), (true, false));
    assert_eq!(recorded(&wide_long, &wide_fits), (false, true));
    assert_eq!(recorded("", ""), (true, true));
}
