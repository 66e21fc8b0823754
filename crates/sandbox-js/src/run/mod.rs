//! One run, driven to its end: steps of an engine, functions and questions in tasks of their own (sandbox spec 9 and 10).
//!
//! Outcomes are told to the program one at a time, each only when it has nothing left to do (sandbox spec 5). While
//! nothing but a person's answer is outstanding the run is this future and its journal, and after a while nothing else: no
//! thread, no timer but that of an expiry, no budget, no engine. The next outcome makes another engine, which is told all
//! that the first was told.

mod calls;
mod ending;
mod outcomes;
mod relay;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::time::Instant;

use crate::backend::{Engine, Fault, Pass, Report, Source, Stepped, Stepping, WaitsFor};
use crate::clock::{self, Began, Stopwatch};
use crate::console::Console;
use crate::engine::{Settlement, Step, Stop};
use crate::error::Error;
use crate::journal::{Journal, Made, Mismatch, Replay};
use crate::limits::Bound;
use crate::outcome::{Ending, MadeCall, RunOutcome};
use crate::sandbox::{Inner, RunOptions};
use crate::source::{self, Lines, NotAProgram, Program};
use crate::value::Json;
use calls::{Asked, Call, Tasks};

pub(crate) use relay::Relay;

impl Run {
    /// A run that has not begun.
    pub(crate) fn new(sandbox: Arc<Inner>, mut options: RunOptions) -> Box<Self> {
        let began = Began::now(options.origin.started_at);
        let code: Arc<str> = std::mem::take(&mut options.code).into();
        Box::new(Self {
            source: Source::Code(code),
            clock: began.millis(),
            tasks: Tasks::new(),
            ready: BTreeMap::new(),
            asks: VecDeque::new(),
            asked: None,
            waits: None,
            calls: Vec::new(),
            journal: Journal::default(),
            budget: Stopwatch::new(options.limits.run),
            console: Console::new(options.limits.console),
            sandbox,
            options,
            began,
        })
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    /// [`Error::Engine`]: there is no engine, and nothing ran.
    pub(crate) async fn drive(mut self: Box<Self>) -> Result<RunOutcome, Error> {
        let run = &mut *self;
        let cancelled = run.options.cancellation.clone();
        let mut stepping = None;
        if !cancelled.is_cancelled() {
            stepping = Some(run.pass(Replay::default()));
        }
        let mut resting: Option<Resting> = None;
        let end = loop {
            // Tell the next outcome as soon as the program has nothing left to do.
            if stepping.is_none() {
                if let Some(end) = run.arrivals().await {
                    break end;
                }
                if let Some((_, settlement)) = run.ready.pop_first() {
                    stepping = Some(run.tell_next(resting.take(), settlement));
                }
            }
            let next = run.next_due(stepping.as_ref(), resting.as_ref());
            let end = tokio::select! {
                biased;
                () = cancelled.cancelled() => Some(Self::cancelled()),
                stepped = answer(&mut stepping) => {
                    stepping = None;
                    match stepped {
                        Ok(Stepped { engine, program, report }) => {
                            run.source = Source::Program(program);
                            resting = Some(Resting { engine, since: clock::now() });
                            run.after(report)
                        }
                        Err(Fault::NoEngine(why)) if run.lines().is_none() => return Err(Error::Engine(why)),
                        Err(fault) => Some(run.fault(fault)),
                    }
                }
                event = run.tasks.next() => run.event(event),
                due = due(next) => match due {
                    Due::Question => { run.expire(); None }
                    Due::Budget => Some(run.limit(Bound::Run)),
                    Due::Engine => { resting = None; run.shrink(); None }
                }
            };
            let end = end.or_else(|| run.budget.is_over().then(|| run.limit(Bound::Run)));
            if let Some(end) = end.or_else(|| run.ask().err()) {
                break end;
            }
        };
        // The program does nothing more from here on, even if its engine still computes.
        drop((stepping, resting));
        Ok(Box::pin(self.end(end)).await)
    }
}

/// What becomes due by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The open question expires.
    Question,
    /// The run's budget is used up.
    Budget,
    /// The engine of a program that waits is given up.
    Engine,
}

/// Waits for what is due next; for good if there is nothing.
async fn due(next: Option<(Instant, Due)>) -> Due {
    match next {
        Some((moment, due)) => {
            tokio::time::sleep_until(moment).await;
            due
        }
        None => std::future::pending().await,
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

/// One run. The future that drives it holds it on the heap, since it moves it often and is kept for long.
pub(crate) struct Run {
    sandbox: Arc<Inner>,
    /// Without the source.
    options: RunOptions,
    source: Source,
    began: Began,
    /// What the program's clock showed first.
    clock: i64,
    budget: Stopwatch,
    tasks: Tasks,
    /// Every call that got a `seq`, in that order.
    calls: Vec<Call>,
    /// What makes the program's engine anew.
    journal: Journal,
    /// Outcomes to be told, by the call's number: of those that are there, the oldest call's comes first.
    ready: BTreeMap<u32, Settlement>,
    /// Indices of calls that a person must be asked about.
    asks: VecDeque<usize>,
    /// The question that is open.
    asked: Option<Asked>,
    /// Counts this run among those that wait for a person.
    waits: Option<Waits>,
    /// What the program printed.
    console: Console,
}

/// The engine of a program that waits.
struct Resting {
    engine: Box<dyn Engine>,
    since: Instant,
}

/// The answer of the step that is under way; never, if there is none.
async fn answer(stepping: &mut Option<Stepping>) -> Result<Stepped, Fault> {
    match stepping {
        Some(step) => step.await,
        None => std::future::pending().await,
    }
}

impl Run {
    /// Begins a pass of the program.
    fn pass(&self, replay: Replay) -> Stepping {
        self.sandbox.backend.start(Pass {
            source: self.source.clone(),
            functions: self.options.functions.iter().map(|function| function.name().to_owned()).collect(),
            limits: self.options.limits.clone(),
            seed: self.options.origin.seed,
            clock: self.clock,
            replay,
        })
    }

    /// The program, once an engine had it.
    fn program(&self) -> Option<&Program> {
        match &self.source {
            Source::Program(program) => Some(program),
            Source::Code(_) | Source::Read(_) => None,
        }
    }

    /// The lines of the program, once an engine had it.
    fn lines(&self) -> Option<&Lines> {
        match &self.source {
            Source::Program(program) => Some(&program.lines),
            Source::Read(lines) => Some(lines),
            Source::Code(_) => None,
        }
    }

    /// Tells the program an outcome, after making it a new engine if it has none.
    fn tell_next(&mut self, resting: Option<Resting>, settlement: Settlement) -> Stepping {
        self.journal.tell(&settlement);
        match resting {
            Some(resting) if !resting.engine.is_gone() => resting.engine.settle(settlement),
            _ => self.pass(self.journal.replay()),
        }
    }

    /// What becomes due first. Nothing counts against the budget of a run whose program computes but its engine time.
    fn next_due(&self, stepping: Option<&Stepping>, resting: Option<&Resting>) -> Option<(Instant, Due)> {
        let question = self.asked.as_ref().and_then(|asked| asked.expires_at);
        let budget = if stepping.is_some() { None } else { self.budget.deadline() };
        let engine = resting.and_then(|resting| self.eviction(resting));
        let all = [(question, Due::Question), (budget, Due::Budget), (engine, Due::Engine)];
        all.into_iter().filter_map(|(moment, due)| Some((moment?, due))).min()
    }

    /// When a program that waits gives up its engine: the more it computed, the longer it keeps it, so that replays never
    /// take most of the time.
    fn eviction(&self, resting: &Resting) -> Option<Instant> {
        let waits = match self.tasks.executing() {
            0 => WaitsFor::Person,
            _ => WaitsFor::Functions,
        };
        let patience = self.sandbox.backend.patience(waits)?;
        let patience = if patience.is_zero() { patience } else { patience.max(resting.engine.spent()) };
        resting.since.checked_add(patience)
    }

    /// Gives back what is set aside for more: it may be long until there is.
    fn shrink(&mut self) {
        if let Source::Program(program) = &self.source
            && Arc::strong_count(program) == 1
        {
            self.source = Source::Read(program.lines.clone());
        }
        self.calls.shrink_to_fit();
        self.journal.shrink();
        self.tasks.shrink();
        if self.ready.is_empty() {
            // Keeps room for eleven otherwise.
            self.ready = BTreeMap::new();
        }
    }

    /// Takes over what a step left: its calls, and perhaps the end.
    fn after(&mut self, report: Report) -> Option<End> {
        let Report { step, calls, console, took } = report;
        self.console.append(console);
        self.budget.add(took);
        for new in calls {
            let end = self.made(new, &step);
            if end.is_some() {
                return end;
            }
        }
        match step {
            // Only a worker that lies waits for nothing: it would do so for good.
            Step::Idle if !self.is_outstanding() => Some(End::Now(
                Ending::WorkerLost,
                "the engine waits for a call that it did not make".to_owned(),
            )),
            Step::Idle => None,
            Step::Stopped(stop) => Some(self.stopped(&stop)),
            step => Some(End::Program(Box::new(step))),
        }
    }

    /// Whether there is, or will be, something to tell the program.
    fn is_outstanding(&self) -> bool {
        self.tasks.executing() > 0 || self.asked.is_some() || !self.asks.is_empty() || !self.ready.is_empty()
    }

    fn fault(&self, fault: Fault) -> End {
        let lost = |why: String| End::Now(Ending::WorkerLost, why);
        match fault {
            Fault::NoProgram(NotAProgram::Limit(bound)) => self.limit(bound),
            Fault::NoProgram(NotAProgram::NoThread(why)) => lost(format!("the parser could not run: {why}")),
            Fault::NoProgram(NotAProgram::Syntax { message, at }) => End::Syntax { message, position: at },
            Fault::NoEngine(why) => lost(format!("there is no engine for the rest of the run: {why}")),
            Fault::Broken(why) => lost(why),
            Fault::Stopped(stop) => self.stopped(&stop),
            Fault::Overrun(what) => match self.limit(Bound::Compute) {
                End::Now(ending, message) => {
                    End::Now(ending, format!("{message}; it could not be interrupted, and {what}"))
                }
                end => end,
            },
            Fault::Differs(mismatch) => self.differs(*mismatch),
        }
    }

    fn differs(&self, mismatch: Mismatch) -> End {
        let described = |made: Option<Made>| {
            let made = made?;
            let function = self.options.functions.get(made.function)?.name().to_owned();
            Some(MadeCall { function, input: Json::of_exact(made.input) })
        };
        let (recorded, attempted) = (described(mismatch.recorded), described(mismatch.attempted));
        let text = |call: &Option<MadeCall>| match call {
            Some(call) => format!("{}({})", call.function, call.input),
            None => "no call".to_owned(),
        };
        let call = self.calls.iter().find(|call| call.number == mismatch.number);
        let seq = call.map_or_else(|| calls::seq_of(self.calls.len()), |call| call.seq);
        let message = format!(
            "the program was run again and did something else at call #{seq}: recorded was {}, attempted was {}; nothing \
             more ran",
            text(&recorded),
            text(&attempted)
        );
        End::Now(Ending::ReplayMismatch { seq, recorded, attempted }, message)
    }

    fn stopped(&self, stop: &Stop) -> End {
        match stop {
            Stop::Limit(bound) => self.limit(*bound),
            Stop::Abandoned | Stop::Panicked => {
                End::Now(Ending::WorkerLost, "the sandbox failed in a function of its own".to_owned())
            }
        }
    }

    fn cancelled() -> End {
        End::Now(Ending::Cancelled, "the run was cancelled".to_owned())
    }

    fn limit(&self, bound: Bound) -> End {
        let message = bound.describe(&self.options.limits, self.sandbox.config.max_waiting);
        End::Now(Ending::LimitExceeded(bound), format!("the run used {message}"))
    }
}

/// One run more that waits for a person, until it is dropped.
struct Waits(Arc<Inner>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}
