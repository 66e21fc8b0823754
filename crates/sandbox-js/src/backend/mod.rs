//! [`Backend`]: where engines live. There are two: this process, and processes of their own.
//!
//! A run is driven alike on both ([`crate::run`]): it starts a pass of its program, tells it outcomes one at a time, and
//! may drop the engine while the program waits, because its journal makes another.

pub(crate) mod in_process;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::console::Console;
use crate::engine::{NewCall, Settlement, Step, Stop};
use crate::function::BoxFuture;
use crate::journal::{Halt, Mismatch, Replay};
use crate::limits::Limits;
use crate::source::{Lines, NotAProgram, Program};

/// How much longer than its budget a step may take before it is ended from outside: natives of the engine that cannot be
/// interrupted, and a machine that is busy otherwise. With the look of the watchdog and the killing, a second.
pub(crate) const OVERRUN: Duration = Duration::from_millis(850);

/// Makes engines.
pub(crate) trait Backend: Send + Sync {
    /// Makes an engine, replays what is recorded, and runs the program until it waits.
    ///
    /// Dropping the future ends what it began.
    fn start(&self, pass: Pass) -> Stepping;

    /// How long a waiting program keeps its engine; for good if `None`.
    fn patience(&self, waits: WaitsFor) -> Option<Duration>;
}

/// The engine of one run, while its program waits. Dropping it ends it.
pub(crate) trait Engine: Send {
    /// Tells the program one outcome and runs it until it waits again.
    ///
    /// Dropping the future ends the engine.
    fn settle(self: Box<Self>, settlement: Settlement) -> Stepping;

    /// Whether it ended by itself while the program waited. Another can be made.
    fn is_gone(&self) -> bool;

    /// Engine time of this pass.
    fn spent(&self) -> Duration;
}

/// A step that is under way.
pub(crate) type Stepping = BoxFuture<Result<Stepped, Fault>>;

/// What a waiting program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Nothing but a person.
    Person,
    /// Functions that execute.
    Functions,
}

/// What makes a pass.
pub(crate) struct Pass {
    pub(crate) source: Source,
    /// Names of the functions.
    pub(crate) functions: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) seed: [u8; 32],
    /// What the program's clock shows first.
    pub(crate) clock: i64,
    pub(crate) replay: Replay,
}

#[derive(Clone)]
pub(crate) enum Source {
    /// As it was written.
    Code(Arc<str>),
    /// Of an earlier pass.
    Program(Arc<Program>),
    /// The source of an earlier pass whose program nobody kept.
    Read(Lines),
}

/// A step that came to its end.
pub(crate) struct Stepped {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) program: Arc<Program>,
    pub(crate) report: Report,
}

/// What the program did in a step.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) step: Step,
    /// The calls that it made, in that order.
    pub(crate) calls: Vec<NewCall>,
    /// What it printed.
    pub(crate) console: Console,
    /// Engine time of this step alone.
    pub(crate) took: Duration,
}

/// Why a step has no end.
#[derive(Debug)]
pub(crate) enum Fault {
    NoProgram(NotAProgram),
    /// There is no engine to be had; a text for the log.
    NoEngine(String),
    /// The guard ended the run before the step began.
    Stopped(Stop),
    /// The replay did something else.
    Differs(Box<Mismatch>),
    /// It was ended from outside, after its budget. The text says how.
    Overrun(&'static str),
    /// The engine broke.
    Broken(String),
}

impl From<Halt> for Fault {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Differs(mismatch) => Self::Differs(mismatch),
            Halt::Stopped(stop) => Self::Stopped(stop),
        }
    }
}

/// A source, and the stack bound, which decides what can be compiled.
type Key = (Arc<str>, usize);

/// The programs of the runs that there are: runs of one source share it.
#[derive(Default)]
pub(crate) struct Programs {
    known: Mutex<HashMap<Key, Weak<Program>>>,
}

/// Room for programs that is not given back.
const ROOM: usize = 16;

impl Programs {
    /// The program of a source, made by `make` if no run has it.
    pub(crate) fn get(
        &self,
        source: Source,
        limits: &Limits,
        make: impl FnOnce(&Arc<str>) -> Result<Program, NotAProgram>,
    ) -> Result<Arc<Program>, NotAProgram> {
        let code = match source {
            Source::Program(program) => return Ok(program),
            Source::Code(code) => code,
            Source::Read(lines) => Arc::clone(lines.text()),
        };
        let key = (Arc::clone(&code), limits.stack);
        let known =
            self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).and_then(Weak::upgrade);
        if let Some(program) = known.filter(|_| code.len() <= limits.source) {
            return Ok(program);
        }
        let program = Arc::new(make(&code)?);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() == known.capacity() {
            // The room that many runs at one time took must not fill with the sources of those that are over.
            known.retain(|_, program| program.strong_count() > 0);
            let room = (2 * known.len()).max(ROOM);
            known.shrink_to(room);
        }
        known.insert(key, Arc::downgrade(&program));
        Ok(program)
    }
}
