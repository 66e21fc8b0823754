//! One connection: hyper with the contract's limits (contract 1.8), ended early by shutdown.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::timeout;

use crate::router;
use crate::service::Shared;
use crate::wire::{Signals, Wire};

/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may take to send the head of a request, and how long an idle connection is kept.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of a request's head.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// The most bytes that hyper gathers before it writes, or reads before it is asked for them.
const MAX_BUFFER_BYTES: usize = 64 * 1024;
/// How long, and for how many bytes, a refused body is still read, so that the peer gets to read the refusal.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: u64 = 4 * 1024 * 1024;

/// Serves requests on `io` until either side ends it, or another needs its place.
pub(crate) async fn serve<I>(shared: Arc<Shared>, signals: Arc<Signals>, io: I)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Some(tls) = shared.tls.clone() else { return serve_http(shared, signals, io).await };
    // Boxed: a connection without TLS does not carry its state.
    Box::pin(async move {
        let shaken = tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = signals.seat().lost() => return,
            shaken = timeout(HANDSHAKE_TIMEOUT, tls.accept(io)) => shaken,
        };
        match shaken {
            Ok(Ok(stream)) => serve_http(shared, signals, stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "no TLS handshake"),
            Err(_) => tracing::debug!("the TLS handshake took too long"),
        }
    })
    .await;
}

async fn serve_http<I>(shared: Arc<Shared>, signals: Arc<Signals>, io: I)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = {
        let (shared, signals) = (Arc::clone(&shared), Arc::clone(&signals));
        service_fn(move |request| {
            // hyper keeps the space of this future as long as the connection; what is boxed goes when the answer is there.
            Box::pin(router::answer(Arc::clone(&shared), Arc::clone(&signals), request))
        })
    };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_header_size(MAX_HEADER_BYTES)
        .max_buf_size(MAX_BUFFER_BYTES)
        // Whether a peer that stops sending has gone is the wire's to say: it matters to runs only.
        .half_close(true);
    let mut connection = http.serve_connection(TokioIo::new(Wire::new(io, Arc::clone(&signals))), service);

    // A connection that comes while the host is closing is served, so that it can be told.
    let mut told = shared.closing.is_cancelled();
    let ended = loop {
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = signals.seat().lost() => return,
            () = shared.closing.cancelled(), if !told => {
                told = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            ended = poll_fn(|cx| drive(&mut connection, &signals, cx)) => break ended,
        }
    };
    match ended {
        Ok(()) if signals.is_body_unread() => {
            let io = connection.into_parts().io.into_inner().into_inner();
            // Boxed: it is rare, and every connection would carry its state.
            Box::pin(async {
                tokio::select! {
                    () = shared.stopped.cancelled() => {}
                    () = signals.seat().lost() => {}
                    () = linger(io) => {}
                }
            })
            .await;
        }
        Ok(()) => {}
        Err(error) => tracing::debug!(%error, "connection ended"),
    }
}

/// Polls a connection. When all that the answer's body gave was written, the body is polled again, so that it asks for
/// more; hyper may or may not do that by itself.
fn drive<C: Future + Unpin>(connection: &mut C, signals: &Signals, cx: &mut Context<'_>) -> Poll<C::Output> {
    loop {
        let ended = Pin::new(&mut *connection).poll(cx);
        if ended.is_ready() || !signals.take_drained() {
            return ended;
        }
    }
}

/// Closing a socket that still holds unread bytes resets it, and the peer may lose the answer that it was sent.
async fn linger<I: AsyncRead + Unpin>(io: I) {
    let mut rest = io.take(LINGER_BYTES);
    let mut nowhere = tokio::io::sink();
    // Whatever the outcome, the connection is over.
    let _ = timeout(LINGER, tokio::io::copy(&mut rest, &mut nowhere)).await;
}
