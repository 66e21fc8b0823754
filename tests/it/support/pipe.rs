//! A narrow pipe with a gate: what a client that reads slowly, or not at all, is to its host.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, split};
use tokio::sync::watch;

/// Fewer bytes than any frame has, so that a shut gate leaves a frame half written.
const NARROW: usize = 64;

/// Shut, it stops everything that the host sends; what the client sends passes always.
#[derive(Debug, Clone)]
pub(crate) struct Gate(watch::Sender<State>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Shut,
}

impl Gate {
    pub(crate) fn open() -> Self {
        Self(watch::Sender::new(State::Open))
    }

    pub(crate) fn shut(&self) {
        self.0.send_replace(State::Shut);
    }

    pub(crate) fn reopen(&self) {
        self.0.send_replace(State::Open);
    }

    /// Puts the gate into a connection, and returns the host's end of it.
    pub(crate) fn pump(&self, client_end: DuplexStream) -> DuplexStream {
        let (near, host_end) = tokio::io::duplex(NARROW);
        let (from_client, to_client) = split(client_end);
        let (from_host, to_host) = split(near);
        let state = self.0.subscribe();
        tokio::spawn(async move {
            // The connection is over when either side is: half of one is of no use to HTTP here.
            tokio::select! {
                () = copy(from_client, to_host, None) => {}
                () = copy(from_host, to_client, Some(state)) => {}
            }
        });
        host_end
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut gate: Option<watch::Receiver<State>>,
) {
    let mut chunk = [0; NARROW];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        if let Some(gate) = &mut gate {
            // With nobody left to open or shut it, the gate is as it was left.
            let _ = gate.wait_for(|state| *state == State::Open).await;
        }
        if to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}
