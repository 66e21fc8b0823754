//! The JSON of each audit record (contract 4.8, design 4 and 7): what an auditor's tools read for years.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at what it does not expect")]

use countersign_approval_core::audit::{AuditRecord, Execution, ExecutionOutcome};
use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::ids::{CallId, ProviderId};
use countersign_approval_core::registry::{Limits, Registry, Verdict};
use countersign_approval_core::review::Decision;
use countersign_approval_core::snapshot::Snapshot;
use expect_test::{Expect, expect};

use crate::registry_bench::{Run, START, approval_id, at, call, caller, review, run_id, subject};

fn check(record: &AuditRecord, expected: Expect) {
    expected.assert_eq(&serde_json::to_string(record).unwrap());
}

#[test]
fn records_of_a_review() {
    let mut registry = Registry::new(Limits::default());
    let opening = registry.open(at(0, 0), approval_id(1), review(Some(60_000)), Run::number(1)).unwrap();
    check(
        opening.record(),
        expect![[
            r#"{"type":"approval.requested","subject":"alice","provider":"mock","approval":{"approvalId":"00000000-0000-0000-0000-000000000001","runId":"00000000-0000-0000-0000-000000000009","call":{"id":"call-1","name":"transfer","arguments":{"to":"a","amount":100}},"requestedAt":"2027-01-15T08:00:00.000Z","idlePolicy":"pause","expiresAt":"2027-01-15T08:01:00.000Z"},"digest":"sha256:29163aa39a2d825576de7a8f2bbd8129c960f42d6ca30bdb3afac225cd9f2fba"}"#
        ]],
    );
    let request = DecisionRequest::of(&registry.opened(opening), Decision::Deny);
    let Verdict::Refuse(refusal) = registry.decide(at(1, 1), &caller("bob"), &request) else { panic!() };
    check(
        &refusal.record.unwrap(),
        expect![[
            r#"{"type":"approval.rejected","subject":"bob","approvalId":"00000000-0000-0000-0000-000000000001","runId":"00000000-0000-0000-0000-000000000009","code":"APPROVAL_NOT_FOUND"}"#
        ]],
    );
    let Verdict::Settle(proposal) = registry.decide(at(1_234, 1), &caller("alice"), &request) else {
        panic!()
    };
    check(
        proposal.record(),
        expect![[
            r#"{"type":"approval.resolved","subject":"alice","provider":"mock","approval":{"approvalId":"00000000-0000-0000-0000-000000000001","runId":"00000000-0000-0000-0000-000000000009","call":{"id":"call-1","name":"transfer","arguments":{"to":"a","amount":100}},"requestedAt":"2027-01-15T08:00:00.000Z","idlePolicy":"pause","expiresAt":"2027-01-15T08:01:00.000Z"},"digest":"sha256:29163aa39a2d825576de7a8f2bbd8129c960f42d6ca30bdb3afac225cd9f2fba","resolution":{"approvalId":"00000000-0000-0000-0000-000000000001","runId":"00000000-0000-0000-0000-000000000009","callId":"call-1","outcome":"denied","decidedAt":"2027-01-15T08:00:01.234Z"}}"#
        ]],
    );
    let refusal = registry.refuse_invalid(at(2, 2), &caller("bob"), None, None, "private".into());
    check(
        &refusal.record.unwrap(),
        expect![[r#"{"type":"approval.rejected","subject":"bob","code":"INVALID_APPROVAL"}"#]],
    );
}

#[test]
fn members_that_are_absent_are_not_written() {
    // Contract 4.2: `expiresAt` only where there is an expiry.
    let mut registry = Registry::new(Limits::default());
    let opening = registry.open(at(0, 0), approval_id(1), review(None), Run::number(1)).unwrap();
    check(
        opening.record(),
        expect![[
            r#"{"type":"approval.requested","subject":"alice","provider":"mock","approval":{"approvalId":"00000000-0000-0000-0000-000000000001","runId":"00000000-0000-0000-0000-000000000009","call":{"id":"call-1","name":"transfer","arguments":{"to":"a","amount":100}},"requestedAt":"2027-01-15T08:00:00.000Z","idlePolicy":"pause"},"digest":"sha256:29163aa39a2d825576de7a8f2bbd8129c960f42d6ca30bdb3afac225cd9f2fba"}"#
        ]],
    );
}

#[test]
fn records_of_an_execution() {
    // Design 4: the digest is the review's, so the trail joins what was shown to what ran.
    let execution = Execution {
        subject: subject("alice"),
        provider: ProviderId::parse("mock").unwrap(),
        run_id: run_id(9),
        approval_id: Some(approval_id(1)),
        call_id: CallId::parse("call-1").unwrap(),
        digest: Snapshot::digest_of(&call("call-1", "transfer", r#"{"to":"a","amount":100}"#)),
        at: Timestamp::from_millis(START),
    };
    check(
        &AuditRecord::ExecutionStarted(execution.clone()),
        expect![[
            r#"{"type":"execution.started","subject":"alice","provider":"mock","runId":"00000000-0000-0000-0000-000000000009","approvalId":"00000000-0000-0000-0000-000000000001","callId":"call-1","digest":"sha256:29163aa39a2d825576de7a8f2bbd8129c960f42d6ca30bdb3afac225cd9f2fba","at":"2027-01-15T08:00:00.000Z"}"#
        ]],
    );
    let unreviewed = Execution { approval_id: None, ..execution.clone() };
    check(
        &AuditRecord::ExecutionStarted(unreviewed),
        expect![[
            r#"{"type":"execution.started","subject":"alice","provider":"mock","runId":"00000000-0000-0000-0000-000000000009","callId":"call-1","digest":"sha256:29163aa39a2d825576de7a8f2bbd8129c960f42d6ca30bdb3afac225cd9f2fba","at":"2027-01-15T08:00:00.000Z"}"#
        ]],
    );
    let finished = |outcome| AuditRecord::ExecutionFinished { execution: execution.clone(), outcome };
    check(
        &finished(ExecutionOutcome::Completed),
        expect![[
            r#"{"type":"execution.finished","subject":"alice","provider":"mock","runId":"00000000-0000-0000-0000-000000000009","approvalId":"00000000-0000-0000-0000-000000000001","callId":"call-1","digest":"sha256:29163aa39a2d825576de7a8f2bbd8129c960f42d6ca30bdb3afac225cd9f2fba","at":"2027-01-15T08:00:00.000Z","outcome":"completed"}"#
        ]],
    );
    check(
        &finished(ExecutionOutcome::NotStarted),
        expect![[
            r#"{"type":"execution.finished","subject":"alice","provider":"mock","runId":"00000000-0000-0000-0000-000000000009","approvalId":"00000000-0000-0000-0000-000000000001","callId":"call-1","digest":"sha256:29163aa39a2d825576de7a8f2bbd8129c960f42d6ca30bdb3afac225cd9f2fba","at":"2027-01-15T08:00:00.000Z","outcome":"not-started"}"#
        ]],
    );
    check(
        &finished(ExecutionOutcome::Uncertain),
        expect![[
            r#"{"type":"execution.finished","subject":"alice","provider":"mock","runId":"00000000-0000-0000-0000-000000000009","approvalId":"00000000-0000-0000-0000-000000000001","callId":"call-1","digest":"sha256:29163aa39a2d825576de7a8f2bbd8129c960f42d6ca30bdb3afac225cd9f2fba","at":"2027-01-15T08:00:00.000Z","outcome":"uncertain"}"#
        ]],
    );
}

#[test]
fn records_of_an_interrupted_trail() {
    check(
        &AuditRecord::Abandoned { approval_id: approval_id(1), run_id: run_id(9) },
        expect![[
            r#"{"type":"approval.abandoned","approvalId":"00000000-0000-0000-0000-000000000001","runId":"00000000-0000-0000-0000-000000000009"}"#
        ]],
    );
    check(
        &AuditRecord::Recovered { torn_bytes: 17, moved_to: "audit.jsonl.torn".into() },
        expect![[r#"{"type":"recovered","tornBytes":17,"movedTo":"audit.jsonl.torn"}"#]],
    );
}

#[test]
fn arguments_are_written_in_their_own_tokens() {
    // Law 3; reliability I2: what was audited is, byte for byte, what was shown and what runs.
    let mut new = review(None);
    new.call = Snapshot::freeze(call("call-1", "transfer", r#"{ "n":1.0, "s":"\u0041" }"#)).unwrap();
    let mut registry = Registry::new(Limits::default());
    let opening = registry.open(at(0, 0), approval_id(1), new, Run::number(1)).unwrap();
    let line = serde_json::to_string(opening.record()).unwrap();
    assert!(line.contains(r#""arguments":{"n":1.0,"s":"\u0041"}"#), "{line}");
    assert!(!format!("{:?}", opening.record()).contains("0041"), "debug output shows no arguments");
}
