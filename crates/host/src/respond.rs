//! Answers: the only place that knows HTTP statuses (contract 1.3, 1.4, 5.1).

use bytes::Bytes;
use countersign_protocol::code::{ErrorBody, ErrorInfo};
use countersign_protocol::version;
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;

use crate::body::{AnswerBody, EventBody};

/// An answer.
pub(crate) type Answer = Response<AnswerBody>;

/// Error texts are cut here, so that an error body stays far below what clients read (contract 5.1).
const MAX_MESSAGE_BYTES: usize = 8_000;

/// 200 with a JSON value.
pub(crate) fn ok(value: &impl Serialize) -> Answer {
    // Room for a receipt, the answer that is waited for.
    let mut body = Vec::with_capacity(512);
    match serde_json::to_writer(&mut body, value) {
        Ok(()) => json(StatusCode::OK, body.into()),
        // Our own types all have a JSON form; should one lose it, that is our error and not the caller's.
        Err(_) => error(&ErrorInfo::new(countersign_protocol::code::Code::INTERNAL_ERROR)),
    }
}

/// 200 with JSON text that was made before.
pub(crate) fn ok_text(body: Bytes) -> Answer {
    json(StatusCode::OK, body)
}

/// 200 with a text that is no JSON.
#[cfg(feature = "metrics")]
pub(crate) fn text(content_type: &'static str, body: String) -> Answer {
    let mut answer = Response::new(AnswerBody::Whole(body.into()));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// 200 with a run's events.
pub(crate) fn events(body: EventBody) -> Answer {
    let mut answer = Response::new(AnswerBody::Events(Box::new(body)));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(version::SSE_CONTENT_TYPE));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    answer
}

/// An error with the status of its code.
pub(crate) fn error(info: &ErrorInfo) -> Answer {
    let mut info = info.clone();
    if info.message.len() > MAX_MESSAGE_BYTES {
        info.message.truncate(info.message.floor_char_boundary(MAX_MESSAGE_BYTES));
    }
    let status = StatusCode::from_u16(info.code.status()).unwrap_or(StatusCode::BAD_GATEWAY);
    let body = serde_json::to_vec(&ErrorBody::from(info)).unwrap_or_default();
    json(status, body.into())
}

/// 204 for a preflight (contract 1.4).
pub(crate) fn preflight() -> Answer {
    let mut answer = Response::new(AnswerBody::Whole(Bytes::new()));
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let headers = answer.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, OPTIONS"));
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static(
            "Authorization, Content-Type, Accept, AgenticDriver-Version, AgenticDriver-Accept-Optional-Events",
        ),
    );
    answer
}

/// The headers of every answer.
pub(crate) fn add_common_headers(answer: &mut Answer) {
    let headers = answer.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
        .insert(HeaderName::from_static(version::VERSION_HEADER), HeaderValue::from_static(version::VERSION));
}

/// Says that this host is to be reached by TLS only (contract 1.3).
pub(crate) fn add_transport_security(answer: &mut Answer) {
    answer
        .headers_mut()
        .insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
}

/// The headers of an answer to an allowed web page.
pub(crate) fn add_origin_headers(answer: &mut Answer, origin: &HeaderValue) {
    let headers = answer.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static(version::VERSION_HEADER_DISPLAY),
    );
}

/// Says that the connection ends with this answer.
pub(crate) fn add_close(answer: &mut Answer) {
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
}

fn json(status: StatusCode, body: Bytes) -> Answer {
    let mut answer = Response::new(AnswerBody::Whole(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(version::JSON_CONTENT_TYPE));
    answer
}
