//! Application tools as async functions: what is defined, executed and answered in one place (contract 7.6).

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use countersign_approval_core::ids::CallId;
use countersign_approval_core::json::{Exact, Gate};
use countersign_approval_core::snapshot::ToolCall;
use countersign_protocol::event::{Event, EventBody, ToolExecution};
use countersign_protocol::request::{ApplicationTool, RunRequest};
use countersign_protocol::tool_execution::{ExecutionIdentity, ExecutionResult, MAX_REPORTED_BYTES};
use futures_core::Stream;
use futures_util::FutureExt;
use serde::Serialize;

use crate::client::Client;
use crate::error::{Error, Misuse};
use crate::stream::EventStream;
use crate::transport::BoxError;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Function = dyn Fn(ToolCall, ToolContext) -> BoxFuture<Result<Exact, BoxError>> + Send + Sync;

/// Tools that this program executes for a model: definitions with an async function each. Cheap to clone.
///
/// [`ToolBox::stream`] runs a request with them. Calls come one after another, as the contract has it, so the functions
/// never run beside each other within one stream.
///
/// ```no_run
/// use countersign_client::{Client, ToolBox};
/// use countersign_protocol::request::{ApplicationTool, RunRequest};
///
/// # async fn example(client: Client, request: RunRequest) -> Result<(), Box<dyn std::error::Error>> {
/// let pick = ApplicationTool::new("pick_colour", "Asks the user for a colour.", r#"{"type":"object"}"#)?;
/// let tools = ToolBox::new().with(pick, |call, _| async move {
///     println!("asked with {}", call.arguments.text());
///     Ok("teal")
/// });
/// let mut events = tools.stream(&client, &request).await?;
/// while let Some(event) = events.next().await {
///     println!("{}", event?.type_name());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct ToolBox {
    tools: Vec<(ApplicationTool, Arc<Function>)>,
}

impl ToolBox {
    /// An empty box.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool. Two of one name are refused by the host, with `TOOL_DEFINITION_CONFLICT`.
    ///
    /// The function gets exactly the call that was proposed and, where that applies, reviewed. A review freezes no
    /// document, so it checks the current state again before it commits a change. Its future is dropped when the stream
    /// ends first. What it gives is sent as JSON, at most [`MAX_REPORTED_BYTES`]. If it fails, panics or gives something
    /// else, the host hears of a failure, without the reason, and the run ends with `TOOL_OUTCOME_UNCERTAIN`; return a
    /// value that says what went wrong if the model is to go on.
    #[must_use]
    pub fn with<F, R, T>(mut self, definition: ApplicationTool, function: F) -> Self
    where
        F: Fn(ToolCall, ToolContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, BoxError>> + Send + 'static,
        T: Serialize,
    {
        let function: Arc<Function> = Arc::new(move |call, context| {
            let working = function(call, context);
            Box::pin(async move { exact(&working.await?) })
        });
        self.tools.push((definition, function));
        self
    }

    /// Starts the run of this request with these tools, which it defines and selects, and executes them while its events
    /// are read.
    ///
    /// # Errors
    /// As [`Client::stream`]; [`Misuse::ForeignTools`] if the request defines application tools itself.
    pub async fn stream(&self, client: &Client, request: &RunRequest) -> Result<ToolStream, Error> {
        if !request.application_tools.is_empty() {
            return Err(Misuse::ForeignTools.into());
        }
        let mut request = request.clone();
        for (definition, _) in &self.tools {
            if !request.tools.contains(&definition.name) {
                request.tools.push(definition.name.clone());
            }
            request.application_tools.push(definition.clone());
        }
        let events = client.stream(&request).await?;
        let client = client.clone();
        Ok(ToolStream { events, client, tools: self.clone(), working: None, waiting: VecDeque::new() })
    }

    fn function(&self, execution: &ToolExecution) -> Option<Arc<Function>> {
        let found = self.tools.iter().find(|(definition, _)| definition.name == execution.call.name);
        found.map(|(_, function)| Arc::clone(function))
    }
}

impl fmt::Debug for ToolBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tools.iter().map(|(definition, _)| &definition.name)).finish()
    }
}

/// What a function may tell about the execution that it works on.
#[derive(Debug, Clone)]
pub struct ToolContext {
    client: Client,
    execution: ExecutionIdentity,
}

impl ToolContext {
    /// The execution: new for every call. Use it as an idempotency key.
    pub const fn execution(&self) -> &ExecutionIdentity {
        &self.execution
    }

    /// Says that work goes on: the idle clock of the run starts anew, and `run.progress` is shown at most once a second
    /// (contract 8). Each call is one request.
    ///
    /// # Errors
    /// [`Error`]; the work may go on all the same.
    pub async fn report_progress(&self) -> Result<(), Error> {
        self.client.report_progress(&self.execution).await.map(drop)
    }
}

/// The events of a run whose application tools a [`ToolBox`] executes.
///
/// A function works only while somebody waits in [`next`](Self::next). When the stream ends, or is dropped, it is
/// dropped where it stands.
#[must_use = "dropping the stream cancels the run"]
pub struct ToolStream {
    events: EventStream,
    client: Client,
    tools: ToolBox,
    /// The function at work, up to the host's receipt for its answer.
    working: Option<BoxFuture<Result<(), Error>>>,
    /// Executions behind it. A host asks for one after the other, so there is none; the protocol's own check of the
    /// stream bounds what another kind of host could send.
    waiting: VecDeque<ToolExecution>,
}

impl ToolStream {
    /// The next event; `None` after the terminal event or after an error that ended the stream.
    ///
    /// Dropping the future loses nothing: the next call goes on where it was.
    ///
    /// # Errors
    /// [`Error`] as [`EventStream`] has it, after which comes `None`. Two errors do not end the stream, because its events
    /// still tell what becomes of the run: [`Error::ToolFailed`] (a function failed, and the host knows) and
    /// [`Error::ToolReport`] (an answer may not have reached the host; it is not sent again).
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        loop {
            if self.working.is_none() {
                let Some(execution) = self.waiting.pop_front() else { return Poll::Pending };
                let function = self.tools.function(&execution);
                self.working = Some(Box::pin(execute(self.client.clone(), function, execution)));
            }
            let Some(working) = &mut self.working else { return Poll::Pending };
            let Poll::Ready(done) = working.as_mut().poll(cx) else { return Poll::Pending };
            self.working = None;
            if let Err(error) = done {
                return Poll::Ready(error);
            }
        }
    }

    fn end_work(&mut self) {
        self.working = None;
        self.waiting.clear();
    }
}

impl Stream for ToolStream {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // The stream first: once it has ended there is nothing to work for.
        if let Poll::Ready(item) = Pin::new(&mut self.events).poll_next(cx) {
            match &item {
                Some(Ok(Event { body: EventBody::ToolExecutionRequested { execution }, .. })) => {
                    self.waiting.push_back(execution.clone());
                }
                Some(Ok(event)) if !event.is_terminal() => {}
                _ => self.end_work(),
            }
            return Poll::Ready(item);
        }
        self.poll_work(cx).map(|error| Some(Err(error)))
    }
}

impl fmt::Debug for ToolStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolStream")
            .field("events", &self.events)
            .field("working", &self.working.is_some())
            .finish_non_exhaustive()
    }
}

/// Executes a call and answers for it, both once.
async fn execute(
    client: Client,
    function: Option<Arc<Function>>,
    execution: ToolExecution,
) -> Result<(), Error> {
    let context = ToolContext { client: client.clone(), execution: ExecutionIdentity::of(&execution) };
    let call = execution.call.clone();
    let working = AssertUnwindSafe(async move {
        match function {
            Some(function) => function(call, context).await,
            // The check of the stream refuses a tool that the request did not define.
            None => Err("no such tool".into()),
        }
    });
    let worked = working.catch_unwind().await.unwrap_or_else(|_| Err("the function panicked".into()));
    let (result, fault) = match worked {
        Ok(output) => (ExecutionResult::output(&execution, output), None),
        Err(fault) => (ExecutionResult::failed(&execution), Some(fault)),
    };
    let call_id: CallId = execution.call.id;
    match (client.submit_result(&result).await, fault) {
        (Ok(_), None) => Ok(()),
        (Ok(_), Some(source)) => Err(Error::ToolFailed { call_id, source }),
        (Err(source), _) => Err(Error::ToolReport { call_id, source: Box::new(source) }),
    }
}

/// The value as it is sent. One that the host would refuse is a failure here: the host would take it for the end of the
/// execution, or not even read it.
fn exact(value: &impl Serialize) -> Result<Exact, BoxError> {
    let output = Exact::parse_with(&serde_json::to_string(value)?, Gate::OUTPUT)?;
    let bytes = output.canonical_len();
    if bytes > MAX_REPORTED_BYTES {
        return Err(format!("the output has {bytes} bytes; at most {MAX_REPORTED_BYTES} are taken").into());
    }
    Ok(output)
}
