//! Each limit at its edge, with its typed error that names the bound and its value (law 9, design 8; scenario U17).

use std::time::Duration;

use countersign_sandbox_js::{Backend, Bound, Ending, Error, Limits, RunOptions};

use super::harness::{Log, SANDBOX, config, failed, functions, options, rows, run, run_limited, summary};

#[tokio::test]
async fn calls() {
    let code = |n: usize| format!("for (let i = 0; i < {n}; i++) try {{ await del({{ i }}) }} catch {{}}");
    assert_eq!(summary(&run(&code(1_000)).await), "completed null");
    let over = run(&code(1_001)).await;
    assert_eq!(over.report().len(), 1_000);
    assert_eq!(summary(&over), "LimitExceeded: the run used more than 1000 calls");
    // Refused inputs count too, and a program cannot catch the end.
    let refused =
        run_limited("for (;;) { try { await read(() => 1) } catch {} }", |limits| limits.calls = 10).await;
    assert_eq!(failed(refused).ending, Ending::LimitExceeded(Bound::Calls));
    let floating = run_limited("for (;;) read({})", |limits| limits.calls = 10).await;
    assert_eq!(rows(&floating), (1..=10).map(|n| format!("{n} read discarded")).collect::<Vec<_>>());
    assert_eq!(failed(floating).ending, Ending::LimitExceeded(Bound::Calls));
}

#[tokio::test]
async fn input_bytes() {
    // The text has two quotes.
    assert_eq!(summary(&run("await read('x'.repeat(127998))").await), "completed null");
    let over = run("try { await read('x'.repeat(127999)) } catch {}").await;
    assert_eq!(summary(&over), "LimitExceeded: the run used an input of more than 128000 bytes");
    assert!(over.report().is_empty());
    assert_eq!(summary(&run("await read(new Array(60000).fill(1))").await), "completed null");
    let over = run("await read(new Array(64001).fill(1))").await;
    assert_eq!(failed(over).ending, Ending::LimitExceeded(Bound::Input));
}

#[tokio::test]
async fn source_bytes() {
    let of = |size: usize| format!("//{}", "x".repeat(size - 2));
    assert_eq!(summary(&run(&of(256 << 10)).await), "completed null");
    assert_eq!(
        summary(&run(&of((256 << 10) + 1)).await),
        "LimitExceeded: the run used more than 262144 bytes of source"
    );
}

#[tokio::test]
async fn names_in_one_function() {
    let of = |count: usize| (0..count).map(|i| format!("let a{i};")).collect::<String>();
    assert_eq!(summary(&run(&of(5_000)).await), "completed null");
    assert!(summary(&run(&of(5_001)).await).starts_with("Syntax: more than 5000 names in one function"));
}

// The same program uses the same number of polls, so the budget is the same on every machine.
#[tokio::test]
async fn polls_are_deterministic() {
    let code = "let n = 0; for (let i = 0; i < 1000000; i++) n += i; return n";
    let mut needed = 0;
    for polls in 0..1_000 {
        if summary(&run_limited(code, |limits| limits.polls = polls).await) == "completed 499999500000" {
            needed = polls;
            break;
        }
    }
    assert!(needed > 10, "{needed}");
    for _ in 0..3 {
        assert_eq!(
            summary(&run_limited(code, |limits| limits.polls = needed).await),
            "completed 499999500000"
        );
        let less = run_limited(code, |limits| limits.polls = needed - 1).await;
        assert_eq!(failed(less).ending, Ending::LimitExceeded(Bound::Compute));
    }
}

#[tokio::test(start_paused = true)]
async fn running_time() {
    let log = Log::default();
    for (millis, fits) in [(1_500, true), (900, false)] {
        let mut options = options("await slow({}); return 1", &log);
        options.limits.run = Duration::from_millis(millis);
        let outcome = SANDBOX.run(options).await.unwrap();
        assert_eq!(summary(&outcome) == "completed 1", fits, "{}", summary(&outcome));
        if !fits {
            // The call was told and ended within the grace time.
            assert_eq!(rows(&outcome), ["1 slow executed"]);
        }
    }
}

#[tokio::test]
async fn memory_and_stack() {
    let fill = "const a = []; for (let i = 0; i < 40; i++) a.push(new Uint8Array(1 << 20)); return a.length";
    assert_eq!(summary(&run(fill).await), "completed 40");
    let less = run_limited(fill, |limits| limits.memory = 32 << 20).await;
    assert_eq!(summary(&less), "LimitExceeded: the run used more than 33554432 bytes of memory");
    let deep = "const f = (n) => n && 1 + f(n - 1); return f(1000)";
    assert_eq!(summary(&run(deep).await), "completed 1000");
    let less = run_limited(deep, |limits| limits.stack = 64 << 10).await;
    assert_eq!(failed(less).ending, Ending::LimitExceeded(Bound::Stack));
    let mut options = RunOptions::new("", functions(&Log::default()));
    options.limits.stack = Limits::MAX_STACK + 1;
    assert!(matches!(SANDBOX.run(options).await, Err(Error::Limit(_))));
    // For the engine 0 means without a limit, which would end the process.
    let mut options = RunOptions::new("const f = () => f(); f()", functions(&Log::default()));
    options.limits.stack = 0;
    assert!(matches!(SANDBOX.run(options).await, Err(Error::Limit(_))));
}

// Law 9: the text of a failure is bounded like a result. The call failed, and the report says so.
#[tokio::test]
async fn failures_are_bounded() {
    for (bytes, expected) in [(24, "completed 1"), (23, "ResultRefused: the failure of a function has 24 bytes")] {
        let outcome = run_limited("try { await fail({}) } catch { return 1 }", |limits| limits.result = bytes).await;
        assert!(summary(&outcome).starts_with(expected), "{}", summary(&outcome));
        assert_eq!(rows(&outcome), ["1 fail failed"]);
    }
}

// A bound beyond what the clock can say is none, and no panic.
#[tokio::test]
async fn the_longest_time() {
    let mut options = RunOptions::new("return await read(1)", functions(&Log::default()));
    options.limits = Limits { run: Duration::MAX, compute: Duration::MAX, ..Limits::default() };
    match (SANDBOX.run(options).await, config().backend) {
        (Ok(outcome), Backend::InProcess) => {
            assert_eq!(summary(&outcome), "completed 1");
        }
        (Err(Error::Limit(_)), _) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn stalled() {
    for code in ["await new Promise(() => {})", "let p; p = (async () => { await null; await p })(); await p"]
    {
        assert_eq!(
            summary(&run(code).await),
            "Stalled: the program waits for a promise that nothing will settle",
            "{code}"
        );
    }
}
