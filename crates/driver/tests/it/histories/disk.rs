//! An operation store that fails once in a life, or takes its process with it.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use countersign_driver::operation::{
    Claim, Claimed, Ended, MemoryOperationStore, Operation, OperationStore, StoreError,
};
use futures_util::FutureExt;
use tokio::sync::Notify;

use super::Random;

/// What happens at one call of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// The process dies.
    Dies(Stored),
    /// The store says that it failed.
    Fails(Stored),
}

/// Whether the call that went wrong had its effect all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    Yes,
    No,
}

impl Fault {
    pub(super) fn random(random: &mut Random) -> Self {
        let stored = random.pick(&[Stored::Yes, Stored::No]);
        random.pick(&[Self::None, Self::Dies(stored), Self::Dies(stored), Self::Fails(stored)])
    }
}

/// What outlives the process.
#[derive(Default)]
pub(super) struct Disk {
    memory: MemoryOperationStore,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    plan: Mutex<Plan>,
    died: Notify,
}

#[derive(Default)]
struct Plan {
    fault: Option<Fault>,
    /// How many calls go well before.
    calls: u64,
    /// How long each takes, in milliseconds.
    slow: u64,
    /// What happened in all lives.
    happened: Vec<&'static str>,
}

impl Disk {
    /// A new life begins.
    pub(super) fn arm(&self, fault: Fault, calls: u64, slow: u64) {
        let mut plan = self.state.plan.lock().unwrap();
        plan.fault = (fault != Fault::None).then_some(fault);
        (plan.calls, plan.slow) = (calls, slow);
        // A death of the last life that nobody waited for any more.
        let _ = self.state.died.notified().now_or_never();
    }

    /// Waits for the death of the process.
    pub(super) async fn died(&self) {
        self.state.died.notified().await;
    }

    pub(super) fn faults(&self) -> Vec<&'static str> {
        self.state.plan.lock().unwrap().happened.clone()
    }
}

impl State {
    /// What this call comes to.
    async fn next(&self) -> Fault {
        let (fault, slow) = {
            let mut plan = self.plan.lock().unwrap();
            let due = plan.calls == 0;
            plan.calls = plan.calls.saturating_sub(1);
            let fault = if due { plan.fault.take() } else { None };
            let happened = match fault {
                None | Some(Fault::None) => None,
                Some(Fault::Dies(Stored::Yes)) => Some("died with it stored"),
                Some(Fault::Dies(Stored::No)) => Some("died"),
                Some(Fault::Fails(_)) => Some("the store failed"),
            };
            plan.happened.extend(happened);
            (fault.unwrap_or(Fault::None), plan.slow)
        };
        if slow > 0 {
            tokio::time::sleep(Duration::from_millis(slow)).await;
        }
        fault
    }

    /// Does a call, or what has become of it.
    async fn call<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let fault = self.next().await;
        let result = match fault {
            Fault::None => return call.await,
            Fault::Dies(Stored::Yes) | Fault::Fails(Stored::Yes) => Some(call.await),
            Fault::Dies(Stored::No) | Fault::Fails(Stored::No) => None,
        };
        if let Fault::Dies(_) = fault {
            self.died.notify_one();
            pending::<()>().await;
        }
        drop(result);
        Err(StoreError::Failed("private: the disk is gone".into()))
    }
}

#[async_trait]
impl OperationStore for Disk {
    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        let state = Arc::clone(&self.state);
        Ok(match self.state.call(self.memory.claim(claim)).await? {
            Claimed::New(operation) => Claimed::New(Box::new(OnDisk { operation, state })),
            other => other,
        })
    }
}

struct OnDisk {
    operation: Box<dyn Operation>,
    state: Arc<State>,
}

#[async_trait]
impl Operation for OnDisk {
    async fn append(&mut self, events: Vec<String>) -> Result<(), StoreError> {
        self.state.call(self.operation.append(events)).await
    }

    async fn finish(self: Box<Self>, ended: Ended, events: Vec<String>) -> Result<(), StoreError> {
        let Self { operation, state } = *self;
        state.call(operation.finish(ended, events)).await
    }
}
