//! Streams: every quirk that a server was seen to have, and every way in which a stream is not an answer.

use countersign_protocol::code::Code;
use countersign_protocol::result::Usage;

use super::play;
use super::wire::{delta, finish, frames, frames_open};
use crate::heard::{Came, Piece, answer, failure};
use crate::server::{End, Reply};

/// Plays a stream whole and byte by byte; both must come to the same.
async fn check(name: &str, body: &str, expected: &Came) {
    for piece in [usize::MAX, 1] {
        let (turn, _) = play(Reply::stream(body).pieces_of(piece)).await;
        assert_eq!(&Came::of(&turn), expected, "{name}, pieces of {piece}: {turn:?}");
    }
}

fn table(deltas: &[&str], reason: &str) -> String {
    let mut chunks: Vec<String> = deltas.iter().map(|text| delta(text)).collect();
    chunks.push(finish(reason));
    frames(&chunks.iter().map(String::as_str).collect::<Vec<_>>())
}

/// M5, M7: fragments make the calls that the model wrote, or the answer is refused.
#[tokio::test]
async fn calls_from_fragments() {
    let refused = || failure(Code::INVALID_PROVIDER_RESPONSE);
    let rows: Vec<(&str, &[&str], &str, Came)> = vec![
        (
            "the id, the type and the name once, then arguments down to a character",
            &[
                r#"{"role":"assistant","content":null}"#,
                r#"{"tool_calls":[{"index":0,"id":"A1","type":"function","function":{"name":"save","arguments":""}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"k\": "}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"1.0}"}}]}"#,
            ],
            "tool_calls",
            answer("", &[("A1", "save", r#"{"k": 1.0}"#)]),
        ),
        (
            "two calls interleaved by index",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"}"}},{"index":1,"function":{"arguments":" }"}}]}"#,
            ],
            "tool_calls",
            answer("", &[("a", "f", "{}"), ("b", "g", "{ }")]),
        ),
        (
            "order is the index, not the arrival",
            &[
                r#"{"tool_calls":[{"index":3,"id":"b","function":{"name":"g","arguments":"{}"}}]}"#,
                r#"{"tool_calls":[{"index":1,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#,
            ],
            "tool_calls",
            answer("", &[("a", "f", "{}"), ("b", "g", "{}")]),
        ),
        (
            "id and name repeated whole with each fragment",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"}"}}]}"#,
            ],
            "tool_calls",
            answer("", &[("a", "f", "{}")]),
        ),
        (
            "empty id, type and name later",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"","type":"","function":{"name":"","arguments":"}"}}]}"#,
            ],
            "tool_calls",
            answer("", &[("a", "f", "{}")]),
        ),
        (
            "one index, two ids",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"f","arguments":"{}"}}]}"#,
            ],
            "tool_calls",
            refused(),
        ),
        (
            "one index, two names",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"name":"g","arguments":"{}"}}]}"#,
            ],
            "tool_calls",
            refused(),
        ),
        (
            "no index: ids say which call",
            &[
                r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"id":"b","function":{"name":"f","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"id":"a","function":{"arguments":"}"}},{"id":"b","function":{"arguments":" }"}}]}"#,
            ],
            "tool_calls",
            answer("", &[("a", "f", "{}"), ("b", "f", "{ }")]),
        ),
        (
            "no index, no id: the only call there is",
            &[
                r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"function":{"arguments":"}"}}]}"#,
            ],
            "tool_calls",
            answer("", &[("a", "f", "{}")]),
        ),
        (
            "no index, no id, two calls",
            &[
                r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"id":"b","function":{"name":"f","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"function":{"arguments":"}"}}]}"#,
            ],
            "tool_calls",
            refused(),
        ),
        (
            "no index, no id, no call",
            &[r#"{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}"#],
            "tool_calls",
            refused(),
        ),
        (
            "no index, no id, a name: it may be another call of the same tool",
            &[
                r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":""}}]}"#,
                r#"{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}"#,
            ],
            "tool_calls",
            refused(),
        ),
        (
            "M7: no index, one id for two calls",
            &[
                r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":""}},{"id":"a","function":{"name":"f","arguments":""}}]}"#,
            ],
            "tool_calls",
            refused(),
        ),
        (
            "the id, the name, a legacy call and nulls with each fragment, as llama-cpp-python sends them",
            &[
                r#"{"role":"assistant","content":null,"function_call":null,"tool_calls":null}"#,
                r#"{"role":null,"content":null,"function_call":{"name":"f","arguments":"{"},"tool_calls":[{"index":0,"id":"call__0_f_cmpl-1","type":"function","function":{"name":"f","arguments":"{"}}]}"#,
                r#"{"role":null,"content":null,"function_call":{"name":"f","arguments":"}"},"tool_calls":[{"index":0,"id":"call__0_f_cmpl-1","type":"function","function":{"name":"f","arguments":"}"}}]}"#,
                r#"{"role":null,"content":null,"function_call":null,"tool_calls":null}"#,
            ],
            "tool_calls",
            answer("", &[("call__0_f_cmpl-1", "f", "{}")]),
        ),
        (
            "a legacy call alone, which nobody asked for",
            &[r#"{"function_call":{"name":"f","arguments":"{}"}}"#],
            "function_call",
            refused(),
        ),
        (
            "the last index",
            &[r#"{"tool_calls":[{"index":31,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#],
            "tool_calls",
            answer("", &[("a", "f", "{}")]),
        ),
        (
            "one over it",
            &[r#"{"tool_calls":[{"index":32,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#],
            "tool_calls",
            refused(),
        ),
        (
            "a negative index",
            &[r#"{"tool_calls":[{"index":-1,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#],
            "tool_calls",
            refused(),
        ),
        (
            "no id at all: the driver refuses it, nothing is invented",
            &[r#"{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}"#],
            "tool_calls",
            answer("", &[("", "f", "{}")]),
        ),
        (
            "no name at all",
            &[r#"{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}"#],
            "tool_calls",
            refused(),
        ),
        (
            "M1: missing and null arguments are empty text",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]}"#,
                r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"f","arguments":null}}]}"#,
                r#"{"tool_calls":[{"index":2,"id":"c","function":{"name":"f","arguments":"null"}}]}"#,
            ],
            "tool_calls",
            answer("", &[("a", "f", ""), ("b", "f", ""), ("c", "f", "null")]),
        ),
        (
            "arguments as an object would have to be printed again",
            &[r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":{"k":1}}}]}"#],
            "tool_calls",
            refused(),
        ),
        (
            "M7: a legacy call alone is not lost in silence",
            &[r#"{"function_call":{"name":"f","arguments":"{}"}}"#],
            "stop",
            refused(),
        ),
        (
            "another kind of call",
            &[r#"{"tool_calls":[{"index":0,"id":"a","type":"custom","custom":{"name":"f","input":"x"}}]}"#],
            "tool_calls",
            refused(),
        ),
        (
            "half of a surrogate pair in a fragment",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"k\":\"\ud83d"}}]}"#,
            ],
            "tool_calls",
            refused(),
        ),
        (
            "M3: cut arguments are carried as they are, for the gate to refuse",
            &[r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"k\":"}}]}"#],
            "tool_calls",
            answer("", &[("a", "f", r#"{"k":"#)]),
        ),
        (
            "M9: a name is never tidied",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"functions.save ","arguments":"{}"}}]}"#,
            ],
            "tool_calls",
            answer("", &[("a", "functions.save ", "{}")]),
        ),
        (
            "text beside a call",
            &[
                r#"{"content":"I will "}"#,
                r#"{"content":"save.","tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#,
            ],
            "stop",
            answer("I will save.", &[("a", "f", "{}")]),
        ),
        (
            "M3: length with a call",
            &[r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#],
            "length",
            failure(Code::TRUNCATED_TOOL_CALL),
        ),
        ("tool_calls without a call", &[r#"{"content":"x"}"#], "tool_calls", refused()),
        ("a content filter", &[r#"{"content":"x"}"#], "content_filter", failure(Code::PROVIDER_REFUSAL)),
        ("a refusal", &[r#"{"refusal":"I cannot"}"#], "stop", failure(Code::PROVIDER_REFUSAL)),
        ("an empty refusal", &[r#"{"content":"x","refusal":""}"#], "stop", answer("x", &[])),
        ("an unknown reason", &[r#"{"content":"x"}"#], "function_call", refused()),
        ("repeated members", &[r#"{"content":"x","content":"y"}"#], "stop", refused()),
        ("content that is not text", &[r#"{"content":[{"type":"text"}]}"#], "stop", refused()),
    ];
    for (name, deltas, reason, expected) in rows {
        check(name, &table(deltas, reason), &expected).await;
    }
}

/// How a stream may begin, go on and end.
#[tokio::test]
async fn the_frame_of_a_stream() {
    let text = delta(r#"{"content":"hi"}"#);
    let (text, stop) = (text.as_str(), finish("stop"));
    let stop = stop.as_str();
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2},"timings":{"x":1}}"#;
    let two = r#"{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}"#;
    let other = r#"{"choices":[{"index":1,"delta":{"content":"b"}}]}"#;
    let hi = || answer("hi", &[]);
    let refused = || failure(Code::INVALID_PROVIDER_RESPONSE);
    let incomplete = || failure(Code::INCOMPLETE_STREAM);
    let rows: Vec<(&str, String, Came)> = vec![
        ("plain", frames(&[text, stop]), hi()),
        ("usage after the end", frames(&[text, stop, usage]), hi()),
        ("an empty list first", frames(&[r#"{"choices":[],"prompt_filter_results":[]}"#, text, stop]), hi()),
        ("the reason twice", frames(&[text, stop, stop]), hi()),
        ("comments and pings", format!(": ping\n\nevent: ping\n\n{}", frames(&[text, stop])), hi()),
        ("CRLF", frames(&[text, stop]).replace('\n', "\r\n"), hi()),
        ("no space after the colon", frames(&[text, stop]).replace("data: ", "data:"), hi()),
        ("anything after [DONE]", frames(&[text, stop]) + "data: }{\n\n", hi()),
        ("a reason beside the last text", frames(&[&text.replace("null", "\"stop\"")]), hi()),
        ("nothing", String::new(), incomplete()),
        ("M3: no [DONE]", frames_open(&[text, stop]), incomplete()),
        ("M3: no end", frames_open(&[text]), incomplete()),
        ("half a frame", frames(&[text, stop]).trim_end().to_owned(), incomplete()),
        ("[DONE] without a reason", frames(&[text]), refused()),
        ("[DONE] alone", frames(&[]), refused()),
        ("two reasons", frames(&[text, stop, &finish("length")]), refused()),
        ("text after the reason", frames(&[text, stop, text]), refused()),
        ("two choices", frames(&[two, stop]), refused()),
        ("the second choice", frames(&[other, stop]), refused()),
        ("not JSON", frames(&["{", stop]), refused()),
        ("not an object", frames(&["[]", stop]), refused()),
        ("an object of something else", frames(&[r#"{"object":"x"}"#, stop]), refused()),
        ("choices of another kind", frames(&[r#"{"choices":{}}"#, stop]), refused()),
    ];
    for (name, body, expected) in rows {
        check(name, &body, &expected).await;
    }
    let (turn, _) = play(Reply::stream(frames_open(&[text, stop])).ending(End::Cut)).await;
    assert_eq!(Came::of(&turn), incomplete(), "the connection broke");
}

/// Errors inside a stream, as llama.cpp sends one when `max_tokens` cuts a call. Their text stays here.
#[tokio::test]
async fn an_error_inside_a_stream() {
    let start = delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}"#);
    let rows = [
        (r#"{"code":500,"message":"SECRET","type":"server_error"}"#, Code::PROVIDER_ERROR, false),
        (r#"{"code":429,"message":"SECRET"}"#, Code::RATE_LIMITED, true),
        (r#"{"code":"429","message":"SECRET"}"#, Code::RATE_LIMITED, true),
        (r#"{"code":"rate_limit_exceeded","message":"SECRET"}"#, Code::RATE_LIMITED, true),
        (r#"{"code":401,"message":"SECRET"}"#, Code::PROVIDER_AUTH, false),
        (r#""SECRET""#, Code::PROVIDER_ERROR, false),
        (r#"[{"code":429}]"#, Code::PROVIDER_ERROR, false),
    ];
    for (error, code, retryable) in rows {
        let body = frames_open(&[&start, &format!(r#"{{"error":{error}}}"#)]);
        let (turn, _) = play(Reply::stream(body)).await;
        assert_eq!(Came::of(&turn), Came::Failure { code, retryable }, "{error}");
        let shown = format!("{:?}", turn.unwrap_err());
        assert!(!shown.contains("SECRET"), "{shown}");
    }
}

/// Contract 2.2 and 11: what is reported, and what cannot be carried.
#[tokio::test]
async fn usage() {
    let with = |usage: &str| frames(&[&finish("stop"), &format!(r#"{{"choices":[],"usage":{usage}}}"#)]);
    let all = Usage {
        input_tokens: Some(9_007_199_254_740_991),
        output_tokens: Some(0),
        cached_input_tokens: Some(3),
        reasoning_tokens: Some(4),
        ..Usage::default()
    };
    let rows = [
        (
            r#"{"prompt_tokens":9007199254740991,"completion_tokens":0,"total_tokens":-7,
                "prompt_tokens_details":{"cached_tokens":3,"audio_tokens":1.5},
                "completion_tokens_details":{"reasoning_tokens":4}}"#,
            Some(all),
        ),
        (
            r#"{"prompt_tokens":1,"prompt_tokens_details":null,"completion_tokens_details":{}}"#,
            Some(Usage { input_tokens: Some(1), ..Usage::default() }),
        ),
        ("null", None),
        ("{}", None),
    ];
    for (usage, expected) in rows {
        let (turn, _) = play(Reply::stream(with(&usage.replace('\n', "")))).await;
        assert_eq!(turn.unwrap().usage, expected, "{usage}");
    }
    for usage in [
        r#"{"prompt_tokens":-1}"#,
        r#"{"prompt_tokens":1.0}"#,
        r#"{"completion_tokens":9007199254740992}"#,
        r#"{"completion_tokens":"3"}"#,
        r#"{"completion_tokens_details":{"reasoning_tokens":1e99}}"#,
        "7",
    ] {
        let (turn, _) = play(Reply::stream(with(usage))).await;
        assert_eq!(Came::of(&turn), failure(Code::INVALID_PROVIDER_RESPONSE), "{usage}");
    }
    let twice = frames(&[
        r#"{"choices":[],"usage":{"prompt_tokens":1}}"#,
        r#"{"choices":[],"usage":null}"#,
        &finish("stop"),
        r#"{"choices":[],"usage":{"prompt_tokens":2}}"#,
    ]);
    let (turn, _) = play(Reply::stream(twice)).await;
    assert_eq!(turn.unwrap().usage.unwrap().input_tokens, Some(2), "the last report counts");
}

/// Contract 8: text and fragments restart the idle clock; pings, empty deltas and repetitions do not.
#[tokio::test]
async fn what_is_progress() {
    let body = format!(
        ": ping\n\n{}",
        table(
            &[
                r#"{"role":"assistant","content":""}"#,
                r#"{"reasoning_content":"","reasoning":null}"#,
                r#"{"reasoning_content":"hm"}"#,
                r#"{"reasoning":"hm"}"#,
                r#"{"content":"a"}"#,
                r#"{"tool_calls":[]}"#,
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}"#,
            ],
            "tool_calls",
        )
    );
    let (turn, heard) = play(Reply::stream(body)).await;
    turn.unwrap();
    let progress = Piece::Progress;
    assert_eq!(
        heard.pieces(),
        [progress.clone(), progress.clone(), Piece::Text("a".to_owned()), progress.clone(), progress]
    );
}
