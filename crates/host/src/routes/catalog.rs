//! `GET /v1/providers` (contract 1.7).

use countersign_approval_core::clock::Clock;
use countersign_approval_core::grants::Grants;
use countersign_driver::Driver;
use countersign_driver::system::SystemClock;
use countersign_protocol::provider_info::{Health, HealthStatus, ModelCatalog, ProviderInfo};
use serde::Serialize;

use crate::respond::{self, Answer};

/// The instances that the token names, in the order of the configuration. A token without any sees an empty list.
pub(crate) fn providers(driver: &Driver, grants: &Grants) -> Answer {
    let providers =
        driver.providers().filter(|info| grants.providers.allows(info.id.as_str())).map(described).collect();
    respond::ok(&Catalog { providers })
}

#[derive(Serialize)]
struct Catalog {
    providers: Vec<ProviderInfo>,
}

/// No adapter of this version has a probe, so health is unsupported and the catalog is what was configured.
fn described(info: &ProviderInfo) -> ProviderInfo {
    let health = Health {
        status: HealthStatus::Unsupported,
        code: "DISCOVERY_UNSUPPORTED".into(),
        message: "This provider cannot be probed.".into(),
        checked_at: SystemClock::default().now().wall,
    };
    ProviderInfo { health: Some(health), model_catalog: Some(ModelCatalog::configured(info.models.as_deref())), ..info.clone() }
}
