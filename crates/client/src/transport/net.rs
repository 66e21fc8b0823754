//! The transport over TCP and TLS, with reqwest.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryStreamExt;
use http::{Request, Response};
use reqwest::{redirect, retry};
use rustls::pki_types::CertificateDer;

use super::{BodyStream, Transport, TransportError};
use crate::base_url::BaseUrl;
use crate::error::Error;

/// How long the connection may take to stand, TLS included (contract 10.1).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer that has vanished is noticed by the kernel, because no deadline of ours ends a person's wait.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Probes without an answer until the connection counts as dead.
const KEEPALIVE_PROBES: u32 = 4;

/// Connections of this machine.
pub(crate) struct NetTransport(reqwest::Client);

impl NetTransport {
    /// `extra` are root certificates beside the system's.
    pub(crate) fn new(base: &BaseUrl, extra: Vec<CertificateDer<'static>>) -> Result<Self, Error> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(base, extra)?)
            .redirect(redirect::Policy::none())
            // A proxy from the environment would see the token of a loopback host.
            .no_proxy()
            // Nothing is sent twice (scenario C5). reqwest's own retries are off. The client below it tries again
            // when a kept connection turns out to be dead, so none is kept: each request has a connection of its own.
            // That also leaves fewer decisions in doubt, as none meets a connection that the host is just closing.
            .retry(retry::never())
            .pool_max_idle_per_host(0)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .tcp_keepalive_interval(KEEPALIVE)
            .tcp_keepalive_retries(KEEPALIVE_PROBES)
            .build()
            .map_err(|error| Error::Setup(error.into()))?;
        Ok(Self(client))
    }
}

#[async_trait]
impl Transport for NetTransport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<BodyStream>, TransportError> {
        // A URL that reqwest does not take was not sent.
        let request =
            request.try_into().map_err(|error: reqwest::Error| TransportError::Connect(error.into()))?;
        let answer = self.0.execute(request).await.map_err(failed)?;
        let mut response = Response::new(());
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        let body: BodyStream = Box::pin(answer.bytes_stream().map_err(failed));
        Ok(response.map(|()| body))
    }
}

/// The URL may tell more than a log should hold.
fn failed(error: reqwest::Error) -> TransportError {
    let connecting = error.is_connect();
    let cause = error.without_url().into();
    if connecting { TransportError::Connect(cause) } else { TransportError::Broken(cause) }
}

/// The system's certificate authorities and the caller's. Without HTTPS there is nobody to trust, and the system is
/// not asked.
fn tls(base: &BaseUrl, extra: Vec<CertificateDer<'static>>) -> Result<rustls::ClientConfig, Error> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in extra {
        roots.add(certificate).map_err(|error| Error::Setup(error.into()))?;
    }
    if base.is_https() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(Error::Setup("the system has no certificate authorities, and none was given".into()));
        }
    }
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Setup(error.into()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
    Ok(config)
}
