//! One worker process, as its host holds it. Dropping it kills it and takes its remains away.

use std::io::BufReader;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::wire::{self, FromWorker, MAX_READY, MAX_TO_WORKER, NoMessage, Ready, ToWorker};
use super::{WorkerCommand, confine};

pub(super) struct Process {
    killer: Killer,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// Programs that it ran.
    pub(super) served: usize,
    /// Engine time that they took.
    pub(super) spent: Duration,
}

/// Kills a worker from another thread, as long as it works for the one who got this. Afterwards, and once the worker's
/// remains were taken away, it does nothing.
#[derive(Clone)]
pub(super) struct Killer {
    child: Arc<Mutex<Child>>,
    /// Changed while the child is locked.
    holds: Arc<AtomicBool>,
}

impl Killer {
    fn new(child: Child) -> Self {
        Self { child: Arc::new(Mutex::new(child)), holds: Arc::new(AtomicBool::new(true)) }
    }

    pub(super) fn kill(&self) {
        let mut child = self.child();
        if self.holds.load(Relaxed) {
            // It may be dead already.
            drop(child.kill());
        }
    }

    /// The same for the next one; this and its clones do nothing from now on.
    fn renew(&mut self) {
        let child = Arc::clone(&self.child);
        let _locked = child.lock().unwrap_or_else(PoisonError::into_inner);
        self.holds.store(false, Relaxed);
        self.holds = Arc::new(AtomicBool::new(true));
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Process {
    /// Starts a worker, which then has to say that it is ready.
    ///
    /// # Errors
    /// A text for the log.
    pub(super) fn spawn(command: &WorkerCommand) -> Result<Self, String> {
        let mut child = Command::new(&command.program)
            .args(&command.args)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", command.program.display()))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let killer = Killer::new(child);
        let (Some(to), Some(from)) = (to, from) else {
            killer.kill();
            return Err("a worker has no pipes".to_owned());
        };
        Ok(Self { killer, to, from: BufReader::new(from), served: 0, spent: Duration::ZERO })
    }

    /// What ends the present use of the worker.
    pub(super) fn killer(&self) -> Killer {
        self.killer.clone()
    }

    /// Ends the present use: nobody who had the worker can kill it any more.
    pub(super) fn released(mut self) -> Self {
        self.killer.renew();
        self
    }

    /// Waits for a new worker's first word, and judges it.
    ///
    /// # Errors
    /// A text for the log.
    pub(super) fn greet(&mut self) -> Result<(), String> {
        let Ready { build, refused } = self.ready()?;
        let ours = super::build();
        if build != ours {
            return Err(format!("the worker is of another build: {build}, not {ours}"));
        }
        let open = |must: &&&str| !refused.iter().any(|(what, _)| what == **must);
        match confine::MUST_REFUSE.iter().find(open) {
            Some(open) => Err(format!("the worker could not give up its rights: {open}")),
            None => Ok(()),
        }
    }

    /// Waits until the worker is ready for a program.
    ///
    /// # Errors
    /// A text for the log.
    pub(super) fn ready(&mut self) -> Result<Ready, String> {
        match self.receive(MAX_READY)? {
            FromWorker::Ready(ready) => Ok(ready),
            FromWorker::Failed(why) => Err(format!("the worker could not begin: {why}")),
            _ => Err("the worker spoke out of turn".to_owned()),
        }
    }

    /// # Errors
    /// What became of the worker.
    pub(super) fn send(&mut self, message: &ToWorker) -> Result<(), String> {
        match wire::send(&mut self.to, message, MAX_TO_WORKER) {
            Ok(()) => Ok(()),
            Err(wire::NotSent::TooLong(length)) => {
                Err(format!("a message of {length} bytes is more than a worker takes"))
            }
            Err(wire::NotSent::Closed(_)) => Err(self.remains()),
        }
    }

    /// # Errors
    /// What became of the worker.
    pub(super) fn receive(&mut self, max: usize) -> Result<FromWorker, String> {
        wire::receive(&mut self.from, max).map_err(|why| match why {
            NoMessage::Closed => self.remains(),
            NoMessage::Nonsense(why) => format!("the worker sent no message: {why}"),
        })
    }

    /// Whether it ended by itself.
    pub(super) fn is_gone(&self) -> bool {
        !matches!(self.killer.child().try_wait(), Ok(None))
    }

    /// How a worker ended that closed its pipes.
    fn remains(&mut self) -> String {
        // Its pipes close a moment before it ends.
        for _ in 0..50 {
            if let Ok(Some(status)) = self.killer.child().try_wait() {
                return format!("the worker died: {status}");
            }
            thread::sleep(Duration::from_millis(2));
        }
        "the worker closed its pipes".to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.killer.kill();
        // It was killed: this is soon, and leaves no zombie.
        drop(self.killer.child().wait());
    }
}
