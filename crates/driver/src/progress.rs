//! The hand-over of progress from whatever works (a model, a tool) to its run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A flag that says "work went on since you last looked", and wakes the run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    reported: AtomicBool,
    changed: Notify,
}

impl Progress {
    /// Says that work goes on.
    pub(crate) fn report(&self) {
        self.0.reported.store(true, Ordering::Release);
        self.0.changed.notify_one();
    }

    /// Waits until something was reported, and takes it.
    pub(crate) async fn reported(&self) {
        while !self.0.reported.swap(false, Ordering::AcqRel) {
            self.0.changed.notified().await;
        }
    }
}
