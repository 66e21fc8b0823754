//! What a host says about its providers: `GET /v1/providers` (contract 1.7).
//!
//! Optional members are left out and never null; every client refuses null.

use std::collections::BTreeMap;

use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::{ModelId, ProviderId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::shape::present;

/// The answer: the providers that the token may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderList {
    /// One entry for each provider instance.
    pub providers: Vec<ProviderInfo>,
}

/// One provider instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderInfo {
    /// What a request names.
    pub id: ProviderId,
    /// A name for people.
    pub name: String,
    /// The vendor, such as `openai`.
    pub vendor: String,
    /// How the host authenticates at the vendor.
    pub auth_mode: AuthMode,
    /// What the provider can do.
    pub capabilities: Capabilities,
    /// The models that may be used: absent means any, empty means none.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<ModelId>>,
    /// The vendor's health at the last probe.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// The models that are known.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub model_catalog: Option<ModelCatalog>,
}

/// How the host authenticates at a vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthMode {
    /// With a key.
    ApiKey,
    /// Through a command-line program that is logged in.
    CliSession,
    /// Not at all.
    None,
}

/// What a provider can do. A capability that is missing counts as false (contract 2.1, step 9).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// It can call tools.
    pub tools: bool,
    /// It streams text.
    pub text_streaming: bool,
    /// Every other capability by name, such as `safeRetries`.
    #[serde(flatten)]
    pub others: BTreeMap<String, bool>,
}

impl Capabilities {
    /// Whether the provider says of this capability that it has it.
    pub fn has(&self, name: &str) -> bool {
        match name {
            "tools" => self.tools,
            "textStreaming" => self.text_streaming,
            other => self.others.get(other).copied().unwrap_or(false),
        }
    }
}

/// The vendor's health at the last probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// In one word.
    pub status: HealthStatus,
    /// A code for programs, such as `DISCOVERY_UNSUPPORTED`.
    #[serde(deserialize_with = "nonempty")]
    pub code: String,
    /// Text for people.
    pub message: String,
    /// When the probe was made.
    pub checked_at: Timestamp,
}

/// Health in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthStatus {
    /// It answers.
    Ready,
    /// It refuses the credential.
    Unauthenticated,
    /// It does not answer.
    Unavailable,
    /// It cannot be probed.
    Unsupported,
    /// Nobody knows.
    Unknown,
}

/// The models that are known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCatalog {
    /// Where the list comes from.
    pub source: CatalogSource,
    /// Up to 1,000 model ids.
    #[serde(deserialize_with = "at_most_1000")]
    pub models: Vec<String>,
    /// Whether the list has every model.
    pub complete: bool,
}

/// Where a model list comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatalogSource {
    /// The vendor's own list.
    Provider,
    /// The host's configuration.
    Configured,
    /// There is none.
    Unavailable,
}

fn nonempty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Err(D::Error::custom("expected text that is not empty"));
    }
    Ok(text)
}

fn at_most_1000<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let models = Vec::<String>::deserialize(deserializer)?;
    if models.len() > 1000 {
        return Err(D::Error::custom("more than 1,000 models"));
    }
    Ok(models)
}
