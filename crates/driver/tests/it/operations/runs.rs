//! Keyed runs through the driver: what is stored when, and what is told again.

use std::sync::Arc;
use std::time::Duration;

use countersign_approval_core::Error;
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::grants::Principal;
use countersign_approval_core::ids::Subject;
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_driver::operation::{
    Claimed, DEFAULT_MAX_RECORD_BYTES, Ended, MemoryOperationStore, OperationSettings, OperationStore,
};
use countersign_driver::{Output, RunLimits, Scope, ToolSpec, tool};
use countersign_protocol::code::Code;
use countersign_protocol::event::{Event, EventBody};
use countersign_protocol::request::{Approvals, RunRequest};
use countersign_testkit::RecordingSink;
use tokio::sync::Semaphore;

use super::spy::{Answers, Spy};
use crate::support::{Bench, Step, calls, question, request, rest, reviewed, says, words, writes};

fn bench(store: Arc<dyn OperationStore>, script: impl IntoIterator<Item = Step>) -> Bench {
    bounded(store, DEFAULT_MAX_RECORD_BYTES, script)
}

fn bounded(
    store: Arc<dyn OperationStore>,
    max_record_bytes: u64,
    script: impl IntoIterator<Item = Step>,
) -> Bench {
    Bench::with(script, RecordingSink::new(), |builder, settings| {
        builder.approvals(settings).operations(OperationSettings { store, max_record_bytes })
    })
}

fn keyed(request: RunRequest) -> RunRequest {
    RunRequest { idempotency_key: Some("key-1".into()), ..request }
}

fn kinds(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::type_name).collect()
}

/// The only event of a run that did not begin.
async fn refusal(bench: &Bench, request: RunRequest) -> (Code, bool, bool) {
    let events = rest(&mut bench.stream(request)).await;
    let [Event { body: EventBody::RunFailed { error }, sequence: 1, .. }] = &events[..] else {
        panic!("{:?}", kinds(&events));
    };
    (error.code.clone(), error.retryable, error.outcome.is_some())
}

// Contract 4.10, 4.11 row 20, 9: no approval.* events, ends run.completed, one effect, the old decision is NOT_FOUND;
// `tool.called` stays; numbers from 1, the first run's id and times.
#[tokio::test(start_paused = true)]
async fn a_replay_tells_the_run_and_neither_prompts_nor_executes() {
    let store = Arc::new(MemoryOperationStore::default());
    let first = bench(store.clone(), [writes(), says("Written.")]);
    let mut stream = first.stream(keyed(reviewed(IdlePolicy::Pause)));
    let mut told = Vec::new();
    let mut decision = None;
    while let Some(event) = stream.next().await {
        if let EventBody::ApprovalRequested { approval, .. } = &event.body {
            first.decide(approval, Decision::Approve).await.unwrap();
            decision = Some(DecisionRequest::of(approval, Decision::Approve));
        }
        told.push(event);
    }
    assert_eq!(first.effects().len(), 1);
    // Another process with the same store, whose model would say something else.
    let second = bench(store, [says("Never said.")]);
    for bench in [&first, &second] {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let turns = bench.model.turns.load(std::sync::atomic::Ordering::SeqCst);
        let replay = rest(&mut bench.stream(keyed(reviewed(IdlePolicy::Pause)))).await;
        let expected: Vec<Event> = told
            .iter()
            .filter(|event| !event.type_name().starts_with("approval."))
            .zip(1..)
            .map(|(event, sequence)| Event { sequence, ..event.clone() })
            .collect();
        assert_eq!(replay, expected);
        assert_eq!(
            kinds(&replay),
            [
                "run.started",
                "step.started",
                "usage.reported",
                "text.delta",
                "tool.called",
                "tool.completed",
                "step.started",
                "usage.reported",
                "text.delta",
                "run.completed",
            ]
        );
        assert_eq!(bench.model.turns.load(std::sync::atomic::Ordering::SeqCst), turns, "no model work");
        let late = bench.driver.decide_approval(&decision.clone().unwrap(), &Principal::local()).await;
        assert!(matches!(late, Err(Error::NotFound)), "{late:?}");
    }
    assert_eq!((first.effects().len(), second.effects().len()), (1, 0));
    assert!(
        second.sink.records().iter().all(|record| {
            matches!(record, countersign_approval_core::audit::AuditRecord::Rejected { .. })
        })
    );
}

// Contract 9: same key and another request is a conflict, while it runs and afterwards; the same one is in progress.
#[tokio::test(start_paused = true)]
async fn one_key_one_request() {
    let bench = bench(Arc::new(MemoryOperationStore::default()), [writes()]);
    let mut stream = bench.stream(keyed(reviewed(IdlePolicy::Pause)));
    let approval = question(&mut stream).await;
    let other =
        || RunRequest { metadata: [("a".into(), "b".into())].into(), ..keyed(reviewed(IdlePolicy::Pause)) };
    assert_eq!(refusal(&bench, other()).await, (Code::IDEMPOTENCY_CONFLICT, false, false));
    assert_eq!(
        refusal(&bench, keyed(reviewed(IdlePolicy::Pause))).await,
        (Code::OPERATION_IN_PROGRESS, true, false)
    );
    bench.decide(&approval, Decision::Approve).await.unwrap();
    assert_eq!(kinds(&rest(&mut stream).await).last(), Some(&"run.completed"));
    assert_eq!(refusal(&bench, other()).await, (Code::IDEMPOTENCY_CONFLICT, false, false));
    assert_eq!(bench.effects().len(), 1);
}

// Contract 9: different subjects are independent.
#[tokio::test(start_paused = true)]
async fn subjects_do_not_share_keys() {
    let bench = bench(Arc::new(MemoryOperationStore::default()), [says("one"), says("two")]);
    for (subject, answer) in [("ann", "one"), ("bob", "two"), ("ann", "one"), ("bob", "two")] {
        let principal = Principal { subject: Subject::parse(subject).unwrap(), ..Principal::local() };
        let result = bench.driver.run(keyed(request()), principal).await.unwrap();
        assert_eq!(result.text, answer, "{subject}");
    }
}

// Contract 9: a stored failure or cancellation replays as that one.
#[tokio::test(start_paused = true)]
async fn failures_and_cancellations_are_told_again() {
    let failing = || vec![Step { error: Some(Code::PROVIDER_REFUSAL), ..Step::default() }];
    let slow = || vec![Step { delay: Duration::from_secs(60), ..says("late") }];
    let panicking = || vec![Step { panics: true, ..Step::default() }];
    let expiring = RunRequest {
        approvals: Some(Approvals { expires_after_ms: Some(20), ..Approvals::new(IdlePolicy::Pause) }),
        ..request()
    };
    let idle = RunRequest { idle_timeout_ms: Some(50), ..request() };
    let person = || reviewed(IdlePolicy::Pause);
    let cases: [(&str, Vec<Step>, RunRequest, Option<Decision>); 7] = [
        ("run.failed PROVIDER_REFUSAL", failing(), request(), None),
        ("run.failed INTERNAL_ERROR", panicking(), request(), None),
        ("run.cancelled IDLE_TIMEOUT retryable", slow(), idle, None),
        ("run.failed APPROVAL_DENIED", vec![writes()], person(), Some(Decision::Deny)),
        ("run.cancelled CANCELLED", vec![writes()], person(), Some(Decision::Cancel)),
        ("run.failed APPROVAL_EXPIRED", vec![writes()], expiring, None),
        ("run.failed APPROVAL_REQUIRED", vec![writes()], request(), None),
    ];
    for (expected, script, asked, decision) in cases {
        let store = Arc::new(MemoryOperationStore::default());
        let first = bench(store.clone(), script);
        let mut stream = first.stream(keyed(asked.clone()));
        let mut told = Vec::new();
        while let Some(event) = stream.next().await {
            if let (EventBody::ApprovalRequested { approval, .. }, Some(decision)) = (&event.body, decision) {
                first.decide(approval, decision).await.unwrap();
            }
            told.push(event);
        }
        assert_eq!(words(&told).last().unwrap(), expected);
        let again = rest(&mut bench(store, [says("Never said.")]).stream(keyed(asked))).await;
        assert_eq!(again.last().unwrap().body, told.last().unwrap().body, "{expected}");
        assert!(kinds(&again).iter().all(|kind| !kind.starts_with("approval.")), "{expected}");
        assert_eq!(first.effects().len(), 0, "{expected}");
    }
}

/// Waits until the run of a stream that was dropped has ended.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(10)).await;
}

// Contract 4.10, 4.11 row 21: a stream that was closed during a review; also in a new process with the same store.
#[tokio::test(start_paused = true)]
async fn an_interrupted_review_is_uncertain() {
    let spy = Arc::new(Spy::default());
    let first = bench(spy.clone(), [writes()]);
    let mut stream = first.stream(keyed(reviewed(IdlePolicy::Pause)));
    let approval = question(&mut stream).await;
    drop(stream);
    settle().await;
    assert_eq!(spy.ends(), [Ended::Uncertain]);
    assert!(matches!(first.decide(&approval, Decision::Approve).await, Err(Error::NotFound)));
    let second = bench(spy.clone(), [writes()]);
    for bench in [&first, &second, &second] {
        let told = words(&rest(&mut bench.stream(keyed(reviewed(IdlePolicy::Pause)))).await);
        assert_eq!(
            told,
            [
                "run.started",
                "step.started 1",
                "usage.reported 1",
                "text.delta I propose",
                "tool.called call-1",
                "run.failed OPERATION_UNCERTAIN uncertain",
            ]
        );
        assert_eq!(bench.driver.pending_approvals(), 0);
    }
    assert_eq!((first.effects().len(), second.effects().len()), (0, 0));
    // Contract 9: a buffered replay of an uncertain record is 409. The request selects no reviews, so it is another key.
    assert_eq!(Code::OPERATION_UNCERTAIN.status(), 409);
}

// Contract 9: a disconnect while the model runs stores `cancelled`.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_closed_while_the_model_speaks_is_cancelled() {
    let spy = Arc::new(Spy::default());
    let slow = Step { delay: Duration::from_secs(60), ..says("late") };
    let first = bench(spy.clone(), [slow]);
    let mut stream = first.stream(keyed(request()));
    assert_eq!(stream.next().await.unwrap().type_name(), "run.started");
    assert_eq!(stream.next().await.unwrap().type_name(), "step.started");
    drop(stream);
    settle().await;
    assert_eq!(spy.ends(), [Ended::Cancelled]);
    let told = words(&rest(&mut first.stream(keyed(request()))).await);
    assert_eq!(told, ["run.started", "step.started 1", "run.cancelled CANCELLED"]);
}

// Law 8, contract 5.4: with a tool at work nobody knows.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_closed_while_a_tool_works_is_uncertain() {
    let spy = Arc::new(Spy::default());
    let (store, working) = (spy.clone(), Arc::new(Semaphore::new(0)));
    let at_work = Arc::clone(&working);
    let bench = Bench::with([calls(&[("c1", "slow", "{}")])], RecordingSink::new(), |builder, settings| {
        let spec = ToolSpec::new("slow", "", r#"{"type":"object"}"#).unwrap();
        let slow = tool(spec, move |_, _| {
            at_work.add_permits(1);
            async {
                tokio::time::sleep(Duration::from_secs(3)).await;
                Ok(Output::json("done")?)
            }
        });
        builder.approvals(settings).tool(slow).operations(OperationSettings::new(store))
    });
    let asked = || RunRequest {
        tools: vec![countersign_approval_core::ids::ToolName::parse("slow").unwrap()],
        ..keyed(request())
    };
    let mut stream = bench.stream(asked());
    while stream.next().await.unwrap().type_name() != "tool.called" {}
    let reading = tokio::spawn(async move {
        // Asks, so that the tool may start, and never gets an answer.
        let _ = tokio::time::timeout(Duration::from_secs(1), stream.next()).await;
    });
    working.acquire().await.unwrap().forget();
    reading.await.unwrap();
    settle().await;
    assert_eq!(spy.ends(), [Ended::Uncertain]);
    let error = bench.driver.run(asked(), Principal::local()).await.unwrap_err();
    assert_eq!(
        (error.code.clone(), error.code.status(), error.retryable),
        (Code::OPERATION_UNCERTAIN, 409, false)
    );
    assert!(error.outcome.is_some());
    assert_eq!(working.available_permits(), 0, "the tool ran once");
}

// Contract 9: every event but `text.delta` and `run.progress` is committed before it is sent, `tool.called` before the
// tool can run.
#[tokio::test(start_paused = true)]
async fn what_is_seen_is_stored() {
    let spy = Arc::new(Spy::default());
    let (store, looks) = (spy.clone(), spy.clone());
    let script = [
        Step { deltas: vec!["I ", "pro", "pose"], ..calls(&[("c1", "look", "{}"), ("c2", "write", "{}")]) },
        Step { deltas: vec!["Do", "ne"], ..says("") },
    ];
    let bench = Bench::with(script, RecordingSink::new(), |builder, settings| {
        let look = tool(ToolSpec::new("look", "", r#"{"type":"object"}"#).unwrap(), move |_, context| {
            let stored = looks.types();
            async move {
                context.report_progress();
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok(Output::json(&stored)?)
            }
        });
        builder.approvals(settings).tool(look).operations(OperationSettings::new(store))
    });
    let mut asked = keyed(reviewed(IdlePolicy::Pause));
    asked.tools.push(countersign_approval_core::ids::ToolName::parse("look").unwrap());
    let mut stream = bench.stream(asked.clone());
    let mut told = Vec::new();
    while let Some(event) = stream.next().await {
        let passing = ["text.delta", "run.progress"].contains(&event.type_name());
        let stored = spy.events();
        let is_it = |text: &String| {
            let json: serde_json::Value = serde_json::from_str(text).unwrap();
            let told: serde_json::Value = serde_json::from_str(&event.to_json()).unwrap();
            json.as_object().unwrap().iter().all(|(name, value)| name == "sequence" || told[name] == *value)
        };
        assert!(passing || stored.iter().any(is_it), "{} is stored before it is told", event.type_name());
        if let EventBody::ToolCompleted { output, call_id } = &event.body
            && call_id.as_str() == "c1"
        {
            assert!(output.text().ends_with(r#""tool.called"]"#), "{}", output.text());
        }
        if let EventBody::ApprovalRequested { approval, .. } = &event.body {
            bench.decide(approval, Decision::Approve).await.unwrap();
        }
        told.push(event);
    }
    assert!(kinds(&told).contains(&"run.progress"));
    // The compact log: one text for its pieces, no progress, approvals in it (contract 4.10).
    assert_eq!(
        spy.types(),
        [
            "run.started",
            "step.started",
            "text.delta",
            "usage.reported",
            "tool.called",
            "tool.completed",
            "tool.called",
            "approval.requested",
            "approval.resolved",
            "tool.completed",
            "step.started",
            "text.delta",
            "usage.reported",
            "run.completed",
        ]
    );
    assert_eq!(spy.ends(), [Ended::Completed]);
    let replay = words(&rest(&mut bench.stream(asked)).await);
    assert!(replay.contains(&"text.delta I propose".to_owned()), "{replay:?}");
}

// Contract 9: a store that fails mid-run. Whatever fails, nothing runs twice, and nothing is told that is not stored.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_at_any_call_ends_the_run_and_leaves_it_uncertain() {
    let play = async |bench: &Bench| {
        let mut stream = bench.stream(keyed(reviewed(IdlePolicy::Pause)));
        let mut told = Vec::new();
        while let Some(event) = stream.next().await {
            if let EventBody::ApprovalRequested { approval, .. } = &event.body {
                bench.decide(approval, Decision::Approve).await.unwrap();
            }
            told.push(event);
        }
        told
    };
    let script = || [writes(), says("Written.")];
    let spy = Arc::new(Spy::default());
    play(&bench(spy.clone(), script())).await;
    let calls = spy.calls();
    assert_eq!(calls, 11, "one claim, and one commit for each event but text");
    for failing in 0..calls {
        let spy = Arc::new(Spy::default());
        spy.fail_from(failing);
        let first = bench(spy.clone(), script());
        let told = play(&first).await;
        let last = words(&told).pop().unwrap();
        assert_eq!(last, "run.failed OPERATION_STORE_ERROR uncertain", "call {failing}");
        assert!(!format!("{told:?}").contains("private"), "call {failing}");
        assert_eq!(first.driver.pending_approvals(), 0, "call {failing}");
        // Claim, run.started, step.started, usage.reported, tool.called, requested, resolved: before the effect.
        let effects = usize::from(failing > 6);
        assert_eq!(first.effects().len(), effects, "call {failing}");
        assert!(spy.ends().is_empty(), "call {failing}");
        spy.recover();
        let again = play(&first).await;
        let last = words(&again).pop().unwrap();
        if failing == 0 {
            // The claim itself: this store kept nothing.
            assert_eq!(last, "run.completed Written.");
            continue;
        }
        assert_eq!(last, "run.failed OPERATION_UNCERTAIN uncertain", "call {failing}");
        assert_eq!(
            again[0].type_name(),
            "run.started",
            "call {failing}: it is told even if it was not stored"
        );
        assert_eq!(first.effects().len(), effects, "call {failing}: nothing runs again");
    }
}

// Contract 9 and 5.4: no room is certain, a failure is not.
#[tokio::test(start_paused = true)]
async fn a_claim_that_fails_starts_nothing() {
    let full = bench(Arc::new(MemoryOperationStore::new(0)), [says("Never said.")]);
    assert_eq!(refusal(&full, keyed(request())).await, (Code::OPERATION_STORE_FULL, false, false));
    let spy = Arc::new(Spy::default());
    spy.fail_from(0);
    let failing = bench(spy, [says("Never said.")]);
    assert_eq!(refusal(&failing, keyed(request())).await, (Code::OPERATION_STORE_ERROR, false, true));
    for bench in [full, failing] {
        assert_eq!(bench.model.turns.load(std::sync::atomic::Ordering::SeqCst), 0);
        // Without a key nothing of this matters.
        assert_eq!(bench.driver.run(request(), Principal::local()).await.unwrap().text, "Never said.");
    }
}

// Contract 9, law 9: the bound at its edge.
#[tokio::test(start_paused = true)]
async fn a_record_has_a_limit() {
    let script =
        || [Step { deltas: vec!["a", "\u{1}", "é"], ..calls(&[("c1", "lookup", "{}")]) }, says("Found.")];
    let spy = Arc::new(Spy::default());
    let result = bench(spy.clone(), script()).driver.run(keyed(request()), Principal::local()).await.unwrap();
    let bytes: u64 = spy.events().iter().map(|event| event.len() as u64).sum();

    let exact = Arc::new(Spy::default());
    let again =
        bounded(exact.clone(), bytes, script()).driver.run(keyed(request()), Principal::local()).await;
    assert_eq!(again.unwrap().text, result.text);

    for limit in [bytes - 1, bytes / 2, 1] {
        let spy = Arc::new(Spy::default());
        let bench = bounded(spy.clone(), limit, script());
        let error = bench.driver.run(keyed(request()), Principal::local()).await.unwrap_err();
        assert_eq!(
            (error.code.clone(), error.code.status(), error.outcome.is_some()),
            (Code::OPERATION_RECORD_LIMIT, 503, true),
            "{limit}"
        );
        let stored: u64 = spy.events().iter().map(|event| event.len() as u64).sum();
        assert!(stored <= limit, "{stored} of {limit}");
        let error = bench.driver.run(keyed(request()), Principal::local()).await.unwrap_err();
        assert_eq!(error.code, Code::OPERATION_UNCERTAIN, "{limit}");
    }
}

// A model that never stops speaking is stopped while it speaks, not after.
#[tokio::test(start_paused = true)]
async fn text_that_waits_counts() {
    let step = Step { deltas: vec!["0123456789"; 50], delay: Duration::ZERO, ..says("") };
    let bench = bounded(Arc::new(Spy::default()), 400, [step]);
    let told = words(&rest(&mut bench.stream(keyed(request()))).await);
    assert_eq!(told.last().unwrap(), "run.failed OPERATION_RECORD_LIMIT uncertain");
    assert!(!told.iter().any(|word| word.starts_with("usage.reported")), "{told:?}");
}

// Contract 9: buffered and streamed runs share a key; the answer is not part of the request.
#[tokio::test(start_paused = true)]
async fn a_buffered_run_is_told_as_a_stream_and_the_other_way_round() {
    let bench = bench(Arc::new(MemoryOperationStore::default()), [says("one"), says("two")]);
    let result = bench.driver.run(keyed(request()), Principal::local()).await.unwrap();
    let told = rest(&mut bench.stream(keyed(request()))).await;
    assert_eq!(told.last().unwrap().body, EventBody::RunCompleted { result: Box::new(result.clone()) });
    assert_eq!(bench.driver.run(keyed(request()), Principal::local()).await.unwrap(), result);
    assert_eq!((result.run_id, result.text.as_str()), (told[0].run_id, "one"));
}

// Contract 9: a cancellation during the claim itself stores run.started and run.cancelled.
#[tokio::test(start_paused = true)]
async fn whoever_leaves_during_the_claim_leaves_a_cancelled_operation() {
    let gate = Arc::new(Semaphore::new(0));
    let spy = Arc::new(Spy::gated(Arc::clone(&gate)));
    let bench = bench(spy.clone(), [says("Never said.")]);
    let mut stream = bench.stream(keyed(request()));
    assert!(
        tokio::time::timeout(Duration::from_secs(1), stream.next()).await.is_err(),
        "no event before the claim"
    );
    drop(stream);
    gate.add_permits(100);
    settle().await;
    assert_eq!(
        (spy.types(), spy.ends()),
        (vec!["run.started".into(), "run.cancelled".into()], vec![Ended::Cancelled])
    );
    let told = words(&rest(&mut bench.stream(keyed(request()))).await);
    assert_eq!(told, ["run.started", "run.cancelled CANCELLED"]);
}

// Contract 12, 11: a shutdown is told to whoever is there, and stored.
#[tokio::test(start_paused = true)]
async fn a_shutdown_during_a_review_is_a_cancellation() {
    let spy = Arc::new(Spy::default());
    let bench = bench(spy.clone(), [writes()]);
    let shutdown = tokio_util::sync::CancellationToken::new();
    let scope = Scope::new(shutdown.clone());
    let prepared = bench.driver.prepare(keyed(reviewed(IdlePolicy::Pause))).unwrap();
    let mut stream = prepared.stream(&Principal::local(), &scope);
    question(&mut stream).await;
    shutdown.cancel();
    let told = words(&rest(&mut stream).await);
    assert_eq!(told, ["approval.resolved cancelled", "run.cancelled CANCELLED"]);
    assert_eq!(spy.ends(), [Ended::Cancelled]);
}

// Law 8: a log that no run wrote is not told.
#[tokio::test(start_paused = true)]
async fn a_damaged_log_is_an_error() {
    const STARTED: &str = r#"{"type":"run.started","runId":"RUN","sequence":1,"timestamp":"2026-01-02T03:04:05.678Z","provider":"mock","model":"demo"}"#;
    let cases: [(&str, fn(countersign_driver::operation::Log) -> Claimed, Vec<&'static str>); 5] = [
        ("no end", Claimed::Replay, vec![]),
        ("not an event", Claimed::Replay, vec!["{}"]),
        ("another run's", Claimed::Uncertain, vec![STARTED]),
        ("not JSON", Claimed::Uncertain, vec!["x"]),
        (
            "a later version's",
            Claimed::Uncertain,
            vec![
                r#"{"type":"later","optional":true,"runId":"6f0c2d1e-0000-4000-8000-000000000000","sequence":1,"timestamp":"2026-01-02T03:04:05.678Z"}"#,
            ],
        ),
    ];
    for (name, claimed, events) in cases {
        let bench = bench(Arc::new(Answers(claimed, events)), [says("Never said.")]);
        assert_eq!(
            refusal(&bench, keyed(request())).await,
            (Code::OPERATION_STORE_ERROR, false, true),
            "{name}"
        );
    }
    // Contract 9: a missing run.started is made up; what follows is not.
    let bench = bench(Arc::new(Answers(Claimed::Uncertain, vec![])), [says("Never said.")]);
    let told = words(&rest(&mut bench.stream(keyed(request()))).await);
    assert_eq!(told, ["run.started", "run.failed OPERATION_UNCERTAIN uncertain"]);
}

// Contract 1.6, 2.1 row 4, 1.9; law 9.
#[tokio::test(start_paused = true)]
async fn keys_need_a_store() {
    let without = Bench::new([says("Never said.")]);
    let error = without.driver.stream(keyed(request()), Principal::local()).unwrap_err();
    assert_eq!(error.code, Code::IDEMPOTENCY_UNAVAILABLE);
    assert!(!without.driver.features().contains(&"idempotency"));
    let with = bench(Arc::new(MemoryOperationStore::default()), []);
    assert!(with.driver.features().contains(&"idempotency"));
    let store = Arc::new(MemoryOperationStore::default());
    let settings = OperationSettings { max_record_bytes: 0, ..OperationSettings::new(store) };
    let refused = countersign_driver::Driver::builder()
        .provider(Arc::clone(&with.model) as _)
        .limits(RunLimits::default())
        .operations(settings)
        .build();
    assert_eq!(refused.unwrap_err().to_string(), "operations.max_record_bytes must be at least 1");
}
