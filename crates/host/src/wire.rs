//! The connection as hyper sees it, with two things that a run must know about it and hyper does not tell: whether
//! everything was written, and whether the peer has gone.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::seats::{Lost, Seat};

/// How much a peer may send ahead while its run is being answered. More than that is no client of this protocol, and
/// reading no further would mean not to notice that it hangs up.
const AHEAD_BYTES: usize = 16 * 1024;
/// How long a peer may take nothing of an answer. The events of a run are not bound by it: their reader may be slow, and
/// what such a run may cost is bounded by its slot (contract 1.8).
const STALL: Duration = Duration::from_secs(30);

/// What the connection and the answer on it tell each other. Both live in one task, so the atomics order nothing.
#[derive(Debug)]
pub(crate) struct Signals {
    unflushed: AtomicBool,
    /// Everything was written since the answer's body was last polled.
    drained: AtomicBool,
    running: AtomicBool,
    unread: AtomicBool,
    arrived: Mutex<Option<Instant>>,
    seat: Seat,
}

impl Signals {
    pub(crate) fn new(seat: Seat) -> Self {
        Self {
            unflushed: AtomicBool::default(),
            drained: AtomicBool::default(),
            running: AtomicBool::default(),
            unread: AtomicBool::default(),
            arrived: Mutex::default(),
            seat,
        }
    }

    /// The connection's place among all.
    pub(crate) const fn seat(&self) -> &Seat {
        &self.seat
    }

    /// Until the guard is dropped the connection makes room for no other.
    ///
    /// # Errors
    /// [`Lost`] if it has done so.
    pub(crate) fn working(self: &Arc<Self>) -> Result<Working, Lost> {
        self.seat.work().map(|()| Working(Arc::clone(self)))
    }

    /// A frame was handed to hyper.
    pub(crate) fn frame_handed_over(&self) {
        self.unflushed.store(true, Relaxed);
    }

    /// The answer's body is polled and sees what was written so far.
    pub(crate) fn body_polled(&self) {
        self.drained.store(false, Relaxed);
    }

    /// Whether the answer's body has yet to learn that everything was written; it is asked once.
    pub(crate) fn take_drained(&self) -> bool {
        self.drained.load(Relaxed) && self.drained.swap(false, Relaxed)
    }

    /// Whether a frame that was handed over has not been written to the connection yet.
    pub(crate) fn is_back_pressured(&self) -> bool {
        self.unflushed.load(Relaxed)
    }

    /// From now on until the guard is dropped, a peer that hangs up ends the connection and all that hangs on it, and the
    /// connection makes room for no other.
    pub(crate) fn watch_peer(self: &Arc<Self>) -> PeerWatch {
        self.running.store(true, Relaxed);
        // Never none: whoever calls this works for the peer.
        PeerWatch { signals: Arc::clone(self), _working: self.working().ok() }
    }

    /// A request with a body has begun.
    pub(crate) fn body_expected(&self) {
        self.unread.store(true, Relaxed);
    }

    /// Its body came whole; the next byte starts a new request.
    pub(crate) fn body_read(&self) {
        self.unread.store(false, Relaxed);
        let _ = self.take_arrival();
    }

    /// Whether the request was answered before its body was read.
    pub(crate) fn is_body_unread(&self) -> bool {
        self.unread.load(Relaxed)
    }

    /// When the first byte of the current request came; it is asked once.
    pub(crate) fn take_arrival(&self) -> Instant {
        self.arrival().take().unwrap_or_else(Instant::now)
    }

    fn arrival(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Signals::working`].
#[derive(Debug)]
pub(crate) struct Working(Arc<Signals>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.seat.rest();
    }
}

/// See [`Signals::watch_peer`].
#[derive(Debug)]
pub(crate) struct PeerWatch {
    signals: Arc<Signals>,
    _working: Option<Working>,
}

impl Drop for PeerWatch {
    fn drop(&mut self) {
        self.signals.running.store(false, Relaxed);
    }
}

/// The connection.
#[derive(Debug)]
pub(crate) struct Wire<I> {
    io: I,
    ahead: Vec<u8>,
    /// Runs while the peer takes nothing.
    stall: Option<Pin<Box<Sleep>>>,
    signals: Arc<Signals>,
}

impl<I: AsyncRead + AsyncWrite + Unpin> Wire<I> {
    pub(crate) fn new(io: I, signals: Arc<Signals>) -> Self {
        Self { io, ahead: Vec::new(), stall: None, signals }
    }

    /// Gives up a peer that takes nothing of an answer for too long.
    fn patient<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() || self.signals.running.load(Relaxed) {
            self.stall = None;
            return written;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(STALL)));
        ready!(stall.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing of its answer")))
    }

    /// The connection itself, for what remains to be read of it.
    pub(crate) fn into_inner(self) -> I {
        self.io
    }

    /// While a run is being answered hyper does not read, so nobody would notice that the peer hangs up. It polls the
    /// write half each time that it is woken, though; this reads there. An end of input counts as hanging up, a
    /// half-closed connection too: the two look alike until something is written (contract 1.8).
    fn watch(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.signals.running.load(Relaxed) {
            let mut chunk = [MaybeUninit::uninit(); 1024];
            let mut chunk = ReadBuf::uninit(&mut chunk);
            match Pin::new(&mut self.io).poll_read(cx, &mut chunk) {
                Poll::Pending => return Ok(()),
                Poll::Ready(read) => read?,
            }
            if chunk.filled().is_empty() {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the peer hung up on its run"));
            }
            self.ahead.extend_from_slice(chunk.filled());
            if self.ahead.len() > AHEAD_BYTES {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "too much sent ahead of an answer"));
            }
        }
        Ok(())
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if self.ahead.is_empty() {
            ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        } else {
            let taken = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead[..taken]);
            self.ahead.drain(..taken);
        }
        if buf.filled().len() > before {
            self.signals.arrival().get_or_insert_with(Instant::now);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.watch(cx)?;
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.patient(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch(cx)?;
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.patient(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// hyper flushes the connection only when its own buffer is empty: then all that was handed over is written, and
    /// the run may go on.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch(cx)?;
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        if self.signals.unflushed.load(Relaxed) {
            self.signals.unflushed.store(false, Relaxed);
            self.signals.drained.store(true, Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
