//! The registry of pending approvals: a deterministic state machine (design 4, contract 4.3 to 4.8).
//!
//! It reads no clock, takes no lock and waits for nothing: time, ids and callers are arguments. Whoever holds it
//! does the effects. Every step that must be recorded first is split in two: the first call checks, marks the
//! entry and returns the [`AuditRecord`]; the caller hands it to the sink without holding the registry; the second
//! call makes it true or undoes it.
//!
//! ```text
//! open ──► Opening ──opened──► Waiting ──decide / expire / cancel──► Settling ──commit / abort──► gone
//!             └──open_failed──► gone
//! ```
//!
//! While an entry is *opening* or *settling* every decision on it is `NotFound`, and expiry and cancel leave it alone.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::audit::AuditRecord;
use crate::clock::{Now, Timestamp};
use crate::decision::{DecisionRequest, MAX_REASON_CHARS};
use crate::error::Error;
use crate::grants::Principal;
use crate::ids::{ApprovalId, ProviderId, RunId, Subject};
use crate::review::{ApprovalRequest, IdlePolicy, Outcome, Resolution};
use crate::snapshot::Snapshot;

mod refusals;

use refusals::Refusals;

/// The bounds of a registry (design 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `approvals.maxPending`: how many reviews may be open at once. Default 1,000.
    pub max_pending: usize,
    /// `approvals.maxRejectedPerMinute`: refused decisions a subject may send in a minute before they are answered
    /// `RATE_LIMITED` and no longer audited one by one. Default 600.
    pub max_rejected_per_minute: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_pending: 1_000, max_rejected_per_minute: 600 }
    }
}

/// Whether a decision may say why (design 4, feature `denial-feedback`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reasons {
    /// A decision with a reason is not valid.
    #[default]
    Refused,
    /// It may have one of at most [`MAX_REASON_CHARS`] characters.
    Accepted,
}

/// Whoever waits for a review to settle: the run. The registry keeps it and hands it back once.
pub trait Waiter {
    /// Whether the run has been aborted already, so that its review can no longer be decided (contract 4.4, row 3).
    fn is_aborted(&self) -> bool;
}

/// A review to open.
#[derive(Debug, Clone)]
pub struct NewReview {
    /// The run.
    pub run_id: RunId,
    /// The subject of the run.
    pub subject: Subject,
    /// The run's provider.
    pub provider: ProviderId,
    /// The frozen call.
    pub call: Snapshot,
    /// What the request chose.
    pub idle_policy: IdlePolicy,
    /// `expiresAfterMs`; none means that the review waits as long as its run.
    pub expires_after: Option<Duration>,
}

/// The registry. `W` is the waiter of each review.
#[derive(Debug)]
pub struct Registry<W> {
    limits: Limits,
    reasons: Reasons,
    entries: HashMap<ApprovalId, Entry<W>>,
    /// When the waiting reviews expire, by each clock.
    by_wall: BTreeSet<(Timestamp, ApprovalId)>,
    by_monotonic: BTreeSet<(Duration, ApprovalId)>,
    refusals: Refusals,
}

#[derive(Debug)]
struct Entry<W> {
    subject: Subject,
    provider: ProviderId,
    approval: Arc<ApprovalRequest>,
    due: Option<Due>,
    state: State,
    waiter: W,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Opening,
    Waiting,
    Settling,
}

/// When a review expires: at the first of two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// By the wall clock: `expiresAt`.
    pub wall: Timestamp,
    /// By the monotonic clock.
    pub monotonic: Duration,
}

impl Due {
    fn reached(self, now: Now) -> bool {
        now.wall >= self.wall || now.monotonic >= self.monotonic
    }
}

/// A review whose `approval.requested` record has yet to be accepted.
#[derive(Debug)]
#[must_use = "the review stays undecidable until `opened` or `open_failed`"]
pub struct Opening {
    approval: Arc<ApprovalRequest>,
    record: AuditRecord,
}

impl Opening {
    /// What the sink must accept first.
    pub const fn record(&self) -> &AuditRecord {
        &self.record
    }

    /// The review's id.
    pub fn id(&self) -> ApprovalId {
        self.approval.approval_id
    }
}

/// An end of a review that has yet to be recorded.
#[derive(Debug)]
#[must_use = "the review stays undecidable until `commit` or `abort`"]
pub struct Proposal {
    id: ApprovalId,
    resolution: Resolution,
    reason: Option<Box<str>>,
    record: AuditRecord,
    refusal: Option<Refusal>,
}

impl Proposal {
    /// What the sink must accept first.
    pub const fn record(&self) -> &AuditRecord {
        &self.record
    }

    /// The review's id.
    pub const fn id(&self) -> ApprovalId {
        self.id
    }

    /// How the review will have ended.
    pub const fn resolution(&self) -> &Resolution {
        &self.resolution
    }

    /// Where a decision came too late (contract 4.4, rows 3 and 4) the review is settled otherwise, and this is
    /// what the caller is told after the settlement was recorded.
    pub const fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }
}

/// A refused decision, with the record that must be accepted before the caller is told why.
#[derive(Debug)]
#[must_use = "record it, then tell the caller"]
pub struct Refusal {
    /// What the caller is told.
    pub error: Error,
    /// What the sink must accept first; none for [`Error::RateLimited`], which is only counted.
    pub record: Option<AuditRecord>,
}

/// What a decision leads to.
#[derive(Debug)]
#[must_use = "a decision takes two steps"]
pub enum Verdict {
    /// Record it, then [`Registry::commit`] it.
    Settle(Box<Proposal>),
    /// Record it, then tell the caller.
    Refuse(Refusal),
}

/// A settled review: its waiter, and what the waiter must be told.
#[derive(Debug)]
#[must_use = "the waiter must be told"]
pub struct Settled<W> {
    /// Whoever waits.
    pub waiter: W,
    /// How it ended; an error if the audit sink did not accept the end, so that nothing is authorized.
    pub end: Result<Resolution, AuditFailed>,
    /// The reason that the decision gave.
    pub reason: Option<Box<str>>,
}

/// The sink did not accept the record of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the audit record of the settlement was not accepted")]
pub struct AuditFailed;

impl<W: Waiter> Registry<W> {
    /// An empty registry.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            reasons: Reasons::default(),
            entries: HashMap::new(),
            by_wall: BTreeSet::new(),
            by_monotonic: BTreeSet::new(),
            refusals: Refusals::default(),
        }
    }

    /// The same registry with another rule for reasons.
    #[must_use]
    pub fn with_reasons(mut self, reasons: Reasons) -> Self {
        self.reasons = reasons;
        self
    }

    /// How many reviews take up capacity: opening, waiting and settling ones.
    pub fn pending(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is room for another review (contract 4.3: capacity is checked before size).
    ///
    /// # Errors
    /// [`Error::Capacity`] if `max_pending` reviews are open.
    pub fn check_capacity(&self) -> Result<(), Error> {
        if self.entries.len() >= self.limits.max_pending {
            return Err(Error::Capacity { limit: self.limits.max_pending });
        }
        Ok(())
    }

    /// Registers a review. Its time runs from here; it can be decided once it is [`opened`](Self::opened).
    ///
    /// `id` must be new; an id that is in use is refused as if there were no room.
    ///
    /// # Errors
    /// [`Error::Capacity`].
    pub fn open(&mut self, now: Now, id: ApprovalId, review: NewReview, waiter: W) -> Result<Opening, Error> {
        self.check_capacity()?;
        if self.entries.contains_key(&id) {
            return Err(Error::Capacity { limit: self.limits.max_pending });
        }
        let due = review.expires_after.map(|after| Due {
            wall: now.wall.saturating_add(after),
            monotonic: now.monotonic.saturating_add(after),
        });
        let digest = review.call.digest();
        let approval = Arc::new(ApprovalRequest {
            approval_id: id,
            run_id: review.run_id,
            call: review.call,
            requested_at: now.wall,
            idle_policy: review.idle_policy,
            expires_at: due.map(|due| due.wall),
        });
        let record = AuditRecord::Requested {
            subject: review.subject.clone(),
            provider: review.provider.clone(),
            approval: Arc::clone(&approval),
            digest,
        };
        let entry = Entry {
            subject: review.subject,
            provider: review.provider,
            approval: Arc::clone(&approval),
            due,
            state: State::Opening,
            waiter,
        };
        self.entries.insert(id, entry);
        Ok(Opening { approval, record })
    }

    /// The requested record was accepted: the review can be decided and expires in time.
    pub fn opened(&mut self, opening: Opening) -> Arc<ApprovalRequest> {
        let id = opening.id();
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.state = State::Waiting;
            if let Some(due) = entry.due {
                self.by_wall.insert((due.wall, id));
                self.by_monotonic.insert((due.monotonic, id));
            }
        }
        opening.approval
    }

    /// The requested record was not accepted: there is no review. The waiter comes back.
    pub fn open_failed(&mut self, opening: Opening) -> Option<W> {
        self.entries.remove(&opening.id()).map(|entry| entry.waiter)
    }

    /// The call of a review that waits, if it is `subject`'s: what a decision on it most likely carries
    /// ([`DecisionRequest::parse_echo`]).
    pub fn reviewed(&self, subject: &Subject, id: ApprovalId) -> Option<Snapshot> {
        let entry = self.entries.get(&id)?;
        (entry.subject == *subject && entry.state == State::Waiting).then(|| entry.approval.call.clone())
    }

    /// Checks a decision, in the order of contract 4.4. Nothing has happened yet; see [`Verdict`].
    pub fn decide(&mut self, now: Now, caller: &Principal, decision: &DecisionRequest) -> Verdict {
        if let Err(message) = self.check_reason(decision) {
            return Verdict::Refuse(self.refuse(now, caller, decision, Error::InvalidDecision(message)));
        }
        match self.check(now, caller, decision) {
            Ok((id, outcome)) => match self.settle(now, id, outcome, decision.reason.as_deref()) {
                Some(proposal) => Verdict::Settle(Box::new(proposal)),
                None => Verdict::Refuse(self.refuse(now, caller, decision, Error::NotFound)),
            },
            Err(Late::Settle(id, outcome)) => {
                let refusal = self.refuse(now, caller, decision, Error::NotFound);
                // A late decision has no part in how it ended.
                match self.settle(now, id, outcome, None) {
                    Some(proposal) => {
                        Verdict::Settle(Box::new(Proposal { refusal: Some(refusal), ..proposal }))
                    }
                    None => Verdict::Refuse(refusal),
                }
            }
            Err(Late::Refuse(error)) => Verdict::Refuse(self.refuse(now, caller, decision, error)),
        }
    }

    /// The refusal of a decision that could not even be read (contract 4.4, row 1). Ids are recorded only if the
    /// caller sent them as text of at most 256 characters.
    pub fn refuse_invalid(
        &mut self,
        now: Now,
        caller: &Principal,
        approval_id: Option<&str>,
        run_id: Option<&str>,
        message: String,
    ) -> Refusal {
        self.refusal(now, caller, approval_id, run_id, Error::InvalidDecision(message))
    }

    /// When the next waiting review expires, by each clock.
    pub fn next_due(&self) -> Option<Due> {
        let (wall, _) = self.by_wall.first()?;
        let (monotonic, _) = self.by_monotonic.first()?;
        Some(Due { wall: *wall, monotonic: *monotonic })
    }

    /// Marks one review whose time is over, if there is one. Call it until it returns none.
    pub fn expire_next(&mut self, now: Now) -> Option<Proposal> {
        let by_wall = self.by_wall.first().filter(|(due, _)| now.wall >= *due).map(|(_, id)| *id);
        let by_monotonic =
            || self.by_monotonic.first().filter(|(due, _)| now.monotonic >= *due).map(|(_, id)| *id);
        let id = by_wall.or_else(by_monotonic)?;
        self.settle(now, id, Outcome::Expired, None)
    }

    /// Marks a review as withdrawn because its run ends. None if it is not waiting: it is gone, still opening (then
    /// its run is the one that opens it), or settling (then whoever settles it tells the waiter).
    pub fn cancel(&mut self, now: Now, id: ApprovalId) -> Option<Proposal> {
        self.settle(now, id, Outcome::Cancelled, None)
    }

    /// The record was accepted: the review is over. None only if the proposal was made by another registry.
    pub fn commit(&mut self, proposal: Proposal) -> Option<Settled<W>> {
        let entry = self.remove_settling(proposal.id)?;
        Some(Settled { waiter: entry.waiter, end: Ok(proposal.resolution), reason: proposal.reason })
    }

    /// The record was not accepted, or nobody can tell: the review is over and nothing is authorized (4.4, row 7b).
    pub fn abort(&mut self, id: ApprovalId) -> Option<Settled<W>> {
        let entry = self.remove_settling(id)?;
        Some(Settled { waiter: entry.waiter, end: Err(AuditFailed), reason: None })
    }

    fn remove_settling(&mut self, id: ApprovalId) -> Option<Entry<W>> {
        match self.entries.get(&id)?.state {
            State::Settling => self.entries.remove(&id),
            State::Opening | State::Waiting => None,
        }
    }

    /// The part of row 1 of contract 4.4 that depends on the host: whoever filled the decision, it is as strict.
    fn check_reason(&self, request: &DecisionRequest) -> Result<(), String> {
        match (&request.reason, self.reasons) {
            (None, _) => Ok(()),
            (Some(_), Reasons::Refused) => Err("reason: this host takes none".into()),
            (Some(reason), Reasons::Accepted) if reason.encode_utf16().count() > MAX_REASON_CHARS => {
                Err(format!("reason: more than {MAX_REASON_CHARS} characters"))
            }
            (Some(_), Reasons::Accepted) => Ok(()),
        }
    }

    /// Rows 2 to 7 of contract 4.4.
    fn check(
        &self,
        now: Now,
        caller: &Principal,
        request: &DecisionRequest,
    ) -> Result<(ApprovalId, Outcome), Late> {
        let found = ApprovalId::parse(&request.approval_id)
            .and_then(|id| self.entries.get(&id).map(|entry| (id, entry)))
            // A wrong subject goes the same way as an unknown id: it must not learn that the approval exists.
            .filter(|(_, entry)| entry.subject == caller.subject && entry.state == State::Waiting);
        let Some((id, entry)) = found else { return Err(Late::Refuse(Error::NotFound)) };
        if entry.waiter.is_aborted() {
            return Err(Late::Settle(id, Outcome::Cancelled));
        }
        if entry.due.is_some_and(|due| due.reached(now)) {
            return Err(Late::Settle(id, Outcome::Expired));
        }
        let call = entry.approval.call.call();
        if !caller.grants.providers.allows(entry.provider.as_str())
            || !caller.grants.approve_tools.allows(call.name.as_str())
        {
            return Err(Late::Refuse(Error::Forbidden));
        }
        if RunId::parse(&request.run_id) != Some(entry.approval.run_id)
            || !entry.approval.call.binds(&request.call.id, &request.call.name, &request.call.arguments)
        {
            return Err(Late::Refuse(Error::Mismatch));
        }
        Ok((id, request.decision.outcome()))
    }

    /// Waiting → settling, with the record that says how it ends.
    fn settle(
        &mut self,
        now: Now,
        id: ApprovalId,
        outcome: Outcome,
        reason: Option<&str>,
    ) -> Option<Proposal> {
        let reason: Option<Box<str>> = reason.map(Into::into);
        let entry = self.entries.get_mut(&id).filter(|entry| entry.state == State::Waiting)?;
        entry.state = State::Settling;
        if let Some(due) = entry.due {
            self.by_wall.remove(&(due.wall, id));
            self.by_monotonic.remove(&(due.monotonic, id));
        }
        let resolution = Resolution {
            approval_id: id,
            run_id: entry.approval.run_id,
            call_id: entry.approval.call.call().id.clone(),
            outcome,
            decided_at: now.wall,
        };
        let record = AuditRecord::Resolved {
            subject: entry.subject.clone(),
            provider: entry.provider.clone(),
            approval: Arc::clone(&entry.approval),
            digest: entry.approval.call.digest(),
            resolution: resolution.clone(),
            reason: reason.clone(),
        };
        Some(Proposal { id, resolution, reason, record, refusal: None })
    }

    fn refuse(&mut self, now: Now, caller: &Principal, request: &DecisionRequest, error: Error) -> Refusal {
        self.refusal(now, caller, Some(&request.approval_id), Some(&request.run_id), error)
    }

    fn refusal(
        &mut self,
        now: Now,
        caller: &Principal,
        approval_id: Option<&str>,
        run_id: Option<&str>,
        error: Error,
    ) -> Refusal {
        let limit = self.limits.max_rejected_per_minute;
        if !self.refusals.admit(now.monotonic, &caller.subject, limit) {
            return Refusal { error: Error::RateLimited { limit }, record: None };
        }
        let short = |id: &&str| id.encode_utf16().count() <= 256;
        let record = AuditRecord::Rejected {
            subject: caller.subject.clone(),
            approval_id: approval_id.filter(short).map(Into::into),
            run_id: run_id.filter(short).map(Into::into),
            code: error.code(),
        };
        Refusal { error, record: Some(record) }
    }
}

/// Why a decision does not simply take effect.
enum Late {
    /// The review ended before the decision came; that end is settled now, and the caller is told `NotFound`.
    Settle(ApprovalId, Outcome),
    Refuse(Error),
}
