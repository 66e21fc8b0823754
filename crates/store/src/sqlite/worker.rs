//! The thread that owns the database. What comes while it commits is taken together, so that many callers share a sync.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use countersign_approval_core::audit::BoxError;
use countersign_driver::operation::{Claim, Claimed, Ended, Operation, StoreError};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::file::Database;
use super::operations::Running;
use super::table::{self, Fault, State};

/// The most commands of one transaction.
const MAX_BATCH: usize = 256;

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the thread is asked for. Each is done whether or not somebody still waits for the reply.
pub(super) enum Command {
    Claim {
        claim: Claim,
        reply: Reply<Claimed>,
    },
    Append {
        id: i64,
        events: Vec<String>,
        ended: Option<Ended>,
        reply: Reply<()>,
    },
    /// The handle of an operation is gone; if it was not finished it is uncertain.
    Release {
        id: i64,
    },
    /// Ends the thread.
    Close,
}

/// Works until it is closed or nobody is left who could ask.
pub(super) fn work(database: Database, commands: &Receiver<Command>, sender: &Sender<Command>) {
    let mut worker = Worker { database, sender: sender.clone(), active: HashSet::new(), failed: None };
    while let Ok(first) = commands.recv() {
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH
            && let Ok(next) = commands.try_recv()
        {
            batch.push(next);
        }
        let closes = batch.iter().position(|command| matches!(command, Command::Close));
        if let Some(at) = closes {
            batch.truncate(at);
        }
        worker.take(batch);
        if closes.is_some() {
            return;
        }
    }
}

struct Worker {
    database: Database,
    /// For the handles that are given out.
    sender: Sender<Command>,
    /// The operations whose handles exist. A row that runs and is not here is uncertain.
    active: HashSet<i64>,
    /// The first failure that put the database in question. Nothing is tried after it: nobody knows what the disk holds.
    failed: Option<Arc<str>>,
}

/// What one command came to, before it is known whether it is durable.
enum Done {
    Claimed(Known),
    Appended,
    Nothing,
}

/// [`Claimed`] without a handle, which exists only once the claim is durable.
enum Known {
    New(i64),
    Old(Claimed),
}

impl Worker {
    fn take(&mut self, batch: Vec<Command>) {
        match self.transaction(&batch) {
            Ok(done) => {
                for (command, done) in batch.into_iter().zip(done) {
                    self.tell(command, done);
                }
            }
            // Only some of them need room: each is tried alone. Nothing of the transaction was kept.
            Err(fault) if fault.is_full() && batch.len() > 1 => {
                for command in batch {
                    self.take(vec![command]);
                }
            }
            Err(fault) => self.refuse(batch, fault),
        }
    }

    /// Does all that is asked for in one transaction. Faults of one operation are that command's own result; any other
    /// takes the whole transaction back.
    fn transaction(&mut self, batch: &[Command]) -> Result<Vec<Result<Done, Fault>>, Fault> {
        if self.failed.is_some() {
            return Ok(batch.iter().map(|_| Err(Fault::Stopped)).collect());
        }
        let connection = &self.database.connection;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut claimed = Vec::new();
        let mut all = || {
            let mut done = Vec::with_capacity(batch.len());
            for command in batch {
                done.push(match apply(connection, command, &mut self.active, &mut claimed) {
                    Err(fault @ Fault::Sqlite(_)) => return Err(fault),
                    own => own,
                });
            }
            connection.execute_batch("COMMIT")?;
            self.database.check_name().map_err(Fault::Moved)?;
            Ok(done)
        };
        let done = all();
        if done.is_err() {
            self.active.retain(|id| !claimed.contains(id));
            // SQLite may have done so already. If it cannot, the next BEGIN fails.
            let _ = connection.execute_batch("ROLLBACK");
        }
        done
    }

    fn tell(&mut self, command: Command, done: Result<Done, Fault>) {
        match (command, done) {
            (Command::Claim { reply, .. }, Ok(Done::Claimed(known))) => {
                let claimed = match known {
                    Known::New(id) => {
                        Claimed::New(Box::new(Running::new(id, self.sender.clone())) as Box<dyn Operation>)
                    }
                    Known::Old(claimed) => claimed,
                };
                // A caller who has gone drops the handle, which releases the operation.
                let _ = reply.send(Ok(claimed));
            }
            (Command::Append { id, reply, ended, .. }, Ok(_)) => {
                if ended.is_some() {
                    self.active.remove(&id);
                }
                let _ = reply.send(Ok(()));
            }
            (Command::Release { .. } | Command::Close, Ok(_)) => {}
            (Command::Claim { .. }, Ok(Done::Appended | Done::Nothing)) => {}
            (command, Err(fault)) => self.refuse(vec![command], fault),
        }
    }

    fn refuse(&mut self, batch: Vec<Command>, fault: Fault) {
        let path = self.database.path.display();
        if self.failed.is_none() && fault.is_fatal() {
            tracing::error!(%fault, "{path} failed and is not used until it is opened again");
            self.failed = Some(fault.to_string().into());
        } else if self.failed.is_none() {
            tracing::warn!(%fault, "{path} refused a command");
        }
        let text: Arc<str> = match &self.failed {
            Some(first) => Arc::clone(first),
            None => fault.to_string().into(),
        };
        let full = fault.is_full();
        let error = || {
            if full { StoreError::Full } else { StoreError::Failed(BoxError::from(&*text)) }
        };
        for command in batch {
            match command {
                Command::Claim { reply, .. } => drop(reply.send(Err(error()))),
                Command::Append { id, reply, .. } => {
                    // Its log has a hole from now on.
                    self.active.remove(&id);
                    drop(reply.send(Err(error())));
                }
                Command::Release { id } => {
                    self.active.remove(&id);
                }
                Command::Close => {}
            }
        }
    }
}

fn apply(
    connection: &Connection,
    command: &Command,
    active: &mut HashSet<i64>,
    claimed: &mut Vec<i64>,
) -> Result<Done, Fault> {
    match command {
        Command::Claim { claim, .. } => {
            let known = match table::find(connection, claim)? {
                None => {
                    let id = table::insert(connection, claim)?;
                    active.insert(id);
                    claimed.push(id);
                    Known::New(id)
                }
                Some(row) => {
                    // Before anything is said of it: of a row that is damaged not even the fingerprint is known.
                    let log = table::log(connection, row.id)?;
                    Known::Old(match row.state {
                        _ if !row.is_same_request => Claimed::Conflict,
                        State::Running if active.contains(&row.id) => Claimed::InProgress,
                        State::Running | State::Ended(Ended::Uncertain) => Claimed::Uncertain(log),
                        State::Ended(Ended::Completed | Ended::Failed | Ended::Cancelled) => {
                            Claimed::Replay(log)
                        }
                    })
                }
            };
            Ok(Done::Claimed(known))
        }
        Command::Append { id, events, ended, .. } => {
            if !active.contains(id) {
                return Err(Fault::NotRunning);
            }
            table::append(connection, *id, events, *ended)?;
            Ok(Done::Appended)
        }
        Command::Release { id } => {
            if active.remove(id) {
                table::end_as_uncertain(connection, *id)?;
            }
            Ok(Done::Nothing)
        }
        Command::Close => Ok(Done::Nothing),
    }
}
