//! Two runs with one origin make the same calls and print the same lines (sandbox spec 5; scenarios W6, W12).

use std::process::Command;
use std::time::Duration;

use countersign_sandbox_js::{Origin, RunOptions, RunOutcome};

use super::harness::{Log, SANDBOX, functions, options, origin, run, summary, value};

const PROGRAM: &str = "
    const seen = [];
    const branch = async (name) => {
        for (let i = 0; i < 3; i++) {
            const r = await read({ name, i, at: Date.now(), random: Math.random() });
            seen.push(name + r.i);
            console.log(name, i, new Date(), new Date(2024, 0, 1, i), String(new Date()));
            await del({ name, i }).catch((e) => seen.push(e.message));
        }
    };
    await Promise.all([branch('a'), branch('b'), branch('c')]);
    try { null.x } catch (e) { seen.push(e.stack) }
    try { await fail({}) } catch (e) { seen.push([e.name, e.message, e.stack]) }
    return { seen, keys: Object.getOwnPropertyNames(globalThis), end: Date.now(), more: [Math.random(), new Date(2024, 5, 1).toISOString(),
        Date.parse('2024-01-01T00:00:00'), Date.parse('Jan 1 2024 10:00'), new Date(2024, 6, 1).getTimezoneOffset(), new Date(0).toLocaleString()] }";

/// Everything that a run did and showed.
pub(crate) async fn trace(origin: Origin) -> String {
    let log = Log::default();
    let outcome =
        SANDBOX.run(RunOptions { origin, ..RunOptions::new(PROGRAM, functions(&log)) }).await.unwrap();
    let calls: Vec<String> = outcome
        .report()
        .iter()
        .map(|row| {
            format!(
                "{} {} {} {} {:?} {:?}",
                row.seq, row.call_id, row.function, row.input, row.position, row.state
            )
        })
        .collect();
    let lines: Vec<&str> = outcome.console().lines().map(|line| line.text.as_str()).collect();
    format!("{}\n{}\n{}\n{}", calls.join("\n"), lines.join("\n"), log.all().join("\n"), summary(&outcome))
}

#[tokio::test(start_paused = true)]
async fn equal_origins_give_equal_traces() {
    let first = trace(origin()).await;
    assert!(first.contains("completed"), "{first}");
    for _ in 0..3 {
        assert_eq!(trace(origin()).await, first);
    }
    let other = Origin { seed: [8; 32], ..origin() };
    assert_ne!(trace(other).await, first);
}

/// Run by the test below in a process of its own, whose zone differs.
#[tokio::test(start_paused = true)]
async fn child_prints_its_trace() {
    if std::env::var_os("COUNTERSIGN_TEST_CHILD").is_some() {
        println!("TRACE {:?} TRACE", trace(origin()).await);
    }
}

// W12: the zone of the process is invisible. POSIX zones, which need no database.
#[test]
fn the_zone_of_the_process_is_invisible() {
    let under = |zone: &str| {
        let (_, module) = module_path!().split_once("::").unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("{module}::child_prints_its_trace"), "--nocapture"])
            .env("COUNTERSIGN_TEST_CHILD", "1")
            .env("TZ", zone)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split("TRACE").nth(1).unwrap().to_owned()
    };
    let utc = under("UTC0");
    assert!(utc.contains("completed"), "{utc}");
    assert_eq!(utc, under("XXX-05:30"));
    assert_eq!(utc, under("EST5EDT,M3.2.0,M11.1.0"));
}

// W6: every way to the clock leads to the run's.
#[tokio::test(start_paused = true)]
async fn the_clock_is_the_runs() {
    let code = "
        const D = Date.prototype.constructor;
        class E extends Date {}
        return [Date.now(), new Date().getTime(), new D().getTime(), new (new Date().constructor)().getTime(),
            new E().getTime(), Reflect.construct(Date, []).getTime(), Reflect.construct(Date, [], Object).getTime === undefined,
            typeof Date(), Date.now === D.now, Object.getPrototypeOf(new E()) === E.prototype, new Date(2020, 1).getMonth()]";
    assert_eq!(
        value(code).await,
        "[1700000000000,1700000000001,1700000000002,1700000000004,1700000000005,1700000000006,true,\"string\",true,true,1]"
    );
}

// The clock follows the settlements: time passes while functions execute, and a loop that waits for it ends.
#[tokio::test(start_paused = true)]
async fn the_clock_moves_with_settlements() {
    let code = "const a = Date.now(); await slow({}); const b = Date.now(); return b - a";
    assert_eq!(value(code).await, "1000");
    assert_eq!(
        value("const end = Date.now() + 500; let n = 0; while (Date.now() < end) n++; return n").await,
        "499"
    );
}

#[tokio::test(start_paused = true)]
async fn dates_are_utc() {
    for (code, expected) in [
        ("new Date(2024, 0, 31, 12).toISOString()", r#""2024-01-31T12:00:00.000Z""#),
        ("new Date('2024-01-01').toISOString()", r#""2024-01-01T00:00:00.000Z""#),
        ("new Date('2024-01-01T10:00').toISOString()", r#""2024-01-01T10:00:00.000Z""#),
        ("new Date('2024-01-01T10:00+02:00').toISOString()", r#""2024-01-01T08:00:00.000Z""#),
        ("new Date('2024-01-01T10:00Z').toISOString()", r#""2024-01-01T10:00:00.000Z""#),
        ("new Date('Jan 2 2024 10:00').toISOString()", r#""2024-01-02T10:00:00.000Z""#),
        ("new Date('Jan 2 2024 10:00 GMT+0200').toISOString()", r#""2024-01-02T08:00:00.000Z""#),
        ("new Date(String(new Date(86400000))).toISOString()", r#""1970-01-02T00:00:00.000Z""#),
        ("String(new Date(0))", r#""Thu Jan 01 1970 00:00:00 GMT+0000 (UTC)""#),
        ("`${new Date(NaN)}`", r#""Invalid Date""#),
        ("new Date(0).toLocaleString()", r#""01/01/1970, 12:00:00 AM""#),
        (
            "new Date(0).toDateString() + new Date(0).toTimeString()",
            r#""Thu Jan 01 197000:00:00 GMT+0000 (UTC)""#,
        ),
        (
            "(() => { const d = new Date(0); d.setHours(5, 6); d.setFullYear(2000, 1, 2); return d.toISOString() })()",
            r#""2000-02-02T05:06:00.000Z""#,
        ),
        ("[new Date(0).getHours(), new Date(0).getDay(), new Date(0).getTimezoneOffset()]", "[0,4,0]"),
        ("new Date(new Date(5)).getTime()", "5"),
        ("new Date({ valueOf: () => 7 }).getTime()", "7"),
        ("new Date('1')  < new Date('2')", "true"),
        ("new Date(2024, 1, 1) - new Date(2024, 0, 1)", "2678400000"),
        ("JSON.stringify({ d: new Date(0) })", r#""{\"d\":\"1970-01-01T00:00:00.000Z\"}""#),
        ("[Date.length, Date.name, new Date(0) instanceof Date]", r#"[7,"Date",true]"#),
    ] {
        assert_eq!(value(&format!("return {code}")).await, expected, "{code}");
    }
}

// R5.2: what a program finds is a list that a new version of the engine cannot lengthen unnoticed.
#[tokio::test(start_paused = true)]
async fn the_globals_are_known() {
    let outcome = SANDBOX
        .run(RunOptions::new("return Object.getOwnPropertyNames(globalThis).sort()", Vec::new()))
        .await;
    let RunOutcome::Completed(completed) = outcome.unwrap() else { panic!("failed") };
    let names: Vec<String> = completed.value.decode().unwrap();
    let expected = "AggregateError ApprovalRejected Array ArrayBuffer BigInt BigInt64Array BigUint64Array Boolean DataView Date Error \
        EvalError Float16Array Float32Array Float64Array Function Infinity Int16Array Int32Array Int8Array InternalError Iterator JSON Map \
        Math NaN Number Object Promise RangeError ReferenceError Reflect RegExp Set String SuppressedError Symbol SyntaxError TypeError \
        URIError Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakSet console decodeURI decodeURIComponent encodeURI \
        encodeURIComponent escape globalThis isFinite isNaN parseFloat parseInt queueMicrotask undefined unescape";
    assert_eq!(names.join(" "), expected.split_whitespace().collect::<Vec<_>>().join(" "));
    for name in names {
        let refused = SANDBOX.run(RunOptions::new(
            "",
            vec![countersign_sandbox_js::Function::new(name.clone(), |_, _| async {
                Ok(countersign_sandbox_js::Output::null())
            })],
        ));
        assert!(refused.await.is_err(), "a function may be called {name}");
    }
}

// W16, W46: order of eager calls; long sequences; runs side by side do not disturb each other.
#[tokio::test(start_paused = true)]
async fn many_calls_side_by_side() {
    let code = "let n = 0; for (let i = 0; i < 500; i++) n += (await read({ i })).i; return n";
    let log = Log::default();
    let (a, b) = tokio::join!(SANDBOX.run(options(code, &log)), SANDBOX.run(options(code, &log)));
    assert_eq!([summary(&a.unwrap()), summary(&b.unwrap())], ["completed 124750", "completed 124750"]);
    let eager = run("[1, 2, 3, 4].map(async (id) => read({ id })); await read({ id: 5 })").await;
    let inputs: Vec<String> = eager.report().iter().map(|row| row.input.text().to_owned()).collect();
    assert_eq!(inputs, (1..=5).map(|id| format!("{{\"id\":{id}}}")).collect::<Vec<_>>());
    // Outcomes are told in the order in which they arrive, each when the program has nothing left to do.
    let code = "const seen = []; await Promise.all([slow({ i: 1 }), read({ i: 2 })].map((p) => p.then((r) => seen.push(r.i)))); return seen";
    assert_eq!(value(code).await, "[2,1]");
    tokio::time::sleep(Duration::ZERO).await;
}
