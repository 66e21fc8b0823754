//! [`Approval`]: what happens when a program calls a marked function.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::function::BoxFuture;
use crate::ids::{CallId, RunId};
use crate::source::Position;
use crate::value::Json;

/// The approval option of a run. `collect` is not built yet.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Approval {
    /// The call throws `ApprovalRejected` into the program without running (sandbox spec 10).
    #[default]
    Deny,
    /// One decision for each call; the run waits, and its clocks stand still (sandbox spec 9).
    Pause(Pause),
}

impl Approval {
    /// [`Approval::Pause`] without expiry. Closures `|request| async { … }` are hooks.
    ///
    /// ```
    /// use countersign_sandbox_js::{Answer, Approval, ApprovalRequest, Config, Function, Output, RunOptions, RunOutcome, Sandbox};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let sandbox = Sandbox::new(Config::default())?;
    /// let delete = Function::new("delete_file", |_, _| async { Ok(Output::null()) }).requires_approval();
    /// let mut options = RunOptions::new("return await delete_file({ path: '/tmp/a' })", vec![delete]);
    /// options.approval = Approval::pause(|request: ApprovalRequest| async move {
    ///     // Here a person would be asked, for as long as it takes.
    ///     let harmless = request.input.text().contains("/tmp/");
    ///     Ok(if harmless { Answer::Approve } else { Answer::Reject { reason: None } })
    /// });
    /// assert!(matches!(sandbox.run(options).await?, RunOutcome::Completed(_)));
    /// # Ok(()) }
    /// ```
    pub fn pause(on_approval: impl OnApproval) -> Self {
        Self::Pause(Pause { on_approval: Arc::new(on_approval), expires_after: None })
    }
}

impl fmt::Debug for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deny => f.write_str("Deny"),
            Self::Pause(pause) => f.debug_tuple("Pause").field(&pause.expires_after).finish(),
        }
    }
}

/// How a run asks.
#[derive(Clone)]
pub struct Pause {
    /// Asks a person. It is called for one call at a time, in the order in which the calls were made.
    pub on_approval: Arc<dyn OnApproval>,
    /// How long each question stays open; no limit if `None`. An expired call is told to the program as
    /// `ApprovalRejected` with the reason `expired`, never as a person's refusal.
    pub expires_after: Option<Duration>,
}

/// Puts one call before a person.
pub trait OnApproval: Send + Sync + 'static {
    /// Asks. An error, or a panic, means that nobody decided: the call does not run and the run ends with
    /// [`ApprovalHookFailed`](crate::Ending::ApprovalHookFailed), because it is no person's refusal that the program
    /// could take for one.
    fn ask(&self, request: ApprovalRequest) -> BoxFuture<Result<Answer, HookError>>;
}

impl<F, R> OnApproval for F
where
    F: Fn(ApprovalRequest) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Answer, HookError>> + Send + 'static,
{
    fn ask(&self, request: ApprovalRequest) -> BoxFuture<Result<Answer, HookError>> {
        Box::pin(self(request))
    }
}

/// A call that waits for a decision. What executes after an approval is the run's own copy, not this one.
#[derive(Clone, Debug)]
pub struct ApprovalRequest {
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub call_id: CallId,
    /// The number of the call in the run, from 1, unmarked calls included.
    pub seq: u32,
    /// The function's name.
    pub function: String,
    /// The input.
    pub input: Json,
    /// Where the program made the call.
    pub position: Option<Position>,
    /// Fires when the question is void: the run was cancelled, or it expired. A late answer is ignored.
    pub cancellation: CancellationToken,
}

/// A person's answer. Closed: whatever is not one of these must not be mistaken for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call runs, and its value goes to the program.
    Approve,
    /// The call throws `ApprovalRejected` where it was made.
    Reject {
        /// Told to the program; at most 2,000 characters (UTF-16 units).
        reason: Option<String>,
    },
}

/// Why a hook could not get an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HookError(pub String);

/// Units of UTF-16 in a reason (design 8).
pub(crate) const MAX_REASON: usize = 2_000;
