//! Telling a run that happened before (contract 9, 4.10). It can neither prompt nor execute.

use countersign_approval_core::audit::BoxError;
use countersign_approval_core::clock::Timestamp;
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::event::{Event, EventBody};
use countersign_protocol::stream::{Expectation, StreamCheck};

use super::Log;

/// What is known of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The log has it.
    Stored,
    /// Nobody knows: the replay says so.
    Unknown,
}

/// The events of a replay, numbered from 1, with the run id and the times of the first run; without `approval.*`. An
/// unknown end is told `now`.
///
/// # Errors
/// The log is not one that a run wrote: it is damaged, or of a later version.
pub(crate) fn replay(log: Log, end: End, now: Timestamp) -> Result<Vec<Event>, BoxError> {
    let Log { origin, events: stored } = log;
    let mut check = StreamCheck::new(Expectation::own_log());
    let mut bodies = Vec::with_capacity(stored.len() + 2);
    for text in &stored {
        let Some(event) = check.accept(text)? else { return Err("an event of an unknown type".into()) };
        if event.run_id != origin.run_id {
            return Err("an event of another run".into());
        }
        bodies.push((event.timestamp, event.body));
    }
    match end {
        End::Stored if !check.is_finished() => return Err("the last event is missing".into()),
        End::Unknown if check.is_finished() => {
            return Err("an event that ends the run, which has no end".into());
        }
        End::Stored | End::Unknown => {}
    }
    if bodies.is_empty() {
        let (provider, model) = (origin.provider, origin.model);
        bodies.push((origin.claimed_at, EventBody::RunStarted { provider, model }));
    }
    if end == End::Unknown {
        let error = ErrorInfo::new(Code::OPERATION_UNCERTAIN).uncertain();
        bodies.push((now, EventBody::RunFailed { error }));
    }
    let told = bodies.into_iter().filter(|(_, body)| is_told(body));
    let numbered = (1..).zip(told);
    Ok(numbered
        .map(|(sequence, (timestamp, body))| Event { run_id: origin.run_id, sequence, timestamp, body })
        .collect())
}

/// Contract 4.10. Exhaustive: a new event must choose.
const fn is_told(body: &EventBody) -> bool {
    match body {
        EventBody::ApprovalRequested { .. } | EventBody::ApprovalResolved { .. } => false,
        EventBody::RunStarted { .. }
        | EventBody::StepStarted { .. }
        | EventBody::TextDelta { .. }
        | EventBody::RunProgress { .. }
        | EventBody::UsageReported { .. }
        | EventBody::ToolCalled { .. }
        | EventBody::ToolCompleted { .. }
        | EventBody::RunCompleted { .. }
        | EventBody::RunFailed { .. }
        | EventBody::RunCancelled { .. } => true,
    }
}
