//! What passes as an input and as a result, row by row (sandbox spec R2.3, design 3, law 3).

use std::time::Duration;

use countersign_sandbox_js::{Ending, Function, Json, Output, RunOptions, RunOutcome};

use super::harness::{Log, SANDBOX, failed, functions, rows, summary, value};

/// The text that a function gets for an expression, or the sentence in which it is refused.
async fn input_of(expression: &str) -> String {
    let log = Log::default();
    let code = format!("try {{ await read({expression}) }} catch (e) {{ return [e.name, e.message] }}");
    let outcome = SANDBOX.run(RunOptions::new(code, functions(&log))).await.unwrap();
    match log.all().as_slice() {
        [line] => line.strip_prefix("read ").unwrap().to_owned(),
        [] => match outcome {
            RunOutcome::Completed(completed) => completed.value.text().to_owned(),
            outcome => summary(&outcome),
        },
        more => panic!("{more:?}"),
    }
}

#[tokio::test]
async fn what_passes() {
    for (expression, expected) in [
        ("", "{}"),
        ("{ a: 1, b: undefined, c: [null, true, 'x'] }", r#"{"a":1,"c":[null,true,"x"]}"#),
        ("[1.0, 1e3, -0, 0.1, 1e21 / 10 ** 6, 1e-7, 5e-324]", "[1,1000,-0,0.1,1000000000000000,1e-7,5e-324]"),
        ("1424953923781206.25", "1424953923781206.2"),
        ("9007199254740991", "9007199254740991"),
        ("-9007199254740991", "-9007199254740991"),
        ("[9007199254740992n, 12n, -5n, 0n, 10n ** 20n]", "[9007199254740992,12,-5,0,100000000000000000000]"),
        ("new Date(0)", r#""1970-01-01T00:00:00.000Z""#),
        ("'\\u0000\\u001f\"\\\\\\u{1f600}é'", "\"\\u0000\\u001f\\\"\\\\\u{1f600}é\""),
        ("{ 'é': 1, 'e\\u0301': 2, '1': 3, '01': 4 }", "{\"1\":3,\"é\":1,\"e\u{301}\":2,\"01\":4}"),
        ("Object.create(null, { a: { value: 1, enumerable: true } })", r#"{"a":1}"#),
        ("(() => { const s = { x: 1 }; return [s, s] })()", r#"[{"x":1},{"x":1}]"#),
        (
            "{ then: 1, constructor: 2, toJSON: 3, length: 4 }",
            r#"{"then":1,"constructor":2,"toJSON":3,"length":4}"#,
        ),
        ("JSON.parse('['.repeat(64) + ']'.repeat(64))", &format!("{}{}", "[".repeat(64), "]".repeat(64))),
        ("'a'.repeat(3) + 'b'", r#""aaab""#),
        ("Object.freeze({ a: Object.seal([1]) })", r#"{"a":[1]}"#),
    ] {
        assert_eq!(input_of(expression).await, expected, "{expression}");
    }
}

#[tokio::test]
async fn what_is_refused() {
    for (expression, why) in [
        ("undefined", "undefined"),
        ("[undefined]", "/0 is undefined"),
        ("[1,,2]", "hole"),
        ("new Array(3)", "hole"),
        ("new Array(4294967295)", "hole"),
        ("Object.assign([1], { x: 1 })", "named property"),
        ("Object.assign([1], { 5: 1 })", "hole"),
        ("() => 1", "a function"),
        ("{ a: { b: read } }", "/a/b is a function"),
        ("class {}", "a function"),
        ("Symbol('x')", "a symbol"),
        ("{ [Symbol('x')]: 1 }", "a symbol as key"),
        ("Object.assign([1], { [Symbol('x')]: 1 })", "a symbol as key"),
        ("NaN", "NaN"),
        ("{ a: [Infinity] }", "/a/0 is inf"),
        ("9007199254740992", "BigInt"),
        ("1e21", "BigInt"),
        ("-1e300", "BigInt"),
        ("9007199254740993n", "pass it as a string"),
        ("2n ** 1000000n", "pass it as a string"),
        ("Promise.resolve(1)", "did you forget `await`"),
        ("{ a: Promise.resolve(1) }", "/a is a promise"),
        ("new Date(NaN)", "an invalid Date"),
        ("Object.assign(new Date(0), { x: 1 })", "a Date with something added"),
        ("new (class extends Date {})(0)", "a Date with something added"),
        ("new Map()", "no plain object"),
        ("new Set([1])", "no plain object"),
        ("new Uint8Array(2)", "no plain object"),
        ("new ArrayBuffer(2)", "no plain object"),
        ("/x/", "no plain object"),
        ("new Error('x')", "an Error"),
        ("new Number(1)", "no plain object"),
        ("new String('x')", "no plain object"),
        ("Object(1n)", "no plain object"),
        ("(function () { return arguments })(1)", "no plain object"),
        ("new (class A { x = 1 })()", "an instance of a class"),
        ("{ __proto__: { x: 1 } }", "an instance of a class"),
        ("Object.setPrototypeOf([1], null)", "an instance of a class"),
        ("new (class extends Array {})()", "an instance of a class"),
        ("Object.create({ a: 1 })", "an instance of a class"),
        ("{ get a() { return 1 } }", "/a is a getter or setter"),
        ("{ set a(x) {} }", "/a is a getter or setter"),
        ("Object.defineProperty([], 0, { get() { return 1 } })", "/0 is a getter or setter"),
        ("Object.defineProperty({}, 'a', { value: 1 })", "not enumerable"),
        ("{ toJSON() { return 1 } }", "/toJSON is a function"),
        ("(() => { const a = {}; a.a = a; return a })()", "/a is a cycle"),
        ("(() => { const a = []; a.push([a]); return a })()", "/0/0 is a cycle"),
        ("JSON.parse('['.repeat(65) + ']'.repeat(65))", "more than 64 levels"),
        ("'\\ud800'", "surrogate"),
        ("{ '\\udc00': 1 }", "surrogate"),
        ("JSON.parse('{\"__proto__\": 1}')", "/__proto__ is a key `__proto__`"),
        ("{}, {}", "takes one input, got 2"),
        ("...[1, 2, 3]", "takes one input, got 3"),
        ("globalThis", "is "),
        ("ApprovalRejected", "a function"),
        ("console", "a function"),
        ("(function* () {})()", "no plain object"),
        ("{ 'a/b': { '~': NaN } }", "/a~1b/~0 is NaN"),
    ] {
        let got = input_of(expression).await;
        assert!(got.starts_with("[\"TypeError\",") && got.contains(why), "{expression}: {got}");
    }
}

// The walk runs nothing of the program: no getter, no toJSON, no trap, no patched built-in (W46).
#[tokio::test]
async fn the_walk_runs_no_code() {
    let code = "
        let ran = 0;
        const spy = () => { ran++; throw new Error('ran') };
        Object.prototype.toJSON = spy; Array.prototype.toJSON = spy; Date.prototype.toISOString = spy;
        Date.prototype.getTime = spy; BigInt.prototype.toString = spy;
        String.prototype.toString = spy; JSON.stringify = spy; Object.keys = spy; Reflect.ownKeys = spy;
        Array.prototype[Symbol.iterator] = spy;
        const inputs = [new Date(0), 5n, { get a() { return spy() } }, { toJSON: spy }];
        const sent = [];
        for (let i = 0; i < 4; i++) { try { await read(inputs[i]); sent[i] = true } catch { sent[i] = false } }
        delete Object.prototype.toJSON; delete Array.prototype.toJSON;
        return { ran, sent }";
    assert_eq!(value(code).await, r#"{"ran":0,"sent":[true,true,false,false]}"#);
}

// The program's result passes the same walker; undefined is null.
#[tokio::test]
async fn results_of_programs() {
    for (code, expected) in [
        ("return", "null"),
        ("return undefined", "null"),
        ("return { a: undefined }", "{}"),
        ("return read({ a: 1 })", r#"{"a":1}"#),
        (
            "return new Map()",
            "ResultRefused: the program's result is an object that is no plain object or array (Map, Set, RegExp, typed array, ...)",
        ),
        (
            "return { a: read({}) }",
            "ResultRefused: the program's result at /a is a promise; did you forget `await`?",
        ),
        ("return 'x'.repeat(1000001)", "ResultRefused: the program's result has more than 1000000 bytes"),
    ] {
        assert_eq!(value(code).await, expected, "{code}");
    }
    let many = value("let a = 1; for (let i = 0; i < 30; i++) a = [a, a]; return a").await;
    assert!(many.starts_with("ResultRefused") && many.ends_with("is more than 100000 values"), "{many}");
    assert_eq!(value("return 'x'.repeat(999998)").await.len(), 1_000_000);
}

// R8.6: the effect is real; a result that cannot be carried ends the run and says so.
#[tokio::test]
async fn results_of_functions() {
    let with = |output: &str| {
        let output = output.to_owned();
        Function::new("get", move |_: Json, _| {
            let output = output.clone();
            async move { Ok(Output::json(output)) }
        })
    };
    for (output, expected) in [
        ("", "completed null"),
        (" { \"a\" : 1 } ", "completed {\"a\":1}"),
        ("{\"then\":1,\"n\":1e2}", "completed {\"then\":1,\"n\":100}"),
        ("{\"a\":1,\"a\":2}", "ResultRefused"),
        ("9007199254740993", "ResultRefused"),
        ("{\"id\":9007199254740994}", "ResultRefused"),
        ("1e400", "ResultRefused"),
        ("{\"__proto__\":1}", "ResultRefused"),
        ("\"\\ud800\"", "ResultRefused"),
        ("nonsense", "ResultRefused"),
    ] {
        let outcome = SANDBOX
            .run(RunOptions::new("try { return await get() } catch { return 'caught' }", vec![with(output)]))
            .await
            .unwrap();
        assert_eq!(rows(&outcome), ["1 get executed"], "{output}");
        assert!(summary(&outcome).starts_with(expected), "{output}: {}", summary(&outcome));
        if let RunOutcome::Failed(failed) = outcome {
            let call = failed.report[0].call_id.clone();
            assert_eq!(failed.ending, Ending::ResultRefused { call_id: Some(call) });
            assert!(failed.message.contains("its effect is real"), "{}", failed.message);
            assert!(failed.position.is_some());
        }
    }
    for (size, fits) in [(999_998, true), (999_999, false)] {
        let text = format!("\"{}\"", "x".repeat(size));
        let outcome = SANDBOX.run(RunOptions::new("await get(); return 1", vec![with(&text)])).await.unwrap();
        assert_eq!(summary(&outcome) == "completed 1", fits, "{}", summary(&outcome));
    }
}

// A failure is told as an error with name, message and code; it is never the host's own object (R8.5).
#[tokio::test(start_paused = true)]
async fn failures_of_functions() {
    let code = "try { await fail({}) } catch (e) { return [e instanceof Error, e.name, e.message, e.code, Object.keys(e)] }";
    assert_eq!(value(code).await, r#"[true,"DiskError","disk full","ENOSPC",["code"]]"#);
    let uncaught =
        failed(SANDBOX.run(RunOptions::new("\nawait fail({})", functions(&Log::default()))).await.unwrap());
    assert_eq!(uncaught.to_string(), "Thrown: DiskError: disk full (line 2, column 7)");
    let Ending::Thrown { call_id, .. } = uncaught.ending else { panic!("not thrown") };
    assert_eq!(call_id, Some(uncaught.report[0].call_id.clone()));

    let panics = Function::new("boom", |_: Json, _| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(std::hint::black_box(false), "a bug of the host");
        Ok(Output::null())
    });
    let outcome = SANDBOX
        .run(RunOptions::new("try { await boom() } catch (e) { return e.message }", vec![panics]))
        .await
        .unwrap();
    assert_eq!(summary(&outcome), r#"completed "the function panicked""#);
    assert_eq!(rows(&outcome), ["1 boom failed"]);
}
