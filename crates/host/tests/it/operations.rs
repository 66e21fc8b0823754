//! Idempotency keys over HTTP (contract 1.6, 1.8, 2.1 rows 4 and 19, 5.2, 6.4, 9).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use async_trait::async_trait;
use countersign_approval_core::grants::Principal;
use countersign_driver::operation::{
    Claim, Claimed, MemoryOperationStore, OperationSettings, OperationStore, StoreError,
};
use countersign_host::{Concurrency, Extras, HostConfig, configured_driver};
use countersign_protocol::request::RunRequest;
use serde_json::{Value, json};

use crate::support::{
    ANN, ANN_ELSEWHERE, ANN_REVIEWER, ANN_RUNNER, Ask, BOB, CARL, Fixture, decision, plain, reviewed, run_ask,
};

fn fixture() -> Fixture {
    with(Concurrency::default(), Arc::new(MemoryOperationStore::default()))
}

fn with(concurrency: Concurrency, store: Arc<dyn OperationStore>) -> Fixture {
    Fixture::with(concurrency, |builder| builder.operations(OperationSettings::new(store)))
}

fn keyed(mut body: Value) -> Value {
    body["idempotencyKey"] = json!("key-1");
    body
}

fn buffered(token: &str, body: Value) -> Ask {
    Ask::post("/v1/runs").token(token).json(&body)
}

/// All events of a stream that prompts nobody.
async fn told(fixture: &Fixture, token: &str, body: Value) -> Vec<Value> {
    let mut peer = fixture.connect();
    let head = peer.start(&run_ask(token, body)).await;
    assert_eq!((head.status, head.one("content-type")), (200, "text/event-stream; charset=utf-8"));
    let mut events = Vec::new();
    while let Some(event) = peer.event().await {
        events.push(event);
    }
    events
}

// Contract 1.6: the last of the list, only with a store.
#[tokio::test]
async fn it_is_advertised_with_a_store_only() {
    let features = async |fixture: &Fixture| {
        let info = fixture.ask(&Ask::get("/v1/protocol").token(ANN)).await.json();
        info["features"].as_array().unwrap().clone()
    };
    let with = features(&fixture()).await;
    assert_eq!(with.last().unwrap(), "idempotency");
    let without = features(&Fixture::new()).await;
    assert_eq!(with[..with.len() - 1], without[..]);
}

// Contract 9: buffered and streamed, the first answer is told again; 4.11 row 20 over HTTP.
#[tokio::test(start_paused = true)]
async fn the_same_request_is_told_the_same_run() {
    let fixture = fixture();
    let first = fixture.ask(&buffered(ANN, keyed(plain("quick")))).await;
    assert_eq!(first.head.status, 200);
    let again = fixture.ask(&buffered(ANN, keyed(plain("quick")))).await;
    assert_eq!((again.head.status, &again.body), (200, &first.body));
    let events = told(&fixture, ANN, keyed(plain("quick"))).await;
    assert_eq!(events.last().unwrap()["result"], first.json());
    // Key order and spelling of the body do not matter.
    let text = r#"{ "idempotencyKey":"key-\u0031", "input":"quick","model":"demo", "provider":"mock" }"#;
    let spelled = fixture.ask(&Ask::post("/v1/runs").token(ANN).text(text)).await;
    assert_eq!(spelled.body, first.body);
}

#[tokio::test(start_paused = true)]
async fn a_reviewed_run_is_told_without_its_questions() {
    let fixture = fixture();
    let mut first = fixture.connect();
    first.start(&run_ask(ANN, keyed(reviewed("write")))).await;
    let approval = first.event_of("approval.requested").await["approval"].take();
    // While it runs: the same request, and another one, as ordinary errors before any event (contract 1.8).
    let busy = fixture.ask(&run_ask(ANN, keyed(reviewed("write")))).await;
    assert_eq!(busy.outcome(), (409, "OPERATION_IN_PROGRESS".into()));
    assert_eq!(busy.head.one("content-type"), "application/json; charset=utf-8");
    assert_eq!(busy.json()["error"]["retryable"], true);
    let conflict = fixture.ask(&buffered(ANN, keyed(plain("quick")))).await;
    assert_eq!(conflict.outcome(), (409, "IDEMPOTENCY_CONFLICT".into()));
    assert_eq!(conflict.json()["error"]["retryable"], false);
    assert_eq!(fixture.decide(ANN, &decision(&approval, "approve")).await.head.status, 200);
    let end = first.event_of("run.completed").await;

    let events = told(&fixture, ANN, keyed(reviewed("write"))).await;
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "run.started",
            "step.started",
            "tool.called",
            "tool.completed",
            "step.started",
            "text.delta",
            "run.completed"
        ]
    );
    for (event, sequence) in events.iter().zip(1..) {
        assert_eq!((&event["sequence"], &event["runId"]), (&json!(sequence), &end["runId"]));
    }
    assert_eq!(events.last().unwrap()["result"], end["result"]);
    let late = fixture.decide(ANN, &decision(&approval, "approve")).await;
    assert_eq!(late.outcome(), (404, "APPROVAL_NOT_FOUND".into()));
    assert_eq!(fixture.written().len(), 1);
}

// Contract 9: tokens of one subject share a key, subjects are independent (law 4).
#[tokio::test(start_paused = true)]
async fn keys_belong_to_subjects() {
    let fixture = fixture();
    let run_id = async |token| {
        let answer = fixture.ask(&buffered(token, keyed(plain("quick")))).await;
        assert_eq!(answer.head.status, 200);
        answer.json()["runId"].as_str().unwrap().to_owned()
    };
    let ann = run_id(ANN).await;
    assert_eq!(run_id(ANN_RUNNER).await, ann);
    let bob = run_id(BOB).await;
    assert_ne!(bob, ann);
    // Another subject's key is no conflict either: Bob's other request under a key that is Ann's.
    let with_key =
        |input: &str| json!({"provider": "mock", "model": "demo", "input": input, "idempotencyKey": "key-2"});
    for (token, input) in [(ANN, "quick"), (BOB, "chatty")] {
        let answer = fixture.ask(&buffered(token, with_key(input))).await;
        assert_eq!(answer.head.status, 200, "{input}");
    }
    assert_eq!(run_id(ANN).await, ann);
}

// Contract 9: validation, grants and capacity apply to replays; 2.1: row 19 is the last.
#[tokio::test(start_paused = true)]
async fn a_key_opens_nothing() {
    let store = Arc::new(MemoryOperationStore::default());
    let fixture = with(Concurrency { total: 1, per_subject: 1, ..Concurrency::default() }, store);
    assert_eq!(fixture.ask(&buffered(ANN, keyed(plain("quick")))).await.head.status, 200);
    let mut tools = keyed(plain("quick"));
    tools["tools"] = json!(["write"]);
    let cases = [
        (
            "5 before 19",
            ANN,
            json!({"provider": "nobody", "model": "demo", "input": "quick", "idempotencyKey": "key-1"}),
            (400, "UNKNOWN_PROVIDER"),
        ),
        ("16 before 19, provider", ANN_ELSEWHERE, keyed(plain("quick")), (403, "FORBIDDEN")),
        ("16 before 19, tool", ANN_REVIEWER, tools, (403, "FORBIDDEN")),
        ("16 before 19, anything", CARL, keyed(plain("quick")), (403, "FORBIDDEN")),
        ("18 before 19", ANN, keyed(reviewed("quick")), (400, "APPROVAL_STREAM_REQUIRED")),
        ("19", ANN, keyed(plain("slow")), (409, "IDEMPOTENCY_CONFLICT")),
        (
            "1",
            ANN,
            json!({"provider": "mock", "model": "demo", "input": "quick", "idempotencyKey": "-"}),
            (400, "INVALID_REQUEST"),
        ),
        (
            "1",
            ANN,
            json!({"provider": "mock", "model": "demo", "input": "quick", "idempotencyKey": null}),
            (400, "INVALID_REQUEST"),
        ),
    ];
    for (name, token, body, (status, code)) in cases {
        assert_eq!(fixture.ask(&buffered(token, body)).await.outcome(), (status, code.to_owned()), "{name}");
    }
    // Contract 6.4: replays need admission.
    let _running = fixture.waiting(BOB).await;
    let busy = fixture.ask(&buffered(ANN, keyed(plain("quick")))).await;
    assert_eq!(busy.outcome(), (429, "BUSY".into()), "17 before 19");
}

// Contract 9: a failure is told again with its status; 2.2.
#[tokio::test(start_paused = true)]
async fn a_failure_is_told_again() {
    let fixture = fixture();
    let first = fixture.ask(&buffered(ANN, keyed(plain("broken")))).await;
    assert_eq!(first.outcome(), (502, "PROVIDER_REFUSAL".into()));
    assert_eq!(fixture.ask(&buffered(ANN, keyed(plain("broken")))).await.body, first.body);
    let events = told(&fixture, ANN, keyed(plain("broken"))).await;
    assert_eq!(events.last().unwrap()["error"], first.json()["error"]);
}

// Contract 4.10, 9: a stream that was closed during a review; nothing runs, and nobody is asked again.
#[tokio::test(start_paused = true)]
async fn an_interrupted_review_is_uncertain() {
    let fixture = fixture();
    let mut peer = fixture.connect();
    peer.start(&run_ask(ANN, keyed(reviewed("write")))).await;
    let approval = peer.event_of("approval.requested").await["approval"].take();
    drop(peer);
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    for _ in 0..2 {
        let events = told(&fixture, ANN, keyed(reviewed("write"))).await;
        let error = &events.last().unwrap()["error"];
        assert_eq!((&error["code"], &error["outcome"]), (&json!("OPERATION_UNCERTAIN"), &json!("uncertain")));
        assert!(events.iter().all(|event| !event["type"].as_str().unwrap().starts_with("approval.")));
    }
    let late = fixture.decide(ANN, &decision(&approval, "approve")).await;
    assert_eq!(late.outcome(), (404, "APPROVAL_NOT_FOUND".into()));
    assert_eq!(fixture.written().len(), 0);
}

// Contract 9: a buffered run whose client hangs up while the model speaks is cancelled, and told so: 502.
#[tokio::test(start_paused = true)]
async fn a_buffered_run_that_was_given_up_is_cancelled() {
    let fixture = fixture();
    let mut peer = fixture.connect();
    peer.send(&buffered(ANN, keyed(plain("slow"))).bytes()).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    drop(peer);
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let again = fixture.ask(&buffered(ANN, keyed(plain("slow")))).await;
    assert_eq!(again.outcome(), (502, "CANCELLED".into()));
}

/// A store that refuses every claim.
struct Refuses(fn() -> StoreError);

#[async_trait]
impl OperationStore for Refuses {
    async fn claim(&self, _: Claim) -> Result<Claimed, StoreError> {
        Err((self.0)())
    }
}

// Contract 5.2, 5.4: as ordinary errors before any event, streamed and buffered; no private text.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_a_503() {
    let cases: [(fn() -> StoreError, &str, Value); 2] = [
        (|| StoreError::Full, "OPERATION_STORE_FULL", Value::Null),
        (|| StoreError::Failed("private: /dev/secret".into()), "OPERATION_STORE_ERROR", json!("uncertain")),
    ];
    for (error, code, outcome) in cases {
        let fixture = with(Concurrency::default(), Arc::new(Refuses(error)));
        for ask in [buffered(ANN, keyed(plain("quick"))), run_ask(ANN, keyed(plain("quick")))] {
            let answer = fixture.ask(&ask).await;
            assert_eq!(answer.outcome(), (503, code.into()));
            assert_eq!(answer.json()["error"]["outcome"], outcome);
            assert_eq!(answer.json()["error"]["retryable"], false);
            assert!(!String::from_utf8(answer.body).unwrap().contains("private"));
        }
        assert_eq!(fixture.ask(&buffered(ANN, plain("quick"))).await.head.status, 200);
    }
}

// Contract 9, 5.2, 5.4, law 9: the record's limit. Streamed, the run's last event says so with the next sequence; buffered,
// it is a 503; either way the key is uncertain from then on.
#[tokio::test(start_paused = true)]
async fn a_record_that_is_too_long_ends_its_run() {
    let limited = || {
        let store = Arc::new(MemoryOperationStore::default());
        Fixture::with(Concurrency::default(), |builder| {
            builder.operations(OperationSettings { store, max_record_bytes: 300 })
        })
    };
    let fixture = limited();
    let events = told(&fixture, ANN, keyed(plain("quick"))).await;
    let last = events.last().unwrap();
    assert_eq!((&events[0]["type"], &last["type"]), (&json!("run.started"), &json!("run.failed")));
    assert_eq!(last["sequence"], json!(events.len()));
    assert_eq!(
        (&last["error"]["code"], &last["error"]["outcome"]),
        (&json!("OPERATION_RECORD_LIMIT"), &json!("uncertain"))
    );
    let fixture = limited();
    let first = fixture.ask(&buffered(ANN, keyed(plain("quick")))).await;
    assert_eq!(first.outcome(), (503, "OPERATION_RECORD_LIMIT".into()));
    assert_eq!(first.json()["error"]["outcome"], "uncertain");
    assert_eq!(first.json()["error"]["retryable"], false);
    let again = fixture.ask(&buffered(ANN, keyed(plain("quick")))).await;
    assert_eq!(again.outcome(), (409, "OPERATION_UNCERTAIN".into()));
    assert_eq!(again.json()["error"]["outcome"], "uncertain");
    assert_eq!(again.json()["error"]["retryable"], false);
}

// Contract 6.1, 9: `operations` opens one store in a private folder, and its bound is in force.
#[tokio::test]
async fn the_configuration_opens_its_store() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    fs::write(&token, ANN).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let config = |directory: &str, max_record_bytes: u64| {
        let text = json!({
            "version": 1,
            "providers": [{"id": "mock", "kind": "scripted", "models": ["demo"]}],
            "tokens": [{"id": "ann", "subject": "ann", "tokenRef": {"file": "token"}, "providers": ["mock"]}],
            "operations": {"directory": directory, "maxRecordBytes": max_record_bytes},
        });
        HostConfig::parse(&text.to_string(), dir.path()).unwrap()
    };
    let refused = |directory: &str| {
        let config = config(directory, 1);
        config.open_operations().err().unwrap().to_string()
    };
    assert!(refused("none/ops").starts_with("INVALID_CONFIG: operations.directory: "));
    assert!(refused("token").contains("is not a folder"));
    let limited = config("ops", 1);
    let Err(error) = configured_driver(&limited, Extras::default()) else { panic!("no store was given") };
    assert!(error.to_string().starts_with("INVALID_CONFIG: operations: "), "{error}");
    limited.check_operations().unwrap();
    let operations = limited.open_operations().unwrap();
    assert!(operations.is_some());
    assert!(refused("ops").starts_with("OPERATION_STORE_ERROR: operations.directory: "), "one writer");
    let driver = configured_driver(&limited, Extras { operations, ..Extras::default() }).unwrap();
    let mut request = RunRequest::decode(&plain("quick").to_string()).unwrap();
    request.idempotency_key = Some("k".into());
    let error = driver.run(request, Principal::local()).await.unwrap_err();
    assert_eq!(error.code.as_str(), "OPERATION_RECORD_LIMIT");
}
