//! Bodies of answers: a whole text, or the events of a run as they happen (contract 1.8).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use countersign_driver::EventStream;
use countersign_protocol::event::Event;
use countersign_protocol::{sse, version};
use futures_core::Stream;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::slots::Slot;
use crate::wire::{PeerWatch, Signals};

const HEARTBEAT: Duration = Duration::from_millis(version::HEARTBEAT_MS);

/// The body of an answer.
pub(crate) enum AnswerBody {
    /// All of it.
    Whole(Bytes),
    /// The events of a run. Boxed, because most answers are not runs.
    Events(Box<EventBody>),
}

/// A run ended without a terminal event, so its answer cannot be ended properly: the connection is destroyed.
#[derive(Debug, thiserror::Error)]
#[error("the run's events ended without a terminal event")]
pub(crate) struct Unfinished;

impl From<Infallible> for Unfinished {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Unfinished;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unfinished>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Events(events) => events.poll_frame(cx).map(|next| next.map(|sent| sent.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Events(events) => events.ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// The events of a run. Dropping it cancels the run and gives its slot back.
pub(crate) struct EventBody {
    events: EventStream,
    /// The event that was awaited before the headers were sent.
    first: Option<Event>,
    ended: bool,
    heartbeat: Pin<Box<Sleep>>,
    signals: Arc<Signals>,
    _watch: PeerWatch,
    _slot: Slot,
}

impl EventBody {
    pub(crate) fn new(
        first: Event,
        events: EventStream,
        signals: Arc<Signals>,
        watch: PeerWatch,
        slot: Slot,
    ) -> Self {
        Self {
            events,
            first: Some(first),
            ended: false,
            heartbeat: Box::pin(sleep_until(Instant::now() + HEARTBEAT)),
            signals,
            _watch: watch,
            _slot: slot,
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Unfinished>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if self.signals.is_back_pressured() {
            // Not asking for the next event is what holds the run back. The connection wakes this task once the frame
            // before is written; a heartbeat that falls due until then is left out.
            while self.poll_heartbeat(cx).is_ready() {}
            return Poll::Pending;
        }
        let next = match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => Pin::new(&mut self.events).poll_next(cx),
        };
        match next {
            Poll::Ready(Some(event)) => {
                self.ended = event.is_terminal();
                let mut frame = Vec::new();
                sse::encode_frame(&event, &mut frame);
                Poll::Ready(Some(Ok(self.hand_over(frame.into()))))
            }
            Poll::Ready(None) => {
                self.ended = true;
                Poll::Ready(Some(Err(Unfinished)))
            }
            Poll::Pending if self.poll_heartbeat(cx).is_ready() => {
                Poll::Ready(Some(Ok(self.hand_over(Bytes::from_static(sse::HEARTBEAT)))))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn hand_over(&self, frame: Bytes) -> Bytes {
        self.signals.frame_handed_over();
        frame
    }

    /// Ready once every 15 s, counted from the last time it was due.
    fn poll_heartbeat(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let due = self.heartbeat.as_mut().poll(cx);
        if due.is_ready() {
            let (next, now) = (self.heartbeat.deadline() + HEARTBEAT, Instant::now());
            // After a long sleep of the machine one heartbeat stands for all that were missed.
            self.heartbeat.as_mut().reset(if next > now { next } else { now + HEARTBEAT });
        }
        due
    }
}
