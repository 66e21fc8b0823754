//! Ctrl-C and its kin.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Error;

/// The signals that ask a program to end. From its making on they do not end the process by themselves.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    pub(crate) fn new() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(Error::io("cannot listen to signals"));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
