//! What the tests share: example values, and the events of a stream as text.

use std::sync::Arc;

use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::{ApprovalId, CallId, ModelId, ProviderId, RunId, ToolName};
use countersign_approval_core::json::{Exact, Gate};
use countersign_approval_core::review::{ApprovalRequest, IdlePolicy, Outcome, Resolution};
use countersign_approval_core::snapshot::{Snapshot, ToolCall};
use countersign_protocol::event::{Event, EventBody};
use countersign_protocol::request::{ApplicationTool, Approvals, RunRequest};
use countersign_protocol::stream::{Expectation, StreamCheck};

pub(crate) const RUN: &str = "6f0c2d1e-5a4b-4c3d-8e2f-0123456789ab";
pub(crate) const OTHER_RUN: &str = "00000000-0000-4000-8000-000000000000";
pub(crate) const APPROVAL: &str = "0b1d2c3e-5a4b-4c3d-8e2f-0123456789ab";

pub(crate) const EXECUTION: &str = "0e1d2c3e-5a4b-4c3d-8e2f-0123456789ab";

/// The request of the contract's conformance rows (10.4).
pub(crate) fn hello() -> RunRequest {
    RunRequest::new(provider(), model(), "Hello")
}

pub(crate) fn with_approvals(approvals: Approvals) -> RunRequest {
    RunRequest { approvals: Some(approvals), ..hello() }
}

pub(crate) fn paused() -> RunRequest {
    with_approvals(Approvals::new(IdlePolicy::Pause))
}

/// A request with the application tool `pick`, and a tool of the host.
pub(crate) fn with_tools() -> RunRequest {
    RunRequest {
        tools: ["pick", "write"].map(|name| ToolName::parse(name).unwrap()).into(),
        application_tools: vec![ApplicationTool::new("pick", "Picks.", r#"{"type":"object"}"#).unwrap()],
        ..hello()
    }
}

pub(crate) fn provider() -> ProviderId {
    ProviderId::parse("mock").unwrap()
}

pub(crate) fn model() -> ModelId {
    ModelId::parse("demo").unwrap()
}

pub(crate) fn run() -> RunId {
    RunId::parse(RUN).unwrap()
}

pub(crate) fn call_id() -> CallId {
    CallId::parse("call-1").unwrap()
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_767_323_045_678 + millis)
}

pub(crate) fn call(arguments: &str) -> ToolCall {
    ToolCall {
        id: call_id(),
        name: ToolName::parse("write").unwrap(),
        arguments: Exact::parse(arguments).unwrap(),
    }
}

pub(crate) fn output(text: &str) -> Exact {
    Exact::parse_with(text, Gate::OUTPUT).unwrap()
}

pub(crate) fn approval(arguments: &str) -> ApprovalRequest {
    ApprovalRequest {
        approval_id: ApprovalId::parse(APPROVAL).unwrap(),
        run_id: run(),
        call: Snapshot::freeze(call(arguments)).unwrap(),
        requested_at: at(-1),
        idle_policy: IdlePolicy::Pause,
        expires_at: None,
    }
}

pub(crate) fn resolution(outcome: Outcome) -> Resolution {
    Resolution {
        approval_id: ApprovalId::parse(APPROVAL).unwrap(),
        run_id: run(),
        call_id: call_id(),
        outcome,
        decided_at: at(0),
    }
}

pub(crate) fn event(sequence: u64, body: EventBody) -> Event {
    Event { run_id: run(), sequence, timestamp: at(0), body }
}

pub(crate) fn requested(arguments: &str) -> EventBody {
    EventBody::ApprovalRequested { approval: Arc::new(approval(arguments)), digest: None }
}

/// One event as text; `members` are what follows the envelope.
pub(crate) fn line(sequence: u64, type_name: &str, members: &str) -> String {
    let comma = if members.is_empty() { "" } else { "," };
    format!(
        r#"{{"type":"{type_name}","runId":"{RUN}","sequence":{sequence},"timestamp":"2026-09-20T12:00:00.000Z"{comma}{members}}}"#
    )
}

pub(crate) fn started() -> String {
    line(1, "run.started", r#""provider":"mock","model":"demo","futureField":true"#)
}

pub(crate) fn delta(sequence: u64) -> String {
    line(sequence, "text.delta", r#""text":"Hello 🌍","futureField":"ignored""#)
}

pub(crate) fn result(extra: &str) -> String {
    format!(
        r#""result":{{"runId":"{RUN}","provider":"mock","model":"demo","text":"Hello 🌍","usage":{{}},"steps":1,"finishReason":"stop","futureResultField":{{"safe":"ignored"}}{extra}}}"#
    )
}

pub(crate) fn completed(sequence: u64) -> String {
    line(sequence, "run.completed", &result(""))
}

/// Plays events to a client of this request: the types it gives, then `ok` or the code that stops it.
pub(crate) fn play(request: &RunRequest, events: &[String]) -> (Vec<&'static str>, String) {
    let mut check = StreamCheck::new(Expectation::of(request));
    let mut types = Vec::new();
    for data in events {
        match check.accept(data) {
            Ok(Some(event)) => types.push(event.type_name()),
            Ok(None) => {}
            Err(error) => return (types, error.code().to_string()),
        }
        if check.is_finished() {
            break;
        }
    }
    let end = check.finish().map_or_else(|error| error.code().to_string(), |()| "ok".to_owned());
    (types, end)
}
