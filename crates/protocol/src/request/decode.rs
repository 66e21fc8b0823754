//! The strict decoder of a run request (contract 2).

use std::collections::BTreeMap;

use countersign_approval_core::ids::{InvalidName, ModelId, ProviderId, ToolName};
use countersign_approval_core::json::{Document, Exact, Gate, Kind, MAX_DEPTH, Node};
use countersign_approval_core::review::IdlePolicy;

use super::read::{Read, boolean, fault, integer, list, object, pattern, required, strict, text, word};
use super::{ApplicationTool, Approvals, Message, OnDeny, Retry, Role, RunRequest, Unavailable};
use crate::error::InvalidRequest;

const MAX_TEXT: usize = 100_000;
const MAX_DESCRIPTION: usize = 10_000;
const MAX_MS: u32 = 2_147_483_647;
const MAX_DELAY_MS: u32 = 60_000;

/// Reads the whole body.
pub(super) fn request(body: &str) -> Read<RunRequest> {
    let document = Document::parse(body).map_err(|refused| InvalidRequest::new(refused.to_string()))?;
    let (mut provider, mut model, mut input) = (None, None, None);
    // The three required members are put in at the end.
    let mut draft = Draft::default();
    strict(document.root(), |name, node| {
        Some(match name {
            "provider" => parsed(node, ProviderId::parse).map(|v| provider = Some(v)),
            "model" => parsed(node, ModelId::parse).map(|v| model = Some(v)),
            "input" => text(node, 1..=MAX_TEXT).map(|v| input = Some(v.into_owned())),
            other => return draft.member(other, node),
        })
    })?;
    Ok(RunRequest {
        provider: required(provider, "provider")?,
        model: required(model, "model")?,
        input: required(input, "input")?,
        instructions: draft.instructions,
        history: draft.history,
        tools: draft.tools,
        required_capabilities: draft.required_capabilities,
        max_steps: draft.max_steps,
        max_output_tokens: draft.max_output_tokens,
        idle_timeout_ms: draft.idle_timeout_ms,
        output_schema: draft.output_schema,
        metadata: draft.metadata,
        idempotency_key: draft.idempotency_key,
        retry: draft.retry,
        approvals: draft.approvals,
        application_tools: draft.application_tools,
        unavailable: draft.unavailable,
    })
}

/// The optional members.
#[derive(Default)]
struct Draft {
    instructions: Option<String>,
    history: Vec<Message>,
    tools: Vec<ToolName>,
    required_capabilities: Vec<String>,
    max_steps: Option<u32>,
    max_output_tokens: Option<u32>,
    idle_timeout_ms: Option<u32>,
    output_schema: Option<Exact>,
    metadata: BTreeMap<String, String>,
    idempotency_key: Option<String>,
    retry: Option<Retry>,
    approvals: Option<Approvals>,
    application_tools: Vec<ApplicationTool>,
    unavailable: Vec<Unavailable>,
}

impl Draft {
    fn member(&mut self, name: &str, node: Node<'_>) -> Option<Read<()>> {
        Some(match name {
            "instructions" => text(node, 0..=MAX_TEXT).map(|v| self.instructions = Some(v.into_owned())),
            "history" => list(node, 0..=100, message).map(|v| self.history = v),
            "tools" => list(node, 0..=32, |n| parsed(n, ToolName::parse)).map(|v| self.tools = v),
            "requiredCapabilities" => capabilities(node).map(|v| self.required_capabilities = v),
            "maxSteps" => integer(node, 1..=64).map(|v| self.max_steps = Some(v)),
            "maxOutputTokens" => integer(node, 1..=65_536).map(|v| self.max_output_tokens = Some(v)),
            "idleTimeoutMs" => integer(node, 0..=MAX_MS).map(|v| self.idle_timeout_ms = Some(v)),
            "outputSchema" => schema(node).map(|v| self.output_schema = Some(v)),
            "metadata" => metadata(node).map(|v| self.metadata = v),
            "idempotencyKey" => idempotency_key(node).map(|v| self.idempotency_key = Some(v)),
            "retry" => retry(node).map(|v| self.retry = Some(v)),
            "approvals" => approvals(node).map(|v| self.approvals = Some(v)),
            "applicationTools" => list(node, 1..=32, definition).map(|v| self.application_tools = v),
            other => return self.unserved(other, node),
        })
    }

    /// Members of the contract that this version answers with a code of their own: only their kind is checked.
    fn unserved(&mut self, name: &str, node: Node<'_>) -> Option<Read<()>> {
        let (what, read) = match name {
            "session" => (Unavailable::Session, object(node).map(drop)),
            "retrieval" => (Unavailable::Retrieval, object(node).map(drop)),
            "outputArtifact" => (Unavailable::OutputArtifact, object(node).map(drop)),
            // Some clients write the empty list, which asks for nothing.
            "attachments" => match list(node, 0..=16, object) {
                Ok(items) if items.is_empty() => return Some(Ok(())),
                read => (Unavailable::Attachments, read.map(drop)),
            },
            _ => return None,
        };
        Some(read.map(|()| self.unavailable.push(what)))
    }
}

/// A name, by the rule of its type.
fn parsed<T>(node: Node<'_>, parse: fn(&str) -> Result<T, InvalidName>) -> Read<T> {
    let Some(text) = node.as_str() else { return fault("expected a string") };
    parse(&text).or_else(|error| fault(error.rule))
}

/// A JSON Schema, its numbers as they are written. Whether it is one is for whoever compiles it.
fn schema(node: Node<'_>) -> Read<Exact> {
    object(node)?;
    // Where it breaks the rule may be content.
    let rule = format!("expected at most {MAX_DEPTH} levels, and no key `__proto__`");
    node.to_exact(Gate::OUTPUT).or_else(|_| fault(rule))
}

fn message(node: Node<'_>) -> Read<Message> {
    let (mut role, mut content) = (None, None);
    strict(node, |name, node| {
        Some(match name {
            "role" => {
                word(node, &[("user", Role::User), ("assistant", Role::Assistant)]).map(|v| role = Some(v))
            }
            "content" => text(node, 0..=MAX_TEXT).map(|v| content = Some(v.into_owned())),
            _ => return None,
        })
    })?;
    Ok(Message { role: required(role, "role")?, content: required(content, "content")? })
}

fn capabilities(node: Node<'_>) -> Read<Vec<String>> {
    let names = list(node, 0..=32, |node| {
        let first = |b: u8| b.is_ascii_alphabetic();
        pattern(node, 80, first, b"._-", "^[a-zA-Z][a-zA-Z0-9._-]{0,79}$")
    })?;
    let repeats = |(i, name): (usize, &String)| names.iter().take(i).any(|earlier| earlier == name);
    if names.iter().enumerate().any(repeats) {
        return fault("names a capability twice");
    }
    Ok(names)
}

fn metadata(node: Node<'_>) -> Read<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    for (key, value) in object(node)? {
        if labels.len() == 32 {
            return fault("expected at most 32 members");
        }
        if crate::shape::utf16_len(&key) > 80 {
            return fault("expected keys of at most 80 characters (UTF-16 units)");
        }
        // The key may be private, so that the path stops here.
        let value = text(value, 0..=500).or_else(|_| {
            fault("expected values that are strings of at most 500 characters (UTF-16 units)")
        })?;
        labels.insert(key.into_owned(), value.into_owned());
    }
    Ok(labels)
}

fn idempotency_key(node: Node<'_>) -> Read<String> {
    let first = |b: u8| b.is_ascii_alphanumeric();
    pattern(node, 128, first, b"._:-", "^[a-zA-Z0-9][a-zA-Z0-9._:-]{0,127}$")
}

fn retry(node: Node<'_>) -> Read<Retry> {
    let (mut max_attempts, mut base_delay_ms, mut max_delay_ms) = (None, None, None);
    strict(node, |name, node| {
        Some(match name {
            "maxAttempts" => integer(node, 1..=5).map(|v| max_attempts = Some(v)),
            "baseDelayMs" => integer(node, 0..=MAX_DELAY_MS).map(|v| base_delay_ms = Some(v)),
            "maxDelayMs" => integer(node, 0..=MAX_DELAY_MS).map(|v| max_delay_ms = Some(v)),
            _ => return None,
        })
    })?;
    Ok(Retry { max_attempts: required(max_attempts, "maxAttempts")?, base_delay_ms, max_delay_ms })
}

fn approvals(node: Node<'_>) -> Read<Approvals> {
    let (mut mode, mut idle_policy) = (None, None);
    let (mut expires_after_ms, mut digest, mut on_deny, mut batch) = (None, None, None, None);
    strict(node, |name, node| {
        Some(match name {
            "mode" => word(node, &[("interactive", ())]).map(|v| mode = Some(v)),
            "idlePolicy" => word(node, &[("pause", IdlePolicy::Pause), ("continue", IdlePolicy::Continue)])
                .map(|v| idle_policy = Some(v)),
            "expiresAfterMs" => integer(node, 1..=MAX_MS).map(|v| expires_after_ms = Some(v)),
            "digest" => boolean(node).map(|v| digest = Some(v)),
            "onDeny" => word(node, &[("fail", OnDeny::Fail), ("continue", OnDeny::Continue)])
                .map(|v| on_deny = Some(v)),
            "batch" => boolean(node).map(|v| batch = Some(v)),
            _ => return None,
        })
    })?;
    required(mode, "mode")?;
    Ok(Approvals {
        idle_policy: required(idle_policy, "idlePolicy")?,
        expires_after_ms,
        digest,
        on_deny,
        batch,
    })
}

fn definition(node: Node<'_>) -> Read<ApplicationTool> {
    let (mut name, mut description, mut input_schema) = (None, None, None);
    let (mut output_schema, mut requires_approval) = (None, None);
    strict(node, |member, node| {
        Some(match member {
            "name" => parsed(node, ToolName::parse).map(|v| name = Some(v)),
            "description" => text(node, 1..=MAX_DESCRIPTION).map(|v| description = Some(v.into_owned())),
            "inputSchema" => schema(node).map(|v| input_schema = Some(v)),
            "outputSchema" => schema(node).map(|v| output_schema = Some(v)),
            "requiresApproval" => boolean(node).map(|v| requires_approval = Some(v)),
            _ => return None,
        })
    })?;
    Ok(ApplicationTool {
        name: required(name, "name")?,
        description: required(description, "description")?,
        input_schema: required(input_schema, "inputSchema")?,
        output_schema,
        requires_approval,
    })
}

/// A definition from its parts, by the rules of the decoder.
pub(super) fn application_tool(name: &str, description: String, input_schema: &str) -> Read<ApplicationTool> {
    if !(1..=MAX_DESCRIPTION).contains(&crate::shape::utf16_len(&description)) {
        return fault(format!("expected a string of 1 to {MAX_DESCRIPTION} characters (UTF-16 units)"))
            .map_err(|error| error.under("description"));
    }
    Ok(ApplicationTool {
        name: ToolName::parse(name)
            .or_else(|error| fault(error.rule).map_err(|error| error.under("name")))?,
        description,
        input_schema: schema_text(input_schema).map_err(|error| error.under("inputSchema"))?,
        output_schema: None,
        requires_approval: None,
    })
}

/// The text of a schema, as [`schema`] takes it.
pub(super) fn schema_text(text: &str) -> Read<Exact> {
    match Exact::parse_with(text, Gate::OUTPUT) {
        Ok(schema) if schema.kind() == Kind::Object => Ok(schema),
        Ok(_) => fault("expected an object"),
        Err(refused) => fault(refused.to_string()),
    }
}
