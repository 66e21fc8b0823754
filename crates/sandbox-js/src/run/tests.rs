//! Runs on engines that do not keep to the record.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at what it does not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::approval::{Answer, Approval};
use crate::backend::in_process::InProcess;
use crate::backend::{Backend, Pass, Source, Stepping, WaitsFor};
use crate::function::Function;
use crate::outcome::{Ending, RunOutcome};
use crate::sandbox::{Config, Inner, RunOptions};
use crate::value::{Json, Output};

/// Gives up engines at once, and runs another program at every pass but the first.
struct Swaps {
    real: InProcess,
    passes: AtomicUsize,
    second: &'static str,
}

impl Backend for Swaps {
    fn start(&self, mut pass: Pass) -> Stepping {
        if self.passes.fetch_add(1, Relaxed) > 0 {
            pass.source = Source::Code(self.second.into());
        }
        self.real.start(pass)
    }

    fn patience(&self, _: WaitsFor) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

async fn run(first: &str, second: &'static str) -> (RunOutcome, usize) {
    let real = InProcess::new(1, Duration::ZERO).unwrap();
    let backend = Box::new(Swaps { real, passes: AtomicUsize::new(0), second });
    let sandbox = Arc::new(Inner { backend, config: Config::default(), waiting: AtomicUsize::new(0) });
    let executed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executed);
    let pay = Function::new("pay", move |_: Json, _| {
        count.fetch_add(1, Relaxed);
        async { Ok(Output::null()) }
    });
    let functions = vec![pay.clone().requires_approval(), renamed(&executed)];
    let mut options = RunOptions::new(first, functions);
    options.approval = Approval::pause(|_| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(Answer::Approve)
    });
    let outcome = super::Run::new(sandbox, options).drive().await.unwrap();
    (outcome, executed.load(Relaxed))
}

fn renamed(executed: &Arc<AtomicUsize>) -> Function {
    let count = Arc::clone(executed);
    Function::new("note", move |_: Json, _| {
        count.fetch_add(1, Relaxed);
        async { Ok(Output::null()) }
    })
}

// Law 7: a replay that differs ends the run before anything more runs, and names both calls. What was approved before the
// replay is done and reported.
#[tokio::test(start_paused = true)]
async fn a_replay_that_differs_ends_the_run() {
    let first = "const a = await pay({ n: 1 }); await pay({ n: 2 }); return 'done'";
    for (second, seq, recorded, attempted) in [
        ("await pay({ n: 7 }); await pay({ n: 2 })", 1, Some(r#"pay {"n":1}"#), Some(r#"pay {"n":7}"#)),
        ("await note({ n: 1 }); await pay({ n: 2 })", 1, Some(r#"pay {"n":1}"#), Some(r#"note {"n":1}"#)),
        ("note({}); await pay({ n: 1 })", 1, Some(r#"pay {"n":1}"#), Some("note {}")),
        ("pay({ n: 1 }); await note({})", 2, None, Some("note {}")),
        ("return 1", 1, Some(r#"pay {"n":1}"#), None),
        ("throw 1", 1, Some(r#"pay {"n":1}"#), None),
    ] {
        let (outcome, executed) = run(first, second).await;
        let RunOutcome::Failed(failed) = outcome else { panic!("{second}: {outcome:?}") };
        let Ending::ReplayMismatch { seq: at, recorded: was, attempted: is } = &failed.ending else {
            panic!("{second}: {failed}")
        };
        let text = |call: &Option<crate::outcome::MadeCall>| {
            call.as_ref().map(|call| format!("{} {}", call.function, call.input))
        };
        assert_eq!(
            (*at, text(was), text(is)),
            (seq, recorded.map(str::to_owned), attempted.map(str::to_owned)),
            "{second}"
        );
        assert_eq!(executed, 1, "{second}");
        let states: Vec<&str> = failed.report.iter().map(|row| row.state.as_str()).collect();
        assert_eq!(states, ["executed"], "{second}");
    }
    // The same program is the same, however it is written.
    let (outcome, executed) =
        run(first, "/* again */ let a = await pay({ 'n': 1.0 }); a; await pay({ n: 2 }); return 'done'")
            .await;
    assert!(matches!(outcome, RunOutcome::Completed(_)), "{outcome:?}");
    assert_eq!(executed, 2);
}

/// Counts passes.
struct Counts {
    real: InProcess,
    passes: Arc<AtomicUsize>,
}

impl Backend for Counts {
    fn start(&self, pass: Pass) -> Stepping {
        self.passes.fetch_add(1, Relaxed);
        self.real.start(pass)
    }

    fn patience(&self, waits: WaitsFor) -> Option<Duration> {
        self.real.patience(waits)
    }
}

// An engine is given up after the time that the configuration says, and for nobody but a person.
#[tokio::test(start_paused = true)]
async fn engines_are_given_up_in_time() {
    for (answer_takes, function_takes, expected) in
        [(9, 1, 1), (11, 1, 3), (1, 60, 1), (9, 60, 1), (11, 60, 3)]
    {
        let passes = Arc::new(AtomicUsize::new(0));
        let real = InProcess::new(1, Duration::from_secs(10)).unwrap();
        let backend = Box::new(Counts { real, passes: Arc::clone(&passes) });
        let sandbox = Arc::new(Inner { backend, config: Config::default(), waiting: AtomicUsize::new(0) });
        let pay = Function::new("pay", move |_: Json, _| async move {
            tokio::time::sleep(Duration::from_secs(function_takes)).await;
            Ok(Output::null())
        });
        let code = "await pay({}); await pay({}); return 'done'";
        let mut options = RunOptions::new(code, vec![pay.requires_approval()]);
        options.approval = Approval::pause(move |_| async move {
            tokio::time::sleep(Duration::from_secs(answer_takes)).await;
            Ok(Answer::Approve)
        });
        let outcome = super::Run::new(sandbox, options).drive().await.unwrap();
        assert!(matches!(outcome, RunOutcome::Completed(_)), "{outcome:?}");
        assert_eq!(passes.load(Relaxed), expected, "{answer_takes} s, {function_takes} s");
    }
}
