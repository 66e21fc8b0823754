//! How many connections at once, and which of them goes when there are too many (law 9).
//!
//! Whoever only connects costs a descriptor and memory, before anybody knows who he is. So connections have a bound, and
//! at the bound a newcomer takes the place of the connection that has waited for its next request the longest. One on
//! which a request is being answered keeps its place: a flood of idle connections ends neither a run nor a decision, and
//! does not keep a person's decision out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The log tells of a full host no more often than this.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The connections of a host.
#[derive(Debug)]
pub(crate) struct Seats {
    bound: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: usize,
    /// Those that wait for a request, by the time at which they began to: the oldest first.
    idle: BTreeMap<u64, Arc<Notify>>,
    next: u64,
    told: Option<Instant>,
}

/// The place of one connection, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    lost: Arc<Notify>,
    /// How much is being done for the peer.
    work: AtomicU32,
    /// Where it stands in `State::idle`, if it does.
    key: AtomicU64,
}

/// The place has gone to another.
#[derive(Debug)]
pub(crate) struct Lost;

impl Seats {
    pub(crate) fn new(bound: usize) -> Arc<Self> {
        Arc::new(Self { bound, state: Mutex::default() })
    }

    /// A place for a new connection; none if all are taken by connections that are being answered.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Seat> {
        let mut state = self.state();
        if state.open >= self.bound {
            state.tell(self.bound);
            let (_, lost) = state.idle.pop_first()?;
            lost.notify_one();
        }
        state.open += 1;
        let lost = Arc::new(Notify::new());
        let key = AtomicU64::new(state.sit(&lost));
        drop(state);
        Some(Seat { seats: Arc::clone(self), lost, work: AtomicU32::new(0), key })
    }

    /// Ends the connection that has waited the longest, where the system has no room for another.
    pub(crate) fn make_room(&self) {
        if let Some((_, lost)) = self.state().idle.pop_first() {
            lost.notify_one();
        }
    }

    // A panic while the lock is held cannot leave the state half changed, so a poisoned lock is still right.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn sit(&mut self, lost: &Arc<Notify>) -> u64 {
        let key = self.next;
        self.next += 1;
        self.idle.insert(key, Arc::clone(lost));
        key
    }

    fn tell(&mut self, bound: usize) {
        let now = Instant::now();
        if self.told.is_none_or(|told| now >= told + TELL_EVERY) {
            self.told = Some(now);
            tracing::warn!(
                bound,
                "as many connections as there may be: those that wait for a request make room"
            );
        }
    }
}

impl Seat {
    /// Returns when the place has gone to another.
    pub(crate) async fn lost(&self) {
        self.lost.notified().await;
    }

    /// Something is being done for the peer, who keeps his place until as many calls of [`rest`](Self::rest).
    ///
    /// # Errors
    /// [`Lost`] if the place has gone to another; then nothing must be done any more, for nobody would learn of it.
    pub(crate) fn work(&self) -> Result<(), Lost> {
        if self.work.fetch_add(1, Relaxed) > 0 {
            return Ok(());
        }
        if self.seats.state().idle.remove(&self.key.load(Relaxed)).is_some() {
            return Ok(());
        }
        self.work.fetch_sub(1, Relaxed);
        Err(Lost)
    }

    /// See [`work`](Self::work).
    pub(crate) fn rest(&self) {
        if self.work.fetch_sub(1, Relaxed) == 1 {
            self.key.store(self.seats.state().sit(&self.lost), Relaxed);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.seats.state();
        state.open -= 1;
        state.idle.remove(&self.key.load(Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_lost(seat: &Seat) -> bool {
        let mut lost = std::pin::pin!(seat.lost());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        lost.as_mut().poll(&mut cx).is_ready()
    }

    // Law 9: at the bound the longest idle one goes, and none that is being answered.
    #[tokio::test]
    async fn the_longest_idle_one_makes_room() {
        let seats = Seats::new(3);
        let (first, second, third) = (seats.take().unwrap(), seats.take().unwrap(), seats.take().unwrap());
        first.work().unwrap();
        first.work().unwrap();
        first.rest();
        let fourth = seats.take().unwrap();
        assert_eq!([&first, &second, &third, &fourth].map(is_lost), [false, true, false, false]);
        // What it was about to ask for is not done.
        assert!(second.work().is_err());
        drop(second);
        // Whoever was answered last has waited the shortest.
        first.rest();
        let fifth = seats.take().unwrap();
        assert_eq!([&first, &third, &fourth, &fifth].map(is_lost), [false, true, false, false]);
        drop(third);
        for busy in [&first, &fourth, &fifth] {
            busy.work().unwrap();
        }
        assert!(seats.take().is_none(), "all are being answered");
        drop(fourth);
        let sixth = seats.take().unwrap();
        assert!(!is_lost(&sixth));
        sixth.work().unwrap();
        assert!(seats.take().is_none());
        drop((first, fifth, sixth));
        let state = seats.state();
        assert_eq!((state.open, state.idle.len()), (0, 0), "nothing is left behind");
    }
}
