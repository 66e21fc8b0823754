//! What the scripted provider says.

use std::time::Duration;

use countersign_approval_core::ids::ModelId;
use countersign_approval_core::ids::{CallId, ToolName};
use countersign_approval_core::json::Exact;
use countersign_driver::provider::{Message, Provider};
use countersign_protocol::code::Code;
use countersign_protocol::provider_info::AuthMode;
use countersign_protocol::result::{FinishReason, Usage};
use countersign_providers::{Scripted, ScriptedConfig, Step};
use tokio::time::Instant;

use crate::heard::{Heard, ask, assistant, calls, request, user};

fn from_json(text: &str) -> Scripted {
    Scripted::from_config(ScriptedConfig::parse(text).unwrap())
}

fn output() -> Message {
    Message::Tool {
        call_id: CallId::parse("call-1").unwrap(),
        name: ToolName::parse("write").unwrap(),
        output: Exact::empty_object(),
    }
}

const SEED: &str = r#"{"id":"mock","kind":"scripted","models":["demo"],
    "scripts":{"save":[{"calls":[{"id":"c1","name":"write","arguments":{ "k" : 1.0 }}]},{"text":"saved"}]},
    "default":[{"text":"hello"}]}"#;

/// The form of the seed: a script for an input, a default for every other, `done` after the end.
#[tokio::test]
async fn steps_are_chosen_by_input_and_position() {
    let mock = from_json(SEED);
    let table: &[(&[Message], &str)] = &[
        (&[user("save")], ""),
        (&[user("save"), assistant(""), output()], "saved"),
        (&[user("save"), assistant(""), output(), assistant("saved")], "done"),
        (&[user("Save")], "hello"),
        (&[user("save ")], "hello"),
        (&[user("other"), assistant("hello")], "done"),
        // History before the last question does not count.
        (&[user("old"), assistant("answer"), user("other")], "hello"),
        (&[user("other"), assistant("x"), user("save"), assistant(""), output()], "saved"),
        (&[assistant("x")], "done"),
        (&[], "hello"),
    ];
    for (messages, text) in table {
        let (turn, _) = ask(&mock, messages).await;
        assert_eq!(turn.unwrap().text, *text, "{messages:?}");
    }
}

/// It keeps no state: the same question twice gives the same step (law 3; two runs at once).
#[tokio::test]
async fn asking_again_repeats_the_step() {
    let mock = from_json(SEED);
    for _ in 0..2 {
        let (turn, _) = ask(&mock, &[user("save")]).await;
        assert_eq!(calls(&turn.unwrap()), [("c1", "write", "{ \"k\" : 1.0 }")]);
    }
}

/// Law 3: argument text is proposed as it is written, also what the gate will refuse later.
#[tokio::test]
async fn argument_text_is_never_rewritten() {
    for arguments in [
        r#"{"n":9007199254740993,"m":1e400,"z":-0.0}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"__proto__":{}}"#,
        r#"{"s":"\ud800","t":"\u0041/\/"}"#,
        "{\n\t\"deep\" : [ [ ] ] }",
        r#"{"$serde_json::private::RawValue":"[1,2]"}"#,
    ] {
        let mock = from_json(&format!(
            r#"{{"id":"mock","kind":"scripted","models":["demo"],
                "default":[{{"calls":[{{"id":"c","name":"t","arguments":{arguments}}}]}}]}}"#
        ));
        let (turn, _) = ask(&mock, &[user("x")]).await;
        assert_eq!(turn.unwrap().calls[0].arguments, arguments);
    }
}

/// `argumentsText` is any text (M1, M3): nothing is repaired here.
#[tokio::test]
async fn raw_argument_text_may_be_anything() {
    for text in ["", "null", "{\"a\":", "[1]", "\u{feff}{}"] {
        let quoted = serde_json::to_string(text).unwrap();
        let mock = from_json(&format!(
            r#"{{"id":"mock","kind":"scripted","models":["demo"],
                "default":[{{"calls":[{{"id":"","name":"functions.save ","argumentsText":{quoted}}}]}}]}}"#
        ));
        let (turn, _) = ask(&mock, &[user("x")]).await;
        assert_eq!(calls(&turn.unwrap()), [("", "functions.save ", text)]);
    }
}

#[tokio::test]
async fn deltas_are_streamed_and_make_the_text() {
    let mock = from_json(
        r#"{"id":"mock","kind":"scripted","models":["demo"],"default":[
            {"deltas":["a","","bé"],"usage":{"inputTokens":0,"outputTokens":9007199254740991,"costUsd":0.5}},
            {"text":"ab","deltas":["a","b"]},
            {"text":"whole","finish":"length"}]}"#,
    );
    let (turn, heard) = ask(&mock, &[user("x")]).await;
    let turn = turn.unwrap();
    assert_eq!((turn.text.as_str(), heard.texts().concat().as_str()), ("abé", "abé"));
    assert_eq!(
        turn.usage,
        Some(Usage {
            input_tokens: Some(0),
            output_tokens: Some(9_007_199_254_740_991),
            cost_usd: Some(0.5),
            ..Usage::default()
        })
    );
    let (turn, heard) = ask(&mock, &[user("x"), assistant("1")]).await;
    assert_eq!((turn.unwrap().text.as_str(), heard.texts().len()), ("ab", 2));
    let (turn, heard) = ask(&mock, &[user("x"), assistant("1"), assistant("2")]).await;
    let turn = turn.unwrap();
    assert_eq!((turn.text.as_str(), turn.finish, turn.usage), ("whole", FinishReason::Length, None));
    assert!(heard.pieces().is_empty());
}

/// A failing step: pieces may come before, then the code with the table's retry hint (contract 5.3).
#[tokio::test]
async fn a_step_may_fail() {
    let mock = from_json(
        r#"{"id":"mock","kind":"scripted","models":["demo"],"default":[
            {"deltas":["half"],"error":{"code":"RATE_LIMITED","message":"slow down"}},
            {"error":{"code":"FUTURE_CODE","message":"?"}}]}"#,
    );
    let (turn, heard) = ask(&mock, &[user("x")]).await;
    let info = turn.unwrap_err().info;
    assert_eq!((info.code, info.message.as_str(), info.retryable), (Code::RATE_LIMITED, "slow down", true));
    assert_eq!(heard.texts(), ["half"]);
    let (turn, _) = ask(&mock, &[user("x"), assistant("1")]).await;
    assert_eq!(turn.unwrap_err().info.code.as_str(), "FUTURE_CODE");
}

/// M3: a turn that was cut beside a call is played as it is written; refusing it is the driver's rule.
#[tokio::test]
async fn a_cut_call_reaches_the_driver() {
    let step = Step::call("c", "write", "{}").finish(FinishReason::Length);
    let mock = Scripted::builder("mock").models(["demo"]).default_script([step]).build().unwrap();
    let (turn, _) = ask(&mock, &[user("x")]).await;
    let turn = turn.unwrap();
    assert_eq!((turn.finish, calls(&turn)), (FinishReason::Length, vec![("c", "write", "{}")]));
}

/// `delayMs` passes in tokio's time, before anything is heard, and a dropped turn waits no longer.
#[tokio::test(start_paused = true)]
async fn a_delay_comes_before_the_answer() {
    let mock = from_json(
        r#"{"id":"mock","kind":"scripted","models":["demo"],"default":[{"delayMs":60000,"deltas":["x"]}]}"#,
    );
    let (start, heard, model) = (Instant::now(), Heard::default(), ModelId::parse("demo").unwrap());
    let messages = [user("x")];
    let turn = mock.turn(request(&model, &messages), &heard);
    assert!(tokio::time::timeout(Duration::from_secs(59), turn).await.is_err());
    assert!(heard.pieces().is_empty());
    assert_eq!(start.elapsed(), Duration::from_secs(59));

    let (turn, heard) = ask(&mock, &messages).await;
    assert_eq!(turn.unwrap().text, "x");
    assert_eq!(start.elapsed(), Duration::from_secs(119));
    assert_eq!(heard.texts(), ["x"]);
}

/// Whoever listens gets its turn between two pieces, so that a cancelled run stops in the middle (law 5).
#[tokio::test]
async fn a_dropped_turn_streams_no_more() {
    let mock = Scripted::builder("mock")
        .models(["demo"])
        .default_script([Step::deltas((0..100).map(|n| n.to_string()))])
        .build()
        .unwrap();
    let (heard, model, messages) = (Heard::default(), ModelId::parse("demo").unwrap(), [user("x")]);
    tokio::select! {
        biased;
        () = async { while heard.pieces().len() < 3 { tokio::task::yield_now().await } } => {}
        _ = mock.turn(request(&model, &messages), &heard) => panic!("it did not yield"),
    }
    assert_eq!(heard.texts(), ["0", "1", "2"]);
}

/// Contract 1.7.
#[test]
fn its_info() {
    let info = from_json(SEED).info().clone();
    assert_eq!((info.id.as_str(), info.name.as_str(), info.auth_mode), ("mock", "mock", AuthMode::None));
    assert!(info.capabilities.tools && info.capabilities.text_streaming);
    assert_eq!(info.models, Some(vec![ModelId::parse("demo").unwrap()]));
    let info = from_json(
        r#"{"id":"mock","kind":"scripted","models":["demo"],"name":"A mock","scripts":{},"default":[],
            "capabilities":{"tools":false,"safeRetries":true}}"#,
    )
    .info()
    .clone();
    assert_eq!(info.name, "A mock");
    assert_eq!(
        ["tools", "textStreaming", "safeRetries", "images"].map(|name| info.capabilities.has(name)),
        [false, true, true, false]
    );
}
