//! Names and numbers of the protocol that both sides must spell alike (contract 1), and what a host says about itself.

use serde::{Deserialize, Serialize};

/// The protocol's name (contract 1.6).
pub const PROTOCOL: &str = "agenticdriver";
/// Name and major version, as `GET /health` says it (contract 1.1).
pub const PROTOCOL_ID: &str = "agenticdriver.v1";
/// The only version (contract 1.5).
pub const VERSION: &str = "1.0";

/// Request and response header with the protocol version (contract 1.3, 1.5). Lower case, as HTTP libraries want it.
pub const VERSION_HEADER: &str = "agenticdriver-version";
/// The same name as it is written in CORS answers (contract 1.4).
pub const VERSION_HEADER_DISPLAY: &str = "AgenticDriver-Version";
/// Request header: whether the client skips event types that it does not know (contract 1.5).
pub const OPTIONAL_EVENTS_HEADER: &str = "agenticdriver-accept-optional-events";
/// The same name as it is written in CORS answers (contract 1.4).
pub const OPTIONAL_EVENTS_HEADER_DISPLAY: &str = "AgenticDriver-Accept-Optional-Events";

/// `GET`: is the host alive (contract 1.1).
pub const HEALTH_PATH: &str = "/health";
/// `GET`: [`ProtocolInfo`].
pub const PROTOCOL_PATH: &str = "/v1/protocol";
/// `GET`: the provider catalog.
pub const PROVIDERS_PATH: &str = "/v1/providers";
/// `GET`: the provider catalog, probed anew.
pub const PROVIDERS_REFRESH_PATH: &str = "/v1/providers?refresh=true";
/// `POST`: a run.
pub const RUNS_PATH: &str = "/v1/runs";
/// `POST`: the decision of one review.
pub const DECISIONS_PATH: &str = "/v1/approvals/decisions";
/// `POST`: an application says that it works on an execution (contract 7.6).
pub const TOOL_PROGRESS_PATH: &str = "/v1/tool-executions/progress";
/// `POST`: an application says how an execution ended (contract 7.6).
pub const TOOL_RESULTS_PATH: &str = "/v1/tool-executions/results";
/// `POST`: the decision of a batch (design 6).
pub const BATCH_DECISIONS_PATH: &str = "/v1/approvals/batches/decisions";
/// `POST`: what a batch decision would run (design 6).
pub const BATCH_PREVIEW_PATH: &str = "/v1/approvals/batches/preview";

/// Content type of JSON answers (contract 1.3).
pub const JSON_CONTENT_TYPE: &str = "application/json; charset=utf-8";
/// Content type of event streams (contract 1.3).
pub const SSE_CONTENT_TYPE: &str = "text/event-stream; charset=utf-8";
/// A run streams if its `Accept` header contains this (contract 1.8).
pub const SSE_MEDIA_TYPE: &str = "text/event-stream";

/// The most bytes of a request body (contract 1.2, step 12).
pub const MAX_BODY_BYTES: usize = 1_000_000;
/// The most bytes of one server-sent frame, line ends not counted (contract 10.2).
pub const MAX_FRAME_BYTES: usize = 2_000_000;
/// The most bytes of a JSON answer that a client reads (contract 10.2).
pub const MAX_RESPONSE_BYTES: usize = 2_000_000;
/// The most bytes of an error answer; existing clients read no more (contract 5.1).
pub const MAX_ERROR_BYTES: usize = 64_000;
/// The most bytes of a tool's output in compact form (contract 7.4).
pub const MAX_OUTPUT_BYTES: usize = 1_000_000;
/// Milliseconds between heartbeat comments on an open stream (contract 1.8).
pub const HEARTBEAT_MS: u64 = 15_000;

/// Feature names of `GET /v1/protocol` (contract 1.6, design 4).
pub mod feature {
    /// Buffered runs.
    pub const JSON_RESULTS: &str = "json-results";
    /// Tools that the application executes; only where the driver has them switched on.
    pub const APPLICATION_TOOLS: &str = "application-tools";
    /// Reviews by a person; only where the driver has them switched on.
    pub const INTERACTIVE_APPROVALS: &str = "interactive-approvals";
    /// Streaming runs.
    pub const EVENT_STREAM: &str = "event-stream";
    /// A client that hangs up cancels its run.
    pub const CANCEL_ON_DISCONNECT: &str = "cancel-on-disconnect";
    /// `idleTimeoutMs` may be left out.
    pub const OPTIONAL_IDLE_TIMEOUT: &str = "optional-idle-timeout";
    /// `requiredCapabilities` is checked.
    pub const REQUIRED_CAPABILITIES: &str = "required-capabilities";
    /// The optional-events header is honoured.
    pub const OPTIONAL_EVENTS: &str = "optional-events";
    /// Providers are probed.
    pub const PROVIDER_DISCOVERY: &str = "provider-discovery";
    /// `idempotencyKey`; only where there is an operation store.
    pub const IDEMPOTENCY: &str = "idempotency";
    /// `approvals.digest` (design 4).
    pub const APPROVAL_DIGEST: &str = "approval-digest";
    /// `approvals.onDeny` (design 4).
    pub const DENIAL_FEEDBACK: &str = "denial-feedback";
    /// `approvals.batch` (design 4 and 6).
    pub const BATCH_APPROVALS: &str = "batch-approvals";
}

/// What a host says about itself: `GET /v1/protocol` (contract 1.6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProtocolInfo {
    /// The protocol's name: [`PROTOCOL`].
    pub protocol: String,
    /// The version of this answer: [`VERSION`].
    pub version: String,
    /// Every version that the host speaks.
    pub supported_versions: Vec<String>,
    /// A set of feature names, see [`feature`].
    pub features: Vec<String>,
}

impl ProtocolInfo {
    /// Version 1.0 with these features.
    pub fn new(features: Vec<String>) -> Self {
        Self {
            protocol: PROTOCOL.to_owned(),
            version: VERSION.to_owned(),
            supported_versions: vec![VERSION.to_owned()],
            features,
        }
    }
}
