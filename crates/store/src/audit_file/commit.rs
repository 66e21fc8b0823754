//! Group commit: concurrent records share one write and one sync.
//!
//! Records are queued in the order of their arrival. A caller who finds nobody writing becomes the *leader*: he takes
//! what is queued, lays out the lines, writes and syncs them with no lock held, and wakes the others. What came
//! meanwhile is the next batch, and the writer thread leads it and all that follow until nothing is queued. So a
//! record that comes alone changes no thread, and nobody waits for more than the sync under way and the next.

use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use countersign_approval_core::clock::{Clock, Timestamp};

use super::head::Head;
use super::io::AuditIo;
use super::line::{self, WRITE_BYTES};
use crate::Error;

/// What a buffer keeps of its memory after a batch: more than most batches need.
const KEPT_BYTES: usize = 1 << 18;

/// The queue before the file, and whoever writes.
pub(crate) struct Commit(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Who waits for an even batch, and who for an odd one: only those are woken whose batch has settled.
    settled: [Condvar; 2],
    /// Where the writer thread waits.
    work: Condvar,
}

struct State {
    /// What nobody has begun to write. Bounded by the callers: each of them waits for his own.
    queue: Queue,
    /// The number of the last line in `queue`, or in the file if it is empty.
    queued: u64,
    /// Counts the batches: which one `queue` will be.
    batch: usize,
    /// The last line that survives a power failure.
    durable: Head,
    writer: Writer,
    thread: Thread,
}

#[derive(Default)]
struct Queue {
    records: Vec<u8>,
    entries: Vec<Queued>,
}

struct Queued {
    /// One past its last byte in `records`.
    end: usize,
    at: Timestamp,
}

enum Writer {
    Ready(Batch),
    /// A leader has it.
    Busy,
    /// For good. The file is closed, so that it can be opened again.
    Failed(Arc<io::Error>),
}

/// The file, the line that it ends with, and what is written next. Its queue and the common one change places.
struct Batch {
    io: Box<dyn AuditIo>,
    head: Head,
    number: usize,
    queue: Queue,
    lines: Vec<u8>,
}

enum Thread {
    /// It is started when it is needed first.
    Absent,
    Running(JoinHandle<()>),
    /// It ends once nothing is queued.
    Closing,
}

impl Commit {
    /// Goes on after `head`, the last line of the file.
    pub(crate) fn new(io: Box<dyn AuditIo>, head: Head) -> Self {
        let batch = Batch { io, head, number: 0, queue: Queue::default(), lines: Vec::new() };
        Self(Arc::new(Shared {
            state: Mutex::new(State {
                queue: Queue::default(),
                queued: head.n,
                batch: 0,
                durable: head,
                writer: Writer::Ready(batch),
                thread: Thread::Absent,
            }),
            settled: [Condvar::new(), Condvar::new()],
            work: Condvar::new(),
        }))
    }

    /// Returns once the record is durable, or cannot be said to be.
    pub(crate) fn record(&self, clock: &dyn Clock, record: &[u8]) -> Result<(), Error> {
        let shared = &self.0;
        let mut state = shared.lock();
        let n = state.push(clock, record)?;
        let batch = state.batch;
        if let Some(batch) = state.take() {
            drop(state);
            shared.lead_and_hand_over(batch);
            state = shared.lock();
        }
        loop {
            if state.durable.n >= n {
                return Ok(());
            }
            if let Writer::Failed(cause) = &state.writer {
                return Err(Error::Stopped { cause: cause.clone() });
            }
            state = shared.settled[batch % 2].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn durable(&self) -> Head {
        self.0.lock().durable
    }
}

impl Drop for Commit {
    /// The file is closed when this returns.
    fn drop(&mut self) {
        let found = mem::replace(&mut self.0.lock().thread, Thread::Closing);
        self.0.work.notify_one();
        if let Thread::Running(thread) = found {
            // Its panics are caught where they happen.
            let _ = thread.join();
        }
    }
}

impl State {
    /// Queues a record and says which line it will be. An error changes nothing.
    fn push(&mut self, clock: &dyn Clock, record: &[u8]) -> Result<u64, Error> {
        if let Writer::Failed(cause) = &self.writer {
            return Err(Error::Stopped { cause: cause.clone() });
        }
        let n = self.queued + 1;
        line::check_length(n, record.len())?;
        // Read here, so that times stand in the order of the lines.
        let at = clock.now().wall;
        self.queue.records.extend_from_slice(record);
        self.queue.entries.push(Queued { end: self.queue.records.len(), at });
        self.queued = n;
        Ok(n)
    }

    /// Makes the caller the leader, if there is something to write and nobody writes.
    fn take(&mut self) -> Option<Batch> {
        if self.queue.entries.is_empty() {
            return None;
        }
        match mem::replace(&mut self.writer, Writer::Busy) {
            Writer::Ready(mut batch) => {
                mem::swap(&mut self.queue, &mut batch.queue);
                batch.number = self.batch;
                self.batch += 1;
                Some(batch)
            }
            other => {
                self.writer = other;
                None
            }
        }
    }

    /// Gives the file back after a batch, or closes it.
    fn settle(&mut self, mut batch: Batch, result: io::Result<()>) {
        batch.queue.entries.clear();
        for buffer in [&mut batch.queue.records, &mut batch.lines] {
            buffer.clear();
            buffer.shrink_to(KEPT_BYTES);
        }
        self.writer = match result {
            Ok(()) => {
                self.durable = batch.head;
                Writer::Ready(batch)
            }
            Err(error) => {
                tracing::error!(error = %error, "the audit file failed; nothing is accepted until it is opened again");
                self.queue = Queue::default();
                Writer::Failed(Arc::new(error))
            }
        };
    }
}

impl Batch {
    /// Lays out the lines, then writes and syncs them. `lines` is empty before.
    ///
    /// What a power failure may tear is bounded, so that whoever opens the file can tell it from a loss.
    fn write(&mut self) -> io::Result<()> {
        let mut from = 0;
        for entry in &self.queue.entries {
            if self.lines.len() >= WRITE_BYTES {
                write_durably(&mut *self.io, &self.lines)?;
                self.lines.clear();
            }
            let record = self.queue.records.get(from..entry.end).unwrap_or_default();
            line::push(&mut self.lines, &mut self.head, entry.at, record);
            from = entry.end;
        }
        write_durably(&mut *self.io, &self.lines)
    }
}

impl Shared {
    /// Writes one batch and settles it. Its callers are yet to be woken, best without the lock.
    fn lead(&self, mut batch: Batch) -> MutexGuard<'_, State> {
        // A panic is a failure like another, and must not leave the others waiting.
        let result = catch_unwind(AssertUnwindSafe(|| batch.write()))
            .unwrap_or_else(|_| Err(io::Error::other("an operation on the audit file panicked")));
        let mut state = self.lock();
        state.settle(batch, result);
        state
    }

    /// Leads one batch, and sees to it that somebody leads the next.
    fn lead_and_hand_over(self: &Arc<Self>, batch: Batch) {
        let mut next = Some(batch);
        while let Some(batch) = next {
            let number = batch.number;
            let mut state = self.lead(batch);
            // Without a thread it goes on itself.
            let handed = state.queue.entries.is_empty() || self.call_thread(&mut state);
            next = if handed { None } else { state.take() };
            self.wake(state, number);
        }
    }

    /// What the writer thread does.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            match state.take() {
                Some(batch) => {
                    drop(state);
                    state = self.lead_all(batch);
                }
                None if matches!(state.thread, Thread::Closing) => return,
                None => state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Leads batches until nothing is queued.
    fn lead_all(&self, mut batch: Batch) -> MutexGuard<'_, State> {
        loop {
            let number = batch.number;
            let mut state = self.lead(batch);
            let next = state.take();
            // Those who are woken go on while the next batch is written.
            self.wake(state, number);
            match next {
                Some(next) => batch = next,
                None => return self.lock(),
            }
        }
    }

    /// Lets go of the lock and wakes who waits for the batch; after a failure, everybody.
    fn wake(&self, state: MutexGuard<'_, State>, number: usize) {
        let failed = matches!(state.writer, Writer::Failed(_));
        drop(state);
        for (parity, settled) in self.settled.iter().enumerate() {
            if failed || parity == number % 2 {
                settled.notify_all();
            }
        }
    }

    /// Wakes the writer thread, and starts it before that if need be. False if the system has no thread for it.
    fn call_thread(self: &Arc<Self>, state: &mut State) -> bool {
        if matches!(state.thread, Thread::Absent) {
            let shared = Arc::clone(self);
            match thread::Builder::new().name("audit-file".into()).spawn(move || shared.work()) {
                Ok(thread) => state.thread = Thread::Running(thread),
                Err(error) => {
                    tracing::warn!(error = %error, "the audit file works without a thread of its own");
                    return false;
                }
            }
        }
        self.work.notify_one();
        true
    }

    /// A panic under the lock can come only from the clock, which is read before anything is changed. So the
    /// state is whole even then.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Appends and syncs. After an error nothing is tried again: what the disk holds is unknown (law 8).
pub(crate) fn write_durably(io: &mut dyn AuditIo, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match io.append(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            // A write may take a part and be well; what is left says whether it is.
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    io.sync()
}
