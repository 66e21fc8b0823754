//! A memory store that shows what it is asked for, and fails or waits when it is told to.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use countersign_driver::operation::{
    Claim, Claimed, Ended, MemoryOperationStore, Operation, OperationStore, StoreError,
};
use tokio::sync::Semaphore;

#[derive(Default)]
pub(crate) struct Spy {
    memory: MemoryOperationStore,
    seen: Arc<Mutex<Seen>>,
    gate: Option<Arc<Semaphore>>,
}

#[derive(Default)]
struct Seen {
    /// The events that are durable, over all operations.
    events: Vec<String>,
    ends: Vec<Ended>,
    calls: usize,
    /// This call and all after it fail, counted from 0.
    fails_from: Option<usize>,
}

impl Spy {
    /// Claims wait until the gate has a permit for them.
    pub(crate) fn gated(gate: Arc<Semaphore>) -> Self {
        Self { gate: Some(gate), ..Self::default() }
    }

    pub(crate) fn fail_from(&self, call: usize) {
        self.seen.lock().unwrap().fails_from = Some(call);
    }

    pub(crate) fn recover(&self) {
        self.seen.lock().unwrap().fails_from = None;
    }

    pub(crate) fn calls(&self) -> usize {
        self.seen.lock().unwrap().calls
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.seen.lock().unwrap().events.clone()
    }

    /// The types of the durable events.
    pub(crate) fn types(&self) -> Vec<String> {
        let kind = |event: &String| {
            serde_json::from_str::<serde_json::Value>(event).unwrap()["type"].as_str().unwrap().to_owned()
        };
        self.events().iter().map(kind).collect()
    }

    pub(crate) fn ends(&self) -> Vec<Ended> {
        self.seen.lock().unwrap().ends.clone()
    }
}

fn take(seen: &Mutex<Seen>) -> Result<(), StoreError> {
    let mut seen = seen.lock().unwrap();
    let call = seen.calls;
    seen.calls += 1;
    match seen.fails_from {
        Some(from) if call >= from => Err(StoreError::Failed("private: disk /dev/secret".into())),
        _ => Ok(()),
    }
}

#[async_trait]
impl OperationStore for Spy {
    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        if let Some(gate) = &self.gate {
            gate.acquire().await.unwrap().forget();
        }
        take(&self.seen)?;
        Ok(match self.memory.claim(claim).await? {
            Claimed::New(operation) => {
                Claimed::New(Box::new(SpiedOperation { operation, seen: Arc::clone(&self.seen) }))
            }
            other => other,
        })
    }
}

struct SpiedOperation {
    operation: Box<dyn Operation>,
    seen: Arc<Mutex<Seen>>,
}

#[async_trait]
impl Operation for SpiedOperation {
    async fn append(&mut self, events: Vec<String>) -> Result<(), StoreError> {
        take(&self.seen)?;
        self.operation.append(events.clone()).await?;
        self.seen.lock().unwrap().events.extend(events);
        Ok(())
    }

    async fn finish(self: Box<Self>, ended: Ended, events: Vec<String>) -> Result<(), StoreError> {
        take(&self.seen)?;
        self.operation.finish(ended, events.clone()).await?;
        let mut seen = self.seen.lock().unwrap();
        seen.events.extend(events);
        seen.ends.push(ended);
        Ok(())
    }
}

/// A store whose only answer is this log.
pub(crate) struct Answers(
    pub(crate) fn(countersign_driver::operation::Log) -> Claimed,
    pub(crate) Vec<&'static str>,
);

#[async_trait]
impl OperationStore for Answers {
    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        let events = self.1.iter().map(ToString::to_string).collect();
        Ok((self.0)(countersign_driver::operation::Log { origin: claim.origin, events }))
    }
}
