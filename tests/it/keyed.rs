//! Runs with an idempotency key through the real client, a host on a socket and operations in SQLite, over restarts
//! (contract 4.10, 4.11 rows 20 and 21, 9).

use std::sync::Arc;

use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::review::Decision;
use countersign_client::Client;
use countersign_driver::operation::OperationSettings;
use countersign_driver::{ApprovalSettings, Driver};
use countersign_host::{Host, serve};
use countersign_protocol::event::EventBody;
use countersign_protocol::request::RunRequest;
use countersign_store::sqlite::Operations;
use tempfile::TempDir;

use crate::support::{
    ANN, ARGUMENTS, Effects, ROOMY, answer, model, options, plain, question, rest, reviewed, write_tool,
};

/// What outlives a host: its file, and what its tool did.
struct Place {
    dir: TempDir,
    effects: Effects,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), effects: Effects::default() }
    }

    /// A host with the file of this place. Only one has it at a time.
    async fn host(&self) -> (Host, Driver, Client) {
        let (store, _) = Operations::open(&self.dir.path().join("operations.db")).unwrap();
        let driver = Driver::builder()
            .provider(Arc::new(model(ARGUMENTS)))
            .tool(write_tool(&self.effects))
            .approvals(ApprovalSettings::default())
            .operations(OperationSettings::new(Arc::new(store)))
            .build()
            .unwrap();
        let host = serve(driver.clone(), options(ROOMY)).await.unwrap();
        let client = Client::builder(host.url(), ANN.into()).build().unwrap();
        (host, driver, client)
    }
}

fn keyed(request: RunRequest) -> RunRequest {
    RunRequest { idempotency_key: Some("key-1".into()), ..request }
}

// 4.11 row 20: no approval.* events, ends run.completed, one effect, old decision NOT_FOUND; and in a new host.
#[tokio::test]
async fn a_repeated_request_is_told_and_not_run() {
    let place = Place::new();
    let mut decision = None;
    for round in 0..3 {
        let (host, driver, client) = place.host().await;
        assert!(client.protocol().await.unwrap().features.contains(&"idempotency".to_owned()));
        let mut events = client.stream(&keyed(reviewed("write"))).await.unwrap();
        if round == 0 {
            let (_, approval) = question(&mut events).await;
            let approve = DecisionRequest::of(&approval, Decision::Approve);
            assert_eq!(answer(client.decide_approval(&approve).await), "approved");
            decision = Some(approve);
            assert_eq!(rest(&mut events).await.last().unwrap(), "run.completed");
        } else {
            let told = rest(&mut events).await;
            assert_eq!(
                told,
                [
                    "run.started",
                    "step.started 1",
                    "usage.reported 1",
                    "text.delta",
                    "tool.called call-1",
                    "tool.completed call-1",
                    "step.started 2",
                    "usage.reported 2",
                    "text.delta",
                    "run.completed",
                ]
            );
        }
        assert_eq!(answer(client.decide_approval(decision.as_ref().unwrap()).await), "APPROVAL_NOT_FOUND");
        assert_eq!((place.effects.len(), driver.pending_approvals()), (1, 0));
        // A key stands for one request, also for the client's buffered call.
        let other = client.run(&keyed(plain("quick"))).await.unwrap_err();
        assert_eq!(other.code().unwrap().as_str(), "IDEMPOTENCY_CONFLICT");
        host.close().await;
    }
}

// 4.11 row 21, 9: an interrupted keyed review in a recreated driver is OPERATION_UNCERTAIN, and has no effect.
#[tokio::test]
async fn an_interrupted_review_is_uncertain_for_ever() {
    let place = Place::new();
    let decision = {
        let (host, _, client) = place.host().await;
        let mut events = client.stream(&keyed(reviewed("write"))).await.unwrap();
        let (_, approval) = question(&mut events).await;
        drop(events);
        host.close().await;
        DecisionRequest::of(&approval, Decision::Approve)
    };
    for _ in 0..2 {
        let (host, driver, client) = place.host().await;
        let mut events = client.stream(&keyed(reviewed("write"))).await.unwrap();
        let told = rest(&mut events).await;
        assert_eq!(
            told[3..],
            ["text.delta", "tool.called call-1", "run.failed OPERATION_UNCERTAIN uncertain"]
        );
        assert_eq!(answer(client.decide_approval(&decision).await), "APPROVAL_NOT_FOUND");
        assert_eq!((place.effects.len(), driver.pending_approvals()), (0, 0));
        host.close().await;
    }
}

// Contract 2.2, 9: buffered, the same result over restarts; the client's stream of the same request tells it too.
#[tokio::test]
async fn a_buffered_run_is_told_again() {
    let place = Place::new();
    let first = {
        let (host, _driver, client) = place.host().await;
        let first = client.run(&keyed(plain("quick"))).await.unwrap();
        host.close().await;
        first
    };
    let (host, _driver, client) = place.host().await;
    assert_eq!(client.run(&keyed(plain("quick"))).await.unwrap(), first);
    let mut events = client.stream(&keyed(plain("quick"))).await.unwrap();
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event.unwrap().body);
    }
    assert_eq!(last.unwrap(), EventBody::RunCompleted { result: Box::new(first) });
    host.close().await;
}
