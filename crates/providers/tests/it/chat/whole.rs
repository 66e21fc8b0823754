//! Answers in one object (contract 11: a 200 that is no stream is read as the final object).

use countersign_driver::provider::Provider;
use countersign_protocol::code::Code;
use countersign_providers::{Delivery, OpenAiChat, OpenAiChatConfig};

use super::wire::{finish, frames};
use super::{config, play};
use crate::heard::{Came, answer, ask, failure, user};
use crate::server::{End, Reply, Saw, Server};

fn message(message: &str, reason: &str) -> String {
    format!(
        r#"{{"id":"x","choices":[{{"index":0,"message":{message},"finish_reason":"{reason}"}}],"usage":{{"prompt_tokens":5}}}}"#
    )
}

#[tokio::test]
async fn one_object() {
    let refused = || failure(Code::INVALID_PROVIDER_RESPONSE);
    let two = r#"{"role":"assistant","content":"","tool_calls":[
        {"type":"function","function":{"name":"f","arguments":"{\"k\": 1.0}"},"id":"a"},
        {"type":"function","function":{"name":"f","arguments":"{}"},"id":"b"}]}"#;
    let rows = [
        ("text", message(r#"{"content":"hi"}"#, "stop"), answer("hi", &[])),
        ("no text", message(r#"{"content":null}"#, "stop"), answer("", &[])),
        (
            "M7: two calls",
            message(two, "tool_calls"),
            answer("", &[("a", "f", r#"{"k": 1.0}"#), ("b", "f", "{}")]),
        ),
        (
            "calls with stop",
            message(two, "stop"),
            answer("", &[("a", "f", r#"{"k": 1.0}"#), ("b", "f", "{}")]),
        ),
        (
            "M3: a call that was cut, as llama.cpp answers: text, and not a call",
            message(
                r#"{"role":"assistant","content":"{\n  \"tool_call\": {\"name\": \"f\", \"arguments\": {\"k"}"#,
                "length",
            ),
            Came::Answer {
                text: "{\n  \"tool_call\": {\"name\": \"f\", \"arguments\": {\"k".to_owned(),
                calls: Vec::new(),
                finish: "Length".to_owned(),
            },
        ),
        ("M3: calls with length", message(two, "length"), failure(Code::TRUNCATED_TOOL_CALL)),
        (
            "no id: the driver's to refuse",
            message(r#"{"tool_calls":[{"function":{"name":"f","arguments":null}}]}"#, "tool_calls"),
            answer("", &[("", "f", "")]),
        ),
        (
            "arguments as an object",
            message(r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}}]}"#, "tool_calls"),
            refused(),
        ),
        ("a custom call", message(r#"{"tool_calls":[{"id":"a","type":"custom"}]}"#, "tool_calls"), refused()),
        (
            "M7: a legacy call",
            message(r#"{"content":null,"function_call":{"name":"f","arguments":"{}"}}"#, "stop"),
            refused(),
        ),
        ("no call", message(r#"{"content":"x"}"#, "tool_calls"), refused()),
        ("a filter", message(r#"{"content":""}"#, "content_filter"), failure(Code::PROVIDER_REFUSAL)),
        ("a refusal", message(r#"{"content":null,"refusal":"no"}"#, "stop"), failure(Code::PROVIDER_REFUSAL)),
        ("no reason", message(r#"{"content":"x"}"#, ""), refused()),
        ("no message", r#"{"choices":[{"finish_reason":"stop"}]}"#.to_owned(), refused()),
        ("no choice", r#"{"choices":[]}"#.to_owned(), refused()),
        ("not JSON", "<html>".to_owned(), refused()),
        ("two values", "{}{}".to_owned(), refused()),
        ("nothing", String::new(), refused()),
        (
            "an error",
            r#"{"error":{"code":429}}"#.to_owned(),
            Came::Failure { code: Code::RATE_LIMITED, retryable: true },
        ),
    ];
    for (name, body, expected) in rows {
        let (turn, heard) = play(Reply::object(body).pieces_of(7)).await;
        assert_eq!(Came::of(&turn), expected, "{name}");
        assert!(heard.pieces().is_empty(), "{name}: a whole answer is not streamed");
        if let Ok(turn) = turn {
            assert_eq!(turn.usage.unwrap().input_tokens, Some(5), "{name}");
        }
    }
    let (turn, _) = play(Reply::object(message(r#"{"content":"hi"}"#, "stop")).ending(End::Cut)).await;
    assert_eq!(Came::of(&turn), failure(Code::INCOMPLETE_STREAM));
}

/// `Delivery::Whole` asks for one object, says so, and still reads a stream if that is what comes.
#[tokio::test]
async fn asking_for_one_object() {
    for reply in [
        Reply::object(message(r#"{"content":"hi"}"#, "stop")),
        Reply::stream(frames(&[r#"{"choices":[{"delta":{"content":"hi"}}]}"#, &finish("stop")])),
    ] {
        let mut server = Server::start(reply).await;
        let provider =
            OpenAiChat::new(OpenAiChatConfig { delivery: Delivery::Whole, ..config(server.url()) }).unwrap();
        assert!(!provider.info().capabilities.text_streaming);
        let (turn, _) = ask(&provider, &[user("Hello")]).await;
        assert_eq!(Came::of(&turn), answer("hi", &[]));
        let Saw::Request { body, .. } = server.saw().await else { panic!() };
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["stream"], false);
        assert!(body.get("stream_options").is_none());
    }
}
