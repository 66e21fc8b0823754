//! The request body: what the model is told.

use countersign_approval_core::json::Exact;
use countersign_approval_core::snapshot::ToolCall;
use countersign_driver::provider::{AssistantMessage, Message, ProviderError, TurnRequest};
use countersign_protocol::code::Code;
use serde::Serialize;

use crate::common::Delivery;

/// Writes the body of a turn.
pub(super) fn body(request: &TurnRequest<'_>, delivery: Delivery) -> Result<Vec<u8>, ProviderError> {
    let instructions =
        request.instructions.filter(|text| !text.is_empty()).map(|text| Told::new("system", text));
    let streamed = delivery == Delivery::Streamed;
    let body = Body {
        model: request.model.as_str(),
        messages: instructions.into_iter().chain(request.messages.iter().map(Told::from)).collect(),
        tools: request
            .tools
            .iter()
            .map(|tool| Tool {
                kind: "function",
                function: Function {
                    name: tool.name.as_str(),
                    description: &tool.description,
                    parameters: &tool.input_schema,
                },
            })
            .collect(),
        max_tokens: request.max_output_tokens,
        stream: streamed,
        stream_options: streamed.then_some(StreamOptions { include_usage: true }),
    };
    serde_json::to_vec(&body).map_err(|error| ProviderError::new(Code::INTERNAL_ERROR).with_source(error))
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Told<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Exact,
}

/// A message. `content` is `null` for a turn that was nothing but calls.
#[derive(Serialize)]
struct Told<'a> {
    role: &'static str,
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToldCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
struct ToldCall<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: ToldFunction<'a>,
}

#[derive(Serialize)]
struct ToldFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> Told<'a> {
    fn new(role: &'static str, content: &'a str) -> Self {
        Self { role, content: Some(content), tool_calls: Vec::new(), tool_call_id: None }
    }
}

impl<'a> From<&'a Message> for Told<'a> {
    fn from(message: &'a Message) -> Self {
        match message {
            Message::User(text) => Self::new("user", text),
            Message::Assistant(AssistantMessage { text, calls, native: _ }) => Self {
                content: (!text.is_empty() || calls.is_empty()).then_some(text),
                tool_calls: calls.iter().map(ToldCall::from).collect(),
                ..Self::new("assistant", text)
            },
            Message::Tool { call_id, name: _, output } => {
                Self { tool_call_id: Some(call_id.as_str()), ..Self::new("tool", output.text()) }
            }
        }
    }
}

impl<'a> From<&'a ToolCall> for ToldCall<'a> {
    fn from(call: &'a ToolCall) -> Self {
        let function = ToldFunction { name: call.name.as_str(), arguments: call.arguments.text() };
        Self { id: call.id.as_str(), kind: "function", function }
    }
}
