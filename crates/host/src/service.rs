//! The protocol over connections that somebody else accepts, and how it ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use countersign_driver::{Driver, Scope};
use countersign_protocol::version::{ProtocolInfo, feature};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::Tokens;
use crate::connection;
use crate::discovery::Discovery;
use crate::error::StartError;
use crate::metrics::{OpenStreams, Readers};
use crate::options::{Options, check_origin};
use crate::seats::Seats;
use crate::slots::Slots;
use crate::tls::Tls;
use crate::wire::Signals;

/// How long streams have to write `run.cancelled` after [`Service::close`] (design 4).
const CLOSING_GRACE: Duration = Duration::from_secs(2);
/// The most allowed origins (contract 6.1).
pub(crate) const MAX_ORIGINS: usize = 100;

/// Protocol 1.0 over any connection. Cheap to clone; all clones are one service.
#[derive(Clone)]
pub struct Service {
    pub(crate) shared: Arc<Shared>,
}

/// What all connections of a service share.
pub(crate) struct Shared {
    pub(crate) driver: Driver,
    pub(crate) discovery: Discovery,
    pub(crate) tokens: Tokens,
    pub(crate) origins: Vec<String>,
    pub(crate) slots: Slots,
    pub(crate) tls: Option<Tls>,
    pub(crate) seats: Arc<Seats>,
    /// Who may read the metrics.
    pub(crate) metrics: Readers,
    pub(crate) streams: OpenStreams,
    /// The answer to `GET /v1/protocol`: it never changes.
    pub(crate) protocol: Bytes,
    /// New work is refused and runs are aborted.
    pub(crate) closing: CancellationToken,
    /// The runs that came over these connections; `closing` cancels them.
    pub(crate) runs: Scope,
    /// When the service was made.
    pub(crate) started: Instant,
    /// Connections are dropped.
    pub(crate) stopped: CancellationToken,
    connections: TaskTracker,
}

impl Service {
    /// Makes a service. `host` and `port` of the options are not looked at.
    ///
    /// # Errors
    /// [`StartError`] naming the option at fault (contract 6.3).
    pub fn new(driver: Driver, options: &Options) -> Result<Self, StartError> {
        if options.allowed_origins.len() > MAX_ORIGINS {
            return Err(StartError::invalid("allowedOrigins", format!("at most {MAX_ORIGINS} origins")));
        }
        for (index, origin) in options.allowed_origins.iter().enumerate() {
            check_origin(&format!("allowedOrigins[{index}]"), origin)?;
        }
        let tokens = Tokens::new(&options.tokens)?;
        options.concurrency.check()?;
        if options.max_connections == 0 {
            return Err(StartError::invalid("max_connections", "expected at least 1"));
        }
        let protocol = protocol_info(&driver).map_err(|error| StartError::text(error.to_string()))?;
        let (closing, stopped) = (CancellationToken::new(), CancellationToken::new());
        let metrics = Readers::new(options.metrics.as_ref(), &tokens)?;
        let shared = Shared {
            discovery: Discovery::new(&driver, stopped.clone()),
            driver,
            tokens,
            origins: options.allowed_origins.clone(),
            slots: Slots::new(options.concurrency.clone()),
            tls: options.tls.clone(),
            seats: Seats::new(options.max_connections),
            metrics,
            streams: OpenStreams::default(),
            protocol,
            runs: Scope::new(closing.clone()),
            closing,
            started: Instant::now(),
            stopped,
            connections: TaskTracker::new(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Serves one connection until it ends, with the TLS handshake if the options have [`tls`](Options::tls). It ends at
    /// once if there are too many, see [`Options::max_connections`]. Dropping the future drops the connection and cancels
    /// its run.
    pub async fn serve_connection<I>(&self, io: I)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Some(seat) = self.shared.seats.take() else { return };
        let (shared, signals) = (Arc::clone(&self.shared), Arc::new(Signals::new(seat)));
        self.shared.connections.track_future(connection::serve(shared, signals, io)).await;
    }

    /// Ends the service: new work is refused with `HOST_SHUTTING_DOWN`, every run is aborted, streams have two
    /// seconds to write `run.cancelled`, then all connections are dropped. Returns when their runs have ended, the audit
    /// of their reviews is written, and their tools have stopped (they have five seconds). Calling it again waits for
    /// the same end.
    pub async fn close(&self) {
        self.shared.closing.cancel();
        self.shared.connections.close();
        if timeout(CLOSING_GRACE, self.shared.connections.wait()).await.is_err() {
            tracing::info!("connections were still open two seconds after closing; they are dropped");
        }
        self.shared.stopped.cancel();
        self.shared.connections.wait().await;
        self.shared.runs.finished().await;
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

/// Only features that are true of this host, in the contract's order (contract 1.6).
fn protocol_info(driver: &Driver) -> Result<Bytes, serde_json::Error> {
    let mut features = vec![feature::JSON_RESULTS];
    let (last, first): (Vec<_>, Vec<_>) =
        driver.features().into_iter().partition(|name| *name == feature::IDEMPOTENCY);
    features.extend(first);
    features.extend([
        feature::EVENT_STREAM,
        feature::CANCEL_ON_DISCONNECT,
        feature::OPTIONAL_IDLE_TIMEOUT,
        feature::REQUIRED_CAPABILITIES,
        feature::OPTIONAL_EVENTS,
        feature::PROVIDER_DISCOVERY,
    ]);
    features.extend(last);
    let features = features.into_iter().map(str::to_owned).collect();
    serde_json::to_vec(&ProtocolInfo::new(features)).map(Bytes::from)
}
