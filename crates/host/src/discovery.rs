//! What is known of the providers' vendors: asked when somebody wants to know, and remembered (contract 1.7).
//!
//! Every token can ask, so asking is bounded: one question for each provider at a time, whoever asks, at most one a
//! second, and 5 s for an answer. A question goes on when the one who asked hangs up; otherwise asking and hanging up
//! would be a way around the bound.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_approval_core::clock::Clock;
use countersign_approval_core::ids::ProviderId;
use countersign_driver::Driver;
use countersign_driver::provider::Discovery as Found;
use countersign_driver::system::SystemClock;
use countersign_protocol::code::Code;
use countersign_protocol::provider_info::{CatalogSource, Health, HealthStatus, ModelCatalog, ProviderInfo};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// How long an answer is good.
const LIFE: Duration = Duration::from_secs(30);
/// How long it is good even for somebody who wants a new one.
const REST: Duration = Duration::from_secs(1);
/// How long a vendor may take to answer.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// The most models of a catalog.
const MAX_MODELS: usize = 1_000;

/// Whether an answer that is remembered will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// It will, for 30 s.
    Remembered,
    /// Ask anew, if the last answer is a second old.
    Refreshed,
}

/// The answers, by provider.
pub(crate) struct Discovery {
    driver: Driver,
    known: BTreeMap<ProviderId, Arc<Mutex<Option<Known>>>>,
    stopped: CancellationToken,
}

#[derive(Clone)]
struct Known {
    at: Instant,
    health: Health,
    catalog: ModelCatalog,
}

impl Discovery {
    /// No question outlives `stopped`.
    pub(crate) fn new(driver: &Driver, stopped: CancellationToken) -> Self {
        let known = driver.providers().map(|info| (info.id.clone(), Arc::default())).collect();
        Self { driver: driver.clone(), known, stopped }
    }

    /// The provider with what is known of its vendor.
    pub(crate) async fn describe(&self, info: &ProviderInfo, freshness: Freshness) -> ProviderInfo {
        let known = match self.known.get(&info.id) {
            Some(known) => self.known(known, info, freshness).await,
            None => None,
        };
        let (health, model_catalog) = match known {
            Some(known) => (Some(known.health), Some(known.catalog)),
            None => (None, None),
        };
        ProviderInfo { health, model_catalog, ..info.clone() }
    }

    /// None only if the host has stopped meanwhile.
    async fn known(
        &self,
        known: &Arc<Mutex<Option<Known>>>,
        info: &ProviderInfo,
        freshness: Freshness,
    ) -> Option<Known> {
        // Held while the vendor is asked: who comes meanwhile waits for the same answer.
        let mut guard = Arc::clone(known).lock_owned().await;
        let life = match freshness {
            Freshness::Remembered => LIFE,
            Freshness::Refreshed => REST,
        };
        if let Some(known) = guard.as_ref().filter(|known| known.at.elapsed() < life) {
            return Some(known.clone());
        }
        let (driver, info, stopped) = (self.driver.clone(), info.clone(), self.stopped.clone());
        let asked = tokio::spawn(async move {
            let found = tokio::select! {
                biased;
                () = stopped.cancelled() => return None,
                found = ask(driver, info.id.clone()) => found,
            };
            let known = Known::new(found, &info);
            *guard = Some(known.clone());
            Some(known)
        });
        asked.await.ok().flatten()
    }
}

/// What the vendor says, or that it says nothing. A task of its own, so that a provider that panics takes nobody along.
async fn ask(driver: Driver, id: ProviderId) -> Option<Found> {
    let asking = AbortOnDropHandle::new(tokio::spawn(async move { driver.discover(&id).await }));
    let silent = |code, message: &str| {
        Some(Found { status: HealthStatus::Unavailable, code, message: message.into(), models: None })
    };
    match timeout(PROBE_LIMIT, asking).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => {
            tracing::error!(%error, "a provider panicked while it was asked how it is");
            silent(Code::INTERNAL_ERROR, "The provider cannot say how it is.")
        }
        Err(_) => silent(Code::TIMEOUT, "The provider's server gave no answer within 5 seconds."),
    }
}

impl Known {
    fn new(found: Option<Found>, info: &ProviderInfo) -> Self {
        let found = found.unwrap_or_else(|| Found {
            status: HealthStatus::Unsupported,
            code: "DISCOVERY_UNSUPPORTED".to_owned().into(),
            message: "This provider cannot be probed.".into(),
            models: None,
        });
        let catalog = match (found.models, &info.models) {
            (Some(listed), _) => ModelCatalog {
                source: CatalogSource::Provider,
                complete: listed.complete && listed.models.len() <= MAX_MODELS,
                models: listed.models.iter().take(MAX_MODELS).map(ToString::to_string).collect(),
            },
            (None, Some(models)) => ModelCatalog {
                source: CatalogSource::Configured,
                models: models.iter().take(MAX_MODELS).map(ToString::to_string).collect(),
                complete: false,
            },
            (None, None) => {
                ModelCatalog { source: CatalogSource::Unavailable, models: Vec::new(), complete: false }
            }
        };
        let health = Health {
            status: found.status,
            code: found.code.to_string(),
            message: found.message,
            checked_at: SystemClock::new().now().wall,
        };
        Self { at: Instant::now(), health, catalog }
    }
}
