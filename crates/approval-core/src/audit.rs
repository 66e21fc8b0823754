//! Audit records and the sink that must accept them before anything takes effect (law 2, contract 4.8, design 4).

use std::error::Error as StdError;
use std::sync::Arc;

use serde::Serialize;

use crate::clock::Timestamp;
use crate::ids::{ApprovalId, CallId, ProviderId, RunId, Subject};
use crate::json::Digest;
use crate::review::{ApprovalRequest, Resolution};

/// A private cause. It goes to the log of the host, never to a client.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// One fact about a review. Members are in the order in which they are written.
///
/// Records are read by whoever audits the system, so the enum may grow: readers must bear unknown kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum AuditRecord {
    /// A question is about to be put to a person.
    #[serde(rename = "approval.requested")]
    Requested {
        /// The subject of the run.
        subject: Subject,
        /// The run's provider.
        provider: ProviderId,
        /// The question with the whole reviewed call.
        approval: Arc<ApprovalRequest>,
        /// Digest of the reviewed call.
        digest: Digest,
    },
    /// A review ended; written before the end takes effect.
    #[serde(rename = "approval.resolved")]
    Resolved {
        /// The subject of the run.
        subject: Subject,
        /// The run's provider.
        provider: ProviderId,
        /// The question with the whole reviewed call.
        approval: Arc<ApprovalRequest>,
        /// Digest of the reviewed call.
        digest: Digest,
        /// How it ended.
        resolution: Resolution,
        /// What the person gave as the reason, if the decision had one (design 4, feature `denial-feedback`).
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Box<str>>,
    },
    /// A decision was refused.
    #[serde(rename = "approval.rejected")]
    Rejected {
        /// The subject of the caller.
        subject: Subject,
        /// The approval that the caller named, if it was text of at most 256 characters.
        #[serde(skip_serializing_if = "Option::is_none")]
        approval_id: Option<Box<str>>,
        /// The run that the caller named, likewise.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<Box<str>>,
        /// The wire code of the refusal.
        code: &'static str,
    },
    /// A gated call is about to run; written before the tool is called (design 4).
    #[serde(rename = "execution.started")]
    ExecutionStarted(Execution),
    /// A gated call ended, or it cannot be known whether it did.
    #[serde(rename = "execution.finished")]
    ExecutionFinished {
        /// Which execution.
        #[serde(flatten)]
        execution: Execution,
        /// How it ended.
        outcome: ExecutionOutcome,
    },
    /// Written when an audit trail is opened again: this review was open when its process ended, so nobody can
    /// decide it any more (design 7).
    #[serde(rename = "approval.abandoned")]
    Abandoned {
        /// The review.
        approval_id: ApprovalId,
        /// Its run.
        run_id: RunId,
    },
    /// Written when an audit trail is opened again and its last line was torn (design 7).
    #[serde(rename = "recovered")]
    Recovered {
        /// How many bytes were moved away.
        torn_bytes: u64,
        /// The name of the file that holds them.
        moved_to: Box<str>,
    },
}

/// Which gated call an execution record speaks of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    /// The subject of the run.
    pub subject: Subject,
    /// The run's provider.
    pub provider: ProviderId,
    /// The run.
    pub run_id: RunId,
    /// The approval that allowed it; absent where the embedder's callback allowed it without a review.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// The call.
    pub call_id: CallId,
    /// Digest of the executed call: the same as in the review's records.
    pub digest: Digest,
    /// When this was written.
    pub at: Timestamp,
}

/// How a gated execution ended, as far as it can be known (law 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutionOutcome {
    /// The tool returned an output that was accepted.
    Completed,
    /// The run ended between this call's `execution.started` and the call: the tool was not invoked.
    NotStarted,
    /// The tool was invoked and its effect cannot be known.
    Uncertain,
}

/// Where audit records go. Implement it for your own store; this crate alone suffices.
///
/// # Contract
/// [`AuditSink::record`] returns `Ok` only once the record is as durable as the application needs: the decision
/// takes effect right after. `Err` or a panic fails closed, with `APPROVAL_AUDIT_FAILED`, and the cause stays in
/// the host's log. Calls may come from several threads at once. Records of one review come in their order.
///
/// It is synchronous, so that it cannot be forgotten: a sink that hands the work to a task and returns has
/// accepted nothing. An `async` function does not fit:
///
/// ```compile_fail
/// use countersign_approval_core::audit::{AuditRecord, AuditSink, BoxError};
/// struct Careless;
/// impl AuditSink for Careless {
///     async fn record(&self, _record: &AuditRecord) -> Result<(), BoxError> { Ok(()) }
/// }
/// ```
pub trait AuditSink: Send + Sync {
    /// Accepts the record or refuses it.
    ///
    /// # Errors
    /// Any error refuses the record, and with it the step that it stands for.
    fn record(&self, record: &AuditRecord) -> Result<(), BoxError>;

    /// Whether `record` waits for something slow, such as a disk. If so it is called on a pool of threads for
    /// blocking work, where several calls may share one wait.
    fn blocking(&self) -> bool {
        false
    }
}
