//! [`Operations`]: an operation store in a SQLite file (contract 9, design 4).

use std::fmt;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use async_trait::async_trait;
use countersign_driver::operation::{Claim, Claimed, Ended, Operation, OperationStore, StoreError};
use tokio::sync::oneshot;

use super::file::{self, Database};
use super::table;
use super::worker::{Command, Reply, work};
use crate::Error;

/// Operations in a file, durable before a call returns. Nothing is ever evicted, so the file grows by what its
/// operations say; it is full when the disk is.
///
/// After an error of the disk or of SQLite, other than a full disk, it refuses everything until it is opened again.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("operations.db");
/// use countersign_store::sqlite::Operations;
///
/// let (operations, recovery) = Operations::open(&path)?;
/// assert_eq!(recovery.interrupted, 0, "no operation was cut off");
/// # drop(operations);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Operations {
    sender: Sender<Command>,
    thread: Option<JoinHandle<()>>,
}

/// What [`Operations::open`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Recovery {
    /// How many operations were running when the last process ended. They are uncertain now.
    pub interrupted: usize,
}

impl Operations {
    /// Opens the file at `path`, or creates it with mode 0600, and takes its lock, which is the file `PATH.lock`. The
    /// whole file is checked first. Its folder must exist.
    ///
    /// This blocks, as dropping does, which waits until what was asked for is on the disk.
    ///
    /// # Errors
    /// [`Error::Locked`] if somebody else has it open; [`Error::NotOurs`], [`Error::SchemaVersion`] and
    /// [`Error::Damaged`], and then nothing is changed; [`Error::Io`] and [`Error::Sqlite`].
    pub fn open(path: &Path) -> Result<(Self, Recovery), Error> {
        let database = Database::open(path, &table::KIND)?;
        let interrupted = table::mark_interrupted(&database.connection)
            .map_err(|source| file::refused("write", &database.path, &table::KIND, source))?;
        Ok((Self::start(database)?, Recovery { interrupted }))
    }

    fn start(database: Database) -> Result<Self, Error> {
        let (sender, receiver) = channel();
        let handles = sender.clone();
        let thread = std::thread::Builder::new()
            .name("operations".into())
            .spawn(move || work(database, &receiver, &handles))
            .map_err(|source| Error::Io { action: "start a thread".into(), source })?;
        Ok(Self { sender, thread: Some(thread) })
    }
}

#[async_trait]
impl OperationStore for Operations {
    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        ask(&self.sender, |reply| Command::Claim { claim, reply }).await
    }
}

impl Drop for Operations {
    fn drop(&mut self) {
        // If it cannot be sent the thread has ended.
        let _ = self.sender.send(Command::Close);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the operation store panicked");
        }
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operations").finish_non_exhaustive()
    }
}

/// The handle of a running operation.
pub(super) struct Running {
    id: i64,
    sender: Sender<Command>,
}

impl Running {
    pub(super) const fn new(id: i64, sender: Sender<Command>) -> Self {
        Self { id, sender }
    }

    async fn append(&self, events: Vec<String>, ended: Option<Ended>) -> Result<(), StoreError> {
        ask(&self.sender, |reply| Command::Append { id: self.id, events, ended, reply }).await
    }
}

#[async_trait]
impl Operation for Running {
    async fn append(&mut self, events: Vec<String>) -> Result<(), StoreError> {
        Running::append(self, events, None).await
    }

    async fn finish(self: Box<Self>, ended: Ended, events: Vec<String>) -> Result<(), StoreError> {
        Running::append(&self, events, Some(ended)).await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Does nothing to an operation that was finished.
        let _ = self.sender.send(Command::Release { id: self.id });
    }
}

/// Sends a command at once and waits for its reply. Dropping the future does not take it back.
async fn ask<T>(
    sender: &Sender<Command>,
    command: impl FnOnce(Reply<T>) -> Command,
) -> Result<T, StoreError> {
    let (reply, answer) = oneshot::channel();
    let closed = || StoreError::Failed("the operation store was closed".into());
    sender.send(command(reply)).map_err(|_| closed())?;
    answer.await.unwrap_or_else(|_| Err(closed()))
}

#[cfg(test)]
mod tests {
    use countersign_approval_core::clock::Timestamp;
    use countersign_approval_core::ids::{ModelId, ProviderId, RunId, Subject};
    use countersign_approval_core::json::Digest;
    use countersign_driver::operation::{OperationKey, Origin};

    use super::*;

    fn claim(key: &str) -> Claim {
        Claim {
            key: OperationKey::of(&Subject::local(), key),
            fingerprint: Digest::of("a request"),
            origin: Origin {
                run_id: RunId::parse("7b0f6c0e-4b0c-4a64-9d0c-0f5c5d0b6a11").unwrap(),
                provider: ProviderId::parse("mock").unwrap(),
                model: ModelId::parse("demo").unwrap(),
                claimed_at: Timestamp::from_millis(0),
            },
        }
    }

    async fn new(store: &Operations, key: &str) -> Box<dyn Operation> {
        match store.claim(claim(key)).await.unwrap() {
            Claimed::New(operation) => operation,
            other => panic!("{other:?}"),
        }
    }

    /// A store that holds the finished operation `old`, with one more setting.
    async fn with(path: &Path, pragma: &str, value: i64) -> Operations {
        let (store, _) = Operations::open(path).unwrap();
        new(&store, "old").await.finish(Ended::Completed, vec!["end".into()]).await.unwrap();
        drop(store);
        let database = Database::open(path, &table::KIND).unwrap();
        // Some settings answer with their value.
        database
            .connection
            .query_row(&format!("PRAGMA {pragma} = {value}"), [], |_| Ok(()))
            .or_else(|error| if error == rusqlite::Error::QueryReturnedNoRows { Ok(()) } else { Err(error) })
            .unwrap();
        Operations::start(database).unwrap()
    }

    // Contract 9: durable before a call returns. A killed process does not show it; a power failure would.
    #[test]
    fn every_commit_is_synced() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&folder.path().join("operations.db"), &table::KIND).unwrap();
        let setting = |name: &str| {
            let value = database
                .connection
                .pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0));
            format!("{:?}", value.unwrap())
        };
        assert_eq!(setting("journal_mode"), r#"Text("truncate")"#);
        assert_eq!(setting("synchronous"), "Integer(2)", "FULL");
        assert_eq!(setting("locking_mode"), r#"Text("exclusive")"#);
    }

    // Law 9: a full disk ends new work, not old answers. SQLite says of its own bound what it says of the disk's.
    #[tokio::test]
    async fn a_full_disk_refuses_what_needs_room_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("operations.db");
        let store = with(&path, "max_page_count", 40).await;
        let mut running = new(&store, "running").await;
        let mut stored = 0;
        let refused = loop {
            assert!(stored < 100, "the file never gets full");
            match running.append(vec!["x".repeat(4_000)]).await {
                Ok(()) => stored += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, StoreError::Full), "{refused:?}");
        let hole = running.append(vec!["small".into()]).await;
        assert!(matches!(hole, Err(StoreError::Failed(_))), "its log has a hole: {hole:?}");
        // In one transaction with others, only those that need room are refused.
        let mut fillers = Vec::new();
        let full = loop {
            let key = fillers.len().to_string();
            match store.claim(claim(&key)).await {
                Ok(claimed) => fillers.push(claimed),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, StoreError::Full), "{full:?}");
        let (one, old, two) =
            tokio::join!(store.claim(claim("one")), store.claim(claim("old")), store.claim(claim("two")));
        assert!(matches!(one, Err(StoreError::Full)), "{one:?}");
        assert!(matches!(old, Ok(Claimed::Replay(_))), "{old:?}");
        assert!(matches!(two, Err(StoreError::Full)), "{two:?}");
        let told = store.claim(claim("running")).await.unwrap();
        assert!(matches!(&told, Claimed::Uncertain(log) if log.events.len() == stored), "{told:?}");
        drop(store);

        // With room again nothing was claimed by what was refused.
        let (store, _) = Operations::open(&path).unwrap();
        drop(new(&store, "one").await);
        drop(new(&store, "two").await);
    }

    // After a failure of the disk nobody knows what it holds, so nothing is told or taken until it is opened again.
    #[tokio::test]
    async fn the_first_failure_sticks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("operations.db");
        let store = with(&path, "query_only", 1).await;
        for key in ["new", "old", "new"] {
            let told = store.claim(claim(key)).await;
            assert!(matches!(told, Err(StoreError::Failed(_))), "{key}: {told:?}");
        }
        drop(store);
        let (store, _) = Operations::open(&path).unwrap();
        assert!(matches!(store.claim(claim("old")).await.unwrap(), Claimed::Replay(_)));
        drop(new(&store, "new").await);
    }
}
