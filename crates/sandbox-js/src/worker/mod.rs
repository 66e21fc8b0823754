//! Workers: processes that do nothing but run programs, one after another (design 5).
//!
//! The host speaks to a worker over its standard input and output, in frames of four bytes of length and JSON
//! (`wire`). Before it reads the first program a worker gives up what it does not need (`confine`): it cannot open
//! files, make sockets, start processes or threads. It is killed when it overruns its budget, when nobody waits for it
//! any more, and by the system when the host ends.
//!
//! What a worker says is checked like any input: it could be in a program's hands.

mod confine;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]
mod filter;
mod process;
mod serve;
mod wire;
mod workers;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::error::Error;
use crate::limits::Limits;

pub(crate) use workers::Workers;

/// How a worker is started. Its environment is empty, its folder is `/`, and its standard error is dropped.
///
/// The program must call [`main`] first of all:
///
/// ```no_run
/// use std::process::ExitCode;
/// use countersign_sandbox_js::{Backend, Config, Sandbox, WorkerCommand, worker};
///
/// fn main() -> ExitCode {
///     if std::env::args().nth(1).as_deref() == Some("__sandbox-worker") {
///         return worker::main();
///     }
///     let itself = std::env::current_exe().expect("a program has a path");
///     let backend = Backend::Worker(WorkerCommand::new(itself).arg("__sandbox-worker"));
///     let sandbox = Sandbox::new(Config { backend, ..Config::default() });
///     // …
///     # drop(sandbox);
///     ExitCode::SUCCESS
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    program: PathBuf,
    args: Vec<OsString>,
}

impl WorkerCommand {
    /// The program at an absolute path.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: Vec::new() }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }
}

/// What a worker process does, from its beginning to its end. To be called before anything else: no thread, no reading of
/// standard input. It returns when standard input ends; the answer is not 0 if it could not begin.
pub fn main() -> ExitCode {
    serve::main()
}

/// The largest memory bound of a run in a worker, whose address space has [`confine::ADDRESS_SPACE`].
const MAX_MEMORY: usize = 256 << 20;
/// The largest compute bound of a run in a worker, which gets [`confine::CPU`] in its life.
const MAX_COMPUTE: Duration = Duration::from_secs(300);

/// The largest bound of a source, an input, a result and the console of a run in a worker: each crosses in one frame.
const MAX_TEXT: usize = 8 << 20;

/// Whether a worker can keep these limits.
pub(crate) fn check(limits: &Limits) -> Result<(), Error> {
    if [limits.source, limits.input, limits.result, limits.console].iter().any(|bytes| *bytes > MAX_TEXT) {
        return Err(Error::Limit(
            "`source`, `input`, `result` or `console` is more than the 8 MiB that a worker takes",
        ));
    }
    if limits.memory > MAX_MEMORY {
        return Err(Error::Limit("`memory` is more than the 256 MiB that a worker can keep"));
    }
    if limits.compute > MAX_COMPUTE {
        return Err(Error::Limit("`compute` is more than the 300 s that a worker can keep"));
    }
    Ok(())
}

/// What host and worker must have in common, so that a journal means the same to both.
fn build() -> String {
    let (version, engine) = (env!("CARGO_PKG_VERSION"), crate::engine::engine_version());
    format!("{version}, {engine}, {}-{}", std::env::consts::ARCH, std::env::consts::OS)
}
