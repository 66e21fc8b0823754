//! The Responses API in the suite, after its public documentation.

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::Provider;
use countersign_providers::{Delivery, Error, OpenAiResponses, OpenAiResponsesConfig, ResponsesVendor};
use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;

use super::conformance;
use super::vendor::{Asked, Ending, Part, Said, Told, Trouble, Unsayable, Vendor, quoted, without_space};
use crate::responses::wire::{events, item_added, item_done};

struct Responses;

conformance!(Responses);

impl Vendor for Responses {
    const CANNOT: &'static [Unsayable] = &[];
    const KEY_HEADER: (&'static str, &'static str) = ("authorization", "Bearer ");

    fn provider(server: Url, key: &str) -> Result<Box<dyn Provider>, Error> {
        Ok(Box::new(OpenAiResponses::new(OpenAiResponsesConfig {
            id: ProviderId::parse("local").unwrap(),
            name: None,
            vendor: ResponsesVendor::OpenAi,
            base_url: server,
            api_key: Some(key.into()),
            models: vec![ModelId::parse("demo").unwrap()],
            delivery: Delivery::Streamed,
        })?))
    }

    fn stream(said: &Said) -> String {
        let items = items(said);
        let mut stream = vec![
            r#"{"type":"response.created","response":{"id":"resp_1","status":"in_progress","output":[]}}"#
                .to_owned(),
            r#"{"type":"response.in_progress","response":{"id":"resp_1","status":"in_progress","output":[]}}"#
                .to_owned(),
        ];
        for (at, part) in said.parts.iter().enumerate() {
            let index = items.iter().position(|item| item.parts.contains(&at)).unwrap();
            let item = &items[index];
            if item.parts.first() == Some(&at) {
                stream.push(item_added(index, &item.begun()));
            }
            let id = quoted(&item.id);
            match part {
                Part::Text(text) => stream.push(format!(
                    r#"{{"type":"response.output_text.delta","item_id":{id},"output_index":{index},"content_index":0,"delta":{}}}"#,
                    quoted(text)
                )),
                Part::Arguments { text, .. } => stream.push(format!(
                    r#"{{"type":"response.function_call_arguments.delta","item_id":{id},"output_index":{index},"delta":{}}}"#,
                    quoted(text)
                )),
                Part::Reasoning(_) => stream.push(format!(
                    r#"{{"type":"response.reasoning_summary_text.delta","item_id":{id},"output_index":{index},"summary_index":0,"delta":"hm"}}"#
                )),
                Part::Call { .. } => {}
            }
            if item.parts.last() == Some(&at) {
                if let Meaning::Call { arguments, .. } = &item.meaning {
                    stream.push(format!(
                        r#"{{"type":"response.function_call_arguments.done","item_id":{id},"output_index":{index},"arguments":{}}}"#,
                        quoted(arguments)
                    ));
                }
                stream.push(item_done(index, &item.done()));
            }
        }
        if said.ending == Ending::Refused {
            let index = items.len();
            stream.push(item_added(index, &refusal("in_progress", "[]")));
            stream.push(format!(
                r#"{{"type":"response.refusal.delta","item_id":"msg_r","output_index":{index},"content_index":0,"delta":"I cannot."}}"#
            ));
        }
        if said.ending != Ending::Open {
            stream.push(format!(
                r#"{{"type":"response.{}","response":{}}}"#,
                status(said),
                Self::whole(said)
            ));
        }
        events(&stream)
    }

    fn whole(said: &Said) -> String {
        let mut output: Vec<String> = items(said).iter().map(Item::done).collect();
        if said.ending == Ending::Refused {
            output.push(refusal("completed", r#"[{"type":"refusal","refusal":"I cannot."}]"#));
        }
        let incomplete =
            if said.ending == Ending::Length { r#"{"reason":"max_output_tokens"}"# } else { "null" };
        format!(
            r#"{{"id":"resp_1","object":"response","status":"{}","error":null,"incomplete_details":{incomplete},"store":false,"output":[{}],"usage":{}}}"#,
            status(said),
            output.join(","),
            usage(said)
        )
    }

    fn refusal(trouble: Trouble, words: &str) -> (&'static str, String) {
        let (status, kind, code) = match trouble {
            Trouble::WrongKey => ("401 Unauthorized", "invalid_request_error", "\"invalid_api_key\""),
            Trouble::Forbidden => ("403 Forbidden", "permission_error", "null"),
            Trouble::NoSuchModel => ("404 Not Found", "invalid_request_error", "\"model_not_found\""),
            Trouble::Busy => ("429 Too Many Requests", "tokens", "\"rate_limit_exceeded\""),
            Trouble::TooLong => ("400 Bad Request", "invalid_request_error", "\"context_length_exceeded\""),
            Trouble::Broken => ("500 Internal Server Error", "server_error", "null"),
            Trouble::Overloaded => ("503 Service Unavailable", "server_error", "null"),
        };
        let words = quoted(words);
        let body = format!(r#"{{"error":{{"message":{words},"type":"{kind}","param":null,"code":{code}}}}}"#);
        (status, body)
    }

    fn trouble_in_stream(trouble: Trouble, words: &str) -> String {
        let code = if trouble == Trouble::Busy { "rate_limit_exceeded" } else { "server_error" };
        events(&[format!(r#"{{"type":"error","code":"{code}","message":{},"param":null}}"#, quoted(words))])
    }

    fn asked(body: &str) -> Asked {
        let body: Body = serde_json::from_str(body).unwrap();
        assert_eq!((body.model.as_str(), body.stream, body.store), ("demo", true, false));
        assert_eq!(body.include, ["reasoning.encrypted_content"]);
        let mut messages = Vec::new();
        for input in body.input {
            messages.push(match (input.kind.as_deref(), input.role.as_deref()) {
                (None, Some("user")) => Told::User(text(input.content)),
                (None | Some("message"), Some("assistant")) => Told::Assistant(text(input.content)),
                (Some("reasoning"), None) => Told::Reasoning(input.encrypted_content.unwrap()),
                (Some("function_call"), None) => Told::Call {
                    id: input.call_id,
                    name: input.name.unwrap(),
                    // Its own item, as it came: with the white space that the model wrote.
                    arguments: without_space(&input.arguments.unwrap()),
                },
                (Some("function_call_output"), None) => {
                    Told::Output { id: input.call_id, output: input.output.unwrap() }
                }
                other => panic!("{other:?}"),
            });
        }
        let tool = |tool: Tool<'_>| {
            assert_eq!((tool.kind, tool.strict), ("function", false));
            (tool.name, tool.description, tool.parameters.get().to_owned())
        };
        Asked {
            instructions: body.instructions,
            messages,
            tools: body.tools.into_iter().map(tool).collect(),
            max_output_tokens: body.max_output_tokens,
        }
    }
}

/// Pieces of text that follow each other are one message; a call is an item, and so is reasoning.
struct Item {
    id: String,
    /// The parts of the answer that belong to it.
    parts: Vec<usize>,
    meaning: Meaning,
}

enum Meaning {
    Message(String),
    Reasoning(String),
    Call { id: Option<String>, name: String, arguments: String },
}

fn items(said: &Said) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut calls = Vec::new();
    for (at, part) in said.parts.iter().enumerate() {
        let meaning = match part {
            Part::Text(text) => {
                if let Some(Item { parts, meaning: Meaning::Message(said), .. }) = items.last_mut() {
                    parts.push(at);
                    said.push_str(text);
                    continue;
                }
                Meaning::Message(text.clone())
            }
            Part::Reasoning(opaque) => Meaning::Reasoning(opaque.clone()),
            Part::Call { id, name, .. } => {
                calls.push(items.len());
                Meaning::Call { id: id.clone(), name: name.clone(), arguments: String::new() }
            }
            Part::Arguments { call, text } => {
                let item: &mut Item = &mut items[calls[*call]];
                item.parts.push(at);
                if let Meaning::Call { arguments, .. } = &mut item.meaning {
                    arguments.push_str(text);
                }
                continue;
            }
        };
        items.push(Item { id: format!("item_{at}"), parts: vec![at], meaning });
    }
    items
}

impl Item {
    fn begun(&self) -> String {
        let id = quoted(&self.id);
        match &self.meaning {
            Meaning::Message(_) => {
                format!(
                    r#"{{"id":{id},"type":"message","status":"in_progress","role":"assistant","content":[]}}"#
                )
            }
            Meaning::Reasoning(_) => format!(r#"{{"id":{id},"type":"reasoning","summary":[]}}"#),
            Meaning::Call { id: call, name, .. } => called(&id, "in_progress", call.as_deref(), name, ""),
        }
    }

    fn done(&self) -> String {
        let id = quoted(&self.id);
        match &self.meaning {
            Meaning::Message(text) => format!(
                r#"{{"id":{id},"type":"message","status":"completed","role":"assistant","content":[{{"type":"output_text","annotations":[],"text":{}}}]}}"#,
                quoted(text)
            ),
            Meaning::Reasoning(opaque) => format!(
                r#"{{"id":{id},"type":"reasoning","summary":[{{"type":"summary_text","text":"hm"}}],"encrypted_content":{}}}"#,
                quoted(opaque)
            ),
            Meaning::Call { id: call, name, arguments } => {
                called(&id, "completed", call.as_deref(), name, arguments)
            }
        }
    }
}

fn called(id: &str, status: &str, call: Option<&str>, name: &str, arguments: &str) -> String {
    let call = call.map_or_else(String::new, |call| format!(r#","call_id":{}"#, quoted(call)));
    format!(
        r#"{{"id":{id},"type":"function_call","status":"{status}","name":{},"arguments":{}{call}}}"#,
        quoted(name),
        quoted(arguments)
    )
}

fn refusal(status: &str, content: &str) -> String {
    format!(r#"{{"id":"msg_r","type":"message","status":"{status}","role":"assistant","content":{content}}}"#)
}

fn status(said: &Said) -> &'static str {
    if said.ending == Ending::Length { "incomplete" } else { "completed" }
}

fn usage(said: &Said) -> String {
    let usage = said.usage;
    let (Some(input), Some(output)) = (usage.input_tokens, usage.output_tokens) else {
        return "null".to_owned();
    };
    let cached = usage
        .cached_input_tokens
        .map_or_else(String::new, |count| format!(r#","input_tokens_details":{{"cached_tokens":{count}}}"#));
    let reasoning = usage.reasoning_tokens.map_or_else(String::new, |count| {
        format!(r#","output_tokens_details":{{"reasoning_tokens":{count}}}"#)
    });
    format!(r#"{{"input_tokens":{input},"output_tokens":{output},"total_tokens":1{cached}{reasoning}}}"#)
}

/// The text of a message, which is a string or the parts of an earlier answer.
fn text(content: Option<&RawValue>) -> String {
    let raw = content.unwrap().get();
    if raw.starts_with('"') {
        return serde_json::from_str(raw).unwrap();
    }
    let parts: Vec<TextPart> = serde_json::from_str(raw).unwrap();
    parts.into_iter().map(|part| part.text).collect()
}

#[derive(Deserialize)]
struct TextPart {
    text: String,
}

#[derive(Deserialize)]
struct Body<'a> {
    model: String,
    stream: bool,
    store: bool,
    include: Vec<String>,
    instructions: Option<String>,
    max_output_tokens: u64,
    #[serde(borrow)]
    input: Vec<Input<'a>>,
    #[serde(borrow, default)]
    tools: Vec<Tool<'a>>,
}

#[derive(Deserialize)]
struct Input<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    encrypted_content: Option<String>,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    output: Option<String>,
}

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    name: String,
    description: String,
    #[serde(borrow)]
    parameters: &'a RawValue,
    strict: bool,
}
