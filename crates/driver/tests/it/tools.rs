//! Contract 5.4, 7.4: tools that fail, hang, panic or talk too much; law 8.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use countersign_approval_core::ids::ToolName;
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_driver::{Output, Tool, ToolContext, ToolSpec, tool};
use countersign_protocol::code::Code;
use countersign_protocol::request::RunRequest;
use countersign_testkit::RecordingSink;

use crate::support::{Bench, Step, calls, question, request, rest, reviewed, says, words};

fn act<F, R>(execute: F) -> Arc<dyn Tool>
where
    F: Fn(ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Output, countersign_approval_core::audit::BoxError>> + Send + 'static,
{
    let spec = ToolSpec::new("act", "Acts.", r#"{"type":"object"}"#).unwrap().requires_approval();
    tool(spec, move |_, context| execute(context))
}

fn bench(act: Arc<dyn Tool>) -> Bench {
    let script = [calls(&[("call-1", "act", "{}")]), says("done")];
    Bench::with(script, RecordingSink::new(), |builder, settings| builder.approvals(settings).tool(act))
}

fn asks() -> RunRequest {
    let mut request = reviewed(IdlePolicy::Pause);
    request.tools.push(ToolName::parse("act").unwrap());
    request
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_leaves_an_uncertain_outcome() {
    // Scenarios C1, J5: reviewed, started, uncertain; nothing implies the other, and the cause stays private.
    let failures: [fn() -> Arc<dyn Tool>; 2] = [
        || act(|_| async { Err("private: no disk".into()) }),
        || act(|_| async { panic!("private: a panic") }),
    ];
    for failing in failures {
        let bench = bench(failing());
        let events = bench.play(asks(), Decision::Approve).await;
        let told = words(&events);
        assert_eq!(told.last().unwrap(), "run.failed TOOL_OUTCOME_UNCERTAIN uncertain");
        assert!(!told.iter().any(|word| word.starts_with("tool.completed")));
        assert!(!events.iter().any(|event| event.to_json().contains("private")));
        assert_eq!(
            bench.sink.kinds(),
            [
                "approval.requested",
                "approval.resolved approved",
                "execution.started",
                "execution.finished uncertain"
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_of_the_run_while_a_tool_works_is_uncertain() {
    // Scenario H7; law 8.
    let started = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&started);
    let hangs = move |_: ToolContext| {
        seen.fetch_add(1, Ordering::SeqCst);
        std::future::pending()
    };
    let bench = bench(act(hangs));
    let mut stream = bench.stream(RunRequest { idle_timeout_ms: Some(50), ..asks() });
    let approval = question(&mut stream).await;
    bench.decide(&approval, Decision::Approve).await.unwrap();
    let told = words(&rest(&mut stream).await);
    assert_eq!(told, ["approval.resolved approved", "run.cancelled IDLE_TIMEOUT uncertain"]);
    assert_eq!(started.load(Ordering::SeqCst), 1);
    assert_eq!(bench.sink.kinds().last().unwrap(), "execution.finished uncertain");
}

#[tokio::test(start_paused = true)]
async fn a_tool_can_clean_up_after_its_run_has_ended() {
    let cleaned = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&cleaned);
    let careful = move |context: ToolContext| {
        let seen = Arc::clone(&seen);
        async move {
            context.cancellation.cancelled().await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            seen.fetch_add(1, Ordering::SeqCst);
            Ok(Output::json("cleaned")?)
        }
    };
    let bench = bench(act(careful));
    let mut stream = bench.stream(RunRequest { idle_timeout_ms: Some(50), ..asks() });
    let approval = question(&mut stream).await;
    bench.decide(&approval, Decision::Approve).await.unwrap();
    let before = tokio::time::Instant::now();
    let told = words(&rest(&mut stream).await);
    assert_eq!(told.last().unwrap(), "run.cancelled IDLE_TIMEOUT uncertain");
    assert!(before.elapsed() < Duration::from_secs(1), "the run does not wait for it");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(cleaned.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_confirmed_before_somebody_took_it() {
    // The tool is done, but its output was never delivered: a client must not retry as if nothing had happened.
    let bench = bench(act(|_| async { Ok(Output::json("done")?) }));
    let mut stream = bench.stream(RunRequest { idle_timeout_ms: Some(50), ..asks() });
    let approval = question(&mut stream).await;
    bench.decide(&approval, Decision::Approve).await.unwrap();
    stream.next().await.unwrap();
    // Asks for the next event once, so that the tool starts, and then stops reading.
    tokio::select! { biased; _ = stream.next() => panic!(), () = std::future::ready(()) => {} }
    while bench.sink.kinds().len() < 4 {
        tokio::task::yield_now().await;
    }
    let told = words(&rest(&mut stream).await);
    assert_eq!(told[0], "tool.completed \"done\"");
    assert_eq!(bench.sink.kinds().last().unwrap(), "execution.finished completed");
}

#[tokio::test(start_paused = true)]
async fn outputs_are_carried_as_written_and_bounded() {
    let exact = Output::from_text(r#"{ "id": 1234567890123456789, "x": 1.0 }"#).unwrap();
    assert_eq!(exact.text(), r#"{"id":1234567890123456789,"x":1.0}"#);
    assert!(Output::from_text(&format!("\"{}\"", "x".repeat(999_998))).is_ok());
    for bad in [
        format!("\"{}\"", "x".repeat(999_999)),
        "{".into(),
        "NaN".into(),
        r#"{"a":1,"a":2}"#.into(),
        r#""\ud800""#.into(),
    ] {
        assert!(Output::from_text(&bad).is_err(), "{}", &bad[..bad.len().min(20)]);
    }
    assert!(Output::json(&f64::NAN).is_ok_and(|output| output.text() == "null"));
}

#[tokio::test(start_paused = true)]
async fn a_failing_model_after_an_effect_does_not_hide_it() {
    // Scenarios M15, E11.
    let script = [
        calls(&[("c1", "lookup", "{}")]),
        calls(&[("c2", "write", "{}")]),
        Step { error: Some(Code::PROVIDER_ERROR), ..Step::default() },
    ];
    let bench = Bench::new(script);
    let events = bench.play(reviewed(IdlePolicy::Pause), Decision::Approve).await;
    let told = words(&events);
    assert_eq!(told.last().unwrap(), "run.failed PROVIDER_ERROR");
    assert_eq!(told.iter().filter(|word| word.starts_with("tool.completed")).count(), 2);
    assert_eq!(bench.effects().len(), 1);
    assert!(!events.iter().any(|event| event.to_json().contains("sk-secret")));
}

#[tokio::test(start_paused = true)]
async fn a_model_that_panics_fails_its_run_only() {
    let bench = Bench::new([Step { panics: true, ..Step::default() }, says("fine")]);
    let told = words(&rest(&mut bench.stream(request())).await);
    assert_eq!(told.last().unwrap(), "run.failed INTERNAL_ERROR");
    let told = words(&rest(&mut bench.stream(request())).await);
    assert_eq!(told.last().unwrap(), "run.completed fine");
}

#[tokio::test(start_paused = true)]
async fn a_denied_call_takes_nothing_from_an_ungated_one_before_it() {
    // Scenario D3.
    let bench = Bench::new([calls(&[("c1", "lookup", "{}"), ("c2", "write", "{}")])]);
    let events = bench.play(reviewed(IdlePolicy::Pause), Decision::Deny).await;
    let told = words(&events);
    assert!(told.contains(&"tool.completed [1,2]".to_owned()));
    assert_eq!(told.last().unwrap(), "run.failed APPROVAL_DENIED");
}
