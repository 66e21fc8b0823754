//! Reading ahead (design 4): a consumer that passes events on together gets them together, and no effect early.

use std::time::Duration;

use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_driver::EventStream;
use countersign_protocol::event::EventBody;

use crate::support::{Bench, calls, question, request, reviewed, says, words, writes};

/// All that is ready, after a time in which the run could have done anything.
async fn ready(stream: &mut EventStream) -> Vec<String> {
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let events: Vec<_> = std::iter::from_fn(|| stream.next_ready()).collect();
    if events.is_empty() { Vec::new() } else { words(&events) }
}

async fn next(stream: &mut EventStream) -> String {
    stream.next().await.map(|event| words(&[event]).concat()).unwrap_or_default()
}

// Law 1, design 4: the call starts once `approval.resolved` was taken and more was asked for; then all that follows comes
// at once.
#[tokio::test(start_paused = true)]
async fn an_approved_call_waits_for_its_consumer() {
    let bench = Bench::new([writes(), says("saved")]);
    let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
    stream.read_ahead(8);
    let approval = question(&mut stream).await;
    bench.decide(&approval, Decision::Approve).await.unwrap();
    assert!(ready(&mut stream).await.is_empty(), "nobody asked");
    assert_eq!(next(&mut stream).await, "approval.resolved approved");
    assert!(ready(&mut stream).await.is_empty());
    assert!(bench.effects().is_empty());
    assert!(!bench.sink.kinds().contains(&"execution.started".to_owned()));
    assert_eq!(next(&mut stream).await, "tool.completed \"written\"");
    let rest = ["step.started 2", "usage.reported 2", "text.delta saved", "run.completed saved"];
    assert_eq!(ready(&mut stream).await, rest);
    assert!(stream.next().await.is_none());
    assert_eq!(bench.effects().len(), 1);
}

// Design 4: a review is opened when every event but the last was taken; its question may come with its call.
#[tokio::test(start_paused = true)]
async fn a_review_waits_for_its_consumer() {
    let bench = Bench::new([writes()]);
    let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
    assert_eq!(next(&mut stream).await, "run.started");
    stream.read_ahead(8);
    assert!(ready(&mut stream).await.is_empty(), "nobody asked");
    assert_eq!(next(&mut stream).await, "step.started 1");
    assert_eq!(ready(&mut stream).await, ["usage.reported 1", "text.delta I propose"]);
    assert!(ready(&mut stream).await.is_empty());
    assert_eq!(bench.driver.pending_approvals(), 0);
    assert_eq!(next(&mut stream).await, "tool.called call-1");
    assert_eq!(ready(&mut stream).await, ["approval.requested"]);
    assert_eq!(bench.driver.pending_approvals(), 1);
}

// The same for a tool that nobody reviews.
#[tokio::test(start_paused = true)]
async fn a_tool_waits_for_its_consumer() {
    let bench = Bench::new([calls(&[("a", "lookup", "{}"), ("b", "lookup", "{}")])]);
    let mut stream = bench.stream(request());
    stream.read_ahead(8);
    while next(&mut stream).await != "tool.called a" {}
    assert!(ready(&mut stream).await.is_empty(), "its output is asked for first");
    assert_eq!(next(&mut stream).await, "tool.completed [1,2]");
    assert!(ready(&mut stream).await.is_empty());
    assert_eq!(next(&mut stream).await, "tool.called b");
}

// Contract 3.4: an abort beats a failure whose end was not asked for yet.
#[tokio::test(start_paused = true)]
async fn a_failure_waits_for_its_consumer() {
    let bench = Bench::new([writes()]);
    let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
    stream.read_ahead(8);
    let approval = question(&mut stream).await;
    bench.decide(&approval, Decision::Deny).await.unwrap();
    assert_eq!(next(&mut stream).await, "approval.resolved denied");
    assert!(ready(&mut stream).await.is_empty());
    stream.cancel();
    assert_eq!(next(&mut stream).await, "run.cancelled CANCELLED");
}

// It never gets further ahead than was allowed.
#[tokio::test(start_paused = true)]
async fn no_more_than_was_allowed() {
    let bench = Bench::new([says("hello")]);
    let mut stream = bench.stream(request());
    stream.read_ahead(2);
    assert_eq!(next(&mut stream).await, "run.started");
    assert_eq!(ready(&mut stream).await, ["step.started 1"]);
    assert_eq!(next(&mut stream).await, "usage.reported 1");
    assert_eq!(ready(&mut stream).await, ["text.delta hello"]);
    assert_eq!(next(&mut stream).await, "run.completed hello");
    assert!(stream.next().await.is_none());
}

// Law 5: dropping a stream with events in it ends the run like any other.
#[tokio::test(start_paused = true)]
async fn what_was_not_taken_goes_with_the_stream() {
    let bench = Bench::new([writes()]);
    let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
    stream.read_ahead(8);
    while let Some(event) = stream.next().await {
        if matches!(event.body, EventBody::ToolCalled { .. }) {
            break;
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.driver.pending_approvals(), 1);
    drop(stream);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.driver.pending_approvals(), 0);
}
