//! [`RunOutcome`]: how a run ended, with everything that it did.

use std::fmt;

use crate::console::Console;
use crate::ids::{CallId, RunId};
use crate::limits::Bound;
use crate::source::Position;
use crate::value::Json;

/// How a run ended. `Pending` comes with `collect`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunOutcome {
    /// The program returned, every call settled, every rejection was handled.
    Completed(Completed),
    /// The run ended otherwise.
    Failed(Failed),
}

/// A run that came to its end.
#[derive(Clone, Debug)]
pub struct Completed {
    /// The run.
    pub run_id: RunId,
    /// What the program returned; `null` if nothing.
    pub value: Json,
    /// What it printed.
    pub console: Console,
    /// Every call that it made.
    pub report: Vec<Row>,
}

/// A run that ended before its end.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The run.
    pub run_id: RunId,
    /// Why it ended.
    pub ending: Ending,
    /// A sentence for the agent.
    pub message: String,
    /// Where in the program, if that can be said.
    pub position: Option<Position>,
    /// What it printed until then.
    pub console: Console,
    /// Every call that it made, and what became of it.
    pub report: Vec<Row>,
}

impl RunOutcome {
    /// Every call of the run, in the order of `seq`.
    pub fn report(&self) -> &[Row] {
        match self {
            Self::Completed(it) => &it.report,
            Self::Failed(it) => &it.report,
        }
    }

    /// What the program printed.
    pub fn console(&self) -> &Console {
        match self {
            Self::Completed(it) => &it.console,
            Self::Failed(it) => &it.console,
        }
    }
}

/// Why a run failed. Decided by the engine and by us, never by an error's `name`, which a program can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The source is no program, or uses what is not offered. Nothing ran.
    Syntax,
    /// The program called a name that does not exist.
    UnknownFunction {
        /// The name.
        name: String,
        /// Functions of the run with similar names, the most similar first.
        nearest: Vec<String>,
    },
    /// A call that was not approved, uncaught.
    ApprovalRejected {
        /// The call.
        call_id: CallId,
        /// Its number.
        seq: u32,
        /// The function.
        function: String,
        /// Why.
        reason: Rejection,
    },
    /// An error of the program or of a function, uncaught or unhandled.
    Thrown {
        /// The error's name; `thrown value` for what is no error.
        name: String,
        /// The call that failed, if the error is its failure.
        call_id: Option<CallId>,
        /// The error's `cause`, its cause, and so on.
        causes: Vec<String>,
    },
    /// A limit was passed.
    LimitExceeded(Bound),
    /// The program waits for something that cannot happen.
    Stalled,
    /// A result that is too large or not exact JSON: of a function whose effect is real, or of the program.
    ResultRefused {
        /// The call; `None` for the program's own result.
        call_id: Option<CallId>,
    },
    /// The approval hook gave no decision. The call did not run.
    ApprovalHookFailed {
        /// The call that was asked about.
        call_id: CallId,
    },
    /// The caller cancelled the run.
    Cancelled,
    /// The program was run again, to tell it an answer, and did something else than before. Nothing ran.
    ReplayMismatch {
        /// The number of the call.
        seq: u32,
        /// The call of the first time; `None` if there was none.
        recorded: Option<MadeCall>,
        /// The call of the second time.
        attempted: Option<MadeCall>,
    },
    /// The engine or its worker failed, through no fault of the program. Nothing is run again by itself.
    WorkerLost,
}

impl Ending {
    /// The name of the ending (design 7, `kind`).
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Syntax => "Syntax",
            Self::UnknownFunction { .. } => "UnknownFunction",
            Self::ApprovalRejected { .. } => "ApprovalRejected",
            Self::Thrown { .. } => "Thrown",
            Self::LimitExceeded(_) => "LimitExceeded",
            Self::Stalled => "Stalled",
            Self::ResultRefused { .. } => "ResultRefused",
            Self::ApprovalHookFailed { .. } => "ApprovalHookFailed",
            Self::Cancelled => "Cancelled",
            Self::ReplayMismatch { .. } => "ReplayMismatch",
            Self::WorkerLost => "WorkerLost",
        }
    }
}

/// A call as a program made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeCall {
    /// The function.
    pub function: String,
    /// The input.
    pub input: Json,
}

/// Why a call was not approved, as the program sees it in `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rejection {
    /// The run's mode is `deny`.
    Denied,
    /// A person said no.
    Rejected,
    /// Nobody answered in time.
    Expired,
}

impl Rejection {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
        }
    }
}

/// One call of a run, and what became of it (sandbox spec R8.9).
#[derive(Clone, Debug)]
pub struct Row {
    /// The call.
    pub call_id: CallId,
    /// Its number in the run, from 1.
    pub seq: u32,
    /// The function.
    pub function: String,
    /// The input.
    pub input: Json,
    /// Where the program made the call.
    pub position: Option<Position>,
    /// What became of it.
    pub state: RowState,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowState {
    /// It ran and gave a value.
    Executed,
    /// It ran and failed. That does not prove that nothing happened.
    Failed {
        /// The failure's message.
        message: String,
    },
    /// It was not approved, and did not run.
    Rejected(Rejection),
    /// The run ended before it ran.
    Discarded,
    /// It was started, and nobody knows whether it happened (law 8).
    Uncertain,
}

impl RowState {
    /// The word for reports.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Failed { .. } => "failed",
            Self::Rejected(Rejection::Expired) => "expired",
            Self::Rejected(_) => "rejected",
            Self::Discarded => "discarded",
            Self::Uncertain => "uncertain",
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.ending.kind(), self.message)?;
        match self.position {
            Some(position) => write!(f, " (line {}, column {})", position.line, position.column),
            None => Ok(()),
        }
    }
}
