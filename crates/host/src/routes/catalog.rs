//! `GET /v1/providers` (contract 1.7).

use std::sync::Arc;

use countersign_approval_core::grants::Grants;
use countersign_protocol::provider_info::ProviderList;
use tokio::task::JoinSet;

use crate::discovery::Freshness;
use crate::respond::{self, Answer};
use crate::service::Shared;

/// The instances that the token names, in the order of the configuration, each with what its vendor says; all are asked
/// at once. A token without any sees an empty list, and has nobody asked.
pub(crate) async fn providers(shared: &Arc<Shared>, grants: &Grants, freshness: Freshness) -> Answer {
    let granted = shared.driver.providers().filter(|info| grants.providers.allows(info.id.as_str()));
    let mut asking = JoinSet::new();
    for (place, info) in granted.cloned().enumerate() {
        let shared = Arc::clone(shared);
        asking.spawn(async move { (place, shared.discovery.describe(&info, freshness).await) });
    }
    let mut described = asking.join_all().await;
    described.sort_by_key(|(place, _)| *place);
    respond::ok(&ProviderList { providers: described.into_iter().map(|(_, info)| info).collect() })
}
