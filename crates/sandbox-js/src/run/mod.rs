//! One run, driven to its end: steps of the engine on the pool's threads, functions and questions in tasks of their own
//! (sandbox spec 9 and 10).
//!
//! Outcomes are told to the program one at a time, each only when it has nothing left to do (sandbox spec 5). While
//! nothing but a person's answer is outstanding the run is this future and nothing else: no thread, no timer but that of
//! an expiry, no budget.

mod calls;
mod ending;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::approval::{Answer, Approval, HookError, MAX_REASON, Pause};
use crate::clock::{Began, Stopwatch};
use crate::console::Console;
use crate::engine::{Machine, MachineOptions, NotStarted, Outcome, Settlement, Step, Stop};
use crate::error::Error;
use crate::function::{FunctionError, Marking};
use crate::limits::Bound;
use crate::outcome::{Ending, Rejection, RowState, RunOutcome};
use crate::pool::Lost;
use crate::sandbox::{Inner, RunOptions};
use crate::source::{self, NotAProgram, Program};
use crate::value::Output;
use calls::{Asked, Call, Event, Tasks};

/// How much longer than its budget a step may hold its thread before the thread is given up: natives of the engine that
/// cannot be interrupted, and a machine that is busy otherwise.
const OVERRUN: Duration = Duration::from_secs(1);

/// Runs a program to its end.
pub(crate) async fn drive(sandbox: Arc<Inner>, options: RunOptions) -> Result<RunOutcome, Error> {
    let began = Began::now(options.origin.started_at);
    let cancelled = options.cancellation.child_token();
    let mut run = Run {
        tasks: Tasks::new(),
        ready: BTreeMap::new(),
        asks: VecDeque::new(),
        asked: None,
        waits: None,
        calls: Vec::new(),
        budget: Stopwatch::new(options.limits.run),
        console: Console::new(options.limits.console),
        program: None,
        abandoned: Abandon::default(),
        sandbox,
        options,
        began,
    };
    if cancelled.is_cancelled() {
        return Ok(run.end(None, End::Now(Ending::Cancelled, "the run was cancelled".to_owned())).await);
    }
    let mut stepping = Some(run.load());
    let mut resting: Option<Box<Machine>> = None;
    loop {
        // Tell the next outcome as soon as the program has nothing left to do.
        if let Some(machine) = resting.take() {
            if let Some(end) = run.arrivals().await {
                return Ok(run.end(Some(machine), end).await);
            }
            match run.ready.pop_first() {
                Some((_, settlement)) => stepping = Some(run.settle(machine, settlement)),
                None => resting = Some(machine),
            }
        }
        let budget = if stepping.is_some() { None } else { run.budget.deadline() };
        let expiry = run.asked.as_ref().and_then(|asked| asked.expires_at);
        let end = tokio::select! {
            biased;
            () = cancelled.cancelled() => Some(End::Now(Ending::Cancelled, "the run was cancelled".to_owned())),
            stepped = answer(&mut stepping) => {
                stepping = None;
                match stepped {
                    Ok(Stepped::Ran { mut machine, step, took }) => {
                        run.budget.add(took);
                        let end = run.after(step, &mut machine);
                        resting = Some(machine);
                        end
                    }
                    Ok(Stepped::Loaded(loaded)) => match *loaded {
                        Loaded::Program { program, mut machine, step, took } => {
                            run.program = Some(program);
                            run.budget.add(took);
                            let end = run.after(step, &mut machine);
                            resting = Some(machine);
                            end
                        }
                        Loaded::NoProgram(why) => Some(run.no_program(why)),
                        Loaded::NoEngine(NotStarted::Failed(why)) => return Err(Error::Engine(why)),
                        Loaded::NoEngine(NotStarted::Stopped(stop)) => Some(run.stopped(&stop)),
                    },
                    Err(Lost::Overrun) => Some(run.given_up()),
                    Err(Lost::Gone) => Some(End::Now(Ending::WorkerLost, "the engine failed".to_owned())),
                }
            }
            event = run.tasks.next() => run.event(event),
            () = until(expiry) => { run.expire(); None }
            () = until(budget) => Some(run.limit(Bound::Run)),
        };
        let end = end.or_else(|| run.budget.is_over().then(|| run.limit(Bound::Run)));
        let end = match end {
            None => run.ask().err(),
            end => end,
        };
        if let Some(end) = end {
            return Ok(run.end(resting, end).await);
        }
    }
}

/// How a run is to end.
enum End {
    /// The program came to its end by itself; calls that are being executed are awaited.
    Program(Box<Step>),
    /// Ended from outside it; calls that are being executed are told.
    Now(Ending, String),
    /// There was no program.
    Syntax { message: String, position: Option<source::Position> },
}

/// What a job of the pool came to.
enum Stepped {
    Ran { machine: Box<Machine>, step: Step, took: Duration },
    Loaded(Box<Loaded>),
}

enum Loaded {
    Program { program: Program, machine: Box<Machine>, step: Step, took: Duration },
    NoProgram(NotAProgram),
    NoEngine(NotStarted),
}

struct Run {
    sandbox: Arc<Inner>,
    options: RunOptions,
    began: Began,
    budget: Stopwatch,
    tasks: Tasks,
    /// Every call that got a number, in that order.
    calls: Vec<Call>,
    /// Outcomes to be told, by `seq`: of those that are there, the oldest call's comes first.
    ready: BTreeMap<u32, Settlement>,
    /// Indices of calls that a person must be asked about.
    asks: VecDeque<usize>,
    /// The question that is open.
    asked: Option<Asked>,
    /// Counts this run among those that wait for a person.
    waits: Option<Waits>,
    program: Option<Program>,
    abandoned: Abandon,
    /// What the program printed, once the machine is gone.
    console: Console,
}

type Stepping = oneshot::Receiver<Result<Stepped, Lost>>;

/// The answer of the step that is under way; never, if there is none.
async fn answer(stepping: &mut Option<Stepping>) -> Result<Stepped, Lost> {
    match stepping {
        Some(receiver) => receiver.await.unwrap_or(Err(Lost::Gone)),
        None => std::future::pending().await,
    }
}

async fn until(moment: Option<tokio::time::Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

impl Run {
    /// Prepares, compiles and starts the program.
    fn load(&self) -> Stepping {
        let code = self.options.code.clone();
        let options = MachineOptions {
            functions: self.options.functions.clone(),
            limits: self.options.limits.clone(),
            seed: self.options.origin.seed,
            clock: self.began.millis(),
            abandoned: Arc::clone(&self.abandoned.0),
        };
        let allowed = self.options.limits.compute + OVERRUN;
        self.sandbox.pool.start(allowed, move || {
            let loaded = match source::prepare(&code, &options.limits) {
                Err(why) => Loaded::NoProgram(why),
                Ok(program) => match Machine::new(options) {
                    Err(why) => Loaded::NoEngine(why),
                    Ok(mut machine) => {
                        let step = machine.start(&program.bytecode);
                        let took = machine.spent();
                        Loaded::Program { program, machine: Box::new(machine), step, took }
                    }
                },
            };
            Stepped::Loaded(Box::new(loaded))
        })
    }

    fn settle(&self, mut machine: Box<Machine>, settlement: Settlement) -> Stepping {
        let before = machine.spent();
        let allowed = self.options.limits.compute.saturating_sub(before) + OVERRUN;
        self.sandbox.pool.start(allowed, move || {
            let step = machine.settle(settlement);
            let took = machine.spent().saturating_sub(before);
            Stepped::Ran { machine, step, took }
        })
    }

    /// Takes over what a step left: its calls, and perhaps the end.
    fn after(&mut self, step: Step, machine: &mut Machine) -> Option<End> {
        self.console = machine.console();
        let goes_on = matches!(step, Step::Idle);
        for new in machine.take_calls() {
            let index = self.calls.len();
            let marking = self
                .options
                .functions
                .get(new.function)
                .map_or(Marking::RequiresApproval, |function| function.marking());
            self.calls.push(Call::new(self.options.origin.run_id, new));
            // A program that ended in the same breath starts nothing more.
            match (goes_on, marking, &self.options.approval) {
                (false, ..) => {}
                (true, Marking::Free, _) => self.execute(index),
                (true, Marking::RequiresApproval, Approval::Deny) => {
                    self.reject(index, Rejection::Denied, None)
                }
                (true, Marking::RequiresApproval, Approval::Pause(_)) => self.asks.push_back(index),
            }
        }
        match step {
            Step::Idle => None,
            Step::Stopped(stop) => Some(self.stopped(&stop)),
            step => Some(End::Program(Box::new(step))),
        }
    }

    fn stopped(&self, stop: &Stop) -> End {
        match stop {
            Stop::Limit(bound) => self.limit(*bound),
            Stop::Abandoned | Stop::Panicked => {
                End::Now(Ending::WorkerLost, "the sandbox failed in a function of its own".to_owned())
            }
        }
    }

    fn no_program(&self, why: NotAProgram) -> End {
        match why {
            NotAProgram::Limit(bound) => self.limit(bound),
            NotAProgram::NoThread(why) => {
                End::Now(Ending::WorkerLost, format!("the parser could not run: {why}"))
            }
            NotAProgram::Syntax { message, at } => End::Syntax { message, position: at },
        }
    }

    fn limit(&self, bound: Bound) -> End {
        let message = bound.describe(&self.options.limits, self.sandbox.config.max_waiting);
        End::Now(Ending::LimitExceeded(bound), format!("the run used {message}"))
    }

    fn given_up(&self) -> End {
        match self.limit(Bound::Compute) {
            End::Now(ending, message) => End::Now(
                ending,
                format!("{message}; it could not be interrupted, and its thread was given up"),
            ),
            end => end,
        }
    }

    /// Starts a call. Everything that could forbid it has been asked.
    fn execute(&mut self, index: usize) {
        let Some(call) = self.calls.get_mut(index) else { return };
        let Some(function) = self.options.functions.get(call.function) else { return };
        call.state = calls::State::Executing;
        self.budget.run();
        self.tasks.execute(index, function, call.input.clone(), call.context(self.options.origin.run_id));
    }

    fn reject(&mut self, index: usize, reason: Rejection, note: Option<String>) {
        let Some(call) = self.calls.get_mut(index) else { return };
        let Some(function) = self.options.functions.get(call.function) else { return };
        let name = function.name().to_owned();
        call.state = calls::State::Ended(RowState::Rejected(reason));
        let note = note.map_or_else(String::new, |note| format!(": {note}"));
        let outcome = Outcome::Rejected {
            message: format!("call #{} to \"{name}\" was not approved{note}", call.seq),
            function: name,
            call_id: call.call_id.as_str().to_owned(),
            reason: reason.as_str(),
        };
        self.tell(index, outcome);
    }

    fn tell(&mut self, index: usize, outcome: Outcome) {
        let Some(call) = self.calls.get(index) else { return };
        let settlement = Settlement { seq: call.seq, outcome, clock: self.began.millis(), at: call.at };
        self.ready.insert(call.seq, settlement);
    }

    /// Opens the next question, if none is open.
    fn ask(&mut self) -> Result<(), End> {
        if self.asked.is_some() {
            return Ok(());
        }
        let Approval::Pause(Pause { on_approval, expires_after }) = &self.options.approval else {
            return Ok(());
        };
        let Some(index) = self.asks.pop_front() else {
            self.waits = None;
            return Ok(());
        };
        if self.waits.is_none() {
            let waiting = self.sandbox.waiting.fetch_add(1, Relaxed);
            self.waits = Some(Waits(Arc::clone(&self.sandbox)));
            if waiting >= self.sandbox.config.max_waiting {
                return Err(self.limit(Bound::Waiting));
            }
        }
        let Some(call) = self.calls.get(index) else { return Ok(()) };
        let Some(function) = self.options.functions.get(call.function) else { return Ok(()) };
        let position = self.program.as_ref().and_then(|program| program.lines.position_of(call.at?));
        let request = call.request(self.options.origin.run_id, function.name(), position);
        self.asked = Some(self.tasks.ask(index, on_approval, request, *expires_after));
        Ok(())
    }

    fn expire(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.reject(asked.index, Rejection::Expired, None);
        }
    }

    /// Takes in what has arrived. Tasks that need not wait get their turn first, so that the order in which outcomes are
    /// told depends on what the functions do and not on how long the engine took.
    async fn arrivals(&mut self) -> Option<End> {
        tokio::task::yield_now().await;
        while let Some(event) = self.tasks.arrived() {
            if let Some(end) = self.event(event) {
                return Some(end);
            }
        }
        None
    }

    fn event(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Finished { index, result } => self.finished(index, result),
            Event::Answered { index, answer } => {
                // A late answer to a question that expired is void.
                let is_open = self.asked.as_ref().is_some_and(|asked| asked.index == index);
                if !is_open {
                    return None;
                }
                self.asked = None;
                self.answered(index, answer)
            }
        }
    }

    fn answered(&mut self, index: usize, answer: Result<Answer, HookError>) -> Option<End> {
        let failed = |run: &Self, why: String| {
            let call_id = run.calls.get(index)?.call_id.clone();
            Some(End::Now(Ending::ApprovalHookFailed { call_id }, why))
        };
        match answer {
            // Looked at again after the person's time (R9.6). Cancellation comes first in the select.
            Ok(Answer::Approve) if self.budget.is_over() => Some(self.limit(Bound::Run)),
            Ok(Answer::Approve) => {
                self.execute(index);
                None
            }
            Ok(Answer::Reject { reason: Some(reason) }) if reason.encode_utf16().count() > MAX_REASON => {
                failed(self, format!("the reason of a rejection has more than {MAX_REASON} characters"))
            }
            Ok(Answer::Reject { reason }) => {
                self.reject(index, Rejection::Rejected, reason);
                None
            }
            Err(why) => failed(self, format!("nobody decided: {why}")),
        }
    }

    fn finished(&mut self, index: usize, result: Result<Output, FunctionError>) -> Option<End> {
        let max = self.options.limits.result;
        self.note_finished(index, &result);
        match result {
            Ok(output) => match output.judge(max) {
                Ok(value) => {
                    self.tell(index, Outcome::Value(value.into_exact()));
                    None
                }
                Err(why) => {
                    let call_id = self.calls.get(index)?.call_id.clone();
                    let name =
                        self.calls.get(index).and_then(|call| self.options.functions.get(call.function));
                    let name = name.map_or("a function", |function| function.name());
                    let message = format!("the result of {name} was refused, its effect is real: {why}");
                    Some(End::Now(Ending::ResultRefused { call_id: Some(call_id) }, message))
                }
            },
            Err(FunctionError { message, name, code }) => {
                let name = name.unwrap_or_else(|| "Error".to_owned());
                self.tell(index, Outcome::Failed { name, message, code });
                None
            }
        }
    }

    /// Writes down what became of a call.
    fn note_finished(&mut self, index: usize, result: &Result<Output, FunctionError>) {
        if let Some(call) = self.calls.get_mut(index) {
            call.state = calls::State::Ended(match result {
                Ok(_) => RowState::Executed,
                Err(error) => RowState::Failed { message: error.message.clone() },
            });
        }
        if self.tasks.executing() == 0 {
            self.budget.stop();
        }
    }
}

/// Tells an engine that still computes that its run is over, when it is dropped.
#[derive(Default)]
struct Abandon(Arc<AtomicBool>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// One run more that waits for a person, until it is dropped.
struct Waits(Arc<Inner>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}
