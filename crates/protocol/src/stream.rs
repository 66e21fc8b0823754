//! The rules between the events of one stream, as a client checks them (contract 10.2).

use std::collections::HashSet;

use countersign_approval_core::ids::{CallId, ExecutionId, ModelId, ProviderId, RunId, ToolName};
use countersign_approval_core::review::IdlePolicy;

use crate::error::EventError;
use crate::event::{Decoded, Event, EventBody, ToolExecution};
use crate::request::{Approvals, RunRequest};
use crate::result::RunResult;

/// What the events of a run must have in common with its request.
#[derive(Debug, Clone)]
pub struct Expectation(Source);

#[derive(Debug, Clone)]
enum Source {
    Request {
        provider: ProviderId,
        model: ModelId,
        approvals: Option<Approvals>,
        /// The tools that the request defines; empty if it has no application tools.
        defined: Vec<ToolName>,
        /// The tools that the request selects.
        selected: Vec<ToolName>,
        output: Output,
    },
    OwnLog,
}

/// Whether a result must have `output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    /// A schema was asked for.
    Due,
    /// None was; an old host may send one all the same.
    Free,
}

impl Expectation {
    /// What this request may be answered with.
    pub fn of(request: &RunRequest) -> Self {
        Self(Source::Request {
            provider: request.provider.clone(),
            model: request.model.clone(),
            approvals: request.approvals.clone(),
            output: if request.output_schema.is_some() { Output::Due } else { Output::Free },
            defined: request.application_tools.iter().map(|tool| tool.name.clone()).collect(),
            selected: request.tools.clone(),
        })
    }

    /// For whoever reads events back that it wrote itself, such as an operation log (contract 9): any provider and
    /// model, approvals of either policy, a digest where there is one, executions of any tool.
    pub const fn own_log() -> Self {
        Self(Source::OwnLog)
    }

    /// Whether a result has the request's provider and model, and an output if a schema was asked for (contract 2.2,
    /// 10.2): for a buffered run's answer too.
    pub fn fits(&self, result: &RunResult) -> bool {
        match &self.0 {
            Source::Request { provider, model, output, .. } => {
                let due = *output == Output::Free || result.output.is_some();
                result.provider == *provider && result.model == *model && due
            }
            Source::OwnLog => true,
        }
    }

    /// The provider and model of `run.started`, if they may stand there.
    pub(crate) fn identity(&self, provider: &str, model: &str) -> Option<(ProviderId, ModelId)> {
        match &self.0 {
            Source::Request { provider: p, model: m, .. } => {
                (p.as_str() == provider && m.as_str() == model).then(|| (p.clone(), m.clone()))
            }
            Source::OwnLog => Some((ProviderId::parse(provider).ok()?, ModelId::parse(model).ok()?)),
        }
    }

    /// Whether `approval.*` events may come.
    pub(crate) const fn approvals(&self) -> bool {
        matches!(self.0, Source::Request { approvals: Some(_), .. } | Source::OwnLog)
    }

    /// Whether `tool.execution.requested` may come.
    pub(crate) fn executions(&self) -> bool {
        match &self.0 {
            Source::Request { defined, .. } => !defined.is_empty(),
            Source::OwnLog => true,
        }
    }

    /// Whether the application may be asked to execute this tool: the request defines and selects it.
    pub(crate) fn executes(&self, tool: &ToolName) -> bool {
        match &self.0 {
            Source::Request { defined, selected, .. } => defined.contains(tool) && selected.contains(tool),
            Source::OwnLog => true,
        }
    }

    /// Whether a review may have this policy.
    pub(crate) fn idle_policy(&self, policy: IdlePolicy) -> bool {
        match &self.0 {
            Source::Request { approvals, .. } => approvals.as_ref().is_some_and(|a| a.idle_policy == policy),
            Source::OwnLog => true,
        }
    }

    /// Whether a review must have a valid digest, given whether it has the member.
    pub(crate) fn digest(&self, present: bool) -> bool {
        match &self.0 {
            Source::Request { approvals, .. } => approvals.as_ref().is_some_and(|a| a.digest == Some(true)),
            Source::OwnLog => present,
        }
    }
}

/// The most executions of one stream (contract 7.6).
pub const MAX_EXECUTIONS: usize = 2_048;

/// Takes the data of one frame after another and gives events, or the reason why the stream is refused.
///
/// The first event is `run.started` and no later one is; sequence numbers are 1, 2, 3…; the run stays the same; exactly
/// one terminal event comes last (contract 3.1, 10.2). No execution is asked for twice, by its id or by its call's, and
/// at most [`MAX_EXECUTIONS`] are (contract 7.6).
#[derive(Debug)]
pub struct StreamCheck {
    expect: Expectation,
    state: State,
    executions: HashSet<ExecutionId>,
    /// The calls of these executions.
    executed: HashSet<CallId>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Nothing came yet.
    New,
    /// The last event's run and sequence number.
    Open { run_id: RunId, sequence: u64 },
    /// The terminal event came.
    Ended,
    /// The stream was refused; the first failure sticks.
    Failed,
}

impl StreamCheck {
    /// A stream that has not begun.
    pub fn new(expect: Expectation) -> Self {
        Self { expect, state: State::New, executions: HashSet::new(), executed: HashSet::new() }
    }

    /// Takes a frame's data. `None` is an event that may be skipped.
    ///
    /// # Errors
    /// [`EventError`]; every later call fails too.
    pub fn accept(&mut self, data: &str) -> Result<Option<Event>, EventError> {
        let before = std::mem::replace(&mut self.state, State::Failed);
        let previous = match before {
            State::New => None,
            State::Open { run_id, sequence } => Some((run_id, sequence)),
            State::Ended => return Err(EventError::invalid("an event came after the last one")),
            State::Failed => return Err(EventError::invalid("an earlier event was refused")),
        };
        let decoded = Event::decode(data, &self.expect)?;
        let (run_id, sequence) = match &decoded {
            Decoded::Event(event) => (event.run_id, event.sequence),
            Decoded::Skipped(skipped) => (skipped.run_id, skipped.sequence),
        };
        let starts = matches!(&decoded, Decoded::Event(Event { body: EventBody::RunStarted { .. }, .. }));
        match previous {
            None if !starts => return Err(EventError::invalid("the first event is not `run.started`")),
            Some(_) if starts => return Err(EventError::invalid("`run.started` came twice")),
            Some((run, _)) if run != run_id => return Err(EventError::invalid("`runId` changed")),
            _ => {}
        }
        // A sequence number cannot pass u64::MAX: the count starts at 1 and grows by 1.
        if sequence != previous.map_or(0, |(_, last)| last).saturating_add(1) {
            return Err(EventError::invalid("`sequence` is not the next number"));
        }
        if let Decoded::Event(Event { body: EventBody::ToolExecutionRequested { execution }, .. }) = &decoded
        {
            self.admit(execution)?;
        }
        self.state = match &decoded {
            Decoded::Event(event) if event.is_terminal() => State::Ended,
            _ => State::Open { run_id, sequence },
        };
        Ok(match decoded {
            Decoded::Event(event) => Some(event),
            Decoded::Skipped(_) => None,
        })
    }

    /// Refuses an execution that was asked for before: executing it again would be a second effect (law 1).
    fn admit(&mut self, execution: &ToolExecution) -> Result<(), EventError> {
        if self.executions.len() == MAX_EXECUTIONS {
            return Err(EventError::invalid(format!("more than {MAX_EXECUTIONS} executions in one stream")));
        }
        if !self.executions.insert(execution.execution_id) {
            return Err(EventError::invalid("`executionId` came twice"));
        }
        if !self.executed.insert(execution.call.id.clone()) {
            return Err(EventError::invalid("a call is to be executed twice"));
        }
        Ok(())
    }

    /// Whether the terminal event came.
    pub const fn is_finished(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Says whether the input may end here.
    ///
    /// # Errors
    /// [`EventError::Incomplete`] if the terminal event has not come.
    pub const fn finish(&self) -> Result<(), EventError> {
        if self.is_finished() { Ok(()) } else { Err(EventError::Incomplete) }
    }
}
