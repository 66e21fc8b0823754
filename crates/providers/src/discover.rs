//! How a vendor is and what models it lists, for `GET /v1/providers` (contract 1.7): one request for its list of models,
//! which costs nothing. Every token that may use a provider can have this asked, so no model is ever asked for a turn here,
//! as [`Probe`](crate::Probe) does for whoever owns the configuration.

use std::borrow::Cow;

use countersign_approval_core::ids::ModelId;
use countersign_driver::provider::{Discovery, ListedModels};
use countersign_protocol::code::Code;
use countersign_protocol::provider_info::HealthStatus;
use serde::Deserialize;
use url::Url;

use crate::http::{self, Endpoint};
use crate::probe::Verdict;

/// Names of models as a vendor lists them, and whether there are more.
pub(crate) struct Listing<'a> {
    names: Vec<Cow<'a, str>>,
    more: bool,
}

/// Reads a vendor's list; none if it is none.
pub(crate) type ReadListing = for<'a> fn(&'a [u8]) -> Option<Listing<'a>>;

/// Asks for the list of models at `url`.
pub(crate) async fn discover(endpoint: &Endpoint, url: Url, read: ReadListing) -> Discovery {
    let response = match endpoint.describe(url).await {
        Ok(response) => response,
        Err(Verdict::NoKey) => {
            let message = "The configuration has no key for this provider.";
            return without_models(HealthStatus::Unauthenticated, Code::AUTH_REQUIRED, message);
        }
        Err(verdict) => {
            let message = format!("The provider's server is {verdict}.");
            return without_models(HealthStatus::Unavailable, Code::PROVIDER_UNREACHABLE, message);
        }
    };
    let status = response.status().as_u16();
    let Ok(body) = http::whole(response).await else {
        let message = "The provider's server sent no whole answer.";
        return without_models(HealthStatus::Unavailable, Code::PROVIDER_UNREACHABLE, message);
    };
    if (200..300).contains(&status)
        && let Some(listing) = read(&body)
    {
        return ready(&listing);
    }
    if endpoint.is_about_the_key(status, &body) {
        let message = format!("The provider's server does not accept the key (HTTP {status}).");
        return without_models(HealthStatus::Unauthenticated, Code::PROVIDER_AUTH, message);
    }
    refused(status)
}

fn ready(listing: &Listing<'_>) -> Discovery {
    let models: Vec<ModelId> = listing.names.iter().filter_map(|name| ModelId::parse(name).ok()).collect();
    // A name that no request can carry is no model here, but the list is not complete without it.
    let complete = !listing.more && models.len() == listing.names.len();
    Discovery {
        status: HealthStatus::Ready,
        code: "READY".to_owned().into(),
        message: "The provider's server answers.".into(),
        models: Some(ListedModels { models, complete }),
    }
}

fn refused(status: u16) -> Discovery {
    let (health, code, what) = match status {
        404 | 405 | 501 => (
            HealthStatus::Unsupported,
            "DISCOVERY_UNSUPPORTED".to_owned().into(),
            "lists no models, so it cannot be probed",
        ),
        429 => (HealthStatus::Unavailable, Code::RATE_LIMITED, "takes no more requests now"),
        500.. => (HealthStatus::Unavailable, Code::PROVIDER_ERROR, "reports an error of its own"),
        _ => (
            HealthStatus::Unknown,
            Code::INVALID_PROVIDER_RESPONSE,
            "answers something that is no list of models",
        ),
    };
    without_models(health, code, format!("The provider's server {what} (HTTP {status})."))
}

fn without_models(status: HealthStatus, code: Code, message: impl Into<String>) -> Discovery {
    Discovery { status, code, message: message.into(), models: None }
}

/// `{"data": [{"id"}], "has_more"?}`, as OpenAI, those who follow it, and Anthropic answer.
#[cfg(any(feature = "openai-chat", feature = "openai-responses", feature = "anthropic"))]
pub(crate) fn data(body: &[u8]) -> Option<Listing<'_>> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        data: Vec<Model<'a>>,
        #[serde(default)]
        has_more: bool,
    }
    #[derive(Deserialize)]
    struct Model<'a> {
        #[serde(borrow)]
        id: Cow<'a, str>,
    }
    let list: List<'_> = serde_json::from_slice(body).ok()?;
    Some(Listing { names: list.data.into_iter().map(|model| model.id).collect(), more: list.has_more })
}

/// `{"models": [{"name": "models/NAME"}], "nextPageToken"?}`, as Gemini answers. A request names NAME alone.
#[cfg(feature = "gemini")]
pub(crate) fn models(body: &[u8]) -> Option<Listing<'_>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct List<'a> {
        #[serde(borrow)]
        models: Vec<Model<'a>>,
        #[serde(borrow)]
        next_page_token: Option<Cow<'a, str>>,
    }
    #[derive(Deserialize)]
    struct Model<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
    }
    let list: List<'_> = serde_json::from_slice(body).ok()?;
    let bare = |name: Cow<'_, str>| Cow::Owned(name.strip_prefix("models/").unwrap_or(&name).to_owned());
    Some(Listing {
        names: list.models.into_iter().map(|model| bare(model.name)).collect(),
        more: list.next_page_token.is_some_and(|token| !token.is_empty()),
    })
}
