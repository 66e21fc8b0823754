//! Structured output: contract 7.2, 7.5 and 2.2; law 3.

use countersign_approval_core::grants::Principal;
use countersign_approval_core::json::Exact;
use countersign_protocol::event::EventBody;
use countersign_protocol::request::RunRequest;

use crate::support::{Bench, Step, calls, request, rest, says, words};

const SCHEMA: &str = r#"{"type":"object","properties":{"n":{"type":"number"}},"required":["n"]}"#;

fn asks(schema: &str) -> RunRequest {
    RunRequest { output_schema: Some(Exact::parse(schema).unwrap()), ..request() }
}

/// How a run of this schema ends whose model says `text`.
async fn ends(schema: &str, text: &'static str) -> String {
    let bench = Bench::new([says(text)]);
    let events = rest(&mut bench.stream(asks(schema))).await;
    match &events.last().unwrap().body {
        EventBody::RunCompleted { result } => {
            assert_eq!(result.text, text);
            result.output.as_ref().unwrap().text().to_owned()
        }
        EventBody::RunFailed { error } => error.code.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_is_kept_exactly() {
    // Law 3: numbers and strings as the model wrote them; only white space between them goes.
    for (text, output) in [
        (r#"{"n":1}"#, r#"{"n":1}"#),
        ("\n { \"n\" : 1.0e0 , \"s\":\"\\u0041\" }\n", r#"{"n":1.0e0,"s":"\u0041"}"#),
        (r#"{"n":-0,"z":[]}"#, r#"{"n":-0,"z":[]}"#),
    ] {
        assert_eq!(ends(SCHEMA, text).await, output);
    }
    assert_eq!(ends("{}", "null").await, "null");
    assert_eq!(ends(r#"{"type":"string"}"#, r#""x""#).await, r#""x""#);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_fit_fails_the_run() {
    // Contract 7.2: JSON, and valid; nothing is cut out of a text, and nothing is coerced.
    for text in [
        "",
        "The answer is {\"n\":1}.",
        "```json\n{\"n\":1}\n```",
        r#"{"n":1} {"n":2}"#,
        r#"{"n":"1"}"#,
        "{}",
        "null",
        r#"{"n":1,"n":2}"#,
        r#"{"n":1,"__proto__":{}}"#,
        r#"{"n":9007199254740993}"#,
        r#"{"n":1e400}"#,
        r#"{"n":1,"s":"\ud800"}"#,
    ] {
        assert_eq!(ends(SCHEMA, text).await, "INVALID_OUTPUT", "{text:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_text_too_long_for_its_event() {
    // Contract 10.2: `run.completed` carries text and value in one frame that every client takes.
    for (bytes, fits) in [(600_000, true), (600_001, false)] {
        let text: &'static str = format!("[{}\"\"]", "\"\",".repeat(199_998)).leak();
        assert!(text.len() <= bytes);
        let text: &'static str = format!("{text}{}", " ".repeat(bytes - text.len())).leak();
        let bench = Bench::new([says(text)]);
        let events = rest(&mut bench.stream(asks("{}"))).await;
        let last = events.last().unwrap();
        assert_eq!(last.type_name(), if fits { "run.completed" } else { "run.failed" });
        assert!(last.to_json().len() < 2_000_000);
    }
}

#[tokio::test(start_paused = true)]
async fn the_host_s_own_instruction_follows_the_request_s() {
    // Contract 7.2: joined by an empty line, at every step; no schema, no instruction.
    for (given, head) in
        [(Some("Be brief."), "Be brief.\n\nYour final"), (Some(""), "Your final"), (None, "Your final")]
    {
        let bench = Bench::new([calls(&[("call-1", "lookup", "{}")]), says(r#"{"n":1}"#)]);
        let asked = RunRequest { instructions: given.map(Into::into), ..asks(SCHEMA) };
        assert_eq!(words(&rest(&mut bench.stream(asked)).await).last().unwrap(), r#"run.completed {"n":1}"#);
        let told = bench.model.instructions.lock().unwrap();
        assert_eq!(told.len(), 2);
        for told in told.iter().flatten() {
            assert!(told.starts_with(head) && told.ends_with(SCHEMA), "{told}");
        }
    }
    let bench = Bench::new([says("plain")]);
    let result = bench.driver.run(request(), Principal::local()).await.unwrap();
    assert_eq!((result.output, &*bench.model.instructions.lock().unwrap()), (None, &vec![None]));
}

#[tokio::test(start_paused = true)]
async fn buffered_runs_and_refusals() {
    let bench = Bench::new([says(r#"{"n":1}"#), says("no")]);
    let result = bench.driver.run(asks(SCHEMA), Principal::local()).await.unwrap();
    assert_eq!(result.output.unwrap().text(), r#"{"n":1}"#);
    let error = bench.driver.run(asks(SCHEMA), Principal::local()).await.unwrap_err();
    assert_eq!(error.code.as_str(), "INVALID_OUTPUT");
    // Contract 2.1, row 14: before any event.
    let error = bench.driver.stream(asks(r#"{"type":"strange"}"#), Principal::local()).unwrap_err();
    assert_eq!(error.code.as_str(), "INVALID_SCHEMA");
    assert!(error.message.starts_with("outputSchema: "), "{}", error.message);
}

#[tokio::test(start_paused = true)]
async fn a_cut_answer_is_no_answer() {
    let cut = Step { finish: Some(countersign_protocol::event::FinishReason::Length), ..says(r#"{"n":1"#) };
    let bench = Bench::new([cut]);
    let told = words(&rest(&mut bench.stream(asks(SCHEMA))).await);
    assert_eq!(told.last().unwrap(), "run.failed INVALID_OUTPUT");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_would_take_too_long_to_check_is_refused() {
    // Law 9: 10,000 comparisons, 100 times over, for each of 30,000 items. None of them is made.
    let schema = format!(
        r##"{{"definitions":{{"e":{{"enum":[{}1,"a"]}}}},"items":{{"allOf":[{}]}}}}"##,
        "{},".repeat(10_000),
        vec![r##"{"$ref":"#/definitions/e"}"##; 100].join(","),
    );
    let answer: &'static str = format!("[{}]", vec!["1"; 30_000].join(",")).leak();
    let bench = Bench::new([says(answer)]);
    let error = bench.driver.run(asks(&schema), Principal::local()).await.unwrap_err();
    assert_eq!(error.code.as_str(), "INVALID_OUTPUT");
    assert!(error.message.contains("at most 50000000"), "{}", error.message);
}
