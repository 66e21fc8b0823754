//! The tables of operations, and what is said to them. Every function works within the transaction of its caller.

use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::{ModelId, ProviderId, RunId};
use countersign_driver::operation::{Claim, Ended, Log, Origin};
use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest as _, Sha256};

use super::file::Kind;

/// `chain` finds damage, not forgery: SHA-256 over the claim and then over every event.
pub(super) const KIND: Kind = Kind {
    what: "operations",
    // "CSop"
    application_id: 0x4353_6f70,
    version: 1,
    schema: "
        CREATE TABLE operation (
            id INTEGER PRIMARY KEY,
            key BLOB NOT NULL UNIQUE CHECK (length(key) = 32),
            fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
            run_id TEXT NOT NULL,
            provider TEXT NOT NULL,
            model TEXT NOT NULL,
            claimed_at INTEGER NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('running', 'completed', 'failed', 'cancelled', 'uncertain')),
            events INTEGER NOT NULL,
            chain BLOB NOT NULL CHECK (length(chain) = 32)
        ) STRICT;
        CREATE TABLE operation_event (
            operation INTEGER NOT NULL REFERENCES operation (id) ON DELETE CASCADE,
            n INTEGER NOT NULL,
            event BLOB NOT NULL,
            PRIMARY KEY (operation, n)
        ) STRICT, WITHOUT ROWID;
    ",
};

type Chain = [u8; 32];

/// A row of a claimed key.
pub(super) struct Row {
    pub(super) id: i64,
    pub(super) state: State,
    pub(super) is_same_request: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Ended(Ended),
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// What is stored of one operation is not what was written.
    #[error("the stored operation is damaged: {0}")]
    Damaged(&'static str),
    /// The operation is not running any more.
    #[error("the operation is not running")]
    NotRunning,
    /// It was committed to a file that nobody will find.
    #[error("the database is not under its name any more")]
    Moved(#[source] std::io::Error),
    /// An earlier failure put the database in question.
    #[error("the database is not used any more")]
    Stopped,
}

/// Everything that runs was left behind by a process that ended. Says how many there were.
pub(super) fn mark_interrupted(connection: &Connection) -> rusqlite::Result<usize> {
    connection.execute("UPDATE operation SET state = 'uncertain' WHERE state = 'running'", [])
}

pub(super) fn find(connection: &Connection, claim: &Claim) -> Result<Option<Row>, Fault> {
    let mut statement =
        connection.prepare_cached("SELECT id, state, fingerprint FROM operation WHERE key = ?1")?;
    let found = statement
        .query_row([claim.key.as_bytes().as_slice()], |row| {
            Ok((row.get(0)?, row.get::<_, String>(1)?, row.get::<_, Vec<u8>>(2)?))
        })
        .optional()?;
    let Some((id, state, fingerprint)) = found else { return Ok(None) };
    let state = match state.as_str() {
        "running" => State::Running,
        "completed" => State::Ended(Ended::Completed),
        "failed" => State::Ended(Ended::Failed),
        "cancelled" => State::Ended(Ended::Cancelled),
        "uncertain" => State::Ended(Ended::Uncertain),
        _ => return Err(Fault::Damaged("unknown state")),
    };
    Ok(Some(Row { id, state, is_same_request: fingerprint == claim.fingerprint.as_bytes() }))
}

/// Makes the row of a new key.
pub(super) fn insert(connection: &Connection, claim: &Claim) -> Result<i64, Fault> {
    let Claim { key, fingerprint, origin } = claim;
    let run_id = origin.run_id.to_string();
    let chain = first_chain(fingerprint.as_bytes(), &run_id, origin);
    let mut statement = connection.prepare_cached(
        "INSERT INTO operation (key, fingerprint, run_id, provider, model, claimed_at, state, events, chain)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'running', 0, ?7)",
    )?;
    Ok(statement.insert(params![
        key.as_bytes(),
        fingerprint.as_bytes(),
        run_id,
        origin.provider.as_str(),
        origin.model.as_str(),
        origin.claimed_at.as_millis(),
        chain,
    ])?)
}

/// Appends events to a running operation, and ends it if that is asked for.
pub(super) fn append(
    connection: &Connection,
    id: i64,
    events: &[String],
    ended: Option<Ended>,
) -> Result<(), Fault> {
    let mut statement = connection
        .prepare_cached("SELECT events, chain FROM operation WHERE id = ?1 AND state = 'running'")?;
    let found = statement.query_row([id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (mut n, mut chain): (i64, Chain) = found.ok_or(Fault::NotRunning)?;
    let mut statement =
        connection.prepare_cached("INSERT INTO operation_event (operation, n, event) VALUES (?1, ?2, ?3)")?;
    for event in events {
        n += 1;
        chain = next_chain(&chain, event.as_bytes());
        statement.execute(params![id, n, event.as_bytes()])?;
    }
    let state = ended.map_or("running", Ended::as_str);
    let mut statement = connection
        .prepare_cached("UPDATE operation SET events = ?2, chain = ?3, state = ?4 WHERE id = ?1")?;
    statement.execute(params![id, n, chain, state])?;
    Ok(())
}

/// Ends an operation whose run was given up.
pub(super) fn end_as_uncertain(connection: &Connection, id: i64) -> Result<(), Fault> {
    let mut statement = connection
        .prepare_cached("UPDATE operation SET state = 'uncertain' WHERE id = ?1 AND state = 'running'")?;
    statement.execute([id])?;
    Ok(())
}

/// Reads a log, and whether it is the one that was written.
pub(super) fn log(connection: &Connection, id: i64) -> Result<Log, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT fingerprint, run_id, provider, model, claimed_at, events, chain FROM operation WHERE id = ?1",
    )?;
    let (fingerprint, run_id, provider, model, claimed_at, count, chain) =
        statement.query_row([id], |row| {
            Ok((
                row.get::<_, Vec<u8>>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, String>(3)?,
                row.get::<_, i64>(4)?,
                row.get::<_, i64>(5)?,
                row.get::<_, Chain>(6)?,
            ))
        })?;
    let origin = Origin {
        run_id: RunId::parse(&run_id).ok_or(Fault::Damaged("run id"))?,
        provider: ProviderId::parse(&provider).map_err(|_| Fault::Damaged("provider"))?,
        model: ModelId::parse(&model).map_err(|_| Fault::Damaged("model"))?,
        claimed_at: Timestamp::from_millis(claimed_at),
    };
    let mut statement =
        connection.prepare_cached("SELECT event FROM operation_event WHERE operation = ?1 ORDER BY n")?;
    let mut found = first_chain(&fingerprint, &run_id, &origin);
    let mut events = Vec::new();
    let mut rows = statement.query([id])?;
    while let Some(row) = rows.next()? {
        let event = row.get_ref(0)?.as_blob().map_err(|_| Fault::Damaged("event"))?;
        found = next_chain(&found, event);
        events.push(std::str::from_utf8(event).map_err(|_| Fault::Damaged("event"))?.to_owned());
    }
    if i64::try_from(events.len()) == Ok(count) && found == chain {
        Ok(Log { origin, events })
    } else {
        Err(Fault::Damaged("the events are not those that were written"))
    }
}

/// No part but the last can hold a line break.
fn first_chain(fingerprint: &[u8], run_id: &str, origin: &Origin) -> Chain {
    let (provider, model) = (origin.provider.as_str(), origin.model.as_str());
    let at = origin.claimed_at.as_millis();
    Sha256::new()
        .chain_update(fingerprint)
        .chain_update(format!("{run_id}\n{provider}\n{model}\n{at}"))
        .finalize()
        .into()
}

fn next_chain(chain: &Chain, event: &[u8]) -> Chain {
    Sha256::new().chain_update(chain).chain_update(event).finalize().into()
}

impl Fault {
    /// Whether there is no room: nothing of the transaction was kept, and a later one may find room.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Sqlite(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull))
    }

    /// Whether the database itself is in question, and not only what was asked.
    pub(super) fn is_fatal(&self) -> bool {
        matches!(self, Self::Sqlite(_) | Self::Moved(_)) && !self.is_full()
    }
}
