//! Application tools over HTTP (contract 7.6, 2.1 rows 12 to 18, 1.9, 6.4).

use countersign_driver::{ApplicationToolSettings, Review};
use countersign_host::Concurrency;
use serde_json::{Value, json};
use tokio::io::DuplexStream;

use crate::support::{
    ANN, ANN_ELSEWHERE, ANN_REVIEWER, ANN_RUNNER, Answer, Ask, BOB, CARL, Fixture, Peer, decision, plain,
    run_ask,
};

const AUTOMATIC: ApplicationToolSettings =
    ApplicationToolSettings { review: Review::NotRequired, max_pending: 1_000 };
const UNKNOWN: &str = "0b1d4d4e-0000-4000-8000-000000000000";

fn fixture(settings: ApplicationToolSettings) -> Fixture {
    Fixture::with(Concurrency::default(), |builder| builder.application_tools(settings))
}

/// A run whose application picks; no reviews.
fn picks() -> Value {
    let definition = json!({
        "name": "pick", "description": "Picks.", "inputSchema": {"type": "object"},
        "outputSchema": {"type": "string"},
    });
    let mut body = plain("pick");
    body["tools"] = json!(["pick"]);
    body["applicationTools"] = json!([definition]);
    body
}

fn with_reviews(mut body: Value) -> Value {
    body["approvals"] = json!({"mode": "interactive", "idlePolicy": "pause"});
    body
}

fn put(mut body: Value, pointer: &str, value: Value) -> Value {
    *body.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
    body
}

/// A run whose application was asked: its connection, and the identity to report under.
async fn asked(fixture: &Fixture, token: &str) -> (Peer<DuplexStream>, Value) {
    let mut peer = fixture.connect();
    let head = peer.start(&run_ask(token, picks())).await;
    assert_eq!(head.status, 200);
    let execution = peer.event_of("tool.execution.requested").await["execution"].take();
    let identity = json!({
        "executionId": execution["executionId"], "runId": execution["runId"],
        "callId": execution["call"]["id"],
    });
    (peer, identity)
}

fn with(identity: &Value, name: &str, value: Value) -> Value {
    let mut body = identity.clone();
    body[name] = value;
    body
}

async fn result(fixture: &Fixture, token: &str, body: &Value) -> Answer {
    fixture.ask(&Ask::post("/v1/tool-executions/results").token(token).json(body)).await
}

async fn progress(fixture: &Fixture, token: &str, body: &Value) -> Answer {
    fixture.ask(&Ask::post("/v1/tool-executions/progress").token(token).json(body)).await
}

// Contract 7.6, 3.4; 1.6: the feature is there if the switch is on.
#[tokio::test]
async fn an_application_executes_from_end_to_end() {
    let fixture = fixture(AUTOMATIC);
    let protocol = fixture.ask(&Ask::get("/v1/protocol").token(ANN)).await.json();
    assert_eq!(protocol["features"][1], "application-tools");
    let mut peer = fixture.connect();
    let _ = peer.start(&run_ask(ANN, picks())).await;
    let event = peer.event_of("tool.execution.requested").await;
    let execution = &event["execution"];
    assert_eq!(execution["runId"], event["runId"]);
    assert_eq!(execution["call"], json!({"id": "call-1", "name": "pick", "arguments": {"k": [1, 2]}}));
    let identity = json!({
        "executionId": execution["executionId"], "runId": execution["runId"], "callId": "call-1",
    });
    let answer = progress(&fixture, ANN, &identity).await;
    assert_eq!(answer.head.status, 200);
    assert_eq!(answer.json(), with(&identity, "status", json!("progress")));
    let answer = result(&fixture, ANN, &with(&identity, "output", json!("teal"))).await;
    assert_eq!(answer.head.status, 200);
    assert_eq!(answer.json(), with(&identity, "status", json!("accepted")));
    let tail = peer.rest().await;
    assert_eq!(
        tail,
        ["run.progress", "tool.completed", "step.started", "text.delta", "run.completed"],
        "the progress was shown once"
    );
    let again = result(&fixture, ANN, &with(&identity, "output", json!("teal"))).await;
    assert_eq!(again.outcome(), (404, "TOOL_EXECUTION_NOT_FOUND".into()), "single use");
}

// Contract 7.6: reviewed unless the host and the token both opt out; approved is not yet executed.
#[tokio::test]
async fn who_asks_for_a_review() {
    let host_asks = ApplicationToolSettings::default();
    for (settings, token, definition, reviewed) in [
        (AUTOMATIC, ANN, None, false),
        (AUTOMATIC, ANN, Some(false), false),
        (AUTOMATIC, ANN, Some(true), true),
        (AUTOMATIC, ANN_REVIEWER, Some(false), true),
        (host_asks, ANN, Some(false), true),
        (host_asks, ANN_REVIEWER, None, true),
    ] {
        let fixture = fixture(settings);
        let mut body = with_reviews(picks());
        if let Some(definition) = definition {
            body["applicationTools"][0]["requiresApproval"] = json!(definition);
        }
        let mut peer = fixture.connect();
        let _ = peer.start(&run_ask(token, body)).await;
        let called = peer.event_of("tool.called").await;
        let mut event = peer.event().await.unwrap();
        assert_eq!(event["type"] == "approval.requested", reviewed, "{event}");
        if reviewed {
            assert_eq!(event["approval"]["call"], called["call"]);
            let approval = event["approval"].take();
            assert_eq!(fixture.decide(ANN, &decision(&approval, "approve")).await.head.status, 200);
            assert_eq!(peer.event().await.unwrap()["type"], "approval.resolved");
            event = peer.event().await.unwrap();
        }
        assert_eq!(event["type"], "tool.execution.requested", "{event}");
        assert_eq!(event["execution"]["call"], called["call"]);
    }
}

// Contract 2.1, rows 12, 16 and 18, with their status.
#[tokio::test]
async fn the_order_of_checks_on_a_request() {
    let fixture =
        Fixture::with(Concurrency { total: 1, per_subject: 1, ..Concurrency::default() }, |builder| {
            builder.application_tools(AUTOMATIC)
        });
    let twice = {
        let mut body = picks();
        let again = body["applicationTools"][0].clone();
        body["applicationTools"].as_array_mut().unwrap().push(again);
        body
    };
    let large = json!({"title": "x".repeat(128_000)});
    let remote = json!({"$ref": "https://schemas.example/a"});
    let cases = [
        ("1", ANN, put(picks(), "/applicationTools/0/description", json!("")), (400, "INVALID_REQUEST")),
        (
            "11 before 12",
            ANN,
            put(twice.clone(), "/tools", json!(["pick", "pick"])),
            (400, "INVALID_REQUEST"),
        ),
        ("defined twice", ANN, twice, (409, "TOOL_DEFINITION_CONFLICT")),
        (
            "of the host",
            ANN,
            put(put(picks(), "/applicationTools/0/name", json!("write")), "/tools", json!(["write"])),
            (409, "TOOL_DEFINITION_CONFLICT"),
        ),
        ("not selected", ANN, put(picks(), "/tools", json!(["lookup"])), (400, "INVALID_REQUEST")),
        (
            "too large",
            ANN,
            put(picks(), "/applicationTools/0/inputSchema", large),
            (400, "TOOL_DEFINITION_LIMIT"),
        ),
        (
            "no schema",
            ANN,
            put(picks(), "/applicationTools/0/inputSchema", json!({"type": 7})),
            (400, "INVALID_SCHEMA"),
        ),
        ("remote", ANN, put(picks(), "/applicationTools/0/outputSchema", remote), (400, "INVALID_SCHEMA")),
        ("unknown", ANN, put(picks(), "/tools", json!(["pick", "nobody"])), (400, "UNKNOWN_TOOL")),
        // The tools that a token may select are the host's; application tools are granted apart.
        ("16, no grant", ANN_RUNNER, picks(), (403, "FORBIDDEN")),
        ("16, no provider", ANN_ELSEWHERE, picks(), (403, "FORBIDDEN")),
        ("16 before 18", CARL, with_reviews(picks()), (403, "FORBIDDEN")),
        ("18", ANN, picks(), (400, "TOOL_STREAM_REQUIRED")),
        ("18, application tools first", ANN, with_reviews(picks()), (400, "TOOL_STREAM_REQUIRED")),
    ];
    let buffered = |token: &str, body: &Value| Ask::post("/v1/runs").token(token).json(body);
    for (name, token, body, (status, code)) in cases {
        assert_eq!(fixture.ask(&buffered(token, &body)).await.outcome(), (status, code.to_owned()), "{name}");
    }
    // Row 17 stands between; and 6.4: a full host takes reports.
    let (mut peer, identity) = asked(&fixture, BOB).await;
    let busy = fixture.ask(&buffered(ANN, &picks())).await;
    assert_eq!(busy.outcome(), (429, "BUSY".into()), "17 before 18");
    assert_eq!(progress(&fixture, BOB, &identity).await.head.status, 200);
    assert_eq!(result(&fixture, BOB, &with(&identity, "output", json!("x"))).await.head.status, 200);
    assert_eq!(peer.rest().await.last().unwrap(), "run.completed");
}

// Contract 7.6, the order of the checks on a report. A refused one changes nothing.
#[tokio::test]
async fn refused_reports_leave_the_execution_open() {
    let fixture = fixture(AUTOMATIC);
    let (mut peer, identity) = asked(&fixture, ANN).await;
    let good = with(&identity, "output", json!("teal"));
    let other_call = with(&good, "callId", json!("call-2"));
    let cases = [
        ("subject", ANN, with(&good, "subject", json!("ann")), (400, "INVALID_TOOL_EXECUTION")),
        ("grants", ANN, with(&good, "applicationTools", json!([])), (400, "INVALID_TOOL_EXECUTION")),
        (
            "both",
            ANN,
            with(&good, "error", json!("APPLICATION_TOOL_FAILED")),
            (400, "INVALID_TOOL_EXECUTION"),
        ),
        ("neither", ANN, identity.clone(), (400, "INVALID_TOOL_EXECUTION")),
        // Contract 4.6: at any depth.
        (
            "__proto__",
            ANN,
            with(&identity, "output", json!([{"__proto__": 1}])),
            (400, "INVALID_TOOL_EXECUTION"),
        ),
        ("unknown", ANN, with(&other_call, "executionId", json!(UNKNOWN)), (404, "TOOL_EXECUTION_NOT_FOUND")),
        ("other subject", BOB, good.clone(), (404, "TOOL_EXECUTION_NOT_FOUND")),
        ("subject without grants", CARL, other_call.clone(), (404, "TOOL_EXECUTION_NOT_FOUND")),
        ("no provider, before the mismatch", ANN_ELSEWHERE, other_call.clone(), (403, "FORBIDDEN")),
        ("no tool, before the mismatch", ANN_RUNNER, other_call.clone(), (403, "FORBIDDEN")),
        ("call", ANN, other_call, (409, "TOOL_EXECUTION_MISMATCH")),
        (
            "run, before the size",
            ANN,
            with(&with(&good, "runId", json!(UNKNOWN)), "output", json!("x".repeat(128_001))),
            (409, "TOOL_EXECUTION_MISMATCH"),
        ),
    ];
    for (name, token, body, (status, code)) in cases {
        let answer = result(&fixture, token, &body).await;
        assert_eq!(answer.outcome(), (status, code.to_owned()), "{name}");
        assert!(answer.json()["error"]["outcome"].is_null(), "{name}");
    }
    // Contract 1.2, steps 10 and 12: what cannot be read is not looked at.
    let raw = |text: String| Ask::post("/v1/tool-executions/results").token(ANN).text(&text);
    for (body, expected) in [
        ("{".to_owned(), (400, "INVALID_REQUEST".to_owned())),
        (good.to_string().replace(r#""teal""#, r#"{"a":1,"a":2}"#), (400, "INVALID_REQUEST".to_owned())),
        (with(&good, "output", json!("x".repeat(1_000_000))).to_string(), (413, "BODY_TOO_LARGE".to_owned())),
    ] {
        assert_eq!(fixture.ask(&raw(body)).await.outcome(), expected);
    }
    // Another token of the same subject, with the grant, may report what this one started.
    assert_eq!(result(&fixture, ANN_REVIEWER, &good).await.head.status, 200);
    assert_eq!(peer.rest().await.last().unwrap(), "run.completed");
}

// Law 4: to Bob, Ann's execution and none are the same bytes.
#[tokio::test]
async fn anothers_execution_and_an_unknown_one_are_the_same_answer() {
    let fixture = fixture(AUTOMATIC);
    let (_peer, anns) = asked(&fixture, ANN).await;
    let none = with(&anns, "executionId", json!(UNKNOWN));
    let mut answers = Vec::new();
    for identity in [&anns, &none] {
        let ask = |path: &str, body: &Value| Ask::post(path).token(BOB).json(body);
        for ask in [
            ask("/v1/tool-executions/progress", identity),
            ask("/v1/tool-executions/results", &with(identity, "output", json!("x".repeat(200_000)))),
            ask("/v1/tool-executions/results", &with(identity, "error", json!("APPLICATION_TOOL_FAILED"))),
        ] {
            let answer = fixture.ask(&ask).await.undated();
            answers.push((answer.head.status, answer.head.headers.clone(), answer.body.clone()));
        }
    }
    assert_eq!(answers[0].0, 404);
    for answer in &answers[1..] {
        assert_eq!(*answer, answers[0]);
    }
}

// Contract 7.6 and 5.4: such an end is taken, said to be uncertain to both, and final.
#[tokio::test]
async fn unusable_ends_are_uncertain() {
    for (member, value, expected) in [
        ("output", json!("x".repeat(127_998)), (200, "")),
        ("output", json!("x".repeat(127_999)), (400, "TOOL_OUTPUT_LIMIT")),
        ("output", json!(7), (400, "INVALID_TOOL_OUTPUT")),
        ("error", json!("APPLICATION_TOOL_FAILED"), (200, "")),
    ] {
        let fixture = fixture(AUTOMATIC);
        let (mut peer, identity) = asked(&fixture, ANN).await;
        let answer = result(&fixture, ANN, &with(&identity, member, value)).await;
        assert_eq!(answer.outcome(), (expected.0, expected.1.to_owned()));
        if expected.0 == 400 {
            assert_eq!(answer.json()["error"]["outcome"], "uncertain");
            assert_eq!(answer.json()["error"]["retryable"], false);
        }
        let later = result(&fixture, ANN, &with(&identity, "output", json!("teal"))).await;
        assert_eq!(later.outcome(), (404, "TOOL_EXECUTION_NOT_FOUND".into()));
        if (member, expected.0) == ("output", 200) {
            assert_eq!(peer.rest().await.last().unwrap(), "run.completed");
            continue;
        }
        let error = peer.event_of("run.failed").await["error"].take();
        assert_eq!(
            (error["code"].as_str(), error["outcome"].as_str(), error["retryable"].as_bool()),
            (Some("TOOL_OUTCOME_UNCERTAIN"), Some("uncertain"), Some(false))
        );
    }
}

// Law 5: a hang-up ends the execution and frees its capacity; so does closing the host.
#[tokio::test]
async fn hanging_up_and_closing_end_an_execution() {
    let fixture = fixture(ApplicationToolSettings { max_pending: 1, ..AUTOMATIC });
    let (peer, identity) = asked(&fixture, ANN).await;
    let mut second = fixture.connect();
    let _ = second.start(&run_ask(BOB, picks())).await;
    let error = second.event_of("run.failed").await["error"].take();
    assert_eq!(
        (error["code"].as_str(), error["retryable"].as_bool()),
        (Some("TOOL_EXECUTOR_CAPACITY"), Some(true))
    );
    drop(peer);
    while fixture.driver.pending_executions() > 0 {
        tokio::task::yield_now().await;
    }
    let late = result(&fixture, ANN, &with(&identity, "output", json!("teal"))).await;
    assert_eq!(late.outcome(), (404, "TOOL_EXECUTION_NOT_FOUND".into()));
    let (mut peer, identity) = asked(&fixture, BOB).await;
    let closing = tokio::spawn({
        let service = fixture.service.clone();
        async move { service.close().await }
    });
    let error = peer.event_of("run.cancelled").await["error"].take();
    assert_eq!((error["code"].as_str(), error["outcome"].as_str()), (Some("CANCELLED"), Some("uncertain")));
    closing.await.unwrap();
    assert_eq!(fixture.driver.pending_executions(), 0);
    let report = serde_json::from_value::<Value>(identity).unwrap().to_string();
    let identity = countersign_protocol::tool_execution::ExecutionIdentity::parse(&report).unwrap();
    let bob = countersign_approval_core::grants::Principal {
        subject: countersign_approval_core::ids::Subject::parse("bob").unwrap(),
        grants: countersign_approval_core::grants::Grants::all(),
    };
    assert_eq!(
        fixture.driver.report_progress(&identity, &bob).unwrap_err().code.as_str(),
        "TOOL_EXECUTION_NOT_FOUND"
    );
}
