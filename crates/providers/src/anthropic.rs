//! Anthropic's Messages API (contract 11).
//!
//! `POST {baseUrl}/messages` with `x-api-key`, always streamed. An answer of type `text/event-stream` is read as a stream
//! that `message_stop` ends, any other success as one whole message. The pieces of a call's input are joined and never
//! parsed.

mod answer;
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
use crate::http::{self, Endpoint, KeyHeader, Vendor};
use answer::{Answer, Heard};

const VENDOR: Vendor = Vendor {
    key: KeyHeader::Named("x-api-key"),
    headers: &[("anthropic-version", "2023-06-01")],
    refusal: |_status, _body| None,
};

/// A server that speaks the Messages API, and how to reach it.
#[derive(Debug, Clone)]
pub struct AnthropicConfig {
    /// The instance that requests name.
    pub id: ProviderId,
    /// The name that people see, 1 to 100 UTF-16 units; without one it is the id.
    pub name: Option<String>,
    /// What `/messages` is appended to, such as [`AnthropicConfig::BASE_URL`]. HTTPS, or HTTP to this machine; without
    /// credentials, query or fragment.
    pub base_url: Url,
    /// The key. `None` for a server that asks for none; an empty one fails each turn with `AUTH_REQUIRED`.
    pub api_key: Option<SecretString>,
    /// The models that may be asked for, 1 to 1,000.
    pub models: Vec<ModelId>,
}

impl AnthropicConfig {
    /// The vendor's own server.
    pub const BASE_URL: &str = "https://api.anthropic.com/v1";
}

/// A provider that speaks the Messages API.
///
/// It sends each turn once, but where the run's retry policy allows more and the vendor says that it is busy. Dropping a
/// turn closes its connection.
pub struct Anthropic {
    info: ProviderInfo,
    endpoint: Endpoint,
}

impl Anthropic {
    /// Prepares the connection; nothing is sent before the first turn.
    ///
    /// # Errors
    /// [`Error`] if a member of the configuration breaks its rule or TLS cannot be set up. No error shows the key.
    pub fn new(config: AnthropicConfig) -> Result<Self, Error> {
        check_models("models", config.models.len())?;
        if let Some(name) = &config.name {
            check_name("name", name)?;
        }
        let endpoint = Endpoint::of(&VENDOR, &config.base_url, &["messages"], config.api_key.as_ref())?;
        let info = ProviderInfo {
            name: config.name.unwrap_or_else(|| config.id.to_string()),
            id: config.id,
            vendor: "anthropic".to_owned(),
            auth_mode: if config.api_key.is_some() { AuthMode::ApiKey } else { AuthMode::None },
            capabilities: capabilities(Delivery::Streamed),
            models: Some(config.models),
            health: None,
            model_catalog: None,
        };
        Ok(Self { info, endpoint })
    }
}

impl fmt::Debug for Anthropic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Anthropic").field("info", &self.info).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for Anthropic {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    async fn turn(&self, request: TurnRequest<'_>, sink: &dyn TurnSink) -> Result<Turn, ProviderError> {
        let body = request::body(&request)?;
        let response = self.endpoint.post("text/event-stream", body, request.retry).await?;
        if http::is_event_stream(&response) {
            streamed(response, sink).await
        } else {
            let body = http::whole(response).await?;
            let mut answer = Answer::default();
            answer.take_whole(wire::Whole::parse(&body)?)?;
            answer.finish()
        }
    }

    async fn discover(&self) -> Option<Discovery> {
        let mut url = self.endpoint.url(&["models"]);
        url.set_query(Some("limit=1000"));
        Some(discover::discover(&self.endpoint, url, discover::data).await)
    }
}

async fn streamed(response: Response, sink: &dyn TurnSink) -> Result<Turn, ProviderError> {
    let mut answer = Answer::default();
    let mut events = Events::new(response);
    while let Some(data) = events.next().await? {
        match answer.take_event(wire::Event::parse(&data)?)? {
            Heard::Text(piece) => sink.text(&piece),
            Heard::Something => sink.progress(),
            Heard::Nothing => {}
            Heard::End => return answer.finish(),
        }
    }
    // Even after a stop reason: only `message_stop` says that nothing was lost.
    Err(incomplete("the stream ended without message_stop"))
}
