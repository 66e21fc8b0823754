//! [`Pool`]: threads that run steps of engines. A run holds one only while its program computes.
//!
//! A step that takes longer than it may is overdue. In this process its thread is given up: its run ends, another thread
//! takes its place, and it ends itself when the native that it is stuck in is done. How many may be given up at one time
//! is bounded. A step in a worker is ended by killing the worker, which frees its thread.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Four times the largest stack that a program may use.
pub(crate) const STACK: usize = 8 << 20;
/// Threads that may be stuck before none takes their place.
const MAX_LOST: usize = 8;
/// How often the watchdog looks while something runs.
const LOOK: Duration = Duration::from_millis(100);

/// A job ran longer than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

/// What is done about a job that is overdue.
pub(crate) enum Overdue {
    /// Its thread is given up.
    GiveUp,
    /// This is called, after which the job ends soon by itself.
    Kill(Box<dyn FnOnce() + Send>),
}

/// Engine threads and their queue. Dropping it lets the threads end when the queue is empty.
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    watch: Condvar,
    /// Threads that shall be able to work.
    wanted: usize,
}

struct State {
    queue: VecDeque<Job>,
    running: HashMap<u64, Running>,
    next_id: u64,
    /// Threads that can work: neither ended nor given up.
    threads: usize,
    /// Threads that were given up and are still stuck.
    lost: usize,
    closed: bool,
    /// Whether the watchdog sleeps until it is woken. Otherwise it looks by itself, and nothing is overdue sooner.
    unwatched: bool,
}

struct Job {
    allowed: Duration,
    overdue: Overdue,
    work: Box<dyn FnOnce() + Send>,
    answer: Answer,
}

/// Answers in a job's place; false if it answered itself. Whoever is first decides, so that nothing is done about a job that
/// came to its end.
type Answer = Box<dyn FnOnce() -> bool + Send>;

struct Running {
    /// `None` if it may take for good.
    deadline: Option<Instant>,
    /// `None` once it was overdue.
    overdue: Option<(Overdue, Answer)>,
    is_lost: bool,
}

/// What goes on when a job has answered.
pub(crate) trait Carry: Send + Sync {
    /// Goes on, on this thread, until it waits.
    fn carry_on(self: Arc<Self>);
}

/// What the current thread is doing.
enum Here {
    /// It is no thread of a pool, or is between two jobs.
    Elsewhere,
    /// It runs a job. What the answer woke goes on here, when the job is over.
    Answers(Option<Arc<dyn Carry>>),
    /// It carries on what an answer woke, and then looks for work of the pool with this address.
    Carries(usize),
}

thread_local! {
    static HERE: RefCell<Here> = const { RefCell::new(Here::Elsewhere) };
}

/// Lets `next` go on on this thread, if its answer comes from a job of this thread.
///
/// # Errors
/// `next`, if it does not.
pub(crate) fn carry_on_here<T: Carry + 'static>(next: Arc<T>) -> Result<(), Arc<T>> {
    HERE.with_borrow_mut(|here| match here {
        Here::Answers(slot @ None) => {
            *slot = Some(next);
            Ok(())
        }
        _ => Err(next),
    })
}

/// Whether this thread is one of a pool that carries on what its answer woke.
pub(crate) fn is_carrying() -> bool {
    HERE.with_borrow(|here| matches!(here, Here::Carries(_)))
}

fn carries_for(shared: &Arc<Shared>) -> bool {
    HERE.with_borrow(|here| matches!(here, Here::Carries(pool) if *pool == Arc::as_ptr(shared).addr()))
}

impl Pool {
    /// Starts `threads` threads and a watchdog.
    ///
    /// # Errors
    /// The operating system's, when it gives no thread.
    pub(crate) fn new(threads: usize) -> std::io::Result<Self> {
        let state = State {
            queue: VecDeque::new(),
            running: HashMap::new(),
            next_id: 0,
            threads: 0,
            lost: 0,
            closed: false,
            unwatched: false,
        };
        let wanted = threads.max(1);
        let (work, watch_work) = (Condvar::new(), Condvar::new());
        let pool =
            Self { shared: Arc::new(Shared { state: Mutex::new(state), work, watch: watch_work, wanted }) };
        for _ in 0..wanted {
            pool.shared.lock().threads += 1;
            if let Err(error) = spawn(&pool.shared) {
                pool.shared.lock().threads -= 1;
                return Err(error);
            }
        }
        let shared = Arc::clone(&pool.shared);
        thread::Builder::new().name("countersign-watchdog".to_owned()).spawn(move || watch(&shared))?;
        Ok(pool)
    }

    /// Runs `work` on a thread of the pool, for at most `allowed`. A dropped sender means that it panicked, or that no
    /// thread is left.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        allowed: Duration,
        overdue: Overdue,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<Result<T, Overrun>> {
        let (sender, receiver) = oneshot::channel();
        let answer = Arc::new(Mutex::new(Some(sender)));
        let reply = |answer: &Mutex<Option<oneshot::Sender<_>>>, result| {
            let sender = answer.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
            let is_first = sender.is_some();
            if let Some(sender) = sender {
                // Nobody listens when the run was dropped; the result, perhaps an engine, is dropped here.
                drop(sender.send(result));
            }
            is_first
        };
        let instead = Arc::clone(&answer);
        let job = Job {
            allowed,
            overdue,
            work: Box::new(move || {
                reply(&answer, Ok(work()));
            }),
            answer: Box::new(move || reply(&instead, Err(Overrun))),
        };
        let mut state = self.shared.lock();
        if state.threads > 0 {
            // A thread of this pool that carries a run on looks for work next.
            let taken = state.queue.is_empty() && carries_for(&self.shared);
            state.queue.push_back(job);
            drop(state);
            if !taken {
                self.shared.work.notify_one();
            }
        }
        receiver
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
        self.shared.watch.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn spawn(shared: &Arc<Shared>) -> std::io::Result<()> {
    let shared = Arc::clone(shared);
    let thread = thread::Builder::new().name("countersign-engine".to_owned()).stack_size(STACK);
    thread.spawn(move || serve(&shared)).map(drop)
}

fn serve(shared: &Shared) {
    loop {
        let mut state = shared.lock();
        let job = loop {
            if let Some(job) = state.queue.pop_front() {
                break job;
            }
            if state.closed {
                state.threads -= 1;
                return;
            }
            state = shared.work.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        };
        state.next_id += 1;
        let id = state.next_id;
        // Longer than the clock reaches is for good.
        let deadline = Instant::now().checked_add(job.allowed);
        let overdue = Some((job.overdue, job.answer));
        state.running.insert(id, Running { deadline, overdue, is_lost: false });
        let unwatched = state.unwatched;
        drop(state);
        if unwatched {
            shared.watch.notify_one();
        }
        HERE.set(Here::Answers(None));
        // A panic ends the job (its sender is dropped), not the thread.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job.work));
        let next = HERE.replace(Here::Elsewhere);
        let mut state = shared.lock();
        let was_lost = state.running.remove(&id).is_some_and(|running| running.is_lost);
        // Perhaps another thread took this one's place.
        let is_spare = was_lost && state.threads == shared.wanted;
        if was_lost {
            state.lost -= 1;
            state.threads += usize::from(!is_spare);
        }
        drop(state);
        if let Here::Answers(Some(next)) = next {
            HERE.set(Here::Carries(if is_spare { 0 } else { std::ptr::from_ref(shared).addr() }));
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| next.carry_on()));
            HERE.set(Here::Elsewhere);
        }
        if is_spare {
            return;
        }
    }
}

fn watch(shared: &Arc<Shared>) {
    let mut state = shared.lock();
    loop {
        if state.closed && state.queue.is_empty() && state.running.values().all(|it| it.overdue.is_none()) {
            return;
        }
        let now = Instant::now();
        let (mut kills, mut given_up) = (Vec::new(), 0);
        for running in
            state.running.values_mut().filter(|running| running.deadline.is_some_and(|at| at <= now))
        {
            let Some((overdue, answer)) = running.overdue.take() else { continue };
            if !answer() {
                // It came to its end at the last moment.
                continue;
            }
            match overdue {
                Overdue::Kill(kill) => kills.push(kill),
                Overdue::GiveUp => {
                    running.is_lost = true;
                    given_up += 1;
                }
            }
        }
        for _ in 0..given_up {
            state.lost += 1;
            let replaced = state.lost <= MAX_LOST && spawn(shared).is_ok();
            if !replaced {
                state.threads -= 1;
            }
        }
        if !kills.is_empty() {
            drop(state);
            kills.into_iter().for_each(|kill| kill());
            state = shared.lock();
        }
        let busy = state.running.values().any(|running| running.overdue.is_some());
        state.unwatched = !busy && !state.closed;
        state = match busy || state.closed {
            true => shared
                .watch
                .wait_timeout(state, LOOK)
                .map_or_else(|poisoned| poisoned.into_inner().0, |woken| woken.0),
            false => shared.watch.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner()),
        };
        state.unwatched = false;
    }
}
