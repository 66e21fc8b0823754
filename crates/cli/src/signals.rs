//! Ctrl-C and its kin.

use std::future::poll_fn;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Error;

/// The signals that ask a program to end. From its making on they do not end the process by themselves.
pub(crate) struct Interrupts(Vec<Signal>);

impl Interrupts {
    /// INT and TERM. A hang-up keeps its meaning, so that `nohup` works.
    pub(crate) fn new() -> Result<Self, Error> {
        Self::of(&[SignalKind::interrupt(), SignalKind::terminate()])
    }

    /// Also a terminal that closes, for a command that has something to clean up.
    pub(crate) fn with_hangup() -> Result<Self, Error> {
        Self::of(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])
    }

    fn of(kinds: &[SignalKind]) -> Result<Self, Error> {
        let signals = kinds.iter().map(|kind| signal(*kind)).collect::<Result<_, _>>();
        Ok(Self(signals.map_err(Error::io("cannot listen to signals"))?))
    }

    /// Waits for the next.
    pub(crate) async fn next(&mut self) {
        poll_fn(|cx| {
            let ready = self.0.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
            if ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
