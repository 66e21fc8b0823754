//! Contract 3.4: the whole sequence of events for each way that a reviewed call can go.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::grants::Principal;
use countersign_approval_core::registry::Limits;
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_approval_core::snapshot::ToolCall;
use countersign_driver::{ApprovalSettings, Approve, ApproveContext, Permission};
use countersign_protocol::code::ErrorInfo;
use countersign_protocol::event::EventBody;
use countersign_protocol::request::{Approvals, RunRequest};
use countersign_testkit::{Answer, RecordingSink};

use crate::support::{Bench, Step, calls, question, request, rest, reviewed, says, words, writes};

/// Up to and including the proposal.
const PROPOSED: [&str; 5] =
    ["run.started", "step.started 1", "usage.reported 1", "text.delta I propose", "tool.called call-1"];

fn check(actual: &[String], tail: &[&str]) {
    let expected: Vec<&str> = PROPOSED.iter().chain(tail).copied().collect();
    assert_eq!(actual, expected);
}

#[tokio::test(start_paused = true)]
async fn approve() {
    let bench = Bench::new([writes(), says("saved")]);
    let events = bench.play(reviewed(IdlePolicy::Pause), Decision::Approve).await;
    check(
        &words(&events),
        &[
            "approval.requested",
            "approval.resolved approved",
            "tool.completed \"written\"",
            "step.started 2",
            "usage.reported 2",
            "text.delta saved",
            "run.completed saved",
        ],
    );
    assert_eq!(bench.effects(), [crate::support::WRITE_ARGUMENTS]);
    assert_eq!(
        bench.sink.kinds(),
        [
            "approval.requested",
            "approval.resolved approved",
            "execution.started",
            "execution.finished completed"
        ]
    );
    // Scenario E15: the model is told the tool's own output, nothing else.
    assert_eq!(*bench.model.told.lock().unwrap(), ["\"written\""]);
}

#[tokio::test(start_paused = true)]
async fn deny_and_cancel_by_decision() {
    for (decision, tail) in [
        (Decision::Deny, ["approval.requested", "approval.resolved denied", "run.failed APPROVAL_DENIED"]),
        (Decision::Cancel, ["approval.requested", "approval.resolved cancelled", "run.cancelled CANCELLED"]),
    ] {
        let bench = Bench::new([writes()]);
        let events = bench.play(reviewed(IdlePolicy::Pause), decision).await;
        check(&words(&events), &tail);
        assert!(bench.effects().is_empty());
        assert_eq!(bench.driver.pending_approvals(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn expire() {
    // Scenario G1: an answer that never came is expired, neither granted nor refused.
    let bench = Bench::new([writes()]);
    let mut approvals = Approvals::new(IdlePolicy::Pause);
    approvals.expires_after_ms = Some(200);
    let mut stream = bench.stream(RunRequest { approvals: Some(approvals), ..request() });
    let events = rest(&mut stream).await;
    check(
        &words(&events),
        &["approval.requested", "approval.resolved expired", "run.failed APPROVAL_EXPIRED"],
    );
    assert!(bench.effects().is_empty());
    assert_eq!(bench.sink.kinds(), ["approval.requested", "approval.resolved expired"]);
}

#[tokio::test(start_paused = true)]
async fn idle_expiry_while_waiting() {
    let bench = Bench::new([writes()]);
    let mut stream = bench.stream(RunRequest { idle_timeout_ms: Some(50), ..reviewed(IdlePolicy::Continue) });
    let events = rest(&mut stream).await;
    check(
        &words(&events),
        &["approval.requested", "approval.resolved cancelled", "run.cancelled IDLE_TIMEOUT retryable"],
    );
}

#[tokio::test(start_paused = true)]
async fn embedded_abort_while_waiting() {
    let bench = Bench::new([writes()]);
    let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
    let approval = question(&mut stream).await;
    stream.cancel();
    let events = rest(&mut stream).await;
    assert_eq!(words(&events), ["approval.resolved cancelled", "run.cancelled CANCELLED"]);
    let late = bench.decide(&approval, Decision::Approve).await.unwrap_err();
    assert_eq!(late.code(), "APPROVAL_NOT_FOUND");
    assert!(bench.effects().is_empty());
}

#[tokio::test(start_paused = true)]
async fn stream_dropped_while_waiting() {
    // Law 5: the review is settled inside the host, its capacity is free, and the audit says so.
    let bench = Bench::new([writes()]);
    let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
    let approval = question(&mut stream).await;
    drop(stream);
    while bench.driver.pending_approvals() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.sink.kinds(), ["approval.requested", "approval.resolved cancelled"]);
    assert_eq!(bench.decide(&approval, Decision::Approve).await.unwrap_err().code(), "APPROVAL_NOT_FOUND");
    assert!(bench.effects().is_empty());
}

struct Callback(Permission);

#[async_trait]
impl Approve for Callback {
    async fn approve(&self, _: &ToolCall, _: &ApproveContext) -> Result<Permission, ErrorInfo> {
        Ok(self.0)
    }
}

fn with_callback(permission: Permission, script: impl IntoIterator<Item = Step>) -> Bench {
    Bench::with(script, RecordingSink::new(), |builder, settings| {
        builder.approvals(settings).approve(Arc::new(Callback(permission)))
    })
}

#[tokio::test(start_paused = true)]
async fn callback_refuses() {
    // A person cannot override it: nobody is asked.
    let bench = with_callback(Permission::Refuse, [writes()]);
    let events = rest(&mut bench.stream(reviewed(IdlePolicy::Pause))).await;
    check(&words(&events), &["run.failed APPROVAL_REQUIRED"]);
    assert!(bench.sink.kinds().is_empty());
}

#[tokio::test(start_paused = true)]
async fn callback_allows() {
    let bench = with_callback(Permission::Allow, [writes(), says("saved")]);
    let events = bench.play(reviewed(IdlePolicy::Pause), Decision::Deny).await;
    check(&words(&events), &["approval.requested", "approval.resolved denied", "run.failed APPROVAL_DENIED"]);

    // Without `approvals` the callback is the only gate; the trail still proves the effect.
    let bench = with_callback(Permission::Allow, [writes(), says("saved")]);
    let events = rest(&mut bench.stream(request())).await;
    assert_eq!(words(&events).last().unwrap(), "run.completed saved");
    assert_eq!(bench.sink.kinds(), ["execution.started", "execution.finished completed"]);
}

#[tokio::test(start_paused = true)]
async fn gated_without_approvals_and_without_callback() {
    // Scenario O9: it ends; it does not hang.
    let bench = Bench::new([writes()]);
    let events = rest(&mut bench.stream(request())).await;
    check(&words(&events), &["run.failed APPROVAL_REQUIRED"]);
    assert!(bench.effects().is_empty());
}

#[tokio::test(start_paused = true)]
async fn capacity_full() {
    let bench = Bench::with([writes(), writes(), writes()], RecordingSink::new(), |builder, settings| {
        builder.approvals(ApprovalSettings {
            limits: Limits { max_pending: 1, ..Limits::default() },
            ..settings
        })
    });
    let mut first = bench.stream(reviewed(IdlePolicy::Pause));
    let old = question(&mut first).await;
    let events = rest(&mut bench.stream(reviewed(IdlePolicy::Pause))).await;
    check(&words(&events), &["run.failed APPROVAL_CAPACITY retryable"]);
    // Contract 4.11, 11: after the first ends, its capacity is free and its review is gone.
    drop(first);
    let events = bench.play(reviewed(IdlePolicy::Pause), Decision::Deny).await;
    check(&words(&events), &["approval.requested", "approval.resolved denied", "run.failed APPROVAL_DENIED"]);
    assert_eq!(bench.decide(&old, Decision::Approve).await.unwrap_err().code(), "APPROVAL_NOT_FOUND");
}

#[tokio::test(start_paused = true)]
async fn audit_fails() {
    // Law 2, scenarios J1 and J3: every class of failure is one code, and no private text gets out.
    for answer in [Answer::Refuse, Answer::Panic] {
        for sink in [RecordingSink::new, RecordingSink::blocking] {
            let bench = Bench::with([writes()], sink(), |builder, settings| builder.approvals(settings));
            bench.sink.answer_to("approval.requested", answer);
            let events = rest(&mut bench.stream(reviewed(IdlePolicy::Pause))).await;
            check(&words(&events), &["run.failed APPROVAL_AUDIT_FAILED"]);
            assert_eq!(bench.driver.pending_approvals(), 0);

            let bench = Bench::with([writes()], sink(), |builder, settings| builder.approvals(settings));
            bench.sink.answer_to("approval.resolved", answer);
            let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
            let approval = question(&mut stream).await;
            let error = bench.decide(&approval, Decision::Approve).await.unwrap_err();
            assert_eq!(error.code(), "APPROVAL_AUDIT_FAILED");
            let again = bench.decide(&approval, Decision::Approve).await.unwrap_err();
            assert_eq!(again.code(), "APPROVAL_NOT_FOUND");
            let events = rest(&mut stream).await;
            assert_eq!(words(&events), ["run.failed APPROVAL_AUDIT_FAILED"]);
            assert!(bench.effects().is_empty());
            assert!(!events.iter().any(|event| event.to_json().contains("private")));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn audit_fails_on_execution() {
    // Design 4: `execution.started` fails closed; a failed `execution.finished` is an uncertain outcome.
    let bench = Bench::new([writes()]);
    bench.sink.answer_to("execution.started", Answer::Refuse);
    let events = bench.play(reviewed(IdlePolicy::Pause), Decision::Approve).await;
    check(
        &words(&events),
        &["approval.requested", "approval.resolved approved", "run.failed APPROVAL_AUDIT_FAILED"],
    );
    assert!(bench.effects().is_empty());

    let bench = Bench::new([writes()]);
    bench.sink.answer_to("execution.finished", Answer::Refuse);
    let events = bench.play(reviewed(IdlePolicy::Pause), Decision::Approve).await;
    check(
        &words(&events),
        &["approval.requested", "approval.resolved approved", "run.failed APPROVAL_AUDIT_FAILED uncertain"],
    );
    // Law 8: the tool was called, so nobody may be told that nothing was done.
    let Some(EventBody::RunFailed { error }) = events.last().map(|event| &event.body) else { panic!() };
    assert!(error.message.contains("was called"), "{}", error.message);
    assert_eq!(bench.effects().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn too_large_to_review() {
    // Contract 4.3 and design 3: 128,000 bytes of the canonical form pass, 128,001 do not; only this bound refuses
    // after `tool.called`.
    let frame = r#"{"arguments":{"s":""},"id":"call-1","name":"write"}"#.len();
    for (bytes, expected) in [(128_000, "approval.requested"), (128_001, "run.failed INVALID_TOOL_CALL")] {
        let arguments = format!(r#"{{ "s" : "{}" }}"#, "<".repeat(bytes - frame));
        let bench = Bench::new([calls(&[("call-1", "write", &arguments)])]);
        let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
        let mut seen = Vec::new();
        while let Some(event) = stream.next().await {
            seen.push(event);
            if seen.len() == 6 {
                break;
            }
        }
        check(&words(&seen), &[expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn two_gated_calls_first_approved_second_denied() {
    let bench = Bench::new([calls(&[("call-1", "write", "{}"), ("call-2", "write", "{}")])]);
    let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
    let first = question(&mut stream).await;
    bench.decide(&first, Decision::Approve).await.unwrap();
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        if let EventBody::ApprovalRequested { approval, .. } = &event.body {
            // Scenarios A11 and D7: the old id stays dead, only the new one decides.
            assert_eq!(
                bench.decide(&first, Decision::Approve).await.unwrap_err().code(),
                "APPROVAL_NOT_FOUND"
            );
            bench.decide(approval, Decision::Deny).await.unwrap();
        }
        events.push(event);
    }
    assert_eq!(
        words(&events),
        [
            "approval.resolved approved",
            "tool.completed \"written\"",
            "tool.called call-2",
            "approval.requested",
            "approval.resolved denied",
            "run.failed APPROVAL_DENIED",
        ]
    );
    assert_eq!(bench.effects().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn approved_then_the_idle_clock_runs_out_before_the_loop_resumes() {
    // Contract 4.11, 9: decide, do not read, read 51 ms later.
    let bench = Bench::new([writes()]);
    let mut stream = bench.stream(RunRequest { idle_timeout_ms: Some(50), ..reviewed(IdlePolicy::Pause) });
    let approval = question(&mut stream).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    bench.decide(&approval, Decision::Approve).await.unwrap();
    tokio::time::sleep(Duration::from_millis(51)).await;
    let events = rest(&mut stream).await;
    assert_eq!(words(&events), ["approval.resolved approved", "run.cancelled IDLE_TIMEOUT retryable"]);
    assert!(bench.effects().is_empty());
}

#[tokio::test(start_paused = true)]
async fn denied_and_aborted_before_the_loop_resumes() {
    let bench = Bench::new([writes()]);
    let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
    let approval = question(&mut stream).await;
    bench.decide(&approval, Decision::Deny).await.unwrap();
    stream.cancel();
    let events = rest(&mut stream).await;
    assert_eq!(words(&events), ["approval.resolved denied", "run.cancelled CANCELLED"]);
    assert_eq!(bench.sink.kinds().last().unwrap(), "approval.resolved denied");
}

#[tokio::test(start_paused = true)]
async fn expired_while_nobody_reads() {
    // The question was never taken; it and its end are told in order, and nothing ran.
    let bench = Bench::new([writes()]);
    let mut approvals = Approvals::new(IdlePolicy::Pause);
    approvals.expires_after_ms = Some(100);
    let mut stream = bench.stream(RunRequest { approvals: Some(approvals), ..request() });
    let mut seen = Vec::new();
    while seen.len() < 5 {
        seen.push(stream.next().await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    seen.extend(rest(&mut stream).await);
    check(&words(&seen), &["approval.requested", "approval.resolved expired", "run.failed APPROVAL_EXPIRED"]);
}

#[tokio::test(start_paused = true)]
async fn a_decision_by_another_principal_changes_nothing() {
    let bench = Bench::new([writes()]);
    let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
    let approval = question(&mut stream).await;
    let stranger = Principal {
        subject: countersign_approval_core::ids::Subject::parse("stranger").unwrap(),
        ..Principal::local()
    };
    let decision = DecisionRequest::of(&approval, Decision::Approve);
    let error = bench.driver.decide_approval(&decision, &stranger).await.unwrap_err();
    assert_eq!(error.code(), "APPROVAL_NOT_FOUND");
    assert_eq!(bench.driver.pending_approvals(), 1);
}
