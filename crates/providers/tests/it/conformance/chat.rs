//! Chat Completions in the suite, after its public documentation.

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::Provider;
use countersign_providers::{Delivery, Error, OpenAiChat, OpenAiChatConfig};
use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;

use super::conformance;
use super::vendor::{Asked, Ending, Part, Said, Told, Trouble, Unsayable, Vendor, quoted};
use crate::chat::wire::{delta, finish, frames, frames_open};

struct Chat;

conformance!(Chat);

impl Vendor for Chat {
    const CANNOT: &'static [Unsayable] = &[Unsayable::Reasoning];
    const KEY_HEADER: (&'static str, &'static str) = ("authorization", "Bearer ");

    fn provider(server: Url, key: &str) -> Result<Box<dyn Provider>, Error> {
        Ok(Box::new(OpenAiChat::new(OpenAiChatConfig {
            id: ProviderId::parse("local").unwrap(),
            name: None,
            base_url: server,
            api_key: Some(key.into()),
            models: vec![ModelId::parse("demo").unwrap()],
            delivery: Delivery::Streamed,
        })?))
    }

    fn stream(said: &Said) -> String {
        let mut chunks = vec![delta(r#"{"role":"assistant","content":null}"#)];
        chunks.extend(said.parts.iter().map(|part| match part {
            Part::Text(text) => delta(&format!(r#"{{"content":{}}}"#, quoted(text))),
            // Some servers have it, none wants it back.
            Part::Reasoning(_) => delta(r#"{"reasoning_content":"hm"}"#),
            Part::Call { call, id, name } => {
                let id = id.as_ref().map_or_else(String::new, |id| format!(r#""id":{},"#, quoted(id)));
                let name = quoted(name);
                delta(&format!(
                    r#"{{"tool_calls":[{{"index":{call},{id}"type":"function","function":{{"name":{name},"arguments":""}}}}]}}"#
                ))
            }
            Part::Arguments { call, text } => delta(&format!(
                r#"{{"tool_calls":[{{"index":{call},"function":{{"arguments":{}}}}}]}}"#,
                quoted(text)
            )),
        }));
        if said.ending == Ending::Refused {
            chunks.push(delta(r#"{"refusal":"I cannot."}"#));
        }
        chunks.push(finish(reason(said)));
        chunks.extend(usage(said).map(|usage| format!(r#"{{"choices":[],"usage":{usage}}}"#)));
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        // The reason alone does not say that nothing was lost.
        if said.ending == Ending::Open { frames_open(&chunks) } else { frames(&chunks) }
    }

    fn whole(said: &Said) -> String {
        let calls: Vec<String> = said
            .whole_calls()
            .into_iter()
            .map(|(id, name, arguments)| {
                let id = id.map_or_else(String::new, |id| format!(r#","id":{}"#, quoted(&id)));
                let (name, arguments) = (quoted(&name), quoted(&arguments));
                format!(r#"{{"type":"function","function":{{"name":{name},"arguments":{arguments}}}{id}}}"#)
            })
            .collect();
        let refusal = if said.ending == Ending::Refused { "\"I cannot.\"" } else { "null" };
        let usage = usage(said).map_or_else(String::new, |usage| format!(r#","usage":{usage}"#));
        format!(
            r#"{{"id":"x","object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant","content":{},"refusal":{refusal},"tool_calls":[{}]}},"finish_reason":"{}"}}]{usage}}}"#,
            quoted(&said.whole_text()),
            calls.join(","),
            reason(said)
        )
    }

    fn refusal(trouble: Trouble, words: &str) -> (&'static str, String) {
        let (status, kind, code) = match trouble {
            Trouble::WrongKey => ("401 Unauthorized", "invalid_request_error", "\"invalid_api_key\""),
            Trouble::Forbidden => ("403 Forbidden", "permission_error", "null"),
            Trouble::NoSuchModel => ("404 Not Found", "invalid_request_error", "\"model_not_found\""),
            Trouble::Busy => ("429 Too Many Requests", "requests", "\"rate_limit_exceeded\""),
            Trouble::TooLong => ("400 Bad Request", "invalid_request_error", "\"context_length_exceeded\""),
            Trouble::Broken => ("500 Internal Server Error", "server_error", "null"),
            Trouble::Overloaded => ("503 Service Unavailable", "server_error", "null"),
        };
        (status, error(words, kind, code))
    }

    fn trouble_in_stream(trouble: Trouble, words: &str) -> String {
        let (kind, code) = match trouble {
            Trouble::Busy => ("requests", "\"rate_limit_exceeded\""),
            _ => ("server_error", "500"),
        };
        frames_open(&[&error(words, kind, code)])
    }

    fn asked(body: &str) -> Asked {
        let body: Body = serde_json::from_str(body).unwrap();
        assert_eq!(body.model, "demo");
        assert!(body.stream);
        let mut asked = Asked {
            instructions: None,
            messages: Vec::new(),
            tools: Vec::new(),
            max_output_tokens: body.max_tokens,
        };
        for message in body.messages {
            let text = message.content.unwrap_or_default();
            match message.role.as_str() {
                "system" => asked.instructions = Some(text),
                "user" => asked.messages.push(Told::User(text)),
                "tool" => asked.messages.push(Told::Output { id: message.tool_call_id, output: text }),
                "assistant" => {
                    if !text.is_empty() {
                        asked.messages.push(Told::Assistant(text));
                    }
                    asked.messages.extend(message.tool_calls.into_iter().map(|call| Told::Call {
                        id: Some(call.id),
                        name: call.function.name,
                        arguments: call.function.arguments,
                    }));
                }
                other => panic!("{other}"),
            }
        }
        asked.tools = body
            .tools
            .into_iter()
            .map(|tool| {
                let function = tool.function;
                (function.name, function.description, function.parameters.get().to_owned())
            })
            .collect();
        asked
    }
}

fn reason(said: &Said) -> &'static str {
    match said.ending {
        Ending::Length => "length",
        _ if said.call_count() > 0 => "tool_calls",
        _ => "stop",
    }
}

fn usage(said: &Said) -> Option<String> {
    let usage = said.usage;
    let input = usage.input_tokens?;
    let output = usage.output_tokens?;
    let cached = usage
        .cached_input_tokens
        .map_or_else(String::new, |count| format!(r#","prompt_tokens_details":{{"cached_tokens":{count}}}"#));
    let reasoning = usage.reasoning_tokens.map_or_else(String::new, |count| {
        format!(r#","completion_tokens_details":{{"reasoning_tokens":{count}}}"#)
    });
    Some(format!(r#"{{"prompt_tokens":{input},"completion_tokens":{output}{cached}{reasoning}}}"#))
}

fn error(words: &str, kind: &str, code: &str) -> String {
    let words = quoted(words);
    format!(r#"{{"error":{{"message":{words},"type":"{kind}","param":null,"code":{code}}}}}"#)
}

#[derive(Deserialize)]
struct Body<'a> {
    model: String,
    stream: bool,
    max_tokens: u64,
    messages: Vec<Message>,
    #[serde(borrow, default)]
    tools: Vec<Tool<'a>>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<String>,
    tool_call_id: Option<String>,
    #[serde(default)]
    tool_calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    id: String,
    function: CalledFunction,
}

#[derive(Deserialize)]
struct CalledFunction {
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(borrow)]
    function: Function<'a>,
}

#[derive(Deserialize)]
struct Function<'a> {
    name: String,
    description: String,
    #[serde(borrow)]
    parameters: &'a RawValue,
}
