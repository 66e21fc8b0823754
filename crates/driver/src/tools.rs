//! Host tools: what an application registers and a model may call (contract 7.1).

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use countersign_approval_core::audit::BoxError;
use countersign_approval_core::ids::{CallId, InvalidName, RunId, Subject, ToolName};
use countersign_approval_core::json::{Exact, Gate, Kind, Refused};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::progress::Progress;

/// The most bytes that a tool's output may have as compact JSON (contract 7.4).
pub const MAX_OUTPUT_BYTES: usize = 1_000_000;

/// Whether a person must see each call before it runs (`requiresApproval`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Review {
    /// Each call waits for a decision.
    Required,
    /// Calls run as soon as they are proposed.
    NotRequired,
}

/// How a tool presents itself to the model.
#[derive(Debug, Clone)]
pub struct ToolSpec {
    /// The name that requests and grants use.
    pub name: ToolName,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema (draft-07) of its arguments.
    pub input_schema: Exact,
    /// Whether its calls are reviewed.
    pub review: Review,
}

impl ToolSpec {
    /// A tool whose calls are not reviewed. `input_schema` is the text of a JSON Schema object.
    ///
    /// # Errors
    /// [`InvalidTool`] if the name or the schema's text is not acceptable. Whether the schema itself is valid is
    /// checked when the driver is built.
    pub fn new(name: &str, description: impl Into<String>, input_schema: &str) -> Result<Self, InvalidTool> {
        let input_schema = Exact::parse_with(input_schema, Gate::OUTPUT)?;
        if input_schema.kind() != Kind::Object {
            return Err(InvalidTool::SchemaNotAnObject);
        }
        Ok(Self {
            name: ToolName::parse(name)?,
            description: description.into(),
            input_schema,
            review: Review::NotRequired,
        })
    }

    /// The same tool with every call reviewed (`requiresApproval: true`).
    #[must_use]
    pub fn requires_approval(mut self) -> Self {
        self.review = Review::Required;
        self
    }
}

/// A tool cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTool {
    /// The name breaks contract 7.1.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The schema's text is not acceptable JSON.
    #[error("input schema: {0}")]
    SchemaText(#[from] Refused),
    /// A schema must be an object.
    #[error("input schema: expected a JSON object")]
    SchemaNotAnObject,
}

/// A tool that the driver executes. Shared by all runs.
#[async_trait]
pub trait Tool: Send + Sync {
    /// What the model is told, and whether calls are reviewed. It must not change after registration.
    fn spec(&self) -> &ToolSpec;

    /// Does the work, once. `input` is exactly what was proposed and, where that applies, reviewed.
    ///
    /// Approval freezes no document: check the current state and the caller's rights again before committing a
    /// change. The future is dropped soon after `context.cancellation` fires, so stop at a safe point.
    ///
    /// # Errors
    /// The function was invoked, so its effect is unknown to the driver: the run ends with
    /// `TOOL_OUTCOME_UNCERTAIN` (contract 5.4). Return an [`Output`] that says what went wrong if you know that
    /// nothing happened. The error's text goes to the log, never to a client.
    async fn execute(&self, input: Input, context: ToolContext) -> Result<Output, BoxError>;
}

/// The arguments of a call, in the proposed tokens.
#[derive(Debug, Clone)]
pub struct Input(pub(crate) Exact);

impl Input {
    /// Wraps arguments, for tests of a tool.
    pub const fn new(arguments: Exact) -> Self {
        Self(arguments)
    }

    /// The JSON text.
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// Reads the arguments into a type.
    ///
    /// # Errors
    /// If the arguments do not have that shape.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.0.decode()
    }
}

/// What a tool returned: JSON text, carried as written.
#[derive(Debug, Clone)]
pub struct Output(pub(crate) Exact);

impl Output {
    /// A value, written as JSON.
    ///
    /// # Errors
    /// [`InvalidOutput`] if it cannot be written as JSON or is not acceptable.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, InvalidOutput> {
        Self::from_text(&serde_json::to_string(value)?)
    }

    /// JSON text.
    ///
    /// # Errors
    /// [`InvalidOutput`] if it is not acceptable JSON or has more than [`MAX_OUTPUT_BYTES`].
    pub fn from_text(text: &str) -> Result<Self, InvalidOutput> {
        let output = Exact::parse_with(text, Gate::OUTPUT)?;
        if output.text().len() > MAX_OUTPUT_BYTES {
            return Err(InvalidOutput::TooLarge { bytes: output.text().len() });
        }
        Ok(Self(output))
    }

    /// The JSON text.
    pub fn text(&self) -> &str {
        self.0.text()
    }
}

/// The output of a tool cannot be carried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOutput {
    /// The value has no JSON form.
    #[error("the output cannot be written as JSON")]
    NotJson(#[from] serde_json::Error),
    /// The JSON text is not acceptable.
    #[error("the output is not exact JSON")]
    Refused(#[from] Refused),
    /// Contract 7.4.
    #[error("the output has {bytes} bytes; at most {MAX_OUTPUT_BYTES} are carried")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// What a tool is told about the call that it executes.
#[derive(Clone)]
#[non_exhaustive]
pub struct ToolContext {
    /// The run.
    pub run_id: RunId,
    /// The call: unique within the run. Use `(run_id, call_id)` as an idempotency key.
    pub call_id: CallId,
    /// Who started the run, as authentication said.
    pub subject: Subject,
    /// Fires when the run ends; the future is dropped soon after.
    pub cancellation: CancellationToken,
    pub(crate) progress: Progress,
}

impl ToolContext {
    /// A context for tests of a tool.
    pub fn detached(run_id: RunId, call_id: CallId, subject: Subject) -> Self {
        Self {
            run_id,
            call_id,
            subject,
            cancellation: CancellationToken::new(),
            progress: Progress::default(),
        }
    }

    /// Says that work goes on: restarts the idle clock and shows `run.progress` at most once a second (contract 8).
    pub fn report_progress(&self) {
        self.progress.report();
    }
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("run_id", &self.run_id)
            .field("call_id", &self.call_id)
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

/// A tool made of a specification and an async function.
pub fn tool<F, R>(spec: ToolSpec, execute: F) -> Arc<dyn Tool>
where
    F: Fn(Input, ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Output, BoxError>> + Send + 'static,
{
    Arc::new(FnTool { spec, execute })
}

struct FnTool<F> {
    spec: ToolSpec,
    execute: F,
}

#[async_trait]
impl<F, R> Tool for FnTool<F>
where
    F: Fn(Input, ToolContext) -> R + Send + Sync,
    R: Future<Output = Result<Output, BoxError>> + Send,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn execute(&self, input: Input, context: ToolContext) -> Result<Output, BoxError> {
        (self.execute)(input, context).await
    }
}
