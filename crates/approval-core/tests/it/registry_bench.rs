//! What the tests of the registry share: clocks, callers, calls, and a waiter that can be aborted.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it does not expect")]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use countersign_approval_core::clock::{Now, Timestamp};
use countersign_approval_core::grants::{Allow, Grants, Principal};
use countersign_approval_core::ids::{ApprovalId, CallId, ProviderId, RunId, Subject, ToolName};
use countersign_approval_core::json::Exact;
use countersign_approval_core::registry::{Limits, NewReview, Registry, Waiter};
use countersign_approval_core::review::{ApprovalRequest, IdlePolicy};
use countersign_approval_core::snapshot::{Snapshot, ToolCall};
use uuid::Uuid;

/// Where the wall clock of a test starts: 2027-01-15T08:00:00.000Z.
pub(crate) const START: i64 = 1_800_000_000_000;

/// Both clocks, in milliseconds after their start.
pub(crate) fn at(wall: i64, monotonic: u64) -> Now {
    Now { wall: Timestamp::from_millis(START + wall), monotonic: Duration::from_millis(monotonic) }
}

pub(crate) fn approval_id(n: u128) -> ApprovalId {
    ApprovalId::new(Uuid::from_u128(n))
}

pub(crate) fn run_id(n: u128) -> RunId {
    RunId::new(Uuid::from_u128(n))
}

pub(crate) fn subject(name: &str) -> Subject {
    Subject::parse(name).unwrap()
}

/// A caller with the grants for provider `mock` and tool `transfer`, and no other.
pub(crate) fn caller(name: &str) -> Principal {
    granted(name, &["mock"], &["transfer"])
}

pub(crate) fn granted(name: &str, providers: &[&str], approve_tools: &[&str]) -> Principal {
    let only = |names: &[&str]| Allow::only(names.iter().copied());
    Principal {
        subject: subject(name),
        // Deciding needs no `tools` grant (contract 4.4).
        grants: Grants {
            providers: only(providers),
            tools: Allow::none(),
            approve_tools: only(approve_tools),
            ..Grants::all()
        },
    }
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: CallId::parse(id).unwrap(),
        name: ToolName::parse(name).unwrap(),
        arguments: Exact::parse(arguments).unwrap(),
    }
}

/// A review of alice's, in run 9, of one transfer.
pub(crate) fn review(expires_after: Option<u64>) -> NewReview {
    NewReview {
        run_id: run_id(9),
        subject: subject("alice"),
        provider: ProviderId::parse("mock").unwrap(),
        call: Snapshot::freeze(call("call-1", "transfer", r#"{"to":"a","amount":100}"#)).unwrap(),
        idle_policy: IdlePolicy::Pause,
        expires_after: expires_after.map(Duration::from_millis),
    }
}

/// A run that waits: it can be told from others, and aborted from outside.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    pub(crate) number: u128,
    pub(crate) aborted: Rc<Cell<bool>>,
}

impl Run {
    pub(crate) fn number(number: u128) -> Self {
        Self { number, ..Self::default() }
    }
}

impl Waiter for Run {
    fn is_aborted(&self) -> bool {
        self.aborted.get()
    }
}

pub(crate) fn limits(max_pending: usize, max_rejected_per_minute: u32) -> Limits {
    Limits { max_pending, max_rejected_per_minute }
}

/// Opens [`review`] as number `n` at the start of both clocks.
pub(crate) fn opened(
    registry: &mut Registry<Run>,
    n: u128,
    expires_after: Option<u64>,
) -> std::sync::Arc<ApprovalRequest> {
    let opening = registry.open(at(0, 0), approval_id(n), review(expires_after), Run::number(n)).unwrap();
    registry.opened(opening)
}
