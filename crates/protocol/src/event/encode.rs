//! Writing events. Arguments and outputs are copied as text, so that what was reviewed is what is sent, byte for byte.

use countersign_approval_core::json::{Digest, Exact};
use countersign_approval_core::review::ApprovalRequest;
use countersign_approval_core::snapshot::ToolCall;
use serde::Serialize;

use super::{Event, EventBody};
use crate::result::RunResult;

/// Appends one line: `type`, `runId`, `sequence`, `timestamp`, then the payload (contract 3.1).
pub(super) fn event(event: &Event, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    object.value("type", event.type_name());
    object.value("runId", &event.run_id);
    object.value("sequence", &event.sequence);
    object.value("timestamp", &event.timestamp);
    match &event.body {
        EventBody::RunStarted { provider, model } => {
            object.value("provider", provider);
            object.value("model", model);
        }
        EventBody::StepStarted { step } => object.value("step", step),
        EventBody::TextDelta { text } => object.value("text", text),
        EventBody::RunProgress { phase } => object.value("phase", phase),
        EventBody::UsageReported { step, usage } => {
            object.value("step", step);
            object.value("usage", usage);
        }
        EventBody::ToolCalled { call } => object.nested("call", |object| tool_call(object, call)),
        EventBody::ApprovalRequested { approval, digest } => {
            object.nested("approval", |object| approval_request(object, approval, digest.as_ref()));
        }
        EventBody::ApprovalResolved { resolution } => object.value("resolution", resolution),
        EventBody::ToolExecutionRequested { execution } => object.nested("execution", |object| {
            object.value("executionId", &execution.execution_id);
            object.value("runId", &execution.run_id);
            object.nested("call", |object| tool_call(object, &execution.call));
        }),
        EventBody::ToolCompleted { call_id, output } => {
            object.value("callId", call_id);
            object.exact("output", output);
        }
        EventBody::RunCompleted { result } => object.nested("result", |object| run_result(object, result)),
        EventBody::RunFailed { error } | EventBody::RunCancelled { error } => object.value("error", error),
    }
    object.close();
}

fn tool_call(object: &mut Object<'_>, call: &ToolCall) {
    object.value("id", &call.id);
    object.value("name", &call.name);
    object.exact("arguments", &call.arguments);
}

/// As [`ApprovalRequest`] serialises itself, plus the digest (design 4); a test compares the two.
fn approval_request(object: &mut Object<'_>, approval: &ApprovalRequest, digest: Option<&Digest>) {
    object.value("approvalId", &approval.approval_id);
    object.value("runId", &approval.run_id);
    object.nested("call", |object| tool_call(object, approval.call.call()));
    object.value("requestedAt", &approval.requested_at);
    object.value("idlePolicy", &approval.idle_policy);
    if let Some(expires_at) = &approval.expires_at {
        object.value("expiresAt", expires_at);
    }
    if let Some(digest) = digest {
        object.value("digest", digest);
    }
}

/// As [`RunResult`] serialises itself; a test compares the two.
fn run_result(object: &mut Object<'_>, result: &RunResult) {
    object.value("runId", &result.run_id);
    object.value("provider", &result.provider);
    object.value("model", &result.model);
    object.value("text", &result.text);
    object.value("usage", &result.usage);
    object.value("steps", &result.steps);
    object.value("finishReason", &result.finish_reason);
    if let Some(output) = &result.output {
        object.exact("output", output);
    }
}

/// A JSON object that is being written. Keys are our own and need no escapes.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    separator: &'static [u8],
}

impl<'a> Object<'a> {
    fn open(out: &'a mut Vec<u8>) -> Self {
        Self { out, separator: b"{" }
    }

    fn close(self) {
        // An object of ours has at least one member, so the opening bracket was written.
        self.out.push(b'}');
    }

    fn key(&mut self, key: &str) {
        self.out.extend_from_slice(self.separator);
        self.separator = b",";
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn value(&mut self, key: &str, value: &(impl Serialize + ?Sized)) {
        self.key(key);
        let start = self.out.len();
        if serde_json::to_writer(&mut *self.out, value).is_err() {
            // Strings, numbers and our own types always serialise. If one ever did not, every reader refuses null.
            self.out.truncate(start);
            self.out.extend_from_slice(b"null");
        }
    }

    fn exact(&mut self, key: &str, value: &Exact) {
        self.key(key);
        self.out.extend_from_slice(value.text().as_bytes());
    }

    fn nested(&mut self, key: &str, write: impl FnOnce(&mut Object<'_>)) {
        self.key(key);
        let mut object = Object::open(self.out);
        write(&mut object);
        object.close();
    }
}
