//! Mode `pause` (sandbox spec 9; scenarios U1, U13, U15, O3).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use countersign_sandbox_js::{
    Answer, Approval, ApprovalRequest, Config, Ending, Function, HookError, Output, Pause, RowState,
    RunOptions, Sandbox,
};
use tokio::sync::Notify;

use super::harness::{Log, SANDBOX, asking, completed, config, failed, functions, options, rows, summary};

fn reject(reason: &str) -> Answer {
    Answer::Reject { reason: Some(reason.to_owned()) }
}

/// Runs `code`, asking with `approval`.
async fn paused(code: &str, log: &Log, approval: Approval) -> countersign_sandbox_js::RunOutcome {
    let mut options = options(code, log);
    options.approval = approval;
    SANDBOX.run(options).await.unwrap()
}

// Law 1: approve runs it and returns the value; reject throws where the call was made.
#[tokio::test(start_paused = true)]
async fn one_decision_for_each_call() {
    let log = Log::default();
    let rule =
        |request: &ApprovalRequest| if request.seq == 2 { reject("not today") } else { Answer::Approve };
    let code = "
        const a = await del({ id: 1 });
        let why;
        try { await del({ id: 2 }) } catch (e) { why = [e.reason, e.message] }
        return [a, why, await send({ id: 3 })]";
    let outcome = paused(code, &log, asking(&log, Duration::from_secs(60), rule)).await;
    assert_eq!(
        summary(&outcome),
        r#"completed [{"id":1},["rejected","call #2 to \"del\" was not approved: not today"],{"id":3}]"#
    );
    assert_eq!(
        log.all(),
        [
            r#"ask del {"id":1}"#,
            r#"del {"id":1}"#,
            r#"ask del {"id":2}"#,
            r#"ask send {"id":3}"#,
            r#"send {"id":3}"#
        ]
    );
    assert_eq!(rows(&outcome), ["1 del executed", "2 del rejected", "3 send executed"]);
}

// U13: what a person saw is what runs, whatever the program does to its object meanwhile (law 3).
#[tokio::test(start_paused = true)]
async fn the_snapshot_runs() {
    let log = Log::default();
    let code = "const o = { p: 1 }; const call = del(o); o.p = 2; await call; return o";
    let outcome = paused(code, &log, asking(&log, Duration::from_secs(1), |_| Answer::Approve)).await;
    assert_eq!(summary(&outcome), r#"completed {"p":2}"#);
    assert_eq!(log.all(), [r#"ask del {"p":1}"#, r#"del {"p":1}"#]);
}

// U1, law 6: people's time uses no budget. A minute for each answer, with a run budget of one second.
#[tokio::test(start_paused = true)]
async fn a_persons_time_is_not_the_runs() {
    let log = Log::default();
    let mut options = options("await del({ id: 1 }); await del({ id: 2 }); return 'done'", &log);
    options.limits.run = Duration::from_secs(1);
    options.approval = asking(&log, Duration::from_secs(60), |_| Answer::Approve);
    assert_eq!(summary(&SANDBOX.run(options.clone()).await.unwrap()), r#"completed "done""#);
    // The budget of computing is still there after the second approval.
    options.code = "await del({ id: 1 }); await del({ id: 2 }); while (true) {}".to_owned();
    options.limits.polls = 100;
    options.limits.run = Duration::from_secs(20);
    assert_eq!(failed(SANDBOX.run(options).await.unwrap()).ending.kind(), "LimitExceeded");
}

// R9.1: the budget counts until the slow read is done, then stops; an approved call's execution counts.
#[tokio::test(start_paused = true)]
async fn the_budget_counts_what_executes_meanwhile() {
    let log = Log::default();
    for (code, fits) in [
        ("await Promise.all([del({}), slow({})]); return 1", true),
        ("await del({}); await slow({}); await slow({}); return 1", false),
        ("await Promise.all([del({}), slow({}), slow({})]); return 1", true),
    ] {
        let mut options = options(code, &log);
        options.limits.run = Duration::from_millis(1_500);
        options.approval = asking(&log, Duration::from_secs(60), |_| Answer::Approve);
        let outcome = SANDBOX.run(options).await.unwrap();
        let expected = if fits {
            "completed 1"
        } else {
            "LimitExceeded: the run used more than 1.5s of running, people's time not counted"
        };
        assert_eq!(summary(&outcome), expected, "{code}");
    }
}

// R9.2: one question at a time, in the order of the calls, while other branches go on.
#[tokio::test]
async fn questions_come_one_at_a_time() {
    let log = Log::default();
    let open = Arc::new(AtomicUsize::new(0));
    let (hook_log, hook_open) = (log.clone(), Arc::clone(&open));
    let approval = Approval::pause(move |request: ApprovalRequest| {
        let (log, open) = (hook_log.clone(), Arc::clone(&hook_open));
        async move {
            assert_eq!(open.fetch_add(1, Relaxed), 0, "two questions at once");
            log.add(format!("ask {}", request.input));
            // Ends only if the reads do not wait for a person.
            while log.all().iter().filter(|line| line.starts_with("read")).count() < 3 {
                tokio::task::yield_now().await;
            }
            open.fetch_sub(1, Relaxed);
            Ok(Answer::Approve)
        }
    });
    let code = "
        const reads = async () => { for (let i = 0; i < 3; i++) await read({ i }) };
        await Promise.all([del({ id: 1 }), reads(), del({ id: 2 }), del({ id: 3 })]);";
    let outcome = paused(code, &log, approval).await;
    assert_eq!(summary(&outcome), "completed null");
    let all = log.all();
    let asks: Vec<&str> = all.iter().filter(|line| line.starts_with("ask")).map(String::as_str).collect();
    assert_eq!(asks, [r#"ask {"id":1}"#, r#"ask {"id":2}"#, r#"ask {"id":3}"#]);
}

// R9.5, U15, O3: whatever is not an answer is no answer. The program cannot take it for a refusal.
#[tokio::test(start_paused = true)]
async fn a_hook_that_does_not_answer_fails_closed() {
    let code = "try { await del({}) } catch { await read({}) } finally { await read({}) }";
    let hooks: [(&str, Approval); 3] = [
        (
            "nobody decided: the page was closed",
            Approval::pause(|_| async { Err::<Answer, _>(HookError("the page was closed".to_owned())) }),
        ),
        (
            "nobody decided: the approval hook panicked",
            Approval::pause(|request: ApprovalRequest| async move {
                assert!(request.seq > 1, "a bug in the dialog");
                Ok(Answer::Approve)
            }),
        ),
        (
            "the reason of a rejection has more than 2000 characters",
            Approval::pause(|_| async { Ok(reject(&"x".repeat(2_001))) }),
        ),
    ];
    for (message, approval) in hooks {
        let log = Log::default();
        let outcome = paused(code, &log, approval).await;
        assert_eq!(log.all(), [""; 0], "{message}");
        assert_eq!(rows(&outcome), ["1 del discarded"]);
        let failed = failed(outcome);
        assert_eq!(failed.ending.kind(), "ApprovalHookFailed");
        assert!(failed.message.starts_with(message), "{}", failed.message);
    }
    let log = Log::default();
    let longest = Approval::pause(|_| async { Ok(reject(&"x".repeat(2_000))) });
    assert_eq!(summary(&paused("await del({}).catch(() => {})", &log, longest).await), "completed null");
}

// R9.3, W26: an expiry is told as one, and not as a person's refusal.
#[tokio::test(start_paused = true)]
async fn a_question_expires() {
    let log = Log::default();
    let told = Arc::new(Notify::new());
    let hook_told = Arc::clone(&told);
    let approval = Approval::Pause(Pause {
        on_approval: Arc::new(move |request: ApprovalRequest| {
            let told = Arc::clone(&hook_told);
            async move {
                request.cancellation.cancelled().await;
                told.notify_one();
                Ok(Answer::Approve)
            }
        }),
        expires_after: Some(Duration::from_secs(30)),
    });
    let began = tokio::time::Instant::now();
    let outcome = paused("try { await del({}) } catch (e) { return e.reason }", &log, approval).await;
    assert_eq!(summary(&outcome), r#"completed "expired""#);
    assert_eq!(rows(&outcome), ["1 del expired"]);
    assert!(began.elapsed() < Duration::from_secs(31));
    told.notified().await;
    // The late approval ran nothing.
    assert_eq!(log.all(), [""; 0]);
}

// R9.4, law 5: cancelled while waiting: the dialog is told, the call never runs, a late answer is void.
#[tokio::test(start_paused = true)]
async fn cancelled_while_waiting() {
    let log = Log::default();
    let closed = Arc::new(Notify::new());
    let asked = Arc::new(Notify::new());
    let (hook_closed, hook_asked) = (Arc::clone(&closed), Arc::clone(&asked));
    let mut options = options("try { await del({}) } finally { await read({}) }", &log);
    options.approval = Approval::pause(move |request: ApprovalRequest| {
        let (closed, asked) = (Arc::clone(&hook_closed), Arc::clone(&hook_asked));
        async move {
            asked.notify_one();
            request.cancellation.cancelled().await;
            closed.notify_one();
            Ok(Answer::Approve)
        }
    });
    let cancellation = options.cancellation.clone();
    let run = tokio::spawn(async move { SANDBOX.run(options).await.unwrap() });
    asked.notified().await;
    cancellation.cancel();
    let outcome = run.await.unwrap();
    closed.notified().await;
    assert_eq!(failed(outcome.clone()).ending, Ending::Cancelled);
    assert_eq!(rows(&outcome), ["1 del discarded"]);
    assert_eq!(log.all(), [""; 0]);
}

// Law 5: a run that is cancelled or dropped while it computes gives its thread back at once.
#[tokio::test]
async fn a_run_that_ends_gives_its_thread_back() {
    let sandbox = Sandbox::new(Config { threads: 1, ..config() }).unwrap();
    let forever = || {
        let mut options = options("for (;;) {}", &Log::default());
        options.limits.polls = u64::MAX;
        options.limits.compute = Duration::from_secs(300);
        options
    };
    let cancelled = forever();
    let cancellation = cancelled.cancellation.clone();
    let on = sandbox.clone();
    let run = tokio::spawn(async move { on.run(cancelled).await.unwrap() });
    tokio::task::yield_now().await;
    cancellation.cancel();
    assert_eq!(failed(run.await.unwrap()).ending, Ending::Cancelled);
    let (on, dropped) = (sandbox.clone(), forever());
    let run = tokio::spawn(async move { on.run(dropped).await });
    tokio::task::yield_now().await;
    run.abort();
    let next = RunOptions::new("return 1", Vec::new());
    assert_eq!(summary(&sandbox.run(next).await.unwrap()), "completed 1");
}

// Law 5: the future of the run is dropped: the dialog is told, and nothing runs afterwards.
#[tokio::test(start_paused = true)]
async fn dropped_while_waiting() {
    let log = Log::default();
    let closed = Arc::new(Notify::new());
    let asked = Arc::new(Notify::new());
    let (hook_closed, hook_asked) = (Arc::clone(&closed), Arc::clone(&asked));
    let mut options = options("await del({})", &log);
    options.approval = Approval::pause(move |request: ApprovalRequest| {
        let (closed, asked) = (Arc::clone(&hook_closed), Arc::clone(&hook_asked));
        async move {
            asked.notify_one();
            request.cancellation.cancelled().await;
            closed.notify_one();
            Ok(Answer::Approve)
        }
    });
    let run = tokio::spawn(async move { SANDBOX.run(options).await });
    asked.notified().await;
    run.abort();
    closed.notified().await;
    assert!(run.await.is_err());
    assert_eq!(log.all(), [""; 0]);
}

// Collect-semantics section 6: an uncaught exception with questions open ends the run; nothing of them runs.
#[tokio::test(start_paused = true)]
async fn an_exception_discards_what_waits() {
    let log = Log::default();
    let code = "del({ id: 1 }); del({ id: 2 }); await read({}); null.x";
    let never = Approval::pause(|_| std::future::pending::<Result<Answer, HookError>>());
    let outcome = paused(code, &log, never).await;
    assert_eq!(rows(&outcome), ["1 del discarded", "2 del discarded", "3 read executed"]);
    let failed = failed(outcome);
    assert_eq!(failed.ending.kind(), "Thrown");
    assert!(failed.message.ends_with("; 2 calls were waiting and were not executed"), "{}", failed.message);
    assert_eq!(log.all().iter().filter(|line| line.starts_with("del")).count(), 0);
}

// A floating marked call executes after approval, and the run ends only then.
#[tokio::test(start_paused = true)]
async fn a_floating_call_is_awaited() {
    let log = Log::default();
    let code = "del({ id: 1 }); return 'returned'";
    let outcome = paused(code, &log, asking(&log, Duration::from_secs(60), |_| Answer::Approve)).await;
    assert_eq!(completed(outcome).value.text(), r#""returned""#);
    assert_eq!(log.all(), [r#"ask del {"id":1}"#, r#"del {"id":1}"#]);
}

// R8.7, law 8: cancelled while an approved call executes. The handler is told; if it does not end, nobody knows.
#[tokio::test(start_paused = true)]
async fn an_approved_call_in_flight_is_uncertain() {
    for (obeys, state) in
        [(true, RowState::Failed { message: "stopped".to_owned() }), (false, RowState::Uncertain)]
    {
        let started = Arc::new(Notify::new());
        let handler_started = Arc::clone(&started);
        let wipe = Function::new("wipe", move |_, call: countersign_sandbox_js::CallContext| {
            let started = Arc::clone(&handler_started);
            async move {
                started.notify_one();
                call.cancellation.cancelled().await;
                if !obeys {
                    std::future::pending::<()>().await;
                }
                Err::<Output, _>(countersign_sandbox_js::FunctionError::new("stopped"))
            }
        })
        .requires_approval();
        let mut options = RunOptions::new("await wipe({})", vec![wipe]);
        options.approval = Approval::pause(|_| async { Ok(Answer::Approve) });
        let cancellation = options.cancellation.clone();
        let run = tokio::spawn(async move { SANDBOX.run(options).await.unwrap() });
        started.notified().await;
        cancellation.cancel();
        let outcome = run.await.unwrap();
        assert_eq!(outcome.report()[0].state, state);
        assert_eq!(failed(outcome).ending, Ending::Cancelled);
    }
}

// W36: each call has its key, equal inputs or not.
#[tokio::test(start_paused = true)]
async fn each_call_has_its_key() {
    let log = Log::default();
    let keys = log.clone();
    let pay = Function::new("pay", move |_, call: countersign_sandbox_js::CallContext| {
        keys.add(format!("{} {} {}", call.call_id, call.run_id, call.attempt));
        async { Ok(Output::null()) }
    })
    .requires_approval();
    let mut options = RunOptions::new("await pay({ n: 1 }); await pay({ n: 1 })", vec![pay]);
    options.approval = Approval::pause(|_| async { Ok(Answer::Approve) });
    let run = options.origin.run_id;
    completed(SANDBOX.run(options).await.unwrap());
    assert_eq!(log.all(), [format!("{run}-1 {run} 1"), format!("{run}-2 {run} 1")]);
}

// Law 9: how many runs may wait is bounded, and the bound is free again afterwards.
#[tokio::test]
async fn waiting_runs_are_bounded() {
    let sandbox = Sandbox::new(Config { threads: 1, max_waiting: 2, ..config() }).unwrap();
    let log = Log::default();
    let open = Arc::new(Notify::new());
    let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..3 {
        let open = Arc::clone(&open);
        let mut options = options("await del({})", &log);
        options.approval = Approval::pause(move |_| {
            let open = Arc::clone(&open);
            async move {
                open.notified().await;
                Ok(Answer::Approve)
            }
        });
        let (sandbox, ended) = (sandbox.clone(), ended.clone());
        tokio::spawn(async move { ended.send(summary(&sandbox.run(options).await.unwrap())).unwrap() });
    }
    // The others wait for us, so the first to end is the one that was refused.
    assert_eq!(
        ends.recv().await.unwrap(),
        "LimitExceeded: the run used more than 2 runs that wait for a person; 1 calls were waiting and were not executed"
    );
    for _ in 0..2 {
        open.notify_one();
        assert_eq!(ends.recv().await.unwrap(), "completed null");
    }
    let mut options = options("return await del({})", &log);
    options.approval = asking(&log, Duration::ZERO, |_| Answer::Approve);
    assert_eq!(summary(&sandbox.run(options).await.unwrap()), "completed {}");
}

// Law 6: a thousand runs wait at one time, and hold no thread.
#[tokio::test]
async fn a_thousand_runs_wait_without_threads() {
    let sandbox = Sandbox::new(Config { threads: 2, max_waiting: 1_000, ..config() }).unwrap();
    let open = Arc::new(Notify::new());
    let waiting = Arc::new(AtomicUsize::new(0));
    let before = threads();
    let runs: Vec<_> = (0..1_000)
        .map(|id| {
            let (open, waiting) = (Arc::clone(&open), Arc::clone(&waiting));
            let mut options =
                RunOptions::new(format!("return (await del({{ id: {id} }})).id"), functions(&Log::default()));
            options.approval = Approval::pause(move |_| {
                let (open, waiting) = (Arc::clone(&open), Arc::clone(&waiting));
                async move {
                    let answered = open.notified();
                    waiting.fetch_add(1, Relaxed);
                    answered.await;
                    Ok(Answer::Approve)
                }
            });
            let sandbox = sandbox.clone();
            tokio::spawn(
                async move { completed(sandbox.run(options).await.unwrap()).value.text().to_owned() },
            )
        })
        .collect();
    while waiting.load(Relaxed) < 1_000 {
        tokio::task::yield_now().await;
    }
    if let (Some(before), Some(now)) = (before, threads()) {
        // Other tests of this process start threads of their own.
        assert!(now < before + 100, "{before} threads before, {now} with 1,000 waiting runs");
    }
    open.notify_waiters();
    for (id, run) in runs.into_iter().enumerate() {
        assert_eq!(run.await.unwrap(), id.to_string());
    }
}

/// Threads of this process, where the system says so.
fn threads() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Threads:"))?.trim().parse().ok()
}

// R9.6, law 5: cancellation is looked at again after the answer. Here both arrive while the run looks at neither.
#[tokio::test(start_paused = true)]
async fn an_approval_after_the_cancellation_is_void() {
    for code in ["await del({ a: 1 })", "await read({}); await Promise.all([del({ a: 1 }), slow({})])"] {
        let log = Log::default();
        let mut options = options(code, &log);
        let cancellation = options.cancellation.clone();
        options.approval = Approval::pause(move |_| {
            cancellation.cancel();
            async { Ok(Answer::Approve) }
        });
        let outcome = SANDBOX.run(options).await.unwrap();
        assert!(!log.all().iter().any(|line| line.starts_with("del")), "{code}: {:?}", log.all());
        assert_eq!(failed(outcome).ending, Ending::Cancelled, "{code}");
    }
}

// R9.3: an answer that comes after the time is void, even if the run had no turn in between to see that it was over.
#[tokio::test]
async fn an_approval_after_the_expiry_is_void() {
    let log = Log::default();
    let hook = |_| async {
        // Holds the run's thread, too.
        std::thread::sleep(Duration::from_millis(60));
        Ok(Answer::Approve)
    };
    let Approval::Pause(mut pause) = Approval::pause(hook) else { panic!() };
    pause.expires_after = Some(Duration::from_millis(20));
    let code = "try { await del({}) } catch (e) { return e.reason }";
    let outcome = paused(code, &log, Approval::Pause(pause)).await;
    assert_eq!((summary(&outcome).as_str(), log.all()), (r#"completed "expired""#, vec![]));
}

// A hook and a handler that cancel the token they were given, as the one that closes a dialog, are still waited for.
#[tokio::test(start_paused = true)]
async fn a_token_that_was_cancelled_from_inside() {
    let late = Function::new("late", |_: countersign_sandbox_js::Json, call: countersign_sandbox_js::CallContext| async move {
        call.cancellation.cancel();
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok(Output::json("7"))
    });
    let mut options = RunOptions::new("return await late({})", vec![late.requires_approval()]);
    options.approval = Approval::pause(|request: ApprovalRequest| async move {
        request.cancellation.cancel();
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok(Answer::Approve)
    });
    assert_eq!(summary(&SANDBOX.run(options).await.unwrap()), "completed 7");
}
