//! What Gemini's generateContent alone has. What every vendor has is in `conformance`.

mod request;
pub(crate) mod wire;

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::{ProviderError, Turn};
use countersign_protocol::code::Code;
use countersign_protocol::result::Usage;
use countersign_providers::{Gemini, GeminiConfig};
use url::Url;

use crate::heard::{Came, Heard, Piece, answer, ask, calls, failure, user};
use crate::server::{Reply, Server};
use wire::{finish, frame, parts};

pub(crate) fn config(base_url: Url) -> GeminiConfig {
    GeminiConfig {
        id: ProviderId::parse("local").unwrap(),
        name: None,
        base_url,
        api_key: Some("AIza-test-0123456789".into()),
        models: vec![ModelId::parse("demo").unwrap()],
    }
}

pub(crate) async fn play(reply: Reply) -> (Result<Turn, ProviderError>, Heard) {
    let server = Server::start(reply).await;
    ask(&Gemini::new(config(server.url())).unwrap(), &[user("Hello")]).await
}

/// M1, M3: which streams are an answer, and what of them.
#[tokio::test]
async fn streams() {
    let refused = || failure(Code::INVALID_PROVIDER_RESPONSE);
    let call = |members: &str| parts(&format!(r#"{{"functionCall":{{"id":"c",{members}}}}}"#));
    let hi = || parts(r#"{"text":"Hi"}"#);
    let with_reason = |text: &str, reason: &str| {
        frame(&format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{text}"}}]}},"finishReason":"{reason}"}}]}}"#
        ))
    };
    let cut = Came::Answer { text: "Hi".into(), calls: vec![], finish: "Length".into() };
    let rows: Vec<(&str, Vec<String>, Came)> = vec![
        (
            "a reason in every chunk, of which the last counts",
            vec![with_reason("H", "STOP"), with_reason("i", "STOP"), finish("MAX_TOKENS")],
            cut,
        ),
        (
            "cut, whatever is said later",
            vec![hi(), finish("MAX_TOKENS"), finish("STOP")],
            Came::Answer { text: "Hi".into(), calls: vec![], finish: "Length".into() },
        ),
        (
            "M7: a part of an unknown kind is not lost in silence",
            vec![parts(r#"{"function_call":{"name":"save"}}"#), hi(), finish("STOP")],
            refused(),
        ),
        (
            "usage after the end, and chunks that say nothing",
            vec![
                frame(r#"{"candidates":[]}"#),
                frame(r#"{"candidates":[{"content":{"role":"model"}}]}"#),
                frame(r#"{"candidates":[{"content":{"parts":[{}]}}]}"#),
                with_reason("Hi", "STOP"),
                frame(r#"{"usageMetadata":{"promptTokenCount":1}}"#),
            ],
            answer("Hi", &[]),
        ),
        ("no arguments", vec![call(r#""name":"save""#), finish("STOP")], answer("", &[("c", "save", "")])),
        (
            "null is not nothing",
            vec![call(r#""name":"save","args":null"#), finish("STOP")],
            answer("", &[("c", "save", "null")]),
        ),
        (
            "the arguments' own tokens, with what the key looks like",
            vec![call(r#""name":"save","\u0061rgs" : { "n" : 1.0e0, "s":"\u0041" } "#), finish("STOP")],
            answer("", &[("c", "save", r#"{ "n" : 1.0e0, "s":"\u0041" }"#)]),
        ),
        (
            "arguments twice",
            vec![call(r#""name":"save","args":{},"\u0061rgs":{"n":1}"#), finish("STOP")],
            refused(),
        ),
        ("a call without a name", vec![call(r#""args":{}"#), finish("STOP")], refused()),
        ("a call in pieces", vec![call(r#""name":"save","partialArgs":[]"#), finish("STOP")], refused()),
        (
            "a call that goes on",
            vec![call(r#""name":"save","willContinue":true"#), finish("STOP")],
            refused(),
        ),
        ("text and a call in one", vec![parts(r#"{"text":"","functionCall":{"name":"a"}}"#)], refused()),
        ("a picture", vec![parts(r#"{"inlineData":{"mimeType":"image/png","data":""}}"#)], refused()),
        ("code that the vendor runs", vec![parts(r#"{"executableCode":{"code":"1"}}"#)], refused()),
        ("two candidates", vec![frame(r#"{"candidates":[{"index":0},{"index":1}]}"#)], refused()),
        ("another candidate", vec![frame(r#"{"candidates":[{"index":1}]}"#)], refused()),
        ("no reason", vec![hi()], failure(Code::INCOMPLETE_STREAM)),
        (
            "a blocked prompt",
            vec![frame(r#"{"promptFeedback":{"blockReason":"OTHER"}}"#)],
            failure(Code::PROVIDER_REFUSAL),
        ),
        (
            "a prompt that was looked at and not blocked",
            vec![frame(r#"{"promptFeedback":{"safetyRatings":[]}}"#), hi(), finish("STOP")],
            answer("Hi", &[]),
        ),
    ];
    for (name, chunks, expected) in rows {
        for bytes in [usize::MAX, 1] {
            let (turn, _) = play(Reply::stream(chunks.concat()).pieces_of(bytes)).await;
            assert_eq!(Came::of(&turn), expected, "{name}, pieces of {bytes}: {turn:?}");
        }
    }
}

/// A name that would ask another address than its own is refused (law 3).
#[test]
fn models_that_are_no_path() {
    let with = |model: &str| {
        let models = vec![ModelId::parse("demo").unwrap(), ModelId::parse(model).unwrap()];
        Gemini::new(GeminiConfig { models, ..config(Url::parse("http://127.0.0.1:9/v1").unwrap()) })
    };
    for good in ["m", "tunedModels/mine", "a.b/..c", "a:b", "models/x[1]"] {
        assert!(with(good).is_ok(), "{good}");
    }
    for bad in ["a/../b", "a/..", "a/./b", "a//b", "a/"] {
        assert!(with(bad).unwrap_err().to_string().starts_with("models[1]: "), "{bad}");
    }
}

/// Every finish reason that is no answer.
#[tokio::test]
async fn finish_reasons() {
    let refusals =
        ["SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"];
    let others = [
        // The call that the server could not read is not in the answer: nothing could be reviewed.
        ("MALFORMED_FUNCTION_CALL", Code::INVALID_TOOL_CALL),
        ("UNEXPECTED_TOOL_CALL", Code::TOOL_NOT_ALLOWED),
        ("TOO_MANY_TOOL_CALLS", Code::TOOL_LIMIT),
        ("OTHER", Code::PROVIDER_ERROR),
        ("MISSING_THOUGHT_SIGNATURE", Code::INVALID_PROVIDER_RESPONSE),
        ("FINISH_REASON_UNSPECIFIED", Code::INVALID_PROVIDER_RESPONSE),
        ("stop", Code::INVALID_PROVIDER_RESPONSE),
    ];
    let rows = refusals.iter().map(|reason| (*reason, Code::PROVIDER_REFUSAL)).chain(others);
    for (reason, code) in rows {
        let call = parts(r#"{"functionCall":{"id":"c","name":"save","args":{}}}"#);
        let (turn, _) = play(Reply::stream(call + &finish(reason))).await;
        assert_eq!(Came::of(&turn), failure(code), "{reason}");
    }
}

/// Thoughts are heard and not shown.
#[tokio::test]
async fn progress() {
    let body = parts(r#"{"text":"Hm","thought":true}"#)
        + &parts(r#"{"text":"","thought":true}"#)
        + &parts(r#"{"text":""}"#)
        + &parts(r#"{"text":"H"},{"text":"i"}"#)
        + &parts(r#"{"text":"","thoughtSignature":"x"}"#)
        + &parts(r#"{"functionCall":{"name":"save"}}"#)
        + &finish("STOP");
    let (turn, heard) = play(Reply::stream(body)).await;
    assert_eq!(turn.unwrap().text, "Hi");
    assert_eq!(heard.pieces(), [Piece::Progress, Piece::Text("Hi".into()), Piece::Progress, Piece::Progress]);
}

/// A call without an id, or with an empty one, gets a random one of its own.
#[tokio::test]
async fn ids() {
    let body =
        parts(r#"{"functionCall":{"name":"save","args":{}}},{"functionCall":{"id":"","name":"save"}}"#)
            + &parts(r#"{"functionCall":{"id":"theirs","name":"save"}}"#)
            + &finish("STOP");
    let (turn, _) = play(Reply::stream(body)).await;
    let turn = turn.unwrap();
    let ids: Vec<&str> = calls(&turn).into_iter().map(|(id, _, _)| id).collect();
    let [one, two, theirs] = ids[..] else { panic!("{ids:?}") };
    assert_eq!((one.len(), two.len(), theirs), (36, 36, "theirs"));
    assert_ne!(one, two);
}

/// The reports count up; thoughts are output that stands apart (contract 11).
#[tokio::test]
async fn usage() {
    let body = frame(r#"{"candidates":[],"usageMetadata":{"promptTokenCount":10,"totalTokenCount":10}}"#)
        + &parts(r#"{"text":"Hi"}"#)
        + &finish("STOP")
        + &frame(
            r#"{"usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":3,"thoughtsTokenCount":20}}"#,
        );
    let (turn, _) = play(Reply::stream(body)).await;
    let expected = Usage {
        input_tokens: Some(10),
        output_tokens: Some(23),
        cached_input_tokens: Some(4),
        reasoning_tokens: Some(20),
        ..Usage::default()
    };
    assert_eq!(turn.unwrap().usage, Some(expected));
}

/// An error in place of an answer is told by its code, which is the HTTP status; and a wrong key by its reason, as its
/// status says nothing.
#[tokio::test]
async fn errors() {
    let key = r#","details":[{"@type":"x"},{"reason":"API_KEY_INVALID"}]"#;
    let rows = [
        (400, "INVALID_ARGUMENT", "", Code::PROVIDER_ERROR, false, "code=400 status=INVALID_ARGUMENT"),
        (
            400,
            "INVALID_ARGUMENT",
            key,
            Code::PROVIDER_AUTH,
            false,
            "code=400 reason=API_KEY_INVALID status=INVALID_ARGUMENT",
        ),
        (401, "UNAUTHENTICATED", "", Code::PROVIDER_AUTH, false, "code=401 status=UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED", "", Code::PROVIDER_AUTH, false, "code=403 status=PERMISSION_DENIED"),
        (404, "NOT_FOUND", "", Code::PROVIDER_ERROR, false, "code=404 status=NOT_FOUND"),
        (429, "RESOURCE_EXHAUSTED", "", Code::RATE_LIMITED, true, "code=429 status=RESOURCE_EXHAUSTED"),
        (500, "INTERNAL", "", Code::PROVIDER_ERROR, true, "code=500 status=INTERNAL"),
        (503, "SECRET words", "", Code::PROVIDER_ERROR, true, "code=503"),
    ];
    for (number, status, details, code, retryable, label) in rows {
        let error =
            format!(r#"{{"error":{{"code":{number},"message":"SECRET","status":"{status}"{details}}}}}"#);
        let streamed = parts(r#"{"text":"Hi"}"#) + &frame(&error);
        for reply in [Reply::stream(streamed), Reply::object(error)] {
            let (turn, _) = play(reply).await;
            assert_eq!(
                Came::of(&turn),
                Came::Failure { code: code.clone(), retryable },
                "{number} {details}"
            );
            let cause = std::error::Error::source(&turn.unwrap_err()).unwrap().to_string();
            assert_eq!(cause, format!("the provider sent an error {label}"));
        }
    }
}
