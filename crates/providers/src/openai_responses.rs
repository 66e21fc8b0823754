//! The Responses API over HTTP, as OpenAI published it and xAI speaks it (contract 11).
//!
//! `POST {baseUrl}/responses` with a bearer token and `store: false`, so that nothing is kept at the vendor: each step
//! tells the whole conversation again. An answer is a list of *items*. What is said of an item in pieces, of its end and
//! of the whole answer must agree to the byte; an answer that contradicts itself is refused.

mod answer;
mod item;
mod probe;
mod request;
mod wire;

use std::fmt;

use async_trait::async_trait;
use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::{Discovery, Provider, ProviderError, Turn, TurnRequest, TurnSink};
use countersign_protocol::provider_info::{AuthMode, ProviderInfo};
use reqwest::Response;
use secrecy::SecretString;
use url::Url;

use crate::common::{Delivery, capabilities, check_models, check_name};
use crate::discover;
use crate::error::Error;
use crate::events::{Events, incomplete};
use crate::http::{self, Endpoint};
use answer::Answer;

/// Whose Responses API it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponsesVendor {
    /// OpenAI's, or a server that is compatible with it.
    OpenAi,
    /// xAI's, which has no strict mode of tools to switch off.
    Xai,
}

/// A server that speaks the Responses API, and how to reach it.
#[derive(Debug, Clone)]
pub struct OpenAiResponsesConfig {
    /// The instance that requests name.
    pub id: ProviderId,
    /// The name that people see, 1 to 100 UTF-16 units; without one it is the id.
    pub name: Option<String>,
    /// Whose API it is.
    pub vendor: ResponsesVendor,
    /// What `/responses` is appended to, such as [`ResponsesVendor::base_url`]. HTTPS, or HTTP to this machine; without
    /// credentials, query or fragment.
    pub base_url: Url,
    /// The bearer token. `None` for a server that asks for none; an empty one fails each turn with `AUTH_REQUIRED`.
    pub api_key: Option<SecretString>,
    /// The models that may be asked for, 1 to 1,000.
    pub models: Vec<ModelId>,
    /// How the server is asked to answer.
    pub delivery: Delivery,
}

/// A provider that speaks the Responses API.
///
/// It sends each turn once, unless the run's retry policy lets it ask a busy server again. Dropping a turn closes its
/// connection.
pub struct OpenAiResponses {
    info: ProviderInfo,
    endpoint: Endpoint,
    vendor: ResponsesVendor,
    delivery: Delivery,
}

impl ResponsesVendor {
    /// The vendor's own server.
    pub const fn base_url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Xai => "https://api.x.ai/v1",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Xai => "xai",
        }
    }
}

impl OpenAiResponses {
    /// Prepares the connection; nothing is sent before the first turn.
    ///
    /// # Errors
    /// [`Error`] if a member of the configuration breaks its rule or TLS cannot be set up. No error shows the key.
    pub fn new(config: OpenAiResponsesConfig) -> Result<Self, Error> {
        check_models("models", config.models.len())?;
        if let Some(name) = &config.name {
            check_name("name", name)?;
        }
        let endpoint = Endpoint::new(&config.base_url, &["responses"], config.api_key.as_ref())?;
        let info = ProviderInfo {
            name: config.name.unwrap_or_else(|| config.id.to_string()),
            id: config.id,
            vendor: config.vendor.name().to_owned(),
            auth_mode: if config.api_key.is_some() { AuthMode::ApiKey } else { AuthMode::None },
            capabilities: capabilities(config.delivery),
            models: Some(config.models),
            health: None,
            model_catalog: None,
        };
        Ok(Self { info, endpoint, vendor: config.vendor, delivery: config.delivery })
    }
}

impl fmt::Debug for OpenAiResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiResponses").field("info", &self.info).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for OpenAiResponses {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    async fn turn(&self, request: TurnRequest<'_>, sink: &dyn TurnSink) -> Result<Turn, ProviderError> {
        let body = request::body(&request, self.vendor, self.delivery)?;
        let response = self.endpoint.post(self.delivery.accept(), body, request.retry).await?;
        if http::is_event_stream(&response) {
            streamed(response, sink).await
        } else {
            let body = http::whole(response).await?;
            Answer::default().finish(wire::whole(&body)?)
        }
    }

    async fn discover(&self) -> Option<Discovery> {
        let url = self.endpoint.url(&["models"]);
        Some(discover::discover(&self.endpoint, url, discover::data).await)
    }
}

async fn streamed(response: Response, sink: &dyn TurnSink) -> Result<Turn, ProviderError> {
    let mut answer = Answer::default();
    let mut events = Events::new(response);
    while let Some(data) = events.next().await? {
        // Some servers close with it; it says nothing that an event did not say.
        if data == "[DONE]" {
            break;
        }
        let event = wire::Event::parse(&data)?;
        if event.ends() {
            return answer.finish(event.response()?);
        }
        answer.take(event, sink)?;
    }
    Err(incomplete("the stream ended before the response did"))
}
