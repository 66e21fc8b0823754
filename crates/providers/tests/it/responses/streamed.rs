//! Streams that contradict themselves, and what servers add or leave out.

use countersign_protocol::code::Code;

use super::play;
use super::wire::{events, item_added, item_done};
use crate::heard::{Came, Piece, answer, failure};
use crate::server::Reply;

const BEGUN: &str =
    r#"{"id":"fc_1","type":"function_call","status":"in_progress","call_id":"c1","name":"f","arguments":""}"#;
const CALL: &str = r#"{"id":"fc_1","type":"function_call","status":"completed","call_id":"c1","name":"f","arguments":"{\"k\": 1.0}"}"#;
const MESSAGE: &str = r#"{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"hi","annotations":[]}]}"#;

fn delta(index: usize, id: &str, text: &str) -> String {
    let text = serde_json::to_string(text).unwrap();
    format!(
        r#"{{"type":"response.function_call_arguments.delta","item_id":"{id}","output_index":{index},"delta":{text}}}"#
    )
}

fn arguments(index: usize, text: &str) -> String {
    let text = serde_json::to_string(text).unwrap();
    format!(
        r#"{{"type":"response.function_call_arguments.done","item_id":"fc_1","output_index":{index},"arguments":{text}}}"#
    )
}

fn says(text: &str) -> String {
    format!(r#"{{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"delta":"{text}"}}"#)
}

fn completed(output: &str) -> String {
    format!(r#"{{"type":"response.completed","response":{{"status":"completed","output":{output}}}}}"#)
}

/// M3, M5: a call has one text, wherever it is told; any other answer is refused.
#[tokio::test]
async fn a_call_is_told_alike() {
    let k = r#"{"k": 1.0}"#;
    let good = || answer("", &[("c1", "f", k)]);
    let refused = || failure(Code::INVALID_PROVIDER_RESPONSE);
    let listed = completed(&format!("[{CALL}]"));
    let begin = item_added(0, BEGUN);
    let done = item_done(0, CALL);
    let other = |from: &str, to: &str| item_done(0, &CALL.replace(from, to));
    let rows: Vec<(&str, Vec<String>, Came)> = vec![
        (
            "all of it",
            vec![
                begin.clone(),
                delta(0, "fc_1", r#"{"k""#),
                delta(0, "fc_1", ": 1.0}"),
                arguments(0, k),
                done.clone(),
                listed.clone(),
            ],
            good(),
        ),
        ("without fragments", vec![begin.clone(), arguments(0, k), done.clone(), listed.clone()], good()),
        ("the item's end alone", vec![done.clone(), listed.clone()], good()),
        ("the list alone", vec![listed.clone()], good()),
        ("an empty list at the end", vec![begin.clone(), delta(0, "fc_1", k), done.clone(), completed("[]")], good()),
        (
            "no list at the end",
            vec![
                begin.clone(),
                done.clone(),
                r#"{"type":"response.completed","response":{"status":"completed"}}"#.to_owned(),
            ],
            good(),
        ),
        (
            "the end says no status of its own",
            vec![done.clone(), r#"{"type":"response.completed","response":{}}"#.to_owned()],
            good(),
        ),
        ("a fragment was lost", vec![begin.clone(), delta(0, "fc_1", r#"{"k""#), done.clone(), listed.clone()], refused()),
        (
            "other fragments",
            vec![begin.clone(), delta(0, "fc_1", r#"{"k": 1}"#), done.clone(), listed.clone()],
            refused(),
        ),
        ("another end", vec![begin.clone(), arguments(0, r#"{"k": 2}"#), done.clone(), listed.clone()], refused()),
        ("another item", vec![begin.clone(), arguments(0, k), other("1.0", "2.0"), listed.clone()], refused()),
        ("another list", vec![begin.clone(), other("1.0", "2.0"), listed.clone()], refused()),
        (
            "a longer list",
            vec![begin.clone(), done.clone(), completed(&format!("[{CALL},{CALL}]"))],
            refused(),
        ),
        (
            "a call that was never told",
            vec![says("x"), completed(&format!("[{CALL}]"))],
            refused(),
        ),
        ("another name", vec![begin.clone(), other(r#""f""#, r#""g""#), listed.clone()], refused()),
        ("another call id", vec![begin.clone(), other("c1", "c2"), listed.clone()], refused()),
        ("another item id", vec![begin.clone(), other("fc_1", "fc_2"), listed.clone()], refused()),
        ("a fragment of another item", vec![begin.clone(), delta(0, "fc_2", k), done.clone(), listed.clone()], refused()),
        ("a fragment of no item", vec![delta(0, "fc_1", k), done.clone(), listed.clone()], refused()),
        ("a fragment of another place", vec![begin.clone(), delta(1, "fc_1", k), done.clone(), listed.clone()], refused()),
        ("a fragment after the end", vec![begin.clone(), done.clone(), delta(0, "fc_1", ""), listed.clone()], refused()),
        (
            "a fragment that says no place",
            vec![
                begin.clone(),
                r#"{"type":"response.function_call_arguments.delta","item_id":"fc_1","delta":"{"}"#.to_owned(),
                done.clone(),
                listed.clone(),
            ],
            refused(),
        ),
        ("two beginnings", vec![begin.clone(), begin.clone(), done.clone(), listed.clone()], refused()),
        ("two ends", vec![begin.clone(), done.clone(), done.clone(), listed.clone()], refused()),
        ("arguments that end twice", vec![begin.clone(), arguments(0, k), arguments(0, k), done.clone(), listed.clone()], refused()),
        ("no end of the item", vec![begin.clone(), delta(0, "fc_1", k), listed.clone()], refused()),
        (
            "text in a call",
            vec![begin.clone(), says("x"), done.clone(), listed.clone()],
            refused(),
        ),
        (
            "M3: an item that says itself that it is cut",
            vec![begin.clone(), other(r#""completed""#, r#""incomplete""#), listed.clone()],
            failure(Code::TRUNCATED_TOOL_CALL),
        ),
        ("no name", vec![other(r#""name":"f","#, ""), completed("[]")], refused()),
        ("arguments as an object", vec![other(r#""{\"k\": 1.0}""#, r#"{"k":1}"#), completed("[]")], refused()),
        ("arguments that are null", vec![other(r#""{\"k\": 1.0}""#, "null"), completed("[]")], answer("", &[("c1", "f", "")])),
        ("no arguments", vec![other(r#","arguments":"{\"k\": 1.0}""#, ""), completed("[]")], answer("", &[("c1", "f", "")])),
        (
            "half of a surrogate pair in a fragment",
            vec![
                begin.clone(),
                r#"{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":0,"delta":"\ud83d"}"#
                    .to_owned(),
                done.clone(),
                listed.clone(),
            ],
            refused(),
        ),
        (
            "order is the place, not the arrival",
            vec![
                item_done(5, &CALL.replace("c1", "c5")),
                item_done(2, CALL),
                completed("[]"),
            ],
            answer("", &[("c1", "f", k), ("c5", "f", k)]),
        ),
    ];
    for (name, stream, expected) in rows {
        for bytes in [usize::MAX, 1] {
            let (turn, _) = play(Reply::stream(events(&stream)).pieces_of(bytes)).await;
            assert_eq!(Came::of(&turn), expected, "{name}: {turn:?}");
        }
    }
}

/// Text has one version too; what was never streamed of it is told at its end.
#[tokio::test]
async fn text_is_told_alike() {
    let refused = || failure(Code::INVALID_PROVIDER_RESPONSE);
    let begin = item_added(0, r#"{"id":"msg_1","type":"message","role":"assistant","content":[]}"#);
    let done = item_done(0, MESSAGE);
    let listed = completed(&format!("[{MESSAGE}]"));
    let second = MESSAGE.replace("msg_1", "msg_2").replace("hi", " there");
    let rows: Vec<(&str, Vec<String>, Came, &[&str])> = vec![
        (
            "streamed",
            vec![begin.clone(), says("h"), says("i"), done.clone(), listed.clone()],
            answer("hi", &[]),
            &["h", "i"],
        ),
        ("at its end", vec![begin.clone(), done.clone(), listed.clone()], answer("hi", &[]), &["hi"]),
        ("in the list", vec![listed.clone()], answer("hi", &[]), &[]),
        (
            "two messages, one of them streamed",
            vec![begin.clone(), says("hi"), done.clone(), item_done(1, &second), completed("[]")],
            answer("hi there", &[]),
            &["hi", " there"],
        ),
        ("another text", vec![begin.clone(), says("ho"), done.clone(), listed.clone()], refused(), &["ho"]),
        ("more text", vec![begin.clone(), says("hi!"), done.clone(), listed.clone()], refused(), &["hi!"]),
        ("text of no item", vec![says("hi"), done.clone(), listed.clone()], refused(), &[]),
        (
            "a part of another kind",
            vec![
                item_done(0, r#"{"type":"message","content":[{"type":"output_audio","text":"x"}]}"#),
                completed("[]"),
            ],
            refused(),
            &[],
        ),
    ];
    for (name, stream, expected, texts) in rows {
        let (turn, heard) = play(Reply::stream(events(&stream))).await;
        assert_eq!(Came::of(&turn), expected, "{name}: {turn:?}");
        assert_eq!(heard.texts(), texts, "{name}");
    }
}

/// How a stream may end, and what may stand in it besides.
#[tokio::test]
async fn the_frame_of_a_stream() {
    let refused = || failure(Code::INVALID_PROVIDER_RESPONSE);
    let done = item_done(0, MESSAGE);
    let end = |kind: &str, response: &str| format!(r#"{{"type":"response.{kind}","response":{response}}}"#);
    let failed = |code: &str| {
        end("failed", &format!(r#"{{"status":"failed","error":{{"code":"{code}","message":"SECRET"}}}}"#))
    };
    let incomplete = |reason: &str| {
        end(
            "incomplete",
            &format!(r#"{{"status":"incomplete","incomplete_details":{{"reason":"{reason}"}}}}"#),
        )
    };
    let busy = || Came::Failure { code: Code::RATE_LIMITED, retryable: true };
    let length = Came::Answer { text: "hi".to_owned(), calls: Vec::new(), finish: "Length".to_owned() };
    let rows: Vec<(&str, Vec<String>, Came)> = vec![
        ("cut by the limit", vec![done.clone(), incomplete("max_output_tokens")], length),
        (
            "M3: cut by the limit in a call that no list names",
            vec![
                item_added(0, BEGUN),
                delta(0, "fc_1", r#"{"k": 1.0}"#),
                arguments(0, r#"{"k": 1.0}"#),
                incomplete("max_output_tokens"),
            ],
            failure(Code::TRUNCATED_TOOL_CALL),
        ),
        (
            "M3: cut by the limit after a call",
            vec![item_done(0, CALL), incomplete("max_output_tokens")],
            failure(Code::TRUNCATED_TOOL_CALL),
        ),
        ("a content filter", vec![done.clone(), incomplete("content_filter")], failure(Code::PROVIDER_REFUSAL)),
        ("another reason", vec![done.clone(), incomplete("tired")], refused()),
        ("no reason", vec![done.clone(), end("incomplete", "{}")], refused()),
        ("a failure", vec![done.clone(), failed("server_error")], failure(Code::PROVIDER_ERROR)),
        ("a rate limit", vec![done.clone(), failed("rate_limit_exceeded")], busy()),
        ("a failure without an error", vec![done.clone(), end("failed", "{}")], failure(Code::PROVIDER_ERROR)),
        ("complete with an error", vec![end("completed", r#"{"error":{"code":"x"}}"#)], failure(Code::PROVIDER_ERROR)),
        ("two ends in one", vec![done.clone(), end("completed", r#"{"status":"incomplete"}"#)], refused()),
        ("an end without a response", vec![r#"{"type":"response.completed"}"#.to_owned()], refused()),
        (
            "an error in an object of its own",
            vec![r#"{"type":"error","error":{"type":"tokens","code":"rate_limit_exceeded","message":"SECRET"}}"#.to_owned()],
            busy(),
        ),
        ("a proxy's error", vec![r#"{"error":{"code":401,"message":"SECRET"}}"#.to_owned()], failure(Code::PROVIDER_AUTH)),
        (
            "a refusal ends the turn with its first word",
            vec![
                item_added(0, r#"{"id":"msg_1","type":"message","content":[]}"#),
                r#"{"type":"response.refusal.delta","item_id":"msg_1","output_index":0,"delta":""}"#.to_owned(),
                r#"{"type":"response.refusal.delta","item_id":"msg_1","output_index":0,"delta":"I"}"#.to_owned(),
            ],
            failure(Code::PROVIDER_REFUSAL),
        ),
        (
            "a refusal in a complete item",
            vec![item_done(0, r#"{"type":"message","content":[{"type":"refusal","refusal":"no"}]}"#), completed("[]")],
            failure(Code::PROVIDER_REFUSAL),
        ),
        (
            "unknown events and members",
            vec![
                r#"{"type":"keepalive","sequence_number":3}"#.to_owned(),
                r#"{"type":"response.queued","response":{}}"#.to_owned(),
                r#"{"type":"response.content_part.added","part":{},"obfuscation":"x"}"#.to_owned(),
                done.clone(),
                completed("[]"),
            ],
            answer("hi", &[]),
        ),
        ("[DONE] after the end", vec![done.clone(), completed("[]"), "[DONE]".to_owned()], answer("hi", &[])),
        ("[DONE] without an end", vec![done.clone(), "[DONE]".to_owned()], failure(Code::INCOMPLETE_STREAM)),
        (
            "a call of another kind",
            vec![item_done(0, r#"{"type":"custom_tool_call","call_id":"c","name":"f","input":"x"}"#), completed("[]")],
            refused(),
        ),
        (
            "a tool of the vendor's own",
            vec![item_added(0, r#"{"type":"web_search_call","id":"w"}"#)],
            refused(),
        ),
        ("an item that is none", vec![item_done(0, "7"), completed("[]")], refused()),
        ("a negative place", vec![done.replace(":0,", ":-1,"), completed("[]")], refused()),
    ];
    for (name, stream, expected) in rows {
        let (turn, _) = play(Reply::stream(events(&stream))).await;
        assert_eq!(Came::of(&turn), expected, "{name}: {turn:?}");
        assert!(!format!("{turn:?}").contains("SECRET"), "{name}");
    }
}

/// Contract 8: text, fragments, reasoning and the borders of items restart the idle clock; the rest does not.
#[tokio::test]
async fn what_is_progress() {
    let stream = [
        r#"{"type":"response.created","response":{"status":"in_progress"}}"#.to_owned(),
        r#"{"type":"keepalive"}"#.to_owned(),
        item_added(0, r#"{"id":"rs_1","type":"reasoning","summary":[]}"#),
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":""}"#.to_owned(),
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"hm"}"#.to_owned(),
        item_done(0, r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"x"}"#),
        item_added(1, BEGUN),
        delta(1, "fc_1", ""),
        delta(1, "fc_1", r#"{"k": 1.0}"#),
        item_done(1, CALL),
        completed("[]"),
    ];
    let (turn, heard) = play(Reply::stream(events(&stream))).await;
    turn.unwrap();
    // Four borders, one piece of reasoning, one fragment.
    assert_eq!(heard.pieces(), vec![Piece::Progress; 6]);
}
