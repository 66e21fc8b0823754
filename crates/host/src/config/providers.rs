//! `providers`: the kinds that this version offers (contract 6.1).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::Provider;
use countersign_protocol::code::Code;
use countersign_providers::{
    Anthropic, AnthropicConfig, Delivery, Error, Gemini, GeminiConfig, OpenAiChat, OpenAiChatConfig,
    OpenAiResponses, OpenAiResponsesConfig, Probe, ResponsesVendor, Scripted, ScriptedConfig,
};
use secrecy::{ExposeSecret, SecretString};
use url::{SyntaxViolation, Url};

use super::reader::{Field, Object};
use super::secrets::Secrets;
use crate::error::StartError;

/// The most provider instances.
const MAX_PROVIDERS: usize = 32;
/// The most models of one instance.
const MAX_MODELS: usize = 1000;
/// What can be configured, for people who wrote another.
const KINDS: &str = "scripted, openai, openai-compatible, xai, anthropic and gemini";
/// Kinds of the contract that are not here.
const NOT_SERVED: &[&str] = &["codex", "claude-code", "gemini-cli", "mock"];

/// A provider instance that was read and built: building sends nothing, and finds what reading alone cannot.
pub(crate) struct ProviderConfig {
    kind: &'static str,
    provider: Arc<dyn Provider>,
    /// The same one; none if there is no server behind it.
    probe: Option<Arc<dyn Probe>>,
}

impl ProviderConfig {
    pub(crate) fn id(&self) -> &ProviderId {
        &self.provider.info().id
    }

    pub(crate) const fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.provider)
    }

    pub(crate) fn probe(&self) -> Option<Arc<dyn Probe>> {
        self.probe.clone()
    }
}

impl fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderConfig").field("id", self.id()).field("kind", &self.kind).finish()
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
    match kind.string(1..=80)?.as_str() {
        "scripted" => scripted(field),
        "openai" => openai(field, members, secrets),
        "openai-compatible" => chat(field, members, secrets, "openai-compatible", None),
        "xai" => chat(field, members, secrets, "xai", Some(ResponsesVendor::Xai.base_url())),
        "anthropic" => anthropic(field, members, secrets),
        "gemini" => gemini(field, members, secrets),
        later if NOT_SERVED.contains(&later) => {
            Err(kind.invalid(format!("not served by this version, which offers {KINDS}")))
        }
        _ => Err(kind.invalid(format!("unknown kind; this version offers {KINDS}"))),
    }
}

/// Reads its own text, because the scripts' argument texts are kept as they are written.
fn scripted(field: &Field<'_>) -> Result<ProviderConfig, StartError> {
    let config = ScriptedConfig::parse(field.node().raw()).map_err(|error| beneath(field, &error))?;
    let provider = Arc::new(Scripted::from_config(config));
    Ok(ProviderConfig { kind: "scripted", provider, probe: None })
}

fn openai(
    field: &Field<'_>,
    mut members: Object<'_>,
    secrets: &Secrets<'_>,
) -> Result<ProviderConfig, StartError> {
    let (delivery, vendor) = (delivery(&mut members)?, ResponsesVendor::OpenAi);
    let Api { id, name, base_url, api_key, models } =
        Api::read(members, secrets, "openai", Some(vendor.base_url()))?;
    let config =
        OpenAiResponsesConfig { id, name, vendor, base_url, api_key: Some(api_key), models, delivery };
    built(field, "openai", OpenAiResponses::new(config))
}

fn chat(
    field: &Field<'_>,
    mut members: Object<'_>,
    secrets: &Secrets<'_>,
    kind: &'static str,
    own: Option<&str>,
) -> Result<ProviderConfig, StartError> {
    let delivery = delivery(&mut members)?;
    let Api { id, name, base_url, api_key, models } = Api::read(members, secrets, kind, own)?;
    let config = OpenAiChatConfig { id, name, base_url, api_key: Some(api_key), models, delivery };
    built(field, kind, OpenAiChat::new(config))
}

fn delivery(members: &mut Object<'_>) -> Result<Delivery, StartError> {
    Ok(match members.optional("streaming").map(|field| field.boolean()).transpose()? {
        None | Some(true) => Delivery::Streamed,
        Some(false) => Delivery::Whole,
    })
}

fn anthropic(
    field: &Field<'_>,
    members: Object<'_>,
    secrets: &Secrets<'_>,
) -> Result<ProviderConfig, StartError> {
    let Api { id, name, base_url, api_key, models } =
        Api::read(members, secrets, "anthropic", Some(AnthropicConfig::BASE_URL))?;
    let config = AnthropicConfig { id, name, base_url, api_key: Some(api_key), models };
    built(field, "anthropic", Anthropic::new(config))
}

fn gemini(
    field: &Field<'_>,
    members: Object<'_>,
    secrets: &Secrets<'_>,
) -> Result<ProviderConfig, StartError> {
    let Api { id, name, base_url, api_key, models } =
        Api::read(members, secrets, "gemini", Some(GeminiConfig::BASE_URL))?;
    let config = GeminiConfig { id, name, base_url, api_key: Some(api_key), models };
    built(field, "gemini", Gemini::new(config))
}

/// What every kind with a server and a key has.
struct Api {
    id: ProviderId,
    name: Option<String>,
    base_url: Url,
    api_key: SecretString,
    models: Vec<ModelId>,
}

impl Api {
    /// Reads all that is left of an entry. `own` is where the vendor is; without it the entry must name a base URL.
    fn read(
        mut members: Object<'_>,
        secrets: &Secrets<'_>,
        kind: &str,
        own: Option<&str>,
    ) -> Result<Self, StartError> {
        members.refuse(&["accountId", "inputMediaTypes", "accountDirectory", "binary"])?;
        let id = members.required("id")?;
        let name = members.optional("name").map(|name| name.string(1..=100)).transpose()?;
        let base_url = match own {
            None => url(&members.required("baseUrl")?)?,
            Some(own) => match members.optional("baseUrl") {
                Some(field) => url(&field)?,
                None => Url::parse(own).map_err(|error| StartError::text(error.to_string()))?,
            },
        };
        let key = members.required("apiKeyRef")?;
        let models = members.required("models")?;
        for (name, of) in [
            ("scripts", "scripted"),
            ("default", "scripted"),
            ("capabilities", "scripted"),
            ("streaming", "openai, openai-compatible and xai"),
        ] {
            if let Some(field) = members.optional(name) {
                return Err(field.invalid(format!("not a member of the kind {kind}, only of {of}")));
            }
        }
        members.finish()?;
        let api_key = secrets.resolve(&key)?;
        if api_key.expose_secret().is_empty() {
            return Err(StartError::with(Code::AUTH_REQUIRED, key.path(), "the key is empty"));
        }
        let model = |field: Field<'_>| {
            ModelId::parse(&field.string(1..=200)?).map_err(|invalid| field.invalid(invalid.rule))
        };
        Ok(Self {
            id: ProviderId::parse(&id.string(1..=80)?).map_err(|invalid| id.invalid(invalid.rule))?,
            name,
            base_url,
            api_key,
            models: models.array(1..=MAX_MODELS)?.into_iter().map(model).collect::<Result<_, _>>()?,
        })
    }
}

/// A URL as it is written: what a browser would mend (white space, back slashes, slashes too few or too many) is
/// refused (law 3).
fn url(field: &Field<'_>) -> Result<Url, StartError> {
    let mended = Cell::new(None);
    let url = Url::options()
        .syntax_violation_callback(Some(&|violation| mended.set(Some(violation))))
        .parse(&field.string(1..=2048)?)
        .map_err(|error| field.invalid(format!("not a URL: {error}")))?;
    match mended.get() {
        None | Some(SyntaxViolation::EmbeddedCredentials) => Ok(url),
        Some(violation) => Err(field.invalid(format!("not a URL as it should be: {violation}"))),
    }
}

fn built<P: Provider + Probe + 'static>(
    field: &Field<'_>,
    kind: &'static str,
    provider: Result<P, Error>,
) -> Result<ProviderConfig, StartError> {
    let provider = Arc::new(provider.map_err(|error| beneath(field, &error))?);
    let probe: Arc<dyn Probe> = Arc::clone(&provider) as _;
    Ok(ProviderConfig { kind, provider, probe: Some(probe) })
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
