//! What the load client is asked to do, and what it answers: one JSON text each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::peer::Peer;
use crate::stats::Summary;

/// One scenario.
#[derive(Debug, Serialize, Deserialize)]
pub enum Job {
    /// See [`Review`].
    Review(Review),
    /// See [`Growth`].
    Growth(Growth),
    /// See [`Memory`].
    Memory(Memory),
    /// See [`Durable`].
    Durable(Durable),
}

/// `waiting` runs on each server; `decided` of them one after another, by turns with an echo of the same body; the rest
/// at once over `connections`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Review {
    /// The product.
    pub product: Peer,
    /// The bound on hyper; it is also the one that echoes.
    pub floor: Peer,
    /// The bound on bare sockets.
    pub lean: Peer,
    /// Runs on each.
    pub waiting: usize,
    /// Decided one by one.
    pub decided: usize,
    /// Connections of the burst.
    pub connections: usize,
    /// The round: whose turn it is first.
    pub round: usize,
}

/// What [`Review`] found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reviewed {
    /// The product.
    pub product: Times,
    /// The bound on hyper.
    pub floor: Times,
    /// The bound on bare sockets.
    pub lean: Times,
    /// Microseconds of an echo of the product's decision by the bound on hyper.
    pub echo: Summary,
}

/// Microseconds of the steps of a review, and the burst.
#[derive(Debug, Serialize, Deserialize)]
pub struct Times {
    /// From before the connection is made until the question has come.
    pub start: Summary,
    /// From the decision's first byte to its answer.
    pub decide: Summary,
    /// From the decision's first byte to `run.completed`.
    pub completed: Summary,
    /// Runs completed a second in the burst.
    pub burst: f64,
}

/// Two of each server, one with `few` runs waiting and one with `many`, decided by turns. At the end all are decided.
#[derive(Debug, Serialize, Deserialize)]
pub struct Growth {
    /// The product: with few, with many.
    pub product: [Peer; 2],
    /// The bound on hyper, likewise.
    pub floor: [Peer; 2],
    /// Runs that wait.
    pub few: usize,
    /// Runs that wait.
    pub many: usize,
    /// Decisions on each.
    pub decided: usize,
}

/// What [`Growth`] found, in microseconds from decision to answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Grown {
    /// The product: with few, with many.
    pub product: [Summary; 2],
    /// The bound, likewise.
    pub floor: [Summary; 2],
    /// How many runs of the product's `many` were decided and completed at the end, of how many.
    pub completed: [usize; 2],
}

/// Memory of a server with `from` and with `to` runs waiting, and its processor time afterwards.
#[derive(Debug, Serialize, Deserialize)]
pub struct Memory {
    /// The server.
    pub peer: Peer,
    /// Bytes of the reviewed mail's body.
    pub bytes: usize,
    /// Runs that wait at first.
    pub from: usize,
    /// Runs that wait in the end.
    pub to: usize,
    /// Seconds to let the server come to rest before each reading.
    pub settle: f64,
    /// Seconds for which the processor time is measured at the end; none if zero.
    pub idle: f64,
}

/// What [`Memory`] found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Resident bytes for each run between the two readings.
    pub per_run: f64,
    /// Resident bytes before any run, after a warm-up.
    pub base: f64,
    /// Share of one processor, in per cent.
    pub idle_percent: f64,
}

/// Decisions on a host with its audit in memory, on one with a durable audit file, and a write with one sync, by turns.
#[derive(Debug, Serialize, Deserialize)]
pub struct Durable {
    /// Audit in memory.
    pub memory: Peer,
    /// Audit in a file.
    pub durable: Peer,
    /// A folder on the disk of that file.
    pub folder: PathBuf,
    /// Decisions on each.
    pub decided: usize,
}

/// What [`Durable`] found, in microseconds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Synced {
    /// From decision to answer, audit in memory.
    pub memory: Summary,
    /// From decision to answer, audit in a file.
    pub durable: Summary,
    /// One append of 600 bytes and fdatasync.
    pub sync: Summary,
}
