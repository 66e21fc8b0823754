//! Endpoints of the protocol that this version does not serve, and their answers (contract 1.9).

use countersign_approval_core::json::{Document, Gate, Node};
use countersign_protocol::code::{Code, ErrorInfo};

/// The most characters of an id (contract 7.6).
const MAX_ID_UNITS: usize = 256;

/// An endpoint that is known and not served.
pub(crate) enum Absent {
    ToolProgress,
    ToolResult,
    Sessions,
    Jobs,
    Retrieval,
}

impl Absent {
    pub(crate) fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/tool-executions/progress" => Self::ToolProgress,
            "/v1/tool-executions/results" => Self::ToolResult,
            "/v1/sessions/create" | "/v1/sessions/read" | "/v1/sessions/delete" => Self::Sessions,
            "/v1/jobs/submit" | "/v1/jobs/read" | "/v1/jobs/cancel" | "/v1/jobs/events" => Self::Jobs,
            "/v1/retrieval/search"
            | "/v1/retrieval/index"
            | "/v1/retrieval/delete"
            | "/v1/retrieval/ingest" => Self::Retrieval,
            _ => return None,
        })
    }

    /// What the endpoint says of this body.
    pub(crate) fn answer(&self, text: &str) -> ErrorInfo {
        let body = match Document::parse(text) {
            Ok(body) => body,
            Err(refused) => return ErrorInfo::new(Code::INVALID_REQUEST).with_message(refused.to_string()),
        };
        ErrorInfo::new(match self {
            Self::ToolProgress if !is_identity(body.root(), &[]) => Code::INVALID_TOOL_EXECUTION,
            Self::ToolResult if !is_result(body.root()) => Code::INVALID_TOOL_EXECUTION,
            Self::ToolProgress | Self::ToolResult => Code::TOOL_EXECUTION_NOT_FOUND,
            Self::Sessions => Code::SESSIONS_UNAVAILABLE,
            Self::Jobs => Code::JOBS_UNAVAILABLE,
            Self::Retrieval => Code::FORBIDDEN,
        })
    }
}

/// `{executionId, runId, callId}` and the members in `more`, nothing else (contract 7.6).
fn is_identity(body: Node<'_>, more: &[&str]) -> bool {
    const IDS: [&str; 3] = ["executionId", "runId", "callId"];
    let is_id = |node: Node<'_>| {
        node.as_str().is_some_and(|id| !id.is_empty() && id.encode_utf16().count() <= MAX_ID_UNITS)
    };
    let Some(mut members) = body.as_object() else { return false };
    members.all(|(key, _)| IDS.contains(&&*key) || more.contains(&&*key))
        && IDS.iter().all(|key| body.get(key).is_some_and(is_id))
}

/// An identity with an output or the one error, not both (contract 7.6).
fn is_result(body: Node<'_>) -> bool {
    is_identity(body, &["output", "error"])
        && match (body.get("output"), body.get("error")) {
            // An output that cannot be carried as it was sent is refused too (contract 4.6).
            (Some(output), None) => output.to_exact(Gate::OUTPUT).is_ok(),
            (None, Some(error)) => error.as_str().is_some_and(|code| code == "APPLICATION_TOOL_FAILED"),
            _ => false,
        }
}
