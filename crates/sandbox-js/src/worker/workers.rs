//! [`Workers`]: the host's side, a bounded number of processes of which idle ones stay warm.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::WorkerCommand;
use super::process::{Killer, Process};
use super::wire::{self, Calls, End, FromWorker, How, Rest, Start, ToWorker};
use crate::backend::{Backend, Engine, Fault, OVERRUN, Pass, Programs, Report, Stepped, Stepping, WaitsFor};
use crate::console::Console;
use crate::engine::{NewCall, Settlement, Step, Stop};
use crate::journal::Replay;
use crate::limits::{Bound, Limits};
use crate::pool::{Overdue, Overrun, Pool};
use crate::source::{self, Code, Program};

/// What a watchdog did to a step in a worker.
const KILLED: &str = "its worker was killed";
/// How long a worker may take to start.
const START: Duration = Duration::from_secs(10);
/// How long it may take to take an engine apart.
const CLEAN: Duration = Duration::from_secs(5);
/// After so many programs, or so much engine time, another worker takes a worker's place. Its processor time is limited.
const MAX_SERVED: usize = 1_000;
const MAX_SPENT: Duration = Duration::from_secs(60);

/// Engines in processes of their own.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    evict_after: Duration,
}

struct Shared {
    /// Its threads wait for workers, one each, and last as long as this: the system ends a worker with the thread that
    /// started it.
    pool: Pool,
    programs: Programs,
    command: WorkerCommand,
    /// One for each worker that is not idle.
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Process>>,
}

impl Workers {
    /// At most `most` workers, the first of which starts now.
    ///
    /// # Errors
    /// The operating system's, when it gives no thread; or a command without an absolute path.
    pub(crate) fn new(command: WorkerCommand, most: usize, evict_after: Duration) -> std::io::Result<Self> {
        if !command.program.is_absolute() {
            return Err(std::io::Error::other("a worker's program needs an absolute path"));
        }
        let most = most.max(1);
        let shared = Arc::new(Shared {
            pool: Pool::new(most)?,
            programs: Programs::default(),
            command,
            permits: Arc::new(Semaphore::new(most)),
            idle: Mutex::default(),
        });
        shared.keep_one_warm();
        Ok(Self { shared, evict_after })
    }
}

impl Backend for Workers {
    fn start(&self, pass: Pass) -> Stepping {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let seat = seat(&shared).await?;
            shared.keep_one_warm();
            let killer = seat.process.killer();
            let allowed = pass.limits.compute + OVERRUN + pass.replay.transfer();
            let on = Arc::clone(&shared);
            step(&shared, allowed, killer, move || begin(on, seat, pass)).await
        })
    }

    fn patience(&self, waits: WaitsFor) -> Option<Duration> {
        Some(match waits {
            WaitsFor::Person => Duration::ZERO,
            WaitsFor::Functions => self.evict_after,
        })
    }
}

/// A worker, and the right to it.
struct Seat {
    // Dropped first: the next may begin when this one is gone.
    process: Process,
    permit: OwnedSemaphorePermit,
}

/// Waits for a worker that is free.
async fn seat(shared: &Arc<Shared>) -> Result<Seat, Fault> {
    let closed = |_| Fault::NoEngine("the workers are closed".to_owned());
    let permit = Arc::clone(&shared.permits).acquire_owned().await.map_err(closed)?;
    if let Some(process) = shared.take_idle() {
        return Ok(Seat { process, permit });
    }
    let starting = Starting::default();
    let (command, slot, killer) = (shared.command.clone(), starting.clone(), starting.clone());
    let kill = Overdue::Kill(Box::new(move || starting.kill()));
    let started = shared.pool.start(START, kill, move || boot(&command, &slot));
    let started = Waiting { kill: Some(Box::new(move || killer.kill())), answer: started }.answer().await;
    match started {
        Ok(Ok(Ok(process))) => Ok(Seat { process: process.released(), permit }),
        Ok(Ok(Err(why))) => Err(Fault::NoEngine(why)),
        Ok(Err(Overrun)) => Err(Fault::NoEngine(format!("a worker was not ready after {START:?}"))),
        Err(_) => Err(Fault::NoEngine("no worker could be started".to_owned())),
    }
}

fn boot(command: &WorkerCommand, starting: &Starting) -> Result<Process, String> {
    let mut process = Process::spawn(command)?;
    starting.is(process.killer());
    process.greet()?;
    Ok(process)
}

/// A worker that is being started, to be killed from elsewhere.
#[derive(Clone, Default)]
struct Starting(Arc<Mutex<StartingState>>);

#[derive(Default)]
struct StartingState {
    killer: Option<Killer>,
    is_over: bool,
}

impl Starting {
    fn is(&self, killer: Killer) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_over {
            killer.kill();
        }
        state.killer = Some(killer);
    }

    fn kill(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_over = true;
        if let Some(killer) = state.killer.take() {
            killer.kill();
        }
    }
}

/// Waits for a job with a worker. Dropped before it came to its end, it kills the worker.
struct Waiting<T> {
    kill: Option<Box<dyn FnOnce() + Send>>,
    answer: oneshot::Receiver<Result<T, Overrun>>,
}

impl<T> Waiting<T> {
    async fn answer(mut self) -> Result<Result<T, Overrun>, oneshot::error::RecvError> {
        let answer = (&mut self.answer).await;
        self.kill = None;
        answer
    }
}

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        if let Some(kill) = self.kill.take() {
            kill();
        }
    }
}

/// Runs one step on a thread that waits for the worker. A worker that overruns, or that nobody waits for, is killed.
async fn step(
    shared: &Shared,
    allowed: Duration,
    killer: Killer,
    work: impl FnOnce() -> Result<Stepped, Fault> + Send + 'static,
) -> Result<Stepped, Fault> {
    let overdue = killer.clone();
    let answer = shared.pool.start(allowed, Overdue::Kill(Box::new(move || overdue.kill())), work);
    match (Waiting { kill: Some(Box::new(move || killer.kill())), answer }).answer().await {
        Ok(Ok(stepped)) => stepped,
        Ok(Err(Overrun)) => Err(Fault::Overrun(KILLED)),
        Err(_) => Err(Fault::Broken("the sandbox failed at a worker".to_owned())),
    }
}

fn begin(shared: Arc<Shared>, seat: Seat, pass: Pass) -> Result<Stepped, Fault> {
    let Pass { source, functions, limits, seed, clock, replay } = pass;
    // Until the worker has the program it stays clean, and whatever drops the engine gives it back.
    let mut engine = Box::new(Resting {
        seat: Some(seat),
        state: State::Idle,
        program: None,
        functions: functions.len(),
        limits,
        calls: 0,
        spent: Duration::ZERO,
        shared,
    });
    let read = engine.shared.programs.get(source, &engine.limits, |code| source::read(code, &engine.limits));
    let program = read.map_err(Fault::NoProgram)?;
    engine.program = Some(Arc::clone(&program));
    let Code::Text(text) = &program.code else {
        return Err(Fault::Broken("a program without its text".to_owned()));
    };
    let start = Start { text: text.clone(), functions, limits: engine.limits.clone(), seed, clock };
    let report = engine.replay_and_go_on(start, replay)?;
    Ok(Stepped { engine, program, report })
}

/// A worker between two steps of one program.
struct Resting {
    /// `None` once it was given back.
    seat: Option<Seat>,
    state: State,
    program: Option<Arc<Program>>,
    /// How many there are.
    functions: usize,
    limits: Limits,
    /// Calls so far.
    calls: usize,
    spent: Duration,
    shared: Arc<Shared>,
}

/// When a worker was asked, and what it had computed by then.
struct Before {
    spent: Duration,
    asked: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has no program.
    Idle,
    /// Its program waits.
    Waits,
    /// Its program ended, and it takes the engine apart.
    Ended,
    /// Nobody knows, or nobody should use it again.
    Spoilt,
}

impl Resting {
    fn replay_and_go_on(&mut self, start: Start, mut replay: Replay) -> Result<Report, Fault> {
        let mut report = self.ask(&ToWorker::Start(Box::new(start)))?;
        while let Some(settlement) = replay.next(&report.step, &report.calls)? {
            report = self.ask(&ToWorker::Settle(Box::new(settlement)))?;
        }
        Ok(report)
    }

    /// Says something that the worker answers with a step.
    fn ask(&mut self, message: &ToWorker) -> Result<Report, Fault> {
        // Unless the answer says otherwise.
        self.state = State::Spoilt;
        let before = Before { spent: self.spent, asked: Instant::now() };
        let Some(seat) = &mut self.seat else {
            return Err(Fault::Broken("a worker was used twice".to_owned()));
        };
        seat.process.send(message).map_err(Fault::Broken)?;
        let max = wire::max_from_worker(&self.limits);
        let mut calls = Vec::new();
        loop {
            let answer = seat.process.receive(max).map_err(Fault::Broken)?;
            match answer {
                FromWorker::Calls(Calls { calls: more, rest }) => {
                    for call in more {
                        self.calls += 1;
                        check_call(&call, self.calls, self.functions, &self.limits)?;
                        calls.push(call);
                    }
                    let Some(rest) = rest else { continue };
                    self.state = State::Waits;
                    return Ok(self.report(Step::Idle, calls, rest, before));
                }
                FromWorker::End(end) => {
                    let End { how, rest } = *end;
                    let step = match how {
                        How::Step(Step::Idle) => return Err(nonsense("an end that is none")),
                        How::Step(Step::Done(Ok(value))) if value.text().len() > self.limits.result => {
                            return Err(nonsense("a result that is too long"));
                        }
                        How::Step(step) => step,
                        How::NotCompiled(_) if !matches!(message, ToWorker::Start(_)) => {
                            return Err(nonsense("a refusal of a program that runs"));
                        }
                        How::NotCompiled(why) => {
                            self.state = State::Ended;
                            let program = self.program.as_ref();
                            let refused = program.map(|program| Fault::NoProgram(program.refused(why)));
                            return Err(refused.unwrap_or_else(|| nonsense("a refusal of nothing")));
                        }
                        How::Stopped(stop) => return Err(Fault::Stopped(stop)),
                        How::NoEngine(why) => return Err(Fault::NoEngine(why)),
                    };
                    // An engine that ran out of memory is not trusted with another program.
                    let is_clean =
                        !matches!(step, Step::Stopped(Stop::Limit(Bound::Memory) | Stop::Panicked));
                    if is_clean {
                        self.state = State::Ended;
                    }
                    return Ok(self.report(step, calls, rest, before));
                }
                FromWorker::Ready(_) | FromWorker::Failed(_) => return Err(nonsense("`ready` in a program")),
            }
        }
    }

    fn report(&mut self, step: Step, calls: Vec<NewCall>, rest: Rest, before: Before) -> Report {
        // Whatever it claims, it cannot have computed for longer than it was waited for.
        let most = before.spent.saturating_add(before.asked.elapsed());
        self.spent = self.spent.max(rest.spent.min(most));
        let console: Console = rest.console.into_console(self.limits.console);
        Report { step, calls, console, took: self.spent.saturating_sub(before.spent) }
    }
}

fn nonsense(what: &str) -> Fault {
    Fault::Broken(format!("the worker sent nonsense: {what}"))
}

/// A call of a worker, which has passed the gate of exact JSON.
fn check_call(call: &NewCall, number: usize, functions: usize, limits: &Limits) -> Result<(), Fault> {
    let fits = call.number as usize == number
        && number <= limits.calls
        && call.function < functions
        && call.input.text().len() <= limits.input;
    if fits { Ok(()) } else { Err(nonsense("a call that no program can make")) }
}

impl Engine for Resting {
    fn settle(mut self: Box<Self>, settlement: Settlement) -> Stepping {
        let shared = Arc::clone(&self.shared);
        let Some(killer) = self.seat.as_ref().map(|seat| seat.process.killer()) else {
            return Box::pin(async { Err(Fault::Broken("a worker was used twice".to_owned())) });
        };
        let allowed = self.limits.compute.saturating_sub(self.spent) + OVERRUN;
        Box::pin(async move {
            step(&shared, allowed, killer, move || {
                let report = self.ask(&ToWorker::Settle(Box::new(settlement)))?;
                let Some(program) = self.program.clone() else { return Err(nonsense("no program")) };
                Ok(Stepped { engine: self, program, report })
            })
            .await
        })
    }

    fn is_gone(&self) -> bool {
        self.seat.as_ref().is_none_or(|seat| seat.process.is_gone())
    }

    fn spent(&self) -> Duration {
        self.spent
    }
}

impl Drop for Resting {
    /// Gives the worker back, once it is clean, or kills it.
    fn drop(&mut self) {
        let Some(mut seat) = self.seat.take() else { return };
        let (state, spent) = (self.state, self.spent);
        let shared = Arc::clone(&self.shared);
        let killer = seat.process.killer();
        // A thread of the pool: it may take a while, also to kill.
        let given_back =
            self.shared.pool.start(CLEAN, Overdue::Kill(Box::new(move || killer.kill())), move || {
                let process = &mut seat.process;
                process.served += 1;
                process.spent += spent;
                let is_clean = match state {
                    State::Idle => true,
                    State::Waits => process.send(&ToWorker::Stop).is_ok() && process.ready().is_ok(),
                    State::Ended => process.ready().is_ok(),
                    State::Spoilt => false,
                };
                if is_clean && process.served < MAX_SERVED && process.spent < MAX_SPENT {
                    let Seat { process, permit } = seat;
                    shared.idle().push(process.released());
                    drop(permit);
                } else {
                    drop(seat);
                    shared.keep_one_warm();
                }
            });
        drop(given_back);
    }
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Vec<Process>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_idle(&self) -> Option<Process> {
        loop {
            let process = self.idle().pop()?;
            if !process.is_gone() {
                return Some(process);
            }
        }
    }

    /// Starts a worker for the next run, unless there is one or there may be none.
    fn keep_one_warm(self: &Arc<Self>) {
        if !self.idle().is_empty() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { return };
        let starting = Starting::default();
        let (shared, slot) = (Arc::clone(self), starting.clone());
        let kill = Overdue::Kill(Box::new(move || starting.kill()));
        let booted = self.pool.start(START, kill, move || {
            // A worker that cannot start is told to the run that needs it.
            if let Ok(process) = boot(&shared.command, &slot) {
                shared.idle().push(process.released());
            }
            drop(permit);
        });
        drop(booted);
    }
}
