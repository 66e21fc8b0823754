//! [`Sandbox`]: the entry point.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::SystemTime;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::approval::Approval;
use crate::clock;
use crate::error::Error;
use crate::function::{self, Function};
use crate::ids::RunId;
use crate::limits::Limits;
use crate::outcome::RunOutcome;
use crate::pool::Pool;
use crate::run;

/// Runs agents' programs. Cloning shares the threads.
///
/// ```
/// use countersign_sandbox_js::{Approval, Config, Function, Output, RunOptions, RunOutcome, Sandbox};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sandbox = Sandbox::new(Config::default())?;
/// let delete = Function::new("delete_file", |_input, _call| async { Ok(Output::null()) }).requires_approval();
/// // Nothing marked ever runs by omission.
/// let outcome = sandbox.run(RunOptions::new("await delete_file({ path: '/a' })", vec![delete])).await?;
/// let RunOutcome::Failed(failed) = outcome else { panic!("not denied") };
/// assert_eq!(failed.ending.kind(), "ApprovalRejected");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

/// What a sandbox is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Threads that run programs. A run that waits holds none.
    pub threads: usize,
    /// Runs that may wait for a person at one time; each keeps its engine's memory.
    pub max_waiting: usize,
}

impl Default for Config {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self { threads, max_waiting: 10_000 }
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The program: the body of an async function, in JavaScript or TypeScript.
    pub code: String,
    /// What it can call.
    pub functions: Vec<Function>,
    /// What happens when it calls a marked function.
    pub approval: Approval,
    /// What it may use.
    pub limits: Limits,
    /// Ends the run. A call that is being executed is told, and gets five seconds.
    pub cancellation: CancellationToken,
    /// What makes two runs of one program differ.
    pub origin: Origin,
}

impl RunOptions {
    /// A run in mode `deny` with the default limits.
    pub fn new(code: impl Into<String>, functions: Vec<Function>) -> Self {
        Self {
            code: code.into(),
            functions,
            approval: Approval::Deny,
            limits: Limits::default(),
            cancellation: CancellationToken::new(),
            origin: Origin::fresh(),
        }
    }
}

/// What makes two runs of one program differ, apart from what its functions answer. Two runs with equal origins make the
/// same calls (sandbox spec 5).
#[derive(Clone, PartialEq, Eq)]
pub struct Origin {
    /// The run's id, which is part of each call's id.
    pub run_id: RunId,
    /// Where `Math.random` comes from.
    pub seed: [u8; 32],
    /// What the program's clock shows at the beginning.
    pub started_at: SystemTime,
}

impl Origin {
    /// A new id, a random seed, and now.
    pub fn fresh() -> Self {
        let mut seed = [0; 32];
        let (first, second) = seed.split_at_mut(16);
        first.copy_from_slice(Uuid::new_v4().as_bytes());
        second.copy_from_slice(Uuid::new_v4().as_bytes());
        Self { run_id: RunId::random(), seed, started_at: clock::wall() }
    }
}

impl std::fmt::Debug for Origin {
    /// Without the seed: it predicts what the program takes for random.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Origin").field("run_id", &self.run_id).finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    pub(crate) pool: Pool,
    pub(crate) config: Config,
    pub(crate) waiting: AtomicUsize,
}

impl Sandbox {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`Error::Engine`] when the operating system gives none.
    pub fn new(config: Config) -> Result<Self, Error> {
        let pool = Pool::new(config.threads).map_err(|error| Error::Engine(error.to_string()))?;
        Ok(Self { inner: Arc::new(Inner { pool, config, waiting: AtomicUsize::new(0) }) })
    }

    /// Runs a program to its end. Functions and hooks run as tasks of the current tokio runtime.
    ///
    /// Dropping the future ends the run: nothing further is started, and calls that are being executed are told.
    ///
    /// # Errors
    /// The caller's mistakes ([`Error`]); nothing ran. Whatever the program does wrong is an outcome.
    pub async fn run(&self, options: RunOptions) -> Result<RunOutcome, Error> {
        function::check_all(&options.functions)?;
        if options.limits.stack > Limits::MAX_STACK {
            return Err(Error::Limit("`stack` is more than Limits::MAX_STACK"));
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::Engine("there is no tokio runtime".to_owned()));
        }
        run::drive(Arc::clone(&self.inner), options).await
    }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("config", &self.inner.config).finish_non_exhaustive()
    }
}
