//! The endpoints (contract 1.1): which method and path is which, and what each answers.

mod absent;
mod catalog;
mod decisions;
mod executions;
mod runs;

use std::sync::Arc;

use countersign_approval_core::grants::Principal;
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::version;
use http::Method;
use serde_json::json;

use crate::discovery::Freshness;
use crate::respond::{self, Answer};
use crate::service::Shared;

pub(crate) use absent::Absent;
pub(crate) use decisions::decide;
pub(crate) use executions::{progress, result};
pub(crate) use runs::run;

/// `GET /health`: no credential, no version.
pub(crate) fn health() -> Answer {
    respond::ok(&json!({"status": "ok", "protocol": version::PROTOCOL_ID}))
}

/// Endpoints that are answered before the body is looked at (contract 1.2, step 8).
pub(crate) enum Read {
    Protocol,
    Providers(Freshness),
    /// Management and connections: nobody has the grant, as this version does not serve them (contract 1.9).
    Management,
}

impl Read {
    pub(crate) fn at(method: &Method, path: &str) -> Option<Self> {
        Some(match (method, path) {
            (&Method::GET, version::PROTOCOL_PATH) => Self::Protocol,
            (&Method::GET, version::PROVIDERS_PATH) => Self::Providers(Freshness::Remembered),
            (&Method::GET, version::PROVIDERS_REFRESH_PATH) => Self::Providers(Freshness::Refreshed),
            (&Method::GET, "/v1/management" | "/v1/management/connections")
            | (
                &Method::POST,
                "/v1/management/providers"
                | "/v1/management/setup"
                | "/v1/management/runtimes"
                | "/v1/management/invitations"
                | "/v1/management/connections/revoke",
            ) => Self::Management,
            _ => return None,
        })
    }

    pub(crate) async fn answer(
        &self,
        shared: &Arc<Shared>,
        principal: &Principal,
    ) -> Result<Answer, ErrorInfo> {
        match self {
            Self::Protocol => Ok(respond::ok_text(shared.protocol.clone())),
            Self::Providers(freshness) => Ok(catalog::providers(shared, &principal.grants, *freshness).await),
            Self::Management => Err(ErrorInfo::new(Code::FORBIDDEN)),
        }
    }
}

/// Endpoints that take a body.
pub(crate) enum Write {
    Run,
    Decision,
    ToolProgress,
    ToolResult,
    Absent(Absent),
}

impl Write {
    pub(crate) fn at(method: &Method, path: &str) -> Option<Self> {
        if method != Method::POST {
            return None;
        }
        match path {
            version::RUNS_PATH => Some(Self::Run),
            version::DECISIONS_PATH => Some(Self::Decision),
            version::TOOL_PROGRESS_PATH => Some(Self::ToolProgress),
            version::TOOL_RESULTS_PATH => Some(Self::ToolResult),
            _ => Absent::at(path).map(Self::Absent),
        }
    }
}
