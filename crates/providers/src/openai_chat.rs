//! Chat Completions over HTTP, as OpenAI published it and many servers speak it (contract 11).
//!
//! `POST {baseUrl}/chat/completions` with a bearer token. An answer of type `text/event-stream` is read as a stream that
//! `[DONE]` ends, any other success as one whole object, whichever was asked for. Fragments of a call's argument text
//! are joined and never parsed.

mod answer;
mod calls;
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
use crate::http::{self, BEARER, Endpoint, Vendor};
use answer::Answer;
use wire::Object;

const VENDOR: Vendor = Vendor { refusal: wire::refusal, ..BEARER };

/// A Chat Completions server and how to reach it.
#[derive(Debug, Clone)]
pub struct OpenAiChatConfig {
    /// The instance that requests name.
    pub id: ProviderId,
    /// The name that people see, 1 to 100 UTF-16 units; without one it is the id.
    pub name: Option<String>,
    /// What `/chat/completions` is appended to, such as `https://api.x.ai/v1`. HTTPS, or HTTP to this machine; without
    /// credentials, query or fragment.
    pub base_url: Url,
    /// The bearer token. `None` for a server that asks for none; an empty one fails each turn with `AUTH_REQUIRED`.
    pub api_key: Option<SecretString>,
    /// The models that may be asked for, 1 to 1,000.
    pub models: Vec<ModelId>,
    /// How the server is asked to answer.
    pub delivery: Delivery,
}

/// A provider that speaks Chat Completions.
///
/// It sends each turn once, unless the run's retry policy lets it ask a busy server again. Dropping a turn closes its
/// connection.
pub struct OpenAiChat {
    info: ProviderInfo,
    endpoint: Endpoint,
    delivery: Delivery,
}

impl OpenAiChat {
    /// Prepares the connection; nothing is sent before the first turn.
    ///
    /// # Errors
    /// [`Error`] if a member of the configuration breaks its rule or TLS cannot be set up. No error shows the key.
    pub fn new(config: OpenAiChatConfig) -> Result<Self, Error> {
        check_models("models", config.models.len())?;
        if let Some(name) = &config.name {
            check_name("name", name)?;
        }
        let path = ["chat", "completions"];
        let endpoint = Endpoint::of(&VENDOR, &config.base_url, &path, config.api_key.as_ref())?;
        let info = ProviderInfo {
            name: config.name.unwrap_or_else(|| config.id.to_string()),
            id: config.id,
            vendor: "openai-compatible".to_owned(),
            auth_mode: if config.api_key.is_some() { AuthMode::ApiKey } else { AuthMode::None },
            capabilities: capabilities(config.delivery),
            models: Some(config.models),
            health: None,
            model_catalog: None,
        };
        Ok(Self { info, endpoint, delivery: config.delivery })
    }
}

impl fmt::Debug for OpenAiChat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiChat").field("info", &self.info).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for OpenAiChat {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    async fn turn(&self, request: TurnRequest<'_>, sink: &dyn TurnSink) -> Result<Turn, ProviderError> {
        let body = request::body(&request, self.delivery)?;
        let response = self.endpoint.post(self.delivery.accept(), body, request.retry).await?;
        if http::is_event_stream(&response) {
            streamed(response, sink).await
        } else {
            let body = http::whole(response).await?;
            let mut answer = Answer::default();
            answer.take_whole(Object::parse(&body)?)?;
            answer.finish()
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
        if data == "[DONE]" {
            return answer.finish();
        }
        answer.take_chunk(Object::parse(data.as_bytes())?, sink)?;
    }
    // Even after a finish reason: only `[DONE]` says that nothing was lost (contract 11).
    Err(incomplete("the stream ended without [DONE]"))
}
