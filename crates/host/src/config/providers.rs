//! `providers`: the kinds that this version offers (contract 6.1).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::Provider;
use countersign_protocol::code::Code;
use countersign_providers::{Delivery, Error, OpenAiChat, OpenAiChatConfig, Scripted, ScriptedConfig};
use secrecy::ExposeSecret;
use url::Url;

use super::reader::{Field, Object};
use super::secrets::Secrets;
use crate::error::StartError;

/// The most provider instances.
const MAX_PROVIDERS: usize = 32;
/// The most models of one instance.
const MAX_MODELS: usize = 1000;
/// Kinds of the contract that are not here yet.
const LATER_KINDS: &[&str] =
    &["openai", "anthropic", "gemini", "xai", "codex", "claude-code", "gemini-cli", "mock"];

/// A provider instance that was read and built: building sends nothing, and finds what reading alone cannot.
pub(crate) struct ProviderConfig(Arc<dyn Provider>);

impl ProviderConfig {
    pub(crate) fn id(&self) -> &ProviderId {
        &self.0.info().id
    }

    pub(crate) fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProviderConfig").field(self.id()).finish()
    }
}

pub(super) fn read(field: &Field<'_>, secrets: &Secrets<'_>) -> Result<Vec<ProviderConfig>, StartError> {
    let mut ids = BTreeSet::new();
    let mut providers = Vec::new();
    for field in field.array(1..=MAX_PROVIDERS)? {
        let provider = read_one(&field, secrets)?;
        if !ids.insert(provider.id().clone()) {
            return Err(StartError::invalid(format!("{}.id", field.path()), "another provider has this id"));
        }
        providers.push(provider);
    }
    Ok(providers)
}

fn read_one(field: &Field<'_>, secrets: &Secrets<'_>) -> Result<ProviderConfig, StartError> {
    let mut members = field.object()?;
    let kind = members.required("kind")?;
    let provider: Arc<dyn Provider> = match kind.string(1..=80)?.as_str() {
        "scripted" => Arc::new(scripted(field)?),
        "openai-compatible" => Arc::new(openai_compatible(field, members, secrets)?),
        later if LATER_KINDS.contains(&later) => {
            return Err(
                kind.invalid("not served by this version, which offers scripted and openai-compatible")
            );
        }
        _ => return Err(kind.invalid("unknown kind; this version offers scripted and openai-compatible")),
    };
    Ok(ProviderConfig(provider))
}

/// Reads its own text, because the scripts' argument texts are kept as they are written.
fn scripted(field: &Field<'_>) -> Result<Scripted, StartError> {
    let config = ScriptedConfig::parse(field.node().raw()).map_err(|error| beneath(field, &error))?;
    Ok(Scripted::from_config(config))
}

fn openai_compatible(
    field: &Field<'_>,
    mut members: Object<'_>,
    secrets: &Secrets<'_>,
) -> Result<OpenAiChat, StartError> {
    members.refuse(&["accountId", "inputMediaTypes"])?;
    let id = members.required("id")?;
    let name = members.optional("name").map(|name| name.string(1..=100)).transpose()?;
    let base_url = members.required("baseUrl")?;
    let key = members.required("apiKeyRef")?;
    let models = members.required("models")?;
    let delivery = match members.optional("streaming").map(|field| field.boolean()).transpose()? {
        None | Some(true) => Delivery::Streamed,
        Some(false) => Delivery::Whole,
    };
    members.finish()?;
    let api_key = secrets.resolve(&key)?;
    if api_key.expose_secret().is_empty() {
        return Err(StartError::with(Code::AUTH_REQUIRED, key.path(), "the key is empty"));
    }
    let model = |field: Field<'_>| {
        ModelId::parse(&field.string(1..=200)?).map_err(|invalid| field.invalid(invalid.rule))
    };
    let config = OpenAiChatConfig {
        id: ProviderId::parse(&id.string(1..=80)?).map_err(|invalid| id.invalid(invalid.rule))?,
        name,
        base_url: Url::parse(&base_url.string(1..=2048)?)
            .map_err(|error| base_url.invalid(format!("not a URL: {error}")))?,
        api_key: Some(api_key),
        models: models.array(1..=MAX_MODELS)?.into_iter().map(model).collect::<Result<_, _>>()?,
        delivery,
    };
    OpenAiChat::new(config).map_err(|error| beneath(field, &error))
}

/// What a provider says of its configuration, under the path of its entry.
fn beneath(field: &Field<'_>, error: &Error) -> StartError {
    match error {
        Error::Config { path, problem } if path.is_empty() => field.invalid(problem),
        Error::Config { path, problem } => StartError::invalid(format!("{}.{path}", field.path()), problem),
        Error::BaseUrl(problem) => StartError::invalid(format!("{}.baseUrl", field.path()), *problem),
        other => field.invalid(other.to_string()),
    }
}
