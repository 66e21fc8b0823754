//! Model providers: one call of [`Provider::turn`] is one model step (contract 7.2, 11).

use std::time::Duration;

use async_trait::async_trait;
use countersign_approval_core::audit::BoxError;
use countersign_approval_core::ids::{CallId, ModelId, ToolName};
use countersign_approval_core::json::Exact;
use countersign_approval_core::snapshot::ToolCall;
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::event::{FinishReason, Usage};
use countersign_protocol::provider_info::{HealthStatus, ProviderInfo};

/// A source of model turns. Shared by all runs.
#[async_trait]
pub trait Provider: Send + Sync {
    /// What `GET /v1/providers` shows; its `id` is the instance that requests name.
    fn info(&self) -> &ProviderInfo;

    /// Runs one model turn. Dropping the future must stop the model at once and close its connection.
    ///
    /// Text that arrives in pieces goes to `sink` as it arrives and is also in the returned turn. Argument text
    /// must be returned exactly as the model wrote it: concatenated, never parsed and printed again.
    ///
    /// # Errors
    /// [`ProviderError`] with a code of contract 11; the run fails with it.
    async fn turn(&self, request: TurnRequest<'_>, sink: &dyn TurnSink) -> Result<Turn, ProviderError>;

    /// Asks the vendor how it is and what models it has, for `GET /v1/providers` (contract 1.7). It must cost nothing, as
    /// every token that may use the provider can have it asked, and dropping the future must stop it. The default is for a
    /// provider that cannot be asked: none.
    async fn discover(&self) -> Option<Discovery> {
        None
    }
}

/// What a vendor says when it is asked how it is. None of its text is the vendor's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovery {
    /// How it is, in one word.
    pub status: HealthStatus,
    /// A code for programs, not empty.
    pub code: Code,
    /// One sentence for people.
    pub message: String,
    /// The models that it lists; none if it did not list them.
    pub models: Option<ListedModels>,
}

/// The models that a vendor lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModels {
    /// Those that a request can name. Who shows them shows at most 1,000 (contract 1.7).
    pub models: Vec<ModelId>,
    /// Whether the vendor listed no more.
    pub complete: bool,
}

/// Takes what a model says while it speaks.
pub trait TurnSink: Send + Sync {
    /// A piece of text; an empty one is not progress.
    fn text(&self, piece: &str);

    /// Something else arrived (reasoning, a fragment of a call): restarts the idle clock.
    fn progress(&self);
}

/// What the model is asked.
#[derive(Debug, Clone, Copy)]
pub struct TurnRequest<'a> {
    /// The model.
    pub model: &'a ModelId,
    /// The system's instructions.
    pub instructions: Option<&'a str>,
    /// History, the user's input, and what happened in this run, oldest first.
    pub messages: &'a [Message],
    /// The tools that the run selected.
    pub tools: &'a [ToolDefinition],
    /// The bound on the answer's length.
    pub max_output_tokens: u32,
    /// Whether a busy vendor may be asked again.
    pub retry: RetryPolicy,
}

/// How often a turn may be sent while the vendor answers that it is busy (contract 2 and 11). Only before anything of an
/// answer has come: a turn that began is never repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, 1 to 5.
    pub max_attempts: u32,
    /// The wait before the second attempt; it doubles with each further one. The vendor may ask for more.
    pub base_delay: Duration,
    /// A longer wait than this is not waited for: the turn fails.
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    /// One attempt, 500 ms, 30 s (contract 2).
    fn default() -> Self {
        Self { max_attempts: 1, base_delay: Duration::from_millis(500), max_delay: Duration::from_secs(30) }
    }
}

/// A tool as the model sees it.
#[derive(Debug, Clone)]
pub struct ToolDefinition {
    /// The name.
    pub name: ToolName,
    /// What it does.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Exact,
}

/// One message of the conversation.
#[derive(Debug, Clone)]
pub enum Message {
    /// A person's turn.
    User(String),
    /// A model's turn.
    Assistant(AssistantMessage),
    /// The output of a call.
    Tool {
        /// The call.
        call_id: CallId,
        /// Its tool.
        name: ToolName,
        /// The output as compact JSON text.
        output: Exact,
    },
}

/// A model's turn as it is told again in the next step.
#[derive(Debug, Clone, Default)]
pub struct AssistantMessage {
    /// What it said.
    pub text: String,
    /// The calls that it proposed, checked; their arguments are the one shared copy of the text.
    pub calls: Vec<ToolCall>,
    /// Whatever else this provider must be told again, as JSON text in its own form; none for history.
    pub native: Option<Box<str>>,
}

/// A call as the model wrote it, not yet checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedCall {
    /// The provider's id for it.
    pub id: String,
    /// The tool that it names.
    pub name: String,
    /// The argument text, byte for byte.
    pub arguments: String,
}

/// What the model answered.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Its text, whether or not it was streamed.
    pub text: String,
    /// The calls that it proposes, in its order.
    pub calls: Vec<ProposedCall>,
    /// What it reported of its use; none if it reported nothing.
    pub usage: Option<Usage>,
    /// Why it stopped.
    pub finish: FinishReason,
    /// See [`AssistantMessage::native`].
    pub native: Option<Box<str>>,
}

/// A model turn failed.
#[derive(Debug, thiserror::Error)]
#[error("{}", info.message)]
pub struct ProviderError {
    /// What the client is told.
    pub info: ErrorInfo,
    /// The private cause, for the log.
    #[source]
    pub source: Option<BoxError>,
}

impl ProviderError {
    /// A failure with the code's own message and retry hint.
    pub fn new(code: Code) -> Self {
        Self { info: ErrorInfo::new(code), source: None }
    }

    /// The same failure with its private cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}
