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

/// The events of a replay, numbered from 1, with the run id and the times of the first run; without `approval.*` and
/// `tool.execution.requested`. An
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
        EventBody::ApprovalRequested { .. }
        | EventBody::ApprovalResolved { .. }
        | EventBody::ToolExecutionRequested { .. } => false,
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

#[cfg(test)]
mod tests {
    use countersign_approval_core::ids::{ModelId, ProviderId, RunId};

    use super::super::Origin;
    use super::*;

    const RUN: &str = "7b0f6c0e-4b0c-4a64-9d0c-0f5c5d0b6a11";
    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn event(sequence: u32, kind: &str, more: &str) -> String {
        format!(
            r#"{{"type":"{kind}","runId":"{RUN}","sequence":{sequence},"timestamp":"2026-01-02T03:04:05.678Z"{more}}}"#
        )
    }

    fn tell(events: Vec<String>, end: End) -> Result<Vec<String>, BoxError> {
        let origin = Origin {
            run_id: RunId::parse(RUN).unwrap(),
            provider: ProviderId::parse("mock").unwrap(),
            model: ModelId::parse("demo").unwrap(),
            claimed_at: Timestamp::from_millis(0),
        };
        let told = replay(Log { origin, events }, end, NOW)?;
        for (event, sequence) in told.iter().zip(1..) {
            assert_eq!((event.sequence, event.run_id.to_string().as_str()), (sequence, RUN));
        }
        Ok(told
            .iter()
            .map(|event| match &event.body {
                EventBody::RunFailed { error } | EventBody::RunCancelled { error } => format!("{error}"),
                _ => event.type_name().to_owned(),
            })
            .collect())
    }

    fn run() -> Vec<String> {
        let call = r#"{"id":"c1","name":"write","arguments":{}}"#;
        let approval = "0b1d4d4e-0000-4000-8000-000000000000";
        vec![
            event(1, "run.started", r#","provider":"mock","model":"demo""#),
            event(2, "tool.called", &format!(r#","call":{call}"#)),
            event(
                3,
                "approval.requested",
                &format!(
                    r#","approval":{{"approvalId":"{approval}","runId":"{RUN}","call":{call},"requestedAt":"2026-01-02T03:04:05.678Z","idlePolicy":"pause"}}"#
                ),
            ),
            event(
                4,
                "approval.resolved",
                &format!(
                    r#","resolution":{{"approvalId":"{approval}","runId":"{RUN}","callId":"c1","outcome":"approved","decidedAt":"2026-01-02T03:04:05.678Z"}}"#
                ),
            ),
            event(5, "tool.completed", r#","callId":"c1","output":null"#),
            event(6, "run.cancelled", r#","error":{"code":"CANCELLED","message":"m","retryable":false}"#),
        ]
    }

    const UNCERTAIN: &str =
        "OPERATION_UNCERTAIN: It cannot be known how this operation ended. (outcome uncertain)";

    // Contract 4.10, 9: without approval.*, numbered from 1; an unknown end says so.
    #[test]
    fn a_replay_prompts_nobody() {
        let told = tell(run(), End::Stored).unwrap();
        assert_eq!(told, ["run.started", "tool.called", "tool.completed", "CANCELLED: m"]);
        for count in 1..6 {
            let told = tell(run()[..count].to_vec(), End::Unknown).unwrap();
            assert_eq!(told.last().unwrap(), UNCERTAIN);
            assert!(told.iter().all(|kind| !kind.starts_with("approval.")), "{told:?}");
        }
        // A missing run.started is made up.
        assert_eq!(tell(Vec::new(), End::Unknown).unwrap(), ["run.started", UNCERTAIN]);
    }

    // Law 8: a log that no run wrote is not told.
    #[test]
    fn a_damaged_log_is_an_error() {
        let without = |at: usize| {
            let mut events = run();
            events.remove(at);
            events
        };
        assert!(tell(Vec::new(), End::Stored).is_err(), "the end is missing");
        assert!(tell(run()[..5].to_vec(), End::Stored).is_err(), "the end is missing");
        assert!(tell(run(), End::Unknown).is_err(), "an end that is not known");
        for at in 0..5 {
            assert!(tell(without(at), End::Stored).is_err(), "event {at} is missing");
        }
        let other =
            run().iter().map(|event| event.replace(RUN, "6f0c2d1e-0000-4000-8000-000000000000")).collect();
        assert!(tell(other, End::Stored).is_err(), "another run's");
        let later = vec![run()[0].clone(), event(2, "later", r#","optional":true"#)];
        assert!(tell(later, End::Unknown).is_err(), "a later version's");
    }
}
