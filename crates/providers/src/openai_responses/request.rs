//! The request body: what the model is told.

use countersign_approval_core::json::Exact;
use countersign_driver::provider::{AssistantMessage, Message, ProviderError, TurnRequest};
use countersign_protocol::code::Code;
use serde::Serialize;
use serde_json::value::RawValue;

use super::ResponsesVendor;
use crate::common::Delivery;

/// Writes the body of a turn.
pub(super) fn body(
    request: &TurnRequest<'_>,
    vendor: ResponsesVendor,
    delivery: Delivery,
) -> Result<Vec<u8>, ProviderError> {
    let strict = match vendor {
        // Strict mode takes few schemas, and is on where nothing is said.
        ResponsesVendor::OpenAi => Some(false),
        ResponsesVendor::Xai => None,
    };
    let mut input = Vec::new();
    for message in request.messages {
        tell(message, &mut input);
    }
    let body = Body {
        model: request.model.as_str(),
        instructions: request.instructions.filter(|text| !text.is_empty()),
        input,
        tools: request
            .tools
            .iter()
            .map(|tool| Tool {
                kind: "function",
                name: tool.name.as_str(),
                description: &tool.description,
                parameters: &tool.input_schema,
                strict,
            })
            .collect(),
        max_output_tokens: request.max_output_tokens,
        stream: delivery == Delivery::Streamed,
        store: false,
        include: ["reasoning.encrypted_content"],
    };
    serde_json::to_vec(&body).map_err(|error| ProviderError::new(Code::INTERNAL_ERROR).with_source(error))
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    input: Vec<Told<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    max_output_tokens: u32,
    stream: bool,
    /// Nothing is kept at the vendor, so reasoning must come along in full to be told again.
    store: bool,
    include: [&'static str; 1],
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a Exact,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

/// An item of the input.
#[derive(Serialize)]
#[serde(untagged)]
enum Told<'a> {
    Message {
        role: &'static str,
        content: &'a str,
    },
    Call {
        #[serde(rename = "type")]
        kind: &'static str,
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
    Output {
        #[serde(rename = "type")]
        kind: &'static str,
        call_id: &'a str,
        output: &'a str,
    },
    /// An item of an earlier answer, as it came.
    Native(&'a RawValue),
}

fn tell<'a>(message: &'a Message, input: &mut Vec<Told<'a>>) {
    match message {
        Message::User(text) => input.push(Told::Message { role: "user", content: text }),
        Message::Assistant(said) => match native(said) {
            Some(items) => input.extend(items.into_iter().map(Told::Native)),
            None => tell_plainly(said, input),
        },
        Message::Tool { call_id, name: _, output } => input.push(Told::Output {
            kind: "function_call_output",
            call_id: call_id.as_str(),
            output: output.text(),
        }),
    }
}

/// The items of an earlier step. The vendor knows its calls again by them, and its reasoning stands before what it led to
/// (scenario M11).
fn native(said: &AssistantMessage) -> Option<Vec<&RawValue>> {
    said.native.as_deref().and_then(|native| serde_json::from_str(native).ok())
}

/// What was said without the vendor, such as a request's history.
fn tell_plainly<'a>(said: &'a AssistantMessage, input: &mut Vec<Told<'a>>) {
    if !said.text.is_empty() || said.calls.is_empty() {
        input.push(Told::Message { role: "assistant", content: &said.text });
    }
    input.extend(said.calls.iter().map(|call| Told::Call {
        kind: "function_call",
        call_id: call.id.as_str(),
        name: call.name.as_str(),
        arguments: call.arguments.text(),
    }));
}
