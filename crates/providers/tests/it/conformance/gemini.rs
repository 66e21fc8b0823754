//! Gemini's generateContent in the suite, after its public documentation.

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::Provider;
use countersign_providers::{Error, Gemini, GeminiConfig};
use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;

use super::conformance;
use super::vendor::{Asked, Ending, Part, Said, Told, Trouble, Unsayable, Vendor, quoted, without_space};
use crate::gemini::wire::{frame, parts};

struct GenerateContent;

conformance!(GenerateContent);

impl Vendor for GenerateContent {
    const CANNOT: &'static [Unsayable] = &[Unsayable::ArgumentsThatAreNotJson, Unsayable::CallsWithoutId];
    const KEY_HEADER: (&'static str, &'static str) = ("x-goog-api-key", "");

    fn provider(server: Url, key: &str) -> Result<Box<dyn Provider>, Error> {
        Ok(Box::new(Gemini::new(GeminiConfig {
            id: ProviderId::parse("local").unwrap(),
            name: None,
            base_url: server,
            api_key: Some(key.into()),
            models: vec![ModelId::parse("demo").unwrap()],
        })?))
    }

    fn stream(said: &Said) -> String {
        let calls = said.whole_calls();
        let mut chunks = Vec::new();
        for part in &said.parts {
            match part {
                Part::Text(text) => chunks.push(parts(&format!(r#"{{"text":{}}}"#, quoted(text)))),
                Part::Reasoning(opaque) => chunks.push(parts(&format!(
                    r#"{{"text":"Hm.","thought":true,"thoughtSignature":{}}}"#,
                    quoted(opaque)
                ))),
                // It comes whole, wherever its fragments are.
                Part::Call { call, .. } => chunks.push(parts(&function_call(&calls[*call]))),
                Part::Arguments { .. } => {}
            }
        }
        if said.ending != Ending::Open {
            chunks.push(frame(&last(said, "")));
        }
        chunks.concat()
    }

    fn whole(said: &Said) -> String {
        let mut parts = Vec::new();
        if !said.whole_text().is_empty() {
            parts.push(format!(r#"{{"text":{}}}"#, quoted(&said.whole_text())));
        }
        parts.extend(said.whole_calls().iter().map(function_call));
        last(said, &format!(r#""content":{{"parts":[{}],"role":"model"}},"#, parts.join(",")))
    }

    fn refusal(trouble: Trouble, words: &str) -> (&'static str, String) {
        let (line, code, status, details) = match trouble {
            Trouble::WrongKey => (
                "400 Bad Request",
                400,
                "INVALID_ARGUMENT",
                r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}"#,
            ),
            Trouble::Forbidden => ("403 Forbidden", 403, "PERMISSION_DENIED", ""),
            Trouble::NoSuchModel => ("404 Not Found", 404, "NOT_FOUND", ""),
            Trouble::Busy => ("429 Too Many Requests", 429, "RESOURCE_EXHAUSTED", ""),
            Trouble::TooLong => ("400 Bad Request", 400, "INVALID_ARGUMENT", ""),
            Trouble::Broken => ("500 Internal Server Error", 500, "INTERNAL", ""),
            Trouble::Overloaded => ("503 Service Unavailable", 503, "UNAVAILABLE", ""),
        };
        (line, error(code, status, details, words))
    }

    fn trouble_in_stream(trouble: Trouble, words: &str) -> String {
        frame(&match trouble {
            Trouble::Busy => error(429, "RESOURCE_EXHAUSTED", "", words),
            Trouble::Overloaded => error(503, "UNAVAILABLE", "", words),
            _ => error(500, "INTERNAL", "", words),
        })
    }

    fn asked(body: &str) -> Asked {
        let body: Body<'_> = serde_json::from_str(body).unwrap();
        let mut asked = Asked {
            instructions: body.system_instruction.map(|told| told.parts[0].text.clone().unwrap()),
            messages: Vec::new(),
            tools: Vec::new(),
            max_output_tokens: body.generation_config.max_output_tokens,
        };
        let mut last = String::new();
        for content in body.contents {
            let role = content.role.unwrap();
            assert_ne!(role, last, "the roles take turns");
            for part in content.parts {
                asked.messages.push(match (part, role.as_str()) {
                    (ToldPart { thought_signature: Some(opaque), thought: Some(true), .. }, "model") => {
                        Told::Reasoning(opaque)
                    }
                    (ToldPart { text: Some(text), .. }, "user") => Told::User(text),
                    (ToldPart { text: Some(text), .. }, "model") => Told::Assistant(text),
                    (ToldPart { function_call: Some(call), .. }, "model") => Told::Call {
                        id: call.id,
                        name: call.name,
                        arguments: call.args.map_or("{}".to_owned(), |args| without_space(args.get())),
                    },
                    (ToldPart { function_response: Some(told), .. }, "user") => {
                        Told::Output { id: told.id, output: told.response.result.get().to_owned() }
                    }
                    _ => panic!("a part of {role}"),
                });
            }
            last = role;
        }
        let declared = body.tools.into_iter().flat_map(|tools| tools.function_declarations);
        asked.tools = declared
            .map(|tool| (tool.name, tool.description, tool.parameters_json_schema.get().to_owned()))
            .collect();
        asked
    }
}

fn function_call((id, name, arguments): &(Option<String>, String, String)) -> String {
    let id = id.as_ref().map_or_else(String::new, |id| format!(r#""id":{},"#, quoted(id)));
    let args = if arguments.is_empty() { String::new() } else { format!(r#","args":{arguments}"#) };
    format!(r#"{{"functionCall":{{{id}"name":{}{args}}}}}"#, quoted(name))
}

/// The chunk that ends an answer, or all of one; `content` is what stands in its candidate.
fn last(said: &Said, content: &str) -> String {
    let usage = usage(said).map_or_else(String::new, |usage| format!(r#","usageMetadata":{usage}"#));
    if said.ending == Ending::Refused && said.parts.is_empty() {
        return format!(r#"{{"promptFeedback":{{"blockReason":"SAFETY"}}{usage}}}"#);
    }
    let reason = match said.ending {
        Ending::Length => "MAX_TOKENS",
        Ending::Refused => "SAFETY",
        Ending::Done | Ending::Open => "STOP",
    };
    format!(
        r#"{{"candidates":[{{{content}"finishReason":"{reason}","index":0}}]{usage},"modelVersion":"demo","responseId":"r"}}"#
    )
}

/// Thoughts stand apart from the rest of the output.
fn usage(said: &Said) -> Option<String> {
    let (input, output) = (said.usage.input_tokens?, said.usage.output_tokens?);
    let thought = said.usage.reasoning_tokens;
    let thoughts = thought.map_or_else(String::new, |count| format!(r#","thoughtsTokenCount":{count}"#));
    let cached = said.usage.cached_input_tokens;
    let cached = cached.map_or_else(String::new, |count| format!(r#","cachedContentTokenCount":{count}"#));
    let said = output - thought.unwrap_or(0);
    Some(format!(r#"{{"promptTokenCount":{input},"candidatesTokenCount":{said}{thoughts}{cached}}}"#))
}

fn error(code: u16, status: &str, details: &str, words: &str) -> String {
    let message = quoted(words);
    format!(r#"{{"error":{{"code":{code},"message":{message},"status":"{status}","details":[{details}]}}}}"#)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow)]
    system_instruction: Option<Content<'a>>,
    #[serde(borrow)]
    contents: Vec<Content<'a>>,
    #[serde(borrow, default)]
    tools: Vec<Tools<'a>>,
    generation_config: GenerationConfig,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    max_output_tokens: u64,
}

#[derive(Deserialize)]
struct Content<'a> {
    role: Option<String>,
    #[serde(borrow)]
    parts: Vec<ToldPart<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToldPart<'a> {
    text: Option<String>,
    thought: Option<bool>,
    thought_signature: Option<String>,
    #[serde(borrow)]
    function_call: Option<Call<'a>>,
    #[serde(borrow)]
    function_response: Option<Response<'a>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    id: Option<String>,
    name: String,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Response<'a> {
    id: Option<String>,
    #[serde(borrow)]
    response: Output<'a>,
}

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow)]
    result: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    #[serde(borrow)]
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: String,
    description: String,
    #[serde(borrow)]
    parameters_json_schema: &'a RawValue,
}
