//! The executions that applications were asked for, with their effects: the lock, the ids, and whoever waits
//! (contract 7.6).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_approval_core::grants::Principal;
use countersign_approval_core::ids::{ExecutionId, Ids, ProviderId, RunId, Subject};
use countersign_approval_core::json::Exact;
use countersign_approval_core::snapshot::{Snapshot, ToolCall};
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::event::ToolExecution;
use countersign_protocol::tool_execution::{
    ExecutionEnd, ExecutionIdentity, ExecutionReceipt, ExecutionResult, MAX_REPORTED_BYTES, ReportStatus,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::progress::Progress;
use crate::schema::RequestSchema;

mod registry;

use registry::{Bound, Registry, Waiter};

/// The executions of one driver.
pub(crate) struct Executions {
    registry: Mutex<Registry<Waiting>>,
    max_pending: usize,
    ids: Arc<dyn Ids>,
}

/// The run that waits for an execution.
#[derive(Debug)]
struct Waiting {
    ended: oneshot::Sender<Ended>,
    progress: Progress,
    aborted: CancellationToken,
    output_schema: Option<RequestSchema>,
}

impl Waiter for Waiting {
    fn is_aborted(&self) -> bool {
        self.aborted.is_cancelled()
    }
}

impl Waiting {
    /// Judges a report, tells the run, and says what the reporter is told.
    async fn settle(self, result: &ExecutionResult) -> Result<ExecutionReceipt, ErrorInfo> {
        let (ended, answer) = match judged(&result.end, self.output_schema.as_ref()).await {
            Ok(ended) => (ended, Ok(result.identity.receipt(ReportStatus::Accepted))),
            // The application did something, and nobody knows what (contract 5.4).
            Err(error) => (Ended::Unusable(error.code.clone()), Err(error.uncertain())),
        };
        match self.ended.send(ended) {
            Ok(()) => answer,
            // The run ended meanwhile: as if the report had come a moment later.
            Err(_) => Err(ErrorInfo::new(Code::TOOL_EXECUTION_NOT_FOUND)),
        }
    }
}

/// How an execution ended, for its run.
#[derive(Debug)]
pub(crate) enum Ended {
    /// With an output that passed every check.
    Output(Exact),
    /// The application says that it failed.
    Failed,
    /// The application sent an output that is not one.
    Unusable(Code),
}

/// What a run knows when it asks for an execution.
pub(crate) struct ExecutionOf<'a> {
    pub(crate) run_id: RunId,
    pub(crate) subject: &'a Subject,
    pub(crate) provider: &'a ProviderId,
    pub(crate) call: &'a ToolCall,
    pub(crate) output_schema: Option<RequestSchema>,
    pub(crate) aborted: &'a CancellationToken,
}

/// An open execution, in the hands of its run. Dropping it ends it: nothing can be reported any more (law 5).
pub(crate) struct Ticket {
    pub(crate) execution: ToolExecution,
    pub(crate) progress: Progress,
    ended: oneshot::Receiver<Ended>,
    executions: Arc<Executions>,
}

impl Ticket {
    /// Reports count from here. What the application is asked stands in [`execution`](Self::execution).
    pub(crate) fn hand_over(&self) {
        self.executions.registry().hand_over(self.execution.execution_id);
    }

    /// Waits for the end; none if whoever reported it broke down meanwhile.
    pub(crate) async fn ended(&mut self) -> Option<Ended> {
        (&mut self.ended).await.ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.executions.registry().remove(self.execution.execution_id);
    }
}

impl Executions {
    pub(crate) fn new(max_pending: usize, ids: Arc<dyn Ids>) -> Arc<Self> {
        Arc::new(Self { registry: Mutex::new(Registry::new(max_pending)), max_pending, ids })
    }

    /// How many executions take up capacity.
    pub(crate) fn pending(&self) -> usize {
        self.registry().pending()
    }

    /// Takes up capacity for a call and checks its size, in the order of a review (contract 7.6, 4.3).
    ///
    /// # Errors
    /// `TOOL_EXECUTOR_CAPACITY`; `INVALID_TOOL_CALL` for a call that is too large.
    pub(crate) fn reserve(self: &Arc<Self>, of: ExecutionOf<'_>) -> Result<Ticket, ErrorInfo> {
        let full = |_| {
            ErrorInfo::new(Code::TOOL_EXECUTOR_CAPACITY).with_message(format!(
                "{} tool executions are waiting; the host takes no more",
                self.max_pending
            ))
        };
        self.registry().check_capacity().map_err(full)?;
        Snapshot::freeze(of.call.clone())
            .map_err(|large| ErrorInfo::new(Code::INVALID_TOOL_CALL).with_message(large.to_string()))?;
        let (sender, receiver) = oneshot::channel();
        let progress = Progress::default();
        let waiting = Waiting {
            ended: sender,
            progress: progress.clone(),
            aborted: of.aborted.clone(),
            output_schema: of.output_schema,
        };
        let bound = Bound {
            subject: of.subject.clone(),
            provider: of.provider.clone(),
            run_id: of.run_id,
            call_id: of.call.id.clone(),
            tool: of.call.name.clone(),
        };
        let execution_id = ExecutionId::new(self.ids.uuid());
        self.registry().reserve(execution_id, bound, waiting).map_err(full)?;
        let execution = ToolExecution { execution_id, run_id: of.run_id, call: of.call.clone() };
        Ok(Ticket { execution, progress, ended: receiver, executions: Arc::clone(self) })
    }

    /// Takes a sign of life.
    pub(crate) fn progress(
        &self,
        caller: &Principal,
        identity: &ExecutionIdentity,
    ) -> Result<ExecutionReceipt, ErrorInfo> {
        match self.registry().find(caller, identity) {
            Ok(waiting) => waiting.progress.report(),
            Err(refusal) => return Err(ErrorInfo::new(refusal.code())),
        }
        Ok(identity.receipt(ReportStatus::Progress))
    }

    /// Takes an end. From the moment that the execution is found it is over, whatever the output is worth. A caller who
    /// goes away changes nothing.
    pub(crate) async fn result(
        &self,
        caller: &Principal,
        result: &ExecutionResult,
    ) -> Result<ExecutionReceipt, ErrorInfo> {
        let claimed = self.registry().claim(caller, &result.identity);
        let waiting = claimed.map_err(|refusal| ErrorInfo::new(refusal.code()))?;
        if waiting.output_schema.is_none() {
            return waiting.settle(result).await;
        }
        let result = result.clone();
        let settled = tokio::spawn(async move { waiting.settle(&result).await }).await;
        settled.unwrap_or_else(|_| Err(ErrorInfo::new(Code::INTERNAL_ERROR).uncertain()))
    }

    fn registry(&self) -> MutexGuard<'_, Registry<Waiting>> {
        // The registry is whole after every call; a panic elsewhere while it is locked cannot tear it.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Contract 7.6: size first, then shape. An output that is not exact JSON was refused when the report was read.
async fn judged(end: &ExecutionEnd, schema: Option<&RequestSchema>) -> Result<Ended, ErrorInfo> {
    let output = match end {
        ExecutionEnd::Output(output) => output,
        ExecutionEnd::Failed => return Ok(Ended::Failed),
    };
    let bytes = output.canonical_len();
    if bytes > MAX_REPORTED_BYTES {
        return Err(ErrorInfo::new(Code::TOOL_OUTPUT_LIMIT).with_message(format!(
            "the output has {bytes} bytes; at most {MAX_REPORTED_BYTES} are taken from an application"
        )));
    }
    if let Some(schema) = schema
        && let Err(message) = schema.check(output).await
    {
        return Err(ErrorInfo::new(Code::INVALID_TOOL_OUTPUT).with_message(message));
    }
    Ok(Ended::Output(output.clone()))
}
