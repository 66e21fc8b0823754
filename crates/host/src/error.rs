//! Why a host does not start.

use std::io;
use std::path::Path;

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
    #[error("INVALID_CONFIG: {}{reason}", place(path.as_deref(), *position))]
    Text {
        /// The path as it was given, if the text came from a file.
        path: Option<String>,
        /// Where it stops being JSON: line and column in characters, each from 1.
        position: Option<(usize, usize)>,
        /// What is wrong with it.
        reason: String,
    },
    /// The driver refuses what it was given, and no field is at fault.
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
            Self::File { .. } | Self::Text { .. } | Self::Driver(_) => Code::INVALID_CONFIG,
            Self::Listen { .. } => Code::from("LISTEN_FAILED".to_owned()),
        }
    }

    /// The field at fault, where there is one.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Field { field, .. } => Some(field),
            Self::File { .. } | Self::Text { .. } | Self::Driver(_) => None,
            Self::Listen { .. } => Some("listen"),
        }
    }

    pub(crate) fn text(reason: impl Into<String>) -> Self {
        Self::Text { path: None, position: None, reason: reason.into() }
    }

    /// Names the file that a text came from.
    pub(crate) fn in_file(self, file: &Path) -> Self {
        match self {
            Self::Text { position, reason, .. } => {
                Self::Text { path: Some(file.display().to_string()), position, reason }
            }
            other => other,
        }
    }

    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::with(Code::INVALID_CONFIG, field, reason)
    }

    pub(crate) fn with(code: Code, field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Field { code, field: field.into(), reason: reason.into() }
    }
}

/// As compilers write it, so that editors find it.
fn place(path: Option<&str>, position: Option<(usize, usize)>) -> String {
    match (path, position) {
        (Some(path), Some((line, column))) => format!("{path}:{line}:{column}: "),
        (Some(path), None) => format!("{path}: "),
        (None, Some((line, column))) => format!("line {line}, column {column}: "),
        (None, None) => String::new(),
    }
}
