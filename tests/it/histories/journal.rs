//! What happened in a history, in order, as an outsider sees it.

use std::sync::{Arc, Mutex};

use countersign_approval_core::audit::AuditRecord;
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::ids::{CallId, RunId, Subject};
use countersign_approval_core::review::{IdlePolicy, Resolution};
use countersign_protocol::event::Event;

/// One thing that happened.
#[derive(Debug, Clone)]
pub(crate) enum Fact {
    /// The sink was given a record.
    Audit { record: AuditRecord, sink: Sink },
    /// The tool was called.
    Tool { run: RunId, call: CallId, subject: Subject, text: String },
    /// A client took an event of its run.
    Event { run: usize, event: Event },
    /// A client's stream is over.
    Ended { run: usize, how: Ended },
    /// A decision is sent.
    Attempt { number: usize, attempt: Attempt },
    /// And what came back.
    Answer { number: usize, said: Said },
    /// The host begins to close.
    Closing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sink {
    Accepted,
    Refused,
}

/// How a client saw its run end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With its terminal event.
    Told,
    /// The client hung up.
    HungUp,
    /// The run was refused before its first event.
    Refused(String),
    /// The stream broke.
    Broken(String),
}

/// A decision, and what its sender may expect.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) decision: DecisionRequest,
    pub(crate) subject: &'static str,
    pub(crate) kind: Kind,
}

/// What is right or wrong with a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The reviewed call, by the run's subject, with every grant.
    Honest,
    /// By somebody else.
    Stranger,
    /// By the run's subject with a token that may not.
    Ungranted,
    /// Another call or run than the reviewed one.
    Altered,
    /// An id that nobody gave out.
    Unknown,
}

/// What a decision was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Receipt(Resolution),
    /// Code and text.
    Refused(String, String),
    /// The reviewer hung up before the answer.
    HungUp,
    /// The connection broke.
    Broken,
}

/// The facts, shared by everybody who sees some.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Vec<Fact>>>);

impl Journal {
    pub(crate) fn add(&self, fact: Fact) {
        self.0.lock().unwrap().push(fact);
    }

    pub(crate) fn facts(&self) -> Vec<Fact> {
        self.0.lock().unwrap().clone()
    }
}

/// A history that is over.
pub(crate) struct Played {
    pub(crate) facts: Vec<Fact>,
    pub(crate) runs: Vec<RunPlan>,
    pub(crate) arguments: String,
    /// Whether the sink may have refused something.
    pub(crate) sink_fails: bool,
    /// Whether somebody may have been told `RATE_LIMITED`.
    pub(crate) rate_limited: bool,
}

/// What a run was asked to be.
#[derive(Debug, Clone)]
pub(crate) struct RunPlan {
    pub(crate) subject: &'static str,
    /// How many calls the model proposes.
    pub(crate) calls: usize,
    pub(crate) policy: IdlePolicy,
}
