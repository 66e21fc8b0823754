//! Why a command does not do what it was asked for, and the exit status of each command (design 7).

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use countersign_host::StartError;
use countersign_protocol::code::{Code, ErrorInfo};

/// How a command ended: the exit statuses that scripts rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Completed; for `audit verify` and `serve --check`: good.
    Good = 0,
    /// Failed; for `audit`: the chain is broken; for `serve --check --probe`: a provider would not serve.
    Failed = 1,
    /// Usage or configuration; for `audit`: unreadable.
    Usage = 2,
    /// A person denied the call.
    Denied = 3,
    /// Cancelled or expired.
    Cancelled = 4,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status as u8)
    }
}

/// Why a command ends without its result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command line, a file that it names, or the place where it runs.
    #[error("{0}")]
    Usage(String),
    /// The host has no reviews, and the run was to have tools.
    #[error(
        "this host does not offer reviews (interactive-approvals), so nobody would be asked before a tool is called; \
         nothing was started: leave out --tools, or switch the reviews of the host on"
    )]
    NoReviews,
    /// The configuration, or what it names.
    #[error(transparent)]
    Config(#[from] StartError),
    /// The host, or the way to it.
    #[error("{}", reason(.0))]
    Client(#[from] countersign_client::Error),
    /// The host did not answer at all.
    #[error("there is no host at {url}: is `countersign serve` running{}? ({})", trusted(.url), reason(.source))]
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// Why there is no connection.
        source: countersign_client::Error,
    },
    /// The host went away while a person was asked.
    #[error("the host is gone. {told}.")]
    HostGone {
        /// What is known of effects.
        told: &'static str,
        /// How the stream ended.
        source: countersign_client::Error,
    },
    /// An audit file that is opened; the error names it.
    #[error("{}", reason(.0))]
    Audit(#[from] countersign_store::Error),
    /// What stands in an audit file.
    #[error("{}: {}", path.display(), reason(.source))]
    InAudit {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: countersign_store::Error,
    },
    /// The sandbox cannot start; nothing ran.
    #[error("the sandbox cannot start: {0}")]
    Sandbox(String),
    /// Standard output, a terminal, a work folder.
    #[error("{action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, source }
    }

    /// The exit status of a command that ends with it.
    pub(crate) const fn status(&self) -> Status {
        match self {
            Self::Usage(_)
            | Self::NoReviews
            | Self::Config(_)
            | Self::Client(countersign_client::Error::Misuse(_)) => Status::Usage,
            Self::Audit(source) | Self::InAudit { source, .. } => match source {
                countersign_store::Error::Broken(_) => Status::Failed,
                _ => Status::Usage,
            },
            Self::Client(_)
            | Self::Unreachable { .. }
            | Self::HostGone { .. }
            | Self::Sandbox(_)
            | Self::Io { .. } => Status::Failed,
        }
    }

    /// As the last line of `run --json` says it.
    pub(crate) fn info(&self) -> ErrorInfo {
        match self {
            Self::Client(countersign_client::Error::Remote(info)) => info.clone(),
            Self::Client(error)
            | Self::Unreachable { source: error, .. }
            | Self::HostGone { source: error, .. } => {
                // The contract names no code for a host that cannot be reached.
                let code = error.code().unwrap_or_else(|| Code::from("CONNECTION_FAILED".to_owned()));
                let info = ErrorInfo::new(code).with_message(reason(error));
                if error.is_uncertain() { info.uncertain() } else { info }
            }
            Self::NoReviews => ErrorInfo::new(Code::APPROVAL_UNAVAILABLE).with_message(self.to_string()),
            other => ErrorInfo::new(Code::from("COMMAND_FAILED".to_owned())).with_message(other.to_string()),
        }
    }
}

/// What else can be wrong where there is TLS, and how to mend it.
fn trusted(url: &str) -> &'static str {
    if url.starts_with("https:") {
        ", under this name, with a certificate that this machine trusts (SSL_CERT_FILE names a file of authorities)"
    } else {
        ""
    }
}

/// The error with its causes on one line.
pub(crate) fn reason(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Transparent errors repeat their source.
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}
