//! Reading answers (contract 10.2): status, version, size and kind, before any content is believed.

use std::future::poll_fn;
use std::time::Duration;

use countersign_protocol::code::ErrorBody;
use countersign_protocol::version::{
    MAX_ERROR_BYTES, MAX_RESPONSE_BYTES, SSE_MEDIA_TYPE, VERSION, VERSION_HEADER,
};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};

use crate::error::Error;
use crate::transport::{BodyStream, TransportError};

/// How long the body of a refusal may take. A `POST` has no limit of its own, but a refusal is small and complete.
const REFUSAL_LIMIT: Duration = Duration::from_secs(10);

/// The text of a JSON answer.
pub(crate) async fn json_text(response: Response<BodyStream>) -> Result<String, Error> {
    let (_, body) = accepted(response).await?;
    match collect(body, MAX_RESPONSE_BYTES).await {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| Error::invalid("it is not UTF-8")),
        Err(Uncollected::TooLarge) => Err(Error::ResponseTooLarge { limit: MAX_RESPONSE_BYTES }),
        Err(Uncollected::Broken(error)) => Err(Error::Transport(error)),
    }
}

/// The body of an answer that is an event stream.
pub(crate) async fn event_stream(response: Response<BodyStream>) -> Result<BodyStream, Error> {
    let (headers, body) = accepted(response).await?;
    if is_event_stream(&headers) { Ok(body) } else { Err(Error::invalid("it is not an event stream")) }
}

/// Head and body of a success that speaks this version. The status comes first (contract 10.2): a refusal says more
/// than its version.
async fn accepted(response: Response<BodyStream>) -> Result<(HeaderMap, BodyStream), Error> {
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        return Err(refusal(head.status.as_u16(), body).await);
    }
    let mut versions = head.headers.get_all(VERSION_HEADER).iter();
    // A host without the header is an old one.
    let version = versions.next();
    if version.is_some_and(|version| version.as_bytes() != VERSION.as_bytes()) || versions.next().is_some() {
        return Err(Error::UnsupportedVersion);
    }
    Ok((head.headers, body))
}

async fn refusal(status: u16, body: BodyStream) -> Error {
    let read = tokio::time::timeout(REFUSAL_LIMIT, collect(body, MAX_ERROR_BYTES)).await;
    let info = match read {
        Ok(Ok(bytes)) => std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| countersign_protocol::decode::<ErrorBody>(text).ok())
            .map(|body| body.error),
        Ok(Err(_)) | Err(_) => None,
    };
    info.map_or(Error::Http { status }, Error::Remote)
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let mut kinds = headers.get_all(CONTENT_TYPE).iter();
    let kind = kinds.next().and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // Parameters are allowed.
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case(SSE_MEDIA_TYPE) && kinds.next().is_none()
}

enum Uncollected {
    TooLarge,
    Broken(TransportError),
}

/// Never holds more than `limit` bytes and one chunk.
async fn collect(mut body: BodyStream, limit: usize) -> Result<Vec<u8>, Uncollected> {
    let mut all = Vec::new();
    while let Some(chunk) = poll_fn(|cx| body.as_mut().poll_next(cx)).await {
        let chunk = chunk.map_err(Uncollected::Broken)?;
        if all.len() + chunk.len() > limit {
            return Err(Uncollected::TooLarge);
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}
