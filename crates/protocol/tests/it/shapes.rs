//! Every shape as it stands on the wire (contract 2.2, 3.3, 4.2), and what was written is read back as it was
//! (scenario E7).

use std::sync::Arc;

use countersign_approval_core::ids::ExecutionId;
use countersign_approval_core::json::Exact;
use countersign_approval_core::review::Outcome;
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::event::{
    Decoded, Event, EventBody, FinishReason, Phase, RunResult, ToolExecution, Usage,
};
use countersign_protocol::sse::{HEARTBEAT, encode_frame};
use countersign_protocol::stream::Expectation;
use countersign_protocol::tool_execution::{ExecutionIdentity, ExecutionResult, ReportStatus};
use expect_test::{Expect, expect};

use crate::support::*;

#[track_caller]
fn check(body: EventBody, expected: Expect) {
    let event = event(6, body);
    let text = event.to_json();
    let payload = text
        .strip_prefix(&format!(
            r#"{{"type":"{}","runId":"{RUN}","sequence":6,"timestamp":"2026-01-02T03:04:05.678Z","#,
            event.type_name()
        ))
        .expect("the envelope comes first, in the contract's order");
    expected.assert_eq(payload);
    assert!(!text.contains(['\n', '\r']), "an event is one line");
    let back = Event::decode(&text, &Expectation::own_log()).unwrap();
    assert_eq!(back, Decoded::Event(event));
    let Decoded::Event(back) = back else { panic!() };
    assert_eq!(back.to_json(), text, "byte for byte");
}

#[test]
fn run_events() {
    check(
        EventBody::RunStarted { provider: provider(), model: model() },
        expect![[r#""provider":"mock","model":"demo"}"#]],
    );
    check(EventBody::StepStarted { step: 1 }, expect![[r#""step":1}"#]]);
    check(
        EventBody::TextDelta { text: "a\nb\r\"\\\u{0}\u{2028}🌍".to_owned() },
        expect![[r#""text":"a\nb\r\"\\\u0000 🌍"}"#]],
    );
    check(EventBody::RunProgress { phase: Phase::Context }, expect![[r#""phase":"context"}"#]]);
    check(
        EventBody::RunFailed { error: ErrorInfo::new(Code::APPROVAL_DENIED) },
        expect![[
            r#""error":{"code":"APPROVAL_DENIED","message":"A person refused the call.","retryable":false}}"#
        ]],
    );
    check(
        EventBody::RunCancelled { error: ErrorInfo::new(Code::CANCELLED).uncertain() },
        expect![[
            r#""error":{"code":"CANCELLED","message":"The run was cancelled.","retryable":false,"outcome":"uncertain"}}"#
        ]],
    );
}

/// Counts have no decimal point, unknown is absent (contract 2.2, 3.1).
#[test]
fn usage_and_results() {
    check(
        EventBody::UsageReported { step: 2, usage: Usage::default() },
        expect![[r#""step":2,"usage":{}}"#]],
    );
    let usage = Usage {
        input_tokens: Some(9_007_199_254_740_991),
        output_tokens: Some(0),
        cached_input_tokens: Some(1),
        reasoning_tokens: Some(2),
        cost_usd: Some(0.25),
        api_equivalent_cost_usd: Some(1.0),
    };
    check(
        EventBody::UsageReported { step: 2, usage },
        expect![[
            r#""step":2,"usage":{"inputTokens":9007199254740991,"outputTokens":0,"cachedInputTokens":1,"reasoningTokens":2,"costUsd":0.25,"apiEquivalentCostUsd":1.0}}"#
        ]],
    );
    let result = RunResult {
        run_id: run(),
        provider: provider(),
        model: model(),
        text: "done".to_owned(),
        usage,
        steps: 2,
        finish_reason: FinishReason::Length,
        output: Some(output("[1.0,null]")),
    };
    check(
        EventBody::RunCompleted { result: Box::new(result) },
        expect![[
            r#""result":{"runId":"6f0c2d1e-5a4b-4c3d-8e2f-0123456789ab","provider":"mock","model":"demo","text":"done","usage":{"inputTokens":9007199254740991,"outputTokens":0,"cachedInputTokens":1,"reasoningTokens":2,"costUsd":0.25,"apiEquivalentCostUsd":1.0},"steps":2,"finishReason":"length","output":[1.0,null]}}"#
        ]],
    );
}

/// Costs are read to the nearest double, whatever features serde_json was built with (law 3).
#[test]
fn costs_survive_the_wire() {
    let usage = Usage { cost_usd: Some(98_316_503.085_308_39), ..Usage::default() };
    let text = serde_json::to_string(&usage).unwrap();
    assert_eq!(countersign_protocol::decode::<Usage>(&text).unwrap(), usage);
    for refused in ["-0.01", "1e400", "\"1\"", "null", "true", "[1]"] {
        assert!(
            countersign_protocol::decode::<Usage>(&format!(r#"{{"costUsd":{refused}}}"#)).is_err(),
            "{refused}"
        );
    }
}

/// An amount that the protocol cannot carry is not known to a reader; it is never null, rounded or cut (law 3).
#[test]
fn amounts_that_cannot_be_carried_are_left_out() {
    for cost in [f64::NAN, f64::INFINITY, -1.0] {
        let usage = Usage { input_tokens: Some(1 << 53), cost_usd: Some(cost), ..Usage::default() };
        assert_eq!(serde_json::to_string(&usage).unwrap(), "{}");
    }
}

/// Arguments and outputs are sent in the author's own tokens (design 3).
#[test]
fn calls() {
    check(
        EventBody::ToolCalled { call: call(r#"{ "b": 1.0, "a": [1e0, "\u0041"] }"#) },
        expect![[r#""call":{"id":"call-1","name":"write","arguments":{"b":1.0,"a":[1e0,"\u0041"]}}}"#]],
    );
    check(
        EventBody::ToolCompleted { call_id: call_id(), output: output("9007199254740993") },
        expect![[r#""callId":"call-1","output":9007199254740993}"#]],
    );
    check(
        EventBody::ToolCompleted { call_id: call_id(), output: output("null") },
        expect![[r#""callId":"call-1","output":null}"#]],
    );
}

/// Contract 7.6.
#[test]
fn executions() {
    let execution = ToolExecution {
        execution_id: ExecutionId::parse(EXECUTION).unwrap(),
        run_id: run(),
        call: call(r#"{ "n": 1.0 }"#),
    };
    let report = ExecutionResult::output(&execution, output("[1e2]"));
    let ids = r#""executionId":"0e1d2c3e-5a4b-4c3d-8e2f-0123456789ab","runId":"6f0c2d1e-5a4b-4c3d-8e2f-0123456789ab","callId":"call-1""#;
    assert_eq!(serde_json::to_string(&report).unwrap(), format!(r#"{{{ids},"output":[1e2]}}"#));
    assert_eq!(ExecutionResult::parse(&serde_json::to_string(&report).unwrap()).unwrap(), report);
    let failed = ExecutionResult::failed(&execution);
    let text = serde_json::to_string(&failed).unwrap();
    assert_eq!(text, format!(r#"{{{ids},"error":"APPLICATION_TOOL_FAILED"}}"#));
    assert_eq!(ExecutionResult::parse(&text).unwrap(), failed);
    for (status, word) in [(ReportStatus::Accepted, "accepted"), (ReportStatus::Progress, "progress")] {
        let receipt = failed.identity.receipt(status);
        let text = format!(r#"{{{ids},"status":"{word}"}}"#);
        assert_eq!(serde_json::to_string(&receipt).unwrap(), text);
    }
    check(
        EventBody::ToolExecutionRequested { execution },
        expect![[
            r#""execution":{"executionId":"0e1d2c3e-5a4b-4c3d-8e2f-0123456789ab","runId":"6f0c2d1e-5a4b-4c3d-8e2f-0123456789ab","call":{"id":"call-1","name":"write","arguments":{"n":1.0}}}}"#
        ]],
    );
}

/// Contract 7.6, strict bodies, and what each refusal is called (1.2, 4.6).
#[test]
fn reports() {
    let ids = r#""executionId":"e","runId":"r","callId":"c""#;
    let long = "x".repeat(257);
    let nested = |depth: usize| format!(r#"{{{ids},"output":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    for (body, expected) in [
        (format!(r#"{{{ids},"output":null}}"#), "ok"),
        (format!(r#"{{{ids},"output":9007199254740993}}"#), "ok"),
        (format!(r#"{{{ids},"error":"APPLICATION_TOOL_FAILED"}}"#), "ok"),
        (format!(r#"{{{ids}}}"#), "INVALID_TOOL_EXECUTION"),
        (format!(r#"{{{ids},"error":"OTHER"}}"#), "INVALID_TOOL_EXECUTION"),
        (format!(r#"{{{ids},"error":null}}"#), "INVALID_TOOL_EXECUTION"),
        (format!(r#"{{{ids},"output":1,"error":"APPLICATION_TOOL_FAILED"}}"#), "INVALID_TOOL_EXECUTION"),
        (format!(r#"{{{ids},"output":1,"subject":"root"}}"#), "INVALID_TOOL_EXECUTION"),
        (format!(r#"{{{ids},"output":{{"a":[{{"__proto__":1}}]}}}}"#), "INVALID_TOOL_EXECUTION"),
        (nested(64), "ok"),
        (nested(65), "INVALID_TOOL_EXECUTION"),
        (nested(9_999), "INVALID_TOOL_EXECUTION"),
        (r#"{"executionId":"e","runId":"r","output":1}"#.into(), "INVALID_TOOL_EXECUTION"),
        (r#"{"executionId":"","runId":"r","callId":"c","output":1}"#.into(), "INVALID_TOOL_EXECUTION"),
        (
            format!(r#"{{"executionId":"e","runId":"r","callId":"{long}","output":1}}"#),
            "INVALID_TOOL_EXECUTION",
        ),
        (format!(r#"{{"executionId":"e","runId":"r","callId":"{}","output":1}}"#, &long[1..]), "ok"),
        (r#"{"executionId":"e","runId":7,"callId":"c","output":1}"#.into(), "INVALID_TOOL_EXECUTION"),
        ("[]".into(), "INVALID_TOOL_EXECUTION"),
        ("null".into(), "INVALID_TOOL_EXECUTION"),
        ("{".into(), "INVALID_REQUEST"),
        (String::new(), "INVALID_REQUEST"),
        // Exact JSON (design 3): one key, one value; nothing is repaired.
        (format!(r#"{{{ids},"output":{{"a":1,"a":2}}}}"#), "INVALID_REQUEST"),
        (format!(r#"{{{ids},"output":"\ud800"}}"#), "INVALID_REQUEST"),
    ] {
        let read = ExecutionResult::parse(&body).map_or_else(|e| e.code().to_string(), |_| "ok".to_owned());
        assert_eq!(read, expected, "{}", &body[..body.len().min(120)]);
    }
    assert!(ExecutionIdentity::parse(&format!("{{{ids}}}")).is_ok());
    let more = ExecutionIdentity::parse(&format!(r#"{{{ids},"output":1}}"#)).unwrap_err();
    assert_eq!(more.code(), Code::INVALID_TOOL_EXECUTION);
}

#[test]
fn reviews() {
    check(
        requested(r#"{"k":[1,2]}"#),
        expect![[
            r#""approval":{"approvalId":"0b1d2c3e-5a4b-4c3d-8e2f-0123456789ab","runId":"6f0c2d1e-5a4b-4c3d-8e2f-0123456789ab","call":{"id":"call-1","name":"write","arguments":{"k":[1,2]}},"requestedAt":"2026-01-02T03:04:05.677Z","idlePolicy":"pause"}}"#
        ]],
    );
    let mut approval = approval(r#"{"k":[1,2]}"#);
    approval.expires_at = Some(at(60_000));
    let digest = Some(approval.call.digest());
    check(
        EventBody::ApprovalRequested { approval: Arc::new(approval), digest },
        expect![[
            r#""approval":{"approvalId":"0b1d2c3e-5a4b-4c3d-8e2f-0123456789ab","runId":"6f0c2d1e-5a4b-4c3d-8e2f-0123456789ab","call":{"id":"call-1","name":"write","arguments":{"k":[1,2]}},"requestedAt":"2026-01-02T03:04:05.677Z","idlePolicy":"pause","expiresAt":"2026-01-02T03:05:05.678Z","digest":"sha256:65478457f5183fd2046d5ec729feae6dfeb5c34fd316b6567b3ff9e92a4ed223"}}"#
        ]],
    );
    for (outcome, word) in [
        (Outcome::Approved, "approved"),
        (Outcome::Denied, "denied"),
        (Outcome::Cancelled, "cancelled"),
        (Outcome::Expired, "expired"),
    ] {
        let event = event(7, EventBody::ApprovalResolved { resolution: resolution(outcome) });
        let text = event.to_json();
        assert!(text.ends_with(&format!(
            r#""resolution":{{"approvalId":"{APPROVAL}","runId":"{RUN}","callId":"call-1","outcome":"{word}","decidedAt":"2026-01-02T03:04:05.678Z"}}}}"#
        )));
        assert_eq!(Event::decode(&text, &Expectation::own_log()).unwrap(), Decoded::Event(event));
    }
}

/// The hand-written encoder says what the types say about themselves, so that no member is forgotten in one of them.
#[test]
fn encoder_agrees_with_serde() {
    let mut approval = approval(r#"{"k":[1,2]}"#);
    approval.expires_at = Some(at(1));
    let own = serde_json::to_string(&approval).unwrap();
    let sent =
        event(1, EventBody::ApprovalRequested { approval: Arc::new(approval), digest: None }).to_json();
    assert!(sent.contains(&format!(r#""approval":{own}}}"#)));

    let result = RunResult {
        run_id: run(),
        provider: provider(),
        model: model(),
        text: String::new(),
        usage: Usage::default(),
        steps: 1,
        finish_reason: FinishReason::Stop,
        output: Some(Exact::empty_object()),
    };
    let own = serde_json::to_string(&result).unwrap();
    assert_eq!(countersign_protocol::decode::<RunResult>(&own).unwrap(), result);
    let sent = event(1, EventBody::RunCompleted { result: Box::new(result) }).to_json();
    assert!(sent.contains(&format!(r#""result":{own}}}"#)));
}

/// Contract 1.8: line feeds only, `id`, `event`, `data`, an empty line.
#[test]
fn frames() {
    let mut out = Vec::new();
    encode_frame(&event(6, EventBody::StepStarted { step: 1 }), &mut out);
    out.extend_from_slice(HEARTBEAT);
    expect![[r#"
        id: 6
        event: step.started
        data: {"type":"step.started","runId":"6f0c2d1e-5a4b-4c3d-8e2f-0123456789ab","sequence":6,"timestamp":"2026-01-02T03:04:05.678Z","step":1}

        : heartbeat

    "#]]
    .assert_eq(std::str::from_utf8(&out).unwrap());
}

#[test]
fn terminal_events() {
    let error = ErrorInfo::new(Code::CANCELLED);
    assert!(EventBody::RunFailed { error: error.clone() }.is_terminal());
    assert!(event(1, EventBody::RunCancelled { error }).is_terminal());
    assert!(!requested("{}").is_terminal());
}
