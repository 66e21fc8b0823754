//! The registry of approvals with its effects: the clock, the lock, the audit sink, and whoever waits.
//!
//! Every change follows one line: lock, propose, unlock; record; lock, commit, unlock; tell the waiter. No lock is
//! held while the sink works.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_approval_core::Error;
use countersign_approval_core::audit::{AuditRecord, AuditSink, BoxError};
use countersign_approval_core::clock::{Clock, Now};
use countersign_approval_core::decision::{DecisionRequest, InvalidDecision};
use countersign_approval_core::grants::Principal;
use countersign_approval_core::ids::{ApprovalId, Ids, ProviderId, RunId, Subject};
use countersign_approval_core::registry::{
    AuditFailed, Due, NewReview, Opening, Proposal, Refusal, Registry, Settled, Verdict, Waiter,
};
use countersign_approval_core::review::{ApprovalRequest, IdlePolicy, Resolution};
use countersign_approval_core::snapshot::{Snapshot, ToolCall};
use countersign_protocol::code::{Code, ErrorInfo};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::figures::Meter;

/// A review that is due by the wall clock is seen at most this late, even if that clock was set forward meanwhile.
const WALL_TICK: Duration = Duration::from_secs(1);

/// The reviews of one driver.
pub(crate) struct Reviews {
    registry: Mutex<Registry<Waiting>>,
    sink: Option<Arc<dyn AuditSink>>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    meter: Arc<Meter>,
    expiry: Mutex<Sweeper>,
    due_changed: Notify,
}

/// Whether a task is watching for reviews whose time is over. There is one for all of them, while there are any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sweeper {
    Absent,
    Running,
}

/// The run that waits for a review.
#[derive(Debug)]
pub(crate) struct Waiting {
    settled: oneshot::Sender<Result<Ended, AuditFailed>>,
    aborted: CancellationToken,
    /// When it was asked for, by the clock that cannot be set.
    since: Duration,
}

impl Waiter for Waiting {
    fn is_aborted(&self) -> bool {
        self.aborted.is_cancelled()
    }
}

/// An open review, in the hands of its run. Dropping it withdraws the review: a run whose runtime ends under it, or
/// that panics, leaves nothing pending (law 5).
pub(crate) struct OpenReview {
    pub(crate) approval: Arc<ApprovalRequest>,
    settled: oneshot::Receiver<Result<Ended, AuditFailed>>,
    reviews: Arc<Reviews>,
}

/// How a review ended, and the reason that the decision gave.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) resolution: Resolution,
    pub(crate) reason: Option<Box<str>>,
}

impl OpenReview {
    /// Waits until the review is settled. Whatever goes wrong means that nothing is authorized.
    pub(crate) async fn settled(&mut self) -> Result<Ended, AuditFailed> {
        (&mut self.settled).await.unwrap_or(Err(AuditFailed))
    }
}

impl Drop for OpenReview {
    fn drop(&mut self) {
        self.reviews.withdraw(self.approval.approval_id);
    }
}

/// What a run knows when it asks for a review.
pub(crate) struct ReviewOf<'a> {
    pub(crate) run_id: RunId,
    pub(crate) subject: &'a Subject,
    pub(crate) provider: &'a ProviderId,
    pub(crate) call: &'a ToolCall,
    pub(crate) idle_policy: IdlePolicy,
    pub(crate) expires_after: Option<Duration>,
    pub(crate) aborted: &'a CancellationToken,
}

impl Reviews {
    pub(crate) fn new(
        registry: Registry<Waiting>,
        sink: Option<Arc<dyn AuditSink>>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        meter: Arc<Meter>,
    ) -> Arc<Self> {
        Arc::new(Self {
            registry: Mutex::new(registry),
            sink,
            clock,
            ids,
            meter,
            expiry: Mutex::new(Sweeper::Absent),
            due_changed: Notify::new(),
        })
    }

    /// How many reviews take up capacity.
    pub(crate) fn pending(&self) -> usize {
        self.registry().pending()
    }

    /// Opens a review (contract 4.3, steps 4 and 5). It is recorded when this returns.
    pub(crate) async fn open(self: &Arc<Self>, of: ReviewOf<'_>) -> Result<OpenReview, Error> {
        self.registry().check_capacity()?;
        let call = Snapshot::freeze(of.call.clone())?;
        let (sender, receiver) = oneshot::channel();
        let review = NewReview {
            run_id: of.run_id,
            subject: of.subject.clone(),
            provider: of.provider.clone(),
            call,
            idle_policy: of.idle_policy,
            expires_after: of.expires_after,
        };
        let now = self.now();
        let waiting = Waiting { settled: sender, aborted: of.aborted.clone(), since: now.monotonic };
        let id = ApprovalId::new(self.ids.uuid());
        let opening = self.registry().open(now, id, review, waiting)?;
        let opening = OpeningReview { reviews: Arc::clone(self), opening: Some(opening) };
        let approval = opening.opened().await.map_err(Error::AuditFailed)?;
        if approval.expires_at.is_some() {
            self.watch_expiry();
        }
        Ok(OpenReview { approval, settled: receiver, reviews: Arc::clone(self) })
    }

    /// Withdraws a review because its run ends. Its waiter is told in any case: by this, or by whoever is settling
    /// it already.
    pub(crate) async fn cancel(self: &Arc<Self>, id: ApprovalId) {
        let proposal = self.registry().cancel(self.now(), id);
        if let Some(proposal) = proposal {
            // The run learns the outcome from its receiver.
            let _ = self.settle(proposal).await;
        }
    }

    /// As [`cancel`](Self::cancel), where nothing can wait. Without a runtime the review ends unrecorded: its capacity
    /// is free, nothing is authorized, and the audit shows a review without an end.
    fn withdraw(self: &Arc<Self>, id: ApprovalId) {
        let proposal = self.registry().cancel(self.now(), id);
        if let Some(proposal) = proposal {
            let settling = self.settling(&proposal);
            if let Ok(runtime) = Handle::try_current() {
                drop(runtime.spawn(settling.finish(proposal)));
            }
        }
    }

    /// Takes a decision (contract 4.4). Once it is accepted for recording, a caller who goes away changes nothing.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        caller: &Principal,
        decision: &DecisionRequest,
    ) -> Result<Resolution, Error> {
        let verdict = self.registry().decide(self.now(), caller, decision);
        let decided = match verdict {
            Verdict::Refuse(refusal) => Err(self.refuse(refusal).await),
            Verdict::Settle(proposal) => self.settle(*proposal).await,
        };
        decided.inspect_err(|error| self.meter.decision_refused(error.code()))
    }

    /// Takes a decision as text (contract 4.4, row 1; design 3, "Where it refuses").
    pub(crate) async fn decide_text(
        self: &Arc<Self>,
        caller: &Principal,
        body: &str,
    ) -> Result<Resolution, ErrorInfo> {
        let read = DecisionRequest::parse_echo(body, |id| self.registry().reviewed(&caller.subject, id));
        let error = match read {
            Ok(decision) => match self.decide(caller, &decision).await {
                Ok(resolution) => return Ok(resolution),
                Err(error) => error,
            },
            Err(InvalidDecision::NotJson(message)) => {
                self.meter.decision_refused("INVALID_REQUEST");
                return Err(ErrorInfo::new(Code::INVALID_REQUEST).with_message(message));
            }
            Err(InvalidDecision::Shape { approval_id, run_id, message }) => {
                let refusal = self.registry().refuse_invalid(
                    self.now(),
                    caller,
                    approval_id.as_deref(),
                    run_id.as_deref(),
                    message,
                );
                let error = self.refuse(refusal).await;
                self.meter.decision_refused(error.code());
                error
            }
        };
        Err(public(&error))
    }

    /// Records a fact; `Ok` means that the sink accepted it. A panic of the sink is a refusal.
    pub(crate) async fn record(&self, record: &AuditRecord) -> Result<(), BoxError> {
        let Some(sink) = &self.sink else { return Ok(()) };
        let accepted = if sink.blocking() {
            let (sink, record) = (Arc::clone(sink), record.clone());
            tokio::task::spawn_blocking(move || guarded(&*sink, &record))
                .await
                .unwrap_or_else(|e| Err(e.into()))
        } else {
            guarded(&**sink, record)
        };
        if let Err(cause) = &accepted {
            self.meter.audit_failed();
            tracing::error!(cause = &**cause as &dyn std::error::Error, "the audit sink refused a record");
        }
        accepted
    }

    /// Records a refused decision, then says what the caller is told.
    async fn refuse(&self, refusal: Refusal) -> Error {
        match &refusal.record {
            None => refusal.error,
            Some(record) => match self.record(record).await {
                Ok(()) => refusal.error,
                Err(cause) => Error::AuditFailed(cause),
            },
        }
    }

    /// Second and third step of an end. Where the sink may block, they run in a task of their own.
    async fn settle(self: &Arc<Self>, proposal: Proposal) -> Result<Resolution, Error> {
        let settling = self.settling(&proposal);
        if self.sink.as_ref().is_some_and(|sink| sink.blocking()) {
            tokio::spawn(settling.finish(proposal))
                .await
                .unwrap_or_else(|e| Err(Error::AuditFailed(e.into())))
        } else {
            settling.finish(proposal).await
        }
    }

    fn settling(self: &Arc<Self>, proposal: &Proposal) -> SettlingReview {
        SettlingReview { reviews: Arc::clone(self), id: Some(proposal.id()) }
    }

    fn tell(settled: Option<Settled<Waiting>>) {
        if let Some(settled) = settled {
            // A run that has gone needs no answer.
            let reason = settled.reason;
            let _ = settled.waiter.settled.send(settled.end.map(|resolution| Ended { resolution, reason }));
        }
    }

    /// Makes sure that a task watches for expiry.
    fn watch_expiry(self: &Arc<Self>) {
        let found = std::mem::replace(&mut *self.sweeper(), Sweeper::Running);
        match found {
            Sweeper::Running => self.due_changed.notify_one(),
            Sweeper::Absent => drop(tokio::spawn(Sweep(Some(Arc::clone(self))).run())),
        }
    }

    /// When the next review expires. If none can, the sweeper is told to go, and is absent from now on.
    fn next_due_or_leave(&self) -> Option<Due> {
        let mut sweeper = self.sweeper();
        let next = self.registry().next_due();
        if next.is_none() {
            *sweeper = Sweeper::Absent;
        }
        next
    }

    fn sweeper(&self) -> MutexGuard<'_, Sweeper> {
        self.expiry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Now {
        self.clock.now()
    }

    fn registry(&self) -> MutexGuard<'_, Registry<Waiting>> {
        // The registry is whole after every call; a panic elsewhere while it is locked cannot tear it.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that watches for expiry. If its runtime ends under it, it is absent, so that the next review of a driver
/// that lives on gets another one.
struct Sweep(Option<Arc<Reviews>>);

impl Sweep {
    /// Settles reviews whose time is over, until none is left that could expire.
    async fn run(mut self) {
        while let Some(reviews) = &self.0 {
            while let Some(proposal) = {
                let now = reviews.now();
                reviews.registry().expire_next(now)
            } {
                // Each in a task of its own, so that a slow sink delays no other expiry.
                tokio::spawn(reviews.settling(&proposal).finish(proposal));
            }
            let Some(due) = reviews.next_due_or_leave() else {
                self.0 = None;
                return;
            };
            let now = reviews.now();
            let by_wall = due.wall.as_millis().saturating_sub(now.wall.as_millis());
            let by_wall = Duration::from_millis(u64::try_from(by_wall).unwrap_or(0));
            let wait = due.monotonic.saturating_sub(now.monotonic).min(by_wall).min(WALL_TICK);
            tokio::select! {
                () = tokio::time::sleep(wait.max(Duration::from_millis(1))) => {}
                () = reviews.due_changed.notified() => {}
            }
        }
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        if let Some(reviews) = &self.0 {
            *reviews.sweeper() = Sweeper::Absent;
        }
    }
}

/// A review whose request is being recorded. Dropping it means that there is no review.
struct OpeningReview {
    reviews: Arc<Reviews>,
    /// Here until it is opened.
    opening: Option<Opening>,
}

impl OpeningReview {
    /// Opens the review once its request is recorded.
    async fn opened(mut self) -> Result<Arc<ApprovalRequest>, BoxError> {
        if let Some(opening) = &self.opening {
            self.reviews.record(opening.record()).await?;
        }
        match self.opening.take() {
            Some(opening) => Ok(self.reviews.registry().opened(opening)),
            None => Err("the review was opened before".into()),
        }
    }
}

impl Drop for OpeningReview {
    fn drop(&mut self) {
        if let Some(opening) = self.opening.take() {
            self.reviews.registry().open_failed(opening);
        }
    }
}

/// A review between proposal and commit. Dropping it is an abort: nothing is authorized.
struct SettlingReview {
    reviews: Arc<Reviews>,
    id: Option<ApprovalId>,
}

impl SettlingReview {
    async fn finish(mut self, mut proposal: Proposal) -> Result<Resolution, Error> {
        let refusal = proposal.take_refusal();
        if let Err(cause) = self.reviews.record(proposal.record()).await {
            return Err(Error::AuditFailed(cause));
        }
        self.id = None;
        let resolution = proposal.resolution().clone();
        let settled = self.reviews.registry().commit(proposal);
        if let Some(settled) = &settled {
            let open = self.reviews.now().monotonic.saturating_sub(settled.waiter.since);
            self.reviews.meter.review_ended(resolution.outcome, open);
        }
        Reviews::tell(settled);
        match refusal {
            None => Ok(resolution),
            Some(refusal) => Err(self.reviews.refuse(refusal).await),
        }
    }
}

impl Drop for SettlingReview {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let settled = self.reviews.registry().abort(id);
            Reviews::tell(settled);
        }
    }
}

fn guarded(sink: &dyn AuditSink, record: &AuditRecord) -> Result<(), BoxError> {
    catch_unwind(AssertUnwindSafe(|| sink.record(record)))
        .unwrap_or_else(|_| Err("the audit sink panicked".into()))
}

/// What a client is told of an error of the core. The private cause stays behind.
pub(crate) fn public(error: &Error) -> ErrorInfo {
    ErrorInfo::new(Code::from(error)).with_message(error.to_string())
}
