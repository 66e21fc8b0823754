//! Anthropic's Messages API in the suite, after its public documentation.

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::Provider;
use countersign_providers::{Anthropic, AnthropicConfig, Error};
use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;

use super::conformance;
use super::vendor::{Asked, Ending, Part, Said, Told, Trouble, Unsayable, Vendor, quoted, without_space};
use crate::anthropic::wire::{begin, delta, end, event, finish, start};

struct Messages;

conformance!(Messages);

impl Vendor for Messages {
    const CANNOT: &'static [Unsayable] = &[Unsayable::ReasoningTokens];
    const KEY_HEADER: (&'static str, &'static str) = ("x-api-key", "");

    fn provider(server: Url, key: &str) -> Result<Box<dyn Provider>, Error> {
        Ok(Box::new(Anthropic::new(AnthropicConfig {
            id: ProviderId::parse("local").unwrap(),
            name: None,
            base_url: server,
            api_key: Some(key.into()),
            models: vec![ModelId::parse("demo").unwrap()],
        })?))
    }

    fn stream(said: &Said) -> String {
        let mut events = vec![start(&usage(said).unwrap_or_else(|| "{}".to_owned())), event("ping", "")];
        let mut index = 0;
        // The open text block, and the block of each call.
        let (mut text_block, mut calls) = (None, Vec::new());
        for (at, part) in said.parts.iter().enumerate() {
            if !matches!(part, Part::Text(_)) {
                events.extend(text_block.take().map(end));
            }
            match part {
                Part::Text(text) => {
                    let block = *text_block.get_or_insert_with(|| {
                        events.push(begin(index, r#""type":"text","text":"""#));
                        index += 1;
                        index - 1
                    });
                    events.push(delta(block, "text_delta", "text", text));
                }
                Part::Reasoning(opaque) => {
                    events.push(begin(index, r#""type":"thinking","thinking":"","signature":"""#));
                    events.push(delta(index, "thinking_delta", "thinking", "Hm."));
                    events.push(delta(index, "signature_delta", "signature", opaque));
                    events.push(end(index));
                    index += 1;
                }
                Part::Call { call, id, name } => {
                    let id = id.as_ref().map_or_else(String::new, |id| format!(r#""id":{},"#, quoted(id)));
                    let name = quoted(name);
                    events
                        .push(begin(index, &format!(r#""type":"tool_use",{id}"name":{name},"input":{{}}"#)));
                    calls.push(index);
                    if said.is_last_of(*call, at) {
                        events.push(end(index));
                    }
                    index += 1;
                }
                Part::Arguments { call, text } => {
                    events.push(delta(calls[*call], "input_json_delta", "partial_json", text));
                    if said.is_last_of(*call, at) {
                        events.push(end(calls[*call]));
                    }
                }
            }
        }
        events.extend(text_block.map(end));
        events.push(finish(reason(said), usage(said).as_deref()));
        // The reason alone does not say that nothing was lost.
        if said.ending != Ending::Open {
            events.push(event("message_stop", ""));
        }
        events.concat()
    }

    fn whole(said: &Said) -> String {
        let mut blocks = Vec::new();
        if !said.whole_text().is_empty() {
            blocks.push(format!(r#"{{"type":"text","text":{}}}"#, quoted(&said.whole_text())));
        }
        blocks.extend(said.whole_calls().into_iter().map(|(id, name, arguments)| {
            let id = id.map_or_else(String::new, |id| format!(r#""id":{},"#, quoted(&id)));
            let input = if arguments.is_empty() { "{}" } else { &arguments };
            format!(r#"{{"type":"tool_use",{id}"name":{},"input":{input}}}"#, quoted(&name))
        }));
        let usage = usage(said).map_or_else(String::new, |usage| format!(r#","usage":{usage}"#));
        format!(
            r#"{{"id":"msg_1","type":"message","role":"assistant","model":"demo","content":[{}],"stop_reason":"{}","stop_sequence":null{usage}}}"#,
            blocks.join(","),
            reason(said)
        )
    }

    fn refusal(trouble: Trouble, words: &str) -> (&'static str, String) {
        let (status, kind) = match trouble {
            Trouble::WrongKey => ("401 Unauthorized", "authentication_error"),
            Trouble::Forbidden => ("403 Forbidden", "permission_error"),
            Trouble::NoSuchModel => ("404 Not Found", "not_found_error"),
            Trouble::Busy => ("429 Too Many Requests", "rate_limit_error"),
            Trouble::TooLong => ("400 Bad Request", "invalid_request_error"),
            Trouble::Broken => ("500 Internal Server Error", "api_error"),
            Trouble::Overloaded => ("529 Overloaded", "overloaded_error"),
        };
        (status, error(kind, words))
    }

    fn trouble_in_stream(trouble: Trouble, words: &str) -> String {
        let kind = match trouble {
            Trouble::Busy => "rate_limit_error",
            Trouble::Overloaded => "overloaded_error",
            _ => "api_error",
        };
        format!("event: error\ndata: {}\n\n", error(kind, words))
    }

    fn asked(body: &str) -> Asked {
        let body: Body<'_> = serde_json::from_str(body).unwrap();
        assert_eq!((body.model.as_str(), body.stream), ("demo", true));
        let mut asked = Asked {
            instructions: body.system,
            messages: Vec::new(),
            tools: Vec::new(),
            max_output_tokens: body.max_tokens,
        };
        let mut last = String::new();
        for message in body.messages {
            assert_ne!(message.role, last, "the roles take turns");
            last.clone_from(&message.role);
            for block in message.content {
                asked.messages.push(match (message.role.as_str(), block.kind.as_str()) {
                    ("user", "text") => Told::User(block.text.unwrap()),
                    ("user", "tool_result") => {
                        Told::Output { id: block.tool_use_id, output: block.content.unwrap() }
                    }
                    ("assistant", "text") => Told::Assistant(block.text.unwrap()),
                    ("assistant", "thinking") => Told::Reasoning(block.signature.unwrap()),
                    ("assistant", "tool_use") => Told::Call {
                        id: block.id,
                        name: block.name.unwrap(),
                        arguments: without_space(block.input.unwrap().get()),
                    },
                    other => panic!("{other:?}"),
                });
            }
        }
        let tool = |tool: Tool<'_>| (tool.name, tool.description, tool.input_schema.get().to_owned());
        asked.tools = body.tools.into_iter().map(tool).collect();
        asked
    }
}

fn reason(said: &Said) -> &'static str {
    match said.ending {
        Ending::Length => "max_tokens",
        Ending::Refused => "refusal",
        _ if said.call_count() > 0 => "tool_use",
        _ => "end_turn",
    }
}

/// What was read from a cache stands apart from the rest of the input.
fn usage(said: &Said) -> Option<String> {
    let (input, output) = (said.usage.input_tokens?, said.usage.output_tokens?);
    let cached = said.usage.cached_input_tokens;
    let of_cache = cached.map_or_else(String::new, |count| format!(r#","cache_read_input_tokens":{count}"#));
    let input = input - cached.unwrap_or(0);
    Some(format!(r#"{{"input_tokens":{input},"output_tokens":{output}{of_cache}}}"#))
}

fn error(kind: &str, words: &str) -> String {
    format!(r#"{{"type":"error","error":{{"type":"{kind}","message":{}}},"request_id":"r"}}"#, quoted(words))
}

#[derive(Deserialize)]
struct Body<'a> {
    model: String,
    stream: bool,
    max_tokens: u64,
    system: Option<String>,
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
    #[serde(borrow, default)]
    tools: Vec<Tool<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    role: String,
    #[serde(borrow)]
    content: Vec<Block<'a>>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    signature: Option<String>,
    tool_use_id: Option<String>,
    content: Option<String>,
}

#[derive(Deserialize)]
struct Tool<'a> {
    name: String,
    description: String,
    #[serde(borrow)]
    input_schema: &'a RawValue,
}
