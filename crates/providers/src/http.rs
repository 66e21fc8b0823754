//! HTTP to a vendor: where it may go, what is trusted, and how an answer that is no model turn is told
//! (contract 11, "Common").
//!
//! No redirect is followed, no proxy is taken from the environment, and nothing is sent twice, but where a run's retry
//! policy allows it and the vendor answered that it is busy. There is no total timeout: how long a model may take is the
//! run's idle clock (contract 8).

use std::sync::Arc;
use std::time::Duration;

use countersign_driver::provider::{ProviderError, RetryPolicy};
use countersign_protocol::code::Code;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use reqwest::{Client, RequestBuilder, Response, StatusCode, redirect, retry};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::value::RawValue;
use url::{Host, Url};

use crate::error::Error;
use crate::probe::{self, Verdict};

/// The most bytes of an answer that is not a stream (contract 11).
pub(crate) const MAX_WHOLE_BYTES: usize = 2_000_000;

/// How long the connection may take to stand.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A kept connection is closed before most servers close it, so that a request seldom meets a dead one.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// How much of a refusal is read, and how long it may take, to name its type in the log.
const MAX_REFUSAL_BYTES: usize = 16_000;
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// What differs between vendors before any answer is read.
pub(crate) struct Vendor {
    /// How the key is shown.
    pub(crate) key: KeyHeader,
    /// What every request carries besides.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// What a refusal's body says and its status does not, with a short label for the log. The status is the first
    /// argument.
    pub(crate) refusal: Reading,
}

/// The code that a refusal's body asks for, and a label for the log.
type Reading = fn(u16, &[u8]) -> Option<(Code, &'static str)>;

/// The header that carries the key.
#[derive(Clone, Copy)]
pub(crate) enum KeyHeader {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// The bare key under this name, in lower case.
    Named(&'static str),
}

/// The key in `Authorization`, and nothing else of its own.
pub(crate) const BEARER: Vendor =
    Vendor { key: KeyHeader::Bearer, headers: &[], refusal: |_status, _body| None };

/// Where a vendor is, and how we show who we are.
pub(crate) struct Endpoint {
    client: Client,
    /// The base URL, which has no empty last segment.
    base: Url,
    url: Url,
    key: Key,
    vendor: &'static Vendor,
}

/// The key as a header.
enum Key {
    /// The server asks for none.
    None,
    /// It asks for one, and the configuration's is empty (contract 6.1: a missing file is empty).
    Missing,
    /// The header, marked as sensitive, so that no `Debug` shows it.
    Header(HeaderName, HeaderValue),
}

impl Endpoint {
    /// Where a key is a bearer token. `path` is what follows the base URL's own path.
    pub(crate) fn new(base: &Url, path: &[&str], key: Option<&SecretString>) -> Result<Self, Error> {
        Self::of(&BEARER, base, path, key)
    }

    /// As [`Endpoint::new`], for a vendor with headers of its own.
    pub(crate) fn of(
        vendor: &'static Vendor,
        base: &Url,
        path: &[&str],
        key: Option<&SecretString>,
    ) -> Result<Self, Error> {
        let mut base = checked_base(base)?.clone();
        base.path_segments_mut().map_err(|()| Error::BaseUrl("it cannot have a path"))?.pop_if_empty();
        let url = beneath(&base, path);
        Ok(Self { client: client(&url)?, base, url, key: Key::new(vendor.key, key)?, vendor })
    }

    /// An address beneath the base URL.
    pub(crate) fn url(&self, path: &[&str]) -> Url {
        beneath(&self.base, path)
    }

    /// Sends a JSON body and gives the answer if its status is a success.
    pub(crate) async fn post(
        &self,
        accept: &'static str,
        body: Vec<u8>,
        retry: RetryPolicy,
    ) -> Result<Response, ProviderError> {
        self.post_to(self.url.clone(), accept, body, retry).await
    }

    /// As [`Endpoint::post`], to an address of [`Endpoint::url`].
    ///
    /// It is sent again only after HTTP 429 (contract 11): then the vendor has done nothing of it. After any other
    /// failure it is not known how far the model came.
    pub(crate) async fn post_to(
        &self,
        url: Url,
        accept: &'static str,
        body: Vec<u8>,
        retry: RetryPolicy,
    ) -> Result<Response, ProviderError> {
        let mut request =
            self.prepare(self.client.post(url), accept)?.header(CONTENT_TYPE, "application/json").body(body);
        let mut attempt = 1;
        loop {
            let again = if attempt < retry.max_attempts { request.try_clone() } else { None };
            let response = request.send().await.map_err(|error| {
                ProviderError::new(Code::PROVIDER_UNREACHABLE).with_source(error.without_url())
            })?;
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            let wait = if status == StatusCode::TOO_MANY_REQUESTS {
                wait(response.headers(), retry, attempt)
            } else {
                None
            };
            let failure = refused(self.vendor, status, response).await;
            let (Some(again), Some(wait)) = (again, wait) else { return Err(failure) };
            tokio::time::sleep(wait).await;
            request = again;
            attempt += 1;
        }
    }

    /// Asks for the description of something. Any answer is one.
    pub(crate) async fn describe(&self, url: Url) -> Result<Response, Verdict> {
        self.try_send(self.client.get(url)).await
    }

    /// Whether a refusal is about the key: by its status, or in the vendor's own words.
    pub(crate) fn is_about_the_key(&self, status: u16, body: &[u8]) -> bool {
        matches!(status, 401 | 403)
            || (self.vendor.refusal)(status, body).is_some_and(|(code, _)| code == Code::PROVIDER_AUTH)
    }

    /// Sends a turn to see what becomes of it. Any answer is one.
    pub(crate) async fn try_turn(&self, url: Url, body: Vec<u8>) -> Result<Response, Verdict> {
        self.try_send(self.client.post(url).header(CONTENT_TYPE, "application/json").body(body)).await
    }

    /// Sends on a connection of its own: one that is kept may have been closed by the server a moment ago, and that says
    /// nothing about whether the server would serve.
    async fn try_send(&self, request: RequestBuilder) -> Result<Response, Verdict> {
        let request = request.header(CONNECTION, "close");
        let request = self.prepare(request, "application/json").map_err(|_| Verdict::NoKey)?;
        request.send().await.map_err(|error| probe::unreachable(&error))
    }

    fn prepare(
        &self,
        request: RequestBuilder,
        accept: &'static str,
    ) -> Result<RequestBuilder, ProviderError> {
        let mut request = request.header(ACCEPT, accept);
        for (name, value) in self.vendor.headers {
            request = request.header(*name, *value);
        }
        match &self.key {
            Key::None => Ok(request),
            Key::Missing => Err(ProviderError::new(Code::AUTH_REQUIRED)),
            Key::Header(name, value) => Ok(request.header(name.clone(), value.clone())),
        }
    }
}

/// How long to wait after an attempt, if that is not longer than the policy allows: what the policy says or the vendor
/// asks for, whichever is more.
fn wait(headers: &HeaderMap, retry: RetryPolicy, attempt: u32) -> Option<Duration> {
    let asked = match headers.get(RETRY_AFTER) {
        None => Duration::ZERO,
        // A date, or anything else that is not a number of seconds, is not guessed at.
        Some(seconds) => Duration::try_from_secs_f64(seconds.to_str().ok()?.trim().parse().ok()?).ok()?,
    };
    let wait = retry.base_delay.saturating_mul(1 << (attempt - 1).min(16)).max(asked);
    (wait <= retry.max_delay).then_some(wait)
}

/// `path` appended to a base URL, each part as one segment.
fn beneath(base: &Url, path: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.extend(path);
    }
    url
}

impl Key {
    fn new(header: KeyHeader, key: Option<&SecretString>) -> Result<Self, Error> {
        let Some(key) = key else { return Ok(Self::None) };
        let key = key.expose_secret();
        if key.is_empty() {
            return Ok(Self::Missing);
        }
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Key);
        }
        let (name, value) = match header {
            KeyHeader::Bearer => (AUTHORIZATION, HeaderValue::try_from(format!("Bearer {key}"))),
            KeyHeader::Named(name) => (HeaderName::from_static(name), HeaderValue::try_from(key)),
        };
        let mut value = value.map_err(|_| Error::Key)?;
        value.set_sensitive(true);
        Ok(Self::Header(name, value))
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

    pub(crate) fn labels(&self) -> String {
        let label = |name, raw: Option<&RawValue>| {
            let text = raw.map(|raw| raw.get().trim_matches('"')).unwrap_or_default();
            if is_label(text) { format!(" {name}={text}") } else { String::new() }
        };
        label("type", self.kind) + &label("code", self.code)
    }
}

/// Only what looks like a vendor's own label, such as `invalid_request_error` or `429`: text of a conversation does not,
/// and neither does a key, which has a longer word or more digits.
fn is_label(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    plain && (1..=40).contains(&text.len()) && digits <= 4 && text.split('_').all(|word| word.len() <= 15)
}

async fn refused(vendor: &Vendor, status: StatusCode, response: Response) -> ProviderError {
    let body = tokio::time::timeout(REFUSAL_TIMEOUT, beginning(response)).await.unwrap_or_default();
    let mut labels = serde_json::from_slice::<Refusal<'_>>(&body)
        .ok()
        .and_then(|refusal| refusal.error.map(|raw| VendorError::read(raw).labels()))
        .unwrap_or_default();
    let code = match (status.as_u16(), (vendor.refusal)(status.as_u16(), &body)) {
        (_, Some((code, label))) => {
            labels.push(' ');
            labels.push_str(label);
            code
        }
        (401 | 403, None) => Code::PROVIDER_AUTH,
        (429, None) => Code::RATE_LIMITED,
        (_, None) => Code::PROVIDER_ERROR,
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Contract 11: the greater of what the policy and the vendor say, and nothing that is longer than allowed.
    #[test]
    fn waits() {
        let retry = RetryPolicy {
            max_attempts: 5,
            base_delay: Duration::from_millis(500),
            max_delay: Duration::from_secs(4),
        };
        let rows = [
            (1, None, Some(500)),
            (2, None, Some(1_000)),
            (4, None, Some(4_000)),
            (5, None, None),
            (u32::MAX, None, None),
            (1, Some("0"), Some(500)),
            (1, Some("3"), Some(3_000)),
            (3, Some("1"), Some(2_000)),
            (1, Some(" 0.75 "), Some(750)),
            (1, Some("4"), Some(4_000)),
            (1, Some("5"), None),
            (1, Some("-1"), None),
            (1, Some("inf"), None),
            (1, Some("NaN"), None),
            (1, Some(""), None),
            (1, Some("Wed, 21 Oct 2026 07:28:00 GMT"), None),
        ];
        for (attempt, header, expected) in rows {
            let mut headers = HeaderMap::new();
            if let Some(value) = header {
                headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
            }
            let expected = expected.map(Duration::from_millis);
            assert_eq!(wait(&headers, retry, attempt), expected, "attempt {attempt}, {header:?}");
        }
    }
}
