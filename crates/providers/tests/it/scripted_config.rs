//! Reading a scripted provider from data: strict, and each error names the member.

use countersign_providers::{Error, Scripted, ScriptedConfig};
use serde::Deserialize;

fn error(text: &str) -> String {
    ScriptedConfig::parse(text).expect_err(text).to_string()
}

/// Every member: missing, unknown, null, of the wrong form, over its edge.
#[test]
fn what_is_refused_and_where() {
    let table = [
        ("[]", "configuration: expected an object without repeated members"),
        (r#"{"kind":"scripted","models":["m"]}"#, "id: is required"),
        (r#"{"id":"a","models":["m"]}"#, "kind: is required"),
        (r#"{"id":"a","kind":"scripted"}"#, "models: is required"),
        (r#"{"id":"a","kind":"openai-compatible","models":["m"]}"#, r#"kind: expected "scripted""#),
        (r#"{"id":"a b","kind":"scripted","models":["m"]}"#, "id: provider: must match"),
        (r#"{"id":"a","kind":"scripted","models":[]}"#, "models: expected 1 to 1000 models"),
        (r#"{"id":"a","kind":"scripted","models":["m",""]}"#, "models[1]: model: must match"),
        (r#"{"id":"a","kind":"scripted","models":"m"}"#, "models: expected an array"),
        (r#"{"id":"a","id":"b","kind":"scripted","models":["m"]}"#, "without repeated members"),
        (r#"{"id":"a","kind":"scripted","models":["m"],"extra":1}"#, "extra: unknown member"),
        (r#"{"id":"a","kind":"scripted","models":["m"],"name":null}"#, "name: expected a string"),
        (r#"{"id":"a","kind":"scripted","models":["m"],"name":""}"#, "name: expected 1 to 100 characters"),
        (r#"{"id":"a","kind":"scripted","models":["m"],"scripts":[]}"#, "scripts: expected an object"),
        (
            r#"{"id":"a","kind":"scripted","models":["m"],"scripts":{"x":1}}"#,
            r#"scripts["x"]: expected an array"#,
        ),
        (
            r#"{"id":"a","kind":"scripted","models":["m"],"scripts":{"x":[],"\u0078":[]}}"#,
            "scripts: expected an object without repeated members",
        ),
        (
            r#"{"id":"a","kind":"scripted","models":["m"],"capabilities":{"tools":1}}"#,
            "capabilities.tools: expected true or false",
        ),
        (
            r#"{"id":"a","kind":"scripted","models":["m"],"capabilities":{"images":null}}"#,
            r#"capabilities["images"]: expected true or false"#,
        ),
    ];
    for (text, expected) in table {
        let error = error(text);
        assert!(error.contains(expected), "{text}\n  gave {error}\n  not  {expected}");
    }
}

/// The same for a step, wherever it stands.
#[test]
fn what_is_refused_in_a_step() {
    let table = [
        ("1", ": expected an object"),
        (r#"{"txt":"a"}"#, ".txt: unknown member"),
        (r#"{"text":null}"#, ".text: expected a string"),
        (r#"{"deltas":["a",1]}"#, ".deltas[1]: expected a string"),
        (r#"{"deltas":["a"],"text":"b"}"#, ": `text` must equal the `deltas` joined"),
        (r#"{"usage":{"inputTokens":-1}}"#, ".usage.inputTokens: expected an integer from 0"),
        (r#"{"usage":{"inputTokens":1.0}}"#, ".usage.inputTokens: expected an integer"),
        (r#"{"usage":{"inputTokens":9007199254740992}}"#, ".usage.inputTokens: expected an integer"),
        (r#"{"usage":{"costUsd":-0.1}}"#, ".usage.costUsd: expected a number"),
        (r#"{"usage":{"tokens":1}}"#, ".usage.tokens: unknown member"),
        (r#"{"delayMs":2147483648}"#, ".delayMs: expected an integer from 0 to 2147483647"),
        (r#"{"delayMs":"1"}"#, ".delayMs: expected an integer"),
        (r#"{"finish":"tool_calls"}"#, r#".finish: expected "stop" or "length""#),
        (r#"{"error":{"code":"X"}}"#, ".error.message: is required"),
        (r#"{"error":{"code":"","message":"m"}}"#, ".error.code: expected a code"),
        (r#"{"error":{"code":"X","message":"m","retryable":true}}"#, ".error.retryable: unknown member"),
        (r#"{"error":{"code":"X","message":"m"},"text":"t"}"#, ": a step with `error` takes no"),
        (r#"{"calls":[{"name":"t","arguments":{}}]}"#, ".calls[0].id: is required"),
        (r#"{"calls":[{"id":"c","arguments":{}}]}"#, ".calls[0].name: is required"),
        (r#"{"calls":[{"id":"c","name":"t"}]}"#, ".calls[0]: expected exactly one of"),
        (
            r#"{"calls":[{"id":"c","name":"t","arguments":{},"argumentsText":""}]}"#,
            ".calls[0]: expected exactly one of",
        ),
        (r#"{"calls":[{"id":"c","name":"t","arguments":[]}]}"#, ".calls[0].arguments: expected an object"),
        (r#"{"calls":[{"id":"c","name":"t","arguments":"{}"}]}"#, ".calls[0].arguments: expected an object"),
        (r#"{"calls":[{"id":"c","name":"t","arguments":{},"x":1}]}"#, ".calls[0].x: unknown member"),
    ];
    for (step, expected) in table {
        for (before, after, path) in [
            (r#""default":[{},"#, "]", "default[1]"),
            (r#""scripts":{"a\"b":["#, "]}", r#"scripts["a\"b"][0]"#),
        ] {
            let text = format!(r#"{{"id":"a","kind":"scripted","models":["m"],{before}{step}{after}}}"#);
            let (error, expected) = (error(&text), format!("{path}{expected}"));
            assert!(error.starts_with(&expected), "{text}\n  gave {error}\n  not  {expected}");
        }
    }
}

/// Law 9: at the edge and one over.
#[test]
fn a_thousand_models_and_no_more() {
    for (count, accepted) in [(1000, true), (1001, false)] {
        let models = vec!["\"m\""; count].join(",");
        let text = format!(r#"{{"id":"a","kind":"scripted","models":[{models}]}}"#);
        assert_eq!(ScriptedConfig::parse(&text).is_ok(), accepted, "{count}");
    }
    let none: [&str; 0] = [];
    assert!(matches!(Scripted::builder("a").models(none).build(), Err(Error::Config { .. })));
    assert!(matches!(Scripted::builder("a b").models(["m"]).build(), Err(Error::Name(_))));
}

/// Hostile text: an error and no panic, however deep (law 9).
#[test]
fn broken_text_is_an_error() {
    let deep = format!(
        r#"{{"id":"a","kind":"scripted","models":["m"],"default":[{{"calls":[{{"id":"c","name":"t","arguments":{}{}}}]}}]}}"#,
        r#"{"a":"#.repeat(100_000),
        "}".repeat(99_999),
    );
    for text in ["", "{", "nul", "{\"id\":\"\\ud800\"}", "{}{}", deep.as_str()] {
        assert!(ScriptedConfig::parse(text).is_err());
    }
}

/// Inside a larger file, whose reader keeps the text.
#[test]
fn it_reads_inside_another_object() {
    #[derive(Deserialize)]
    struct File {
        providers: Vec<ScriptedConfig>,
    }
    let text = r#"{"providers":[{"id":"a","kind":"scripted","models":["m"],"default":[
        {"calls":[{"id":"c","name":"t","arguments":{ "n" : 1e0 }}]}]}]}"#;
    let file: File = serde_json::from_str(text).unwrap();
    assert!(format!("{:?}", file.providers[0]).contains(r#"{ \"n\" : 1e0 }"#));
    let error = serde_json::from_str::<File>(&text.replace("\"id\":\"c\",", "")).err().unwrap();
    assert!(error.to_string().contains("default[0].calls[0].id: is required"), "{error}");
}

/// The example of the documentation is a configuration.
#[test]
fn the_documented_example_reads() {
    let page = include_str!("../../../../docs/providers.md");
    let section = page.split("\n## ").find(|section| section.starts_with("`scripted`")).unwrap();
    let example = section.split("```json").nth(1).unwrap().split("```").next().unwrap();
    ScriptedConfig::parse(example).unwrap();
}
