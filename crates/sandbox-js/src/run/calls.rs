//! The calls of a run, and the tasks that execute them and ask about them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::relay;
use crate::approval::{Answer, ApprovalRequest, HookError, OnApproval};
use crate::clock;
use crate::engine::NewCall;
use crate::function::{BoxFuture, CallContext, Function, FunctionError};
use crate::ids::{CallId, RunId};
use crate::outcome::{Row, RowState};
use crate::pool;
use crate::source::Position;
use crate::value::{Json, Output};

/// How long a task goes on after it was told that nobody waits (decision 0006).
const GRACE: Duration = Duration::from_secs(5);

/// A call and where it stands.
pub(super) struct Call {
    pub(super) seq: u32,
    /// The engine's number of it.
    pub(super) number: u32,
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
    /// The call that comes after `before` others.
    pub(super) fn new(before: usize, new: NewCall) -> Self {
        let seq = seq_of(before);
        Self {
            seq,
            number: new.number,
            function: new.function,
            input: Json::of_exact(new.input),
            at: new.at,
            state: State::Waiting,
        }
    }

    /// The creation counter is `seq` here; with `collect` the two part.
    pub(super) fn call_id(&self, run: RunId) -> CallId {
        run.call(self.seq)
    }

    pub(super) fn context(&self, run_id: RunId, cancellation: CancellationToken) -> CallContext {
        CallContext {
            run_id,
            call_id: self.call_id(run_id),
            // A replay executes nothing, so in `deny` and `pause` no call is ever executed twice. It becomes more when
            // somebody declares an uncertain attempt not executed (sandbox spec R8.3), which comes with `collect`.
            attempt: 1,
            cancellation,
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
            call_id: self.call_id(run_id),
            seq: self.seq,
            function: function.to_owned(),
            input: self.input.clone(),
            position,
            cancellation: CancellationToken::new(),
        }
    }

    pub(super) fn row(self, run_id: RunId, function: &str, position: Option<Position>) -> Row {
        let call_id = self.call_id(run_id);
        let state = match self.state {
            State::Waiting => RowState::Discarded,
            State::Executing => RowState::Uncertain,
            State::Ended(state) => state,
        };
        Row { call_id, seq: self.seq, function: function.to_owned(), input: self.input, position, state }
    }
}

/// `seq` of the call that comes after `before` others.
pub(super) fn seq_of(before: usize) -> u32 {
    u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1)
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

/// What tasks reported. (A channel would set aside kilobytes for each run that waits.)
#[derive(Default)]
struct Inbox {
    events: Mutex<VecDeque<Event>>,
    bell: Notify,
}

impl Inbox {
    fn events(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tasks of one run. Dropping them tells each that nobody waits; they end within the grace time.
pub(super) struct Tasks {
    inbox: Arc<Inbox>,
    stop: CancellationToken,
    _stop_at_drop: DropGuard,
    executing: usize,
    /// Calls that were not ready at once, until the run is back at its task.
    unspawned: Vec<Unspawned>,
}

/// A call that is to become a task.
struct Unspawned {
    work: BoxFuture<Result<Output, FunctionError>>,
    index: usize,
    told: CancellationToken,
    report: Report,
}

impl Unspawned {
    fn spawn(self) {
        let Self { work, index, told, report } = self;
        tokio::spawn(async move {
            tokio::select! {
                result = work => report.send(Event::Finished { index, result }),
                // Nothing is reported: nobody knows whether it happened.
                () = grace(told) => report.forget(),
            }
        });
    }
}

impl Tasks {
    pub(super) fn new() -> Self {
        let stop = CancellationToken::new();
        Self {
            inbox: Arc::default(),
            _stop_at_drop: stop.clone().drop_guard(),
            stop,
            executing: 0,
            unspawned: Vec::new(),
        }
    }

    /// Tells a call that nobody waits.
    pub(super) fn cancellation(&self) -> CancellationToken {
        self.stop.child_token()
    }

    /// Calls that were started and have not reported.
    pub(super) fn executing(&self) -> usize {
        self.executing
    }

    /// The next report. There may never be one.
    pub(super) async fn next(&mut self) -> Event {
        self.spawn().await;
        loop {
            if let Some(event) = self.arrived() {
                return event;
            }
            self.inbox.bell.notified().await;
        }
    }

    /// Makes tasks of the calls that were not ready at once, from the run's own task. They had their turn, as a task's first:
    /// what is there is told before they have another.
    pub(super) async fn spawn(&mut self) {
        if !self.unspawned.is_empty() {
            relay::home().await;
            self.unspawned.drain(..).for_each(Unspawned::spawn);
        }
    }

    /// A report that is there already.
    pub(super) fn arrived(&mut self) -> Option<Event> {
        let event = self.inbox.events().pop_front()?;
        Some(self.count(event))
    }

    fn count(&mut self, event: Event) -> Event {
        if matches!(event, Event::Finished { .. }) {
            self.executing -= 1;
        }
        event
    }

    /// Gives back room for more reports.
    pub(super) fn shrink(&self) {
        self.inbox.events().shrink_to_fit();
    }

    /// Tells every call that is being executed that nobody waits for it.
    pub(super) fn cancel(&self) {
        self.stop.cancel();
    }

    pub(super) fn execute(&mut self, index: usize, function: &Function, input: Json, context: CallContext) {
        self.executing += 1;
        let function = function.clone();
        let mut work: BoxFuture<_> = Box::pin(async move { function.call(input, context).await });
        let report = Report {
            to: Arc::clone(&self.inbox),
            event: Some(Event::Finished { index, result: Err(FunctionError::new("the function panicked")) }),
        };
        if pool::is_carrying() {
            // What is ready at once needs no task. A panic is reported like one in a task.
            let mut looks = Context::from_waker(Waker::noop());
            match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut looks))) {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(result)) => return report.send(Event::Finished { index, result }),
                Err(_) => return,
            }
        }
        // Not the handler's own: if it cancels that, it is still waited for.
        let call = Unspawned { work, index, told: self.stop.child_token(), report };
        match pool::is_carrying() {
            true => self.unspawned.push(call),
            false => call.spawn(),
        }
    }

    pub(super) fn ask(
        &self,
        index: usize,
        hook: &Arc<dyn OnApproval>,
        mut request: ApprovalRequest,
        expires_after: Option<Duration>,
    ) -> Asked {
        let void = self.stop.child_token();
        request.cancellation = void.child_token();
        let told = void.clone();
        let hook = Arc::clone(hook);
        let panicked = Err(HookError("the approval hook panicked".to_owned()));
        let report =
            Report { to: Arc::clone(&self.inbox), event: Some(Event::Answered { index, answer: panicked }) };
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
    to: Arc<Inbox>,
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
            self.to.events().push_back(event);
            self.to.bell.notify_one();
        }
    }
}
