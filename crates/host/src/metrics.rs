//! `GET /metrics`: who may read it, and what it says (decision 0017).
//!
//! It is no part of the protocol. Where it is off, or for a credential that may not read it, the path is one that does not
//! exist. It tells counts of the whole host, so it names no subject, run, tool or model.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::auth::{Tokens, bearer, check_token};
use crate::error::StartError;

#[cfg(feature = "metrics")]
mod text;

/// Its path.
pub(crate) const PATH: &str = "/metrics";

/// Who may read `GET /metrics` (feature `metrics`). `Debug` does not show the secret.
#[derive(Debug, Clone)]
pub enum MetricsAccess {
    /// Whoever presents any of the host's tokens. Subjects then see how much others do, though not what.
    AnyToken,
    /// Whoever presents this one, which opens nothing else. It is as a [`Token`](crate::Token)'s: at least 32 characters,
    /// and distinct from all of them.
    Token(SecretString),
}

/// A credential as the path is concerned.
#[derive(Debug)]
pub(crate) enum Readers {
    Nobody,
    AnyToken,
    Token([u8; 32]),
}

impl Readers {
    /// Checks what the options say.
    pub(crate) fn new(access: Option<&MetricsAccess>, tokens: &Tokens) -> Result<Self, StartError> {
        if access.is_some() && cfg!(not(feature = "metrics")) {
            let reason = "not served by this build, which is without the feature `metrics`";
            return Err(StartError::invalid("metrics", reason));
        }
        match access {
            None => Ok(Self::Nobody),
            Some(MetricsAccess::AnyToken) => Ok(Self::AnyToken),
            Some(MetricsAccess::Token(secret)) => {
                check_token("metrics.token", secret.expose_secret())?;
                let digest = Sha256::digest(secret.expose_secret().as_bytes()).into();
                if tokens.holds(&digest) {
                    let reason = "a token of the host has the same value";
                    return Err(StartError::invalid("metrics.token", reason));
                }
                Ok(Self::Token(digest))
            }
        }
    }

    /// Whether this header is of the token that opens nothing else.
    pub(crate) fn admit(&self, authorization: Option<&[u8]>) -> bool {
        match (self, bearer(authorization)) {
            (Self::Token(digest), Some(presented)) => {
                <[u8; 32]>::from(Sha256::digest(presented.as_bytes())).ct_eq(digest).into()
            }
            (Self::Nobody | Self::AnyToken | Self::Token(_), _) => false,
        }
    }
}

/// Counts the streams that are open: each holds a clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenStreams(Arc<()>);

impl OpenStreams {
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "only metrics tell it"))]
    fn count(&self) -> usize {
        // One is the host's own.
        Arc::strong_count(&self.0) - 1
    }
}

#[cfg(feature = "metrics")]
pub(crate) use text::answer;

/// Nobody reads what this build cannot tell.
#[cfg(not(feature = "metrics"))]
pub(crate) fn answer(
    _: &crate::service::Shared,
) -> Result<crate::respond::Answer, countersign_protocol::code::ErrorInfo> {
    Err(countersign_protocol::code::ErrorInfo::new(countersign_protocol::code::Code::NOT_FOUND))
}
