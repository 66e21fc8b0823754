//! Reading events as strictly as every client of the protocol (contract 10.2).

use std::sync::Arc;

use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::{ApprovalId, CallId, ExecutionId, RunId, ToolName};
use countersign_approval_core::json::{Digest, Document, Exact, Gate, Kind, Node};
use countersign_approval_core::review::{ApprovalRequest, IdlePolicy, Resolution};
use countersign_approval_core::snapshot::{Snapshot, ToolCall};

use super::{Decoded, Event, EventBody, Phase, Skipped, ToolExecution};
use crate::code::ErrorInfo;
use crate::error::EventError;
use crate::result::{RunResult, Usage};
use crate::shape::from_raw;
use crate::stream::Expectation;

type Read<T> = Result<T, EventError>;

/// Reads one event.
pub(super) fn event(data: &str, expect: &Expectation) -> Read<Decoded> {
    let document = Document::parse(data).map_err(|refused| EventError::invalid(refused.to_string()))?;
    let root = document.root();
    if root.kind() != Kind::Object {
        return Err(EventError::invalid("an event is an object"));
    }
    let type_name = string(root, "type")?;
    let run_id = run_id(root)?;
    let sequence = integer(root, "sequence")?;
    let timestamp = timestamp(root, "timestamp")?;
    let reserved = Reserved::read(root)?;
    let body = match &*type_name {
        "run.started" => run_started(root, expect)?,
        "step.started" => EventBody::StepStarted { step: step(root)? },
        "text.delta" => EventBody::TextDelta { text: needed(reserved.text, "text")? },
        "run.progress" => EventBody::RunProgress { phase: phase(root)? },
        "usage.reported" => EventBody::UsageReported { step: step(root)?, usage: usage(root)? },
        "tool.called" => EventBody::ToolCalled { call: tool_call(member(root, "call")?)? },
        "tool.completed" => tool_completed(root)?,
        "run.completed" => run_completed(needed(reserved.result, "result")?, run_id, expect)?,
        "run.failed" => EventBody::RunFailed { error: needed(reserved.error, "error")? },
        "run.cancelled" => EventBody::RunCancelled { error: needed(reserved.error, "error")? },
        "approval.requested" => approval_requested(root, run_id, expect)?,
        "approval.resolved" => approval_resolved(root, run_id, expect)?,
        "tool.execution.requested" => execution_requested(root, run_id, expect)?,
        other => {
            return match root.get("optional").and_then(|node| node.as_bool()) {
                Some(true) if !is_never_optional(other) => {
                    Ok(Decoded::Skipped(Skipped { run_id, sequence, timestamp }))
                }
                _ => Err(EventError::Unsupported),
            };
        }
    };
    Ok(Decoded::Event(Event { run_id, sequence, timestamp, body }))
}

/// Whatever such an event says, a client that does not know it must not go on without it (contract 1.5).
fn is_never_optional(type_name: &str) -> bool {
    type_name.starts_with("approval.")
}

/// Members that have one type in every event, whatever its own type (contract 10.2).
struct Reserved {
    text: Option<String>,
    result: Option<RunResult>,
    error: Option<ErrorInfo>,
}

impl Reserved {
    fn read(root: Node<'_>) -> Read<Self> {
        let text = match root.get("text") {
            Some(node) => {
                Some(node.as_str().ok_or_else(|| EventError::invalid("`text` is not a string"))?.into_owned())
            }
            None => None,
        };
        let result = root.get("result").map(|node| from_raw(node.raw(), "`result`")).transpose()?;
        let error = root.get("error").map(|node| from_raw(node.raw(), "`error`")).transpose()?;
        Ok(Self { text, result, error })
    }
}

fn run_started(root: Node<'_>, expect: &Expectation) -> Read<EventBody> {
    let (provider, model) = (string(root, "provider")?, string(root, "model")?);
    let (provider, model) = expect
        .identity(&provider, &model)
        .ok_or_else(|| EventError::invalid("`provider` or `model` is not the request's"))?;
    Ok(EventBody::RunStarted { provider, model })
}

fn run_completed(result: RunResult, run_id: RunId, expect: &Expectation) -> Read<EventBody> {
    if result.run_id != run_id {
        return Err(EventError::invalid("`result.runId` is not the event's `runId`"));
    }
    if !expect.fits(&result) {
        return Err(EventError::invalid(
            "`result` has another provider or model than the request, or lacks its `output`",
        ));
    }
    Ok(EventBody::RunCompleted { result: Box::new(result) })
}

fn tool_completed(root: Node<'_>) -> Read<EventBody> {
    let call_id = call_id(root, "callId")?;
    // Null is an output.
    let output = member(root, "output")?.to_exact(Gate::OUTPUT);
    let output = output.map_err(|refused| EventError::invalid(refused.to_string()))?;
    Ok(EventBody::ToolCompleted { call_id, output })
}

fn approval_requested(root: Node<'_>, run_id: RunId, expect: &Expectation) -> Read<EventBody> {
    if !expect.approvals() {
        return Err(EventError::Unsupported);
    }
    let node = member(root, "approval")?;
    let approval_id = approval_id(node)?;
    if self::run_id(node)? != run_id {
        return Err(EventError::invalid("`approval.runId` is not the event's `runId`"));
    }
    let call = Snapshot::freeze(tool_call(member(node, "call")?)?)
        .map_err(|too_large| EventError::invalid(too_large.to_string()))?;
    let requested_at = timestamp(node, "requestedAt")?;
    let expires_at = match node.get("expiresAt") {
        Some(_) => Some(timestamp(node, "expiresAt")?),
        None => None,
    };
    let idle_policy = match &*string(node, "idlePolicy")? {
        "pause" => IdlePolicy::Pause,
        "continue" => IdlePolicy::Continue,
        _ => return Err(EventError::invalid("`approval.idlePolicy` is not a policy")),
    };
    if !expect.idle_policy(idle_policy) {
        return Err(EventError::invalid("`approval.idlePolicy` is not the request's"));
    }
    let digest = digest(node, &call, expect)?;
    let approval = ApprovalRequest { approval_id, run_id, call, requested_at, idle_policy, expires_at };
    Ok(EventBody::ApprovalRequested { approval: Arc::new(approval), digest })
}

/// The digest, if it was asked for: it must be there and be that of the call (law 3). Otherwise it is one of the
/// additional members that clients ignore.
fn digest(node: Node<'_>, call: &Snapshot, expect: &Expectation) -> Read<Option<Digest>> {
    if !expect.digest(node.get("digest").is_some()) {
        return Ok(None);
    }
    match string(node, "digest")?.parse() {
        Ok(digest) if digest == call.digest() => Ok(Some(digest)),
        _ => Err(EventError::invalid("`approval.digest` is not the digest of the call")),
    }
}

fn approval_resolved(root: Node<'_>, run_id: RunId, expect: &Expectation) -> Read<EventBody> {
    if !expect.approvals() {
        return Err(EventError::Unsupported);
    }
    let resolution: Resolution = from_raw(member(root, "resolution")?.raw(), "`resolution`")?;
    if resolution.run_id != run_id {
        return Err(EventError::invalid("`resolution.runId` is not the event's `runId`"));
    }
    Ok(EventBody::ApprovalResolved { resolution })
}

/// The event's own rules; [`crate::stream::StreamCheck`] refuses an execution or a call that comes twice.
fn execution_requested(root: Node<'_>, run_id: RunId, expect: &Expectation) -> Read<EventBody> {
    if !expect.executions() {
        return Err(EventError::Unsupported);
    }
    let node = member(root, "execution")?;
    let execution_id = ExecutionId::parse(&string(node, "executionId")?)
        .ok_or_else(|| EventError::invalid("`executionId` is not an execution id"))?;
    if self::run_id(node)? != run_id {
        return Err(EventError::invalid("`execution.runId` is not the event's `runId`"));
    }
    let call = tool_call(member(node, "call")?)?;
    if !expect.executes(&call.name) {
        return Err(EventError::invalid("`execution.call` is of no application tool of the request"));
    }
    Ok(EventBody::ToolExecutionRequested { execution: ToolExecution { execution_id, run_id, call } })
}

fn tool_call(node: Node<'_>) -> Read<ToolCall> {
    let id = call_id(node, "id")?;
    let name = ToolName::parse(&string(node, "name")?)
        .map_err(|invalid| EventError::invalid(format!("`name` {}", invalid.rule)))?;
    let arguments = member(node, "arguments")?;
    if arguments.kind() != Kind::Object {
        return Err(EventError::invalid("`arguments` is not an object"));
    }
    let arguments: Exact =
        arguments.to_exact(Gate::ARGUMENTS).map_err(|refused| EventError::invalid(refused.to_string()))?;
    Ok(ToolCall { id, name, arguments })
}

fn phase(root: Node<'_>) -> Read<Phase> {
    match &*string(root, "phase")? {
        "model" => Ok(Phase::Model),
        "tool" => Ok(Phase::Tool),
        "context" => Ok(Phase::Context),
        _ => Err(EventError::invalid("`phase` is not a phase")),
    }
}

fn usage(root: Node<'_>) -> Read<Usage> {
    Ok(from_raw(member(root, "usage")?.raw(), "`usage`")?)
}

fn step(root: Node<'_>) -> Read<u32> {
    match u32::try_from(integer(root, "step")?) {
        Ok(step) if step > 0 => Ok(step),
        _ => Err(EventError::invalid("`step` counts from 1")),
    }
}

fn run_id(node: Node<'_>) -> Read<RunId> {
    RunId::parse(&string(node, "runId")?).ok_or_else(|| EventError::invalid("`runId` is not a run id"))
}

fn approval_id(node: Node<'_>) -> Read<ApprovalId> {
    ApprovalId::parse(&string(node, "approvalId")?)
        .ok_or_else(|| EventError::invalid("`approvalId` is not an approval id"))
}

fn call_id(node: Node<'_>, name: &str) -> Read<CallId> {
    CallId::parse(&string(node, name)?)
        .map_err(|invalid| EventError::invalid(format!("`{name}` {}", invalid.rule)))
}

fn timestamp(node: Node<'_>, name: &str) -> Read<Timestamp> {
    Timestamp::parse(&string(node, name)?)
        .ok_or_else(|| EventError::invalid(format!("`{name}` is not an RFC 3339 time")))
}

/// A count: digits only, as `1.0` is no integer to the readers of other languages (contract 3.1).
fn integer(node: Node<'_>, name: &str) -> Read<u64> {
    let digits = member(node, name)?.raw();
    digits.parse().map_err(|_| EventError::invalid(format!("`{name}` is not a count")))
}

fn string(node: Node<'_>, name: &str) -> Read<String> {
    let text = member(node, name)?.as_str();
    match text {
        Some(text) if !text.is_empty() => Ok(text.into_owned()),
        _ => Err(EventError::invalid(format!("`{name}` is not a string with content"))),
    }
}

fn member<'d>(node: Node<'d>, name: &str) -> Read<Node<'d>> {
    node.get(name).ok_or_else(|| EventError::invalid(format!("`{name}` is missing")))
}

fn needed<T>(value: Option<T>, name: &str) -> Read<T> {
    value.ok_or_else(|| EventError::invalid(format!("`{name}` is missing")))
}
