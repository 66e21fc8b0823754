//! Why a text of the protocol was refused, each with its wire code.

use crate::code::{Code, ErrorInfo};

/// A run request that does not have the contract's shape: `INVALID_REQUEST` (contract 2).
///
/// It names the offending member and the rule, never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{rule}", prefix(path))]
pub struct InvalidRequest {
    /// Where, such as `approvals.idlePolicy` or `tools[3]`; empty for the body as a whole.
    pub path: String,
    /// What was expected.
    pub rule: String,
}

impl InvalidRequest {
    /// The code that a client sees.
    pub const fn code(&self) -> Code {
        Code::INVALID_REQUEST
    }

    pub(crate) fn new(rule: impl Into<String>) -> Self {
        Self { path: String::new(), rule: rule.into() }
    }

    /// Puts a member's name before the path.
    pub(crate) fn under(self, name: &str) -> Self {
        let path = match self.path.as_bytes().first() {
            None => name.to_owned(),
            Some(b'[') => format!("{name}{}", self.path),
            Some(_) => format!("{name}.{}", self.path),
        };
        Self { path, ..self }
    }
}

impl From<&InvalidRequest> for ErrorInfo {
    fn from(error: &InvalidRequest) -> Self {
        Self::new(error.code()).with_message(error.to_string())
    }
}

fn prefix(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

/// A text from a host that does not have the wanted shape. The text itself is in the source only.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct InvalidShape {
    pub(crate) what: String,
    #[source]
    pub(crate) cause: Option<serde_json::Error>,
}

/// Why an event or a stream of events was refused (contract 10.2).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// An event breaks the protocol: `INVALID_STREAM`.
    #[error("the stream breaks the protocol: {0}")]
    Invalid(#[source] InvalidShape),
    /// An event that may not be ignored and is not known, or was not asked for: `UNSUPPORTED_EVENT`.
    #[error("the host sent an event that this client cannot ignore and does not know, or did not ask for")]
    Unsupported,
    /// The stream ended before its terminal event: `INCOMPLETE_STREAM`.
    #[error("the stream ended before its last event")]
    Incomplete,
}

impl EventError {
    /// The code that the application sees.
    pub const fn code(&self) -> Code {
        match self {
            Self::Invalid(_) => Code::INVALID_STREAM,
            Self::Unsupported => Code::UNSUPPORTED_EVENT,
            Self::Incomplete => Code::INCOMPLETE_STREAM,
        }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(InvalidShape { what: what.into(), cause: None })
    }
}

impl From<InvalidShape> for EventError {
    fn from(error: InvalidShape) -> Self {
        Self::Invalid(error)
    }
}

/// Why a stream of server-sent frames was refused (contract 10.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SseError {
    /// A frame's lines sum to more than the limit: `RESPONSE_TOO_LARGE`.
    #[error("a frame has more than {limit} bytes")]
    TooLarge {
        /// The decoder's limit in bytes.
        limit: usize,
    },
    /// A line is not UTF-8: `INVALID_STREAM`.
    #[error("the stream is not UTF-8")]
    Utf8,
    /// The input ended inside a frame: `INCOMPLETE_STREAM`.
    #[error("the stream ended inside a frame")]
    Unterminated,
}

impl SseError {
    /// The code that the application sees.
    pub const fn code(&self) -> Code {
        match self {
            Self::TooLarge { .. } => Code::RESPONSE_TOO_LARGE,
            Self::Utf8 => Code::INVALID_STREAM,
            Self::Unterminated => Code::INCOMPLETE_STREAM,
        }
    }
}
