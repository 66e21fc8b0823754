//! What the server is sent.

use countersign_approval_core::ids::{CallId, ModelId, ToolName};
use countersign_approval_core::json::{Exact, Gate};
use countersign_approval_core::snapshot::ToolCall;
use countersign_driver::provider::{AssistantMessage, Message, Provider, ToolDefinition, TurnRequest};
use countersign_providers::{Delivery, OpenAiResponses, OpenAiResponsesConfig, ResponsesVendor};

use super::config;
use crate::heard::{Came, Heard, answer, ask, assistant, request, user};
use crate::server::{Reply, Saw, Server, header};

/// The whole body of a second step, literally: earlier items as they came, what has no item told plainly, and nothing
/// kept at the vendor. xAI's differs by what it does not know.
#[tokio::test]
async fn the_body() {
    for (vendor, strict) in [(ResponsesVendor::OpenAi, r#","strict":false"#), (ResponsesVendor::Xai, "")] {
        let mut server = Server::start(Reply::object("{}")).await;
        let config = OpenAiResponsesConfig { vendor, ..config(server.url()) };
        let provider = OpenAiResponses::new(config).unwrap();
        let call = |id: &str| ToolCall {
            id: CallId::parse(id).unwrap(),
            name: ToolName::parse("save").unwrap(),
            arguments: Exact::parse(r#"{ "n" : 1.0 }"#).unwrap(),
        };
        let output = |id: &str, text| Message::Tool {
            call_id: CallId::parse(id).unwrap(),
            name: ToolName::parse("save").unwrap(),
            output: Exact::parse_with(text, Gate::OUTPUT).unwrap(),
        };
        let native = r#"[{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA"},{ "type":"function_call", "call_id":"c1","name":"save","arguments":"{ \"n\" : 1.0 }" ,"id":"fc_1"}]"#;
        let messages = [
            user("before"),
            assistant("said"),
            user("Save \"it\" \u{1f600}"),
            Message::Assistant(AssistantMessage {
                text: String::new(),
                calls: vec![call("c1")],
                native: Some(native.into()),
            }),
            output("c1", r#"{"n":12345678901234567890.5}"#),
            Message::Assistant(AssistantMessage {
                text: "Again.".to_owned(),
                calls: vec![call("c2")],
                native: None,
            }),
            output("c2", r#""text""#),
        ];
        let tools = [ToolDefinition {
            name: ToolName::parse("save").unwrap(),
            description: "Saves".to_owned(),
            input_schema: Exact::parse_with(r#"{"type":"object","maxProperties":1e2}"#, Gate::OUTPUT)
                .unwrap(),
        }];
        let model = ModelId::parse("demo").unwrap();
        let request = TurnRequest {
            instructions: Some("Be brief."),
            tools: &tools,
            max_output_tokens: 600,
            ..request(&model, &messages)
        };
        let _ = provider.turn(request, &Heard::default()).await;
        let Saw::Request { head, body } = server.saw().await else { panic!() };
        assert!(head.starts_with("POST /v1/responses HTTP/1.1\r\n"), "{head}");
        let expected = [
            r#"{"model":"demo","instructions":"Be brief.","input":["#,
            r#"{"role":"user","content":"before"},"#,
            r#"{"role":"assistant","content":"said"},"#,
            r#"{"role":"user","content":"Save \"it\" 😀"},"#,
            &native[1..native.len() - 1],
            r#",{"type":"function_call_output","call_id":"c1","output":"{\"n\":12345678901234567890.5}"},"#,
            r#"{"role":"assistant","content":"Again."},"#,
            r#"{"type":"function_call","call_id":"c2","name":"save","arguments":"{\"n\":1.0}"},"#,
            r#"{"type":"function_call_output","call_id":"c2","output":"\"text\""}],"#,
            r#""tools":[{"type":"function","name":"save","description":"Saves","#,
            r#""parameters":{"type":"object","maxProperties":1e2}"#,
            strict,
            r#"}],"max_output_tokens":600,"stream":true,"store":false,"#,
            r#""include":["reasoning.encrypted_content"]}"#,
        ];
        assert_eq!(body, expected.concat());
    }
}

#[tokio::test]
async fn asking_for_one_object() {
    let whole = r#"{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}]}"#;
    let mut server = Server::start(Reply::object(whole)).await;
    let config = OpenAiResponsesConfig { delivery: Delivery::Whole, ..config(server.url()) };
    let provider = OpenAiResponses::new(config).unwrap();
    assert!(!provider.info().capabilities.text_streaming);
    let (turn, _) = ask(&provider, &[user("Hello")]).await;
    assert_eq!(Came::of(&turn), answer("hi", &[]));
    let Saw::Request { head, body } = server.saw().await else { panic!() };
    assert_eq!(header(&head, "accept"), Some("application/json"));
    assert!(body.contains(r#""stream":false"#), "{body}");
}

#[test]
fn the_vendors() {
    for (vendor, name, url) in [
        (ResponsesVendor::OpenAi, "openai", "https://api.openai.com/v1"),
        (ResponsesVendor::Xai, "xai", "https://api.x.ai/v1"),
    ] {
        assert_eq!(vendor.base_url(), url);
        let base_url = url::Url::parse("http://127.0.0.1/v1").unwrap();
        let provider = OpenAiResponses::new(OpenAiResponsesConfig { vendor, ..config(base_url) }).unwrap();
        assert_eq!(provider.info().vendor, name);
        assert!(provider.info().capabilities.has("safeRetries"));
    }
}
