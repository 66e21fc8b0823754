//! The host without the feature `tls`: nobody can have a [`Tls`].

use std::convert::Infallible;
use std::io;

use secrecy::SecretString;

use crate::error::StartError;

/// A certificate and its key. There is none in a build without the feature `tls`.
#[derive(Debug, Clone)]
pub struct Tls(Infallible);

impl Tls {
    /// Refuses.
    ///
    /// # Errors
    /// Always.
    pub fn from_pem(_: &[u8], _: &SecretString) -> Result<Self, StartError> {
        Err(StartError::invalid("tls", "not served by this build, which is without the feature `tls`"))
    }

    #[expect(clippy::unused_async, reason = "as its counterpart")]
    pub(crate) async fn accept<I>(&self, _: I) -> io::Result<I> {
        match self.0 {}
    }
}
