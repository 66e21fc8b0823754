//! The calls of a run, and the tasks that execute them and ask about them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::approval::{Answer, ApprovalRequest, HookError, OnApproval};
use crate::clock;
use crate::engine::NewCall;
use crate::function::{CallContext, Function, FunctionError};
use crate::ids::{CallId, RunId};
use crate::outcome::{Row, RowState};
use crate::source::Position;
use crate::value::{Json, Output};

/// How long a task goes on after it was told that nobody waits (decision 0006).
const GRACE: Duration = Duration::from_secs(5);

/// A call and where it stands.
pub(super) struct Call {
    pub(super) seq: u32,
    pub(super) call_id: CallId,
    pub(super) function: usize,
    /// The snapshot: shown, and executed.
    pub(super) input: Json,
    /// Line and byte column.
    pub(super) at: Option<(u32, u32)>,
    pub(super) state: State,
}

pub(super) enum State {
    /// Not started.
    Waiting,
    Executing,
    Ended(RowState),
}

impl Call {
    pub(super) fn new(run: RunId, new: NewCall) -> Self {
        Self {
            seq: new.seq,
            // The creation counter is `seq` here; with `collect` the two part.
            call_id: run.call(new.seq),
            function: new.function,
            input: Json::of_exact(new.input),
            at: new.at,
            state: State::Waiting,
        }
    }

    pub(super) fn context(&self, run_id: RunId) -> CallContext {
        CallContext {
            run_id,
            call_id: self.call_id.clone(),
            attempt: 1,
            cancellation: CancellationToken::new(),
        }
    }

    pub(super) fn request(
        &self,
        run_id: RunId,
        function: &str,
        position: Option<Position>,
    ) -> ApprovalRequest {
        ApprovalRequest {
            run_id,
            call_id: self.call_id.clone(),
            seq: self.seq,
            function: function.to_owned(),
            input: self.input.clone(),
            position,
            cancellation: CancellationToken::new(),
        }
    }

    pub(super) fn row(self, function: &str, position: Option<Position>) -> Row {
        let state = match self.state {
            State::Waiting => RowState::Discarded,
            State::Executing => RowState::Uncertain,
            State::Ended(state) => state,
        };
        Row {
            call_id: self.call_id,
            seq: self.seq,
            function: function.to_owned(),
            input: self.input,
            position,
            state,
        }
    }
}

/// What a task reports.
pub(super) enum Event {
    /// A call was executed.
    Finished { index: usize, result: Result<Output, FunctionError> },
    /// A question was answered.
    Answered { index: usize, answer: Result<Answer, HookError> },
}

/// The question that is open. Dropping it tells the hook that it is void.
pub(super) struct Asked {
    pub(super) index: usize,
    pub(super) expires_at: Option<Instant>,
    _void: DropGuard,
}

/// The tasks of one run. Dropping them tells each that nobody waits; they end within the grace time.
pub(super) struct Tasks {
    events: mpsc::UnboundedReceiver<Event>,
    report: mpsc::UnboundedSender<Event>,
    stop: CancellationToken,
    _stop_at_drop: DropGuard,
    executing: usize,
}

impl Tasks {
    pub(super) fn new() -> Self {
        let (report, events) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        Self { events, report, _stop_at_drop: stop.clone().drop_guard(), stop, executing: 0 }
    }

    /// Calls that were started and have not reported.
    pub(super) fn executing(&self) -> usize {
        self.executing
    }

    /// The next report. There may never be one.
    pub(super) async fn next(&mut self) -> Event {
        match self.events.recv().await {
            Some(event) => self.count(event),
            // Cannot happen while we hold a sender.
            None => std::future::pending().await,
        }
    }

    /// A report that is there already.
    pub(super) fn arrived(&mut self) -> Option<Event> {
        let event = self.events.try_recv().ok()?;
        Some(self.count(event))
    }

    fn count(&mut self, event: Event) -> Event {
        if matches!(event, Event::Finished { .. }) {
            self.executing -= 1;
        }
        event
    }

    /// Tells every call that is being executed that nobody waits for it.
    pub(super) fn cancel(&self) {
        self.stop.cancel();
    }

    pub(super) fn execute(
        &mut self,
        index: usize,
        function: &Function,
        input: Json,
        mut context: CallContext,
    ) {
        self.executing += 1;
        context.cancellation = self.stop.child_token();
        let told = context.cancellation.clone();
        let function = function.clone();
        let report = Report {
            to: self.report.clone(),
            event: Some(Event::Finished { index, result: Err(FunctionError::new("the function panicked")) }),
        };
        tokio::spawn(async move {
            tokio::select! {
                result = async { function.call(input, context).await } => {
                    report.send(Event::Finished { index, result });
                }
                // Nothing is reported: nobody knows whether it happened.
                () = grace(told) => report.forget(),
            }
        });
    }

    pub(super) fn ask(
        &self,
        index: usize,
        hook: &Arc<dyn OnApproval>,
        mut request: ApprovalRequest,
        expires_after: Option<Duration>,
    ) -> Asked {
        let void = self.stop.child_token();
        request.cancellation = void.clone();
        let told = void.clone();
        let hook = Arc::clone(hook);
        let panicked = Err(HookError("the approval hook panicked".to_owned()));
        let report =
            Report { to: self.report.clone(), event: Some(Event::Answered { index, answer: panicked }) };
        tokio::spawn(async move {
            tokio::select! {
                answer = async { hook.ask(request).await } => {
                    report.send(Event::Answered { index, answer });
                }
                () = grace(told) => report.forget(),
            }
        });
        // A duration beyond the clock's range is no expiry.
        let expires_at = expires_after.and_then(clock::after);
        Asked { index, expires_at, _void: void.drop_guard() }
    }
}

async fn grace(told: CancellationToken) {
    told.cancelled().await;
    tokio::time::sleep(GRACE).await;
}

/// Reports when it is dropped, which a panic does too.
struct Report {
    to: mpsc::UnboundedSender<Event>,
    event: Option<Event>,
}

impl Report {
    fn send(mut self, event: Event) {
        self.event = Some(event);
    }

    fn forget(mut self) {
        self.event = None;
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            // The run may be over; then nobody wants to know.
            drop(self.to.send(event));
        }
    }
}
