//! [`Limits`]: what one run may use (design 8). Each is finite, and the error names the bound and its value.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The bounds of one run. All but [`Limits::run`] are those of design 8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes of the program's source.
    pub source: usize,
    /// Bytes that the engine may hold.
    pub memory: usize,
    /// Bytes of stack that the program may use; at most [`Limits::MAX_STACK`].
    pub stack: usize,
    /// Polls of the interpreter, 10,000 steps each, in the whole run. The same program always uses the same number, so
    /// this is the budget that decides first; [`Limits::compute`] stands behind it.
    pub polls: u64,
    /// Time that the engine may compute. It stands still while functions execute and while a person decides.
    pub compute: Duration,
    /// Time during which the engine computes or at least one function executes. It stands still while nothing but a
    /// person's answer is outstanding (law 6).
    pub run: Duration,
    /// Calls of functions, refused ones included.
    pub calls: usize,
    /// Bytes of one function's input, as JSON.
    pub input: usize,
    /// Bytes of one function's result and of the program's result, as JSON.
    pub result: usize,
    /// Bytes of console that are kept: half from the beginning, half from the end.
    pub console: usize,
}

impl Limits {
    /// The largest stack bound, a quarter of the stack of an engine thread.
    pub const MAX_STACK: usize = 2 << 20;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            source: 256 << 10,
            memory: 64 << 20,
            stack: 1 << 20,
            polls: 20_000,
            compute: Duration::from_secs(5),
            run: Duration::from_secs(300),
            calls: 1_000,
            input: 128_000,
            result: 1_000_000,
            console: 64 << 10,
        }
    }
}

/// A bound that ends a run when it is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Bound {
    /// [`Limits::source`].
    Source,
    /// [`Limits::memory`].
    Memory,
    /// [`Limits::stack`].
    Stack,
    /// [`Limits::polls`] or [`Limits::compute`].
    Compute,
    /// [`Limits::run`].
    Run,
    /// [`Limits::calls`].
    Calls,
    /// [`Limits::input`].
    Input,
    /// Runs of one sandbox that wait for a person: [`crate::Config::max_waiting`].
    Waiting,
}

impl Bound {
    /// The name that errors show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Memory => "memory",
            Self::Stack => "stack",
            Self::Compute => "compute",
            Self::Run => "run",
            Self::Calls => "calls",
            Self::Input => "input",
            Self::Waiting => "waiting",
        }
    }

    /// The bound and its value, for a message.
    pub(crate) fn describe(self, limits: &Limits, waiting: usize) -> String {
        match self {
            Self::Source => format!("more than {} bytes of source", limits.source),
            Self::Memory => format!("more than {} bytes of memory", limits.memory),
            Self::Stack => format!("calls nested deeper than a stack of {} bytes", limits.stack),
            Self::Compute => {
                format!("more than {} polls or {:?} of computing", limits.polls, limits.compute)
            }
            Self::Run => format!("more than {:?} of running, people's time not counted", limits.run),
            Self::Calls => format!("more than {} calls", limits.calls),
            Self::Input => format!("an input of more than {} bytes", limits.input),
            Self::Waiting => format!("more than {waiting} runs that wait for a person"),
        }
    }
}
