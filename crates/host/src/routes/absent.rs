//! Endpoints of the protocol that this version does not serve, and their answers (contract 1.9).

use countersign_approval_core::json::Document;
use countersign_protocol::code::{Code, ErrorInfo};

/// An endpoint that is known and not served.
pub(crate) enum Absent {
    Sessions,
    Jobs,
    Retrieval,
}

impl Absent {
    pub(crate) fn at(path: &str) -> Option<Self> {
        Some(match path {
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
        if let Err(refused) = Document::parse(text) {
            return ErrorInfo::new(Code::INVALID_REQUEST).with_message(refused.to_string());
        }
        ErrorInfo::new(match self {
            Self::Sessions => Code::SESSIONS_UNAVAILABLE,
            Self::Jobs => Code::JOBS_UNAVAILABLE,
            Self::Retrieval => Code::FORBIDDEN,
        })
    }
}
