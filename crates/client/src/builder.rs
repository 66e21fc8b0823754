//! How a client is made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};

use crate::base_url::BaseUrl;
use crate::client::{Client, Inner};
use crate::error::{Error, Misuse};
use crate::transport::{NetTransport, Transport};

/// The longest bearer token that a host looks at (contract 1.2, step 6).
const MAX_TOKEN_BYTES: usize = 4096;

/// Collects what a [`Client`] needs; made by [`Client::builder`].
#[must_use]
pub struct ClientBuilder {
    base_url: String,
    token: SecretString,
    timeout: Option<Duration>,
    root_certificates: Vec<Vec<u8>>,
    transport: Option<Arc<dyn Transport>>,
}

impl ClientBuilder {
    pub(crate) fn new(base_url: String, token: SecretString) -> Self {
        Self { base_url, token, timeout: None, root_certificates: Vec::new(), transport: None }
    }

    /// The most time that a whole [`run`](Client::run) or [`decide_approval`](Client::decide_approval) may take, and
    /// that a [`stream`](Client::stream) may take to begin. Once a stream has begun it is not limited: how long a run
    /// may be still is the request's `idleTimeoutMs`, and how long a person may think is `approvals.expiresAfterMs`.
    ///
    /// There is no limit by default (contract 10.1). A decision that runs out of time may still have been taken.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Trusts a certificate authority beside the system's: one certificate in DER, or any number in PEM.
    pub fn root_certificate(mut self, certificate: impl Into<Vec<u8>>) -> Self {
        self.root_certificates.push(certificate.into());
        self
    }

    /// Replaces the network, for tests.
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = Some(transport);
        self
    }

    /// Checks everything and makes the client. Nothing is sent. For an `https` URL it reads the system's certificate
    /// authorities from disk.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a base URL, token or certificate that cannot be used; [`Error::Setup`] if TLS cannot be
    /// set up.
    pub fn build(self) -> Result<Client, Error> {
        let base = BaseUrl::parse(&self.base_url)?;
        let authorization = authorization(&self.token)?;
        let transport = match self.transport {
            Some(_) if !self.root_certificates.is_empty() => return Err(Misuse::RootCertificateUnused.into()),
            Some(transport) => transport,
            None => Arc::new(NetTransport::new(&base, certificates(&self.root_certificates)?)?),
        };
        Ok(Client::new(Inner { base, authorization, timeout: self.timeout, transport }))
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL has not been checked yet and may hold user information.
        f.debug_struct("ClientBuilder").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// The header, marked as sensitive, so that no `Debug` shows it.
fn authorization(token: &SecretString) -> Result<HeaderValue, Misuse> {
    let token = token.expose_secret();
    if token.is_empty() || token.len() > MAX_TOKEN_BYTES || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Misuse::Token);
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| Misuse::Token)?;
    header.set_sensitive(true);
    Ok(header)
}

fn certificates(given: &[Vec<u8>]) -> Result<Vec<CertificateDer<'static>>, Misuse> {
    let mut all = Vec::new();
    for bytes in given {
        // DER of a certificate begins with a SEQUENCE tag; anything else must be PEM.
        if bytes.first() == Some(&0x30) {
            all.push(CertificateDer::from(bytes.clone()));
            continue;
        }
        let before = all.len();
        for certificate in CertificateDer::pem_slice_iter(bytes) {
            all.push(certificate.map_err(|_| Misuse::RootCertificate)?);
        }
        if all.len() == before {
            return Err(Misuse::RootCertificate);
        }
    }
    Ok(all)
}
