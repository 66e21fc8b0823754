//! The embedder's own check of a gated call, asked before any person is (contract 4.3).

use async_trait::async_trait;
use countersign_approval_core::ids::{ProviderId, RunId, Subject};
use countersign_approval_core::snapshot::ToolCall;
use countersign_protocol::code::ErrorInfo;

/// Decides by rule whether a gated call may go on. Where the request selected reviews, a person decides after it;
/// where it did not, an allowed call runs. A refusal cannot be overridden by a person.
#[async_trait]
pub trait Approve: Send + Sync {
    /// The idle clock keeps running meanwhile.
    ///
    /// # Errors
    /// The run fails with this error, and the call does not run.
    async fn approve(&self, call: &ToolCall, context: &ApproveContext) -> Result<Permission, ErrorInfo>;
}

/// What an [`Approve`] answers. There is no third word and no truthiness (scenario O3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// The call may go on.
    Allow,
    /// The run fails with `APPROVAL_REQUIRED`.
    Refuse,
}

/// What an [`Approve`] is told about the run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApproveContext {
    /// The run.
    pub run_id: RunId,
    /// Who started it.
    pub subject: Subject,
    /// Its provider.
    pub provider: ProviderId,
}
