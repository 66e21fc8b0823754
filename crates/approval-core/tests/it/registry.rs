//! Contract 4.4: every row, and the order of the rows.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at what it does not expect")]

use std::cell::Cell;
use std::rc::Rc;

use countersign_approval_core::audit::AuditRecord;
use countersign_approval_core::clock::Now;
use countersign_approval_core::decision::{DecisionRequest, InvalidDecision};
use countersign_approval_core::grants::Principal;
use countersign_approval_core::json::Exact;
use countersign_approval_core::registry::{AuditFailed, Limits, Refusal, Registry, Settled, Verdict};
use countersign_approval_core::review::{Decision, Outcome};

use crate::registry_bench::{Run, approval_id, at, caller, granted, opened, review, run_id, subject};

/// Row 2: what the caller finds under the id that he names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Waiting,
    Unknown,
    /// The id of the review in upper case: one approval has one spelling.
    Respelled,
    /// The call's id where the approval's belongs (scenario A17).
    CallId,
    Foreign,
    Opening,
    Settling,
    Decided,
}

/// Row 4: by which clock the decision comes too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    No,
    Wall,
    Monotonic,
}

/// Row 5: what the credential lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lacks {
    Nothing,
    Provider,
    Tool,
}

/// Row 6: what the echo says differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Echo {
    Same,
    Run,
    RunRespelled,
    CallId,
    Name,
    Arguments,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    found: Found,
    aborted: bool,
    late: Late,
    lacks: Lacks,
    echo: Echo,
    decision: Decision,
}

/// What the contract's row says: the code, how the review is settled, and whether the entry is consumed.
struct Row {
    code: Option<&'static str>,
    resolved: Option<Outcome>,
}

impl Case {
    /// The first row whose condition holds; the conditions are tried in the contract's order.
    fn row(self) -> Row {
        const NOT_FOUND: Option<&str> = Some("APPROVAL_NOT_FOUND");
        let rows = [
            (self.found != Found::Waiting, NOT_FOUND, None),
            (self.aborted, NOT_FOUND, Some(Outcome::Cancelled)),
            (self.late != Late::No, NOT_FOUND, Some(Outcome::Expired)),
            (self.lacks != Lacks::Nothing, Some("FORBIDDEN"), None),
            (self.echo != Echo::Same, Some("APPROVAL_MISMATCH"), None),
        ];
        for (holds, code, resolved) in rows {
            if holds {
                return Row { code, resolved };
            }
        }
        let outcome = match self.decision {
            Decision::Approve => Outcome::Approved,
            Decision::Deny => Outcome::Denied,
            Decision::Cancel => Outcome::Cancelled,
        };
        Row { code: None, resolved: Some(outcome) }
    }

    fn now(self) -> Now {
        match self.late {
            Late::No => at(999, 999),
            Late::Wall => at(1_000, 0),
            Late::Monotonic => at(-5_000, 1_000),
        }
    }

    fn caller(self) -> Principal {
        let name = if self.found == Found::Foreign { "bob" } else { "alice" };
        match self.lacks {
            Lacks::Nothing => caller(name),
            Lacks::Provider => granted(name, &["other"], &["transfer"]),
            Lacks::Tool => granted(name, &["mock"], &["delete_file"]),
        }
    }

    fn request(self, honest: &DecisionRequest) -> DecisionRequest {
        let mut request = DecisionRequest { decision: self.decision, ..honest.clone() };
        match self.found {
            Found::Unknown => request.approval_id = approval_id(404).to_string(),
            Found::Respelled => request.approval_id = request.approval_id.to_uppercase(),
            Found::CallId => request.approval_id = request.call.id.clone(),
            _ => {}
        }
        match self.echo {
            Echo::Same => {}
            Echo::Run => request.run_id = run_id(10).to_string(),
            Echo::RunRespelled => request.run_id = request.run_id.to_uppercase(),
            Echo::CallId => request.call.id = "call-2".into(),
            Echo::Name => request.call.name = "delete_file".into(),
            Echo::Arguments => request.call.arguments = Exact::parse(r#"{"to":"a","amount":999}"#).unwrap(),
        }
        request
    }
}

#[test]
fn the_first_row_that_holds_answers() {
    // Contract 4.4; law 1, law 4; reliability I5; scenarios A1, A17, C9. Every combination, so every pair of
    // neighbouring conditions too.
    let mut cases = 0;
    for found in [
        Found::Waiting,
        Found::Unknown,
        Found::Respelled,
        Found::CallId,
        Found::Foreign,
        Found::Opening,
        Found::Settling,
        Found::Decided,
    ] {
        for aborted in [false, true] {
            for late in [Late::No, Late::Wall, Late::Monotonic] {
                for lacks in [Lacks::Nothing, Lacks::Provider, Lacks::Tool] {
                    for echo in
                        [Echo::Same, Echo::Run, Echo::RunRespelled, Echo::CallId, Echo::Name, Echo::Arguments]
                    {
                        for decision in [Decision::Approve, Decision::Deny, Decision::Cancel] {
                            check(Case { found, aborted, late, lacks, echo, decision });
                            cases += 1;
                        }
                    }
                }
            }
        }
    }
    assert_eq!(cases, 8 * 2 * 3 * 3 * 6 * 3);
}

fn check(case: Case) {
    let aborted = Rc::new(Cell::new(false));
    let run = Run { number: 1, aborted: Rc::clone(&aborted) };
    let mut registry = Registry::new(Limits::default());
    // An id whose two spellings differ.
    let id = approval_id(0xa1);
    let new = countersign_approval_core::registry::NewReview { run_id: run_id(0xab), ..review(Some(1_000)) };
    let opening = registry.open(at(0, 0), id, new, run).unwrap();
    let AuditRecord::Requested { approval, .. } = opening.record().clone() else { panic!("{case:?}") };
    let honest = DecisionRequest::of(&approval, Decision::Approve);
    let mut held = None;
    if case.found == Found::Opening {
        held = Some(opening);
    } else {
        let _ = registry.opened(opening);
    }
    match case.found {
        Found::Settling => drop(registry.cancel(at(0, 0), id).unwrap()),
        Found::Decided => {
            let Verdict::Settle(proposal) = registry.decide(at(0, 0), &caller("alice"), &honest) else {
                panic!("{case:?}")
            };
            assert_eq!(registry.commit(*proposal).unwrap().end.unwrap().outcome, Outcome::Approved);
        }
        _ => {}
    }
    let before = (registry.pending(), registry.next_due());
    aborted.set(case.aborted);

    let (request, principal, row) = (case.request(&honest), case.caller(), case.row());
    match registry.decide(case.now(), &principal, &request) {
        Verdict::Refuse(refusal) => {
            assert_eq!(row.resolved, None, "{case:?}");
            assert_rejected(case, &refusal, &principal, &request, row.code);
            assert_eq!((registry.pending(), registry.next_due()), before, "untouched: {case:?}");
        }
        Verdict::Settle(mut proposal) => {
            let outcome = row.resolved.unwrap_or_else(|| panic!("nothing may be settled: {case:?}"));
            assert_eq!(proposal.resolution().outcome, outcome, "{case:?}");
            assert_eq!(proposal.resolution().decided_at, case.now().wall);
            let AuditRecord::Resolved { subject: recorded, resolution, approval: shown, .. } =
                proposal.record()
            else {
                panic!("{case:?}")
            };
            assert_eq!(*recorded, subject("alice"), "the subject of the run");
            assert_eq!((resolution, shown), (proposal.resolution(), &approval));
            match (row.code, proposal.take_refusal()) {
                (None, None) => {}
                (Some(_), Some(refusal)) => assert_rejected(case, &refusal, &principal, &request, row.code),
                other => panic!("{case:?}: {other:?}"),
            }
            assert_eq!(registry.pending(), 1, "capacity is held until the record is accepted");
            let settled = registry.commit(*proposal).unwrap();
            assert_eq!((settled.waiter.number, settled.end.unwrap().outcome), (1, outcome));
            assert_eq!((registry.pending(), registry.next_due()), (0, None), "consumed: {case:?}");
        }
    }
    // What is untouched can still be decided by the honest decision; what is not, cannot.
    aborted.set(false);
    if let Some(opening) = held {
        let _ = registry.opened(opening);
    }
    let again = registry.decide(at(1, 1), &caller("alice"), &honest);
    let open = row.resolved.is_none() && !matches!(case.found, Found::Settling | Found::Decided);
    assert_eq!(matches!(again, Verdict::Settle(_)), open, "{case:?}: {again:?}");
}

/// The caller is told `code`, and exactly the contract's record says so.
fn assert_rejected(
    case: Case,
    refusal: &Refusal,
    principal: &Principal,
    request: &DecisionRequest,
    code: Option<&'static str>,
) {
    assert_eq!(Some(refusal.error.code()), code, "{case:?}");
    let expected = AuditRecord::Rejected {
        subject: principal.subject.clone(),
        approval_id: Some(request.approval_id.as_str().into()),
        run_id: Some(request.run_id.as_str().into()),
        code: refusal.error.code(),
    };
    assert_eq!(refusal.record, Some(expected), "{case:?}");
}

#[test]
fn row_1_is_before_all_others() {
    // Contract 4.4, row 1: a body without the shape is refused whatever else is true, and the entry stays.
    let mut registry = Registry::new(Limits::default());
    let approval = opened(&mut registry, 1, Some(1_000));
    let honest = DecisionRequest::of(&approval, Decision::Approve);
    let text = serde_json::to_string(&honest).unwrap().replace(r#""approve""#, r#""yes""#);
    let Err(InvalidDecision::Shape { approval_id, run_id, message }) = DecisionRequest::parse(&text) else {
        panic!("a shape error")
    };
    // A stranger, too late, for a review of alice's.
    let refusal = registry.refuse_invalid(
        at(9_000, 9_000),
        &caller("bob"),
        approval_id.as_deref(),
        run_id.as_deref(),
        message,
    );
    assert_eq!(refusal.error.code(), "INVALID_APPROVAL");
    let expected = AuditRecord::Rejected {
        subject: subject("bob"),
        approval_id: Some(honest.approval_id.as_str().into()),
        run_id: Some(honest.run_id.as_str().into()),
        code: "INVALID_APPROVAL",
    };
    assert_eq!(refusal.record, Some(expected));
    assert!(matches!(registry.decide(at(0, 0), &caller("alice"), &honest), Verdict::Settle(_)));
}

#[test]
fn row_7b_consumes_without_authorizing() {
    // Contract 4.4, row 7b; law 2; reliability I4.
    let mut registry = Registry::new(Limits::default());
    let approval = opened(&mut registry, 1, None);
    let honest = DecisionRequest::of(&approval, Decision::Approve);
    let Verdict::Settle(proposal) = registry.decide(at(0, 0), &caller("alice"), &honest) else {
        panic!("a proposal")
    };
    let Settled { waiter, end, .. } = registry.abort(proposal.id()).unwrap();
    assert_eq!((waiter.number, end), (1, Err(AuditFailed)));
    assert_eq!(registry.pending(), 0);
    assert!(registry.commit(*proposal).is_none(), "an aborted proposal cannot be made true");
    let Verdict::Refuse(refusal) = registry.decide(at(0, 0), &caller("alice"), &honest) else {
        panic!("a refusal")
    };
    assert_eq!(refusal.error.code(), "APPROVAL_NOT_FOUND");
}

#[test]
fn key_order_and_spelling_bind_and_the_snapshot_is_what_stays() {
    // Contract 4.5; law 3; scenario B9.
    for echoed in [r#"{"amount":1e2,"to":"\u0061"}"#, r#"{ "amount": 100.0, "to": "a" }"#] {
        let mut registry = Registry::new(Limits::default());
        let approval = opened(&mut registry, 1, None);
        let mut request = DecisionRequest::of(&approval, Decision::Approve);
        request.call.arguments = Exact::parse(echoed).unwrap();
        let Verdict::Settle(proposal) = registry.decide(at(0, 0), &caller("alice"), &request) else {
            panic!("{echoed}")
        };
        let AuditRecord::Resolved { approval, .. } = proposal.record() else { panic!("{echoed}") };
        assert_eq!(approval.call.call().arguments.text(), r#"{"to":"a","amount":100}"#);
    }
}

#[test]
fn a_foreign_review_and_an_unknown_one_are_the_same_answer() {
    // Law 4; scenarios I1, I13: equal in every respect but the ids that the caller sent himself, however the
    // foreign review stands and whatever else is wrong with the decision.
    type Change = fn(&mut DecisionRequest);
    let changes: [Change; 4] = [
        |_| {},
        |d| d.run_id = "?".into(),
        |d| d.call.name = "delete_file".into(),
        |d| d.call.arguments = Exact::empty_object(),
    ];
    let principals = [caller("bob"), granted("bob", &[], &[]), granted("bob", &["mock"], &[])];
    for change in changes {
        for principal in &principals {
            for (now, aborted) in [(at(0, 0), false), (at(9_000, 9_000), false), (at(0, 0), true)] {
                let answer = |approval: u128| {
                    let mut registry = Registry::new(Limits::default());
                    let run = Run::number(1);
                    run.aborted.set(aborted);
                    let opening = registry.open(at(0, 0), approval_id(1), review(Some(1_000)), run).unwrap();
                    let mut request = DecisionRequest::of(&registry.opened(opening), Decision::Approve);
                    request.approval_id = approval_id(approval).to_string();
                    change(&mut request);
                    let verdict = registry.decide(now, principal, &request);
                    let Verdict::Refuse(refusal) = &verdict else { panic!("{verdict:?}") };
                    let told = refusal.error.to_string();
                    let whole = format!("{verdict:?}").replace(&request.approval_id, "ID");
                    (told, whole, registry.pending(), registry.next_due())
                };
                assert_eq!(answer(1), answer(404));
            }
        }
    }
}
