//! The product: the sandbox by its public interface, in this process or, with `worker`, in processes of its own.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use countersign_bench::process::resident_bytes;
use countersign_bench::sandbox::{Ask, Hostile, Told, calling, laps, serve, sum};
use countersign_sandbox_js::{
    Approval, ApprovalRequest, Backend, Config, Function, Json, Output, RunOptions, RunOutcome, Sandbox,
    WorkerCommand, worker,
};
use tokio::runtime::Runtime;

/// By which this program is a worker.
const WORKER: &str = "__sandbox-worker";
/// Longer than any measurement.
const LONG: Duration = Duration::from_secs(3_600);
/// A waiting run leaves its engine at once.
const SOON: Duration = Duration::from_millis(1);

fn main() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or_default();
    if argument == WORKER {
        return worker::main();
    }
    match measure(argument == "worker") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write as _;
            // The exit status says it too.
            let _ = writeln!(std::io::stderr(), "bench-sandbox: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(in_workers: bool) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let backend = if in_workers {
        Backend::Worker(WorkerCommand::new(std::env::current_exe()?).arg(WORKER))
    } else {
        Backend::InProcess
    };
    let bench = Bench { runtime, backend };
    let sandbox = bench.sandbox(LONG)?;
    let mut turn = 0;
    serve(|ask| match ask {
        Ask::Trivial { count } => laps(count, || {
            // No two programs are the same text: nothing can be kept from one for the next.
            turn += 1;
            bench.check(&sandbox, format!("return 1 + {turn}"), &(turn + 1).to_string())
        }),
        Ask::Calls { calls, count } => laps(count, || {
            turn += 1;
            bench.check(&sandbox, format!("{} // {turn}", calling(calls)), &sum(calls).to_string())
        }),
        Ask::Spawn { count } if in_workers => {
            laps(count, || bench.check(&bench.sandbox(LONG)?, "return 1".to_owned(), "1"))
        }
        Ask::Hot { from, to } if !in_workers => bench.waiting(LONG, from, to),
        Ask::Evicted { from, to } => bench.waiting(SOON, from, to),
        Ask::Hostile { budget_ms } => bench.hostile(Duration::from_millis(budget_ms)),
        _ => Ok(Told::Unsupported),
    })
}

struct Bench {
    runtime: Runtime,
    backend: Backend,
}

impl Bench {
    fn sandbox(&self, evict_after: Duration) -> Result<Sandbox> {
        let config = Config { backend: self.backend.clone(), threads: 1, evict_after, ..Config::default() };
        Ok(Sandbox::new(Config { max_waiting: 100_000, ..config })?)
    }

    fn check(&self, sandbox: &Sandbox, code: String, value: &str) -> Result<()> {
        let read = Function::new("read", |input: Json, _| async move {
            #[derive(serde::Deserialize)]
            struct Read {
                n: u64,
            }
            let read: Read = input
                .decode()
                .map_err(|error| countersign_sandbox_js::FunctionError::new(error.to_string()))?;
            Ok(Output::json(format!("{{\"n\":{}}}", read.n)))
        });
        match self.runtime.block_on(sandbox.run(RunOptions::new(code, vec![read])))? {
            RunOutcome::Completed(it) => ensure!(it.value.text() == value, "{} is not {value}", it.value),
            RunOutcome::Failed(it) => bail!("{it}"),
            _ => bail!("another outcome"),
        }
        Ok(())
    }

    /// Bytes for each run that waits, each a program of its own.
    fn waiting(&self, evict_after: Duration, from: usize, to: usize) -> Result<Told> {
        let sandbox = self.sandbox(evict_after)?;
        let asked = Arc::new(AtomicUsize::new(0));
        let mut started = 0;
        let mut grow = |to: usize| -> Result<f64> {
            self.runtime.block_on(async {
                while started < to {
                    started += 1;
                    let count = Arc::clone(&asked);
                    let del = Function::new("del", |_, _| async { Ok(Output::null()) }).requires_approval();
                    let code = format!("const done = await del({{ path: '/tmp/{started}' }});\nreturn done");
                    let mut options = RunOptions::new(code, vec![del]);
                    options.approval = Approval::pause(move |_: ApprovalRequest| {
                        count.fetch_add(1, SeqCst);
                        std::future::pending()
                    });
                    let sandbox = sandbox.clone();
                    tokio::spawn(async move { sandbox.run(options).await });
                    // One after the other, as people's runs come.
                    let start = Instant::now();
                    while asked.load(SeqCst) < started {
                        ensure!(start.elapsed() < Duration::from_secs(60), "a run never asked");
                        tokio::task::yield_now().await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
                Ok(())
            })?;
            resident_bytes(std::process::id())
        };
        let (before, after) = (grow(from)?, grow(to)?);
        Ok(Told::Bytes((after - before) / (to - from) as f64))
    }

    fn hostile(&self, budget: Duration) -> Result<Told> {
        let mut table = Vec::new();
        for program in HOSTILE {
            let sandbox = self.sandbox(LONG)?;
            // A worker that is there, so that its start is not counted.
            self.check(&sandbox, "return 1".to_owned(), "1")?;
            let mut options = RunOptions::new(*program, Vec::new());
            options.limits.compute = budget;
            options.limits.polls = u64::MAX;
            let before = Instant::now();
            let outcome = self.runtime.block_on(sandbox.run(options))?;
            let took_ms = before.elapsed().as_secs_f64() * 1e3;
            let ended = match outcome {
                RunOutcome::Failed(it) => it.ending.kind().to_owned(),
                _ => "Completed".to_owned(),
            };
            table.push(Hostile { program: (*program).to_owned(), ended, took_ms });
        }
        Ok(Told::Hostile(table))
    }
}

/// Each kind of program that hung the bare engine, or ended late.
const HOSTILE: &[&str] = &[
    "while (true) {}",
    "try { while (true) {} } finally { while (true) {} }",
    "while (true) await null",
    "while (true) new Promise(() => { while (true) {} })",
    "await { get then() { while (true) {} } }",
    "/(a+)+$/.test('a'.repeat(40) + 'b')",
    "new Array(2 ** 32 - 1).join()",
    "new Array(2 ** 32 - 1).reverse()",
    "const a = []; a[2 ** 32 - 2] = 1; a.sort()",
    "new Array(2 ** 32 - 1).copyWithin(1, 0)",
    "new Array(2 ** 32 - 1).shift()",
    "new Array(2 ** 32 - 1).splice(1, 2 ** 31)",
    "[].concat({ length: 2 ** 53 - 1, [Symbol.isConcatSpreadable]: true })",
    "new Array(2 ** 32 - 1).flat()",
    "String.raw({ raw: { length: 2 ** 53 - 1 } })",
    "const s = 'a'.repeat(5e6); s.indexOf('a'.repeat(25e5) + 'b')",
    "'a\\u0301\\u0300'.repeat(2e5).normalize('NFC')",
    "(2n ** 900000n).toString()",
    "for (;;) (2n ** 1000000n - 1n) / (2n ** 500000n - 1n)",
    "for (;;) new Float64Array(1e6).sort()",
    "const s = 'x'.repeat(1e7); for (;;) s.indexOf('y')",
    "const a = 'a'.repeat(1e7), b = 'a'.repeat(1e7); for (;;) a == b + ''",
    "const a = []; for (;;) a.push(new Array(1e4))",
];
