//! [`MemoryTransport`]: the real client and a real HTTP server without a network.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use countersign_client::transport::{BodyStream, Transport, TransportError};
use futures_core::Stream;
use http::{Request, Response, Uri};
use http_body_util::{BodyDataStream, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::task::AbortHandle;

/// What the pipe holds in each direction before a writer waits.
const PIPE_BYTES: usize = 64 * 1024;

/// HTTP/1.1 over in-memory pipes, so that paused time reaches both ends. Each request has a connection of its own, as
/// in the client's built-in transport.
pub struct MemoryTransport {
    accept: Box<dyn Fn(DuplexStream) + Send + Sync>,
}

impl MemoryTransport {
    /// `accept` gets the host's end of each connection and must not block: it spawns whatever serves it.
    pub fn new(accept: impl Fn(DuplexStream) + Send + Sync + 'static) -> Self {
        Self { accept: Box::new(accept) }
    }
}

impl fmt::Debug for MemoryTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTransport").finish_non_exhaustive()
    }
}

#[async_trait]
impl Transport for MemoryTransport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<BodyStream>, TransportError> {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        (self.accept)(theirs);
        let (mut sender, connection) = http1::handshake(TokioIo::new(ours))
            .await
            .map_err(|error| TransportError::Connect(error.into()))?;
        let connection = Connection(tokio::spawn(connection).abort_handle());
        let response = sender
            .send_request(origin_form(request).map(Full::new))
            .await
            .map_err(|error| TransportError::Broken(error.into()))?;
        Ok(response.map(|body| -> BodyStream {
            Box::pin(Body { data: BodyDataStream::new(body), _connection: connection })
        }))
    }
}

/// On a connection the target is path and query; the authority stands in `Host`.
fn origin_form(mut request: Request<Bytes>) -> Request<Bytes> {
    let uri = request.uri();
    let host = uri.authority().and_then(|authority| authority.as_str().parse().ok());
    let target = uri.path_and_query().cloned().map(Uri::from).unwrap_or_default();
    if let Some(host) = host {
        request.headers_mut().insert(http::header::HOST, host);
    }
    *request.uri_mut() = target;
    request
}

/// Dropping it closes the connection.
struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Body {
    data: BodyDataStream<Incoming>,
    _connection: Connection,
}

impl Stream for Body {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.data)
            .poll_next(cx)
            .map(|item| item.map(|data| data.map_err(|error| TransportError::Broken(error.into()))))
    }
}
