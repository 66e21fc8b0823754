//! What the server is sent.

use countersign_approval_core::ids::{CallId, ModelId, ToolName};
use countersign_approval_core::json::{Exact, Gate};
use countersign_approval_core::snapshot::ToolCall;
use countersign_driver::provider::{AssistantMessage, Message, Provider, ToolDefinition, TurnRequest};
use countersign_providers::OpenAiChat;

use super::config;
use crate::heard::{Heard, assistant, user};
use crate::server::{Reply, Saw, Server, header};

/// The whole body of a second step, literally: calls are told again in the text that was executed (M13), outputs as
/// they were, and what has no value is left out.
#[tokio::test]
async fn the_body() {
    let mut server = Server::start(Reply::object("{}")).await;
    let provider = OpenAiChat::new(config(server.url())).unwrap();
    let call = |id: &str, arguments| ToolCall {
        id: CallId::parse(id).unwrap(),
        name: ToolName::parse("save").unwrap(),
        arguments: Exact::parse(arguments).unwrap(),
    };
    let output = |id: &str, text| Message::Tool {
        call_id: CallId::parse(id).unwrap(),
        name: ToolName::parse("save").unwrap(),
        output: Exact::parse_with(text, Gate::OUTPUT).unwrap(),
    };
    let told = |text: &str, calls| {
        Message::Assistant(AssistantMessage { text: text.to_owned(), calls, native: None })
    };
    let messages = [
        user("before"),
        assistant("said"),
        assistant(""),
        user("Save \"it\" 😀"),
        told("", vec![call("c1", r#"{ "n" : 1.0, "s": "\u0041" }"#), call("c2", "{}")]),
        output("c1", r#"{"n":12345678901234567890.5}"#),
        output("c2", "null"),
        told("again", vec![call("c3", "{}")]),
        output("c3", r#""text""#),
    ];
    let tools = [ToolDefinition {
        name: ToolName::parse("save").unwrap(),
        description: "Saves".to_owned(),
        input_schema: Exact::parse_with(r#"{"type":"object","maxProperties":1e2}"#, Gate::OUTPUT).unwrap(),
    }];
    let model = ModelId::parse("demo").unwrap();
    let request = TurnRequest {
        instructions: Some("Be brief."),
        tools: &tools,
        max_output_tokens: 600,
        ..crate::heard::request(&model, &messages)
    };
    let _ = provider.turn(request, &Heard::default()).await;
    let Saw::Request { head, body } = server.saw().await else { panic!() };
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{head}");
    assert_eq!(header(&head, "content-type"), Some("application/json"));
    assert_eq!(header(&head, "accept"), Some("text/event-stream"));
    let expected = concat!(
        r#"{"model":"demo","messages":["#,
        r#"{"role":"system","content":"Be brief."},"#,
        r#"{"role":"user","content":"before"},"#,
        r#"{"role":"assistant","content":"said"},"#,
        r#"{"role":"assistant","content":""},"#,
        r#"{"role":"user","content":"Save \"it\" 😀"},"#,
        r#"{"role":"assistant","content":null,"tool_calls":["#,
        r#"{"id":"c1","type":"function","function":{"name":"save","arguments":"{\"n\":1.0,\"s\":\"\\u0041\"}"}},"#,
        r#"{"id":"c2","type":"function","function":{"name":"save","arguments":"{}"}}]},"#,
        r#"{"role":"tool","content":"{\"n\":12345678901234567890.5}","tool_call_id":"c1"},"#,
        r#"{"role":"tool","content":"null","tool_call_id":"c2"},"#,
        r#"{"role":"assistant","content":"again","tool_calls":["#,
        r#"{"id":"c3","type":"function","function":{"name":"save","arguments":"{}"}}]},"#,
        r#"{"role":"tool","content":"\"text\"","tool_call_id":"c3"}],"#,
        r#""tools":[{"type":"function","function":{"name":"save","description":"Saves","#,
        r#""parameters":{"type":"object","maxProperties":1e2}}}],"#,
        r#""max_tokens":600,"stream":true,"stream_options":{"include_usage":true}}"#,
    );
    assert_eq!(body, expected);
}

/// Without tools and instructions there is no trace of them.
#[tokio::test]
async fn the_least_body() {
    let mut server = Server::start(Reply::object("{}")).await;
    let mut url = server.url();
    url.set_path("/");
    let provider = OpenAiChat::new(config(url)).unwrap();
    let (model, messages) = (ModelId::parse("demo").unwrap(), [user("x")]);
    let request = TurnRequest { instructions: Some(""), ..crate::heard::request(&model, &messages) };
    let _ = provider.turn(request, &Heard::default()).await;
    let Saw::Request { head, body } = server.saw().await else { panic!() };
    assert!(head.starts_with("POST /chat/completions HTTP/1.1\r\n"), "{head}");
    let expected = concat!(
        r#"{"model":"demo","messages":[{"role":"user","content":"x"}],"#,
        r#""max_tokens":4096,"stream":true,"stream_options":{"include_usage":true}}"#,
    );
    assert_eq!(body, expected);
}
