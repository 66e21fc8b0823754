//! Decisions over HTTP (contract 4.4, 4.11; scenarios I, T3).

use std::sync::Arc;
use std::time::Duration;

use countersign_host::Concurrency;
use countersign_testkit::{Answer as SinkAnswer, FakeClock, PRIVATE};
use serde_json::{Value, json};

use crate::support::{
    ANN, ANN_ELSEWHERE, ANN_REVIEWER, ANN_RUNNER, Ask, BOB, CARL, Fixture, decision, plain, reviewed, run_ask,
};

fn with(body: &Value, pointer: &str, value: Value) -> Value {
    let mut body = body.clone();
    *body.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
    body
}

const UNKNOWN: &str = "0b1d4d4e-0000-4000-8000-000000000000";

// Contract 4.4, rows 1, 2, 5 and 6: each refusal leaves the review as it was, and the right decision still works.
#[tokio::test]
async fn refused_decisions_leave_the_review_open() {
    let fixture = Fixture::new();
    let (mut run, approval) = fixture.waiting(ANN).await;
    let good = decision(&approval, "approve");
    let extra = |name: &str| {
        let mut body = good.clone();
        body[name] = json!("ann");
        body
    };
    let cases = [
        // Row 1; scenario I3: neither subject nor grants can be said in the body.
        ("subject", ANN, extra("subject"), (400, "INVALID_APPROVAL")),
        ("decidedBy", ANN, extra("decidedBy"), (400, "INVALID_APPROVAL")),
        ("grants", ANN, extra("grants"), (400, "INVALID_APPROVAL")),
        ("approveTools", ANN, extra("approveTools"), (400, "INVALID_APPROVAL")),
        ("decision", ANN, with(&good, "/decision", json!("yes")), (400, "INVALID_APPROVAL")),
        ("truthy decision", ANN, with(&good, "/decision", json!(true)), (400, "INVALID_APPROVAL")),
        ("arguments", ANN, with(&good, "/call/arguments", json!([])), (400, "INVALID_APPROVAL")),
        // Row 2; scenario A17: the call's id is not the approval's.
        ("unknown", ANN, with(&good, "/approvalId", json!(UNKNOWN)), (404, "APPROVAL_NOT_FOUND")),
        ("call id", ANN, with(&good, "/approvalId", json!("call-1")), (404, "APPROVAL_NOT_FOUND")),
        ("other subject", BOB, good.clone(), (404, "APPROVAL_NOT_FOUND")),
        ("subject without grants", CARL, good.clone(), (404, "APPROVAL_NOT_FOUND")),
        // Row 5, before row 6.
        ("no approveTools", ANN_RUNNER, good.clone(), (403, "FORBIDDEN")),
        ("no provider", ANN_ELSEWHERE, good.clone(), (403, "FORBIDDEN")),
        ("5 before 6", ANN_RUNNER, with(&good, "/runId", json!(UNKNOWN)), (403, "FORBIDDEN")),
        // Row 6; scenario A1.
        ("run", ANN, with(&good, "/runId", json!(UNKNOWN)), (409, "APPROVAL_MISMATCH")),
        ("call id", ANN, with(&good, "/call/id", json!("call-2")), (409, "APPROVAL_MISMATCH")),
        ("tool", ANN, with(&good, "/call/name", json!("lookup")), (409, "APPROVAL_MISMATCH")),
        ("order", ANN, with(&good, "/call/arguments/k", json!([2, 1])), (409, "APPROVAL_MISMATCH")),
        ("type", ANN, with(&good, "/call/arguments/k", json!([1, "2"])), (409, "APPROVAL_MISMATCH")),
    ];
    let refusals = cases.len();
    for (name, token, body, (status, code)) in cases {
        assert_eq!(fixture.decide(token, &body).await.outcome(), (status, code.to_owned()), "{name}");
    }
    assert!(fixture.written().is_empty());
    let kinds = fixture.sink.kinds();
    assert_eq!(kinds.iter().filter(|kind| kind.starts_with("approval.rejected")).count(), refusals);

    // Row 7: other spellings of the same numbers and another token of the same subject are fine.
    let text = good.to_string().replace("[1,2]", "[1.0, 2e0]");
    let answer = fixture.ask(&Ask::post("/v1/approvals/decisions").token(ANN_REVIEWER).text(&text)).await;
    assert_eq!(answer.outcome(), (200, String::new()));
    assert_eq!(run.rest().await.last().unwrap(), "run.completed");
    assert_eq!(fixture.written(), [r#"{"k":[1,2]}"#], "the stored call ran, not the echoed one");
    // Single use: also the identical decision.
    assert_eq!(fixture.decide(ANN, &good).await.outcome(), (404, "APPROVAL_NOT_FOUND".into()));
}

// Scenarios I1 and I13, law 4: to Bob, Ann's approval and none are the same bytes.
#[tokio::test]
async fn anothers_approval_and_an_unknown_one_are_the_same_answer() {
    let fixture = Fixture::new();
    let (_run, approval) = fixture.waiting(ANN).await;
    let good = decision(&approval, "approve");
    let unknown = with(&good, "/approvalId", json!(UNKNOWN));
    let reference = fixture.decide(BOB, &unknown).await.undated();
    assert_eq!(reference.outcome(), (404, "APPROVAL_NOT_FOUND".into()));
    let foreign = [
        good.clone(),
        with(&good, "/runId", json!(UNKNOWN)),
        with(&good, "/call/name", json!("lookup")),
        with(&good, "/call/arguments", json!({})),
        with(&good, "/decision", json!("deny")),
    ];
    for body in foreign {
        for token in [BOB, CARL] {
            assert_eq!(fixture.decide(token, &body).await.undated(), reference, "{body}");
        }
    }
    // Ann herself sees the same once it is decided.
    assert_eq!(fixture.decide(ANN, &good).await.head.status, 200);
    assert_eq!(fixture.decide(ANN, &good).await.undated(), reference);
}

// Scenarios I5 and I11: without the bearer header and the content type nothing happens.
#[tokio::test]
async fn a_decision_needs_a_valid_token_in_the_header_and_the_content_type() {
    let fixture = Fixture::new();
    let (mut run, approval) = fixture.waiting(ANN).await;
    let body = decision(&approval, "approve").to_string();
    let post = || Ask::post("/v1/approvals/decisions");
    let revoked = ANN.replace("0001", "0000");
    let cases = [
        (
            "simple cross-site post",
            post().token(ANN).header("Content-Type", "text/plain").body(body.clone()),
            400,
        ),
        ("no content type", post().token(ANN).body(body.clone()), 400),
        ("no token", post().text(&body), 401),
        ("no token, other host", post().header("Host", "evil.example").text(&body), 401),
        ("revoked token", post().token(&revoked).text(&body), 401),
        ("cookie", post().header("Cookie", &format!("token={ANN}")).text(&body), 401),
        ("token in the query", Ask::post(&format!("/v1/approvals/decisions?token={ANN}")).text(&body), 401),
        ("foreign page", post().token(ANN).header("Origin", "https://evil.example").text(&body), 403),
        ("get", Ask::get("/v1/approvals/decisions").token(ANN).text(&body), 404),
    ];
    for (name, ask, status) in cases {
        assert_eq!(fixture.ask(&ask).await.head.status, status, "{name}");
    }
    assert_eq!(fixture.driver.pending_approvals(), 1);
    assert_eq!(fixture.sink.kinds(), ["approval.requested"], "nothing of it reached the registry");
    assert_eq!(fixture.decide(ANN, &decision(&approval, "deny")).await.head.status, 200);
    assert_eq!(run.rest().await, ["approval.resolved", "run.failed APPROVAL_DENIED"]);
}

// Contract 4.11, row 22, and scenario T3: a full host can still be decided.
#[tokio::test]
async fn a_full_host_takes_decisions() {
    let fixture = Fixture::with_concurrency(1, 1);
    let (mut run, approval) = fixture.waiting(ANN).await;
    let good = decision(&approval, "approve");
    let raw = fixture.ask(&Ask::post("/v1/runs").token(ANN).json(&plain("quick"))).await;
    assert_eq!(raw.outcome(), (429, "BUSY".into()));
    assert_eq!(fixture.decide(ANN_RUNNER, &good).await.outcome(), (403, "FORBIDDEN".into()));
    assert_eq!(fixture.decide(ANN_ELSEWHERE, &good).await.outcome(), (403, "FORBIDDEN".into()));
    assert_eq!(fixture.decide(BOB, &good).await.outcome(), (404, "APPROVAL_NOT_FOUND".into()));
    assert_eq!(fixture.decide(ANN, &good).await.head.status, 200);
    assert_eq!(run.rest().await.last().unwrap(), "run.completed");
    assert_eq!(fixture.decide(ANN, &good).await.outcome(), (404, "APPROVAL_NOT_FOUND".into()));
    let raw = fixture.ask(&Ask::post("/v1/runs").token(ANN).json(&reviewed("write"))).await;
    assert_eq!(raw.outcome(), (400, "APPROVAL_STREAM_REQUIRED".into()));
}

// Contract 4.11, row 23: each outcome, its terminal event, and a second decision.
#[tokio::test(start_paused = true)]
async fn each_outcome_has_its_sequence() {
    let expected = [
        ("approve", "approved", &["tool.completed", "step.started", "text.delta", "run.completed"][..]),
        ("deny", "denied", &["run.failed APPROVAL_DENIED"]),
        ("cancel", "cancelled", &["run.cancelled CANCELLED"]),
        ("expire", "expired", &["run.failed APPROVAL_EXPIRED"]),
    ];
    for (answer, outcome, rest) in expected {
        let fixture = Fixture::new();
        let mut run = fixture.connect();
        let mut body = reviewed("write");
        if answer == "expire" {
            body["approvals"]["expiresAfterMs"] = json!(20);
        }
        run.start(&run_ask(ANN, body)).await;
        let approval = run.event_of("approval.requested").await["approval"].take();
        assert_eq!(approval["expiresAt"].is_string(), answer == "expire");
        let decided = decision(&approval, if answer == "expire" { "approve" } else { answer });
        if answer == "expire" {
            tokio::time::sleep(Duration::from_millis(21)).await;
        } else {
            assert_eq!(fixture.decide(ANN, &decided).await.json()["outcome"], outcome);
        }
        let resolved = run.event_of("approval.resolved").await["resolution"].take();
        assert_eq!(resolved["outcome"], outcome);
        assert_eq!(run.rest().await, rest, "{answer}");
        assert_eq!(
            fixture.decide(ANN, &decided).await.outcome(),
            (404, "APPROVAL_NOT_FOUND".into()),
            "{answer}"
        );
        assert_eq!(fixture.written().len(), usize::from(answer == "approve"));
    }
}

// Contract 4.4, row 4: the wall clock alone expires a review, with the timer still far away.
#[tokio::test(start_paused = true)]
async fn a_late_decision_is_refused_even_if_only_the_clock_moved() {
    let clock = Arc::new(FakeClock::new());
    let fixture = Fixture::with(Concurrency::default(), |builder| builder.clock(clock.clone()));
    let mut run = fixture.connect();
    let mut body = reviewed("write");
    body["approvals"]["expiresAfterMs"] = json!(60_000);
    run.start(&run_ask(ANN, body)).await;
    let approval = run.event_of("approval.requested").await["approval"].take();
    clock.step_wall(60_000);
    let late = fixture.decide(ANN, &decision(&approval, "approve")).await;
    assert_eq!(late.outcome(), (404, "APPROVAL_NOT_FOUND".into()));
    assert_eq!(run.rest().await, ["approval.resolved", "run.failed APPROVAL_EXPIRED"]);
    assert!(fixture.written().is_empty());
}

// Contract 4.4, row 7b, and 4.11, row 18: fail closed, and the sink's own words stay private.
#[tokio::test]
async fn a_failing_sink_authorizes_nothing() {
    for failure in [SinkAnswer::Refuse, SinkAnswer::Panic] {
        let fixture = Fixture::new();
        let (mut run, approval) = fixture.waiting(ANN).await;
        fixture.sink.answer(failure);
        let answer = fixture.decide(ANN, &decision(&approval, "approve")).await;
        assert_eq!(answer.outcome(), (503, "APPROVAL_AUDIT_FAILED".into()));
        assert_eq!(answer.json()["error"]["retryable"], false);
        assert!(!String::from_utf8(answer.body).unwrap().contains(PRIVATE));
        let failed = run.event().await.unwrap();
        assert_eq!(
            (&failed["type"], &failed["error"]["code"]),
            (&json!("run.failed"), &json!("APPROVAL_AUDIT_FAILED"))
        );
        assert!(!failed.to_string().contains(PRIVATE));
        // A refusal that cannot be recorded is no refusal either.
        let again = fixture.decide(ANN, &decision(&approval, "approve")).await;
        assert_eq!(again.outcome(), (503, "APPROVAL_AUDIT_FAILED".into()));
        fixture.sink.answer(SinkAnswer::Accept);
        let again = fixture.decide(ANN, &decision(&approval, "approve")).await;
        assert_eq!(again.outcome(), (404, "APPROVAL_NOT_FOUND".into()));
        assert!(fixture.written().is_empty());
    }
}

// Design 4: the steps of a decision run by themselves, so a caller who hangs up changes nothing.
#[tokio::test]
async fn a_reviewer_who_hangs_up_has_still_decided() {
    let (fixture, mut entering, go) = Fixture::with_slow_sink();
    let (mut run, approval) = fixture.waiting(ANN).await;
    let mut reviewer = fixture.connect();
    let body = decision(&approval, "approve");
    reviewer.send(&Ask::post("/v1/approvals/decisions").token(ANN).json(&body).bytes()).await;
    entering.recv().await.unwrap();
    drop(reviewer);
    // While it is being recorded every other decision is unknown.
    assert_eq!(fixture.decide(ANN, &body).await.outcome(), (404, "APPROVAL_NOT_FOUND".into()));
    go.send(()).unwrap();
    assert_eq!(run.event_of("approval.resolved").await["resolution"]["outcome"], "approved");
    assert_eq!(run.rest().await.last().unwrap(), "run.completed");
    assert_eq!(fixture.written().len(), 1);
}

// Law 1, over HTTP: of many decisions at once exactly one is taken, and the effect matches it (scenario C3).
#[tokio::test]
async fn of_many_decisions_at_once_one_wins() {
    let fixture = Fixture::new();
    for round in 0..10 {
        let (mut run, approval) = fixture.waiting(ANN).await;
        let before = fixture.written().len();
        let deciding = (0..20).map(|index| {
            let answer = if (index + round) % 2 == 0 { "approve" } else { "deny" };
            let ask = Ask::post("/v1/approvals/decisions").token(ANN).json(&decision(&approval, answer));
            let mut peer = fixture.connect();
            tokio::spawn(async move { peer.ask(&ask).await })
        });
        let mut won = Vec::new();
        for deciding in deciding.collect::<Vec<_>>() {
            let answer = deciding.await.unwrap();
            match answer.head.status {
                200 => won.push(answer.json()["outcome"].as_str().unwrap().to_owned()),
                404 => {}
                other => panic!("{other}"),
            }
        }
        let resolved = run.event_of("approval.resolved").await["resolution"]["outcome"].take();
        assert_eq!(won, [resolved.as_str().unwrap()]);
        run.rest().await;
        assert_eq!(fixture.written().len() - before, usize::from(won[0] == "approved"));
    }
}
