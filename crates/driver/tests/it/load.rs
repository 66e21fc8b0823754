//! Many reviews at once: what a waiting run costs (law 6: no thread; performance: no timer and no second copy).

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_approval_core::audit::AuditRecord;
use countersign_approval_core::ids::ToolName;
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_driver::{EventStream, Output, ToolSpec, tool};
use countersign_protocol::event::EventBody;
use countersign_protocol::request::RunRequest;
use countersign_testkit::RecordingSink;
use tokio::runtime::Handle;

use crate::support::{Bench, calls, rest, reviewed, words};

/// `maxPending` as it is by default.
const RUNS: usize = 1_000;
const ALONE: &str = "COUNTERSIGN_LOAD_ALONE";

/// Other tests of this binary start threads, so this one counts in a process of its own.
#[test]
fn a_thousand_waiting_reviews() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    if std::env::var_os(ALONE).is_some() {
        runtime().block_on(wait_and_decide());
        return;
    }
    let alone = Command::new(std::env::current_exe().unwrap())
        .args(["load::a_thousand_waiting_reviews", "--exact", "--test-threads=1", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&alone.stdout);
    let failed = String::from_utf8_lossy(&alone.stderr);
    assert!(alone.status.success() && said.contains("1 passed"), "{said}\n{failed}");
}

/// The text of one call, by where it stands in memory.
#[derive(Debug, Default)]
struct Copies {
    called: Option<usize>,
    shown: Option<usize>,
    executed: Option<usize>,
}

async fn wait_and_decide() {
    let copies: Arc<Mutex<BTreeMap<String, Copies>>> = Arc::default();
    let seen = Arc::clone(&copies);
    let keep =
        tool(ToolSpec::new("keep", "Keeps.", "{}").unwrap().requires_approval(), move |input, context| {
            let mut seen = seen.lock().unwrap();
            seen.entry(context.run_id.to_string()).or_default().executed = Some(at(input.text()));
            async { Ok(Output::json("kept")?) }
        });
    let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(10_000));
    let too_large = format!(r#"{{"text":"{}"}}"#, "x".repeat(128_000));
    let script = (0..RUNS)
        .map(|_| calls(&[("call-1", "keep", &text)]))
        .chain([calls(&[("call-1", "keep", &too_large)])]);
    let bench =
        Bench::with(script, RecordingSink::new(), |builder, settings| builder.approvals(settings).tool(keep));
    let (tasks, threads) = (alive_tasks(), threads());
    let request = |n: usize| {
        let mut request = RunRequest {
            tools: vec![ToolName::parse("keep").unwrap()],
            idle_timeout_ms: Some(50),
            ..reviewed(IdlePolicy::Pause)
        };
        if let Some(approvals) = &mut request.approvals {
            // Every second one expires, each at a time of its own.
            approvals.expires_after_ms = n.is_multiple_of(2).then_some(86_400_000 + n as u32);
        }
        request
    };

    let mut waiting: Vec<(EventStream, _)> = Vec::new();
    for n in 0..RUNS {
        let mut stream = bench.stream(request(n));
        let approval = loop {
            match stream.next().await.unwrap().body {
                EventBody::ToolCalled { call } => {
                    // The run is known from the question that follows.
                    copies.lock().unwrap().entry(String::new()).or_default().called =
                        Some(at(call.arguments.text()));
                }
                EventBody::ApprovalRequested { approval, .. } => break approval,
                _ => {}
            }
        };
        let mut copies = copies.lock().unwrap();
        let mut of_run = copies.remove("").unwrap();
        of_run.shown = Some(at(approval.call.call().arguments.text()));
        copies.insert(approval.run_id.to_string(), of_run);
        drop(copies);
        waiting.push((stream, approval));
    }
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(bench.driver.pending_approvals(), RUNS);
    // One task a run, and one for all that expire.
    assert_eq!(alive_tasks(), tasks + RUNS + 1, "a waiting run has one task, a review none");
    assert_eq!(self::threads(), threads, "a waiting run has no thread");
    // Law 9: the bound holds at its edge and harms nobody who waits. Contract 4.3: room is checked before size.
    let refused = words(&rest(&mut bench.stream(request(1))).await);
    assert_eq!(refused.last().unwrap(), "run.failed APPROVAL_CAPACITY retryable");
    assert_eq!(bench.driver.pending_approvals(), RUNS);

    // Decided from both ends at once, read afterwards.
    for n in 0..RUNS {
        let n = if n % 2 == 0 { n / 2 } else { RUNS - 1 - n / 2 };
        bench.decide(&waiting[n].1, Decision::Approve).await.unwrap();
    }
    for (stream, _) in &mut waiting {
        assert_eq!(words(&rest(stream).await).last().unwrap(), "run.completed done");
    }
    drop(waiting);
    // Whoever watches for expiry looks once more, and goes.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((bench.driver.pending_approvals(), alive_tasks()), (0, tasks));
    assert_eq!(self::threads(), threads);

    let copies = copies.lock().unwrap();
    assert_eq!(copies.len(), RUNS);
    let mut recorded = 0;
    for record in bench.sink.records() {
        if let AuditRecord::Requested { approval, .. } | AuditRecord::Resolved { approval, .. } = record {
            let of_run = &copies[&approval.run_id.to_string()];
            let one = Some(at(approval.call.call().arguments.text()));
            assert_eq!((of_run.called, of_run.shown, of_run.executed), (one, one, one), "one copy");
            recorded += 1;
        }
    }
    assert_eq!(recorded, 2 * RUNS);
}

fn at(text: &str) -> usize {
    text.as_ptr().addr()
}

fn alive_tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// The threads of this process, where the system says so.
fn threads() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Threads:"))?.trim().parse().ok()
}
