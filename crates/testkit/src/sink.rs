//! An audit sink that remembers, and fails when told to.

use std::sync::{Mutex, MutexGuard, PoisonError};

use countersign_approval_core::audit::{AuditRecord, AuditSink, BoxError};

/// What the sink does with the next records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Keeps them.
    Accept,
    /// Refuses them with an error whose text is private.
    Refuse,
    /// Panics.
    Panic,
}

/// The private text of a refusal: it must not reach a client.
pub const PRIVATE: &str = "private: disk /dev/secret is full";

/// Keeps every accepted record, in order.
#[derive(Debug)]
pub struct RecordingSink {
    state: Mutex<State>,
    blocking: bool,
}

#[derive(Debug)]
struct State {
    records: Vec<AuditRecord>,
    answer: Answer,
    /// Refuse only records whose JSON `type` is this.
    only: Option<&'static str>,
    /// So many records more are kept before `answer` holds.
    first: usize,
}

impl RecordingSink {
    /// A sink that is called in place.
    pub fn new() -> Self {
        Self::with_blocking(false)
    }

    /// A sink that is called on the pool for blocking work, as a file is.
    pub fn blocking() -> Self {
        Self::with_blocking(true)
    }

    fn with_blocking(blocking: bool) -> Self {
        let state = State { records: Vec::new(), answer: Answer::Accept, only: None, first: 0 };
        Self { state: Mutex::new(state), blocking }
    }

    /// What the next records get.
    pub fn answer(&self, answer: Answer) {
        let mut state = self.lock();
        state.answer = answer;
        state.only = None;
        state.first = 0;
    }

    /// What all records get after the next `first`, which are kept.
    pub fn answer_from(&self, first: usize, answer: Answer) {
        self.answer(answer);
        self.lock().first = first;
    }

    /// What the next records of one type get; all others are kept.
    pub fn answer_to(&self, kind: &'static str, answer: Answer) {
        let mut state = self.lock();
        state.answer = answer;
        state.only = Some(kind);
        state.first = 0;
    }

    /// The records so far.
    pub fn records(&self) -> Vec<AuditRecord> {
        self.lock().records.clone()
    }

    /// The records so far as JSON texts.
    pub fn lines(&self) -> Vec<String> {
        self.lock().records.iter().filter_map(|record| serde_json::to_string(record).ok()).collect()
    }

    /// The types of the records so far, such as `approval.requested`; a resolved one with its outcome, a rejected
    /// one with its code, a finished one with its outcome, after a blank.
    pub fn kinds(&self) -> Vec<String> {
        self.lock().records.iter().map(kind).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for RecordingSink {
    fn default() -> Self {
        Self::new()
    }
}

impl AuditSink for RecordingSink {
    fn record(&self, record: &AuditRecord) -> Result<(), BoxError> {
        let answer = {
            let mut state = self.lock();
            let meant = state.only.is_none_or(|only| kind(record).split(' ').next() == Some(only));
            let spared = state.first > 0;
            state.first = state.first.saturating_sub(1);
            let answer = if meant && !spared { state.answer } else { Answer::Accept };
            if answer == Answer::Accept {
                state.records.push(record.clone());
            }
            answer
        };
        match answer {
            Answer::Accept => Ok(()),
            Answer::Refuse => Err(PRIVATE.into()),
            Answer::Panic => std::panic::panic_any(PRIVATE),
        }
    }

    fn blocking(&self) -> bool {
        self.blocking
    }
}

fn kind(record: &AuditRecord) -> String {
    match record {
        AuditRecord::Requested { .. } => "approval.requested".into(),
        AuditRecord::Resolved { resolution, .. } => {
            format!("approval.resolved {:?}", resolution.outcome).to_lowercase()
        }
        AuditRecord::Rejected { code, .. } => format!("approval.rejected {code}"),
        AuditRecord::ExecutionStarted(_) => "execution.started".into(),
        AuditRecord::ExecutionFinished { outcome, .. } => {
            format!("execution.finished {outcome:?}").to_lowercase()
        }
        AuditRecord::Abandoned { .. } => "approval.abandoned".into(),
        AuditRecord::Recovered { .. } => "recovered".into(),
        _ => "unknown".into(),
    }
}
