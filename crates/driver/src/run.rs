//! The run loop (contract 7.2, 3.2): one task a run, pulled by the consumer of its events.
//!
//! ```text
//! run.started ─► step.started ─► model turn ─► no calls ─► run.completed
//!                     ▲                          calls ─► batch checks ─► each call in turn (see `run::call`)
//!                     └───────────────────────────────────────────────────────┘
//! ```
//!
//! Everything that waits goes through [`Run::guard`], which gives way to cancellation and to the idle clock. After
//! either the run is *aborted*: it does nothing more but settle its review, say so, and end with `run.cancelled`.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::{CallId, RunId, Subject};
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::event::{Event, EventBody, FinishReason, RunResult};
use countersign_protocol::request::{Role, RunRequest};
use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::application::ApplicationTools;
use crate::batch::{self, Selected};
use crate::driver::{Parts, millis};
use crate::figures::{Counted, Doing, RunEnd};
use crate::idle::IdleClock;
use crate::operation::journal::Journal;
use crate::provider::{AssistantMessage, Message, Provider, RetryPolicy, ToolDefinition, Turn, TurnRequest};
use crate::schema::RequestSchema;
use crate::stream::{Gone, Outlet};
use crate::trace;
use crate::turn::{Throttle, TurnQueue};
use crate::usage::UsageTotal;

mod application;
mod call;
mod output;

/// Contract 2: what a request that names no bound gets.
const DEFAULT_STEPS: u32 = 8;
const DEFAULT_OUTPUT_TOKENS: u32 = 4_096;

/// One run.
pub(crate) struct Run {
    parts: Arc<Parts>,
    provider: Arc<dyn Provider>,
    request: RunRequest,
    /// The tools that the request brings.
    application: Arc<ApplicationTools>,
    /// What the answer must fit (contract 7.2).
    output: Option<RequestSchema>,
    /// Who started it; the grants of the credential were checked before.
    subject: Subject,
    run_id: RunId,
    outlet: Arc<Outlet>,
    /// Fires when the run is to end; tools see it.
    cancellation: CancellationToken,
    /// Where the tasks of its tools are counted.
    tasks: TaskTracker,
    sequence: u64,
    idle: IdleClock,
    /// Why the run was aborted, once it was (contract 5.5). The first reason stays.
    aborted: Option<ErrorInfo>,
    /// What an end of the run leaves open.
    in_flight: InFlight,
    /// Where it stands among the driver's figures, once it was admitted.
    counted: Option<Counted>,
    /// The log of a run with an idempotency key: what stands in it is durable before it is shown.
    journal: Option<Box<Journal>>,
    /// The time that the log has for the event that is handed over next; a replay tells the same one.
    noted_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InFlight {
    Nothing,
    /// A person is asked.
    Review,
    /// A tool was invoked and its output is not yet confirmed (contract 5.4).
    Tool,
}

/// Why the loop stopped before its end.
#[derive(Debug)]
enum Stop {
    /// The run was aborted; `Run::aborted` says why.
    Aborted,
    /// The run failed.
    Failed(ErrorInfo),
}

impl From<ErrorInfo> for Stop {
    fn from(error: ErrorInfo) -> Self {
        Self::Failed(error)
    }
}

impl From<Code> for Stop {
    fn from(code: Code) -> Self {
        Self::Failed(ErrorInfo::new(code))
    }
}

/// Runs the loop and delivers its terminal event.
pub(crate) async fn drive(mut run: Run) {
    let end = AssertUnwindSafe(run.steps()).catch_unwind().await.unwrap_or_else(|_| {
        // A provider or a callback panicked. No review can be open: those wait in our own code only.
        tracing::error!(run = %run.run_id, "a run panicked");
        Err(Code::INTERNAL_ERROR.into())
    });
    Box::pin(run.finish(end)).await;
}

impl Run {
    #[expect(clippy::too_many_arguments, reason = "each is one part of a run, given once")]
    pub(crate) fn new(
        parts: Arc<Parts>,
        provider: Arc<dyn Provider>,
        request: RunRequest,
        application: ApplicationTools,
        output: Option<RequestSchema>,
        subject: Subject,
        run_id: RunId,
        outlet: Outlet,
        cancellation: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        let now = parts.clock.now().monotonic;
        let idle = IdleClock::start(now, millis(request.idle_timeout_ms), parts.limits.idle_timeout);
        Self {
            parts,
            provider,
            request,
            application: Arc::new(application),
            output,
            subject,
            run_id,
            outlet: Arc::new(outlet),
            cancellation,
            tasks,
            sequence: 0,
            idle,
            aborted: None,
            in_flight: InFlight::Nothing,
            counted: None,
            journal: None,
            noted_at: None,
        }
    }

    /// Makes the run an operation (contract 9).
    pub(crate) fn with_journal(self, journal: Journal) -> Self {
        Self { journal: Some(Box::new(journal)), ..self }
    }

    async fn steps(&mut self) -> Result<RunResult, Stop> {
        // Told even if the run is aborted before anybody asks: it is always the first event (contract 3.2).
        self.deliver(EventBody::RunStarted {
            provider: self.request.provider.clone(),
            model: self.request.model.clone(),
        })
        .await?;
        self.admitted().await?;
        self.counted = Some(Counted::new(Arc::clone(&self.parts.meter)));
        let (parts, application) = (Arc::clone(&self.parts), Arc::clone(&self.application));
        let mut messages = self.opening_messages();
        let mut used_ids: Vec<CallId> = Vec::new();
        let mut usage = UsageTotal::default();
        let last = self.request.max_steps.unwrap_or(DEFAULT_STEPS).min(self.parts.limits.max_steps);
        for step in 1..=last {
            self.progress();
            self.emit(EventBody::StepStarted { step }).await?;
            let span = trace::step(step);
            // Boxed, here and below: a run that waits for a person does not carry the space of what is over.
            let turn = Box::pin(self.model_turn(step, &messages).instrument(span.clone())).await?;
            usage.add(&turn.usage.unwrap_or_default());
            if turn.calls.is_empty() {
                return self.result(turn, usage, step).await;
            }
            if turn.finish == FinishReason::Length {
                return Err(Code::TRUNCATED_TOOL_CALL.into());
            }
            let position = if step == last { batch::Step::Last } else { batch::Step::Earlier };
            let names = self.request.tools.clone();
            let selected = Selected { tools: &parts.tools, application: &application, names: &names };
            let checked = batch::check(turn.calls, position, selected, &mut used_ids);
            let calls = Box::pin(self.guard(checked)).await??;
            messages.push(Message::Assistant(AssistantMessage {
                text: turn.text,
                calls: calls.clone(),
                native: turn.native,
            }));
            for call in calls {
                let tool = application.get(&call.name).or_else(|| parts.tools.get(&call.name));
                let Some(tool) = tool else {
                    return Err(Code::TOOL_NOT_ALLOWED.into());
                };
                let output = self.call(&call, tool).instrument(trace::call(&span, &call)).await?;
                messages.push(Message::Tool { call_id: call.id, name: call.name, output });
            }
        }
        // Not reached: the last step either ends the run or is refused by the batch checks.
        Err(Code::STEP_LIMIT.into())
    }

    /// Waits in the host's queue, if it has one, with the idle clock stopped (contract 6.4, 8); the first step starts it.
    async fn admitted(&mut self) -> Result<(), Stop> {
        self.idle.pause();
        let outlet = Arc::clone(&self.outlet);
        self.take_turn(outlet.admitted()).await
    }

    fn opening_messages(&mut self) -> Vec<Message> {
        let history =
            std::mem::take(&mut self.request.history).into_iter().map(|message| match message.role {
                Role::User => Message::User(message.content),
                Role::Assistant => Message::Assistant(AssistantMessage {
                    text: message.content,
                    ..AssistantMessage::default()
                }),
            });
        let mut messages: Vec<Message> = history.collect();
        messages.push(Message::User(std::mem::take(&mut self.request.input)));
        messages
    }

    /// One model call with everything it says meanwhile (contract 3.2).
    async fn model_turn(&mut self, step: u32, messages: &[Message]) -> Result<Turn, Stop> {
        let provider = Arc::clone(&self.provider);
        let tools: Vec<ToolDefinition> = self
            .request
            .tools
            .iter()
            .filter_map(|name| {
                let tool = self.application.get(name).or_else(|| self.parts.tools.get(name));
                tool.map(|tool| tool.definition.clone())
            })
            .collect();
        let model = self.request.model.clone();
        let instructions = output::instructions(&self.request);
        let queue = TurnQueue::default();
        let request = TurnRequest {
            model: &model,
            instructions: instructions.as_deref(),
            messages,
            tools: &tools,
            max_output_tokens: self
                .request
                .max_output_tokens
                .unwrap_or(DEFAULT_OUTPUT_TOKENS)
                .min(self.parts.limits.max_output_tokens),
            retry: self.retry(),
        };
        let turn = self.speak(provider.turn(request, &queue), &queue).await?;
        self.progress();
        while let Some(body) = queue.take_event() {
            self.emit(body).await?;
        }
        if let Some(usage) = turn.usage {
            self.emit(EventBody::UsageReported { step, usage }).await?;
        }
        if !queue.streamed() && !turn.text.is_empty() {
            self.emit(EventBody::TextDelta { text: turn.text.clone() }).await?;
        }
        Ok(turn)
    }

    /// What the request allows, within the host's bound.
    fn retry(&self) -> RetryPolicy {
        let default = RetryPolicy::default();
        let Some(retry) = &self.request.retry else { return default };
        RetryPolicy {
            max_attempts: retry.max_attempts.min(self.parts.limits.max_attempts),
            base_delay: millis(retry.base_delay_ms).unwrap_or(default.base_delay),
            max_delay: millis(retry.max_delay_ms).unwrap_or(default.max_delay),
        }
    }

    /// Polls the model while handing over what it has said so far.
    async fn speak(
        &mut self,
        turn: impl Future<Output = Result<Turn, crate::provider::ProviderError>>,
        queue: &TurnQueue,
    ) -> Result<Turn, Stop> {
        enum Next {
            Turn(Result<Turn, crate::provider::ProviderError>),
            Spoke,
            Deliver,
        }
        let mut throttle = Throttle::default();
        let mut turn = std::pin::pin!(turn);
        let outlet = Arc::clone(&self.outlet);
        loop {
            let next = self
                .guard(async {
                    tokio::select! {
                        biased;
                        turn = &mut turn => Next::Turn(turn),
                        () = queue.spoke() => Next::Spoke,
                        Ok(()) = outlet.asked(), if queue.has_event() => Next::Deliver,
                    }
                })
                .await?;
            match next {
                Next::Turn(Ok(turn)) => return Ok(turn),
                Next::Turn(Err(error)) => {
                    tracing::warn!(run = %self.run_id, code = %error.info.code, cause = error.source.as_deref().map(tracing::field::display), "a model turn failed");
                    return Err(error.info.into());
                }
                Next::Spoke => {
                    self.progress();
                    if queue.overflowed() {
                        return Err(self.abort(ErrorInfo::new(Code::OUTPUT_BUFFER_LIMIT)));
                    }
                    if queue.take_report() && throttle.admit(self.now()) {
                        queue.queue_progress();
                    }
                }
                Next::Deliver => {
                    if let Some(body) = queue.take_event() {
                        self.note(&body).await?;
                        self.place(body);
                    }
                }
            }
        }
    }

    async fn result(&mut self, turn: Turn, usage: UsageTotal, steps: u32) -> Result<RunResult, Stop> {
        let output = match self.output.take() {
            None => None,
            Some(schema) => Some(self.guard(output::of(schema, &turn.text)).await??),
        };
        Ok(RunResult {
            run_id: self.run_id,
            provider: self.request.provider.clone(),
            model: self.request.model.clone(),
            text: turn.text,
            usage: usage.total(),
            steps,
            finish_reason: turn.finish,
            output,
        })
    }

    /// The terminal event (contract 5.4, 5.5). It is delivered whatever happens, unless nobody is there to take it.
    async fn finish(mut self, end: Result<RunResult, Stop>) {
        // A failed run ends when its end is asked for: an abort before that beats a failure that nobody was told
        // (contract 3.4). A completed one has nothing left to abort.
        let room = match &end {
            Ok(_) => self.outlet.room().await,
            Err(_) => self.outlet.asked().await,
        };
        if self.aborted.is_none() && self.cancellation.is_cancelled() {
            self.abort(ErrorInfo::new(Code::CANCELLED));
        }
        let in_flight = self.in_flight;
        let mark = move |error: ErrorInfo| match in_flight {
            InFlight::Nothing | InFlight::Review => error,
            InFlight::Tool => uncertain(error),
        };
        let body = match (self.aborted.take(), end) {
            (Some(reason), _) => EventBody::RunCancelled { error: mark(reason) },
            (None, Ok(result)) => EventBody::RunCompleted { result: Box::new(result) },
            (None, Err(Stop::Failed(error))) => EventBody::RunFailed { error: mark(error) },
            (None, Err(Stop::Aborted)) => {
                EventBody::RunFailed { error: ErrorInfo::new(Code::INTERNAL_ERROR) }
            }
        };
        let body = self.conclude(body, room).await;
        self.parts.meter.run_ended(match &body {
            EventBody::RunCompleted { .. } => RunEnd::Completed,
            EventBody::RunCancelled { .. } => RunEnd::Cancelled,
            _ => RunEnd::Failed,
        });
        if room.is_ok() {
            self.place(body);
        }
        // Whatever the run handed to tools and providers ends with it.
        self.cancellation.cancel();
    }

    /// Ends the operation, if the run is one, and gives the terminal event that is true of its log (contract 9).
    async fn conclude(&mut self, body: EventBody, room: Result<(), Gone>) -> EventBody {
        let Some(journal) = self.journal.take() else { return body };
        let terminal = match (room, self.in_flight) {
            (Ok(()), _) | (Err(Gone), InFlight::Nothing) => Some(&body),
            // The stream was closed while a person or a tool was at work: the barrier of contract 9.
            (Err(Gone), InFlight::Review | InFlight::Tool) => None,
        };
        let at = self.parts.clock.now().wall;
        self.noted_at = Some(at);
        match journal.finish(at, terminal).await {
            Ok(()) => body,
            Err(error) => EventBody::RunFailed { error },
        }
    }

    /// Writes an event down, if the run is an operation. It may be shown once this is `Ok`; it may have been written
    /// although it was never shown.
    async fn note(&mut self, body: &EventBody) -> Result<(), Stop> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let at = self.parts.clock.now().wall;
        self.noted_at = Some(at);
        // Boxed: most runs have no key, and all would carry its state.
        Ok(Box::pin(journal.note(at, body)).await?)
    }

    /// As [`note`](Self::note), for what is still to happen: once the run is to end it is not even written down.
    async fn note_next(&mut self, body: &EventBody) -> Result<(), Stop> {
        self.check_aborted()?;
        self.note(body).await
    }

    /// Hands an event over as soon as there is room for it; stops if the run is aborted first. What follows must be no
    /// effect: the consumer may have yet to take the events before this one.
    async fn emit(&mut self, body: EventBody) -> Result<(), Stop> {
        self.note_next(&body).await?;
        let outlet = Arc::clone(&self.outlet);
        self.take_turn(outlet.room()).await?;
        self.place(body);
        Ok(())
    }

    /// As [`emit`](Self::emit), once the consumer has taken every event before.
    async fn emit_alone(&mut self, body: EventBody) -> Result<(), Stop> {
        self.note_next(&body).await?;
        self.demand().await?;
        self.place(body);
        Ok(())
    }

    /// Waits until the consumer has taken every event and asks for more.
    async fn demand(&mut self) -> Result<(), Stop> {
        let outlet = Arc::clone(&self.outlet);
        self.take_turn(outlet.asked()).await
    }

    /// What an end of the run leaves open from now on.
    fn leaves_open(&mut self, in_flight: InFlight) {
        self.in_flight = in_flight;
        if let Some(counted) = &mut self.counted {
            counted.now(match in_flight {
                InFlight::Nothing => Doing::Model,
                InFlight::Review => Doing::Review,
                InFlight::Tool => Doing::Tool,
            });
        }
    }

    async fn take_turn(&mut self, turn: impl Future<Output = Result<(), Gone>>) -> Result<(), Stop> {
        match self.guard(turn).await? {
            Ok(()) => Ok(()),
            Err(Gone) => Err(self.abort(ErrorInfo::new(Code::CANCELLED))),
        }
    }

    /// As [`emit_alone`](Self::emit_alone), for what happened already: it is written down even if the run is to end.
    async fn emit_fact(&mut self, body: EventBody) -> Result<(), Stop> {
        self.note(&body).await?;
        self.demand().await?;
        self.place(body);
        Ok(())
    }

    /// Hands over what must be told even if the run is aborted meanwhile. Whether it was shows afterwards.
    async fn deliver(&mut self, body: EventBody) -> Result<(), Stop> {
        self.note(&body).await?;
        self.tell(body).await;
        Ok(())
    }

    /// As [`deliver`](Self::deliver), for what was written down before.
    async fn tell(&mut self, body: EventBody) {
        if self.demand().await.is_ok() || self.outlet.asked().await.is_ok() {
            self.place(body);
        }
    }

    fn place(&mut self, body: EventBody) {
        self.sequence += 1;
        let timestamp = self.noted_at.take().unwrap_or_else(|| self.parts.clock.now().wall);
        self.outlet.place(Event { run_id: self.run_id, sequence: self.sequence, timestamp, body });
    }

    /// Waits for something, giving way to cancellation first and to the idle clock second. Either aborts the run.
    async fn guard<T>(&mut self, wait: impl Future<Output = T>) -> Result<T, Stop> {
        self.check_aborted()?;
        let mut wait = std::pin::pin!(wait);
        // Most waits are over before they begin, and need nothing that would wake them.
        if let Poll::Ready(value) = poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx))).await {
            return Ok(value);
        }
        let idle = self.idle.deadline().map(|deadline| deadline.saturating_sub(self.now()));
        let idle = async {
            match idle {
                // Boxed: most runs have no limit, and all would carry the timer's state.
                Some(left) => Box::pin(tokio::time::sleep(left)).await,
                None => std::future::pending().await,
            }
        };
        let reason = tokio::select! {
            biased;
            () = self.cancellation.cancelled() => Code::CANCELLED,
            () = idle => Code::IDLE_TIMEOUT,
            value = wait => return Ok(value),
        };
        Err(self.abort(ErrorInfo::new(reason)))
    }

    /// Gives way to an abort, and to an idle clock that ran out while nobody was looking, as during a slow record.
    fn check_aborted(&mut self) -> Result<(), Stop> {
        if self.aborted.is_some() {
            return Err(Stop::Aborted);
        }
        if self.cancellation.is_cancelled() {
            return Err(self.abort(ErrorInfo::new(Code::CANCELLED)));
        }
        if self.idle.deadline().is_some_and(|deadline| deadline <= self.now()) {
            return Err(self.abort(ErrorInfo::new(Code::IDLE_TIMEOUT)));
        }
        Ok(())
    }

    /// Ends the run as cancelled. The first reason stays.
    fn abort(&mut self, reason: ErrorInfo) -> Stop {
        if self.aborted.is_none() {
            self.aborted = Some(reason);
        }
        self.cancellation.cancel();
        Stop::Aborted
    }

    /// Something moved: a full idle interval starts.
    fn progress(&mut self) {
        let now = self.now();
        self.idle.restart(now);
    }

    fn now(&self) -> Duration {
        self.parts.clock.now().monotonic
    }
}

/// Contract 5.4: what a run says that ends while a tool's outcome is open.
fn uncertain(error: ErrorInfo) -> ErrorInfo {
    if error.code == Code::APPROVAL_AUDIT_FAILED {
        // The code's own words say that nothing was done, which is true only before a call (law 8).
        error
            .with_message("The tool was called, and the record of how it ended was not accepted.")
            .uncertain()
    } else if [Code::IDLE_TIMEOUT, Code::CANCELLED].contains(&error.code) {
        error.uncertain()
    } else {
        ErrorInfo::new(Code::TOOL_OUTCOME_UNCERTAIN).uncertain()
    }
}
