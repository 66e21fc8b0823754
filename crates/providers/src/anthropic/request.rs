//! The request body: what the model is told.

use countersign_approval_core::json::{Exact, Kind};
use countersign_approval_core::snapshot::ToolCall;
use countersign_driver::provider::{AssistantMessage, Message, ProviderError, TurnRequest};
use countersign_protocol::code::Code;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::answer::Content;

/// Writes the body of a turn.
pub(super) fn body(request: &TurnRequest<'_>) -> Result<Vec<u8>, ProviderError> {
    let write = || -> serde_json::Result<Vec<u8>> {
        let tools = request.tools.iter().map(|tool| {
            Ok(Tool {
                name: tool.name.as_str(),
                description: &tool.description,
                input_schema: of_an_object(&tool.input_schema)?,
            })
        });
        serde_json::to_vec(&Body {
            model: request.model.as_str(),
            max_tokens: request.max_output_tokens,
            system: request.instructions.filter(|text| !is_blank(text)),
            messages: messages(request.messages)?,
            tools: tools.collect::<serde_json::Result<_>>()?,
            stream: true,
        })
    };
    write().map_err(|error| ProviderError::new(Code::INTERNAL_ERROR).with_source(error))
}

/// What the model said, for [`AssistantMessage::native`]: a JSON array of its blocks, with its own signatures and its own
/// argument text. None if a call's text is no JSON, which is never told again.
pub(super) fn native(contents: &[Content]) -> Option<Box<str>> {
    let mut blocks = Vec::new();
    for content in contents {
        blocks.push(match content {
            Content::Text(text) if is_blank(text) => continue,
            Content::Text(text) => Block::Text { text },
            Content::Call(call) => {
                let text = if is_blank(&call.arguments) { "{}" } else { &call.arguments };
                let input = serde_json::from_str::<&RawValue>(text).ok()?;
                Block::ToolUse { id: &call.id, name: &call.name, input: input.to_owned() }
            }
            Content::Thinking { thinking, signature } => Block::Thinking { thinking, signature },
            Content::RedactedThinking { data } => Block::RedactedThinking { data },
        });
    }
    serde_json::to_string(&blocks).ok().map(String::into_boxed_str)
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    messages: Vec<Told<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    stream: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: Box<RawValue>,
}

#[derive(Serialize)]
struct Told<'a> {
    role: &'static str,
    content: Vec<Piece<'a>>,
}

/// A block of ours, or one that the model wrote.
#[derive(Serialize)]
#[serde(untagged)]
enum Piece<'a> {
    Ours(Block<'a>),
    Native(&'a RawValue),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text { text: &'a str },
    ToolUse { id: &'a str, name: &'a str, input: Box<RawValue> },
    ToolResult { tool_use_id: &'a str, content: &'a str },
    Thinking { thinking: &'a str, signature: &'a str },
    RedactedThinking { data: &'a str },
}

/// The vendor wants the roles to take turns, so neighbours of one role become one message. It refuses blank text, which
/// says nothing anyway.
fn messages(messages: &[Message]) -> serde_json::Result<Vec<Told<'_>>> {
    let mut told: Vec<Told<'_>> = Vec::new();
    for message in messages {
        let (role, content) = match message {
            Message::User(text) => ("user", said(text).collect()),
            Message::Assistant(message) => ("assistant", assistant(message)?),
            Message::Tool { call_id, name: _, output } => {
                let result = Block::ToolResult { tool_use_id: call_id.as_str(), content: output.text() };
                ("user", vec![Piece::Ours(result)])
            }
        };
        match told.last_mut() {
            Some(last) if last.role == role => last.content.extend(content),
            _ if content.is_empty() => {}
            _ => told.push(Told { role, content }),
        }
    }
    Ok(told)
}

fn assistant(message: &AssistantMessage) -> serde_json::Result<Vec<Piece<'_>>> {
    if let Some(native) = &message.native {
        return Ok(serde_json::from_str::<Vec<&RawValue>>(native)?.into_iter().map(Piece::Native).collect());
    }
    let calls = message.calls.iter().map(|call| tool_use(call).map(Piece::Ours));
    said(&message.text).map(Ok).chain(calls).collect()
}

fn said(text: &str) -> impl Iterator<Item = Piece<'_>> {
    (!is_blank(text)).then_some(Piece::Ours(Block::Text { text })).into_iter()
}

fn tool_use(call: &ToolCall) -> serde_json::Result<Block<'_>> {
    Ok(Block::ToolUse { id: call.id.as_str(), name: call.name.as_str(), input: raw(&call.arguments)? })
}

/// The vendor asks that a schema says `"type": "object"`. Arguments are always objects, so nothing is changed by saying
/// it where a schema does not.
fn of_an_object(schema: &Exact) -> serde_json::Result<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(rename = "type", borrow)]
        kind: Option<&'a RawValue>,
    }
    let text = schema.text();
    let members = text.strip_prefix('{').filter(|_| schema.kind() == Kind::Object);
    match members {
        Some(members) if serde_json::from_str::<Typed<'_>>(text)?.kind.is_none() => {
            let comma = if members.starts_with('}') { "" } else { "," };
            RawValue::from_string(format!(r#"{{"type":"object"{comma}{members}"#))
        }
        _ => raw(schema),
    }
}

fn raw(value: &Exact) -> serde_json::Result<Box<RawValue>> {
    RawValue::from_string(value.text().to_owned())
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}
