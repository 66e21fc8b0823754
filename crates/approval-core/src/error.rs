//! The errors of this crate, each with its wire code.

use crate::audit::BoxError;
use crate::snapshot::CallTooLarge;

/// Why a review was not opened, or a decision not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No approval with this id waits for this caller. Unknown, another subject's, decided, expired and ended
    /// are one answer (law 4).
    #[error("no approval with this id is waiting for a decision by this subject")]
    NotFound,
    /// The credential lacks the run's provider or the tool's approval grant.
    #[error("this token may not decide calls of this tool or provider")]
    Forbidden,
    /// The decision names another run or another call than the reviewed one.
    #[error("the decision differs from the reviewed call; send back exactly the call that was shown")]
    Mismatch,
    /// The decision does not have the contract's shape, or its arguments cannot be carried exactly.
    #[error("the decision is not valid: {0}")]
    InvalidDecision(String),
    /// Too many refused decisions by this subject.
    #[error("more than {limit} refused decisions in a minute; wait and try again")]
    RateLimited {
        /// `approvals.maxRejectedPerMinute`.
        limit: u32,
    },
    /// As many reviews are waiting as the host allows.
    #[error("{limit} approvals are waiting already, as many as this host allows")]
    Capacity {
        /// `approvals.maxPending`.
        limit: usize,
    },
    /// The call is too large for a review.
    #[error(transparent)]
    CallTooLarge(#[from] CallTooLarge),
    /// The audit sink did not accept the record, so nothing was done (law 2).
    #[error("the audit record was not accepted, so nothing was done")]
    AuditFailed(#[source] BoxError),
}

impl Error {
    /// The code that a client sees. Exhaustive: a new variant must choose one.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotFound => "APPROVAL_NOT_FOUND",
            Self::Forbidden => "FORBIDDEN",
            Self::Mismatch => "APPROVAL_MISMATCH",
            Self::InvalidDecision(_) => "INVALID_APPROVAL",
            Self::RateLimited { .. } => "RATE_LIMITED",
            Self::Capacity { .. } => "APPROVAL_CAPACITY",
            Self::CallTooLarge(_) => "INVALID_TOOL_CALL",
            Self::AuditFailed(_) => "APPROVAL_AUDIT_FAILED",
        }
    }
}
