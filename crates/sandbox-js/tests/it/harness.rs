//! A small sandbox, functions that write down what happens to them, and short ways to look at an outcome.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, SystemTime};

use countersign_sandbox_js::{
    Answer, Approval, ApprovalRequest, Completed, Config, Failed, Function, FunctionError, Limits, Origin,
    Output, RunId, RunOptions, RunOutcome, Sandbox,
};

pub(crate) use super::config;

/// One pool of threads or workers for all tests: they compute little.
pub(crate) static SANDBOX: LazyLock<Sandbox> =
    LazyLock::new(|| Sandbox::new(Config { threads: 2, max_waiting: 2_000, ..config() }).unwrap());

/// What happened, in order: `fn input`.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// `read` gives its input back, `fail` fails, `slow` takes a second; `del` and `send` are marked.
pub(crate) fn functions(log: &Log) -> Vec<Function> {
    let echo = |name: &'static str, takes: Duration| {
        let log = log.clone();
        Function::new(name, move |input: countersign_sandbox_js::Json, _call| {
            let log = log.clone();
            async move {
                log.add(format!("{name} {input}"));
                if !takes.is_zero() {
                    tokio::time::sleep(takes).await;
                }
                Ok(Output::from(input))
            }
        })
    };
    let fail = {
        let log = log.clone();
        Function::new("fail", move |input: countersign_sandbox_js::Json, _call| {
            let log = log.clone();
            async move {
                log.add(format!("fail {input}"));
                Err::<Output, _>(FunctionError {
                    message: "disk full".to_owned(),
                    name: Some("DiskError".to_owned()),
                    code: Some("ENOSPC".to_owned()),
                })
            }
        })
    };
    vec![
        echo("read", Duration::ZERO),
        echo("slow", Duration::from_secs(1)),
        fail,
        echo("del", Duration::ZERO).requires_approval(),
        echo("send", Duration::ZERO).requires_approval(),
    ]
}

/// The same origin for every run, so that outcomes can be compared.
pub(crate) fn origin() -> Origin {
    Origin {
        run_id: RunId::parse("00000000-0000-4000-8000-000000000001").unwrap(),
        seed: [7; 32],
        started_at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
    }
}

pub(crate) fn options(code: &str, log: &Log) -> RunOptions {
    let mut options = RunOptions::new(code, functions(log));
    options.origin = origin();
    options
}

/// Runs in mode `deny`.
pub(crate) async fn run(code: &str) -> RunOutcome {
    SANDBOX.run(options(code, &Log::default())).await.unwrap()
}

pub(crate) async fn run_limited(code: &str, change: impl FnOnce(&mut Limits)) -> RunOutcome {
    let mut options = options(code, &Log::default());
    change(&mut options.limits);
    SANDBOX.run(options).await.unwrap()
}

/// A hook that answers by a rule and logs `ask fn input`.
pub(crate) fn asking(
    log: &Log,
    takes: Duration,
    rule: impl Fn(&ApprovalRequest) -> Answer + Send + Sync + 'static,
) -> Approval {
    let (log, rule) = (log.clone(), Arc::new(rule));
    Approval::pause(move |request: ApprovalRequest| {
        let (log, rule) = (log.clone(), Arc::clone(&rule));
        async move {
            log.add(format!("ask {} {}", request.function, request.input));
            tokio::time::sleep(takes).await;
            Ok(rule(&request))
        }
    })
}

pub(crate) fn completed(outcome: RunOutcome) -> Completed {
    match outcome {
        RunOutcome::Completed(completed) => completed,
        RunOutcome::Failed(failed) => panic!("failed: {failed}"),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn failed(outcome: RunOutcome) -> Failed {
    match outcome {
        RunOutcome::Failed(failed) => failed,
        other => panic!("not failed: {other:?}"),
    }
}

/// `completed VALUE`, or `KIND: message (line, column)`.
pub(crate) fn summary(outcome: &RunOutcome) -> String {
    match outcome {
        RunOutcome::Completed(completed) => format!("completed {}", completed.value),
        RunOutcome::Failed(failed) => failed.to_string(),
        other => format!("{other:?}"),
    }
}

/// `seq fn state` of each row.
pub(crate) fn rows(outcome: &RunOutcome) -> Vec<String> {
    outcome
        .report()
        .iter()
        .map(|row| format!("{} {} {}", row.seq, row.function, row.state.as_str()))
        .collect()
}

/// The value of a program as JSON text, or the summary of its failure.
pub(crate) async fn value(code: &str) -> String {
    match run(code).await {
        RunOutcome::Completed(completed) => completed.value.text().to_owned(),
        outcome => summary(&outcome),
    }
}
