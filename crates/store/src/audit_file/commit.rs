//! Group commit: concurrent records share one write and one sync.
//!
//! A caller adds its line to a common queue and becomes the *leader* if nobody writes: it takes all that is
//! queued, writes and syncs it with no lock held, and wakes the others. Meanwhile the next queue grows. So the
//! order in the file is the order of arrival, and nobody waits for more than the sync under way and the next.

use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use countersign_approval_core::clock::Clock;

use super::head::Head;
use super::io::AuditIo;
use super::line;
use crate::Error;

pub(crate) struct Commit {
    state: Mutex<State>,
    settled: Condvar,
}

struct State {
    /// The last line in `queue`, or in the file if it is empty.
    queued: Head,
    /// The last line that survives a power failure.
    durable: Head,
    /// Whole lines that nobody has begun to write. Bounded by the callers: each of them waits for its own.
    queue: Vec<u8>,
    writer: Writer,
}

enum Writer {
    Ready(Batch),
    /// A leader has it.
    Busy,
    /// For good. The file is closed, so that it can be opened again.
    Failed(Arc<io::Error>),
}

/// The file, with the buffer that is written next; the two buffers change places.
struct Batch {
    io: Box<dyn AuditIo>,
    bytes: Vec<u8>,
}

impl Commit {
    /// Goes on after `head`, the last line of the file.
    pub(crate) fn new(io: Box<dyn AuditIo>, head: Head) -> Self {
        let writer = Writer::Ready(Batch { io, bytes: Vec::new() });
        Self {
            state: Mutex::new(State { queued: head, durable: head, queue: Vec::new(), writer }),
            settled: Condvar::new(),
        }
    }

    /// Returns once the record is durable, or cannot be said to be.
    pub(crate) fn record(&self, clock: &dyn Clock, record: &[u8]) -> Result<(), Error> {
        let mut state = self.lock();
        if let Writer::Failed(cause) = &state.writer {
            return Err(Error::Stopped { cause: cause.clone() });
        }
        // Read here, so that times stand in the order of the lines.
        let at = clock.now().wall;
        let State { queue, queued, .. } = &mut *state;
        line::push(queue, queued, at, record)?;
        let n = queued.n;
        loop {
            if state.durable.n >= n {
                return Ok(());
            }
            match mem::replace(&mut state.writer, Writer::Busy) {
                Writer::Ready(batch) => state = self.lead(state, batch),
                Writer::Busy => {
                    state = self.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                Writer::Failed(cause) => {
                    state.writer = Writer::Failed(cause.clone());
                    return Err(Error::Stopped { cause });
                }
            }
        }
    }

    pub(crate) fn durable(&self) -> Head {
        self.lock().durable
    }

    /// Writes what is queued, without the lock, and says how it went to all who wait.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State>, mut batch: Batch) -> MutexGuard<'a, State> {
        mem::swap(&mut state.queue, &mut batch.bytes);
        let upto = state.queued;
        drop(state);
        // A panic is a failure like another, and must not leave the others waiting.
        let result = catch_unwind(AssertUnwindSafe(|| write_durably(&mut *batch.io, &batch.bytes)))
            .unwrap_or_else(|_| Err(io::Error::other("an operation on the audit file panicked")));
        batch.bytes.clear();
        let mut state = self.lock();
        state.writer = match result {
            Ok(()) => {
                state.durable = upto;
                Writer::Ready(batch)
            }
            Err(error) => {
                tracing::error!(error = %error, "the audit file failed; nothing is accepted until it is opened again");
                state.queue = Vec::new();
                Writer::Failed(Arc::new(error))
            }
        };
        self.settled.notify_all();
        state
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
