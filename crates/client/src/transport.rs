//! The border to the network: one request out, one answer back.
//!
//! [`Client`](crate::Client) brings its own implementation over reqwest. A test can put another in its place
//! ([`ClientBuilder::transport`](crate::ClientBuilder::transport)), so that the real client runs without a network.

use std::pin::Pin;

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;
use http::{Request, Response};

mod net;

pub(crate) use net::NetTransport;

/// Any error, for causes.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer as it arrives. Dropping it closes the connection, however much is still to come: that is how
/// a host learns that nobody follows its run any more (contract 1.8).
pub type BodyStream = Pin<Box<dyn Stream<Item = Result<Bytes, TransportError>> + Send>>;

/// Sends requests.
///
/// An implementation must send a request at most once, follow no redirect, decode no content encoding, and give up if
/// the connection does not stand within ten seconds (contract 10.1). Dropping the future of [`Transport::send`] closes
/// the connection.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends a request, whose URI is absolute, and gives the answer as soon as its head is there.
    ///
    /// # Errors
    /// [`TransportError::Connect`] if certainly nothing was sent, else [`TransportError::Broken`].
    async fn send(&self, request: Request<Bytes>) -> Result<Response<BodyStream>, TransportError>;
}

/// Why there is no answer, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No connection came about, so the host did not see the request.
    #[error("the host cannot be reached")]
    Connect(#[source] BoxError),
    /// The connection broke. The host may have seen the request, and may act on it.
    #[error("the connection to the host broke")]
    Broken(#[source] BoxError),
}
