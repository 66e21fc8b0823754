//! What an engine is asked in the sandbox benchmark, and what it answers: one line of JSON each, over its standard input and
//! output. Engines are processes of their own, so that a peer in another language is asked alike.

use std::io::{BufRead, Write};
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::stats::{Summary, summary};

/// One measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "camelCase")]
pub enum Ask {
    /// A new environment, a program that adds two numbers, its end; `count` times.
    Trivial {
        /// Samples.
        count: usize,
    },
    /// The same with only those parts of the language that a program needs (raw engine).
    Lean {
        /// Samples.
        count: usize,
    },
    /// A new environment, and a program that makes `calls` calls of a function, one after the other, with an object of two
    /// members and an object of one member as its result.
    Calls {
        /// Calls of each program.
        calls: usize,
        /// Samples.
        count: usize,
    },
    /// A pool is made, its first program ends, and the pool goes (workers).
    Spawn {
        /// Samples.
        count: usize,
    },
    /// Resident bytes for each run that waits for a person with its engine.
    Hot {
        /// Runs at the first reading.
        from: usize,
        /// Runs at the second.
        to: usize,
    },
    /// The same for runs whose engine was evicted.
    Evicted {
        /// Runs at the first reading.
        from: usize,
        /// Runs at the second.
        to: usize,
    },
    /// How long each program that tries to hang takes.
    Hostile {
        /// What it may compute, in milliseconds.
        budget_ms: u64,
    },
}

/// The answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Told {
    /// Microseconds.
    Times(Summary),
    /// Microseconds of each sample, from a program in another language.
    Samples(Vec<f64>),
    /// One figure.
    Bytes(f64),
    /// One entry a program.
    Hostile(Vec<Hostile>),
    /// The engine has no such thing.
    Unsupported,
}

/// What became of a program that tries to hang.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hostile {
    /// The program.
    pub program: String,
    /// How the run ended.
    pub ended: String,
    /// Milliseconds from the start of the run to its end.
    pub took_ms: f64,
}

/// The program of [`Ask::Calls`].
pub fn calling(calls: usize) -> String {
    format!(
        "let s = 0; for (let i = 0; i < {calls}; i++) {{ const r = await read({{ path: '/a/' + i, n: i }}); s += r.n }} return s"
    )
}

/// What [`calling`] returns.
pub fn sum(calls: usize) -> u64 {
    (0..calls as u64).sum()
}

/// Microseconds of `count` runs of `work`, after some that are not counted.
///
/// # Errors
/// The first of `work`.
pub fn laps(count: usize, mut work: impl FnMut() -> Result<()>) -> Result<Told> {
    for _ in 0..count.div_ceil(10) {
        work()?;
    }
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let before = Instant::now();
        work()?;
        samples.push(before.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Told::Times(summary(samples)))
}

/// Answers what comes on standard input until it ends.
///
/// # Errors
/// The first of `answer`, or of the pipes.
pub fn serve(mut answer: impl FnMut(Ask) -> Result<Told>) -> Result<()> {
    for line in std::io::stdin().lock().lines() {
        let told = answer(serde_json::from_str(&line?)?)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&told)?)?;
        out.flush()?;
    }
    Ok(())
}
