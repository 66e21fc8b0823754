//! The core of Countersign: what is bound, who may decide, and what must be recorded before anything happens.
//!
//! Everything here is pure: no I/O, no clock, no randomness, no locks, no async runtime. Time, ids and callers are
//! arguments, and effects are steps that the caller takes between two calls.
//!
//! Start at [`registry::Registry`], the state machine of pending approvals; [`snapshot::Snapshot`] is what a person
//! reviews and what executes; [`json::Exact`] is the gate that every argument passes; [`audit::AuditSink`] is the
//! trait to implement for an audit store of your own.
//!
//! ```
//! use std::time::Duration;
//! use countersign_approval_core::clock::{Now, Timestamp};
//! use countersign_approval_core::decision::DecisionRequest;
//! use countersign_approval_core::grants::Principal;
//! use countersign_approval_core::ids::{ApprovalId, CallId, ProviderId, RunId, Subject, ToolName};
//! use countersign_approval_core::json::Exact;
//! use countersign_approval_core::registry::{Limits, NewReview, Registry, Verdict, Waiter};
//! use countersign_approval_core::review::{Decision, IdlePolicy, Outcome};
//! use countersign_approval_core::snapshot::{Snapshot, ToolCall};
//!
//! struct Run;
//! impl Waiter for Run {
//!     fn is_aborted(&self) -> bool { false }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let now = Now { wall: Timestamp::from_millis(1_800_000_000_000), monotonic: Duration::ZERO };
//! let call = ToolCall {
//!     id: CallId::parse("call-1")?,
//!     name: ToolName::parse("transfer")?,
//!     arguments: Exact::parse(r#"{"to":"a","amount":100}"#)?,
//! };
//! let mut registry = Registry::new(Limits::default());
//! let opening = registry.open(now, ApprovalId::new(uuid::Uuid::from_u128(1)), NewReview {
//!     run_id: RunId::new(uuid::Uuid::from_u128(2)),
//!     subject: Subject::local(),
//!     provider: ProviderId::parse("mock")?,
//!     call: Snapshot::freeze(call)?,
//!     idle_policy: IdlePolicy::Pause,
//!     expires_after: None,
//! }, Run)?;
//! // … hand `opening.record()` to the sink; only then:
//! let approval = registry.opened(opening);
//!
//! let decision = DecisionRequest::of(&approval, Decision::Approve);
//! let Verdict::Settle(proposal) = registry.decide(now, &Principal::local(), &decision) else { panic!() };
//! // … hand `proposal.record()` to the sink; only then:
//! let settled = registry.commit(*proposal).ok_or("unknown proposal")?;
//! assert_eq!(settled.end?.outcome, Outcome::Approved);
//!
//! // An approval is used up by one decision: the second try finds nothing.
//! let Verdict::Refuse(refusal) = registry.decide(now, &Principal::local(), &decision) else { panic!() };
//! assert_eq!(refusal.error.code(), "APPROVAL_NOT_FOUND");
//! # Ok(()) }
//! ```

pub mod audit;
pub mod clock;
pub mod decision;
mod error;
pub mod grants;
pub mod ids;
pub mod json;
pub mod registry;
pub mod review;
pub mod snapshot;

pub use error::Error;
