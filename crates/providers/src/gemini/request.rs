//! The request body: what the model is told.

use std::collections::BTreeSet;

use countersign_approval_core::ids::CallId;
use countersign_approval_core::json::Exact;
use countersign_driver::provider::{AssistantMessage, Message, ProviderError, TurnRequest};
use countersign_protocol::code::Code;
use serde::Serialize;
use serde_json::value::RawValue;

use super::wire::Part;

/// Writes the body of a turn.
pub(super) fn body(request: &TurnRequest<'_>) -> Result<Vec<u8>, ProviderError> {
    let instructions = request.instructions.filter(|text| !text.is_empty());
    let declarations: Vec<Declaration<'_>> = request
        .tools
        .iter()
        .map(|tool| Declaration {
            name: tool.name.as_str(),
            description: &tool.description,
            parameters_json_schema: &tool.input_schema,
        })
        .collect();
    let body = Body {
        system_instruction: instructions
            .map(|text| Instruction { parts: vec![Piece::Ours(Said::Text(text))] }),
        contents: contents(request.messages)?,
        tools: if declarations.is_empty() {
            Vec::new()
        } else {
            vec![Tools { function_declarations: declarations }]
        },
        generation_config: GenerationConfig { max_output_tokens: request.max_output_tokens },
    };
    serde_json::to_vec(&body).map_err(internal)
}

/// What the model said, for [`AssistantMessage::native`]: its parts, with its own signatures and its own argument text.
#[derive(Default)]
pub(super) struct Native {
    /// A JSON array without its end.
    parts: String,
    /// Unsigned text that may go on.
    text: String,
}

impl Native {
    /// A part that must be told again exactly as it came.
    pub(super) fn push_raw(&mut self, part: &RawValue) {
        self.flush();
        self.push(part.get());
    }

    /// Text without a signature, whose pieces are one.
    pub(super) fn push_text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(super) fn finish(mut self) -> Option<Box<str>> {
        self.flush();
        self.parts.push(']');
        Some(self.parts.into_boxed_str()).filter(|parts| parts.len() > 1)
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            // A string is always written.
            if let Ok(part) = serde_json::to_string(&Said::Text(&text)) {
                self.push(&part);
            }
        }
    }

    fn push(&mut self, part: &str) {
        self.parts.push(if self.parts.is_empty() { '[' } else { ',' });
        self.parts.push_str(part);
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Instruction<'a>>,
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tools<'a>>,
    generation_config: GenerationConfig,
}

#[derive(Serialize)]
struct Instruction<'a> {
    parts: Vec<Piece<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    parameters_json_schema: &'a Exact,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    max_output_tokens: u32,
}

#[derive(Serialize)]
struct Content<'a> {
    role: &'static str,
    parts: Vec<Piece<'a>>,
}

/// A part of ours, or one that the model wrote.
#[derive(Serialize)]
#[serde(untagged)]
enum Piece<'a> {
    Ours(Said<'a>),
    Native(&'a RawValue),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Said<'a> {
    Text(&'a str),
    FunctionCall(Call<'a>),
    FunctionResponse(Response<'a>),
}

#[derive(Serialize)]
struct Call<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    args: &'a Exact,
}

#[derive(Serialize)]
struct Response<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    response: Output<'a>,
}

/// The vendor wants an object; an output may be any JSON.
#[derive(Serialize)]
struct Output<'a> {
    result: &'a Exact,
}

/// The roles take turns, and the results of several calls stand together, so neighbours of one role become one content.
/// Empty text, which some servers refuse, says nothing.
fn contents(messages: &[Message]) -> Result<Vec<Content<'_>>, ProviderError> {
    let mut contents: Vec<Content<'_>> = Vec::new();
    // The ids that the server made; it does not know the others.
    let mut known: BTreeSet<&CallId> = BTreeSet::new();
    for message in messages {
        let (role, parts) = match message {
            Message::User(text) => ("user", said(text).collect()),
            Message::Assistant(message) => ("model", model(message, &mut known)?),
            Message::Tool { call_id, name, output } => {
                let response = Response {
                    id: known.contains(call_id).then_some(call_id.as_str()),
                    name: name.as_str(),
                    response: Output { result: output },
                };
                ("user", vec![Piece::Ours(Said::FunctionResponse(response))])
            }
        };
        match contents.last_mut() {
            Some(last) if last.role == role => last.parts.extend(parts),
            _ if parts.is_empty() => {}
            _ => contents.push(Content { role, parts }),
        }
    }
    Ok(contents)
}

fn model<'a>(
    message: &'a AssistantMessage,
    known: &mut BTreeSet<&'a CallId>,
) -> Result<Vec<Piece<'a>>, ProviderError> {
    let Some(native) = &message.native else {
        // Another provider's turn, or one of the history.
        known.extend(message.calls.iter().map(|call| &call.id));
        let calls = message.calls.iter().map(|call| {
            let call = Call { id: Some(call.id.as_str()), name: call.name.as_str(), args: &call.arguments };
            Piece::Ours(Said::FunctionCall(call))
        });
        return Ok(said(&message.text).chain(calls).collect());
    };
    let parts: Vec<&RawValue> = serde_json::from_str(native).map_err(internal)?;
    let mut calls = message.calls.iter();
    for part in &parts {
        let Some(call) = Part::read(part)?.function_call else { continue };
        let of_ours = calls.next().filter(|of_ours| call.id.as_deref() == Some(of_ours.id.as_str()));
        known.extend(of_ours.map(|call| &call.id));
    }
    Ok(parts.into_iter().map(Piece::Native).collect())
}

fn said(text: &str) -> impl Iterator<Item = Piece<'_>> {
    (!text.is_empty()).then_some(Piece::Ours(Said::Text(text))).into_iter()
}

fn internal(error: serde_json::Error) -> ProviderError {
    ProviderError::new(Code::INTERNAL_ERROR).with_source(error)
}
