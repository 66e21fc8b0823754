//! Runs over HTTP: order of checks, buffered and streamed answers, slots (contract 1.8, 2.1, 2.2, 3.4, 6.4).

use countersign_approval_core::registry::Limits;
use countersign_driver::{ApprovalSettings, IdlePause};
use countersign_host::Concurrency;
use serde_json::{Value, json};

use crate::support::{
    ANN, ANN_ELSEWHERE, ANN_REVIEWER, Ask, BOB, CARL, Fixture, decision, plain, reviewed, run_ask,
};

fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

fn buffered(token: &str, body: Value) -> Ask {
    Ask::post("/v1/runs").token(token).json(&body)
}

// Contract 2.1: of two things that are wrong, the earlier row answers.
#[tokio::test]
async fn the_earlier_row_answers() {
    let fixture = Fixture::with_concurrency(1, 1);
    let tools = json!(["write"]);
    let cases = [
        (
            "1 before 5",
            ANN,
            json!({"provider": "nobody", "model": "demo", "input": ""}),
            (400, "INVALID_REQUEST"),
        ),
        (
            "2",
            ANN,
            with(plain("quick"), "session", json!({"id": "x", "revision": 0})),
            (400, "SESSIONS_UNAVAILABLE"),
        ),
        ("3", ANN, with(plain("quick"), "retrieval", json!({"corpus": "x"})), (400, "RETRIEVAL_UNAVAILABLE")),
        (
            "4 before 5",
            ANN,
            with(with(plain("quick"), "provider", json!("nobody")), "idempotencyKey", json!("k")),
            (400, "IDEMPOTENCY_UNAVAILABLE"),
        ),
        ("5 before 16", CARL, with(plain("quick"), "provider", json!("nobody")), (400, "UNKNOWN_PROVIDER")),
        (
            "7 before 8",
            ANN,
            with(with(plain("quick"), "model", json!("none")), "retry", json!({"maxAttempts": 2})),
            (400, "UNSUPPORTED_CAPABILITY"),
        ),
        (
            "8 before 9",
            ANN,
            with(with(plain("quick"), "model", json!("none")), "requiredCapabilities", json!(["images"])),
            (400, "UNSUPPORTED_MODEL"),
        ),
        (
            "9 before 12",
            ANN,
            with(
                with(plain("quick"), "tools", json!(["nothing"])),
                "requiredCapabilities",
                json!(["images"]),
            ),
            (400, "UNSUPPORTED_CAPABILITY"),
        ),
        (
            "10 before 12",
            ANN,
            with(with(plain("quick"), "provider", json!("spare")), "tools", json!(["nothing"])),
            (400, "UNSUPPORTED_TOOLS"),
        ),
        (
            "11 before 12",
            ANN,
            with(plain("quick"), "tools", json!(["nothing", "nothing"])),
            (400, "INVALID_REQUEST"),
        ),
        (
            "12, application tools",
            ANN,
            with(
                plain("quick"),
                "applicationTools",
                json!([{"name": "a", "description": "b", "inputSchema": {}}]),
            ),
            (400, "APPLICATION_TOOLS_UNAVAILABLE"),
        ),
        ("12 before 13", ANN, with(reviewed("quick"), "tools", json!(["nothing"])), (400, "UNKNOWN_TOOL")),
        ("16, provider", ANN_ELSEWHERE, plain("quick"), (403, "FORBIDDEN")),
        ("16, tool", ANN_REVIEWER, with(plain("quick"), "tools", tools), (403, "FORBIDDEN")),
        ("16 before 18", CARL, reviewed("quick"), (403, "FORBIDDEN")),
        ("18", ANN, reviewed("quick"), (400, "APPROVAL_STREAM_REQUIRED")),
    ];
    for (name, token, body, (status, code)) in cases {
        assert_eq!(fixture.ask(&buffered(token, body)).await.outcome(), (status, code.to_owned()), "{name}");
    }
    // Row 17 stands between 16 and 18.
    let _running = fixture.waiting(BOB).await;
    let busy = fixture.ask(&buffered(ANN, reviewed("quick"))).await;
    assert_eq!(busy.outcome(), (429, "BUSY".into()), "17 before 18");
    assert_eq!(busy.json()["error"]["retryable"], true);
    let forbidden = fixture.ask(&buffered(CARL, reviewed("quick"))).await;
    assert_eq!(forbidden.outcome(), (403, "FORBIDDEN".into()), "16 before 17");
    let unknown = fixture.ask(&buffered(ANN, with(plain("quick"), "model", json!("none")))).await;
    assert_eq!(unknown.outcome(), (400, "UNSUPPORTED_MODEL".into()), "8 before 17");
}

// Contract 4.11, row 12, and 1.9: a host that has not opted in.
#[tokio::test]
async fn a_host_without_reviews_refuses_the_option_and_knows_no_approval() {
    let fixture = Fixture::without_approvals();
    let answer = fixture.ask(&run_ask(ANN, reviewed("quick"))).await;
    assert_eq!(answer.outcome(), (400, "APPROVAL_UNAVAILABLE".into()));
    let made_up = json!({
        "approvalId": "0b1d4d4e-0000-4000-8000-000000000000", "runId": "6f0c2d1e-0000-4000-8000-000000000000",
        "call": {"id": "call-1", "name": "write", "arguments": {}}, "decision": "approve",
    });
    assert_eq!(fixture.decide(ANN, &made_up).await.outcome(), (404, "APPROVAL_NOT_FOUND".into()));
    assert_eq!(fixture.decide(ANN, &json!({})).await.outcome(), (400, "INVALID_APPROVAL".into()));
}

// Contract 4.11, row 12, and 4.9: before any event.
#[tokio::test]
async fn a_host_can_refuse_to_pause_the_idle_clock() {
    let settings = ApprovalSettings { idle_pause: IdlePause::Refused, ..ApprovalSettings::default() };
    let fixture = Fixture::with(Concurrency::default(), |builder| builder.approvals(settings));
    let answer = fixture.ask(&run_ask(ANN, reviewed("quick"))).await;
    assert_eq!(answer.outcome(), (400, "APPROVAL_POLICY".into()));
    let mut body = reviewed("quick");
    body["approvals"]["idlePolicy"] = json!("continue");
    assert_eq!(fixture.ask(&run_ask(ANN, body)).await.head.status, 200);
}

// Design 4: what this version does not have is refused where it is asked for, and ignored where it is not.
#[tokio::test]
async fn additions_that_are_switched_off_are_refused() {
    let fixture = Fixture::new();
    for (name, value, status) in [
        ("digest", json!(true), 400),
        ("batch", json!(true), 400),
        ("onDeny", json!("continue"), 400),
        ("digest", json!(false), 200),
        ("onDeny", json!("fail"), 200),
    ] {
        let mut body = reviewed("quick");
        body["approvals"][name] = value;
        let answer = fixture.ask(&run_ask(ANN, body)).await;
        assert_eq!(answer.head.status, status, "{name}");
        if status == 400 {
            assert_eq!(answer.outcome().1, "APPROVAL_POLICY", "{name}");
        }
    }
}

// Contract 4.11, row 11: a hang-up frees the capacity of its review.
#[tokio::test]
async fn review_capacity_is_free_again_after_a_hang_up() {
    let limits = Limits { max_pending: 1, ..Limits::default() };
    let settings = ApprovalSettings { limits, ..ApprovalSettings::default() };
    let fixture = Fixture::with(Concurrency::default(), |builder| builder.approvals(settings));
    let (first, _) = fixture.waiting(ANN).await;
    let mut second = fixture.connect();
    second.start(&run_ask(BOB, reviewed("write"))).await;
    assert_eq!(second.rest().await.last().unwrap(), "run.failed APPROVAL_CAPACITY");
    drop(first);
    while fixture.driver.pending_approvals() > 0 {
        tokio::task::yield_now().await;
    }
    let (_third, _) = fixture.waiting(BOB).await;
}

// Contract 2.2.
#[tokio::test]
async fn a_buffered_run_answers_with_its_result_or_its_error() {
    let fixture = Fixture::new();
    let mut result = fixture.ask(&buffered(ANN, plain("quick"))).await.json();
    assert_eq!(result["runId"].take().as_str().unwrap().len(), 36);
    assert_eq!(
        result,
        json!({
            "runId": null, "provider": "mock", "model": "demo", "text": "Hello.", "usage": {}, "steps": 1,
            "finishReason": "stop",
        })
    );
    let failed = fixture.ask(&buffered(ANN, plain("broken"))).await;
    assert_eq!(failed.outcome(), (502, "PROVIDER_REFUSAL".into()));
    let gated = fixture.ask(&buffered(ANN, with(plain("write"), "tools", json!(["write"])))).await;
    assert_eq!(gated.outcome(), (403, "APPROVAL_REQUIRED".into()));
    assert!(fixture.written().is_empty(), "law 1: never without");
}

// Contract 8: 504 for a buffered run whose idle time ran out.
#[tokio::test(start_paused = true)]
async fn an_idle_buffered_run_times_out() {
    let fixture = Fixture::new();
    let answer = fixture.ask(&buffered(ANN, with(plain("slow"), "idleTimeoutMs", json!(50)))).await;
    assert_eq!(answer.outcome(), (504, "IDLE_TIMEOUT".into()));
    assert_eq!(answer.json()["error"]["retryable"], true);
}

// Contract 1.8: a plain search of the Accept header.
#[tokio::test]
async fn accept_selects_the_stream() {
    let fixture = Fixture::new();
    let cases: [(&[&str], &str); 7] = [
        (&[], "application/json; charset=utf-8"),
        (&["*/*"], "application/json; charset=utf-8"),
        (&["text/*"], "application/json; charset=utf-8"),
        (&["text/event-stream"], "text/event-stream; charset=utf-8"),
        (&["application/json, text/event-stream"], "text/event-stream; charset=utf-8"),
        (&["text/event-stream;q=0"], "text/event-stream; charset=utf-8"),
        (&["application/json", "text/event-stream"], "text/event-stream; charset=utf-8"),
    ];
    for (accepts, expected) in cases {
        let ask =
            accepts.iter().fold(buffered(ANN, plain("quick")), |ask, accept| ask.header("Accept", accept));
        assert_eq!(fixture.ask(&ask).await.head.one("content-type"), expected, "{accepts:?}");
    }
}

// Contract 1.8: exact bytes of frames, one event each, nothing after the terminal one.
#[tokio::test]
async fn frames_have_the_contracts_form() {
    let fixture = Fixture::new();
    let mut peer = fixture.connect();
    peer.start(&run_ask(ANN, plain("quick"))).await;
    let mut frames = Vec::new();
    while let Some(frame) = peer.frame().await {
        frames.push(frame);
    }
    for (index, frame) in frames.iter().enumerate() {
        let lines: Vec<_> = frame.split('\n').collect();
        let [id, event, data, "", ""] = lines[..] else { panic!("{frame:?}") };
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(id, format!("id: {}", index + 1));
        assert_eq!(event, format!("event: {}", data["type"].as_str().unwrap()));
        assert_eq!(data["sequence"], index + 1);
        assert!(!frame.contains('\r'));
    }
    assert!(frames.last().unwrap().contains("run.completed"));
}

// Contract 3.4, approve: over HTTP, with the effect exactly once.
#[tokio::test]
async fn an_approved_call_runs_once_with_the_reviewed_arguments() {
    let fixture = Fixture::new();
    let (mut run, approval) = fixture.waiting(ANN).await;
    assert!(fixture.written().is_empty(), "nothing runs before the decision");
    let answer = fixture.decide(ANN, &decision(&approval, "approve")).await;
    assert_eq!(answer.head.status, 200);
    let mut receipt = answer.json();
    assert!(receipt["decidedAt"].take().is_string());
    assert_eq!(
        receipt,
        json!({
            "approvalId": approval["approvalId"], "runId": approval["runId"], "callId": "call-1",
            "outcome": "approved", "decidedAt": null,
        })
    );
    assert_eq!(
        run.rest().await,
        ["approval.resolved", "tool.completed", "step.started", "text.delta", "run.completed"]
    );
    assert_eq!(fixture.written(), [r#"{"k":[1,2]}"#]);
    assert_eq!(
        fixture.sink.kinds(),
        [
            "approval.requested",
            "approval.resolved approved",
            "execution.started",
            "execution.finished completed"
        ]
    );
}

// Contract 6.4: held to the end of the exchange and free at once after it, so a client that just read its terminal
// event is never told BUSY.
#[tokio::test]
async fn a_slot_is_free_as_soon_as_the_terminal_event_can_be_read() {
    let fixture = Fixture::with_concurrency(1, 1);
    for _ in 0..50 {
        let mut peer = fixture.connect();
        assert_eq!(peer.start(&run_ask(ANN, plain("chatty"))).await.status, 200);
        peer.event_of("run.completed").await;
        assert_eq!(fixture.ask(&buffered(ANN, plain("quick"))).await.head.status, 200);
    }
}

// Scenario P5: waiting runs of one subject do not touch others. Contract 6.4: tokens of one subject share its slots.
#[tokio::test]
async fn subjects_have_their_own_slots_within_the_total() {
    let fixture = Fixture::with_concurrency(3, 2);
    let _first = fixture.waiting(ANN).await;
    let _second = fixture.waiting(ANN).await;
    assert_eq!(fixture.ask(&buffered(ANN_REVIEWER, plain("quick"))).await.outcome(), (429, "BUSY".into()));
    assert_eq!(fixture.ask(&buffered(BOB, plain("quick"))).await.head.status, 200);
    let _third = fixture.waiting(BOB).await;
    assert_eq!(
        fixture.ask(&buffered(BOB, plain("quick"))).await.outcome(),
        (429, "BUSY".into()),
        "the total"
    );
    // Nothing but runs takes a slot.
    for path in ["/v1/protocol", "/v1/providers"] {
        assert_eq!(fixture.ask(&Ask::get(path).token(ANN)).await.head.status, 200);
    }
}

// Scenario F13: an old client that does not know the option gets no approval event, and the run fails by name.
#[tokio::test]
async fn a_client_that_does_not_ask_for_reviews_sees_none() {
    let fixture = Fixture::new();
    let mut peer = fixture.connect();
    peer.start(&run_ask(ANN, with(plain("write"), "tools", json!(["write"])))).await;
    let kinds = peer.rest().await;
    assert_eq!(kinds.last().unwrap(), "run.failed APPROVAL_REQUIRED");
    assert!(!kinds.iter().any(|kind| kind.starts_with("approval.")), "{kinds:?}");
    assert!(fixture.written().is_empty());
}
