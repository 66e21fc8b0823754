//! Runs with an idempotency key (contract 9, 4.10, 4.11 rows 20 and 21; laws 1 and 8).

use std::sync::Arc;

use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::{ModelId, RunId, Subject, ToolName};
use countersign_approval_core::json::Exact;
use countersign_approval_core::review::IdlePolicy;
use countersign_driver::operation::{
    Claim, Claimed, MemoryOperationStore, OperationKey, OperationStore, Origin, StoreError, conformance,
    fingerprint,
};
use countersign_protocol::request::{ApplicationTool, Approvals, Message, OnDeny, Retry, Role, RunRequest};

use crate::support::request;

mod runs;
mod spy;

fn claim(key: &str, request: &RunRequest) -> Claim {
    Claim {
        key: OperationKey::of(&Subject::local(), key),
        fingerprint: fingerprint(request).unwrap(),
        origin: Origin {
            run_id: RunId::parse("7b0f6c0e-4b0c-4a64-9d0c-0f5c5d0b6a11").unwrap(),
            provider: request.provider.clone(),
            model: request.model.clone(),
            claimed_at: Timestamp::from_millis(0),
        },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_store_conforms() {
    conformance::check(Arc::new(MemoryOperationStore::default())).await;
}

#[tokio::test]
async fn the_memory_store_conforms_on_one_thread() {
    conformance::check(Arc::new(MemoryOperationStore::default())).await;
}

// Contract 9: 1,000 entries by default, one more is refused, nothing is evicted.
#[tokio::test]
async fn a_full_memory_store_refuses_and_forgets_nothing() {
    let store = MemoryOperationStore::default();
    let claim = |n: usize| claim(&format!("k{n}"), &request());
    for n in 0..1_000 {
        assert!(matches!(store.claim(claim(n)).await, Ok(Claimed::New(_))), "{n}");
    }
    assert!(matches!(store.claim(claim(1_000)).await, Err(StoreError::Full)));
    assert!(matches!(store.claim(claim(0)).await, Ok(Claimed::Uncertain(_))));
    assert!(matches!(MemoryOperationStore::new(0).claim(claim(0)).await, Err(StoreError::Full)));
}

// Contract 9: SHA-256 of JSON `[subject,key]`, made by `printf '["ann","k-1"]' | sha256sum`.
#[test]
fn a_key_belongs_to_a_subject() {
    let key = |subject: &str, key: &str| OperationKey::of(&Subject::parse(subject).unwrap(), key);
    let hex: String = key("ann", "k-1").as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "563cbc80295100c8e2f347f4a4221aece5b47e9ebb2d1fbdd94212b0fc94498f");
    assert_ne!(key("ann", "k-1"), key("bob", "k-1"));
    assert_ne!(key("ann", "k-1"), key("ann", "k-2"));
    // No subject can be made to look like another one with its key.
    assert_ne!(key("ann\",\"k", "1"), key("ann", "k\",\"1"));
}

// Contract 9: the order of keys does not matter, and neither does an integer's spelling.
#[test]
fn the_fingerprint_is_of_the_meaning() {
    let read = |text: &str| fingerprint(&RunRequest::decode(text).unwrap()).unwrap();
    let first = read(
        r#"{"provider":"p","model":"m","input":"\u0041","maxSteps":8,"idempotencyKey":"k","metadata":{"a":"1","b":"2"},
            "approvals":{"mode":"interactive","idlePolicy":"pause"}}"#,
    );
    let second = read(
        r#"{"approvals":{"idlePolicy":"pause","mode":"interactive"},"metadata":{"b":"2","a":"1"},"idempotencyKey":"k",
            "maxSteps":8.0,"input":"A","model":"m","provider":"p","tools":[],"history":[]}"#,
    );
    assert_eq!(first, second);
    // A label that exact JSON refuses is no reason to fail.
    assert_ne!(read(r#"{"provider":"p","model":"m","input":"A","metadata":{"__proto__":"1"}}"#), first);
}

// Contract 9: any other change is a different request.
#[test]
fn every_member_is_part_of_the_fingerprint() {
    let base = RunRequest { idempotency_key: Some("k".into()), ..request() };
    let tool = |name: &str| ToolName::parse(name).unwrap();
    let retry = Retry { max_attempts: 2, base_delay_ms: None, max_delay_ms: None };
    let message = Message { role: Role::User, content: "Before".into() };
    let asking = |change: fn(&mut Approvals)| {
        let mut approvals = Approvals::new(IdlePolicy::Pause);
        change(&mut approvals);
        RunRequest { approvals: Some(approvals), ..base.clone() }
    };
    let application_tool = |name: &str, schema: &str| ApplicationTool::new(name, "Picks.", schema).unwrap();
    let changed = [
        RunRequest { model: ModelId::parse("other").unwrap(), ..base.clone() },
        RunRequest { input: "Hello ".into(), ..base.clone() },
        RunRequest { instructions: Some("Be brief.".into()), ..base.clone() },
        RunRequest { history: vec![message], ..base.clone() },
        RunRequest { tools: vec![tool("lookup"), tool("write")], ..base.clone() },
        RunRequest { tools: vec![tool("write")], ..base.clone() },
        RunRequest { required_capabilities: vec!["tools".into()], ..base.clone() },
        RunRequest { max_steps: Some(8), ..base.clone() },
        RunRequest { max_output_tokens: Some(4096), ..base.clone() },
        RunRequest { idle_timeout_ms: Some(0), ..base.clone() },
        RunRequest { output_schema: Some(Exact::parse("{}").unwrap()), ..base.clone() },
        RunRequest { output_schema: Some(Exact::parse(r#"{"a":1}"#).unwrap()), ..base.clone() },
        RunRequest { metadata: [("a".into(), "1".into())].into(), ..base.clone() },
        RunRequest { idempotency_key: Some("K".into()), ..base.clone() },
        RunRequest { retry: Some(retry), ..base.clone() },
        RunRequest { approvals: Some(Approvals::new(IdlePolicy::Pause)), ..base.clone() },
        RunRequest { approvals: Some(Approvals::new(IdlePolicy::Continue)), ..base.clone() },
        asking(|approvals| approvals.digest = Some(true)),
        asking(|approvals| approvals.on_deny = Some(OnDeny::Continue)),
        RunRequest { application_tools: vec![application_tool("pick", "{}")], ..base.clone() },
        RunRequest { application_tools: vec![application_tool("choose", "{}")], ..base.clone() },
        RunRequest {
            application_tools: vec![application_tool("pick", r#"{"type":"object"}"#)],
            ..base.clone()
        },
    ];
    let mut seen = vec![fingerprint(&base).unwrap()];
    for request in changed {
        let digest = fingerprint(&request).unwrap();
        assert!(!seen.contains(&digest), "{request:?}");
        seen.push(digest);
    }
}
