//! One call of a run: shown, allowed, executed, confirmed (contract 3.2, 4.3, 4.9, 5.4; design 4).

use std::sync::Arc;
use std::time::Duration;

use countersign_approval_core::audit::{AuditRecord, BoxError, Execution, ExecutionOutcome};
use countersign_approval_core::ids::ApprovalId;
use countersign_approval_core::json::{Digest, Exact, Gate, canonical_string};
use countersign_approval_core::registry::AuditFailed;
use countersign_approval_core::review::{IdlePolicy, Outcome};
use countersign_approval_core::snapshot::{Snapshot, ToolCall};
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::event::{EventBody, Phase};
use countersign_protocol::request::{Approvals, OnDeny};
use futures_util::FutureExt;
use tracing::Instrument;

use super::{InFlight, Run, Stop};
use crate::approve::{ApproveContext, Permission};
use crate::driver::{Executor, RegisteredTool, millis};
use crate::executions::Ticket;
use crate::figures;
use crate::progress::Progress;
use crate::reviews::{Ended, OpenReview, ReviewOf, public};
use crate::stream::Gone;
use crate::tools::{Input, Output, Review, Tool, ToolContext};
use crate::trace;
use crate::turn::Throttle;

/// How long a tool may take to stop once its run has ended. The run does not wait for it.
const TOOL_GRACE: Duration = Duration::from_secs(5);

/// What allowed a gated call to run.
struct Allowed {
    /// The person's approval; none if only the embedder's callback allowed it.
    approval: Option<ApprovalId>,
    digest: Digest,
}

/// What becomes of a gated call.
enum Gated {
    Allowed(Allowed),
    /// It does not run; this is what the model is told in place of an output (design 4, `denial-feedback`).
    Refused(Exact),
}

/// What is left to do once a call may run.
enum Work<'a> {
    Host(&'a Arc<dyn Tool>),
    Application(Ticket),
}

impl Run {
    /// Takes one call through to its confirmed output.
    pub(super) async fn call(&mut self, call: &ToolCall, tool: &RegisteredTool) -> Result<Exact, Stop> {
        trace::arguments(self.parts.log_arguments, call);
        self.emit_alone(EventBody::ToolCalled { call: call.clone() }).await?;
        let allowed = match tool.review {
            Review::NotRequired => {
                self.check_aborted()?;
                None
            }
            Review::Required => match self.allow(call).await? {
                Gated::Allowed(allowed) => Some(allowed),
                // Without `tool.completed`, which says that a call has run.
                Gated::Refused(told) => return Ok(told),
            },
        };
        let work = match &tool.executor {
            Executor::Host(tool) => Work::Host(tool),
            Executor::Application { output_schema } => {
                Work::Application(Box::pin(self.reserve(call, output_schema.clone())).await?)
            }
        };
        let execution = match allowed {
            Some(allowed) => Some(Box::pin(self.record_start(call, allowed)).await?),
            None => None,
        };
        let output = Box::pin(self.execute(call, work, execution.as_ref())).await?;
        self.progress();
        self.emit_fact(EventBody::ToolCompleted { call_id: call.id.clone(), output: output.clone() }).await?;
        // Only now has anybody been told; a run that ends before says "uncertain" (law 8).
        self.leaves_open(InFlight::Nothing);
        Ok(output)
    }

    /// Contract 4.3: the callback first, then a person.
    async fn allow(&mut self, call: &ToolCall) -> Result<Gated, Stop> {
        if let Some(approve) = self.parts.approve.clone() {
            let context = ApproveContext {
                run_id: self.run_id,
                subject: self.subject.clone(),
                provider: self.request.provider.clone(),
            };
            match Box::pin(self.guard(approve.approve(call, &context))).await?? {
                Permission::Allow => {}
                Permission::Refuse => return Err(Code::APPROVAL_REQUIRED.into()),
            }
            if self.request.approvals.is_none() {
                // Nobody reviews it, so the bound on reviewed calls does not apply (contract 4.6).
                let digest = Snapshot::digest_of(call);
                return Ok(Gated::Allowed(Allowed { approval: None, digest }));
            }
        }
        match self.request.approvals.clone() {
            Some(approvals) => self.review(call, &approvals).await,
            None => Err(Code::APPROVAL_REQUIRED.into()),
        }
    }

    /// Puts the call to a person and waits (contract 4.3, 4.9, 3.4).
    async fn review(&mut self, call: &ToolCall, approvals: &Approvals) -> Result<Gated, Stop> {
        self.check_aborted()?;
        let reviews = Arc::clone(&self.parts.reviews);
        let opening = reviews.open(ReviewOf {
            run_id: self.run_id,
            subject: &self.subject,
            provider: &self.request.provider,
            call,
            idle_policy: approvals.idle_policy,
            expires_after: millis(approvals.expires_after_ms),
            aborted: &self.cancellation,
        });
        let mut review = Box::pin(opening).await.map_err(|error| public(&error))?;
        let id = review.approval.approval_id;
        let digest = review.approval.call.digest();
        if approvals.idle_policy == IdlePolicy::Pause {
            self.idle.pause();
        }
        let shown = (approvals.digest == Some(true)).then_some(digest);
        if let Err(stop) = self.note(&question(&review, shown)).await {
            // Nobody was asked, so nobody is waited for.
            Box::pin(reviews.cancel(id)).await;
            return Err(stop);
        }
        self.leaves_open(InFlight::Review);
        let (span, asked_at) = (trace::review(id, call), self.now());
        let settled = self.wait_for_person(&mut review, shown).instrument(span.clone()).await;
        let waited = u64::try_from(self.now().saturating_sub(asked_at).as_millis()).unwrap_or(u64::MAX);
        trace::review_ended(&span, settled.as_ref().map_or("unrecorded", outcome_of), waited);
        drop(span);
        if approvals.idle_policy == IdlePolicy::Pause {
            self.progress();
        }
        let Ended { resolution, reason } =
            settled.map_err(|_| ErrorInfo::new(Code::APPROVAL_AUDIT_FAILED))?;
        let outcome = resolution.outcome;
        if outcome == Outcome::Cancelled {
            self.abort(ErrorInfo::new(Code::CANCELLED));
        } else {
            self.leaves_open(InFlight::Nothing);
        }
        self.deliver(EventBody::ApprovalResolved { resolution }).await?;
        self.check_aborted()?;
        let goes_on = approvals.on_deny == Some(OnDeny::Continue);
        match outcome {
            Outcome::Approved => {
                // The loop goes on only when the consumer has taken the outcome and asks for more (design 4).
                self.demand().await?;
                Ok(Gated::Allowed(Allowed { approval: Some(id), digest }))
            }
            Outcome::Denied if goes_on => self.refused("denied", reason.as_deref()).await,
            // Nobody refused it, and the model is not told so.
            Outcome::Expired if goes_on => self.refused("expired", None).await,
            Outcome::Denied => Err(Code::APPROVAL_DENIED.into()),
            Outcome::Expired => Err(Code::APPROVAL_EXPIRED.into()),
            Outcome::Cancelled => Err(self.abort(ErrorInfo::new(Code::CANCELLED))),
        }
    }

    /// What the model is told of a call that does not run, once the consumer has taken its outcome.
    async fn refused(&mut self, approval: &str, reason: Option<&str>) -> Result<Gated, Stop> {
        self.demand().await?;
        let mut told = format!(r#"{{"approval":"{approval}""#);
        if let Some(reason) = reason {
            told.push_str(r#","reason":"#);
            canonical_string(reason, &mut told);
        }
        told.push('}');
        let told =
            Exact::parse_with(&told, Gate::OUTPUT).map_err(|_| ErrorInfo::new(Code::INTERNAL_ERROR))?;
        Ok(Gated::Refused(told))
    }

    /// Shows the question and waits for its end. If the run is aborted first the review is withdrawn at once. The
    /// question can be overtaken by its end (nobody reads, and it expires); it is told first all the same.
    async fn wait_for_person(
        &mut self,
        review: &mut OpenReview,
        digest: Option<Digest>,
    ) -> Result<Ended, AuditFailed> {
        enum Next {
            Settled(Result<Ended, AuditFailed>),
            Room(Result<(), Gone>),
        }
        let outlet = Arc::clone(&self.outlet);
        let mut question = Some(question(review, digest));
        let settled = loop {
            let next = self
                .guard(async {
                    tokio::select! {
                        biased;
                        settled = review.settled() => Next::Settled(settled),
                        room = outlet.room(), if question.is_some() => Next::Room(room),
                    }
                })
                .await;
            match next {
                Ok(Next::Settled(settled)) => break settled,
                Ok(Next::Room(Ok(()))) => question.take().into_iter().for_each(|body| self.place(body)),
                Ok(Next::Room(Err(Gone))) | Err(_) => {
                    self.abort(ErrorInfo::new(Code::CANCELLED));
                    // Boxed: it is rare, and every waiting run would carry its state.
                    Box::pin(self.parts.reviews.cancel(review.approval.approval_id)).await;
                    break review.settled().await;
                }
            }
        };
        if let Some(body) = question {
            self.tell(body).await;
        }
        settled
    }

    /// The record that precedes a gated call (law 2). Without it the tool is not called.
    async fn record_start(&mut self, call: &ToolCall, allowed: Allowed) -> Result<Execution, Stop> {
        self.check_aborted()?;
        let execution = Execution {
            subject: self.subject.clone(),
            provider: self.request.provider.clone(),
            run_id: self.run_id,
            approval_id: allowed.approval,
            call_id: call.id.clone(),
            digest: allowed.digest,
            at: self.parts.clock.now().wall,
        };
        let started = AuditRecord::ExecutionStarted(execution.clone());
        if self.parts.reviews.record(&started).await.is_err() {
            return Err(Code::APPROVAL_AUDIT_FAILED.into());
        }
        if let Err(stop) = self.check_aborted() {
            // Recorded as started, but the run ended before the tool was called.
            self.record_finish(execution, ExecutionOutcome::NotStarted).await?;
            return Err(stop);
        }
        Ok(execution)
    }

    async fn record_finish(&self, mut execution: Execution, outcome: ExecutionOutcome) -> Result<(), Stop> {
        execution.at = self.parts.clock.now().wall;
        let finished = AuditRecord::ExecutionFinished { execution, outcome };
        match self.parts.reviews.record(&finished).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Code::APPROVAL_AUDIT_FAILED.into()),
        }
    }

    /// Calls the tool, once. The caller has checked that the run goes on: a check here could end it between
    /// `execution.started` and the call, and the record would have no end.
    async fn execute(
        &mut self,
        call: &ToolCall,
        work: Work<'_>,
        execution: Option<&Execution>,
    ) -> Result<Exact, Stop> {
        self.leaves_open(InFlight::Tool);
        let ended = match work {
            Work::Host(tool) => self.work(call, tool).await,
            Work::Application(ticket) => self.ask_application(ticket).await,
        };
        if let Some(execution) = execution {
            let outcome = match &ended {
                Ok(Ok(_)) => ExecutionOutcome::Completed,
                Ok(Err(_)) | Err(_) => ExecutionOutcome::Uncertain,
            };
            self.record_finish(execution.clone(), outcome).await?;
        }
        match ended? {
            Ok(output) => Ok(output.0),
            Err(cause) => {
                tracing::warn!(run = %self.run_id, tool = %call.name, cause = &*cause as &dyn std::error::Error, "a tool failed");
                Err(Code::TOOL_OUTCOME_UNCERTAIN.into())
            }
        }
    }

    /// Waits for the tool, passing its progress on. The tool runs in a task of its own, so that a panic is its own
    /// failure and an end of the run finds it still able to clean up.
    async fn work(
        &mut self,
        call: &ToolCall,
        tool: &Arc<dyn Tool>,
    ) -> Result<Result<Output, BoxError>, Stop> {
        let progress = Progress::default();
        let context = ToolContext {
            run_id: self.run_id,
            call_id: call.id.clone(),
            subject: self.subject.clone(),
            cancellation: self.cancellation.clone(),
            progress: progress.clone(),
        };
        let (tool, input, ended) =
            (Arc::clone(tool), Input(call.arguments.clone()), self.cancellation.clone());
        let work = async move {
            tokio::select! {
                output = tool.execute(input, context) => output,
                () = async { ended.cancelled().await; tokio::time::sleep(TOOL_GRACE).await } => {
                    Err("the tool did not stop after its run had ended".into())
                }
            }
        };
        let task = self.tasks.spawn(work.in_current_span());
        self.follow(&progress, task.map(|ended| ended.unwrap_or_else(|panic| Err(panic.into())))).await
    }

    /// Waits for the end of a tool, whoever executes it, passing its progress on.
    pub(super) async fn follow(
        &mut self,
        progress: &Progress,
        end: impl Future<Output = Result<Output, BoxError>>,
    ) -> Result<Result<Output, BoxError>, Stop> {
        enum Next {
            Ended(Result<Output, BoxError>),
            Progress,
            Asked,
        }
        let mut end = std::pin::pin!(end);
        let outlet = Arc::clone(&self.outlet);
        let mut throttle = Throttle::default();
        let mut shown = true;
        loop {
            let next = self
                .guard(async {
                    tokio::select! {
                        biased;
                        ended = &mut end => Next::Ended(ended),
                        () = progress.reported() => Next::Progress,
                        Ok(()) = outlet.asked(), if !shown => Next::Asked,
                    }
                })
                .await?;
            match next {
                Next::Ended(ended) => return Ok(ended),
                Next::Progress => {
                    self.progress();
                    if throttle.admit(self.now()) {
                        shown = false;
                    }
                }
                Next::Asked => {
                    self.place(EventBody::RunProgress { phase: Phase::Tool });
                    shown = true;
                }
            }
        }
    }
}

fn outcome_of(ended: &Ended) -> &'static str {
    figures::name(ended.resolution.outcome)
}

/// What a person is asked.
fn question(review: &OpenReview, digest: Option<Digest>) -> EventBody {
    EventBody::ApprovalRequested { approval: Arc::clone(&review.approval), digest }
}
