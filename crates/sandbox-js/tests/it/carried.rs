//! Functions that are ready at once are told on the engine's thread (decision 0009). With the machine's clock: a stopped one
//! keeps runs in their tasks, where the other tests have them.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use countersign_sandbox_js::{Ending, Function, Json, Output, RunOptions, RunOutcome};
use tokio_util::sync::CancellationToken;

use super::harness::{SANDBOX, summary};

/// Gives its input back, and writes down on which threads it ran.
fn ready(threads: &Arc<Mutex<Vec<String>>>) -> Function {
    let threads = Arc::clone(threads);
    Function::new("ready", move |input: Json, _| {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        threads.lock().unwrap().push(name);
        async { Ok(Output::from(input)) }
    })
}

/// Gives its input back at the second look.
fn second_look() -> Function {
    Function::new("later", |input: Json, _| async {
        tokio::task::yield_now().await;
        Ok(Output::from(input))
    })
}

async fn run(code: &str, functions: Vec<Function>) -> RunOutcome {
    SANDBOX.run(RunOptions::new(code, functions)).await.unwrap()
}

#[tokio::test]
async fn what_is_ready_is_told_where_the_step_ran() {
    let threads = Arc::default();
    let code = "let n = 0; for (let i = 0; i < 200; i++) n += (await ready({ i })).i; return n";
    assert_eq!(summary(&run(code, vec![ready(&threads)]).await), "completed 19900");
    let threads = threads.lock().unwrap();
    assert_eq!(threads.len(), 200);
    // The run's task may win the race for some.
    assert!(threads.iter().any(|name| name == "countersign-engine"), "{threads:?}");
}

// Whoever looks first, the engine's thread or a task: what is ready at the first look is told before what is not, and of what
// is there the oldest call's first.
#[tokio::test]
async fn order_is_that_of_the_calls() {
    let code = "const seen = []; for (let i = 0; i < 20; i++) await Promise.all([later({ i: 1 }), ready({ i: 2 }), later({ i: 3 })]\
        .map((p) => p.then((r) => seen.push(r.i)))); return seen.join('')";
    let outcome = run(code, vec![ready(&Arc::default()), second_look()]).await;
    assert_eq!(summary(&outcome), format!("completed \"{}\"", "213".repeat(20)));
}

// Law 1: a panic is the function's failure, wherever it was polled.
#[tokio::test]
async fn a_panic_is_a_failure() {
    for ready_first in ["", "await ready({}); "] {
        let broken = Function::new("broken", |_, _| async {
            if true {
                panic!("on purpose");
            }
            Ok(Output::null())
        });
        let code = format!("{ready_first}try {{ await broken({{}}) }} catch (e) {{ return e.message }}");
        let outcome = run(&code, vec![ready(&Arc::default()), broken]).await;
        assert_eq!(summary(&outcome), "completed \"the function panicked\"");
    }
}

// Cancelled by the call itself: nothing is started afterwards.
#[tokio::test]
async fn cancelling_ends_it() {
    let (stop, count) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let (by, counted) = (stop.clone(), Arc::clone(&count));
    let step = Function::new("step", move |_, _| {
        if counted.fetch_add(1, SeqCst) == 9 {
            by.cancel();
        }
        async { Ok(Output::null()) }
    });
    let mut options = RunOptions::new("for (;;) await step({})", vec![step]);
    options.cancellation = stop;
    match SANDBOX.run(options).await.unwrap() {
        RunOutcome::Failed(it) => assert!(matches!(it.ending, Ending::Cancelled), "{it}"),
        other => panic!("{}", summary(&other)),
    }
    assert_eq!(count.load(SeqCst), 10);
}
