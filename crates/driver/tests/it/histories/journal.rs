//! One journal for everything that can be seen from outside, in the order in which it happened.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_approval_core::audit::{AuditRecord, AuditSink, BoxError};
use countersign_approval_core::clock::{Clock as _, Now};
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::ids::{CallId, RunId, Subject};
use countersign_approval_core::review::Resolution;
use countersign_protocol::event::Event;
use countersign_testkit::{Answer, FakeClock};

use super::Random;

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) now: Now,
    pub(super) what: What,
}

#[derive(Debug, Clone)]
pub(super) enum What {
    /// The sink accepted a record.
    Accepted(AuditRecord),
    /// The sink refused a record, or panicked.
    Refused(AuditRecord),
    /// Somebody set the wall clock.
    Jumped,
    /// The reader of a run asks for an event.
    Asks(usize),
    /// It took one.
    Took(usize, Event),
    /// The reader of a run dropped its stream.
    Left(usize),
    /// Somebody is about to send decision number `attempt`.
    Deciding { attempt: usize, caller: Subject, granted: bool, request: DecisionRequest },
    /// What he was told: the receipt, or a code with its message.
    Told { attempt: usize, result: Result<Resolution, (String, String)> },
    /// A tool was called.
    Started { run: RunId, call: CallId, tool: &'static str, subject: Subject, text: String },
    /// It returned an output.
    Returned { run: RunId, call: CallId },
}

#[derive(Debug)]
pub(super) struct Journal {
    clock: Arc<FakeClock>,
    entries: Mutex<Vec<Entry>>,
}

impl Journal {
    pub(super) fn new(clock: Arc<FakeClock>) -> Arc<Self> {
        Arc::new(Self { clock, entries: Mutex::default() })
    }

    pub(super) fn note(&self, what: What) {
        let mut entries = self.entries.lock().unwrap();
        entries.push(Entry { now: self.clock.now(), what });
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap().clone()
    }
}

/// A sink that notes every record and what became of it.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) journal: Arc<Journal>,
    pub(super) blocking: bool,
    /// One record in so many fails; none if zero.
    fails: Mutex<(u64, Random)>,
}

impl Sink {
    pub(super) fn new(journal: Arc<Journal>, blocking: bool, random: Random) -> Arc<Self> {
        Arc::new(Self { journal, blocking, fails: Mutex::new((0, random)) })
    }

    pub(super) fn fail_one_in(&self, n: u64) {
        self.fails.lock().unwrap().0 = n;
    }

    fn answer(&self) -> Answer {
        let mut fails = self.fails.lock().unwrap();
        let (n, random) = &mut *fails;
        match *n {
            0 => Answer::Accept,
            n if random.one_in(n) => random.pick(&[Answer::Refuse, Answer::Panic]),
            _ => Answer::Accept,
        }
    }
}

impl AuditSink for Sink {
    fn record(&self, record: &AuditRecord) -> Result<(), BoxError> {
        match self.answer() {
            Answer::Accept => {
                self.journal.note(What::Accepted(record.clone()));
                Ok(())
            }
            Answer::Refuse => {
                self.journal.note(What::Refused(record.clone()));
                Err("private: the disk is full".into())
            }
            Answer::Panic => {
                self.journal.note(What::Refused(record.clone()));
                // As a panic, without the noise of its hook.
                std::panic::resume_unwind(Box::new("private: the disk is gone"))
            }
        }
    }

    fn blocking(&self) -> bool {
        self.blocking
    }
}

impl Entry {
    pub(super) fn monotonic(&self) -> Duration {
        self.now.monotonic
    }

    pub(super) fn accepted(&self) -> Option<&AuditRecord> {
        if let What::Accepted(record) = &self.what { Some(record) } else { None }
    }
}

impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Random")
    }
}
