//! The question put to a person and how it ended (contract 4.2).

use serde::{Deserialize, Serialize, Serializer};

use crate::clock::Timestamp;
use crate::ids::{ApprovalId, CallId, RunId};
use crate::snapshot::Snapshot;

/// What the run's idle clock does while a person decides (contract 4.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdlePolicy {
    /// The clock stops; a full interval starts when the review is approved.
    Pause,
    /// The clock goes on, and the wait is not progress.
    Continue,
}

/// The question: `approval` in `approval.requested`. Members in wire order; `digest` is the snapshot's and is not
/// written here (design 4, feature `approval-digest`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequest {
    /// What a decision names.
    pub approval_id: ApprovalId,
    /// The run that waits.
    pub run_id: RunId,
    /// The frozen call.
    #[serde(serialize_with = "call_only")]
    pub call: Snapshot,
    /// When the review was created.
    pub requested_at: Timestamp,
    /// What the request chose.
    pub idle_policy: IdlePolicy,
    /// When the review expires, if the request set `expiresAfterMs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

fn call_only<S: Serializer>(snapshot: &Snapshot, serializer: S) -> Result<S::Ok, S::Error> {
    snapshot.call().serialize(serializer)
}

/// What a person answers. Closed: a fourth answer would change what the protocol means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Run exactly this call, once.
    Approve,
    /// Do not run it; the run fails.
    Deny,
    /// Do not run it; the run is cancelled.
    Cancel,
}

impl Decision {
    /// How a review ends that gets this answer.
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Approve => Outcome::Approved,
            Self::Deny => Outcome::Denied,
            Self::Cancel => Outcome::Cancelled,
        }
    }
}

/// How a review ended. Closed, as clients refuse any other word (contract 10.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// A person allowed the call.
    Approved,
    /// A person refused it.
    Denied,
    /// A person, or the end of the run, withdrew it.
    Cancelled,
    /// Nobody answered in time.
    Expired,
}

/// `resolution` in `approval.resolved`, and the receipt of a decision. It acknowledges the decision; it does not
/// say that anything was executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resolution {
    /// The review.
    pub approval_id: ApprovalId,
    /// Its run.
    pub run_id: RunId,
    /// The reviewed call's id.
    pub call_id: CallId,
    /// How it ended.
    pub outcome: Outcome,
    /// When it was settled.
    pub decided_at: Timestamp,
}
