//! [`Relay`]: lets the thread on which a step ended carry its run on. Handing the run back to its task, which hands the next
//! step to a thread, costs many times what a short step does.
//!
//! Invariant: one thread at a time has the work. Whoever wants it meanwhile leaves a note, and is woken when it is put back.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Handle;

use crate::clock;
use crate::error::Error;
use crate::function::BoxFuture;
use crate::outcome::RunOutcome;
use crate::pool::{self, Carry};

type Outcome = Result<RunOutcome, Error>;
type Work = BoxFuture<Outcome>;

/// A run's work, awaited by a task and carried on by engine threads. Dropping it drops the work.
pub(crate) struct Relay(Arc<Shared>);

struct Shared {
    runtime: Handle,
    state: Mutex<State>,
}

struct State {
    stage: Stage,
    /// Of the task that awaits it.
    task: Option<Waker>,
}

enum Stage {
    Resting(Work),
    /// A thread has it.
    Polled,
    /// A thread has it, and it shall be looked at once more.
    PolledAgain,
    Ended(Box<Outcome>),
    Panicked(Box<dyn Any + Send>),
    /// Nobody awaits it any more, or it was answered.
    Gone,
}

impl Relay {
    pub(crate) fn new(runtime: Handle, work: Work) -> Self {
        let state = State { stage: Stage::Resting(work), task: None };
        Self(Arc::new(Shared { runtime, state: Mutex::new(state) }))
    }
}

/// Goes on in the run's own task, where tasks that need not wait can get their turn.
pub(super) async fn home() {
    std::future::poll_fn(|context| match pool::is_carrying() {
        true => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        false => Poll::Ready(()),
    })
    .await;
}

impl Future for Relay {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        {
            let mut state = self.0.state();
            if !state.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
                state.task = Some(context.waker().clone());
            }
        }
        self.0.poll();
        let mut state = self.0.state();
        match std::mem::replace(&mut state.stage, Stage::Gone) {
            Stage::Ended(outcome) => Poll::Ready(*outcome),
            Stage::Panicked(panic) => {
                drop(state);
                resume_unwind(panic)
            }
            stage => {
                state.stage = stage;
                Poll::Pending
            }
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let mut state = self.0.state();
        let stage = std::mem::replace(&mut state.stage, Stage::Gone);
        state.task = None;
        drop(state);
        // Not under the lock: it wakes others.
        drop(stage);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls the work once, unless another thread has it.
    fn poll(self: &Arc<Self>) {
        let mut state = self.state();
        let mut work = match std::mem::replace(&mut state.stage, Stage::Polled) {
            Stage::Resting(work) => work,
            Stage::Polled | Stage::PolledAgain => {
                state.stage = Stage::PolledAgain;
                return;
            }
            over => {
                state.stage = over;
                return;
            }
        };
        drop(state);
        let waker = Waker::from(Arc::clone(self));
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut context)));
        let mut state = self.state();
        if matches!(state.stage, Stage::Gone) {
            drop(state);
            drop(work);
            return;
        }
        let again = matches!(state.stage, Stage::PolledAgain);
        let (stage, tell) = match polled {
            Ok(Poll::Pending) => (Stage::Resting(work), again),
            Ok(Poll::Ready(outcome)) => (Stage::Ended(Box::new(outcome)), true),
            Err(panic) => (Stage::Panicked(panic), true),
        };
        state.stage = stage;
        drop(state);
        if tell {
            self.wake_task();
        }
    }

    fn wake_task(&self) {
        let task = self.state().task.clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        if let Err(elsewhere) = pool::carry_on_here(self) {
            elsewhere.wake_task();
        }
    }
}

impl Carry for Shared {
    fn carry_on(self: Arc<Self>) {
        let _entered = self.runtime.enter();
        // A clock that a test stopped jumps when its runtime has nothing to do, and the runtime does not see this thread.
        match clock::is_real() {
            true => self.poll(),
            false => self.wake_task(),
        }
    }
}
