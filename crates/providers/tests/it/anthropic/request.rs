//! What the server is sent.

use countersign_approval_core::ids::{CallId, ModelId, ToolName};
use countersign_approval_core::json::{Exact, Gate};
use countersign_approval_core::snapshot::ToolCall;
use countersign_driver::provider::{
    AssistantMessage, Message, Provider, RetryPolicy, ToolDefinition, TurnRequest,
};
use countersign_providers::Anthropic;

use super::config;
use super::wire::{begin, delta, end, event, finish, start};
use crate::heard::{Heard, ask, assistant, request, user};
use crate::server::{Reply, Saw, Server, header};

fn tool(name: &str, schema: &str) -> ToolDefinition {
    ToolDefinition {
        name: ToolName::parse(name).unwrap(),
        description: "Does it".to_owned(),
        input_schema: Exact::parse_with(schema, Gate::OUTPUT).unwrap(),
    }
}

fn output(id: &str, text: &str) -> Message {
    Message::Tool {
        call_id: CallId::parse(id).unwrap(),
        name: ToolName::parse("save").unwrap(),
        output: Exact::parse_with(text, Gate::OUTPUT).unwrap(),
    }
}

fn told(text: &str, calls: &[(&str, &str)], native: Option<&str>) -> Message {
    let calls = calls.iter().map(|(id, arguments)| ToolCall {
        id: CallId::parse(id).unwrap(),
        name: ToolName::parse("save").unwrap(),
        arguments: Exact::parse(arguments).unwrap(),
    });
    Message::Assistant(AssistantMessage {
        text: text.to_owned(),
        calls: calls.collect(),
        native: native.map(Into::into),
    })
}

/// The whole body of a second step, literally: neighbours of one role are one message, blank text is left out, a schema
/// says that it is an object's.
#[tokio::test]
async fn the_body() {
    let mut server = Server::start(Reply::object("{}")).await;
    let provider = Anthropic::new(config(server.url())).unwrap();
    let native = r#"[{"type":"redacted_thinking","data":"x"},{"type":"tool_use","id":"c3","name":"save","input":{ }}]"#;
    let messages = [
        user("before"),
        user(" \n"),
        assistant("said"),
        assistant(""),
        user("Save \"it\" 😀"),
        told("I save.", &[("c1", r#"{ "n" : 1.0 }"#), ("c2", "{}")], None),
        output("c1", r#"{"n":1.50}"#),
        output("c2", "null"),
        told("", &[("c3", "{}")], Some(native)),
        output("c3", r#""text""#),
    ];
    let tools = [
        tool("a", r#"{"type":"object","maxProperties":1e2}"#),
        tool("b", "{}"),
        tool("c", r#"{"properties":{"type":{}}}"#),
        tool("d", "true"),
    ];
    let model = ModelId::parse("demo").unwrap();
    let request = TurnRequest {
        model: &model,
        instructions: Some("Be brief."),
        messages: &messages,
        tools: &tools,
        max_output_tokens: 600,
        retry: RetryPolicy::default(),
    };
    let _ = provider.turn(request, &Heard::default()).await;
    let Saw::Request { head, body } = server.saw().await else { panic!() };
    assert!(head.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{head}");
    assert_eq!(header(&head, "anthropic-version"), Some("2023-06-01"));
    assert_eq!(header(&head, "authorization"), None);
    let expected = concat!(
        r#"{"model":"demo","max_tokens":600,"system":"Be brief.","messages":["#,
        r#"{"role":"user","content":[{"type":"text","text":"before"}]},"#,
        r#"{"role":"assistant","content":[{"type":"text","text":"said"}]},"#,
        r#"{"role":"user","content":[{"type":"text","text":"Save \"it\" 😀"}]},"#,
        r#"{"role":"assistant","content":[{"type":"text","text":"I save."},"#,
        r#"{"type":"tool_use","id":"c1","name":"save","input":{"n":1.0}},"#,
        r#"{"type":"tool_use","id":"c2","name":"save","input":{}}]},"#,
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"{\"n\":1.50}"},"#,
        r#"{"type":"tool_result","tool_use_id":"c2","content":"null"}]},"#,
        r#"{"role":"assistant","content":[{"type":"redacted_thinking","data":"x"},"#,
        r#"{"type":"tool_use","id":"c3","name":"save","input":{ }}]},"#,
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c3","content":"\"text\""}]}],"#,
        r#""tools":[{"name":"a","description":"Does it","input_schema":{"type":"object","maxProperties":1e2}},"#,
        r#"{"name":"b","description":"Does it","input_schema":{"type":"object"}},"#,
        r#"{"name":"c","description":"Does it","input_schema":{"type":"object","properties":{"type":{}}}},"#,
        r#"{"name":"d","description":"Does it","input_schema":true}],"stream":true}"#,
    );
    assert_eq!(body, expected);
}

/// M11: what the model thought is kept for the next step, block by block; blank text and thoughts of a last turn are not.
#[tokio::test]
async fn what_is_kept() {
    let thinking = begin(0, r#""type":"thinking","thinking":"","signature":"""#)
        + &delta(0, "thinking_delta", "thinking", "H")
        + &delta(0, "thinking_delta", "thinking", "m")
        + &delta(0, "signature_delta", "signature", "Sig")
        + &end(0)
        + &begin(1, r#""type":"redacted_thinking","data":"Data""#)
        + &end(1)
        + &begin(2, r#""type":"text","text":"\n\n""#)
        + &end(2);
    let call = begin(3, r#""type":"tool_use","id":"c","name":"save","input":{}"#)
        + &delta(3, "input_json_delta", "partial_json", r#"{ "n":"#)
        + &delta(3, "input_json_delta", "partial_json", "1.0}")
        + &end(3);
    let kept = concat!(
        r#"[{"type":"thinking","thinking":"Hm","signature":"Sig"},{"type":"redacted_thinking","data":"Data"},"#,
        r#"{"type":"tool_use","id":"c","name":"save","input":{ "n":1.0}}]"#,
    );
    for (call, reason, expected) in [(call.as_str(), "tool_use", Some(kept)), ("", "end_turn", None)] {
        let stream =
            [start("{}"), thinking.clone(), call.to_owned(), finish(reason, None), event("message_stop", "")];
        let server = Server::start(Reply::stream(stream.concat())).await;
        let (turn, _) = ask(&Anthropic::new(config(server.url())).unwrap(), &[user("x")]).await;
        assert_eq!(turn.unwrap().native.as_deref(), expected);
    }
}

/// Without tools and instructions there is no trace of them.
#[tokio::test]
async fn the_least_body() {
    let mut server = Server::start(Reply::object("{}")).await;
    let mut url = server.url();
    url.set_path("/");
    let provider = Anthropic::new(config(url)).unwrap();
    let (model, messages) = (ModelId::parse("demo").unwrap(), [user("x")]);
    let request = TurnRequest { instructions: Some(" "), ..request(&model, &messages) };
    let _ = provider.turn(request, &Heard::default()).await;
    let Saw::Request { head, body } = server.saw().await else { panic!() };
    assert!(head.starts_with("POST /messages HTTP/1.1\r\n"), "{head}");
    let expected = concat!(
        r#"{"model":"demo","max_tokens":4096,"messages":"#,
        r#"[{"role":"user","content":[{"type":"text","text":"x"}]}],"stream":true}"#,
    );
    assert_eq!(body, expected);
}
