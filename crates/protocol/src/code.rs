//! Error codes and the error object (contract 5).
//!
//! One table says each code's HTTP status, whether it may pass by itself, and the text for people. The set of codes
//! is open: a client keeps a code that it does not know (contract 10.3, `unknown-error-code`).

use std::borrow::Cow;
use std::fmt;

use countersign_approval_core::Error as ApprovalError;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::shape::present;

mod table;

/// An error code (contract 5.2), such as [`Code::APPROVAL_NOT_FOUND`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Code(Cow<'static, str>);

/// What the table says about one code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The code.
    pub code: Code,
    /// HTTP status of an answer with this code (contract 5.2).
    pub status: u16,
    /// Whether the condition may pass by itself (contract 5.3).
    pub retryable: bool,
    /// The text for people.
    pub message: &'static str,
}

impl Code {
    /// Every code of the table, in the order of the contract.
    pub fn known() -> &'static [Known] {
        table::KNOWN
    }

    /// The HTTP status (contract 5.2); 502 for a code that is not in the table.
    pub fn status(&self) -> u16 {
        self.entry().map_or(502, |known| known.status)
    }

    /// Whether the condition may pass by itself (contract 5.3); false for a code that is not in the table.
    ///
    /// This is the table's word. A vendor's HTTP status decides for `PROVIDER_ERROR`, and
    /// [`ErrorInfo::uncertain`] takes it back.
    pub fn retryable(&self) -> bool {
        self.entry().is_some_and(|known| known.retryable)
    }

    /// The text for people.
    pub fn message(&self) -> &'static str {
        self.entry().map_or("The request failed.", |known| known.message)
    }

    /// The code's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn entry(&self) -> Option<&'static Known> {
        table::KNOWN.iter().find(|known| known.code == *self)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A code as it was received.
impl From<String> for Code {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

impl From<&ApprovalError> for Code {
    fn from(error: &ApprovalError) -> Self {
        Self(Cow::Borrowed(error.code()))
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Err(serde::de::Error::custom("a code is not empty"));
        }
        Ok(Self::from(text))
    }
}

/// The only word that `outcome` may hold (contract 5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UncertainOutcome {
    /// It cannot be known whether an effect happened (law 8).
    Uncertain,
}

/// What a failed request or run says (contract 5.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorInfo {
    /// The code.
    pub code: Code,
    /// Text for people, without private causes.
    pub message: String,
    /// Whether the condition may pass by itself. It is never a permission to repeat an effect.
    pub retryable: bool,
    /// Present if it cannot be known whether an effect happened. Absent otherwise, and never null.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub outcome: Option<UncertainOutcome>,
}

impl ErrorInfo {
    /// The code with the table's text and the table's `retryable`.
    pub fn new(code: Code) -> Self {
        Self { message: code.message().to_owned(), retryable: code.retryable(), outcome: None, code }
    }

    /// Replaces the text. It goes to clients, so it must hold no private cause (contract 5.1).
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }

    /// Says that an effect may have happened (contract 5.4): it must not be repeated, so `retryable` is false.
    #[must_use]
    pub fn uncertain(self) -> Self {
        Self { retryable: false, outcome: Some(UncertainOutcome::Uncertain), ..self }
    }
}

/// The code and text of a refused approval; its private cause stays with the host.
impl From<&ApprovalError> for ErrorInfo {
    fn from(error: &ApprovalError) -> Self {
        Self::new(Code::from(error)).with_message(error.to_string())
    }
}

impl fmt::Display for ErrorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        match self.outcome {
            Some(UncertainOutcome::Uncertain) => f.write_str(" (outcome uncertain)"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ErrorInfo {}

/// The body of an HTTP answer that is not a success: `{"error": …}` (contract 5.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorInfo,
}

impl From<ErrorInfo> for ErrorBody {
    fn from(error: ErrorInfo) -> Self {
        Self { error }
    }
}
