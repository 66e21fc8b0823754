//! Design 4: `approval-digest` and `denial-feedback`, each on only if the host has it and the request asks.

use std::time::Duration;

use countersign_approval_core::audit::AuditRecord;
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::grants::Principal;
use countersign_approval_core::review::{ApprovalRequest, Decision, IdlePolicy};
use countersign_driver::{ApprovalFeature, ApprovalSettings};
use countersign_protocol::event::{Event, EventBody};
use countersign_protocol::request::{Approvals, OnDeny, RunRequest};
use countersign_testkit::{Answer, RecordingSink};

use crate::support::{Bench, Step, calls, question, request, rest, reviewed, says, words, writes};

/// A host with both additions.
fn bench(script: impl IntoIterator<Item = Step>) -> Bench {
    Bench::with(script, RecordingSink::new(), |builder, settings| {
        let features = vec![ApprovalFeature::Digest, ApprovalFeature::DenialFeedback];
        builder.approvals(ApprovalSettings { features, ..settings })
    })
}

fn asks(change: impl FnOnce(&mut Approvals)) -> RunRequest {
    let mut approvals = Approvals::new(IdlePolicy::Pause);
    change(&mut approvals);
    RunRequest { approvals: Some(approvals), ..request() }
}

fn goes_on() -> RunRequest {
    asks(|approvals| approvals.on_deny = Some(OnDeny::Continue))
}

async fn deny(bench: &Bench, approval: &ApprovalRequest, reason: &str) {
    let decision = DecisionRequest::of(approval, Decision::Deny).with_reason(reason);
    bench.driver.decide_approval(&decision, &Principal::local()).await.unwrap();
}

fn digest_of(event: &Event) -> Option<String> {
    let EventBody::ApprovalRequested { digest, approval } = &event.body else { panic!() };
    let digest = digest.as_ref()?;
    assert_eq!(*digest, approval.call.digest());
    Some(digest.to_string())
}

#[tokio::test(start_paused = true)]
async fn digest_for_whoever_asks() {
    // Law 3: the digest in the event is the one in the audit. Nobody else sees the member.
    for (asked, present) in [(Some(true), true), (Some(false), false), (None, false)] {
        let bench = bench([writes()]);
        let events = bench.play(asks(|approvals| approvals.digest = asked), Decision::Approve).await;
        let event = events.iter().find(|event| event.type_name() == "approval.requested").unwrap();
        let digest = digest_of(event);
        assert_eq!(digest.is_some(), present);
        assert_eq!(event.to_json().contains("digest"), present);
        let AuditRecord::Requested { digest: recorded, .. } = &bench.sink.records()[0] else { panic!() };
        assert!(digest.is_none_or(|digest| digest == recorded.to_string()));
    }
}

#[tokio::test(start_paused = true)]
async fn each_is_told_and_refused_by_itself() {
    // Contract 1.6; design 4: 400 APPROVAL_POLICY for what is off.
    use ApprovalFeature::{DenialFeedback, Digest};
    for (features, told) in [
        (vec![], vec!["interactive-approvals"]),
        (vec![Digest], vec!["interactive-approvals", "approval-digest"]),
        (vec![DenialFeedback], vec!["interactive-approvals", "denial-feedback"]),
        (vec![DenialFeedback, Digest], vec!["interactive-approvals", "approval-digest", "denial-feedback"]),
    ] {
        let bench = Bench::with([], RecordingSink::new(), |builder, settings| {
            builder.approvals(ApprovalSettings { features: features.clone(), ..settings })
        });
        assert_eq!(bench.driver.features(), told);
        for (feature, asked) in
            [(Digest, asks(|approvals| approvals.digest = Some(true))), (DenialFeedback, goes_on())]
        {
            let answer = bench.driver.prepare(asked).map(drop).map_err(|error| error.code.to_string());
            let expected = if features.contains(&feature) { Ok(()) } else { Err("APPROVAL_POLICY".into()) };
            assert_eq!(answer, expected, "{features:?} {feature:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_call_is_told_and_the_run_goes_on() {
    // Laws 1 and 2: nothing ran, nothing says that anything ran, and the reason is recorded before it is told.
    let bench = bench([writes(), says("then not")]);
    let mut stream = bench.stream(goes_on());
    let approval = question(&mut stream).await;
    deny(&bench, &approval, "Not on a \"Friday\",\nplease. \u{1f6d1}").await;
    assert_eq!(
        words(&rest(&mut stream).await),
        [
            "approval.resolved denied",
            "step.started 2",
            "usage.reported 2",
            "text.delta then not",
            "run.completed then not",
        ]
    );
    assert!(bench.effects().is_empty());
    let told = "{\"approval\":\"denied\",\"reason\":\"Not on a \\\"Friday\\\",\\nplease. \u{1f6d1}\"}";
    assert_eq!(*bench.model.told.lock().unwrap(), [told]);
    assert_eq!(bench.sink.kinds(), ["approval.requested", "approval.resolved denied"]);
    let AuditRecord::Resolved { reason, .. } = &bench.sink.records()[1] else { panic!() };
    assert_eq!(reason.as_deref(), Some("Not on a \"Friday\",\nplease. \u{1f6d1}"));
    assert!(bench.sink.lines()[1].contains(r#""reason":"Not on a \"Friday\""#));
    assert_eq!(bench.driver.pending_approvals(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_denial_without_reason_and_an_expiry() {
    // Expiry is never told as a refusal, and has no reason: not even that of a decision that came too late.
    let bench_denied = bench([writes()]);
    bench_denied.play(goes_on(), Decision::Deny).await;
    assert_eq!(*bench_denied.model.told.lock().unwrap(), [r#"{"approval":"denied"}"#]);

    let bench = bench([writes(), says("later")]);
    let mut stream = bench.stream(asks(|approvals| {
        approvals.on_deny = Some(OnDeny::Continue);
        approvals.expires_after_ms = Some(100);
    }));
    let approval = question(&mut stream).await;
    bench.clock.step_wall(100);
    let late = DecisionRequest::of(&approval, Decision::Deny).with_reason("no");
    let error = bench.driver.decide_approval(&late, &Principal::local()).await.unwrap_err();
    assert_eq!(error.code(), "APPROVAL_NOT_FOUND");
    let told = words(&rest(&mut stream).await);
    assert_eq!(
        (told[0].as_str(), told.last().unwrap().as_str()),
        ("approval.resolved expired", "run.completed later")
    );
    assert_eq!(*bench.model.told.lock().unwrap(), [r#"{"approval":"expired"}"#]);
    assert!(!bench.sink.lines().iter().any(|line| line.contains("reason")));
}

#[tokio::test(start_paused = true)]
async fn the_other_calls_of_the_step_are_reviewed_as_ever() {
    // Contract 3.2: one after the other, each by itself; an approval of one is none of another.
    let both = calls(&[("call-1", "write", r#"{"n":1}"#), ("call-2", "write", r#"{"n":2}"#)]);
    let bench = bench([both, says("half")]);
    let mut stream = bench.stream(goes_on());
    let first = question(&mut stream).await;
    deny(&bench, &first, "odd").await;
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        if let EventBody::ApprovalRequested { approval, .. } = &event.body {
            bench.decide(approval, Decision::Approve).await.unwrap();
        }
        events.push(event);
    }
    assert_eq!(
        words(&events)[..5],
        [
            "approval.resolved denied",
            "tool.called call-2",
            "approval.requested",
            "approval.resolved approved",
            "tool.completed \"written\"",
        ]
    );
    assert_eq!(bench.effects(), [r#"{"n":2}"#]);
    assert_eq!(*bench.model.told.lock().unwrap(), [r#"{"approval":"denied","reason":"odd"}"#, "\"written\""]);
}

#[tokio::test(start_paused = true)]
async fn the_default_and_cancel_are_the_contract_s() {
    // Contract 3.4: without `onDeny: "continue"` a denial fails the run; a cancel cancels it in any case.
    for asked in [reviewed(IdlePolicy::Pause), asks(|approvals| approvals.on_deny = Some(OnDeny::Fail))] {
        let bench = bench([writes()]);
        let mut stream = bench.stream(asked);
        let approval = question(&mut stream).await;
        deny(&bench, &approval, "no").await;
        let told = words(&rest(&mut stream).await);
        assert_eq!(told, ["approval.resolved denied", "run.failed APPROVAL_DENIED"]);
        assert!(bench.sink.lines()[1].contains(r#""reason":"no""#), "it is recorded all the same");
    }
    let bench = bench([writes()]);
    let told = words(&bench.play(goes_on(), Decision::Cancel).await);
    assert_eq!(told[told.len() - 2..], ["approval.resolved cancelled", "run.cancelled CANCELLED"]);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_insists_meets_the_step_limit() {
    // Contract 7.3: each proposal is a review of its own, and the last step may propose nothing.
    let script = ["call-1", "call-2", "call-3"].map(|id| calls(&[(id, "write", "{}")]));
    let bench = bench(script);
    let events = bench.play(RunRequest { max_steps: Some(3), ..goes_on() }, Decision::Deny).await;
    assert_eq!(words(&events).last().unwrap(), "run.failed STEP_LIMIT");
    assert_eq!(events.iter().filter(|event| event.type_name() == "approval.requested").count(), 2);
    assert!(bench.effects().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_idle_clock_starts_anew_and_runs() {
    // Contract 4.9, 8; law 6: a person's month costs nothing, a full interval follows, and it is counted.
    let slow = Step { delay: Duration::from_millis(49), ..says("slow") };
    let bench_slow = bench([writes(), slow]);
    let asked = || RunRequest { idle_timeout_ms: Some(50), ..goes_on() };
    let mut stream = bench_slow.stream(asked());
    let approval = question(&mut stream).await;
    tokio::time::sleep(Duration::from_secs(30 * 24 * 3600)).await;
    deny(&bench_slow, &approval, "").await;
    assert_eq!(words(&rest(&mut stream).await).last().unwrap(), "run.completed slow");
    assert_eq!(*bench_slow.model.told.lock().unwrap(), [r#"{"approval":"denied","reason":""}"#]);

    let bench = bench([writes(), says("never")]);
    let mut stream = bench.stream(asked());
    let approval = question(&mut stream).await;
    deny(&bench, &approval, "no").await;
    tokio::time::sleep(Duration::from_millis(51)).await;
    let told = words(&rest(&mut stream).await);
    assert_eq!(told, ["approval.resolved denied", "run.cancelled IDLE_TIMEOUT retryable"]);
    assert_eq!(bench.model.told.lock().unwrap().len(), 0, "the model was not asked again");
}

#[tokio::test(start_paused = true)]
async fn an_abort_or_an_unrecorded_denial_ends_the_run() {
    // Contract 3.4 (denied, and the run is aborted); law 2: what is not recorded is not told.
    let bench_aborted = bench([writes(), says("never")]);
    let mut stream = bench_aborted.stream(goes_on());
    let approval = question(&mut stream).await;
    deny(&bench_aborted, &approval, "no").await;
    stream.cancel();
    let told = words(&rest(&mut stream).await);
    assert_eq!(told, ["approval.resolved denied", "run.cancelled CANCELLED"]);

    let bench = bench([writes(), says("never")]);
    let mut stream = bench.stream(goes_on());
    let approval = question(&mut stream).await;
    bench.sink.answer_to("approval.resolved", Answer::Refuse);
    let decision = DecisionRequest::of(&approval, Decision::Deny).with_reason("no");
    let error = bench.driver.decide_approval(&decision, &Principal::local()).await.unwrap_err();
    assert_eq!(error.code(), "APPROVAL_AUDIT_FAILED");
    assert_eq!(words(&rest(&mut stream).await), ["run.failed APPROVAL_AUDIT_FAILED"]);
    assert_eq!(bench.model.told.lock().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn reasons_in_bodies() {
    // Contract 4.4, row 1: elsewhere `reason` is an unknown member; design 8: 2,000 characters.
    let body = |approval: &ApprovalRequest, reason: &str| {
        let text = serde_json::to_string(&DecisionRequest::of(approval, Decision::Deny)).unwrap();
        text.replacen('{', &format!("{{\"reason\":{reason},"), 1)
    };
    let longest = format!("\"{}\"", "é".repeat(2_000));
    let too_long = format!("\"{}\"", "é".repeat(2_001));
    for (features, cases) in [
        (vec![ApprovalFeature::Digest], vec![("\"no\"", "INVALID_APPROVAL"), ("\"\"", "INVALID_APPROVAL")]),
        (
            vec![ApprovalFeature::DenialFeedback],
            vec![
                ("null", "INVALID_APPROVAL"),
                ("7", "INVALID_APPROVAL"),
                ("\"\\ud800\"", "INVALID_APPROVAL"),
                ("\"a\",\"reason\":\"b\"", "INVALID_APPROVAL"),
                (too_long.as_str(), "INVALID_APPROVAL"),
                (longest.as_str(), "ok"),
            ],
        ),
    ] {
        let bench = Bench::with([writes()], RecordingSink::new(), |builder, settings| {
            builder.approvals(ApprovalSettings { features, ..settings })
        });
        let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
        let approval = question(&mut stream).await;
        for (reason, expected) in &cases {
            let answer = bench.driver.decide_text(&body(&approval, reason), &Principal::local()).await;
            let told = answer.map_or_else(|error| error.code.to_string(), |_| "ok".to_owned());
            assert_eq!(told, *expected, "{}", &reason[..reason.len().min(40)]);
        }
        let rejected = bench.sink.kinds().iter().filter(|kind| kind.starts_with("approval.rejected")).count();
        assert_eq!(rejected, cases.iter().filter(|(_, code)| *code != "ok").count());
    }
}
