//! The contract's rows about streams that are in scope (10.2 "Measured", 10.3, 10.4), over a socket.

use countersign_approval_core::ids::ToolName;
use countersign_protocol::event::EventBody;
use countersign_protocol::request::{ApplicationTool, RunRequest};

use crate::events::*;
use crate::server::{Script, Server, Then, answer, event_stream};

/// What a client sees of these bytes as the body of a stream: the types of the events, and how it ended.
async fn play(request: &RunRequest, body: &[u8]) -> (Vec<&'static str>, String) {
    play_raw(request, event_stream(body)).await
}

async fn play_raw(request: &RunRequest, bytes: Vec<u8>) -> (Vec<&'static str>, String) {
    let server = Server::start(Script { bytes, then: Then::Close }).await;
    match server.client().stream(request).await {
        Ok(events) => {
            let (events, end) = follow(events).await;
            (events.iter().map(|event| event.type_name()).collect(), end)
        }
        Err(error) => (Vec::new(), code(&error)),
    }
}

async fn ends(request: &RunRequest, events: &[String]) -> String {
    play(request, framed(events, "\n").as_bytes()).await.1
}

/// 10.4, framing.
#[tokio::test]
async fn framing() {
    let plain = framed(&base(), "\n");
    // One event over two `data:` lines, cut where JSON allows a line feed.
    let multiline = framed(&base(), "\r\n").replace(r#","sequence""#, ",\r\ndata: \"sequence\"");
    let large = |count: usize| {
        let text = event(2, "text.delta", &format!(r#""text":"{}""#, "🌍".repeat(count)));
        framed(&[started(), text, completed(3)], "\n").into_bytes()
    };
    for (row, bytes, expected) in [
        ("crlf-and-multiline", multiline.into_bytes(), "ok"),
        ("carriage-return-lines", framed(&base(), "\r").into_bytes(), "ok"),
        ("utf8-bom", format!("\u{feff}{plain}").into_bytes(), "ok"),
        ("heartbeats", format!(": heartbeat\n\n{plain}").into_bytes(), "ok"),
        ("large-unicode-frame", large(70_000), "ok"),
        ("oversize-unicode-frame", large(500_001), "RESPONSE_TOO_LARGE"),
        ("empty-stream", Vec::new(), "INCOMPLETE_STREAM"),
        ("missing-terminal", framed(&base()[..2], "\n").into_bytes(), "INCOMPLETE_STREAM"),
        ("unterminated-frame", format!("data: {}", started()).into_bytes(), "INCOMPLETE_STREAM"),
        ("unterminated last frame", plain.trim_end().into(), "INCOMPLETE_STREAM"),
        ("invalid-json", b"data: {broken}\n\n".to_vec(), "INVALID_STREAM"),
        ("invalid-utf8", b"data: \xff\n\n".to_vec(), "INVALID_STREAM"),
        ("event-is-null", b"data: null\n\n".to_vec(), "INVALID_STREAM"),
    ] {
        let (types, end) = play(&hello(), &bytes).await;
        assert_eq!(end, expected, "{row}");
        if expected == "ok" {
            assert_eq!(types, ["run.started", "text.delta", "run.completed"], "{row}");
        }
    }
}

/// 10.2: the lines of a frame may sum to 2,000,000 bytes, and not to one more.
#[tokio::test]
async fn frame_bound() {
    for (size, expected) in [(2_000_000, "ok"), (2_000_001, "RESPONSE_TOO_LARGE")] {
        let data = format!("data: {}", started());
        // A comment's bytes count too.
        let comment = format!(":{}", "x".repeat(size - data.len() - 1));
        let body = format!("{comment}\n{data}\n\n{}", framed(&[delta(2), completed(3)], "\n"));
        assert_eq!(play(&hello(), body.as_bytes()).await.1, expected, "{size}");
    }
}

/// 10.3, the rows about streams, and the version header's rule of 10.2.
#[tokio::test]
async fn versioning() {
    let body = framed(&base(), "\n").replace(r#""type""#, r#""future":{"a":null},"type""#);
    for (row, version, expected) in [
        ("legacy-host", "", "ok"),
        ("current-host-additive-fields", "AgenticDriver-Version: 1.0\r\n", "ok"),
        ("incompatible-response-version", "AgenticDriver-Version: 2.0\r\n", "UNSUPPORTED_PROTOCOL_VERSION"),
        ("two in one", "AgenticDriver-Version: 1.0, 1.0\r\n", "UNSUPPORTED_PROTOCOL_VERSION"),
        ("empty", "AgenticDriver-Version:\r\n", "UNSUPPORTED_PROTOCOL_VERSION"),
        (
            "measured: two version headers",
            "AgenticDriver-Version: 1.0\r\nagenticdriver-version: 1.0\r\n",
            "UNSUPPORTED_PROTOCOL_VERSION",
        ),
    ] {
        let headers = format!("Content-Type: text/event-stream\r\n{version}");
        let (_, end) = play_raw(&hello(), answer("200 OK", &headers, body.as_bytes())).await;
        assert_eq!(end, expected, "{row}");
    }
    for (row, members, expected) in [
        ("future-optional-event", r#""optional":true"#, "ok"),
        ("future-required-event", "", "UNSUPPORTED_EVENT"),
        ("optional-is-not-truthy", r#""optional":false"#, "UNSUPPORTED_EVENT"),
        ("optional is a string", r#""optional":"true""#, "UNSUPPORTED_EVENT"),
    ] {
        let events = [started(), event(2, "provider.advisory", members), delta(3), completed(4)];
        let (types, end) = play(&hello(), framed(&events, "\n").as_bytes()).await;
        assert_eq!(end, expected, "{row}");
        if expected == "ok" {
            assert_eq!(types, ["run.started", "text.delta", "run.completed"], "{row}");
        }
    }
}

/// 10.4, envelope.
#[tokio::test]
async fn envelope() {
    for (row, events) in [
        ("missing-start", vec![changed(&delta(2), r#""sequence":2"#, r#""sequence":1"#), completed(2)]),
        ("duplicate-start", vec![started(), changed(&started(), r#""sequence":1"#, r#""sequence":2"#)]),
        ("sequence-gap", vec![started(), delta(3)]),
        ("changed-run", vec![started(), changed(&delta(2), RUN, OTHER_RUN)]),
        ("bad-timestamp", vec![changed(&started(), TIME, "yesterday")]),
        ("measured: lower-case t and z", vec![changed(&started(), TIME, "2026-09-20t12:00:00.000z")]),
        ("another provider", vec![changed(&started(), "mock", "other")]),
        ("another model", vec![changed(&started(), "demo", "other")]),
    ] {
        assert_eq!(ends(&hello(), &events).await, "INVALID_STREAM", "{row}");
    }
}

/// 10.4, payload, and the measured rows of 10.2 about payloads.
#[tokio::test]
async fn payload() {
    let result = |from: &str, to: &str| changed(&completed(2), from, to);
    let usage = |usage: &str| result(r#""usage":{}"#, &format!(r#""usage":{{{usage}}}"#));
    let failure = |outcome: &str| {
        let error = format!(
            r#""error":{{"code":"IDLE_TIMEOUT","message":"m","retryable":false,"outcome":{outcome}}}"#
        );
        event(2, "run.failed", &error)
    };
    for (row, second) in [
        ("missing-completed-result", event(2, "run.completed", "")),
        (
            "wrong-result-run",
            result(
                &format!(r#"{{"runId":"{RUN}","provider""#),
                &format!(r#"{{"runId":"{OTHER_RUN}","provider""#),
            ),
        ),
        ("wrong-result-model", result("demo", "other")),
        ("negative-usage", usage(r#""inputTokens":-1"#)),
        ("null-usage-count", usage(r#""inputTokens":null"#)),
        ("invalid-text-delta", event(2, "text.delta", r#""text":12"#)),
        ("failure-without-details", event(2, "run.failed", "")),
        ("invalid-finish-reason-type", result(r#""stop""#, "{}")),
        ("invalid-progress-phase-type", event(2, "run.progress", r#""phase":{}"#)),
        ("invalid-error-outcome", failure("{}")),
        ("null-error-outcome", failure("null")),
        ("api-equivalent-cost-negative", usage(r#""apiEquivalentCostUsd":-1"#)),
        ("api-equivalent-cost-null", usage(r#""apiEquivalentCostUsd":null"#)),
        ("api-equivalent-cost-boolean", usage(r#""apiEquivalentCostUsd":true"#)),
        ("measured: steps 1.0", result(r#""steps":1"#, r#""steps":1.0"#)),
        ("measured: session null", result(r#""steps":1"#, r#""steps":1,"session":null"#)),
        ("measured: a numeric text member", event(2, "step.started", r#""step":1,"text":1"#)),
    ] {
        assert_eq!(ends(&hello(), &[started(), second]).await, "INVALID_STREAM", "{row}");
    }
    let with_null = result(r#""steps":1"#, r#""steps":1,"output":null"#);
    assert_eq!(ends(&hello(), &[started(), with_null]).await, "ok", "measured: output null");
}

/// 10.4, `future-terminal-error` and the admission rows: the run's own error is its last event, with its own code.
#[tokio::test]
async fn terminal_errors_pass_through() {
    for wanted in [
        "FUTURE_PROVIDER_CONDITION",
        "QUEUE_FULL",
        "ADMISSION_IDENTITY_REQUIRED",
        "RESOURCE_LIMIT",
        "RESOURCE_USAGE_UNKNOWN",
        "RESOURCE_ADMISSION_DENIED",
        "RESOURCE_POLICY_UNAVAILABLE",
    ] {
        let error = format!(r#""error":{{"code":"{wanted}","message":"m","retryable":true}}"#);
        let body = event_stream(framed(&[started(), event(2, "run.failed", &error)], "\n").as_bytes());
        let server = Server::start(Script { bytes: body, then: Then::Close }).await;
        let (events, end) = follow(server.client().stream(&hello()).await.unwrap()).await;
        assert_eq!(end, "ok");
        let EventBody::RunFailed { error } = &events.last().unwrap().body else { panic!("{events:?}") };
        assert_eq!((error.code.as_str(), error.retryable), (wanted, true));
    }
}

/// 10.4, approval, and the measured rows of 10.2 about approvals.
#[tokio::test]
async fn approvals() {
    let (types, end) = play(&reviewed(), framed(&review(), "\n").as_bytes()).await;
    assert_eq!(end, "ok", "approval-valid");
    assert_eq!(types, ["run.started", "approval.requested", "approval.resolved", "run.completed"]);
    let run_of = |run: &str| format!(r#""approvalId":"{APPROVAL}","runId":"{run}""#);
    for (row, at, from, to) in [
        ("approval-request-run-mismatch", 1, run_of(RUN), run_of(OTHER_RUN)),
        ("approval-resolution-run-mismatch", 2, run_of(RUN), run_of(OTHER_RUN)),
        ("approval-invalid-idle-policy", 1, r#""pause""#.into(), r#""continue""#.into()),
        ("approval-invalid-call-arguments", 1, r#"{"k":[1,2]}"#.into(), "[]".into()),
        ("approval-invalid-tool-name", 1, r#""write""#.into(), r#""wri te""#.into()),
        ("approval-null-expiry", 1, r#""idlePolicy""#.into(), r#""expiresAt":null,"idlePolicy""#.into()),
        ("approval-invalid-expiry", 1, r#""idlePolicy""#.into(), r#""expiresAt":"soon","idlePolicy""#.into()),
        ("approval-invalid-outcome", 2, r#""approved""#.into(), r#""maybe""#.into()),
        (
            "approval-invalid-decided-at",
            2,
            format!(r#""decidedAt":"{TIME}""#),
            r#""decidedAt":"2026-02-30T12:00:01Z""#.into(),
        ),
        ("approval-empty-approval-id", 1, APPROVAL.into(), String::new()),
        // Law 3: a value that the reviewer could not send back exactly never reaches him.
        ("arguments that cannot be carried exactly", 1, "[1,2]".into(), "[9007199254740993]".into()),
    ] {
        let mut events = review();
        events[at] = changed(&events[at], &from, &to);
        assert_eq!(ends(&reviewed(), &events).await, "INVALID_STREAM", "{row}");
    }
}

/// 10.4, executor; `executor-unnegotiated` is below.
#[tokio::test]
async fn executions() {
    let pick = ApplicationTool::new("pick", "Picks.", r#"{"type":"object"}"#).unwrap();
    let names = ["pick", "write"].map(|name| ToolName::parse(name).unwrap());
    let request = RunRequest { tools: names.into(), application_tools: vec![pick], ..hello() };
    let run = || vec![started(), execution(2, EXECUTION, "c1"), completed(3)];
    assert_eq!(ends(&request, &run()).await, "ok", "executor-valid");
    let run_of = |run: &str| format!(r#""{EXECUTION}","runId":"{run}""#);
    for (row, from, to) in [
        ("executor-run-mismatch", run_of(RUN), run_of(OTHER_RUN)),
        ("executor-empty-id", EXECUTION.into(), String::new()),
        ("executor-long-id", EXECUTION.into(), "e".repeat(257)),
        ("executor-invalid-name", r#""pick""#.into(), r#""pi ck""#.into()),
        ("executor-unknown-tool", r#""pick""#.into(), r#""other""#.into()),
        ("executor-invalid-arguments", r#"{"k":[1,2]}"#.into(), "[]".into()),
        ("executor-empty-call-id", r#""c1""#.into(), r#""""#.into()),
    ] {
        let mut events = run();
        events[1] = changed(&events[1], &from, &to);
        assert_eq!(ends(&request, &events).await, "INVALID_STREAM", "{row}");
    }
    for (row, second) in [
        ("executor-duplicate-id", execution(3, EXECUTION, "c2")),
        ("executor-duplicate-call", execution(3, OTHER_RUN, "c1")),
        ("executor-duplicate-exact", execution(3, EXECUTION, "c1")),
    ] {
        let events = [started(), execution(2, EXECUTION, "c1"), second, completed(4)];
        assert_eq!(ends(&request, &events).await, "INVALID_STREAM", "{row}");
    }
    let unselected = RunRequest { tools: vec![ToolName::parse("write").unwrap()], ..request };
    assert_eq!(ends(&unselected, &run()).await, "INVALID_STREAM", "executor-unselected");
}

/// 10.4, `approval-unnegotiated`, and scenario F13: what was not asked for is refused loudly, whatever it says of
/// itself.
#[tokio::test]
async fn what_was_not_negotiated_is_refused() {
    let optional = changed(&requested(), r#""type""#, r#""optional":true,"type""#);
    let execution = event(2, "tool.execution.requested", r#""execution":{},"optional":true"#);
    for (row, request, second) in [
        ("approval-unnegotiated", hello(), requested()),
        ("approval-unnegotiated, optional", hello(), optional),
        ("executor-unnegotiated", reviewed(), execution),
    ] {
        assert_eq!(ends(&request, &[started(), second]).await, "UNSUPPORTED_EVENT", "{row}");
    }
}

/// 10.4, transport, `wrong-content-type`; parameters are allowed (10.2).
#[tokio::test]
async fn content_type() {
    let body = framed(&base(), "\n");
    for (headers, expected) in [
        ("Content-Type: application/json\r\n", "INVALID_RESPONSE"),
        ("Content-Type: text/event-streams\r\n", "INVALID_RESPONSE"),
        ("", "INVALID_RESPONSE"),
        ("Content-Type: text/event-stream\r\nContent-Type: text/html\r\n", "INVALID_RESPONSE"),
        ("Content-Type: Text/Event-Stream ; charset=utf-8\r\n", "ok"),
    ] {
        let (_, end) = play_raw(&hello(), answer("200 OK", headers, body.as_bytes())).await;
        assert_eq!(end, expected, "{headers}");
    }
}
