//! What each client was told, in order (contract 3.2, 3.4, 5.4; I8, I10; law 8).

use countersign_approval_core::review::{IdlePolicy, Outcome};
use countersign_protocol::code::ErrorInfo;
use countersign_protocol::event::{Event, EventBody};

use super::position;
use crate::histories::journal::{Ended, Fact, Played, RunPlan};

pub(super) fn check(played: &Played) {
    let closing = position(played, |fact| matches!(fact, Fact::Closing));
    for (index, plan) in played.runs.iter().enumerate() {
        let events: Vec<&Event> = played
            .facts
            .iter()
            .filter_map(|fact| match fact {
                Fact::Event { run, event } if *run == index => Some(event),
                _ => None,
            })
            .collect();
        let ends: Vec<(usize, &Ended)> = played
            .facts
            .iter()
            .enumerate()
            .filter_map(|(at, fact)| match fact {
                Fact::Ended { run, how } if *run == index => Some((at, how)),
                _ => None,
            })
            .collect();
        let [(ended, how)] = ends[..] else { panic!("run {index} ended {} times", ends.len()) };
        let is_closing = closing.is_some_and(|closing| closing < ended);
        check_ending(&events, how, is_closing);
        check_order(played, plan, &events);
    }
}

fn check_ending(events: &[&Event], how: &Ended, is_closing: bool) {
    let terminal = events.iter().filter(|event| event.is_terminal()).count();
    match how {
        Ended::Told => {
            assert_eq!(terminal, 1, "one terminal event");
            assert!(events.last().unwrap().is_terminal(), "and nothing after it");
        }
        // A slow reader may hang up with the end already in its hands.
        Ended::HungUp => assert!(terminal <= 1),
        Ended::Refused(code) => {
            assert!(events.is_empty());
            let expected = code == "BUSY" || (code == "HOST_SHUTTING_DOWN" && is_closing);
            assert!(expected, "refused with {code}");
        }
        // Who did not read its end within the grace of the closing host is cut off; nobody else is.
        Ended::Broken(why) => assert!(is_closing, "the stream broke: {why}"),
    }
}

/// Where a run stands, from what its client was told.
#[derive(Debug, PartialEq, Eq)]
enum At {
    Model,
    Called,
    Asked,
    Settled(Outcome),
    Over,
}

fn check_order(played: &Played, plan: &RunPlan, events: &[&Event]) {
    let mut at = At::Model;
    let (mut completed, mut resolved) = (0, Vec::new());
    for event in events {
        assert_ne!(at, At::Over, "nothing follows the terminal event");
        at = match (&event.body, at) {
            (EventBody::ToolCalled { .. }, At::Model) => At::Called,
            (EventBody::ApprovalRequested { .. }, At::Called) => At::Asked,
            (EventBody::ApprovalResolved { resolution }, At::Asked) => {
                resolved.push(resolution.outcome);
                At::Settled(resolution.outcome)
            }
            (EventBody::ToolCompleted { .. }, At::Settled(Outcome::Approved)) => {
                completed += 1;
                At::Model
            }
            (EventBody::RunProgress { .. }, at) => at,
            (EventBody::RunCompleted { .. }, At::Model) => {
                assert_eq!(completed, plan.calls, "every proposed call was executed");
                At::Over
            }
            (EventBody::RunFailed { error }, at) => {
                check_failure(played, &at, error);
                check_certainty(played, event, error, completed);
                At::Over
            }
            (EventBody::RunCancelled { error }, at) => {
                let paused = plan.policy == IdlePolicy::Pause && at == At::Settled(Outcome::Cancelled);
                assert!(
                    !(paused && error.code.as_str() == "IDLE_TIMEOUT"),
                    "I8: the clock ran during a pause"
                );
                assert!(["CANCELLED", "IDLE_TIMEOUT"].contains(&error.code.as_str()), "{error}");
                check_certainty(played, event, error, completed);
                At::Over
            }
            (_, At::Model) => At::Model,
            (body, at) => panic!("I10: {} while {at:?}", body.type_name()),
        };
    }
    assert!(resolved.iter().rev().skip(1).all(|outcome| *outcome == Outcome::Approved), "{resolved:?}");
}

fn check_failure(played: &Played, at: &At, error: &ErrorInfo) {
    let expected: &[&str] = match at {
        At::Settled(Outcome::Denied) => &["APPROVAL_DENIED"],
        At::Settled(Outcome::Expired) => &["APPROVAL_EXPIRED"],
        At::Settled(Outcome::Approved) => &["TOOL_OUTCOME_UNCERTAIN", "APPROVAL_AUDIT_FAILED"],
        At::Settled(Outcome::Cancelled) | At::Over | At::Model => &[],
        At::Called => &["APPROVAL_CAPACITY", "APPROVAL_AUDIT_FAILED"],
        At::Asked => &["APPROVAL_AUDIT_FAILED"],
    };
    assert!(expected.contains(&error.code.as_str()), "{} after {at:?}", error.code);
    assert!(error.code.as_str() != "APPROVAL_AUDIT_FAILED" || played.sink_fails);
    assert!(!error.message.contains("no space left"), "the sink's own words got out");
}

/// Law 8: a failure is uncertain exactly if a call was made whose output nobody was told.
fn check_certainty(played: &Played, event: &Event, error: &ErrorInfo, completed: usize) {
    let made =
        played.facts.iter().filter(|fact| matches!(fact, Fact::Tool { run, .. } if *run == event.run_id));
    let untold = made.count() - completed;
    match error.outcome {
        None => assert_eq!(untold, 0, "{error}: an effect was hidden"),
        // At most one: calls are serial. None if the tool's task had not begun when its run ended.
        Some(_) => assert!(untold <= 1),
    }
}
