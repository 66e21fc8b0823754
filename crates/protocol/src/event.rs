//! Events of a run (contract 3, design 4).

use std::sync::Arc;

use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::{CallId, ExecutionId, ModelId, ProviderId, RunId};
use countersign_approval_core::json::{Digest, Exact};
use countersign_approval_core::review::{ApprovalRequest, Resolution};
use countersign_approval_core::snapshot::ToolCall;
use serde::{Deserialize, Serialize};

use crate::code::ErrorInfo;
use crate::error::EventError;
use crate::stream::Expectation;

mod decode;
mod encode;

pub use crate::result::{FinishReason, RunResult, Usage};

/// One event of a run: the envelope of contract 3.1 and what it says.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The run; the same in all events of a stream.
    pub run_id: RunId,
    /// 1, 2, 3 and so on within a stream.
    pub sequence: u64,
    /// When it happened.
    pub timestamp: Timestamp,
    /// What happened.
    pub body: EventBody,
}

/// What happened (contract 3.1). Closed: clients refuse an event type that they do not know.
#[derive(Debug, Clone, PartialEq)]
pub enum EventBody {
    /// `run.started`: the run was accepted. Always first, exactly once.
    RunStarted {
        /// The request's provider.
        provider: ProviderId,
        /// The request's model.
        model: ModelId,
    },
    /// `step.started`: the model is called.
    StepStarted {
        /// Which model call, from 1.
        step: u32,
    },
    /// `text.delta`: the model wrote text.
    TextDelta {
        /// The piece of text.
        text: String,
    },
    /// `run.progress`: something moves, at most once a second.
    RunProgress {
        /// What moves.
        phase: Phase,
    },
    /// `usage.reported`: the provider reported the usage of a step.
    UsageReported {
        /// Which model call, from 1.
        step: u32,
        /// The step's usage.
        usage: Usage,
    },
    /// `tool.called`: the model proposes a call. Nothing was executed.
    ToolCalled {
        /// The proposed call.
        call: ToolCall,
    },
    /// `approval.requested`: a person is asked.
    ApprovalRequested {
        /// The question.
        approval: Arc<ApprovalRequest>,
        /// The call's digest, written as `approval.digest` (design 4, feature `approval-digest`).
        digest: Option<Digest>,
    },
    /// `approval.resolved`: the review ended.
    ApprovalResolved {
        /// How it ended.
        resolution: Resolution,
    },
    /// `tool.execution.requested`: the application is to execute the call, once (contract 7.6).
    ToolExecutionRequested {
        /// What to execute.
        execution: ToolExecution,
    },
    /// `tool.completed`: the call's output is confirmed.
    ToolCompleted {
        /// Which call.
        call_id: CallId,
        /// Its output, taken through [`countersign_approval_core::json::Gate::OUTPUT`].
        output: Exact,
    },
    /// `run.completed`: terminal.
    RunCompleted {
        /// The result.
        result: Box<RunResult>,
    },
    /// `run.failed`: terminal.
    RunFailed {
        /// Why.
        error: ErrorInfo,
    },
    /// `run.cancelled`: terminal; the run was aborted, by its idle limit too (contract 5.5).
    RunCancelled {
        /// Why.
        error: ErrorInfo,
    },
}

/// A call that the application executes, and what to report it under (contract 7.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolExecution {
    /// The execution: new for every call.
    pub execution_id: ExecutionId,
    /// The run; the event's own.
    pub run_id: RunId,
    /// What to execute, with exactly the arguments that were proposed and reviewed.
    pub call: ToolCall,
}

/// What moves in `run.progress` (contract 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The model.
    Model,
    /// A tool.
    Tool,
    /// The collection of context.
    Context,
}

/// What one frame of a stream holds for a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoded {
    /// An event that this version knows.
    Event(Event),
    /// An event of an unknown type that says it may be skipped (contract 1.5). It takes a sequence number.
    Skipped(Skipped),
}

/// The envelope of an event that was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The run.
    pub run_id: RunId,
    /// Its place in the stream.
    pub sequence: u64,
    /// When it happened.
    pub timestamp: Timestamp,
}

impl Event {
    /// The type on the wire, such as `run.started`.
    pub const fn type_name(&self) -> &'static str {
        self.body.type_name()
    }

    /// Whether the stream ends with this event (contract 3.1).
    pub const fn is_terminal(&self) -> bool {
        self.body.is_terminal()
    }

    /// The event as one line of JSON; arguments and outputs stand in it as their text is.
    pub fn to_json(&self) -> String {
        let mut out = Vec::with_capacity(256);
        self.write_json(&mut out);
        // What is written is JSON from strings, so it is UTF-8.
        String::from_utf8(out).unwrap_or_default()
    }

    /// Appends the event as one line of JSON.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        encode::event(self, out);
    }

    /// Reads one event as a client (contract 10.2): its shape, and what it must have in common with the request.
    /// [`crate::stream::StreamCheck`] adds the rules between the events of a stream.
    ///
    /// # Errors
    /// [`EventError::Invalid`] for a broken event, [`EventError::Unsupported`] for one that was not negotiated.
    pub fn decode(data: &str, expect: &Expectation) -> Result<Decoded, EventError> {
        decode::event(data, expect)
    }
}

impl EventBody {
    /// The type on the wire, such as `run.started`.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::RunStarted { .. } => "run.started",
            Self::StepStarted { .. } => "step.started",
            Self::TextDelta { .. } => "text.delta",
            Self::RunProgress { .. } => "run.progress",
            Self::UsageReported { .. } => "usage.reported",
            Self::ToolCalled { .. } => "tool.called",
            Self::ApprovalRequested { .. } => "approval.requested",
            Self::ApprovalResolved { .. } => "approval.resolved",
            Self::ToolExecutionRequested { .. } => "tool.execution.requested",
            Self::ToolCompleted { .. } => "tool.completed",
            Self::RunCompleted { .. } => "run.completed",
            Self::RunFailed { .. } => "run.failed",
            Self::RunCancelled { .. } => "run.cancelled",
        }
    }

    /// Whether the stream ends with this event (contract 3.1).
    pub const fn is_terminal(&self) -> bool {
        matches!(self, Self::RunCompleted { .. } | Self::RunFailed { .. } | Self::RunCancelled { .. })
    }
}
