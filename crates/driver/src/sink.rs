//! Handing records to the audit sink: none of its waits may stop the runtime, and none of its panics a run (design 4).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use countersign_approval_core::audit::{AuditRecord, AuditSink, BoxError, Submitted};
use tokio::runtime::{Handle, RuntimeFlavor, worker_index};
use tokio::sync::oneshot;
use tokio::task::{block_in_place, spawn_blocking};

/// Calls the sink here. A panic is a refusal.
pub(crate) fn guarded(sink: &dyn AuditSink, record: &AuditRecord) -> Result<(), BoxError> {
    caught(|| sink.record(record)).unwrap_or_else(Err)
}

/// Has a record accepted by a sink that may wait.
///
/// A sink that works on another record gets this one into its queue, and no thread waits. One that is idle is called in
/// place, where the runtime can hand this thread's tasks to another: that saves two changes of threads, and only one
/// thread at a time can be in this position, save for callers who meet in the same instant. Everything else goes to the
/// pool for blocking work.
pub(crate) async fn slow(sink: &Arc<dyn AuditSink>, record: &AuditRecord) -> Result<(), BoxError> {
    let (sender, receiver) = oneshot::channel();
    // Nobody may wait for the answer any more.
    let done = Box::new(move |accepted| drop(sender.send(accepted)));
    match caught(|| sink.submit(record, done))? {
        Submitted::Taken => receiver.await.unwrap_or_else(|_| Err("the audit sink dropped a record".into())),
        Submitted::Idle if may_wait_here() => block_in_place(|| guarded(&**sink, record)),
        Submitted::Idle | Submitted::Unsupported => {
            let (sink, record) = (Arc::clone(sink), record.clone());
            spawn_blocking(move || guarded(&*sink, &record)).await.unwrap_or_else(|e| Err(e.into()))
        }
    }
}

/// Whether this is a thread whose other tasks the runtime can move. Elsewhere, as in a `LocalSet`, `block_in_place`
/// panics.
fn may_wait_here() -> bool {
    worker_index().is_some()
        && Handle::try_current()
            .is_ok_and(|runtime| matches!(runtime.runtime_flavor(), RuntimeFlavor::MultiThread))
}

fn caught<T>(call: impl FnOnce() -> T) -> Result<T, BoxError> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| "the audit sink panicked".into())
}
