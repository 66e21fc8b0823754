//! Why a host does not start.

use std::io;

use countersign_driver::BuildError;
use countersign_protocol::code::Code;

/// A host cannot start. Its text is one line: the code, the field where there is one, and the reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A field of the configuration or of [`Options`](crate::Options) is not acceptable (contract 6).
    #[error("{code}: {field}: {reason}")]
    Field {
        /// `INVALID_CONFIG`, or the more special code of contract 6.1.
        code: Code,
        /// The path of the field, such as `tokens[0].tokenRef`.
        field: String,
        /// What is wrong with it; never a secret.
        reason: String,
    },
    /// The configuration file cannot be read as a whole.
    #[error("INVALID_CONFIG: {path}: {reason}")]
    File {
        /// The path as it was given.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The text is not JSON, or breaks a rule of the exact JSON gate (design 3).
    #[error("INVALID_CONFIG: {0}")]
    Text(String),
    /// The driver refuses what it was given, such as two tools of one name.
    #[error("INVALID_CONFIG: driver: {0}")]
    Driver(#[from] BuildError),
    /// The address cannot be bound.
    #[error("LISTEN_FAILED: listen: {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl StartError {
    /// The code: the first word of the text.
    pub fn code(&self) -> Code {
        match self {
            Self::Field { code, .. } => code.clone(),
            Self::File { .. } | Self::Text(_) | Self::Driver(_) => Code::INVALID_CONFIG,
            Self::Listen { .. } => Code::from("LISTEN_FAILED".to_owned()),
        }
    }

    /// The field at fault, where there is one.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Field { field, .. } => Some(field),
            Self::File { .. } | Self::Text(_) | Self::Driver(_) => None,
            Self::Listen { .. } => Some("listen"),
        }
    }

    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::with(Code::INVALID_CONFIG, field, reason)
    }

    pub(crate) fn with(code: Code, field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Field { code, field: field.into(), reason: reason.into() }
    }
}
