//! `POST /v1/runs`: buffered or streamed (contract 1.8, 2.1).

use std::sync::Arc;

use countersign_approval_core::grants::Principal;
use countersign_driver::Prepared;
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::event::EventBody as Told;
use countersign_protocol::request::RunRequest;
use countersign_protocol::version::SSE_MEDIA_TYPE;
use http::HeaderMap;
use http::header::ACCEPT;

use crate::body::EventBody;
use crate::log::About;
use crate::respond::{self, Answer};
use crate::service::Shared;
use crate::slots::Admission;
use crate::wire::Signals;

/// How many events may share a write: a whole answer of the model behind the output of a tool.
const READ_AHEAD: usize = 8;

/// Validates, authorizes, takes a slot, runs: in this order (contract 2.1).
pub(crate) async fn run(
    shared: &Arc<Shared>,
    signals: &Arc<Signals>,
    principal: &Arc<Principal>,
    headers: &HeaderMap,
    text: &str,
) -> Result<Answer, ErrorInfo> {
    let request = RunRequest::decode(text)
        .map_err(|invalid| ErrorInfo::new(Code::INVALID_REQUEST).with_message(invalid.to_string()))?;
    let prepared = shared.driver.prepare_aside(request).await?;
    if shared.closing.is_cancelled() {
        return Err(ErrorInfo::new(Code::HOST_SHUTTING_DOWN));
    }
    prepared.authorize(&principal.grants)?;
    let admission = shared.slots.take(&principal.subject).map_err(ErrorInfo::new)?;
    if wants_events(headers) {
        stream(shared, signals, principal, prepared, admission).await
    } else {
        buffer(shared, signals, principal, prepared, admission).await
    }
}

/// Answers with events. The headers wait for the first one, so whatever fails before is an ordinary error. A run that
/// has a place in the queue begins all the same, and goes on when it has a slot (contract 6.4).
async fn stream(
    shared: &Arc<Shared>,
    signals: &Arc<Signals>,
    principal: &Arc<Principal>,
    prepared: Prepared,
    admission: Admission,
) -> Result<Answer, ErrorInfo> {
    let watch = signals.watch_peer();
    let mut events = prepared.stream(principal, &shared.runs);
    if matches!(admission, Admission::Later(_)) {
        events.hold();
    }
    let first = events.next().await.ok_or_else(|| ErrorInfo::new(Code::INTERNAL_ERROR))?;
    if let Told::RunFailed { error } = first.body {
        // Every run begins with `run.started`, so this is none: its key was refused (contract 2.1, row 19).
        return Err(error);
    }
    events.read_ahead(READ_AHEAD);
    let about = About { run: first.run_id, approval: None };
    let body = EventBody::new(shared, &first, events, Arc::clone(signals), watch, admission);
    Ok(about.on(respond::events(body)))
}

/// Answers with the result when it is there. Dropping this future, as a hang-up does, leaves the queue or cancels the
/// run.
async fn buffer(
    shared: &Arc<Shared>,
    signals: &Arc<Signals>,
    principal: &Arc<Principal>,
    prepared: Prepared,
    admission: Admission,
) -> Result<Answer, ErrorInfo> {
    prepared.check_buffered()?;
    let _watch = signals.watch_peer();
    let _slot = match admission {
        Admission::Now(slot) => slot,
        Admission::Later(place) => tokio::select! {
            biased;
            () = shared.closing.cancelled() => return Err(ErrorInfo::new(Code::HOST_SHUTTING_DOWN)),
            slot = place => slot,
        },
    };
    let result = prepared.run(principal, &shared.runs).await?;
    Ok(About { run: result.run_id, approval: None }.on(respond::ok(&result)))
}

/// A plain search for the media type; quality values are not looked at (contract 12, 15).
fn wants_events(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|value| {
        value.as_bytes().windows(SSE_MEDIA_TYPE.len()).any(|window| window == SSE_MEDIA_TYPE.as_bytes())
    })
}
