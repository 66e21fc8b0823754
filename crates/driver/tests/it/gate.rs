//! Contract 7.3 and design 3: what is refused before any call is shown, and what is not.

use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_protocol::event::FinishReason;
use countersign_protocol::request::RunRequest;

use crate::support::{Bench, Step, calls, request, rest, reviewed, says, words};

/// A step's calls, and how the run ends.
async fn ends(step: Step) -> (Vec<String>, Bench) {
    let bench = Bench::new([step, says("saved")]);
    let events = bench.play(reviewed(IdlePolicy::Pause), Decision::Approve).await;
    (words(&events), bench)
}

#[tokio::test(start_paused = true)]
async fn arguments() {
    // Law 3; scenarios B1, B5, B7, B11, M1, M3, L1, L11, V1.
    const OK: &str = "run.completed saved";
    const CALL: &str = "run.failed INVALID_TOOL_CALL";
    const ARGUMENTS: &str = "run.failed INVALID_TOOL_ARGUMENTS";
    let deep = |n: usize| format!(r#"{{"v":{}{}}}"#, "[".repeat(n), "]".repeat(n));
    let cases: Vec<(String, &str)> = [
        ("{}", OK),
        ("", OK),
        (" \n\t", OK),
        ("null", ARGUMENTS),
        ("[]", ARGUMENTS),
        ("\"{}\"", ARGUMENTS),
        ("1", ARGUMENTS),
        (r#"{"n":1"#, CALL),
        ("{\"n\":1}}", CALL),
        ("{n:1}", CALL),
        ("{'n':1}", CALL),
        (r#"{"n":"10"}"#, ARGUMENTS),
        (r#"{"n":1,"n":2}"#, CALL),
        (r#"{"n":1,"\u006e":2}"#, CALL),
        (r#"{"v":9007199254740992}"#, OK),
        (r#"{"v":9007199254740993}"#, CALL),
        (r#"{"v":9223372036854775807}"#, CALL),
        (r#"{"v":18446744073709551616}"#, CALL),
        (r#"{"v":18446744073709552000}"#, OK),
        (r#"{"v":2512292042121000001}"#, CALL),
        (r#"{"v":1e400}"#, CALL),
        (r#"{"v":1e-10000000}"#, CALL),
        (r#"{"v":-0.0}"#, OK),
        (r#"{"v":0.1}"#, OK),
        (r#"{"v":"\ud800"}"#, CALL),
        (r#"{"v":"\udc00\ud800"}"#, CALL),
        (r#"{"v":{"__proto__":1}}"#, CALL),
        (r#"{"v":{"constructor":1,"toString":2,"":3}}"#, OK),
        (r#"{"v":{"$serde_json::private::RawValue":"[1,2]"}}"#, OK),
        (r#"{"v":{"$serde_json::private::Number":"42"}}"#, OK),
    ]
    .into_iter()
    .map(|(text, end)| (text.to_owned(), end))
    .chain([
        (deep(63), OK),
        (deep(64), CALL),
        (deep(200_000), CALL),
        (format!(r#"{{"v":{}}}"#, "9".repeat(200_000)), CALL),
    ])
    .collect();
    for (text, end) in cases {
        let (told, bench) = ends(calls(&[("call-1", "write", &text)])).await;
        let shown = &text[..text.len().min(60)];
        assert_eq!(told.last().unwrap(), end, "{shown}");
        let called = told.iter().any(|word| word.starts_with("tool.called"));
        assert_eq!(called, end == OK, "nothing of a refused batch is shown: {shown}");
        assert_eq!(bench.effects().len(), usize::from(end == OK), "{shown}");
        if end == OK && !text.trim().is_empty() {
            assert_eq!(bench.effects(), [text], "the tool gets the proposed tokens");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_gate_holds_for_every_tool() {
    // Design 3: for every tool, gated or not.
    let (told, _) = ends(calls(&[("call-1", "lookup", r#"{"v":1e400}"#)])).await;
    assert_eq!(told.last().unwrap(), "run.failed INVALID_TOOL_CALL");
}

#[tokio::test(start_paused = true)]
async fn names_and_ids() {
    // Scenarios M9, A15: no fuzzy match, and an id is used once in a run.
    let long = "i".repeat(257);
    let cases: Vec<(Vec<(&str, &str, &str)>, &str)> = vec![
        (vec![("c", "Write", "{}")], "TOOL_NOT_ALLOWED"),
        (vec![("c", "functions.write", "{}")], "TOOL_NOT_ALLOWED"),
        (vec![("c", "write ", "{}")], "TOOL_NOT_ALLOWED"),
        (vec![("c", "", "{}")], "TOOL_NOT_ALLOWED"),
        (vec![("c", "wr\u{0456}te", "{}")], "TOOL_NOT_ALLOWED"),
        (vec![("", "write", "{}")], "INVALID_TOOL_CALL"),
        (vec![(&long, "write", "{}")], "INVALID_TOOL_CALL"),
        (vec![("c", "lookup", "{}"), ("c", "lookup", "{}")], "INVALID_TOOL_CALL"),
        (vec![("c", "lookup", "{}"), ("d", "write", "null")], "INVALID_TOOL_ARGUMENTS"),
    ];
    for (proposed, code) in cases {
        let (told, bench) = ends(calls(&proposed)).await;
        assert_eq!(told.last().unwrap(), &format!("run.failed {code}"), "{proposed:?}");
        assert!(!told.iter().any(|word| word.starts_with("tool.")), "one bad call refuses the batch");
        assert!(bench.effects().is_empty());
    }
    // An id of an earlier step counts as used.
    let bench = Bench::new([calls(&[("c", "lookup", "{}")]), calls(&[("c", "lookup", "{}")])]);
    let told = words(&rest(&mut bench.stream(request())).await);
    assert_eq!(told.last().unwrap(), "run.failed INVALID_TOOL_CALL");
}

#[tokio::test(start_paused = true)]
async fn counts() {
    let many: Vec<String> = (0..33).map(|n| format!("c{n}")).collect();
    let many: Vec<(&str, &str, &str)> = many.iter().map(|id| (id.as_str(), "lookup", "{}")).collect();
    let (told, _) = ends(calls(&many)).await;
    assert_eq!(told.last().unwrap(), "run.failed TOOL_LIMIT");
    let (told, _) = ends(calls(&many[..32])).await;
    assert_eq!(told.last().unwrap(), "run.completed saved");
    assert_eq!(told.iter().filter(|word| word.starts_with("tool.completed")).count(), 32);

    // Contract 7.3: `maxSteps: 1` can never run a tool, and that is checked first.
    let bench = Bench::new([calls(&many)]);
    let told = words(&rest(&mut bench.stream(RunRequest { max_steps: Some(1), ..request() })).await);
    assert_eq!(told.last().unwrap(), "run.failed STEP_LIMIT");
    // Scenario N7: a model that always calls meets the default of eight steps.
    let script = (0..20).map(|n| calls(&[(Box::leak(format!("c{n}").into_boxed_str()), "lookup", "{}")]));
    let bench = Bench::new(script);
    let told = words(&rest(&mut bench.stream(request())).await);
    assert_eq!(told.last().unwrap(), "run.failed STEP_LIMIT");
    assert_eq!(bench.model.turns.load(std::sync::atomic::Ordering::SeqCst), 8);
}

#[tokio::test(start_paused = true)]
async fn a_cut_turn_with_calls_is_not_reviewed() {
    // Scenario M3.
    let step = Step { finish: Some(FinishReason::Length), ..calls(&[("c", "write", "{}")]) };
    let (told, _) = ends(step).await;
    assert_eq!(told.last().unwrap(), "run.failed TRUNCATED_TOOL_CALL");
    assert!(!told.iter().any(|word| word.starts_with("tool.")));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_path_and_the_wanted_type() {
    // Scenario L11: one retry can mend it; the value itself is not repeated.
    let bench = Bench::new([calls(&[("c", "write", r#"{"n":"private"}"#)])]);
    let events = rest(&mut bench.stream(reviewed(IdlePolicy::Pause))).await;
    let last = events.last().unwrap().to_json();
    assert!(last.contains("/n") && last.contains("number"), "{last}");
    assert!(!last.contains("private"), "{last}");
}
