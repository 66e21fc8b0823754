//! What a client asks for: `POST /v1/runs` (contract 2, design 4).

use std::collections::BTreeMap;

use countersign_approval_core::ids::{ModelId, ProviderId, ToolName};
use countersign_approval_core::json::Exact;
use countersign_approval_core::review::IdlePolicy;
use serde::Serialize;

use crate::error::InvalidRequest;

mod decode;
mod read;

/// A request for a run. Bounds are those of the contract's section 2; [`RunRequest::decode`] enforces them.
///
/// ```
/// use countersign_protocol::request::RunRequest;
///
/// let request = RunRequest::decode(r#"{"provider":"p","model":"m","input":"Hello","maxSteps":8.0}"#)?;
/// assert_eq!(request.max_steps, Some(8));
/// let refused = RunRequest::decode(r#"{"provider":"p","model":"m","input":"Hello","maxSteps":65}"#);
/// assert_eq!(refused.unwrap_err().to_string(), "maxSteps: expected an integer from 1 to 64");
/// # Ok::<(), countersign_protocol::error::InvalidRequest>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRequest {
    /// The provider instance.
    pub provider: ProviderId,
    /// The model.
    pub model: ModelId,
    /// What the user says: 1 to 100,000 UTF-16 units.
    pub input: String,
    /// Instructions for the model, up to 100,000 UTF-16 units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Earlier turns, at most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Message>,
    /// The tools that the run may use, at most 32. Names given twice pass here: the contract's 2.1 refuses them only
    /// after the provider and the model were checked (step 11).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolName>,
    /// What the provider must be able to do, at most 32, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required_capabilities: Vec<String>,
    /// The most model steps, 1 to 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// The most output tokens of one model step, 1 to 65,536.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Milliseconds without progress after which the run is cancelled, up to 2^31-1; 0 means no limit of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<u32>,
    /// JSON Schema (draft-07, or 2020-12 by its `$schema`) of the answer: the result then has `output` (contract 7.2,
    /// 7.5). An object; the host judges the schema itself, and answers `INVALID_SCHEMA`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Exact>,
    /// Labels, at most 32, keys up to 80 and values up to 500 UTF-16 units. They are never authority.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Makes the run repeatable without repeating its effects (contract 9).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// How often the provider is asked again when it is busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Selects reviews by a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Approvals>,
    /// Tools that the application executes itself, at most 32 (contract 7.6); none is no member at all. Each must stand
    /// in `tools` too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub application_tools: Vec<ApplicationTool>,
    /// Members of the contract that were there and that this version does not serve, in the request's order. The
    /// driver answers them as contract 1.9 says.
    #[serde(skip)]
    pub unavailable: Vec<Unavailable>,
}

impl RunRequest {
    /// A request with nothing but the three required members.
    pub fn new(provider: ProviderId, model: ModelId, input: impl Into<String>) -> Self {
        Self {
            provider,
            model,
            input: input.into(),
            instructions: None,
            history: Vec::new(),
            tools: Vec::new(),
            required_capabilities: Vec::new(),
            max_steps: None,
            max_output_tokens: None,
            idle_timeout_ms: None,
            output_schema: None,
            metadata: BTreeMap::new(),
            idempotency_key: None,
            retry: None,
            approvals: None,
            application_tools: Vec::new(),
            unavailable: Vec::new(),
        }
    }

    /// Reads a request body: strict at every level, null nowhere (contract 2). The text has no byte order mark; see
    /// [`crate::body_text`].
    ///
    /// # Errors
    /// [`InvalidRequest`] with the first offending member and the rule it breaks.
    pub fn decode(text: &str) -> Result<Self, InvalidRequest> {
        decode::request(text)
    }
}

/// An earlier turn of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Who spoke.
    pub role: Role,
    /// What was said, up to 100,000 UTF-16 units.
    pub content: String,
}

/// Who spoke in an earlier turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person or application.
    User,
    /// The model.
    Assistant,
}

/// How often a busy provider is asked again (contract 2, section 11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// Attempts in all, 1 to 5.
    pub max_attempts: u32,
    /// Milliseconds before the second attempt, up to 60,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_delay_ms: Option<u32>,
    /// The longest wait in milliseconds, up to 60,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay_ms: Option<u32>,
}

/// The choice of reviews by a person (contract 2 and 4, design 4). On the wire it has `mode: "interactive"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "mode", rename = "interactive", rename_all = "camelCase")]
pub struct Approvals {
    /// What the idle clock does while a person decides.
    pub idle_policy: IdlePolicy,
    /// Milliseconds after which a review expires, 1 to 2^31-1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_after_ms: Option<u32>,
    /// Asks for the call's digest in `approval.requested` (feature `approval-digest`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<bool>,
    /// What a denial does to the run (feature `denial-feedback`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_deny: Option<OnDeny>,
    /// Asks for one card with many rows from a program (feature `batch-approvals`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<bool>,
}

impl Approvals {
    /// Reviews with this idle policy and nothing else.
    pub const fn new(idle_policy: IdlePolicy) -> Self {
        Self { idle_policy, expires_after_ms: None, digest: None, on_deny: None, batch: None }
    }
}

/// A tool that the application executes, as a request defines it (contract 7.6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationTool {
    /// The name that the model calls.
    pub name: ToolName,
    /// What it does, for the model: 1 to 10,000 UTF-16 units.
    pub description: String,
    /// JSON Schema of the arguments, an object; draft-07 unless `$schema` says 2020-12 (contract 7.5).
    pub input_schema: Exact,
    /// JSON Schema of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Exact>,
    /// Whether each call is reviewed. The host or the token's grant may ask for a review that this does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires_approval: Option<bool>,
}

/// The most bytes that one definition may have as compact JSON (contract 2.1, row 12).
pub const MAX_DEFINITION_BYTES: usize = 128_000;

impl ApplicationTool {
    /// A tool of which only the host or a grant asks for reviews.
    ///
    /// # Errors
    /// [`InvalidRequest`] if a part breaks the contract's rules; whether a schema is one, the host says.
    pub fn new(
        name: &str,
        description: impl Into<String>,
        input_schema: &str,
    ) -> Result<Self, InvalidRequest> {
        decode::application_tool(name, description.into(), input_schema)
    }

    /// The same tool with a schema of its output.
    ///
    /// # Errors
    /// [`InvalidRequest`] if it is not the text of a JSON object.
    pub fn with_output_schema(self, schema: &str) -> Result<Self, InvalidRequest> {
        Ok(Self { output_schema: Some(decode::schema_text(schema)?), ..self })
    }

    /// The same tool with every call reviewed (`requiresApproval: true`).
    #[must_use]
    pub fn requires_approval(self) -> Self {
        Self { requires_approval: Some(true), ..self }
    }

    /// The bytes of the definition as compact JSON, however it was spelled.
    pub fn compact_len(&self) -> usize {
        // Strings and flags as serde_json writes them, and the schemas in canonical form, which is as long as compact.
        let quoted = |text: &str| serde_json::to_string(text).map_or(usize::MAX, |json| json.len());
        let member = |name: &str, value: usize| value.saturating_add(name.len() + r#""":,"#.len());
        let schema = |schema: &Exact| schema.canonical_len();
        [
            member("name", quoted(self.name.as_str())),
            member("description", quoted(&self.description)),
            member("inputSchema", schema(&self.input_schema)),
            self.output_schema.as_ref().map_or(0, |given| member("outputSchema", schema(given))),
            self.requires_approval.map_or(0, |flag| member("requiresApproval", flag.to_string().len())),
        ]
        .into_iter()
        // Two brackets, and one comma less than there are members.
        .fold(1, usize::saturating_add)
    }
}

/// What a denied or expired review does to its run (design 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDeny {
    /// The run fails: the contract's behaviour.
    Fail,
    /// The model is told, and the run goes on.
    Continue,
}

/// A member of the contract that this version does not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unavailable {
    /// `session`
    Session,
    /// `retrieval`
    Retrieval,
    /// `attachments`, if not empty
    Attachments,
    /// `outputArtifact`
    OutputArtifact,
}
