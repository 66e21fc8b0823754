//! Law 5 where a driver outlives the runtime of its runs, as a static one does.

use std::time::Duration;

use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_protocol::request::{Approvals, RunRequest};
use countersign_testkit::RecordingSink;
use tokio::runtime::{Builder, Runtime};

use crate::support::{Bench, question, rest, reviewed, words, writes};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

fn expiring(millis: u32) -> RunRequest {
    let mut approvals = Approvals::new(IdlePolicy::Pause);
    approvals.expires_after_ms = Some(millis);
    RunRequest { approvals: Some(approvals), ..reviewed(IdlePolicy::Pause) }
}

// Law 5: the run goes with its runtime, and so does its review; whoever decides later finds nothing.
#[test]
fn a_review_ends_with_the_runtime_of_its_run() {
    for sink in [RecordingSink::new(), RecordingSink::blocking()] {
        let first = runtime();
        let bench = first.block_on(async { Bench::with([writes()], sink, |b, s| b.approvals(s)) });
        let (stream, approval) = first.block_on(async {
            let mut stream = bench.stream(expiring(60_000));
            let approval = question(&mut stream).await;
            (stream, approval)
        });
        assert_eq!(bench.driver.pending_approvals(), 1);
        drop(first);
        assert_eq!(bench.driver.pending_approvals(), 0);
        drop(stream);
        let code = runtime().block_on(bench.decide(&approval, Decision::Approve)).unwrap_err().code();
        assert_eq!(code, "APPROVAL_NOT_FOUND");
        assert_eq!(bench.effects(), [] as [&str; 0]);
    }
}

// Law 5: who watched for expiry went with the first runtime; another watches on the second.
#[test]
fn reviews_expire_on_a_second_runtime() {
    let first = runtime();
    let bench = first.block_on(async { Bench::new([writes(), writes()]) });
    let stream = first.block_on(async {
        let mut stream = bench.stream(expiring(60_000));
        question(&mut stream).await;
        stream
    });
    drop((first, stream));
    let events = runtime().block_on(async {
        let mut stream = bench.stream(expiring(50));
        question(&mut stream).await;
        tokio::time::timeout(Duration::from_secs(60), rest(&mut stream)).await
    });
    let told = words(&events.expect("the review expires"));
    assert_eq!(told, ["approval.resolved expired", "run.failed APPROVAL_EXPIRED"]);
    assert_eq!(bench.driver.pending_approvals(), 0);
}
