//! What a model says while it speaks: the queue between a provider and its run (contract 8).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_protocol::event::{EventBody, Phase};

use crate::progress::Progress;
use crate::provider::TurnSink;

/// Contract 8: more queued events or bytes of text than this abort the run.
const MAX_QUEUED: usize = 1_024;
const MAX_QUEUED_BYTES: usize = 2_000_000;

/// `run.progress` is shown at most this often for one model or tool call.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// The queue of one model turn. The provider fills it, the run empties it.
#[derive(Debug, Default)]
pub(crate) struct TurnQueue {
    progress: Progress,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queued: VecDeque<Queued>,
    bytes: usize,
    streamed: bool,
    reported: bool,
    overflow: bool,
}

#[derive(Debug)]
enum Queued {
    Text(String),
    Progress,
}

impl TurnQueue {
    /// Waits until the provider said anything since the last call.
    pub(crate) async fn spoke(&self) {
        self.progress.reported().await;
    }

    /// Whether an event is waiting to be handed over.
    pub(crate) fn has_event(&self) -> bool {
        !self.lock().queued.is_empty()
    }

    /// The next event to hand over.
    pub(crate) fn take_event(&self) -> Option<EventBody> {
        let mut state = self.lock();
        Some(match state.queued.pop_front()? {
            Queued::Text(text) => {
                state.bytes -= text.len();
                EventBody::TextDelta { text }
            }
            Queued::Progress => EventBody::RunProgress { phase: Phase::Model },
        })
    }

    /// Whether progress other than text was reported since the last call.
    pub(crate) fn take_report(&self) -> bool {
        std::mem::take(&mut self.lock().reported)
    }

    /// Queues a `run.progress`.
    pub(crate) fn queue_progress(&self) {
        self.lock().queued.push_back(Queued::Progress);
    }

    /// Whether any text was streamed.
    pub(crate) fn streamed(&self) -> bool {
        self.lock().streamed
    }

    /// Whether the consumer fell too far behind.
    pub(crate) fn overflowed(&self) -> bool {
        self.lock().overflow
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnSink for TurnQueue {
    fn text(&self, piece: &str) {
        if piece.is_empty() {
            return;
        }
        {
            let mut state = self.lock();
            if state.bytes + piece.len() > MAX_QUEUED_BYTES || state.queued.len() >= MAX_QUEUED {
                state.overflow = true;
            } else {
                state.bytes += piece.len();
                state.streamed = true;
                match state.queued.back_mut() {
                    // Adjacent text that nobody has taken yet is one event.
                    Some(Queued::Text(text)) => text.push_str(piece),
                    _ => state.queued.push_back(Queued::Text(piece.to_owned())),
                }
            }
        }
        self.progress.report();
    }

    fn progress(&self) {
        self.lock().reported = true;
        self.progress.report();
    }
}

/// Decides which progress reports become events: the first of a phase at once, later ones once a second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Throttle {
    last: Option<Duration>,
}

impl Throttle {
    /// Whether a report made now is shown.
    pub(crate) fn admit(&mut self, now: Duration) -> bool {
        if self.last.is_some_and(|last| now.saturating_sub(last) < PROGRESS_EVERY) {
            return false;
        }
        self.last = Some(now);
        true
    }
}
