//! What an application reports about an execution that it was asked for (contract 7.6).
//!
//! ```
//! use countersign_protocol::tool_execution::{ExecutionEnd, ExecutionResult};
//!
//! let text = r#"{"executionId":"e","runId":"r","callId":"c","output":{"found":[1,2.50]}}"#;
//! let result = ExecutionResult::parse(text)?;
//! let ExecutionEnd::Output(output) = &result.end else { panic!() };
//! assert_eq!(output.text(), r#"{"found":[1,2.50]}"#);
//! assert!(ExecutionResult::parse(r#"{"executionId":"e","runId":"r","callId":"c"}"#).is_err());
//! # Ok::<(), countersign_protocol::tool_execution::InvalidExecution>(())
//! ```

use countersign_approval_core::ids::CallId;
use countersign_approval_core::json::{Document, Exact, Gate, Node, RefusedKind};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::code::{Code, ErrorInfo};
use crate::event::ToolExecution;

/// The most bytes that an output may have as compact JSON (contract 7.6). It is less than a host tool's bound, so that
/// a report fits into a request whatever a client escapes.
pub const MAX_REPORTED_BYTES: usize = 128_000;

/// The only word that `error` may hold in a result.
const FAILED: &str = "APPLICATION_TOOL_FAILED";

/// Which execution a report is about: the body of `POST /v1/tool-executions/progress`. Each id has 1 to 256 UTF-16
/// units. It carries neither subject nor grants (law 4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionIdentity {
    /// The execution, as the caller wrote it.
    pub execution_id: String,
    /// The run that the caller believes it belongs to.
    pub run_id: String,
    /// The call that the caller executed.
    pub call_id: String,
}

/// How an execution ended: the body of `POST /v1/tool-executions/results`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionResult {
    /// Which execution.
    pub identity: ExecutionIdentity,
    /// How it ended.
    pub end: ExecutionEnd,
}

/// How an execution ended, as the application says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutionEnd {
    /// It has this output, any JSON.
    Output(Exact),
    /// It failed; nobody can tell whether it had an effect (law 8).
    Failed,
}

/// That a report was taken (contract 7.6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionReceipt {
    /// The execution.
    pub execution_id: String,
    /// Its run.
    pub run_id: String,
    /// Its call.
    pub call_id: String,
    /// What was taken.
    pub status: ReportStatus,
}

/// What a host took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportStatus {
    /// That work goes on.
    Progress,
    /// How it ended.
    Accepted,
}

/// Why a body is not a report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidExecution {
    /// It cannot be read at all, or not in one way only: `INVALID_REQUEST`.
    #[error("{0}")]
    Unreadable(String),
    /// JSON, but not a report, or not one that can be carried exactly: `INVALID_TOOL_EXECUTION`.
    #[error("{0}")]
    Shape(String),
}

impl InvalidExecution {
    /// The code that a client sees.
    pub const fn code(&self) -> Code {
        match self {
            Self::Unreadable(_) => Code::INVALID_REQUEST,
            Self::Shape(_) => Code::INVALID_TOOL_EXECUTION,
        }
    }
}

impl From<&InvalidExecution> for ErrorInfo {
    fn from(error: &InvalidExecution) -> Self {
        Self::new(error.code()).with_message(error.to_string())
    }
}

impl ExecutionIdentity {
    /// The identity of an execution that was asked for.
    pub fn of(execution: &ToolExecution) -> Self {
        Self {
            execution_id: execution.execution_id.to_string(),
            run_id: execution.run_id.to_string(),
            call_id: execution.call.id.as_str().to_owned(),
        }
    }

    /// Reads a body, strictly.
    ///
    /// # Errors
    /// [`InvalidExecution`].
    pub fn parse(body: &str) -> Result<Self, InvalidExecution> {
        let document = document(body)?;
        Self::read(document.root(), &[])
    }

    /// The receipt that echoes this identity.
    pub fn receipt(&self, status: ReportStatus) -> ExecutionReceipt {
        let Self { execution_id, run_id, call_id } = self.clone();
        ExecutionReceipt { execution_id, run_id, call_id, status }
    }

    /// The three ids, beside the members in `more` and no other.
    fn read(root: Node<'_>, more: &[&str]) -> Result<Self, InvalidExecution> {
        const IDS: [&str; 3] = ["executionId", "runId", "callId"];
        let Some(mut members) = root.as_object() else { return shape("expected an object") };
        if members.any(|(name, _)| !IDS.contains(&&*name) && !more.contains(&&*name)) {
            let names: Vec<_> = IDS.iter().chain(more).copied().collect();
            return shape(format!("a member that a report does not have; it has only {}", names.join(", ")));
        }
        let id = |name: &str| match root.get(name).and_then(|node| node.as_str()) {
            // Every id of the contract's section 7.6 has the bound of a call's.
            Some(id) if CallId::parse(&id).is_ok() => Ok(id.into_owned()),
            _ => shape(format!("{name}: expected text of 1 to 256 characters (UTF-16 units)")),
        };
        Ok(Self { execution_id: id("executionId")?, run_id: id("runId")?, call_id: id("callId")? })
    }
}

impl ExecutionResult {
    /// An execution that has this output.
    pub fn output(execution: &ToolExecution, output: Exact) -> Self {
        Self { identity: ExecutionIdentity::of(execution), end: ExecutionEnd::Output(output) }
    }

    /// An execution that failed.
    pub fn failed(execution: &ToolExecution) -> Self {
        Self { identity: ExecutionIdentity::of(execution), end: ExecutionEnd::Failed }
    }

    /// Reads a body, strictly: an output or the one error, not both. An output that cannot be carried as it was sent is
    /// refused (contract 4.6). Its size is not looked at; the host does that once it knows who reports.
    ///
    /// # Errors
    /// [`InvalidExecution`].
    pub fn parse(body: &str) -> Result<Self, InvalidExecution> {
        let document = document(body)?;
        let root = document.root();
        let identity = ExecutionIdentity::read(root, &["output", "error"])?;
        let end = match (root.get("output"), root.get("error")) {
            (Some(output), None) => match output.to_exact(Gate::OUTPUT) {
                Ok(output) => ExecutionEnd::Output(output),
                Err(refused) => return shape(refused.to_string()),
            },
            (None, Some(error)) if error.as_str().is_some_and(|code| code == FAILED) => ExecutionEnd::Failed,
            (None, Some(_)) => return shape(format!("error: expected \"{FAILED}\"")),
            (Some(_), Some(_)) | (None, None) => return shape("expected either output or error"),
        };
        Ok(Self { identity, end })
    }
}

/// Identity, then `output` as its text is, or `error`.
impl Serialize for ExecutionResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("executionId", &self.identity.execution_id)?;
        map.serialize_entry("runId", &self.identity.run_id)?;
        map.serialize_entry("callId", &self.identity.call_id)?;
        match &self.end {
            ExecutionEnd::Output(output) => map.serialize_entry("output", output)?,
            ExecutionEnd::Failed => map.serialize_entry("error", FAILED)?,
        }
        map.end()
    }
}

fn document(body: &str) -> Result<Document<'_>, InvalidExecution> {
    Document::parse(body).map_err(|refused| match refused.kind() {
        // What a report holds may be nested too deep for the envelope: that is the report's fault.
        RefusedKind::TooDeep => InvalidExecution::Shape(refused.to_string()),
        _ => InvalidExecution::Unreadable(refused.to_string()),
    })
}

fn shape<T>(message: impl Into<String>) -> Result<T, InvalidExecution> {
    Err(InvalidExecution::Shape(message.into()))
}
