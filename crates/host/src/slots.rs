//! Run slots: how many runs at once, in total and for each subject, and who waits for one (contract 6.4).
//!
//! [`Line`](line::Line) decides, under one lock; this wraps it for the tasks that wait. A slot that becomes free is
//! handed to whoever is next before anybody else can take it, so a newcomer never overtakes.

mod line;

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use countersign_approval_core::ids::Subject;
use countersign_protocol::code::Code;
use tokio::sync::oneshot;

use crate::options::Concurrency;
use line::{Line, Ticket};

/// The slots of a host.
#[derive(Debug, Clone)]
pub(crate) struct Slots(Arc<Mutex<Line<oneshot::Sender<Slot>>>>);

/// One slot, given back when it is dropped: at the end of the HTTP exchange.
#[derive(Debug)]
#[must_use = "the slot is free again as soon as this is dropped"]
pub(crate) struct Slot {
    slots: Slots,
    subject: Subject,
}

/// A slot, or a place in the queue for one.
#[derive(Debug)]
pub(crate) enum Admission {
    Now(Slot),
    Later(Place),
}

/// A place in the queue: a future that gives the slot. Dropping it leaves the queue at once.
#[derive(Debug)]
#[must_use = "the place is given up as soon as this is dropped"]
pub(crate) struct Place {
    slots: Slots,
    subject: Subject,
    ticket: Ticket,
    granted: oneshot::Receiver<Slot>,
}

impl Slots {
    pub(crate) fn new(bounds: Concurrency) -> Self {
        Self(Arc::new(Mutex::new(Line::new(bounds))))
    }

    /// A slot or a place in the queue for it.
    ///
    /// # Errors
    /// `BUSY` if there is no queue, `QUEUE_FULL` if it has no place left.
    pub(crate) fn take(&self, subject: &Subject) -> Result<Admission, Code> {
        let mut line = self.line();
        if line.take(subject) {
            drop(line);
            return Ok(Admission::Now(Slot { slots: self.clone(), subject: subject.clone() }));
        }
        if !line.has_queue() {
            return Err(Code::BUSY);
        }
        let (grant, granted) = oneshot::channel();
        let ticket = line.wait(subject, grant).ok_or(Code::QUEUE_FULL)?;
        drop(line);
        Ok(Admission::Later(Place { slots: self.clone(), subject: subject.clone(), ticket, granted }))
    }

    /// How many wait in the queue.
    #[cfg(feature = "metrics")]
    pub(crate) fn waiting(&self) -> u32 {
        self.line().waiting()
    }

    // A panic while the lock is held cannot leave the counts half changed, so a poisoned lock is still right.
    fn line(&self) -> MutexGuard<'_, Line<oneshot::Sender<Slot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // The next one is taken out under the lock and told without it: who is told may be gone already, and then his
        // slot is dropped here and takes the lock again.
        let next = self.slots.line().give_back(&self.subject);
        if let Some((subject, grant)) = next {
            let _ = grant.send(Self { slots: self.slots.clone(), subject });
        }
    }
}

impl Future for Place {
    type Output = Slot;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Slot> {
        match Pin::new(&mut self.granted).poll(cx) {
            Poll::Ready(Ok(slot)) => Poll::Ready(slot),
            // The other end is dropped only by `Drop` below.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // If it is no longer there it was granted: the slot is in the channel, or on its way into it, and goes with it.
        let waiting = self.slots.line().leave(&self.subject, self.ticket);
        drop(waiting);
    }
}

#[cfg(test)]
mod tests;
