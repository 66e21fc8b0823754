//! The hand-over of events: pulled, one by one (design 4).
//!
//! The run may place an event only when the consumer has asked for one. So a run never gets ahead of its consumer,
//! and "the consumer took the last event and asks for more" is something that the run can wait for.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use countersign_protocol::event::Event;
use futures_core::Stream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The events of one run, in order; the last one is terminal. Dropping it cancels the run and settles its review
/// (law 5).
#[must_use = "dropping the stream cancels the run"]
pub struct EventStream {
    shared: Arc<Shared>,
    cancellation: CancellationToken,
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
    demanded: Notify,
}

#[derive(Debug, Default)]
struct State {
    slot: Option<Event>,
    /// The consumer waits for an event.
    demand: bool,
    consumer_gone: bool,
    finished: bool,
    waker: Option<Waker>,
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
    (Outlet { shared: Arc::clone(&shared) }, EventStream { shared, cancellation })
}

impl Outlet {
    /// Waits until the consumer asks for an event. It stays asked until [`place`](Self::place).
    pub(crate) async fn demand(&self) -> Result<(), Gone> {
        loop {
            {
                let state = self.shared.lock();
                if state.consumer_gone {
                    return Err(Gone);
                }
                if state.demand {
                    return Ok(());
                }
            }
            self.shared.demanded.notified().await;
        }
    }

    /// Hands an event over. Call it after [`demand`](Self::demand).
    pub(crate) fn place(&self, event: Event) {
        let waker = {
            let mut state = self.shared.lock();
            state.slot = Some(event);
            state.demand = false;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.shared.lock();
            state.finished = true;
            state.waker.take()
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

    /// Cancels the run; its last events can still be read.
    pub fn cancel(&self) {
        self.cancellation.cancel();
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        {
            let mut state = self.shared.lock();
            if let Some(event) = state.slot.take() {
                return Poll::Ready(Some(event));
            }
            if state.finished {
                return Poll::Ready(None);
            }
            state.demand = true;
            state.waker = Some(cx.waker().clone());
        }
        self.shared.demanded.notify_one();
        Poll::Pending
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
        self.shared.lock().consumer_gone = true;
        self.cancellation.cancel();
        self.shared.demanded.notify_one();
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").finish_non_exhaustive()
    }
}
