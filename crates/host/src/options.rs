//! What a host is started with (contract 6.3).

use std::collections::BTreeMap;

use countersign_driver::Review;
use secrecy::SecretString;

use crate::error::StartError;
use crate::metrics::MetricsAccess;
use crate::tls::Tls;
use countersign_protocol::code::Code;

/// The default port (contract 6.1).
pub(crate) const DEFAULT_PORT: u16 = 7433;
/// The greatest number that a bound of [`Concurrency`] may be (contract 6.1).
pub(crate) const MAX_CONCURRENCY: u32 = 100_000;

/// The default of [`Options::max_connections`].
pub(crate) const MAX_CONNECTIONS: usize = 10_240;
/// Connections beside those that runs and their queue may need, where these are configured to need many.
const SPARE_CONNECTIONS: usize = 1_024;

/// What [`serve`](crate::serve()) takes. A [`Service`](crate::Service) does not look at `host` and `port`.
#[derive(Debug)]
pub struct Options {
    /// The address or name to listen on, default `127.0.0.1`. Without [`tls`](Self::tls) only loopback names are
    /// accepted: `localhost`, `127.0.0.1`, `::1`, `[::1]`.
    pub host: String,
    /// The port, default 7433; 0 lets the system choose.
    pub port: u16,
    /// The bearer tokens, at least one.
    pub tokens: Vec<Token>,
    /// Origins of web pages that may call the host, byte for byte; none by default (contract 1.4).
    pub allowed_origins: Vec<String>,
    /// How many runs at once.
    pub concurrency: Concurrency,
    /// The certificate and key. With them every connection is TLS, version 1.2 or later.
    pub tls: Option<Tls>,
    /// Connections at once, from 1, default 10,240; each run holds one, and so does who waits in the queue. At the bound
    /// a newcomer takes the place of the connection that has waited the longest for a request; if all are being answered,
    /// it is closed. Each is a descriptor: keep it below what the process may have.
    pub max_connections: usize,
    /// Who may read `GET /metrics`. Without it, the default, there is no such path. It needs the feature `metrics`.
    pub metrics: Option<MetricsAccess>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: DEFAULT_PORT,
            tokens: Vec::new(),
            allowed_origins: Vec::new(),
            concurrency: Concurrency::default(),
            tls: None,
            max_connections: MAX_CONNECTIONS,
            metrics: None,
        }
    }
}

/// A credential, whom it identifies and what it allows (contract 6.2). `Debug` does not show the secret.
#[derive(Debug)]
pub struct Token {
    /// The secret, at least 32 characters without white space; distinct from every other token.
    pub token: SecretString,
    /// Whom it identifies, 1 to 128 characters (UTF-16 units). Several tokens may share one subject.
    pub subject: String,
    /// Provider instances that its runs may use.
    pub providers: Vec<String>,
    /// Host tools that its runs may select.
    pub tools: Vec<String>,
    /// Tools whose reviews it may decide.
    pub approve_tools: Vec<String>,
    /// Application tools that its runs may bring, and whose executions it may report.
    pub application_tools: Vec<ApplicationToolGrant>,
}

/// One entry of a token's `applicationTools` (contract 6.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplicationToolGrant {
    /// The tool's name; each stands once in a token.
    pub name: String,
    /// `requiresApproval`. A call is executed without review only if the grant, the host's configuration and the
    /// definition all do without one.
    pub review: Review,
}

impl ApplicationToolGrant {
    /// A tool whose calls are reviewed.
    pub fn reviewed(name: impl Into<String>) -> Self {
        Self { name: name.into(), review: Review::Required }
    }

    /// A tool that this credential does not ask to be reviewed (`requiresApproval: false`).
    pub fn unreviewed(name: impl Into<String>) -> Self {
        Self { name: name.into(), review: Review::NotRequired }
    }
}

/// Bounds on runs (contract 6.4): each from 1 to 100,000. A run that waits for a person holds its slot; a decision
/// needs none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concurrency {
    /// Runs at once, default 32.
    pub total: u32,
    /// Runs at once of one subject, default 4.
    pub per_subject: u32,
    /// Runs at once of these subjects, in place of `per_subject`.
    pub subjects: BTreeMap<String, u32>,
    /// Where runs wait for a slot. Without it, the default, they are answered `BUSY`.
    pub queue: Option<Queue>,
}

/// How many runs may wait for a slot, each from 1 to 100,000; over it they are answered `QUEUE_FULL`. Slots go
/// round-robin over the subjects that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// Runs that wait.
    pub total: u32,
    /// Runs that wait of one subject.
    pub per_subject: u32,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { total: 32, per_subject: 4, subjects: BTreeMap::new(), queue: None }
    }
}

impl Concurrency {
    /// How many runs this subject may have at once.
    pub(crate) fn of(&self, subject: &str) -> u32 {
        self.subjects.get(subject).copied().unwrap_or(self.per_subject)
    }

    /// A bound on connections that leaves room for all runs, for all that wait, and for decisions.
    pub(crate) fn connections(&self) -> usize {
        let queued = self.queue.map_or(0, |queue| queue.total);
        let runs = usize::try_from(self.total.saturating_add(queued)).unwrap_or(usize::MAX);
        runs.saturating_add(SPARE_CONNECTIONS).max(MAX_CONNECTIONS)
    }

    pub(crate) fn check(&self) -> Result<(), StartError> {
        let queue = self.queue.iter().flat_map(|queue| {
            [("concurrency.queue.total", queue.total), ("concurrency.queue.perSubject", queue.per_subject)]
        });
        let bounds = [("concurrency.total", self.total), ("concurrency.perSubject", self.per_subject)];
        let subjects = self.subjects.values().map(|bound| ("concurrency.subjects", *bound));
        for (field, value) in bounds.into_iter().chain(subjects).chain(queue) {
            if !(1..=MAX_CONCURRENCY).contains(&value) {
                return Err(StartError::invalid(field, "expected an integer from 1 to 100,000"));
            }
        }
        Ok(())
    }
}

/// Refuses an address that plain HTTP must not be served on (contract 6.3).
pub(crate) fn require_loopback(field: &str, host: &str) -> Result<(), StartError> {
    let loopback =
        ["localhost", "127.0.0.1", "::1", "[::1]"].iter().any(|name| host.eq_ignore_ascii_case(name));
    if loopback {
        return Ok(());
    }
    Err(StartError::with(
        Code::TLS_REQUIRED,
        field,
        "an address other than localhost, 127.0.0.1 or ::1 needs TLS: set `tls`",
    ))
}

/// Refuses an entry that no browser would ever send: an `Origin` header is a scheme, a host and maybe a port.
pub(crate) fn check_origin(field: &str, origin: &str) -> Result<(), StartError> {
    let authority = origin.split_once("://").map(|(_, rest)| rest);
    let shape = authority.is_some_and(|rest| {
        !rest.is_empty()
            && !rest.contains(|c: char| "/?#@*".contains(c) || c.is_whitespace() || !c.is_ascii_graphic())
    });
    if shape && url::Url::parse(origin).is_ok() {
        return Ok(());
    }
    Err(StartError::invalid(field, "expected an origin such as https://app.example, without a path"))
}
