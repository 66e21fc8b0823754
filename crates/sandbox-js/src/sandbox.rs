//! [`Sandbox`]: the entry point.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::approval::Approval;
use crate::backend::{self, in_process::InProcess};
use crate::clock;
use crate::error::Error;
use crate::function::{self, BoxFuture, Function};
use crate::ids::RunId;
use crate::limits::Limits;
use crate::outcome::RunOutcome;
use crate::run::{Relay, Run};
use crate::worker::{self, WorkerCommand, Workers};

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
    /// Where programs run.
    pub backend: Backend,
    /// Programs that compute at one time: threads, or worker processes. A run that waits for a person holds none.
    pub threads: usize,
    /// Runs that may wait for a person at one time.
    pub max_waiting: usize,
    /// How long a run that waits for a person keeps its engine, some 200 kB. After that it is kept as the record of what
    /// it did, and its engine is made anew when the answer comes; nothing is executed twice. A worker is left at once by
    /// a run that waits for a person, and after this time by one that waits for its functions.
    pub evict_after: Duration,
}

/// Where programs run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// In this process. A fault of the engine is a fault of the process.
    #[default]
    InProcess,
    /// Each in a process of its own, which gives up its rights before it begins, and is killed when it overruns its
    /// budget. A process runs one program after another.
    Worker(WorkerCommand),
}

impl Default for Config {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            backend: Backend::default(),
            threads,
            max_waiting: 10_000,
            evict_after: Duration::from_secs(10),
        }
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
    pub(crate) backend: Box<dyn backend::Backend>,
    pub(crate) config: Config,
    pub(crate) waiting: AtomicUsize,
}

impl Sandbox {
    /// Starts the threads, and a first worker in the background.
    ///
    /// # Errors
    /// [`Error::Engine`] when the operating system gives no thread, or the worker's program has no absolute path. A worker
    /// that cannot start is told by [`Sandbox::run`].
    pub fn new(config: Config) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Engine(error.to_string());
        let backend: Box<dyn backend::Backend> = match &config.backend {
            Backend::InProcess => {
                Box::new(InProcess::new(config.threads, config.evict_after).map_err(failed)?)
            }
            Backend::Worker(command) => {
                Box::new(Workers::new(command.clone(), config.threads, config.evict_after).map_err(failed)?)
            }
        };
        Ok(Self { inner: Arc::new(Inner { backend, config, waiting: AtomicUsize::new(0) }) })
    }

    /// Runs a program to its end. Functions and hooks run as tasks of the current tokio runtime; a function that is ready
    /// when it is first polled, on the engine's thread, needs none.
    ///
    /// Dropping the future ends the run: nothing further is started, and calls that are being executed are told.
    ///
    /// # Errors
    /// The caller's mistakes ([`Error`]); nothing ran. Whatever the program does wrong is an outcome.
    pub fn run(
        &self,
        options: RunOptions,
    ) -> impl Future<Output = Result<RunOutcome, Error>> + Send + 'static + use<> {
        let checked = self.check(&options);
        // Many runs wait for a long time: their future is small.
        let run = Run::new(Arc::clone(&self.inner), options);
        let work: BoxFuture<Result<RunOutcome, Error>> = Box::pin(run.drive());
        async move {
            checked?;
            let Ok(runtime) = tokio::runtime::Handle::try_current() else {
                return Err(Error::Engine("there is no tokio runtime".to_owned()));
            };
            Relay::new(runtime, work).await
        }
    }

    fn check(&self, options: &RunOptions) -> Result<(), Error> {
        function::check_all(&options.functions)?;
        if options.limits.stack > Limits::MAX_STACK {
            return Err(Error::Limit("`stack` is more than Limits::MAX_STACK"));
        }
        if options.limits.stack == 0 {
            // For the engine that means without a limit.
            return Err(Error::Limit("`stack` is 0"));
        }
        match self.inner.config.backend {
            Backend::InProcess => Ok(()),
            Backend::Worker(_) => worker::check(&options.limits),
        }
    }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("config", &self.inner.config).finish_non_exhaustive()
    }
}
