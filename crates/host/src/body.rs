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

use crate::metrics::OpenStreams;
use crate::service::Shared;
use crate::slots::Admission;
use crate::wire::{PeerWatch, Signals};

const HEARTBEAT: Duration = Duration::from_millis(version::HEARTBEAT_MS);
/// Heartbeats of all streams fall on multiples of this, so that many are due at once and share one wake-up.
const BEAT_MS: u128 = 50;
/// Frames are gathered into one write until they are as long as this.
const TOGETHER_BYTES: usize = 4 * 1024;

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
            Self::Events(events) => events.ended && events.first.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// The events of a run. Dropping it cancels the run and gives its slot, or its place in the queue, back.
pub(crate) struct EventBody {
    events: EventStream,
    /// The frame of the event that was awaited before the headers were sent.
    first: Option<Bytes>,
    ended: bool,
    heartbeat: Pin<Box<Sleep>>,
    signals: Arc<Signals>,
    _watch: PeerWatch,
    _open: OpenStreams,
    admission: Admission,
}

impl EventBody {
    pub(crate) fn new(
        shared: &Shared,
        first: &Event,
        events: EventStream,
        signals: Arc<Signals>,
        watch: PeerWatch,
        admission: Admission,
    ) -> Self {
        let mut frame = Vec::new();
        sse::encode_frame(first, &mut frame);
        Self {
            events,
            first: Some(frame.into()),
            ended: first.is_terminal(),
            heartbeat: Box::pin(sleep_until(next_beat(shared.started, Instant::now() + HEARTBEAT))),
            signals,
            _watch: watch,
            _open: shared.streams.clone(),
            admission,
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Unfinished>>> {
        self.signals.body_polled();
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(self.hand_over(first))));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        if self.signals.is_back_pressured() {
            // Not asking for the next event is what holds the run back. The connection polls this again once the frame
            // before is written; a heartbeat that falls due until then is left out.
            while self.poll_heartbeat(cx).is_ready() {}
            return Poll::Pending;
        }
        self.poll_admission(cx);
        match Pin::new(&mut self.events).poll_next(cx) {
            Poll::Ready(Some(event)) => {
                let frames = self.frames(&event);
                Poll::Ready(Some(Ok(self.hand_over(frames))))
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

    /// Lets the run go on when its turn has come.
    fn poll_admission(&mut self, cx: &mut Context<'_>) {
        if let Admission::Later(place) = &mut self.admission
            && let Poll::Ready(slot) = Pin::new(place).poll(cx)
        {
            self.admission = Admission::Now(slot);
            self.events.admit();
        }
    }

    /// The frame of an event, and of those that were handed over with it: they are one write.
    fn frames(&mut self, first: &Event) -> Bytes {
        let mut frames = Vec::with_capacity(TOGETHER_BYTES / 4);
        sse::encode_frame(first, &mut frames);
        self.ended = first.is_terminal();
        while frames.len() < TOGETHER_BYTES
            && let Some(event) = self.events.next_ready()
        {
            sse::encode_frame(&event, &mut frames);
            self.ended = event.is_terminal();
        }
        frames.into()
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

/// The first beat at or after `due`.
fn next_beat(origin: Instant, due: Instant) -> Instant {
    let rest = due.saturating_duration_since(origin).as_millis() % BEAT_MS;
    due + Duration::from_millis(u64::try_from((BEAT_MS - rest) % BEAT_MS).unwrap_or(0))
}
