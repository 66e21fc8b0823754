//! The spans of a run: `run` ─► `step` ─► `call` ─► `review`, and what stands in them.
//!
//! Fields are `runId`, `subject`, `provider`, `step`, `callId`, `tool`, `approvalId`, `outcome` and `waitMs`; never a
//! prompt, an output, a credential or, unless the embedder asks for it with [`LogArguments::Shown`], an argument. What
//! a model can choose the spelling of (`callId`) is written with escapes, so that no line of a log is its own.
//!
//! `run` is of level `info`, so that every line that is logged in a run says which; the others are of level `debug`: they
//! cost memory for as long as a run waits.

use countersign_approval_core::ids::{ApprovalId, ProviderId, RunId, Subject};
use countersign_approval_core::snapshot::ToolCall;
use tracing::{Span, debug_span, field, info_span};

/// How much of a call's arguments is logged, in characters of their text.
const MAX_ARGUMENT_CHARS: usize = 1_000;

/// Whether the log holds the arguments of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogArguments {
    /// It does not.
    #[default]
    Hidden,
    /// One line of level `info` for each call, with at most 1,000 characters of its arguments, escaped.
    Shown,
}

pub(crate) fn run(run_id: RunId, subject: &Subject, provider: &ProviderId) -> Span {
    info_span!("run", runId = %run_id, subject = ?subject.as_str(), provider = %provider)
}

pub(crate) fn step(step: u32) -> Span {
    debug_span!("step", step)
}

pub(crate) fn call(step: &Span, call: &ToolCall) -> Span {
    // By context and not by name: where steps are filtered out the call belongs to the run.
    step.in_scope(|| debug_span!("call", callId = ?call.id.as_str(), tool = %call.name))
}

/// `outcome` and `waitMs` come with [`review_ended`].
pub(crate) fn review(approval: ApprovalId, call: &ToolCall) -> Span {
    debug_span!(
        "review",
        approvalId = %approval,
        tool = %call.name,
        outcome = field::Empty,
        waitMs = field::Empty
    )
}

pub(crate) fn review_ended(review: &Span, outcome: &'static str, wait_ms: u64) {
    review.record("outcome", outcome).record("waitMs", wait_ms);
    review.in_scope(|| tracing::debug!(outcome, waitMs = wait_ms, "a review ended"));
}

/// One line, if the log is to have it.
pub(crate) fn arguments(log: LogArguments, call: &ToolCall) {
    if log == LogArguments::Hidden {
        return;
    }
    let text = call.arguments.text();
    let end = text.char_indices().nth(MAX_ARGUMENT_CHARS).map_or(text.len(), |(end, _)| end);
    let (shown, omitted) = (&text[..end], text.len() - end);
    tracing::info!(callId = ?call.id.as_str(), tool = %call.name, arguments = ?shown, omittedBytes = omitted, "a call");
}
