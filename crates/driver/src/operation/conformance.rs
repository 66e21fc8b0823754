//! What every [`OperationStore`] must do, as a suite for the tests of an implementation (feature `conformance`).
//!
//! [`check`] is for every store, [`check_durable`] also for one that outlives its process. Both panic where a store
//! breaks a rule, with the rule as the message.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a suite for tests reports by panicking")]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::{ModelId, ProviderId, RunId, Subject};
use countersign_approval_core::json::Digest;

use super::{Claim, Claimed, Ended, Log, Operation, OperationKey, OperationStore, Origin};

const ALL_ENDS: [Ended; 4] = [Ended::Completed, Ended::Failed, Ended::Cancelled, Ended::Uncertain];

/// Checks one store; it must be empty and have room for 200 operations.
pub async fn check(store: Arc<dyn OperationStore>) {
    one_claim_is_new(&*store).await;
    a_key_belongs_to_one_request(&*store).await;
    every_end_is_told_for_ever(&*store).await;
    what_is_dropped_is_uncertain(&*store).await;
    logs_are_kept_apart_and_as_they_are(&*store).await;
    of_many_claims_at_once_one_is_new(&store).await;
    a_claim_that_is_given_up_does_not_run_for_ever(&*store).await;
    an_operation_may_end_elsewhere(&store).await;
}

/// Checks that a store knows after its end what it knew before. `open` opens the same data again; whatever it opened
/// before was dropped, with operations that were running.
pub async fn check_durable(mut open: impl AsyncFnMut() -> Arc<dyn OperationStore>) {
    let store = open().await;
    let mut expected = Vec::new();
    for (n, ended) in (0..).zip(ALL_ENDS) {
        let claim = Sample::new("durable").key(&format!("ended-{n}")).claim();
        let mut operation = new(&*store, &claim).await;
        operation.append(events(0..3)).await.unwrap();
        operation.finish(ended, events(3..5)).await.unwrap();
        expected.push((claim, ended, events(0..5)));
    }
    let untouched = Sample::new("durable").key("claimed").claim();
    let held = new(&*store, &untouched).await;
    expected.push((untouched, Ended::Uncertain, Vec::new()));
    let begun = Sample::new("durable").key("begun").claim();
    let mut open_operation = new(&*store, &begun).await;
    open_operation.append(events(0..2)).await.unwrap();
    expected.push((begun, Ended::Uncertain, events(0..2)));
    // Their process ends; the handles outlive the store, as a task's may.
    drop(store);
    drop((held, open_operation));

    for round in 0..3 {
        let store = open().await;
        for (claim, ended, events) in &expected {
            let log = told(&*store, claim, *ended).await;
            assert_eq!(log.events, *events, "opened again {round}: the log is what it was");
            assert_eq!(
                log.origin, claim.origin,
                "opened again {round}: the origin is that of the first claim"
            );
            let other = Claim { fingerprint: Digest::of("another request"), ..claim.clone() };
            assert!(
                matches!(store.claim(other).await.unwrap(), Claimed::Conflict),
                "a key keeps its request after a restart"
            );
        }
        let fresh = Sample::new("durable").key(&format!("fresh-{round}")).claim();
        let operation = new(&*store, &fresh).await;
        operation.finish(Ended::Completed, events(0..1)).await.unwrap();
        expected.push((fresh, Ended::Completed, events(0..1)));
    }
}

async fn one_claim_is_new(store: &dyn OperationStore) {
    let first = Sample::new("one");
    let operation = new(store, &first.claim()).await;
    for _ in 0..2 {
        let again = store.claim(first.run(7).claim()).await.unwrap();
        assert!(matches!(again, Claimed::InProgress), "a running operation is in progress: {again:?}");
    }
    for other in [first.key("two"), first.subject("somebody")] {
        drop(new(store, &other.claim()).await);
    }
    drop(operation);
}

async fn a_key_belongs_to_one_request(store: &dyn OperationStore) {
    let first = Sample::new("request");
    let other = Claim { fingerprint: Digest::of("another request"), ..first.claim() };
    let operation = new(store, &first.claim()).await;
    let told = store.claim(other.clone()).await.unwrap();
    assert!(matches!(told, Claimed::Conflict), "another request is a conflict while one runs: {told:?}");
    operation.finish(Ended::Completed, events(0..1)).await.unwrap();
    let told = store.claim(other.clone()).await.unwrap();
    assert!(matches!(told, Claimed::Conflict), "and afterwards: {told:?}");
    drop(new(store, &first.key("dropped").claim()).await);
    let told = store.claim(Claim { key: first.key("dropped").claim().key, ..other }).await.unwrap();
    assert!(matches!(told, Claimed::Conflict), "and for an uncertain one: {told:?}");
}

async fn every_end_is_told_for_ever(store: &dyn OperationStore) {
    for ended in ALL_ENDS {
        let claim = Sample::new("ends").key(ended.as_str()).claim();
        let mut operation = new(store, &claim).await;
        operation.append(events(0..1)).await.unwrap();
        operation.append(Vec::new()).await.unwrap();
        operation.append(events(1..4)).await.unwrap();
        operation.finish(ended, events(4..6)).await.unwrap();
        for run in 1..4 {
            // A later run's id is not taken over.
            let later = Sample::new("ends").key(ended.as_str()).run(run).claim();
            let log = told(store, &later, ended).await;
            assert_eq!(log.events, events(0..6), "the events are all there, in order");
            assert_eq!(log.origin, claim.origin, "the origin is that of the first claim");
        }
    }
}

async fn what_is_dropped_is_uncertain(store: &dyn OperationStore) {
    for count in [0, 1, 5] {
        let claim = Sample::new("dropped").key(&count.to_string()).claim();
        let mut operation = new(store, &claim).await;
        for n in 0..count {
            operation.append(events(n..n + 1)).await.unwrap();
        }
        drop(operation);
        let log = told(store, &claim, Ended::Uncertain).await;
        assert_eq!(log.events, events(0..count), "what was appended is kept");
    }
}

async fn logs_are_kept_apart_and_as_they_are(store: &dyn OperationStore) {
    let claims: Vec<Claim> = (0..4).map(|n| Sample::new("apart").key(&n.to_string()).claim()).collect();
    let mut operations = Vec::new();
    for claim in &claims {
        operations.push(new(store, claim).await);
    }
    // Not events: a store reads nothing into them.
    let odd = [
        "",
        "{}",
        "\u{0}",
        "'; DROP TABLE operation; --",
        "é\u{202e}😀\r\n",
        "\\u0000",
        &"x".repeat(300_000),
    ];
    let texts = |n: usize| -> Vec<String> { odd.iter().map(|text| format!("{n}{text}{n}")).collect() };
    for at in 0..odd.len() {
        for (n, operation) in operations.iter_mut().enumerate() {
            operation.append(vec![texts(n)[at].clone()]).await.unwrap();
        }
    }
    for (n, (operation, claim)) in operations.into_iter().zip(&claims).enumerate() {
        operation.finish(Ended::Failed, Vec::new()).await.unwrap();
        assert_eq!(told(store, claim, Ended::Failed).await.events, texts(n), "texts are kept as they are");
    }
}

async fn of_many_claims_at_once_one_is_new(store: &Arc<dyn OperationStore>) {
    for round in 0..8 {
        let mut tasks = tokio::task::JoinSet::new();
        for run in 0..8 {
            let (store, sample) =
                (Arc::clone(store), Sample::new("at once").key(&round.to_string()).run(run));
            tasks.spawn(async move { store.claim(sample.claim()).await.unwrap() });
        }
        let claimed = tasks.join_all().await;
        let new = claimed.iter().filter(|claimed| matches!(claimed, Claimed::New(_))).count();
        let waiting = claimed.iter().filter(|claimed| matches!(claimed, Claimed::InProgress)).count();
        assert_eq!((new, waiting), (1, 7), "one claim is new, the others see it in progress");
    }
}

/// A caller may go away at any point of its claim.
async fn a_claim_that_is_given_up_does_not_run_for_ever(store: &dyn OperationStore) {
    for polls in 0..3 {
        let claim = Sample::new("given up").key(&polls.to_string()).claim();
        {
            let mut claiming = pin!(store.claim(claim.clone()));
            for _ in 0..polls {
                if claiming.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
            }
        }
        // The store may need a moment to see that the caller has gone.
        for _ in 0..1_000 {
            match store.claim(claim.clone()).await.unwrap() {
                Claimed::New(_) => break,
                Claimed::Uncertain(log) => {
                    assert!(log.events.is_empty(), "nothing was appended to a claim that was given up");
                    break;
                }
                Claimed::InProgress => tokio::time::sleep(Duration::from_millis(1)).await,
                other => panic!("a claim whose caller has gone is {other:?}"),
            }
        }
        let after = store.claim(claim).await.unwrap();
        assert!(matches!(after, Claimed::Uncertain(_)), "a claim whose caller has gone ends: {after:?}");
    }
}

/// Handles move between tasks and threads.
async fn an_operation_may_end_elsewhere(store: &Arc<dyn OperationStore>) {
    let claim = Sample::new("elsewhere").claim();
    let mut operation = new(&**store, &claim).await;
    tokio::spawn(async move {
        operation.append(events(0..1)).await.unwrap();
        operation.finish(Ended::Cancelled, events(1..2)).await.unwrap();
    })
    .await
    .unwrap();
    assert_eq!(told(&**store, &claim, Ended::Cancelled).await.events, events(0..2));
}

async fn new(store: &dyn OperationStore, claim: &Claim) -> Box<dyn Operation> {
    match store.claim(claim.clone()).await.unwrap() {
        Claimed::New(operation) => operation,
        other => panic!("a key that nobody claimed is new, not {other:?}"),
    }
}

/// The log that a claim is answered with.
async fn told(store: &dyn OperationStore, claim: &Claim, ended: Ended) -> Log {
    match (ended, store.claim(claim.clone()).await.unwrap()) {
        (Ended::Completed | Ended::Failed | Ended::Cancelled, Claimed::Replay(log))
        | (Ended::Uncertain, Claimed::Uncertain(log)) => log,
        (_, other) => panic!("an operation that is {} is told so, not {other:?}", ended.as_str()),
    }
}

fn events(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|n| format!(r#"{{"type":"step.started","sequence":{}}}"#, n + 1)).collect()
}

/// A claim in the making.
#[derive(Clone)]
struct Sample {
    subject: String,
    key: String,
    run: u64,
}

impl Sample {
    fn new(test: &str) -> Self {
        Self { subject: format!("subject of {test}"), key: "key".into(), run: 0 }
    }

    fn key(&self, key: &str) -> Self {
        Self { key: key.into(), ..self.clone() }
    }

    fn subject(&self, subject: &str) -> Self {
        Self { subject: subject.into(), ..self.clone() }
    }

    fn run(&self, run: u64) -> Self {
        Self { run, ..self.clone() }
    }

    fn claim(&self) -> Claim {
        let id = uuid::Builder::from_random_bytes(u128::from(self.run).to_be_bytes()).into_uuid();
        Claim {
            key: OperationKey::of(&Subject::parse(&self.subject).unwrap(), &self.key),
            fingerprint: Digest::of("a request"),
            origin: Origin {
                run_id: RunId::new(id),
                provider: ProviderId::parse("mock").unwrap(),
                model: ModelId::parse("vendor/demo:1").unwrap(),
                claimed_at: Timestamp::from_millis(1_767_323_045_678 + self.run.cast_signed()),
            },
        }
    }
}
