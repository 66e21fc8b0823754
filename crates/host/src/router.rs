//! Every request goes through the same checks in the same order (contract 1.2).

use std::sync::Arc;

use countersign_approval_core::grants::Principal;
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::{body_text, version};
use http::header::{AUTHORIZATION, HeaderValue, ORIGIN};
use http::{HeaderMap, Method, Request};
use hyper::body::{Body, Incoming};
use tokio::time::Instant;

use crate::log::Asked;
use crate::metrics::{self, Readers};
use crate::payload::{self, Abandoned, NoPayload};
use crate::respond::{self, Answer};
use crate::routes::{self, Read, Write};
use crate::service::Shared;
use crate::wire::{Signals, Working};

/// Answers one request. An error closes the connection without an answer.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    signals: Arc<Signals>,
    request: Request<Incoming>,
) -> Result<Answer, Abandoned> {
    // Taken by every request, also by one without a body: the next on this connection has a time of its own.
    let arrived = signals.take_arrival();
    let origin = request.headers().get(ORIGIN).cloned();
    if !request.body().is_end_stream() {
        signals.body_expected();
    }
    let asked = Asked::of(&request);
    let mut answer = match checked(&shared, &signals, arrived, request, origin.as_ref()).await {
        Ok(answer) => asked.answered(answer),
        Err(NoPayload::Refused(info)) => {
            asked.refused(&info);
            respond::error(&info)
        }
        Err(NoPayload::Gone(gone)) => return Err(gone),
    };
    respond::add_common_headers(&mut answer);
    if shared.tls.is_some() {
        respond::add_transport_security(&mut answer);
    }
    if let Some(origin) = origin.filter(|origin| is_allowed(&shared, origin)) {
        respond::add_origin_headers(&mut answer, &origin);
    }
    if shared.closing.is_cancelled() {
        respond::add_close(&mut answer);
    }
    Ok(answer)
}

async fn checked(
    shared: &Arc<Shared>,
    signals: &Arc<Signals>,
    arrived: Instant,
    request: Request<Incoming>,
    origin: Option<&HeaderValue>,
) -> Result<Answer, NoPayload> {
    let (head, body) = request.into_parts();
    if shared.closing.is_cancelled() {
        return Err(refused(Code::HOST_SHUTTING_DOWN));
    }
    if let Some(origin) = origin {
        let sent_once = head.headers.get_all(ORIGIN).iter().count() == 1;
        if !sent_once || !is_allowed(shared, origin) {
            return Err(refused(Code::ORIGIN_DENIED));
        }
        if head.method == Method::OPTIONS {
            return Ok(respond::preflight());
        }
    }
    // The raw target is compared: `/health?x` is another path.
    let path = if head.uri.scheme().is_none() {
        head.uri.path_and_query().map_or("", |path| path.as_str())
    } else {
        ""
    };
    if head.method == Method::GET && path == version::HEALTH_PATH {
        return Ok(routes::health());
    }
    // Of a header that was sent twice the first counts, as it always did.
    let authorization = head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let for_metrics = head.method == Method::GET && path == metrics::PATH;
    if for_metrics && shared.metrics.admit(authorization) {
        check_version(&head.headers).map_err(NoPayload::Refused)?;
        return metrics::answer(shared).map_err(NoPayload::Refused);
    }
    let Some(principal) = shared.tokens.authenticate(authorization) else {
        return Err(refused(Code::UNAUTHORIZED));
    };
    check_version(&head.headers).map_err(NoPayload::Refused)?;
    if let Some(read) = Read::at(&head.method, path) {
        let _working = working(signals)?;
        return read.answer(shared, &principal).await.map_err(NoPayload::Refused);
    }
    if for_metrics && matches!(shared.metrics, Readers::AnyToken) {
        return metrics::answer(shared).map_err(NoPayload::Refused);
    }
    let Some(write) = Write::at(&head.method, path) else {
        return Err(refused(Code::NOT_FOUND));
    };
    payload::check_headers(&head.headers).map_err(NoPayload::Refused)?;
    let body = payload::read(&head.headers, body, arrived, signals).await?;
    // Only a whole request keeps its connection: whoever sends parts of requests keeps nobody out.
    let _working = working(signals)?;
    dispatch(write, shared, signals, &principal, &head.headers, &body).await.map_err(NoPayload::Refused)
}

/// From here on the peer keeps his connection until he is answered. One that has lost it would not learn of an effect,
/// so there is none.
fn working(signals: &Arc<Signals>) -> Result<Working, NoPayload> {
    signals.working().map_err(|_| NoPayload::Gone(Abandoned))
}

async fn dispatch(
    write: Write,
    shared: &Arc<Shared>,
    signals: &Arc<Signals>,
    principal: &Arc<Principal>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Answer, ErrorInfo> {
    let text = body_text(body)
        .map_err(|invalid| ErrorInfo::new(Code::INVALID_REQUEST).with_message(invalid.to_string()))?;
    match write {
        Write::Run => routes::run(shared, signals, principal, headers, text).await,
        Write::Decision => routes::decide(shared, principal, text).await,
        Write::ToolProgress => routes::progress(shared, principal, text),
        Write::ToolResult => routes::result(shared, principal, text).await,
        Write::Absent(absent) => Err(absent.answer(text)),
    }
}

fn refused(code: Code) -> NoPayload {
    NoPayload::Refused(ErrorInfo::new(code))
}

fn is_allowed(shared: &Shared, origin: &HeaderValue) -> bool {
    shared.origins.iter().any(|allowed| origin.as_bytes() == allowed.as_bytes())
}

/// Absent or exactly `1.0`; a header that was sent twice reads as `1.0, 1.0` and is refused (contract 1.5).
fn check_version(headers: &HeaderMap) -> Result<(), ErrorInfo> {
    let mut sent = headers.get_all(version::VERSION_HEADER).iter();
    match (sent.next(), sent.next()) {
        (None, _) => Ok(()),
        (Some(only), None) if only == version::VERSION => Ok(()),
        _ => Err(ErrorInfo::new(Code::UNSUPPORTED_PROTOCOL_VERSION)),
    }
}
