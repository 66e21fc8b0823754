//! [`MemoryOperationStore`]: operations for as long as the process lives.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use countersign_approval_core::json::Digest;

use super::{Claim, Claimed, Ended, Log, Operation, OperationKey, OperationStore, StoreError};

/// How many operations a memory store holds by default (contract 9).
pub const DEFAULT_MAX_ENTRIES: usize = 1_000;

/// Keeps operations in memory, up to a number of them; nothing is evicted, as a forgotten key would run again. For
/// tests, and for hosts whose clients give up when the host ends.
pub struct MemoryOperationStore(Arc<Inner>);

struct Inner {
    max_entries: usize,
    records: Mutex<HashMap<OperationKey, Record>>,
}

struct Record {
    fingerprint: Digest,
    state: State,
    log: Log,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Ended(Ended),
}

impl MemoryOperationStore {
    /// A store for at most `max_entries` operations; one more is [`StoreError::Full`].
    pub fn new(max_entries: usize) -> Self {
        Self(Arc::new(Inner { max_entries, records: Mutex::default() }))
    }
}

impl Default for MemoryOperationStore {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_ENTRIES)
    }
}

impl fmt::Debug for MemoryOperationStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryOperationStore")
            .field("max_entries", &self.0.max_entries)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl OperationStore for MemoryOperationStore {
    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        let mut records = self.0.records();
        let full = records.len() >= self.0.max_entries;
        match records.get(&claim.key) {
            Some(record) if record.fingerprint != claim.fingerprint => Ok(Claimed::Conflict),
            Some(record) => Ok(match record.state {
                State::Running => Claimed::InProgress,
                State::Ended(Ended::Uncertain) => Claimed::Uncertain(record.log.clone()),
                State::Ended(Ended::Completed | Ended::Failed | Ended::Cancelled) => {
                    Claimed::Replay(record.log.clone())
                }
            }),
            None if full => Err(StoreError::Full),
            None => {
                let log = Log { origin: claim.origin, events: Vec::new() };
                let record = Record { fingerprint: claim.fingerprint, state: State::Running, log };
                records.insert(claim.key, record);
                Ok(Claimed::New(Box::new(Running { store: Arc::clone(&self.0), key: claim.key })))
            }
        }
    }
}

impl Inner {
    fn records(&self) -> MutexGuard<'_, HashMap<OperationKey, Record>> {
        // Nothing panics while a record is half changed.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An operation that is not finished yet.
struct Running {
    store: Arc<Inner>,
    key: OperationKey,
}

impl Running {
    fn change(&self, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.store.records().get_mut(&self.key) {
            change(record);
        }
    }
}

#[async_trait]
impl Operation for Running {
    async fn append(&mut self, events: Vec<String>) -> Result<(), StoreError> {
        self.change(|record| record.log.events.extend(events));
        Ok(())
    }

    async fn finish(self: Box<Self>, ended: Ended, events: Vec<String>) -> Result<(), StoreError> {
        self.change(|record| {
            record.log.events.extend(events);
            record.state = State::Ended(ended);
        });
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.change(|record| {
            if record.state == State::Running {
                record.state = State::Ended(Ended::Uncertain);
            }
        });
    }
}
