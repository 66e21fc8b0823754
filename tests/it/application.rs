//! Application tools from end to end: the client's tool box, the HTTP host and the driver (contract 7.6, 3.4).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::ids::ToolName;
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_client::{Client, Error, ToolBox, ToolStream};
use countersign_driver::{ApplicationToolSettings, Review};
use countersign_protocol::event::EventBody;
use countersign_protocol::request::{ApplicationTool, Approvals, RunRequest};

use crate::support::{ANN, ANN_RUNNER, ARGUMENTS, ROOMY, World, model, plain, word};

const AUTOMATIC: ApplicationToolSettings =
    ApplicationToolSettings { review: Review::NotRequired, max_pending: 100 };

fn world(settings: ApplicationToolSettings) -> World {
    World::with(model(ARGUMENTS), ROOMY, |builder, approvals| {
        builder.approvals(approvals).application_tools(settings)
    })
}

fn definition() -> ApplicationTool {
    ApplicationTool::new("pick", "Picks.", r#"{"type":"object"}"#).unwrap()
}

/// A request without tools; the tool box brings its own.
fn request() -> RunRequest {
    RunRequest { tools: Vec::new(), ..plain("pick") }
}

/// What a function was called with.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    fn seen(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn picks(calls: &Calls) -> ToolBox {
    let calls = calls.clone();
    ToolBox::new().with(definition(), move |call, _| {
        calls.0.lock().unwrap().push(call.arguments.text().to_owned());
        async { Ok("teal") }
    })
}

/// Reads to the end in words, approving whatever is asked.
async fn play(client: &Client, stream: &mut ToolStream) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            Ok(event) => {
                if let EventBody::ApprovalRequested { approval, .. } = &event.body {
                    let decision = DecisionRequest::of(approval, Decision::Approve);
                    client.decide_approval(&decision).await.unwrap();
                }
                told.push(word(&event));
            }
            Err(Error::ToolFailed { call_id, source }) => told.push(format!("failed {call_id}: {source}")),
            Err(error) => told.push(format!("broken {:?}", error.code())),
        }
    }
    told
}

// Contract 3.4, "approve, application tool", and 7.6: without a review where host and token opt out.
#[tokio::test(start_paused = true)]
async fn a_tool_box_from_end_to_end() {
    let approved = ["approval.requested", "approval.resolved approved"];
    for (settings, token, reviewed) in [
        (AUTOMATIC, ANN, false),
        (AUTOMATIC, ANN_RUNNER, true),
        (ApplicationToolSettings::default(), ANN, true),
    ] {
        let (world, calls) = (world(settings), Calls::default());
        let mut asked = request();
        asked.approvals = reviewed.then(|| Approvals::new(IdlePolicy::Pause));
        let client = world.client(token);
        let mut stream = picks(&calls).stream(&client, &asked).await.unwrap();
        let told = play(&world.client(ANN), &mut stream).await;
        let mut expected =
            vec!["run.started", "step.started 1", "usage.reported 1", "text.delta", "tool.called call-1"];
        if reviewed {
            expected.extend(approved);
        }
        expected.extend([
            "tool.execution.requested",
            "tool.completed call-1",
            "step.started 2",
            "usage.reported 2",
            "text.delta",
            "run.completed",
        ]);
        assert_eq!(told, expected);
        assert_eq!(calls.seen(), [ARGUMENTS], "the proposed call, to the token (law 1)");
        let proven = ["execution.started", "execution.finished completed"];
        let kinds = world.sink.kinds();
        assert_eq!(
            kinds.iter().filter(|kind| proven.contains(&kind.as_str())).count(),
            usize::from(reviewed) * 2
        );
        assert_eq!(world.driver.pending_executions(), 0);
    }
}

// Contract 7.6, 5.4; law 8.
#[tokio::test(start_paused = true)]
async fn a_function_that_fails_is_uncertain() {
    let world = world(AUTOMATIC);
    let tools = ToolBox::new()
        .with(definition(), |_, _| async { Err::<(), _>("private: the palette is empty".into()) });
    let client = world.client(ANN);
    let mut stream = tools.stream(&client, &request()).await.unwrap();
    let told = play(&client, &mut stream).await;
    // The failure is told here and the reason nowhere else; which of the two comes first is the network's.
    assert!(told.contains(&"run.failed TOOL_OUTCOME_UNCERTAIN uncertain".to_owned()), "{told:?}");
    assert_eq!(world.driver.pending_executions(), 0);
}

// Contract 7.6, 8: each report restarts the idle clock.
#[tokio::test(start_paused = true)]
async fn a_function_that_reports_outlives_the_idle_limit() {
    for (reports, end) in [(20, "run.completed"), (0, "run.cancelled IDLE_TIMEOUT uncertain")] {
        let world = world(AUTOMATIC);
        let tools = ToolBox::new().with(definition(), move |_, context| async move {
            for _ in 0..reports {
                tokio::time::sleep(Duration::from_millis(100)).await;
                context.report_progress().await?;
            }
            tokio::time::sleep(Duration::from_millis(if reports == 0 { 2_000 } else { 100 })).await;
            Ok("teal")
        });
        let client = world.client(ANN);
        let asked = RunRequest { idle_timeout_ms: Some(150), ..request() };
        let mut stream = tools.stream(&client, &asked).await.unwrap();
        let told = play(&client, &mut stream).await;
        assert_eq!(told.last().unwrap(), end);
        assert_eq!(told.iter().any(|word| word == "run.progress"), reports > 0);
        assert_eq!(world.driver.pending_executions(), 0);
    }
}

// Law 5: dropping the stream ends the function here and the execution there.
#[tokio::test(start_paused = true)]
async fn dropping_the_stream_ends_both() {
    let world = world(AUTOMATIC);
    let tools = ToolBox::new().with(definition(), |_, _| async {
        std::future::pending::<()>().await;
        Ok(())
    });
    let mut stream = tools.stream(&world.client(ANN), &request()).await.unwrap();
    while !matches!(stream.next().await.unwrap().unwrap().body, EventBody::ToolExecutionRequested { .. }) {}
    assert!(tokio::time::timeout(Duration::from_secs(60), stream.next()).await.is_err(), "it works on");
    assert_eq!(world.driver.pending_executions(), 1);
    drop(stream);
    while world.driver.pending_executions() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

// Contract 2.1, row 16, through the client: a token without the grant.
#[tokio::test(start_paused = true)]
async fn a_token_without_the_grant() {
    let world = world(AUTOMATIC);
    let other = ApplicationTool::new("other", "Other.", "{}").unwrap();
    let tools = ToolBox::new().with(other, |_, _| async { Ok(()) });
    let error = tools.stream(&world.client(ANN), &request()).await.unwrap_err();
    assert_eq!(error.code().unwrap().as_str(), "FORBIDDEN");
    let unlisted = RunRequest {
        tools: vec![ToolName::parse("write").unwrap()],
        application_tools: vec![definition()],
        ..request()
    };
    let error = world.client(ANN).stream(&unlisted).await.unwrap_err();
    assert_eq!(error.code().unwrap().as_str(), "INVALID_REQUEST");
}
