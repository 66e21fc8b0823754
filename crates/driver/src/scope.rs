//! What runs belong to: whoever starts them can end them all and wait until nothing of them is left.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A set of runs. Cheap to clone; clones are one scope.
#[derive(Debug, Clone)]
pub struct Scope {
    pub(crate) cancellation: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Scope {
    /// A scope whose runs are cancelled when `cancellation` fires.
    pub fn new(cancellation: CancellationToken) -> Self {
        let tasks = TaskTracker::new();
        // A closed tracker takes tasks all the same; it only means that `finished` may return when there is none.
        tasks.close();
        Self { cancellation, tasks }
    }

    /// Waits until no run of this scope is left, and no tool that one of them started: a tool has five seconds to stop
    /// after its run. A run whose last events nobody takes is left as long as its stream is held.
    pub async fn finished(&self) {
        self.tasks.wait().await;
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::new(CancellationToken::new())
    }
}
