//! Structured output and the design's additions over HTTP (contract 7.2, 7.5; design 4).

use countersign_driver::{ApprovalFeature, ApprovalSettings, Builder};
use countersign_host::Concurrency;
use serde_json::{Value, json};

use crate::support::{ANN, Ask, BOB, Fixture, decision, plain, reviewed, run_ask};

fn with_features(builder: Builder) -> Builder {
    let features = vec![ApprovalFeature::Digest, ApprovalFeature::DenialFeedback];
    builder.approvals(ApprovalSettings { features, ..ApprovalSettings::default() })
}

fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

// Contract 1.6 and design 4: told only where they are on.
#[tokio::test]
async fn features_are_told_where_they_are_on() {
    let fixture = Fixture::with(Concurrency::default(), with_features);
    let told = fixture.ask(&Ask::get("/v1/protocol").token(ANN)).await.json()["features"].take();
    let expected = json!(["json-results", "interactive-approvals", "approval-digest", "denial-feedback"]);
    assert_eq!(told.as_array().unwrap()[..4], expected.as_array().unwrap()[..]);
}

// Design 4: the digest is that of the published vectors: RFC 8785 of {arguments,id,name}.
#[tokio::test]
async fn the_digest_stands_in_the_question() {
    let fixture = Fixture::with(Concurrency::default(), with_features);
    let mut body = reviewed("write");
    body["approvals"]["digest"] = json!(true);
    let mut peer = fixture.connect();
    peer.start(&run_ask(ANN, body)).await;
    let approval = peer.event_of("approval.requested").await["approval"].take();
    let canonical = r#"{"arguments":{"k":[1,2]},"id":"call-1","name":"write"}"#;
    let digest = countersign_approval_core::json::Digest::of(canonical).to_string();
    assert_eq!(approval["digest"], json!(digest));
    // Whoever did not ask does not see it.
    let (_other, approval) = fixture.waiting(BOB).await;
    assert_eq!(approval.get("digest"), None);
}

// Design 4: after the outcome the run goes on; `tool.completed` never says of it that it ran (law 1).
#[tokio::test]
async fn a_denial_with_a_reason() {
    let fixture = Fixture::with(Concurrency::default(), with_features);
    let mut body = reviewed("write");
    body["approvals"]["onDeny"] = json!("continue");
    let mut peer = fixture.connect();
    peer.start(&run_ask(ANN, body)).await;
    let approval = peer.event_of("approval.requested").await["approval"].take();
    let denial = with(decision(&approval, "deny"), "reason", json!("Not today."));
    let too_long = with(denial.clone(), "reason", json!("x".repeat(2_001)));
    assert_eq!(fixture.decide(ANN, &too_long).await.outcome(), (400, "INVALID_APPROVAL".into()));
    let receipt = fixture.decide(ANN, &denial).await.json();
    assert_eq!((&receipt["outcome"], receipt.get("reason")), (&json!("denied"), None));
    let rest = peer.rest().await;
    assert!(!rest.iter().any(|event| event.starts_with("tool.completed")), "{rest:?}");
    assert_eq!(rest.last().unwrap(), "run.completed");
    assert!(fixture.written().is_empty());
}

// Contract 4.2: on a host without the addition a reason is an unknown member, and the review stays.
#[tokio::test]
async fn a_reason_where_none_is_taken() {
    let fixture = Fixture::new();
    let (_peer, approval) = fixture.waiting(ANN).await;
    let denial = decision(&approval, "deny");
    let with_reason = with(denial.clone(), "reason", json!("no"));
    assert_eq!(fixture.decide(ANN, &with_reason).await.outcome(), (400, "INVALID_APPROVAL".into()));
    assert_eq!(fixture.decide(ANN, &denial).await.head.status, 200);
}

// Contract 7.2, 7.5 and 2.1, rows 13, 14 and 16: before grants, after the policy of approvals; statuses of 5.2.
#[tokio::test]
async fn structured_output() {
    let fixture = Fixture::new();
    let strange = || json!({"type": "strange"});
    let ask = |token: &str, body: Value| Ask::post("/v1/runs").token(token).json(&body);
    let refused = fixture.ask(&ask(ANN, with(plain("quick"), "outputSchema", strange()))).await;
    assert_eq!(refused.outcome(), (400, "INVALID_SCHEMA".into()));
    let refused = fixture.ask(&run_ask(ANN, with(plain("quick"), "outputSchema", strange()))).await;
    assert_eq!(refused.outcome(), (400, "INVALID_SCHEMA".into()), "before the stream begins");
    let refused =
        fixture.ask(&ask(crate::support::CARL, with(plain("quick"), "outputSchema", strange()))).await;
    assert_eq!(refused.outcome(), (400, "INVALID_SCHEMA".into()), "14 before 16");
    let mut both = with(reviewed("quick"), "outputSchema", strange());
    both["approvals"]["digest"] = json!(true);
    assert_eq!(
        fixture.ask(&run_ask(ANN, both)).await.outcome(),
        (400, "APPROVAL_POLICY".into()),
        "13 before 14"
    );

    let object = json!({"type": "object"});
    let answer = fixture.ask(&ask(ANN, with(plain("quick"), "outputSchema", object.clone()))).await;
    assert_eq!(answer.outcome(), (502, "INVALID_OUTPUT".into()));
    let answer = fixture.ask(&ask(ANN, with(plain("json"), "outputSchema", object.clone()))).await;
    // The text of the answer, with the numbers as they were written.
    let text = String::from_utf8_lossy(&answer.body);
    assert!(text.contains(r#""output":{"n":1.50,"s":"\u00e9"}"#), "{text}");
    let mut peer = fixture.connect();
    peer.start(&run_ask(ANN, with(plain("json"), "outputSchema", object))).await;
    let done = peer.event_of("run.completed").await;
    assert_eq!(done["result"]["output"], json!({"n": 1.5, "s": "é"}));
}
