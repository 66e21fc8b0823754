//! Google's Gemini API, generateContent (contract 11).
//!
//! `POST {baseUrl}/models/{model}:streamGenerateContent?alt=sse` with `x-goog-api-key`. A stream ends where the server ends
//! it, so a finish reason must have come by then; any other success is read as one whole answer. A call comes in one
//! piece, as JSON inside of the answer's JSON: its very text is cut out, and never parsed.

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
use answer::Answer;

const VENDOR: Vendor =
    Vendor { key: KeyHeader::Named("x-goog-api-key"), headers: &[], refusal: wire::refusal };

/// A server that speaks generateContent, and how to reach it.
#[derive(Debug, Clone)]
pub struct GeminiConfig {
    /// The instance that requests name.
    pub id: ProviderId,
    /// The name that people see, 1 to 100 UTF-16 units; without one it is the id.
    pub name: Option<String>,
    /// What `/models/{model}:streamGenerateContent` is appended to, such as [`GeminiConfig::BASE_URL`]. HTTPS, or HTTP to
    /// this machine; without credentials, query or fragment.
    pub base_url: Url,
    /// The key. `None` for a server that asks for none; an empty one fails each turn with `AUTH_REQUIRED`.
    pub api_key: Option<SecretString>,
    /// The models that may be asked for, 1 to 1,000. One with a slash, such as `tunedModels/mine`, is addressed as it is
    /// written, any other beneath `models`.
    pub models: Vec<ModelId>,
}

impl GeminiConfig {
    /// The vendor's own server.
    pub const BASE_URL: &str = "https://generativelanguage.googleapis.com/v1beta";
}

/// A provider that speaks generateContent.
///
/// It sends each turn once, but where the run's retry policy allows more and the vendor says that it is busy. Dropping a
/// turn closes its connection.
pub struct Gemini {
    info: ProviderInfo,
    endpoint: Endpoint,
}

impl Gemini {
    /// Prepares the connection; nothing is sent before the first turn.
    ///
    /// # Errors
    /// [`Error`] if a member of the configuration breaks its rule or TLS cannot be set up. No error shows the key.
    pub fn new(config: GeminiConfig) -> Result<Self, Error> {
        check_models("models", config.models.len())?;
        if let Some(name) = &config.name {
            check_name("name", name)?;
        }
        for (at, model) in config.models.iter().enumerate() {
            // Such a segment of a path would be left out, and another address asked.
            if model.as_str().split('/').any(|segment| matches!(segment, "" | "." | "..")) {
                return Err(Error::config(
                    format!("models[{at}]"),
                    "an empty segment, . or .. is no part of a name",
                ));
            }
        }
        let endpoint = Endpoint::of(&VENDOR, &config.base_url, &[], config.api_key.as_ref())?;
        let info = ProviderInfo {
            name: config.name.unwrap_or_else(|| config.id.to_string()),
            id: config.id,
            vendor: "gemini".to_owned(),
            auth_mode: if config.api_key.is_some() { AuthMode::ApiKey } else { AuthMode::None },
            capabilities: capabilities(Delivery::Streamed),
            models: Some(config.models),
            health: None,
            model_catalog: None,
        };
        Ok(Self { info, endpoint })
    }

    /// Where a model is, with what is asked of it, such as `:streamGenerateContent`.
    fn url(&self, model: &ModelId, verb: &str) -> Url {
        let name = match model.as_str() {
            name if name.contains('/') => format!("{name}{verb}"),
            name => format!("models/{name}{verb}"),
        };
        self.endpoint.url(&name.split('/').collect::<Vec<_>>())
    }
}

impl fmt::Debug for Gemini {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gemini").field("info", &self.info).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for Gemini {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    async fn turn(&self, request: TurnRequest<'_>, sink: &dyn TurnSink) -> Result<Turn, ProviderError> {
        let body = request::body(&request)?;
        let mut url = self.url(request.model, ":streamGenerateContent");
        url.set_query(Some("alt=sse"));
        let response = self.endpoint.post_to(url, "text/event-stream", body, request.retry).await?;
        if http::is_event_stream(&response) {
            streamed(response, sink).await
        } else {
            let body = http::whole(response).await?;
            let mut answer = Answer::default();
            // Its text is not streamed; the turn carries it.
            answer.take(wire::Object::parse(&body)?)?;
            answer.finish()?.ok_or_else(|| wire::invalid("no finish reason"))
        }
    }

    async fn discover(&self) -> Option<Discovery> {
        let mut url = self.endpoint.url(&["models"]);
        url.set_query(Some("pageSize=1000"));
        Some(discover::discover(&self.endpoint, url, discover::models).await)
    }
}

async fn streamed(response: Response, sink: &dyn TurnSink) -> Result<Turn, ProviderError> {
    let mut answer = Answer::default();
    let mut events = Events::new(response);
    while let Some(data) = events.next().await? {
        let heard = answer.take(wire::Object::parse(data.as_bytes())?)?;
        if !heard.text.is_empty() {
            sink.text(&heard.text);
        }
        if heard.more {
            sink.progress();
        }
    }
    answer.finish()?.ok_or_else(|| incomplete("the stream ended without a finish reason"))
}
