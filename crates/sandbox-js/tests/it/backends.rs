//! One program, its functions and a seed make one trace, wherever it runs and whether it gives up its engine (sandbox
//! spec 5; design 5).

use std::time::Duration;

use countersign_sandbox_js::{
    Answer, ApprovalRequest, Bound, Config, Ending, RunOptions, RunOutcome, Sandbox,
};

use crate::in_process::harness::{Log, asking, failed, functions, options, origin, rows, summary};
use crate::{in_process, in_worker};

/// Every way to run a program: never without its engine; giving it up at each question; in workers, which do that too.
fn everywhere() -> [(&'static str, Sandbox); 3] {
    let sandbox = |config: Config| Sandbox::new(Config { threads: 2, ..config }).unwrap();
    let long = Duration::from_secs(1 << 30);
    [
        ("hot", sandbox(Config { evict_after: long, ..in_process::config() })),
        ("evicted", sandbox(Config { evict_after: Duration::ZERO, ..in_process::config() })),
        ("worker", sandbox(in_worker::config())),
    ]
}

/// Everything that a run did and showed.
fn told(outcome: &RunOutcome, log: &Log) -> String {
    let rows: Vec<String> = outcome.report().iter().map(|row| format!("{row:?} {}", row.input)).collect();
    let lines: Vec<String> =
        outcome.console().lines().map(|line| format!("{} {}", line.level.name(), line.text)).collect();
    format!(
        "{}\n{}\n{} omitted\n{}\n{}",
        rows.join("\n"),
        lines.join("\n"),
        outcome.console().omitted_bytes(),
        log.all().join("\n"),
        summary(outcome)
    )
}

/// Runs `code` everywhere, with a person who answers by a rule and takes no time that shows.
async fn same_everywhere(code: &str) -> String {
    let mut first: Option<String> = None;
    for (name, sandbox) in everywhere() {
        let log = Log::default();
        let mut options = options(code, &log);
        options.approval = asking(&log, Duration::ZERO, |request: &ApprovalRequest| match request.seq % 3 {
            0 => Answer::Reject { reason: Some("not this one".to_owned()) },
            _ => Answer::Approve,
        });
        let outcome = sandbox.run(options).await.unwrap();
        let told = told(&outcome, &log);
        match &first {
            None => first = Some(told),
            Some(first) => assert_eq!(*first, told, "{name}"),
        }
    }
    first.unwrap()
}

const PROGRAM: &str = "
    const seen = [];
    const branch = async (name) => {
        for (let i = 0; i < 3; i++) {
            const r = await read({ name, i, at: Date.now(), random: Math.random() });
            console.log(name, i, r, new Date(), String(new Date(2024, 0, 1, i)), { deep: [1, { x: r }] });
            try { seen.push((await del({ name, i, random: Math.random() })).random) }
            catch (e) { console.warn(e); seen.push([e.name, e.message, e.reason, e.seq, e.callId, e.stack]) }
        }
    };
    await Promise.all([branch('a'), branch('b')]);
    try { await fail({}) } catch (e) { seen.push([e.name, e.message, e.code, e.stack]) }
    try { await read(() => 1) } catch (e) { seen.push([e.message, e.stack]) }
    await send({ end: Date.now() }).catch((e) => seen.push(String(e)));
    await send({ end: Date.now() }).catch((e) => seen.push(String(e)));
    console.error(seen.length);
    return { seen, now: Date.now(), random: Math.random() }";

// Law 7: a run that was rebuilt is the run that it was: calls, inputs, clocks, randomness, console, positions, stacks.
#[tokio::test(start_paused = true)]
async fn one_trace() {
    let trace = same_everywhere(PROGRAM).await;
    assert!(trace.contains("completed"), "{trace}");
    assert!(trace.contains("not this one"), "{trace}");
}

/// Run by the test below in a process of its own, whose zone differs.
#[tokio::test(start_paused = true)]
async fn child_prints_its_trace() {
    if std::env::var_os("COUNTERSIGN_TEST_CHILD").is_some() {
        println!("TRACE {:?} TRACE", same_everywhere(PROGRAM).await);
    }
}

// W12: the zone of the process is invisible, to a program that was rebuilt and in a worker too.
#[test]
fn the_zone_is_invisible_everywhere() {
    let under = |zone: &str| {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "backends::child_prints_its_trace", "--nocapture"])
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
}

// The bounds of the console hold over rebuilds, and nothing is printed twice.
#[tokio::test(start_paused = true)]
async fn one_console() {
    let code = "
        for (let i = 0; i < 12; i++) {
            for (let j = 0; j < 30 * i; j++) console.log(i, j, 'x'.repeat(i * 7));
            await del({ i }).catch(() => console.info('no', i));
        }
        console.log('y'.repeat(40000)); throw new Error('at the end')";
    let trace = same_everywhere(code).await;
    assert!(trace.contains("log 1 0 xxxxxxx\n"), "{trace}");
    assert!(!trace.contains("\n0 omitted"), "{trace}");
    assert!(trace.ends_with("Thrown: Error: at the end (line 6, column 51)"), "{trace}");
}

// Every other way to end, with questions before it.
#[tokio::test(start_paused = true)]
async fn one_ending() {
    for code in [
        "await del({}); await send({}); await del({}); return 1",
        "await del({}); null.x",
        "await del({}); await nothing()",
        "await del({}); await new Promise(() => {})",
        "await del({}); return () => 1",
        "await del({}); return new Date(0)",
        "await del({}); for (const a = []; ;) a.push(new Array(100000).fill(1))",
        "await del({}); const f = () => f(); f()",
        "await del({}); for (;;) del({})",
        "await del({}); await read('x'.repeat(128000))",
        "await del({}); throw { a: [1] }",
        "await del({}); try { await del({}) } finally { del({}) }",
        "await del({}); await slow({}); await del({})",
        "const [a, b] = [del({ a: 1 }), slow({ b: 1 })]; return [await b, await a, await del({ c: 1 })]",
        "del({ a: 1 }); await read({}); del({ a: 2 }); return 'floating'",
        "return await Promise.allSettled([1, 2, 3, 4].map((i) => del({ i })))",
        "return await Promise.race([del({ i: 1 }), slow({ i: 2 }), read({ i: 3 })])",
    ] {
        same_everywhere(code).await;
    }
}

// The budget of computing is a number of polls, the same for a program that was rebuilt (design 5).
#[tokio::test(start_paused = true)]
async fn one_budget() {
    let code = "
        let n = 0;
        for (let j = 0; j < 4; j++) {
            for (let i = 0; i < 200000; i++) n += i;
            await del({ j });
        }
        return n";
    let polls = |sandbox: Sandbox, polls: u64| async move {
        let log = Log::default();
        let mut options = RunOptions { origin: origin(), ..RunOptions::new(code, functions(&log)) };
        options.limits.polls = polls;
        options.approval = asking(&log, Duration::from_secs(60), |_| Answer::Approve);
        sandbox.run(options).await.unwrap()
    };
    let [(_, hot), ..] = everywhere();
    let mut needed = 0;
    while summary(&polls(hot.clone(), needed).await) != "completed 79999600000" {
        needed += 1;
        assert!(needed < 1_000);
    }
    assert!(needed > 20, "{needed}");
    for (name, sandbox) in everywhere() {
        assert_eq!(summary(&polls(sandbox.clone(), needed).await), "completed 79999600000", "{name}");
        let less = polls(sandbox, needed - 1).await;
        assert_eq!(rows(&less).len(), 3, "{name}");
        assert_eq!(failed(less).ending, Ending::LimitExceeded(Bound::Compute), "{name}");
    }
}

// Law 1: whatever happens to engines, each call runs once, with the key that was shown, as attempt 1.
#[tokio::test(start_paused = true)]
async fn nothing_runs_twice() {
    for (name, sandbox) in everywhere() {
        let log = Log::default();
        let calls = log.clone();
        let pay = countersign_sandbox_js::Function::new(
            "pay",
            move |input, call: countersign_sandbox_js::CallContext| {
                calls.add(format!("pay {input} {} {}", call.call_id, call.attempt));
                async { Ok(countersign_sandbox_js::Output::null()) }
            },
        )
        .requires_approval();
        let code = "for (let n = 1; n <= 20; n++) await pay({ n })";
        let mut options = RunOptions { origin: origin(), ..RunOptions::new(code, vec![pay]) };
        options.approval = asking(&Log::default(), Duration::from_secs(3_600), |_| Answer::Approve);
        let run = options.origin.run_id;
        assert_eq!(summary(&sandbox.run(options).await.unwrap()), "completed null", "{name}");
        let expected: Vec<String> = (1..=20).map(|n| format!("pay {{\"n\":{n}}} {run}-{n} 1")).collect();
        assert_eq!(log.all(), expected, "{name}");
    }
}

// W12: traces of programs in both, under whatever zone this process has (see the zone test of each).
#[tokio::test(start_paused = true)]
async fn one_trace_of_the_determinism_test() {
    let here = in_process::determinism::trace(origin()).await;
    assert_eq!(here, in_worker::determinism::trace(origin()).await);
}
