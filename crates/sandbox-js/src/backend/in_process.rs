//! Engines within this process. Quick, and as safe as the C engine is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Backend, Engine, Fault, OVERRUN, Pass, Programs, Report, Stepped, Stepping, WaitsFor};
use crate::engine::{Bytecode, Machine, MachineOptions, NotStarted, Settlement};
use crate::journal::Replay;
use crate::pool::{Overdue, Overrun, Pool};
use crate::source::{self, Code, Program};

/// What a watchdog did to a step in this process.
const GIVEN_UP: &str = "its thread was given up";

/// Engines on the threads of a pool.
pub(crate) struct InProcess {
    shared: Arc<Shared>,
    evict_after: Duration,
}

struct Shared {
    pool: Pool,
    programs: Programs,
}

impl InProcess {
    /// Starts the threads.
    ///
    /// # Errors
    /// The operating system's, when it gives none.
    pub(crate) fn new(threads: usize, evict_after: Duration) -> std::io::Result<Self> {
        let shared = Shared { pool: Pool::new(threads)?, programs: Programs::default() };
        Ok(Self { shared: Arc::new(shared), evict_after })
    }
}

impl Backend for InProcess {
    fn start(&self, pass: Pass) -> Stepping {
        let abandoned = Arc::new(AtomicBool::new(false));
        let (shared, flag) = (Arc::clone(&self.shared), Arc::clone(&abandoned));
        let allowed = pass.limits.compute.saturating_add(OVERRUN);
        let started = self.shared.pool.start(allowed, Overdue::GiveUp, move || start(shared, pass, flag));
        step(started, Abandon(Some(abandoned)))
    }

    fn patience(&self, waits: WaitsFor) -> Option<Duration> {
        match waits {
            WaitsFor::Person => Some(self.evict_after),
            // It holds nothing but memory, and not for longer than a run may take.
            WaitsFor::Functions => None,
        }
    }
}

fn start(shared: Arc<Shared>, pass: Pass, abandoned: Arc<AtomicBool>) -> Result<Stepped, Fault> {
    let Pass { source, functions, limits, seed, clock, replay } = pass;
    let program = shared
        .programs
        .get(source, &limits, |code| source::read(code, &limits)?.compile(&limits))
        .map_err(Fault::NoProgram)?;
    let Code::Compiled(bytecode) = &program.code else {
        return Err(Fault::Broken("a program that was not compiled".to_owned()));
    };
    let compute = limits.compute;
    let options = MachineOptions { functions, limits, seed, clock, abandoned: Arc::clone(&abandoned) };
    let mut machine = Machine::new(options).map_err(|why| match why {
        NotStarted::Stopped(stop) => Fault::Stopped(stop),
        NotStarted::Failed(why) => Fault::NoEngine(why),
    })?;
    let report = replay_and_go_on(&mut machine, bytecode, replay)?;
    let program = Arc::clone(&program);
    let engine = Box::new(Resting {
        machine: Some(machine),
        program: Arc::clone(&program),
        abandoned,
        compute,
        shared,
    });
    Ok(Stepped { engine, program, report })
}

fn replay_and_go_on(machine: &mut Machine, bytecode: &Bytecode, mut replay: Replay) -> Result<Report, Fault> {
    let mut before = Duration::ZERO;
    let mut step = machine.start(bytecode);
    loop {
        let calls = machine.take_calls();
        let console = machine.take_console();
        match replay.next(&step, &calls)? {
            None => {
                return Ok(Report { step, calls, console, took: machine.spent().saturating_sub(before) });
            }
            Some(settlement) => {
                before = machine.spent();
                step = machine.settle(settlement);
            }
        }
    }
}

/// An engine between two steps.
struct Resting {
    /// `None` only while it is being dropped or moved into a step.
    machine: Option<Machine>,
    program: Arc<Program>,
    abandoned: Arc<AtomicBool>,
    compute: Duration,
    shared: Arc<Shared>,
}

impl Engine for Resting {
    fn settle(mut self: Box<Self>, settlement: Settlement) -> Stepping {
        let shared = Arc::clone(&self.shared);
        let abandon = Abandon(Some(Arc::clone(&self.abandoned)));
        let allowed = self.compute.saturating_sub(self.spent()).saturating_add(OVERRUN);
        let settled = shared.pool.start(allowed, Overdue::GiveUp, move || {
            let Some(machine) = self.machine.as_mut() else {
                return Err(Fault::Broken("an engine was used twice".to_owned()));
            };
            let before = machine.spent();
            let step = machine.settle(settlement);
            let report = Report {
                step,
                calls: machine.take_calls(),
                console: machine.take_console(),
                took: machine.spent().saturating_sub(before),
            };
            Ok(Stepped { program: Arc::clone(&self.program), engine: self, report })
        });
        step(settled, abandon)
    }

    fn is_gone(&self) -> bool {
        false
    }

    fn spent(&self) -> Duration {
        self.machine.as_ref().map_or(Duration::ZERO, Machine::spent)
    }
}

impl Drop for Resting {
    fn drop(&mut self) {
        if let Some(machine) = self.machine.take() {
            // Freeing a large heap takes a while.
            let freed =
                self.shared.pool.start(Duration::from_secs(60), Overdue::GiveUp, move || drop(machine));
            drop(freed);
        }
    }
}

/// Tells an engine that computes that nobody waits for it, when it is dropped.
struct Abandon(Option<Arc<AtomicBool>>);

impl Abandon {
    fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for Abandon {
    fn drop(&mut self) {
        if let Some(flag) = &self.0 {
            flag.store(true, Relaxed);
        }
    }
}

fn step(
    answer: oneshot::Receiver<Result<Result<Stepped, Fault>, Overrun>>,
    mut abandon: Abandon,
) -> Stepping {
    Box::pin(async move {
        match answer.await {
            Ok(Ok(stepped)) => {
                abandon.disarm();
                stepped
            }
            Ok(Err(Overrun)) => Err(Fault::Overrun(GIVEN_UP)),
            Err(_) => Err(Fault::Broken("the engine failed".to_owned())),
        }
    })
}
