//! The hand-over of events: pulled (design 4).
//!
//! The run may place an event only where the consumer has made room for one, so it never gets ahead of its consumer by
//! more than the consumer allowed. And "the consumer took everything and asks for more" is something that the run can
//! wait for: before every effect it does.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use countersign_protocol::event::Event;
use futures_core::Stream;
use tokio_util::sync::CancellationToken;

/// The events of one run, in order; the last one is terminal. Dropping it cancels the run and settles its review
/// (law 5).
#[must_use = "dropping the stream cancels the run"]
pub struct EventStream {
    shared: Arc<Shared>,
    cancellation: CancellationToken,
    /// How many events may be handed over each time that the consumer asks.
    room: usize,
}

/// The run's end of the stream. When it is dropped the stream ends.
#[derive(Debug)]
pub(crate) struct Outlet {
    shared: Arc<Shared>,
}

/// The consumer has gone: nothing can be delivered any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Handed over and not yet taken.
    ready: VecDeque<Event>,
    /// The consumer took all that was ready, and waits for more.
    asked: bool,
    /// How many more may be handed over before the consumer asks again.
    room: usize,
    /// The run may not go on after its first event, see [`EventStream::hold`].
    held: bool,
    consumer_gone: bool,
    finished: bool,
    consumer: Option<Waker>,
    run: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held; a poisoned state is still a whole one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both ends of a new stream. `cancellation` is what dropping the consumer's end cancels.
pub(crate) fn channel(cancellation: CancellationToken) -> (Outlet, EventStream) {
    let shared = Arc::new(Shared::default());
    (Outlet { shared: Arc::clone(&shared) }, EventStream { shared, cancellation, room: 1 })
}

impl Outlet {
    /// Waits until the consumer has taken every event and asks for more. It stays asked until [`place`](Self::place).
    pub(crate) async fn asked(&self) -> Result<(), Gone> {
        self.until(|state| state.asked).await
    }

    /// Waits until an event may be handed over, though the consumer may not have taken the ones before it.
    pub(crate) async fn room(&self) -> Result<(), Gone> {
        self.until(|state| state.room > 0).await
    }

    /// Waits until the run may go on after its first event.
    pub(crate) async fn admitted(&self) -> Result<(), Gone> {
        self.until(|state| !state.held).await
    }

    /// Hands an event over. Call it after [`asked`](Self::asked) or [`room`](Self::room).
    pub(crate) fn place(&self, event: Event) {
        let waker = {
            let mut state = self.shared.lock();
            state.ready.push_back(event);
            state.asked = false;
            state.room = state.room.saturating_sub(1);
            state.consumer.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Only the run's task waits here, for one thing at a time, so one waker is enough.
    async fn until(&self, holds: impl Fn(&State) -> bool) -> Result<(), Gone> {
        std::future::poll_fn(|cx| {
            let mut state = self.shared.lock();
            if state.consumer_gone {
                return Poll::Ready(Err(Gone));
            }
            if holds(&state) {
                return Poll::Ready(Ok(()));
            }
            keep(&mut state.run, cx);
            Poll::Pending
        })
        .await
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.shared.lock();
            state.finished = true;
            state.consumer.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl EventStream {
    /// The next event; none after the terminal one. Asking is what lets the run go on: an approved call starts only
    /// after `approval.resolved` was taken and the next event was asked for.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Lets the run hand over up to `events` events (at least one) each time that it is asked for more, for a consumer
    /// that passes them on together, see [`next_ready`](Self::next_ready). Effects are never anticipated: no tool is
    /// called and no review opened before every event but the last was taken, and an approved call waits for that one
    /// too.
    pub fn read_ahead(&mut self, events: usize) {
        self.room = events.max(1);
    }

    /// Keeps the run from going on after its first event, `run.started`, until [`admit`](Self::admit), for a host whose
    /// runs wait in a queue (contract 6.4). Its idle clock stands still meanwhile. Call it before the first event is
    /// asked for: a run that has begun is not held. A held run can be cancelled.
    pub fn hold(&mut self) {
        self.shared.lock().held = true;
    }

    /// Lets a held run go on: its idle clock starts.
    pub fn admit(&mut self) {
        let run = {
            let mut state = self.shared.lock();
            state.held = false;
            state.run.take()
        };
        if let Some(run) = run {
            run.wake();
        }
    }

    /// An event that was handed over already. It asks for nothing, so the run does not go on.
    pub fn next_ready(&mut self) -> Option<Event> {
        self.shared.lock().take()
    }

    /// Cancels the run; its last events can still be read.
    pub fn cancel(&self) {
        self.cancellation.cancel();
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let run = {
            let mut state = self.shared.lock();
            if let Some(event) = state.take() {
                return Poll::Ready(Some(event));
            }
            if state.finished {
                return Poll::Ready(None);
            }
            keep(&mut state.consumer, cx);
            if state.asked {
                None
            } else {
                state.asked = true;
                state.room = self.room;
                state.run.take()
            }
        };
        if let Some(run) = run {
            run.wake();
        }
        Poll::Pending
    }
}

impl State {
    fn take(&mut self) -> Option<Event> {
        let event = self.ready.pop_front();
        if self.ready.is_empty() {
            // A waiting run keeps no space for events.
            self.ready = VecDeque::new();
        }
        event
    }
}

/// Remembers whom to wake.
fn keep(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}

impl Stream for EventStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.poll_event(cx)
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        let run = {
            let mut state = self.shared.lock();
            state.consumer_gone = true;
            state.run.take()
        };
        self.cancellation.cancel();
        if let Some(run) = run {
            run.wake();
        }
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").finish_non_exhaustive()
    }
}
