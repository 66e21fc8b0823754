//! What a run costs that waits for a person: its record, not an engine (design 5; findings 8).
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::time::Duration;

use countersign_sandbox_js::{Answer, Approval, Config, Sandbox};
use tokio::sync::Notify;

use crate::in_process::harness::{Log, functions};

const RUNS: u64 = 2_000;

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Starts runs one after another, each of which waits, and gives what each added.
async fn bytes_a_run(config: Config) -> u64 {
    let sandbox = Sandbox::new(Config { evict_after: Duration::ZERO, ..config }).unwrap();
    let asked = Arc::new(Notify::new());
    let functions = functions(&Log::default());
    let mut before = 0;
    let mut runs = Vec::new();
    for n in 0..RUNS + 200 {
        if n == 200 {
            before = resident();
        }
        let hook_asked = Arc::clone(&asked);
        let mut options = countersign_sandbox_js::RunOptions::new(
            "const r = await read({ id: 1 }); return [r, await del({ id: 2 })]",
            functions.clone(),
        );
        options.approval = Approval::pause(move |_| {
            hook_asked.notify_one();
            std::future::pending::<Result<Answer, _>>()
        });
        let sandbox = sandbox.clone();
        runs.push(tokio::spawn(async move { sandbox.run(options).await }));
        asked.notified().await;
        // The next begins when this one has given up its engine.
        tokio::task::yield_now().await;
    }
    let grown = resident().saturating_sub(before);
    runs.iter().for_each(tokio::task::JoinHandle::abort);
    grown / RUNS
}

/// Run by the test below in a process of its own, which nobody else fills.
#[tokio::test]
async fn child_prints_bytes_a_run() {
    let config = match std::env::var("COUNTERSIGN_TEST_MEMORY").as_deref() {
        Ok("in_process") => crate::in_process::config(),
        Ok("in_worker") => crate::in_worker::config(),
        _ => return,
    };
    println!("BYTES {} BYTES", bytes_a_run(config).await);
}

// A waiting run costs less than 4 kB when it has given up its engine.
#[test]
fn a_waiting_run_is_its_record() {
    for backend in ["in_process", "in_worker"] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "memory::child_prints_bytes_a_run", "--nocapture"])
            .env("COUNTERSIGN_TEST_MEMORY", backend)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let bytes: u64 = text.split("BYTES").nth(1).unwrap().trim().parse().unwrap();
        println!("{backend}: {bytes} bytes");
        assert!(bytes < 4_096, "{backend}: {bytes} bytes a run");
    }
}
