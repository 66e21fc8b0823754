//! `GET /v1/providers` (contract 1.7).

use countersign_approval_core::clock::Clock;
use countersign_approval_core::grants::Grants;
use countersign_driver::Driver;
use countersign_driver::system::SystemClock;
use countersign_protocol::provider_info::{
    CatalogSource, Health, HealthStatus, ModelCatalog, ProviderInfo, ProviderList,
};

use crate::respond::{self, Answer};

/// The instances that the token names, in the order of the configuration. A token without any sees an empty list.
pub(crate) fn providers(driver: &Driver, grants: &Grants) -> Answer {
    let granted = driver.providers().filter(|info| grants.providers.allows(info.id.as_str()));
    respond::ok(&ProviderList { providers: granted.map(described).collect() })
}

/// No adapter of this version has a probe, so health is unsupported and the catalog is what was configured.
fn described(info: &ProviderInfo) -> ProviderInfo {
    let health = Health {
        status: HealthStatus::Unsupported,
        code: "DISCOVERY_UNSUPPORTED".into(),
        message: "This provider cannot be probed.".into(),
        checked_at: SystemClock::new().now().wall,
    };
    let (source, models) = match &info.models {
        Some(models) => (CatalogSource::Configured, models.iter().map(ToString::to_string).collect()),
        None => (CatalogSource::Unavailable, Vec::new()),
    };
    let catalog = ModelCatalog { source, models, complete: false };
    ProviderInfo { health: Some(health), model_catalog: Some(catalog), ..info.clone() }
}
