//! Example values: a request, events as text, and frames.

use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_approval_core::review::IdlePolicy;
use countersign_client::{Error, EventStream};
use countersign_protocol::event::Event;
use countersign_protocol::request::{Approvals, RunRequest};

pub(crate) const RUN: &str = "6f0c2d1e-5a4b-4c3d-8e2f-0123456789ab";
pub(crate) const OTHER_RUN: &str = "00000000-0000-4000-8000-000000000000";
pub(crate) const APPROVAL: &str = "0b1d2c3e-5a4b-4c3d-8e2f-0123456789ab";
pub(crate) const EXECUTION: &str = "0e1d2c3e-5a4b-4c3d-8e2f-0123456789ab";
pub(crate) const TIME: &str = "2026-09-20T12:00:00.000Z";

/// The request of the contract's conformance rows (10.4).
pub(crate) fn hello() -> RunRequest {
    RunRequest::new(ProviderId::parse("mock").unwrap(), ModelId::parse("demo").unwrap(), "Hello")
}

/// The same with reviews.
pub(crate) fn reviewed() -> RunRequest {
    RunRequest { approvals: Some(Approvals::new(IdlePolicy::Pause)), ..hello() }
}

pub(crate) fn decision(word: &str) -> DecisionRequest {
    DecisionRequest::parse(&format!(
        r#"{{"approvalId":"{APPROVAL}","runId":"{RUN}","call":{{"id":"call-1","name":"write","arguments":{{"k":[1,2]}}}},"decision":"{word}"}}"#
    ))
    .unwrap()
}

pub(crate) fn receipt(outcome: &str) -> String {
    format!(
        r#"{{"approvalId":"{APPROVAL}","runId":"{RUN}","callId":"call-1","outcome":"{outcome}","decidedAt":"{TIME}"}}"#
    )
}

pub(crate) fn result() -> String {
    format!(
        r#"{{"runId":"{RUN}","provider":"mock","model":"demo","text":"Hello","usage":{{}},"steps":1,"finishReason":"stop"}}"#
    )
}

pub(crate) fn event(sequence: u64, type_name: &str, members: &str) -> String {
    let comma = if members.is_empty() { "" } else { "," };
    format!(
        r#"{{"type":"{type_name}","runId":"{RUN}","sequence":{sequence},"timestamp":"{TIME}"{comma}{members}}}"#
    )
}

pub(crate) fn started() -> String {
    event(1, "run.started", r#""provider":"mock","model":"demo""#)
}

pub(crate) fn delta(sequence: u64) -> String {
    event(sequence, "text.delta", r#""text":"Hello""#)
}

pub(crate) fn completed(sequence: u64) -> String {
    event(sequence, "run.completed", &format!(r#""result":{}"#, result()))
}

pub(crate) fn requested() -> String {
    event(
        2,
        "approval.requested",
        &format!(
            r#""approval":{{"approvalId":"{APPROVAL}","runId":"{RUN}","call":{{"id":"call-1","name":"write","arguments":{{"k":[1,2]}}}},"requestedAt":"{TIME}","idlePolicy":"pause"}}"#
        ),
    )
}

pub(crate) fn resolved() -> String {
    event(3, "approval.resolved", &format!(r#""resolution":{}"#, receipt("approved")))
}

/// The application tool `pick` is to be executed.
pub(crate) fn execution(sequence: u64, execution_id: &str, call_id: &str) -> String {
    event(
        sequence,
        "tool.execution.requested",
        &format!(
            r#""execution":{{"executionId":"{execution_id}","runId":"{RUN}","call":{{"id":"{call_id}","name":"pick","arguments":{{"k":[1,2]}}}}}}"#
        ),
    )
}

/// Started, text, completed.
pub(crate) fn base() -> Vec<String> {
    vec![started(), delta(2), completed(3)]
}

/// Started, a review and its end, completed.
pub(crate) fn review() -> Vec<String> {
    vec![started(), requested(), resolved(), completed(4)]
}

/// Frames as a host writes them, with this line end.
pub(crate) fn framed(events: &[String], end: &str) -> String {
    events.iter().map(|data| format!("id: 1{end}event: x{end}data: {data}{end}{end}")).collect()
}

/// Changes one place, which must be there.
pub(crate) fn changed(text: &str, from: &str, to: &str) -> String {
    let new = text.replacen(from, to, 1);
    assert_ne!(new, text, "{from} is not there");
    new
}

pub(crate) fn code(error: &Error) -> String {
    error.code().map_or_else(|| "none".to_owned(), |code| code.to_string())
}

/// Follows a stream to its end: the types of its events, and "ok" or the code of the error. After either nothing more
/// may come.
pub(crate) async fn follow(mut events: EventStream) -> (Vec<Event>, String) {
    let mut all = Vec::new();
    let end = loop {
        match events.next().await {
            Some(Ok(event)) => all.push(event),
            Some(Err(error)) => break code(&error),
            None => break "ok".to_owned(),
        }
    };
    assert!(events.next().await.is_none(), "the end is the end");
    (all, end)
}
