//! HTTP to a vendor: where it may go, what is trusted, and how an answer that is no model turn is told
//! (contract 11, "Common").
//!
//! No redirect is followed, no proxy is taken from the environment, and nothing is sent twice. There is no total
//! timeout: how long a model may take is the run's idle clock (contract 8).

use std::sync::Arc;
use std::time::Duration;

use countersign_driver::provider::ProviderError;
use countersign_protocol::code::Code;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response, StatusCode, redirect, retry};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::value::RawValue;
use url::{Host, Url};

use crate::error::Error;

/// The most bytes of an answer that is not a stream (contract 11).
pub(crate) const MAX_WHOLE_BYTES: usize = 2_000_000;

/// How long the connection may take to stand.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A kept connection is closed before most servers close it, so that a request seldom meets a dead one.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// How much of a refusal is read, and how long it may take, to name its type in the log.
const MAX_REFUSAL_BYTES: usize = 16_000;
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a vendor is, and how we show who we are.
pub(crate) struct Endpoint {
    client: Client,
    url: Url,
    key: Key,
}

/// The bearer token.
enum Key {
    /// The server asks for none.
    None,
    /// It asks for one, and the configuration's is empty (contract 6.1: a missing file is empty).
    Missing,
    /// The header, marked as sensitive, so that no `Debug` shows it.
    Bearer(HeaderValue),
}

impl Endpoint {
    /// `path` is what follows the base URL's own path.
    pub(crate) fn new(base: &Url, path: &[&str], key: Option<&SecretString>) -> Result<Self, Error> {
        let mut url = checked_base(base)?.clone();
        url.path_segments_mut()
            .map_err(|()| Error::BaseUrl("it cannot have a path"))?
            .pop_if_empty()
            .extend(path);
        Ok(Self { client: client(&url)?, url, key: Key::new(key)? })
    }

    /// Sends a JSON body and gives the answer if its status is a success.
    pub(crate) async fn post(&self, accept: &'static str, body: Vec<u8>) -> Result<Response, ProviderError> {
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, accept)
            .body(body);
        let request = match &self.key {
            Key::None => request,
            Key::Missing => return Err(ProviderError::new(Code::AUTH_REQUIRED)),
            Key::Bearer(header) => request.header(AUTHORIZATION, header.clone()),
        };
        let response = request.send().await.map_err(|error| {
            ProviderError::new(Code::PROVIDER_UNREACHABLE).with_source(error.without_url())
        })?;
        let status = response.status();
        if status.is_success() { Ok(response) } else { Err(refused(status, response).await) }
    }
}

impl Key {
    fn new(key: Option<&SecretString>) -> Result<Self, Error> {
        let Some(key) = key else { return Ok(Self::None) };
        let key = key.expose_secret();
        if key.is_empty() {
            return Ok(Self::Missing);
        }
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Key);
        }
        let mut header = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| Error::Key)?;
        header.set_sensitive(true);
        Ok(Self::Bearer(header))
    }
}

/// Whether the answer is a stream of server-sent events.
pub(crate) fn is_event_stream(response: &Response) -> bool {
    response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// Reads an answer that is not a stream.
pub(crate) async fn whole(mut response: Response) -> Result<Vec<u8>, ProviderError> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(cut)? {
        if body.len() + bytes.len() > MAX_WHOLE_BYTES {
            return Err(ProviderError::new(Code::RESPONSE_TOO_LARGE));
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

/// The answer broke off: what came is not the whole of it, whoever closed the connection.
pub(crate) fn cut(error: reqwest::Error) -> ProviderError {
    ProviderError::new(Code::INCOMPLETE_STREAM).with_source(error.without_url())
}

/// A vendor's error object, of which only short labels are kept. Its message may repeat the conversation or the key,
/// so it goes neither to the client nor to the log.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct VendorError<'a> {
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
}

impl<'a> VendorError<'a> {
    /// Reads the value of an `error` member. Any other form than an object has no labels.
    pub(crate) fn read(raw: &'a RawValue) -> Self {
        serde_json::from_str(raw.get()).unwrap_or_default()
    }

    /// The failure of an error that was sent where an answer should stand. It says `retryable` only for a rate limit:
    /// a 5xx here is no HTTP status, and some servers report a cut answer so.
    pub(crate) fn into_failure(self) -> ProviderError {
        let code = match self.status() {
            Some(429) => Code::RATE_LIMITED,
            Some(401 | 403) => Code::PROVIDER_AUTH,
            _ if self.says("rate_limit") => Code::RATE_LIMITED,
            _ => Code::PROVIDER_ERROR,
        };
        let mut failure =
            ProviderError::new(code).with_source(format!("the provider sent an error{}", self.labels()));
        failure.info.retryable = failure.info.code == Code::RATE_LIMITED;
        failure
    }

    fn status(&self) -> Option<u16> {
        self.code.and_then(|code| code.get().trim_matches('"').parse().ok())
    }

    fn says(&self, word: &str) -> bool {
        [self.code, self.kind].into_iter().flatten().any(|label| label.get().contains(word))
    }

    fn labels(&self) -> String {
        let label = |name, raw: Option<&RawValue>| {
            let text = raw.map(|raw| raw.get().trim_matches('"')).unwrap_or_default();
            // Only what looks like a vendor's own label: text of a conversation does not.
            let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            if plain && (1..=40).contains(&text.len()) { format!(" {name}={text}") } else { String::new() }
        };
        label("type", self.kind) + &label("code", self.code)
    }
}

async fn refused(status: StatusCode, response: Response) -> ProviderError {
    let code = match status.as_u16() {
        401 | 403 => Code::PROVIDER_AUTH,
        429 => Code::RATE_LIMITED,
        _ => Code::PROVIDER_ERROR,
    };
    let body = tokio::time::timeout(REFUSAL_TIMEOUT, beginning(response)).await.unwrap_or_default();
    let labels = serde_json::from_slice::<Refusal<'_>>(&body)
        .ok()
        .and_then(|refusal| refusal.error.map(|raw| VendorError::read(raw).labels()))
        .unwrap_or_default();
    let mut failure =
        ProviderError::new(code).with_source(format!("the provider answered HTTP {status}{labels}"));
    failure.info.retryable = status.as_u16() == 429 || status.is_server_error();
    failure
}

#[derive(Deserialize)]
struct Refusal<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

async fn beginning(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(bytes)) = response.chunk().await {
        if body.len() + bytes.len() > MAX_REFUSAL_BYTES {
            break;
        }
        body.extend_from_slice(&bytes);
    }
    body
}

/// HTTPS, or HTTP that does not leave this machine; nothing secret or changing in the URL.
fn checked_base(base: &Url) -> Result<&Url, Error> {
    let loopback = match base.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if base.scheme() != "https" && !(base.scheme() == "http" && loopback) {
        return Err(Error::BaseUrl("it must be HTTPS, or HTTP to this machine"));
    }
    if !base.username().is_empty() || base.password().is_some() {
        return Err(Error::BaseUrl("it must not contain credentials"));
    }
    if base.query().is_some() || base.fragment().is_some() {
        return Err(Error::BaseUrl("it must not contain a query or a fragment"));
    }
    Ok(base)
}

fn client(url: &Url) -> Result<Client, Error> {
    Client::builder()
        .tls_backend_preconfigured(tls(url)?)
        .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .build()
        .map_err(|error| Error::Client(error.into()))
}

/// The system's certificate authorities. Without HTTPS there is nobody to trust, and the system is not asked.
fn tls(url: &Url) -> Result<rustls::ClientConfig, Error> {
    let mut roots = rustls::RootCertStore::empty();
    if url.scheme() == "https" {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(Error::NoRoots);
        }
    }
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Client(error.into()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
    Ok(config)
}
