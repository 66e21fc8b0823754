//! What Anthropic's Messages API alone has. What every vendor has is in `conformance`.

mod request;
pub(crate) mod wire;

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::{ProviderError, Turn};
use countersign_protocol::code::Code;
use countersign_protocol::result::Usage;
use countersign_providers::{Anthropic, AnthropicConfig};
use url::Url;

use crate::heard::{Came, Heard, Piece, answer, ask, failure, user};
use crate::server::{End, Reply, Server};
use wire::{begin, delta, end, event, finish, start};

pub(crate) fn config(base_url: Url) -> AnthropicConfig {
    AnthropicConfig {
        id: ProviderId::parse("local").unwrap(),
        name: None,
        base_url,
        api_key: Some("sk-ant-test-0123456789".into()),
        models: vec![ModelId::parse("demo").unwrap()],
    }
}

async fn play(reply: Reply) -> (Result<Turn, ProviderError>, Heard) {
    let server = Server::start(reply).await;
    ask(&Anthropic::new(config(server.url())).unwrap(), &[user("Hello")]).await
}

/// A stream of these events, from its start to its end.
fn stream(events: &[String]) -> Reply {
    Reply::stream(start("{}") + &events.concat() + &event("message_stop", ""))
}

fn text(index: u64, text: &str) -> String {
    begin(index, r#""type":"text","text":"""#) + &delta(index, "text_delta", "text", text) + &end(index)
}

fn call(index: u64, input: &str) -> String {
    begin(index, &format!(r#""type":"tool_use","id":"t{index}","name":"save"{input}"#))
}

/// M1, M3, M5: which streams are an answer, and what of them.
#[tokio::test]
async fn streams() {
    let refused = || failure(Code::INVALID_PROVIDER_RESPONSE);
    let piece = |piece: &str| delta(0, "input_json_delta", "partial_json", piece);
    let thinking = || begin(0, r#""type":"thinking","thinking":"","signature":"""#);
    let rows: Vec<(&str, Vec<String>, Came)> = vec![
        (
            "events and deltas of kinds that came later",
            vec![
                event("ping", ""),
                event("sparkle", r#""index":0,"delta":{"type":"glitter"}"#),
                begin(0, r#""type":"text","text":"""#),
                event("content_block_delta", r#""index":0,"delta":{"type":"citations_delta","citation":{}}"#),
                delta(0, "text_delta", "text", "Hi"),
                end(0),
                finish("end_turn", None),
            ],
            answer("Hi", &[]),
        ),
        (
            "text that begins with its block, and two blocks of it",
            vec![begin(0, r#""type":"text","text":"He""#), end(0), text(1, "llo"), finish("end_turn", None)],
            answer("Hello", &[]),
        ),
        ("a stop sequence", vec![text(0, "Hi"), finish("stop_sequence", None)], answer("Hi", &[])),
        (
            "end_turn beside a call",
            vec![call(0, r#","input":{}"#), piece(r#"{"n":1}"#), end(0), finish("end_turn", None)],
            answer("", &[("t0", "save", r#"{"n":1}"#)]),
        ),
        (
            "the whole input where the block begins, in its own tokens",
            vec![call(0, r#","input":{ "n" : 1.0 }"#), end(0), finish("tool_use", None)],
            answer("", &[("t0", "save", r#"{ "n" : 1.0 }"#)]),
        ),
        (
            "the input twice is no input that could be mended",
            vec![call(0, r#","input":{"n":1}"#), piece(r#"{"n":2}"#), end(0), finish("tool_use", None)],
            answer("", &[("t0", "save", r#"{"n":1}{"n":2}"#)]),
        ),
        (
            "no input at all",
            vec![call(0, ""), end(0), finish("tool_use", None)],
            answer("", &[("t0", "save", "")]),
        ),
        (
            "a piece of a call in a form that came later, or in none",
            vec![
                call(0, r#","input":{}"#),
                event("content_block_delta", r#""index":0,"delta":{"partial_json":"{\"n\":1}"}"#),
            ],
            refused(),
        ),
        (
            "text blocks that take turns are one text, as it was streamed",
            vec![
                begin(0, r#""type":"text","text":"a""#),
                begin(1, r#""type":"text","text":"b""#),
                delta(0, "text_delta", "text", "c"),
                end(0),
                end(1),
                finish("end_turn", None),
            ],
            answer("abc", &[]),
        ),
        (
            "null is not nothing",
            vec![call(0, r#","input":null"#), end(0), finish("tool_use", None)],
            answer("", &[("t0", "save", "null")]),
        ),
        (
            "the order is the index, not the arrival",
            vec![
                call(1, r#","input":{}"#),
                begin(0, r#""type":"tool_use","id":"t0","name":"look","input":{}"#),
                end(0),
                end(1),
                finish("tool_use", None),
            ],
            answer("", &[("t0", "look", ""), ("t1", "save", "")]),
        ),
        ("nothing said", vec![finish("end_turn", None)], answer("", &[])),
        (
            "cut inside of its text",
            vec![begin(0, r#""type":"text","text":"Hal""#), finish("max_tokens", None)],
            Came::Answer { text: "Hal".into(), calls: vec![], finish: "Length".into() },
        ),
        (
            "a full context window",
            vec![text(0, "Hal"), finish("model_context_window_exceeded", None)],
            Came::Answer { text: "Hal".into(), calls: vec![], finish: "Length".into() },
        ),
        (
            "cut inside of a call",
            vec![call(0, r#","input":{}"#), piece(r#"{"n":"#), finish("max_tokens", None)],
            failure(Code::TRUNCATED_TOOL_CALL),
        ),
        ("a call without a name", vec![begin(0, r#""type":"tool_use","id":"t","input":{}"#)], refused()),
        (
            "a tool of the vendor",
            vec![begin(0, r#""type":"server_tool_use","id":"t","name":"x""#)],
            refused(),
        ),
        ("a pause for one", vec![text(0, "Hi"), finish("pause_turn", None)], refused()),
        ("an unknown reason", vec![text(0, "Hi"), finish("tired", None)], refused()),
        ("tool_use without a call", vec![text(0, "Hi"), finish("tool_use", None)], refused()),
        ("no reason", vec![text(0, "Hi")], refused()),
        ("two reasons", vec![text(0, "Hi"), finish("end_turn", None), finish("max_tokens", None)], refused()),
        ("one index, two blocks", vec![text(0, "Hi"), text(0, "Hi"), finish("end_turn", None)], refused()),
        ("a block without an end", vec![call(0, ""), finish("tool_use", None)], refused()),
        ("a piece of no block", vec![delta(3, "text_delta", "text", "Hi")], refused()),
        (
            "a piece of a block that has ended",
            vec![text(0, "Hi"), delta(0, "text_delta", "text", "Hi")],
            refused(),
        ),
        ("an end of no block", vec![end(0)], refused()),
        ("text in a call", vec![call(0, ""), delta(0, "text_delta", "text", "Hi")], refused()),
        ("input in a text", vec![begin(0, r#""type":"text","text":"""#), piece("{}")], refused()),
        ("input in thinking", vec![thinking(), piece("{}")], refused()),
        (
            "a delta without its piece",
            vec![call(0, ""), delta(0, "input_json_delta", "text", "{}")],
            refused(),
        ),
        ("a block after the reason", vec![finish("end_turn", None), text(0, "Hi")], refused()),
    ];
    for (name, events, expected) in rows {
        for bytes in [usize::MAX, 1] {
            let (turn, _) = play(stream(&events).pieces_of(bytes)).await;
            assert_eq!(Came::of(&turn), expected, "{name}, pieces of {bytes}: {turn:?}");
        }
    }
}

/// Contract 8: thinking and input are progress; pings, empty pieces and what is ignored are not.
#[tokio::test]
async fn progress() {
    let quiet = [
        event("ping", ""),
        begin(0, r#""type":"text","text":"""#),
        delta(0, "text_delta", "text", ""),
        end(0),
        event("sparkle", ""),
    ];
    let (_, heard) = play(stream(&[quiet.concat(), finish("end_turn", None)])).await;
    assert_eq!(heard.pieces(), []);
    let loud = [
        begin(1, r#""type":"thinking","thinking":"","signature":"""#),
        delta(1, "thinking_delta", "thinking", "Hm"),
        delta(1, "thinking_delta", "thinking", ""),
        delta(1, "signature_delta", "signature", "x"),
        end(1),
        call(2, r#","input":{}"#),
        delta(2, "input_json_delta", "partial_json", ""),
        delta(2, "input_json_delta", "partial_json", "{}"),
        end(2),
    ];
    let (turn, heard) = play(stream(&[quiet.concat(), loud.concat(), finish("tool_use", None)])).await;
    assert_eq!(turn.unwrap().text, "", "thoughts are not shown");
    assert_eq!(
        heard.pieces(),
        [Piece::Progress, Piece::Progress, Piece::Progress, Piece::Progress, Piece::Progress]
    );
}

/// The vendor counts up, and counts what it read from a cache or wrote into one apart (contract 11).
#[tokio::test]
async fn usage() {
    let events = start(
        r#"{"input_tokens":10,"cache_creation_input_tokens":200,"cache_read_input_tokens":3000,"output_tokens":1}"#,
    ) + &text(0, "Hi")
        + &finish("end_turn", Some(r#"{"output_tokens":25,"cache_read_input_tokens":null}"#))
        + &event("message_stop", "");
    let (turn, _) = play(Reply::stream(events)).await;
    let expected = Usage {
        input_tokens: Some(3210),
        output_tokens: Some(25),
        cached_input_tokens: Some(3000),
        ..Usage::default()
    };
    assert_eq!(turn.unwrap().usage, Some(expected));
}

/// An error in place of an answer is told by its type, as if it had come with the status that the type stands for.
#[tokio::test]
async fn errors() {
    let rows = [
        ("overloaded_error", Code::PROVIDER_ERROR, true),
        ("api_error", Code::PROVIDER_ERROR, true),
        ("timeout_error", Code::PROVIDER_ERROR, true),
        ("rate_limit_error", Code::RATE_LIMITED, true),
        ("authentication_error", Code::PROVIDER_AUTH, false),
        ("permission_error", Code::PROVIDER_AUTH, false),
        ("invalid_request_error", Code::PROVIDER_ERROR, false),
        ("not_found_error", Code::PROVIDER_ERROR, false),
        ("request_too_large", Code::PROVIDER_ERROR, false),
        ("billing_error", Code::PROVIDER_ERROR, false),
    ];
    for (kind, code, retryable) in rows {
        let error = format!(r#""error":{{"type":"{kind}","message":"SECRET"}}"#);
        for reply in [
            stream(&[text(0, "Hi"), event("error", &error)]),
            Reply::object(format!(r#"{{"type":"error",{error}}}"#)),
        ] {
            let (turn, _) = play(reply).await;
            assert_eq!(Came::of(&turn), Came::Failure { code: code.clone(), retryable }, "{kind}");
            let cause = std::error::Error::source(&turn.unwrap_err()).unwrap().to_string();
            assert_eq!(cause, format!("the provider sent an error type={kind}"));
        }
    }
    let (turn, _) = play(stream(&[event("error", "")])).await;
    assert_eq!(Came::of(&turn), failure(Code::INVALID_PROVIDER_RESPONSE));
}

/// `message_stop` is the end, whether or not the server closes the connection.
#[tokio::test]
async fn the_end_is_not_waited_for() {
    let (turn, _) = play(stream(&[text(0, "Hi"), finish("end_turn", None)]).ending(End::Hold)).await;
    assert_eq!(Came::of(&turn), answer("Hi", &[]));
}
