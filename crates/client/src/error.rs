//! What goes wrong at a client, and its code.

use std::time::Duration;

use countersign_approval_core::ids::CallId;
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::error::{EventError, InvalidShape, SseError};

use crate::transport::{BoxError, TransportError};

/// Why a request failed or a stream ended early. No text of it holds the token, and only [`Error::Remote`] repeats
/// text of the host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host refused the request, with a code that may be unknown here (contract 5.1, 10.3). Its message is the
    /// host's text: escape it before it goes to a terminal.
    #[error("{0}")]
    Remote(ErrorInfo),
    /// An answer that is no success and holds no error of the protocol: a proxy's, or a redirect, which is never
    /// followed (contract 10.1, 10.2).
    #[error("the host answered HTTP {status} without an error of the protocol")]
    Http {
        /// The HTTP status.
        status: u16,
    },
    /// The answer speaks another version of the protocol, or names its version twice (contract 10.2).
    #[error("the host speaks another version of the protocol")]
    UnsupportedVersion,
    /// A success that does not have the protocol's shape (contract 10.2).
    #[error("the host's answer breaks the protocol: {what}")]
    InvalidResponse {
        /// What is wrong with it.
        what: &'static str,
        /// The shape's own complaint, if the answer could be read at all.
        #[source]
        cause: Option<InvalidShape>,
    },
    /// An answer larger than a client reads (contract 10.2).
    #[error("the host's answer has more than {limit} bytes")]
    ResponseTooLarge {
        /// The most bytes.
        limit: usize,
    },
    /// The stream holds an event that breaks the protocol, or may not be ignored, or it ended too early.
    #[error(transparent)]
    Event(EventError),
    /// The stream's framing is broken.
    #[error(transparent)]
    Frame(SseError),
    /// The connection broke before the stream's last event: `INCOMPLETE_STREAM`, as at a stream that just ends.
    #[error("the stream broke before its last event")]
    BrokenStream(#[source] TransportError),
    /// The request selects reviews, which only [`Client::stream`](crate::Client::stream) can follow (contract 10.1).
    #[error("interactive approvals need stream(), not run()")]
    ApprovalStreamRequired,
    /// The request defines application tools, which only a stream can execute (contract 10.1).
    #[error("application tools need stream(), not run()")]
    ToolStreamRequired,
    /// The host could not be reached, or the connection broke.
    #[error(transparent)]
    Transport(TransportError),
    /// No answer within the time limit: ten seconds for a `GET`, the builder's
    /// [`timeout`](crate::ClientBuilder::timeout) for the rest.
    #[error("the host did not answer within {limit:?}")]
    Timeout {
        /// The limit.
        limit: Duration,
    },
    /// A function of a [`ToolBox`](crate::ToolBox) failed, and the host was told that it did. The stream goes on.
    #[error("the function of call {call_id} failed")]
    ToolFailed {
        /// The call.
        call_id: CallId,
        /// Why, as the function says it.
        source: BoxError,
    },
    /// The answer of a [`ToolBox`](crate::ToolBox) was refused or got lost, and is not sent again. The stream goes on.
    #[error("the host did not confirm the result of call {call_id}")]
    ToolReport {
        /// The call.
        call_id: CallId,
        /// Why.
        source: Box<Self>,
    },
    /// The TLS side of the client cannot be set up.
    #[error("TLS cannot be set up")]
    Setup(#[source] BoxError),
    /// This crate was used wrongly; nothing was sent.
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

/// A mistake of the caller, found before anything is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The base URL (contract 10.1).
    #[error("the base URL cannot be used: {0}")]
    BaseUrl(&'static str),
    /// The token is empty, or could not be told from none by a host (contract 1.2, step 6).
    #[error("the token must be 1 to 4096 visible ASCII characters")]
    Token,
    /// The extra root certificate.
    #[error("the root certificate is neither DER nor PEM")]
    RootCertificate,
    /// Root certificates are for the built-in transport; the caller's own makes its own connections.
    #[error("a transport of your own takes no root certificate")]
    RootCertificateUnused,
    /// The request of a [`ToolBox`](crate::ToolBox) defines application tools by itself, which nobody would execute.
    #[error("the request defines application tools that are not in the tool box")]
    ForeignTools,
    /// The request was read from a text with members that this version cannot send. They are not left out silently
    /// (law 3).
    #[error("the request has members that this client cannot send")]
    UnsendableRequest,
}

impl Error {
    /// The code that the contract gives this failure. `None` where the contract has none: the host could not be
    /// reached, or this crate was used wrongly.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Remote(info) => Some(info.code.clone()),
            Self::Http { .. } | Self::InvalidResponse { .. } => Some(Code::INVALID_RESPONSE),
            Self::UnsupportedVersion => Some(Code::UNSUPPORTED_PROTOCOL_VERSION),
            Self::ResponseTooLarge { .. } => Some(Code::RESPONSE_TOO_LARGE),
            Self::Event(error) => Some(error.code()),
            Self::Frame(error) => Some(error.code()),
            Self::BrokenStream(_) => Some(Code::INCOMPLETE_STREAM),
            Self::ApprovalStreamRequired => Some(Code::APPROVAL_STREAM_REQUIRED),
            Self::ToolStreamRequired => Some(Code::TOOL_STREAM_REQUIRED),
            Self::Timeout { .. } => Some(Code::TIMEOUT),
            Self::ToolReport { source, .. } => source.code(),
            Self::ToolFailed { .. } | Self::Transport(_) | Self::Setup(_) | Self::Misuse(_) => None,
        }
    }

    /// Whether a run or decision that failed so may have had an effect all the same (law 8). It must not be repeated
    /// blindly: follow the run's stream, and compare with the application's own state.
    ///
    /// It is false only if the request was not sent, or the host said what happened.
    pub fn is_uncertain(&self) -> bool {
        match self {
            Self::Remote(info) => info.outcome.is_some(),
            Self::Transport(error) => !matches!(error, TransportError::Connect(_)),
            Self::ApprovalStreamRequired | Self::ToolStreamRequired | Self::Setup(_) | Self::Misuse(_) => {
                false
            }
            Self::Http { .. }
            | Self::UnsupportedVersion
            | Self::InvalidResponse { .. }
            | Self::ResponseTooLarge { .. }
            | Self::Event(_)
            | Self::Frame(_)
            | Self::BrokenStream(_)
            | Self::ToolFailed { .. }
            | Self::ToolReport { .. }
            | Self::Timeout { .. } => true,
        }
    }

    pub(crate) const fn invalid(what: &'static str) -> Self {
        Self::InvalidResponse { what, cause: None }
    }
}
