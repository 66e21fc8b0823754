//! TLS of the host (contract 6.1, 6.3): rustls with ring, version 1.2 and later, without early data, so that nothing
//! which arrives can be a repetition of what arrived before.

use std::fmt;
use std::io;
use std::sync::Arc;

use countersign_protocol::code::Code;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, crypto::ring};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::error::StartError;

/// A certificate and its key, checked. Cheap to clone; `Debug` shows nothing of it.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Takes a certificate in PEM with those that lead from it to an authority behind it, and its private key in PEM.
    ///
    /// # Errors
    /// `INVALID_TLS` if they cannot be used, or not together (contract 6.1). Nobody asks here whether a client would trust
    /// the certificate, or whether it is still valid.
    pub fn from_pem(certificates: &[u8], key: &SecretString) -> Result<Self, StartError> {
        let certificates = CertificateDer::pem_slice_iter(certificates)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| invalid("tls.certFile", format!("it is not PEM: {}", words(&error))))?;
        if certificates.is_empty() {
            return Err(invalid("tls.certFile", "there is no certificate in it (PEM)"));
        }
        let key =
            PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes()).map_err(|error| match error {
                pem::Error::NoItemsFound => {
                    invalid("tls.keyRef", "there is no private key in it (PEM, without a passphrase)")
                }
                other => invalid("tls.keyRef", format!("it is not PEM: {}", words(&other))),
            })?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid("tls", error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .map_err(|error| {
                invalid("tls", format!("the certificate and the key cannot be used: {error}"))
            })?;
        // A client that insists on another protocol learns in the handshake that it is not there.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Does the handshake.
    pub(crate) async fn accept<I: AsyncRead + AsyncWrite + Unpin>(&self, io: I) -> io::Result<TlsStream<I>> {
        self.0.accept(io).await
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

fn invalid(field: &str, reason: impl Into<String>) -> StartError {
    StartError::with(Code::INVALID_TLS, field, reason)
}

/// The error without what stands in the file: it may be a key.
fn words(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no end",
        pem::Error::IllegalSectionStart { .. } => "a section begins in a wrong way",
        pem::Error::Base64Decode(_) => "a section is not base64",
        _ => "it cannot be read",
    }
}
