//! TLS: verification is always on, and an extra authority can be trusted (10.1).
//!
//! The files in `tls/` are for these tests only: an authority, a key, and three certificates of that key, valid until
//! 2120: `trusted` for localhost, `elsewhere` for another name, `stranger` for localhost by another authority.

use std::sync::{Arc, Mutex};

use countersign_client::transport::TransportError;
use countersign_client::{Client, Error, Misuse};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::events::*;
use crate::server::{JSON_HEADERS, Script, TOKEN, Then, answer, serve};

const CA: &str = include_str!("tls/ca.pem");
const KEY: &str = include_str!("tls/server.key.pem");
const TRUSTED: &str = include_str!("tls/trusted.pem");
const ELSEWHERE: &str = include_str!("tls/elsewhere.pem");
const STRANGER: &str = include_str!("tls/stranger.pem");

/// A server with this certificate: its URL, and what it has heard.
async fn start(certificate: &str) -> (String, Arc<Mutex<Vec<String>>>) {
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let heard = Arc::<Mutex<Vec<String>>>::default();
    let log = Arc::clone(&heard);
    tokio::spawn(async move {
        let bytes = answer("200 OK", JSON_HEADERS, receipt("approved").as_bytes());
        let (hung_up, _) = mpsc::unbounded_channel();
        while let Ok((socket, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(socket).await {
                let script = Script { bytes: bytes.clone(), then: Then::Close };
                serve(stream, script, Arc::clone(&log), hung_up.clone()).await;
            }
        }
    });
    (url, heard)
}

#[tokio::test]
async fn an_extra_authority_is_trusted() {
    let (url, heard) = start(TRUSTED).await;
    let der = CertificateDer::from_pem_slice(CA.as_bytes()).unwrap();
    for authority in [CA.as_bytes(), &der] {
        let client = Client::builder(&url, TOKEN.into()).root_certificate(authority).build().unwrap();
        client.decide_approval(&decision("approve")).await.unwrap();
    }
    assert_eq!(heard.lock().unwrap().len(), 2);
}

/// 10.5: a wrong name fails, and so does an authority that nobody trusts. The server never sees the token.
#[tokio::test]
async fn everybody_else_is_refused() {
    for certificate in [STRANGER, ELSEWHERE] {
        let (url, heard) = start(certificate).await;
        let client = Client::builder(&url, TOKEN.into()).root_certificate(CA).build().unwrap();
        let error = client.decide_approval(&decision("approve")).await.unwrap_err();
        assert!(matches!(error, Error::Transport(TransportError::Connect(_))), "{error:?}");
        assert!(!error.is_uncertain());
        assert!(heard.lock().unwrap().is_empty());
    }
}

#[test]
fn certificates_that_are_none() {
    for certificate in ["", "text", "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n", KEY] {
        let error = Client::builder("https://localhost", TOKEN.into())
            .root_certificate(certificate)
            .build()
            .unwrap_err();
        assert!(matches!(error, Error::Misuse(Misuse::RootCertificate)), "{error:?}");
    }
    // It looks like DER and is not.
    let error =
        Client::builder("https://localhost", TOKEN.into()).root_certificate([0x30, 1]).build().unwrap_err();
    assert!(matches!(error, Error::Setup(_)), "{error:?}");
}
