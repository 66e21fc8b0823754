//! What can be wrong with a provider before it ever answers. A failing turn is a
//! [`ProviderError`](countersign_driver::provider::ProviderError).

use countersign_approval_core::ids::InvalidName;

/// A provider cannot be built from what it was given. A host reports each as `INVALID_CONFIG` (contract 6.1).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A member of the configuration is missing, unknown or of the wrong form.
    #[error("{path}: {problem}")]
    Config {
        /// The offending member, such as `scripts["Hello"][0].delayMs`.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An id or a model breaks its rule.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The base URL is neither HTTPS nor HTTP to this machine, or carries credentials, a query or a fragment.
    #[error("baseUrl: {0}")]
    BaseUrl(&'static str),
    /// The key has characters that an HTTP header cannot carry. The key itself is never shown.
    #[error("the API key must be printable ASCII on a single line")]
    Key,
    /// The system offers no certificate authority, so no HTTPS server could be trusted.
    #[error("no certificate authorities found on this system")]
    NoRoots,
    /// The HTTP client could not be set up.
    #[error("the HTTP client could not be set up")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    pub(crate) fn config(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Config { path: path.into(), problem: problem.into() }
    }
}
