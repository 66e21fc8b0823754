//! [`World`]: what a program can see of the outside, pinned: the clock, randomness, the console, the calls it made.

use countersign_approval_core::json::Exact;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::console::Console;
use crate::limits::Limits;

/// State of one run that its host functions share. Only one thread at a time runs the engine.
pub(crate) struct World {
    /// What the program's clock shows next, in milliseconds since 1970: the time of the last settlement, plus one for
    /// each reading, so that a loop that waits for time to pass ends (sandbox spec 5).
    pub(super) clock: i64,
    pub(super) random: Random,
    pub(super) console: Console,
    /// Names of the functions.
    pub(super) functions: Vec<String>,
    pub(super) limits: Limits,
    /// Calls that the program attempted, refused ones included.
    pub(super) attempts: usize,
    /// The number of the last call.
    pub(super) number: u32,
    /// Calls since the last step.
    pub(super) calls: Vec<NewCall>,
}

/// A call that the program made. It has not been executed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCall {
    /// Which of the pass's calls, from 1. Calls whose input the caller refuses have a number too, but no `seq`.
    pub(crate) number: u32,
    /// Which of the run's functions.
    pub(crate) function: usize,
    pub(crate) input: Exact,
    /// Line and byte column in the program, from 1.
    pub(crate) at: Option<(u32, u32)>,
}

/// Random numbers from a seed of 256 bits: SHA-256 in counter mode, eight bytes a number.
pub(crate) struct Random {
    seed: [u8; 32],
    counter: u64,
}

impl Random {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { seed, counter: 0 }
    }

    /// A double from 0 up to, not including, 1, with 53 bits.
    pub(super) fn number(&mut self) -> f64 {
        let mut hash = Sha256::new();
        hash.update(self.seed);
        hash.update(self.counter.to_le_bytes());
        self.counter += 1;
        let block = hash.finalize();
        let bits = block.iter().take(8).fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        // 53 bits fit a double exactly.
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl World {
    pub(super) fn read_clock(&mut self) -> f64 {
        let now = self.clock;
        self.clock += 1;
        now as f64
    }
}
