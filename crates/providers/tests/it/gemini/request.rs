//! What the server is sent.

use countersign_approval_core::ids::{CallId, ModelId, ToolName};
use countersign_approval_core::json::{Exact, Gate};
use countersign_approval_core::snapshot::ToolCall;
use countersign_driver::provider::{
    AssistantMessage, Message, Provider, RetryPolicy, ToolDefinition, Turn, TurnRequest,
};
use countersign_providers::Gemini;

use super::wire::{finish, parts};
use super::{config, play};
use crate::heard::{Heard, assistant, request, user};
use crate::server::{Reply, Saw, Server, header};

fn output(id: &str, text: &str) -> Message {
    Message::Tool {
        call_id: CallId::parse(id).unwrap(),
        name: ToolName::parse("save").unwrap(),
        output: Exact::parse_with(text, Gate::OUTPUT).unwrap(),
    }
}

fn told(text: &str, calls: &[(&str, &str)], native: Option<Box<str>>) -> Message {
    let calls = calls.iter().map(|(id, arguments)| ToolCall {
        id: CallId::parse(id).unwrap(),
        name: ToolName::parse("save").unwrap(),
        arguments: Exact::parse(arguments).unwrap(),
    });
    Message::Assistant(AssistantMessage { text: text.to_owned(), calls: calls.collect(), native })
}

async fn body_of(messages: &[Message]) -> (String, String) {
    let mut server = Server::start(Reply::object("{}")).await;
    let provider = Gemini::new(config(server.url())).unwrap();
    let model = ModelId::parse("demo").unwrap();
    let _ = provider.turn(request(&model, messages), &Heard::default()).await;
    let Saw::Request { head, body } = server.saw().await else { panic!() };
    (head, body)
}

/// The whole body of a second step, literally.
#[tokio::test]
async fn the_body() {
    let mut server = Server::start(Reply::object("{}")).await;
    let provider = Gemini::new(config(server.url())).unwrap();
    let messages = [
        user("before"),
        user(""),
        assistant("said"),
        assistant(""),
        user("Save \"it\" 😀"),
        told("I save.", &[("c1", r#"{ "n" : 1.0 }"#), ("c2", "{}")], None),
        output("c1", r#"{"n":1.50}"#),
        output("c2", "null"),
    ];
    let tools = [ToolDefinition {
        name: ToolName::parse("save").unwrap(),
        description: "Saves".to_owned(),
        input_schema: Exact::parse_with(r#"{"type":"object","maxProperties":1e2}"#, Gate::OUTPUT).unwrap(),
    }];
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
    assert!(head.starts_with("POST /v1/models/demo:streamGenerateContent?alt=sse HTTP/1.1\r\n"), "{head}");
    assert_eq!(header(&head, "authorization"), None);
    let expected = concat!(
        r#"{"systemInstruction":{"parts":[{"text":"Be brief."}]},"contents":["#,
        r#"{"role":"user","parts":[{"text":"before"}]},"#,
        r#"{"role":"model","parts":[{"text":"said"}]},"#,
        r#"{"role":"user","parts":[{"text":"Save \"it\" 😀"}]},"#,
        r#"{"role":"model","parts":[{"text":"I save."},"#,
        r#"{"functionCall":{"id":"c1","name":"save","args":{"n":1.0}}},"#,
        r#"{"functionCall":{"id":"c2","name":"save","args":{}}}]},"#,
        r#"{"role":"user","parts":["#,
        r#"{"functionResponse":{"id":"c1","name":"save","response":{"result":{"n":1.50}}}},"#,
        r#"{"functionResponse":{"id":"c2","name":"save","response":{"result":null}}}]}],"#,
        r#""tools":[{"functionDeclarations":[{"name":"save","description":"Saves","#,
        r#""parametersJsonSchema":{"type":"object","maxProperties":1e2}}]}],"#,
        r#""generationConfig":{"maxOutputTokens":600}}"#,
    );
    assert_eq!(body, expected);
}

/// M11: parts come back as they were, with their signatures; unsigned text in one piece, unsigned thoughts not at all.
/// An id that the server did not give is not told to it, neither with the call nor with its result.
#[tokio::test]
async fn what_is_kept() {
    let body = parts(r#"{"text":"Hm","thought":true},{"text":"I "}"#)
        + &parts(r#"{"text":"save."}"#)
        + &parts(r#"{"text":"","thoughtSignature":"S1"}"#)
        + &parts(r#"{ "functionCall" : {"name":"save","args":{ "n":1.0 }},"thoughtSignature":"S2","new":1}"#)
        + &parts(r#"{"functionCall":{"id":"theirs","name":"save"}}"#)
        + &finish("STOP");
    let (turn, _) = play(Reply::stream(body)).await;
    let Turn { text, calls, native, .. } = turn.unwrap();
    let kept = concat!(
        r#"[{"text":"I save."},{"text":"","thoughtSignature":"S1"},"#,
        r#"{ "functionCall" : {"name":"save","args":{ "n":1.0 }},"thoughtSignature":"S2","new":1},"#,
        r#"{"functionCall":{"id":"theirs","name":"save"}}]"#,
    );
    assert_eq!(native.as_deref(), Some(kept));
    let ids = [calls[0].id.as_str(), "theirs"];
    let messages = [
        user("x"),
        told(&text, &[(ids[0], r#"{"n":1.0}"#), (ids[1], "{}")], native),
        output(ids[0], "1"),
        output(ids[1], "2"),
    ];
    let (_, body) = body_of(&messages).await;
    let expected = format!(
        concat!(
            r#"{{"contents":[{{"role":"user","parts":[{{"text":"x"}}]}},{{"role":"model","parts":{}}},"#,
            r#"{{"role":"user","parts":[{{"functionResponse":{{"name":"save","response":{{"result":1}}}}}},"#,
            r#"{{"functionResponse":{{"id":"theirs","name":"save","response":{{"result":2}}}}}}]}}],"#,
            r#""generationConfig":{{"maxOutputTokens":4096}}}}"#,
        ),
        kept
    );
    assert_eq!(body, expected);
    // A last turn is not told again.
    let (turn, _) =
        play(Reply::stream(parts(r#"{"text":"x","thoughtSignature":"S"}"#) + &finish("STOP"))).await;
    assert_eq!(turn.unwrap().native, None);
}

/// A model with a path of its own, and a base URL with another one.
#[tokio::test]
async fn addresses() {
    for (base, name, path) in [
        ("/", "demo", "/models/demo:streamGenerateContent?alt=sse"),
        ("/x/v1beta/", "demo", "/x/v1beta/models/demo:streamGenerateContent?alt=sse"),
        ("/v1", "tunedModels/mine-1", "/v1/tunedModels/mine-1:streamGenerateContent?alt=sse"),
        ("/v1", "models/demo", "/v1/models/demo:streamGenerateContent?alt=sse"),
    ] {
        let mut server = Server::start(Reply::object("{}")).await;
        let mut url = server.url();
        url.set_path(base);
        let model = ModelId::parse(name).unwrap();
        let provider = Gemini::new(config(url)).unwrap();
        let _ = provider.turn(request(&model, &[user("x")]), &Heard::default()).await;
        let Saw::Request { head, .. } = server.saw().await else { panic!() };
        assert!(head.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{head}");
    }
}
