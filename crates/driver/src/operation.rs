//! Operations: runs with an idempotency key, and the store that remembers them (contract 9, 4.10; design 4).
//!
//! A key belongs to a subject. The first request with it is claimed, then runs, and every event that a client can
//! rely on is in the store before anybody sees it. A later request with the same key runs nothing: it is told what
//! the first one's log says, or that this cannot be known (law 8).
//!
//! Start at [`OperationStore`], the trait to implement for a store of your own; `conformance` (a feature) checks it.
//! [`MemoryOperationStore`] forgets when the process ends; `countersign_store::sqlite::Operations` does not.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use countersign_approval_core::audit::BoxError;
use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::{ModelId, ProviderId, RunId, Subject};
use countersign_approval_core::json::{
    Digest, ENVELOPE_DEPTH, Exact, Gate, MAX_DEPTH, Numbers, canonical_string,
};
use countersign_protocol::request::RunRequest;

#[cfg(feature = "conformance")]
pub mod conformance;
pub(crate) mod journal;
mod memory;
pub(crate) mod operate;
mod replay;

pub use memory::{DEFAULT_MAX_ENTRIES, MemoryOperationStore};

/// The most bytes of one operation's log, unless [`OperationSettings`] say otherwise (contract 9).
pub const DEFAULT_MAX_RECORD_BYTES: u64 = 8_000_000;

/// Idempotency keys are honoured if a driver has these (contract 9, feature `idempotency`).
#[derive(Clone)]
pub struct OperationSettings {
    /// What remembers the operations.
    pub store: Arc<dyn OperationStore>,
    /// `maxRecordBytes`: the most bytes of one operation's log, at least 1. An operation that needs more fails with
    /// `OPERATION_RECORD_LIMIT`, and is uncertain.
    pub max_record_bytes: u64,
}

impl OperationSettings {
    /// This store with the default bound.
    pub fn new(store: Arc<dyn OperationStore>) -> Self {
        Self { store, max_record_bytes: DEFAULT_MAX_RECORD_BYTES }
    }
}

impl fmt::Debug for OperationSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationSettings")
            .field("max_record_bytes", &self.max_record_bytes)
            .finish_non_exhaustive()
    }
}

/// Remembers operations. Shared by all runs of a process; no other process writes the same data.
///
/// An operation is *running* from its claim until it is finished. A running one whose [`Operation`] was dropped, or
/// whose process ended, is *uncertain*, for nobody knows what it did after its last event.
#[async_trait]
pub trait OperationStore: Send + Sync {
    /// Claims a key, or says what is known of it. Of any number of claims of one key exactly one is
    /// [`Claimed::New`], for ever: nothing is evicted. The claim is durable when this returns.
    ///
    /// A caller who drops this future may have claimed the key; it is then uncertain.
    ///
    /// # Errors
    /// [`StoreError::Full`] if there is no room for another operation, and nothing was claimed;
    /// [`StoreError::Failed`] if it cannot be known whether it was.
    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError>;
}

/// A running operation, in the hands of its run. Dropping it makes the operation uncertain.
#[async_trait]
pub trait Operation: Send + Sync {
    /// Appends events to the log: in this order, all or none. They are durable when this returns.
    ///
    /// # Errors
    /// [`StoreError`]: nothing is known of whether they are stored. Nothing may be appended afterwards.
    async fn append(&mut self, events: Vec<String>) -> Result<(), StoreError>;

    /// Appends the last events and ends the operation, both or neither. Durable when this returns.
    ///
    /// # Errors
    /// [`StoreError`]: the operation is uncertain, unless this was stored all the same.
    async fn finish(self: Box<Self>, ended: Ended, events: Vec<String>) -> Result<(), StoreError>;
}

/// Under what an operation is stored: SHA-256 of the JSON array `[subject,key]` (contract 9). Different subjects are
/// independent; all tokens of one subject share its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationKey(Digest);

impl OperationKey {
    /// The key `key` of a subject.
    pub fn of(subject: &Subject, key: &str) -> Self {
        let mut text = String::from("[");
        canonical_string(subject.as_str(), &mut text);
        text.push(',');
        canonical_string(key, &mut text);
        text.push(']');
        Self(Digest::of(text))
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

/// What tells one request from another: SHA-256 of its canonical JSON, key included (contract 9). Members that are
/// absent, and lists and objects that are empty, are not part of it; the order of members does not matter.
///
/// # Errors
/// serde_json's, if the request has no JSON form. A request that was read from JSON has one.
pub fn fingerprint(request: &RunRequest) -> Result<Digest, serde_json::Error> {
    const WHOLE: Gate = Gate { max_depth: MAX_DEPTH + ENVELOPE_DEPTH, numbers: Numbers::AsWritten };
    let text = serde_json::to_string(request)?;
    Ok(match Exact::parse_with(&text, WHOLE) {
        Ok(exact) => exact.digest(),
        // A label `__proto__` is fine in metadata and not in exact JSON. Our own text has one order all the same.
        Err(_) => Digest::of(text),
    })
}

/// What is claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Whose key.
    pub key: OperationKey,
    /// What is asked for: [`fingerprint`].
    pub fingerprint: Digest,
    /// What the operation will be if the key is new.
    pub origin: Origin,
}

/// What is known of an operation before its first event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Its run.
    pub run_id: RunId,
    /// The provider asked for.
    pub provider: ProviderId,
    /// The model asked for.
    pub model: ModelId,
    /// When it was claimed.
    pub claimed_at: Timestamp,
}

/// What a store says of a key. A request with another fingerprint is a conflict whatever the state.
pub enum Claimed {
    /// The key was new, and is claimed now.
    New(Box<dyn Operation>),
    /// The same request is running in this process.
    InProgress,
    /// The same request ran and was finished as completed, failed or cancelled.
    Replay(Log),
    /// The key stands for another request.
    Conflict,
    /// The same request began, and nobody knows how it ended.
    Uncertain(Log),
}

impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New(_) => f.write_str("New"),
            Self::InProgress => f.write_str("InProgress"),
            Self::Replay(log) => f.debug_tuple("Replay").field(log).finish(),
            Self::Conflict => f.write_str("Conflict"),
            Self::Uncertain(log) => f.debug_tuple("Uncertain").field(log).finish(),
        }
    }
}

/// What is stored of an operation. The events are JSON as on the wire, without `run.progress` and with text merged; a
/// store keeps them as they are.
#[derive(Clone, PartialEq, Eq)]
pub struct Log {
    /// From the claim.
    pub origin: Origin,
    /// The events, in order.
    pub events: Vec<String>,
}

/// Shows no event: they hold arguments and answers.
impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("origin", &self.origin).field("events", &self.events.len()).finish()
    }
}

/// How an operation ended. Closed: it is what replays are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// The last event is `run.completed`.
    Completed,
    /// The last event is `run.failed`.
    Failed,
    /// The last event is `run.cancelled`.
    Cancelled,
    /// There is no last event: nobody knows (law 8).
    Uncertain,
}

impl Ended {
    /// The contract's word for the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Uncertain => "uncertain",
        }
    }
}

/// A store did not do what it was asked for. The cause is for the log, never for a client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no room. Nothing was changed.
    #[error("the operation store is full")]
    Full,
    /// Anything else. What is stored is not known.
    #[error("the operation store failed")]
    Failed(#[source] BoxError),
}
