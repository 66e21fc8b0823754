//! Rows of contract 3.4, 4.4 and 4.11 through the client and the HTTP host, where only the driver's tests had them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::grants::{Grants, Principal};
use countersign_approval_core::ids::Subject;
use countersign_approval_core::registry::Limits;
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_approval_core::snapshot::ToolCall;
use countersign_driver::{ApprovalSettings, Approve, ApproveContext, Permission};
use countersign_protocol::code::ErrorInfo;
use countersign_testkit::{Answer, PRIVATE};
use tokio::time::Instant;

use crate::support::{
    ANN, ARGUMENTS, ROOMY, World, expiring, idle, model, plain, question, rest, reviewed, word,
};

/// What every run of `write` says before its review.
const PROPOSED: [&str; 5] =
    ["run.started", "step.started 1", "usage.reported 1", "text.delta", "tool.called call-1"];

/// The events of a run that nobody decides: those of the proposal, and then `tail`.
async fn check_undecided(world: &World, request: &countersign_protocol::request::RunRequest, tail: &[&str]) {
    let told = rest(&mut world.client(ANN).stream(request).await.unwrap()).await;
    let expected: Vec<&str> = PROPOSED.iter().chain(tail).copied().collect();
    assert_eq!(told, expected);
    assert_eq!(world.effects.len(), 0);
    assert_eq!(world.driver.pending_approvals(), 0);
}

/// Allows or refuses everything by rule.
struct Rule(Permission);

#[async_trait]
impl Approve for Rule {
    async fn approve(&self, _: &ToolCall, _: &ApproveContext) -> Result<Permission, ErrorInfo> {
        Ok(self.0)
    }
}

// Contract 3.4 (idle expiry while waiting) and 4.11, row 8.
#[tokio::test(start_paused = true)]
async fn under_continue_the_idle_clock_runs() {
    let world = World::new();
    let mut events = world.client(ANN).stream(&idle(IdlePolicy::Continue, 50)).await.unwrap();
    let (_, approval) = question(&mut events).await;
    let before = Instant::now();
    assert_eq!(rest(&mut events).await, ["approval.resolved cancelled", "run.cancelled IDLE_TIMEOUT"]);
    assert!(before.elapsed() <= Duration::from_millis(51), "{:?}", before.elapsed());
    assert_eq!(world.decide(ANN, &approval, Decision::Approve).await, "APPROVAL_NOT_FOUND");
    assert_eq!(
        world.sink.kinds(),
        ["approval.requested", "approval.resolved cancelled", "approval.rejected APPROVAL_NOT_FOUND"]
    );
    assert_eq!(world.effects.len(), 0);
}

// Contract 3.4 (approved, then idle) and 4.11, row 9; I8: a client that does not read gets one full interval.
#[tokio::test(start_paused = true)]
async fn approved_but_not_read_in_time() {
    for (unread_ms, last, effects) in [(49, "run.completed", 1), (51, "run.cancelled IDLE_TIMEOUT", 0)] {
        let world = World::new();
        let (client, gate) = world.gated_client(ANN);
        let mut events = client.stream(&idle(IdlePolicy::Pause, 50)).await.unwrap();
        let (_, approval) = question(&mut events).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        gate.shut();
        assert_eq!(world.decide(ANN, &approval, Decision::Approve).await, "approved");
        tokio::time::sleep(Duration::from_millis(unread_ms)).await;
        assert_eq!(world.effects.len(), 0);
        gate.reopen();
        let told = rest(&mut events).await;
        assert_eq!(told.first().unwrap(), "approval.resolved approved");
        assert_eq!(told.last().unwrap(), last, "{unread_ms} ms");
        assert_eq!(world.effects.len(), effects, "{unread_ms} ms");
    }
}

// Contract 4.11, row 1: a receipt alone causes no effect; the loop resumes when the client has read the outcome.
#[tokio::test(start_paused = true)]
async fn a_receipt_is_not_an_effect() {
    let world = World::new();
    let (client, gate) = world.gated_client(ANN);
    let mut events = client.stream(&reviewed("write")).await.unwrap();
    let (_, approval) = question(&mut events).await;
    gate.shut();
    assert_eq!(world.decide(ANN, &approval, Decision::Approve).await, "approved");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.effects.len(), 0);
    assert_eq!(world.sink.kinds(), ["approval.requested", "approval.resolved approved"]);
    gate.reopen();
    assert_eq!(rest(&mut events).await.last().unwrap(), "run.completed");
    assert_eq!(world.effects.texts(), [ARGUMENTS]);
}

// Contract 3.4 (denied, and the run is aborted before the loop resumes): abort beats the failure, the audit keeps
// `denied`.
#[tokio::test(start_paused = true)]
async fn denied_and_then_aborted() {
    let world = World::new();
    let (client, gate) = world.gated_client(ANN);
    let mut events = client.stream(&reviewed("write")).await.unwrap();
    let (_, approval) = question(&mut events).await;
    gate.shut();
    assert_eq!(world.decide(ANN, &approval, Decision::Deny).await, "denied");
    let service = world.service.clone();
    let closing = tokio::spawn(async move { service.close().await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    gate.reopen();
    assert_eq!(rest(&mut events).await, ["approval.resolved denied", "run.cancelled CANCELLED"]);
    closing.await.unwrap();
    assert_eq!(world.sink.kinds(), ["approval.requested", "approval.resolved denied"]);
}

// Contract 3.4 (callback refuses; gated tool with neither) and 4.11, row 13; scenarios O3, O9.
#[tokio::test(start_paused = true)]
async fn without_a_way_to_approve() {
    let refusing = World::with(model(ARGUMENTS), ROOMY, |builder, settings| {
        builder.approvals(settings).approve(Arc::new(Rule(Permission::Refuse)))
    });
    check_undecided(&refusing, &reviewed("write"), &["run.failed APPROVAL_REQUIRED"]).await;
    check_undecided(&World::new(), &plain("write"), &["run.failed APPROVAL_REQUIRED"]).await;
    assert!(refusing.sink.kinds().is_empty());

    // Allowed by the rule, with no review asked for, the call runs; with one, a person decides after the rule.
    let allowing = World::with(model(ARGUMENTS), ROOMY, |builder, settings| {
        builder.approvals(settings).approve(Arc::new(Rule(Permission::Allow)))
    });
    let told = rest(&mut allowing.client(ANN).stream(&plain("write")).await.unwrap()).await;
    assert!(!told.iter().any(|word| word.starts_with("approval.")), "{told:?}");
    assert_eq!(allowing.effects.len(), 1);
    let (mut events, approval) = allowing.waiting(ANN).await;
    assert_eq!(allowing.decide(ANN, &approval, Decision::Deny).await, "denied");
    assert_eq!(rest(&mut events).await.last().unwrap(), "run.failed APPROVAL_DENIED");
    assert_eq!(allowing.effects.len(), 1);
}

// Contract 3.4 (capacity full) and 4.11, row 11: a waiting review counts; the end of its run frees its place.
#[tokio::test(start_paused = true)]
async fn capacity_is_freed_with_the_run() {
    let limits = Limits { max_pending: 1, ..Limits::default() };
    let world = World::with(model(ARGUMENTS), ROOMY, |builder, settings| {
        builder.approvals(ApprovalSettings { limits, ..settings })
    });
    let (events, old) = world.waiting(ANN).await;
    let mut second = world.client(ANN).stream(&reviewed("write")).await.unwrap();
    let told = rest(&mut second).await;
    assert_eq!(told.last().unwrap(), "run.failed APPROVAL_CAPACITY");
    assert!(!told.iter().any(|word| word.starts_with("approval.")), "{told:?}");
    drop(events);
    world.nothing_pending().await;
    let (mut events, approval) = world.waiting(ANN).await;
    assert_eq!(world.decide(ANN, &old, Decision::Approve).await, "APPROVAL_NOT_FOUND");
    assert_eq!(world.decide(ANN, &approval, Decision::Approve).await, "approved");
    assert_eq!(rest(&mut events).await.last().unwrap(), "run.completed");
    let kinds = world.sink.kinds();
    assert_eq!(kinds[..2], ["approval.requested", "approval.resolved cancelled"]);
    assert_eq!(world.effects.len(), 1);
}

// Contract 3.4 (audit fails) and 4.11, row 18; laws 1 and 2; scenarios J1, J3: on the question and on the outcome.
#[tokio::test(start_paused = true)]
async fn a_failing_sink_ends_the_run() {
    for failure in [Answer::Refuse, Answer::Panic] {
        let world = World::new();
        world.sink.answer_to("approval.requested", failure);
        check_undecided(&world, &reviewed("write"), &["run.failed APPROVAL_AUDIT_FAILED"]).await;

        let (mut events, approval) = world_of_failing_outcome(failure).await;
        let told = rest(&mut events.1).await;
        assert_eq!(told, ["run.failed APPROVAL_AUDIT_FAILED"], "{approval}");
        assert_eq!(events.0.effects.len(), 0);
    }
    // Nobody decides: the expiry itself cannot be recorded, and the waiting run is told.
    let world = World::new();
    let mut events = world.client(ANN).stream(&expiring(20)).await.unwrap();
    question(&mut events).await;
    world.sink.answer_to("approval.resolved", Answer::Refuse);
    assert_eq!(rest(&mut events).await, ["run.failed APPROVAL_AUDIT_FAILED"]);
    assert_eq!(world.driver.pending_approvals(), 0);
}

/// A run whose approval could not be recorded.
async fn world_of_failing_outcome(failure: Answer) -> ((World, countersign_client::EventStream), String) {
    let world = World::new();
    let (events, approval) = world.waiting(ANN).await;
    world.sink.answer_to("approval.resolved", failure);
    let decision = DecisionRequest::of(&approval, Decision::Approve);
    let refused = world.client(ANN).decide_approval(&decision).await.unwrap_err();
    assert_eq!(refused.code().unwrap().as_str(), "APPROVAL_AUDIT_FAILED");
    let shown = format!("{refused} {refused:?}");
    assert!(!shown.contains(PRIVATE), "{shown}");
    ((world, events), shown)
}

// Contract 4.4, notes: a refusal that cannot be recorded is 503, and the pending review is as it was.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_cannot_be_recorded() {
    let world = World::new();
    let (mut events, approval) = world.waiting(ANN).await;
    world.sink.answer_to("approval.rejected", Answer::Refuse);
    let mut altered = DecisionRequest::of(&approval, Decision::Approve);
    altered.call.id = "call-2".into();
    for _ in 0..2 {
        let refused = world.client(ANN).decide_approval(&altered).await.unwrap_err();
        assert_eq!(refused.code().unwrap().as_str(), "APPROVAL_AUDIT_FAILED");
    }
    assert_eq!(world.decide(ANN, &approval, Decision::Approve).await, "approved");
    assert_eq!(rest(&mut events).await.last().unwrap(), "run.completed");
    assert_eq!(world.effects.len(), 1);
}

// Contract 4.4, row 3: the run is aborted and has not noticed yet. Nothing may run in between, so the stream is the
// driver's own; over HTTP the same moment is passed in the histories.
#[tokio::test(start_paused = true)]
async fn a_decision_in_the_moment_of_the_abort() {
    for (sink, code) in [(Answer::Accept, "APPROVAL_NOT_FOUND"), (Answer::Refuse, "APPROVAL_AUDIT_FAILED")] {
        let world = World::new();
        let ann = Principal { subject: Subject::parse("ann").unwrap(), grants: Grants::all() };
        let mut events = world.driver.stream(reviewed("write"), ann.clone()).unwrap();
        let approval = loop {
            let event = events.next().await.unwrap();
            if let countersign_protocol::event::EventBody::ApprovalRequested { approval, .. } = event.body {
                break approval;
            }
        };
        world.sink.answer_to("approval.resolved", sink);
        events.cancel();
        let decision = DecisionRequest::of(&approval, Decision::Approve);
        let refused = world.driver.decide_approval(&decision, &ann).await.unwrap_err();
        assert_eq!(refused.code(), code);
        let mut told = Vec::new();
        while let Some(event) = events.next().await {
            told.push(word(&event));
        }
        assert_eq!(told.last().unwrap(), "run.cancelled CANCELLED", "{told:?}");
        if sink == Answer::Accept {
            assert_eq!(
                world.sink.kinds(),
                ["approval.requested", "approval.resolved cancelled", "approval.rejected APPROVAL_NOT_FOUND"]
            );
        }
        assert_eq!((world.effects.len(), world.driver.pending_approvals()), (0, 0));
    }
}

// Contract 4.4, row 4, and 4.11, row 10: the timer fired, or only the clock moved; and the sink failed meanwhile.
#[tokio::test(start_paused = true)]
async fn late_decisions() {
    for (only_the_clock, sink, code) in [
        (false, Answer::Accept, "APPROVAL_NOT_FOUND"),
        (true, Answer::Accept, "APPROVAL_NOT_FOUND"),
        (true, Answer::Refuse, "APPROVAL_AUDIT_FAILED"),
    ] {
        let world = World::new();
        let mut events = world.client(ANN).stream(&expiring(20)).await.unwrap();
        let (_, approval) = question(&mut events).await;
        world.sink.answer_to("approval.resolved", sink);
        if only_the_clock {
            world.clock.step_wall(20);
        } else {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(world.decide(ANN, &approval, Decision::Approve).await, code);
        let expected: &[&str] = match sink {
            Answer::Accept => &["approval.resolved expired", "run.failed APPROVAL_EXPIRED"],
            Answer::Refuse | Answer::Panic => &["run.failed APPROVAL_AUDIT_FAILED"],
        };
        assert_eq!(rest(&mut events).await, expected);
        assert_eq!(world.effects.len(), 0);
    }
}

// Contract 3.4 (arguments not preservable, or more than 128,000 bytes) and 4.11, row 15; law 3.
#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_be_carried_is_not_reviewed() {
    let tail = ["run.failed INVALID_TOOL_CALL"];
    for arguments in [
        r#"{"a":{"__proto__":{"admin":true}}}"#,
        r#"{"n":9007199254740993}"#,
        r#"{"n":1e400}"#,
        r#"{"n":0.10000000000000000001}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"s":"\ud800"}"#,
    ] {
        // Design 3: proposals are refused with the batch checks, before `tool.called`.
        let world = World::proposing(arguments);
        let told = rest(&mut world.client(ANN).stream(&reviewed("write")).await.unwrap()).await;
        let expected: Vec<&str> = PROPOSED[..4].iter().chain(&tail).copied().collect();
        assert_eq!(told, expected, "{arguments}");
        assert!(world.sink.kinds().is_empty());
    }
    let world = World::proposing(&sized(128_001));
    check_undecided(&world, &reviewed("write"), &tail).await;
    assert!(world.sink.kinds().is_empty());
}

/// Arguments whose call has so many bytes in canonical form.
pub(crate) fn sized(bytes: usize) -> String {
    let around = r#"{"arguments":{"s":""},"id":"call-1","name":"write"}"#.len();
    format!(r#"{{"s":"{}"}}"#, "<".repeat(bytes - around))
}

// Contract 3.4 (two gated calls) and 4.7: the second is asked for only after the first has ended, and the first one's
// effect stays. Scenarios A11, D7: the old approval decides nothing any more.
#[tokio::test(start_paused = true)]
async fn two_calls_are_two_reviews() {
    let world = World::new();
    let mut events = world.client(ANN).stream(&reviewed("two")).await.unwrap();
    let (_, first) = question(&mut events).await;
    assert_eq!(world.decide(ANN, &first, Decision::Approve).await, "approved");
    let (between, second) = question(&mut events).await;
    let between: Vec<String> = between.iter().map(word).collect();
    assert_eq!(
        between,
        ["approval.resolved approved", "tool.completed call-1", "tool.called call-2", "approval.requested"]
    );
    assert_eq!(world.decide(ANN, &first, Decision::Approve).await, "APPROVAL_NOT_FOUND");
    assert_eq!(world.decide(ANN, &second, Decision::Deny).await, "denied");
    assert_eq!(rest(&mut events).await, ["approval.resolved denied", "run.failed APPROVAL_DENIED"]);
    assert_eq!(world.effects.texts(), [ARGUMENTS]);
}
